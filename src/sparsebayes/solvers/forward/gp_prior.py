"""The chosen kernel functions under a Gaussian-process prior.

The selection gives every weight the same independent prior. Overlapping kernel functions are better
described by w ~ N(0, a K^-1), with K their own kernel matrix: then H w is a draw from the Gaussian
process of variance a, projected on the chosen centres. With K = LL' and v = L'w the prior is
v ~ N(0, a Id) on the columns H L^-T. It is one more fit of the same kind, with lam = sigma2/a
learnt by evidence and a prior of the noise variance (`Noise.log_posterior`).

The columns themselves are whitened (their triangle) rather than their Gram matrix: that squares
L^-1, which has given predictions of 1e6. A triangle that comes from the Gram matrix has the same
error, and `Path.smallest_lam` of the whitened path says which lam it can bear.

On targets that the kernel nearly interpolates, the evidence is flat as lam falls, and rounding
decides. The noise variance therefore has a floor of 1e-7 of the mean square of the target, and
`Prior.limit` reports where it was reached. A floor of lam would not do: a wide kernel has an
amplitude a of many times the variance of the target, and a share of a would be more noise than a
clean target has. For the same reason the jitter of K, which counts in units of a too, is as small
as the factorisation allows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from ..._array import PerTarget
from ...posterior import Posterior, gaussian_posterior
from ..noise import Noise, squares
from .path import Path, best_lam

JITTERS = (1e-12, 1e-10, 1e-8, 1e-6)  # of the mean diagonal of K, tried in turn
FLOOR = 1e-7  # of the mean square of the target: the smallest noise variance
SMALLEST_REFIT = 1e-15  # of the mean diagonal of K: a smaller lam is rounding


class Prior(NamedTuple):
    """The prior N(0, a K^-1) of the first functions of a path, K = LL', with a by evidence."""

    L: np.ndarray
    white: Path  # the columns times L^-T
    lam: float  # sigma2/a
    sigma2: PerTarget
    limit: str  # "noise" or "amplitude" if that is at its bound, else ""


def gp_prior(path: Path, k: int, K: np.ndarray, noise: Noise) -> Prior | None:
    """Learn the prior N(0, a K^-1) of the first k functions of a path; None if K is indefinite."""
    K = K[:k, :k]
    L = gp_root(K)
    if L is None:
        return None
    floor = FLOOR * squares(path.t) / max(noise.n, 1.0)
    noise = replace(noise, floor=np.maximum(noise.floor, floor)[()])
    white, low = path.whitened(k, L), SMALLEST_REFIT * float(np.mean(np.diag(K)))
    lam, S = best_lam(white, noise, low)
    sigma2 = noise.best(S)[()]
    limit = "noise" if np.any(sigma2 <= 1.001 * noise.floor) else ""
    if not limit and lam <= 1.001 * low:
        limit = "amplitude"
    return Prior(L, white, lam, sigma2, limit)


def gp_refit(prior: Prior) -> Posterior:
    """Return the posterior of the weights of the functions under that prior."""
    L, white, k = prior.L, prior.white, len(prior.L)
    lams = np.full(k, prior.lam)
    whitened = gaussian_posterior(white.design, white.t, np.arange(k), lams, prior.sigma2)
    mean, root = (
        solve_triangular(L, part, trans="T", lower=True, check_finite=False)
        for part in (whitened.mean, whitened.form.root)
    )
    return replace(whitened, mean=mean, form=replace(whitened.form, root=root))


def gp_root(K: np.ndarray) -> np.ndarray | None:
    """Return the Cholesky factor of K plus the smallest jitter that makes it positive definite."""
    level = float(np.mean(np.diag(K)))
    for jitter in JITTERS:
        try:
            return cholesky(K + jitter * level * np.eye(len(K)), lower=True, check_finite=False)
        except LinAlgError:
            continue
    return None
