"""Common parts of the partitioned estimators: parameters, rows and their order, the loop."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import column_or_1d

from ..data import Data
from ..designs.candidates import is_number
from ..fitting import Note
from ..kernels import is_option
from ..partition import (
    SCHEDULES,
    Checkpoints,
    Polished,
    Schedule,
    ScheduleResult,
    automatic_size,
    run_schedule,
)
from ..partition._survey import Survey, make_survey
from ..problem import CandidateProblem
from ..rows import Executor, Rows, choose_executor, is_dask, make_rows
from ._estimator import SparseEstimator, read_rows
from ._sklearn import Number, Whole, check_sample_weight, reset_inputs, words

# Nats per row that a round of polishing has to gain, or it is the last: about half of what the
# logarithm of the noise variance falls by. Tuned on Friedman#1 with 240 to 1,200 rows: with twice
# as much, split-merge ends 3 to 4 % above the error of the basic RVM; with half, it takes longer.
_ENOUGH = 0.01
# Parameters of the execution, which do not change the model.
_NO_EFFECT = ("checkpoint_dir", "client", "max_time", "n_jobs", "random_state", "verbose")


CONSTRAINTS: dict[str, Any] = {
    "schedule": [words(*SCHEDULES)],
    "partition_size": [words("auto"), Whole(1)],
    "stopping": [words("auto", "paper")],
    "max_time": [None, Number(0, None, "right")],
}


class Partitioned(SparseEstimator):
    """Base of the two estimators: checks of their parameters, and a client that is not saved.

    Parameters
    ----------
    schedule : {"working-set", "incremental", "split-merge"}
        ``"working-set"`` merges the relevant functions with those of the rows of largest error,
        ``"incremental"`` with those of the next rows in random order. ``"split-merge"`` runs on
        every partition separately, in parallel, and merges the results in pairs.
    partition_size : "auto" or int
        Initial P. ``"auto"`` is 4 sqrt(n) for n distinct rows. All runs but the last end early when
        fewer than P/2 functions remain (of all classes).
    stopping : {"auto", "paper"}
        ``"auto"``: P is at least twice the number of relevance vectors of the previous run. At the
        end all functions outside the model are ranked by their gain (the largest for any class),
        and the RVM runs on the model and the best P of them, until a round gains less than 0.01
        nats per row. ``"paper"``: P is constant and the model is that of the last run. This takes
        less time, and can be less accurate if more than P/2 vectors are needed.
    gamma
        ... Length scales are learnt from at most 10,000 rows.
    tol : float
        Tolerance in nats of log evidence. A run has converged if no deletion of a single function
        and no update of its precision raises the log evidence by `tol` or more.
    max_time : float or None
        Approximate number of seconds after which the fit stops and the best model so far is kept.
        At least one run is made.
    client : distributed.Client or None
        Dask client of the cluster to use. The default is the active client, if there is one and
        `n_jobs` is None.
    n_jobs : int or None
        Number of parallel runs (or chunks of rows, if there is one run at a time), by joblib.
    checkpoint_dir : path or None
        Folder to which each finished run is written. A fit with the same data and parameters
        continues from there.
    random_state : int, RandomState or None
        Seed of the order of the rows before they are partitioned. It depends on the values of the
        rows, not on their order in X.

    Attributes
    ----------
    partition_size_ : int
        Initial P.
    history_ : dict of arrays
        One entry per run, in the order they finished: ``elapsed`` seconds, training ``rmse`` or
        ``error_rate``, ``n_active``, ``n_candidates``, ``log_evidence``, ``n_iter``,
        ``stop_reason`` (``"few_left"``: ended early because fewer than P/2 functions remained) and,
        of regressors, ``noise_variance``.
    converged_ : bool
        Whether the schedule was completed and the last run converged.
    """

    cache_size = 0.0  # nothing is kept between passes
    schedule: str
    partition_size: Any
    stopping: str
    max_time: float | None
    client: Any
    n_jobs: int | None
    checkpoint_dir: Any

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.kernel is None or is_option(self.kernel, "precomputed"):
            raise ValueError(
                f"{type(self).__name__} partitions kernel functions centred on rows, which "
                f"kernel={self.kernel!r} does not have. Pass the name of a kernel or a "
                "callable."
            )
        if self.checkpoint_dir is not None and not is_number(self.random_state):
            raise ValueError(
                f"checkpoint_dir requires an integer random_state, got {self.random_state!r}, "
                "so that a resumed fit partitions the rows in the same way."
            )

    def __sklearn_clone__(self) -> Any:
        # A client cannot be copied; a clone runs on the same one.
        client, self.client = self.client, None
        try:
            copy = super().__sklearn_clone__()
        finally:
            self.client = client
        copy.client = client
        return copy

    def __getstate__(self) -> Any:
        # A fitted model outlives the cluster it was fitted on.
        state: Any = super().__getstate__()
        return {**state, "client": None}


def read_partitioned(model: Partitioned, X: Any, y: Any, sample_weight: Any, **checks: Any) -> Data:
    """Return checked arrays; the inputs of Dask arrays are checked when they are read."""
    if not is_dask(X):
        X, y = read_rows(model, X, y, **checks)
        weight = None if sample_weight is None else check_sample_weight(sample_weight, X)
        return Data(X, y, weight)
    if np.isnan(X.shape[0]):
        X = X.copy()
        X.compute_chunk_sizes()
    reset_inputs(model, X)
    y = column_or_1d(np.asarray(y))
    if len(y) != X.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows, but y has {len(y)} values.")
    bad = np.flatnonzero(~np.isfinite(y)) if y.dtype.kind == "f" else np.empty(0, np.intp)
    if len(bad):
        chunk = int(np.searchsorted(np.cumsum(X.chunks[0]), bad[0], side="right"))
        raise ValueError(f"y contains NaN or infinity in chunk {chunk} of the rows.")
    weight = sample_weight
    if weight is not None:
        weight = check_sample_weight(np.asarray(weight), y)
    return Data(make_rows((X,), choose_executor(model.client, model.n_jobs)), y, weight)


@dataclass(frozen=True)
class Plan:
    """A schedule over the rows of a problem.

    Attributes
    ----------
    rows : Rows
        The rows, where they are read.
    survey : Survey
        What they are like.
    schedule : Schedule
        Which candidates are run together.
    size : int
        Number of candidates in a partition, to begin with.
    """

    rows: Rows
    survey: Survey
    schedule: Schedule
    size: int


def make_plan(model: Partitioned, problem: CandidateProblem, executor: Executor) -> Plan:
    """Return the schedule that the parameters of a model make of the rows of a problem."""
    data = problem.rows
    if data.in_memory:
        rows = make_rows((data.X, data.y, data.likelihood_weight), executor)
    else:
        rows = data.rows()
    survey = make_survey(rows)
    n = len(survey.candidates)
    if n == 0:
        raise ValueError("All sample weights are zero; at least two rows need a positive weight.")
    size = automatic_size(n) if model.partition_size == "auto" else int(model.partition_size)
    make, order = SCHEDULES[model.schedule], survey.shuffled(problem.seed)
    if model.stopping == "paper":
        return Plan(rows, survey, make(order, size), size)
    schedule = Polished(make(order, size, follow=True), _ENOUGH * survey.total)
    return Plan(rows, survey, schedule, size)


def run_plan(
    model: Partitioned,
    problem: CandidateProblem,
    plan: Plan,
    runs: Any,
    make: Any,
    record: Callable[[Any], dict[str, Any]],
) -> tuple[ScheduleResult, dict[str, Any]]:
    """Run a schedule; return its result, and fields of the fit.

    `make` reads an outcome from a checkpoint, `record` describes one in the units of the user.
    """
    schedule, checkpoints = plan.schedule, None
    if model.checkpoint_dir is not None and problem.purpose == "fit":
        # Later rounds have other weights.
        fingerprint = _fingerprint(model, plan.survey, problem.seed)
        checkpoints = Checkpoints(model.checkpoint_dir, fingerprint, make)
    with problem.listener.steps(schedule.n_tasks, steps_per_task=1) as progress:
        result = run_schedule(
            schedule,
            runs,
            size=plan.size,
            max_time=model.max_time,
            checkpoints=checkpoints,
            report=lambda number, outcome: (
                progress is not None and progress(number, record(outcome), None)
            ),
        )
    records = [record(outcome) for outcome in result.done.values()]
    history = {name: np.array([r[name] for r in records]) for name in records[0]}
    return result, {
        "history": history,
        "n_iter": int(np.sum(history["n_iter"])),
        "stop_reason": result.stop_reason,
        "attributes": {"partition_size_": plan.size},
        "notes": _end_notes(problem.reporter.name, result, schedule),
    }


def run_record(outcome: Any) -> dict[str, Any]:
    """Return what the reader sees of one run."""
    return {
        "elapsed": outcome.elapsed,
        "n_active": len(outcome.active),
        "n_candidates": len(outcome.candidates),
        "log_evidence": outcome.log_evidence,
        "n_iter": outcome.n_iter,
        "stop_reason": outcome.stop_reason,
    }


def _fingerprint(model: Partitioned, survey: Survey, seed: int) -> str:
    """Return the fingerprint of all that the outcome of a run depends on."""
    from .. import __version__

    parts = [type(model).__name__, __version__, survey.digest, seed]
    for name, value in sorted(model.get_params(deep=False).items()):
        if name not in _NO_EFFECT:
            # A callable by its name: its address changes from process to process.
            parts.append((name, getattr(value, "__qualname__", repr(value))))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _end_notes(name: str, result: ScheduleResult, schedule: Schedule) -> tuple[Note, ...]:
    """Return the warning of a schedule that has not converged."""
    reason = result.stop_reason
    if reason.converged:
        return ()
    message = (
        f"{name} has not converged ({reason}) after {len(result.done)} of at most "
        f"{schedule.n_tasks} runs. {reason.advice}"
    )
    return (Note(message, ConvergenceWarning),)
