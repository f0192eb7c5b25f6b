import numpy as np
import pytest

from sparsebayes.designs import CentredDesign, DenseDesign, WeightedDesign
from sparsebayes.posterior import gaussian_posterior
from tests.helpers import (
    dense_log_evidence,
    dense_posterior,
    intercept_log_evidence,
    many_digits,
)


@pytest.mark.parametrize("n", [3, 40, 9000])
@pytest.mark.parametrize("spread", [0, 3])
def test_posterior_and_evidence_match_the_dense_formulas(n, spread):
    rng = np.random.default_rng(n)
    Phi = rng.standard_normal((n, 5)) * np.logspace(-spread, spread, 5)
    t = rng.standard_normal(n)
    active = np.array([4, 0, 2])
    alpha, sigma2 = rng.uniform(0.1, 10, 3), 0.3
    p = gaussian_posterior(DenseDesign(Phi), t, active, alpha * sigma2, sigma2)
    mean, covariance = dense_posterior(Phi[:, active], t, alpha, sigma2)
    np.testing.assert_allclose(p.mean, mean, rtol=1e-8, atol=1e-10 * np.abs(mean).max())
    np.testing.assert_allclose(p.covariance, covariance, rtol=1e-8, atol=1e-14)
    if n < 100:
        expected = dense_log_evidence(Phi[:, active], t, alpha, sigma2)
        assert p.log_evidence == pytest.approx(expected, rel=1e-10)


def test_nearly_collinear_columns_keep_eight_digits():
    """Columns equal to 1e-6, where the normal equations lose 12 digits."""
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal((12, 1)) + 1e-6 * rng.standard_normal((12, 4))
    t, lam = rng.standard_normal(12), np.full(4, 1e-9)
    p = gaussian_posterior(DenseDesign(Phi), t, np.arange(4), lam, 1.0)
    mean, evidence = many_digits(Phi, t, lam, 1.0)
    np.testing.assert_allclose(p.mean, mean, rtol=1e-8)
    assert p.log_evidence == pytest.approx(evidence, rel=1e-10)


def test_the_intercept_is_integrated_out_under_a_flat_prior():
    rng = np.random.default_rng(1)
    Phi, t = rng.standard_normal((20, 3)), 5.0 + rng.standard_normal(20)
    alpha, sigma2 = np.array([0.5, 2.0, 1.0]), 0.7
    design = CentredDesign(DenseDesign(Phi))
    p = gaussian_posterior(
        design, design.target(t), np.arange(3), alpha * sigma2, sigma2, design.offset(t)
    )
    expected = intercept_log_evidence(Phi, t, alpha, sigma2)
    assert p.log_evidence == pytest.approx(expected, abs=1e-5)
    # Mean and variance of a new observation: the model with a wide prior on a constant column.
    wide = np.hstack([Phi, np.ones((20, 1))])
    mean, covariance = dense_posterior(wide, t, np.append(alpha, 1e-9), sigma2)
    new = rng.standard_normal((4, 3))
    rows = np.hstack([new, np.ones((4, 1))])
    got_mean, got_var = p.predict(design.basis(np.arange(3))(new))
    np.testing.assert_allclose(got_mean, rows @ mean, rtol=1e-6)
    expected_cov = rows @ covariance @ rows.T + sigma2 * np.eye(4)
    np.testing.assert_allclose(got_var, np.diag(expected_cov), rtol=1e-6)
    got_cov = p.predict_covariance(design.basis(np.arange(3))(new))
    np.testing.assert_allclose(got_cov, expected_cov, rtol=1e-6, atol=1e-8)


def test_weighted_evidence_is_that_of_repeated_rows():
    rng = np.random.default_rng(2)
    Phi, t = rng.standard_normal((10, 3)), rng.standard_normal(10)
    weight = rng.integers(1, 5, 10)
    lam = np.array([0.1, 1.0, 3.0])
    for wrap in (lambda d: d, CentredDesign):
        a = wrap(WeightedDesign(DenseDesign(Phi), weight.astype(float)))
        b = wrap(DenseDesign(np.repeat(Phi, weight, axis=0)))
        p = gaussian_posterior(a, a.target(t), np.arange(3), lam, 0.4)
        q = gaussian_posterior(b, b.target(np.repeat(t, weight)), np.arange(3), lam, 0.4)
        assert p.log_evidence == pytest.approx(q.log_evidence, rel=1e-12)
        np.testing.assert_allclose(p.mean, q.mean, rtol=1e-10)
        assert p.offset_variance == pytest.approx(q.offset_variance)


def test_several_outputs_are_the_sum_of_single_ones():
    rng = np.random.default_rng(3)
    Phi, T = rng.standard_normal((30, 4)), rng.standard_normal((30, 2))
    lam, sigma2 = rng.uniform(0.1, 1, 4), np.array([0.5, 2.0])
    design = DenseDesign(Phi)
    both = gaussian_posterior(design, T, np.arange(4), lam, sigma2)
    singles = [gaussian_posterior(design, T[:, i], np.arange(4), lam, sigma2[i]) for i in (0, 1)]
    assert both.log_evidence == pytest.approx(sum(p.log_evidence for p in singles))
    mean, var = both.predict(Phi[:5])
    for i, p in enumerate(singles):
        np.testing.assert_allclose(mean[:, i], p.predict(Phi[:5])[0])
        np.testing.assert_allclose(var[:, i], p.predict(Phi[:5])[1])
        np.testing.assert_allclose(both.covariance[..., i], p.covariance)


def test_samples_have_the_predictive_moments():
    rng = np.random.default_rng(4)
    Phi, t = rng.standard_normal((15, 2)), rng.standard_normal(15)
    design = CentredDesign(DenseDesign(Phi))
    p = gaussian_posterior(design, design.target(t), np.arange(2), np.ones(2), 0.5)
    draws = p.sample(Phi[:3], 200_000, np.random.default_rng(0))
    np.testing.assert_allclose(draws.mean(axis=1), p.predict(Phi[:3])[0], atol=0.01)
    np.testing.assert_allclose(np.cov(draws), p.predict_covariance(Phi[:3]), atol=0.01)


def test_the_empty_model_is_pure_noise():
    t = np.array([1.0, -2.0, 0.5])
    none = np.empty(0, dtype=np.intp)
    p = gaussian_posterior(DenseDesign(np.ones((3, 2))), t, none, np.empty(0), 2.0)
    expected = -0.5 * (3 * np.log(2 * np.pi * 2.0) + t @ t / 2.0)
    assert p.log_evidence == pytest.approx(expected)
    mean, var = p.predict(np.empty((4, 0)))
    np.testing.assert_array_equal(mean, np.zeros(4))
    np.testing.assert_allclose(var, 2.0)


def test_rescaling_the_target_is_a_change_of_units():
    rng = np.random.default_rng(5)
    Phi, t = rng.standard_normal((12, 3)), rng.standard_normal(12)
    lam, c = np.ones(3), 8.0
    small = gaussian_posterior(DenseDesign(Phi), t, np.arange(3), lam, 0.5).rescaled(c, 12)
    large = gaussian_posterior(DenseDesign(Phi), c * t, np.arange(3), lam, 0.5 * c**2)
    assert small.log_evidence == pytest.approx(large.log_evidence)
    np.testing.assert_allclose(small.covariance, large.covariance)
