"""Every fit of a regressor: rounds of `_fit`, which knows one normal level of noise.

A plain fit is one round: `_fit`, then a look at its leave-one-out residuals (`loo_`), which say
whether the noise has tails (`noise_tail_`) and, where widths were learnt, by how much the variances
are too small (`calibration_`).

Noise that is not one normal level takes more. The residuals say how large it is at each row
(`posterior.noise`). Given that, the next fit of the mean is one with weights:
a row whose noise has the variance v counts 1/v. The weights are scaled to sum to the number of
rows, so that N in the likelihood stays what it is; then

    log p(y | v) = log p of the weighted rows + 1/2 sum log weight.

`noise_variance="input"`: v(x) from a noise model; two rounds. ``noise_variance`` an array: v as
given; one round. ``likelihood="student"``: the noise is a mixture of normal distributions, and v is
(nu s^2 + r^2)/(nu + 1), what is expected of the variance at a row with the residual r; rounds until
the weights settle. See docs/theory/noise.md.

Of a row, `weight` says how often it counts, `precision` how well it is known (1/v, 1 on average);
`_fit` is given their product.
"""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from .._array import to_numpy
from ..designs._base import row_slices
from ..posterior.left_out import LeftOut
from ..posterior.noise import MOST_ROWS, WORTH, Features, NoiseModel, Tail, fit_noise, fit_tail
from ..posterior.predictive import Calibration, LocationScale
from ..rows import RowBlocks, Rows
from ._common import is_text, power_of_two, rows_in_memory
from ._sklearn import Number, check_sample_weight, plain_copy, take_attributes, words

CONSTRAINTS: dict[str, Any] = {
    "noise_variance": [words("learn", "input"), Number(0), "array-like"],
    "likelihood": [words("gaussian", "student")],
}
_LEARN = {"noise_variance": "learn", "likelihood": "gaussian"}
_MOST_FUNCTIONS = 200  # the first that were chosen, in a noise model: more are only slower
_MOST_ROUNDS = 6  # of robust fits
_FOLDS = 5  # of fits that choose functions again,
_ENOUGH = 500  # until so many rows were left out
_SETTLED = 0.02  # mean change of the weights, which are 1 on average


class Round(NamedTuple):
    """A fit of the mean, and what its residuals say about the noise."""

    model: Any
    rows: Any
    left: LeftOut  # with the variance of the noise as it is now known
    precision: np.ndarray | None = None
    noise: Any = None  # NoiseModel or level
    tail: Tail | None = None

    @property
    def variance(self) -> Any:
        """Of the noise at each row, from fits without it."""
        return self.left.noise_variance

    @property
    def std(self) -> np.ndarray:
        """Of a new observation at each row without it."""
        return std_of(self.left.variance)

    def score(self) -> float:
        """Log density of all rows, each left out in turn."""
        there = LocationScale(np.zeros_like(self.left.gap), self.std, self.tail)
        return float(self.left.weight @ there.log_density(self.left.residual))

    def with_noise_variance(self, noise: Any, variance: Any) -> Round:
        """With this noise, of this variance at the rows."""
        return self._replace(noise=noise, left=self.left._replace(noise=variance))


def check_noise(model: Any) -> None:
    """Raise where `noise_variance` and `likelihood` do not combine."""
    if model.likelihood == "student" and not isinstance(model.noise_variance, str):
        raise ValueError(
            "likelihood='student' learns the size of the noise: use noise_variance='learn' or "
            "'input' with it, or likelihood='gaussian' with a variance that is known."
        )


def forget_noise(model: Any) -> None:
    """What a model knows from the residuals of its rows, and nothing else."""
    for name in ("noise_model_", "noise_tail_", "_calibration", "_left_out", "calibration_"):
        vars(model).pop(name, None)


def fit_noise_and_mean(model: Any, X: Any, y: Any, sample_weight: Any) -> None:
    """Fit a regressor to data whose noise is as its parameters say."""
    forget_noise(model)
    given, robust = model.noise_variance, getattr(model, "likelihood", "gaussian") == "student"
    varies = is_text(given, "input")
    if (robust or varies or np.ndim(given) > 0) and np.ndim(y) == 2 and np.shape(y)[1] > 1:
        raise ValueError(
            f"y has {np.shape(y)[1]} columns, and this noise is of one target: fit one model per "
            "column, or use noise_variance='learn' and likelihood='gaussian'."
        )
    if np.ndim(given) > 0:
        found = _known_variances(model, X, y, sample_weight, given)
        _keep(model, found)
        return
    found = _round(model, X, y, sample_weight, _LEARN if varies or robust else {})
    if found.left is None:  # not a Gaussian posterior
        take_attributes(model, found.model)
        return
    if (robust or varies) and not 0.0 < found.left.fitted_noise < np.inf:
        raise ValueError(
            "The squares of this target are no numbers of float64, and the noise is learnt from "
            "squares of residuals: scale y."
        )
    if robust:
        found = _robust(model, X, y, found)
    elif varies:
        found = _input_noise(model, X, y, found)
    elif is_text(given, "learn"):
        found = found._replace(tail=_tail(found))
    _keep(model, found)
    if isinstance(given, str) and _chose_functions(model):
        asked = _variance_left_out(found)
        price = _price_of_lengths(found) * _price_of_functions(found, asked)
        _inflate_variances(model, asked, price)


def _chose_functions(model: Any) -> bool:
    """Whether the widths were learnt, or functions bought at the width that is the default.

    With a width that was given a model is that of its paper, and so are its variances.
    """
    if hasattr(model, "kernel_search_"):
        return True
    if model.kernel is None or is_text(model.kernel, "precomputed"):
        return False
    default = signature(type(model).__init__).parameters["gamma"].default
    return model._chooses_one_by_one and is_text(model.gamma, default)


def _known_variances(model: Any, X: Any, y: Any, sample_weight: Any, given: Any) -> Round:
    """One fit with the variance of each row as it was given."""
    variance = np.asarray(given, dtype=np.float64)
    if variance.shape != (len(y),) or not np.all((variance > 0.0) & np.isfinite(variance)):
        raise ValueError(
            f"noise_variance has shape {variance.shape}, but y has {len(y)} values: give one "
            "positive variance per row, one number for all, 'learn' or 'input'."
        )
    count = np.ones(len(y)) if sample_weight is None else check_sample_weight(sample_weight, y)
    precision, level = _precisions(variance, count)
    found = _round(model, X, y, count * precision, {"noise_variance": level}, precision)
    # Of a new row the variance is not known: the mean of the known ones.
    mean = float(count @ variance / np.sum(count))
    return found.with_noise_variance(mean, variance)


def _input_noise(model: Any, X: Any, y: Any, first: Round) -> Round:
    """Two rounds; the first where the second predicts left out rows no better."""
    first = _with_noise(first)
    if not isinstance(first.noise, NoiseModel):
        return first
    # The root: weights from variances that are not known well would follow their errors.
    second = _with_noise(_again(model, X, y, first, np.sqrt(first.variance)))
    better = isinstance(second.noise, NoiseModel) and second.score() > first.score()
    return second if better else first


def _robust(model: Any, X: Any, y: Any, found: Round) -> Round:
    """Rounds with the weights that Student's t gives to residuals, until these settle."""
    former = np.ones(len(found.left.y))
    for number in range(_MOST_ROUNDS):
        found = _with_noise(found, robust=True)
        tail: Any = found.tail
        u = found.left.residual / found.std
        weight = (tail.df + 1.0) / (tail.df + (u / tail.scale) ** 2)
        if number + 1 == _MOST_ROUNDS or np.mean(np.abs(weight - former)) < _SETTLED:
            break
        # Outliers had a part in the widths of the first fit.
        variance = found.variance / weight
        found = _again(model, X, y, found, variance, widths=number > 0, robust=True)
        former = weight
    return found


def _variance_left_out(found: Round) -> Any:
    """The variance of standardised residuals of rows left out, which should be 1.

    Where they have tails that of Student's t, the distribution that quantiles are taken from: of
    few rows the mean of the squares tells it badly. Where functions are paid for, their price is a
    ratio of squares, and so the mean of the squares it is.
    """
    if found.tail is not None and not found.model._chooses_one_by_one:
        return found.tail.variance
    count = found.left.weight
    with np.errstate(over="ignore", invalid="ignore"):  # `_inflate_variances` asks for numbers
        return count @ np.square(found.left.residual / found.std) / np.sum(count)


def _price_of_lengths(found: Round) -> float:
    """By how much the variance is too small because the lengths have seen the rows left out.

    Akaike's final prediction error: of n residuals after m numbers were fitted, a new one has
    (n + m)/(n - m) times the mean square. Targets that share the lengths share the price, and more
    lengths than half of the rows are as many as that: most are infinite then.
    """
    n = found.left.gap[:1].size * float(np.sum(found.left.weight))
    m = min(float(found.model._n_lengths), 0.5 * n)
    return (n + m) / (n - m)


def _price_of_functions(found: Round, asked: Any) -> Any:
    """What a model whose functions were bought one by one has to pay beyond what was `asked`.

    A precision for each weight lets a function serve the very row that it is centred on, and the
    row left out at fixed functions still has it: on Boston the residuals are 1.6 thousand dollars
    where new ones are 2.8, and between the functions the variance is less than at any row. Fits
    without a fold choose functions again, at the same widths, and tell of the rows of the fold.
    """
    model, n = found.model, len(found.left.y)
    if not (model._chooses_one_by_one and 2 * _FOLDS <= n and model._judges(n)):
        return 1.0
    X, y, weight = rows_in_memory(found.rows)
    count, p = found.left.weight, found.precision
    fold = _folds(X, y, count, _seed(model))
    if np.max(fold) < 0:
        return 1.0
    size = power_of_two(np.max(np.abs(y), axis=0))
    counted = count if p is None else count * p
    whole = model._whole_model()
    settings = whole.get_params(deep=False)
    changed = {**_LEARN, **_unsaved(whole), "verbose": 0, "heal": False, "warm_start": False}
    settings |= {name: changed[name] for name in changed.keys() & settings.keys()}
    squares, claimed, n_new = 0.0, 0.0, 0.0  # over the rows of folds
    for f in range(_FOLDS):
        inside, outside = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        part = type(whole)(**settings)
        part._known_kernel = model._same_functions()["_known_kernel"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what there is to say was said of all rows
            part._fit(X[inside], y[inside], None if weight is None else weight[inside])
        mean, spread, _ = part._function(X[outside])
        noise = part.posterior_.noise_variance
        variance = spread + (noise if p is None else noise / p[outside])
        # Sums, not a mean of ratios, which a row that is sure of a tiny variance would decide.
        squares = squares + counted[outside] @ np.square((y[outside] - mean) / size)
        claimed = claimed + counted[outside] @ (variance / size / size)
        n_new += np.sum(count[outside])
        if n_new >= _ENOUGH:
            break
    if 2 * len(model.active_) > np.count_nonzero(count):
        # Nearly interpolated, each fold in its own way: what folds claim is not what this fit does.
        own = found.left.spread + found.left.fitted_noise * (1.0 if p is None else 1.0 / p)
        claimed = n_new / np.sum(count) * (counted @ (own / size / size))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        factor = squares / np.asarray(claimed) / asked
    return np.where(np.isfinite(factor), np.maximum(factor, 1.0), 1.0)[()]


def _folds(X: Any, y: np.ndarray, count: np.ndarray, seed: int) -> np.ndarray:
    """The fold of each row; -1 of those without weight, and of all where few rows differ.

    Equal rows of equal targets are in one, so that weights and repetition mean the same.
    """
    counted = np.flatnonzero(count)
    rows = np.column_stack([X[counted], y[counted]])
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    number = np.argsort(np.argsort(first))[inverse.ravel()]
    fold, n = np.full(len(y), -1), int(np.max(number, initial=-1)) + 1
    if n >= 2 * _FOLDS:
        fold[counted] = np.random.default_rng(seed).permutation(n)[number] % _FOLDS
    return fold


def std_of(variance: Any) -> Any:
    """Its root, above zero: the variance of a target of 1e-150 may be no number that is."""
    return np.sqrt(np.maximum(variance, np.finfo(np.float64).tiny))


def _scaled(found: Round, factor: float) -> Round:
    noise = found.noise
    noise = noise.scaled(factor) if isinstance(noise, NoiseModel) else noise * factor
    return found.with_noise_variance(noise, found.variance * factor)


# One round.


def _round(
    model: Any, X: Any, y: Any, weight: Any, settings: dict[str, Any], precision: Any = None
) -> Round:
    """A copy of the model fitted with these parameters, and its leave-one-out residuals.

    Weights that have a `precision` in them, and those of copies that count once (`each_once`), are
    how well a row is known, and not how often it is there.
    """
    fitted = plain_copy(model)
    settings = {**settings, "_weighed": precision is not None}
    vars(fitted).update(settings)
    rows = fitted._fit(X, y, weight)
    once = vars(fitted).pop("_once", None)
    if precision is None and once is not None:
        precision = np.where(once > 0.0, once, 1.0)
    for name in settings:
        del vars(fitted)[name]
    vars(fitted).update({name: vars(model)[name] for name in settings.keys() & vars(model).keys()})
    left = fitted._left_out
    if left is not None and precision is not None:
        left = left._replace(precision=precision, weight=left.weight / precision)
    return Round(fitted, rows, left, precision)


def _again(
    model: Any,
    X: Any,
    y: Any,
    last: Round,
    variance: np.ndarray,
    widths: bool = True,
    robust: bool = False,
) -> Round:
    """The next round, with rows of these variances, and the widths of the last."""
    settings = last.model._same_functions() if widths else {}
    if robust:  # from the start: functions may have been chosen for outliers
        settings = {name: settings[name] for name in settings.keys() & {"_known_kernel"}}
    settings |= {**_LEARN, **_unsaved(model)}
    count = last.left.weight
    precision, _ = _precisions(variance, count)
    source = X
    if isinstance(last.rows, RowBlocks):  # an iterator has been read
        source = copy(last.rows)
        source.arrays = ()
    found = _round(last.model, source, y, count * precision, settings, precision)
    found = found._replace(noise=last.noise)
    if widths:  # those that were learnt before
        for name in ("feature_relevance_", "kernel_search_", "_n_lengths"):
            if hasattr(last.model, name):
                setattr(found.model, name, getattr(last.model, name))
    return found


def _unsaved(model: Any) -> dict[str, Any]:
    """Checkpoints are of the first fit: others have other rows or weights."""
    return {"checkpoint_dir": None} if hasattr(model, "checkpoint_dir") else {}


def _precisions(variance: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, float]:
    """1/variance scaled to the mean 1 over all that is counted, and the variance where it is 1."""
    smallest = np.min(variance)
    precision = smallest / variance
    mean = float(count @ precision / np.sum(count))
    return precision / mean, float(smallest / mean)


def _with_noise(found: Round, robust: bool = False) -> Round:
    """With the noise that the residuals speak of: a model of the inputs, if wanted, and a tail."""
    model, left = found.model, found.left
    squares, count = left.noise_squares, left.weight
    if is_text(model.noise_variance, "input"):
        found = _noise_model(found, squares)
    else:
        # Residuals that are zero to rounding leave the noise of the fit, which has a floor.
        level = float(count @ squares / np.sum(count)) or float(left.fitted_noise)
        found = found.with_noise_variance(level, level)
    if not robust:
        return found._replace(tail=_tail(found))
    return _student(found)


def _student(found: Round) -> Round:
    """With the variance of Student's t: squares of outliers have no part in it."""
    u, count = found.left.residual, found.left.weight
    tail, _ = fit_tail(u / found.std, count)
    found = _scaled(found, tail.variance)
    return found._replace(tail=fit_tail(u / found.std, count)[0])


def _noise_model(found: Round, squares: np.ndarray) -> Round:
    """With a noise model of all rows, or of as many as it needs; as the last one was made."""
    model, rows, n = found.model, found.rows, len(squares)
    seed = _seed(model)
    some = np.flatnonzero(found.left.weight)
    if len(some) > MOST_ROWS:
        some = np.sort(np.random.default_rng(seed).choice(some, MOST_ROWS, replace=False))
    if isinstance(rows, Rows):
        X = rows.take(some)
    else:
        X = rows[0] if len(some) == n else rows[0][some]
    precomputed = is_text(model.kernel, "precomputed")
    n_functions = 0 if model.kernel is None else min(len(model.basis_), _MOST_FUNCTIONS)
    choice = None
    if isinstance(found.noise, NoiseModel):
        choice = found.noise.choice
    features = Features(0 if precomputed else X.shape[1], n_functions)
    columns = np.empty((len(some), features.n_inputs + 1 + n_functions))
    for part in row_slices(len(some), 4096):
        block = np.asarray(X[part], dtype=np.float64)
        columns[part] = features.columns(block, model.basis_(block), model.posterior_)
    count = found.left.weight[some]
    noise, outside = fit_noise(columns, features, squares[some], count, seed, choice)
    if not isinstance(noise, NoiseModel):
        return found.with_noise_variance(noise, noise)
    variance = _reduce(rows, NoiseJob(model.basis_, model.posterior_, noise))
    variance[some] = outside
    return found.with_noise_variance(noise, variance)


def _seed(model: Any) -> int:
    return int(check_random_state(getattr(model, "random_state", 0)).randint(2**31 - 1))


@dataclass(frozen=True)
class NoiseJob:
    """The variance of the noise at all rows."""

    basis: Any
    posterior: Any
    noise: NoiseModel

    def read(self, index: int, chunk: Any) -> np.ndarray:
        """A chunk of rows, a block at a time."""
        X = chunk[0]
        out = np.empty(len(X))
        for rows in row_slices(len(X), 4096):
            block = to_numpy(X[rows]).astype(np.float64, copy=False)
            out[rows] = self.noise.variance(block, self.basis(block), self.posterior)
        return out

    def merge(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Neighbouring chunks."""
        return np.concatenate([left, right])

    def finish(self, total: np.ndarray) -> np.ndarray:
        """All rows."""
        return total


def _reduce(rows: Any, job: Any) -> Any:
    return rows.reduce(job) if isinstance(rows, Rows) else job.read(0, rows)


def _tail(found: Round) -> Tail | None:
    """Student's t, where the residuals call for it."""
    u = found.left.residual / found.std
    if u.ndim > 1:
        return None
    some = slice(None, None, -(-len(u) // MOST_ROWS))
    tail, gain = fit_tail(u[some], found.left.weight[some])
    return tail if gain > WORTH else None


# Fitted attributes.


def _keep(model: Any, found: Round) -> None:
    """What the rounds have found, as attributes of the model."""
    take_attributes(model, found.model)
    model._left_out = left = found.left
    if left.gap.ndim == 1:
        model._calibration = Calibration.from_residuals(left.residual / found.std, left.weight)
    model.noise_tail_ = found.tail
    if found.precision is not None and getattr(model, "likelihood", "gaussian") == "gaussian":
        counted = left.weight > 0
        _shift_evidence(model, 0.5 * float(left.weight[counted] @ np.log(found.precision[counted])))
    if isinstance(found.noise, NoiseModel):
        model.noise_model_ = found.noise
        job = NoiseJob(model.basis_, model.posterior_, found.noise)
        model.noise_variance_ = _reduce(found.rows, job)
    elif found.noise is not None:
        model.posterior_ = replace(model.posterior_, noise_variance=found.noise)
        model.noise_variance_ = found.variance if np.ndim(found.variance) else found.noise


def _inflate_variances(model: Any, asked: Any, price: Any) -> None:
    """Multiply all variances, prior and noise, which leaves the mean where it is.

    By what rows left out ask for and the `price` of what has seen them; not by less than 1. The
    evidence stays that of the fit, so that widths which were learnt compare with those given.
    Quantiles and conformal intervals are of residuals, and pay the price alone.
    """
    factor = np.asarray(asked * price)
    factor = np.where(np.isfinite(factor), np.maximum(factor, 1.0), 1.0)[()]
    rest = np.sqrt(price / factor)
    if model.noise_tail_ is not None:
        model.noise_tail_ = replace(model.noise_tail_, scale=model.noise_tail_.scale * rest)
    if model._calibration is not None:
        model._calibration = replace(model._calibration, sizes=model._calibration.sizes * rest)
    model.calibration_ = np.sqrt(factor)
    posterior = model.posterior_
    model.posterior_ = replace(
        posterior,
        form=posterior.form.rescaled(np.sqrt(factor)),
        noise_variance=posterior.noise_variance * factor,
        offset_variance=posterior.offset_variance * factor,
    )
    if model._added is not None:
        model._added = model._added.scaled(factor)
    process = getattr(model, "_process", None)
    if process is not None:
        model._process = replace(process, amplitude=process.amplitude * factor)
    model.noise_variance_ = model.noise_variance_ * factor
    model.weight_precision_ = model.weight_precision_ / factor
    if model.noise_model_ is not None:
        model.noise_model_ = model.noise_model_.scaled(factor)
    left = model._left_out
    model._left_out = left._replace(
        spread=left.spread * factor,
        fitted_noise=left.fitted_noise * factor,
        added=left.added * factor,
        noise=None if left.noise is None else left.noise * factor,
    )


def _shift_evidence(model: Any, shift: float) -> None:
    model.posterior_ = replace(model.posterior_, log_evidence=model.posterior_.log_evidence + shift)
    model.log_evidence_ = model.posterior_.log_evidence
    if hasattr(model, "evidence_path_"):
        model.evidence_path_ = model.evidence_path_ + shift
    if "log_evidence" in model.history_:
        model.history_["log_evidence"] = model.history_["log_evidence"] + shift
