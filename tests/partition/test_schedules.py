"""Schedules are pure: what has been done goes in, tasks come out. No data, no executor."""

from typing import NamedTuple

import numpy as np
import pytest

from sparsebayes.partition import (
    SCHEDULES,
    Incremental,
    Polished,
    SplitMerge,
    WorkingSet,
    automatic_size,
)


class Left(NamedTuple):
    candidates: np.ndarray
    active: np.ndarray
    worst: np.ndarray
    log_evidence: float = 0.0


def _keep_every_third(task):
    """A stand-in for the RVM: survivors are every third candidate, worst the last unused ones."""
    worst = np.empty(0, dtype=int) if task.unused is None else task.unused[-task.n_worst :]
    return Left(task.candidates, task.candidates[::3], worst)


def _play(schedule, one_at_a_time=False):
    done, order = {}, []
    while tasks := schedule.tasks(done):
        for task in tasks[:1] if one_at_a_time else tasks:
            done[task.key] = _keep_every_third(task)
            order.append(task)
    return done, order


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("n", "size"), [(1, 1), (5, 2), (17, 5), (20, 5), (64, 8), (7, 100)])
def test_every_candidate_is_seen_and_only_the_last_run_converges(name, n, size):
    order = np.random.default_rng(0).permutation(1000)[:n]
    schedule = SCHEDULES[name](order, size)
    done, tasks = _play(schedule)
    last = schedule.ending(done)
    assert len(tasks) == len(done) == schedule.n_tasks
    assert set(np.concatenate([task.candidates for task in tasks])) == set(order)
    assert [task.key for task in tasks if task.stop_below == 0] == [last]
    assert all(task.stop_below == size / 2 for task in tasks if task.key != last)
    assert tasks[-1].key == last
    assert not any(schedule.ending(dict(list(done.items())[:i])) for i in range(len(done)))
    for task in tasks:
        assert np.all(np.diff(task.candidates) > 0)


@pytest.mark.parametrize("name", SCHEDULES)
def test_one_partition_is_one_run_on_everything(name):
    schedule = SCHEDULES[name](np.arange(10), 10)
    (task,) = schedule.tasks({})
    assert schedule.n_tasks == 1
    assert task.stop_below == 0
    np.testing.assert_array_equal(task.candidates, np.arange(10))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("kind", ["paper", "follow", "polished"])
def test_tasks_depend_on_what_is_done_alone(name, kind):
    """The order in which runs finish, and starting again from a part of them, change nothing."""
    order = np.random.default_rng(1).permutation(50)
    schedule = SCHEDULES[name](order, 7, follow=kind != "paper")
    schedule = Polished(schedule, 1.0) if kind == "polished" else schedule
    whole, _ = _play(schedule)
    single, _ = _play(schedule, one_at_a_time=True)
    assert whole.keys() == single.keys()
    for key in whole:
        np.testing.assert_array_equal(whole[key].candidates, single[key].candidates)
    for kept in range(len(whole)):
        some = dict(list(whole.items())[:kept])
        while tasks := schedule.tasks(some):
            some[tasks[0].key] = _keep_every_third(tasks[0])
        end = schedule.ending(whole)
        assert schedule.ending(some) == end
        np.testing.assert_array_equal(some[end].candidates, whole[end].candidates)


def test_split_merge_pairs_neighbours_and_an_odd_set_waits():
    schedule = SplitMerge(np.arange(10), 2)
    done = {task.key: _keep_every_third(task) for task in schedule.tasks({})}
    assert list(done) == ["0-0", "0-1", "0-2", "0-3", "0-4"]
    level = {task.key: task.candidates.tolist() for task in schedule.tasks(done)}
    assert level == {"1-0": [0, 2], "1-1": [4, 6]}
    done.update({task.key: _keep_every_third(task) for task in schedule.tasks(done)})
    assert [task.key for task in schedule.tasks(done)] == ["2-0"]
    done["2-0"] = Left(None, np.array([0]), None)
    (last,) = schedule.tasks(done)
    assert last.key == schedule.root == "3-0"
    assert last.candidates.tolist() == [0, 8]  # the odd set waited for two levels


def test_split_merge_does_not_wait_for_its_level():
    schedule = SplitMerge(np.arange(8), 2)
    leaves = schedule.tasks({})
    done = {task.key: _keep_every_third(task) for task in leaves[:2]}
    assert {task.key for task in schedule.tasks(done)} == {"1-0", "0-2", "0-3"}


def test_incremental_adds_the_next_partition_to_the_survivors():
    schedule = Incremental(np.array([5, 1, 4, 2, 3, 0]), 2)
    (second,) = schedule.tasks({"0": Left(np.array([1, 5]), np.array([5]), None)})
    assert second.candidates.tolist() == [2, 4, 5]


def test_working_set_adds_the_worst_of_those_never_used():
    schedule = WorkingSet(np.array([5, 1, 4, 2, 3, 0]), 2)
    (first,) = schedule.tasks({})
    assert first.candidates.tolist() == [1, 5]
    assert first.unused.tolist() == [0, 2, 3, 4]
    assert first.n_worst == 2
    done = {"0": Left(first.candidates, np.array([5]), np.array([3, 4]))}
    (second,) = schedule.tasks(done)
    assert second.candidates.tolist() == [3, 4, 5]
    assert second.unused.tolist() == [0, 2]  # 1 was dropped, but it was used
    done["1"] = Left(second.candidates, np.array([4]), np.array([0, 2]))
    (last,) = schedule.tasks(done)
    assert last.candidates.tolist() == [0, 2, 4]
    assert last.unused is None


@pytest.mark.parametrize("name", ["incremental", "working-set"])
def test_the_next_partition_is_twice_the_vectors_that_were_left(name):
    schedule = SCHEDULES[name](np.arange(100), 6, follow=True)
    done, sizes = {}, []
    while tasks := schedule.tasks(done):
        (task,) = tasks
        known = np.concatenate([np.empty(0, int), *(d.active for d in done.values())])
        sizes.append(len(np.setdiff1d(task.candidates, known)))
        worst = np.empty(0, int) if task.unused is None else task.unused[: task.n_worst]
        left = task.candidates[: min(10, len(task.candidates))]  # never fewer than 6 / 2
        if task.stop_below:
            assert task.stop_below == sizes[-1] / 2
        done[task.key] = Left(task.candidates, left, worst)
    assert sizes == [6, 12, 20, 20, 20, 20, 2]
    assert len(sizes) < schedule.n_tasks == 17
    seen = np.concatenate([outcome.candidates for outcome in done.values()])
    np.testing.assert_array_equal(np.unique(seen), np.arange(100))


def test_a_merge_does_not_end_below_the_vectors_of_its_parts():
    schedule = SplitMerge(np.arange(24), 6, follow=True)
    done = {task.key: Left(task.candidates, task.candidates, None) for task in schedule.tasks({})}
    assert [task.stop_below for task in schedule.tasks(done)] == [6.0, 6.0]
    fixed = SplitMerge(np.arange(24), 6)
    assert [task.stop_below for task in fixed.tasks(done)] == [3.0, 3.0]


@pytest.mark.parametrize("name", SCHEDULES)
def test_polishing_adds_the_best_of_what_was_left_out_until_none_are_named(name):
    schedule = Polished(SCHEDULES[name](np.arange(40), 10, follow=True), least_gain=3.0)
    done, last = {}, None
    while tasks := schedule.tasks(done):
        for task in tasks:
            done[task.key] = _keep_every_third(task)
            last = task
        if last.by == "gain":
            break
    assert last.stop_below == 0
    assert last.start is None
    np.testing.assert_array_equal(last.unused, np.arange(40))  # all; those active are left out
    done[last.key] = Left(last.candidates, np.arange(8), np.arange(39, 7, -1), -50.0)
    assert schedule.ending(done) == ""
    (polish,) = schedule.tasks(done)
    assert polish.key == "polish-1"
    assert polish.start is done[last.key]
    assert polish.least_gain == 3.0
    np.testing.assert_array_equal(polish.candidates, [*range(8), *range(24, 40)])  # P = 2 * 8
    done["polish-1"] = Left(polish.candidates, np.arange(9), np.empty(0, int), -60.0)
    assert schedule.tasks(done) == []
    assert schedule.ending(done) == last.key  # a round that lost is not the model
    done["polish-1"] = done["polish-1"]._replace(log_evidence=-40.0)
    assert schedule.ending(done) == "polish-1"


@pytest.mark.parametrize("name", SCHEDULES)
def test_polishing_ends_whatever_the_rounds_gain(name):
    schedule = Polished(SCHEDULES[name](np.arange(40), 10), least_gain=0.0)
    done, _ = _play(schedule)
    assert "polish-10" in done
    assert "polish-11" not in done


@pytest.mark.parametrize("name", SCHEDULES)
def test_one_partition_leaves_out_nothing(name):
    schedule = Polished(SCHEDULES[name](np.arange(10), 10, follow=True), least_gain=0.0)
    (task,) = schedule.tasks({})
    assert task.unused is None
    assert schedule.n_tasks == 1


def test_automatic_size_is_four_roots():
    assert [automatic_size(n) for n in (1, 100, 3341, 10**6)] == [4, 40, 232, 4000]
