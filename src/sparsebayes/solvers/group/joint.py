"""The groups that EP leaves undecided, looked at together.

EP meets the groups one at a time, each against a Gaussian for all the others. That is poor where
several undecided groups depend on each other: near-duplicates each see the other as a Gaussian that
half explains the data, and a site whose tilted variance exceeds the cavity's has to be clamped.
After EP, the most undecided groups U have all their sites taken out at once. What is left is an
exact Gaussian likelihood exp(r'w - w'Bw/2) of their weights, the other groups still approximated,
and their joint posterior is the sum over the 2^|U| choices z of which of them are in:

    log weight(z) = sum log-odds of the groups in + 1/2 r'Sigma_z r - 1/2 log|I + D_z B D_z|,
    Sigma_z = D_z (I + D_z B D_z)^-1 D_z,   D_z = diag(sqrt(v0) where in, else 0),

mean Sigma_z r and covariance Sigma_z given z. With no other groups this is exact; on 200 random
problems of 2 to 10 groups it takes the 90 % quantile of the inclusion error from .07 to .002.

The same sum corrects the evidence. What EP has in place of the prior of U is the product of the
sites, each a factor exp(e_g) times N(w_g; S nu, S); so

    log Z <- log Z + log sum_z p(z) weight(z)
             - [log int N(w; S nu, S) exp(r'w - w'Bw/2) dw + sum_{g in U} e_g],

and the integral is |T|^1/2 |B + T|^-1/2 exp(1/2 (r + nu)'(B + T)^-1 (r + nu) - 1/2 nu'S nu).

B and r come from H and M as in `forms`, now for one block that holds all of U.
Cost O(n d k + 2^|U| k^3) for k columns; |U| is at most `most` and less where that would be slow.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import block_diag
from scipy.special import log_expit, logsumexp, softmax

from ...posterior import revise
from .forms import ColumnForm, Marginals, RowForm
from .sites import SpikeSlabSites

_UNDECIDED = 1e-4  # of p (1 - p)
_WORK = 2e7  # 2^|U| k^3 at most
_NEGLIGIBLE = 1e-12  # weight of a choice whose moments are left out


def enumerate_undecided(
    form: RowForm | ColumnForm,
    sites: SpikeSlabSites,
    marginals: Marginals,
    posterior: Any,
    most: int = 8,
) -> tuple[np.ndarray, np.ndarray, Any]:
    """Inclusion of groups, variance of weights and posterior, the undecided groups treated jointly.

    The evidence of the posterior is corrected too.

    Parameters
    ----------
    form, sites, marginals
        Of the EP state.
    posterior : Posterior
        What EP knows of the weights.
    most : int, default=8
        Most groups to look at together.
    """
    inclusion, variance = sites.inclusion, np.maximum(sites.variance, 0.0)
    groups = _undecided(sites, most)
    if len(groups) == 0:
        return inclusion, variance, posterior
    cavity = _joint_cavity(form, sites, marginals, groups)
    columns, owner, B, r = cavity.columns, cavity.owner, cavity.B, cavity.r
    slab = np.sqrt(sites.slab_variance[owner])
    chosen = np.array(list(itertools.product([False, True], repeat=len(groups))))
    inside = chosen[:, np.searchsorted(groups, owner)]
    D = inside * slab
    A = D[:, :, None] * B * D[:, None, :]
    np.einsum("zii->zi", A)[...] += 1.0
    shift = (D * r)[:, :, None]
    half = np.linalg.solve(A, shift)
    fit = np.sum(shift * half, axis=(1, 2))
    log_weight = chosen @ sites.prior_log_odds[groups] + 0.5 * fit - 0.5 * np.linalg.slogdet(A)[1]
    if not np.all(np.isfinite(log_weight)):
        return inclusion, variance, posterior
    now = logsumexp(log_weight) + np.sum(log_expit(-sites.prior_log_odds[groups]))
    gain = float(now - cavity.log_gaussian - np.sum(sites.log_evidence_by_group()[groups]))
    if np.isfinite(gain):
        posterior = replace(posterior, log_evidence=posterior.log_evidence + gain)
    weight = softmax(log_weight)
    inclusion = inclusion.copy()
    inclusion[groups] = weight @ chosen
    keep = weight > _NEGLIGIBLE
    weight, D = weight[keep] / weight[keep].sum(), D[keep]
    means = D * half[keep, :, 0]
    mean = weight @ means
    V = np.einsum("z,zi,zij,zj->ij", weight, D, np.linalg.inv(A[keep]), D)
    V += (weight[:, None] * (means - mean)).T @ (means - mean)
    posterior, variance = revise(posterior, variance, columns, mean, V)
    return inclusion, variance, posterior


def _undecided(sites: SpikeSlabSites, most: int) -> np.ndarray:
    """The most undecided groups, in order."""
    p, blocks = sites.inclusion, sites.blocks
    doubt = p * (1.0 - p)
    order = np.argsort(-doubt, kind="stable")[: max(most, 0)]
    order = order[doubt[order] > _UNDECIDED]
    sizes = blocks.per_group([np.full(len(b.owner), float(b.size)) for b in blocks.buckets])
    work = 2.0 ** np.arange(1, len(order) + 1) * np.cumsum(sizes[order]) ** 3
    return np.sort(order[: np.count_nonzero(work <= _WORK)])


class JointCavity(NamedTuple):
    """Some groups without their sites: columns, the group of each, and the likelihood B, r."""

    columns: np.ndarray
    owner: np.ndarray
    B: np.ndarray
    r: np.ndarray
    log_gaussian: float  # log int N(w; S nu, S) exp(r'w - w'Bw/2) dw: the sites put back


def _joint_cavity(
    form: RowForm | ColumnForm, sites: SpikeSlabSites, marginals: Marginals, groups: np.ndarray
) -> JointCavity:
    parts: list[tuple[np.ndarray, ...]] = []
    roots, halves = [], []
    for i, bucket in enumerate(sites.blocks.buckets):
        for j in np.flatnonzero(np.isin(bucket.owner, groups)):
            at = bucket.start + j * bucket.size + np.arange(bucket.size)
            owner = np.full(bucket.size, bucket.owner[j])
            inner = sites.half[i][j] @ sites.shift[i][j]
            *_, q = marginals.blocks(i, [j], sites.half[i][[j]], sites.root[i][[j]])
            parts.append((bucket.columns[j], owner, at, inner, sites.half[i][j] @ q[0]))
            roots.append(sites.root[i][j])
            halves.append(sites.half[i][j])
    columns, owner, at, inner, q = (np.concatenate(p) for p in zip(*parts, strict=True))
    R = block_diag(*roots)
    H, M = form.joint(at, block_diag(*halves), marginals)
    solved = np.linalg.solve(M, np.column_stack([H, q + H @ inner, inner + q]))
    # In u = F^-1 w: |T|/|B + T| = |M| and (r + nu)'(B + T)^-1 (r + nu) = (F'nu + F'q)'M^-1(...).
    log_gaussian = np.linalg.slogdet(M)[1] + (inner + q) @ solved[:, -1] - inner @ inner
    B = R @ solved[:, :-2] @ R.T
    return JointCavity(columns, owner, 0.5 * (B + B.T), R @ solved[:, -2], 0.5 * log_gaussian)
