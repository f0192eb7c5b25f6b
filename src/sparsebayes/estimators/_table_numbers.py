"""Read the numbers of a table that are text, and notice those that stand for missing values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

_AMOUNT = re.compile(r"[-+]?[$€£¥₹]?\s?[-+]?\d[\d.,'\s]*[$€£¥₹%]?")
_FORMATTED = re.compile(
    r"(?P<sign>[-+]?)(?P<currency>[$€£]?)\s?(?P<inner_sign>[-+]?)"
    r"(?P<whole>[1-9]\d{0,2}(,\d{3})+|\d+)(?P<decimals>(\.\d+)?)\s?(?P<percent>%?)"
)
ALL_MARKS = ",$€£%"  # of `number_marks`
CODE = re.compile(r"0\d+")
_SENTINEL = re.compile(r"-9|-?99+")


def are_digits(present: pd.Series) -> bool:
    """Return whether all of these values are text of digits only."""
    return all(isinstance(value, str) and value.strip().isdecimal() for value in present.unique())


def advice_on_amounts(present: pd.Series) -> str:
    """Return what to do about text that is numbers as people write them, like € 3,552."""
    if not all(map(_AMOUNT.fullmatch, present.astype(str).str.strip().iloc[:1000])):
        return ""
    return ", but looks numeric: remove currency signs and thousands separators"


def number_marks(present: pd.Series) -> str | None:
    """Return the characters to drop from text so that it is numbers; None if it is none.

    They are commas between groups of three digits, and a currency sign or a percent sign that all
    values have.

    Examples
    --------
    >>> import pandas as pd
    >>> from sparsebayes.estimators._table_numbers import number_marks
    >>> number_marks(pd.Series(["$950", "$-1,200.50"])), number_marks(pd.Series(["1.5", "2"]))
    (',$', '')
    """
    import pandas as pd

    if np.all(pd.to_numeric(present, errors="coerce").notna()):
        return ""
    units, wholes = set(), set()
    for value in present.unique():
        match = _FORMATTED.fullmatch(str(value).strip())
        if match is None:
            return None
        units.add(match["currency"] + match["percent"])
        wholes.add(match["whole"])
    grouped = any("," in whole for whole in wholes)
    if len(units) > 1 or (grouped and any(len(w) > 3 and "," not in w for w in wholes)):
        return None
    marks = "," * grouped + units.pop()
    return marks if np.all(np.isfinite(read_numbers(present, marks))) else None


def read_numbers(column: pd.Series, marks: str = "") -> np.ndarray:
    """Return text as float64 without the characters of `number_marks`; other text is NaN."""
    import pandas as pd

    def without_marks(value: object) -> object:
        match = _FORMATTED.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None or any(c in match[0] and c not in marks for c in ALL_MARKS):
            return value
        whole = match["whole"].replace(",", "")
        return match["sign"] + match["inner_sign"] + whole + match["decimals"]

    if marks:
        column = column.astype(object).map(without_marks)
    return pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)


def marks_note(marks: str) -> str:
    """Return how text with the characters of `number_marks` was read, for a sentence."""
    parts = ["with ',' as thousands separator"] if "," in marks else []
    parts += [f"without {unit!r}" for unit in marks.replace(",", "")]
    return f"text, read as numbers {' and '.join(parts)}"


def read_floats(column: pd.Series, marks: str = "") -> np.ndarray:
    """Return a column as float64; what is no number is NaN."""
    import pandas as pd

    if pd.api.types.is_timedelta64_dtype(column):
        column = column.dt.total_seconds()
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    return read_numbers(column, marks)


def find_sentinel(finite: np.ndarray) -> tuple[float, int] | None:
    """Return a value like -999 that is far outside all others, and how often it occurs.

    One of fewer than three digits counts where it is repeated.
    """
    for value in (finite.min(), finite.max()):
        text = f"{value:.17g}"
        if not _SENTINEL.fullmatch(text):
            continue
        others = finite[finite != value]
        n = len(finite) - len(others)
        often = n > 1 or "999" in text
        if often and len(others) and np.min(np.abs(others - value)) > np.ptp(others):
            return float(value), n
    return None


def sentinel_note(what: str, value: float, n: int, remedy: str) -> str:
    """Return a sentence on a value of `find_sentinel`."""
    rows = "1 row" if n == 1 else f"{n:,} rows"
    return (
        f"{what} is {value:g} in {rows}, far from its other values. If that stands for a missing "
        f"value, {remedy}."
    )
