"""The regularisers of highest evidence for orthogonal columns in a given order.

With s_i = w_i'w_i, r_i = q_i^2/s_i and what no column explains, |t outside|^2, the negative log
evidence separates (see `lrols`):

    N/2 log sigma2 + 1/2 sum log(1 + s_i/lam_i) + (t't - sum q_i^2/(s_i + lam_i)) / (2 sigma2).

One lam per term: lam_i = s_i sigma2/(r_i - sigma2) where r_i > sigma2, else infinite; the best
sigma2 is |t - least squares on the K finite terms|^2 / (N - K), and since those are the K largest r
the best K is found by sorting: no iteration. One lam for all is a search in one dimension.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar


def local_lam(
    s: np.ndarray,
    r: np.ndarray,
    outside: float,
    n: float,
    floor: float,
    fixed: float | None,
    threshold: float,
) -> np.ndarray:
    """One lam per term; infinite where r is not beyond `threshold`^2 sigma2."""
    sigma2 = fixed
    if sigma2 is None:
        order = np.argsort(-r, kind="stable")
        k = np.arange(1, len(r) + 1)
        # Squared residual with the k largest: summed from the smallest up, so no cancellation.
        tail = np.append(np.cumsum(r[order][::-1])[::-1][1:], 0.0)
        with np.errstate(divide="ignore", over="ignore"):
            noise = np.where(n > k, (outside + tail) / np.maximum(n - k, 1e-300), np.inf)
        noise = np.maximum(noise, floor)
        passing = np.flatnonzero(r[order] > threshold**2 * noise)
        if len(passing) == 0:
            return np.full(len(r), np.inf)
        sigma2 = float(noise[passing[-1]])
    keep = r > threshold**2 * sigma2
    with np.errstate(over="ignore"):
        return np.where(keep, s * sigma2 / np.where(keep, r - sigma2, 1.0), np.inf)


def uniform_lam(
    s: np.ndarray, r: np.ndarray, outside: float, n: float, floor: float, fixed: float | None
) -> float:
    """One lam for all terms; infinite where the evidence prefers no term."""

    def objective(log_lam: Any) -> Any:
        lam = np.exp(np.minimum(log_lam, 700.0))[..., None]
        E = np.maximum(outside + np.sum(r * lam / (s + lam), axis=-1), n * floor)
        fit = n * np.log(E) if fixed is None else E / fixed
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
