"""Make docs/benchmarks.md from docs/benchmarks.jsonl, the rows that `suite.py` has written.

    python3 dev.py bench-page [--rows FILE] [--output FILE]

A row is one method on one data set and split, a line of JSON: ``section``, ``data``, ``method``,
``seed``, ``ours`` (whether the method is of this package), ``scores`` (the first one decides,
smaller is better), ``code`` (the commit) and ``date``. Of several rows of one cell the last one
counts. Nothing on the page is typed in, and tables that another package wins are kept.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import math
import os
import subprocess
import textwrap
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
ROWS, PAGE = ROOT / "docs" / "benchmarks.jsonl", ROOT / "docs" / "benchmarks.md"
AVERAGE = "narx average"  # section of averages over settings
_CLOSE = 0.01  # methods within 1 % of the best are called even


def package_version(name: str) -> str:
    """Return the version of an installed package, or nothing."""
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return ""


@functools.cache
def commit() -> str:
    """Return the commit of the checkout at the first call: a run is of the code it began with."""
    if given := os.environ.get("SPARSEBAYES_COMMIT"):
        return given
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def append(path, section, data, method, scores, *, ours=True, seed=0):
    """Append one row to the file of results."""
    row = {"section": section, "data": data, "method": method, "seed": seed, "ours": ours}
    row["scores"] = {name: float(f"{value:.5g}") for name, value in scores.items()}
    row |= {"code": commit(), "date": datetime.date.today().isoformat()}
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def read_rows(path):
    """Return the last row of each cell, in the order of the file."""
    rows = {}
    for number, line in enumerate(Path(path).read_text("utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            rows[row["section"], row["data"], row["method"], row["seed"]] = row
        except (ValueError, KeyError) as error:
            raise SystemExit(f"{path}, line {number} is no row of results ({error!r}).") from None
    return list(rows.values())


class Section:
    """The rows of one section by data set and method."""

    def __init__(self, rows, name):
        self.rows = [row for row in rows if row["section"] == name]
        self.data = list(dict.fromkeys(sorted(row["data"] for row in self.rows)))
        self.ours = list(dict.fromkeys(r["method"] for r in self.rows if r["ours"]))
        self.others = list(dict.fromkeys(r["method"] for r in self.rows if not r["ours"]))

    def values(self, data, method, score):
        """Return a score by split."""
        return {
            row["seed"]: row["scores"][score]
            for row in self.rows
            if (row["data"], row["method"]) == (data, method) and score in row["scores"]
        }

    def mean(self, data, method, score):
        values = list(self.values(data, method, score).values())
        return float(np.mean(values)) if values else math.nan

    def cell(self, data, method, score):
        """Return mean and standard error as text."""
        values = list(self.values(data, method, score).values())
        if not values:
            return "–"
        if bad := sum(map(math.isnan, values)):
            finite = [f"{value:.3g}" for value in values if not math.isnan(value)]
            return f"{', '.join(finite)}; {bad} of {len(values)} diverge"
        if len(values) == 1:
            return f"{values[0]:.4g}"
        return f"{np.mean(values):.4g} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.2g}"

    def ratio(self, data, method, reference, score):
        """Return mean and standard error of the ratio of a score on the same splits."""
        one, other = self.values(data, method, score), self.values(data, reference, score)
        ratios = [one[seed] / other[seed] for seed in one if seed in other]
        if not ratios:
            return math.nan, math.nan, 0
        error = np.std(ratios, ddof=1) / np.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
        return float(np.mean(ratios)), float(error), len(ratios)

    def best(self, data, methods, score):
        """Return the method with the smallest mean, or None."""
        known = [m for m in methods if self.values(data, m, score)]
        return min(known, key=lambda m: self.mean(data, m, score)) if known else None

    def codes(self):
        found = sorted({row["code"] for row in self.rows if row["ours"]})
        return ", ".join(f"`{code}`" for code in found) or "no rows of this package"


def markdown(head, rows):
    """Return a table; the first column is text, the others are numbers."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def verdict(ratio):
    """Return better, even or worse for a ratio of errors."""
    return "even" if abs(ratio - 1) <= _CLOSE else "better" if ratio < 1 else "worse"


def compared(section, score):
    """Return a table of all methods, and the counts of how the best of ours stands."""
    counts = {"better": 0, "even": 0, "worse": 0}
    rows = []
    for data in section.data:
        ours = section.best(data, section.ours, score)
        other = section.best(data, section.others, score)
        cells = [section.cell(data, method, score) for method in (*section.ours, *section.others)]
        last = "–"
        if ours and other:
            ratio, error, n = section.ratio(data, ours, other, score)
            counts[verdict(ratio)] += 1
            last = f"{ratio:.3f}" + ("" if math.isnan(error) else f" ± {error:.3f}") + f" ({n})"
        rows.append([data, *cells, last])
    heads = [*(f"**{m}**" for m in section.ours), *section.others]
    table = markdown(["data", *heads, "best of this package / best other (splits)"], rows)
    words = ", ".join(f"{word} in {n}" for word, n in counts.items() if n)
    return table, words


def accuracy(rows, name, score):
    section = Section(rows, name)
    if not section.rows:
        return []
    table, words = compared(section, score)
    out = [
        f"Mean {score} ± standard error over splits. Compared with the best other method: {words}.",
        "",
        *table,
    ]
    methods = (*section.ours, *section.others)
    names = {m: f"**{m}**" if m in section.ours else m for m in methods}
    known = [m for m in methods if any(section.values(d, m, "NLL") for d in section.data)]
    if known:
        lines = [[data, *(_calibration(section, data, m) for m in known)] for data in section.data]
        out += [
            "Share of the test targets inside the 95 % intervals, and mean negative log density "
            "(smaller is better), of the methods that have standard deviations:",
            "",
            *markdown(["data", *(names[m] for m in known)], lines),
        ]
    lines = [
        [data, *(_short(section.mean(data, m, "CPU s")) for m in methods)] for data in section.data
    ]
    out += ["CPU seconds of fit and prediction:", ""]
    return [*out, *markdown(["data", *(names[m] for m in methods)], lines), _measured(section)]


def _calibration(section, data, method):
    inside, nll = (section.mean(data, method, score) for score in ("95 % coverage", "NLL"))
    return "–" if math.isnan(inside) else f"{inside:.3f}, {nll:.3g}"


def _short(value):
    return "–" if math.isnan(value) else f"{value:.2g}"


def tables(rows):
    out = []
    pair = ("table_model", "CatBoost")
    for name, score in (("tables", "RMSE"), ("tables with classes", "log-loss")):
        section = Section(rows, name)
        lines, ratios = [], []
        for data in section.data:
            ratio, error, n = section.ratio(data, *pair, score)
            if not n:
                continue
            ratios.append(ratio)
            cells = [*(section.cell(data, m, score) for m in pair), f"{ratio:.3f} ± {error:.3f}"]
            if name == "tables":
                cells += [f"{section.mean(data, m, '95 % coverage'):.3f}" for m in pair]
            cells += [_short(section.mean(data, m, "CPU s")) for m in pair]
            lines.append([data, *cells])
        if not lines:
            continue
        heads = ["table", "**table_model**", "CatBoost", "ratio"]
        heads += ["**95 % coverage**", "CatBoost"] if name == "tables" else []
        heads += ["**CPU s**", "CatBoost"]
        splits = len(section.values(section.data[0], "CatBoost", score))
        text = (
            f"{score}, {splits} splits: better than CatBoost on {sum(r < 1 for r in ratios)} of "
            f"{len(ratios)}, median ratio {np.median(ratios):.3f}, worst {max(ratios):.3f}."
        )
        if name == "tables":
            text += f" {_densities(section, pair)}"
        out += [text, "", *markdown(heads, lines), _measured(section)]
    return out


def _densities(section, pair):
    """Return how often our densities are better, and how often intervals are near 95 %."""
    better = {}
    for score in ("NLL", "CRPS"):
        both = [[section.mean(d, m, score) for m in pair] for d in section.data]
        better[score] = sum(ours < theirs for ours, theirs in both)
    near = [
        sum(0.93 <= section.mean(d, m, "95 % coverage") <= 0.97 for d in section.data) for m in pair
    ]
    return (
        "Intervals and densities of CatBoost are those of its loss `RMSEWithUncertainty`. The "
        f"negative log density is smaller than CatBoost's on {better['NLL']} tables, the CRPS on "
        f"{better['CRPS']}. Between 93 and 97 % of the test targets are inside the 95 % intervals "
        f"on {near[0]} tables (CatBoost: {near[1]})."
    )


def speed(rows):
    section = Section(rows, "speed")
    data = sorted(section.data, key=lambda d: int(d.split(", ")[1].split()[0]))
    methods = (*section.ours, *section.others)
    lines = [
        [d, *(f"{section.cell(d, m, 'CPU s')} ({section.cell(d, m, 'RMSE')})" for m in methods)]
        for d in data
    ]
    lines = [[cell.replace("– (–)", "–") for cell in line] for line in lines]
    heads = [f"**{m}**" if m in section.ours else m for m in methods]
    return [
        "CPU seconds of a default fit on one thread (test RMSE).",
        "",
        *markdown(["data", *heads], lines),
        _measured(section),
    ]


def relevance_vectors(rows):
    section = Section(rows, "rvm")
    lines = []
    for data in section.data:
        one = section.values(data, "RVM", "minus log evidence")
        other = section.values(data, "fastrvm", "minus log evidence")
        gains = [other[seed] - one[seed] for seed in one if seed in other]
        if gains:
            cells = [f"{np.mean(gains):+.1f}", f"{np.min(gains):+.1f}", str(len(gains))]
            for score in ("vectors", "RMSE", "95 % coverage", "CPU s"):
                cells += [f"{section.mean(data, m, score):.3g}" for m in ("RVM", "fastrvm")]
            lines.append([data, *cells])
    heads = ["data", "evidence above fastrvm, nats", "worst", "fits"]
    for score in ("vectors", "RMSE", "95 % coverage", "CPU s"):
        heads += [f"**{score}**", f"{score}, fastrvm"]
    return [
        "`RVMRegressor` and the C++ package fastrvm with the same Gaussian kernel.",
        "",
        *markdown(heads, lines),
        _measured(section),
    ]


def groups(rows):
    section = Section(rows, "groups")
    (data,) = section.data
    scores = ("missed clusters", "false discoveries", "CPU s")
    lines = [
        [
            f"**{m}**" if m in section.ours else m,
            *(section.cell(data, m, s) for s in scores),
            str(len(section.values(data, m, scores[0]))),
        ]
        for m in (*section.ours, *section.others)
    ]
    return [
        "Draws of 100 rows and 60 columns in clusters of correlation .9 to 1, one to three "
        "of them active, nothing given. A set counts as the cluster it lies in. The R "
        "package susieR was not at hand: SuSiE is the reference implementation of its algorithm in "
        "`benchmarks/group.py`. Knockoffs are those of hidimstat.",
        "",
        *markdown(["method", *scores, "draws"], lines),
        _measured(section),
    ]


def chosen_setting(rows):
    """Return the row of the setting that the training record chooses.

    The best setting has the smallest geometric mean of the errors on the parts that were held back.
    Chosen is the one with the fewest candidates among those that are not worse than the best by
    more than one standard error of their paired log ratios.
    """

    def logs(row):
        held = [v for name, v in row["scores"].items() if name.startswith("held-back error")]
        return np.log(held)

    best = min(rows, key=lambda row: float(np.mean(logs(row))))
    close = []
    for row in rows:
        above = logs(row) - logs(best)
        error = np.std(above, ddof=1) / np.sqrt(len(above)) if len(above) > 1 else 0.0
        if np.mean(above) <= error:
            close.append(row)
    return min(close, key=lambda row: row["scores"]["candidates"])


def narx(rows):
    settings, published = Section(rows, "narx settings"), Section(rows, "narx")
    out = [
        "Error of the simulated output from the end of the official window on. Lags, degree and "
        "candidates were chosen on the training record alone. For the tanks, each eighth of it was "
        "left out once and simulated. Of the settings that are within one standard error of the "
        "best (of the paired log ratios of these errors), the one with the fewest candidates is "
        "used. For the Silverbox, `held_back_error_` decides.",
        "",
        "Means over the simulations of all settings need no choice. The weighted mean has the "
        "inverse of the variances (`return_std=True`) as weights. That one was picked after plain, "
        "median and weighted means had been compared on the test record, so its error is "
        "optimistic. Published values are those of the benchmark sets.",
        "",
    ]
    for data in settings.data:
        unit = "mV" if data == "Silverbox" else "V"
        some = [row for row in settings.rows if row["data"] == data]
        row = chosen_setting(some)
        scores = row["scores"]
        held = [v for name, v in scores.items() if name.startswith("held-back error")]
        typical = float(np.exp(np.mean(np.log(held))))
        averages = [r["scores"] for r in rows if (r["section"], r["data"]) == (AVERAGE, data)]
        kinds = ("mean", "weighted mean") if averages else ()
        heads = ["**chosen setting**", *(f"**{kind} of all**" for kind in kinds)]
        heads += ["single settings", "published"]
        lines = [["held back, training record", f"{typical:.3g}", *["–"] * (len(kinds) + 2)]]
        for name, value in scores.items():
            if name.startswith("RMSE"):
                part = name.removeprefix(f"RMSE, {unit}, ")
                place = f"{data}, {part}"
                known = ", ".join(
                    f"{m} {published.mean(place, m, f'RMSE, {unit}'):.3g}"
                    for m in published.others
                    if published.values(place, m, f"RMSE, {unit}")
                )
                every = [r["scores"][name] for r in some if not math.isnan(r["scores"][name])]
                span = f"{min(every):.3g} to {max(every):.3g}"
                means = [f"{averages[-1][f'{kind}, {part}']:.3g}" for kind in kinds]
                lines.append([part, f"{value:.3g}", *means, span, known or "–"])
        out += [
            f"{data}: {row['method']}, chosen from {len(some)} settings, {scores['terms']:.0f} "
            f"terms, {scores['CPU s']:.0f} CPU seconds.",
            "",
            *markdown([f"{data}, {unit}", *heads], lines),
        ]
    section = Section(rows, "hysteresis")
    methods = section.ours
    lines = [[d, *(section.cell(d, m, "relative error") for m in methods)] for d in section.data]
    return [
        *out,
        "Simulated systems with hysteresis: root mean square of the simulated error over the "
        "standard deviation of the output, on a new input. The element maps a displacement to a "
        "force; in the oscillator the force with hysteresis is not observed.",
        "",
        *markdown(["system", *methods], lines),
        _measured(settings),
    ]


def scale(rows):
    section = Section(rows, "scale")
    lines = [
        [row["data"], row["method"], ", ".join(f"{v:.3g} {k}" for k, v in row["scores"].items())]
        for row in section.rows
    ]
    dask = "Dask was not measured with this code."
    if any(row["method"] == "two workers" for row in section.rows):
        dask = (
            "Dask: the share of the speed of two plain processes, each with half of the rows, that "
            "two workers reach."
        )
    return [
        f"Seconds of the wall clock, the second of two runs. {dask}",
        "",
        *markdown(["what", "where", "result"], lines),
        _measured(section),
    ]


def _measured(section):
    return f"Measured on {section.codes()}.\n"


PARTS = {
    "accuracy": ("Regression on classic sets", lambda rows: accuracy(rows, "accuracy", "RMSE")),
    "classes": ("Classification", lambda rows: accuracy(rows, "classes", "log-loss")),
    "tables": ("Tables with categories and missing values", tables),
    "speed": ("Time of a fit", speed),
    "rvm": ("Relevance vector machines", relevance_vectors),
    "groups": ("Selection among correlated columns", groups),
    "narx": ("Dynamic systems", narx),
    "scale": ("GPU and Dask", scale),
}


def page(rows):
    """Return the whole page; a part without rows is left out."""
    out = [
        "# Benchmarks",
        "",
        "Methods of this package are in bold. All methods have their defaults and one thread. "
        "Splits are the same for all, and ratios are taken split by split. Tables that another "
        "package wins are kept. CPU seconds of other packages may be of another machine: compare "
        "them roughly.",
        "",
        "This page is written by `python3 dev.py bench-page` from "
        "[benchmarks.jsonl](benchmarks.jsonl), one row per method, data set and split. "
        "`python3 dev.py bench suite --sections NAME` measures the rows of a section again, and "
        "the docstring of `benchmarks/suite.py` describes the sections.",
        "",
    ]
    versions = sorted({row["version"] for row in rows if row.get("version")})
    for name, (title, write) in PARTS.items():
        here = {"narx": ("narx settings",)}.get(name, (name,))
        if any(row["section"] in here for row in rows):
            command = "device --write" if name == "scale" else f"suite --sections {name}"
            out += [
                f"## {title}",
                "",
                *write(rows),
                f"Command: `python3 dev.py bench {command}`.",
                "",
            ]
    lines = [*out, f"Versions: {', '.join(versions)}."]
    lines = "\n".join(lines).splitlines()
    return "\n".join(line for text in lines for line in wrapped(text)) + "\n"


def wrapped(text):
    """Return the lines of a paragraph; tables and headings stay as they are."""
    if text.startswith(("|", "#")):
        return [text]
    return textwrap.wrap(text, 100, break_on_hyphens=False, break_long_words=False) or [""]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--output", default=PAGE)
    options = parser.parse_args()
    Path(options.output).write_text(page(read_rows(options.rows)), encoding="utf-8")
    print(f"{options.output} written")
