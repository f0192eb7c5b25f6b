"""Effects that rows with the same value of an input share beyond a smooth function.

Subjects, batches and sites often have an effect of their own, and an input that is the same in all
of their rows: an age, a dose, a position. A kernel with a short length scale along that input
follows the effects at the values of the training rows, and interpolates them in between. New rows
of the same subjects are predicted well, those of others are not. Leave-one-out residuals do not
show this, because other rows of the same subject stay in the fit.

Here the Gaussian process of a fit is compared with two others that have an independent effect for
each value of one input: one in addition to the process, the other in place of its dependence on
that input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from ..rows import row_hashes

_FEWEST_VALUES = 5  # values of an input from which their effects have a variance
_ROWS_PER_VALUE = 3  # different rows that share a value, in the mean, at least
# Share of values of one row: from more of them leave-one-out residuals show errors at new values.
_MOST_SINGLE = 0.1
_MOST_ROWS = 256  # rows of a comparison, about as many of each value
_RATIOS = (0.5, 1.5, 4.5, 13.5)  # variances of the effects over that of the noise
_WORTH = 1.0  # gain of log evidence from which rows share an effect
_ANY_CONSTANT = 100.0  # variance of the constant over that of the process
_SAME = 1e-6  # difference over the range up to which two values are the same


@dataclass(frozen=True, eq=False)
class SharedEffect:
    """An effect that rows with the same value of an input share, unknown for other values.

    Parameters
    ----------
    column : int
        The input.
    values : array
        Its values in the training rows, in ascending order.
    ratio : float
        Standard deviation of the effect over that of the noise.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.kernels import StationaryKernel
    >>> from sparsebayes.posterior.shared import shared_effects
    >>> rng = np.random.default_rng(0)
    >>> age, dose = np.repeat(rng.uniform(20, 60, 20), 8), rng.uniform(0, 1, 160)
    >>> y = np.sin(6 * dose) + np.repeat(rng.normal(0, 0.5, 20), 8) + rng.normal(0, 0.1, 160)
    >>> X = np.column_stack([age / 20, dose])
    >>> kernel = StationaryKernel("rbf", np.array([5.0, 5.0]))
    >>> [effect] = shared_effects(kernel, X, y, np.ones(160), 0.01, columns=[0, 1])
    >>> effect.column, effect.is_new(np.array([[age[0] / 20, 0.3], [1.234, 0.3]]))
    (0, array([False,  True]))
    """

    column: int
    values: np.ndarray
    ratio: float

    def is_new(self, X: np.ndarray) -> np.ndarray:
        """Tell for each row whether no training row has its value."""
        x, last = X[:, self.column], len(self.values) - 1
        above = np.searchsorted(self.values, x)
        nearest = [np.abs(x - self.values[np.clip(above - i, 0, last)]) for i in (0, 1)]
        return np.minimum(*nearest) > _SAME * (self.values[-1] - self.values[0])


def shared_effects(
    kernel: Any,
    X: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    noise: float,
    columns: Iterable[int],
) -> tuple[SharedEffect, ...]:
    """Return the effects of the values of some inputs that the evidence is in favour of.

    Parameters
    ----------
    kernel : Kernel
        A stationary kernel of unit variance.
    X : array of shape (n, n_features)
        Training rows.
    y : array of shape (n,) or (n, n_outputs)
        Their targets.
    weight : array of shape (n,)
        Weights of the rows in the likelihood.
    noise : float
        Noise variance over the variance of the process.
    columns : iterable of int
        Inputs to consider. Those with few values, and those with few rows of a value, are skipped.
    """
    effects, n_distinct = [], len(np.unique(row_hashes(X)))
    y = y.reshape(len(y), -1) - np.average(y, axis=0, weights=weight)
    y = y / np.maximum(np.max(np.abs(y), axis=0), np.finfo(np.float64).tiny)
    for j in columns:
        values, group, n_rows = np.unique(X[:, j], return_inverse=True, return_counts=True)
        many = _FEWEST_VALUES <= len(values) <= n_distinct / _ROWS_PER_VALUE
        if not many or np.mean(n_rows == 1) > _MOST_SINGLE:
            continue
        rows = _balanced(group, n_rows)
        Z, t, w = X[rows], y[rows], weight[rows]
        same = np.equal.outer(group[rows], group[rows])
        evidence = []
        with np.errstate(all="ignore"):  # a gain that is no number is not large
            for _ in range(2):
                K = (np.asarray(kernel.bind(Z)(Z), dtype=np.float64) + _ANY_CONSTANT) / noise
                evidence += [[_log_evidence(K + r * same, t, w) for r in (0.0, *_RATIOS)]]
                Z[:, j] = values[0]  # the process that does not depend on this input
            best = np.max(evidence, axis=0)
            gains = best[1:] - best[0]
        if np.max(gains) > _WORTH:
            ratio = _RATIOS[int(np.argmax(gains))]
            effects.append(SharedEffect(int(j), values, float(np.sqrt(ratio))))
    return tuple(effects)


def _balanced(group: np.ndarray, n_rows: np.ndarray) -> np.ndarray:
    """Return some rows, at most the same number of each group; of many groups only some."""
    most = max(_ROWS_PER_VALUE, _MOST_ROWS // len(n_rows))
    order = np.argsort(group, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(n_rows) - n_rows, n_rows)
    step = -(-most * len(n_rows) // _MOST_ROWS)
    return np.flatnonzero((rank < most) & (group % step == 0))


def _log_evidence(K: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    """Return the log density of y, up to a constant, where its covariance is v (K + 1 / weight).

    The most probable v is that of each output.
    """
    root = np.sqrt(weight)
    try:
        L = np.linalg.cholesky(root[:, None] * K * root + np.eye(len(K)))
    except np.linalg.LinAlgError:  # K is not finite, or not positive definite
        return np.nan
    scaled = solve_triangular(L, root[:, None] * y, lower=True, check_finite=False)
    square = np.sum(np.square(scaled), axis=0)
    logs = 2.0 * y.shape[1] * np.sum(np.log(np.diag(L))) + len(y) * np.sum(np.log(square))
    return -0.5 * float(logs)
