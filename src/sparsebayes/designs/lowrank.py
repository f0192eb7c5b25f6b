"""All candidates of a design in a few dimensions: Phi ~ A F with A of n x p and F of p x m.

Kernels (Nystroem). From p pivots Z among the centres C, with k(Z, Z) = LL', the kernel on rows and
centres is k(X, C) ~ F_X' F_C with F_X = L^-1 k(Z, X) and F_C = L^-1 k(Z, C). Weights and the
intercept act on rows alone, so A = F_X' weighted and centred, and F = F_C. Pivots are chosen by
pivoted Cholesky on few candidates and at random on many. Cost n p^2, nothing n x m.

Other designs (plain columns, a matrix of a kernel that is not positive semi-definite). A is an
orthonormal basis of p random columns, all of them where the design is small, and F = A' Phi.

In the coordinates of A = U c (U orthonormal, A'A = c'c) column i is c f_i and a vector t on the
rows is U't = c^-T A't. What U does not reach of t is orthogonal to all of A F, so a model of the
compressed columns is one of the full ones, as far as Phi ~ A F.

A and F are where the rows are: NumPy arrays, or tensors on a device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import get_lapack_funcs, qr, solve_triangular, svd
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf

from .._array import is_torch, on_same_device, squared_lengths, to_numpy
from ..linalg import pivoted_cholesky
from ..linalg.factor import lower_solve
from ._base import Design
from .kernel import KernelDesign

_GREEDY_UP_TO = 1500  # candidates: above, random pivots are as good and cheaper
_TRACE_LEFT = 1e-12  # of the trace: what a factor may leave out
_NOT_POSITIVE = 1e-6  # relative excess of the factor's diagonal that no rounding explains
_RANK = 1e-13  # relative size below which a direction is rounding error


@dataclass(frozen=True)
class LowRank:
    """Phi ~ rows @ factor, for all candidates.

    Attributes
    ----------
    rows : array of shape (n_rows, p)
        A: weighted and centred as the design is.
    factor : array of shape (p, n_candidates)
        F.
    triangle : array of shape (p, p)
        c, upper triangular with A'A = c'c.
    pivots : array of int of shape (p,)
        The candidates the factor was built from.
    exact : bool
        Whether Phi = A F up to rounding.
    symmetric : bool
        Whether A = F': one array, and FF' = c'c.
    """

    rows: Any
    factor: Any
    triangle: np.ndarray
    pivots: np.ndarray
    exact: bool
    symmetric: bool = False

    def candidates(self) -> Any:
        """All columns in p dimensions, where the factor is: c F."""
        return on_same_device(self.factor, self.triangle) @ self.factor

    def project(self, V: Any) -> Any:
        """Phi'V of all candidates, where the factor is: F'A'V."""
        return self.factor.T @ (self.rows.T @ on_same_device(self.rows, V))

    def along(self, blocks: Iterable[tuple[slice, Any]]) -> Any:
        """V'A of a matrix V that is read in blocks of rows: times F it is (Phi'V)'."""
        return sum(V.T @ self.rows[rows] for rows, V in blocks)

    def coordinates(self, V: np.ndarray) -> np.ndarray:
        """Vectors on the rows (as ``design.target`` gives them) in the same dimensions: U'V."""
        along = to_numpy(self.rows.T @ on_same_device(self.rows, V))
        return solve_triangular(self.triangle, along, trans="T", check_finite=False)


def low_rank(design: Design, rank: int, rng: np.random.Generator) -> LowRank:
    """All candidates of a design in at most `rank` dimensions.

    Parameters
    ----------
    design : Design
        Kernel or plain columns, weighted and centred or not.
    rank : int
    rng : numpy Generator
        Draws the pivots where there are many candidates.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import CentredDesign, KernelDesign
    >>> from sparsebayes.designs.lowrank import low_rank
    >>> from sparsebayes.kernels import StationaryKernel
    >>> X = np.linspace(0, 1, 300)[:, None]
    >>> design = CentredDesign(KernelDesign(X, StationaryKernel("rbf", 1.0)))
    >>> approximation = low_rank(design, 50, np.random.default_rng(0))
    >>> approximation.factor.shape[0] < 20
    True
    >>> np.allclose(approximation.rows @ approximation.factor, design.dense(), atol=1e-5)
    True
    """
    base = design.unweighted
    if isinstance(base, KernelDesign):
        found = _nystroem(design, base, rank, rng)
        if found is not None:
            return found
    return _from_columns(design, rank, rng)


def pivoted_factor(design: Design, rank: int, trace: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return A, F and the share of the trace that they leave out, with Phi ~ A F.

    Pivots are chosen greedily among the centres until `rank` of them or until a share `trace` of
    the trace is left.

    Parameters
    ----------
    design : Design
        Kernel functions, weighted and centred or not.
    rank : int
    trace : float
    """
    base = design.unweighted
    assert isinstance(base, KernelDesign)
    kernel, centres = base.kernel, base.centre_rows()
    diagonal = kernel.diagonal(centres)
    F, pivots = pivoted_cholesky(diagonal, lambda j: kernel.bind(centres[j])(centres), rank, trace)
    trace_left = float(np.sum(np.maximum(diagonal - np.einsum("ij,ij->j", F, F), 0.0)))
    every_row = len(base.centres) == base.n_rows
    rows = F if every_row else _at_rows(base, F[:, pivots].T, pivots)
    return design.target(rows.T), F, trace_left / float(np.sum(diagonal))


def _nystroem(
    design: Design, base: KernelDesign, rank: int, rng: np.random.Generator
) -> LowRank | None:
    """None where the kernel is not positive semi-definite."""
    diagonal = base.kernel.diagonal(base.X[base.centres])
    pivot = _greedy_pivots if base.n_candidates <= _GREEDY_UP_TO else _random_pivots
    pivots, at_rows, F = pivot(base, diagonal, rank, rng)
    if len(pivots) == 0:
        return None
    left = diagonal - squared_lengths(F)
    if np.min(left) < -_NOT_POSITIVE * np.max(diagonal):
        return None
    exact = float(np.sum(left)) <= 1e-10 * float(np.sum(diagonal))
    rows = at_rows.T
    A = design.target(rows)  # weighted and centred as a target is, each column by itself
    c, info = dpotrf(to_numpy(A.T @ A), lower=False, clean=True, overwrite_a=True)
    if info == 0:
        return LowRank(A, F, c, pivots, exact, A is rows and F is at_rows)
    # A'A is not positive definite in float64 (the kernel is nearly constant, say): take an
    # orthonormal basis of what is there instead.
    U, size, Vt = svd(to_numpy(A), full_matrices=False, check_finite=False)
    k = max(1, int(np.count_nonzero(size > _RANK * size[0])))
    factor = size[:k, None] * (Vt[:k] @ to_numpy(F))
    return LowRank(U[:, :k], factor, np.eye(k), pivots, exact)


def _greedy_pivots(
    base: KernelDesign, diagonal: np.ndarray, rank: int, rng: np.random.Generator
) -> tuple[np.ndarray, Any, Any]:
    """Pivots, L^-1 k(pivots, rows) and L^-1 k(pivots, centres), by pivoted Cholesky."""
    centres = base.centres
    F, pivots = pivoted_cholesky(diagonal, lambda j: base.columns(j)[centres], rank, _TRACE_LEFT)
    if len(pivots) == 0 or len(centres) == base.n_rows:
        return pivots, F, F
    return pivots, _at_rows(base, F[:, pivots].T, pivots), F


def _random_pivots(
    base: KernelDesign, diagonal: np.ndarray, rank: int, rng: np.random.Generator
) -> tuple[np.ndarray, Any, Any]:
    """The same from `rank` random centres, less those that the others span."""
    centres, m = base.centres, base.n_candidates
    chosen = np.sort(rng.choice(m, min(rank, m), replace=False))
    Z = base.centre_rows(chosen)
    block = to_numpy(base.kernel.bind(Z)(Z))
    (pstrf,) = get_lapack_funcs(("pstrf",), (block,))
    L, order, k, _ = pstrf(block, lower=True, tol=_TRACE_LEFT * float(np.max(diagonal)))
    pivots = chosen[order[:k] - 1]
    if k == 0:
        return pivots, None, None
    F = _at_rows(base, L[:k, :k], pivots)
    return pivots, F, F if m == base.n_rows else F[:, centres]


def _at_rows(base: KernelDesign, L: np.ndarray, pivots: np.ndarray) -> Any:
    """L^-1 k(pivots, rows)."""
    columns = base.local_columns(pivots)
    if is_torch(columns):
        return lower_solve(L, columns.T)
    return dtrsm(1.0, L, columns, side=1, lower=1, trans_a=1, overwrite_b=1).T


def _from_columns(design: Design, rank: int, rng: np.random.Generator) -> LowRank:
    m = design.n_candidates
    everything = m <= rank or design.n_rows <= rank
    pivots = np.arange(m) if everything else np.sort(rng.choice(m, rank, replace=False))
    U, R = qr(design.columns(pivots), mode="economic", check_finite=False)
    # U is orthonormal even where the columns are not independent.
    F = R if everything else design.project(U).T
    return LowRank(U, F, np.eye(U.shape[1]), pivots, everything)
