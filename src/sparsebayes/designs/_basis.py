"""The few chosen functions of a fitted model: small, picklable, `basis(X) -> Phi`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy.sparse import issparse

from .._array import is_torch, there
from ..kernels import FEW_ROWS, Kernel


class Basis(Protocol):
    """k functions; called on rows X it returns Phi (len(X) x k)."""

    def __call__(self, X: Any) -> Any: ...

    def __len__(self) -> int: ...

    def take(self, idx: Any) -> Basis:
        """Some of the functions."""


@dataclass(frozen=True)
class ColumnBasis:
    """The chosen columns of X (or of a precomputed kernel), each times its scale.

    Parameters
    ----------
    indices : array of int of shape (k,)
        Which columns.
    scale : array of shape (k,)
        What each is multiplied by.
    """

    indices: np.ndarray
    scale: np.ndarray

    def __call__(self, X: Any) -> Any:
        columns = X[:, self.indices]
        if is_torch(X):
            return columns.double() * there(self.scale, X)
        if issparse(columns):
            columns = columns.toarray()
        return np.asarray(columns, dtype=np.float64) * self.scale

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, idx: Any) -> ColumnBasis:
        """Some of the functions."""
        return ColumnBasis(self.indices[idx], self.scale[idx])


@dataclass(frozen=True)
class KernelBasis:
    """Kernel functions on their centres.

    Parameters
    ----------
    kernel : Kernel
        What the functions are: see `make_kernel`.
    centres : array of shape (k, n_features)
        A row for each function.
    """

    kernel: Kernel
    centres: np.ndarray

    def __call__(self, X: Any) -> Any:
        if len(self.centres) == 0:
            return there(np.empty((X.shape[0], 0)), X)
        if is_torch(X):
            return self.kernel.bind(there(self.centres, X))(X)
        few = X.shape[0] <= FEW_ROWS
        bound = self._bound if few else self.kernel.bind(self.centres)
        return np.asarray(bound(X), dtype=np.float64)

    @cached_property
    def _bound(self) -> Any:
        """Kept: of one row it takes longer to make than to evaluate."""
        return self.kernel.bind(self.centres)

    def __getstate__(self) -> Any:
        return {"kernel": self.kernel, "centres": self.centres}

    def __len__(self) -> int:
        return len(self.centres)

    def take(self, idx: Any) -> KernelBasis:
        """Some of the functions."""
        return KernelBasis(self.kernel, self.centres[idx])


@dataclass(frozen=True)
class CentredBasis:
    """Functions less their (weighted) mean over the training rows.

    Parameters
    ----------
    functions : Basis
        Before they are centred.
    means : array of shape (k,)
        Their means.
    """

    functions: Basis
    means: np.ndarray

    def __call__(self, X: Any) -> Any:
        Phi = self.functions(X)  # a fresh array
        Phi -= there(self.means, Phi)
        return Phi

    def __len__(self) -> int:
        return len(self.functions)

    def take(self, idx: Any) -> CentredBasis:
        """Some of the functions."""
        return CentredBasis(self.functions.take(idx), self.means[idx])
