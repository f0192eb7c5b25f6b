"""SparseGPRegressor: the exact process of few rows, and its approximation for many."""

from __future__ import annotations

import pickle

import dask.array as da
import numpy as np
import pytest
import skops.io as sio
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.utils.estimator_checks import parametrize_with_checks

import sparsebayes
import sparsebayes.estimators.sparse_gp as sparse_gp
from sparsebayes import SparseGPRegressor, gaussian_process, regression
from sparsebayes.solvers.gp import exact
from sparsebayes.solvers.gp.exact import exact_process

GIVEN = {"kernel": "rbf", "gamma": 0.5}


def smooth(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 3))
    return X, 5.0 + np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(n)


def amplitude(model):
    return model._fitted.model.added.amplitude


def dense_process(model, X, y, Z, weight):
    """Mean and standard deviation at Z by the n x n formulas, with a flat intercept."""
    a, s = amplitude(model), model.noise_variance_
    K = a * np.exp(-0.5 * np.sum((X[:, None] - X[None]) ** 2, axis=2))
    across = a * np.exp(-0.5 * np.sum((Z[:, None] - X[None]) ** 2, axis=2))
    C = np.linalg.inv(K + np.diag(s / weight))
    ones = np.ones(len(y))
    variance = a - np.sum((across @ C) * across, axis=1) + s
    b = 0.0
    if model.fit_intercept:
        b = ones @ C @ y / (ones @ C @ ones)
        variance += (1.0 - across @ C @ ones) ** 2 / (ones @ C @ ones)
    return b + across @ C @ (y - b), np.sqrt(variance)


@parametrize_with_checks(
    [
        SparseGPRegressor("rbf", gamma="scale"),
        SparseGPRegressor("rbf", gamma="scale", max_terms=20),
    ]
)
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


# The exact process.


def test_few_rows_are_the_gaussian_process_of_scikit_learn():
    X, y = smooth()
    model = SparseGPRegressor(**GIVEN, fit_intercept=False).fit(X, y)
    assert model.exact_
    kernel = ConstantKernel(amplitude(model)) * RBF(1.0) + WhiteKernel(model.noise_variance_)
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
        factor = model.calibration_ ** ours[1].ndim  # of a standard deviation, or of a covariance
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-8)
        np.testing.assert_allclose(ours[1] / factor, theirs[1], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_process_and_its_leave_one_out_are_the_dense_ones(intercept, weighted):
    X, y = smooth()
    weight = np.ones(len(y))
    if weighted:
        weight = np.random.default_rng(1).choice([0.5, 1.0, 3.0], len(y))
    model = SparseGPRegressor(**GIVEN, noise_variance=0.04, fit_intercept=intercept)
    model.fit(X, y, weight if weighted else None)
    Z = X[:9] + 0.1
    mean, std = model.predict(Z, return_std=True)
    expected = dense_process(model, X, y, Z, weight)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-8)
    np.testing.assert_allclose(std / model.calibration_, expected[1], rtol=1e-8)
    np.testing.assert_allclose(np.sqrt(np.diag(model.predict(Z, return_cov=True)[1])), std)
    for i in range(0, len(y), 7):
        left = weight.copy()
        left[i] -= min(left[i], 1.0)
        some = left > 0
        mean, std = dense_process(model, X[some], y[some], X[[i]], left[some])
        assert model.loo_.residuals[i] == pytest.approx(y[i] - mean[0], rel=1e-8, abs=1e-8)
        assert model.loo_.std[i] / model.calibration_ == pytest.approx(std[0], rel=1e-8)


def test_the_noise_is_searched_around_the_best_of_a_subset(monkeypatch):
    X, y = smooth(200)
    whole = SparseGPRegressor(**GIVEN).fit(X, y)
    monkeypatch.setattr("sparsebayes.solvers.gp.exact._SEARCHED", 60)
    part = SparseGPRegressor(**GIVEN).fit(X, y)
    assert part.log_evidence_ == pytest.approx(whole.log_evidence_, abs=1e-2)


def test_weights_are_counts_and_zero_is_absence():
    X, y = smooth(40)
    counts = np.random.default_rng(0).integers(0, 3, 40)
    many = np.repeat(np.arange(40), counts)
    weighted = SparseGPRegressor(**GIVEN, noise_variance=0.05).fit(X, y, counts)
    repeated = SparseGPRegressor(**GIVEN, noise_variance=0.05).fit(X[many], y[many])
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_, rel=1e-9)
    for one, other in zip(weighted.predict(X, True), repeated.predict(X, True), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    np.testing.assert_allclose(weighted.loo_.std[many], repeated.loo_.std, rtol=1e-5)
    absent = counts == 0
    np.testing.assert_allclose(weighted.loo_.std[absent], weighted.predict(X[absent], True)[1])


def test_targets_have_the_same_process_as_each_alone():
    X, y = smooth(80)
    targets = np.column_stack([y, -3.0 * y + 1.0])  # of the same ratio of signal to noise
    both = SparseGPRegressor(**GIVEN).fit(X, targets)
    Z = X[:7] + 0.1
    mean, std = both.predict(Z, return_std=True)
    covariance, draws = both.predict(Z, return_cov=True)[1], both.sample_y(Z, 4)
    assert draws.shape == (7, 2, 4)
    for j in range(2):
        one = SparseGPRegressor(**GIVEN).fit(X, targets[:, j])
        assert both.noise_variance_[j] == pytest.approx(one.noise_variance_, rel=1e-2)
        np.testing.assert_allclose(mean[:, j], one.predict(Z), rtol=1e-2)
        np.testing.assert_allclose(std[:, j], one.predict(Z, return_std=True)[1], rtol=1e-2)
        np.testing.assert_allclose(np.sqrt(np.diag(covariance[..., j])), std[:, j], rtol=1e-8)
        np.testing.assert_allclose(both.loo_.residuals[:, j], one.loo_.residuals, atol=0.05)


def test_targets_at_a_known_noise_are_exactly_those_of_each_alone():
    X, y = smooth(80)
    targets = np.column_stack([y, y[::-1]])
    both = SparseGPRegressor(**GIVEN, noise_variance=0.04).fit(X, targets)
    a, s = amplitude(both), both.noise_variance_
    np.testing.assert_allclose(a, a[0])  # one ratio of noise to signal
    for j in range(2):
        kernel = ConstantKernel(a[j]) * RBF(1.0) + WhiteKernel(s[j]) + ConstantKernel(1e8)
        other = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0).fit(X, targets[:, j])
        Z = X[:7] + 0.1
        mean, std = other.predict(Z, return_std=True)
        means, stds = both.predict(Z, return_std=True)
        np.testing.assert_allclose(means[:, j], mean, rtol=1e-5)
        np.testing.assert_allclose(stds[:, j] / both.calibration_[j], std, rtol=1e-5)


def test_intervals_quantiles_and_draws_agree():
    X, y = smooth(120)
    model = SparseGPRegressor(**GIVEN).fit(X, y)
    Z = X[:5] + 0.1
    mean, covariance = model.predict(Z, return_cov=True)
    draws = model.sample_y(Z, 20_000)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.01)
    np.testing.assert_allclose(np.cov(draws), covariance, atol=0.01)
    ends = model.predict_interval(Z)
    np.testing.assert_allclose(ends, model.predict_quantiles(Z, [0.025, 0.975]))


def test_error_bars_hold_for_new_rows():
    X, y = smooth(300)
    new, truth = smooth(2000, 1)
    model = SparseGPRegressor().fit(X, y)
    mean, std = model.predict(new, return_std=True)
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.23
    assert 0.93 < np.mean(np.abs(mean - truth) < 1.96 * std) < 0.97


def test_noise_that_depends_on_the_inputs_and_outliers():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (300, 1))
    sd = np.where(X[:, 0] > 0.0, 0.5, 0.05)
    y = np.sin(2.0 * X[:, 0]) + sd * rng.standard_normal(300)
    model = SparseGPRegressor(**GIVEN, noise_variance="input").fit(X, y)
    low, high = model.predict([[-1.0], [1.0]], return_std=True)[1]
    assert model.exact_
    assert high > 3.0 * low
    y[:15] += 20.0
    robust = SparseGPRegressor(**GIVEN, likelihood="student").fit(X, y)
    assert np.sqrt(np.mean((robust.predict(X) - np.sin(2.0 * X[:, 0])) ** 2)) < 0.2


# Where rows are, and how a model is kept.


def test_rows_from_anywhere_are_the_same_exact_process():
    X, y = smooth(90)
    plain = SparseGPRegressor(**GIVEN).fit(X, y)
    expected = plain.predict(X, return_std=True)
    for rows in ([X[:50], X[50:]], lambda: iter([X[:50], X[50:]]), da.from_array(X, (40, 3))):
        there = SparseGPRegressor(**GIVEN).fit(rows, y)
        assert there.exact_
        np.testing.assert_allclose(there.predict(X, return_std=True), expected, rtol=1e-10)
    blocks = plain.predict([X[:50], X[50:]], return_std=True)
    np.testing.assert_allclose(blocks, expected, rtol=1e-10)


def test_tensors_are_the_same_exact_process():
    torch = pytest.importorskip("torch")
    X, y = smooth(90)
    plain = SparseGPRegressor(**GIVEN).fit(X, y)
    expected = plain.predict(X, return_std=True)
    for rows, device in ((torch.as_tensor(X), None), (X, "cpu")):
        there = SparseGPRegressor(**GIVEN, device=device).fit(rows, y)
        assert there.exact_
        mean, std = there.predict(rows, return_std=True)
        np.testing.assert_allclose(np.stack([mean, std]), expected, rtol=1e-8)


@pytest.mark.parametrize("settings", [{}, {"max_terms": 15}, {"max_terms": 15, "neighbours": 8}])
def test_saved_models_predict_the_same(settings):
    X, y = smooth(120)
    model = SparseGPRegressor(**GIVEN, **settings).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    loaded = sio.loads(sio.dumps(model), trusted=sparsebayes.TRUSTED_TYPES)
    expected = model.predict(X, return_std=True)
    for other in (again, loaded):
        np.testing.assert_allclose(other.predict(X, return_std=True), expected, rtol=1e-12)


# Many rows.


def test_many_rows_have_functions_that_capture_the_process(monkeypatch):
    X, y = smooth(400)
    exact = SparseGPRegressor("rbf", gamma="evidence").fit(X, y)
    monkeypatch.setattr(sparse_gp, "EXACT_ROWS", 100)
    model = SparseGPRegressor("rbf", gamma="evidence").fit(X, y)
    assert exact.exact_
    assert not model.exact_
    assert model.stop_reason_ == "gaussian_process"
    assert len(model.active_) < 300
    Z = smooth(200, 1)[0]
    for ours, theirs in zip(model.predict(Z, True), exact.predict(Z, True), strict=True):
        gap = np.mean((ours - theirs) ** 2)
        assert gap < 0.1 * exact.noise_variance_  # the variance that the functions may miss


def test_a_given_width_has_functions_that_capture_the_process_too():
    X, y = smooth(300)
    exact = SparseGPRegressor("rbf", gamma=0.1).fit(X, y)
    model = SparseGPRegressor("rbf", gamma=0.1, max_terms=120).fit(X, y)
    gap = model.predict(X) - exact.predict(X)
    assert np.sqrt(np.mean(gap**2)) < 0.05 * np.sqrt(exact.noise_variance_)


def test_a_number_of_terms_is_a_limit():
    X, y = smooth(200)
    model = SparseGPRegressor(**GIVEN, max_terms=12).fit(X, y)
    assert not model.exact_
    assert len(model.active_) <= 12


def test_neighbours_chosen_by_themselves_add_nothing_to_an_exact_process():
    X, y = smooth(80)
    plain = SparseGPRegressor(**GIVEN).fit(X, y)
    model = SparseGPRegressor(**GIVEN, neighbours="auto").fit(X, y)
    assert model.exact_
    assert model.neighbours_ == 0
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"kernel": None}, "requires a covariance function"),
        ({"kernel": "precomputed"}, "requires a covariance function"),
        ({"kernel": "poly", "gamma": "scale", "neighbours": 4}, "requires a stationary kernel"),
        ({"neighbours": 4, "max_terms": None}, "cannot be combined with neighbours"),
        ({"neighbours": -1}, "neighbours"),
        ({"kernel": "sigmoid", "gamma": 5.0}, "not positive definite"),
        ({"kernel": "sigmoid", "gamma": 5.0, "max_terms": 20}, "not positive definite"),
    ],
)
def test_what_has_no_meaning_is_refused(settings, sentence):
    X, y = smooth(40)
    with pytest.raises(ValueError, match=sentence):
        SparseGPRegressor(**{**GIVEN, **settings}).fit(X, y)


def test_too_many_rows_for_the_exact_process_are_refused_before_the_work():
    X, y = np.zeros((10_001, 1)), np.arange(10_001.0)
    with pytest.raises(ValueError, match="at most 10000 rows"):
        SparseGPRegressor(**GIVEN, max_terms=None).fit(X, y)


@pytest.mark.parametrize("lam", [1e-6, 1e-2])
def test_the_diagonal_of_the_inverse_needs_single_precision_only(lam):
    x = np.sort(np.random.default_rng(0).uniform(-3.0, 3.0, 1600))
    M = np.exp(-0.5 * np.square(x[:, None] - x)) + lam * np.eye(len(x))
    U = np.asfortranarray(np.linalg.cholesky(M).T)
    found = exact._inverse_diagonal(U)
    double = np.linalg.inv(U)
    np.testing.assert_allclose(found, np.einsum("ij,ij->i", double, double), rtol=3e-5)
    scaled = exact._inverse_diagonal(U * 1e100)  # no number of float32
    np.testing.assert_allclose(scaled * 1e200, found, rtol=3e-5)


def test_many_rows_are_factored_once_and_have_noise_of_their_own(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 2))
    std = np.where(X[:, 1] > 0, 0.5, 0.05)
    y = np.sin(2 * X[:, 0]) + std * rng.standard_normal(400)
    sizes = []

    def counted(K, *args):
        sizes.append(len(K))
        return exact_process(K, *args)

    monkeypatch.setattr(gaussian_process, "exact_process", counted)
    monkeypatch.setattr(regression, "MANY_ROWS", 300)
    known = {"kernel": "rbf", "gamma": "ard"}
    once = SparseGPRegressor(noise_variance="input", **known).fit(X, y)
    assert sizes == [400]
    one_level = SparseGPRegressor(noise_variance="learn", **known).fit(X, y)
    new = rng.uniform(-2, 2, (200, 2))
    np.testing.assert_allclose(once.predict(new), one_level.predict(new), rtol=1e-10)
    stds = once.predict(new, return_std=True)[1]
    assert np.mean(stds[new[:, 1] > 0.5]) > 4.0 * np.mean(stds[new[:, 1] < -0.5])
