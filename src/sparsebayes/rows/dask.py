"""Jobs on a Dask cluster.

Data reach the workers by loader tasks (those of the Dask array, or tasks that carry their piece of
a NumPy array), never by `scatter`: data of a lost worker are computed again from their task, and
the fit continues. Dask arrays that are small relative to the memory of the workers are loaded once,
others in each pass. Reading, merging and finishing are tasks too; the driver receives results only.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from dask import compute, delayed
from numpy.typing import DTypeLike

from ._base import (
    Chunk,
    Executor,
    Job,
    LostWorkers,
    NextPass,
    Part,
    Report,
    Result,
    Rows,
    finite_block,
    tree,
)
from .arrays import ArrayRows, make_rows
from .executors import choose_executor

if TYPE_CHECKING:
    import dask.array as da
    from dask.delayed import Delayed
    from distributed import Client, Future, Scheduler

_POLL = 0.25  # seconds between two calls of `stop`
_MERGED_AT_ONCE = 8  # parts that one task merges: a power of two, see `_graph`
_SMALL = 0.05  # of the memory of a worker: data up to this size may be on all of them
_STORED_SHARE = 0.3  # of the memory of all workers that data stored between passes may take
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt in glibc
_PATIENCE = 60.0  # seconds that a cluster may be without workers


class DaskRows(Rows):
    """Rows whose chunks are on a cluster or on disk.

    Parameters
    ----------
    chunks : list
        One tuple per chunk, of Dask delayed objects, futures, or None.
    edges : array of int, or None
        First row of each chunk, then the number of rows; None if they are not known yet.
    n_columns : int
    executor : Executor
    small : bool, default=False
        Whether every worker may store all chunks.
    """

    remote = True

    def __init__(
        self,
        chunks: list[Chunk],
        edges: np.ndarray | None,
        n_columns: int,
        executor: Executor,
        small: bool = False,
    ) -> None:
        self.remote_chunks = chunks
        self.edges = edges  # type: ignore[assignment]
        self.n_chunks = len(chunks)
        self.n_columns = n_columns
        self.executor = executor
        self.small = small

    @classmethod
    def in_blocks(cls, X: da.Array) -> DaskRows:
        """Return the rows of X, with chunks of known length, in float64 and checked to be finite.

        Examples
        --------
        >>> import dask.array as da
        >>> from sparsebayes.rows.dask import DaskRows
        >>> rows = DaskRows.in_blocks(da.ones((10, 2), chunks=(4, 2)))
        >>> [len(block) for _, block in rows]
        [4, 4, 2]
        """
        if X.ndim != 2:
            raise ValueError(f"X must have 2 dimensions, got shape {tuple(X.shape)}.")
        if np.isnan(X.shape[0]):
            raise ValueError(
                "X is a Dask array with chunks of unknown length. Call "
                "X.compute_chunk_sizes() first."
            )
        X = X.rechunk({1: -1}).map_blocks(_checked, dtype=np.float64, meta=np.empty((0, 0)))
        rows = make_rows((X,), choose_executor())
        assert isinstance(rows, cls)
        return rows

    @classmethod
    def from_dask(
        cls, arrays: tuple[np.ndarray | da.Array | None, ...], executor: Executor
    ) -> DaskRows:
        """Return rows of Dask arrays with the same chunks of rows; NumPy vectors are cut to fit."""
        import dask.array as da

        X: Any = arrays[0]
        if X.ndim != 2:
            raise ValueError(f"X must have two dimensions, got a Dask array of shape {X.shape}.")
        X = X.rechunk({1: -1})
        has_edges = not np.isnan(X.shape[0])
        edges = np.cumsum([0, *X.chunks[0]]) if has_edges else None
        columns = [list(X.to_delayed().ravel())]
        for array in arrays[1:]:
            if array is None:
                columns.append([None] * X.numblocks[0])
                continue
            if not isinstance(array, da.Array):
                if not has_edges:
                    raise ValueError(
                        "X is a Dask array with chunks of unknown length, so y must be a "
                        "Dask array with the same chunks. Alternatively, call "
                        "X.compute_chunk_sizes() first."
                    )
                array = da.from_array(np.asarray(array), chunks=X.chunks[0])
            if array.ndim == 2 and array.shape[1] == 1:
                array = array[:, 0]
            if array.ndim != 1:
                raise ValueError(f"y must be one target, got a Dask array of shape {array.shape}.")
            if has_edges and len(array) != X.shape[0]:
                raise ValueError(
                    f"X has {X.shape[0]} rows, but y or sample_weight has {len(array)}."
                )
            if has_edges and array.chunks[0] != X.chunks[0]:
                array = array.rechunk((X.chunks[0],))
            if array.numblocks[0] != X.numblocks[0]:
                raise ValueError(
                    f"X has {X.numblocks[0]} chunks of rows, but y or sample_weight has "
                    f"{array.numblocks[0]}. Rechunk them alike."
                )
            columns.append(list(array.to_delayed()))
        return cls(list(zip(*columns, strict=True)), edges, int(X.shape[1]), executor)

    def chunk(self, index: int) -> Chunk:
        """Return one chunk, in this process."""
        parts = (p.result() if hasattr(type(p), "result") else p for p in self.remote_chunks[index])
        return _flat(compute(*parts))

    def with_arrays(self, *arrays: np.ndarray | None) -> DaskRows:
        """Return the same rows with more NumPy arrays of the same length."""
        client = self.executor.client
        chunks = []
        for i, chunk in enumerate(self.remote_chunks):
            rows = slice(self.edges[i], self.edges[i + 1])
            piece = tuple(None if a is None else a[rows] for a in arrays)
            loader: Delayed | Future = (
                delayed(piece, traverse=False)
                if client is None
                else client.submit(_load, piece, pure=False)
            )
            chunks.append((*chunk, loader))
        return self._with(chunks, small=False)

    def _with(self, chunks: list[Chunk], small: bool) -> DaskRows:
        return DaskRows(chunks, self.edges, self.n_columns, self.executor, small)


class DaskExecutor:
    """Runs jobs on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def distribute(self, arrays: tuple[np.ndarray | None, ...]) -> DaskRows:
        """Return the rows of NumPy arrays as loader tasks, each with its chunk."""
        local = ArrayRows(arrays)
        return DaskRows(
            [(self.client.submit(_load, chunk, pure=False),) for chunk in local.chunks()],
            local.edges,
            local.n_columns,
            self,
            self._is_small(sum(array.nbytes for array in arrays if array is not None)),
        )

    def store(self, rows: Rows, n_bytes: float) -> Rows:
        """Return rows whose chunks stay on the workers between passes, if they are small enough.

        They remain tasks: chunks of a lost worker are loaded again.
        """
        if not n_bytes <= _STORED_SHARE * sum(self._memory()):  # also if the size is NaN: unknown
            return rows
        assert isinstance(rows, DaskRows)
        loaders = rows.remote_chunks
        parts = [part for chunk in loaders for part in chunk if part is not None]
        futures = iter(self.client.compute(parts))
        chunks = [tuple(None if p is None else next(futures) for p in chunk) for chunk in loaders]
        return rows._with(chunks, self._is_small(n_bytes))

    def _is_small(self, n_bytes: float) -> bool:
        return n_bytes <= _SMALL * min(self._memory(), default=0.0)

    def _memory(self) -> list[float]:
        """Return the memory limit of each worker in bytes."""
        try:
            info = self.client.scheduler_info(n_workers=-1)
        except TypeError:  # versions before 2025 report all workers without the argument
            info = self.client.scheduler_info()
        return [worker["memory_limit"] or np.inf for worker in info["workers"].values()]

    def reduce(self, job: Job[Part, Result], rows: Rows, report: Report | None = None) -> Result:
        """Return the result of one job."""
        return next(self._run([job], rows, None, 1, report))[1]

    def map(
        self,
        jobs: Iterable[Job[Part, Result]],
        rows: Rows,
        stop: Callable[[], bool] | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Yield the results as they finish; about two jobs per core are submitted at a time.

        A job on small data is one task; on other data it has one task for each chunk.
        """
        return self._run(jobs, rows, stop, 0)

    def _run(
        self,
        jobs: Iterable[Job[Part, Result]],
        rows: Rows,
        stop: Callable[[], bool] | None,
        priority: int,
        report: Report | None = None,
    ) -> Iterator[tuple[int, Result]]:
        from distributed import wait

        assert isinstance(rows, DaskRows)
        waiting = enumerate(jobs)
        running: dict[Future, int] = {}
        alive = time.monotonic()
        build = _one_task if rows.small and priority == 0 else _graph
        try:
            while True:
                cores = sum(self.client.ncores().values())
                if cores:
                    alive = time.monotonic()
                elif time.monotonic() - alive > _PATIENCE:
                    raise RuntimeError(
                        f"The cluster has had no workers for {_PATIENCE:.0f} s. Start "
                        "workers, or fit with n_jobs instead of client."
                    )
                room = max(2, 2 * cores)
                while len(running) < room and (entry := next(waiting, None)) is not None:
                    graph = build(entry[1], rows)
                    running[self.client.compute(graph, priority=priority)] = entry[0]
                if not running:
                    return
                with suppress(TimeoutError):
                    wait(list(running), timeout=_POLL, return_when="FIRST_COMPLETED")
                if report is not None:
                    (future,) = running
                    report(self.client.run_on_scheduler(_n_read, future.key, rows.n_chunks))
                for future in [future for future in running if future.done()]:
                    number = running.pop(future)
                    result = _result(future)
                    if isinstance(result, NextPass):
                        # It precedes jobs that have not started.
                        graph = build(result.job, rows)
                        running[self.client.compute(graph, priority=priority + 1)] = number
                    else:
                        yield number, result
                if stop is not None and stop():
                    return
        finally:
            if running:
                self.client.cancel(list(running))


def active_client() -> Client | None:
    """Return the client of this process if there is one, and None inside a task of a cluster."""
    from distributed import default_client, get_worker

    try:
        get_worker()
    except ValueError:
        pass
    else:
        return None  # a task that waits for tasks on its own cluster can block it
    try:
        return default_client()
    except ValueError:
        return None


def map_rows(
    function: Callable[[np.ndarray], np.ndarray], X: da.Array, width: int, dtype: DTypeLike
) -> da.Array:
    """Return the lazy Dask array of `function`, which gives `width` numbers for each row."""
    blocks: Any = X.rechunk({1: -1})
    meta = np.empty((0, width), dtype)
    return blocks.map_blocks(function, chunks=(blocks.chunks[0], (width,)), dtype=dtype, meta=meta)


def _checked(block: np.ndarray, block_info: Any = None) -> np.ndarray:
    start = block_info[0]["array-location"][0][0]
    return finite_block(block, start, block.shape[1])


def _graph(job: Job, rows: DaskRows) -> Delayed:
    """Return tasks that read the chunks and merge eight parts at a time, in the order of `tree`."""
    shared, name = _named(job)
    read, merge, finish = delayed(_read), delayed(_merge), delayed(_merge_and_finish)
    number = count()
    parts = [
        read(shared, i, *rows.remote_chunks[i], dask_key_name=name("read", i))
        for i in range(rows.n_chunks)
    ]
    while len(parts) > _MERGED_AT_ONCE:
        parts = [
            merge(shared, parts[i : i + _MERGED_AT_ONCE], dask_key_name=name("merge", next(number)))
            for i in range(0, len(parts), _MERGED_AT_ONCE)
        ]
    return finish(shared, parts, dask_key_name=name("finish"))


def _one_task(job: Job, rows: DaskRows) -> Delayed:
    """Return one task that runs the job over all chunks."""
    shared, name = _named(job)
    chunks = [list(chunk) for chunk in rows.remote_chunks]
    return delayed(_run_job)(shared, chunks, dask_key_name=name("run"))


def _named(job: Job) -> tuple[Delayed, Callable[..., str]]:
    """Return the job as one node, so that a worker receives it once, and names for its tasks.

    Names end in a random string, so that the content need not be hashed; a dashboard shows the
    part before it.
    """
    kind, suffix = type(job).__name__.removesuffix("Job").lower(), uuid4().hex

    def name(step: str, number: int = 0) -> str:
        return f"{kind}-{step}-{suffix}-{number}"

    return delayed(job, name=name("job"), traverse=False), name


def _n_read(key: str, n_chunks: int, dask_scheduler: Scheduler | None = None) -> int:
    """Return how many chunks of the job that ends with task `key` are read; on the scheduler."""
    if dask_scheduler is None or key not in dask_scheduler.tasks:
        return 0
    reads = "-read-" + key.split("-finish-")[1].removesuffix("0")
    tasks = [task for name, task in dask_scheduler.tasks.items() if reads in str(name)]
    # The scheduler has forgotten reads that were merged.
    return n_chunks - sum(task.state not in ("memory", "released") for task in tasks)


def _load(chunk: Chunk) -> Chunk:
    return chunk


def _read(job: Job[Part, Result], index: int, *chunk: Any) -> Part:
    _keep_pages()
    return job.read(index, _flat(chunk))


@cache
def _keep_pages() -> None:
    """Let malloc keep up to 64 MB of freed memory in this worker.

    Dask returns all but 64 kB of it to the system, and the blocks of a pass would take new pages
    each time: up to two thirds of the time of a pass (docs/decisions/0018).
    """
    with suppress(OSError, AttributeError):  # another C library than glibc
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_MMAP_THRESHOLD, 2**25)
        libc.mallopt(_TRIM_THRESHOLD, 2**26)


def _merge(job: Job[Part, Result], parts: Iterable[Part]) -> Part:
    return tree(parts, job.merge)


def _merge_and_finish(job: Job[Part, Result], parts: Iterable[Part]) -> Result | NextPass:
    return job.finish(_merge(job, parts))


def _run_job(job: Job[Part, Result], chunks: list[Chunk]) -> Result | NextPass:
    return _merge_and_finish(job, (_read(job, i, *chunk) for i, chunk in enumerate(chunks)))


def _flat(chunk: Chunk) -> Chunk:
    """Return the arrays of a chunk: a loader of NumPy arrays returns several of them at once."""
    flat: list[Any] = []
    for part in chunk:
        flat.extend(part if isinstance(part, tuple) else (part,))
    return tuple(flat)


def _result(future: Future) -> Any:
    from distributed import KilledWorker

    try:
        return future.result()
    except (KilledWorker, MemoryError) as error:
        raise LostWorkers(
            f"Workers died or ran out of memory: {type(error).__name__}: {error}"
        ) from error
