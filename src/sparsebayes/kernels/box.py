"""The box that training rows span, beyond which a model extrapolates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from .._array import is_torch, namespace, to_device_of, to_numpy


@dataclass(frozen=True, eq=False)
class Box:
    """The smallest and the largest value of each input.

    A Gaussian process of unit variance that is known everywhere in the box has the variance
    1 - k(x, b)^2 at a row x outside, where b is the nearest point of the box.

    Parameters
    ----------
    low, high : arrays of shape (n_features,)
        The box.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.kernels import Box, StationaryKernel
    >>> box, X = Box(np.zeros(1), np.ones(1)), np.array([[0.5], [1.5], [9.0]])
    >>> box.nearest(X).ravel()
    array([0.5, 1. , 1. ])
    >>> box.correlation(StationaryKernel("rbf", 1.0), X).round(2)
    array([1.  , 0.78, 0.  ])
    """

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, X: Any) -> Box:
        """Return the box of some rows; that of no rows is empty, its ends are infinite."""
        if X.shape[0] == 0:
            return cls(np.full(X.shape[1], np.inf), np.full(X.shape[1], -np.inf))
        if issparse(X):
            return cls(X.min(axis=0).toarray().ravel(), X.max(axis=0).toarray().ravel())
        if is_torch(X):
            return cls(to_numpy(X.amin(0)), to_numpy(X.amax(0)))
        return cls(np.min(X, axis=0), np.max(X, axis=0))

    def nearest(self, X: Any) -> Any:
        """Return the nearest point of the box for each row; X itself if all are inside."""
        if is_torch(X):
            return namespace(X).clip(X, to_device_of(X, self.low), to_device_of(X, self.high))
        if (X >= self.low).all() and (X <= self.high).all():
            return X
        return np.clip(X, self.low, self.high)

    def correlation(self, kernel: Any, X: Any) -> Any:
        """Return k(x, b) for each row x and its nearest point b: 1 inside the box."""
        if is_torch(X):
            return kernel.pairs(X.double(), self.nearest(X.double()))
        X, k = np.asarray(X, dtype=np.float64), np.ones(len(X))
        nearest = self.nearest(X)
        if nearest is not X:
            rows = np.flatnonzero(np.any(X != nearest, axis=1))
            k[rows] = kernel.pairs(X[rows], nearest[rows])
        return k

    def merge(self, other: Box) -> Box:
        """Return the box of the rows of both."""
        return Box(np.minimum(self.low, other.low), np.maximum(self.high, other.high))
