"""Candidate columns of a problem: which rows or columns carry a function, and in which scale."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol, TypeGuard, overload

import numpy as np
from numpy.typing import ArrayLike

from .._array import Array, PerTarget, is_torch, to_device_of, to_numpy
from ..kernels import Kernel
from ..linalg import pivoted_cholesky
from ..rows import row_hashes, row_slices
from ._base import Design
from .dense import DenseDesign
from .kernel import KernelDesign
from .nufft import NufftDesign

_UNSCALED = 2.0**20  # columns whose size is within this factor of one are not scaled
_CACHED = 2**17  # numbers in a block of rows that stays in the cache
# Rows times squared candidates of a Gram matrix that is computed in about three seconds.
_PRODUCTS = 1e11


def is_number(value: object) -> TypeGuard[float]:
    """Return whether `value` is a real number and not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_integer(value: object) -> TypeGuard[int | float]:
    """Return whether `value` is an integer, as an int or as a float."""
    return is_number(value) and bool(np.isfinite(value)) and int(value) == value


def different_rows(X: np.ndarray) -> np.ndarray:
    """Return the number of the first row of each set of equal rows.

    Equal rows carry the same function. One candidate stands for all of them, so that weights and
    repetition mean the same.
    """
    return np.sort(np.unique(row_hashes(X), return_index=True)[1])


def dense_design(X: np.ndarray, indices: np.ndarray, sizes: np.ndarray) -> DenseDesign:
    """Return the columns `indices` of X as a design, scaled by powers of two where that is needed.

    Only sizes whose squares, summed and multiplied, might overflow call for scaling, because the
    scaled copy costs as much as ten steps of a greedy selection.
    """
    columns = X if len(indices) == X.shape[1] else X[:, indices]
    scale = safe_scale(sizes)
    if np.all(scale == 1.0):
        return DenseDesign(columns, indices)
    return DenseDesign(columns * to_device_of(X, scale), indices, scale)


@overload
def safe_scale(sizes: float) -> float: ...


@overload
def safe_scale(sizes: np.ndarray) -> np.ndarray: ...


def safe_scale(sizes: PerTarget) -> PerTarget:
    """Return the factor for columns of these sizes: 1 unless some of them are extreme."""
    scale = 1.0 / power_of_two(sizes)
    moderate = np.all((scale <= _UNSCALED) & (scale >= 1.0 / _UNSCALED))
    return np.ones_like(scale) if moderate else scale


def own_scales(X: np.ndarray) -> DenseDesign:
    """Return all columns of X as a design, each in its own scale."""
    return dense_design(X, np.arange(X.shape[1]), column_sizes(X))


def one_scale(X: np.ndarray, indices: np.ndarray | None = None) -> DenseDesign:
    """Return columns of X as a design with one scale, for models with one prior for all columns."""
    indices = np.arange(X.shape[1]) if indices is None else indices
    return dense_design(X, indices, np.full(len(indices), np.max(column_sizes(X), initial=0.0)))


def column_sizes(X: Array) -> np.ndarray:
    """Return the largest magnitude in each column, reading X once."""
    if is_torch(X):
        return to_numpy(X.abs().amax(0))
    sizes = np.zeros(X.shape[1])
    for rows in row_slices(X.shape[0], max(64, _CACHED // max(1, X.shape[1]))):
        block = X[rows]
        np.maximum(sizes, block.max(axis=0), out=sizes)
        np.maximum(sizes, -1.0 * block.min(axis=0), out=sizes)
    return sizes


@overload
def power_of_two(size: float) -> float: ...


@overload
def power_of_two(size: np.ndarray) -> np.ndarray: ...


def power_of_two(size: PerTarget) -> PerTarget:
    """Return a power of two near each size (1 for zero); scaling by it is exact."""
    size = np.asarray(size, dtype=np.float64)
    scale = np.where(size > 0, np.ldexp(1.0, np.frexp(size)[1]), 1.0)
    return scale if scale.ndim else float(scale)


class IndexedRows(Protocol):
    """Rows that can be counted and taken by their numbers: an array, or rows out of memory."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


@dataclass(frozen=True)
class CandidateChoice:
    """Candidates of a greedy selection.

    Attributes
    ----------
    option : str, int or array
        The parameter `candidates` of the user.
    many : int
        Number of rows that ``"auto"`` and ``"pivots"`` take where there are more.
    whole : int
        Number of rows up to which ``"auto"`` takes all of them while their products stay cheap.
    memory : float
        Megabytes that kernel columns may take.
    everything : bool
        Whether ``"auto"`` takes all rows whatever their number.
    nufft : bool
        Whether products with the columns are computed by fast Fourier transforms.
    seed : int
        Seed of random draws.
    """

    option: str | float | ArrayLike
    many: int
    whole: int
    memory: float
    everything: bool
    nufft: bool
    seed: int

    def functions(
        self, X: np.ndarray, kernel: Kernel, labels: np.ndarray
    ) -> tuple[Design, np.ndarray]:
        """Return the design of kernel functions to choose from, and the labels of its rows."""
        centres = self.centres(X, kernel, labels)
        if self.nufft:
            return NufftDesign(X, kernel, centres), labels[centres]
        return KernelDesign(X, kernel, centres, cache_size=self.memory), labels[centres]

    def among(self, design: DenseDesign) -> DenseDesign:
        """Return the candidate columns of a design."""
        chosen = self.columns(design.n_candidates, design.indices)
        columns, scale = design.matrix[:, chosen], design.column_scale[chosen]
        return DenseDesign(columns, design.indices[chosen], scale)

    def centres(self, X: IndexedRows, kernel: Kernel, labels: np.ndarray) -> np.ndarray:
        """Return the different rows that carry a function; `labels` are their numbers in X."""
        if isinstance(X, np.ndarray) and self.all_rows(len(X)):
            return different_rows(X)
        chosen = self.rows(X, kernel, labels)
        return chosen[different_rows(X[chosen])]

    def all_rows(self, n: int) -> bool:
        """Return whether every row carries a function."""
        if _is(self.option, "auto"):
            return self.everything or n <= self._number(n)
        return _is(self.option, "all")

    def rows(self, X: IndexedRows, kernel: Kernel, labels: np.ndarray) -> np.ndarray:
        """Return the rows that carry a function where not all do."""
        n = len(X)
        if _is(self.option, "auto"):
            return self._draw(n, self._number(n))
        if _is(self.option, "pivots"):
            # The factor of the pool takes as much memory as it may.
            among = self._draw(n, max(self.many, int(self.memory * 1e6 / (8 * self.many))))
            Z = X[among]
            _, pivots = pivoted_cholesky(
                kernel.diagonal(Z), lambda j: kernel.bind(Z[j])(Z), self.many
            )
            return np.sort(among[pivots])
        return self.columns(n, labels)

    def columns(self, n: int, labels: np.ndarray | None = None) -> np.ndarray:
        """Return the positions of the candidates among n columns."""
        if isinstance(self.option, str):
            if self.option == "pivots":
                raise ValueError(
                    "candidates='pivots' requires a named kernel or a callable, not kernel=None "
                    "or 'precomputed'."
                )
            return np.arange(n)
        if is_integer(self.option):
            return self._draw(n, int(self.option))
        labels = np.arange(n) if labels is None else labels
        indices = np.asarray(self.option)
        if indices.ndim != 1 or indices.dtype.kind not in "iu" or len(indices) == 0:
            raise ValueError(
                "candidates must be 'auto', 'all', 'pivots', a number of candidates, or an array "
                f"of their indices; got an array of {indices.dtype} of shape {indices.shape}."
            )
        if indices.min() < 0 or indices.max() > labels[-1]:
            raise ValueError(
                f"candidates must lie between 0 and {labels[-1]}, got {indices.min()} to "
                f"{indices.max()}."
            )
        return np.flatnonzero(np.isin(labels, indices))

    def scaled_columns(self, X: Array) -> DenseDesign:
        """Return the candidate columns of X as a design with one scale for all of them."""
        return one_scale(X, self.columns(X.shape[1]))

    def _number(self, n: int) -> int:
        return max(self.many, min(self.whole, int(np.sqrt(_PRODUCTS / max(n, 1)))))

    def _draw(self, n: int, size: int) -> np.ndarray:
        if size >= n:
            return np.arange(n)
        return np.sort(np.random.default_rng(self.seed).choice(n, size, replace=False))


def _is(value: object, option: str) -> bool:
    return isinstance(value, str) and value == option
