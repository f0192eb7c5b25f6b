"""Roots of (Phi'Phi + Lam)^-1, from the Gram matrix where that is safe and from columns elsewhere.

The relative error of the Gram form is about eps max|h|^2 / lam. Measured: below 1e-3 nat of
evidence while min lam/|h|^2 > 1e-12, a tenth of a nat at 1e-14, then it breaks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import get_lapack_funcs, qr
from scipy.linalg.lapack import dposv, dpotrf, dtrtri

from .._array import is_torch, like, namespace, to_numpy


def inverse_root(G: Any, lam: np.ndarray) -> tuple[Any, float]:
    """A triangular root with root root' = (G + diag(lam))^-1, and log|G + diag(lam)|.

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
        return np.zeros((0, 0)), 0.0
    if is_torch(G):
        return _inverse_root_there(G, lam)
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


def _inverse_root_there(G: Any, lam: np.ndarray) -> tuple[Any, float]:
    """The same on a device."""
    xp = namespace(G)
    scale = xp.rsqrt(G.diagonal() + like(lam, G))
    A = G * scale * scale[:, None]
    A.fill_diagonal_(1.0)
    L, info = xp.linalg.cholesky_ex(A)
    log_det = 2.0 * float(xp.sum(xp.log(L.diagonal() / scale)))
    if int(info) != 0 or not np.isfinite(log_det):
        raise np.linalg.LinAlgError("The Gram matrix is not positive definite in float64.")
    unit = xp.eye(len(L), dtype=L.dtype, device=L.device)
    return scale[:, None] * xp.linalg.solve_triangular(L, unit, upper=False).T, log_det


def inverse_root_qr(Phi: np.ndarray, lam: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """The same from columns: Q of [Phi; Lam^1/2] = Q R, root = R^-1, and log|Phi'Phi + Lam|."""
    k = len(lam)
    if k == 0:
        return np.zeros((len(Phi), 0)), np.zeros((0, 0)), 0.0
    Q, R = qr(np.vstack([Phi, np.diag(np.sqrt(lam))]), mode="economic", check_finite=False)
    (trtri,) = get_lapack_funcs(("trtri",), (R,))
    root, info = trtri(R, lower=False)
    if info != 0:
        raise np.linalg.LinAlgError("The augmented columns are singular in float64.")
    return Q, root, float(2.0 * np.sum(np.log(np.abs(np.diag(R)))))


def add_to_diagonal(A: Any, values: np.ndarray) -> None:
    """A + diag(values), in place."""
    if is_torch(A):
        A.diagonal().add_(like(values, A))
    else:
        A.flat[:: len(A) + 1] += values


def solve_positive(A: Any, more: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """(A + diag(more))^-1 b; None where that is not positive definite.

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
        return to_numpy(xp.cholesky_solve(like(b, A)[:, None], L)[:, 0])
    A = A.copy()
    add_to_diagonal(A, more)
    _, x, info = dposv(A, b, overwrite_a=True)
    return x if info == 0 else None
