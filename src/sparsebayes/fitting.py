"""A fit as a value: the settings of a regressor, its result, and its fitted attributes.

A `Fit` holds everything that predictions, attributes and warnings need, and nothing that depends on
an estimator. `Method` and `NoiseSpec` describe how a regressor fits and which noise was requested;
`regression.fit_with_noise` turns them and a `Problem` into a `Fit`. `publish` is the only function
that sets the fitted attributes of an estimator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from ._array import Array, PerTarget
from ._warn import warn
from .callbacks import Reporter
from .data import Data
from .designs import Basis
from .input_range import InputRange
from .kernels import KernelChoice, ProcessKind, is_option
from .posterior import AddedVariance, Posterior
from .posterior.leave_one_out import Calibration, LooPredictions
from .predict import (
    Noise,
    PosteriorModel,
    Predictor,
    leave_one_out,
    user_coefficients,
)
from .problem import Problem, Units
from .rows._base import Report
from .solvers.noise import noise_floor
from .solvers.run import Result, S, Solution, StopReason


class Note(NamedTuple):
    """A warning that belongs to a fit; `publish` gives it to the user."""

    message: str
    category: type[Warning] = UserWarning


P = TypeVar("P")
F = TypeVar("F")


def attempt(refit: Callable[[P], F], problem: P) -> F | None:
    """Return a trial fit, or None where it fails.

    A trial on a part of the rows may meet a problem that the whole data do not have. What would
    break the fit itself is reported by the fit itself.
    """
    try:
        return refit(problem)
    except (ArithmeticError, ValueError):  # LinAlgError is a ValueError
        return None


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
    loo : LooPredictions, optional
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
    weight_precision: np.ndarray | None
    kernel: KernelChoice
    noise: Noise
    stop_reason: StopReason
    converged: bool = True
    n_iter: int = 0
    history: dict[str, np.ndarray] = field(default_factory=dict)
    loo: LooPredictions | None = None
    calibration: PerTarget = 1.0
    tail_factor: PerTarget = 1.0
    conformal: Calibration | None = None
    input_range: InputRange | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    @property
    def loo_rows(self) -> LooPredictions:
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
        with np.errstate(over="ignore"):  # an infinite variance is refused by the fit
            return self.model.scaled(np.square(self.calibration))

    @cached_property
    def predictive_noise(self) -> Noise:
        """The noise of new observations, calibrated."""
        with np.errstate(over="ignore"):
            return self.noise.scaled(np.square(self.calibration), self.tail_factor)

    def values(self, X: Array) -> np.ndarray:
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

    def within_budget(self, reporter: Reporter) -> Fit:
        """Return the fit with a warning where some part of it was cut short."""
        changes = cut_short(self, reporter)
        return replace(self, converged=False, **changes) if changes else self

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
        out |= self.attributes
        if "coef_std_" in out:  # calibrated like the standard deviations of predictions
            out["coef_std_"] = (out["coef_std_"].T * self.calibration).T
        return out

    def _coefficients(self, n_features: int, of_columns: bool) -> dict[str, Any]:
        """Return coefficients and intercept, and the centres of kernel functions."""
        coef, intercept, unit = user_coefficients(self.model)
        out: dict[str, Any] = {"intercept_": intercept, "coef_": coef.T}
        if of_columns:
            std = self.posterior.weight_std.T * unit
            for name, values in (("coef_", coef.T), ("coef_std_", std)):
                out[name] = np.zeros((*values.shape[:-1], n_features))
                out[name][..., self.active] = values
        elif self.model.basis.centres is not None:
            out["relevance_vectors_"] = self.model.basis.centres
        return out

    def __getstate__(self) -> dict[str, Any]:
        # A saved model keeps its few functions, and nothing as long as the training rows.
        derived = ("predictor", "predictive_noise")
        state = {name: value for name, value in vars(self).items() if name not in derived}
        return {**state, "loo": None, "notes": ()}


def cut_short(fit: Any, reporter: Reporter) -> dict[str, Any]:
    """Return the fields that say that a fit, which has converged, was cut short; else none."""
    if not reporter.budget.reason or not fit.stop_reason.converged:
        return {}
    reason = StopReason(reporter.budget.reason)
    message = (
        f"{reporter.name} has not converged ({reason}): its length scales, its noise or its "
        f"calibration would have taken longer. {reason.advice}"
    )
    notes = (*fit.notes, Note(message, ConvergenceWarning))
    return {"stop_reason": reason, "notes": notes}


Refit = Callable[[Problem], Fit]


@dataclass(frozen=True, eq=False)
class NoiseSpec:
    """The noise as requested: the parameters `noise_variance` and `likelihood`.

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
        """True where the noise is estimated from the residuals."""
        return isinstance(self.variance, str)

    @property
    def depends_on_inputs(self) -> bool:
        """True where the noise variance may depend on the inputs."""
        return is_option(self.variance, "input")

    @property
    def per_row(self) -> bool:
        """True where the variance of each row is known."""
        return np.ndim(self.variance) > 0

    @property
    def one_level(self) -> bool:
        """True where all rows have the same noise."""
        return not (self.robust or self.depends_on_inputs or self.per_row)

    @property
    def level(self) -> float | None:
        """The known variance of all rows; None where it is learnt or differs."""
        return None if self.learnt or self.per_row else float(self.variance)

    def check(self) -> None:
        """Raise where `noise_variance` and `likelihood` do not combine."""
        if self.robust and not self.learnt:
            raise ValueError(
                "likelihood='student' estimates the noise, so it requires "
                "noise_variance='learn' or 'input'. Use likelihood='gaussian' with a known "
                "variance."
            )

    def check_target(self, y: ArrayLike) -> None:
        """Raise where the target has several columns and this noise is of one."""
        if not self.one_level and np.ndim(y) == 2 and np.shape(y)[1] > 1:
            raise ValueError(
                f"y has {np.shape(y)[1]} columns, but these noise settings support one "
                "target. Fit one model per column, or use noise_variance='learn' and "
                "likelihood='gaussian'."
            )


@dataclass(frozen=True, eq=False)
class Method:
    """How a regressor fits: what `fit_with_noise` needs to know about it.

    Attributes
    ----------
    refit : callable
        Solves a problem for one level of normal noise.
    noise : NoiseSpec
        The noise that the user requested.
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
    process : {"", "exact", "local"}
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
    process: ProcessKind = ""
    feature_names: Sequence[str] | None = None


# From a posterior to a fit.


def gaussian_fit(
    posterior: Posterior,
    lam: np.ndarray,
    basis: Basis,
    active: np.ndarray,
    *,
    units: Units,
    kernel: KernelChoice,
    data: Data | None,
    added: AddedVariance | None = None,
    loo: LooPredictions | None = None,
    report: Report | None = None,
    **fields: Any,
) -> Fit:
    """Return the fit of a posterior that is in the units of the solver.

    `lam` are the prior precisions times the noise variance, `active` the rows or columns of X that
    carry the functions of `basis`. Leave-one-out predictions are computed from `data` unless they
    are given; `report` receives the number of rows read.
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
        loo=leave_one_out(model, data, report) if loo is None else loo,
        **fields,
    )


def solution_fit(problem: Problem, result: Result[S], solution: Solution, **fields: Any) -> Fit:
    """Return the fit of the solution that a solver ended at."""
    posterior, active = solution.posterior, solution.active
    fields = {
        **run_fields(problem, result),
        "notes": convergence_notes(problem, result, posterior),
        **fields,
    }
    return gaussian_fit(
        replace(posterior, offset=problem.offset),
        solution.lam,
        problem.design.basis(active),
        problem.labels[active],
        units=problem.units,
        kernel=problem.choice,
        data=problem.data,
        **fields,
    )


def run_fields(problem: Problem, result: Result[S]) -> dict[str, Any]:
    """Return what a fit reports about the steps of its solver, as fields of the fit."""
    return {
        "history": problem.to_user(result.history),
        "n_iter": result.n_iter,
        "converged": result.converged,
        "stop_reason": result.stop_reason,
    }


# Warnings.

_HARDLY_ANY = 1e-5  # noise over the variance of the target: it is determined, not measured


def convergence_notes(
    problem: Problem, result: Result[S], posterior: Posterior
) -> tuple[Note, ...]:
    """Return the warning of a search that has not converged."""
    if result.converged:
        return ()
    design = problem.design
    noise = posterior.noise_variance * design.n_observations
    signal = np.maximum(np.sum(problem.t**2, axis=0), np.finfo(np.float64).tiny)
    advice = _advice(problem, result.stop_reason, float(np.min(noise / signal)))
    message = (
        f"{problem.reporter.name} has not converged ({result.stop_reason}) after "
        f"{result.n_iter} steps. {advice}"
    )
    return (Note(message, ConvergenceWarning),)


def _advice(problem: Problem, reason: StopReason, noise: float) -> str:
    """Return what to do about a fit that ended for this reason.

    To `reason.advice` comes a sentence that depends on the problem: it does not advise what the
    user has done already. `noise` is the noise variance as a share of the variance of the target.
    """
    learnt = problem.noise_variance is None
    if reason is StopReason.MAX_ITER and not learnt:
        return f"{reason.advice} A noise_variance that is far too small also has this effect."
    if reason not in (StopReason.AT_BOUND, StopReason.STALLED):
        return reason.advice
    return f"{reason.advice} {_advice_on_digits(problem, noise, learnt)}"


def _advice_on_digits(problem: Problem, noise: float, learnt: bool) -> str:
    """Return advice on columns that are nearly equal in float64."""
    design, spec = problem.design, problem.spec
    if learnt and noise < _HARDLY_ANY:
        share = f"The noise variance is {noise:.0e} of the variance of the target: "
        if problem.kernel_function is not None and design.n_candidates < design.n_rows:
            return (
                f"{share}duplicate rows make the noise look smaller than it is. Drop them, or "
                "pass noise_variance."
            )
        return (
            f"{share}the inputs nearly determine the target. If that is unexpected, look for "
            "an input that was derived from the target (leakage) and drop it; otherwise pass "
            "noise_variance."
        )
    if not learnt:
        return "A larger noise_variance improves the conditioning."
    if spec.family is None:
        return "Drop columns that are nearly linear combinations of others."
    if is_option(spec.gamma, "evidence", "ard"):
        return (
            "The learnt length scales make the kernel functions nearly equal. Pass a "
            "multiple of gamma_ above 1 as gamma."
        )
    if is_option(spec.family, "precomputed"):
        return "Use a kernel matrix of higher rank."
    return "Use a narrower kernel (larger gamma)."


class ConstantTarget(ConvergenceWarning):
    """A target of one value, from which neither the noise nor an effect can be learnt."""


def noise_floor_notes(problem: Problem, noise_variance: float | np.ndarray) -> tuple[Note, ...]:
    """Return a warning where the learnt noise variance (of the user) ended at its floor."""
    scale, n = problem.units.target, problem.units.n_observations
    if noise_variance / scale / scale > 1.5 * noise_floor(problem.t, n):
        return ()
    if np.max(np.abs(problem.t), initial=0.0) < 1e-12:
        what = "The target is constant"
    else:
        what = "The model explains the target up to rounding errors"
    message = (
        f"{what}: the noise variance of {problem.reporter.name} is at its smallest value, "
        "1e-10 of the mean square of the centred target. A column may determine the target, "
        "or rows may be duplicates. Pass noise_variance if you know it."
    )
    return (Note(message, ConvergenceWarning),)


# Fitted attributes.

_OF_INPUTS = ("n_features_in_", "feature_names_in_")


class FittedValue(Protocol):
    """The result of a fit, of a target or of labels."""

    @property
    def notes(self) -> tuple[Note, ...]:
        """Warnings for the user."""

    def public_attributes(self, n_features: int, of_columns: bool) -> dict[str, Any]:
        """Return the fitted attributes; `of_columns` where candidates are the columns of X."""


def publish(estimator: Any, fit: FittedValue, inputs: Mapping[str, Any] | None = None) -> None:
    """Set the fitted attributes of an estimator, and give the warnings of the fit to the user.

    `inputs` are the attributes of the inputs, if another estimator has read them. Nothing else in
    the package sets fitted attributes.
    """
    vars(estimator).update(inputs or {})
    former = [n for n in vars(estimator) if n.endswith("_") and not n.startswith("_")]
    for name in former:
        if name not in _OF_INPUTS:
            delattr(estimator, name)
    attributes = fit.public_attributes(estimator.n_features_in_, estimator.kernel is None)
    vars(estimator).update(attributes)
    estimator._fitted = fit
    for note in fit.notes:
        warn(*note)
