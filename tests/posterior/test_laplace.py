"""Laplace's approximation for labels: mode, covariance, evidence."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

import sparsebayes.posterior.laplace as laplace_module
from sparsebayes.posterior import laplace_posterior, likelihood_slopes, log_likelihood
from tests.label_helpers import labels, with_intercept


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_gradient_is_zero_at_the_mode(intercept, weighted):
    Phi, counts, alpha = labels(weighted=weighted)
    posterior, y = laplace_posterior(Phi, counts, alpha, intercept)
    full, precision = with_intercept(Phi, alpha, intercept)
    w = posterior.mean
    if intercept:
        w = np.concatenate([[posterior.intercept], w])
    np.testing.assert_allclose(full @ w, y, atol=1e-12)
    gradient = full.T @ (counts[:, 0] - counts[:, 1] * expit(y)) - precision * w
    np.testing.assert_allclose(gradient, 0.0, atol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_evidence_and_covariance_are_the_dense_formulas(intercept, weighted):
    Phi, counts, alpha = labels(weighted=weighted)
    posterior, y = laplace_posterior(Phi, counts, alpha, intercept)
    full, precision = with_intercept(Phi, alpha, intercept)
    omega = counts[:, 1] * expit(y) * expit(-y)
    H = full.T @ (omega[:, None] * full) + np.diag(precision)
    w, k = posterior.mean, len(alpha)
    # Density 1 of the flat prior; the Gaussian integral over all weights and the intercept.
    expected = log_likelihood(y, counts) - 0.5 * alpha @ w**2
    expected += 0.5 * np.sum(np.log(alpha / (2 * np.pi)))
    expected += 0.5 * len(full.T) * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(H)[1]
    assert posterior.log_evidence == pytest.approx(expected, abs=1e-9)
    covariance = np.linalg.inv(H)
    np.testing.assert_allclose(posterior.covariance, covariance[-k:, -k:], atol=1e-9)
    new = np.random.default_rng(1).standard_normal((5, k))
    _, variance = posterior.predict(new)
    new, _ = with_intercept(new, alpha, intercept)
    np.testing.assert_allclose(variance, np.einsum("ij,jk,ik->i", new, covariance, new), rtol=1e-8)


def test_evidence_is_near_the_integral():
    Phi, counts, _ = labels(60, 1)
    posterior, _ = laplace_posterior(Phi, counts, np.array([0.5]), intercept=False)

    def density(w):
        return np.exp(log_likelihood(Phi[:, 0] * w, counts) - 0.25 * w**2) * np.sqrt(0.25 / np.pi)

    assert posterior.log_evidence == pytest.approx(np.log(quad(density, -4, 6)[0]), abs=0.01)


def test_a_start_on_the_wrong_side_is_not_followed():
    Phi, counts, alpha = labels()
    expected, _ = laplace_posterior(Phi, counts, alpha)
    lost = np.full(4, -1e4), 500.0
    posterior, _ = laplace_posterior(Phi, counts, alpha, start=lost)
    np.testing.assert_allclose(posterior.mean, expected.mean, atol=1e-7)


def test_columns_that_are_nearly_equal_go_by_orthogonal_factors():
    Phi, counts, _ = labels()
    Phi[:, 3] = Phi[:, 2] * (1.0 + 1e-9)
    alpha = np.array([1.0, 1.0, 1e-15, 1e-15])
    posterior, _ = laplace_posterior(Phi, counts, alpha)
    merged, _ = laplace_posterior(Phi[:, :3], counts, np.array([1.0, 1.0, 0.5e-15]))
    np.testing.assert_allclose(posterior.predict(Phi)[0], merged.predict(Phi[:, :3])[0], atol=1e-5)
    assert posterior.log_evidence == pytest.approx(merged.log_evidence, abs=1e-5)


def test_the_mode_is_reached_from_a_start_where_all_rows_are_saturated():
    rng = np.random.default_rng(0)
    Phi, alpha = rng.standard_normal((159, 2)), np.full(2, 1e-3)
    counts = np.column_stack([np.arange(159) == 0, np.ones(159)]).astype(float)
    expected, _ = laplace_posterior(Phi, counts, alpha)
    # f is higher at this start than at zero, and its curvature is 1e-14 of that at the mode.
    posterior, _ = laplace_posterior(Phi, counts, alpha, start=(np.zeros(2), -35.0))
    np.testing.assert_allclose(posterior.mean, expected.mean, atol=1e-8)
    assert posterior.log_evidence == pytest.approx(expected.log_evidence, abs=1e-10)


def test_likelihood_and_slopes_keep_their_digits_for_large_weights():
    y, counts = np.array([60.0, -60.0]), np.array([[1e8, 1e8], [0.0, 1e8]])
    tail = np.exp(-60.0)
    assert log_likelihood(y, counts) == pytest.approx(-2e8 * tail, rel=1e-12)
    residual, omega = likelihood_slopes(y, counts)
    np.testing.assert_allclose(residual, [1e8 * tail, -1e8 * tail], rtol=1e-12)
    np.testing.assert_array_equal(omega, 1e8 * 1e-14)
    y = np.array([-3.0, 0.5])
    residual, omega = likelihood_slopes(y, np.array([[1.0, 3.0], [0.0, 2.0]]))
    np.testing.assert_allclose(residual, [1.0 - 3.0 * expit(-3.0), -2.0 * expit(0.5)])
    np.testing.assert_allclose(omega, np.array([3.0, 2.0]) * expit(y) * expit(-y))


def test_an_overflow_is_an_error_that_names_the_columns():
    Phi, counts, alpha = labels()
    Phi[3, 1] = np.inf
    with (
        np.errstate(all="ignore"),
        pytest.raises(np.linalg.LinAlgError, match="overflows float64: columns have values up to"),
    ):
        laplace_posterior(Phi, counts, alpha)


def test_a_mode_that_is_not_reached_is_an_error(monkeypatch):
    monkeypatch.setattr(laplace_module, "_MOST_STEPS", 1)
    with pytest.raises(np.linalg.LinAlgError, match=r"did not reach the mode.*weights up to"):
        laplace_posterior(*labels())
    posterior, _ = laplace_posterior(*labels(), max_iter=1)  # one step on request is no error
    assert np.isfinite(posterior.log_evidence)


def test_newton_ends_where_rounding_errors_are_all_that_is_left(monkeypatch):
    rng = np.random.default_rng(0)
    x = np.linspace(-1.0, 1.0, 200)
    Phi = np.exp(-1e-4 * np.subtract.outer(x, x[::10]) ** 2)  # nearly constant functions
    positive = (np.sin(3.0 * x) + 0.3 * rng.standard_normal(200) > 0.0).astype(float)
    steps = []
    root = laplace_module._curvature_root
    monkeypatch.setattr(laplace_module, "_curvature_root", lambda *a: steps.append(1) or root(*a))
    counts = np.column_stack([positive, np.ones(200)])
    laplace_posterior(Phi, counts, np.full(20, 1e-12))
    assert len(steps) < 50


def test_a_start_from_which_the_mode_is_far_is_left_for_zero(monkeypatch):
    rng = np.random.default_rng(0)
    Phi, alpha = rng.standard_normal((40, 3)), np.ones(3)
    counts = np.column_stack([rng.integers(0, 2, 40).astype(float), np.ones(40)])
    mode = laplace_posterior(Phi, counts, alpha)[0]
    ascend, steps = laplace_module._ascend, []

    def none_from_the_start(point, *rest):
        steps.append(point.w)
        return None if len(steps) == 1 else ascend(point, *rest)

    monkeypatch.setattr(laplace_module, "_ascend", none_from_the_start)
    start = 0.5 * mode.mean, float(mode.intercept)
    again = laplace_posterior(Phi, counts, alpha, start=start)[0]
    np.testing.assert_array_equal(steps[1], 0.0)
    np.testing.assert_allclose(again.mean, mode.mean, rtol=1e-8)
