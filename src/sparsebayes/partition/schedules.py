"""The three schedules of runs on partitions (Ben-Shimon & Shmilovici, section 2).

A schedule maps finished tasks to the tasks that can be started now; it depends neither on the data
nor on the executor. A task is one run of the RVM on a set of candidates. Later tasks need from its
outcome the candidates that remain (`active`) and, for the working set, the unused ones with the
largest error (`worst`).

    split-merge    each partition alone, then the survivors of pairs, in a tree; an odd set waits
    incremental    survivors so far with the next partition
    working-set    survivors so far with the P never-used points of largest error

Runs before the last stop when fewer than P/2 candidates are left; the last runs to convergence.

This is the scheme of the paper, which finds that the best P is about twice the number of vectors.
That number is not known in advance. With `follow` P is the larger of the given value and twice the
number of vectors of the previous run, and `Polished` ends a schedule with runs that add the best of
the dropped candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from ..solvers.run import StopReason

_ROUNDS = 10  # of polishing, at most; two to five are usual


@dataclass(frozen=True)
class Task:
    """One run of the RVM, named by its key within the schedule.

    It may begin with the functions of an earlier run, `start`, the others added to them. Of the
    `unused` candidates the outcome names the worst, worst first: by "error" the rows that the model
    misses by most, by "gain" the functions outside the model that it would gain most by. None are
    named where no function would gain, or where the run gains less than `least_gain` nats over
    `start`.
    """

    key: str
    candidates: np.ndarray  # rows that carry the functions of this run, in increasing order
    stop_below: float = 0.0  # end when fewer candidates are left; 0 runs to convergence
    unused: np.ndarray | None = None
    n_worst: int = 0  # how many of the unused are to be named
    by: str = "error"
    start: RunOutcome | None = None
    least_gain: float = 0.0


class RunOutcome(Protocol):
    """The record of a finished run: a NamedTuple with these fields, and those of its model."""

    @property
    def candidates(self) -> np.ndarray:
        """Rows that carried the functions of the run."""

    @property
    def active(self) -> np.ndarray:
        """Rows that carry the functions of its model."""

    @property
    def worst(self) -> np.ndarray:
        """Unused rows that the task requested, the worst first."""

    @property
    def log_evidence(self) -> float:
        """Log evidence of its model."""

    @property
    def stop_reason(self) -> StopReason:
        """Why the run ended."""

    @property
    def elapsed(self) -> float:
        """Seconds from the start of the fit to the end of the run."""

    def _replace(self, *args: Any, **fields: Any) -> Self: ...

    def _asdict(self) -> dict[str, Any]: ...


Done: TypeAlias = Mapping[str, RunOutcome]  # finished runs by the key of their task
OutcomeT = TypeVar("OutcomeT", bound=RunOutcome)


class Schedule(Protocol):
    """A policy: given the finished runs, it names the tasks that can start."""

    @property
    def n_tasks(self) -> int:
        """Largest number of runs."""

    def tasks(self, done: Done) -> list[Task]:
        """Return the tasks that can start now; none when the last run is done."""

    def ending(self, done: Done) -> str:
        """Return the key of the run whose outcome is the model; empty while runs remain."""


@dataclass(frozen=True)
class _Partitions:
    """Candidates in the order in which they are cut into partitions of `size`, or more."""

    order: np.ndarray
    size: int
    follow: bool = False

    @property
    def n_partitions(self) -> int:
        """Number of partitions, ceil(N / P) with the given P."""
        return max(1, -(-len(self.order) // self.size))

    @property
    def n_tasks(self) -> int:
        """Largest number of runs: one per partition, fewer where they grow."""
        return self.n_partitions

    def size_after(self, *runs: RunOutcome) -> int:
        """Return P of the set that these runs go into."""
        if not self.follow:
            return self.size
        return max(self.size, *(2 * len(run.active) for run in runs))


@dataclass(frozen=True)
class SplitMerge(_Partitions):
    """Survivors merged in pairs, as in merge sort (section 2.1).

    A merge starts as soon as its two sets are there; it does not wait for its level.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.partition import SplitMerge
    >>> schedule = SplitMerge(np.arange(5), size=2)
    >>> [(task.key, task.candidates.tolist()) for task in schedule.tasks({})]
    [('0-0', [0, 1]), ('0-1', [2, 3]), ('0-2', [4])]
    >>> schedule.n_tasks, schedule.root
    (5, '2-0')
    """

    @property
    def n_tasks(self) -> int:
        """Number of runs: M leaves and M - 1 merges."""
        return 2 * self.n_partitions - 1

    @property
    def root(self) -> str:
        """Key of the last merge."""
        level, width = 0, self.n_partitions
        while width > 1:
            level, width = level + 1, -(-width // 2)
        return f"{level}-0"

    def ending(self, done: Done) -> str:
        """Return the key of the root, if it is done."""
        return self.root if self.root in done else ""

    def tasks(self, done: Done) -> list[Task]:
        """Return the leaves, and the merges whose two sets are done."""
        ready = []
        below: list[RunOutcome | None] = []  # outcomes of the level below
        level, width = 0, self.n_partitions
        while True:
            outcomes: list[RunOutcome | None] = []
            last = width == 1
            for i in range(width):
                if level and 2 * i + 1 == len(below):
                    outcomes.append(below[2 * i])  # an odd set waits
                    continue
                key = f"{level}-{i}"
                outcomes.append(done.get(key))
                if key in done:
                    continue
                if level == 0:
                    part = np.sort(self.order[i * self.size : (i + 1) * self.size])
                    ready.append(Task(key, part, 0.0 if last else 0.5 * self.size))
                    continue
                first, second = below[2 * i], below[2 * i + 1]
                if first is not None and second is not None:
                    stop = 0.0 if last else 0.5 * self.size_after(first, second)
                    ready.append(Task(key, np.union1d(first.active, second.active), stop))
            if last:
                return ready
            below, level, width = outcomes, level + 1, -(-width // 2)


@dataclass(frozen=True)
class Incremental(_Partitions):
    """Survivors so far with the next partition (section 2.2).

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.partition import Incremental
    >>> [task.key for task in Incremental(np.arange(5), size=2).tasks({})]
    ['0']
    """

    def ending(self, done: Done) -> str:
        """Return the run that has used the last candidate."""
        i, n_used, _ = self._position(done)
        return str(i - 1) if n_used >= len(self.order) else ""

    def tasks(self, done: Done) -> list[Task]:
        """Return the run on the next partition."""
        i, n_used, size = self._position(done)
        if n_used >= len(self.order):
            return []
        candidates = np.sort(self.order[n_used : n_used + size])
        if i:
            candidates = np.union1d(done[str(i - 1)].active, candidates)
        last = n_used + size >= len(self.order)
        return [Task(str(i), candidates, 0.0 if last else 0.5 * size)]

    def _position(self, done: Done) -> tuple[int, int, int]:
        """Return the number of the next run, how many candidates came before it, and its P."""
        i, n_used, size = 0, 0, self.size
        while n_used < len(self.order) and str(i) in done:
            n_used += size
            size = self.size_after(done[str(i)])
            i += 1
        return i, n_used, size


@dataclass(frozen=True)
class WorkingSet(_Partitions):
    """Survivors so far with the never-used points of largest error (section 2.3).

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.partition import WorkingSet
    >>> (task,) = WorkingSet(np.arange(5), size=2).tasks({})
    >>> task.candidates.tolist(), task.unused.tolist()
    ([0, 1], [2, 3, 4])
    """

    def ending(self, done: Done) -> str:
        """Return the run after which every point has been used."""
        i, unused = self._position(done)
        return "" if len(unused) else str(i - 1)

    def tasks(self, done: Done) -> list[Task]:
        """Return the first partition, then the points that the last model fits worst."""
        i, unused = self._position(done)
        if not len(unused):
            return []
        size = self.size
        candidates = fresh = np.sort(self.order[:size])
        if i:
            before = done[str(i - 1)]
            size = self.size_after(before)
            fresh = before.worst[:size]
            candidates = np.union1d(before.active, fresh)
        unused = np.setdiff1d(unused, fresh)
        if not len(unused):
            return [Task(str(i), candidates)]
        most = 2 * len(candidates) if self.follow else 0  # the next P, were all to survive
        n_worst = min(max(self.size, most), len(unused))
        return [Task(str(i), candidates, 0.5 * size, unused, n_worst)]

    def _position(self, done: Done) -> tuple[int, np.ndarray]:
        """Return the number of the next run, and the candidates never used before it."""
        used: list[np.ndarray] = []
        while str(len(used)) in done:
            used.append(done[str(len(used))].candidates)
        return len(used), np.setdiff1d(self.order, np.concatenate([*used, np.empty(0, np.intp)]))


@dataclass(frozen=True)
class Polished:
    """A schedule followed by rounds on the candidates that are not in its model.

    Candidates are dropped before the model is complete, and runs that end early drop more of them;
    many would raise the evidence of the final model. A round ranks all candidates outside the
    model by what each would gain, and runs on the model and the P best of them (P as in `follow`),
    starting from the model. A round that gains less than `least_gain` nats is the last one. The
    model is the one of highest evidence. A schedule of one partition has no rounds.
    """

    schedule: SplitMerge | Incremental | WorkingSet
    least_gain: float

    @property
    def n_tasks(self) -> int:
        """Largest number of runs: those of the schedule and, with several partitions, rounds."""
        return self.schedule.n_tasks + (_ROUNDS if self.schedule.n_partitions > 1 else 0)

    def tasks(self, done: Done) -> list[Task]:
        """Return the tasks of the schedule, then one round at a time."""
        if tasks := self.schedule.tasks(done):
            return [self._ranking(task) if task.stop_below == 0.0 else task for task in tasks]
        *_, key = self._chain(done)
        before = done[key]
        number = int(key.removeprefix("polish-")) if key.startswith("polish-") else 0
        if not len(before.worst):
            return []
        best = before.worst[: max(self.schedule.size, 2 * len(before.active))]
        candidates = np.union1d(before.active, best)
        task = Task(f"polish-{number + 1}", candidates, start=before, least_gain=self.least_gain)
        return [self._ranking(task) if number + 1 < _ROUNDS else task]

    def ending(self, done: Done) -> str:
        """Return the key of the best of the last run and the rounds."""
        chain = list(self._chain(done))
        if not chain or len(done[chain[-1]].worst):
            return ""
        return max(chain, key=lambda key: done[key].log_evidence)

    def _chain(self, done: Done) -> Iterator[str]:
        """Yield the keys of the last run and of the rounds that are done."""
        key, number = self.schedule.ending(done), 0
        while key and key in done:
            yield key
            number += 1
            key = f"polish-{number}"

    def _ranking(self, task: Task) -> Task:
        if self.schedule.n_partitions == 1:
            return task
        order = self.schedule.order
        n_worst = min(max(self.schedule.size, 2 * len(task.candidates)), len(order))
        return replace(task, unused=np.sort(order), n_worst=n_worst, by="gain")


SCHEDULES: dict[str, type[SplitMerge] | type[Incremental] | type[WorkingSet]] = {
    "working-set": WorkingSet,
    "incremental": Incremental,
    "split-merge": SplitMerge,
}


def automatic_size(n_rows: int) -> int:
    """Return P = ceil(4 sqrt(N)) (section 3.1).

    Examples
    --------
    >>> from sparsebayes.partition import automatic_size
    >>> automatic_size(3341)
    232
    """
    return max(1, int(np.ceil(4.0 * np.sqrt(n_rows))))
