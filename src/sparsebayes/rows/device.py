"""Rows on a device: a torch tensor that is there already, or blocks that are copied to it.

The kernel functions of a block and their sums are made where the block is; what comes back is as
long as the candidates. Everything is in float64 there, whatever the type of X: on the devices this
was measured on the arithmetic is not what takes the time, and evidence needs the digits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from .._array import Array, is_torch, on_device, to_numpy
from ._base import Chunk, Rows
from .arrays import SERIAL, RowBlocks, cut

_CHUNK_ROWS = 2**20
_LARGEST_BLOCK = 2**26  # numbers in a block: larger ones are no faster
_SHARE = 32  # of the free memory: a block, with the copies that its formulas make
_KEPT = 0.5  # of the free memory: kernel columns that take no more stay there
_WHOLE = 0.25  # of the free memory: X is copied at once where it takes no more


def find_device(name: str) -> Any:
    """The torch device of this name, or the sentence that says why there is none.

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
            f"device={name!r} needs torch: install it (pip install 'sparsebayes[gpu]'), or leave "
            "device=None to compute on the CPU."
        ) from error
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(
            f"device={name!r} is not a device that torch knows: use 'cuda', 'cuda:1' or None."
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device={name!r}, but torch finds no CUDA device on this machine: use device=None."
        )
    return device


def free_bytes(device: Any) -> float:
    """Memory that is free on a device, what torch holds ready included; not asked of a CPU."""
    if device.type != "cuda":
        return 2.0**33
    cuda = sys.modules["torch"].cuda
    held = cuda.memory_reserved(device) - cuda.memory_allocated(device)
    return float(cuda.mem_get_info(device)[0] + held)


class DeviceRows(Rows):
    """Rows whose blocks are on a device when they are worked on.

    Parameters
    ----------
    device : torch.device
    edges : array of int
        Of the chunks; see `Rows`.
    n_columns : int
    """

    executor = SERIAL

    def __init__(self, device: Any, edges: np.ndarray, n_columns: int) -> None:
        self.device, self.edges, self.n_columns = device, edges, n_columns
        self.n_chunks = len(edges) - 1

    @cached_property
    def block_elements(self) -> int:
        """Numbers that a block of kernel columns may have; found once, before anything is kept."""
        return int(min(_LARGEST_BLOCK, free_bytes(self.device) / (8 * _SHARE)))

    def keeps(self, n_bytes: float, megabytes: float) -> bool:
        """Whether kernel columns of this size may stay in the memory of the device."""
        return n_bytes <= _KEPT * free_bytes(self.device)

    def empty(self, shape: tuple[int, int], single: bool = False) -> Any:
        """Memory for them."""
        torch = sys.modules["torch"]
        dtype = torch.float32 if single else torch.float64
        return torch.empty(shape, dtype=dtype, device=self.device)

    def place(self, values: Any) -> Any:
        """Return `values` in float64 on the device."""
        return on_device(values, self.device)

    def in_memory(self) -> tuple[np.ndarray | None, ...]:
        """Return X and the arrays beside it, all in NumPy."""
        return (self.take(np.arange(len(self))), *self.arrays)


class TensorRows(DeviceRows):
    """X as a torch tensor, on whatever device it is.

    Parameters
    ----------
    X : tensor of shape (n_rows, n_features)
    """

    matrix: Array

    def __init__(self, X: Any) -> None:
        if X.ndim != 2:
            raise ValueError(f"X must have 2 dimensions, got shape {tuple(X.shape)}.")
        torch = sys.modules["torch"]
        if not X.is_floating_point():
            X = X.to(torch.float64)
        if not bool(torch.isfinite(X.sum())) and not bool(torch.isfinite(X).all()):
            raise ValueError("Input X contains NaN or infinity.")
        super().__init__(X.device, cut(len(X), _CHUNK_ROWS), X.shape[1])
        self.matrix, self.single = X, X.dtype == torch.float32

    def chunk(self, index: int) -> Chunk:
        """One chunk: rows on the device, with what stands beside them in NumPy arrays."""
        rows = slice(int(self.edges[index]), int(self.edges[index + 1]))
        return self.matrix[rows], *(None if a is None else a[rows] for a in self.arrays)

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Some rows in float64, in the order asked for."""
        return to_numpy(self.matrix[np.asarray(numbers, dtype=np.intp)])

    def __iter__(self) -> Iterator[tuple[slice, Any]]:
        """All rows at once: they are there already."""
        yield slice(0, len(self)), self.matrix


class CopiedRows(DeviceRows):
    """Rows of this machine, each block copied to a device while the one before is worked on.

    Parameters
    ----------
    source : Rows
    device : torch.device
    """

    def __init__(self, source: Rows, device: Any) -> None:
        super().__init__(device, source.edges, source.n_columns)
        self.source = source

    def chunk(self, index: int) -> Chunk:
        """One chunk, its rows on the device."""
        X, *arrays = self.source.with_arrays(*self.arrays).chunk(index)
        return self._send(X), *arrays

    def chunks(self) -> Iterator[Chunk]:
        """All of them."""
        for X, *arrays in self.source.with_arrays(*self.arrays).chunks():
            yield self._send(X), *arrays

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Some rows in float64, in the order asked for."""
        return self.source.take(numbers)

    def __iter__(self) -> Iterator[tuple[slice, Any]]:
        """Pairs (rows, block on the device)."""
        before = None
        for rows, block in self.source:
            sent = self._send(block)
            if before is not None:
                yield before
            before = rows, sent
        if before is not None:
            yield before

    def _send(self, block: np.ndarray) -> Any:
        """A block on its way: from pinned memory the copy goes on beside the work."""
        tensor = sys.modules["torch"].from_numpy(np.ascontiguousarray(block))
        if self.device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)


def rows_on(X: Any, device: Any) -> DeviceRows:
    """Rows of this machine (an array, or blocks) as rows of a device: copied at once if they fit.

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
        if X.ndim == 2 and X.nbytes <= _WHOLE * free_bytes(device):
            X = np.ascontiguousarray(X, dtype=np.float32 if X.dtype == np.float32 else np.float64)
            return TensorRows(sys.modules["torch"].from_numpy(X).to(device))
        X = RowBlocks(X)
    return CopiedRows(X, device)
