"""How good a prediction with an error bar is."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import norm


def negative_log_density(y: Any, mean: Any, std: Any) -> float:
    """Mean negative log density of `y` under independent N(mean, std^2).

    Examples
    --------
    >>> from sparsebayes.metrics import negative_log_density
    >>> round(negative_log_density([0.0], [0.0], [1.0]), 4)
    0.9189
    """
    return float(-np.mean(norm.logpdf(np.asarray(y), np.asarray(mean), np.asarray(std))))


def coverage(y: Any, mean: Any, std: Any, level: float = 0.95) -> float:
    """Share of `y` inside the central intervals of this level.

    Examples
    --------
    >>> from sparsebayes.metrics import coverage
    >>> coverage([0.0, 3.0], [0.0, 0.0], [1.0, 1.0])
    0.5
    """
    half = norm.ppf(0.5 + 0.5 * level) * np.asarray(std)
    return float(np.mean(np.abs(np.asarray(y) - np.asarray(mean)) <= half))
