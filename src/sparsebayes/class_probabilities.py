"""Probabilities of classes from the scores of binary problems, and their calibration.

Each binary problem gives a Gaussian latent value y ~ N(m, v) at a new row, and integrating the
logistic function over it leaves the log odds z = m / sqrt(1 + pi v / 8) (MacKay 1992). Several of
them are coupled to probabilities that sum to one by

    p_c  proportional to  sigma(z_c) sigma(-z_c)^-tau,      0 <= tau <= 1.

tau = 0 normalises the probabilities, which is right where classes overlap; tau = 1 conditions on
exactly one binary problem being positive, as if they were independent, which is right where classes
are apart. tau minimises the leave-one-out log-loss on the training rows, from the same posteriors
(docs/decisions/0005-multiclass-coupling.md).

Scores are calibrated by a line that cross-validated scores give (`best_calibration`; Platt 1999,
with priors on the line).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit, ndtr, ndtri, softmax

from .kernels import Box
from .linalg.scalar import maximise
from .posterior.added import distinct_functions

# Standard deviations of the priors on the calibration: on the logarithm of a slope below 1 and
# above 1 (where all labels are right, a steeper slope is always better), and on the intercepts.
# Tuned on generated classes of fourteen kinds.
_FLATTER_SD, _STEEPER_SD, _INTERCEPT_SD = 2.0, 0.25, 1.0
_FUNCTIONS, _UNEXPLAINED = 50, 1e-3  # of `Unlabelled`; share of the kernel that they may miss
# Prior of the factor on its variance: none at all, or exponential; the mean is 1. Tuned on wine,
# iris, energy and breast cancer, where 1/2 in place of 2/3 doubles the loss that it leaves, and on
# generated classes, where 4/5 gains less in gaps.
_NO_VARIANCE = 2.0 / 3.0
_FACTORS = np.append(0.0, -np.log1p(-(np.arange(50) + 0.5) / 50) / (1.0 - _NO_VARIANCE))
_FACTOR_PRIOR = np.append(_NO_VARIANCE, np.full(50, (1.0 - _NO_VARIANCE) / 50))
_LOG_SLOPES = np.linspace(-4.0, 1.0, 81)  # nodes of the posterior of the logarithm of the slope


def log_odds(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return the log odds of sigma(y) averaged over y ~ N(mean, variance)."""
    return mean / np.sqrt(1.0 + (np.pi / 8.0) * variance)


def probabilities(z: np.ndarray, tau: float) -> np.ndarray:
    """Return the probabilities of the classes from log odds.

    `z` has the log odds of the second of two classes, or a column for each of several.
    """
    return couple(z, tau) if z.ndim > 1 else np.column_stack([expit(-z), expit(z)])


def couple(z: np.ndarray, tau: float) -> np.ndarray:
    """Return the probabilities of several classes from the log odds of each against the rest."""
    return softmax(log_expit(z) - tau * log_expit(-z), axis=1)


class Link(Protocol):
    """How latent values become scores, and scores probabilities."""

    @property
    def needs_variance(self) -> bool:
        """True where scores depend on the variance of the latent values."""

    def score(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return the score of latent values with this mean and variance."""

    def probabilities(self, z: np.ndarray, coupling: float) -> np.ndarray:
        """Return the probabilities of the classes from scores."""

    def inverse(self, probability: np.ndarray) -> np.ndarray:
        """Return the score of a class against the rest that has this probability."""


@dataclass(frozen=True)
class Logistic:
    """The logistic function, averaged over the latent value; or at its mode."""

    needs_variance: bool = True

    def score(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return log odds."""
        return log_odds(mean, variance) if self.needs_variance else mean

    def probabilities(self, z: np.ndarray, coupling: float) -> np.ndarray:
        """Return the probabilities of the classes from log odds."""
        return probabilities(z, coupling)

    def inverse(self, probability: np.ndarray) -> np.ndarray:
        """Return the log odds of a probability."""
        return logit(probability)


@dataclass(frozen=True)
class Probit:
    """The normal distribution function, averaged over the latent value with its unit noise."""

    needs_variance: bool = True

    def score(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return the mean over the standard deviation; `variance` includes the unit noise."""
        return mean / np.sqrt(variance)

    def probabilities(self, z: np.ndarray, coupling: float) -> np.ndarray:
        """Return the probabilities of the classes, normalised where there are more than two."""
        if z.ndim == 1:
            return np.column_stack([ndtr(-z), ndtr(z)])
        probability = ndtr(z)
        total = probability.sum(axis=1, keepdims=True)
        # Where every probability underflows there is nothing to normalise.
        return np.where(total > 0, probability / np.where(total > 0, total, 1.0), 1.0 / z.shape[1])

    def inverse(self, probability: np.ndarray) -> np.ndarray:
        """Return the quantile of the normal distribution."""
        return ndtri(probability)


@dataclass(frozen=True)
class Softmax:
    """Probabilities that are proportional to the exponentials of the scores of all classes."""

    needs_variance: bool = False

    def score(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return the mean."""
        return mean

    def probabilities(self, z: np.ndarray, coupling: float) -> np.ndarray:
        """Return the probabilities of the classes from a column of scores for each."""
        return np.asarray(softmax(z, axis=1))

    def inverse(self, probability: np.ndarray) -> np.ndarray:
        """Return the logarithm of a probability."""
        return np.log(probability)


class LabelPredictions(NamedTuple):
    """Scores of rows whose labels had no part in them, with their class numbers and weights.

    They are leave-one-out or cross-validated. The scores of a fold whose fit failed are NaN. Of
    folds the numbers of the rows are known too.
    """

    z: np.ndarray
    codes: np.ndarray
    weight: np.ndarray
    rows: np.ndarray | None = None

    @property
    def valid(self) -> np.ndarray:
        """Mask of the rows whose scores are finite."""
        return np.isfinite(self.z).reshape(len(self.z), -1).all(axis=1)

    def take(self, rows: np.ndarray) -> LabelPredictions:
        """Return these rows alone."""
        own = None if self.rows is None else self.rows[rows]
        return LabelPredictions(self.z[rows], self.codes[rows], self.weight[rows], own)


@dataclass(frozen=True, eq=False)
class Calibration:
    """A line by which scores are calibrated: ``slope * z + intercept``.

    Attributes
    ----------
    slope : float
        Common factor on the scores of all binary problems.
    intercept : array of shape (n_problems,) or float
        Constant that is added to the scores of each of them.
    """

    slope: float = 1.0
    intercept: float | np.ndarray = 0.0

    def __call__(self, z: np.ndarray) -> np.ndarray:
        """Return the calibrated scores, in the type of `z`."""
        return (self.slope * z + self.intercept).astype(z.dtype, copy=False)


@dataclass(frozen=True, eq=False)
class Unlabelled:
    """Variance of scores inside the box of the training rows, where labels are far away.

    Labels of mean curvature omega tell of a Gaussian process of variance a as much as values with
    the noise variance 1 / omega. They leave it the share r(x) = 1 - k(x)'(K + 1 / (a omega))^-1
    k(x) of its variance. Calibrated scores allow for the mean u of r over the training rows, each
    of them left out. Where r is larger the variance is a (r - u) / (1 - u): far from all rows it is
    a, as outside the box. Functions at up to `_FUNCTIONS` rows stand for the process.

    Parameters
    ----------
    kernel : StationaryKernel or WarpedKernel
        The kernel of the process, of unit variance.
    centres : array of shape (m, n_features)
        Rows of the functions.
    rotation : array of shape (m, m)
        Matrix that makes the functions independent of each other, with and without the labels.
    explained : array of shape (m, n_problems)
        Share of the variance of each of them that the labels explain.
    usual : array of shape (n_problems,)
        u, the mean of r over the training rows.
    amplitude : array of shape (n_problems,)
        a, the variance of the scores of the training rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.class_probabilities import Unlabelled
    >>> from sparsebayes.kernels import StationaryKernel
    >>> X, one = np.linspace(0.0, 1.0, 20)[:, None], np.ones(1)
    >>> kernel = StationaryKernel("rbf", 9.0)
    >>> far, _ = Unlabelled.from_rows(kernel, X, np.ones(20), one, one)
    >>> far(np.array([[0.5], [1.2], [9.0]])).ravel().round(1)
    array([0. , 0.6, 1. ])
    """

    kernel: Any
    centres: np.ndarray
    rotation: np.ndarray
    explained: np.ndarray
    usual: np.ndarray
    amplitude: np.ndarray

    @classmethod
    def from_rows(
        cls,
        kernel: Any,
        X: np.ndarray,
        weight: np.ndarray,
        amplitude: np.ndarray,
        curvature: np.ndarray,
    ) -> tuple[Unlabelled, np.ndarray]:
        """Return the variance that labels of `weight` at rows X leave.

        The second value is that of the rows themselves, each of them left out.
        """
        X, number, F, pivots = distinct_functions(kernel, X, _UNEXPLAINED, _FUNCTIONS)
        weight, precision = np.bincount(number, weights=weight), amplitude * curvature
        size, axes = np.linalg.eigh((F * weight) @ F.T)
        size = np.maximum(size, 0.0)[:, None]
        explained = precision * size / (1.0 + precision * size)
        squares = (F.T @ axes) ** 2
        known = squares @ (1.0 - explained)  # variance of the functions given all labels
        others = known / np.maximum(1.0 - np.multiply.outer(weight, precision) * known, 1e-3)
        left_out = 1.0 - np.sum(squares, axis=1, keepdims=True) + others
        usual = np.average(left_out, axis=0, weights=weight)
        rotation = solve_triangular(F[:, pivots], axes)
        remaining = cls(kernel, X[pivots], rotation, explained, usual, amplitude)
        return remaining, remaining._variance(left_out)[number]

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Return the variance at each row, in each binary problem."""
        functions = np.asarray(self.kernel.bind(self.centres)(X), dtype=np.float64)
        share = 1.0 - (functions @ self.rotation) ** 2 @ self.explained
        return self._variance(share)

    def _variance(self, share: np.ndarray) -> np.ndarray:
        """Return the variance where this share of that of the process remains."""
        unusual = (share - self.usual) / np.maximum(1.0 - self.usual, 1e-3)
        return self.amplitude * np.maximum(unusual, 0.0)


@dataclass(frozen=True, eq=False)
class Reversion:
    """Scores far from the training rows, which revert to the class frequencies.

    A sparse model has few functions. Where they vanish its score is the intercept, which can be
    that of an almost certain class. A Gaussian process whose latent value is known at the nearest
    point b of the box has the mean c + k(x, b) (f(b) - c) and the variance a (1 - k(x, b)^2) at a
    row x outside, where c is its mean. Scores are those of this process: that of b, moved towards c
    by k and by the factor with which `log_odds` averages over the variance.

    Inside the box scores of rows that are unlike the training rows, as in a gap between them, are
    averaged over the variance of `unlabelled`, which does not change the more probable of two
    classes.

    Parameters
    ----------
    kernel : StationaryKernel or WarpedKernel
        The kernel of the process, of unit variance.
    box : Box
        The box of the training rows.
    centre : array of shape (n_problems,)
        Scores of the class frequencies.
    amplitude : array of shape (n_problems,)
        a, the variance of the scores of the training rows.
    unlabelled : Unlabelled, optional
        The variance in the box; without it nothing changes there.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.class_probabilities import Reversion
    >>> from sparsebayes.kernels import Box, StationaryKernel
    >>> kernel, box = StationaryKernel("rbf", 1.0), Box(np.zeros(1), np.ones(1))
    >>> beyond = Reversion(kernel, box, centre=np.array([-1.0]), amplitude=np.array([4.0]))
    >>> beyond(np.array([[0.5], [1.5], [9.0]]), np.full((3, 1), 3.0)).ravel().round(2)
    array([ 3.  ,  1.45, -1.  ])
    """

    kernel: Any
    box: Box
    centre: np.ndarray
    amplitude: np.ndarray
    unlabelled: Unlabelled | None = None

    def __call__(self, X: np.ndarray, z: np.ndarray) -> np.ndarray:
        """Return the scores of rows from those of their nearest points of the box."""
        if self.unlabelled is not None:
            variance = self.unlabelled(self.box.nearest(np.asarray(X, dtype=np.float64)))
            z = log_odds(z, variance)
        k = self.box.correlation(self.kernel, X)
        outside = np.flatnonzero(k < 1.0)
        if len(outside) == 0:
            return z
        k, z = k[outside], z.copy()
        variance = np.multiply.outer(np.maximum(1.0 - k * k, 0.0), self.amplitude)
        z[outside] = self.centre + k[:, None] * log_odds(z[outside] - self.centre, variance)
        return z


def best_calibration(
    folds: LabelPredictions,
    link: Link,
    coupling: float = 1.0,
    share: float = 1.0,
    optimism: float = 0.0,
) -> Calibration:
    """Return the line on which cross-validated scores predict the labels best.

    The logarithm of the slope has a normal prior around zero, and so have the values of the line at
    the scores of the class frequencies, less these scores: a flat line keeps the frequencies. The
    slope is the posterior mean of its logarithm: the posterior of few rows is wide and skewed
    towards flat lines, of which the most probable slope knows nothing. With a `share` below 1 the
    slope is nearer to 1. A model without an intercept is calibrated with one as well, so
    that its probabilities sum to the class frequencies.

    `optimism` is that of the log probability of the labels at slope 1, in nats, where the scores
    depend on values that were learnt from the same labels. It is the sum of the covariances of
    scores and labels (Efron 2004), and so proportional to the slope.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.class_probabilities import LabelPredictions, Logistic, best_calibration
    >>> z = np.array([4.0, 4.0, 4.0, 4.0, -4.0, -4.0, -4.0, -4.0])  # one of four is wrong
    >>> folds = LabelPredictions(z, np.array([1, 1, 1, 0, 0, 0, 0, 1]), np.full(8, 100.0))
    >>> line = best_calibration(folds, Logistic())
    >>> round(4.0 * line.slope, 1), round(float(np.log(3)), 1)
    (1.1, 1.1)
    """
    z, codes, weight, _ = folds
    k = 1 if z.ndim == 1 else z.shape[1]
    count = np.bincount(codes, weights=weight, minlength=max(2, k))
    frequency = np.clip(count / np.sum(count), 1e-6, 1.0 - 1e-6)
    centre = link.inverse(frequency if k > 1 else frequency[1:])

    def line(theta: np.ndarray) -> Calibration:
        slope = float(np.exp(theta[0]))
        return Calibration(slope, (1.0 - slope) * centre + theta[1:])

    def loss(theta: np.ndarray) -> float:
        p = link.probabilities(line(theta)(z), coupling)
        slope_sd = _FLATTER_SD if theta[0] < 0.0 else _STEEPER_SD
        prior = (theta[0] / slope_sd) ** 2 + np.sum((theta[1:] / _INTERCEPT_SD) ** 2)
        learnt = optimism * float(np.exp(theta[0]))
        return 0.5 * float(prior) + learnt - float(weight @ log_own(p, codes))

    most = 4.0 * _INTERCEPT_SD
    bounds = [(_LOG_SLOPES[0], _LOG_SLOPES[-1])] + [(-most, most)] * k
    # Tight, so that rounding in the scores stays rounding in the probabilities.
    options = {"ftol": 1e-15, "gtol": 1e-9}

    def best(start: np.ndarray, bounds: list[tuple[float, float]]) -> np.ndarray:
        result = minimize(
            loss, start, method="L-BFGS-B", jac="3-point", bounds=bounds, options=options
        )
        return np.asarray(result.x)

    theta = best(np.zeros(1 + k), bounds)
    losses = np.array([loss(np.append(node, theta[1:])) for node in _LOG_SLOPES])
    theta[0] = share * np.average(_LOG_SLOPES, weights=np.exp(np.min(losses) - losses))
    # The intercepts again, so that the frequencies are kept at this slope.
    theta = best(theta, [(theta[0], theta[0]), *bounds[1:]])
    # Further digits are those of the optimiser: equal problems have equal probabilities without.
    return line(np.round(theta, 6))


def variance_factor(
    folds: LabelPredictions, variance: np.ndarray, link: Link, coupling: float
) -> float:
    """Return the factor on the variance by which cross-validated scores predict the labels best.

    It is a posterior mean. The prior has its mean at 1, but most of it at 0: either the scores know
    how far the labels are, or the process does. Where rows that are far from the others are as sure
    as their scores, like patients with extreme values, the factor is near zero.

    Parameters
    ----------
    folds : LabelPredictions
        Calibrated scores.
    variance : array of shape (n_rows, n_problems)
        The variance of `Unlabelled` at these rows.
    link : Link
    coupling : float
    """
    z, codes, weight, _ = folds
    variance = variance.reshape(z.shape)

    def loss(factor: float) -> float:
        p = link.probabilities(log_odds(z, factor * variance), coupling)
        return -float(weight @ log_own(p, codes))

    losses = np.array([loss(factor) for factor in _FACTORS])
    likelihood = np.exp(np.min(losses) - losses)
    return float(np.average(_FACTORS, weights=_FACTOR_PRIOR * likelihood))


def best_coupling(z: np.ndarray, codes: np.ndarray, weight: np.ndarray) -> float:
    """Return the tau of smallest log-loss on rows with these log odds, classes and weights."""

    def log_probability(tau: float) -> float:
        return float(weight @ log_own(couple(z, tau), codes))

    return maximise(log_probability, 0.0, 1.0, step=None, tol=1e-5)[0]


def log_own(p: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the log probability of the class of each row."""
    return np.log(np.maximum(p[np.arange(len(p)), codes], 1e-300))
