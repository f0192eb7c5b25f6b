"""Progress on standard error: a bar in a terminal, lines in a log."""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from typing import Any

_SOON = 2.0  # seconds after which a log has a line on the step


class Steps:
    """The steps of a task: a bar with the remaining time, or a line in a log."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.text = total, -1, ""
        self.started = time.monotonic()
        self.bar: Any = None
        self.timer = threading.Timer(0.0, lambda: None)
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
                return self
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

    def __exit__(self, *_: Any) -> None:
        self.timer.cancel()
        if self.bar is not None:
            self.bar.stop()
        elif self.in_terminal:
            _overwrite("")

    def next(self, text: str, part: int = 0) -> None:
        """Begin the next step; ``{}`` in its text is replaced by the number of the fold."""
        self.skip_to(self.done + 1)
        text = text.format(part + 1)
        if self.bar is not None:
            self.bar.update(self.task, description=text)
        elif self.in_terminal:
            took = time.monotonic() - self.started
            remaining = took / self.done * (self.total - self.done) if self.done else 0.0
            more = f", about {remaining:.0f} s left" if remaining else ""
            _overwrite(f"{_bar(self.done, self.total)} {text}, {took:.0f} s{more}")
        elif text.split(", fold")[0] != self.text.split(", fold")[0]:
            self._log_later(text.split(", fold")[0])
        self.text = text

    def _log_later(self, text: str) -> None:
        """Print a line for a log unless the step ends soon."""
        self.timer.cancel()
        report = partial(print, f"{text} ...", file=sys.stderr, flush=True)
        self.timer = threading.Timer(_SOON, report)
        self.timer.daemon = True
        self.timer.start()

    def skip_to(self, done: int) -> None:
        """Count this many steps as done."""
        self.done = done
        if self.bar is not None:
            self.bar.update(self.task, completed=done)
        elif self.in_terminal:
            _overwrite("")


def _bar(done: int, total: int) -> str:
    full = 20 * done // total
    return f"[{'#' * full}{'.' * (20 - full)}]"


def _overwrite(text: str) -> None:
    """Replace the last line of the terminal."""
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
