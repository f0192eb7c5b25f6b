"""The three ways to go through the partitions (Ben-Shimon & Shmilovici, section 2).

A schedule is a pure policy: what has been done goes in, the tasks that can be started now come out.
It knows neither data nor executors. A task is one run of the RVM on a set of candidates; what a
later task needs of an outcome is which candidates were left (`active`) and, for the working set,
which unused ones the model fits worst (`worst`).

    split-merge    each partition alone, then the survivors of pairs, in a tree; an odd set waits
    incremental    survivors so far with the next partition
    working-set    survivors so far with the P never-used points of largest error

Runs before the last stop when fewer than P/2 candidates are left; the last runs to convergence. In
a problem that needs more they end when they have settled (`regression.EarlyEnd`), and its sets grow
past P.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Task:
    """One run of the RVM.

    Attributes
    ----------
    key : str
        Names the task within its schedule.
    candidates : array of int
        Rows that carry the functions of this run, in increasing order.
    stop_below : float
        End the run when fewer candidates are left; 0 runs to convergence.
    unused : array of int
        Where `n_worst` is not 0: candidates that no run has seen, not even this one.
    n_worst : int
        How many of those, of largest error, are to be named in the outcome.
    """

    key: str
    candidates: np.ndarray
    stop_below: float = 0.0
    unused: np.ndarray | None = None
    n_worst: int = 0


class Left(Protocol):
    """What a schedule reads of an outcome."""

    candidates: np.ndarray
    active: np.ndarray
    worst: np.ndarray


Done = Mapping[str, Any]  # key -> Left


class Schedule(Protocol):
    """Results in, tasks out."""

    @property
    def n_tasks(self) -> int:
        """How many runs there are in all."""

    @property
    def last(self) -> str:
        """The key of the run whose outcome is the model."""

    def tasks(self, done: Done) -> list[Task]:
        """What can be started now and is not done; empty when the last run is done."""


@dataclass(frozen=True)
class _Partitions:
    """Candidates in the order in which they are cut into partitions of `size`."""

    order: np.ndarray
    size: int

    @property
    def n_partitions(self) -> int:
        """ceil(N / P)."""
        return max(1, -(-len(self.order) // self.size))

    def partition(self, i: int) -> np.ndarray:
        """Partition number i."""
        return self.order[i * self.size : (i + 1) * self.size]

    def _stop(self, last: bool) -> float:
        return 0.0 if last else 0.5 * self.size


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
    >>> schedule.n_tasks, schedule.last
    (5, '2-0')
    """

    @property
    def n_tasks(self) -> int:
        """M leaves and M - 1 merges."""
        return 2 * self.n_partitions - 1

    @property
    def last(self) -> str:
        """The root."""
        level, width = 0, self.n_partitions
        while width > 1:
            level, width = level + 1, -(-width // 2)
        return f"{level}-0"

    def tasks(self, done: Done) -> list[Task]:
        """Leaves, and merges whose two sets are there."""
        ready = []
        below: list[np.ndarray | None] = []  # survivors of each node of the level below
        level, width = 0, self.n_partitions
        while True:
            here: list[np.ndarray | None] = []
            for i in range(width):
                if level and 2 * i + 1 == len(below):
                    here.append(below[2 * i])  # an odd set waits
                    continue
                key = f"{level}-{i}"
                if key in done:
                    here.append(done[key].active)
                    continue
                here.append(None)
                if level == 0:
                    ready.append(Task(key, np.sort(self.partition(i)), self._stop(width == 1)))
                else:
                    left, right = below[2 * i], below[2 * i + 1]
                    if left is not None and right is not None:
                        ready.append(Task(key, np.union1d(left, right), self._stop(width == 1)))
            if width == 1:
                return ready
            below, level, width = here, level + 1, -(-width // 2)


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

    @property
    def n_tasks(self) -> int:
        """One per partition."""
        return self.n_partitions

    @property
    def last(self) -> str:
        """The last partition."""
        return str(self.n_partitions - 1)

    def tasks(self, done: Done) -> list[Task]:
        """The next partition."""
        i = _first_missing(done, self.n_partitions)
        if i == self.n_partitions:
            return []
        candidates = np.sort(self.partition(i))
        if i:
            candidates = np.union1d(done[str(i - 1)].active, candidates)
        return [Task(str(i), candidates, self._stop(i == self.n_partitions - 1))]


@dataclass(frozen=True)
class WorkingSet(_Partitions):
    """Survivors so far with the never-used points of largest error (section 2.3).

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.partition import WorkingSet
    >>> (task,) = WorkingSet(np.arange(5), size=2).tasks({})
    >>> task.candidates.tolist(), task.unused.tolist(), task.n_worst
    ([0, 1], [2, 3, 4], 2)
    """

    @property
    def n_tasks(self) -> int:
        """One per partition."""
        return self.n_partitions

    @property
    def last(self) -> str:
        """The last partition."""
        return str(self.n_partitions - 1)

    def tasks(self, done: Done) -> list[Task]:
        """The first partition, then the points that the last model fits worst."""
        i = _first_missing(done, self.n_partitions)
        if i == self.n_partitions:
            return []
        if i == 0:
            candidates = np.sort(self.partition(0))
        else:
            before = done[str(i - 1)]
            candidates = np.union1d(before.active, before.worst)
        last = i == self.n_partitions - 1
        if last:
            return [Task(str(i), candidates, self._stop(last))]
        used = np.concatenate([candidates, *(done[str(j)].candidates for j in range(i))])
        unused = np.setdiff1d(self.order, used)
        return [Task(str(i), candidates, self._stop(last), unused, min(self.size, len(unused)))]


def _first_missing(done: Done, n: int) -> int:
    return next((i for i in range(n) if str(i) not in done), n)


SCHEDULES: dict[str, type[SplitMerge] | type[Incremental] | type[WorkingSet]] = {
    "working-set": WorkingSet,
    "incremental": Incremental,
    "split-merge": SplitMerge,
}


def automatic_size(n_rows: int) -> int:
    """P = ceil(4 sqrt(N)) (section 3.1).

    Examples
    --------
    >>> from sparsebayes.partition import automatic_size
    >>> automatic_size(3341)
    232
    """
    return max(1, int(np.ceil(4.0 * np.sqrt(n_rows))))
