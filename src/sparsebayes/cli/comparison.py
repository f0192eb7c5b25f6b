"""Scores of models on held-out rows."""

from __future__ import annotations

import _thread
import pickle
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
from scipy.stats import norm
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold, StratifiedKFold
from threadpoolctl import threadpool_limits

from ..models import CLASSES, REGRESSION, choices

_FOLDS, _SMALL = 5, 5_000  # folds below this many rows, one split from there on
_TEST_SHARE = 0.25  # fraction of rows held out in one split
_LEVEL = 0.95
TOO_LITTLE = "! marks a coverage below 95 % by more than three standard errors"

Fold = tuple[np.ndarray, np.ndarray]
T = TypeVar("T")
# Scores of each task: key, heading, format, whether the standard error is shown.
COLUMNS: dict[str, tuple[tuple[str, str, str, bool], ...]] = {
    REGRESSION: (
        ("rmse", "RMSE", ".4g", True),
        ("r2", "R²", ".3f", False),
        ("mae", "MAE", ".4g", False),
        ("nll", "NLL", ".3f", True),
        ("coverage", "95 % coverage", ".1%", False),
    ),
    CLASSES: (
        ("log_loss", "log-loss", ".4f", True),
        ("brier", "Brier", ".4f", False),
        ("accuracy", "accuracy", ".1%", False),
        ("auc", "AUC", ".4f", False),
    ),
}


class OutOfTime(Exception):
    """A fit took longer than the time limit."""


@dataclass
class HeldOut:
    """Predictions of rows by a model that was fitted without them."""

    rows: np.ndarray
    mean: np.ndarray | None = None  # regression
    std: np.ndarray | None = None
    lower: np.ndarray | None = None  # of the 95 % interval
    upper: np.ndarray | None = None
    log_density: np.ndarray | None = None
    probability: np.ndarray | None = None  # classes


@dataclass
class Score:
    """Scores of one model with standard errors, or the reason that it has none."""

    model: str
    values: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    n_terms: int | None = None
    n_bytes: float = np.nan  # size of the pickled model
    row_seconds: float = np.nan  # time to predict a row with its interval
    seconds: float = 0.0
    held_out: HeldOut | None = None
    fitted: Any = None  # the model of the last fold
    reason: str = ""
    folds: str = ""  # number of folds, if the time was used up before all were done
    fold_seconds: float = 0.0  # mean time of a fold


def make_folds(
    y: np.ndarray, task: str, cv: int | None, test_share: float | None, seed: int
) -> list[Fold]:
    """Return pairs of training and test rows: `cv` folds, or one split if it is 1."""
    test_share = _TEST_SHARE if test_share is None else test_share
    if not 0 < test_share < 1:
        raise ValueError(f"--test-share must lie between 0 and 1, got {test_share}.")
    n = len(y)
    if cv is None:
        cv = max(1, min(_FOLDS, n // 2)) if n < _SMALL else 1
    if cv < 1 or cv > max(1, n // 2):
        raise ValueError(
            f"--cv must be 1 (a single split) or between 2 and half the number of rows ({n}); "
            f"got {cv}."
        )
    if cv > 1:
        counts = np.unique(y, return_counts=True)[1]
        stratified = task == CLASSES and counts.min() >= cv
        folds: Any = StratifiedKFold if stratified else KFold
        return list(folds(cv, shuffle=True, random_state=seed).split(y, y))
    n_test = round(n * test_share)
    if n_test < 1 or n - n_test < 2:
        raise ValueError(f"{n} rows are too few to hold out {test_share:.0%} of them for a test.")
    order = np.random.default_rng(seed).permutation(n)
    return [(np.sort(order[n_test:]), np.sort(order[:n_test]))]


def measure(
    name: str,
    make: Callable[[], Any],
    frame: Any,
    y: np.ndarray,
    folds: list[Fold],
    classes: np.ndarray | None,
    on_fold: Callable[[int], None] = lambda fold: None,
    seconds: float = np.inf,
    weight: np.ndarray | None = None,
) -> Score:
    """Fit a table model without each fold, and predict the fold.

    `on_fold` is called before each fold is fitted. After `seconds` no more folds are fitted; the
    score is that of the folds done so far, and OutOfTime is raised if there are none. Weights count
    in the fits, not in the scores.
    """
    started = time.perf_counter()
    parts: list[HeldOut] = []
    terms: list[Any] = []
    predicting = 0.0
    for k, (train, test) in enumerate(folds):
        on_fold(k)
        remaining = seconds - (time.perf_counter() - started)
        try:
            of_train = None if weight is None else weight[train]
            # One thread for boosted trees: OpenMP's threads wait actively on a busy machine.
            with threadpool_limits(limits=1, user_api="openmp"):
                fit = partial(make().fit, frame.iloc[train], y[train], of_train)
                model = in_time(remaining, fit)
        except OutOfTime:
            if not parts:
                raise
            break
        fitted = time.perf_counter()
        parts.append(hold_out(model, frame, y, test, classes))
        predicting += time.perf_counter() - fitted
        terms.append(n_terms(model))
    took = time.perf_counter() - started
    joined: dict[str, Any] = {
        key: None if first is None else np.concatenate([getattr(p, key) for p in parts])
        for key, first in vars(parts[0]).items()
    }
    held_out = HeldOut(**joined)
    values, errors = scores(held_out, y, classes)
    typical = None if terms[0] is None else round(float(np.mean(terms)))
    done = "" if len(parts) == len(folds) else f"{len(parts)} of {len(folds)} folds"
    return Score(
        name,
        values,
        errors,
        typical,
        float(len(pickle.dumps(model))),
        predicting / len(held_out.rows),
        took,
        held_out,
        model,
        folds=done,
        fold_seconds=took / len(parts),
    )


def refit_seconds(score: Score, folds: list[Fold]) -> float:
    """Return how long the fit of a model to all rows may take, judged by its folds."""
    train, test = folds[0]
    return score.fold_seconds * ((len(train) + len(test)) / len(train)) ** 2


def hold_out(
    model: Any, frame: Any, y: np.ndarray, rows: np.ndarray, classes: np.ndarray | None
) -> HeldOut:
    """Return the predictions of a fitted table model at some rows."""
    X = frame.iloc[rows]
    if classes is not None:
        own = codes_of(model.classes_, classes)
        probability = np.zeros((len(rows), len(classes)))  # 0 for a class that was not in the fit
        probability[:, own] = model.predict_proba(X)
        return HeldOut(rows, probability=probability)
    mean, std = predict(model, X)
    if std is None:
        return HeldOut(rows, mean)
    lower, upper = interval(model, X, mean, std, _LEVEL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # predict has warned of the same rows
        density = model._predictive(X).log_density(y[rows])
    return HeldOut(rows, mean, std, lower, upper, density)


def codes_of(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the position of each label among the classes, which need not be sorted."""
    position = {label: code for code, label in enumerate(classes)}
    return np.array([position[label] for label in labels], dtype=np.intp)


def predict(model: Any, X: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the mean, and the standard deviation if the model has one."""
    try:
        mean, std = model.predict(X, return_std=True)
    except TypeError:
        return model.predict(X), None
    return mean, std if np.any(std > 0) else None  # zeros: DummyRegressor


def interval(
    model: Any, X: Any, mean: np.ndarray, std: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of `predict_interval`; of a normal interval if the model has none."""
    if not hasattr(model, "predict_interval"):
        half = norm.ppf(0.5 + 0.5 * level) * std
        return mean - half, mean + half
    ends = model.predict_interval(X, level)
    return ends[:, 0], ends[:, 1]


def scores(
    held_out: HeldOut, y: np.ndarray, classes: np.ndarray | None
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the scores over all held-out rows, and their standard errors."""
    truth = y[held_out.rows]
    losses: dict[str, np.ndarray] = {}
    values: dict[str, float] = {}
    if held_out.probability is not None and classes is not None:
        p = held_out.probability
        codes = codes_of(truth, classes)
        hit = np.equal.outer(codes, np.arange(len(classes))).astype(float)
        losses["log_loss"] = -np.log(np.maximum(p[np.arange(len(p)), codes], 1e-15))
        losses["brier"] = np.sum((p - hit) ** 2, axis=1) / 2.0
        losses["accuracy"] = (np.argmax(p, axis=1) == codes).astype(float)
        values["auc"] = np.nan
        if np.all(hit.any(axis=0)):
            two = len(classes) == 2
            total = p.sum(axis=1, keepdims=True)
            given = p[:, 1] if two else p / np.where(total > 0, total, 1.0)
            values["auc"] = float(roc_auc_score(codes, given, multi_class="ovr"))
    else:
        error = truth - held_out.mean
        losses["rmse"], losses["mae"] = error**2, np.abs(error)
        values["r2"] = 1.0 - float(np.mean(error**2) / np.var(truth))
        if held_out.log_density is not None:
            losses["nll"] = -held_out.log_density
            inside = (held_out.lower <= truth) & (truth <= held_out.upper)
            losses["coverage"] = inside.astype(float)
    n = len(truth)
    errors = {k: float(np.std(v) / np.sqrt(max(1, n - 1))) for k, v in losses.items()}
    values |= {k: float(np.mean(v)) for k, v in losses.items()}
    if "rmse" in values:  # standard error of a root by the delta method
        values["rmse"] = float(np.sqrt(values["rmse"]))
        errors["rmse"] /= max(2.0 * values["rmse"], np.finfo(float).tiny)
    return values, errors


def n_terms(model: Any) -> int | None:
    """Return how many basis functions or columns the model uses; None for other models."""
    members = getattr(model.estimator_[-1], "choices_", None)
    if members is not None:
        return sum(n for n, w in zip(members["terms"], members["weight"], strict=True) if w > 0.0)
    final = model.final_
    if hasattr(final, "active_"):
        return len(final.active_)
    return (
        int(np.any(np.atleast_2d(final.coef_), axis=0).sum()) if hasattr(final, "coef_") else None
    )


def covers_too_little(score: Score) -> bool:
    """Return whether the coverage is below nominal by more than three standard errors."""
    missing = _LEVEL - score.values.get("coverage", np.nan)
    return bool(missing > 3.0 * score.errors.get("coverage", np.nan))


def remarks(scores: list[Score]) -> list[str]:
    """Return the explanations that belong below a table of scores."""
    lines = [TOO_LITTLE] if any(map(covers_too_little, scores)) else []
    for i, score in enumerate(scores):
        same = [s.model for s in scores[:i] if _equal(s.held_out, score.held_out)]
        lines += [f"{score.model} is the same model as {name} here" for name in same[:1]]
    return lines


def _equal(a: HeldOut | None, b: HeldOut | None) -> bool:
    if a is None or b is None or not np.array_equal(a.rows, b.rows):
        return False
    pairs = [(value, vars(b)[key]) for key, value in vars(a).items()]
    return all(x is y or (y is not None and np.array_equal(x, y)) for x, y in pairs)


def best(scores: list[Score], task: str, own: bool = False) -> Score | None:
    """Return the model of lowest NLL or log-loss; of lowest RMSE if no model has a density.

    With `own` only models of this package count, if there are any.
    """
    ours = {choice.name for choice in choices(task, [s.model for s in scores]) if choice.is_own}
    if own and any(s.model in ours and s.values for s in scores):
        scores = [s for s in scores if s.model in ours]
    for key in ("nll", "rmse") if task == REGRESSION else ("log_loss",):
        finite = [s for s in scores if np.isfinite(s.values.get(key, np.nan))]
        if finite:
            return min(finite, key=lambda s: s.values[key])
    return None


# Scores as text.


def head(task: str, wide: bool = False) -> list[str]:
    """Return the headings of a table of scores; `wide` with all scores."""
    return ["model", *[c[1] for c in _columns(task, wide)], "terms", "size", "ms/row", "seconds"]


def cells(score: Score, task: str, wide: bool = False) -> list[str]:
    """Return one row below `head`."""
    out = [score.model]
    for key, _, form, with_error in _columns(task, wide):
        value = score.values.get(key, np.nan)
        text = "-" if np.isnan(value) else format(value, form)
        if text != "-" and (form == ".4g" or abs(value) >= 1e4):
            text = rounded(value)
        if key == "r2":
            text = "< -99" if value < -99.0 else text.replace("-0.000", "0.000")
        if with_error and not np.isnan(value):
            text += f" ± {rounded(score.errors[key], 2)}"
        if key == "coverage" and covers_too_little(score):
            text += "!"
        out.append(text)
    size = "-" if np.isnan(score.n_bytes) else in_bytes(score.n_bytes)
    row = "-" if np.isnan(score.row_seconds) else rounded(1e3 * score.row_seconds, 2)
    terms = "-" if score.n_terms is None else str(score.n_terms)
    return [*out, terms, size, row, f"{score.seconds:.1f}"]


def in_bytes(size: float) -> str:
    """Return a size in kB or MB."""
    return f"{rounded(size / 1e3, 2)} kB" if size < 1e6 else f"{rounded(size / 1e6, 2)} MB"


def rounded(value: float, digits: int = 4) -> str:
    """Return a number with this many significant digits; rounding errors are 0."""
    return "0" if abs(value) < 1e-12 else f"{float(f'{value:.{digits}g}'):g}"


def _columns(task: str, wide: bool) -> list[tuple[str, str, str, bool]]:
    return [column for column in COLUMNS[task] if wide or column[0] != "mae"]


_WITH_ERROR = 16  # characters of "value ± error", with the gap between columns
_GAP = 2
_LEVEL_PREFIX = "95 % "  # of the heading of the coverage


def _width(heading: str, form: str, with_error: bool) -> int:
    """Return the width of a column of scores, with the gap before it."""
    digits = 6 if form == ".4f" else 5
    return max(_WITH_ERROR if with_error else digits + _GAP, len(heading) + _GAP)


@dataclass(frozen=True)
class Layout:
    """Widths of the columns of a table in the terminal, fixed before the first row is known.

    A value that is too long for its column loses its standard error. A narrow terminal shows
    neither the size of a model nor the time of a prediction, and short headings.
    """

    widths: tuple[int, ...]
    is_narrow: bool = False

    @classmethod
    def for_terminal(cls, task: str, n_characters: int | None = None) -> Layout:
        """Return the layout for a terminal of this width (default: the width of this one)."""
        columns = _columns(task, False)
        full = (_width(name, form, error) for _, name, form, error in columns)
        widths = (15, *full, 7, 9, 8, 9)
        if n_characters is None:
            n_characters = shutil.get_terminal_size((120, 24)).columns
        if sum(widths) <= n_characters:
            return cls(widths)
        short = (
            _width(name.removeprefix(_LEVEL_PREFIX), form, error)
            for _, name, form, error in columns
        )
        return cls((15, *short, 7, 0, 0, 9), is_narrow=True)

    def line(self, cells: list[str]) -> str:
        """Return one row of the table."""
        shown = [(cell, width) for cell, width in zip(cells, self.widths, strict=True) if width]
        name, width = shown[0]
        out = name.ljust(width)
        for cell, width in shown[1:]:
            if self.is_narrow:
                cell = cell.removeprefix(_LEVEL_PREFIX)
            if len(cell) > width - _GAP:
                cell = cell.partition(" ±")[0]
            out += " " * min(_GAP, max(0, width - len(cell))) + cell.rjust(width - _GAP)
        return out


_INTERRUPT_EVERY = 2.0  # seconds


def in_time(seconds: float, work: Callable[[], T]) -> T:
    """Return the result of some work; raise OutOfTime if it takes longer.

    The main thread is interrupted as by Ctrl-C, repeatedly, because an interrupt during a
    destructor is lost. OutOfTime, or KeyboardInterrupt after Ctrl-C, is raised even if an estimator
    handles the interrupt by returning an unfinished model. It is no context manager: an interrupt
    between the end of a body and the code after it would be taken for Ctrl-C.
    """
    expired, done, turn = threading.Event(), threading.Event(), threading.Lock()
    pressed = threading.Event()
    handler = signal.getsignal(signal.SIGINT)

    def watch() -> None:
        pause = max(0.0, seconds)
        while not done.wait(pause):
            with turn:  # not after the work has ended
                if not done.is_set():
                    expired.set()
                    _thread.interrupt_main()
            pause = _INTERRUPT_EVERY

    def interrupt(*signal_and_frame: object) -> None:
        # A background process of a script ignores SIGINT, but not the interrupt of its own time.
        if expired.is_set() or handler is not signal.SIG_IGN:
            pressed.set()
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        try:
            if seconds <= threading.TIMEOUT_MAX:
                threading.Thread(target=watch, daemon=True).start()
            result = work()
        finally:
            with turn:
                done.set()
            time.sleep(0.0)  # an interrupt that is on its way arrives here
    except KeyboardInterrupt:
        if not expired.is_set():
            raise
    finally:
        done.set()
        signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
    if expired.is_set():
        raise OutOfTime
    if pressed.is_set():  # and the model kept what it had reached
        raise KeyboardInterrupt
    return result
