"""What the runs of both partitioned RVMs share: tasks to jobs, and what a model wants next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..designs._base import row_slices
from ..rows import Job, Rows
from ._left_out import RankJob, Seen, Statistics, ranked_together
from ._survey import Survey
from .schedules import Task

Stop = Callable[[], bool]
CUT_SHORT = ("max_time", "interrupted")  # reasons of runs that say nothing about their set
_TAKEN_TOGETHER = 16  # tasks whose centres are fetched in one pass over the rows


@dataclass
class PartitionRuns:
    """Turns tasks into outcomes; a subclass says what a run is."""

    rows: Rows
    survey: Survey

    def job(self, task: Task, centres: np.ndarray, remaining: float | None) -> Any:
        """The run of a task."""
        raise NotImplementedError

    def outcome(self, task: Task, job: Any, result: Any, stop: Stop) -> Any:
        """What is kept of it."""
        raise NotImplementedError

    def outcomes(
        self, tasks: list[Task], stop: Stop, remaining: Callable[[], float | None]
    ) -> Iterator[tuple[Task, Any]]:
        """The outcome of each task, as they finish, until `stop()`."""
        if len(tasks) == 1:
            # Alone, its chunks can be read side by side.
            (job,) = self._jobs(tasks, remaining)
            result = self.rows.reduce(job)
            yield tasks[0], self.outcome(tasks[0], job, result, stop)
            return
        jobs: list[Job] = []

        def remembered() -> Iterator[Job]:
            for job in self._jobs(tasks, remaining):
                jobs.append(job)
                yield job

        for number, result in self.rows.map(remembered(), stop):
            yield tasks[number], self.outcome(tasks[number], jobs[number], result, stop)

    def worst(self, task: Task, error: RowError) -> np.ndarray:
        """Of the unused rows those of largest error, largest first, if the task asks for them."""
        if task.unused is None or task.by != "error":
            return np.empty(0, dtype=np.intp)
        bits = np.zeros(self.survey.n_rows, dtype=bool)
        bits[task.unused] = True
        job = WorstJob(error, self.rows.edges, np.packbits(bits), task.n_worst)
        return self.rows.reduce(job)

    def gaining(
        self, task: Task, active: np.ndarray, seen: Seen, prior: Any, tol: float, stop: Stop
    ) -> np.ndarray | None:
        """Of the unused functions outside a model those that would gain most, best first.

        None of them where not even the best would gain `tol` nats. None (the value) where `stop()`
        was true before all had been looked at.
        """
        assert task.unused is not None
        others = np.setdiff1d(task.unused, active)
        cuts = np.arange(0, len(others), ranked_together(self.survey.n_rows, len(active)))[1:]
        blocks = np.split(others, cuts)
        jobs = (RankJob(seen, self.rows.take(block)) for block in blocks)
        if len(blocks) == 1:
            found = [self.rows.reduce(next(jobs))]
        else:
            by_number = dict(self.rows.map(jobs, stop))
            if len(by_number) < len(blocks):
                return None
            found = [by_number[number] for number in range(len(blocks))]
        statistics = Statistics(
            *(np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
        )
        return others[statistics.ranked(prior, tol)[: task.n_worst]]

    def _jobs(self, tasks: list[Task], remaining: Callable[[], float | None]) -> Iterator[Job]:
        for start in range(0, len(tasks), _TAKEN_TOGETHER):
            some = tasks[start : start + _TAKEN_TOGETHER]
            sizes = [len(task.candidates) for task in some]
            together = np.concatenate([task.candidates for task in some])
            centres = self.rows.take(together)
            for task, own in zip(some, np.split(centres, np.cumsum(sizes)[:-1]), strict=True):
                yield self.job(task, own, remaining())


def wanted(task: Task, outcome: Any) -> bool:
    """Whether a task asks for the functions that would gain its model most."""
    if task.unused is None or task.by != "gain" or outcome.stop_reason in CUT_SHORT:
        return False
    before = -np.inf if task.start is None else task.start.log_evidence
    return bool(outcome.log_evidence - before >= task.enough)


class RowError(Protocol):
    """How far a model is from the target of each row. Travels to workers."""

    def __call__(self, X: np.ndarray, y: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class WorstJob:
    """The `n_worst` unused rows whose targets the model misses by most."""

    error: RowError
    edges: np.ndarray
    unused: np.ndarray  # bits, one per row
    n_worst: int

    def read(self, index: int, chunk: Any) -> tuple[np.ndarray, np.ndarray]:
        """Rows and errors of a chunk, largest first."""
        X, y = chunk[0], chunk[1]
        first = int(self.edges[index])
        rows = np.flatnonzero(np.unpackbits(self.unused, count=first + len(X))[first:])
        errors = np.empty(len(rows))
        for part in row_slices(len(rows), 1024):
            x = np.asarray(X[rows[part]], dtype=np.float64)
            errors[part] = self.error(x, np.asarray(y[rows[part]]))
        return self._largest(rows + first, errors)

    def merge(self, left: Any, right: Any) -> tuple[np.ndarray, np.ndarray]:
        """Of neighbouring chunks; ties go to the lower row."""
        return self._largest(*(np.concatenate(pair) for pair in zip(left, right, strict=True)))

    def finish(self, total: Any) -> np.ndarray:
        """The rows."""
        return total[0]

    def _largest(self, rows: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keep = np.lexsort((rows, -errors))[: self.n_worst]
        return rows[keep], errors[keep]
