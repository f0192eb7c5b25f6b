"""Read the dates of a table, whose day and month may be in either order."""

from __future__ import annotations

import copy
import re
import warnings
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import BaseEstimator

if TYPE_CHECKING:
    import pandas as pd

_DOTTED_DATE = re.compile(r"\d{1,2}\.\d{1,2}\.\d{4}.*")
_YEAR_FIRST = re.compile(r"\d{4}.*")
_DATES_READ = 30  # texts of which the format is guessed


def are_dates(present: pd.Series) -> bool:
    """Return whether all of these values are dates, which have digits."""
    if not all(any(map(str.isdigit, str(value))) for value in present.iloc[:10]):
        return False
    return date_parser(present) is not None


def date_parser(present: pd.Series) -> BaseEstimator | None:
    """Return a reader of all of these values as dates; None if there is none."""
    from skrub import ToDatetime  # takes two seconds to import

    is_text = all(isinstance(value, str) for value in present)
    for form in date_formats(present, day_first=False) if is_text else [None]:
        try:
            return ToDatetime(format=form).fit(present.rename("date"))
        except ValueError:
            continue
    return None


def date_formats(texts: pd.Series, day_first: bool) -> list[str]:
    """Return formats of dates that some of these texts have, those of the given order first."""
    from pandas.tseries.api import guess_datetime_format

    formats = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of days that may be months
        for order in (day_first, not day_first):
            for text in map(str, texts.iloc[:: max(1, len(texts) // _DATES_READ)]):
                days = _DOTTED_DATE.match(text) or (order and not _YEAR_FIRST.match(text))
                formats.append(guess_datetime_format(text, dayfirst=bool(days)))
    return [form for form in dict.fromkeys(formats) if form]


def is_day_first(form: str | None) -> bool | None:
    """Return whether a format has the day before the month; None if it has no such order."""
    if form is None or form.startswith("%Y") or not ("%d" in form and "%m" in form):
        return None
    return form.index("%d") < form.index("%m")


def read_times(column: pd.Series, parser: BaseEstimator, form: str | None) -> pd.Series:
    """Return a column as times in a format or, where that is not possible, in ISO 8601."""
    import pandas as pd

    reader = copy.copy(parser)
    reader.format_ = form
    times = reader.transform(column.rename("date"))
    lost = np.flatnonzero(times.isna() & column.notna())
    if len(lost) == 0:
        return times
    iso = pd.to_datetime(column.iloc[lost].astype(str), format="ISO8601", errors="coerce", utc=True)
    times = times.copy()
    times.iloc[lost] = iso.dt.tz_convert(times.dt.tz).astype(times.dtype)
    return times


def order_note(present: pd.Series, parser: BaseEstimator, form: str | None) -> str:
    """Return a sentence on dates in which the day could be the month, or nothing.

    Dotted dates are day first, and thus not ambiguous.
    """
    day_first = is_day_first(form)
    if day_first is None or "%d." in str(form):
        return ""
    swapped = str(form).replace("%d", "%D").replace("%m", "%d").replace("%D", "%m")
    if (
        read_times(present, parser, swapped).isna().sum()
        > read_times(present, parser, form).isna().sum()
    ):
        return ""
    return (
        f"Dates in column {present.name!r}, such as {present.iloc[0]!r}, are read "
        f"{'day' if day_first else 'month'} first, but all of them could be read in the other "
        "order. Pass datetimes, or text as year-month-day."
    )
