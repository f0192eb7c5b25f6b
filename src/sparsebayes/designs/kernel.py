"""Candidates that are kernel functions centred on training rows, evaluated when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .._array import is_torch, there, to_numpy
from ..kernels import Kernel, StationaryKernel
from ..rows import Rows
from ..rows._base import BLOCK_ELEMENTS
from ._base import ALL, Design, Index, row_slices
from ._basis import Basis, KernelBasis


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
        self.kernel = kernel
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
    def _block_elements(self) -> int:
        return self.X.block_elements if isinstance(self.X, Rows) else BLOCK_ELEMENTS

    def _all_columns(self) -> Any:
        out = np.empty((self.n_rows, self.n_candidates), order="F")
        if isinstance(self.kernel, StationaryKernel) and isinstance(self.X, np.ndarray):
            # k(x, z) = k(z, x): whole columns, instead of rows scattered over all of them.
            bound = self.kernel.bind(self.X)
            for some in row_slices(self.n_candidates, block_rows(self.n_rows)):
                out.T[some] = to_numpy(bound(self.X[self.centres[some]]))
        else:
            for rows, block in self._evaluate(ALL):
                out[rows] = to_numpy(block)
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
        return there(values, self.X)

    def _row_blocks(self) -> Iterable[tuple[slice, Any]]:
        """X, as it is read."""
        return [(slice(0, self.n_rows), self.X)]

    def centre_rows(self, idx: Index = ALL) -> Any:
        """The rows that carry the functions `idx`."""
        return self.X[self.centres[idx]]

    def basis(self, idx: np.ndarray) -> Basis:
        """The kernel functions on the chosen centres."""
        return KernelBasis(self.kernel, to_numpy(self.centre_rows(idx)))
