"""Where a Display draws."""

from __future__ import annotations

from typing import Any


def axes_or_new(ax: Any, **figure: Any) -> Any:
    """The axes given, or those of a new figure."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "Displays need matplotlib: install it with `pip install sparsebayes[plot]`."
        ) from error
    return plt.subplots(layout="constrained", **figure)[1]  # labels stay inside the figure
