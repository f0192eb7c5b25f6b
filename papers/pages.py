"""The pages ``docs/papers``: one per paper, written from its template and its numbers.

The template of a paper stands beside its module (``sun2006.md``). It is prose with places for
numbers, so that no number on a page is typed in:

- ``<<table>>``: the paper's headline lines, printed values beside ours;
- ``<<picture>>``: the figure of the table that the paper names as its picture;
- ``<<verdicts>>``: one line per table and figure, with the number of values that agree;
- ``<<code>>``: how many repetitions were measured with which code;
- ``<<1 | Abalone | Forward MSE>>``: our mean of one line, by table, row and column, and the number
  of digits as a fourth part where it is not four;
- ``<<settings>>``: for printed values that do not agree, the closest of the settings tried;
- ``<<tried | Abalone | RVM>>``: the settings tried for one data set and method, closest first;
- ``<<missed>>``: the values that were expected to agree and do not;
- ``<<sizes>>``: the table "sizes" of the paper on partitions, beside the printed one.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from . import PAPERS
from .files import write_whole
from .frame import Line, Outcome, Printed
from .show import Reproduced

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "papers"
TEMPLATES = Path(__file__).resolve().parent
_MOST_TRIED = 8  # settings that a page lists for one value
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
        "missed": missed_sentence,
        "sizes": sizes_table,
    }

    def fill(match: re.Match[str]) -> str:
        place = match[1].strip()
        name, *more = (part.strip() for part in place.split("|"))
        if name == "tried":
            return tried_table(shown, *more)
        return parts[place](shown) if place in parts else _ours(shown, place)

    return _wrapped(_PLACE.sub(fill, template.read_text("utf-8")))


def overview(papers: Sequence[Reproduced]) -> str:
    """Return the page that lists the papers."""
    lines = ["| paper | expected to agree | partly | not expected |", "|---|---:|---:|---:|"]
    for shown in papers:
        compared = [line for outcome in shown.outcomes for line in outcome.compared]
        title = f"[{shown.paper.title}]({shown.paper.name}.md), {shown.paper.reference}"
        lines.append(f"| {title} | {' | '.join(_shares(compared))} |")
    template = (TEMPLATES / "overview.md").read_text("utf-8")
    names = "\n".join(shown.paper.name for shown in papers)
    return _wrapped(template.replace("<<papers>>", "\n".join(lines)).replace("<<names>>", names))


def headline_table(shown: Reproduced) -> str:
    """Return the headline lines of a paper as a table."""
    out = [
        "| | | printed | ours | repetitions | difference, standard errors | expected to agree |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for outcome in shown.outcomes:
        for line in outcome.lines:
            if shown.paper.is_headline(outcome.table.number, line.column):
                out.append("| " + " | ".join(_cells(outcome, line)) + " |")
    return "\n".join(out)


def verdict_table(shown: Reproduced) -> str:
    """Return one line per table and figure of a paper: how many values agree, by expectation."""
    out = [
        "| | | expected to agree | partly | not expected |",
        "|---|---|---:|---:|---:|",
    ]
    for o in shown.outcomes:
        if o.compared:
            out.append(f"| {o.table.label} | {o.table.title} | {' | '.join(_shares(o.compared))} |")
    return "\n".join(out)


def code_sentence(shown: Reproduced) -> str:
    """Return which code measured the lines of a page, and what the present code is."""
    codes = Counter(line.code for outcome in shown.outcomes for line in outcome.measured)
    parts = ", ".join(f"{n} with `{code}`" for code, n in codes.most_common())
    current = shown.outcomes[0].code
    return (
        f"Lines by the code that measured them: {parts}. The page was written by code with the "
        f"digest `{current}`."
    )


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


@dataclass(frozen=True)
class _Search:
    """Printed values of one column on one data set, ours, and those of other settings.

    `same_splits` has those of our setting on the splits of the other settings, where it was run.
    """

    data: str
    column: str
    own: dict[str, Line]
    same_splits: dict[str, Line]
    tried: dict[str, dict[str, Line]]

    @property
    def agrees(self) -> bool:
        return all(line.agrees for line in self.own.values())

    @property
    def printed(self) -> dict[str, Printed]:
        return {value: line.printed for value, line in self.own.items() if line.printed}

    def ordered(self) -> list[str]:
        """Return the settings, the closest first."""
        return sorted(self.tried, key=lambda setting: _distance(self.tried[setting], self.printed))


def _searches(shown: Reproduced) -> list[_Search]:
    lines = {(o.table.number, ln.row, ln.column): ln for o in shown.outcomes for ln in o.lines}
    searches = []
    for data, column, places in shown.paper.targets:
        own = {value: lines[place] for value, place in places.items()}
        tried: dict[str, dict[str, Line]] = {}
        for (table, row, name), line in lines.items():
            group, _, setting = row.partition(": ")
            for value, printed in ((v, ln.printed) for v, ln in own.items() if ln.printed):
                if (table, group, name) == ("settings", data, f"{column} {value}") and line.n:
                    tried.setdefault(setting, {})[value] = replace(line, printed=printed)
        searches.append(_Search(data, column, own, tried.pop("our setting", {}), tried))
    return searches


def settings_table(shown: Reproduced) -> str:
    """Return, for the values that do not agree, the setting that comes closest to each."""
    out = [
        "| | | printed | our setting | closest of those tried | its values | repetitions | agree | "
        "tried |",
        "|---|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    for search in _searches(shown):
        if search.agrees or not search.tried:
            continue
        best = search.ordered()[0]
        after = search.tried[best]
        cells = (
            _several({value: found.mean for value, found in search.printed.items()}),
            _several({value: line.mean for value, line in search.own.items()}),
            best,
            _several({value: line.mean for value, line in after.items()}),
            str(max(line.n for line in after.values())),
            f"{_share(list(search.own.values()))}, then {_share(list(after.values()))}",
            str(len(search.tried)),
        )
        out.append(f"| {search.data} | {search.column} | " + " | ".join(cells) + " |")
    if len(out) > 2:
        return "\n".join(out)
    return "All values that settings were searched for agree with the setting fixed beforehand."


def tried_table(shown: Reproduced, data: str, column: str) -> str:
    """Return the settings tried for a data set and a column, closest first, beside ours.

    Those beyond the first few are in the raw table of the paper.
    """
    (search,) = (s for s in _searches(shown) if (s.data, s.column) == (data, column))
    values = list(search.own)
    wanted = [f"{found.mean:.4g}" for found in search.printed.values()]
    out = [
        f"| {data}, {column} | {' | '.join(values)} | repetitions |",
        "|---|" + "---:|" * (len(values) + 1),
        f"| printed | {' | '.join(wanted)} | |",
    ]
    tried = {"our setting": search.own}
    if search.same_splits:
        tried["our setting, the splits of the lines below"] = search.same_splits
    tried |= {setting: search.tried[setting] for setting in search.ordered()[:_MOST_TRIED]}
    for name, lines in tried.items():
        means = [f"{lines[v].mean:.4g}" if v in lines else "–" for v in values]
        out.append(f"| {name} | {' | '.join(means)} | {max(line.n for line in lines.values())} |")
    return "\n".join(out)


def missed_sentence(shown: Reproduced) -> str:
    """Return which values were expected to agree and are not within two standard errors."""
    missed = [
        f"{outcome.table.label}, {line.row}, {line.column} ({line.errors:+.1f})"
        for outcome in shown.outcomes
        for line in outcome.compared
        if line.printed and line.printed.reproducible == "yes" and not line.agrees
    ]
    if missed:
        return f"Expected to agree, and beyond two standard errors: {'; '.join(missed)}."
    return "Every value that was expected to agree is within two standard errors."


def sizes_table(shown: Reproduced) -> str:
    """Return error and number of vectors by partition size and kernel width, beside Table 5."""
    lines = {(o.table.number, ln.row, ln.column): ln for o in shown.outcomes for ln in o.lines}
    places = [(row, column) for table, row, column in lines if table == "sizes"]
    sizes = list(dict.fromkeys(row for row, _ in places))
    widths = list(dict.fromkeys(column.rsplit(" ", 1)[0] for _, column in places))
    out = [
        f"| RMSE, #RV | printed | {' | '.join(widths)} |",
        "|---|" + "---:|" * (len(widths) + 1),
    ]
    for row in sizes:
        printed = [lines["5", row, value].printed for value in ("RMSE", "#RV")]
        cells = [", ".join("–" if found is None else f"{found.mean:g}" for found in printed)]
        for width in widths:
            ours = [lines["sizes", row, f"{width} {value}"] for value in ("RMSE", "#RV")]
            cells.append(f"{ours[0].mean:.3f}, {ours[1].mean:.1f}")
        out.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(out)


def _distance(found: dict[str, Line], printed: dict[str, Printed]) -> float:
    """Return the sum of the absolute log ratios of values to the printed ones."""
    return sum(abs(math.log(max(found[v].mean, 1e-9) / printed[v].mean)) for v in found)


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
    expected = "–" if line.printed is None else line.printed.reproducible
    return line.row, column, printed, ours, str(line.n), away, expected


def _ours(shown: Reproduced, place: str) -> str:
    """Return our mean of a line that a template names by table, row and column."""
    number, row, column, *digits = (part.strip() for part in place.split("|"))
    for outcome in shown.outcomes:
        for line in outcome.lines:
            if (outcome.table.number, line.row, line.column) == (number, row, column):
                return _value(line.mean, None, *map(int, digits)) if line.n else "(not run)"
    known = number in {outcome.table.number for outcome in shown.outcomes}
    if known and number in ("settings", "sizes"):
        return "(not run)"
    raise ValueError(f"The template of {shown.paper.name!r} names {place!r}, which is no line.")


def _shares(lines: Sequence[Line]) -> list[str]:
    """Return how many lines agree: of those expected to, partly expected and not expected."""
    return [
        _share([line for line in lines if line.printed and line.printed.reproducible == kind])
        for kind in ("yes", "partly", "no")
    ]


def _share(lines: Sequence[Line]) -> str:
    return f"{sum(line.agrees for line in lines)} of {len(lines)}" if lines else "–"


def _value(mean: float, sd: float | None, digits: int = 4) -> str:
    digits = digits if abs(mean) < 10**digits else digits + 1
    return f"{mean:.{digits}g}" if sd is None else f"{mean:.{digits}g} ± {sd:.2g}"
