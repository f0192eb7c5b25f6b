"""A Gaussian process for labels on all rows, by Laplace's method.

Model: p(label) = sigma(y + b), y a Gaussian process of covariance a k(x, z), b with a flat prior.
With K the kernel matrix of the rows, Omega the curvature of the likelihood and g its slope,

    y = a K v + b,     v = g at the mode,     B = Id + a Omega^1/2 K Omega^1/2 = LL',
    S = Omega^1/2 B^-1 Omega^1/2 = (a K + Omega^-1)^-1.

A Newton step solves for the working response z = y + g / Omega: b = 1'Sz / 1'S1, v = S (z - b).
That is one Cholesky factorisation of n^3/3 flops, a fifth of what as many functions cost as columns
of a linear model. The posterior variance of y is (1 - s/Omega)/Omega, s the diagonal of
S - S1 1'S / 1'S1, by the inverse of L.

1. a by the evidence, in one dimension, on at most `_VARIANCE_ROWS` rows.
2. The mode of these rows, and from there that of all rows, in four to nine steps, all but the last
   in single precision.

`LaplaceProcess` is the same process on a few hundred functions. Rough functions of little noise
take more: on phoneme (3,000 rows) the log-loss of a sum of smooth and rough kernel is .266 with 500
functions, .249 with 1,500.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, cast

import numpy as np
from scipy.linalg import lapack

from ...callbacks import Reporter
from ...designs import Design, KernelDesign
from ...kernels import Kernel
from ...linalg.scalar import maximise
from ...posterior import Deferred, Dense, Posterior, laplace_posterior, likelihood_slopes
from ...posterior import log_likelihood as log_likelihood_of
from ..run import Solution
from .process import LOG_VARIANCE, OneStep, State, at_candidates, candidate_of_rows

_VARIANCE_ROWS = 1500  # rows from which the variance is learnt, beginning with a part of them
_FIRST_ROWS, _FIRST_LOG_VARIANCE = 750, 2.5
_DIGITS = 0.2  # of log a
# Rate of the exponential prior of the standard deviation of the log odds. Where classes can be
# separated the evidence is flat, and would allow log odds of a hundred: on hepatitis_c the log-loss
# of a sum kernel is .47 without it, .31 with a rate of .1 and .29 with .3; the variances of three
# other tables hardly move.
_STD_RATE = 0.3
# Of the log posterior: gain of a step below which single precision, which takes half the time, has
# served its purpose; that of the last step; and that of the last step of so few rows that time does
# not matter, all of whose steps have double precision.
_ROUGH, _NEAR_MODE, _EXACT = 1e-4, 1e-6, 1e-14
_FEW_ROWS = 500
_BLOCKS = 8  # of rows, of which the kernel matrix is computed on and below the diagonal
_SHORTEST_STEP = 1e-6
_MOST_STEPS = 100


class AllRows(NamedTuple):
    """Kernel matrix of all distinct rows, which several binary problems share."""

    K: np.ndarray
    subset: np.ndarray  # rows from which the variance is learnt

    @classmethod
    def from_design(cls, design: Design, seed: int = 0) -> AllRows:
        """Return the kernel matrix of the rows of a design."""
        design = cast(KernelDesign, design)
        K = _kernel_matrix(design.kernel, design.X[design.centres])
        subset = np.arange(len(K))
        if len(K) > _VARIANCE_ROWS:
            rng = np.random.default_rng(seed)
            subset = np.sort(rng.choice(len(K), _VARIANCE_ROWS, replace=False))
        return cls(K, subset)


class Mode(NamedTuple):
    """Mode of the latent values, y = a K v + b."""

    v: np.ndarray
    b: float
    y: np.ndarray
    L: np.ndarray  # of B
    omega: np.ndarray  # where B was computed, one step before y
    log_evidence: float

    def variance(self, intercept: bool) -> np.ndarray:
        """Return the posterior variance of each latent value."""
        few = len(self.L) <= _FEW_ROWS  # else single precision is enough, in half the time
        inverse = lapack.dtrtri(self.L, lower=1)[0] if few else _single_inverse(self.L)
        share = np.einsum("ij,ij->j", inverse, inverse, dtype=np.float64)  # diagonal of S / Omega
        if intercept:
            one = _solve(self.L, self.omega, np.ones(len(share)))
            share -= one**2 / np.sum(one) / self.omega
        return np.maximum(1.0 - share, 0.0) / self.omega


@dataclass(frozen=True)
class ExactLaplaceProcess(OneStep):
    """The process of labels on all rows; see the module docstring.

    The target is that of `LaplaceProcess`.

    Parameters
    ----------
    rows : AllRows
        Kernel matrix of the rows.
    intercept : bool, default=True
        Whether a constant of flat prior is added.
    variance : float, optional
        The variance of the process, where it is not learnt.
    reporter : Reporter, optional
        Told of Newton's steps on all rows, which end with its time, as does the search for the
        variance.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import KernelDesign
    >>> from sparsebayes.kernels import StationaryKernel
    >>> from sparsebayes.solvers import run
    >>> from sparsebayes.solvers.rvm.laplace_exact import AllRows, ExactLaplaceProcess
    >>> X = np.linspace(-3, 3, 100)[:, None]
    >>> counts = np.column_stack([np.sin(2 * X[:, 0]) > 0, np.ones(100)])
    >>> design = KernelDesign(X, StationaryKernel("rbf", 1.0))
    >>> solver = ExactLaplaceProcess(AllRows.from_design(design))
    >>> result = run(solver, design, counts, max_iter=10)
    >>> latent, _ = solver.solution(result.state, design, counts).fitted
    >>> result.converged, bool(np.all((latent > 0) == counts[:, 0]))
    (True, True)
    """

    rows: AllRows
    intercept: bool = True
    variance: float | None = None
    reporter: Reporter = field(default_factory=Reporter)

    def init(self, design: Design, t: np.ndarray) -> State:
        """Return all functions."""
        return State(np.arange(len(self.rows.K)), self.rows.K.diagonal())

    def learn(self, design: Design, t: np.ndarray) -> tuple[float, float]:
        """Return log a of largest evidence, and the evidence."""
        K, subset = self.rows
        counts = at_candidates(cast(KernelDesign, design), t)[subset]
        return _best_variance(K[np.ix_(subset, subset)], counts, self)

    def solution(self, state: State, design: Design, t: np.ndarray) -> Solution:
        """Return the posterior at the mode, of the weights of the functions."""
        if len(state.active) == 0 or not np.isfinite(state.log_variance):
            nothing = self.empty(design)
            posterior, y = laplace_posterior(np.empty((len(t), 0)), t, np.empty(0), self.intercept)
            fitted = y, np.full(len(y), posterior.offset_variance)
            return Solution(nothing.active, nothing.alpha, posterior, fitted=fitted)
        design = cast(KernelDesign, design)
        K, subset = self.rows
        counts, a = at_candidates(design, t), float(np.exp(state.log_variance))
        start = None
        if len(subset) < len(K):
            K_part = K[np.ix_(subset, subset)]
            part = find_mode(K_part, counts[subset], a, self.intercept, rough=True)
            v = np.zeros(len(K))
            v[subset] = part.v
            start = v, part.b
        mode = find_mode(K, counts, a, self.intercept, start, reporter=self.reporter)
        s = mode.variance(self.intercept)
        form = Deferred(WeightCovariance(design.kernel, design.X[design.centres], a, mode.omega))
        posterior = Posterior(a * mode.v, form, 0.0, mode.log_evidence, mode.b)
        place = candidate_of_rows(design)
        fitted = mode.y[place], s[place]
        return Solution(state.active, state.alpha, posterior, fitted=fitted)


def find_mode(
    K: np.ndarray,
    counts: np.ndarray,
    a: float,
    intercept: bool = True,
    start: tuple[np.ndarray, float] | None = None,
    rough: bool = False,
    reporter: Reporter | None = None,
) -> Mode:
    """Return the mode of the latent values under a process of covariance a K.

    Parameters
    ----------
    K : array of shape (n, n)
        Kernel matrix.
    counts : array of shape (n, 2)
        Weight of the positive labels of each row, and of all its labels.
    a : float
        Variance of the process.
    intercept : bool, default=True
        Whether a constant of flat prior is added.
    start : (v, b), optional
        Where to begin, unless the posterior is higher at zero.
    rough : bool, default=False
        Whether single precision is enough.
    reporter : Reporter, optional
        Told of the steps. Where its time is over there is one step, and L is that after it.

    Raises
    ------
    LinAlgError
        If the kernel is not positive definite, or if the mode was not reached.
    """
    v, b, y = np.zeros(len(K)), 0.0, np.zeros(len(K))
    value = log_likelihood_of(y, counts)
    if start is not None:
        latent = a * (K @ start[0]) + start[1]
        height = log_likelihood_of(latent, counts) - 0.5 * float(start[0] @ (latent - start[1]))
        if height > value:
            (v, b), y, value = start, latent, height
    few = len(K) <= _FEW_ROWS
    matrix, rough = (K, False) if few else (K.astype(np.float32), rough)
    reporter = reporter or Reporter()
    for n_steps in range(_MOST_STEPS):
        reporter.say(f"step {n_steps + 1} to the mode of the log odds of {len(K)} rows", len(K))
        slope, omega = likelihood_slopes(y, counts)
        L = _root(matrix, a, omega)
        if L is None and matrix is not K:
            matrix, rough = K, False
            L = _root(K, a, omega)
        if L is None:
            raise np.linalg.LinAlgError("The kernel matrix is not positive definite in float64.")
        working, one = y + slope / omega, _solve(L, omega, np.ones(len(K)))
        if n_steps > 0 and reporter.budget.over:
            break
        new_b = float(one @ working / np.sum(one)) if intercept else 0.0
        dv = _solve(L, omega, working - new_b) - v
        dy, step = a * (K @ (v + dv)) + new_b - y, 1.0
        while True:
            trial = v + step * dv, b + step * (new_b - b), y + step * dy
            height = log_likelihood_of(trial[2], counts)
            height -= 0.5 * float(trial[0] @ (trial[2] - trial[1]))
            if height >= value - 1e-12 * abs(value) or step < _SHORTEST_STEP:
                break
            step *= 0.5
        gain, (v, b, y), value = height - value, trial, height
        is_last = rough or matrix is K
        enough = _ROUGH if matrix is not K else _EXACT if few else _NEAR_MODE
        if gain <= enough * (1.0 + abs(value)):
            if is_last and step == 1.0:
                break
            matrix = K
    else:
        raise np.linalg.LinAlgError("Newton's method did not reach the mode of the labels.")
    evidence = value - float(np.sum(np.log(np.diag(L))))
    if intercept:
        evidence += 0.5 * float(np.log(2.0 * np.pi / np.sum(one)))
    return Mode(v, b, y, L, omega, evidence)


def _kernel_matrix(kernel: Kernel, X: np.ndarray) -> np.ndarray:
    """Return the kernel between all rows, computed in blocks on and below the diagonal."""
    K = np.empty((len(X), len(X)))
    step = max(_FEW_ROWS, -(-len(X) // _BLOCKS))
    for first in range(0, len(X), step):
        rows, end = slice(first, first + step), min(first + step, len(X))
        K[rows, :end] = kernel.bind(X[:end])(X[rows])
        K[:first, rows] = K[rows, :first].T
    K[np.diag_indices_from(K)] = kernel.diagonal(X)
    return K


def _single_inverse(L: np.ndarray) -> np.ndarray:
    """Return the inverse of a lower triangle in single precision."""
    return lapack.strtri(np.array(L, dtype=np.float32, order="F"), lower=1, overwrite_c=1)[0]


def _best_variance(
    K: np.ndarray, counts: np.ndarray, process: ExactLaplaceProcess
) -> tuple[float, float]:
    """Return log a of largest evidence, and the evidence."""
    first, near, step = -(-len(K) // _FIRST_ROWS), _FIRST_LOG_VARIANCE, 1.0
    if first > 1:
        near, height = _best_variance(K[::first, ::first], counts[::first], process)
        step = 0.5
        if process.reporter.budget.over:
            return near, height
    start: tuple[np.ndarray, float] | None = None

    def evidence(log_variance: float) -> float:
        nonlocal start
        a = float(np.exp(log_variance))
        mode = find_mode(K, counts, a, process.intercept, start, rough=True)
        start = mode.v, mode.b
        return mode.log_evidence - _STD_RATE * a**0.5

    if process.reporter.budget.over:
        return near, evidence(near)
    return maximise(evidence, *LOG_VARIANCE, start=near, step=step, tol=_DIGITS)


def _root(K: np.ndarray, a: float, omega: np.ndarray) -> np.ndarray | None:
    """Return the Cholesky factor of B in the precision of K; None where there is none."""
    s = np.sqrt(a * omega).astype(K.dtype)
    B = np.multiply(K, s[:, None])
    B *= s
    B = B.T  # symmetric, and column-contiguous
    B[np.diag_indices_from(B)] += 1.0
    factor = lapack.spotrf if K.dtype == np.float32 else lapack.dpotrf
    L, info = factor(B, lower=1, clean=1, overwrite_a=1)
    return L if info == 0 and np.all(np.isfinite(np.diag(L))) else None


def _solve(L: np.ndarray, omega: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return S u."""
    s = np.sqrt(omega)
    solve = lapack.spotrs if L.dtype == np.float32 else lapack.dpotrs
    return s * solve(L, s * u, lower=1)[0]


@dataclass(frozen=True, eq=False)
class WeightCovariance:
    """Covariance of the weights of the kernel functions, whose inverse is K/a + K Omega K.

    Parameters
    ----------
    kernel : Kernel
        The kernel, of unit variance.
    X : array of shape (n, n_features)
        The rows.
    a : float
        Variance of the process.
    omega : array of shape (n,)
        Curvature of the likelihood.
    """

    kernel: Kernel
    X: np.ndarray
    a: float
    omega: np.ndarray

    def __call__(self) -> Dense:
        """Return the full matrix."""
        K = self.kernel.bind(self.X)(self.X)
        root = np.linalg.cholesky(K + 1e-10 * np.eye(len(K)) * np.max(K.diagonal()))
        H = root.T @ (self.omega[:, None] * root)
        H[np.diag_indices_from(H)] += 1.0 / self.a
        inner = np.linalg.inv(np.linalg.cholesky(H)).T
        return Dense(np.linalg.solve(root.T, inner))
