"""A summary of a fitted model, for the command line and for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from ._descriptions import complete_docstring

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
_IN_UNITS_OF_TARGET = ("noise (std)", "log evidence")
_MOST_LINES = 25  # rows of a summary that are printed
_CELL = "border-bottom:1px solid rgba(128,128,128,.35);padding:.15em .6em;text-align:left"


def facts(
    model: BaseEstimator, names: Sequence[str] | np.ndarray | None = None, target: str = ""
) -> list[tuple[str, str]]:
    """Return labels and values that describe a fitted model.

    `names` are those of its inputs, and `target` is that of its target if it is transformed.
    """
    pairs, fitted = [], vars(model)
    if (noise := _noise_level(fitted.get("noise_variance_"))) is not None:
        pairs.append(("noise (std)", noise))
    for label, attribute in _ATTRIBUTES.items():
        value = fitted.get(attribute)
        if value is not None and np.ndim(value) == 0:
            pairs.append((label, f"{value:.6g}" if isinstance(value, float) else str(value)))
    pairs = of_target(pairs, target)
    inputs = relevant_inputs(model, names)
    if len({share for _, share in inputs}) > 1:
        listed = [f"{name} ({share:.2g})" for name, share in inputs[:6] if share >= 0.01]
        pairs.append(("most relevant", ", ".join(listed)))
    return pairs


def of_target(pairs: Sequence[tuple[str, str]], target: str) -> list[tuple[str, str]]:
    """Return the facts with the name of a transformed target where they depend on its units."""
    suffix = f" (of {target})" if target else ""
    return [
        (label, value + suffix if label in _IN_UNITS_OF_TARGET else value) for label, value in pairs
    ]


def relevant_inputs(
    model: BaseEstimator, names: Sequence[str] | np.ndarray | None = None
) -> list[tuple[str, float]]:
    """Return name and relevance of each input of a fitted model, the largest first."""
    fitted = vars(model)
    relevance = fitted.get("feature_relevance_")
    if relevance is None:
        return []
    if names is None:
        names = fitted.get("feature_names_in_", [f"x{j}" for j in range(len(relevance))])
    return [(str(names[j]), float(relevance[j])) for j in np.argsort(-relevance, kind="stable")]


def _noise_level(variance: ArrayLike | None) -> str | None:
    """Return the standard deviation of the noise, in units of the target, or its range."""
    if variance is None or not np.size(variance):
        return None
    std = np.sqrt(variance)
    low, high = (f"{float(f'{value:.4g}'):g}" for value in (np.min(std), np.max(std)))
    return low if np.ndim(std) == 0 else f"{low} to {high}"


class Term(NamedTuple):
    """A coefficient of a model, and its standard deviation (NaN if it has none).

    The name is that of a column, of the training row of a kernel function, or ``"intercept"``.
    `group` is its target or class, an empty string if there is only one.
    """

    name: str
    group: str
    coef: float
    std: float

    @property
    def size(self) -> float:
        """Size of the coefficient in standard deviations, or itself if it has none."""
        return abs(self.coef) / (self.std if self.std > 0.0 else 1.0)


@dataclass(frozen=True)
class ModelSummary:
    """Summary of a fitted model, which is printed as a table.

    Attributes
    ----------
    title : str
        Name of the estimator.
    facts : list of pairs of str
        Labels and values: noise, evidence, calibration and others.
    terms : list of Term
        Coefficients and their standard deviations; none of a Gaussian process.
    coverage : float
        Probability of the intervals.
    inputs : list of pairs of str and float
        Names of the inputs and their relevance, the largest first.
    """

    title: str
    facts: list[tuple[str, str]]
    terms: list[Term]
    coverage: float
    inputs: list[tuple[str, float]]

    @property
    def columns(self) -> dict[str, list[object]]:
        """The table by column.

        A model with terms has the columns term, of (target or class), coef, std, lower and upper,
        a Gaussian process input and relevance.
        """
        if not self.terms:
            names, shares = zip(*self.inputs, strict=True) if self.inputs else ((), ())
            return {"input": list(names), "relevance": list(shares)}
        reach = norm.ppf(0.5 + 0.5 * self.coverage)
        columns: dict[str, list[object]] = {"term": [term.name for term in self.terms]}
        if any(term.group for term in self.terms):
            columns["of"] = [term.group for term in self.terms]
        return columns | {
            "coef": [term.coef for term in self.terms],
            "std": [term.std for term in self.terms],
            "lower": [term.coef - reach * term.std for term in self.terms],
            "upper": [term.coef + reach * term.std for term in self.terms],
        }

    def to_frame(self) -> pd.DataFrame:
        """Return the table as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.columns)

    def _cells(self) -> list[list[str]]:
        """Return the head and the first rows of the table as text."""
        rows = zip(*self.columns.values(), strict=True)
        cells = [list(self.columns)]
        for row in islice(rows, _MOST_LINES):
            cells.append([value if isinstance(value, str) else _number(value) for value in row])
        return cells if len(cells) > 1 else []

    def _more(self) -> list[str]:
        hidden = len(self.terms or self.inputs) - _MOST_LINES
        return [f"and {hidden:,} more"] if hidden > 0 else []

    def __str__(self) -> str:
        width = max((len(label) for label, _ in self.facts), default=0)
        lines = [self.title, *(f"  {label:<{width}}  {value}" for label, value in self.facts)]
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for k, (first, *others) in enumerate(cells):
            padded = [cell.rjust(w) for cell, w in zip(others, widths[1:], strict=True)]
            lines += [""] * (k == 0) + [" ".join([first.ljust(widths[0]), *padded])]
        return "\n".join([*lines, *self._more()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cell = f'<td style="{_CELL}">'
        rows = ["".join(f"{cell}{escape(text)}</td>" for text in row) for row in self._cells()]
        table = f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
        return f"<b>{escape(self.title)}</b>{_html_table(self.facts)}{table}{''.join(self._more())}"


def _number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.4g}"


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


def coefficient_terms(model: Any) -> list[Term]:
    """Return the intercept and the nonzero coefficients of each target or class of a model.

    They are in order of their size in standard deviations.
    """
    fitted, coef = vars(model), np.atleast_2d(model.coef_)
    m, n = coef.shape
    groups = [""] if m == 1 else list(map(str, fitted.get("classes_", range(m))))
    if model.kernel is None:
        names = fitted.get("feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])
        names = names if n == len(names) else [names[j] for j in model.active_]
    else:
        names = [f"row {row}" for row in model.active_]
    std, constant_std = np.full((m, n), np.nan), np.full(m, np.nan)
    if model.kernel is not None or "coef_std_" in fitted:
        std, constant_std = _coefficient_std(model, m, n)
    # A group model averages over all columns, and lists those that are likely in the model.
    shown = (
        np.isin(np.arange(n), model.active_) if len(names) == n > len(model.active_) else [True] * n
    )
    terms: list[Term] = []
    for k, group in enumerate(groups):
        if model.fit_intercept:
            constant = float(np.atleast_1d(model.intercept_)[k])
            terms.append(Term("intercept", group, constant, float(constant_std[k])))
        own = [
            Term(str(names[j]), group, float(coef[k, j]), float(std[k, j]))
            for j in np.flatnonzero(shown & (coef[k] != 0.0))
        ]
        terms += sorted(own, key=lambda term: -term.size)
    return terms


def _coefficient_std(model: Any, m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the standard deviations of the coefficients and of the intercepts.

    Those of a regressor are calibrated like predictions. Classes have no deviation of intercepts.
    """
    fitted, std = vars(model), np.zeros((m, n))
    if "coef_std_" in fitted:
        std = np.atleast_2d(model.coef_std_)
    elif "classes_" in fitted:
        fit = model._fitted
        for row, members, posterior in zip(std, fit.members, fit.posteriors, strict=True):
            row[members] = np.sqrt(posterior.weight_variance)
    else:
        weights = np.sqrt(model.posterior_.weight_variance)
        std = np.atleast_2d((weights * model.calibration_).T)
    if "classes_" in fitted:
        return std, np.full(m, np.nan)
    # The intercept is the function where all columns or kernel functions are zero.
    posterior, centre = model.posterior_, model.basis_.centre
    centre = centre if posterior.centre is None else centre + posterior.centre
    variance = posterior.form.variance(centre[None])[0] + posterior.offset_variance
    return std, np.broadcast_to(np.sqrt(variance) * model.calibration_, m)


class Summary(BaseEstimator):
    """Adds a summary of the fitted model to scikit-learn's diagram of its parameters.

    Subclasses have the descriptions of parameters and attributes that base classes give.
    """

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        complete_docstring(cls)

    def summary(self, coverage: float = 0.95) -> ModelSummary:
        """Return the fitted model as a table.

        It lists the noise, the evidence, the calibration and the stop reason, and the coefficient,
        standard deviation and interval of each column or function. A Gaussian process has the
        relevance of each input in place of its hundreds of functions. It is printed as a table,
        and rendered in notebooks.

        Parameters
        ----------
        coverage : float, default=0.95
            Probability of the interval of each coefficient.

        Returns
        -------
        summary : ModelSummary
            Its `to_frame` returns the table as a pandas DataFrame.
        """
        check_is_fitted(self)
        if not 0.0 < coverage < 1.0:
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}.")
        return ModelSummary(
            type(self).__name__,
            self._summary_pairs(),
            self._summary_terms(),
            coverage,
            self._summary_inputs(),
        )

    def _summary_terms(self) -> list[Term]:
        """Return the coefficients of the fitted model."""
        return coefficient_terms(self)

    def _summary_inputs(self) -> list[tuple[str, float]]:
        """Return the inputs of the fitted model and their relevance."""
        return relevant_inputs(self)

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
