"""Average of the sum over models over learnt hyperparameters.

`enumeration` sums over the models of the undecided groups U at the mode of (p0, v0, sigma2) that EP
has learnt. Here the sum is repeated at the nodes of the `hyperprior`; the sites and cavities of
the other groups stay as they are. At a fixed point the evidence of EP is stationary in the
sites, so that this is right to first order in them:

    log Z(p0, v0, sigma2) = log-likelihood constant + c + log sum_z p(z | p0) weight(z | v0, sigma2)
                            + sum_{g not in U} [log(1 - p0 + p0 BF_g(v0)) + constant_g].

If U is all groups nothing is approximate but the quadrature. Inclusion probabilities, weights and
evidence are sums over the same nodes. Models below `_LIGHT` at the mode are left out of it. For
labels the row sites of each model are fitted again at every v0 (`label_models`).

With more columns than rows EP has been run at every sigma2 (`noise_runs`). Each run is averaged
over p0 and v0, and the averages are summed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logsumexp, softmax

from ...posterior import ModelMixture
from .label_models import LabelModels
from .marginals import BlockLikelihood
from .models import Models, ModelWeights
from .sites import SpikeSlabSites

_LIGHT = 1e-7  # probability at the mode below which a model takes no part
_NEGLIGIBLE = 1e-6  # weight of a component that the posterior leaves out
_KEPT = 1024  # components that a posterior keeps at most


class Average(NamedTuple):
    """The posterior of the groups, averaged over hyperparameters."""

    inclusion: np.ndarray
    models: Models
    mixture: ModelMixture
    log_evidence: float  # without the constant of the likelihood, but for labels
    noise_factor: float  # posterior mean of sigma2, over its mode
    unsettled: float = 0.0  # weight of the noise variances at which EP has not settled


def average_hyperparameters(
    sites: SpikeSlabSites,
    models: Models,
    weights: ModelWeights,
    likelihood: Callable[[float], BlockLikelihood],
    labels: LabelModels | None,
    n_observations: float,
    degrees_of_freedom: float,
) -> Average:
    """Average over the nodes of the hyperprior of the sites.

    Parameters
    ----------
    sites : SpikeSlabSites
        At the fixed point of EP.
    models : Models
        Of the undecided groups, at the mode of the hyperparameters.
    weights : ModelWeights
        The log weights of models at that mode.
    likelihood : callable
        Returns the likelihood of the weights of the undecided groups where sigma2 is multiplied by
        the argument.
    labels : LabelModels or None
        Where the target is labels: the models with row sites of their own. The evidence then
        includes the constant of the likelihood.
    n_observations, degrees_of_freedom : float
        Number of observations, and those that are left for the noise.
    """
    prior, groups = sites.hyperprior, models.groups
    assert prior is not None
    free = np.flatnonzero(~sites.always)
    odds, noise = prior.prior_nodes(*_mode(sites)), prior.noise_nodes(degrees_of_freedom)
    slab = prior.slab_nodes()
    heavy = models.weight > _LIGHT
    chosen = models.chosen[heavy]
    others = np.setdiff1d(free, groups)
    log_prior = _log_prior(sites.prior_log_odds[groups], chosen, odds.offset)
    factors = [_outside(sites, others, odds.offset, j, x) for j, x in enumerate(slab.offset)]
    likelihoods = [likelihood(float(np.exp(e))) for e in noise.offset]
    if labels is not None:
        likelihoods = [x._replace(log_constant=0.0) for x in likelihoods]
        for x in sorted(slab.offset, key=abs):  # a fit starts from the one at the nearest v0
            labels.log_evidence(chosen, np.exp(x))
    # Axes: noise, slab, inclusion prior, model.
    table = np.empty((len(noise.offset), len(slab.offset), *log_prior.shape))
    for i, (e, data) in enumerate(zip(noise.offset, likelihoods, strict=True)):
        constant = data.log_constant - 0.5 * n_observations * e + noise.log_weight[i]
        for j, s in enumerate(slab.offset):
            at_node = ModelWeights(
                data.W, data.z, weights.position, np.exp(0.5 * s) * weights.slab, 0.0 * groups
            )
            by_prior = factors[j].log_factor + odds.log_weight + slab.log_weight[j] + constant
            by_model = at_node(chosen) if labels is None else labels.log_evidence(chosen, np.exp(s))
            table[i, j] = by_model + log_prior + by_prior[:, None]
    weight = softmax(table)  # they sum to one also where rounding moves the evidence by nats
    inclusion = sites.inclusion
    inclusion[others] = np.einsum(
        "jp,jpg->g", weight.sum(axis=(0, 3)), np.array([f.inclusion for f in factors])
    )
    by_model = weight.sum(axis=(0, 1, 2))
    inclusion[groups] = by_model @ chosen
    order = np.argsort(-by_model, kind="stable")
    return Average(
        inclusion,
        Models(groups, chosen[order], by_model[order]),
        _mixture(weight.sum(axis=2), chosen, weights, likelihoods, slab.offset, labels),
        float(logsumexp(table)) + _constant(sites, others),
        float(weight.sum(axis=(1, 2, 3)) @ np.exp(noise.offset)),
    )


def merge_averages(
    averages: Sequence[Average], log_weight: np.ndarray, noise: np.ndarray, settled: np.ndarray
) -> Average:
    """Return the sum of averages at several noise variances, over the same groups.

    Parameters
    ----------
    averages : sequence of Average
        One at each noise variance; the first is that of the posterior that they revise.
    log_weight : array of shape (n_averages,)
        Their log weights, with the whole evidence in them.
    noise : array of shape (n_averages,)
        The noise variances.
    settled : array of bool of shape (n_averages,)
        Whether EP has settled at each of them.
    """
    weight = softmax(log_weight)
    models = [a.models for a in averages]
    chosen, which = np.unique(
        np.concatenate([m.chosen for m in models]), axis=0, return_inverse=True
    )
    by_model = np.bincount(
        which.ravel(), np.concatenate([w * m.weight for w, m in zip(weight, models, strict=True)])
    )
    order = np.argsort(-by_model, kind="stable")
    return Average(
        weight @ np.array([a.inclusion for a in averages]),
        Models(models[0].groups, chosen[order], by_model[order]),
        _merged_mixture([a.mixture for a in averages], weight),
        float(logsumexp(log_weight)),
        float(weight @ noise / noise[0]),
        float(np.sum(weight[~settled])),
    )


def _merged_mixture(mixtures: Sequence[ModelMixture], weight: np.ndarray) -> ModelMixture:
    """Return the heaviest components of several mixtures, each with a likelihood of its own."""
    share = np.concatenate([w * m.weight for w, m in zip(weight, mixtures, strict=True)])
    order = np.argsort(-share, kind="stable")[:_KEPT]
    order = order[share[order] > _NEGLIGIBLE]
    of = np.repeat(np.arange(len(mixtures)), [len(m) for m in mixtures])
    return ModelMixture(
        share[order] / share[order].sum(),
        np.concatenate([m.inside for m in mixtures])[order],
        np.concatenate([m.W for m in mixtures]),
        np.concatenate([m.z for m in mixtures]),
        np.concatenate([m.slab for m in mixtures])[order],
        of[order],
    )


def _mode(sites: SpikeSlabSites) -> tuple[float, int]:
    """Return the common logit p0 and the number of groups that share it."""
    free = np.flatnonzero(~sites.always)
    return float(sites.prior_log_odds[free].mean()), len(free) + sites.outside[0]


def _log_prior(log_odds: np.ndarray, chosen: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Return log p(z | p0) of each model, of shape (len(offset), n_models)."""
    shifted = log_odds + offset[:, None]
    return shifted @ chosen.T - np.logaddexp(0.0, shifted).sum(axis=1)[:, None]


class _Outside(NamedTuple):
    """Evidence of the groups that were not enumerated for each p0, at one value of v0."""

    log_factor: np.ndarray  # of shape (n_nodes,)
    inclusion: np.ndarray  # of shape (n_nodes, n_groups outside)


def _outside(
    sites: SpikeSlabSites, groups: np.ndarray, offset: np.ndarray, node: int, slab_offset: float
) -> _Outside:
    """Return sum log(1 - p0 + p0 BF) over `groups`, and their inclusion probabilities."""
    votes = _votes(sites, slab_offset)
    odds = sites.any_prior + offset[:, None]
    log_factor = np.logaddexp(0.0, odds + votes) - np.logaddexp(0.0, odds)
    total = log_factor[:, groups].sum(axis=1)
    count, factors = sites.outside
    if sites.factors_by_slab is not None:
        factors = float(sites.factors_by_slab[node])
    if count:
        common = sites.prior_log_odds[~sites.always].mean() + offset
        total = total + factors * np.exp(common) - count * np.logaddexp(0.0, common)
    inclusion = expit(odds + votes)
    for bucket in sites.blocks.buckets:
        if bucket.groups is not None:  # groups of a cluster share its probability as at the mode
            any_in = expit(sites.group_log_odds[bucket.owner])[:, None]
            own = sites.inclusion[bucket.groups]
            share = np.divide(own, any_in, out=np.zeros_like(own), where=any_in > 0.0)
            inclusion[:, bucket.groups] = inclusion[:, bucket.owner][:, :, None] * share
    return _Outside(total, inclusion[:, groups])


def _votes(sites: SpikeSlabSites, slab_offset: float) -> np.ndarray:
    """Return the log Bayes factor of each group where v0 is multiplied by exp(slab_offset).

    Where a cavity has no density, which leaves its site as it was, the factor is that of the site.
    """
    votes = sites.blocks.per_group(sites.log_odds)
    if slab_offset == 0.0:
        return votes
    other = copy(sites)
    other.put_slab(
        np.flatnonzero(~sites.always),
        float(np.exp(slab_offset) * sites.slab_variance[~sites.always].mean()),
    )
    change = [
        other.slab_fit(i, cavity.B, cavity.r).log_bayes_factor - cavity.slab.log_bayes_factor
        for i, cavity in enumerate(sites.cavities)
    ]
    return votes + sites.blocks.per_group([np.where(np.isnan(x), 0.0, x) for x in change])


def _constant(sites: SpikeSlabSites, groups: np.ndarray) -> float:
    """Return the part of the evidence of all sites but the enumerated ones that is not averaged."""
    fixed = sites.log_evidence_by_group()
    votes, odds = sites.blocks.per_group(sites.log_odds), sites.any_prior
    fixed -= np.where(sites.always, 0.0, np.logaddexp(0.0, odds + votes) - np.logaddexp(0.0, odds))
    return float(fixed[groups].sum() + fixed[sites.always].sum())


def _mixture(
    weight: np.ndarray,
    chosen: np.ndarray,
    weights: ModelWeights,
    likelihoods: list[BlockLikelihood],
    slab_offset: np.ndarray,
    labels: LabelModels | None,
) -> ModelMixture:
    """Return the heaviest models at all nodes of noise and slab as a mixture over the weights."""
    kept = _KEPT if labels is None else labels.most_kept
    order = np.argsort(-weight, axis=None, kind="stable")[:kept]
    order = order[weight.ravel()[order] > _NEGLIGIBLE]
    noise, slab, model = np.unravel_index(order, weight.shape)
    share = weight.ravel()[order] / weight.ravel()[order].sum()
    if labels is not None:
        return labels.mixture(share, chosen[model], np.exp(slab_offset[slab]))
    inside = chosen[model][:, weights.position]
    scaled = np.exp(0.5 * slab_offset[slab])[:, None] * weights.slab
    W, z = (np.array([x[i] for x in likelihoods]) for i in range(2))
    return ModelMixture(share, inside, W, z, scaled, noise)
