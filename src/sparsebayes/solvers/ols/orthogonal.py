"""The chosen terms as a triangle, and the candidates with their leave-one-out quantities.

The chosen columns are Phi_S = U R with orthonormal U. For every other candidate phi the pool holds
s = w'w and q = w't with w = phi - U U'phi (`solvers.greedy`). `reorder` does the same for a few
short columns, which it stores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from ..._array import Array, on_same_device, to_numpy
from ...designs import Design
from ..greedy import OrthogonalColumns, first_best

_NO_EFFECT = 1e6  # lam / w'w above which a term has no effect on the fit


@dataclass(frozen=True)
class Terms:
    """The chosen columns in order: Phi_S = U R and z = U't."""

    active: np.ndarray
    lam: np.ndarray
    norms: np.ndarray  # phi'phi
    R: np.ndarray
    z: np.ndarray
    rss: float  # |t - U z|^2, the residual sum of squares of least squares

    @property
    def s(self) -> np.ndarray:
        """Squared length w'w of each orthogonal column."""
        return np.square(np.diag(self.R))

    @property
    def g(self) -> np.ndarray:
        """Weights of the orthogonal columns."""
        return np.diag(self.R) * self.z / (self.s + self.lam)

    @property
    def explained(self) -> np.ndarray:
        """Squares that each term explains: (s + lam) g^2, which is rerr times t't."""
        return np.square(self.z) * (1.0 - self._shrinkage)

    @property
    def E(self) -> float:
        """Penalised residual squares e'e + sum lam g^2, without cancellation."""
        return self.rss + float(np.sum(np.square(self.z) * self._shrinkage))

    @property
    def effective(self) -> np.ndarray:
        """Boolean mask of the terms that have an effect on the fit."""
        return self.lam < _NO_EFFECT * self.s

    @property
    def _shrinkage(self) -> np.ndarray:
        """Shrinkage lam / (s + lam) of each term; 1 for infinite lam."""
        with np.errstate(invalid="ignore"):
            return np.where(np.isinf(self.lam), 1.0, self.lam / (self.s + self.lam))


class Pool(OrthogonalColumns):
    """The candidates of a forward selection (s is their `B`, q their `A`) and the fit so far."""

    def __init__(self, design: Design, t: np.ndarray, leverage: bool) -> None:
        super().__init__(design, t)
        self.e = t.copy()  # residual of the regularised fit
        self.weight = np.square(design.root_weight)  # of each row
        self.leverage = leverage  # whether slack is updated
        # See `criteria.press`. Rows of weight zero, which only blocks have, have no error.
        self.slack = np.where(self.weight > 0.0, self.weight * (1.0 - design.offset_scale), 1.0)
        self.values: list[float] = []  # stopping rule at 0, 1, ... terms

    def tilted_products(self) -> np.ndarray:
        """Return w'x of every candidate, with x = v^2 e/slack^2 the tilted residual.

        A row that is interpolated has no slack and counts as if it had all of it. The last term is
        absorbed in the same read.
        """
        slack = np.where(self.slack > 0.0, self.slack, self.weight)
        x = self.e * np.square(self.weight / slack)
        products = self.absorb(x)
        if products is None:
            # Without a term all rows have the same leverage, and x is a multiple of t.
            return to_numpy(self.A) * (x @ self.t / max(self.S, 1e-300))
        along = self.U[: self.k] @ on_same_device(self.U, x)
        return to_numpy(products - along @ self.C[: self.k])

    def take(self, j: int, w: Array, s: float) -> float:
        """Choose candidate j = U h + w with w'w = s; return u't."""
        along, d = float(super().take(j, w, s)), s + self.lam[j]
        w = to_numpy(w)
        self.e -= (np.sqrt(s) * along / d) * w
        if self.leverage:
            self.slack -= np.square(w) / d
        return along


def append_term(terms: Terms, pool: Pool, j: int, h: Array, w: Array, s: float) -> Terms:
    """Append the term phi_j = U h + w."""
    k = len(terms.z)
    R = np.zeros((k + 1, k + 1))
    R[:k, :k], R[:k, k], R[k, k] = terms.R, to_numpy(h), np.sqrt(s)
    z = np.append(terms.z, pool.take(j, w, s))
    return Terms(
        np.append(terms.active, j),
        np.append(terms.lam, pool.lam[j]),
        np.append(terms.norms, pool.norms[j]),
        R,
        z,
        float(pool.S),
    )


def first_terms(terms: Terms, k: int) -> Terms:
    """Return the first k terms."""
    return Terms(
        terms.active[:k],
        terms.lam[:k],
        terms.norms[:k],
        terms.R[:k, :k],
        terms.z[:k],
        terms.rss + float(np.sum(np.square(terms.z[k:]))),
    )


def squares_if_last(terms: Terms) -> np.ndarray:
    """Return q^2/s of each term in the last place: theta_i^2 / [(Phi'Phi)^-1]_ii."""
    inverse = solve_triangular(terms.R, np.eye(len(terms.z)))
    return np.square(inverse @ terms.z) / np.einsum("ij,ij->i", inverse, inverse)


def reorder(
    columns: np.ndarray, z: np.ndarray, lam: np.ndarray, norms: np.ndarray, guard: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Order a few short columns by error reduction; return the order, V and R.

    columns[:, order] = V R with orthonormal V, by modified Gram-Schmidt on all columns and a second
    pass over the chosen one. Degenerate columns are dropped.
    """
    W, residual = columns.copy(), z.copy()
    V = np.zeros_like(columns)
    free = np.ones(len(lam), dtype=bool)
    order: list[int] = []
    while True:
        s = np.einsum("ij,ij->j", W, W)
        free &= s > guard * norms
        if not np.any(free):
            break
        score = np.where(free, np.square(W.T @ residual) / np.where(free, s + lam, 1.0), -np.inf)
        j = first_best(score)
        k = len(order)
        w = W[:, j] - V[:, :k] @ (V[:, :k].T @ W[:, j])
        v = w / np.linalg.norm(w)
        V[:, k] = v
        residual -= v * (v @ residual)
        W -= np.outer(v, v @ W)
        free[j] = False
        order.append(j)
    V = V[:, : len(order)]
    return np.array(order, dtype=np.intp), V, np.triu(V.T @ columns[:, order])
