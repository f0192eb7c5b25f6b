"""Rows that do not fit into memory: read in blocks, from a file or from anything that gives blocks.

Every verb of a design is a sum over rows, so a design needs its rows one block at a time.
`RowBlocks` gives them; `ChunkedKernelDesign` puts kernel functions on them. One block of rows and
what the solver asks for are in memory, never X.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..kernels import Kernel
from ._base import ALL, Index, row_slices
from .kernel import KernelDesign, block_rows

_BLOCK_BYTES = 2**24


class RowBlocks:
    """X as a sequence of row blocks, to be read several times.

    Parameters
    ----------
    source : array-like with ``shape`` and slices, list of arrays, callable, or iterator
        A NumPy memmap (or any array that is read when sliced), which is cut into blocks; the blocks
        themselves; a function without arguments that returns a fresh iterator of blocks; or such an
        iterator, which can be read only once and is written to a temporary file therefore.

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

    def __init__(self, source: Any) -> None:
        if isinstance(source, Iterator):
            source = _written_down(source)
        self.source = source
        if hasattr(source, "shape"):
            if len(source.shape) != 2:
                raise ValueError(f"X must have 2 dimensions, got shape {tuple(source.shape)}.")
            self.shape = (int(source.shape[0]), int(source.shape[1]))
        elif callable(source) or isinstance(source, list | tuple):
            self.shape = _measure(self._raw())
        else:
            raise TypeError(
                "RowBlocks needs an array, a list or an iterator of blocks, or a function that "
                f"returns such an iterator; got {type(source).__name__}."
            )

    def _raw(self) -> Iterator[Any]:
        if hasattr(self.source, "shape"):
            n, d = self.shape
            step = max(1, _BLOCK_BYTES // (8 * max(d, 1)))
            return (self.source[rows] for rows in row_slices(n, step))
        blocks: Iterable[Any] = self.source() if callable(self.source) else self.source
        return iter(blocks)

    def __iter__(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Pairs (rows, block): float64, checked."""
        start = 0
        for raw in self._raw():
            block = np.asarray(raw, dtype=np.float64)
            rows = slice(start, start + len(block))
            if block.ndim != 2 or block.shape[1] != self.shape[1]:
                raise ValueError(
                    f"Rows {rows.start} to {rows.stop - 1} have shape {block.shape}, but those "
                    f"before them have {self.shape[1]} columns."
                )
            # A finite sum says that all are finite, without an array as large as the block.
            if not np.isfinite(np.sum(block)) and not np.all(np.isfinite(block)):
                raise ValueError(
                    f"Input X contains NaN or infinity between rows {rows.start} and "
                    f"{rows.stop - 1}."
                )
            start = rows.stop
            yield rows, block
        if start != self.shape[0]:
            raise ValueError(
                f"The blocks had {self.shape[0]} rows when they were first read and {start} now: "
                "the source must give the same rows each time."
            )

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, idx: np.ndarray) -> np.ndarray:
        """Some rows, in the order asked for."""
        idx = np.asarray(idx, dtype=np.intp)
        out = np.empty((len(idx), self.shape[1]))
        order = np.argsort(idx, kind="stable")
        wanted = idx[order]
        for rows, block in self:
            first, last = np.searchsorted(wanted, [rows.start, rows.stop])
            out[order[first:last]] = block[wanted[first:last] - rows.start]
        return out

    __getitem__ = take

    def kernel_design(
        self, kernel: Kernel, centres: np.ndarray, cache_size: float
    ) -> ChunkedKernelDesign:
        """Kernel functions on some of these rows."""
        return ChunkedKernelDesign(self, kernel, centres, cache_size)

    def scale_gamma(self, sample_weight: np.ndarray | None = None) -> float:
        """1 / (n_features * X.var()), the width that ``gamma="scale"`` names, in one pass."""
        n, d = self.shape
        weight = np.ones(n) if sample_weight is None else sample_weight
        first, total, squares, size = 0.0, 0.0, 0.0, 0.0
        for rows, block in self:
            if rows.start == 0:  # near the mean, and of the size of the data: nothing cancels
                first = float(np.mean(block))
                size = float(np.max(np.abs(block - first))) or 1.0
            block = (block - first) / size
            total += float(weight[rows] @ np.sum(block, axis=1))
            squares += float(weight[rows] @ np.einsum("ij,ij->i", block, block))
        mass = d * float(np.sum(weight))
        variance = squares / mass - (total / mass) ** 2
        return float((1.0 / size) / (d * variance) / size) if variance > 0 else 1.0


class ChunkedKernelDesign(KernelDesign):
    """Kernel functions on rows that come in blocks.

    Parameters
    ----------
    X : RowBlocks
    kernel : Kernel
    centres : array of int
        Which rows carry a function; those rows are kept in memory.
    cache_size : float, default=200
        As in `KernelDesign`.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import ChunkedKernelDesign, RowBlocks
    >>> from sparsebayes.kernels import StationaryKernel
    >>> X = np.linspace(0, 1, 10)[:, None]
    >>> design = ChunkedKernelDesign(
    ...     RowBlocks([X[:4], X[4:]]), StationaryKernel("rbf", 1.0), np.array([2, 7])
    ... )
    >>> design.project(np.ones(10)).shape
    (2,)
    """

    def __init__(
        self, X: RowBlocks, kernel: Kernel, centres: np.ndarray, cache_size: float = 200.0
    ) -> None:
        super().__init__(X, kernel, centres, cache_size)
        self._centre_rows = X.take(self.centres)

    def centre_rows(self, idx: Index = ALL) -> np.ndarray:
        """The rows that carry the functions `idx`."""
        return self._centre_rows[idx]

    def _evaluate(self, idx: Index) -> Iterator[tuple[slice, Any]]:
        k = self.n_selected(idx)
        bound = self.kernel.bind(self.centre_rows(idx)) if k else None
        for rows, block in self.X:
            for part in row_slices(len(block), block_rows(k)):
                values = (
                    np.empty((part.stop - part.start, 0)) if bound is None else bound(block[part])
                )
                yield slice(rows.start + part.start, rows.start + part.stop), values


def _measure(blocks: Iterable[Any]) -> tuple[int, int]:
    """Rows and columns of all blocks."""
    n, d = 0, -1
    for block in blocks:
        n, d = _appended(block, n, d)
    return _some(n), d


def _written_down(blocks: Iterable[Any]) -> np.ndarray:
    """The rows of all blocks in a file without a name, mapped to memory."""
    n, d = 0, -1
    with tempfile.TemporaryFile() as file:
        for block in blocks:
            n, d = _appended(block, n, d)
            file.write(np.ascontiguousarray(block, dtype=np.float64).data)
        file.flush()
        return np.memmap(file, dtype=np.float64, mode="r", shape=(_some(n), d))


def _appended(block: Any, n: int, d: int) -> tuple[int, int]:
    """Rows and columns with one more block."""
    shape = np.shape(block)
    if len(shape) != 2 or (d >= 0 and shape[1] != d):
        raise ValueError(
            f"Each block must have 2 dimensions and the same number of columns; got shape "
            f"{shape} after {n} rows."
        )
    return n + shape[0], shape[1]


def _some(n: int) -> int:
    if n == 0:
        raise ValueError("There are no rows: the source gave no block.")
    return n
