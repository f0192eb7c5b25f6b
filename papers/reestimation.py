"""The re-estimation rule of Tipping (2001) as printed, with every detail that papers leave open.

The library's own ``algorithm="em"`` removes a function as soon as that raises the evidence, and
stops at a maximum. Published implementations removed functions above a threshold and stopped by
other rules. This module has those rules, to see how much a printed number of vectors depends on
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, lapack


@dataclass(frozen=True)
class Rule:
    """What a paper may leave open about re-estimation.

    Parameters
    ----------
    start : float
        Precision of every weight at the beginning.
    threshold : float
        A function whose precision exceeds it is removed.
    stop : {"precisions", "evidence"}
        Whether the iteration ends when no log precision changes by `tol`, or when the log evidence
        rises by less than `tol`.
    tol : float
        See `stop`.
    max_iter : int
        Largest number of iterations.
    """

    start: float = 1.0
    threshold: float = 1e12
    stop: str = "precisions"
    tol: float = 1e-3
    max_iter: int = 500


def reestimate(Phi: np.ndarray, t: np.ndarray, rule: Rule) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the functions that are kept, and their weights (equations 6 and 8)."""
    active = np.arange(Phi.shape[1])
    alpha, noise = np.full(len(active), rule.start), 0.1 * float(np.var(t))
    gram, projection, square = Phi.T @ Phi, Phi.T @ t, float(t @ t)
    evidence, weights = -np.inf, np.zeros(len(active))
    for _ in range(rule.max_iter):
        precision = gram[np.ix_(active, active)] / noise
        precision[np.diag_indices_from(precision)] += alpha
        try:
            factor = cho_factor(precision, lower=True)
        except np.linalg.LinAlgError:  # ill-conditioned, as the paper says of its own iterations
            break
        weights = cho_solve(factor, projection[active] / noise)
        inverse = lapack.dpotri(factor[0], lower=1)[0]
        gamma = np.clip(1.0 - alpha * np.diag(inverse), 1e-12, 1.0)
        residual = max(
            square
            - 2.0 * weights @ projection[active]
            + weights @ gram[np.ix_(active, active)] @ weights,
            1e-12 * square,
        )
        before, evidence = (
            evidence,
            0.5
            * (
                np.sum(np.log(alpha))
                - len(t) * np.log(noise)
                - 2.0 * np.sum(np.log(np.diag(factor[0])))
                - residual / noise
                - weights @ (alpha * weights)
            ),
        )
        new = gamma / np.maximum(weights**2, 1e-300)
        noise = residual / max(len(t) - np.sum(gamma), 1.0)
        keep = new < rule.threshold
        change = np.max(np.abs(np.log(new[keep] / alpha[keep])), initial=0.0)
        small = change if rule.stop == "precisions" else evidence - before
        active, alpha, weights = active[keep], new[keep], weights[keep]
        if not len(active) or (np.all(keep) and small < rule.tol):
            break
    return active, weights
