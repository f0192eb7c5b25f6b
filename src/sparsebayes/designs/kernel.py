"""Candidates that are kernel functions centred on training rows, evaluated when they are needed.

Every method of a design is a sum over rows, so the rows may come one block at a time, from a file
or a cluster (`ChunkedKernelDesign`): one block of rows and the requested result are in memory,
never X. `shifted_moments` and `triangle`, which cost the number of rows times columns squared, are
jobs if the rows are on a cluster: each chunk gives its part, and the parts are merged in a tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np

from .._array import Array, is_torch, on_same_device, to_device_of, to_numpy
from ..kernels import Kernel
from ..linalg.factor import fold
from ..rows import Job, RowBlocks, Rows, row_slices
from ..rows._base import BLOCK_ELEMENTS, Chunk, Report
from ._base import ALL, Basis, Design, Index, KernelBasis, Shift, across

Moments: TypeAlias = tuple[np.ndarray, np.ndarray]
_TILE = 256  # rows and centres of a block of a symmetric kernel matrix, which gives two products


def block_rows(k: int, elements: int = BLOCK_ELEMENTS) -> int:
    """Return the number of rows in a block of k columns: fewer than 64 starve the product."""
    return min(elements // 128, max(64, elements // max(k, 1)))


class KernelDesign(Design):
    """One kernel function per centre, evaluated on the rows of X.

    Columns are computed in blocks of rows and discarded, unless all of them fit into `cache_size`:
    then they are stored after the first full pass.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        The rows.
    kernel : Kernel
        The kernel, for example from `make_kernel`.
    centres : array of int, optional
        Rows of X that the functions are centred on (default: all).
    cache_size : float, default=200
        Megabytes that stored columns may take.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import KernelDesign
    >>> from sparsebayes.kernels import StationaryKernel
    >>> X = np.linspace(0, 1, 5)[:, None]
    >>> KernelDesign(X, StationaryKernel("rbf", 1.0)).columns(np.array([0, 4])).shape
    (5, 2)
    """

    stores_single = False  # whether columns are stored in float32, for products with all of them

    def __init__(
        self,
        X: Array | Rows,
        kernel: Kernel,
        centres: np.ndarray | None = None,
        cache_size: float = 200.0,
    ) -> None:
        self.X: Array | Rows = X
        self._kernel = kernel
        self.centres = np.arange(X.shape[0]) if centres is None else np.asarray(centres)
        self.n_rows, self.n_candidates = X.shape[0], len(self.centres)
        self.stores = 8.0 * self.n_rows * self.n_candidates <= cache_size * 1e6
        self._stored: Array | None = None
        self._height = 4096  # rows of a block of stored columns

    def blocks(self, idx: Index = ALL) -> Iterator[tuple[slice, Array]]:
        """Yield kernel columns in blocks of rows, from the stored matrix if there is one."""
        if self.stores and self._stored is None and self.n_selected(idx) == self.n_candidates:
            self._stored = self._all_columns()
            if is_torch(self._stored):
                self._height = block_rows(self.n_candidates, self._block_elements)
        if self._stored is not None:
            for rows in row_slices(self.n_rows, self._height):
                yield rows, self._stored[rows, idx]
        else:
            yield from self._evaluate(idx)

    @property
    def kernel(self) -> Kernel:
        """Kernel that the columns are evaluated with."""
        return self._kernel

    @property
    def lazy(self) -> bool:
        """True where each pass evaluates the columns again."""
        return not (self.stores or self.stores_single)

    @property
    def inputs(self) -> Array | Rows:
        """The rows of X."""
        return self.X

    @property
    def n_distinct_inputs(self) -> int:
        """Number of different rows of X; rows read in blocks are assumed to differ."""
        return len(np.unique(self.X, axis=0)) if isinstance(self.X, np.ndarray) else self.n_rows

    @property
    def _block_elements(self) -> int:
        return BLOCK_ELEMENTS

    def _all_columns(self) -> Array:
        out = np.empty((self.n_rows, self.n_candidates), order="F")
        if self.kernel.stationary and isinstance(self.X, np.ndarray):
            # k(x, z) = k(z, x): whole columns, instead of rows scattered over all of them.
            bound = self.kernel.bind(self.X)
            for cols in row_slices(self.n_candidates, block_rows(self.n_rows)):
                out.T[cols] = to_numpy(bound(self.X[self.centres[cols]]))
        else:
            for rows, block in self._evaluate(ALL):
                out[rows] = to_numpy(block)
        return out

    def local_project(self, V: Array, idx: Index = ALL) -> Array:
        """Return Phi'V; if every row has a function, k(x, z) = k(z, x) is evaluated once."""
        if self.stores or not (
            isinstance(self.X, np.ndarray)
            and self.kernel.stationary
            and np.array_equal(np.arange(self.n_candidates)[idx], np.arange(self.n_rows))
            and np.array_equal(self.centres, np.arange(self.n_rows))
        ):
            return super().local_project(V, idx)
        out = np.zeros(V.shape)
        for cols in row_slices(self.n_rows, _TILE):
            bound = self.kernel.bind(self.X[cols])
            for part in row_slices(self.n_rows - cols.start, _TILE):
                rows = slice(cols.start + part.start, cols.start + part.stop)
                block = to_numpy(bound(self.X[rows]))
                out[cols] += across(block, V[rows])
                if part.start:
                    out[rows] += block @ V[cols]
        return out

    def _evaluate(self, idx: Index) -> Iterator[tuple[slice, Array]]:
        k = self.n_selected(idx)
        if k == 0:
            yield slice(0, self.n_rows), self.place(np.empty((self.n_rows, 0)))
            return
        bound = self.kernel.bind(self.centre_rows(idx))
        for rows, block in self._row_blocks():
            for part in row_slices(block.shape[0], block_rows(k, self._block_elements)):
                yield slice(rows.start + part.start, rows.start + part.stop), bound(block[part])

    def place(self, values: Array) -> Array:
        """Return `values` on the device of X."""
        return to_device_of(self.X, values)

    def _row_blocks(self) -> Iterable[tuple[slice, Array]]:
        """Return the blocks of X as they are read."""
        return [(slice(0, self.n_rows), cast(Array, self.X))]

    def centre_rows(self, idx: Index = ALL) -> Array:
        """Return the rows that the functions `idx` are centred on."""
        return self.X[self.centres[idx]]

    def basis(self, idx: np.ndarray) -> Basis:
        """Return the kernel functions `idx`."""
        return KernelBasis(self.kernel, to_numpy(self.centre_rows(idx)))


class ChunkedKernelDesign(KernelDesign):
    """Kernel functions evaluated on rows that are read in blocks.

    Parameters
    ----------
    X : Rows
        Blocks of any source (`RowBlocks`), or the chunks of a Dask array.
    kernel : Kernel
        The kernel, for example from `make_kernel`.
    centres : array of int
        Rows that the functions are centred on, which are stored in memory.
    cache_size : float, default=200
        Megabytes that stored columns may take.
    centre_rows : array, optional
        The rows of `centres`, if they are known already or are not rows of X.

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

    X: Rows

    def __init__(
        self,
        X: Rows,
        kernel: Kernel,
        centres: np.ndarray,
        cache_size: float = 200.0,
        centre_rows: np.ndarray | None = None,
    ) -> None:
        super().__init__(X, kernel, centres, cache_size)
        self.stores = X.can_store(8.0 * self.n_rows * self.n_candidates, cache_size)
        # Columns too large for the memory of a device in float64 may fit in half of it.
        half = 4.0 * self.n_rows * self.n_candidates
        self._single: Array | None = None
        self.stores_single = not self.stores and X.single and X.can_store(half, cache_size)
        self._centre_rows = X.place(X.take(self.centres) if centre_rows is None else centre_rows)

    @property
    def _block_elements(self) -> int:
        return self.X.block_elements

    def place(self, values: Array) -> Array:
        """Return `values` on the device of the blocks."""
        return self.X.place(values)

    def centre_rows(self, idx: Index = ALL) -> Array:
        """Return the rows that the functions `idx` are centred on."""
        return self._centre_rows[idx]

    def _all_columns(self) -> Array:
        out = self.X.empty((self.n_rows, self.n_candidates), self.stores_single)
        for rows, block in self._evaluate(ALL):
            out[rows] = block
        return out

    def local_columns(self, idx: Index, single: bool = False) -> Array:
        """Return columns on the device; with `single` those stored in float32, if there are any."""
        if not single or self._single is None:
            return super().local_columns(idx)
        return self.place(self._single[:, idx])

    def local_project(self, V: Array, idx: Index = ALL) -> Array:
        """Return Phi'V, from all columns in float32 if they are stored so, with sums in float64.

        That suffices for greedy scores: the selected path is measured on the exact columns.
        """
        if not self.stores_single or self.n_selected(idx) < self.n_candidates:
            return super().local_project(V, idx)
        if self._single is None:
            self._single = self._all_columns()
        out = self.place(np.zeros((self.n_candidates, *V.shape[1:])))
        V = on_same_device(self._single, V)
        # A few large products, because no temporary array is as large as a block.
        for rows in row_slices(
            self.n_rows, block_rows(self.n_candidates, 16 * self._block_elements)
        ):
            block = self._single[rows]
            out += block.T @ V[rows]
        return out

    def _row_blocks(self) -> Iterable[tuple[slice, Array]]:
        return self.X

    def shifted_moments(
        self,
        V: np.ndarray,
        single: bool = False,
        report: Report | None = None,
        shift: Shift | None = None,
        root: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the moments; those of rows on a cluster are summed there, in a tree of chunks."""
        if not self.X.remote:
            return super().shifted_moments(V, single, report, shift, root)
        unit, s = (None, None) if shift is None else shift
        job = MomentsJob(self.kernel, self.centre_rows(), s, single)
        edges = self.X.edges
        chunks = None if report is None else lambda number: report(int(edges[number]))
        return self.X.with_arrays(V, unit, root).reduce(job, chunks)

    def triangle(
        self,
        T: np.ndarray,
        idx: Index = ALL,
        shift: Shift | None = None,
        root: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the triangle; that of rows on a cluster is merged there, in a tree of chunks."""
        if not self.X.remote:
            return super().triangle(T, idx, shift, root)
        u, s = (None, None) if shift is None else shift
        job = TriangleJob(self.kernel, self.centre_rows(idx), s)
        return self.X.with_arrays(T, u, root).reduce(job)


@dataclass(frozen=True)
class MomentsJob(Job):
    """Job that sums Z'Z and Phi'V over chunks (X, V, unit or None, root or None)."""

    kernel: Kernel
    centres: np.ndarray
    shift: np.ndarray | None
    single: bool

    def read(self, index: int, chunk: Chunk) -> Moments:
        """Return the sums of one chunk."""
        X, V, unit, root = chunk
        design = _design_of_chunk(X, self.kernel, self.centres)
        shift = None if self.shift is None else (unit, self.shift)
        return design.shifted_moments(V, self.single, None, shift, root)

    def merge(self, first: Moments, second: Moments) -> Moments:
        """Return the sums of two chunks."""
        return first[0] + second[0], first[1] + second[1]


@dataclass(frozen=True)
class TriangleJob(Job):
    """Job that computes the R of [Z T] over chunks (X, T, u or None, root or None)."""

    kernel: Kernel
    centres: np.ndarray
    shift: np.ndarray | None

    def read(self, index: int, chunk: Chunk) -> np.ndarray:
        """Return the triangle of one chunk."""
        X, T, u, root = chunk
        shift = None if self.shift is None else (u, self.shift)
        return _design_of_chunk(X, self.kernel, self.centres).triangle(T, ALL, shift, root)

    def merge(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return the triangle of two chunks."""
        return fold([first, second], first.shape[1])


def _design_of_chunk(X: np.ndarray, kernel: Kernel, centres: np.ndarray) -> ChunkedKernelDesign:
    """Return the design of all functions on the rows of one chunk."""
    every = np.arange(len(centres))
    return ChunkedKernelDesign(RowBlocks([X]), kernel, every, 0.0, centres)
