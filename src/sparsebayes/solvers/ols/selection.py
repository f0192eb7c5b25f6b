"""Orthogonal least squares, with one regulariser per term, one for all, or none (Chen 1991, 2001).

Model: t = Phi_S theta + e, Phi_S = W A with orthogonal columns w_i and A unit upper triangular, and
A theta = g. For a candidate j let w be phi_j less its projection on the chosen columns, s = w'w and
q = w't. A forward step takes the candidate of largest

    rerr_j = (s + lam_j) g_j^2 / t't = q^2 / ((s + lam_j) t't),    g_j = q / (s + lam_j),

or the best by another criterion (`criteria`); then 1 - sum rerr = (e'e + sum lam g^2) / t't.
The prior is g_i ~ N(0, sigma2/lam_i): lam penalises the ORTHOGONAL weights. That is ridge with the
penalty A' Lam A, which depends on the order; it is not ridge on theta, nor the model of forward
selection by evidence.

lam by evidence (`regularization="local"`: LROLS, `"uniform"`: UROLS): a first pass over all
candidates with a small lam, then passes in which the chosen columns compete, each with its own lam,
followed by an update of lam. Given the order the evidence separates, and its best lam and sigma2
have a closed form (`regularisers`).

Cost: one read of Phi per term. With u = w/|w| and c = Phi'u, every candidate has s -= c^2 and
q -= c (u't). Columns whose s + lam has lost four digits by that recursion are recomputed from the
columns themselves. The chosen column is orthogonalised a second time where the first lost digits,
and its true w'w is tested again. Later passes work on the k x k triangle, not on the rows.

Deviations from the paper, and why:
- A column is degenerate when w'w <= guard * phi'phi, relative to its own length.
- The paper iterates lam = gamma sigma2/g^2, which converges geometrically and arbitrarily slowly
  for terms that should vanish (it prints lam of 1e7 to 1e32). The closed form needs no iteration.
- A term of infinite lam has no direction of its own, but the terms after it may still use its
  column: dropping all such columns has cost 30 nats. They are dropped together if that costs less
  than 2 nats a column, as in the paper's example, and kept otherwise.
- The evidence keeps a term beyond one standard deviation of the noise, which the best of many
  candidates exceeds by chance. `threshold` requires more.
- A forward search often begins with a proxy (an old input in place of the last output) that the
  true terms make redundant. Its orthogonal weight does not show that, because it comes early. With
  a threshold above one, a term that would fail it in the last place is dropped, unless the evidence
  falls by more than the threshold is worth.
- The paper repeats its passes a fixed number of times. Here they end when a pass that drops no term
  raises the evidence by less than `tol`.
- The first lam is relative to phi'phi, so that the units of the columns do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from ..._array import to_numpy
from ...designs import Design, check_columns
from ...posterior import Dense, Posterior
from ..greedy import near_best
from ..noise import Noise
from ..run import Solution, StopReason
from .criteria import information, press, press_bounds, press_sums
from .orthogonal import Pool, Terms, append_term, first_terms, reorder, squares_if_last
from .regularisers import local_lam, uniform_lam

_START = 1e-5  # lam / phi'phi of the first pass
_EXACT = 1e-28  # of t't: a residual sum of squares of rounding errors alone
_ZERO = 1e-30  # mean square of a target of rounding errors alone
_MIN_GAIN = 2.0  # nats of evidence that a column of infinite lam must be worth to be kept
_CAPACITY = 64  # largest number of terms for which memory is reserved at the start
_BATCH = 16  # candidates whose leave-one-out error is computed in the first round
_ROUNDING = 1e-15  # relative error of the evidence, which no gain of a pass can be told from
_PATIENCE = 5  # terms without a new minimum after which a stopping rule ends the path


class Info(NamedTuple):
    """Record of one step: a term chosen, or a pass over the chosen terms."""

    log_evidence: float
    n_active: int
    noise_variance: float
    accuracy: float  # 1 - sum rerr
    stopping: float  # stopping rule at n_active terms; NaN without one and in later passes
    drift: float  # relative error of the recursive s + lam of the chosen column
    candidate: int  # the column chosen; -1 if there is none


@dataclass
class State:
    """The chosen terms, and the candidates while terms are being chosen."""

    chosen: Terms
    total: float  # t't
    noise: Noise
    pool: Pool | None
    selection_end: StopReason | None = None  # why no further term was chosen
    stop_reason: StopReason | None = None

    @property
    def active(self) -> np.ndarray:
        """Indices of the chosen candidates, in order of choice."""
        return self.chosen.active

    @property
    def lam(self) -> np.ndarray:
        """Regulariser of each chosen candidate."""
        return self.chosen.lam


@dataclass(frozen=True)
class OLSSolution(Solution):
    """The chosen terms in order; `lam` are the regularisers of the orthogonal weights."""

    terms: Terms
    error_reduction: np.ndarray  # share of t't that each term explains (rerr)
    selection_end: StopReason | None  # why no further term was chosen; None if interrupted


@dataclass(frozen=True, eq=False)
class OrthogonalLeastSquares:
    """Forward selection by orthogonal least squares; see the module docstring.

    Parameters
    ----------
    regularization : {"local", "uniform", "none"} or float, default="local"
        One lam for each term or one for all, both by evidence; no regularisation; or a given lam.
    criterion : {"err", "press", "d-optimality", "a-optimality"}, default="err"
        Criterion that the next term optimises: the error reduction, the leave-one-out error, or the
        error reduction with a penalty on columns that leave the weights badly determined.
    beta : float, default=0.1
        Weight of the penalty in the last two criteria, in squared units of t.
    stopping : {"aic", "aicc", "bic", "fpe", "lilc", "press"} or None, default=None
        Stopping rule: the terms up to its minimum over the path are kept.
    tolerance : float, default=0.0
        Value of 1 - sum rerr below which the selection ends (the paper's xi).
    max_terms : int or None, default=None
        Largest number of terms; None for as many as are linearly independent.
    guard : float, default=1e-12
        A column with w'w <= guard * phi'phi is degenerate.
    threshold : float, default=1.0
        Number of noise standard deviations that a term must exceed under local regularisation.
    noise_variance : float or None, default=None
        Fixed noise variance; None estimates it.
    tol : float, default=1e-3
        Smallest gain in evidence (nats) that justifies another pass over the chosen terms.
    units : array or None, default=None
        Squared scale of each column: lam, log s and 1/s refer to the column over its scale.

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

    regularization: str | float = "local"
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
        """Read Phi once for the lengths of the columns and their products with t."""
        pool = Pool(design, t, "press" in (self.criterion, self.stopping))
        norms = pool.norms
        check_columns(design, norms)
        if self._learns:
            lam = _START * norms
        else:
            given = 0.0 if self.regularization == "none" else float(self.regularization)
            lam = given * self._units(np.arange(len(norms)))
        pool.start(lam, min(self.max_terms or 8, len(t), len(norms), _CAPACITY))
        total, empty = float(pool.S), np.zeros(0)
        no_terms = Terms(empty.astype(np.intp), empty, empty, np.zeros((0, 0)), empty, total)
        state = State(no_terms, total, Noise.from_design(design, t, self.noise_variance), pool)
        pool.values.append(self._path_value(pool, design))
        if total <= _ZERO * len(t):
            self._end(state, pool, design, StopReason.NO_SIGNAL)
        return state

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """Choose one more term or, once the selection has ended, make a pass over the terms."""
        value, drift, j = np.nan, np.nan, -1
        if state.pool is None:
            self._pass(state)
        else:
            pool = state.pool
            j, drift = self._choose(state, pool, design)
            value = pool.values[len(state.active)]  # of the kept terms where the path ends
        sigma2 = _noise_variance(state.chosen, state.noise)
        evidence = _log_evidence(state.chosen, state.noise)
        accuracy = state.chosen.E / state.total
        return state, Info(evidence, len(state.active), sigma2, accuracy, value, drift, j)

    def done(self, state: State) -> StopReason | None:
        """Return why the selection ended, once the regularisers are learnt too."""
        return state.stop_reason

    def solution(self, state: State, design: Design, t: np.ndarray) -> OLSSolution:
        """Return theta ~ N(A^-1 g, sigma2 A^-1 diag(1/(s + lam)) A^-T), A^-1 = R^-1 diag(|w|)."""
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
        form = Dense(root, sigma2)
        posterior = Posterior(mean, form, sigma2, evidence, offset_variance=variance)
        shares = terms.explained / state.total if k else np.zeros(0)
        end = state.selection_end
        return OLSSolution(terms.active, terms.lam, posterior, terms, shares, end)

    # The forward selection.

    def _choose(self, state: State, pool: Pool, design: Design) -> tuple[int, float]:
        """Choose a term; return its index and drift, -1 and NaN if the selection ends instead."""
        products = pool.tilted_products() if self.criterion == "press" else None
        pool.absorb()
        pool.free[np.flatnonzero(to_numpy(pool.B) <= self.guard * pool.norms)] = False
        score, exact = self._scores(state, pool, products)
        batch = _BATCH
        while True:
            best = np.max(score, initial=-np.inf)
            if best == -np.inf:
                # Every leave-one-out error or penalty may be infinite while candidates are free.
                free = pool.free.any()
                reason = StopReason.CRITERION if free else StopReason.NO_CANDIDATE
                self._end(state, pool, design, reason)
                return -1, np.nan
            if self.criterion.endswith("optimality") and best <= 0.0:
                self._end(state, pool, design, StopReason.CRITERION)
                return -1, np.nan
            near = near_best(score)
            assert near is not None  # the best score is finite
            if not np.all(exact[near]):
                self._compute_press(pool, score, exact, batch)
                batch *= 4
                continue
            j = int(np.argmax(near))
            h, w, s = pool.orthogonalise(j)
            if s > self.guard * pool.norms[j]:
                break
            pool.free[j] = False
            score[j] = -np.inf
        drift = abs(s - float(pool.B[j])) / (s + pool.lam[j])
        state.chosen = append_term(state.chosen, pool, j, h, w, s)
        pool.values.append(self._path_value(pool, design))
        if end := self._selection_end(state, pool):
            self._end(state, pool, design, end)
        return j, drift

    def _scores(
        self, state: State, pool: Pool, products: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the criterion of each candidate (-inf if it is not free), and which are exact.

        Leave-one-out errors are bounded from `products`, w'x for the tilted residual x, and none of
        them is exact.
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

    def _compute_press(self, pool: Pool, score: np.ndarray, exact: np.ndarray, batch: int) -> None:
        """Replace the `batch` best bounds on leave-one-out errors by the errors themselves."""
        bounded = np.flatnonzero(~exact)
        idx = np.sort(bounded[np.argsort(-score[bounded], kind="stable")[:batch]])
        d = to_numpy(pool.B)[idx] + pool.lam[idx]
        g, value = to_numpy(pool.A)[idx] / d, np.zeros(len(idx))
        for rows, W in pool.blocks(idx):
            value += press_sums(
                to_numpy(W), g, d, pool.e[rows], pool.slack[rows], pool.weight[rows]
            )
        score[idx], exact[idx] = -value, True

    def _selection_end(self, state: State, pool: Pool) -> StopReason | None:
        """Return why no further term is to be chosen, or None."""
        terms, k = state.chosen, len(state.active)
        if terms.rss <= _EXACT * state.total:
            return StopReason.EXACT_FIT
        if terms.E < self.tolerance * state.total:
            return StopReason.TOLERANCE
        if self.max_terms is not None and k >= self.max_terms:
            return StopReason.MAX_TERMS
        # Where the terms minimise leave-one-out errors, later minima are optimistic: first rise.
        patience = 1 if self.stopping is None else _PATIENCE
        if self.rule and k - int(np.argmin(pool.values)) >= patience:
            return StopReason.CRITERION
        return None

    def _path_value(self, pool: Pool, design: Design) -> float:
        """Return the stopping rule at the present number of terms."""
        if self.rule is None:
            return np.nan
        if self.rule == "press":
            return press(pool.e, pool.slack, pool.weight)
        intercept = float(design.offset_scale > 0.0)
        n, n_terms = design.n_observations + intercept, len(pool.values)
        rss, m = float(pool.e @ pool.e), design.n_candidates
        return information(self.rule, n, n_terms + intercept, rss, n_terms, m)

    def _end(self, state: State, pool: Pool, design: Design, reason: StopReason) -> None:
        """Cut the path at the minimum of the stopping rule, then begin to learn lam or finish."""
        k = len(state.active)
        best = int(np.argmin(pool.values)) if self.rule else k
        if best < k:
            reason = StopReason.CRITERION
            state.chosen = first_terms(state.chosen, best)
        if self._learns and best:
            state.chosen = self._update(state.chosen, state.noise)
        else:
            state.stop_reason = reason
        state.selection_end, state.pool = reason, None

    # Passes over the chosen terms, which learn the regularisers.

    def _pass(self, state: State) -> None:
        """Drop terms that the evidence does not need, or else choose the order of terms again."""
        terms = state.chosen
        before = _log_evidence(terms, state.noise)
        for keep, cost in self._proposals(state, before):
            lam, norms = terms.lam[keep], terms.norms[keep]
            order, V, R = reorder(terms.R[:, keep], terms.z, lam, norms, self.guard)
            z = V.T @ terms.z
            rss = terms.rss + float(np.sum(np.square(terms.z - V @ z)))
            trial = Terms(terms.active[keep][order], lam[order], norms[order], R, z, rss)
            trial = self._update(trial, state.noise)
            if _log_evidence(trial, state.noise) >= before - cost:
                state.chosen = trial
                return
        state.stop_reason = state.selection_end

    def _proposals(self, state: State, before: float) -> Iterator[tuple[np.ndarray, float]]:
        """Yield which terms to keep in the next order, and the nats that this may cost.

        Another order of all terms must gain `tol`, and more than rounding errors of `before`, the
        evidence so far: a huge one with `tol` added to it is itself.
        """
        terms = state.chosen
        finite = np.isfinite(terms.lam)
        if len(finite) == 0:
            return
        if not np.all(finite):
            n_infinite = np.count_nonzero(~finite)
            yield finite, n_infinite * max(_MIN_GAIN, 0.5 * self.threshold**2)
        if self.regularization == "local" and self.threshold > 1.0:
            squares = squares_if_last(terms)
            i = int(np.argmin(squares))
            sigma2 = _noise_variance(terms, state.noise)
            if squares[i] <= self.threshold**2 * sigma2:
                yield np.arange(len(squares)) != i, 0.5 * (self.threshold**2 - 1.0)
        yield np.ones(len(finite), dtype=bool), -max(self.tol, _ROUNDING * abs(before))

    def _update(self, terms: Terms, noise: Noise) -> Terms:
        """Set lam to the values of highest evidence for this order.

        lam is infinite where a direction is not needed. Terms after the last finite lam have weight
        zero and are cut.
        """
        s, r = terms.s, np.square(terms.z)
        if self.regularization == "local":
            lam = local_lam(s, r, terms.rss, noise, self.threshold)
        else:
            units = self._units(terms.active)
            units = np.maximum(units / np.max(units, initial=0.0), 1e-290)  # ratios suffice
            own = np.minimum(s / units, 1e300)
            lam = units * uniform_lam(own, r, terms.rss, noise)
        last = np.max(np.flatnonzero(np.isfinite(lam)), initial=-1)
        return first_terms(replace(terms, lam=lam), int(last) + 1)

    # What both have in common.

    @property
    def _learns(self) -> bool:
        """True where lam is learnt."""
        return self.regularization in ("local", "uniform")

    @property
    def rule(self) -> str | None:
        """Stopping rule: leave-one-out if that chooses the terms and no other rule is given."""
        return "press" if self.stopping is None and self.criterion == "press" else self.stopping

    def _units(self, idx: np.ndarray) -> np.ndarray:
        """Return the squared scale of each of these columns."""
        return np.ones(len(idx)) if self.units is None else self.units[idx]


def _noise_variance(terms: Terms, noise: Noise) -> float:
    """Return the noise variance of highest evidence.

    That is E/N; for the flat prior of lam = 0 it is the residual variance with N - k degrees of
    freedom.
    """
    if noise.fixed is not None:
        return float(noise.fixed)
    flat = 0 if np.any(terms.lam) else len(terms.lam)
    degrees = max(noise.n - flat, 1e-3 * max(noise.n, 1.0))
    return max(terms.E / degrees, float(noise.floor))


def _log_evidence(terms: Terms, noise: Noise) -> float:
    """Return the log evidence; with lam = 0, of a flat prior of density one on each weight."""
    n, sigma2 = noise.n, _noise_variance(terms, noise)
    if np.any(terms.lam):
        log_det = float(np.sum(np.log1p(terms.s / terms.lam)))
    else:
        n -= len(terms.lam)
        log_det = float(np.sum(np.log(terms.s)))
    fit = n * np.log(2.0 * np.pi * sigma2) + terms.E / sigma2
    return -0.5 * (fit + log_det) + noise.log_volume
