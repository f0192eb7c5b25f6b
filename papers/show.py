"""Outcomes as text for the terminal and as one HTML file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import cleandoc

from sparsebayes import __version__

from .frame import Line, Outcome, Paper, machine
from .progress import duration
from .report import Section
from .report import write_page as write_html

HEAD = (
    *("", "", "paper", "ours", "repetitions"),
    *("difference in sd", "in standard errors", "expected", "code"),
)


@dataclass(frozen=True)
class Reproduced:
    """One paper and the outcomes of its chosen tables."""

    paper: Paper
    outcomes: Sequence[Outcome]
    quick: bool

    @property
    def command(self) -> str:
        """Return the command that repeats it."""
        return f"python3 dev.py papers {self.paper.name}{' --quick' if self.quick else ''}"

    @property
    def setting(self) -> str:
        """Return seeds, version, machine and duration on one line."""
        cells = {key: value for o in self.outcomes for key, value in o.seconds.items()}
        seeds = sorted({seed for *_, seed in cells})
        if not seeds:
            return "nothing run here" if any(o.measured for o in self.outcomes) else "not run yet"
        whole = all(o.n_done == o.n_cells for o in self.outcomes)
        parts = [
            "quick run" if self.quick else "full run" if whole else "part of the full run",
            f"seeds {seeds[0]} to {seeds[-1]}",
            f"sparsebayes {__version__}",
            machine(),
            f"{duration(sum(cells.values()))} on one core",
        ]
        return ", ".join(parts)


def cells(line: Line) -> tuple[str, ...]:
    """Return one row of the table under HEAD."""
    printed, away, errors = line.printed, line.difference, line.errors
    return (
        line.row,
        line.column,
        "-" if printed is None else _value(printed.mean, printed.sd),
        "not run" if line.n == 0 else _value(line.mean, line.sd if line.n > 1 else None),
        str(line.n),
        "-" if math.isnan(away) else f"{away:+.1f}{'' if line.within else ' *'}",
        "-" if math.isnan(errors) else f"{errors:+.1f}{'' if line.agrees else ' *'}",
        "-" if printed is None else printed.reproducible,
        line.code or "-",
    )


def as_text(shown: Reproduced) -> str:
    """Return a paper as text for the terminal."""
    paper = shown.paper
    parts = [f"{paper.title}\n{paper.reference}\n\n{cleandoc(paper.protocol)}\n"]
    for outcome in shown.outcomes:
        rows = [HEAD, *map(cells, outcome.lines)]
        parts.append(f"{outcome.table.label}. {outcome.table.title}\n")
        if outcome.lines:
            parts.append(_aligned(rows) + "\n")
        parts.append(f"-> {outcome.verdict}. {' '.join(outcome.reasons)}".rstrip() + "\n")
    parts.append(
        f"(*: more than one standard deviation, or two standard errors, away.) {shown.setting}\n"
    )
    return "\n".join(parts)


def write_report(path: str, papers: Sequence[Reproduced]) -> None:
    """Write one self-contained HTML file with the tables and figures of some papers."""
    sections = [
        Section(
            "Verdicts",
            head=("paper", "table", "verdict"),
            rows=[
                (shown.paper.name, f"{o.table.label}: {o.table.title}", _short(o))
                for shown in papers
                for o in shown.outcomes
            ],
        )
    ]
    for shown in papers:
        paper = shown.paper
        sections.append(
            Section(
                paper.title,
                text=paper.reference,
                preformatted=cleandoc(paper.protocol),
                note=f"{shown.command}: {shown.setting}",
            )
        )
        for outcome in shown.outcomes:
            draw = outcome.table.figure if outcome.n_done else None
            sections.append(
                Section(
                    f"{outcome.table.label}: {outcome.table.title}",
                    text=f"{outcome.verdict.capitalize()}. {' '.join(outcome.reasons)}",
                    head=HEAD,
                    rows=[cells(line) for line in outcome.lines],
                    figure=draw(outcome.results) if draw else None,
                )
            )
    write_html(path, "The papers, reproduced", f"sparsebayes {__version__}, {machine()}", sections)


def _short(outcome: Outcome) -> str:
    whole = outcome.n_done in (0, outcome.n_cells)
    part = "" if whole or outcome.known else ", not complete"
    return f"{outcome.verdict}{part}" + (f" ({outcome.counts})" if outcome.counts else "")


def _value(mean: float, sd: float | None) -> str:
    return f"{mean:.4g}" if sd is None else f"{mean:.4g} ± {sd:.2g}"


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
