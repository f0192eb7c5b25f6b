"""Rows, jobs over rows, and the tree in which the parts of a job are merged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from .._array import Array, to_numpy

if TYPE_CHECKING:
    import torch
    from distributed import Client

# 2 MB stay in the cache between the product and the exponential (measured in
# benchmarks/kernels.py).
BLOCK_ELEMENTS = 2**18
Chunk: TypeAlias = tuple[Any, ...]  # the same rows of each array (None for an absent array)
Report: TypeAlias = Callable[[int], None]  # receives how many chunks or rows a pass has read
Part = TypeVar("Part")
Result = TypeVar("Result", covariant=True)


def row_slices(n_rows: int, step: int) -> Iterator[slice]:
    """Yield consecutive slices of at most `step` rows."""
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


class Job(Protocol[Part, Result]):
    """One pass over all rows. Jobs are sent to workers, so they must be small and picklable."""

    def read(self, index: int, chunk: Chunk) -> Part:
        """Return the contribution of chunk number `index`."""

    def merge(self, first: Part, second: Part, /) -> Part:
        """Return the contribution of two consecutive parts, the first one first."""

    def finish(self, total: Part, /) -> Result | NextPass:
        """Return the result from the contribution of all chunks, or the job of the next pass."""
        return cast(Result, total)


class NextPass(NamedTuple):
    """Result of `Job.finish` if another pass over the rows is needed: the job of that pass."""

    job: Job


class Executor(Protocol):
    """Runs jobs over rows, each for as many passes as it needs."""

    @property
    def client(self) -> Client | None:
        """The client of a Dask cluster, or None."""

    def distribute(self, arrays: tuple[np.ndarray | None, ...]) -> Rows:
        """Return the rows of NumPy arrays (None: absent) where the jobs will read them."""

    def store(self, rows: Rows, n_bytes: float) -> Rows:
        """Return the rows of Dask arrays, loaded once if they are small enough."""

    def reduce(self, job: Job[Part, Result], rows: Rows, report: Report | None = None) -> Result:
        """Return the result of one job; its chunks may be read in parallel.

        From time to time `report` receives the number of chunks read in the current pass.
        """

    def map(
        self,
        jobs: Iterable[Job[Part, Result]],
        rows: Rows,
        stop: Callable[[], bool] | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Yield pairs (number of the job, its result) as they finish, until `stop()` is true.

        `jobs` may be a generator, which is advanced when another job can start.
        """


class Rows(ABC):
    """X and arrays of the same length (targets, weights) in chunks of rows.

    Attributes
    ----------
    n_chunks : int
    edges : array of shape (n_chunks + 1,)
        Number of the first row of each chunk, then the number of rows. A Dask array may not know
        them before it has been read once; the first pass sets them then.
    n_columns : int
        Number of columns of X.
    executor : Executor
        Runs the jobs over these rows.
    arrays : tuple
        The arrays of this process that accompany X (None: absent).
    remote : bool
        Whether large sums should be computed by jobs, where the rows are.
    device : torch.device or None
        Device of the blocks when they are worked on.
    matrix : tensor or None
        X, if it is one tensor.
    single : bool
        Whether X is in float32 on a device.
    """

    n_chunks: int
    edges: np.ndarray
    n_columns: int
    executor: Executor
    arrays: tuple[np.ndarray | None, ...] = ()
    remote = False
    device: torch.device | None = None
    matrix: Array | None = None
    single = False

    @property
    def block_elements(self) -> int:
        """Numbers that a block of kernel columns may have."""
        return BLOCK_ELEMENTS

    def place(self, values: Array) -> Array:
        """Return `values` on the device of the blocks."""
        return values

    def can_store(self, n_bytes: float, megabytes: float) -> bool:
        """Return whether kernel columns of this size may be stored between passes."""
        return n_bytes <= megabytes * 1e6

    def empty(self, shape: tuple[int, int], single: bool = False) -> Array:
        """Return an uninitialised array for kernel columns on the device of the blocks."""
        return np.empty(shape, np.float32 if single else np.float64, order="F")

    @abstractmethod
    def chunk(self, index: int) -> Chunk:
        """Return one chunk, in memory."""

    def with_arrays(self, *arrays: np.ndarray | None) -> Rows:
        """Return the same rows with more arrays of the same length."""
        rows = copy(self)
        rows.arrays = (*self.arrays, *arrays)
        return rows

    def chunks(self) -> Iterator[Chunk]:
        """Yield all chunks in order."""
        return (self.chunk(i) for i in range(self.n_chunks))

    def reduce(self, job: Job[Part, Result], report: Report | None = None) -> Result:
        """Return the result of one job; `report` receives the number of chunks read."""
        return self.executor.reduce(job, self, report)

    def map(
        self, jobs: Iterable[Job[Part, Result]], stop: Callable[[], bool] | None = None
    ) -> Iterator[tuple[int, Result]]:
        """Yield pairs (number of the job, its result) as they finish, until `stop()` is true."""
        return self.executor.map(jobs, self, stop)

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Return the rows `numbers` of X in float64, in this order."""
        job = TakeJob(np.asarray(numbers, dtype=np.intp), self.edges, n_arrays=1)
        (X,) = self.reduce(job)
        assert X is not None
        return X.astype(np.float64, copy=False)

    def in_memory(self) -> Taken:
        """Return X and its arrays (None for an absent one), all in this process."""
        return self.reduce(TakeJob(np.arange(len(self)), self.edges))

    # The interface of a matrix that is read in blocks.

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns of X."""
        return int(self.edges[-1]), self.n_columns

    def __len__(self) -> int:
        return int(self.edges[-1])

    def __getitem__(self, numbers: np.ndarray) -> np.ndarray:
        return self.take(numbers)

    def __iter__(self) -> Iterator[tuple[slice, Array]]:
        """Yield pairs (rows, block of X)."""
        for index, chunk in enumerate(self.chunks()):
            yield slice(int(self.edges[index]), int(self.edges[index + 1])), chunk[0]


class LostWorkers(RuntimeError):
    """Workers died or ran out of memory while they worked on a job."""


def tree(parts: Iterable[Part], merge: Callable[[Part, Part], Part]) -> Part:
    """Merge neighbours in a balanced tree; at most log2 of the number of parts are in memory.

    Examples
    --------
    >>> from sparsebayes.rows import tree
    >>> tree("abcde", lambda first, second: f"({first}{second})")
    '(((ab)(cd))e)'
    """
    stack: list[tuple[int, Part]] = []
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


def finite_block(block: ArrayLike, start: int, n_columns: int) -> np.ndarray:
    """Return a block of X, whose first row is `start`, in float64; raise if it is not finite."""
    block = np.asarray(block, dtype=np.float64)
    stop = start + len(block) - 1
    if block.ndim != 2 or block.shape[1] != n_columns:
        raise ValueError(
            f"Rows {start} to {stop} have shape {block.shape}, but the rows before them have "
            f"{n_columns} columns."
        )
    # If the sum is finite, all entries are; testing them takes an array as large as the block.
    if not np.isfinite(np.sum(block)) and not np.all(np.isfinite(block)):
        raise ValueError(f"Input X contains NaN or infinity between rows {start} and {stop}.")
    return block


Taken: TypeAlias = tuple[np.ndarray | None, ...]


class TakeJob(Job[Taken, Taken]):
    """Job that collects rows of the arrays (None for an absent array) in a given order.

    Parameters
    ----------
    numbers : array of int
        Numbers of the rows.
    edges : array of int
        Edges of the chunks; see `Rows`.
    n_arrays : int, optional
        Number of arrays, counted from X (default: all).
    """

    def __init__(self, numbers: np.ndarray, edges: np.ndarray, n_arrays: int | None = None) -> None:
        self.n_arrays = n_arrays
        self.order = np.argsort(numbers, kind="stable")
        ordered = numbers[self.order]
        cuts = np.searchsorted(ordered, edges)[1:-1]
        inside = np.split(ordered, cuts)
        self.inside = [rows - start for rows, start in zip(inside, edges[:-1], strict=True)]

    def read(self, index: int, chunk: Chunk) -> Taken:
        """Return the rows that lie in this chunk."""
        rows = self.inside[index]
        return tuple(None if a is None else np.asarray(a[rows]) for a in chunk[: self.n_arrays])

    def merge(self, first: Taken, second: Taken) -> Taken:
        """Return the rows of two parts."""
        pairs = zip(first, second, strict=True)
        return tuple(None if a is None or b is None else np.concatenate([a, b]) for a, b in pairs)

    def finish(self, total: Taken) -> Taken:
        """Return the rows in the order of `numbers`."""
        back = np.empty_like(self.order)
        back[self.order] = np.arange(len(back))
        return tuple(None if a is None else a[back] for a in total)


class HashJob(Job[np.ndarray, np.ndarray]):
    """Job that computes the `row_hashes` of all rows, from chunks (X, ...)."""

    def read(self, index: int, chunk: Chunk) -> np.ndarray:
        """Return the hashes of one chunk."""
        return row_hashes(to_numpy(chunk[0]))

    def merge(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return the hashes of two parts."""
        return np.concatenate([first, second])


def row_hashes(X: Any) -> np.ndarray:
    """Return 64 bits for each row of an array or a sparse matrix; equal rows have equal bits.

    0 and -0 are equal.
    """
    h = np.full(X.shape[0], X.shape[1], dtype=np.uint64)
    if issparse(X):
        entries = X.tocoo()
        stored = entries.data != 0.0
        values = np.ascontiguousarray(entries.data[stored], dtype=np.float64).view(np.uint64)
        columns = mix_bits(entries.col[stored].astype(np.uint64))
        np.add.at(h, entries.row[stored], mix_bits(values ^ columns))
        return h
    for j in range(X.shape[1]):
        column = np.ascontiguousarray(X[:, j], dtype=np.float64) + 0.0
        h = mix_bits(h ^ column.view(np.uint64))
    return h


def mix_bits(h: np.ndarray) -> np.ndarray:
    """Spread every bit over all 64: a multiplication carries upwards, a shift back down."""
    h = h + np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))
