"""Marginals of EP through a d x d matrix, for at most as many columns as rows.

See `marginals` for the quantities. A call costs O(d^3); for one noise variance the rows are folded
into a triangle once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg.lapack import dpotri, dpotrs, dtrtri

from ...linalg.blocks import ColumnBlocks, times, transposed
from ...posterior import Dense
from .marginals import BlockLikelihood, Marginals, factor

if TYPE_CHECKING:
    from .sites import SpikeSlabSites


class ColumnForm:
    """The data of a group model with at most as many columns as rows.

    Parameters
    ----------
    X : array of shape (n_rows, n_columns)
        The columns in bucket order.
    y : array of shape (n_rows,)
        The target.
    blocks : ColumnBlocks
        The columns of each site.
    fold : bool, default=True
        Whether all rows have the same noise variance, so that a triangular factor can replace them.
    """

    def __init__(
        self, X: np.ndarray, y: np.ndarray, blocks: ColumnBlocks, fold: bool = True
    ) -> None:
        n, d = X.shape
        if fold and n > d + 1:
            # |y - X w|^2 is all that one common noise variance needs of the rows.
            R = np.asarray(np.linalg.qr(np.column_stack([X, y]), mode="r"))
            X, y = R[:, :d], R[:, d]
        self.X, self.y, self.blocks = X, y, blocks
        self.mean_square = float(np.vdot(X, X)) / d or 1.0
        self._gram = X.T @ X if fold else None
        at = np.arange(d)
        self._at: list[np.ndarray] = [
            at[b.start : b.start + b.columns.size].reshape(b.columns.shape) for b in blocks.buckets
        ]

    def with_blocks(self, blocks: ColumnBlocks) -> ColumnForm:
        """Return the same data in other blocks of the same order."""
        return ColumnForm(self.X, self.y, blocks, fold=self._gram is not None)

    def marginals(
        self,
        half: list[np.ndarray],
        nu: list[np.ndarray],
        precision: float | np.ndarray,
        target: np.ndarray | None = None,
        rough: bool = False,
    ) -> Marginals:
        """Compute the marginals as `RowForm.marginals` does, always in double precision."""
        y = self.y if target is None else target
        D2 = np.broadcast_to(precision, y.shape)
        gram = self._gram * precision if self._gram is not None else (self.X.T * D2) @ self.X
        excess = self._whiten(half, self._whiten(half, gram).T)  # A - I = F'X'D^2 X F
        A = np.array(excess, order="F")
        A[np.diag_indices(len(A))] += 1.0
        diagonal = np.diag(A).copy()
        L = factor(A)
        inverse, _ = dpotri(L, lower=1)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T

        inner = [times(F, s) for F, s in zip(half, nu, strict=True)]
        fitted = self.X @ self._spread(half, inner)
        misfit = y - fitted
        u, _ = dpotrs(L, self._whiten(half, (self.X.T @ (D2 * misfit))[:, None]), lower=1)
        u = u[:, 0]
        q = [u[at] for at in self._at]
        left_over = misfit - self.X @ self._spread(half, q)
        residual, power = float(left_over @ (D2 * left_over)), float(u @ u)
        # As u minimises `quadratic`, its own error enters by the square.
        size, eps = float(diagonal @ u**2), float(np.finfo(float).eps)
        rounding = eps * float(np.sqrt(residual * (residual + size)))
        spread = float(diagonal @ np.diag(inverse))
        rounding += eps * spread * (1.0 + eps * size)
        H, M = [], []
        for at in self._at:
            rows, columns = at[:, :, None], at[:, None, :]
            Mg = inverse[rows, columns]
            Hg = np.eye(at.shape[1]) - Mg
            # Where the data add little, 1 - M has lost it: take H = (A - I) A^-1 there.
            weak = np.einsum("gii->g", excess[rows, columns]) <= 1.0
            if weak.any():
                Hg[weak] = excess[at[weak]] @ np.moveaxis(inverse[:, at[weak]], 0, 1)
                Hg[weak] = 0.5 * (Hg[weak] + transposed(Hg[weak]))
            H.append(Hg)
            M.append(Mg)
        return Marginals(
            H,
            q,
            M,
            log_det=2.0 * float(np.log(np.diag(L)).sum()),
            quadratic=residual + power,
            residual=residual,
            rounding=rounding,
            n_used=len(A) - float(np.trace(inverse)),
            root=dtrtri(L, lower=1)[0],
            fitted=fitted,
        )

    def likelihood(
        self,
        at: np.ndarray,
        half: list[np.ndarray],
        nu: list[np.ndarray],
        precision: float | np.ndarray,
        target: np.ndarray | None = None,
    ) -> BlockLikelihood:
        """Return the likelihood of some weights, as `RowForm.likelihood` does.

        It is that of the data, less what the other sites explain.
        """
        y = self.y if target is None else target
        D2 = np.broadcast_to(precision, y.shape)
        if not any(np.any(F) for F in half):  # there are no other sites
            return BlockLikelihood(np.sqrt(D2)[:, None] * self.X[:, at], np.sqrt(D2) * y, 0.0)
        gram = self._gram * precision if self._gram is not None else (self.X.T * D2) @ self.X
        A = np.array(self._whiten(half, self._whiten(half, gram).T), order="F")
        A[np.diag_indices(len(A))] += 1.0
        L = factor(A)
        inner = [times(F, s) for F, s in zip(half, nu, strict=True)]
        misfit = y - self.X @ self._spread(half, inner)
        pull = self.X.T @ (D2 * misfit)
        explained = self._whiten(half, np.column_stack([gram[:, at], pull]))
        solved = dpotrs(L, explained, lower=1)[0]
        less = explained[:, :-1].T @ solved
        values, vectors = np.linalg.eigh(gram[np.ix_(at, at)] - less[:, :-1])
        root = np.sqrt(np.maximum(values, np.finfo(float).eps * values[-1]))
        root = np.maximum(root, np.finfo(float).tiny)
        z = (vectors.T @ (pull[at] - less[:, -1])) / root
        # The part of (y - X S nu)'C^-1 (y - X S nu), C of the others, that no weight explains.
        u = solved[:, -1]
        unexplained = misfit - self.X @ self._spread(half, [u[b] for b in self._at])
        quadratic = float(unexplained @ (D2 * unexplained) + u @ u)
        log_constant = -float(np.log(np.diag(L)).sum()) - 0.5 * (quadratic - float(z @ z))
        return BlockLikelihood((vectors * root).T, z, log_constant)

    def cross(self, at: np.ndarray, sites: SpikeSlabSites, m: Marginals) -> list[np.ndarray]:
        """Return the products as `RowForm.cross` does: F'X'C^-1 X F = I - A^-1."""
        product = -m.root.T @ m.root[:, at]
        product[at, np.arange(len(at))] += 1.0
        bucket, j = next(
            (i, (at[0] - b.start) // b.size)
            for i, b in enumerate(self.blocks.buckets)
            if at[0] < b.start + b.columns.size
        )
        product = product @ sites.root[bucket][j].T
        return [
            root @ product[b.start : b.start + b.columns.size].reshape(*b.columns.shape, len(at))
            for b, root in zip(self.blocks.buckets, sites.root, strict=True)
        ]

    def row_moments(
        self, half: list[np.ndarray], m: Marginals, precision: np.ndarray, target: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of X w on every row."""
        spread = m.root @ self._whiten(half, self.X.T)
        return m.fitted + self.X @ self._spread(half, m.q), np.sum(spread**2, axis=0)

    def weight_covariance(
        self, half: list[np.ndarray], root: np.ndarray, precision: float | None
    ) -> Dense:
        """Return V = F A^-1 F' = (F L^-T)(F L^-T)'; `precision` is not needed here."""
        V_root = np.empty_like(root)
        for bucket, F in zip(self.blocks.buckets, half, strict=True):
            at = slice(bucket.start, bucket.start + bucket.columns.size)
            parts = transposed(F) @ root.T[at].reshape(-1, bucket.size, len(root))
            V_root[bucket.columns.ravel()] = parts.reshape(-1, len(root))
        return Dense(V_root)

    def _whiten(self, half: list[np.ndarray], V: np.ndarray) -> np.ndarray:
        """Return F'V for V with one row per ordered column."""
        parts = [
            (F @ V[at.ravel()].reshape(*at.shape, -1)).reshape(at.size, -1)
            for F, at in zip(half, self._at, strict=True)
        ]
        return np.concatenate(parts)

    def _spread(self, half: list[np.ndarray], inner: list[np.ndarray]) -> np.ndarray:
        """Return F u as one vector in bucket order."""
        return np.concatenate(
            [times(transposed(F), u).ravel() for F, u in zip(half, inner, strict=True)]
        )
