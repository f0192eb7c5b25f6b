"""Displays of single inputs: their relevance and their effects on the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from ._axes import WIDTH_95, axes_or_new, new_axes, rows_like

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from sklearn.base import BaseEstimator

_PER_ROW = 3
_ROWS = 200  # of X that an average is taken over
FEW_VALUES = 12  # of an input, at which alone its effect is drawn


class FeatureRelevanceDisplay:
    """Relevance of each input as a bar, the most relevant on top.

    Relevance is the share of the variance of the fitted function that an input explains, alone and
    together with others (total Sobol index).

    Parameters
    ----------
    relevance : array of shape (n_features,)
        Relevance of each input.
    names : array of str of shape (n_features,), optional
        Names of the inputs.
    name : str, optional
        Title of the plot.

    Attributes
    ----------
    ax_, figure_, bars_
        Axes and artists of the plot.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVMRegressor
    >>> from sparsebayes.displays import FeatureRelevanceDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, (80, 3))
    >>> y = np.sin(2 * X[:, 1]) + 0.3 * np.sin(X[:, 2]) + 0.05 * rng.standard_normal(80)
    >>> model = RVMRegressor("rbf", gamma="ard").fit(X, y)
    >>> display = FeatureRelevanceDisplay.from_estimator(model)
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['x1', 'x2', 'x0']
    """

    def __init__(
        self, relevance: ArrayLike, names: ArrayLike | None = None, name: str | None = None
    ) -> None:
        self.relevance = np.asarray(relevance)
        if names is None:
            names = [f"x{j}" for j in range(len(self.relevance))]
        self.names = np.asarray(names)
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator: BaseEstimator, *, max_features: int | None = 20, ax: Axes | None = None
    ) -> FeatureRelevanceDisplay:
        """Draw `feature_relevance_` of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted regressor or classifier.
        max_features : int or None, default=20
            Largest number of inputs that are drawn; None draws all.
        ax : matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        """
        check_is_fitted(estimator)
        relevance = getattr(estimator, "feature_relevance_", None)
        if relevance is None:
            raise ValueError(
                f"This {type(estimator).__name__} has no feature_relevance_. It was fitted to "
                "a precomputed kernel or with partial_fit, or it is not an estimator of "
                "sparsebayes."
            )
        names = getattr(estimator, "feature_names_in_", None)
        return cls(relevance, names, type(estimator).__name__).plot(max_features, ax=ax)

    def plot(
        self, max_features: int | None = 20, ax: Axes | None = None
    ) -> FeatureRelevanceDisplay:
        """Draw the plot and return self.

        Parameters
        ----------
        max_features : int or None, default=20
            Largest number of inputs that are drawn; None draws all.
        ax : matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        """
        ax = axes_or_new(ax)
        order = np.argsort(-self.relevance, kind="stable")[:max_features]
        place = np.arange(len(order))
        self.bars_ = ax.barh(place, self.relevance[order], color="C0")
        ax.set_yticks(place, self.names[order])
        ax.invert_yaxis()
        ax.set(xlabel="share of the variance of the function", ylabel="input", title=self.name)
        self.ax_, self.figure_ = ax, ax.figure
        return self


class PartialEffectsDisplay:
    """Effect of each component or input on the prediction, with a 95 % band.

    For an additive model these are its components. For a kernel model they are partial dependences,
    as in scikit-learn's ``PartialDependenceDisplay(centered=True)``: the prediction with one input
    set to a value, averaged over rows, minus the average prediction. The band is that of the
    posterior.

    Parameters
    ----------
    grid : list of arrays of shape (n_grid,)
        Values of the input of each component.
    effects, std : lists of arrays of shape (n_grid,)
        Effect on the prediction at these values, and its standard deviation.
    names : list of str
        Labels of the entries.
    relevance : array of shape (n_components,), optional
        Relevance of each component, shown in the titles.

    Attributes
    ----------
    axes_, figure_, lines_, bands_
        Axes and artists of the plot.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from sparsebayes.displays import PartialEffectsDisplay
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
        grid: list[np.ndarray],
        effects: list[np.ndarray],
        std: list[np.ndarray],
        names: list[str],
        relevance: np.ndarray | None = None,
    ) -> None:
        self.grid = [np.asarray(values) for values in grid]
        self.effects = [np.asarray(values) for values in effects]
        self.std = [np.asarray(values) for values in std]
        self.names = list(names)
        self.relevance = relevance

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike,
        components: Sequence[int] | None = None,
        *,
        n_grid: int = 100,
        axes: Sequence[Axes] | None = None,
    ) -> PartialEffectsDisplay:
        """Draw components of a fitted model over the range of X.

        Parameters
        ----------
        estimator : estimator
            A fitted `BackfittingRegressor` of columns or smoothers, or any fitted regressor of one
            target with a Gaussian posterior.
        X : array of shape (n_samples, n_features)
            Rows that define the range of each input. For a component the other columns stay at
            their medians; for a kernel model the effect is averaged over at most 200 of the rows.
        components : list of int, optional
            Components or inputs to draw. The default is at most nine: the components in the model,
            or the most relevant inputs of a kernel model.
        n_grid : int, default=100
            Number of points along each input. An input of few values is drawn at these.
        axes : list of matplotlib axes, optional
            Axes to draw on. The default is a new figure.

        Returns
        -------
        PartialEffectsDisplay
        """
        labels, given = getattr(X, "columns", None), X
        X = np.asarray(X, dtype=np.float64)
        if not hasattr(estimator, "partial_effects"):
            return cls(*_dependence(estimator, X, components, n_grid, labels)).plot(axes=axes)
        chosen = list(estimator.active_[:9] if components is None else components)
        parts = estimator.basis_.components if estimator.smoothers is not None else []
        column = {m: part.columns[0] for m, part in zip(estimator.active_, parts, strict=False)}
        grids, effects, stds, names = [], [], [], []
        for m in chosen:
            j = int(column.get(m, m))
            grid = effect_grid(X[:, j], n_grid)
            rows = np.tile(np.median(X, axis=0), (len(grid), 1))
            rows[:, j] = grid
            mean, std = estimator.partial_effects(rows_like(rows, given))
            grids.append(grid)
            effects.append(mean[:, m])
            stds.append(std[:, m])
            names.append(f"x{j}" if labels is None else str(labels[j]))
        relevance = getattr(estimator, "relevance_", None)
        if relevance is not None:
            relevance = relevance[chosen]
        return cls(grids, effects, stds, names, relevance).plot(axes=axes)

    def plot(self, axes: Sequence[Axes] | None = None) -> PartialEffectsDisplay:
        """Draw the plot and return self.

        Parameters
        ----------
        axes : list of matplotlib axes, optional
            One axes per component. The default is a new figure.
        """
        if axes is None:
            n = max(1, len(self.names))
            width = min(n, _PER_ROW)
            height = -(-n // width)
            size = (3.2 * width, 2.6 * height)
            grid = new_axes(nrows=height, ncols=width, squeeze=False, sharey=True, figsize=size)
            axes = list(grid.ravel())
            for spare in axes[n:]:
                spare.set_visible(False)
        self.lines_, self.bands_ = [], []
        for i, (ax, name) in enumerate(zip(axes, self.names, strict=False)):
            x, mean, half = self.grid[i], self.effects[i], WIDTH_95 * self.std[i]
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


def effect_grid(
    values: np.ndarray, n_grid: int, ends: tuple[float, float] = (0.0, 1.0)
) -> np.ndarray:
    """Return where to draw the effect of an input: evenly between two of its quantiles.

    An input of few values, such as a count, is drawn at these alone, because no row is in between.
    """
    distinct = np.unique(values)
    if len(distinct) <= FEW_VALUES:
        return distinct
    low, high = np.quantile(values, ends)
    return np.linspace(low, high, n_grid)


def _dependence(
    model: BaseEstimator,
    X: np.ndarray,
    inputs: Sequence[int] | None,
    n_grid: int,
    labels: Sequence[str] | None,
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray], list[str], np.ndarray | None]:
    """Arguments of the display for a model whose weights have a Gaussian posterior."""
    posterior = getattr(model, "posterior_", None)
    if posterior is None or not hasattr(posterior, "form") or np.ndim(posterior.mean) != 1:
        raise ValueError(
            f"{type(model).__name__} has no effects with credible bands. Pass a fitted "
            "regressor of one target whose weights have a Gaussian posterior."
        )
    relevance = getattr(model, "feature_relevance_", None)
    if inputs is None:
        order = np.zeros(X.shape[1]) if relevance is None else -relevance
        inputs = np.argsort(order, kind="stable")[:9].tolist()
    rows = X[:: -(-len(X) // _ROWS)]
    average = model.basis_(rows).mean(axis=0)
    grids, effects, stds = [], [], []
    for j in inputs:
        grid = effect_grid(X[:, j], n_grid)
        Phi = np.empty((len(grid), len(average)))
        for i, value in enumerate(grid):
            moved = rows.copy()
            moved[:, j] = value
            Phi[i] = model.basis_(moved).mean(axis=0)
        Phi -= average  # the intercept, known or not, is the same for all
        grids.append(grid)
        effects.append(Phi @ posterior.mean)
        std = np.sqrt(np.maximum(posterior.form.variance(Phi), 0.0))
        stds.append(getattr(model, "calibration_", 1.0) * std)
    names = [f"x{j}" if labels is None else str(labels[j]) for j in inputs]
    return grids, effects, stds, names, None if relevance is None else relevance[list(inputs)]
