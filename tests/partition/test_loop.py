"""The loop, with runs that take no time: what it asks for, keeps, stops at, and says."""

import time
from typing import NamedTuple

import numpy as np
import pytest

from sparsebayes.partition import SCHEDULES, Checkpoints, Polished, SplitMerge, run_schedule
from sparsebayes.rows import LostWorkers


class Outcome(NamedTuple):
    candidates: np.ndarray
    active: np.ndarray
    worst: np.ndarray
    log_evidence: float
    stop_reason: str = "converged"
    elapsed: float = 0.0


class Runs:
    """Survivors are every third candidate; the evidence is the number of candidates."""

    def __init__(self, before=None):
        self.made = []
        self.before = before or (lambda number: None)

    def outcomes(self, tasks, stop, remaining):
        for task in tasks:
            self.before(len(self.made))
            self.made.append(task.key)
            worst = np.empty(0, dtype=int) if task.unused is None else task.unused[: task.n_worst]
            yield task, Outcome(task.candidates, task.candidates[::3], worst, len(task.candidates))
            if stop():
                return


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_whole_schedule_ends_with_its_last_run(name):
    schedule = SCHEDULES[name](np.arange(50), 6)
    runs, seen = Runs(), []
    driven = run_schedule(schedule, runs, size=6, report=lambda number, o: seen.append(number))
    assert driven.model is driven.done[schedule.ending(driven.done)]
    assert driven.stop_reason == "converged"
    assert seen == list(range(1, schedule.n_tasks + 1))
    assert len(set(runs.made)) == len(runs.made)
    elapsed = [o.elapsed for o in driven.done.values()]
    assert elapsed == sorted(elapsed)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("stopped_after", [1, 3, 8])
def test_a_killed_drive_goes_on_to_the_same_end(name, stopped_after, tmp_path):
    schedule = SCHEDULES[name](np.arange(50), 6)
    whole = run_schedule(schedule, Runs(), size=6)

    def killed(number):
        if number == stopped_after:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        run_schedule(
            schedule, Runs(killed), size=6, checkpoints=Checkpoints(tmp_path, "f", Outcome)
        )
    rest = Runs()
    again = run_schedule(schedule, rest, size=6, checkpoints=Checkpoints(tmp_path, "f", Outcome))
    assert len(rest.made) == schedule.n_tasks - stopped_after
    assert again.done.keys() == whole.done.keys()
    for key in whole.done:
        np.testing.assert_array_equal(again.done[key].active, whole.done[key].active)


def test_stopped_early_the_best_so_far_is_the_model():
    schedule = SplitMerge(np.arange(50), 12)  # the last leaf is smaller
    driven = run_schedule(schedule, Runs(), size=12, report=lambda number, o: number == 5)
    assert driven.stop_reason == "callback"
    assert list(driven.done) == ["0-0", "0-1", "0-2", "0-3", "0-4"]
    assert len(driven.model.candidates) == 12


def test_time_is_up_after_at_least_one_run():
    schedule = SplitMerge(np.arange(50), 12)
    runs = Runs(lambda number: time.sleep(0.02))
    driven = run_schedule(schedule, runs, size=12, max_time=1e-9)
    assert driven.stop_reason == "time_limit"
    assert len(driven.done) == 1


def test_an_interrupt_keeps_what_is_there():
    def interrupt(number):
        if number == 3:
            raise KeyboardInterrupt

    driven = run_schedule(SplitMerge(np.arange(50), 12), Runs(interrupt), size=12)
    assert driven.stop_reason == "interrupted"
    assert len(driven.done) == 3

    def at_once(number):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_schedule(SplitMerge(np.arange(50), 12), Runs(at_once), size=12)


def test_runs_cut_short_are_not_written(tmp_path):
    class Short(Runs):
        def outcomes(self, tasks, stop, remaining):
            for task, outcome in super().outcomes(tasks, stop, remaining):
                yield task, outcome._replace(stop_reason="interrupted")

    driven = run_schedule(
        SplitMerge(np.arange(50), 12),
        Short(),
        size=12,
        checkpoints=Checkpoints(tmp_path, "f", Outcome),
    )
    assert driven.stop_reason == "interrupted"
    assert not list(tmp_path.glob("run-*"))


def test_polishing_that_was_cut_short_is_not_called_converged():
    class Short(Runs):
        def outcomes(self, tasks, stop, remaining):
            for task, outcome in super().outcomes(tasks, stop, remaining):
                if task.start is not None:
                    outcome = outcome._replace(stop_reason="time_limit", worst=np.empty(0, int))
                yield task, outcome

    schedule = Polished(SplitMerge(np.arange(50), 12), 1.0)
    driven = run_schedule(schedule, Short(), size=12)
    assert driven.done["polish-1"].stop_reason == "time_limit"
    assert driven.stop_reason == "time_limit"


@pytest.mark.parametrize("error", [MemoryError("no room"), LostWorkers("died")])
def test_out_of_memory_names_the_partition_size_to_try(error):
    def fail(number):
        raise error

    with pytest.raises(MemoryError, match=r"Use partition_size=6 \(now 12\)"):
        run_schedule(SplitMerge(np.arange(50), 12), Runs(fail), size=12)
