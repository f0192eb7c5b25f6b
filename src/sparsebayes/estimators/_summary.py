"""A summary of a fitted model, for the command line and for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    import pandas as pd

_ATTRIBUTES = {
    "kernel": "kernel_",
    "gamma": "gamma_",
    "log evidence": "log_evidence_",
    "calibration": "calibration_",
    "converged": "converged_",
    "stop reason": "stop_reason_",
}
_MOST_FUNCTIONS = 200  # kernel functions of a summary: those of the largest coefficients
_MOST_LINES = 25  # rows of a summary that are printed
_CELL = "border-bottom:1px solid rgba(128,128,128,.35);padding:.15em .6em;text-align:left"


def facts(model: Any, names: Any = None) -> list[tuple[str, str]]:
    """Return labels and values that describe a fitted model; `names` are those of its inputs."""
    pairs, fitted = [], vars(model)
    if (noise := _noise_level(fitted.get("noise_variance_"))) is not None:
        pairs.append(("noise (std)", noise))
    for label, attribute in _ATTRIBUTES.items():
        value = fitted.get(attribute)
        if value is not None and np.ndim(value) == 0:
            pairs.append((label, f"{value:.6g}" if isinstance(value, float) else str(value)))
    relevance = fitted.get("feature_relevance_")
    if relevance is not None and np.ptp(relevance) > 0:  # with one length scale all are equal
        if names is None:
            names = fitted.get("feature_names_in_", [f"x{j}" for j in range(len(relevance))])
        order = [j for j in np.argsort(-relevance) if relevance[j] >= 0.01][:6]
        listed = ", ".join(f"{names[j]} ({relevance[j]:.2g})" for j in order)
        pairs.append(("most relevant", listed))
    return pairs


def _noise_level(variance: Any) -> str | None:
    """Return the standard deviation of the noise, in units of the target, or its range."""
    if variance is None or not np.size(variance):
        return None
    std = np.sqrt(variance)
    low, high = (f"{float(f'{value:.4g}'):g}" for value in (np.min(std), np.max(std)))
    return low if np.ndim(std) == 0 else f"{low} to {high}"


@dataclass(frozen=True)
class Terms:
    """Coefficients of a model with their standard deviations, one entry per term.

    Attributes
    ----------
    name : list of str
        ``"intercept"``, columns of X, or kernel functions by the number of their training row.
    group : list of str
        Target or class of each term; empty strings if there is only one.
    coef, std : lists of float
        Coefficient and standard deviation; NaN if there is none.
    n_terms : int
        Number of terms of the model; the terms with the largest coefficients are listed.
    """

    name: list[str] = field(default_factory=list)
    group: list[str] = field(default_factory=list)
    coef: list[float] = field(default_factory=list)
    std: list[float] = field(default_factory=list)
    n_terms: int = 0

    def add(self, name: Sequence[str], group: str, coef: Any, std: Any) -> Terms:
        """Return these terms and further ones, the largest ratio of coefficient and deviation
        first."""
        coef, std = np.asarray(coef, dtype=np.float64), np.asarray(std, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            order = np.argsort(-np.nan_to_num(np.abs(coef) / std), kind="stable")
        return Terms(
            [*self.name, *(name[j] for j in order)],
            [*self.group, *[group] * len(order)],
            [*self.coef, *coef[order].tolist()],
            [*self.std, *std[order].tolist()],
            self.n_terms + len(order),
        )

    def without_std(self) -> Terms:
        """Return the terms without standard deviations."""
        return replace(self, std=[np.nan] * len(self.std))

    def without(self, name: str) -> Terms:
        """Return the terms but those of this name."""
        kept = [i for i, other in enumerate(self.name) if other != name]
        return Terms(
            [self.name[i] for i in kept],
            [self.group[i] for i in kept],
            [self.coef[i] for i in kept],
            [self.std[i] for i in kept],
            self.n_terms - len(self.name) + len(kept),
        )


@dataclass(frozen=True)
class ModelSummary:
    """Summary of a fitted model, which is printed as a table.

    Attributes
    ----------
    title : str
        Name of the estimator.
    facts : list of pairs of str
        Labels and values: noise, evidence, calibration and others.
    terms : Terms
        Coefficients and their standard deviations.
    coverage : float
        Probability of the intervals.
    """

    title: str
    facts: list[tuple[str, str]]
    terms: Terms
    coverage: float

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The table of the terms by column: term, coef, std, lower and upper."""
        terms, reach = self.terms, norm.ppf(0.5 + 0.5 * self.coverage)
        columns: dict[str, list[Any]] = {"term": terms.name}
        if any(terms.group):
            columns["of"] = terms.group
        ends = [(c - reach * s, c + reach * s) for c, s in zip(terms.coef, terms.std, strict=True)]
        return columns | {
            "coef": terms.coef,
            "std": terms.std,
            "lower": [lower for lower, _ in ends],
            "upper": [upper for _, upper in ends],
        }

    def to_frame(self) -> pd.DataFrame:
        """Return the table of the terms as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.columns)

    def _cells(self) -> list[list[str]]:
        """Return the head and the first rows of the table as text."""
        columns = {
            name: [value if isinstance(value, str) else _number(value) for value in values]
            for name, values in self.columns.items()
        }
        return [list(columns), *map(list, zip(*columns.values(), strict=True))][: _MOST_LINES + 1]

    def _more(self) -> str:
        """Return a line on the terms that are not shown."""
        hidden = self.terms.n_terms - min(_MOST_LINES, len(self.terms.name))
        return f"and {hidden:,} more" if hidden else ""

    def __str__(self) -> str:
        width = max((len(label) for label, _ in self.facts), default=0)
        lines = [self.title, *(f"  {label:<{width}}  {value}" for label, value in self.facts)]
        if self.terms.name:
            cells = self._cells()
            widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
            first, *others = zip(*cells, strict=True)
            padded = [[cell.ljust(widths[0]) for cell in first]]
            padded += [
                [cell.rjust(w) for cell in column]
                for column, w in zip(others, widths[1:], strict=True)
            ]
            lines += ["", *(" ".join(row).rstrip() for row in zip(*padded, strict=True))]
            lines += [self._more()] if self._more() else []
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cells = self._cells() if self.terms.name else []
        rows = [_html_row(row, "th" if i == 0 else "td") for i, row in enumerate(cells)]
        more = f"<p>{self._more()}</p>" if self._more() else ""
        head = f"<b>{escape(self.title)}</b>{_html_table(self.facts)}"
        return f"{head}<table>{''.join(rows)}</table>{more}"


def _number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.4g}"


def _html_row(cells: Sequence[str], tag: str) -> str:
    inside = "".join(f'<{tag} style="{_CELL}">{escape(cell)}</{tag}>' for cell in cells)
    return f"<tr>{inside}</tr>"


def _html_table(pairs: list[tuple[str, str]]) -> str:
    """Return labels and values as a table."""
    cells = "".join(
        f'<tr><th style="{_CELL}">{escape(label)}</th><td style="{_CELL}">{escape(value)}</td>'
        for label, value in pairs
    )
    return (
        '<table class="sparsebayes-summary" style="border-collapse:collapse;'
        f'font-size:.9em;margin:.4em 0">{cells}</table>'
    )


def intercept_terms(model: Any) -> Terms:
    """Return the constant of each target or class, with the standard deviation of a regressor."""
    if not vars(model).get("fit_intercept", True):
        return Terms()
    constants = np.atleast_1d(model.intercept_)
    std = np.full(len(constants), np.nan)
    if "classes_" not in vars(model):
        # The function where all columns or kernel functions are zero.
        posterior, centre = model.posterior_, model.basis_.centre
        centre = centre if posterior.centre is None else centre + posterior.centre
        variance = posterior.form.variance(centre[None])[0] + posterior.offset_variance
        std = np.broadcast_to(np.sqrt(variance) * model.calibration_, len(constants))
    terms = Terms()
    for group, constant, spread in zip(_groups(model, len(constants)), constants, std, strict=True):
        terms = terms.add(["intercept"], group, [constant], [spread])
    return terms


def column_terms(model: Any) -> Terms:
    """Return the terms of a model of columns, which has `coef_` and perhaps `coef_std_`."""
    fitted = vars(model)
    coef = np.atleast_2d(fitted["coef_"])
    std = np.atleast_2d(fitted.get("coef_std_", np.full_like(coef, np.nan)))
    names = fitted.get("feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])
    active = np.sort(np.asarray(fitted["active_"], dtype=np.intp))
    terms = intercept_terms(model)
    for group, weights, spread in zip(_groups(model, len(coef)), coef, std, strict=True):
        chosen = active if len(weights) == len(names) else np.arange(len(weights))
        shown = [str(names[j]) for j in (chosen if len(weights) == len(names) else active)]
        terms = terms.add(shown, group, weights[chosen], spread[chosen])
    return terms


def function_terms(model: Any) -> Terms:
    """Return the terms of a kernel model: the functions of the largest coefficients.

    Several classes have a posterior each, of some of the functions; several targets share one.
    """
    coef = np.atleast_2d(model.coef_)
    members = vars(model._fitted).get("members", [np.arange(coef.shape[1])] * len(coef))
    terms = intercept_terms(model)
    for number, (group, own) in enumerate(zip(_groups(model, len(coef)), members, strict=True)):
        largest = np.argsort(-np.abs(coef[number, own]), kind="stable")[:_MOST_FUNCTIONS]
        std = _weight_std(model, number, largest, len(own))
        names = [f"row {row}" for row in np.asarray(model.active_)[own[largest]]]
        terms = terms.add(names, group, coef[number, own[largest]], std)
    hidden = sum(max(len(own) - _MOST_FUNCTIONS, 0) for own in members)
    return replace(terms, n_terms=terms.n_terms + hidden)


def _weight_std(model: Any, number: int, functions: np.ndarray, n: int) -> np.ndarray:
    """Return the standard deviations of some of n weights of one target or class."""
    unit = np.zeros((len(functions), n))
    unit[np.arange(len(functions)), functions] = 1.0
    if isinstance(model.posterior_, tuple):
        return np.sqrt(model.posterior_[number].form.variance(unit))
    std = np.sqrt(model.posterior_.form.variance(unit))
    if "classes_" not in vars(model):  # calibrated like predictions
        std = std * model.calibration_
    return std[:, number] if std.ndim == 2 else std


def _groups(model: Any, n: int) -> list[str]:
    """Return the name of each target or class; empty where there is one."""
    if n == 1:
        return [""]
    return [str(name) for name in vars(model).get("classes_", [f"target {j}" for j in range(n)])]


class Summary(BaseEstimator):
    """Adds a summary of the fitted model to scikit-learn's diagram of its parameters."""

    def summary(self, coverage: float = 0.95) -> ModelSummary:
        """Return the fitted model as a table.

        It lists the noise, the evidence, the calibration and the stop reason, and the coefficient,
        standard deviation and interval of each column or function. It is printed as a table, and
        rendered in notebooks.

        Parameters
        ----------
        coverage : float, default=0.95
            Probability of the interval of each coefficient.

        Returns
        -------
        summary : ModelSummary
            Its `to_frame` returns the table of coefficients as a pandas DataFrame.
        """
        check_is_fitted(self)
        if not 0.0 < coverage < 1.0:
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}.")
        return ModelSummary(
            type(self).__name__, self._summary_pairs(), self._summary_terms(), coverage
        )

    def _summary_terms(self) -> Terms:
        """Return the coefficients of the fitted model."""
        of_columns = vars(self).get("kernel", None) is None
        return column_terms(self) if of_columns else function_terms(self)

    def _summary_pairs(self) -> list[tuple[str, str]]:
        pairs, fitted = facts(self), vars(self)
        if "active_" in fitted:
            pairs.insert(0, ("active terms", str(len(fitted["active_"]))))
        loo = vars(fitted["_fitted"]).get("loo") if "_fitted" in fitted else None
        if loo is not None:  # a loaded model does not keep it
            pairs.insert(0, ("rows", f"{len(loo.weight):,}"))
        return pairs

    def _html_repr(self) -> str:
        html = super()._html_repr()
        try:
            check_is_fitted(self)
        except NotFittedError:
            return html
        return html + _html_table(self._summary_pairs())
