"""The posterior mean at given precisions: (Phi'Phi + Lam) mu = Phi't, from a warm start.

Both iterations use only products with the columns and form no matrix of the size of the weights.
Each of their steps lowers the quadratic form |t - Phi mu|^2 + mu'Lam mu, so that a solve which ends
early, by its tolerance or with the time of its budget, has still raised the bound. A sweep is one
product with Phi and one with Phi'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...callbacks import Budget
from ...designs import Design

_CHUNK = 256  # sparse columns that are made dense at a time


class Solve(NamedTuple):
    """Result of an inner solve."""

    mu: np.ndarray
    residual: np.ndarray  # t - Phi mu, computed from the columns
    sweeps: int
    finished: bool


def conjugate_gradients(
    columns: Design,
    t: np.ndarray,
    lam: np.ndarray,
    norms: np.ndarray,
    mu: np.ndarray,
    max_sweeps: int,
    tol: float,
    precondition: Callable[[np.ndarray], np.ndarray] | None = None,
    budget: Budget | None = None,
) -> Solve:
    """Solve by conjugate gradients, preconditioned by the diagonal |phi|^2 + lam by default.

    The iteration ends when the preconditioned squared gradient, which is about the distance of the
    quadratic form from its minimum, is below `tol`.
    """
    scale = 1.0 / (norms + lam)
    precondition, budget = precondition or (lambda g: scale * g), budget or Budget()
    r = t - columns.apply(mu)
    g = columns.project(r) - lam * mu
    p = z = precondition(g)
    decrement = float(g @ z)
    sweeps = 0
    while decrement > tol and sweeps < max_sweeps and not (sweeps and budget.over):
        Phi_p = columns.apply(p)
        curvature = float(Phi_p @ Phi_p) + float(lam @ (p * p))
        if not curvature > 0:  # p consists of rounding errors
            break
        step = decrement / curvature
        mu = mu + step * p
        r = r - step * Phi_p
        g = columns.project(r) - lam * mu
        z = precondition(g)
        previous, decrement = decrement, float(g @ z)
        p = z + (decrement / previous) * p
        sweeps += 1
    return Solve(mu, t - columns.apply(mu), sweeps + 1, decrement <= tol)


def gauss_seidel(
    columns: Design,
    t: np.ndarray,
    lam: np.ndarray,
    norms: np.ndarray,
    mu: np.ndarray,
    max_sweeps: int,
    tol: float,
    budget: Budget | None = None,
) -> Solve:
    """Solve by updating one weight after the other from the current residual.

    This is the paper's eq (9) with all of the noise assigned to one component. The iteration ends
    when a sweep lowers the quadratic form by less than `tol`. Sparse columns are made dense a few
    at a time, so that a sweep costs n m whatever the number of entries.
    """
    mu, budget = mu.copy(), budget or Budget()
    r = t - columns.apply(mu)
    size = norms + lam
    sweeps, decrease = 0, np.inf
    while decrease > tol and sweeps < max_sweeps and not (sweeps and budget.over):
        decrease = 0.0
        for start in range(0, columns.n_candidates, _CHUNK):
            part = np.arange(start, min(start + _CHUNK, columns.n_candidates))
            Phi = columns.columns(part)
            for j, phi in zip(part, Phi.T, strict=True):
                step = (float(phi @ r) - lam[j] * mu[j]) / size[j]
                mu[j] += step
                r -= step * phi
                decrease += step * step * size[j]
        sweeps += 1
    return Solve(mu, t - columns.apply(mu), sweeps + 1, decrease <= tol)
