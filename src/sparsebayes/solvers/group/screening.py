"""EP for many columns: on a subset of them, found by passes over all columns.

1. The groups most correlated with t are selected, `SCREENED` columns per row, and searched
   (`search`) as if all other groups were almost certainly excluded; a learnt p0 counts them so.
2. One pass over all columns gives the odds of each other group: while it has no site, its cavity is
   B = X_g'C^-1 X_g, r = X_g'C^-1 (t - X S nu).
3. Groups with a probability above `_SELECTED` are added, the most probable first and up to twice as
   many columns. EP continues until there are no such groups, and until p0 accounts for the number
   of other groups that are expected to be included. The others add sum log(1 - p0 + p0 BF) to the
   evidence.

If X is in memory (`search_columns`), the result is the start of one run of EP on all columns, which
also finds the joint effect of many weak groups. Otherwise it is the final result: step 2 reads X a
few columns at a time, and no other array has its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, logit

from ...designs import Design
from ...designs.subset import SubsetDesign
from ...linalg.blocks import column_blocks
from ...priors import fit_slab
from .clusters import screened_groups
from .ep import GroupEP, State
from .row_form import RowForm
from .search import EPRuns, search
from .sites import SpikeSlabSites, log_odds_of

SCREENED = 10  # columns for each row that are searched first
_SELECTED = 1e-3  # probability above which another group is selected too
_SETTLED = 1e-3  # change of the expected number of other groups, per selected group, at the end
_ROUNDS = 8
_PIECE = 2**21  # numbers of X that are read at a time
_LEAST = 1e-12  # smallest probability with which another group starts its site

Forms = Callable[[], Iterator[tuple[np.ndarray, RowForm]]]  # groups, and their columns


@dataclass
class Screened:
    """EP on the selected groups, and the log odds of the others.

    Parameters
    ----------
    groups : array of int
        The selected groups.
    solver, design
        Their EP, and their columns.
    runs : EPRuns
        The search on them.
    log_odds : array of shape (n_groups,)
        Log odds of each group that was not selected; -inf for selected ones.
    p0, v0 : arrays of shape (n_groups,)
        As given or learnt.
    """

    groups: np.ndarray
    solver: GroupEP
    design: Design
    runs: EPRuns
    log_odds: np.ndarray
    p0: np.ndarray
    v0: np.ndarray

    @property
    def missing(self) -> float:
        """Expected number of included groups among those that were not selected."""
        return float(expit(self.log_odds).sum())

    @property
    def log_evidence_outside(self) -> float:
        """Log evidence of the groups that were not selected, less the part of `outside`."""
        others = ~np.isneginf(self.log_odds)
        more = np.logaddexp(0.0, self.log_odds[others]) + np.log1p(-self.p0[others])
        return float(more.sum() - self.runs.best.state.sites.log_evidence_out())


def search_columns(solver: GroupEP, design: Design, t: np.ndarray, **options: Any) -> EPRuns:
    """`search`, on large problems (`solver.focus_from`) from a fit of few columns.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers import GroupEP
    >>> from sparsebayes.solvers.group.screening import search_columns
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((20, 500))
    >>> t = X[:, 7] + 0.1 * rng.standard_normal(20)
    >>> solver = GroupEP(np.arange(500), 0.002, 1.0, 0.01, focus_from=0.0)
    >>> found = search_columns(solver, DenseDesign(X), t)
    >>> found.best.start, np.flatnonzero(found.best.state.inclusion_probability > 0.5)
    ('screened', array([7]))
    """
    n, d = design.n_observations, len(solver.group_of)
    if solver.warm is not None or n * n * d < solver.focus_from or d < 2 * SCREENED * n:
        return search(solver, design, t, **options)
    form = solver.form(design, t)
    assert isinstance(form, RowForm)  # columns are many more than rows
    everything = np.arange(solver.blocks.n_groups)
    screened = screen(solver, design, t, lambda: iter([(everything, form)]), **options)
    if screened is None or not screened.runs.best.settled:
        return search(solver, design, t, form=form, **options)
    runs = search(_on_all(screened, solver), design, t, form=form, **options)
    runs.trials[0].start = "screened"
    return runs


def screen(
    solver: GroupEP, design: Design, t: np.ndarray, forms: Forms | None = None, **options: Any
) -> Screened | None:
    """The groups that matter and EP on them; None if they are not more columns than rows.

    `forms` gives all columns, as often as it is called; they are read in pieces otherwise.
    """
    in_pieces = forms is None
    forms = forms or (lambda: _pieces(solver, design, t))
    n_groups, group_of = solver.blocks.n_groups, solver.group_of
    p0, v0 = (
        np.array(np.broadcast_to(x, n_groups), dtype=float)
        for x in (solver.inclusion_prior, solver.slab_variance)
    )
    free = p0 < 1.0
    most, sizes = int(SCREENED * design.n_observations), np.bincount(group_of)
    groups = screened_groups(design, t, group_of, most)
    groups = np.union1d(groups, np.flatnonzero(~free))
    before: tuple[np.ndarray, SpikeSlabSites] | None = None
    screened: Screened | None = None
    noise, factors, expected = solver.noise_variance, 0.0, 0.0
    for _ in range(_ROUNDS):
        screened = runs = state = None  # the columns of the last round go before others are read
        inside = np.flatnonzero(np.isin(group_of, groups))
        if len(inside) <= design.n_rows:
            return None
        part = _restricted(solver, groups, p0, v0, noise, factors)
        if before is not None:
            part = replace(part, warm=_continued(part, groups, *before))
        columns = SubsetDesign(design, inside)  # read once, by the form
        runs = search(part, columns, t, **options)
        state = runs.best.state
        # What was learnt is common to all groups that are not always in.
        if "inclusion_prior" in solver.learn:
            p0[free] = expit(state.sites.prior_log_odds[free[groups]][0])
        if "slab_variance" in solver.learn:
            v0[free] = state.sites.slab_variance[free[groups]][0]
        noise = state.sigma2
        log_factors = _outside(state, solver, v0, forms())
        log_factors[:, groups] = -np.inf
        log_odds = log_odds_of(p0) + log_factors[0]
        if len(log_factors) > 1:
            state.sites.factors_by_slab = np.exp(log_factors[1:]).sum(axis=1)
        screened = Screened(groups, part, columns, runs, log_odds, p0, v0)
        order = np.argsort(-log_odds, kind="stable")[: np.sum(log_odds > logit(_SELECTED))]
        more = order[np.cumsum(sizes[order]) <= 2 * most - len(inside)]
        learns = in_pieces and "inclusion_prior" in solver.learn  # a run on all columns follows
        apart = abs(screened.missing - expected) > _SETTLED * state.inclusion_probability.sum()
        if (len(more) == 0 and not (learns and apart)) or not runs.best.settled:
            break
        factors = float(np.exp(np.delete(log_factors[0], more)).sum())
        expected = float(expit(np.delete(log_odds, more)).sum())
        before, groups = (groups, state.sites), np.union1d(groups, more)
    return screened


def _restricted(
    solver: GroupEP,
    groups: np.ndarray,
    p0: np.ndarray,
    v0: np.ndarray,
    noise: float,
    factors: float,
) -> GroupEP:
    """Return EP on `groups`; the Bayes factors of all others sum to `factors`."""
    inside = np.isin(solver.group_of, groups)
    clusters = solver.cluster_of
    return replace(
        solver,
        group_of=np.searchsorted(groups, solver.group_of[inside]),
        inclusion_prior=p0[groups],
        slab_variance=v0[groups],
        noise_variance=noise,
        cluster_of=None if clusters is None else np.searchsorted(groups, clusters[groups]),
        outside=(len(p0) - len(groups), factors),
        warm=None,
    )


def _continued(
    solver: GroupEP, groups: np.ndarray, former_groups: np.ndarray, former: SpikeSlabSites
) -> SpikeSlabSites:
    """Return the sites of the last round, with fresh ones for the groups that were added."""
    blocks, kept = solver.blocks, np.isin(groups, former_groups)
    p0, v0 = np.asarray(solver.inclusion_prior), np.asarray(solver.slab_variance)
    sites = SpikeSlabSites.start(blocks, p0, v0)
    sites.put([kept[b.owner] for b in blocks.buckets], former)
    return sites


def _outside(
    state: State,
    solver: GroupEP,
    v0: np.ndarray,
    forms: Iterator[tuple[np.ndarray, RowForm]],
) -> np.ndarray:
    """Return the log Bayes factor of every group, as if it had no site and took no part.

    The first row is at v0; others, if any, are at the slab nodes of the hyperprior.
    """
    prior = solver.hyperprior
    averaged = prior is not None and "slab_variance" in prior.learn
    offsets = np.append(0.0, prior.slab_nodes().offset) if prior and averaged else np.zeros(1)
    m, out = state.marginals, np.zeros((len(offsets), len(v0)))
    z = m.root @ (state.form.y - m.fitted)
    for groups, form in forms:
        blocks = form.blocks
        projections = list(form.project(m.root, z, solver.rough))
        for row, offset in zip(out, offsets, strict=True):
            v = np.exp(offset) * v0[groups]
            # Clusters are of groups that were taken.
            parts = [
                fit_slab(H, q, v[bucket.owner]).log_bayes_factor
                if bucket.groups is None
                else np.zeros(len(q))
                for bucket, (H, q) in zip(blocks.buckets, projections, strict=True)
            ]
            row[groups] += blocks.per_group(parts)
    return out


def _pieces(solver: GroupEP, design: Design, t: np.ndarray) -> Iterator[tuple[np.ndarray, RowForm]]:
    """All columns, some whole groups at a time."""
    order = np.argsort(solver.group_of, kind="stable")
    ends = np.cumsum(np.bincount(solver.group_of))
    piece, first = max(1, _PIECE // design.n_rows), 0
    while first < len(ends):
        start = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, start + piece, side="right")))
        inside = order[start : ends[last - 1]]
        blocks = column_blocks(solver.group_of[inside] - first, solver.sites)
        yield np.arange(first, last), RowForm(design.columns(inside[blocks.order]), t, blocks)
        first = last


def _on_all(screened: Screened, solver: GroupEP) -> GroupEP:
    """EP on all columns, from what was found on few; the others begin where they were found."""
    blocks, state, odds = solver.blocks, screened.runs.best.state, screened.log_odds
    prior = np.where(np.isneginf(odds), screened.p0, expit(odds))
    warm = SpikeSlabSites.start(blocks, np.maximum(prior, _LEAST), screened.v0)
    count = sum(np.bincount(b.owner, minlength=len(odds)) for b in blocks.buckets)
    votes = (odds - log_odds_of(screened.p0)) / np.maximum(count, 1)
    warm.log_odds = [votes[b.owner] for b in blocks.buckets]
    warm.put([np.isin(b.owner, screened.groups) for b in blocks.buckets], state.sites)
    return replace(
        solver,
        inclusion_prior=screened.p0,
        slab_variance=screened.v0,
        noise_variance=state.sigma2,
        warm=warm,
    )
