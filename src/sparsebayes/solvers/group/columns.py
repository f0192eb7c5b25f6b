"""The Gaussian part of EP where columns are not more than rows: through a d x d matrix.

What is computed, and why so, says `forms`. A call costs O(d^3); for a fixed noise variance
the rows are folded into a triangle once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotri, dpotrs, dtrtri

from ...linalg.blocks import Partition, times, transposed
from .forms import Marginals, factor


class ColumnForm:
    """Through the d x d matrix A. Parameters as in `RowForm`."""

    def __init__(self, X: np.ndarray, y: np.ndarray, blocks: Partition, fold: bool = True) -> None:
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

    def with_blocks(self, blocks: Partition) -> ColumnForm:
        """The same data, seen in other blocks of the same order."""
        return ColumnForm(self.X, self.y, blocks, fold=self._gram is not None)

    def marginals(
        self,
        half: list[np.ndarray],
        nu: list[np.ndarray],
        precision: Any,
        target: Any = None,
        rough: bool = False,
    ) -> Marginals:
        """As `RowForm.marginals`; always in double precision."""
        y = self.y if target is None else target
        D2 = np.broadcast_to(precision, y.shape)
        gram = self._gram * precision if self._gram is not None else (self.X.T * D2) @ self.X
        excess = self._whiten(half, self._whiten(half, gram).T)  # A - I = F'X'D^2 X F
        A = np.array(excess, order="F")
        A[np.diag_indices(len(A))] += 1.0
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
        residual = float(left_over @ (D2 * left_over))
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
            quadratic=residual + float(u @ u),
            residual=residual,
            n_used=len(A) - float(np.trace(inverse)),
            root=dtrtri(L, lower=1)[0],
            fitted=fitted,
        )

    def joint(
        self, at: np.ndarray, half: np.ndarray, m: Marginals
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `RowForm.joint`; A is in the coordinates of the sites already."""
        M = m.root[:, at].T @ m.root[:, at]
        return np.eye(len(at)) - M, M

    def row_moments(
        self, half: list[np.ndarray], m: Marginals, precision: np.ndarray, target: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of X w on every row."""
        spread = m.root @ self._whiten(half, self.X.T)
        return m.fitted + self.X @ self._spread(half, m.q), np.sum(spread**2, axis=0)

    def _whiten(self, half: list[np.ndarray], V: np.ndarray) -> np.ndarray:
        """F'V for V with one row per ordered column."""
        parts = [
            (F @ V[at.ravel()].reshape(*at.shape, -1)).reshape(at.size, -1)
            for F, at in zip(half, self._at, strict=True)
        ]
        return np.concatenate(parts)

    def _spread(self, half: list[np.ndarray], inner: list[np.ndarray]) -> np.ndarray:
        """F u as one vector in bucket order."""
        return np.concatenate(
            [times(transposed(F), u).ravel() for F, u in zip(half, inner, strict=True)]
        )
