"""Bayesian backfitting (D'Souza, Vijayakumar & Schaal 2004), without the fake targets.

Model: t = Phi w + e, e ~ N(0, sigma2), w_m ~ N(0, 1/alpha_m): one alpha each (`prior="ard"`), one
for all (`"ridge"`) or none. The posterior is taken as a product of N(mu_m, v_m), which needs no
matrix of the size of the weights. With n_m = |phi_m|^2 and r = t - Phi mu it is fitted by raising

    L = -1/2 [N log(2 pi sigma2) + (|r|^2 + sum n_m v_m)/sigma2]
        + 1/2 sum [log alpha_m + log v_m + 1 - alpha_m (mu_m^2 + v_m)]  <=  log evidence,

one group of unknowns at a time, so that L never falls. A cycle is

    v, alpha   ard: their joint maximum given mu, v = u sigma2/n with u^2 + rho u = rho and
               rho = mu^2 n/sigma2;  ridge: v = 1/(n/sigma2 + alpha), alpha = k/sum(mu^2 + v)
    sigma2     (|r|^2 + sum n_m v_m)/N
    mu         (Phi'Phi + sigma2 A) mu = Phi't by conjugate gradients or Gauss-Seidel from where it
               stands (eq (9) with all of the noise lent to one component): few sweeps at first,
               more as the rest settles

at a cost of one product with Phi and Phi' per sweep. With `variance="exact"` the columns go over to
their exact k x k posterior as soon as no more than `handover` are left, and precisions and noise
are learnt from that (`active_set`); L is then the log evidence itself.

Deviations from the paper, and why:
- Its hidden targets z_m, one for each component, cost a factor m in speed and make sigma2 biased
  (`fake_targets` has them); integrating them out leaves this model. Given alpha and
  sigma2 both have the same mean, and L here is the higher bound.
- a = b = 0 in its Gamma priors, so that the mean of q(alpha) and the best alpha are the same.
- Its alpha = 1/<w^2>, alternating with v, adds a constant to the alpha of an irrelevant column in a
  cycle. The joint maximum multiplies mu by a factor instead.
- The first solve is a full one: precisions learnt before the mean has moved kill every column.
- Columns that overlap, as kernel functions do, start from a hundredth of the best shared precision,
  and their solves are preconditioned by all columns in `rank` dimensions (`low_rank`).
- A column is dropped once n_m alpha sigma2 shows it negligible, if that does not lower L.
- Where no more than `handover` columns are left, cycles that gain too little are followed by Newton
  steps of all precisions and the noise: cycles are slow also beside a saddle.
- With an `inclusion_prior` the search starts from no column, and columns enter where they raise
  L + log p(set): from all of m >> n columns the flat prior ends in a model of pure noise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from ...callbacks import Reporter
from ...designs import Design, check_columns
from ...designs.subset import subset
from ...linalg import inverse_root_qr
from ...posterior import Dense, Diagonal, Posterior, augmented_triangle, gaussian_posterior
from ..ascent import uphill_steps
from ..noise import noise_floor
from ..run import Solution, StopReason
from ..rvm import basic as rvm
from ..set_prior import SetPrior
from .active_set import ActiveSet, enter, settle
from .factorised import (
    State,
    add,
    bound,
    derivatives,
    drop,
    update_noise,
    update_precisions,
    variances,
)
from .low_rank import preconditioner, start
from .mean_solvers import Solve, conjugate_gradients, gauss_seidel
from .ridge import best_ridge

PRIORS = ("ard", "ridge", "none")
_FULL = 1000  # sweeps of a full solve
LOOSE = 0.1  # nats that a re-estimation may still gain when new columns are searched
_ROUNDS = 20  # of v, alpha and sigma2 in a cycle of one shared precision: EM is slow, and cheap
_SHARE = 0.01  # of the last gain: what a solve may leave
_STILL = 1e-3  # of tol: a step that gains less has not moved
_PATIENCE = 6  # such steps in a row that end the run
_DEPENDENT = 1e-10  # of |phi|: a pivot below it is no direction of its own
_SHARP = 1e-22  # of |t|^2: quadratic form left by a solve that is to be exact


class Info(NamedTuple):
    """One cycle, for the reader. `phase` is "factorised" or "exact"."""

    bound: float
    n_active: int
    noise_variance: float
    sweeps: int
    phase: str


@dataclass(frozen=True)
class Backfitting:
    """Backfitting with a factorised posterior; see the module docstring.

    Parameters
    ----------
    prior : {"ard", "ridge", "none"}, default="ard"
        A precision for each weight, one for all of them, or a flat prior.
    noise_variance : float or None, default=None
        Fixed noise variance; None learns it.
    variance : {"exact", "factorised"}, default="exact"
        Whether the posterior ends as the exact one of the columns left, where these are few
        enough, or stays a product of one Gaussian for each weight.
    inclusion_prior : None, float or "learn", default=None
        Prior probability that a column has a weight at all (``prior="ard"``); None: the flat prior
        of the relevance vector machine, and a start from all columns.
    inner : {"cg", "gauss-seidel"}, default="cg"
        How the mean is found in a cycle: conjugate gradients, or one weight after the other.
    tol : float, default=1e-3
        Nats that a cycle may gain at convergence.
    exact_limit : int, default=1000
        Most columns of an exact posterior.
    handover : int, default=400
        Columns left (``prior="ard"``) when the factorised posterior hands over to the exact one.
        On Boston 400 ends one nat of evidence above 200, and takes half as long again.
    wide_limit : int, default=3000
        Most rows for which ``prior="ridge"`` learns its precision exactly from an n x n matrix,
        however many columns there are.
    rank : int or None, default=None
        Dimensions of the sketch that overlapping columns are started and solved with
        (``prior="ard"``); None: no sketch.
    reporter : Reporter, optional
        Told of the solves for the mean, which end with its time.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers import Backfitting, run
    >>> rng = np.random.default_rng(0)
    >>> Phi = rng.standard_normal((50, 10))
    >>> t = Phi[:, 3] + 0.1 * rng.standard_normal(50)
    >>> result = run(Backfitting(), DenseDesign(Phi), t, max_iter=500)
    >>> result.converged, 3 in result.state.active
    (True, True)
    """

    prior: str = "ard"
    noise_variance: float | None = None
    variance: str = "exact"
    inclusion_prior: float | str | None = None
    inner: str = "cg"
    tol: float = 1e-3
    exact_limit: int = 1000
    handover: int = 400
    wide_limit: int = 3000
    rank: int | None = None
    reporter: Reporter = field(default_factory=Reporter)

    def init(self, design: Design, t: np.ndarray) -> State:
        """Start with all columns, or with none if there is a prior on their number."""
        n = design.n_observations
        with np.errstate(over="ignore", invalid="ignore"):
            norms = design.sqnorms()
        check_columns(design, norms)
        floor = noise_floor(t, n)
        tt = float(t @ t)
        if self.prior == "ard" and self.inclusion_prior is not None:
            active = np.empty(0, dtype=np.intp)
            sigma2 = self.noise_variance or max(tt / n, floor)
        else:
            active = np.flatnonzero(norms > 0)
            sigma2 = self.noise_variance or max(0.1 * tt / n, floor)
        k, sizes = len(active), norms[active]
        if self.prior == "none":
            alpha = np.zeros(k)
        else:
            # E|Phi w|^2 = |t|^2 shared among the columns.
            alpha = k * (sizes if self.prior == "ard" else np.full(k, np.sum(sizes) / max(k, 1)))
            alpha = alpha / max(tt, sigma2)
        columns = subset(design, active)
        R = None
        if self.rank is not None and self.prior == "ard" and k > 0:
            lam, sigma2, R = start(design, t, self.rank, self.noise_variance, floor)
            alpha, R = np.full(k, lam / sigma2), R[:, active]
        mu, v = np.zeros(k), variances(sizes, alpha, sigma2, self.prior)
        return State(active, mu, v, alpha, sigma2, columns, sizes, norms, t.copy(), R)

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """One cycle of the factorised posterior, or one step of the exact one."""
        exact = self.is_exact(state)
        wide = self.variance == "exact" and design.n_rows <= self.wide_limit
        if self.prior == "ridge" and (exact or wide):
            return self._ridge_step(state, design, t)
        over = state.exact is not None or len(state.active) <= self.handover
        if self.prior == "ard" and exact and over:
            return self._exact_step(state, design, t)
        return self._factorised_step(state, design, t)

    def done(self, state: State) -> StopReason | None:
        """Return why the search has finished, or None while it has not."""
        return state.stop_reason

    def solution(self, state: State, design: Design, t: np.ndarray) -> Solution:
        """Return the exact posterior if it is requested for this many columns, else the factors."""
        return Solution(state.active, state.lam, self._posterior(state, design, t))

    def _posterior(self, state: State, design: Design, t: np.ndarray) -> Posterior:
        if state.exact is not None:
            exact = rvm.BasicRVM(self.noise_variance, self.tol)
            return exact.solution(state.exact, design, t).posterior
        if self.is_exact(state):
            if self.prior != "none":
                return gaussian_posterior(design, t, state.active, state.lam, state.sigma2)
            posterior = least_squares(state, design, t)
            if posterior is not None:
                return posterior
        value = -np.inf
        if self.prior != "none":  # without the prior of the set of columns
            set_prior = SetPrior(self.inclusion_prior, design.n_candidates)
            value = state.bound - set_prior.log(len(state.active))
        return Posterior(
            self._mean(state, t),
            Diagonal(1.0 / np.sqrt(state.norms + state.lam), state.sigma2),
            state.sigma2,
            value,
            offset_variance=design.offset_scale * state.sigma2,
        )

    def is_exact(self, state: State) -> bool:
        """Return whether the posterior of these columns is to be exact."""
        is_small = state.exact is not None or len(state.active) <= self.exact_limit
        return self.variance == "exact" and is_small

    def solve(
        self, state: State, t: np.ndarray, sweeps: int = _FULL, tol: float | None = None
    ) -> Solve:
        """Return the mean at these precisions, as exact as possible by default."""
        if self.prior == "none" and 0 < len(state.active) <= self.handover:
            return _shortest(state, t)
        tol = _SHARP * float(t @ t) if tol is None else tol
        self.reporter.say(f"mean of {len(state.active)} weights")
        budget = self.reporter.budget
        problem = (state.columns, t, state.lam, state.norms, state.mu, sweeps, tol)
        if self.inner == "gauss-seidel":
            return gauss_seidel(*problem, budget)
        precondition = None
        if state.sketch is not None:
            precondition = preconditioner(state.sketch, state.lam, state.norms)
        return conjugate_gradients(*problem, precondition, budget)

    def _mean(self, state: State, t: np.ndarray) -> np.ndarray:
        """Return the mean as exactly as possible: by orthogonal factors where columns are few."""
        k = len(state.active)
        if self.prior == "none" or not 0 < k <= self.handover:
            return self.solve(state, t).mu
        R, z, _ = augmented_triangle(state.columns, t, np.arange(k), state.lam)
        return solve_triangular(R, z)

    # The factorised posterior.

    def _factorised_step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        n, prior = design.n_observations, SetPrior(self.inclusion_prior, design.n_candidates)
        changed = False
        rounds = 1 if self.prior == "ard" else _ROUNDS
        for _ in range(rounds if state.cycle else 0):  # the first solve comes before all else
            update_precisions(state, self.prior)
            if self.noise_variance is None:
                update_noise(state, n, noise_floor(t, n))
        if self.prior == "ard" and state.cycle:
            changed = drop(state, design, prior)
        if self.prior == "ard" and self.inclusion_prior is not None:
            # A column that gains less than `tol` by itself may let others in.
            changed = add(state, design, prior, _STILL * self.tol) or changed
        first = state.cycle == 0 or self.prior == "none"
        sweeps = _FULL if first else min(20 + 5 * state.cycle, _FULL)
        # No more exact than what the rest still moves: a hundredth of the last gain, in nats.
        nats = 10.0 * self.tol if first else max(1e-3 * self.tol, _SHARE * state.gain)
        tol = None if self.prior == "none" else nats * state.sigma2
        solve = self.solve(state, t, sweeps, tol)
        state.mu, state.residual = solve.mu, solve.residual
        if self.prior == "none" and self.noise_variance is None:
            update_noise(state, n, noise_floor(t, n))
        before, state.bound = state.bound, bound(state, design, prior)
        state.gain = state.bound - before if np.isfinite(before) else 0.0
        state.cycle += 1
        settled = solve.finished and not changed and abs(state.gain) < self.tol and state.cycle > 1
        if settled and self.prior != "none":
            # Where columns nearly depend on each other, more is left than the sweeps can see.
            state.mu = self._mean(state, t)
            state.residual = t - state.columns.apply(state.mu)
            before, state.bound = state.bound, bound(state, design, prior)
            settled = state.bound - before < self.tol
        if settled and self.prior == "ard" and 0 < len(state.active) <= self.handover:
            settled = not self._newton(state, design, t, prior)
        # Where columns depend on each other, rounding keeps a full solve from ever being exact.
        still = state.cycle > 1 and abs(state.gain) < self.tol
        if settled or (self.prior == "none" and (solve.finished or still)):
            state.stop_reason = StopReason.CONVERGED
        return state, Info(state.bound, len(state.active), state.sigma2, solve.sweeps, "factorised")

    def _newton(self, state: State, design: Design, t: np.ndarray, prior: SetPrior) -> bool:
        """Take a Newton step of all precisions and the noise; return whether it raised the bound.

        Cycles gain as little as at a maximum where one column is about to take the place of others.
        """
        n, k, floor = (
            design.n_observations,
            len(state.active),
            noise_floor(t, design.n_observations),
        )
        R, z, rest = augmented_triangle(state.columns, t, np.arange(k), np.zeros(k))

        def at(alpha: np.ndarray, sigma2: float) -> tuple[State, np.ndarray]:
            Q, root, _ = inverse_root_qr(R, alpha * sigma2)
            mu = root @ (Q[: len(R)].T @ z)
            v = variances(state.norms, alpha, sigma2, self.prior)
            residual = np.append(z - R @ mu, np.sqrt(rest))
            return replace(state, mu=mu, v=v, alpha=alpha, sigma2=sigma2, residual=residual), root

        now, root = at(state.alpha, state.sigma2)
        gradient, H = derivatives(now, root @ root.T, n)
        learnt = self.noise_variance is None and (now.sigma2 > floor or gradient[-1] > 0.0)
        if not learnt:
            gradient, H = gradient[:-1], H[:-1, :-1]
        # Of nearly equal columns the triangle and the rows give bounds that differ in their digits.
        least = max(state.bound, bound(now, design, prior)) + _STILL * self.tol
        for step in uphill_steps(gradient, H, _STILL * self.tol):
            alpha, sigma2 = state.alpha * np.exp(step[:k]), state.sigma2
            if learnt:
                sigma2 = max(sigma2 * float(np.exp(step[-1])), floor)
            trial, _ = at(alpha, sigma2)
            value = bound(trial, design, prior)
            if value > least:
                trial.residual, trial.bound = t - state.columns.apply(trial.mu), value
                state.__dict__.update(trial.__dict__)
                return True
        return False

    # The exact posterior.

    def _ridge_step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        solution = best_ridge(design, t, state.active, self.noise_variance)
        alpha, state.sigma2, state.bound = solution
        state.alpha = np.full(len(state.active), alpha)
        state.stop_reason = StopReason.CONVERGED
        return state, Info(state.bound, len(state.active), state.sigma2, 0, "exact")

    def _exact_step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        solver = rvm.BasicRVM(self.noise_variance, self.tol)
        prior = SetPrior(self.inclusion_prior, design.n_candidates)
        if state.exact is None:
            state.exact = enter(design, t, state.active, state.lam, state.sigma2)
        k = len(state.exact.active)
        state.exact, step = solver.step(state.exact, design, t)
        exact = state.exact
        before, state.bound = state.bound, step.log_evidence + prior.log(k)
        state.still = state.still + 1 if state.bound - before < _STILL * self.tol else 0
        if state.still >= _PATIENCE:
            # At the smallest noise the gains of `BasicRVM`, which take the noise as free, promise
            # what no step delivers.
            exact.stop_reason = exact.stop_reason or StopReason.CONVERGED
        info = Info(state.bound, k, step.noise_variance, 0, "exact")
        state.screened &= len(exact.active) == k
        loose = step.largest_gain < LOOSE and not state.screened
        if not state.hold and (exact.stop_reason or loose):
            sweeps = self._exchange(state, design, t, prior)
            info = info._replace(sweeps=sweeps)
        state.active, state.sigma2 = state.exact.active, state.exact.sigma2
        state.alpha = state.exact.lam / state.sigma2
        state.stop_reason = state.exact.stop_reason
        at_floor = state.sigma2 <= noise_floor(t, design.n_observations)
        learnt = self.noise_variance is None
        if state.stop_reason is StopReason.AT_BOUND and learnt and at_floor:
            # lam = alpha sigma2 is at its smallest because sigma2 is: nothing cancels.
            state.stop_reason = StopReason.CONVERGED
        return state, info

    def _exchange(self, state: State, design: Design, t: np.ndarray, prior: SetPrior) -> int:
        """Let columns below their penalty leave or others enter; return the number of sweeps."""
        assert state.exact is not None
        exact = state.exact
        now = ActiveSet(design, t, exact, self.noise_variance)
        if exact.previous is not None and now.log_evidence < exact.previous[2]:
            # The last re-estimate went down, which `BasicRVM` would find at its next step only.
            exact.lam, exact.sigma2, _ = exact.previous
            now = ActiveSet(design, t, exact, self.noise_variance)
        active, lam, sweeps = exact.active, exact.lam, 0
        if state.all_norms is None:
            state.all_norms = design.sqnorms()
        keep = now.drop(prior)
        if keep is not None:
            active, lam = active[keep], lam[keep]
        else:
            sweeps = 1
            new, new_lam = now.additions(state.all_norms, prior, self.tol, thorough=False)
            if len(new) == 0 and exact.stop_reason:
                sweeps += len(active)
                new, new_lam = now.additions(state.all_norms, prior, self.tol, thorough=True)
            room = max(0, self.exact_limit - len(active))
            if exact.stop_reason and len(new) and not room:
                exact.stop_reason = StopReason.COLUMN_LIMIT
            active, lam = np.append(active, new[:room]), np.append(lam, new_lam[:room])
        state.screened = len(active) == len(exact.active)
        if not state.screened:
            changed = enter(design, t, active, lam, exact.sigma2)
            after = settle(changed, design, t, self.noise_variance) + prior.log(len(active))
            # At the smallest noise the gains, which take it as free, promise what is not there.
            state.screened = after < now.log_evidence + prior.log(len(exact.active))
            state.exact = exact if state.screened else changed
        return sweeps


def _shortest(state: State, t: np.ndarray) -> Solve:
    """Return the shortest of the means of least squares, whose columns may be dependent.

    Conjugate gradients take thousands of sweeps where columns are nearly equal. Lengths are those
    of the weights of columns of unit length.
    """
    k, size = len(state.active), np.sqrt(state.norms)
    R, z, _ = augmented_triangle(state.columns, t, np.arange(k), np.zeros(k))
    mu = np.linalg.lstsq(R / size, z, rcond=_DEPENDENT)[0] / size
    return Solve(mu, t - state.columns.apply(mu), 1, True)


def least_squares(state: State, design: Design, t: np.ndarray) -> Posterior | None:
    """Return the exact fit without a prior; None if the columns are linearly dependent.

    Its evidence is that of infinitely wide priors.
    """
    k = len(state.active)
    R, z, _ = augmented_triangle(design, t, state.active, np.zeros(k))
    pivots = np.abs(np.diag(R))
    if len(t) < k or np.any(pivots <= _DEPENDENT * np.sqrt(state.norms)):
        return None
    root = solve_triangular(R, np.eye(k)) if k else R
    sigma2, variance = state.sigma2, design.offset_scale * state.sigma2
    return Posterior(root @ z, Dense(root, sigma2), sigma2, -np.inf, offset_variance=variance)
