"""The distribution of a new observation at each row, and what it says about intervals.

It is normal; Student's t where the residuals have tails; a mixture where the posterior is a set of
draws or an average over models. All of them give quantiles, a distribution function, a log density
and the CRPS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaln, logsumexp
from scipy.stats import norm
from scipy.stats import t as student

from .noise import Tail

_GRID = (np.arange(400) + 0.5) / 400.0  # quantiles whose pinball losses add up to a CRPS
_MOST_RESIDUALS = 300  # that a fitted model keeps


class Predictive:
    """Independent new observations, one for each row."""

    mean: np.ndarray
    std: np.ndarray

    def quantiles(self, alpha: np.ndarray) -> np.ndarray:
        """Quantiles, of shape (n, [n_outputs,] len(alpha))."""
        raise NotImplementedError

    def cdf(self, y: Any) -> np.ndarray:
        """The probability of an observation below y."""
        raise NotImplementedError

    def log_density(self, y: Any) -> np.ndarray:
        """At y."""
        raise NotImplementedError

    def crps(self, y: Any) -> np.ndarray:
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

    def cdf(self, y: Any) -> np.ndarray:
        """The distribution function, by that of the standard distribution."""
        return self._unit.cdf((np.asarray(y) - self.mean) / self._scale)

    def log_density(self, y: Any) -> np.ndarray:
        """That of the standard distribution, per unit of y."""
        z = (np.asarray(y) - self.mean) / self._scale
        return self._unit.logpdf(z) - np.log(self._scale)

    def crps(self, y: Any) -> np.ndarray:
        """In closed form."""
        z = (np.asarray(y) - self.mean) / self._scale
        return self._scale * standard_crps(z, None if self.tail is None else self.tail.df)


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
        """By halving intervals, from the outermost normal distributions."""
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

    def cdf(self, y: Any) -> np.ndarray:
        """The mean over the parts."""
        return self.weight @ norm.cdf((np.asarray(y) - self.means) / self.spread)

    def log_density(self, y: Any) -> np.ndarray:
        """The log of the mean density over the parts."""
        logs = norm.logpdf(np.asarray(y), self.means, self.spread)
        return np.asarray(logsumexp(logs, axis=0, b=self.weight[:, None]))


@dataclass(frozen=True)
class Exponential(Predictive):
    """exp(x) of a distribution of x: what it says about y where log y was modelled."""

    of: Predictive

    @property
    def mean(self) -> np.ndarray:  # type: ignore[override]
        """The median: the mean of a logarithm with tails is infinite."""
        return np.exp(self.of.quantiles(np.array([0.5]))[..., 0])

    def quantiles(self, alpha: np.ndarray) -> np.ndarray:
        """Those of x, mapped."""
        with np.errstate(over="ignore"):
            return np.exp(self.of.quantiles(alpha))

    def cdf(self, y: Any) -> np.ndarray:
        """The distribution function of x at log y; zero below zero."""
        y = np.asarray(y, dtype=np.float64)
        return np.where(y > 0.0, self.of.cdf(np.log(np.where(y > 0.0, y, 1.0))), 0.0)

    def log_density(self, y: Any) -> np.ndarray:
        """With the Jacobian of the logarithm."""
        y = np.asarray(y, dtype=np.float64)
        logs = np.log(np.where(y > 0.0, y, 1.0))
        return np.where(y > 0.0, self.of.log_density(logs) - logs, -np.inf)


@dataclass(frozen=True)
class Calibration:
    """Sizes of standardised leave-one-out residuals, for intervals that count on nothing else.

    Of n residuals the ceil((n + 1) coverage)-th smallest size, times the std, reaches as far as an
    interval of that coverage must: conformal prediction, the residuals those of leave-one-out. A
    few hundred quantiles of them are kept.
    """

    n: float
    sizes: np.ndarray  # sorted
    shares: np.ndarray  # of the n rows, up to each of them

    @classmethod
    def from_residuals(cls, u: np.ndarray, count: np.ndarray) -> Calibration:
        """From standardised residuals of rows that count so many times."""
        order = np.argsort(np.abs(u))
        sizes, shares = np.abs(u)[order], np.cumsum(count[order])
        n = float(shares[-1])
        if len(sizes) > _MOST_RESIDUALS:
            # Close together at the far end, where intervals end.
            ranks = 1.0 - np.linspace(1.0, 0.0, _MOST_RESIDUALS) ** 2
            some = np.unique(np.round((len(sizes) - 1) * ranks).astype(np.intp))
            sizes, shares = sizes[some], shares[some]
        return cls(n, sizes, shares / n)

    def factor(self, coverage: float) -> float:
        """What the std is multiplied by; infinite where the rows are too few to say."""
        wanted = np.ceil((self.n + 1.0) * coverage) / self.n
        i = int(np.searchsorted(self.shares, wanted * (1.0 - 1e-12)))
        return float(self.sizes[i]) if i < len(self.sizes) else np.inf
