"""Warnings that name the line of the user, and names that the user may have meant."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable

# Modules between a fit and the line of the user that called it.
_BETWEEN = ("sparsebayes.", "sklearn.callback.", "sklearn.base", "contextlib")


class OutsideRange(UserWarning):
    """New rows that lie outside the range of the training rows.

    Parameters
    ----------
    rows : str
        How many of how many rows.
    row, column : int
        The first of them, and an input in which it lies outside.
    name : str
        Name of that input.
    values : tuple of float
        Its value, and the ends of its range.
    risk : str
        What may be wrong there.
    """

    def __init__(
        self,
        rows: str,
        row: int,
        column: int,
        name: str,
        values: tuple[float, float, float],
        risk: str,
    ) -> None:
        value, low, high = values
        verb = "is" if rows.startswith("1 of") else "are"
        super().__init__(
            f"{rows} rows {verb} outside the range of the training rows. The first is row {row}, "
            f"which has {value:.6g} for {name} ({low:.6g} to {high:.6g} in training). The model "
            f"extrapolates there, and {risk}."
        )
        self.rows, self.row, self.column = rows, row, column
        self.values, self.risk = values, risk

    def before_scaling(self, name: str, mean: float, scale: float) -> OutsideRange:
        """Return the warning about an input of this name, which had been standardised."""
        value, low, high = (mean + scale * x for x in self.values)
        values = (value, low, high)
        return OutsideRange(self.rows, self.row, self.column, repr(name), values, self.risk)


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn with the line outside this package that called, however deep we are."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_BETWEEN):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def suggestion(name: str, choices: Iterable[str]) -> str:
    """Return a question that suggests the closest choice; an empty string if none is close.

    Examples
    --------
    >>> from sparsebayes._warn import suggestion
    >>> suggestion("gama", ["gamma", "kernel"])
    " (did you mean 'gamma'?)"
    """
    close = difflib.get_close_matches(name, list(choices), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
