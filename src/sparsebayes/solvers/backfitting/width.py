"""The width of a kernel by the gradient of backfitting's bound, with a prior on its logarithm.

With q(w) held, the bound depends on log gamma through the columns K alone,

    dL/dlog gamma = 1/sigma2 [r'K' mu - sum_im (K Cov)_im K'_im],   K' = dK/dlog gamma,

with Cov = diag(v) where the posterior factorises. The paper prints the first term only, with the
wrong sign; the second is as large. At the best q for each gamma this is the whole slope.

One precision per column lets a narrow kernel buy every column it can use, and the bound alone ends
at widths that predict badly. The criterion here is L + log p(set of columns) + log N(log gamma):
every set of k columns as likely as every other, so a column must earn its choice, and a normal
prior around the starting width, as the paper recommends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from ...designs import Design
from ...kernels import StationaryKernel

_SPREAD = 2.0  # standard deviation of the prior on log gamma: a factor e in the length scale
_FIRST = np.log(2.0)
_LAST = 0.1  # step in log gamma that ends the search


def bound_slope(
    design: Design,
    X: np.ndarray,
    root: np.ndarray,
    kernel: StationaryKernel,
    centres: np.ndarray,
    active: np.ndarray,
    mu: np.ndarray,
    covariance: np.ndarray,
    residual: np.ndarray,
    sigma2: float,
) -> float:
    """dL/dlog gamma with q held.

    `design` has the (weighted, centred) columns on the rows X with square root weights `root`,
    `centres` are the rows that the active columns stand on, `covariance` is k x k or its diagonal.
    """
    bound: Any = kernel.bind(centres)
    slope = 0.0
    for rows, block in design.blocks(active):
        _, D = bound.with_slope(X[rows])
        change = -kernel.gamma * D * cdist(X[rows], centres, "sqeuclidean")
        spread = block * covariance if covariance.ndim == 1 else block @ covariance
        # The residual and the columns are orthogonal to the intercept: K' need not be centred.
        weighted = (np.multiply.outer(residual[rows], mu) - spread) * root[rows][:, None]
        slope += float(np.sum(weighted * change))
    return slope / sigma2


def climb(evaluate: Callable[[float], tuple[float, float]], start: float) -> tuple[float, int]:
    """The gamma that the gradient leads to from `start`, and the number of evaluations.

    `evaluate(gamma)` returns the criterion without the prior, and its slope in log gamma. The step
    grows while the slope keeps its sign, is halved where it turns, and a step that lowers the
    criterion is taken back and halved.
    """
    x0 = x = np.log(start)

    def criterion(x: float) -> tuple[float, float]:
        value, slope = evaluate(float(np.exp(x)))
        deviation = (x - x0) / _SPREAD
        return value - 0.5 * deviation**2, slope - deviation / _SPREAD

    value, slope = criterion(x)
    step, used = _FIRST, 1
    while step > _LAST:
        trial = x + np.sign(slope) * step
        new, new_slope = criterion(trial)
        used += 1
        if new > value:
            step *= 1.5 if np.sign(new_slope) == np.sign(slope) else 0.5
            x, value, slope = trial, new, new_slope
        else:
            step *= 0.5
    return float(np.exp(x)), used
