"""Common parts of the searches of the RVM: `auto` (Gaussian likelihood) and `laplace` (labels).

Both go through the same stages on a growing set of exact columns, the columns at hand:

    start    all candidates, compressed, at several scales: dense starts; each is polished on the
             columns of all of them (re-estimates, deletions, additions from the columns at hand)
    merge    the prior variances 1/lam of all solutions averaged, as one more start (`merged`); the
             best of all goes on
    scan     the gain of adding each candidate by itself; the most promising come to the columns at
             hand, the model is polished again, until no gain is large enough

They differ in what a polish is. The Gaussian evidence is exact, and a polish only climbs it: one
step of a run is one stage. That of labels is an approximation around a mode which moves with the
model: one step of a run is one mode with the sweeps around it, and the best model that was ever
finished is kept. The sweep itself is the same (`polish.sweep`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...designs import Design
from ..run import StopReason

WORTH = 20.0  # times tol: what an addition must gain; columns worth less come and go without end
MOST_NEW = 128  # candidates that a scan brings in


@dataclass
class SearchState:
    """The state of a search: the columns at hand, and the models on them.

    A model has at least the positions `A` of its columns among those at hand, and their `lam`.
    """

    stage: str  # of the next step
    columns: Any = None  # at hand; `idx` says which candidates they are
    model: Any = None
    waiting: list[Any] = field(default_factory=list)  # starts that have not been polished
    polished: list[Any] = field(default_factory=list)  # models that have been polished
    stop_reason: StopReason | None = None

    @property
    def active(self) -> np.ndarray:
        """Candidates in the model."""
        return np.empty(0, np.intp) if self.model is None else self.columns.idx[self.model.A]

    @property
    def lam(self) -> np.ndarray:
        """Prior precisions of the active weights, times the noise variance where there is one."""
        return np.empty(0) if self.model is None else self.model.lam


def fixes_intercept_first(design: Design) -> bool:
    """Return whether the search fixes the intercept at the mean of the target at first.

    It does for functions that vanish far from their centres (decision 0007): an intercept that is
    free from the beginning moves to where wide functions balance it. The search then uses
    ``design.uncentred``, and rebuilds its state from the centred design once it has settled.
    """
    return design.intercept and design.stationary


def merged(solutions: Sequence[Any], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return columns (of `size` at hand) and lam of the average of the prior variances."""
    variance = np.zeros(size)
    for solution in solutions:
        variance[solution.A] += 1.0 / (solution.lam * len(solutions))
    A = np.flatnonzero(variance)
    return A, 1.0 / variance[A]


def most_promising(gains: np.ndarray, least: float, most: int = MOST_NEW) -> np.ndarray:
    """Return the positions of the `most` largest gains above `least`, the largest first."""
    best = np.argsort(-gains, kind="stable")[:most]
    return best[gains[best] > least]
