"""Displays of predictions of one input, and of the calibration of predictions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from .._warn import UnlikeRows
from ._axes import WIDTH_95, SingleDisplay, new_axes, rows_like

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from sklearn.base import BaseEstimator

_BINS = 20


class PredictionDisplay(SingleDisplay):
    """Data, predictive mean, 95 % band and relevance vectors of a model of one input.

    Parameters
    ----------
    grid, mean, std : arrays of shape (n_grid,)
        Inputs, and the predicted mean and standard deviation there.
    X, y : arrays of shape (n_samples,), optional
        Data to show as points.
    relevance_vectors : array of shape (n_active,), optional
        Inputs of the relevance vectors, marked on the mean.

    Attributes
    ----------
    ax_, figure_, line_, band_, points_, vectors_
        Axes and artists of the plot.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVMRegressor
    >>> from sparsebayes.displays import PredictionDisplay
    >>> X = np.linspace(-5, 5, 40)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(40)
    >>> display = PredictionDisplay.from_estimator(RVMRegressor().fit(X, y), X, y)
    >>> display.mean.shape
    (300,)
    """

    def __init__(
        self,
        grid: ArrayLike,
        mean: ArrayLike,
        std: ArrayLike,
        *,
        X: np.ndarray | None = None,
        y: np.ndarray | None = None,
        relevance_vectors: np.ndarray | None = None,
    ) -> None:
        self.grid, self.mean, self.std = np.asarray(grid), np.asarray(mean), np.asarray(std)
        self.X, self.y = X, y
        self.relevance_vectors = relevance_vectors

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        n_grid: int = 300,
        ax: Axes | None = None,
    ) -> PredictionDisplay:
        """Draw the predictions of a fitted estimator on a grid slightly wider than the data.

        Parameters
        ----------
        estimator : fitted regressor with ``predict(X, return_std=True)``
            Fitted model.
        X : array of shape (n_samples, 1)
            Training rows, which determine the range of the grid.
        y : array of shape (n_samples,), optional
            Targets of these rows, drawn as points.
        n_grid : int, default=300
            Number of points along each input.
        ax : matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        """
        values = np.asarray(X, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != 1:
            raise ValueError(
                f"PredictionDisplay plots models of one input, got X of shape {values.shape}."
            )
        margin = 0.1 * np.ptp(values)
        grid = np.linspace(values.min() - margin, values.max() + margin, n_grid)
        with warnings.catch_warnings():  # the grid goes beyond and between the training rows
            warnings.simplefilter("ignore", UnlikeRows)
            mean, std = estimator.predict(rows_like(grid[:, None], X), return_std=True)
        vectors = getattr(estimator, "relevance_vectors_", None)
        return cls(
            grid,
            mean,
            std,
            X=values[:, 0],
            y=None if y is None else np.asarray(y),
            relevance_vectors=None if vectors is None else np.asarray(vectors)[:, 0],
        ).plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        half = WIDTH_95 * self.std
        self.band_ = ax.fill_between(
            self.grid, self.mean - half, self.mean + half, color="C0", alpha=0.2, lw=0,
            label="95 % interval",
        )  # fmt: skip
        (self.line_,) = ax.plot(self.grid, self.mean, color="C0", label="mean")
        self.points_ = self.vectors_ = None
        if self.X is not None and self.y is not None:
            self.points_ = ax.scatter(self.X, self.y, s=10, color="0.35", label="data", zorder=2)
        if self.relevance_vectors is not None:
            at = np.interp(self.relevance_vectors, self.grid, self.mean)
            self.vectors_ = ax.scatter(
                self.relevance_vectors, at, s=60, facecolors="none", edgecolors="C3",
                linewidths=1.6, zorder=3, label=f"{len(at)} relevance vectors",
            )  # fmt: skip
        # Above the axes: anywhere inside, it hides data.
        ax.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, fontsize="small", frameon=False
        )


class CalibrationDisplay:
    """Three checks of the calibration of predictive distributions.

    Use `from_estimator` for a fitted model. Left: histogram of the predictive CDF at the targets
    (the probability integral transform). It is flat for calibrated distributions, high at the ends
    if they are too narrow, and high in the middle if they are too wide. Middle: observed against
    nominal coverage of central intervals. Right: RMSE against the predicted standard deviation, in
    groups of rows of similar standard deviation; calibrated predictions lie on the diagonal. For
    calibrated predictions each bar or point lies in the grey band with probability 95 %.

    Parameters
    ----------
    cdf : array of shape (n,)
        Predictive CDF at each target.
    std : array of shape (n,)
        Predicted standard deviation of each target.
    error : array of shape (n,)
        Target minus mean.
    name : str, optional
        Title of the plot.

    Attributes
    ----------
    axes_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVMRegressor
    >>> from sparsebayes.displays import CalibrationDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-5, 5, (100, 1))
    >>> y = np.sinc(X[:, 0]) + 0.1 * rng.standard_normal(100)
    >>> model = RVMRegressor("rbf", gamma=0.5).fit(X[:60], y[:60])
    >>> display = CalibrationDisplay.from_estimator(model, X[60:], y[60:])
    >>> len(display.axes_)
    3
    """

    def __init__(
        self, cdf: ArrayLike, std: ArrayLike, error: ArrayLike, name: str | None = None
    ) -> None:
        self.cdf, self.std, self.error = map(np.asarray, (cdf, std, error))
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike,
        y: ArrayLike,
        *,
        axes: Sequence[Axes] | None = None,
    ) -> CalibrationDisplay:
        """Draw the calibration of a fitted regressor on held-out rows.

        Parameters
        ----------
        estimator : regressor
            Fitted regressor of this package, or a Pipeline that ends in one.
        X : array of shape (n_samples, n_features)
            Held-out rows.
        y : array of shape (n_samples,)
            Targets of these rows.
        axes : three matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        """
        name = type(estimator).__name__
        if hasattr(estimator, "steps"):  # a Pipeline
            X, estimator = estimator[:-1].transform(X), estimator[-1]
            name = type(estimator).__name__
        if not hasattr(estimator, "_predictive"):
            raise ValueError(
                f"{name} has no predictive distribution. Pass a regressor of sparsebayes."
            )
        predictive = estimator._predictive(X)
        mean, std = estimator.predict(X, return_std=True)
        y = np.asarray(y, dtype=np.float64)
        return cls(predictive.cdf(y), std, y - mean, name).plot(axes=axes)

    def plot(self, axes: Sequence[Axes] | None = None) -> CalibrationDisplay:
        """Draw the plot and return self.

        Parameters
        ----------
        axes : three matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        """
        triple = new_axes(ncols=3, figsize=(11.0, 3.6)) if axes is None else axes
        self.axes_, self.figure_ = np.asarray(triple), triple[0].figure
        self._draw_transform(triple[0])
        self._draw_coverage(triple[1])
        self._draw_width(triple[2])
        triple[1].set_title(self.name or "")
        return self

    def _draw_transform(self, ax: Axes) -> None:
        n = len(self.cdf)
        low, high = binom.ppf([0.025, 0.975], n, 1.0 / _BINS) * _BINS / n
        ax.axhspan(low, high, color="0.85")
        edges = np.linspace(0.0, 1.0, _BINS + 1)
        ax.hist(self.cdf, edges.tolist(), weights=np.full(n, _BINS / n), color="C0", alpha=0.8)
        ax.axhline(1.0, color="0.3", linewidth=1.0)
        ax.set(xlabel="predictive CDF at the target", ylabel="density", xlim=(0, 1))

    def _draw_coverage(self, ax: Axes) -> None:
        n, claimed = len(self.cdf), np.linspace(0.02, 0.98, 49)
        inside = [np.mean(np.abs(2.0 * self.cdf - 1.0) <= c) for c in claimed]
        ax.fill_between(
            claimed, *(binom.ppf(q, n, claimed) / n for q in (0.025, 0.975)), color="0.85"
        )
        ax.plot([0, 1], [0, 1], color="0.3", linewidth=1.0)
        ax.plot(claimed, inside, color="C0")
        ax.set(xlabel="nominal coverage", ylabel="observed coverage", xlim=(0, 1), ylim=(0, 1))

    def _draw_width(self, ax: Axes) -> None:
        groups = np.array_split(np.argsort(self.std), int(np.clip(len(self.std) // 20, 2, 10)))
        width = [np.sqrt(np.mean(self.std[g] ** 2)) for g in groups]
        error = [np.sqrt(np.mean(self.error[g] ** 2)) for g in groups]
        ends = [min(*width, *error), max(*width, *error)]
        ax.plot(ends, ends, color="0.3", linewidth=1.0)
        ax.plot(width, error, "o", color="C0")
        ax.set(xlabel="predicted standard deviation", ylabel="RMSE")
        if ends[1] > 10.0 * ends[0] > 0.0:
            ax.set(xscale="log", yscale="log")
            for axis in (ax.xaxis, ax.yaxis):  # the labels of minor ticks would overlap
                axis.set_minor_formatter(lambda value, position: "")
