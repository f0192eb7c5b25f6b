"""A fit as a value, and the one path that every regressor takes to it.

`fit_with_noise` takes a `Problem` and a function `refit` that solves it for one level of normal
noise, and returns a `Fit`. It knows no estimator. A plain fit is one call of `refit`; its
leave-one-out residuals then say whether the noise has heavy tails and by how much the claimed
variances are too small (`calibrate`).

Noise that is not one normal level takes further rounds. The residuals give the noise variance v of
each row, and the next fit of the mean is a weighted one: a row counts 1/v. The weights are scaled
to sum to the number of observations, so that N in the likelihood stays what it is; then

    log p(y | v) = log p of the weighted rows + 1/2 sum log weight.

``noise_variance="input"``: v(x) from a noise model; two rounds. ``noise_variance`` an array: v as
given; one round. ``likelihood="student"``: the noise is a mixture of normal distributions, and v is
(nu s^2 + r^2)/(nu + 1), the expected variance at a row with residual r; rounds until the weights
settle. See docs/theory/noise.md.

`publish` is the only function that sets the fitted attributes of an estimator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from ._array import to_numpy
from ._warn import warn
from .data import Data
from .designs.candidates import power_of_two
from .kernels import KernelChoice, is_option
from .posterior import Extrapolation, Posterior
from .posterior.left_out import LeftOut
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
from .posterior.predictive import Calibration
from .predict import (
    InputRange,
    Noise,
    PosteriorModel,
    Predictor,
    leave_one_out,
    loo_density,
    positive_root,
    user_coefficients,
)
from .problem import Problem, Units, with_chosen_kernel
from .rows import row_hashes, row_slices
from .rows._base import mix_bits
from .solvers.run import StopReason

COMPARED_ROWS = (
    3000  # up to which kernels are compared by fits, and functions chosen again in folds
)
_MOST_FUNCTIONS = 200  # functions in a noise model, in order of choice: more are only slower
_MOST_ROUNDS = 6  # rounds of a robust fit
_FOLDS = 5  # folds in which functions are chosen again
_ROWS_PER_LENGTH = 5.0  # fewer rows for each length scale are too few for a formula
_NEARLY_INTERPOLATED = 1.0 / 3.0  # functions per row from which rows have functions of their own
_ENOUGH_ROWS = 500  # rows of the folds after which no further fold is fitted
# Calibration factor of the standard deviation above which the model is wrong, not just too sure.
_WRONG_MODEL = 3.0
_MOST_SIGNAL = 4.0  # variance of a process over that of the target, at most
_FAR = 1.5  # standard deviations of the target at which a constant runs away from it
_SETTLED = 0.02  # mean change of robust weights, which are 1 on average, at which they have settled


class Note(NamedTuple):
    """A warning that belongs to a fit; `publish` gives it to the user."""

    message: str
    category: type[Warning] = UserWarning


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of a fit. It does not refer to the problem, so the training rows can be freed.

    Attributes
    ----------
    model : Predictor
        The fitted function.
    active : array of int
        Rows (kernels) or columns of X that carry its functions.
    weight_precision : array or None
        Prior precision of each weight, in the units of the user; None without such a prior.
    kernel : KernelChoice
        The kernel, and how it was chosen.
    noise : Noise
        The distribution of an observation around the function.
    stop_reason : StopReason
        Why the search ended.
    converged : bool
        Whether it ended because there was nothing more to gain.
    n_iter : int
        Number of steps.
    history : dict of arrays
        One entry per step.
    loo : LeftOut, optional
        Leave-one-out predictions; None where there are none in closed form.
    calibration : float or array
        Factor by which the standard deviations of predictions are inflated.
    tail_factor : float or array
        Factor on the scale of the tail, which is in units of those standard deviations.
    conformal : Calibration, optional
        Sizes of the standardised leave-one-out residuals.
    input_range : InputRange, optional
        The range of the training rows.
    attributes : dict
        Public attributes that only this method has.
    extra : dict
        Private values that only this method has.
    notes : tuple of Note
        Warnings for the user.
    """

    model: Predictor
    active: np.ndarray
    weight_precision: Any
    kernel: KernelChoice
    noise: Noise
    stop_reason: StopReason
    converged: bool = True
    n_iter: int = 0
    history: dict[str, np.ndarray] = field(default_factory=dict)
    loo: LeftOut | None = None
    calibration: Any = 1.0
    tail_factor: Any = 1.0
    conformal: Calibration | None = None
    input_range: InputRange | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    @property
    def loo_rows(self) -> LeftOut:
        """The leave-one-out predictions of a fit that has them."""
        assert self.loo is not None
        return self.loo

    @property
    def posterior(self) -> Posterior:
        """The posterior of the weights, before calibration."""
        return self.model.posterior

    @cached_property
    def predictor(self) -> Predictor:
        """The fitted function with calibrated variances."""
        return self.model.scaled(np.square(self.calibration))

    @cached_property
    def predictive_noise(self) -> Noise:
        """The noise of new observations, calibrated."""
        return self.noise.scaled(np.square(self.calibration), self.tail_factor)

    def values(self, X: Any) -> np.ndarray:
        """Return the function at rows X, of a local process its global part."""
        return self.posterior.at(self.model.basis(X))

    def without_calibration(self) -> Fit:
        """Return the fit with the variances that it claims itself."""
        tail = self.noise.tail
        unit = 1.0 if tail is None else 1.0 / np.sqrt(tail.variance)
        return replace(self, calibration=1.0, tail_factor=unit)

    def with_evidence(self, log_evidence: float) -> Fit:
        """Return the fit with another log evidence."""
        posterior = replace(self.posterior, log_evidence=log_evidence)
        return replace(self, model=self.model.with_posterior(posterior))

    def public_attributes(self, n_features: int, of_columns: bool) -> dict[str, Any]:
        """Return the fitted attributes; `of_columns` where candidates are the columns of X."""
        posterior = self.posterior
        out: dict[str, Any] = {
            "basis_": self.model.basis,
            "posterior_": posterior,
            "active_": self.active,
            "noise_variance_": self.noise.at_training_rows,
            "noise_model_": self.noise.model,
            "noise_tail_": self.predictive_noise.tail,
            "log_evidence_": posterior.log_evidence,
            "calibration_": self.calibration,
            "history_": self.history,
            "n_iter_": self.n_iter,
            "converged_": self.converged,
            "stop_reason_": self.stop_reason.value,
            **self.kernel.attributes(),
        }
        if self.weight_precision is not None:
            out["weight_precision_"] = self.weight_precision
        if "coef_" not in self.attributes:
            out |= self._coefficients(n_features, of_columns)
        return out | self.attributes

    def _coefficients(self, n_features: int, of_columns: bool) -> dict[str, Any]:
        """Return coefficients and intercept, and the centres of kernel functions."""
        coef, intercept, _ = user_coefficients(self.model)
        out: dict[str, Any] = {"intercept_": intercept, "coef_": coef.T}
        if of_columns:
            out["coef_"] = np.zeros((*coef.shape[1:], n_features))
            out["coef_"][..., self.active] = coef.T
        elif self.model.basis.centres is not None:
            out["relevance_vectors_"] = self.model.basis.centres
        return out

    def __getstate__(self) -> dict[str, Any]:
        # A saved model keeps its few functions, and nothing as long as the training rows.
        derived = ("predictor", "predictive_noise")
        state = {name: value for name, value in vars(self).items() if name not in derived}
        return {**state, "loo": None, "notes": ()}


Refit = Callable[[Problem], Fit]


@dataclass(frozen=True, eq=False)
class NoiseSpec:
    """What the user asked for: the parameters `noise_variance` and `likelihood`.

    Attributes
    ----------
    variance : {"learn", "input"}, float or array
        The parameter `noise_variance`.
    robust : bool
        Whether the likelihood is Student's t.
    """

    variance: Any = "learn"
    robust: bool = False

    @property
    def learnt(self) -> bool:
        """Whether the noise is estimated from the residuals."""
        return isinstance(self.variance, str)

    @property
    def depends_on_inputs(self) -> bool:
        """Whether the noise variance may depend on the inputs."""
        return is_option(self.variance, "input")

    @property
    def per_row(self) -> bool:
        """Whether the variance of each row is known."""
        return np.ndim(self.variance) > 0

    @property
    def one_level(self) -> bool:
        """Whether all rows have the same noise."""
        return not (self.robust or self.depends_on_inputs or self.per_row)

    @property
    def level(self) -> float | None:
        """The known variance of all rows; None where it is learnt or differs."""
        return None if self.learnt or self.per_row else float(self.variance)

    def check(self) -> None:
        """Raise where `noise_variance` and `likelihood` do not combine."""
        if self.robust and not self.learnt:
            raise ValueError(
                "likelihood='student' learns the size of the noise: use noise_variance='learn' or "
                "'input' with it, or likelihood='gaussian' with a variance that is known."
            )

    def check_target(self, y: Any) -> None:
        """Raise where the target has several columns and this noise is of one."""
        if not self.one_level and np.ndim(y) == 2 and np.shape(y)[1] > 1:
            raise ValueError(
                f"y has {np.shape(y)[1]} columns, and this noise is of one target: fit one model "
                "per column, or use noise_variance='learn' and likelihood='gaussian'."
            )


@dataclass(frozen=True, eq=False)
class Method:
    """How a regressor fits: what `fit_with_noise` needs to know about it.

    Attributes
    ----------
    refit : callable
        Solves a problem for one level of normal noise.
    noise : NoiseSpec
        The noise that the user asked for.
    selects : bool
        Whether functions are selected one by one, so that leave-one-out residuals at fixed
        functions are optimistic and folds must select again.
    follows_process : bool
        Whether a fit with functions at most of the rows is a Gaussian process, which has selected
        nothing.
    frees_intercept : bool
        Whether the constant of a kernel model may run away from the target.
    calibrates_trials : bool
        Whether trial fits are calibrated too, so that kernels are compared with the optimism of
        selecting functions.
    compares : bool
        Whether fitted models decide between kernels.
    process : bool
        Whether the model is a Gaussian process of all rows, whose evidence chooses the kernel.
    feature_names : sequence of str, optional
        Names of the inputs, for warnings.
    """

    refit: Refit
    noise: NoiseSpec
    selects: bool = False
    follows_process: bool = False
    frees_intercept: bool = False
    calibrates_trials: bool = False
    compares: bool = True
    process: bool = False
    feature_names: Any = None


# From a posterior to a fit.


def gaussian_fit(
    posterior: Posterior,
    lam: np.ndarray,
    basis: Any,
    active: np.ndarray,
    *,
    units: Units,
    kernel: KernelChoice,
    data: Data | None,
    added: Any = None,
    loo: LeftOut | None = None,
    **fields: Any,
) -> Fit:
    """Return the fit of a posterior that is in the units of the solver.

    `lam` are the prior precisions times the noise variance, `active` the rows or columns of X that
    carry the functions of `basis`. Leave-one-out predictions are computed from `data` unless they
    are given.
    """
    scale = units.target
    with np.errstate(over="ignore", under="ignore"):
        precision = np.divide.outer(lam, posterior.noise_variance)
    posterior = posterior.rescaled(scale, units.n_observations)
    model = PosteriorModel(basis, posterior, added)
    unit = user_coefficients(model)[2]
    # One factor at a time: the square of an extreme scale overflows float64.
    with np.errstate(over="ignore", under="ignore"):
        precision = ((precision / scale / scale).T / unit / unit).T
    return Fit(
        model,
        active,
        precision,
        kernel,
        Noise(posterior.noise_variance),
        loo=leave_one_out(model, data) if loo is None else loo,
        **fields,
    )


# The kernel.


def with_kernel(method: Method, problem: Problem) -> Problem:
    """Return the problem with its kernel chosen: as given, or learnt from the rows."""

    def score(trial: Problem) -> float:
        return _loo_score(fit_with_noise(method, trial), trial.choice.n_lengths)

    compares = method.compares and len(problem.rows.used) <= COMPARED_ROWS
    return with_chosen_kernel(
        problem,
        score if compares else None,
        process=method.process,
        names=method.feature_names,
    )


def _loo_score(fit: Fit, n_lengths: int) -> float:
    """Return the mean leave-one-out log density of the standardised target, penalised.

    The penalty is that of the length scales, which have seen all rows: a nat each (Akaike), and
    more where there are few rows for each, as in the small-sample form of that criterion.
    """
    loo = fit.loo
    if loo is None:
        return np.nan
    y, weight = loo.y, loo.weight
    mean = np.average(y, axis=0, weights=weight)
    variance = np.average((y - mean) ** 2, axis=0, weights=weight)
    density = np.average(loo_density(loo, fit.noise.tail), weights=weight)
    freedom = np.sum(weight) - n_lengths - 1.0
    penalty = n_lengths / freedom if freedom > 0.0 else np.inf
    return float(density + 0.5 * np.sum(np.log(variance)) - penalty)


# Rounds of fits, with the noise that the residuals of the last one show.


class _Round(NamedTuple):
    """A fit, and the problem that it solves."""

    problem: Problem
    fit: Fit

    @property
    def loo(self) -> LeftOut:
        return self.fit.loo_rows

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of a new observation at each row, left out."""
        return positive_root(self.loo.variance)

    def score(self) -> float:
        """Return the leave-one-out log density of all rows."""
        return float(self.loo.weight @ loo_density(self.loo, self.fit.noise.tail))

    def with_noise(self, noise: Noise, variance: Any) -> _Round:
        """Return the round with this noise, of this variance at the rows."""
        fit = replace(self.fit, noise=noise, loo=self.loo._replace(noise=variance))
        return self._replace(fit=fit)

    def with_tail(self, tail: Tail | None) -> _Round:
        return self._replace(fit=replace(self.fit, noise=replace(self.fit.noise, tail=tail)))


def fit_with_noise(method: Method, problem: Problem) -> Fit:
    """Fit a problem whose noise is as `method.noise` describes it, and calibrate the variances."""
    noise = method.noise
    noise.check_target(problem.rows.y)
    if noise.per_row and problem.purpose == "fit":
        problem = _with_known_variances(problem, noise)
    if problem.kernel is None:
        problem = with_kernel(method, problem)
    last = _solve(method, problem)
    if last.fit.loo is None:  # not a Gaussian posterior
        return last.fit
    if noise.learnt and not noise.one_level and not 0.0 < last.loo.fitted_noise < np.inf:
        raise ValueError(
            "y is too large or too small: squared residuals over- or underflow float64, and the "
            "noise is estimated from them. Rescale y."
        )
    if noise.per_row:
        last = _with_variance_of_rows(last, noise)
    elif noise.robust:
        last = _robust(method, last)
    elif noise.depends_on_inputs:
        last = _input_noise(last, lambda data, fit: _refit(method, last, data, fit))
    elif noise.learnt:
        last = last.with_tail(_tail(last))
    fit = _settled(method, last)
    if problem.purpose == "fit":
        fit = _with_extrapolation(last.problem, fit)
    if problem.purpose != "trial" or method.calibrates_trials:
        fit = calibrate(method, last, fit)
    return fit


def _solve(method: Method, problem: Problem) -> _Round:
    """Fit one round; precisions are how well rows are known, not how often they are there."""
    fit = method.refit(problem)
    if method.frees_intercept and _intercept_runs_away(problem, fit):
        problem = replace(problem, hold_intercept=True)
        fit = method.refit(problem)
    precision = problem.rows.precision
    if fit.loo is not None and precision is not None:
        loo = fit.loo._replace(precision=precision, weight=fit.loo.weight / precision)
        fit = replace(fit, loo=loo)
    return _Round(problem, fit)


def _intercept_runs_away(problem: Problem, fit: Fit) -> bool:
    """Tell whether the constant of a stationary kernel model lies far outside the target.

    Kernel functions that overlap are nearly constant together where there are rows, so that a
    constant with a flat prior and their weights can cancel. Away from the rows only the constant
    remains.
    """
    data = problem.rows
    if not (problem.fit_intercept and data.in_memory) or problem.hold_intercept:
        return False
    if not problem.design.stationary or fit.posterior.mean.ndim > 1:
        return False
    y = data.y[data.used]
    away = np.abs(user_coefficients(fit.model)[1] - np.mean(y))
    return bool(away > _FAR * np.std(y)) and len(fit.active) > 0


def _refit(method: Method, last: _Round, data: Data, previous: Fit | None) -> _Round:
    """Fit the next round, with the kernel of the last one."""
    problem = replace(
        last.problem,
        data=data,
        kernel=last.fit.kernel,
        noise_variance=None,
        previous=previous,
        purpose="trial" if last.problem.purpose == "trial" else "round",
    )
    found = _solve(method, problem)
    return found.with_noise(last.fit.noise, found.loo.noise)


def _with_known_variances(problem: Problem, noise: NoiseSpec) -> Problem:
    """Return the problem with the precision of each row, whose noise variance was given."""
    data = problem.rows
    variance = np.asarray(noise.variance, dtype=np.float64)
    if variance.shape != (data.n_rows,) or not np.all((variance > 0.0) & np.isfinite(variance)):
        raise ValueError(
            f"noise_variance has shape {variance.shape}, but y has {data.n_rows} values: give one "
            "positive variance per row, one number for all, 'learn' or 'input'."
        )
    precision, level = _precisions(variance, data.counts)
    data = replace(data, weight=data.counts, precision=precision)
    return replace(problem, data=data, noise_variance=level)


def _with_variance_of_rows(last: _Round, noise: NoiseSpec) -> _Round:
    """Return the round with the known variance of each row; a new row has their mean."""
    data, level = last.problem.rows, last.problem.noise_variance
    assert level is not None
    assert data.precision is not None
    variance = np.asarray(noise.variance, dtype=np.float64)
    if last.problem.purpose == "trial":  # of some of the rows
        variance = level / data.precision
    mean = float(data.counts @ variance / np.sum(data.counts))
    return last.with_noise(Noise(mean, at_rows=variance), variance)


def _input_noise(first: _Round, refit: Callable[[Data, Fit], _Round]) -> _Round:
    """Fit two rounds; keep the first where the second predicts rows left out no better."""
    first = _with_noise(first, varies=True)
    if first.fit.noise.model is None:
        return first
    # The root: weights from variances that are not known well would follow their errors.
    second = _with_noise(
        refit(_weighted(first, np.sqrt(first.loo.noise_variance)), first.fit), True
    )
    better = second.fit.noise.model is not None and second.score() > first.score()
    return second if better else first


def _robust(method: Method, last: _Round) -> _Round:
    """Fit rounds with the weights that Student's t gives to residuals, until these settle."""
    former = np.ones(last.problem.rows.n_rows)
    varies = method.noise.depends_on_inputs
    for number in range(_MOST_ROUNDS):
        last = _student(_with_noise(last, varies, tail=False))
        tail: Any = last.fit.noise.tail
        u = last.loo.residual / last.std
        weight = (tail.df + 1.0) / (tail.df + (u / tail.scale) ** 2)
        if number + 1 == _MOST_ROUNDS or np.mean(np.abs(weight - former)) < _SETTLED:
            break
        data = _weighted(last, last.loo.noise_variance / weight)
        if number == 0 and last.problem.purpose != "trial":
            # Outliers had a part in the kernel of the first fit. The noise of the weighted rows is
            # normal, so trial fits need no rounds of their own.
            normal = replace(method, noise=NoiseSpec())
            problem = with_kernel(normal, replace(last.problem, data=data, kernel=None))
            last = _Round(last.problem, replace(last.fit, kernel=problem.choice))
        # From the start: functions may have been chosen for outliers.
        last = _refit(method, last, data, previous=None)
        former = weight
    return last.with_tail(_around_function(last, tail))


def _weighted(last: _Round, variance: np.ndarray) -> Data:
    """Return the data with precisions from these variances of the rows."""
    count = last.loo.weight
    precision, _ = _precisions(variance, count)
    return replace(last.problem.rows, weight=count, precision=precision)


def _precisions(variance: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, float]:
    """Return 1/variance scaled to mean 1 over all observations, and the variance where it is 1."""
    smallest = np.min(variance)
    precision = smallest / variance
    mean = float(count @ precision / np.sum(count))
    return precision / mean, float(smallest / mean)


def _with_noise(last: _Round, varies: bool, tail: bool = True) -> _Round:
    """Return the round with the noise that its residuals show: a noise model, or one level."""
    squares, count = last.loo.noise_squares, last.loo.weight
    if varies:
        last = _noise_model(last, squares)
    else:
        # Residuals that are zero to rounding leave the noise of the fit, which has a floor.
        level = float(count @ squares / np.sum(count)) or float(last.loo.fitted_noise)
        last = last.with_noise(Noise(level), level)
    return last.with_tail(_tail(last)) if tail else last


def _student(last: _Round) -> _Round:
    """Return the round with the variance of Student's t, to which outliers contribute little."""
    u, count = last.loo.residual, last.loo.weight
    tail, _ = fit_tail(u / last.std, count)
    noise, factor = last.fit.noise, tail.variance
    last = last.with_noise(noise.scaled(factor), last.loo.noise_variance * factor)
    return last.with_tail(fit_tail(u / last.std, count)[0])


def _noise_model(last: _Round, squares: np.ndarray) -> _Round:
    """Return the round with a noise model of all rows, or of as many as it needs."""
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
    columns = np.empty((len(rows), features.n_inputs + 1 + n_functions))
    for part in row_slices(len(rows), 4096):
        block = np.asarray(X[part], dtype=np.float64)
        columns[part] = features.columns(block, predictor.basis(block), predictor.posterior)
    count = last.loo.weight[rows]
    choice = None if former is None else former.choice
    noise, outside = fit_noise(columns, features, squares[rows], count, last.problem.seed, choice)
    if not isinstance(noise, NoiseModel):
        return last.with_noise(Noise(noise), noise)
    variance = data.reduce(_NoiseJob(predictor, noise))
    variance[rows] = outside
    return last.with_noise(Noise(predictor.posterior.noise_variance, noise), variance)


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


def _tail(last: _Round) -> Tail | None:
    """Return Student's t, where the residuals have heavy tails."""
    u = last.loo.residual / last.std
    if u.ndim > 1:
        return None
    rows = slice(None, None, -(-len(u) // MOST_ROWS))
    tail, gain = fit_tail(u[rows], last.loo.weight[rows])
    return _around_function(last, tail) if gain > WORTH else None


def _around_function(last: _Round, tail: Tail) -> Tail:
    """Return the tail of the noise alone, from that of the standardised residuals."""
    loo = last.loo
    rows = np.flatnonzero(loo.weight)
    noise = np.broadcast_to(loo.noise_variance, loo.gap.shape)[rows]
    function = np.maximum(loo.variance[rows] - noise, 0.0)
    return fit_noise_tail(loo.residual[rows], function, noise, loo.weight[rows], tail)


def _settled(method: Method, last: _Round) -> Fit:
    """Return the fit of the last round, with its noise and evidence in their final form."""
    fit, loo, precision = last.fit, last.loo, last.problem.rows.precision
    if loo.gap.ndim == 1:
        fit = replace(
            fit, conformal=Calibration.from_residuals(loo.residual / last.std, loo.weight)
        )
    if precision is not None and not method.noise.robust:
        counted = loo.weight > 0
        fit = _shifted(fit, 0.5 * float(loo.weight[counted] @ np.log(precision[counted])))
    noise, model = fit.noise, fit.model
    if noise.model is not None:
        at_rows = last.problem.rows.reduce(_NoiseJob(model, noise.model))
        return replace(fit, noise=replace(noise, at_rows=at_rows))
    if loo.noise is not None:
        if np.ndim(loo.noise):
            noise = replace(noise, at_rows=loo.noise)
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


def _with_extrapolation(problem: Problem, fit: Fit) -> Fit:
    """Return the fit with the variance of its process beyond the box of the training rows."""
    data, model, kernel = problem.rows, fit.model, problem.kernel_function
    if not isinstance(model, PosteriorModel) or model.added is not None or kernel is None:
        return fit
    if not problem.design.stationary:
        return fit
    y, level = data.y[data.used], fit.noise.level
    amplitude = np.maximum(np.var(y, axis=0) - level, 0.0)
    if problem.choice.noise_to_signal > 0.0:
        amplitude = np.maximum(amplitude, level / problem.choice.noise_to_signal)
    amplitude = np.minimum(amplitude, _MOST_SIGNAL * np.var(y, axis=0))
    added = Extrapolation(kernel, *data.box(), amplitude)
    return replace(fit, model=replace(model, added=added))


# Calibration of the variances by leave-one-out residuals.


def calibrate(method: Method, last: _Round, fit: Fit) -> Fit:
    """Return the fit with a calibration that its leave-one-out residuals do not contradict.

    All variances of predictions are multiplied by a factor of at least 1, which leaves the mean
    where it is. The factor is the variance of the standardised leave-one-out residuals, corrected
    for the optimism of learning length scales and of selecting functions on the same rows. The
    hyperparameters and their evidence stay those of the fit. Quantiles and conformal intervals come
    from residuals, and are corrected for the optimism alone.
    """
    shown = _residual_variance(last)
    optimism = _optimism(method, last)
    factor = np.asarray(shown * optimism)
    factor = np.where(np.isfinite(factor), np.maximum(factor, 1.0), 1.0)[()]
    residual_factor = np.sqrt(optimism / factor)
    conformal = fit.conformal
    if conformal is not None:
        conformal = replace(conformal, sizes=conformal.sizes * residual_factor)
    loo, notes = fit.loo_rows, fit.notes
    if np.max(factor) > _WRONG_MODEL**2:
        advice = "give noise_variance" if method.noise.learnt else "give a larger noise_variance"
        message = (
            f"New observations are predicted {np.sqrt(np.max(factor)):.2g} times less accurately "
            "than the fitted model claims: it interpolates the rows, or its functions do not suit "
            "them. The intervals have been widened by this factor. Learn the length scales "
            f"(gamma='ard'), {advice}, or compare with another model."
        )
        notes = (*notes, Note(message))
    return replace(
        fit,
        notes=notes,
        calibration=np.sqrt(factor),
        tail_factor=residual_factor,
        conformal=conformal,
        loo=loo._replace(
            spread=loo.spread * factor,
            fitted_noise=loo.fitted_noise * factor,
            added=loo.added * factor,
            noise=None if loo.noise is None else loo.noise * factor,
        ),
    )


def _residual_variance(last: _Round) -> Any:
    """Return the variance of the standardised leave-one-out residuals, which should be 1.

    Where they have heavy tails it is that of Student's t, from which quantiles are taken: of few
    rows the mean of the squares estimates it badly.
    """
    tail = last.fit.noise.tail
    return _mean_square(last) if tail is None else tail.variance


def _mean_square(last: _Round) -> Any:
    """Return the mean square of the standardised leave-one-out residuals."""
    count = last.loo.weight
    with np.errstate(over="ignore", invalid="ignore"):  # `calibrate` checks that it is finite
        return count @ np.square(last.loo.residual / last.std) / np.sum(count)


def _optimism(method: Method, last: _Round) -> Any:
    """Return by how much more the variance is too small than the residuals show.

    Length scales have seen all rows, and so has the selection of functions. Where there are few
    rows for each length scale, folds learn them again.
    """
    n = last.loo.gap[:1].size * float(np.sum(last.loo.weight))
    m = 0.0 if last.problem.purpose == "trial" else float(last.fit.kernel.n_lengths)
    relearn = _ROWS_PER_LENGTH * m > n
    folds = _optimism_of_folds(method, last, relearn)
    # A variance estimated from n residuals: a new one over its root has Student's t of n degrees.
    estimated = n / (n - 2.0) if n > 2.0 else 1.0
    if folds is not None and relearn:
        return estimated * folds
    return estimated * _optimism_of_length_scales(n, m) * (1.0 if folds is None else folds)


def _optimism_of_length_scales(n: float, m: float) -> float:
    """Return how much larger the square of a new residual is after m length scales were learnt.

    Akaike's final prediction error: of n residuals after m parameters were fitted, a new one has
    (n + m)/(n - m) times the mean square. Targets that share length scales share the optimism. No
    more than half of the rows count as parameters: most length scales are infinite then.
    """
    m = min(m, 0.5 * n)
    return (n + m) / (n - m)


def _has_selected(method: Method, last: _Round) -> bool:
    """Tell whether the functions of this fit were selected for its rows."""
    return method.selects and not (method.follows_process and _functions_per_row(last) > 0.5)


def _functions_per_row(last: _Round) -> float:
    """Return the number of functions over that of observations."""
    return len(last.fit.active) / np.count_nonzero(last.loo.weight)


def _optimism_of_folds(method: Method, last: _Round, relearn: bool) -> Any:
    """Return by how much the squared errors in folds exceed what the residuals show; None without.

    A precision for each weight lets a function fit the very row that it is centred on, and a row
    that is left out at fixed functions still has that function. On Boston the residuals are 1.6
    thousand dollars where new ones are 2.8. Fits without a fold select functions again, at the same
    length scales or at scales learnt again, and predict the rows of the fold.
    """
    n = last.problem.rows.n_rows
    if not (relearn or _has_selected(method, last)) or not 2 * _FOLDS <= n <= COMPARED_ROWS:
        return None
    data = last.problem.rows.loaded()
    count, p = last.loo.weight, data.precision
    fold = _folds(data, count, last.problem.seed)
    if np.max(fold) < 0:
        return None
    problem = replace(last.problem, kernel=last.fit.kernel)
    if relearn:
        spec = replace(problem.spec, family=problem.choice.family, gamma="ard")
        problem = replace(problem, spec=spec, kernel=None)
    y, size = data.y, power_of_two(np.max(np.abs(data.y), axis=0))
    weight = count if p is None else count * p
    pairwise = is_option(last.problem.spec.family, "precomputed")
    squares, claimed, n_new = 0.0, 0.0, 0.0  # over the rows of the folds
    for f in range(_FOLDS):
        inside, outside = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        rows = data.subset(inside, pairwise)
        trial = problem.fold(rows)
        part = method.refit(with_kernel(method, trial) if relearn else trial)
        new = data.X[np.ix_(outside, inside)] if pairwise else data.X[outside]
        mean, spread, _ = part.model.moments(new)
        noise = part.posterior.noise_variance
        variance = spread + (noise if p is None else noise / p[outside])
        # Sums, not a mean of ratios, which one row with a tiny claimed variance would dominate.
        squares = squares + weight[outside] @ np.square((y[outside] - mean) / size)
        claimed = claimed + weight[outside] @ (variance / size / size)
        n_new += np.sum(count[outside])
        if n_new >= _ENOUGH_ROWS:
            break
    if _functions_per_row(last) > _NEARLY_INTERPOLATED:
        # Nearly interpolated, each fold in its own way: what folds claim is not what this fit does.
        # A function of its own fits each row of an RVM; a process has no such functions.
        own = last.loo.spread + last.loo.fitted_noise * (1.0 if p is None else 1.0 / p)
        own = own if _has_selected(method, last) else last.loo.variance
        claimed = n_new / np.sum(count) * (weight @ (own / size / size))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        factor = squares / np.asarray(claimed) / _mean_square(last)
    return np.where(np.isfinite(factor), np.maximum(factor, 1.0), 1.0)[()]


def _folds(data: Data, count: np.ndarray, seed: int) -> np.ndarray:
    """Return the fold of each row: -1 for rows without weight, and for all where few rows differ.

    Equal rows with equal targets are in one fold, so that weights and repetition mean the same.
    """
    counted = np.flatnonzero(count)
    targets = data.y[counted].reshape(len(counted), -1)
    rows = mix_bits(row_hashes(data.X[counted])) ^ row_hashes(targets)
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    number = np.argsort(np.argsort(first))[inverse.ravel()]
    fold, n = np.full(data.n_rows, -1), int(np.max(number, initial=-1)) + 1
    if n >= 2 * _FOLDS:
        fold[counted] = np.random.default_rng(seed).permutation(n)[number] % _FOLDS
    return fold


# Fitted attributes.

_OF_INPUTS = ("n_features_in_", "feature_names_in_")


class FittedValue(Protocol):
    """The result of a fit, of a target or of labels."""

    @property
    def notes(self) -> tuple[Note, ...]:
        """Warnings for the user."""

    def public_attributes(self, n_features: int, of_columns: bool) -> dict[str, Any]:
        """Return the fitted attributes; `of_columns` where candidates are the columns of X."""


def publish(estimator: Any, fit: FittedValue) -> None:
    """Set the fitted attributes of an estimator, and give the warnings of the fit to the user.

    Nothing else in the package sets them.
    """
    former = [n for n in vars(estimator) if n.endswith("_") and not n.startswith("_")]
    for name in former:
        if name not in _OF_INPUTS:
            delattr(estimator, name)
    attributes = fit.public_attributes(estimator.n_features_in_, estimator.kernel is None)
    vars(estimator).update(attributes)
    estimator._fitted = fit
    for note in fit.notes:
        warn(*note)
