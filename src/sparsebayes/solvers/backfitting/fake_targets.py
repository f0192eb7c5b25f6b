"""Bayesian backfitting with its hidden targets, as D'Souza, Vijayakumar & Schaal (2004) have it.

Model: every component has a hidden target of its own, the fake target of backfitting,

    z_im ~ N(w_m phi_im, psi_z_m),   t_i ~ N(sum_m z_im, psi_y),   w_m ~ N(0, 1/alpha_m).

With s = psi_y + sum psi_z, omega_m = psi_z_m/s, r = t - Phi mu, R = |r|^2/N and n_m = |phi_m|^2,
the updates of EM (no prior) and variational EM are

    mu_m    <- (n_m mu_m + omega_m phi_m'r)/(n_m + psi_z_m alpha_m)    eq (9), all from one residual
    v_m      = psi_z_m/(n_m + psi_z_m alpha_m)
    alpha_m  = 1/(mu_m^2 + v_m), or one for all
    psi_y   <- (psi_y/s)^2 R + P (1 - P/s),  P = sum psi_z
    psi_z_m <- omega_m^2 R + psi_z_m (1 - omega_m) + n_m v_m/N

and none of them lowers

    L = log N(t; Phi mu, s I) - 1/2 sum n_m v_m/psi_z_m
        + 1/2 sum [log alpha_m + log v_m + 1 - alpha_m (mu_m^2 + v_m)].

The hidden targets integrate out: t ~ N(Phi w, s I). So this is `Backfitting` by a longer way, kept
to be compared with: it takes about m times as many sweeps for the same mean, and at its fixed point
psi_y is 0 and s, and with it the sparsity, biased upwards.

Deviations from the paper:
- Its psi_z lacks n_m v_m/N, without which L falls; and 1/N belongs to the squared errors of psi_y
  only, not to P (1 - P/s).
- The first solve for mu is a full one (by conjugate gradients): precisions learnt before the mean
  has moved kill every column.
- A cycle has the ten sweeps of the paper, and more (a hundred at most) while the mean lags behind
  the precisions by more than a hundredth of what the last cycle gained.
- A column counts as relevant, and enters the model that is kept, while alpha_m s < 1000 n_m: the
  alpha of an irrelevant column only grows by a constant in each cycle and reaches no limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...callbacks import Reporter
from ...designs import Design, check_columns
from ...designs.subset import subset
from ...posterior import Diagonal, Posterior, gaussian_posterior
from ..noise import noise_floor
from ..run import Solution, StopReason
from . import factorised
from .mean_solvers import conjugate_gradients
from .regression import Info

_FULL = 1000  # sweeps of the first solve
_SWEEPS = 10  # sweeps of a cycle, as in the paper, at least
_MOST = 100  # and at most
_SHARE = 0.01  # of the last gain: what the means may still have to gain
_RELEVANT = 1e3


@dataclass
class State:
    """All columns with their posterior and the variances of their hidden targets."""

    everything: np.ndarray
    mu: np.ndarray
    v: np.ndarray
    alpha: np.ndarray
    psi_y: float
    psi_z: np.ndarray
    columns: Design
    norms: np.ndarray
    residual: np.ndarray
    bound: float = -np.inf
    gain: float = np.inf  # of the last cycle
    stop_reason: StopReason | None = None

    @property
    def s(self) -> float:
        """The noise variance of t given the weights."""
        return self.psi_y + float(np.sum(self.psi_z))

    @property
    def relevant(self) -> np.ndarray:
        """Mask of the relevant columns."""
        return self.alpha * self.s < _RELEVANT * self.norms

    @property
    def active(self) -> np.ndarray:
        """The relevant columns."""
        return self.everything[self.relevant]

    @property
    def lam(self) -> np.ndarray:
        """alpha s of the relevant columns."""
        return (self.alpha * self.s)[self.relevant]


@dataclass(frozen=True)
class FakeTargets:
    """Backfitting with hidden targets; see the module docstring.

    Parameters
    ----------
    prior : {"ard", "ridge", "none"}, default="ard"
        As in `Backfitting`.
    noise_variance : float or None, default=None
        Fixed noise variance s; None learns it.
    variance : {"exact", "factorised"}, default="exact"
        Of the relevant columns, after the last cycle.
    tol : float, default=1e-3
        Nats that a cycle may gain at convergence.
    exact_limit : int, default=1000
        Most columns of an exact posterior.
    reporter : Reporter, optional
        With its time the first solve for the mean ends.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers import FakeTargets, run
    >>> rng = np.random.default_rng(0)
    >>> Phi = rng.standard_normal((50, 10))
    >>> t = Phi[:, 3] + 0.1 * rng.standard_normal(50)
    >>> result = run(FakeTargets(), DenseDesign(Phi), t, max_iter=30)
    >>> bool(np.all(np.diff(result.history["bound"]) > -1e-8))
    True
    """

    prior: str = "ard"
    noise_variance: float | None = None
    variance: str = "exact"
    tol: float = 1e-3
    exact_limit: int = 1000
    reporter: Reporter = field(default_factory=Reporter)

    def init(self, design: Design, t: np.ndarray) -> State:
        """All columns and a full solve, with nine tenths of the noise in the hidden targets."""
        n, tt = design.n_observations, float(t @ t)
        with np.errstate(over="ignore", invalid="ignore"):
            norms = design.sqnorms()
        check_columns(design, norms)
        everything = np.flatnonzero(norms > 0)
        k, norms = len(everything), norms[everything]
        s = self.noise_variance or max(0.1 * tt / n, noise_floor(t, n))
        alpha = np.zeros(k)
        if self.prior != "none":
            sizes = norms if self.prior == "ard" else np.full(k, np.sum(norms) / max(k, 1))
            alpha = k * sizes / max(tt, s)
        columns = subset(design, everything)
        mu, residual = np.zeros(k), t.copy()
        if self.prior != "none":
            tol = 1e-3 * self.tol * s
            self.reporter.say(f"mean of {k} weights")
            solve = conjugate_gradients(
                columns, t, s * alpha, norms, mu, _FULL, tol, budget=self.reporter.budget
            )
            mu, residual = solve.mu, solve.residual
        psi_z = np.full(k, 0.9 * s / max(k, 1))
        state = State(
            everything, mu, mu, alpha, s - float(np.sum(psi_z)), psi_z, columns, norms, residual
        )
        update_variances(state, self.prior)
        return state

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """Make some sweeps for the mean, then update all hyperparameters once."""
        n = design.n_observations
        sweeps = self._update_means(state, t)
        update_variances(state, self.prior)
        update_precisions(state, self.prior)
        if self.noise_variance is None:
            update_psi(state, n, noise_floor(t, n))
            update_variances(state, self.prior)
        before, state.bound = state.bound, bound(state, design)
        state.gain = state.bound - before
        if abs(state.gain) < self.tol:
            state.stop_reason = StopReason.CONVERGED
        return state, Info(state.bound, int(np.sum(state.relevant)), state.s, sweeps, "factorised")

    def _update_means(self, state: State, t: np.ndarray) -> int:
        """Sweep until the mean is as converged as the others; return the number of sweeps."""
        threshold = max(_SHARE * min(state.gain, 1.0), 1e-3 * self.tol) / _SWEEPS
        before, sweeps, gain = quadratic(state), 0, np.inf
        while sweeps < _SWEEPS or (gain > threshold and sweeps < _MOST):
            update_means(state, t)
            now = quadratic(state)
            before, gain = now, 0.5 * (before - now) / state.s
            sweeps += 1
        return sweeps

    def done(self, state: State) -> StopReason | None:
        """Return why the search has finished, or None while it has not."""
        return state.stop_reason

    def solution(self, state: State, design: Design, t: np.ndarray) -> Solution:
        """Return the posterior of the relevant columns."""
        return Solution(state.active, state.lam, self._posterior(state, design, t))

    def _posterior(self, state: State, design: Design, t: np.ndarray) -> Posterior:
        active, keep = state.active, state.relevant
        if self.prior != "none" and self.variance == "exact" and len(active) <= self.exact_limit:
            return gaussian_posterior(design, t, active, state.lam, state.s)
        v = state.v if self.prior != "none" else state.s / state.norms
        mu, v, s = state.mu[keep], v[keep], state.s
        value = -np.inf
        if self.prior != "none":
            # The bound of the model that is kept: of the relevant columns, with these variances.
            columns = subset(design, active)
            residual = t - columns.apply(mu)
            norms, alpha = state.norms[keep], state.alpha[keep]
            kept = factorised.State(active, mu, v, alpha, s, columns, norms, None, residual)
            value = factorised.bound(kept, design)
        form, variance = Diagonal(np.sqrt(v / s), s), design.offset_scale * s
        return Posterior(mu, form, s, value, offset_variance=variance)


# The elementary updates, each with the hidden targets at their posterior given the rest.


def bound(state: State, design: Design) -> float:
    """Return L of the module docstring."""
    n, s = design.n_observations, state.s
    fit = n * np.log(2.0 * np.pi * s) + float(state.residual @ state.residual) / s
    value = design.log_volume - 0.5 * (fit + float(np.sum(state.norms * state.v / state.psi_z)))
    if np.any(state.alpha > 0):
        logs = np.log(state.alpha) + np.log(state.v)
        value += 0.5 * float(np.sum(logs + 1.0 - state.alpha * (state.mu**2 + state.v)))
    return value


def quadratic(state: State) -> float:
    """Return the objective of the sweeps: |r|^2 + s sum alpha mu^2."""
    square = float(state.residual @ state.residual)
    return square + state.s * float(state.alpha @ state.mu**2)


def update_means(state: State, t: np.ndarray) -> None:
    """Update mu of all columns from the same residual: Jacobi's method, under-relaxed by omega."""
    g = state.columns.project(state.residual)
    top = state.norms * state.mu + state.psi_z / state.s * g
    state.mu = top / (state.norms + state.psi_z * state.alpha)
    state.residual = t - state.columns.apply(state.mu)


def update_variances(state: State, prior: str) -> None:
    """Update v of all columns; without a prior the weights are point estimates."""
    state.v = state.psi_z / (state.norms + state.psi_z * state.alpha)
    if prior == "none":
        state.v = np.zeros_like(state.v)


def update_precisions(state: State, prior: str) -> None:
    """Update alpha, given mu and v."""
    if prior == "ard":
        state.alpha = 1.0 / (state.mu**2 + state.v)
    elif prior == "ridge":
        total = float(np.sum(state.mu**2 + state.v))
        state.alpha = np.full(len(state.mu), len(state.mu) / total)


def update_psi(state: State, n: float, floor: float) -> None:
    """Update psi_y and psi_z, given mu and v."""
    s, P = state.s, float(np.sum(state.psi_z))
    R = float(state.residual @ state.residual) / n
    omega = state.psi_z / s
    psi_y = (state.psi_y / s) ** 2 * R + P * (1.0 - P / s)
    psi_z = omega**2 * R + state.psi_z * (1.0 - omega) + state.norms * state.v / n
    if psi_y + float(np.sum(psi_z)) > floor:
        state.psi_y, state.psi_z = psi_y, psi_z
