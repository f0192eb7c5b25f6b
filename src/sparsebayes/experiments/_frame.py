"""What a reproduced paper is made of, how its cells are run, and what counts as reproduced.

A paper has tables (a figure is one, too), a table has cells: one method on one split, which returns
the values it measured. Each finished cell is one JSON line in a file of the paper, so that a run
that was interrupted goes on where it was, and a deleted line is measured again.

A cell's value `key` is compared with the printed value of the same table and row in the column
``"<cell.column> <key>"`` (``key`` where the cell's column is empty). In a table with `value` set,
only that value is, in the column ``cell.column`` (``value`` where that is empty): so the tables of
one experiment (error, size, time) share its cells. Values that are lists are for the figure only.
"""

from __future__ import annotations

import csv
import json
import math
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from .. import __version__

Values = dict[str, Any]
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


@dataclass(frozen=True)
class Table:
    """A table or a figure of a paper; `cells(quick)` says what to run for it.

    `figure` draws the results (see `Results`) with matplotlib; `derive` makes more numbers of them,
    by row and column (a ratio of two cells of the same seed); `hours` is what the full run takes on
    one core.
    """

    number: str
    title: str
    cells: Callable[[bool], list[Cell]]
    figure: Callable[[Results], Any] | None = None
    value: str | None = None
    derive: Callable[[Results], dict[tuple[str, str], list[float]]] | None = None
    hours: float = 0.0

    @property
    def label(self) -> str:
        """``Table 1``, ``Figure 1``."""
        return f"Table {self.number}" if self.number.isdigit() else self.number.capitalize()

    def columns(self, cell: Cell, values: Values) -> dict[str, float]:
        """The numbers of a cell under the names of this table's columns."""
        numbers = {k: float(v) for k, v in values.items() if not isinstance(v, list)}
        if self.value is not None:
            name = cell.column or self.value
            return {name: numbers[self.value]} if self.value in numbers else {}
        return {f"{cell.column} {key}".strip(): value for key, value in numbers.items()}


@dataclass(frozen=True)
class Paper:
    """A paper; `protocol` says how it is reproduced (the docstring of its module)."""

    name: str
    title: str
    reference: str
    protocol: str
    tables: tuple[Table, ...]

    def choose(self, number: str | None) -> tuple[Table, ...]:
        """The table of this number, or all; a sentence where there is none."""
        wanted = None if number is None else number.lower().removeprefix("table").strip()
        found = tuple(t for t in self.tables if wanted in (None, t.number))
        if not found:
            known = ", ".join(repr(t.number) for t in self.tables)
            raise ValueError(f"The paper {self.name!r} has no table {number!r}: it has {known}.")
        return found


@dataclass(frozen=True)
class Printed:
    """What the paper prints in one place, and whether the notes hold it to be reproducible."""

    mean: float
    sd: float | None
    reproducible: str
    note: str


def read_printed(lines: Iterable[str]) -> dict[tuple[str, str, str], Printed]:
    """Printed values by table, row and column, from a CSV file with these columns:
    table, row, column, mean, sd, reproducible (yes, partly or no), note.
    """
    printed: dict[tuple[str, str, str], Printed] = {}
    for number, line in enumerate(csv.DictReader(lines), start=2):
        key = (line["table"], line["row"], line["column"])
        if line["reproducible"] not in ("yes", "partly", "no"):
            raise ValueError(f"Line {number}: reproducible must be yes, partly or no, got {line}.")
        if key in printed:
            raise ValueError(f"Line {number}: {key} is there twice.")
        sd = float(line["sd"]) if line["sd"] else None
        printed[key] = Printed(float(line["mean"]), sd, line["reproducible"], line["note"])
    return printed


# Running cells.


def machine() -> str:
    """The machine and the libraries that decide how fast it is."""
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, numpy {np.__version__}"
    )


class Key(NamedTuple):
    """What a finished cell is found by."""

    paper: str
    table: str
    row: str
    column: str
    seed: int
    quick: bool
    version: str


def _key(paper: str, cell: Cell, quick: bool) -> Key:
    return Key(paper, cell.table, cell.row, cell.column, cell.seed, quick, __version__)


def _execute(cell: Cell) -> tuple[Cell, Values | None, float, str]:
    """Values and CPU seconds, or why there are no values. One BLAS thread."""
    started = time.process_time()
    try:
        with threadpool_limits(1), warnings.catch_warnings():
            # A cell reports what did not converge as a value; hundreds of warnings hide the rest.
            warnings.simplefilter("ignore", ConvergenceWarning)
            values = cell.run()
    except Exception as error:  # one failed cell must not cost hours of others: it is shown as such
        return cell, None, time.process_time() - started, f"{type(error).__name__}: {error}"
    return cell, values, time.process_time() - started, ""


class Store:
    """The results of one paper in a folder, one line per finished cell."""

    def __init__(self, folder: str | os.PathLike[str], paper: str, quick: bool) -> None:
        self.path = Path(folder) / f"{paper}.jsonl"
        self.paper, self.quick = paper, quick
        self.lines: dict[Key, dict[str, Any]] = {}
        if self.path.is_file():
            for text in self.path.read_text("utf-8").splitlines():
                try:
                    line = json.loads(text)
                except ValueError:  # cut short when a run was killed: that cell is run again
                    continue
                self.lines[_line_key(line)] = line

    def get(self, cell: Cell) -> dict[str, Any] | None:
        """The line of a finished cell."""
        return self.lines.get(_key(self.paper, cell, self.quick))

    def add(self, cell: Cell, values: Values, seconds: float) -> None:
        """Keep a finished cell, at once."""
        line = {
            "paper": self.paper,
            "table": cell.table,
            "row": cell.row,
            "column": cell.column,
            "seed": cell.seed,
            "quick": self.quick,
            "version": __version__,
            "seconds": round(seconds, 3),
            "machine": machine(),
            "values": values,
        }
        self.lines[_line_key(line)] = line
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a+b") as file:
            if file.tell() and not _ends_a_line(self.path):
                file.write(b"\n")
            file.write(json.dumps(line, default=_plain).encode() + b"\n")


def _line_key(line: dict[str, Any]) -> Key:
    return Key(*(line.get(name) for name in Key._fields))  # type: ignore[arg-type]


def _ends_a_line(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as JSON has them."""
    return value.tolist()


def run_cells(
    cells: Sequence[Cell],
    store: Store,
    jobs: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[Key, str]:
    """Run the cells that the store does not have; what failed comes back with its reason."""
    todo = list({_key(store.paper, c, store.quick): c for c in cells}.values())
    todo = [cell for cell in todo if store.get(cell) is None]
    failed: dict[Key, str] = {}
    for done, (cell, values, seconds, reason) in enumerate(_in_turn(todo, jobs), start=1):
        if values is None:
            failed[_key(store.paper, cell, store.quick)] = reason
        else:
            store.add(cell, values, seconds)
        if progress:
            progress(done, len(todo), f"{cell.row} {cell.column} {cell.seed}")
    return failed


def _in_turn(cells: list[Cell], jobs: int) -> Iterator[tuple[Cell, Values | None, float, str]]:
    if jobs == 1 or len(cells) < 2:
        yield from map(_execute, cells)
        return
    from joblib import Parallel, delayed

    parallel = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    yield from parallel(delayed(_execute)(cell) for cell in cells)


# What came out, beside the paper.


@dataclass(frozen=True)
class Line:
    """Ours beside the paper's: mean and standard deviation over `n` repetitions."""

    row: str
    column: str
    mean: float
    sd: float
    n: int
    printed: Printed | None

    @property
    def difference(self) -> float:
        """In standard deviations: the paper's where it prints one, else ours. NaN: no scale."""
        if self.printed is None or self.n == 0:
            return math.nan
        away = self.mean - self.printed.mean
        if away == 0:
            return 0.0
        sd = self.printed.sd or self.sd
        return away / sd if sd > 0 else math.nan

    @property
    def within(self) -> bool:
        """Whether ours is within one standard deviation of the paper's."""
        return abs(self.difference) <= 1


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

    @property
    def verdict(self) -> str:
        """``reproduced``: every printed figure is within one standard deviation. ``reproduced where
        it can be``: every one that was held reproducible, wholly or partly. ``partly``: some are.
        ``not reproduced``: none. ``drawn again``: none was printed. ``not run``.
        """
        if not any(line.printed for line in self.lines):
            return "drawn again" if self.n_done else "not run"
        if not self.compared:
            return "not run"
        hoped = [c for c in self.compared if c.printed and c.printed.reproducible != "no"]
        if all(line.within for line in self.compared) and not self.unmeasured:
            return "reproduced"
        if hoped and all(line.within for line in hoped) and not self.unmeasured:
            return "reproduced where it can be"
        return "partly" if any(line.within for line in self.compared) else "not reproduced"

    @property
    def compared(self) -> list[Line]:
        """Lines that were measured and have a printed value."""
        return [line for line in self.lines if line.printed is not None and line.n]

    @property
    def unmeasured(self) -> list[Line]:
        """Lines that have a printed value and were not measured."""
        return [line for line in self.lines if line.printed is not None and not line.n]

    @property
    def counts(self) -> str:
        """How many printed figures are within one standard deviation, in a few words."""
        if not self.compared:
            return ""
        promised = [c for c in self.compared if c.printed and c.printed.reproducible == "yes"]
        return (
            f"{sum(c.within for c in promised)} of {len(promised)} held reproducible, "
            f"{sum(c.within for c in self.compared)} of {len(self.compared)} in all"
        )

    @property
    def reasons(self) -> list[str]:
        """What the verdict rests on, in sentences."""
        said = [f"Within one standard deviation: {self.counts}."] if self.counts else []
        by_note: dict[str, list[str]] = {}
        for line in self.compared:
            if line.within or line.printed is None:
                continue
            note = line.printed.note or (
                "Held to be reproducible, and is not."
                if line.printed.reproducible == "yes"
                else "No reason is known."
            )
            by_note.setdefault(note, []).append(f"{line.row} {line.column}")
        said += [f"Outside: {_some(places)}. {note}" for note, places in by_note.items()]
        if self.n_done and self.unmeasured:
            places = [f"{line.row} {line.column}" for line in self.unmeasured]
            said.append(f"Not measured: {_some(places)}.")
        if 0 < self.n_done < self.n_cells:
            said.append(f"Not complete: {self.n_done} of {self.n_cells} cells were run.")
        said += [f"A cell failed: {reason}" for reason in self.failures]
        return said


def _some(places: list[str], most: int = 4) -> str:
    """The first few; the table marks all of them."""
    more = len(places) - most
    return "; ".join(places[:most]) + (f" and {more} more" if more > 0 else "")


def outcome(
    table: Table,
    cells: Sequence[Cell],
    store: Store,
    printed: dict[tuple[str, str, str], Printed],
    failed: dict[Key, str] | None = None,
) -> Outcome:
    """Aggregate the finished cells of a table and put the paper's values beside them."""
    results: Results = {}
    numbers: dict[tuple[str, str], list[float]] = {}
    done, reasons = 0, []
    seconds: dict[Key, float] = {}
    for cell in cells:
        line = store.get(cell)
        if line is None:
            if reason := (failed or {}).get(_key(store.paper, cell, store.quick)):
                reasons.append(f"{cell.row} {cell.column}, repetition {cell.seed}: {reason}")
            continue
        done += 1
        seconds[_line_key(line)] = line["seconds"]
        kept = results.setdefault((cell.row, cell.column), [])
        kept.append({**line["values"], "seed": cell.seed})
        for column, value in table.columns(cell, line["values"]).items():
            numbers.setdefault((cell.row, column), []).append(value)
    if table.derive:
        numbers |= table.derive(results)
    known = {(row, column): p for (t, row, column), p in printed.items() if t == table.number}
    places = list(dict.fromkeys([*known, *numbers]))
    rows = list(dict.fromkeys(row for row, _ in places))
    lines = [
        Line(
            row,
            column,
            float(np.mean(values)) if values else math.nan,
            float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
            len(values),
            known.get((row, column)),
        )
        for row, column in sorted(places, key=lambda place: rows.index(place[0]))
        for values in [numbers.get((row, column), [])]
    ]
    return Outcome(table, lines, results, done, len(cells), seconds, list(dict.fromkeys(reasons)))
