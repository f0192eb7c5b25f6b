"""Second derivatives of the evidence of `ard`, and its maxima over one group at a time.

With the marginals of every group whitened by F = sqrt(lam_g) I, that is M_g = F'X_g'C^-1 X_g F and
q_g = F'X_g'C^-1 t, a factor v on lam_g changes the log evidence by

    1/2 sum_i [v a_i^2/(1 + v s_i) - log(1 + v s_i)],     s_i = m_i/(1 - m_i), a_i = u_i'q/(1 - m_i)

over its absence (m_i, u_i the eigenvalues and vectors of M_g). A group of one column has its only
maximum at v = (a^2 - s)/s^2, and is best absent where a^2 <= s. Where all variances and the noise
follow by one factor, which is best at Q/N for Q = t'C^-1 t, the first terms, of sum D, give
-N log(1 - D/Q0) in place of D, with Q0 that Q without the group.

In x_g = log lam_g and x_0 = log sigma2, with A = C/sigma2, c = A^-1 t/sigma, Z = A^-1 X F/sigma and
M_gh = F'X_g'C^-1 X_h F, first and second derivatives are

    1/2 (|q_g|^2 - tr M_gg)          1/2 |M_gh|^2 - q_g'M_gh q_h; on the diagonal the first as well
    1/2 (|c|^2 - N + tr(I - A^-1))   1/2 (tr A^-2 - tr A^-1 + |c|^2) - c'A^-1 c
                             mixed   1/2 |Z_g|^2 - q_g'Z_g'c
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from ...linalg.blocks import ColumnBlocks, times, transposed
from .marginals import Form, Marginals, factor

# v times the mean of s that are compared: a quarter of a decade apart, Newton steps do the rest.
_GRID = 10.0 ** np.arange(-6.0, 18.0, 0.25)


def best_factors(
    m: Marginals, blocks: ColumnBlocks, n: float | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the best factor on the variance of each group (0: absent), and what it is worth.

    The second value is the gain over the absence of the group, the third one is that of the present
    variance; both are NaN where they are not known. The other groups and the noise stay as they
    are; with a number `n` of observations they follow by one factor.
    """
    assert m.M is not None
    best = np.ones(blocks.n_groups)
    highest, present = np.zeros(blocks.n_groups), np.zeros(blocks.n_groups)
    for b, H, M, q in zip(blocks.buckets, m.H, m.M, m.q, strict=True):
        h, U = np.linalg.eigh(H)
        left = np.einsum("gij,gik,gkj->gj", U, M, U)  # 1 - h, with its digits
        with np.errstate(all="ignore"):
            s = np.maximum(h / left, 0.0)  # a rounding error where columns depend on each other
            square = np.where(s > 0.0, np.square(times(transposed(U), q) / left), 0.0)
            v = np.column_stack([np.ones(len(s)), _GRID / np.mean(s, axis=1)[:, None]])
            inside = v[:, :, None] * s[:, None, :]
            fit = np.sum(v[:, :, None] * square[:, None, :] / (1.0 + inside), axis=2)
            if n is not None:
                without = m.quadratic + fit[:, :1]
                fit = -n * np.log(np.maximum(1.0 - fit / without, np.finfo(float).tiny))
            value = 0.5 * (fit - np.sum(np.log1p(inside), axis=2))
        usable = np.all(np.isfinite(value), axis=1) & np.any(s > 0.0, axis=1)
        at = np.argmax(np.where(usable[:, None], value, 0.0), axis=1)
        rows = np.arange(len(s))
        top = np.maximum(value[rows, at], 0.0)
        best[b.owner] = np.where(usable, np.where(top > 0.0, v[rows, at], 0.0), 1.0)
        highest[b.owner], present[b.owner] = np.where(usable, [top, value[:, 0]], np.nan)
    return best, highest, present


def derivatives(
    form: Form, m: Marginals, lam: np.ndarray, sigma2: float, groups: np.ndarray, n: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return gradient and Hessian in the log variances of these groups and of the noise (last)."""
    blocks = form.blocks
    chosen = [np.isin(b.owner, groups) for b in blocks.buckets]
    owner = np.concatenate(
        [np.repeat(b.owner[w], b.size) for b, w in zip(blocks.buckets, chosen, strict=True)]
    )
    q = np.concatenate([x[w].ravel() for x, w in zip(m.q, chosen, strict=True)])
    everywhere = np.concatenate([np.repeat(b.owner, b.size) for b in blocks.buckets])
    spread = form.X * np.sqrt(lam[everywhere] / sigma2)
    L = factor(spread @ spread.T + np.eye(len(spread)))
    W = solve_triangular(L, spread[:, blocks.positions(chosen)], lower=True)
    inverse = solve_triangular(L, np.eye(len(L)), lower=True)
    Z, y = inverse.T @ W, inverse @ (form.y / np.sqrt(sigma2))
    c = inverse.T @ y
    to = (owner[:, None] == groups).astype(np.float64)  # sums over the columns of a group
    M = W.T @ W
    slope = 0.5 * (to.T @ (q**2 - np.diag(M)))
    H = to.T @ (0.5 * M**2 - M * np.multiply.outer(q, q)) @ to + np.diag(slope)
    mixed = to.T @ (0.5 * np.sum(Z**2, axis=0) - q * (Z.T @ c))
    Ac = inverse @ c
    trace, square = float(np.sum(inverse**2)), float(np.sum((inverse.T @ inverse) ** 2))
    at_noise = 0.5 * (square - trace + float(c @ c)) - float(Ac @ Ac)
    noise_slope = 0.5 * (m.residual - n + m.n_used)
    H = np.block([[H, mixed[:, None]], [mixed[None], np.array([[at_noise]])]])
    return np.append(slope, noise_slope), H
