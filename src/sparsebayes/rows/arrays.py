"""Rows of this process: arrays in memory, and blocks that are read from any source."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias, cast

import numpy as np

from ._base import Chunk, Executor, Rows, finite_block
from .executors import SerialExecutor, is_dask

# Few enough that every core gets some, many enough that merging parts stays cheap.
CHUNK_ROWS = 16384
_BLOCK_BYTES = 2**24  # of a block of an array that is cut into blocks
SERIAL = SerialExecutor()
Source: TypeAlias = (
    np.ndarray | Sequence[np.ndarray] | Callable[[], Iterable[np.ndarray]] | Iterator[np.ndarray]
)


def make_rows(arrays: tuple[Any, ...], executor: Executor) -> Rows:
    """Return the rows of NumPy or Dask arrays (None: absent) in the form the executor needs."""
    if is_dask(arrays[0]):
        from .dask import DaskRows

        n_bytes = sum(0 if a is None else a.nbytes for a in arrays)
        return executor.store(DaskRows.from_dask(arrays, executor), n_bytes)
    return executor.distribute(arrays)


class ArrayRows(Rows):
    """NumPy arrays of the same length, cut into chunks of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.rows import ArrayRows
    >>> rows = ArrayRows((np.arange(10.0).reshape(5, 2), None), chunk_rows=2)
    >>> rows.n_chunks, rows.chunk(2)
    (3, (array([[8., 9.]]), None))
    """

    def __init__(
        self,
        arrays: tuple[np.ndarray | None, ...],
        chunk_rows: int = CHUNK_ROWS,
        *,
        executor: Executor = SERIAL,
    ) -> None:
        X = arrays[0]
        assert X is not None
        self.arrays = arrays  # X among them
        self.edges = cut(len(X), chunk_rows)
        self.n_chunks = len(self.edges) - 1
        self.n_columns = X.shape[-1]
        self.executor = executor

    def chunk(self, index: int) -> Chunk:
        """Return views of the arrays."""
        rows = slice(self.edges[index], self.edges[index + 1])
        return tuple(None if array is None else array[rows] for array in self.arrays)


class RowBlocks(Rows):
    """X as a sequence of blocks of rows that is read several times, for data larger than memory.

    Parameters
    ----------
    source : array-like with ``shape`` and slices, list of arrays, callable, or iterator
        A NumPy memmap (or any array that is read when sliced), which is cut into blocks; the blocks
        themselves; a function without arguments that returns a new iterator of the same blocks; or
        such an iterator, which can be read only once and is written to a temporary file.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import RowBlocks
    >>> blocks = RowBlocks(lambda: (np.full((3, 2), i) for i in range(4)))
    >>> blocks.shape
    (12, 2)
    >>> blocks.take(np.array([0, 11])).ravel()
    array([0., 0., 3., 3.])
    """

    executor = SERIAL

    def __init__(self, source: Source) -> None:
        if isinstance(source, Iterator):
            source = _copy_to_file(source)
        if hasattr(source, "shape"):
            if len(source.shape) != 2:
                raise ValueError(f"X must have 2 dimensions, got shape {tuple(source.shape)}.")
            n, self.n_columns = (int(size) for size in source.shape)
            self.edges = cut(n, max(1, _BLOCK_BYTES // (8 * max(self.n_columns, 1))))
        elif callable(source) or isinstance(source, list | tuple):
            lengths, self.n_columns = _measure(source() if callable(source) else source)
            self.edges = np.cumsum([0, *lengths])
        else:
            raise TypeError(
                "RowBlocks needs an array, a list or an iterator of blocks, or a function that "
                f"returns such an iterator; got {type(source).__name__}."
            )
        self.source = source
        self.n_chunks = len(self.edges) - 1

    def chunk(self, index: int) -> Chunk:
        """Return one block; a function is called and the blocks before it are skipped."""
        return next(islice(self.chunks(), index, None))

    def chunks(self) -> Iterator[Chunk]:
        """Yield the blocks in float64, checked to be finite and of the lengths first read."""
        lengths, index = np.diff(self.edges), -1
        for index, block in enumerate(self._raw()):
            if index == self.n_chunks or len(block) != lengths[index]:
                raise self._changed(index)
            rows = slice(int(self.edges[index]), int(self.edges[index + 1]))
            block = finite_block(block, rows.start, self.n_columns)
            yield (block, *(None if a is None else a[rows] for a in self.arrays))
        if index + 1 < self.n_chunks:
            raise self._changed(index + 1)

    def _changed(self, index: int) -> ValueError:
        return ValueError(
            f"The {self.n_chunks} blocks had {len(self)} rows when they were first read, but "
            f"block {index} has a different number of rows now. The source must return the "
            "same rows each time, in the same blocks."
        )

    def _raw(self) -> Iterator[np.ndarray]:
        source, edges = self.source, self.edges
        if callable(source):
            return iter(source())
        if hasattr(source, "shape"):
            array = cast(np.ndarray, source)
            return (array[edges[i] : edges[i + 1]] for i in range(self.n_chunks))
        return iter(source)


def cut(n_rows: int, step: int) -> np.ndarray:
    """Return the edges of chunks of `step` rows."""
    return np.append(np.arange(0, max(n_rows, 1), step), n_rows)


def _measure(blocks: Iterable[np.ndarray]) -> tuple[list[int], int]:
    """Return the number of rows of each block and their number of columns."""
    lengths: list[int] = []
    d = -1
    for block in blocks:
        shape = np.shape(block)
        if len(shape) != 2 or (d >= 0 and shape[1] != d):
            raise ValueError(
                f"Each block must have 2 dimensions and the same number of columns; got shape "
                f"{shape} after {sum(lengths)} rows."
            )
        d = shape[1]
        lengths.append(shape[0])
    if not sum(lengths):
        raise ValueError("There are no rows: the source returned no block.")
    return lengths, d


def _copy_to_file(blocks: Iterable[np.ndarray]) -> np.ndarray:
    """Return the rows of all blocks as a memory map of a file without a name."""
    with tempfile.TemporaryFile() as file:

        def copied() -> Iterator[np.ndarray]:
            for block in blocks:
                yield block  # measured before it is written
                file.write(np.ascontiguousarray(block, dtype=np.float64).data)

        lengths, d = _measure(copied())
        file.flush()
        return np.memmap(file, dtype=np.float64, mode="r", shape=(sum(lengths), d))
