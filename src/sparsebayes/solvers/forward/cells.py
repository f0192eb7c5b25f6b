"""Cells: parts of the inputs, and the thousands of rows that tell the means in each of them.

The rows U of a cell are its own and those around it, three for two of its own: the N of
`neighbours` for all of the cell, solved once in the fit. With r, lam, phi, D and S as there,
C = r(U, U) + diag(lam/weight) = LL', W = L^-1 phi(U) and e = y - m(U),

    step = (S^-1 + W'W - phi'D^-1 phi)^-1 phi'(C^-1 - D^-1) e,    alpha = C^-1 (e - phi step),

and the mean at x is m(x) + phi(x)'(step - phi(U)'alpha) + k(x, U)'alpha.

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
    from .neighbours import Known, NearestRows, NeighbourProcess

# Rows of a cell for each neighbour of a row, and at most: more tell more, in a time and memory that
# grow with their square. With 64 neighbours they take half of the fit of 10^5 rows, and 268 MB.
_OF_CELL = 256
_MOST_OF_CELL = 8192
# Rows that tell a cell for each of its own, so that its edges are told as well as its middle. Where
# rows are left out few cells are solved, of fewer rows, which should all be as well told.
_AROUND, _AROUND_LEFT = 2.5, 6.0
_DIRECT = 3072  # rows that have one factor
_BLOCK = 1024  # of more rows
_SINGLE = 1e-3  # above this lam some of the rows are solved in float32, in half the time
_PRECISE = 0.01  # error of conjugate gradients, in standard deviations of what the rows tell
_MOST_STEPS = 100


class Cells(NamedTuple):
    """Parts of the inputs, cut along one of them at a time, and what is known in each.

    At a row x of cell c, whose rows are U, the mean is
    offset[c] + phi(x)'weights[c] + k(x, U)'alpha.
    """

    inputs: np.ndarray  # of each cut: which input,
    cuts: np.ndarray  # where,
    below: np.ndarray  # and the next cut for smaller values and for others; ~c is cell c
    first: np.ndarray  # of each cell, in:
    rows: np.ndarray
    alpha: np.ndarray
    weights: np.ndarray
    offset: np.ndarray

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.first) - 1

    def of(self, A: Any) -> np.ndarray:
        """The cell of each row."""
        A = to_numpy(A)
        at = np.full(len(A), 0 if len(self.cuts) else ~0)
        while len(rest := np.flatnonzero(at >= 0)):
            cut = at[rest]
            beyond = A[rest, self.inputs[cut]] >= self.cuts[cut]
            at[rest] = self.below[cut, beyond.astype(np.intp)]
        return ~at

    def part(self, c: Any) -> slice:
        """Where the rows of a cell stand."""
        return slice(self.first[c], self.first[c + 1])


def cut_cells(nearest: NearestRows, X: np.ndarray, m: int, left_out: bool = False) -> Cells:
    """Cells with the rows that tell them: their own, and those next to them.

    Where rows are to be left out, cells of rows that have one factor.
    """
    most = _DIRECT if left_out else _MOST_OF_CELL
    size = min(max(min(_OF_CELL * m, most), m), len(X))
    around = 1 if size == len(X) else _AROUND_LEFT if left_out else _AROUND
    rate = np.zeros(X.shape[1])
    rate[nearest.used] = to_numpy(nearest.rate)
    tree, own = _cut(X, rate, max(int(size / around), 1))
    rows = []
    for some in own:
        if size < len(X):  # of the nearest to its middle those that are least beyond its edges
            low, high = np.min(X[some], axis=0), np.max(X[some], axis=0)
            near = nearest(np.mean(X[some], axis=0)[None], min(2 * size, len(X)))[0]
            near = np.setdiff1d(near, some)
            beyond = np.maximum(np.maximum(low - X[near], X[near] - high), 0.0) @ rate
            some = np.append(some, near[np.argsort(beyond, kind="stable")[: size - len(some)]])
        # Block by block, each of rows that are near each other.
        rows.append(some[np.concatenate(_cut(X[some], rate, _BLOCK)[1])])
    first = np.cumsum([0] + [len(some) for some in rows])
    none = np.zeros(0)
    return Cells._make([*tree, first, np.concatenate(rows), none, none, none])


def _cut(X: np.ndarray, rate: np.ndarray, most: int) -> tuple[list[np.ndarray], list[Any]]:
    """Cuts as in `Cells`, and the rows of each part, at most so many.

    What is too large is cut along the input in which its rows, in the distance of the kernel, lie
    farthest apart, into two that give whole parts.
    """
    inputs, cuts, below, parts = [], [], [], []

    def cut_up(some: np.ndarray) -> int:
        if len(some) <= most:
            parts.append(some)
            return ~(len(parts) - 1)
        apart = np.ptp(X[some], axis=0)
        j = int(np.argmax(rate * apart if np.any(rate * apart > 0) else apart))
        x = X[some, j]
        n_parts = -(-len(some) // most)
        middle = len(x) * (n_parts // 2) // n_parts
        cut = np.partition(x, middle)[middle]
        if not np.any(x < cut):
            cut = np.min(x[x > cut])
        inputs.append(j)
        cuts.append(cut)
        below.append([0, 0])
        here = len(cuts) - 1
        below[here] = [cut_up(some[x < cut]), cut_up(some[x >= cut])]
        return here

    cut_up(np.arange(len(X)))
    tree = [np.array(inputs, dtype=np.intp), np.array(cuts), np.array(below, dtype=np.intp)]
    return tree, parts


class Solved(NamedTuple):
    """What the rows of a cell tell, in units of the amplitude and of the scale of y."""

    alpha: np.ndarray
    weights: np.ndarray
    offset: float
    mean: np.ndarray  # of the function at some of them,
    variance: np.ndarray  # and its variance


def solve_cell(process: NeighbourProcess, known: Known, told: np.ndarray) -> Solved:
    """Solve the system of the rows of one cell.

    `told` are those whose mean and variance are wanted: of a cell that has one factor. LinAlgError
    where the rows are so near each other, over the noise, that there is none, or no end to the
    steps.
    """
    kernel: Any = process.functions.kernel
    fit, (n, k) = process.fit, known.phi.shape
    direct, exact = n <= _DIRECT, known.phi.dtype == np.float64 and n == len(process.places)
    double = process.lam <= _SINGLE or (direct and exact)
    work = np.dtype(np.float64 if double else np.float32)
    X = (known.X - np.mean(known.X, axis=0)).astype(work)
    F, gap = known.phi.astype(work, copy=False), known.gap.astype(work)
    # The functions, and the constant as one of them.
    flat = int(fit.offset_variance > 0)
    G, spread = np.ones((n, k + flat), work), np.append(fit.spread, [fit.offset_variance] * flat)
    np.subtract(F, fit.centre.astype(work), out=G[:, :k])
    K, own = kernel.lower(X), np.arange(n)
    K[own, own] = 1.0 + known.noise
    potrf = get_lapack_funcs("potrf", (K,))
    syrk, symv, trsm, trsv = get_blas_funcs(("syrk", "symv", "trsm", "trsv"), (K,))
    blocks = [slice(i, min(i + _BLOCK, n)) for i in range(0, n, _BLOCK)]
    roots, W = [], np.empty_like(G)
    for b in [slice(0, n)] if direct else blocks:
        C = K if direct else np.array(K[b, b], order="F")
        C = syrk(-1.0, F[b].T, 1.0, C, trans=1, lower=1, overwrite_c=1) if k else C
        C[own[: len(C)], own[: len(C)]] = (known.outside + known.noise)[b]
        L, failed = potrf(C, lower=1, overwrite_a=1, clean=0)
        if failed:
            raise LinAlgError("The covariance of the rows of a cell is not positive definite.")
        roots.append((b, L))
        W[b] = trsm(1.0, L, G[b].T, side=1, lower=1, trans_a=1).T
    weighed = G * (1.0 / known.noise_apart).astype(work)[:, None]
    A = (W.T @ W - G.T @ weighed).astype(np.float64)
    A[np.arange(len(A)), np.arange(len(A))] += 1.0 / spread
    root = cho_factor(A, lower=True, check_finite=False)

    def solved(gap: np.ndarray, more: Any = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Alpha and step where C is its blocks."""
        t = np.concatenate([trsv(L, gap[b], lower=1) for b, L in roots])
        step = cho_solve(root, W.T @ t + more, check_finite=False)
        t -= W @ step.astype(work)
        return np.concatenate([trsv(L, t[b], lower=1, trans=1) for b, L in roots]), step

    alpha, step = solved(gap, -(weighed.T @ gap))
    if direct:
        alpha = alpha.astype(np.float64)
    else:

        def times(a: np.ndarray, step: np.ndarray) -> np.ndarray:
            constant = float(np.sum(step[k:]) - fit.centre @ step[:k])
            return symv(1.0, K, a, lower=1) + F @ (step[:k] - F.T @ a).astype(work) + constant

        # The energy of all that n rows tell is n times the amplitude.
        alpha, step = _refined(alpha, step, gap, solved, times, _PRECISE**2 * n * process.amplitude)
    mean = fit.mean + step[:k]
    offset = fit.offset - fit.centre @ mean + np.sum(step[k:])
    weights = mean - F.T @ alpha
    if not len(told):
        return Solved(alpha, weights, offset, np.zeros(0), np.zeros(0))
    R = kernel.bind(X[told])(X) - F @ F[told].T
    R[told, np.arange(len(told))] = known.outside[told]
    WR = trsm(1.0, roots[0][1], R, lower=1)
    rest = solve_triangular(root[0], G[told].T - W.T @ WR, lower=True, check_finite=False)
    variance = known.outside[told] - np.sum(WR**2, axis=0) + np.sum(rest**2, axis=0)
    at_told = known.y[told] - known.gap[told] + G[told] @ step + R.T @ alpha
    return Solved(alpha, weights, offset, at_told, np.maximum(variance, 0.0))


def _refined(
    alpha: np.ndarray, step: np.ndarray, gap: np.ndarray, solved: Any, times: Any, enough: float
) -> tuple[np.ndarray, np.ndarray]:
    """Conjugate gradients until what is left has so little energy."""
    rest = gap - times(alpha, step)
    d_alpha, d_step = solved(rest)
    energy = float(rest @ d_alpha)
    for _ in range(_MOST_STEPS):
        if energy <= enough:
            return alpha, step
        turned = times(d_alpha, d_step)
        curvature = float(d_alpha @ turned)
        if not curvature > 0.0:
            break
        length = energy / curvature
        alpha, step = alpha + length * d_alpha, step + length * d_step
        rest -= length * turned
        (a, s), before = solved(rest), energy
        energy = float(rest @ a)
        d_alpha, d_step = a + energy / before * d_alpha, s + energy / before * d_step
    raise LinAlgError("The rows of a cell are not solved: conjugate gradients do not end.")
