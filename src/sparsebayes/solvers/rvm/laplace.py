"""The relevance vector machine for labels: Bernoulli likelihood, Laplace approximation.

Model: p(label) = sigma(y), y = Phi w + b, w_j ~ N(0, 1/alpha_j), b with a flat prior. Around the
mode (`laplace_posterior`) the likelihood is Gaussian, so one column has the statistics and the
closed optimum of regression with the noise given (`LaplaceCurvature`; Tipping 2001, section 3;
Tipping & Faul 2003). The search:

1. Dense start: MacKay steps on all candidates, compressed (`DenseStart`), from the shared alpha
   times 1, .1, .01 (a single start: .1); then on the exact columns of the survivors.
2. From each start: find the mode, take the statistics of the survivors of all starts, sweep the
   one-column optima in the Gaussian model of this mode, until none gains `tol` nats.
3. Merge: average the prior variances 1/alpha of all solutions, and the same again from there.
4. From the best: look at all candidates (their exact columns up to 3,000, compressed ones above),
   take in those that would gain, and the same again, until none would.
5. Rest: Newton steps on all alpha together, in the Gaussian model of each mode, until the evidence
   stands still; then 4 again. No alpha alone gains anything long before all of them together do.

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

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import get_blas_funcs
from scipy.linalg.blas import dsymm, dsyrk, dtrmm, dtrsm
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from ..._array import to_numpy
from ...designs import DenseDesign, Design
from ...designs.lowrank import LowRank, low_rank
from ...posterior import Posterior, laplace_posterior, likelihood_slopes, log_likelihood
from ..run import Solution, StopReason
from .one_column import SMALLEST_LAM, adding_gain, moving_gain
from .polish import ColumnSet, absent_gains, model_at, newton, present_gains, sweep
from .search import MOST_NEW, WORTH, SearchState, merged, most_promising

_SCALES = (1.0, 0.1, 0.01)
_MOST = 150  # columns kept from one start
_BATCH = 8  # additions in one step
_EXACT_UP_TO = 3000  # candidates: above, the look is at the compressed columns
_COMPRESSED_LOOKS = 3
_VAIN_LOOKS = 3  # in a row that do not raise the evidence
_RUN_STEPS = 60  # from one start, merge or look
_ROUGH = 1e-2  # nats left to gain at the end of one of several starts
_FLOOR = 1e-8  # alpha over the mean square of its column
_MODE_TOL = 1e-6
_SHARP = 1e-20  # the same at rest, where alpha follows every digit of the mode


class Info(NamedTuple):
    """One step, for the reader."""

    log_evidence: float
    n_active: int
    largest_gain: float
    stage: str


class Pool(NamedTuple):
    """The columns at hand."""

    idx: np.ndarray  # which candidates
    Phi: np.ndarray  # on the rows
    floor: np.ndarray  # the smallest alpha of each


class Model(NamedTuple):
    """Columns (as positions in the pool), their precisions alpha, and the mode."""

    A: np.ndarray
    lam: np.ndarray
    w: np.ndarray
    b: float
    log_evidence: float = -np.inf
    end: StopReason | None = None  # why its polishing ended


@dataclass
class State(SearchState):
    """The columns at hand, the model being polished, and those waiting or finished."""

    factor: LowRank | None = None
    steps: int = 0  # on this model
    looks: int = 0
    vain: int = 0  # looks in a row that did not raise the evidence
    before: float = np.nan  # the evidence before the last Newton step on all alpha together

    @property
    def alpha(self) -> np.ndarray:
        """The precisions of the columns in the model; there is no noise beside them."""
        return self.lam


@dataclass(frozen=True)
class LaplaceRVM:
    """Evidence ascent for labels; see the module docstring.

    The target is an array of shape (n_rows, 2): the weight of the positive labels in each row, and
    of all its labels.

    Parameters
    ----------
    intercept : bool, default=True
        Whether a constant of flat prior is added to the latent function.
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
            idx, alpha = self.start
            model = Model(np.arange(len(idx)), alpha, np.zeros(len(idx)), 0.0)
            return State("given", _pool(design, t, idx), model)
        if self.n_starts == 0:
            return self.empty(design)
        factor = self.factor if self.factor is not None else compression(design, self.seed)
        starts, dense = [], None
        for scale in self._scales():
            try:
                dense = dense or DenseStart(factor, t, self.intercept)
                found = dense.survivors(scale)
                starts.append(mackay(design.columns(found.kept), t, found, self.intercept, _MOST))
            except np.linalg.LinAlgError:
                continue  # weights so large that float64 cannot hold the curvature
        if not starts:
            return self.empty(design)
        idx = np.unique(np.concatenate([found.kept for found in starts]))
        first, *waiting = [
            Model(np.searchsorted(idx, kept), alpha, w, b) for kept, alpha, w, b, _ in starts
        ]
        return State("start 1", _pool(design, t, idx), first, waiting, factor=factor)

    def empty(self, design: Design) -> State:
        """No functions at all."""
        none = Model(np.empty(0, dtype=np.intp), np.empty(0), np.empty(0), 0.0)
        return State("empty", Pool(none.A, np.empty((design.n_rows, 0)), none.lam), none)

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """One mode, and a sweep of one-column optima around it; or the next stage."""
        posterior, curve = self._around(state, state.model, t)
        model = state.model._replace(
            w=posterior.mean, b=posterior.intercept, log_evidence=posterior.log_evidence
        )
        A, pool = model.A, state.columns
        S, Q, norms = curve.statistics(DenseDesign(pool.Phi))
        floor = np.maximum(pool.floor, SMALLEST_LAM * norms)
        root = posterior.form.root
        gains, leaving = gains_of(S, Q, norms, A, model.lam, root, model.w, floor[A])
        absent = gains.copy()
        absent[A] = 0.0
        new = most_promising(absent, WORTH * self.tol, _BATCH)
        members = np.concatenate([A, new])
        largest = float(np.max(gains[members], initial=0.0))
        info = Info(model.log_evidence, len(A), largest, state.stage)

        state.steps += 1
        rough = state.stage.startswith("start") and self.n_starts > 1
        settled = largest < (max(self.tol, _ROUGH) if rough else self.tol)
        settled = settled and (rough or not np.any(leaving))
        if settled and state.stage == "rest":
            found, gained = together(curve.gram(pool.Phi[:, A]), Q[A], model.lam, model.w, floor[A])
            moved = abs(model.log_evidence - state.before)
            settled = moved < STILL * self.tol
            if not settled and state.steps < _RUN_STEPS:
                state.model = Model(A, found.lam, found.mu, model.b)
                state.before = model.log_evidence
                return state, info._replace(largest_gain=max(gained, largest))
        state.before = np.nan
        if settled or state.steps >= _RUN_STEPS:
            limit = np.any(model.lam <= floor[A] * (1.0 + 1e-6))
            end = StopReason.CYCLING
            if settled:
                end = StopReason.AT_BOUND if limit else StopReason.CONVERGED
            state.model = model._replace(end=end)
            self._advance(state, design, t)
            return state, info
        Phi = pool.Phi[:, members]
        G = curve.gram(Phi)
        b = Q[members] + G[:, : len(A)] @ model.w
        alpha = np.concatenate([model.lam, np.full(len(new), np.inf)])
        alpha, w = sweeps(G, b, alpha, floor[members], 0.1 * self.tol)
        if state.steps > _RUN_STEPS // 2:  # perhaps a circle: half the way
            alpha[: len(A)] = np.sqrt(alpha[: len(A)] * model.lam)
        keep = np.isfinite(alpha)
        state.model = Model(members[keep], alpha[keep], w[keep], model.b)
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

    def _around(
        self, state: State, model: Model, t: np.ndarray
    ) -> tuple[Posterior, LaplaceCurvature]:
        """The mode of a model, and the Gaussian approximation there."""
        Phi = state.columns.Phi[:, model.A]
        tol = _SHARP if state.stage == "rest" else _MODE_TOL
        posterior, y = laplace_posterior(Phi, t, model.lam, self.intercept, (model.w, model.b), tol)
        return posterior, LaplaceCurvature(y, t, posterior, Phi, self.intercept)

    def _advance(self, state: State, design: Design, t: np.ndarray) -> None:
        """The model at hand is finished: what comes next."""
        if state.stage == "rest":  # it goes on, even where the Laplace evidence was higher before
            state.found = []
        state.found.append(state.model)
        state.steps = 0
        if state.waiting:
            state.stage = f"start {len(state.found) + 1}"
            state.model = state.waiting.pop(0)
            return
        if len(state.found) > 1 and state.stage.startswith("start"):
            A, lam = merged(state.found, len(state.columns.idx))
            state.stage, state.model = "merge", Model(A, lam, np.zeros(len(A)), 0.0)
            return
        last = state.model
        state.model = max(state.found, key=lambda model: model.log_evidence)
        state.found = [state.model]
        if state.stage == "merge" and state.model is not last:
            state.stage = "polish"  # the starts were ended early
            return
        if state.stage == "look":
            state.vain = 0 if state.model is last else state.vain + 1
        new = self._look(state, design, t)
        if len(new) == 0 and state.stage == "rest":
            state.stop_reason = state.model.end
            return
        if len(new) == 0:
            state.stage = "rest"
            return
        more = zip(state.columns, _pool(design, t, new), strict=True)
        state.columns = Pool(*(np.concatenate(pair, axis=-1) for pair in more))
        state.stage = "look"

    def _look(self, state: State, design: Design, t: np.ndarray) -> np.ndarray:
        """The candidates, not yet at hand, that would gain most."""
        compressed = design.n_candidates > _EXACT_UP_TO and state.factor is not None
        if state.vain >= _VAIN_LOOKS or (compressed and state.looks >= _COMPRESSED_LOOKS):
            return np.empty(0, dtype=np.intp)
        state.looks += 1
        _, curve = self._around(state, state.model, t)
        if compressed and state.factor is not None:
            statistics = curve.compressed_statistics(state.factor)
        else:
            statistics = curve.statistics(design)
        _, gains = adding_gain(*statistics, *UNIT_NOISE, _SPAN)
        gains[state.columns.idx] = 0.0
        return most_promising(gains, WORTH * self.tol, MOST_NEW if self.n_starts else 1)


def compression(design: Design, seed: int) -> LowRank:
    """All candidates in p = 4 sqrt m dimensions, 200 to 400, for the dense starts."""
    rank = int(np.clip(4.0 * np.sqrt(design.n_candidates), 200, 400))
    return low_rank(design, rank, np.random.default_rng(seed))


def _pool(design: Design, t: np.ndarray, idx: np.ndarray) -> Pool:
    Phi, weight = design.columns(idx), t[:, 1]
    floor = _FLOOR * np.einsum("i,ij,ij->j", weight, Phi, Phi) / float(np.sum(weight))
    return Pool(idx, Phi, floor)


# Columns around a mode of logistic labels: their statistics, gains and optima.
#
# Around the mode the likelihood is Gaussian with precisions Omega, a regression with unit noise:
#
#     absent:   S = h'Omega h - h'Omega Phi H^-1 Phi'Omega h,   Q = h'(label - sigma(y))
#     present:  s = 1/W_jj - alpha_j,  q = w_j / W_jj,          W = H^-1,
#
# all with the columns centred by Omega where there is an intercept; the optimum of one column is
# alpha = s^2/(q^2 - s), or absence.


UNIT_NOISE = 0.0, 1.0, 1.0  # E (of no account), n and sigma2 of this regression
_SWEEPS = 4  # around one mode
_SPAN = 1e-10  # S/|h|^2 below which a column lies in the span of the model
_CONSTANT = 1e-12  # of |h|^2: what centring leaves of a column that is constant

Statistics = tuple[np.ndarray, np.ndarray, np.ndarray]


class LaplaceCurvature:
    """The Gaussian approximation around a mode with latent values y, seen by columns."""

    def __init__(
        self,
        y: np.ndarray,
        t: np.ndarray,
        posterior: Posterior,
        Phi: np.ndarray,
        intercept: bool,
    ) -> None:
        residual, self.omega = likelihood_slopes(y, t)
        self.total = float(np.sum(self.omega))
        self.intercept = intercept
        # Phi'Omega h needs only one side centred.
        V = (self.omega[:, None] * (Phi - posterior.centre)) @ posterior.form.root
        self._right = np.column_stack([V, residual, self.omega])

    def gram(self, Phi: np.ndarray) -> np.ndarray:
        """Phi'Omega Phi, centred where there is an intercept."""
        H = Phi - self.omega @ Phi / self.total if self.intercept else Phi
        H = H * np.sqrt(self.omega)[:, None]
        return H.T @ H

    def statistics(self, design: Design) -> Statistics:
        """S, Q and h'Omega h of all columns of a design, in one pass."""
        out = np.zeros((design.n_candidates, self._right.shape[1]))
        squares = np.zeros(design.n_candidates)
        for rows, block in design.blocks():
            H = to_numpy(block)
            out += H.T @ self._right[rows]
            squares += np.einsum("i,ij,ij->j", self.omega[rows], H, H)
        return self._finish(out, squares)

    def compressed_statistics(self, factor: LowRank) -> Statistics:
        """The same from Phi ~ R F."""
        H = factor.rows * np.sqrt(self.omega)[:, None]
        squares = np.einsum("ij,ij->j", factor.factor, (H.T @ H) @ factor.factor)
        return self._finish(factor.factor.T @ (factor.rows.T @ self._right), squares)

    def _finish(self, out: np.ndarray, squares: np.ndarray) -> Statistics:
        T, Q, sums = out[:, :-2], out[:, -2], out[:, -1]
        norms = squares
        if self.intercept:
            norms = squares - sums**2 / self.total
            norms[norms < _CONSTANT * squares] = 0.0
        return norms - np.einsum("ij,ij->i", T, T), Q, norms


def gains_of(
    S: np.ndarray,
    Q: np.ndarray,
    norms: np.ndarray,
    here: np.ndarray,
    alpha: np.ndarray,
    root: np.ndarray,
    w: np.ndarray,
    floor: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Nats that moving each column alone to its optimum would gain, and which optima are absence.

    S and Q are those of absent columns; the columns `here` are present, with alpha not under
    `floor`, a root of W, and w. The second array is about these.
    """
    _, gains = adding_gain(S, Q, norms, *UNIT_NOISE, _SPAN)
    W = np.einsum("ij,ij->i", root, root)
    optimum, change = moving_gain(W, w, alpha, floor / SMALLEST_LAM, *UNIT_NOISE)
    gains[here] = np.where(np.isfinite(change), change, 0.0)
    return gains, np.isinf(optimum)


def sweeps(
    G: np.ndarray, b: np.ndarray, alpha: np.ndarray, floor: np.ndarray, tol: float
) -> tuple[np.ndarray, np.ndarray]:
    """Columns to their own optima, the most profitable first, until none gains `tol`.

    The Gaussian model has H = G + A and H w = b over the columns present; alpha = inf is absent,
    and alpha is not under `floor`. Returns alpha and w.
    """
    columns = ColumnSet(np.arange(len(b)), G, b, 0.0, 1.0, 1.0, 0.0, floor=floor, span=_SPAN)
    A = np.flatnonzero(np.isfinite(alpha))
    model = _possible(columns, A, alpha[A])
    for _ in range(_SWEEPS):
        gains = absent_gains(columns, model)
        gains[model.A], leaving = present_gains(columns, model)
        gains[model.A[leaving]] += tol  # a column goes however little that gains
        order = np.argsort(-gains, kind="stable")
        order = order[gains[order] > tol]
        if len(order) == 0:
            break
        model = sweep(columns, model, order, still=0.0)
    alpha, w = np.full(len(b), np.inf), np.zeros(len(b))
    alpha[model.A], w[model.A] = model.lam, model.mu
    return alpha, w


def _possible(columns: ColumnSet, A: np.ndarray, alpha: np.ndarray) -> Any:
    """`model_at` with alpha raised as far as rounding asks for."""
    least = SMALLEST_LAM
    while True:
        try:
            return model_at(columns, A, np.maximum(alpha, least * columns.norms[A]))
        except np.linalg.LinAlgError:
            least *= 10.0
            if least > 1e-2:
                raise


def together(
    G: np.ndarray, slope: np.ndarray, alpha: np.ndarray, w: np.ndarray, floor: np.ndarray
) -> tuple[Any, float]:
    """Newton steps on all alpha at once in the Gaussian model around w, and what they gain."""
    k = len(alpha)
    columns = ColumnSet(np.arange(k), G, slope + G @ w, 0.0, 1.0, 1.0, 0.0, floor=floor)
    model = _possible(columns, np.arange(k), alpha)
    found = newton(columns, model)
    return found, found.L - model.L


# of tol: what Newton steps on all alpha may move the evidence by at the end. The mode, and the
# Gaussian model with it, follows them, so that it moves by more than they gain, step after step;
# what is left adds up to tol if each step is nine tenths of the last.
STILL = 0.1


# The dense start of the RVM for labels: MacKay steps on all m candidates at once, in p dimensions.
#
# With Phi ~ R F (`designs.lowrank`) the latent values are y = R v + b, v = F w ~ N(0, B) with B =
# F A^-1 F'. At the current y, with Omega the curvature of the likelihood, C = R' Omega R (less the
# part of the intercept) and B = LL', one Newton step is
#
#     M = I + L'CL,   v <- L M^-1 L'r,   r = R'(Omega y + residual),
#
# and the statistics of all candidates under this Gaussian approximation are
#
#     S_j = f_j'(C^-1 + B)^-1 f_j,   Q_j = f_j' B^-1 v,    alpha_j <- alpha_j S_j / Q_j^2.
#
# (C^-1 + B)^-1 = C - C L M^-1 L'C. Q from the residual alone, f_j'R'residual, equals this at the
# mode only; before it, the steps diverge. Each MacKay step makes one Newton step (w_j =
# Q_j/alpha_j), halved where the penalised likelihood would fall. A column with S_j/alpha_j (how
# well the data determine its weight) under 1e-3 is dropped. When no more than p are left the steps
# go on with their exact columns (`mackay`).
#
# Cost: (n + 2m) p^2, in float32 on many candidates until that breaks, and 6 p^3; nothing m x m.


_STEPS = 15
_ONLY_CONSTANT = 1e-6  # share of the power of the columns that is rounding once they are centred
_DROP = 1e-3
_SHARED_STEPS = 8
_SINGLE = 1e12  # entries beyond it have no squares and sums in float32
_SMALL = 500  # candidates up to which float32 saves nothing


class Survivors(NamedTuple):
    """Candidates left, and how many MacKay steps are left to be made on their exact columns."""

    kept: np.ndarray
    alpha: np.ndarray
    w: np.ndarray
    b: float
    steps: int


class DenseStart:
    """All candidates on labels `counts` (weight of the positives, of all, in each row).

    Parameters
    ----------
    factor : LowRank
    counts : array of shape (n_rows, 2)
    intercept : bool
    """

    def __init__(self, factor: LowRank, counts: np.ndarray, intercept: bool) -> None:
        self.counts, self.intercept = counts, intercept
        self._exact = factor.rows, factor.factor
        size = max(float(np.max(np.abs(part), initial=0.0)) for part in self._exact)
        single = size < _SINGLE and factor.factor.shape[1] > _SMALL
        dtype: Any = np.float32 if single else np.float64
        self.R: np.ndarray = np.asfortranarray(factor.rows, dtype=dtype)
        self.F: np.ndarray = np.asfortranarray(factor.factor, dtype=dtype)
        self.w = np.zeros(self.F.shape[1])
        self.b = 0.0
        self.alpha = self._shared()

    def survivors(self, scale: float) -> Survivors:
        """MacKay steps from `scale` times the shared alpha, until no more than p are left."""
        kept = np.arange(self.F.shape[1])
        alpha = np.full(len(kept), scale * self.alpha)
        w, b, steps = self.w, self.b, _STEPS
        while steps > 0 and len(kept) > self.R.shape[1]:
            F: np.ndarray = self.F[:, kept]
            B = _gram(F.T * (1.0 / np.sqrt(alpha)).astype(F.dtype)[:, None])
            N, u, b, step = self._step(B, F @ w.astype(F.dtype), b)
            (symm,) = get_blas_funcs(("symm",), (F,))
            NF: np.ndarray = symm(1.0, N, F, lower=True)
            S = np.einsum("ij,ij->j", F, NF).astype(np.float64)
            Q = (u.astype(F.dtype) @ F).astype(np.float64)
            keep = S > _DROP * alpha
            w = w + step * (Q / alpha - w)
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                alpha = alpha * S / Q**2
            keep &= np.isfinite(alpha)
            kept, alpha, w = kept[keep], alpha[keep], w[keep]
            steps -= 1
        return Survivors(kept, alpha, w, b, steps)

    def _shared(self) -> float:
        """One alpha for all candidates, by MacKay steps; leaves w and b near its mode."""
        FF = _gram(self.F.T)
        full = FF + np.tril(FF, -1).T
        weight = self.counts[:, 1]
        RR = _gram(self.R * np.sqrt(weight).astype(self.R.dtype)[:, None])
        # Latent variance 4 at first, without that of the mean: trace(Phi Phi')/(n alpha) of centred
        # columns. From a larger alpha, wide functions would be taken for constants and all go.
        total = float(np.sum(weight))
        mean = self._columns(weight) / total
        RR = RR + np.tril(RR, -1).T
        power = float(np.sum(RR * full))
        centred = power - total * float(mean @ full @ mean)
        alpha = max(0.25 * max(centred, _ONLY_CONSTANT * power) / total, 1e-30)
        for i in range(_SHARED_STEPS):
            v = self.F @ self.w.astype(self.F.dtype)
            N, u, self.b, step = self._step(FF / alpha, v, self.b)
            self.w = self.w + step * ((u @ self.F).astype(np.float64) / alpha - self.w)
            S = 2.0 * float(np.sum(np.tril(N, -1) * full)) + float(np.diag(N) @ np.diag(full))
            ratio = float(np.clip(S / max(u @ full @ u, 1e-300), 0.05, 20.0))
            if i >= 2:  # the first steps only bring w to the mode
                alpha *= ratio
                if abs(np.log(ratio)) < 0.3:
                    break
        return alpha

    def _step(
        self, B: np.ndarray, v: np.ndarray, b: float
    ) -> tuple[np.ndarray, np.ndarray, float, float]:
        """One Newton step from v and b.

        Returns (C^-1 + B)^-1 (lower triangle), B^-1 v of the new v, the new b, and the fraction
        of the step that was taken.
        """
        v = v.astype(np.float64)
        try:
            return self._newton(B, v, b)
        except np.linalg.LinAlgError:
            if self.R.dtype == np.float64:
                raise
            self.R, self.F = (np.asfortranarray(part) for part in self._exact)
            return self._newton(B, v, b)

    def _newton(
        self, B: np.ndarray, v: np.ndarray, b: float
    ) -> tuple[np.ndarray, np.ndarray, float, float]:
        counts, p = self.counts, len(v)
        L = _cholesky(B, 1e-7 if self.F.dtype == np.float32 else 1e-15)
        y = self._rows(v) + b
        residual, omega = likelihood_slopes(y, counts)
        working = omega * y + residual
        C = _gram(self.R * np.sqrt(omega).astype(self.R.dtype)[:, None])
        r = self._columns(working)
        total = float(np.sum(omega))
        centre = self._columns(omega) / total
        level = float(np.sum(working)) / total
        if self.intercept:
            C -= total * np.multiply.outer(centre, centre)
            r -= (total * level) * centre
        CL = dsymm(1.0, C, L, lower=1)
        M = dtrmm(1.0, L, CL, lower=1, trans_a=1)
        M[np.diag_indices(p)] += 1.0
        LM, info = dpotrf(M, lower=1, overwrite_a=1)
        if info != 0:
            raise np.linalg.LinAlgError("The Newton step in the compressed weights broke down.")
        a = dpotrs(LM, dtrmm(1.0, L, r[:, None], lower=1, trans_a=1), lower=1)[0][:, 0]
        Y = dtrsm(1.0, LM, CL, side=1, lower=1, trans_a=1)
        N = dsyrk(-1.0, Y, beta=1.0, c=C, lower=1)
        u = dtrtrs(L, a, lower=1, trans=1)[0]
        new_v = L @ a
        new_b = level - float(centre @ new_v) if self.intercept else 0.0

        old_a = dtrtrs(L, v, lower=1)[0]
        change = self._rows(new_v - v) + (new_b - b)
        before = self._penalised(y, old_a)
        step = 1.0
        while step > 1e-3:
            if self._penalised(y + step * change, old_a + step * (a - old_a)) >= before:
                break
            step *= 0.5
        return N, u, b + step * (new_b - b), step

    def _rows(self, v: np.ndarray) -> np.ndarray:
        return (self.R @ v.astype(self.R.dtype)).astype(np.float64)

    def _columns(self, values: np.ndarray) -> np.ndarray:
        return (values.astype(self.R.dtype) @ self.R).astype(np.float64)

    def _penalised(self, y: np.ndarray, a: np.ndarray) -> float:
        return log_likelihood(y, self.counts) - 0.5 * float(a @ a)


def mackay(
    Phi: np.ndarray, t: np.ndarray, left: Survivors, intercept: bool, most: int
) -> Survivors:
    """The steps left, on exact columns; keeps at most `most`, those of smallest alpha."""
    kept, alpha, w, b, steps = left
    for _ in range(steps):
        posterior, _ = laplace_posterior(Phi, t, alpha, intercept, (w, b), max_iter=1)
        determined = 1.0 - alpha * np.einsum("ij,ij->i", posterior.form.root, posterior.form.root)
        with np.errstate(divide="ignore", invalid="ignore"):
            alpha = np.maximum(determined, 0.0) / posterior.mean**2
        keep = (determined > _DROP) & np.isfinite(alpha)
        kept, alpha, Phi = kept[keep], alpha[keep], Phi[:, keep]
        w, b = posterior.mean[keep], posterior.intercept
    best = np.sort(np.argsort(alpha, kind="stable")[:most])
    return Survivors(kept[best], alpha[best], w[best], b, 0)


def _gram(A: np.ndarray) -> np.ndarray:
    """The lower triangle of A'A in float64, from a product in the precision of A."""
    (syrk,) = get_blas_funcs(("syrk",), (A,))
    return syrk(1.0, A, trans=1, lower=True).astype(np.float64, order="F")


def _cholesky(B: np.ndarray, eps: float) -> np.ndarray:
    """The factor of B (lower triangle), with as much added to the diagonal as rounding asks for."""
    size = float(np.max(np.diag(B))) or 1.0
    ridge = eps
    while ridge < 1e-2:
        A = B.copy(order="F")
        A[np.diag_indices(len(B))] += ridge * size
        L, info = dpotrf(A, lower=1, clean=1, overwrite_a=1)
        if info == 0:
            return L
        ridge *= 10.0
    raise np.linalg.LinAlgError("The columns overflow float64 when multiplied: scale the inputs.")
