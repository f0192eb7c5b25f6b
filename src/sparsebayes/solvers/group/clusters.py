"""Clusters of groups that are nearly the same, which EP meets as one.

EP meets each group against a Gaussian for all the others. Of two near-duplicates each then sees the
other as a Gaussian that half explains the data: the fixed point is poor, the sites go round in
circles, and hyperparameters learnt on the way go astray. So such groups share one site. Its prior
factor is exact, a sum over which of the groups z of the cluster are in,

    prod_g [p0_g N(w_g; 0, v0_g I) + (1 - p0_g) delta(w_g)] = sum_z p(z) N(w; 0, D_z^2),

D_z^2 holding v0 for the weights of the groups in and 0 for the others; and its tilted moments,
given a cavity exp(r'w - w'Bw/2), are sums over the same z:

    log weight(z) = sum log-odds of the groups in + 1/2 r'Sigma_z r - 1/2 log|I + D_z B D_z|,
    Sigma_z = D_z (I + D_z B D_z)^-1 D_z.

Towards the rest of EP a cluster is a group: it is in if any of its groups is, its prior odds are
1/prod(1 - p0) - 1, and its slab is the mixture over z other than 0.

Which groups: the closest pairs are joined first, as long as all correlations in a cluster are above
`_ALIKE` and above what the largest of as many chance correlations would be, (1 - r^2)^((n - 2)/2) =
1/pairs. A cluster has at most `_GROUPS` groups and `_COLUMNS` columns, or `_MOST` where all its
groups are closer than `_SAME`; of so many only two are in at a time (three of eight or nine). Where
EP then finds as many in as there may be (`overfull`), it is run again with large clusters of copies
alone, closer than `_COPIES`: of these, which and how many are in can hardly be told.

Of many columns those are compared that the target has most to do with, `_PER_ROW` for each row: a
cluster matters where one of its groups may be in, and more would take longer than all of EP.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache
from math import comb
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ...designs import Design
from ...linalg.blocks import factor, log_diagonal, times, transposed

_ALIKE = 0.5
_SAME, _COPIES = 0.8, 0.99
_GROUPS, _COLUMNS = 7, 28
_MOST = 30  # columns of near-duplicates
_MODELS = 130  # that a cluster of more than `_GROUPS` may have before only two may be in
_FEWEST, _PER_ROW = 200, 2  # columns compared, at least and for each row
_DENSE = 2**16  # numbers up to which a product with ones and zeros is a dense one
_FULL = 0.05  # probability of more groups than there may be, as far as it can be told
_ABOVE_ROUNDING = 1.0 + 1e-13  # of a variance: copies leave A singular in float64 at no noise
_LEAST = 1e-12  # of v0: variance of the weights of a group that is out for good


@dataclass(frozen=True)
class ClusterFit:
    """Slab and spike of each cluster; as `priors.SlabFit`, the slab being "at least one is in"."""

    log_bayes_factor: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    fit: np.ndarray  # r'mean
    weight: np.ndarray  # (n_blocks, n_models): of each choice of groups, given that one is in
    square: np.ndarray  # (n_blocks, c): E|w_g|^2, likewise

    @property
    def inclusion(self) -> np.ndarray:
        """Of each group, likewise."""
        return np.asarray(self.weight @ models(self.square.shape[1]))


def find_clusters(
    design: Design,
    t: np.ndarray,
    group_of: np.ndarray,
    large: bool = True,
    always: np.ndarray | tuple[int, ...] = (),
) -> np.ndarray:
    """The first group of the cluster of each group.

    Parameters
    ----------
    design : Design
        Its first columns, where `group_of` is shorter.
    t : array of shape (n_rows,)
        Where there are many columns, only groups that have to do with it are compared.
    group_of : array of int of shape (n_columns,)
    large : bool, default=True
        Whether other clusters than those of copies may have so many groups that not all their
        models are summed.
    always : array of int
        Groups that are in for good, and belong to no cluster.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers.group.clusters import find_clusters
    >>> X = np.random.default_rng(0).standard_normal((50, 4))
    >>> X[:, 3] = -2.0 * X[:, 1]
    >>> find_clusters(DenseDesign(X), X[:, 0], np.arange(4))
    array([0, 1, 2, 1])
    """
    sizes = np.bincount(group_of)
    cluster_of = np.arange(len(sizes))
    n = design.n_observations
    groups = screened_groups(design, t, group_of, max(_FEWEST, _PER_ROW * int(n)))
    groups = np.setdiff1d(groups, always)
    if len(groups) < 2 or n < 4:
        return cluster_of
    inside = np.flatnonzero(np.isin(group_of, groups))
    correlation = group_correlation(design.columns(inside), group_of[inside], groups)
    first, second = np.triu_indices(len(groups), 1)
    value = correlation[first, second]
    chance = 1.0 - np.exp(-2.0 * np.log(len(value)) / (n - 2.0))
    lowest = np.sqrt(max(_ALIKE**2, chance))
    closest = _SAME if large else _COPIES
    lead = np.arange(len(groups))
    members = [[i] for i in lead]
    for i in np.flatnonzero(value > lowest)[np.argsort(-value[value > lowest], kind="stable")]:
        a, b = sorted((lead[first[i]], lead[second[i]]))
        both = members[a] + members[b]
        columns, purity = sizes[groups[both]].sum(), correlation[np.ix_(both, both)].min()
        small = len(both) <= _GROUPS and columns <= _COLUMNS
        if a != b and purity > lowest and (small or (purity > closest and columns <= _MOST)):
            members[a] = both
            lead[members[b]] = a
    cluster_of[groups] = groups[lead]
    return cluster_of


def screened_groups(design: Design, t: np.ndarray, group_of: np.ndarray, most: int) -> np.ndarray:
    """The groups that have most to do with t, of `most` columns together at most."""
    sizes = np.bincount(group_of)
    if len(group_of) <= most:
        return np.arange(len(sizes))
    power = np.maximum(design.sqnorms(), np.finfo(float).tiny)
    score = (design.project(t) ** 2 / power)[: len(group_of)]
    score = np.bincount(group_of, weights=score) / sizes
    order = np.argsort(-score, kind="stable")
    return np.sort(order[np.cumsum(sizes[order]) <= most])


def group_correlation(X: np.ndarray, owner: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Absolute correlation between groups of centred columns of X.

    |A'B|_F / sqrt(|A'A|_F |B'B|_F): for single columns their absolute correlation, one for the same
    columns.
    """
    if len(groups) == 0:
        return np.empty((0, 0))
    order = np.argsort(owner, kind="stable")
    square = (X.T @ X)[np.ix_(order, order)] ** 2
    start = np.searchsorted(owner[order], groups)
    total = np.add.reduceat(np.add.reduceat(square, start, axis=0), start, axis=1)
    size = np.sqrt(np.maximum(np.diag(total), np.finfo(float).tiny))
    return np.sqrt(np.minimum(total / size / size[:, None], 1.0))


@cache
def models(count: int) -> np.ndarray:
    """Which groups of a cluster are in, all choices that are weighed but that of none."""
    most = count if count <= _GROUPS else 3 if comb(count, 3) < _MODELS - comb(count, 2) else 2
    chosen = []
    for m in range(1, most + 1):
        for inside in itertools.combinations(range(count), m):
            chosen.append(np.isin(np.arange(count), inside))
    return np.array(chosen)


def overfull(slab: ClusterFit) -> bool:
    """Whether some cluster would have more groups in than are allowed."""
    chosen = models(slab.square.shape[1])
    count = chosen.sum(axis=1)
    most, less = (slab.weight[:, count == count.max() - i].sum(axis=1) for i in (0, 1))
    more = most * np.minimum(1.0, most / np.maximum(less, np.finfo(float).tiny))
    return bool(chosen.shape[1] > _GROUPS and np.max(more) > _FULL)


@cache
def _plan(position: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray, Any, Any]]:
    """The models by their number of columns: which, their columns, and where these belong.

    The last two carry a vector or a matrix over the columns of each model to all columns.
    """
    k, chosen = len(position), models(max(position) + 1)
    inside = chosen[:, np.array(position)]
    out = []
    for count in np.unique(inside.sum(axis=1)):
        which = np.flatnonzero(inside.sum(axis=1) == count)
        idx = np.nonzero(inside[which])[1].reshape(len(which), count)
        square = (k * idx[:, :, None] + idx[:, None, :]).ravel()
        out.append((which, idx, _carry(idx.ravel(), k), _carry(square, k * k)))
    return out


def _carry(to: np.ndarray, size: int) -> Any:
    carry = csr_array((np.ones(len(to)), (np.arange(len(to)), to)), shape=(len(to), size))
    return carry.toarray() if len(to) * size <= _DENSE else carry


def _log_sum(x: np.ndarray) -> np.ndarray:
    """log sum exp over the last axis; SciPy's takes longer than the sum."""
    top = x.max(axis=-1, keepdims=True)
    return np.asarray(np.log(np.exp(x - top).sum(axis=-1)) + top[..., 0])


def any_log_odds(prior: np.ndarray) -> np.ndarray:
    """Prior log-odds of at least one group, from those of the groups (last axis)."""
    chosen = models(prior.shape[-1])
    return _log_sum(prior @ chosen.T)


def fit_cluster(
    B: np.ndarray, r: np.ndarray, v0: np.ndarray, prior: np.ndarray, position: np.ndarray
) -> ClusterFit:
    """At least one group against none, for clusters of the same make.

    Parameters
    ----------
    B : array of shape (n_blocks, k, k)
    r : array of shape (n_blocks, k)
    v0 : array of shape (n_blocks, k)
        Of each column.
    prior : array of shape (n_blocks, c)
        Log-odds of each group.
    position : array of int of shape (k,)
        The group of each column, 0 to c - 1.
    """
    count, k = r.shape
    plan = _plan(tuple(position.tolist()))
    log_weight = prior @ models(prior.shape[1]).T
    total = _log_sum(log_weight)
    sd = np.sqrt(v0)
    parts = []
    for which, idx, *_ in plan:
        D = sd[:, idx].reshape(-1, idx.shape[1])
        A = B[:, idx[:, :, None], idx[:, None, :]].reshape(*D.shape, -1) * D[:, None, :]
        A *= D[:, :, None]
        diagonal = np.einsum("gii->gi", A)
        diagonal *= _ABOVE_ROUNDING
        diagonal += 1.0
        L, root = factor(A)
        half = times(root, D * r[:, idx].reshape(D.shape))
        fit = 0.5 * np.einsum("gi,gi->g", half, half) - log_diagonal(L)
        log_weight[:, which] += fit.reshape(count, -1)
        parts.append((D, root, half))
    log_any = _log_sum(log_weight)
    p = np.exp(log_weight - log_any[:, None])
    mean, second = np.zeros((count, k)), np.zeros((count, k * k))
    for (which, _, to_one, to_two), (D, root, half) in zip(plan, parts, strict=True):
        weight = p[:, which].reshape(-1, 1)
        inner, half_root = D * times(transposed(root), half), root * D[:, None, :]
        moment = transposed(half_root) @ half_root + inner[:, :, None] * inner[:, None, :]
        mean += (weight * inner).reshape(count, -1) @ to_one
        second += (weight[:, :, None] * moment).reshape(count, -1) @ to_two
    second = second.reshape(count, k, k)
    covariance = second - mean[:, :, None] * mean[:, None, :]
    np.einsum("gii->gi", covariance)[...] += _LEAST * v0
    squares = np.einsum("gii->gi", second)
    return ClusterFit(
        log_any - total,
        mean,
        covariance,
        np.einsum("gi,gi->g", r, mean),
        p,
        squares @ (position[:, None] == np.arange(prior.shape[1])),
    )


def cluster_sites(
    B: np.ndarray, r: np.ndarray, rho: np.ndarray, fit: ClusterFit, v0: np.ndarray, widest: float
) -> tuple[np.ndarray, np.ndarray, int]:
    """T* and nu* with the tilted mean and covariance, and how many blocks had eigenvalues raised.

    In units of sqrt(v0). As in `sites`, where the variance would exceed `widest` times the slab's,
    it is that, and the mean is still matched.
    """
    sd = np.sqrt(v0)
    scale = sd[:, :, None] * sd[:, None, :]
    mu = fit.mean / sd
    V = fit.covariance / scale + (1.0 - rho)[:, None, None] * mu[:, :, None] * mu[:, None, :]
    _, root = factor(V)
    T = transposed(root) @ root / rho[:, None, None] - B * scale
    good = np.isfinite(T).all(axis=(1, 2))
    values, vectors = np.linalg.eigh(np.where(good[:, None, None], T, 0.0))
    low = good & (values[:, 0] < 1.0 / widest)
    T[low] = (vectors[low] * np.maximum(values[low], 1.0 / widest)[:, None, :]) @ transposed(
        vectors[low]
    )
    T = T / scale
    nu = times(B + T, rho[:, None] * fit.mean) - r
    return T, nu, int(np.count_nonzero(low))
