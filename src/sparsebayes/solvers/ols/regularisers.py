"""The regularisers of highest evidence for orthogonal columns in a given order.

With s_i = w_i'w_i, r_i = q_i^2/s_i and the residual sum of squares of all columns, the negative log
evidence separates (see `selection`):

    N/2 log sigma2 + 1/2 sum log(1 + s_i/lam_i) + (t't - sum q_i^2/(s_i + lam_i)) / (2 sigma2).

One lam for each term: lam_i = s_i sigma2/(r_i - sigma2) where r_i > sigma2, else infinite. The best
sigma2 is the residual variance of least squares on the K terms of finite lam, with N - K degrees of
freedom. These are the K largest r, so sorting finds the best K without iteration. One lam for all
terms is a search in one dimension.
"""

from __future__ import annotations

import numpy as np

from ...linalg.scalar import maximise
from ..noise import Noise


def local_lam(
    s: np.ndarray, r: np.ndarray, rss: float, noise: Noise, threshold: float
) -> np.ndarray:
    """Return one lam for each term, infinite where r is at most `threshold`^2 sigma2."""
    n, sigma2 = noise.n, noise.fixed
    if sigma2 is None:
        order = np.argsort(-r, kind="stable")
        k = np.arange(1, len(r) + 1)
        # Residual squares beside the k largest: summed from the smallest up, nothing cancels.
        tail = np.append(np.cumsum(r[order][::-1])[::-1][1:], 0.0)
        with np.errstate(divide="ignore", over="ignore"):
            variance = np.where(n > k, (rss + tail) / np.maximum(n - k, 1e-300), np.inf)
        variance = np.maximum(variance, noise.floor)
        passing = np.flatnonzero(r[order] > threshold**2 * variance)
        if len(passing) == 0:
            return np.full(len(r), np.inf)
        sigma2 = float(variance[passing[-1]])
    keep = r > threshold**2 * sigma2
    with np.errstate(over="ignore"):
        return np.where(keep, s * sigma2 / np.where(keep, r - sigma2, 1.0), np.inf)


def uniform_lam(s: np.ndarray, r: np.ndarray, rss: float, noise: Noise) -> float:
    """Return one lam for all terms, infinite where the evidence prefers no term."""
    n = noise.n

    def evidence(log_lam: np.ndarray | float) -> np.ndarray:
        lam = np.exp(np.minimum(log_lam, 700.0))[..., None]
        E = np.maximum(rss + np.sum(r * lam / (s + lam), axis=-1), n * noise.floor)
        fit = n * np.log(E) if noise.fixed is None else E / noise.fixed
        return -(fit + np.sum(np.log1p(s / lam), axis=-1))

    grid = np.arange(np.log(np.min(s)) - 30.0, np.log(np.max(s)) + 30.0, 0.5)
    i = int(np.clip(np.argmax(evidence(grid)), 1, len(grid) - 2))
    log_lam, best = maximise(
        lambda x: float(evidence(x)), grid[i - 1], grid[i + 1], step=None, tol=1e-8
    )
    # At the upper end of the grid lam is infinite to rounding.
    absent = float(evidence(np.log(np.max(s)) + 80.0))
    return float(np.exp(log_lam)) if best > absent + 1e-9 * n else np.inf
