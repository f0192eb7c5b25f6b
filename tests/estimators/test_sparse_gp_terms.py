"""How many functions stand for the Gaussian process of many rows, and from which candidates."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

import sparsebayes.estimators.sparse_gp as sparse_gp
import sparsebayes.gaussian_process as gaussian_process
from sparsebayes import SparseGPRegressor
from sparsebayes.gaussian_process import process_pivots
from sparsebayes.kernels import StationaryKernel
from sparsebayes.selection import ManyCandidates


@pytest.fixture
def few_terms(monkeypatch):
    """Treat the rows as many, and let the first path have so many terms."""

    def set_terms(n_terms):
        monkeypatch.setattr(sparse_gp, "EXACT_ROWS", 0)
        monkeypatch.setattr(gaussian_process, "_FEW_ROWS", 0)
        for module in (sparse_gp, gaussian_process):
            monkeypatch.setattr(module, "FIRST_TERMS", n_terms)

    return set_terms


def smooth(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 3))
    return X, 5.0 + np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(n)


def rough(n=400, noise=0.01):
    """Return a random walk: every function raises the evidence."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 1.0, n))
    y = np.cumsum(rng.standard_normal(n)) / np.sqrt(n) + noise * rng.standard_normal(n)
    return X[:, None], y


def path_length(model):
    return len(model._fitted.extra["path"].path)


def test_a_path_grows_while_its_last_tenth_pays(few_terms):
    few_terms(10)
    X, y = rough()
    model = SparseGPRegressor("matern12", gamma=30.0).fit(X, y)
    short = SparseGPRegressor("matern12", gamma=30.0, max_terms=10).fit(X, y)
    assert len(model.active_) > 10
    assert np.mean(model.loo_.log_density) > np.mean(short.loo_.log_density)
    few_terms(100)
    X, y = smooth(300)
    stays = SparseGPRegressor("rbf", gamma=0.1).fit(X, y)
    same = SparseGPRegressor("rbf", gamma=0.1, max_terms=100).fit(X, y)
    assert path_length(stays) == 100
    np.testing.assert_array_equal(stays.coef_, same.coef_)


@pytest.mark.parametrize(("first", "last"), [(10, 20), (20, 20), (17, 17)])
def test_a_path_leaves_twenty_rows_for_each_term(first, last, few_terms):
    few_terms(first)
    X, y = rough()
    model = SparseGPRegressor("matern12", gamma=100.0).fit(X, y)
    assert len(X) == 400
    assert path_length(model) == last  # 20 is less than a quarter more than 17


def test_few_rows_have_a_longer_path_where_the_first_does_not_capture_the_process(
    few_terms, monkeypatch
):
    few_terms(30)
    monkeypatch.setattr(gaussian_process, "_FEW_ROWS", 3000)
    X, y = rough()
    model = SparseGPRegressor("matern12", gamma=100.0).fit(X, y)
    assert path_length(model) == 100


def test_more_candidates_are_drawn_as_a_path_grows(few_terms, monkeypatch):
    few_terms(10)
    monkeypatch.setattr(ManyCandidates, "n_desired", lambda self, limit: 4 * limit)
    monkeypatch.setattr("sparsebayes.designs.candidates._PRODUCTS", 0.0)
    X, y = rough()
    settings = {"kernel": "matern12", "gamma": 100.0, "cache_size": 1.2}
    model = SparseGPRegressor(**settings).fit(X, y)
    assert model.approximation_["n_candidates"] == 80
    # Where a Gram matrix would take too long it stays as it is.
    monkeypatch.setattr(gaussian_process, "_SECONDS", 0.0)
    model.fit(X, y)
    assert model.approximation_["n_candidates"] == 40


def test_pivots_are_the_candidates_where_few_functions_are_the_process(monkeypatch):
    monkeypatch.setattr(sparse_gp, "EXACT_ROWS", 0)
    X, y = smooth(1210)
    model = SparseGPRegressor("rbf", gamma="evidence", warp=False).fit(X, y)
    assert len(model.active_) <= model.approximation_["n_candidates"] <= 300
    every = SparseGPRegressor("rbf", gamma=model.gamma_, max_terms=None).fit(X, y)
    Z = smooth(200, seed=1)[0]
    gap = model.predict(Z) - every.predict(Z)
    assert np.sqrt(np.mean(gap**2)) < 0.1 * np.sqrt(model.noise_variance_)


def test_where_few_functions_are_not_the_process_rows_at_random_are_the_candidates(monkeypatch):
    monkeypatch.setattr(sparse_gp, "EXACT_ROWS", 0)
    monkeypatch.setattr(gaussian_process, "_FEW_ROWS", 0)  # no longer path
    X, y = rough(1210)
    model = SparseGPRegressor("matern12", gamma="evidence").fit(X, y)
    assert model.approximation_["n_candidates"] >= 1200


def test_pivots_leave_the_residual_variance_that_they_report():
    X = smooth(200)[0]
    kernel = StationaryKernel("matern32", 1.0)
    pivots, left = process_pivots(kernel, X, 30, 1e-6)
    K = kernel.bind(X)(X)
    among, across = K[np.ix_(pivots, pivots)], K[:, pivots]
    true = 1.0 - np.mean(np.sum(across * np.linalg.solve(among, across.T).T, axis=1))
    assert len(pivots) == 30
    assert left == pytest.approx(true, rel=1e-8)


# The same model wherever the rows are.


@pytest.mark.parametrize("data", [smooth, rough])
@pytest.mark.parametrize("weighted", [pytest.param(False, marks=pytest.mark.slow), True])
def test_rows_from_anywhere_have_the_same_functions(data, weighted, monkeypatch):
    monkeypatch.setattr(sparse_gp, "EXACT_ROWS", 0)
    X, y = data(1300)
    family = "rbf" if data is smooth else "matern32"
    weight = np.random.default_rng(1).choice([0.0, 0.5, 1.0], len(y)) if weighted else None
    plain = SparseGPRegressor(family, gamma="evidence").fit(X, y, weight)
    pieces = [X[:500], X[500:900], X[900:]]
    for rows in (lambda: iter(pieces), da.from_array(X, (400, X.shape[1]))):
        there = SparseGPRegressor(family, gamma="evidence").fit(rows, y, weight)
        np.testing.assert_allclose(there.gamma_, plain.gamma_, rtol=1e-10)
        assert there.approximation_["n_candidates"] == plain.approximation_["n_candidates"]
        np.testing.assert_array_equal(there.active_, plain.active_)
        for ours, theirs in zip(there.predict(X, True), plain.predict(X, True), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("data", [smooth, rough])
def test_tensors_have_the_same_functions(data, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(sparse_gp, "EXACT_ROWS", 0)
    X, y = data(1300)
    family = "rbf" if data is smooth else "matern32"
    plain = SparseGPRegressor(family, gamma="evidence").fit(X, y)
    for rows, device in ((torch.as_tensor(X), None), (X, "cpu")):
        there = SparseGPRegressor(family, gamma="evidence", device=device).fit(rows, y)
        assert there.approximation_["n_candidates"] == plain.approximation_["n_candidates"]
        np.testing.assert_array_equal(there.active_, plain.active_)
        np.testing.assert_allclose(np.asarray(there.predict(X)), plain.predict(X), rtol=1e-5)
