"""The loop that asks a schedule for tasks, runs them and collects the outcomes.

A fit can end before its schedule, by a time limit, a callback or an interrupt. The outcome of
highest evidence so far is the model then; all runs see all rows, so their evidences compare.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..callbacks import INTERRUPT
from ..rows import LostWorkers
from ..solvers.run import StopReason
from ._runs import CUT_SHORT, JobT, PartitionRuns, RunResult
from .checkpoints import Checkpoints
from .schedules import OutcomeT, Schedule

T = TypeVar("T")


@dataclass
class ScheduleResult(Generic[OutcomeT]):
    """The outcomes of a schedule in the order they finished, and which of them is the model."""

    done: dict[str, OutcomeT]
    model: OutcomeT
    stop_reason: StopReason


def run_schedule(
    schedule: Schedule,
    runs: PartitionRuns[JobT, RunResult, OutcomeT],
    *,
    size: int,
    max_time: float | None = None,
    checkpoints: Checkpoints[OutcomeT] | None = None,
    report: Callable[[int, OutcomeT], bool] | None = None,
) -> ScheduleResult[OutcomeT]:
    """Run the tasks of a schedule until it has no more, or the fit is stopped.

    At least one run is made, whatever `max_time` (seconds). Finished runs are taken from
    `checkpoints` and written there. After each run comes ``report(number of runs, outcome)``; True
    stops. `size`, of a partition, is for the advice given when memory runs out.
    """
    done: dict[str, OutcomeT] = {} if checkpoints is None else checkpoints.load()
    # The clock of a fit that goes on starts where it stood.
    before = max((outcome.elapsed for outcome in done.values()), default=0.0)
    done = dict(sorted(done.items(), key=lambda item: item[1].elapsed))
    started = time.monotonic()
    reason: StopReason | None = None

    def remaining() -> float | None:
        return None if max_time is None else max(0.0, max_time - (time.monotonic() - started))

    def stop() -> bool:
        nonlocal reason
        if not reason and done and remaining() == 0.0:
            reason = StopReason.TIME_LIMIT
        return bool(reason)

    try:
        while not stop() and (tasks := schedule.tasks(done)):
            for task, outcome in _advised(runs.outcomes(tasks, stop, remaining), size):
                outcome = outcome._replace(elapsed=before + time.monotonic() - started)
                done[task.key] = outcome
                if outcome.stop_reason in CUT_SHORT:
                    reason = StopReason(outcome.stop_reason)
                elif checkpoints is not None:
                    checkpoints.save(task.key, outcome)
                if report is not None and report(len(done), outcome) and not reason:
                    reason = StopReason.CALLBACK
                if reason:
                    break
    except KeyboardInterrupt:
        if not done or INTERRUPT.notice():  # the second Ctrl-C
            raise
        reason = StopReason.INTERRUPTED
    if key := schedule.ending(done):
        cut = [o.stop_reason for o in done.values() if o.stop_reason in CUT_SHORT]
        reason = StopReason(cut[0] if cut else done[key].stop_reason)
        return ScheduleResult(done, done[key], reason)
    assert reason is not None  # a schedule that was not stopped has an ending
    return ScheduleResult(
        done, max(done.values(), key=lambda outcome: outcome.log_evidence), reason
    )


def _advised(outcomes: Iterator[T], size: int) -> Iterator[T]:
    """Yield the outcomes; an error of memory names the size of partition to try."""
    try:
        yield from outcomes
    except (LostWorkers, MemoryError) as error:
        raise MemoryError(
            f"A run on a partition ran out of memory ({error}). Its memory grows with the "
            f"square of partition_size. Use partition_size={max(1, size // 2)} (now {size}), "
            "smaller chunks of rows, or workers with more memory."
        ) from error
