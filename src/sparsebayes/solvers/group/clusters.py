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

Of copies without noise B is far larger in one direction than in the others, and V^-1 - B, with V
the tilted covariance, would lose all its digits. With L L' = B + I (in units of sqrt(v0)) and g =
L^-1 r the weights of all groups have u = L'w ~ N(g, I), and those of z its projection on the rows
L_z of the groups in, L_z' = Q R:

    u | z ~ N(Q Q'g, Q Q'),   log weight(z) = ... + 1/2 |g|^2 - 1/2 |g - Q Q'g|^2 - log|R|,
    T = L (Cov(u)^-1 - I) L' + I,

where nothing large is subtracted: in that direction all Q Q' are nearly alike.

Towards the rest of EP a cluster is a group: it is in if any of its groups is, its prior odds are
1/prod(1 - p0) - 1, and its slab is the mixture over z other than 0.

Which groups: the closest pairs are joined first, as long as all correlations in a cluster are above
`_ALIKE` and above what the largest of as many chance correlations would be, (1 - r^2)^((n - 2)/2) =
1/pairs. A cluster has at most `_GROUPS` groups and `_COLUMNS` columns, or `_MOST` where all its
groups are closer than `_SAME`; of so many only two are in at a time (three of eight or nine). Where
EP then finds as many in as are allowed (`exceeds_cluster_limit`), it is run again with large
clusters of copies alone, closer than `_COPIES`: of these, which and how many are in can hardly be
determined.

Of many columns those are compared that the target has most to do with, `_PER_ROW` for each row: a
cluster matters where one of its groups may be in, and more would take longer than all of EP.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache
from math import comb

import numpy as np

from ...designs import Design
from ...linalg.blocks import factor, times, transposed

_ALIKE = 0.5
_SAME, _COPIES = 0.8, 0.99
_GROUPS, _COLUMNS = 7, 28
_MOST = 30  # columns of near-duplicates
_MODELS = 130  # that a cluster of more than `_GROUPS` may have before only two may be in
_FEWEST, _PER_ROW = 200, 2  # columns compared, at least and for each row
_FULL = 0.05  # estimated probability of more groups than the limit
_LEAST = 1e-8  # of what the slab of all groups leaves of it: variance of a group that is out


@dataclass(frozen=True)
class ClusterFit:
    """Slab and spike of each cluster; as `priors.SlabFit`, the slab being "at least one is in"."""

    log_bayes_factor: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray  # of L'w
    fit: np.ndarray  # r'mean
    root: np.ndarray  # L, in units of sqrt(v0)
    weight: np.ndarray  # (n_blocks, n_models): of each choice of groups, given that one is in
    square: np.ndarray  # (n_blocks, c): E|w_g|^2, likewise

    @property
    def inclusion(self) -> np.ndarray:
        """Inclusion probability of each group, given that the cluster is in."""
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


def exceeds_cluster_limit(slab: ClusterFit) -> bool:
    """Return whether a cluster would have more groups in than are allowed."""
    chosen = models(slab.square.shape[1])
    count = chosen.sum(axis=1)
    most, less = (slab.weight[:, count == count.max() - i].sum(axis=1) for i in (0, 1))
    more = most * np.minimum(1.0, most / np.maximum(less, np.finfo(float).tiny))
    return bool(chosen.shape[1] > _GROUPS and np.max(more) > _FULL)


@cache
def _plan(position: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The models by their number of columns: which, and their columns."""
    inside = models(max(position) + 1)[:, np.array(position)]
    count = inside.sum(axis=1)
    which = [np.flatnonzero(count == m) for m in np.unique(count)]
    return [(w, np.nonzero(inside[w])[1].reshape(len(w), -1)) for w in which]


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
    """Weigh at least one group against none, for clusters of the same make.

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
    sd = np.sqrt(v0)
    A = B * sd[:, :, None] * sd[:, None, :]
    np.einsum("gii->gi", A)[...] += _added(B, sd)
    L, inverse = factor(A)
    g = times(inverse, sd * r)
    log_weight = prior @ models(prior.shape[1]).T
    total = _log_sum(log_weight)
    residual, parts = np.empty((*log_weight.shape, k)), []
    for which, idx in _plan(tuple(position.tolist())):
        Q, volume = _basis(L[:, idx])
        residual[:, which] = g[:, None] - np.squeeze(
            Q @ (g[:, None, None] @ Q).swapaxes(-1, -2), -1
        )
        log_weight[:, which] -= 0.5 * np.sum(residual[:, which] ** 2, axis=-1) + volume
        parts.append((which, Q))
    log_any = _log_sum(log_weight)
    p = np.exp(log_weight - log_any[:, None])
    mean_residual = np.squeeze(p[:, None] @ residual, 1)
    residual -= mean_residual[:, None]
    covariance = transposed(residual) @ (p[:, :, None] * residual)
    for which, Q in parts:
        rows = (np.sqrt(p[:, which, None, None]) * Q).swapaxes(-1, -2).reshape(count, -1, k)
        covariance += transposed(rows) @ rows
    mean = g - mean_residual
    weights = times(transposed(inverse), mean)
    squares = np.einsum("gij,gij->gj", inverse, covariance @ inverse) + weights**2
    return ClusterFit(
        log_any + 0.5 * np.einsum("gi,gi->g", g, g) - total,
        sd * weights,
        covariance,
        np.einsum("gi,gi->g", g, mean),
        L,
        p,
        (v0 * squares) @ (position[:, None] == np.arange(prior.shape[1])),
    )


def _added(B: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Return the diagonal of L L' - B in units of `sd`: one, and what is above all rounding."""
    return 1.0 + 4.0 * B.shape[1] * np.finfo(float).eps * np.einsum("gii->gi", B) * sd**2


def _basis(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Q of rows' = Q R, and log|R|; all rows of a lower triangle need no factorisation."""
    count, k = rows.shape[-2:]
    if count == k:
        return np.eye(k)[None, None], np.log(np.einsum("gzii->gzi", rows)).sum(axis=-1)
    if count == 1:
        norm = np.sqrt(np.sum(rows**2, axis=-1, keepdims=True))
        return transposed(rows / norm), np.log(norm[:, :, 0, 0])
    Q, R = np.linalg.qr(transposed(rows))
    return Q, np.log(np.abs(np.einsum("gzii->gzi", R))).sum(axis=-1)


def cluster_sites(
    B: np.ndarray, r: np.ndarray, rho: np.ndarray, fit: ClusterFit, v0: np.ndarray, widest: float
) -> tuple[np.ndarray, np.ndarray, int]:
    """T* and nu* with the tilted mean and covariance, and how many blocks had eigenvalues raised.

    In units of sqrt(v0). As in `sites`, where the variance would exceed `widest` times the slab's,
    it is that, and the mean is still matched.
    """
    sd = np.sqrt(v0)
    L = fit.root
    weights = fit.mean / sd
    mu = times(transposed(L), weights)
    V = fit.covariance + (1.0 - rho)[:, None, None] * mu[:, :, None] * mu[:, None, :]
    good = np.isfinite(V).all(axis=(1, 2)) & np.isfinite(L).all(axis=(1, 2))
    values, vectors = np.linalg.eigh(np.where(good[:, None, None], V, np.eye(V.shape[1])))
    values = np.maximum(values, _LEAST)
    # B + T = L V^-1 L'/rho, and L L' = B + I but for rounding.
    half = L @ vectors
    T = (half * (1.0 / (rho[:, None] * values) - 1.0)[:, None, :]) @ transposed(half)
    np.einsum("gii->gi", T)[...] += _added(B, sd)
    nu = times(half, times(transposed(vectors), mu) / values) - sd * r
    T[~good], nu[~good] = np.nan, np.nan
    values, vectors = np.linalg.eigh(np.where(good[:, None, None], T, 0.0))
    low = good & (values[:, 0] < 1.0 / widest)
    raised = np.maximum(1.0 / widest - values[low], 0.0)[:, None, :]
    raised = (vectors[low] * raised) @ transposed(vectors[low])
    T[low] += raised
    nu[low] += times(raised, rho[low, None] * weights[low])
    return T / (sd[:, :, None] * sd[:, None, :]), nu / sd, int(np.count_nonzero(low))
