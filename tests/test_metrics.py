import numpy as np
import pytest
from scipy.stats import norm

from sparsebayes.metrics import coverage, negative_log_density


def test_metrics_of_a_true_model_are_what_theory_says():
    rng = np.random.default_rng(0)
    mean, std = rng.standard_normal(200_000), np.full(200_000, 2.0)
    y = mean + std * rng.standard_normal(200_000)
    assert coverage(y, mean, std) == pytest.approx(0.95, abs=0.003)
    assert coverage(y, mean, std, level=0.5) == pytest.approx(0.5, abs=0.005)
    assert negative_log_density(y, mean, std) == pytest.approx(norm(scale=2.0).entropy(), abs=0.01)
