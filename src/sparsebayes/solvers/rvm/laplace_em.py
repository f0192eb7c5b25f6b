"""The basic relevance vector machine for labels, from sums over the rows alone.

Model and fixed points are those of `laplace` (Tipping 2001, section 3): p(label) = sigma(y), y =
Phi w + b, Laplace approximation, alpha = gamma/w^2. Here no n-long array is kept. What a step needs
from the rows are sums over them (`laplace_sums`), which may be read chunk by chunk, anywhere. At y,
with Omega = sigma(1 - sigma) and the columns centred by Omega (intercept), they give the Gaussian
approximation

    G = Phi'Omega Phi,   r = G w + Phi'(label - sigma),   H = G + A,   H mu = r,

and what follows involves no rows. Each stage takes one step after each pass over the rows:

1. Shared: one alpha for all columns, by MacKay steps (alpha <- sum gamma / mu'mu), until it has
   settled. From the mode of that model, with .3 times its alpha, the next stages end at a higher
   evidence than from y = 0 (1 to 8 nats on three data sets), whose approximation drops functions
   too soon.
2. MacKay: steps on all columns, alpha_j <- gamma_j/mu_j^2, 15 in all and 3 around each y. A column
   with gamma_j below 1e-3 is dropped.
3. Sweep: exact one-column optima (`laplace_curvature`), re-estimates and deletions, until none
   gains `tol` nats; then all precisions together, until the evidence no longer moves.
4. Mode: Newton steps with alpha fixed.

Each pass also computes the likelihood at the point before. Where the penalised likelihood has
fallen, a quarter of the step is taken instead.

Cost: n k^2 a pass, about 15 passes, of which 9 with all columns; k^3 beside it.

Deviations: the paper finds the mode again after each step on alpha. alpha is kept above 1e-8 of the
mean square of its column, as in `laplace`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from ..._array import to_numpy
from ...designs import Design
from ...linalg import inverse_root
from ...posterior import Dense, Posterior, laplace_posterior
from ..run import Solution, StopReason
from .laplace import STILL, Info
from .laplace_curvature import CONSTANT, UNIT_NOISE, newton_precisions, sweep_precisions
from .laplace_sums import Step, Summing, Sums
from .one_column import SMALLEST_LAM, moving_gain

_SHARED = (3, 8)  # fewest and most passes with one alpha for all columns
_SHARED_SETTLED = 0.3  # change of its logarithm
_BEGIN = 0.3  # of the shared alpha: where the separate ones begin
_STEPS, _AT_ONCE = 15, 3  # MacKay steps, in all and around one y
_DROP = 1e-3  # gamma_j below which a column is dropped
_SWEEPS = 60  # passes
_MODE_PASSES = 30
_NEAR = 1e-6  # nats that the next Newton step promises, near enough for statistics of columns
_FLOOR = 1e-8  # alpha over the mean square of its column
_ROUNDING = 1e-10  # of the penalised likelihood
_BACK = 0.25  # share of a step that was too long
_MOST_BACK = 30
_MOST_RIDGE = 1e-2  # largest alpha/|h|^2 that rounding can require


class Stage(StrEnum):
    """The kind of the next step; see the module docstring."""

    SHARED = "shared"
    MACKAY = "mackay"
    SWEEP = "sweep"
    MODE = "mode"
    DONE = "done"


class _Gaussian(NamedTuple):
    """The Gaussian approximation around a point; columns are centred by its curvature."""

    G: np.ndarray
    r: np.ndarray
    centre: np.ndarray  # of the columns less their shift
    offset: float  # latent value at the point, where the columns equal the centre
    step_b: float  # of the next Newton step
    slope: np.ndarray
    total: float


class _Pass(NamedTuple):
    """The result of a pass over the rows, at the point that it was made at."""

    gaussian: _Gaussian
    intercept: bool
    root: np.ndarray  # of (G + A)^-1
    mu: np.ndarray  # weights of the Gaussian approximation
    value: float  # penalised log-likelihood
    promised: float  # what the next Newton step adds to it
    evidence_change: float  # since the pass before

    @property
    def W(self) -> np.ndarray:
        """Variances of the weights."""
        return np.einsum("ij,ij->i", self.root, self.root)


@dataclass(frozen=True)
class LaplaceState:
    """The search of one binary problem: a point, the step that led to it, and the precisions.

    The latent function is y = (Phi - shift)(w + dw) + b + db; (w, b) is the point before. The next
    pass over the rows decides whether the step (dw, db) is accepted.
    """

    members: np.ndarray  # remaining columns
    w: np.ndarray
    dw: np.ndarray
    shift: np.ndarray
    floor: np.ndarray  # the smallest alpha of each; empty before the first pass
    alpha: np.ndarray  # empty before the first pass
    b: float = 0.0
    db: float = 0.0
    stage: Stage = Stage.SHARED
    count: int = 0  # passes or MacKay steps of this stage
    back: int = 0  # steps in a row that were too long
    stop_reason: StopReason | None = None  # why alpha was settled
    mode_tol: float = 1e-8
    log_evidence: float = -np.inf
    largest_gain: float = np.inf
    posterior: Posterior | None = None  # when finished

    @classmethod
    def begin(cls, n_columns: int) -> LaplaceState:
        """Return a search over all columns, from y = 0."""
        zeros = np.zeros(n_columns)
        return cls(np.arange(n_columns), zeros, zeros, zeros, np.empty(0), np.empty(0))

    @classmethod
    def near(cls, w: np.ndarray, b: float, alpha: np.ndarray) -> LaplaceState:
        """Return a search from a model; new columns have weight zero and a guess of alpha."""
        zeros, members = np.zeros(len(w)), np.arange(len(w))
        return cls(members, w, zeros, zeros, np.empty(0), alpha, b, stage=Stage.MACKAY)

    @classmethod
    def at(cls, w: np.ndarray, b: float, alpha: np.ndarray, mode_tol: float) -> LaplaceState:
        """Return a search for the mode of given precisions, from a point near it."""
        zeros = np.zeros(len(w))
        members = np.arange(len(w))
        return cls(members, w, zeros, zeros, zeros, alpha, b, stage=Stage.MODE, mode_tol=mode_tol)

    @property
    def finished(self) -> bool:
        """True where the mode has been reached."""
        return self.stage == Stage.DONE

    @property
    def step(self) -> Step:
        """The step that the next pass over the rows judges."""
        return Step(self.w, self.dw, self.shift, self.b, self.db)

    @property
    def intercept(self) -> float:
        """Latent value where the functions are zero."""
        return float(self.b + self.db - self.shift @ (self.w + self.dw))

    @property
    def weights(self) -> np.ndarray:
        """The weights of the members."""
        return self.w + self.dw

    def held(self, reason: StopReason) -> LaplaceState:
        """Return the search with alpha fixed from now on."""
        if self.stage in (Stage.MODE, Stage.DONE):
            return self
        return replace(self, stage=Stage.MODE, count=0, stop_reason=reason)

    def advance(self, sums: Sums, intercept: bool, tol: float) -> LaplaceState:
        """Return the search after its next step, given the sums over the rows at this point."""
        search = self._with_precisions(sums)
        w = search.weights
        before = sums.before - 0.5 * float(search.alpha @ search.w**2)
        value = sums.likelihood - 0.5 * float(search.alpha @ w**2)
        if not value >= before - _ROUNDING * abs(before):
            return search._step_back(before, value)
        gaussian = _gaussian(search, w, sums, intercept)
        root, log_det, alpha = _root(gaussian.G, search.alpha)
        along = root.T @ (gaussian.slope - alpha * w)
        promised = 0.5 * float(along @ along)
        evidence = value + 0.5 * float(np.sum(np.log(alpha))) - 0.5 * log_det
        if intercept:
            promised += 0.5 * sums.slope**2 / gaussian.total
            evidence += 0.5 * float(np.log(2.0 * np.pi / gaussian.total))
        mu = root @ (root.T @ gaussian.r)
        change = evidence - search.log_evidence
        point = _Pass(gaussian, intercept, root, mu, value, promised, change)
        search = replace(
            search, w=w, alpha=alpha, log_evidence=evidence, back=0, count=search.count + 1
        )
        follow = {
            Stage.SHARED: search._shared,
            Stage.MACKAY: search._mackay,
            Stage.SWEEP: search._sweep,
            Stage.MODE: search._mode,
        }
        return follow[search.stage](point, tol)

    def _with_precisions(self, sums: Sums) -> LaplaceState:
        """Return the search with alpha and its floor set, where this is the first pass."""
        alpha, floor = self.alpha, self.floor
        # At y = 0 the curvature is a quarter: G over its total is the mean square.
        mean_squares = np.diag(sums.gram) / max(sums.total, np.finfo(np.float64).tiny)
        if len(floor) == 0:
            floor = _FLOOR * mean_squares
        if len(alpha) == 0:
            # Latent variance 4, without that of the mean: trace(Phi Phi')/(n alpha) of centred
            # columns. From a larger alpha, wide functions would be taken for constants and dropped.
            variances = mean_squares - (sums.means / sums.total) ** 2
            variances = np.maximum(variances, 1e-10 * mean_squares)
            alpha = np.full(len(self.w), max(0.25 * float(np.sum(variances)), 1e-30))
        return replace(self, alpha=alpha, floor=floor)

    def _step_back(self, before: float, value: float) -> LaplaceState:
        """Return the search after a quarter of the step that lowered the penalised likelihood."""
        if self.back == _MOST_BACK:
            raise np.linalg.LinAlgError(
                f"Newton's method did not reach the mode of the weights: weights up to "
                f"{np.max(np.abs(self.weights), initial=0.0):.2g} have penalised log-likelihoods "
                f"from {before:.4g} to {value:.4g}. Use a narrower kernel (larger gamma), or drop "
                "columns that are nearly linear combinations of others."
            )
        return replace(self, dw=_BACK * self.dw, db=_BACK * self.db, back=self.back + 1)

    # The stages.

    def _shared(self, point: _Pass, tol: float) -> LaplaceState:
        """Move the shared alpha. The first pass only leads towards the mode."""
        alpha = self.alpha
        determined = float(np.sum(1.0 - alpha * point.W))
        ratio = 1.0
        if self.count > 1:
            ratio = determined / max(float(alpha @ point.mu**2), 1e-300)
            ratio = float(np.clip(ratio, 0.05, 20.0))
        settled = self.count >= _SHARED[0] and abs(np.log(ratio)) < _SHARED_SETTLED
        new = self
        if settled or self.count >= _SHARED[1]:
            ratio *= _BEGIN
            new = replace(self, stage=Stage.MACKAY, count=0)
        alpha = np.maximum(alpha * ratio, self.floor)
        root, _, alpha = _root(point.gaussian.G, alpha)
        return new._moved(point, alpha, root @ (root.T @ point.gaussian.r))

    def _mackay(self, point: _Pass, tol: float) -> LaplaceState:
        """Take MacKay steps on all columns, and drop those that the data do not determine."""
        gaussian = point.gaussian
        smallest = self._smallest(gaussian)
        kept, alpha = np.arange(len(self.alpha)), self.alpha
        for _ in range(_AT_ONCE):
            root, _, alpha = _root(gaussian.G[np.ix_(kept, kept)], alpha)
            mu = root @ (root.T @ gaussian.r[kept])
            determined = 1.0 - alpha * np.einsum("ij,ij->i", root, root)
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                alpha = np.maximum(determined / mu**2, smallest[kept])
            stay = (determined > _DROP) & np.isfinite(alpha)
            kept, alpha = kept[stay], alpha[stay]
        root, _, alpha = _root(gaussian.G[np.ix_(kept, kept)], alpha)
        mu = root @ (root.T @ gaussian.r[kept])
        steps = self.count - 1 + _AT_ONCE
        gain, _ = self._gains(point)
        new = replace(self, count=steps, largest_gain=gain)
        if steps >= _STEPS:
            new = replace(new, stage=Stage.SWEEP, count=0)
        return new._moved(point, alpha, mu, kept)

    def _sweep(self, point: _Pass, tol: float) -> LaplaceState:
        """Move precisions to their own optima, then all together, until the evidence is still."""
        gaussian, alpha = point.gaussian, self.alpha
        smallest = self._smallest(gaussian)
        gain, leaving = self._gains(point)
        new = replace(self, largest_gain=gain)
        if self.count > _SWEEPS:
            return new.held(StopReason.CYCLING)._moved(point, alpha, point.mu)
        if gain < tol and not leaving:
            if point.promised < _NEAR and abs(point.evidence_change) < STILL * tol:
                at_floor = np.any(alpha <= smallest * (1.0 + 1e-6))
                reason = StopReason.AT_BOUND if at_floor else StopReason.CONVERGED
                return new.held(reason)._moved(point, alpha, point.mu)
            moved, gained = newton_precisions(gaussian.G, gaussian.slope, alpha, self.w, smallest)
            new = replace(new, largest_gain=max(gain, gained))
            return new._moved(point, moved.lam, moved.mu)
        swept, w = sweep_precisions(gaussian.G, gaussian.r, alpha, smallest, 0.1 * tol)
        if self.count > _SWEEPS // 2 + 1:  # it may be cycling: take half of the step
            swept = np.sqrt(swept * alpha)
        kept = np.flatnonzero(np.isfinite(swept))
        return new._moved(point, swept[kept], w[kept], kept)

    def _mode(self, point: _Pass, tol: float) -> LaplaceState:
        """Take a Newton step with alpha fixed, or finish."""
        near = point.promised <= self.mode_tol * (1.0 + abs(point.value))
        if near or self.count > _MODE_PASSES:
            return self._finished(point)
        return self._moved(point, self.alpha, point.mu)

    def _smallest(self, gaussian: _Gaussian) -> np.ndarray:
        """Return the smallest alpha of each column around this point."""
        return np.maximum(self.floor, SMALLEST_LAM * np.diag(gaussian.G))

    def _gains(self, point: _Pass) -> tuple[float, bool]:
        """Return the largest gain of a single precision, and whether a column should go."""
        smallest = self._smallest(point.gaussian)
        optimum, gains = moving_gain(
            point.W, point.mu, self.alpha, smallest / SMALLEST_LAM, *UNIT_NOISE
        )
        gain = float(np.max(gains, initial=0.0, where=np.isfinite(gains)))
        return gain, bool(np.any(np.isinf(optimum)))

    def _moved(
        self, point: _Pass, alpha: np.ndarray, mu: np.ndarray, kept: np.ndarray | None = None
    ) -> LaplaceState:
        """Return the search on its way to the weights mu of the kept columns (default: all).

        The mean of a column that is dropped stays in the intercept.
        """
        gaussian = point.gaussian
        kept = np.arange(len(mu)) if kept is None else kept
        shift = self.shift + gaussian.centre if point.intercept else self.shift
        w = self.w[kept]
        return replace(
            self,
            members=self.members[kept],
            w=w,
            dw=mu - w,
            shift=shift[kept],
            floor=self.floor[kept],
            alpha=alpha,
            b=gaussian.offset,
            db=gaussian.step_b,
        )

    def _finished(self, point: _Pass) -> LaplaceState:
        """Return the search at its end, with the posterior."""
        gaussian = point.gaussian
        centre = self.shift + gaussian.centre if point.intercept else self.shift
        variance = 1.0 / gaussian.total if point.intercept else 0.0
        form, value = Dense(point.root), self.log_evidence
        posterior = Posterior(self.w, form, 0.0, value, gaussian.offset, variance, centre)
        return replace(
            self,
            dw=np.zeros(len(self.w)),
            shift=centre,
            b=gaussian.offset,
            db=0.0,
            stage=Stage.DONE,
            posterior=posterior,
        )


def _gaussian(search: LaplaceState, w: np.ndarray, sums: Sums, intercept: bool) -> _Gaussian:
    """Return the Gaussian approximation at the weights w."""
    G = sums.gram + np.tril(sums.gram, -1).T
    total = max(sums.total, float(np.finfo(np.float64).tiny))
    if not intercept:
        zeros = np.zeros(len(w))
        r = G @ w + sums.gradient
        return _Gaussian(G, r, zeros, 0.0, 0.0, sums.gradient, total)
    centre = sums.means / total
    squares = G.diagonal().copy()
    G -= np.multiply.outer(sums.means, centre)
    constant = G.diagonal() < CONSTANT * squares
    G[constant], G[:, constant] = 0.0, 0.0
    slope = sums.gradient - sums.slope * centre
    offset = search.b + search.db + float(centre @ w)
    return _Gaussian(G, G @ w + slope, centre, offset, sums.slope / total, slope, total)


def _root(G: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """Return a root of (G + A)^-1, log|G + A|, and alpha, raised until float64 can factor it."""
    least = SMALLEST_LAM
    while True:
        alpha = np.maximum(alpha, least * np.maximum(np.diag(G), 0.0))
        try:
            return *inverse_root(G, alpha), alpha
        except np.linalg.LinAlgError:
            least *= 10.0
            if least > _MOST_RIDGE:
                raise


@dataclass(frozen=True)
class BasicLaplaceRVM:
    """Re-estimation of all columns for labels; see the module docstring.

    The target is an array of shape (n_rows, 2): the weight of the positive labels in each row, and
    of all its labels.

    Parameters
    ----------
    intercept : bool, default=True
        Whether the latent function has an intercept, with a flat prior.
    tol : float, default=1e-3
        Nats that no single re-estimate or deletion gains at convergence.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers import BasicLaplaceRVM, run
    >>> rng = np.random.default_rng(0)
    >>> Phi = rng.standard_normal((200, 10))
    >>> labels = (3 * Phi[:, 3] + rng.logistic(size=200) > 0).astype(float)
    >>> counts = np.column_stack([labels, np.ones(200)])
    >>> result = run(BasicLaplaceRVM(), DenseDesign(Phi), counts, max_iter=100)
    >>> result.converged, 3 in result.state.active
    (True, True)
    """

    intercept: bool = True
    tol: float = 1e-3

    def init(self, design: Design, t: np.ndarray) -> State:
        """Return the model of all columns."""
        return State(LaplaceState.begin(design.n_candidates))

    def empty(self, design: Design) -> State:
        """Return the model without functions."""
        return State(LaplaceState.begin(0))

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """Make one pass over the rows, and the step that it allows."""
        summing = Summing(state.search.step)
        for rows, block in design.blocks(state.search.members):
            summing.add(np.array(to_numpy(block)), t[rows])
        search = state.search.advance(summing.sums(), self.intercept, self.tol)
        info = Info(
            search.log_evidence, len(search.members), search.largest_gain, str(state.search.stage)
        )
        return State(search), info

    def done(self, state: State) -> StopReason | None:
        """Return why the search has finished, or None while it has not."""
        return state.search.stop_reason if state.search.finished else None

    def solution(self, state: State, design: Design, t: np.ndarray) -> Solution:
        """Return the posterior at the mode, from exact columns."""
        search = state.search
        start = search.weights[: len(state.active)], search.intercept
        Phi = design.columns(state.active)
        posterior = laplace_posterior(Phi, t, state.alpha, self.intercept, start)[0]
        return Solution(state.active, state.alpha, posterior)


@dataclass(frozen=True)
class State:
    """A search, with what estimators require of a state."""

    search: LaplaceState

    @property
    def active(self) -> np.ndarray:
        """The remaining columns; none before the first pass."""
        return self.search.members[: len(self.search.alpha)]

    @property
    def alpha(self) -> np.ndarray:
        """Precisions of the active weights."""
        return self.search.alpha
