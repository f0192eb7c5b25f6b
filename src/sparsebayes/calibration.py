"""Calibration: variances of predictions that leave-one-out residuals do not contradict.

Length scales and functions are chosen on the rows whose residuals judge them, so that these are
optimistic. Where a formula does not say by how much, fits without a fold choose again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .data import Data
from .designs.candidates import power_of_two
from .fitting import Fit, Method, Note
from .kernels import is_option
from .noise_rounds import ChooseKernel, Round
from .rows import row_hashes
from .rows._base import mix_bits

MOST_ROWS = 3000  # up to which functions are chosen again in folds
_FOLDS = 5  # folds in which functions are chosen again
_ROWS_PER_LENGTH = 5.0  # fewer rows for each length scale are too few for a formula
_NEARLY_INTERPOLATED = 1.0 / 3.0  # functions per row from which rows have functions of their own
_ENOUGH_ROWS = 500  # rows of the folds after which no further fold is fitted
# Calibration factor of the standard deviation above which the model is wrong, not just too sure.
_WRONG_MODEL = 3.0


def calibrate(method: Method, last: Round, fit: Fit, choose_kernel: ChooseKernel) -> Fit:
    """Return the fit with a calibration that its leave-one-out residuals do not contradict.

    All variances of predictions are multiplied by a factor of at least 1, which leaves the mean
    where it is. The factor is the variance of the standardised leave-one-out residuals, corrected
    for the optimism of learning length scales and of selecting functions on the same rows. The
    hyperparameters and their evidence stay those of the fit. Quantiles and conformal intervals come
    from residuals, and are corrected for the optimism alone.
    """
    shown = _residual_variance(last)
    optimism = _optimism(method, last, choose_kernel)
    # A variance estimated from n residuals: a new one over its root has Student's t of n degrees.
    n = float(np.sum(last.loo.weight))
    if n > 2.0:
        optimism = np.where(shown * optimism > 1.0, n / (n - 2.0), 1.0) * optimism
    factor = np.asarray(shown * optimism)
    factor = np.where(np.isfinite(factor), np.maximum(factor, 1.0), 1.0)[()]
    residual_factor = np.sqrt(optimism / factor)
    # It is known to a few per cent; the digits beyond are those of the order of the rows.
    factor = np.round(factor, 4)
    conformal = fit.conformal
    if conformal is not None:
        conformal = replace(conformal, sizes=conformal.sizes * residual_factor)
    loo, notes = fit.loo_rows, fit.notes
    if np.max(factor) > _WRONG_MODEL**2:
        advice = "Pass noise_variance" if method.noise.learnt else "Pass a larger noise_variance"
        if last.problem.spec.on_rows and not last.fit.kernel.learnt:
            advice += ", learn the length scales (gamma='ard')"
        message = (
            f"The leave-one-out errors are {np.sqrt(np.max(factor)):.2g} times as large as "
            "the standard deviations of the fitted model, so it overfits or its kernel does "
            f"not suit the data. The intervals were widened by this factor. {advice}, or try "
            "another model."
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


def _residual_variance(last: Round) -> Any:
    """Return the variance of the standardised leave-one-out residuals, which should be 1.

    Where they have heavy tails it is that of Student's t, from which quantiles are taken: of few
    rows the mean of the squares estimates it badly.
    """
    tail = last.fit.noise.tail
    return _mean_square(last) if tail is None else tail.variance


def _mean_square(last: Round) -> Any:
    """Return the mean square of the standardised leave-one-out residuals."""
    count = last.loo.weight
    with np.errstate(over="ignore", invalid="ignore"):  # `calibrate` checks that it is finite
        return count @ np.square(last.loo.residual / last.std) / np.sum(count)


def _optimism(method: Method, last: Round, choose_kernel: ChooseKernel) -> Any:
    """Return by how much more the variance is too small than the residuals show.

    Length scales have seen all rows, and so has the selection of functions. Where there are few
    rows for each length scale, folds learn them again.
    """
    n = last.loo.gap[:1].size * float(np.sum(last.loo.weight))
    m = 0.0 if last.problem.purpose == "trial" else float(last.fit.kernel.n_lengths)
    relearn = _ROWS_PER_LENGTH * m > n
    folds = _optimism_of_folds(method, last, choose_kernel if relearn else None)
    if folds is not None and relearn:
        return folds
    return _optimism_of_length_scales(n, m) * (1.0 if folds is None else folds)


def _optimism_of_length_scales(n: float, m: float) -> float:
    """Return how much larger the square of a new residual is after m length scales were learnt.

    Akaike's final prediction error: of n residuals after m parameters were fitted, a new one has
    (n + m)/(n - m) times the mean square. Targets that share length scales share the optimism. No
    more than half of the rows count as parameters: most length scales are infinite then.
    """
    m = min(m, 0.5 * n)
    return (n + m) / (n - m)


def _has_selected(method: Method, last: Round) -> bool:
    """Tell whether the functions of this fit were selected for its rows."""
    return method.selects and not (method.follows_process and _functions_per_row(last) > 0.5)


def _functions_per_row(last: Round) -> float:
    """Return the number of functions over that of observations."""
    return len(last.fit.active) / np.count_nonzero(last.loo.weight)


def _optimism_of_folds(method: Method, last: Round, relearn: ChooseKernel | None) -> Any:
    """Return by how much the squared errors in folds exceed what the residuals show; None without.

    A precision for each weight lets a function fit the very row that it is centred on, and a row
    that is left out at fixed functions still has that function. On Boston the residuals are 1.6
    thousand dollars where new ones are 2.8. Fits without a fold select functions again, at the same
    length scales or at scales learnt again, and predict the rows of the fold.
    """
    n = last.problem.rows.n_rows
    if not (relearn is not None or _has_selected(method, last)) or not 2 * _FOLDS <= n <= MOST_ROWS:
        return None
    data = last.problem.rows.loaded()
    count, p = last.loo.weight, data.precision
    fold = _folds(data, count, last.problem.seed)
    if np.max(fold) < 0:
        return None
    problem = replace(last.problem, kernel=last.fit.kernel)
    if relearn is not None:
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
        part = method.refit(trial if relearn is None else relearn(method, trial))
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
        own = last.loo.spread + last.loo.noise_variance
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
