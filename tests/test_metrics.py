import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from scipy.stats import t as student

from sparsebayes.metrics import (
    coverage,
    crps,
    crps_samples,
    interval_coverage,
    interval_score,
    negative_log_density,
    pinball_loss,
    sharpness,
)


def test_metrics_of_a_true_model_are_what_theory_says():
    rng = np.random.default_rng(0)
    mean, std = rng.standard_normal(200_000), np.full(200_000, 2.0)
    y = mean + std * rng.standard_normal(200_000)
    assert coverage(y, mean, std) == pytest.approx(0.95, abs=0.003)
    assert coverage(y, mean, std, level=0.5) == pytest.approx(0.5, abs=0.005)
    assert negative_log_density(y, mean, std) == pytest.approx(norm(scale=2.0).entropy(), abs=0.01)


@pytest.mark.parametrize("df", [None, 3.0, 10.0])
@pytest.mark.parametrize("y", [-2.0, 0.4])
def test_the_crps_is_its_integral(df, y):
    F = (norm if df is None else student(df)).cdf
    below = quad(lambda x: F(x / 1.5) ** 2, -np.inf, y)[0]
    above = quad(lambda x: (1.0 - F(x / 1.5)) ** 2, y, np.inf)[0]
    assert crps([y], [0.0], [1.5], df) == pytest.approx(below + above, rel=1e-6)


def test_the_crps_of_draws_is_that_of_their_distribution():
    draws = np.random.default_rng(0).standard_normal((3, 20_000))
    y = np.array([-1.0, 0.0, 2.0])
    assert crps_samples(y, draws) == pytest.approx(crps(y, np.zeros(3), np.ones(3)), rel=0.02)
    few = draws[:, :7]
    pairs = np.mean(np.abs(few[:, :, None] - few[:, None, :]), axis=(1, 2))
    expected = np.mean(np.mean(np.abs(few - y[:, None]), axis=1) - 0.5 * pairs)
    assert crps_samples(y, few) == pytest.approx(expected)


def test_twice_the_mean_pinball_loss_is_the_crps():
    alpha = (np.arange(2000) + 0.5) / 2000
    q = norm.ppf(alpha)[None]
    assert 2.0 * pinball_loss([0.7], q, alpha) == pytest.approx(crps([0.7], [0.0], [1.0]), rel=1e-3)


def test_true_intervals_have_the_best_score():
    y = np.random.default_rng(0).standard_normal(100_000)
    scores = []
    for half in (1.5, norm.ppf(0.975), 2.5):
        ends = np.tile([-half, half], (len(y), 1))
        scores.append(interval_score(y, ends, 0.95))
        assert sharpness(ends) == pytest.approx(2 * half)
        assert interval_coverage(y, ends) == pytest.approx(2 * norm.cdf(half) - 1, abs=0.005)
    assert scores[1] == min(scores)


def test_a_t_without_a_mean_has_no_crps():
    with pytest.raises(ValueError, match="degree of freedom"):
        crps([0.0], [0.0], [1.0], df=1.0)
