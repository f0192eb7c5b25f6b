"""Designs of a part of the columns of another design."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .._array import Array
from ._base import ALL, Basis, Design, Index, Shift
from .centred import WrappedDesign
from .dense import CompressedDesign
from .sparse import CentredSparseDesign, SparseDesign

_STORED_BYTES = 2**28  # columns that take more memory are read again


class SubsetDesign(WrappedDesign):
    """Columns `idx` of another design, which reads them at every use.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.designs.subset import SubsetDesign
    >>> SubsetDesign(DenseDesign(np.eye(3)), np.array([2, 0])).project(np.array([1.0, 2.0, 3.0]))
    array([3., 1.])
    """

    def __init__(self, base: Design, idx: np.ndarray) -> None:
        super().__init__(base)
        self.idx = np.asarray(idx)
        self.n_candidates = len(self.idx)
        # The products of the base are with all of its columns.
        self.has_fast_products = self.has_cheap_sqnorms = False

    @property
    def uncentred(self) -> Design:
        """These columns of the uncentred design."""
        return SubsetDesign(self.base.uncentred, self.idx) if self.intercept else self

    @property
    def unweighted(self) -> Design:
        """These columns on rows that are neither weighted nor centred."""
        return SubsetDesign(self.base.unweighted, self.idx)

    @property
    def column_scale(self) -> np.ndarray:
        """Factor that each column of X was multiplied by."""
        return self.base.column_scale[self.idx]

    def blocks(self, idx: Index = ALL) -> Iterator[tuple[slice, Array]]:
        """Yield columns of the other design."""
        return self.base.blocks(self.idx[idx])

    def triangle(
        self,
        T: np.ndarray,
        idx: Index = ALL,
        shift: Shift | None = None,
        root: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the triangle of the columns `idx`, computed by the other design."""
        return self.base.triangle(T, self.idx[idx], shift, root)

    def basis(self, idx: np.ndarray) -> Basis:
        """Return the functions behind the columns `idx`."""
        return self.base.basis(self.idx[idx])


def subset(design: Design, idx: np.ndarray) -> Design:
    """Return the design of the columns `idx`, stored if they are sparse or few.

    Columns that would take more memory are read from the design at every use.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.designs.subset import subset
    >>> subset(DenseDesign(np.eye(3)), np.array([2, 0])).n_candidates
    2
    """
    if isinstance(design, SparseDesign | CentredSparseDesign):
        everything = np.arange(design.n_candidates)
        return design if np.array_equal(idx, everything) else design.take(idx)
    if 8 * design.n_rows * len(idx) <= _STORED_BYTES:
        return CompressedDesign(design.columns(idx), design, design.basis(idx))
    if isinstance(design, SubsetDesign):
        return SubsetDesign(design.base, design.idx[idx])
    return SubsetDesign(design, idx)
