"""The default relevance vector machine: dense starts on all candidates, merged and checked exactly.

Model: t = Phi w + e, w_j ~ N(0, 1/alpha_j), e ~ N(0, sigma2); evidence maximised over alpha and
sigma2 as in Tipping 2001 and Tipping & Faul 2003. The evidence has many maxima on kernels, and the
side one starts from decides which is found: from the empty model, 10 to 60 nats are lost against a
start from all columns. Here that start costs no n x n array.

    start    all candidates in p = max(200, 4 sqrt n) dimensions (`designs.lowrank`), in up to 1200
             where the last of them is not yet noise to the model (narrow kernels); the shared lam
             of best evidence; from `n_starts` multiples of it MacKay steps on all columns at once
             (`dense_start`); exact columns of the survivors of all starts: the set
    polish   each start: exact one-column maxima and Newton steps on the set (`polish`)
    merge    the prior variances 1/lam of all solutions averaged, polished with additions; the best
             solution goes on
    free     where an intercept was held until here: it is integrated out from now on
    exact    S and Q of all candidates from exact columns, the best of them into the set, polished;
             until no candidate is worth adding
    screen   instead, where the kernel has more than `exact_up_to`^2 values: S of all candidates by
             low rank, Q by low rank from the exact residual

The intercept is held at the mean of the target at first where the candidates fall off with distance
(`StationaryKernel`). Free from the beginning, it goes where wide functions balance it (60 standard
deviations of the target away, on Abalone), for no evidence to speak of; and far from the rows it is
the prediction. Until it is free, the evidence is that of the model without it.

One step of the run is one stage. lam = alpha sigma2 throughout, with the noise eliminated at its
best value (or given), so that nothing is rebuilt when the noise moves.

Convergence: no re-estimate or deletion gains `tol` nats, nor do Newton steps on all of them
together, off a saddle where there is one, and no addition 20 `tol`; additions are checked from
exact columns in the stage "exact", by low rank in "screen" (the last stage in the history tells
which). Columns worth less than that come and go without end.

Cost: n p^2 for the low rank, p^2 m per MacKay step while m falls quickly, n s^2 for a set of s
columns; n m k for an exact pass. Several outputs share lam, each with its own weights and noise.

Numbers: lam stays above 1e-12 |h|^2 and the factorisations come from Gram matrices, from columns
(QR) where these fail or where the noise is so small that the residual would cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..._array import (
    Array,
    PerTarget,
    is_torch,
    namespace,
    on_same_device,
    squared_lengths,
    to_numpy,
)
from ...callbacks import Reporter
from ...designs import Design
from ...designs.lowrank import LowRank, low_rank
from ...posterior import gaussian_posterior
from ...rows import row_slices
from ..noise import noise_floor
from ..run import Solution, StopReason
from .dense_start import dense_starts, reaches_noise, rotate
from .polish import (
    MANY,
    Budget,
    ColumnSet,
    Model,
    absent_gains,
    column_set,
    fits_exactly,
    limited,
    model_at,
    newton_past_saddle,
    polish,
    present_gains,
)
from .search import (
    MOST_NEW,
    WORTH,
    SearchState,
    fixes_intercept_first,
    merged,
    most_promising,
)

_ROUGH = 0.1  # nats that a round of the early polishing must gain to go on
_LEAST_RANK, _LEAST_START = 200, 150  # of the start, and its functions
_LARGEST_RANK = 1200  # of the start if the kernel needs more; Friedman#1, n = 1200, 1600
_FEW = 16  # products with all candidates that are stored together
_BLOCK = 2**16  # numbers of products that are worked on together
_WORK = 5e6  # k^3 of all rounds, per row: 100 rounds at k = sqrt(37 n); about 3 ms of one core
_WORK_ROWS = (
    2000  # fewer rows have the budget of this many: 300 x 900 columns need 1.1 of their own
)


class Info(NamedTuple):
    """One stage, for the reader."""

    stage: str
    log_evidence: float
    n_active: int
    noise_variance: PerTarget
    largest_gain: float
    n_set: int


@dataclass
class Candidates:
    """The gains from adding each candidate by itself, from exact columns or by low rank."""

    exact: bool
    norms: np.ndarray  # squared lengths, in the low rank where passes are not exact
    approximation: LowRank | None = None
    products: dict[int, Array] = field(default_factory=dict)  # Phi'phi_j, of active j

    def compress(self, design: Design, rank: int, seed: int) -> LowRank:
        """Return all columns in few dimensions."""
        self.approximation = low_rank(design, rank, np.random.default_rng(seed))
        return self.approximation

    def free_intercept(self, design: Design) -> None:
        """Update the squared lengths to those of centred columns."""
        if self.exact:
            self.norms = design.sqnorms()
        elif self.approximation is not None:
            # The low rank of plain columns serves: what is projected on it has mean zero.
            unit = design.root_weight
            along = to_numpy(self.approximation.project(unit))
            self.norms = self.norms - along**2 / (unit @ unit)

    def gains(self, design: Design, t: np.ndarray, columns: ColumnSet, model: Model) -> np.ndarray:
        """Return the nats from adding each candidate by itself."""
        active = columns.idx[model.A]
        # Most active columns are the same from scan to scan: their products are kept.
        new = [i for i, j in enumerate(active.tolist()) if j not in self.products]
        rows: Iterable[Array]
        if self.approximation is None or self.exact:
            both = design.project(_beside_residual(design.local_columns(active), t, model, new)).T
            rows, Q = both, both[len(new) :]
        else:
            along = self.approximation.along(_blocks_beside_residual(design, active, t, model, new))
            F = self.approximation.factor
            # A few at a time, so that those of columns that leave the model are given back.
            rows = (row for batch in row_slices(len(new), _FEW) for row in along[batch] @ F)
            Q = along[len(new) :] @ F
        self.products.update(zip(active[new].tolist(), rows, strict=False))
        self.products = {j: self.products[j] for j in active.tolist()}
        S = self.norms.copy()
        xp, kept, m = namespace(Q), list(self.products.values()), Q.shape[1]
        step = m if is_torch(Q) else max(64, _BLOCK // max(1, len(kept)))
        for first in range(0, m if kept else 0, step):
            part = slice(first, first + step)
            products = xp.stack([column[part] for column in kept])
            S[part] -= squared_lengths(on_same_device(products, model.root.T) @ products)
        Q = to_numpy(Q).T.reshape(m, *t.shape[1:])
        return columns.adding_gain(S, Q, self.norms, model.E)[1]


@dataclass
class State(SearchState):
    """The best model so far, and what the next stage needs."""

    candidates: Candidates = field(default_factory=lambda: Candidates(True, np.empty(0)))
    # Whether a scan has brought each candidate into the set.
    scanned: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    fixed_intercept: bool = False  # at the mean of the target
    budget: Budget = field(default_factory=lambda: Budget(0.0))
    largest_gain: float = np.nan  # at the last scan


@dataclass(frozen=True)
class AutoRVM:
    """Dense starts, merged and checked; see the module docstring.

    Parameters
    ----------
    noise_variance : None, float or array of shape (n_outputs,), default=None
        Fixed noise variance; None learns it.
    tol : float, default=1e-3
        Nats that no single re-estimate or deletion may gain at convergence, nor an addition 20
        times as much.
    n_starts : int, default=3
        Dense models to start from; what is left of them is merged.
    seed : int, default=0
        Draws the pivots of the low rank above 1,500 candidates.
    start : tuple of two arrays, optional
        Candidates and their lam to start from, instead of the dense starts.
    exact_up_to : int, default=3000
        Kernels of up to this number squared of values are checked from exact columns. Stored
        columns always are.
    reporter : Reporter, optional
        Told of the parts of a long stage. Where its time is over, a start is one of few dimensions
        and functions, and polishing ends.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers import AutoRVM, run
    >>> rng = np.random.default_rng(0)
    >>> Phi = rng.standard_normal((50, 10))
    >>> t = Phi[:, 3] + 0.1 * rng.standard_normal(50)
    >>> result = run(AutoRVM(), DenseDesign(Phi), t, max_iter=100)
    >>> result.converged, 3 in result.state.active
    (True, True)
    """

    noise_variance: PerTarget | None = None
    tol: float = 1e-3
    n_starts: int = 3
    seed: int = 0
    start: tuple[np.ndarray, np.ndarray] | None = None
    exact_up_to: int = 3000
    reporter: Reporter = field(default_factory=Reporter)

    def init(self, design: Design, t: np.ndarray) -> State:
        """Return the state before the first stage, without a model."""
        return State("start")

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """Run one stage."""
        t = _single(t)
        stage = state.stage
        if stage == "start":
            state.fixed_intercept = self.start is None and fixes_intercept_first(design)
        elif stage == "free":
            _free_intercept(state, design, t)
        if state.fixed_intercept:
            design = design.uncentred
        try:
            self._stage(state, design, t)
        except np.linalg.LinAlgError:
            # The Gram matrix of the set is not positive definite in float64; its triangle serves.
            if state.columns is None or state.columns.triangle is not None:
                raise
            _use_triangle(state, design, t)
            self._stage(state, design, t)
        if state.columns.triangle is None and fits_exactly(state.columns, state.model):
            # The Gram form of the residual has lost its digits.
            _use_triangle(state, design, t)
        if state.stop_reason:
            # The largest arrays are freed before a posterior takes its own.
            state.candidates = Candidates(True, np.empty(0))
        return state, self._info(stage, state, design)

    def done(self, state: State) -> StopReason | None:
        """Return why the search has finished, or None while it has not."""
        return state.stop_reason

    def solution(self, state: State, design: Design, t: np.ndarray) -> Solution:
        """Return the posterior from exact columns, with the best noise variance for this lam."""
        sigma2 = self.noise_variance
        if sigma2 is not None and t.ndim == 2:
            sigma2 = np.broadcast_to(sigma2, t.shape[1:])
        if sigma2 is None:
            sigma2 = np.einsum("i...,i...->...", t, t) / design.n_observations
            if state.model is not None:
                sigma2 = np.reshape(state.model.E / design.n_observations, t.shape[1:])
            sigma2 = np.maximum(sigma2, _floor(t, design))
            sigma2 = float(sigma2) if t.ndim == 1 else sigma2
        posterior = gaussian_posterior(design, t, state.active, state.lam, sigma2)
        return Solution(state.active, state.lam, posterior)

    # The stages.

    def _stage(self, state: State, design: Design, t: np.ndarray) -> None:
        if state.stage == "start":
            self._start(state, design, t)
        elif state.stage == "polish":
            self._polish(state)
        elif state.stage == "merge":
            self._merge(state)
        elif state.stage == "free":
            state.model = self._rough(state, state.model)
            state.stage = "exact" if state.candidates.exact else "screen"
        else:
            self._scan(state, design, t)

    def _start(self, state: State, design: Design, t: np.ndarray) -> None:
        """Take MacKay steps on all candidates in p dimensions, and form the survivors' columns."""
        values = design.n_rows * design.n_candidates
        exact = _is_stored(design) or values <= self.exact_up_to**2
        # Lengths first, so that a kernel that fits memory is kept.
        state.candidates = Candidates(exact, design.sqnorms() if exact else np.empty(0))
        state.scanned = np.zeros(design.n_candidates, dtype=bool)
        state.budget = Budget(_WORK * max(design.n_rows, _WORK_ROWS), self.reporter)
        floor = _floor(t, design)
        sigma2 = None if self.noise_variance is None else _single_value(self.noise_variance, t)
        if self.start is None:
            starts = self._dense_starts(state.candidates, design, t, sigma2, floor)
        else:
            starts = [self.start]
            if not exact:
                compressed = state.candidates.compress(design, _rank(design), self.seed)
                state.candidates.norms = squared_lengths(compressed.candidates())
        idx = np.unique(np.concatenate([kept for kept, _ in starts]))
        self.reporter.say(f"products of the {len(idx)} functions of {len(starts)} starts")
        starts = [(np.searchsorted(idx, kept), lam) for kept, lam in starts]
        columns = column_set(design, t, idx, sigma2, floor)
        try:
            state.waiting = [model_at(columns, A, lam) for A, lam in starts]
        except np.linalg.LinAlgError:
            columns = columns.with_triangle(design, t)
            state.waiting = [model_at(columns, A, lam) for A, lam in starts]
        state.columns = columns
        state.model = max(state.waiting, key=_rank_in(columns))
        state.stage = "polish"

    def _polish(self, state: State) -> None:
        """Polish the next start."""
        state.polished.append(polish(state.columns, state.waiting[0], _ROUGH, None, state.budget))
        del state.waiting[0]
        state.model = max(state.polished, key=_rank_in(state.columns))
        if not state.waiting:
            state.stage = "merge"

    def _merge(self, state: State) -> None:
        """Polish the average of the priors of all solutions too, and continue the best."""
        columns, solutions = state.columns, state.polished
        if len(solutions) > 1:
            average = model_at(columns, *merged(solutions, len(columns.idx)))
            solutions = [*solutions, self._rough(state, average)]
        state.model = self._rough(state, max(solutions, key=_rank_in(columns)))
        state.polished = []
        state.stage = (
            "free" if state.fixed_intercept else "exact" if state.candidates.exact else "screen"
        )

    def _rough(self, state: State, model: Model) -> Model:
        """Return the model polished with additions, but not to the last digit."""
        return polish(state.columns, model, _ROUGH, WORTH * self.tol, state.budget)

    def _scan(self, state: State, design: Design, t: np.ndarray) -> None:
        """Bring the candidates that would raise the evidence most into the set, and polish."""
        least_gain = WORTH * self.tol
        former = state.columns.idx
        gains_inside = _drop_idle(state)
        columns, model = state.columns, state.model
        gains_outside = state.candidates.gains(design, t, columns, model)
        gains_outside[former] = 0.0
        absent = max(
            float(np.max(gains_outside, initial=0.0)), float(np.max(gains_inside, initial=0.0))
        )
        present = float(np.max(present_gains(columns, model)[0], initial=0.0))
        state.largest_gain = max(absent, present)
        if absent < least_gain and present < self.tol:
            moved = newton_past_saddle(columns, model)
            gains = moved.L - model.L >= self.tol
            if gains and (self._time_is_over or not state.budget.exhausted(len(model.A))):
                state.model = moved
                return
            held_back = limited(columns, model, self.tol)
            state.stop_reason = StopReason.AT_BOUND if held_back else StopReason.CONVERGED
            return
        if state.budget.remaining <= 0.0:
            state.stop_reason = StopReason.EXHAUSTED
            return
        most = max(MOST_NEW, len(model.A) + MOST_NEW - MANY)
        new = np.sort(most_promising(gains_outside, 0.25 * least_gain, most))
        state.scanned[new] = True
        state.columns = columns = columns.extended(design, t, new)
        state.model = model = model_at(columns, model.A, model.lam)
        # To the last digit only once nothing much is to be had outside the set.
        polish_tol = (
            self.tol if np.max(gains_outside, initial=0.0) < _ROUGH else max(self.tol, _ROUGH)
        )
        polished = polish(columns, model, polish_tol, least_gain, state.budget)
        if polished.L - model.L < 1e-9 and len(new) == 0:
            held_back = limited(columns, polished, self.tol)
            state.stop_reason = StopReason.AT_BOUND if held_back else StopReason.STALLED
        state.model = polished

    # Helpers of the stages.

    @property
    def _time_is_over(self) -> bool:
        return self.reporter.budget.over

    def _dense_starts(
        self,
        candidates: Candidates,
        design: Design,
        t: np.ndarray,
        sigma2: PerTarget | None,
        floor: PerTarget,
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        n = design.n_observations
        tt = np.einsum("i...,i...->...", t, t)
        rank = _LEAST_RANK if self._time_is_over else _rank(design)
        while True:
            self.reporter.say(f"{design.n_candidates} functions in {rank} dimensions")
            compressed = candidates.compress(design, rank, self.seed)
            F, p = compressed.factor, len(compressed.triangle)
            size = np.ones(F.shape[1])
            if _is_stored(design):
                # Columns of any unit: one lam for columns of equal length.
                size = np.sqrt(squared_lengths(F))
                size[size == 0.0] = 1.0
                F = F / on_same_device(F, size)
            z, c = compressed.coordinates(t), compressed.triangle
            gram = c.T @ c if compressed.symmetric else None
            problem = rotate(F, z, tt, n, sigma2, floor, c, gram)
            largest = min(_LARGEST_RANK, design.n_candidates * 2 // 3)
            if _is_stored(design) or p < rank or rank >= largest or reaches_noise(problem):
                break
            if self._time_is_over:
                break
            rank = min(4 * rank, largest)
        self.reporter.say(f"steps on {design.n_candidates} functions in {p} dimensions")
        most = max(_LEAST_START, 3 * p // 4, min(p, design.n_rows // 25))
        factors = [0.1] if self.n_starts == 1 else np.logspace(0.0, -2.0, self.n_starts)
        if self._time_is_over:
            most, factors, problem = _LEAST_START, [0.1], problem.leading(_LEAST_RANK)
        starts, norms = dense_starts(problem, factors, most, self.reporter)
        if not candidates.exact:
            candidates.norms = norms
        return [(kept, lam * size[kept] ** 2) for kept, lam in starts]

    def _info(self, stage: str, state: State, design: Design) -> Info:
        columns, model = state.columns, state.model
        n, q = columns.n, columns.n_outputs
        if columns.sigma2 is None:
            noise = model.E / n
            constant = n * q * (np.log(2.0 * np.pi / n) + 1.0)
        else:
            noise = columns.sigma2
            constant = n * float(np.sum(np.log(2.0 * np.pi * np.broadcast_to(noise, q))))
        evidence = model.L - 0.5 * constant + q * design.log_volume
        if state.fixed_intercept:
            # A density of n - 1 numbers, as later: an intercept known up to sigma2 / n, integrated.
            evidence += 0.5 * float(np.sum(np.log(2.0 * np.pi * np.broadcast_to(noise, q) / n)))
        return Info(stage, evidence, len(model.A), noise, state.largest_gain, len(columns.idx))


def _beside_residual(Phi: Array, t: np.ndarray, model: Model, positions: list[int]) -> Array:
    """Return these columns of the model and its residual, on the same rows."""
    residual = on_same_device(Phi, t) - Phi @ on_same_device(Phi, model.mu)
    return namespace(Phi).concatenate([Phi[:, positions], residual.reshape(len(residual), -1)], 1)


def _blocks_beside_residual(
    design: Design, active: np.ndarray, t: np.ndarray, model: Model, positions: list[int]
) -> Iterator[tuple[slice, Array]]:
    for rows, block in design.blocks(active):
        part = rows, _beside_residual(block, t[rows], model, positions)
        del block  # before the next is there
        yield part


def _rank_in(columns: ColumnSet) -> Callable[[Model], tuple[bool, float]]:
    """Return the key to choose the best model: evidence, but no fit to the last digits.

    Where rows repeat exactly (weights above 1) the evidence of such a model has no bound.
    """
    return lambda model: (not fits_exactly(columns, model), model.L)


def _use_triangle(state: State, design: Design, t: np.ndarray) -> None:
    state.columns = columns = state.columns.with_triangle(design, t)
    state.waiting = [model_at(columns, model.A, model.lam) for model in state.waiting]
    state.polished = [model_at(columns, model.A, model.lam) for model in state.polished]
    state.model = model_at(columns, state.model.A, state.model.lam)


def _drop_idle(state: State) -> np.ndarray:
    """Drop columns that are neither active nor would gain; return the gains of the others.

    A candidate that a scan brought in stays: by low rank it would return without end.
    """
    columns, A = state.columns, state.model.A
    inside = absent_gains(columns, state.model)
    others = np.setdiff1d(np.flatnonzero((inside > 0.0) | state.scanned[columns.idx]), A)
    kept = np.concatenate([A, others])
    state.columns = columns.only(kept)
    state.model = state.model._replace(A=np.arange(len(A)))
    return inside[kept]


def _free_intercept(state: State, design: Design, t: np.ndarray) -> None:
    """Replace the columns by centred ones; t is centred already."""
    uncentred = state.columns
    floor = _floor(t, design)
    state.fixed_intercept = False
    state.columns = column_set(design, t, uncentred.idx, uncentred.sigma2, floor)
    if uncentred.triangle is not None:
        state.columns = state.columns.with_triangle(design, t)
    state.candidates.free_intercept(design)
    try:
        state.model = model_at(state.columns, state.model.A, state.model.lam)
    except np.linalg.LinAlgError:
        _use_triangle(state, design, t)


def _rank(design: Design) -> int:
    """Return the dimensions to compress the candidates to at first."""
    rank = max(_LEAST_RANK, int(4.0 * np.sqrt(design.n_rows)))
    if _is_stored(design):
        affordable = int(np.sqrt(2e9 / design.n_candidates))
        rank = max(rank, min(design.n_rows, design.n_candidates, affordable))
    return rank


def _is_stored(design: Design) -> bool:
    """Return whether the columns are stored, so that a pass over all of them is cheap."""
    return design.kernel is None


def _single(t: np.ndarray) -> np.ndarray:
    """Return a single output as a vector, which has closed forms."""
    return t[:, 0] if t.ndim == 2 and t.shape[1] == 1 else t


def _single_value(value: PerTarget, t: np.ndarray) -> PerTarget:
    return float(np.ravel(value)[0]) if t.ndim == 1 else np.broadcast_to(value, t.shape[1:])


def _floor(t: np.ndarray, design: Design) -> PerTarget:
    n = design.n_observations
    if t.ndim == 1:
        return noise_floor(t, n)
    return np.array([noise_floor(column, n) for column in t.T])
