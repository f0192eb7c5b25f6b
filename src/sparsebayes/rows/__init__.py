"""The rows of the data, wherever they are stored, and the jobs that pass over them.

`Rows` are X and arrays of the same length (targets, weights) in chunks: arrays in memory, blocks
read from any source, tensors on a device, or Dask arrays. A `Job` reads chunks, merges the parts
and returns a result; ``rows.reduce(job)`` runs one job, ``rows.map(jobs)`` many of them. An
executor does the work on this thread, on several threads, or on a Dask cluster. Parts are merged
in one fixed tree, so every executor returns the same numbers.
"""

from ._base import (
    Executor,
    HashJob,
    Job,
    LostWorkers,
    NextPass,
    Rows,
    TakeJob,
    row_hashes,
    row_slices,
    tree,
)
from .arrays import ArrayRows, RowBlocks, make_rows
from .executors import SerialExecutor, ThreadExecutor, choose_executor, is_dask, is_dask_frame
from .spread import Spread, SpreadJob

__all__ = [
    "ArrayRows",
    "Executor",
    "HashJob",
    "Job",
    "LostWorkers",
    "NextPass",
    "RowBlocks",
    "Rows",
    "SerialExecutor",
    "Spread",
    "SpreadJob",
    "TakeJob",
    "ThreadExecutor",
    "choose_executor",
    "is_dask",
    "is_dask_frame",
    "make_rows",
    "row_hashes",
    "row_slices",
    "tree",
]
