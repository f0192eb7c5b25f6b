"""Figures without a window, and figures as part of an HTML page."""

from __future__ import annotations

import io
import re
from typing import Any


def make_figure(*shape: int, figsize: tuple[float, float] = (7.0, 4.2)) -> tuple[Any, Any]:
    """Return a matplotlib figure that no window shows, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=figsize, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(*(shape or (1, 1)))


def svg(figure: Any) -> str:
    """Return a figure as SVG; its text, frames and ticks take the colour of the page's text."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", facecolor="none", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)  # inside HTML a namespace is not needed
    return text.replace("#000000", "currentColor").replace("fill: #ffffff", "fill: none")
