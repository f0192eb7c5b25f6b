"""One precision for all weights, by evidence, from the spectrum of the columns.

With more columns than rows the spectrum is that of the n x n matrix Phi Phi', so that the evidence
needs no matrix of the size of the weights.
"""

from __future__ import annotations

import numpy as np

from ...designs import Design
from ...linalg.scalar import maximise
from ...posterior import augmented_triangle
from ..noise import noise_floor

_RANGE = (-12.0, 6.0)  # log10 of lam over the largest squared singular value


def best_ridge(
    design: Design, t: np.ndarray, active: np.ndarray, sigma2: float | None
) -> tuple[float, float, float]:
    """Return the alpha and sigma2 of highest evidence, and that evidence.

    A given sigma2 is returned unchanged. With squared singular values e of Phi, z = U't and the
    residual sum of squares rss of least squares, E(lam) = rss + sum z^2 lam/(e + lam) and
    log|Phi'Phi + lam| - k log lam = sum log(1 + e/lam).

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers.backfitting.ridge import best_ridge
    >>> t = np.array([1.0, -2.0, 3.0, 0.0])
    >>> alpha, _, _ = best_ridge(DenseDesign(np.eye(4)), t, np.arange(4), 1.0)
    >>> bool(np.isclose(1 + 1 / alpha, np.mean(t**2)))
    True
    """
    n, floor = design.n_observations, noise_floor(t, design.n_observations)
    e, squares, rss = _spectrum(design, t, active)
    if len(e) == 0 or e[0] <= 0:
        s = sigma2 or max(float(t @ t) / n, floor)
        fit = n * np.log(2.0 * np.pi * s) + float(t @ t) / s
        return 1.0, s, design.log_volume - 0.5 * fit

    def noise(lam: float) -> float:
        return sigma2 or max((rss + float(squares @ (lam / (e + lam)))) / n, floor)

    def log_evidence(log_lam: float) -> float:
        lam = e[0] * 10.0**log_lam
        s, E = noise(lam), rss + float(squares @ (lam / (e + lam)))
        return -0.5 * (n * np.log(s) + E / s + float(np.sum(np.log1p(e / lam))))

    log_lam, height = maximise(log_evidence, *_RANGE, step=0.25, tol=1e-6)
    lam = float(e[0] * 10.0**log_lam)
    evidence = design.log_volume - 0.5 * n * np.log(2.0 * np.pi) + height
    return lam / noise(lam), noise(lam), evidence


def _spectrum(
    design: Design, t: np.ndarray, active: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the squared singular values (descending), the squares of t along them, and the rss."""
    if len(active) > design.n_rows:
        e, U = np.linalg.eigh(design.outer(active))
        return np.maximum(e[::-1], 0.0), (U.T @ t)[::-1] ** 2, 0.0
    R, z, rss = augmented_triangle(design, t, active, np.zeros(len(active)))
    U, singular, _ = np.linalg.svd(R)
    return singular**2, (U.T @ z) ** 2, float(rss)
