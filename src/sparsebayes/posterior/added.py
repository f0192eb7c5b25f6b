"""Predictive variance beyond that of the posterior of the weights.

A sparse model has few functions, and its posterior does not include what they cannot represent. Two
models add that variance at each new row: `Healing`, one more function centred on the row itself
(relevance vector machines), and `ResidualProcess`, the part of a Gaussian process that the selected
functions do not capture (forward selection with ``refit="gp"``). `Extrapolation` and `Unlike` add
it only at rows that are far from all training rows, `Explored` tells where these are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.optimize import minimize_scalar

from .._array import Array, is_torch, to_device_of
from ..designs import Basis
from ..designs._base import KernelBasis
from ..kernels import Box, Kernel
from ..linalg import pivoted_cholesky
from .gaussian import Posterior

_BLOCK_ELEMENTS = 2**18  # numbers of a block of kernel values
_MOST_CENTRES = 128  # functions that tell where rows are rare
# As many where they are worth it: where they leave out less than this share of what 128 leave.
_MOST_FOR_NOISE, _WORTH = 512, 0.1
_LEFT_OVER = 0.1  # share of the noise that these functions may leave out, in the mean over the rows
_TYPICAL = 0.9  # share of the training rows at which nothing is added
_MOST_PAIRED = 64  # functions between which gaps are looked for
# Share of the places between them, and of the noise: what is added has to exceed both.
_GAPS, _NOTICED = 0.05, 0.25
_LARGEST_RATIO = float(np.log(16.0))  # of variances of a process that suits a target
_EPS = np.finfo(np.float64).eps
_FEW_DIGITS = 1e-9  # of k(x, x): a difference of less has lost most digits
# Share of the variance of a process that is left where nothing is known, and how much more than at
# training rows. Of 20 draws of 14 kinds of rows, new ones passed both in one draw of one kind.
_UNKNOWN, _UNLIKE = 0.9, 1.5
_CONSTANT = 1e-6  # relative spread of a diagonal that counts as constant


class AddedVariance(Protocol):
    """Variance of new observations beyond that of the posterior.

    `joint` is whether several rows have a joint distribution, `on_device` whether the variance of
    tensors is computed where they are.
    """

    joint: ClassVar[bool]
    on_device: ClassVar[bool]

    @property
    def extrapolation(self) -> Extrapolation | None:
        """The addition itself if it is zero at most training rows, else None."""

    def variance(self, X: np.ndarray, Phi: np.ndarray, posterior: Posterior) -> np.ndarray:
        """Return the added variance at each row of X, whose functions are Phi."""

    def covariance(self, X: np.ndarray) -> np.ndarray:
        """Return the covariance added between rows; raise a ValueError if there is none."""

    def scaled(self, factor: float | np.ndarray) -> AddedVariance:
        """Return the addition to a posterior whose variances were multiplied by `factor`."""


@dataclass(frozen=True)
class Healing:
    """A variance that grows away from the data (Rasmussen & Quinonero-Candela 2005).

    Without it the variance of a relevance vector machine falls to that of the noise far from the
    data. At each new row x the model gets one more function, centred on x, with a weight
    u ~ N(0, 1/a), and is conditioned on the training data. With c its values on the training rows,
    s = c'Pc and ell = a sigma2, this adds sigma2 e^2/(ell + s), where e = c(x) - phi(x)' W Phi'c is
    the part of c(x) that the active functions do not explain. The added variance vanishes where the
    data determine u, and far from all rows it is k(x, x)/a. 1/a is the variance of the signal,
    var(t) - sigma2. The prior variances of the active weights are much larger, because the weights
    of neighbouring functions cancel.

    In the paper the mean changes too; here it does not, so that a prediction is the same with and
    without its standard deviation. Several rows have no joint distribution. A row costs its kernel
    values on all n training rows and n k products. Derivation: docs/theory/rvm.md.

    Parameters
    ----------
    kernel : Kernel
        Kernel of the functions.
    rows : array of shape (n, n_features)
        Training rows.
    weight : array of shape (n,)
        Weights of the training rows.
    fitted : array of shape (n, k)
        Phi root with root root' = W, each row multiplied by the root of its weight: c'P c is
        ``sum(weight c^2) - |fitted' c|^2`` minus the part along the intercept.
    centred : bool
        Whether the functions are centred (a model with an intercept).
    prior_variance : float or array of shape (n_outputs,)
        The variance 1/a of the weight of the new function.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVMRegressor
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.05 * np.random.default_rng(0).standard_normal(100)
    >>> model = RVMRegressor("rbf", gamma=0.1, fit_intercept=False, heal=True).fit(X, y)
    >>> Phi = model.basis_(np.array([[0.0], [1000.0]]))
    >>> added = model.healing_.variance(np.array([[0.0], [1000.0]]), Phi, model.posterior_)
    >>> bool(added[0] < 1e-3), bool(added[1] > 0.05)
    (True, True)
    """

    kernel: Kernel
    rows: np.ndarray
    weight: np.ndarray
    fitted: np.ndarray
    centred: bool
    prior_variance: float | np.ndarray
    joint: ClassVar[bool] = False
    on_device: ClassVar[bool] = False
    extrapolation: ClassVar[None] = None

    def variance(self, X: np.ndarray, Phi: np.ndarray, posterior: Posterior) -> np.ndarray:
        """Return sigma2 e^2/(ell + s) at each row, from its active functions Phi."""
        squares, s = np.empty(len(X)), np.empty(len(X))
        bound = self.kernel.bind(self.rows)
        along = posterior.centred(Phi) @ posterior.form.root
        own = self.kernel.diagonal(X)
        total = float(np.sum(self.weight))
        step = max(1, _BLOCK_ELEMENTS // max(1, len(self.rows)))
        for first in range(0, len(X), step):
            block = slice(first, first + step)
            C = np.asarray(bound(X[block]), dtype=np.float64)  # one row for each new function
            mean = C @ self.weight / total if self.centred else np.zeros(len(C))
            norm = (C * C) @ self.weight - total * mean**2
            T = C @ self.fitted
            squares[block] = (own[block] - mean - np.einsum("ij,ij->i", along[block], T)) ** 2
            s[block] = np.maximum(norm - np.einsum("ij,ij->i", T, T), 0.0)
        sigma2 = posterior.form.scale
        prior = np.asarray(self.prior_variance)
        with np.errstate(divide="ignore", invalid="ignore"):
            ell = np.where(prior > 0.0, np.asarray(sigma2) / prior, np.inf)  # no prior, no variance
        return squares.reshape(-1, *[1] * np.ndim(ell)) * sigma2 / np.add.outer(s, ell)

    def scaled(self, factor: float | np.ndarray) -> Healing:
        """Return the same: the prior variance is that of the target, whatever the noise is."""
        return self

    def covariance(self, X: np.ndarray) -> np.ndarray:
        """Raise a ValueError: rows have no joint distribution."""
        raise ValueError(
            "return_cov and sample_y are not available with heal=True, because there is no "
            "joint distribution of several rows. Use return_std, or fit with heal=False."
        )


@dataclass(frozen=True)
class ResidualProcess:
    """Variance of a Gaussian process that the functions at its centres do not capture.

    If most rows are centres, little of that variance is part of the fitted noise, so it is added to
    the predictions. After a sparse selection the noise includes it already.

    Parameters
    ----------
    functions : Basis
        The kernel functions at the centres.
    L : array of shape (k, k)
        Cholesky factor of the kernel matrix of the centres. With the factor of the kernel matrix
        plus noise, this is the posterior variance of the process (`solvers.gp.exact`).
    amplitude : float or array of shape (n_outputs,)
        Variance of the process.
    jitter : float, default=0.0
        Share of k that was added to the diagonal before the factorisation.
    between : float or array of shape (n_outputs,), default=1.0
        h, the share of its variance that the process has where its functions determine it. Where
        they say nothing it has all: the share of a residual variance r is h + (1 - h) r/k(x, x).
    """

    functions: Basis
    L: np.ndarray
    amplitude: float | np.ndarray
    jitter: float = 0.0
    between: float | np.ndarray = 1.0
    joint: ClassVar[bool] = True
    on_device: ClassVar[bool] = False
    extrapolation: ClassVar[None] = None

    def variance(self, X: np.ndarray, Phi: np.ndarray, posterior: Posterior) -> np.ndarray:
        """Return the residual variance at each row of X."""
        residual, prior = self._residual(X)[2:4]
        return np.multiply.outer(residual, self.amplitude) * self._share(residual, prior)

    def covariance(self, X: np.ndarray) -> np.ndarray:
        """Return the residual covariance between rows."""
        X, T, residual, prior, share = self._residual(X)
        K = self._kernel.bind(X)(X)
        C = share[:, None] * (0.5 * (K + K.T) - T.T @ T) * share
        C[np.diag_indices(len(C))] = residual
        if np.any(residual < _FEW_DIGITS * prior):
            C = _without_negative_eigenvalues(C)
        root = np.sqrt(self._share(residual, prior))
        return np.multiply.outer(C, self.amplitude) * (root[:, None] * root)

    def scaled(self, factor: float | np.ndarray) -> ResidualProcess:
        """Return the process with its variance multiplied by `factor`, within float64."""
        with np.errstate(over="ignore"):
            amplitude = np.minimum(self.amplitude * factor, 0.1 * np.finfo(np.float64).max)
        return replace(self, amplitude=amplitude)

    def judged(
        self,
        X: np.ndarray,
        y: np.ndarray,
        noise: np.ndarray,
        centres: np.ndarray,
        residuals: np.ndarray,
    ) -> ResidualProcess:
        """Return the process with a variance between its functions that suits the training rows.

        A greedy selection puts functions where the target varies, and leaves out the rows that they
        predict. So the target varies less between the functions than at their centres. A new row is
        like any row: a centre is predicted by the process given the other centres, and the
        residuals are the errors at the other rows. `between` is the mean square of these errors
        over their standard deviations, at most 1.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Training rows.
        y : array of shape (n,) or (n, n_outputs)
            Targets, less their mean.
        noise : array of shape (n, 1) or (n, n_outputs)
            Noise variances of the targets.
        centres : array of shape (k,)
            Numbers of the rows that are centres.
        residuals : array of shape (n,) or (n, n_outputs)
            Targets less their predictions.
        """
        if not np.all(self.amplitude):  # it underflows: there is no variance to judge
            return self
        ratio = np.broadcast_to(noise / self.amplitude, (len(X), np.size(self.amplitude)))
        variance = self._residual(X)[2][:, None] + ratio
        unit = np.sqrt(self.amplitude)  # squares of targets of 1e160 overflow
        errors = np.square(residuals / unit).reshape(variance.shape) / variance
        target = (y / unit).reshape(variance.shape)[centres]
        for output, own in enumerate(ratio[centres].T):
            inverse = np.linalg.inv(self.L @ self.L.T + np.diag(own))
            errors[centres, output] = (inverse @ target[:, output]) ** 2 / np.diag(inverse)
        square = np.mean(errors, axis=0).reshape(np.shape(self.amplitude))[()]
        return replace(self, between=np.minimum(square, 1.0))

    @property
    def _kernel(self) -> Kernel:
        kernel = self.functions.kernel
        assert kernel is not None
        return kernel

    def _residual(self, X: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return X in float64, T = L^-1 k, the residual of unit amplitude, k(x, x), and a share.

        The residual k(x, x) - T'T is the difference of two large numbers if x is near a centre or
        the kernel has a low rank. Twice the jitter is subtracted, so that the jitter and rounding
        do not count as variance. The last array is the root of the share that remains.
        """
        X = np.asarray(X, dtype=np.float64)
        T = solve_triangular(self.L, self.functions(X).T, lower=True, check_finite=False)
        prior = self._kernel.diagonal(X)
        unexplained = np.maximum(prior - np.einsum("ij,ij->j", T, T), np.finfo(np.float64).tiny)
        residual = np.maximum(unexplained - 2.0 * self.jitter * prior, 0.0)
        return X, T, residual, prior, np.sqrt(residual / unexplained)

    def _share(self, residual: np.ndarray, prior: np.ndarray) -> np.ndarray:
        """Return the share of the residual variance that is added, from what is unknown of k."""
        between = np.broadcast_to(self.between, np.shape(self.amplitude))
        unknown = residual / np.where(prior > 0.0, prior, 1.0)  # k(0, 0) of a linear kernel is 0
        return between + np.multiply.outer(unknown, 1.0 - between)


def _without_negative_eigenvalues(C: np.ndarray) -> np.ndarray:
    """Return a covariance with the diagonal of C, whose negative eigenvalues are rounding."""
    values, vectors = np.linalg.eigh(C)
    positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
    variance = np.diag(positive)
    ratio = np.divide(np.diag(C), variance, out=np.zeros(len(C)), where=variance > 0.0)
    scale = np.sqrt(ratio)
    return scale[:, None] * positive * scale


@dataclass(frozen=True)
class Explored:
    """How well training rows determine a Gaussian process, from place to place.

    Given noisy observations at all training rows, a process of unit variance has the variance
    r(x) = 1 - |R'k(x)|^2, where k are kernel functions at some of the rows: as many as represent
    the process at the rows up to a share of the noise, or else 512, or 128 if 512 leave out nearly
    as much. What they leave out at a row is further noise of that row (the fully independent
    training conditional, FITC).

    The variance that a sparse model claims is right for rows like the training rows, because its
    noise and its calibration include what it does not represent there. So a new row counts as
    unexplored only to the extent that r exceeds its value at nine tenths of the training rows, each
    left out in turn.

    Parameters
    ----------
    functions : Basis
        k, the kernel functions.
    root : array of shape (m, m)
        R.
    typical : float
        The value that r has to exceed.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.kernels import StationaryKernel
    >>> from sparsebayes.posterior.added import Explored
    >>> X = np.r_[np.linspace(0.0, 2.0, 30), np.linspace(5.0, 7.0, 30)][:, None]
    >>> explored = Explored.from_rows(StationaryKernel("rbf", 0.5), X, np.ones(60), None, 0.1)
    >>> explored.lack(np.array([[1.0], [3.5], [6.0], [20.0]])).round(1)
    array([0. , 0.7, 0. , 1. ])
    """

    functions: Basis
    root: np.ndarray
    typical: float

    @classmethod
    def from_rows(
        cls,
        kernel: Kernel,
        X: np.ndarray,
        count: np.ndarray,
        precision: np.ndarray | None,
        noise: float,
    ) -> Explored | None:
        """Return how well the rows X determine the process.

        None where even training rows that are left out are hardly known, and where the rows leave
        no gap between them: midway between nearly any two of the functions it is known up to a
        share of the noise, and no function is away from all others, as that of a single row at the
        end of the range.

        Parameters
        ----------
        kernel : Kernel
            The kernel, of unit variance.
        X : array of shape (n, n_features)
            Training rows.
        count : array of shape (n,)
            Number of observations of each row.
        precision : array of shape (n,) or None
            Precision of an observation of each row; None is 1.
        noise : float
            Noise variance over the variance of the process.
        """
        p = np.ones(len(X)) if precision is None else precision
        left_over = _LEFT_OVER * min(noise, 1.0)
        X, inverse, F, pivots = distinct_functions(kernel, X, left_over, _MOST_FOR_NOISE)
        residual = _unrepresented(F)
        if len(pivots) == _MOST_FOR_NOISE:
            few = _unrepresented(F[:_MOST_CENTRES])
            if np.sum(residual) > _WORTH * np.sum(few):
                F, pivots, residual = F[:_MOST_CENTRES], pivots[:_MOST_CENTRES], few
        weight = np.bincount(inverse, count * p)
        values, vectors = np.linalg.eigh((F * (weight / (noise + weight * residual))) @ F.T)
        share = np.maximum(values, 0.0) / (1.0 + np.maximum(values, 0.0))
        residual, spread = residual[inverse], ((1.0 - share) @ np.square(vectors.T @ F))[inverse]
        single = p * np.minimum(count, 1.0)
        rest = np.maximum(1.0 - single * spread / (noise + single * residual), _EPS)
        typical = _quantile(spread / rest + residual, count, _TYPICAL)
        if typical > 1.0 - noise:  # what could be added is less than the noise
            return None
        root = solve_triangular(F[:, pivots], vectors * np.sqrt(share), check_finite=False)
        explored = cls(KernelBasis(kernel, X[pivots]), root, typical)
        m = min(len(pivots), _MOST_PAIRED)
        first, second = np.triu_indices(m, 1)
        between = 0.5 * X[pivots[first]] + 0.5 * X[pivots[second]]
        unexplored = explored.lack(between) > _NOTICED * noise
        of_each = np.bincount(first, unexplored, m) + np.bincount(second, unexplored, m)
        is_alone = np.max(of_each, initial=0.0) > 0.5 * (m - 1)
        return explored if is_alone or np.sum(unexplored) > _GAPS * len(unexplored) else None

    def lack(self, X: Array) -> Array:
        """Return by how much r exceeds its typical value at each row, 0 where it does not."""
        T = self.functions(X) @ to_device_of(X, self.root)
        return (1.0 - self.typical - (T * T).sum(1)).clip(0.0)


def process_variance(
    kernel: Kernel, X: np.ndarray, y: np.ndarray, weight: np.ndarray, noise: float, least: float
) -> float:
    """Return the variance of the process that suits a target best, at least `least`.

    The variance of the target over the rows is less than that of the process if the length scales
    are about as long as the range of the rows: much of the process is in its mean over them.

    Parameters
    ----------
    kernel : Kernel
        The kernel, of unit variance.
    X : array of shape (n, n_features)
        Training rows.
    y : array of shape (n,)
        Their targets.
    weight : array of shape (n,)
        Weights of the rows in the likelihood.
    noise : float
        Variance of the noise.
    least : float
        Smallest variance; sixteen times as much is the largest.
    """
    X, inverse, F, _ = distinct_functions(kernel, X, _LEFT_OVER**2)
    w, root = np.bincount(inverse, weight), float(np.sqrt(noise))
    total = np.bincount(inverse, weight * ((y - np.average(y, weights=weight)) / root))
    F = F - (F @ w / np.sum(w))[:, None]  # the constant of a model has any value
    values, vectors = np.linalg.eigh((F * w) @ F.T)
    kept = values > _EPS * np.sum(w)
    values, along = values[kept], vectors.T[kept] @ (F @ total)

    def deviance(log_ratio: float) -> float:
        variance = np.exp(log_ratio) * least / noise * values + 1.0
        return float(np.sum(np.log(variance) + np.square(along) / values / variance))

    with np.errstate(over="ignore", invalid="ignore"):
        best = minimize_scalar(deviance, bounds=(0.0, _LARGEST_RATIO), method="bounded")
    return float(np.exp(best.x)) * least if np.isfinite(best.fun) else least


def distinct_functions(
    kernel: Kernel, X: np.ndarray, left_over: float, most: int = _MOST_CENTRES
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct rows Z, the number in Z of each row, F with F'F ~ k(Z, Z), and pivots.

    The rows of Z are sorted, so that the pivots do not depend on the order of the rows.
    """
    Z, inverse = np.unique(X, axis=0, return_inverse=True)

    def columns(chosen: np.ndarray) -> np.ndarray:
        return np.asarray(kernel.bind(Z[chosen])(Z), dtype=np.float64)

    F, pivots = pivoted_cholesky(np.ones(len(Z)), columns, most, left_over)
    return Z, inverse.ravel(), F, pivots


def _unrepresented(F: np.ndarray) -> np.ndarray:
    """Return the variance that F'F leaves out of a process of unit variance at each row."""
    return np.maximum(1.0 - np.einsum("ij,ij->j", F, F), 0.0)


def _quantile(values: np.ndarray, count: np.ndarray, share: float) -> float:
    """Return the smallest value that is at least as large as this share of the observations."""
    order = np.argsort(values)
    total = np.cumsum(count[order])
    i = int(np.searchsorted(total, share * total[-1]))
    return float(values[order[min(i, len(order) - 1)]])


@dataclass(frozen=True)
class Extrapolation:
    """The variance of a process where there are no training rows.

    A sparse model has few functions, and where they vanish its posterior variance does too. If the
    function were known everywhere in the box of the training rows, a Gaussian process would still
    have the variance a (1 - k(x, b)^2) at a row x outside, with b the nearest point of the box. No
    model that stands for the process is surer than that. In and outside the box the model is also
    no surer than the process where rows are rare (`Explored`); the larger of both is added.

    Away from the rows the mean returns to the constant of the model, which may be far from the
    target where kernel functions overlap so much that they and the constant cancel. The mean of a
    process with this constant moves away from the target by (1 - k) times the distance. Its square
    is added as well, as if the constant were uncertain by as much.

    Parameters
    ----------
    kernel : StationaryKernel or WarpedKernel
        The kernel of the process, of unit variance.
    box : Box
        The box of the training rows.
    amplitude : float or array of shape (n_outputs,)
        a, the variance of the process.
    explored : Explored, optional
        Where rows are rare; None where that is not known.
    mean, constant : float or array of shape (n_outputs,), default=0.0
        The mean of the target, and the constant of the model.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.kernels import Box, StationaryKernel
    >>> from sparsebayes.posterior.added import Extrapolation
    >>> box = Box(np.zeros(1), np.ones(1))
    >>> beyond = Extrapolation(StationaryKernel("rbf", 1.0), box, 4.0)
    >>> beyond.variance(np.array([[0.5], [1.1], [9.0]]), None, None).round(2)
    array([0.  , 0.08, 4.  ])
    """

    kernel: Any
    box: Box
    amplitude: float | np.ndarray
    explored: Explored | None = None
    mean: float | np.ndarray = 0.0
    constant: float | np.ndarray = 0.0
    joint: ClassVar[bool] = True
    on_device: ClassVar[bool] = True

    @property
    def extrapolation(self) -> Extrapolation:
        """This addition, which is zero at most training rows."""
        return self

    @property
    def shift(self) -> float | np.ndarray:
        """Square of the distance between the constant and the mean of the target."""
        with np.errstate(over="ignore"):
            return np.square(np.subtract(self.constant, self.mean))

    def scaled(self, factor: float | np.ndarray) -> Extrapolation:
        """Return the same: the variance is that of the target, whatever the noise is."""
        return self

    def variance(self, X: np.ndarray, Phi: Any, posterior: Any) -> np.ndarray:
        """Return the added variance at each row of X."""
        if is_torch(X):
            share = self._share(X.double())
            return share * float(self.amplitude) + _one_less_k(share) ** 2 * float(self.shift)
        share = self._share(X)
        of_constant = np.multiply.outer(_one_less_k(share) ** 2, self.shift)
        return np.multiply.outer(share, self.amplitude) + of_constant

    def covariance(self, X: np.ndarray) -> np.ndarray:
        """Return the covariance added between rows: rows near each other vary together."""
        share = self._share(X)
        rows = np.flatnonzero(share)
        C = np.zeros((len(X), len(X)))
        if len(rows):
            root, Z = np.sqrt(share[rows]), np.asarray(X[rows], dtype=np.float64)
            K = self.kernel.bind(Z)(Z)
            C[np.ix_(rows, rows)] = root[:, None] * (0.5 * (K + K.T)) * root
            C[rows, rows] = share[rows]  # k(x, x) = 1; large inputs leave few digits of |x - x|^2
        back = _one_less_k(share)
        of_constant = np.multiply.outer(np.outer(back, back), self.shift)
        return np.multiply.outer(C, self.amplitude) + of_constant

    def _share(self, X: Array) -> Array:
        """Return the larger of 1 - k(x, b)^2 and the lack of rows, for each row."""
        share = (1.0 - self.box.correlation(self.kernel, X) ** 2).clip(0.0)
        if self.explored is None:
            return share
        lack = self.explored.lack(X)
        return share + (lack - share).clip(0.0)


def _one_less_k(share: Array) -> Array:
    """Return 1 - k of rows at which a process of unit variance has the variance 1 - k^2."""
    return 1.0 - (1.0 - share).clip(0.0) ** 0.5


@dataclass(frozen=True)
class Unlike:
    """The variance of a process at rows that are unlike all training rows, for kernel matrices.

    The kernel values between a new row and the training rows say how much a Gaussian process would
    know there: given noisy observations at the training rows, its variance is a r(x) with
    r(x) = c - k(x)'(K + lam)^-1 k(x), where c is the diagonal of K. The mean of r over training
    rows that are left out in turn is part of the noise of a sparse model. The rest is added.

    Parameters
    ----------
    rows : array of int of shape (m,)
        The training rows that K is taken from.
    root : array of shape (m, m)
        Lower Cholesky factor of K + lam.
    prior : float
        c, the diagonal of K.
    known : float
        The mean of r over the training rows.
    amplitude : float or array of shape (n_outputs,)
        a, so that a c is the variance of the process.
    unknown : float
        The value of r from which a row is unlike all training rows, which say hardly anything about
        it: nine tenths of c, and 1.5 times the largest r of a training row without the rows equal
        to it.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior.added import Unlike
    >>> X = np.linspace(0.0, 1.0, 20)
    >>> far = Unlike.from_matrix(np.exp(-(np.subtract.outer(X, X) ** 2)), 0.1, 4.0)
    >>> values = np.exp(-(np.subtract.outer([0.5, 2.0, 9.0], X) ** 2))
    >>> far.variance(values, None, None).round(1)
    array([0. , 3.1, 3.9])
    """

    rows: np.ndarray
    root: np.ndarray
    prior: float
    known: float
    amplitude: float | np.ndarray
    unknown: float
    joint: ClassVar[bool] = True
    on_device: ClassVar[bool] = False
    extrapolation: ClassVar[None] = None

    @classmethod
    def from_matrix(
        cls,
        K: np.ndarray,
        lam: float,
        amplitude: float | np.ndarray,
        rows: np.ndarray | None = None,
    ) -> Unlike | None:
        """Return the addition of the kernel matrix of some training rows.

        None where the diagonal is not constant, so that it is not known for a new row, and where K
        is not positive definite.
        """
        diagonal = np.diag(K)
        prior = float(np.mean(diagonal))
        if not prior > 0.0 or np.ptp(diagonal) > _CONSTANT * prior:
            return None
        try:
            root, left_out = _left_out(K, lam)
        except LinAlgError:
            return None
        _, first = np.unique(K, axis=0, return_index=True)
        alone = left_out if len(first) == len(K) else _left_out(K[np.ix_(first, first)], lam)[1]
        unknown = max(_UNKNOWN * prior, _UNLIKE * float(np.max(alone)))
        rows = np.arange(len(K)) if rows is None else rows
        return cls(rows, root, prior, float(np.mean(left_out)), amplitude, unknown)

    def scaled(self, factor: float | np.ndarray) -> Unlike:
        """Return the same: the variance is that of the target, whatever the noise is."""
        return self

    def variance(self, X: np.ndarray, Phi: Any, posterior: Any) -> np.ndarray:
        """Return the added variance at each row of X, which has the kernel values of new rows."""
        return np.multiply.outer(np.maximum(self._residual(X) - self.known, 0.0), self.amplitude)

    def rows_unknown(self, X: np.ndarray) -> np.ndarray:
        """Return the numbers of the rows about which the training rows say hardly anything."""
        return np.flatnonzero(self._residual(X) > self.unknown)

    def _residual(self, X: np.ndarray) -> np.ndarray:
        """Return r at each row of X."""
        values = np.asarray(X, dtype=np.float64)[:, self.rows]
        T = solve_triangular(self.root, values.T, lower=True, check_finite=False)
        return self.prior - np.einsum("ij,ij->j", T, T)

    def covariance(self, X: np.ndarray) -> np.ndarray:
        """Return a diagonal: the kernel values between new rows are not known."""
        variance = self.variance(X, None, None)
        C = np.zeros((len(variance), *variance.shape))
        C[np.arange(len(C)), np.arange(len(C))] = variance
        return C


def _left_out(K: np.ndarray, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the Cholesky factor of K + lam, and r at each row given the others."""
    root = cholesky(0.5 * (K + K.T) + lam * np.eye(len(K)), lower=True)
    inverse = solve_triangular(root, np.eye(len(K)), lower=True)
    return root, 1.0 / np.einsum("ij,ij->j", inverse, inverse) - lam
