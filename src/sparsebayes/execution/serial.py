"""One chunk after the other, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ._base import Chunk, Job, NextPass, Rows, tree

# Few enough that every core gets some, many enough that merging parts stays cheap.
CHUNK_ROWS = 16384


class ArrayRows:
    """NumPy arrays of the same length, cut into chunks.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.execution import ArrayRows
    >>> rows = ArrayRows((np.arange(5.0), None), chunk_rows=2)
    >>> rows.n_chunks, rows.chunk(2)
    (3, (array([4.]), None))
    """

    def __init__(self, arrays: tuple[Any, ...], chunk_rows: int = CHUNK_ROWS) -> None:
        self.arrays = arrays
        self.chunk_rows = chunk_rows
        self.n_chunks = max(1, -(-len(arrays[0]) // chunk_rows))

    def chunk(self, index: int) -> Chunk:
        """Views of the arrays."""
        rows = slice(index * self.chunk_rows, (index + 1) * self.chunk_rows)
        return tuple(None if array is None else array[rows] for array in self.arrays)


class SerialExecutor:
    """Everything here and now.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.execution import ArrayRows, SerialExecutor
    >>> class Total:
    ...     def read(self, index, chunk):
    ...         return chunk[0].sum()
    ...
    ...     def merge(self, left, right):
    ...         return left + right
    ...
    ...     def finish(self, total):
    ...         return float(total)
    >>> SerialExecutor().reduce(Total(), ArrayRows((np.arange(5.0),), chunk_rows=2))
    10.0
    """

    def reduce(self, job: Job, rows: Rows) -> Any:
        """The result of one job."""
        while True:
            parts = (job.read(i, rows.chunk(i)) for i in range(rows.n_chunks))
            result = job.finish(tree(parts, job.merge))
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
