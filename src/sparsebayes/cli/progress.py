"""What is being done, on standard error: a bar for people, lines for a log."""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from typing import Any

_SOON = 2.0  # seconds after which a log is told what is being done


class Steps:
    """The pieces of a piece of work: a bar with the time left, or a line in a log."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.text = total, -1, ""
        self.started = time.monotonic()
        self.bar: Any = None
        self.timer = threading.Timer(0.0, lambda: None)
        self.people = sys.stderr.isatty()

    def __enter__(self) -> Steps:
        if self.people:
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
        elif self.people:
            _overwrite("")

    def next(self, text: str, part: int = 0) -> None:
        """The next piece of work begins; its text may have a place for the number of the part."""
        self.skip_to(self.done + 1)
        text = text.format(part + 1)
        if self.bar is not None:
            self.bar.update(self.task, description=text)
        elif self.people:
            took = time.monotonic() - self.started
            left = took / self.done * (self.total - self.done) if self.done else 0.0
            more = f", about {left:.0f} s left" if left else ""
            _overwrite(f"{_bar(self.done, self.total)} {text}, {took:.0f} s{more}")
        elif text.split(", part")[0] != self.text.split(", part")[0]:
            self._say_later(text.split(", part")[0])
        self.text = text

    def _say_later(self, text: str) -> None:
        """A line for a log, if the work is not done at once."""
        self.timer.cancel()
        said = partial(print, f"{text} ...", file=sys.stderr, flush=True)
        self.timer = threading.Timer(_SOON, said)
        self.timer.daemon = True
        self.timer.start()

    def skip_to(self, done: int) -> None:
        """So many pieces are behind us."""
        self.done = done
        if self.bar is not None:
            self.bar.update(self.task, completed=done)
        elif self.people:
            _overwrite("")


def _bar(done: int, total: int) -> str:
    full = 20 * done // total
    return f"[{'#' * full}{'.' * (20 - full)}]"


def _overwrite(text: str) -> None:
    """Write over the last line of the terminal."""
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
