"""Rows that are chunks of a Dask array: their Gram matrix is made where they are.

`shifted_moments`, the one product that costs n m^2, is a job on the cluster: each chunk gives its
part, and the parts are added in a tree. Columns of the few functions that a solver chooses are read
chunk by chunk, as from a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..execution import TakeJob, choose_executor
from ..execution.dask import DaskExecutor, DaskRows
from ..kernels import Kernel
from ._base import row_slices
from ._moments import Report, Shift, accumulate
from .chunked import ChunkedKernelDesign, RowBlocks
from .kernel import block_rows


class DaskRowBlocks(RowBlocks):
    """The chunks of a Dask array as row blocks.

    Parameters
    ----------
    X : dask.array.Array of shape (n_rows, n_features)
        With chunks of known length. Work goes to the active client, if there is one.

    Examples
    --------
    >>> import dask.array as da
    >>> from sparsebayes.designs.dask import DaskRowBlocks
    >>> blocks = DaskRowBlocks(da.ones((10, 2), chunks=(4, 2)))
    >>> [len(block) for _, block in blocks]
    [4, 4, 2]
    """

    def __init__(self, X: Any) -> None:
        if X.ndim != 2:
            raise ValueError(f"X must have 2 dimensions, got shape {tuple(X.shape)}.")
        if np.isnan(X.shape[0]):
            raise ValueError(
                "X is a Dask array with chunks of unknown length: call X.compute_chunk_sizes()."
            )
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.starts = np.cumsum([0, *X.chunks[0][:-1]])
        self.rows = DaskRows.from_dask((X,))
        self.executor = choose_executor()

    def _raw(self) -> Iterator[Any]:
        return (self.rows.chunk(i)[0] for i in range(self.rows.n_chunks))

    def take(self, idx: np.ndarray) -> np.ndarray:
        """Some rows, in the order asked for."""
        job = TakeJob(np.asarray(idx, dtype=np.intp), self.starts, self.shape[0])
        (X,) = self.executor.reduce(job, self.rows)
        return X.astype(np.float64, copy=False)

    __getitem__ = take

    def kernel_design(
        self, kernel: Kernel, centres: np.ndarray, cache_size: float
    ) -> DaskKernelDesign:
        """Kernel functions on some of these rows."""
        return DaskKernelDesign(self, kernel, centres, cache_size)


class DaskKernelDesign(ChunkedKernelDesign):
    """Kernel functions on the chunks of a Dask array.

    Parameters
    ----------
    X : DaskRowBlocks
    kernel : Kernel
    centres : array of int
    cache_size : float, default=200
        As in `KernelDesign`.
    """

    X: DaskRowBlocks

    def shifted_moments(
        self,
        V: np.ndarray,
        single: bool = False,
        report: Report | None = None,
        shift: Shift | None = None,
        root: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Moments added up over the chunks, in a tree, where they are."""
        executor = self.X.executor
        client = executor.client if isinstance(executor, DaskExecutor) else None
        unit, s = (None, None) if shift is None else shift
        rows = self.X.rows.beside((V, unit, root), self.X.starts, client)
        job = MomentsJob(self.kernel, self.centre_rows(), s, single)
        result = executor.reduce(job, rows)
        if report is not None:
            report(self.n_rows)
        return result


@dataclass(frozen=True)
class MomentsJob:
    """Z'Z and Phi'V over chunks (X, V, unit or None, root or None)."""

    kernel: Kernel
    centres: np.ndarray
    shift: np.ndarray | None
    single: bool

    def read(self, index: int, chunk: Any) -> tuple[np.ndarray, np.ndarray]:
        """A chunk."""
        X, V, unit, root = chunk
        X = np.asarray(X, dtype=np.float64)
        if not np.all(np.isfinite(X)):
            raise ValueError(f"Input X contains NaN or infinity in chunk {index}.")
        bound = self.kernel.bind(self.centres)

        def blocks() -> Iterator[tuple[slice, np.ndarray]]:
            for rows in row_slices(len(X), block_rows(len(self.centres))):
                block = bound(X[rows])
                yield rows, block if root is None else block * root[rows, None]

        shift = None if self.shift is None else (unit, self.shift)
        return accumulate(blocks(), len(self.centres), V, self.single, None, shift)

    def merge(self, left: Any, right: Any) -> tuple[np.ndarray, np.ndarray]:
        """Sums."""
        return left[0] + right[0], left[1] + right[1]

    def finish(self, total: Any) -> tuple[np.ndarray, np.ndarray]:
        """The sums."""
        return total
