"""Scores of all candidates while columns are chosen one at a time.

Over the chosen columns H_I, let P = (Id + H_I H_I'/lam)^-1. A greedy criterion is a function of

    A_i = h_i'P t,   B_i = h_i'P h_i,   S = t'P t,

and choosing column i, with m = P h_i, d = lam + B_i and C = H'm, changes them to

    A - C A_i/d,   B - C^2/d,   S - A_i^2/d.                 Sun & Yao 2006, eq (6)-(10)

With lam = 0 these are the recursions of orthogonal least squares: A_i = w_i'y and B_i = w_i'w_i of
the columns orthogonalised against the chosen ones.

Two kinds of scores do this, with the same verbs: `begin(lam, max_terms)`, `examine(i)` (make A_i
and B_i as true as they can be), `add(i)`.

- `ColumnScores` works on the rows. P h_i is the upper part of the column [h_i; sqrt(lam) e] after
  orthogonalisation against the chosen ones, so d is a squared norm and S is one as well. The
  paper's single projection loses digits as |h|^2/lam grows; two projections do not. One pass over
  the design for each term; works at any lam. A candidate whose lam + B has fallen to 1e-8 of what
  it was when last measured is measured again, so a column costs a few such looks in a whole path.
- `GramScores` needs H'H and H't alone: C = H'h_i - sum_j C_j C_j(i)/d_j. Its cost does not know n,
  but d has the relative error eps max|h|^2 / lam.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ...designs import Design

GRAM_TRUST = 1e3  # times eps max|h|^2: the smallest lam at which the Gram form is trustworthy
_TIE = 1e-10  # relative: gains as close as this are equal, and the lowest index wins
_SPENT = 1e-8  # share of a squared norm below which the recursion has spent its digits
_BLOCK = 64  # columns measured together


class Scores(Protocol):
    """What a greedy solver asks for; see the module docstring."""

    name: str
    report: dict[str, Any]
    norms: np.ndarray
    smallest_lam: float
    A: np.ndarray
    B: np.ndarray
    S: float
    drift: float

    def begin(self, lam: float, max_terms: int) -> None: ...

    def examine(self, i: int) -> None: ...

    def add(self, i: int) -> None: ...


class ColumnScores:
    """Scores from the columns of a design; `t` as ``design.target`` returned it."""

    name = "columns"
    smallest_lam = 0.0

    def __init__(self, design: Design, t: np.ndarray, **report: Any) -> None:
        self.design, self.t, self.report = design, t, report
        self.norms = design.sqnorms()
        self._start = design.project(t)

    def begin(self, lam: float, max_terms: int) -> None:
        """No column chosen."""
        self.lam, self.k = lam, 0
        self.A, self.B = self._start.copy(), self.norms.copy()
        # Orthonormal columns [upper; lower] of the chosen [H_I; sqrt(lam) Id].
        self._upper = np.empty((len(self.t), max_terms), order="F")
        self._lower = np.zeros((max_terms, max_terms), order="F")
        # What is left of [t; 0].
        self._residual = self.t.copy()
        self._below = np.zeros(max_terms)
        self.S = float(self.t @ self.t)
        self.drift = 0.0
        self._measured = self.norms.copy()  # B when it was last measured
        self._examined = -1

    def examine(self, i: int) -> None:
        """Measure A_i and B_i; what the recursion had gathered in error is kept as `drift`."""
        before = self.A[i]
        H, below = self._measure(np.array([i]))
        size = np.sqrt(self.norms[i] * self.S)
        self.drift = abs(float(self.A[i] - before)) / size if size > 0 else 0.0
        self._examined, self._h, self._b = i, H[:, 0], below[:, 0]

    def _measure(self, idx: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Orthogonalise columns against the chosen ones, twice; read A and B off what is left."""
        k = self.k
        upper, lower = self._upper[:, :k], self._lower[:k, :k]
        H = self.design.columns(idx)
        C = upper.T @ H
        H -= upper @ C
        below = -lower @ C
        C = upper.T @ H + lower.T @ below
        H -= upper @ C
        below -= lower @ C
        self.A[idx] = self._residual @ H + self._below[:k] @ below
        self.B[idx] = np.einsum("ij,ij->j", H, H) + np.einsum("ij,ij->j", below, below)
        self._measured[idx] = self.B[idx]
        return H, below

    def add(self, i: int) -> None:
        """Choose column i: one pass over the design."""
        if self._examined != i:
            self.examine(i)
        k = self.k
        root = np.sqrt(self.lam + self.B[i])
        q, b, corner = self._h / root, self._b / root, np.sqrt(self.lam) / root
        v = self.A[i] / root
        self._upper[:, k] = q
        self._lower[:k, k] = b
        self._lower[k, k] = corner
        self._residual -= v * q
        self._below[:k] -= v * b
        self._below[k] = -v * corner
        self.S = float(
            self._residual @ self._residual + self._below[: k + 1] @ self._below[: k + 1]
        )
        C = self.design.project(q)
        self.A -= C * v
        self.B -= C * C
        np.maximum(self.B, 0.0, out=self.B)
        self.k, self._examined = k + 1, -1
        spent = np.flatnonzero(self.lam + self.B < _SPENT * self._measured)
        for start in range(0, len(spent), _BLOCK):
            self._measure(spent[start : start + _BLOCK])


class GramScores:
    """Scores from G = H'H and a = H't; `tt` = t't.

    `single`: the products are in float32. `rows`: they are an estimate from the first rows, all
    that were read before an interruption. Neither is `exact`.
    """

    name = "gram"

    def __init__(
        self,
        G: np.ndarray,
        a: np.ndarray,
        tt: float,
        single: bool = False,
        rows: int | None = None,
        **report: Any,
    ) -> None:
        self.G, self.a, self.tt, self.report = G, a, tt, report
        self.exact, self.interrupted = not single and rows is None, rows is not None
        if rows is not None:
            self.report["rows_read"] = rows
        self.norms = np.maximum(np.diag(G), 0.0)
        eps = float(np.finfo(np.float32 if single else np.float64).eps)
        self.smallest_lam = GRAM_TRUST * eps * float(np.max(self.norms, initial=0.0))

    def begin(self, lam: float, max_terms: int) -> None:
        """No column chosen."""
        self.lam, self.k = lam, 0
        self.A, self.B = self.a.copy(), self.norms.copy()
        self._C = np.empty((max_terms, len(self.a)))  # C_j / sqrt(d_j), a row for each term
        self.S, self.drift = self.tt, 0.0

    def examine(self, i: int) -> None:
        """Nothing truer is known here than A_i and B_i."""

    def add(self, i: int) -> None:
        """Choose column i, from row i of the Gram matrix."""
        k = self.k
        C = self.G[i] - self._C[:k, i] @ self._C[:k]
        root = np.sqrt(self.lam + max(C[i], 0.0))
        C /= root
        v = self.A[i] / root
        self._C[k] = C
        self.A -= C * v
        self.B -= C * C
        np.maximum(self.B, 0.0, out=self.B)
        self.S = max(self.S - v * v, 0.0)
        self.k = k + 1


def first_best(values: np.ndarray) -> int:
    """Index of the largest value; the lowest index among those that equal it up to rounding."""
    best = np.max(values)
    return int(np.argmax(values >= best - _TIE * max(1.0, abs(best)))) if np.isfinite(best) else -1
