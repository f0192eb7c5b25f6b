"""Models measured on rows that had no part in their fit."""

from __future__ import annotations

import _thread
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold, StratifiedKFold

from ..models import CLASSES, REGRESSION, choices

_FOLDS, _SMALL = 5, 5_000  # folds below this many rows, one split from there on
_TEST_SHARE = 0.25  # of one split
_LEVEL = 0.95
TOO_LITTLE = "! marks intervals that cover less than 95 % by more than three standard errors"

Fold = tuple[np.ndarray, np.ndarray]
# What is shown of each task: key, heading, format, whether the standard error stands beside it.
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
        ("brier", "Brier", ".4f", True),
        ("accuracy", "accuracy", ".1%", False),
        ("auc", "AUC", ".4f", False),
    ),
}


class OutOfTime(Exception):
    """A fit took longer than it may."""


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
    """One model: what it scored, with standard errors, or why it was not fitted."""

    model: str
    values: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    n_terms: int | None = None
    n_bytes: float = np.nan  # of the pickled model
    row_seconds: float = np.nan  # of the prediction of a row with its interval
    seconds: float = 0.0
    held_out: HeldOut | None = None
    fitted: Any = None  # in the last fold
    reason: str = ""
    folds: str = ""  # how many, where the time was up before all were done


def make_folds(
    y: np.ndarray, task: str, cv: int | None, test_share: float | None, seed: int
) -> list[Fold]:
    """Rows to fit and to test: `cv` folds, or one split with 1; None: by the number of rows."""
    test_share = _TEST_SHARE if test_share is None else test_share
    if not 0 < test_share < 1:
        raise ValueError(f"The share of test rows must lie between 0 and 1, got {test_share}.")
    n = len(y)
    if cv is None:
        cv = max(1, min(_FOLDS, n // 2)) if n < _SMALL else 1
    if cv < 1 or cv > max(1, n // 2):
        raise ValueError(
            f"--cv must be a number of folds from 2 to half the rows, or 1 for one split; got {cv} "
            f"for {n} rows."
        )
    if cv > 1:
        counts = np.unique(y, return_counts=True)[1]
        stratified = task == CLASSES and counts.min() >= cv
        folds: Any = StratifiedKFold if stratified else KFold
        return list(folds(cv, shuffle=True, random_state=seed).split(y, y))
    held_back = round(n * test_share)
    if held_back < 1 or n - held_back < 2:
        raise ValueError(f"{n} rows are too few to hold back {test_share:.0%} of them for a test.")
    order = np.random.default_rng(seed).permutation(n)
    return [(np.sort(order[held_back:]), np.sort(order[:held_back]))]


def measure(
    name: str,
    make: Callable[[], Any],
    frame: Any,
    y: np.ndarray,
    folds: list[Fold],
    classes: np.ndarray | None,
    told: Callable[[int], None] = lambda fold: None,
    seconds: float = np.inf,
) -> Score:
    """Fit a table model without each fold and predict it.

    `told` hears of each fold before it is fitted. After so many seconds no more folds are fitted:
    the score is that of those done, or OutOfTime where none is.
    """
    started = time.perf_counter()
    parts: list[HeldOut] = []
    terms: list[Any] = []
    predicting = 0.0
    for k, (train, test) in enumerate(folds):
        told(k)
        left = seconds - (time.perf_counter() - started)
        try:
            with time_limit(left):
                model = make().fit(frame.iloc[train], y[train])
        except OutOfTime:
            if not parts:
                raise
            break  # the folds that are done tell enough
        if getattr(model.final_, "stop_reason_", "") == "interrupted":
            raise KeyboardInterrupt
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
    )


def hold_out(
    model: Any, frame: Any, y: np.ndarray, rows: np.ndarray, classes: np.ndarray | None
) -> HeldOut:
    """What a fitted table model says of rows."""
    X = frame.iloc[rows]
    if classes is not None:
        probability = np.zeros((len(rows), len(classes)))  # a class that was not in the fit: 0
        probability[:, codes_of(model.classes_, classes)] = model.predict_proba(X)
        return HeldOut(rows, probability=probability)
    mean, std = predict(model, X)
    if std is None:
        return HeldOut(rows, mean)
    lower, upper = interval(model, X, mean, std, _LEVEL)
    density = model._predictive(X).log_density(y[rows])
    return HeldOut(rows, mean, std, lower, upper, density)


def codes_of(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the position of each label among the classes, which need not be sorted."""
    position = {label: code for code, label in enumerate(classes)}
    return np.array([position[label] for label in labels], dtype=np.intp)


def predict(model: Any, X: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Mean, and standard deviation where the model gives one."""
    try:
        mean, std = model.predict(X, return_std=True)
    except TypeError:
        return model.predict(X), None
    return mean, std if np.any(std > 0) else None  # zeros: DummyRegressor knows none


def interval(
    model: Any, X: Any, mean: np.ndarray, std: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the interval of a new observation.

    The model's own, calibrated by its leave-one-out residuals where it has enough of them; the
    normal one where the model has none.
    """
    if not hasattr(model, "predict_interval"):
        half = norm.ppf(0.5 + 0.5 * level) * std
        return mean - half, mean + half
    try:
        ends = model.predict_interval(X, level, calibrated=True)
    except ValueError:  # no leave-one-out residuals
        ends = np.full((1, 2), np.inf)
    if not np.all(np.isfinite(ends)):
        ends = model.predict_interval(X, level)
    return ends[:, 0], ends[:, 1]


def scores(
    held_out: HeldOut, y: np.ndarray, classes: np.ndarray | None
) -> tuple[dict[str, float], dict[str, float]]:
    """Measures over all rows that were held out, and the standard errors of their means."""
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
    if "rmse" in values:  # the root of a mean: its error by the slope of the root
        values["rmse"] = float(np.sqrt(values["rmse"]))
        errors["rmse"] /= max(2.0 * values["rmse"], np.finfo(float).tiny)
    return values, errors


def n_terms(model: Any) -> int | None:
    """How many functions or columns the model uses; None where that means nothing."""
    final = model.final_
    if hasattr(final, "active_"):
        return len(final.active_)
    return (
        int(np.any(np.atleast_2d(final.coef_), axis=0).sum()) if hasattr(final, "coef_") else None
    )


def covers_too_little(score: Score) -> bool:
    """Whether fewer rows are in their intervals than these promise, beyond chance."""
    missing = _LEVEL - score.values.get("coverage", np.nan)
    return bool(missing > 3.0 * score.errors.get("coverage", np.nan))


def remarks(found: list[Score]) -> list[str]:
    """What a reader of the scores should know beside them."""
    said = [TOO_LITTLE] if any(map(covers_too_little, found)) else []
    for i, score in enumerate(found):
        same = [s.model for s in found[:i] if _equal(s.held_out, score.held_out)]
        said += [f"{score.model} is the same model as {name} here" for name in same[:1]]
    return said


def _equal(a: HeldOut | None, b: HeldOut | None) -> bool:
    if a is None or b is None or not np.array_equal(a.rows, b.rows):
        return False
    pairs = [(value, vars(b)[key]) for key, value in vars(a).items()]
    return all(x is y or (y is not None and np.array_equal(x, y)) for x, y in pairs)


def best(found: list[Score], task: str, own: bool = False) -> Score | None:
    """The model of lowest NLL or log-loss; lowest RMSE where none says how sure it is.

    `own`: among the models of this package, where there are some.
    """
    ours = {choice.name for choice in choices(task, [s.model for s in found]) if choice.is_own}
    if own and any(s.model in ours and s.values for s in found):
        found = [s for s in found if s.model in ours]
    for key in ("nll", "rmse") if task == REGRESSION else ("log_loss",):
        with_it = [s for s in found if np.isfinite(s.values.get(key, np.nan))]
        if with_it:
            return min(with_it, key=lambda s: s.values[key])
    return None


# Scores as text.


def head(task: str, wide: bool = False) -> list[str]:
    """Headings of a table of scores; `wide` with all measures."""
    return ["model", *[c[1] for c in _columns(task, wide)], "terms", "size", "ms/row", "seconds"]


def cells(score: Score, task: str, wide: bool = False) -> list[str]:
    """One row below `head`."""
    out = [score.model]
    for key, _, form, with_error in _columns(task, wide):
        value = score.values.get(key, np.nan)
        text = "-" if np.isnan(value) else format(value, form)
        if form == ".4g" and text != "-":
            text = rounded(value)
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
    """A size in kB or MB."""
    return f"{rounded(size / 1e3, 2)} kB" if size < 1e6 else f"{rounded(size / 1e6, 2)} MB"


def rounded(value: float, digits: int = 4) -> str:
    """A number to so many digits, without an exponent where it can be; rounding errors are 0."""
    return "0" if abs(value) < 1e-12 else f"{float(f'{value:.{digits}g}'):g}"


def _columns(task: str, wide: bool) -> list[tuple[str, str, str, bool]]:
    return [column for column in COLUMNS[task] if wide or column[0] != "mae"]


def as_line(cells: list[str], task: str) -> str:
    """A row of the table in the terminal; each is printed before the next is known."""
    scores = [
        18 if with_error else max(9, len(heading) + 2)
        for _, heading, _, with_error in _columns(task, False)
    ]
    widths = [15, *scores, 6, 8, 8, 8]
    return "".join(
        cell.ljust(width) if j == 0 else cell.rjust(width)
        for j, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )


_AGAIN = 2.0  # seconds between two interrupts


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime where what is inside takes longer.

    The main thread is interrupted as by Ctrl-C, and again while it goes on: an interrupt that meets
    a destructor is lost. An estimator may take it as the wish to keep what it has: the time is up
    all the same.
    """
    if seconds > threading.TIMEOUT_MAX:
        yield
        return
    up, done = threading.Event(), threading.Event()

    def watch() -> None:
        pause = max(0.0, seconds)
        while not done.wait(pause):
            up.set()
            _thread.interrupt_main()
            pause = _AGAIN

    def interrupt(*signal_and_frame: object) -> None:
        if up.is_set():
            raise KeyboardInterrupt

    # In the background of a script Ctrl-C is ignored, and an interrupt would be with it.
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGINT, interrupt)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        if not up.is_set():
            raise
    finally:
        done.set()
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    if up.is_set():
        raise OutOfTime
