"""Where a Display draws, and how wide."""

from __future__ import annotations

from typing import Any, Self

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


def rows_like(values: Any, X: Any) -> Any:
    """Rows of numbers with the names of the columns of X, where it is a pandas frame."""
    return type(X)(values, columns=X.columns) if hasattr(X, "iloc") else values


class SingleDisplay:
    """A Display on one axes; a subclass says what is drawn there."""

    def plot(self, ax: Any = None) -> Self:
        """Draw; returns self.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; a new figure by default.
        """
        ax = axes_or_new(ax)
        self._draw(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw(self, ax: Any) -> None:
        raise NotImplementedError
