"""Series as users give them, as records (inputs, outputs) and rows of lagged values."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from .simulation import Lags


def lag_tuple(lags: Any, first: int, name: str) -> tuple[int, ...]:
    """Lags that were given as the largest one, from `first` on, or one by one."""
    if is_whole(lags) and lags >= 0:
        return tuple(range(first, int(lags) + 1))
    if isinstance(lags, Iterable) and not isinstance(lags, str):
        values = sorted(set(lags))
        if all(is_whole(lag) and lag >= 0 for lag in values):
            return tuple(int(lag) for lag in values)
    raise ValueError(f"Every lag must be an integer of at least 0, got {name}={lags!r}.")


def is_whole(value: Any) -> bool:
    """Return whether this is an integer, and not a boolean."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def as_records(u: Any, y: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs (inputs (n, n_inputs), outputs (n,)), one per record."""
    several = isinstance(y, (list, tuple)) and len(y) > 0 and np.ndim(y[0]) > 0
    outputs = list(y) if several else [y]
    inputs = [None] * len(outputs) if u is None else list(u) if several else [u]
    if len(inputs) != len(outputs):
        raise ValueError(f"u has {len(inputs)} records, but y has {len(outputs)}.")
    pairs = [series(a, b) for a, b in zip(inputs, outputs, strict=True)]
    widths = {a.shape[1] for a, _ in pairs}
    if len(widths) > 1:
        raise ValueError(f"The records have different numbers of inputs: {sorted(widths)}.")
    return pairs


def series(u: Any, y: Any, n_inputs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """One record, checked: inputs (n, n_inputs) and outputs (n,)."""
    y = None if y is None else np.asarray(y, dtype=np.float64)
    if y is not None:
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.ndim != 1:
            raise ValueError(
                f"y must be one series, got an array of shape {y.shape}. Fit one model per output."
            )
    u = np.empty((0 if y is None else len(y), 0)) if u is None else np.asarray(u, dtype=np.float64)
    u = u[:, None] if u.ndim == 1 else u
    if u.ndim != 2:
        raise ValueError(f"u must have one column per input, got an array of shape {u.shape}.")
    if y is not None and len(u) != len(y):
        raise ValueError(f"u has {len(u)} rows, but y has {len(y)} values.")
    if n_inputs is not None and u.shape[1] != n_inputs:
        raise ValueError(f"u has {u.shape[1]} columns, but the model was fitted to {n_inputs}.")
    for name, values in (("u", u), ("y", y)):
        if values is not None and np.any(np.isinf(values)):
            raise ValueError(f"{name} contains infinite values. Use NaN for missing values.")
    return u, np.empty(0) if y is None else y


def rows(
    records: list[tuple[np.ndarray, np.ndarray]], lags: Lags
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return lagged values and output at the time steps with complete lags, and their stretch."""
    parts, targets, stretches, n = [], [], [], 0
    for u, y in records:
        if len(y) <= lags.max_lag:
            continue
        x = np.concatenate([lags.of_outputs(y), lags.of_inputs(u)])
        t = y[lags.max_lag :]
        observed = np.all(np.isfinite(x), axis=0) & np.isfinite(t)
        stretch = n + np.cumsum(~observed)
        n = int(stretch[-1]) + 1
        parts.append(x[:, observed])
        targets.append(t[observed])
        stretches.append(stretch[observed])
    if not parts:
        raise ValueError(
            f"No record is longer than the largest lag, {lags.max_lag}. Pass longer series, "
            "or use fewer lags."
        )
    return np.concatenate(parts, axis=1), np.concatenate(targets), np.concatenate(stretches)


def stretches(
    records: list[tuple[np.ndarray, np.ndarray]], least: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The records between missing inputs, where long enough."""
    out = []
    for u, y in records:
        gaps = np.flatnonzero(~np.all(np.isfinite(u), axis=1)) if u.shape[1] else np.zeros(0, int)
        ends = [-1, *gaps.tolist(), len(y)]
        for before, after in pairwise(ends):
            part = slice(before + 1, after)
            if after - before - 1 >= least and np.any(np.isfinite(y[part])):
                out.append((u[part], y[part]))
    return out
