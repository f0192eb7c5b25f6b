"""The evidence as a function of one column's regulariser, in closed form.

Let P = (I + Phi Lam^-1 Phi')^-1 be taken over the OTHER active columns, s = h'Ph, q = h'Pt and
E = t'Pt. The column with lam = alpha sigma2 changes the log evidence, against its absence, by
(x = s/(lam + s), r = q^2/s)

    noise given:    r x/(2 sigma2) + 1/2 log(1 - x)             Tipping & Faul 2003, l(alpha)
    noise at its best value E/n throughout:
                    -n/2 log(1 - r x/E) + 1/2 log(1 - x)

Both have one maximum. It is at x = 1 - sigma2/r, and at x = (n r - E)/((n - 1) r), and where that
is not positive the column is better absent. s, q and E hold no sigma2: when the noise is
eliminated nothing has to be rebuilt as it moves.
"""

from __future__ import annotations

import numpy as np

from ..._array import PerTarget

# lam is kept above this fraction of |h|^2. Below it (Phi'Phi + Lam)^-1 from the Gram matrix is
# rounding error, and only weights that cancel each other to the last digits ask for less.
SMALLEST_LAM = 1e-12

# E/t't below which a target is fitted to its last digits: the Gram form of E is too coarse there.
EXACT_FIT = 1e-6

_NEWTON = 60  # most steps to the optimum of several outputs; a handful is usual


def at_limit(
    W: np.ndarray,
    mu: np.ndarray,
    lam: np.ndarray,
    norms: np.ndarray,
    E: PerTarget,
    n: float,
    sigma2: PerTarget | None,
    tol: float,
) -> bool:
    """Return whether a column at the smallest lam would gain `tol` nats below it (`moving_gain`).

    The limit is harmless where nothing would be gained.
    """
    limited = lam <= 1.001 * SMALLEST_LAM * norms
    if not np.any(limited):
        return False
    _, gains = moving_gain(W[limited], mu[limited], lam[limited], 0.0, E, n, sigma2)
    return not bool(np.all(gains < tol))  # also where they are not numbers


def adding_gain(
    S: np.ndarray,
    Q: np.ndarray,
    norms: PerTarget,
    E: PerTarget,
    n: float,
    sigma2: PerTarget | None,
    span: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the optimal lam of columns that are absent, and the gain of adding each of them.

    A column in the span of the model (S under `span` times `norms`) gains nothing: S is rounding
    error there. Where Q has a last axis, several outputs share lam.
    """
    optimum, gains = (shared_optimal_lam if Q.ndim > 1 else optimal_lam)(S, Q, norms, E, n, sigma2)
    return optimum, np.where(S > span * norms, gains, 0.0)


def moving_gain(
    W: np.ndarray,
    mu: np.ndarray,
    lam: np.ndarray,
    norms: PerTarget,
    E: PerTarget,
    n: float,
    sigma2: PerTarget | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the optimal lam of columns that are present with `lam`, and the gain of moving.

    W is the diagonal of (Phi'Phi + Lam)^-1, mu the weights, E that of the model as it is: without
    the column s = 1/W - lam, q = mu/W and E + mu^2/W. Where mu has a last axis, several outputs
    share lam.
    """
    several = mu.ndim > 1
    s, q = 1.0 / W - lam, (mu.T / W).T
    E = E + mu * q
    optimum, free = (shared_optimal_lam if several else optimal_lam)(s, q, norms, E, n, sigma2)
    x = np.where(s > 0, s / (s + lam), 0.0)
    limited = (shared_evidence_gain if several else evidence_gain)(x, s, q, E, n, sigma2)
    return optimum, free - limited


def evidence_gain(
    x: np.ndarray, s: np.ndarray, q: np.ndarray, E: PerTarget, n: float, sigma2: PerTarget | None
) -> np.ndarray:
    """Log evidence with the column at shrinkage x = s/(lam + s), less that without it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        r = np.where(s > 0, q * q / s, 0.0)
        if sigma2 is None:
            fit = -0.5 * n * np.log1p(-r * x / E)
        else:
            fit = 0.5 * r * x / sigma2
        return np.where(s > 0, fit + 0.5 * np.log1p(-x), 0.0)


def optimal_lam(
    s: np.ndarray, q: np.ndarray, norms: PerTarget, E: PerTarget, n: float, sigma2: PerTarget | None
) -> tuple[np.ndarray, np.ndarray]:
    """The lam of highest evidence for each column alone (inf: absent) and its gain over absence.

    lam is not less than SMALLEST_LAM times `norms` = |h|^2. A statistic that is not finite, or an
    s that is not positive, reads as absent with gain 0.
    """
    usable = (s > 0) & np.isfinite(s) & np.isfinite(q)
    s = np.where(usable, s, 1.0)
    q = np.where(usable, q, 0.0)
    r = q * q / s
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if sigma2 is None:
            x = (n * r - E) / ((n - 1.0) * r) if n > 1 else np.zeros_like(r)
        else:
            x = 1.0 - sigma2 / r
        x = np.where(x > 0, np.minimum(x, s / (s + SMALLEST_LAM * norms)), 0.0)
        lam = s * (1.0 - x) / x
        value = evidence_gain(x, s, q, E, n, sigma2)
    present = (x > 0) & (value > 0)
    return np.where(present, lam, np.inf), np.where(present, value, 0.0)


def shared_evidence_gain(
    x: np.ndarray, s: np.ndarray, q: np.ndarray, E: PerTarget, n: float, sigma2: PerTarget | None
) -> np.ndarray:
    """`evidence_gain` for several outputs (last axis of q and E) that share lam."""
    x, s = np.asarray(x), np.asarray(s)
    with np.errstate(divide="ignore", invalid="ignore"):
        r = np.where(s[..., None] > 0, q * q / s[..., None], 0.0)
        if sigma2 is None:
            fit = -0.5 * n * np.log1p(-r * x[..., None] / E)
        else:
            fit = 0.5 * r * x[..., None] / sigma2
        return np.where(s > 0, fit.sum(axis=-1) + 0.5 * q.shape[-1] * np.log1p(-x), 0.0)


def shared_optimal_lam(
    s: np.ndarray, q: np.ndarray, norms: PerTarget, E: PerTarget, n: float, sigma2: PerTarget | None
) -> tuple[np.ndarray, np.ndarray]:
    """`optimal_lam` for several outputs (last axis of q and E) that share it, each with its noise.

    With the noises given the optimum is closed: x = 1 - n_outputs / sum(r/sigma2). With the noises
    eliminated it solves, in u = 1 - x and a = r/E,

        f(u) = n sum a u / (1 - a + a u) = n_outputs,   present only if f(1) > n_outputs.

    1/f is concave in 1/u (linear for one output), so that Newton's method on it climbs to the root
    and never passes it.
    """
    n_outputs = q.shape[-1]
    usable = (s > 0) & np.isfinite(s) & np.all(np.isfinite(q), axis=-1)
    s = np.where(usable, s, 1.0)
    q = np.where(usable[..., None], q, 0.0)
    r = q * q / s[..., None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if sigma2 is None:
            a = np.minimum(r / E, 1.0)
            v = np.ones_like(s)  # 1/u
            for _ in range(_NEWTON):
                terms = a / ((1.0 - a) * v[..., None] + a)
                f = n * np.nansum(terms, axis=-1)
                slope = n * np.nansum((1.0 - a) * terms * terms / a, axis=-1)
                step = np.where(slope > 0, (f / n_outputs - 1.0) * f / slope, 0.0)
                v = np.maximum(v + step, 1.0)
                if np.all(step <= 1e-12 * v):
                    break
            x = 1.0 - 1.0 / v
        else:
            x = 1.0 - n_outputs / (r / sigma2).sum(axis=-1)
        x = np.where(x > 0, np.minimum(x, s / (s + SMALLEST_LAM * norms)), 0.0)
        lam = s * (1.0 - x) / x
        value = shared_evidence_gain(x, s, q, E, n, sigma2)
    present = (x > 0) & (value > 0)
    return np.where(present, lam, np.inf), np.where(present, value, 0.0)
