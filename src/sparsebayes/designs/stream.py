"""Columns of rows that are read once and not stored.

Let Phi be the candidate functions on all rows so far, each row times the root of its weight. The
triangle R of [1 Phi t] = QR has as many rows as columns, whatever the number of data rows, and new
rows are folded into it. It is all that a search among these candidates needs: with the constant
column first, R without its first row and column is the triangle of the centred columns, and its
first row holds their means. Sums of products would be half the work, but their rounding errors are
the square of those of the columns, and kernel functions overlap. Triangles of parts of the rows are
folded into one, so that the parts may be on a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._array import Array
from ..kernels import Kernel
from ..linalg.factor import fold, fold_rows
from ..rows import Job
from ..rows._base import Chunk
from ._base import Basis, CentredBasis, Design
from .centred import CONSTANT
from .dense import CompressedDesign, RowCounts
from .kernel import block_rows


@dataclass(frozen=True, eq=False)
class Stream(Job):
    """The triangle of [1 Phi t], or of [Phi t] without an intercept, of the rows read so far.

    A stream is also the job that computes it, over chunks (X, t, weight or None).

    Attributes
    ----------
    functions : Basis
        All candidate functions.
    labels : array of int
        Row or column of X that carries each candidate.
    kernel : Kernel or None
        The kernel of the functions.
    scale : float
        Number by which targets are divided.
    intercept : bool
        Whether the model has a constant.
    triangle : array
        R.
    total : float
        Sum of the weights.
    n_rows : int
        Number of rows read.
    """

    functions: Basis
    labels: np.ndarray
    kernel: Kernel | None
    scale: float
    intercept: bool
    triangle: np.ndarray
    total: float = 0.0
    n_rows: int = 0

    @classmethod
    def from_functions(
        cls,
        functions: Basis,
        labels: np.ndarray,
        kernel: Kernel | None,
        scale: float,
        intercept: bool,
    ) -> Stream:
        """Return a stream that has read no rows."""
        width = len(functions) + 1 + intercept
        return cls(functions, labels, kernel, scale, intercept, np.zeros((width, width)))

    def plus(self, X: Array, y: np.ndarray, weight: np.ndarray | None) -> Stream:
        """Return the stream after it has read these rows."""
        root = np.ones(len(y)) if weight is None else np.sqrt(weight)
        width, top = len(self.triangle), self.triangle if self.n_rows else None
        t, step = y / self.scale, block_rows(width)
        triangle = fold_rows(self.functions, X, t, root, self.intercept, width, step, top)
        return self._updated(triangle, float(root @ root), len(y))

    def read(self, index: int, chunk: Chunk) -> Stream:
        """Read one chunk."""
        return self.plus(*chunk)

    def merge(self, first: Stream, second: Stream) -> Stream:
        """Fold two triangles into one."""
        both = fold([first.triangle, second.triangle], len(self.triangle))
        return first._updated(both, second.total, second.n_rows)

    def _updated(self, triangle: np.ndarray, total: float, n_rows: int) -> Stream:
        total, n_rows = self.total + total, self.n_rows + n_rows
        return replace(self, triangle=triangle, total=total, n_rows=n_rows)

    @property
    def target_moments(self) -> tuple[float, float]:
        """Mean and standard deviation of the target, of a stream with an intercept."""
        target, scale = self.triangle[:, -1], self.scale
        spread = float(np.sqrt(target[1:] @ target[1:] / self.total))
        return float(target[0] / self.triangle[0, 0]) * scale, spread * scale

    def problem(self, hold_intercept: bool = False) -> tuple[Design, np.ndarray, float]:
        """Return the candidates as a design, the target, and its mean.

        With `hold_intercept` the constant is that mean, and the candidates are not centred.
        """
        k = int(self.intercept)
        if hold_intercept:
            offset = float(self.triangle[0, -1] / self.triangle[0, 0])
            around = self.triangle[:, 1:].copy()
            around[:, -1] -= offset * self.triangle[:, 0]
            R = np.asarray(np.linalg.qr(around, mode="r"))
            held = replace(self, intercept=False)
            return StreamDesign(R[:, :-1], held, self.functions), R[:, -1].copy(), offset
        R, functions, offset = self.triangle[k:, k:], self.functions, 0.0
        if self.intercept:
            means = self.triangle[0, 1:] / self.triangle[0, 0]
            functions, offset = CentredBasis(functions, means[:-1]), float(means[-1])
            # What is left of a constant column is rounding, which grows with the root of the rows.
            least = np.sqrt(CONSTANT * self.n_rows) * np.abs(self.triangle[0, 1:])
            R = np.where(np.linalg.norm(R, axis=0) > least, R, 0.0)
        return StreamDesign(R[:, :-1], self, functions), R[:, -1].copy(), offset


class StreamDesign(CompressedDesign):
    """The columns of a stream, represented by their triangular factor."""

    def __init__(self, matrix: np.ndarray, stream: Stream, functions: Basis) -> None:
        super().__init__(matrix, RowCounts(stream.total, stream.intercept), functions)
        self._n_rows_read, self._centres = stream.n_rows, functions.centres
        self._kernel = stream.kernel

    @property
    def inputs(self) -> np.ndarray | None:
        """The centres of the functions: the other rows are not stored."""
        return self._centres

    @property
    def stationary(self) -> bool:
        """True where the columns are functions of a stationary kernel."""
        return self._kernel is not None and self._kernel.stationary

    @property
    def n_distinct_inputs(self) -> int:
        """Number of rows of the stream."""
        return self._n_rows_read
