"""The tables and figures of the five papers, run again: ``sparsebayes reproduce``.

One module per paper, its printed values as CSV beside it. `_frame` runs the cells and compares,
`_show` writes the terminal tables, the HTML report and the page of the documentation.
"""

from __future__ import annotations

from importlib import import_module
from importlib.resources import files

from ._frame import Paper, Printed, read_printed

PAPERS = {
    "forward": "sun2006",
    "partition": "benshimon2006",
    "lrols": "chen2001",
    "group": "hernandezlobato2013",
    "backfitting": "dsouza2004",
}


def load_paper(name: str) -> tuple[Paper, dict[tuple[str, str, str], Printed]]:
    """A paper's experiments, and what it prints.

    Examples
    --------
    >>> from sparsebayes.experiments import load_paper
    >>> paper, printed = load_paper("lrols")
    >>> [table.label for table in paper.tables]
    ['Table 1', 'Table 2', 'Table 3', 'Figure 1']
    """
    if name not in PAPERS:
        raise ValueError(f"There is no paper {name!r}; choose from {', '.join(PAPERS)}.")
    paper = import_module(f".{PAPERS[name]}", __package__).PAPER
    text = (files(__package__) / f"{PAPERS[name]}.csv").read_text(encoding="utf-8")
    return paper, read_printed(text.splitlines())
