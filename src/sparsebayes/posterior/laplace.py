"""The posterior of logistic labels by Laplace's method, and the log evidence that goes with it.

The labels have p(positive) = sigma(y) with y = Phi w + b, w_j ~ N(0, 1/alpha_j) and a flat prior on
b. Their posterior is not Gaussian. `laplace_posterior` approximates it by the Gaussian that has the
same mode and the same curvature there.

Labels enter as `counts`, an array with two columns: the weight of the positive labels of each row,
and the weight of all its labels. Likelihood, slopes and curvature are sums of terms of one sign, so
that they keep their digits however large the weights and the latent values are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dtrtri
from scipy.special import expit, log_expit

from ..linalg import inverse_root
from ..linalg.factor import triangle
from .covariance import Dense
from .gaussian import Posterior

# The curvature of a saturated row is kept above this, so that the intercept has a variance.
_SATURATED = 1e-14
_SHORTEST_STEP = 1e-10  # over the step that is sure to raise f in exact arithmetic
_ROUNDING = 1e-13  # relative error of f
_MOST_STEPS = 300
_NEAR_MODE = 1e-6  # of 1 + |f|: what the next Newton step may promise at the end
_GRAM_LIMIT = 1e-12  # alpha/|h|^2 below which the Gram form loses the evidence's digits


def laplace_posterior(
    Phi: np.ndarray,
    counts: np.ndarray,
    alpha: np.ndarray,
    intercept: bool = True,
    start: tuple[np.ndarray, float] | None = None,
    tol: float = 1e-20,
    max_iter: int | None = None,
) -> tuple[Posterior, np.ndarray]:
    """Return the Laplace approximation to the posterior of labels, and the latent values.

    With y = Phi w + b and labels counted as `counts`, the mode maximises

        f(w, b) = sum_i [c_i1 y_i - c_i log(1 + exp y_i)] - 1/2 w'Aw,

    found by Newton steps that are halved until f rises. With Omega = c sigma(y)(1 - sigma(y)) and
    Phi_c = Phi less its Omega-weighted means, H = Phi_c' Omega Phi_c + A, and

        log p(labels) ~ f + 1/2 sum log alpha - 1/2 log|H| + 1/2 log(2 pi / sum Omega),

    the last term from integrating out the intercept (flat prior), absent without one.

    Parameters
    ----------
    Phi : array of shape (n_rows, k)
        The basis functions at the rows.
    counts : array of shape (n_rows, 2)
        Weight of the positive labels in each row, and of all its labels.
    alpha : array of shape (k,)
        Precision of each weight.
    intercept : bool, default=True
        Whether the model has an intercept b.
    start : (weights, intercept), optional
        Where to begin, unless f is higher at zero.
    tol : float, default=1e-20
        The last step promised to raise f by less than this fraction of 1 + abs(f), or by no more
        than rounding errors.
    max_iter : int, optional
        Largest number of Newton steps. Without it, the point is the mode.

    Raises
    ------
    LinAlgError
        If the evidence overflows float64, or if the mode was not reached.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior import laplace_posterior
    >>> counts = np.array([[3.0, 4.0]])
    >>> posterior, latent = laplace_posterior(np.empty((1, 0)), counts, np.empty(0))
    >>> round(float(posterior.intercept), 4), round(float(np.log(3)), 4)
    (1.0986, 1.0986)
    """
    point = _Point(np.zeros(len(alpha)), 0.0, np.zeros(len(Phi)), -np.inf)
    point = point._replace(value=_penalised(point.y, counts, point.w, alpha))
    if start is not None:
        latent = Phi @ start[0] + start[1]
        value = _penalised(latent, counts, start[0], alpha)
        if value > point.value:
            point = _Point(*start, latent, value)
    promised = np.inf
    for _ in range(_MOST_STEPS if max_iter is None else max_iter):
        w, b, y, value = point
        before = promised
        residual, omega = likelihood_slopes(y, counts)
        total, slope_b = float(np.sum(omega)), float(np.sum(residual))
        centre = omega @ Phi / total if intercept else np.zeros(len(alpha))
        slope = Phi.T @ residual - alpha * w
        if intercept:
            slope -= slope_b * centre
        root, log_det = _curvature_root((Phi - centre) * np.sqrt(omega)[:, None], alpha)
        along = root.T @ slope
        dw = root @ along
        db = slope_b / total - float(centre @ dw) if intercept else 0.0
        promised = 0.5 * float(along @ along) + (0.5 * slope_b**2 / total if intercept else 0.0)
        new = _ascend(point, dw, db, Phi @ dw + db, counts, alpha)
        if new is None:
            break
        point = new
        least = _ROUNDING if promised > 0.5 * before else tol  # only rounding does not fall
        if promised <= least * (1.0 + abs(point.value)):
            break
    w, b, y, value = point
    log_evidence = value + 0.5 * float(np.sum(np.log(alpha))) - 0.5 * log_det
    if intercept:
        log_evidence += 0.5 * float(np.log(2.0 * np.pi / total))
    if not np.isfinite(log_evidence):
        raise np.linalg.LinAlgError(
            f"The log evidence of the labels overflows float64: columns have values up to "
            f"{np.max(np.abs(Phi), initial=0.0):.2g} and weights have prior precisions down to "
            f"{np.min(alpha, initial=np.inf):.2g}. Rescale the columns to values near 1."
        )
    if promised > _NEAR_MODE * (1.0 + abs(value)) and (new is None or max_iter is None):
        if start is not None:  # f may be higher there than at zero, and the way longer
            return laplace_posterior(Phi, counts, alpha, intercept, tol=tol, max_iter=max_iter)
        raise np.linalg.LinAlgError(
            f"Newton's method did not reach the mode of the weights: weights up to "
            f"{np.max(np.abs(w), initial=0.0):.2g} cancel each other to latent values up to "
            f"{np.max(np.abs(y)):.2g}. Use a narrower kernel (larger gamma), or drop columns that "
            "are nearly linear combinations of others."
        )
    offset = b + float(centre @ w) if intercept else 0.0
    variance = 1.0 / total if intercept else 0.0
    return Posterior(w, Dense(root), 0.0, float(log_evidence), offset, variance, centre), y


def log_likelihood(y: np.ndarray, counts: np.ndarray) -> float:
    """Return the log-likelihood of labels at given latent values.

    Parameters
    ----------
    y : array of shape (n_rows,)
        Log odds of the positive label.
    counts : array of shape (n_rows, 2)
        Weight of the positive labels in each row, and of all its labels.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior import log_likelihood
    >>> round(log_likelihood(np.zeros(3), np.ones((3, 2))), 4), round(3 * np.log(0.5), 4)
    (-2.0794, np.float64(-2.0794))
    """
    positive, negative = counts[:, 0], counts[:, 1] - counts[:, 0]
    return float(positive @ log_expit(y) + negative @ log_expit(-y))


def likelihood_slopes(y: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first derivative of the log-likelihood in each latent value, and the curvature.

    The curvature Omega is the negative second derivative, c sigma(y) sigma(-y), at least 1e-14 c.

    Parameters
    ----------
    y : array of shape (n_rows,)
        Log odds of the positive label.
    counts : array of shape (n_rows, 2)
        Weight of the positive labels in each row, and of all its labels.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior import likelihood_slopes
    >>> residual, omega = likelihood_slopes(np.array([0.0, 40.0]), np.ones((2, 2)))
    >>> residual, omega
    (array([5.00000000e-01, 4.24835426e-18]), array([2.5e-01, 1.0e-14]))
    """
    positive, negative = counts[:, 0], counts[:, 1] - counts[:, 0]
    sigma, complement = expit(y), expit(-y)
    omega = counts[:, 1] * np.maximum(sigma * complement, _SATURATED)
    return positive * complement - negative * sigma, omega


class _Point(NamedTuple):
    """Weights, intercept, their latent values, and the penalised log-likelihood f."""

    w: np.ndarray
    b: float
    y: np.ndarray
    value: float


def _ascend(
    point: _Point,
    dw: np.ndarray,
    db: float,
    dy: np.ndarray,
    counts: np.ndarray,
    alpha: np.ndarray,
) -> _Point | None:
    """Return the point after a Newton step, halved until f rises; None if it never does.

    The curvature of a row changes by at most the factor exp(|change of y|), so that a fraction
    log(1 + d)/d of the step, d = max |dy|, raises f in exact arithmetic (Bach 2010, proposition 1).
    Far out, where rows are saturated, that fraction is tiny.
    """
    d = float(np.max(np.abs(dy)))
    shortest = _SHORTEST_STEP * (np.log1p(d) / d if d > 0.0 else 1.0)
    step = 1.0
    while step > shortest:
        w, y = point.w + step * dw, point.y + step * dy
        value = _penalised(y, counts, w, alpha)
        if value >= point.value - _ROUNDING * abs(point.value):  # false for NaN
            return _Point(w, point.b + step * db, y, value)
        step *= 0.5
    return None


def _penalised(y: np.ndarray, counts: np.ndarray, w: np.ndarray, alpha: np.ndarray) -> float:
    return log_likelihood(y, counts) - 0.5 * float(alpha @ (w * w))


def _curvature_root(H: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, float]:
    """Return a root of (H'H + A)^-1 and log|H'H + A|, by QR where the Gram form would break."""
    G = H.T @ H
    try:
        if np.any(alpha < _GRAM_LIMIT * np.diag(G)):
            raise np.linalg.LinAlgError
        return inverse_root(G, alpha)
    except np.linalg.LinAlgError:
        R = triangle(np.vstack([H, np.diag(np.sqrt(alpha))]))
        root, info = dtrtri(R)
        if info != 0:
            raise np.linalg.LinAlgError("The augmented columns are singular in float64.") from None
        return root, 2.0 * float(np.sum(np.log(np.abs(np.diag(R)))))
