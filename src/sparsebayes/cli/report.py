"""Self-contained HTML reports: tables and figures in one file that fetches nothing.

Figures are SVG inside the page and take the colour of its text, for light and dark schemes.
"""

from __future__ import annotations

import io
import platform
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm

from .. import __version__
from .._files import write_whole
from .._warn import UnlikeRows
from ..displays._inputs import FEW_VALUES, effect_grid
from ..models import CLASSES, REGRESSION, choices
from .comparison import TOO_LITTLE, Fold, Score, best, cells, codes_of, head, rounded
from .narx import Names, named_terms
from .prepared import PreparedTable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..estimators.table import TableModel

_MOST_TERMS = 15
_MOST_COLUMNS = 40  # of a table, in the overview
_MOST_POINTS = 600  # in a scatter plot
_MOST_INTERVALS = 50  # in a scatter plot
_MOST_INPUTS = 6  # whose effect is drawn, and that describe a term
_MANY = 200  # columns whose permutation importance is computed
_PER_BIN = 20  # rows in a bin of the reliability curve
_PANEL = (4.4, 3.3)  # inches of a figure: readable on a phone, three side by side on a screen

Section = dict[str, Any]


def write_table_report(
    path: str,
    data: PreparedTable,
    scores: list[Score],
    model: TableModel,
    folds: list[Fold],
    settings: dict[str, Any],
    saved: str | None = None,
    n_rows: int | None = None,
) -> None:
    """Write scores of models on held-out rows, and figures of one model fitted to all rows.

    `saved` is the file of the model; `n_rows` says to how many rows it was fitted if not to all.
    """
    shown = best(scores, data.task, own=True) or scores[0]
    last = model.estimator_[-1]
    kind = "a mixture of models" if hasattr(last, "choices_") else type(last).__name__
    name = f"{model.model_} ({kind})"
    if len(folds) > 1:
        split = f"{len(folds)} folds: each row is predicted by a model fitted without it"
    else:
        split = f"{len(folds[0][0]):,} rows for training, {len(folds[0][1]):,} held out"
    with _without_warnings_of_made_rows():
        importance = _importance(model, data)
        main = list(importance)[:_MOST_INPUTS]
        effects = _effects(model, data, main)
    sections = [
        _scores_section(scores, data.task),
        *(_class_sections if data.task == CLASSES else _number_sections)(shown.held_out, data),
        _relevance(model, importance),
        effects,
        _terms(model, data, main),
        _path(model.final_),
        _members(model),
        _overview(model, data),
        _settings(settings, model),
        _how_to_load(model, data, saved),
    ]
    target = model.target_name_ or "the target"
    measure = "log-loss" if data.task == CLASSES else "NLL"
    among = "" if len(scores) == 1 else f", the model of sparsebayes with the lowest {measure}"
    subtitle = (
        f"{data.title}: {len(data.y):,} rows, {data.frame.shape[1]} columns; {split}. The figures "
        f"show {name}{among}{'' if n_rows is None else f', fitted to {n_rows:,} of the rows'}."
    )
    title = f"Predicting {target}"
    write(path, title, subtitle, [section for section in sections if section])


def write_narx_report(
    path: str,
    model: TableModel,
    u: np.ndarray | None,
    y: np.ndarray,
    facts: list[list[str]],
    names: Names,
    rows: str,
    time: Any = None,
) -> None:
    """Write a dynamic model, shown on the time steps that it was tested on.

    `rows` describes these time steps, and `time` is their time or date, if known.
    """
    from ..displays import FreeRunDisplay, HorizonDisplay, ResidualTestDisplay

    run, ax = make_figure(figsize=(9.0, 3.6))
    FreeRunDisplay.from_estimator(model, u, y, ax=ax)
    ax.set(xlabel="time step" if time is None else _label(time.name), ylabel=_label(names.output))
    if time is not None:
        ax.xaxis.set_major_formatter(_time_labels(time))
    tests, axes = make_figure(1, 1 + model.n_inputs_, figsize=(4.5 + 4.5 * model.n_inputs_, 3.2))
    ResidualTestDisplay.from_estimator(model, u, y, ax=axes)
    for ax in np.ravel(axes):
        head, _, variable = ax.get_title().rpartition(" ")
        ax.set_title(f"{head} {_label(names.labels.get(variable, variable))}")
    horizon, ax = make_figure(figsize=(6.0, 3.4))
    HorizonDisplay.from_estimator(model, u, y, ax=ax)
    terms = named_terms(model.terms_, names)
    sections: list[dict[str, Any]] = [
        {"title": "Equation", "preformatted": names.rename(str(model))},
        {"title": f"Errors on the {rows} time steps", "head": ["score", "value"], "rows": facts},
        {
            "title": "Terms",
            "head": ["term", "coefficient", "std", "ERR"],
            "rows": terms.cells(),
            "note": "ERR (error reduction ratio): share of the output's sum of squares that a term "
            "explains one step ahead, given the terms above it.",
        },
        {"title": "Simulation", "image": svg(run)},
        {
            "title": "Correlation of the one-step residuals",
            "image": svg(tests),
            "note": "About one bar in twenty lies outside the grey 95 % band by chance. More bars "
            "outside it are structure that the model missed.",
        },
        {"title": "Error by prediction horizon", "image": svg(horizon)},
    ]
    subtitle = f"{len(y)} {rows} time steps"
    write(path, f"A dynamic model of {names.output}", subtitle, sections)


def _time_labels(time: Any) -> Any:
    """Return a formatter that shows the time of a step in place of its number."""
    from matplotlib.ticker import FuncFormatter

    values = list(time)
    is_date = hasattr(values[0], "strftime")
    days = is_date and (values[-1] - values[0]).days >= 14
    form = "%Y-%m-%d" if days else "%m-%d %H:%M"

    def label(step: float, _: Any) -> str:
        if not 0 <= step < len(values) or step != int(step):
            return ""
        value = values[int(step)]
        return str(value.strftime(form)) if is_date else f"{value:g}"

    return FuncFormatter(label)


# Scores, and predictions of held-out rows.


def _scores_section(scores: list[Score], task: str) -> Section:
    done = [s for s in scores if not s.reason]
    done.sort(key=lambda s: s.values.get("rmse" if task == REGRESSION else "log_loss", np.inf))
    others = [f"{s.model}: {s.reason or s.folds}." for s in scores if s.reason or s.folds]
    several = len(done) > 1
    explanation = {
        REGRESSION: "NLL: mean negative log predictive density. 95 % coverage: share of rows "
        f"inside their 95 % interval; {TOO_LITTLE}. Lower RMSE and NLL are better."
        + several
        * " The models are sorted by RMSE, and the highlighted one has the lowest NLL.",
        CLASSES: "Brier: half the squared distance between predicted probabilities and outcome. "
        "Lower log-loss and Brier are better." + several * " The models are sorted by log-loss.",
    }
    return {
        "title": "Scores on held-out rows",
        "head": head(task, wide=True),
        "rows": [cells(s, task, wide=True) for s in done],
        "best": done.index(best(scores, task) or done[0]),
        "note": f"{explanation[task]} ± is the standard error over rows. Terms: number of basis "
        "functions or columns, averaged over the models of the folds; for a mixture, those of all "
        "members with a weight above 0 are added. Size: of the saved model. ms/row: time to "
        "predict a row. Seconds: time of all fits. " + " ".join(others),
    }


def _number_sections(held_out: Any, data: PreparedTable) -> list[Section]:
    y, mean = data.y[held_out.rows], held_out.mean
    name = _label(data.target.name)
    drawn = _some_rows(len(y))
    figure, ax = make_figure(figsize=_PANEL)
    if held_out.std is not None:
        with_bars = drawn[:: -(-len(drawn) // _MOST_INTERVALS)]
        bars: Any = [
            mean[with_bars] - held_out.lower[with_bars],
            held_out.upper[with_bars] - mean[with_bars],
        ]
        bars = np.maximum(bars, 0.0)  # a long tail can have its mean outside
        ax.errorbar(
            mean[with_bars], y[with_bars], xerr=bars, fmt="none", ecolor="C0", alpha=0.35, lw=1,
            label="95 % interval",
        )  # fmt: skip
    ax.scatter(mean[drawn], y[drawn], s=9, color="C0", label="held-out rows", zorder=3, lw=0)
    ends = [min(mean.min(), y.min()), max(mean.max(), y.max())]
    ax.plot(ends, ends, color="C1", lw=1, ls="--", label="predicted = observed")
    ax.set(xlabel=f"predicted {name}", ylabel=f"observed {name}")
    ax.legend(fontsize="small", framealpha=0.0)
    residuals, axis = make_figure(figsize=_PANEL)
    axis.scatter(mean[drawn], (y - mean)[drawn], s=9, color="C0", lw=0)
    axis.axhline(0.0, color="C1", lw=1, ls="--")
    axis.set(xlabel=f"predicted {name}", ylabel="observed - predicted")
    subset = ", some with their intervals" if held_out.std is not None else ""
    figures = [
        (svg(figure), f"Observed against predicted values{subset}."),
        (svg(residuals), "Residuals. A pattern is structure that the model missed."),
    ]
    if held_out.std is not None:
        levels = np.linspace(0.02, 0.99, 50)
        z = np.abs(y - mean) / held_out.std
        inside = [(z <= norm.ppf(0.5 + 0.5 * level)).mean() for level in levels]
        figure, ax = make_figure(figsize=_PANEL)
        ax.plot([0, 1], [0, 1], color="C1", lw=1, ls="--")
        ax.plot(levels, inside, color="C0")
        ax.set(xlabel="nominal coverage", ylabel="observed coverage", xlim=(0, 1), ylim=(0, 1))
        caption = (
            "Observed against nominal coverage of intervals that assume a normal distribution. "
            "Below the dashed line they are too narrow, above it too wide. predict_interval can "
            "assume a distribution with heavier tails: the column 95 % coverage above is of its "
            "intervals."
        )
        figures.append((svg(figure), caption))
    more = f" {len(drawn)} of {len(y):,} rows are drawn." if len(drawn) < len(y) else ""
    return [
        {
            "title": "Predictions and calibration",
            "figures": figures,
            "note": f"Each row was predicted by a model that was fitted without it.{more}",
        }
    ]


def reliability(
    probability: np.ndarray, occurred: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean probability, observed frequency and its standard error in bins of equal size."""
    order = np.argsort(probability, kind="stable")
    n_bins = int(np.clip(len(order) // _PER_BIN, 1, 10))
    bins = np.array_split(order, n_bins)
    predicted = np.array([probability[rows].mean() for rows in bins])
    observed = np.array([occurred[rows].mean() for rows in bins])
    n = np.array([len(rows) for rows in bins])
    error = np.sqrt(observed * (1.0 - observed) / n + 0.25 / n**2)
    return predicted, observed, error


def _class_sections(held_out: Any, data: Any) -> list[Section]:
    p, classes = held_out.probability, data.classes
    codes = codes_of(data.y[held_out.rows], classes)
    outcome = np.equal.outer(codes, np.arange(len(classes))).astype(float)
    binary = len(classes) == 2
    label = f"{data.target.name} = {classes[1]}" if binary else "all classes, one against the rest"
    chosen = slice(1, 2) if binary else slice(None)
    predicted, observed, error = reliability(p[:, chosen].ravel(), outcome[:, chosen].ravel())
    figure, ax = make_figure(figsize=_PANEL)
    style: Any = {"fmt": "o-", "ms": 4, "lw": 1, "elinewidth": 0.8}
    ax.errorbar(predicted, observed, 1.96 * error, label=_label(label, 40), **style)
    ax.plot([0, 1], [0, 1], color="0.5", lw=1, ls="--")
    ax.set(
        xlabel="predicted probability", ylabel="observed frequency", xlim=(0, 1), ylim=(-0.02, 1.02)
    )
    ax.legend(fontsize="small", framealpha=0.0)
    best_class = np.argmax(p, axis=1)
    table = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(table, (codes, best_class), 1)
    confidence, axis = make_figure(figsize=_PANEL)
    hit = best_class == codes
    top = p.max(axis=1)
    bins = np.linspace(1.0 / len(classes), 1.0, 16)
    axis.hist(
        [top[hit], top[~hit]], bins, stacked=True, color=["C0", "C1"], label=["correct", "wrong"]
    )
    axis.set(xlabel="probability of the predicted class", ylabel="number of rows")
    axis.legend(fontsize="small", framealpha=0.0)
    rows = [
        [str(classes[i]), *map(str, table[i]), f"{table[i, i] / max(1, table[i].sum()):.0%}"]
        for i in range(min(len(classes), 30))
    ]
    return [
        {
            "title": "Predicted probabilities",
            "figures": [
                (svg(figure), "Reliability with 95 % error bars. On the dashed line, an outcome "
                "with a predicted probability of 70 % occurs in 70 of 100 rows."),
                (svg(confidence), "Probabilities of correct and of wrong predictions."),
            ],
            "note": "Each row was predicted by a model that was fitted without it.",
        },
        {
            "title": "Confusion matrix",
            "head": ["true class \\ predicted", *map(str, classes[:30]), "recall"],
            "rows": rows,
        },
    ]  # fmt: skip


# The model: inputs, effects, terms, evidence.


@contextmanager
def _without_warnings_of_made_rows() -> Iterator[None]:
    """Do not warn of rows that the report makes, by permutation or of typical values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlikeRows)
        yield


def _importance(model: TableModel, data: PreparedTable) -> dict[str, float]:
    """Return the RMS change of the predictions when a column is permuted, largest first."""
    kinds = model.inputs_.kinds_
    if len(kinds) > _MANY:  # only the inputs with the largest weights
        by_input = _by_input(model)
        sizes = np.zeros(len(model.inputs_.sources_)) if by_input is None else by_input[0]
        kinds = {model.inputs_.sources_[j]: "" for j in np.argsort(-sizes)[:_MANY]}
    rows = data.frame.iloc[_some_rows(len(data.frame))].reset_index(drop=True)
    order = np.random.default_rng(0).permutation(len(rows))
    predict = model.predict_proba if model.task_ == CLASSES else model.predict
    prediction = predict(rows)
    changes = {}
    for name in kinds:
        permuted = rows.assign(**{name: rows[name].iloc[order].to_numpy()})
        changes[name] = float(np.sqrt(np.mean((predict(permuted) - prediction) ** 2)))
    return dict(sorted(changes.items(), key=lambda item: -item[1]))


def _by_input(model: TableModel) -> tuple[np.ndarray, str, str] | None:
    """Return the importance of each encoded input to the model, an axis label and a caption."""
    final = model.final_
    if hasattr(final, "inclusion_probability_"):
        index = final.group_index_
        probability = np.asarray(final.inclusion_probability_)[index]
        return probability, "inclusion probability", "Posterior inclusion probability."
    relevance = getattr(final, "feature_relevance_", None)
    if relevance is not None and np.ptp(relevance) > 0:
        caption = (
            "Share of the variance of the fitted function that is due to each input and its "
            "interactions (total Sobol index). The shares need not sum to 1."
        )
        return np.asarray(relevance), "share of the variance", caption
    coef = getattr(final, "coef_", None)
    if coef is not None and np.shape(coef)[-1] == len(model.get_feature_names_out()):
        size = np.max(np.abs(np.atleast_2d(coef)), axis=0)
        return size, "absolute weight", "Absolute weight per standard deviation of the input."
    return None


def _relevance(model: TableModel, importance: dict[str, float]) -> Section:
    names = list(importance)[:20]
    unit = "probability" if model.task_ == CLASSES else _label(model.target_name_ or "prediction")
    columns = _bars([importance[name] for name in names], names, "C0", f"change of {unit} (RMS)")
    caption = "Change of the predictions (root mean square) when the column is shuffled."
    figures = [(columns, caption)]
    if (by_input := _by_input(model)) is not None:
        values, label, caption = by_input
        order = [j for j in np.argsort(-values) if values[j] > 0][:20]
        inputs = [model.get_feature_names_out()[j] for j in order]
        figures.append((_bars(values[order], inputs, "C2", label), caption))
    return {"title": "Which inputs matter", "figures": figures}


def _bars(values: Any, names: Any, color: str, label: str) -> Any:
    figure, ax = make_figure(figsize=(_PANEL[0], 0.9 + 0.26 * max(3, len(names))))
    place = np.arange(len(names))
    ax.barh(place, values, color=color)
    ax.set_yticks(place, [_label(name) for name in names])
    ax.invert_yaxis()
    ax.set(xlabel=label)
    return svg(figure)


def _effects(model: TableModel, data: PreparedTable, columns: list[str]) -> Section | None:
    """Return predictions along each column, with the others fixed at typical values."""
    import pandas as pd

    frame = data.frame
    kinds = model.inputs_.kinds_
    typical = {}
    for name in kinds:
        column = frame[name].dropna()
        number = kinds[name] == "numeric" and not pd.api.types.is_bool_dtype(column)
        typical[name] = pd.to_numeric(column).median() if number else column.mode().iloc[0]
    figures, bands = [], []
    for name in columns:
        column = frame[name].dropna()
        number = kinds[name] == "numeric" and not pd.api.types.is_bool_dtype(column)
        if number:
            numbers = pd.to_numeric(column).to_numpy(np.float64)
            grid: Any = effect_grid(numbers, 60, (0.01, 0.99))
        elif kinds[name] == "date":
            continue
        else:
            grid = column.value_counts().index[:8].tolist()
        rows = pd.DataFrame({c: [v] * len(grid) for c, v in typical.items()})
        rows[name] = grid
        figure, ax = make_figure(figsize=_PANEL)
        bands.append(_draw_effect(ax, model, rows, grid if number else None))
        if not number:
            ax.set_xticks(range(len(grid)), [_label(v, 12) for v in grid], rotation=30, ha="right")
        ax.set(xlabel=_label(name))
        figures.append((svg(figure), ""))
    if not figures:
        return None
    note = "Prediction along one column, with the others at their median or most common value."
    if any(bands):
        note += " Bands are 95 % credible intervals of the function, without the noise."
    return {"title": "Effects of single columns", "figures": figures, "note": note}


def _draw_effect(ax: Axes, model: TableModel, rows: pd.DataFrame, grid: np.ndarray | None) -> bool:
    """Draw the predictions at some rows; return whether they have a band."""
    x = np.arange(len(rows)) if grid is None else grid
    points = len(x) <= FEW_VALUES
    line = "o" if points else "-"
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
        return False
    mean = model.predict(rows)
    std = _function_std(model, rows)
    ax.set_ylabel(_label(model.target_name_ or "prediction"))
    if std is None:
        ax.plot(x, mean, line, color="C0")
        return False
    half = 1.96 * std
    if points:
        ax.errorbar(x, mean, half, fmt="o", color="C0", capsize=3)
    else:
        ax.plot(x, mean, color="C0")
        ax.fill_between(x, mean - half, mean + half, color="C0", alpha=0.25, lw=0)
    return True


def _function_std(model: TableModel, rows: pd.DataFrame) -> np.ndarray | None:
    """Return the standard deviation of the function without the noise, if the model has one."""
    (choice,) = choices(model.task_, [model.model_])
    return model.predict(rows, return_std="function")[1] if choice.is_own else None


def _terms(model: TableModel, data: PreparedTable, columns: list[str]) -> Section | None:
    """Return the active terms, largest weight first; kernel functions by their centre."""
    final, names = model.final_, model.get_feature_names_out()
    if not hasattr(final, "coef_") or getattr(final, "exact_", False):
        return None  # the weights of an exact Gaussian process cannot be interpreted
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
        note = "Weights per standard deviation of the input. Inputs of zero weight are not listed."
    else:
        title = "Basis functions"
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
        note = "Each kernel function is centred on a row of the table, and decreases away from it."
    if len(order) > _MOST_TERMS:
        note += f" The {_MOST_TERMS} largest of {len(order)} weights are listed."
    text = None if order else "No term was selected: the model predicts a constant."
    return {"title": title, "head": head, "rows": rows, "note": note, "text": text}


def _path(final: Any) -> Section | None:
    """Return the evidence along the selection path."""
    path = getattr(final, "evidence_path_", None)
    if path is None or len(path) < 3:
        return None
    figure, ax = make_figure(figsize=_PANEL)
    ax.plot(np.arange(len(path)), path, color="C0")
    selected = len(final.active_)
    ax.axvline(selected, color="C1", lw=1, ls="--", label=f"{selected} selected")
    low = np.quantile(path[np.isfinite(path)], 0.1)
    ax.set(xlabel="number of terms", ylabel="log evidence (nats)")
    ax.set_ylim(bottom=low)
    ax.legend(fontsize="small", framealpha=0.0)
    caption = "Log evidence of the models with 0, 1, 2, ... terms, in the order of selection."
    return {"title": "Number of terms", "figures": [(svg(figure), caption)]}


def _members(model: TableModel) -> Section | None:
    """Return the models that were compared, with their weights."""
    table = getattr(model.estimator_[-1], "choices_", None)
    if table is None:
        return None
    keys = ("member", "loo_log_density", "error", "weight", "terms")
    rows = [
        [name, rounded(density), rounded(error), f"{weight:.0%}", str(terms)]
        for name, density, error, weight, terms in zip(*map(table.get, keys), strict=True)
    ]
    score, weights = (
        "leave-one-out log density",
        "A model of log y gets weight 0 if its mean predicts worse: its leave-one-out RMSE is more "
        "than 1 % above that of the Gaussian process of y. The weights of the other members "
        "maximise the leave-one-out log density of the mixture, as long as its RMSE stays near the "
        "smallest.",
    )
    if model.task_ == CLASSES:
        score = "leave-one-out log probability"
        weights = "They maximise the leave-one-out log probability of the labels."
    return {
        "title": f"Members of the model {model.model_}",
        "head": [
            "member",
            score,
            "standard error of the difference to the best",
            "weight",
            "terms",
        ],
        "rows": rows,
        "note": "Members of the model that was fitted to all rows. (The models in the table of "
        "scores were fitted to fewer rows and can have fewer terms.) Its predictions are those of "
        f"a mixture with these weights. {weights} Terms: number of basis functions or columns.",
    }


# The table, the settings, and the code to repeat the fit.


def _overview(model: TableModel, data: PreparedTable) -> Section:
    import pandas as pd

    def row(name: str, kind: str, column: Any) -> list[str]:
        n_missing = int(column.isna().sum())
        present = column.dropna()
        if kind == "numeric" and len(present):
            numbers = pd.to_numeric(present).astype(float)
            low, middle, high = (rounded(v) for v in np.quantile(numbers, [0.0, 0.5, 1.0]))
            values = f"{low} to {high}, median {middle}"
        else:
            counts = present.astype(str).value_counts()
            top = [f"{_short(v, 20)} ({n})" for v, n in counts.iloc[:4].items()]
            several = f"{len(counts)} values: {', '.join(top)}{', ...' * (len(counts) > 4)}"
            values = several if len(counts) else "no values"
        return [_short(name), kind, str(n_missing or ""), values]

    kinds = {**model.inputs_.kinds_}
    kinds |= {name: f"dropped: {why}" for name, why in model.inputs_.dropped_.items()}
    names = [name for name in data.frame.columns if name in kinds]
    kind = "classes" if data.task == CLASSES else "numeric"
    rows = [row(f"{data.target.name} (target)", kind, data.target)]
    rows += [row(name, kinds[name], data.frame[name]) for name in names[:_MOST_COLUMNS]]
    notes = [*data.notes, *model.notes_]
    more = f" {len(names) - _MOST_COLUMNS} more columns." if len(names) > _MOST_COLUMNS else ""
    return {
        "title": "The table",
        "kind": "words",
        "head": ["column", "interpreted as", "missing values", "values"],
        "rows": rows,
        "note": " ".join(f"{n[0].upper()}{n[1:].rstrip('.')}." for n in dict.fromkeys(notes))
        + more,
    }


def _settings(settings: dict[str, Any], model: TableModel) -> Section:
    units = {"time_budget": "time-budget (s)"}
    rows = [
        [units.get(name, name.replace("_", "-")), f"{value:g}" if name in units else str(value)]
        for name, value in settings.items()
    ]
    parameters = re.sub(r"\s+", " ", repr(model.estimator_[-1]))  # without the defaults
    rows.append(["estimator", parameters[:400]])
    rows += [[name, version(name)] for name in ("numpy", "scipy", "scikit-learn", "pandas")]
    rows.append(["date", datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")])
    return {"title": "Settings", "kind": "words", "head": ["name", "value"], "rows": rows}


def _how_to_load(model: TableModel, data: PreparedTable, saved: str | None) -> Section:
    target = model.target_name_ or "target"
    ask = "predict_proba(table)" if model.task_ == CLASSES else "predict(table, return_std=True)"
    ask += "  # or other rows; columns that are not inputs are ignored"
    if saved is None:
        usual = type(model)().get_params()
        given = model.get_params() | {"model": model.model_}
        options = [f"{k}={v!r}" for k, v in given.items() if k != "task" and usual.get(k, ...) != v]
        made = f"sparsebayes.table_model({', '.join([repr(model.task_), *options])})"
        name = data.options.weights
        weight = "" if name is None else f", sample_weight=table[{name!r}]"
        source = data.source
        if not source:
            path = data.path if Path(data.path).is_file() else "table.csv"
            source = (
                "from sparsebayes.cli.tables import read_table\n\n"
                f"table = read_table({path!r}).frame.dropna(subset={target!r})\n"
            )
        text = (
            f"import sparsebayes\n{source}"
            f"model = {made}\n"
            f"model.fit(table.drop(columns={data.excluded!r}), table[{target!r}]{weight})\n"
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
    """Return a short text for figures, with dollar signs escaped (they delimit mathematics)."""
    return _short(text, most).replace("$", r"\$")


def _some_rows(n: int) -> np.ndarray:
    if n <= _MOST_POINTS:
        return np.arange(n)
    return np.random.default_rng(0).choice(n, _MOST_POINTS, replace=False)


def make_figure(*shape: int, figsize: tuple[float, float] = (7.0, 4.2)) -> tuple[Figure, Any]:
    """Return a figure without a window, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=figsize, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(*(shape or (1, 1)))


def svg(figure: Figure) -> Any:
    """Return a figure as SVG for a page; text, frames and ticks take the colour of its text."""
    from markupsafe import Markup
    from matplotlib import rc_context

    for ax in figure.axes:
        _readable_ticks(ax)
    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", facecolor="none", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)  # a page knows what svg is
    text = text.replace("#000000", "currentColor").replace("fill: #ffffff", "fill: none")
    return Markup(text)


def _readable_ticks(ax: Axes) -> None:
    """Use few ticks, and 100k or 2M for large numbers, so that labels do not overlap."""
    from matplotlib.ticker import AutoLocator, EngFormatter, MaxNLocator, ScalarFormatter

    for axis in (ax.xaxis, ax.yaxis):
        if not isinstance(axis.get_major_formatter(), ScalarFormatter):
            continue
        if isinstance(axis.get_major_locator(), AutoLocator):
            axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        low, high = axis.get_view_interval()
        if max(abs(low), abs(high)) >= 1e4:
            axis.set_major_formatter(EngFormatter(sep=""))


def write(path: str, title: str, subtitle: str, sections: list[Section]) -> None:
    """Write one HTML file.

    A section has a title and any of text, preformatted, head, rows, best, image (a wide one from
    `svg`), figures (pairs of an image and a caption) and note. The kind of a table says which cells
    are text: the first column, the first two (``"pairs"``) or all (``"words"``).
    """
    from jinja2 import Environment

    template = files(__package__).joinpath("report.html").read_text("utf-8")
    page = Environment(autoescape=True).from_string(template)
    footer = f"sparsebayes {__version__}, Python {platform.python_version()}, {platform.system()}"
    text = page.render(title=title, subtitle=subtitle, sections=sections, footer=footer)
    write_whole(path, text.encode())
