"""The factorised posterior of backfitting and what can be done to it.

The letters are those of `backfitting`: q(w) = prod N(mu_m, v_m), n_m = |phi_m|^2 (`norms`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...designs import Design
from ...designs.subset import subset
from ..run import StopReason
from ..rvm import basic as rvm
from ..set_prior import SetPrior

_NEGLIGIBLE = 1e3  # lam/|phi|^2 above which a column may be dropped
_TOGETHER = 64  # columns that may enter in one cycle

_TINY = 1e-300  # weights of a target that they cannot see


@dataclass
class State:
    """Remaining columns with their factorised posterior; `exact` is set once it is exact."""

    active: np.ndarray
    mu: np.ndarray
    v: np.ndarray
    alpha: np.ndarray
    sigma2: float
    columns: Design  # the active ones
    norms: np.ndarray  # their squared lengths
    all_norms: np.ndarray | None  # of all candidates; None: not known yet
    residual: np.ndarray
    sketch: np.ndarray | None = None  # the active columns in a few dimensions
    cycle: int = 0
    bound: float = -np.inf
    gain: float = 0.0  # of the last cycle
    exact: rvm.State | None = None
    screened: bool = False  # whether columns were searched since the set last changed
    hold: bool = False  # no column may enter or leave the exact posterior now
    still: int = 0  # exact steps in a row that have not raised the bound
    stop_reason: StopReason | None = None

    @property
    def lam(self) -> np.ndarray:
        """alpha sigma2 of the active columns."""
        return self.alpha * self.sigma2


# The elementary updates. Each raises `bound`, whatever the rest is.


def bound(state: State, design: Design, prior: SetPrior | None = None) -> float:
    """Return L of `backfitting`, plus the log prior of the set of columns if one is given."""
    n, s = design.n_observations, state.sigma2
    spread = float(state.residual @ state.residual) + float(state.norms @ state.v)
    value = design.log_volume - 0.5 * (n * np.log(2.0 * np.pi * s) + spread / s)
    if np.any(state.alpha > 0):
        logs = np.log(state.alpha) + np.log(state.v)
        value += 0.5 * float(np.sum(logs + 1.0 - state.alpha * (state.mu**2 + state.v)))
    return value + (0.0 if prior is None else prior.log(len(state.active)))


def update_precisions(state: State, prior: str) -> None:
    """Update v and alpha, given mu and sigma2."""
    if prior == "none":
        return
    if prior == "ridge":
        state.v = variances(state.norms, state.alpha, state.sigma2, prior)
        total = max(float(np.sum(state.mu**2 + state.v)), _TINY)
        state.alpha = np.full(len(state.mu), len(state.mu) / total)
        state.v = variances(state.norms, state.alpha, state.sigma2, prior)
        return
    unit = state.sigma2 / state.norms
    rho = np.maximum(state.mu**2 / unit, 1e-30)
    u = 2.0 * rho / (rho + np.sqrt(rho * rho + 4.0 * rho))
    state.v = u * unit
    state.alpha = 1.0 / (unit * (rho + u))


def update_noise(state: State, n: float, floor: float) -> None:
    """Update sigma2, given mu and v."""
    spread = float(state.residual @ state.residual) + float(state.norms @ state.v)
    state.sigma2 = max(spread / n, floor)


def derivatives(state: State, inverse: np.ndarray, n: float) -> tuple[np.ndarray, np.ndarray]:
    """Return gradient and Hessian of the bound in log alpha and log sigma2 (last).

    v and mu are the best at each alpha and sigma2, `inverse` = (Phi'Phi + sigma2 A)^-1. With
    a = alpha mu and P = sigma2 `inverse`, mu moves with log alpha_m by -P_m a_m and with log sigma2
    by -P a.
    """
    s, norms, alpha = state.sigma2, state.norms, state.alpha
    a, v = alpha * state.mu, 1.0 / (norms / s + alpha)
    P, share = s * inverse, norms * v / s
    Pa = P @ a
    kept = alpha * (state.mu**2 + v)
    spread = (float(state.residual @ state.residual) + float(norms @ v)) / s
    H = P * np.multiply.outer(a, a) + np.diag(0.5 * ((alpha * v) ** 2 - kept))
    mixed = a * Pa - 0.5 * alpha * v * share
    at_noise = 0.5 * (float(share @ share) - spread) + float(a @ Pa)
    H = np.block([[H, mixed[:, None]], [mixed[None], np.array([[at_noise]])]])
    return np.append(0.5 * (1.0 - kept), 0.5 * (spread - n)), H


def drop(state: State, design: Design, prior: SetPrior) -> bool:
    """Drop negligible columns, and those below their penalty, if that raises the bound."""
    k = len(state.active)
    removed = state.lam > _NEGLIGIBLE * state.norms
    price = prior.price(k - 1) if k else 0.0
    gain = np.zeros(k)
    if price > 0.0:
        q = state.columns.project(state.residual) + state.norms * state.mu
        gain = _worth(q**2 / (state.norms * state.sigma2))
        removed |= gain < price
    if not np.any(removed):
        return False
    trial = _without(state, removed)
    if bound(trial, design, prior) < bound(state, design, prior):
        if price == 0.0:
            return False
        trial = _without(state, np.arange(k) == np.argmin(np.where(removed, gain, np.inf)))
        if bound(trial, design, prior) < bound(state, design, prior):
            return False
    remaining = np.isin(state.active, trial.active, assume_unique=True)
    trial.columns = subset(state.columns, np.flatnonzero(remaining))
    state.__dict__.update(trial.__dict__)
    return True


def add(state: State, design: Design, prior: SetPrior, tol: float) -> bool:
    """Add columns one after the other, each with its best mu, v and alpha given the others.

    With theta = (phi'r)^2/(n_m sigma2) a column alone is best absent where theta <= 1, and else has
    alpha = n_m/(sigma2 (theta - 1)) and gains (theta - 1 - log theta)/2.
    """
    if state.all_norms is None:
        state.all_norms = design.sqnorms()
    k, s, all_norms = len(state.active), state.sigma2, state.all_norms
    q = design.project(state.residual)
    theta = np.divide(q**2, all_norms * s, out=np.zeros_like(q), where=all_norms > 0)
    theta[state.active] = 0.0
    top = np.argsort(-theta, kind="stable")[:_TOGETHER]
    top = top[theta[top] > 1.0]  # others gain nothing; columns that are in cannot enter twice
    if len(top) == 0:
        return False
    q, norms = q[top], all_norms[top]
    G = design.gram(top)
    chosen: list[int] = []
    best, mu = np.zeros(len(top)), np.zeros(len(top))
    while len(chosen) < len(top):
        theta = np.divide(q**2, norms * s, out=np.zeros_like(q), where=norms > 0)
        theta[chosen] = 0.0
        j = int(np.argmax(theta))
        if _worth(theta[j]) <= prior.price(k + len(chosen)) + tol:
            break
        best[j] = theta[j]
        mu[j] = q[j] / norms[j] * (1.0 - 1.0 / theta[j])
        q = q - G[:, j] * mu[j]
        chosen.append(j)
    if not chosen:
        return False
    new, sizes, means = top[chosen], norms[chosen], mu[chosen]
    alpha = sizes / (s * (best[chosen] - 1.0))
    state.active = np.append(state.active, new)
    state.mu = np.append(state.mu, means)
    state.alpha = np.append(state.alpha, alpha)
    state.norms = np.append(state.norms, sizes)
    state.v = np.append(state.v, s / (sizes + s * alpha))
    state.residual = state.residual - design.apply(means, new)
    state.columns = subset(design, state.active)
    return True


def _worth(theta: np.ndarray) -> np.ndarray:
    """Return the gain of a single column at its best precision, over its absence."""
    theta = np.maximum(theta, 1.0)
    return 0.5 * (theta - 1.0 - np.log(theta))


def _without(state: State, removed: np.ndarray) -> State:
    keep = ~removed
    back = state.columns.apply(state.mu[removed], np.flatnonzero(removed))
    return replace(
        state,
        active=state.active[keep],
        mu=state.mu[keep],
        v=state.v[keep],
        alpha=state.alpha[keep],
        norms=state.norms[keep],
        residual=state.residual + back,
        sketch=None if state.sketch is None else state.sketch[:, keep],
    )


def variances(norms: np.ndarray, alpha: np.ndarray, sigma2: float, prior: str) -> np.ndarray:
    """Return the variance of each weight; without a prior mu is a point estimate and has none."""
    return np.zeros(len(norms)) if prior == "none" else 1.0 / (norms / sigma2 + alpha)
