"""Displays of the progress of a fit: evidence by step, error reduction by term, error over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ._axes import SingleDisplay, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from sklearn.base import BaseEstimator

_ERRORS = {"rmse": "training RMSE", "error_rate": "training error rate"}


class EvidencePathDisplay(SingleDisplay):
    """Log evidence and number of active terms over the steps of a fit.

    Parameters
    ----------
    log_evidence : array of shape (n_steps,)
        Log evidence after each step.
    n_active : array of shape (n_steps,)
        Number of functions after each step.
    name : str, optional
        Title of the plot.

    Attributes
    ----------
    ax_, figure_, evidence_line_, active_line_
        Axes and artists of the plot.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVMRegressor
    >>> from sparsebayes.displays import EvidencePathDisplay
    >>> X = np.linspace(-5, 5, 40)[:, None]
    >>> model = RVMRegressor().fit(X, np.sinc(X[:, 0]))
    >>> display = EvidencePathDisplay.from_estimator(model)
    >>> display.ax_.get_xlabel()
    'step'
    """

    def __init__(
        self, log_evidence: ArrayLike, n_active: ArrayLike, name: str | None = None
    ) -> None:
        self.log_evidence = np.asarray(log_evidence)
        self.n_active = np.asarray(n_active)
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator: BaseEstimator, *, ax: Axes | None = None
    ) -> EvidencePathDisplay:
        """Draw the path of a fitted estimator.

        Parameters
        ----------
        estimator : fitted model
            Fitted model.
        ax : matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        """
        history = estimator.history_
        missing = {"log_evidence", "n_active"} - set(history)
        if missing:
            raise ValueError(
                f"The history_ of this {type(estimator).__name__} has no "
                f"{' or '.join(missing)}, so there is no evidence path to plot."
            )
        name = type(estimator).__name__
        return cls(history["log_evidence"], history["n_active"], name).plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        steps = np.arange(1, len(self.log_evidence) + 1)
        (self.evidence_line_,) = ax.plot(steps, self.log_evidence, color="C0")
        # A few first steps from a poor start would flatten the rest of the curve.
        finite = self.log_evidence[np.isfinite(self.log_evidence)]
        if len(finite) > 10:
            low, high = np.quantile(finite, 0.1), finite.max()
            ax.set_ylim(low - 0.1 * (high - low) - 1e-9, high + 0.05 * (high - low) + 1e-9)
        ax.set(xlabel="step", ylabel="log evidence (nats)", title=self.name)
        ax.yaxis.label.set_color("C0")
        other = ax.twinx()
        (self.active_line_,) = other.plot(steps, self.n_active, color="C1", alpha=0.8)
        other.set_ylabel("active terms", color="C1")
        other.set_ylim(bottom=0)
        other.locator_params(axis="y", integer=True)


class ErrorReductionDisplay(SingleDisplay):
    """Error reduction ratio of each term, and the unexplained share, on a log scale.

    Parameters
    ----------
    term : array of str of shape (n_terms,)
        Names of the terms, in order of selection.
    err : array of shape (n_terms,)
        Share of the target's sum of squares that each term explains.
    name : str, optional
        Title of the plot.

    Attributes
    ----------
    ax_, figure_, bars_, left_line_
        Axes and artists of the plot.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.displays import ErrorReductionDisplay
    >>> from sparsebayes import OrthogonalLeastSquaresRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((60, 4))
    >>> y = X @ [2.0, 0.0, 1.0, 0.0] + 0.1 * rng.standard_normal(60)
    >>> model = OrthogonalLeastSquaresRegressor(kernel=None).fit(X, y)
    >>> display = ErrorReductionDisplay.from_estimator(model)
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['x0', 'x2']
    """

    def __init__(self, term: ArrayLike, err: ArrayLike, name: str | None = None) -> None:
        self.term = np.asarray(term)
        self.err = np.asarray(err)
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator: BaseEstimator, *, ax: Axes | None = None
    ) -> ErrorReductionDisplay:
        """Draw the table of a fitted estimator.

        Parameters
        ----------
        estimator : fitted model
            Fitted model.
        ax : matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        """
        table = getattr(estimator, "err_table_", None) or getattr(estimator, "terms_", None)
        if table is None:
            raise ValueError(
                f"This {type(estimator).__name__} has no err_table_. Pass a fitted "
                "OrthogonalLeastSquaresRegressor or NARXRegressor."
            )
        return cls(table.term, table.err, type(estimator).__name__).plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        place = np.arange(len(self.err))
        self.bars_ = ax.barh(place, self.err, color="C0", label="explained by the term")
        unexplained = 1.0 - np.cumsum(self.err)
        (self.left_line_,) = ax.plot(
            unexplained, place, "o-", color="C1", label="unexplained after it"
        )
        if np.any(self.err > 0.0):
            ax.set_xscale("log")
        ax.set_yticks(place, self.term)
        ax.invert_yaxis()
        ax.set(xlabel="share of the sum of squares", ylabel="term", title=self.name)
        ax.legend()


class PartitionDisplay:
    """Training error and number of relevance vectors of a partitioned fit over time.

    This is figure 2 of Ben-Shimon & Shmilovici. If the error is constant long before the end, the
    fit could have been stopped earlier (`max_time`, a callback, or an interrupt).

    Parameters
    ----------
    elapsed : array of shape (n_runs,)
        Seconds from the start of the fit to the end of each run.
    error : array of shape (n_runs,)
        Error of each run.
    n_active : array of shape (n_runs,)
        Number of relevance vectors after each run.
    error_name : str, default="training RMSE"
        Label of the error axis.
    name : str, optional
        Label of the curves. Draw several displays on the same `ax` to compare them.

    Attributes
    ----------
    ax_, figure_, error_line_, active_line_
        Axes and artists of the plot; ``ax_`` is a pair of axes, the error above and the number
        below.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.displays import PartitionDisplay
    >>> from sparsebayes import PartitionedRVMRegressor
    >>> X = np.linspace(-5, 5, 90)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(90)
    >>> model = PartitionedRVMRegressor(partition_size=30).fit(X, y)
    >>> display = PartitionDisplay.from_estimator(model)
    >>> [ax.get_ylabel() for ax in display.ax_]
    ['training RMSE', 'relevance vectors']
    """

    error_line_: Line2D
    active_line_: Line2D

    def __init__(
        self,
        elapsed: ArrayLike,
        error: ArrayLike,
        n_active: ArrayLike,
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
        cls, estimator: BaseEstimator, *, name: str | None = None, ax: Sequence[Axes] | None = None
    ) -> PartitionDisplay:
        """Draw the history of a fitted partitioned estimator.

        Parameters
        ----------
        estimator : fitted PartitionedRVMRegressor or PartitionedRVMClassifier
            Fitted model.
        name : str, optional
            Label of the curves. The default is the schedule.
        ax : pair of matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        """
        history = estimator.history_
        errors = [key for key in _ERRORS if key in history]
        if "elapsed" not in history or not errors:
            raise ValueError(
                f"The history_ of this {type(estimator).__name__} has no runs over time. Pass "
                "a fitted PartitionedRVMRegressor or PartitionedRVMClassifier."
            )
        label = estimator.schedule if name is None else name
        return cls(
            history["elapsed"],
            history[errors[0]],
            history["n_active"],
            _ERRORS[errors[0]],
            label,
        ).plot(ax=ax)

    def plot(self, ax: Sequence[Axes] | None = None) -> PartitionDisplay:
        """Draw the plot and return self.

        Parameters
        ----------
        ax : pair of matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        """
        pair = new_axes(nrows=2, sharex=True) if ax is None else ax
        above, below = pair
        style: dict[str, Any] = {"marker": "o", "markersize": 3, "label": self.name}
        (self.error_line_,) = above.plot(self.elapsed, self.error, **style)
        (self.active_line_,) = below.plot(self.elapsed, self.n_active, **style)
        above.set_ylabel(self.error_name)
        below.set(xlabel="seconds", ylabel="relevance vectors")
        below.set_ylim(bottom=0)
        below.locator_params(axis="y", integer=True)
        if self.name is not None:
            above.legend(fontsize="small", frameon=False)
        self.ax_, self.figure_ = pair, above.figure
        return self
