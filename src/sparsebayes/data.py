"""Training rows as every model sees them: where they are, what they count, how precise they are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from scipy.sparse import issparse

from ._array import is_torch, to_numpy
from .kernels import Box
from .rows import HashJob, Job, RowBlocks, Rows, is_dask, row_hashes
from .rows._base import Chunk
from .rows.device import TensorRows, find_device, rows_on


def as_rows(X: Any, megabytes: float, device: str | None = None) -> Rows | None:
    """Return X as `Rows` where it is to be read in chunks or on a device; None for other arrays.

    Chunks are read of Dask arrays, of memory maps larger than `megabytes`, of lists and iterators
    of arrays, and of functions that return such an iterator. A torch tensor stays on its device,
    and everything is copied to a `device` that is named.
    """
    rows = _chunked(X, megabytes)
    if isinstance(X, Rows) or (device is None and not is_torch(X)):
        return rows
    if device is None:
        return TensorRows(X)
    if is_dask(X):
        raise ValueError(
            f"device={device!r} is not available for Dask arrays, which stay on their "
            "workers. Pass an array or blocks of rows."
        )
    return rows_on(X if rows is None else rows, find_device(device))


def _chunked(X: Any, megabytes: float) -> Rows | None:
    if is_dask(X):
        from .rows.dask import DaskRows

        return DaskRows.in_blocks(X)
    if isinstance(X, Rows):
        return X
    if isinstance(X, Iterator) or is_list_of_arrays(X) or inspect.isroutine(X):
        return RowBlocks(X)
    if isinstance(X, np.memmap) and X.ndim == 2 and X.nbytes > megabytes * 1e6:
        return RowBlocks(X)
    return None


def is_list_of_arrays(X: Any) -> bool:
    """Return whether X is a list or a tuple of two-dimensional arrays, which are blocks of rows."""
    return isinstance(X, list | tuple) and len(X) > 0 and np.ndim(X[0]) == 2


class Summary(Protocol):
    """A summary of rows, whose size does not depend on their number."""

    def merge(self, other: Any) -> Any:
        """Return the summary of the rows of both."""


S = TypeVar("S", bound=Summary)


@dataclass(frozen=True, eq=False)
class Data:
    """Training rows with their targets.

    Attributes
    ----------
    X : array, sparse matrix or Rows
        Inputs in memory, or `Rows` that are read in chunks wherever they are.
    y : array of shape (n_rows,) or (n_rows, n_outputs)
        Targets in float64.
    weight : array of shape (n_rows,) or None
        Number of observations that each row stands for; None counts every row once.
    precision : array of shape (n_rows,) or None
        Precision of an observation of each row, in units of the common noise precision: duplicates
        merged into one observation, known variances, or weights of a noise model. None is 1.
    single : bool
        Whether the inputs were given in float32, so that products may be formed in it.
    measurement_precision : float or None
        Precision of a row of weight 1 if `sample_weight` has whole numbers, so that a row may be
        the mean of as many measurements; None otherwise.
    """

    X: Any
    y: np.ndarray
    weight: np.ndarray | None = None
    precision: np.ndarray | None = None
    single: bool = False
    measurement_precision: float | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows, those of weight zero included."""
        return len(self.y)

    @property
    def in_memory(self) -> bool:
        """True where X is one array in the memory of this process."""
        return not isinstance(self.X, Rows)

    @property
    def device(self) -> Any:
        """Device on which the rows are worked on; None for the CPU."""
        return None if self.in_memory else self.X.device

    @property
    def counts(self) -> np.ndarray:
        """Number of observations of each row, as an array."""
        return np.ones(self.n_rows) if self.weight is None else self.weight

    @property
    def target_moments(self) -> tuple[Any, Any]:
        """Mean and variance of the target over all observations, of each output."""
        mean = np.average(self.y, axis=0, weights=self.weight)
        return mean, np.average(np.square(self.y - mean), axis=0, weights=self.weight)

    @property
    def row_weight(self) -> np.ndarray:
        """Weight of each row in a Gaussian likelihood: its count times its precision."""
        return self.counts if self.precision is None else self.counts * self.precision

    @property
    def likelihood_weight(self) -> np.ndarray | None:
        """Weight of each row in a Gaussian likelihood; None where all are 1."""
        return None if self.weight is None and self.precision is None else self.row_weight

    @property
    def used(self) -> np.ndarray:
        """Numbers of the rows of positive weight."""
        if self.weight is None:
            return np.arange(self.n_rows)
        return np.flatnonzero(self.weight)

    def rows(self) -> Rows:
        """Return `Rows` of (X, y, weight in the likelihood), for data that are not in memory."""
        return self.X.with_arrays(self.y, self.likelihood_weight)

    def reduce(self, job: Job) -> Any:
        """Return the result of a job over chunks (X, y, weight in the likelihood)."""
        if self.in_memory:
            return job.finish(job.read(0, (self.X, self.y, self.likelihood_weight)))
        return self.rows().reduce(job)

    def take(self, numbers: np.ndarray) -> Any:
        """Return some rows of X."""
        if not self.in_memory:
            return self.X.take(numbers)
        return self.X if len(numbers) == self.n_rows else self.X[numbers]

    def subset(self, numbers: np.ndarray, pairwise: bool = False) -> Data:
        """Return some rows, in memory; of a kernel matrix (`pairwise`) also its columns."""
        weight = None if self.weight is None else self.weight[numbers]
        precision = None if self.precision is None else self.precision[numbers]
        if not self.in_memory:
            X = self.X.take(numbers)
        else:
            X = self.X[np.ix_(numbers, numbers)] if pairwise else self.X[numbers]
        return replace(self, X=X, y=self.y[numbers], weight=weight, precision=precision)

    def input_hashes(self) -> np.ndarray:
        """Return 64 bits for each row of X; equal rows have equal bits."""
        return row_hashes(self.X) if self.in_memory else self.X.reduce(HashJob())

    def box(self) -> Box:
        """Return the box that the rows of positive weight span."""
        return self.summary_and_rows(Box.of, np.zeros(0, np.intp))[0]

    def summary_and_rows(
        self, summary: Callable[[Any], S], numbers: np.ndarray
    ) -> tuple[S, np.ndarray]:
        """Return a summary of the rows of positive weight, and some rows, in one pass.

        `summary` returns that of a chunk of X; `numbers` are in ascending order.
        """
        edges = np.array([0, self.n_rows]) if self.in_memory else self.X.edges
        return self.reduce(_SummaryJob(summary, numbers, edges))

    def loaded(self) -> Data:
        """Return the same data with X in memory."""
        if self.in_memory:
            return self
        return replace(self, X=self.X.in_memory()[0])


class _SummaryJob(Job):
    """A summary of the rows of positive weight, and some rows of X.

    Chunks are (X, y, weight or None). The numbers of the rows are in ascending order.
    """

    def __init__(
        self, summary: Callable[[Any], Summary], numbers: np.ndarray, edges: np.ndarray
    ) -> None:
        cuts = np.searchsorted(numbers, edges)
        self.summary = summary
        self.inside = [numbers[a:b] - e for (a, b), e in zip(pairwise(cuts), edges, strict=False)]

    def read(self, index: int, chunk: Chunk) -> tuple[Summary, np.ndarray]:
        """Return the summary and the rows of one chunk."""
        X, weight = chunk[0], chunk[-1]
        rows = X[self.inside[index]]
        rows = rows if issparse(rows) else to_numpy(rows)
        if weight is not None and not np.all(weight > 0):
            X = X[np.flatnonzero(weight)]
        return self.summary(X), rows

    def merge(
        self, first: tuple[Summary, np.ndarray], second: tuple[Summary, np.ndarray]
    ) -> tuple[Summary, np.ndarray]:
        """Return the summary and the rows of two chunks."""
        return first[0].merge(second[0]), np.concatenate([first[1], second[1]])


def merge_duplicates(data: Data) -> Data:
    """Return data in which equal rows with equal targets are one observation.

    Duplicates, as a bootstrap sample or a table joined twice has them, agree without noise and
    carry no information about it, and neither do weights above 1. The first of equal rows gets a
    precision proportional to the weight of all of them, the others get weight zero.
    """
    merged = merged_weights(data.input_hashes, data.y, data.weight)
    if merged is None:
        return data
    kept = merged > 0.0
    precision = np.where(kept, merged, 1.0)
    data, weight = replace(data, weight=kept.astype(np.float64), precision=precision), data.weight
    if weight is None or np.ptp(weight) == 0.0 or np.any(weight != np.round(weight)):
        return data
    return replace(data, measurement_precision=float(np.sum(merged) / np.sum(weight)))


_FEW_INPUTS = 20  # distinct rows up to which inputs are discrete
# Observations per distinct row above which whole numbers are discrete: a bootstrap sample has 1.6.
_MANY_TIMES = 2.2
_SAMPLE = 10_000  # distinct rows of which the values are counted
_MOST_SEVERAL = (
    0.1  # share of repeated inputs with several labels up to which repeats are duplicates
)


def merge_labelled_duplicates(data: Data) -> Data:
    """Return data in which equal rows with equal labels are one observation.

    The targets of `data` are class numbers. Equal rows of a table that was joined twice, of a
    bootstrap sample, or with a weight above 1 carry no further information. Equal rows of discrete
    inputs do: they are observations of the same probability. So weights are first divided by their
    greatest common divisor. What is still repeated is merged, unless a tenth of the repeated inputs
    have several labels or the inputs are discrete.
    """
    distinct = _distinct_rows(data.input_hashes, data.y, data.weight)
    if distinct is None:
        return data
    divisor = 1
    if len(distinct.rows) > _FEW_INPUTS and np.all(distinct.total == np.round(distinct.total)):
        divisor = int(np.gcd.reduce(distinct.total.astype(np.int64)))
    total = distinct.total / divisor
    are_copies = distinct.n_several < _MOST_SEVERAL * distinct.n_repeated
    if are_copies and np.any(total > 1.0) and not is_discrete(data, distinct.rows, total):
        total = total * (np.sum(np.minimum(total, 1.0)) / np.sum(total))
    elif divisor == 1:
        return data
    weight = np.zeros(data.n_rows)
    weight[distinct.rows] = total
    return replace(data, weight=weight)


def is_discrete(data: Data, distinct: np.ndarray, total: np.ndarray) -> bool:
    """Tell whether the inputs take few values, so that rows are equal by chance.

    So it is where few rows differ, or where every column has fewer than half as many values as
    there are distinct rows. Columns of whole numbers count as such where rows repeat often.
    """
    if len(distinct) <= _FEW_INPUTS:
        return True
    rows = np.sort(distinct)[:: -(-len(distinct) // _SAMPLE)]
    X = data.take(rows)
    often = np.sum(total) > _MANY_TIMES * len(distinct)
    return all(
        2 * len(np.unique(column)) < len(rows) or (often and np.all(column == np.round(column)))
        for column in _columns(X)
    )


def _columns(X: Any) -> Iterator[np.ndarray]:
    """Yield the values of each column; of a sparse matrix one zero stands for all."""
    if not issparse(X):
        yield from to_numpy(X).T
        return
    X = X.tocsc()
    for start, end in pairwise(X.indptr):
        values = X.data[start:end]
        yield values if end - start == X.shape[0] else np.append(values, 0.0)


class _DistinctRows(NamedTuple):
    """Different pairs of inputs and target."""

    rows: np.ndarray  # the first row of each pair
    total: np.ndarray  # its number of observations
    n_repeated: int  # inputs with more than one observation
    n_several: int  # those with several targets


def _distinct_rows(
    inputs: Callable[[], np.ndarray], y: np.ndarray, weight: np.ndarray | None
) -> _DistinctRows | None:
    """Return the different rows of positive weight; None where targets show that all differ."""
    T = y.reshape(len(y), -1)
    if weight is None and len(np.unique(T[:, 0])) == len(T):
        return None
    rows = np.arange(len(T)) if weight is None else np.flatnonzero(weight)
    T, key = T[rows], inputs()[rows]
    order = np.lexsort((*T.T, key))
    T, key, rows = T[order], key[order], rows[order]
    new_input = np.append(True, key[1:] != key[:-1])
    new_target = np.append(True, np.any(T[1:] != T[:-1], axis=1))
    first = np.flatnonzero(new_input | new_target)
    counts = np.ones(len(T)) if weight is None else weight[rows]
    total = np.add.reduceat(counts, first)
    groups = np.flatnonzero(new_input[first])
    targets = np.diff(np.append(groups, len(first)))
    repeated = np.add.reduceat(total, groups) > 1.0
    several = int(np.count_nonzero(repeated & (targets > 1)))
    return _DistinctRows(rows[first], total, int(np.count_nonzero(repeated)), several)


def merged_weights(
    inputs: Callable[[], np.ndarray], y: np.ndarray, weight: np.ndarray | None
) -> np.ndarray | None:
    """Return weights under which equal rows with equal targets are one observation.

    The first of the equal rows has the weight of all of them, relative to other rows, and no row
    counts as more than one in the sum of the weights. The result is None where nothing is merged:
    no row occurs twice; or at least half of the inputs that occur again have several targets, so
    that the noise shows in these and equal targets are equal by chance; or only one or two rows
    differ.

    Parameters
    ----------
    inputs : callable
        Returns the `row_hashes` of the inputs; called only where they are needed.
    y : array of shape (n_rows,) or (n_rows, n_outputs)
        Targets.
    weight : array of shape (n_rows,) or None
        Number of observations of each row.
    """
    distinct = _distinct_rows(inputs, y, weight)
    if distinct is None:
        return None
    n = float(np.sum(np.minimum(distinct.total, 1.0)))
    if n <= 2.0 or 2 * distinct.n_several >= distinct.n_repeated:
        return None
    merged = np.zeros(len(y))
    merged[distinct.rows] = distinct.total * (n / np.sum(distinct.total))
    return merged
