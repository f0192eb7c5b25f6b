"""Predictions: their type, and those of Dask arrays, block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


def predict_blocks(model: Any, X: Any, return_std: bool) -> Any:
    """Mean, or mean and standard deviation, as Dask arrays that are computed when asked for."""
    both = apply_blocks(Apply(model, "predict", return_std), X, 1 + return_std, float_type(X))
    return (both[:, 0], both[:, 1]) if return_std else both[:, 0]


def apply_blocks(apply: Apply, X: Any, width: int, dtype: Any) -> Any:
    """What a method of a model gives for each block of rows, `width` values per row."""
    from ..execution.dask import map_rows

    model = apply.model
    if X.ndim != 2 or X.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has shape {X.shape}, but {type(model).__name__} was fitted to "
            f"{model.n_features_in_} features."
        )
    return map_rows(apply, X, width, dtype)


def float_type(X: Any) -> Any:
    """float32 in, float32 out."""
    return np.float32 if X.dtype == np.float32 else np.float64


def as_float(dtype: Any, *arrays: np.ndarray) -> Any:
    """One array or several in this type, or in float64 where it cannot hold one of them."""
    info = np.finfo(dtype)
    for array in arrays:
        size = np.max(np.abs(array), initial=0.0)
        if size > info.max or 0.0 < size < info.tiny:
            dtype = np.float64
    out = tuple(array.astype(dtype, copy=False) for array in arrays)
    return out if len(out) > 1 else out[0]


@dataclass(frozen=True)
class Apply:
    """A method of a model, its results as columns."""

    model: Any
    method: str
    return_std: bool = False

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Of one block of rows."""
        method = getattr(self.model, self.method)
        return np.column_stack(method(X, return_std=True) if self.return_std else [method(X)])
