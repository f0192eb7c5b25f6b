"""A dynamic model to read: its terms as a table, its equation as text and for LaTeX."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np


@dataclass(frozen=True)
class TermTable:
    """The terms of a model, in order of choice; printing it shows the table.

    Parameters
    ----------
    term : array of str
    coefficient, std : array
    err : array
        Error reduction ratio: share of the output's sum of squares that the term explains one step
        ahead, given the terms above it.
    """

    term: np.ndarray
    coefficient: np.ndarray
    std: np.ndarray
    err: np.ndarray

    def __len__(self) -> int:
        return len(self.term)

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame({field.name: getattr(self, field.name) for field in fields(self)})

    def cells(self) -> list[list[str]]:
        """The rows as text."""
        numbers = zip(self.term, self.coefficient, self.std, self.err, strict=True)
        return [
            [str(term), f"{w:.6g}", f"{std:.3g}", f"{err:.3g}"] for term, w, std, err in numbers
        ]

    def __str__(self) -> str:
        rows = [["term", "coefficient", "std", "ERR"], *self.cells()]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        )


def equation_text(terms: TermTable, noise: np.ndarray) -> str:
    """The equation ``y(k) = ...``, in order of choice."""
    parts = [
        f"{weight:+.5g}" + ("" if term == "1" else f" {term}")
        for term, weight in zip(terms.term, terms.coefficient, strict=True)
    ]
    parts += [f"{c:+.5g} e(k-{j + 1})" for j, c in enumerate(noise)]
    text = " ".join(f"{part[0]} {part[1:]}" for part in parts)
    return "y(k) = " + text.removeprefix("+ ") + " + e(k)"


def equation_latex(terms: TermTable, noise: np.ndarray, digits: int) -> str:
    """The equation for LaTeX."""
    pieces = []
    for term, weight in zip(terms.term, terms.coefficient, strict=True):
        mantissa, _, exponent = f"{weight:+.{digits}g}".partition("e")
        power = f" \\cdot 10^{{{int(exponent)}}}" if exponent else ""
        name = "\\," + str(term).replace("*", "\\,").replace("max", "\\max")
        pieces.append(f"{mantissa}{power}{'' if term == '1' else name}")
    pieces += [f"{c:+.{digits}g}\\,e(k-{j + 1})" for j, c in enumerate(noise)]
    return "y(k) = " + " ".join(pieces).removeprefix("+") + " + e(k)"
