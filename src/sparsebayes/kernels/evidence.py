"""The evidence of a Gaussian process on m centres, and its gradient in the widths.

K = k(X, Z) is n x m, M = k(Z, Z) + jitter Id, the kernel has unit variance. With noise variance s
and signal variance a = s/lam, the model is t ~ N(0, s Id + a K M^-1 K'): one variance shared by all
functions under the prior of the Gaussian process, w ~ N(0, a M^-1). That makes its evidence safe to
maximise over the widths; with one precision per weight, narrow functions would overfit. With
G = K'K, c = K't, A = M + G/lam and y = A^-1 c / lam (the weights),

    F_w = -1/2 [ n log(2 pi s) + log|A| - log|M| + (t't - c'y)/s + w gap/lam ],
    gap = n - tr(M^-1 G);          w = 0: the Nystroem evidence, w = 1: the variational bound

    dF/dK = (t - K y) y'/s + K (w M^-1 - A^-1)/lam
    dF/dM = -1/2 [ lam y y'/s + A^-1 - M^-1 + w M^-1 G M^-1/lam ]
    dF/dlog s = 1/2 [ (t't - c'y)/s - n ]
    dF/dlog lam = 1/2 [ m - tr(A^-1 M) - lam y'My/s + w gap/lam ]

and from them by the chain rule those in the log lengths of a kernel (`length_derivatives` of
formulas.py), without an n x m x d array. With S = s Id + a K M^-1 K' and S_j its derivatives, the
average information (docs/theory/widths.md)

    I_jk = 1/2 t'S^-1 S_j S^-1 S_k S^-1 t,     S_j S^-1 t = t for log s, -K y for log lam, and
    E_j y + K M^-1 (a E_j'(t - K y)/s - M_j y) for a length, E_j and M_j derivatives of K and M

takes products with a few vectors only. Rows enter by sums only, so they are read in blocks; where K
and its slopes on all rows do not fit into memory, the blocks are computed a second time for the
gradient. Weights count rows: K, slopes and t are multiplied by their roots, and n is their sum.
Several targets share the widths, each with its own lam and s, and their evidences are added.

All of this is computed on whitened columns Phi = K R^-1, M = R'R, where M becomes Id, G becomes
Phi'Phi and A = Id + G/lam. In the coordinates of K the rounding of the sum over rows is divided by
the jitter and by lam: with a Gaussian kernel and lam = 1e-3, another order of summation (blocks of
other sizes, a device) moved F by .08 nats and its gradient by 1, and a search ended elsewhere. On
whitened columns both move by less than 1e-3.

Cost: 4 n m^2 flops (a triangular solve, a rank-k update, a product) + O(n m d + m^3), 10 n m d of
them for the information.

With all rows as centres the model is the exact process: `ExactEvidence`, n^3 flops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, lapack, solve_triangular

from .._array import Array, Device, is_torch, namespace, on_device, to_numpy
from ..linalg.scalar import maximise
from ..rows import row_slices
from .formulas import BoundFamily, kernel_of_lengths

JITTER = 1e-6
_BLOCK_ELEMENTS = 2**17
_DEVICE_ELEMENTS = 2**24
_KEEP_BYTES = 256e6
LOG_LAM = (-18.0, 9.0)
_NOISE_FLOOR = 1e-12  # of the mean square of a target


class Profile(NamedTuple):
    """An evidence maximised over signal and noise: its value, log(s/a) and log s of each target."""

    value: float
    log_lam: np.ndarray
    log_noise: np.ndarray


class NystroemEvidence:
    """F_w and its gradient, for fixed rows and centres.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        Centred near the origin.
    T : array of shape (n_rows, n_targets)
    Z : array of shape (n_centres, n_features)
    family : {"rbf", "matern52", "matern32", "matern12", "rq", "laplacian", "sum"}
    weight : array of shape (n_rows,), optional
        How often each row counts.
    bound : bool, default=False
        The variational bound (w = 1) instead of the Nystroem evidence (w = 0).
    keep_bytes : float
        Memory that K and its slopes on all rows may take.
    device : torch.device, optional
        Where K and its slopes are computed.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.kernels.evidence import NystroemEvidence
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> F = NystroemEvidence(X, np.sin(3 * X), X[::2], "rbf")
    >>> value, gradient, information = F(np.zeros(1), np.zeros(1), np.log([0.01]))
    >>> gradient.shape, information.shape
    ((3,), (3, 3))
    """

    def __init__(
        self,
        X: np.ndarray,
        T: np.ndarray,
        Z: np.ndarray,
        family: str,
        *,
        weight: np.ndarray | None = None,
        bound: bool = False,
        keep_bytes: float = _KEEP_BYTES,
        device: Device | None = None,
    ) -> None:
        self.Z, self.family = Z, family
        self.w = float(bound)
        self.root = None if weight is None else np.sqrt(weight)[:, None]
        self.T = T if self.root is None else T * self.root
        self.n = float(len(X) if weight is None else np.sum(weight))
        self.square = np.einsum("ij,ij->j", self.T, self.T)
        elements = _BLOCK_ELEMENTS if device is None else _DEVICE_ELEMENTS
        self._rows = list(row_slices(len(X), max(64, elements // len(Z))))
        keep = 24.0 * len(X) * len(Z) <= keep_bytes
        # Arrays as long as the rows are where the kernel is computed.
        self._put = partial(on_device, device=device)
        self.X, self._centres = self._put(X), self._put(Z)
        self._targets, self._roots = self._put(self.T), self._put(self.root)
        height = len(X) if keep else self._rows[0].stop
        self._buffers: list[Array] = []
        self._keep, self._shape = keep, (height, len(Z))

    def __call__(
        self, log_length: np.ndarray, log_lam: np.ndarray, log_noise: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """F_w, its gradient in (log l, log lam, log s), and their average information at w = 0.

        LinAlgError where A breaks down. `log_length` is what `kernel_of_lengths` takes.
        """
        kernel = kernel_of_lengths(self.family, log_length)
        bound, rows = kernel.bind(self.Z), kernel.bind(self._centres)
        M, parts = _centre_matrix(bound, self.Z)
        root = _cholesky(M)
        R_inverse = _triangle_inverse(root)
        G, C = self._products(rows, root, slopes=True)
        M_inverse = R_inverse @ R_inverse.T
        m, q = len(M), len(self.square)
        gap = self.n - float(np.trace(G)) if self.w else 0.0
        noise = np.exp(log_noise)
        value = 0.0
        inner = np.zeros((m, m), order="F")  # dF/dK = (T - K Y')/s Y + K inner
        dM = M_inverse * float(q)
        Y = np.empty((q, m))
        grad_lam, grad_noise, inverses = np.empty(q), np.empty(q), []
        for k, (lam, s) in enumerate(zip(np.exp(log_lam), noise, strict=True)):
            A = G / lam
            _diagonal(A)[...] += 1.0
            root = _cholesky(A)
            y = lapack.dpotrs(root, C[:, k])[0] / lam
            fit = (self.square[k] - C[:, k] @ y) / s
            loss = self.w * gap / lam
            log_det = _log_det(root)
            value -= 0.5 * (self.n * np.log(2.0 * np.pi * s) + log_det + fit + loss)
            A_inverse = _inverse(root)
            freedom = m - float(np.trace(A_inverse))
            grad_noise[k] = 0.5 * (fit - self.n)
            grad_lam[k] = 0.5 * (freedom - (lam / s) * (y @ y) + loss)
            Y[k] = R_inverse @ y
            inverses.append(A_inverse / lam)
            A_inverse = _unwhiten(A_inverse, R_inverse)
            dM -= A_inverse
            dM -= np.multiply.outer((lam / s) * Y[k], Y[k])
            A_inverse /= lam
            inner -= A_inverse
            if self.w:
                inner += (self.w / lam) * M_inverse
                dM -= (self.w / lam) * _unwhiten(G, R_inverse)
        dM *= 0.5
        grad_length, moved, _ = bound.length_derivatives(np.tril(dM.T), None, Y.T, None, parts)
        row_gradient, pulled, images, squares = self._row_derivatives(rows, inner, Y, noise)
        products = []
        for k, a in enumerate(noise / np.exp(log_lam)):
            # S_j S^-1 t = P + Phi C: images = K'P, squares = P'P.
            C = np.zeros_like(images[k])
            C[:, :-2] = R_inverse.T @ (a * pulled[:, :, k] - moved[:, :, k])
            E = R_inverse.T @ images[k]
            cross, E = E.T @ C, E + G @ C
            products.append(squares[k] + cross.T + E.T @ C - E.T @ inverses[k] @ E)
        gradient = np.concatenate([grad_length + row_gradient, grad_lam, grad_noise])
        return value, gradient, _information(products, noise)

    def value(self, log_length: np.ndarray, log_lam: np.ndarray, log_noise: np.ndarray) -> float:
        """Return F_w alone, in half of the time; LinAlgError where A breaks down."""
        kernel = kernel_of_lengths(self.family, log_length)
        M, _ = _centre_matrix(kernel.bind(self.Z), self.Z)
        G, C = self._products(kernel.bind(self._centres), _cholesky(M), slopes=False)
        gap = self.n - float(np.trace(G)) if self.w else 0.0
        value = 0.0
        for c, square, lam, s in zip(
            C.T, self.square, np.exp(log_lam), np.exp(log_noise), strict=True
        ):
            A = G / lam
            _diagonal(A)[...] += 1.0
            root = _cholesky(A)
            fit = (square - c @ lapack.dpotrs(root, c)[0] / lam) / s
            loss = self.w * gap / lam
            value -= 0.5 * (self.n * np.log(2.0 * np.pi * s) + _log_det(root) + fit + loss)
        return value

    def profile(self, log_length: np.ndarray, log_lam: np.ndarray | None = None) -> Profile:
        """The largest F_w over a and s: over lam = s/a, with s at its best value.

        Parameters
        ----------
        log_length : array of shape (n_features,)
        log_lam : array of shape (n_targets,), optional
            Where to start.
        """
        start = np.full(len(self.square), np.log(1e-2)) if log_lam is None else log_lam
        kernel = kernel_of_lengths(self.family, log_length)
        M, _ = _centre_matrix(kernel.bind(self.Z), self.Z)
        G, C = self._products(kernel.bind(self._centres), _cholesky(M), slopes=False)
        gap = self.n - float(np.trace(G)) if self.w else 0.0
        identity, optima = np.eye(len(M)), []
        for k, square in enumerate(self.square):
            noise: dict[float, float] = {}

            def value(
                x: float, k: int = k, square: float = square, noise: dict[float, float] = noise
            ) -> float:
                noise[x] = square / self.n
                try:
                    root = _cholesky(G + np.exp(x) * identity)
                except np.linalg.LinAlgError:
                    return -np.inf
                y = solve_triangular(root, C[:, k], trans="T", check_finite=False)
                noise[x] = s = max(square - y @ y, _NOISE_FLOOR * square) / self.n
                fit = self.n * (np.log(2.0 * np.pi * s) + 1.0)
                log_det = _log_det(root) - len(M) * x
                return -0.5 * (fit + log_det + self.w * gap * np.exp(-x))

            x, height = maximise(value, *LOG_LAM, start=start[k], step=1.0, tol=0.02)
            optima.append((height, x, np.log(noise[x])))
        heights, lams, noises = np.array(optima).T
        return Profile(float(heights.sum()), lams, noises)

    def _products(
        self, bound: BoundFamily, root: np.ndarray, slopes: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return Phi'Phi and Phi't of the whitened columns Phi = K R^-1, R the upper `root`."""
        m = len(self.Z)
        G = self._put(np.zeros((m, m), order="F"))
        C = self._put(np.zeros((m, self.T.shape[1])))
        R = self._put(root)
        for rows, (K, *_) in self._blocks(bound, slopes):
            if is_torch(K):
                Phi = namespace(K).linalg.solve_triangular(R, K, upper=True, left=False)
                G += Phi.T @ Phi
                C += Phi.T @ self._targets[rows]
            else:
                transposed = blas.dtrsm(1.0, R, K.T, trans_a=True)
                G = blas.dsyrk(1.0, transposed, beta=1.0, c=G, overwrite_c=True)
                C += transposed @ self._targets[rows]
        return _mirror(np.asfortranarray(to_numpy(G))), to_numpy(C)

    def _blocks(
        self, bound: BoundFamily, slopes: bool, reuse: bool = False
    ) -> Iterator[tuple[slice, list[Array]]]:
        """Yield K and its slopes in row blocks, weighted.

        With `reuse` they are those of the last call, read from memory where they were kept.
        """
        n_parts = 1 + (bound.n_slopes if slopes else 0)
        while len(self._buffers) < n_parts:
            self._buffers.append(self._put(np.empty(self._shape)))
        for rows in self._rows:
            place = rows if self._keep else slice(0, rows.stop - rows.start)
            parts = [buffer[place] for buffer in self._buffers[:n_parts]]
            if not (reuse and self._keep):
                if slopes:
                    bound.with_slope(self.X[rows], parts)
                else:
                    bound(self.X[rows], parts[0])
                if self._roots is not None:
                    for part in parts:
                        part *= self._roots[rows]
            yield rows, parts

    def _row_derivatives(
        self, bound: BoundFamily, inner: np.ndarray, Y: np.ndarray, noise: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """sum_ik dF/dK_ik (E_j)_ik for each length, and what the information takes of the rows.

        That is E_j'(t - K y)/s, and K'P and P'P of P = [E_1 y, E_2 y, ..., -K y, t], for each
        target.
        """
        sums: list[Array | float] = [0.0, 0.0, 0.0, 0.0]
        buffer = self._put(np.empty((self._rows[0].stop, len(self.Z))))
        inner, Y, noise = map(self._put, (inner, Y, noise))
        for rows, parts in self._blocks(bound, slopes=True, reuse=True):
            K, t = parts[0], self._targets[rows]
            W, xp = buffer[: len(K)], namespace(K)
            fit = K @ Y.T
            residual = (t - fit) / noise
            xp.matmul(residual, Y, out=W)
            if is_torch(W):
                W += K @ inner
            else:
                blas.dgemm(1.0, inner, K.T, beta=1.0, c=W.T, overwrite_c=True)
            gradient, P, pulled = bound.length_derivatives(W, self.X[rows], Y.T, residual, parts)
            P = xp.concatenate([P, -fit[:, None], t[:, None]], axis=1)
            terms = (
                gradient,
                pulled,
                xp.stack([K.T @ P[:, :, k] for k in range(len(Y))]),
                xp.stack([P[:, :, k].T @ P[:, :, k] for k in range(len(Y))]),
            )
            sums = [total + term for total, term in zip(sums, terms, strict=True)]
        return tuple(map(to_numpy, sums))


class ExactEvidence:
    """The evidence of the Gaussian process itself, and its gradient.

    With B = Id + K/lam, v = B^-1 t (K and t weighted as above, N the sum of the n weights),

        F = -1/2 [ N log(2 pi s) + log|B| + t'v/s ],     dF/dK = (v v'/s - B^-1) / (2 lam)

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        Centred near the origin.
    T : array of shape (n_rows, n_targets)
    family : {"rbf", "matern52", "matern32", "matern12", "rq", "laplacian", "sum"}
    weight : array of shape (n_rows,), optional
        How often each row counts.
    memory : list of arrays, optional
        Memory that calls use again, for several of these functions that are called in turn.
    single : bool, default=False
        Whether float32 is enough for the derivatives of rough kernels.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.kernels.evidence import ExactEvidence
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> value, gradient, information = ExactEvidence(X, np.sin(3 * X), "rbf")(
    ...     np.zeros(1), np.zeros(1), np.log([0.01])
    ... )
    >>> gradient.shape, information.shape
    ((3,), (3, 3))
    """

    def __init__(
        self,
        X: np.ndarray,
        T: np.ndarray,
        family: str,
        *,
        weight: np.ndarray | None = None,
        memory: list[np.ndarray] | None = None,
        single: bool = False,
    ) -> None:
        self.X, self.family, self.single = X, family, single
        self.root = None if weight is None else np.sqrt(weight)[:, None]
        self.T = T if self.root is None else T * self.root
        self.n = float(len(X) if weight is None else np.sum(weight))
        self._memory = [] if memory is None else memory

    def __call__(
        self, log_length: np.ndarray, log_lam: np.ndarray, log_noise: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """F, its gradient in (log l, log lam, log s) and their average information.

        LinAlgError where B breaks down.
        """
        bound, parts, (first, *squares) = self._kernel(log_length)
        K = parts[0]
        n, q = self.T.shape
        value = 0.0
        dK = first.T  # its upper triangle is used
        dK[...] = 0.0
        V, inverses = np.empty((n, q)), []
        grad_lam, grad_noise = np.empty(q), np.empty(q)
        for k, (lam, s) in enumerate(zip(np.exp(log_lam), np.exp(log_noise), strict=True)):
            root = _shifted_root(K, lam, squares[-1 - k])
            t = self.T[:, k]
            V[:, k] = v = lapack.dpotrs(root, t)[0]
            fit = float(t @ v) / s
            value -= 0.5 * (self.n * np.log(2.0 * np.pi * s) + _log_det(root) + fit)
            B_inverse = lapack.dpotri(root, overwrite_c=True)[0]  # its upper triangle
            grad_noise[k] = 0.5 * (fit - self.n)
            grad_lam[k] = 0.5 * (n - float(np.trace(B_inverse)) - fit + float(v @ v) / s)
            inverses.append(B_inverse)
            dK = blas.dsyr(0.5 / (lam * s), v, a=dK, overwrite_a=True)
            dK = _minus(dK, 0.5 / lam, B_inverse)
        grad_length, P, _ = bound.length_derivatives(dK.T, None, V, None, parts, self.single)
        products = []
        for k, lam in enumerate(np.exp(log_lam)):
            t, v = self.T[:, k], V[:, k]
            Q = np.column_stack([P[:, :, k] / lam, v - t, t])
            products.append(Q.T @ blas.dsymm(1.0, inverses[k], Q))
        gradient = np.concatenate([grad_length, grad_lam, grad_noise])
        return value, gradient, _information(products, np.exp(log_noise))

    def value(self, log_length: np.ndarray, log_lam: np.ndarray, log_noise: np.ndarray) -> float:
        """Return F alone, in a third of the time; LinAlgError where B breaks down."""
        _, (K, *_), (*_, square) = self._kernel(log_length)
        value = 0.0
        for t, lam, s in zip(self.T.T, np.exp(log_lam), np.exp(log_noise), strict=True):
            root = _shifted_root(K, lam, square)
            fit = float(t @ lapack.dpotrs(root, t)[0]) / s
            value -= 0.5 * (self.n * np.log(2.0 * np.pi * s) + _log_det(root) + fit)
        return value

    def _kernel(
        self, log_length: np.ndarray
    ) -> tuple[BoundFamily, Sequence[np.ndarray], list[np.ndarray]]:
        """Return the bound kernel, its weighted matrix with its slopes, and spare matrices."""
        bound = kernel_of_lengths(self.family, log_length).bind(self.X)
        first, *squares = self._squares(2 + bound.n_slopes + self.T.shape[1])
        parts = bound.with_slope(None, squares[: 1 + bound.n_slopes])
        _diagonal(parts[0])[...] = 1.0
        if self.root is not None:
            for part in parts:
                part *= self.root
                part *= self.root.T
        return bound, parts, [first, *squares[1 + bound.n_slopes :]]

    def _squares(self, number: int) -> list[np.ndarray]:
        """Return arrays of n_rows x n_rows, whose values mean nothing.

        Of 500 rows, new arrays in each call took a third of the time of the first fit of a process.
        """
        n, memory = len(self.X), self._memory
        if not memory or memory[0].size < number * n * n:
            memory[:] = [np.empty(number * n * n)]
        return list(memory[0][: number * n * n].reshape(number, n, n))


def _information(squares: list[np.ndarray], noise: np.ndarray) -> np.ndarray:
    """The average information of all lengths, lams and s.

    `squares` are, for each target, the products of S_j S^-1 t in the metric of s S^-1 for the
    lengths, its lam and its s.
    """
    q, n_lengths = len(squares), len(squares[0]) - 2
    total = np.zeros((n_lengths + 2 * q, n_lengths + 2 * q))
    for k, (square, s) in enumerate(zip(squares, noise, strict=True)):
        place = np.append(np.arange(n_lengths), [n_lengths + k, n_lengths + q + k])
        total[place[:, None], place] += (0.5 / s) * square
    return total


def _centre_matrix(bound: BoundFamily, Z: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Return k(Z, Z) with its jitter, column-contiguous for LAPACK; and itself with its slopes."""
    parts = bound.with_slope(None)
    _diagonal(parts[0])[...] = 1.0
    M = parts[0].T.copy(order="F")
    _diagonal(M)[...] += JITTER
    return M, parts


def _diagonal(A: np.ndarray) -> np.ndarray:
    """Return the diagonal as a view that can be written."""
    return np.einsum("ii->i", A)


def _cholesky(A: np.ndarray, overwrite: bool = False) -> np.ndarray:
    """Upper triangle of a symmetric matrix, with zeros below it."""
    root, info = lapack.dpotrf(A, overwrite_a=overwrite)
    if info != 0 or not np.all(np.isfinite(np.diag(root))):
        raise np.linalg.LinAlgError("The kernel matrix is not positive definite in float64.")
    return root


def _minus(A: np.ndarray, factor: float, B: np.ndarray) -> np.ndarray:
    """Return A - factor B, in the place of A."""
    return blas.daxpy(B.ravel("K"), A.ravel("K"), a=-factor).reshape(A.shape, order="F")


def _shifted_root(K: np.ndarray, lam: float, out: np.ndarray) -> np.ndarray:
    """Return the upper triangle of Id + K/lam, in the memory of `out`."""
    B = np.multiply(K, 1.0 / lam, out=out).T
    _diagonal(B)[...] += 1.0
    return _cholesky(B, overwrite=True)


def _log_det(root: np.ndarray) -> float:
    return 2.0 * float(np.sum(np.log(np.diag(root))))


def _inverse(root: np.ndarray) -> np.ndarray:
    """The inverse from the triangle, which is overwritten."""
    return _mirror(lapack.dpotri(root, overwrite_c=True)[0])


def _triangle_inverse(root: np.ndarray) -> np.ndarray:
    return lapack.dtrtri(root)[0]


def _unwhiten(A: np.ndarray, R_inverse: np.ndarray) -> np.ndarray:
    """Return a matrix on whitened columns in the coordinates of the centres."""
    return np.asfortranarray(R_inverse @ A @ R_inverse.T)


def _mirror(A: np.ndarray) -> np.ndarray:
    """The upper triangle on both sides, in place."""
    np.copyto(A, A.T, where=_below(len(A)))
    return A


@lru_cache(maxsize=4)
def _below(m: int) -> np.ndarray:
    return np.asfortranarray(np.tri(m, k=-1, dtype=bool))
