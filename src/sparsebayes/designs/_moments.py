"""Phi'Phi and Phi'V from one pass over row blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from scipy.linalg.blas import dsyrk, ssyrk

from .._array import is_torch, like, there, to_numpy
from ..rows._base import Report

_PANEL_ELEMENTS = 2**21  # rows are gathered to this many numbers: fewer starve the product
Shift = tuple[np.ndarray, np.ndarray]


@dataclass
class Reading:
    """A report that lets a pass end early: after a KeyboardInterrupt the rows read stand for all.

    `report` is told the number of rows too.
    """

    report: Report | None = None
    rows: int = 0
    interrupted: bool = False

    def __call__(self, rows: int) -> None:
        self.rows = rows
        if self.report is not None:
            self.report(rows)


def accumulate(
    blocks: Iterable[tuple[slice, Any]],
    n_candidates: int,
    V: np.ndarray,
    single: bool = False,
    report: Report | None = None,
    shift: Shift | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Z'Z and Phi'V of the columns that `blocks` yields; Z = Phi - u s' for a `shift` (u, s).

    The symmetric product is formed one triangle at a time and in place: C <- C + panel' panel.
    With `single` the products are in float32 and their sums in float64. `report` is told the
    number of rows read so far; a `Reading` makes of an interrupted pass an estimate, the sums over
    the rows read times n over their number.
    """
    blocks = iter(blocks)
    first = next(blocks, None)
    if first is not None:
        blocks = chain([first], blocks)
        if is_torch(first[1]):
            return _accumulate_there(blocks, first[1], n_candidates, V, report, shift)
    m = n_candidates
    height = max(256, min(8192, _PANEL_ELEMENTS // max(m, 1)))
    panel = np.empty((height, m), dtype=np.float32 if single else np.float64)
    G = np.zeros((m, m), order="F")
    A = np.zeros((m, *V.shape[1:]))
    waiting = np.zeros_like(A)  # of A: the rows of the panel
    filled = multiplied = 0

    def flush() -> None:
        # An interruption shows when BLAS returns: G, in place or not, then agrees with A.
        nonlocal G, A, multiplied, filled
        columns = panel[:filled].T  # column-contiguous: no copy on the way to BLAS
        if single:
            product = ssyrk(1.0, columns, lower=True)
            G += product
        A, multiplied, filled = A + waiting, multiplied + filled, 0
        if not single:
            G = dsyrk(1.0, columns, beta=1.0, c=G, lower=True, overwrite_c=True)

    read = 0
    try:
        for rows, block in blocks:
            block = to_numpy(block)
            start = 0
            while start < len(block):
                if filled == 0:
                    waiting[...] = 0.0
                taken = min(height - filled, len(block) - start)
                target, part = panel[filled : filled + taken], block[start : start + taken]
                at = slice(rows.start + start, rows.start + start + taken)
                waiting += part.T @ V[at]
                if shift is None:
                    target[...] = part
                else:
                    np.multiply.outer(shift[0][at], shift[1], out=target)
                    np.subtract(part, target, out=target, casting="same_kind")
                filled, start = filled + taken, start + taken
                if filled == height:
                    flush()
            read += len(block)
            if report is not None:
                report(read)
        if filled:
            flush()
    except KeyboardInterrupt:
        if not isinstance(report, Reading) or multiplied == 0:
            raise
        report.interrupted, report.rows = True, multiplied
        G *= len(V) / multiplied
        A *= len(V) / multiplied
    G += np.tril(G, -1).T
    return G, A


def _accumulate_there(
    blocks: Iterable[tuple[slice, Any]],
    first: Any,
    m: int,
    V: np.ndarray,
    report: Report | None,
    shift: Shift | None,
) -> tuple[np.ndarray, np.ndarray]:
    """The same where the blocks are, one product each. It takes seconds: no estimate of a part."""
    G, A = (there(np.zeros(shape), first) for shape in ((m, m), (m, *V.shape[1:])))
    mean = None if shift is None else like(shift[1], first)
    for rows, block in blocks:
        A += block.T @ like(V[rows], first)
        if shift is not None:
            block = block - like(shift[0][rows], first)[:, None] * mean
        G += block.T @ block
        if report is not None:
            report(rows.stop)
    return to_numpy(G), to_numpy(A)
