"""Mean and scatter of the inputs, and the ``gamma="scale"`` that follows from them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._array import to_numpy
from ._base import Chunk, Job

_LARGEST = 2.0**-10 * np.finfo(np.float64).max  # of gamma: kernels use small multiples of it


class Spread(NamedTuple):
    """Weighted mean and scatter of each input, in units of `size`.

    `size` is a power of two near the largest input, so that squares do not overflow.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.rows import Spread
    >>> X = np.array([[0.0, 1.0], [2.0, 5.0]])
    >>> Spread.from_rows(X).gamma, float(1 / (2 * X.var()))
    (0.14285714285714285, 0.14285714285714285)
    """

    size: float
    total: float
    mean: np.ndarray
    scatter: np.ndarray

    @classmethod
    def from_rows(cls, X: np.ndarray, weight: np.ndarray | None = None) -> Spread:
        """Return the spread of these rows; rows of weight zero do not enter."""
        if weight is not None and not np.all(weight > 0):
            X, weight = X[weight > 0], weight[weight > 0]
        largest = float(np.max(np.abs(X), initial=0.0))
        size = float(np.ldexp(1.0, int(np.frexp(largest)[1]))) if largest > 0 else 1.0
        if len(X) == 0:
            return cls(size, 0.0, np.zeros(X.shape[1]), np.zeros(X.shape[1]))
        weight = np.ones(len(X)) if weight is None else weight.astype(np.float64, copy=False)
        total = float(np.sum(weight))
        scaled = X / size
        first = scaled[0].copy()
        scaled -= first  # a constant has no scatter at all, not that of its rounded mean
        mean = weight @ scaled / total
        return cls(size, total, first + mean, weight @ (scaled - mean) ** 2)

    def plus(self, other: Spread) -> Spread:
        """Return the spread of two sets of rows: that within each set and that between them."""
        if self.total == 0.0 or other.total == 0.0:
            return other if self.total == 0.0 else self
        size = max(self.size, other.size)
        a, b = self.size / size, other.size / size
        total = self.total + other.total
        between = other.mean * b - self.mean * a
        mean = self.mean * a + between * (other.total / total)
        scatter = self.scatter * a**2 + other.scatter * b**2
        scatter = scatter + between**2 * (self.total * other.total / total)
        return Spread(size, total, mean, scatter)

    @property
    def gamma(self) -> float:
        """Value of 1 / (n_features * X.var()), as in SVR; 1 if X is constant."""
        if self.total == 0.0:
            return 1.0
        around = (self.mean - np.mean(self.mean)) ** 2
        variance = float(np.mean(self.scatter / self.total + around))
        if variance == 0.0:
            return 1.0
        return gamma_in_range(
            float((1.0 / self.size) / (len(self.mean) * variance)) / self.size,
            self.size * variance**0.5,
        )


def gamma_in_range(gamma: float, variation: float) -> float:
    """Return `gamma`, or raise a ValueError if float64 cannot represent it."""
    if not 0.0 < gamma < _LARGEST:
        raise ValueError(
            f"The variation of X ({variation:.3g}) overflows or underflows float64 when "
            "squared. Rescale X, for example with StandardScaler."
        )
    return float(gamma)


class SpreadJob(Job[Spread, Spread]):
    """Job that computes the `Spread` of all rows, from chunks (X, ..., sample_weight or None)."""

    def read(self, index: int, chunk: Chunk) -> Spread:
        """Return the spread of one chunk."""
        return Spread.from_rows(to_numpy(chunk[0]), chunk[-1])

    def merge(self, first: Spread, second: Spread) -> Spread:
        """Return the spread of two parts."""
        return first.plus(second)
