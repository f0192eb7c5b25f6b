"""How much each input matters to a kernel whose widths were learnt."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._axes import axes_or_new


class FeatureRelevanceDisplay:
    """Relevance of each input as a bar, the most relevant on top.

    Relevance is the standard deviation of an input over its length scale, the largest 1: how fast
    the function varies along that input, over the range the input has. For ``kernel_ == "sum"`` it
    is the variance along that input, of the smooth and the rough part together. An input in which
    the function is a straight line has a long length scale and a small relevance, however steep.

    Parameters
    ----------
    relevance : array of shape (n_features,)
        Of each input, the largest 1.
    names : array of str of shape (n_features,), optional
        What to write beside them.
    name : str, optional
        Title of the plot.

    Attributes
    ----------
    ax_, figure_, bars_
        What `plot` drew.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVMRegressor
    >>> from sparsebayes.displays._relevance import FeatureRelevanceDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, (80, 3))
    >>> y = np.sin(2 * X[:, 1]) + 0.3 * np.sin(X[:, 2]) + 0.05 * rng.standard_normal(80)
    >>> model = RVMRegressor("rbf", gamma="ard").fit(X, y)
    >>> display = FeatureRelevanceDisplay.from_estimator(model)
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['x1', 'x2', 'x0']
    """

    def __init__(self, relevance: Any, names: Any = None, name: str | None = None) -> None:
        self.relevance = np.asarray(relevance)
        if names is None:
            names = [f"x{j}" for j in range(len(self.relevance))]
        self.names = np.asarray(names)
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, max_features: int | None = 20, ax: Any = None
    ) -> FeatureRelevanceDisplay:
        """Draw `feature_relevance_` of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted with learnt widths (``gamma="auto"`` or ``"ard"``).
        max_features : int or None, default=20
            How many inputs to draw; None draws all.
        ax : matplotlib axes, optional
            Where to draw; a new figure by default.
        """
        relevance = getattr(estimator, "feature_relevance_", None)
        if relevance is None:
            raise ValueError(
                f"This {type(estimator).__name__} has no feature_relevance_: fit it with "
                "gamma='ard' first."
            )
        names = getattr(estimator, "feature_names_in_", None)
        return cls(relevance, names, type(estimator).__name__).plot(max_features, ax=ax)

    def plot(self, max_features: int | None = 20, ax: Any = None) -> FeatureRelevanceDisplay:
        """Draw; returns self.

        Parameters
        ----------
        max_features : int or None, default=20
            Most inputs that are drawn; None: all.
        ax : matplotlib axes, optional
            Where to draw; a new figure by default.
        """
        ax = axes_or_new(ax)
        order = np.argsort(-self.relevance, kind="stable")[:max_features]
        place = np.arange(len(order))
        self.bars_ = ax.barh(place, self.relevance[order], color="C0")
        ax.set_yticks(place, self.names[order])
        ax.invert_yaxis()
        ax.set(xlabel="relevance (largest 1)", ylabel="input", title=self.name)
        self.ax_, self.figure_ = ax, ax.figure
        return self
