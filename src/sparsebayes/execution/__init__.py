"""Where the passes over the rows are made: here, on threads, or on a Dask cluster.

A `Job` reads chunks of rows, merges what it read and finishes with the whole. An executor runs jobs
over `Rows`: `reduce` one of them, `map` many, results as they finish. Parts are merged in one fixed
tree whoever does it, so every executor gives the same numbers.
"""

from ._base import Executor, Job, LostWorkers, NextPass, Rows, TakeJob, tree
from ._choose import choose_executor, is_dask, make_rows
from .serial import ArrayRows, SerialExecutor
from .threads import ThreadExecutor

__all__ = [
    "ArrayRows",
    "Executor",
    "Job",
    "LostWorkers",
    "NextPass",
    "Rows",
    "SerialExecutor",
    "TakeJob",
    "ThreadExecutor",
    "choose_executor",
    "is_dask",
    "make_rows",
    "tree",
]
