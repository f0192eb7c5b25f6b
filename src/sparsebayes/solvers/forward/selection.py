"""Forward selection by marginal likelihood (Sun & Yao 2006).

Model: t = H w + e, w ~ N(0, Id/alpha), e ~ N(0, sigma2 Id), lam = alpha sigma2. For chosen columns
I, with P = (Id + H_I H_I'/lam)^-1,

    log p(t) = -1/2 [ N log(2 pi sigma2) + t'Pt/sigma2 - log|P| ],

and column i, with A_i = h_i'Pt and B_i = h_i'Ph_i (eq (4)), raises it by

    noise given:      A_i^2 / (2 sigma2 (lam + B_i)) + 1/2 log( lam/(lam + B_i) )           eq (5)
    noise at its best value S/N, S = t'Pt:
                      N/2 log( S/(S - A_i^2/(lam + B_i)) ) + 1/2 log( lam/(lam + B_i) ).

Each step takes the column of largest gain and updates A, B and S (eq (6)-(10), `greedy`). Cost:
one pass over the columns for each term, or n m^2 once for the Gram matrix of m candidates;
`routes` tells where A, B and C come from and when. Whatever the route, the path chosen ends as a
triangle of TRUE columns (`path`), from which evidence, posterior and every shorter model come.

The noise is given, or eliminated. lam is given, or learnt: a first path with lam = 1e-3 of the mean
square of the largest column, the best (lam, number of terms) along that path, and the path chosen
again with that lam, at most `replays` times and only where that lam is worth more than `tol` nats
on the old path and the evidence rises.

Deviations, and why:
- Eqs (2), (3), (5) print log(sigma2) as a factor of log|P|. With the paper's own sigma2 = 1 the
  determinant disappears and the gain is never negative. The factor is 1, and N/2 log(sigma2) is a
  term by itself.
- The path does not end at the first gain <= 0. Smooth kernels have nearly collinear columns: each
  costs 1/2 log(B/lam) at once and earns later. It runs to `max_terms` and is cut at its best
  evidence.
- Scores that the recursion has spoilt are not believed: on columns, the chosen one is
  orthogonalised again (twice) and accepted only if its true gain is still the largest.
- Where lam falls below what the Gram form can bear, or the evidence it claims is not that of the
  true columns, the path is chosen again from the triangle of the columns. That costs five times the
  Gram matrix. Where it would take longer than a few seconds the order is chosen with the smallest
  lam that the Gram form bears, and lam and the number of terms then come from the true columns of
  that path. On tables of 6,000 rows with 1,000 candidates that cost 7 and 14 nats of some
  thousands, and no accuracy; with a lam of 1e-3 of what the Gram form bears, a tenth of the gain.
- lam -> infinity means that nothing is explained: the empty model is returned.
- Several targets share the columns and lam; each has its noise, and their evidences are added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..._array import asarray_like, namespace
from ...designs import Design, check_columns
from ...rows._base import Report
from ..greedy import first_best
from ..noise import Noise, squares
from ..run import Solution, StopReason
from .path import GramPath, Path, best_terms
from .routes import GramScores, Route, Scores, cheapest_route, sturdier_route

FIRST_LAM = 1e-3  # of the mean square of the largest column
_NAT = 1.0  # gains equal up to the rounding of one nat are equal
_CLAIM = 0.01  # nats by which a Gram matrix may misjudge its path


class Info(NamedTuple):
    """One term, for the reader. `drift` is the relative error that A had gathered."""

    log_evidence: float
    n_active: int
    noise_variance: Any
    gain: float
    candidate: int
    regularization: float
    replay: int
    drift: float


class Found(NamedTuple):
    """A path with its best lam and number of terms."""

    log_evidence: float
    lam: float
    n_terms: int
    order: list[int]
    claimed: list[float]  # evidence along the path as its scores had it, at ...
    claimed_lam: float


@dataclass
class State:
    """The path being chosen, and the best of those before it."""

    scores: Scores
    noise: Noise
    regularization: float
    order: list[int] = field(default_factory=list)
    claimed: list[float] = field(default_factory=list)
    next: tuple[int, float] = (-1, 0.0)  # the term to add and what it gains
    replay: int = 0
    found: Found | None = None
    path: Path | None = None  # true columns of the best path, once the search has ended
    stop_reason: StopReason | None = None

    @property
    def active(self) -> np.ndarray:
        """The terms of the best path so far."""
        if self.found is None:
            return np.array(self.order, dtype=np.intp)
        return np.array(self.found.order[: self.found.n_terms], dtype=np.intp)

    @property
    def lam(self) -> np.ndarray:
        """Their regularisers, all equal."""
        lam = self.regularization if self.found is None else self.found.lam
        return np.full(len(self.active), lam)


@dataclass(frozen=True)
class Forward:
    """Greedy choice of columns by evidence; see the module docstring.

    Parameters
    ----------
    noise_variance : float or None, default=None
        Fixed noise variance; None eliminates it.
    regularization : float or None, default=None
        lam = noise variance times weight precision; None learns it.
    max_terms : int, default=300
        Most columns of a path.
    cut : bool, default=True
        Keep the part of the path with the highest evidence; False keeps all of it.
    tol : float, default=1.0
        Nats that a new lam must gain on the path to have it chosen again, and a replay to be kept.
    replays : int, default=3
        How often the path may be chosen again with a new lam.
    route : callable, optional
        Where the scores come from; the cheapest by default.
    memory : float, default=200
        Megabytes that a Gram matrix may take.
    single : bool, default=False
        Take float32 products for it where the given regularization allows that.
    report : callable, optional
        Told the number of rows read while it is formed.
    start : float, optional
        The lam of the first path, where it is learnt.
    pays : float, optional
        Gain in nats of the last tenth of a path of `max_terms` above which a longer path pays. The
        search then ends as `StopReason.LONGER_PATH`, and the path is not measured on true columns.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers import Forward, run
    >>> rng = np.random.default_rng(0)
    >>> Phi = rng.standard_normal((50, 10))
    >>> t = 2 * Phi[:, 3] - Phi[:, 7] + 0.1 * rng.standard_normal(50)
    >>> run(Forward(), DenseDesign(Phi), t, max_iter=100).state.active
    array([3, 7])
    """

    noise_variance: float | None = None
    regularization: float | None = None
    max_terms: int = 300
    cut: bool = True
    tol: float = 1.0
    replays: int = 3
    route: Route | None = None
    memory: float = 200.0
    single: bool = False
    report: Report | None = None
    start: float | None = None
    pays: float | None = None

    def init(self, design: Design, t: np.ndarray) -> State:
        """Open the route; no term chosen."""
        noise = Noise.from_design(design, t, self.noise_variance)
        route = self.route or partial(
            cheapest_route,
            max_terms=self._limit(design),
            passes=1 if self.regularization is not None else 1 + self.replays,
            lam=self.regularization,
            memory=self.memory,
            single=self.single,
            report=self.report,
        )
        state = State(route(design, t), noise, self.regularization or 0.0)
        largest = float(np.max(state.scores.norms, initial=0.0))
        check_columns(design, state.scores.norms)
        if self.regularization is None:
            state.regularization = self.start or FIRST_LAM * largest / max(noise.n, 1.0)
        if largest == 0.0:
            state.stop_reason = StopReason.NO_CANDIDATE
        elif not np.any(t):
            state.stop_reason = StopReason.NO_SIGNAL
        else:
            self._begin(state, design, t, state.regularization)
        return state

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """Choose one more term; at the end of the path, judge it and go on or stop."""
        scores = state.scores
        i, gain = state.next
        drift = scores.drift
        scores.add(i)
        state.order.append(i)
        state.claimed.append(state.claimed[-1] + gain)
        info = Info(
            state.claimed[-1],
            len(state.order),
            state.noise.best(scores.S)[()],
            gain,
            i,
            state.regularization,
            state.replay,
            drift,
        )
        if len(state.order) >= self._limit(design):
            self._judge(state, design, t, StopReason.MAX_TERMS)
        elif state.noise.fixed is None and np.all(scores.S <= state.noise.n * state.noise.floor):
            self._judge(state, design, t, StopReason.EXACT_FIT)
        else:
            state.next = self._choose(state)
            if state.next[0] < 0:
                self._judge(state, design, t, StopReason.NO_CANDIDATE)
        return state, info

    def done(self, state: State) -> StopReason | None:
        """Return why the search has finished, or None while it has not."""
        return state.stop_reason

    def solution(self, state: State, design: Design, t: np.ndarray) -> Solution:
        """Return the posterior from exact columns, with the best noise variance."""
        path, found = self.best_path(state, design, t)
        posterior = path.posterior(found.n_terms, found.lam, state.noise)
        return Solution(state.active, state.lam, posterior)

    def best_path(self, state: State, design: Design, t: np.ndarray) -> tuple[Path, Found]:
        """Return the best path as a triangle of exact columns, and its best number of terms.

        The path of an interrupted run is incomplete, or a complete one from before.
        """
        if state.path is None:
            if state.found is None:
                state.found, _ = self._best_part(state, design, t)
            state.path = Path.from_columns(design, t, np.array(state.found.order, dtype=np.intp))
        assert state.found is not None
        return state.path, state.found

    # The path.

    def _limit(self, design: Design) -> int:
        return min(self.max_terms, design.n_candidates)

    def _begin(self, state: State, design: Design, t: np.ndarray, lam: float) -> None:
        if lam <= state.scores.smallest_lam:
            state.scores = sturdier_route(design, t) or state.scores
            lam = max(lam, state.scores.smallest_lam)
        state.regularization = lam
        state.scores.begin(lam, self._limit(design))
        state.order = []
        state.claimed = [float(state.noise.log_evidence(state.scores.S, 0.0))]
        state.next = self._choose(state)
        if state.next[0] < 0:
            state.stop_reason = StopReason.NO_CANDIDATE

    def _choose(self, state: State) -> tuple[int, float]:
        """The column of largest gain, after a closer look at those that claim it; -1 for none."""
        scores, noise, lam = state.scores, state.noise, state.regularization
        scores.absorb()
        gains = _gains(scores.A, scores.B, scores.S, lam, noise)
        xp = namespace(gains)
        gains = xp.where(scores.free & xp.isfinite(gains), gains, -np.inf)
        while (i := first_best(gains, _NAT)) >= 0:
            gain = float(_gains(*scores.examine(i), scores.S, lam, noise))
            gains[i] = gain if np.isfinite(gain) else -np.inf
            if first_best(gains, _NAT) == i:
                return i, gain
        return -1, 0.0

    # The best part of it, and whether to choose it again.

    def _best_part(
        self, state: State, design: Design, t: np.ndarray
    ) -> tuple[Found, Path | GramPath]:
        """The best part of the path that was just chosen, and the path."""
        order, scores = np.array(state.order, dtype=np.intp), state.scores
        path: Path | GramPath
        lam = self.regularization or state.regularization
        if isinstance(scores, GramScores) and scores.exact and lam >= scores.smallest_lam:
            path = GramPath(scores.G[np.ix_(order, order)], scores.a[order], scores.tt)
        else:
            path = Path.from_columns(design, t, order)
        lam, known = state.regularization, state.replay > 0 or self.start is not None
        found = self._part_of(path, state.order, state.claimed, lam, state.noise, t, known)
        return found, path

    def _part_of(
        self,
        path: Path | GramPath,
        order: list[int],
        claimed: list[float],
        claimed_lam: float,
        noise: Noise,
        t: np.ndarray,
        known: bool = False,
    ) -> Found:
        """The best lam and number of terms of a path; `known`: from a path like this."""
        empty = float(noise.log_evidence(squares(t), 0.0))
        lam = self.regularization or claimed_lam
        if len(order) == 0:
            return Found(empty, lam, 0, [], [empty], lam)
        k = None if self.cut else len(order)
        if self.regularization is None:
            lam, k, value = best_terms(path, noise, k, claimed_lam if known else None)
        else:
            curve = path.curve(lam, noise)
            k = k or int(np.argmax(curve[1:])) + 1
            value = float(curve[k])
        if value <= empty and (self.cut or self.regularization is None):
            value, k = empty, 0
        return Found(value, lam, k, order, claimed, claimed_lam)

    def _judge(self, state: State, design: Design, t: np.ndarray, reason: StopReason) -> None:
        """At the end of a path: keep it if it is the best, choose it again if that may pay."""
        before = state.found
        found, chosen = self._best_part(state, design, t)
        if self.pays is not None and reason is StopReason.MAX_TERMS:
            curve = chosen.curve(found.lam, state.noise)
            if curve[-1] - curve[int(0.9 * (len(curve) - 1))] > self.pays:
                state.found, state.stop_reason = found, StopReason.LONGER_PATH
                return
        better = before is None or found.log_evidence > before.log_evidence + self.tol
        if better:
            state.found = found
        learnt = self.regularization is None
        # What the new lam is worth, on this path.
        worth = found.log_evidence - (max(found.claimed) if self.cut else found.claimed[-1])
        if learnt and better and state.replay < self.replays and worth > self.tol:
            state.replay += 1
            self._begin(state, design, t, found.lam)
            return
        assert state.found is not None
        found = state.found
        path = Path.from_columns(design, t, np.array(found.order, dtype=np.intp))
        if isinstance(state.scores, GramScores) and state.scores.exact:
            true = float(path.curve(found.lam, state.noise)[found.n_terms])
            doubtful = abs(true - found.log_evidence) > max(_CLAIM, 1e-9 * abs(true))
            sturdier = sturdier_route(design, t) if doubtful else None
            if sturdier is not None:
                state.scores, state.found = sturdier, None
                self._begin(state, design, t, found.lam)
                return
            if doubtful or (learnt and found.lam <= state.scores.smallest_lam):
                # The order stands; the columns themselves say how much of it to keep.
                found = self._part_of(
                    path, found.order, found.claimed, found.claimed_lam, state.noise, t
                )
                state.found = found
        state.path = path
        if found.n_terms == 0:
            reason = StopReason.NO_SIGNAL
        elif found.n_terms < len(found.order):
            reason = StopReason.EVIDENCE
        state.stop_reason = reason


def _gains(A: Any, B: Any, S: Any, lam: float, noise: Noise) -> Any:
    """What each column would add to the log evidence, of all targets together."""
    xp, several = namespace(A), A.ndim > B.ndim
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        removed = A * A / ((lam + B)[..., None] if several else lam + B)
        S, fixed, floor = (
            asarray_like(A, value) if several and value is not None else value
            for value in (S, noise.fixed, noise.floor)
        )
        if fixed is not None:
            fit = 0.5 * removed / fixed
        else:
            n, low = noise.n, max(noise.n, 1.0) * floor
            most = S - low
            fit = -0.5 * n * xp.log1p(-xp.where(removed < most, removed, most) / S)
            # Below the floor the noise stays and the squares still fall.
            left = xp.clip(S - removed, 0.0, np.inf)
            fit += 0.5 * xp.clip(low - left, 0.0, np.inf) / floor
        spent = 0.5 * xp.log1p(B / lam)
        return fit.sum(axis=-1) - A.shape[-1] * spent if several else fit - spent
