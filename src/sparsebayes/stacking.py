"""Stacking of predictive distributions (Yao, Vehtari, Simpson & Gelman 2018).

Several models of the same target are mixed with the weights under which the mixture has the highest
leave-one-out log density. Unlike the choice of one member, a mixture does not depend on which of
several good members happens to score best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize, nnls
from scipy.special import logsumexp, softmax

from .posterior.predictive import Predictive

_STEPS = 500  # of the ascent
_TOL = 1e-6  # change of a weight at which it ends
_LEAST_WEIGHT = 0.01  # of a member that is kept
# Root mean square over the smallest above which a mean is worse, whatever its standard error: one
# or two rows may make both large.
_FAR_WORSE = 1.1
_SHARES = np.arange(101) / 100.0  # of the way from one vector of weights to another
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
        Number of additional observations of the simplest member, which wins ties.

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
        new = weight * ((count / (density @ weight)) @ density) + pseudo
        new /= np.sum(new)
        done = np.max(np.abs(new - weight)) < _TOL
        weight = new
        if done:
            break
    return without_small(weight)


def without_small(weight: np.ndarray) -> np.ndarray:
    """Return the weights without those below 1 %; they sum to one."""
    weight = np.where(weight < _LEAST_WEIGHT, 0.0, weight)
    return weight / np.sum(weight)


def with_small_errors(
    weight: np.ndarray,
    residuals: np.ndarray,
    count: np.ndarray,
    most: float = 1.005,
    errors: float = 0.0,
) -> np.ndarray:
    """Return weights whose mean has a root mean square error near the smallest.

    A member can have a high density because it describes small values well, and predict large ones
    badly. If the error of the mean is larger than the smallest of any weights, the weights move
    towards those of the smallest error. They stay where it is at most `most` times as large, or
    where the mean square is at most `errors` standard errors of the difference larger, and the
    error at most a tenth.

    Parameters
    ----------
    weight : array of shape (n_members,)
        Weights of the highest density.
    residuals : array of shape (n_rows, n_members)
        Leave-one-out residuals of the means of the members.
    count : array of shape (n_rows,)
        Number of observations of each row.
    most : float, default=1.005
        Largest error over the smallest.
    errors : float, default=0
        Standard errors by which the mean square may be larger all the same; at most 1, because a
        difference that a single row makes is always larger than its standard error.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.stacking import with_small_errors
    >>> good = np.random.default_rng(0).standard_normal((200, 1))
    >>> with_small_errors(np.array([0.5, 0.5]), good * [1.0, 1.5], np.ones(200)).round(2)
    array([0.99, 0.01])
    """
    size = np.sqrt(float(np.mean(np.square(residuals).T @ count)))
    if not 0.0 < size < np.inf:
        return weight
    residuals = residuals / size
    squares = (residuals.T * count) @ residuals
    values, vectors = np.linalg.eigh(squares)
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    heavy = 1e3  # of the condition that the weights sum to one
    best = nnls(
        np.vstack([root, np.full(len(weight), heavy)]), np.append(np.zeros(len(root)), heavy)
    )[0]
    best = best / np.sum(best)
    step = weight - best
    smallest, slope, curvature = best @ squares @ best, step @ squares @ best, step @ squares @ step
    room = (most**2 - 1.0) * smallest
    if 2.0 * slope + curvature <= room:
        return weight
    share = (np.sqrt(slope**2 + curvature * room) - slope) / curvature
    means = np.multiply.outer(residuals @ step, _SHARES) + (residuals @ best)[:, None]
    increase = _increase(means, (residuals @ best)[:, None], count)
    most_increase = (_FAR_WORSE**2 - 1.0) * smallest / np.sum(count)
    allowed = np.minimum(errors * increase.error, most_increase)
    return best + step * max(share, *_SHARES[increase.mean <= allowed])


def is_worse(
    residuals: np.ndarray,
    reference: np.ndarray,
    count: np.ndarray,
    most: float = 1.01,
    errors: float = 0.0,
) -> bool:
    """Tell whether residuals are larger than those of a reference.

    So they are if their root mean square is more than `most` times that of the reference, and their
    mean square more than `errors` standard errors of the difference above it, or if their root mean
    square is more than a tenth larger.

    Parameters
    ----------
    residuals, reference : arrays of shape (n_rows,)
        Residuals of the same rows.
    count : array of shape (n_rows,)
        Number of observations of each row.
    most : float, default=1.01
        Largest root mean square over that of the reference.
    errors : float, default=0
        As in `with_small_errors`.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.stacking import is_worse
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.standard_t(3, (2, 200))
    >>> is_worse(1.05 * a, a, np.ones(200), errors=1)
    True
    >>> is_worse(1.05 * a, b, np.ones(200)), is_worse(1.05 * a, b, np.ones(200), errors=1)
    (True, False)
    """
    unit = np.sqrt(count @ np.square(reference) / np.sum(count)) or 1.0
    increase = _increase(residuals / unit, reference / unit, count)
    allowed = min(errors * increase.error, _FAR_WORSE**2 - 1.0)
    return not bool(increase.mean <= max(most**2 - 1.0, allowed))


class _Increase(NamedTuple):
    mean: np.ndarray
    error: np.ndarray  # standard error of the mean


def _increase(residuals: np.ndarray, reference: np.ndarray, count: np.ndarray) -> _Increase:
    """Return by how much the mean square is above that of a reference, with its error."""
    each, total = np.square(residuals) - np.square(reference), np.sum(count)
    mean = count @ each / total
    return _Increase(mean, np.sqrt(count @ np.square(each - mean)) / total)


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
    """Leave-one-out log densities of members relative to the best.

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


# Classes.

_LEAST_PROBABILITY = 1e-12  # of a class, in the logarithm
# Standard deviations of the sum of the weights of a pool below and above 1, and of its intercepts.
_LESS_SD, _MORE_SD, _INTERCEPT_SD = 1.0, 0.25, 1.0
_MOST_INTERCEPT = 4.0


@dataclass(frozen=True, eq=False)
class ClassPool:
    """Probabilities of classes that are proportional to a product of powers of those of members.

    The log odds of the pool are a weighted sum of those of its members. Weights that sum to more or
    less than one make it more or less certain than they are.

    Attributes
    ----------
    weight : array of shape (n_members,)
        Exponent of each member.
    intercept : array of shape (n_classes,)
        Added to the logarithms.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.stacking import ClassPool
    >>> pool = ClassPool(np.array([0.5, 0.5]), np.zeros(2))
    >>> pool([np.array([[0.5, 0.5]]), np.array([[0.2, 0.8]])]).round(3)
    array([[0.333, 0.667]])
    """

    weight: np.ndarray
    intercept: np.ndarray

    def __call__(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return the probabilities of rows whose members have these, of shape (n, n_classes)."""
        return np.asarray(softmax(np.tensordot(self.weight, _logs(parts), 1) + self.intercept, -1))


def pool_classes(
    parts: Sequence[np.ndarray],
    codes: np.ndarray,
    count: np.ndarray,
    optimism: np.ndarray | None = None,
) -> ClassPool:
    """Return the pool of highest log probability of labels that its members have not seen.

    The problem is convex. Without rows, or if no member is informative, the pool has the
    frequencies of the classes: these are what a sum of weights of zero leaves.

    Parameters
    ----------
    parts : sequence of arrays of shape (n_rows, n_classes)
        Leave-one-out probabilities of each member. Rows with NaN do not count.
    codes : array of shape (n_rows,)
        Class numbers.
    count : array of shape (n_rows,)
        Number of observations of each row.
    optimism : array of shape (n_members,), optional
        Nats by which the sum of the leave-one-out log probabilities of each member is too high,
        because the same labels chose its kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.stacking import pool_classes
    >>> codes = np.repeat([0, 1], 200)
    >>> sure = np.where(np.equal.outer(codes, [0, 1]), 0.9, 0.1)
    >>> vague = np.full((400, 2), 0.5)
    >>> wrong = np.arange(400) % 10 == 0
    >>> sure[wrong] = sure[wrong][:, ::-1]
    >>> pool_classes([vague, sure], codes, np.ones(400)).weight.round(1)
    array([0., 1.])
    """
    logs = _logs(parts)
    m, _, k = logs.shape
    rows = (count > 0) & np.all(np.isfinite(logs), axis=(0, 2))
    logs, codes, count = logs[:, rows], codes[rows], count[rows]
    frequency = np.bincount(codes, weights=count, minlength=k) + 1.0 / k
    base = np.log(frequency / np.sum(frequency))
    logs = logs - base
    own = np.equal.outer(codes, np.arange(k))
    linear = np.zeros(m) if optimism is None else optimism

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        weight, intercept = theta[:m], theta[m:]
        z = np.tensordot(weight, logs, 1) + base + intercept
        total = logsumexp(z, axis=1)
        slope = (np.exp(z - total[:, None]) - own) * count[:, None]
        excess = np.sum(weight) - 1.0
        precision = (_MORE_SD if excess > 0.0 else _LESS_SD) ** -2.0
        value = count @ (total - z[own]) + linear @ weight + 0.5 * precision * excess**2
        value += 0.5 * float(intercept @ intercept) / _INTERCEPT_SD**2
        return float(value), np.append(
            np.tensordot(logs, slope, ([1, 2], [0, 1])) + linear + precision * excess,
            np.sum(slope, axis=0) + intercept / _INTERCEPT_SD**2,
        )

    bounds = [(0.0, None)] * m + [(-_MOST_INTERCEPT, _MOST_INTERCEPT)] * k
    start = np.append(np.full(m, 1.0 / m), np.zeros(k))
    options = {"ftol": 1e-13, "gtol": 1e-6, "maxiter": 500}
    theta = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    # Further digits are those of the optimiser.
    weight, intercept = np.round(theta[:m], 6), np.round(theta[m:], 6)
    return ClassPool(weight, intercept + (1.0 - np.sum(weight)) * base)


def _logs(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the logarithms of probabilities, bounded, of shape (n_members, n_rows, n_classes)."""
    return np.log(np.maximum(np.stack(parts).astype(np.float64), _LEAST_PROBABILITY))
