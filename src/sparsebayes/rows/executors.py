"""Who runs the jobs: this thread, several of them, or a Dask cluster (`dask`)."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from joblib import Parallel, delayed
from threadpoolctl import ThreadpoolController

from ._base import Executor, Job, NextPass, Report, Rows, tree


def is_dask(array: Any) -> bool:
    """Whether this is a Dask array, without importing Dask to find out."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(array, module.Array)


def is_dask_frame(frame: Any) -> bool:
    """Whether this is a Dask DataFrame or Series, without importing Dask to find out."""
    module = sys.modules.get("dask.dataframe")
    return module is not None and isinstance(frame, module.DataFrame | module.Series)


def choose_executor(client: Any = None, n_jobs: int | None = None) -> Executor:
    """A client that was given, then `n_jobs`, then the active client if there is one, else here.

    Examples
    --------
    >>> from sparsebayes.rows import choose_executor
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


class SerialExecutor:
    """Everything here and now.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.rows import ArrayRows
    >>> class Total:
    ...     def read(self, index, chunk):
    ...         return chunk[0].sum()
    ...
    ...     def merge(self, left, right):
    ...         return left + right
    ...
    ...     def finish(self, total):
    ...         return float(total)
    >>> ArrayRows((np.arange(5.0),), chunk_rows=2).reduce(Total())
    10.0
    """

    def reduce(self, job: Job, rows: Rows, report: Report | None = None) -> Any:
        """The result of one job."""
        while True:
            parts = (job.read(i, chunk) for i, chunk in enumerate(rows.chunks()))
            result = job.finish(tree(_counted(parts, report), job.merge))
            if not isinstance(result, NextPass):
                return result
            job = result.job

    def map(
        self, jobs: Iterable[Job], rows: Rows, stop: Callable[[], bool] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """The results in order."""
        for number, job in enumerate(jobs):
            yield number, self.reduce(job, rows)
            if stop is not None and stop():
                return


class ThreadExecutor:
    """`n_jobs` jobs at a time through joblib; a single job reads `n_jobs` chunks at a time.

    Threads by default: the products and exponentials that take the time release the interpreter,
    and no data are copied. ``joblib.parallel_config(backend=...)`` chooses another backend.

    Parameters
    ----------
    n_jobs : int
        As in joblib: -1 is one per core.
    """

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs = n_jobs

    def reduce(self, job: Job, rows: Rows, report: Report | None = None) -> Any:
        """The result of one job, its chunks read side by side."""
        if rows.n_chunks == 1:
            return SerialExecutor().reduce(job, rows, report)
        while True:
            with few_blas_threads():
                parts = self._parallel(return_as="generator")(
                    delayed(_read)(job, rows, i) for i in range(rows.n_chunks)
                )
                total = tree(_counted(parts, report), job.merge)
            result = job.finish(total)
            if not isinstance(result, NextPass):
                return result
            job = result.job

    def map(
        self, jobs: Iterable[Job], rows: Rows, stop: Callable[[], bool] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """The results as they finish."""
        jobs = list(jobs)  # here, for joblib would make them on a thread of its own
        with few_blas_threads():
            results = self._parallel(return_as="generator_unordered")(
                delayed(_whole)(number, job, rows) for number, job in enumerate(jobs)
            )
            try:
                for number, result in results:
                    yield number, result
                    if stop is not None and stop():
                        return
            finally:
                with warnings.catch_warnings():
                    # That jobs were started in vain is what stopping early means.
                    warnings.simplefilter("ignore", UserWarning)
                    results.close()

    def _parallel(self, **options: Any) -> Parallel:
        return Parallel(n_jobs=self.n_jobs, prefer="threads", **options)


_lock = Lock()
_limits: list[Any] = []  # the limit in force, once for each who asked for it


@contextmanager
def few_blas_threads(most: int = 1) -> Iterator[None]:
    """BLAS on few threads: for jobs side by side, and for many small matrices one after the other.

    Threads that each start a BLAS of all cores fight for them, and so do those of NumPy's BLAS with
    SciPy's. The limit is of the whole process: it is set by the first who asks and lifted by the
    last, or fits that overlap in several threads would leave it behind.
    """
    with _lock:
        _limits.append(_limits[0] if _limits else _limited(most))
    try:
        yield
    finally:
        with _lock:
            limit = _limits.pop()
            if not _limits:
                limit.restore_original_limits()


def _limited(most: int) -> Any:
    found = [known["num_threads"] for known in _controller().info()] if most > 1 else []
    return _controller().limit(limits=min([most, *found]), user_api="blas")


@cache
def _controller() -> Any:
    # Made once: looking for the libraries takes longer than a small job, and older versions of
    # threadpoolctl could block while other threads load one.
    return ThreadpoolController()


def _counted(parts: Iterable[Any], report: Report | None) -> Iterator[Any]:
    for number, part in enumerate(parts, start=1):
        if report is not None:
            report(number)
        yield part


def _read(job: Job, rows: Rows, index: int) -> Any:
    return job.read(index, rows.chunk(index))


def _whole(number: int, job: Job, rows: Rows) -> tuple[int, Any]:
    return number, SerialExecutor().reduce(job, rows)
