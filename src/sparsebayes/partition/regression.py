"""Runs of the RVM for regression on one set of candidates, as jobs over the rows.

Reading A of the paper (notes: the only one that gives its figures): a run sees all N rows and
targets, and one column for each candidate of its set. Cost: one N |set|^2 product over the rows,
|set|^3 for each step of the RVM, nothing N x N; the working set adds a pass of N times the number
of survivors for the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..designs import KernelBasis
from ..designs._base import row_slices
from ..execution import Executor, Rows
from ..kernels import Kernel
from ..posterior import GaussianPosterior, augmented_triangle, gaussian_posterior
from ..solvers import run
from ..solvers.rvm import noise_floor
from ._reduce import Columns, Reduced, exact_is_cheap, nats_lost
from ._survey import Survey, take
from .schedules import Task

_DOUBT = 0.1  # nats that rounding may cost a run before it is made again the exact way
_TAKEN_TOGETHER = 16  # tasks whose centres are fetched in one pass over the rows


class Outcome(NamedTuple):
    """What a run of the RVM leaves, in the units of the scaled target. Rows by their numbers."""

    candidates: np.ndarray
    active: np.ndarray
    lam: np.ndarray
    worst: np.ndarray
    log_evidence: float
    noise_variance: float
    rmse: float
    n_iter: int
    stop_reason: str
    elapsed: float = 0.0  # seconds from the start of the fit


class Run(NamedTuple):
    """The same before it knows of rows: positions in the set, and the mean function."""

    active: np.ndarray
    lam: np.ndarray
    weights: np.ndarray
    intercept: float
    log_evidence: float
    noise_variance: float
    rmse: float
    n_iter: int
    stop_reason: str
    doubtful: bool


@dataclass(frozen=True)
class RunJob:
    """Reduce [Phi t], then run the solver on what is left."""

    columns: Columns
    solver: Any
    max_iter: int
    max_time: float | None
    stop_below: float

    def read(self, index: int, chunk: Any) -> Any:
        """A chunk of rows."""
        return self.columns.read(index, chunk)

    def merge(self, left: Any, right: Any) -> Any:
        """Neighbouring chunks."""
        return self.columns.merge(left, right)

    def finish(self, total: Any) -> Run:
        """The run."""
        reduced = self.columns.reduced(total)
        design, t = reduced.design(), reduced.t

        def few_left(iteration: int, info: Any, state: Any) -> bool:
            return len(state.active) < self.stop_below

        result = run(
            self.solver,
            design,
            t,
            max_iter=self.max_iter,
            max_time=self.max_time,
            callback=few_left,
        )
        order = np.argsort(result.state.active)  # a greedy solver has them in order of choice
        active = np.asarray(result.state.active, dtype=np.intp)[order]
        lam = np.asarray(result.state.lam, dtype=np.float64)[order]
        posterior = posterior_of(reduced, active, lam, self.solver.noise_variance)
        r = t - reduced.matrix[:, active] @ posterior.mean
        reason = "few left" if result.stop_reason == "callback" else result.stop_reason
        sigma2 = float(posterior.noise_variance)
        lost = 0.0 if self.columns.exact else nats_lost(reduced, active, posterior.mean, sigma2)
        return Run(
            active,
            lam,
            posterior.mean,
            float(reduced.offset - reduced.means[active] @ posterior.mean),
            posterior.log_evidence,
            sigma2,
            float(np.sqrt(r @ r / reduced.total)),
            result.n_iter,
            reason,
            doubtful=not lost < _DOUBT,
        )


@dataclass(frozen=True)
class WorstJob:
    """The `n_worst` unused rows whose targets the model misses by most."""

    basis: KernelBasis
    weights: np.ndarray
    intercept: float
    scale: float
    starts: np.ndarray
    unused: np.ndarray  # bits, one per row
    n_worst: int

    def read(self, index: int, chunk: Any) -> tuple[np.ndarray, np.ndarray]:
        """Rows and errors of a chunk, largest first."""
        X, y = chunk[0], chunk[1]
        first = int(self.starts[index])
        rows = np.flatnonzero(np.unpackbits(self.unused, count=first + len(X))[first:])
        errors = np.empty(len(rows))
        for part in row_slices(len(rows), min(4096, max(64, 2**18 // max(1, len(self.basis))))):
            x = np.asarray(X[rows[part]], dtype=np.float64)
            t = np.asarray(y[rows[part]], dtype=np.float64) / self.scale
            errors[part] = np.abs(t - self.basis(x) @ self.weights - self.intercept)
        return self._largest(rows + first, errors)

    def merge(self, left: Any, right: Any) -> tuple[np.ndarray, np.ndarray]:
        """Of neighbouring chunks; ties go to the lower row."""
        return self._largest(*(np.concatenate(pair) for pair in zip(left, right, strict=True)))

    def finish(self, total: Any) -> np.ndarray:
        """The rows, in increasing order."""
        return np.sort(total[0])

    def _largest(self, rows: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keep = np.lexsort((rows, -errors))[: self.n_worst]
        return rows[keep], errors[keep]


@dataclass
class RegressionRuns:
    """Turns tasks into outcomes on an executor."""

    rows: Rows
    executor: Executor
    survey: Survey
    kernel: Kernel
    solver: Any
    scale: float
    intercept: bool
    max_iter: int
    shrinking: bool  # the solver starts with all candidates, so it can stop when few are left

    def outcomes(
        self, tasks: list[Task], stop: Callable[[], bool], remaining: Callable[[], float | None]
    ) -> Iterator[tuple[Task, Outcome]]:
        """The outcome of each task, as they finish, until `stop()`."""
        if len(tasks) == 1:
            # Alone, its chunks can be read side by side.
            (job,) = self._jobs(tasks, remaining)
            yield tasks[0], self._outcome(tasks[0], job, self.executor.reduce(job, self.rows))
            return
        jobs: list[RunJob] = []

        def remembered() -> Iterator[RunJob]:
            for job in self._jobs(tasks, remaining):
                jobs.append(job)
                yield job

        for number, result in self.executor.map(remembered(), self.rows, stop):
            yield tasks[number], self._outcome(tasks[number], jobs[number], result)

    def exact(self, active: np.ndarray) -> tuple[Reduced, KernelBasis]:
        """The columns of these rows, reduced without loss, and their functions."""
        basis = KernelBasis(self.kernel, take(self.executor, self.rows, self.survey, active))
        columns = Columns(self.kernel, basis.centres, self.scale, self.intercept, exact=True)
        return self.executor.reduce(_ReduceJob(columns), self.rows), basis

    def _jobs(self, tasks: list[Task], remaining: Callable[[], float | None]) -> Iterator[RunJob]:
        for start in range(0, len(tasks), _TAKEN_TOGETHER):
            some = tasks[start : start + _TAKEN_TOGETHER]
            sizes = [len(task.candidates) for task in some]
            together = np.concatenate([task.candidates for task in some])
            centres = take(self.executor, self.rows, self.survey, together)
            for task, own in zip(some, np.split(centres, np.cumsum(sizes)[:-1]), strict=True):
                exact = exact_is_cheap(self.survey.n_rows, len(own))
                yield RunJob(
                    Columns(self.kernel, own, self.scale, self.intercept, exact),
                    self.solver,
                    self.max_iter,
                    remaining(),
                    task.stop_below if self.shrinking else 0.0,
                )

    def _outcome(self, task: Task, job: RunJob, result: Run) -> Outcome:
        if result.doubtful:
            columns = Columns(self.kernel, job.columns.centres, self.scale, self.intercept, True)
            job = RunJob(columns, job.solver, job.max_iter, job.max_time, job.stop_below)
            result = self.executor.reduce(job, self.rows)
        worst = np.empty(0, dtype=np.intp)
        if task.unused is not None:
            worst = self._worst(task, job.columns.centres[result.active], result)
        return Outcome(
            task.candidates,
            task.candidates[result.active],
            result.lam,
            worst,
            result.log_evidence,
            result.noise_variance,
            result.rmse,
            result.n_iter,
            result.stop_reason,
        )

    def _worst(self, task: Task, centres: np.ndarray, result: Run) -> np.ndarray:
        assert task.unused is not None
        bits = np.zeros(self.survey.n_rows, dtype=bool)
        bits[task.unused] = True
        job = WorstJob(
            KernelBasis(self.kernel, centres),
            result.weights,
            result.intercept,
            self.scale,
            self.survey.starts,
            np.packbits(bits),
            task.n_worst,
        )
        return self.executor.reduce(job, self.rows)


@dataclass(frozen=True)
class _ReduceJob:
    columns: Columns

    def read(self, index: int, chunk: Any) -> Any:
        return self.columns.read(index, chunk)

    def merge(self, left: Any, right: Any) -> Any:
        return self.columns.merge(left, right)

    def finish(self, total: Any) -> Reduced:
        return self.columns.reduced(total)


def posterior_of(
    reduced: Reduced, active: np.ndarray, lam: np.ndarray, noise_variance: float | None
) -> GaussianPosterior:
    """The posterior of some columns; the noise at its best value for these lam where learnt."""
    design = reduced.design()
    sigma2 = noise_variance
    if sigma2 is None:
        n = design.n_observations
        E = augmented_triangle(design, reduced.t, active, lam)[2]
        sigma2 = max(E / n, noise_floor(reduced.t, n))
    return gaussian_posterior(design, reduced.t, active, lam, sigma2)
