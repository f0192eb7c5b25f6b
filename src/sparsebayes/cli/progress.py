"""Progress on standard error: a bar in a terminal, a line every other second in a log."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_PAUSE = 1.5  # seconds between two lines


class Steps:
    """The steps of a task: a bar with the remaining time, or lines in a log."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.text = total, -1, ""
        self.started = time.monotonic()
        self.bar: Any = None
        self.ended = threading.Event()
        self.thread: threading.Thread | None = None
        self.in_terminal = sys.stderr.isatty()

    def __enter__(self) -> Steps:
        if self.in_terminal:
            try:
                from rich.console import Console
                from rich.progress import (
                    BarColumn,
                    Progress,
                    SpinnerColumn,
                    TextColumn,
                    TimeElapsedColumn,
                    TimeRemainingColumn,
                )
            except ImportError:
                return self._watched()
            self.bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TimeElapsedColumn(),
                TextColumn("left:"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=sys.stdout.isatty(),
            )
            self.bar.start()
            self.task = self.bar.add_task("", total=None if self.total == 1 else self.total)
            return self
        return self._watched()

    def __exit__(self, *_: Any) -> None:
        self.ended.set()
        if self.thread is not None:
            self.thread.join()
        if self.bar is not None:
            self.bar.stop()
        elif self.in_terminal:
            _overwrite("")

    def next(self, text: str, part: int = 0) -> None:
        """Begin the next step; ``{}`` in its text is replaced by the number of the fold."""
        self.skip_to(self.done + 1)
        self.text = text.format(part + 1)
        if self.bar is not None:
            self.bar.update(self.task, description=self.text)
        elif self.in_terminal:
            self._show()

    def _watched(self) -> Steps:
        """Show the step from now on, also while it takes long."""
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while not self.ended.wait(_PAUSE):
            if self.text:
                self._show()

    def _show(self) -> None:
        took = time.monotonic() - self.started
        line = f"{self.text}, {took:.0f} s"
        if not self.in_terminal:
            print(line, file=sys.stderr, flush=True)
            return
        remaining = took / self.done * (self.total - self.done) if self.done > 0 else 0.0
        more = f", about {remaining:.0f} s left" if remaining else ""
        _overwrite(f"{_bar(max(0, self.done), self.total)} {line}{more}")

    def skip_to(self, done: int) -> None:
        """Count this many steps as done."""
        self.done = done
        if self.bar is not None:
            self.bar.update(self.task, completed=done)
        elif self.in_terminal:
            _overwrite("")


@contextmanager
def step(text: str) -> Iterator[None]:
    """Show a task of one step while it takes."""
    with Steps(1) as steps:
        steps.next(text)
        yield


def _bar(done: int, total: int) -> str:
    full = 20 * done // total
    return f"[{'#' * full}{'.' * (20 - full)}]"


def _overwrite(text: str) -> None:
    """Replace the last line of the terminal."""
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
