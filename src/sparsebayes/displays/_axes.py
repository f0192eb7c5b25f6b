"""Axes of the Displays, and the width of their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

WIDTH_95 = 1.959963984540054  # of a central 95 % interval, in standard deviations


def axes_or_new(ax: Axes | None, **figure: Any) -> Axes:
    """Return the given axes, or those of a new figure with one subplot."""
    return new_axes(squeeze=False, **figure)[0, 0] if ax is None else ax


def new_axes(**figure: Any) -> np.ndarray:
    """Return the array of axes that ``matplotlib.pyplot.subplots`` makes with these arguments."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "Displays require matplotlib: pip install 'sparsebayes[plot]'."
        ) from error
    return plt.subplots(layout="constrained", **figure)[1]  # labels stay inside the figure


def rows_like(values: np.ndarray, X: ArrayLike) -> ArrayLike:
    """Return `values`, as a frame with the columns of X where X is a pandas frame."""
    frame = type(X)
    return frame(values, columns=X.columns) if hasattr(X, "iloc") else values  # type: ignore


class SingleDisplay:
    """Base of Displays with one axes."""

    ax_: Axes
    figure_: Figure | SubFigure

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the plot and return self.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        """
        ax = axes_or_new(ax)
        self._draw(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw(self, ax: Axes) -> None:
        raise NotImplementedError
