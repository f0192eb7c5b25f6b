"""From the `smoothers` of a user to components: a regressor and the columns that it sees."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter


def n_components(smoothers: Any, n_features: int) -> int:
    """How many components there are: one per entry of a list, else one per column."""
    return len(smoothers) if isinstance(smoothers, list | tuple) else n_features


def components(smoothers: Any, n_features: int, seed: int) -> list[tuple[Any, np.ndarray]]:
    """Unfitted regressors with their columns; those that draw get `seed`, to be the same always."""
    given = smoothers if isinstance(smoothers, list | tuple) else [smoothers] * n_features
    pairs = [entry if isinstance(entry, tuple) else (entry, None) for entry in given]
    if any(columns is None for _, columns in pairs) and len(pairs) != n_features:
        raise ValueError(
            f"smoothers has {len(pairs)} entries, but X has {n_features} columns: give one "
            "regressor per column, or pairs (regressor, columns)."
        )
    parts = []
    for m, (smoother, columns) in enumerate(pairs):
        if not (hasattr(smoother, "fit") and hasattr(smoother, "predict")):
            raise ValueError(
                f"smoothers[{m}] must be a regressor with fit and predict, got {smoother!r}."
            )
        columns = np.atleast_1d([m] if columns is None else columns)
        if columns.dtype.kind not in "iu" or np.any(columns < 0) or np.any(columns >= n_features):
            raise ValueError(
                f"smoothers[{m}] names the columns {columns.tolist()}: use numbers from 0 to "
                f"{n_features - 1}."
            )
        smoother = clone(smoother)
        settings = smoother.get_params()
        draws = [k for k in settings if k.endswith("random_state") and settings[k] is None]
        parts.append((smoother.set_params(**dict.fromkeys(draws, seed)), columns))
    return parts


def check_weights_are_taken(smoothers: Any) -> None:
    """Refuse sample weights that a smoother would not see."""
    for entry in smoothers if isinstance(smoothers, list | tuple) else [smoothers]:
        smoother = entry[0] if isinstance(entry, tuple) else entry
        if not has_fit_parameter(smoother, "sample_weight"):
            raise ValueError(
                f"{smoother!r} takes no sample_weight, so this model has to be fitted without."
            )
