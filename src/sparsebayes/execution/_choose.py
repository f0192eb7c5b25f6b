"""Which executor a fit runs on, and its rows."""

from __future__ import annotations

import sys
from typing import Any

from ._base import Executor, Rows
from .serial import ArrayRows, SerialExecutor
from .threads import ThreadExecutor


def is_dask(array: Any) -> bool:
    """Whether this is a Dask array, without importing Dask to find out."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(array, module.Array)


def choose_executor(client: Any = None, n_jobs: int | None = None) -> Executor:
    """A client that was given, then `n_jobs`, then the active client if there is one, else here.

    Examples
    --------
    >>> from sparsebayes.execution import choose_executor
    >>> type(choose_executor(n_jobs=2)).__name__
    'ThreadExecutor'
    """
    if client is not None and n_jobs is not None:
        raise ValueError("Give one of client and n_jobs, not both.")
    if n_jobs is not None:
        return ThreadExecutor(n_jobs)
    if client is None and "distributed" in sys.modules:
        from .dask import active_client

        client = active_client()
    if client is None:
        return SerialExecutor()
    from .dask import DaskExecutor

    return DaskExecutor(client)


def make_rows(arrays: tuple[Any, ...], executor: Executor) -> Rows:
    """The rows as the executor takes them, from NumPy arrays or from Dask arrays (None: absent)."""
    if is_dask(arrays[0]):
        from .dask import DaskRows

        rows = DaskRows.from_dask(arrays)
        keep = getattr(executor, "keep", None)
        return rows if keep is None else keep(rows, sum(getattr(a, "nbytes", 0) for a in arrays))
    distribute = getattr(executor, "distribute", None)
    return ArrayRows(arrays) if distribute is None else distribute(arrays)
