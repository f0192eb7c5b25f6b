"""What each component of an additive model adds, with its band."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._axes import axes_or_new

_WIDTH = 1.959963984540054  # of a central 95 % interval, in standard deviations
_PER_ROW = 3


class PartialEffectsDisplay:
    """The effect of each component against its column, with a 95 % band.

    Parameters
    ----------
    grid : list of arrays of shape (n_grid,)
        Where each component was asked.
    effects, std : lists of arrays of shape (n_grid,)
        What it adds to the prediction there, and how well that is known.
    names : list of str
    relevance : array of shape (n_components,), optional
        What was kept of each component; shown in the titles.

    Attributes
    ----------
    axes_, figure_, lines_, bands_
        What `plot` drew.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from sparsebayes.displays._partial_effects import PartialEffectsDisplay
    >>> from sparsebayes.estimators.backfitting import BackfittingRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200, 2))
    >>> y = np.sign(X[:, 0]) + 0.1 * rng.standard_normal(200)
    >>> tree = DecisionTreeRegressor(max_depth=2)
    >>> model = BackfittingRegressor(smoothers=tree).fit(X, y)
    >>> display = PartialEffectsDisplay.from_estimator(model, X)
    >>> display.names[0], bool(display.effects[0].max() > 0.5)
    ('x0', True)
    """

    def __init__(
        self,
        grid: list[Any],
        effects: list[Any],
        std: list[Any],
        names: list[str],
        relevance: Any = None,
    ) -> None:
        self.grid = [np.asarray(values) for values in grid]
        self.effects = [np.asarray(values) for values in effects]
        self.std = [np.asarray(values) for values in std]
        self.names = list(names)
        self.relevance = relevance

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        components: Any = None,
        *,
        n_grid: int = 200,
        axes: Any = None,
    ) -> PartialEffectsDisplay:
        """Draw components of a fitted `BackfittingRegressor` over the range of X.

        Parameters
        ----------
        estimator : BackfittingRegressor
            Fitted, on columns or with smoothers.
        X : array of shape (n_samples, n_features)
            Rows that say over which range, and where the other columns of a component stay (at
            their medians).
        components : list of int, optional
            Which to draw (default: those present, at most nine).
        n_grid : int, default=200
        axes : list of matplotlib axes, optional

        Returns
        -------
        PartialEffectsDisplay
        """
        if not hasattr(estimator, "partial_effects"):
            raise ValueError(
                f"{type(estimator).__name__} has no partial effects: use a BackfittingRegressor "
                "of columns or smoothers."
            )
        labels = getattr(X, "columns", None)
        X = np.asarray(X, dtype=np.float64)
        chosen = list(estimator.active_[:9] if components is None else components)
        parts = estimator.basis_.components if estimator.smoothers is not None else []
        column = {m: part.columns[0] for m, part in zip(estimator.active_, parts, strict=False)}
        grids, effects, stds, names = [], [], [], []
        for m in chosen:
            j = int(column.get(m, m))
            rows = np.tile(np.median(X, axis=0), (n_grid, 1))
            rows[:, j] = np.linspace(X[:, j].min(), X[:, j].max(), n_grid)
            mean, std = estimator.partial_effects(rows)
            grids.append(rows[:, j])
            effects.append(mean[:, m])
            stds.append(std[:, m])
            names.append(f"x{j}" if labels is None else str(labels[j]))
        relevance = getattr(estimator, "relevance_", None)
        if relevance is not None:
            relevance = relevance[chosen]
        return cls(grids, effects, stds, names, relevance).plot(axes=axes)

    def plot(self, axes: Any = None) -> PartialEffectsDisplay:
        """Draw; returns self.

        Parameters
        ----------
        axes : list of matplotlib axes, optional
            One for each component (default: a new figure).
        """
        if axes is None:
            n = max(1, len(self.names))
            width = min(n, _PER_ROW)
            height = -(-n // width)
            size = (3.2 * width, 2.6 * height)
            grid = axes_or_new(
                None, nrows=height, ncols=width, squeeze=False, sharey=True, figsize=size
            )
            axes = list(grid.ravel())
            for spare in axes[n:]:
                spare.set_visible(False)
        self.lines_, self.bands_ = [], []
        for i, (ax, name) in enumerate(zip(axes, self.names, strict=False)):
            x, mean, half = self.grid[i], self.effects[i], _WIDTH * self.std[i]
            self.bands_.append(ax.fill_between(x, mean - half, mean + half, alpha=0.3, lw=0))
            self.lines_.append(ax.plot(x, mean)[0])
            ax.axhline(0.0, color="0.7", lw=0.8, zorder=0)
            title = None if self.relevance is None else f"relevance {self.relevance[i]:.2f}"
            ax.set(xlabel=name, title=title)
        if self.names:
            axes[0].set_ylabel("effect")
        self.axes_ = list(axes)[: len(self.names)]
        self.figure_ = axes[0].figure
        return self
