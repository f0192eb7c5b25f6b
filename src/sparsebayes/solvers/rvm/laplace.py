"""The relevance vector machine for labels: Bernoulli likelihood, Laplace approximation.

Model: p(label) = sigma(y), y = Phi w + b, w_j ~ N(0, 1/alpha_j), and b has a flat prior. Around the
mode (`laplace_posterior`) the likelihood is Gaussian, so that one column has the statistics and the
closed-form optimum of regression with known noise (`laplace_curvature`; Tipping 2001, section 3;
Tipping & Faul 2003). The search works on a pool of exact columns that grows. Its stages:

1. Start: MacKay steps on all candidates, compressed (`laplace_start`), from the shared alpha times
   1, .1 and .01 (with a single start: .1). The survivors of all starts are the pool. From each
   start, repeat: find the mode, compute the statistics of the pool, sweep the one-column optima in
   the Gaussian model of this mode; until no column gains `tol` nats.
2. Merge: average the prior variances 1/alpha of all solutions, and repeat the same from there.
3. Scan: from the best model, compute what each candidate outside the pool would gain (from exact
   columns up to 3,000 candidates, from compressed ones above). Add the most promising to the pool
   and repeat the same, until no candidate is worth adding.
4. Joint: take Newton steps on all alpha together, in the Gaussian model of each mode, until the
   evidence no longer moves; then scan again. Long before all precisions together are at their
   optimum, none of them gains anything alone.

`n_starts=0` leaves out the starts and the merge: the search begins at the empty model and each scan
adds one function (Tipping & Faul).

Cost: n p^2 a step of the dense start, n (k^2 + k s) a sweep with k active columns in a pool of s,
n m k a scan of m candidates.

Deviations, and why:
- The papers move one alpha and find the mode again. Here a sweep moves all of them in the Gaussian
  model of one mode. The fixed points are the same, and far fewer modes (n k^2 each) are needed.
- These updates do not climb the Laplace evidence, because the curvature moves with the mode. A step
  that lowers it is kept: refusing such additions led to worse optima. Of the models at the end of
  the starts, the merge and each scan, the one of highest evidence is continued.
- alpha is kept above 1e-8 of the mean square of its column. On separable labels, functions whose
  weights cancel each other would lower it without end. A model that ends there reports so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from ...callbacks import Reporter
from ...designs import DenseDesign, Design
from ...designs.lowrank import LowRank
from ...posterior import Posterior, laplace_posterior
from ..run import Solution, StopReason
from .laplace_curvature import (
    LaplaceCurvature,
    addition_gains,
    column_gains,
    newton_precisions,
    sweep_precisions,
)
from .laplace_start import DenseStart, Survivors, compression, mackay_steps
from .one_column import SMALLEST_LAM
from .search import MOST_NEW, WORTH, SearchState, merged, most_promising

_SCALES = (1.0, 0.1, 0.01)  # of the shared alpha: the dense starts
_MOST = 150  # columns kept from one start
_BATCH = 8  # additions in one sweep
_EXACT_UP_TO = 3000  # candidates: with more, a scan uses the compressed columns
_COMPRESSED_SCANS = 3
_VAIN_SCANS = 3  # in a row that do not raise the evidence
_RUN_STEPS = 60  # from one start, merge or scan
# Around rows of large weight that are certain of their labels the Gaussian model knows nothing, and
# a sweep may delete what the next ones add again: the best model is kept after a few such falls.
_FALL, _MOST_FALLS = 10.0, 3  # nats, and times
_ROUGH = 1e-2  # nats left to gain at the end of one of several starts
_FLOOR = 1e-8  # alpha over the mean square of its column
_MODE_TOL = 1e-6  # of the mode's Newton steps
_SHARP_MODE_TOL = 1e-20  # in the joint stage, where alpha follows every digit of the mode
# Share of tol by which joint Newton steps may still move the evidence at the end. The mode follows
# them, and the Gaussian model with it, so that the evidence moves by more than they gain. If each
# step is nine tenths of the last, the rest adds up to tol.
STILL = 0.1


class Stage(StrEnum):
    """The origin of the model being polished."""

    START = "start"
    GIVEN = "given"
    EMPTY = "empty"
    MERGE = "merge"
    POLISH = "polish"  # the best start again, to a finer tolerance
    SCAN = "scan"
    JOINT = "joint"


class Info(NamedTuple):
    """One step, for the reader."""

    log_evidence: float
    n_active: int
    largest_gain: float
    stage: str


class Pool(NamedTuple):
    """The exact columns that the search works on."""

    idx: np.ndarray  # candidates
    Phi: np.ndarray  # their values at the rows
    floor: np.ndarray  # the smallest alpha of each


class Model(NamedTuple):
    """Active columns (positions in the pool), their precisions alpha, and the mode."""

    A: np.ndarray
    lam: np.ndarray
    w: np.ndarray
    b: float
    log_evidence: float = -np.inf
    end: StopReason | None = None  # why its polishing ended


_NO_FUNCTIONS = Model(np.empty(0, dtype=np.intp), np.empty(0), np.empty(0), 0.0)


class Neighbourhood(NamedTuple):
    """A model at its mode, and what each column of the pool would gain there."""

    model: Model
    curve: LaplaceCurvature
    Q: np.ndarray  # of the pool, as in `laplace_curvature`
    floor: np.ndarray  # of the pool
    new: np.ndarray  # columns of the pool that are worth adding
    largest_gain: float  # of active columns and new ones
    leaving: bool  # whether an active column should be deleted


@dataclass
class State(SearchState):
    """The pool, the model being polished, and the models that wait or are finished."""

    factor: LowRank | None = None
    steps: int = 0  # on this model
    scans: int = 0
    vain_scans: int = 0  # in a row that did not raise the evidence
    last_evidence: float = np.nan  # before the last joint step
    best: Model | None = None  # of the steps on this model
    falls: int = 0  # steps on this model that ended far below the best

    @property
    def alpha(self) -> np.ndarray:
        """The precisions of the active columns; labels have no noise variance."""
        return self.lam

    @property
    def label(self) -> str:
        """The stage for the reader; starts are numbered."""
        if self.stage == Stage.START:
            return f"{Stage.START} {len(self.polished) + 1}"
        return str(self.stage)


@dataclass(frozen=True)
class LaplaceRVM:
    """Evidence ascent for labels; see the module docstring.

    The target is an array of shape (n_rows, 2): the weight of the positive labels in each row, and
    of all its labels.

    Parameters
    ----------
    intercept : bool, default=True
        Whether the latent function has an intercept, with a flat prior.
    tol : float, default=1e-3
        Nats that no re-estimate or deletion gains at convergence; no addition gains 20 times as
        much.
    n_starts : int, default=3
        Number of dense starts; with 0 the search begins at the empty model.
    seed : int, default=0
        Seed of the compression and, beyond three, of the starts.
    factor : LowRank, optional
        The compression of the design, if it is known already.
    start : (candidates, alpha), optional
        The model to begin with, in place of the dense starts.
    reporter : Reporter, optional
        Told of the dense starts, of which there are fewer where its time is over.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers import LaplaceRVM, run
    >>> rng = np.random.default_rng(0)
    >>> Phi = rng.standard_normal((200, 10))
    >>> labels = (3 * Phi[:, 3] + rng.logistic(size=200) > 0).astype(float)
    >>> counts = np.column_stack([labels, np.ones(200)])
    >>> result = run(LaplaceRVM(), DenseDesign(Phi), counts, max_iter=100)
    >>> result.converged, 3 in result.state.active
    (True, True)
    """

    intercept: bool = True
    tol: float = 1e-3
    n_starts: int = 3
    seed: int = 0
    factor: LowRank | None = None
    start: tuple[np.ndarray, np.ndarray] | None = None
    reporter: Reporter = field(default_factory=Reporter)

    def init(self, design: Design, t: np.ndarray) -> State:
        """Return the given model, the survivors of the dense starts, or the empty model."""
        if self.start is not None:
            idx, alpha = self.start
            model = Model(np.arange(len(idx)), alpha, np.zeros(len(idx)), 0.0)
            return State(Stage.GIVEN, _pool(design, t, idx), model)
        if self.n_starts == 0:
            return self.empty(design)
        factor = self.factor if self.factor is not None else compression(design, self.seed)
        starts: list[Survivors] = []
        dense: DenseStart | None = None
        for number, scale in enumerate(self._scales(), 1):
            if starts and self.reporter.budget.over:
                break
            self.reporter.say(f"start {number} from {design.n_candidates} functions")
            try:
                dense = dense or DenseStart(factor, t, self.intercept, self.reporter)
                rough = dense.survivors(scale)
                columns = design.columns(rough.kept)
                starts.append(mackay_steps(columns, t, rough, self.intercept, _MOST))
            except np.linalg.LinAlgError:
                continue  # weights so large that float64 cannot hold the curvature
        if not starts:
            return self.empty(design)
        idx = np.unique(np.concatenate([start.kept for start in starts]))
        first, *waiting = [
            Model(np.searchsorted(idx, kept), alpha, w, b) for kept, alpha, w, b, _ in starts
        ]
        return State(Stage.START, _pool(design, t, idx), first, waiting, factor=factor)

    def empty(self, design: Design) -> State:
        """Return the model without functions."""
        pool = Pool(_NO_FUNCTIONS.A, np.empty((design.n_rows, 0)), _NO_FUNCTIONS.lam)
        return State(Stage.EMPTY, pool, _NO_FUNCTIONS)

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """Find one mode and sweep the precisions around it, or go on to the next stage."""
        try:
            near = self._neighbourhood(state, t)
        except np.linalg.LinAlgError:
            if state.best is not None:
                # The last sweep led to weights that float64 cannot hold: the best model stands.
                state.model = model = state.best._replace(end=StopReason.CYCLING)
                self._advance(state, design, t)
                return state, Info(model.log_evidence, len(model.A), np.nan, state.label)
            # A start did so: functions of the pool enter one by one.
            state.model = _NO_FUNCTIONS
            near = self._neighbourhood(state, t)
        model = near.model
        info = Info(model.log_evidence, len(model.A), near.largest_gain, state.label)
        state.steps += 1
        if state.best is None or model.log_evidence > state.best.log_evidence:
            state.best = model
        elif model.log_evidence < state.best.log_evidence - _FALL:
            state.falls += 1
        falls = state.falls >= _MOST_FALLS
        settled, last = self._settled(state.stage, near), falls or state.steps >= _RUN_STEPS
        if settled and state.stage == Stage.JOINT:
            settled = abs(model.log_evidence - state.last_evidence) < STILL * self.tol
            if not settled and not last:
                gain = self._move_together(state, near)
                return state, info._replace(largest_gain=max(gain, near.largest_gain))
        state.last_evidence = np.nan
        if settled or last:
            end = _end(near, settled)
            state.model = (state.best if falls and not settled else model)._replace(end=end)
            self._advance(state, design, t)
        else:
            self._sweep(state, near)
        return state, info

    def done(self, state: State) -> StopReason | None:
        """Return why the search has finished, or None while it has not."""
        return state.stop_reason

    def solution(self, state: State, design: Design, t: np.ndarray) -> Solution:
        """Return the posterior at the mode, from exact columns."""
        Phi = state.columns.Phi[:, state.model.A]
        start = state.model.w, state.model.b
        posterior = laplace_posterior(Phi, t, state.lam, self.intercept, start)[0]
        return Solution(state.active, state.lam, posterior)

    def _scales(self) -> list[float]:
        if self.n_starts == 1:
            return [_SCALES[1]]
        rng = np.random.default_rng(self.seed)
        more = 10.0 ** rng.uniform(-2.5, 0.5, max(0, self.n_starts - len(_SCALES)))
        return [*_SCALES[: self.n_starts], *more]

    # One step on a model.

    def _mode(self, state: State, t: np.ndarray) -> tuple[Posterior, LaplaceCurvature]:
        """Return the posterior at the mode of the model, and the Gaussian approximation there."""
        A, lam, w, b, *_ = state.model
        Phi = state.columns.Phi[:, A]
        tol = _SHARP_MODE_TOL if state.stage == Stage.JOINT else _MODE_TOL
        posterior, y = laplace_posterior(Phi, t, lam, self.intercept, (w, b), tol)
        return posterior, LaplaceCurvature(y, t, posterior, Phi, self.intercept)

    def _neighbourhood(self, state: State, t: np.ndarray) -> Neighbourhood:
        """Return the model at its mode, with the gains of the pool's columns."""
        posterior, curve = self._mode(state, t)
        model = state.model._replace(
            w=posterior.mean, b=posterior.intercept, log_evidence=posterior.log_evidence
        )
        A, pool = model.A, state.columns
        S, Q, norms = curve.statistics(DenseDesign(pool.Phi))
        floor = np.maximum(pool.floor, SMALLEST_LAM * norms)
        gains, leaving = column_gains((S, Q, norms), A, model.lam, posterior, floor[A])
        absent = gains.copy()
        absent[A] = 0.0
        new = most_promising(absent, WORTH * self.tol, _BATCH)
        largest = float(np.max(gains[np.concatenate([A, new])], initial=0.0))
        return Neighbourhood(model, curve, Q, floor, new, largest, bool(np.any(leaving)))

    def _settled(self, stage: str, near: Neighbourhood) -> bool:
        """Return whether no change of a single column gains enough."""
        if stage == Stage.START and self.n_starts > 1:
            return near.largest_gain < max(self.tol, _ROUGH)
        return near.largest_gain < self.tol and not near.leaving

    def _sweep(self, state: State, near: Neighbourhood) -> None:
        """Move the precisions one by one, in the Gaussian model of this mode."""
        model, n_active = near.model, len(near.model.A)
        members = np.concatenate([model.A, near.new])
        G = near.curve.gram(state.columns.Phi[:, members])
        b = near.Q[members] + G[:, :n_active] @ model.w
        alpha = np.concatenate([model.lam, np.full(len(near.new), np.inf)])
        alpha, w = sweep_precisions(G, b, alpha, near.floor[members], 0.1 * self.tol)
        if state.steps > _RUN_STEPS // 2:  # it may be cycling: take half of the step
            alpha[:n_active] = np.sqrt(alpha[:n_active] * model.lam)
        keep = np.isfinite(alpha)
        state.model = Model(members[keep], alpha[keep], w[keep], model.b)

    def _move_together(self, state: State, near: Neighbourhood) -> float:
        """Move all precisions together, in the Gaussian model of this mode; return the gain."""
        A, lam, w, b, *_ = near.model
        G = near.curve.gram(state.columns.Phi[:, A])
        moved, gain = newton_precisions(G, near.Q[A], lam, w, near.floor[A])
        state.model = Model(A, moved.lam, moved.mu, b)
        state.last_evidence = near.model.log_evidence
        return gain

    # From one stage to the next.

    def _advance(self, state: State, design: Design, t: np.ndarray) -> None:
        """Choose what follows the model that was finished."""
        state.polished.append(state.model)
        state.steps, state.falls, state.best = 0, 0, None
        follow: dict[str, Callable[[State, Design, np.ndarray], None]] = {
            Stage.START: self._after_start,
            Stage.MERGE: self._after_merge,
            Stage.SCAN: self._after_scan,
            Stage.JOINT: self._after_joint,
        }
        follow.get(state.stage, self._continue_best)(state, design, t)

    def _after_start(self, state: State, design: Design, t: np.ndarray) -> None:
        if state.waiting:
            state.model = state.waiting.pop(0)
        elif len(state.polished) > 1:
            A, lam = merged(state.polished, len(state.columns.idx))
            state.stage, state.model = Stage.MERGE, Model(A, lam, np.zeros(len(A)), 0.0)
        else:
            self._continue_best(state, design, t)

    def _after_merge(self, state: State, design: Design, t: np.ndarray) -> None:
        merge = state.model
        _keep_best(state)
        if state.model is merge:
            self._extend(state, design, t)
        else:
            state.stage = Stage.POLISH  # starts are ended at a rough tolerance

    def _after_scan(self, state: State, design: Design, t: np.ndarray) -> None:
        extended = state.model
        _keep_best(state)
        state.vain_scans = 0 if state.model is extended else state.vain_scans + 1
        self._extend(state, design, t)

    def _after_joint(self, state: State, design: Design, t: np.ndarray) -> None:
        """Continue the joint optimum, even where the Laplace evidence was higher before."""
        state.polished = [state.model]
        self._extend(state, design, t)

    def _continue_best(self, state: State, design: Design, t: np.ndarray) -> None:
        _keep_best(state)
        self._extend(state, design, t)

    def _extend(self, state: State, design: Design, t: np.ndarray) -> None:
        """Bring promising candidates into the pool; without any, polish jointly or stop."""
        new = self._scan(state, design, t)
        if len(new):
            more = zip(state.columns, _pool(design, t, new), strict=True)
            state.columns = Pool(*(np.concatenate(pair, axis=-1) for pair in more))
            state.stage = Stage.SCAN
        elif state.stage != Stage.JOINT:
            state.stage = Stage.JOINT
        else:
            state.stop_reason = state.model.end

    def _scan(self, state: State, design: Design, t: np.ndarray) -> np.ndarray:
        """Return the candidates outside the pool that would gain most."""
        compressed = design.n_candidates > _EXACT_UP_TO and state.factor is not None
        if state.vain_scans >= _VAIN_SCANS or (compressed and state.scans >= _COMPRESSED_SCANS):
            return np.empty(0, dtype=np.intp)
        state.scans += 1
        _, curve = self._mode(state, t)
        if compressed and state.factor is not None:
            statistics = curve.compressed_statistics(state.factor)
        else:
            statistics = curve.statistics(design)
        gains = addition_gains(statistics)
        gains[state.columns.idx] = 0.0
        return most_promising(gains, WORTH * self.tol, MOST_NEW if self.n_starts else 1)


def _end(near: Neighbourhood, settled: bool) -> StopReason:
    """Return why the polishing of a model ended."""
    if not settled:
        return StopReason.CYCLING
    at_floor = np.any(near.model.lam <= near.floor[near.model.A] * (1.0 + 1e-6))
    return StopReason.AT_BOUND if at_floor else StopReason.CONVERGED


def _keep_best(state: State) -> None:
    """Continue the finished model of highest evidence; the first of equals."""
    state.model = max(state.polished, key=lambda model: model.log_evidence)
    state.polished = [state.model]


def _pool(design: Design, t: np.ndarray, idx: np.ndarray) -> Pool:
    Phi, weight = design.columns(idx), t[:, 1]
    floor = _FLOOR * np.einsum("i,ij,ij->j", weight, Phi, Phi) / float(np.sum(weight))
    return Pool(idx, Phi, floor)
