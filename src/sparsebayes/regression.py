"""The one path that every regressor takes from a problem to a fit.

`fit_with_noise` takes a `Problem` and a `Method`, whose function `refit` solves the problem for one
level of normal noise, and returns a `Fit`. It knows no estimator. A plain fit is one call of
`refit`; other noise takes further rounds (`noise_rounds.py`). The leave-one-out residuals then say
whether the noise has heavy tails and by how much the claimed variances are too small
(`calibration.py`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from scipy.sparse import issparse

from ._array import to_numpy
from .calibration import MOST_ROWS, calibrate, order_notes, outlier_notes
from .data import Data
from .fitting import ConstantTarget, Fit, Method, Note, attempt
from .kernels import Box, is_option
from .noise_rounds import (
    MANY_ROWS,
    input_noise,
    refit_round,
    robust_rounds,
    settled,
    solve_round,
    with_known_variances,
    with_noise_of_measurements,
    with_noise_of_weights,
    with_variance_of_rows,
)
from .posterior import Explored, Extrapolation, LeaveOneOut, Unlike, process_variance
from .predict import loo_density, with_extrapolation
from .problem import Problem, with_chosen_kernel

_CHECKED = 3  # training rows that are predicted to see that variances are numbers
_MOST_SIGNAL = 4.0  # variance of a process over that of the target, at most
_MOST_EXPLORED, _MOST_NUMBERS = 1000, 2**22  # rows, and numbers, that say where rows are rare
_MOST_COMPARED = 500  # rows of a kernel matrix with which new rows are compared


def with_kernel(method: Method, problem: Problem) -> Problem:
    """Return the problem with its kernel chosen: as given, or learnt from the rows."""

    # One noise level suffices to compare kernels, in a third of the time of the rounds.
    comparison = method
    if method.noise.depends_on_inputs:
        comparison = replace(method, noise=replace(method.noise, variance="learn"))

    def score(trial: Problem) -> float:
        fit = attempt(partial(fit_with_noise, comparison), trial)
        return np.nan if fit is None else _loo_score(fit, trial.choice.n_lengths)

    compares = method.compares and len(problem.rows.used) <= MOST_ROWS
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


def fit_with_noise(method: Method, problem: Problem) -> Fit:
    """Fit a problem whose noise is as `method.noise` describes it, and calibrate the variances."""
    noise = method.noise
    noise.check_target(problem.rows.y)
    notes: tuple[Note, ...] = ()
    if noise.per_row and problem.purpose == "fit":
        problem, notes = with_known_variances(problem, noise)
    if problem.kernel is None:
        problem = with_kernel(method, problem)
    last = solve_round(method, problem)
    last = replace(last, fit=replace(last.fit, notes=(*last.fit.notes, *notes)))
    if last.fit.loo is None:  # not a Gaussian posterior, or one of independent weights
        last = with_noise_of_weights(last) if noise.learnt else last
        fit = settled(method, last)
        if problem.purpose == "fit":
            _check_variances(problem.rows, fit)
            fit = _with_error_notes(method, last.problem, fit)
        return _with_factors_note(last.problem, fit)
    if noise.learnt and not noise.one_level and not 0.0 < last.loo.fitted_noise < np.inf:
        raise ValueError(
            "y is too large or too small: squared residuals overflow or underflow float64. "
            "Rescale y, for example with TransformedTargetRegressor."
        )
    if noise.per_row:
        last = with_variance_of_rows(last, noise)
    elif noise.robust:
        last = with_noise_of_measurements(robust_rounds(method, last, with_kernel), problem)
    elif noise.depends_on_inputs:
        is_large = method.process == "exact" and len(problem.rows.used) > MANY_ROWS
        refit = None if is_large else partial(refit_round, method)
        last = with_noise_of_measurements(input_noise(last, refit), problem)
    elif noise.learnt:
        last = with_noise_of_weights(last)
    if noise.learnt and last.fit.noise.tail is None:
        last = last.with_tail(last.residual_tail)
    fit = settled(method, last)
    if problem.purpose == "fit":
        fit = _with_extrapolation(last.problem, fit)
        if noise.learnt and np.all(np.ptp(problem.rows.y[problem.rows.used], axis=0) == 0.0):
            message = (
                "The target is constant. Every prediction is that value, and its standard "
                "deviation is meaningless."
            )
            return replace(fit, notes=(Note(message, ConstantTarget),))
    if problem.purpose != "trial" or method.calibrates_trials:
        fit = calibrate(method, last, fit, with_kernel)
    if problem.purpose == "fit":
        _check_variances(problem.rows, fit)
    return fit.within_budget(problem.reporter) if problem.purpose == "fit" else fit


def _check_variances(data: Data, fit: Fit) -> None:
    """Raise a ValueError where float64 cannot represent the variance of a prediction.

    The leave-one-out predictions, where there are any, have the variance at every row. What
    overflows on the way to a variance that does not is seen where some rows are predicted, which
    takes another pass over rows in blocks: these are left out.
    """
    added = fit.predictor.added
    beyond = None if added is None else added.extrapolation
    with np.errstate(over="ignore", invalid="ignore"):
        spread = 0.0 if fit.loo is None else fit.loo.spread
        largest = spread + (0.0 if beyond is None else beyond.amplitude + beyond.shift)
        finite = np.all(np.isfinite(largest + fit.predictive_noise.level))
        if data.in_memory:
            X = data.take(np.arange(min(data.n_rows, _CHECKED)))
            X = np.asarray(X.toarray() if issparse(X) else to_numpy(X), dtype=np.float64)
            finite = finite and np.all(np.isfinite(fit.predictor.moments(X)[1]))
    if not finite:
        raise ValueError(
            "The variance of predictions overflows float64: y is too large, or too large in "
            "comparison with the columns of X. Rescale y, for example with "
            "sklearn.compose.TransformedTargetRegressor."
        )


def _with_error_notes(method: Method, problem: Problem, fit: Fit) -> Fit:
    """Return the fit of a posterior that is not Gaussian, with warnings of its errors.

    Its leverages are no shares of a row in its own prediction, so its errors are those of the fit.
    """
    if not method.noise.learnt or method.noise.robust:
        return fit
    with np.errstate(all="ignore"):  # only the errors of the fit matter here
        loo = problem.rows.reduce(LeaveOneOut(fit.model.basis, fit.posterior, fit.model.added))
        loo = loo._replace(spread=np.zeros_like(loo.spread), added=0.0)
    notes = (*order_notes(loo), *outlier_notes(problem.reporter.name, loo))
    return replace(fit, notes=(*fit.notes, *notes))


def _with_factors_note(problem: Problem, fit: Fit) -> Fit:
    """Return the fit, with a warning where independent weights belong to overlapping functions."""
    is_kernel = problem.spec.family is not None
    if problem.purpose != "fit" or not is_kernel or not fit.posterior.form.independent:
        return fit
    message = (
        f"{problem.reporter.name}: the weights of {len(fit.active)} overlapping kernel functions "
        "are treated as independent, and there are no leave-one-out residuals to calibrate the "
        "standard deviations. Intervals may be much too narrow. Use variance='exact', with at most "
        "1,000 functions."
    )
    return replace(fit, notes=(*fit.notes, Note(message)))


def _with_extrapolation(problem: Problem, fit: Fit) -> Fit:
    """Return the fit with the variance of its process far from the training rows.

    The mean returns to the constant there, and the process to the mean of the target: the square of
    their difference counts as well.
    """
    data, model, kernel = problem.rows, fit.model, problem.kernel_function
    if not model.takes_extrapolation:
        return fit
    (mean, variance), level = data.target_moments, fit.noise.level
    amplitude = np.maximum(variance - level, 0.0)
    if is_option(problem.spec.family, "precomputed"):
        unlike = _unlike(data, float(np.mean(level)), amplitude)
        return fit if unlike is None else replace(fit, model=model.with_added(unlike))
    if kernel is None or not problem.design.stationary:
        return fit
    box, rows, X = _sample(data)
    count = data.counts[rows]
    precision = None if data.precision is None else data.precision[rows]
    if problem.choice.noise_to_signal > 0.0:
        amplitude = np.maximum(amplitude, level / problem.choice.noise_to_signal)
    elif np.ndim(amplitude) == 0 and 0.0 < level < np.inf and 0.0 < amplitude < np.inf:
        weight = count if precision is None else count * precision
        amplitude = process_variance(kernel, X, data.y[rows], weight, level, amplitude)
    amplitude = np.minimum(amplitude, _MOST_SIGNAL * variance)
    signal = float(np.mean(amplitude))
    noise = float(np.mean(level)) / signal if 0.0 < signal < np.inf else 0.0
    explored = None
    if 0.0 < noise < np.inf:
        explored = Explored.from_rows(kernel, X, count, precision, noise)
    beyond = Extrapolation(kernel, box, amplitude, explored, mean)
    return replace(fit, model=with_extrapolation(model, beyond))


def _sample(data: Data) -> tuple[Box, np.ndarray, np.ndarray]:
    """Return the box of the training rows, and the numbers and inputs of some of them."""
    rows = data.used
    most = min(_MOST_EXPLORED, max(1, _MOST_NUMBERS // data.X.shape[1]))
    rows = rows[:: -(-len(rows) // most)]
    box, X = data.summary_and_rows(Box.of, rows)
    return box, rows, X


def _unlike(data: Data, level: float, amplitude: np.ndarray) -> Unlike | None:
    """Return the variance at rows unlike those of a kernel matrix; None where nothing is known."""
    rows, signal = data.used, float(np.mean(amplitude))
    if not isinstance(data.X, np.ndarray) or not (0.0 < level < np.inf and 0.0 < signal < np.inf):
        return None
    rows = rows[:: -(-len(rows) // _MOST_COMPARED)]
    K = np.asarray(data.X[np.ix_(rows, rows)], dtype=np.float64)
    scale = float(np.mean(np.diag(K)))
    with np.errstate(over="ignore", divide="ignore"):
        amplitude = amplitude / scale
    if not np.all(np.isfinite(amplitude)):
        return None
    return Unlike.from_matrix(K, level / signal * scale, amplitude, rows)
