"""Warnings that name the line of the user, and names that the user may have meant."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable

# Modules between a fit and the line of the user that called it.
_BETWEEN = ("sparsebayes.", "sklearn.callback.", "sklearn.base", "contextlib")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
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
