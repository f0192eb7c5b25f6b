"""Inputs in two coordinates: as they are, and as normal scores.

A stationary kernel of a skewed input uses up its length scale on a few far rows. The normal score
of an input (its rank among the training rows as a quantile of the standard normal distribution) has
no far rows, but it bends functions that are linear in the input itself. A `WarpedKernel` sees both,
with a length scale for each, and the evidence decides how much either matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtr, ndtri

from .._array import Array, asarray_like, is_torch, namespace
from .formulas import BoundKernel, StationaryKernel

_FEWEST_VALUES = 10  # different values of an input that is ranked
_LARGEST_SCORE = 3.2  # of the first of 1,500 rows: farther out the scores are those of single rows
# With a knot at every row the scores would follow the chance of the distances between rows.
_VALUES_PER_KNOT, _MOST_KNOTS = 5, 200
# Squared correlation of an input with its normal score, above which the score has nothing to add:
# that of a uniform input is .955 (.93 of few rows, by chance), of an exponential one .82, of a
# lognormal one .58.
_LINEAR = 0.93
# A length scale more costs a nat or so. With fewer rows for each input, only inputs whose tails are
# heavier than normal have a score: the others have no far rows. On ozone (29 rows for each input)
# that lowers RMSE by 2 %; California (1,250) gains .9 % by scores of its coordinates.
_ROWS_PER_INPUT = 100


@dataclass(frozen=True, eq=False)
class Warp:
    """Monotone, piecewise linear maps of some inputs to their normal scores.

    Beyond the range of the training rows a score is constant.

    Attributes
    ----------
    inputs : array of int
        The inputs that have a score, in ascending order.
    knots, scores : tuples of arrays
        Values of each of them, ascending, and their scores.
    alone : bool
        Whether these inputs are seen as scores alone: their own columns are zero.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.kernels.warp import Warp
    >>> X = np.exp(np.random.default_rng(0).standard_normal((200, 2)))
    >>> warp = Warp.from_rows(X)
    >>> Z = warp(X)
    >>> Z.shape, Z[:, 2:].std(axis=0).round(1)
    ((200, 4), array([1., 1.]))
    >>> bool(warp(np.array([[1e9, 1.0]]))[0, 2] == Z[:, 2].max())
    True
    """

    inputs: np.ndarray
    knots: tuple[np.ndarray, ...]
    scores: tuple[np.ndarray, ...]
    alone: bool = False

    @classmethod
    def to_ranks(cls, X: np.ndarray, weight: np.ndarray | None = None) -> Warp | None:
        """Return the map to ranks alone, from 0 to 1, of all inputs of ten values."""
        warp = cls.from_rows(X, weight, every=True)
        if warp is None:
            return None
        return cls(warp.inputs, warp.knots, tuple(ndtr(score) for score in warp.scores), True)

    @classmethod
    def from_rows(
        cls, X: np.ndarray, weight: np.ndarray | None = None, every: bool = False
    ) -> Warp | None:
        """Return the map that is learnt from rows X; None where no input needs a score.

        An input has a score if it has at least ten different values and is farther from a normal
        distribution than a uniform one is; with `every`, all inputs of ten values have one. With
        fewer than 100 rows for each input its tails must also be heavier than normal.
        """
        counts = np.ones(len(X)) if weight is None else weight
        few_rows = len(X) < _ROWS_PER_INPUT * X.shape[1]
        inputs, knots, scores = [], [], []
        for j in range(X.shape[1]):
            values, which = np.unique(X[:, j], return_inverse=True)
            if len(values) < _FEWEST_VALUES:
                continue
            total = np.bincount(which.ravel(), weights=counts)
            score = _normal_scores(total)
            if not every and (
                _is_linear(values, score, total) or (few_rows and _has_light_tails(values, total))
            ):
                continue
            n_knots = min(_MOST_KNOTS, max(_FEWEST_VALUES, len(values) // _VALUES_PER_KNOT))
            even = np.linspace(score[0], score[-1], n_knots)
            kept = np.unique(np.searchsorted(score, even))
            values, score = values[kept], score[kept]
            inputs.append(j)
            knots.append(values)
            scores.append(score)
        return cls(np.array(inputs), tuple(knots), tuple(scores)) if inputs else None

    def __call__(self, X: Array) -> Array:
        """Return the rows with their scores as further columns."""
        d = X.shape[1]
        if is_torch(X):
            return self._on_device(X)
        Z = np.empty((X.shape[0], d + len(self.inputs)), dtype=X.dtype)
        Z[:, :d] = X
        for k, (j, knots, scores) in enumerate(
            zip(self.inputs, self.knots, self.scores, strict=True)
        ):
            Z[:, d + k] = np.interp(X[:, j], knots, scores)
        if self.alone:
            Z[:, self.inputs] = 0.0
        return Z

    def _on_device(self, X: Array) -> Array:
        xp, columns = namespace(X), [X]
        for j, *both in zip(self.inputs, self.knots, self.scores, strict=True):
            knots, scores = (asarray_like(X, values) for values in both)
            x = xp.clip(X[:, j], knots[0], knots[-1]).contiguous()
            k = xp.clip(xp.searchsorted(knots, x), 1, len(knots) - 1)
            share = (x - knots[k - 1]) / (knots[k] - knots[k - 1])
            columns.append((scores[k - 1] + share * (scores[k] - scores[k - 1]))[:, None])
        Z = xp.concatenate(columns, axis=1)
        if self.alone:
            Z[:, self.inputs] = 0.0
        return Z


@dataclass(frozen=True, eq=False)
class WarpedKernel:
    """A stationary kernel of rows in both coordinates.

    Parameters
    ----------
    kernel : StationaryKernel
        The kernel of mapped rows; a gamma for each input comes first, then one for each score.
    warp : Warp
        The map.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.kernels import StationaryKernel, Warp, WarpedKernel
    >>> X = np.exp(np.arange(12.0))[:, None]
    >>> kernel = WarpedKernel(StationaryKernel("rbf", np.array([0.0, 1.0])), Warp.from_rows(X))
    >>> kernel.bind(X[5:6])(X[[5, 6, 11]])[:, 0].round(2)
    array([1.  , 0.99, 0.03])
    """

    kernel: StationaryKernel
    warp: Warp
    stationary: ClassVar[bool] = True

    def bind(self, Z: Array) -> BoundKernel:
        """Return a function of rows X that returns k(X, Z)."""
        bound, warp = self.kernel.bind(self.warp(Z)), self.warp

        def values(X: Array, out: Array | None = None) -> Array:
            return bound(warp(X), out)

        return values

    def diagonal(self, X: Array) -> np.ndarray:
        """Return k(x, x) = 1."""
        return self.kernel.diagonal(X)

    def pairs(self, X: Array, Z: Array) -> Array:
        """Return k(x, z) of each row of X and the corresponding row of Z."""
        return self.kernel.pairs(self.warp(X), self.warp(Z))


def _normal_scores(counts: np.ndarray) -> np.ndarray:
    """Return the normal quantiles of the middles of blocks of equal values."""
    upto = np.cumsum(counts)
    return np.clip(ndtri((upto - 0.5 * counts) / upto[-1]), -_LARGEST_SCORE, _LARGEST_SCORE)


def _is_linear(values: np.ndarray, score: np.ndarray, counts: np.ndarray) -> bool:
    """Return whether scores are nearly a linear function of the values."""
    size = np.max(np.abs(values - values[0]))
    x = (values - values[0]) / size
    x = x - np.average(x, weights=counts)
    s = score - np.average(score, weights=counts)
    squares = (counts @ (x * x)) * (counts @ (s * s))
    return bool((counts @ (x * s)) ** 2 > _LINEAR * squares)


def _has_light_tails(values: np.ndarray, counts: np.ndarray) -> bool:
    """Return whether the kurtosis of the values is below that of the normal distribution."""
    x = (values - values[0]) / np.max(np.abs(values - values[0]))
    square = (x - np.average(x, weights=counts)) ** 2
    return bool(np.sum(counts) * (counts @ square**2) < 3.0 * (counts @ square) ** 2)
