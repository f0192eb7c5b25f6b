"""A table with its target and inputs, ready for a model."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..models import choices
from .checks import parse_settings
from .tables import Table, TableError


@dataclass(frozen=True)
class TableOptions:
    """The options of the user about a table and its models."""

    target: str
    task: str = "auto"
    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    id: tuple[str, ...] = ()
    missing: str = "impute"
    weights: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_arguments(cls, options: argparse.Namespace) -> TableOptions:
        """Return the options of a command that reads a table."""
        return cls(
            options.target,
            options.task,
            tuple(options.drop),
            tuple(options.categories),
            tuple(options.id),
            options.missing,
            options.weights,
            parse_settings(options.set),
        )


@dataclass(frozen=True)
class PreparedTable:
    """The rows of a table that have a target value, and the task inferred from the target.

    Parameters
    ----------
    options : TableOptions
        The options, with lists of columns split into names.
    path, title : str
        The file and its name.
    source : str
        Python code that makes the data frame `table`, if the table is not in a file.
    frame : DataFrame
        The inputs.
    target : Series
        The target as it was read.
    y : ndarray
        The target as the models take it.
    task : str
        Regression or classification.
    classes : ndarray or None
        The classes of a classification.
    excluded : list of str
        Columns that are not inputs: the target, the identifiers and the weights.
    notes : list of str
        Notes on how the file was read.
    weight : ndarray or None
        Weight of each row.
    """

    options: TableOptions
    path: str
    title: str
    source: str
    frame: Any
    target: Any
    y: np.ndarray
    task: str
    classes: np.ndarray | None
    excluded: list[str]
    notes: list[str]
    weight: np.ndarray | None = None

    def make_model(self, name: str, task: str | None = None) -> Any:
        """Return an unfitted model; settings of the user apply to models of this package.

        By default the model infers the task and reports it. In a fold, where another task could be
        inferred, `task` is that of the whole table.
        """
        from ..estimators.table import TableModel

        (choice,) = choices(self.task, [name])
        return TableModel(
            task or self.options.task,
            model=name,
            missing=self.options.missing,
            drop=self.options.drop,
            categories=self.options.categories,
            **(self.options.settings if choice.is_own else {}),
        )


def prepare(table: Table, options: TableOptions) -> PreparedTable:
    """Return the inputs and the target of a table; rows without a target are dropped."""
    from ..estimators._table_inputs import as_frame
    from ..estimators._table_target import as_target, check_target, infer_task

    options = replace(
        options,
        drop=named_columns(table, options.drop),
        categories=named_columns(table, options.categories),
        id=named_columns(table, options.id),
    )
    weights = [] if options.weights is None else [options.weights]
    table.require([options.target, *options.drop, *options.categories, *options.id, *weights])
    if any(note.startswith(f"duplicate column name {options.target!r}") for note in table.notes):
        raise TableError(f"{table.path} has two columns named {options.target!r}; rename one.")
    target = table.frame[options.target]
    labelled = target.notna().to_numpy()
    if not np.any(labelled):
        raise TableError(f"The target {options.target!r} is missing in every row of {table.path}.")
    notes = list(table.notes)
    if not np.all(labelled):
        notes.append(f"{np.sum(~labelled)} rows without a target value were dropped")
    excluded = [options.target, *options.id, *weights]
    frame = as_frame(table.frame[labelled].drop(columns=excluded))
    if frame.shape[1] == 0:
        raise TableError(f"{table.path} has no column besides the target {options.target!r}.")
    target = target[labelled].reset_index(drop=True)
    if not np.all(labelled) and target.dtype.kind == "f" and np.all(target == np.round(target)):
        target = target.astype(np.int64)  # integers, as the file has them
    task = infer_task(as_target(target), options.task)
    y = check_target(task, as_target(target), options.target)
    return PreparedTable(
        options,
        table.path,
        Path(table.path).name,
        table.source,
        frame,
        target,
        y,
        task.kind,
        task.labels,
        excluded,
        notes,
        _read_weights(table, options.weights, labelled),
    )


def _read_weights(table: Table, name: str | None, rows: np.ndarray) -> np.ndarray | None:
    """Return the weights of some rows; None if there is no column of weights."""
    if name is None:
        return None
    weight = table.series(name)[rows]
    if not np.all(np.isfinite(weight)) or np.any(weight < 0):
        raise TableError(
            f"The column {name!r} of weights in {table.path} must contain non-negative numbers."
        )
    return weight


def named_columns(table: Table, given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of columns given by options; one option may list several with commas."""
    names: list[str] = []
    for name in given:
        parts = name.split(",")
        several = name not in table.frame and all(part in table.frame for part in parts)
        names += parts if several else [name]
    return tuple(names)


def shown_settings(options: argparse.Namespace, table: TableOptions) -> dict[str, Any]:
    """Return the options of a command as the report lists them."""
    hidden = ("run", "report", "output", "data")
    columns = {
        "target": table.target,
        "drop": list(table.drop),
        "categories": list(table.categories),
        "id": list(table.id),
        "missing": table.missing,
        "weights": table.weights,
    }
    everything = {**columns, **vars(options), **columns}
    return {
        name: value
        for name, value in everything.items()
        if name not in hidden and value not in (None, [])
    }


def print_notes(notes: list[str]) -> None:
    """Print how the table was interpreted, each note once."""
    for note in dict.fromkeys(notes):
        print(f"  {note}", flush=True)
    print()
