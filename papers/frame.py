"""The parts of a reproduced paper, the run of its cells, and the comparison with printed values.

A paper has tables and figures, and a table has cells. A cell is one method on one split and returns
the values that it measured. Each finished cell is one JSON line in a file of the paper. An
interrupted run therefore continues where it stopped, and a deleted line is measured again.

The value `key` of a cell is compared with the printed value of the same table and row in the column
``"<cell.column> <key>"`` (``key`` where the cell's column is empty). A table with `value` set
compares that value only, in the column ``cell.column`` (``value`` where that is empty), so that the
tables of one experiment (error, size, time) share its cells. Lists are for the figure only.

Each line records the digest of its code (`code_digest`), and a store uses the lines of the present
code only. Lines of full runs are kept in the repository, too (`kept`). `carry_over` accepts the
lines of other code where the present code gives the same values again. The pages have their numbers
in CSV files (`Measured`), so that they can be written without the results folder.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from sparsebayes import __version__

from . import digest
from .kept import read_kept, write_kept

# Repetitions of every line that are run before any more of another line.
_STAGES = (1, 3, 10, 20)
_SEARCHED = ("settings", "sizes")  # tables that search for printed values
UNKNOWN = "unknown"  # code of lines without a digest
_Done = TypeVar("_Done")
Values = dict[str, Any]
Key = tuple[str, str, str, int]  # table, row, column and seed of a cell
# (row, column) of the cells -> what each repetition measured, and its "seed"
Results = dict[tuple[str, str], list[Values]]


@dataclass(frozen=True)
class Cell:
    """One method on one split. `run` must be picklable: a module's function or a partial of it."""

    table: str
    row: str
    column: str
    seed: int
    run: Callable[[], Values]

    @property
    def key(self) -> Key:
        """Return the key of its result."""
        return self.table, self.row, self.column, self.seed


@dataclass(frozen=True)
class Table:
    """A table or a figure of a paper.

    Parameters
    ----------
    number, title : str
        Its number ("1", "figure 1") and title.
    cells : callable
        ``cells(quick)`` returns the cells to run.
    figure : callable, optional
        Draws the results (see `Results`) with matplotlib.
    value : str, optional
        The one value of a cell that the table shows.
    derive : callable, optional
        Returns further numbers by row and column, such as a ratio of two cells of the same seed.
    of_means : bool
        Whether the figure shows means only, so that the numbers of the page suffice to draw it.
    """

    number: str
    title: str
    cells: Callable[[bool], list[Cell]]
    figure: Callable[[Results], Any] | None = None
    value: str | None = None
    derive: Callable[[Results], dict[tuple[str, str], list[float]]] | None = None
    of_means: bool = False

    @property
    def label(self) -> str:
        """Return its name: ``Table 1``, ``Figure 1``."""
        return f"Table {self.number}" if self.number.isdigit() else self.number.capitalize()

    def columns(self, cell: Cell, values: Values) -> dict[str, float]:
        """Return the numbers of a cell under the names of this table's columns."""
        numbers = {k: float(v) for k, v in values.items() if not isinstance(v, list)}
        if self.value is not None:
            name = cell.column or self.value
            return {name: numbers[self.value]} if self.value in numbers else {}
        return {f"{cell.column} {key}".strip(): value for key, value in numbers.items()}

    def results_from_means(self, lines: Sequence[Line]) -> Results:
        """Return results made of recorded means; empty where the figure needs more than means."""
        results: Results = {}
        for line in lines:
            if line.n and self.of_means:
                column, key = line.column.rsplit(" ", 1)
                values = results.setdefault((line.row, column), [{"seed": 0}])[0]
                values[key] = line.mean
        return results


@dataclass(frozen=True)
class Paper:
    """A paper, with the protocol of its experiments.

    `headline` has pairs of a table and a column: the lines that its page shows. `picture` is the
    number of the figure on its page. `targets` says which printed values the table "settings"
    searched for: a data set and a column of that table, and by value the table, row and column of
    the printed one.
    """

    name: str
    title: str
    reference: str
    protocol: str
    tables: tuple[Table, ...]
    headline: tuple[tuple[str, str], ...] = ()
    picture: str = ""
    targets: tuple[tuple[str, str, dict[str, tuple[str, str, str]]], ...] = ()

    def is_headline(self, table: str, column: str) -> bool:
        """Return whether the lines of a column are on the page of the paper."""
        return (table, column) in self.headline

    def choose(self, number: str | None) -> tuple[Table, ...]:
        """Return the table of this number, or all tables for None."""
        wanted = None if number is None else number.lower().removeprefix("table").strip()
        tables = tuple(t for t in self.tables if wanted in (None, t.number))
        if not tables:
            known = ", ".join(repr(t.number) for t in self.tables)
            raise ValueError(f"The paper {self.name!r} has no table {number!r}: it has {known}.")
        return tables


@dataclass(frozen=True)
class Printed:
    """A printed value, and whether it is expected to be reproducible.

    `n` is the number of repetitions behind it, where the paper gives one. `unit` is the unit of the
    last digit that is printed of the mean.
    """

    mean: float
    sd: float | None
    reproducible: str
    note: str
    n: int | None = None
    unit: float = 0.0


def read_printed(lines: Iterable[str]) -> dict[tuple[str, str, str], Printed]:
    """Return printed values by table, row and column, from the lines of a CSV file.

    Its columns are table, row, column, mean, sd, reproducible (yes, partly or no), note and,
    optionally, n.
    """
    printed: dict[tuple[str, str, str], Printed] = {}
    for number, line in enumerate(csv.DictReader(lines), start=2):
        key = (line["table"], line["row"], line["column"])
        if line["reproducible"] not in ("yes", "partly", "no"):
            raise ValueError(f"Line {number}: reproducible must be yes, partly or no, got {line}.")
        if key in printed:
            raise ValueError(f"Line {number}: {key} is listed twice.")
        sd = float(line["sd"]) if line["sd"] else None
        n = int(line["n"]) if line.get("n") else None
        mean, unit = float(line["mean"]), _last_digit(line["mean"])
        printed[key] = Printed(mean, sd, line["reproducible"], line["note"], n, unit)
    return printed


def _last_digit(text: str) -> float:
    """Return the unit of the last digit of a number: 0.001 for ".011"."""
    return 10.0 ** int(Decimal(text).as_tuple().exponent)


# Running cells.


def machine() -> str:
    """Return the machine and the libraries that its speed depends on."""
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, numpy {np.__version__}"
    )


def code_digest(paper: str) -> str:
    """Return the digest of the code behind a paper's numbers."""
    from . import PAPERS

    return digest.code_digest(f"{__package__}.{PAPERS.get(paper, paper)}")


def _execute(paper: str, cell: Cell) -> tuple[str, Cell, Values | None, float, str]:
    """Run a cell on one BLAS thread; return values or None, CPU seconds and why it failed."""
    started = time.process_time()
    try:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hundreds of them would hide what a cell reports
            values = cell.run()
    except Exception as error:  # one failed cell must not cost hours of others
        return paper, cell, None, time.process_time() - started, f"{type(error).__name__}: {error}"
    return paper, cell, values, time.process_time() - started, ""


class Store:
    """The results of one paper in a folder, one line per finished cell.

    Quick runs, full runs, other versions and other code share the file; a store uses the lines of
    its own kind of run and of the present code. `others` has the newest lines of other code.
    """

    def __init__(self, folder: str | os.PathLike[str], paper: str, quick: bool) -> None:
        self.path = Path(folder) / f"{paper}.jsonl"
        self.paper = paper
        self.code = code_digest(paper)
        self._run = {"paper": paper, "quick": quick, "version": __version__}
        self._lines: dict[Key, dict[str, Any]] = {}
        self.others: dict[Key, dict[str, Any]] = {}
        self._longest: dict[tuple[str, str, str], float] = {}
        for line in () if quick else read_kept(paper):
            self._take({**self._run, **line})
        if self.path.is_file():
            for text in self.path.read_text("utf-8").splitlines():
                self.take(text)

    def take(self, text: str) -> bool:
        """Use a line of a results file, and return whether it is one of this kind of run."""
        try:
            line = json.loads(text)
        except ValueError:  # cut short when a run was killed: that cell is run again
            return False
        if any(line.get(name) != value for name, value in self._run.items()):
            return False
        self._take(line)
        return True

    def _take(self, line: dict[str, Any]) -> None:
        key = line["table"], line["row"], line["column"], line["seed"]
        self._longest[key[:3]] = max(self._longest.get(key[:3], 0.0), line["seconds"])
        same = line.get("code") == self.code
        if not same:
            self.others.pop(key, None)  # so that the newest line is the last
        (self._lines if same else self.others)[key] = line

    def keep(self, cells: Iterable[Cell]) -> None:
        """Write what is shown of some cells to the files in the repository."""
        write_kept(self.paper, self.shown(cells).values())

    def merge(self, texts: Iterable[str]) -> int:
        """Append the lines of this paper from the results of another machine; return how many."""
        mine = [text for text in texts if self.take(text)]
        if mine:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a", encoding="utf-8") as file:
                file.write("".join(text.rstrip("\n") + "\n" for text in mine))
        return len(mine)

    def get(self, cell: Cell) -> dict[str, Any] | None:
        """Return the line of a finished cell, or None."""
        return self._lines.get(cell.key)

    def expected(self, cell: Cell) -> float:
        """Return the longest CPU seconds of a finished cell of the same line; infinite without."""
        return self._longest.get(cell.key[:3], math.inf)

    def shown(self, cells: Iterable[Cell]) -> dict[Key, dict[str, Any]]:
        """Return the lines to show: of the present code, else of one other code for each place.

        A place is a table, row and column. The other code is that of its newest line.
        """
        places: dict[tuple[str, str, str], list[Cell]] = {}
        for cell in cells:
            places.setdefault(cell.key[:3], []).append(cell)
        shown: dict[Key, dict[str, Any]] = {}
        for some in places.values():
            own = {c.key: line for c in some if (line := self.get(c)) is not None}
            others = {c.key: self.others[c.key] for c in some if c.key in self.others}
            newest = [line.get("code") for key, line in self.others.items() if key in others][-1:]
            same = {key: line for key, line in others.items() if line.get("code") in newest}
            shown |= own or same
        return shown

    def add(self, cell: Cell, values: Values, seconds: float, **more: str) -> None:
        """Append a finished cell to the file."""
        line = {
            **self._run,
            "table": cell.table,
            "row": cell.row,
            "column": cell.column,
            "seed": cell.seed,
            "code": self.code,
            "seconds": round(seconds, 3),
            "machine": machine(),
            "values": values,
            **more,
        }
        self._take(line)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a+b") as file:
            if file.tell() and not _ends_a_line(self.path):
                file.write(b"\n")
            file.write(json.dumps(line, default=_plain).encode() + b"\n")


def _ends_a_line(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _plain(value: Any) -> Any:
    """Return NumPy numbers and arrays as JSON can hold them."""
    return value.tolist()


def run_cells(
    work: Sequence[tuple[Store, Sequence[Cell]]],
    jobs: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
    minutes: float = math.inf,
) -> dict[str, dict[Key, str]]:
    """Run the cells that their stores lack and return the reasons of failures by paper and key.

    The cells of all papers share one pool of `jobs` processes. The first repetition of every line
    comes first, then those up to the third, the tenth and the twentieth, so that a run that ends
    early has measured each line. Tables that search for settings are one such stage behind. Within
    a stage, cells that took long before come before shorter ones, so that no long one is left for
    the end; after the twentieth repetition the short ones come first, so that most lines are soon
    complete. After `minutes` no further cell is started, and none that took longer before than the
    time that is left.
    """
    stores = {store.paper: store for store, _ in work}
    todo = [
        (store.paper, cell)
        for store, cells in work
        for cell in {c.key: c for c in cells}.values()
        if store.get(cell) is None
    ]

    def turn(task: tuple[str, Cell]) -> tuple[int, bool, float, int]:
        paper, cell = task
        searched = cell.table in _SEARCHED
        stage = sum(cell.seed >= end for end in _STAGES) + (searched and cell.seed > 0)
        expected = stores[paper].expected(cell)
        return stage, searched, expected if stage >= len(_STAGES) else -expected, cell.seed

    def is_in_time(task: tuple[str, Cell]) -> bool:
        time_left = 60.0 * minutes - (time.monotonic() - started)
        expected = stores[task[0]].expected(task[1])
        return time_left > (0.0 if math.isinf(expected) else expected)

    todo.sort(key=turn)
    failed: dict[str, dict[Key, str]] = {paper: {} for paper in stores}
    started = time.monotonic()
    finished = _in_turn(_execute, filter(is_in_time, todo), 1 if len(todo) < 2 else jobs)
    for done, (paper, cell, values, seconds, reason) in enumerate(finished, start=1):
        if values is None:
            failed[paper][cell.key] = reason
        else:
            stores[paper].add(cell, values, seconds)
        if progress:
            progress(done, len(todo), f"{paper} {cell.row} {cell.column} {cell.seed}")
    return failed


def _in_turn(
    run: Callable[[str, Cell], _Done], tasks: Iterable[tuple[str, Cell]], jobs: int
) -> Iterator[_Done]:
    if jobs == 1:
        yield from (run(*task) for task in tasks)
        return
    from joblib import Parallel, delayed

    parallel = Parallel(
        n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs"
    )
    yield from parallel(delayed(run)(*task) for task in tasks)


def run_recorded(
    work: Sequence[tuple[Store, Sequence[Cell]]],
    jobs: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, set[str]]:
    """Run the first repetition of every line and return the modules that it executes, by paper.

    The results are not stored, because the recording takes time and some of them are times.
    """
    lines: dict[tuple[str, tuple[str, str, str]], Cell] = {}
    for store, cells in work:
        for cell in sorted(cells, key=lambda cell: cell.seed):
            lines.setdefault((store.paper, cell.key[:3]), cell)
    tasks = [(paper, cell) for (paper, _), cell in lines.items()]
    found: dict[str, set[str]] = {store.paper: set() for store, _ in work}
    for done, (paper, cell, names) in enumerate(_in_turn(_record, tasks, jobs), start=1):
        found[paper] |= names
        if progress:
            progress(done, len(tasks), f"{paper} {cell.row} {cell.column}")
    return found


def _record(paper: str, cell: Cell) -> tuple[str, Cell, set[str]]:
    with digest.executed_modules() as names:
        _execute(paper, cell)
    return paper, cell, names


def carry_over(
    work: Sequence[tuple[Store, Sequence[Cell]]],
    jobs: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
    minutes: float = math.inf,
) -> dict[str, tuple[int, int]]:
    """Accept lines of other code whose first repetition has the same values with the present code.

    One cell of each row and column is run. Where its values agree with those of the line of other
    code to six digits, seconds aside, all lines of that row and column made by that other code
    count for the present code, and say in ``carried`` which code measured them. The numbers of rows
    and columns that agreed and that were run are returned by paper.
    """
    lines: dict[tuple[str, tuple[str, str, str]], list[Cell]] = {}
    for store, cells in work:
        for cell in cells:
            if store.get(cell) is None and cell.key in store.others:
                lines.setdefault((store.paper, cell.key[:3]), []).append(cell)
    stores = {store.paper: store for store, _ in work}
    first = {place: min(cells, key=lambda cell: cell.seed) for place, cells in lines.items()}
    tasks = [(stores[paper], [cell]) for (paper, _), cell in first.items()]
    run_cells(tasks, jobs, progress, minutes)
    counts: dict[str, tuple[int, int]] = {}
    for (paper, place), cell in first.items():
        store, measured = stores[paper], stores[paper].get(cell)
        old = store.others[cell.key]
        agrees = measured is not None and _same_values(measured["values"], old["values"])
        for other in lines[paper, place] if agrees else ():
            line = store.others[other.key]
            if other is not cell and line.get("code") == old.get("code"):
                origin = {"carried": line.get("carried", line.get("code", UNKNOWN))}
                if "machine" in line:
                    origin["machine"] = line["machine"]
                store.add(other, line["values"], line["seconds"], **origin)
        agreed, tried = counts.get(paper, (0, 0))
        counts[paper] = agreed + agrees, tried + 1
    return counts


def _same_values(one: Values, other: Values) -> bool:
    """Return whether two results agree to six digits; times are not compared."""
    numbers = [
        {k: np.asarray(v) for k, v in values.items() if not _is_time(k)} for values in (one, other)
    ]
    return set(numbers[0]) == set(numbers[1]) and all(
        value.shape == numbers[1][key].shape
        and np.allclose(value, numbers[1][key], rtol=1e-6, atol=1e-12)
        for key, value in numbers[0].items()
    )


def _is_time(key: str) -> bool:
    return key == "time" or "seconds" in key or " over " in key


# Comparison with the printed values.


class Measured(NamedTuple):
    """Mean and standard deviation over `n` repetitions of ours, with the digest of the code."""

    mean: float
    sd: float
    n: int
    code: str


@dataclass(frozen=True)
class Line:
    """Our mean and standard deviation over `n` repetitions, beside the printed value."""

    row: str
    column: str
    mean: float
    sd: float
    n: int
    printed: Printed | None
    code: str = ""

    @property
    def difference(self) -> float:
        """Difference to the printed value in its standard deviations, else in ours; NaN without."""
        return self._over(self._printed_sd)

    @property
    def errors(self) -> float:
        """Difference to the printed value in standard errors of that difference; NaN without.

        Where the paper prints no standard deviation or number of repetitions, ours is used, and
        where we have one repetition, the printed standard deviation. The printed mean is rounded:
        a uniform error of one unit of its last digit.
        """
        if self.printed is None or self.n == 0 or (self.n == 1 and self.printed.sd is None):
            return math.nan
        ours = (self.sd if self.n > 1 else self._printed_sd) ** 2 / self.n
        theirs = self._printed_sd**2 / (self.printed.n or self.n) + self.printed.unit**2 / 12.0
        return self._over(math.sqrt(ours + theirs))

    @property
    def within(self) -> bool:
        """Whether our mean is within one standard deviation of the printed value."""
        return abs(self.difference) <= 1

    @property
    def agrees(self) -> bool:
        """Whether the two means are within two standard errors of their difference."""
        return abs(self.errors) <= 2

    @property
    def _printed_sd(self) -> float:
        return (self.printed.sd if self.printed else None) or self.sd

    def _over(self, scale: float) -> float:
        if self.printed is None or self.n == 0:
            return math.nan
        away = self.mean - self.printed.mean
        if abs(away) <= 1e-12 * abs(self.printed.mean):
            return 0.0
        return away / scale if scale > 0 else math.nan


@dataclass(frozen=True)
class Outcome:
    """One table: what was measured, and what that means."""

    table: Table
    lines: list[Line]
    results: Results
    n_done: int
    n_cells: int
    seconds: dict[Key, float]  # by cell: tables may share them
    failures: list[str] = field(default_factory=list)
    code: str = ""  # of the sources as they are now
    known: bool = False  # whether some lines are from elsewhere

    @property
    def verdict(self) -> str:
        """Return one of these words, which count printed values within two standard errors.

        ``reproduced``: all of them. ``reproduced where it can be``: all that are expected to be
        reproducible, wholly or partly. ``partly``: some. ``not reproduced``: none. ``redrawn``: no
        value is printed. ``not run``: nothing was measured.
        """
        if not any(line.printed for line in self.lines):
            return "redrawn" if self.n_done or self.measured else "not run"
        if not self.compared:
            return "not run"
        hoped = [c for c in self.compared if c.printed and c.printed.reproducible != "no"]
        if all(line.agrees for line in self.compared) and not self.unmeasured:
            return "reproduced"
        if hoped and all(line.agrees for line in hoped) and not self.unmeasured:
            return "reproduced where it can be"
        return "partly" if any(line.agrees for line in self.compared) else "not reproduced"

    @property
    def measured(self) -> list[Line]:
        """Lines that were measured."""
        return [line for line in self.lines if line.n]

    @property
    def compared(self) -> list[Line]:
        """Lines that were measured and have a printed value."""
        return [line for line in self.measured if line.printed is not None]

    @property
    def unmeasured(self) -> list[Line]:
        """Lines that have a printed value and were not measured."""
        return [line for line in self.lines if line.printed is not None and not line.n]

    @property
    def counts(self) -> str:
        """Number of printed values that ours agree with, by both measures."""
        if not self.compared:
            return ""
        promised = [c for c in self.compared if c.printed and c.printed.reproducible == "yes"]
        return "; ".join(
            f"{name}: {sum(map(test, promised))} of {len(promised)} expected to be reproducible, "
            f"{sum(map(test, self.compared))} of {len(self.compared)} in all"
            for name, test in (
                ("two standard errors", lambda line: line.agrees),
                ("one standard deviation", lambda line: line.within),
            )
        )

    @property
    def reasons(self) -> list[str]:
        """Sentences that give the reasons of the verdict."""
        sentences = [f"Within {self.counts}."] if self.counts else []
        by_note: dict[str, list[str]] = {}
        for line in self.compared:
            if line.agrees or line.printed is None:
                continue
            note = line.printed.note or (
                "Expected to be reproducible, and not within two standard errors."
                if line.printed.reproducible == "yes"
                else "No reason is known."
            )
            by_note.setdefault(note, []).append(f"{line.row} {line.column}")
        sentences += [f"Outside: {_some(places)}. {note}" for note, places in by_note.items()]
        if self.measured and self.unmeasured:
            places = [f"{line.row} {line.column}" for line in self.unmeasured]
            sentences.append(f"Not measured: {_some(places)}.")
        if 0 < self.n_done < self.n_cells:
            sentences.append(
                f"Not complete: {self.n_done} of {self.n_cells} cells were run"
                f"{'; other lines are from an earlier run' if self.known else ''}."
            )
        if other := [line for line in self.measured if line.code != self.code]:
            sentences.append(
                f"Made by other code than this ({self.code}): {len(other)} of "
                f"{len(self.measured)} lines ({', '.join(sorted({c.code for c in other}))})."
            )
        sentences += [f"A cell failed: {reason}" for reason in self.failures]
        return sentences


def _some(places: list[str], most: int = 4) -> str:
    """Return the first few places; the table marks all of them."""
    more = len(places) - most
    return "; ".join(places[:most]) + (f" and {more} more" if more > 0 else "")


def outcome(
    table: Table,
    cells: Sequence[Cell],
    store: Store,
    printed: dict[tuple[str, str, str], Printed],
    failed: dict[Key, str] | None = None,
    known: dict[tuple[str, str, str], Measured] | None = None,
) -> Outcome:
    """Aggregate the finished cells of a table and compare them with the printed values.

    `known` are recorded numbers (see `read_measured`) by table, row and column. They are used where
    the store has no repetition of a line that is still measured, unless their code is unknown.
    """
    results: Results = {}
    numbers: dict[tuple[str, str], list[float]] = {}
    codes: dict[tuple[str, str], set[str]] = {}
    done, reasons = 0, []
    seconds: dict[Key, float] = {}
    shown = store.shown(cells)
    for cell in cells:
        line = shown.get(cell.key)
        if line is None:
            if reason := (failed or {}).get(cell.key):
                reasons.append(f"{cell.row} {cell.column}, repetition {cell.seed}: {reason}")
            continue
        done += 1
        seconds[cell.key] = line["seconds"]
        kept = results.setdefault((cell.row, cell.column), [])
        kept.append({**line["values"], "seed": cell.seed})
        for column, value in table.columns(cell, line["values"]).items():
            numbers.setdefault((cell.row, column), []).append(value)
            codes.setdefault((cell.row, column), set()).add(line.get("code", UNKNOWN))
    if table.derive:
        derived = table.derive(results)
        numbers |= derived
        codes |= {place: set().union(*codes.values()) for place in derived}
    ours = {
        (row, column): Measured(
            float(np.mean(values)),
            float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
            len(values),
            "+".join(sorted(codes[row, column])),
        )
        for (row, column), values in numbers.items()
        if values
    }
    uses_known = False
    rows_now = {cell.row for cell in cells}
    of_table = {
        (row, c): m for (number, row, c), m in (known or {}).items() if number == table.number
    }
    standing = {m.code for (row, _), m in of_table.items() if row in rows_now} | {store.code}
    for place, recorded in of_table.items():
        # A line stays beside others of its code where the package that it needs is not installed.
        if recorded.code in standing - {UNKNOWN} and place not in ours:
            ours[place] = recorded
            uses_known = True
    theirs = {(row, column): p for (t, row, column), p in printed.items() if t == table.number}
    # Recorded lines keep their order, whichever packages are installed.
    former = [place for place in of_table if place in ours]
    places = list(dict.fromkeys([*theirs, *former, *ours]))
    rows = list(dict.fromkeys(row for row, _ in places))
    nothing = Measured(math.nan, 0.0, 0, "")
    lines = [
        Line(row, column, found.mean, found.sd, found.n, theirs.get((row, column)), found.code)
        for row, column in sorted(places, key=lambda place: rows.index(place[0]))
        for found in [ours.get((row, column), nothing)]
    ]
    return Outcome(
        table,
        lines,
        results,
        done,
        len(cells),
        seconds,
        list(dict.fromkeys(reasons)),
        code_digest(store.paper),
        uses_known,
    )


# The numbers of the page.


def read_measured(path: str | os.PathLike[str]) -> dict[tuple[str, str, str], Measured]:
    """Return the recorded numbers of a paper by table, row and column; empty without a file."""
    if not Path(path).is_file():
        return {}
    return {
        (line["table"], line["row"], line["column"]): Measured(
            float(line["mean"]), float(line["sd"]), int(line["n"]), line["code"]
        )
        for line in csv.DictReader(Path(path).read_text("utf-8").splitlines())
    }


def measured_csv(
    known: dict[tuple[str, str, str], Measured],
    outcomes: Sequence[Outcome],
    printed: dict[tuple[str, str, str], Printed],
) -> str:
    """Return the numbers of a paper, measured or known, beside the printed ones as CSV text."""
    chosen = {outcome.table.number for outcome in outcomes}
    everything = {place: found for place, found in known.items() if place[0] not in chosen}
    for outcome in outcomes:
        for line in outcome.measured:
            place = outcome.table.number, line.row, line.column
            everything[place] = Measured(line.mean, line.sd, line.n, line.code)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        ("table", "row", "column", "printed", "printed_sd", "mean", "sd", "n", "errors", "code")
    )
    for (table, row, column), ours in everything.items():
        theirs = printed.get((table, row, column))
        line = Line(row, column, ours.mean, ours.sd, ours.n, theirs)
        writer.writerow(
            (table, row, column)
            + (
                ("", "")
                if theirs is None
                else (theirs.mean, "" if theirs.sd is None else theirs.sd)
            )
            + (f"{ours.mean:.8g}", f"{ours.sd:.4g}", ours.n)
            + ("" if math.isnan(line.errors) else f"{line.errors:.2f}", ours.code)
        )
    return file.getvalue()
