"""The one loop that every solver runs in, and the reasons for which it stops.

A solver is a frozen dataclass of settings with four methods:

    init(design, t)             -> state          what the first step needs
    step(state, design, t)      -> state, info    one iteration; info is a record for the reader
    done(state)                 -> StopReason     why the search has finished, None while it has not
    solution(state, design, t)  -> Solution       the model of the state

A state owns its buffers and `step` may write into them: copy it to branch. `run` can continue from
any state, so a run is resumable. Only the solver itself looks inside its state; its users read the
`Solution`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from ..callbacks import INTERRUPT
from ..designs import Design
from ..posterior import Posterior

S = TypeVar("S")  # the state of a solver
StepCallback = Callable[[int, NamedTuple, S], bool | None]
_EVIDENCE_FIELDS = ("log_evidence", "bound", "log_joint")  # fields of an Info that must be finite


class StopReason(StrEnum):
    """Why a fit stopped: a code, whether that counts as converged, and a sentence of advice.

    A member is a string, equal to its code.

    Examples
    --------
    >>> from sparsebayes.solvers.run import StopReason
    >>> StopReason.MAX_ITER == "max_iter", StopReason.MAX_ITER.converged
    (True, False)
    >>> StopReason("callback").advice
    'A callback stopped the fit, and the model reached so far was kept.'
    """

    # Ends that count as converged.
    CONVERGED = "converged"
    EVIDENCE = "evidence"
    CRITERION = "criterion"
    TOLERANCE = "tolerance"
    VALIDATION = "validation"
    GAUSSIAN_PROCESS = "gaussian_process"
    MAX_TERMS = "max_terms"
    ALL_CANDIDATES = "all_candidates"
    TRUNCATED = "truncated"
    NO_CANDIDATE = "no_candidate"
    EXACT_FIT = "exact_fit"
    NO_SIGNAL = "no_signal"

    # Ends without an optimum.
    MAX_ITER = "max_iter"
    TIME_LIMIT = "time_limit"
    CALLBACK = "callback"
    INTERRUPTED = "interrupted"
    NOT_FINITE = "not_finite"
    AT_BOUND = "at_bound"
    STALLED = "stalled"
    EXHAUSTED = "exhausted"
    CYCLING = "cycling"
    SATURATED = "saturated"
    COLUMN_LIMIT = "column_limit"
    LONGER_PATH = "longer_path"
    FEW_LEFT = "few_left"

    @property
    def converged(self) -> bool:
        """True where the method's own condition ended the fit."""
        return self not in _NOT_CONVERGED

    @property
    def advice(self) -> str:
        """Sentence that explains the end of a fit, and how to reach convergence."""
        return _CONVERGED.get(self) or _NOT_CONVERGED[self]


_CONVERGED = {
    StopReason.CONVERGED: "No step raises the evidence by more than tol.",
    StopReason.EVIDENCE: "The path was cut at its highest evidence.",
    StopReason.CRITERION: "The path was cut at the best value of the stopping criterion.",
    StopReason.TOLERANCE: "The residuals are below the tolerance.",
    StopReason.VALIDATION: "The path was cut at the smallest error on the validation rows.",
    StopReason.GAUSSIAN_PROCESS: "The terms represent the Gaussian process of the kernel.",
    StopReason.MAX_TERMS: "The model has max_terms terms; raise max_terms for a larger model.",
    StopReason.ALL_CANDIDATES: "Every candidate is in the model.",
    StopReason.TRUNCATED: "The model has the requested number of terms.",
    StopReason.NO_CANDIDATE: "Every other candidate depends linearly on the selected ones.",
    StopReason.EXACT_FIT: "The target is explained up to rounding errors.",
    StopReason.NO_SIGNAL: "No candidate raises the evidence of the model without terms.",
}
_NOT_CONVERGED = {
    StopReason.MAX_ITER: "Raise max_iter, or raise tol if a less accurate fit is enough.",
    StopReason.TIME_LIMIT: (
        "max_time has passed, and the best model so far was kept. Raise max_time; a partitioned "
        "fit can also go on from its checkpoint_dir."
    ),
    StopReason.CALLBACK: "A callback stopped the fit, and the model reached so far was kept.",
    StopReason.INTERRUPTED: "The fit was interrupted, and the model reached so far was kept.",
    StopReason.NOT_FINITE: (
        "The evidence is not finite, so this fit must not be used. Rescale X and y, or pass "
        "a larger noise_variance."
    ),
    StopReason.AT_BOUND: (
        "A precision reached its lower bound, because large weights cancel each other. Check "
        "the predictions on held-out rows."
    ),
    StopReason.STALLED: (
        "The remaining gains are rounding errors of nearly equal columns, so the fit is "
        "usable. A larger tol or fewer columns avoid this warning."
    ),
    StopReason.EXHAUSTED: (
        "Nearly every function still raises the evidence: the target has almost no noise, or "
        "the kernel is far too narrow. The fit is usable. Look for an input that determines "
        "the target (leakage), use a smaller gamma, or pass noise_variance."
    ),
    StopReason.CYCLING: (
        "The updates cycle, so more iterations do not help. The fit is usable. A larger tol "
        "or smoother functions avoid this warning."
    ),
    StopReason.SATURATED: (
        "The components together have nearly as many degrees of freedom as there are rows, "
        "so the noise cannot be estimated. Use fewer or smoother components, or pass "
        "noise_variance."
    ),
    StopReason.COLUMN_LIMIT: (
        "Too many columns have non-zero weights for an exact posterior. Use an "
        "inclusion_prior, or variance='factorised'."
    ),
    StopReason.LONGER_PATH: "The last terms still raise the evidence. Raise max_terms.",
    StopReason.FEW_LEFT: (
        "Fewer than half of the functions of a partition remain; a later run continues from them."
    ),
}


@dataclass(frozen=True)
class Solution:
    """The model that a search has reached.

    Parameters
    ----------
    active : array of int of shape (n_active,)
        The candidates in the model.
    lam : array of shape (n_active,)
        Prior precision of each weight times the noise variance; of labels, the precision itself.
    posterior : Posterior
        Posterior of the weights. Its offset is 0: the target was centred by the design.
    fitted : pair of arrays of shape (n_rows,), optional
        Mean and variance of the latent value at each row, of a solver that has them already.
    """

    active: np.ndarray
    lam: np.ndarray
    posterior: Posterior
    fitted: tuple[np.ndarray, np.ndarray] | None = field(default=None, kw_only=True)


class Algorithm(Protocol[S]):
    """An iteration that `run` can drive: a solver, or a sampler."""

    def init(self, design: Design, t: np.ndarray) -> S: ...

    def step(self, state: S, design: Design, t: np.ndarray) -> tuple[S, NamedTuple]: ...

    def done(self, state: S) -> StopReason | None: ...


class Solver(Algorithm[S], Protocol[S]):
    """An iteration that ends at weights with independent priors; see the module docstring."""

    def solution(self, state: S, design: Design, t: np.ndarray) -> Solution: ...


class LabelSolver(Solver[S], Protocol[S]):
    """A solver of binary labels, which has a state without functions."""

    def empty(self, design: Design) -> S: ...


@dataclass
class Result(Generic[S]):
    """The end of a run.

    Parameters
    ----------
    state : State
        The state after the last complete step.
    history : dict of arrays
        One array for each field of the solver's Info, with an entry for each step.
    n_iter : int
        Number of steps taken.
    stop_reason : StopReason
        Why the run ended.
    """

    state: S
    history: dict[str, np.ndarray]
    n_iter: int
    stop_reason: StopReason

    @property
    def converged(self) -> bool:
        """True where the run ended by the solver's own condition."""
        return self.stop_reason.converged


def run(
    solver: Algorithm[S],
    design: Design,
    t: np.ndarray,
    *,
    max_iter: int,
    max_time: float | None = None,
    callback: StepCallback[S] | None = None,
    state: S | None = None,
) -> Result[S]:
    """Run a solver until it is done or a limit or the callback stops it.

    Ctrl-C, or a KeyboardInterrupt of the callback, stops it too and leaves the state of the last
    complete step. A step whose evidence is not finite ends the run as `StopReason.NOT_FINITE`, for
    every solver.

    Parameters
    ----------
    solver : Solver or Algorithm
        The settings of a method.
    design : Design
        The candidate columns.
    t : array of shape (n_rows,) or (n_rows, n_outputs)
        The target as ``design.target(y)``.
    max_iter : int
        Largest number of steps.
    max_time : float, optional
        Seconds after which no further step begins.
    callback : callable, optional
        Called as ``callback(iteration, info, state)`` after each step; returning True stops.
    state : State, optional
        State to continue from, in place of ``solver.init(design, t)``.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers import FastRVM, run
    >>> rng = np.random.default_rng(0)
    >>> Phi = rng.standard_normal((50, 10))
    >>> t = Phi[:, 3] + 0.1 * rng.standard_normal(50)
    >>> result = run(FastRVM(), DenseDesign(Phi), t, max_iter=100)
    >>> result.converged, 3 in result.state.active
    (True, True)
    """
    started = time.monotonic()
    records: list[NamedTuple] = []
    reason: StopReason | None = None
    try:
        if state is None:
            state = solver.init(design, t)
        while (reason := solver.done(state)) is None:
            if len(records) >= max_iter:
                reason = StopReason.MAX_ITER
                break
            state, info = solver.step(state, design, t)
            records.append(info)
            stopped = callback is not None and callback(len(records), info, state)
            if not _has_finite_evidence(info):
                reason = StopReason.NOT_FINITE
                break
            if stopped:
                reason = StopReason.CALLBACK
                break
            if INTERRUPT.notice():
                reason = solver.done(state) or StopReason.INTERRUPTED
                break
            if max_time is not None and time.monotonic() - started > max_time:
                reason = solver.done(state) or StopReason.TIME_LIMIT
                break
    except KeyboardInterrupt:
        if state is None or INTERRUPT.notice():  # the second Ctrl-C
            raise
        reason = StopReason.INTERRUPTED
    return Result(state, _collect(records), len(records), reason)


def _has_finite_evidence(info: NamedTuple) -> bool:
    """Return whether all evidences of a record are finite."""
    names = [name for name in _EVIDENCE_FIELDS if name in info._fields]
    return bool(np.all([np.isfinite(getattr(info, name)) for name in names]))


def _collect(records: list[NamedTuple]) -> dict[str, np.ndarray]:
    """Return an array for each field of the records."""
    if not records:
        return {}
    names = records[0]._fields
    return {name: np.array([getattr(r, name) for r in records]) for name in names}
