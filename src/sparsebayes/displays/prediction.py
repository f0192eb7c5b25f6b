"""A model of one input, with its band and its relevance vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._axes import axes_or_new

_WIDTH = 1.959963984540054  # of a central 95 % interval, in standard deviations


class PredictionDisplay:
    """Data, predictive mean, 95 % band and relevance vectors of a model of one input.

    Parameters
    ----------
    grid, mean, std : arrays of shape (n_grid,)
        Where the model was asked, and what it said.
    X, y : arrays of shape (n_samples,), optional
        Data to show as points.
    relevance_vectors : array of shape (n_active,), optional
        Inputs that carry a function, marked on the mean.

    Attributes
    ----------
    ax_, figure_, line_, band_, points_, vectors_
        What `plot` drew.

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
        grid: Any,
        mean: Any,
        std: Any,
        *,
        X: Any = None,
        y: Any = None,
        relevance_vectors: Any = None,
    ) -> None:
        self.grid, self.mean, self.std = np.asarray(grid), np.asarray(mean), np.asarray(std)
        self.X, self.y = X, y
        self.relevance_vectors = relevance_vectors

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any = None, *, n_grid: int = 300, ax: Any = None
    ) -> PredictionDisplay:
        """Ask a fitted estimator on a grid a little wider than the data, and draw.

        Parameters
        ----------
        estimator : fitted regressor with ``predict(X, return_std=True)``
            The model that is asked.
        X : array of shape (n_samples, 1)
            Training rows: they say over which range, and are drawn.
        y : array of shape (n_samples,), optional
            Their targets, drawn as points.
        n_grid : int, default=300
            Points along each input.
        ax : matplotlib axes, optional
            Where to draw; a new figure by default.
        """
        values = np.asarray(X, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != 1:
            raise ValueError(
                f"PredictionDisplay shows models of one input, got X of shape {values.shape}."
            )
        margin = 0.1 * np.ptp(values)
        grid = np.linspace(values.min() - margin, values.max() + margin, n_grid)
        mean, std = estimator.predict(grid[:, None], return_std=True)
        vectors = getattr(estimator, "relevance_vectors_", None)
        return cls(
            grid,
            mean,
            std,
            X=values[:, 0],
            y=None if y is None else np.asarray(y),
            relevance_vectors=None if vectors is None else np.asarray(vectors)[:, 0],
        ).plot(ax=ax)

    def plot(self, ax: Any = None) -> PredictionDisplay:
        """Draw; returns self.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; a new figure by default.
        """
        ax = axes_or_new(ax)
        half = _WIDTH * self.std
        self.band_ = ax.fill_between(
            self.grid, self.mean - half, self.mean + half, color="C0", alpha=0.2, lw=0,
            label="95 % band of a new observation",
        )  # fmt: skip
        (self.line_,) = ax.plot(self.grid, self.mean, color="C0", label="mean")
        self.points_ = self.vectors_ = None
        if self.y is not None:
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
        self.ax_, self.figure_ = ax, ax.figure
        return self
