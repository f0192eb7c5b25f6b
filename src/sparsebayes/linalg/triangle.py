"""The triangle of a tall matrix, read in row blocks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.linalg import get_lapack_funcs


def triangle(A: np.ndarray) -> np.ndarray:
    """R of A = QR, min(shape) x n_columns."""
    if len(A) == 0:
        return A
    geqrf, lwork = get_lapack_funcs(("geqrf", "geqrf_lwork"), (A,))
    A = np.asfortranarray(A)
    size = int(lwork(*A.shape)[0].real)
    factored, _, _, info = geqrf(A, lwork=size, overwrite_a=True)
    if info != 0:
        raise np.linalg.LinAlgError(f"The orthogonal factorisation failed (LAPACK info {info}).")
    return np.triu(factored[: min(A.shape)])


def fold(blocks: Iterable[np.ndarray], width: int) -> np.ndarray:
    """R (width x width, zeros below what there is) of all row blocks on top of each other.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.linalg.triangle import fold
    >>> R = fold([np.array([[3.0]]), np.array([[4.0]])], 1)
    >>> abs(R).round(12)
    array([[5.]])
    """
    pending, height = [np.zeros((0, width))], 0
    for block in blocks:
        pending.append(block)
        height += len(block)
        if height > max(4096, 4 * width):
            pending = [triangle(np.vstack(pending))]
            height = len(pending[0])
    R = triangle(np.vstack(pending))
    if len(R) < width:
        R = np.vstack([R, np.zeros((width - len(R), width))])
    return R
