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
        verb = "is" if rows.startswith("1 of") else "are"
        super().__init__(self._sentence(f"{rows} rows {verb}", row, name, values, risk))
        self.rows, self.row, self.column = rows, row, column
        self.values, self.risk = values, risk

    def before_scaling(self, name: str, mean: float, scale: float) -> OutsideRange:
        """Return the warning about an input of this name, which had been standardised."""
        value, low, high = (mean + scale * x for x in self.values)
        values = (value, low, high)
        return type(self)(self.rows, self.row, self.column, repr(name), values, self.risk)

    @staticmethod
    def _sentence(
        rows_are: str, row: int, name: str, values: tuple[float, float, float], risk: str
    ) -> str:
        value, low, high = values
        return (
            f"{rows_are} outside the range of the training rows. The first is row {row}, "
            f"which has {value:.6g} for {name} ({low:.6g} to {high:.6g} in training). The model "
            f"extrapolates there, and {risk}."
        )


class InsideGap(OutsideRange):
    """New rows that lie in a gap between the training rows; `values` has the ends of the gap."""

    @staticmethod
    def _sentence(
        rows_are: str, row: int, name: str, values: tuple[float, float, float], risk: str
    ) -> str:
        value, low, high = values
        return (
            f"{rows_are} in a gap between the training rows. The first is row {row}, which has "
            f"{value:.6g} for {name} (no training row is between {low:.6g} and {high:.6g}). The "
            f"model interpolates over the gap, and {risk}."
        )


class NewValues(UserWarning):
    """New rows with other values of an input whose values have an effect of their own.

    Parameters
    ----------
    rows : str
        How many of how many rows.
    column : int
        The input.
    name : str
        Its name.
    ratio : float
        Standard deviation of the effect over that of the noise.
    """

    def __init__(self, rows: str, column: int, name: str, ratio: float) -> None:
        verb = "has" if rows.startswith("1 of") else "have"
        super().__init__(
            f"{rows} rows {verb} a value of {name} that no training row has. Training rows with "
            f"the same value share an effect of about {ratio:.1f} standard deviations of the "
            "noise, which is unknown for other values: the intervals are too narrow there. Those "
            "of a model without this input include the effect."
        )
        self.rows, self.column, self.ratio = rows, column, ratio

    def before_scaling(self, name: str, mean: float, scale: float) -> NewValues:
        """Return the warning about an input of this name, which had been standardised."""
        return NewValues(self.rows, self.column, repr(name), self.ratio)


class NewCombination(UserWarning):
    """New rows whose inputs are each in range, but combined as in no training row.

    Parameters
    ----------
    rows : str
        How many of how many rows.
    row, column : int
        The first of them, and an input that does not go with the others.
    name : str
        Name of that input.
    values : tuple of float
        Its value, and what it is in training rows with such other inputs.
    risk : str
        What may be wrong there.
    """

    def __init__(
        self, rows: str, row: int, column: int, name: str, values: tuple[float, float], risk: str
    ) -> None:
        verb = "has" if rows.startswith("1 of") else "have"
        super().__init__(
            f"{rows} rows {verb} a combination of inputs that is far from all training rows, "
            f"although each value is in range. The first is row {row}, which has "
            f"{values[0]:.6g} for {name}, where training rows with its other inputs have about "
            f"{values[1]:.6g}. The model extrapolates there, and {risk}."
        )
        self.rows, self.row, self.column = rows, row, column
        self.values, self.risk = values, risk

    def before_scaling(self, name: str, mean: float, scale: float) -> NewCombination:
        """Return the warning about an input of this name, which had been standardised."""
        values = (mean + scale * self.values[0], mean + scale * self.values[1])
        return NewCombination(self.rows, self.row, self.column, repr(name), values, self.risk)


class SmallWeights(UserWarning):
    """Sample weights that make many rows count as few observations.

    Parameters
    ----------
    total : float
        Sum of the weights.
    n_rows : int
        Number of rows with a positive weight.
    """

    def __init__(self, total: float, n_rows: int) -> None:
        super().__init__(
            f"sample_weight sums to {total:.3g} for {n_rows:,} rows, so the model treats them as "
            f"{total:.3g} observations. If the weights are relative, such as inverse variances, "
            "scale them to sum to the number of rows."
        )


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
