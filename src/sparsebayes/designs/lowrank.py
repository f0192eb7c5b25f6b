"""Low-rank approximations of all candidates: Phi ~ A F with A of n x p and F of p x m.

Kernels (Nystroem). From p pivots Z among the centres C, with k(Z, Z) = LL', the kernel on rows and
centres is k(X, C) ~ F_X' F_C with F_X = L^-1 k(Z, X) and F_C = L^-1 k(Z, C). Weights and the
intercept act on rows alone, so A = F_X' weighted and centred, and F = F_C. Pivots are chosen by
pivoted Cholesky among few candidates and at random among many. The cost is n p^2, and no array is
n x m.

Other designs (columns, or a kernel that is not positive semi-definite). A is an orthonormal basis
of p random columns, or of all columns of a small design, and F = A' Phi.

In the coordinates of A = U c (U orthonormal, A'A = c'c) column i is c f_i and a vector t on the
rows is U't = c^-T A't. The part of t outside the span of U is orthogonal to all of A F, so a model
of the compressed columns is a model of the full ones, as far as Phi ~ A F.

A and F are NumPy arrays, or tensors on the device of the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from scipy.linalg import get_lapack_funcs, qr, solve_triangular, svd
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf

from .._array import Array, is_torch, on_same_device, squared_lengths, to_numpy
from ..linalg import pivoted_cholesky
from ..linalg.factor import lower_solve
from ._base import Design
from .kernel import KernelDesign

_GREEDY_UP_TO = 1500  # candidates; for more of them random pivots are as good and cheaper
_TRACE_LEFT = 1e-12  # share of the trace that a factor may leave out
_EXACT = 1e-10  # share of the trace below which the factor counts as exact
_NOT_POSITIVE = 1e-6  # relative excess of the factor's diagonal that rounding cannot explain
_RANK = 1e-13  # relative size below which a direction is rounding error


@dataclass(frozen=True)
class LowRank:
    """Phi ~ rows @ factor, for all candidates.

    Attributes
    ----------
    rows : array of shape (n_rows, p)
        The factor A, weighted and centred as the design is.
    factor : array of shape (p, n_candidates)
        The factor F.
    triangle : array of shape (p, p)
        The upper triangle c with A'A = c'c.
    pivots : array of int of shape (p,)
        The candidates that the factor was built from.
    exact : bool
        Whether Phi = A F up to rounding.
    symmetric : bool
        Whether A = F', so that the two are one array and FF' = c'c.
    """

    rows: Array
    factor: Array
    triangle: np.ndarray
    pivots: np.ndarray
    exact: bool
    symmetric: bool = False

    def candidates(self) -> Array:
        """Return all columns in p dimensions, c F, on the device of the factor."""
        return on_same_device(self.factor, self.triangle) @ self.factor

    def project(self, V: Array) -> Array:
        """Return Phi'V of all candidates, F'A'V, on the device of the factor."""
        return self.factor.T @ (self.rows.T @ on_same_device(self.rows, V))

    def along(self, blocks: Iterable[tuple[slice, Array]]) -> Array:
        """Return V'A for a matrix V that is read in blocks of rows; V'A F is (Phi'V)'."""
        return reduce(add, (V.T @ self.rows[rows] for rows, V in blocks))

    def coordinates(self, V: np.ndarray) -> np.ndarray:
        """Return U'V for vectors V on the rows (weighted and centred by ``design.target``)."""
        along = to_numpy(self.rows.T @ on_same_device(self.rows, V))
        return solve_triangular(self.triangle, along, trans="T", check_finite=False)


def low_rank(design: Design, rank: int, rng: np.random.Generator) -> LowRank:
    """Return an approximation of all candidates of a design in at most `rank` dimensions.

    Parameters
    ----------
    design : Design
        The candidates, weighted and centred or not.
    rank : int
        Largest number of dimensions.
    rng : numpy Generator
        Draws the pivots among many candidates.

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
        approximation = _nystroem(design, base, rank, rng)
        if approximation is not None:
            return approximation
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
    residual_trace = float(np.sum(np.maximum(diagonal - np.einsum("ij,ij->j", F, F), 0.0)))
    every_row = len(base.centres) == base.n_rows
    rows = F if every_row else _at_rows(base, F[:, pivots].T, pivots)
    # Of functions that are zero at every row nothing is left out.
    total = max(float(np.sum(diagonal)), float(np.finfo(np.float64).tiny))
    return design.target(rows.T), F, residual_trace / total


def _nystroem(
    design: Design, base: KernelDesign, rank: int, rng: np.random.Generator
) -> LowRank | None:
    """Return the Nystroem approximation, or None if the kernel is not positive semi-definite."""
    diagonal = base.kernel.diagonal(base.X[base.centres])
    pivot = _greedy_pivots if base.n_candidates <= _GREEDY_UP_TO else _random_pivots
    pivots, at_rows, F = pivot(base, diagonal, rank, rng)
    if len(pivots) == 0:
        return None
    residual = diagonal - squared_lengths(F)
    if np.min(residual) < -_NOT_POSITIVE * np.max(diagonal):
        return None
    exact = float(np.sum(residual)) <= _EXACT * float(np.sum(diagonal))
    rows = at_rows.T
    A = design.target(rows)  # each column is weighted and centred as a target is
    c, info = dpotrf(to_numpy(A.T @ A), lower=False, clean=True, overwrite_a=True)
    if info == 0:
        return LowRank(A, F, c, pivots, exact, A is rows and F is at_rows)
    # A'A is not positive definite in float64 (for example, the kernel is nearly constant): use an
    # orthonormal basis of its range instead.
    U, size, Vt = svd(to_numpy(A), full_matrices=False, check_finite=False)
    k = max(1, int(np.count_nonzero(size > _RANK * size[0])))
    factor = size[:k, None] * (Vt[:k] @ to_numpy(F))
    return LowRank(U[:, :k], factor, np.eye(k), pivots, exact)


def _greedy_pivots(
    base: KernelDesign, diagonal: np.ndarray, rank: int, rng: np.random.Generator
) -> tuple[np.ndarray, Array, Array]:
    """Return pivots, L^-1 k(pivots, rows) and L^-1 k(pivots, centres) by pivoted Cholesky."""
    centres = base.centres
    F, pivots = pivoted_cholesky(diagonal, lambda j: base.columns(j)[centres], rank, _TRACE_LEFT)
    if len(pivots) == 0 or len(centres) == base.n_rows:
        return pivots, F, F
    return pivots, _at_rows(base, F[:, pivots].T, pivots), F


def _random_pivots(
    base: KernelDesign, diagonal: np.ndarray, rank: int, rng: np.random.Generator
) -> tuple[np.ndarray, Array, Array]:
    """Return what `_greedy_pivots` does from `rank` random centres that are independent."""
    centres, m = base.centres, base.n_candidates
    chosen = np.sort(rng.choice(m, min(rank, m), replace=False))
    Z = base.centre_rows(chosen)
    block = to_numpy(base.kernel.bind(Z)(Z))
    (pstrf,) = get_lapack_funcs(("pstrf",), (block,))
    L, order, k, _ = pstrf(block, lower=True, tol=_TRACE_LEFT * float(np.max(diagonal)))
    pivots = chosen[order[:k] - 1]
    if k == 0:
        return pivots, np.empty((0, base.n_rows)), np.empty((0, m))
    F = _at_rows(base, L[:k, :k], pivots)
    return pivots, F, F if m == base.n_rows else F[:, centres]


def _at_rows(base: KernelDesign, L: np.ndarray, pivots: np.ndarray) -> Array:
    """Return L^-1 k(pivots, rows)."""
    columns = base.local_columns(pivots)
    if is_torch(columns):
        return lower_solve(L, columns.T)
    return dtrsm(1.0, L, columns, side=1, lower=1, trans_a=1, overwrite_b=1).T


def _from_columns(design: Design, rank: int, rng: np.random.Generator) -> LowRank:
    m = design.n_candidates
    exact = m <= rank or design.n_rows <= rank
    pivots = np.arange(m) if exact else np.sort(rng.choice(m, rank, replace=False))
    U, R = qr(design.columns(pivots), mode="economic", check_finite=False)
    # U is orthonormal even if the columns are not independent.
    F = R if exact else design.project(U).T
    return LowRank(U, F, np.eye(U.shape[1]), pivots, exact)
