"""Candidates that are the columns of a scipy.sparse matrix, which is never made dense.

Weights scale the rows of the sparse matrix itself. The intercept is integrated out as in
`CentredDesign`, but a centred sparse column is dense: here every product with the columns is a
sparse product plus a rank-one correction, in O(nnz) time and memory. Only columns requested by
index (the few active ones) are expanded. Dense designs centre each block instead, because the
correction cancels digits where the means of the columns are large.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csc_array, sparray, spmatrix

from ..rows import row_slices
from ._base import ALL, Basis, ColumnBasis, Design, Index
from .centred import CentredDesign

_BLOCK_ELEMENTS = 2**20  # numbers of a block of expanded columns


class SparseDesign(Design):
    """The columns of a sparse matrix as candidates.

    Parameters
    ----------
    matrix : sparse matrix or array of shape (n_rows, n_columns)
        The columns, stored in compressed format as float64.
    indices : array of int, optional
        Numbers of these columns in the X given to `predict` (default: in order).
    scale : array of float, optional
        Factor that each column of X was multiplied by to give this matrix.
    sample_weight : array of shape (n_rows,), optional
        Number of times that each row counts.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import eye_array
    >>> from sparsebayes.designs.sparse import SparseDesign
    >>> SparseDesign(eye_array(3)).project(np.array([1.0, 2.0, 3.0]))
    array([1., 2., 3.])
    """

    has_cheap_sqnorms = True

    def __init__(
        self,
        matrix: sparray | spmatrix,
        indices: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        sample_weight: np.ndarray | None = None,
    ) -> None:
        self.matrix = csc_array(matrix, dtype=np.float64)
        self.n_rows, self.n_candidates = self.matrix.shape
        self.indices = np.arange(self.n_candidates) if indices is None else np.asarray(indices)
        self._scale = np.ones(self.n_candidates) if scale is None else np.asarray(scale)
        self._root: np.ndarray | None = None
        self._total = float(self.n_rows)
        if sample_weight is not None:
            self._root = np.sqrt(sample_weight)
            self._total = float(np.sum(sample_weight))
            rows = self.matrix.indices
            self.matrix = self._like(self.matrix.data * self._root[rows])

    def weighted(self, sample_weight: np.ndarray) -> SparseDesign:
        """Return the design in which row i counts `sample_weight[i]` times."""
        return SparseDesign(self.matrix, self.indices, self._scale, sample_weight)

    def centred(self) -> CentredSparseDesign:
        """Return the design with the intercept integrated out."""
        return CentredSparseDesign(self)

    def take(self, idx: Index) -> SparseDesign:
        """Return the design of the columns `idx`."""
        part = SparseDesign(self.matrix[:, idx], self.indices[idx], self._scale[idx])
        part._root, part._total = self._root, self._total
        return part

    @property
    def n_observations(self) -> float:
        """Sum of the weights."""
        return self._total

    @property
    def column_scale(self) -> np.ndarray:
        """Factor that each column of X was multiplied by."""
        return self._scale

    @property
    def root_weight(self) -> np.ndarray:
        """Square root of the weight of each row."""
        return np.ones(self.n_rows) if self._root is None else self._root

    def target(self, t: np.ndarray) -> np.ndarray:
        """Return the weighted target."""
        return t if self._root is None else (self._root * t.T).T

    def blocks(self, idx: Index = ALL) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield the columns, expanded a few rows at a time."""
        part = self._part(idx).tocsr()
        for rows in row_slices(self.n_rows, max(1, _BLOCK_ELEMENTS // max(1, part.shape[1]))):
            yield rows, part[rows].toarray()

    def columns(self, idx: Index) -> np.ndarray:
        """Return the columns `idx`, expanded."""
        return self._part(idx).toarray(order="F")

    def local_project(self, V: np.ndarray, idx: Index = ALL) -> np.ndarray:
        """Return Phi'V as a sparse product."""
        return self._part(idx).T @ V

    def apply(self, w: np.ndarray, idx: Index = ALL) -> np.ndarray:
        """Return Phi w as a sparse product."""
        return self._part(idx) @ w

    def apply_squares(self, v: np.ndarray, idx: Index = ALL) -> np.ndarray:
        """Return sum_j v_j Phi_ij^2 for each row i as a sparse product."""
        part = self._part(idx)
        return csc_array((part.data**2, part.indices, part.indptr), shape=part.shape) @ v

    def gram(self, idx: Index, others: Index | None = None) -> np.ndarray:
        """Return Phi_idx' Phi_others as a sparse product."""
        part = self._part(idx)
        return (part.T @ (part if others is None else self._part(others))).toarray()

    def outer(self, idx: Index = ALL) -> np.ndarray:
        """Return Phi_idx Phi_idx' as a sparse product."""
        part = self._part(idx)
        return (part @ part.T).toarray()

    def squares(self, v: np.ndarray) -> np.ndarray:
        """Return sum_i v_i phi_ij^2 for each candidate j as a sparse product."""
        return self._like(self.matrix.data**2).T @ v

    def sqnorms(self) -> np.ndarray:
        """Return the squared length of each column from its entries."""
        return self.squares(np.ones(self.n_rows))

    def basis(self, idx: np.ndarray) -> Basis:
        """Return the columns `idx` as functions of X."""
        return ColumnBasis(self.indices[idx], self._scale[idx])

    def _part(self, idx: Index) -> csc_array:
        return self.matrix if isinstance(idx, slice) and idx == ALL else self.matrix[:, idx]

    def _like(self, data: np.ndarray) -> csc_array:
        old = self.matrix
        return csc_array((data, old.indices, old.indptr), shape=old.shape)


class CentredSparseDesign(CentredDesign):
    """Sparse columns with the intercept integrated out; see the module docstring.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csc_array
    >>> from sparsebayes.designs.sparse import CentredSparseDesign, SparseDesign
    >>> design = CentredSparseDesign(SparseDesign(csc_array([[0.0], [4.0]])))
    >>> design.apply(np.array([1.0]))
    array([-2.,  2.])
    """

    base: SparseDesign

    def __init__(self, base: SparseDesign) -> None:
        super().__init__(base)
        self._norms = self._measure(ALL)

    def _sums(self, idx: Index) -> tuple[np.ndarray, np.ndarray]:
        """Return u'phi and phi'phi of the uncentred columns `idx` by sparse products."""
        return self.base.project(self._direction, idx), self.base.sqnorms()[idx]

    def take(self, idx: Index) -> CentredSparseDesign:
        """Return the design of the columns `idx`."""
        return CentredSparseDesign(self.base.take(idx))

    def apply(self, w: np.ndarray, idx: Index = ALL) -> np.ndarray:
        """Return Phi w minus the contribution of the means."""
        w = (np.where(self._constant[idx], 0.0, w.T)).T
        return self.base.apply(w, idx) - np.multiply.outer(self._direction, self._along[idx] @ w)

    def apply_squares(self, v: np.ndarray, idx: Index = ALL) -> np.ndarray:
        """Return sum_j v_j (phi_ij - u_i a_j)^2 for each row i, expanded into sparse products."""
        u, along = self._direction, self._along[idx]
        v = np.where(self._constant[idx], 0.0, v)
        cross = u * self.base.apply(along * v, idx)
        sums = self.base.apply_squares(v, idx) - 2.0 * cross + u**2 * float(along**2 @ v)
        return np.maximum(sums, 0.0)

    def outer(self, idx: Index = ALL) -> np.ndarray:
        """Return Phi_idx Phi_idx', centred on both sides."""
        columns = np.arange(self.n_candidates)[idx]
        return self._centre(self._centre(self.base.outer(columns[~self._constant[columns]])).T)

    def squares(self, v: np.ndarray) -> np.ndarray:
        """Return sum_i v_i (phi_ij - u_i a_j)^2 for each j, expanded into sparse products."""
        u, along = self._direction, self._along
        sums = self.base.squares(v) - 2.0 * along * self.base.project(v * u)
        sums += along**2 * float(u**2 @ v)
        return np.where(self._constant, 0.0, sums)
