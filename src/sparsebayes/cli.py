"""The command line: ``sparsebayes fit | predict | compare | narx | reproduce | datasets | demo``.

Every mistake of the user ends as one sentence on standard error and exit status 2; files appear
whole or not at all.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__
from .tables import (
    Encoding,
    TableError,
    encode,
    learn_encoding,
    read_table,
    series,
    split_target,
    write_output,
    write_table,
)

_SETTING = (
    "a parameter of the model; target_transform=auto looks whether log y is the better target"
)
_PAPERS = "forward, partition, lrols, group, backfitting or all (the default)"


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
        return 1
    except (ValueError, OSError, ImportError, MemoryError) as error:
        print(f"sparsebayes: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def fit(options: argparse.Namespace) -> None:
    """Fit one model to a CSV file, and say what it kept."""
    from .comparison import choose, final_model, n_terms, parse_settings

    inputs, y = split_target(read_table(options.data), options.target)
    encoding = learn_encoding(inputs)
    X = encode(inputs, encoding)
    model = choose(options.model).make(**parse_settings(options.set))
    _writable(options.output, options.report)
    model.fit(X, y)
    name = type(final_model(model)).__name__
    print(f"{name} on {len(y)} rows and {X.shape[1]} inputs of {options.data}")
    for label, value in [*_facts(final_model(model)), *_target_facts(model[-1])]:
        print(f"  {label:<18} {value}")
    print(f"  {'active terms':<18} {n_terms(model)}")
    if options.output:
        _save(options.output, model, encoding, options.target)
        print(f"model written to {options.output}")
    if options.report:
        from .report import write_fit_report

        write_fit_report(options.report, model, X, y, encoding.feature_names, options.target)
        print(f"report written to {options.report}")


def predict(options: argparse.Namespace) -> None:
    """Predict the rows of a CSV file with a saved model."""
    from .comparison import predict as predict_rows

    model, encoding, target = _load(options.model_file)
    X = encode(read_table(options.data), encoding)
    mean, std = predict_rows(model, X)
    names, columns = [target], [mean]
    if std is not None:
        names += ["std", "lower", "upper"]
        columns += [std, *_interval(model, X, mean, std, options.level)]
    if options.output:
        write_table(options.output, names, columns)
        print(f"{len(mean)} predictions written to {options.output}")
    else:
        print(",".join(names))
        for row in zip(*columns, strict=True):
            print(",".join(f"{value:.10g}" for value in row))


def compare(options: argparse.Namespace) -> None:
    """Fit several models to the same rows of a CSV file and test them on the others."""
    inputs, y = split_target(read_table(options.data), options.target)
    encoding = learn_encoding(inputs)
    X = encode(inputs, encoding)
    _compare(options, X, y, encoding.feature_names, Path(options.data).name, options.target)


def narx(options: argparse.Namespace) -> None:
    """Identify a dynamic system from a CSV file whose rows are moments in order."""
    from .comparison import parse_settings
    from .estimators.narx import NARXRegressor

    table = read_table(options.data)
    y = series(table, options.output)
    u = np.column_stack([series(table, name) for name in options.input]) if options.input else None
    settings = {"input_lags": options.lags, "output_lags": options.lags, "degree": options.degree}
    model = NARXRegressor(**settings | parse_settings(options.set))
    _writable(options.report)
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
    from sklearn.datasets import load_diabetes

    data = load_diabetes(scaled=False)
    print(
        "Diabetes progression after one year: 442 patients, 10 measurements (Efron et al. 2004)\n"
    )
    _compare(options, data.data, data.target, data.feature_names, "diabetes", "progression")


def datasets(options: argparse.Namespace) -> None:
    """List the data sets and where they were found."""
    from .datasets import list_datasets

    for entry in list_datasets():
        where = entry.path or "not found; see sparsebayes.datasets for where to put it"
        print(
            f"{entry.name:<11} {entry.n_samples:>6} rows {entry.n_features:>5} inputs  "
            f"target {entry.target:<20} {where}"
        )


def reproduce(options: argparse.Namespace) -> int:
    """Run the tables of a paper again and put ours beside the printed values."""
    from .experiments import PAPERS, load_paper
    from .experiments._frame import Store, measured_csv, outcome, read_measured, run_cells
    from .experiments._show import Bar, Reproduced, as_text, write_page, write_report

    if options.table is not None and options.paper == "all":
        raise ValueError("--table chooses a table of one paper: name the paper, too.")
    _writable(options.report, options.markdown)
    if options.report:  # what the report needs is missed before the run, not after it
        import jinja2  # noqa: F401
    if options.report or options.markdown:
        import matplotlib  # noqa: F401
    if options.data:
        if not Path(options.data).is_dir():
            raise ValueError(f"There is no folder {options.data} to read data sets from.")
        os.environ["SPARSEBAYES_DATA"] = options.data  # the workers of --jobs inherit it
    known: dict[str, Any] = {}
    if options.markdown and not options.quick:  # the numbers of the page that is there
        known = read_measured(Path(options.markdown).with_suffix(".csv"))
    shown = []
    for name in PAPERS if options.paper == "all" else [options.paper]:
        paper, printed = load_paper(name)
        store = Store(options.results, name, options.quick)
        chosen = [(table, table.cells(options.quick)) for table in paper.choose(options.table)]
        failed = {}
        if not options.show:
            cells = [cell for _, cells in chosen for cell in cells]
            failed = run_cells(cells, store, options.jobs, Bar(name))
        found = [
            outcome(table, cells, store, printed, failed, known.get(name))
            for table, cells in chosen
        ]
        shown.append(Reproduced(paper, found, options.quick))
        print(as_text(shown[-1]))
    if options.report:
        write_report(options.report, shown)
        print(f"report written to {options.report}")
    if options.markdown:
        outcomes = ((s.paper.name, s.outcomes) for s in shown)
        write_page(options.markdown, shown, measured_csv(known, outcomes))
        print(f"page written to {options.markdown}")
    return int(any(o.failures for paper in shown for o in paper.outcomes))


def _compare(
    options: argparse.Namespace,
    X: np.ndarray,
    y: np.ndarray,
    feature_names: list[str],
    title: str,
    target: str,
) -> None:
    from .comparison import MODELS, as_text, choose, parse_settings, score, split_rows

    names = options.models.split(",") if options.models else list(MODELS)
    choices = {name: choose(name) for name in names}
    settings = parse_settings(options.set)
    _writable(options.report)
    train, test = split_rows(len(y), options.test_share, options.seed)
    scores = []
    for name, choice in choices.items():
        _status(f"fitting {name} ...")
        own = settings if choice.home == "sparsebayes" else {}
        scores.append(score(name, choice.make(**own), X, y, train, test))
    _status("")
    print(f"{title}: {len(train)} rows to fit, {len(test)} to test, target {target}\n")
    print(as_text(scores))
    if options.report:
        from .report import write_comparison_report

        write_comparison_report(
            options.report, scores, X, y, train, test, feature_names, title, target
        )
        print(f"\nreport written to {options.report}")


def _facts(model: Any) -> list[tuple[str, str]]:
    """Label and value of what a fitted model says about itself."""
    facts = [
        ("log evidence", "log_evidence_"),
        ("noise variance", "noise_variance_"),
        ("gamma", "gamma_"),
        ("steps", "n_iter_"),
        ("converged", "converged_"),
    ]
    return [
        (label, f"{value:.6g}" if isinstance(value, float) else str(value))
        for label, attribute in facts
        if (value := getattr(model, attribute, None)) is not None
    ]


def _target_facts(model: Any) -> list[tuple[str, str]]:
    """What was found about the target, where that was asked for."""
    if not hasattr(model, "target_transform_"):
        return []
    gain = "" if np.isnan(model.evidence_gain_) else f" ({model.evidence_gain_:+.1f} nats for log)"
    return [("target", f"{model.target_transform_ or 'as it is'}{gain}")]


def _interval(
    model: Any, X: np.ndarray, mean: np.ndarray, std: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    if hasattr(model[-1], "predict_interval"):
        return model[-1].predict_interval(model[:-1].transform(X), level)
    from scipy.stats import norm

    half = norm.ppf(0.5 + 0.5 * level) * std
    return mean - half, mean + half


def _save(path: str, model: Any, encoding: Encoding, target: str) -> None:
    bundle = {
        "sparsebayes": __version__,
        "model": model,
        "columns": encoding.values,
        "target": target,
    }
    if Path(path).suffix == ".skops":
        import skops.io as sio

        payload = sio.dumps(bundle)
    else:
        import pickle

        payload = pickle.dumps(bundle)
    write_output(path, payload)


def _load(path: str) -> tuple[Any, Encoding, str]:
    if not Path(path).is_file():
        raise TableError(f"There is no model file {path}.")
    try:
        if Path(path).suffix == ".skops":
            import skops.io as sio

            from . import TRUSTED_TYPES

            bundle = sio.load(path, trusted=TRUSTED_TYPES)
        else:
            import pickle

            with open(path, "rb") as file:
                bundle = pickle.load(file)
        return bundle["model"], Encoding(bundle["columns"]), bundle["target"]
    except ImportError:
        raise
    except Exception as error:
        raise TableError(
            f"{path} is not a model written by `sparsebayes fit --output` of this version "
            f"({type(error).__name__}: {error})."
        ) from None


def _writable(*paths: str | None) -> None:
    """Refuse before the fit, not after it, where a result could not be written."""
    for path in paths:
        if path and not Path(path).absolute().parent.is_dir():
            raise TableError(f"There is no folder {Path(path).parent} to write {path} into.")
        if path and Path(path).suffix == ".skops":
            import skops  # noqa: F401


def _status(text: str) -> None:
    """What is being done, on a line that the next one overwrites; for people only."""
    if sys.stderr.isatty():
        print(f"\r{text:<40}", end="" if text else "\r", file=sys.stderr, flush=True)


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    print(f"sparsebayes: warning: {message}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sparsebayes", description="Sparse Bayesian models for tables in CSV files."
    )
    parser.add_argument("--version", action="version", version=f"sparsebayes {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(run: Any, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        added = commands.add_parser(
            run.__name__, help=run.__doc__, description=run.__doc__, parents=parents
        )
        added.set_defaults(run=run)
        return added

    settings = argparse.ArgumentParser(add_help=False)
    settings.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help=_SETTING)
    table = argparse.ArgumentParser(add_help=False)
    table.add_argument("data", metavar="DATA", help="CSV file with a header row")
    table.add_argument("--target", required=True, metavar="COLUMN", help="column to predict")
    choice = argparse.ArgumentParser(add_help=False)
    choice.add_argument("--models", metavar="A,B,...", help="which models (default: all)")
    choice.add_argument("--test-share", type=float, default=0.25, metavar="SHARE")
    choice.add_argument("--seed", type=int, default=0)

    sub = command(fit, table, settings)
    sub.add_argument("--model", default="auto", metavar="NAME", help="default: auto")
    sub.add_argument("--output", metavar="FILE", help="where to write the model (.skops or .pkl)")
    sub.add_argument("--report", metavar="FILE", help="where to write a report (HTML)")
    sub = command(predict)
    sub.add_argument("model_file", metavar="MODEL", help="file written by `fit --output`")
    sub.add_argument("data", metavar="DATA", help="CSV file with the same inputs")
    sub.add_argument("--output", metavar="FILE", help="where to write the predictions (CSV)")
    sub.add_argument("--level", type=float, default=0.95, help="of the intervals, default 0.95")
    sub = command(compare, table, settings, choice)
    sub.add_argument("--report", metavar="FILE", help="where to write a report (HTML)")
    sub = command(narx, settings)
    sub.add_argument("data", metavar="DATA", help="CSV file with a header row, rows in order")
    sub.add_argument(
        "--input", metavar="COLUMN", action="append", default=[], help="an input; may be repeated"
    )
    sub.add_argument("--output", required=True, metavar="COLUMN", help="the output")
    sub.add_argument("--lags", type=int, default=2, help="largest lag, default 2")
    sub.add_argument("--degree", type=int, default=3, help="largest degree, default 3")
    sub.add_argument("--test-share", type=float, default=0.25, metavar="SHARE")
    sub.add_argument("--report", metavar="FILE", help="where to write a report (HTML)")
    sub = command(demo, settings, choice)
    sub.add_argument("--report", metavar="FILE", default="report.html")
    sub = command(reproduce)
    sub.add_argument("paper", metavar="PAPER", nargs="?", default="all", help=_PAPERS)
    sub.add_argument("--table", metavar="N", help="one table: 1, 2, ... or 'figure 1', ...")
    sub.add_argument("--quick", action="store_true", help="fewer repetitions: minutes, not hours")
    sub.add_argument("--jobs", type=int, default=1, help="cells at once; -1: one per core")
    sub.add_argument("--data", metavar="DIR", help="folder with the data sets")
    sub.add_argument(
        "--results", metavar="DIR", default="reproduce", help="finished cells (default: reproduce)"
    )
    sub.add_argument("--show", action="store_true", help="what was run already; run nothing")
    sub.add_argument("--report", metavar="FILE", help="where to write a report (HTML)")
    sub.add_argument("--markdown", metavar="FILE", help="where to write the page of the docs")
    command(datasets)
    return parser


if __name__ == "__main__":
    sys.exit(main())
