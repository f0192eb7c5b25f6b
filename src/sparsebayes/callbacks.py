"""Progress between the steps of a fit: on the terminal, and for scikit-learn's callbacks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

_STEPS_PER_TASK = 25  # steps that scikit-learn's callbacks see as one


class Progress:
    """Called by the run loop after each step.

    It prints the evidence about once a second if `verbose` is set, and reports each block of steps
    to scikit-learn's callbacks as one task. If a callback returns True the fit stops. `in_units`
    converts the fields of a step to the units of the user.
    """

    def __init__(
        self,
        estimator: BaseEstimator,
        max_iter: int,
        steps_per_task: int = _STEPS_PER_TASK,
        in_units: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    ) -> None:
        self.estimator = estimator
        self.steps_per_task, self.in_units = steps_per_task, in_units
        self.verbose = int(getattr(estimator, "verbose", 0) or 0)
        self._printed = time.monotonic()
        self._context = None
        self._task: Any = None
        if getattr(estimator, "_skl_callbacks", None) or hasattr(estimator, "_parent_callback_ctx"):
            self._context = estimator._init_callback_context(
                max_subtasks=-(-max_iter // steps_per_task)
            )
            self._context.call_on_fit_task_begin(estimator=estimator)

    def __call__(self, iteration: int, info: NamedTuple | dict[str, object], state: object) -> bool:
        """Report step number `iteration`; True asks the loop to stop."""
        if self.verbose and (self.verbose > 1 or time.monotonic() - self._printed > 1.0):
            self._printed = time.monotonic()
            fields = self.in_units(info if isinstance(info, dict) else info._asdict())
            print(f"[{type(self.estimator).__name__}] step {iteration}: {describe(fields)}")
            sys.stdout.flush()
        if self._context is None:
            return False
        if self._task is None:
            self._task = self._context.subcontext(task_name="steps")
            self._task.call_on_fit_task_begin(estimator=self.estimator)
        if iteration % self.steps_per_task == 0:
            return self._end_task()
        return False

    def close(self) -> None:
        """End the last task."""
        if self._context is not None:
            self._end_task()
            self._context.call_on_fit_task_end(estimator=self.estimator)

    def _end_task(self) -> bool:
        task, self._task = self._task, None
        return bool(task and task.call_on_fit_task_end(estimator=self.estimator))


@dataclass(frozen=True)
class Reporter:
    """The way a fit reaches the user: the name of the model, and its steps as they are taken.

    Attributes
    ----------
    estimator : BaseEstimator, optional
        The estimator that is fitted, with its `verbose` and its callbacks; None is silent.
    """

    estimator: BaseEstimator | None = None

    @property
    def name(self) -> str:
        """Name of the model, for sentences."""
        return "The model" if self.estimator is None else type(self.estimator).__name__

    @contextmanager
    def steps(
        self,
        max_iter: int,
        in_units: Callable[[dict[str, Any]], dict[str, Any]] = dict,
        steps_per_task: int = _STEPS_PER_TASK,
    ) -> Iterator[Progress | None]:
        """Yield what is called after each step of a solver; None where nobody listens."""
        if self.estimator is None:
            yield None
            return
        progress = Progress(self.estimator, max_iter, steps_per_task, in_units)
        try:
            yield progress
        finally:
            progress.close()

    def rows_read(self, n_rows: int) -> Callable[[int], None] | None:
        """Return a function that prints how many rows were read, about once a second.

        It returns None unless `verbose` is set.
        """
        if not getattr(self.estimator, "verbose", 0):
            return None
        printed = time.monotonic()

        def report(rows: int) -> None:
            nonlocal printed
            if time.monotonic() - printed > 1.0:
                printed = time.monotonic()
                print(f"[{self.name}] read {rows} of {n_rows} rows", flush=True)

        return report


def describe(fields: dict[str, object]) -> str:
    """Return the fields of a step on one line."""
    parts = []
    for name, value in fields.items():
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        parts.append(f"{name.replace('_', ' ')} {text}")
    return ", ".join(parts)
