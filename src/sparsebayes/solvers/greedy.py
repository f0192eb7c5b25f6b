"""All candidates less their projection on columns chosen one at a time: the core of greedy search.

Over the chosen columns H_I, let P = (Id + H_I H_I'/lam)^-1. A greedy criterion is a function of

    A_i = h_i'P t,   B_i = h_i'P h_i,   S = t'P t,

and choosing column i, with m = P h_i, d = lam + B_i and C = H'm, changes them to

    A - C A_i/d,   B - C^2/d,   S - A_i^2/d.                 Sun & Yao 2006, eq (6)-(10)

P h_i is the upper part of the column [h_i; sqrt(lam) e] after orthogonalisation against the chosen
ones, so d is a squared norm and S is one as well. With lam = 0 no rows are added and this is
orthogonal least squares: A_i = w_i'y and B_i = w_i'w_i of the orthogonalised columns
(docs/theory/forward.md, docs/theory/ols.md).

Cost: one read of the design for each term, and none for the last term. A kernel that is evaluated
in each read takes about one read for five terms. The recursion loses digits: A and B of a candidate
whose B + lam has fallen far are recomputed from its column, which happens a few times in a path,
and the chosen column is orthogonalised until no digits are lost.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .._array import Array, PerTarget, is_torch, namespace, squared_lengths, to_numpy, transfer
from ..designs import Design
from ..rows import row_slices
from .noise import squares

_TIE = 1e-10  # relative difference of two scores that counts as none: B may have lost four digits
_LOST = 1e-4  # share of a squared length below which a difference has lost its digits
_SHORTLIST = (
    512  # candidates among which the next terms are predicted (1,024 save a fifth of reads)
)
_LOOKAHEAD = 12  # predicted terms, whose products come from the same read of a kernel
_CACHE = 2**23  # elements of the products of predicted terms, and of the columns of the shortlist
_BLOCK = 2**17  # elements of a block of rows that stays in the CPU cache


class OrthogonalColumns:
    """The candidates, the orthonormal columns chosen so far, and the residual of the target.

    `t` is the target as ``design.target`` returned it. Of several targets A, S and the residual
    have one column each. Rows of `U` are the chosen columns, orthonormal, with the added rows last;
    rows of `C` are their products with every candidate. `A`, `B`, `C`, `U`, `free` and the residual
    are on the device of the design: NumPy arrays or tensors.
    """

    lost = _LOST  # fall of B + lam after which A and B are recomputed from the column
    single = False  # whether chosen columns may come from a float32 copy on a device

    def __init__(self, design: Design, t: np.ndarray) -> None:
        self.design, self.t = design, t
        self.norms, self._products = design.sqnorms_and_products(t)

    def start(self, lam: np.ndarray | float, capacity: int, ridge: float = 0.0) -> None:
        """Begin without a chosen column, with memory for `capacity` of them.

        `lam` is what a criterion adds to B, for all candidates or for each. With `ridge`, which is
        then equal to lam, the columns have one more row for each term, and there must be no more
        than `capacity` terms.
        """
        m, place = len(self.norms), self.design.place
        self.lam, self.ridge = np.full(m, lam, dtype=np.float64), ridge
        self.A, self.B = place(self._products.copy()), place(self.norms.copy())
        self.xp, self.transfer = namespace(self.B), transfer(self.B)
        self.free = self.B > 0.0  # candidates that are neither chosen nor discarded
        added_rows = np.zeros((capacity if ridge else 0, *self.t.shape[1:]))
        self.residual = place(np.concatenate([self.t, added_rows]))
        self.S: PerTarget = squares(self.t)
        self.U = _empty((capacity, len(self.residual)), self.residual)
        self.C = _empty((capacity, m), self.B)
        self.k = 0  # number of chosen columns
        self._absorbed = 0  # number of chosen columns that A and B account for
        self._along: PerTarget = 0.0  # u't of the last chosen column
        self._local_lam = place(self.lam)
        self._recompute_below = self._loss_threshold(self.B, self._local_lam)
        self._last: tuple[int, Array, float] = -1, self.B[:0], 0.0  # last orthogonalised: j, h, s
        self._lookahead: dict[int, np.ndarray] = {}  # products of all candidates with later columns

    def absorb(self, x: np.ndarray | None = None) -> Array | None:
        """Update A and B of every candidate by the last u: the one read of the design per term.

        This is deferred until the next choice, so that the last term needs no read. If it reads,
        the products of all candidates with `x` come from the same read.
        """
        if self._absorbed == self.k:
            return None
        last = self._absorbed
        u, products = self.U[last, : len(self.t)], None
        if x is None:
            c = self._products_with(u)
        else:
            both = self.xp.stack([u, self.transfer.put(x)], 1)
            c, products = self.design.local_project(both).T
        self.C = _with_capacity(self.C, last)
        self.C[last] = c
        self.A -= times(c, self._along)
        self.B -= c * c
        self.xp.clip(self.B, 0.0, np.inf, out=self.B)
        self._absorbed += 1
        inaccurate = self.free & (self.B < self._recompute_below)
        if inaccurate.any():
            self._recompute(np.flatnonzero(to_numpy(inaccurate)))
        return products

    def _products_with(self, u: Array) -> Array:
        """Return Phi'u for the last u, from a read of the design or from an earlier one.

        A read of a kernel that is not stored is mostly its evaluation, so it also computes the
        products with the columns that are likely to be chosen next. When one of these is chosen,
        Phi'w = Phi'h - (products with U) needs no read, unless w is so small a part of h that the
        difference has lost its digits.
        """
        j, h, s = self._last
        stored = self._lookahead.pop(j, None)
        if stored is not None and s > self.lost * self.norms[j]:
            return (stored - h @ self.C[: len(h)]) / np.sqrt(s + self.ridge)
        # Not on a device: there half of the reads remain, each four times as long (10^5 rows,
        # H200), and in float32 other columns are chosen.
        if self.xp is not np or not self.design.lazy:
            return self.design.local_project(u)
        new = self._predict_terms(u)
        new = new[[j not in self._lookahead for j in new.tolist()]]
        products = self.design.project(np.column_stack([u, self.design.columns(new)]))
        recent = list(self._lookahead.items())[-max(1, _CACHE // len(self.norms)) :]
        ahead = zip(new.tolist(), products.T[1:].copy(), strict=True)
        self._lookahead = dict(recent) | dict(ahead)
        return products[:, 0]

    @np.errstate(over="ignore", invalid="ignore")
    def _predict_terms(self, u: np.ndarray) -> np.ndarray:
        """Predict the terms after the last u by the same recursion on a shortlist of candidates.

        The shortlist has the candidates of highest error reduction now. The prediction need not be
        right, so it is made in float32.
        """
        k, n = self._absorbed, len(self.t)
        scores = self._reductions(self.A, self.B, self.lam, self.free)
        most = min(_SHORTLIST, max(_LOOKAHEAD, _CACHE // n), len(scores))
        shortlist = np.argpartition(-scores, most - 1)[:most]
        shortlist = np.sort(shortlist[scores[shortlist] > 0.0])
        H = self.design.columns(shortlist).astype(np.float32)
        A, B, lam = self.A[shortlist], self.B[shortlist], self.lam[shortlist]
        C = np.vstack([self.C[:k, shortlist], np.zeros((1 + _LOOKAHEAD, len(shortlist)))])
        V = np.vstack([u, np.zeros((_LOOKAHEAD, n))]).astype(np.float32)
        along, free = self._along, np.ones(len(shortlist), dtype=bool)
        chosen: list[int] = []
        for i in range(_LOOKAHEAD):
            C[k + i] = V[i] @ H
            A = A - times(C[k + i], along)
            B = np.maximum(B - C[k + i] ** 2, 0.0)
            free &= B > self.lost * self.norms[shortlist]
            scores = self._reductions(A, B, lam, free)
            if not scores.any():
                break
            j = int(np.argmax(scores))
            root = np.sqrt(B[j] + self.ridge)
            w = H[:, j] - C[:k, j] @ self.U[:k, :n] - C[k : k + i + 1, j] @ V[: i + 1]
            V[i + 1], along, free[j] = w / root, A[j] / root, False
            chosen.append(j)
        return shortlist[chosen]

    @staticmethod
    def _reductions(A: np.ndarray, B: np.ndarray, lam: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Return A^2/(B + lam), summed over targets; 0 where a candidate is not free."""
        size, d = squares(np.atleast_2d(A.T)), B + lam
        return np.divide(size, d, out=np.zeros(len(d)), where=free & (d > 0.0))

    def _recompute(self, idx: np.ndarray) -> None:
        """Compute A and B from the columns.

        One projection suffices: its rounding errors along U do not count in A and B.
        """
        A, B = np.zeros((len(idx), *self.t.shape[1:])), np.zeros(len(idx))
        for rows, W in self.blocks(idx):
            A += to_numpy(W.T @ self.residual[rows])
            B += squared_lengths(W)
        self.A[idx], self.B[idx] = self.design.place(A), self.design.place(B)
        self._recompute_below[idx] = self._loss_threshold(self.B[idx], self._local_lam[idx])

    def _loss_threshold(self, B: Array, lam: Array) -> Array:
        """Return the value at which a B that is exact now will have lost its digits."""
        return self.lost * (B + lam) - lam

    def blocks(self, idx: np.ndarray) -> Iterator[tuple[slice, Array]]:
        """Yield candidates less their projection, in blocks of rows that fit the CPU cache."""
        n, k = len(self.t), self.k
        C = self.C[:k, idx]
        for rows, block in self.design.blocks(idx):
            for part in row_slices(len(block), _height(block, len(idx))):
                at = slice(rows.start + part.start, rows.start + part.stop)
                W = self.U[:k, at].T @ C
                yield at, self.xp.subtract(block[part], W, out=W)
        if self.ridge:
            yield slice(n, n + k), -self.U[:k, n : n + k].T @ C

    def orthogonalise(self, j: int) -> tuple[Array, Array, float]:
        """Return h, w and w'w of column j = U'h + w, with w orthogonal to U to rounding.

        Classical Gram-Schmidt, whose products are in C, and a second pass if the first removed half
        of the squared length or more: otherwise no digits were lost (Kahan, Parlett).
        """
        self.absorb()
        U, h = self.U[: self.k], self.C[: self.k, j]
        w = -(h @ U)
        w[: len(self.t)] += self.design.local_columns(np.array([j]), self.single)[:, 0]
        s = float(w @ w)
        if s <= 0.5 * self.norms[j]:
            correction = U @ w
            w -= correction @ U
            h, s = h + correction, float(w @ w)
        self._last = j, h, s
        return h, w, s

    def take(self, j: int, w: Array, s: float) -> PerTarget:
        """Choose candidate j; return u't, computed from the residual to lose fewer digits."""
        k, root = self.k, float(np.sqrt(s + self.ridge))
        self.U = _with_capacity(self.U, k)
        u = self.xp.divide(w, root, out=self.U[k])
        if self.ridge:
            u[len(self.t) + k] = float(np.sqrt(self.ridge)) / root
        if self.t.ndim == 1:
            self._along = float(u @ self.residual)
            self.residual -= self._along * u
            self.S = float(self.residual @ self.residual)
        else:
            self._along = u @ self.residual
            self.residual -= times(u, self._along)
            self.S = squared_lengths(self.residual)
        self.free[j] = False
        self.k += 1
        return self._along


def times(vector: Array, factor: PerTarget) -> Array:
    """Return a vector times a number, or times one number for each target, as columns."""
    if np.ndim(factor) == 0:
        return vector * factor
    return namespace(vector).tensordot(vector, factor, 0)


def near_best(values: Array, unit: float = 0.0) -> Array | None:
    """Return a mask of the values that equal the largest up to rounding; None if all are -inf.

    The tolerance is relative to the largest value, or to `unit` if that is larger.
    """
    best = float(values.max())
    return values >= best - _TIE * max(unit, abs(best)) if best > -np.inf else None


def first_best(values: Array, unit: float = 0.0) -> int:
    """Return the first index of `near_best`; -1 if all values are -inf."""
    near = near_best(values, unit)
    return -1 if near is None else int((near + 0).argmax())  # no argmax of booleans on a device


def _with_capacity(rows: Array, k: int) -> Array:
    """Return the rows in an array of at least k + 1."""
    if k < len(rows):
        return rows
    larger = _empty((2 * max(len(rows), 4), rows.shape[1]), rows)
    larger[:k] = rows[:k]
    return larger


def _empty(shape: tuple[int, ...], array: Array) -> Array:
    """Return an uninitialised array on the device of `array`."""
    return array.new_empty(shape) if is_torch(array) else np.empty(shape)


def _height(block: Array, m: int) -> int:
    """Return how many rows of a block to take at a time: all of them on a device."""
    return len(block) if is_torch(block) else max(64, _BLOCK // max(1, m))
