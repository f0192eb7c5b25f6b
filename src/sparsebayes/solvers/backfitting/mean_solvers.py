"""The mean of backfitting at given precisions: (Phi'Phi + Lam) mu = Phi't, from a warm start.

Both ways use only products with the columns, no matrix of their size squared, and each of their
iterations lowers the quadratic form |t - Phi mu|^2 + mu'Lam mu, so a solve that is broken off has
still raised the bound. A sweep is one product with Phi and one with Phi'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...designs import Design

_CHUNK = 256  # columns expanded at a time


class Solve(NamedTuple):
    """Where an inner solve got to."""

    mu: np.ndarray
    residual: np.ndarray  # t - Phi mu, formed directly
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
) -> Solve:
    """Conjugate gradients, preconditioned by the diagonal |phi|^2 + lam unless told otherwise.

    Ends when the preconditioned squared gradient, which is about what is left to gain of the
    quadratic form, is below `tol`.
    """
    scale = 1.0 / (norms + lam)
    precondition = precondition or (lambda g: scale * g)
    r = t - columns.apply(mu)
    g = columns.project(r) - lam * mu
    p = z = precondition(g)
    left = float(g @ z)
    sweeps = 0
    while left > tol and sweeps < max_sweeps:
        Phi_p = columns.apply(p)
        curvature = float(Phi_p @ Phi_p) + float(lam @ (p * p))
        if not curvature > 0:  # p is rounding error
            break
        step = left / curvature
        mu = mu + step * p
        r = r - step * Phi_p
        g = columns.project(r) - lam * mu
        z = precondition(g)
        previous, left = left, float(g @ z)
        p = z + (left / previous) * p
        sweeps += 1
    return Solve(mu, t - columns.apply(mu), sweeps + 1, left <= tol)


def gauss_seidel(
    columns: Design,
    t: np.ndarray,
    lam: np.ndarray,
    norms: np.ndarray,
    mu: np.ndarray,
    max_sweeps: int,
    tol: float,
) -> Solve:
    """One column at a time from the residual as it stands (the paper's eq (9), all noise lent).

    Ends when a sweep has lowered the quadratic form by less than `tol`. Sparse columns are expanded
    a few at a time, so a sweep costs n m here, whatever the number of entries.
    """
    mu = mu.copy()
    r = t - columns.apply(mu)
    size = norms + lam
    sweeps, gained = 0, np.inf
    while gained > tol and sweeps < max_sweeps:
        gained = 0.0
        for start in range(0, columns.n_candidates, _CHUNK):
            part = np.arange(start, min(start + _CHUNK, columns.n_candidates))
            Phi = columns.columns(part)
            for j, phi in zip(part, Phi.T, strict=True):
                step = (float(phi @ r) - lam[j] * mu[j]) / size[j]
                mu[j] += step
                r -= step * phi
                gained += step * step * size[j]
        sweeps += 1
    return Solve(mu, t - columns.apply(mu), sweeps + 1, gained <= tol)
