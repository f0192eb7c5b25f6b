"""The pages ``docs/papers``: one per paper, written from its template and its numbers.

The template of a paper stands beside its module (``sun2006.md``). It is prose with places for
numbers, so that no number on a page is typed in:

- ``<<table>>``: the paper's headline lines, printed values beside ours;
- ``<<picture>>``: the figure of the table that the paper names as its picture;
- ``<<verdicts>>``: one line per table and figure, with the number of values that agree;
- ``<<code>>``: how many repetitions were measured with which code;
- ``<<1 | Abalone | Forward MSE>>``: our mean of one line, by table, row and column;
- ``<<settings>>``: the settings that were tried for figures that do not agree.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from . import PAPERS
from .files import write_whole
from .frame import Line, Outcome, Printed
from .show import Reproduced

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "papers"
TEMPLATES = Path(__file__).resolve().parent
_PLACE = re.compile(r"<<(.+?)>>")


def write_numbers(text: str, name: str) -> None:
    """Write the numbers of a paper as a CSV file beside its page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_whole(str(FOLDER / f"{name}.csv"), text.encode())


def write_pages(papers: Sequence[Reproduced]) -> None:
    """Write the overview and the page of each paper, with pictures."""
    for shown in papers:
        write_whole(str(FOLDER / f"{shown.paper.name}.md"), page(shown).encode())
    write_whole(str(FOLDER / "index.md"), overview(papers).encode())


def page(shown: Reproduced) -> str:
    """Return the page of one paper; a figure that cannot be drawn now stays as it is."""
    template = TEMPLATES / f"{PAPERS[shown.paper.name]}.md"
    parts = {
        "table": headline_table,
        "picture": picture,
        "verdicts": verdict_table,
        "code": code_sentence,
        "settings": settings_table,
    }

    def fill(match: re.Match[str]) -> str:
        place = match[1].strip()
        return parts[place](shown) if place in parts else _ours(shown, place)

    return _wrapped(_PLACE.sub(fill, template.read_text("utf-8")))


def overview(papers: Sequence[Reproduced]) -> str:
    """Return the page that lists the papers."""
    lines = [
        "| paper | printed values within two standard errors | expected to be reproducible |",
        "|---|---:|---:|",
    ]
    for shown in papers:
        compared = [line for outcome in shown.outcomes for line in outcome.compared]
        hoped = [line for line in compared if line.printed and line.printed.reproducible == "yes"]
        title = f"[{shown.paper.title}]({shown.paper.name}.md), {shown.paper.reference}"
        lines.append(f"| {title} | {_share(compared)} | {_share(hoped)} |")
    template = (TEMPLATES / "overview.md").read_text("utf-8")
    names = "\n".join(shown.paper.name for shown in papers)
    return _wrapped(template.replace("<<papers>>", "\n".join(lines)).replace("<<names>>", names))


def headline_table(shown: Reproduced) -> str:
    """Return the headline lines of a paper as a table."""
    out = [
        "| | | printed | ours | repetitions | difference, standard errors |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for outcome in shown.outcomes:
        for line in outcome.lines:
            if shown.paper.is_headline(outcome.table.number, line.column):
                out.append("| " + " | ".join(_cells(outcome, line)) + " |")
    return "\n".join(out)


def verdict_table(shown: Reproduced) -> str:
    """Return one line per table and figure of a paper."""
    out = [
        "| | | verdict | within two standard errors | of those expected to be reproducible |",
        "|---|---|---|---:|---:|",
    ]
    for o in shown.outcomes:
        if not o.lines:  # a figure without numbers
            continue
        hoped = [line for line in o.compared if line.printed and line.printed.reproducible == "yes"]
        cells = (o.table.label, o.table.title, o.verdict, _share(o.compared), _share(hoped))
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def code_sentence(shown: Reproduced) -> str:
    """Return which code measured the lines of a page, and whether that is the present code."""
    codes = Counter(line.code for outcome in shown.outcomes for line in outcome.measured)
    current = shown.outcomes[0].code
    total = sum(codes.values())
    if set(codes) <= {current}:
        return f"All {total} lines were measured with the present code (digest `{current}`)."
    parts = ", ".join(f"{n} with `{code}`" for code, n in codes.most_common())
    return f"Of {total} lines, {parts} were measured; the present code has the digest `{current}`."


def picture(shown: Reproduced) -> str:
    """Draw the picture of a paper where its results are here, and return the link to it."""
    for outcome in shown.outcomes:
        if outcome.table.number != shown.paper.picture or outcome.table.figure is None:
            continue
        path = FOLDER / "images" / f"{shown.paper.name}.png"
        results = outcome.table.results_from_means(outcome.lines) or outcome.results
        if results:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure = outcome.table.figure(results)
            figure.savefig(path, dpi=80, metadata={"Software": None})
        if path.is_file():
            return f"![{outcome.table.title}](images/{path.name})"
    return ""


def settings_table(shown: Reproduced) -> str:
    """Return, for each printed value that was searched for, the setting that comes closest."""
    out = [
        "| | | printed | our setting | closest | its values | agree: before, after | tried |",
        "|---|---|---:|---:|---|---:|---:|---:|",
    ]
    lines = {(o.table.number, ln.row, ln.column): ln for o in shown.outcomes for ln in o.lines}
    for data, column, places in shown.paper.targets:
        own = {value: lines[place] for value, place in places.items()}
        printed = {value: line.printed for value, line in own.items() if line.printed}
        tried: dict[str, dict[str, Line]] = {}
        for (table, row, name), line in lines.items():
            group, _, setting = row.partition(": ")
            for value in printed:
                if (table, group, name) == ("settings", data, f"{column} {value}") and line.n:
                    compared = replace(line, printed=printed[value])
                    tried.setdefault(setting, {})[value] = compared
        if not tried:
            continue
        best = min(tried, key=lambda setting: _order(tried[setting], printed))
        cells = (
            _several({value: found.mean for value, found in printed.items()}),
            _several({value: line.mean for value, line in own.items()}),
            best,
            _several({value: line.mean for value, line in tried[best].items()}),
            f"{_share(list(own.values()))}, {_share(list(tried[best].values()))}",
            str(len(tried)),
        )
        out.append(f"| {data} | {column} | " + " | ".join(cells) + " |")
    return "\n".join(out) if len(out) > 2 else "(Not run yet.)"


def _order(found: dict[str, Line], printed: dict[str, Printed]) -> tuple[int, float]:
    """Return minus the number of values that agree, and the sum of absolute log ratios."""
    distance = sum(abs(math.log(max(found[v].mean, 1e-9) / printed[v].mean)) for v in found)
    return -sum(line.agrees for line in found.values()), distance


def _several(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in values.items())


def _wrapped(text: str) -> str:
    """Break the lines of prose again, after values were put in; tables, lists and code stay."""
    paragraphs = [
        paragraph
        if paragraph.startswith(("|", "-", "#", "!")) or "```" in paragraph
        else textwrap.fill(paragraph, 100, break_long_words=False, break_on_hyphens=False)
        for paragraph in text.strip().split("\n\n")
    ]
    return "\n\n".join(paragraphs) + "\n"


def _cells(outcome: Outcome, line: Line) -> tuple[str, ...]:
    printed = "–" if line.printed is None else _value(line.printed.mean, line.printed.sd)
    ours = "not run" if line.n == 0 else _value(line.mean, line.sd if line.n > 1 else None)
    away = "–" if math.isnan(line.errors) else f"{line.errors:+.1f}"
    column = line.column
    if outcome.table.value and not column.endswith(outcome.table.value):
        column = f"{column}, {outcome.table.value}"
    return line.row, column, printed, ours, str(line.n), away


def _ours(shown: Reproduced, place: str) -> str:
    """Return our mean of a line that a template names by table, row and column."""
    number, row, column = (part.strip() for part in place.split("|"))
    for outcome in shown.outcomes:
        for line in outcome.lines:
            if (outcome.table.number, line.row, line.column) == (number, row, column):
                return _value(line.mean, None) if line.n else "(not run)"
    known = number in {outcome.table.number for outcome in shown.outcomes}
    if known and number in ("settings", "sizes"):
        return "(not run)"
    raise ValueError(f"The template of {shown.paper.name!r} names {place!r}, which is no line.")


def _share(lines: Sequence[Line]) -> str:
    return f"{sum(line.agrees for line in lines)} of {len(lines)}" if lines else "–"


def _value(mean: float, sd: float | None) -> str:
    digits = 4 if abs(mean) < 1e4 else 5
    return f"{mean:.{digits}g}" if sd is None else f"{mean:.{digits}g} ± {sd:.2g}"
