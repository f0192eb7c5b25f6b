"""What each term of an orthogonal least squares model explains."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._axes import axes_or_new


class ErrorReductionDisplay:
    """Error reduction of each term as a bar, on a log scale, and what is left unexplained.

    Parameters
    ----------
    term : array of str of shape (n_terms,)
        Names of the terms, in order of choice.
    err : array of shape (n_terms,)
        Share of the target's sum of squares that each term explains.
    name : str, optional
        Title of the plot.

    Attributes
    ----------
    ax_, figure_, bars_, left_line_
        What `plot` drew.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.displays._err_table import ErrorReductionDisplay
    >>> from sparsebayes.estimators.lrols import OrthogonalLeastSquaresRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((60, 4))
    >>> y = X @ [2.0, 0.0, 1.0, 0.0] + 0.1 * rng.standard_normal(60)
    >>> model = OrthogonalLeastSquaresRegressor(kernel=None).fit(X, y)
    >>> display = ErrorReductionDisplay.from_estimator(model)
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['x0', 'x2']
    """

    def __init__(self, term: Any, err: Any, name: str | None = None) -> None:
        self.term = np.asarray(term)
        self.err = np.asarray(err)
        self.name = name

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> ErrorReductionDisplay:
        """Draw the table of a fitted estimator.

        Parameters
        ----------
        estimator : fitted model
            The model that is drawn.
        ax : matplotlib axes, optional
            Where to draw; a new figure by default.
        """
        table = getattr(estimator, "err_table_", None) or getattr(estimator, "terms_", None)
        if table is None:
            raise ValueError(
                f"This {type(estimator).__name__} has no err_table_: fit an "
                "OrthogonalLeastSquaresRegressor or a NARXRegressor first."
            )
        return cls(table.term, table.err, type(estimator).__name__).plot(ax=ax)

    def plot(self, ax: Any = None) -> ErrorReductionDisplay:
        """Draw; returns self.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; a new figure by default.
        """
        ax = axes_or_new(ax)
        place = np.arange(len(self.err))
        self.bars_ = ax.barh(place, self.err, color="C0", label="explained by the term")
        left = 1.0 - np.cumsum(self.err)
        (self.left_line_,) = ax.plot(left, place, "o-", color="C1", label="left after it")
        if np.any(self.err > 0.0):
            ax.set_xscale("log")
        ax.set_yticks(place, self.term)
        ax.invert_yaxis()
        ax.set(xlabel="share of the sum of squares", ylabel="term", title=self.name)
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self
