"""Wrapping designs: rows with weights, and columns with the intercept integrated out.

Both change how the rows enter and nothing else, so the mean and the variance of a prediction
cannot disagree about them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._array import Array, is_torch, namespace, on_same_device, squared_lengths, to_numpy
from ..kernels import Kernel
from ..rows._base import Report, Rows
from ._base import ALL, Basis, CentredBasis, Design, Index, Shift, row_slices

_ACCURATE = 1e-4  # of |phi|^2: what is left after centring has enough digits above this
_INDISTINCT = 1e-10  # of |phi|^2: a variance below it is lost in a transform
CONSTANT = (64.0 * np.finfo(np.float64).eps) ** 2  # of |phi|^2: what rounding leaves of a constant

_TINY = 1e-150  # squares of smaller numbers are not in float64
_IN_CACHE = 2**17  # numbers of a block of columns


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
        self.has_fast_products, self.has_cheap_sqnorms = (
            base.has_fast_products,
            base.has_cheap_sqnorms,
        )

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
        """Whether the wrapped design has an intercept."""
        return self.base.intercept

    @property
    def unweighted(self) -> Design:
        """The same columns on rows that are neither weighted nor centred."""
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
        """Whether the columns are functions of a stationary kernel."""
        return self.base.stationary

    @property
    def lazy(self) -> bool:
        """Whether each pass evaluates the columns again."""
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

    def place(self, values: Any) -> Array:
        """Return `values` on the device of the blocks."""
        return self.base.place(values)


class WeightedDesign(WrappedDesign):
    """Row i counts `sample_weight[i]` times.

    A row repeated v times multiplies the likelihood v times, which is a row scaled by sqrt(v) in
    the sum of squares and v degrees of freedom in N.

    Parameters
    ----------
    base : Design
        Without weights.
    sample_weight : array of shape (n_rows,)
        Not negative; a row of weight 0 has no part.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign, WeightedDesign
    >>> WeightedDesign(DenseDesign(np.ones((2, 1))), np.array([1.0, 4.0])).n_observations
    5.0
    """

    def __init__(self, base: Design, sample_weight: np.ndarray) -> None:
        super().__init__(base)
        self.root = np.sqrt(sample_weight)
        self._total = float(np.sum(sample_weight))

    @property
    def n_observations(self) -> float:
        """The sum of the weights."""
        return self._total

    @property
    def root_weight(self) -> np.ndarray:
        """Square root of the weight of each row."""
        return self.root

    @property
    def n_distinct_inputs(self) -> int:
        """Number of different rows of `inputs`; rows of weight zero have no part."""
        return min(self.base.n_distinct_inputs, int(np.count_nonzero(self.root)))

    def target(self, t: np.ndarray) -> np.ndarray:
        """Return the weighted target."""
        root = on_same_device(t, self.root)
        return root * t if t.ndim == 1 else (root * t.T).T

    def local_project(self, V: Any, idx: Index = ALL) -> Any:
        """Phi'V; weighting V instead of the columns."""
        return self.base.local_project(self.target(V), idx)

    def squares(self, v: np.ndarray) -> np.ndarray:
        """Sums of squares; weighting v instead of the columns."""
        return self.base.squares(self.root**2 * v)

    def sqnorms(self) -> np.ndarray:
        """Squared length of each weighted column."""
        return self.base.squares(self.root**2)

    def shifted_moments(
        self,
        V: np.ndarray,
        single: bool = False,
        report: Report | None = None,
        shift: Shift | None = None,
        root: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Moments of the weighted rows, where the rows are."""
        root = self.root if root is None else root * self.root
        return self.base.shifted_moments(V, single, report, shift, root)

    def triangle(self, T: Any, idx: Index = ALL, shift: Any = None, root: Any = None) -> Any:
        """R of the weighted rows, where the rows are."""
        root = self.root if root is None else root * self.root
        return self.base.triangle(T, idx, shift, root)

    def blocks(self, idx: Index = ALL) -> Iterator[tuple[slice, Any]]:
        """Weighted columns."""
        for rows, block in self.base.blocks(idx):
            yield rows, block * on_same_device(block, self.root[rows])[:, None]

    def basis(self, idx: np.ndarray) -> Basis:
        """The functions do not know of weights."""
        return self.base.basis(idx)


class CentredDesign(WrappedDesign):
    """Columns and target orthogonal to the intercept, which has a flat prior and is integrated out.

    With v the total weight of the rows the evidence loses one degree of freedom and
    log(v)/2, and the intercept keeps the variance sigma2/v beside the weights. A column that is
    constant up to rounding becomes exactly zero: its rounding error is no candidate.

    Parameters
    ----------
    base : Design
        Without an intercept; it may have weights.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import CentredDesign, DenseDesign
    >>> CentredDesign(DenseDesign(np.array([[1.0], [3.0]]))).dense().ravel()
    array([-1.,  1.])
    """

    def __init__(self, base: Design) -> None:
        super().__init__(base)
        unit = base.root_weight
        self._total = float(unit @ unit)
        self._direction = unit / np.sqrt(self._total)
        self._there: dict[Any, Any] = {}  # the same on a device, by dtype
        self._along = np.full(self.n_candidates, np.nan)  # u'phi_j, filled when first asked for
        self._constant = np.zeros(self.n_candidates, dtype=bool)
        self._norms: np.ndarray | None = None  # squared, likewise

    @property
    def n_observations(self) -> float:
        """One degree of freedom goes to the intercept."""
        return self.base.n_observations - 1.0

    @property
    def log_volume(self) -> float:
        """From the integral over the intercept."""
        return self.base.log_volume - 0.5 * np.log(self._total)

    @property
    def offset_scale(self) -> float:
        """Variance of the intercept over the noise variance."""
        return 1.0 / self._total

    @property
    def intercept(self) -> bool:
        """Whether an intercept is integrated out: it is."""
        return True

    @property
    def uncentred(self) -> Design:
        """The columns before the intercept was integrated out."""
        return self.base

    def target(self, t: np.ndarray) -> np.ndarray:
        """Return the centred target."""
        return self._remove(self.base.target(t))

    def offset(self, t: np.ndarray) -> float | np.ndarray:
        """Return the weighted mean of the target."""
        return self._direction @ self.base.target(t) / np.sqrt(self._total)

    def local_project(self, V: Any, idx: Index = ALL) -> Any:
        """Phi'V; centring V instead of the columns saves their means."""
        return self.base.local_project(self._remove(V), idx)

    def blocks(self, idx: Index = ALL) -> Iterator[tuple[slice, Any]]:
        """Centred columns."""
        along = self._means(idx)
        for rows, block in self.base.blocks(idx):
            yield rows, self._centred(rows, block, along, idx)

    def local_columns(self, idx: Index, single: bool = False) -> Any:
        """Centred columns, where those without centring are."""
        if not is_torch(self.place(np.zeros(0))):
            return self.columns(idx)
        return self._centred(ALL, self.base.local_columns(idx, single), self._means(idx), idx)

    def _centred(self, rows: slice, block: Any, along: np.ndarray, idx: Index) -> Any:
        constant = np.flatnonzero(self._constant[idx])
        block = block - self._direction_beside(block)[rows, None] * on_same_device(block, along)
        if len(constant):
            block[:, constant] = 0.0
        return block

    def columns(self, idx: Index) -> np.ndarray:
        """Centred columns; means not known yet come from the same read."""
        u, out = self._direction, self.base.columns(idx)
        along, constant = self._along[idx], self._constant[idx]
        centred = np.empty(out.shape, order="F")
        for some in row_slices(out.shape[1], max(1, _IN_CACHE // max(1, self.n_rows))):
            part, left = out[:, some], centred[:, some]
            new = np.isnan(along[some])
            if new.any():
                along[some] = np.where(new, u @ part, along[some])
            np.subtract(part, np.multiply.outer(along[some], u).T, out=left)
            if new.any():
                total, rest = (np.einsum("ij,ij->j", x, x) for x in (part, left))
                constant[some] = np.where(new, rest <= CONSTANT * total, constant[some])
        self._along[idx], self._constant[idx] = along, constant
        centred[:, constant] = 0.0
        return centred

    def sqnorms(self) -> np.ndarray:
        """Squared length of each candidate column."""
        if not self.has_fast_products:
            if self._norms is None:
                self._norms = super().sqnorms()
            return self._norms.copy()
        norms, along = self.base.sqnorms(), self.base.project(self._direction)
        left = norms - along**2
        return np.where(left > _INDISTINCT * norms, left, 0.0)

    def moments(
        self, V: np.ndarray, single: bool = False, report: Report | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Phi'Phi and Phi'V without a pass of its own for the means.

        The columns lose the means of the first block while they are read, and the rest, which is
        small, from the result: Phi_c'Phi_c = Z'Z - (Z'u)(Z'u)' for any shift.
        """
        u, unit = self._direction, self.base.root_weight
        rows, block = next(iter(self.base.blocks()))
        size = float(unit[rows] @ unit[rows])
        shift = to_numpy(block.T @ on_same_device(block, unit[rows])) / (size if size > 0 else 1.0)
        V = self._remove(V)
        G, A = self.base.shifted_moments(np.column_stack([V, u]), single, report, (unit, shift))
        A, along = A[:, :-1].reshape(self.n_candidates, *V.shape[1:]), A[:, -1].copy()
        rest = along - shift * np.sqrt(self._total)
        G -= np.multiply.outer(rest, rest)
        constant = np.diag(G) <= CONSTANT * along**2
        G[constant] = 0.0
        G[:, constant] = 0.0
        A[constant] = 0.0
        self._along, self._constant = along, constant
        return G, A

    def triangle(self, T: Any, idx: Index = ALL, shift: Any = None, root: Any = None) -> Any:
        """R of the centred columns, where the rows are."""
        if shift is not None or root is not None:
            return super().triangle(T, idx, shift, root)
        u = self._direction_beside(self.place(np.zeros(0)))
        R = self.base.triangle(T, idx, (u, self._means(idx)))
        R[:, np.flatnonzero(self._constant[idx])] = 0.0
        return R

    def basis(self, idx: np.ndarray) -> Basis:
        """The functions less their means."""
        return CentredBasis(self.base.basis(idx), self._means(idx) / np.sqrt(self._total))

    def sqnorms_and_products(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return phi'phi and phi't of every candidate; t is orthogonal to the intercept.

        One pass gives the means as well: phi'phi = |column|^2 - (u'column)^2 with the direction u
        of the intercept. Columns for which that difference has lost its digits are measured again.
        """
        if self.has_cheap_sqnorms:
            return self.sqnorms(), self.project(t)
        lengths, products, along = self.base.sums_along(t, self._direction)
        with np.errstate(over="ignore", invalid="ignore"):
            norms = lengths - np.square(along)
        accurate = norms >= _ACCURATE * lengths
        self._along[accurate] = along[accurate]
        doubtful = np.flatnonzero(norms < _ACCURATE * lengths)
        if len(doubtful):
            norms[doubtful] = 0.0
            products[doubtful] = 0.0
            for rows, block in self.blocks(doubtful):
                values = to_numpy(block)
                norms[doubtful] += np.einsum("ij,ij->j", values, values)
                products[doubtful] += values.T @ t[rows]
        return norms, products

    def _direction_beside(self, array: Any) -> Any:
        if not is_torch(array):
            return self._direction
        if array.dtype not in self._there:  # once: it is as long as the data
            self._there[array.dtype] = on_same_device(array, self._direction)
        return self._there[array.dtype]

    def _remove(self, V: Any) -> Any:
        u = self._direction_beside(V)
        return V - (u * (u @ V) if V.ndim == 1 else namespace(V).tensordot(u, u @ V, 0))

    def _means(self, idx: Index) -> np.ndarray:
        missing = np.arange(self.n_candidates)[idx] if isinstance(idx, slice) else idx
        missing = missing[np.isnan(self._along[missing])]
        if len(missing):
            self._measure(ALL if len(missing) == self.n_candidates else missing)
        return self._along[idx]

    def _measure(self, idx: Index) -> None:
        """u'phi of each column, and which columns are constant."""
        u = self._direction
        along = np.zeros(self.n_selected(idx))
        total = np.zeros_like(along)
        for rows, block in self.base.blocks(idx):
            along += to_numpy(block.T @ on_same_device(block, u[rows]))
            total += squared_lengths(block)
        self._along[idx] = along
        # total - along^2 has lost its digits where it is small: measure those again, directly.
        doubtful = np.flatnonzero(total - along**2 < 1e-10 * total)
        if len(doubtful):
            columns = np.arange(self.n_candidates)[idx][doubtful]
            left = np.zeros(len(columns))
            for rows, block in self.base.blocks(columns):
                rest = to_numpy(block) - np.multiply.outer(u[rows], along[doubtful])
                left += np.einsum("ij,ij->j", rest, rest)
            self._constant[columns] = left <= CONSTANT * total[doubtful]


def check_columns(design: Design, norms: np.ndarray) -> None:
    """Raise where the squared lengths of the columns are no numbers of float64.

    Parameters
    ----------
    design : Design
        The columns.
    norms : array of shape (n_candidates,)
        Their squared lengths: ``design.sqnorms()``.
    """
    if not np.all(np.isfinite(norms)):
        raise ValueError(
            "The columns are so large that their squares overflow float64: scale X (for example "
            "with StandardScaler), or take another kernel."
        )
    if not np.any(norms) and design.n_rows > 1 and _vanish(design.unweighted):
        raise ValueError(
            "The columns are so small that their squares vanish in float64: scale X (for example "
            "with StandardScaler), or take another kernel."
        )


def _vanish(design: Design) -> bool:
    """Whether some column varies, but by less than has a square."""
    first = None
    for _, block in design.blocks():
        values = to_numpy(block)
        first = values[:1] if first is None else first
        if np.any((values != first) & (np.abs(values) < _TINY) & (np.abs(first) < _TINY)):
            return True
    return False
