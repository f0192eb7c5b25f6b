"""Rows in blocks, mapped or on Dask give the model of the array."""

import warnings

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from sparsebayes import (
    BackfittingRegressor,
    ForwardRegressor,
    OrthogonalLeastSquaresRegressor,
    PartitionedRVMClassifier,
    PartitionedRVMRegressor,
    RVMRegressor,
)

MODELS = {
    "forward": ForwardRegressor("rbf", gamma=0.5, max_terms=20, candidates=100),
    "ols": OrthogonalLeastSquaresRegressor("rbf", gamma=0.5, max_terms=15),
    "ols, press": OrthogonalLeastSquaresRegressor("rbf", gamma=0.5, criterion="press", max_terms=8),
    "rvm": RVMRegressor("rbf", gamma=0.5),
    "rvm, fast": RVMRegressor("rbf", gamma=0.5, algorithm="fast"),
    "rvm, scale": RVMRegressor("rbf", gamma="scale", algorithm="fast"),
    "ols, held constant": OrthogonalLeastSquaresRegressor("rbf", gamma=0.002),
    "backfitting": BackfittingRegressor("rbf", gamma=0.5, tol=1e-8),
    "forward, columns": ForwardRegressor(None),
    "forward, some columns": ForwardRegressor(None, candidates=np.array([0, 2])),
    "ols, columns": OrthogonalLeastSquaresRegressor(None),
    "rvm, columns": RVMRegressor(None, tol=1e-8),
    "rvm, columns, noise": RVMRegressor(None, tol=1e-8, noise_variance="input"),
    "backfitting, columns": BackfittingRegressor(tol=1e-8),
    "backfitting, ridge": BackfittingRegressor(prior="ridge", tol=1e-8, fit_intercept=False),
}


def table(n=300):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    return X, np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(n), rng.integers(0, 3, n)


def on_dask(X):
    return da.from_array(X, chunks=(70, 3))


def mapped(X):
    import tempfile

    with tempfile.TemporaryFile() as file:
        out = np.memmap(file, dtype=np.float64, shape=X.shape)
    out[...] = X
    return out


SOURCES = {
    "blocks": lambda X: [X[:50], X[50:51], X[51:]],
    "function": lambda X: lambda: iter([X[:200], X[200:]]),
    "iterator": lambda X: iter([X[:200], X[200:]]),
    "dask": on_dask,
    "mapped": mapped,
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_elsewhere_give_the_model_of_the_array(name, source, weighted):
    X, y, weight = table()
    weight = weight if weighted else None
    if MODELS[name].kernel is None:
        X, y = 100.0 * X + [0.0, 30.0, -7.0], y + X[:, 0]
    # A small cache_size: the map is larger than that, and read in blocks.
    cache = 0.005 if source == "mapped" else MODELS[name].cache_size
    whole = clone(MODELS[name]).set_params(cache_size=cache)
    model = clone(whole)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Neither the")
        whole.fit(X, y, sample_weight=weight)
        model.fit(SOURCES[source](X), y, sample_weight=weight)
    assert model.log_evidence_ == pytest.approx(whole.log_evidence_, rel=1e-8)
    if getattr(whole, "variance_", "exact") == "exact":
        assert model.loo_.r2 == pytest.approx(whole.loo_.r2, rel=1e-8)
    np.testing.assert_allclose(model.predict(X), whole.predict(X), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(
        model.predict(X, return_std=True)[1], whole.predict(X, return_std=True)[1], rtol=1e-7
    )


@pytest.mark.parametrize("name", ["ols", "rvm"])
def test_a_dask_array_is_predicted_when_computed(name):
    X, y, _ = table()
    model = clone(MODELS[name]).fit(on_dask(X), y)
    np.testing.assert_allclose(model.predict(on_dask(X)).compute(), model.predict(X), rtol=1e-12)


def test_predictions_come_in_the_blocks_of_the_rows():
    X, y, _ = table()
    model = clone(MODELS["ols"]).fit(X, y)
    mean, std = model.predict(iter([X[:200], X[200:]]), return_std=True)
    np.testing.assert_array_equal(mean, np.r_[model.predict(X[:200]), model.predict(X[200:])])
    assert std.shape == y.shape
    with pytest.raises(ValueError, match="return_cov is not available"):
        model.predict([X[:200], X[200:]], return_cov=True)


def test_too_many_columns_for_a_triangle_are_refused_before_the_rows_are_read():
    def source():
        yield np.ones((3, 1000))

    with pytest.raises(ValueError, match=r"1000 columns.*8 MB, more than cache_size=1"):
        BackfittingRegressor(cache_size=1).fit(source, np.arange(3.0))


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (BackfittingRegressor(smoothers=RVMRegressor()), "smoothers require them"),
        (OrthogonalLeastSquaresRegressor(None, criterion="press"), "PRESS"),
    ],
)
def test_columns_in_blocks_refuse_what_needs_the_rows(model, why):
    X, y, _ = table()
    with pytest.raises(ValueError, match=why):
        model.fit([X], y)


def on_frame(X, names="abc"):
    return dd.from_pandas(pd.DataFrame(X, columns=list(names)), npartitions=3)


FROM_FRAMES = {
    "forward": MODELS["forward"],
    "columns": MODELS["backfitting, columns"],
    "partitioned": PartitionedRVMRegressor("rbf", gamma=0.5),
}


@pytest.mark.parametrize("name", FROM_FRAMES)
def test_a_dask_frame_gives_the_model_of_the_array(name):
    X, y, _ = table()
    frame = on_frame(X)
    whole = clone(FROM_FRAMES[name]).fit(X, y)
    model = clone(FROM_FRAMES[name]).fit(frame, y)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_allclose(
        model.predict(frame).compute(), whole.predict(X), rtol=1e-7, atol=1e-7
    )
    with pytest.raises(ValueError, match="feature names"):
        model.predict(on_frame(X, "abd"))
    interval = model.predict_interval(frame)
    np.testing.assert_allclose(interval.compute(), whole.predict_interval(X), rtol=1e-6, atol=1e-6)


def test_a_dask_frame_has_classes_too():
    X, y, _ = table()
    labels = np.where(y > 0, "up", "down")
    model = PartitionedRVMClassifier("rbf", gamma=0.5).fit(on_frame(X), labels)
    whole = clone(model).fit(X, labels)
    np.testing.assert_allclose(
        model.predict_proba(on_frame(X)).compute(), whole.predict_proba(X), rtol=1e-7
    )


def test_targets_may_be_a_dask_series():
    X, y, weight = table()
    frame = on_frame(np.column_stack([X, y, weight]), "abcyw")
    model = clone(MODELS["forward"]).fit(frame[["a", "b", "c"]], frame["y"], frame["w"])
    whole = clone(MODELS["forward"]).fit(X, y, weight)
    found = model.predict(on_frame(X)).compute()
    np.testing.assert_allclose(found, whole.predict(X), rtol=1e-7, atol=1e-7)


def test_constant_columns_in_blocks_are_no_candidates():
    X, rng = np.full((5, 2), 1e6), np.random.default_rng(0)
    y, weight = rng.standard_normal(5), np.array([863.0, 780.0, 469.0, 797.0, 239.0])
    model = BackfittingRegressor().fit(np.array_split(X, 3), y, weight)
    assert len(model.active_) == 0
    whole = BackfittingRegressor().fit(X, y, weight)
    np.testing.assert_allclose(model.log_evidence_, whole.log_evidence_, rtol=1e-9)
