"""What a model says about each training row without that row, in closed form.

At fixed functions and hyperparameters the posterior without an observation is the posterior
divided by one Gaussian factor. With r = y - f and v the variance of f at its row (the intercept
included) and s the noise variance, an observation has the leverage h = v/s, and without it

    y - f = r / (1 - h),   var f = v / (1 - h),   a new observation there has var f + s.

A row of weight w stands for w equal observations, of which one is left out, as it would be if the
row were written w times; of a weight below 1 all of it, h = min(w, 1) v/s. What a model adds to the
variance (`added.ResidualProcess`) does not depend on the observations and is added after.
Derivation: docs/theory/posterior.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._array import is_torch, to_numpy
from ..designs._base import row_slices
from .gaussian import Posterior

_EPS = np.finfo(np.float64).eps


def leverages(posterior: Posterior, Phi: Any, weight: Any = 1.0) -> np.ndarray:
    """w v/s of rows of this weight: how much the fit at a row follows the observation there.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.posterior import gaussian_posterior, leverages
    >>> Phi = np.array([[1.0], [2.0]])
    >>> p = gaussian_posterior(DenseDesign(Phi), np.ones(2), np.array([0]), np.array([5.0]), 0.1)
    >>> leverages(p, Phi)
    array([0.1, 0.4])
    """
    h = to_numpy(posterior.function_variance(Phi)) / posterior.noise_variance
    return (weight * h.T).T


def left_out(residual: np.ndarray, v: np.ndarray, s: Any, weight: np.ndarray) -> Any:
    """Residual and variance of a new observation without the one observation of each row.

    `residual` and `v`, the variance of the function, are those of the fit; `s` is the noise.
    """
    # A leverage of 1 up to rounding: without the row nothing is known there.
    rest = np.maximum(1.0 - (np.minimum(weight, 1.0) * (v / s).T).T, _EPS)
    return residual / rest, s + v / rest


class LeftOut(NamedTuple):
    """Of each row: the residual and the variance of a new observation, the row left out."""

    residual: np.ndarray
    variance: np.ndarray
    y: np.ndarray
    weight: np.ndarray

    def told(self) -> dict[str, Any]:
        """What `loo_` is made from."""
        return {"residuals": self.residual, "std": np.sqrt(self.variance), "r2": self.r2}

    @property
    def r2(self) -> float:
        """1 less the squared residuals over those around the mean; averaged over outputs."""
        w = self.weight / np.sum(self.weight)
        around = self.y - w @ self.y
        size = np.maximum(np.max(np.abs(around), axis=0), np.finfo(np.float64).tiny)
        total = w @ np.square(around / size)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            r2 = 1.0 - (w @ np.square(self.residual / size)) / total
        return float(np.mean(np.where(total > 0.0, r2, 0.0)))


@dataclass(frozen=True)
class LeaveOneOut:
    """A job over rows (X, y, weight or None) that leaves out each of them in turn."""

    basis: Any
    posterior: Posterior
    added: Any = None

    def read(self, index: int, chunk: Any) -> LeftOut:
        """A chunk of rows, a block at a time."""
        X, y, weight = chunk
        y = np.asarray(y, dtype=np.float64)
        weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
        posterior, s = self.posterior, self.posterior.noise_variance
        residual, variance = np.empty_like(y), np.empty_like(y)
        step = min(4096, max(64, 2**18 // max(1, len(self.basis))))
        if is_torch(X):
            step = 2**24 // (1 + len(self.basis))
            if self.added is not None:
                X = to_numpy(X)
        for rows in row_slices(len(y), step):
            Phi = self.basis(X[rows])
            known = y[rows] - to_numpy(posterior.at(Phi))
            v = to_numpy(posterior.function_variance(Phi))
            residual[rows], variance[rows] = left_out(known, v, s, weight[rows])
            if self.added is not None:
                variance[rows] += self.added.variance(X[rows], Phi, posterior)
        return LeftOut(residual, variance, y, weight)

    def merge(self, left: LeftOut, right: LeftOut) -> LeftOut:
        """Neighbouring chunks."""
        return LeftOut(*(np.concatenate(pair) for pair in zip(left, right, strict=True)))

    def finish(self, total: LeftOut) -> LeftOut:
        """All rows."""
        return total
