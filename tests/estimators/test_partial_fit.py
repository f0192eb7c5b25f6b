"""Rows that come a few at a time give the model of all of them at once."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from sparsebayes import ForwardRegressor, OrthogonalLeastSquaresRegressor, RVMRegressor

MODELS = {
    "forward": ForwardRegressor("rbf", gamma=0.5, max_terms=30),
    "forward, the paper": ForwardRegressor("matern32", gamma=0.5, refit=None, max_terms=30),
    "forward, origin": ForwardRegressor("rbf", gamma=0.5, max_terms=30, fit_intercept=False),
    "forward, columns": ForwardRegressor(None),
    "ols": OrthogonalLeastSquaresRegressor("rbf", gamma=0.5, max_terms=20, threshold=1.0),
    "ols, columns": OrthogonalLeastSquaresRegressor(None),
    # Of columns "auto" has a prior on their number, so the kernel matrix as columns needs "fast".
    "rvm": RVMRegressor("rbf", gamma=0.5, tol=1e-8, algorithm="fast"),
    "rvm, columns": RVMRegressor(None),
}


def table(n=600, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    y = 5.0 + np.sin(X[:, 0]) * X[:, 1] + X[:, 2] + 0.1 * rng.standard_normal(n)
    return X, y, rng.integers(0, 3, n).astype(float)


def in_pieces(model, X, y, weight=None, edges=(0, 120, 121, 300, 600)):
    model = clone(model)
    for low, high in pairwise(edges):
        w = None if weight is None else weight[low:high]
        model.partial_fit(X[low:high], y[low:high], sample_weight=w)
    return model


def batch(model, X, y, weight=None, first=120):
    """The fit of all rows at once, with the candidates of the first."""
    if model.kernel is None:
        return clone(model).fit(X, y, sample_weight=weight)
    if isinstance(model, ForwardRegressor):
        few = np.arange(first) if weight is None else np.flatnonzero(weight[:first])
        return clone(model).set_params(candidates=few).fit(X, y, sample_weight=weight)
    some = slice(None) if weight is None else weight[:first] > 0
    kernel = np.exp(-0.5 * np.square(X[:, None, :] - X[None, :first][:, some]).sum(axis=2))
    return clone(model).set_params(kernel=None).fit(kernel, y, sample_weight=weight)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("weighted", [False, True])
def test_pieces_give_the_model_of_the_whole(name, weighted):
    X, y, weight = table()
    weight = weight if weighted else None
    if weight is not None:
        weight = np.minimum(weight, 1.0)  # more than one is a precision relative to its piece
        weight[120:122] = 1.0  # a piece of two rows
    edges = (0, 120, 121 + weighted, 300, 600)
    pieces = in_pieces(MODELS[name], X, y, weight, edges)
    whole = batch(MODELS[name], X, y, weight)
    assert pieces.log_evidence_ == pytest.approx(whole.log_evidence_, rel=1e-8)
    new = table(seed=1)[0]
    seen = new
    if MODELS[name].kernel is not None and whole.kernel is None:
        some = slice(None) if weight is None else weight[:120] > 0
        seen = np.exp(-0.5 * np.square(new[:, None, :] - X[None, :120][:, some]).sum(axis=2))
    np.testing.assert_allclose(pieces.predict(new), whole.predict(seen), rtol=1e-7, atol=1e-7)
    # Rows that are not stored have no residuals: pieces are not calibrated.
    (_, a), (_, b) = (
        m.posterior_.predict(m.basis_(rows)) for m, rows in ((pieces, new), (whole, seen))
    )
    np.testing.assert_allclose(np.sqrt(a), np.sqrt(b), rtol=1e-6)


@pytest.mark.parametrize("name", ["forward", "ols, columns", "rvm, columns"])
def test_sparse_pieces_give_the_model_of_dense_ones(name):
    X, y, _ = table(300)
    X[X < 0.5] = 0.0
    edges = (0, 150, 300)
    dense = in_pieces(MODELS[name], X, y, edges=edges)
    sparse = in_pieces(MODELS[name], csr_array(X), y, edges=edges)
    np.testing.assert_array_equal(sparse.predict(X[:9]), dense.predict(X[:9]))


def test_every_piece_updates_the_model():
    X, y, _ = table()
    model = in_pieces(MODELS["forward"], X, y)
    assert len(vars(model)["active_"]) > 5
    before = model.noise_variance_
    model.partial_fit(X[:100], y[:100] + 3.0)
    assert vars(model)["noise_variance_"] > 2 * before


def test_memory_and_files_do_not_grow_with_the_rows():
    X, y, _ = table()
    model = in_pieces(MODELS["forward"], X, y)
    few = len(pickle.dumps(model))
    for _ in range(20):
        model.partial_fit(X, y)
    assert len(pickle.dumps(model)) == few
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_fit_begins_anew_and_so_does_a_clone():
    X, y, _ = table()
    model = in_pieces(MODELS["forward"], X, y).fit(X[:200], y[:200])
    fresh = clone(MODELS["forward"]).fit(X[:200], y[:200])
    np.testing.assert_array_equal(model.predict(X), fresh.predict(X))
    with pytest.raises(NotFittedError):
        clone(in_pieces(MODELS["forward"], X, y)).predict(X)
    model.partial_fit(X, y)
    assert model._fitted.extra["stream"].stream.n_rows == 600


def test_a_piece_that_fails_leaves_the_model_as_it_was():
    X, y, _ = table()
    model = in_pieces(MODELS["forward"], X, y)
    mean = model.predict(X)
    for bad_X, bad_y in ((X[:, :2], y), (X, y[:10]), (np.full_like(X, np.nan), y)):
        with pytest.raises(ValueError):
            model.partial_fit(bad_X, bad_y)
    np.testing.assert_array_equal(model.predict(X), mean)


def test_what_needs_the_rows_is_refused_in_words():
    X, y, _ = table(50)
    for model in (
        ForwardRegressor("rbf", gamma=1.0, early_stopping="validation"),
        RVMRegressor("rbf", gamma=1.0, heal=True),
        OrthogonalLeastSquaresRegressor("rbf", gamma=1.0, criterion="press"),
    ):
        assert not hasattr(model, "partial_fit")
        with pytest.raises(AttributeError) as error:
            model.partial_fit(X, y)
        assert "partial_fit does not store rows" in str(error.value.__cause__)
    with pytest.raises(AttributeError, match="partial_fit"):
        _ = ForwardRegressor("rbf", gamma=1.0).partial_fit(X, y).loo_


@pytest.mark.parametrize(
    "model",
    [ForwardRegressor(), RVMRegressor()],
    ids=["forward", "rvm"],
)
def test_widths_may_be_learnt_from_the_first_rows(model):
    X, y, _ = table(400)
    streamed = in_pieces(model, X, y, edges=(0, 150, 400))
    mean, std = streamed.predict(X, return_std=True)
    first = clone(model).fit(X[:150], y[:150]).predict(X)
    truth = 5.0 + np.sin(X[:, 0]) * X[:, 1] + X[:, 2]
    assert np.mean((mean - truth) ** 2) < np.mean((first - truth) ** 2)
    assert np.mean(np.abs(y - mean) < 1.96 * std) > 0.9


def test_a_fit_that_claims_more_than_its_own_rows_show_is_widened():
    # With a known, tiny noise, the functions of the first call cannot represent all later rows.
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (160, 2))
    y = np.sin(3.0 * X[:, 0]) * np.cos(2.0 * X[:, 1])
    model = ForwardRegressor(noise_variance=1e-10)
    first, second, last = np.array_split(np.arange(150), 3)
    model.partial_fit(X[first], y[first]).partial_fit(X[second], y[second])
    with pytest.warns(UserWarning, match="errors of new rows are"):
        model.partial_fit(X[last], y[last])
    mean, std = model.predict(X[150:], return_std=True)
    assert np.sqrt(np.mean((y[150:] - mean) ** 2)) < 4.0 * np.sqrt(np.mean(std**2))


def test_inputs_that_come_again_do_not_calibrate():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.uniform(-2.0, 2.0, (30, 3)), 4, axis=0)
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(120)
    order = np.argsort(np.tile(np.arange(4), 30), kind="stable")  # each input once a call
    model, factors = RVMRegressor("rbf", gamma=0.5), []
    for rows in np.array_split(order, 4):
        factors.append(model.partial_fit(X[rows], y[rows]).calibration_)
    np.testing.assert_allclose(factors, factors[0])
