"""Rows in blocks, mapped or on Dask give the model of the array."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from sparsebayes import ForwardRegressor, OrthogonalLeastSquaresRegressor, RVMRegressor

MODELS = {
    "forward": ForwardRegressor("rbf", gamma=0.5, max_terms=20, candidates=100),
    "ols": OrthogonalLeastSquaresRegressor("rbf", gamma=0.5, max_terms=15),
    "ols, press": OrthogonalLeastSquaresRegressor("rbf", gamma=0.5, criterion="press", max_terms=8),
    "rvm": RVMRegressor("rbf", gamma=0.5),
    "rvm, fast": RVMRegressor("rbf", gamma=0.5, algorithm="fast"),
    "rvm, scale": RVMRegressor("rbf", gamma="scale", algorithm="fast"),
}


def table(n=300):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    return X, np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(n), rng.integers(0, 3, n)


def on_dask(X):
    da = pytest.importorskip("dask.array")
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
    whole = clone(MODELS[name]).fit(X, y, sample_weight=weight)
    # A small cache_size: the map is larger than that, and read in blocks.
    cache = 0.005 if source == "mapped" else MODELS[name].cache_size
    model = clone(MODELS[name]).set_params(cache_size=cache)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Neither the")
        model.fit(SOURCES[source](X), y, sample_weight=weight)
    assert model.log_evidence_ == pytest.approx(whole.log_evidence_, rel=1e-8)
    np.testing.assert_allclose(model.predict(X), whole.predict(X), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(
        model.predict(X, return_std=True)[1], whole.predict(X, return_std=True)[1], rtol=1e-7
    )


@pytest.mark.parametrize("name", ["ols", "rvm"])
def test_a_dask_array_is_predicted_when_computed(name):
    X, y, _ = table()
    model = clone(MODELS[name]).fit(on_dask(X), y)
    np.testing.assert_allclose(model.predict(on_dask(X)).compute(), model.predict(X), rtol=1e-12)
