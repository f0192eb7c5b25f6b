"""The relevance vector machine for labels: Bernoulli likelihood, Laplace approximation.

Model: p(label) = sigma(y), y = Phi w + b, w_j ~ N(0, 1/alpha_j), b with a flat prior. Around the
mode (`laplace_posterior`) the likelihood is Gaussian, so one column has the statistics and the
closed optimum of regression with the noise given (`laplace_columns`; Tipping 2001, section 3;
Tipping & Faul 2003). The search:

1. Dense start: MacKay steps on all candidates, compressed (`laplace_start`), from the shared alpha
   times 1, .1, .01 (a single start: .1); then on the exact columns of the survivors.
2. From each start: find the mode, take the statistics of the survivors of all starts, sweep the
   one-column optima in the Gaussian model of this mode, until none gains `tol` nats.
3. Merge: average the prior variances 1/alpha of all solutions, and the same again from there.
4. From the best: look at all candidates (their exact columns up to 3,000, compressed ones above),
   take in those that would gain, and the same again, until none would.

`n_starts=0` leaves out 1 and 3: from the empty model, one new function per look (Tipping & Faul).
Cost: steps of n p^2 in 1, of n (k^2 + k s) for k active of s columns at hand in 2, n m k in 4.

Deviations, and why:
- The papers move one alpha and find the mode again. Here a sweep moves all of them in the Gaussian
  model of one mode: the fixed points are the same, the modes (n k^2 each) many fewer.
- The evidence of the Laplace approximation is not what these updates climb: its curvature moves
  with the mode. A step that lowers it is kept (refusing additions that do ended in worse optima),
  but of the models at the end of each start, merge and look the one of highest evidence goes on.
- alpha is kept above 1e-8 of the mean square of its column: on separable labels, functions whose
  weights cancel each other would ask for ever less. A model that ends there says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...designs import DenseDesign, Design
from ...designs.lowrank import LowRank, low_rank
from ...posterior import Posterior, laplace_posterior
from ..run import CONVERGED
from .laplace_columns import Curve, absent_gains, gains_of, sweep
from .laplace_start import DenseStart, mackay
from .one_column import AT_LIMIT, SMALLEST_LAM

_SCALES = (1.0, 0.1, 0.01)
_MOST = 150  # columns kept from one start
_WORTH = 20.0  # times tol: what an addition must gain
_BATCH = 8  # additions in one step
_LOOK = 128  # columns taken in after a look at all candidates
_EXACT_UP_TO = 3000  # candidates: above, the look is at the compressed columns
_COMPRESSED_LOOKS = 3
_VAIN_LOOKS = 3  # in a row that do not raise the evidence
_RUN_STEPS = 60  # from one start, merge or look
_ROUGH = 1e-2  # nats left to gain at the end of one of several starts
_FLOOR = 1e-8  # alpha over the mean square of its column
_MODE_TOL = 1e-6

# Why a run ended that could not settle: it has not converged.
CIRCLE = "going round in a circle"


class Info(NamedTuple):
    """One step, for the reader."""

    log_evidence: float
    n_active: int
    largest_gain: float
    stage: str


class Model(NamedTuple):
    """Columns (as positions in the pool), their precisions, and the mode."""

    members: np.ndarray
    alpha: np.ndarray
    w: np.ndarray
    b: float
    log_evidence: float = -np.inf
    end: str = ""  # why its polishing ended


@dataclass
class State:
    """The columns at hand, the model being polished, and those waiting or finished."""

    pool: np.ndarray  # candidates whose exact columns are at hand
    columns: np.ndarray  # n x len(pool)
    floor: np.ndarray  # the smallest alpha of each
    model: Model
    stage: str
    factor: LowRank | None = None
    waiting: list[tuple[str, Model]] = field(default_factory=list)
    found: list[Model] = field(default_factory=list)
    steps: int = 0  # on this model
    looks: int = 0
    vain: int = 0  # looks in a row that did not raise the evidence
    stop_reason: str = ""

    @property
    def active(self) -> np.ndarray:
        """The candidates in the model."""
        return self.pool[self.model.members]

    @property
    def alpha(self) -> np.ndarray:
        """Their precisions."""
        return self.model.alpha


@dataclass(frozen=True)
class LaplaceRVM:
    """Evidence ascent for labels; see the module docstring.

    The target is an array of shape (n_rows, 2): the weight of the positive labels in each row, and
    of all its labels.

    Parameters
    ----------
    intercept : bool, default=True
    tol : float, default=1e-3
        Nats that no re-estimate or deletion may gain at convergence; no addition gains 20 times as
        much.
    n_starts : int, default=3
        Dense starts; 0 begins with the empty model.
    seed : int, default=0
        Draws the pivots of the low rank and, beyond three, the starts.
    factor : LowRank, optional
        Of the design, where it is known already.
    start : (candidates, alpha), optional
        Begin with this model in place of the dense starts.

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

    def init(self, design: Design, t: np.ndarray) -> State:
        """The survivors of the dense starts; the model to begin with; or the empty model."""
        if self.start is not None:
            pool, alpha = self.start
            model = Model(np.arange(len(pool)), alpha, np.zeros(len(pool)), 0.0)
            columns = design.columns(pool)
            return State(pool, columns, _floor(columns, t), model, "given")
        if self.n_starts == 0:
            return self.empty(design)
        factor = self.factor if self.factor is not None else compression(design, self.seed)
        dense = DenseStart(factor, t, self.intercept)
        starts = []
        for scale in self._scales():
            found = dense.survivors(scale)
            starts.append(mackay(design.columns(found.kept), t, found, self.intercept, _MOST))
        pool = np.unique(np.concatenate([found.kept for found in starts]))
        waiting = [
            (f"start {i + 1}", Model(np.searchsorted(pool, kept), alpha, w, b))
            for i, (kept, alpha, w, b, _) in enumerate(starts)
        ]
        stage, model = waiting.pop(0)
        columns = design.columns(pool)
        return State(pool, columns, _floor(columns, t), model, stage, factor, waiting)

    def empty(self, design: Design) -> State:
        """No functions at all."""
        none = Model(np.empty(0, dtype=np.intp), np.empty(0), np.empty(0), 0.0)
        return State(none.members, np.empty((design.n_rows, 0)), none.alpha, none, "empty")

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """One mode, and a sweep of one-column optima around it; or the next stage."""
        posterior, curve = self._around(state, state.model, t)
        model = state.model._replace(
            w=posterior.mean, b=posterior.intercept, log_evidence=posterior.log_evidence
        )
        A = model.members
        S, Q, norms = curve.statistics(DenseDesign(state.columns))
        floor = np.maximum(state.floor, SMALLEST_LAM * norms)
        root = posterior.form.root
        gains, leaving = gains_of(S, Q, norms, A, model.alpha, root, model.w, floor[A])
        absent = gains.copy()
        absent[A] = 0.0
        new = np.argsort(-absent, kind="stable")[:_BATCH]
        new = new[absent[new] > _WORTH * self.tol]
        members = np.concatenate([A, new])
        largest = float(np.max(gains[members], initial=0.0))
        info = Info(model.log_evidence, len(A), largest, state.stage)

        state.steps += 1
        rough = state.stage.startswith("start") and self.n_starts > 1
        settled = largest < (max(self.tol, _ROUGH) if rough else self.tol)
        settled = settled and (rough or not np.any(leaving))
        if settled or state.steps >= _RUN_STEPS:
            limit = np.any(model.alpha <= floor[A] * (1.0 + 1e-6))
            end = CONVERGED if settled and not limit else AT_LIMIT if settled else CIRCLE
            state.model = model._replace(end=end)
            self._advance(state, design, t)
            return state, info
        Phi = state.columns[:, members]
        G = curve.gram(Phi)
        b = Q[members] + G[:, : len(A)] @ model.w
        alpha = np.concatenate([model.alpha, np.full(len(new), np.inf)])
        alpha, w = sweep(G, b, alpha, floor[members], 0.1 * self.tol)
        if state.steps > _RUN_STEPS // 2:  # perhaps a circle: half the way
            alpha[: len(A)] = np.sqrt(alpha[: len(A)] * model.alpha)
        keep = np.isfinite(alpha)
        state.model = Model(members[keep], alpha[keep], w[keep], model.b)
        return state, info

    def done(self, state: State) -> str:
        """Why it ended."""
        return state.stop_reason

    def posterior(self, state: State, design: Design, t: np.ndarray) -> Posterior:
        """From exact columns, at the mode."""
        Phi = state.columns[:, state.model.members]
        start = state.model.w, state.model.b
        return laplace_posterior(Phi, t, state.model.alpha, self.intercept, start)[0]

    def _scales(self) -> list[float]:
        if self.n_starts == 1:
            return [_SCALES[1]]
        rng = np.random.default_rng(self.seed)
        more = 10.0 ** rng.uniform(-2.5, 0.5, max(0, self.n_starts - len(_SCALES)))
        return [*_SCALES[: self.n_starts], *more]

    def _around(self, state: State, model: Model, t: np.ndarray) -> tuple[Posterior, Curve]:
        """The mode of a model, and the Gaussian approximation there."""
        Phi = state.columns[:, model.members]
        posterior, y = laplace_posterior(
            Phi, t, model.alpha, self.intercept, (model.w, model.b), _MODE_TOL
        )
        return posterior, Curve(y, t, posterior, Phi, self.intercept)

    def _advance(self, state: State, design: Design, t: np.ndarray) -> None:
        """The model at hand is finished: what comes next."""
        state.found.append(state.model)
        state.steps = 0
        if state.waiting:
            state.stage, state.model = state.waiting.pop(0)
            return
        if len(state.found) > 1 and state.stage.startswith("start"):
            state.stage, state.model = "merge", _merge(state.found, len(state.pool))
            return
        last = state.model
        state.model = max(state.found, key=lambda model: model.log_evidence)
        state.found = [state.model]
        if state.stage == "merge" and state.model is not last:
            state.stage = "polish"  # the starts were ended early
            return
        state.vain = state.vain + 1 if state.stage == "look" and state.model is not last else 0
        new = self._look(state, design, t)
        if len(new) == 0:
            state.stop_reason = state.model.end
            return
        state.pool = np.concatenate([state.pool, new])
        columns = design.columns(new)
        state.columns = np.hstack([state.columns, columns])
        state.floor = np.concatenate([state.floor, _floor(columns, t)])
        state.stage = "look"

    def _look(self, state: State, design: Design, t: np.ndarray) -> np.ndarray:
        """The candidates, not yet at hand, that would gain most."""
        compressed = design.n_candidates > _EXACT_UP_TO and state.factor is not None
        if state.vain >= _VAIN_LOOKS or (compressed and state.looks >= _COMPRESSED_LOOKS):
            return np.empty(0, dtype=np.intp)
        state.looks += 1
        _, curve = self._around(state, state.model, t)
        if compressed and state.factor is not None:
            gains = absent_gains(*curve.compressed_statistics(state.factor))
        else:
            gains = absent_gains(*curve.statistics(design))
        gains[state.pool] = 0.0
        new = np.argsort(-gains, kind="stable")[: _LOOK if self.n_starts else 1]
        return new[gains[new] > _WORTH * self.tol]


def compression(design: Design, seed: int) -> LowRank:
    """All candidates in p = 4 sqrt m dimensions, 200 to 400, for the dense starts."""
    rank = int(np.clip(4.0 * np.sqrt(design.n_candidates), 200, 400))
    return low_rank(design, rank, np.random.default_rng(seed))


def _floor(columns: np.ndarray, t: np.ndarray) -> np.ndarray:
    return _FLOOR * np.einsum("i,ij,ij->j", t[:, 1], columns, columns) / float(np.sum(t[:, 1]))


def _merge(found: list[Model], size: int) -> Model:
    """One model with the average of the prior variances of all."""
    variance = np.zeros(size)
    for model in found:
        variance[model.members] += 1.0 / model.alpha / len(found)
    members = np.flatnonzero(variance)
    return Model(members, 1.0 / variance[members], np.zeros(len(members)), 0.0)
