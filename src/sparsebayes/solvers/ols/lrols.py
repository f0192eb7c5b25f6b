"""Orthogonal least squares, with one regulariser per term, one for all, or none (Chen 1991, 2001).

Model: t = Phi_S theta + e, Phi_S = W A with orthogonal columns w_i and A unit upper triangular, and
A theta = g. For a candidate j let w be phi_j less its projection on the chosen columns, s = w'w and
q = w't. A forward step takes the candidate of largest

    rerr_j = (s + lam_j) g_j^2 / t't = q^2 / ((s + lam_j) t't),    g_j = q / (s + lam_j),

or the best by another criterion (below); after it 1 - sum rerr = (e'e + sum lam g^2) / t't.
The prior is g_i ~ N(0, sigma2/lam_i): lam penalises the ORTHOGONAL weights. That is ridge with the
penalty A' Lam A, which depends on the order; it is not ridge on theta, nor the model of forward
selection by evidence.

lam by evidence (`regularization="local"`: LROLS, `"uniform"`: UROLS): a first pass over all
candidates with a small lam, then passes in which the chosen columns compete, each with its own lam,
followed by an update of lam. Given the order the evidence separates, and its best lam and sigma2
have a closed form (`local_lam`).

Cost: one read of Phi per term. With u = w/|w| and c = Phi'u, every candidate has s -= c^2 and
q -= c (u't). Columns whose s + lam lost four digits that way are measured again directly; the
chosen column is orthogonalised a second time where the first lost digits, and its true w'w is
tested again. Later passes work on the k x k triangle and never touch the rows.

Deviations from the paper, and why:
- A column is degenerate when w'w <= guard * phi'phi, relative to its own length.
- The paper iterates lam = gamma sigma2/g^2, which is geometric and arbitrarily slow for terms that
  should vanish (it prints lam of 1e7 to 1e32). The closed form says so at once.
- A term of infinite lam has no direction of its own left, but as a column it may still serve the
  terms after it: dropping all such columns was seen to cost 30 nats. They go together if that costs
  less than 2 nats a column, as in the paper's example, and stay otherwise.
- The evidence keeps a term beyond one sigma of noise; after a search chance passes that easily.
  `threshold` asks for more.
- A forward search often begins with a stand-in (an old input for the last output) that the true
  terms make needless. Its orthogonal weight does not show that, coming early. With a threshold
  above one a term that would not pass it if it came last is dropped, unless the evidence falls by
  more than the threshold is worth.
- The paper repeats its passes a fixed number of times. Here a pass that drops nothing must raise
  the evidence by `tol`, which ends them.
- The first lam is relative to phi'phi, so that the units of the columns do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize_scalar

from ..._array import to_numpy
from ...designs import Design, check_columns
from ...posterior import Dense, Posterior
from ..greedy import near_best
from ..noise import Noise
from ..run import StopReason
from .orthogonal import Chosen, Pool, append, first, last_in_order, reorder

_START = 1e-5  # lam / phi'phi of the first pass
_EXACT = 1e-28  # of t't: nothing but rounding is left to explain
_ZERO = 1e-30  # mean square of a target that is rounding alone
_WORTH = 2.0  # nats of evidence that a column must bring to stay
_ROOM = 64  # terms to make room for at first, at most
_BATCH = 16  # candidates whose leave-one-out error is computed at first
_PATIENCE = 5  # terms without a new minimum after which a stopping rule ends the path


class Info(NamedTuple):
    """One step, for the reader: a term chosen, or a pass over the chosen terms."""

    log_evidence: float
    n_active: int
    noise_variance: float
    accuracy: float  # 1 - sum rerr
    stopping: float  # stopping rule at n_active terms; NaN without one and in later passes
    drift: float  # relative error of the recursive s + lam of the chosen column
    candidate: int  # the column chosen; -1 where none was


@dataclass
class State:
    """The terms so far, and the candidates while they are being chosen."""

    chosen: Chosen
    total: float  # t't
    noise: Noise
    pool: Pool | None
    selection_end: StopReason | None = None  # why no further term was chosen
    stop_reason: StopReason | None = None

    @property
    def active(self) -> np.ndarray:
        """The chosen candidates, in order."""
        return self.chosen.active

    @property
    def lam(self) -> np.ndarray:
        """Their regularisers."""
        return self.chosen.lam


@dataclass(frozen=True, eq=False)
class OrthogonalLeastSquares:
    """Forward selection by orthogonal least squares; see the module docstring.

    Parameters
    ----------
    regularization : {"local", "uniform", "none"} or float, default="local"
        One lam per term or one for all, by evidence; none; or one for all, given.
    criterion : {"err", "press", "d-optimality", "a-optimality"}, default="err"
        What the next term has the best of: the error reduction, the leave-one-out error, or the
        error reduction with a price for columns that leave weights badly determined.
    beta : float, default=0.1
        Weight of the optimality in the last two, in squared units of t.
    stopping : {"aic", "aicc", "bic", "fpe", "lilc", "press"} or None, default=None
        Keep the terms up to the minimum of this value over the path.
    tolerance : float, default=0.0
        End where 1 - sum rerr falls below it (the paper's xi).
    max_terms : int or None, default=None
        Most terms; None: as many as can be told from those chosen.
    guard : float, default=1e-12
        A column with w'w <= guard * phi'phi is degenerate.
    threshold : float, default=1.0
        Standard deviations of noise that a term of local regularisation must exceed to stay.
    noise_variance : float or None, default=None
        Fixed noise variance; None learns it.
    tol : float, default=1e-3
        Nats of evidence that another pass over the chosen terms must gain.
    units : array or None, default=None
        Squared scale of each column: lam, log s and 1/s are those of the column over its scale.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers import OrthogonalLeastSquares, run
    >>> rng = np.random.default_rng(0)
    >>> Phi = rng.standard_normal((50, 10))
    >>> t = 2 * Phi[:, 3] - Phi[:, 7] + 0.1 * rng.standard_normal(50)
    >>> result = run(OrthogonalLeastSquares(stopping="bic"), DenseDesign(Phi), t, max_iter=100)
    >>> result.state.active[:2]
    array([3, 7])
    """

    regularization: Any = "local"
    criterion: str = "err"
    beta: float = 0.1
    stopping: str | None = None
    tolerance: float = 0.0
    max_terms: int | None = None
    guard: float = 1e-12
    threshold: float = 1.0
    noise_variance: float | None = None
    tol: float = 1e-3
    units: np.ndarray | None = None

    def init(self, design: Design, t: np.ndarray) -> State:
        """No term yet: one read of Phi for the lengths of the columns and their products with t."""
        pool = Pool(design, t, "press" in (self.criterion, self.stopping))
        norms = pool.norms
        check_columns(design, norms)
        if self._learns:
            lam = _START * norms
        else:
            given = 0.0 if self.regularization == "none" else float(self.regularization)
            lam = given * self._units(np.arange(len(norms)))
        pool.start(lam, min(self.max_terms or 8, len(t), len(norms), _ROOM))
        total, none = pool.S, np.zeros(0)
        empty = Chosen(none.astype(np.intp), none, none, np.zeros((0, 0)), none, total)
        state = State(empty, total, Noise.from_design(design, t, self.noise_variance), pool)
        pool.values.append(self._path_value(pool, design))
        if total <= _ZERO * len(t):
            self._end(state, pool, design, StopReason.NO_SIGNAL)
        return state

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """Choose one more term; when all are chosen, one pass over them."""
        value, drift, j = np.nan, np.nan, -1
        if state.pool is None:
            self._pass(state)
        else:
            pool = state.pool
            j, drift = self._choose(state, pool, design)
            value = pool.values[len(state.active)]  # where the path ends, that of the kept terms
        sigma2 = _noise_variance(state.chosen, state.noise)
        evidence = _log_evidence(state.chosen, state.noise)
        accuracy = state.chosen.E / state.total
        return state, Info(evidence, len(state.active), sigma2, accuracy, value, drift, j)

    def done(self, state: State) -> StopReason | None:
        """Return why the selection ended, once the regularisers are learnt too."""
        return state.stop_reason

    def posterior(self, state: State, design: Design, t: np.ndarray) -> Posterior:
        """theta ~ N(A^-1 g, sigma2 A^-1 diag(1/(s + lam)) A^-T), with A^-1 = R^-1 diag(|w|)."""
        terms = state.chosen
        sigma2 = _noise_variance(terms, state.noise)
        evidence = _log_evidence(terms, state.noise)
        k = len(terms.z)
        root, mean = np.zeros((k, k)), np.zeros(k)
        if k:
            length = np.diag(terms.R)
            root = solve_triangular(terms.R, np.diag(length / np.sqrt(terms.s + terms.lam)))
            mean = solve_triangular(terms.R, length * terms.g)
        variance = design.offset_scale * sigma2
        return Posterior(mean, Dense(root, sigma2), sigma2, evidence, offset_variance=variance)

    # The first pass.

    def _choose(self, state: State, pool: Pool, design: Design) -> tuple[int, float]:
        """One forward step: the candidate and its drift, -1 and NaN where none was left."""
        products = pool.tilted_products() if self.criterion == "press" else None
        pool.absorb()
        pool.free[np.flatnonzero(to_numpy(pool.B) <= self.guard * pool.norms)] = False
        score, known = self._scores(state, pool, products)
        batch = _BATCH
        while True:
            best = np.max(score, initial=-np.inf)
            if best == -np.inf:
                # Every leave-one-out error or penalty may be infinite, while candidates are left.
                criterion = pool.free.any()
                reason = StopReason.CRITERION if criterion else StopReason.NO_CANDIDATE
                self._end(state, pool, design, reason)
                return -1, np.nan
            if self.criterion.endswith("optimality") and best <= 0.0:
                self._end(state, pool, design, StopReason.CRITERION)
                return -1, np.nan
            near = near_best(score)
            if not np.all(known[near]):
                self._examine(pool, score, known, batch)
                batch *= 4
                continue
            j = int(np.argmax(near))
            h, w, s = pool.orthogonalise(j)
            if s > self.guard * pool.norms[j]:
                break
            pool.free[j] = False
            score[j] = -np.inf
        drift = abs(s - float(pool.B[j])) / (s + pool.lam[j])
        state.chosen = append(state.chosen, pool, j, h, w, s)
        pool.values.append(self._path_value(pool, design))
        if end := self._why_end(state, pool):
            self._end(state, pool, design, end)
        return j, drift

    def _scores(
        self, state: State, pool: Pool, products: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The criterion of each free candidate, -inf for the others, and which are exact.

        Leave-one-out errors are first bounded from `products`, w'x for the tilted residual x.
        """
        score = np.full(len(pool.B), -np.inf)
        idx = np.flatnonzero(to_numpy(pool.free))
        s, q = to_numpy(pool.B)[idx], to_numpy(pool.A)[idx]
        d = s + pool.lam[idx]
        if products is not None:
            score[idx] = -press_bounds(s, q / d, products[idx], pool.e, pool.slack, pool.weight)
            return score, ~np.isfinite(score)
        value = q * q / (d * state.total)
        own = s / self._units(idx)
        if self.criterion == "d-optimality":
            value += self.beta * np.log(own) / state.total
        elif self.criterion == "a-optimality":
            with np.errstate(over="ignore"):
                value -= self.beta / own / state.total
        score[idx] = value
        return score, np.ones(len(score), dtype=bool)

    def _examine(self, pool: Pool, score: np.ndarray, known: np.ndarray, batch: int) -> None:
        """Leave-one-out errors themselves, of the unknown candidates that promise most."""
        unknown = np.flatnonzero(~known)
        idx = np.sort(unknown[np.argsort(-score[unknown], kind="stable")[:batch]])
        d = to_numpy(pool.B)[idx] + pool.lam[idx]
        g, value = to_numpy(pool.A)[idx] / d, np.zeros(len(idx))
        for rows, W in pool.blocks(idx):
            value += press_sums(
                to_numpy(W), g, d, pool.e[rows], pool.slack[rows], pool.weight[rows]
            )
        score[idx], known[idx] = -value, True

    def _why_end(self, state: State, pool: Pool) -> StopReason | None:
        terms, k = state.chosen, len(state.active)
        if terms.outside <= _EXACT * state.total:
            return StopReason.EXACT_FIT
        if terms.E < self.tolerance * state.total:
            return StopReason.TOLERANCE
        if self.max_terms is not None and k >= self.max_terms:
            return StopReason.MAX_TERMS
        # Where leave-one-out itself chooses, its minimum is soon too good to be true: first rise.
        patience = 1 if self.stopping is None else _PATIENCE
        if self.rule and k - int(np.argmin(pool.values)) >= patience:
            return StopReason.CRITERION
        return None

    def _path_value(self, pool: Pool, design: Design) -> float:
        """The stopping rule at the present number of terms."""
        if self.rule is None:
            return np.nan
        if self.rule == "press":
            return press(pool.e, pool.slack, pool.weight)
        intercept = float(design.offset_scale > 0.0)
        n, k = design.n_observations + intercept, len(pool.values) + intercept
        return information(self.rule, n, k, float(pool.e @ pool.e))

    def _end(self, state: State, pool: Pool, design: Design, reason: StopReason) -> None:
        """Go back to the minimum of the stopping rule; then learn lam, or be done."""
        k = len(state.active)
        best = int(np.argmin(pool.values)) if self.rule else k
        if best < k:
            reason = StopReason.CRITERION
            state.chosen = first(state.chosen, best)
        if self._learns and best:
            state.chosen = self._update(state.chosen, state.noise)
        else:
            state.stop_reason = reason
        state.selection_end, state.pool = reason, None

    # Passes over the chosen terms, for the regularisers.

    def _pass(self, state: State) -> None:
        """Drop columns that the evidence does not ask for; else let the terms compete again."""
        terms = state.chosen
        before = _log_evidence(terms, state.noise)
        for keep, price in self._proposals(state):
            lam, norms = terms.lam[keep], terms.norms[keep]
            order, V, R = reorder(terms.R[:, keep], terms.z, lam, norms, self.guard)
            z = V.T @ terms.z
            outside = terms.outside + float(np.sum(np.square(terms.z - V @ z)))
            trial = Chosen(terms.active[keep][order], lam[order], norms[order], R, z, outside)
            trial = self._update(trial, state.noise)
            if _log_evidence(trial, state.noise) >= before - price:
                state.chosen = trial
                return
        state.stop_reason = state.selection_end

    def _proposals(self, state: State) -> Iterator[tuple[np.ndarray, float]]:
        """Which terms to keep in the next order, and the nats that this may cost."""
        terms = state.chosen
        finite = np.isfinite(terms.lam)
        if len(finite) == 0:
            return
        if not np.all(finite):
            lost = np.count_nonzero(~finite)
            yield finite, lost * max(_WORTH, 0.5 * self.threshold**2)
        if self.regularization == "local" and self.threshold > 1.0:
            weak = last_in_order(terms)
            i = int(np.argmin(weak))
            sigma2 = _noise_variance(terms, state.noise)
            if weak[i] <= self.threshold**2 * sigma2:
                yield np.arange(len(weak)) != i, 0.5 * (self.threshold**2 - 1.0)
        yield np.ones(len(finite), dtype=bool), -self.tol

    def _update(self, terms: Chosen, noise: Noise) -> Chosen:
        """The lam of highest evidence for this order; infinite where a direction is not needed.

        Terms after the last finite lam have weight zero, and are cut.
        """
        s, r = terms.s, np.square(terms.z)
        if self.regularization == "local":
            lam = local_lam(s, r, terms.outside, noise, self.threshold)
        else:
            units = self._units(terms.active)
            units = np.maximum(units / np.max(units, initial=0.0), 1e-290)  # ratios suffice here
            own = np.minimum(s / units, 1e300)
            lam = units * uniform_lam(own, r, terms.outside, noise)
        last = np.max(np.flatnonzero(np.isfinite(lam)), initial=-1)
        return first(replace(terms, lam=lam), int(last) + 1)

    # Shared.

    @property
    def _learns(self) -> bool:
        return self.regularization in ("local", "uniform")

    @property
    def rule(self) -> str | None:
        """What ends the path: leave-one-out where it chooses and nothing else was asked for."""
        return "press" if self.stopping is None and self.criterion == "press" else self.stopping

    def _units(self, idx: np.ndarray) -> np.ndarray:
        return np.ones(len(idx)) if self.units is None else self.units[idx]


def _noise_variance(terms: Chosen, noise: Noise) -> float:
    """The one of highest evidence: E/N; for the flat prior of lam = 0 |residual|^2/(N - k)."""
    if noise.fixed is not None:
        return noise.fixed
    flat = 0 if np.any(terms.lam) else len(terms.lam)
    return max(terms.E / max(noise.n - flat, 1e-3 * max(noise.n, 1.0)), noise.floor)


def _log_evidence(terms: Chosen, noise: Noise) -> float:
    """Log evidence; with lam = 0 that of a flat prior of density one on each weight."""
    n, sigma2 = noise.n, _noise_variance(terms, noise)
    if np.any(terms.lam):
        log_det = float(np.sum(np.log1p(terms.s / terms.lam)))
    else:
        n -= len(terms.lam)
        log_det = float(np.sum(np.log(terms.s)))
    fit = n * np.log(2.0 * np.pi * sigma2) + terms.E / sigma2
    return -0.5 * (fit + log_det) + noise.log_volume


# What a candidate is worth, and where a path of models should end.
#
# In the notation of `lrols`: w is a candidate less its projection on the chosen columns, s = w'w,
# q = w't, lam its regulariser, rerr = q^2 / ((s + lam) t't).
#
#     err             rerr
#     d-optimality    rerr + beta log(s) / t't        since log|Phi'Phi| = sum log s over the chosen
#     a-optimality    rerr - beta / s / t't
#     press           least mean squared leave-one-out error, recursive in the chosen terms:
#                     e(i) -= w(i) g,   eta(i) -= w(i)^2 / (s + lam),   mean of (e(i)/eta(i))^2
#
# and over the path, with k parameters and squared residual sse, N log(sse/N) + penalty(N, k).
#
# Leave-one-out with weights: a row of weight v stands for v equal rows of which one is left out.
# Its weighted residual e and slack v eta (v less the leverage of the v copies) give v^2 (e /
# slack)^2.


CRITERIA = ("err", "press", "d-optimality", "a-optimality")

# Infinite where the formula has no meaning.
_PENALTIES: dict[str, Callable[[float, float], float]] = {
    "aic": lambda n, k: 2.0 * k,
    "aicc": lambda n, k: 2.0 * k * n / (n - k - 1.0) if n > k + 1.0 else np.inf,
    "bic": lambda n, k: k * np.log(n),
    "fpe": lambda n, k: n * np.log((n + k) / (n - k)) if n > k else np.inf,
    "lilc": lambda n, k: 2.0 * k * np.log(np.log(n)) if n > np.exp(1.0) else np.inf,
}
STOPPING = (*_PENALTIES, "press")


def information(name: str, n: float, k: float, sse: float) -> float:
    """An information criterion of a model with k parameters; smaller is better."""
    if sse <= 0.0:
        return -np.inf
    return float(n * np.log(sse / n) + _PENALTIES[name](n, k))


def press(e: np.ndarray, slack: np.ndarray, weight: np.ndarray) -> float:
    """Mean squared leave-one-out error; infinite where the model interpolates a row."""
    if np.any(slack <= 0.0):
        return np.inf
    return float(np.sum(np.square(weight * e / slack)) / np.sum(weight))


def press_bounds(
    s: np.ndarray,
    g: np.ndarray,
    products: np.ndarray,
    e: np.ndarray,
    slack: np.ndarray,
    weight: np.ndarray,
) -> np.ndarray:
    """From below: summed squared leave-one-out errors with each of several columns added alone.

    A new column only takes slack away, so the sum is at least that of v^2 ((e - w g)/slack)^2 with
    the slack of now. `products` is w'x with x = v^2 e/slack^2, so all but the square of w is known
    without w, and that has at least the weight of the row of most slack.
    """
    if np.any(slack <= 0.0):
        return np.full(len(s), np.inf)
    tilt = np.square(weight / slack)
    return np.sum(tilt * np.square(e)) - 2.0 * g * products + np.min(tilt) * np.square(g) * s


def press_sums(
    W: np.ndarray,
    g: np.ndarray,
    d: np.ndarray,
    e: np.ndarray,
    slack: np.ndarray,
    weight: np.ndarray,
) -> np.ndarray:
    """On a block of rows: summed squared leave-one-out errors with each column of W added alone.

    `g` are the weights of the columns and `d` = s + lam. W is written over.
    """
    left = np.square(W)
    left *= -1.0 / d
    left += slack[:, None]
    W *= -g
    W += e[:, None]
    interpolated = np.min(left, initial=np.inf) <= 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        W /= left
    if interpolated:
        W[left <= 0.0] = np.inf
    return np.square(weight) @ np.square(W, out=W)


# The regularisers of highest evidence for orthogonal columns in a given order.
#
# With s_i = w_i'w_i, r_i = q_i^2/s_i and what no column explains, |t outside|^2, the negative log
# evidence separates (see `lrols`):
#
#     N/2 log sigma2 + 1/2 sum log(1 + s_i/lam_i) + (t't - sum q_i^2/(s_i + lam_i)) / (2 sigma2).
#
# One lam per term: lam_i = s_i sigma2/(r_i - sigma2) where r_i > sigma2, else infinite; the best
# sigma2 is |t - least squares on the K finite terms|^2 / (N - K), and since those are the K
# largest r the best K is found by sorting: no iteration. One lam for all is a search in one
# dimension.


def local_lam(
    s: np.ndarray, r: np.ndarray, outside: float, noise: Noise, threshold: float
) -> np.ndarray:
    """One lam per term; infinite where r is not beyond `threshold`^2 sigma2."""
    n, sigma2 = noise.n, noise.fixed
    if sigma2 is None:
        order = np.argsort(-r, kind="stable")
        k = np.arange(1, len(r) + 1)
        # Squared residual with the k largest: summed from the smallest up, so no cancellation.
        tail = np.append(np.cumsum(r[order][::-1])[::-1][1:], 0.0)
        with np.errstate(divide="ignore", over="ignore"):
            left = np.where(n > k, (outside + tail) / np.maximum(n - k, 1e-300), np.inf)
        left = np.maximum(left, noise.floor)
        passing = np.flatnonzero(r[order] > threshold**2 * left)
        if len(passing) == 0:
            return np.full(len(r), np.inf)
        sigma2 = float(left[passing[-1]])
    keep = r > threshold**2 * sigma2
    with np.errstate(over="ignore"):
        return np.where(keep, s * sigma2 / np.where(keep, r - sigma2, 1.0), np.inf)


def uniform_lam(s: np.ndarray, r: np.ndarray, outside: float, noise: Noise) -> float:
    """One lam for all terms; infinite where the evidence prefers no term."""
    n = noise.n

    def objective(log_lam: Any) -> Any:
        lam = np.exp(np.minimum(log_lam, 700.0))[..., None]
        E = np.maximum(outside + np.sum(r * lam / (s + lam), axis=-1), n * noise.floor)
        fit = n * np.log(E) if noise.fixed is None else E / noise.fixed
        return fit + np.sum(np.log1p(s / lam), axis=-1)

    grid = np.arange(np.log(np.min(s)) - 30.0, np.log(np.max(s)) + 30.0, 0.5)
    values = objective(grid)
    i = int(np.clip(np.argmin(values), 1, len(grid) - 2))
    found = minimize_scalar(
        objective, bounds=(grid[i - 1], grid[i + 1]), method="bounded", options={"xatol": 1e-8}
    )
    # At the upper end of the grid lam is infinite to rounding.
    absent = float(objective(np.log(np.max(s)) + 80.0))
    return float(np.exp(found.x)) if found.fun < absent - 1e-9 * n else np.inf
