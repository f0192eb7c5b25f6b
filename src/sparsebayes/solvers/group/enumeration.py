"""Enumeration of the models of undecided groups, after EP.

EP treats the groups one at a time, each against a Gaussian for all others. That is poor where
several undecided groups depend on each other: each of two near-duplicates sees the other as a
Gaussian that half explains the data, or one of them is in and its duplicate is out. After EP the
sites of some groups U are removed at once. What remains is an exact Gaussian likelihood
exp(c - |z - W w|^2/2) of their weights, in which the other groups are integrated out under their
sites. The joint posterior of U is then a sum over the models z, the choices of which groups of U
are in (`models`): with B = W'W and r = W'z,

    log weight(z) = sum log-odds of the groups in + 1/2 r'Sigma_z r - 1/2 log|I + D_z B D_z|,
    Sigma_z = D_z (I + D_z B D_z)^-1 D_z,   D_z = diag(sqrt(v0) where in, else 0),

and the weights have mean Sigma_z r and covariance Sigma_z given z. If U is all groups this is
exact. On 200 random problems of 2 to 10 groups it reduces the 90 % quantile of the inclusion error
from .07 to .002.

Which groups: those of p (1 - p) > 1e-4, and the alternatives to each group that is in. A group b is
an alternative to g if the odds of the model with b in place of g,

    logit p0_b + log BF(b without g) - logit p0_g - log BF(g),

are above 1e-4. Without the site of g the likelihood of w_b is H_b + J M^-1 J', J = X_b'C^-1 X_g F,
and q_b + J M^-1 F'(q_g + H_g S nu) + X_b'C^-1 X_g S nu: one product with all columns for each g.
Sites that have not settled decide nothing: all groups are enumerated if all models can be weighed.
If the search over models is incomplete, too many groups are open, and the ten most undecided ones
are enumerated with all their models.

The same sum gives the evidence. EP approximates the prior factor of a group outside U by exp(e_g)
N(w_g; S nu, S), and so

    log Z = log-likelihood constant + sum_{g not in U} e_g + c + log sum_z p(z) weight(z) - z'z/2.

The sites of U do not enter. If U is all groups, this is the evidence itself, whatever EP did.

For labels the likelihood is Gaussian only under the row sites of EP, which are fitted to all models
together. The row sites are fitted to each model again (`label_models`), and the sum is over models
with evidences of their own. If that is more than a few hundred models, fewer groups are enumerated.

Learnt hyperparameters that have a hyperprior are averaged over (`averaging`), with more columns
than rows over EP runs at several noise variances (`noise_runs`).

W and z come from a factorisation without the sites of U, so that nothing cancels. The cost is
O(n^2 d), O(n d k) for each group that is in, and the cube of its columns for each model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit, logsumexp, softmax

from ...linalg.blocks import times, transposed
from ...posterior import ModelMixture, Posterior, average_models
from .averaging import Average, average_hyperparameters, merge_averages
from .clusters import ClusterFit
from .clusters import models as models_of_cluster
from .ep import log_likelihood_constant
from .label_models import LabelModels, LabelRows
from .marginals import BlockLikelihood, Form, Marginals
from .models import ALL_MODELS, MOST_MODELS, Models, ModelSearch, ModelWeights, search_models
from .noise_runs import BETTER, NoiseRun
from .sites import SpikeSlabSites

_UNDECIDED = 1e-4  # p (1 - p), and odds of an alternative, above which a group is enumerated
_IN = 0.05  # inclusion above which alternatives to a group are considered
_COLUMNS = 400  # columns of all enumerated groups together, at most
_WORK = 2e8  # columns cubed times models, where all models are weighed
_FEW = 10  # groups to enumerate where the search over models is incomplete
_NO_VARIANCE = 1e-8  # of a combination of latent values, against the unit noise of the probit
_NEGLIGIBLE = 1e-9  # weight of a model that the posterior leaves out
_KEPT = 1024  # models that a posterior keeps at most
_LITTLE = 0.01  # weight of noise variances at which not all models need be known


@dataclass(frozen=True)
class Enumeration:
    """The posterior after the undecided groups have been enumerated.

    Parameters
    ----------
    inclusion : array of shape (n_groups,)
        Inclusion probability of each group.
    variance : array of shape (n_columns,)
        Posterior variance of each weight.
    posterior : Posterior
        Of all weights, with the evidence.
    models : list of Models
        First those of the enumerated groups, if there are any, then those of each other cluster.
    exact : bool
        Whether all models of all groups were weighed, so that nothing depends on EP.
    unsettled : float
        Weight of the noise variances at which EP has not settled.
    rounding : float
        Rounding error of the log weights of models: of r'Sigma_z r, which is at most z'z.
    """

    inclusion: np.ndarray
    variance: np.ndarray
    posterior: Posterior
    models: list[Models]
    exact: bool = False
    unsettled: float = 0.0
    rounding: float = 0.0


def enumerate_undecided_groups(
    form: Form,
    sites: SpikeSlabSites,
    marginals: Marginals,
    posterior: Posterior,
    most: int = 32,
    *,
    precision: float | np.ndarray,
    log_constant: float,
    target: np.ndarray | None = None,
    n_observations: float | None = None,
    settled: bool = True,
    rows: LabelRows | None = None,
    at_noise: Sequence[NoiseRun] = (),
) -> Enumeration:
    """Sum over the models of the groups that EP leaves undecided, and of their alternatives.

    Parameters
    ----------
    form, sites, marginals
        Of the EP state.
    posterior : Posterior
        The approximation of EP.
    most : int, default=32
        Number of groups to enumerate at most.
    precision, target : float or arrays of shape (n_rows,)
        Noise precision of the rows, and the target if it is not that of the form.
    log_constant : float
        The factor of the likelihood that does not depend on the weights.
    n_observations : float, optional
        Number of observations, for the average over a learnt noise variance.
    settled : bool, default=True
        Whether the sites have converged.
    rows : LabelRows, optional
        Labels and their sites, where the target is labels.
    at_noise : sequence of NoiseRun, optional
        Runs at several noise variances, that of `sites` first, in place of its nodes.
    """
    ep = _Approximation(form, sites, marginals, precision, target, settled)
    weighed = None if most == 0 else _weigh_models(ep, most, rows, log_constant)
    if weighed is None:
        models = _cluster_models(sites, np.empty(0, dtype=np.intp))
        return Enumeration(sites.inclusion, ep.variance, posterior, models)
    models_at_mode = weighed.models()[0]
    if len(at_noise) > 1:
        weighed, average = _average_all_runs(at_noise, weighed, ep, most)
    elif ep.learns:
        average = _average_hyperparameters(ep, weighed, log_constant, n_observations or 0.0)
    else:
        average = _sum_over_models(ep, weighed, log_constant)
    posterior = _with_noise(posterior, average.noise_factor)
    posterior = replace(posterior, log_evidence=average.log_evidence)
    variance = ep.variance
    if len(weighed.groups):
        posterior, variance = average_models(posterior, variance, weighed.columns, average.mixture)
    models = [average.models, *_cluster_models(sites, weighed.groups)]
    exact = models_at_mode.are_all and models_at_mode.chosen.shape[1] == ep.n_free
    inclusion = np.minimum(average.inclusion, 1.0)  # a sum of weights may be one and a last digit
    rounding = float(np.finfo(float).eps * np.sum(weighed.likelihood.z**2))
    return Enumeration(inclusion, variance, posterior, models, exact, average.unsettled, rounding)


class _Approximation(NamedTuple):
    """The Gaussian approximation at which EP has ended."""

    form: Form
    sites: SpikeSlabSites
    marginals: Marginals
    precision: float | np.ndarray  # of the noise of the rows
    target: np.ndarray | None  # if it is not that of the form
    settled: bool  # whether the sites have converged

    @property
    def learns(self) -> bool:
        """True where there are hyperparameters to average over."""
        return self.sites.hyperprior is not None and bool(self.sites.hyperprior.learn)

    @property
    def variance(self) -> np.ndarray:
        """Posterior variance of each weight."""
        return np.maximum(self.sites.variance, 0.0)

    @property
    def n_free(self) -> int:
        """Number of groups that are not always in."""
        return int(np.count_nonzero(~self.sites.always))

    def weigh(self, groups: np.ndarray) -> _Weighed:
        """Weigh the models of some groups."""
        return _weigh(self.form, self.sites, groups, self.precision, self.target)

    def weigh_undecided(self, most: int) -> _Weighed:
        """Weigh the models of at most `most` groups that are undecided."""
        return self.weigh(self.undecided_groups(most))

    def undecided_groups(self, most: int) -> np.ndarray:
        """Return at most `most` groups to enumerate, in order."""
        return _undecided_groups(self.form, self.sites, self.marginals, most, self.settled)


def _weigh_models(
    ep: _Approximation, most: int, rows: LabelRows | None, log_constant: float
) -> _Weighed | None:
    """Weigh the models of the undecided groups, of fewer groups where there are too many models.

    Returns None if there is nothing to weigh, or if no weight is finite.
    """
    groups = ep.undecided_groups(most)
    if len(groups) == 0 and not ep.learns:
        return None
    weighed = ep.weigh(groups)
    if not weighed.search.complete:
        weighed = ep.weigh_undecided(min(most, _FEW))
    if not np.all(np.isfinite(weighed.search.log_weight)):
        return None
    if rows is None:
        return weighed
    weighed = _weigh_labels(ep, rows, weighed, log_constant, most)
    return weighed if np.any(np.isfinite(weighed.search.log_weight)) else None


def _average_hyperparameters(
    ep: _Approximation, weighed: _Weighed, log_constant: float, n_observations: float
) -> Average:
    """Average the models over the hyperparameters, with the sites of EP at the mode."""

    def likelihood(factor: float) -> BlockLikelihood:
        precision = ep.precision / factor
        return _likelihood(ep.form, ep.sites, weighed.removed, precision, ep.target)

    average = average_hyperparameters(
        ep.sites,
        weighed.models()[0],
        weighed.weights,
        likelihood,
        weighed.labels,
        n_observations,
        n_observations - ep.marginals.n_used if n_observations else 0.0,
    )
    if weighed.labels is not None:
        return average
    return average._replace(log_evidence=average.log_evidence + log_constant)


def _sum_over_models(ep: _Approximation, weighed: _Weighed, log_constant: float) -> Average:
    """Sum over the models, with hyperparameters that are given."""
    groups, (models, total) = weighed.groups, weighed.models()
    inclusion = ep.sites.inclusion
    inclusion[groups] = models.weight @ models.chosen
    evidence = total + _log_prior(ep.sites, groups)
    if weighed.labels is None:
        evidence += log_constant + weighed.likelihood.log_constant
    return Average(inclusion, models, _mixture(models, weighed), evidence, 1.0)


def _average_all_runs(
    runs: Sequence[NoiseRun], weighed: _Weighed, ep: _Approximation, most: int
) -> tuple[_Weighed, Average]:
    """Average over runs at several noise variances, of fewer groups if there are too many models.

    The groups that were averaged over are those of the first value returned.
    """
    average = _average_runs(runs, weighed.groups)
    if average is None:
        weighed = ep.weigh_undecided(min(most, _FEW))
        average = _average_runs(runs, weighed.groups, search_all=False)
    assert average is not None
    return weighed, average


def _average_runs(
    runs: Sequence[NoiseRun], groups: np.ndarray, search_all: bool = True
) -> Average | None:
    """Average the models of `groups` over runs at several noise variances.

    Returns None if `search_all`, and the search over models is not complete at one that matters.
    """
    averages, log_weight, complete = [], [], []
    for at_node in runs:
        state = at_node.state
        weighed = _weigh(state.form, state.sites, groups, 1.0 / state.sigma2, None)
        complete.append(weighed.search.complete)
        if search_all and not complete[0]:
            return None
        models = weighed.models()[0]
        average = average_hyperparameters(
            state.sites, models, weighed.weights, weighed.same_likelihood, None, 0.0, 0.0
        )
        averages.append(average)
        log_weight.append(average.log_evidence + log_likelihood_constant(state) + at_node.log_prior)
    # A prior as wide as that of the three nodes of the hyperprior, whatever the number of runs.
    shift = runs[0].log_prior + np.log(3.0)
    weights = np.array(log_weight) - shift
    if search_all and np.sum(softmax(weights)[~np.array(complete)]) > _LITTLE:
        return None
    noise, settled = np.array([r.state.sigma2 for r in runs]), np.array([r.settled for r in runs])
    # EP has learnt the noise of the first run. If the sum over models prefers that of another one,
    # it contradicts the evidence of EP there, and moves by nats with the last digits of the sites.
    settled &= weights <= weights[0] + BETTER
    return merge_averages(averages, weights, noise, settled)


def _with_noise(posterior: Posterior, factor: float) -> Posterior:
    """Return the posterior with its noise variance, and what is in its units, times a factor."""
    noise, offset = posterior.noise_variance, posterior.offset_variance
    return replace(posterior, noise_variance=noise * factor, offset_variance=offset * factor)


class _Removed(NamedTuple):
    """Some groups whose sites are removed."""

    columns: np.ndarray  # of the groups
    owner: np.ndarray  # the group of each column
    at: np.ndarray  # where the columns lie in the order of the form
    half: list[np.ndarray]  # of the sites: 0 where they are removed


class _Weighed(NamedTuple):
    """Models of some groups that were weighed together."""

    removed: _Removed
    likelihood: BlockLikelihood  # of their weights
    weights: ModelWeights
    search: ModelSearch
    groups: np.ndarray
    columns: np.ndarray  # that the mixture of the models is about
    labels: LabelModels | None = None  # with row sites of each model, where the target is labels

    def same_likelihood(self, factor: float) -> BlockLikelihood:
        """Return the likelihood at its own noise variance."""
        return self.likelihood

    def models(self) -> tuple[Models, float]:
        """Return the models in the order of their weights, and the log of the sum of these."""
        chosen, log_weight, _ = self.search
        order = np.argsort(-log_weight, kind="stable")
        weight = softmax(log_weight[order])
        return Models(self.groups, chosen[order], weight), float(logsumexp(log_weight))


def _weigh_labels(
    ep: _Approximation, rows: LabelRows, weighed: _Weighed, log_constant: float, most: int
) -> _Weighed:
    """Weigh models of labels, each with row sites of its own, of as few groups as that allows."""
    weighed, labels = _fit_labels(ep.sites, rows, weighed, log_constant)
    largest = int(np.log2(labels.most))
    if not weighed.search.complete and len(weighed.groups) > largest:
        weighed = ep.weigh_undecided(min(most, largest))
        weighed, _ = _fit_labels(ep.sites, rows, weighed, log_constant)
    return weighed


def _weigh(
    form: Form,
    sites: SpikeSlabSites,
    groups: np.ndarray,
    precision: float | np.ndarray,
    target: np.ndarray | None,
) -> _Weighed:
    """Remove the sites of some groups and weigh the models of these."""
    removed = _remove(sites, groups)
    likelihood = _likelihood(form, sites, removed, precision, target)
    position = np.searchsorted(groups, removed.owner)
    slab = np.sqrt(sites.slab_variance[removed.owner])
    log_odds = sites.prior_log_odds[groups]
    weights = ModelWeights(likelihood.W, likelihood.z, position, slab, log_odds)
    search = search_models(weights, sites.inclusion[groups] > 0.5)
    return _Weighed(removed, likelihood, weights, search, groups, removed.columns)


def _remove(sites: SpikeSlabSites, groups: np.ndarray) -> _Removed:
    """Return the columns of some groups, and the sites without theirs."""
    none = np.empty(0, dtype=np.intp)
    parts: list[tuple[np.ndarray, ...]] = [(none, none, none)]
    half = [F.copy() for F in sites.half]
    for i, bucket in enumerate(sites.blocks.buckets):
        for j in np.flatnonzero(np.isin(bucket.owner, groups)):
            at = bucket.start + j * bucket.size + np.arange(bucket.size)
            owner = np.full(bucket.size, bucket.owner[j])
            if bucket.groups is not None:
                owner = bucket.groups[j][bucket.position]
            parts.append((bucket.columns[j], owner, at))
            half[i][j] = 0.0
    columns, owner, at = (np.concatenate(p) for p in zip(*parts, strict=True))
    return _Removed(columns, owner, at, half)


def _likelihood(
    form: Form,
    sites: SpikeSlabSites,
    removed: _Removed,
    precision: float | np.ndarray,
    target: np.ndarray | None,
) -> BlockLikelihood:
    """Return the likelihood of the weights whose sites are removed, in as few rows as can be."""
    at = removed.at
    if len(at) == 0:
        m = form.marginals(removed.half, sites.shift, precision, target)
        return BlockLikelihood(np.empty((0, 0)), np.empty(0), -0.5 * (m.log_det + m.quadratic))
    likelihood = form.likelihood(at, removed.half, sites.shift, precision, target)
    if len(likelihood.W) > len(at):
        R = np.asarray(np.linalg.qr(np.column_stack(likelihood[:2]), mode="r"))
        likelihood = likelihood._replace(W=R[:, :-1], z=R[:, -1])
    return likelihood


def _fit_labels(
    sites: SpikeSlabSites, rows: LabelRows, weighed: _Weighed, log_constant: float
) -> tuple[_Weighed, LabelModels]:
    """Fit the row sites of the models that matter, and weigh these by their own evidence."""
    weights, removed = weighed.weights, weighed.removed
    always = _remove(sites, np.flatnonzero(sites.always))
    at, columns, slab = removed.at, removed.columns, weights.slab
    if len(at) + len(always.at) <= _COLUMNS:
        # Their weights, such as the intercept, differ much from model to model.
        at, columns = np.append(at, always.at), np.append(columns, always.columns)
        slab = np.append(slab, np.sqrt(sites.slab_variance[always.owner]))
    others, offset = _others(sites, rows.X, at)
    labels = LabelModels(rows, rows.X[:, at], others, offset, weights.position, slab)
    chosen, log_weight, complete = weighed.search
    log_weight = log_weight + log_constant + weighed.likelihood.log_constant
    start = sites.inclusion[weighed.groups] > 0.5
    which, log_weight, all_fitted = labels.weigh(chosen, log_weight, weights.log_odds, start)
    search = ModelSearch(chosen[which], log_weight, complete and all_fitted)
    return weighed._replace(search=search, columns=columns, labels=labels), labels


def _others(
    sites: SpikeSlabSites, X: np.ndarray, removed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return a root of the covariance, and the mean, of X w without the columns `removed`."""
    parts, mean, is_removed = [], np.zeros(X.shape[1]), np.zeros(X.shape[1], dtype=bool)
    is_removed[removed] = True
    for bucket, F, nu in zip(sites.blocks.buckets, sites.half, sites.shift, strict=True):
        count, k = bucket.columns.shape
        own = slice(bucket.start, bucket.start + count * k)
        blocks = X[:, own].reshape(len(X), count, k)
        kept = ~is_removed[own].reshape(count, k).any(axis=1)
        root = np.einsum("njb,jab->nja", blocks[:, kept], F[kept])
        parts.append(root.reshape(len(X), -1))
        mean[own] = times(transposed(F), times(F, nu)).ravel()
    mean[removed] = 0.0
    root = np.hstack(parts)
    if root.shape[1] > len(X):
        values, vectors = np.linalg.eigh(root @ root.T)
        heavy = values > _NO_VARIANCE
        root = vectors[:, heavy] * np.sqrt(values[heavy])
    return root, X @ mean


def _log_prior(sites: SpikeSlabSites, groups: np.ndarray) -> float:
    """The prior's part of the evidence, but for the odds of the enumerated `groups`."""
    others = sites.log_evidence_by_group()
    others[groups] = log_expit(-sites.prior_log_odds[groups])
    return float(np.sum(others)) + sites.log_evidence_out()


def _mixture(models: Models, weighed: _Weighed) -> ModelMixture:
    """The heaviest models as a mixture over the weights."""
    labels = weighed.labels
    most = _KEPT if labels is None else labels.most_kept
    count = min(int(np.count_nonzero(models.weight > _NEGLIGIBLE)), most)
    weight = models.weight[:count] / models.weight[:count].sum()
    if labels is not None:
        return labels.mixture(weight, models.chosen[:count], np.ones(count))
    inside = models.chosen[:count][:, weighed.weights.position]
    W, z, _ = weighed.likelihood
    return ModelMixture(weight, inside, W, z, weighed.weights.slab)


def _cluster_models(sites: SpikeSlabSites, but: np.ndarray) -> list[Models]:
    """Return the models of each cluster that is likely in, except those with groups in `but`."""
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


def _undecided_groups(
    form: Form, sites: SpikeSlabSites, marginals: Marginals, most: int, settled: bool
) -> np.ndarray:
    """Return the groups to enumerate, in order; either all groups of a cluster or none."""
    p, n_free = sites.inclusion, int(np.count_nonzero(~sites.always))
    doubt = p * (1.0 - p)
    if not settled and n_free <= most and 2.0**n_free <= ALL_MODELS:
        doubt[:] = 0.25
    doubt[sites.always] = 0.0
    count, size = np.ones_like(p), sites.blocks.sizes()
    for bucket in sites.blocks.buckets:
        if bucket.groups is not None:
            count[bucket.owner] = bucket.groups.shape[1]
            most_open = doubt[bucket.groups].max(axis=1)
            doubt[bucket.groups] = 0.0
            doubt[bucket.owner] = most_open
    if most > 0:
        for g, odds in _alternatives(form, sites, marginals, most):
            # Beside a group of probability p, an alternative of odds o leaves it p (1 - p) of
            # about o.
            odds = np.minimum(odds, 0.25)
            doubt[g] = max(doubt[g], float(np.max(odds)))
            doubt = np.maximum(doubt, odds)
    order = np.argsort(-doubt, kind="stable")
    order = order[doubt[order] > _UNDECIDED]
    counts, sizes = np.cumsum(count[order]), np.cumsum(size[order])
    models = np.minimum(2.0 ** np.minimum(counts, 60.0), MOST_MODELS)
    inside = (models <= ALL_MODELS) & (models * sizes**3 <= _WORK)
    inside |= (models > ALL_MODELS) & (sizes <= _COLUMNS)
    inside &= counts <= most
    chosen = order[: np.count_nonzero(np.logical_and.accumulate(inside))]
    clusters = [
        b.groups[np.isin(b.owner, chosen)].ravel()
        for b in sites.blocks.buckets
        if b.groups is not None
    ]
    return np.unique(np.concatenate([chosen, *clusters]))


def _alternatives(
    form: Form, sites: SpikeSlabSites, marginals: Marginals, most: int
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each group or cluster that is in, with the odds of every other one in its place."""
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
        own = prior[g] + sites.cavities[i].slab.log_bayes_factor[j]
        for m, bucket in enumerate(buckets):
            X, X_q = _unwhitened(marginals, sites, m)
            J = cross[m] @ F
            X = X + J @ np.linalg.solve(M, transposed(J))
            fit = sites.slab_fit(m, X, X_q + cross[m] @ pull)
            log_odds = prior[bucket.owner] + fit.log_bayes_factor - own
            odds[bucket.owner] = np.exp(np.minimum(np.nan_to_num(log_odds, nan=-np.inf), 0.0))
        odds[g] = 0.0
        odds[sites.always] = 0.0
        if np.max(odds) > _UNDECIDED:
            yield int(g), odds


def _unwhitened(
    marginals: Marginals, sites: SpikeSlabSites, i: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return H and q of all blocks of a bucket."""
    if marginals.M is None:
        return marginals.H[i], marginals.q[i]
    R = sites.root[i]
    return R @ marginals.H[i] @ transposed(R), times(R, marginals.q[i])
