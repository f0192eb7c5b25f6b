"""What each function outside a model would gain it, from sums over the rows.

At a fitted model, with omega the weight of each row (labels: its curvature), r the weighted
residual, and W^1/2 the root of the posterior covariance of its k columns Phi (over the noise), the
evidence as a function of one more column h is known by (Tipping & Faul 2003)

    s = h'Omega h - |W^1/2 Phi'Omega h|^2,   q = h'r,

both with the columns centred by omega where there is an intercept. What the best lam gains rises
with q^2/s and with nothing else, so that this ranks also the functions that gain nothing today.

Cost: n k for each function, about a quarter of what a run of the RVM on it has cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..designs._base import row_slices
from ..kernels import Kernel
from ..solvers.rvm.one_column import optimal_lam
from ._reduce import Values

_BLOCK = 4_000_000  # entries of k x functions that are held at a time
_PASS = 2e9  # kernel values of one pass, about 20 seconds: then the clock is looked at
_ROUNDING = 1e-10  # of h'Omega h: an s that is less is none


class Sight(NamedTuple):
    """A model at some rows."""

    omega: np.ndarray
    residual: np.ndarray
    projection: np.ndarray  # Omega Phi W^1/2


class Seen(Protocol):
    """A model of one or more problems, for some rows of a chunk. Travels to workers."""

    @property
    def intercept(self) -> bool:
        """Whether the columns are centred."""

    @property
    def kernel(self) -> Kernel:
        """Of the functions."""

    @property
    def n_functions(self) -> list[int]:
        """Of each problem."""

    def rows(self, chunk: Any) -> Any:
        """The rows of positive weight of a chunk, X first."""

    def __call__(self, some: Any) -> Iterator[Sight]:
        """How each problem sees some of those rows."""


class Statistics(NamedTuple):
    """s and q of each function, one row for each problem, and h'Omega h."""

    s: np.ndarray
    q: np.ndarray
    norms: np.ndarray

    def ranked(self, prior: Any, tol: float) -> np.ndarray:
        """The functions by what they gain the problem they gain most, best first.

        `prior` is (E, n, sigma2) as in `solvers.rvm.one_column`. Nothing, if none gains `tol`.
        """
        if not self.s.shape[1]:
            return np.empty(0, dtype=np.intp)
        if float(np.max(optimal_lam(self.s, self.q, self.norms, *prior)[1])) < tol:
            return np.empty(0, dtype=np.intp)
        usable = self.s > 0
        ratio = np.where(usable, self.q**2 / np.where(usable, self.s, 1.0), 0.0)
        return np.argsort(-np.max(ratio, axis=0), kind="stable")


class Sums(NamedTuple):
    """Over rows, for each problem."""

    along: list[np.ndarray]  # W^1/2 Phi'Omega H
    squares: np.ndarray  # of H, by omega
    means: np.ndarray
    slopes: np.ndarray  # H'r
    totals: np.ndarray  # of omega


@dataclass(frozen=True)
class RankJob:
    """One pass that gives the statistics of the functions on some centres."""

    seen: Seen
    centres: np.ndarray

    def read(self, index: int, chunk: Any) -> Sums:
        """A chunk of rows."""
        arrays = self.seen.rows(chunk)
        sizes, m = self.seen.n_functions, len(self.centres)
        along = [np.zeros((k, m)) for k in sizes]
        squares, means, slopes = np.zeros((3, len(sizes), m))
        totals = np.zeros(len(sizes))
        values = Values(self.seen.kernel, self.centres)
        for rows in row_slices(len(arrays[0]), values.step):
            some = tuple(a[rows] for a in arrays)
            H = values(some[0])
            sights = list(self.seen(some))
            for i, sight in enumerate(sights):
                along[i] += sight.projection.T @ H
                means[i] += sight.omega @ H
                slopes[i] += sight.residual @ H
                totals[i] += np.sum(sight.omega)
            np.square(H, out=H)
            for i, sight in enumerate(sights):
                squares[i] += sight.omega @ H
        return Sums(along, squares, means, slopes, totals)

    def merge(self, left: Sums, right: Sums) -> Sums:
        """Neighbouring chunks."""
        along = [a + b for a, b in zip(left.along, right.along, strict=True)]
        return Sums(along, *(a + b for a, b in zip(left[1:], right[1:], strict=True)))

    def finish(self, total: Sums) -> Statistics:
        """s, q and h'Omega h."""
        norms = total.squares
        if self.seen.intercept:
            norms = norms - total.means**2 / total.totals[:, None]
        s = norms - np.array([np.einsum("ij,ij->j", a, a) for a in total.along])
        return Statistics(np.where(s > _ROUNDING * total.squares, s, 0.0), total.slopes, norms)


def ranked_together(n_rows: int, n_active: int) -> int:
    """How many functions one pass looks at."""
    return int(max(256, min(_BLOCK // max(n_active, 1), _PASS // max(n_rows, 1))))
