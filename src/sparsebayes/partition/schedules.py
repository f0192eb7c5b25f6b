"""The three ways to go through the partitions (Ben-Shimon & Shmilovici, section 2).

A schedule is a pure policy: what has been done goes in, the tasks that can be started now come out.
It knows neither data nor executors. A task is one run of the RVM on a set of candidates; what a
later task needs of an outcome is which candidates were left (`active`) and, for the working set,
which unused ones the model fits worst (`worst`).

    split-merge    each partition alone, then the survivors of pairs, in a tree; an odd set waits
    incremental    survivors so far with the next partition
    working-set    survivors so far with the P never-used points of largest error

Runs before the last stop when fewer than P/2 candidates are left; the last runs to convergence.

That is the paper. It finds the best P to be about twice the number of vectors, which nobody knows
beforehand. With `follow` P is what it was given or twice the vectors that the run before has left,
whichever is more, and `Polished` ends a schedule with runs on what it has left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

_ROUNDS = 10  # of polishing, at most; two to five are usual


@dataclass(frozen=True)
class Task:
    """One run of the RVM, named by its key within the schedule.

    It may begin with the functions of an earlier run, `start`, the others added to them. Of the
    `unused` candidates the outcome names the worst, worst first: by "error" the rows that the model
    misses by most, by "gain" the functions outside the model that it would gain most by. None are
    named where no function would gain, or where the run gains less than `enough` nats over `start`.
    """

    key: str
    candidates: np.ndarray  # rows that carry the functions of this run, in increasing order
    stop_below: float = 0.0  # end when fewer candidates are left; 0 runs to convergence
    unused: np.ndarray | None = None
    n_worst: int = 0  # how many of the unused are to be named
    by: str = "error"
    start: Any = None
    enough: float = 0.0


class Left(Protocol):
    """What a schedule reads of an outcome."""

    candidates: np.ndarray
    active: np.ndarray
    worst: np.ndarray
    log_evidence: float


Done = Mapping[str, Any]  # key -> Left


class Schedule(Protocol):
    """Results in, tasks out."""

    @property
    def n_tasks(self) -> int:
        """How many runs there are at most."""

    def tasks(self, done: Done) -> list[Task]:
        """What can be started now and is not done; empty when the last run is done."""

    def ending(self, done: Done) -> str:
        """The key of the run whose outcome is the model; empty while there are runs to do."""


@dataclass(frozen=True)
class _Partitions:
    """Candidates in the order in which they are cut into partitions of `size`, or more."""

    order: np.ndarray
    size: int
    follow: bool = False

    @property
    def n_partitions(self) -> int:
        """ceil(N / P), P as it was given."""
        return max(1, -(-len(self.order) // self.size))

    @property
    def n_tasks(self) -> int:
        """One per partition, fewer where they grow."""
        return self.n_partitions

    def size_after(self, *runs: Left) -> int:
        """P of the set that these runs go into."""
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
        """M leaves and M - 1 merges."""
        return 2 * self.n_partitions - 1

    @property
    def root(self) -> str:
        """The key of the last merge."""
        level, width = 0, self.n_partitions
        while width > 1:
            level, width = level + 1, -(-width // 2)
        return f"{level}-0"

    def ending(self, done: Done) -> str:
        """The root."""
        return self.root if self.root in done else ""

    def tasks(self, done: Done) -> list[Task]:
        """Leaves, and merges whose two sets are there."""
        ready = []
        below: list[Left | None] = []  # outcomes of the level below
        level, width = 0, self.n_partitions
        while True:
            here: list[Left | None] = []
            last = width == 1
            for i in range(width):
                if level and 2 * i + 1 == len(below):
                    here.append(below[2 * i])  # an odd set waits
                    continue
                key = f"{level}-{i}"
                here.append(done.get(key))
                if key in done:
                    continue
                if level == 0:
                    part = np.sort(self.order[i * self.size : (i + 1) * self.size])
                    ready.append(Task(key, part, 0.0 if last else 0.5 * self.size))
                    continue
                left, right = below[2 * i], below[2 * i + 1]
                if left is not None and right is not None:
                    stop = 0.0 if last else 0.5 * self.size_after(left, right)
                    ready.append(Task(key, np.union1d(left.active, right.active), stop))
            if last:
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

    def ending(self, done: Done) -> str:
        """The run that has seen the last candidate."""
        i, seen, _ = self._stands(done)
        return str(i - 1) if seen >= len(self.order) else ""

    def tasks(self, done: Done) -> list[Task]:
        """The next partition."""
        i, seen, size = self._stands(done)
        if seen >= len(self.order):
            return []
        candidates = np.sort(self.order[seen : seen + size])
        if i:
            candidates = np.union1d(done[str(i - 1)].active, candidates)
        last = seen + size >= len(self.order)
        return [Task(str(i), candidates, 0.0 if last else 0.5 * size)]

    def _stands(self, done: Done) -> tuple[int, int, int]:
        """The number of the next run, the candidates seen before it, and its P."""
        i, seen, size = 0, 0, self.size
        while seen < len(self.order) and str(i) in done:
            seen += size
            size = self.size_after(done[str(i)])
            i += 1
        return i, seen, size


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
        """The run after which there is no point that was never used."""
        i, unused = self._stands(done)
        return "" if len(unused) else str(i - 1)

    def tasks(self, done: Done) -> list[Task]:
        """The first partition, then the points that the last model fits worst."""
        i, unused = self._stands(done)
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

    def _stands(self, done: Done) -> tuple[int, np.ndarray]:
        """The number of the next run, and the candidates never used before it."""
        used: list[np.ndarray] = []
        while str(len(used)) in done:
            used.append(done[str(len(used))].candidates)
        return len(used), np.setdiff1d(self.order, np.concatenate([*used, np.empty(0, np.intp)]))


@dataclass(frozen=True)
class Polished:
    """A schedule, and rounds on what it has left out.

    Candidates are dropped while the rest of the model is not there yet, and early ends drop more of
    them; many would be welcome at the end. A round ranks all candidates outside the model by what
    each would gain, and runs on the model and the P best of them (P as in `follow`), from where the
    model stands. A round that gains less than `enough` nats is the last one. The model is the one
    of highest evidence. A schedule of one partition has left out nothing.
    """

    schedule: SplitMerge | Incremental | WorkingSet
    enough: float

    @property
    def n_tasks(self) -> int:
        """Those of the schedule and, if it leaves out something, the rounds."""
        return self.schedule.n_tasks + (_ROUNDS if self.schedule.n_partitions > 1 else 0)

    def tasks(self, done: Done) -> list[Task]:
        """Those of the schedule, then a round at a time."""
        if tasks := self.schedule.tasks(done):
            return [self._ranking(task) if task.stop_below == 0.0 else task for task in tasks]
        *_, key = self._chain(done)
        before = done[key]
        number = int(key.removeprefix("polish-")) if key.startswith("polish-") else 0
        if not len(before.worst):
            return []
        best = before.worst[: max(self.schedule.size, 2 * len(before.active))]
        candidates = np.union1d(before.active, best)
        task = Task(f"polish-{number + 1}", candidates, start=before, enough=self.enough)
        return [self._ranking(task) if number + 1 < _ROUNDS else task]

    def ending(self, done: Done) -> str:
        """The best of the last run and the rounds."""
        chain = list(self._chain(done))
        if not chain or len(done[chain[-1]].worst):
            return ""
        return max(chain, key=lambda key: done[key].log_evidence)

    def _chain(self, done: Done) -> Iterator[str]:
        """The keys of the last run and of the rounds that are done."""
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
    """P = ceil(4 sqrt(N)) (section 3.1).

    Examples
    --------
    >>> from sparsebayes.partition import automatic_size
    >>> automatic_size(3341)
    232
    """
    return max(1, int(np.ceil(4.0 * np.sqrt(n_rows))))
