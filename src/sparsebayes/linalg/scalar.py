"""Maximisation of a function of one variable, such as a log evidence over the log of lam."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar


def maximise(
    value: Callable[[float], float],
    low: float,
    high: float,
    *,
    step: float | None,
    tol: float,
    start: float | None = None,
    max_evaluations: int = 30,
) -> tuple[float, float]:
    """Return where a function is largest between `low` and `high`, and its value there.

    With `step` the function is evaluated on a grid, because it may have several maxima, and Brent's
    method refines the best point; without, Brent's method searches the whole interval. From a
    `start` the search goes uphill in steps and then fits parabolas, which takes few evaluations;
    where the function is -inf it goes to the right.

    Parameters
    ----------
    value : callable
    low, high : float
    step : float or None
        Spacing of the grid, or length of the first steps from `start`; None if the function has one
        maximum.
    tol : float
        Accuracy of the position.
    start : float, optional
        Position near the maximum.
    max_evaluations : int, default=30
        Limit of the search from `start`.

    Examples
    --------
    >>> from sparsebayes.linalg.scalar import maximise
    >>> x, height = maximise(lambda x: 1 - (x - 2) ** 2, 0, 10, step=1, tol=1e-6)
    >>> round(x, 4), round(height, 4)
    (2.0, 1.0)
    """
    if step is None:
        return _by_brent(value, low, high, tol)
    if start is None:
        return _on_grid(value, low, high, step, tol)
    start = min(max(start, low), high)
    values = {start: value(start)}
    for x in {max(start - step, low), min(start + step, high)} - {start}:
        values[x] = value(x)
    while len(values) < max_evaluations:
        xs = np.array(sorted(values))
        fs = np.array([values[x] for x in xs])
        i = len(fs) - 1 - int(np.argmax(fs[::-1]))
        if i in (0, len(xs) - 1):
            x = min(max(xs[i] + (step if i else -step), low), high)
        else:
            (p, q, r), (fp, fq, fr) = xs[i - 1 : i + 2], fs[i - 1 : i + 2]
            with np.errstate(all="ignore"):
                curve = (q - p) * (fq - fr) - (q - r) * (fq - fp)
                x = q - 0.5 * ((q - p) ** 2 * (fq - fr) - (q - r) ** 2 * (fq - fp)) / curve
            if not p < x < r:  # the function is -inf on one side
                x = 0.5 * (q + (p if q - p > r - q else r))
            if abs(x - q) < tol:
                break
        if float(x) in values:
            break
        values[float(x)] = value(float(x))
    best = max(values, key=values.__getitem__)
    return best, values[best]


def _on_grid(
    value: Callable[[float], float], low: float, high: float, step: float, tol: float
) -> tuple[float, float]:
    grid = np.linspace(low, high, max(4, int((high - low) / step) + 1))
    values = np.array([value(x) for x in grid])
    j = int(np.argmax(values))
    x, height = _by_brent(value, grid[max(j - 1, 0)], grid[min(j + 1, len(grid) - 1)], tol)
    return (x, height) if height > values[j] else (float(grid[j]), float(values[j]))


def _by_brent(
    value: Callable[[float], float], low: float, high: float, tol: float
) -> tuple[float, float]:
    optimum = minimize_scalar(
        lambda x: -value(x), bounds=(low, high), method="bounded", options={"xatol": tol}
    )
    return float(optimum.x), float(-optimum.fun)
