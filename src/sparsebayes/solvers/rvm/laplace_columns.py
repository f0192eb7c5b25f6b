"""Columns around a mode of logistic labels: their statistics, gains and optima.

Around the mode the likelihood is Gaussian with precisions Omega, a regression with unit noise:

    absent:   S = h'Omega h - h'Omega Phi H^-1 Phi'Omega h,   Q = h'(label - sigma(y))
    present:  s = 1/W_jj - alpha_j,  q = w_j / W_jj,          W = H^-1,

all with the columns centred by Omega where there is an intercept; the optimum of one column is
alpha = s^2/(q^2 - s), or absence.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from ..._array import to_numpy
from ...designs import Design
from ...designs.lowrank import LowRank
from ...linalg import inverse_root
from ...posterior import Posterior
from .one_column import SMALLEST_LAM, best, gain

_SWEEPS = 4  # around one mode
_SPAN = 1e-10  # S/|h|^2 below which a column lies in the span of the model
_CONSTANT = 1e-12  # of |h|^2: what centring leaves of a column that is constant

Statistics = tuple[np.ndarray, np.ndarray, np.ndarray]


class Curve:
    """The Gaussian approximation around a mode with latent values y, seen by columns."""

    def __init__(
        self,
        y: np.ndarray,
        t: np.ndarray,
        posterior: Posterior,
        Phi: np.ndarray,
        intercept: bool,
    ) -> None:
        sigma = expit(y)
        self.omega = t[:, 1] * sigma * (1.0 - sigma)
        self.total = max(float(np.sum(self.omega)), np.finfo(np.float64).tiny)
        self.intercept = intercept
        # Phi'Omega h needs only one side centred.
        V = (self.omega[:, None] * (Phi - posterior.centre)) @ posterior.form.root
        self._right = np.column_stack([V, t[:, 0] - t[:, 1] * sigma, self.omega])

    def gram(self, Phi: np.ndarray) -> np.ndarray:
        """Phi'Omega Phi, centred where there is an intercept."""
        H = Phi - self.omega @ Phi / self.total if self.intercept else Phi
        H = H * np.sqrt(self.omega)[:, None]
        return H.T @ H

    def statistics(self, design: Design) -> Statistics:
        """S, Q and h'Omega h of all columns of a design, in one pass."""
        out = np.zeros((design.n_candidates, self._right.shape[1]))
        squares = np.zeros(design.n_candidates)
        for rows, block in design.blocks():
            H = to_numpy(block)
            out += H.T @ self._right[rows]
            squares += np.einsum("i,ij,ij->j", self.omega[rows], H, H)
        return self._finish(out, squares)

    def compressed_statistics(self, factor: LowRank) -> Statistics:
        """The same from Phi ~ R F."""
        H = factor.rows * np.sqrt(self.omega)[:, None]
        squares = np.einsum("ij,ij->j", factor.factor, (H.T @ H) @ factor.factor)
        return self._finish(factor.factor.T @ (factor.rows.T @ self._right), squares)

    def _finish(self, out: np.ndarray, squares: np.ndarray) -> Statistics:
        T, Q, sums = out[:, :-2], out[:, -2], out[:, -1]
        norms = squares
        if self.intercept:
            norms = squares - sums**2 / self.total
            norms[norms < _CONSTANT * squares] = 0.0
        return norms - np.einsum("ij,ij->i", T, T), Q, norms


def absent_gains(S: np.ndarray, Q: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """Nats that adding each column alone would gain."""
    _, gains = best(S, Q, norms, 0.0, 1.0, 1.0)
    # In the span of the model S is rounding error.
    return np.where(S > _SPAN * norms, gains, 0.0)


def gains_of(
    S: np.ndarray,
    Q: np.ndarray,
    norms: np.ndarray,
    here: np.ndarray,
    alpha: np.ndarray,
    root: np.ndarray,
    w: np.ndarray,
    floor: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Nats that moving each column alone to its optimum would gain, and which optima are absence.

    S and Q are those of absent columns; the columns `here` are present, with alpha not under
    `floor`, a root of W, and w. The second array is about these.
    """
    gains = absent_gains(S, Q, norms)
    W = np.einsum("ij,ij->i", root, root)
    s, q = 1.0 / W - alpha, w / W
    optimum, value = best(s, q, floor / SMALLEST_LAM, 0.0, 1.0, 1.0)
    x = np.where(s > 0, s / (s + alpha), 0.0)
    change = value - gain(x, s, q, 0.0, 1.0, 1.0)
    gains[here] = np.where(np.isfinite(change), change, 0.0)
    return gains, np.isinf(optimum)


def sweep(
    G: np.ndarray, b: np.ndarray, alpha: np.ndarray, floor: np.ndarray, tol: float
) -> tuple[np.ndarray, np.ndarray]:
    """Columns to their own optima, the most profitable first, until none gains `tol`.

    The Gaussian model has H = G + A and H w = b over the columns present; alpha = inf is absent,
    and alpha is not under `floor`. Returns alpha and w.
    """
    alpha, norms = alpha.copy(), np.diag(G).copy()
    for _ in range(_SWEEPS):
        here = list(np.flatnonzero(np.isfinite(alpha)))
        root, _ = inverse_root(G[np.ix_(here, here)], alpha[here])
        w = root @ (root.T @ b[here])
        T = G[:, here] @ root
        S, Q = norms - np.einsum("ij,ij->i", T, T), b - G[:, here] @ w
        members = np.array(here, dtype=np.intp)
        gains, leaving = gains_of(S, Q, norms, members, alpha[members], root, w, floor[members])
        gains[members[leaving]] += tol  # a column goes however little that gains
        order = np.argsort(-gains, kind="stable")
        order = order[gains[order] > tol]
        if len(order) == 0:
            break
        W = root @ root.T
        for j in order:
            if np.isfinite(alpha[j]):
                i = here.index(j)
                column, v = W[:, i], W[i, i]
                new = _optimum(1.0 / v - alpha[j], w[i] / v, floor[j])
                # (H + d e e')^-1 with d = new - old, and its limit where the column goes.
                d = new - alpha[j]
                factor = 1.0 / v if np.isinf(new) else d / (1.0 + d * v)
                w = w - column * (factor * w[i])
                W = W - factor * np.multiply.outer(column, column)
                if np.isinf(new):
                    stay = np.arange(len(here)) != i
                    W, w = W[np.ix_(stay, stay)], w[stay]
                    here.pop(i)
            else:
                g = G[here, j]
                Wg = W @ g
                s, q = norms[j] - g @ Wg, b[j] - g @ w
                new = _optimum(s, q, floor[j])
                if np.isinf(new) or s <= _SPAN * norms[j]:
                    continue
                e = 1.0 / (s + new)
                W = np.block([[W + e * np.outer(Wg, Wg), -e * Wg[:, None]], [-e * Wg[None], e]])
                w = np.append(w - Wg * (e * q), e * q)
                here.append(j)
            alpha[j] = new
    full = np.zeros(len(alpha))
    full[here] = w
    return alpha, full


def _optimum(s: float, q: float, floor: float) -> float:
    """alpha of highest evidence for one column; inf is absence, and so is a number that is none."""
    excess = q * q - s
    return max(s * s / excess, floor) if s > 0.0 and excess > 0.0 else np.inf
