"""Executors, which run jobs on this thread, on several threads, or on a Dask cluster (`dask`)."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import ThreadpoolController

from ._base import Executor, Job, NextPass, Part, Report, Result, Rows, tree

if TYPE_CHECKING:
    from distributed import Client


def is_dask(array: object) -> TypeGuard[Any]:
    """Return whether `array` is a Dask array, without importing Dask."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(array, module.Array)


def is_dask_frame(frame: object) -> TypeGuard[Any]:
    """Return whether `frame` is a Dask DataFrame or Series, without importing Dask."""
    module = sys.modules.get("dask.dataframe")
    return module is not None and isinstance(frame, module.DataFrame | module.Series)


def choose_executor(client: Client | None = None, n_jobs: int | None = None) -> Executor:
    """Return an executor for `client`, or for `n_jobs`, or for the active client, or a serial one.

    Examples
    --------
    >>> from sparsebayes.rows import choose_executor
    >>> type(choose_executor(n_jobs=2)).__name__
    'ThreadExecutor'
    """
    if client is not None and n_jobs is not None:
        raise ValueError("Pass either client or n_jobs, not both.")
    if n_jobs is not None:
        return ThreadExecutor(n_jobs)
    if client is None and "distributed" in sys.modules:
        from .dask import active_client

        client = active_client()
    if client is None:
        return SerialExecutor()
    from .dask import DaskExecutor

    return DaskExecutor(client)


class LocalExecutor:
    """The part of an executor that those without a cluster share."""

    client: Client | None = None

    def distribute(self: Executor, arrays: tuple[np.ndarray | None, ...]) -> Rows:
        """Return the rows of NumPy arrays, which stay in this process."""
        from .arrays import ArrayRows

        return ArrayRows(arrays, executor=self)

    def store(self, rows: Rows, n_bytes: float) -> Rows:
        """Return the rows as they are."""
        return rows


class SerialExecutor(LocalExecutor):
    """Runs jobs on this thread.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.rows import ArrayRows
    >>> class Total:
    ...     def read(self, index, chunk):
    ...         return chunk[0].sum()
    ...
    ...     def merge(self, first, second):
    ...         return first + second
    ...
    ...     def finish(self, total):
    ...         return float(total)
    >>> ArrayRows((np.arange(5.0),), chunk_rows=2).reduce(Total())
    10.0
    """

    def reduce(self, job: Job[Part, Result], rows: Rows, report: Report | None = None) -> Result:
        """Return the result of one job."""
        while True:
            parts = (job.read(i, chunk) for i, chunk in enumerate(rows.chunks()))
            result = job.finish(tree(_report_parts(parts, report), job.merge))
            if not isinstance(result, NextPass):
                return result
            job = result.job

    def map(
        self,
        jobs: Iterable[Job[Part, Result]],
        rows: Rows,
        stop: Callable[[], bool] | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Yield the results in order."""
        for number, job in enumerate(jobs):
            yield number, self.reduce(job, rows)
            if stop is not None and stop():
                return


class ThreadExecutor(LocalExecutor):
    """Runs `n_jobs` jobs at a time with joblib; a single job reads `n_jobs` chunks at a time.

    The default backend is threads: the products and exponentials that take most of the time release
    the interpreter, and no data are copied. ``joblib.parallel_config(backend=...)`` sets another.

    Parameters
    ----------
    n_jobs : int
        Number of workers as in joblib: -1 is one per core.
    """

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs = n_jobs

    def reduce(self, job: Job[Part, Result], rows: Rows, report: Report | None = None) -> Result:
        """Return the result of one job, whose chunks are read in parallel."""
        if rows.n_chunks == 1:
            return SerialExecutor().reduce(job, rows, report)
        while True:
            with few_blas_threads():
                parts = self._parallel(return_as="generator")(
                    delayed(_read)(job, rows, i) for i in range(rows.n_chunks)
                )
                total = tree(_report_parts(parts, report), job.merge)
            result = job.finish(total)
            if not isinstance(result, NextPass):
                return result
            job = result.job

    def map(
        self,
        jobs: Iterable[Job[Part, Result]],
        rows: Rows,
        stop: Callable[[], bool] | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Yield the results as they finish."""
        jobs = list(jobs)  # on this thread: joblib would advance a generator on another one
        with few_blas_threads():
            results = self._parallel(return_as="generator_unordered")(
                delayed(_run_job)(number, job, rows) for number, job in enumerate(jobs)
            )
            try:
                for number, result in results:
                    yield number, result
                    if stop is not None and stop():
                        return
            finally:
                with warnings.catch_warnings():
                    # joblib warns about jobs that were started and not used.
                    warnings.simplefilter("ignore", UserWarning)
                    results.close()

    def _parallel(self, return_as: str) -> Parallel:
        return Parallel(n_jobs=self.n_jobs, prefer="threads", return_as=return_as)


_lock = Lock()
_limits: list[Any] = []  # the active limit, once for each nested or concurrent use of it


@contextmanager
def few_blas_threads(most: int = 1) -> Iterator[None]:
    """Limit the threads of BLAS, for jobs in parallel and for sequences of small matrices.

    Threads that each call a BLAS on all cores compete for them, and so do the threads of NumPy's
    BLAS and SciPy's. The limit holds for the whole process. The first context that is entered sets
    it and the last one that is left removes it, so that overlapping fits do not leave it behind.
    """
    with _lock:
        _limits.append(_limits[0] if _limits else _set_limit(most))
    try:
        yield
    finally:
        with _lock:
            limit = _limits.pop()
            if not _limits:
                limit.restore_original_limits()


def _set_limit(most: int) -> Any:
    current = [pool["num_threads"] for pool in _controller().info()] if most > 1 else []
    return _controller().limit(limits=min([most, *current]), user_api="blas")


@cache
def _controller() -> ThreadpoolController:
    # Made once: searching for the libraries takes longer than a small job, and older versions of
    # threadpoolctl could block while other threads load one.
    return ThreadpoolController()


def _report_parts(parts: Iterable[Part], report: Report | None) -> Iterator[Part]:
    for number, part in enumerate(parts, start=1):
        if report is not None:
            report(number)
        yield part


def _read(job: Job[Part, Result], rows: Rows, index: int) -> Part:
    return job.read(index, rows.chunk(index))


def _run_job(number: int, job: Job[Part, Result], rows: Rows) -> tuple[int, Result]:
    return number, SerialExecutor().reduce(job, rows)
