"""Self-contained HTML reports: tables and figures in one file, nothing fetched to show it."""

from __future__ import annotations

import base64
import io
import platform
from typing import Any

import numpy as np
from scipy.stats import norm

from . import __version__
from .comparison import HEAD, Score, cells, final_model, predict
from .displays import EvidencePathDisplay, PredictionDisplay
from .tables import write_output

_MOST_TERMS = 20

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }} - sparsebayes</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem;
         padding: 0 1rem; color: #222; }
  h1 { font-size: 1.6rem; margin-bottom: .2rem; }
  h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #ddd; }
  p.note, footer { color: #666; font-size: .9rem; }
  table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; }
  th, td { padding: .3rem .9rem; text-align: right; border-bottom: 1px solid #eee; }
  th:first-child, td:first-child { text-align: left; }
  table.pairs th:nth-child(2), table.pairs td:nth-child(2), table.words th, table.words td
         { text-align: left; }
  table.pairs td { white-space: nowrap; padding: .15rem .7rem; }
  tr.best td { background: #eef6ee; font-weight: 600; }
  pre { white-space: pre-wrap; font: .9rem/1.45 ui-monospace, monospace; }
  img { max-width: 100%; height: auto; }
  footer { margin-top: 3rem; border-top: 1px solid #ddd; padding-top: .5rem; }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p class="note">{{ subtitle }}</p>
{% for section in sections %}
<h2>{{ section.title }}</h2>
{% if section.text %}<p>{{ section.text }}</p>{% endif %}
{% if section.preformatted %}<pre>{{ section.preformatted }}</pre>{% endif %}
{% if section.rows %}
<table{% if section.kind %} class="{{ section.kind }}"{% endif %}>
<thead><tr>{% for cell in section.head %}<th>{{ cell }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in section.rows %}
<tr{% if loop.index0 == section.best %} class="best"{% endif %}>
{%- for cell in row %}<td>{{ cell }}</td>{% endfor -%}
</tr>
{% endfor %}
</tbody>
</table>
{% endif %}
{% if section.image %}
<img alt="{{ section.title }}" src="data:image/png;base64,{{ section.image }}">
{% endif %}
{% if section.note %}<p class="note">{{ section.note }}</p>{% endif %}
{% endfor %}
<footer>{{ footer }}</footer>
</body>
</html>
"""


def write_comparison_report(
    path: str,
    scores: list[Score],
    X: np.ndarray,
    y: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
    feature_names: list[str],
    title: str,
    target: str,
) -> None:
    """A table of models, and the one of lowest NLL in pictures."""
    with_std = [s for s in scores if s.std is not None]
    best = min(with_std or scores, key=lambda s: s.nll if with_std else s.rmse)
    table = {
        "title": "Models",
        "head": HEAD,
        "rows": [cells(s) for s in scores],
        "best": scores.index(best),
        "note": "NLL: mean negative log density of the test rows, lower is better. Coverage: "
        "share of test rows inside the 95 % interval. The marked model is shown below.",
    }
    subtitle = f"{len(train)} rows to fit, {len(test)} held back to test; target: {target}"
    sections = [table, *_model_sections(best.fitted, X, y, test, feature_names, target)]
    write(path, f"Models for {target} ({title})", subtitle, sections)


def write_fit_report(
    path: str, model: Any, X: np.ndarray, y: np.ndarray, feature_names: list[str], target: str
) -> None:
    """One fitted model, shown on its own training rows."""
    subtitle = f"{type(final_model(model)).__name__} fitted to {len(y)} rows; target: {target}"
    sections = _model_sections(model, X, y, np.arange(len(y)), feature_names, target)
    write(path, f"A model for {target}", subtitle, sections)


def write_narx_report(
    path: str, model: Any, u: np.ndarray | None, y: np.ndarray, facts: list[list[str]], title: str
) -> None:
    """A dynamic model, shown on the record that it was tested on."""
    from .displays import FreeRunDisplay, HorizonDisplay, ResidualTestDisplay

    table = model.terms_
    rows = [
        [str(term), f"{weight:.6g}", f"{std:.3g}", f"{err:.3g}"]
        for term, weight, std, err in zip(
            table.term, table.coefficient, table.std, table.err, strict=True
        )
    ]
    run, ax = make_figure(figsize=(9.0, 3.6))
    FreeRunDisplay.from_estimator(model, u, y, ax=ax)
    tests, axes = make_figure(1, 1 + model.n_inputs_, figsize=(4.5 + 4.5 * model.n_inputs_, 3.2))
    ResidualTestDisplay.from_estimator(model, u, y, ax=axes)
    horizon, ax = make_figure(figsize=(6.0, 3.4))
    HorizonDisplay.from_estimator(model, u, y, ax=ax)
    sections: list[dict[str, Any]] = [
        {"title": "Equation", "preformatted": str(model)},
        {"title": "Errors on the rows held back", "head": ["", ""], "rows": facts},
        {
            "title": "Terms",
            "head": ["term", "coefficient", "std", "ERR"],
            "rows": rows,
            "note": "ERR: share of the output's sum of squares that a term explains one step "
            "ahead beside those above it.",
        },
        {"title": "Free run", "image": png(run)},
        {
            "title": "Tests of the errors one step ahead",
            "image": png(tests),
            "note": "Bars outside the grey 95 % band, beyond one in twenty, are what the model "
            "has not explained.",
        },
        {"title": "Error over the horizon", "image": png(horizon)},
    ]
    write(path, f"A dynamic model of {title}", f"{len(y)} rows held back at the end", sections)


def _model_sections(
    pipeline: Any,
    X: np.ndarray,
    y: np.ndarray,
    rows: np.ndarray,
    feature_names: list[str],
    target: str,
) -> list[dict[str, Any]]:
    mean, std = predict(pipeline, X[rows])
    name = type(final_model(pipeline)).__name__
    sections = [{"title": f"Fit of {name}", "image": _fit(pipeline, X, y, rows, mean, std, target)}]
    if std is not None:
        sections.append(
            {
                "title": "Residuals and calibration",
                "image": _calibration(y[rows], mean, std, target),
                "note": "A calibrated model has standardised residuals like the dashed normal "
                "curve, and as many rows inside each interval as the interval promises.",
            }
        )
    if {"log_evidence", "n_active"} <= set(getattr(final_model(pipeline), "history_", {})):
        sections.append({"title": "The fit, step by step", "image": _path(final_model(pipeline))})
    sections.append(_terms(pipeline, feature_names))
    return sections


def _fit(
    pipeline: Any,
    X: np.ndarray,
    y: np.ndarray,
    rows: np.ndarray,
    mean: np.ndarray,
    std: np.ndarray | None,
    target: str,
) -> str:
    figure, ax = make_figure()
    if X.shape[1] == 1 and std is not None:
        scaled = pipeline[:-1].transform(X)
        PredictionDisplay.from_estimator(pipeline[-1], scaled, y, ax=ax)
        ax.set(xlabel="input (standardised)", ylabel=target)
    else:
        if std is not None:
            ax.errorbar(
                mean, y[rows], xerr=1.96 * std, fmt="none", ecolor="C0", alpha=0.25, lw=1,
                label="95 % interval",
            )  # fmt: skip
        ax.scatter(mean, y[rows], s=12, color="C0", label="rows", zorder=3)
        ends = [min(mean.min(), y[rows].min()), max(mean.max(), y[rows].max())]
        ax.plot(ends, ends, color="0.3", lw=1, ls="--", label="predicted = observed")
        ax.set(xlabel=f"predicted {target}", ylabel=f"observed {target}")
        ax.legend(fontsize="small")
    return png(figure)


def _calibration(y: np.ndarray, mean: np.ndarray, std: np.ndarray, target: str) -> str:
    figure, (left, middle, right) = make_figure(1, 3, figsize=(10.5, 3.4))
    z = (y - mean) / std
    left.scatter(mean, y - mean, s=10, color="C0")
    left.axhline(0.0, color="0.3", lw=1, ls="--")
    left.set(xlabel=f"predicted {target}", ylabel="residual")
    middle.hist(z, bins=min(30, max(8, len(z) // 8)), density=True, color="C0", alpha=0.6)
    grid = np.linspace(-4, 4, 200)
    middle.plot(grid, norm.pdf(grid), color="0.3", lw=1, ls="--")
    middle.set(xlabel="standardised residual", ylabel="density")
    levels = np.linspace(0.02, 0.99, 60)
    inside = [(np.abs(z) <= norm.ppf(0.5 + 0.5 * level)).mean() for level in levels]
    right.plot(levels, inside, color="C0")
    right.plot([0, 1], [0, 1], color="0.3", lw=1, ls="--")
    right.set(xlabel="promised coverage", ylabel="rows inside")
    return png(figure)


def _path(model: Any) -> str:
    figure, ax = make_figure()
    EvidencePathDisplay.from_estimator(model, ax=ax)
    ax.set_title("")
    return png(figure)


def _terms(pipeline: Any, feature_names: list[str]) -> dict[str, Any]:
    """The active terms by size of their weight; kernel functions by their centre."""
    model = final_model(pipeline)
    vectors = getattr(model, "relevance_vectors_", None)
    if vectors is None:
        weights = np.ravel(model.coef_)
        names = feature_names if len(weights) == len(feature_names) else range(len(weights))
        order = [i for i in np.argsort(-np.abs(weights)) if weights[i] != 0]
        rows = [[list(names)[i], f"{weights[i]:.4g}"] for i in order[:_MOST_TERMS]]
        head = ["input (standardised)", "weight"]
        count = len(order)
    else:
        weights = np.ravel(model.coef_)
        centres = pipeline[:-1].inverse_transform(vectors)
        order = list(np.argsort(-np.abs(weights)))
        rows = [
            [f"row {model.active_[i]}", f"{weights[i]:.4g}", *[f"{v:.4g}" for v in centres[i]]]
            for i in order[:_MOST_TERMS]
        ]
        head = ["centre (training row)", "weight", *feature_names]
        count = len(order)
    note = f"The {_MOST_TERMS} largest weights of {count}." if count > _MOST_TERMS else None
    text = None if rows else "No term is active: the model is a constant."
    return {"title": "Active terms", "head": head, "rows": rows, "note": note, "text": text}


def make_figure(*shape: int, figsize: tuple[float, float] = (7.0, 4.2)) -> tuple[Any, Any]:
    """A figure that no window shows, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=figsize, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(*(shape or (1, 1)))


def png(figure: Any) -> str:
    """A figure as base64 text."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def write(path: str, title: str, subtitle: str, sections: list[dict[str, Any]]) -> None:
    """One HTML file; a section has a title and any of text, preformatted, head, rows, best, image
    (from `png`) and note. The kind of a table says which cells are words, not numbers: the first
    column, the first two ("pairs") or all ("words").
    """
    from jinja2 import Environment

    page = Environment(autoescape=True).from_string(_PAGE)
    footer = f"sparsebayes {__version__}, Python {platform.python_version()}, {platform.system()}"
    text = page.render(title=title, subtitle=subtitle, sections=sections, footer=footer)
    write_output(path, text.encode())
