"""The range of the training rows, to recognise new rows at which a model extrapolates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import issparse

from ._array import is_torch, namespace, to_numpy
from ._warn import Found, InsideGap, NewCombination, NewValues, OutsideRange, UnlikeRows
from .joint_range import JointRange
from .kernels import FAMILIES, Box, KernelChoice, is_option
from .posterior.shared import SharedEffect

# Share of a length scale beyond the training rows from which a prediction counts as extrapolation,
# and the length scale of normal scores at which an input does not matter.
_MARGIN, _LONGEST_SCORE = 0.5, 10.0
_SHARE = 0.1  # share of the range beyond it from which models extrapolate
_SHARE_INSIDE = 0.15  # share of the range between a row in a gap and each of its ends


def is_straight(kernel: KernelChoice) -> bool:
    """Return whether a function of this kernel is linear, so that it may cross gaps."""
    return kernel.family is None or is_option(kernel.family, "linear")


@dataclass(frozen=True, eq=False)
class Values:
    """The values of each input: their range, and runs between which there is a wide gap.

    A gap is wide if it is more than 30 % of the range. The range of more rows is not smaller, so
    that the runs of parts of the rows tell the runs of all rows.

    Parameters
    ----------
    box : Box
        Smallest and largest value of each input.
    runs : tuple of arrays of shape (2, n_runs)
        The smallest and the largest value of each run of an input, in ascending order. Empty if
        gaps do not matter.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.input_range import Values
    >>> first, second = np.array([[0.0], [2.0], [3.0]]), np.array([[9.0], [2.5], [10.0]])
    >>> Values.of(first).merge(Values.of(second)).runs
    (array([[ 0.,  9.],
           [ 3., 10.]]),)
    """

    box: Box
    runs: tuple[np.ndarray, ...] = ()

    @classmethod
    def of(cls, X: Any) -> Values:
        """Return the values of the columns of X, an array or a tensor."""
        return cls(Box.of(X), tuple(_runs_of(X[:, j]) for j in range(X.shape[1])))

    @classmethod
    def without_gaps(cls, X: Any) -> Values:
        """Return the values of the columns of X for a function that may cross gaps."""
        return cls(Box.of(X))

    def merge(self, other: Values) -> Values:
        """Return the values of the rows of both."""
        pairs = zip(self.runs, other.runs, strict=True)
        return Values(self.box.merge(other.box), tuple(_merged(np.hstack(both)) for both in pairs))


def _runs_of(column: Any) -> np.ndarray:
    """Return the ends of the runs of the values of a column."""
    if len(column) == 0:
        return np.empty((2, 0))
    values, xp = column.sort().values if is_torch(column) else np.sort(column), namespace(column)
    with np.errstate(over="ignore"):  # values of 1e308; nothing is wider than infinity
        after = to_numpy(xp.where(xp.diff(values) > _wide(values[0], values[-1]))[0]).astype(int)
    low, high = values[[0, *(after + 1)]], values[[*after, len(values) - 1]]
    return np.stack([to_numpy(low), to_numpy(high)])


def _merged(ends: np.ndarray) -> np.ndarray:
    """Return runs as unions of some runs, which may overlap."""
    if ends.shape[1] == 0:
        return ends
    low, high = ends[:, np.argsort(ends[0])]
    high = np.maximum.accumulate(high)
    with np.errstate(over="ignore"):
        after = np.flatnonzero(low[1:] - high[:-1] > _wide(low[0], high[-1]))
    return np.stack([low[[0, *(after + 1)]], high[[*after, -1]]])


def _wide(low: Any, high: Any) -> Any:
    """Return the width from which on a gap in this range is wide."""
    return 2.0 * _SHARE_INSIDE * (high - low)


@dataclass(frozen=True, eq=False)
class Gaps:
    """Wide gaps between the values of an input in the training rows.

    There is one between a single row at the end of the range and the others, for instance. A new
    row is in a gap if it is further from both ends than the margin of the input, and than 15 % of
    the range.

    Attributes
    ----------
    columns : array of int of shape (n_gaps,)
        The input of each gap.
    low, high : arrays of shape (n_gaps,)
        The values of training rows at its ends.
    margin : array of shape (n_gaps,)
        How far from the ends a row in the gap is.
    """

    columns: np.ndarray
    low: np.ndarray
    high: np.ndarray
    margin: np.ndarray

    @classmethod
    def between(cls, runs: Sequence[np.ndarray], margin: np.ndarray) -> Gaps | None:
        """Return the gaps between the runs of inputs with these margins; None without."""
        found = []
        for j, (low, high) in enumerate(runs):
            least = max(float(margin[j]), 0.5 * float(_wide(low[0], high[-1])))
            ends = zip(high[:-1], low[1:], strict=True)
            found += [(j, a, b, least) for a, b in ends if b - a > 2.0 * least]
        if not found:
            return None
        columns, *rest = (np.array(part) for part in zip(*found, strict=True))
        return cls(columns, *rest)

    def find(self, X: np.ndarray) -> Found | None:
        """Return the rows of X in gaps, with the ends of the first one; None without."""
        values = X[:, self.columns]
        inside = (values > self.low + self.margin) & (values < self.high - self.margin)
        if not inside.any():
            return None
        row, gap = np.argwhere(inside)[0]
        ends = (float(values[row, gap]), float(self.low[gap]), float(self.high[gap]))
        n_rows = int(np.sum(np.any(inside, axis=1)))
        return Found(n_rows, int(row), int(self.columns[gap]), ends)


@dataclass(frozen=True, eq=False)
class InputRange:
    """The range of the training rows, to recognise rows at which a model extrapolates.

    Attributes
    ----------
    box : Box
        Smallest and largest value of each input.
    margin : array of shape (n_features,)
        How far beyond them a new row may lie: a tenth of the range. If the length scales of the
        kernel are learnt, they say how far the function is known: half a length scale, but not more
        than the whole range for an input that the kernel sees as its normal score. If the width was
        given, or learnt from labels, which say little about it, the smaller of both. Infinite for
        inputs on which a linear model hardly depends.
    effects : tuple of SharedEffect
        Effects of the values of an input, which are unknown for other values.
    joint : JointRange, optional
        The range of all inputs together; None where it is not known.
    gaps : Gaps, optional
        Wide gaps inside the range; None where there are none.
    """

    box: Box
    margin: np.ndarray
    effects: tuple[SharedEffect, ...] = ()
    joint: JointRange | None = None
    gaps: Gaps | None = None

    @classmethod
    def from_values(
        cls, values: Values, kernel: KernelChoice, columns: np.ndarray, labels: bool = False
    ) -> InputRange:
        """Return the range of the values of rows under a kernel; the model depends on `columns`.

        `labels` is whether the targets are labels of classes.
        """
        range_ = values.box.high - values.box.low
        margin = np.full(range_.shape, np.inf)
        length = _length_scales(kernel)
        if is_straight(kernel):
            margin[columns] = _SHARE * range_[columns]
        elif length is None:
            margin = _SHARE * range_
        else:
            margin = np.broadcast_to(_MARGIN * length[: len(range_)], range_.shape).copy()
            if not kernel.learnt and kernel.warp is None:
                margin = np.minimum(margin, _SHARE * range_)
            elif labels:
                margin[columns] = np.minimum(margin, _SHARE * range_)[columns]
            if kernel.warp is not None:  # scores are constant beyond the range
                inputs, scores = kernel.warp.inputs, length[len(range_) :]
                limit = np.where(scores < _LONGEST_SCORE, range_[inputs], np.inf)
                margin[inputs] = np.minimum(margin[inputs], limit)
        return cls(values.box, margin, gaps=Gaps.between(values.runs, margin))

    def find(self, X: Any) -> Iterator[tuple[type[UnlikeRows], Found]]:
        """Yield each way in which rows of X are unlike the training rows, with these rows."""
        if issparse(X) and self.joint is not None:  # of a few hundred inputs at most
            X = X.toarray()
        columns, low, high = self._limits
        part = X if len(columns) == X.shape[1] else X[:, columns]
        part = part.toarray() if issparse(part) else part
        inside = ((part >= low) & (part <= high)).all(axis=1)
        outside = (~inside).nonzero()[0]
        for effect in self.effects:
            new = np.flatnonzero(effect.is_new(X))
            if len(new):
                yield NewValues, Found(len(new), int(new[0]), effect.column, (effect.ratio,))
                break
        if self.joint is not None:
            unlike = self.joint.is_unlike(X)
            unlike[outside] = False
            if unlike.any():
                yield NewCombination, self.joint.describe(X, np.flatnonzero(unlike))
        if self.gaps is not None and (in_gap := self.gaps.find(X)) is not None:
            yield InsideGap, in_gap
        if len(outside):
            row = int(outside[0])
            k = int(np.argmax((part[row] < low) | (part[row] > high)))
            j = int(columns[k])
            ends = (float(part[row, k]), float(self.box.low[j]), float(self.box.high[j]))
            yield OutsideRange, Found(len(outside), row, j, ends)

    @cached_property
    def _limits(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The inputs that matter, and how small and large they may be."""
        columns = np.flatnonzero(np.isfinite(self.margin))
        low, high = self.box.low - self.margin, self.box.high + self.margin
        return columns, low[columns], high[columns]


def _length_scales(kernel: KernelChoice) -> np.ndarray | None:
    """Return the length scale of each coordinate, or one for all; None where there is none."""
    gamma = np.asarray(kernel.gamma)
    with np.errstate(divide="ignore"):
        if is_option(kernel.family, "sum"):
            return np.minimum(1.0 / np.sqrt(2.0 * gamma[0]), 1.0 / gamma[1])
        if is_option(kernel.family, "additive"):
            return 1.0 / gamma[0]
        if is_option(kernel.family, "laplacian"):
            return np.atleast_1d(1.0 / gamma)
        if is_option(kernel.family, *FAMILIES):
            return np.atleast_1d(1.0 / np.sqrt(2.0 * gamma))
    return None
