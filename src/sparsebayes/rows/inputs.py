"""Rows of whatever a user gives as X: arrays, blocks from anywhere, tensors, Dask arrays."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

from .._array import is_torch
from ._base import Rows
from .arrays import RowBlocks
from .device import TensorRows, find_device, rows_on
from .executors import is_dask


def as_rows(X: Any, megabytes: float, device: str | None = None) -> Rows | None:
    """Return X as `Rows` where it is to be read in chunks or on a device; None for other arrays.

    Chunks are read of Dask arrays, of memory maps larger than `megabytes`, of lists and iterators
    of arrays, and of functions that return such an iterator. A torch tensor stays on its device,
    and everything is copied to a `device` that is named.
    """
    rows = _chunked(X, megabytes)
    if isinstance(X, Rows) or (device is None and not is_torch(X)):
        return rows
    if device is None:
        return TensorRows(X)
    if is_dask(X):
        raise ValueError(
            f"device={device!r} is not available for Dask arrays, which stay on their "
            "workers. Pass an array or blocks of rows."
        )
    return rows_on(X if rows is None else rows, find_device(device))


def _chunked(X: Any, megabytes: float) -> Rows | None:
    if is_dask(X):
        from .dask import DaskRows

        return DaskRows.in_blocks(X)
    if isinstance(X, Rows):
        return X
    if isinstance(X, Iterator) or is_list_of_arrays(X) or inspect.isroutine(X):
        return RowBlocks(X)
    if isinstance(X, np.memmap) and X.ndim == 2 and X.nbytes > megabytes * 1e6:
        return RowBlocks(X)
    return None


def is_list_of_arrays(X: Any) -> bool:
    """Return whether X is a list or a tuple of two-dimensional arrays, which are blocks of rows."""
    return isinstance(X, list | tuple) and len(X) > 0 and np.ndim(X[0]) == 2
