"""Calibration: variances of predictions that leave-one-out residuals do not contradict.

Length scales and functions are chosen on the rows whose residuals judge them, so that these are
optimistic. If there is no formula for the optimism, it is estimated by fits without a fold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from .data import Data, is_discrete
from .designs.candidates import power_of_two
from .fitting import Fit, Method, Note, attempt
from .input_range import InputRange
from .kernels import Box, is_option
from .noise_rounds import ChooseKernel, Round
from .posterior import Extrapolation, LooPredictions
from .predict import positive_root, with_extrapolation
from .problem import Problem
from .rows import row_hashes
from .rows._base import mix_bits

MOST_ROWS = 3000  # up to which functions are chosen again in folds
_FOLDS = 5  # folds in which functions are chosen again
# Rows up to which there are twice as many folds: a fifth of few rows is missed, above all where
# there is little noise.
_FEW_ROWS = 300
_ROWS_PER_LENGTH = 5.0  # fewer rows for each length scale are too few for a formula
# Functions per different row from which rows have functions of their own.
_NEARLY_INTERPOLATED = 1.0 / 3.0
# Most functions of a fold: a factor on those of the fit, and some more. A path beyond its highest
# evidence only takes time, and folds of 60 to 2,000 rows of Friedman's function select at most 1.5
# times as many functions as the fit.
_LONGER, _FURTHER = 2.0, 10
_ENOUGH_ROWS = 500  # rows of the folds after which no further fold is fitted
# Calibration factor of the standard deviation above which the model is wrong, not just too sure.
_WRONG_MODEL = 3.0
# Share of the squared errors in few rows without which standard deviations were half as large. Of
# fewer rows a single one may have it by chance.
_MOST_OF_ERROR, _FEW, _ENOUGH_FOR_OUTLIERS = 0.75, 0.01, 10
# Correlation of successive errors from which a fit warns, at least and in standard errors; and how
# far from half the share of targets above the last one is where rows are in their order.
_CORRELATED, _CHANCE, _SORTED = 0.3, 4.0, 0.4
_FAR_OUTSIDE = 1.0  # distance of a row from the range of the other rows, over that range
_MOSTLY_NOISE = 0.5  # mean square of the errors, over the noise variance
_NO_ERROR = 1e-3  # relative error that is no longer told from zero
_FEWEST_JUDGES = 10  # observations whose mean square says something
_NOMINAL, _BY_CHANCE = 0.05, 4.0  # share outside of 95 % intervals, and standard errors beyond it
_MOST_KNOWN = 20_000  # inputs of `partial_fit` that are recognised when they come again
_ADVICE = "Try another kernel or model, or pass noise_variance if you know it."


def calibrate(method: Method, last: Round, fit: Fit, choose_kernel: ChooseKernel) -> Fit:
    """Return the fit with a calibration that its leave-one-out residuals do not contradict.

    All variances of predictions are multiplied by a factor of at least 1, which leaves the mean
    where it is. The factor is the variance of the standardised leave-one-out residuals, corrected
    for the optimism of learning length scales and of selecting functions on the same rows. The
    hyperparameters and their evidence stay those of the fit. Quantiles and conformal intervals come
    from residuals, and are corrected for the optimism alone.
    """
    shown = _residual_variance(last)
    optimism, far = _optimism(method, last, choose_kernel)
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
    loo, notes = fit.loo_rows, (*fit.notes, *far)
    if np.max(factor) > _WRONG_MODEL**2:
        advice = "Try another kernel or model"
        if last.problem.spec.on_rows and not last.fit.kernel.learnt:
            advice = "Learn the length scales (gamma='auto'), try another kernel or model"
        noise = (
            "noise_variance if you know it" if method.noise.learnt else "a larger noise_variance"
        )
        advice += f", or pass {noise}."
        name = last.problem.reporter.name
        notes = (*notes, Note(_wrong_model(name, "leave-one-out errors", np.max(factor), advice)))
    notes = (*notes, *order_notes(last.loo))
    if method.noise.learnt and not method.noise.robust:
        notes = (*notes, *outlier_notes(last.problem.reporter.name, last.loo))
    share = _share_outside(last)
    if share > _NOMINAL + _BY_CHANCE * np.sqrt(_NOMINAL * (1.0 - _NOMINAL) / max(n, 1.0)):
        message = (
            f"{last.problem.reporter.name}: the leave-one-out errors are outside the 95 % "
            f"intervals in {share:.0%} of the rows, because the target has more outliers than "
            "Student's t describes. Use predict_interval(X, calibrated='conformal')."
        )
        notes = (*notes, Note(message))
    with np.errstate(over="ignore"):  # an infinite variance is refused by the fit
        loo = loo._replace(
            spread=loo.spread * factor,
            fitted_noise=loo.fitted_noise * factor,
            added=loo.added * factor,
            noise=None if loo.noise is None else loo.noise * factor,
        )
    return replace(
        fit,
        notes=notes,
        calibration=np.sqrt(factor),
        tail_factor=residual_factor,
        conformal=conformal,
        loo=loo,
    )


def _share_outside(last: Round) -> float:
    """Return the share of leave-one-out residuals outside their 95 % intervals, with a heavy tail.

    Without one the variance of the residuals is that of the intervals, and the share is near 5 %.
    """
    tail = last.fit.noise.tail
    if tail is None:
        return 0.0
    count = last.loo.weight
    most = tail.scale * student.ppf(1.0 - 0.5 * _NOMINAL, tail.df)
    return float(count @ (np.abs(last.loo.residual / last.std) > most) / np.sum(count))


def order_notes(loo: LooPredictions) -> tuple[Note, ...]:
    """Return the warning of errors that are correlated from row to row.

    So they are where noise is correlated in time, or where rows of a subject with an effect of its
    own follow each other. Rows in the order of their targets have such errors whatever the model.
    """
    has_rest = np.all(np.reshape(loo.has_rest, (len(loo.y), -1)), axis=1)
    used = np.flatnonzero(has_rest & (loo.weight > 0.0))
    y = loo.y.reshape(len(loo.y), -1)[used]
    with np.errstate(all="ignore"):  # a correlation that is no number is not large
        errors = (loo.residual / positive_root(loo.variance)).reshape(len(loo.y), -1)[used]
        errors = errors - np.mean(errors, axis=0)
        products = np.sum(errors[1:] * errors[:-1], axis=0)
        correlation = products / np.sum(np.square(errors), axis=0)
    upwards = np.mean(np.diff(y, axis=0) >= 0.0, axis=0) if len(used) > 1 else 0.0
    unsorted = np.abs(upwards - 0.5) < _SORTED
    by_chance = _CHANCE / np.sqrt(max(len(used), 1))
    if not np.any(unsorted & (correlation > max(_CORRELATED, by_chance))):
        return ()
    message = (
        "The errors of successive rows are strongly correlated. If rows are in the order of time, "
        "or those of a subject follow each other, the intervals hold for rows in between, and may "
        "be too narrow for another time or subject: cross-validate by period or by subject."
    )
    return (Note(message),)


def outlier_notes(name: str, loo: LooPredictions) -> tuple[Note, ...]:
    """Return the warning of a few rows that make the standard deviations of all rows too large.

    These are rows with most of the squared standardised leave-one-out errors: the fit bends towards
    an outlier. Where the errors of the fit are much smaller than the noise, as on data without
    noise, no row has made the noise variance.
    """
    count, y = loo.weight, loo.y.reshape(len(loo.y), -1)
    if np.sum(count) < _ENOUGH_FOR_OUTLIERS:
        return ()
    with np.errstate(all="ignore"):  # a share that is no number is not large
        errors = np.where(loo.has_rest, loo.residual / positive_root(loo.variance), 0.0)
        squares = count * np.square(errors.reshape(y.shape)).T  # one row for each target
        gaps = np.square((loo.gap / positive_root(loo.noise_variance)).reshape(y.shape))
        most = max(1, int(_FEW * len(y)))
        order = np.argsort(squares, axis=1)[:, ::-1][:, :most]
        total = np.sum(squares, axis=1)
        largest = np.take_along_axis(squares, order, axis=1)
        shares = np.cumsum(largest, axis=1) / total[:, None]
    mostly_noise = count @ gaps > _MOSTLY_NOISE * np.sum(count)
    shares = np.where(mostly_noise[:, None], shares, 0.0)
    target = int(np.argmax(shares[:, -1]))
    if not shares[target, -1] > _MOST_OF_ERROR:
        return ()
    few = 1 + int(np.argmax(shares[target] > _MOST_OF_ERROR))
    share = float(shares[target, few - 1])
    rows = "One row has" if few == 1 else f"{few} of the rows have"
    without = np.sqrt(1.0 - share)  # error of all other rows, over the standard deviations
    times = f"{1.0 / without:.2g}" if without > _NO_ERROR else f"more than {1.0 / _NO_ERROR:.0f}"
    message = (
        f"{name}: {rows} {share:.0%} of the squared errors; the largest is at a target of "
        f"{float(y[order[target, 0], target]):.6g}. The standard deviations of all other rows are "
        f"{times} times as large as their errors. Check these rows, or use likelihood='student' "
        "where it is available."
    )
    return (Note(message),)


def _wrong_model(name: str, errors: str, factor: float, advice: str) -> str:
    """Return the warning of a fit whose variances are too small by a large factor."""
    return (
        f"{name}: the {errors} are {np.sqrt(factor):.2g} times as large as the predicted "
        "standard deviations, so the model overfits or does not suit the data. The intervals "
        f"were widened by this factor. {advice}"
    )


def _residual_variance(last: Round) -> float | np.ndarray:
    """Return the variance of the standardised leave-one-out residuals, which should be 1.

    Where they have heavy tails it is that of Student's t, from which quantiles are taken: of few
    rows the mean of the squares estimates it badly.
    """
    tail = last.fit.noise.tail
    return _mean_square(last) if tail is None else tail.variance


def _mean_square(last: Round) -> float | np.ndarray:
    """Return the mean square of the standardised leave-one-out residuals."""
    count = _judges(last)
    with np.errstate(over="ignore", invalid="ignore"):  # `calibrate` checks that it is finite
        return count @ np.square(last.loo.residual / last.std) / np.sum(count)


def _judges(last: Round) -> np.ndarray:
    """Return the weights with which rows judge the variances.

    Where most rows have a function, the others are fitted as if the functions represented them up
    to the noise. If the process varies more than that between the functions, it is these others
    that are predicted as new rows are: without one of the rows that has a function, the fit bends
    to reach them. If these are few, all rows judge: the mean square of a handful says little.
    """
    loo, count = last.loo, last.loo.weight
    between = np.broadcast_to(loo.added, loo.gap.shape) > loo.noise_variance
    if loo.gap.ndim > 1 or np.sum(count[between]) < _FEWEST_JUDGES:
        return count
    return count * between


def _optimism(
    method: Method, last: Round, choose_kernel: ChooseKernel
) -> tuple[float | np.ndarray, tuple[Note, ...]]:
    """Return by how much more the variance is too small than the residuals show, and warnings.

    Length scales have seen all rows, and so has the selection of functions. Where there are few
    rows for each length scale, folds learn them again.
    """
    n = last.loo.gap[:1].size * float(np.sum(last.loo.weight))
    m = 0.0 if last.problem.purpose == "trial" else float(last.fit.kernel.n_lengths)
    relearn = _ROWS_PER_LENGTH * m > n
    folds = _optimism_of_folds(method, last, choose_kernel if relearn else None)
    if folds is not None:
        factor, notes = folds
        return factor if relearn else factor * _optimism_of_parameters(n, m), notes
    if last.problem.purpose != "trial" and last.problem.spec.on_rows:
        # Folds learn the noise and the variance of the function again. Here they are parameters.
        m += 2.0 if method.noise.learnt else 1.0
    return _optimism_of_parameters(n, m), ()


def _optimism_of_parameters(n: float, m: float) -> float:
    """Return how much larger the square of a new residual is after m parameters were learnt.

    Akaike's final prediction error: of n residuals after m parameters were fitted, a new one has
    (n + m)/(n - m) times the mean square. Targets that share length scales share the optimism. No
    more than half of the rows count as parameters: most length scales are infinite then.
    """
    m = min(m, 0.5 * n)
    return (n + m) / (n - m)


def _has_selected(method: Method, last: Round, per_row: float, replicated: bool) -> bool:
    """Tell whether the functions of this fit, `per_row` for each row, were selected for its rows.

    With functions for more than half of the rows it is a Gaussian process, and none is selected;
    but not with a kernel matrix, which does not say how much a new row varies by itself, nor with a
    kernel of few functions, such as a polynomial, where inputs are replicated. These functions are
    determined by nearly as few inputs, and a row that is left out leaves others with its inputs.
    """
    is_process = not (_is_pairwise(last) or (replicated and not last.problem.design.stationary))
    follows = method.follows_process and is_process
    return method.selects and not (follows and per_row > 0.5)


def _is_pairwise(last: Round) -> bool:
    """Tell whether the rows are those of a kernel matrix."""
    return is_option(last.problem.spec.family, "precomputed")


def _optimism_of_folds(
    method: Method, last: Round, relearn: ChooseKernel | None
) -> tuple[float | np.ndarray, tuple[Note, ...]] | None:
    """Return by how much the squared errors in folds exceed what the residuals show, and warnings.

    A precision for each weight lets a function fit the very row that it is centred on, and a row
    that is left out at fixed functions still has that function. On Boston the residuals are 1.6
    thousand dollars where new ones are 2.8. Fits without a fold select functions again, at the same
    length scales or at scales learnt again, and predict the rows of the fold. None without folds.
    """
    n = last.problem.rows.n_rows
    if not (method.selects or relearn is not None) or not 2 * _FOLDS <= n <= MOST_ROWS:
        return None
    data = last.problem.rows.loaded()
    distinct = _distinct_inputs(data, data.used)
    per_row = len(last.fit.active) / len(distinct.first)
    selected = _has_selected(method, last, per_row, distinct.replicated)
    if not selected and relearn is None:
        return None
    fold = _folds(data, last.loo.weight, last.problem.seed, more=relearn is None)
    if np.max(fold) < 0:
        return None
    found = _errors_of_folds(method, last, relearn, data, fold)
    count, weight, size = last.loo.weight, _fold_weight(last, data), _target_size(data)
    inside = found.outside < 0
    judges = found.predicted & inside
    n_judges = float(np.sum(count[judges]))
    if n_judges == 0.0:
        return None
    interpolates = per_row > _NEARLY_INTERPOLATED
    own = last.loo.variance
    if interpolates and selected:
        # A function of its own fits each row of an RVM; a process has no such functions.
        own = last.loo.spread + last.loo.noise_variance
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        own = n_judges / np.sum(count[inside]) * (weight[inside] @ (own / size / size)[inside])
        # Where rows are nearly interpolated, each fold does so in its own way, and what folds claim
        # is not what this fit does. Elsewhere both are claims of the method, which differ as folds
        # keep more or fewer functions.
        # Sums, not a mean of ratios, which one row with a tiny claimed variance would dominate.
        claimed = weight[judges] @ found.claimed[judges]
        claimed = own if interpolates else 0.5 * (claimed + own)
        factor = weight[judges] @ found.squares[judges] / np.asarray(claimed) / _mean_square(last)
    factor = np.where(np.isfinite(factor), np.maximum(factor, 1.0), 1.0)[()]
    return factor, _far_notes(last.problem, data, found)


class _FoldErrors(NamedTuple):
    """Errors of rows that are each predicted by a fit without its fold."""

    predicted: np.ndarray  # whether the row was predicted
    squares: np.ndarray  # squared errors, in units of `_target_size`
    claimed: np.ndarray  # variances that the fits claimed
    outside: np.ndarray  # as `_far_input` returns them


def _errors_of_folds(
    method: Method, last: Round, relearn: ChooseKernel | None, data: Data, fold: np.ndarray
) -> _FoldErrors:
    """Fit without each fold, at the same length scales or at scales learnt again."""
    problem = replace(last.problem, kernel=last.fit.kernel)
    if relearn is not None:
        spec = replace(problem.spec, family=problem.choice.family, gamma="ard")
        problem = replace(problem, spec=spec, kernel=None)
    y, size, p = data.y, _target_size(data), data.precision
    weight, n_folds = _fold_weight(last, data), int(np.max(fold)) + 1
    pairwise = _is_pairwise(last)
    most_terms = int(_LONGER * len(last.fit.active)) + _FURTHER
    predicted, outside = np.zeros(len(y), dtype=bool), np.full(len(y), -1)
    squares, claimed = np.zeros(y.shape), np.zeros(y.shape)
    for f in range(n_folds):
        if problem.reporter.budget.over:
            break
        problem.reporter.say(f"fitting without fold {f + 1} of {n_folds}")
        train, test = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        if np.sum(weight[train]) <= 2.0:  # nearly all of the weight is in this fold
            continue
        rows = data.subset(train, pairwise)
        trial = problem.fold(rows, most_terms)
        part = attempt(method.refit, trial if relearn is None else relearn(method, trial))
        if part is None:
            continue
        new = data.X[np.ix_(test, train)] if pairwise else data.X[test]
        mean, spread, _ = part.model.moments(new)
        noise = part.posterior.noise_variance
        with np.errstate(over="ignore", invalid="ignore"):  # checked at the end
            variance = spread + (noise if p is None else np.multiply.outer(1.0 / p[test], noise))
            squares[test] = np.square((y[test] - mean) / size)
            claimed[test] = variance / size / size
        predicted[test] = True
        if isinstance(new, np.ndarray) and not pairwise:
            outside[test] = _far_input(new, rows.box())
        if last.loo.weight @ predicted >= _ENOUGH_ROWS:
            break
    return _FoldErrors(predicted, squares, claimed, outside)


def _far_input(X: np.ndarray, box: Box) -> np.ndarray:
    """Return for each row an input in which it is far outside the box of others, -1 without one.

    A function is extrapolated there to any value. One mistyped cell would widen the intervals of
    all other rows, which it says nothing about.
    """
    with np.errstate(over="ignore"):
        margin = _FAR_OUTSIDE * (box.high - box.low)
        margin[margin == 0.0] = np.inf  # a value that no other row has may be a level
        far = (X < box.low - margin) | (X > box.high + margin)
    return np.where(far.any(axis=1), np.argmax(far, axis=1), -1)


def _far_notes(problem: Problem, data: Data, found: _FoldErrors) -> tuple[Note, ...]:
    """Return the warning of a row far outside the range of the others, which miss its target.

    Stationary kernels have a variance of their own there, which a fold does not have.
    """
    rows = np.flatnonzero(found.predicted & (found.outside >= 0))
    if len(rows) == 0 or problem.design.stationary:
        return ()
    with np.errstate(all="ignore"):  # a ratio that is no number is not large
        ratio = np.sqrt(found.squares / found.claimed).reshape(data.n_rows, -1)[rows].max(axis=1)
    i = int(np.argmax(ratio))
    if not ratio[i] > _WRONG_MODEL:
        return ()
    row, column = rows[i], found.outside[rows[i]]
    message = (
        f"{problem.reporter.name}: row {row} of X is far outside the range of the other rows "
        f"(input {column} is {data.X[row, column]:.6g}). A fit without it misses its target by "
        f"{ratio[i]:.2g} standard deviations, so it does not count in the calibration of the "
        "others. Check this row, or transform the input."
    )
    return (Note(message),)


class _DistinctInputs(NamedTuple):
    hashes: np.ndarray  # of the inputs of each row
    first: np.ndarray  # the first row of each different input
    replicated: bool  # whether inputs that are not discrete are there several times


def _distinct_inputs(data: Data, rows: np.ndarray) -> _DistinctInputs:
    """Return which of these rows have the same inputs."""
    hashes = row_hashes(data.X[rows])
    _, first, total = np.unique(hashes, return_index=True, return_counts=True)
    repeated = len(first) < len(rows)
    replicated = repeated and not is_discrete(data, rows[first], total)
    return _DistinctInputs(hashes, rows[first], replicated)


def _fold_weight(last: Round, data: Data) -> np.ndarray:
    """Return the weight of each row in the sums over folds: its count times its precision."""
    return last.loo.weight if data.precision is None else last.loo.weight * data.precision


def _target_size(data: Data) -> np.ndarray:
    """Return a power of two near the largest target: the squares of extreme targets overflow."""
    return power_of_two(np.max(np.abs(data.y), axis=0))


def _folds(data: Data, count: np.ndarray, seed: int, more: bool) -> np.ndarray:
    """Return the fold of each row: -1 for rows without weight, and for all where few rows differ.

    There are five folds, or twice as many of few rows if `more` may be fitted.

    Equal rows with equal targets are in one fold, so that weights and repetition mean the same.
    Where inputs that are not discrete have several targets (repeated measurements), all rows with
    the same inputs are in one fold: new rows have inputs of their own, and a fit that has seen
    these inputs says nothing about the function between them.
    """
    counted = np.flatnonzero(count)
    distinct = _distinct_inputs(data, counted)
    inputs = mix_bits(distinct.hashes)
    if not distinct.replicated:
        inputs = inputs ^ row_hashes(data.y[counted].reshape(len(counted), -1))
    _, first, inverse = np.unique(inputs, return_index=True, return_inverse=True)
    number = np.argsort(np.argsort(first))[inverse.ravel()]
    fold, n = np.full(data.n_rows, -1), int(np.max(number, initial=-1)) + 1
    if n >= 2 * _FOLDS:
        n_folds = 2 * _FOLDS if more and 4 * _FOLDS <= n <= _FEW_ROWS else _FOLDS
        fold[counted] = np.random.default_rng(seed).permutation(n)[number] % n_folds
    return fold


@dataclass(frozen=True, eq=False)
class NewRows:
    """Scores of rows that were predicted before they were fitted, for fits that keep no rows.

    Errors count the less, the fewer rows the model had that made them.

    Attributes
    ----------
    n_rows : float
        Number of observations so far.
    ratio : float
        Mean over them of the squared errors, divided by the variances that were claimed for the
        same call. Later fits may claim much less than the first, so errors are not pooled.
    beyond : Extrapolation, optional
        Variance beyond the box of all rows so far, of a kernel model.
    input_range : InputRange, optional
        The range of all rows so far.
    known : array of uint64, optional
        Hashes of the inputs so far, up to `_MOST_KNOWN`. The errors at known inputs do not count,
        because they say nothing about inputs between them. None where inputs are discrete, so that
        new ones are known as well.
    holds_intercept : bool
        Whether a constant that runs away from the target is held at its mean. False if that of the
        first rows is as far away, where the kernel is wide: leave-one-out errors judge it there.
    """

    n_rows: float
    ratio: float
    beyond: Extrapolation | None
    input_range: InputRange | None
    known: np.ndarray | None
    holds_intercept: bool

    @classmethod
    def from_first(cls, fit: Fit, data: Data, holds_intercept: bool) -> NewRows:
        """Return the errors of the first rows, which have been fitted with calibration."""
        loo, model = fit.loo, fit.model
        n = 0.0 if loo is None else float(np.sum(loo.weight))
        beyond = None if model.added is None else model.added.extrapolation
        hashes, first, total = np.unique(
            data.input_hashes()[data.used], return_index=True, return_counts=True
        )
        repeats = len(hashes) < len(data.used)
        known = None if repeats and is_discrete(data, data.used[first], total) else hashes
        ratio = float(np.square(fit.calibration))
        return cls(n, ratio, beyond, fit.input_range, known, holds_intercept)

    def plus(self, fit: Fit, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> NewRows:
        """Return the errors with those of further rows, which `fit` has not seen."""
        count = np.ones(len(y)) if weight is None else np.minimum(weight, 1.0)
        used, known = np.flatnonzero(count), self.known
        beyond, input_range = self._widened(X[used])
        if known is not None:
            hashes = row_hashes(X[used])
            used = used[~np.isin(hashes, known)]
            if len(known) < _MOST_KNOWN:
                known = np.union1d(known, hashes)
        if len(used) == 0:
            return replace(self, beyond=beyond, input_range=input_range, known=known)
        X, y, count = X[used], y[used], count[used]
        n_new = float(np.sum(count))
        n = self.n_rows + n_new
        kept = self.n_rows * self.n_rows / n  # the errors of a fit to few rows count less
        with np.errstate(over="ignore", invalid="ignore"):
            ratio = (kept * self.ratio + n_new * _error_ratio(fit, X, y, count)) / (kept + n_new)
        return NewRows(n, ratio, beyond, input_range, known, self.holds_intercept)

    def _widened(self, X: np.ndarray) -> tuple[Extrapolation | None, InputRange | None]:
        """Return both boxes, widened so that they contain the rows of X."""
        beyond, input_range = self.beyond, self.input_range
        if len(X) == 0:
            return beyond, input_range
        if beyond is not None:
            # Where rows are rare changes with them, and the old rows are not stored.
            beyond = replace(beyond, box=beyond.box.merge(Box.of(X)), explored=None)
        if input_range is not None:
            # New inputs have judged the errors, and their values are not stored.
            box = input_range.box.merge(Box.of(X))
            input_range = InputRange(box, input_range.margin)
        return beyond, input_range

    def calibrate(self, fit: Fit, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> Fit:
        """Return the fit with the calibration of these errors.

        The rows are those of the last call, which the fit has seen. Their errors count where they
        exceed what the fit claims: no new row has judged it yet.
        """
        count = np.ones(len(y)) if weight is None else np.minimum(weight, 1.0)
        factor = max(1.0, self.ratio, _error_ratio(fit, X, y, count))
        factor = factor if np.isfinite(factor) else 1.0
        model = fit.model
        if self.beyond is not None:
            model = with_extrapolation(model, self.beyond)
        notes = fit.notes
        if factor > _WRONG_MODEL**2:
            notes = (
                *notes,
                Note(_wrong_model("partial_fit", "errors of new rows", factor, _ADVICE)),
            )
        return replace(
            fit,
            model=model,
            calibration=float(np.sqrt(factor)),
            input_range=self.input_range,
            notes=notes,
        )


def _error_ratio(fit: Fit, X: np.ndarray, y: np.ndarray, count: np.ndarray) -> float:
    """Return the squared errors of a fit at some rows over the variances that it claims there."""
    used = np.flatnonzero(count)
    if len(used) == 0:
        return 1.0
    mean, spread, _ = fit.model.moments(X[used])
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        claimed = count[used] @ (spread + fit.posterior.noise_variance)
        ratio = float(np.divide(count[used] @ np.square(y[used] - mean), claimed))
    return 1.0 if np.isnan(ratio) else ratio
