"""What one pass over the rows tells: which rows can carry a function, in which order, how wide.

Candidates are the distinct rows of positive weight. They are put into a random order by a hash of
their content, not of their place: the partitions stay the same when rows are reordered, repeated,
or given a weight instead of being repeated.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np

from ..execution import Executor, Rows, TakeJob


class Spread(NamedTuple):
    """Weighted mean and scatter of each input, in units of `size` (a power of two)."""

    size: float
    total: float
    mean: np.ndarray
    scatter: np.ndarray


class SurveyPart(NamedTuple):
    """What a chunk contributes."""

    lengths: list[int]
    hashes: np.ndarray
    positive: np.ndarray
    largest: float
    spread: Spread
    digest: list[bytes]


class Survey(NamedTuple):
    """What the rows are like."""

    n_rows: int
    starts: np.ndarray  # first row of each chunk
    hashes: np.ndarray
    candidates: np.ndarray  # distinct rows of positive weight, first occurrence
    largest: float  # |y|
    total: float  # weight of all rows
    variance: float  # of all entries of X around their mean, over size^2
    size: float
    digest: str
    used: np.ndarray  # rows of positive weight
    level: np.ndarray  # |mean| of each input, over size
    spread: np.ndarray  # standard deviation of each input, over size

    def sample(self, size: int) -> np.ndarray:
        """At most `size` rows of positive weight: all, or some that are drawn by their content."""
        if len(self.used) <= size:
            return self.used
        keys = _mix(self.hashes[self.used])
        return np.sort(self.used[np.argsort(keys, kind="stable")[:size]])

    def shuffled(self, seed: int) -> np.ndarray:
        """The candidates in an order that depends on the seed and on their content only."""
        keys = _mix(self.hashes[self.candidates] ^ _mix(np.array([seed], dtype=np.uint64)))
        return self.candidates[np.argsort(keys, kind="stable")]

    def gamma_scale(self, n_features: int) -> float:
        """1 / (n_features * X.var()), as in SVR; 1 where X is constant."""
        if self.variance == 0.0:
            return 1.0
        gamma = float((1.0 / self.size) / (n_features * self.variance)) / self.size
        if not 0.0 < gamma < np.inf:
            raise ValueError(
                f"X varies by {self.size * self.variance**0.5:.3g}, and the square of that is no "
                "number of float64: scale X (for example with StandardScaler)."
            )
        return gamma


class SurveyJob:
    """One pass over chunks (X, y, sample_weight or None)."""

    def read(self, index: int, chunk: Any) -> SurveyPart:
        """Check and describe a chunk."""
        X, y = np.asarray(chunk[0]), np.asarray(chunk[1])
        weight = None if chunk[2] is None else np.asarray(chunk[2])
        check_chunk(index, X, y, weight)
        X = np.ascontiguousarray(X, dtype=np.float64)
        positive = np.ones(len(X), dtype=bool) if weight is None else weight > 0
        used = X[positive]
        digest = hashlib.blake2b(digest_size=16)
        for array in (X, y, weight):
            digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
        numbers = y.dtype.kind in "fiub" and len(y)
        largest = float(np.max(np.abs(y[positive]), initial=0.0)) if numbers else 0.0
        spread = _spread(used, None if weight is None else weight[positive].astype(np.float64))
        return SurveyPart([len(X)], row_hashes(X), positive, largest, spread, [digest.digest()])

    def merge(self, left: SurveyPart, right: SurveyPart) -> SurveyPart:
        """Neighbouring chunks."""
        return SurveyPart(
            left.lengths + right.lengths,
            np.concatenate([left.hashes, right.hashes]),
            np.concatenate([left.positive, right.positive]),
            max(left.largest, right.largest),
            _together(left.spread, right.spread),
            left.digest + right.digest,
        )

    def finish(self, total: SurveyPart) -> Survey:
        """The whole."""
        rows = np.flatnonzero(total.positive)
        first = np.sort(np.unique(total.hashes[rows], return_index=True)[1])
        size, weight, mean, scatter = total.spread
        around = (mean - np.mean(mean)) ** 2
        variance = float(np.mean(scatter / weight + around)) if weight > 0 else 0.0
        return Survey(
            n_rows=len(total.hashes),
            starts=np.concatenate([[0], np.cumsum(total.lengths)[:-1]]).astype(np.intp),
            hashes=total.hashes,
            candidates=rows[first],
            largest=total.largest,
            total=weight,
            variance=variance,
            size=size,
            digest=hashlib.blake2b(b"".join(total.digest), digest_size=16).hexdigest(),
            used=rows,
            level=np.abs(mean),
            spread=np.sqrt(scatter / weight) if weight > 0 else scatter,
        )


def take(executor: Executor, rows: Rows, survey: Survey, wanted: np.ndarray) -> np.ndarray:
    """Some rows of X, by their numbers."""
    (X,) = executor.reduce(TakeJob(wanted, survey.starts, survey.n_rows), rows)
    return X.astype(np.float64, copy=False)


def check_chunk(index: int, X: Any, y: Any, weight: Any) -> None:
    """Refuse what no model can be fitted to, in words."""
    where = f"in chunk {index} of the rows"
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise ValueError(f"X must be a table of numbers; {where} it is {X.dtype} {X.shape}.")
    if len(y) != len(X) or (weight is not None and len(weight) != len(X)):
        raise ValueError(f"X, y and sample_weight have different lengths {where}.")
    for name, array in (("X", X), ("y", y), ("sample_weight", weight)):
        if array is not None and array.dtype.kind == "f" and not np.all(np.isfinite(array)):
            raise ValueError(f"{name} contains NaN or infinity {where}.")
    if weight is not None and np.any(weight < 0):
        raise ValueError(f"Negative values in data passed to `sample_weight` {where}.")


def row_hashes(X: np.ndarray) -> np.ndarray:
    """64 bits for each row; equal rows (also 0 and -0) have equal ones."""
    h = np.full(len(X), X.shape[1], dtype=np.uint64)
    for j in range(X.shape[1]):
        column = np.ascontiguousarray(X[:, j]) + 0.0
        h = _mix(h ^ column.view(np.uint64))
    return h


def _mix(h: np.ndarray) -> np.ndarray:
    """Spread every bit over all 64: a multiplication carries upwards, a shift brings back down."""
    h = h + np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


def _spread(X: np.ndarray, weight: np.ndarray | None) -> Spread:
    largest = float(np.max(np.abs(X), initial=0.0))
    size = float(np.ldexp(1.0, int(np.frexp(largest)[1]))) if largest > 0 else 1.0
    if len(X) == 0:
        return Spread(size, 0.0, np.zeros(X.shape[1]), np.zeros(X.shape[1]))
    scaled = X / size
    weight = np.ones(len(X)) if weight is None else weight
    total = float(np.sum(weight))
    mean = weight @ scaled / total
    return Spread(size, total, mean, weight @ (scaled - mean) ** 2)


def _together(left: Spread, right: Spread) -> Spread:
    """Mean and scatter of two sets of rows: each around its own mean, plus what lies between."""
    if left.total == 0.0 or right.total == 0.0:
        return right if left.total == 0.0 else left
    size = max(left.size, right.size)
    a, b = left.size / size, right.size / size
    total = left.total + right.total
    between = right.mean * b - left.mean * a
    mean = left.mean * a + between * (right.total / total)
    scatter = left.scatter * a**2 + right.scatter * b**2
    scatter = scatter + between**2 * (left.total * right.total / total)
    return Spread(size, total, mean, scatter)
