"""The posterior of logistic labels by Laplace's method, and the log evidence that goes with it.

For labels with p(positive) = sigma(y), y = Phi w + b, w_j ~ N(0, 1/alpha_j) and a flat prior on b,
the posterior is not Gaussian. `laplace_posterior` takes the Gaussian of its mode and curvature.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from ..linalg import inverse_root, inverse_root_qr
from .covariance import Dense
from .gaussian import Posterior

# sigma(1 - sigma) of a saturated row is rounding error; its curvature is kept above this.
_SATURATED = 1e-14
_SMALLEST_STEP = 1e-10
_GRAM_LIMIT = 1e-12  # alpha/|h|^2 below which the Gram form loses the evidence's digits


def laplace_posterior(
    Phi: np.ndarray,
    counts: np.ndarray,
    alpha: np.ndarray,
    intercept: bool = True,
    start: tuple[np.ndarray, float] | None = None,
    tol: float = 1e-20,
    max_iter: int = 100,
) -> tuple[Posterior, np.ndarray]:
    """Mode, curvature and Laplace evidence of logistic labels, and the latent values at the mode.

    With y = Phi w + b and labels counted as `counts`, the mode maximises

        f(w, b) = sum_i [c_i1 y_i - c_i log(1 + exp y_i)] - 1/2 w'Aw,

    by Newton steps that are halved until f rises. With Omega = c sigma(y)(1 - sigma(y)) and
    Phi_c = Phi less its Omega-weighted means, H = Phi_c' Omega Phi_c + A, and

        log p(labels) ~ f + 1/2 sum log alpha - 1/2 log|H| + 1/2 log(2 pi / sum Omega),

    the last term from integrating out the intercept (flat prior), absent without one.

    Parameters
    ----------
    Phi : array of shape (n_rows, k)
        The functions at the rows.
    counts : array of shape (n_rows, 2)
        Weight of the positive labels in each row, and of all its labels.
    alpha : array of shape (k,)
        Precision of each weight.
    intercept : bool, default=True
        Whether there is b.
    start : (weights, intercept), optional
        Where to begin, if that is better than zero.
    tol : float, default=1e-20
        The last step promised to raise f by less than this fraction of 1 + abs(f).
    max_iter : int, default=100
        Most Newton steps.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior import laplace_posterior
    >>> counts = np.array([[3.0, 4.0]])
    >>> posterior, latent = laplace_posterior(np.empty((1, 0)), counts, np.empty(0))
    >>> round(float(posterior.intercept), 4), round(float(np.log(3)), 4)
    (1.0986, 1.0986)
    """
    w, b, y = np.zeros(len(alpha)), 0.0, np.zeros(len(Phi))
    value = _penalised(y, counts, w, alpha)
    if start is not None:
        # Far out on the wrong side the curvature vanishes and Newton steps lead nowhere.
        latent = Phi @ start[0] + start[1]
        known = _penalised(latent, counts, start[0], alpha)
        if known > value:
            (w, b), y, value = start, latent, known
    for _ in range(max_iter):
        sigma = expit(y)
        omega = counts[:, 1] * np.maximum(sigma * (1.0 - sigma), _SATURATED)
        residual = counts[:, 0] - counts[:, 1] * sigma
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
        dy = Phi @ dw + db
        step, new = 1.0, -np.inf
        rounding = 1e-15 * float(counts[:, 1] @ np.abs(y))
        while step > _SMALLEST_STEP:
            new = _penalised(y + step * dy, counts, w + step * dw, alpha)
            # Up to the rounding of its terms; false for a value that is not a number.
            if new >= value - 1e-13 * abs(value) - rounding:
                break
            step *= 0.5
        else:
            break
        w, b, y, value = w + step * dw, b + step * db, y + step * dy, new
        if promised <= tol * (1.0 + abs(value)):
            break
    log_evidence = value + 0.5 * float(np.sum(np.log(alpha))) - 0.5 * log_det
    if intercept:
        log_evidence += 0.5 * float(np.log(2.0 * np.pi / total))
    stuck = step <= _SMALLEST_STEP and promised > 1e-6 * (1.0 + abs(value))
    if stuck or not np.isfinite(log_evidence):
        raise np.linalg.LinAlgError(
            "The mode of the weights was not found: the columns or their precisions overflow. "
            "Scale the inputs."
        )
    offset = b + float(centre @ w) if intercept else 0.0
    variance = 1.0 / total if intercept else 0.0
    return Posterior(w, Dense(root), 0.0, float(log_evidence), offset, variance, centre), y


def log_likelihood(y: np.ndarray, counts: np.ndarray) -> float:
    """The log-likelihood of labels counted as `counts` at latent values y.

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
    return float(counts[:, 0] @ y - counts[:, 1] @ np.logaddexp(0.0, y))


def _penalised(y: np.ndarray, counts: np.ndarray, w: np.ndarray, alpha: np.ndarray) -> float:
    return log_likelihood(y, counts) - 0.5 * float(alpha @ (w * w))


def _curvature_root(H: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, float]:
    """A root of (H'H + A)^-1 and log|H'H + A|, from columns where the Gram form would break."""
    G = H.T @ H
    try:
        if np.any(alpha < _GRAM_LIMIT * np.diag(G)):
            raise np.linalg.LinAlgError
        return inverse_root(G, alpha)
    except np.linalg.LinAlgError:
        _, root, log_det = inverse_root_qr(H, alpha)
        return root, log_det
