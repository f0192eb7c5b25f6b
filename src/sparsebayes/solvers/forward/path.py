"""The evidence along a path of chosen columns, for every number of terms at once.

With the columns in the order of choice, H'H + lam = LL' and v = L^-1 H't,

    S_k = t't - sum_{j<=k} v_j^2,     log|Id + H_k H_k'/lam| = sum_{j<=k} log(L_jj^2 / lam),

so one factorisation gives the evidence of all leading parts, and the pair (lam, number of terms) is
found by a search in log lam alone. Two optima in lam exist, hence a grid before the refinement.

A path is held as a triangle: [H t] = Q [R z; 0 r]. It is as large as the number of terms, knows no
n, and gives each posterior and evidence that true columns would give.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cholesky, get_lapack_funcs, solve_triangular, svd
from scipy.optimize import minimize_scalar

from ...designs import CompressedDesign, Design
from ...posterior import Posterior, augmented_triangle, gaussian_posterior
from ..noise import Noise, squares
from .routes import GRAM_TRUST, with_rest

_PER_DECADE = 2  # grid of the search in lam
_LARGEST = 1e3  # of max|h|^2: above, all weights are zero
_NEAR = 100.0  # times and over the lam of a path like this one
_SMALLEST = 1e-20


@dataclass(frozen=True)
class GramPath:
    """Chosen columns known by their Gram matrix: cheap, for lam that the Gram form can bear."""

    G: np.ndarray
    a: np.ndarray
    tt: Any

    @property
    def smallest_lam(self) -> float:
        """Where the Gram form ends."""
        return GRAM_TRUST * float(np.finfo(np.float64).eps) * self.size

    @property
    def size(self) -> float:
        """Largest squared length of a column; 1 where all are zero."""
        return float(np.max(np.diag(self.G), initial=0.0)) or 1.0

    def curve(self, lam: float, noise: Noise) -> np.ndarray:
        """Log evidence of the first k columns, k = 0, 1, ..., all."""
        L, v = self._factor(lam)
        S = self.tt - np.concatenate([np.zeros_like(v[:1]), np.cumsum(v * v, axis=0)])
        return _assemble(np.maximum(S, 0.0), np.diag(L), lam, noise)

    def _factor(self, lam: float) -> tuple[np.ndarray, np.ndarray]:
        A = self.G.copy()
        A[np.diag_indices_from(A)] += lam
        (potrf,) = get_lapack_funcs(("potrf",), (A,))
        L, info = potrf(A, lower=True, clean=True, overwrite_a=True)
        if info != 0:
            raise LinAlgError("The Gram matrix of the path is not positive definite in float64.")
        return L, solve_triangular(L, self.a, lower=True, check_finite=False)


@dataclass(frozen=True)
class Path:
    """Chosen columns, in order, as a triangle with the functions behind them.

    ``design`` has one column for each term; its last row is zero and carries, in ``t``, what no
    column of the path explains.
    """

    design: CompressedDesign
    t: np.ndarray

    @classmethod
    def from_columns(cls, design: Design, t: np.ndarray, order: np.ndarray) -> Path:
        """From true columns, in row blocks."""
        order = np.asarray(order, dtype=np.intp)
        R, z, outside = augmented_triangle(design, t, order, np.zeros(len(order)))
        R = np.vstack([R, np.zeros((1, len(order)))])
        small = CompressedDesign(R, design, design.basis(order))
        return cls(small, with_rest(z, outside))

    def __len__(self) -> int:
        return self.design.n_candidates

    @property
    def gram(self) -> GramPath:
        """The same by inner products."""
        R = self.design.matrix
        return GramPath(R.T @ R, R.T @ self.t, squares(self.t))

    @property
    def size(self) -> float:
        """Largest squared length of a column; 1 where all are zero."""
        return float(np.max(self.design.sqnorms(), initial=0.0)) or 1.0

    smallest_lam = 0.0

    def curve(self, lam: float, noise: Noise) -> np.ndarray:
        """Log evidence of the first k columns, k = 0, 1, ..., all; nothing cancels here."""
        R, z = self.factor(lam)
        S = np.cumsum((z * z)[::-1], axis=0)[::-1]
        return _assemble(S, np.diag(R), lam, noise)

    def factor(self, lam: float) -> tuple[np.ndarray, np.ndarray]:
        """Triangle of [H; sqrt(lam) Id], and the rotated target with what is left of it last."""
        k, T = len(self), self.t.reshape(len(self.t), -1)
        A = np.zeros((2 * k + 1, k + T.shape[1]), order="F")
        A[: k + 1, :k] = self.design.matrix
        A[: k + 1, k:] = T
        A[k + 1 :, :k] = np.sqrt(lam) * np.eye(k)
        geqrf, lwork = get_lapack_funcs(("geqrf", "geqrf_lwork"), (A,))
        A = geqrf(A, lwork=int(lwork(*A.shape)[0].real), overwrite_a=True)[0]
        rest = np.sum(np.triu(A[k:, k:]) ** 2, axis=0)
        z = with_rest(A[:k, k:], rest)
        return np.triu(A[:k, :k]), z.reshape(k + 1, *self.t.shape[1:])

    def posterior(self, k: int, lam: float, noise: Noise) -> Posterior:
        """Posterior of the first k weights, all with the precision lam / sigma2."""
        return self._posterior(self.design, np.arange(k), lam, noise)

    def _posterior(self, design: Design, active: np.ndarray, lam: float, noise: Noise) -> Posterior:
        lams = np.full(len(active), lam)
        S = augmented_triangle(design, self.t, active, lams)[2]
        return gaussian_posterior(design, self.t, active, lams, noise.best(S)[()])

    def whitened(self, k: int, L: np.ndarray) -> Path:
        """The first k columns times L^-T: equal, independent weights v become w = L^-T v."""
        white = solve_triangular(L, self.design.matrix[:, :k].T, lower=True, check_finite=False).T
        return Path(CompressedDesign(white, self.design, None), self.t)

    def predictions(self, Phi: np.ndarray, lam: float) -> np.ndarray:
        """Predictions of the first k columns on rows Phi; a column for each k = 0, 1, ..., all."""
        R, z = self.factor(lam)
        parts = solve_triangular(R, Phi.T, trans="T", check_finite=False).T * z[:-1]
        return np.column_stack([np.zeros(len(Phi)), np.cumsum(parts, axis=1)])


def best_terms(
    path: Path | GramPath, noise: Noise, k: int | None = None, near: float | None = None
) -> tuple[float, int, float]:
    """The lam and the number of terms (at least one; or `k`) of highest evidence, and the evidence.

    The search runs between what the path can bear and a lam at which all weights are zero; of a
    path that was chosen with the best lam of one like it, `near` that, and further if it must.
    """

    cheap = path.gram if isinstance(path, Path) else path

    def value(log_lam: float) -> tuple[float, int]:
        lam = np.exp(log_lam)
        try:
            curve = (cheap if lam >= cheap.smallest_lam else path).curve(lam, noise)
        except LinAlgError:
            if path is cheap:
                return -np.inf, 0
            curve = path.curve(lam, noise)
        where = int(np.argmax(curve[1:])) + 1 if k is None else k
        return float(curve[where]), where

    low, high = max(path.smallest_lam, _SMALLEST * path.size), _LARGEST * path.size
    ends = (low, high) if near is None else (max(low, near / _NEAR), min(high, near * _NEAR))
    log_lam, best = search_lam(lambda x: value(x)[0], *ends)
    if near is not None and not ends[0] * _NEAR**0.25 < np.exp(log_lam) < ends[1] / _NEAR**0.25:
        log_lam, best = search_lam(lambda x: value(x)[0], low, high)
    return float(np.exp(log_lam)), value(log_lam)[1], best


def best_lam(path: Path, noise: Noise, low: float) -> tuple[float, Any]:
    """The lam of highest `Noise.log_posterior` for all columns of a path, at least `low`; and S.

    From the singular values s of the columns: S = |t outside|^2 + sum z^2 lam/(s^2 + lam).
    """
    R = path.design.matrix
    U, s, _ = svd(R, full_matrices=False, check_finite=False)
    z = U.T @ path.t
    outside = squares(path.t - U @ z)

    def left(lam: float) -> Any:
        return outside + (lam / (s * s + lam)) @ (z * z)

    def value(log_lam: float) -> float:
        lam = np.exp(log_lam)
        return noise.log_posterior(left(lam), float(np.sum(np.log1p(s * s / lam))))

    lam = float(np.exp(search_lam(value, low, max(_LARGEST * path.size, 2.0 * low))[0]))
    return lam, left(lam)


def search_lam(value: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Where in [log low, log high] `value` is largest: a grid, then a search around its best."""
    low, high = np.log(low), np.log(high)
    grid = np.linspace(low, high, max(4, int(_PER_DECADE * (high - low) / np.log(10.0)) + 1))
    values = np.array([value(x) for x in grid])
    j = int(np.argmax(values))
    bounds = grid[max(j - 1, 0)], grid[min(j + 1, len(grid) - 1)]
    found = minimize_scalar(
        lambda x: -value(x), bounds=bounds, method="bounded", options={"xatol": 1e-5}
    )
    if -found.fun > values[j]:
        return float(found.x), float(-found.fun)
    return float(grid[j]), float(values[j])


def _assemble(S: np.ndarray, diagonal: np.ndarray, lam: float, noise: Noise) -> np.ndarray:
    lams = np.full(len(diagonal), lam)
    log_det = np.cumsum(2.0 * np.log(np.abs(diagonal)) - np.log(lams))
    return noise.log_evidence(S, np.concatenate([[0.0], log_det]))


# The chosen kernel functions under a Gaussian-process prior.
#
# Selection gives every weight the same independent prior. Kernel functions that overlap are better
# served by w ~ N(0, a K^-1), K their own kernel matrix: then H w is a draw of the process of
# variance a, seen through the chosen centres. With K = LL' and v = L'w the prior is v ~ N(0, a Id)
# on the columns H L^-T, so it is one more fit of the same kind with lam = sigma2/a, found by
# evidence and a prior of the noise variance (`Noise.log_posterior`).
#
# The columns are whitened as columns (their triangle), never their Gram matrix: that squares L^-1
# and has been seen to give predictions of 1e6.
#
# On targets that the kernel nearly interpolates the evidence is flat as lam falls, and rounding
# decides: the noise variance is floored at 1e-7 of the mean square of the target, and that it was
# is told. The floor must not be one of lam: a wide kernel has an amplitude a of many times the
# variance of the target, and a share of a then is more noise than a clean target has. For the same
# reason the jitter of K, which counts in units of a too, is as small as the factorisation allows.


JITTERS = (1e-12, 1e-10, 1e-8, 1e-6)  # of the mean diagonal of K: the first that will do
FLOOR = 1e-7  # of the mean square of the target: the smallest noise variance
SMALLEST_REFIT = 1e-15  # of the mean diagonal of K: below this lam there is rounding only


class Prior(NamedTuple):
    """N(0, a K^-1) of the first functions of a path, with a learnt by evidence: K = LL'."""

    L: np.ndarray
    white: Path  # the columns times L^-T
    lam: float  # sigma2/a
    sigma2: Any
    limit: str  # "noise" or "amplitude" where that is as far as it may go, else ""


def gp_prior(path: Path, k: int, K: np.ndarray, noise: Noise) -> Prior | None:
    """The prior N(0, a K^-1) of the first k functions of a path; None if K is indefinite."""
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
    """The posterior of the weights of the functions themselves, under that prior."""
    L, white, k = prior.L, prior.white, len(prior.L)
    lams = np.full(k, prior.lam)
    found = gaussian_posterior(white.design, white.t, np.arange(k), lams, prior.sigma2)
    mean, root = (
        solve_triangular(L, part, trans="T", lower=True, check_finite=False)
        for part in (found.mean, found.form.root)
    )
    return replace(found, mean=mean, form=replace(found.form, root=root))


def gp_root(K: np.ndarray) -> np.ndarray | None:
    """The Cholesky factor of K with the smallest jitter that makes it positive definite."""
    level = float(np.mean(np.diag(K)))
    for jitter in JITTERS:
        try:
            return cholesky(K + jitter * level * np.eye(len(K)), lower=True, check_finite=False)
        except LinAlgError:
            continue
    return None
