"""Rows that copy others up to small changes, as oversampling and augmentation make them.

Such rows share their noise, as duplicates do, but nothing shows it: leave-one-out residuals and
folds find the copies of a row.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from .data import Data
from .rows import row_hashes

_NEAR = 0.05  # largest difference of near copies, in units that chance seldom comes close to
_SEVERAL_NEAR = 0.2  # share of close rows with other targets up to which they are copies
_MOST_COPIES = 10  # rows of one target that may be copies; more of them are a value like any other
_FEW_ROWS = 20  # of which two may be close by chance
_SAMPLE = 10_000  # rows that show which inputs have many values
_COMPARED_ROWS, _COMPARED_COLUMNS = 2000, 20  # of which the nearest rows are looked up


def share_of_near_copies(data: Data) -> float:
    """Return the share of rows that copy another one up to small changes.

    These are rows close to another one, or all rows of a target and nearer to each other than to
    rows of other targets. Rows of equal inputs count once.
    """
    if not isinstance(data.X, np.ndarray):
        return 0.0
    rows = data.used[np.unique(row_hashes(data.X[data.used]), return_index=True)[1]]
    X, n = data.X[rows], len(rows)
    part = X[:: -(-n // _SAMPLE) or 1]
    chosen = np.flatnonzero([3 * len(np.unique(column)) > len(part) for column in part.T])
    chosen = chosen[:: -(-len(chosen) // _COMPARED_COLUMNS) or 1]
    if n <= _FEW_ROWS or len(chosen) == 0:
        return 0.0
    with np.errstate(all="ignore"):  # checked below
        low, high = np.quantile(X, [0.25, 0.75], axis=0)
        Z = (X - low) / np.where(high > low, high - low, 1.0)
    if not np.all(np.isfinite(Z)):
        return 0.0
    sample = np.random.default_rng(0).permutation(n)[:_COMPARED_ROWS]
    y = data.y[rows].reshape(n, -1)
    share = _share_close(Z, y, chosen, sample)
    if y.dtype.kind != "f":  # rows of one class are near each other
        return share
    return max(share, _share_of_targets(Z[:, chosen], y, sample))


def _share_close(Z: np.ndarray, y: np.ndarray, chosen: np.ndarray, sample: np.ndarray) -> float:
    """Return the share of rows that are close to another one in the inputs and the target.

    Two rows are close if they differ in no input by more than a twentieth of its interquartile
    range over n^(1/d), with d inputs of many values (`chosen`): of evenly spread rows about .1^d
    are. The share is zero if a fifth of the rows that are close have different targets, as
    measurements that were repeated have.
    """
    n = len(Z)
    most = _NEAR * n ** (-1.0 / len(chosen))
    tree = cKDTree(Z[:, chosen])
    _, nearest = tree.query(Z[sample][:, chosen], 2, p=np.inf, distance_upper_bound=most)
    # A row is its own nearest one, but may come second among rows with the same values.
    other = np.where(nearest[:, 1] == sample, nearest[:, 0], nearest[:, 1])
    first, second = sample[other < n], other[other < n]
    close = np.all(np.abs(Z[first] - Z[second]) <= most, axis=1)
    first, second = first[close], second[close]
    if len(first) == 0:
        return 0.0
    with np.errstate(all="ignore"):  # targets of extreme size are not equal
        equal = np.abs(y[first] - y[second]) <= _NEAR * np.std(y, axis=0)
    agree = float(np.mean(np.all(equal, axis=1)))
    return len(first) / len(sample) if agree >= 1.0 - _SEVERAL_NEAR else 0.0


def _share_of_targets(Z: np.ndarray, y: np.ndarray, sample: np.ndarray) -> float:
    """Return the share of rows whose nearest ones are all the rows with exactly their target.

    Rounded targets are equal by chance, at rows that are anywhere, or on a surface of two inputs or
    more. Along a single input they are equal at neighbours, so that nothing is said there.
    """
    if Z.shape[1] == 1:
        return 0.0
    _, value, count = np.unique(y, axis=0, return_inverse=True, return_counts=True)
    value = value.ravel()
    n_copies = count[value] - 1
    sample = sample[(n_copies[sample] > 0) & (n_copies[sample] < _MOST_COPIES)]
    if len(sample) == 0:
        return 0.0
    _, nearest = cKDTree(Z).query(Z[sample], min(_MOST_COPIES, len(Z)))
    same = np.cumsum(value[nearest] == value[sample, None], axis=1)  # the row itself is one
    all_near = same[np.arange(len(sample)), n_copies[sample]] == n_copies[sample] + 1
    return float(np.sum(all_near)) / min(len(Z), _COMPARED_ROWS)
