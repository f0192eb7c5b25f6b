"""Reduction of all rows of [Phi t] to a few, for a run of the RVM on one set of candidates.

Phi has one column per candidate and all N rows. A Gaussian model sees the rows only through inner
products, so any small matrix with the same ones will do (`ReducedDesign`), and the |set|^3 steps of
the RVM have no N in them. Two ways, each read chunk by chunk and merged in a tree:

    exact   the triangle of [1 Phi t]: orthogonal, no digits lost, 2 N |set|^2 at half speed
    moments scatter matrix and means: N |set|^2 at full speed, 4 to 5 times faster (measured)

The second forms residuals by cancellation: large weights of opposite sign cost it digits
(`nats_lost`). A run where they matter is made again the exact way, and so is the model that is kept
where it would lose a thousandth of a nat; small problems always are exact.

With an intercept, row and column of ones are projected out: the first row of the triangle, or the
scatter around the means, which chunks keep each around their own so that nothing cancels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dsyr, dsyrk
from scipy.linalg.lapack import dpstrf

from ..designs import CompressedDesign, Design
from ..designs.centred import CONSTANT
from ..designs.dense import RowCounts
from ..designs.kernel import block_rows
from ..kernels import Kernel
from ..linalg.factor import fold, fold_rows
from ..rows import row_slices
from ..rows._base import Chunk

_OF_THREAD = threading.local()
_CHEAP = 2e9  # N |set|^2 up to which the exact way takes less than a second


class Part(NamedTuple):
    """Some rows: their weight, and the triangle of [1 Phi t] or the moments of [Phi t]."""

    total: float
    mean: np.ndarray  # zeros without an intercept, and beside a triangle
    matrix: np.ndarray  # triangle, or scatter around the mean (lower triangle)


@dataclass(frozen=True)
class Reduced:
    """The rows of [Phi t] in a few, weighted and centred."""

    matrix: np.ndarray
    t: np.ndarray
    means: np.ndarray
    offset: float
    total: float
    intercept: bool

    def design(self, hold: bool = False) -> ReducedDesign:
        """Return the design for a solver; with `hold` it has the uncentred columns too.

        A solver may then fix the intercept at the mean of the target first.

        Uncentred columns have the inner products of the centred ones and their means: the last row,
        which is zero in the centred columns and in the target.
        """
        design = ReducedDesign(self.matrix, RowCounts(self.total, self.intercept), None)
        if hold and self.intercept:
            matrix = self.matrix.copy()
            varying = np.any(self.matrix, axis=0)  # a constant is no candidate beside an intercept
            matrix[-1] = np.where(varying, np.sqrt(self.total) * self.means, 0.0)
            design.held = ReducedDesign(matrix, RowCounts(self.total, False), None)
        return design


class ReducedDesign(CompressedDesign):
    """Few rows with the inner products of many.

    `held` has the uncentred columns of stationary functions, where a solver is to hold the
    intercept first (see `solvers.rvm.search.fixes_intercept_first`).
    """

    held: ReducedDesign | None = None

    @property
    def uncentred(self) -> Design:
        """The columns before the intercept was integrated out, where they are known."""
        return self if self.held is None else self.held

    @property
    def stationary(self) -> bool:
        """True where the columns are functions of a stationary kernel, with `held` columns."""
        return self.held is not None


@dataclass(frozen=True)
class Columns:
    """The job that reduces [Phi t] of one set of candidates."""

    kernel: Kernel
    centres: np.ndarray
    scale: float  # the target is divided by it
    intercept: bool
    exact: bool

    def read(self, index: int, chunk: Chunk) -> Part:
        """Return the part of a chunk (X, y, sample_weight or None)."""
        X, y, weight = chunk
        X = np.asarray(X, dtype=np.float64)
        y = np.asarray(y, dtype=np.float64) / self.scale
        root = None
        if weight is not None:
            positive = np.flatnonzero(weight)
            X, y, root = X[positive], y[positive], np.sqrt(weight[positive].astype(np.float64))
        return (self._triangle if self.exact else self._moments)(X, y, root)

    def merge(self, first: Part, second: Part) -> Part:
        total = first.total + second.total
        if self.exact:
            return Part(total, first.mean, fold([first.matrix, second.matrix], len(first.mean)))
        share = second.total / total if total > 0 else 0.0
        between = second.mean - first.mean
        scatter = first.matrix + second.matrix
        scatter = dsyr(first.total * share, between, a=scatter, lower=True, overwrite_a=True)
        return Part(total, first.mean + between * share, scatter)

    def finish(self, total: Part) -> Reduced:
        return (_from_triangle if self.exact else _from_moments)(total, self.intercept)

    def _triangle(self, X: np.ndarray, y: np.ndarray, root: np.ndarray | None) -> Part:
        width, values = int(self.intercept) + len(self.centres) + 1, self._values()
        R = fold_rows(values, X, y, root, self.intercept, width, values.step)
        return Part(float(len(X) if root is None else root @ root), np.zeros(width), R)

    def _moments(self, X: np.ndarray, y: np.ndarray, root: np.ndarray | None) -> Part:
        """Return Phi'Phi by one triangle, and Phi't and the means by one product, in the cache."""
        k = len(self.centres)
        shift, products = np.zeros(k + 1), np.zeros((k + 2, 2))  # [Phi t 1]'[t 1]
        gram = np.zeros((k, k), order="F")
        values = self._values()
        for rows in row_slices(len(X), values.step):
            H = values(X[rows])
            T = np.column_stack([y[rows], np.ones(len(H))])
            if self.intercept:
                if rows.start == 0:
                    # Near the means of the chunk: what is left to remove at the end is small.
                    shift = np.append(H.mean(axis=0), T[:, 0].mean())
                H -= shift[:-1]
                T[:, 0] -= shift[-1]
            if root is not None:
                H *= root[rows, None]
                T *= root[rows, None]
            products[:k] += H.T @ T
            products[k:] += T.T @ T
            if k:
                gram = dsyrk(1.0, H.T, beta=1.0, c=gram, lower=True, overwrite_c=True)
        scatter = np.empty((k + 1, k + 1), order="F")
        scatter[:k, :k] = gram
        scatter[k] = scatter[:, k] = products[:-1, 0]
        along, total = products[:-1, 1], float(products[-1, 1])
        if not self.intercept or total == 0.0:
            return Part(total, np.zeros(k + 1), scatter)
        scatter = dsyr(-1.0 / total, along, a=scatter, lower=True, overwrite_a=True)
        return Part(total, shift + along / total, scatter)

    def _values(self) -> Values:
        """Return the values of these functions; one object for all chunks that a thread reads."""
        owner: Columns | None = getattr(_OF_THREAD, "owner", None)
        if owner is not self:
            _OF_THREAD.owner, _OF_THREAD.values = self, Values(self.kernel, self.centres)
        return _OF_THREAD.values


def _from_triangle(total: Part, intercept: bool) -> Reduced:
    """Return the triangle of [Phi t]; with an intercept that of [1 Phi t] less its first row."""
    R = total.matrix
    mean = np.zeros(R.shape[1])
    if intercept:
        mean, R = R[0, 1:] / R[0, 0], R[1:, 1:]
        R = np.where(_constant(np.einsum("ij,ij->j", R, R), total.total, mean), 0.0, R)
        R = np.vstack([R, np.zeros(R.shape[1])])
    return Reduced(R[:, :-1], R[:, -1], mean[:-1], float(mean[-1]), total.total, intercept)


def _from_moments(total: Part, intercept: bool) -> Reduced:
    """Return a factor F'F of the scatter, by Cholesky with pivoting, and the target with it.

    The scatter is scaled to unit diagonal; F has its numerical rank.

    The target goes along: F'z = Phi't, and one more row for its part outside the columns.
    """
    S, mean = total.matrix, total.mean
    norms, b = np.diag(S)[:-1], S[-1, :-1]
    usable = np.flatnonzero((norms > 0) & ~_constant(norms, total.total, mean[:-1]))
    d = 1.0 / np.sqrt(norms[usable])
    unit = S[np.ix_(usable, usable)].T  # its upper triangle
    unit *= d * d[:, None]
    U, pivots, rank, _ = dpstrf(unit)
    order = pivots - 1
    F = np.zeros((rank + 1, len(norms)))
    F[:rank, usable[order]] = np.triu(U)[:rank] / d[order]
    z = solve_triangular(U[:rank, :rank], (b[usable] * d)[order[:rank]], trans="T")
    residual = max(float(S[-1, -1] - z @ z), 0.0)
    t = np.append(z, np.sqrt(residual))
    if intercept:
        F, t = np.vstack([F, np.zeros(F.shape[1])]), np.append(t, 0.0)
    return Reduced(F, t, mean[:-1], float(mean[-1]), total.total, intercept)


def _constant(norms: np.ndarray, total: float, mean: np.ndarray) -> np.ndarray:
    """Return which columns are a constant and the rounding error of removing it."""
    return norms <= CONSTANT * total * mean**2


def nats_lost(reduced: Reduced, active: np.ndarray, mean: np.ndarray, sigma2: float) -> float:
    """Return about how much rounding in the moments changes the log evidence of a model.

    Each moment is off by about eps |h_i||h_j|, the squared error of the model, in which it counts
    mu_i mu_j times, by eps (sum |h||mu| + |t|)^2, and the log evidence by half of that in units of
    the noise.
    """
    norms = np.linalg.norm(reduced.matrix[:, active], axis=0)
    size = float(norms @ np.abs(mean)) + float(np.linalg.norm(reduced.t))
    return 0.5 * float(np.finfo(np.float64).eps) * size**2 / sigma2


def exact_is_cheap(n_rows: int, n_set: int) -> bool:
    """Return whether a set is reduced the exact way from the start."""
    return float(n_rows) * n_set * n_set <= _CHEAP


# Kernel values in memory that is used again.
#
# A worker of Dask gives memory back as soon as it is free, and the next array of the same size is
# paid for page by page: fresh arrays for every block of rows took 40 % of a pass (measured).


class Values:
    """Functions on their centres, a block of at most `step` rows at a time.

    What a call returns is overwritten by the next.
    """

    def __init__(self, kernel: Kernel, centres: np.ndarray) -> None:
        k = len(centres)
        self.step = block_rows(k)
        self._buffer = np.empty((self.step, k))
        self._in_place = kernel.stationary
        self._bound: Callable[..., np.ndarray] | None = kernel.bind(centres) if k else None

    def __call__(self, X: np.ndarray) -> np.ndarray:
        out = self._buffer[: len(X)]
        if self._bound is None:
            return out
        if self._in_place:
            return self._bound(X, out=out)
        out[...] = self._bound(X)
        return out
