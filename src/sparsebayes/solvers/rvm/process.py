"""A Gaussian process for labels on a few hundred functions: one variance, by Laplace's method.

Model: p(label) = sigma(y + b), y a Gaussian process of covariance a k(x, z), b with a flat prior.
On functions centred at p rows Z, with k(Z, Z) = LL', y = k(x, Z) L^-T w and w ~ N(0, a I): the
relevance vector machine chooses a few functions by a precision for each, the process keeps all that
matter under its own prior.

1. Functions (`process_functions`): where labels are not sure. Around the mode the labels tell of y
   with the precisions Omega = sigma (1 - sigma), so a row matters by what a Omega^1/2 k Omega^1/2
   has left on its diagonal: pivoted Cholesky, until all rows together have less than `_LEFT` or
   300 to 500 are chosen. The mode is that of 100 functions chosen without Omega. Several binary
   problems share the functions, by the largest a Omega of each row. On at most `_ROWS` rows.
2. a by the evidence of Laplace's method (`laplace_posterior`), in one dimension, on half of those
   rows.
3. The mode of all rows.

Predictions are those of the mode. The Gaussian of Laplace's method has its mean there, nearer to
zero than that of the true posterior, which is skewed away from it, and averaging the logistic
function over it brings probabilities nearer to 1/2 once more: the log-loss of breast cancer grows
by two thirds, that of wine and energy by four times and more (docs/theory/rvm.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import expit

from ...callbacks import Reporter
from ...designs import Design, KernelDesign
from ...linalg import pivoted_cholesky
from ...linalg.scalar import maximise
from ...posterior import Dense, Posterior, laplace_posterior
from ..run import Solution, StopReason

# Functions: one for five rows, within these. 300 have .199 and .215 on two splits of concrete (824
# rows) and 500 .194 and .214; with 2,400 rows of California .289 and .276, and .280 and .277.
_MOST = (300, 500)
_FIRST = 100  # with which the search for the mode begins
_ROWS = 3000
_VARIANCE_ROWS = 1500  # rows from which the one variance is learnt
_LEFT = 1.0  # of a tr(Omega k): twice the nats that all labels could still tell
LOG_VARIANCE = (-3.0, 9.0)
_NEAR = 2.0  # how far log a may be from what it was with the first functions
_DIGITS = 0.1  # of log a
_SURE = 1e-10  # Omega of the surest row over that of the least sure
# Of the log-likelihood: what a mode may miss while the variance is looked for, where rows are many,
# and otherwise.
_ROUGH, _NEAR_MODE, _EXACT = 1e-9, 1e-12, 1e-20
_LARGEST = 1e8  # trace of the kernel of the functions over what is left of it


class Functions(NamedTuple):
    """Functions of a kernel, made independent of each other under its process."""

    active: np.ndarray  # candidates
    L: np.ndarray  # of their kernel matrix
    subset: np.ndarray  # candidates at whose rows the variance is learnt
    log_variance: float  # about what it will be


class Info(NamedTuple):
    """One step, for the reader."""

    log_evidence: float
    n_active: int
    largest_gain: float
    stage: str


@dataclass
class State:
    """The learnt variance; before the step it is one."""

    active: np.ndarray
    alpha: np.ndarray  # the diagonal of the prior precision of the weights
    log_variance: float = np.nan
    stop_reason: StopReason | None = None


class OneStep(ABC):
    """A search of one step, which learns the variance of a process."""

    variance: float | None

    @abstractmethod
    def learn(self, design: Design, t: np.ndarray) -> tuple[float, float]:
        """Return log a of largest evidence, and the evidence."""

    def empty(self, design: Design) -> State:
        """Return the state without functions."""
        return State(np.empty(0, np.intp), np.empty(0))

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """Learn the variance of largest evidence."""
        if self.variance is None:
            log_variance, evidence = self.learn(design, t)
        else:
            log_variance, evidence = float(np.log(self.variance)), np.nan
        alpha = np.exp(-log_variance) * state.alpha
        state = State(state.active, alpha, log_variance, StopReason.CONVERGED)
        return state, Info(evidence, len(alpha), 0.0, "process")

    def done(self, state: State) -> StopReason | None:
        """Return why the search has finished, or None while it has not."""
        return state.stop_reason


@dataclass(frozen=True)
class LaplaceProcess(OneStep):
    """The process of labels on given functions; see the module docstring.

    The target is an array of shape (n_rows, 2): the weight of the positive labels in each row, and
    of all its labels.

    Parameters
    ----------
    functions : Functions
        From `process_functions`.
    intercept : bool, default=True
        Whether a constant of flat prior is added.
    variance : float, optional
        The variance of the process, where it is not learnt.
    reporter : Reporter, optional
        Where its time is over, the variance is the one that chose the functions, and from the mode
        of some rows there is one step towards that of all.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import KernelDesign
    >>> from sparsebayes.kernels import StationaryKernel
    >>> from sparsebayes.solvers import run
    >>> from sparsebayes.solvers.rvm.process import LaplaceProcess, process_functions
    >>> X = np.linspace(-3, 3, 100)[:, None]
    >>> counts = np.column_stack([np.sin(2 * X[:, 0]) > 0, np.ones(100)])
    >>> design = KernelDesign(X, StationaryKernel("rbf", 1.0))
    >>> solver = LaplaceProcess(process_functions(design, [counts], True))
    >>> result = run(solver, design, counts, max_iter=10)
    >>> posterior = solver.solution(result.state, design, counts).posterior
    >>> latent = posterior.at(design.columns(result.state.active))
    >>> result.converged, bool(np.all((latent > 0) == counts[:, 0]))
    (True, True)
    """

    functions: Functions
    intercept: bool = True
    variance: float | None = None
    reporter: Reporter = field(default_factory=Reporter)

    def init(self, design: Design, t: np.ndarray) -> State:
        """Return the given functions."""
        return State(self.functions.active, np.sum(self.functions.L**2, axis=1))

    def learn(self, design: Design, t: np.ndarray) -> tuple[float, float]:
        """Return log a of largest evidence, and the evidence."""
        design = cast(KernelDesign, design)
        active, L, subset, near = self.functions
        subset = subset[:: -(-len(subset) // _VARIANCE_ROWS)]
        self.reporter.say(f"variance of the process at {len(active)} functions")
        F = _independent(design.columns(active)[design.centres[subset]], L)
        counts, bounds = at_candidates(design, t)[subset], (near - _NEAR, near + _NEAR)
        if self.reporter.budget.over:
            bounds = near, near
        return best_variance(F, counts, self.intercept, bounds)

    def solution(self, state: State, design: Design, t: np.ndarray) -> Solution:
        """Return the posterior at the mode, of the weights of the functions themselves."""
        return Solution(state.active, state.alpha, self._posterior(state, design, t))

    def _posterior(self, state: State, design: Design, t: np.ndarray) -> Posterior:
        if len(state.active) == 0:
            return laplace_posterior(np.empty((len(t), 0)), t, np.empty(0), self.intercept)[0]
        L = self.functions.L
        alpha = np.full(len(L), np.exp(-state.log_variance))
        F = _independent(design.columns(state.active), L)
        start, tol = None, _EXACT
        if len(self.functions.subset) < design.n_candidates:
            # Newton's method begins near the mode: two or three steps on all rows are left.
            rows, tol = cast(KernelDesign, design).centres[self.functions.subset], _NEAR_MODE
            part, _ = laplace_posterior(F[rows], t[rows], alpha, self.intercept, tol=_ROUGH)
            start = part.mean, float(part.intercept)
        steps = 1 if start is not None and self.reporter.budget.over else None
        whitened, _ = laplace_posterior(F, t, alpha, self.intercept, start, tol, steps)
        assert whitened.centre is not None
        return replace(
            whitened,
            mean=solve_triangular(L, whitened.mean, lower=True, trans="T"),
            form=Dense(solve_triangular(L, whitened.form.root, lower=True, trans="T")),
            centre=L @ whitened.centre,
        )


def process_functions(
    design: Design,
    problems: list[np.ndarray],
    intercept: bool,
    seed: int = 0,
    variances: tuple[float, ...] = (),
    most: int | None = None,
) -> Functions:
    """Return functions for rows whose labels are uncertain in these binary problems.

    Parameters
    ----------
    design : KernelDesign
        Functions of a positive definite kernel.
    problems : list of arrays of shape (n_rows, 2)
        Targets as `LaplaceProcess` takes them.
    intercept : bool
    seed : int, default=0
        Draws the rows where they are many.
    variances : tuple of float, optional
        Variance of the process of each problem, where it is not learnt.
    most : int, optional
        Largest number of functions; by default one for five rows, from 300 to 500.
    """
    design = cast(KernelDesign, design)
    subset = np.arange(design.n_candidates)
    if len(subset) > _ROWS:
        subset = np.sort(np.random.default_rng(seed).choice(len(subset), _ROWS, replace=False))
    X = design.X[design.centres[subset]]
    part = KernelDesign(X, design.kernel)
    diagonal = design.kernel.diagonal(X)
    F, _ = pivoted_cholesky(diagonal, part.columns, _FIRST, 1.0 / _LARGEST)
    matters, log_variances = np.zeros(len(subset)), []
    for k, problem in enumerate(problems):
        counts = at_candidates(design, problem)[subset]
        if variances:
            log_variance = float(np.log(variances[k]))
        else:
            log_variance, _ = best_variance(F.T, counts, intercept, LOG_VARIANCE)
        alpha = np.full(len(F), np.exp(-log_variance))
        y = laplace_posterior(F.T, counts, alpha, intercept, tol=_ROUGH)[1]
        omega = counts[:, 1] * expit(y) * expit(-y)
        matters = np.maximum(matters, np.exp(log_variance) * omega)
        log_variances.append(log_variance)
    s = np.sqrt(np.maximum(matters, _SURE * np.max(matters)))
    tolerance = max(_LEFT / float(s**2 @ diagonal), 1.0 / _LARGEST)
    most = int(np.clip(design.n_rows // 5, *_MOST)) if most is None else most
    F, chosen = pivoted_cholesky(
        s**2 * diagonal, lambda j: s[:, None] * part.columns(j) * s[j], most, min(tolerance, 0.5)
    )
    L = np.tril(F[:, chosen].T / s[chosen, None])
    return Functions(subset[chosen], L, subset, float(np.mean(log_variances)))


def candidate_of_rows(design: KernelDesign) -> np.ndarray:
    """Return the number of the candidate whose row is equal to each row."""
    if design.n_candidates == design.n_rows:
        return np.arange(design.n_rows)
    _, first, number = np.unique(
        np.asarray(design.X), axis=0, return_index=True, return_inverse=True
    )
    return np.argsort(np.argsort(first))[number.ravel()]


def at_candidates(design: KernelDesign, counts: np.ndarray) -> np.ndarray:
    """Return the labels of all rows that are equal to the row of each candidate."""
    if design.n_candidates == design.n_rows:
        return counts
    total = np.zeros((design.n_candidates, 2))
    np.add.at(total, candidate_of_rows(design), counts)
    return total


def best_variance(
    F: np.ndarray, counts: np.ndarray, intercept: bool, bounds: tuple[float, float]
) -> tuple[float, float]:
    """Return log a of largest Laplace evidence for weights w ~ N(0, a I), and the evidence."""
    start: tuple[np.ndarray, float] | None = None

    def evidence(log_variance: float) -> float:
        nonlocal start
        alpha = np.full(F.shape[1], np.exp(-log_variance))
        posterior, _ = laplace_posterior(F, counts, alpha, intercept, start, _ROUGH)
        start = posterior.mean, float(posterior.intercept)
        return posterior.log_evidence

    low, high = np.clip(bounds, *LOG_VARIANCE)
    if low == high:
        return float(low), evidence(float(low))
    return maximise(evidence, low, high, step=None, tol=_DIGITS)


def _independent(Phi: np.ndarray, L: np.ndarray) -> np.ndarray:
    """Return Phi L^-T."""
    return solve_triangular(L, Phi.T, lower=True, check_finite=False).T
