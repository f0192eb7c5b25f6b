"""The groups that EP leaves undecided, and their rivals, looked at together.

EP meets the groups one at a time, each against a Gaussian for all the others. That is poor where
several undecided groups depend on each other: near-duplicates each see the other as a Gaussian that
half explains the data, or one of them takes all and its double is out. After EP, some groups U have
all their sites taken out at once. What is left is an exact Gaussian likelihood exp(r'w - w'Bw/2) of
their weights, the other groups still approximated, and their joint posterior is a sum over the
models z, the choices of which of them are in:

    log weight(z) = sum log-odds of the groups in + 1/2 r'Sigma_z r - 1/2 log|I + D_z B D_z|,
    Sigma_z = D_z (I + D_z B D_z)^-1 D_z,   D_z = diag(sqrt(v0) where in, else 0),

mean Sigma_z r and covariance Sigma_z given z. With no other groups this is exact; on 200 random
problems of 2 to 10 groups it takes the 90 % quantile of the inclusion error from .07 to .002.

Which groups: those of p (1 - p) > 1e-4, and the rivals of each group that is in. A rival could take
its place: with the site of g taken out, the odds of the model with b instead of g,

    logit p0_b + log BF(b without g) - logit p0_g - log BF(g),

are above 1e-4. Without g the likelihood of w_b is H_b + J M^-1 J', J = X_b'C^-1 X_g F, and q_b + J
M^-1 F'(q_g + H_g S nu) + X_b'C^-1 X_g S nu: one product with all columns for each g.

Which models: all, where there are at most `_ALL`; else the heaviest are searched from those of EP:
of each, its neighbours (a group in or out, or one changed for another) are weighed, until no model
of more than `_SLIGHT` of the heaviest has neighbours unseen, or `_MODELS` have been weighed. Where
models with unseen neighbours have more than a tenth of the weight then, too many groups are open:
the ten most undecided are looked at, with all their models.

The same sum gives the evidence. The prior factor of a group outside U is approximated by exp(e_g)
N(w_g; S nu, S); the integral of the likelihood over those Gaussians is, as a function of the
weights of U, exp(c - |z - W w|^2/2) with B = W'W and r = W'z; and so

    log Z = log-likelihood constant + sum_{g not in U} e_g + c + log sum_z p(z) weight(z) - z'z/2.

The sites of U do not enter. Where U is all groups it is the evidence itself, whatever EP did.

B and r come from a factorisation without the sites of U: nothing cancels.
Cost O(n^2 d), O(n d k) for each group that is in, and the cube of its columns for each model.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, log_expit, logsumexp

from ...linalg.blocks import times, transposed
from ...posterior import ModelAverage, revise
from .clusters import ClusterFit
from .clusters import models as models_of_cluster
from .forms import ColumnForm, Marginals, RowForm
from .sites import SpikeSlabSites

_UNDECIDED = 1e-4  # of p (1 - p), and of the odds of a rival
_COLUMNS = 400  # of all groups together, at most
_IN = 0.05  # inclusion from which on a group is asked for rivals
_ALL = 1024  # models up to which all are weighed
_MODELS = 2048  # most that are weighed
_WORK = 2e8  # columns cubed of all of them
_SLIGHT = 1e-5
_COVERED = 0.9  # share of the weight that models with all neighbours seen must have
_FEW = 10  # groups to look at otherwise: all their models
_AT_ONCE = 16  # models whose neighbours are weighed together
_NEGLIGIBLE = 1e-9  # weight of a model whose moments are left out
_HARDLY = 1e-6  # probability that a group must add
_KEPT = 1024  # models that a posterior keeps: all, where all are weighed


@dataclass(frozen=True)
class Models:
    """The models that were weighed, the heaviest first.

    Parameters
    ----------
    groups : array of int
        The groups that were looked at together.
    chosen : array of bool of shape (n_models, len(groups))
        Which of them are in.
    weight : array of shape (n_models,)
        Posterior probabilities; they sum to one.
    """

    groups: np.ndarray
    chosen: np.ndarray
    weight: np.ndarray


class Joint(NamedTuple):
    """Inclusion of all groups, variance of all weights, posterior, and the models weighed.

    First the models of the groups that were looked at together, then those of each other cluster.
    `exact` says that all models of all groups were weighed, so that nothing is left of EP.
    """

    inclusion: np.ndarray
    variance: np.ndarray
    posterior: Any
    models: list[Models]
    exact: bool = False


def look_together(
    form: RowForm | ColumnForm,
    sites: SpikeSlabSites,
    marginals: Marginals,
    posterior: Any,
    most: int = 32,
    *,
    precision: Any,
    log_constant: float,
    target: Any = None,
) -> Joint:
    """What is known once undecided groups and rivals have been looked at together.

    The evidence of the posterior is corrected too.

    Parameters
    ----------
    form, sites, marginals
        Of the EP state.
    posterior : Posterior
        What EP knows of the weights.
    most : int, default=32
        Most groups to look at together.
    precision : float or array of shape (n_rows,)
        Of the noise.
    log_constant : float
        The factor of the likelihood that does not depend on the weights.
    target : array of shape (n_rows,), optional
        In place of that of the form.
    """
    inclusion, variance = sites.inclusion, np.maximum(sites.variance, 0.0)
    groups = _together(form, sites, marginals, most)
    if len(groups) == 0:
        return Joint(inclusion, variance, posterior, _cluster_models(sites, groups))
    cavity, weigh, chosen, log_weight, complete = _weighed(form, sites, groups, precision, target)
    if not complete:
        groups = _together(form, sites, marginals, min(most, _FEW))
        if len(groups) == 0:
            return Joint(inclusion, variance, posterior, _cluster_models(sites, groups))
        cavity, weigh, chosen, log_weight, _ = _weighed(form, sites, groups, precision, target)
    if not np.all(np.isfinite(log_weight)):
        groups = np.empty(0, dtype=np.intp)
        return Joint(inclusion, variance, posterior, _cluster_models(sites, groups))
    total = logsumexp(log_weight)
    others = sites.log_evidence_by_group()
    others[groups] = 0.0
    evidence = log_constant + sites.log_evidence_out() + float(np.sum(others))
    evidence += cavity.log_constant + total
    evidence += float(np.sum(log_expit(-sites.prior_log_odds[groups])))
    posterior = replace(posterior, log_evidence=float(evidence))
    order = np.argsort(-log_weight, kind="stable")
    models = Models(groups, chosen[order], np.exp(log_weight[order] - total))
    inclusion = inclusion.copy()
    inclusion[groups] = models.weight @ models.chosen
    few = min(int(np.count_nonzero(models.weight > _NEGLIGIBLE)), _KEPT)
    weight = models.weight[:few] / models.weight[:few].sum()
    inside = models.chosen[:few][:, weigh.position]
    k = len(cavity.columns)
    average = ModelAverage(
        base=None,
        columns=cavity.columns,
        gain=np.eye(k),
        root=np.eye(k),
        mean=np.zeros(k),
        weight=weight,
        inside=inside,
        W=cavity.W,
        z=cavity.z,
        slab=weigh.slab,
    )
    mean, V = _moments(average)
    posterior, variance = revise(posterior, variance, cavity.columns, mean, V)
    revised = posterior.form
    form_of_all = replace(
        average, base=revised.base, gain=revised.gain, root=revised.root, mean=mean
    )
    posterior = replace(posterior, form=form_of_all)
    every_group = len(groups) == np.count_nonzero(~sites.always)
    exact = every_group and len(models.weight) == 2 ** len(groups)
    return Joint(inclusion, variance, posterior, [models, *_cluster_models(sites, groups)], exact)


def _cluster_models(sites: SpikeSlabSites, but: np.ndarray) -> list[Models]:
    """Of the clusters that are likely in, but those with groups in `but`."""
    out, p = [], expit(sites.group_log_odds)
    for bucket, cavity in zip(sites.blocks.buckets, sites.cavities, strict=True):
        if bucket.groups is None or not isinstance(cavity.slab, ClusterFit):
            continue
        for j in np.flatnonzero((p[bucket.owner] > 0.5) & ~np.isin(bucket.owner, but)):
            chosen = models_of_cluster(bucket.groups.shape[1])
            chosen = np.vstack([chosen, np.zeros((1, chosen.shape[1]), dtype=bool)])
            any_in = p[bucket.owner[j]]
            weight = np.append(any_in * cavity.slab.weight[j], 1.0 - any_in)
            out.append(Models(bucket.groups[j], chosen, weight))
    return out


def _weighed(
    form: RowForm | ColumnForm,
    sites: SpikeSlabSites,
    groups: np.ndarray,
    precision: Any,
    target: Any,
) -> tuple[JointCavity, _Weigher, np.ndarray, np.ndarray, bool]:
    cavity = _joint_cavity(form, sites, groups, precision, target)
    weigh = _Weigher(cavity, groups, sites)
    return cavity, weigh, *_search(weigh, sites.inclusion[groups] > 0.5)


def _moments(average: ModelAverage) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the mixture."""
    k = len(average.columns)
    means, V = np.zeros((len(average.weight), k)), np.zeros((k, k))
    for i, weight in enumerate(average.weight):
        idx, inside, root = average.model(i)
        means[i, idx] = inside
        V[np.ix_(idx, idx)] += weight * (root @ root.T)
    mean = average.weight @ means
    V += (average.weight[:, None] * (means - mean)).T @ (means - mean)
    return mean, V


def _together(
    form: RowForm | ColumnForm, sites: SpikeSlabSites, marginals: Marginals, most: int
) -> np.ndarray:
    """The groups to look at together, in order; of a cluster all or none."""
    p = sites.inclusion
    doubt = p * (1.0 - p)
    doubt[sites.always] = 0.0
    count, size = np.ones_like(p), sites.blocks.sizes()
    for bucket in sites.blocks.buckets:
        if bucket.groups is not None:
            count[bucket.owner] = bucket.groups.shape[1]
            most_open = doubt[bucket.groups].max(axis=1)
            doubt[bucket.groups] = 0.0
            doubt[bucket.owner] = most_open
    if most > 0:
        for g, odds in _rivals(form, sites, marginals, most):
            # Beside a group of probability p, a rival of odds o leaves it p (1 - p) of about o.
            odds = np.minimum(odds, 0.25)
            doubt[g] = max(doubt[g], float(np.max(odds)))
            doubt = np.maximum(doubt, odds)
    order = np.argsort(-doubt, kind="stable")
    order = order[doubt[order] > _UNDECIDED]
    counts, sizes = np.cumsum(count[order]), np.cumsum(size[order])
    models = np.minimum(2.0 ** np.minimum(counts, 60.0), _MODELS)
    inside = (models <= _ALL) & (models * sizes**3 <= _WORK)
    inside |= (models > _ALL) & (sizes <= _COLUMNS)
    inside &= counts <= most
    chosen = order[: np.count_nonzero(np.logical_and.accumulate(inside))]
    clusters = [
        b.groups[np.isin(b.owner, chosen)].ravel()
        for b in sites.blocks.buckets
        if b.groups is not None
    ]
    return np.unique(np.concatenate([chosen, *clusters]))


def _rivals(
    form: RowForm | ColumnForm, sites: SpikeSlabSites, marginals: Marginals, most: int
) -> Iterator[tuple[int, np.ndarray]]:
    """Each group or cluster that is in, and the odds of every other one in its place."""
    p, prior = expit(sites.group_log_odds), sites.any_prior
    buckets = sites.blocks.buckets
    if any(len(np.unique(b.owner)) < len(b.owner) for b in buckets) or len(prior) < 2:
        return  # sites per column
    inside = np.flatnonzero((p > _IN) & ~sites.always)
    for g in inside[np.argsort(-p[inside], kind="stable")][:most]:
        i, j = next(
            (i, int(np.flatnonzero(b.owner == g)[0]))
            for i, b in enumerate(buckets)
            if np.any(b.owner == g)
        )
        F, R, nu = sites.half[i][[j]], sites.root[i][[j]], sites.shift[i][[j]]
        H, _, M, q = (x[0] for x in marginals.blocks(i, [j], F, R))
        F, nu = F[0].T, nu[0]
        at = buckets[i].start + j * buckets[i].size + np.arange(buckets[i].size)
        cross = form.cross(at, sites, marginals)
        S_nu = F @ (F.T @ nu)
        pull = S_nu + F @ np.linalg.solve(M, F.T @ (q + H @ S_nu))
        odds = np.zeros(len(p))
        here = prior[g] + sites.cavities[i].slab.log_bayes_factor[j]
        for m, bucket in enumerate(buckets):
            X, X_q = _unwhitened(marginals, sites, m)
            J = cross[m] @ F
            X = X + J @ np.linalg.solve(M, transposed(J))
            fit = sites.slab_fit(m, X, X_q + cross[m] @ pull)
            log_odds = prior[bucket.owner] + fit.log_bayes_factor - here
            odds[bucket.owner] = np.exp(np.minimum(np.nan_to_num(log_odds, nan=-np.inf), 0.0))
        odds[g] = 0.0
        odds[sites.always] = 0.0
        if np.max(odds) > _UNDECIDED:
            yield int(g), odds


def _unwhitened(
    marginals: Marginals, sites: SpikeSlabSites, i: int
) -> tuple[np.ndarray, np.ndarray]:
    """H and q of all blocks of a bucket."""
    if marginals.M is None:
        return marginals.H[i], marginals.q[i]
    R = sites.root[i]
    return R @ marginals.H[i] @ transposed(R), times(R, marginals.q[i])


class JointCavity(NamedTuple):
    """Some groups without their sites: columns, the group of each, and the likelihood B, r."""

    columns: np.ndarray
    owner: np.ndarray
    B: np.ndarray  # W'W
    r: np.ndarray  # W'z
    W: np.ndarray
    z: np.ndarray
    log_constant: float  # the likelihood is exp(log_constant - |z - W w|^2/2)


def _joint_cavity(
    form: RowForm | ColumnForm,
    sites: SpikeSlabSites,
    groups: np.ndarray,
    precision: Any,
    target: Any,
) -> JointCavity:
    parts: list[tuple[np.ndarray, ...]] = []
    others = [F.copy() for F in sites.half]
    for i, bucket in enumerate(sites.blocks.buckets):
        for j in np.flatnonzero(np.isin(bucket.owner, groups)):
            at = bucket.start + j * bucket.size + np.arange(bucket.size)
            owner = np.full(bucket.size, bucket.owner[j])
            if bucket.groups is not None:
                owner = bucket.groups[j][bucket.position]
            parts.append((bucket.columns[j], owner, at))
            others[i][j] = 0.0
    columns, owner, at = (np.concatenate(p) for p in zip(*parts, strict=True))
    W, z, log_constant = form.likelihood(at, others, sites.shift, precision, target)
    if len(W) > len(at):
        R = np.asarray(np.linalg.qr(np.column_stack([W, z]), mode="r"))
        W, z = R[:, :-1], R[:, -1]
    return JointCavity(columns, owner, W.T @ W, W.T @ z, W, z, log_constant)


class _Weigher:
    """Log weights of many models at once, less |z|^2/2."""

    def __init__(self, cavity: JointCavity, groups: np.ndarray, sites: SpikeSlabSites) -> None:
        self.cavity = cavity
        self.position = np.searchsorted(groups, cavity.owner)  # of the group of each column
        self.slab = np.sqrt(sites.slab_variance[cavity.owner])
        self.odds = sites.prior_log_odds[groups]

    def __call__(self, chosen: np.ndarray) -> np.ndarray:
        out = chosen @ self.odds
        inside = chosen[:, self.position]
        count = inside.sum(axis=1)
        for k in np.unique(count[count > 0]):
            which = np.flatnonzero(count == k)
            idx = np.nonzero(inside[which])[1].reshape(len(which), k)
            D = self.slab[idx]
            A = D[:, :, None] * self.cavity.B[idx[:, :, None], idx[:, None, :]] * D[:, None, :]
            np.einsum("zii->zi", A)[...] += 1.0
            u = np.linalg.solve(A, (D * self.cavity.r[idx])[:, :, None])[:, :, 0]
            # r'Sigma r = |z|^2 - |z - W D u|^2 - |u|^2: the difference would lose what tells the
            # models apart where the noise is low.
            weights = np.zeros((len(which), len(self.slab)))
            np.put_along_axis(weights, idx, D * u, axis=1)
            misfit = self.cavity.z - weights @ self.cavity.W.T
            out[which] -= 0.5 * np.sum(misfit**2, axis=1) + 0.5 * np.sum(u**2, axis=1)
            out[which] -= 0.5 * np.linalg.slogdet(A)[1]
        out[count == 0] -= 0.5 * self.cavity.z @ self.cavity.z
        return out


def _search(weigh: _Weigher, start: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
    """Models, their log weights, and whether nothing that matters was left out."""
    count = len(start)
    if 2.0**count <= _ALL:
        chosen = np.array(list(itertools.product([False, True], repeat=count)))
        return chosen, weigh(chosen), True
    models = np.unique([start, np.zeros(count, dtype=bool)], axis=0)
    seen = {z.tobytes() for z in models}
    log_weight = weigh(models)
    expanded = np.zeros(len(models), dtype=bool)
    while len(models) < _MODELS:
        waiting = np.flatnonzero(~expanded & (log_weight > log_weight.max() + np.log(_SLIGHT)))
        if len(waiting) == 0:
            break
        heavy = waiting[np.argsort(-log_weight[waiting], kind="stable")][:_AT_ONCE]
        expanded[heavy] = True
        fresh = []
        for z in models[heavy]:
            for other in _neighbours(z):
                if (key := other.tobytes()) not in seen:
                    seen.add(key)
                    fresh.append(other)
        if fresh:
            models = np.vstack([models, fresh])
            log_weight = np.concatenate([log_weight, weigh(np.array(fresh))])
            expanded = np.concatenate([expanded, np.zeros(len(fresh), dtype=bool)])
    weight = np.exp(log_weight - log_weight.max())
    return models, log_weight, bool(weight[expanded].sum() > _COVERED * weight.sum())


def _neighbours(z: np.ndarray) -> Iterator[np.ndarray]:
    """One group in or out, or one in place of another."""
    for g in range(len(z)):
        other = z.copy()
        other[g] = ~z[g]
        yield other
    for leaves in np.flatnonzero(z):
        for enters in np.flatnonzero(~z):
            other = z.copy()
            other[leaves], other[enters] = False, True
            yield other


# Sets of groups that hold an active one, and selections of a given false discovery rate.
#
# A list of probabilities cannot say "one of these three": near-duplicates of an active group share
# its probability, and none of them is likely by itself. From the joint posterior of the groups,
#
#     P(none of S is in) = sum of weight(z) over the models z with z_S = 0,
#
# a set begins with the likeliest group left and takes in the one that adds most, until it holds an
# active group with the probability asked for; then whatever it can do without is taken out again. A
# group belongs to one set at most, and one that was not looked at together with others to its own.
# (SuSiE, Wang and others 2020, has a set for each of a given number of single effects; here nothing
# is presumed about how many groups of a set are in.)
#
# Selection: the expected share of false groups among those selected is the mean of 1 - p over them,
# whatever their dependence (Newton and others 2004). The largest selection with at most the rate
# asked for takes groups in the order of p.


class CredibleSet(NamedTuple):
    """Some groups, the probability that one of them is in, and their smallest correlation."""

    groups: np.ndarray
    probability: float
    purity: float


def credible_sets(
    inclusion: np.ndarray,
    factors: list[tuple[Models, np.ndarray]],
    coverage: float,
    smallest_purity: float,
) -> list[CredibleSet]:
    """Sets of groups, each with an active one with probability `coverage`.

    Parameters
    ----------
    inclusion : array of shape (n_groups,)
    factors : list of tuples of Models and arrays of shape (n, n)
        The models of n groups that were looked at together, and the absolute correlations between
        these. What is in different factors, or in none, is independent.
    coverage : float
    smallest_purity : float
        Sets with a smaller absolute correlation between two of their groups are left out.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.solvers.group.joint import Models, credible_sets
    >>> twins = Models(np.array([1, 2]), np.array([[True, False], [False, True]]), np.full(2, 0.5))
    >>> factors = [(twins, np.ones((2, 2)))]
    >>> found = credible_sets(np.array([0.99, 0.5, 0.5, 0.1]), factors, 0.95, 0.5)
    >>> [s.groups.tolist() for s in found]
    [[1, 2], [0]]
    """
    alone = np.flatnonzero(inclusion >= coverage)
    for models, _ in factors:
        alone = np.setdiff1d(alone, models.groups)
    found = [CredibleSet(np.array([g]), float(inclusion[g]), 1.0) for g in alone]
    for models, correlation in factors:
        joint, chosen, weight = models.groups, models.chosen, models.weight
        left = np.ones(len(joint), dtype=bool)
        while left.any():
            seed = int(np.argmax(np.where(left, weight @ chosen, -1.0)))
            inside = _grown(seed, left, chosen, weight, coverage)
            left[seed] = False
            if len(inside) == 0:
                continue
            purity = float(np.min(correlation[np.ix_(inside, inside)]))
            if purity >= smallest_purity:
                left[inside] = False
                any_in = float(weight @ chosen[:, inside].any(axis=1))
                found.append(CredibleSet(np.sort(joint[inside]), any_in, purity))
    return sorted(found, key=lambda s: (-s.probability, len(s.groups), s.groups[0]))


def _grown(
    seed: int, left: np.ndarray, chosen: np.ndarray, weight: np.ndarray, coverage: float
) -> np.ndarray:
    """The set that grows from `seed`; empty where it does not reach the coverage."""
    inside, missing = [seed], weight * ~chosen[:, seed]
    while missing.sum() > 1.0 - coverage:
        adds = np.where(left, missing @ chosen, 0.0)
        best = int(np.argmax(adds))
        if adds[best] < _HARDLY:
            return np.empty(0, dtype=np.intp)
        inside.append(best)
        missing = missing * ~chosen[:, best]
    for g in inside[::-1]:
        fewer = [b for b in inside if b != g]
        if fewer and weight @ chosen[:, fewer].any(axis=1) >= coverage:
            inside = fewer
    return np.array(inside)


def select(inclusion: np.ndarray, rate: float) -> np.ndarray:
    """The groups of the largest selection whose expected false discovery rate is at most `rate`.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.solvers.group.joint import select
    >>> select(np.array([0.2, 0.99, 0.85]), 0.1)
    array([1, 2])
    """
    order = np.argsort(-inclusion, kind="stable")
    expected = np.cumsum(1.0 - inclusion[order]) / np.arange(1, len(order) + 1)
    return np.sort(order[: np.count_nonzero(expected <= rate)])
