"""Scores of predictive distributions and intervals, and scorers for scikit-learn.

Densities, the continuous ranked probability score (CRPS), the interval score and the pinball loss
are proper scores: the true distribution has the best expected score. Coverage measures calibration,
and sharpness the width of intervals. `SCORERS` has them for ``cross_validate(scoring=...)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from .posterior.predictive import standard_crps

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

__all__ = [
    "SCORERS",
    "coverage",
    "crps",
    "crps_samples",
    "interval_coverage",
    "interval_score",
    "negative_log_density",
    "pinball_loss",
    "sharpness",
]


def negative_log_density(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    """Return the mean negative log density of `y` under independent N(mean, std^2).

    Parameters
    ----------
    y, mean, std : arrays of shape (n,)
        Observed targets; mean and standard deviation of their predictive distributions.

    Examples
    --------
    >>> from sparsebayes.metrics import negative_log_density
    >>> round(negative_log_density([0.0], [0.0], [1.0]), 4)
    0.9189
    """
    return float(-np.mean(norm.logpdf(np.asarray(y), np.asarray(mean), np.asarray(std))))


def coverage(y: ArrayLike, mean: ArrayLike, std: ArrayLike, level: float = 0.95) -> float:
    """Return the share of `y` inside the central intervals of N(mean, std^2).

    Parameters
    ----------
    y, mean, std : arrays of shape (n,)
        Observed targets; mean and standard deviation of their predictive distributions.
    level : float, default=0.95
        Nominal coverage of the intervals.

    Examples
    --------
    >>> from sparsebayes.metrics import coverage
    >>> coverage([0.0, 3.0], [0.0, 0.0], [1.0, 1.0])
    0.5
    """
    half = norm.ppf(0.5 + 0.5 * level) * np.asarray(std)
    return float(np.mean(np.abs(np.asarray(y) - np.asarray(mean)) <= half))


def crps(y: ArrayLike, mean: ArrayLike, scale: ArrayLike, df: float | None = None) -> float:
    """Return the mean continuous ranked probability score of normal or Student's t distributions.

    The score (CRPS) is the integral of (F(x) - H(x - y))^2 over x, where F is the predictive CDF
    and H the step function, which is 0 below 0 and 1 above. It has the units of y, and is the
    absolute error for a point prediction. Lower is better.

    Parameters
    ----------
    y, mean, scale : arrays of shape (n,)
        Observed targets; location and scale of their predictive distributions.
    df : float, optional
        Degrees of freedom of Student's t, above 1. The default is the normal distribution.

    Examples
    --------
    >>> from sparsebayes.metrics import crps
    >>> round(crps([0.0], [0.0], [1.0]), 4), round(crps([0.0], [0.0], [1.0], df=5), 4)
    (0.2337, 0.257)
    """
    scale = np.asarray(scale, dtype=np.float64)
    z = (np.asarray(y, dtype=np.float64) - np.asarray(mean)) / scale
    return float(np.mean(scale * standard_crps(z, df)))


def crps_samples(y: ArrayLike, samples: ArrayLike) -> float:
    """Return the mean continuous ranked probability score of the empirical distributions of draws.

    Parameters
    ----------
    y : array of shape (n,)
        Observed targets.
    samples : array of shape (n, n_draws)
        Draws for each target, as returned by `sample_y`.

    Examples
    --------
    >>> from sparsebayes.metrics import crps_samples
    >>> crps_samples([1.0], [[0.0, 2.0]])
    0.5
    """
    y, draws = np.asarray(y, dtype=np.float64), np.sort(np.asarray(samples, dtype=np.float64))
    m = draws.shape[1]
    near = np.mean(np.abs(draws - y[:, None]), axis=1)
    rank = (2.0 * np.arange(m) + 1.0 - m) / m**2  # E|X - X'|/2 by order statistics
    return float(np.mean(near - draws @ rank))


def interval_coverage(y: ArrayLike, interval: ArrayLike) -> float:
    """Return the share of `y` inside the intervals.

    Parameters
    ----------
    y : array of shape (n,)
        Observed targets.
    interval : array of shape (n, 2)
        Lower and upper ends, as returned by `predict_interval`.

    Examples
    --------
    >>> from sparsebayes.metrics import interval_coverage
    >>> interval_coverage([0.0, 3.0], [[-1.0, 1.0], [-1.0, 1.0]])
    0.5
    """
    low, high = np.asarray(interval).T
    y = np.asarray(y)
    return float(np.mean((low <= y) & (y <= high)))


def sharpness(interval: ArrayLike) -> float:
    """Return the mean width of intervals; narrower is better if they are calibrated.

    Parameters
    ----------
    interval : array of shape (n, 2)
        Lower and upper ends.

    Examples
    --------
    >>> from sparsebayes.metrics import sharpness
    >>> sharpness([[-1.0, 1.0], [0.0, 4.0]])
    3.0
    """
    low, high = np.asarray(interval).T
    return float(np.mean(high - low))


def interval_score(y: ArrayLike, interval: ArrayLike, coverage: float = 0.95) -> float:
    """Return the mean interval score: the width plus a penalty for each `y` outside.

    The penalty is 2 / (1 - coverage) times the distance between `y` and the interval.

    Parameters
    ----------
    y : array of shape (n,)
        Observed targets.
    interval : array of shape (n, 2)
        Lower and upper ends.
    coverage : float, default=0.95
        Nominal coverage of the intervals.

    Examples
    --------
    >>> from sparsebayes.metrics import interval_score
    >>> interval_score([0.0, 2.0], [[-1.0, 1.0], [-1.0, 1.0]], coverage=0.5)
    4.0
    """
    low, high = np.asarray(interval).T
    y = np.asarray(y)
    missed = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return float(np.mean(high - low + 2.0 / (1.0 - coverage) * missed))


def pinball_loss(y: ArrayLike, quantiles: ArrayLike, alpha: ArrayLike) -> float:
    """Return the mean of max(alpha (y - q), (alpha - 1)(y - q)) over rows and quantiles.

    Parameters
    ----------
    y : array of shape (n,)
        Observed targets.
    quantiles : array of shape (n, len(alpha))
        Quantiles of each row, as returned by `predict_quantiles`.
    alpha : array of float
        Probabilities of the quantiles.

    Examples
    --------
    >>> from sparsebayes.metrics import pinball_loss
    >>> pinball_loss([1.0], [[0.0, 2.0]], [0.25, 0.75])
    0.25
    """
    alpha = np.atleast_1d(alpha)
    gap = np.asarray(y, dtype=np.float64)[:, None] - np.asarray(quantiles).reshape(-1, len(alpha))
    return float(np.mean(np.maximum(alpha * gap, (alpha - 1.0) * gap)))


_DECILES = np.arange(1, 10) / 10.0


@dataclass(frozen=True)
class Scorer:
    """Scorer for scikit-learn, called with (estimator, X, y); larger is better.

    The estimator is a regressor of this package, or a Pipeline that ends in one.
    """

    score: str
    level: float = 0.95

    def __call__(self, estimator: BaseEstimator, X: ArrayLike, y: ArrayLike) -> float:
        """The score of the predictions for X."""
        if hasattr(estimator, "steps"):  # a Pipeline
            estimator, X = estimator[-1], estimator[:-1].transform(X)
        if self.score == "neg_pinball_loss":
            return -pinball_loss(y, estimator.predict_quantiles(X, _DECILES), _DECILES)
        if self.score in ("neg_crps", "log_density"):
            predictive = estimator._predictive(X)
            if self.score == "neg_crps":
                return -float(np.mean(predictive.crps(y)))
            return float(np.mean(predictive.log_density(y)))
        interval = estimator.predict_interval(X, self.level)
        if self.score == "neg_interval_score":
            return -interval_score(y, interval, self.level)
        return interval_coverage(y, interval) if self.score == "coverage" else -sharpness(interval)


SCORERS = {
    name: Scorer(name)
    for name in (
        "neg_crps",
        "log_density",
        "neg_interval_score",
        "neg_pinball_loss",
        "coverage",
        "neg_width",
    )
}
