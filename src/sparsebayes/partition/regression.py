"""Runs of the RVM for regression on one set of candidates, as jobs over the rows.

Reading A of the paper (notes: the only one that gives its figures): a run sees all N rows and
targets, and one column for each candidate of its set. Cost: one N |set|^2 product over the rows,
|set|^3 for each step of the RVM, nothing N x N; the working set adds a pass of N times the number
of survivors for the errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..designs import KernelBasis
from ..kernels import Kernel
from ..posterior import GaussianPosterior, augmented_triangle, gaussian_posterior
from ..solvers import run
from ..solvers.rvm import noise_floor
from ._reduce import Columns, Reduced, exact_is_cheap, nats_lost
from ._runs import PartitionRuns
from ._survey import take
from .schedules import Task

_SMALL_GAIN = 1.0  # nats
_DOUBT = 0.1  # nats that rounding may cost a run before it is made again the exact way
_TELLING = 1e-3  # nats that rounding may cost the model that is kept


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

        stop = EarlyEnd(self.stop_below)
        result = run(
            self.solver,
            design,
            t,
            max_iter=self.max_iter,
            max_time=self.max_time,
            callback=stop,
        )
        order = np.argsort(result.state.active)  # a greedy solver has them in order of choice
        active = np.asarray(result.state.active, dtype=np.intp)[order]
        lam = np.asarray(result.state.lam, dtype=np.float64)[order]
        posterior = posterior_of(reduced, active, lam, self.solver.noise_variance)
        r = t - reduced.matrix[:, active] @ posterior.mean
        reason = stop.reason if result.stop_reason == "callback" else result.stop_reason
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


class EarlyEnd:
    """Ends a run before the last one: fewer than P/2 functions are left, or more are needed.

    The paper's rule is the first. Where the data determine more than P/2 weights it never fires,
    and a run that goes on to convergence drops functions that look superfluous only because the
    rest of the model is not there yet: on Friedman's function split-merge then loses 25 % (P = 50)
    or 10 % (4 sqrt N) of its accuracy. There a run ends when two steps gain less than a nat each.
    """

    def __init__(self, few: float) -> None:
        self.few = few
        self.reason = ""
        self._evidence = -np.inf
        self._small = 0

    def __call__(self, iteration: int, info: Any, state: Any) -> bool:
        if self.few == 0.0:
            return False
        gained = info.log_evidence - self._evidence
        self._small = self._small + 1 if gained < _SMALL_GAIN else 0
        self._evidence = info.log_evidence
        if len(state.active) < self.few:
            self.reason = "few left"
        elif self._small >= 2 and info.n_determined > self.few:
            self.reason = "many needed"
        return bool(self.reason)


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


@dataclass
class RegressionRuns(PartitionRuns):
    """Runs for one real target."""

    kernel: Kernel
    solver: Any
    scale: float
    intercept: bool
    max_iter: int
    shrinking: bool  # the solver starts with all candidates, so it can stop when few are left

    def job(self, task: Task, centres: np.ndarray, remaining: float | None) -> RunJob:
        """Small sets are reduced the exact way."""
        exact = exact_is_cheap(self.survey.n_rows, len(centres))
        return RunJob(
            Columns(self.kernel, centres, self.scale, self.intercept, exact),
            self.solver,
            self.max_iter,
            remaining,
            task.stop_below if self.shrinking else 0.0,
        )

    def outcome(self, task: Task, job: RunJob, result: Run) -> Outcome:
        """Made again where rounding may have cost too much."""
        if result.doubtful:
            job = replace(job, columns=replace(job.columns, exact=True))
            result = self.executor.reduce(job, self.rows)
        basis = KernelBasis(self.kernel, job.columns.centres[result.active])
        error = AbsoluteError(basis, result.weights, result.intercept, self.scale)
        return Outcome(
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

    def kept(
        self, active: np.ndarray, lam: np.ndarray
    ) -> tuple[Reduced, KernelBasis, GaussianPosterior]:
        """The columns of the functions on these rows, the functions, and their posterior.

        By moments where these cost no digits that matter, which takes a quarter of the time.
        """
        basis = KernelBasis(self.kernel, take(self.executor, self.rows, self.survey, active))
        every, noise = np.arange(len(active)), self.solver.noise_variance
        exact = exact_is_cheap(self.survey.n_rows, len(active))
        while True:
            columns = Columns(self.kernel, basis.centres, self.scale, self.intercept, exact)
            reduced = self.executor.reduce(_ReduceJob(columns), self.rows)
            posterior = posterior_of(reduced, every, lam, noise)
            sigma2 = float(posterior.noise_variance)
            if exact or nats_lost(reduced, every, posterior.mean, sigma2) < _TELLING:
                return reduced, basis, posterior
            exact = True


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
