"""Criteria for candidate terms, and rules for the end of a selection path.

In the notation of `selection`: w is a candidate less its projection on the chosen columns,
s = w'w, q = w't, lam its regulariser and rerr = q^2 / ((s + lam) t't). The criteria are

    err             rerr
    d-optimality    rerr + beta log(s) / t't        since log|Phi'Phi| = sum log s over the chosen
    a-optimality    rerr - beta / s / t't
    press           least mean squared leave-one-out error, recursive in the chosen terms:
                    e(i) -= w(i) g,   eta(i) -= w(i)^2 / (s + lam),   mean of (e(i)/eta(i))^2

The information criteria of a path, with k parameters and the residual sum of squares, are
N log(rss/N) + penalty(N, k). The extended BIC ("ebic", J. Chen & Z. Chen 2008) also counts the
models of k terms among m candidates: it adds 2 log C(m, k) to the BIC. Without that the best of
many useless columns lowers the BIC, down to a model that interpolates.

Leave-one-out with weights: a row of weight v stands for v equal rows, and one of them is left out.
Its weighted residual e and its slack v eta (v less the leverage of the v rows) give the error
v^2 (e / slack)^2.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import gammaln

CRITERIA = ("err", "press", "d-optimality", "a-optimality")

# Infinite where the formula is undefined.
_PENALTIES: dict[str, Callable[[float, float], float]] = {
    "aic": lambda n, k: 2.0 * k,
    "aicc": lambda n, k: 2.0 * k * n / (n - k - 1.0) if n > k + 1.0 else np.inf,
    "bic": lambda n, k: k * np.log(n),
    "ebic": lambda n, k: k * np.log(n),  # and 2 log C(m, k), see `information`
    "fpe": lambda n, k: n * np.log((n + k) / (n - k)) if n > k else np.inf,
    "lilc": lambda n, k: 2.0 * k * np.log(np.log(n)) if n > np.exp(1.0) else np.inf,
}
STOPPING = (*_PENALTIES, "press")


def information(
    name: str, n: float, k: float, rss: float, n_terms: int = 0, n_candidates: int = 0
) -> float:
    """Return an information criterion of a model with k parameters; smaller is better.

    ``"ebic"`` needs the numbers of terms and of candidates.
    """
    if rss <= 0.0:
        return -np.inf
    value = n * np.log(rss / n) + _PENALTIES[name](n, k)
    if name == "ebic":
        j, m = min(n_terms, n_candidates // 2), n_candidates
        value += 2.0 * (gammaln(m + 1.0) - gammaln(j + 1.0) - gammaln(m - j + 1.0))
    return float(value)


def press(e: np.ndarray, slack: np.ndarray, weight: np.ndarray) -> float:
    """Return the mean squared leave-one-out error; infinite if the model interpolates a row."""
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
    """Bound the summed squared leave-one-out error with each of several columns added from below.

    A new column can only reduce the slack, so the sum is at least that of v^2 ((e - w g)/slack)^2
    with the present slack. `products` is w'x with x = v^2 e/slack^2, so that w itself is needed for
    its square alone, and every row has at least the factor of the row of largest slack there.
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
    """Return the summed squared leave-one-out error of a block of rows, for each column of W added.

    `g` are the weights of the columns and `d` = s + lam. W is overwritten.
    """
    new_slack = np.square(W)
    new_slack *= -1.0 / d
    new_slack += slack[:, None]
    W *= -g
    W += e[:, None]
    interpolated = np.min(new_slack, initial=np.inf) <= 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        W /= new_slack
    if interpolated:
        W[new_slack <= 0.0] = np.inf
    return np.square(weight) @ np.square(W, out=W)
