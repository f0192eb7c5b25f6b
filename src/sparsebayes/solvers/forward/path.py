"""The evidence along a path of chosen columns, for every number of terms at once.

With the columns in the order of choice, H'H + lam = LL' and v = L^-1 H't,

    S_k = t't - sum_{j<=k} v_j^2,     log|Id + H_k H_k'/lam| = sum_{j<=k} log(L_jj^2 / lam),

so one factorisation gives the evidence of every number of leading terms, and the best pair of lam
and number of terms takes a search in log lam alone. There may be two optima in lam, hence a grid
before the refinement.

A path is stored as a triangle: [H t] = Q [R z; 0 r]. Its size is the number of terms, whatever the
number of rows, and it gives the same posterior and evidence as the columns themselves. The triangle
of a known Gram matrix needs no pass over the rows. An error e of each entry of H'H changes the
evidence by at most e k / (2 lam), so that path tells the smallest lam for which that is negligible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, get_lapack_funcs, solve_triangular, svd

from ..._array import PerTarget
from ...designs import CompressedDesign, Design
from ...linalg.scalar import maximise
from ...posterior import Posterior, augmented_triangle, gaussian_posterior
from ..noise import Noise, squares
from .routes import GRAM_TRUST, with_residual

_PER_DECADE = 2  # grid points of the search in lam
_LARGEST = 1e3  # of max|h|^2: all weights are zero at this lam
_SMALLEST = 1e-20  # of max|h|^2: the lower end of the search
_NEAR = 100.0  # factor on either side of a lam that a similar path had
_EPS = float(np.finfo(np.float64).eps)
_LEAST_RESIDUAL = 1e-6  # of t't: a smaller difference of squares has lost digits
CLAIM_ERROR = 0.01  # nats by which the evidence from a Gram matrix may be wrong


@dataclass(frozen=True)
class GramPath:
    """Chosen columns by their Gram matrix: cheap, but accurate only at `smallest_lam` and above."""

    G: np.ndarray  # H'H
    a: np.ndarray  # H't
    tt: PerTarget  # t't

    @property
    def smallest_lam(self) -> float:
        """Smallest lam at which the Gram matrix has enough digits."""
        return GRAM_TRUST * _EPS * self.size

    @property
    def size(self) -> float:
        """Largest squared length of a column; 1 where all are zero."""
        return float(np.max(np.diag(self.G), initial=0.0)) or 1.0

    def curve(self, lam: float, noise: Noise) -> np.ndarray:
        """Return the log evidence of the first k columns, k = 0, 1, ..., all."""
        L, v = self._factor(lam)
        S = self.tt - np.concatenate([np.zeros_like(v[:1]), np.cumsum(v * v, axis=0)])
        return _evidence_curve(np.maximum(S, 0.0), np.diag(L), lam, noise)

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
    """Chosen columns, in order, as a triangle with their basis functions.

    ``design`` has one column for each term. Its last row is zero, and the last entry of ``t`` is
    the length of the residual of all columns. ``rounding`` is the error of an entry of H'H: zero if
    the triangle comes from the columns.
    """

    design: CompressedDesign
    t: np.ndarray
    rounding: float = 0.0

    @classmethod
    def from_columns(cls, design: Design, t: np.ndarray, order: np.ndarray) -> Path:
        """Make a path of these columns of a design, read in blocks of rows."""
        order = np.asarray(order, dtype=np.intp)
        R, z, rss = augmented_triangle(design, t, order, np.zeros(len(order)))
        R = np.vstack([R, np.zeros((1, len(order)))])
        small = CompressedDesign(R, design, design.basis(order))
        return cls(small, with_residual(z, rss))

    @classmethod
    def from_gram(cls, gram: GramPath, design: Design, order: np.ndarray) -> Path | None:
        """Make a path of these columns from their Gram matrix; None if that has too few digits."""
        try:
            L, z = gram._factor(0.0)
        except LinAlgError:
            return None
        rss = gram.tt - squares(z)
        if not np.all(rss > _LEAST_RESIDUAL * gram.tt):
            return None
        R = np.vstack([L.T, np.zeros((1, len(order)))])
        small = CompressedDesign(R, design, design.basis(order))
        return cls(small, with_residual(z, rss), _EPS * gram.size)

    def __len__(self) -> int:
        return self.design.n_candidates

    @property
    def smallest_lam(self) -> float:
        """Smallest lam at which the evidence of all columns has an error below `CLAIM_ERROR`."""
        return len(self) * self.rounding / (2.0 * CLAIM_ERROR)

    @property
    def gram(self) -> GramPath:
        """The path by its Gram matrix."""
        R = self.design.matrix
        return GramPath(R.T @ R, R.T @ self.t, squares(self.t))

    @property
    def size(self) -> float:
        """Largest squared length of a column; 1 where all are zero."""
        return float(np.max(self.design.sqnorms(), initial=0.0)) or 1.0

    def curve(self, lam: float, noise: Noise) -> np.ndarray:
        """Return the log evidence of the first k columns, k = 0, ..., all, without cancellation."""
        R, z = self.factor(lam)
        S = np.cumsum((z * z)[::-1], axis=0)[::-1]
        return _evidence_curve(S, np.diag(R), lam, noise)

    def factor(self, lam: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the triangle of [H; sqrt(lam) Id], and the rotated target with its residual."""
        k, T = len(self), self.t.reshape(len(self.t), -1)
        A = np.zeros((2 * k + 1, k + T.shape[1]), order="F")
        A[: k + 1, :k] = self.design.matrix
        A[: k + 1, k:] = T
        A[k + 1 :, :k] = np.sqrt(lam) * np.eye(k)
        geqrf, lwork = get_lapack_funcs(("geqrf", "geqrf_lwork"), (A,))
        A = geqrf(A, lwork=int(lwork(*A.shape)[0].real), overwrite_a=True)[0]
        z = with_residual(A[:k, k:], np.sum(np.triu(A[k:, k:]) ** 2, axis=0))
        return np.triu(A[:k, :k]), z.reshape(k + 1, *self.t.shape[1:])

    def posterior(self, k: int, lam: float, noise: Noise) -> Posterior:
        """Return the posterior of the first k weights, all with the precision lam / sigma2."""
        return self._posterior(self.design, np.arange(k), lam, noise)

    def _posterior(self, design: Design, active: np.ndarray, lam: float, noise: Noise) -> Posterior:
        lams = np.full(len(active), lam)
        S = augmented_triangle(design, self.t, active, lams)[2]
        return gaussian_posterior(design, self.t, active, lams, noise.best(S)[()])

    def whitened(self, k: int, L: np.ndarray) -> Path:
        """Return the first k columns times L^-T: independent weights v become w = L^-T v."""
        white = solve_triangular(L, self.design.matrix[:, :k].T, lower=True, check_finite=False).T
        rounding = self.rounding
        if rounding:
            inverse = solve_triangular(L, np.eye(k), lower=True, check_finite=False)
            rounding *= float(np.mean(np.einsum("ij,ij->j", inverse, inverse)))
        return Path(CompressedDesign(white, self.design, None), self.t, rounding)

    def predictions(self, Phi: np.ndarray, lam: float) -> np.ndarray:
        """Return the predictions on rows Phi; column k is that of the first k columns."""
        R, z = self.factor(lam)
        parts = solve_triangular(R, Phi.T, trans="T", check_finite=False).T * z[:-1]
        return np.column_stack([np.zeros(len(Phi)), np.cumsum(parts, axis=1)])


def best_terms(
    path: Path | GramPath,
    noise: Noise,
    k: int | None = None,
    near: float | None = None,
    log_prior: np.ndarray | None = None,
) -> tuple[float, int, float]:
    """Return the lam and number of terms of highest evidence, and that evidence.

    `log_prior` is the log prior of 0, 1, 2, ... terms, which is added to the evidence.

    There is at least one term, or exactly `k`. The search runs between the smallest accurate lam
    and one at which all weights are zero. Of a path that was chosen with the best lam of a similar
    path, give that as `near`: the search starts around it and is extended if necessary.
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
        if log_prior is not None:
            curve = curve + log_prior[: len(curve)]
        n_terms = int(np.argmax(curve[1:])) + 1 if k is None else k
        return float(curve[n_terms]), n_terms

    low, high = max(path.smallest_lam, _SMALLEST * path.size), _LARGEST * path.size
    ends = (low, high) if near is None else (max(low, near / _NEAR), min(high, near * _NEAR))
    log_lam, best = search_lam(lambda x: value(x)[0], *ends)
    if near is not None and not ends[0] * _NEAR**0.25 < np.exp(log_lam) < ends[1] / _NEAR**0.25:
        log_lam, best = search_lam(lambda x: value(x)[0], low, high)
    return float(np.exp(log_lam)), value(log_lam)[1], best


def best_lam(path: Path, noise: Noise, low: float) -> tuple[float, PerTarget]:
    """Return the lam >= `low` of highest `Noise.log_posterior` for all columns of a path, and S.

    From the singular values s of the columns: S = rss + sum z^2 lam/(s^2 + lam), with rss the
    residual sum of squares of least squares.
    """
    R = path.design.matrix
    U, s, _ = svd(R, full_matrices=False, check_finite=False)
    z = U.T @ path.t
    rss = squares(path.t - U @ z)

    def penalised(lam: float) -> PerTarget:
        return rss + (lam / (s * s + lam)) @ (z * z)

    def value(log_lam: float) -> float:
        lam = np.exp(log_lam)
        return noise.log_posterior(penalised(lam), float(np.sum(np.log1p(s * s / lam))))

    lam = float(np.exp(search_lam(value, low, max(_LARGEST * path.size, 2.0 * low))[0]))
    return lam, penalised(lam)


def search_lam(value: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Return the log lam between `low` and `high` of highest `value`, and the value there."""
    step = np.log(10.0) / _PER_DECADE
    return maximise(value, float(np.log(low)), float(np.log(high)), step=step, tol=1e-5)


def _evidence_curve(S: np.ndarray, diagonal: np.ndarray, lam: float, noise: Noise) -> np.ndarray:
    """Return the log evidence along a path from S and the diagonal of the triangle."""
    lams = np.full(len(diagonal), lam)
    log_det = np.cumsum(2.0 * np.log(np.abs(diagonal)) - np.log(lams))
    return noise.log_evidence(S, np.concatenate([[0.0], log_det]))
