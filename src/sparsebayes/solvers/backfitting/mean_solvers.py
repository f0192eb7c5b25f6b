"""The mean of backfitting at given precisions: (Phi'Phi + Lam) mu = Phi't, from a warm start.

Both ways use only products with the columns, no matrix of their size squared, and each of their
iterations lowers the quadratic form |t - Phi mu|^2 + mu'Lam mu, so a solve that is broken off has
still raised the bound. A sweep is one product with Phi and one with Phi'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize_scalar

from ...designs import Design
from ...designs.lowrank import low_rank
from ...posterior import augmented_triangle
from ..noise import noise_floor
from ..rvm.dense_start import rotate

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


# The one precision of highest evidence for all weights, from one spectrum of the columns.
#
# Where there are more columns than rows it is that of the n x n matrix Phi Phi': the evidence
# needs no matrix of the size of the weights.


_GRID = np.linspace(-12.0, 6.0, 73)  # log10 of lam over the largest squared singular value


def best_ridge(
    design: Design, t: np.ndarray, active: np.ndarray, sigma2: float | None
) -> tuple[float, float, float]:
    """alpha and sigma2 of highest evidence (sigma2 as given, where it is), and that evidence.

    With squared singular values e of Phi, z = U't and "outside" what of |t|^2 no column reaches,
    E(lam) = outside + sum z^2 lam/(e + lam), log|Phi'Phi + lam| - k log lam = sum log(1 + e/lam).

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers.backfitting.mean_solvers import best_ridge
    >>> t = np.array([1.0, -2.0, 3.0, 0.0])
    >>> alpha, _, _ = best_ridge(DenseDesign(np.eye(4)), t, np.arange(4), 1.0)
    >>> bool(np.isclose(1 + 1 / alpha, np.mean(t**2)))
    True
    """
    n, floor = design.n_observations, noise_floor(t, design.n_observations)
    e, along, outside = _spectrum(design, t, active)
    if len(e) == 0 or e[0] <= 0:
        s = sigma2 or max(float(t @ t) / n, floor)
        fit = n * np.log(2.0 * np.pi * s) + float(t @ t) / s
        return 1.0, s, design.log_volume - 0.5 * fit

    def noise(lam: float) -> float:
        return sigma2 or max((outside + float(along @ (lam / (e + lam)))) / n, floor)

    def minus_evidence(log_lam: float) -> float:
        lam = e[0] * 10.0**log_lam
        s, E = noise(lam), outside + float(along @ (lam / (e + lam)))
        return 0.5 * (n * np.log(s) + E / s + float(np.sum(np.log1p(e / lam))))

    start = _GRID[np.argmin([minus_evidence(x) for x in _GRID])]
    found = minimize_scalar(
        minus_evidence, bounds=(start - 0.25, start + 0.25), options={"xatol": 1e-6}
    )
    lam = float(e[0] * 10.0**found.x)
    evidence = design.log_volume - 0.5 * n * np.log(2.0 * np.pi) - float(found.fun)
    return lam / noise(lam), noise(lam), evidence


def _spectrum(
    design: Design, t: np.ndarray, active: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Squared singular values (largest first), squared parts of t along them, and the rest."""
    if len(active) > design.n_rows:
        e, U = np.linalg.eigh(design.outer(active))
        return np.maximum(e[::-1], 0.0), (U.T @ t)[::-1] ** 2, 0.0
    R, z, outside = augmented_triangle(design, t, active, np.zeros(len(active)))
    U, singular, _ = np.linalg.svd(R)
    return singular**2, (U.T @ z) ** 2, outside


# Overlapping columns in a few dimensions: where backfitting starts, and a preconditioner.
#
# Kernel functions overlap so much that a few hundred dimensions p hold nearly all of Phi: with R
# (p x m) from `designs.lowrank`, Phi'Phi ~ R'R.
#
# - The precisions that the columns start from decide which of many maxima is found (see
#   `rvm.auto`): here a hundredth of the one shared precision of highest evidence, which R tells in
#   closed form.
# - The diagonal is a poor preconditioner of such columns: hundreds of sweeps. With D = Lam plus
#   the part of the diagonal that R misses,
#
#       (R'R + D)^-1 = D^-1 - D^-1 R' (I + R D^-1 R')^-1 R D^-1
#
#   needs about ten, at p^2 m for each new Lam and p m for each sweep.


_SHARE = 0.01  # of the best shared precision: 1 and .1 end 2 to 10 nats lower on Boston


class Start(NamedTuple):
    """Where all columns start, and R."""

    lam: float
    sigma2: float
    R: np.ndarray


def start(design: Design, t: np.ndarray, rank: int, noise: float | None, floor: float) -> Start:
    """From at most `rank` dimensions.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers.backfitting.mean_solvers import start
    >>> t = np.array([1.0, -2.0, 3.0, 0.5])
    >>> lam, sigma2, R = start(DenseDesign(np.eye(4)), t, 10, 1.0, 0.0)
    >>> lam < 0.1, sigma2, R.shape
    (True, 1.0, (4, 4))
    """
    found = low_rank(design, rank, np.random.default_rng(0))
    R, z = found.candidates(), found.coordinates(t)
    problem = rotate(R, z, float(t @ t), design.n_observations, noise, floor)
    sigma2 = noise
    if sigma2 is None:
        E = float((problem.z[:, 0] ** 2) @ (1.0 / (1.0 + problem.e / problem.lam)))
        sigma2 = max((E + float(problem.outside[0])) / design.n_observations, floor)
    return Start(_SHARE * problem.lam, sigma2, R)


def preconditioner(
    R: np.ndarray, lam: np.ndarray, norms: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """The product with (R'R + D)^-1.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.solvers.backfitting.mean_solvers import preconditioner
    >>> R, lam = np.array([[1.0, 2.0]]), np.ones(2)
    >>> solve = preconditioner(R, lam, np.array([1.0, 4.0]))
    >>> np.allclose((R.T @ R + np.eye(2)) @ solve(np.array([3.0, 5.0])), [3.0, 5.0])
    True
    """
    D = lam + np.maximum(norms - np.einsum("ij,ij->j", R, R), 0.0)
    scaled = R / D
    M = scaled @ R.T
    M.flat[:: len(M) + 1] += 1.0
    factor = cho_factor(M, lower=True, overwrite_a=True, check_finite=False)

    def solve(g: np.ndarray) -> np.ndarray:
        return g / D - scaled.T @ cho_solve(factor, scaled @ g, check_finite=False)

    return solve
