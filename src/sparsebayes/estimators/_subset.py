"""Which candidates a greedy selection may choose from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels import Kernel
from ..linalg import pivoted_cholesky
from ._candidates import is_number

WORDS = ("auto", "all", "pivots")


@dataclass(frozen=True)
class CandidateChoice:
    """What the parameter `candidates` asks for.

    ``"auto"`` and ``"pivots"`` take `many` rows where all of them are too many for `memory`
    (megabytes), unless `everything` is wanted.
    """

    wanted: Any
    many: int
    memory: float
    everything: bool
    rng: np.random.Generator

    def check(self) -> None:
        """Raise for a value that no data could make right."""
        value = self.wanted
        if isinstance(value, str) and value not in WORDS:
            raise ValueError(
                f"candidates={value!r} is not known: use 'auto', 'all', 'pivots', a number of "
                "candidates, or their indices."
            )
        if is_number(value) and not (is_whole(value) and value >= 1):
            raise ValueError(f"candidates must be a whole number >= 1, got {value!r}.")

    def all_rows(self, n: int) -> bool:
        """Whether every row carries a function."""
        if is_text(self.wanted, "auto"):
            return self.everything or 8e-6 * n * n <= self.memory
        return is_text(self.wanted, "all")

    def rows(self, X: Any, kernel: Kernel, labels: np.ndarray) -> np.ndarray:
        """Rows that carry a function where not all do; `labels` are their numbers for the user."""
        n = len(X)
        if is_text(self.wanted, "auto"):
            return self._draw(n, self.many)
        if is_text(self.wanted, "pivots"):
            # The factor of the pool takes as much memory as it may.
            among = self._draw(n, max(self.many, int(self.memory * 1e6 / (8 * self.many))))
            Z = X[among]
            _, pivots = pivoted_cholesky(
                kernel.diagonal(Z), lambda j: kernel.bind(Z[j])(Z), self.many
            )
            return np.sort(among[pivots])
        return self.columns(n, labels)

    def columns(self, n: int, labels: np.ndarray | None = None) -> np.ndarray:
        """The same among n columns, as positions."""
        if isinstance(self.wanted, str):
            if self.wanted == "pivots":
                raise ValueError("candidates='pivots' needs a kernel evaluated on rows of X.")
            return np.arange(n)
        if is_whole(self.wanted):
            return self._draw(n, int(self.wanted))
        labels = np.arange(n) if labels is None else labels
        wanted = np.asarray(self.wanted)
        if wanted.ndim != 1 or wanted.dtype.kind not in "iu" or len(wanted) == 0:
            raise ValueError(
                "candidates must be 'auto', 'all', 'pivots', a number of candidates, or an array "
                f"of their indices; got an array of {wanted.dtype} of shape {wanted.shape}."
            )
        if wanted.min() < 0 or wanted.max() > labels[-1]:
            raise ValueError(
                f"candidates must lie between 0 and {labels[-1]}, got {wanted.min()} to "
                f"{wanted.max()}."
            )
        return np.flatnonzero(np.isin(labels, wanted))

    def _draw(self, n: int, size: int) -> np.ndarray:
        if size >= n:
            return np.arange(n)
        return np.sort(self.rng.choice(n, size, replace=False))


def is_whole(value: Any) -> bool:
    """Whether this is a whole number."""
    return is_number(value) and bool(np.isfinite(value)) and int(value) == value


def is_text(value: Any, text: str) -> bool:
    """Whether this is that string; arrays must not be compared with it."""
    return isinstance(value, str) and value == text
