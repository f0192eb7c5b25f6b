"""Runs of the RVM for labels on one set of candidates, as jobs over the rows.

As in regression (reading A of the paper) a run sees all N rows and labels, and one column for each
candidate of its set. The curvature of a Bernoulli likelihood moves with the mode, so the rows
cannot be reduced once and for all: a run is a chain of passes, about 15, each of which adds up what
`solvers.rvm.laplace_em` needs for its next step. No pass holds more than a chunk of rows. All
classes go through the same passes, each against the rest; a candidate survives if some class keeps
it, and a run before the last ends early when fewer than P/2 do.

Cost: N |set|^2 a pass and class, nothing N x N.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, cast

import numpy as np
from scipy.special import expit

from ..designs import KernelBasis
from ..kernels import Kernel
from ..posterior import likelihood_slopes
from ..rows import NextPass, row_slices
from ..rows._base import Chunk
from ..solvers.run import StopReason
from ..solvers.rvm.laplace_em import LaplaceState
from ..solvers.rvm.laplace_sums import Summing, Sums
from ._reduce import Values
from ._runs import AtRows, PartitionRuns, Stop
from .schedules import Task

_TIGHT = 1e-20  # of the penalised likelihood: what the last Newton step of the kept model promises


class LabelOutcome(NamedTuple):
    """The record of a run. Rows are given by their numbers; alpha is infinite without one."""

    candidates: np.ndarray
    active: np.ndarray
    alpha: np.ndarray  # n_problems x len(active)
    weights: np.ndarray  # the same shape
    intercepts: np.ndarray
    worst: np.ndarray
    log_evidence: float
    error_rate: float
    n_iter: int
    stop_reason: StopReason
    elapsed: float = 0.0  # seconds from the start of the fit


@dataclass(frozen=True)
class Labels:
    """The settings of every job on rows (X, class numbers, sample_weight or None)."""

    kernel: Kernel
    n_classes: int
    intercept: bool
    tol: float

    @property
    def problems(self) -> list[int]:
        """The class that each binary problem separates from the others."""
        return list(range(self.n_classes)) if self.n_classes > 2 else [1]

    def rows(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """X, class numbers and weights of the rows of positive weight."""
        X, codes, weight = chunk
        if weight is not None and not np.all(weight > 0):
            positive = weight > 0
            X, codes, weight = X[positive], codes[positive], weight[positive]
        X = np.asarray(X, dtype=np.float64)
        return X, codes, np.ones(len(X)) if weight is None else np.asarray(weight, np.float64)

    def classes(self, latent: np.ndarray) -> np.ndarray:
        """Return the class numbers that the latent values of the problems predict."""
        if self.n_classes == 2:
            return (latent[:, 0] > 0).astype(np.intp)
        return np.argmax(latent, axis=1)


class Pass(NamedTuple):
    """The sums of a pass."""

    sums: list[Sums | None]  # of each binary problem that is not done
    wrong: float  # weight of the rows whose class the models miss
    total: float


@dataclass(frozen=True)
class LabelRunJob:
    """One pass of a run; `finish` requests the next one until all problems are done."""

    labels: Labels
    centres: np.ndarray
    searches: tuple[LaplaceState, ...]  # where each binary problem stands
    max_iter: int = 1000  # passes, before alpha is held
    stop_below: float = 0.0  # end early when fewer candidates are left
    ends_at: float | None = None  # when time is up, on the clock of the computer
    n_iter: int = 0  # passes made

    def read(self, index: int, chunk: Chunk) -> Pass:
        X, codes, weight = self.labels.rows(chunk)
        union = self._union()
        summing = [None if s.finished else Summing(s.step) for s in self.searches]
        where = [np.searchsorted(union, s.members) for s in self.searches]
        values = Values(self.labels.kernel, self.centres[union])
        own = [np.empty((values.step, len(columns))) for columns in where]
        wrong = 0.0
        for rows in row_slices(len(X), values.step):
            Phi = values(X[rows])
            latent = np.empty((len(Phi), len(self.searches)))
            for i, c in enumerate(self.labels.problems):
                columns = np.take(Phi, where[i], axis=1, out=own[i][: len(Phi)])
                search, sums = self.searches[i], summing[i]
                if sums is None:
                    latent[:, i] = columns @ search.weights + search.intercept
                else:
                    positive = weight[rows] * (codes[rows] == c)
                    latent[:, i] = sums.add(columns, np.column_stack([positive, weight[rows]]))
            wrong += float(weight[rows] @ (self.labels.classes(latent) != codes[rows]))
        return Pass([None if s is None else s.sums() for s in summing], wrong, float(weight.sum()))

    def merge(self, first: Pass, second: Pass) -> Pass:
        sums = [
            None if a is None or b is None else a.plus(b)
            for a, b in zip(first.sums, second.sums, strict=True)
        ]
        return Pass(sums, first.wrong + second.wrong, first.total + second.total)

    def finish(self, total: Pass) -> LabelResult | NextPass:
        """Return the next pass, or the searches where they ended and the error rate there."""
        searches = tuple(
            search if sums is None else search.advance(sums, self.labels.intercept, self.labels.tol)
            for search, sums in zip(self.searches, total.sums, strict=True)
        )
        new = replace(self, searches=searches, n_iter=self.n_iter + 1)
        if all(search.finished for search in searches):
            return new, total.wrong / total.total
        if reason := new._cut_short():
            searches = tuple(search.held(reason) for search in searches)
            new = replace(new, searches=searches)
        return NextPass(new)

    def _union(self) -> np.ndarray:
        return np.unique(np.concatenate([search.members for search in self.searches]))

    def _cut_short(self) -> StopReason | None:
        if self.ends_at is not None and time.time() > self.ends_at:
            return StopReason.TIME_LIMIT
        if self.n_iter >= self.max_iter:
            return StopReason.MAX_ITER
        return StopReason.FEW_LEFT if len(self._union()) < self.stop_below else None


LabelResult: TypeAlias = tuple[LabelRunJob, float]  # the last pass, and the error rate


@dataclass(frozen=True)
class MissedProbability:
    """|label - probability| of each row, in the binary problem that does worst."""

    basis: KernelBasis
    weights: np.ndarray
    intercepts: np.ndarray
    problems: list[int]

    def __call__(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        p = expit(self.basis(X) @ self.weights.T + self.intercepts)
        return np.max(np.abs(np.equal.outer(y, np.array(self.problems)) - p), axis=1)


@dataclass(frozen=True)
class LabelModels:
    """The models of all binary problems, for `RankJob`."""

    labels: Labels
    centres: np.ndarray
    searches: tuple[LaplaceState, ...]

    @property
    def intercept(self) -> bool:
        return self.labels.intercept

    @property
    def kernel(self) -> Kernel:
        return self.labels.kernel

    @property
    def n_functions(self) -> list[int]:
        return [len(search.members) for search in self.searches]

    def rows(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.labels.rows(chunk)

    def __call__(self, arrays: tuple[np.ndarray, ...]) -> Iterator[AtRows]:
        X, codes, weight = arrays
        Phi = KernelBasis(self.kernel, self.centres)(X)
        for c, search in zip(self.labels.problems, self.searches, strict=True):
            assert search.posterior is not None
            own = Phi[:, search.members]
            y = own @ search.weights + search.intercept
            counts = np.column_stack([weight * (codes == c), weight])
            residual, omega = likelihood_slopes(y, counts)
            centred = (own - search.posterior.centre) @ search.posterior.form.root
            yield AtRows(omega, residual, omega[:, None] * centred)


@dataclass
class LabelRuns(PartitionRuns[LabelRunJob, LabelResult, LabelOutcome]):
    """Runs for classes."""

    labels: Labels
    max_iter: int

    def job(self, task: Task, centres: np.ndarray, remaining: float | None) -> LabelRunJob:
        """The first pass."""
        return LabelRunJob(
            self.labels,
            centres,
            self._searches(task),
            self.max_iter,
            task.stop_below,
            None if remaining is None else time.time() + remaining,
        )

    def _searches(self, task: Task) -> tuple[LaplaceState, ...]:
        """Start from all functions of the set, or from a model: others get its usual alpha."""
        n = len(task.candidates)
        begin = LaplaceState.begin(n)
        if task.start is None:
            return (begin,) * len(self.labels.problems)
        start = cast(LabelOutcome, task.start)
        where = np.searchsorted(task.candidates, start.active)
        searches = []
        for alpha, w, b in zip(start.alpha, start.weights, start.intercepts, strict=True):
            present = np.isfinite(alpha)
            if not np.any(present):
                searches.append(begin)
                continue
            alphas, weights = np.full(n, np.exp(np.mean(np.log(alpha[present])))), np.zeros(n)
            alphas[where[present]], weights[where[present]] = alpha[present], w[present]
            searches.append(LaplaceState.near(weights, float(b), alphas))
        return tuple(searches)

    def outcome(
        self, task: Task, job: LabelRunJob, result: LabelResult, stop: Stop
    ) -> LabelOutcome:
        """Return the record of a run."""
        last, error_rate = result
        union = last._union()
        alpha = np.full((len(last.searches), len(union)), np.inf)
        weights = np.zeros_like(alpha)
        for i, search in enumerate(last.searches):
            where = np.searchsorted(union, search.members)
            alpha[i, where], weights[i, where] = search.alpha, search.weights
        intercepts = np.array([search.intercept for search in last.searches])
        basis = KernelBasis(self.labels.kernel, last.centres[union])
        error = MissedProbability(basis, weights, intercepts, self.labels.problems)
        reasons = [search.stop_reason for search in last.searches if search.stop_reason]
        outcome = LabelOutcome(
            task.candidates,
            task.candidates[union],
            alpha,
            weights,
            intercepts,
            self.worst(task, error),
            float(sum(search.log_evidence for search in last.searches)),
            error_rate,
            last.n_iter,
            next((reason for reason in reasons if not reason.converged), StopReason.CONVERGED),
        )
        model = LabelModels(self.labels, last.centres, last.searches)
        return self.ranked(task, outcome, model, (0.0, 1.0, 1.0), self.labels.tol, stop)

    def exact(self, outcome: LabelOutcome) -> tuple[tuple[LaplaceState, ...], KernelBasis]:
        """The model of an outcome at its mode, to the last digits, and its functions."""
        centres = self.rows.take(outcome.active)
        searches = []
        for alpha, w, b in zip(outcome.alpha, outcome.weights, outcome.intercepts, strict=True):
            members = np.flatnonzero(np.isfinite(alpha))
            search = LaplaceState.at(w[members], float(b), alpha[members], _TIGHT)
            searches.append(replace(search, members=members))
        job = LabelRunJob(self.labels, centres, tuple(searches))
        last, _ = self.rows.reduce(job)
        return last.searches, KernelBasis(self.labels.kernel, centres)
