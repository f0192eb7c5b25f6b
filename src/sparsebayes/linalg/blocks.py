"""Columns in blocks of equal size, and small dense algebra on all blocks of one size at once.

EP keeps one site per block: a whole group, or one column. Blocks of equal size k lie in one bucket,
so that every operation on k x k matrices is one call on an array of shape (n_blocks, k, k). The
columns are stored in bucket order, a block's columns side by side.

The factorisations here loop over k and never raise: a matrix that is not positive definite comes
out as NaN, which the caller looks for. LAPACK through NumPy would stop at the first one, and its
call per matrix is slower for many small ones: it is used for few, if all have a factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import overload

import numpy as np
from scipy.linalg.lapack import dtrtri


@dataclass(frozen=True)
class Bucket:
    """All blocks of one size: their columns, their groups, and where they lie in the order."""

    columns: np.ndarray  # (n_blocks, k), indices into the original columns
    owner: np.ndarray  # (n_blocks,), the group of each block; of a cluster, its first group
    start: int  # position of the first column in the bucket order
    groups: np.ndarray | None = None  # (n_blocks, c), where each block is a cluster of c groups
    position: np.ndarray | None = None  # (k,), which of these each column belongs to

    @property
    def size(self) -> int:
        """Columns in a block."""
        return self.columns.shape[1]

    def pieces(self, width: int) -> Iterator[tuple[slice, slice]]:
        """Runs of whole blocks of about `width` columns: (which blocks, which ordered columns)."""
        k, count = self.size, len(self.columns)
        step = max(1, width // k)
        for first in range(0, count, step):
            last = min(first + step, count)
            yield slice(first, last), slice(self.start + first * k, self.start + last * k)


@dataclass(frozen=True)
class ColumnBlocks:
    """The columns split into blocks."""

    buckets: tuple[Bucket, ...]
    n_groups: int

    @property
    def order(self) -> np.ndarray:
        """Original column at each position of the bucket order."""
        return np.concatenate([b.columns.ravel() for b in self.buckets])

    def part(self, masks: list[np.ndarray]) -> ColumnBlocks:
        """The blocks that `masks` marks (one mask per bucket), their columns numbered afresh."""
        buckets, start = [], 0
        for b, mask in zip(self.buckets, masks, strict=True):
            count = int(np.count_nonzero(mask))
            if count:
                columns = start + np.arange(count * b.size).reshape(count, b.size)
                groups = None if b.groups is None else b.groups[mask]
                buckets.append(Bucket(columns, b.owner[mask], start, groups, b.position))
                start += count * b.size
        return ColumnBlocks(tuple(buckets), self.n_groups)

    def positions(self, masks: list[np.ndarray]) -> np.ndarray:
        """Return the positions of the columns of those blocks in the order of this partition."""
        at = [
            (b.start + np.arange(b.columns.size).reshape(b.columns.shape))[mask].ravel()
            for b, mask in zip(self.buckets, masks, strict=True)
        ]
        return np.concatenate(at)

    def sizes(self) -> np.ndarray:
        """Columns in each group."""
        return self.per_group([np.full(len(b.owner), float(b.size)) for b in self.buckets])

    def split(self, values: np.ndarray) -> list[np.ndarray]:
        """A vector over the original columns, as one (n_blocks, k) array per bucket."""
        return [values[b.columns] for b in self.buckets]

    def merge(self, parts: list[np.ndarray]) -> np.ndarray:
        """The reverse of `split`."""
        out = np.empty(sum(b.columns.size for b in self.buckets))
        for b, part in zip(self.buckets, parts, strict=True):
            out[b.columns] = part
        return out

    def per_group(self, parts: list[np.ndarray]) -> np.ndarray:
        """Sum over the blocks of each group of one number per block."""
        out = np.zeros(self.n_groups)
        for b, part in zip(self.buckets, parts, strict=True):
            out += np.bincount(b.owner, weights=part, minlength=self.n_groups)
        return out


def column_blocks(
    group_of: np.ndarray, sites: str = "group", cluster_of: np.ndarray | None = None
) -> ColumnBlocks:
    """Blocks of one group each, or of one column each (`sites="column"`), in the same order.

    Parameters
    ----------
    group_of : array of int of shape (n_columns,)
        The group of each column, 0 to n_groups - 1.
    sites : {"group", "column"}
    cluster_of : array of int of shape (n_groups,), optional
        The first group of the cluster that each group belongs to, itself where it stands alone: the
        groups of a cluster share a block. For blocks of groups.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.linalg.blocks import column_blocks
    >>> [b.columns.tolist() for b in column_blocks(np.array([0, 1, 0])).buckets]
    [[[1]], [[0, 2]]]
    """
    group_of = np.asarray(group_of, dtype=np.intp)
    n_groups = int(group_of.max()) + 1
    counts = np.bincount(group_of, minlength=n_groups)
    by_group = np.argsort(group_of, kind="stable")
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    separate = np.ones(n_groups, dtype=bool)
    clusters: dict[tuple[int, ...], list[np.ndarray]] = {}  # by the sizes of their groups
    if cluster_of is not None:
        size = np.bincount(cluster_of, minlength=n_groups)
        separate = size[cluster_of] == 1
        for lead in np.flatnonzero(size > 1):
            members = np.flatnonzero(cluster_of == lead)
            clusters.setdefault(tuple(counts[members].tolist()), []).append(members)
    buckets = []
    start = 0
    for k in np.unique(counts[separate]):
        owner = np.flatnonzero(separate & (counts == k))
        columns = by_group[first[owner][:, None] + np.arange(k)]
        buckets.append(Bucket(columns, owner, start))
        start += columns.size
    for sizes, alike in sorted(clusters.items()):
        groups = np.array(alike)
        position = np.repeat(np.arange(len(sizes)), sizes)
        inside = np.concatenate([np.arange(k) for k in sizes])
        columns = by_group[first[groups[:, position]] + inside]
        buckets.append(Bucket(columns, groups[:, 0], start, groups, position))
        start += columns.size
    blocks = ColumnBlocks(tuple(buckets), n_groups)
    if sites == "column":
        order = blocks.order
        return ColumnBlocks((Bucket(order[:, None], group_of[order], 0),), n_groups)
    return blocks


@overload
def runs(blocks: int, step: int) -> Iterator[slice]: ...


@overload
def runs(blocks: np.ndarray, step: int) -> Iterator[np.ndarray]: ...


def runs(blocks: int | np.ndarray, step: int) -> Iterator[slice | np.ndarray]:
    """Yield slices of 0 to `blocks`, or parts of an array of indices, of `step` blocks each."""
    if isinstance(blocks, int):
        yield from (slice(i, min(i + step, blocks)) for i in range(0, blocks, step))
    else:
        yield from (blocks[i : i + step] for i in range(0, len(blocks), step))


def cholesky(A: np.ndarray) -> np.ndarray:
    """Lower triangles R with R R' = A, for A of shape (n_blocks, k, k); NaN where there is none."""
    k = A.shape[-1]
    R = np.zeros_like(A)
    with np.errstate(invalid="ignore", divide="ignore"):
        for j in range(k):
            column = A[:, j:, j]
            if j:
                column = column - (R[:, j:, :j] @ R[:, j, :j, None])[:, :, 0]
            pivot = np.sqrt(np.where(column[:, 0] > 0.0, column[:, 0], np.nan))
            R[:, j, j] = pivot
            if j + 1 < k:
                R[:, j + 1 :, j] = column[:, 1:] / pivot[:, None]
    return R


def triangle_inverse(R: np.ndarray) -> np.ndarray:
    """Inverses of lower triangles."""
    k = R.shape[-1]
    out = np.zeros_like(R)
    for i in range(k):
        scale = 1.0 / R[:, i, i]
        out[:, i, i] = scale
        if i:
            out[:, i, :i] = -scale[:, None] * (R[:, i, None, :i] @ out[:, :i, :i])[:, 0]
    return out


def factor(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`cholesky` and its `triangle_inverse`; faster for many small blocks."""
    count, k = A.shape[:2]
    if 0 < count < (100 if k > 6 else 8 * k):
        try:
            R = np.linalg.cholesky(A)
            return R, np.array([dtrtri(L, lower=1)[0] for L in R])
        except np.linalg.LinAlgError:
            pass  # some are not positive definite: see above
    if count < 100 or k > 6:
        R = cholesky(A)
        return R, triangle_inverse(R)
    # Entry by entry, each a vector over the blocks.
    S = np.ascontiguousarray(A.transpose(1, 2, 0))
    R, Z = np.zeros_like(S), np.zeros_like(S)
    with np.errstate(invalid="ignore", divide="ignore"):
        for j in range(k):
            for i in range(j, k):
                remainder = S[i, j]
                for m in range(j):
                    remainder = remainder - R[i, m] * R[j, m]
                if i == j:
                    R[j, j] = np.sqrt(np.where(remainder > 0.0, remainder, np.nan))
                    Z[j, j] = 1.0 / R[j, j]
                else:
                    np.multiply(remainder, Z[j, j], out=R[i, j])
            for i in range(j):
                total = R[j, i] * Z[i, i]
                for m in range(i + 1, j):
                    total = total + R[j, m] * Z[m, i]
                np.multiply(total, -Z[j, j], out=Z[j, i])
    return tuple(np.ascontiguousarray(x.transpose(2, 0, 1)) for x in (R, Z))  # type: ignore[return-value]


def log_diagonal(R: np.ndarray) -> np.ndarray:
    """Sum of the log diagonal: half the log determinant of R R'."""
    return np.log(np.einsum("gii->gi", R)).sum(axis=1)


def transposed(A: np.ndarray) -> np.ndarray:
    """A' of each block."""
    return A.swapaxes(-1, -2)


def times(A: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A x of each block, for vectors x of shape (n_blocks, k)."""
    return np.einsum("gij,gj->gi", A, x)
