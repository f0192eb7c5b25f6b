"""The command ``sparsebayes fit``: one model for a table."""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .._warn import SmallWeights
from ..models import REGRESSION, choices
from .checks import check_model_file, check_models, check_packages, check_writable
from .model_files import save_model
from .prepared import PreparedTable, TableOptions, prepare, print_notes, shown_settings
from .progress import Steps, step
from .tables import read_table


def fit(options: argparse.Namespace) -> None:
    """Fit one model to all rows of a table, print a summary, and save it with --output."""
    check_packages("pandas", "skrub", report=options.report)
    check_writable(options.output, options.report)
    check_model_file(options.output)
    table_options = TableOptions.from_arguments(options)
    check_models(options.model, options.task)
    with step(f"reading {options.data}"):
        from .comparison import make_folds

        data = prepare(read_table(options.data), table_options)
    (choice,) = choices(data.task, [options.model])
    if Path(options.output or "").suffix == ".skops" and not choice.skops:
        raise ValueError(f"{choice.name} cannot be saved as .skops; use a .pkl file.")
    folds = []
    if options.report or (options.cv, options.test_share) != (None, None):
        cv = 1 if options.cv is None and options.test_share is not None else options.cv
        folds = make_folds(data.y, data.task, cv, options.test_share, options.seed)
    model = data.make_model(options.model)
    with step(f"fitting {options.model} to {len(data.y):,} rows"):
        model.fit(data.frame, data.target, sample_weight=data.weight)
    print_notes([*data.notes, *model.notes_])
    n_inputs = len(model.get_feature_names_out())
    last = model.estimator_[-1]
    name = type(last if hasattr(last, "choices_") else model.final_).__name__
    print(f"{model.model_} ({name}): {len(data.y):,} rows, {n_inputs} inputs, {data.title}")
    _print_pairs(summary(model))
    model.id_columns_ = list(data.options.id)
    if options.output:
        save_model(options.output, model)
        print(f"model written to {options.output}")
    if folds:
        score = _score(model, options.model, data, folds)
    else:
        print("for the error on held-out rows add --cv 5 or --report FILE")
    if options.report:
        from .report import write_table_report

        settings, path = shown_settings(options, data.options), options.report
        with step("writing the report"):
            write_table_report(path, data, [score], model, folds, settings, options.output)
        print(f"report written to {options.report}")


def _score(model: Any, name: str, data: PreparedTable, folds: Any) -> Any:
    """Measure the model on held-out rows, print the scores and return them."""
    from .comparison import cells, head, measure

    with Steps(len(folds)) as steps, warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallWeights)  # the fit to all rows has warned
        score = measure(
            model.model_,
            partial(data.make_model, name),
            data.frame,
            data.y,
            folds,
            data.classes,
            partial(steps.next, f"cross-validation, fold {{}} of {len(folds)}"),
            weight=data.weight,
        )
    n = f"{len(folds)} folds" if len(folds) > 1 else f"{len(folds[0][1]):,} rows"
    print(f"on held-out rows ({n}):")
    shown = dict(zip(head(data.task, True), cells(score, data.task, True), strict=True))
    hidden = ("model", "terms", "size", "ms/row", "seconds")
    _print_pairs([pair for pair in shown.items() if pair[0] not in hidden])
    return score


def _print_pairs(pairs: list[tuple[str, str]]) -> None:
    width = max(18, *(len(label) for label, _ in pairs)) if pairs else 18
    for label, value in pairs:
        print(f"  {label:<{width}} {value}")


def summary(model: Any) -> list[tuple[str, str]]:
    """Return labels and values that describe a fitted table model."""
    from .comparison import n_terms, rounded

    lines = []
    last = model.estimator_[-1]
    mixed = hasattr(last, "choices_")
    if mixed:
        lines += _members(last.choices_)
    terms = n_terms(model)
    if terms is not None:
        lines.append(("active terms", f"{terms:,}"))
    transformed = hasattr(last, "target_transform_") and not mixed
    if transformed:
        gain = last.density_gain_
        detail = "" if np.isnan(gain) else f" ({gain:+.1f} nats for log)"
        lines.append(("target", f"{last.target_transform_ or 'not transformed'}{detail}"))
    fitted = last if mixed else model.final_
    loo = getattr(fitted, "loo_", None) if model.task_ == REGRESSION else None
    if loo is not None and not transformed:
        rmse = np.sqrt(np.average(np.square(loo.residuals), weights=loo.weight))
        lines.append(("leave-one-out RMSE", f"{rounded(float(rmse))} (R² {loo.r2:.3f})"))
    return [*lines, *model._facts()]


def _members(table: dict[str, list[Any]]) -> list[tuple[str, str]]:
    """Return a line for each model that was compared."""
    members = zip(table["member"], table["loo_log_density"], table["weight"], strict=True)
    return [
        (name, f"weight {weight:.0%}, leave-one-out log density {density:.4g}")
        for name, density, weight in members
    ]
