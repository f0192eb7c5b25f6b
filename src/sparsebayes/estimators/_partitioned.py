"""Common parts of the partitioned estimators: parameters, rows and their order, the loop."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import column_or_1d

from ..callbacks import Progress
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
from ..rows import Executor, Rows, choose_executor, is_dask, make_rows
from ._estimator import read_rows
from ._sklearn import Number, Whole, check_sample_weight, words

# Nats per row that a round of polishing has to gain, or it is the last: about half of what the
# logarithm of the noise variance falls by. Tuned on Friedman#1 with 240 to 1,200 rows: with twice
# as much, split-merge ends 3 to 4 % above the error of the basic RVM; with half, it takes longer.
_ENOUGH = 0.01
# Parameters that say where and for how long, not what.
_NO_EFFECT = ("checkpoint_dir", "client", "max_time", "n_jobs", "random_state", "verbose")


CONSTRAINTS: dict[str, Any] = {
    "schedule": [words(*SCHEDULES)],
    "partition_size": [words("auto"), Whole(1)],
    "stopping": [words("auto", "paper")],
    "max_time": [None, Number(0, None, "right")],
}


class Partitioned:
    """Mixed into an estimator with the parameters of both partitioned estimators."""

    cache_size = 0.0  # nothing is kept between passes
    _errors: tuple[str, ...] = ()  # what a run says about its fit, beside the evidence

    def _check_parameters(self: Any) -> None:
        super()._check_parameters()  # type: ignore[misc]
        if self.kernel is None or is_option(self.kernel, "precomputed"):
            raise ValueError(
                f"kernel={self.kernel!r} has no functions centred on rows, and these are what "
                f"{type(self).__name__} partitions: use the name of a kernel or a callable."
            )
        if self.checkpoint_dir is not None and not is_number(self.random_state):
            raise ValueError(
                "checkpoint_dir needs a random_state that is a number, got "
                f"{self.random_state!r}: a fit that goes on must cut the rows the same way."
            )

    def _read_rows(self: Any, X: Any, y: Any, sample_weight: Any, **checks: Any) -> Data:
        """Return checked arrays; the inputs of Dask arrays are checked when they are read."""
        if not is_dask(X):
            X, y = read_rows(self, X, y, **checks)
            weight = None if sample_weight is None else check_sample_weight(sample_weight, X)
            return Data(X, y, weight)
        if np.isnan(X.shape[0]):
            X = X.copy()
            X.compute_chunk_sizes()
        self.n_features_in_ = int(X.shape[1])
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
        return Data(make_rows((X,), self._executor()), y, weight)

    def _executor(self: Any) -> Executor:
        return choose_executor(self.client, self.n_jobs)

    def _survey(
        self: Any, data: Data, executor: Executor
    ) -> tuple[Rows, Survey, Schedule, int, int]:
        """Return the rows and what they are like, the schedule, its partition size and seed."""
        if data.in_memory:
            rows = make_rows((data.X, data.y, data.likelihood_weight), executor)
        else:
            rows = data.rows()
        survey = make_survey(rows)
        if len(survey.candidates) == 0:
            raise ValueError("All sample weights are zero: there is nothing to fit.")
        return rows, survey, *self._schedule(survey)

    def _schedule(self: Any, survey: Survey) -> tuple[Schedule, int, int]:
        """Return the schedule, the size of its partitions and its seed."""
        n = len(survey.candidates)
        size = automatic_size(n) if self.partition_size == "auto" else int(self.partition_size)
        seed = self._seed()
        make, order = SCHEDULES[self.schedule], survey.shuffled(seed)
        if self.stopping == "paper":
            return make(order, size), size, seed
        return Polished(make(order, size, follow=True), _ENOUGH * survey.total), size, seed

    def _run_schedule(
        self: Any,
        schedule: Schedule,
        runs: Any,
        survey: Survey,
        size: int,
        seed: int,
        make: Any,
        checkpointed: bool = True,
        reported: bool = True,
    ) -> ScheduleResult:
        checkpoints = None
        if self.checkpoint_dir is not None and checkpointed:
            fingerprint = self._fingerprint(survey, seed)
            checkpoints = Checkpoints(self.checkpoint_dir, fingerprint, make)
        progress = Progress(self, schedule.n_tasks, steps_per_task=1) if reported else None

        def report(number: int, outcome: Any) -> bool:
            if progress is None:
                return False
            return progress(number, self._record(outcome, runs), None)

        try:
            return run_schedule(
                schedule,
                runs,
                size=size,
                max_time=self.max_time,
                checkpoints=checkpoints,
                report=report,
            )
        finally:
            if progress is not None:
                progress.close()

    def _fingerprint(self: Any, survey: Survey, seed: int) -> str:
        """Fingerprint of all that the outcome of a run depends on."""
        from .. import __version__

        parts = [type(self).__name__, __version__, survey.digest, seed]
        for name, value in sorted(self.get_params(deep=False).items()):
            if name not in _NO_EFFECT:
                # A callable by its name: its address changes from process to process.
                parts.append((name, getattr(value, "__qualname__", repr(value))))
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def _record(self: Any, outcome: Any, runs: Any) -> dict[str, Any]:
        """One run, for the reader: in the units of the user."""
        fields = {
            **{name: getattr(outcome, name) for name in self._errors},
            "elapsed": outcome.elapsed,
            "n_active": len(outcome.active),
            "n_candidates": len(outcome.candidates),
            "log_evidence": outcome.log_evidence,
            "n_iter": outcome.n_iter,
            "stop_reason": outcome.stop_reason,
        }
        return self._in_units(fields, runs)

    def _in_units(self, fields: dict[str, Any], runs: Any) -> dict[str, Any]:
        return fields

    def _history(self: Any, result: ScheduleResult, runs: Any) -> dict[str, np.ndarray]:
        """Return one entry per run, in the order in which they finished."""
        records = [self._record(outcome, runs) for outcome in result.done.values()]
        return {name: np.array([r[name] for r in records]) for name in records[0]}

    def _end_notes(self: Any, result: ScheduleResult, schedule: Schedule) -> tuple[Note, ...]:
        """Return the warning of a schedule that has not converged."""
        reason = result.stop_reason
        if reason.converged:
            return ()
        message = (
            f"{type(self).__name__} stopped before it converged ({reason}) after "
            f"{len(result.done)} of at most {schedule.n_tasks} runs: {reason.advice}"
        )
        return (Note(message, ConvergenceWarning),)

    def __sklearn_clone__(self: Any) -> Any:
        # A client cannot be copied; a clone runs on the same one.
        client, self.client = self.client, None
        try:
            copy = super().__sklearn_clone__()  # type: ignore[misc]
        finally:
            self.client = client
        copy.client = client
        return copy

    def __getstate__(self: Any) -> Any:
        # A fitted model outlives the cluster it was fitted on.
        state: Any = super().__getstate__()
        return {**state, "client": None}
