"""Marginals of EP through an n x n matrix, for more columns than rows.

See `marginals` for the quantities. A call costs 2 n^2 d flops: one rank-k update for A and one
triangular product for L^-1 D X, in pieces of about 512 columns that stay in the cache. A product
with the explicit inverse of L is three times as fast as a triangular solve of full width.

The rank-k update leaves out the blocks whose sites have not changed since the last call, as long as
they are many; every `_REFRESH` calls it is made afresh. A caller who needs no more than four or
five digits (`rough`) gets both products in single precision for the blocks that add little to A:
their rounding is then far below what is needed. The others, whose M would lose digits, stay double.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dsyrk, dtrmm, ssyrk, strmm
from scipy.linalg.lapack import dtrtri

from ...linalg.blocks import Bucket, ColumnBlocks, runs, times, transposed
from ...posterior import BlockLowRank
from .marginals import BlockLikelihood, Marginals, factor

if TYPE_CHECKING:
    from .sites import SpikeSlabSites

_PIECE = 512  # columns handled at a time
_REFRESH = 20  # calls between two sums of X S X' from nothing
_ROUGH_FROM = 2e7  # n^2 d from which on single precision is faster
_ROUGH_BLOCK = 0.1  # most that a block in single precision may add to A
_ROUGH_TOTAL = 300.0  # and all of them together
_FEW = 0.3  # share of changed columns below which X S X' is corrected instead
_STIFF = 1e8  # diagonal of A from which on a covariance is computed as a sum


class RowForm:
    """The data of a group model with more columns than rows; see the module docstring.

    Parameters
    ----------
    X : array of shape (n_rows, n_columns)
        The columns in bucket order.
    y : array of shape (n_rows,)
        The target.
    blocks : ColumnBlocks
        The columns of each site.
    """

    def __init__(self, X: np.ndarray, y: np.ndarray, blocks: ColumnBlocks) -> None:
        self.X = np.asfortranarray(X)
        self.y = y
        self.blocks = blocks
        rows = self.X.T  # contiguous: vdot would copy X
        self.mean_square = float(np.vdot(rows, rows)) / X.shape[1] or 1.0  # of a column
        # A power of two that brings X near 1: single precision has little range.
        self._unit = 2.0 ** np.round(0.5 * np.log2(self.mean_square / X.shape[0]))
        self._single: list[np.ndarray] = []  # X'/unit once it is made, for all views of the data
        self._last: _LastCall | None = None
        self._make_room()

    def _make_room(self) -> None:
        room = (_PIECE + max(b.size for b in self.blocks.buckets), len(self.y))
        self._buffer = np.empty(room)
        self._single_buffer = np.empty(room, dtype=np.float32)

    def with_blocks(self, blocks: ColumnBlocks) -> RowForm:
        """Return the same data in other blocks of the same order."""
        form = copy(self)
        form.blocks, form._last = blocks, None
        form._make_room()
        return form

    def part(self, masks: list[np.ndarray]) -> RowForm:
        """Return the columns of the blocks that `masks` marks, one mask per bucket."""
        chosen = self.X.T[self.blocks.positions(masks)].T  # whole columns at a time
        return RowForm(chosen, self.y, self.blocks.part(masks))

    def marginals(
        self,
        half: list[np.ndarray],
        nu: list[np.ndarray],
        precision: float | np.ndarray,
        target: np.ndarray | None = None,
        rough: bool = False,
    ) -> Marginals:
        """Compute the marginals at given sites.

        Parameters
        ----------
        half : list of arrays of shape (n_blocks, k, k)
            F' of each block: the inverse of the lower Cholesky factor of the site precision.
        nu : list of arrays of shape (n_blocks, k)
        precision : float or array of shape (n_rows,)
            Noise precisions of the rows, the diagonal of D^2.
        target : array of shape (n_rows,), optional
            The target, if it is not y.
        rough : bool, default=False
            Whether single precision is enough where it is safe.
        """
        fine = self.fine(half, precision) if rough else None
        K, fitted = self.prior_covariance(half, nu, fine)
        m = self.solve(K, fitted, precision, self.y if target is None else target, fine)
        # The blocks use tr F'H F degrees of freedom, in sum tr(I - A^-1): unless A is singular in
        # double precision.
        used = sum(float(np.sum((F @ H) * F)) for F, H in zip(half, m.H, strict=True))
        m.rounding = max(m.rounding, abs(used - m.n_used))
        return m

    def fine(
        self, half: list[np.ndarray], precision: float | np.ndarray
    ) -> list[np.ndarray] | None:
        """Return the blocks of each bucket that need double precision; None if all do."""
        n, d = self.X.shape
        if n * n * d < _ROUGH_FROM:
            return None
        most = float(np.max(precision)) * self.mean_square / n
        adds = [most * np.einsum("gij,gij->g", F, F) for F in half]  # tr X S X' D^2 / n, about
        fine = [x > _ROUGH_BLOCK for x in adds]
        pairs = list(zip(adds, fine, strict=True))
        many = sum(F.shape[1] * mask.sum() for F, mask in zip(half, fine, strict=True)) > _FEW * d
        if many or sum(float(x[~mask].sum()) for x, mask in pairs) > _ROUGH_TOTAL:
            return None
        self._make_single()
        return [np.flatnonzero(mask) for mask in fine]

    def prior_covariance(
        self,
        half: list[np.ndarray],
        nu: list[np.ndarray],
        fine: list[np.ndarray] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return X S X' (lower triangle) and X S nu.

        Those of the last call are corrected where few sites have changed.
        """
        n, last = len(self.y), self._last
        changed = self._changed(half, nu)
        if last is not None and changed is not None:
            K, fitted = last.K, last.fitted
            K, fitted = self.add_sites(K, fitted, last.half, last.nu, changed, -1.0)
            K, fitted = self.add_sites(K, fitted, half, nu, changed)
            self._last = _LastCall(K, fitted, list(half), list(nu), last.age + 1)
            return K, fitted
        K, fitted = np.zeros((n, n), order="F"), np.zeros(n)
        if fine is None:
            K, fitted = self.add_sites(K, fitted, half, nu)
        else:
            coarse = [F.copy() for F in half]
            for F, is_fine in zip(coarse, fine, strict=True):
                F[is_fine] = 0.0
            K, fitted = self.add_sites(K, fitted, coarse, nu, single=True)
            K, fitted = self.add_sites(K, fitted, half, nu, fine)
        self._last = _LastCall(K, fitted, list(half), list(nu), 0)
        return K, fitted

    def _changed(self, half: list[np.ndarray], nu: list[np.ndarray]) -> list[np.ndarray] | None:
        """Return the blocks whose sites have changed since the last call; None to start afresh."""
        last, limit = self._last, _FEW * self.X.shape[1]
        if last is None or last.age >= _REFRESH:
            return None
        # Comparing first entries alone saves time while everything moves.
        first = [
            F.shape[1] * np.sum(F[:, 0, 0] != G[:, 0, 0])
            for F, G in zip(half, last.half, strict=True)
        ]
        if sum(first) > limit:
            return None
        changed = [
            np.flatnonzero((F != G).any(axis=(1, 2)) | (a != b).any(axis=1))
            for F, G, a, b in zip(half, last.half, nu, last.nu, strict=True)
        ]
        count = sum(F.shape[1] * len(which) for F, which in zip(half, changed, strict=True))
        return changed if count <= limit else None

    def add_sites(
        self,
        K: np.ndarray,
        fitted: np.ndarray,
        half: list[np.ndarray],
        nu: list[np.ndarray],
        which: list[np.ndarray] | None = None,
        sign: float = 1.0,
        single: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Add X S X' to K (in place) and X S nu to `fitted`, for all blocks or some.

        They are subtracted if `sign` is -1.
        """
        n = len(self.y)
        source, buffer = self._source(single)
        for i, bucket in enumerate(self.blocks.buckets):
            k, end = bucket.size, bucket.start + bucket.columns.size
            X = source[bucket.start : end].reshape(-1, k, n)
            inner = times(half[i], nu[i]).astype(buffer.dtype)
            for piece in runs(len(X) if which is None else which[i], max(1, _PIECE // k)):
                F = half[i][piece]
                if single:
                    F = (F * self._unit).astype(np.float32)
                Y = buffer[: len(F) * k].reshape(-1, k, n)
                if k == 1:
                    np.multiply(X[piece], F, out=Y)
                else:
                    np.matmul(F, X[piece], out=Y)
                rows = Y.reshape(-1, n)
                if single:
                    K += sign * ssyrk(1.0, rows.T, lower=1)  # summed over pieces in double
                else:
                    K = dsyrk(sign, rows.T, beta=1.0, c=K, lower=1, overwrite_c=1)
                fitted = fitted + sign * (inner[piece].ravel() @ rows)
        return K, fitted

    def project(
        self, root: np.ndarray, z: np.ndarray, rough: bool = False
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield X_g'C^-1 X_g and X_g'C^-1 (y - X S nu) of each bucket, for C of other columns.

        `root` is L^-1 D of their marginals and z is L^-1 D (y - X S nu); `rough` is as in
        `marginals`.
        """
        if rough:
            self._make_single()
        return (self._project(bucket, root, z, single=rough) for bucket in self.blocks.buckets)

    def _make_single(self) -> None:
        if not self._single:
            single = np.empty(self.X.T.shape, dtype=np.float32)
            self._single.append(np.divide(self.X.T, self._unit, out=single, casting="same_kind"))

    def _source(self, single: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return X' (in single precision: over its unit) and a buffer for a piece of it."""
        if single and self._single:
            return self._single[0], self._single_buffer
        return self.X.T, self._buffer

    def whitened(self, half: list[np.ndarray], root: np.ndarray) -> np.ndarray:
        """Return L^-1 D X F, in bucket order."""
        W = np.empty(self.X.shape, order="F")
        for bucket, F in zip(self.blocks.buckets, half, strict=True):
            for which, columns in bucket.pieces(_PIECE):
                X = self.X.T[columns].reshape(-1, bucket.size, len(self.y))
                np.matmul(F[which], X, out=W.T[columns].reshape(X.shape))
                W[:, columns] = root @ W[:, columns]
        return W

    def likelihood(
        self,
        at: np.ndarray,
        half: list[np.ndarray],
        nu: list[np.ndarray],
        precision: float | np.ndarray,
        target: np.ndarray | None = None,
    ) -> BlockLikelihood:
        """Return the likelihood of the weights of the ordered columns `at`.

        Their sites have been removed (`half` is 0 there), those of the others are integrated out.
        """
        y, n = self.y if target is None else target, len(self.y)
        K, fitted = self.add_sites(np.zeros((n, n), order="F"), np.zeros(n), half, nu)
        D = np.sqrt(np.broadcast_to(precision, n))
        A = K * D * D[:, None]
        A[np.diag_indices(n)] += 1.0
        L = factor(A)
        root = dtrtri(L, lower=1)[0] * D
        log_constant = -float(np.log(np.diag(L)).sum())
        return BlockLikelihood(root @ self.X[:, at], root @ (y - fitted), log_constant)

    def cross(self, at: np.ndarray, sites: SpikeSlabSites, m: Marginals) -> list[np.ndarray]:
        """Return X_b'C^-1 X_at of every block b, for the ordered columns `at`."""
        product = self.X.T @ (m.root.T @ (m.root @ self.X[:, at]))
        return [
            product[b.start : b.start + b.columns.size].reshape(*b.columns.shape, len(at))
            for b in self.blocks.buckets
        ]

    def row_moments(
        self, half: list[np.ndarray], m: Marginals, precision: np.ndarray, target: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of X w on every row: D Var(X w) D = I - A^-1."""
        D = np.sqrt(precision)
        inverse = m.root / D
        misfit = inverse.T @ (m.root @ (target - m.fitted))
        return target - misfit / D, (1.0 - np.sum(inverse**2, axis=0)) / precision

    def solve(
        self,
        K: np.ndarray,
        fitted: np.ndarray,
        precision: float | np.ndarray,
        target: np.ndarray,
        fine: list[np.ndarray] | None = None,
    ) -> Marginals:
        """Compute the marginals from X S X' (lower triangle) and X S nu."""
        n = len(target)
        D = np.sqrt(np.broadcast_to(precision, n))
        A = K * D * D[:, None]
        A[np.diag_indices(n)] += 1.0
        diagonal = np.diag(A).copy()
        L = factor(A)
        inverse, _ = dtrtri(L, lower=1)
        root = np.asfortranarray(inverse * D)  # lower triangular, like L^-1
        z = root @ (target - fitted)
        H, q = [], []
        for i, bucket in enumerate(self.blocks.buckets):
            Hg, qg = self._project(bucket, root, z, single=fine is not None)
            if fine is not None:
                Hg[fine[i]], qg[fine[i]] = self._project(bucket, root, z, fine[i])
            H.append(Hg)
            q.append(qg)
        # D (y - X m) = A^-1 D (y - X S nu), a product: no cancellation.
        square = (z @ inverse) ** 2
        left = np.sum(inverse**2, axis=0)
        return Marginals(
            H,
            q,
            None,
            log_det=2.0 * float(np.log(np.diag(L)).sum()),
            quadratic=float(z @ z),
            residual=float(np.sum(square)),
            rounding=float(np.finfo(float).eps * (diagonal @ (square + left))),
            n_used=n - float(np.sum(left)),
            root=root,
            fitted=fitted,
        )

    def _project(
        self,
        bucket: Bucket,
        root: np.ndarray,
        z: np.ndarray,
        blocks: np.ndarray | None = None,
        single: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return X_g'C^-1 X_g and X_g'C^-1 (y - X S nu) for blocks of one bucket."""
        k, n = bucket.size, len(z)
        count = len(bucket.columns) if blocks is None else len(blocks)
        source, buffer = self._source(single)
        X = source[bucket.start : bucket.start + bucket.columns.size].reshape(-1, k, n)
        triangle_product = dtrmm
        if single:
            root, z, triangle_product = (root * self._unit).astype(np.float32), z.astype("f"), strmm
        H, q = np.empty((count, k, k)), np.empty((count, k))
        for at in runs(count, max(1, _PIECE // k)):
            W = buffer[: (at.stop - at.start) * k]
            Wg = W.reshape(-1, k, n)
            np.copyto(Wg, X[at if blocks is None else blocks[at]])
            triangle_product(1.0, root, W.T, lower=1, overwrite_b=1)
            if k == 1:
                H[at, 0, 0] = np.einsum("ij,ij->i", W, W)
            else:
                H[at] = Wg @ transposed(Wg)
            q[at] = (W @ z).reshape(-1, k)
        return H, q

    def weight_covariance(
        self, half: list[np.ndarray], root: np.ndarray, precision: float | None
    ) -> BlockLowRank:
        """Return V = F (I - W'W) F', W = L^-1 D X F.

        Where rows share one `precision` and that difference would lose its digits, V is a sum.
        """
        if precision is not None:
            eye = np.eye(len(root))
            L = np.sqrt(precision) * solve_triangular(root, eye, lower=True)
            if np.max(np.sum(L**2, axis=1)) > _STIFF:  # the diagonal of A
                # With B = D X F = T'Q', V = F (I - Q Q' + Q (I + T T')^-1 Q') F'.
                Q, T = np.linalg.qr(self.whitened(half, np.sqrt(precision) * eye).T)
                R = np.asarray(np.linalg.qr(np.vstack([T.T, np.eye(len(T))]), mode="r"))
                S = solve_triangular(R, np.eye(len(R)))
                return BlockLowRank(self.blocks, half, np.ascontiguousarray(Q.T), S)
        return BlockLowRank(self.blocks, half, self.whitened(half, root))


@dataclass
class _LastCall:
    """X S X' and X S nu of the last call, their sites, and the number of corrections."""

    K: np.ndarray
    fitted: np.ndarray
    half: list[np.ndarray]
    nu: list[np.ndarray]
    age: int
