"""The triangle of a tall matrix, read in row blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from scipy.linalg import get_lapack_funcs, solve_triangular

from .._array import is_torch, like, namespace, to_numpy


def triangle(A: Any) -> Any:
    """R of A = QR, min(shape) x n_columns."""
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


def lower_solve(L: np.ndarray, B: Any) -> Any:
    """L^-1 B of a lower triangle, where B is."""
    if is_torch(B):
        return namespace(B).linalg.solve_triangular(like(L, B), B, upper=False)
    return solve_triangular(L, B, lower=True, check_finite=False)


def fold(blocks: Iterable[Any], width: int) -> np.ndarray:
    """R (width x width, zeros below what there is) of all row blocks on top of each other.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.linalg.triangle import fold
    >>> R = fold([np.array([[3.0]]), np.array([[4.0]])], 1)
    >>> abs(R).round(12)
    array([[5.]])
    """
    pending: list[Any] = []
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
    functions: Callable[[Any], np.ndarray],
    X: Any,
    t: np.ndarray,
    root: np.ndarray | None,
    intercept: bool,
    width: int,
    step: int,
    top: np.ndarray | None = None,
) -> np.ndarray:
    """R of [1 Phi t] below `top`, without the ones where there is no intercept.

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
