"""All candidates less their projection on columns chosen one at a time: the core of greedy search.

Over the chosen columns H_I, let P = (Id + H_I H_I'/lam)^-1. A greedy criterion is a function of

    A_i = h_i'P t,   B_i = h_i'P h_i,   S = t'P t,

and choosing column i, with m = P h_i, d = lam + B_i and C = H'm, changes them to

    A - C A_i/d,   B - C^2/d,   S - A_i^2/d.                 Sun & Yao 2006, eq (6)-(10)

P h_i is the upper part of the column [h_i; sqrt(lam) e] after orthogonalisation against the chosen
ones, so d is a squared norm and S is one as well. With lam = 0 no rows are added and this is
orthogonal least squares: A_i = w_i'y and B_i = w_i'w_i of the orthogonalised columns
(docs/theory/forward.md, docs/theory/ols.md).

Cost: one read of the design for each term, and none for the last; of a kernel that is evaluated in
each read, one for five terms. The recursion loses digits: a candidate whose B + lam has
fallen far since it was last measured is measured again, so a column costs a few such looks in a
whole path, and the chosen one is orthogonalised until no digits are lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._array import is_torch, namespace, on_same_device, squared_lengths, to_numpy
from ..designs import Design
from ..designs._base import row_slices
from .noise import squares

_TIE = 1e-10  # relative difference of two scores that counts as none: B may have lost four digits
_LOST = 1e-4  # share of a squared length below which a difference has lost its digits
_LIVE = 512  # candidates among which the next terms are foreseen (of 1,024: a fifth fewer reads)
_AHEAD = 12  # terms foreseen, whose columns a read of a kernel takes along
_KEPT = 2**23  # numbers of those before that are kept, and of the candidates
_BLOCK = 2**17  # elements of a block of rows that stays in the cache


class OrthogonalColumns:
    """The candidates, the orthonormal columns chosen so far, and what they leave of the target.

    `t` as ``design.target`` returned it; of several targets A, S and the residual have one column
    each. Rows of `U` are the chosen columns, orthonormal, with the
    added rows last; rows of `C` are their products with every candidate. `A`, `B`, `C`, `U`, `free`
    and the residual are where the design has its blocks: NumPy arrays, or tensors on a device.
    """

    lost = _LOST  # fall of B + lam after which A and B are measured directly
    single = False  # whether columns that a device keeps in float32 will do for those chosen

    def __init__(self, design: Design, t: np.ndarray) -> None:
        self.design, self.t = design, t
        self.norms, self._products = design.sqnorms_and_products(t)

    def start(self, lam: np.ndarray | float, room: int, ridge: float = 0.0) -> None:
        """No column chosen; places for `room` to begin with.

        `lam` is what a criterion adds to B, for all candidates or for each. With `ridge`, which is
        then lam, the columns have a row more for each term, and `room` must do for all of them.
        """
        m, place = len(self.norms), self.design.place
        self.lam, self.ridge = np.full(m, lam, dtype=np.float64), ridge
        self.A, self.B = place(self._products.copy()), place(self.norms.copy())
        self.free = self.B > 0.0  # neither chosen nor given up
        more = np.zeros((room if ridge else 0, *self.t.shape[1:]))
        self.residual = place(np.concatenate([self.t, more]))
        self.S: Any = squares(self.t)
        self.U = _empty((room, len(self.residual)), self.residual)
        self.C = _empty((room, m), self.B)
        self.k = 0  # chosen so far
        self._absorbed = 0  # how many of them have been taken out of A and B
        self._along: Any = 0.0  # u't of the last
        self._local_lam = place(self.lam)
        self._spent = self._spent_at(self.B, self._local_lam)
        self._last: Any = None  # the last column that was made orthogonal: which, U'h, w'w
        self._ahead: dict[int, np.ndarray] = {}  # products of all candidates with columns to come

    def absorb(self, x: np.ndarray | None = None) -> Any:
        """Take the last u out of A and B of every candidate: the one read of the design per term.

        Left until the next choice is due, so that the last term costs none. Where it reads, the
        products of all candidates with `x` come from the same read.
        """
        if self._absorbed == self.k:
            return None
        last = self._absorbed
        u, products = self.U[last, : len(self.t)], None
        if x is None:
            c = self._products_with(u)
        else:
            both = namespace(u).stack([u, on_same_device(u, x)], 1)
            c, products = self.design.local_project(both).T
        self.C = _with_room(self.C, last)
        self.C[last] = c
        self.A -= times(c, self._along)
        self.B -= c * c
        namespace(c).clip(self.B, 0.0, np.inf, out=self.B)
        self._absorbed += 1
        spent = self.free & (self.B < self._spent)
        if spent.any():
            self._measure(np.flatnonzero(to_numpy(spent)))
        return products

    def _products_with(self, u: Any) -> Any:
        """Phi'u for the last u: from a read of the design, or from what an earlier read left.

        A read of a kernel that is not kept is mostly its evaluation, so it takes along the columns
        that are likely to be chosen next. When one of these is, Phi'w = Phi'h - (products with U)
        needs no read, unless w is so little of h that the difference has lost its digits.
        """
        j, h, s = self._last
        ready = self._ahead.pop(j, None)
        if ready is not None and s > self.lost * self.norms[j]:
            return (ready - h @ self.C[: len(h)]) / np.sqrt(s + self.ridge)
        # Not on a device: half of the reads were left, each four times as long (10^5 rows, H200),
        # and in float32 other columns were chosen.
        if is_torch(u) or not self.design.lazy:
            return self.design.local_project(u)
        new = self._next_terms(u)
        new = new[[j not in self._ahead for j in new.tolist()]]
        found = self.design.project(np.column_stack([u, self.design.columns(new)]))
        kept = list(self._ahead.items())[-max(1, _KEPT // len(self.norms)) :]
        self._ahead = dict(kept) | dict(zip(new.tolist(), found.T[1:].copy(), strict=True))
        return found[:, 0]

    @np.errstate(over="ignore", invalid="ignore")
    def _next_terms(self, u: np.ndarray) -> np.ndarray:
        """The terms after the last u, if they are among the candidates of the highest scores now.

        The same recursion on few candidates, by their error reduction. A guess: in float32.
        """
        k, n = self._absorbed, len(self.t)
        scores = self._reductions(self.A, self.B, self.lam, self.free)
        most = min(_LIVE, max(_AHEAD, _KEPT // n), len(scores))
        live = np.argpartition(-scores, most - 1)[:most]
        live = np.sort(live[scores[live] > 0.0])
        H = self.design.columns(live).astype(np.float32)
        A, B, lam = self.A[live], self.B[live], self.lam[live]
        C = np.vstack([self.C[:k, live], np.zeros((1 + _AHEAD, len(live)))])
        V = np.vstack([u, np.zeros((_AHEAD, n))]).astype(np.float32)
        along, free = self._along, np.ones(len(live), dtype=bool)
        chosen: list[int] = []
        for i in range(_AHEAD):
            C[k + i] = V[i] @ H
            A = A - times(C[k + i], along)
            B = np.maximum(B - C[k + i] ** 2, 0.0)
            free &= B > self.lost * self.norms[live]
            left = self._reductions(A, B, lam, free)
            if not left.any():
                break
            j = int(np.argmax(left))
            root = np.sqrt(B[j] + self.ridge)
            w = H[:, j] - C[:k, j] @ self.U[:k, :n] - C[k : k + i + 1, j] @ V[: i + 1]
            V[i + 1], along, free[j] = w / root, A[j] / root, False
            chosen.append(j)
        return live[chosen]

    @staticmethod
    def _reductions(A: Any, B: Any, lam: Any, free: Any) -> np.ndarray:
        """A^2/(B + lam), summed over targets; 0 where a candidate is not free."""
        size, d = squares(np.atleast_2d(A.T)), B + lam
        return np.divide(size, d, out=np.zeros(len(d)), where=free & (d > 0.0))

    def _measure(self, idx: np.ndarray) -> None:
        """A and B from the columns; what one projection leaves along U has no weight in them."""
        A, B = np.zeros((len(idx), *self.t.shape[1:])), np.zeros(len(idx))
        for rows, W in self.blocks(idx):
            A += to_numpy(W.T @ self.residual[rows])
            B += squared_lengths(W)
        self.A[idx], self.B[idx] = self.design.place(A), self.design.place(B)
        self._spent[idx] = self._spent_at(self.B[idx], self._local_lam[idx])

    def _spent_at(self, B: Any, lam: Any) -> Any:
        """The value at which a B that was measured directly will have lost its digits."""
        return self.lost * (B + lam) - lam

    def blocks(self, idx: np.ndarray) -> Iterator[tuple[slice, Any]]:
        """Candidates `idx` less their projection, in blocks of rows that fit the cache."""
        n, k = len(self.t), self.k
        C = self.C[:k, idx]
        for rows, block in self.design.blocks(idx):
            for part in row_slices(len(block), _height(block, len(idx))):
                at = slice(rows.start + part.start, rows.start + part.stop)
                W = self.U[:k, at].T @ C
                yield at, namespace(W).subtract(block[part], W, out=W)
        if self.ridge:
            yield slice(n, n + k), -self.U[:k, n : n + k].T @ C

    def orthogonalise(self, j: int) -> tuple[Any, Any, float]:
        """Column j = U'h + w with w orthogonal to U to rounding: h, w and w'w.

        Classical Gram-Schmidt, of which the products are known already, and once more where it took
        away half of the squared length or more: else no digits were lost (Kahan, Parlett).
        """
        self.absorb()
        U, h = self.U[: self.k], self.C[: self.k, j]
        w = -(h @ U)
        w[: len(self.t)] += self.design.local_columns(np.array([j]), self.single)[:, 0]
        s = float(w @ w)
        if s <= 0.5 * self.norms[j]:
            again = U @ w
            w -= again @ U
            h, s = h + again, float(w @ w)
        self._last = j, h, s
        return h, w, s

    def take(self, j: int, w: Any, s: float) -> Any:
        """Choose candidate j. Returns u't, taken from the residual: that loses fewer digits."""
        k, root = self.k, float(np.sqrt(s + self.ridge))
        self.U = _with_room(self.U, k)
        u = namespace(w).divide(w, root, out=self.U[k])
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


def times(vector: Any, factor: Any) -> Any:
    """A vector times a number, or times one for each target, as columns."""
    if np.ndim(factor) == 0:
        return vector * factor
    return namespace(vector).tensordot(vector, factor, 0)


def near_best(values: Any, unit: float = 0.0) -> Any:
    """Which values equal the largest up to rounding, at least that of a value of size `unit`.

    None where there is none.
    """
    best = float(values.max())
    return values >= best - _TIE * max(unit, abs(best)) if best > -np.inf else None


def first_best(values: Any, unit: float = 0.0) -> int:
    """The first index among those of `near_best`; -1 where there is none."""
    near = near_best(values, unit)
    return -1 if near is None else int((near + 0).argmax())  # no argmax of booleans on a device


def _with_room(rows: Any, k: int) -> Any:
    """The same rows with at least k + 1 places."""
    if k < len(rows):
        return rows
    larger = _empty((2 * max(len(rows), 4), rows.shape[1]), rows)
    larger[:k] = rows[:k]
    return larger


def _empty(shape: tuple[int, ...], array: Any) -> Any:
    """Memory where `array` is."""
    return array.new_empty(shape) if is_torch(array) else np.empty(shape)


def _height(block: Any, m: int) -> int:
    """Rows of a block at a time: what fits the cache; all of them on a device."""
    return len(block) if is_torch(block) else max(64, _BLOCK // max(1, m))
