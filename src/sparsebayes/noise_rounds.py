"""Rounds of fits, each with the noise that the residuals of the last one show.

The residuals give the noise variance v of each row, and the next fit of the mean is a weighted one:
a row counts 1/v. The weights are scaled to sum to the number of observations, so that N in the
likelihood stays what it is; then

    log p(y | v) = log p of the weighted rows + 1/2 sum log weight.

``noise_variance="input"``: v(x) from a noise model; two rounds. ``noise_variance`` an array: v as
given; one round. ``likelihood="student"``: the noise is a mixture of normal distributions, and v is
(nu s^2 + r^2)/(nu + 1), the expected variance at a row with residual r; rounds until the weights
settle. See docs/theory/noise.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ._array import to_numpy
from .data import Data
from .fitting import Fit, Method, NoiseSpec, Note
from .kernels import is_option
from .linalg.scalar import maximise
from .posterior.leave_one_out import Calibration, LeaveOneOut, LooPredictions
from .posterior.noise import (
    MOST_ROWS,
    WORTH,
    Features,
    NoiseModel,
    Tail,
    fit_noise,
    fit_noise_tail,
    fit_tail,
)
from .predict import Noise, Predictor, loo_density, positive_root, user_coefficients
from .problem import Problem
from .rows import row_slices

_MOST_FUNCTIONS = 200  # functions in a noise model, in order of choice: more are only slower
_MOST_ROUNDS = 6  # rounds of a robust fit
_WORSE = 1.01  # leave-one-out error of a weighted fit over that of an unweighted one, at most
MANY_ROWS = 2000  # of an exact process, above which it has one round: a factorisation takes long
_FAR = 1.5  # standard deviations of the target at which a constant runs away from it
_CLEARLY = 5.0  # nats of log evidence: a Bayes factor of 150
_BY_CHANCE = 3.0  # nats by which residuals may depend on the weights: odds of 20 to 1
_TAIL_DF = 4.0  # degrees of freedom with which precisions are compared with equal noise
_SETTLED = 0.02  # mean change of robust weights, which are 1 on average, at which they have settled
_MEANS = (
    "Rows with a larger sample_weight have smaller errors, as means of several measurements have, "
    "and the weights are whole numbers. The predicted standard deviations are those of a single "
    "measurement (weight 1). If the weights are not numbers of measurements, divide them by their "
    "mean: then they are those of a row with the mean noise of the training rows."
)
_MUCH_MORE = 2.0  # noise variance of a measurement over that of a row, from which it matters
_REPEATS = (
    "sample_weight has whole numbers, and the errors do not show whether a row stands for so many "
    "equal rows or for the mean of so many measurements. It is taken to stand for equal rows. If "
    "rows are means, the noise of a single measurement has {:.2g} times the standard deviation of "
    "noise_variance_."
)

# Correlation of the logarithms of weights and variances at which both say the same, and rows that
# have it by chance in hardly any case.
_SAME, _ENOUGH_TO_TELL = 0.95, 10
_SAID_TWICE = (
    "sample_weight is the larger the smaller noise_variance is, as inverse variances are. "
    "noise_variance says already how precisely each row is known, so sample_weight is not used. "
    "Weights beside known variances are numbers of equal rows."
)

ChooseKernel = Callable[[Method, Problem], Problem]


@dataclass(frozen=True, eq=False)
class Round:
    """A fit, and the problem that it solves."""

    problem: Problem
    fit: Fit

    @property
    def loo(self) -> LooPredictions:
        return self.fit.loo_rows

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of a new observation at each row, left out."""
        return positive_root(self.loo.variance)

    @cached_property
    def residual_tail(self) -> Tail | None:
        """Student's t of the noise, where the leave-one-out residuals have heavy tails."""
        u = self.loo.residual / self.std
        if u.ndim > 1:
            return None
        rows = slice(None, None, -(-len(u) // MOST_ROWS))
        tail, gain = fit_tail(u[rows], self.loo.weight[rows])
        return _around_function(self, tail) if gain > WORTH else None

    def score(self) -> float:
        """Return the leave-one-out log density of all rows, with the tail of the residuals."""
        return float(self.loo.weight @ loo_density(self.loo, self.residual_tail))

    def mean_square(self) -> float:
        """Return the mean square of the leave-one-out residuals."""
        count = self.loo.weight
        return float(count @ np.square(self.loo.residual) / np.sum(count))

    def with_noise(self, noise: Noise, variance: Any) -> Round:
        """Return the round with this noise, of this variance at the rows."""
        fit = replace(self.fit, noise=noise, loo=self.loo._replace(noise=variance))
        return replace(self, fit=fit)

    def with_tail(self, tail: Tail | None) -> Round:
        """Return the round with this tail of the noise."""
        return replace(self, fit=replace(self.fit, noise=replace(self.fit.noise, tail=tail)))


def solve_round(method: Method, problem: Problem) -> Round:
    """Fit one round; precisions are how well rows are known, not how often they are there."""
    fit = method.refit(problem)
    if method.frees_intercept and intercept_runs_away(problem, fit):
        held = replace(problem, hold_intercept=True)
        held_fit = method.refit(held)
        if not _needs_intercept(problem, fit, held_fit):
            problem, fit = held, held_fit
    if fit.loo is not None:
        fit = replace(fit, loo=_with_precision(fit.loo, problem.rows))
    return Round(problem, fit)


def _with_precision(loo: LooPredictions, data: Data) -> LooPredictions:
    """Return leave-one-out predictions with the count and the precision of each row apart."""
    if data.precision is None:
        return loo
    return loo._replace(precision=data.precision, weight=loo.weight / data.precision)


def _needs_intercept(problem: Problem, fit: Fit, held: Fit) -> bool:
    """Tell whether a fit is clearly worse if its constant is held at the mean of the target.

    The evidence of the free constant is that of a flat prior of density 1. It counts as that of a
    prior as wide as the target, so that the comparison does not depend on the units.
    """
    width = float(np.sqrt(2.0 * np.pi * problem.rows.target_moments[1]))
    log_width = np.log(max(width, np.finfo(np.float64).tiny))
    with np.errstate(invalid="ignore"):  # both may be infinite; a gain that is no number is none
        gain = fit.posterior.log_evidence - log_width - held.posterior.log_evidence
    return bool(gain > _CLEARLY)


def intercept_runs_away(problem: Problem, fit: Fit) -> bool:
    """Tell whether the constant of a stationary kernel model lies far outside the target.

    Kernel functions that overlap are nearly constant together where there are rows, so that a
    constant with a flat prior and their weights can cancel. Away from the rows only the constant
    remains.
    """
    if not problem.fit_intercept or problem.hold_intercept:
        return False
    if not problem.design.stationary or fit.posterior.mean.ndim > 1:
        return False
    if problem.stream is None:
        mean, variance = problem.rows.target_moments
        std = np.sqrt(variance)
    else:
        mean, std = problem.stream.target_moments
    away = np.abs(user_coefficients(fit.model)[1] - mean)
    return bool(away > _FAR * std) and len(fit.active) > 0


def refit_round(method: Method, last: Round, data: Data, previous: Fit | None) -> Round:
    """Fit the next round, with the kernel of the last one."""
    problem = replace(
        last.problem,
        data=data,
        kernel=last.fit.kernel,
        noise_variance=None,
        previous=previous,
        purpose="trial" if last.problem.purpose == "trial" else "round",
    )
    fit = solve_round(method, problem)
    return fit.with_noise(last.fit.noise, fit.loo.noise)


def with_known_variances(problem: Problem, noise: NoiseSpec) -> tuple[Problem, tuple[Note, ...]]:
    """Return the problem with the precision of each row, whose noise variance was given.

    Weights count rows. If they are the larger the smaller the variances are, they say the same once
    more, and are not used, with a warning.
    """
    data = problem.rows
    variance = np.asarray(noise.variance, dtype=np.float64)
    if variance.shape != (data.n_rows,) or not np.all((variance > 0.0) & np.isfinite(variance)):
        raise ValueError(
            f"noise_variance has shape {variance.shape}, but y has {data.n_rows} values. Pass "
            "one positive variance per row, a number, 'learn' or 'input'."
        )
    count: np.ndarray = data.counts
    notes: tuple[Note, ...] = ()
    if _say_the_same(count, variance):
        count, notes = np.sign(count), (Note(_SAID_TWICE),)
    precision, level = _precisions(variance, count)
    data = replace(data, weight=count, precision=precision)
    return replace(problem, data=data, noise_variance=level), notes


def _say_the_same(weight: np.ndarray, variance: np.ndarray) -> bool:
    """Tell whether the weights of rows are nearly a decreasing power of their variances."""
    rows = np.flatnonzero(weight)
    logs = np.log([weight[rows], variance[rows]])
    if len(rows) < _ENOUGH_TO_TELL or np.min(np.ptp(logs, axis=1)) == 0.0:
        return False
    return bool(np.corrcoef(logs)[0, 1] < -_SAME)


def with_variance_of_rows(last: Round, noise: NoiseSpec) -> Round:
    """Return the round with the known variance of each row; a new row has their mean."""
    data, level = last.problem.rows, last.problem.noise_variance
    assert level is not None
    assert data.precision is not None
    variance = np.asarray(noise.variance, dtype=np.float64)
    if last.problem.purpose == "trial":  # of some of the rows
        variance = level / data.precision
    mean = float(data.counts @ variance / np.sum(data.counts))
    return last.with_noise(Noise(mean, at_rows=variance), variance)


def with_noise_of_weights(last: Round) -> Round:
    """Return the round with the noise of a new row, if weights are precisions.

    Rows of larger weight are known better, whether they are means of observations of equal noise or
    single observations of less noise. A new row is a single one. If the noise does not depend on
    the weight, its variance is that of a row of mean weight. But if residuals are the smaller the
    larger the weight is, so that they contradict an equal noise, it is that of a row of weight 1 if
    the weights are whole numbers, and otherwise the mean over the rows, at most that of the squared
    residuals or of the target. The posterior keeps the noise of a row of mean weight, which its
    evidence is of. Where the posterior is not Gaussian, the leave-one-out residuals are those of a
    Gaussian with the same mean and variance.
    """
    fit, data = last.fit, last.problem.rows
    if data.precision is None:
        return last
    loo = fit.loo
    if loo is None:
        job = LeaveOneOut(fit.model.basis, fit.posterior, fit.model.added)
        with np.errstate(over="ignore", invalid="ignore"):  # as below
            loo = _with_precision(data.reduce(job), data)
    weight, precision = loo.weight, data.precision
    counted = weight > 0.0
    nats = _evidence_of_weights(precision, loo, loo.fitted_noise)
    with np.errstate(all="ignore"):  # a ratio that is not a number is not large
        # Without a row of leverage 1 nothing is known there, and its residual says nothing.
        square = np.where(loo.has_rest, np.square(loo.residual), 0.0)
        # Weights over many powers of ten promise more noise for some rows than there is error.
        error = weight @ square / (weight @ loo.has_rest)
        around = loo.y - np.average(loo.y, axis=0, weights=weight)
        most = np.minimum(error, np.average(np.square(around), axis=0, weights=weight))
        mean = np.average(1.0 / precision[counted], weights=weight[counted])
        ratio = np.minimum(mean, most / loo.fitted_noise)
    depends = nats > _BY_CHANCE
    if fit.loo is not None and not np.any(depends):
        # The rows have the noise that a new one has, and are judged by it.
        last = replace(last, fit=replace(fit, loo=loo._replace(noise=loo.fitted_noise)))
    notes = fit.notes
    if data.measurement_precision is not None:
        ratio = np.asarray(1.0 / data.measurement_precision)
        notes += _notes_of_measurements(last.problem, nats, float(ratio))
    factor = np.where(depends & (ratio > 1.0), ratio, 1.0)[()]
    return replace(last, fit=replace(last.fit, noise=fit.noise.scaled(factor), notes=notes))


def _evidence_of_weights(
    precision: np.ndarray, loo: LooPredictions, noise: float | np.ndarray
) -> np.ndarray:
    """Return for each target the nats by which left-out residuals speak for these precisions.

    `noise` is the variance, of each row or of all, that is divided by the precisions or not. Rows
    of leverage 1 do not count.
    """
    shape, weight = loo.gap.shape, loo.weight
    nats = []
    with np.errstate(all="ignore"):  # what is no number says nothing
        of_rows = (loo.residual, loo.spread / loo.rest, noise, (loo.has_rest.T & (weight > 0.0)).T)
        targets = (np.broadcast_to(x, shape).reshape(shape[0], -1).T for x in of_rows)
        for *values, counts in zip(*targets, strict=True):
            rows = np.flatnonzero(counts)
            rows = rows[:: -(-len(rows) // MOST_ROWS) or 1]
            nats.append(_evidence_of_precisions(precision[rows], *(x[rows] for x in values)))
    return np.reshape(nats, shape[1:])


def _evidence_of_precisions(
    precision: np.ndarray, residual: np.ndarray, spread: np.ndarray, noise: np.ndarray
) -> float:
    """Return the nats by which residuals are more probable with the precisions than without them.

    It is NaN for residuals of zero, and for a noise beyond float64 in units of the residuals. Both
    noises are scaled by their most probable factors. The variance of the function is added, and
    residuals have Student's t, so that a few large ones do not decide.
    """
    square = np.square(residual)
    size = np.mean(square) if len(square) else 0.0
    if not 0.0 < size < np.inf:
        return np.nan
    square, spread, noise = square / size, spread / size, noise / size
    best = []
    for level in (noise / precision, noise):

        def density(log_factor: float, level: np.ndarray = level) -> float:
            variance = np.exp(log_factor) * level + spread
            tail = (_TAIL_DF + 1.0) * np.log1p(square / variance / _TAIL_DF)
            return float(-0.5 * np.sum(np.log(variance) + tail))

        middle = -float(np.log(np.mean(level)))
        if not np.isfinite(middle):
            return np.nan
        best.append(maximise(density, middle - 12.0, middle + 3.0, step=1.0, tol=0.01)[1])
    return best[0] - best[1]


def with_noise_of_measurements(last: Round, problem: Problem) -> Round:
    """Return the round with the noise of a single measurement, if rows are means of several.

    The noise of the round is that of the rows. Their weights in the problem that was given are the
    numbers of measurements, if they are whole.
    """
    data = problem.rows
    if data.precision is None or data.measurement_precision is None:
        return last
    nats = _evidence_of_weights(data.precision, last.loo, last.loo.noise_variance)
    # The noise of a row of weight 1, over the mean noise of the rows.
    measurements = data.precision[data.used] / data.measurement_precision
    ratio = float(1.0 / np.mean(1.0 / measurements))
    notes = last.fit.notes + _notes_of_measurements(problem, nats, ratio)
    noise = last.fit.noise.scaled(ratio if nats > _BY_CHANCE else 1.0)
    return replace(last, fit=replace(last.fit, noise=noise, notes=notes))


def _notes_of_measurements(problem: Problem, nats: np.ndarray, ratio: float) -> tuple[Note, ...]:
    """Return a warning where rows are means of measurements, or may be.

    `ratio` is the noise variance of a single measurement over that of a new row otherwise.
    """
    if problem.purpose != "fit":
        return ()
    if np.any(nats > _BY_CHANCE):
        return (Note(_MEANS),)
    if ratio > _MUCH_MORE and np.any(nats > -_BY_CHANCE):
        return (Note(_REPEATS.format(ratio**0.5)),)
    return ()


def input_noise(first: Round, refit: Callable[[Round, Data, Fit], Round] | None) -> Round:
    """Fit two rounds; keep the first if the second has no higher density or a larger error.

    Without `refit` there is one round: the mean is that of one noise level.
    """
    start, first = first, _with_noise(first, varies=True)
    if refit is None or first.fit.noise.model is None or first.problem.reporter.budget.over:
        return first
    # The root: weights from variances that are not known well would follow their errors.
    data = _weighted(first, start, np.sqrt(first.loo.noise_variance))
    second = refit(first, data, first.fit)
    # Weights follow the rows of little noise, and the mean of the others may be lost.
    if not second.mean_square() <= _WORSE**2 * first.mean_square():
        return first
    second = _with_noise(second, varies=True)
    better = second.fit.noise.model is not None and second.score() > first.score()
    return second if better else first


def robust_rounds(method: Method, last: Round, choose_kernel: ChooseKernel) -> Round:
    """Fit rounds with the weights that Student's t gives to residuals, until these settle."""
    first, former = last, np.ones(last.problem.rows.n_rows)
    varies = method.noise.depends_on_inputs
    for number in range(_MOST_ROUNDS):
        last = _student(_with_noise(last, varies))
        tail: Any = last.fit.noise.tail
        u = last.loo.residual / last.std
        weight = (tail.df + 1.0) / (tail.df + (u / tail.scale) ** 2)
        settled = np.mean(np.abs(weight - former)) < _SETTLED
        if number + 1 == _MOST_ROUNDS or settled or last.problem.reporter.budget.over:
            break
        data = _weighted(last, first, last.loo.noise_variance, weight)
        if number == 0 and last.problem.purpose != "trial":
            # Outliers had a part in the kernel of the first fit. The noise of the weighted rows is
            # normal, so trial fits need no rounds of their own.
            normal = replace(method, noise=NoiseSpec())
            problem = choose_kernel(normal, replace(last.problem, data=data, kernel=None))
            last = Round(last.problem, replace(last.fit, kernel=problem.choice))
        # From the start: functions may have been chosen for outliers.
        last = refit_round(method, last, data, previous=None)
        former = weight
    return last.with_tail(_around_function(last, tail))


def _weighted(
    last: Round, first: Round, variance: float | np.ndarray, weight: float | np.ndarray = 1.0
) -> Data:
    """Return the given data with precisions times these weights over these variances.

    `first` is the round of one noise level. Where its residuals are the smaller the larger the
    weights are, but no longer beside the noise model, the model knows what the weights say.
    """
    given, count = first.problem.rows, last.loo.weight
    if given.precision is not None:
        of_level, of_model = (
            _evidence_of_weights(given.precision, loo, noise)
            for loo, noise in (
                (first.loo, first.loo.fitted_noise),
                (last.loo, last.loo.noise_variance),
            )
        )
        if not (of_level > _BY_CHANCE and of_model < -_BY_CHANCE):
            weight = weight * given.precision
    precision, _ = _precisions(variance, count, weight)
    return replace(given, weight=count, precision=precision)


def _precisions(
    variance: float | np.ndarray, count: np.ndarray, weight: float | np.ndarray = 1.0
) -> tuple[np.ndarray, float]:
    """Return weight/variance with mean 1 over all observations, and the variance where it is 1.

    Variances may be infinite, which is beyond float64; no precision is zero.
    """
    variance = np.minimum(variance, np.finfo(np.float64).max)
    smallest = np.min(variance)
    # A variance of zero is one too small for a float.
    ratio = np.divide(smallest, variance, out=np.ones_like(variance), where=variance > 0.0)
    precision = np.maximum(weight * ratio, np.finfo(np.float64).tiny)
    mean = float(count @ precision / np.sum(count))
    return precision / mean, float(smallest / mean)


def _with_noise(last: Round, varies: bool) -> Round:
    """Return the round with the noise that its residuals show: a noise model, or one level."""
    squares, count = last.loo.noise_squares, last.loo.weight
    if varies:
        return _noise_model(last, squares)
    # Residuals that are zero to rounding leave the noise of the fit, which has a floor.
    level = float(count @ squares / np.sum(count)) or float(last.loo.fitted_noise)
    return last.with_noise(Noise(level), level)


def _student(last: Round) -> Round:
    """Return the round with the variance of Student's t, to which outliers contribute little."""
    u, count = last.loo.residual, last.loo.weight
    tail, _ = fit_tail(u / last.std, count)
    noise, factor = last.fit.noise, tail.variance
    last = last.with_noise(noise.scaled(factor), last.loo.noise_variance * factor)
    return last.with_tail(fit_tail(u / last.std, count)[0])


def _noise_model(last: Round, squares: np.ndarray) -> Round:
    """Return the round with a noise model of all rows, or of as many as it needs."""
    report = partial(last.problem.reporter.say, "learning how the noise depends on the inputs")
    report()
    data, predictor, spec = last.problem.rows, last.fit.model, last.problem.spec
    rows = np.flatnonzero(last.loo.weight)
    if len(rows) > MOST_ROWS:
        rng = np.random.default_rng(last.problem.seed)
        rows = np.sort(rng.choice(rows, MOST_ROWS, replace=False))
    X = data.take(rows)
    precomputed = is_option(spec.family, "precomputed")
    n_functions = 0 if spec.family is None else min(len(predictor.basis), _MOST_FUNCTIONS)
    former = last.fit.noise.model
    features = Features(0 if precomputed else X.shape[1], n_functions)
    columns = _noise_columns(last, features, rows)
    count = last.loo.weight[rows]
    choice = None if former is None else former.choice
    noise, cv_variance = fit_noise(
        columns, features, squares[rows], count, last.problem.seed, choice, report
    )
    if not isinstance(noise, NoiseModel):
        return last.with_noise(Noise(noise), noise)
    if len(rows) < data.n_rows:
        variance = _noise_at_rows(last, noise)
        variance[rows] = cv_variance
    else:
        variance = cv_variance
    return last.with_noise(Noise(predictor.posterior.noise_variance, noise), variance)


def _noise_columns(last: Round, features: Features, rows: np.ndarray) -> np.ndarray:
    """Return what the noise at some rows depends on."""
    data, predictor = last.problem.rows, last.fit.model
    X, basis, posterior = data.take(rows), predictor.basis, predictor.posterior
    columns = np.empty((len(rows), features.n_inputs + 1 + features.n_functions))
    means = None
    if _knows_means(last):
        means = (last.loo.y - last.loo.gap)[rows]
        basis = basis.take(np.arange(features.n_functions))
    for part in row_slices(len(rows), 4096):
        last.problem.reporter.say(f"noise at {part.start} of {len(rows)} rows")
        block = np.asarray(X[part], dtype=np.float64)
        Phi = basis(block)
        mean = Phi @ posterior.mean + posterior.intercept if means is None else means[part]
        columns[part] = features.columns(block, mean, Phi)
    return columns


def _knows_means(last: Round) -> bool:
    """Tell whether residuals have the means of so many functions that they are slow to compute."""
    is_small = len(last.fit.model.basis) <= 2 * _MOST_FUNCTIONS
    return (
        not (is_small or last.fit.model.is_local) and len(last.loo.gap) == last.problem.rows.n_rows
    )


def _noise_at_rows(last: Round, noise: NoiseModel) -> np.ndarray:
    """Return the noise variance at all rows."""
    data = last.problem.rows
    if _knows_means(last):
        return noise.of(_noise_columns(last, noise.features, np.arange(data.n_rows)))
    return data.reduce(_NoiseJob(last.fit.model, noise))


@dataclass(frozen=True)
class _NoiseJob:
    """The noise variance at all rows."""

    predictor: Predictor
    noise: NoiseModel

    def read(self, index: int, chunk: Any) -> np.ndarray:
        """Return the variances of one chunk, computed block by block."""
        X, basis, posterior = chunk[0], self.predictor.basis, self.predictor.posterior
        out = np.empty(len(X))
        for rows in row_slices(len(X), 4096):
            block = to_numpy(X[rows]).astype(np.float64, copy=False)
            out[rows] = self.noise.variance(block, basis(block), posterior)
        return out

    def merge(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the variances of two neighbouring chunks."""
        return np.concatenate([left, right])

    def finish(self, total: np.ndarray) -> np.ndarray:
        """Return the variances of all rows."""
        return total


def _around_function(last: Round, tail: Tail) -> Tail:
    """Return the tail of the noise alone, from that of the standardised residuals."""
    loo = last.loo
    noise = np.broadcast_to(loo.noise_variance, loo.gap.shape)
    rows = np.flatnonzero((loo.weight > 0.0) & np.isfinite(noise))
    noise = np.maximum(noise[rows], np.finfo(np.float64).tiny)  # that of 1e-150 may underflow
    function = np.maximum(loo.variance[rows] - noise, 0.0)
    return fit_noise_tail(loo.residual[rows], function, noise, loo.weight[rows], tail)


def settled(method: Method, last: Round) -> Fit:
    """Return the fit of the last round, with its noise and evidence in their final form."""
    fit, loo, data = last.fit, last.fit.loo, last.problem.rows
    if loo is not None and loo.gap.ndim == 1:
        fit = replace(
            fit, conformal=Calibration.from_residuals(loo.residual / last.std, loo.weight)
        )
    if data.precision is not None and not method.noise.robust:
        n_outputs = data.y[:1].size
        logs = data.counts[data.used] @ np.log(data.precision[data.used])
        fit = _shifted(fit, 0.5 * n_outputs * float(logs))
    noise, model = fit.noise, fit.model
    if noise.model is not None:
        at_rows = _noise_at_rows(last, noise.model)
        return replace(fit, noise=replace(noise, at_rows=at_rows))
    if loo is not None and loo.noise is not None:
        if np.ndim(loo.noise):
            noise = replace(noise, at_rows=np.asarray(loo.noise))
        model = model.with_posterior(replace(model.posterior, noise_variance=noise.level))
    return replace(fit, model=model, noise=noise)


def _shifted(fit: Fit, shift: float) -> Fit:
    """Return the fit with a constant added to every log evidence."""
    fit = fit.with_evidence(fit.posterior.log_evidence + shift)
    history, attributes = dict(fit.history), dict(fit.attributes)
    if "log_evidence" in history:
        history["log_evidence"] = history["log_evidence"] + shift
    if "evidence_path_" in attributes:
        attributes["evidence_path_"] = attributes["evidence_path_"] + shift
    return replace(fit, history=history, attributes=attributes)
