"""Stacking of predictive distributions (Yao, Vehtari, Simpson & Gelman 2018).

Several models of the same target are mixed with the weights under which the mixture has the highest
leave-one-out log density. A mixture does not have to be right about one winner, and it usually
predicts a little better than its best member.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from .posterior.predictive import Predictive

_STEPS = 500  # of the ascent
_TOL = 1e-6  # change of a weight at which it ends
_LEAST_WEIGHT = 0.01  # of a member that is kept
_HALVINGS = 45  # of the interval that holds a quantile
_CRPS_LEVELS = (np.arange(100) + 0.5) / 100.0  # quantiles of each part between which F is linear


def stacking_weights(
    log_density: np.ndarray, count: np.ndarray | None = None, prior: float = 1.0
) -> np.ndarray:
    """Return weights of members under which their mixture has the highest log density.

    Parameters
    ----------
    log_density : array of shape (n_rows, n_members)
        Leave-one-out log density of each row under each member, the simplest member first. All are
        densities of the same quantity.
    count : array of shape (n_rows,), optional
        Number of observations of each row.
    prior : float, default=1.0
        Observations that the simplest member has beside these rows: it wins ties.

    Returns
    -------
    weight : array of shape (n_members,)
        They sum to one. Members below 1 % have none.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.stacking import stacking_weights
    >>> halves = np.array([[0.0, -9.0]] * 50 + [[-9.0, 0.0]] * 50)
    >>> stacking_weights(halves).round(2)
    array([0.5, 0.5])
    >>> stacking_weights(np.array([[0.0, 2.0]] * 1000)).round(2)
    array([0., 1.])
    """
    n, members = log_density.shape
    count = np.ones(n) if count is None else count
    rows = (count > 0) & np.any(np.isfinite(log_density), axis=1)
    count, log_density = count[rows], log_density[rows]
    weight = np.full(members, 1.0 / members)
    if len(count) == 0:
        return weight
    density = np.exp(log_density - np.max(log_density, axis=1, keepdims=True))
    pseudo = np.zeros(members)
    pseudo[0] = prior
    for _ in range(_STEPS):
        share = density * weight
        share /= np.sum(share, axis=1, keepdims=True)
        new = count @ share + pseudo
        new /= np.sum(new)
        done = np.max(np.abs(new - weight)) < _TOL
        weight = new
        if done:
            break
    weight = np.where(weight < _LEAST_WEIGHT, 0.0, weight)
    return weight / np.sum(weight)


def smallest_within_error(
    log_density: np.ndarray, sizes: Sequence[float], count: np.ndarray | None = None
) -> int:
    """Return the smallest member that is within one standard error of the best.

    The error is that of the mean difference of leave-one-out log densities between the best member
    and another.

    Parameters
    ----------
    log_density : array of shape (n_rows, n_members)
        Leave-one-out log density of each row under each member.
    sizes : sequence of float
        Size of each member.
    count : array of shape (n_rows,), optional
        Number of observations of each row.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.stacking import smallest_within_error
    >>> noise = np.random.default_rng(0).standard_normal(200)
    >>> close = np.column_stack([noise, np.zeros(200)])
    >>> smallest_within_error(close, [3, 100]), smallest_within_error(close - [1, 0], [3, 100])
    (0, 1)
    """
    count = np.ones(len(log_density)) if count is None else count
    compared = compare_densities(log_density, count)
    near = np.flatnonzero(compared.behind <= compared.error)
    return int(near[np.argmin(np.asarray(sizes)[near])])


class ComparedDensities(NamedTuple):
    """Leave-one-out log densities of members beside those of the best.

    Attributes
    ----------
    mean : array of shape (n_members,)
        Mean log density of each member.
    behind : array of shape (n_members,)
        Mean difference of the best member and each.
    error : array of shape (n_members,)
        Standard error of that difference.
    """

    mean: np.ndarray
    behind: np.ndarray
    error: np.ndarray


def compare_densities(log_density: np.ndarray, count: np.ndarray) -> ComparedDensities:
    """Return how far each member, a column of `log_density`, is behind the best one."""
    total = np.sum(count)
    means = count @ log_density / total
    difference = log_density[:, [int(np.argmax(means))]] - log_density
    behind = count @ difference / total
    error = np.sqrt(count @ np.square(difference - behind)) / total
    return ComparedDensities(means, behind, error)


@dataclass(frozen=True, eq=False)
class Stack(Predictive):
    """A mixture of any predictive distributions.

    Parameters
    ----------
    parts : tuple of Predictive
        The members.
    weight : array of shape (n_parts,)
        Their weights, which sum to one.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior.predictive import LocationScale
    >>> from sparsebayes.stacking import Stack
    >>> parts = [LocationScale(np.array([m]), np.ones(1)) for m in (-5.0, 5.0)]
    >>> stack = Stack(tuple(parts), np.array([0.2, 0.8]))
    >>> stack.mean, stack.quantiles(np.array([0.1, 0.6])).round(2)
    (array([3.]), array([[-5.,  5.]]))
    """

    parts: tuple[Predictive, ...]
    weight: np.ndarray

    @property
    def mean(self) -> np.ndarray:  # type: ignore[override]
        """Mean over the parts."""
        return self.weight @ np.stack([part.mean for part in self.parts])

    @property
    def std(self) -> np.ndarray:  # type: ignore[override]
        """Standard deviation, between and within the parts."""
        means = np.stack([part.mean for part in self.parts])
        within = np.stack([np.square(part.std) for part in self.parts])
        return np.sqrt(self.weight @ (within + (means - self.weight @ means) ** 2))

    def cdf(self, y: Any) -> np.ndarray:
        """Return the probability of an observation below y."""
        return self.weight @ np.stack([part.cdf(y) for part in self.parts])

    def log_density(self, y: Any) -> np.ndarray:
        """Return the log of the mean density over the parts."""
        logs = np.stack([part.log_density(y) for part in self.parts])
        return np.asarray(logsumexp(logs, axis=0, b=self.weight[:, None]))

    def quantiles(self, alpha: np.ndarray) -> np.ndarray:
        """Return quantiles, found by halving intervals between those of the parts."""
        ends = np.stack([part.quantiles(alpha) for part in self.parts])
        low, high = ends.min(axis=0), ends.max(axis=0)
        if len(self.parts) == 1:
            return low
        for j, level in enumerate(alpha):
            a, b = low[:, j], high[:, j]
            for _ in range(_HALVINGS):
                middle = 0.5 * (a + b)
                above = self.cdf(middle) > level
                a, b = np.where(above, a, middle), np.where(above, middle, b)
            low[:, j] = 0.5 * (a + b)
        return low

    def ends(self, factor: float) -> np.ndarray:
        """Return the central interval of the probability `factor`; infinite where that is over 1.

        The parts differ in shape, so that a calibration counts in probability and not in standard
        deviations.
        """
        if factor >= 1.0:
            return np.stack([np.full_like(self.mean, -np.inf), np.full_like(self.mean, np.inf)], -1)
        return self.quantiles(np.array([0.5 - 0.5 * factor, 0.5 + 0.5 * factor]))

    def sample(self, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Draw observations at each row, of shape (n, n_samples)."""
        draws = np.stack([part.sample(n_samples, rng) for part in self.parts])
        which = rng.choice(len(self.parts), draws.shape[1:], p=self.weight)
        return np.take_along_axis(draws, which[None], axis=0)[0]

    def crps(self, y: Any) -> np.ndarray:
        """Return the integral of (F(z) - [z > y])^2, F linear between quantiles of the parts."""
        y = np.asarray(y, dtype=np.float64)
        grid = np.concatenate([part.quantiles(_CRPS_LEVELS) for part in self.parts], axis=1)
        z = np.sort(np.concatenate([grid, y[:, None]], axis=1), axis=1)
        F = np.stack([self.cdf(column) for column in z.T], axis=1)
        above = (z[:, :-1] >= y[:, None]).astype(np.float64)
        left, right = F[:, :-1] - above, F[:, 1:] - above
        pieces = np.diff(z, axis=1) * (left**2 + left * right + right**2) / 3.0
        return np.sum(pieces, axis=1)

    @staticmethod
    def average(parts: list[Any], inflation: np.ndarray) -> Predictive:
        """Return the mixture of the averages of each member."""
        members = [
            type(same[0]).average(list(same), inflation)
            for same in zip(*(part.parts for part in parts), strict=True)
        ]
        return Stack(tuple(members), parts[0].weight)
