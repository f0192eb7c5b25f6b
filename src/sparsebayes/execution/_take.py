"""Some rows by their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np


class TakeJob:
    """Some rows of the first array, in the order asked for.

    Parameters
    ----------
    rows : array of int
    starts : array of int
        First row of each chunk.
    n_rows : int
    """

    def __init__(self, rows: np.ndarray, starts: np.ndarray, n_rows: int) -> None:
        self.order = np.argsort(rows, kind="stable")
        ordered = rows[self.order]
        cuts = np.searchsorted(ordered, np.append(starts, n_rows))
        self.inside = [ordered[cuts[i] : cuts[i + 1]] - start for i, start in enumerate(starts)]

    def read(self, index: int, chunk: Any) -> np.ndarray:
        """The rows of this chunk."""
        return np.asarray(chunk[0][self.inside[index]], dtype=np.float64)

    def merge(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Below each other."""
        return np.concatenate([left, right])

    def finish(self, total: np.ndarray) -> np.ndarray:
        """In the order asked for."""
        out = np.empty_like(total)
        out[self.order] = total
        return out
