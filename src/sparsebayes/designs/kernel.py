"""Candidates that are kernel functions centred on training rows, evaluated when asked for.

Every verb of a design is a sum over rows, so the rows may come one block at a time, from a file or
a cluster (`ChunkedKernelDesign`): one block of rows and what the solver asks for are in memory,
never X. `shifted_moments` and `triangle`, which cost the number of rows times columns squared, are
jobs where the rows are elsewhere: each chunk gives its part, and the parts are merged in a tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._array import Array, is_torch, on_same_device, to_device_of, to_numpy
from ..kernels import Kernel
from ..linalg.factor import fold
from ..rows import Job, RowBlocks, Rows
from ..rows._base import BLOCK_ELEMENTS, Report
from ._base import ALL, Basis, Design, Index, KernelBasis, Shift, across, row_slices

_TILE = 256  # rows and centres of a block that gives two products


def block_rows(k: int, elements: int = BLOCK_ELEMENTS) -> int:
    """Rows in a block of k columns: fewer than 64 starve the product."""
    return min(elements // 128, max(64, elements // max(k, 1)))


class KernelDesign(Design):
    """One kernel function per centre, on the rows of X.

    Columns are computed in row blocks and thrown away, unless all of them fit into `cache_size`:
    then they are kept after the first full pass.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        The rows.
    kernel : Kernel
        What the functions are: see `make_kernel`.
    centres : array of int, optional
        Which rows of X carry a function (default: all).
    cache_size : float, default=200
        Megabytes that kept columns may take.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import KernelDesign
    >>> from sparsebayes.kernels import StationaryKernel
    >>> X = np.linspace(0, 1, 5)[:, None]
    >>> KernelDesign(X, StationaryKernel("rbf", 1.0)).columns(np.array([0, 4])).shape
    (5, 2)
    """

    keep_single = False  # kept in float32, for products with all columns

    def __init__(
        self,
        X: Any,
        kernel: Kernel,
        centres: np.ndarray | None = None,
        cache_size: float = 200.0,
    ) -> None:
        self.X = X
        self._kernel = kernel
        self.centres = np.arange(X.shape[0]) if centres is None else np.asarray(centres)
        self.n_rows, self.n_candidates = X.shape[0], len(self.centres)
        self.keep = 8.0 * self.n_rows * self.n_candidates <= cache_size * 1e6
        self._kept: Any = None

    def blocks(self, idx: Index = ALL) -> Iterator[tuple[slice, Any]]:
        """Kernel columns in row blocks; from the kept matrix where there is one."""
        if self.keep and self._kept is None and self.n_selected(idx) == self.n_candidates:
            self._kept = self._all_columns()
        if self._kept is not None:
            device = is_torch(self._kept)
            step = block_rows(self.n_candidates, self._block_elements) if device else 4096
            for rows in row_slices(self.n_rows, step):
                yield rows, self._kept[rows, idx]
        else:
            yield from self._evaluate(idx)

    @property
    def kernel(self) -> Kernel:
        """Kernel that the columns are evaluated with."""
        return self._kernel

    @property
    def lazy(self) -> bool:
        """Whether each pass evaluates the columns again."""
        return not (self.keep or self.keep_single)

    @property
    def inputs(self) -> Array | Rows:
        """The rows of X."""
        return self.X

    @property
    def n_distinct_inputs(self) -> int:
        """Number of different rows of X; those read in blocks are taken to differ."""
        in_memory = isinstance(self.X, np.ndarray)
        return len(np.unique(self.X, axis=0)) if in_memory else self.n_rows

    @property
    def _block_elements(self) -> int:
        return BLOCK_ELEMENTS

    def _all_columns(self) -> Any:
        out = np.empty((self.n_rows, self.n_candidates), order="F")
        if self.kernel.stationary and isinstance(self.X, np.ndarray):
            # k(x, z) = k(z, x): whole columns, instead of rows scattered over all of them.
            bound = self.kernel.bind(self.X)
            for some in row_slices(self.n_candidates, block_rows(self.n_rows)):
                out.T[some] = to_numpy(bound(self.X[self.centres[some]]))
        else:
            for rows, block in self._evaluate(ALL):
                out[rows] = to_numpy(block)
        return out

    def local_project(self, V: Any, idx: Index = ALL) -> Any:
        """Phi'V; where every row has its function, k(x, z) = k(z, x) is evaluated once."""
        if self.keep or not (
            isinstance(self.X, np.ndarray)
            and self.kernel.stationary
            and np.array_equal(np.arange(self.n_candidates)[idx], np.arange(self.n_rows))
            and np.array_equal(self.centres, np.arange(self.n_rows))
        ):
            return super().local_project(V, idx)
        out = np.zeros(V.shape)
        for some in row_slices(self.n_rows, _TILE):
            bound, rest = self.kernel.bind(self.X[some]), self.n_rows - some.start
            for part in row_slices(rest, _TILE):
                rows = slice(some.start + part.start, some.start + part.stop)
                block = to_numpy(bound(self.X[rows]))
                out[some] += across(block, V[rows])
                if part.start:
                    out[rows] += block @ V[some]
        return out

    def _evaluate(self, idx: Index) -> Iterator[tuple[slice, Any]]:
        k = self.n_selected(idx)
        if k == 0:
            yield slice(0, self.n_rows), self.place(np.empty((self.n_rows, 0)))
            return
        bound = self.kernel.bind(self.centre_rows(idx))
        for rows, block in self._row_blocks():
            for part in row_slices(block.shape[0], block_rows(k, self._block_elements)):
                yield slice(rows.start + part.start, rows.start + part.stop), bound(block[part])

    def place(self, values: Any) -> Any:
        """A vector as long as the data where X is."""
        return to_device_of(self.X, values)

    def _row_blocks(self) -> Iterable[tuple[slice, Any]]:
        """X, as it is read."""
        return [(slice(0, self.n_rows), self.X)]

    def centre_rows(self, idx: Index = ALL) -> Any:
        """The rows that carry the functions `idx`."""
        return self.X[self.centres[idx]]

    def basis(self, idx: np.ndarray) -> Basis:
        """The kernel functions on the chosen centres."""
        return KernelBasis(self.kernel, to_numpy(self.centre_rows(idx)))


class ChunkedKernelDesign(KernelDesign):
    """Kernel functions on rows that come in blocks.

    Parameters
    ----------
    X : Rows
        Blocks from anywhere (`RowBlocks`), or the chunks of a Dask array.
    kernel : Kernel
        What the functions are: see `make_kernel`.
    centres : array of int
        Which rows carry a function; those rows are kept in memory.
    cache_size : float, default=200
        As in `KernelDesign`.
    centre_rows : array, optional
        Those rows, where they are at hand already or lie elsewhere.

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
        self.keep = X.keeps(8.0 * self.n_rows * self.n_candidates, cache_size)
        # Columns too large for the memory of a device in float64 may fit in half of it.
        half = 4.0 * self.n_rows * self.n_candidates
        self._single: Any = None
        self.keep_single = not self.keep and X.single and X.keeps(half, cache_size)
        self._centre_rows = X.place(X.take(self.centres) if centre_rows is None else centre_rows)

    @property
    def _block_elements(self) -> int:
        return self.X.block_elements

    def place(self, values: Any) -> Any:
        """A vector as long as the data, or centres, where the rows are."""
        return self.X.place(values)

    def centre_rows(self, idx: Index = ALL) -> Any:
        """The rows that carry the functions `idx`."""
        return self._centre_rows[idx]

    def _all_columns(self) -> Any:
        out = self.X.empty((self.n_rows, self.n_candidates), self.keep_single)
        for rows, block in self._evaluate(ALL):
            out[rows] = block
        return out

    def local_columns(self, idx: Index, single: bool = False) -> Any:
        """Columns where the blocks are; with `single` from those kept in float32, if any are."""
        if not single or self._single is None:
            return super().local_columns(idx)
        return self.place(self._single[:, idx])

    def local_project(self, V: Any, idx: Index = ALL) -> Any:
        """Phi'V; all columns in float32 where they are kept so, with sums in float64.

        For greedy scores: the path that they choose is measured on the columns themselves.
        """
        if not self.keep_single or self.n_selected(idx) < self.n_candidates:
            return super().local_project(V, idx)
        if self._single is None:
            self._single = self._all_columns()
        out = self.X.empty((self.n_candidates, *V.shape[1:]), single=False)
        out[...] = 0.0
        V = on_same_device(self._single, V)
        # Nothing as large as a block is made on the way: a few large products.
        for rows in row_slices(
            self.n_rows, block_rows(self.n_candidates, 16 * self._block_elements)
        ):
            block = self._single[rows]
            out += block.T @ V[rows]
        return out

    def _row_blocks(self) -> Iterable[tuple[slice, Any]]:
        return self.X

    def shifted_moments(
        self,
        V: np.ndarray,
        single: bool = False,
        report: Report | None = None,
        shift: Shift | None = None,
        root: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Moments; those of rows elsewhere are added up there, in a tree over the chunks."""
        if not self.X.elsewhere:
            return super().shifted_moments(V, single, report, shift, root)
        unit, s = (None, None) if shift is None else shift
        job = MomentsJob(self.kernel, self.centre_rows(), s, single)
        edges = self.X.edges
        chunks = None if report is None else lambda number: report(int(edges[number]))
        return self.X.with_arrays(V, unit, root).reduce(job, chunks)

    def triangle(self, T: Any, idx: Index = ALL, shift: Any = None, root: Any = None) -> Any:
        """R; that of rows elsewhere is put together there, in a tree over the chunks."""
        if not self.X.elsewhere:
            return super().triangle(T, idx, shift, root)
        u, s = (None, None) if shift is None else shift
        job = TriangleJob(self.kernel, self.centre_rows(idx), s)
        return self.X.with_arrays(T, u, root).reduce(job)


@dataclass(frozen=True)
class MomentsJob(Job):
    """Z'Z and Phi'V over chunks (X, V, unit or None, root or None)."""

    kernel: Kernel
    centres: np.ndarray
    shift: np.ndarray | None
    single: bool

    def read(self, index: int, chunk: Any) -> tuple[np.ndarray, np.ndarray]:
        X, V, unit, root = chunk
        shift = None if self.shift is None else (unit, self.shift)
        design = _on(X, self.kernel, self.centres)
        return design.shifted_moments(V, self.single, None, shift, root)

    def merge(self, left: Any, right: Any) -> tuple[np.ndarray, np.ndarray]:
        return left[0] + right[0], left[1] + right[1]


@dataclass(frozen=True)
class TriangleJob(Job):
    """R of [Z T] over chunks (X, T, u or None, root or None)."""

    kernel: Kernel
    centres: np.ndarray
    shift: np.ndarray | None

    def read(self, index: int, chunk: Any) -> np.ndarray:
        X, T, u, root = chunk
        shift = None if self.shift is None else (u, self.shift)
        return _on(X, self.kernel, self.centres).triangle(T, ALL, shift, root)

    def merge(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return fold([left, right], left.shape[1])


def _on(X: np.ndarray, kernel: Kernel, centres: np.ndarray) -> ChunkedKernelDesign:
    """All functions on the rows of one chunk."""
    every = np.arange(len(centres))
    return ChunkedKernelDesign(RowBlocks([X]), kernel, every, 0.0, centres)
