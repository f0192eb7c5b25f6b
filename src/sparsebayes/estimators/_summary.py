"""A summary of a fitted model, for the command line and for notebooks."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

_ATTRIBUTES = {
    "kernel": "kernel_",
    "gamma": "gamma_",
    "log evidence": "log_evidence_",
    "converged": "converged_",
}
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


class Summary(BaseEstimator):
    """Adds a summary of the fitted model to scikit-learn's diagram of its parameters."""

    def _summary_pairs(self) -> list[tuple[str, str]]:
        pairs = facts(self)
        active = vars(self).get("active_")
        return pairs if active is None else [("active terms", str(len(active))), *pairs]

    def _html_repr(self) -> str:
        html = super()._html_repr()
        try:
            check_is_fitted(self)
        except NotFittedError:
            return html
        cells = "".join(
            f'<tr><th style="{_CELL}">{escape(label)}</th><td style="{_CELL}">{escape(value)}</td>'
            for label, value in self._summary_pairs()
        )
        return (
            f'{html}<table class="sparsebayes-summary" style="border-collapse:collapse;'
            f'font-size:.9em;margin:.4em 0">{cells}</table>'
        )
