"""What a model adds to the variance that its posterior knows of.

A sparse model has few functions, and its posterior says nothing about what they cannot follow. Two
models know more and add it at each new row: `Healing`, one more function centred on the row itself
(relevance vector machines), and `ResidualProcess`, the part of a Gaussian process that the chosen
functions leave out (forward selection with ``refit="gp"``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from ..designs import KernelBasis
from ..kernels import Kernel
from .gaussian import Posterior

_BLOCK_ELEMENTS = 2**18


class AddedVariance(Protocol):
    """Variance of new observations beyond that of the posterior.

    `joint` says whether several rows have a joint distribution.
    """

    joint: ClassVar[bool]

    def variance(self, X: np.ndarray, Phi: np.ndarray, posterior: Posterior) -> np.ndarray:
        """Return the added variance at each row of X, whose functions are Phi."""

    def covariance(self, X: np.ndarray) -> np.ndarray:
        """Return the covariance added between rows; raise a ValueError if there is none."""

    def scaled(self, factor: float | np.ndarray) -> AddedVariance:
        """Return the addition to a posterior whose variances were multiplied by `factor`."""


@dataclass(frozen=True)
class Healing:
    """A variance that grows away from the data (Rasmussen & Quinonero-Candela 2005).

    Without it the variance falls to that of the noise where nothing is known. At each new row x the
    model gets one more function, centred on x, of weight u ~ N(0, 1/a), and is conditioned
    on the training data. With c its values on the training rows, s = c'Pc and ell = a sigma2, this
    adds sigma2 e^2/(ell + s), where e = c(x) - phi(x)' W Phi'c is what the active functions do not
    say about c(x) already. It vanishes where the data determine u, and far from all rows it
    is k(x, x)/a. 1/a is the variance of the signal, var(t) - sigma2: the prior variances of the
    active weights are no guide, because weights of neighbouring functions cancel.

    The paper's mean moves too; here it stays, so that a prediction is the same with and without its
    standard deviation. There is no joint distribution of several rows. A row costs its kernel
    values on all n training rows and n k products. Derivation: docs/theory/rvm.md.

    Parameters
    ----------
    kernel : Kernel
        Of the functions.
    rows : array of shape (n, n_features)
        Training rows.
    weight : array of shape (n,)
        Their weights.
    fitted : array of shape (n, k)
        Phi root with root root' = W, each row times the root of its weight: c'P c is
        ``sum(weight c^2) - |fitted' c|^2`` less the part along the intercept.
    centred : bool
        Whether the functions are centred (a model with an intercept).
    prior_variance : float or array of shape (n_outputs,)
        1/a.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVMRegressor
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.05 * np.random.default_rng(0).standard_normal(100)
    >>> far = np.array([[1000.0]])
    >>> plain = RVMRegressor("rbf", gamma=0.1, fit_intercept=False).fit(X, y)
    >>> healed = RVMRegressor("rbf", gamma=0.1, fit_intercept=False, heal=True).fit(X, y)
    >>> std = [model.predict(far, return_std=True)[1][0] for model in (plain, healed)]
    >>> bool(std[0] < 0.1), bool(std[1] > 0.3)
    (True, True)
    """

    kernel: Kernel
    rows: np.ndarray
    weight: np.ndarray
    fitted: np.ndarray
    centred: bool
    prior_variance: float | np.ndarray
    joint: ClassVar[bool] = False

    def variance(self, X: np.ndarray, Phi: np.ndarray, posterior: Posterior) -> np.ndarray:
        """sigma2 e^2/(ell + s) at each row, from its active functions Phi."""
        squares, s = np.empty(len(X)), np.empty(len(X))
        bound = self.kernel.bind(self.rows)
        along = posterior.centred(Phi) @ posterior.form.root
        own = self.kernel.diagonal(X)
        total = float(np.sum(self.weight))
        step = max(1, _BLOCK_ELEMENTS // max(1, len(self.rows)))
        for first in range(0, len(X), step):
            block = slice(first, first + step)
            C = np.asarray(bound(X[block]), dtype=np.float64)  # rows: the new functions
            mean = C @ self.weight / total if self.centred else np.zeros(len(C))
            norm = (C * C) @ self.weight - total * mean**2
            T = C @ self.fitted
            squares[block] = (own[block] - mean - np.einsum("ij,ij->i", along[block], T)) ** 2
            s[block] = np.maximum(norm - np.einsum("ij,ij->i", T, T), 0.0)
        sigma2 = posterior.form.scale
        with np.errstate(divide="ignore"):
            ell = np.asarray(sigma2) / np.asarray(self.prior_variance)
        return squares.reshape(-1, *[1] * np.ndim(ell)) * sigma2 / np.add.outer(s, ell)

    def scaled(self, factor: float | np.ndarray) -> Healing:
        """Return the same: the prior variance is that of the target, whatever the noise is."""
        return self

    def covariance(self, X: np.ndarray) -> np.ndarray:
        """Raise a ValueError: rows have no joint distribution."""
        raise ValueError(
            "return_cov and sample_y need a joint distribution, and with heal=True each row has a "
            "model of its own: ask for return_std, or fit with heal=False."
        )


@dataclass(frozen=True)
class ResidualProcess:
    """What of a Gaussian process of variance `amplitude` the functions at few centres leave out.

    Where most rows are centres, little of the process ends up in the fitted noise, so its variance
    is added to the predictions. After a sparse selection the noise includes it already.

    Parameters
    ----------
    functions : KernelBasis
        Those at the centres.
    L : array of shape (k, k)
        Cholesky factor of the kernel matrix of their centres. With that of the kernel matrix and
        its noise, this is the variance of the process itself (`solvers.forward.process`).
    amplitude : float or array of shape (n_outputs,)
        Variance of the process.
    jitter : float, default=0.0
        The share of k that was added to make L possible.
    """

    functions: KernelBasis
    L: np.ndarray
    amplitude: float | np.ndarray
    jitter: float = 0.0
    joint: ClassVar[bool] = True

    def variance(self, X: np.ndarray, Phi: np.ndarray, posterior: Posterior) -> np.ndarray:
        """What is added at each row of X."""
        return np.multiply.outer(self._left(X)[2], self.amplitude)

    def covariance(self, X: np.ndarray) -> np.ndarray:
        """What is added to the joint covariance of rows."""
        X, T, left, share = self._left(X)
        K = self.functions.kernel.bind(X)(X)
        C = share[:, None] * (0.5 * (K + K.T) - T.T @ T) * share
        C[np.diag_indices(len(C))] = left
        return np.multiply.outer(C, self.amplitude)

    def scaled(self, factor: float | np.ndarray) -> ResidualProcess:
        """Return the process with its variance multiplied by `factor`."""
        return replace(self, amplitude=self.amplitude * factor)

    def _left(self, X: np.ndarray) -> tuple[np.ndarray, ...]:
        """X in float64, T = L^-1 k, what is left of k(x, x) without T'T, the root of its share.

        It is the difference of two large numbers where x is near a centre or the kernel has a low
        rank: twice the jitter is taken off, so that what comes of that and of rounding is nothing.
        """
        X = np.asarray(X, dtype=np.float64)
        T = solve_triangular(self.L, self.functions(X).T, lower=True, check_finite=False)
        own = self.functions.kernel.diagonal(X)
        whole = np.maximum(own - np.einsum("ij,ij->j", T, T), np.finfo(np.float64).tiny)
        left = np.maximum(whole - 2.0 * self.jitter * own, 0.0)
        return X, T, left, np.sqrt(left / whole)
