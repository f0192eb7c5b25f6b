"""Free runs against a plain loop, sensitivities against differences, fits against brute force."""

import numpy as np
import pytest
from scipy.optimize import least_squares

from sparsebayes.narx.functions import Monomials
from sparsebayes.narx.simulation import (
    Lags,
    Normal,
    cut,
    fit_simulation,
    free_run,
    normal_equations,
    sensitivities,
    start_of,
    weight_covariance,
)

LAGS = Lags((1, 3), ((0, 1), (2,)))
FUNCTIONS = Monomials.up_to(LAGS.variables, 2).take([0, 1, 2, 3, 5, 7, 9, 12])
WEIGHTS = np.array([0.1, 0.5, -0.3, 0.8, 0.4, -0.2, 0.1, 0.05])
LIMITS = (-20.0, 20.0)


def problem(n=60, n_segments=3, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    u = rng.uniform(-1, 1, (n_segments * n, 2))
    segments = cut([(u, np.zeros(len(u)))], LAGS, n)
    start = rng.uniform(-0.5, 0.5, (3, n_segments))
    clean = free_run(FUNCTIONS, WEIGHTS, LAGS, segments.inputs, start, LIMITS).y
    return u, segments._replace(y=clean + noise * rng.standard_normal(clean.shape)), start


def test_a_free_run_is_the_plain_loop():
    u, segments, start = problem()
    powers = dict(zip(LAGS.variables, range(5), strict=True))
    assert list(powers) == ["y(k-1)", "y(k-3)", "u1(k)", "u1(k-1)", "u2(k-2)"]
    for s in range(3):
        inputs, y = u[60 * s : 60 * (s + 1)], list(start[:, s])
        for k in range(3, 60):
            x = [y[k - 1], y[k - 3], inputs[k, 0], inputs[k - 1, 0], inputs[k - 2, 1]]
            y.append(float(WEIGHTS @ FUNCTIONS(np.array(x)[:, None])[:, 0]))
        np.testing.assert_allclose(segments.y[:, s], y, rtol=1e-12)


def test_sensitivities_are_those_of_finite_differences():
    _, segments, start = problem()
    run = free_run(FUNCTIONS, WEIGHTS, LAGS, segments.inputs, start, LIMITS)
    J = sensitivities(FUNCTIONS, WEIGHTS, LAGS, segments.inputs, run)
    assert J.shape == (60, 3, len(WEIGHTS) + 3)

    def y(weights, start):
        return free_run(FUNCTIONS, weights, LAGS, segments.inputs, start, LIMITS).y

    h = 1e-6
    for i, e in enumerate(h * np.eye(len(WEIGHTS))):
        difference = (y(WEIGHTS + e, start) - y(WEIGHTS - e, start)) / (2 * h)
        np.testing.assert_allclose(J[:, :, i], difference, rtol=1e-6, atol=1e-7)
    for i in range(3):
        e = h * (np.arange(3) == i)[:, None]
        difference = (y(WEIGHTS, start + e) - y(WEIGHTS, start - e)) / (2 * h)
        np.testing.assert_allclose(J[:, :, len(WEIGHTS) + i], difference, rtol=1e-6, atol=1e-7)


def test_sensitivities_of_other_candidates_are_those_at_weight_zero():
    _, segments, start = problem()
    run = free_run(FUNCTIONS, WEIGHTS, LAGS, segments.inputs, start, LIMITS)
    both = Monomials.up_to(LAGS.variables, 2)
    J = sensitivities(FUNCTIONS, WEIGHTS, LAGS, segments.inputs, run, extra=both)
    idx = np.array([0, 1, 2, 3, 5, 7, 9, 12, 15])
    wide = np.append(WEIGHTS, 0.0)
    whole = sensitivities(both.take(idx), wide, LAGS, segments.inputs, run)
    np.testing.assert_allclose(J[:, :, idx], whole[:, :, :9], rtol=1e-10, atol=1e-12)


def test_gauss_newton_ends_where_a_general_minimiser_ends():
    lags = Lags((1,), ((0,),))
    functions = Monomials.up_to(lags.variables, 2).take([1, 2, 3])
    rng = np.random.default_rng(0)
    u = rng.uniform(-1, 1, (80, 1))
    segments = cut([(u, np.zeros(80))], lags, 40)
    true = np.array([0.6, 0.8, -0.2])
    y = free_run(functions, true, lags, segments.inputs, np.zeros((1, 2)), LIMITS).y
    segments = segments._replace(y=y + 0.1 * rng.standard_normal(y.shape))
    fit = fit_simulation(functions, np.array([0.3, 0.5, 0.0]), lags, segments, LIMITS, tol=1e-12)
    assert fit.converged
    assert not fit.diverged

    def error(p):
        run = free_run(functions, p[:3], lags, segments.inputs, p[None, 3:], LIMITS)
        return (run.y - segments.y).ravel()

    brute = least_squares(error, [0.3, 0.5, 0.0, 0.0, 0.0], xtol=1e-12, ftol=1e-12, gtol=1e-12)
    np.testing.assert_allclose(fit.cost, 2 * brute.cost, rtol=1e-8)
    np.testing.assert_allclose(fit.weights, brute.x[:3], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fit.start[0], brute.x[3:], rtol=1e-3, atol=1e-4)


def test_noise_free_outputs_are_fitted_exactly_from_wrong_weights():
    _, segments, _ = problem()
    fit = fit_simulation(FUNCTIONS, 0.8 * WEIGHTS, LAGS, segments, LIMITS, max_iter=50, tol=1e-12)
    np.testing.assert_allclose(fit.weights, WEIGHTS, rtol=1e-5, atol=1e-6)


def test_missing_outputs_do_not_count():
    _, segments, _ = problem(noise=0.05)
    y = segments.y.copy()
    y[20:30, 1] = np.nan
    y[:2, 2] = np.nan
    fit = fit_simulation(FUNCTIONS, WEIGHTS, LAGS, segments._replace(y=y), LIMITS)
    assert fit.n == y.size - 12
    assert np.all(np.isfinite(fit.weights))
    changed = np.where(np.isnan(y), np.nan, segments.y)
    again = fit_simulation(FUNCTIONS, WEIGHTS, LAGS, segments._replace(y=changed), LIMITS)
    np.testing.assert_array_equal(fit.weights, again.weights)
    assert np.all(np.isfinite(start_of(np.full((9, 1), np.nan), 3)))


def test_with_the_weights_held_only_the_starts_move():
    _, segments, start = problem(noise=0.01)
    fit = fit_simulation(FUNCTIONS, WEIGHTS, LAGS, segments, LIMITS, starts_only=True)
    np.testing.assert_array_equal(fit.weights, WEIGHTS)
    assert np.max(np.abs(fit.start - start)) < 0.05
    measured = free_run(FUNCTIONS, WEIGHTS, LAGS, segments.inputs, segments.y[:3], LIMITS)
    assert fit.cost < np.sum(np.square(measured.y - segments.y))


def test_a_run_that_leaves_the_limits_stops_there_and_is_never_a_success():
    lags = Lags((1,), ())
    functions = Monomials.up_to(lags.variables, 1).take([1])
    inputs = np.empty((30, 0, 2))
    run = free_run(functions, np.array([2.0]), lags, inputs, np.array([[1.0, 0.0]]), LIMITS)
    assert run.diverged
    np.testing.assert_array_equal(run.stopped, [5, 31])
    assert np.all(np.isfinite(run.y))
    assert np.max(np.abs(run.y)) <= 20.0
    J = sensitivities(functions, np.array([2.0]), lags, inputs, run)
    assert np.all(np.isfinite(J))
    segments = cut([(np.empty((31, 0)), np.ones(31))], lags, 31)
    fit = fit_simulation(functions, np.array([3.0]), lags, segments, LIMITS, max_iter=1)
    assert fit.diverged or fit.rms < 1.0


@pytest.mark.parametrize("colour", [0.0, 0.7])
def test_covariance_is_the_spread_over_repeated_noise(colour):
    lags = Lags((1,), ((0,),))
    functions = Monomials.up_to(lags.variables, 1).take([1, 2])
    true, rng = np.array([0.7, 1.0]), np.random.default_rng(0)
    u = rng.uniform(-1, 1, (400, 1))
    segments = cut([(u, np.zeros(400))], lags, 400)
    clean = free_run(functions, true, lags, segments.inputs, np.zeros((1, 1)), LIMITS).y
    found, claimed = [], []
    for _ in range(60):
        e = 0.1 * rng.standard_normal(400)
        for k in range(1, 400):
            e[k] += colour * e[k - 1]
        noisy = segments._replace(y=clean + e[:, None])
        fit = fit_simulation(functions, true, lags, noisy, LIMITS, max_iter=5)
        run = free_run(functions, fit.weights, lags, noisy.inputs, fit.start, LIMITS)
        J = sensitivities(functions, fit.weights, lags, noisy.inputs, run)
        known = np.ones(run.y.shape, dtype=bool)
        found.append(fit.weights)
        claimed.append(np.diag(weight_covariance(J, noisy.y - run.y, known, 2)))
    ratio = np.std(found, axis=0) / np.sqrt(np.mean(claimed, axis=0))
    assert np.all((ratio > 0.75) & (ratio < 1.3))  # 60 draws know a spread to 9 %


def test_plain_floats_and_arrays_run_alike():
    _, segments, start = problem(n_segments=8)
    whole = free_run(FUNCTIONS, WEIGHTS, LAGS, segments.inputs, start, LIMITS)
    few = segments.take(np.arange(2))
    some = free_run(FUNCTIONS, WEIGHTS, LAGS, few.inputs, start[:, :2], LIMITS)
    np.testing.assert_allclose(some.y, whole.y[:, :2], rtol=1e-12)
    tight = (-0.5, 0.5)
    whole = free_run(FUNCTIONS, WEIGHTS, LAGS, segments.inputs, start, tight)
    some = free_run(FUNCTIONS, WEIGHTS, LAGS, few.inputs, start[:, :2], tight)
    assert some.diverged
    np.testing.assert_array_equal(some.stopped, whole.stopped[:2])
    np.testing.assert_allclose(some.y, whole.y[:, :2], rtol=1e-12)


def test_sensitivities_whose_squares_overflow_end_the_fit_without_an_error():
    sensitivity = np.full((5, 2, 3), 1e200)
    observed = np.ones((5, 2), dtype=bool)
    assert normal_equations(sensitivity, np.ones((5, 2)), observed, 2) is None


def test_starts_that_act_alike_and_strongly_do_not_break_what_a_term_is_worth():
    """Two starts with the same large effect have a singular block, however large its entries."""
    alike = np.full((1, 2, 2), 1e20)
    normal = Normal(1e5 * np.eye(3), np.full((1, 3, 2), 1e9), alike, np.zeros(3), np.zeros((1, 2)))
    assert np.all(np.isfinite(normal.rise(np.ones(3))))
