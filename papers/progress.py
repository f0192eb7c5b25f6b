"""Progress of a paper's cells on standard error: a bar in a terminal, lines in a log."""

from __future__ import annotations

import sys
import time

_INTERVAL = 30.0  # seconds between two lines of a log


class CellProgress:
    """Reports how many cells of a paper are done."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.start = self.last_line = time.monotonic()

    def __call__(self, done: int, total: int, label: str) -> None:
        """Report one more finished cell."""
        now, is_last = time.monotonic(), done == total
        text = f"{self.name} {done}/{total} {duration(now - self.start)}"
        if sys.stderr.isatty():
            full = 20 * done // total
            bar = f"[{'#' * full}{'.' * (20 - full)}] {text} {label[:40]}"
            print(f"\r\033[K{'' if is_last else bar}", end="", file=sys.stderr, flush=True)
        elif is_last or now - self.last_line > _INTERVAL:
            self.last_line = now
            print(text, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Return a duration as text: seconds, minutes or hours.

    Examples
    --------
    >>> duration(75), duration(600), duration(9000)
    ('75 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
