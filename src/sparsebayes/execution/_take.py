"""Some rows by their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np


class TakeJob:
    """Some rows of some arrays (None where there is no array), in the order asked for.

    Parameters
    ----------
    rows : array of int
    starts : array of int
        First row of each chunk.
    n_rows : int
    which : tuple of int, default=(0,)
        Which arrays of a chunk.
    """

    def __init__(
        self, rows: np.ndarray, starts: np.ndarray, n_rows: int, which: tuple[int, ...] = (0,)
    ) -> None:
        self.which = which
        self.order = np.argsort(rows, kind="stable")
        ordered = rows[self.order]
        cuts = np.searchsorted(ordered, np.append(starts, n_rows))
        self.inside = [ordered[cuts[i] : cuts[i + 1]] - start for i, start in enumerate(starts)]

    def read(self, index: int, chunk: Any) -> tuple[Any, ...]:
        """The rows of this chunk."""
        arrays = (chunk[j] for j in self.which)
        return tuple(None if a is None else np.asarray(a[self.inside[index]]) for a in arrays)

    def merge(self, left: Any, right: Any) -> tuple[Any, ...]:
        """Below each other."""
        pairs = zip(left, right, strict=True)
        return tuple(None if a is None else np.concatenate([a, b]) for a, b in pairs)

    def finish(self, total: Any) -> tuple[Any, ...]:
        """In the order asked for."""
        back = np.empty_like(self.order)
        back[self.order] = np.arange(len(back))
        return tuple(None if a is None else a[back] for a in total)
