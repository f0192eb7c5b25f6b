"""What a fitted model found, in a few words: for the command line and for notebooks."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

_NUMBERS = {
    "kernel": "kernel_",
    "log evidence": "log_evidence_",
    "noise variance": "noise_variance_",
    "steps": "n_iter_",
    "converged": "converged_",
}
_CELL = "border-bottom:1px solid rgba(128,128,128,.35);padding:.15em .6em;text-align:left"


def facts(model: Any, names: Any = None) -> list[tuple[str, str]]:
    """Label and value of what a fitted model says about itself; `names` are those of its inputs."""
    found = []
    for label, attribute in _NUMBERS.items():
        value = getattr(model, attribute, None)
        if value is not None and np.ndim(value) == 0:
            found.append((label, f"{value:.6g}" if isinstance(value, float) else str(value)))
        elif label == "noise variance" and value is not None and np.size(value):
            found.append((label, f"{np.min(value):.4g} to {np.max(value):.4g}"))
    gamma = getattr(model, "gamma_", None)
    if gamma is not None and np.ndim(gamma) == 0:
        found.append(("gamma", f"{gamma:.6g}"))
    relevance = getattr(model, "feature_relevance_", None)
    if relevance is not None and np.ptp(relevance) > 0:  # one width for all says nothing
        if names is None:
            names = getattr(model, "feature_names_in_", [f"x{j}" for j in range(len(relevance))])
        order = [j for j in np.argsort(-relevance) if relevance[j] >= 0.01][:6]
        found.append(
            ("most relevant", ", ".join(f"{names[j]} ({relevance[j]:.2g})" for j in order))
        )
    return found


class Summary(BaseEstimator):
    """Puts what a fitted model found under scikit-learn's diagram of its parameters."""

    def _found(self) -> list[tuple[str, str]]:
        found = facts(self)
        active = getattr(self, "active_", None)
        return found if active is None else [("active terms", str(len(active))), *found]

    def _html_repr(self) -> str:
        html = super()._html_repr()
        try:
            check_is_fitted(self)
        except NotFittedError:
            return html
        cells = "".join(
            f'<tr><th style="{_CELL}">{escape(label)}</th><td style="{_CELL}">{escape(value)}</td>'
            for label, value in self._found()
        )
        return (
            f'{html}<table class="sparsebayes-found" style="border-collapse:collapse;'
            f'font-size:.9em;margin:.4em 0">{cells}</table>'
        )
