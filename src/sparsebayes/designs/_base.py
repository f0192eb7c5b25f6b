"""Designs, which are m candidate columns on n rows, and bases, the functions behind the columns.

A design implements `blocks` (the exact columns in blocks of rows) and `basis` (the functions behind
them, small enough to be pickled: ``basis(X)`` is Phi); all other methods follow from these two.
Methods return NumPy float64 arrays, except for those called ``local_...``, which leave their result
on the device of the blocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
from scipy.linalg.blas import dsyrk, ssyrk
from scipy.sparse import issparse

from .._array import (
    Array,
    asarray_like,
    is_torch,
    namespace,
    on_same_device,
    squared_lengths,
    to_device_of,
    to_numpy,
)
from ..kernels import FEW_ROWS, BoundKernel, Kernel
from ..linalg.factor import fold
from ..rows import row_slices
from ..rows._base import Report, Rows

Index: TypeAlias = slice | np.ndarray  # of columns
ALL = slice(None)
Shift: TypeAlias = tuple[np.ndarray, np.ndarray]  # (u, s), one number for each row and column
_PANEL_ELEMENTS = 2**21  # rows are gathered to this many numbers: fewer starve the product
_CACHE_ELEMENTS = 2**17  # numbers of a part of a block that several products read


class Basis(Protocol):
    """k functions of the inputs; calling it on rows X returns Phi (len(X) x k).

    A basis is small and can be pickled. Its properties describe the functions, so that no caller
    needs to know its class; a centred basis forwards those of the functions behind it.
    """

    def __call__(self, X: Any) -> Array:
        """Evaluate the functions on rows X: an array, a tensor or, for columns, a sparse matrix."""

    def __len__(self) -> int:
        """Return the number of functions."""

    def take(self, idx: Index) -> Basis:
        """Return the basis of the functions `idx`."""

    @property
    def functions(self) -> Basis:
        """These functions before centring."""

    @property
    def centre(self) -> np.ndarray:
        """Number that is subtracted from each function (its mean over the training rows), or 0."""

    @property
    def scale(self) -> np.ndarray:
        """Factor that each column of X is multiplied by; 1 for functions that are not columns."""

    @property
    def indices(self) -> np.ndarray | None:
        """Columns of X that the functions are; None if they are not columns."""

    @property
    def kernel(self) -> Kernel | None:
        """Kernel of the functions; None if they are not kernel functions."""

    @property
    def centres(self) -> np.ndarray | None:
        """Rows that the kernel functions are centred on; None if they are not kernel functions."""


class UncentredBasis(ABC):
    """The part of a `Basis` that all but the centred one share."""

    indices: np.ndarray | None = None
    kernel: Kernel | None = None
    centres: np.ndarray | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def functions(self) -> Self:
        """The functions themselves, which are not centred."""
        return self

    @property
    def centre(self) -> np.ndarray:
        """Zero for each function."""
        return np.zeros(len(self))


@dataclass(frozen=True)
class ColumnBasis(UncentredBasis):
    """Columns of X (or of a precomputed kernel), each multiplied by its scale.

    Parameters
    ----------
    indices : array of int of shape (k,)
        Numbers of the columns.
    scale : array of shape (k,)
        Factor of each column.
    """

    indices: np.ndarray = field()  # no default, although that of the base class is None
    scale: np.ndarray

    def __call__(self, X: Any) -> Array:
        columns = X[:, self.indices]
        if is_torch(X):
            return columns.double() * to_device_of(X, self.scale)
        if issparse(columns):
            columns = columns.toarray()
        return np.asarray(columns, dtype=np.float64) * self.scale

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, idx: Index) -> ColumnBasis:
        """Return the basis of the functions `idx`."""
        return ColumnBasis(self.indices[idx], self.scale[idx])


@dataclass(frozen=True)
class KernelBasis(UncentredBasis):
    """Kernel functions on their centres.

    Parameters
    ----------
    kernel : Kernel
        The kernel, for example from `make_kernel`.
    centres : array of shape (k, n_features)
        One row for each function.
    """

    kernel: Kernel = field()
    centres: np.ndarray = field()

    def __call__(self, X: Array) -> Array:
        if len(self.centres) == 0:
            return to_device_of(X, np.empty((X.shape[0], 0)))
        if is_torch(X):
            return self.kernel.bind(to_device_of(X, self.centres))(X)
        is_short = X.shape[0] <= FEW_ROWS
        bound = self._bound if is_short else self.kernel.bind(self.centres)
        return np.asarray(bound(X), dtype=np.float64)

    @property
    def scale(self) -> np.ndarray:
        """One for each function."""
        return np.ones(len(self))

    @cached_property
    def _bound(self) -> BoundKernel:
        """The kernel with its centres; binding takes longer than evaluating a single row."""
        return self.kernel.bind(self.centres)

    def __getstate__(self) -> dict[str, object]:
        return {"kernel": self.kernel, "centres": self.centres}

    def __len__(self) -> int:
        return len(self.centres)

    def take(self, idx: Index) -> KernelBasis:
        """Return the basis of the functions `idx`."""
        return KernelBasis(self.kernel, self.centres[idx])


@dataclass(frozen=True)
class CentredBasis:
    """Functions minus their (weighted) means over the training rows.

    Parameters
    ----------
    functions : Basis
        The functions before centring.
    centre : array of shape (k,)
        Their means.
    """

    functions: Basis
    centre: np.ndarray

    def __call__(self, X: Array) -> Array:
        Phi = self.functions(X)  # a new array
        Phi -= to_device_of(Phi, self.centre)
        return Phi

    def __len__(self) -> int:
        return len(self.functions)

    def take(self, idx: Index) -> CentredBasis:
        """Return the basis of the functions `idx`."""
        return CentredBasis(self.functions.take(idx), self.centre[idx])

    @property
    def scale(self) -> np.ndarray:
        """Factor of the columns before centring."""
        return self.functions.scale

    @property
    def indices(self) -> np.ndarray | None:
        """Columns of X that the functions are, before centring."""
        return self.functions.indices

    @property
    def kernel(self) -> Kernel | None:
        """Kernel of the functions before centring."""
        return self.functions.kernel

    @property
    def centres(self) -> np.ndarray | None:
        """Rows that the kernel functions are centred on."""
        return self.functions.centres


class Design(ABC):
    """Candidate columns Phi (n_rows x n_candidates) and the row model of the likelihood.

    The properties of the row model and of the columns hold for wrapping designs (weighted, centred,
    some of the columns) as well: these forward them, so that no caller needs to unwrap a design.
    """

    n_rows: int
    n_candidates: int
    has_fast_products = False  # products with all columns cost less than a pass over them
    has_cheap_sqnorms = False  # `sqnorms` needs no pass over the columns

    @abstractmethod
    def blocks(self, idx: Index = ALL) -> Iterator[tuple[slice, Array]]:
        """Yield the exact columns `idx` in blocks of rows: pairs (rows, block), read only."""

    @abstractmethod
    def basis(self, idx: np.ndarray) -> Basis:
        """Return the functions behind the columns `idx`, to be evaluated on new rows."""

    # The row model: how the rows enter the likelihood.

    @property
    def n_observations(self) -> float:
        """The N of the Gaussian log likelihood: its number of degrees of freedom."""
        return float(self.n_rows)

    @property
    def log_volume(self) -> float:
        """Term that integrating out the intercept adds to the log evidence."""
        return 0.0

    @property
    def offset_scale(self) -> float:
        """Variance of the offset in units of the noise variance."""
        return 0.0

    @property
    def intercept(self) -> bool:
        """True where an intercept is integrated out."""
        return False

    @property
    def uncentred(self) -> Design:
        """These columns before the intercept was integrated out."""
        return self

    @property
    def unweighted(self) -> Design:
        """These columns on rows that are neither weighted nor centred."""
        return self

    @property
    def root_weight(self) -> np.ndarray:
        """Square root of the weight of each row, by which its uncentred columns are multiplied."""
        return np.ones(self.n_rows)

    def target(self, t: np.ndarray) -> np.ndarray:
        """Return the target weighted and centred as the columns are."""
        return t

    def offset(self, t: np.ndarray) -> float | np.ndarray:
        """Return what `target` subtracts: the value of the target where the model is zero."""
        return 0.0 if t.ndim == 1 else np.zeros(t.shape[1])

    # Traits of the columns.

    @property
    def kernel(self) -> Kernel | None:
        """Kernel that the columns are evaluated with; None if they are stored."""
        return None

    @property
    def stationary(self) -> bool:
        """True where the columns are functions of a stationary kernel."""
        return self.kernel is not None and self.kernel.stationary

    @property
    def lazy(self) -> bool:
        """True where each pass evaluates the columns again."""
        return False

    @property
    def inputs(self) -> Array | Rows | None:
        """Rows that the columns are functions of; None if they are not stored."""
        return None

    @property
    def n_distinct_inputs(self) -> int:
        """Number of different rows of `inputs`; an upper bound where they are read in blocks."""
        return self.n_rows

    @property
    def column_scale(self) -> np.ndarray:
        """Factor that each column of X was multiplied by; 1 for functions that are not columns."""
        return np.ones(self.n_candidates)

    def place(self, values: Array) -> Array:
        """Return `values` on the device of the blocks."""
        return values

    @cached_property
    def has_tensors(self) -> bool:
        """True where the blocks are torch tensors."""
        return is_torch(self.place(np.zeros(0)))

    # The same columns with another row model.

    def weighted(self, sample_weight: np.ndarray) -> Design:
        """Return the design in which row i counts `sample_weight[i]` times."""
        from .centred import WeightedDesign

        return WeightedDesign(self, sample_weight)

    def centred(self) -> Design:
        """Return the design with the intercept integrated out."""
        from .centred import CentredDesign

        return CentredDesign(self)

    def remove_offsets(self) -> tuple[Design, np.ndarray]:
        """Return the design less a constant in each column, and these constants.

        They are not zero only where the subtraction is exact and saves digits.
        """
        return self, np.zeros(self.n_candidates)

    # Derived from blocks.

    def n_selected(self, idx: Index) -> int:
        """Return the number of columns that `idx` selects."""
        if isinstance(idx, slice):
            return len(range(*idx.indices(self.n_candidates)))
        return len(idx)

    def columns(self, idx: Index) -> np.ndarray:
        """Return the exact columns `idx` (n_rows x len(idx)), column-contiguous."""
        out, tensors = np.empty((self.n_rows, self.n_selected(idx)), order="F"), self.has_tensors
        for rows, block in self.blocks(idx):
            out[rows] = to_numpy(block) if tensors else block
        return out

    def local_columns(self, idx: Index, single: bool = False) -> Array:
        """Return the columns `idx` on the device of the blocks.

        With `single`, columns that a device stores in float32 may be used.
        """
        if not self.has_tensors:
            return self.columns(idx)
        blocks = [block for _, block in self.blocks(idx)]
        return namespace(blocks[0]).concatenate(blocks)

    def dense(self) -> np.ndarray:
        """Return all columns (n_rows x n_candidates): for small problems and for tests."""
        return self.columns(ALL)

    def project(self, V: np.ndarray, idx: Index = ALL) -> np.ndarray:
        """Return Phi'V for the candidates `idx`."""
        return to_numpy(self.local_project(V, idx))

    def local_project(self, V: Array, idx: Index = ALL) -> Array:
        """Return Phi'V for the candidates `idx` on the device of the blocks."""
        out, tensors = np.zeros((self.n_selected(idx), *V.shape[1:])), self.has_tensors
        out = self.place(out) if tensors else out
        for rows, block in self.blocks(idx):
            out += across(block, on_same_device(block, V[rows]) if tensors else V[rows])
        return out

    def apply(self, w: np.ndarray, idx: Index = ALL) -> np.ndarray:
        """Return Phi_idx w, one number for each row."""
        out = np.empty((self.n_rows, *w.shape[1:]))
        for rows, block in self.blocks(idx):
            out[rows] = to_numpy(block @ on_same_device(block, w))
        return out

    def apply_squares(self, v: np.ndarray, idx: Index = ALL) -> np.ndarray:
        """Return sum_j v_j Phi_ij^2: the variance at row i of independent weights."""
        out = np.empty(self.n_rows)
        for rows, block in self.blocks(idx):
            out[rows] = to_numpy((block * block) @ on_same_device(block, v))
        return out

    def gram(self, idx: Index, others: Index | None = None) -> np.ndarray:
        """Return Phi_idx' Phi_others (`others` is `idx` by default)."""
        k = self.n_selected(idx)
        if others is None:
            out = self.place(np.zeros((k, k)))
            for _, block in self.blocks(idx):
                out += block.T @ block
            return to_numpy(out)
        # One pass over both: the height of a block may depend on the number of columns.
        everything = np.arange(self.n_candidates)
        both = np.concatenate([everything[idx], everything[others]])
        out = self.place(np.zeros((k, len(both) - k)))
        for _, block in self.blocks(both):
            out += block[:, :k].T @ block[:, k:]
        return to_numpy(out)

    def outer(self, idx: Index = ALL) -> np.ndarray:
        """Return Phi_idx Phi_idx' (n_rows x n_rows), for designs of few rows and many columns."""
        columns = np.arange(self.n_candidates)[idx]
        out = np.zeros((self.n_rows, self.n_rows))
        for start in range(0, len(columns), 512):
            block = self.columns(columns[start : start + 512])
            out += block @ block.T
        return out

    def moments(
        self, V: np.ndarray, single: bool = False, report: Report | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return Phi'Phi and Phi'V of all candidates from one pass.

        With `single` the products are in float32 and their sums in float64. `report` receives the
        number of rows read so far.
        """
        return self.shifted_moments(V, single, report)

    def shifted_moments(
        self,
        V: np.ndarray,
        single: bool = False,
        report: Report | None = None,
        shift: Shift | None = None,
        root: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return Z'Z and Phi'V for wrapping designs; rows on a cluster are summed there.

        The rows of Phi are multiplied by `root`, and Z = Phi - us' for a `shift` (u, s).
        """
        blocks = self.blocks()
        if root is not None:
            blocks = (
                (rows, block * on_same_device(block, root[rows, None])) for rows, block in blocks
            )
        return accumulate(blocks, self.n_candidates, V, single, report, shift)

    def triangle(
        self,
        T: np.ndarray,
        idx: Index = ALL,
        shift: Shift | None = None,
        root: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the R of a QR factorisation of [Z T], Z as in `shifted_moments`, columns `idx`.

        R is square, with rows of zeros if there are fewer rows than columns. It is updated block by
        block: no n x k array is formed.
        """

        def blocks() -> Iterator[Array]:
            for rows, block in self.blocks(idx):
                if root is not None:
                    block = block * on_same_device(block, root[rows, None])
                if shift is not None:
                    block = block - on_same_device(block, shift[0][rows, None]) * on_same_device(
                        block, shift[1]
                    )
                yield namespace(block).hstack([block, on_same_device(block, T[rows])])

        return fold(blocks(), self.n_selected(idx) + T.shape[1])

    def sqnorms(self) -> np.ndarray:
        """Return the squared length of each candidate column."""
        out = np.zeros(self.n_candidates)
        for _, block in self.blocks():
            out += squared_lengths(block if is_torch(block) else to_numpy(block))
        return out

    def squares(self, v: np.ndarray) -> np.ndarray:
        """Return sum_i v_i phi_ij^2 for each candidate j."""
        out = np.zeros(self.n_candidates)
        for rows, block in self.blocks():
            out += to_numpy((block * block).T @ on_same_device(block, v[rows]))
        return out

    def sqnorms_and_products(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return phi'phi and phi't of every candidate, in one pass if a pass is needed."""
        if self.has_cheap_sqnorms:
            return self.sqnorms(), self.project(t)
        norms, products, _ = self.sums_along(t)
        return norms, products

    def sums_along(
        self, t: np.ndarray, direction: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return phi'phi, phi't and phi'direction (zero if None) of every candidate in one pass."""
        m = self.n_candidates
        norms, along = self.place(np.zeros(m)), self.place(np.zeros(m))
        products = self.place(np.zeros((m, *t.shape[1:])))
        with np.errstate(over="ignore", invalid="ignore"):
            for rows, block in self.blocks():
                # Parts that fit into the cache; all rows at once on a device.
                step = len(block) if is_torch(block) else max(64, _CACHE_ELEMENTS // max(1, m))
                for part in row_slices(len(block), step):
                    values = block[part]
                    at = slice(rows.start + part.start, rows.start + part.stop)
                    norms += (values * values).sum(axis=0)
                    products += values.T @ on_same_device(values, t[at])
                    if direction is not None:
                        along += values.T @ on_same_device(values, direction[at])
        return to_numpy(norms), to_numpy(products), to_numpy(along)


def across(block: Array, V: Array) -> Array:
    """Return block'V, as (V'block)' if that is faster: BLAS takes half the time for few columns."""
    return (V.T @ block).T if V.ndim == 2 and not is_torch(V) else block.T @ V


def accumulate(
    blocks: Iterable[tuple[slice, Array]],
    n_candidates: int,
    V: np.ndarray,
    single: bool = False,
    report: Report | None = None,
    shift: Shift | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return Z'Z and Phi'V of the columns in `blocks`, with Z = Phi - u s' for a `shift` (u, s).

    The symmetric product is formed one triangle at a time and in place: C <- C + panel' panel.
    With `single` the products are in float32 and their sums in float64. `report` receives the
    number of rows read so far.
    """
    blocks = iter(blocks)
    first = next(blocks, None)
    if first is not None:
        blocks = chain([first], blocks)
        if is_torch(first[1]):
            return _accumulate_on_device(blocks, first[1], n_candidates, V, report, shift)
    m = n_candidates
    height = max(256, min(8192, _PANEL_ELEMENTS // max(m, 1)))
    panel = np.empty((height, m), dtype=np.float32 if single else np.float64)
    G = np.zeros((m, m), order="F")
    A = np.zeros((m, *V.shape[1:]))
    filled = 0

    def flush() -> None:
        nonlocal G, filled
        columns = panel[:filled].T  # column-contiguous: no copy on the way to BLAS
        if single:
            G += ssyrk(1.0, columns, lower=True)
        else:
            G = dsyrk(1.0, columns, beta=1.0, c=G, lower=True, overwrite_c=True)
        filled = 0

    read = 0
    for rows, block in blocks:
        block = to_numpy(block)
        start = 0
        while start < len(block):
            taken = min(height - filled, len(block) - start)
            target, part = panel[filled : filled + taken], block[start : start + taken]
            at = slice(rows.start + start, rows.start + start + taken)
            A += part.T @ V[at]
            if shift is None:
                target[...] = part
            else:
                np.multiply.outer(shift[0][at], shift[1], out=target)
                np.subtract(part, target, out=target, casting="same_kind")
            filled, start = filled + taken, start + taken
            if filled == height:
                flush()
        read += len(block)
        if report is not None:
            report(read)
    if filled:
        flush()
    G += np.tril(G, -1).T
    return G, A


def _accumulate_on_device(
    blocks: Iterable[tuple[slice, Array]],
    first: Array,
    m: int,
    V: np.ndarray,
    report: Report | None,
    shift: Shift | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return what `accumulate` does from blocks on a device, by one product for each of them."""
    G, A = (to_device_of(first, np.zeros(shape)) for shape in ((m, m), (m, *V.shape[1:])))
    mean = None if shift is None else asarray_like(first, shift[1])
    for rows, block in blocks:
        A += block.T @ asarray_like(first, V[rows])
        if shift is not None:
            block = block - asarray_like(first, shift[0][rows])[:, None] * mean
        G += block.T @ block
        if report is not None:
            report(rows.stop)
    return to_numpy(G), to_numpy(A)
