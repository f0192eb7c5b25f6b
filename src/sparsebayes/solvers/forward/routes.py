"""The scores of a greedy selection: four routes to the same A, B and C.

    columns    one pass over the columns for each term; exact at any lam
    gram       H'H and H't once, in blocks of rows, n m^2 flops; no step then depends on n. Needs
               lam >= 1e3 eps max|h|^2
    triangle   [H t] = Q [R z] once, in blocks of rows, then `columns` on R. Like `gram`, but exact
               at any lam, for twice the flops; needs m < n
    low rank   H ~ Q = G G_c' by pivoted Cholesky, then `columns` on the p-vectors U'G g_i. A, B
               and C come from the same matrix Q: with exact A and B beside a C from Q, B becomes
               negative and the choice is worse than with everything from Q (measured)

A route is a function of a design and its target that returns scores.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Protocol, TypeAlias

import numpy as np

from ..._array import Array, PerTarget, to_numpy
from ...designs import CompressedDesign, Design
from ...designs.lowrank import pivoted_factor
from ...posterior import augmented_triangle
from ...rows._base import Report as Progress
from ..greedy import OrthogonalColumns, times
from ..noise import squares

Report: TypeAlias = dict[str, str | int | float]  # how the scores were computed

GRAM_TRUST = 1e3  # times eps max|h|^2: the smallest lam at which the Gram matrix has enough digits

# Approximate seconds of a multiplication in a Gram matrix, of an entry of a column that is read,
# of one that is computed, and of a multiplication in a triangle.
_GRAM_COST, _READ_COST, _KERNEL_COST, _TRIANGLE_COST = 2e-11, 8e-10, 6e-9, 1e-10
_CHEAP = 0.1  # seconds of passes that are not worth avoiding
_EXPENSIVE = 3.0  # seconds of a triangle that are too many for choosing an order
_EPS32 = float(np.finfo(np.float32).eps)


class Scores(Protocol):
    """The scores that `selection` uses: `begin`, then `absorb`, `examine` and `add` for each term.

    Of several targets A and S have a column for each.
    """

    name: str
    report: Report
    norms: np.ndarray
    smallest_lam: float  # at which the scores are accurate
    xp: ModuleType  # the module whose functions take A and B
    A: Array
    B: Array
    S: PerTarget
    free: Array  # mask of the candidates that may be chosen
    drift: float  # relative error of A of the last candidate that was examined

    def begin(self, lam: float, max_terms: int) -> None: ...

    def absorb(self) -> object: ...

    def examine(self, i: int) -> tuple[Array, Array]: ...

    def add(self, i: int) -> None: ...


class ColumnScores(OrthogonalColumns):
    """Scores from the columns of a design, exact at any lam; one read of the design per term.

    A candidate is examined before it is chosen, so that the recursion may lose more digits.
    """

    name = "columns"
    smallest_lam = 0.0
    lost = 1e-8
    single = True  # the evidence of the chosen path comes from columns in float64

    def __init__(self, design: Design, t: np.ndarray, **report: str | int | float) -> None:
        super().__init__(design, t)
        self.report = report

    def begin(self, lam: float, max_terms: int) -> None:
        """Begin a path without a chosen column."""
        self.start(lam, max_terms, ridge=lam)
        self.drift, self._examined = 0.0, -1

    def examine(self, i: int) -> tuple[Array, Array]:
        """Compute A_i and B_i from the column, and the error of the recursion as `drift`."""
        _, self._w, self._s = self.orthogonalise(i)
        get = self.transfer.get
        recursive, exact = get(self.A[i]), get(self._w @ self.residual)
        size = np.sqrt(self.norms[i] * self.S)
        errors = np.abs(exact - recursive) / np.where(size > 0, size, np.inf)
        self.drift = float(np.max(errors))
        self.A[i] = self.transfer.put(exact) if exact.ndim else float(exact)
        self.B[i] = self._s
        self._examined = i
        return exact, np.asarray(self._s)

    def add(self, i: int) -> None:
        """Choose column i."""
        if self._examined != i:
            self.examine(i)
        self.take(i, self._w, self._s)
        self._examined = -1


class GramScores:
    """Scores from G = H'H, a = H't and tt = t't: C = H'h_i - sum_j C_j C_j(i)/d_j.

    The cost does not depend on n, but d has the relative error eps max|h|^2 / lam. With `single`
    the products are in float32, and the scores are not `exact`. `triangle`, if known, has the
    same moments as the columns of the design, and the rotated target.
    """

    name = "gram"
    xp: ModuleType = np

    def __init__(
        self,
        G: np.ndarray,
        a: np.ndarray,
        tt: PerTarget,
        single: bool = False,
        triangle: tuple[Design, np.ndarray] | None = None,
        **report: str | int | float,
    ) -> None:
        self.G, self.a, self.tt, self.triangle, self.report = G, a, tt, triangle, report
        self.exact = not single
        self.norms = np.maximum(np.diag(G), 0.0)
        eps = float(np.finfo(np.float32 if single else np.float64).eps)
        self.smallest_lam = GRAM_TRUST * eps * float(np.max(self.norms, initial=0.0))

    def begin(self, lam: float, max_terms: int) -> None:
        """Begin a path without a chosen column."""
        self.lam, self.k = lam, 0
        self.A, self.B = self.a.copy(), self.norms.copy()
        self._C = np.empty((max_terms, len(self.a)))  # C_j / sqrt(d_j), a row for each term
        self.S: PerTarget = self.tt
        self.drift, self.free = 0.0, self.norms > 0.0

    def absorb(self) -> None:
        """Do nothing: `add` has updated all candidates."""

    def examine(self, i: int) -> tuple[Array, Array]:
        """Return A_i and B_i of the recursion, the best values that the Gram matrix gives."""
        return self.A[i], self.B[i]

    def add(self, i: int) -> None:
        """Choose column i, from row i of the Gram matrix."""
        k = self.k
        C = self.G[i] - self._C[:k, i] @ self._C[:k]
        root = np.sqrt(self.lam + max(C[i], 0.0))
        C /= root
        v = self.A[i] / root
        self._C[k] = C
        self.A -= times(C, v)
        self.B -= C * C
        np.maximum(self.B, 0.0, out=self.B)
        self.S = np.maximum(self.S - v * v, 0.0)
        self.free[i] = False
        self.k = k + 1


Route: TypeAlias = Callable[[Design, np.ndarray], Scores]


def columns_route(design: Design, t: np.ndarray, name: str = "columns") -> ColumnScores:
    """Return scores from passes over the columns, or from products that the design computes."""
    return ColumnScores(design, t, route=name)


def gram_route(
    design: Design,
    t: np.ndarray,
    *,
    single: bool = False,
    report: Progress | None = None,
    triangle: tuple[Design, np.ndarray] | None = None,
) -> GramScores:
    """Return scores from H'H and H't; with `single`, products in float32 and sums in float64."""
    G, a = design.moments(t, single, report)
    precision = "float32 products" if single else "float64"
    return GramScores(G, a, squares(t), single, triangle, route="gram", precision=precision)


def triangle_route(design: Design, t: np.ndarray) -> ColumnScores:
    """Return scores from the triangle of the columns."""
    return ColumnScores(*compressed(design, t), route="triangle")


def whole_path_route(design: Design, t: np.ndarray) -> GramScores:
    """Return scores by the Gram matrix of a triangle, from which a path of all columns is made."""
    triangle = compressed(design, t)
    return gram_route(*triangle, triangle=triangle)


def compressed(design: Design, t: np.ndarray) -> tuple[CompressedDesign, np.ndarray]:
    """Return the triangle of all columns as a design, and the target rotated with it."""
    m = design.n_candidates
    R, z, rss = augmented_triangle(design, t, np.arange(m), np.zeros(m))
    R = np.asfortranarray(np.vstack([R, np.zeros((1, m))]))
    return CompressedDesign(R, design, design.basis(np.arange(m))), with_residual(z, rss)


def with_residual(z: np.ndarray, rss: PerTarget) -> np.ndarray:
    """Return a rotated target with one more row, the length of its residual."""
    return np.concatenate([z, np.sqrt(np.asarray(rss))[None]])


def low_rank_route(
    design: Design, t: np.ndarray, *, rank: int, trace: float = 1e-12
) -> ColumnScores:
    """Return scores from a low-rank factor, by pivoted Cholesky as in the paper.

    The factorisation ends at `rank`, or when the share `trace` of the trace remains.
    """
    if design.kernel is None:
        raise ValueError(
            "rank=... requires a named kernel or a callable. Use rank=None with kernel=None "
            "and kernel='precomputed'."
        )
    A, F, residual_trace = pivoted_factor(design, rank, trace)
    p = len(F)
    R, z, rss = augmented_triangle(CompressedDesign(A, design, None), t, np.arange(p), np.zeros(p))
    matrix = np.asfortranarray(np.vstack([R @ F, np.zeros((1, F.shape[1]))]))
    return ColumnScores(
        CompressedDesign(matrix, design, None),
        with_residual(z, rss),
        route="low rank",
        rank=p,
        residual_trace=residual_trace,
    )


def cheapest_route(
    design: Design,
    t: np.ndarray,
    *,
    max_terms: int,
    passes: int,
    lam: float | None,
    memory: float,
    single: bool = False,
    gram_path: bool = False,
    report: Progress | None = None,
) -> Scores:
    """Return scores from the Gram matrix if that is faster, fits the memory and is accurate.

    Otherwise they come from the columns. `memory` in megabytes limits the Gram matrix, which may
    always be as large as the orthogonal columns that it replaces, max_terms x n. `single` requests
    float32 products, which are used only if lam is given and large enough for them. Where all
    candidates may be chosen, their triangle is computed first, unless the path comes from the Gram
    matrix (`gram_path`): it has the Gram matrix, and the path needs no further pass.
    """
    n, m = design.n_rows, design.n_candidates
    by_passes = (_KERNEL_COST if design.lazy else _READ_COST) * passes * max_terms * n * m
    by_gram = gram_seconds(design)
    if by_passes <= _CHEAP or by_passes <= by_gram or megabytes_short(design, memory, max_terms):
        return columns_route(design, t)
    if single and lam is not None and lam >= GRAM_TRUST * _EPS32 * _largest_norm(design):
        scores = gram_route(design, t, single=True, report=report)
        if lam >= scores.smallest_lam:
            return scores
    if m <= max_terms and m < n and not (single or gram_path):
        return whole_path_route(design, t)
    return gram_route(design, t, report=report)


def gram_seconds(design: Design, n_candidates: int | None = None) -> float:
    """Estimate the seconds that the Gram matrix of the candidates takes on one core."""
    m = design.n_candidates if n_candidates is None else n_candidates
    return _GRAM_COST * design.n_rows * m * m


def megabytes_short(design: Design, memory: float, max_terms: int) -> float:
    """Return the megabytes of a Gram matrix that exceeds the memory; 0 if it fits."""
    needed = 8e-6 * design.n_candidates**2
    return needed if needed > max(memory, 8e-6 * max_terms * design.n_rows) else 0.0


def fallback_route(design: Design, t: np.ndarray) -> ColumnScores | None:
    """Return scores for a lam too small for the Gram matrix; None if they take too long."""
    n, m = design.n_rows, design.n_candidates
    if m >= n:
        return columns_route(design, t)
    return triangle_route(design, t) if _TRIANGLE_COST * n * m * m <= _EXPENSIVE else None


def _largest_norm(design: Design) -> float:
    """Estimate max|h|^2 from the first block of rows."""
    _rows, block = next(iter(design.blocks()))
    block = to_numpy(block)
    return float(np.max(np.einsum("ij,ij->j", block, block))) * design.n_rows / len(block)
