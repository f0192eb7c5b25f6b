"""Self-contained HTML reports: tables and figures in one file, nothing fetched to show it.

Figures are SVG inside the page and take the colour of its text, so they suit light and dark.
"""

from __future__ import annotations

import io
import platform
import re
from datetime import datetime
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from .. import __version__
from .._files import write_whole
from ..models import CLASSES, REGRESSION
from .comparison import TOO_LITTLE, Fold, Score, best, cells, codes_of, head, rounded
from .prepared import PreparedTable

_MOST_TERMS = 15
_MOST_COLUMNS = 40  # of a table, in the overview
_MOST_POINTS = 600  # in a scatter plot
_MOST_INPUTS = 6  # whose effect is drawn, and that describe a term
_MANY = 200  # columns that are shuffled to see what they do
_PANEL = (4.4, 3.3)  # inches of a figure: readable on a telephone, three side by side on a screen

Section = dict[str, Any]


def write_table_report(
    path: str,
    data: PreparedTable,
    scores: list[Score],
    model: Any,
    folds: list[Fold],
    settings: dict[str, Any],
    saved: str | None = None,
) -> None:
    """Write the scores of models on rows held out, and figures of one model fitted to all rows.

    `saved` is the file of the model.
    """
    shown = best(scores, data.task, own=True) or scores[0]
    name = type(model.final_).__name__
    if len(folds) > 1:
        split = f"{len(folds)} folds: each row is predicted by a model fitted without it"
    else:
        split = f"{len(folds[0][1]):,} of them held out, {len(folds[0][0]):,} to fit"
    importance = _importance(model, data)
    main = list(importance)[:_MOST_INPUTS]
    sections = [
        _scores_section(scores, data.task),
        *(_class_sections if data.task == CLASSES else _number_sections)(shown.held_out, data),
        _relevance(model, importance),
        _effects(model, data, main),
        _terms(model, data, main),
        _path(model.final_),
        _overview(model, data),
        _settings(settings, model),
        _how_to_load(model, data, saved),
    ]
    target = model.target_name_ or "the target"
    among = "" if len(scores) == 1 else ", the best of the sparse models"
    subtitle = (
        f"{data.title}: {len(data.y):,} rows, {data.frame.shape[1]} columns; {split}. Shown below "
        f"the scores: {model.model_} ({name}){among}."
    )
    what = "A model" if len(scores) == 1 else "Models"
    write(path, f"{what} of {target}", subtitle, [section for section in sections if section])


def write_narx_report(
    path: str, model: Any, u: np.ndarray | None, y: np.ndarray, facts: list[list[str]], title: str
) -> None:
    """A dynamic model, shown on the record that it was tested on."""
    from ..displays import FreeRunDisplay, HorizonDisplay, ResidualTestDisplay

    run, ax = make_figure(figsize=(9.0, 3.6))
    FreeRunDisplay.from_estimator(model, u, y, ax=ax)
    tests, axes = make_figure(1, 1 + model.n_inputs_, figsize=(4.5 + 4.5 * model.n_inputs_, 3.2))
    ResidualTestDisplay.from_estimator(model, u, y, ax=axes)
    horizon, ax = make_figure(figsize=(6.0, 3.4))
    HorizonDisplay.from_estimator(model, u, y, ax=ax)
    sections: list[dict[str, Any]] = [
        {"title": "Equation", "preformatted": str(model)},
        {"title": "Errors on the time steps held out", "head": ["", ""], "rows": facts},
        {
            "title": "Terms",
            "head": ["term", "coefficient", "std", "ERR"],
            "rows": model.terms_.cells(),
            "note": "ERR: share of the output's sum of squares that a term explains one step "
            "ahead beside those above it.",
        },
        {"title": "Free run", "image": svg(run)},
        {
            "title": "Tests of the errors one step ahead",
            "image": svg(tests),
            "note": "Bars outside the grey 95 % band, beyond one in twenty, are what the model "
            "has not explained.",
        },
        {"title": "Error over the horizon", "image": svg(horizon)},
    ]
    write(path, f"A dynamic model of {title}", f"{len(y)} time steps held out at the end", sections)


# Scores, and predictions of rows held out.


def _scores_section(scores: list[Score], task: str) -> Section:
    done = [s for s in scores if not s.reason]
    done.sort(key=lambda s: s.values.get("nll" if task == REGRESSION else "log_loss", np.inf))
    left = [f"{s.model}: {s.reason or s.folds}." for s in scores if s.reason or s.folds]
    words = {
        REGRESSION: "NLL: mean negative log density. 95 % coverage: share of rows inside their "
        "95 % interval, calibrated by leave-one-out residuals where the model has them; "
        f"{TOO_LITTLE}. Lower NLL and RMSE are better.",
        CLASSES: "Brier: half the squared distance between probabilities and outcome. Lower "
        "log-loss and Brier are better.",
    }
    return {
        "title": "Scores on rows held out",
        "head": head(task, wide=True),
        "rows": [cells(s, task, wide=True) for s in done],
        "best": done.index(best(scores, task) or done[0]),
        "note": f"{words[task]} ± is the standard error over rows. Terms: basis functions or "
        "columns in the model. Seconds are of all fits. " + " ".join(left),
    }


def _number_sections(held: Any, data: Any) -> list[Section]:
    y, mean = data.y[held.rows], held.mean
    name = _label(data.target.name)
    some = _some_rows(len(y))
    figure, ax = make_figure(figsize=_PANEL)
    if held.std is not None:
        bars: Any = [mean[some] - held.lower[some], held.upper[some] - mean[some]]
        bars = np.maximum(bars, 0.0)  # a long tail can have its mean outside
        ax.errorbar(
            mean[some], y[some], xerr=bars, fmt="none", ecolor="C0", alpha=0.2, lw=1,
            label="95 % interval",
        )  # fmt: skip
    ax.scatter(mean[some], y[some], s=9, color="C0", label="rows held out", zorder=3, lw=0)
    ends = [min(mean.min(), y.min()), max(mean.max(), y.max())]
    ax.plot(ends, ends, color="C1", lw=1, ls="--", label="predicted = observed")
    ax.set(xlabel=f"predicted {name}", ylabel=f"observed {name}")
    ax.legend(fontsize="small", framealpha=0.0)
    residuals, left = make_figure(figsize=_PANEL)
    left.scatter(mean[some], (y - mean)[some], s=9, color="C0", lw=0)
    left.axhline(0.0, color="C1", lw=1, ls="--")
    left.set(xlabel=f"predicted {name}", ylabel="observed - predicted")
    figures = [
        (svg(figure), "Rows held out, with their intervals."),
        (svg(residuals), "Residuals. A pattern is structure that the model missed."),
    ]
    if held.std is not None:
        levels = np.linspace(0.02, 0.99, 50)
        z = np.abs(y - mean) / held.std
        inside = [(z <= norm.ppf(0.5 + 0.5 * level)).mean() for level in levels]
        figure, ax = make_figure(figsize=_PANEL)
        ax.plot([0, 1], [0, 1], color="C1", lw=1, ls="--")
        ax.plot(levels, inside, color="C0")
        ax.set(xlabel="nominal coverage", ylabel="observed coverage", xlim=(0, 1), ylim=(0, 1))
        said = "Normal intervals of mean and std: too narrow below the dashed line, too wide above."
        figures.append((svg(figure), said))
    more = f" {len(some)} of {len(y):,} rows are drawn." if len(some) < len(y) else ""
    return [
        {
            "title": "Predictions and calibration",
            "figures": figures,
            "note": f"Each row was predicted by a model that had not seen it.{more}",
        }
    ]


def _class_sections(held: Any, data: Any) -> list[Section]:
    p, classes = held.probability, data.classes
    codes = codes_of(data.y[held.rows], classes)
    figure, ax = make_figure(figsize=_PANEL)
    edges = np.linspace(0.0, 1.0, 11)
    columns = [1] if len(classes) == 2 else range(min(len(classes), 6))
    for c in columns:
        bins = np.clip(np.digitize(p[:, c], edges) - 1, 0, 9)
        there = [b for b in range(10) if np.any(bins == b)]
        said = [p[bins == b, c].mean() for b in there]
        came = np.array([(codes[bins == b] == c).mean() for b in there])
        n = np.array([np.sum(bins == b) for b in there])
        error = 1.96 * np.sqrt(came * (1 - came) / n + 0.25 / n**2)
        ax.errorbar(
            said,
            came,
            error,
            fmt="o-",
            ms=4,
            lw=1,
            elinewidth=0.8,
            label=_label(f"{data.target.name} = {classes[c]}"),
        )
    ax.plot([0, 1], [0, 1], color="0.5", lw=1, ls="--")
    ax.set(
        xlabel="predicted probability", ylabel="observed frequency", xlim=(0, 1), ylim=(-0.02, 1.02)
    )
    ax.legend(fontsize="small", framealpha=0.0)
    best_class = np.argmax(p, axis=1)
    table = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(table, (codes, best_class), 1)
    sure, right = make_figure(figsize=_PANEL)
    hit = best_class == codes
    top = p.max(axis=1)
    bins = np.linspace(1.0 / len(classes), 1.0, 16)
    right.hist(
        [top[hit], top[~hit]], bins, stacked=True, color=["C0", "C1"], label=["right", "wrong"]
    )
    right.set(xlabel="probability of the class predicted", ylabel="rows")
    right.legend(fontsize="small", framealpha=0.0)
    rows = [
        [str(classes[i]), *map(str, table[i]), f"{table[i, i] / max(1, table[i].sum()):.0%}"]
        for i in range(min(len(classes), 30))
    ]
    return [
        {
            "title": "Probabilities",
            "figures": [
                (svg(figure), "Reliability with 95 % error bars: on the dashed line, an outcome "
                "predicted with 70 % occurs in 70 of 100 rows."),
                (svg(sure), "Predicted probability of right and of wrong predictions."),
            ],
            "note": "Each row was predicted by a model that had not seen it.",
        },
        {
            "title": "Confusion matrix",
            "head": ["class \\ predicted", *map(str, classes[:30]), "recall"],
            "rows": rows,
        },
    ]  # fmt: skip


# The model: inputs, effects, terms, evidence.


def _importance(model: Any, data: Any) -> dict[str, float]:
    """By how much predictions change where the values of a column change rows, largest first."""
    kinds = model.inputs_.kinds_
    if len(kinds) > _MANY:  # the inputs with the largest weights then
        known = _by_input(model)
        sizes = np.zeros(len(model.inputs_.sources_)) if known is None else known[0]
        kinds = {model.inputs_.sources_[j]: "" for j in np.argsort(-sizes)[:_MANY]}
    rows = data.frame.iloc[_some_rows(len(data.frame))].reset_index(drop=True)
    order = np.random.default_rng(0).permutation(len(rows))
    ask = model.predict_proba if model.task_ == CLASSES else model.predict
    said = ask(rows)
    found = {}
    for name in kinds:
        moved = rows.assign(**{name: rows[name].iloc[order].to_numpy()})
        found[name] = float(np.sqrt(np.mean((ask(moved) - said) ** 2)))
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _by_input(model: Any) -> tuple[np.ndarray, str] | None:
    """What the model itself says of each input: a level, a gap, a part of a date by itself."""
    final = model.final_
    relevance = getattr(final, "feature_relevance_", None)
    if relevance is not None and np.ptp(relevance) > 0:
        said = "Learnt: standard deviation of the input over its length scale, the largest 1."
        return np.asarray(relevance), said
    if hasattr(final, "inclusion_probability_"):
        index = final.group_index_
        return np.asarray(final.inclusion_probability_)[index], "Probability to be in the model."
    coef = getattr(final, "coef_", None)
    if coef is not None and np.shape(coef)[-1] == len(model.get_feature_names_out()):
        size = np.max(np.abs(np.atleast_2d(coef)), axis=0)
        return size, "Size of the weight per standard deviation of the input."
    return None


def _relevance(model: Any, importance: dict[str, float]) -> Section:
    names = list(importance)[:20]
    unit = "probability" if model.task_ == CLASSES else _label(model.target_name_ or "prediction")
    columns = _bars([importance[name] for name in names], names, "C0", f"change of {unit} (RMS)")
    said = "By how much predictions change where the values of this column are shuffled."
    figures = [(columns, said)]
    if (known := _by_input(model)) is not None:
        values, said = known
        order = [j for j in np.argsort(-values) if values[j] > 0][:20]
        inputs = [model.get_feature_names_out()[j] for j in order]
        figures.append((_bars(values[order], inputs, "C2", ""), said))
    return {"title": "Which inputs matter", "figures": figures}


def _bars(values: Any, names: Any, color: str, label: str) -> Any:
    figure, ax = make_figure(figsize=(_PANEL[0], 0.9 + 0.26 * max(3, len(names))))
    place = np.arange(len(names))
    ax.barh(place, values, color=color)
    ax.set_yticks(place, [_label(name) for name in names])
    ax.invert_yaxis()
    ax.set(xlabel=label)
    return svg(figure)


def _effects(model: Any, data: Any, columns: list[str]) -> Section | None:
    """Predictions along one column, the others as in a typical row."""
    import pandas as pd

    frame = data.frame
    kinds = model.inputs_.kinds_
    typical = {}
    for name in kinds:
        column = frame[name].dropna()
        number = kinds[name] == "numeric" and not pd.api.types.is_bool_dtype(column)
        typical[name] = pd.to_numeric(column).median() if number else column.mode().iloc[0]
    figures = []
    for name in columns:
        column = frame[name].dropna()
        curve = kinds[name] == "numeric" and column.nunique() > 2
        if curve:
            numbers = pd.to_numeric(column).astype(float)
            low, high = (float(q) for q in np.quantile(numbers, [0.01, 0.99]))
            grid: Any = np.linspace(low, high, 60)
        elif kinds[name] == "date":
            continue
        else:
            grid = column.value_counts().index[:8].tolist()
        rows = pd.DataFrame({c: [v] * len(grid) for c, v in typical.items()})
        rows[name] = grid
        figure, ax = make_figure(figsize=_PANEL)
        _draw_effect(ax, model, rows, grid if curve else None)
        if not curve:
            ax.set_xticks(range(len(grid)), [_label(v, 12) for v in grid], rotation=30, ha="right")
        ax.set(xlabel=_label(name))
        figures.append((svg(figure), ""))
    if not figures:
        return None
    note = (
        "The prediction along one column while the others stay at their median or most common value"
    )
    if data.task == REGRESSION:
        note += "; bands are 95 % for the function itself, without the noise"
    return {"title": "Effects of single columns", "figures": figures, "note": f"{note}."}


def _draw_effect(ax: Any, model: Any, rows: Any, grid: np.ndarray | None) -> None:
    x = np.arange(len(rows)) if grid is None else grid
    line = "o" if grid is None else "-"
    if model.task_ == CLASSES:
        p = model.predict_proba(rows)
        for c in [1] if p.shape[1] == 2 else range(min(p.shape[1], 6)):
            ax.plot(
                x,
                p[:, c],
                line,
                color=f"C{c}",
                label=_label(f"{model.target_name_} = {model.classes_[c]}"),
            )
        ax.set(ylabel="probability", ylim=(0, 1))
        ax.legend(fontsize="small", framealpha=0.0)
        return
    from .comparison import predict

    mean, std = predict(model, rows)
    ax.set_ylabel(_label(model.target_name_ or "prediction"))
    noise = getattr(model.final_, "noise_variance_", None)
    own = getattr(model.estimator_[-1], "target_transform_", None) is None
    if std is None or not own or noise is None or np.ndim(noise):
        ax.plot(x, mean, line, color="C0")
        return
    half = 1.96 * np.sqrt(np.maximum(std**2 - noise, 0.0))
    if grid is None:
        ax.errorbar(x, mean, half, fmt="o", color="C0", capsize=3)
    else:
        ax.plot(x, mean, color="C0")
        ax.fill_between(x, mean - half, mean + half, color="C0", alpha=0.25, lw=0)


def _terms(model: Any, data: Any, columns: list[str]) -> Section | None:
    """The active terms by the size of their weight: kernel functions by the row they stand on."""
    final, names = model.final_, model.get_feature_names_out()
    if not hasattr(final, "coef_"):
        return None
    weights = np.atleast_2d(final.coef_)
    size = np.max(np.abs(weights), axis=0)
    order = [j for j in np.argsort(-size) if size[j] > 0]
    several = len(weights) > 1
    heads = [f"weight {c}" for c in model.classes_] if several else ["weight"]
    if getattr(final, "relevance_vectors_", None) is None:
        if len(size) != len(names):
            return None
        head, title = ["input", *heads], "Weights of the inputs"
        rows = [[names[j], *map(rounded, weights[:, j])] for j in order[:_MOST_TERMS]]
        note = "Weights are per standard deviation of the input; inputs without one are not listed."
    else:
        title = "Terms: functions around these rows"
        numbers = final.active_ if model.fit_rows_ is None else model.fit_rows_[final.active_]
        head = ["row", *heads, *columns]
        rows = [
            [
                f"{numbers[j] + 1}",
                *map(rounded, weights[:, j]),
                *(_cell(data.frame[c].iloc[numbers[j]]) for c in columns),
            ]
            for j in order[:_MOST_TERMS]
        ]
        note = "Each function is largest at its row of the table and falls off around it."
    if len(order) > _MOST_TERMS:
        note += f" The {_MOST_TERMS} largest weights of {len(order)}."
    text = None if order else "No term is active: the model is a constant."
    return {"title": title, "head": head, "rows": rows, "note": note, "text": text}


def _path(final: Any) -> Section | None:
    """The evidence of the path that was kept."""
    path = getattr(final, "evidence_path_", None)
    if path is None or len(path) < 3:
        return None
    figure, ax = make_figure(figsize=_PANEL)
    ax.plot(np.arange(len(path)), path, color="C0")
    kept = len(final.active_)
    ax.axvline(kept, color="C1", lw=1, ls="--", label=f"{kept} kept")
    low = np.quantile(path[np.isfinite(path)], 0.1)
    ax.set(xlabel="terms", ylabel="log evidence (nats)")
    ax.set_ylim(bottom=low)
    ax.legend(fontsize="small", framealpha=0.0)
    said = "The evidence of the first terms of the path, under the prior of the selection."
    return {"title": "How many terms", "figures": [(svg(figure), said)]}


# The table, the settings, and how to go on.


def _overview(model: Any, data: Any) -> Section:
    import pandas as pd

    def row(name: str, kind: str, column: Any) -> list[str]:
        gaps = int(column.isna().sum())
        there = column.dropna()
        if kind == "numeric" and len(there):
            numbers = pd.to_numeric(there).astype(float)
            low, middle, high = (rounded(v) for v in np.quantile(numbers, [0.0, 0.5, 1.0]))
            said = f"{low} to {high}, median {middle}"
        else:
            counts = there.astype(str).value_counts()
            top = [f"{_short(v, 20)} ({n})" for v, n in counts.iloc[:4].items()]
            several = f"{len(counts)} values: {', '.join(top)}{', ...' * (len(counts) > 4)}"
            said = several if len(counts) else "no values"
        return [_short(name), kind, str(gaps or ""), said]

    kinds = {**model.inputs_.kinds_}
    kinds |= {name: f"left out: {why}" for name, why in model.inputs_.dropped_.items()}
    names = [name for name in data.frame.columns if name in kinds]
    kind = "classes" if data.task == CLASSES else "numeric"
    rows = [row(f"{data.target.name} (target)", kind, data.target)]
    rows += [row(name, kinds[name], data.frame[name]) for name in names[:_MOST_COLUMNS]]
    notes = [*data.notes, *model.notes_]
    more = f" {len(names) - _MOST_COLUMNS} more columns." if len(names) > _MOST_COLUMNS else ""
    return {
        "title": "The table",
        "kind": "words",
        "head": ["column", "read as", "missing", "values"],
        "rows": rows,
        "note": " ".join(f"{n[0].upper()}{n[1:]}." for n in dict.fromkeys(notes)) + more,
    }


def _settings(settings: dict[str, Any], model: Any) -> Section:
    rows = [[name.replace("_", "-"), str(value)] for name, value in settings.items()]
    parameters = re.sub(r"\s+", " ", repr(model.estimator_[-1]))  # those that are no defaults
    rows.append(["parameters", parameters[:400]])
    rows += [[name, version(name)] for name in ("numpy", "scipy", "scikit-learn", "pandas")]
    rows.append(["date", datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")])
    return {"title": "Settings", "kind": "words", "head": ["name", "value"], "rows": rows}


def _how_to_load(model: Any, data: Any, saved: str | None) -> Section:
    target = model.target_name_ or "target"
    ask = "predict_proba(table)" if model.task_ == CLASSES else "predict(table, return_std=True)"
    if saved is None:
        path = data.path if Path(data.path).is_file() else "table.csv"  # of the demo there is none
        usual = type(model)().get_params()
        given = model.get_params() | {"model": model.model_}
        options = [f"{k}={v!r}" for k, v in given.items() if k != "task" and usual.get(k, ...) != v]
        made = f"sparsebayes.table_model({', '.join([repr(model.task_), *options])})"
        text = (
            "import sparsebayes\nfrom sparsebayes.cli.tables import read_table\n\n"
            f"table = read_table({path!r}).frame.dropna(subset={target!r})\n"
            f"model = {made}\n"
            f"model.fit(table.drop(columns={data.excluded!r}), table[{target!r}])\n"
            f"model.{ask}\n"
        )
    elif saved.endswith(".skops"):
        text = (
            "import pandas as pd\nimport skops.io\nimport sparsebayes\n\n"
            f"model = skops.io.load({saved!r}, trusted=sparsebayes.TRUSTED_TYPES)\n"
            f"table = pd.read_csv('new.csv')  # the same columns\nmodel.{ask}\n"
        )
    else:
        text = (
            "import pickle\n\nimport pandas as pd\n\n"
            f"model = pickle.load(open({saved!r}, 'rb'))\n"
            f"table = pd.read_csv('new.csv')  # the same columns\nmodel.{ask}\n"
        )
    return {"title": "In Python", "preformatted": text}


# Numbers, figures, pages.


def _cell(value: Any) -> str:
    if isinstance(value, float) and np.isnan(value):
        return "missing"
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool | np.bool_)
    return rounded(float(value)) if number else _short(value, 24)


def _short(text: Any, most: int = 28) -> str:
    text = " ".join(str(text).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _label(text: Any, most: int = 28) -> str:
    """A short text for figures, where a dollar begins mathematics."""
    return _short(text, most).replace("$", r"\$")


def _some_rows(n: int) -> np.ndarray:
    if n <= _MOST_POINTS:
        return np.arange(n)
    return np.random.default_rng(0).choice(n, _MOST_POINTS, replace=False)


def make_figure(*shape: int, figsize: tuple[float, float] = (7.0, 4.2)) -> tuple[Any, Any]:
    """A figure that no window shows, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=figsize, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(*(shape or (1, 1)))


def svg(figure: Any) -> Any:
    """A figure as part of a page: its text, frames and ticks have the colour of the page's text."""
    from markupsafe import Markup
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", facecolor="none", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)  # a page knows what svg is
    text = text.replace("#000000", "currentColor").replace("fill: #ffffff", "fill: none")
    return Markup(text)


def write(path: str, title: str, subtitle: str, sections: list[Section]) -> None:
    """One HTML file; a section has a title and any of text, preformatted, head, rows, best, image
    (a wide one from `svg`), figures (pairs of those and captions) and note. The kind of a table
    says which cells are words, not numbers: the first column, the first two ("pairs") or all
    ("words").
    """
    from jinja2 import Environment

    template = files(__package__).joinpath("report.html").read_text("utf-8")
    page = Environment(autoescape=True).from_string(template)
    footer = f"sparsebayes {__version__}, Python {platform.python_version()}, {platform.system()}"
    text = page.render(title=title, subtitle=subtitle, sections=sections, footer=footer)
    write_whole(path, text.encode())
