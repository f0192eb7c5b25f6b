"""Rows, jobs, and the tree in which the parts of a job are merged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._array import Array, to_numpy

# 2 MB stay in the cache between the product and the exponential (measured in
# benchmarks/kernels.py).
BLOCK_ELEMENTS = 2**18
Chunk = tuple[Any, ...]  # the same rows of each array (None where there is no array)
Report = Callable[[int], None]  # told how far a pass is


class Job(Protocol):
    """One pass over all rows. Jobs travel to workers: keep them small and picklable."""

    def read(self, index: int, chunk: Chunk) -> Any:
        """What chunk number `index` contributes."""

    def merge(self, left: Any, right: Any) -> Any:
        """Two neighbouring contributions as one."""

    def finish(self, total: Any) -> Any:
        """The result, from the merged contributions of all chunks; `NextPass` if not there yet."""
        return total


class NextPass(NamedTuple):
    """What `finish` gives where another pass over the rows is needed: the job that makes it."""

    job: Job


class Executor(Protocol):
    """Runs jobs over rows, each as many passes as it asks for."""

    def reduce(self, job: Job, rows: Any, report: Report | None = None) -> Any:
        """The result of one job; its chunks may be read in parallel.

        `report` is told how many chunks of the present pass have been read, from time to time.
        """

    def map(
        self, jobs: Iterable[Job], rows: Any, stop: Callable[[], bool] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Pairs (number of the job, its result) as they finish, until `stop()` is true.

        `jobs` may be a generator: it is asked for the next job when there is room for one.
        """


class Rows(ABC):
    """X and what stands beside it, in chunks of rows, and the executor that reads them.

    Attributes
    ----------
    n_chunks : int
    edges : array of shape (n_chunks + 1,)
        The first row of each chunk, and the number of all rows. A Dask array may not know them
        before it has been read once: the first pass sets them then.
    n_columns : int
        Of X.
    executor : Executor
    arrays : tuple
        The arrays that stand beside X in this process (None: absent).
    elsewhere : bool
        Whether large sums are better made where the rows are.
    """

    n_chunks: int
    edges: np.ndarray
    n_columns: int
    executor: Executor
    arrays: tuple[Any, ...] = ()
    elsewhere = False
    device: Any = None  # the torch device of the blocks when they are worked on, if any
    matrix: Array | None = None  # X, where it is one tensor
    single = False  # whether X is in float32, on a device

    @property
    def block_elements(self) -> int:
        """Numbers that a block of kernel columns may have."""
        return BLOCK_ELEMENTS

    def place(self, values: Any) -> Any:
        """These numbers where the blocks are when they are worked on."""
        return values

    def keeps(self, n_bytes: float, megabytes: float) -> bool:
        """Whether kernel columns of this size may stay in memory between passes."""
        return n_bytes <= megabytes * 1e6

    def empty(self, shape: tuple[int, int], single: bool = False) -> Any:
        """Memory for them."""
        return np.empty(shape, np.float32 if single else np.float64, order="F")

    @abstractmethod
    def chunk(self, index: int) -> Chunk:
        """One chunk, in memory."""

    def with_arrays(self, *arrays: np.ndarray | None) -> Rows:
        """The same rows with more arrays, as long as all of them, beside each chunk."""
        rows = copy(self)
        rows.arrays = (*self.arrays, *arrays)
        return rows

    def chunks(self) -> Iterator[Chunk]:
        """All chunks, one after the other."""
        return (self.chunk(i) for i in range(self.n_chunks))

    def reduce(self, job: Job, report: Report | None = None) -> Any:
        """The result of one job; `report` is told the number of chunks read."""
        return self.executor.reduce(job, self, report)

    def map(
        self, jobs: Iterable[Job], stop: Callable[[], bool] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Pairs (number of the job, its result) as they finish, until `stop()` is true."""
        return self.executor.map(jobs, self, stop)

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Some rows of X in float64, in the order asked for."""
        job = TakeJob(np.asarray(numbers, dtype=np.intp), self.edges, n_arrays=1)
        return self.reduce(job)[0].astype(np.float64, copy=False)

    def in_memory(self) -> tuple[np.ndarray | None, ...]:
        """Return X and the arrays beside it (None where one is absent), all in this process."""
        return self.reduce(TakeJob(np.arange(len(self)), self.edges))

    # As an array of two dimensions that is read in blocks.

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of X."""
        return int(self.edges[-1]), self.n_columns

    def __len__(self) -> int:
        return int(self.edges[-1])

    def __getitem__(self, numbers: np.ndarray) -> np.ndarray:
        return self.take(numbers)

    def __iter__(self) -> Iterator[tuple[slice, Any]]:
        """Pairs (rows, block of X)."""
        for index, chunk in enumerate(self.chunks()):
            yield slice(int(self.edges[index]), int(self.edges[index + 1])), chunk[0]


class LostWorkers(RuntimeError):
    """The workers died, or ran out of memory, while they worked on a job."""


def tree(parts: Iterable[Any], merge: Callable[[Any, Any], Any]) -> Any:
    """Merge neighbours in a balanced tree, holding no more than log2 of the parts at a time.

    Examples
    --------
    >>> from sparsebayes.rows import tree
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


def finite_block(block: Any, start: int, n_columns: int) -> np.ndarray:
    """A block of X in float64, from row `start` on, checked."""
    block = np.asarray(block, dtype=np.float64)
    stop = start + len(block) - 1
    if block.ndim != 2 or block.shape[1] != n_columns:
        raise ValueError(
            f"Rows {start} to {stop} have shape {block.shape}, but those before them have "
            f"{n_columns} columns."
        )
    # A finite sum says that all are finite, without an array as large as the block.
    if not np.isfinite(np.sum(block)) and not np.all(np.isfinite(block)):
        raise ValueError(f"Input X contains NaN or infinity between rows {start} and {stop}.")
    return block


# Some rows by their numbers.


class TakeJob:
    """Some rows of the arrays (None where there is no array), in the order asked for.

    Parameters
    ----------
    numbers : array of int
    edges : array of int
        Of the chunks; see `Rows`.
    n_arrays : int, optional
        Only the first so many arrays.
    """

    def __init__(self, numbers: np.ndarray, edges: np.ndarray, n_arrays: int | None = None) -> None:
        self.n_arrays = n_arrays
        self.order = np.argsort(numbers, kind="stable")
        ordered = numbers[self.order]
        cuts = np.searchsorted(ordered, edges)[1:-1]
        inside = np.split(ordered, cuts)
        self.inside = [some - first for some, first in zip(inside, edges[:-1], strict=True)]

    def read(self, index: int, chunk: Any) -> tuple[Any, ...]:
        """The rows that lie in this chunk."""
        some = self.inside[index]
        return tuple(None if a is None else np.asarray(a[some]) for a in chunk[: self.n_arrays])

    def merge(self, left: Any, right: Any) -> tuple[Any, ...]:
        """Those of two neighbouring chunks, the left ones first."""
        pairs = zip(left, right, strict=True)
        return tuple(None if a is None else np.concatenate([a, b]) for a, b in pairs)

    def finish(self, total: Any) -> tuple[Any, ...]:
        """The rows in the order asked for."""
        back = np.empty_like(self.order)
        back[self.order] = np.arange(len(back))
        return tuple(None if a is None else a[back] for a in total)


class HashJob(Job):
    """The `row_hashes` of all rows, of chunks (X, ...)."""

    def read(self, index: int, chunk: Any) -> np.ndarray:
        """Where they are."""
        return row_hashes(to_numpy(chunk[0]))

    def merge(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Neighbouring chunks."""
        return np.concatenate([left, right])


def row_hashes(X: np.ndarray) -> np.ndarray:
    """64 bits for each row; equal rows (also 0 and -0) have equal ones."""
    h = np.full(len(X), X.shape[1], dtype=np.uint64)
    for j in range(X.shape[1]):
        column = np.ascontiguousarray(X[:, j], dtype=np.float64) + 0.0
        h = mix_bits(h ^ column.view(np.uint64))
    return h


def mix_bits(h: np.ndarray) -> np.ndarray:
    """Spread every bit over all 64: a multiplication carries upwards, a shift brings back down."""
    h = h + np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))
