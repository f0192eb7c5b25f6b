"""Read CSV and parquet files as pandas DataFrames, for the command line.

Encoding, separator and decimal comma are inferred from the content; `Table.notes` reports those
that are not the usual ones. A file that cannot be read raises a `TableError` with one sentence.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .._warn import suggestion

_SEPARATORS = (",", ";", "\t", "|", ":", "^", "~")
_NAMED = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_SNIFFED = 200  # records from which the separator is inferred
_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
_POINT = re.compile(r"[+-]?\d+\.\d+([eE][+-]?\d+)?")


class TableError(ValueError):
    """Error of a table that cannot be used; the message names the place and the remedy."""


@dataclass
class Table:
    """A data frame, the file that it was read from, and notes on how it was read.

    `source` is Python code that makes the frame, if it is not in a file.
    """

    path: str
    frame: Any
    notes: list[str] = field(default_factory=list)
    source: str = ""

    def require(self, names: Sequence[str]) -> None:
        """Raise a TableError if one of the columns does not exist."""
        columns = list(self.frame.columns)
        for name in names:
            if name not in columns:
                shown = ", ".join(map(repr, columns[:20])) + (", ..." if len(columns) > 20 else "")
                many = "its columns are" if len(columns) > 1 else "it has one column,"
                close = suggestion(name, map(str, columns))
                raise TableError(f"{self.path} has no column {name!r}{close}; {many} {shown}.")

    def series(self, name: str) -> np.ndarray:
        """Return one column as numbers, missing values as NaN."""
        import pandas as pd

        self.require([name])
        column = self.frame[name]
        numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
        bad = np.flatnonzero(np.isnan(numbers) & column.notna().to_numpy())
        if len(bad):
            raise TableError(
                f"Column {name!r} of {self.path} must be numeric, but row {bad[0] + 1} has "
                f"{column.iloc[bad[0]]!r}."
            )
        return numbers


def read_table(path: str | os.PathLike[str]) -> Table:
    """Read a CSV file with any separator and encoding, gzipped or not, or a parquet file.

    ``-`` is standard input. If all cells of the first row are numbers, the file has no header, and
    its columns are named 1, 2, ...
    """
    shown = "standard input" if str(path) == "-" else str(path)
    content = _read_bytes(path, shown)
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError) as error:
            raise TableError(f"{shown} is a damaged gz file: {error}.") from None
    if content[:4] == b"PAR1":
        return _read_parquet(content, shown)
    notes: list[str] = []
    text = _decode(content, shown, notes)
    if not text.strip():
        raise TableError(f"{shown} is empty; it needs a header row and at least one row of data.")
    separator = _separator(text)
    if separator != ",":
        notes.append(f"separator: {_NAMED.get(separator, repr(separator))}")
    return _parse(text, separator, shown, notes)


def _read_bytes(path: str | os.PathLike[str], shown: str) -> bytes:
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise TableError(f"The file {shown} does not exist.") from None
    except IsADirectoryError:
        raise TableError(f"{shown} is a folder, not a CSV or parquet file.") from None


def _read_parquet(content: bytes, shown: str) -> Table:
    import pandas as pd

    from .._extras import require

    require("cli", "Reading parquet", "pyarrow")
    try:
        frame = pd.read_parquet(io.BytesIO(content))
    except Exception as error:  # pyarrow has many of its own
        raise TableError(f"{shown} cannot be read as parquet: {error}.") from None
    frame.columns = [str(name) for name in frame.columns]
    return Table(shown, frame)


def _decode(content: bytes, shown: str, notes: list[str]) -> str:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            text = content.decode("utf-16")
            notes.append("encoding: UTF-16")
            return text
        except UnicodeDecodeError:
            raise TableError(f"{shown} cannot be read as a table: the file is not text.") from None
    if b"\0" in content:
        raise TableError(
            f"{shown} cannot be read as a table: the file is neither text nor parquet."
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        notes.append("encoding: not UTF-8, read as Windows-1252")
        return content.decode("cp1252", errors="replace")


def _records(text: str, separator: str, most: int | None = None) -> Any:
    """Yield rows as lists of cells, without empty lines."""
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    done = 0
    for row in lines:
        if row:
            yield lines.line_num, row
            done += 1
            if done == most:
                return


def _separator(text: str) -> str:
    """Return the separator that cuts the first records into the most cells of equal number."""
    best, most = ",", (0.0, 1)
    head = text[: 1 << 20]
    for separator in _SEPARATORS:
        try:
            lengths = [len(row) for _, row in _records(head, separator, _SNIFFED)]
        except csv.Error:
            continue
        if len(lengths) < 2 or lengths[0] < 2:
            continue
        alike = np.mean(np.array(lengths) == lengths[0])
        # Decimal commas cut rows into uneven cells: evenness counts before the number of cells.
        score = (round(float(alike), 1), lengths[0])
        if score > most:
            best, most = separator, score
    return best


def _parse(text: str, separator: str, shown: str, notes: list[str]) -> Table:
    import pandas as pd

    from ..estimators._table_inputs import MISSING_TEXT

    csv.field_size_limit(1 << 30)
    try:
        header, sample, n_rows = _check_lengths(text, separator, shown)
    except csv.Error as error:
        raise TableError(f"{shown} cannot be read as CSV: {error}.") from None
    named = not all(_is_number(cell) for cell in header)
    if named and n_rows == 0:
        raise TableError(f"{shown} has a header row, but no rows of data.")
    names = [name.strip() for name in header]
    if not named:
        names = [str(j) for j in range(1, len(header) + 1)]
        notes.append("no header row: columns are named 1, 2, ...")
    names = _different(names, notes)
    comma = separator != "," and _has_decimal_comma(sample)
    if comma:
        notes.append("decimal comma")
    try:
        frame = pd.read_csv(
            io.StringIO(text),
            sep=separator,
            decimal="," if comma else ".",
            header=0 if named else None,
            names=names,
            dtype={names[j]: str for j in _code_columns(text, separator, named)},
            skipinitialspace=True,
            na_values=list(MISSING_TEXT),
            index_col=False,
            low_memory=False,
        )
    except (pd.errors.ParserError, ValueError) as error:
        raise TableError(f"{shown} cannot be read as CSV: {error}.") from None
    for name, kind in frame.dtypes.items():
        if not (pd.api.types.is_object_dtype(kind) or isinstance(kind, pd.StringDtype)):
            continue
        frame[name] = frame[name].map(lambda v: v.strip() if isinstance(v, str) else v)
    return Table(shown, frame, notes)


def _check_lengths(text: str, separator: str, shown: str) -> tuple[list[str], list[list[str]], int]:
    """Return the header, some rows and the number of rows; refuse rows of unequal length."""
    records = _records(text, separator)
    _, header = next(records)
    sample: list[list[str]] = []
    n_rows = 0
    for line, row in records:
        n_rows += 1
        if len(row) != len(header):
            raise TableError(
                f"{shown}: row {n_rows} (line {line}) has {len(row)} cells, but the header "
                f"has {len(header)}. Check that row for missing or extra separators and "
                "quotes."
            )
        if n_rows <= _SNIFFED:
            sample.append(row)
    return header, sample, n_rows


def _code_columns(text: str, separator: str, named: bool) -> set[int]:
    """Return the columns of digits only of which some have leading zeros, such as zip codes."""
    from ..estimators._table_inputs import MISSING_TEXT
    from ..estimators._table_numbers import CODE

    start = rf'(?<![^"\s{re.escape(separator)}]0\d)'  # behind the zero, which is fast to search
    if not re.search(rf"0\d{start}", text):
        return set()
    codes: set[int] = set()
    others: set[int] = set()
    for _, row in itertools.islice(_records(text, separator), int(named), None):
        for j, cell in enumerate(row):
            value = cell.strip()
            if CODE.fullmatch(value):
                codes.add(j)
            elif not value.isdecimal() and value not in MISSING_TEXT:
                others.add(j)
    return codes - others


def _different(names: list[str], notes: list[str]) -> list[str]:
    """Return distinct names: a second x is named x.1."""
    distinct: dict[str, None] = {}
    for j, name in enumerate(names):
        name = name or f"Unnamed: {j}"
        new, k = name, 0
        while new in distinct:
            k += 1
            new = f"{name}.{k}"
        if new != name:
            notes.append(f"duplicate column name {name!r}: renamed {new!r}")
        distinct[new] = None
    return list(distinct)


def _has_decimal_comma(rows: list[list[str]]) -> bool:
    cells = [cell.strip() for row in rows for cell in row]
    commas = sum(bool(_COMMA.fullmatch(cell)) for cell in cells)
    return commas > sum(bool(_POINT.fullmatch(cell)) for cell in cells)


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "."))
        return True
    except ValueError:
        return False
