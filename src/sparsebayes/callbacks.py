"""Progress between the steps of a fit, for the terminal and scikit-learn's callbacks; its time."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

_INSTANT = 1e-9  # seconds
# Rows of a matrix whose factorisation takes more than a second. Nothing is printed meanwhile, not
# by another thread either: SciPy holds the interpreter's lock.
_MANY_ROWS = 5_000
_FIRST, _SILENCE, _LOOK = 1.0, 1.5, 0.2  # seconds of a pulse
_STEPS_PER_TASK = 25  # steps that scikit-learn's callbacks see as one


class Interrupt:
    """Ctrl-C during a fit: the first ends the fit with what it has reached, the second at once."""

    def __init__(self) -> None:
        self._pressed = self._noticed = False

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Listen during a fit.

        A fit inside another one, a fit in a thread, and one of a program with a handler of its own
        for this signal change nothing. A fit that had nothing left to cut short when Ctrl-C was
        pressed ends with a KeyboardInterrupt, so that it is never ignored.
        """
        in_main = threading.current_thread() is threading.main_thread()
        if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        self._pressed = self._noticed = False
        signal.signal(signal.SIGINT, self._press)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            was_ignored = self._pressed and not self._noticed
            self._pressed = False
        if was_ignored:
            raise KeyboardInterrupt

    def notice(self) -> bool:
        """Return whether the running fit should end; it has to if this is true."""
        self._noticed |= self._pressed
        return self._pressed

    def _press(self, *signal_and_frame: object) -> None:
        if self._pressed:
            raise KeyboardInterrupt
        self._pressed = True
        text = "Interrupted: the fit ends with what it has reached. Ctrl-C again stops it at once."
        print(text, file=sys.stderr, flush=True)


INTERRUPT = Interrupt()


class Pulse:
    """Lines of a fit that has been silent for a while: what it is doing, and for how long it runs.

    A part of a fit without steps, such as a factorisation or an import, says nothing by itself.
    """

    def __init__(self) -> None:
        self._taken = threading.Lock()
        self._spoken, self._text = 0.0, ""

    @contextmanager
    def beat(self, name: str) -> Iterator[None]:
        """Print such lines in this context; a fit inside another one has those of the outer one."""
        if not self._taken.acquire(blocking=False):
            yield
            return
        ended = threading.Event()
        self.begin(name, "reading the data")
        self._spoken = time.monotonic() - (_SILENCE - _FIRST)
        thread = threading.Thread(target=self._beat, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._taken.release()

    def begin(self, name: str, text: str) -> None:
        """Note what a model does from now on."""
        self._text = f"[{name}] {text}"

    def speak(self) -> None:
        """Note that a line is printed."""
        self._spoken = time.monotonic()

    def _beat(self, ended: threading.Event) -> None:
        started = time.monotonic()
        while not ended.wait(_LOOK):
            now = time.monotonic()
            if now - self._spoken >= _SILENCE:
                self.speak()
                print(f"{self._text}, {now - started:.0f} s", flush=True)


PULSE = Pulse()


class Budget:
    """The time that a fit may take. All parts of one fit share one, from its first second.

    Whatever takes long asks whether the budget is over before it goes on. `reason` is then the code
    of a `StopReason`; it is empty for a fit that was not cut short.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self.reason = ""
        self._printed = time.monotonic()

    @property
    def over(self) -> bool:
        """True after the time has passed, or the user has interrupted the fit."""
        if INTERRUPT.notice():
            self.reason = "interrupted"
        elif not self.reason and self._end is not None and time.monotonic() > self._end:
            self.reason = "time_limit"
        return bool(self.reason)

    @property
    def seconds_left(self) -> float | None:
        """Seconds that are left, more than none; None without a limit."""
        if self.over:
            return _INSTANT
        return None if self._end is None else max(_INSTANT, self._end - time.monotonic())

    def interrupt(self) -> None:
        """Note that the user has interrupted the fit."""
        self.reason = "interrupted"

    def is_time_to_print(self) -> bool:
        """Return whether a second has passed since this was last true."""
        if time.monotonic() - self._printed < 1.0:
            return False
        self._printed = time.monotonic()
        PULSE.speak()
        return True


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
        budget: Budget | None = None,
    ) -> None:
        self.estimator = estimator
        self.steps_per_task, self.in_units = steps_per_task, in_units
        self.budget = budget or Budget()
        self.verbose = int(getattr(estimator, "verbose", 0) or 0)
        self._begin("step 1")
        self._context = None
        self._task: Any = None
        if getattr(estimator, "_skl_callbacks", None) or hasattr(estimator, "_parent_callback_ctx"):
            self._context = estimator._init_callback_context(
                max_subtasks=-(-max_iter // steps_per_task)
            )
            self._context.call_on_fit_task_begin(estimator=estimator)

    def __call__(self, iteration: int, info: NamedTuple | dict[str, object], state: object) -> bool:
        """Report step number `iteration`; True asks the loop to stop."""
        if self.verbose and (self.verbose > 1 or self.budget.is_time_to_print()):
            fields = self.in_units(info if isinstance(info, dict) else info._asdict())
            print(f"[{type(self.estimator).__name__}] step {iteration}: {describe(fields)}")
            sys.stdout.flush()
        self._begin(f"step {iteration + 1}")
        if self._context is None:
            return self.budget.over
        if self._task is None:
            self._task = self._context.subcontext(task_name="steps")
            self._task.call_on_fit_task_begin(estimator=self.estimator)
        if iteration % self.steps_per_task == 0:
            return self._end_task() or self.budget.over
        return self.budget.over

    def close(self) -> None:
        """End the last task."""
        self._begin("completing the model")
        if self._context is not None:
            self._end_task()
            self._context.call_on_fit_task_end(estimator=self.estimator)

    def _begin(self, text: str) -> None:
        if self.verbose:
            PULSE.begin(type(self.estimator).__name__, text)

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
    budget : Budget
        The time that the fit may take.
    """

    estimator: BaseEstimator | None = None
    budget: Budget = field(default_factory=Budget)

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
        progress = Progress(self.estimator, max_iter, steps_per_task, in_units, self.budget)
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
        return lambda rows: self.say(f"read {rows} of {n_rows} rows")

    def say(self, text: str, n_factored: int = 0) -> None:
        """Print what a fit is doing, about once a second where `verbose` is set.

        The factorisation of a matrix of many rows, `n_factored`, is announced at once.
        """
        if getattr(self.estimator, "verbose", 0):
            PULSE.begin(self.name, text)
            if self.budget.is_time_to_print() or n_factored > _MANY_ROWS:
                PULSE.speak()
                print(f"[{self.name}] {text}", flush=True)


def describe(fields: dict[str, object]) -> str:
    """Return the fields of a step on one line."""
    parts = []
    for name, value in fields.items():
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        parts.append(f"{name.replace('_', ' ')} {text}")
    return ", ".join(parts)
