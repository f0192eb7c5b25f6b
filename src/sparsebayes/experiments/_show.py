"""Outcomes for people: the terminal, one HTML file, and the page of the documentation."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import cleandoc

from .. import __version__
from ._frame import Line, Outcome, Paper, machine

HEAD = ("", "", "paper", "ours", "repetitions", "difference in sd", "held reproducible")


@dataclass(frozen=True)
class Reproduced:
    """One paper and the outcomes of the tables that were asked for."""

    paper: Paper
    outcomes: Sequence[Outcome]
    quick: bool

    @property
    def command(self) -> str:
        """What to type to get it again."""
        return f"sparsebayes reproduce {self.paper.name}{' --quick' if self.quick else ''}"

    @property
    def setting(self) -> str:
        """Seeds, version, machine and seconds, on one line."""
        cells = {key: value for o in self.outcomes for key, value in o.seconds.items()}
        seeds = sorted({key.seed for key in cells})
        parts = [
            "quick run" if self.quick else "full run",
            f"seeds {seeds[0]} to {seeds[-1]}" if seeds else "nothing run yet",
            f"sparsebayes {__version__}",
            machine(),
            f"{_duration(sum(cells.values()))} on one core",
        ]
        return ", ".join(parts)


def cells(line: Line) -> tuple[str, ...]:
    """One line under HEAD."""
    printed, away = line.printed, line.difference
    return (
        line.row,
        line.column,
        "-" if printed is None else _value(printed.mean, printed.sd),
        "not run" if line.n == 0 else _value(line.mean, line.sd if line.n > 1 else None),
        str(line.n),
        "-" if math.isnan(away) else f"{away:+.1f}{'' if line.within else ' *'}",
        "-" if printed is None else printed.reproducible,
    )


def as_text(shown: Reproduced) -> str:
    """A paper for the terminal."""
    paper = shown.paper
    parts = [f"{paper.title}\n{paper.reference}\n\n{cleandoc(paper.protocol)}\n"]
    for outcome in shown.outcomes:
        rows = [HEAD, *map(cells, outcome.lines)]
        parts.append(f"{outcome.table.label}. {outcome.table.title}\n")
        if outcome.lines:
            parts.append(_aligned(rows) + "\n")
        parts.append(f"-> {outcome.verdict}. {' '.join(outcome.reasons)}".rstrip() + "\n")
    parts.append(f"(*: more than one standard deviation away.) {shown.setting}\n")
    return "\n".join(parts)


def as_markdown(papers: Sequence[Reproduced]) -> str:
    """The page of the documentation."""
    parts = [
        "# The papers, reproduced",
        "Written by `sparsebayes reproduce all --markdown docs/reproduction.md`: every table and "
        "figure of the five papers, ours beside the printed values. Nothing here is typed in: "
        "delete a line of the results folder, run the command again, and it is measured again.",
        "A difference is in standard deviations of the paper's value where it prints one, else of "
        "ours over the repetitions; a star marks more than one. *Held reproducible* is what a "
        "study of the paper before these runs expected. **Reproduced**: every printed figure is "
        "within one standard deviation; **reproduced where it can be**: every one held to be "
        "reproducible, wholly or partly; **partly**: some are; the reasons for the others follow; "
        "**drawn again**: the paper prints no numbers to compare with.",
        "| paper | table | verdict | full run, hours on one core |\n| --- | --- | --- | ---: |\n"
        + "\n".join(
            f"| {shown.paper.name} | {o.table.label}: {_cell(o.table.title)} | {_short(o)} "
            f"| {_hours(o)} |"
            for shown in papers
            for o in shown.outcomes
        ),
    ]
    for shown in papers:
        paper = shown.paper
        parts += [f"## {paper.title}", paper.reference]
        parts += [f"```text\n{cleandoc(paper.protocol)}\n```"]
        parts += [f"`{shown.command}`: {shown.setting}."]
        for outcome in shown.outcomes:
            parts.append(f"### {outcome.table.label}: {outcome.table.title}")
            if outcome.n_done == 0:
                parts.append(
                    f"**Not run.** `{shown.command} --table '{outcome.table.number}'` takes about "
                    f"{_hours(outcome)} hours on one core. {' '.join(outcome.reasons)}".rstrip()
                )
                continue
            parts.append(f"**{outcome.verdict.capitalize()}.** {' '.join(outcome.reasons)}".strip())
            if outcome.n_done < outcome.n_cells:
                parts.append(
                    f"The whole table: `{shown.command} --table '{outcome.table.number}'`, about "
                    f"{_hours(outcome)} hours on one core."
                )
            if outcome.lines:
                rows = [HEAD, *map(cells, outcome.lines)]
                lines = ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
                lines.insert(1, "| --- | --- | ---: | ---: | ---: | ---: | --- |")
                parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def write_report(path: str, papers: Sequence[Reproduced]) -> None:
    """One self-contained HTML file, the figures drawn again in it."""
    from ..report import png, write

    sections: list[dict[str, object]] = [
        {
            "title": "Verdicts",
            "kind": "words",
            "head": ("paper", "table", "verdict"),
            "rows": [
                (shown.paper.name, f"{o.table.label}: {o.table.title}", _short(o))
                for shown in papers
                for o in shown.outcomes
            ],
        }
    ]
    for shown in papers:
        paper = shown.paper
        sections.append(
            {
                "title": paper.title,
                "text": paper.reference,
                "preformatted": cleandoc(paper.protocol),
                "note": f"{shown.command}: {shown.setting}",
            }
        )
        for outcome in shown.outcomes:
            drawn = outcome.table.figure if outcome.n_done else None
            sections.append(
                {
                    "title": f"{outcome.table.label}: {outcome.table.title}",
                    "text": f"{outcome.verdict.capitalize()}. {' '.join(outcome.reasons)}",
                    "head": HEAD,
                    "kind": "pairs",
                    "rows": [cells(line) for line in outcome.lines],
                    "image": png(drawn(outcome.results)) if drawn else None,
                }
            )
    write(path, "The papers, reproduced", f"sparsebayes {__version__}, {machine()}", sections)


class Bar:
    """Cells done, on standard error: a bar for people, a line now and then for logs."""

    def __init__(self, name: str, every: float = 30.0) -> None:
        self.name, self.every = name, every
        self.started = self.printed = time.monotonic()

    def __call__(self, done: int, total: int, what: str) -> None:
        """After each cell."""
        now, last = time.monotonic(), done == total
        text = f"{self.name} {done}/{total} {_duration(now - self.started)}"
        if sys.stderr.isatty():
            full = 24 * done // total
            bar = f"[{'#' * full}{'.' * (24 - full)}]"
            end = "\r\033[K" if last else ""
            print(f"\r\033[K{bar} {text} {what[:40]}{end}", end="", file=sys.stderr, flush=True)
        elif last or now - self.printed > self.every:
            self.printed = now
            print(text, file=sys.stderr, flush=True)


def _hours(outcome: Outcome) -> str:
    return f"{max(outcome.table.hours, 0.01):.2g}"


def _short(outcome: Outcome) -> str:
    part = "" if outcome.n_done in (0, outcome.n_cells) else ", not complete"
    return f"{outcome.verdict}{part}" + (f" ({outcome.counts})" if outcome.counts else "")


def _value(mean: float, sd: float | None) -> str:
    return f"{mean:.4g}" if sd is None else f"{mean:.4g} ± {sd:.2g}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)
