"""The commands ``sparsebayes compare`` and ``demo``: scores of models on held-out rows."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from .._warn import SmallWeights
from ..models import CLASSES, REGRESSION, choices
from .checks import check_models, check_packages, check_writable, parse_settings
from .prepared import PreparedTable, TableOptions, prepare, print_notes, shown_settings
from .progress import Steps, step
from .tables import Table, read_table

if TYPE_CHECKING:
    from .comparison import Fold, Score

# Shares of the time budget that are kept for the figures of a report, and for the fit to all rows.
_FIGURES, _REFIT = 0.15, 0.15

_IRIS = """\
from sklearn.datasets import load_iris

data = load_iris(as_frame=True)
table = data.data.assign(species=data.target.map(dict(enumerate(data.target_names))))
"""
_DIABETES = """\
from sklearn.datasets import load_diabetes

data = load_diabetes(as_frame=True, scaled=False)
sex = data.data["sex"].map({1.0: "one", 2.0: "two"})
table = data.data.assign(sex=sex, progression=data.target)
"""


def compare(options: argparse.Namespace) -> None:
    """Compare models on held-out rows of a table."""
    _check(options)
    table_options = TableOptions.from_arguments(options)
    check_models(options.models, options.task)
    with step(f"reading {options.data}"):
        data = prepare(read_table(options.data), table_options)
    compare_on(data, options)


def demo(options: argparse.Namespace) -> None:
    """Compare the models on a data set of scikit-learn."""
    from sklearn.datasets import load_diabetes, load_iris

    _check(options)
    settings = parse_settings(options.set)
    if options.task == CLASSES:
        data = load_iris(as_frame=True)
        species = data.target.map(dict(enumerate(data.target_names)))
        table = Table("iris", data.data.assign(species=species), source=_IRIS)
        print("Three species of iris: 150 flowers, 4 measurements (Fisher 1936)\n")
        table_options = TableOptions("species", options.task, settings=settings)
    else:
        data = load_diabetes(as_frame=True, scaled=False)
        sex = data.data["sex"].map({1.0: "one", 2.0: "two"})  # the source does not name the sexes
        frame = data.data.assign(sex=sex, progression=data.target)
        table = Table("diabetes", frame, source=_DIABETES)
        print(
            "Diabetes progression after one year: 442 patients, 10 measurements "
            "(Efron et al. 2004)\n"
        )
        table_options = TableOptions("progression", options.task, settings=settings)
    compare_on(prepare(table, table_options), options)


def compare_on(data: PreparedTable, options: argparse.Namespace) -> None:
    """Compare models on a prepared table; print a line for each, and write the report."""
    started = time.perf_counter()
    with step("encoding the columns"):
        from .comparison import best, make_folds, remarks

        folds = make_folds(data.y, data.task, options.cv, options.test_share, options.seed)
        # The baseline, fitted to all rows, reports how the columns are interpreted and encoded.
        baseline = data.make_model("baseline").fit(data.frame, data.target, data.weight)
    print_notes([*data.notes, *baseline.notes_])
    n_inputs = len(baseline.get_feature_names_out())
    split = f"{len(folds)} folds" if len(folds) > 1 else f"{len(folds[0][1]):,} held-out rows"
    print(
        f"{data.title}: {len(data.y):,} rows, {n_inputs} inputs, target {data.options.target} "
        f"({data.task}); {split}\n"
    )
    scores = _compare_models(data, options, folds, n_inputs, started)
    winner = best(scores, data.task)
    if winner is None:
        raise ValueError("No model could be fitted; see the messages above.")
    print(f"\nlowest {'NLL' if data.task == REGRESSION else 'log-loss'}: {winner.model}")
    density = "NLL: mean negative log density; " if data.task == REGRESSION else ""
    print(f"{density}terms: basis functions or columns in the model (mixture: of all its members)")
    for line in remarks(scores):
        print(line)
    _hint_at_logarithm(data, scores)
    if options.report:
        _write_report(data, options, folds, scores, _seconds_left(options, started, _FIGURES))


def _seconds_left(options: argparse.Namespace, started: float, reserve: float) -> float:
    """Return the seconds until only the share `reserve` of the time budget is left."""
    return float((1.0 - reserve) * options.time_budget - (time.perf_counter() - started))


def _compare_models(
    data: PreparedTable,
    options: argparse.Namespace,
    folds: list[Fold],
    n_inputs: int,
    started: float,
) -> list[Score]:
    """Score each model, and print a line for it."""
    from .comparison import Layout, Score, cells, head

    names = options.models.split(",") if options.models else None
    candidates = choices(data.task, names)
    layout = Layout.for_terminal(data.task)
    line = layout.line(head(data.task))
    print(f"{line}\n{'-' * len(line)}", flush=True)
    scores: list[Score] = []
    reserve = _FIGURES + _REFIT if options.report else 0.0
    with Steps(len(candidates) * len(folds)) as steps:
        for number, choice in enumerate(candidates, start=1):
            seconds = _seconds_left(options, started, reserve)
            reason = "" if names else choice.unsuited(len(folds[0][0]), n_inputs)
            if seconds <= 0:
                reason = reason or _out_of_time(options)
            messages: list[str] = []
            if reason:
                score = Score(choice.name, reason=f"skipped: {reason}")
            else:
                score, messages = _score(choice.name, data, options, folds, steps, seconds)
            steps.skip_to(number * len(folds))
            scores.append(score)
            line = f"{score.model:<15} {score.reason}"
            if not score.reason:
                line = layout.line(cells(score, data.task))
            if score.folds:
                line += f"  ({score.folds})"
            print(line, flush=True)
            for text in messages:
                print(f"sparsebayes: warning: {score.model}: {text}", file=sys.stderr)
    return scores


def _write_report(
    data: PreparedTable,
    options: argparse.Namespace,
    folds: list[Fold],
    scores: list[Score],
    seconds: float,
) -> None:
    """Write the report of the best model, fitted to all rows if so many seconds are enough."""
    from .comparison import OutOfTime, best, in_time, refit_seconds
    from .report import write_table_report

    shown = best(scores, data.task, own=True) or best(scores, data.task)
    assert shown is not None
    model, is_partial = shown.fitted, True
    if refit_seconds(shown, folds) < seconds:
        with step(f"fitting {shown.model} to all rows for the report"):
            fit = data.make_model(shown.model).fit
            try:
                model = in_time(seconds, partial(fit, data.frame, data.target, data.weight))
                is_partial = False
            except OutOfTime:
                pass
    n_rows = len(folds[-1][0]) if is_partial else None
    settings = shown_settings(options, data.options)
    with step("writing the report"):
        write_table_report(options.report, data, scores, model, folds, settings, n_rows=n_rows)
    print(f"report written to {options.report}")
    if n_rows is not None:
        print(
            f"its figures show {shown.model} fitted to {n_rows:,} of {len(data.y):,} rows: for the "
            f"fit to all rows there was no time left of --time-budget {options.time_budget:g}"
        )


def _check(options: argparse.Namespace) -> None:
    """Raise an error for options that cannot be used, before the work."""
    check_packages("pandas", "skrub", report=options.report)
    check_writable(options.report)
    if not options.time_budget > 0:
        raise ValueError(f"--time-budget must be positive, got {options.time_budget}.")


def _score(
    name: str,
    data: PreparedTable,
    options: argparse.Namespace,
    folds: Any,
    steps: Steps,
    seconds: float,
) -> tuple[Any, list[str]]:
    """Return the score of one model, or the reason that it has none, and its distinct warnings."""
    from .comparison import OutOfTime, Score, measure

    label = f"fitting {name}"
    if len(folds) > 1:
        label += f", fold {{}} of {len(folds)}"
    make = partial(data.make_model, name, data.task)
    report_fold = partial(steps.next, label)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("ignore", SmallWeights)  # the fit to all rows has warned
        try:
            score = measure(
                name,
                make,
                data.frame,
                data.y,
                folds,
                data.classes,
                report_fold,
                seconds,
                data.weight,
            )
        except OutOfTime:
            score = Score(name, reason=f"stopped: {_out_of_time(options)}")
        except ValueError as error:
            if options.models == name:
                raise
            score = Score(name, reason=f"failed: {' '.join(str(error).split())[:200]}")
    return score, _distinct([str(w.message) for w in caught])


def _distinct(messages: list[str]) -> list[str]:
    """Return the first of the messages that differ in their numbers or their ends only."""
    first: dict[str, str] = {}
    for text in messages:
        first.setdefault("".join(c for c in text if not c.isdigit())[:60], text)
    return list(first.values())


def _out_of_time(options: argparse.Namespace) -> str:
    text = f"--time-budget of {options.time_budget:g} s used up"
    return f"{text} (the rest is for the report)" if options.report else text


def _hint_at_logarithm(data: PreparedTable, scores: list[Score]) -> None:
    """Print the setting for a target whose logarithm looks better, if it changes a model."""
    from ..estimators.target_transform import looks_log

    is_set = "target_transform" in data.options.settings
    if data.task != REGRESSION or is_set or not looks_log(data.y):
        return
    fitted = choices(data.task, [score.model for score in scores if score.values])
    changed = [choice.name for choice in fitted if choice.may_transform]
    if changed:
        print(
            f"hint: {data.options.target} is positive with a long tail; --set "
            "target_transform=auto tests whether its logarithm is a better target for "
            f"{', '.join(changed)}"
        )
