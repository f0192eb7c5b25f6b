"""All candidates of a design less their projection on the chosen columns.

The chosen columns are Phi_S = U R with orthonormal U. Of every other candidate phi the pool keeps
s = w'w and q = w't for w = phi - U U'phi: recursively (one read of Phi per new u), measured again
where that has lost digits, and explicitly in blocks of rows where a criterion asks for w itself.
`reorder` does the same for a few short columns, which are simply kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from ..._array import to_numpy
from ...designs import CentredDesign, Design
from ...designs._base import beside, row_slices

TIE = 1e-10  # relative difference of two scores that counts as none: s has lost four digits
_NO_INFLUENCE = 1e6  # lam / w'w above which a term is not effective
_BLOCK = 2**17  # elements of a block of rows that stays in the cache
_ROOM = 64  # places for u to begin with, at most
_LOST = 1e-4  # fall of s + lam after which s and q are measured directly


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


def lengths_and_products(design: Design, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """phi'phi and phi't of every candidate in one read, so that kernels are evaluated once.

    Where an intercept is integrated out, the means come from the same read: with its direction v
    (t is orthogonal to it) phi'phi = |column|^2 - (v'column)^2, measured directly where that loses
    digits.
    """
    centred = isinstance(design, CentredDesign)
    base = design.base if isinstance(design, CentredDesign) else design
    m, unit = base.n_candidates, base.unit
    direction = unit / np.linalg.norm(unit)
    squares, products, along = np.zeros(m), np.zeros(m), np.zeros(m)
    step = max(64, _BLOCK // max(1, m))
    with np.errstate(over="ignore", invalid="ignore"):
        for rows, block in base.blocks():
            for part in row_slices(rows.stop - rows.start, step):
                values = block[part]
                at = slice(rows.start + part.start, rows.start + part.stop)
                squares += to_numpy((values * values).sum(axis=0))
                products += to_numpy(values.T @ beside(t[at], values))
                if centred:
                    along += to_numpy(values.T @ beside(direction[at], values))
        norms = squares - np.square(along)
    lost = np.flatnonzero(norms < _LOST * squares)
    if len(lost):
        norms[lost] = products[lost] = 0.0
        for rows, block in design.blocks(lost):
            values = to_numpy(block)
            norms[lost] += np.einsum("ij,ij->j", values, values)
            products[lost] += values.T @ t[rows]
    return norms, products


class Pool:
    """The candidates of one forward pass, the orthonormal u chosen so far, and the residuals."""

    def __init__(
        self,
        design: Design,
        t: np.ndarray,
        norms: np.ndarray,
        products: np.ndarray,
        lam: np.ndarray,
        leverage: bool,
        expected: int,
    ) -> None:
        base = design.base if isinstance(design, CentredDesign) else design
        self.norms = norms  # phi'phi
        self.lam = lam
        self.s = norms.copy()
        self.q = products  # phi't
        self.reference = norms + lam  # s + lam when last measured directly
        self.free = norms > 0.0  # neither chosen nor degenerate
        room = min(expected, len(t), len(norms), _ROOM)
        self.U = np.empty((room, len(t)))  # rows are u
        self.C = np.empty((room, len(norms)))  # rows are Phi'u
        self.k = 0  # chosen so far
        self.absorbed = 0  # how many u have been taken out of s and q
        self.r = t.copy()  # residual of least squares
        self.e = t.copy()  # residual of the regularised fit
        self.weight = np.square(base.unit)  # of each row
        self.leverage = leverage  # whether slack is kept
        self.slack = self.weight * (1.0 - design.offset_scale)  # see `lrols.press`
        self.values: list[float] = []  # of the stopping rule, from no term on

    @property
    def tilted(self) -> np.ndarray:
        """e over the squared share of each row that the model leaves it: what leave-one-out sees.

        A row that is interpolated has none, and counts as if it had all.
        """
        share = np.where(self.slack > 0.0, self.slack, self.weight)
        return self.e * np.square(self.weight / share)

    def absorb(self, design: Design, x: np.ndarray | None = None) -> np.ndarray:
        """Take the last u out of s and q of every candidate: the one read of Phi of a step.

        Left until the next choice is due, so that the last term costs none. Returns w'x.
        """
        if self.absorbed == self.k:
            # No term yet. x is t times a number then: no row has more influence than another.
            return self.q if x is None else self.q * (x @ self.r / max(self.r @ self.r, 1e-300))
        u = self.U[self.absorbed]
        c = design.project(u if x is None else np.column_stack([u, x]))
        along_x = None
        if x is not None:
            c, along_x = c.T
        self.C = _room(self.C, self.k)
        self.C[self.absorbed] = c
        self.s -= c * c
        self.q -= c * self.along
        self.absorbed += 1
        lost = np.flatnonzero(self.free & (self.s + self.lam < _LOST * self.reference))
        if len(lost):
            self._measure(design, lost)
        if x is None:
            return self.q
        return along_x - (self.U[: self.k] @ x) @ self.C[: self.k]

    def _measure(self, design: Design, idx: np.ndarray) -> None:
        s, q = np.zeros(len(idx)), np.zeros(len(idx))
        for rows, W in self.blocks(design, idx):
            s += np.einsum("ij,ij->j", W, W)
            q += W.T @ self.r[rows]
        self.s[idx], self.q[idx] = s, q
        self.reference[idx] = s + self.lam[idx]

    def blocks(self, design: Design, idx: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """The w of candidates `idx`, in blocks of rows that fit the cache."""
        C = self.C[: self.k, idx]
        step = max(64, _BLOCK // max(1, len(idx)))
        for rows, columns in design.blocks(idx):
            block = to_numpy(columns)
            for part in row_slices(len(block), step):
                at = slice(rows.start + part.start, rows.start + part.stop)
                W = self.U[: self.k, at].T @ C
                yield at, np.subtract(block[part], W, out=W)

    def orthogonalise(self, design: Design, j: int) -> tuple[np.ndarray, np.ndarray]:
        """phi_j = U h + w with w orthogonal to U to rounding.

        Classical Gram-Schmidt, of which the products are known already, and once more where it took
        away half of the squared length or more: else no digits were lost (Kahan, Parlett).
        """
        U, h = self.U[: self.k], self.C[: self.k, j]
        w = design.columns(np.array([j]))[:, 0] - h @ U
        if w @ w > 0.5 * self.norms[j]:
            return h, w
        again = U @ w
        w -= again @ U
        return h + again, w

    def take(self, j: int, w: np.ndarray, s: float) -> float:
        """Choose candidate j. Returns u't, taken from the residual: that loses fewer digits."""
        u = w / np.sqrt(s)
        d = s + self.lam[j]
        self.along = float(u @ self.r)
        self.U = _room(self.U, self.k)
        self.U[self.k] = u
        self.r -= self.along * u
        self.e -= (np.sqrt(s) * self.along / d) * w
        if self.leverage:
            self.slack -= np.square(w) / d
        self.free[j] = False
        self.k += 1
        return self.along


def append(terms: Chosen, pool: Pool, j: int, h: np.ndarray, w: np.ndarray, s: float) -> Chosen:
    """One more term, phi_j = U h + w."""
    k = len(terms.z)
    R = np.zeros((k + 1, k + 1))
    R[:k, :k], R[:k, k], R[k, k] = terms.R, h, np.sqrt(s)
    z = np.append(terms.z, pool.take(j, w, s))
    return Chosen(
        np.append(terms.active, j),
        np.append(terms.lam, pool.lam[j]),
        np.append(terms.norms, pool.norms[j]),
        R,
        z,
        float(pool.r @ pool.r),
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
        j = int(np.argmax(score >= np.max(score) * (1.0 - TIE)))
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


def _room(rows: np.ndarray, k: int) -> np.ndarray:
    """The same rows with at least k + 1 places."""
    if k < len(rows):
        return rows
    larger = np.empty((2 * max(len(rows), 4), rows.shape[1]))
    larger[:k] = rows[:k]
    return larger
