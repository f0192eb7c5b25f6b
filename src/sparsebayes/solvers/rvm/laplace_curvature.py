"""The Gaussian model around a mode of logistic labels, seen by one column at a time.

Around the mode the likelihood is Gaussian with the precisions Omega = sigma(y) sigma(-y). A column
h of the design then has the statistics of a regression with unit noise. With H the curvature of the
penalised likelihood over the active columns Phi, and W = H^-1,

    absent:   S = h'Omega h - h'Omega Phi W Phi'Omega h,   Q = h'(label - sigma(y)),
    active:   s = 1/W_jj - alpha_j,                        q = w_j / W_jj.

Columns are centred by Omega where the model has an intercept. The optimum of one precision is
alpha = s^2/(q^2 - s), or infinity: the column is absent (Tipping & Faul 2003).

`LaplaceCurvature` computes the statistics, and `column_gains` turns them into nats. In the same
Gaussian model `sweep_precisions` moves one precision after the other to its optimum, and
`newton_precisions` moves all of them together.
"""

from __future__ import annotations

import numpy as np

from ..._array import to_numpy
from ...designs import Design
from ...designs.lowrank import LowRank
from ...posterior import Posterior, likelihood_slopes
from .one_column import SMALLEST_LAM, adding_gain, moving_gain
from .polish import (
    ColumnSet,
    Model,
    absent_gains,
    leave_saddle,
    model_at,
    newton,
    present_gains,
    sweep,
)

UNIT_NOISE = 0.0, 1.0, 1.0  # E (not used), n and sigma2 of this regression
_SWEEPS = 4  # around one mode
_SPAN = 1e-10  # S/|h|^2 below which a column lies in the span of the model
CONSTANT = 1e-12  # of |h|^2: what centring leaves of a constant column
_AT_REST = 1e-3  # nats of Newton steps, below which they may have ended at a saddle
_MOST_RIDGE = 1e-2  # largest alpha/|h|^2 that rounding can require

Statistics = tuple[np.ndarray, np.ndarray, np.ndarray]


class LaplaceCurvature:
    """The Gaussian approximation around a mode with latent values y.

    Parameters
    ----------
    y : array of shape (n_rows,)
        Latent values at the mode.
    t : array of shape (n_rows, 2)
        Weight of the positive labels in each row, and of all its labels.
    posterior : Posterior
        The posterior of the active weights, from `laplace_posterior`.
    Phi : array of shape (n_rows, k)
        The active columns.
    intercept : bool
        Whether the model has an intercept.
    """

    def __init__(
        self,
        y: np.ndarray,
        t: np.ndarray,
        posterior: Posterior,
        Phi: np.ndarray,
        intercept: bool,
    ) -> None:
        residual, self.omega = likelihood_slopes(y, t)
        self.total = float(np.sum(self.omega))
        self.intercept = intercept
        # Phi'Omega h needs only one side centred.
        V = (self.omega[:, None] * (Phi - posterior.centre)) @ posterior.form.root
        self._right = np.column_stack([V, residual, self.omega])

    def gram(self, Phi: np.ndarray) -> np.ndarray:
        """Return Phi'Omega Phi, of centred columns where there is an intercept."""
        H = Phi - self.omega @ Phi / self.total if self.intercept else Phi
        H = H * np.sqrt(self.omega)[:, None]
        return H.T @ H

    def statistics(self, design: Design) -> Statistics:
        """Return S, Q and h'Omega h of all columns of a design, in one pass over its rows."""
        out = np.zeros((design.n_candidates, self._right.shape[1]))
        squares = np.zeros(design.n_candidates)
        for rows, block in design.blocks():
            H = to_numpy(block)
            out += H.T @ self._right[rows]
            squares += np.einsum("i,ij,ij->j", self.omega[rows], H, H)
        return self._finish(out, squares)

    def compressed_statistics(self, factor: LowRank) -> Statistics:
        """Return S, Q and h'Omega h of all candidates from their compression Phi ~ R F."""
        H = factor.rows * np.sqrt(self.omega)[:, None]
        squares = np.einsum("ij,ij->j", factor.factor, (H.T @ H) @ factor.factor)
        return self._finish(factor.factor.T @ (factor.rows.T @ self._right), squares)

    def _finish(self, out: np.ndarray, squares: np.ndarray) -> Statistics:
        T, Q, sums = out[:, :-2], out[:, -2], out[:, -1]
        norms = squares
        if self.intercept:
            norms = squares - sums**2 / self.total
            norms[norms < CONSTANT * squares] = 0.0
        return norms - np.einsum("ij,ij->i", T, T), Q, norms


def addition_gains(statistics: Statistics) -> np.ndarray:
    """Return the nats that adding each absent column alone, at its optimum, would gain."""
    return adding_gain(*statistics, *UNIT_NOISE, _SPAN)[1]


def column_gains(
    statistics: Statistics,
    active: np.ndarray,
    alpha: np.ndarray,
    posterior: Posterior,
    floor: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nats that moving each precision alone gains, and which active columns should go.

    Parameters
    ----------
    statistics : (S, Q, norms)
        Statistics of all columns as if absent; those of active columns are not used.
    active : array of int of shape (k,)
        The active columns.
    alpha, floor : arrays of shape (k,)
        Their precisions, and the smallest value that each may take.
    posterior : Posterior
        The posterior of their weights.

    Returns
    -------
    gains : array of shape (n_columns,)
        Nats that the optimum of each column gains.
    leaving : array of bool of shape (k,)
        Whether the optimum of an active column is to be absent.
    """
    gains = addition_gains(statistics)
    root = posterior.form.root
    W = np.einsum("ij,ij->i", root, root)
    optimum, change = moving_gain(W, posterior.mean, alpha, floor / SMALLEST_LAM, *UNIT_NOISE)
    gains[active] = np.where(np.isfinite(change), change, 0.0)
    return gains, np.isinf(optimum)


def sweep_precisions(
    G: np.ndarray, b: np.ndarray, alpha: np.ndarray, floor: np.ndarray, tol: float
) -> tuple[np.ndarray, np.ndarray]:
    """Move each precision to its own optimum, the most profitable first, until none gains `tol`.

    The Gaussian model has H = G + A and H w = b over the active columns. An absent column has
    alpha = inf, and no alpha falls below `floor`. Returns alpha and w.
    """
    columns = ColumnSet(np.arange(len(b)), G, b, 0.0, 1.0, 1.0, 0.0, floor=floor, span=_SPAN)
    A = np.flatnonzero(np.isfinite(alpha))
    model = _model_at(columns, A, alpha[A])
    for _ in range(_SWEEPS):
        gains = absent_gains(columns, model)
        gains[model.A], leaving = present_gains(columns, model)
        gains[model.A[leaving]] += tol  # a column goes however little that gains
        order = np.argsort(-gains, kind="stable")
        order = order[gains[order] > tol]
        if len(order) == 0:
            break
        model = sweep(columns, model, order, still=0.0)
    alpha, w = np.full(len(b), np.inf), np.zeros(len(b))
    alpha[model.A], w[model.A] = model.lam, model.mu
    return alpha, w


def _model_at(columns: ColumnSet, A: np.ndarray, alpha: np.ndarray) -> Model:
    """Return the model at these precisions, raised until float64 can factor its curvature."""
    least = SMALLEST_LAM
    while True:
        try:
            return model_at(columns, A, np.maximum(alpha, least * columns.norms[A]))
        except np.linalg.LinAlgError:
            least *= 10.0
            if least > _MOST_RIDGE:
                raise


def newton_precisions(
    G: np.ndarray, slope: np.ndarray, alpha: np.ndarray, w: np.ndarray, floor: np.ndarray
) -> tuple[Model, float]:
    """Take Newton steps on all precisions together; return the new model and the nats gained.

    `slope` is the gradient of the penalised likelihood's data term at w: the Gaussian model around
    w has H = G + A and the right-hand side G w + slope.
    """
    k = len(alpha)
    columns = ColumnSet(np.arange(k), G, slope + G @ w, 0.0, 1.0, 1.0, 0.0, floor=floor)
    model = _model_at(columns, np.arange(k), alpha)
    moved = newton(columns, model)
    if moved.L - model.L < _AT_REST:
        moved = leave_saddle(columns, moved)
    return moved, moved.L - model.L
