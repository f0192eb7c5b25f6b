"""The chosen terms as a triangle, and the candidates with what leave-one-out needs.

The chosen columns are Phi_S = U R with orthonormal U. Of every other candidate phi the pool keeps
s = w'w and q = w't for w = phi - U U'phi (`solvers.greedy`). `reorder` does the same for a few
short columns, which are simply kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from ..._array import on_same_device, to_numpy
from ...designs import Design
from ..greedy import OrthogonalColumns, first_best

_NO_INFLUENCE = 1e6  # lam / w'w above which a term is not effective


@dataclass(frozen=True)
class Chosen:
    """The chosen columns in order: Phi_S = U R, z = U't, and what is left of t."""

    active: np.ndarray
    lam: np.ndarray
    norms: np.ndarray  # phi'phi
    R: np.ndarray
    z: np.ndarray
    outside: float  # |t - U z|^2

    @property
    def s(self) -> np.ndarray:
        """w'w of each term."""
        return np.square(np.diag(self.R))

    @property
    def g(self) -> np.ndarray:
        """Orthogonal weights."""
        return np.diag(self.R) * self.z / (self.s + self.lam)

    @property
    def fitted(self) -> np.ndarray:
        """(s + lam) g^2 of each term: rerr times t't."""
        return np.square(self.z) * (1.0 - self._unfitted)

    @property
    def E(self) -> float:
        """e'e + sum lam g^2, without cancellation."""
        return self.outside + float(np.sum(np.square(self.z) * self._unfitted))

    @property
    def effective(self) -> np.ndarray:
        """Which terms have influence."""
        return self.lam < _NO_INFLUENCE * self.s

    @property
    def _unfitted(self) -> np.ndarray:
        """lam / (s + lam), also for infinite lam."""
        with np.errstate(invalid="ignore"):
            return np.where(np.isinf(self.lam), 1.0, self.lam / (self.s + self.lam))


class Pool(OrthogonalColumns):
    """The candidates of one forward pass: s is their `B`, q their `A`; and the regularised fit."""

    def __init__(self, design: Design, t: np.ndarray, leverage: bool) -> None:
        super().__init__(design, t)
        self.e = t.copy()  # residual of the regularised fit
        self.weight = np.square(design.root_weight)  # of each row
        self.leverage = leverage  # whether slack is kept
        # See `lrols.press`. Rows without weight, which only blocks have, have no error to share.
        self.slack = np.where(self.weight > 0.0, self.weight * (1.0 - design.offset_scale), 1.0)
        self.values: list[float] = []  # of the stopping rule, from no term on

    def tilted_products(self) -> np.ndarray:
        """w'x for x = e over the squared share of each row that the model leaves it.

        That is what leave-one-out sees. A row that is interpolated has no share, and counts as if
        it had all. Absorbs the last term: both in one read.
        """
        share = np.where(self.slack > 0.0, self.slack, self.weight)
        x = self.e * np.square(self.weight / share)
        products = self.absorb(x)
        if products is None:
            # No term yet: no row has more influence than another, and x is t times a number.
            return to_numpy(self.A) * (x @ self.t / max(self.S, 1e-300))
        along = self.U[: self.k] @ on_same_device(self.U, x)
        return to_numpy(products - along @ self.C[: self.k])

    def take(self, j: int, w: Any, s: float) -> float:
        """Choose candidate j; returns u't."""
        along, d = super().take(j, w, s), s + self.lam[j]
        w = to_numpy(w)
        self.e -= (np.sqrt(s) * along / d) * w
        if self.leverage:
            self.slack -= np.square(w) / d
        return along


def append(terms: Chosen, pool: Pool, j: int, h: Any, w: Any, s: float) -> Chosen:
    """One more term, phi_j = U h + w."""
    k = len(terms.z)
    R = np.zeros((k + 1, k + 1))
    R[:k, :k], R[:k, k], R[k, k] = terms.R, to_numpy(h), np.sqrt(s)
    z = np.append(terms.z, pool.take(j, w, s))
    return Chosen(
        np.append(terms.active, j),
        np.append(terms.lam, pool.lam[j]),
        np.append(terms.norms, pool.norms[j]),
        R,
        z,
        pool.S,
    )


def first(terms: Chosen, k: int) -> Chosen:
    """The first k terms."""
    return Chosen(
        terms.active[:k],
        terms.lam[:k],
        terms.norms[:k],
        terms.R[:k, :k],
        terms.z[:k],
        terms.outside + float(np.sum(np.square(terms.z[k:]))),
    )


def last_in_order(terms: Chosen) -> np.ndarray:
    """q^2/s of each term if it came last: theta_i^2 / [(Phi'Phi)^-1]_ii, by least squares."""
    inverse = solve_triangular(terms.R, np.eye(len(terms.z)))
    return np.square(inverse @ terms.z) / np.einsum("ij,ij->i", inverse, inverse)


def reorder(
    columns: np.ndarray, z: np.ndarray, lam: np.ndarray, norms: np.ndarray, guard: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Forward selection by error reduction among a few short columns: order, V, R.

    columns[:, order] = V R with orthonormal V. Modified Gram-Schmidt on all columns, and once more
    on the chosen one. Degenerate columns are left out.
    """
    W, rest = columns.copy(), z.copy()
    V = np.zeros_like(columns)
    free = np.ones(len(lam), dtype=bool)
    order: list[int] = []
    while True:
        s = np.einsum("ij,ij->j", W, W)
        free &= s > guard * norms
        if not np.any(free):
            break
        score = np.where(free, np.square(W.T @ rest) / np.where(free, s + lam, 1.0), -np.inf)
        j = first_best(score)
        k = len(order)
        w = W[:, j] - V[:, :k] @ (V[:, :k].T @ W[:, j])
        v = w / np.linalg.norm(w)
        V[:, k] = v
        rest -= v * (v @ rest)
        W -= np.outer(v, v @ W)
        free[j] = False
        order.append(j)
    V = V[:, : len(order)]
    return np.array(order, dtype=np.intp), V, np.triu(V.T @ columns[:, order])
