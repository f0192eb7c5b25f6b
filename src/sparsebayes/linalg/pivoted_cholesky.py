"""Cholesky factorisation of a positive semi-definite matrix, largest pivot first, stopped early.

K ~ F'F with F of k rows, from k columns of K: nothing n x n is made. The trace of what is left is
known exactly at each step.

The largest pivot first, one at a time, is a loop of matrix-vector products. Here a block of the
largest remaining diagonal entries is looked at together: pivots are taken from it in greedy order
while they stay above half of the block's smallest entry, which bounds every entry outside. So each
pivot is at least half the largest one there was, and the work is matrix products. ``block=1`` is
the textbook algorithm.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import get_lapack_funcs, solve_triangular

_ACCEPT = 0.5
_TIE = 1e-9  # of the largest diagonal: no difference


def pivoted_cholesky(
    diagonal: np.ndarray,
    columns: Callable[[np.ndarray], np.ndarray],
    rank: int,
    tol: float = 1e-12,
    block: int = 32,
) -> tuple[np.ndarray, np.ndarray]:
    """F with F'F ~ K, and the pivots; F[:, pivots] is upper triangular (up to rounding).

    Parameters
    ----------
    diagonal : array of shape (n,)
        Of K.
    columns : callable
        Indices -> those columns of K, shape (n, len(indices)).
    rank : int
        Most pivots.
    tol : float, default=1e-12
        Stop when the trace left is below this fraction of the trace of K.
    block : int, default=32
        Pivots looked at together. Ties go to the lowest index.

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
    left = np.maximum(diagonal, 0.0)
    n = len(left)
    rank = min(rank, n)
    F = np.empty((rank, n))
    pivots = np.empty(rank, dtype=np.intp)
    enough = tol * float(np.sum(left))
    k = 0
    while k < rank and np.sum(left) > enough:
        chosen = np.argsort(-_rounded(left), kind="stable")[: min(block, rank - k)]
        chosen = chosen[left[chosen] > 0.0]
        H = columns(chosen).T - F[:k, chosen].T @ F[:k]
        order, L = _greedy(H[:, chosen], _ACCEPT * left[chosen[-1]])
        if len(order) == 0:  # what is left is rounding error, or K has a negative eigenvalue
            break
        new = slice(k, k + len(order))
        F[new] = solve_triangular(L, H[order], lower=True, check_finite=False)
        pivots[new] = chosen[order]
        left -= np.einsum("ij,ij->j", F[new], F[new])
        k += len(order)
        # A pivot's column is represented exactly; the rest is at least 0.
        left[pivots[:k]] = 0.0
        np.maximum(left, 0.0, out=left)
    return F[:k], pivots[:k]


def _greedy(A: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray]:
    """Pivots of a small matrix in greedy order while they exceed `limit`, and its triangle."""
    pstrf, potrf = get_lapack_funcs(("pstrf", "potrf"), (A,))
    rough = A.copy()
    np.fill_diagonal(rough, _rounded(np.diagonal(A)))
    _, order, rank, _ = pstrf(rough, lower=True, tol=limit)
    order = order[:rank].astype(np.intp) - 1
    L, failed = potrf(A[np.ix_(order, order)], lower=True, clean=True)
    rank = failed - 1 if failed > 0 else rank
    return order[:rank], L[:rank, :rank]


def _rounded(diagonal: np.ndarray) -> np.ndarray:
    """What differs by rounding alone is a tie: the same pivots wherever K was computed."""
    unit = _TIE * np.max(diagonal, initial=0.0)
    return np.round(diagonal / unit) * unit if unit > 0.0 else diagonal
