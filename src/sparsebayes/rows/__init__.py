"""The rows of the data: where they lie, and how everything about them is found in passes over them.

`Rows` are X and what stands beside it (targets, weights), in chunks: arrays in memory, blocks that
are read from somewhere, or Dask arrays. A `Job` reads chunks, merges what it read and finishes with
the whole; `rows.reduce(job)` runs it, `rows.map(jobs)` many, results as they finish. An executor
does the work: here, on threads, or on a Dask cluster. Parts are merged in one fixed tree whoever
does it, so every executor gives the same numbers.
"""

from ._base import Executor, HashJob, Job, LostWorkers, NextPass, Rows, TakeJob, row_hashes, tree
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
    "tree",
]
