"""The options of each command, with the names that the estimators' parameters have."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from .. import __version__
from ..models import CLASSES, MODELS, REGRESSION
from .compare import compare, demo
from .fit import fit
from .narx import narx
from .prediction import export, predict

_BUDGET = 150.0  # seconds that all models of a comparison may take
_SETTING = "parameter of the model, for example gamma=ard"
NARX_SETTING = (
    "parameter of NARXRegressor: max_terms=10, noise_lags=2, refine=simulation, delay=1, ..."
)
_DESCRIPTION = "Sparse Bayesian regression and classification of tables, with prediction intervals."
_EXAMPLES = """\
examples:
  sparsebayes demo
  sparsebayes compare houses.csv --target price --report report.html
  sparsebayes fit houses.csv --target price --output model.skops
  sparsebayes predict model.skops new.csv --output predictions.csv

`sparsebayes COMMAND --help` lists the options of a command."""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; the option `run` of its result is the command."""
    parser = argparse.ArgumentParser(
        prog="sparsebayes",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sparsebayes {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    table, split, settings, several = _table(), _split(), _settings(), _several()

    def add(run: Any, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        command = commands.add_parser(
            run.__name__, help=run.__doc__, description=run.__doc__, parents=parents
        )
        command.set_defaults(run=run)
        return command

    command = add(demo, split, settings, several)
    command.add_argument(
        "--report",
        metavar="FILE",
        default="report.html",
        help="write a report (default: report.html)",
    )

    command = add(compare, table, split, settings, several)
    command.usage = "sparsebayes compare DATA --target COLUMN [options]"
    command.add_argument("--report", metavar="FILE", help="write a report (HTML)")

    command = add(fit, table, split, settings)
    command.usage = "sparsebayes fit DATA --target COLUMN [options]"
    command.add_argument(
        "--model", default="auto", metavar="NAME", help="see `sparsebayes models` (default: auto)"
    )
    command.add_argument("--output", metavar="FILE", help="write the model (.skops or .pkl)")
    command.add_argument("--report", metavar="FILE", help="write a report (HTML)")

    _add_model_commands(add(predict), add(export))
    _add_narx(add(narx))
    add(models)
    return parser


def _add_model_commands(
    command: argparse.ArgumentParser, export_command: argparse.ArgumentParser
) -> None:
    """Add the options of the commands that read a model: `predict` and `export`."""
    command.add_argument("model_file", metavar="MODEL", help="file written by `fit --output`")
    command.add_argument(
        "data", metavar="DATA", help="table with the same inputs; - is standard input"
    )
    command.add_argument("--output", metavar="FILE", help="write the predictions (default: print)")
    command.add_argument(
        "--level", type=float, default=0.95, help="coverage of the intervals (default 0.95)"
    )
    command.add_argument(
        "--id",
        metavar="COLUMN",
        action="append",
        default=[],
        help="column to copy to the predictions",
    )
    command = export_command
    command.add_argument("model_file", metavar="MODEL", help="file written by `fit --output`")
    command.add_argument("--to", required=True, choices=("c", "python", "onnx"), help="the format")
    command.add_argument("--output", metavar="FILE", help="write the code (default: print)")
    command.add_argument("--name", default="model", help="prefix in C, name of the graph in ONNX")
    command.add_argument(
        "--no-std", action="store_true", help="only the mean, which needs less memory"
    )


def _add_narx(command: argparse.ArgumentParser) -> None:
    """Add the options of `narx`."""
    command.add_argument("data", metavar="DATA", help="CSV file with a header, a row per time step")
    command.add_argument(
        "--input", metavar="COLUMN", action="append", default=[], help="an input; may be repeated"
    )
    command.add_argument("--output", required=True, metavar="COLUMN", help="the output")
    command.add_argument("--lags", type=int, default=2, help="largest lag (default 2)")
    command.add_argument("--degree", type=int, default=3, help="largest degree (default 3)")
    command.add_argument(
        "--test-share",
        type=float,
        default=0.25,
        metavar="SHARE",
        help="fraction of the time steps held out at the end (default 0.25)",
    )
    command.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help=NARX_SETTING
    )
    command.add_argument("--report", metavar="FILE", help="write a report (HTML)")


def models(options: argparse.Namespace) -> None:
    """List the names for `--model` and `--models`."""
    for task in (REGRESSION, CLASSES):
        print(f"models for {task} (* `compare` fits it only if --models names it):")
        for choice in MODELS:
            if choice.task == task:
                name = f"{choice.name}{'' if choice.usual else ' *'}"
                text = f"  {name:<18} {choice.says}"
                print("\n".join(textwrap.wrap(text, 79, subsequent_indent=" " * 21)))


def _table() -> argparse.ArgumentParser:
    """Return the options that describe a table."""
    group = argparse.ArgumentParser(add_help=False)
    group.add_argument(
        "data", metavar="DATA", help="CSV (also .gz) or parquet file; - is standard input"
    )
    group.add_argument("--target", required=True, metavar="COLUMN", help="column to predict")
    for name, text in {
        "--drop": "column to ignore",
        "--categories": "numeric column to treat as categorical",
        "--id": "column that is not an input; `predict` copies it",
    }.items():
        text += "; may be repeated"
        group.add_argument(name, metavar="COLUMN", action="append", default=[], help=text)
    group.add_argument(
        "--weights",
        metavar="COLUMN",
        help="column with the number of observations that a row stands for",
    )
    group.add_argument(
        "--missing",
        metavar="HOW",
        choices=("impute", "drop", "error"),
        default="impute",
        help="missing values: impute (default), drop or error",
    )
    return group


def _split() -> argparse.ArgumentParser:
    """Return the options of the task and of the held-out rows."""
    group = argparse.ArgumentParser(add_help=False)
    group.add_argument(
        "--task",
        metavar="TASK",
        choices=("auto", REGRESSION, CLASSES),
        default="auto",
        help="regression or classification (default: from the target)",
    )
    group.add_argument(
        "--cv",
        type=int,
        metavar="K",
        help="number of folds for the scores (default: 5, above 5,000 rows 1: a single split)",
    )
    group.add_argument(
        "--test-share",
        type=float,
        metavar="SHARE",
        help="share of rows held out in a single split (default: 0.25)",
    )
    group.add_argument("--seed", type=int, default=0, help="random seed for the folds")
    return group


def _settings() -> argparse.ArgumentParser:
    """Return the option that sets parameters of a model."""
    group = argparse.ArgumentParser(add_help=False)
    group.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help=_SETTING)
    return group


def _several() -> argparse.ArgumentParser:
    """Return the options of a comparison of several models."""
    group = argparse.ArgumentParser(add_help=False)
    group.add_argument("--models", metavar="A,B,...", help="models; see `sparsebayes models`")
    group.add_argument(
        "--time-budget",
        type=float,
        default=_BUDGET,
        metavar="SECONDS",
        help=f"time limit, the report included (default: {_BUDGET:g})",
    )
    return group
