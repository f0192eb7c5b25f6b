"""Warnings that name the line of the user, and names that the user may have meant."""

from __future__ import annotations

import difflib
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

# Modules between a fit and the line of the user that called it.
_BETWEEN = ("sparsebayes.", "sklearn.callback.", "sklearn.base", "contextlib")


class Found(NamedTuple):
    """Rows that are unlike the training rows in one way.

    `column` is an input that shows it in the first of them, `row`, and `values` are what its
    warning says about this input.
    """

    n_rows: int
    row: int
    column: int
    values: tuple[float, ...]


class UnlikeRows(UserWarning, ABC):
    """A warning of new rows that are unlike the training rows.

    Parameters
    ----------
    found : Found
        The rows.
    n_total : int or None
        Number of new rows; None for rows in blocks, which do not know of each other. All blocks
        then give the same warning, which Python shows once.
    name : str
        Name of the input `found.column`.
    risk : str
        What may be wrong in these rows.
    """

    _verbs = ("is", "are")

    def __init__(self, found: Found, n_total: int | None, name: str, risk: str) -> None:
        one, several = self._verbs
        what, first, training, consequence = self._sentences(name, found.values, risk)
        if n_total is None:
            rows = f"Some rows {several} {what}{training}."
        else:
            verb = one if found.n_rows == 1 else several
            rows = f"{found.n_rows} of {n_total} rows {verb} {what}."
            rows += f" The first is row {found.row}, which has {first}." if first else ""
        super().__init__(f"{rows} {consequence}")
        self.found, self.n_total, self.name, self.risk = found, n_total, name, risk

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.found, self.n_total, self.name, self.risk)

    @abstractmethod
    def _sentences(
        self, name: str, values: tuple[float, ...], risk: str
    ) -> tuple[str, str, str, str]:
        """Return what the rows are, what the first has, what training rows have, and the risk."""

    def before_scaling(self, name: str, mean: float, scale: float) -> UnlikeRows:
        """Return the warning about an input of this name, which had been standardised."""
        values = tuple(mean + scale * value for value in self.found.values)
        return type(self)(self.found._replace(values=values), self.n_total, repr(name), self.risk)

    def in_blocks(self, names: Sequence[str] | None) -> UnlikeRows:
        """Return the warning of rows in blocks that do not know of each other.

        `names` are those of all inputs, which a block need not have.
        """
        name = self.name if names is None else repr(names[self.found.column])
        return type(self)(self.found, None, name, self.risk)


class OutsideRange(UnlikeRows):
    """New rows outside the range of an input; values are the new one and the ends of the range."""

    def _sentences(
        self, name: str, values: tuple[float, ...], risk: str
    ) -> tuple[str, str, str, str]:
        value, low, high = values
        return (
            "outside the range of the training rows",
            f"{value:.6g} for {name} ({low:.6g} to {high:.6g} in training)",
            f", in which {name} is {low:.6g} to {high:.6g}",
            f"The model extrapolates there, and {risk}.",
        )


class InsideGap(UnlikeRows):
    """New rows in a gap between the training rows; values are the new one and the ends of it."""

    def _sentences(
        self, name: str, values: tuple[float, ...], risk: str
    ) -> tuple[str, str, str, str]:
        value, low, high = values
        return (
            "in a gap between the training rows",
            f"{value:.6g} for {name} (no training row is between {low:.6g} and {high:.6g})",
            f", of which none has {name} between {low:.6g} and {high:.6g}",
            f"The model interpolates over the gap, and {risk}.",
        )


class NewCombination(UnlikeRows):
    """New rows whose inputs are each in range, but combined as in no training row.

    The values are that of an input that does not go with the others, and what it is in training
    rows with such other inputs.
    """

    _verbs = ("has", "have")

    def _sentences(
        self, name: str, values: tuple[float, ...], risk: str
    ) -> tuple[str, str, str, str]:
        value, expected = values
        return (
            "a combination of inputs that is far from all training rows, although each value is in "
            "range",
            f"{value:.6g} for {name}, where training rows with its other inputs have about "
            f"{expected:.6g}",
            f": {name} does not go with the other inputs",
            f"The model extrapolates there, and {risk}.",
        )


class NewValues(UnlikeRows):
    """New rows with other values of an input whose values have an effect of their own.

    The value is the standard deviation of the effect over that of the noise.
    """

    _verbs = ("has", "have")

    def _sentences(
        self, name: str, values: tuple[float, ...], risk: str
    ) -> tuple[str, str, str, str]:
        return (
            f"a value of {name} that no training row has",
            "",
            "",
            "Training rows with the same value share an effect of about "
            f"{values[0]:.1f} standard deviations of the noise, which is unknown for other values: "
            "the intervals are too narrow there. Those of a model without this input include the "
            "effect.",
        )

    def before_scaling(self, name: str, mean: float, scale: float) -> UnlikeRows:
        """Return the warning about an input of this name, which had been standardised."""
        return NewValues(self.found, self.n_total, repr(name), self.risk)


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


_BLOCKS: ContextVar[tuple[Sequence[str] | None] | None] = ContextVar("blocks", default=None)


@contextmanager
def block_of_rows(names: Sequence[str] | None) -> Iterator[None]:
    """Warn of rows as of one block of several that do not know of each other.

    `names` are those of the inputs. On a worker of a Dask cluster the clients receive the warnings
    as well.
    """
    token = _BLOCKS.set((names,))
    try:
        yield
    finally:
        _BLOCKS.reset(token)


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn with the line outside this package that called, however deep we are."""
    if isinstance(message, UnlikeRows) and (block := _BLOCKS.get()) is not None:
        message = message.in_blocks(*block)
        if "distributed.worker" in sys.modules:
            sys.modules["distributed.worker"].warn(message)
            return
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
