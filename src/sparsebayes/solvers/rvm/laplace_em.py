"""The basic relevance vector machine for labels, from sums over the rows alone.

Model and fixed points are those of `laplace` (Tipping 2001, section 3): p(label) = sigma(y),
y = Phi w + b, Laplace approximation, alpha = gamma/w^2. Here no n-long array is kept: what a step
needs to know of the rows are sums over them (`Sums`), which may be read chunk by chunk,
anywhere. At y, with Omega = sigma(1 - sigma) and the columns centred by Omega (intercept), they
give the Gaussian approximation

    G = Phi'Omega Phi,   r = G w + Phi'(label - sigma),   H = G + A,   H mu = r,

and what follows has no rows in it. The steps, each after one pass:

1. One alpha for all columns, by MacKay steps (alpha <- sum gamma / mu'mu), until it has settled.
   From the mode of that model, with .3 times its alpha, the next ones end at a higher evidence than
   from y = 0 (1 to 8 nats on three data sets), whose approximation drops functions too soon.
2. MacKay steps on all columns, alpha_j <- gamma_j/mu_j^2, 15 in all and 3 around each y. A column
   with gamma_j under 1e-3 is dropped.
3. Sweeps of exact one-column optima (`laplace.sweeps`), re-estimates and deletions, until
   none gains `tol` nats.
4. Newton steps with alpha held, to the mode.

Each pass also tells the likelihood at the point before. Where the penalised likelihood has fallen,
a quarter of the step is taken instead.

Cost: n k^2 a pass, about 15 passes, of which 9 with all columns; k^3 beside it.

Deviations: the paper finds the mode again after each step on alpha. alpha is kept above 1e-8 of the
mean square of its column, as in `laplace`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dsyrk

from ..._array import to_numpy
from ...designs import Design
from ...linalg import inverse_root
from ...posterior import Dense, Posterior, laplace_posterior, likelihood_slopes, log_likelihood
from ..run import Solution, StopReason
from .laplace import STILL, UNIT_NOISE, Info, sweeps, together
from .one_column import SMALLEST_LAM, moving_gain

_SHARED = (3, 8)  # fewest and most passes with one alpha for all columns
_SHARED_SETTLED = 0.3  # change of its logarithm
_BEGIN = 0.3  # times the shared alpha: where the columns part
_STEPS, _AT_ONCE = 15, 3  # MacKay steps, in all and around one y
_DROP = 1e-3
_SWEEPS = 60  # passes
_MODE_PASSES = 30
_NEAR = 1e-6  # nats that the next Newton step promises, near enough for statistics of columns
_FLOOR = 1e-8  # alpha over the mean square of its column
_ROUNDING = 1e-10
_BACK = 0.25
_MOST_BACK = 30


class _Gaussian(NamedTuple):
    """The approximation around a point: columns centred by its curvature."""

    G: np.ndarray
    r: np.ndarray
    centre: np.ndarray  # of the columns less their shift
    offset: float  # latent value where the columns equal it, at the point
    step_b: float  # of the next Newton step
    slope: np.ndarray
    total: float


@dataclass(frozen=True)
class LaplaceState:
    """Where one binary problem stands: a point, the way it came, and the precisions.

    The latent function is y = (Phi - shift)(w + dw) + b + db; (w, b) is the point before. The next
    pass over the rows says whether the step (dw, db) was good.
    """

    members: np.ndarray  # columns left
    w: np.ndarray
    dw: np.ndarray
    shift: np.ndarray
    floor: np.ndarray  # the smallest alpha of each; empty before the first pass
    alpha: np.ndarray  # empty before the first pass
    b: float = 0.0
    db: float = 0.0
    stage: str = "shared"  # then "mackay", "sweep", "mode", "done"
    count: int = 0  # passes or MacKay steps of this stage
    back: int = 0  # steps in a row that were too long
    stop_reason: StopReason | None = None  # why alpha was settled
    mode_tol: float = 1e-8
    log_evidence: float = -np.inf
    largest_gain: float = np.inf
    posterior: Posterior | None = None  # when done

    @classmethod
    def begin(cls, n_columns: int) -> LaplaceState:
        """All columns, at y = 0."""
        zeros = np.zeros(n_columns)
        return cls(np.arange(n_columns), zeros, zeros, zeros, np.empty(0), np.empty(0))

    @classmethod
    def near(cls, w: np.ndarray, b: float, alpha: np.ndarray) -> LaplaceState:
        """From a model: its weights and precisions, zero and a guess for columns that are new."""
        zeros, members = np.zeros(len(w)), np.arange(len(w))
        return cls(members, w, zeros, zeros, np.empty(0), alpha, b, stage="mackay")

    @classmethod
    def at(cls, w: np.ndarray, b: float, alpha: np.ndarray, mode_tol: float) -> LaplaceState:
        """To the mode for given alpha, from a point near it."""
        zeros = np.zeros(len(w))
        members = np.arange(len(w))
        return cls(members, w, zeros, zeros, zeros, alpha, b, stage="mode", mode_tol=mode_tol)

    @property
    def intercept(self) -> float:
        """Latent value where the functions are zero."""
        return float(self.b + self.db - self.shift @ (self.w + self.dw))

    @property
    def weights(self) -> np.ndarray:
        """The weights of the members."""
        return self.w + self.dw

    def held(self, reason: StopReason) -> LaplaceState:
        """With alpha as it is now, to the mode."""
        if self.stage in ("mode", "done"):
            return self
        return replace(self, stage="mode", count=0, stop_reason=reason)

    def advance(self, sums: Sums, intercept: bool, tol: float) -> LaplaceState:
        """The next point, given the sums at this one."""
        alpha, floor = self.alpha, self.floor
        # At y = 0 the curvature is a quarter: G over its total is the mean square.
        mean_squares = np.diag(sums.gram) / max(sums.total, np.finfo(np.float64).tiny)
        if len(floor) == 0:
            floor = _FLOOR * mean_squares
        if len(alpha) == 0:
            # Latent variance 4, without that of the mean: trace(Phi Phi')/(n alpha) of centred
            # columns. From a larger alpha, wide functions would be taken for constants and all go.
            variances = mean_squares - (sums.means / sums.total) ** 2
            variances = np.maximum(variances, 1e-10 * mean_squares)
            alpha = np.full(len(self.w), max(0.25 * float(np.sum(variances)), 1e-30))
        w = self.w + self.dw
        before = sums.before - 0.5 * float(alpha @ self.w**2)
        value = sums.likelihood - 0.5 * float(alpha @ w**2)
        if not value >= before - _ROUNDING * abs(before):
            if self.back == _MOST_BACK:
                raise np.linalg.LinAlgError(
                    f"Newton's method did not reach the mode of the weights: weights up to "
                    f"{np.max(np.abs(w), initial=0.0):.2g} have penalised log-likelihoods from "
                    f"{before:.4g} to {value:.4g}. Use a narrower kernel (larger gamma), or drop "
                    "columns that are nearly linear combinations of others."
                )
            return replace(
                self,
                dw=_BACK * self.dw,
                db=_BACK * self.db,
                floor=floor,
                alpha=alpha,
                back=self.back + 1,
            )
        here = _gaussian(self, w, sums, intercept)
        root, log_det, alpha = _root(here.G, alpha)
        along = root.T @ (here.slope - alpha * w)
        promised = 0.5 * float(along @ along)
        evidence = value + 0.5 * float(np.sum(np.log(alpha))) - 0.5 * log_det
        if intercept:
            promised += 0.5 * sums.slope**2 / here.total
            evidence += 0.5 * float(np.log(2.0 * np.pi / here.total))
        mu = root @ (root.T @ here.r)
        new = replace(
            self, w=w, alpha=alpha, floor=floor, log_evidence=evidence, back=0, count=self.count + 1
        )
        if self.stage == "mode":
            if promised <= self.mode_tol * (1.0 + abs(value)) or self.count >= _MODE_PASSES:
                return new._finished(here, root, intercept)
            return new._moved(here, intercept, np.arange(len(w)), alpha, mu)
        W = np.einsum("ij,ij->i", root, root)
        if self.stage == "shared":
            return new._shared(here, intercept, mu, W)
        smallest = np.maximum(floor, SMALLEST_LAM * np.diag(here.G))
        optimum, gains = moving_gain(W, mu, alpha, smallest / SMALLEST_LAM, *UNIT_NOISE)
        gain = float(np.max(gains, initial=0.0, where=np.isfinite(gains)))
        new = replace(new, largest_gain=gain)
        if self.stage == "mackay":
            return new._mackay(here, intercept, smallest)
        if new.largest_gain < tol and not np.any(np.isinf(optimum)) and self.count < _SWEEPS:
            found, gained = together(here.G, here.slope, alpha, w, smallest)
            everything = np.arange(len(w))
            if promised >= _NEAR or abs(evidence - self.log_evidence) >= STILL * tol:
                new = replace(new, largest_gain=max(gain, gained))
                return new._moved(here, intercept, everything, found.lam, found.mu)
            limit = np.any(alpha <= smallest * (1.0 + 1e-6))
            held = new.held(StopReason.AT_BOUND if limit else StopReason.CONVERGED)
            return held._moved(here, intercept, everything, alpha, mu)
        if self.count >= _SWEEPS:
            held = new.held(StopReason.CYCLING)
            return held._moved(here, intercept, np.arange(len(w)), alpha, mu)
        swept, w_swept = sweeps(here.G, here.r, alpha, smallest, 0.1 * tol)
        if self.count > _SWEEPS // 2:  # perhaps a circle: half the way
            swept = np.sqrt(swept * alpha)
        kept = np.flatnonzero(np.isfinite(swept))
        return new._moved(here, intercept, kept, swept[kept], w_swept[kept])

    def _shared(
        self, here: _Gaussian, intercept: bool, mu: np.ndarray, W: np.ndarray
    ) -> LaplaceState:
        """Step 1. The first pass only finds the way to the mode."""
        alpha = self.alpha
        determined = float(np.sum(1.0 - alpha * W))
        ratio = 1.0
        if self.count > 1:
            ratio = determined / max(float(alpha @ mu**2), 1e-300)
            ratio = float(np.clip(ratio, 0.05, 20.0))
        settled = self.count >= _SHARED[0] and abs(np.log(ratio)) < _SHARED_SETTLED
        new = self
        if settled or self.count >= _SHARED[1]:
            ratio *= _BEGIN
            new = replace(self, stage="mackay", count=0)
        alpha = np.maximum(alpha * ratio, self.floor)
        root, _, alpha = _root(here.G, alpha)
        mu = root @ (root.T @ here.r)
        return new._moved(here, intercept, np.arange(len(mu)), alpha, mu)

    def _mackay(self, here: _Gaussian, intercept: bool, smallest: np.ndarray) -> LaplaceState:
        """Step 2."""
        kept, alpha = np.arange(len(self.alpha)), self.alpha
        for _ in range(_AT_ONCE):
            root, _, alpha = _root(here.G[np.ix_(kept, kept)], alpha)
            mu = root @ (root.T @ here.r[kept])
            determined = 1.0 - alpha * np.einsum("ij,ij->i", root, root)
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                alpha = np.maximum(determined / mu**2, smallest[kept])
            stay = (determined > _DROP) & np.isfinite(alpha)
            kept, alpha = kept[stay], alpha[stay]
        root, _, alpha = _root(here.G[np.ix_(kept, kept)], alpha)
        mu = root @ (root.T @ here.r[kept])
        steps = self.count - 1 + _AT_ONCE
        new = replace(self, count=steps)
        if steps >= _STEPS:
            new = replace(self, stage="sweep", count=0)
        return new._moved(here, intercept, kept, alpha, mu)

    def _moved(
        self,
        here: _Gaussian,
        intercept: bool,
        kept: np.ndarray,
        alpha: np.ndarray,
        mu: np.ndarray,
    ) -> LaplaceState:
        """On to the weights mu of the columns `kept`; the others leave their mean behind."""
        shift = self.shift + here.centre if intercept else self.shift
        w = self.w[kept]
        return replace(
            self,
            members=self.members[kept],
            w=w,
            dw=mu - w,
            shift=shift[kept],
            floor=self.floor[kept],
            alpha=alpha,
            b=here.offset,
            db=here.step_b,
        )

    def _finished(self, here: _Gaussian, root: np.ndarray, intercept: bool) -> LaplaceState:
        centre = self.shift + here.centre if intercept else self.shift
        variance = 1.0 / here.total if intercept else 0.0
        form, value = Dense(root), self.log_evidence
        posterior = Posterior(self.w, form, 0.0, value, here.offset, variance, centre)
        return replace(
            self,
            dw=np.zeros(len(self.w)),
            shift=centre,
            b=here.offset,
            db=0.0,
            stage="done",
            posterior=posterior,
        )


def _gaussian(search: LaplaceState, w: np.ndarray, sums: Sums, intercept: bool) -> _Gaussian:
    G = sums.gram + np.tril(sums.gram, -1).T
    total = max(sums.total, np.finfo(np.float64).tiny)
    if not intercept:
        zeros = np.zeros(len(w))
        r = G @ w + sums.gradient
        return _Gaussian(G, r, zeros, 0.0, 0.0, sums.gradient, total)
    centre = sums.means / total
    G -= np.multiply.outer(sums.means, centre)
    slope = sums.gradient - sums.slope * centre
    offset = search.b + search.db + float(centre @ w)
    return _Gaussian(G, G @ w + slope, centre, offset, sums.slope / total, slope, total)


def _root(G: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """A root of (G + A)^-1, log|G + A|, and alpha, raised as far as rounding asks for."""
    least = SMALLEST_LAM
    while True:
        alpha = np.maximum(alpha, least * np.maximum(np.diag(G), 0.0))
        try:
            return *inverse_root(G, alpha), alpha
        except np.linalg.LinAlgError:
            least *= 10.0
            if least > 1e-2:
                raise


@dataclass(frozen=True)
class BasicLaplaceRVM:
    """Re-estimation of all columns for labels; see the module docstring.

    The target is an array of shape (n_rows, 2): the weight of the positive labels in each row, and
    of all its labels.

    Parameters
    ----------
    intercept : bool, default=True
        Whether a constant of flat prior is added to the latent function.
    tol : float, default=1e-3
        Nats that no single re-estimate or deletion may gain at convergence.

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
        """All columns."""
        return State(LaplaceState.begin(design.n_candidates))

    def empty(self, design: Design) -> State:
        """No functions at all."""
        return State(LaplaceState.begin(0))

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """One pass over the rows, and the step it allows."""
        summing = Summing(state.search)
        for rows, block in design.blocks(state.search.members):
            summing.add(np.array(to_numpy(block)), t[rows])
        search = state.search.advance(summing.sums(), self.intercept, self.tol)
        info = Info(
            search.log_evidence, len(search.members), search.largest_gain, state.search.stage
        )
        return State(search), info

    def done(self, state: State) -> StopReason | None:
        """Return why the search has finished, or None while it has not."""
        return state.search.stop_reason if state.search.stage == "done" else None

    def solution(self, state: State, design: Design, t: np.ndarray) -> Solution:
        """Return the posterior at the mode, from exact columns."""
        search = state.search
        start = search.weights[: len(state.active)], search.intercept
        Phi = design.columns(state.active)
        posterior = laplace_posterior(Phi, t, state.alpha, self.intercept, start)[0]
        return Solution(state.active, state.alpha, posterior)


@dataclass(frozen=True)
class State:
    """A search, and what the estimators ask of a state."""

    search: LaplaceState

    @property
    def active(self) -> np.ndarray:
        """The columns left; none before the first pass."""
        return self.search.members[: len(self.search.alpha)]

    @property
    def alpha(self) -> np.ndarray:
        """Their precisions."""
        return self.search.alpha


# What a step of `laplace_em` needs to know of the rows: sums over them, block by block.


class Sums(NamedTuple):
    """Over rows, at the point that a search has come to."""

    numbers: np.ndarray
    means: np.ndarray  # Phi'Omega
    gradient: np.ndarray  # Phi'residual
    gram: np.ndarray  # Phi'Omega Phi, its lower triangle

    @property
    def before(self) -> float:
        """Log likelihood at the point before."""
        return float(self.numbers[0])

    @property
    def likelihood(self) -> float:
        """Log likelihood here."""
        return float(self.numbers[1])

    @property
    def total(self) -> float:
        """The sum of the curvature Omega."""
        return float(self.numbers[2])

    @property
    def slope(self) -> float:
        """The sum of the residuals label - sigma."""
        return float(self.numbers[3])

    def plus(self, other: Sums) -> Sums:
        """The sums over these rows and others."""
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))


class Summing:
    """Adds up the sums of a search over blocks of rows."""

    def __init__(self, search: LaplaceState) -> None:
        self.search = search
        k = len(search.members)
        self._numbers = np.zeros(4)
        self._vectors = np.zeros((2, k))
        self._gram = np.zeros((k, k), order="F")

    def add(self, Phi: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Rows of the members' columns with their label counts; returns the latent values.

        Phi is overwritten.
        """
        search = self.search
        Phi -= search.shift
        before, change = (Phi @ np.column_stack([search.w, search.dw])).T
        before += search.b
        y = before + change + search.db
        residual, omega = likelihood_slopes(y, counts)
        self._numbers += (
            log_likelihood(before, counts),
            log_likelihood(y, counts),
            float(np.sum(omega)),
            float(np.sum(residual)),
        )
        self._vectors += np.stack([omega, residual]) @ Phi
        Phi *= np.sqrt(omega)[:, None]
        if Phi.shape[1]:
            self._gram = dsyrk(1.0, Phi.T, beta=1.0, c=self._gram, lower=True, overwrite_c=True)
        return y

    def sums(self) -> Sums:
        """The sums over all rows added."""
        return Sums(self._numbers, self._vectors[0], self._vectors[1], self._gram)
