"""The basic relevance vector machine (Tipping 2001), MacKay re-estimation with safe pruning.

Model: t = Phi w + e, w_j ~ N(0, 1/alpha_j), e ~ N(0, sigma2). With lam = alpha sigma2,
W = (Phi'Phi + Lam)^-1 and mu = W Phi't, one step is

    gamma_j = 1 - lam_j W_jj                            how well the data determine weight j
    alpha_j <- gamma_j / mu_j^2                         Tipping 2001, eq (16)
    sigma2  <- |t - Phi mu|^2 / (N - sum gamma)         eq (18)

starting with all m columns. [Phi t] is reduced once to its triangle (n m^2), so that a step costs
k^3 for k columns left, and residuals are still formed from columns, never from the Gram matrix.

Deviations, and why:
- MacKay's step has no guarantee. Where it lowered the evidence, the EM step (which cannot) is taken
  from the same point instead; columns are pruned only where that is not so.
- The paper prunes at a large alpha. A column that should vanish has its alpha multiplied by s/q^2 a
  step: arbitrarily slow. Here a column is dropped when lam exceeds 1e6 |h|^2, or when its exact
  one-column optimum is absence; several at once only if that does not lower the evidence.
- lam stays above 1e-12 |h|^2, so that what is computed from the Gram matrix is not rounding error.
- The start is the shared lam/|h|^2 of best evidence, with the noise at its best value there.
- An intercept beside functions that fall off with distance is held at the mean of the target until
  the columns have settled, and integrated out then (`held_first`).
- The end is judged by evidence: no single re-estimate or deletion gains `tol` nats any more, nor
  Newton steps on all of them together (`polish.newton`).
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

_PRUNE = 1e6  # lam / |h|^2 above which a column has no influence left
_SETTLED = 0.1  # largest change of log lam below which absent columns are dropped


class Info(NamedTuple):
    """One step, for the reader."""

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
    """Columns left (as columns of the triangle), their lam, and the noise."""

    active: np.ndarray
    lam: np.ndarray
    sigma2: float
    R: np.ndarray
    G: np.ndarray
    z: np.ndarray
    outside: float  # squared length of t outside the span of all columns
    previous: tuple[np.ndarray, float, float] | None = None  # lam, sigma2, evidence before
    settled: bool = False
    stop_reason: StopReason | None = None
    now: Moments | None = None  # at these lam, where they are known
    held: bool = False  # the intercept, at the mean of the target


def held_first(design: Design) -> bool:
    """Whether the search holds the intercept at the mean of the target at first.

    So it is beside functions that vanish far from their centres (decision 0007): free from the
    beginning, it goes where wide functions balance it.
    """
    return design.intercept and design.stationary


@dataclass(frozen=True)
class BasicRVM:
    """MacKay re-estimation from all columns; see the module docstring.

    Parameters
    ----------
    noise_variance : float or None, default=None
        Fixed noise variance; None learns it.
    tol : float, default=1e-3
        Nats that no single re-estimate or deletion may gain at convergence.

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
        """All columns, with the one lam/|h|^2 for all that has the highest evidence."""
        m, n = design.n_candidates, design.n_observations
        held = held_first(design)
        if held:
            design = design.uncentred
        everything = np.arange(m)
        R, z, outside = augmented_triangle(design, t, everything, np.zeros(m))
        G = R.T @ R
        norms = np.diag(G)
        keep = norms > 0
        R, G, norms = R[:, keep], G[np.ix_(keep, keep)], norms[keep]
        shared, sigma2 = _shared(R / np.sqrt(norms), z, outside, n, self.noise_variance, t)
        lam = np.maximum(shared, SMALLEST_LAM) * norms
        return State(everything[keep], lam, sigma2, R, G, z, outside, held=held)

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """One MacKay step, or a round of deletions once the columns that stay have settled."""
        n, fixed = design.n_observations, self.noise_variance
        floor = noise_floor(t, n)
        whole = design
        if state.held:
            design = design.uncentred
        now = state.now or moments(state, state.lam)
        state.now = None
        evidence = log_evidence(now, n, state.sigma2, design)
        if state.previous is not None and evidence < state.previous[2] - 1e-9 * abs(evidence):
            # MacKay's step went down: go back and take the EM step, which cannot.
            lam, sigma2, _ = state.previous
            state.lam, state.sigma2 = lam, sigma2
            now = moments(state, lam)
            evidence = log_evidence(now, n, sigma2, design)
            new_lam, new_sigma2 = _em_step(state, now, n, fixed, floor)
        else:
            new_lam, new_sigma2 = _mackay_step(state, now, n, fixed, floor)

        gains, absent, limited = _one_column_gains(state, now, n, fixed, floor, self.tol)
        largest = float(np.max(gains, initial=0.0))
        if fixed is None:
            profiled = max(now.E / n, floor)
            largest = max(largest, log_evidence(now, n, profiled, design) - evidence)
        determined = float(np.sum(np.clip(1.0 - state.lam * now.W_diag, 0.0, 1.0)))
        info = Info(evidence, len(state.active), state.sigma2, largest, determined)
        if largest < self.tol:
            gained = _together(state, evidence, design, n, fixed, floor)
            if gained >= self.tol:
                return state, info._replace(largest_gain=gained)
            if state.held:
                return _free_intercept(state, whole, t), info
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
            # What is pruned cannot be taken back: the EM step, with all columns.
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
        """All columns that want to go go together, if the evidence allows it, else the best one."""
        n = design.n_observations
        one = np.arange(len(absent)) != np.argmax(np.where(absent, gains, -1.0))
        for keep in (~absent, one):
            left = _part(state, keep, state.lam, state.sigma2)
            now = moments(left, left.lam)
            if self.noise_variance is None:  # the gains are those at the best noise
                left.sigma2 = max(now.E / n, noise_floor(t, n))
            left.settled, left.now = False, now
            if log_evidence(now, n, left.sigma2, design) >= evidence:
                return left
        state.settled = False  # at the smallest noise the gains promise what is not there
        return state

    def done(self, state: State) -> StopReason | None:
        """Return why the search has finished, or None while it has not."""
        return state.stop_reason

    def solution(self, state: State, design: Design, t: np.ndarray) -> Solution:
        """Return the posterior from exact columns, with the best noise variance for this lam."""
        n = design.n_observations
        sigma2 = self.noise_variance
        if state.held:
            state = _free_intercept(state, design, t)
        if sigma2 is None:
            sigma2 = max(moments(state, state.lam).E / n, noise_floor(t, n))
        posterior = gaussian_posterior(design, t, state.active, state.lam, sigma2)
        return Solution(state.active, state.lam, posterior)


def _part(state: State, keep: np.ndarray, lam: np.ndarray, sigma2: float) -> State:
    """Some of the columns."""
    return State(
        state.active[keep],
        lam[keep],
        sigma2,
        state.R[:, keep],
        state.G[np.ix_(keep, keep)],
        state.z,
        state.outside,
        settled=state.settled,
        held=state.held,
    )


def _free_intercept(state: State, design: Design, t: np.ndarray) -> State:
    """The same columns, centred from here on; t is centred already."""
    R, z, outside = augmented_triangle(design, t, state.active, np.zeros(len(state.active)))
    return State(state.active, state.lam, state.sigma2, R, R.T @ R, z, outside)


def _shared(
    R: np.ndarray, z: np.ndarray, outside: float, n: float, fixed: float | None, t: np.ndarray
) -> tuple[float, float]:
    """The lam of highest evidence among those shared by columns R of length 1, and the noise.

    Where that fits the target to the last digits (copies of rows, no noise) or leaves all columns
    nearly absent (no signal), a tenth of the target is noise at first and E|Phi w|^2 = |t|^2 is
    shared among the columns.
    """
    floor, tt = noise_floor(t, n), float(t @ t)
    e, V = eigh(R @ R.T, check_finite=False)
    squares = (V.T @ z)[:, None] ** 2
    lam, E = shared_lam(np.maximum(e, 0.0), squares, outside, n, fixed, floor)
    sigma2 = fixed or max(0.1 * tt / n, floor)
    most = sigma2 * R.shape[1] / max(tt, sigma2)
    if E[0] <= EXACT_FIT * tt or lam >= most:
        return most, sigma2
    return lam, fixed or max(float(E[0]) / n, floor)


def moments(state: State, lam: np.ndarray) -> Moments:
    """The moments of the columns of a state at these lam."""
    try:
        root, log_det = inverse_root(state.G, lam)
        mu = root @ (root.T @ (state.R.T @ state.z))
    except np.linalg.LinAlgError:
        Q, root, log_det = inverse_root_qr(state.R, lam)
        mu = root @ (Q[: len(state.z)].T @ state.z)
    W_diag = np.einsum("ij,ij->i", root, root)
    r = state.z - state.R @ mu
    sse = float(r @ r) + state.outside
    E = sse + float(lam @ (mu * mu))
    return Moments(mu, W_diag, sse, E, log_det - float(np.sum(np.log(lam))))


def log_evidence(now: Moments, n: float, sigma2: float, design: Design) -> float:
    """log N(t | 0, sigma2 I + Phi A^-1 Phi')."""
    fit = n * np.log(2.0 * np.pi * sigma2) + now.E / sigma2
    return -0.5 * (fit + now.log_det) + design.log_volume


def _mackay_step(
    state: State, now: Moments, n: float, fixed: float | None, floor: float
) -> tuple[np.ndarray, float]:
    gamma = np.clip(1.0 - state.lam * now.W_diag, 0.0, 1.0)
    # gamma below rounding means absent: 0/mu^2 must not read as alpha = 0.
    determined = gamma > 1e-12
    sigma2 = fixed or max(now.sse / max(n - float(np.sum(gamma)), 1e-3 * n), floor)
    with np.errstate(divide="ignore", invalid="ignore"):  # 0/0 where it is absent
        lam = np.where(determined, sigma2 * gamma / now.mu**2, np.inf)
    return np.maximum(lam, SMALLEST_LAM * np.diag(state.G)), sigma2


def _em_step(
    state: State, now: Moments, n: float, fixed: float | None, floor: float
) -> tuple[np.ndarray, float]:
    gamma = np.clip(1.0 - state.lam * now.W_diag, 0.0, 1.0)
    sigma2 = fixed or max((now.sse + state.sigma2 * float(np.sum(gamma))) / n, floor)
    lam = sigma2 / (now.mu**2 + state.sigma2 * now.W_diag)
    return np.maximum(lam, SMALLEST_LAM * np.diag(state.G)), sigma2


def _together(
    state: State, evidence: float, design: Design, n: float, fixed: float | None, floor: float
) -> float:
    """Newton steps on all lam at once, taken where they gain; nats gained.

    Where functions overlap no lam alone gains anything long before all of them together do.
    """
    lam, _ = newton_on((state.R, state.z, state.outside), state.lam, n, fixed, floor)
    now = moments(state, lam)
    sigma2 = fixed or max(now.E / n, floor)
    gained = log_evidence(now, n, sigma2, design) - evidence
    if not gained > 0.0:
        return 0.0
    state.lam, state.sigma2, state.now = lam, sigma2, now
    state.previous, state.settled = None, False
    return gained


def _one_column_gains(
    state: State, now: Moments, n: float, fixed: float | None, floor: float, tol: float
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Gains of moving each lam alone to its optimum; whose optimum is absence; `at_limit`."""
    E = now.E + (n * floor if fixed is None else 0.0)
    present = now.W_diag, now.mu, state.lam, np.diag(state.G), E, n, fixed
    lam, gains = moving_gain(*present)
    return gains, np.isinf(lam), at_limit(*present, tol)
