"""A first pass over the rows: which can carry a function, in which order, and their spread.

Candidates are the distinct rows of positive weight. They are put into a random order by a hash of
their content, not of their place: the partitions stay the same when rows are reordered, repeated,
or given a weight instead of being repeated.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from ..rows import Rows, Spread, row_hashes
from ..rows._base import Chunk, mix_bits


class SurveyPart(NamedTuple):
    """The survey of a chunk."""

    lengths: list[int]
    hashes: np.ndarray
    positive: np.ndarray
    largest: float
    spread: Spread
    digest: list[bytes]


class Survey(NamedTuple):
    """Number, content and spread of the rows."""

    n_rows: int
    hashes: np.ndarray
    used: np.ndarray  # rows of positive weight
    candidates: np.ndarray  # distinct rows among them, first occurrence
    largest: float  # |y|
    spread: Spread  # of X
    digest: str

    def sample(self, size: int) -> np.ndarray:
        """Return at most `size` rows of positive weight, drawn by a hash of their content."""
        if len(self.used) <= size:
            return self.used
        keys = mix_bits(self.hashes[self.used])
        return np.sort(self.used[np.argsort(keys, kind="stable")[:size]])

    def shuffled(self, seed: int) -> np.ndarray:
        """Return the candidates in an order that depends on the seed and on their content only."""
        keys = mix_bits(self.hashes[self.candidates] ^ mix_bits(np.array([seed], dtype=np.uint64)))
        return self.candidates[np.argsort(keys, kind="stable")]

    @property
    def total(self) -> float:
        """Total weight of the rows."""
        return self.spread.total


class SurveyJob:
    """One pass over chunks (X, y, sample_weight or None)."""

    def read(self, index: int, chunk: Chunk) -> SurveyPart:
        """Check and describe a chunk."""
        X, y = np.asarray(chunk[0]), np.asarray(chunk[1])
        weight = None if chunk[2] is None else np.asarray(chunk[2])
        check_chunk(index, X, y, weight)
        X = np.ascontiguousarray(X, dtype=np.float64)
        positive = np.ones(len(X), dtype=bool) if weight is None else weight > 0
        digest = hashlib.blake2b(digest_size=16)
        for array in (X, y, weight):
            digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
        numbers = y.dtype.kind in "fiub" and len(y)
        largest = float(np.max(np.abs(y[positive]), initial=0.0)) if numbers else 0.0
        return SurveyPart(
            [len(X)],
            row_hashes(X),
            positive,
            largest,
            Spread.from_rows(X, weight),
            [digest.digest()],
        )

    def merge(self, first: SurveyPart, second: SurveyPart) -> SurveyPart:
        return SurveyPart(
            first.lengths + second.lengths,
            np.concatenate([first.hashes, second.hashes]),
            np.concatenate([first.positive, second.positive]),
            max(first.largest, second.largest),
            first.spread.plus(second.spread),
            first.digest + second.digest,
        )

    def finish(self, total: SurveyPart) -> tuple[Survey, np.ndarray]:
        """Return the survey of all rows, and the edges of the chunks."""
        edges = np.cumsum([0, *total.lengths])
        used = np.flatnonzero(total.positive)
        first = np.sort(np.unique(total.hashes[used], return_index=True)[1])
        digests = [*total.digest, edges.tobytes()]
        return Survey(
            n_rows=len(total.hashes),
            hashes=total.hashes,
            used=used,
            candidates=used[first],
            largest=total.largest,
            spread=total.spread,
            digest=hashlib.blake2b(b"".join(digests), digest_size=16).hexdigest(),
        ), edges


def make_survey(rows: Rows) -> Survey:
    """Return the survey of the rows, and set the edges of their chunks."""
    survey, rows.edges = rows.reduce(SurveyJob())
    return survey


def check_chunk(index: int, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> None:
    """Raise an error where no model can be fitted to a chunk."""
    where = f"in chunk {index} of the rows"
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise ValueError(
            f"X must be a 2D numeric array, but {where} it has dtype {X.dtype} and shape {X.shape}."
        )
    if len(y) != len(X) or (weight is not None and len(weight) != len(X)):
        raise ValueError(f"X, y and sample_weight have different lengths {where}.")
    for name, array in (("X", X), ("y", y), ("sample_weight", weight)):
        if array is not None and array.dtype.kind == "f" and not np.all(np.isfinite(array)):
            raise ValueError(f"{name} contains NaN or infinity {where}.")
    if weight is not None and np.any(weight < 0):
        raise ValueError(f"Negative values in data passed to `sample_weight` {where}.")
