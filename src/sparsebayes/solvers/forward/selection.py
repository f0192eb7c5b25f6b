"""Forward selection by marginal likelihood (Sun & Yao 2006).

Model: t = H w + e, w ~ N(0, Id/alpha), e ~ N(0, sigma2 Id), lam = alpha sigma2. For chosen columns
I, with P = (Id + H_I H_I'/lam)^-1,

    log p(t) = -1/2 [ N log(2 pi sigma2) + t'Pt/sigma2 - log|P| ],

and column i, with A_i = h_i'Pt and B_i = h_i'Ph_i (eq (4)), raises it by

    noise given:      A_i^2 / (2 sigma2 (lam + B_i)) + 1/2 log( lam/(lam + B_i) )           eq (5)
    noise at its best value S/N, S = t'Pt:
                      N/2 log( S/(S - A_i^2/(lam + B_i)) ) + 1/2 log( lam/(lam + B_i) ).

Each step takes the column of largest gain and updates A, B and S (eq (6)-(10), `greedy`). Cost:
one pass over the columns for each term, or n m^2 once for the Gram matrix of m candidates
(`routes`). Whatever the route, the chosen path ends as a triangle of exact columns (`path`), from
which the evidence, the posterior and every shorter model come.

The noise is given, or eliminated. lam is given, or learnt: a first path is chosen with lam = 1e-3
of the mean square of the largest column, lam and the number of terms are optimised along that path,
and the path is chosen again with that lam. This is repeated at most `replays` times, as long as the
new lam gains more than `tol` nats on the old path and the evidence rises.

Deviations, and why:
- Eqs (2), (3), (5) print log(sigma2) as a factor of log|P|. With the paper's own sigma2 = 1 the
  determinant disappears and the gain is never negative. The factor is 1, and N/2 log(sigma2) is a
  term by itself.
- The path does not end at the first gain <= 0. Smooth kernels have nearly collinear columns: each
  costs 1/2 log(B/lam) at once and earns later. It runs to `max_terms` and is cut at its best
  evidence.
- The recursion loses digits. On columns, the best candidate is orthogonalised again (twice) and
  chosen only if its exact gain is still the largest.
- Where lam is too small for the Gram matrix, or the evidence from it is not that of the exact
  columns, the path is chosen again from the triangle of the columns. That costs five times the Gram
  matrix. Where it would take longer than a few seconds, the order is chosen with the smallest lam
  for which the Gram matrix is accurate, and lam and the number of terms then come from the exact
  columns of that path. On tables of 6,000 rows with 1,000 candidates that cost 7 and 14 nats of
  some thousands, and no accuracy; with a lam of 1e-3 of that bound, a tenth of the gain.
- lam -> infinity means that no term is needed: the empty model is returned.
- Several targets share the columns and lam. Each has its noise, and their evidences are added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from ..._array import Array, PerTarget, asarray_like
from ...designs import Design, check_columns
from ...rows._base import Report
from ..greedy import first_best
from ..noise import Noise, squares
from ..run import Solution, StopReason
from .path import CLAIM_ERROR, GramPath, Path, best_terms
from .routes import GramScores, Route, Scores, cheapest_route, fallback_route

FIRST_LAM = 1e-3  # of the mean square of the largest column
_NAT = 1.0  # unit of gains: those that differ by its rounding are equal


class Info(NamedTuple):
    """Record of one term."""

    log_evidence: float
    n_active: int
    noise_variance: PerTarget
    gain: float
    candidate: int
    regularization: float
    replay: int
    drift: float  # relative error of A of the candidate before it was examined


class BestTerms(NamedTuple):
    """The best lam and number of terms of a path."""

    log_evidence: float
    lam: float
    n_terms: int
    order: list[int]
    claimed: list[float]  # evidence along the path by its scores, at `claimed_lam`
    claimed_lam: float


@dataclass
class State:
    """The path being chosen, and the best path so far."""

    scores: Scores
    noise: Noise
    regularization: float
    order: list[int] = field(default_factory=list)
    claimed: list[float] = field(default_factory=list)
    next: tuple[int, float] = (-1, 0.0)  # the term to add, and its gain
    replay: int = 0
    best: BestTerms | None = None
    path: Path | None = None  # exact columns of the best path, once the search has ended
    stop_reason: StopReason | None = None

    @property
    def active(self) -> np.ndarray:
        """Terms of the best path so far."""
        if self.best is None:
            return np.array(self.order, dtype=np.intp)
        return np.array(self.best.order[: self.best.n_terms], dtype=np.intp)

    @property
    def lam(self) -> np.ndarray:
        """Regulariser of each of these terms, all equal."""
        lam = self.regularization if self.best is None else self.best.lam
        return np.full(len(self.active), lam)


@dataclass(frozen=True)
class Forward:
    """Greedy selection of columns by evidence; see the module docstring.

    Parameters
    ----------
    noise_variance : float or None, default=None
        Fixed noise variance; None eliminates it.
    regularization : float or None, default=None
        lam = noise variance times weight precision; None learns it.
    max_terms : int, default=300
        Largest number of columns of a path.
    cut : bool, default=True
        Whether to keep the terms of highest evidence; False keeps the whole path.
    tol : float, default=1.0
        Gain in nats of a new lam on the path above which the path is chosen again, and gain of the
        new path above which it is kept.
    replays : int, default=3
        Number of times that the path may be chosen again with a new lam.
    route : callable, optional
        How the scores are computed; the fastest way by default.
    memory : float, default=200
        Megabytes that a Gram matrix may take.
    single : bool, default=False
        Whether its products may be in float32, if the given regularization allows that.
    report : callable, optional
        Called with the number of rows read while it is formed.
    start : float, optional
        The lam of the first path, if it is learnt.
    set_prior : bool, default=False
        Whether every number of columns is as likely a priori as every other, and every set of k
        columns as every other such set: k of m columns then cost log C(m, k) nats. Without it the
        best of many useless columns raises the evidence.
    gram_path : bool, default=False
        Whether the triangle of the path may come from the Gram matrix of the scores where lam lets
        it, without another pass. It is then good for ``path.smallest_lam`` and above.
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
    set_prior: bool = False
    gram_path: bool = False

    def init(self, design: Design, t: np.ndarray) -> State:
        """Compute the scores of all candidates."""
        noise = Noise.from_design(design, t, self.noise_variance)
        route = self.route or partial(
            cheapest_route,
            max_terms=self._limit(design),
            passes=1 if self.regularization is not None else 1 + self.replays,
            lam=self.regularization,
            memory=self.memory,
            single=self.single,
            gram_path=self.gram_path,
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
        """Choose one more term; at the end of the path, decide whether to choose it again."""
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
            self._end_path(state, design, t, StopReason.MAX_TERMS)
        elif state.noise.fixed is None and np.all(scores.S <= state.noise.n * state.noise.floor):
            self._end_path(state, design, t, StopReason.EXACT_FIT)
        else:
            state.next = self._choose(state)
            if state.next[0] < 0:
                self._end_path(state, design, t, StopReason.NO_CANDIDATE)
        return state, info

    def done(self, state: State) -> StopReason | None:
        """Return why the search has finished, or None while it has not."""
        return state.stop_reason

    def solution(self, state: State, design: Design, t: np.ndarray) -> Solution:
        """Return the posterior from exact columns, with the best noise variance."""
        path, best = self.best_path(state, design, t)
        posterior = path.posterior(best.n_terms, best.lam, state.noise)
        return Solution(state.active, state.lam, posterior)

    def best_path(self, state: State, design: Design, t: np.ndarray) -> tuple[Path, BestTerms]:
        """Return the best path as a triangle of exact columns, and its best number of terms.

        The path of an interrupted run is incomplete, or a complete one from before.
        """
        if state.path is None:
            if state.best is None:
                state.best, _ = self._best_terms(state, design, t)
            state.path = Path.from_columns(design, t, np.array(state.best.order, dtype=np.intp))
        assert state.best is not None
        return state.path, state.best

    # The path.

    def _limit(self, design: Design) -> int:
        return min(self.max_terms, design.n_candidates)

    def _begin(self, state: State, design: Design, t: np.ndarray, lam: float) -> None:
        """Begin a path with this lam, from other scores if these are not accurate there."""
        if lam <= state.scores.smallest_lam:
            state.scores = fallback_route(design, t) or state.scores
            lam = max(lam, state.scores.smallest_lam)
        state.regularization = lam
        state.scores.begin(lam, self._limit(design))
        state.order = []
        state.claimed = [float(state.noise.log_evidence(state.scores.S, 0.0))]
        state.next = self._choose(state)
        if state.next[0] < 0:
            state.stop_reason = StopReason.NO_CANDIDATE

    def _choose(self, state: State) -> tuple[int, float]:
        """Return the column of largest gain, examined, and its gain; -1 if there is none."""
        scores, noise, lam = state.scores, state.noise, state.regularization
        scores.absorb()
        xp = scores.xp
        gains = _gains(scores.A, scores.B, scores.S, lam, noise, xp)
        gains = xp.where(scores.free & xp.isfinite(gains), gains, -np.inf)
        while (i := first_best(gains, _NAT)) >= 0:
            gain = float(_gains(*scores.examine(i), scores.S, lam, noise))
            gains[i] = gain if np.isfinite(gain) else -np.inf
            if first_best(gains, _NAT) == i:
                return i, gain
        return -1, 0.0

    # The best terms of a path, and whether to choose it again.

    def _best_terms(
        self, state: State, design: Design, t: np.ndarray
    ) -> tuple[BestTerms, Path | GramPath]:
        """Return the best terms of the path that was just chosen, and the path."""
        order, scores = np.array(state.order, dtype=np.intp), state.scores
        path: Path | GramPath
        lam = self.regularization or state.regularization
        if isinstance(scores, GramScores) and scores.exact and lam >= scores.smallest_lam:
            path = _chosen_gram(scores, order)
        else:
            path = Path.from_columns(design, t, order)
        lam, near = state.regularization, state.replay > 0 or self.start is not None
        prior = self._log_prior(design, len(order), t)
        best = self._best_terms_of(
            path, state.order, state.claimed, lam, state.noise, t, near, prior
        )
        return best, path

    def _log_prior(self, design: Design, n_terms: int, t: np.ndarray) -> np.ndarray:
        """Return the log prior of 0, 1, 2, ... terms of a path, once for each target."""
        k, m = np.arange(n_terms + 1.0), float(design.n_candidates)
        if not self.set_prior:
            return np.zeros(n_terms + 1)
        k = np.minimum(k, m // 2)  # more columns are never more likely
        n_targets = t.shape[1] if t.ndim == 2 else 1
        return n_targets * (gammaln(k + 1.0) + gammaln(m - k + 1.0) - gammaln(m + 1.0))

    def _best_terms_of(
        self,
        path: Path | GramPath,
        order: list[int],
        claimed: list[float],
        claimed_lam: float,
        noise: Noise,
        t: np.ndarray,
        near: bool = False,
        log_prior: np.ndarray | None = None,
    ) -> BestTerms:
        """Return the best terms of a path; `near` is True if its lam came from a similar path.

        The evidence that it reports includes `log_prior`, that of 0, 1, 2, ... terms.
        """
        if log_prior is None:
            log_prior = np.zeros(len(order) + 1)
        empty = float(noise.log_evidence(squares(t), 0.0))
        lam = self.regularization or claimed_lam
        if len(order) == 0:
            return BestTerms(empty, lam, 0, [], [empty], lam)
        k = None if self.cut else len(order)
        if self.regularization is None:
            around = claimed_lam if near else None
            lam, k, value = best_terms(path, noise, k, around, log_prior)
        else:
            curve = path.curve(lam, noise) + log_prior
            k = k or int(np.argmax(curve[1:])) + 1
            value = float(curve[k])
        if value <= empty and (self.cut or self.regularization is None):
            value, k = empty, 0
        return BestTerms(value, lam, k, order, claimed, claimed_lam)

    def _end_path(self, state: State, design: Design, t: np.ndarray, reason: StopReason) -> None:
        """Keep the path if it is the best so far; choose it again, or finish."""
        before = state.best
        best, path = self._best_terms(state, design, t)
        if self.pays is not None and reason is StopReason.MAX_TERMS:
            curve = path.curve(best.lam, state.noise)
            if curve[-1] - curve[int(0.9 * (len(curve) - 1))] > self.pays:
                state.best, state.stop_reason = best, StopReason.LONGER_PATH
                return
        better = before is None or best.log_evidence > before.log_evidence + self.tol
        if better:
            state.best = best
        learnt = self.regularization is None
        # Gain of the new lam on this path.
        claimed = np.asarray(best.claimed) + self._log_prior(design, len(best.claimed) - 1, t)
        gain = best.log_evidence - (np.max(claimed) if self.cut else claimed[-1])
        if learnt and better and state.replay < self.replays and gain > self.tol:
            state.replay += 1
            self._begin(state, design, t, best.lam)
            return
        assert state.best is not None
        best = state.best
        path = self._triangle(state.scores, best, design, t)
        if isinstance(state.scores, GramScores) and state.scores.exact:
            exact = float(path.curve(best.lam, state.noise)[best.n_terms])
            inaccurate = abs(exact - best.log_evidence) > max(CLAIM_ERROR, 1e-9 * abs(exact))
            fallback = fallback_route(design, t) if inaccurate else None
            if fallback is not None:
                state.scores, state.best = fallback, None
                self._begin(state, design, t, best.lam)
                return
            if inaccurate or (learnt and best.lam <= state.scores.smallest_lam):
                # The order is kept; the number of terms comes from the exact columns.
                best = self._best_terms_of(
                    path, best.order, best.claimed, best.claimed_lam, state.noise, t
                )
                state.best = best
        state.path = path
        if best.n_terms == 0:
            reason = StopReason.NO_SIGNAL
        elif best.n_terms < len(best.order):
            reason = StopReason.EVIDENCE
        state.stop_reason = reason

    def _triangle(self, scores: Scores, best: BestTerms, design: Design, t: np.ndarray) -> Path:
        """Return the columns of the best path as a triangle, without a pass where that will do."""
        order, source = np.array(best.order, dtype=np.intp), (design, t)
        if isinstance(scores, GramScores):
            if self.gram_path and scores.exact:
                path = Path.from_gram(_chosen_gram(scores, order), design, order)
                if path is not None and best.lam >= path.smallest_lam:
                    return path
            source = scores.triangle or source
        return Path.from_columns(*source, order)


def _chosen_gram(scores: GramScores, order: np.ndarray) -> GramPath:
    return GramPath(scores.G[np.ix_(order, order)], scores.a[order], scores.tt)


def _gains(
    A: Array, B: Array, S: PerTarget, lam: float, noise: Noise, xp: ModuleType = np
) -> Array:
    """Return what each column would add to the log evidence of all targets together.

    `xp` is the module whose functions take A and B.
    """
    several, fixed, floor = A.ndim > B.ndim, noise.fixed, noise.floor
    if several:
        S, floor = asarray_like(A, S), asarray_like(A, floor)
        fixed = None if fixed is None else asarray_like(A, fixed)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        explained = A * A / ((lam + B)[..., None] if several else lam + B)
        if fixed is not None:
            fit = 0.5 * explained / fixed
        else:
            n, low = noise.n, max(noise.n, 1.0) * floor
            most = S - low
            fit = -0.5 * n * xp.log1p(-xp.where(explained < most, explained, most) / S)
            # Below the floor the noise variance stays, and the squares still fall.
            remaining = xp.clip(S - explained, 0.0, np.inf)
            fit += 0.5 * xp.clip(low - remaining, 0.0, np.inf) / floor
        penalty = 0.5 * xp.log1p(B / lam)
        return fit.sum(axis=-1) - A.shape[-1] * penalty if several else fit - penalty
