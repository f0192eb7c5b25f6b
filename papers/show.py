"""Outcomes as text for the terminal, as one HTML file and as the page of the documentation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path

from sparsebayes import __version__

from .files import write_whole
from .frame import UNKNOWN, Line, Outcome, Paper, machine
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


def as_markdown(papers: Sequence[Reproduced], images: dict[tuple[str, str], str]) -> str:
    """Return the page of the documentation; `images` has the figures' files by paper and table."""
    parts = [
        "# The papers, reproduced",
        "Written by `python3 dev.py papers all --markdown papers/reproduction.md`: tables and "
        "figures of the five papers, ours beside the printed values. Nothing here is typed in: the "
        "numbers are those of the results folder, and where that has fewer repetitions or none, "
        "those of earlier runs in `papers/reproduction.csv`. *Code* is a digest of the modules "
        "behind a line: the paper's experiments and what they import. Lines of code "
        f"`{UNKNOWN}` are from full runs made before there were digests.",
        "*Ours* is the paper's own algorithm as far as the paper describes it; lines of the "
        "library's defaults are named so and have no printed value. Differences are given in "
        "standard deviations of the printed value (else of ours over the repetitions), and in "
        "standard errors of the difference of the two means (with the paper's repetitions where it "
        "gives them, else as many as ours). A star marks more than one standard deviation, or more "
        "than two standard errors. *Expected* says whether a study of the paper before these runs "
        "expected the value to be reproducible. **Reproduced**: every printed value is within two "
        "standard errors; **reproduced where it can be**: every one that is expected to be "
        "reproducible, wholly or partly; **partly**: some are, and the reasons for the others "
        "follow; **redrawn**: the paper prints no numbers to compare with.",
        *(
            [f"Not reproduced at all: {'; '.join(left_out)}."]
            if (left_out := [what for shown in papers for what in shown.paper.left_out])
            else []
        ),
        "| paper | table | verdict | full run, hours on one core |\n| --- | --- | --- | ---: |\n"
        + "\n".join(
            f"| {shown.paper.name} | {o.table.label}: {_cell(o.table.title)} "
            f"| {'redrawn' if _only_drawn(o, images, shown) else _short(o)} | {_hours(o)} |"
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
            number = outcome.table.number
            parts.append(f"### {outcome.table.label}: {outcome.table.title}")
            if _only_drawn(outcome, images, shown):
                parts += ["**Redrawn** by an earlier run."]
            elif not outcome.n_done and not outcome.measured:
                parts.append(
                    f"**Not run.** `{shown.command} --table '{number}'` takes about "
                    f"{_hours(outcome)} hours on one core. {' '.join(outcome.reasons)}".rstrip()
                )
                continue
            else:
                words = f"**{outcome.verdict.capitalize()}.** {' '.join(outcome.reasons)}"
                parts.append(words.strip())
            if outcome.n_done < outcome.n_cells and not outcome.known:
                parts.append(
                    f"The whole table: `{shown.command} --table '{number}'`, about "
                    f"{_hours(outcome)} hours on one core."
                )
            if outcome.table.remark:
                parts.append(outcome.table.remark)
            if image := images.get((paper.name, number)):
                parts.append(f"![{outcome.table.title}]({image})")
            if outcome.lines:
                rows = [HEAD, *map(cells, outcome.lines)]
                lines = ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
                lines.insert(1, "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |")
                parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def write_page(path: str, papers: Sequence[Reproduced], measured: str) -> None:
    """Write the page, its numbers as CSV beside it, and its figures in a folder of images.

    A figure that cannot be drawn from the present results stays as it is.
    """
    page = Path(path)
    folder = page.parent / "images"
    images = {}
    for shown in papers:
        for outcome in shown.outcomes:
            if outcome.table.figure is None:
                continue
            name = f"{shown.paper.name}-{outcome.table.number.replace(' ', '-')}.png"
            results = outcome.table.results_from_means(outcome.lines) or outcome.results
            if results:
                folder.mkdir(parents=True, exist_ok=True)
                figure = outcome.table.figure(results)
                figure.savefig(folder / name, dpi=80, metadata={"Software": None})
            if (folder / name).is_file():
                images[shown.paper.name, outcome.table.number] = f"images/{name}"
    write_whole(path, as_markdown(papers, images).encode())
    write_whole(page.with_suffix(".csv"), measured.encode())


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


def _hours(outcome: Outcome) -> str:
    return f"{max(outcome.table.hours, 0.01):.2g}"


def _only_drawn(outcome: Outcome, images: dict[tuple[str, str], str], shown: Reproduced) -> bool:
    """Return whether a figure has a picture of an earlier run and no results."""
    has_image = (shown.paper.name, outcome.table.number) in images
    return has_image and not outcome.n_done and not outcome.lines


def _short(outcome: Outcome) -> str:
    whole = outcome.n_done in (0, outcome.n_cells)
    part = "" if whole or outcome.known else ", not complete"
    return f"{outcome.verdict}{part}" + (f" ({outcome.counts})" if outcome.counts else "")


def _value(mean: float, sd: float | None) -> str:
    return f"{mean:.4g}" if sd is None else f"{mean:.4g} ± {sd:.2g}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


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
