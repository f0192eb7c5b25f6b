"""The tables and figures of five papers, run again on the library: ``python3 dev.py papers``.

Each paper is one module, with the values that it prints in a CSV file beside it. `frame` runs the
cells of a table and compares them with the printed values, `show` writes the terminal tables and
the HTML report, `pages` writes `docs/papers`, `digest` identifies the code behind a number, and
`data` loads the data sets. The package is run from a clone and is not part of the wheel. It uses
only public names of the library.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from .frame import Paper, Printed, read_printed

PAPERS = {
    "forward": "sun2006",
    "partition": "benshimon2006",
    "lrols": "chen2001",
    "group": "hernandezlobato2013",
    "backfitting": "dsouza2004",
}


def load_paper(name: str) -> tuple[Paper, dict[tuple[str, str, str], Printed]]:
    """Return a paper's experiments and the values that it prints.

    Examples
    --------
    >>> from papers import load_paper
    >>> paper, printed = load_paper("lrols")
    >>> [table.label for table in paper.tables]
    ['Table 1', 'Table 2', 'Table 3', 'Figure 1']
    """
    if name not in PAPERS:
        raise ValueError(f"There is no paper {name!r}; choose from {', '.join(PAPERS)}.")
    paper = import_module(f".{PAPERS[name]}", __package__).PAPER
    text = Path(__file__).with_name(f"{PAPERS[name]}.csv").read_text("utf-8")
    return paper, read_printed(text.splitlines())
