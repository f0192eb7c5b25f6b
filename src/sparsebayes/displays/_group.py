"""Displays of group models: inclusion probabilities, coefficients, designed experiments."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ._axes import SingleDisplay, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from sklearn.base import BaseEstimator

_MOST = 40  # bars that can be read side by side


class InclusionDisplay:
    """Inclusion probability of each group, the largest first.

    Parameters
    ----------
    probability : array of shape (n_groups,)
        Inclusion probability of each group.
    names : array of shape (n_groups,)
        Labels of the entries.
    prior : float, optional
        Prior probability of each group, drawn as a line.
    name : str, optional
        Title of the plot.

    Attributes
    ----------
    ax_, figure_, bars_
        Axes and artists of the plot.

    Examples
    --------
    >>> from sparsebayes.displays._group import InclusionDisplay
    >>> display = InclusionDisplay([0.1, 0.9], ["age", "smoke"]).plot()
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['smoke', 'age']
    """

    def __init__(
        self,
        probability: ArrayLike,
        names: ArrayLike,
        prior: float | None = None,
        name: str | None = None,
    ) -> None:
        self.probability = np.asarray(probability)
        self.names = np.asarray(names)
        self.prior = prior
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator: BaseEstimator, *, ax: Axes | None = None, most: int = _MOST
    ) -> InclusionDisplay:
        """Draw a fitted group spike-and-slab model.

        Parameters
        ----------
        estimator : fitted model
            Fitted model.
        ax : matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        most : int, default=40
            Largest number of entries that are drawn, the largest values first.
        """
        if not hasattr(estimator, "inclusion_probability_"):
            raise ValueError(
                f"{type(estimator).__name__} has no inclusion_probability_. Pass a fitted "
                "GroupSpikeSlabRegressor or GroupSpikeSlabClassifier."
            )
        prior = estimator.inclusion_prior_
        prior = prior if np.ndim(prior) == 0 else None
        name = type(estimator).__name__
        display = cls(estimator.inclusion_probability_, estimator.group_names_, prior, name)
        return display.plot(ax=ax, most=most)

    def plot(self, ax: Axes | None = None, most: int = _MOST) -> InclusionDisplay:
        """Draw at most `most` groups and return self.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        most : int, default=40
            Largest number of entries that are drawn, the largest values first.
        """
        order = np.argsort(-self.probability, kind="stable")[:most]
        ax = axes_or_new(ax, figsize=(6.0, 1.0 + 0.25 * len(order)))
        at = np.arange(len(order))
        self.bars_ = ax.barh(at, self.probability[order], color="C0")
        if self.prior is not None:
            ax.axvline(self.prior, color="0.5", linestyle=":", label="prior")
            ax.legend(loc="lower right")
        ax.set_yticks(at, [str(n) for n in self.names[order]])
        ax.invert_yaxis()
        ax.set(xlim=(0.0, 1.0), xlabel="inclusion probability", title=self.name)
        n_hidden = len(self.probability) - len(order)
        if n_hidden:
            ax.set_ylabel(f"most probable {len(order)} of {len(self.probability)} groups")
        self.ax_, self.figure_ = ax, ax.figure
        return self


class CredibleSetsDisplay:
    """Credible sets of groups and the groups selected at a false discovery rate.

    Parameters
    ----------
    sets : list of arrays of group labels
        Groups of each set, one of which is in the model.
    probability : array of shape (n_groups,)
        Inclusion probability of each group.
    names : array of shape (n_groups,)
        Labels of the entries.
    set_probability, purity : arrays of shape (n_sets,)
        Probability of each set, and the smallest correlation between two of its groups.
    selected : array of group labels
        Groups that are marked as selected.
    coverage, fdr : float
        Nominal coverage of the sets, and false discovery rate of the selection.
    name : str, optional
        Title of the plot.

    Attributes
    ----------
    ax_, figure_, bars_
        Axes and artists of the plot.

    Examples
    --------
    >>> from sparsebayes.displays import CredibleSetsDisplay
    >>> sets, names = [["a", "b"]], ["a", "b", "c"]
    >>> display = CredibleSetsDisplay(sets, [0.5, 0.48, 0.9], names, [0.97], [0.99], ["c"]).plot()
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['a', 'b', 'c*']
    """

    def __init__(
        self,
        sets: Iterable[ArrayLike],
        probability: ArrayLike,
        names: ArrayLike,
        set_probability: ArrayLike,
        purity: ArrayLike,
        selected: ArrayLike,
        coverage: float = 0.95,
        fdr: float = 0.1,
        name: str | None = None,
    ) -> None:
        self.sets = [np.asarray(s) for s in sets]
        self.probability = np.asarray(probability)
        self.names = np.asarray(names)
        self.set_probability = np.asarray(set_probability)
        self.purity = np.asarray(purity)
        self.selected = np.asarray(selected)
        self.coverage = coverage
        self.fdr = fdr
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        *,
        coverage: float = 0.95,
        fdr: float = 0.1,
        ax: Axes | None = None,
        most: int = _MOST,
    ) -> CredibleSetsDisplay:
        """Draw the sets and the selection of a fitted group spike-and-slab model.

        Parameters
        ----------
        estimator : fitted model
            Fitted model.
        coverage : float, default=0.95
            Probability that a set contains an active group.
        fdr : float, default=0.1
            Expected share of false discoveries among the marked groups.
        ax : matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        most : int, default=40
            Largest number of entries that are drawn, the largest values first.
        """
        if not hasattr(estimator, "credible_sets"):
            raise ValueError(
                f"{type(estimator).__name__} has no credible_sets. Pass a fitted "
                "GroupSpikeSlabRegressor or GroupSpikeSlabClassifier."
            )
        sets, probability, purity = estimator.credible_sets(coverage, return_details=True)
        display = cls(
            sets,
            estimator.inclusion_probability_,
            estimator.group_names_,
            probability,
            purity,
            estimator.select(fdr),
            coverage,
            fdr,
            type(estimator).__name__,
        )
        return display.plot(ax=ax, most=most)

    def plot(self, ax: Axes | None = None, most: int = _MOST) -> CredibleSetsDisplay:
        """Draw at most `most` groups: those of the sets first, then other selected groups.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        most : int, default=40
            Largest number of entries that are drawn, the largest values first.
        """
        p = dict(zip(self.names.tolist(), self.probability, strict=True))
        rows: list[tuple[Hashable, int]] = []
        for i, members in enumerate(self.sets):
            rows += [(g, i) for g in sorted(members.tolist(), key=lambda g: -p[g])]
        inside = {g for g, _ in rows}
        single = [g for g in self.selected.tolist() if g not in inside]
        rows += [(g, -1) for g in sorted(single, key=lambda g: -p[g])]
        rows = rows[:most]
        ax = axes_or_new(ax, figsize=(6.0, 1.4 + 0.25 * max(len(rows), 2)))
        colours = ["0.6" if i < 0 else f"C{i % 10}" for _, i in rows]
        self.bars_ = ax.barh(range(len(rows)), [p[g] for g, _ in rows], color=colours)
        for i in dict.fromkeys(i for _, i in rows if i >= 0):
            at = [k for k, (_, j) in enumerate(rows) if j == i]
            text = f"set {i + 1}: {self.set_probability[i]:.2f}"
            if len(self.sets[i]) > 1:
                text += f", purity {self.purity[i]:.2f}"
            ax.text(1.02, float(np.mean(at)), text, va="center", color=f"C{i % 10}", fontsize=9)
        marked = set(self.selected.tolist())
        labels = [f"{g}{'*' if g in marked else ''}" for g, _ in rows]
        ax.set_yticks(range(len(rows)), labels)
        ax.invert_yaxis()
        ax.set(xlim=(0.0, 1.0), title=self.name)
        ax.set_xlabel(
            f"inclusion probability\n{self.coverage:.0%} sets in colour; "
            f"*: selected at {self.fdr:.0%} false discoveries"
        )
        if not rows:
            ax.text(0.5, 0.5, "no credible set, not selected", ha="center", transform=ax.transAxes)
        self.ax_, self.figure_ = ax, ax.figure
        return self


class CoefficientDisplay:
    """Coefficients with intervals, coloured by whether their group is selected.

    Parameters
    ----------
    mean, std : arrays of shape (n_features,)
        Posterior mean and standard deviation of each weight.
    names : array of shape (n_features,)
        Labels of the entries.
    chosen : array of bool of shape (n_features,), optional
        Weights that are marked as selected.
    level : float, default=1.96
        Half width of the intervals in standard deviations.
    name : str, optional
        Title of the plot.

    Attributes
    ----------
    ax_, figure_
        Axes and artists of the plot.

    Examples
    --------
    >>> from sparsebayes.displays._group import CoefficientDisplay
    >>> display = CoefficientDisplay([1.0, 0.0], [0.1, 0.01], ["a", "b"]).plot()
    >>> display.ax_.get_xlabel()
    'coefficient'
    """

    def __init__(
        self,
        mean: ArrayLike,
        std: ArrayLike,
        names: ArrayLike,
        chosen: ArrayLike | None = None,
        level: float = 1.96,
        name: str | None = None,
    ) -> None:
        self.mean = np.asarray(mean)
        self.std = np.asarray(std)
        self.names = np.asarray(names)
        self.chosen = np.ones(len(self.mean), bool) if chosen is None else np.asarray(chosen)
        self.level = level
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator: BaseEstimator, *, ax: Axes | None = None, most: int = _MOST
    ) -> CoefficientDisplay:
        """Draw a fitted model with `coef_` and `coef_std_`.

        Parameters
        ----------
        estimator : fitted model
            Fitted model.
        ax : matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        most : int, default=40
            Largest number of entries that are drawn, the largest values first.
        """
        if not hasattr(estimator, "coef_std_") or np.ndim(estimator.coef_) != 1:
            raise ValueError(
                f"{type(estimator).__name__} has no single vector of coefficients with "
                "standard deviations. Pass a fitted model of columns (kernel=None)."
            )
        d = len(estimator.coef_)
        names = getattr(estimator, "feature_names_in_", np.arange(d))
        chosen = np.isin(np.arange(d), getattr(estimator, "active_", np.arange(d)))
        title = type(estimator).__name__
        return cls(estimator.coef_, estimator.coef_std_, names, chosen, name=title).plot(
            ax=ax, most=most
        )

    def plot(self, ax: Axes | None = None, most: int = _MOST) -> CoefficientDisplay:
        """Draw the `most` largest coefficients, in the order of the columns, and return self.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        most : int, default=40
            Largest number of entries that are drawn, the largest values first.
        """
        rank = np.lexsort((-np.abs(self.mean), ~self.chosen))
        order = np.sort(rank[:most])
        ax = axes_or_new(ax, figsize=(6.0, 1.0 + 0.25 * len(order)))
        for value, colour, label in ((True, "C0", "in"), (False, "0.7", "out")):
            at = np.flatnonzero(self.chosen[order] == value)
            if at.size:
                which = order[at]
                width = self.level * self.std[which]
                ax.errorbar(
                    self.mean[which], at, xerr=width, fmt="o", color=colour, capsize=2, label=label
                )
        ax.axvline(0.0, color="0.5", linewidth=0.8)
        ax.set_yticks(np.arange(len(order)), [str(n) for n in self.names[order]])
        ax.invert_yaxis()
        ax.legend()
        ax.set(xlabel="coefficient", title=self.name)
        if len(order) < len(self.mean):
            ax.set_ylabel(f"{len(order)} of {len(self.mean)} columns")
        self.ax_, self.figure_ = ax, ax.figure
        return self


class DesignErrorDisplay(SingleDisplay):
    """Error against number of measurements, for one or several designs.

    Parameters
    ----------
    n_rows : array of shape (n_steps,)
        Number of measurements at each step.
    errors : dict of arrays of shape (n_steps,) or (n_repeats, n_steps)
        Error of each design at each number of rows. With repeats the mean is drawn, with a band of
        one standard error.
    error_name : str, default="error"
        Label of the error axis.
    name : str, optional
        Title of the plot.

    Attributes
    ----------
    ax_, figure_, lines_
        Axes and artists of the plot.

    Examples
    --------
    >>> from sparsebayes.displays._group import DesignErrorDisplay
    >>> curves = {"random": [0.8, 0.5], "designed": [0.8, 0.2]}
    >>> display = DesignErrorDisplay([32, 64], curves).plot()
    >>> sorted(display.lines_)
    ['designed', 'random']
    """

    def __init__(
        self,
        n_rows: ArrayLike,
        errors: Mapping[str, ArrayLike],
        error_name: str = "error",
        name: str | None = None,
    ) -> None:
        self.n_rows = np.asarray(n_rows)
        self.errors = {key: np.atleast_2d(value) for key, value in errors.items()}
        for key, value in self.errors.items():
            if value.shape[1] != len(self.n_rows):
                raise ValueError(
                    f"errors[{key!r}] has {value.shape[1]} steps, but n_rows has "
                    f"{len(self.n_rows)}."
                )
        self.error_name = error_name
        self.name = name

    def _draw(self, ax: Axes) -> None:
        self.lines_ = {}
        for key, value in self.errors.items():
            mean = value.mean(axis=0)
            (self.lines_[key],) = ax.plot(self.n_rows, mean, label=key)
            if len(value) > 1:
                half = value.std(axis=0, ddof=1) / np.sqrt(len(value))
                ax.fill_between(self.n_rows, mean - half, mean + half, alpha=0.2)
        ax.set(xlabel="measurements", ylabel=self.error_name, title=self.name)
        ax.set_ylim(bottom=0.0)
        ax.legend()
