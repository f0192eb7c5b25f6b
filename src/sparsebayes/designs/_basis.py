"""The few chosen functions of a fitted model: small, picklable, `basis(X) -> Phi`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.sparse import issparse

from ..kernels import Kernel


class Basis(Protocol):
    """k functions; called on rows X it returns Phi (len(X) x k)."""

    def __call__(self, X: Any) -> np.ndarray: ...

    def __len__(self) -> int: ...

    def take(self, idx: Any) -> Basis:
        """Some of the functions."""


@dataclass(frozen=True)
class ColumnBasis:
    """The chosen columns of X (or of a precomputed kernel), each times its scale."""

    indices: np.ndarray
    scale: np.ndarray

    def __call__(self, X: Any) -> np.ndarray:
        columns = X[:, self.indices]
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
    """Kernel functions on their centres."""

    kernel: Kernel
    centres: np.ndarray

    def __call__(self, X: Any) -> np.ndarray:
        if len(self.centres) == 0:
            return np.empty((X.shape[0], 0))
        return np.asarray(self.kernel.bind(self.centres)(X), dtype=np.float64)

    def __len__(self) -> int:
        return len(self.centres)

    def take(self, idx: Any) -> KernelBasis:
        """Some of the functions."""
        return KernelBasis(self.kernel, self.centres[idx])


@dataclass(frozen=True)
class CentredBasis:
    """Functions less their (weighted) mean over the training rows."""

    functions: Basis
    means: np.ndarray

    def __call__(self, X: Any) -> np.ndarray:
        Phi = self.functions(X)  # a fresh array
        Phi -= self.means
        return Phi

    def __len__(self) -> int:
        return len(self.functions)

    def take(self, idx: Any) -> CentredBasis:
        """Some of the functions."""
        return CentredBasis(self.functions.take(idx), self.means[idx])
