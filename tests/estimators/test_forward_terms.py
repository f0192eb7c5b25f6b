"""How many functions: `max_terms="auto"` grows while it pays, None is the process itself."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.datasets import make_friedman1
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import sparsebayes.estimators.forward as forward
import sparsebayes.selection as selection
from sparsebayes import ForwardRegressor
from sparsebayes.kernels import StationaryKernel
from sparsebayes.selection import ManyCandidates, process_pivots


def begin_with(monkeypatch, terms):
    """Let the first path of ``max_terms="auto"`` have so many terms."""
    for module in (forward, selection):
        monkeypatch.setattr(module, "FIRST_TERMS", terms)


def smooth(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 3))
    return X, 5.0 + np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(n)


def rough(n=400, noise=0.01):
    """A random walk: every function tells something."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 1.0, n))
    y = np.cumsum(rng.standard_normal(n)) / np.sqrt(n) + noise * rng.standard_normal(n)
    return X[:, None], y


def process(model, X, y, Z, weight):
    """Mean and std at Z by the n x n formulas, the intercept flat."""
    K = model._fitted.model.added.amplitude * np.exp(
        -0.5 * np.sum((X[:, None] - X[None]) ** 2, axis=2)
    )
    across = model._fitted.model.added.amplitude * np.exp(
        -0.5 * np.sum((Z[:, None] - X[None]) ** 2, axis=2)
    )
    C = np.linalg.inv(K + np.diag(model.noise_variance_ / weight))
    ones, s = np.ones(len(y)), model.noise_variance_
    variance = model._fitted.model.added.amplitude - np.sum((across @ C) * across, axis=1) + s
    b = 0.0
    if model.fit_intercept:
        b = ones @ C @ y / (ones @ C @ ones)
        variance += (1.0 - across @ C @ ones) ** 2 / (ones @ C @ ones)
    return b + across @ C @ (y - b), np.sqrt(variance)


def test_all_terms_are_the_gaussian_process_of_scikit_learn():
    X, y = smooth()
    model = ForwardRegressor("rbf", gamma=0.5, max_terms=None, fit_intercept=False).fit(X, y)
    kernel = ConstantKernel(model._fitted.model.added.amplitude) * RBF(1.0) + WhiteKernel(
        model.noise_variance_
    )
    other = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0).fit(X, y)
    assert model.log_evidence_ == pytest.approx(other.log_marginal_likelihood_value_, rel=1e-10)
    best = GaussianProcessRegressor(
        ConstantKernel(1.0, (1e-3, 1e6)) * RBF(1.0, "fixed") + WhiteKernel(0.1), alpha=0.0
    ).fit(X, y)
    # Of highest evidence with a prior flat in the noise variance.
    theirs = best.log_marginal_likelihood_value_ + np.log(best.kernel_.k2.noise_level)
    assert model.log_evidence_ + np.log(model.noise_variance_) > theirs - 1e-6
    assert model.log_evidence_ > best.log_marginal_likelihood_value_ - 1.0
    Z = X[:7] + 0.1
    for ours, theirs in (
        (model.predict(Z, return_std=True), other.predict(Z, return_std=True)),
        (model.predict(Z, return_cov=True), other.predict(Z, return_cov=True)),
    ):
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-8)
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_process_and_its_leave_one_out_are_the_dense_ones(intercept, weighted):
    X, y = smooth()
    weight = np.ones(len(y))
    if weighted:
        weight = np.random.default_rng(1).choice([0.5, 1.0, 3.0], len(y))
    model = ForwardRegressor("rbf", gamma=0.5, max_terms=None, noise_variance=0.04)
    model.set_params(fit_intercept=intercept).fit(X, y, weight if weighted else None)
    Z = X[:9] + 0.1
    mean, std = model.predict(Z, return_std=True)
    expected = process(model, X, y, Z, weight)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-8)
    np.testing.assert_allclose(std, expected[1], rtol=1e-8)
    np.testing.assert_allclose(np.sqrt(np.diag(model.predict(Z, return_cov=True)[1])), std)
    for i in range(0, len(y), 7):
        left = weight.copy()
        left[i] -= min(left[i], 1.0)
        some = left > 0
        mean, std = process(model, X[some], y[some], X[[i]], left[some])
        assert model.loo_.residuals[i] == pytest.approx(y[i] - mean[0], rel=1e-8, abs=1e-8)
        assert model.loo_.std[i] == pytest.approx(std[0], rel=1e-8)


def test_many_rows_search_around_the_best_of_some(monkeypatch):
    import sparsebayes.solvers.gp.exact as solver

    X, y = smooth(200)
    whole = ForwardRegressor("rbf", gamma=0.5, max_terms=None).fit(X, y)
    monkeypatch.setattr(solver, "_SEARCHED", 60)
    part = ForwardRegressor("rbf", gamma=0.5, max_terms=None).fit(X, y)
    assert part.log_evidence_ == pytest.approx(whole.log_evidence_, abs=1e-2)


def test_weights_of_the_process_are_counts_and_zero_is_absence():
    X, y = smooth(40)
    counts = np.random.default_rng(0).integers(0, 3, 40)
    many = np.repeat(np.arange(40), counts)
    settings = {"gamma": 0.5, "max_terms": None, "noise_variance": 0.05}
    weighted = ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **settings}).fit(X, y, counts)
    repeated = ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **settings}).fit(
        X[many], y[many]
    )
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_, rel=1e-9)
    for one, other in zip(weighted.predict(X, True), repeated.predict(X, True), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    np.testing.assert_allclose(weighted.loo_.std[many], repeated.loo_.std, rtol=1e-5)
    absent = counts == 0
    np.testing.assert_allclose(weighted.loo_.std[absent], weighted.predict(X[absent], True)[1])


def test_all_columns_are_ridge_regression():
    X, y = smooth()
    model = ForwardRegressor(None, max_terms=None).fit(X, y)
    Xc, yc = X - X.mean(axis=0), y - y.mean()
    coef = np.linalg.solve(Xc.T @ Xc + model.regularization_ * np.eye(3), Xc.T @ yc)
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-8)
    assert model.stop_reason_ == "all_candidates"
    assert model.converged_


def test_all_of_some_candidates_are_kept():
    X, y = smooth()
    model = ForwardRegressor("rbf", gamma=0.5, max_terms=None, candidates=20).fit(X, y)
    path = ForwardRegressor(
        "rbf", gamma=0.5, max_terms=20, candidates=model.active_, early_stopping=None
    )
    path.fit(X, y)
    assert len(model.active_) == 20
    np.testing.assert_allclose(model.predict(X), path.predict(X), rtol=1e-5)


def test_what_all_terms_cannot_be_is_said_before_the_work():
    X, y = np.zeros((10_001, 1)), np.zeros(10_001)
    with pytest.raises(ValueError, match="10000 at most"):
        ForwardRegressor("rbf", gamma="scale", max_terms=None).fit(X, y)
    X, y = smooth()
    for wrong in ({"rank": 5}, {"early_stopping": "validation"}, {"regularization": 0.1}):
        with pytest.raises(ValueError, match="chooses none"):
            ForwardRegressor(max_terms=None, **{"kernel": "rbf", "gamma": "scale", **wrong}).fit(
                X, y
            )
    with pytest.raises(ValueError, match="chose no terms"):
        ForwardRegressor("rbf", gamma="scale", max_terms=None).fit(X, y).truncate(3)


def test_auto_grows_while_the_last_tenth_pays(monkeypatch):
    begin_with(monkeypatch, 10)
    X, y = rough()
    model = ForwardRegressor("matern12", gamma=30.0).fit(X, y)
    short = ForwardRegressor("matern12", gamma=30.0, max_terms=10).fit(X, y)
    assert len(model.active_) > 10
    assert np.mean(model.loo_.log_density) > np.mean(short.loo_.log_density)
    begin_with(monkeypatch, 100)
    X, y = smooth(300)
    stays = ForwardRegressor("rbf", gamma=0.1).fit(X, y)
    same = ForwardRegressor("rbf", gamma=0.1, max_terms=100).fit(X, y)
    assert len(stays.evidence_path_) == 101
    np.testing.assert_array_equal(stays.coef_, same.coef_)


@pytest.mark.parametrize(("first", "last"), [(10, 20), (20, 20), (17, 17)])
def test_auto_leaves_twenty_rows_for_each_term(first, last, monkeypatch):
    begin_with(monkeypatch, first)
    X, y = rough()
    model = ForwardRegressor("matern12", gamma=100.0).fit(X, y)
    assert len(X) == 400
    assert len(model.evidence_path_) == last + 1  # 20 is less than a quarter more than 17


def test_auto_draws_more_candidates_as_it_grows(monkeypatch):
    begin_with(monkeypatch, 10)
    monkeypatch.setattr(ManyCandidates, "wanted", lambda self, limit: 4 * limit)
    monkeypatch.setattr("sparsebayes.designs.candidates._PRODUCTS", 0.0)
    X, y = rough()
    settings = {"kernel": "matern12", "gamma": 100.0, "cache_size": 1.2}
    model = ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **settings}).fit(X, y)
    assert model.approximation_["n_candidates"] == 80
    # Where a Gram matrix would take too long it stays as it is.
    monkeypatch.setattr(selection, "_SECONDS", 0.0)
    assert (
        ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **settings})
        .fit(X, y)
        .approximation_["n_candidates"]
        == 40
    )


def test_the_number_of_candidates_has_no_cliff():
    model = ForwardRegressor("rbf", gamma="scale")
    many = [model._many().number(limit) for limit in range(1, 20_000)]
    assert np.all(np.diff(many) >= 0)
    assert np.max(np.diff(many)) <= 8
    choice = model._many().choice(300)
    drawn = [min(n, choice._number(n)) for n in range(1, 60_000)]
    assert np.max(np.abs(np.diff(drawn))) <= 1
    assert drawn[4_600 - 1] == 4_600
    assert drawn[-1] == choice.many
    assert all(8e-6 * m**2 <= 200 or m == k + 1 for k, m in enumerate(many))


def test_pivots_are_the_candidates_where_few_functions_are_the_process():
    X, y = smooth(1210)
    model = ForwardRegressor("rbf", gamma="evidence").fit(X, y)
    assert len(model.active_) < model.approximation_["n_candidates"] <= 300
    every = ForwardRegressor("rbf", gamma=model.gamma_, max_terms=None).fit(X, y)
    Z = smooth(200, seed=1)[0]
    gap = model.predict(Z) - every.predict(Z)
    assert np.sqrt(np.mean(gap**2)) < 0.1 * np.sqrt(model.noise_variance_)


def test_where_few_functions_are_not_the_process_rows_at_random_are_the_candidates(monkeypatch):
    monkeypatch.setattr(selection, "_FEW_ROWS", 0)  # no longer path
    X, y = rough(1210)
    model = ForwardRegressor("matern12", gamma="evidence").fit(X, y)
    assert model.approximation_["n_candidates"] >= 1200


def test_pivots_leave_out_what_they_say():
    X = smooth(200)[0]
    kernel = StationaryKernel("matern32", 1.0)
    pivots, left = process_pivots(kernel, X, 30, 1e-6)
    K = kernel.bind(X)(X)
    among, across = K[np.ix_(pivots, pivots)], K[:, pivots]
    true = 1.0 - np.mean(np.sum(across * np.linalg.solve(among, across.T).T, axis=1))
    assert len(pivots) == 30
    assert left == pytest.approx(true, rel=1e-8)


def test_a_saved_path_has_no_kernel_matrix_and_gives_the_same_models():
    X, y = make_friedman1(150, random_state=0)
    model = ForwardRegressor("rbf", gamma=0.5).fit(X, y)
    content = pickle.dumps(model)
    assert model._fitted.extra["path"].kernel_matrix is not None
    assert "kernel_matrix" not in vars(pickle.loads(content)._fitted.extra["path"])
    loaded = pickle.loads(content)
    expected = model.truncate(7).predict(X, return_std=True)
    np.testing.assert_array_equal(loaded.truncate(7).predict(X, return_std=True), expected)
