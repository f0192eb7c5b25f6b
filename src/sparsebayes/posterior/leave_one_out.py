"""Leave-one-out predictions in closed form.

At fixed functions and hyperparameters the posterior without an observation is the posterior
divided by one Gaussian factor. With r = y - f and v the variance of f at its row (the intercept
included) and s the noise variance, an observation has the leverage h = v/s, and without it

    y - f = r / (1 - h),   var f = v / (1 - h),   a new observation there has var f + s.

A row of weight w stands for w equal observations, of which one is left out, as it would be if the
row were written w times; of a weight below 1 all of it, h = min(w, 1) v/s. An observation whose
noise has the variance s/p, p its precision, has h = p v/s. What a model adds to the variance
(`added.ResidualProcess`) does not depend on the observations and is added after.
Derivation: docs/theory/posterior.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._array import is_torch, to_numpy
from ..rows import row_slices
from ..rows._base import Report
from .gaussian import Posterior

_EPS = np.finfo(np.float64).eps
_MOST_RESIDUALS = 300  # that a fitted model keeps
_LEAST_REST = 0.05  # of 1 - h, for squares of the noise


class LooPredictions(NamedTuple):
    """Predictions of the fit at each training row, and leave-one-out predictions derived from them.

    Parameters
    ----------
    gap : array of shape (n_rows,) or (n_rows, n_outputs)
        The target less the prediction of the fit.
    spread : array of the same shape
        Variance of the function.
    y : array of the same shape
        The target.
    weight : array of shape (n_rows,)
        Number of observations that the row stands for.
    fitted_noise : float or array of shape (n_outputs,)
        s, the variance of the noise in the fit.
    added : float or array
        Further variance, in addition to function and noise.
    precision : float or array of shape (n_rows,)
        p, the precision of a row in units of 1/s.
    noise : float, array or None
        Variance of the noise, where it is known better than s/p.
    """

    gap: np.ndarray
    spread: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    fitted_noise: float | np.ndarray
    added: float | np.ndarray = 0.0
    precision: float | np.ndarray = 1.0
    noise: float | np.ndarray | None = None

    @property
    def rest(self) -> np.ndarray:
        """1 - h."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            h = np.where(self.spread > 0, self.spread / self.fitted_noise, 0.0)  # may be 0/0
            h = (self.precision * np.minimum(self.weight, 1.0) * h.T).T
        # A leverage of 1 up to rounding: without the row nothing is known there.
        return np.maximum(1.0 - h, _EPS)

    @property
    def has_rest(self) -> np.ndarray:
        """Rows whose 1 - h is positive beyond rounding: other rows predict them."""
        return self.rest > _EPS

    @property
    def residual(self) -> np.ndarray:
        """y less the prediction without the row."""
        return self.gap / self.rest

    @property
    def noise_variance(self) -> float | np.ndarray:
        """The noise variance of an observation at each row; infinite beyond float64."""
        if self.noise is not None:
            return self.noise
        precision = np.asarray(self.precision)
        if np.ndim(self.fitted_noise):
            precision = precision[..., None]
        with np.errstate(over="ignore"):
            return self.fitted_noise / precision

    @property
    def variance(self) -> np.ndarray:
        """Variance of a new observation at each row, left out; infinite beyond float64."""
        with np.errstate(over="ignore"):
            return self.spread / self.rest + self.noise_variance + self.added

    @property
    def noise_squares(self) -> np.ndarray:
        """Squares whose expectation is the variance of the noise at each row.

        The noise has a share of the squared residual, which is uninformative if h is near 1.
        """
        rest, noise = self.rest, self.noise_variance
        with np.errstate(over="ignore", divide="ignore"):
            share = 1.0 / (1.0 + self.spread / rest / noise)  # one where the noise is infinite
        return self.residual**2 * share * np.minimum(rest / _LEAST_REST, 1.0)

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
    """A job over rows (X, y, weight or None) that leaves out each of them in turn.

    Parameters
    ----------
    basis : Basis
        The functions of a model.
    posterior : Posterior
        Of their weights.
    added : AddedVariance, optional
        What the model adds to the variance.
    report : callable, optional
        Called with the number of rows read.
    """

    basis: Any
    posterior: Posterior
    added: Any = None
    report: Report | None = None

    def read(self, index: int, chunk: Any) -> LooPredictions:
        """A chunk of rows, a block at a time."""
        X, y, weight = chunk
        y = np.asarray(y, dtype=np.float64)
        weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
        posterior = self.posterior
        gap, spread = np.empty_like(y), np.empty_like(y)
        added = np.zeros_like(y)
        step = min(4096, max(64, 2**18 // max(1, len(self.basis))))
        if is_torch(X):
            step = 2**24 // (1 + len(self.basis))
            if self.added is not None:
                X = to_numpy(X)
        for rows in row_slices(len(y), step):
            Phi = self.basis(X[rows])
            gap[rows] = y[rows] - to_numpy(posterior.at(Phi))
            spread[rows] = to_numpy(posterior.function_variance(Phi))
            if self.added is not None:
                added[rows] = self.added.variance(X[rows], Phi, posterior)
            if self.report is not None:
                self.report(rows.stop)
        if self.added is None:
            return LooPredictions(gap, spread, y, weight, posterior.noise_variance)
        return LooPredictions(gap, spread, y, weight, posterior.noise_variance, added)

    def merge(self, left: LooPredictions, right: LooPredictions) -> LooPredictions:
        """Neighbouring chunks."""
        names = ("gap", "spread", "y", "weight")
        both = {n: np.concatenate([getattr(left, n), getattr(right, n)]) for n in names}
        if self.added is not None:
            both["added"] = np.concatenate([left.added, right.added])
        return left._replace(**both)

    def finish(self, total: LooPredictions) -> LooPredictions:
        """All rows."""
        return total


@dataclass(frozen=True)
class Calibration:
    """Sizes of standardised leave-one-out residuals, for intervals that count on nothing else.

    Of n residuals the ceil((n + 1) coverage)-th smallest size, times the std, reaches as far as an
    interval of that coverage must: conformal prediction, the residuals those of leave-one-out. A
    few hundred quantiles of them are kept.
    """

    n: float
    sizes: np.ndarray  # sorted
    shares: np.ndarray  # of the n rows, up to each of them

    @classmethod
    def from_residuals(cls, u: np.ndarray, count: np.ndarray) -> Calibration:
        """Return the calibration of weighted standardised residuals."""
        order = np.argsort(np.abs(u))
        sizes, shares = np.abs(u)[order], np.cumsum(count[order])
        n = float(shares[-1])
        if len(sizes) > _MOST_RESIDUALS:
            # Close together at the far end, where intervals end.
            ranks = 1.0 - np.linspace(1.0, 0.0, _MOST_RESIDUALS) ** 2
            selected = np.unique(np.round((len(sizes) - 1) * ranks).astype(np.intp))
            sizes, shares = sizes[selected], shares[selected]
        return cls(n, sizes, shares / n)

    def factor(self, coverage: float) -> float:
        """Return the factor of the standard deviation; infinite if there are too few rows."""
        share = np.ceil((self.n + 1.0) * coverage) / self.n
        i = int(np.searchsorted(self.shares, share * (1.0 - 1e-12)))
        return float(self.sizes[i]) if i < len(self.sizes) else np.inf
