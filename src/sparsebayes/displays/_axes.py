"""Where a Display draws, and how wide."""

from __future__ import annotations

from typing import Any

WIDTH_95 = 1.959963984540054  # of a central 95 % interval, in standard deviations


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
