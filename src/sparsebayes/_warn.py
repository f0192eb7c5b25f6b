"""Warnings that name the line of the user."""

from __future__ import annotations

import sys
import warnings

# Modules between a fit and the line of the user that called it.
_BETWEEN = ("sparsebayes.", "sklearn.callback.", "sklearn.base", "contextlib")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn with the line outside this package that called, however deep we are."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_BETWEEN):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
