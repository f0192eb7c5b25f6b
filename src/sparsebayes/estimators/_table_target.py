"""The target of a table: whether it is a regression or a classification, and what each requires."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d

from .._extras import require
from ..models import CLASSES, REGRESSION
from ._table_numbers import (
    ALL_MARKS,
    find_sentinel,
    marks_note,
    number_marks,
    read_numbers,
    sentinel_note,
)
from .target_transform import looks_log

TASKS = ("auto", REGRESSION, CLASSES)
_MANY_CLASSES = 100
_FEW_INTEGERS = 10  # distinct integers up to which a note mentions classification
_NUMERIC = ("integer", "floating", "mixed-integer-float", "decimal")


@dataclass(frozen=True)
class Task:
    """The task that a target defines.

    Parameters
    ----------
    kind : "regression" or "classification"
    labels : array or None
        Classes: those of an ordered categorical in its order, others sorted.
    reason : str
        Type of the target ("numeric", "text", "boolean", "categorical"), or "requested".
    marks : str
        Characters to drop from text that is read as numbers, such as thousands separators.
    """

    kind: str
    labels: np.ndarray | None
    reason: str
    marks: str = field(default="", repr=False)


def as_target(y: Any) -> Any:
    """Return a target as a pandas Series: an array, a list, a polars or pandas Series."""
    require("cli", "A model of a table", "pandas", "skrub")
    import pandas as pd

    if isinstance(y, str):
        raise ValueError(
            f"y is the string {y!r}. Pass the values of the target: "
            f"fit(frame.drop(columns={y!r}), frame[{y!r}])."
        )
    if hasattr(y, "to_pandas"):
        y = y.to_pandas()
    if isinstance(y, pd.DataFrame) and y.shape[1] == 1:
        y = y.iloc[:, 0]
    if isinstance(y, pd.api.extensions.ExtensionArray | pd.Index):
        y = pd.Series(y)
    if not isinstance(y, pd.Series):
        array = np.asarray(y, dtype=object if isinstance(y, list | tuple) else None)
        if array.ndim == 2 and array.shape[1] > 1:
            raise ValueError(
                f"y has {array.shape[1]} columns, but table_model supports one target. Fit "
                "one model per target, or use RVMRegressor on numeric arrays."
            )
        y = pd.Series(column_or_1d(array, warn=True))
    return y.reset_index(drop=True)


def infer_task(y: Any, requested: str = "auto") -> Task:
    """Decide between regression and classification by the type of the target.

    Numbers are regression, however few of them are distinct, and so is text such as "$1,200" (see
    `number_marks`). Other text, booleans and categoricals are classes. The values of numbers play
    no part: all folds of a table have the same type, so that they cannot be given different tasks.

    Parameters
    ----------
    y : Series
        See `as_target`.
    requested : {"auto", "regression", "classification"}, default="auto"
        Whatever is not ``"auto"`` is taken as it is.

    Returns
    -------
    task : Task

    Examples
    --------
    >>> from sparsebayes.estimators._table_target import as_target, infer_task
    >>> infer_task(as_target([0, 1, 1, 0]))
    Task(kind='regression', labels=None, reason='numeric')
    >>> infer_task(as_target(["no", "yes", "yes"])).labels.tolist()
    ['no', 'yes']
    """
    if requested not in TASKS:
        raise ValueError(f"task must be one of {TASKS}, got {requested!r}.")
    reason = _type_of(y)
    marks = (number_marks(y.dropna()) or "") if reason == "text" and requested != CLASSES else ""
    if marks:
        reason = "numeric"
    kind = requested
    if requested == "auto":
        kind = REGRESSION if reason == "numeric" else CLASSES
    labels = _labels(y) if kind == CLASSES else None
    return Task(kind, labels, reason if requested == "auto" else "requested", marks)


def check_target(task: Task, y: Any, name: str | None = None) -> np.ndarray:
    """Return the values of a target as its task needs them: float64, or labels as they were given.

    Raises
    ------
    ValueError
        Where a value is missing, or not a finite number in a regression; where a classification has
        one class or nearly as many as rows; and where there are fewer than two rows.
    """
    what = target_named(name)
    if len(y) < 2:
        raise ValueError(f"{what} has {len(y)} sample(s); a fit needs at least two rows.")
    missing = np.flatnonzero(y.isna())
    if len(missing):
        raise ValueError(f"{what} is missing in row {missing[0] + 1}; drop rows without a target.")
    return _numbers(y, what, task.marks) if task.labels is None else _classes(task, y, what)


def target_named(name: str | None) -> str:
    """Return the subject of a sentence about the target."""
    return f"The target {name!r}" if name else "The target"


def target_notes(
    task: Task, y: np.ndarray, name: str | None = None, may_transform: bool = True
) -> list[str]:
    """Return sentences on the task, on how to request the other one, and on unusual values.

    `may_transform` is True if a model of the logarithm is left to the user.
    """
    what = target_named(name)
    asked = task.reason == "requested"
    why = f"{what}: {task.kind}, as requested" if asked else f"{what} is {task.reason}: {task.kind}"
    if task.labels is not None:
        shown = ", ".join(map(str, task.labels[:6])) + (", ..." if len(task.labels) > 6 else "")
        return [f"{why} ({len(task.labels)} classes: {shown})"]
    notes = [why]
    if not asked and has_few_integers(y):
        notes[0] += (
            f" (distinct integers: {len(np.unique(y))}; for classes use {CLASSES!r} as task)"
        )
    if task.marks:
        notes.append(f"{what} is {marks_note(task.marks)}")
    if sentinel := find_sentinel(y):
        notes.append(sentinel_note(what, *sentinel, "drop these rows"))
    if may_transform and looks_log(y):
        notes.append(
            f"{what} is positive and right-skewed. target_transform='auto' compares its logarithm."
        )
    return notes


def has_few_integers(y: np.ndarray) -> bool:
    """Return whether a numeric target has so few distinct integers that classes may be meant."""
    distinct = np.unique(y)
    return len(distinct) <= _FEW_INTEGERS and bool(np.all(distinct == np.round(distinct)))


def _type_of(y: Any) -> str:
    import pandas as pd

    if isinstance(y.dtype, pd.CategoricalDtype):
        return "categorical"
    inferred = pd.api.types.infer_dtype(y, skipna=True)
    if inferred in _NUMERIC:
        return "numeric"
    return {"boolean": "boolean", "string": "text", "empty": "numeric"}.get(inferred, inferred)


def _labels(y: Any) -> np.ndarray:
    """Return the classes in their order."""
    import pandas as pd

    if isinstance(y.dtype, pd.CategoricalDtype) and y.dtype.ordered:
        return y.cat.remove_unused_categories().cat.categories.to_numpy()
    try:
        return np.unique(_plain(y.dropna()))
    except TypeError:
        kinds = sorted({type(value).__name__ for value in y.dropna()})
        raise ValueError(
            f"The labels of the target are of several types ({', '.join(kinds)}); convert them "
            "to one, for example with y.astype(str)."
        ) from None


def _plain(y: Any) -> np.ndarray:
    """Return labels as a NumPy array of booleans, numbers or objects."""
    return y.astype(object).infer_objects().to_numpy()


def _numbers(y: Any, what: str, marks: str) -> np.ndarray:
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(y) or pd.api.types.is_timedelta64_dtype(y):
        raise ValueError(f"{what} contains dates or durations. Convert them to numbers.")
    values = read_numbers(y.astype(object), marks)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise ValueError(
            f"{what} has {_shown(y, bad[0])} in row {bad[0] + 1}, but a regression needs "
            "finite numbers."
        )
    return values


def _shown(y: Any, row: int) -> str:
    value = y.iloc[row]
    return repr(value.item() if isinstance(value, np.generic) else value)


def _classes(task: Task, y: Any, what: str) -> np.ndarray:
    labels: Any = task.labels
    if task.reason == "text":
        bad = np.flatnonzero(np.isnan(read_numbers(y, ALL_MARKS)))
        if 0 < 2 * len(bad) < len(y):
            raise ValueError(
                f"{what} has {_shown(y, bad[0])} in row {bad[0] + 1}, but most rows contain "
                f"numbers. Correct that value, or {_request(CLASSES)}."
            )
    elif task.reason not in ("boolean", "categorical", "requested"):
        raise ValueError(
            f"{what} has the unsupported type {task.reason}. Convert it to numbers, text or "
            "categories."
        )
    if len(labels) == 1:
        raise ValueError(
            f"{what} has only one class, {str(labels[0])!r}; a classifier needs at least two."
        )
    if len(labels) > max(2, min(_MANY_CLASSES, len(y) // 2)):
        raise ValueError(
            f"{what} has {len(labels)} distinct values in {len(y)} rows, too many for "
            f"classes. If they are numbers, convert them or {_request(REGRESSION)}."
        )
    return _plain(y)


def _request(task: str) -> str:
    """Return how to request a task, in Python and on the command line."""
    return f"set the task to {task!r} (--task {task} in a shell)"
