"""The chosen kernel functions under a Gaussian-process prior.

Selection gives every weight the same independent prior. Kernel functions that overlap are better
served by w ~ N(0, a K^-1), K their own kernel matrix: then H w is a draw of the process of variance
a, seen through the chosen centres. With K = LL' and v = L'w the prior is v ~ N(0, a Id) on the
columns H L^-T, so it is one more fit of the same kind with lam = sigma2/a, found by evidence.

The columns are whitened as columns (their triangle), never their Gram matrix: that squares L^-1 and
has been seen to give predictions of 1e6.

On targets that the kernel nearly interpolates the evidence is flat as lam falls, and rounding
decides: the noise variance is floored at 1e-7 of the mean square of the target, and that it was is
told. The floor must not be one of lam: a wide kernel has an amplitude a of many times the variance
of the target, and a share of a then is more noise than a clean target has. For the same reason the
jitter of K, which counts in units of a too, is as small as the factorisation allows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from ...posterior import Posterior
from .path import Noise, Path, best_lam

JITTERS = (1e-12, 1e-10, 1e-8, 1e-6)  # of the mean diagonal of K: the first that will do
FLOOR = 1e-7  # of the mean square of the target: the smallest noise variance
_SMALLEST = 1e-15  # of the mean diagonal of K: the smallest lam, where rounding is all there is


class Refit(NamedTuple):
    """The posterior of the weights of the functions themselves, and how it was reached."""

    posterior: Posterior
    lam: float
    L: np.ndarray
    limit: str  # "noise" or "amplitude" where that is as far as it may go, else ""


def gp_refit(path: Path, k: int, K: np.ndarray, noise: Noise) -> Refit | None:
    """The first k functions of a path under the prior N(0, a K^-1); None if K is indefinite."""
    K = K[:k, :k]
    level = float(np.mean(np.diag(K)))
    L = _root(K, level)
    if L is None:
        return None
    floor = FLOOR * float(path.t @ path.t) / max(noise.n, 1.0)
    noise = replace(noise, floor=max(noise.floor, floor))
    white = path.whitened(k, L)
    lam, _ = best_lam(white, noise, _SMALLEST * level)
    posterior = white.posterior(k, lam, noise)
    limit = "noise" if posterior.noise_variance <= 1.001 * noise.floor else ""
    if not limit and lam <= 1.001 * _SMALLEST * level:
        limit = "amplitude"
    root = solve_triangular(L, posterior.form.root, trans="T", lower=True, check_finite=False)
    posterior = replace(
        posterior,
        mean=solve_triangular(L, posterior.mean, trans="T", lower=True, check_finite=False),
        form=replace(posterior.form, root=root),
    )
    return Refit(posterior, lam, L, limit)


def _root(K: np.ndarray, level: float) -> np.ndarray | None:
    """The Cholesky factor of K with the smallest jitter that makes it positive definite."""
    for jitter in JITTERS:
        try:
            return cholesky(K + jitter * level * np.eye(len(K)), lower=True, check_finite=False)
        except LinAlgError:
            continue
    return None
