"""Noise that depends on the inputs, tails, and the distributions that they lead to."""

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize
from scipy.stats import norm
from scipy.stats import t as student

from sparsebayes.designs import DenseDesign, WeightedDesign
from sparsebayes.posterior import LeaveOneOut, gaussian_posterior
from sparsebayes.posterior import noise as noise_module
from sparsebayes.posterior.leave_one_out import Calibration
from sparsebayes.posterior.noise import (
    Choice,
    Features,
    NoiseModel,
    Tail,
    fit_noise,
    fit_noise_tail,
    fit_tail,
)
from sparsebayes.posterior.predictive import (
    Exponential,
    LocationScale,
    Mixture,
    Predictive,
    StudentNoise,
)


def squares(n, seed=0, varies=True, df=None):
    """Columns [two inputs, mean prediction, three functions] and squares of noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    log_v = 1.0 + 1.2 * X[:, 0] if varies else np.full(n, 1.0)
    e = rng.standard_normal(n) if df is None else rng.standard_t(df, n)
    columns = np.column_stack([X, X[:, 0] + X[:, 1], np.sin(X), np.cos(X[:, 0])])
    return columns, np.exp(log_v) * e**2, log_v


def fitted(n, **settings):
    columns, q, log_v = squares(n, **settings)
    return (*fit_noise(columns, Features(2, 3), q, np.ones(n)), log_v)


@pytest.mark.parametrize("df", [None, 4])
def test_the_error_of_log_variance_falls_with_the_number_of_rows(df):
    errors = []
    for n in (300, 3000):
        model, variance, log_v = fitted(n, df=df)
        assert isinstance(model, NoiseModel)
        gap = np.log(variance) - log_v
        errors.append(np.std(gap))
    assert errors[1] < 0.6 * errors[0]
    assert errors[1] < 0.15


@pytest.mark.parametrize("df", [None, 4])
def test_many_rows_in_float32_have_the_model_of_float64(df, monkeypatch):
    single, in_single, _ = fitted(30_000, df=df)
    monkeypatch.setattr(noise_module, "_IN_CACHE", 10**9)
    double, in_double, _ = fitted(30_000, df=df)
    assert single.choice[:2] == double.choice[:2]
    assert not np.array_equal(in_single, in_double)  # another path was taken
    np.testing.assert_allclose(in_single, in_double, rtol=1e-4)


def test_hats_are_one_at_their_knots_and_linear_in_between():
    knots = np.array([-2.0, -0.5, 0.0, 3.0])
    x = np.concatenate([knots, np.linspace(-4.0, 5.0, 101)])
    expected = [np.interp(x, knots, 4.0 * unit) for unit in np.eye(4)]
    np.testing.assert_allclose(noise_module._hats(x, knots), np.transpose(expected), atol=1e-14)


@pytest.mark.parametrize("df", [None, 3])
def test_one_level_is_kept_where_there_is_one(df):
    kept = [isinstance(fitted(300, seed=s, varies=False, df=df)[0], float) for s in range(60)]
    assert np.mean(kept) >= 0.95


@pytest.mark.parametrize("df", [np.inf, 4.0])
def test_the_weights_are_where_the_penalised_density_is_highest(df):
    columns, q, _ = squares(200)
    features = Features(2, 3).fitted(columns, np.ones(200))
    B, lam = features.of(columns), 3.0

    def value(w):
        return np.sum(noise_module._loss(B @ w, q, df)) + 0.5 * lam * w[1:] @ w[1:]

    start = noise_module._level(B, q, np.ones((200, 1)), df)
    w = noise_module._descend(B, [B.T @ B], q, np.ones((200, 1)), df, lam, start)[:, 0]
    best = minimize(value, w, method="BFGS", options={"gtol": 1e-6})
    assert value(w) - best.fun < 2e-3
    slope = check_grad(
        lambda eta: np.sum(noise_module._loss(eta, q[:5], df)),
        lambda eta: noise_module._slope(eta, q[:5], df),
        np.linspace(-1, 1, 5),
    )
    assert slope < 1e-4


def test_noise_that_follows_a_curve_is_found():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (3000, 2))
    log_v = 1.5 * np.sin(2.0 * X[:, 0])
    q = np.exp(log_v) * rng.standard_normal(3000) ** 2
    columns = np.column_stack([X, X[:, 1]])
    model, variance = fit_noise(columns, Features(2, 0), q, np.ones(3000))
    assert model.choice.extra_features == "curves"
    assert np.std(np.log(variance) - log_v) < 0.25


def test_counts_are_repetition():
    columns, q, _ = squares(150)
    count = np.random.default_rng(1).integers(1, 4, 150)
    choice = Choice("functions", 3.0, 10.0)
    rows = np.repeat(np.arange(150), count)
    q = q + 0.01 * np.median(q)  # what is added to squares is of their median
    once, _ = fit_noise(columns, Features(2, 3), q, count.astype(float), choice=choice)
    again, _ = fit_noise(columns[rows], Features(2, 3), q[rows], np.ones(len(rows)), choice=choice)
    np.testing.assert_allclose(once.coef[1:], again.coef[1:], atol=2e-3)


def test_the_variance_is_not_extrapolated():
    model, _, _ = fitted(1000)
    far = np.array([[1e3, 0.0]])
    zero = gaussian_posterior(DenseDesign(np.eye(3)), np.zeros(3), np.arange(3), np.ones(3), 1.0)
    assert model.variance(far, np.zeros((1, 3)), zero)[0] == np.exp(model.bounds[1])


def test_standardised_squares_have_the_mean_one():
    columns, q, _ = squares(500, df=4)
    _, variance = fit_noise(columns, Features(2, 3), q, np.ones(500))
    assert np.mean(q / variance) == pytest.approx(1.0)


def test_a_tail_is_found_where_there_is_one():
    rng = np.random.default_rng(0)
    tail, gain = fit_tail(2.0 * rng.standard_t(4, 5000), np.ones(5000))
    assert tail.df == pytest.approx(4.0, rel=0.2)
    assert tail.scale == pytest.approx(2.0, rel=0.05)
    assert gain > 50
    assert fit_tail(rng.standard_normal(5000), np.ones(5000))[1] < 3.0


def test_a_tail_has_the_highest_likelihood():
    rng = np.random.default_rng(1)
    u, count = rng.standard_t(5, 300), rng.integers(1, 3, 300).astype(float)
    tail, _ = fit_tail(u, count)

    def value(df, scale):
        return count @ student.logpdf(u, df, scale=scale)

    best = value(tail.df, tail.scale)
    for df, scale in ((1.02, 1.0), (0.98, 1.0), (1.0, 1.01), (1.0, 0.99)):
        assert value(df * tail.df, scale * tail.scale) < best


def test_leaving_out_rows_of_known_precision_is_what_refits_say():
    rng = np.random.default_rng(0)
    Phi, y, p, s = (
        rng.standard_normal((12, 3)),
        rng.standard_normal(12),
        rng.uniform(0.2, 4, 12),
        0.3,
    )
    lam = np.full(3, 0.7)
    design = WeightedDesign(DenseDesign(Phi), p)
    posterior = gaussian_posterior(design, design.target(y), np.arange(3), lam, s)
    found = LeaveOneOut(_Columns(3), posterior).read(0, (Phi, y, None))._replace(precision=p)
    for i in range(12):
        rest = np.arange(12) != i
        V = np.linalg.inv((Phi[rest].T * p[rest]) @ Phi[rest] / s + np.diag(lam / s))
        mean = Phi[i] @ V @ (Phi[rest].T @ (p[rest] * y[rest])) / s
        assert found.residual[i] == pytest.approx(y[i] - mean)
        assert found.variance[i] == pytest.approx(s / p[i] + Phi[i] @ V @ Phi[i])
    np.testing.assert_allclose(found.weight, 1.0)


class _Columns:
    def __init__(self, k):
        self.k = k

    def __len__(self):
        return self.k

    def __call__(self, X):
        return X


# Distributions.


def test_quantiles_invert_the_distribution_function():
    rng = np.random.default_rng(0)
    alpha = np.array([0.01, 0.3, 0.5, 0.975])
    mean, std = rng.standard_normal(4), rng.uniform(0.5, 2.0, 4)
    plain = LocationScale(mean, std)
    for found in (
        plain,
        LocationScale(mean, std, Tail(4.0, 0.7)),
        StudentNoise(mean, std, 0.5 * std, Tail(3.0, 0.8)),
        Mixture(rng.standard_normal((50, 4)), std, rng.dirichlet(np.ones(50))),
        Exponential(plain, np.full(4, np.inf)),
    ):
        for j, level in enumerate(alpha):
            np.testing.assert_allclose(found.cdf(found.quantiles(alpha)[:, j]), level, atol=1e-9)


def test_densities_are_slopes_of_distribution_functions():
    rng = np.random.default_rng(0)
    mean, std, y = np.zeros(3), np.ones(3), np.array([0.3, 1.0, 2.5])
    for found in (
        LocationScale(mean, std, Tail(3.0, 0.8)),
        StudentNoise(mean, std, np.array([0.1, 0.5, 1.0]), Tail(3.0, 0.8)),
        Mixture(rng.standard_normal((20, 3)), std, np.full(20, 0.05)),
        Exponential(LocationScale(mean, std), np.full(3, np.inf)),
    ):
        slope = (found.cdf(y + 1e-6) - found.cdf(y - 1e-6)) / 2e-6
        np.testing.assert_allclose(np.exp(found.log_density(y)), slope, rtol=1e-5)


def test_scores_in_closed_form_are_those_of_quantiles():
    y, mean, std = np.array([0.0, 1.5, -3.0]), np.zeros(3), np.array([1.0, 2.0, 0.5])
    for tail in (None, Tail(5.0, 0.8)):
        found = LocationScale(mean, std, tail)
        by_quantiles = super(LocationScale, found).crps(y)
        np.testing.assert_allclose(found.crps(y), by_quantiles, rtol=0.01)


SUMS = [(2.5, 1.0), (3.0, 0.7), (20.0, 1.2)]  # degrees of freedom, and the standard deviation


def student_noise(df, size):
    """Rows from all noise to hardly any, with a tail of the variance `size` squared."""
    mean, std = np.array([1.0, -2.0, 0.0, 0.0]), np.array([2.0, 1.0, 1.0, 0.5])
    tail = Tail(df, size * np.sqrt((df - 2.0) / df))
    return StudentNoise(mean, std, std * np.array([1.0, 0.8, 0.3, 0.02]), tail)


@pytest.mark.parametrize(("df", "size"), SUMS)
def test_a_normal_function_plus_t_noise_has_the_quantiles_of_its_draws(df, size):
    found = student_noise(df, size)
    alpha = np.array([0.01, 0.025, 0.25, 0.5, 0.9, 0.975])
    rng, n = np.random.default_rng(0), 400_000
    # Independent of its own `sample`: the two parts are drawn here.
    function = size * np.sqrt(found.std**2 - found.noise_std**2)
    draws = found.mean[:, None] + function[:, None] * rng.standard_normal((4, n))
    draws += (found.tail.scale * found.noise_std)[:, None] * rng.standard_t(df, (4, n))
    for values in (draws, found.sample(n, rng)):
        below = np.mean(values[..., None] < found.quantiles(alpha)[:, None, :], axis=1)
        np.testing.assert_allclose(below, np.broadcast_to(alpha, (4, 6)), atol=0.004)
    score = np.mean(np.abs(draws - 0.3), axis=1)
    score -= 0.5 * np.mean(np.abs(draws[:, ::2] - draws[:, 1::2]), axis=1)
    np.testing.assert_allclose(found.crps(np.full(4, 0.3)), score, rtol=0.01)
    np.testing.assert_allclose(Predictive.crps(found, np.full(4, 0.3)), score, rtol=0.02)


@pytest.mark.parametrize(("df", "size"), SUMS)
def test_all_noise_is_student_and_hardly_any_noise_is_normal(df, size):
    found, alpha = student_noise(df, size), np.array([0.001, 0.1, 0.4, 0.975])
    y = np.array([-1.0, 0.3, 8.0])
    scale = found.tail.scale * 2.0
    exact = 1.0 + scale * student.ppf(alpha, df)
    np.testing.assert_allclose(found.quantiles(alpha)[0], exact, rtol=1e-4)
    for value in y:
        density = found.log_density(np.full(4, value))[0]
        assert density == pytest.approx(student.logpdf(value, df, 1.0, scale), abs=1e-4)
    np.testing.assert_allclose(
        found.quantiles(alpha[1:])[3], size * 0.5 * norm.ppf(alpha[1:]), rtol=0.01
    )


def test_the_tail_of_the_noise_is_found_around_an_uncertain_function():
    rng, n = np.random.default_rng(0), 4000
    function, noise = rng.uniform(0.0, 2.0, n), np.full(n, 1.0)
    tail = Tail(4.0, np.sqrt(0.5))  # of variance one
    r = np.sqrt(function) * rng.standard_normal(n) + tail.scale * rng.standard_t(4, n)
    start, _ = fit_tail(r / np.sqrt(function + noise), np.ones(n))
    found = fit_noise_tail(r, function, noise, np.ones(n), start)
    assert start.df > 6.0  # the function makes the sum more normal
    assert found.df == pytest.approx(4.0, rel=0.2)
    assert found.variance == pytest.approx(1.0, rel=0.05)


def test_an_exponential_is_below_zero_never():
    found = Exponential(LocationScale(np.zeros(2), np.ones(2)), np.full(2, np.inf))
    assert np.all(found.cdf(np.array([-1.0, 0.0])) == 0.0)
    assert np.all(found.log_density(np.array([-1.0, 0.0])) == -np.inf)
    np.testing.assert_allclose(
        found.quantiles(np.array([0.1]))[:, 0], np.exp(norm.ppf(0.1)), rtol=1e-12
    )


@pytest.mark.parametrize("std", [1e-9, 0.3, 3.0])
def test_the_moments_of_an_exponential_are_those_of_its_quantiles(std):
    rng = np.random.default_rng(0)
    mean, std, upper = np.array([-2.0, 0.0, 0.9]), std * rng.uniform(0.5, 1.0, 3), np.ones(3)
    u = (np.arange(200_000) + 0.5) / 200_000
    for of in (
        LocationScale(mean, std),
        LocationScale(mean, std, Tail(4.0, 0.7)),
        Mixture(mean + std * rng.standard_normal((5, 3)), std, rng.dirichlet(np.ones(5))),
    ):
        found = Exponential(of, upper)
        draws = found.quantiles(u) if isinstance(of, LocationScale) else found.quantiles(u[::200])
        rtol = 2e-3 if isinstance(of, LocationScale) else 0.02
        np.testing.assert_allclose(found.mean, draws.mean(axis=1), rtol=rtol)
        np.testing.assert_allclose(found.std, draws.std(axis=1), rtol=10 * rtol)
        assert np.all(draws <= np.exp(1.0))
    wide = Exponential(LocationScale(mean, np.full(3, 2.0)), upper)
    assert np.all(wide.ends(np.inf) == [0.0, np.inf])
    np.testing.assert_allclose(wide.ends(4.0)[:, 1], np.e)


def test_a_conformal_factor_is_an_order_statistic():
    u = np.random.default_rng(0).standard_normal(99)
    found = Calibration.from_residuals(u, np.ones(99))
    assert found.factor(0.9) == np.sort(np.abs(u))[89]
    assert found.factor(0.995) == np.inf
    count = np.random.default_rng(1).integers(1, 4, 99)
    weighted = Calibration.from_residuals(u, count.astype(float))
    repeated = Calibration.from_residuals(np.repeat(u, count), np.ones(count.sum()))
    assert weighted.factor(0.9) == repeated.factor(0.9)


def test_a_few_quantiles_stand_for_many_residuals():
    u = np.random.default_rng(0).standard_normal(50_000)
    found = Calibration.from_residuals(u, np.ones(50_000))
    assert len(found.sizes) <= 300
    assert found.factor(0.95) == pytest.approx(np.quantile(np.abs(u), 0.95), rel=0.01)


def test_an_infinite_variance_of_the_function_leaves_the_tail_as_it_was():
    start, one = Tail(4.0, 0.7), np.ones(3)
    function = np.array([1.0, np.inf, 2.0])
    assert fit_noise_tail(one, function, one, one, start) is start
