"""The one loop that every solver runs in.

A solver is a frozen dataclass of settings with four methods:

    init(design, t)         -> state      what the first step needs
    step(state, design, t)  -> state, info    one iteration; info is for the reader only
    done(state)             -> str        why it has finished, "" while it has not
    posterior(state, design, t) -> Posterior

A state owns its buffers and `step` may write into them: copy it to branch. `run` can go on from
any state, so a run is resumable.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..designs import Design
from ..posterior import Posterior

# Why a run ended. Those that estimators have a sentence for are here: it costs no solver to read.
CONVERGED = "converged"
CYCLING = "cycling"
INTERPOLATES = "the components explain every row"
STALLED = "the evidence no longer follows its statistics"
EXHAUSTED = "nearly every function still gains"
StepCallback = Callable[[int, Any, Any], bool | None]


class Solver(Protocol):
    """What `run` asks of a solver; see the module docstring."""

    def init(self, design: Design, t: np.ndarray) -> Any: ...

    def step(self, state: Any, design: Design, t: np.ndarray) -> tuple[Any, Any]: ...

    def done(self, state: Any) -> str: ...

    def posterior(self, state: Any, design: Design, t: np.ndarray) -> Posterior: ...


@dataclass
class Result:
    """What a run leaves behind.

    Parameters
    ----------
    state : State
        After the last whole step.
    history : dict of arrays
        One for each field of the solver's Info, with an entry for each step.
    n_iter : int
        Steps taken.
    stop_reason : str
        ``"converged"``, or what else ended the run.
    """

    state: Any
    history: dict[str, np.ndarray]
    n_iter: int
    stop_reason: str

    @property
    def converged(self) -> bool:
        """Whether the solver's own condition was met."""
        return self.stop_reason == CONVERGED


def run(
    solver: Solver,
    design: Design,
    t: np.ndarray,
    *,
    max_iter: int,
    max_time: float | None = None,
    callback: StepCallback | None = None,
    state: Any = None,
) -> Result:
    """Step until the solver is done, or `max_iter`, `max_time` (seconds) or the callback says stop.

    A KeyboardInterrupt stops too and leaves the state of the last whole step.

    Parameters
    ----------
    solver : Solver
        The settings of a method.
    design : Design
        The candidate columns.
    t : array of shape (n_rows,) or (n_rows, n_outputs)
        The target as the design wants it: ``design.target(y)``.
    max_iter : int
        Most steps.
    max_time : float, optional
        Seconds after which no further step is begun.
    callback : callable, optional
        Called as ``callback(iteration, info, state)`` after each step; returning True stops.
    state : State, optional
        Where to go on from, in place of ``solver.init(design, t)``.

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
    records: list[Any] = []
    reason = ""
    try:
        if state is None:
            state = solver.init(design, t)
        while not (reason := solver.done(state)):
            if len(records) >= max_iter:
                reason = "max_iter"
                break
            state, info = solver.step(state, design, t)
            records.append(info)
            if callback is not None and callback(len(records), info, state):
                reason = "callback"
                break
            if max_time is not None and time.monotonic() - started > max_time:
                reason = solver.done(state) or "max_time"
                break
    except KeyboardInterrupt:
        if state is None:
            raise
        reason = "interrupted"
    return Result(state, _collect(records), len(records), reason)


def _collect(records: list[Any]) -> dict[str, np.ndarray]:
    if not records:
        return {}
    names = records[0]._fields
    return {name: np.array([getattr(r, name) for r in records]) for name in names}
