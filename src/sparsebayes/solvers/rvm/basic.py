"""The basic relevance vector machine (Tipping 2001), MacKay re-estimation with safe pruning.

Model: t = Phi w + e, w_j ~ N(0, 1/alpha_j), e ~ N(0, sigma2). With lam = alpha sigma2,
W = (Phi'Phi + Lam)^-1 and mu = W Phi't, one step is

    gamma_j = 1 - lam_j W_jj                            how well the data determine weight j
    alpha_j <- gamma_j / mu_j^2                         Tipping 2001, eq (16)
    sigma2  <- |t - Phi mu|^2 / (N - sum gamma)         eq (18)

starting with all m columns. [Phi t] is reduced once to its triangle (n m^2), so that a step costs
k^3 for k remaining columns, and residuals still come from columns, never from the Gram matrix.

Deviations, and why:
- MacKay's step may lower the evidence. Then the EM step, which cannot, is taken from the same point
  instead, and no column is pruned.
- The paper prunes at a large alpha. The alpha of a column that should vanish grows by the factor
  s/q^2 a step, which can be arbitrarily slow. Here a column is deleted when lam exceeds 1e6 |h|^2,
  or when its exact one-column optimum is absence; several at once only if that does not lower the
  evidence.
- lam stays above 1e-12 |h|^2, below which the Gram matrix gives rounding errors.
- The search starts at the shared lam/|h|^2 of highest evidence, with the best noise variance there.
- Beside functions that vanish with distance, the intercept is fixed at the mean of the target until
  the columns have settled, and integrated out then (`search.fixes_intercept_first`).
- Convergence is judged by evidence: no single re-estimate or deletion gains `tol` nats, nor do
  Newton steps on all lam together (`polish.newton`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from ...designs import Design
from ...linalg import inverse_root, inverse_root_qr
from ...posterior import augmented_triangle, gaussian_posterior
from ..noise import noise_floor
from ..run import Solution, StopReason
from .dense_start import shared_lam
from .one_column import EXACT_FIT, SMALLEST_LAM, at_limit, moving_gain
from .polish import newton_on
from .search import fixes_intercept_first

_PRUNE = 1e6  # lam / |h|^2 above which a column has no effect
_MOST_RETURNS = 20  # to one point, after which no step leaves it
_SETTLED = 0.1  # largest change of log lam below which columns may be deleted


class Info(NamedTuple):
    """Record of one step."""

    log_evidence: float
    n_active: int
    noise_variance: float
    largest_gain: float
    n_determined: float  # sum gamma: weights that the data determine


class Moments(NamedTuple):
    """Posterior quantities at given (lam, sigma2)."""

    mu: np.ndarray
    W_diag: np.ndarray
    sse: float  # |t - Phi mu|^2
    E: float  # sse + mu' Lam mu
    log_det: float  # log|Phi'Phi + Lam| - sum log lam


@dataclass
class State:
    """The remaining columns (as columns of the triangle), their lam, and the noise variance."""

    active: np.ndarray
    lam: np.ndarray
    sigma2: float
    R: np.ndarray
    G: np.ndarray
    z: np.ndarray
    rss: float  # residual sum of squares of least squares on all columns
    previous: tuple[np.ndarray, float, float] | None = None  # lam, sigma2 and evidence before
    settled: bool = False
    returns: int = 0  # times that the search went back to one point
    stop_reason: StopReason | None = None
    now: Moments | None = None  # moments at this lam, if they are computed
    fixed_intercept: bool = False  # at the mean of the target


@dataclass(frozen=True)
class BasicRVM:
    """MacKay re-estimation from all columns; see the module docstring.

    Parameters
    ----------
    noise_variance : float or None, default=None
        Fixed noise variance; None estimates it.
    tol : float, default=1e-3
        Largest gain (nats) that a single re-estimate or deletion may have at convergence.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers import BasicRVM, run
    >>> rng = np.random.default_rng(0)
    >>> Phi = rng.standard_normal((50, 10))
    >>> t = Phi[:, 3] + 0.1 * rng.standard_normal(50)
    >>> result = run(BasicRVM(), DenseDesign(Phi), t, max_iter=500)
    >>> result.converged, 3 in result.state.active
    (True, True)
    """

    noise_variance: float | None = None
    tol: float = 1e-3

    def init(self, design: Design, t: np.ndarray) -> State:
        """Start with all columns, at the shared lam/|h|^2 of highest evidence."""
        m, n = design.n_candidates, design.n_observations
        fixed_intercept = fixes_intercept_first(design)
        if fixed_intercept:
            design = design.uncentred
        everything = np.arange(m)
        R, z, residual = augmented_triangle(design, t, everything, np.zeros(m))
        rss = float(residual)
        G = R.T @ R
        norms = np.diag(G)
        keep = norms > 0
        R, G, norms = R[:, keep], G[np.ix_(keep, keep)], norms[keep]
        shared, sigma2 = _shared(R / np.sqrt(norms), z, rss, n, self.noise_variance, t)
        lam = np.maximum(shared, SMALLEST_LAM) * norms
        return State(everything[keep], lam, sigma2, R, G, z, rss, fixed_intercept=fixed_intercept)

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """Take one MacKay step or, once the other columns have settled, delete columns."""
        n, fixed = design.n_observations, self.noise_variance
        floor = noise_floor(t, n)
        centred = design
        if state.fixed_intercept:
            design = design.uncentred
        now = state.now or moments(state, state.lam)
        state.now = None
        evidence = log_evidence(now, n, state.sigma2, design)
        if state.previous is not None and evidence < state.previous[2] - 1e-9 * abs(evidence):
            # MacKay's step lowered the evidence: go back and take the EM step, which cannot.
            lam, sigma2, _ = state.previous
            state.lam, state.sigma2 = lam, sigma2
            now = moments(state, lam)
            evidence = log_evidence(now, n, sigma2, design)
            state.returns += 1
            new_lam, new_sigma2 = _em_step(state, now, n, fixed, floor)
        else:
            if state.previous is None or evidence > state.previous[2]:
                state.returns = 0
            new_lam, new_sigma2 = _mackay_step(state, now, n, fixed, floor)

        gains, absent, limited = _one_column_gains(state, now, n, fixed, floor, self.tol)
        largest = float(np.max(gains, initial=0.0))
        if fixed is None:
            profiled = max(now.E / n, floor)
            largest = max(largest, log_evidence(now, n, profiled, design) - evidence)
        determined = float(np.sum(np.clip(1.0 - state.lam * now.W_diag, 0.0, 1.0)))
        info = Info(evidence, len(state.active), state.sigma2, largest, determined)
        if state.returns > _MOST_RETURNS:  # rounding errors hide the gain of the EM step
            state.stop_reason = StopReason.STALLED
            return state, info
        if largest < self.tol:
            gain = _joint_step(state, evidence, design, n, fixed, floor)
            if gain >= self.tol:
                return state, info._replace(largest_gain=gain)
            if state.fixed_intercept:
                return _free_intercept(state, centred, t), info
            state.stop_reason = StopReason.AT_BOUND if limited else StopReason.CONVERGED
            return state, info

        if state.settled and np.any(absent):
            return self._delete(state, gains, absent, evidence, design, t), info
        with np.errstate(invalid="ignore"):
            change = np.abs(np.log(new_lam / state.lam))
        state.settled = bool(np.max(change[~absent], initial=0.0) < _SETTLED)
        keep = np.isfinite(new_lam) & (new_lam < _PRUNE * np.diag(state.G))
        state.previous = (state.lam, state.sigma2, evidence)
        if not np.all(keep):
            pruned = _part(state, keep, new_lam, new_sigma2)
            pruned.now = moments(pruned, pruned.lam)
            after = log_evidence(pruned.now, n, new_sigma2, design)
            if after >= evidence - 1e-9 * abs(evidence):
                return pruned, info
            # Pruning cannot be undone: take the EM step, with all columns.
            new_lam, new_sigma2 = _em_step(state, now, n, fixed, floor)
        state.lam, state.sigma2 = new_lam, new_sigma2
        return state, info

    def _delete(
        self,
        state: State,
        gains: np.ndarray,
        absent: np.ndarray,
        evidence: float,
        design: Design,
        t: np.ndarray,
    ) -> State:
        """Delete all columns whose optimum is absence if the evidence rises, else only the best."""
        n = design.n_observations
        all_but_best = np.arange(len(absent)) != np.argmax(np.where(absent, gains, -1.0))
        for keep in (~absent, all_but_best):
            trial = _part(state, keep, state.lam, state.sigma2)
            now = moments(trial, trial.lam)
            if self.noise_variance is None:  # the gains are those at the best noise variance
                trial.sigma2 = max(now.E / n, noise_floor(t, n))
            trial.settled, trial.now = False, now
            if log_evidence(now, n, trial.sigma2, design) >= evidence:
                return trial
        state.settled = False  # at the smallest noise variance the computed gains are too large
        return state

    def done(self, state: State) -> StopReason | None:
        """Return why the search has finished, or None while it has not."""
        return state.stop_reason

    def solution(self, state: State, design: Design, t: np.ndarray) -> Solution:
        """Return the posterior from exact columns, with the best noise variance for this lam."""
        n = design.n_observations
        sigma2 = self.noise_variance
        if state.fixed_intercept:
            state = _free_intercept(state, design, t)
        if sigma2 is None:
            sigma2 = max(moments(state, state.lam).E / n, noise_floor(t, n))
        posterior = gaussian_posterior(design, t, state.active, state.lam, sigma2)
        return Solution(state.active, state.lam, posterior)


def _part(state: State, keep: np.ndarray, lam: np.ndarray, sigma2: float) -> State:
    """Return the state with these columns alone."""
    return State(
        state.active[keep],
        lam[keep],
        sigma2,
        state.R[:, keep],
        state.G[np.ix_(keep, keep)],
        state.z,
        state.rss,
        settled=state.settled,
        fixed_intercept=state.fixed_intercept,
    )


def _free_intercept(state: State, design: Design, t: np.ndarray) -> State:
    """Return the state with centred columns; t is centred already."""
    R, z, rss = augmented_triangle(design, t, state.active, np.zeros(len(state.active)))
    return State(state.active, state.lam, state.sigma2, R, R.T @ R, z, float(rss))


def _shared(
    R: np.ndarray, z: np.ndarray, rss: float, n: float, fixed: float | None, t: np.ndarray
) -> tuple[float, float]:
    """Return the shared lam of highest evidence for columns R of length 1, and the noise variance.

    Where that fits the target to the last digits (duplicate rows, no noise) or leaves all columns
    nearly absent (no signal), a tenth of the target is noise and the columns share
    E|Phi w|^2 = |t|^2.
    """
    floor, tt = noise_floor(t, n), float(t @ t)
    e, V = eigh(R @ R.T, check_finite=False)
    squares = (V.T @ z)[:, None] ** 2
    lam, E = shared_lam(np.maximum(e, 0.0), squares, rss, n, fixed, floor)
    sigma2 = fixed or max(0.1 * tt / n, floor)
    most = sigma2 * R.shape[1] / max(tt, sigma2)
    if E[0] <= EXACT_FIT * tt or lam >= most:
        return most, sigma2
    return lam, fixed or max(float(E[0]) / n, floor)


def moments(state: State, lam: np.ndarray) -> Moments:
    """Return the posterior moments of a state at this lam."""
    try:
        root, log_det = inverse_root(state.G, lam)
        mu = root @ (root.T @ (state.R.T @ state.z))
    except np.linalg.LinAlgError:
        Q, root, log_det = inverse_root_qr(state.R, lam)
        mu = root @ (Q[: len(state.z)].T @ state.z)
    W_diag = np.einsum("ij,ij->i", root, root)
    r = state.z - state.R @ mu
    sse = float(r @ r) + state.rss
    E = sse + float(lam @ (mu * mu))
    return Moments(mu, W_diag, sse, E, log_det - float(np.sum(np.log(lam))))


def log_evidence(now: Moments, n: float, sigma2: float, design: Design) -> float:
    """Return log N(t | 0, sigma2 I + Phi A^-1 Phi')."""
    fit = n * np.log(2.0 * np.pi * sigma2) + now.E / sigma2
    return -0.5 * (fit + now.log_det) + design.log_volume


def _mackay_step(
    state: State, now: Moments, n: float, fixed: float | None, floor: float
) -> tuple[np.ndarray, float]:
    """Return lam and sigma2 by Tipping 2001, eq (16) and (18)."""
    gamma = np.clip(1.0 - state.lam * now.W_diag, 0.0, 1.0)
    # A gamma of rounding errors means absence: 0/mu^2 must not become alpha = 0.
    determined = gamma > 1e-12
    sigma2 = fixed or max(now.sse / max(n - float(np.sum(gamma)), 1e-3 * n), floor)
    with np.errstate(divide="ignore", invalid="ignore"):  # 0/0 of an absent column
        lam = np.where(determined, sigma2 * gamma / now.mu**2, np.inf)
    return np.maximum(lam, SMALLEST_LAM * np.diag(state.G)), sigma2


def _em_step(
    state: State, now: Moments, n: float, fixed: float | None, floor: float
) -> tuple[np.ndarray, float]:
    """Return lam and sigma2 by EM, which does not lower the evidence."""
    gamma = np.clip(1.0 - state.lam * now.W_diag, 0.0, 1.0)
    sigma2 = fixed or max((now.sse + state.sigma2 * float(np.sum(gamma))) / n, floor)
    lam = sigma2 / (now.mu**2 + state.sigma2 * now.W_diag)
    return np.maximum(lam, SMALLEST_LAM * np.diag(state.G)), sigma2


def _joint_step(
    state: State, evidence: float, design: Design, n: float, fixed: float | None, floor: float
) -> float:
    """Take Newton steps on all lam at once if the evidence rises; return the gain in nats.

    Where functions overlap, all lam together can still gain when none of them can alone.
    """
    lam, _ = newton_on((state.R, state.z, state.rss), state.lam, n, fixed, floor)
    now = moments(state, lam)
    sigma2 = fixed or max(now.E / n, floor)
    gain = log_evidence(now, n, sigma2, design) - evidence
    if not gain > 0.0:
        return 0.0
    state.lam, state.sigma2, state.now = lam, sigma2, now
    state.previous, state.settled = None, False
    return gain


def _one_column_gains(
    state: State, now: Moments, n: float, fixed: float | None, floor: float, tol: float
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return the gain of moving each lam alone, which columns are better absent, and `at_limit`."""
    E = now.E + (n * floor if fixed is None else 0.0)
    present = now.W_diag, now.mu, state.lam, np.diag(state.G), E, n, fixed
    lam, gains = moving_gain(*present)
    return gains, np.isinf(lam), at_limit(*present, tol)
