"""Predictions of Dask arrays, block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


def predict_blocks(model: Any, X: Any, return_std: bool) -> Any:
    """Mean, or mean and standard deviation, as Dask arrays that are computed when asked for."""
    from ..execution.dask import map_rows

    if X.ndim != 2 or X.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has shape {X.shape}, but {type(model).__name__} was fitted to "
            f"{model.n_features_in_} features."
        )
    dtype = np.float32 if X.dtype == np.float32 else np.float64
    both = map_rows(Predict(model, return_std), X, 1 + return_std, dtype)
    return (both[:, 0], both[:, 1]) if return_std else both[:, 0]


@dataclass(frozen=True)
class Predict:
    """Predictions as columns."""

    model: Any
    return_std: bool

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Of one block of rows."""
        predicted = self.model.predict(X, return_std=self.return_std)
        return np.column_stack(predicted if self.return_std else [predicted])
