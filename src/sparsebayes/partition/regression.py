"""Runs of the RVM for regression on one set of candidates, as jobs over the rows.

Reading A of the paper (docs/theory/partition.md): a run sees all N rows and
targets, and one column for each candidate of its set. Cost: one N |set|^2 product over the rows,
|set|^3 for each step of the RVM, nothing N x N; the working set adds a pass of N times the number
of survivors for the errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, cast

import numpy as np

from ..designs import Design, KernelBasis
from ..kernels import Kernel
from ..posterior import Posterior, augmented_triangle, gaussian_posterior
from ..rows._base import Chunk
from ..solvers.noise import noise_floor
from ..solvers.run import Algorithm, StopReason, run
from ._reduce import Columns, Part, Reduced, exact_is_cheap, nats_lost
from ._runs import AtRows, PartitionRuns, Stop
from .schedules import Task

_DOUBT = 0.1  # nats that rounding may cost a run before it is made again the exact way
_TELLING = 1e-3  # nats that rounding may cost the model that is kept


class SearchState(Protocol):
    """The fields of a solver's state that a run reads, or sets to start from a model."""

    active: np.ndarray
    lam: np.ndarray
    sigma2: float


class TargetSolver(Algorithm[SearchState], Protocol):
    """A solver of one real target."""

    @property
    def noise_variance(self) -> float | None:
        """Known noise variance; None where it is learnt."""

    @property
    def tol(self) -> float:
        """Gain in nats below which the solver stops."""


class Outcome(NamedTuple):
    """The record of a run, in the units of the scaled target. Rows are given by their numbers."""

    candidates: np.ndarray
    active: np.ndarray
    lam: np.ndarray
    worst: np.ndarray
    log_evidence: float
    noise_variance: float
    rmse: float
    n_iter: int
    stop_reason: StopReason
    elapsed: float = 0.0  # seconds from the start of the fit


class Run(NamedTuple):
    """The model that a run reached: positions in the set, and the mean function."""

    active: np.ndarray
    lam: np.ndarray
    weights: np.ndarray
    intercept: float
    log_evidence: float
    noise_variance: float
    rmse: float
    n_iter: int
    stop_reason: StopReason
    doubtful: bool
    means: np.ndarray  # of the active columns
    root: np.ndarray  # of their posterior covariance over the noise


class Start(NamedTuple):
    """The model that a run begins with: positions in the set, lam and noise."""

    active: np.ndarray
    lam: np.ndarray
    noise_variance: float


@dataclass(frozen=True)
class RunJob:
    """Reduce [Phi t], then run the solver on what is left."""

    columns: Columns
    solver: TargetSolver
    max_iter: int
    max_time: float | None
    stop_below: float
    start: Start | None = None

    def read(self, index: int, chunk: Chunk) -> Part:
        return self.columns.read(index, chunk)

    def merge(self, first: Part, second: Part) -> Part:
        return self.columns.merge(first, second)

    def finish(self, total: Part) -> Run:
        reduced = self.columns.finish(total)
        design = reduced.design(hold=self.columns.kernel.stationary and self.start is None)
        t = reduced.t
        result = run(
            self.solver,
            design,
            t,
            max_iter=self.max_iter,
            max_time=self.max_time,
            # A run before the last ends when fewer than P/2 functions are left (section 2).
            callback=lambda iteration, info, state: len(state.active) < self.stop_below,
            state=None if self.start is None else begin(self.solver, design, t, self.start),
        )
        order = np.argsort(result.state.active)  # a greedy solver has them in order of choice
        active = np.asarray(result.state.active, dtype=np.intp)[order]
        lam = np.asarray(result.state.lam, dtype=np.float64)[order]
        posterior = posterior_of(reduced, active, lam, self.solver.noise_variance)
        r = t - reduced.matrix[:, active] @ posterior.mean
        reason = result.stop_reason
        if reason is StopReason.CALLBACK:
            reason = StopReason.FEW_LEFT
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
            not lost < _DOUBT,
            reduced.means[active],
            posterior.form.root,
        )


def begin(solver: TargetSolver, design: Design, t: np.ndarray, start: Start) -> SearchState:
    """Return the state of a solver that has all columns, some of them in a model already.

    The others get the geometric mean of its lam over the squared lengths of the columns: as likely
    to be large as those that stayed.
    """
    state = solver.init(design, t)
    if not len(start.active):
        return state
    lam, norms = np.full(design.n_candidates, np.nan), design.sqnorms()
    lam[start.active] = start.lam
    usual = np.exp(np.mean(np.log(start.lam / norms[start.active])))
    lam = np.where(np.isnan(lam), usual * norms, lam)
    state.lam = lam[state.active]
    state.sigma2 = start.noise_variance
    return state


@dataclass(frozen=True)
class AbsoluteError:
    """|t - model| of each row."""

    basis: KernelBasis
    weights: np.ndarray
    intercept: float
    scale: float

    def __call__(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        t = y.astype(np.float64) / self.scale
        return np.abs(t - self.basis(X) @ self.weights - self.intercept)


@dataclass(frozen=True)
class TargetModel:
    """A model of a real target, for `RankJob`."""

    basis: KernelBasis
    weights: np.ndarray
    intercept_value: float
    means: np.ndarray
    root: np.ndarray
    scale: float
    intercept: bool

    @property
    def kernel(self) -> Kernel:
        return self.basis.kernel

    @property
    def n_functions(self) -> list[int]:
        return [len(self.weights)]

    def rows(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X, y = (np.asarray(a, dtype=np.float64) for a in chunk[:2])
        weight = np.ones(len(X)) if chunk[2] is None else np.asarray(chunk[2], dtype=np.float64)
        positive = weight > 0
        return X[positive], y[positive] / self.scale, weight[positive]

    def __call__(self, arrays: tuple[np.ndarray, ...]) -> Iterator[AtRows]:
        X, t, weight = arrays
        Phi = self.basis(X)
        residual = weight * (t - Phi @ self.weights - self.intercept_value)
        yield AtRows(weight, residual, weight[:, None] * ((Phi - self.means) @ self.root))


@dataclass
class RegressionRuns(PartitionRuns[RunJob, Run, Outcome]):
    """Runs for one real target."""

    kernel: Kernel
    solver: TargetSolver
    scale: float
    intercept: bool
    max_iter: int
    shrinking: bool  # the solver starts with all candidates, so it can stop when few are left

    def job(self, task: Task, centres: np.ndarray, remaining: float | None) -> RunJob:
        """Return the job of a task; small sets are reduced the exact way."""
        exact = exact_is_cheap(self.survey.n_rows, len(centres))
        return RunJob(
            Columns(self.kernel, centres, self.scale, self.intercept, exact),
            self.solver,
            self.max_iter,
            remaining,
            task.stop_below if self.shrinking else 0.0,
            self._start(task),
        )

    def _start(self, task: Task) -> Start | None:
        if task.start is None or not self.shrinking:
            return None
        start = cast(Outcome, task.start)
        where = np.searchsorted(task.candidates, start.active)
        return Start(where, start.lam, start.noise_variance)

    def outcome(self, task: Task, job: RunJob, result: Run, stop: Stop) -> Outcome:
        """Return the record of a run, which is made again where rounding may cost too much."""
        if result.doubtful:
            job = replace(job, columns=replace(job.columns, exact=True))
            result = self.rows.reduce(job)
        basis = KernelBasis(self.kernel, job.columns.centres[result.active])
        error = AbsoluteError(basis, result.weights, result.intercept, self.scale)
        outcome = Outcome(
            task.candidates,
            task.candidates[result.active],
            result.lam,
            self.worst(task, error),
            result.log_evidence,
            result.noise_variance,
            result.rmse,
            result.n_iter,
            result.stop_reason,
        )
        model = TargetModel(
            basis,
            result.weights,
            result.intercept,
            result.means,
            result.root,
            self.scale,
            self.intercept,
        )
        n = self.survey.total - self.intercept
        prior = n * result.noise_variance, n, self.solver.noise_variance
        return self.ranked(task, outcome, model, prior, self.solver.tol, stop)

    def kept(self, active: np.ndarray, lam: np.ndarray) -> tuple[Reduced, KernelBasis, Posterior]:
        """Return the columns of the functions on these rows, the functions, and their posterior.

        They are reduced by moments where no digits that matter are lost, in a quarter of the time.
        """
        basis = KernelBasis(self.kernel, self.rows.take(active))
        every, noise = np.arange(len(active)), self.solver.noise_variance
        exact = exact_is_cheap(self.survey.n_rows, len(active))
        while True:
            columns = Columns(self.kernel, basis.centres, self.scale, self.intercept, exact)
            reduced = self.rows.reduce(columns)
            posterior = posterior_of(reduced, every, lam, noise)
            sigma2 = float(posterior.noise_variance)
            if exact or nats_lost(reduced, every, posterior.mean, sigma2) < _TELLING:
                return reduced, basis, posterior
            exact = True


def posterior_of(
    reduced: Reduced, active: np.ndarray, lam: np.ndarray, noise_variance: float | None
) -> Posterior:
    """Return the posterior of some columns; a learnt noise is at its best value for these lam."""
    design = reduced.design()
    sigma2 = noise_variance
    if sigma2 is None:
        n = design.n_observations
        E = augmented_triangle(design, reduced.t, active, lam)[2]
        sigma2 = max(float(E) / n, noise_floor(reduced.t, n))
    return gaussian_posterior(design, reduced.t, active, lam, sigma2)
