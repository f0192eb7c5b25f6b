"""Jobs, rows, and the tree in which the parts of a job are merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

Chunk = tuple[Any, ...]  # the same rows of each array (None where there is no array)


class Job(Protocol):
    """One pass over all rows. Jobs travel to workers: keep them small and picklable."""

    def read(self, index: int, chunk: Chunk) -> Any:
        """What chunk number `index` contributes."""

    def merge(self, left: Any, right: Any) -> Any:
        """Two neighbouring contributions as one."""

    def finish(self, total: Any) -> Any:
        """The result, from the merged contributions of all chunks; `NextPass` if not there yet."""


class NextPass(NamedTuple):
    """What `finish` gives where another pass over the rows is needed: the job that makes it."""

    job: Job


class Rows(Protocol):
    """The rows of the data, in chunks."""

    n_chunks: int

    def chunk(self, index: int) -> Chunk:
        """One chunk, in memory."""


class Executor(Protocol):
    """Runs jobs over rows, each as many passes as it asks for."""

    def reduce(self, job: Job, rows: Rows) -> Any:
        """The result of one job; its chunks may be read in parallel."""

    def map(
        self, jobs: Iterable[Job], rows: Rows, stop: Callable[[], bool] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Pairs (number of the job, its result) as they finish, until `stop()` is true.

        `jobs` may be a generator: it is asked for the next job when there is room for one.
        """


class LostWorkers(RuntimeError):
    """The workers died while they worked on job number `job`."""

    def __init__(self, job: int, message: str) -> None:
        super().__init__(message)
        self.job = job


def tree(parts: Iterable[Any], merge: Callable[[Any, Any], Any]) -> Any:
    """Merge neighbours in a balanced tree, holding no more than log2 of the parts at a time.

    Examples
    --------
    >>> from sparsebayes.execution import tree
    >>> tree("abcde", lambda left, right: f"({left}{right})")
    '(((ab)(cd))e)'
    """
    stack: list[tuple[int, Any]] = []
    for part in parts:
        level = 0
        while stack and stack[-1][0] == level:
            part = merge(stack.pop()[1], part)
            level += 1
        stack.append((level, part))
    if not stack:
        raise ValueError("There are no rows to read.")
    total = stack.pop()[1]
    while stack:
        total = merge(stack.pop()[1], total)
    return total


# Some rows by their numbers.


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
