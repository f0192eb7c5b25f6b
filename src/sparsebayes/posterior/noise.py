"""Noise that depends on the inputs, and noise with tails, from leave-one-out residuals.

The model is y = f(x) + e with e of variance v(x), log v(x) = b(x)'w, and the features

    b = [1, inputs, z, z^2 - 1] and perhaps the chosen functions, or curves along the inputs,

inputs standardised and clipped, z the standardised mean prediction. A residual of the fit is too
small where functions are dense: with the leverage h_i of a row, the square of its leave-one-out
residual r_i has the expectation v_i/(1 - h_i), so w is fitted to q_i = r_i^2 (1 - h_i),

    minimise  sum_i (b_i'w + q_i exp(-b_i'w))/2 + lam/2 |w|^2      (the constant is free).

The expected curvature, B'B/2 + lam, does not depend on w: one Cholesky factor serves all steps.
lam, further features and whether there is a model at all are chosen by the density of the q_i in
5-fold cross-validation. Derivation and measurements: docs/theory/noise.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import minimize
from scipy.special import chdtri, digamma, gammaincinv, gammaln

from .gaussian import Posterior

_LEAST = 1e-3  # of the median: what is added to squares, none of which is zero then
LEAST_ROWS = 100  # squared residuals that a noise model needs at least
_PENALTIES = (3000.0, 300.0, 30.0, 3.0, 0.3)
_FOLDS = 5
MOST_ROWS = 20_000  # rows that a noise model is fitted to: its weights are a few hundred
WORTH = 3.0  # nats that a noise model, or a tail, has to gain,
_SURE = 2.0  # and of how many standard errors of that gain
_KNOTS = 12  # of a curve along an input
_HAT = 4.0  # height of a hat: one over the deviation of a function that a tenth of the rows see
_MOST_CURVES = 30  # inputs
_REACH = 5.0  # standard deviations at which inputs are clipped
_REACH_MEAN = 4.0  # and the mean prediction
_ENDS = (0.001, 0.999)  # quantiles of log v on the training rows: it is not extrapolated
_SETTLED = 1e-3  # nats that a step may still gain
_MOST_STEPS = 50
_JITTER = 1e-10  # of the mean curvature: features may repeat each other
_IN_CACHE = 2**17  # features of so many rows that reading them takes longer than arithmetic
_WILD = 20.0  # of log variance: so far from one level a prediction is none, and overflow is near
_TAILS = (
    2.5,
    200.0,
)  # degrees of freedom: from below the variance is hardly known, above is normal


_N_NODES = 40  # normal distributions that approximate Student's t
_NODE_ENDS = (1e-11, 1e-14)  # probability of a precision below the first and above the last
_NODE_STEP = 1e-6  # of df, over which the difference of nodes is their derivative
_TAIL_ROWS = 5000  # rows from which the tail of the noise around an uncertain function is fitted
_CERTAIN = 0.01  # variance of the function over that of the noise that makes no difference


@dataclass(frozen=True)
class Tail:
    """Student's t of the noise.

    Parameters
    ----------
    df : float
        Degrees of freedom.
    scale : float
        Scale in units of the standard deviation of the noise.
    """

    df: float
    scale: float

    @property
    def variance(self) -> float:
        """Variance in units of that of the noise."""
        return self.scale**2 * self.df / (self.df - 2.0)


@lru_cache(maxsize=32)
def student_nodes(df: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the variances and the weights of normal distributions whose mixture is Student's t.

    The precision of the mixture is chi-squared over its degrees of freedom. The trapezoidal rule in
    its logarithm converges exponentially; the distribution function is exact to 1e-5 of the tail.
    """
    # Quantiles of chi-squared, without the checks of scipy.stats, which take longer than the rest.
    quantiles = [2.0 * gammaincinv(0.5 * df, _NODE_ENDS[0]), chdtri(df, _NODE_ENDS[1])]
    ends = np.log(quantiles) - np.log(df)
    logs = np.linspace(ends[0], ends[1], _N_NODES)
    log_weight = 0.5 * df * (logs - np.exp(logs))
    weight = np.exp(log_weight - np.max(log_weight))
    return np.exp(-logs), weight / np.sum(weight)


@dataclass(frozen=True)
class Features:
    """Features of the log noise variance: [1, inputs, z, z^2 - 1, functions].

    Parameters
    ----------
    n_inputs, n_functions : int
        How many inputs and chosen functions take part; none or all of either.
    centre, spread : arrays
        Means and standard deviations of [inputs, mean prediction, functions] on training rows.
    knots : dict
        Where the hats along some of the (standardised) inputs have their tops: curves that are
        linear in between.
    """

    n_inputs: int
    n_functions: int
    centre: Any = 0.0
    spread: Any = 1.0
    knots: dict[int, np.ndarray] = field(default_factory=dict)

    def columns(self, X: np.ndarray, mean: np.ndarray, functions: np.ndarray) -> np.ndarray:
        """Return [inputs, mean prediction, functions] at rows X."""
        return np.column_stack([X[:, : self.n_inputs], mean, functions[:, : self.n_functions]])

    def fitted(self, columns: np.ndarray, count: np.ndarray) -> Features:
        """Return these features with the means and deviations of the columns of weighted rows."""
        share = count / np.sum(count)
        centre = share @ columns
        spread = np.sqrt(share @ (columns - centre) ** 2)
        constant = spread <= 1e-10 * np.max(np.abs(columns), axis=0)
        return replace(self, centre=centre, spread=np.where(constant, np.inf, spread))

    def of(self, columns: np.ndarray) -> np.ndarray:
        """The features, from what `columns` gave."""
        d = self.n_inputs
        Z = (columns - self.centre) / self.spread
        Z[:, :d] = np.clip(Z[:, :d], -_REACH, _REACH)
        z = np.clip(Z[:, d], -_REACH_MEAN, _REACH_MEAN)
        hats = [_hats(Z[:, j], knots) for j, knots in self.knots.items()]
        return np.column_stack([np.ones(len(Z)), Z[:, :d], z, z * z - 1.0, Z[:, d + 1 :], *hats])

    def with_hats(self, columns: np.ndarray) -> Features:
        """Return these features with curves along the inputs that have enough distinct values."""
        if self.n_inputs > _MOST_CURVES:
            return self
        d = self.n_inputs
        Z = np.clip((columns[:, :d] - self.centre[:d]) / self.spread[:d], -_REACH, _REACH)
        knots = {}
        for j, quantiles in enumerate(np.quantile(Z, np.linspace(0.0, 1.0, _KNOTS), axis=0).T):
            tops = np.unique(quantiles)
            if len(tops) == _KNOTS:
                knots[j] = tops
        return replace(self, knots=knots)


def _hats(x: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return the hats with tops at the knots, a column for each; two of them are not zero."""
    x = np.clip(x, knots[0], knots[-1])
    right = np.clip(np.searchsorted(knots, x), 1, len(knots) - 1)
    share = (x - knots[right - 1]) / (knots[right] - knots[right - 1])
    hats, rows = np.zeros((len(x), len(knots))), np.arange(len(x))
    hats[rows, right - 1], hats[rows, right] = _HAT * (1.0 - share), _HAT * share
    return hats


class Choice(NamedTuple):
    """Result of the cross-validation: further features, the penalty, and the gain."""

    extra_features: str  # "", "functions" or "curves"
    penalty: float
    gain: float


@dataclass(frozen=True)
class NoiseModel:
    """The variance of the noise at each row, exp(b'coef).

    Parameters
    ----------
    features : Features
    coef : array
        Weights of the features.
    bounds : array of two floats
        Smallest and largest log variance: it is not extrapolated.
    choice : Choice
        Which features, their penalty, and the nats by which the model was ahead of one level in
        cross-validation.
    """

    features: Features
    coef: np.ndarray
    bounds: np.ndarray
    choice: Choice

    def variance(self, X: np.ndarray, Phi: np.ndarray, posterior: Posterior) -> np.ndarray:
        """Return the variance at rows X whose functions are Phi."""
        return self.of(self.features.columns(X, Phi @ posterior.mean + posterior.intercept, Phi))

    def of(self, columns: np.ndarray) -> np.ndarray:
        """Return the variance at rows with these columns of `Features.columns`."""
        return np.exp(np.clip(self.features.of(columns) @ self.coef, *self.bounds))

    def scaled(self, factor: float) -> NoiseModel:
        """Return this model with `factor` times the variance."""
        shift = np.log(factor)
        coef = self.coef.copy()
        coef[0] += shift
        return replace(self, coef=coef, bounds=self.bounds + shift)


def _be_silent() -> None:
    """Report nothing."""


def fit_noise(
    columns: np.ndarray,
    features: Features,
    squares: np.ndarray,
    count: np.ndarray,
    seed: int = 0,
    choice: Choice | None = None,
    report: Callable[[], None] = _be_silent,
) -> tuple[NoiseModel | float, Any]:
    """The noise model of highest cross-validated density; a number where one level does as well.

    Also the variance at each row, as the model without the fold of the row has it: beside its own
    residuals a model would look too good.

    Where the residuals have tails the density is Student's t: squares of a few of them would decide
    a normal one.

    Parameters
    ----------
    columns : array of shape (n, n_inputs + 1 + n_functions)
        What `features.columns` gives for the rows.
    features : Features
        The largest set that may take part.
    squares : array of shape (n,)
        Squares whose expectation is the noise variance.
    count : array of shape (n,)
        How many rows each counts for.
    seed : int, default=0
        Cuts the folds.
    choice : Choice, optional
        Of an earlier fit to much the same residuals; it saves the cross-validation.
    report : callable, optional
        Called before each step.
    """
    level = float(count @ squares / np.sum(count))
    if np.sum(count) < LEAST_ROWS or not level > 0.0:
        return level, level
    q = (squares + _LEAST * np.median(squares)) / level
    df = _tail_df(q, count)
    fold = np.random.default_rng(seed).permutation(len(q)) % _FOLDS
    tried = []
    for extra in ("", "functions", "curves") if choice is None else (choice.extra_features,):
        candidate, B = _with_extra(features, extra, columns, count)
        if B is not None:
            folds = _Folds(B, q, count, fold, report)
            tried.append((candidate, folds, choice or folds.choose(extra, df)))
    if not tried:  # the functions of an earlier choice no longer exist
        return level, level
    candidate, folds, choice = max(tried, key=lambda one: one[2].gain)
    if not choice.gain > 0.0:
        return level, level
    B, everything = folds.B, count[:, None]
    coef = _level(B, q, everything, df)
    for _ in range(2):  # a level that varies looks like a tail, until it is known
        coef = _descend(B, [folds.gram], q, everything, df, choice.penalty, coef, report)
        v = np.exp(_times(B, coef)[:, 0])
        former, df = df, _tail_df(q / v, count)
        if df == former:
            break
    bounds = np.quantile(np.log(v), _ENDS)
    start = np.repeat(coef, _FOLDS, axis=1)
    cv_variance = np.exp(
        np.clip(folds.out_of_fold(folds.descend(df, choice.penalty, start)), *bounds)
    )
    # Scale the variance so that the standardised squares have mean one.
    factor = float(count @ (squares / cv_variance) / np.sum(count))
    return NoiseModel(candidate, coef[:, 0], bounds, choice).scaled(factor), factor * cv_variance


def _with_extra(
    features: Features, extra: str, columns: np.ndarray, count: np.ndarray
) -> tuple[Features, np.ndarray | None]:
    """Return features with these further ones, and their values; None where there are none."""
    k = features.n_functions if extra == "functions" else 0
    part = columns[:, : features.n_inputs + 1 + k]
    candidate = replace(features, n_functions=k).fitted(part, count)
    candidate = candidate.with_hats(part) if extra == "curves" else candidate
    return candidate, candidate.of(part) if not extra or k or candidate.knots else None


def _tail_df(q: np.ndarray, count: np.ndarray) -> float:
    tail, gain = fit_tail(np.sqrt(q), count)
    return tail.df if gain > WORTH else np.inf


@dataclass
class _Folds:
    """Fits without one fold each, side by side: a column of weights for each of them.

    Features of many rows are kept in float32, in which a step takes a third of the time. The slopes
    then have errors of 1e-6, worth some 1e-8 nats, and the steps end at 1e-3.
    """

    B: np.ndarray
    q: np.ndarray
    count: np.ndarray
    fold: np.ndarray
    report: Callable[[], None]

    def __post_init__(self) -> None:
        self.report()
        self.inside = self.count[:, None] * (self.fold[:, None] != np.arange(_FOLDS))
        rows = [self.fold == f for f in range(_FOLDS)]
        parts = [(self.B[part].T * self.count[part]) @ self.B[part] for part in rows]
        self.gram: Any = sum(parts)
        self.grams = [np.subtract(self.gram, part, out=part) for part in parts]
        if self.B.size > _IN_CACHE:
            self.B = self.B.astype(np.float32)

    def descend(self, df: float, penalty: float, W: np.ndarray) -> np.ndarray:
        """The weights of all folds."""
        return _descend(self.B, self.grams, self.q, self.inside, df, penalty, W, self.report)

    def out_of_fold(self, W: np.ndarray) -> np.ndarray:
        """Log variance at each row, from the fit without its fold."""
        return _times(self.B, W)[np.arange(len(self.q)), self.fold]

    @np.errstate(over="ignore")
    def choose(self, extra_features: str, df: float) -> Choice:
        """The penalty of highest density of the squares left out; a gain of 0 for one level.

        From the largest penalty down, as long as the density rises.
        """
        W = _level(self.B, self.q, self.inside, df)
        level = W[0, self.fold]
        constant = self.count * _loss(level, self.q, df)
        best, error, penalty = -np.inf, 0.0, 0.0
        for trial in _PENALTIES:
            W = self.descend(df, trial, W)
            eta = np.clip(self.out_of_fold(W), level - _WILD, level + _WILD)
            gains = constant - self.count * _loss(eta, self.q, df)
            if not np.sum(gains) > best:
                break
            best, penalty = float(np.sum(gains)), trial
            error = float(np.std(gains)) * np.sqrt(len(gains))
        return Choice(extra_features, penalty, best if best > max(WORTH, _SURE * error) else 0.0)


# Minus the log density of a residual of square q and log variance eta, but for a constant; its
# slope and its expected curvature in eta. df is that of Student's t, infinite for the normal.


def _loss(eta: np.ndarray, q: np.ndarray, df: float) -> np.ndarray:
    x = q * np.exp(-eta)
    return 0.5 * (eta + (x if np.isinf(df) else (df + 1.0) * np.log1p(x / df)))


def _slope(eta: np.ndarray, q: np.ndarray, df: float) -> np.ndarray:
    x = q * np.exp(-eta)
    return 0.5 * (1.0 - (x if np.isinf(df) else (df + 1.0) * x / (df + x)))


def _curvature(df: float) -> float:
    return 0.5 if np.isinf(df) else 0.5 * df / (df + 3.0)


def _level(B: np.ndarray, q: np.ndarray, count: np.ndarray, df: float) -> np.ndarray:
    """Weights of the features at which the variance is the same everywhere, for each column."""
    W = np.zeros((B.shape[1], count.shape[1]))
    W[0] = np.log(q @ count / np.sum(count, axis=0))
    if np.isfinite(df):
        totals = [np.array([[total]]) for total in np.sum(count, axis=0)]
        W[:1] = _descend(np.ones((len(q), 1)), totals, q, count, df, 0.0, W[:1])
    return W


def _times(B: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Return BW in float64, by a product in the precision of B."""
    return (B @ W.astype(B.dtype, copy=False)).astype(np.float64, copy=False)


@np.errstate(over="ignore")
def _descend(
    B: np.ndarray,
    grams: Any,
    q: np.ndarray,
    count: np.ndarray,
    df: float,
    penalty: float,
    W: np.ndarray,
    report: Callable[[], None] = _be_silent,
) -> np.ndarray:
    """Newton's method with the expected curvature, for each column of counts side by side.

    `grams` are B'B for each of them. `report` is called before each step.
    """
    ridge = np.full(B.shape[1], penalty)
    ridge[0] = 0.0
    q = q[:, None]
    factors = []
    for gram in grams:
        A = _curvature(df) * gram
        A.flat[:: len(A) + 1] += ridge + _JITTER * np.trace(A) / len(A)
        # Without the checks of cho_factor and cho_solve, which took a fifth of a fit of 300 rows,
        # and in place: with a copy a factor of 200 features took three times as long.
        factor, info = lapack.dpotrf(A.T, lower=1, clean=0, overwrite_a=1)
        if info != 0:
            raise np.linalg.LinAlgError("The curvature of the noise is not positive definite.")
        factors.append(factor)

    def value(eta: np.ndarray, W: np.ndarray) -> np.ndarray:
        return np.einsum("ij,ij->j", count, _loss(eta, q, df)) + 0.5 * ridge @ W**2

    eta, D = _times(B, W), np.empty_like(W)
    now = value(eta, W)
    for _ in range(_MOST_STEPS):
        report()
        pull = (count * _slope(eta, q, df)).astype(B.dtype, copy=False)
        slope = (pull.T @ B).T + ridge[:, None] * W  # B'pull would take twice the time
        for column, factor, g in zip(D.T, factors, slope.T, strict=True):
            column[:] = lapack.dpotrs(factor, g, lower=1)[0]
        if np.max(np.einsum("ij,ij->j", slope, D)) < _SETTLED:
            break
        along, step = _times(B, D), np.ones(W.shape[1])
        for _ in range(30):
            new_W, new_eta = W - step * D, eta - step * along
            trial = value(new_eta, new_W)
            worse = ~(trial <= now)
            if not np.any(worse):
                break
            step[worse] *= 0.5
        pairs = (W, new_W), (eta, new_eta), (now, trial)
        W, eta, now = (np.where(worse, former, new) for former, new in pairs)
    return W


def fit_tail(u: np.ndarray, count: np.ndarray) -> tuple[Tail, float]:
    """Student's t of highest likelihood for standardised residuals, and the nats that it gains.

    The gain is over a normal distribution of the best scale.
    """
    u, count = u[count > 0.0], count[count > 0.0]
    largest = float(np.max(np.abs(u), initial=0.0))
    if not 0.0 < largest < np.inf:
        return Tail(_TAILS[1], 1.0), 0.0
    u = u / largest  # whose squares are numbers of float64
    size = float(np.sqrt(count @ u**2 / np.sum(count)))
    u, size = u / size, largest * size

    total = float(np.sum(count))

    def value(p: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the log likelihood at 1/df and the log of the scale, and its slope."""
        df = 1.0 / p[0]
        x = (u * np.exp(-p[1])) ** 2 / df
        logs, pull = float(count @ np.log1p(x)), float(count @ (x / (1.0 + x)))
        half = 0.5 * (df + 1.0)
        constant = gammaln(half) - gammaln(0.5 * df) - 0.5 * np.log(df * np.pi) - p[1]
        by_df = 0.5 * logs - half * pull / df
        by_df -= 0.5 * total * (digamma(half) - digamma(0.5 * df) - 1.0 / df)
        return half * logs - total * constant, np.array([-by_df * df**2, total - 2.0 * half * pull])

    bounds = [(1.0 / _TAILS[1], 1.0 / _TAILS[0]), (np.log(0.05), np.log(2.0))]
    optimum = minimize(
        value,
        np.array([0.1, -0.1]),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"ftol": 1e-14, "gtol": 1e-8 * total},
    )
    normal = 0.5 * total * (1.0 + np.log(2.0 * np.pi))
    return Tail(float(1.0 / optimum.x[0]), float(np.exp(optimum.x[1])) * size), normal - optimum.fun


def fit_noise_tail(
    residual: np.ndarray, function: np.ndarray, noise: np.ndarray, count: np.ndarray, start: Tail
) -> Tail:
    """Return Student's t of the noise of highest likelihood, around a normal function.

    Parameters
    ----------
    residual : array of shape (n,)
        Residuals.
    function, noise : arrays of shape (n,)
        Variances of the function and of the noise, which the tail multiplies by its variance.
    count : array of shape (n,)
        How many observations each row counts for.
    start : Tail
        Student's t of the residuals over the standard deviation of both.
    """
    if np.all(function < _CERTAIN * noise) or not np.all(np.isfinite(function)):
        return start
    step = -(-len(residual) // _TAIL_ROWS)
    r, count = residual[::step], count[::step]
    size = np.sqrt(function + noise)[::step]
    r, function = r / size, function[::step] / size / size
    noise, squares = 1.0 - function, r * r

    def value(p: np.ndarray) -> tuple[float, np.ndarray]:
        """Return minus the log likelihood at 1/df and the log of the scale, and its slope."""
        tail = Tail(1.0 / p[0], float(np.exp(p[1])))
        variances, weight = student_nodes(tail.df)
        of_function = tail.variance * function
        v = of_function + tail.scale**2 * np.multiply.outer(variances, noise)
        x = squares / v
        logs = np.log(weight)[:, None] - 0.5 * (x + np.log(v))
        top = np.max(logs, axis=0)
        density = np.exp(logs - top)
        total = np.sum(density, axis=0)
        share, pull = count / total, density * (x - 1.0)
        # Slopes in log v of each node, and in the log of that part of v which the function has.
        by_variance = 0.5 * (pull @ share)
        by_function = 0.5 * ((pull / v) @ (of_function * share))
        # The nodes have no formula for their derivatives in 1/df.
        steps = (_NODE_STEP, -_NODE_STEP)
        high, low = (np.stack(student_nodes(tail.df / (1.0 + step))) for step in steps)
        by_df = np.log(high / low) / (2.0 * _NODE_STEP * p[0])
        slope_df = (by_variance - by_function) @ by_df[0] + (density @ share) @ by_df[1]
        slope_df += 2.0 * tail.df / (tail.df - 2.0) * np.sum(by_function)
        slope = np.array([slope_df, 2.0 * np.sum(by_variance)])
        return -float(count @ (np.log(total) + top)), -slope

    optimum = minimize(
        value,
        np.array([1.0 / start.df, np.log(start.scale)]),
        jac=True,
        method="L-BFGS-B",
        # Residuals that are all zero would have a scale of zero.
        bounds=[
            (1.0 / _TAILS[1], 1.0 / _TAILS[0]),
            (np.log(1e-3 * start.scale), np.log(1e3 * start.scale)),
        ],
    )
    return Tail(float(1.0 / optimum.x[0]), float(np.exp(optimum.x[1])))
