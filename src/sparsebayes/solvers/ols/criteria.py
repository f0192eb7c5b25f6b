"""What a candidate is worth, and where a path of models should end.

In the notation of `lrols`: w is a candidate less its projection on the chosen columns, s = w'w,
q = w't, lam its regulariser, rerr = q^2 / ((s + lam) t't).

    err             rerr
    d-optimality    rerr + beta log(s) / t't        since log|Phi'Phi| = sum log s over the chosen
    a-optimality    rerr - beta / s / t't
    press           least mean squared leave-one-out error, recursive in the chosen terms:
                    e(i) -= w(i) g,   eta(i) -= w(i)^2 / (s + lam),   mean of (e(i)/eta(i))^2

and over the path, with k parameters and squared residual sse, N log(sse/N) + penalty(N, k).

Leave-one-out with weights: a row of weight v stands for v equal rows of which one is left out. Its
weighted residual e and slack v eta (v less the leverage of the v copies) give v^2 (e / slack)^2.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

CRITERIA = ("err", "press", "d-optimality", "a-optimality")

# Infinite where the formula has no meaning.
_PENALTIES: dict[str, Callable[[float, float], float]] = {
    "aic": lambda n, k: 2.0 * k,
    "aicc": lambda n, k: 2.0 * k * n / (n - k - 1.0) if n > k + 1.0 else np.inf,
    "bic": lambda n, k: k * np.log(n),
    "fpe": lambda n, k: n * np.log((n + k) / (n - k)) if n > k else np.inf,
    "lilc": lambda n, k: 2.0 * k * np.log(np.log(n)) if n > np.e else np.inf,
}
STOPPING = (*_PENALTIES, "press")


def information(name: str, n: float, k: float, sse: float) -> float:
    """An information criterion of a model with k parameters; smaller is better."""
    if sse <= 0.0:
        return -np.inf
    return float(n * np.log(sse / n) + _PENALTIES[name](n, k))


def press(e: np.ndarray, slack: np.ndarray, weight: np.ndarray) -> float:
    """Mean squared leave-one-out error; infinite where the model interpolates a row."""
    if np.any(slack <= 0.0):
        return np.inf
    return float(np.sum(np.square(weight * e / slack)) / np.sum(weight))


def press_bounds(
    s: np.ndarray,
    g: np.ndarray,
    products: np.ndarray,
    e: np.ndarray,
    slack: np.ndarray,
    weight: np.ndarray,
) -> np.ndarray:
    """From below: summed squared leave-one-out errors with each of several columns added alone.

    A new column only takes slack away, so the sum is at least that of v^2 ((e - w g)/slack)^2 with
    the slack of now. `products` is w'x with x = v^2 e/slack^2, so all but the square of w is known
    without w, and that has at least the weight of the row of most slack.
    """
    if np.any(slack <= 0.0):
        return np.full(len(s), np.inf)
    tilt = np.square(weight / slack)
    return np.sum(tilt * np.square(e)) - 2.0 * g * products + np.min(tilt) * np.square(g) * s


def press_sums(
    W: np.ndarray,
    g: np.ndarray,
    d: np.ndarray,
    e: np.ndarray,
    slack: np.ndarray,
    weight: np.ndarray,
) -> np.ndarray:
    """On a block of rows: summed squared leave-one-out errors with each column of W added alone.

    `g` are the weights of the columns and `d` = s + lam. W is written over.
    """
    left = np.square(W)
    left *= -1.0 / d
    left += slack[:, None]
    W *= -g
    W += e[:, None]
    interpolated = np.min(left, initial=np.inf) <= 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        W /= left
    if interpolated:
        W[left <= 0.0] = np.inf
    return np.square(weight) @ np.square(W, out=W)
