"""Runs of both partitioned RVMs: tasks become jobs, and candidates of the next task are ranked.

The next task takes the rows that a model misses by most (`WorstJob`), or the functions that would
raise its evidence most (`RankJob`). At a fitted model, with omega the weight of each row (labels:
its curvature), r the weighted residual, and W^1/2 the root of the posterior covariance of its k
columns Phi (over the noise), the evidence as a function of one more column h depends on
(Tipping & Faul 2003)

    s = h'Omega h - |W^1/2 Phi'Omega h|^2,   q = h'r,

both with the columns centred by omega where there is an intercept. What the best lam gains rises
with q^2/s and with nothing else, so that this ranks also the functions that gain nothing today.
That costs n k for each function, about a quarter of what a run of the RVM on it has cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from ..kernels import Kernel
from ..rows import Job, Rows, row_slices
from ..rows._base import Chunk
from ..solvers.run import StopReason
from ..solvers.rvm.one_column import optimal_lam
from ._reduce import Values
from ._survey import Survey
from .schedules import OutcomeT, Task

Stop: TypeAlias = Callable[[], bool]
RowError: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of X and y
RankedRows: TypeAlias = tuple[np.ndarray, np.ndarray]  # numbers of rows, and their errors
GainPrior: TypeAlias = tuple[float, float, float | None]  # (E, n, sigma2) of `one_column`
JobT = TypeVar("JobT", bound=Job)
RunResult = TypeVar("RunResult")
# Reasons that are not about the set of a run.
CUT_SHORT = (StopReason.TIME_LIMIT, StopReason.INTERRUPTED)
_TAKEN_TOGETHER = 16  # tasks whose centres are fetched in one pass over the rows
_BLOCK = 4_000_000  # entries of k x functions that are held at a time
_LEAST = 256  # functions that one pass considers
_PASS = 2e9  # kernel values of one pass, about 20 seconds, after which the time is checked
_ROUNDING = 1e-10  # of h'Omega h: an s that is less is none


@dataclass
class PartitionRuns(Generic[JobT, RunResult, OutcomeT]):
    """Turns tasks into outcomes; a subclass defines a run."""

    rows: Rows
    survey: Survey

    def job(self, task: Task, centres: np.ndarray, remaining: float | None) -> JobT:
        """Return the job that runs a task."""
        raise NotImplementedError

    def outcome(self, task: Task, job: JobT, result: RunResult, stop: Stop) -> OutcomeT:
        """Return the record of a run."""
        raise NotImplementedError

    def outcomes(
        self, tasks: list[Task], stop: Stop, remaining: Callable[[], float | None]
    ) -> Iterator[tuple[Task, OutcomeT]]:
        """Yield the outcome of each task as it finishes, until `stop()`."""
        if len(tasks) == 1:
            # The chunks of a single job can be read side by side.
            (job,) = self._jobs(tasks, remaining)
            result = self.rows.reduce(job)
            yield tasks[0], self.outcome(tasks[0], job, result, stop)
            return
        jobs: list[JobT] = []

        def remembered() -> Iterator[JobT]:
            for job in self._jobs(tasks, remaining):
                jobs.append(job)
                yield job

        for number, result in self.rows.map(remembered(), stop):
            yield tasks[number], self.outcome(tasks[number], jobs[number], result, stop)

    def worst(self, task: Task, error: RowError) -> np.ndarray:
        """Return the unused rows of largest error, largest first, if the task requests them."""
        if task.unused is None or task.by != "error":
            return np.empty(0, dtype=np.intp)
        bits = np.zeros(self.survey.n_rows, dtype=bool)
        bits[task.unused] = True
        job = WorstJob(error, self.rows.edges, np.packbits(bits), task.n_worst)
        return self.rows.reduce(job)

    def ranked(
        self,
        task: Task,
        outcome: OutcomeT,
        model: RowModel,
        prior: GainPrior,
        tol: float,
        stop: Stop,
    ) -> OutcomeT:
        """Return the outcome with the unused functions that would raise its evidence most.

        They are ranked, best first, if the task requests them. There are none if even the best
        would gain less than `tol` nats.
        """
        if task.unused is None or task.by != "gain" or outcome.stop_reason in CUT_SHORT:
            return outcome
        before = -np.inf if task.start is None else task.start.log_evidence
        if not outcome.log_evidence - before >= task.least_gain:
            return outcome
        others, n_active = np.setdiff1d(task.unused, outcome.active), len(outcome.active)
        size = max(_LEAST, min(_BLOCK // max(n_active, 1), _PASS // max(self.survey.n_rows, 1)))
        blocks = np.split(others, np.arange(0, len(others), int(size))[1:])
        jobs = (RankJob(model, self.rows.take(block)) for block in blocks)
        if len(blocks) == 1:
            parts = [self.rows.reduce(next(jobs))]
        else:
            by_number = dict(self.rows.map(jobs, stop))
            if len(by_number) < len(blocks):  # `stop()` was true before all had been considered
                return outcome._replace(stop_reason=StopReason.TIME_LIMIT)
            parts = [by_number[number] for number in range(len(blocks))]
        statistics = Statistics(
            *(np.concatenate(fields, axis=1) for fields in zip(*parts, strict=True))
        )
        return outcome._replace(worst=others[statistics.ranked(prior, tol)[: task.n_worst]])

    def _jobs(self, tasks: list[Task], remaining: Callable[[], float | None]) -> Iterator[JobT]:
        for start in range(0, len(tasks), _TAKEN_TOGETHER):
            batch = tasks[start : start + _TAKEN_TOGETHER]
            sizes = [len(task.candidates) for task in batch]
            centres = self.rows.take(np.concatenate([task.candidates for task in batch]))
            for task, own in zip(batch, np.split(centres, np.cumsum(sizes)[:-1]), strict=True):
                yield self.job(task, own, remaining())


@dataclass(frozen=True)
class WorstJob:
    """The `n_worst` unused rows whose targets the model misses by most."""

    error: RowError  # how far a model is from the target of each row; travels to workers
    edges: np.ndarray
    unused: np.ndarray  # bits, one per row
    n_worst: int

    def read(self, index: int, chunk: Chunk) -> RankedRows:
        """Return rows and errors of a chunk, largest first."""
        X, y = chunk[0], chunk[1]
        first = int(self.edges[index])
        rows = np.flatnonzero(np.unpackbits(self.unused, count=first + len(X))[first:])
        errors = np.empty(len(rows))
        for part in row_slices(len(rows), 1024):
            x = np.asarray(X[rows[part]], dtype=np.float64)
            errors[part] = self.error(x, np.asarray(y[rows[part]]))
        return self._largest(rows + first, errors)

    def merge(self, first: RankedRows, second: RankedRows) -> RankedRows:
        """Return the largest of both; ties go to the lower row."""
        return self._largest(*(np.concatenate(pair) for pair in zip(first, second, strict=True)))

    def finish(self, total: RankedRows) -> np.ndarray:
        return total[0]

    def _largest(self, rows: np.ndarray, errors: np.ndarray) -> RankedRows:
        keep = np.lexsort((rows, -errors))[: self.n_worst]
        return rows[keep], errors[keep]


class AtRows(NamedTuple):
    """A model at some rows."""

    omega: np.ndarray
    residual: np.ndarray
    projection: np.ndarray  # Omega Phi W^1/2


class RowModel(Protocol):
    """A model of one or more problems, for some rows of a chunk. Travels to workers."""

    @property
    def intercept(self) -> bool:
        """True where the columns are centred."""

    @property
    def kernel(self) -> Kernel:
        """The kernel of the functions."""

    @property
    def n_functions(self) -> list[int]:
        """Number of functions of each problem."""

    def rows(self, chunk: Chunk) -> tuple[np.ndarray, ...]:
        """Return the arrays of a chunk for its rows of positive weight, X first."""

    def __call__(self, arrays: tuple[np.ndarray, ...], /) -> Iterator[AtRows]:
        """Yield each problem at rows of these arrays."""


class Statistics(NamedTuple):
    """s and q of each function, one row for each problem, and h'Omega h."""

    s: np.ndarray
    q: np.ndarray
    norms: np.ndarray

    def ranked(self, prior: GainPrior, tol: float) -> np.ndarray:
        """Return the functions by their largest gain over the problems, best first.

        `prior` is (E, n, sigma2) as in `solvers.rvm.one_column`. None are returned if no function
        gains `tol` nats.
        """
        if not self.s.shape[1]:
            return np.empty(0, dtype=np.intp)
        if float(np.max(optimal_lam(self.s, self.q, self.norms, *prior)[1])) < tol:
            return np.empty(0, dtype=np.intp)
        usable = self.s > 0
        ratio = np.where(usable, self.q**2 / np.where(usable, self.s, 1.0), 0.0)
        return np.argsort(-np.max(ratio, axis=0), kind="stable")


class Sums(NamedTuple):
    """Sums over rows, for each problem."""

    along: list[np.ndarray]  # W^1/2 Phi'Omega H
    squares: np.ndarray  # of H, by omega
    means: np.ndarray
    slopes: np.ndarray  # H'r
    totals: np.ndarray  # of omega


@dataclass(frozen=True)
class RankJob:
    """One pass that gives the statistics of the functions on some centres."""

    model: RowModel
    centres: np.ndarray

    def read(self, index: int, chunk: Chunk) -> Sums:
        arrays = self.model.rows(chunk)
        sizes, m = self.model.n_functions, len(self.centres)
        along = [np.zeros((k, m)) for k in sizes]
        squares, means, slopes = np.zeros((3, len(sizes), m))
        totals = np.zeros(len(sizes))
        values = Values(self.model.kernel, self.centres)
        for rows in row_slices(len(arrays[0]), values.step):
            block = tuple(a[rows] for a in arrays)
            H = values(block[0])
            models = list(self.model(block))
            for i, at in enumerate(models):
                along[i] += at.projection.T @ H
                means[i] += at.omega @ H
                slopes[i] += at.residual @ H
                totals[i] += np.sum(at.omega)
            np.square(H, out=H)
            for i, at in enumerate(models):
                squares[i] += at.omega @ H
        return Sums(along, squares, means, slopes, totals)

    def merge(self, first: Sums, second: Sums) -> Sums:
        along = [a + b for a, b in zip(first.along, second.along, strict=True)]
        return Sums(along, *(a + b for a, b in zip(first[1:], second[1:], strict=True)))

    def finish(self, total: Sums) -> Statistics:
        """Return s, q and h'Omega h."""
        norms = total.squares
        if self.model.intercept:
            norms = norms - total.means**2 / total.totals[:, None]
        s = norms - np.array([np.einsum("ij,ij->j", a, a) for a in total.along])
        return Statistics(np.where(s > _ROUNDING * total.squares, s, 0.0), total.slopes, norms)
