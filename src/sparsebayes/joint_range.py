"""Rows whose inputs are each in range, but combined as in no training row.

Inputs are often correlated: two sensors that agree, a dose that follows the weight. If new rows
break the correlation, a model extrapolates although no single input is outside its range. Sparse
models are hit most: of two inputs that say the same they keep one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ._array import Array, to_numpy
from ._warn import Found

# Share of the largest distance beyond it. With a fifth, 1,000 rows of the same distribution set off
# a warning after one in ten fits of 100 rows; with a half, after none in forty.
_SHARE = 0.5
MOST_INPUTS, MOST_ROWS = 500, 4096  # that are compared
_BLOCK = 4096  # new rows at a time
_ROUNDING = 1e-10  # of the largest eigenvalue: directions in which training rows do not vary
_CONSTANT = 1e-9  # relative spread of an input that does not vary
_ALONE = 1.0 - 1e-6  # leverage of a row that is the only one with some value
# Variance of the effect of one standard deviation of an input, over that of the noise, above which
# a model that has dropped the input may be wrong. In log odds of labels it is 1 or more.
_UNKNOWN = 0.25


@dataclass(frozen=True, eq=False)
class JointRange:
    """The largest distance of the inputs that matter from what the others say about them.

    The distance of a row is that of Mahalanobis, of the residuals of these inputs in a linear
    regression on the other inputs, over their standard deviations for a new row. If only the other
    inputs are combined in a new way, the regression extrapolates and its residuals are expected to
    be large, so that the distance is small: the model does not notice.

    An input of which the model makes no use may matter as well, if the other inputs almost
    determine it: two sensors whose effects cancel in the training rows are dropped both.

    Parameters
    ----------
    mean, scale : arrays of shape (n_features,)
        Mean and standard deviation of each input over the training rows.
    inverse : array of shape (n_features, n_features)
        Inverse P of Z'Z, where Z are the standardised training rows.
    columns : array of int
        The inputs S that matter, or whose effect the training rows do not tell.
    n_rows : int
        Number of training rows.
    limit : float
        Squared distance up to which a row is like the training rows: 1.5^2 times the largest of a
        training row that is left out.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.joint_range import JointRange
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, 100)
    >>> X = np.column_stack([x, x + 0.05 * rng.standard_normal(100)])
    >>> joint = JointRange.from_rows(X, np.array([0]))  # the model has dropped the second input
    >>> joint.is_unlike(np.array([[0.8, 0.8], [0.8, -0.8]]))
    array([False,  True])
    """

    mean: np.ndarray
    scale: np.ndarray
    inverse: np.ndarray
    columns: np.ndarray
    n_rows: int
    limit: float

    @classmethod
    def from_rows(cls, X: np.ndarray, columns: np.ndarray) -> JointRange | None:
        """Return the range of different training rows, for a model that depends on `columns`.

        None where it is not known: there are hardly more rows than inputs, or a row is the only one
        with some value.
        """
        X = np.asarray(X, dtype=np.float64)
        n, p = X.shape
        if not 1 < p <= min(n - 2, MOST_INPUTS):
            return None
        with np.errstate(all="ignore"):  # checked below
            mean, scale = np.mean(X, axis=0), np.std(X, axis=0)
            constant = scale <= _CONSTANT * np.max(np.abs(X), axis=0)
            Z = (X - mean) / np.where(constant, np.inf, scale)
        if not np.all(np.isfinite(scale)) or not np.all(np.isfinite(Z)):
            return None
        values, vectors = np.linalg.eigh(Z.T @ Z)
        values = np.maximum(values, _ROUNDING * max(float(values[-1]), 1.0))
        inverse = (vectors / values) @ vectors.T
        unknown = np.flatnonzero((np.diag(inverse) > _UNKNOWN) & ~constant)
        columns = np.union1d(columns, unknown).astype(np.intp)
        if len(columns) == 0:
            return None
        joint = cls(mean, np.where(constant, np.inf, scale), inverse, columns, n, 0.0)
        squared, leverage = joint._squares(Z), joint._leverage(Z)
        if np.max(leverage) > _ALONE:
            return None
        # Copies of an input differ by rounding only: a distance of one is near.
        largest = max(float(np.max(squared / (1.0 - leverage))), 1.0 / n)
        return replace(joint, limit=(1.0 + _SHARE) ** 2 * largest)

    def is_unlike(self, X: Array) -> np.ndarray:
        """Tell for each row whether its inputs are combined as in no training row."""
        unlike = np.zeros(len(X), dtype=bool)
        for first in range(0, len(X), _BLOCK):
            Z = self._standardised(X[first : first + _BLOCK])
            squared = self._squares(Z)
            far = np.flatnonzero(squared > self.limit)
            if len(far) == 0:
                continue
            others = np.maximum(self._leverage(Z[far]) - squared[far], 0.0)
            unlike[first + far] = squared[far] > self.limit * (1.0 + others)
        return unlike

    def describe(self, X: Array, rows: np.ndarray) -> Found:
        """Return these rows of X, with the input of the first that the others say least about.

        The values are that of this input, and what training rows with such other inputs have.
        """
        z = self._standardised(X[rows[:1]])[0]
        precision = np.diag(self.inverse)[self.columns]
        gap = self.inverse[self.columns] @ z / precision
        k = int(np.argmax(np.abs(gap) * np.sqrt(precision)))
        j = int(self.columns[k])
        both = tuple(float(self.mean[j] + self.scale[j] * v) for v in (z[j], z[j] - gap[k]))
        return Found(len(rows), int(rows[0]), j, both)

    @cached_property
    def _root(self) -> np.ndarray:
        """P[:, S] P[S, S]^-1/2: the squared distance of z is that of z' root."""
        values, vectors = np.linalg.eigh(self.inverse[np.ix_(self.columns, self.columns)])
        tiny = np.finfo(np.float64).tiny
        root: np.ndarray = self.inverse[:, self.columns] @ vectors
        return root / np.sqrt(np.maximum(values, tiny))

    def _standardised(self, X: Array) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            Z: np.ndarray = (np.asarray(to_numpy(X), dtype=np.float64) - self.mean) / self.scale
            return Z

    def _squares(self, Z: np.ndarray) -> np.ndarray:
        """Return the squared residuals of the inputs that matter, as leverage is measured."""
        residuals = Z @ self._root
        squares: np.ndarray = np.einsum("ij,ij->i", residuals, residuals)
        return squares

    def _leverage(self, Z: np.ndarray) -> np.ndarray:
        """Return the leverage of rows in a linear model of all inputs with a constant."""
        leverage: np.ndarray = 1.0 / self.n_rows + np.einsum("ij,ij->i", Z @ self.inverse, Z)
        return leverage
