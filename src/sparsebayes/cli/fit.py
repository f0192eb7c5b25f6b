"""The command ``sparsebayes fit``: one model for a table."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..models import choices
from .checks import check_models, check_packages, check_writable
from .model_files import save_model
from .prepared import TableOptions, prepare, print_notes, shown_settings
from .progress import Steps
from .tables import read_table


def fit(options: argparse.Namespace) -> None:
    """Fit one model to a table and summarise it."""
    from .comparison import make_folds, measure

    check_packages("pandas", "skrub", report=options.report)
    check_writable(options.output, options.report)
    table_options = TableOptions.from_arguments(options)
    check_models(options.model, options.task)
    if not options.report and (options.cv, options.test_share) != (None, None):
        raise ValueError(
            "--cv and --test-share say how a report tests the model: name its file with --report, "
            "or use `sparsebayes compare`."
        )
    data = prepare(read_table(options.data), table_options)
    (choice,) = choices(data.task, [options.model])
    if Path(options.output or "").suffix == ".skops" and not choice.skops:
        raise ValueError(f"{choice.name} cannot be written as .skops: name a .pkl file.")
    folds = []
    if options.report:
        folds = make_folds(data.y, data.task, options.cv, options.test_share, options.seed)
    model = data.make_model(options.model)
    with Steps(1) as steps:
        steps.next(f"fitting {options.model} to {len(data.y):,} rows")
        model.fit(data.frame, data.target)
    print_notes([*data.notes, *model.notes_])
    n_inputs = len(model.get_feature_names_out())
    name = type(model.final_).__name__
    print(f"{name} on {len(data.y)} rows and {n_inputs} inputs of {data.title}")
    for label, value in summary(model):
        print(f"  {label:<18} {value}")
    model.id_columns_ = list(data.options.id)
    if options.output:
        save_model(options.output, model)
        print(f"model written to {options.output}")
    if options.report:
        from .report import write_table_report

        with Steps(len(folds)) as steps:
            score = measure(
                model.model_,
                partial(data.make_model, options.model),
                data.frame,
                data.y,
                folds,
                data.classes,
                partial(steps.next, f"for the report, part {{}} of {len(folds)}"),
            )
        settings = shown_settings(options, data.options)
        write_table_report(options.report, data, [score], model, folds, settings, options.output)
        print(f"report written to {options.report}")


def summary(model: Any) -> list[tuple[str, str]]:
    """Return label and value of what a fitted table model reports."""
    from ..estimators._summary import facts
    from .comparison import n_terms

    lines = facts(model.final_, model.get_feature_names_out())
    last = model.estimator_[-1]
    if hasattr(last, "target_transform_"):
        gain = last.density_gain_
        detail = "" if np.isnan(gain) else f" ({gain:+.1f} nats for log)"
        lines.append(("target", f"{last.target_transform_ or 'as it is'}{detail}"))
    terms = n_terms(model)
    return lines if terms is None else [*lines, ("active terms", str(terms))]
