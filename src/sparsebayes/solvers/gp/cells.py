"""Cells: parts of the input space, each with one system of thousands of rows for its means.

The rows U of a cell are its own and those around it, three for two of its own: the N of
`neighbours` for all of the cell, solved once in the fit. With r, lam, phi, D and S as there,
C = r(U, U) + diag(lam/weight) = LL', W = L^-1 phi(U) and e = y - m(U),

    step = (S^-1 + W'W - phi'D^-1 phi)^-1 phi'(C^-1 - D^-1) e,    alpha = C^-1 (e - phi step),

and the mean at x is m(x) + phi(x)'(step - phi(U)'alpha) + k(x, U)'alpha. The inverse covariance of
the observations of the cell given all others is P = C^-1 - C^-1 phi (...)^-1 phi'C^-1 with the same
inverse, so that the leave-one-out residual of row i is alpha_i/P_ii and its variance 1/P_ii.

Up to 3,072 rows C has one factor. More are cut into blocks of 1,024: C without what is between
blocks has theirs, the same formulas solve that system, and so make the preconditioner of conjugate
gradients for C itself (`_refined`), which carry the pair (alpha, step). 25 steps on 8,192 rows take
.4 s and the kernel values .3 s, where a factor takes two seconds: docs/theory/neighbours.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg import (
    LinAlgError,
    cho_factor,
    cho_solve,
    get_blas_funcs,
    get_lapack_funcs,
    solve_triangular,
)

from ..._array import to_numpy

if TYPE_CHECKING:
    from .neighbours import NearestRows, NeighbourProcess, TrainingCache

# Rows of a cell for each neighbour of a row, and at most. More rows are more accurate, in a time
# and memory that grow with their square: with 64 neighbours they take half of the fit of 10^5 rows,
# and 268 MB.
_PER_NEIGHBOUR = 256
_MOST_OF_CELL = 8192
# Rows in the system of a cell for each row of its own, so that its edges are as accurate as its
# middle. For leave-one-out predictions few cells are solved, of fewer rows, with a wider margin.
_AROUND, _AROUND_LOO = 2.5, 6.0
_DIRECT = 3072  # rows that have one factor
_BLOCK = 1024  # rows of a block where there are more
_SINGLE = 1e-3  # above this lam a part of the rows is solved in float32, in half the time
_RANGE = 1e-18, 1e18  # of inputs whose squares float32 has
_PRECISE = 0.01  # error of conjugate gradients, in standard deviations of the process
_MOST_STEPS = 100


class Cells(NamedTuple):
    """Parts of the input space, cut along one input at a time, and the solution in each of them.

    At a row x of cell c, whose rows are U, the mean is
    offset[c] + phi(x)'weights[c] + k(x, U)'alpha.
    """

    inputs: np.ndarray  # input along which each cut is made
    cuts: np.ndarray  # position of each cut
    below: np.ndarray  # (n_cuts, 2): next cut for smaller values and for others; ~c is cell c
    first: np.ndarray  # position in `rows` of the first row of each cell
    rows: np.ndarray
    alpha: np.ndarray
    weights: np.ndarray
    offset: np.ndarray

    @property
    def n(self) -> int:
        """Number of cells."""
        return len(self.first) - 1

    def find(self, A: Any) -> np.ndarray:
        """Return the cell of each row of A."""
        A = to_numpy(A)
        at = np.full(len(A), 0 if len(self.cuts) else ~0)
        while len(undecided := np.flatnonzero(at >= 0)):
            cut = at[undecided]
            beyond = A[undecided, self.inputs[cut]] >= self.cuts[cut]
            at[undecided] = self.below[cut, beyond.astype(np.intp)]
        return ~at

    def part(self, c: Any) -> slice:
        """Return where in `rows` the rows of cell c are."""
        return slice(self.first[c], self.first[c + 1])


def cut_cells(nearest: NearestRows, X: np.ndarray, m: int, loo: bool = False) -> Cells:
    """Return cells with the rows of their systems: their own, and those next to them.

    With `loo` the systems are small enough for one factor.
    """
    most = _DIRECT if loo else _MOST_OF_CELL
    size = min(max(min(_PER_NEIGHBOUR * m, most), m), len(X))
    around = 1 if size == len(X) else _AROUND_LOO if loo else _AROUND
    rate = np.zeros(X.shape[1])
    rate[nearest.used] = to_numpy(nearest.rate)
    tree, own = _cut(X, rate, max(int(size / around), 1))
    rows = []
    for part in own:
        if size < len(X):  # of the nearest to its middle those that are least beyond its edges
            low, high = np.min(X[part], axis=0), np.max(X[part], axis=0)
            near = nearest(np.mean(X[part], axis=0)[None], min(2 * size, len(X)))[0]
            near = np.setdiff1d(near, part)
            beyond = np.maximum(np.maximum(low - X[near], X[near] - high), 0.0) @ rate
            part = np.append(part, near[np.argsort(beyond, kind="stable")[: size - len(part)]])
        # Block by block, each of rows that are near each other.
        rows.append(part[np.concatenate(_cut(X[part], rate, _BLOCK)[1])])
    first = np.cumsum([0] + [len(part) for part in rows])
    empty = np.zeros(0)
    return Cells._make([*tree, first, np.concatenate(rows), empty, empty, empty])


def _cut(X: np.ndarray, rate: np.ndarray, most: int) -> tuple[list[np.ndarray], list[Any]]:
    """Return cuts as in `Cells`, and the rows of each part, at most `most`.

    A part that is too large is cut along the input in which its rows, in the distance of the
    kernel, are farthest apart, into two that are divided into whole parts.
    """
    inputs, cuts, below, parts = [], [], [], []

    def cut_up(part: np.ndarray) -> int:
        if len(part) <= most:
            parts.append(part)
            return ~(len(parts) - 1)
        extent = np.ptp(X[part], axis=0)
        j = int(np.argmax(rate * extent if np.any(rate * extent > 0) else extent))
        x = X[part, j]
        n_parts = -(-len(part) // most)
        middle = len(x) * (n_parts // 2) // n_parts
        cut = np.partition(x, middle)[middle]
        if not np.any(x < cut):
            cut = np.min(x[x > cut])
        inputs.append(j)
        cuts.append(cut)
        below.append([0, 0])
        node = len(cuts) - 1
        below[node] = [cut_up(part[x < cut]), cut_up(part[x >= cut])]
        return node

    cut_up(np.arange(len(X)))
    tree = [np.array(inputs, dtype=np.intp), np.array(cuts), np.array(below, dtype=np.intp)]
    return tree, parts


class CellSolution(NamedTuple):
    """Solution of the system of a cell, in units of the amplitude and of the scale of y."""

    alpha: np.ndarray
    weights: np.ndarray
    offset: float
    mean: np.ndarray  # of the function at some rows given the others
    variance: np.ndarray


def solve_cell(process: NeighbourProcess, cache: TrainingCache, loo: np.ndarray) -> CellSolution:
    """Solve the system of the rows of one cell.

    `loo` are those whose leave-one-out mean and variance are wanted, which takes one factor of all
    rows. Raises LinAlgError where the covariance is not positive definite in the working precision,
    or conjugate gradients do not converge.
    """
    kernel: Any = process.functions.kernel
    fit, (n, k) = process.fit, cache.phi.shape
    direct = n <= _DIRECT or len(loo) > 0
    work = _working_type(process, cache, direct)
    X = (cache.X - np.mean(cache.X, axis=0)).astype(work)
    F, gap = cache.phi.astype(work, copy=False), cache.global_residual.astype(work)
    # The functions, and the constant as one of them.
    flat = int(fit.offset_variance > 0)
    G, prior = np.ones((n, k + flat), work), np.append(fit.variance, [fit.offset_variance] * flat)
    np.subtract(F, fit.centre.astype(work), out=G[:, :k])
    K, own = kernel.lower(X), np.arange(n)
    K[own, own] = 1.0 + cache.noise
    potrf = get_lapack_funcs("potrf", (K,))
    syrk, symv, trsm, trsv = get_blas_funcs(("syrk", "symv", "trsm", "trsv"), (K,))
    blocks = [slice(i, min(i + _BLOCK, n)) for i in range(0, n, _BLOCK)]
    roots, W = [], np.empty_like(G)
    for b in [slice(0, n)] if direct else blocks:
        C = K if direct else np.array(K[b, b], order="F")
        C = syrk(-1.0, F[b].T, 1.0, C, trans=1, lower=1, overwrite_c=1) if k else C
        C[own[: len(C)], own[: len(C)]] = (cache.residual + cache.noise)[b]
        L, failed = potrf(C, lower=1, overwrite_a=1, clean=0)
        if failed:
            raise LinAlgError("The covariance of the rows of a cell is not positive definite.")
        roots.append((b, L))
        W[b] = trsm(1.0, L, G[b].T, side=1, lower=1, trans_a=1).T
    weighted = G * (1.0 / cache.independent_noise).astype(work)[:, None]
    A = (W.T @ W - G.T @ weighted).astype(np.float64)
    root = cho_factor(A + np.diag(1.0 / prior), lower=True, check_finite=False)

    def solve_blocks(gap: np.ndarray, more: Any = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Return alpha and step for the covariance without what is between blocks."""
        t = np.concatenate([trsv(L, gap[b], lower=1) for b, L in roots])
        step = cho_solve(root, W.T @ t + more, check_finite=False)
        t -= W @ step.astype(work)
        return np.concatenate([trsv(L, t[b], lower=1, trans=1) for b, L in roots]), step

    alpha, step = solve_blocks(gap, -(weighted.T @ gap))
    if direct:
        alpha = alpha.astype(np.float64)
    else:

        def multiply(a: np.ndarray, step: np.ndarray) -> np.ndarray:
            constant = float(np.sum(step[k:]) - fit.centre @ step[:k])
            return symv(1.0, K, a, lower=1) + F @ (step[:k] - F.T @ a).astype(work) + constant

        # The energy of n observations is n times the amplitude.
        tolerance = _PRECISE**2 * n * process.amplitude
        alpha, step = _refined(alpha, step, gap, solve_blocks, multiply, tolerance)
    mean = fit.mean + step[:k]
    offset = fit.offset - fit.centre @ mean + np.sum(step[k:])
    weights = mean - F.T @ alpha
    if not len(loo):
        return CellSolution(alpha, weights, offset, np.zeros(0), np.zeros(0))
    precision = _precisions(roots[0][1], root[0], W, loo)
    loo_mean = cache.y[loo] - alpha[loo] / precision
    return CellSolution(
        alpha, weights, offset, loo_mean, np.maximum(1.0 / precision - cache.noise[loo], 0.0)
    )


def _working_type(process: NeighbourProcess, cache: TrainingCache, direct: bool) -> np.dtype:
    """Return float64 where float32 would not do, or one cell is the exact process, else float32."""
    n = len(cache.phi)
    exact = direct and cache.phi.dtype == np.float64 and n == len(process.rows)
    sizes = np.ptp(cache.X, axis=0)
    sizes = sizes[sizes > 0]
    beyond = np.any((sizes < _RANGE[0]) | (sizes > _RANGE[1]))  # its squares are no numbers
    return np.dtype(np.float64 if process.lam <= _SINGLE or exact or beyond else np.float32)


def _precisions(L: np.ndarray, root: np.ndarray, W: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the diagonal of the inverse covariance at some rows.

    `L` is the factor of the covariance without the functions, `W` their columns over it, and `root`
    the factor of their posterior precision.
    """
    unit = np.zeros((len(L), len(rows)), L.dtype, order="F")
    unit[rows, np.arange(len(rows))] = 1.0
    trsm = get_blas_funcs("trsm", (L,))
    columns = trsm(1.0, L, unit, lower=1, overwrite_b=1)
    inner = solve_triangular(root, W.T @ columns, lower=True, check_finite=False)
    total = np.sum(columns**2, axis=0, dtype=np.float64)
    # A row that the others determine to rounding has a precision of its digits, not of zero.
    digits = 1e-7 if L.dtype == np.float32 else 1e-15
    floor = digits * np.maximum(total, 1e-30)
    return np.maximum(total - np.sum(inner**2, axis=0), floor)


def _refined(
    alpha: np.ndarray,
    step: np.ndarray,
    gap: np.ndarray,
    solve: Any,
    multiply: Any,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Improve alpha and step by conjugate gradients until the residual has little energy."""
    residual = gap - multiply(alpha, step)
    d_alpha, d_step = solve(residual)
    energy = float(residual @ d_alpha)
    for _ in range(_MOST_STEPS):
        if energy <= tolerance:
            return alpha, step
        product = multiply(d_alpha, d_step)
        curvature = float(d_alpha @ product)
        if not curvature > 0.0:
            break
        length = energy / curvature
        alpha, step = alpha + length * d_alpha, step + length * d_step
        residual -= length * product
        (a, s), before = solve(residual), energy
        energy = float(residual @ a)
        d_alpha, d_step = a + energy / before * d_alpha, s + energy / before * d_step
    raise LinAlgError("Conjugate gradients did not converge in a cell.")
