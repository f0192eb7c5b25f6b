"""Factorisations of one matrix: inverses, triangles of tall ones, Cholesky with pivots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from scipy.linalg import get_lapack_funcs, qr, solve_triangular
from scipy.linalg.lapack import dposv, dpotrf, dtrtri

from .._array import Array, asarray_like, is_torch, namespace, to_numpy

_ACCEPT = 0.5
_TIE = 1e-9  # of the largest diagonal: no difference


def inverse_root(G: Array, lam: np.ndarray) -> tuple[Array, float]:
    """Return a triangular root with root root' = (G + diag(lam))^-1, and log|G + diag(lam)|.

    The matrix is scaled to unit diagonal first (Jacobi). Raises LinAlgError where it is not
    positive definite in float64. The root is where G is.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.linalg import inverse_root
    >>> root, log_det = inverse_root(np.diag([3.0, 8.0]), np.ones(2))
    >>> (root @ root.T).round(3), round(float(np.exp(log_det)))
    (array([[0.25 , 0.   ],
           [0.   , 0.111]]), 36)
    """
    if len(lam) == 0:
        return G, 0.0
    if is_torch(G):
        return _inverse_root_torch(G, lam)
    scale = 1.0 / np.sqrt(np.diagonal(G) + lam)
    A = G * scale
    A *= scale[:, None]
    A.flat[:: len(A) + 1] = 1.0
    # A is symmetric: its transpose is the Fortran order that LAPACK works on in place.
    U, info = dpotrf(A.T, lower=False, clean=True, overwrite_a=True)
    log_det = 2.0 * float(np.sum(np.log(np.diagonal(U) / scale))) if info == 0 else np.nan
    if not np.isfinite(log_det):
        raise np.linalg.LinAlgError("The Gram matrix is not positive definite in float64.")
    root, info = dtrtri(U, lower=False, overwrite_c=True)
    if info != 0:
        raise np.linalg.LinAlgError("The Gram matrix is singular in float64.")
    root *= scale[:, None]
    return root, log_det


def _inverse_root_torch(G: Array, lam: np.ndarray) -> tuple[Array, float]:
    """Return the result of `inverse_root` for a tensor, on its device."""
    xp = namespace(G)
    scale = xp.rsqrt(G.diagonal() + asarray_like(G, lam))
    A = G * scale * scale[:, None]
    A.fill_diagonal_(1.0)
    L, info = xp.linalg.cholesky_ex(A)
    log_det = 2.0 * float(xp.sum(xp.log(L.diagonal() / scale)))
    if int(info) != 0 or not np.isfinite(log_det):
        raise np.linalg.LinAlgError("The Gram matrix is not positive definite in float64.")
    unit = xp.eye(len(L), dtype=L.dtype, device=L.device)
    return scale[:, None] * xp.linalg.solve_triangular(L, unit, upper=False).T, log_det


def inverse_root_qr(Phi: np.ndarray, lam: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return Q of [Phi; Lam^1/2] = Q R, root = R^-1, and log|Phi'Phi + Lam|.

    It is `inverse_root` from the columns instead of their Gram matrix.
    """
    k = len(lam)
    if k == 0:
        return np.zeros((len(Phi), 0)), np.zeros((0, 0)), 0.0
    Q, R = qr(np.vstack([Phi, np.diag(np.sqrt(lam))]), mode="economic", check_finite=False)
    (trtri,) = get_lapack_funcs(("trtri",), (R,))
    root, info = trtri(R, lower=False)
    if info != 0:
        raise np.linalg.LinAlgError("The augmented columns are singular in float64.")
    return Q, root, float(2.0 * np.sum(np.log(np.abs(np.diag(R)))))


def add_to_diagonal(A: Array, values: np.ndarray) -> None:
    """Add `values` to the diagonal of A in place."""
    if is_torch(A):
        A.diagonal().add_(asarray_like(A, values))
    else:
        A.flat[:: len(A) + 1] += values


def solve_positive(A: Array, more: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """Return (A + diag(more))^-1 b; None where the matrix is not positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.linalg import solve_positive
    >>> solve_positive(np.eye(2), np.array([0.0, 1.0]), np.ones(2))
    array([1. , 0.5])
    """
    if is_torch(A):
        xp, A = namespace(A), A.clone()
        add_to_diagonal(A, more)
        L, info = xp.linalg.cholesky_ex(A)
        if int(info) != 0:
            return None
        return to_numpy(xp.cholesky_solve(asarray_like(A, b)[:, None], L)[:, 0])
    A = A.copy()
    A.flat[:: len(A) + 1] += more
    _, x, info = dposv(A, b, overwrite_a=True)
    return x if info == 0 else None


def triangle(A: Array) -> Array:
    """Return R of A = QR, min(shape) x n_columns."""
    if len(A) == 0:
        return A
    if is_torch(A):
        return namespace(A).linalg.qr(A, mode="r")[1]
    geqrf, lwork = get_lapack_funcs(("geqrf", "geqrf_lwork"), (A,))
    A = np.asfortranarray(A)
    size = int(lwork(*A.shape)[0].real)
    factored, _, _, info = geqrf(A, lwork=size, overwrite_a=True)
    if info != 0:
        raise np.linalg.LinAlgError(f"The orthogonal factorisation failed (LAPACK info {info}).")
    return np.triu(factored[: min(A.shape)])


def lower_solve(L: np.ndarray, B: Array) -> Array:
    """Return L^-1 B of a lower triangle, on the device of B."""
    if is_torch(B):
        return namespace(B).linalg.solve_triangular(asarray_like(B, L), B, upper=False)
    return solve_triangular(L, B, lower=True, check_finite=False)


def fold(blocks: Iterable[Array], width: int) -> np.ndarray:
    """Return R (width x width, filled with zero rows) of all row blocks on top of each other.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.linalg.factor import fold
    >>> R = fold([np.array([[3.0]]), np.array([[4.0]])], 1)
    >>> abs(R).round(12)
    array([[5.]])
    """
    pending: list[Array] = []
    height = 0
    for block in blocks:
        pending.append(block)
        height += len(block)
        # On a device, where blocks are large, each by itself: a launch costs more than its rows.
        if height > max(4096, 4 * width) or is_torch(block):
            pending = [triangle(namespace(block).concatenate(pending))]
            height = len(pending[0])
    if not pending:
        return np.zeros((width, width))
    R = to_numpy(triangle(namespace(pending[0]).concatenate(pending)))
    if len(R) < width:
        R = np.vstack([R, np.zeros((width - len(R), width))])
    return R


def fold_rows(
    functions: Callable[[Array], np.ndarray],
    X: Array,
    t: np.ndarray,
    root: np.ndarray | None,
    intercept: bool,
    width: int,
    step: int,
    top: np.ndarray | None = None,
) -> np.ndarray:
    """Return R of [1 Phi t] below `top`, without the ones where there is no intercept.

    `functions` gives Phi on `step` rows of X at a time; row i of all counts times `root[i]`.
    """

    def blocks() -> Iterator[np.ndarray]:
        if top is not None:
            yield top
        for start in range(0, len(t), step):
            rows = slice(start, min(start + step, len(t)))
            block = np.empty((rows.stop - start, width), order="F")
            block[:, 0] = 1.0
            block[:, int(intercept) : -1] = functions(X[rows])
            block[:, -1] = t[rows]
            if root is not None:
                block *= root[rows, None]
            yield block

    return fold(blocks(), width)


def pivoted_cholesky(
    diagonal: np.ndarray,
    columns: Callable[[np.ndarray], np.ndarray],
    rank: int,
    tol: float = 1e-12,
    block: int = 32,
) -> tuple[np.ndarray, np.ndarray]:
    """Return F with F'F ~ K, and the pivots; F[:, pivots] is upper triangular (up to rounding).

    Parameters
    ----------
    diagonal : array of shape (n,)
        Diagonal of K.
    columns : callable
        Function of indices that returns those columns of K, shape (n, len(indices)).
    rank : int
        Largest number of pivots.
    tol : float, default=1e-12
        Stop when the trace left is below this fraction of the trace of K.
    block : int, default=32
        Pivots that are considered together. Ties go to the lowest index.

    Returns
    -------
    F : array of shape (k, n)
    pivots : array of int of shape (k,)

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.linalg import pivoted_cholesky
    >>> K = np.array([[4.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 9.0]])
    >>> F, pivots = pivoted_cholesky(np.diag(K), lambda j: K[:, j], rank=3)
    >>> pivots, np.allclose(F.T @ F, K)
    (array([2, 0]), True)
    """
    remaining = np.maximum(diagonal, 0.0)
    n = len(remaining)
    rank = min(rank, n)
    F = np.empty((rank, n))
    pivots = np.empty(rank, dtype=np.intp)
    smallest = tol * float(np.sum(remaining))
    k = 0
    while k < rank and np.sum(remaining) > smallest:
        chosen = np.argsort(-_rounded(remaining), kind="stable")[: min(block, rank - k)]
        chosen = chosen[remaining[chosen] > 0.0]
        H = columns(chosen).T - F[:k, chosen].T @ F[:k]
        order, L = _greedy(H[:, chosen], _ACCEPT * remaining[chosen[-1]])
        if len(order) == 0:  # what is left is rounding error, or K has a negative eigenvalue
            break
        new = slice(k, k + len(order))
        F[new] = solve_triangular(L, H[order], lower=True, check_finite=False)
        pivots[new] = chosen[order]
        remaining -= np.einsum("ij,ij->j", F[new], F[new])
        k += len(order)
        # A pivot's column is represented exactly; the rest is at least 0.
        remaining[pivots[:k]] = 0.0
        np.maximum(remaining, 0.0, out=remaining)
    return F[:k], pivots[:k]


def _greedy(A: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray]:
    """Return greedy pivots of a small matrix while they exceed `limit`, and its triangle."""
    pstrf, potrf = get_lapack_funcs(("pstrf", "potrf"), (A,))
    rough = A.copy()
    np.fill_diagonal(rough, _rounded(np.diagonal(A)))
    _, order, rank, _ = pstrf(rough, lower=True, tol=limit)
    order = order[:rank].astype(np.intp) - 1
    L, failed = potrf(A[np.ix_(order, order)], lower=True, clean=True)
    rank = failed - 1 if failed > 0 else rank
    return order[:rank], L[:rank, :rank]


def _rounded(diagonal: np.ndarray) -> np.ndarray:
    """Return the diagonal with differences by rounding alone removed.

    They are ties then, so that the pivots are the same wherever K was computed.
    """
    unit = _TIE * np.max(diagonal, initial=0.0)
    return np.round(diagonal / unit) * unit if unit > 0.0 else diagonal
