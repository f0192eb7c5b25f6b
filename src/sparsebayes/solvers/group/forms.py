"""The Gaussian part of EP: what the likelihood says about every block, given the sites.

For rows X w + e with noise precisions D^2, and sites N(w; S nu, S) that are block diagonal, S = F
F',

    C = D^-2 + X S X',   A = I + D X S X' D (rows)   or   A = I + F'X'D^2 X F (columns),

both forms give, block by block,

    H = X_g' C^-1 X_g,   q = X_g' C^-1 (y - X S nu),   M = I - F'H F,

so that in the coordinates u = F^-1 w, where the site is N(., I), the marginal is N(F'nu + F'q, M),
and the cavity precision is H + H F M^-1 F'H. M is the inverse of the marginal precision and H is
what the data add: taking their difference from rounded marginals is what fails in practice, so each
form computes both without cancellation where it can.

`RowForm` (more columns than rows) costs 2 n^2 d flops a call: one rank-k update for A and one
triangular product for L^-1 D X, in pieces of about 512 columns that stay in the cache. A product
with the explicit inverse of L is three times as fast as a triangular solve of full width. The
rank-k update leaves out the blocks whose sites have not changed since the call before, as long as
they are many; every `_REFRESH` calls it is made afresh. A caller who needs no more than four or
five digits (`rough`) gets both products in single precision for the blocks that add little to A:
their rounding is then far below what is asked. The others, whose M would lose digits, stay double.
`ColumnForm` follows below.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dsyrk, dtrmm, ssyrk, strmm
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtri

from ...linalg.blocks import ColumnBlocks, runs, times, transposed

_PIECE = 512  # columns handled at a time
_REFRESH = 20  # calls between two sums of X S X' from nothing
_ROUGH_FROM = 2e7  # n^2 d from which on single precision pays
_ROUGH_BLOCK = 0.1  # most that a block in single precision may add to A
_ROUGH_TOTAL = 300.0  # and all of them together
_FEW = 0.3  # share of changed columns below which X S X' is corrected instead


@dataclass
class Marginals:
    """What one call of a form returns: per bucket H and q; and what the evidence needs."""

    H: list[np.ndarray]  # columns: F'H F
    q: list[np.ndarray]  # columns: F'q
    M: list[np.ndarray] | None  # None: I - F'H F is as good
    log_det: float  # log|A|
    quadratic: float  # (y - X S nu)' C^-1 (y - X S nu)
    residual: float  # |D (y - X m)|^2
    n_used: float  # trace(I - A^-1): the degrees of freedom the weights use
    root: np.ndarray  # rows: L^-1 D.  columns: L^-1, with A = L L'
    fitted: np.ndarray  # X S nu

    def blocks(
        self, i: int, which: Any, half: np.ndarray, root: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """H, F'H, M and q of some blocks of bucket i, whose F' is `half` and F'^-1 `root`."""
        H, q = self.H[i][which], self.q[i][which]
        if self.M is not None:
            right = H @ transposed(root)
            return root @ right, right, self.M[i][which], times(root, q)
        right = half @ H
        return H, right, np.eye(H.shape[1]) - right @ transposed(half), q

    def whitened(self, half: list[np.ndarray]) -> Marginals:
        """The same with F'H F in place of H, F'q in place of q and M said."""
        if self.M is not None:
            return self
        H = [F @ x @ transposed(F) for F, x in zip(half, self.H, strict=True)]
        q = [times(F, x) for F, x in zip(half, self.q, strict=True)]
        return replace(self, H=H, q=q, M=[np.eye(x.shape[1]) - x for x in H])


class BlockLikelihood(NamedTuple):
    """The likelihood exp(log_constant - |z - W u|^2/2) of some weights u.

    The other weights are integrated out under their sites.
    """

    W: np.ndarray
    z: np.ndarray
    log_constant: float


class RowForm:
    """Through the n x n matrix A. See the module docstring.

    Parameters
    ----------
    X : array of shape (n_rows, n_columns)
        In bucket order, column-contiguous.
    y : array of shape (n_rows,)
    blocks : ColumnBlocks
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
        self._last: _Kept | None = None
        self._make_room()

    def _make_room(self) -> None:
        room = (_PIECE + max(b.size for b in self.blocks.buckets), len(self.y))
        self._buffer = np.empty(room)
        self._single_buffer = np.empty(room, dtype=np.float32)

    def with_blocks(self, blocks: ColumnBlocks) -> RowForm:
        """The same data, seen in other blocks of the same order."""
        form = copy(self)
        form.blocks, form._last = blocks, None
        form._make_room()
        return form

    def part(self, masks: list[np.ndarray]) -> RowForm:
        """The columns of the blocks that `masks` marks, one mask per bucket."""
        some = self.X.T[self.blocks.positions(masks)].T  # whole columns at a time
        return RowForm(some, self.y, self.blocks.part(masks))

    def marginals(
        self,
        half: list[np.ndarray],
        nu: list[np.ndarray],
        precision: Any,
        target: Any = None,
        rough: bool = False,
    ) -> Marginals:
        """Everything the next EP update needs.

        Parameters
        ----------
        half : list of arrays of shape (n_blocks, k, k)
            F' of each block: the inverse of the lower Cholesky factor of the site precision.
        nu : list of arrays of shape (n_blocks, k)
        precision : float or array of shape (n_rows,)
            The diagonal of D^2.
        target : array of shape (n_rows,), optional
            In place of y.
        rough : bool, default=False
            Whether single precision will do where it is safe.
        """
        fine = self.fine(half, precision) if rough else None
        K, fitted = self.prior_covariance(half, nu, fine)
        return self.solve(K, fitted, precision, self.y if target is None else target, fine)

    def fine(self, half: list[np.ndarray], precision: Any) -> list[np.ndarray] | None:
        """The blocks of each bucket that need double precision; None if all do."""
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
        """X S X' (lower triangle) and X S nu; kept and corrected where few sites have changed."""
        n, last = len(self.y), self._last
        changed = self._changed(half, nu)
        if last is not None and changed is not None:
            K, fitted = last.K, last.fitted
            K, fitted = self.add_sites(K, fitted, last.half, last.nu, changed, -1.0)
            K, fitted = self.add_sites(K, fitted, half, nu, changed)
            self._last = _Kept(K, fitted, list(half), list(nu), last.age + 1)
            return K, fitted
        K, fitted = np.zeros((n, n), order="F"), np.zeros(n)
        if fine is None:
            K, fitted = self.add_sites(K, fitted, half, nu)
        else:
            coarse = [F.copy() for F in half]
            for F, few in zip(coarse, fine, strict=True):
                F[few] = 0.0
            K, fitted = self.add_sites(K, fitted, coarse, nu, single=True)
            K, fitted = self.add_sites(K, fitted, half, nu, fine)
        self._last = _Kept(K, fitted, list(half), list(nu), 0)
        return K, fitted

    def _changed(self, half: list[np.ndarray], nu: list[np.ndarray]) -> list[np.ndarray] | None:
        """The blocks whose sites are not those of the last call; None if too many, or too old."""
        last, limit = self._last, _FEW * self.X.shape[1]
        if last is None or last.age >= _REFRESH:
            return None
        # A look at the first entries saves the comparison while everything moves.
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
        """K + X S X' (in place) and fitted + X S nu, of all blocks or some; minus if sign is -1."""
        n = len(self.y)
        source, buffer = self._source(single)
        for i, bucket in enumerate(self.blocks.buckets):
            k, end = bucket.size, bucket.start + bucket.columns.size
            X = source[bucket.start : end].reshape(-1, k, n)
            inner = times(half[i], nu[i]).astype(buffer.dtype)
            for some in runs(len(X) if which is None else which[i], max(1, _PIECE // k)):
                F = half[i][some]
                if single:
                    F = (F * self._unit).astype(np.float32)
                Y = buffer[: len(F) * k].reshape(-1, k, n)
                if k == 1:
                    np.multiply(X[some], F, out=Y)
                else:
                    np.matmul(F, X[some], out=Y)
                rows = Y.reshape(-1, n)
                if single:
                    K += sign * ssyrk(1.0, rows.T, lower=1)  # summed over pieces in double
                else:
                    K = dsyrk(sign, rows.T, beta=1.0, c=K, lower=1, overwrite_c=1)
                fitted = fitted + sign * (inner[some].ravel() @ rows)
        return K, fitted

    def project(
        self, root: np.ndarray, z: np.ndarray, rough: bool = False
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """X_g'C^-1 X_g and X_g'C^-1 (y - X S nu) of each bucket: C and the rest of other columns.

        `root` is L^-1 D of their marginals and z is L^-1 D (y - X S nu); `rough` as above.
        """
        if rough:
            self._make_single()
        return (self._project(bucket, root, z, single=rough) for bucket in self.blocks.buckets)

    def _make_single(self) -> None:
        if not self._single:
            single = np.empty(self.X.T.shape, dtype=np.float32)
            self._single.append(np.divide(self.X.T, self._unit, out=single, casting="same_kind"))

    def _source(self, single: bool) -> tuple[np.ndarray, np.ndarray]:
        """X' (in single precision: over its unit) and room for a piece of it."""
        if single and self._single:
            return self._single[0], self._single_buffer
        return self.X.T, self._buffer

    def whitened(self, half: list[np.ndarray], root: np.ndarray) -> np.ndarray:
        """L^-1 D X F, in bucket order."""
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
        precision: Any,
        target: Any = None,
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

    def cross(self, at: np.ndarray, sites: Any, m: Marginals) -> list[np.ndarray]:
        """X_b'C^-1 X_at of every block b, for the ordered columns `at`."""
        product = self.X.T @ (m.root.T @ (m.root @ self.X[:, at]))
        return [
            product[b.start : b.start + b.columns.size].reshape(*b.columns.shape, len(at))
            for b in self.blocks.buckets
        ]

    def row_moments(
        self, half: list[np.ndarray], m: Marginals, precision: np.ndarray, target: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of X w on every row: D Var(X w) D = I - A^-1."""
        D = np.sqrt(precision)
        inverse = m.root / D
        misfit = inverse.T @ (m.root @ (target - m.fitted))
        return target - misfit / D, (1.0 - np.sum(inverse**2, axis=0)) / precision

    def solve(
        self,
        K: np.ndarray,
        fitted: np.ndarray,
        precision: Any,
        target: np.ndarray,
        fine: list[np.ndarray] | None = None,
    ) -> Marginals:
        """The marginals, given X S X' (lower triangle) and X S nu."""
        n = len(target)
        D = np.sqrt(np.broadcast_to(precision, n))
        A = K * D * D[:, None]
        A[np.diag_indices(n)] += 1.0
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
        return Marginals(
            H,
            q,
            None,
            log_det=2.0 * float(np.log(np.diag(L)).sum()),
            quadratic=float(z @ z),
            # D (y - X m) = A^-1 D (y - X S nu), a product: no cancellation.
            residual=float(np.sum((z @ inverse) ** 2)),
            n_used=n - float(np.sum(inverse**2)),
            root=root,
            fitted=fitted,
        )

    def _project(
        self,
        bucket: Any,
        root: np.ndarray,
        z: np.ndarray,
        blocks: np.ndarray | None = None,
        single: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """X_g'C^-1 X_g and X_g'C^-1 (y - X S nu) for the blocks of one bucket, or some of them."""
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


@dataclass
class _Kept:
    """X S X' and X S nu of a former call, the sites they came from and corrections since."""

    K: np.ndarray
    fitted: np.ndarray
    half: list[np.ndarray]
    nu: list[np.ndarray]
    age: int


def factor(A: np.ndarray) -> np.ndarray:
    """Lower Cholesky factor of A >= I, whose smallest eigenvalues rounding may have taken away."""
    L, info = dpotrf(A, lower=1, clean=1)
    if info != 0:
        A[np.diag_indices(len(A))] += 1e-14 * np.max(np.diag(A))
        L, info = dpotrf(A, lower=1, clean=1)
    if info != 0:
        raise np.linalg.LinAlgError(
            "I + X S X'/noise_variance could not be factored: its entries are not finite, or the "
            "noise variance is too small for double precision. Raise noise_variance or rescale "
            "the data."
        )
    return L


# The Gaussian part of EP where columns are not more than rows: through a d x d matrix.
#
# What is computed, and why so, says `forms`. A call costs O(d^3); for a fixed noise variance the
# rows are folded into a triangle once.


class ColumnForm:
    """Through the d x d matrix A. Parameters as in `RowForm`."""

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

    def likelihood(
        self,
        at: np.ndarray,
        half: list[np.ndarray],
        nu: list[np.ndarray],
        precision: Any,
        target: Any = None,
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
        rest = misfit - self.X @ self._spread(half, [u[b] for b in self._at])
        quadratic = float(rest @ (D2 * rest) + u @ u)
        log_constant = -float(np.log(np.diag(L)).sum()) - 0.5 * (quadratic - float(z @ z))
        return BlockLikelihood((vectors * root).T, z, log_constant)

    def cross(self, at: np.ndarray, sites: Any, m: Marginals) -> list[np.ndarray]:
        """As `RowForm.cross`: F'X'C^-1 X F = I - A^-1."""
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
