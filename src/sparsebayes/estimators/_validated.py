"""How many terms of a path predict rows best that had no part in it."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from ._sklearn import check_sample_weight
from ._subset import is_text


def validated_terms(model: Any, X: np.ndarray, y: Any, sample_weight: Any) -> int:
    """The number of terms that predict held out rows best, on a path chosen without them.

    `model` is a `ForwardRegressor` with its kernel set; a clone of it chooses the path.
    """
    y = np.asarray(y, dtype=np.float64).ravel()
    weight = np.ones(len(y)) if sample_weight is None else check_sample_weight(sample_weight, X)
    choice = model._choice()
    order = choice.rng.permutation(len(y))
    n_out = min(len(y) - 2, max(1, round(model.validation_fraction * len(y))))
    if n_out < 1:
        raise ValueError(
            f"early_stopping='validation' needs at least 3 rows, got {len(y)}: use 'evidence'."
        )
    out, rest = np.sort(order[:n_out]), np.sort(order[n_out:])
    trial = clone(model).set_params(early_stopping=None, refit=None)
    if hasattr(model, "gamma_"):
        trial.set_params(kernel=model.kernel_, gamma=model.gamma_)
    if model.kernel is not None and np.ndim(model.candidates) == 1:
        trial.set_params(candidates=choice.columns(len(rest), rest))
    precomputed = is_text(model.kernel, "precomputed")
    trial.fit(
        X[np.ix_(rest, rest)] if precomputed else X[rest],
        y[rest],
        None if sample_weight is None else weight[rest],
    )
    held_out = X[np.ix_(out, rest)] if precomputed else X[out]
    errors = (trial._chosen.predictions(held_out) - y[out, None]) ** 2
    return int(np.argmin(np.average(errors, axis=0, weights=weight[out])))
