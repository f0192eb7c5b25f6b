"""Checks that a command makes before the long work starts, and the settings that it parses."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from .._extras import require
from .._warn import suggestion
from ..models import MODELS
from .tables import TableError


def check_packages(*packages: str, report: str | None = None) -> None:
    """Raise ImportError if one of these packages, or one that a report needs, is missing."""
    require("cli", "This command", *packages, *(("jinja2", "matplotlib") if report else ()))


def check_writable(*paths: str | None) -> None:
    """Raise an error if one of these files cannot be written."""
    for path in paths:
        if path and not Path(path).absolute().parent.is_dir():
            raise TableError(f"Cannot write {path}: the folder {Path(path).parent} does not exist.")
        if path and Path(path).is_dir():
            raise TableError(f"{path} is a folder; pass the name of a file.")
        if path and Path(path).suffix == ".skops":
            check_packages("skops")


def check_model_file(path: str | None) -> None:
    """Raise an error where a model would be written to a file of an unknown kind."""
    if path and Path(path).suffix not in (".skops", ".pkl", ".pickle"):
        raise ValueError(f"--output must end in .skops or .pkl, got {path}.")


def check_models(names: str | None, task: str) -> None:
    """Raise an error where no task has a model of one of these names."""
    available = [model.name for model in MODELS if task in ("auto", model.task)]
    for name in names.split(",") if names else []:
        if name not in available:
            choices = ", ".join(dict.fromkeys(available))
            raise ValueError(
                f"Unknown model {name!r}{suggestion(name, available)}; choose from {choices}."
            )


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """Return ``["gamma=0.1", "kernel=rbf"]`` as parameters.

    A value that is not a Python literal is text.

    Examples
    --------
    >>> from sparsebayes.cli.checks import parse_settings
    >>> parse_settings(["gamma=0.1", "kernel=rbf"])
    {'gamma': 0.1, 'kernel': 'rbf'}
    """
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
