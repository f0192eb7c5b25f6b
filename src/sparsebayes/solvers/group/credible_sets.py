"""Sets of groups that contain an active one, and selections of a given false discovery rate.

A list of probabilities cannot express "one of these three": near-duplicates of an active group
share its probability, and none of them is likely by itself. The joint posterior of the groups can:

    P(no group of S is in) = sum of weight(z) over the models z with z_S = 0.

A set begins with the most probable group that is left and takes the group that adds most
probability, until the set contains an active group with the wanted probability. Groups that it does
not need are then removed. A group belongs to at most one set, and a group that was not enumerated
with others is a set by itself. (SuSiE, Wang and others 2020, has a set for each of a given number
of single effects; here nothing is assumed about how many groups of a set are in.)

Selection: the expected share of false groups among the selected ones is the mean of 1 - p over
them, whatever their dependence (Newton and others 2004). The largest selection whose share is at
most the wanted rate takes groups in the order of p.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .models import Models

_HARDLY = 1e-6  # probability that a group must add to a set


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
    """Find sets of groups that each contain an active one with probability `coverage`.

    Parameters
    ----------
    inclusion : array of shape (n_groups,)
        Inclusion probabilities.
    factors : list of tuples of Models and arrays of shape (n, n)
        The models of n groups that were enumerated together, and the absolute correlations between
        these groups. Groups in different factors, or in none, are independent.
    coverage : float
        The probability with which a set is to contain an active group.
    smallest_purity : float
        Sets with a smaller absolute correlation between two of their groups are left out.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.solvers.group.credible_sets import credible_sets
    >>> from sparsebayes.solvers.group.models import Models
    >>> twins = Models(np.array([1, 2]), np.array([[True, False], [False, True]]), np.full(2, 0.5))
    >>> factors = [(twins, np.ones((2, 2)))]
    >>> sets = credible_sets(np.array([0.99, 0.5, 0.5, 0.1]), factors, 0.95, 0.5)
    >>> [s.groups.tolist() for s in sets]
    [[1, 2], [0]]
    """
    singles = np.flatnonzero(inclusion >= coverage)
    for models, _ in factors:
        singles = np.setdiff1d(singles, models.groups)
    sets = [CredibleSet(np.array([g]), float(inclusion[g]), 1.0) for g in singles]
    for models, correlation in factors:
        joint, chosen, weight = models.groups, models.chosen, models.weight
        free = np.ones(len(joint), dtype=bool)
        while free.any():
            seed = int(np.argmax(np.where(free, weight @ chosen, -1.0)))
            inside = _grow(seed, free, chosen, weight, coverage)
            free[seed] = False
            if len(inside) == 0:
                continue
            purity = float(np.min(correlation[np.ix_(inside, inside)]))
            if purity >= smallest_purity:
                free[inside] = False
                any_in = float(weight @ chosen[:, inside].any(axis=1))
                sets.append(CredibleSet(np.sort(joint[inside]), any_in, purity))
    return sorted(sets, key=lambda s: (-s.probability, len(s.groups), s.groups[0]))


def _grow(
    seed: int, free: np.ndarray, chosen: np.ndarray, weight: np.ndarray, coverage: float
) -> np.ndarray:
    """Return the set that grows from `seed`; empty where it does not reach the coverage."""
    inside, missing = [seed], weight * ~chosen[:, seed]
    while missing.sum() > 1.0 - coverage:
        adds = np.where(free, missing @ chosen, 0.0)
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
    """Return the largest selection of groups whose expected false discovery rate is at most `rate`.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.solvers.group.credible_sets import select
    >>> select(np.array([0.2, 0.99, 0.85]), 0.1)
    array([1, 2])
    """
    order = np.argsort(-inclusion, kind="stable")
    expected = np.cumsum(1.0 - inclusion[order]) / np.arange(1, len(order) + 1)
    return np.sort(order[: np.count_nonzero(expected <= rate)])
