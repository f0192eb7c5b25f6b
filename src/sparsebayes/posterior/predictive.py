"""Predictive distributions of new observations, with intervals and quantiles.

It is normal; where the noise has tails, a normal function plus noise of Student's t; a mixture
where the posterior is a set of draws or an average over models. All of them give quantiles, a
distribution function, a log density and the CRPS.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, log_ndtr, logsumexp, ndtr
from scipy.stats import norm
from scipy.stats import t as student

from .noise import Tail, student_nodes

_GRID = (np.arange(400) + 0.5) / 400.0  # quantiles whose pinball losses add up to a CRPS
_REACH = 3.0  # standard deviations of log y above its mean that count in the moments of y
_LINEAR = 1e-5  # standard deviation of log y up to which exp is linear over its distribution


_MOST_STEPS = 60  # of a search for a quantile
_BLOCK_ELEMENTS = 2**20  # numbers of a block of distribution functions


class Predictive:
    """Independent new observations, one for each row."""

    mean: np.ndarray
    std: np.ndarray

    def quantiles(self, alpha: np.ndarray) -> np.ndarray:
        """Quantiles, of shape (n, [n_outputs,] len(alpha))."""
        raise NotImplementedError

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """The probability of an observation below y."""
        raise NotImplementedError

    def log_density(self, y: ArrayLike) -> np.ndarray:
        """Return the log density at y."""
        raise NotImplementedError

    def sample(self, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Draw observations at each row, of shape (n, n_samples)."""
        raise NotImplementedError

    def normal_parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return normal distributions whose mixture this is.

        Returns
        -------
        means, stds : arrays of shape (n_parts, n)
        weight : array of shape (n_parts,)
        """
        raise NotImplementedError

    @staticmethod
    def average(parts: list[Any], inflation: np.ndarray) -> Predictive:
        """Return the distribution of an observation that belongs to one of the parts, not known.

        Its mean is that of the parts. Its variance is theirs, plus `inflation` times the variance
        between their means.
        """
        means = np.stack([part.mean for part in parts])
        within = np.mean([np.square(part.std) for part in parts], axis=0)
        std = np.sqrt(within + inflation * np.var(means, axis=0))
        return LocationScale(means.mean(axis=0), std)

    def ends(self, factor: float) -> np.ndarray:
        """Return the mean minus and plus `factor` standard deviations, of shape (n, 2)."""
        reach = factor * self.std
        return np.stack([self.mean - reach, self.mean + reach], axis=-1)

    def crps(self, y: ArrayLike) -> np.ndarray:
        """The continuous ranked probability score of each y: twice the mean pinball loss."""
        gap = np.asarray(y)[..., None] - self.quantiles(_GRID)
        return 2.0 * np.mean(np.maximum(_GRID * gap, (_GRID - 1.0) * gap), axis=-1)


@dataclass(frozen=True)
class LocationScale(Predictive):
    """Normal, or Student's t, around a mean.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior.predictive import LocationScale
    >>> LocationScale(np.zeros(1), np.ones(1)).quantiles(np.array([0.025, 0.5])).round(2)
    array([[-1.96,  0.  ]])
    """

    mean: np.ndarray
    std: np.ndarray
    tail: Tail | None = None

    @property
    def _unit(self) -> Any:
        return norm if self.tail is None else student(self.tail.df)

    @property
    def _scale(self) -> np.ndarray:
        return self.std if self.tail is None else self.std * self.tail.scale

    def quantiles(self, alpha: np.ndarray) -> np.ndarray:
        """Mean and scale times the quantiles of the standard distribution."""
        return self.mean[..., None] + self._scale[..., None] * self._unit.ppf(alpha)

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """The distribution function, by that of the standard distribution."""
        return self._unit.cdf((np.asarray(y) - self.mean) / self._scale)

    def log_density(self, y: ArrayLike) -> np.ndarray:
        """That of the standard distribution, per unit of y."""
        scale = np.maximum(self._scale, np.finfo(np.float64).tiny)  # a std of zero has no density
        with np.errstate(over="ignore"):
            z = (np.asarray(y) - self.mean) / scale
        return self._unit.logpdf(z) - np.log(scale)

    def normal_parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the normal itself; Student's t is normal given a chi-squared precision."""
        if self.tail is None:
            return self.mean[None], self.std[None], np.ones(1)
        variances, weight = student_nodes(self.tail.df)
        stds = np.multiply.outer(np.sqrt(variances), self._scale)
        return np.broadcast_to(self.mean, stds.shape), stds, weight

    def sample(self, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Draw observations at each row, of shape (n, n_samples)."""
        draws = self._unit.rvs(size=(*self.mean.shape, n_samples), random_state=rng)
        return self.mean[..., None] + self._scale[..., None] * draws

    def crps(self, y: ArrayLike) -> np.ndarray:
        """Return the CRPS in closed form."""
        z = (np.asarray(y) - self.mean) / self._scale
        return self._scale * standard_crps(z, None if self.tail is None else self.tail.df)


@dataclass(frozen=True)
class StudentNoise(Predictive):
    """A normal function plus noise of Student's t: a mixture of normals of one mean.

    Parameters
    ----------
    mean, std : arrays of shape (n,)
        Mean and standard deviation of a new observation.
    noise_std : float or array of shape (n,)
        The part of the standard deviation that is noise.
    tail : Tail
        Student's t of the noise.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior.noise import Tail
    >>> from sparsebayes.posterior.predictive import StudentNoise
    >>> tail = Tail(3.0, 3.0**-0.5)
    >>> noisy = StudentNoise(np.zeros(2), np.ones(2), np.array([1.0, 0.1]), tail)
    >>> noisy.quantiles(np.array([0.975, 0.999])).round(2)  # of the t, and nearly of the normal
    array([[1.84, 5.9 ],
           [1.96, 3.09]])
    """

    mean: np.ndarray
    std: np.ndarray
    noise_std: Any
    tail: Tail

    @cached_property
    def _stds(self) -> np.ndarray:
        """The standard deviation of each part, of shape (n_parts, n)."""
        tiny = np.finfo(np.float64).tiny
        unit = np.maximum(self.std, tiny)  # whose square may overflow
        noise = np.square(np.minimum(self.noise_std, self.std) / unit)
        function = self.tail.variance * (1.0 - noise)
        variances, _ = student_nodes(self.tail.df)
        noise = np.square(self.tail.scale) * np.multiply.outer(variances, noise)
        return np.maximum(unit * np.sqrt(function + noise), tiny)

    @property
    def _weight(self) -> np.ndarray:
        return student_nodes(self.tail.df)[1]

    def normal_parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the parts."""
        return np.broadcast_to(self.mean, self._stds.shape), self._stds, self._weight

    def quantiles(self, alpha: np.ndarray) -> np.ndarray:
        """Quantiles, by Newton's method in a bracket."""
        out = np.empty((len(self.mean), len(alpha)))
        step = max(1, _BLOCK_ELEMENTS // (len(self._weight) * max(1, len(alpha))))
        for first in range(0, len(out), step):
            rows = slice(first, first + step)
            out[rows] = _centred_quantiles(self._stds[:, rows], self._weight, alpha)
        return self.mean[:, None] + out

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """The mean over the parts."""
        return self._weight @ ndtr((np.asarray(y) - self.mean) / self._stds)

    def log_density(self, y: ArrayLike) -> np.ndarray:
        """The log of the mean density over the parts."""
        gap = np.asarray(y) - self.mean
        with np.errstate(over="ignore"):
            logs = -0.5 * np.square(gap / self._stds) - np.log(self._stds)
        logs += np.log(self._weight)[:, None]
        return np.asarray(logsumexp(logs, axis=0)) - 0.5 * np.log(2.0 * np.pi)

    def sample(self, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Draw observations at each row, of shape (n, n_samples)."""
        shape = (len(self.mean), n_samples)
        noise = np.minimum(self.noise_std, self.std) + np.zeros_like(self.mean)
        function = np.sqrt(self.tail.variance * (np.square(self.std) - np.square(noise)))
        draws = function[:, None] * rng.standard_normal(shape)
        draws += self.tail.scale * noise[:, None] * rng.standard_t(self.tail.df, shape)
        return self.mean[:, None] + draws

    def crps(self, y: ArrayLike) -> np.ndarray:
        """In closed form: E|y - Y| less half of E|Y - Y'|, over the parts."""
        z = (np.asarray(y) - self.mean) / self._stds
        near = self._weight @ (self._stds * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * norm.pdf(z)))
        apart = np.zeros_like(near)
        for weight, std in zip(self._weight, self._stds, strict=True):
            apart += weight * (self._weight @ np.hypot(self._stds, std))
        return near - apart / np.sqrt(2.0 * np.pi)

    @staticmethod
    def average(parts: list[Any], inflation: np.ndarray) -> Predictive:
        """Average as normal distributions are; the noise has the mean variance of the parts."""
        of = Predictive.average(parts, inflation)
        noise = np.sqrt(np.mean([np.square(part.noise_std) for part in parts], axis=0))
        return StudentNoise(of.mean, of.std, noise, parts[0].tail)


def _centred_quantiles(stds: np.ndarray, weight: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Return quantiles of mixtures of centred normals, of shape (n, len(alpha))."""
    sign = np.where(alpha < 0.5, -1.0, 1.0)
    upper = np.where(alpha < 0.5, alpha, 1.0 - alpha)  # probability beyond the quantile
    unit = -norm.ppf(upper)
    low = np.multiply.outer(np.min(stds, axis=0), unit)
    high = np.multiply.outer(np.max(stds, axis=0), unit)
    # The normal of the same variance, which is nearly right where the noise is small.
    x = np.clip(np.sqrt(weight @ np.square(stds))[:, None] * unit, low, high)
    for _ in range(_MOST_STEPS):
        z = x / stds[..., None]
        excess = np.tensordot(weight, ndtr(-z), 1) - upper
        slope = np.tensordot(weight, np.exp(-0.5 * z * z) / stds[..., None], 1)
        low, high = np.where(excess > 0.0, x, low), np.where(excess > 0.0, high, x)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            new = x + np.sqrt(2.0 * np.pi) * excess / slope
        inside = (new > low) & (new < high)
        new = np.where(inside, new, 0.5 * (low + high))
        settled = np.all(np.abs(new - x) <= 1e-12 * np.abs(new))
        x = new
        if settled:
            break
    return sign * x


def observation(mean: Any, std: Any, tail: Tail | None, noise_std: Any) -> Predictive:
    """Return the distribution of observations with this mean, std and noise."""
    if tail is None:
        return LocationScale(mean, std)
    return StudentNoise(mean, std, noise_std, tail)


def standard_crps(z: np.ndarray, df: float | None = None) -> np.ndarray:
    """Return the CRPS of each z under the standard normal distribution, or Student's t."""
    if df is None:
        return z * (2.0 * norm.cdf(z) - 1.0) + 2.0 * norm.pdf(z) - 1.0 / np.sqrt(np.pi)
    if not df > 1.0:
        raise ValueError(
            f"The CRPS of Student's t needs more than 1 degree of freedom, got {df!r}."
        )
    pairs = (
        2.0 * np.sqrt(df) / (df - 1.0) * np.exp(betaln(0.5, df - 0.5) - 2.0 * betaln(0.5, df / 2))
    )
    edge = 2.0 * student.pdf(z, df) * (df + z * z) / (df - 1.0)
    return z * (2.0 * student.cdf(z, df) - 1.0) + edge - pairs


@dataclass(frozen=True)
class Mixture(Predictive):
    """Normal distributions, one for each draw of the posterior or each model of an average.

    Parameters
    ----------
    means : array of shape (n_parts, n)
    spread : array of shape (n_parts, n) or (n,)
        The standard deviation of each.
    weight : array of shape (n_parts,)
        They sum to one.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior.predictive import Mixture
    >>> apart = Mixture(np.array([[-5.0], [5.0]]), np.ones(1), np.array([0.2, 0.8]))
    >>> apart.quantiles(np.array([0.1, 0.6])).round(2)
    array([[-5.,  5.]])
    """

    means: np.ndarray
    spread: np.ndarray
    weight: np.ndarray

    @property
    def mean(self) -> np.ndarray:  # type: ignore[override]
        """The mean over all parts."""
        return self.weight @ self.means

    @property
    def std(self) -> np.ndarray:  # type: ignore[override]
        """Between and within the parts."""
        spread = np.broadcast_to(self.spread, self.means.shape)
        return np.sqrt(self.weight @ ((self.means - self.mean) ** 2 + spread**2))

    def quantiles(self, alpha: np.ndarray) -> np.ndarray:
        """Return quantiles by bisection, starting from the outermost normal distributions."""
        out = np.empty((self.means.shape[1], len(alpha)))
        for j, level in enumerate(alpha):
            ends = self.means + norm.ppf(level) * self.spread
            low, high = ends.min(axis=0), ends.max(axis=0)
            for _ in range(40):
                middle = 0.5 * (low + high)
                above = self.cdf(middle) > level
                low, high = np.where(above, low, middle), np.where(above, middle, high)
            out[:, j] = 0.5 * (low + high)
        return out

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """The mean over the parts."""
        return self.weight @ norm.cdf((np.asarray(y) - self.means) / self.spread)

    def normal_parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the parts."""
        return self.means, np.broadcast_to(self.spread, self.means.shape), self.weight

    def log_density(self, y: ArrayLike) -> np.ndarray:
        """The log of the mean density over the parts."""
        logs = norm.logpdf(np.asarray(y), self.means, self.spread)
        return np.asarray(logsumexp(logs, axis=0, b=self.weight[:, None]))


@dataclass(frozen=True)
class Exponential(Predictive):
    """The distribution of y = exp(min(x, bound)), given that of x.

    The bound makes the moments finite and keeps the mean among the quantiles: exp(x) has an
    infinite mean where x has the tails of a Student's t, and one above most quantiles where x is
    normal with a large variance. The bound is `upper`, or three standard deviations above the mean
    of x where that is less.

    Parameters
    ----------
    of : Predictive
        The distribution of x = log y.
    upper : array of shape (n,)
        The largest value of x that the data support, at each row.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior.predictive import Exponential, LocationScale
    >>> y = Exponential(LocationScale(np.zeros(2), np.array([0.1, 2.0])), np.ones(2))
    >>> y.mean.round(3), y.quantiles(np.array([0.5, 0.99])).round(3).tolist()
    (array([1.005, 1.332]), [[1.0, 1.262], [1.0, 2.718]])
    """

    of: Predictive
    upper: np.ndarray

    @property
    def bound(self) -> np.ndarray:
        """The largest value of x."""
        of = self.of
        return np.minimum(self.upper, np.asarray(of.mean + _REACH * of.std, dtype=np.float64))

    @property
    def mean(self) -> np.ndarray:  # type: ignore[override]
        """Mean of y."""
        return self._moments()[0]

    @property
    def std(self) -> np.ndarray:  # type: ignore[override]
        """Standard deviation of y."""
        return self._moments()[1]

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation, in closed form for each normal part of x."""
        x, sd, weight = self.of.normal_parts()
        sd = np.maximum(np.asarray(sd, dtype=np.float64), np.finfo(np.float64).tiny)
        centre = np.asarray(self.of.mean, dtype=np.float64)  # exp(centre) scales both moments
        x, bound = x - centre, self.bound - centre
        far = (bound - x) / sd  # standard deviations between mean and bound
        beyond = log_ndtr(-far)
        with np.errstate(over="ignore", invalid="ignore"):
            means = np.exp(x + 0.5 * sd**2 + log_ndtr(far - sd)) + np.exp(bound + beyond)
            squares = np.exp(2.0 * (x + sd**2) + log_ndtr(far - 2.0 * sd))
            squares += np.exp(2.0 * bound + beyond)
            # Where exp is linear over the distribution, the difference of squares would cancel.
            linear = np.square(means * sd) * _bounded_variance(far)
            within = np.where(sd < _LINEAR, linear, squares - means**2)
            mean = np.tensordot(weight, means, 1)
            variance = np.tensordot(weight, within + (means - mean) ** 2, 1)
            unit = np.exp(centre)
            return unit * mean, unit * np.sqrt(np.maximum(variance, 0.0))

    def quantiles(self, alpha: np.ndarray) -> np.ndarray:
        """Quantiles of x, mapped."""
        x = np.asarray(self.of.quantiles(alpha), dtype=np.float64)
        return np.exp(np.minimum(x, self.bound[..., None]))

    def ends(self, factor: float) -> np.ndarray:
        """Return the mean of x minus and plus `factor` standard deviations, mapped."""
        x = np.asarray(self.of.ends(factor), dtype=np.float64)
        with np.errstate(over="ignore"):  # an infinite factor has infinite ends
            return np.exp(np.where(np.isinf(x), x, np.minimum(x, self.upper[..., None])))

    @staticmethod
    def average(parts: list[Any], inflation: np.ndarray) -> Predictive:
        """Average on the scale of x."""
        upper = np.max([part.upper for part in parts], axis=0)
        return Exponential(Predictive.average([part.of for part in parts], inflation), upper)

    def sample(self, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Draw observations at each row, of shape (n, n_samples)."""
        return np.exp(np.minimum(self.of.sample(n_samples, rng), self.bound[..., None]))

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """The distribution function of x at log y; zero below zero, one from the bound on."""
        y = np.asarray(y, dtype=np.float64)
        logs = np.log(np.where(y > 0.0, y, 1.0))
        inside = np.where(y > 0.0, self.of.cdf(logs), 0.0)
        return np.where((y > 0.0) & (logs >= self.bound), 1.0, inside)

    def log_density(self, y: ArrayLike) -> np.ndarray:
        """Log density of exp(x), with the Jacobian of the logarithm.

        It ignores the bound: an observation beyond it has its own density, not that of a point mass
        at the bound.
        """
        y = np.asarray(y, dtype=np.float64)
        logs = np.log(np.where(y > 0.0, y, 1.0))
        return np.where(y > 0.0, self.of.log_density(logs) - logs, -np.inf)


@dataclass(frozen=True)
class Substituted(Predictive):
    """A distribution for each row, some rows with another one.

    Parameters
    ----------
    of : Predictive
        The distribution of all rows.
    rows : array of int
        The rows that have another.
    other : Predictive
        The distribution of those.
    """

    of: Predictive
    rows: np.ndarray
    other: Predictive

    @property
    def mean(self) -> np.ndarray:  # type: ignore[override]
        """Mean of each row."""
        return self._joined(self.of.mean, self.other.mean)

    @property
    def std(self) -> np.ndarray:  # type: ignore[override]
        """Standard deviation of each row."""
        return self._joined(self.of.std, self.other.std)

    def quantiles(self, alpha: np.ndarray) -> np.ndarray:
        """Quantiles of each row."""
        return self._joined(self.of.quantiles(alpha), self.other.quantiles(alpha))

    def ends(self, factor: float) -> np.ndarray:
        """Return the ends of each row."""
        return self._joined(self.of.ends(factor), self.other.ends(factor))

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """The distribution function of each row at its y."""
        y = np.asarray(y)
        return self._joined(self.of.cdf(y), self.other.cdf(y[self.rows]))

    def log_density(self, y: ArrayLike) -> np.ndarray:
        """Log density of each row at its y."""
        y = np.asarray(y)
        return self._joined(self.of.log_density(y), self.other.log_density(y[self.rows]))

    def _joined(self, values: np.ndarray, others: np.ndarray) -> np.ndarray:
        values = np.array(values, dtype=np.float64)
        values[self.rows] = others
        return values


def _bounded_variance(bound: np.ndarray) -> np.ndarray:
    """Return the variance of min(z, bound) of a standard normal z."""
    density, beyond = norm.pdf(bound), ndtr(-bound)
    mean = bound * beyond - density
    return 1.0 - beyond - bound * density + bound**2 * beyond - mean**2
