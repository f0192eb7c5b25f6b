"""Candidates that are columns of a matrix: in memory, on disk, or in place of a larger one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .._array import Array, asarray_like, is_torch, to_device_of, to_numpy
from ..rows import row_slices
from ._base import ALL, Basis, ColumnBasis, Design, Index

_PART = 2**22  # numbers that are converted to float64 at a time
_FIRST = 64  # rows that show of most columns that they have no offset
_LITTLE = 1e-3  # share of its values by which a column with an offset varies


class DenseDesign(Design):
    """The columns of a matrix as candidates.

    Parameters
    ----------
    matrix : array of shape (n_rows, n_columns)
        NumPy array or torch tensor.
    indices : array of int, optional
        Numbers of these columns in the X given to `predict` (default: in order).
    scale : array of float, optional
        Factor that each column of X was multiplied by to give this matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> DenseDesign(np.eye(3)).project(np.array([1.0, 2.0, 3.0]))
    array([1., 2., 3.])
    """

    def __init__(
        self, matrix: Array, indices: np.ndarray | None = None, scale: np.ndarray | None = None
    ) -> None:
        self.matrix: Array = matrix if is_torch(matrix) else np.asarray(matrix, dtype=np.float64)
        self.n_rows, self.n_candidates = self.matrix.shape
        self.indices = np.arange(self.n_candidates) if indices is None else np.asarray(indices)
        self._scale = np.ones(self.n_candidates) if scale is None else np.asarray(scale)

    @property
    def column_scale(self) -> np.ndarray:
        """Factor that each column of X was multiplied by."""
        return self._scale

    @property
    def inputs(self) -> Array | None:
        """The matrix itself."""
        return self.matrix

    def blocks(self, idx: Index = ALL) -> Iterator[tuple[slice, Array]]:
        """Yield views of the matrix, in blocks so that a wrapping design copies one at a time."""
        device = is_torch(self.matrix)
        step = 2**24 // max(1, self.n_selected(idx)) + 1 if device else 4096
        for rows in row_slices(self.n_rows, step):
            block = self.matrix[rows, idx]
            yield rows, block.double() if is_torch(block) else block

    def place(self, values: Array) -> Array:
        """Return `values` on the device of the matrix."""
        return to_device_of(self.matrix, values)

    def columns(self, idx: Index) -> np.ndarray:
        """Return the exact columns `idx`."""
        return np.asfortranarray(to_numpy(self.matrix[:, idx]))

    def local_project(self, V: Array, idx: Index = ALL) -> Array:
        """Return Phi'V as one product."""
        if is_torch(self.matrix):
            return super().local_project(V, idx)
        columns = self.matrix[:, idx]
        # A few vectors as rows: BLAS reads the columns at up to twice the speed.
        return to_numpy(columns.T @ V if V.ndim == 1 else (V.T @ columns).T)

    def remove_offsets(self) -> tuple[Design, np.ndarray]:
        """Return the columns less their first values, where these are nearly all of the column.

        The difference of two numbers is exact if neither is twice the other (Sterbenz). A column
        that varies by more than a thousandth of its values has enough digits as it is.
        """
        offsets = np.zeros(self.n_candidates)
        if self.n_rows == 0:
            return self, offsets
        far = np.flatnonzero(_vary_little(self.matrix[:_FIRST]))
        far = far[_vary_little(self.matrix[:, far])]
        if len(far) == 0:
            return self, offsets
        offsets[far] = to_numpy(self.matrix[0, far])
        near = self.matrix - asarray_like(self.matrix, offsets)
        return DenseDesign(near, self.indices, self._scale), offsets

    def basis(self, idx: np.ndarray) -> Basis:
        """Return the columns `idx` as functions of X."""
        return ColumnBasis(self.indices[idx], self._scale[idx])


def _vary_little(matrix: Array) -> np.ndarray:
    """Return which columns vary, but by at most a thousandth of their values."""
    if is_torch(matrix):
        low, high = to_numpy(matrix.amin(0)), to_numpy(matrix.amax(0))
    else:
        low, high = matrix.min(axis=0), matrix.max(axis=0)
    with np.errstate(over="ignore"):
        return np.asarray((high > low) & (high - low <= _LITTLE * np.maximum(low, -high)))


class StoredDesign(DenseDesign):
    """Columns of a matrix that keeps its type and is converted to float64 one part at a time.

    It is meant for memory maps and for types smaller than float64, such as single precision or
    counts in a byte.

    Parameters
    ----------
    matrix : array of shape (n_rows, n_columns)
        An array of any real type.
    scale : float, default=1.0
        Factor that the columns are multiplied by.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs.dense import StoredDesign
    >>> StoredDesign(np.eye(3, dtype=np.int8)).project(np.array([1.0, 2.0, 3.0]))
    array([1., 2., 3.])
    """

    def __init__(self, matrix: np.ndarray, scale: float = 1.0) -> None:
        self.matrix = matrix
        self.n_rows, self.n_candidates = matrix.shape
        self.indices, self._scale = np.arange(self.n_candidates), np.full(self.n_candidates, scale)
        self._unit = scale

    def blocks(self, idx: Index = ALL) -> Iterator[tuple[slice, Array]]:
        """Yield the columns in float64, a few rows at a time."""
        idx = _as_slice(idx)
        for rows in row_slices(self.n_rows, max(1, _PART // max(1, self.n_selected(idx)))):
            block = self.matrix[rows, idx].astype(np.float64)
            block *= self._unit
            yield rows, block

    def columns(self, idx: Index) -> np.ndarray:
        """Return the exact columns `idx`."""
        out = self.matrix[:, _as_slice(idx)].astype(np.float64, order="F")
        out *= self._unit
        return np.asarray(out)

    def local_project(self, V: Array, idx: Index = ALL) -> Array:
        """Return Phi'V, summed over blocks."""
        return Design.local_project(self, V, idx)

    def remove_offsets(self) -> tuple[Design, np.ndarray]:
        """Return the design itself: its matrix is not copied."""
        return Design.remove_offsets(self)


def _as_slice(idx: Index) -> Index:
    """Return consecutive columns as a slice, which is read without a copy."""
    if isinstance(idx, slice) or len(idx) == 0 or not np.all(np.diff(idx) == 1):
        return idx
    return slice(int(idx[0]), int(idx[-1]) + 1)


@dataclass(frozen=True)
class RowCounts:
    """Row model of rows with this total weight, for a `CompressedDesign` without a design."""

    total: float
    intercept: bool

    @property
    def n_observations(self) -> float:
        """Total weight, less one degree of freedom for an intercept."""
        return self.total - 1.0 if self.intercept else self.total

    @property
    def log_volume(self) -> float:
        """Term that integrating out the intercept adds to the log evidence."""
        return -0.5 * float(np.log(self.total)) if self.intercept else 0.0

    @property
    def offset_scale(self) -> float:
        """Variance of the intercept in units of the noise variance."""
        return 1.0 / self.total if self.intercept else 0.0


class CompressedDesign(DenseDesign):
    """A small matrix F that replaces the columns of a large design.

    If F'F = Phi'Phi and the target is rotated with it (F'z = Phi't, z'z = t't), every Gaussian
    posterior and evidence is the same; N, the volume and the intercept are those of the design.

    Parameters
    ----------
    matrix : array of shape (n_rows, n_columns)
        The matrix F.
    source : Design or RowCounts
        The design that it replaces, or its row model.
    functions : Basis or None
        The functions behind the columns, if they are functions.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import CompressedDesign, DenseDesign
    >>> design = DenseDesign(np.ones((100, 1)))
    >>> small = CompressedDesign(np.array([[10.0]]), design, design.basis(np.array([0])))
    >>> small.n_rows, small.n_observations
    (1, 100.0)
    """

    def __init__(
        self, matrix: np.ndarray, source: Design | RowCounts, functions: Basis | None
    ) -> None:
        super().__init__(matrix)
        self.functions = functions
        self._n_observations = source.n_observations
        self._log_volume = source.log_volume
        self._offset_scale = source.offset_scale
        self._intercept = source.intercept
        if functions is not None:
            self._scale = functions.scale

    @property
    def inputs(self) -> Array | None:
        """The rows of F are not those of the data: None."""
        return None

    @property
    def intercept(self) -> bool:
        """True if the design that it replaces has an intercept."""
        return self._intercept

    @property
    def n_observations(self) -> float:
        """Degrees of freedom of the design that it replaces."""
        return self._n_observations

    @property
    def log_volume(self) -> float:
        """Log volume of the design that it replaces."""
        return self._log_volume

    @property
    def offset_scale(self) -> float:
        """Offset scale of the design that it replaces."""
        return self._offset_scale

    def basis(self, idx: np.ndarray) -> Basis:
        """Return the functions behind the columns `idx`."""
        if self.functions is None:
            raise TypeError(
                "These columns are scores only; they are not functions of X and cannot be "
                "evaluated at new rows."
            )
        return self.functions.take(idx)
