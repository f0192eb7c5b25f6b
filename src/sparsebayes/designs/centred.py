"""Wrapping designs: rows with weights, and columns with the intercept integrated out.

Both change the row model and nothing else, so that the mean and the variance of a prediction cannot
disagree about it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .._array import Array, is_torch, namespace, on_same_device, squared_lengths, to_numpy
from ..kernels import Kernel
from ..rows import row_slices
from ..rows._base import Report, Rows
from ._base import ALL, Basis, CentredBasis, Design, Index, Shift

# Shares of |phi|^2. A difference |phi|^2 - (u'phi)^2 above the first has enough digits for a
# search, one below the second is rounding error, and a column of less than the third is constant.
_ACCURATE = 1e-4
_ROUNDING = 1e-10
CONSTANT = (64.0 * np.finfo(np.float64).eps) ** 2

_TINY = 1e-150  # the square of a smaller number underflows float64
_CACHE_ELEMENTS = 2**17  # numbers of a block of columns


class WrappedDesign(Design):
    """Another view of the columns of a design; everything that the view keeps is forwarded.

    Parameters
    ----------
    base : Design
        The design that is wrapped.
    """

    def __init__(self, base: Design) -> None:
        self.base = base
        self.n_rows, self.n_candidates = base.n_rows, base.n_candidates
        self.has_fast_products = base.has_fast_products
        self.has_cheap_sqnorms = base.has_cheap_sqnorms

    @property
    def n_observations(self) -> float:
        """Degrees of freedom of the wrapped design."""
        return self.base.n_observations

    @property
    def log_volume(self) -> float:
        """Log volume of the wrapped design."""
        return self.base.log_volume

    @property
    def offset_scale(self) -> float:
        """Offset scale of the wrapped design."""
        return self.base.offset_scale

    @property
    def intercept(self) -> bool:
        """True where the wrapped design has an intercept."""
        return self.base.intercept

    @property
    def unweighted(self) -> Design:
        """These columns on rows that are neither weighted nor centred."""
        return self.base.unweighted

    @property
    def root_weight(self) -> np.ndarray:
        """Roots of the row weights of the wrapped design."""
        return self.base.root_weight

    def target(self, t: np.ndarray) -> np.ndarray:
        """Return the target as the wrapped design transforms it."""
        return self.base.target(t)

    def offset(self, t: np.ndarray) -> float | np.ndarray:
        """Return what the wrapped design subtracts from the target."""
        return self.base.offset(t)

    @property
    def kernel(self) -> Kernel | None:
        """Kernel of the wrapped design."""
        return self.base.kernel

    @property
    def stationary(self) -> bool:
        """True where the columns are functions of a stationary kernel."""
        return self.base.stationary

    @property
    def lazy(self) -> bool:
        """True where each pass evaluates the columns again."""
        return self.base.lazy

    @property
    def inputs(self) -> Array | Rows | None:
        """Rows that the columns are functions of."""
        return self.base.inputs

    @property
    def n_distinct_inputs(self) -> int:
        """Number of different rows of `inputs`."""
        return self.base.n_distinct_inputs

    @property
    def column_scale(self) -> np.ndarray:
        """Factor that each column of X was multiplied by."""
        return self.base.column_scale

    def place(self, values: Array) -> Array:
        """Return `values` on the device of the blocks."""
        return self.base.place(values)


class WeightedDesign(WrappedDesign):
    """A design in which row i counts `sample_weight[i]` times.

    A row repeated v times enters the likelihood v times: its residual is scaled by sqrt(v) in the
    sum of squares, and it contributes v degrees of freedom to N.

    Parameters
    ----------
    base : Design
        The design without weights.
    sample_weight : array of shape (n_rows,)
        Weights, not negative; a row of weight 0 does not enter.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign, WeightedDesign
    >>> WeightedDesign(DenseDesign(np.ones((2, 1))), np.array([1.0, 4.0])).n_observations
    5.0
    """

    def __init__(self, base: Design, sample_weight: np.ndarray) -> None:
        super().__init__(base)
        self._root = np.sqrt(sample_weight)
        self._total = float(np.sum(sample_weight))

    @property
    def n_observations(self) -> float:
        """Sum of the weights."""
        return self._total

    @property
    def root_weight(self) -> np.ndarray:
        """Square root of the weight of each row."""
        return self._root

    @property
    def n_distinct_inputs(self) -> int:
        """Number of different rows of `inputs`; rows of weight zero do not count."""
        return min(self.base.n_distinct_inputs, int(np.count_nonzero(self._root)))

    def target(self, t: np.ndarray) -> np.ndarray:
        """Return the weighted target."""
        root = on_same_device(t, self._root)
        return root * t if t.ndim == 1 else (root * t.T).T

    def local_project(self, V: Array, idx: Index = ALL) -> Array:
        """Return Phi'V, with V weighted instead of the columns."""
        return self.base.local_project(self.target(V), idx)

    def squares(self, v: np.ndarray) -> np.ndarray:
        """Return sum_i v_i phi_ij^2 for each j, with v weighted instead of the columns."""
        return self.base.squares(self._root**2 * v)

    def sqnorms(self) -> np.ndarray:
        """Return the squared length of each weighted column."""
        return self.base.squares(self._root**2)

    def shifted_moments(
        self,
        V: np.ndarray,
        single: bool = False,
        report: Report | None = None,
        shift: Shift | None = None,
        root: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the moments of the weighted rows, computed by the wrapped design."""
        root = self._root if root is None else root * self._root
        return self.base.shifted_moments(V, single, report, shift, root)

    def triangle(
        self,
        T: np.ndarray,
        idx: Index = ALL,
        shift: Shift | None = None,
        root: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the triangle of the weighted rows, computed by the wrapped design."""
        root = self._root if root is None else root * self._root
        return self.base.triangle(T, idx, shift, root)

    def blocks(self, idx: Index = ALL) -> Iterator[tuple[slice, Array]]:
        """Yield the weighted columns."""
        for rows, block in self.base.blocks(idx):
            yield rows, block * on_same_device(block, self._root[rows])[:, None]

    def remove_offsets(self) -> tuple[Design, np.ndarray]:
        """Return the wrapped design less its offsets with the same weights, and the offsets."""
        near, offsets = self.base.remove_offsets()
        return (self if near is self.base else WeightedDesign(near, self._root**2)), offsets

    def basis(self, idx: np.ndarray) -> Basis:
        """Return the functions behind the columns `idx`, which do not depend on the weights."""
        return self.base.basis(idx)


class CentredDesign(WrappedDesign):
    """Columns and target orthogonal to the intercept, which has a flat prior and is integrated out.

    With v the total weight of the rows, the evidence loses one degree of freedom and log(v)/2, and
    the intercept has the variance sigma2/v, independent of the weights. A column that is constant
    up to rounding becomes exactly zero, so that its rounding error is not a candidate.

    Means and products are those of columns less an offset, where it can be subtracted exactly: of
    a column at 1e8 the mean alone would have an error of several units in the last place.

    Parameters
    ----------
    base : Design
        The design without an intercept; it may have weights.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import CentredDesign, DenseDesign
    >>> CentredDesign(DenseDesign(np.array([[1.0], [3.0]]))).dense().ravel()
    array([-1.,  1.])
    """

    def __init__(self, base: Design) -> None:
        near, self._offsets = base.remove_offsets()
        super().__init__(near)
        self._uncentred = base
        unit = base.root_weight
        self._total = float(unit @ unit)
        self._floor = self._total * self._offsets**2  # of the squared length of a whole column
        self._direction = unit / np.sqrt(self._total)  # u
        self._directions: dict[object, Array] = {}  # u on a device, by dtype
        self._along = np.full(self.n_candidates, np.nan)  # u'phi_j, measured when first needed
        self._constant = np.zeros(self.n_candidates, dtype=bool)
        self._norms: np.ndarray | None = None  # squared lengths, measured when first needed

    @property
    def n_observations(self) -> float:
        """Degrees of freedom, one less than those of the wrapped design."""
        return self.base.n_observations - 1.0

    @property
    def log_volume(self) -> float:
        """Term that integrating out the intercept adds to the log evidence."""
        return self.base.log_volume - 0.5 * np.log(self._total)

    @property
    def offset_scale(self) -> float:
        """Variance of the intercept in units of the noise variance."""
        return 1.0 / self._total

    @property
    def intercept(self) -> bool:
        """True: an intercept is integrated out."""
        return True

    @property
    def uncentred(self) -> Design:
        """The columns before the intercept was integrated out."""
        return self._uncentred

    @property
    def unweighted(self) -> Design:
        """These columns on rows that are neither weighted nor centred."""
        return self._uncentred.unweighted

    @property
    def inputs(self) -> Array | Rows | None:
        """Rows that the columns are functions of."""
        return self._uncentred.inputs

    def target(self, t: np.ndarray) -> np.ndarray:
        """Return the centred target."""
        return self._centre(self.base.target(t))

    def offset(self, t: np.ndarray) -> float | np.ndarray:
        """Return the weighted mean of the target."""
        return self._direction @ self.base.target(t) / np.sqrt(self._total)

    def local_project(self, V: Array, idx: Index = ALL) -> Array:
        """Return Phi'V, with V centred instead of the columns, whose means it does not need."""
        return self.base.local_project(self._centre(V), idx)

    def blocks(self, idx: Index = ALL) -> Iterator[tuple[slice, Array]]:
        """Yield the centred columns."""
        along = self._means(idx)
        for rows, block in self.base.blocks(idx):
            yield rows, self._centre_block(rows, block, along, idx)

    def local_columns(self, idx: Index, single: bool = False) -> Array:
        """Return the centred columns on the device of the blocks."""
        if not self.has_tensors:
            return self.columns(idx)
        columns = self.base.local_columns(idx, single)
        return self._centre_block(ALL, columns, self._means(idx), idx)

    def _centre_block(self, rows: slice, block: Array, along: np.ndarray, idx: Index) -> Array:
        constant = np.flatnonzero(self._constant[idx])
        block = block - self._direction_for(block)[rows, None] * on_same_device(block, along)
        if len(constant):
            block[:, constant] = 0.0
        return block

    def columns(self, idx: Index) -> np.ndarray:
        """Return the centred columns; means that are not known yet come from the same pass."""
        u, uncentred = self._direction, self.base.columns(idx)
        along, constant, floor = (x[idx] for x in (self._along, self._constant, self._floor))
        k = uncentred.shape[1]
        out = np.empty((self.n_rows, k), order="F")
        for cols in row_slices(k, max(1, _CACHE_ELEMENTS // max(1, self.n_rows))):
            part, centred = uncentred[:, cols], out[:, cols]
            new = np.isnan(along[cols])
            if new.any():
                along[cols] = np.where(new, u @ part, along[cols])
            np.subtract(part, np.multiply.outer(along[cols], u).T, out=centred)
            if new.any():
                lengths, norms = (np.einsum("ij,ij->j", x, x) for x in (part, centred))
                lengths = np.maximum(lengths, floor[cols])
                constant[cols] = np.where(new, norms <= CONSTANT * lengths, constant[cols])
        self._along[idx], self._constant[idx] = along, constant
        out[:, constant] = 0.0
        return out

    def sqnorms(self) -> np.ndarray:
        """Return the squared length of each centred column."""
        if not self.has_fast_products:
            if self._norms is None:
                self._norms = super().sqnorms()
            return self._norms.copy()
        lengths, along = self.base.sqnorms(), self.base.project(self._direction)
        norms = lengths - along**2
        return np.where(norms > _ROUNDING * lengths, norms, 0.0)

    def moments(
        self, V: np.ndarray, single: bool = False, report: Report | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return Phi'Phi and Phi'V from one pass, without another one for the means.

        The means of the first block are subtracted from the columns as they are read, and the
        remainder, which is small, from the result: Phi_c'Phi_c = Z'Z - (Z'u)(Z'u)' for any shift.
        """
        u, unit = self._direction, self.base.root_weight
        rows, block = next(iter(self.base.blocks()))
        size = float(unit[rows] @ unit[rows])
        shift = to_numpy(block.T @ on_same_device(block, unit[rows])) / (size if size > 0 else 1.0)
        V = self._centre(V)
        G, A = self.base.shifted_moments(np.column_stack([V, u]), single, report, (unit, shift))
        A, along = A[:, :-1].reshape(self.n_candidates, *V.shape[1:]), A[:, -1].copy()
        remainder = along - shift * np.sqrt(self._total)
        G -= np.multiply.outer(remainder, remainder)
        constant = np.diag(G) <= CONSTANT * np.maximum(along**2, self._floor)
        G[constant] = 0.0
        G[:, constant] = 0.0
        A[constant] = 0.0
        self._along, self._constant = along, constant
        return G, A

    def triangle(
        self,
        T: np.ndarray,
        idx: Index = ALL,
        shift: Shift | None = None,
        root: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the triangle of the centred columns, computed by the wrapped design."""
        if shift is not None or root is not None:
            return super().triangle(T, idx, shift, root)
        u = self._direction_for(self.place(np.zeros(0)))
        R = self.base.triangle(T, idx, (u, self._means(idx)))
        R[:, np.flatnonzero(self._constant[idx])] = 0.0
        return R

    def basis(self, idx: np.ndarray) -> Basis:
        """Return the functions behind the columns `idx` minus their means."""
        means = self._offsets[idx] + self._means(idx) / np.sqrt(self._total)
        return CentredBasis(self._uncentred.basis(idx), means)

    def sqnorms_and_products(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return phi'phi and phi't of every candidate; t is orthogonal to the intercept.

        One pass gives the means as well: phi'phi = |column|^2 - (u'column)^2 with the direction u
        of the intercept. Columns for which that difference has lost digits are measured again.
        """
        if self.has_cheap_sqnorms:
            return self.sqnorms(), self.project(t)
        lengths, products, along = self.base.sums_along(t, self._direction)
        with np.errstate(over="ignore", invalid="ignore"):
            norms = lengths - np.square(along)
        accurate = norms >= np.maximum(_ACCURATE * lengths, _ROUNDING * self._floor)
        self._along[accurate] = along[accurate]
        doubtful = np.flatnonzero(~accurate & ~np.isnan(norms))
        if len(doubtful):
            norms[doubtful] = 0.0
            products[doubtful] = 0.0
            for rows, block in self.blocks(doubtful):
                values = to_numpy(block)
                norms[doubtful] += np.einsum("ij,ij->j", values, values)
                products[doubtful] += values.T @ t[rows]
        return norms, products

    def _direction_for(self, array: Array) -> Array:
        """Return u on the device and in the dtype of `array`, copied there once."""
        if not (self.has_tensors and is_torch(array)):
            return self._direction
        if array.dtype not in self._directions:
            self._directions[array.dtype] = on_same_device(array, self._direction)
        return self._directions[array.dtype]

    def _centre(self, V: Array) -> Array:
        """Return V minus its projection on u."""
        u = self._direction_for(V)
        return V - (u * (u @ V) if V.ndim == 1 else namespace(V).tensordot(u, u @ V, 0))

    def _means(self, idx: Index) -> np.ndarray:
        """Return u'phi of the columns `idx`, measuring those that are not known yet."""
        missing = np.arange(self.n_candidates)[idx] if isinstance(idx, slice) else idx
        missing = missing[np.isnan(self._along[missing])]
        if len(missing):
            self._measure(ALL if len(missing) == self.n_candidates else missing)
        return self._along[idx]

    def _measure(self, idx: Index) -> np.ndarray:
        """Measure u'phi of the columns `idx` and which are constant; return their sqnorms."""
        along, lengths = self._sums(idx)
        self._along[idx] = along
        norms = lengths - along**2
        lengths = np.maximum(lengths, self._floor[idx])
        doubtful = np.flatnonzero(norms < _ROUNDING * lengths)
        if len(doubtful):  # measured directly
            columns = np.arange(self.n_candidates)[idx][doubtful]
            squares = np.zeros(len(columns))
            for rows, block in self.base.blocks(columns):
                centred = to_numpy(block) - np.multiply.outer(
                    self._direction[rows], along[doubtful]
                )
                squares += np.einsum("ij,ij->j", centred, centred)
            self._constant[columns] = squares <= CONSTANT * lengths[doubtful]
            norms[doubtful] = np.where(self._constant[columns], 0.0, squares)
        return norms

    def _sums(self, idx: Index) -> tuple[np.ndarray, np.ndarray]:
        """Return u'phi and phi'phi of the uncentred columns `idx` from one pass."""
        along = np.zeros(self.n_selected(idx))
        lengths = np.zeros_like(along)
        for rows, block in self.base.blocks(idx):
            along += to_numpy(block.T @ on_same_device(block, self._direction[rows]))
            lengths += squared_lengths(block)
        return along, lengths


def check_columns(design: Design, norms: np.ndarray) -> None:
    """Raise a ValueError if the squared lengths of the columns overflow or all underflow.

    Parameters
    ----------
    design : Design
        The columns.
    norms : array of shape (n_candidates,)
        Their squared lengths: ``design.sqnorms()``.
    """
    if not np.all(np.isfinite(norms)):
        raise ValueError(
            "The columns are too large: their squares overflow float64. Rescale X, for "
            "example with StandardScaler, or use another kernel."
        )
    if not np.any(norms) and design.n_rows > 1 and _underflow(design.unweighted):
        raise ValueError(
            "The columns are too small: their squares underflow float64. Rescale X, for "
            "example with StandardScaler, or use another kernel."
        )


def _underflow(design: Design) -> bool:
    """Return whether a column varies by so little that the squares underflow."""
    first = None
    for _, block in design.blocks():
        values = to_numpy(block)
        first = values[:1] if first is None else first
        if np.any((values != first) & (np.abs(values) < _TINY) & (np.abs(first) < _TINY)):
            return True
    return False
