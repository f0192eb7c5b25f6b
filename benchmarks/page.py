"""Make docs/benchmarks.md from docs/benchmarks.jsonl, the rows that the benchmarks have written.

    python benchmarks/page.py [--rows docs/benchmarks.jsonl] [--output docs/benchmarks.md]

A row is one method on one data set, a line of JSON: ``benchmark``, ``data``, ``method``, ``ours``
(whether it is of this package), ``version`` (of the package the method comes from), ``repeats``,
``scores`` (a dictionary in the order of the columns; the first one decides, smaller is better),
``code`` (the commit), ``date`` and ``command``. Of several rows of one method on one data set the
last one counts. Nothing on the page is typed in, and nothing is left out: where a rival is better,
the row says so.

Other benchmarks write rows with `record`; `accuracy.py --write docs/benchmarks.jsonl` is the
pattern.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import math
import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROWS, PAGE = ROOT / "docs" / "benchmarks.jsonl", ROOT / "docs" / "benchmarks.md"
_CLOSE = 0.01  # methods within 1 % of the best are called even


def package_version(name: str) -> str:
    """Version of an installed package, or nothing; of this one that of the code that runs."""
    if name == "sparsebayes":
        import sparsebayes

        return f"{name} {sparsebayes.__version__}"
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return ""


@functools.cache
def _code():
    """The commit of the checkout, asked for once: a long run is of the code it began with."""
    commit = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    done = subprocess.run(commit, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def record(path, benchmark, data, method, scores, *, ours, package, repeats, command=None):
    """Append one row to the file of results."""
    row = {
        "benchmark": benchmark,
        "data": data,
        "method": method,
        "ours": ours,
        "version": package_version(package),
        "repeats": repeats,
        "scores": {k: None if math.isnan(v) else float(f"{v:.5g}") for k, v in scores.items()},
        "code": _code(),
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "command": command or shlex.join(["python", *sys.argv]),
    }
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def read_rows(path):
    """The last row of each method on each data set, in the order of the file."""
    rows = {}
    for number, line in enumerate(Path(path).read_text("utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            rows[row["benchmark"], row["data"], row["method"]] = row
        except (ValueError, KeyError) as error:
            raise SystemExit(f"{path}, line {number} is no row of results ({error!r}).") from None
    return list(rows.values())


def first(row):
    """The score that decides; infinite where there is none."""
    value = next(iter(row["scores"].values()), None)
    return math.inf if value is None else value


def verdict(rows):
    """How the best of ours stands beside the best rival: better, even or worse, and by how much."""
    ours = min((first(r) for r in rows if r["ours"]), default=math.inf)
    rival = min((first(r) for r in rows if not r["ours"]), default=math.inf)
    if not (math.isfinite(ours) and math.isfinite(rival)):
        return "no rival measured", math.nan
    if abs(ours - rival) <= _CLOSE * abs(rival):
        return "even", ours / rival
    return ("better" if ours < rival else "worse"), ours / rival


def table(rows):
    """A table of the methods on one data set, the best first."""
    heads = list(dict.fromkeys(name for row in rows for name in row["scores"]))
    lines = [f"| method | {' | '.join(heads)} | version |", "|---|" + "---:|" * len(heads) + "---|"]
    for row in sorted(rows, key=first):
        values = [row["scores"].get(head) for head in heads]
        cells = ["–" if v is None else f"{v:.4g}" for v in values]
        name = f"**{row['method']}**" if row["ours"] else row["method"]
        lines.append(f"| {name} | {' | '.join(cells)} | {row['version']} |")
    return lines


def page(rows):
    """The whole page."""
    out = [
        "# Benchmarks",
        "",
        "Made by `benchmarks/page.py` from the rows that the benchmarks have written"
        " ([benchmarks.jsonl](benchmarks.jsonl)); nothing here is typed in. Methods of this package"
        " are in bold, each table is sorted by its first column, and tables that a rival wins are"
        " kept. CPU seconds are of one thread, fit and predictions together, and depend on the"
        " machine: read them as ratios within one table. *Of the best rival* is the first column of"
        " the best of ours over that of the best rival; within 1 % is called even.",
        "",
    ]
    groups = {}
    for row in rows:
        groups.setdefault((row["benchmark"], row["data"]), []).append(row)
    counts = {"better": 0, "even": 0, "worse": 0, "no rival measured": 0}
    lines = ["| benchmark | data | repeats | ours beside the best rival | of the best rival |"]
    lines += ["|---|---|---:|---|---:|"]
    for (benchmark, data), some in groups.items():
        said, ratio = verdict(some)
        counts[said] += 1
        counted = [row["repeats"] for row in some]
        repeats = " to ".join(str(n) for n in sorted({min(counted), max(counted)}))
        shown = "–" if math.isnan(ratio) else f"{ratio:.3f}"
        lines.append(f"| {benchmark} | {data} | {repeats} | {said} | {shown} |")
    words = ", ".join(f"{said} in {n}" for said, n in counts.items() if n)
    out += [f"Ours beside the best rival, over {len(groups)} tables: {words}.", "", *lines, ""]
    for benchmark in dict.fromkeys(row["benchmark"] for row in rows):
        out += [f"## {benchmark}", ""]
        for (name, data), some in groups.items():
            if name == benchmark:
                codes = ", ".join(dict.fromkeys(f"`{r['code']}` ({r['date']})" for r in some))
                out += [f"### {benchmark}: {data}", "", *table(some), "", f"Code: {codes}.", ""]
    commands = "\n".join(dict.fromkeys(row["command"] for row in rows))
    out += [
        "## How to run them again",
        "",
        "In a clone, `python3 dev.py bench NAME` makes the environment with the rivals and runs"
        " `benchmarks/NAME.py`; `--write docs/benchmarks.jsonl` appends its rows, and"
        " `python benchmarks/page.py` makes this page. What was run:",
        "",
        "```",
        commands,
        "```",
        "",
        "`benchmarks/` has more, which print their tables: each says in its first lines what it"
        " measures.",
    ]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--output", default=PAGE)
    options = parser.parse_args()
    Path(options.output).write_text(page(read_rows(options.rows)), encoding="utf-8")
    print(f"{options.output} written")
