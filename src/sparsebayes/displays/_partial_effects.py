"""What components of an additive model, or inputs of a kernel model, add; with their bands."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._axes import axes_or_new

_WIDTH = 1.959963984540054  # of a central 95 % interval, in standard deviations
_PER_ROW = 3
_ROWS = 200  # of X that an average is taken over


class PartialEffectsDisplay:
    """The effect of each component or input against its column, with a 95 % band.

    Of an additive model the components themselves. Of a kernel model the partial dependence of
    scikit-learn's ``PartialDependenceDisplay(centered=True)``: the prediction with an input set to
    a value, averaged over rows, less the average prediction; its band is that of the posterior.

    Parameters
    ----------
    grid : list of arrays of shape (n_grid,)
        Where each component was asked.
    effects, std : lists of arrays of shape (n_grid,)
        What it adds to the prediction there, and how well that is known.
    names : list of str
        What to write beside them.
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
        n_grid: int = 100,
        axes: Any = None,
    ) -> PartialEffectsDisplay:
        """Draw components of a fitted model over the range of X.

        Parameters
        ----------
        estimator : estimator
            A fitted `BackfittingRegressor` of columns or smoothers, or any fitted regressor of one
            target with a Gaussian posterior.
        X : array of shape (n_samples, n_features)
            Rows that say over which range. Of a component the other columns stay at their medians;
            of a kernel model they are averaged over (at most 200 of the rows).
        components : list of int, optional
            Which components or inputs to draw (default: those present, at most nine; of a kernel
            model the most relevant).
        n_grid : int, default=100
            Points along each input.
        axes : list of matplotlib axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        PartialEffectsDisplay
        """
        labels = getattr(X, "columns", None)
        X = np.asarray(X, dtype=np.float64)
        if not hasattr(estimator, "partial_effects"):
            return cls(*_dependence(estimator, X, components, n_grid, labels)).plot(axes=axes)
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


def _dependence(
    model: Any, X: np.ndarray, inputs: Any, n_grid: int, labels: Any
) -> tuple[list[Any], list[Any], list[Any], list[str], Any]:
    """Arguments of the display for a model whose weights have a Gaussian posterior."""
    posterior: Any = getattr(model, "posterior_", None)
    if not hasattr(posterior, "form") or np.ndim(posterior.mean) != 1:
        raise ValueError(
            f"{type(model).__name__} has no effects to draw with their bands: use a fitted "
            "regressor of one target whose weights have a Gaussian posterior."
        )
    relevance = getattr(model, "feature_relevance_", None)
    if inputs is None:
        order = np.zeros(X.shape[1]) if relevance is None else -relevance
        inputs = np.argsort(order, kind="stable")[:9]
    rows = X[:: -(-len(X) // _ROWS)]
    average = model.basis_(rows).mean(axis=0)
    grids, effects, stds = [], [], []
    for j in inputs:
        grid = np.linspace(X[:, j].min(), X[:, j].max(), n_grid)
        Phi = np.empty((n_grid, len(average)))
        for i, value in enumerate(grid):
            moved = rows.copy()
            moved[:, j] = value
            Phi[i] = model.basis_(moved).mean(axis=0)
        Phi -= average  # the intercept, known or not, is the same for all
        grids.append(grid)
        effects.append(Phi @ posterior.mean)
        stds.append(np.sqrt(np.maximum(posterior.form.variance(Phi), 0.0)))
    names = [f"x{j}" if labels is None else str(labels[j]) for j in inputs]
    return grids, effects, stds, names, None if relevance is None else relevance[list(inputs)]
