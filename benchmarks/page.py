"""Make docs/benchmarks.md from docs/benchmarks.jsonl, the rows that `suite.py` has written.

    python3 dev.py bench-page [--rows FILE] [--output FILE] [--merge FILE ...]

A row is one method on one data set and split, a line of JSON: ``section``, ``data``, ``method``,
``seed``, ``ours`` (whether the method is of this package), ``scores`` (the first one decides,
smaller is better), ``code`` (the commit) and ``date``. Of several rows of one cell the last one
counts; ``--merge`` adds the rows of other files. Nothing on the page is typed in, and tables that
another package wins are kept.
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


def merge(path, others):
    """Write the rows of some files into one, where the last row of each cell counts."""
    rows = {}
    for each in (path, *others):
        for row in read_rows(each):
            rows[row["section"], row["data"], row["method"], row["seed"]] = row
    text = "".join(json.dumps(rows[key]) + "\n" for key in sorted(rows))
    Path(path).write_text(text, encoding="utf-8")


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

    def pair(self, data, method, reference, score):
        """Return the means of a score of two methods over the splits that both have."""
        one, other = self.values(data, method, score), self.values(data, reference, score)
        both = sorted(one.keys() & other.keys())
        means = [float(np.mean([found[seed] for seed in both])) for found in (one, other) if both]
        return tuple(means) or (math.nan, math.nan)

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
            if n:
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
        f"Mean {score} ± standard error over splits. The last column compares the best method of "
        f"each side, chosen by these errors: {words}.",
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
    """Return the tables of `table_model()`: a summary per other package, then every data set."""
    out = []
    for name, score in (("tables", "RMSE"), ("tables with classes", "log-loss")):
        section = Section(rows, name)
        if not (section.rows and section.ours):
            continue
        (ours,) = section.ours
        out += [
            f"{score} of `{ours}` over that of the other method, split by split; below 1 is "
            "better. Ratios are means over the splits of a data set.",
            "",
            *_summary(section, ours, score),
        ]
        if name == "tables":
            out += _densities(section, ours)
        heads = [f"**{ours}**", *section.others]
        lines = [
            [data, *(section.cell(data, m, score) for m in (ours, *section.others))]
            for data in section.data
        ]
        out += [
            f"Mean {score} ± standard error over splits.{_incomplete(section, ours, score)}",
            "",
        ]
        out += markdown(["table", *heads], lines)
        lines = [
            [data, *(_short(section.mean(data, m, "CPU s")) for m in (ours, *section.others))]
            for data in section.data
        ]
        out += ["CPU seconds of a fit:", "", *markdown(["table", *heads], lines)]
        out.append(_measured(section))
    return out


def _incomplete(section, ours, score):
    """Return which methods have fewer tables or splits than ours, as sentences."""
    notes = []
    for method in section.others:
        counts = [len(section.values(data, method, score)) for data in section.data]
        whole = [len(section.values(data, ours, score)) for data in section.data]
        full = sum(n == most for n, most in zip(counts, whole, strict=True))
        if full < len(counts):
            some = sum(map(bool, counts)) - full
            less = f", with fewer splits on {some} of them" if some else ""
            notes.append(f"{method} was run on {full + some} of {len(counts)} tables{less}")
    if not notes:
        return ""
    rule = "The ratios above are of splits that both methods have; means of other splits differ."
    return f" {'; '.join(notes)}. {rule}"


def _summary(section, ours, score):
    """Return a table that compares ours with each other method over the data sets."""
    lines = []
    for other in section.others:
        found = {d: section.ratio(d, ours, other, score) for d in section.data}
        ratios = {d: ratio for d, (ratio, _, n) in found.items() if n}
        if not ratios:
            continue
        worst = max(ratios, key=ratios.get)
        splits = [n for _, _, n in found.values() if n]
        count = str(max(splits)) if min(splits) == max(splits) else f"{min(splits)}–{max(splits)}"
        better = f"{sum(r < 1 for r in ratios.values())} of {len(ratios)}"
        values = [f"{np.median(list(ratios.values())):.3f}", f"{ratios[worst]:.3f} ({worst})"]
        lines.append([other, better, *values, count])
    return markdown(["other method", "better on", "median ratio", "worst ratio", "splits"], lines)


def _densities(section, ours):
    """Return how the predictive densities and intervals of a table compare."""
    methods = [
        m for m in (ours, *section.others) if any(section.values(d, m, "NLL") for d in section.data)
    ]
    lines = []
    for method in methods:
        known = [d for d in section.data if section.values(d, method, "NLL")]
        inside = [section.mean(d, method, "95 % coverage") for d in known]
        cells = []
        for score in ("NLL", "CRPS"):
            pairs = [section.pair(d, ours, method, score) for d in known]
            better = sum(one < other for one, other in pairs)
            cells.append("–" if method == ours else f"{better} of {len(known)}")
        near = sum(0.93 <= share <= 0.97 for share in inside)
        cells += [f"{np.mean(inside):.3f}", f"{near} of {len(known)}"]
        lines.append([f"**{method}**" if method == ours else method, *cells])
    return [
        "Predictive densities: on how many data sets ours has the smaller negative log density "
        "(NLL) and CRPS, and the share of test targets inside the 95 % intervals. Those of "
        "CatBoost are of its loss `RMSEWithUncertainty`; the other methods have none by default.",
        "",
        *markdown(
            ["method", "ours better, NLL", "CRPS", "mean coverage", "coverage .93 to .97"], lines
        ),
    ]


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
        "of them active, nothing given. A set counts as the cluster it lies in. susieR is the R "
        "package with its defaults, called draw by draw; knockoffs are those of hidimstat.",
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
        "force; in the oscillator the force with hysteresis is not observed. The column hysteresis "
        'has `candidates=["polynomial", "hysteresis"]` with degree 1.',
        "",
        *markdown(["system", *(f"**{m}**" for m in methods)], lines),
        _measured(settings),
    ]


def dask(rows):
    section = Section(rows, "dask")
    lines = []
    for row in section.rows:
        there, here, off = (row["scores"][k] for k in ("seconds", "one process", "difference"))
        lines.append(
            [row["data"], f"{here:.3g}", f"{there:.3g}", f"{here / there:.2f}", f"{off:.0e}"]
        )
    heads = ["what", "one process, s", "two workers, s", "speed-up", "largest difference"]
    return [
        "Rows in a Dask array on a local cluster of two workers with one thread each, beside the "
        "same rows as a NumPy array in one process: seconds of the wall clock of one fit. The "
        "difference is that of predicted means, in standard deviations of the target.",
        "",
        *markdown(heads, lines),
        _measured(section),
    ]


def device(rows):
    section = Section(rows, "device")
    lines = []
    for row in section.rows:
        scores = row["scores"]
        there, here = scores["seconds"], scores.get("NumPy", math.nan)
        cells = [_short(there), _short(here), "–" if math.isnan(here) else f"{here / there:.1f}"]
        cells += [
            f"{scores[name]:.0e}" if name in scores else "–"
            for name in ("difference", "std difference")
        ]
        lines.append([row["data"], *cells])
    names = ", ".join(dict.fromkeys(row["method"] for row in section.rows))
    heads = ["what", "GPU, s", "NumPy, s", "speed-up", "means apart", "stds apart"]
    return [
        f"Rows in torch tensors on one {names}, beside NumPy with all cores of the same machine: "
        "seconds of the wall clock, the second of two runs on the GPU. Means are compared in "
        "standard deviations of the target, standard deviations relative to each other, and the "
        "largest difference is given. Where NumPy would take minutes it was not run.",
        "",
        *markdown(heads, lines),
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
    "dask": ("Dask", dask),
    "device": ("GPU", device),
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
            out += [
                f"## {title}",
                "",
                *write(rows),
                f"Command: `python3 dev.py bench suite --sections {name}`.",
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
    parser.add_argument("--merge", nargs="*", default=[], metavar="FILE", help="rows to add first")
    options = parser.parse_args()
    if options.merge:
        merge(options.rows, options.merge)
    Path(options.output).write_text(page(read_rows(options.rows)), encoding="utf-8")
    print(f"{options.output} written")
