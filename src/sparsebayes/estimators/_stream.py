"""Fits of rows that are read once and not kept: `partial_fit`, and columns of rows in blocks.

Let Phi be the candidate functions on all rows so far, each row times the root of its weight. The
triangle R of [1 Phi t] = QR has its number of columns as its size, whatever the number of rows, and
new rows are folded into it. It is all that a search among these candidates asks for: with the
constant column first, R without its first row and column is the triangle of the centred columns,
and its first row holds their means. Sums of products would be half the work, but their rounding
errors are the square of those of the columns, and kernel functions overlap. Triangles of parts of
the rows are folded into one, so that the parts may be on a cluster.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.metaestimators import available_if

from ..designs import Basis, CentredBasis, CompressedDesign, Design
from ..designs.dense import RowCounts
from ..designs.kernel import block_rows
from ..kernels import Kernel
from ..linalg.factor import fold, fold_rows
from ..rows import Job
from ._common import is_text
from ._noise import forget_noise
from ._sklearn import check_sample_weight, whole_fit


@dataclass(frozen=True)
class Stream(Job):
    """What is kept of the rows: the triangle of [1 Phi t], or of [Phi t] without an intercept.

    It is also the job that finds it, of chunks (X, t, weight or None).
    """

    functions: Any  # a basis of all candidates
    candidates: np.ndarray
    kernel: Kernel | None
    scale: float  # the target was divided by it
    intercept: bool
    triangle: np.ndarray
    total: float = 0.0  # of the weights
    rows: int = 0
    parts: tuple[Any, ...] | None = None  # (X, y, weight) of all rows, where they are kept

    @classmethod
    def from_functions(
        cls, functions: Any, candidates: np.ndarray, kernel: Any, scale: float, intercept: bool
    ) -> Stream:
        """Return a stream of these functions without any rows."""
        width = len(functions) + 1 + intercept
        empty = np.zeros((width, width))
        return cls(functions, candidates, kernel, scale, intercept, empty)

    def plus(self, X: Any, y: np.ndarray, weight: np.ndarray | None) -> Stream:
        """With more rows."""
        root = np.ones(len(y)) if weight is None else np.sqrt(weight)
        width, top = len(self.triangle), self.triangle if self.rows else None
        t, step = y / self.scale, block_rows(width)
        triangle = fold_rows(self.functions, X, t, root, self.intercept, width, step, top)
        return self._now(triangle, float(root @ root), len(y))

    def read(self, index: int, chunk: Any) -> Stream:
        return self.plus(*chunk)

    def merge(self, left: Stream, right: Stream) -> Stream:
        both = fold([left.triangle, right.triangle], len(self.triangle))
        return left._now(both, right.total, right.rows)

    def _now(self, triangle: np.ndarray, total: float, rows: int) -> Stream:
        return replace(self, triangle=triangle, total=self.total + total, rows=self.rows + rows)

    @property
    def kept(self) -> tuple[np.ndarray, ...]:
        """X, y and weight of all rows."""
        assert self.parts is not None
        return tuple(np.concatenate(arrays) for arrays in zip(*self.parts, strict=True))

    def problem(self) -> tuple[Design, np.ndarray, float]:
        """The candidates as a design, the target, and its mean."""
        k = int(self.intercept)
        R, functions, offset = self.triangle[k:, k:], self.functions, 0.0
        if self.intercept:
            means = self.triangle[0, 1:] / self.triangle[0, 0]
            functions, offset = CentredBasis(functions, means[:-1]), float(means[-1])
        return StreamDesign(R[:, :-1], self, functions), R[:, -1].copy(), offset


class StreamDesign(CompressedDesign):
    """The columns of a stream: a triangle that stands in for them."""

    def __init__(self, matrix: np.ndarray, stream: Stream, functions: Basis) -> None:
        super().__init__(matrix, RowCounts(stream.total, stream.intercept), functions)
        self._n_stream, self._centres = stream.rows, functions.centres

    @property
    def inputs(self) -> np.ndarray | None:
        """The centres of the functions: the other rows are not stored."""
        return self._centres

    @property
    def n_distinct_inputs(self) -> int:
        """Number of rows of the stream."""
        return self._n_stream


def _keeps_no_rows(model: Any) -> bool:
    plain = model.likelihood == "gaussian" and not is_text(model.noise_variance, "input")
    if not plain or np.ndim(model.noise_variance) > 0:
        raise AttributeError("partial_fit keeps no rows, and noise that they differ in needs them.")
    if model._needs_rows():
        raise AttributeError(f"partial_fit keeps no rows, and {model._needs_rows()}.")
    return True


class PartialFit:
    """`partial_fit` for an estimator whose `_fit` takes a `Stream` in place of X."""

    @available_if(_keeps_no_rows)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Take in more rows; the model is searched when a result is asked for.

        The first rows choose the candidates and the widths, as `fit` would on them; a triangle as
        large as the candidates is all that is kept of any row. (With `neighbours` the rows are kept
        as well, and new ones are neighbours at once.) The model is that of `fit` on all
        rows with these candidates and widths. `fit` begins anew.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            More rows.
        y : array of shape (n_samples,)
            Their targets.
        sample_weight : array of shape (n_samples,), optional
            A row of weight v counts as v equal rows.

        Returns
        -------
        self
        """
        model: Any = self
        model._check_parameters()
        stream = self._stream
        model._take_in(X, y, sample_weight, stream)
        return self

    @whole_fit
    def _take_in(self, X: Any, y: Any, sample_weight: Any, stream: Stream | None) -> Any:
        model: Any = self
        if stream is None:
            problem = model._problem(X, y, sample_weight)
            design = problem.design.uncentred
            functions = design.basis(np.arange(design.n_candidates))
            stream = Stream.from_functions(
                functions,
                problem.candidates,
                problem.kernel,
                problem.target_scale,
                bool(model.fit_intercept),
            )
            if model._keeps_rows:
                stream = replace(stream, parts=())
        X = model._check_rows(X)
        y = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64), warn=True)
        if len(y) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {len(y)} values.")
        weight = None if sample_weight is None else check_sample_weight(sample_weight, X)
        for name in _results(self):
            delattr(self, name)
        more = stream.plus(X, y, weight)
        if stream.parts is not None:
            part = model._block(X), y, np.ones(len(y)) if weight is None else weight
            more = replace(more, parts=(*stream.parts, part))
        model._stream = more
        return self

    @whole_fit
    def _search(self) -> Any:
        """The model of all rows so far."""
        model: Any = self
        stream, model._stream = model._stream, None  # attributes are asked for on the way
        forget_noise(model)
        model._fit(stream, None, None)
        model._stream = stream
        return self

    def _waits(self) -> bool:
        """Whether rows were taken in and not searched yet."""
        return vars(self).get("_stream") is not None and "posterior_" not in vars(self)

    def __sklearn_is_fitted__(self) -> bool:
        if self._waits():
            self._search()
        return "posterior_" in vars(self)

    def __getattr__(self, name: str) -> Any:
        # Names such as __name__ belong to the type of the class, not to its instances.
        own = None if name.startswith("__") else inspect.getattr_static(type(self), name, None)
        if own is not None:
            return own.__get__(self, type(self))  # raised an AttributeError with a sentence: again
        result = name.endswith("_") and not name.startswith("_") and name not in _BEFORE
        if result and self._waits():
            self._search()
            return getattr(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


_BEFORE = ("n_features_in_", "feature_names_in_", "kernel_", "gamma_", "feature_relevance_")


def _results(model: Any) -> list[str]:
    """What a search has set."""
    names = (name for name in vars(model) if name.endswith("_") and not name.endswith("__"))
    return [name for name in names if name not in _BEFORE]
