"""CSV files to arrays and back, for the command line.

A table has a header row. Columns whose values are all numbers are numbers; any other column is
text and becomes one 0/1 column per value. What was learnt about the columns is kept (`Encoding`),
so that later files are read in the same way.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ._files import write_whole

_MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}
_MANY = 50  # values of a text column beyond which one column each is surely not meant


class TableError(ValueError):
    """The table cannot be used; the message says where and what to do."""


@dataclass(frozen=True)
class Table:
    """The cells of a CSV file as text."""

    path: str
    names: list[str]
    rows: list[list[str]]

    def column(self, name: str) -> list[str]:
        """The cells of one column."""
        i = self.names.index(name)
        return [row[i] for row in self.rows]


@dataclass(frozen=True)
class Encoding:
    """How columns become inputs: the values that each text column takes, None for numbers."""

    values: dict[str, list[str] | None]

    @property
    def feature_names(self) -> list[str]:
        """Names of the inputs."""
        names: list[str] = []
        for column, values in self.values.items():
            names += [column] if values is None else [f"{column}={value}" for value in values]
        return names


def read_table(path: str | os.PathLike[str]) -> Table:
    """Read a CSV file (or .csv.gz): header row, then rows of the same length."""
    path = Path(path)
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        text = io.StringIO(content.decode("utf-8-sig"), newline="")
        lines = [row for row in csv.reader(text) if row]
    except FileNotFoundError:
        raise TableError(f"There is no file {path}.") from None
    except IsADirectoryError:
        raise TableError(f"{path} is a folder, not a CSV file.") from None
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, csv.Error) as error:
        raise TableError(f"{path} cannot be read as CSV text in UTF-8: {error}.") from None
    if len(lines) < 2:
        raise TableError(f"{path} needs a header row and at least one row of data.")
    names = [name.strip() for name in lines[0]]
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise TableError(f"{path} has the column name {double[0]!r} twice: rename one.")
    for number, row in enumerate(lines[1:], start=1):
        if len(row) != len(names):
            raise TableError(
                f"{path}: row {number} has {len(row)} cells, but the header has {len(names)}: "
                "check that row for missing or extra commas."
            )
    return Table(str(path), names, [[cell.strip() for cell in row] for row in lines[1:]])


def series(table: Table, name: str) -> np.ndarray:
    """One column as a series of numbers; a missing value is NaN."""
    if name not in table.names:
        raise TableError(
            f"{table.path} has no column {name!r}; it has {', '.join(map(repr, table.names))}."
        )
    out = np.empty(len(table.rows))
    for i, cell in enumerate(table.column(name)):
        try:
            out[i] = np.nan if cell.strip().lower() in _MISSING else float(cell)
        except ValueError:
            raise TableError(
                f"Column {name!r} of {table.path} has {cell!r} in row {i + 1}: a series is numbers."
            ) from None
    return out


def split_target(table: Table, target: str) -> tuple[Table, np.ndarray]:
    """The inputs as a table, and the target as numbers."""
    require_columns(table, [target])
    y = numbers(table, target)
    i = table.names.index(target)
    rest = [name for name in table.names if name != target]
    if not rest:
        raise TableError(f"{table.path} has no column beside the target {target!r}.")
    return Table(table.path, rest, [row[:i] + row[i + 1 :] for row in table.rows]), y


def require_columns(table: Table, names: Iterable[str]) -> None:
    """Refuse a table that lacks one of the columns."""
    for name in names:
        if name not in table.names:
            raise TableError(
                f"{table.path} has no column {name!r}; its columns are {', '.join(table.names)}."
            )


def learn_encoding(table: Table) -> Encoding:
    """Which columns are numbers, and which values the text columns take."""
    values: dict[str, list[str] | None] = {}
    for name in table.names:
        cells = table.column(name)
        _refuse_missing(table, name, cells)
        if all(_is_number(cell) for cell in cells):
            values[name] = None
            continue
        kinds = sorted(set(cells))
        if len(kinds) > _MANY:
            odd = next((i, c) for i, c in enumerate(cells, 1) if not _is_number(c))
            raise TableError(
                f"{table.path}: column {name!r} is text with {len(kinds)} different values (row "
                f"{odd[0]} has {odd[1]!r}); drop it, or replace it by numbers or fewer values."
            )
        values[name] = kinds
    return Encoding(values)


def encode(table: Table, encoding: Encoding) -> np.ndarray:
    """The inputs as numbers, text columns as 0/1."""
    require_columns(table, encoding.values)
    parts = []
    for name, kinds in encoding.values.items():
        if kinds is None:
            parts.append(numbers(table, name)[:, None])
            continue
        cells = table.column(name)
        _refuse_missing(table, name, cells)
        for number, cell in enumerate(cells, start=1):
            if cell not in kinds:
                raise TableError(
                    f"{table.path}: column {name!r}, row {number} has {cell!r}, which the model "
                    f"has not seen; it knows {', '.join(kinds)}."
                )
        parts.append((np.array(cells)[:, None] == np.array(kinds)[None, :]).astype(np.float64))
    return np.hstack(parts)


def numbers(table: Table, name: str) -> np.ndarray:
    """One column as finite numbers."""
    cells = table.column(name)
    _refuse_missing(table, name, cells)
    for number, cell in enumerate(cells, start=1):
        if not _is_number(cell):
            raise TableError(
                f"{table.path}: column {name!r}, row {number} has {cell!r} where a finite number "
                "is needed."
            )
    return np.array([float(cell) for cell in cells])


def _refuse_missing(table: Table, name: str, cells: Sequence[str]) -> None:
    for number, cell in enumerate(cells, start=1):
        if cell.lower() in _MISSING:
            raise TableError(
                f"{table.path}: column {name!r}, row {number} is missing ({cell!r}). Fill it in or "
                "leave the row out: the models here take complete rows."
            )


def _is_number(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def write_output(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file that the user asked for, whole or not at all."""
    path = Path(path)
    if not path.absolute().parent.is_dir():
        raise TableError(f"There is no folder {path.parent} to write {path.name} into.")
    write_whole(path, content)


def write_table(
    path: str | os.PathLike[str], names: Sequence[str], columns: Sequence[np.ndarray]
) -> None:
    """Write columns of numbers as CSV."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows([f"{value:.10g}" for value in row] for row in zip(*columns, strict=True))
    write_output(path, text.getvalue().encode())
