"""Error and number of functions over the time of a partitioned fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._axes import axes_or_new


class PartitionDisplay:
    """How a partitioned fit came along: training error and relevance vectors over time.

    As in figure 2 of Ben-Shimon & Shmilovici: where the error has settled long before the end, the
    fit could have been stopped there (`max_time`, a callback, or an interrupt).

    Parameters
    ----------
    elapsed : array of shape (n_runs,)
        Seconds from the start of the fit to the end of each run.
    error : array of shape (n_runs,)
        Error of each run.
    n_active : array of shape (n_runs,)
        Relevance vectors left by each run.
    error_name : str, default="training RMSE"
        Label of the error axis.
    name : str, optional
        Label of the curves; give several displays the same `ax` to compare them.

    Attributes
    ----------
    ax_, figure_, error_line_, active_line_
        What `plot` drew; ``ax_`` is a pair of axes, the error above and the number below.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.displays._partition import PartitionDisplay
    >>> from sparsebayes import PartitionedRVMRegressor
    >>> X = np.linspace(-5, 5, 90)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(90)
    >>> model = PartitionedRVMRegressor(partition_size=30).fit(X, y)
    >>> display = PartitionDisplay.from_estimator(model)
    >>> [ax.get_ylabel() for ax in display.ax_]
    ['training RMSE', 'relevance vectors']
    """

    def __init__(
        self,
        elapsed: Any,
        error: Any,
        n_active: Any,
        error_name: str = "training RMSE",
        name: str | None = None,
    ) -> None:
        self.elapsed = np.asarray(elapsed)
        self.error = np.asarray(error)
        self.n_active = np.asarray(n_active)
        self.error_name = error_name
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, name: str | None = None, ax: Any = None
    ) -> PartitionDisplay:
        """Draw the history of a fitted partitioned estimator.

        Parameters
        ----------
        estimator : fitted PartitionedRVMRegressor or PartitionedRVMClassifier
            The model that is asked.
        name : str, optional
            Label of the curves; the schedule by default.
        ax : pair of matplotlib axes, optional
            Where to draw; a new figure by default.
        """
        history = estimator.history_
        errors = [key for key in _ERRORS if key in history]
        if "elapsed" not in history or not errors:
            raise ValueError(
                f"The history_ of this {type(estimator).__name__} has no runs over time: "
                "PartitionDisplay shows partitioned estimators."
            )
        label = estimator.schedule if name is None else name
        return cls(
            history["elapsed"],
            history[errors[0]],
            history["n_active"],
            _ERRORS[errors[0]],
            label,
        ).plot(ax=ax)

    def plot(self, ax: Any = None) -> PartitionDisplay:
        """Draw; returns self.

        Parameters
        ----------
        ax : pair of matplotlib axes, optional
            Where to draw; a new figure by default.
        """
        if ax is None:
            ax = axes_or_new(None, nrows=2, sharex=True)
        above, below = ax
        style = {"marker": "o", "markersize": 3, "label": self.name}
        (self.error_line_,) = above.plot(self.elapsed, self.error, **style)
        (self.active_line_,) = below.plot(self.elapsed, self.n_active, **style)
        above.set_ylabel(self.error_name)
        below.set(xlabel="seconds", ylabel="relevance vectors")
        below.set_ylim(bottom=0)
        below.yaxis.get_major_locator().set_params(integer=True)
        if self.name is not None:
            above.legend(fontsize="small", frameon=False)
        self.ax_, self.figure_ = ax, above.figure
        return self


_ERRORS = {"rmse": "training RMSE", "error_rate": "training error rate"}
