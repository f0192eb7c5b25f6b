"""Rows on a device: a torch tensor, or blocks that are copied to the device one by one.

Kernel functions of a block and their sums are computed on the device, and results as long as the
number of candidates are copied back. Everything is in float64 whatever the type of X: arithmetic is
not the bottleneck on the devices that were measured, and the evidence needs the digits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from .._array import Array, is_torch, on_device, to_numpy
from ._base import Chunk, Rows
from .arrays import SERIAL, RowBlocks, cut

if TYPE_CHECKING:
    import torch

_CHUNK_ROWS = 2**20  # rows of a tensor that one chunk has
_LARGEST_BLOCK = 2**26  # numbers in a block: larger ones are not faster
_BLOCKS = 32  # blocks that fit into the free memory: one, and temporary arrays of its formulas
_STORED_SHARE = 0.5  # of the free memory that stored kernel columns may take
_COPIED_SHARE = 0.25  # of the free memory up to which X is copied at once


def find_device(name: str) -> torch.device:
    """Return the torch device of this name, or raise an error with the reason why there is none.

    Examples
    --------
    >>> from sparsebayes.rows.device import find_device
    >>> find_device("cpu")  # doctest: +SKIP
    device(type='cpu')
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"device={name!r} requires torch: pip install 'sparsebayes[gpu]'. Use device=None "
            "to compute on the CPU."
        ) from error
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(
            f"device={name!r} is not a device of torch. Use 'cuda', 'cuda:1' or None."
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={name!r}, but torch found no CUDA device. Use device=None.")
    return device


def free_bytes(device: torch.device) -> float:
    """Return the free memory of a device, with what torch has reserved; 8 GB for a CPU."""
    if device.type != "cuda":
        return 2.0**33
    cuda = sys.modules["torch"].cuda
    reserved = cuda.memory_reserved(device) - cuda.memory_allocated(device)
    return float(cuda.mem_get_info(device)[0] + reserved)


class DeviceRows(Rows):
    """Rows whose blocks are tensors on a device.

    Parameters
    ----------
    device : torch.device
    edges : array of int
        Edges of the chunks; see `Rows`.
    n_columns : int
    """

    executor = SERIAL
    device: torch.device

    def __init__(self, device: torch.device, edges: np.ndarray, n_columns: int) -> None:
        self.device, self.edges, self.n_columns = device, edges, n_columns
        self.n_chunks = len(edges) - 1

    @cached_property
    def block_elements(self) -> int:
        """Numbers that a block of kernel columns may have, from the memory free at first use."""
        return int(min(_LARGEST_BLOCK, free_bytes(self.device) / (8 * _BLOCKS)))

    def can_store(self, n_bytes: float, megabytes: float) -> bool:
        """Return whether kernel columns of this size may be stored on the device."""
        return n_bytes <= _STORED_SHARE * free_bytes(self.device)

    def empty(self, shape: tuple[int, int], single: bool = False) -> Array:
        """Return an uninitialised tensor for kernel columns."""
        torch = sys.modules["torch"]
        dtype = torch.float32 if single else torch.float64
        return torch.empty(shape, dtype=dtype, device=self.device)

    def place(self, values: Array) -> Array:
        """Return `values` in float64 on the device."""
        return on_device(values, self.device)

    def in_memory(self) -> tuple[np.ndarray | None, ...]:
        """Return X and the arrays beside it, all in NumPy."""
        return (self.take(np.arange(len(self))), *self.arrays)


class TensorRows(DeviceRows):
    """X as one torch tensor on any device.

    Parameters
    ----------
    X : tensor of shape (n_rows, n_features)
    """

    matrix: Array

    def __init__(self, X: torch.Tensor) -> None:
        if X.ndim != 2:
            raise ValueError(f"X must have 2 dimensions, got shape {tuple(X.shape)}.")
        torch = sys.modules["torch"]
        if not X.is_floating_point():
            X = X.to(torch.float64)
        if not bool(torch.isfinite(X.sum())) and not bool(torch.isfinite(X).all()):
            raise ValueError("Input X contains NaN or infinity.")
        super().__init__(X.device, cut(len(X), _CHUNK_ROWS), X.shape[1])
        self.matrix, self.single = cast(Array, X), X.dtype == torch.float32

    def chunk(self, index: int) -> Chunk:
        """Return one chunk: rows on the device, and NumPy arrays."""
        rows = slice(int(self.edges[index]), int(self.edges[index + 1]))
        return self.matrix[rows], *(None if a is None else a[rows] for a in self.arrays)

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Return the rows `numbers` in float64, in this order."""
        return to_numpy(self.matrix[np.asarray(numbers, dtype=np.intp)])

    def __iter__(self) -> Iterator[tuple[slice, Array]]:
        """Yield all rows at once: they are on the device already."""
        yield slice(0, len(self)), self.matrix


class CopiedRows(DeviceRows):
    """Rows of this process, each block copied to a device while the one before is worked on.

    Parameters
    ----------
    source : Rows
    device : torch.device
    """

    def __init__(self, source: Rows, device: torch.device) -> None:
        super().__init__(device, source.edges, source.n_columns)
        self.source = source

    def chunk(self, index: int) -> Chunk:
        """Return one chunk, with its rows on the device."""
        X, *arrays = self.source.with_arrays(*self.arrays).chunk(index)
        return self._send(X), *arrays

    def chunks(self) -> Iterator[Chunk]:
        """Yield all chunks, with their rows on the device."""
        for X, *arrays in self.source.with_arrays(*self.arrays).chunks():
            yield self._send(X), *arrays

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Return the rows `numbers` in float64, in this order."""
        return self.source.take(numbers)

    def __iter__(self) -> Iterator[tuple[slice, Array]]:
        """Yield pairs (rows, block on the device)."""
        before = None
        for rows, block in self.source:
            sent = self._send(block)
            if before is not None:
                yield before
            before = rows, sent
        if before is not None:
            yield before

    def _send(self, block: np.ndarray) -> Array:
        """Start to copy a block: from pinned memory this overlaps with computations."""
        tensor = sys.modules["torch"].from_numpy(np.ascontiguousarray(block))
        if self.device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)


def rows_on(X: Array | Rows, device: torch.device) -> DeviceRows:
    """Return rows of this process as rows on a device; an array is copied at once if it fits.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.rows.device import find_device, rows_on
    >>> len(rows_on(np.ones((3, 2)), find_device("cpu")))  # doctest: +SKIP
    3
    """
    if is_torch(X):
        return TensorRows(X.to(device))
    if not isinstance(X, Rows):
        X = np.asanyarray(X)
        if X.ndim == 2 and X.nbytes <= _COPIED_SHARE * free_bytes(device):
            X = np.ascontiguousarray(X, dtype=np.float32 if X.dtype == np.float32 else np.float64)
            return TensorRows(sys.modules["torch"].from_numpy(X).to(device))
        X = RowBlocks(X)
    return CopiedRows(X, device)
