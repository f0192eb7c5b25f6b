"""The commands, what they check and say, and their arguments.

Every mistake of the user ends as one sentence on standard error and exit status 2, before the long
work starts; files appear whole or not at all. Results go to standard output, progress to standard
error.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
import textwrap
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from .._extras import require
from .._files import write_whole
from ..models import CLASSES, MODELS, REGRESSION, choices, refuse_unknown
from .progress import Steps
from .tables import Table, TableError, read_table

_SETTING = (
    "a parameter of the model; target_transform=auto looks whether log y is the better target"
)
_NARX_SETTING = (
    "a parameter of NARXRegressor: max_terms=10, noise_lags=2, refine=simulation, delay=1, ..."
)
_BUDGET = 150.0  # seconds that all models of a comparison may take


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return options.run(options) or 0
    except KeyboardInterrupt:
        print("sparsebayes: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - nothing more can be said there
        return 1
    except (ValueError, OSError, ImportError, MemoryError) as error:
        print(
            f"sparsebayes: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr
        )
        return 2


def fit(options: argparse.Namespace) -> None:
    """Fit one model to a table, and say what it kept."""
    from .comparison import make_folds, measure

    _before(options, options.output, options.report)
    _known(options.model, options.task)
    if not options.report and (options.cv, options.test_share) != (None, None):
        raise ValueError(
            "--cv and --test-share say how a report tests the model: name its file with --report, "
            "or use `sparsebayes compare`."
        )
    data = _read(options)
    (choice,) = choices(data.task, [options.model])
    if Path(options.output or "").suffix == ".skops" and not choice.skops:
        raise ValueError(f"{choice.name} cannot be written as .skops: name a .pkl file.")
    folds = []
    if options.report:
        folds = make_folds(data.y, data.task, options.cv, options.test_share, options.seed)
    model = _model(data, options, options.model)
    with Steps(1) as steps:
        steps.next(f"fitting {options.model} to {len(data.y):,} rows")
        model.fit(data.frame, data.target)
    _tell([*data.notes, *model.notes_])
    final = model.final_
    inputs = len(model.get_feature_names_out())
    print(f"{type(final).__name__} on {len(data.y)} rows and {inputs} inputs of {data.title}")
    for label, value in _facts(model):
        print(f"  {label:<18} {value}")
    model.id_columns_ = list(options.id)
    if options.output:
        _save(options.output, model)
        print(f"model written to {options.output}")
    if options.report:
        from .report import write_table_report

        with Steps(len(folds)) as steps:
            score = measure(
                model.model_,
                lambda: _model(data, options, options.model),
                data.frame,
                data.y,
                folds,
                data.classes,
                partial(steps.next, f"for the report, part {{}} of {len(folds)}"),
            )
        settings = _settings_shown(options)
        write_table_report(options.report, data, [score], model, folds, settings, options.output)
        print(f"report written to {options.report}")


def predict(options: argparse.Namespace) -> None:
    """Predict the rows of a table with a saved model."""
    from .comparison import interval
    from .comparison import predict as predict_rows

    _before(options, options.output)
    if not 0.0 < options.level < 1.0:
        raise ValueError(f"--level must lie between 0 and 1, got {options.level}.")
    model = _load(options.model_file)
    table = read_table(options.data)
    table.require(list(model.inputs_.kinds_))
    kept = _columns(table, options.id) or [c for c in model.id_columns_ if c in table.frame]
    table.require(kept)
    if len(table.frame) == 0:
        raise TableError(f"{table.path} has no rows to predict.")
    out = {name: table.frame[name].to_numpy() for name in kept}
    target = model.target_name_ or "prediction"
    if model.task_ == CLASSES:
        probability = model.predict_proba(table.frame)
        out[target] = model.classes_[np.argmax(probability, axis=1)]
        out |= {f"p_{c}": probability[:, j] for j, c in enumerate(model.classes_)}
    else:
        mean, std = predict_rows(model, table.frame)
        out[target] = mean
        if std is not None:
            lower, upper = interval(model, table.frame, mean, std, options.level)
            out |= {"std": std, "lower": lower, "upper": upper}
    import pandas as pd

    text = pd.DataFrame(out).to_csv(index=False, float_format="%.10g", lineterminator="\n")
    if options.output:
        write_whole(options.output, text.encode())
        print(f"{len(table.frame)} predictions written to {options.output}")
    else:
        print(text, end="")


def export(options: argparse.Namespace) -> None:
    """Write a saved model as C, as a NumPy module or as ONNX."""
    from ..export import export_model

    _before(options, options.output)
    if options.to == "onnx":
        require("onnx", "An ONNX graph", "onnx")
        if not options.output:
            raise ValueError("An ONNX graph is not text: name a file with --output.")
    code = export_model(
        _load(options.model_file), options.to, name=options.name, return_std=not options.no_std
    )
    payload = code if isinstance(code, bytes) else code.encode()
    if options.output:
        write_whole(options.output, payload)
        print(f"{len(payload):,} bytes written to {options.output}")
    else:
        print(code, end="")


def compare(options: argparse.Namespace) -> None:
    """Fit several models to a table and test each on rows held out, a line as each one ends."""
    _before(options, options.report)
    _known(options.models, options.task)
    data = _read(options)
    _compare(options, data)


def narx(options: argparse.Namespace) -> None:
    """Identify a dynamic system from a CSV file whose rows are moments in order."""
    from ..estimators.narx import NARXRegressor

    _writable(options.report)
    _needs("pandas", report=options.report)
    settings = {"input_lags": options.lags, "output_lags": options.lags, "degree": options.degree}
    settings |= parse_settings(options.set)
    refuse_unknown(NARXRegressor, settings)
    table = read_table(options.data)
    y = table.series(options.output)
    u = np.column_stack([table.series(name) for name in options.input]) if options.input else None
    model = NARXRegressor(**settings)
    if not 0.0 <= options.test_share < 1.0:
        raise ValueError(f"--test-share must be from 0 to below 1, got {options.test_share}.")
    n = len(y) - int(options.test_share * len(y))
    model.fit(None if u is None else u[:n], y[:n])
    if options.test_share:
        y = y[n:]
        u = None if u is None else u[n:]
    free, std = model.simulate(u, y[: model.max_lag_], n_steps=len(y), return_std=True)
    error = (y - free)[model.max_lag_ :]
    inside = np.abs(error) < 1.96 * std[model.max_lag_ :]
    one_step = (y - np.asarray(model.predict(u, y)))[model.max_lag_ :]
    facts = [
        ["RMSE one step ahead", f"{np.sqrt(np.nanmean(one_step**2)):.6g}"],
        ["RMSE free run", f"{np.sqrt(np.mean(error[np.isfinite(y[model.max_lag_ :])] ** 2)):.6g}"],
        ["inside the 95 % band", f"{np.mean(inside[np.isfinite(y[model.max_lag_ :])]):.3f}"],
    ]
    held = "held back" if options.test_share else "fitted"
    print(f"{model}\n\n{model.terms_}\n\non {len(y)} rows {held}:")
    for label, value in facts:
        print(f"  {label:<22} {value}")
    if options.report:
        from .report import write_narx_report

        write_narx_report(options.report, model, u, y, facts, options.output)
        print(f"report written to {options.report}")


def demo(options: argparse.Namespace) -> None:
    """Compare the models on a data set that comes with scikit-learn."""
    from sklearn.datasets import load_diabetes, load_iris

    _before(options, options.report)
    if options.task == CLASSES:
        data = load_iris(as_frame=True)
        frame, target = data.data, data.target.map(dict(enumerate(data.target_names)))
        about, name = "Three species of iris: 150 flowers, 4 measurements (Fisher 1936)", "iris"
    else:
        data = load_diabetes(as_frame=True, scaled=False)
        frame, target = data.data, data.target
        sex = frame["sex"].map({1.0: "one", 2.0: "two"})  # which is which is not told
        frame = frame.assign(sex=sex)
        about, name = (
            "Diabetes progression after one year: 442 patients, 10 measurements "
            "(Efron et al. 2004)",
            "diabetes",
        )
    print(f"{about}\n")
    column = "species" if options.task == CLASSES else "progression"
    frame = frame.assign(**{column: target})
    options.target, options.drop, options.categories, options.id = column, [], [], []
    options.missing = "impute"
    _compare(options, _prepare(Table(name, frame), options))


# A table, its target, and what was said about both.


class _Data:
    """A table made ready: inputs, target, task."""

    def __init__(
        self,
        table: Table,
        frame: Any,
        target: Any,
        y: np.ndarray,
        task: str,
        classes: np.ndarray | None,
        left_out: list[str],
    ) -> None:
        self.title, self.path = Path(table.path).name, table.path
        self.notes = table.notes
        self.frame, self.target, self.y, self.task = frame, target, y, task
        self.classes = classes
        self.left_out = left_out  # columns that are no inputs


def _read(options: argparse.Namespace) -> _Data:
    return _prepare(read_table(options.data), options)


def _prepare(table: Table, options: argparse.Namespace) -> _Data:
    """Inputs and target of a table; rows without a target are left out."""
    from ..estimators._table_target import as_target, check_target, infer_task

    for name in ("drop", "categories", "id"):
        setattr(options, name, _columns(table, getattr(options, name)))
    table.require([options.target, *options.drop, *options.categories, *options.id])
    if f"{options.target}.1" in table.frame and any("again" in note for note in table.notes):
        raise TableError(f"{table.path} has two columns called {options.target!r}: rename one.")
    target = table.frame[options.target]
    there = target.notna().to_numpy()
    if not np.any(there):
        raise TableError(f"The target {options.target!r} is missing in every row of {table.path}.")
    if not np.all(there):
        table.notes.append(f"{np.sum(~there)} rows without the target were left out")
    drop = [options.target, *options.id]
    frame = table.frame[there].drop(columns=drop).reset_index(drop=True)
    if frame.shape[1] == 0:
        raise TableError(f"{table.path} has no column beside the target {options.target!r}.")
    target = target[there].reset_index(drop=True)
    if not np.all(there) and target.dtype.kind == "f" and np.all(target == np.round(target)):
        target = target.astype(np.int64)  # integers, as the file has them
    task = infer_task(as_target(target), options.task)
    y = check_target(task, as_target(target), options.target)
    return _Data(table, frame, target, y, task.kind, task.labels, drop)


def _columns(table: Table, given: list[str]) -> list[str]:
    """Names of columns; one option may name several, with commas."""
    names: list[str] = []
    for name in given:
        parts = name.split(",")
        several = name not in table.frame and all(part in table.frame for part in parts)
        names += parts if several else [name]
    return names


def _model(data: _Data, options: argparse.Namespace, name: str) -> Any:
    """An unfitted model of the table; the settings of the user are for models of this package."""
    from ..estimators.table import TableModel

    (choice,) = choices(data.task, [name])
    return TableModel(
        # The task that was found, unless the sentence on how it was found is still wanted.
        options.task,
        model=name,
        missing=options.missing,
        drop=tuple(options.drop),
        categories=tuple(options.categories),
        **(parse_settings(options.set) if choice.is_own else {}),
    )


def _compare(options: argparse.Namespace, data: _Data) -> None:
    from .comparison import Score, as_line, best, cells, head, make_folds, remarks

    names = options.models.split(",") if options.models else None
    chosen = choices(data.task, names)
    folds = make_folds(data.y, data.task, options.cv, options.test_share, options.seed)
    # The baseline on all rows: what the columns are, and how many inputs they make.
    look = _model(data, options, "baseline").fit(data.frame, data.target)
    _tell([*data.notes, *look.notes_])
    n_inputs, n_fit = len(look.get_feature_names_out()), len(folds[0][0])
    split = f"{len(folds)} folds" if len(folds) > 1 else f"{len(folds[0][1]):,} rows held out"
    print(
        f"{data.title}: {len(data.y):,} rows, {n_inputs} inputs, target {options.target} "
        f"({data.task}); {split}\n"
    )
    line = as_line(head(data.task), data.task)
    print(f"{line}\n{'-' * len(line)}", flush=True)
    found: list[Score] = []
    started = time.perf_counter()
    # With the task that was found: a fold must not find another.
    fixed = argparse.Namespace(**{**vars(options), "task": data.task})
    with Steps(len(chosen) * len(folds)) as steps:
        for number, choice in enumerate(chosen, start=1):
            left = options.time_budget - (time.perf_counter() - started)
            reason = "" if names else choice.unsuited(n_fit, n_inputs)
            if left <= 0:
                reason = reason or _no_time(options)
            said: list[str] = []
            if reason:
                score = Score(choice.name, reason=f"skipped: {reason}")
            else:
                score, said = _measured(choice.name, data, fixed, folds, steps, left)
            steps.skip_to(number * len(folds))
            found.append(score)
            line = f"{score.model:<15} {score.reason}"
            if not score.reason:
                line = as_line(cells(score, data.task), data.task)
            if score.folds:
                line += f"  ({score.folds})"
            print(line, flush=True)
            for text in said:
                _show_warning(f"{score.model}: {text}")
    taken = best(found, data.task)
    if taken is None:
        raise ValueError("No model could be fitted: see the lines above.")
    print(f"\nlowest {'NLL' if data.task == REGRESSION else 'log-loss'}: {taken.model}")
    for line in remarks(found):
        print(line)
    _hint_at_log(options, data)
    if options.report:
        from .report import write_table_report

        shown = best(found, data.task, own=True) or taken
        with Steps(1) as steps:
            steps.next(f"fitting {shown.model} to all rows for the report")
            model = _model(data, options, shown.model).fit(data.frame, data.target)
        settings = _settings_shown(options)
        write_table_report(options.report, data, found, model, folds, settings)
        print(f"report written to {options.report}")


def _measured(
    name: str, data: _Data, options: argparse.Namespace, folds: Any, steps: Steps, left: float
) -> tuple[Any, list[str]]:
    """The score of one model, or why it has none; and its warnings, once for all folds."""
    from .comparison import OutOfTime, Score, measure

    shown = f"fitting {name}"
    if len(folds) > 1:
        shown += f", part {{}} of {len(folds)}"
    make, told = partial(_model, data, options, name), partial(steps.next, shown)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            score = measure(name, make, data.frame, data.y, folds, data.classes, told, left)
        except OutOfTime:
            score = Score(name, reason=f"stopped: {_no_time(options)}")
        except ValueError as error:
            if options.models == name:
                raise
            score = Score(name, reason=f"failed: {' '.join(str(error).split())[:200]}")
    return score, list({str(w.message)[:60]: str(w.message) for w in reversed(caught)}.values())


def _no_time(options: argparse.Namespace) -> str:
    return f"the {options.time_budget:g} s of --time-budget are over"


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """``["gamma=0.1", "kernel=rbf"]`` as parameters; what is no Python literal is text."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"--set takes name=value, got {pair!r}.")
        try:
            settings[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            settings[name] = text
    return settings


# What is checked before the work, and what is said during and after it.


def _before(options: argparse.Namespace, *paths: str | None) -> None:
    """Refuse before the work, not after it, what cannot be done or written."""
    _needs("pandas", "skrub", report=getattr(options, "report", None))
    _writable(*paths)
    parse_settings(getattr(options, "set", []))
    if not getattr(options, "time_budget", 1.0) > 0:
        raise ValueError(f"--time-budget must be positive, got {options.time_budget}.")


def _needs(*packages: str, report: str | None = None) -> None:
    require("cli", "This command", *packages, *(("jinja2", "matplotlib") if report else ()))


def _writable(*paths: str | None) -> None:
    for path in paths:
        if path and not Path(path).absolute().parent.is_dir():
            raise TableError(f"There is no folder {Path(path).parent} to write {path} into.")
        if path and Path(path).is_dir():
            raise TableError(f"{path} is a folder; name a file to write.")
        if path and Path(path).suffix == ".skops":
            _needs("skops")


def _known(names: str | None, task: str) -> None:
    """Refuse a model that no task has, before the table is read."""
    there = {m.name for m in MODELS if task in ("auto", m.task)}
    for name in names.split(",") if names else []:
        if name not in there:
            raise ValueError(
                f"There is no model {name!r}; choose from "
                f"{', '.join(dict.fromkeys(m.name for m in MODELS if m.name in there))}."
            )


def _facts(model: Any) -> list[tuple[str, str]]:
    """Label and value of what a fitted model says about itself."""
    from ..estimators._summary import facts as summary
    from .comparison import n_terms

    facts = summary(model.final_, model.get_feature_names_out())
    last = model.estimator_[-1]
    if hasattr(last, "target_transform_"):
        gain = last.density_gain_
        said = "" if np.isnan(gain) else f" ({gain:+.1f} nats for log)"
        facts.append(("target", f"{last.target_transform_ or 'as it is'}{said}"))
    terms = n_terms(model)
    return facts if terms is None else [*facts, ("active terms", str(terms))]


def _hint_at_log(options: argparse.Namespace, data: _Data) -> None:
    """Name the setting for a target whose logarithm looks better, where it was not asked for."""
    from ..estimators.target_transform import looks_log

    asked = "target_transform" in parse_settings(options.set)
    if data.task == REGRESSION and not asked and looks_log(data.y):
        print(
            f"hint: {options.target} is positive with a long tail: --set target_transform=auto "
            "looks whether its logarithm is the better target"
        )


def _settings_shown(options: argparse.Namespace) -> dict[str, Any]:
    hidden = ("run", "report", "output", "data")
    return {k: v for k, v in vars(options).items() if k not in hidden and v not in (None, [])}


def _tell(notes: list[str]) -> None:
    for note in dict.fromkeys(notes):
        print(f"  {note}", flush=True)
    print()


def _save(path: str, model: Any) -> None:
    if Path(path).suffix == ".skops":
        from zipfile import ZIP_DEFLATED

        import skops.io as sio

        payload = sio.dumps(model, compression=ZIP_DEFLATED)
    else:
        import pickle

        payload = pickle.dumps(model)
    write_whole(path, payload)


def _load(path: str) -> Any:
    from ..estimators.table import TableModel

    if not Path(path).is_file():
        raise TableError(f"There is no model file {path}.")
    with open(path, "rb") as file:
        begins = file.read(4)
    if begins != b"PK\x03\x04" and begins[:1] != b"\x80":  # those of skops and pickle
        raise TableError(
            f"{path} is not a model written by `sparsebayes fit --output`: the file of the model "
            "comes first, then that of the rows."
        )
    try:
        if Path(path).suffix == ".skops":
            import skops.io as sio

            from .. import TRUSTED_TYPES

            model = sio.load(path, trusted=TRUSTED_TYPES)
        else:
            import pickle

            with open(path, "rb") as file:
                model = pickle.load(file)
        if not isinstance(model, TableModel):
            raise TypeError(f"it holds a {type(model).__name__}")
        return model
    except ImportError:
        raise
    except Exception as error:
        raise TableError(
            f"{path} is not a model written by `sparsebayes fit --output` of this version "
            f"({type(error).__name__}: {error})."
        ) from None


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    print(f"sparsebayes: warning: {message}", file=sys.stderr)


def _models_listed() -> str:
    lines = []
    for task in (REGRESSION, CLASSES):
        lines.append(f"models for {task} (* only when named):")
        for choice in MODELS:
            if choice.task == task:
                name = f"{choice.name}{'' if choice.usual else ' *'}"
                lines += textwrap.wrap(
                    f"  {name:<18} {choice.says}", 79, subsequent_indent=" " * 21
                )
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sparsebayes",
        description="Sparse Bayesian models for tables: few terms, honest error bars.",
        epilog=_models_listed(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sparsebayes {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        run: Any, *parents: argparse.ArgumentParser, models: bool = False
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(
            run.__name__,
            help=run.__doc__,
            description=run.__doc__,
            parents=parents,
            epilog=_models_listed() if models else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.set_defaults(run=run)
        return added

    def group() -> argparse.ArgumentParser:
        return argparse.ArgumentParser(add_help=False)

    settings = group()
    settings.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help=_SETTING)
    table = group()
    table.add_argument(
        "data", metavar="DATA", help="CSV (any separator, gz) or parquet file; - is standard input"
    )
    table.add_argument("--target", required=True, metavar="COLUMN", help="column to predict")
    for name, text in {
        "--drop": "column to leave out",
        "--categories": "column of numbers that are categories",
        "--id": "column that names the rows: no input, kept in predictions",
    }.items():
        text += "; several with commas, or repeat it"
        table.add_argument(name, metavar="COLUMN", action="append", default=[], help=text)
    table.add_argument(
        "--missing",
        choices=("impute", "drop", "error"),
        default="impute",
        help="gaps are filled and marked (the default), their rows left out, or refused",
    )
    tested = group()
    tested.add_argument(
        "--task",
        choices=("auto", REGRESSION, CLASSES),
        default="auto",
        help="default: found from the target",
    )
    tested.add_argument(
        "--cv",
        type=int,
        metavar="K",
        help="folds; 1 is one split (default: 5 below 5,000 rows, else 1)",
    )
    tested.add_argument("--test-share", type=float, metavar="SHARE", help="of one split (.25)")
    tested.add_argument("--seed", type=int, default=0, help="of the folds")
    choice = group()
    choice.add_argument("--models", metavar="A,B,...", help="which models (default: see below)")
    choice.add_argument(
        "--time-budget",
        type=float,
        default=_BUDGET,
        metavar="SECONDS",
        help=f"no model goes on after that (default: {_BUDGET:g}; inf: no limit)",
    )

    sub = command(fit, table, tested, settings, models=True)
    sub.add_argument("--model", default="auto", metavar="NAME", help="default: auto; see below")
    sub.add_argument("--output", metavar="FILE", help="where to write the model (.skops or .pkl)")
    sub.add_argument("--report", metavar="FILE", help="where to write a report (HTML)")
    sub = command(predict)
    sub.add_argument("model_file", metavar="MODEL", help="file written by `fit --output`")
    sub.add_argument("data", metavar="DATA", help="table with the same inputs; - is standard input")
    sub.add_argument("--output", metavar="FILE", help="where to write the predictions (CSV)")
    sub.add_argument("--level", type=float, default=0.95, help="of the intervals, default 0.95")
    sub.add_argument("--id", metavar="COLUMN", action="append", default=[], help="column to keep")
    sub = command(export)
    sub.add_argument("model_file", metavar="MODEL", help="file written by `fit --output`")
    sub.add_argument("--to", required=True, choices=("c", "python", "onnx"), help="the format")
    sub.add_argument("--output", metavar="FILE", help="where to write it (default: shown)")
    sub.add_argument("--name", default="model", help="prefix in C, name of the graph in ONNX")
    sub.add_argument("--no-std", action="store_true", help="the mean alone, which is smaller")
    sub = command(compare, table, tested, settings, choice, models=True)
    sub.add_argument("--report", metavar="FILE", help="where to write a report (HTML)")
    sub = command(narx)
    sub.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help=_NARX_SETTING)
    sub.add_argument("data", metavar="DATA", help="CSV file with a header row, rows in order")
    sub.add_argument(
        "--input", metavar="COLUMN", action="append", default=[], help="an input; may be repeated"
    )
    sub.add_argument("--output", required=True, metavar="COLUMN", help="the output")
    sub.add_argument("--lags", type=int, default=2, help="largest lag, default 2")
    sub.add_argument("--degree", type=int, default=3, help="largest degree, default 3")
    sub.add_argument("--test-share", type=float, default=0.25, metavar="SHARE")
    sub.add_argument("--report", metavar="FILE", help="where to write a report (HTML)")
    sub = command(demo, tested, settings, choice, models=True)
    sub.add_argument("--report", metavar="FILE", default="report.html")
    return parser
