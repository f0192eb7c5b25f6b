"""All monomials of lagged values as candidate columns that are never stored."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from ..designs._base import ALL, Design, Index, row_slices
from .functions import Monomials

_BLOCK = 2**20  # numbers in a block of candidates: 8 MB


class MonomialDesign(Design):
    """All monomials up to a degree on n moments; only the lagged values are stored.

    Products with all columns are matrix products: a monomial of degree d is one of degree d - 1
    times a lagged value, so (shorter monomials, times v)' (lagged values) gives them all at once,
    in blocks of rows. At 10,000 monomials of degree 3 that is 741 shorter ones.

    Parameters
    ----------
    monomials : Monomials
        Of `Monomials.up_to`, or any others: those cost a pass over their columns.
    x : array of shape (n_variables, n)
    """

    transforms = True

    def __init__(self, monomials: Monomials, x: np.ndarray) -> None:
        self.monomials = monomials
        self.rows = np.ascontiguousarray(x.T)
        self.n_rows, self.n_candidates = len(self.rows), len(monomials)
        n, degree = len(x), monomials.factors.shape[1]
        whole = Monomials.up_to(monomials.variables, degree)
        self._plan: list[tuple[np.ndarray, np.ndarray]] | None = None
        if degree >= 2 and np.array_equal(whole.factors, monomials.factors):
            # Of each monomial of degree d: which of degree d - 1, and which variable, make it.
            self._plan = []
            place: dict[tuple[int, ...], int] = {(): 0}
            for size in range(1, degree + 1):
                level = list(combinations_with_replacement(range(n), size))
                shorter = np.array([place[chosen[:-1]] for chosen in level], dtype=np.intp)
                last = np.array([chosen[-1] for chosen in level], dtype=np.intp)
                self._plan.append((shorter, last))
                place = {chosen: j for j, chosen in enumerate(level)}

    def blocks(self, idx: Index = ALL) -> Iterator[tuple[slice, np.ndarray]]:
        chosen = self.monomials.take(np.arange(self.n_candidates)[idx])
        step = max(64, _BLOCK // max(1, len(chosen)))
        for rows in row_slices(self.n_rows, step):
            if self._plan is not None and isinstance(idx, slice) and idx == ALL:
                yield rows, np.concatenate(self._levels(self.rows[rows], self._plan), axis=1)
            else:
                yield rows, chosen(self.rows[rows].T).T

    def local_project(self, V: np.ndarray, idx: Index = ALL) -> np.ndarray:
        if self._plan is None or not (isinstance(idx, slice) and idx == ALL):
            return super().local_project(V, idx)
        columns = V.reshape(self.n_rows, -1)
        out = np.zeros((self.n_candidates, columns.shape[1]))
        shorter, last = self._plan[-1]
        n_shorter = int(shorter[-1]) + 1
        ends = np.cumsum([1, *(len(each[0]) for each in self._plan)])
        sums = np.zeros((columns.shape[1], n_shorter, self.rows.shape[1] + 1))
        for rows in row_slices(self.n_rows, max(64, _BLOCK // (8 * max(1, n_shorter)))):
            block = self.rows[rows]
            levels = self._levels(block, self._plan[:-1])
            for level, end in zip(levels[:-1], ends, strict=False):
                out[end - level.shape[1] : end] += level.T @ columns[rows]
            for j, column in enumerate(columns[rows].T):
                # The few lagged values are weighted, not the many products.
                weighted = np.column_stack([block * column[:, None], column])
                sums[j] += levels[-1].T @ weighted
        out[ends[-3] : ends[-2]] = sums[:, :, -1].T
        out[ends[-2] :] = sums[:, shorter, last].T
        return out.reshape(self.n_candidates, *V.shape[1:])

    @staticmethod
    def _levels(block: np.ndarray, plan: list[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
        """Monomials of degree 0, 1, ... on a block of rows."""
        levels = [np.ones((len(block), 1))]
        for shorter, last in plan:
            levels.append(np.take(levels[-1], shorter, axis=1))
            levels[-1] *= np.take(block, last, axis=1)
        return levels

    def basis(self, idx: np.ndarray) -> Any:
        return self.monomials.take(idx)
