"""Phi'Phi and Phi'V from one pass over row blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from scipy.linalg.blas import dsyrk, ssyrk

from .._array import to_numpy

_PANEL_ELEMENTS = 2**21  # rows are gathered to this many numbers: fewer starve the product
Report = Callable[[int], None]
Shift = tuple[np.ndarray, np.ndarray]


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
    number of rows read so far.
    """
    m = n_candidates
    height = max(256, min(8192, _PANEL_ELEMENTS // max(m, 1)))
    panel = np.empty((height, m), dtype=np.float32 if single else np.float64)
    G = np.zeros((m, m), order="F")
    A = np.zeros((m, *V.shape[1:]))
    filled = 0

    def flush(rows: int) -> None:
        nonlocal G
        columns = panel[:rows].T  # column-contiguous: no copy on the way to BLAS
        if single:
            G += ssyrk(1.0, columns, lower=True)
        else:
            G = dsyrk(1.0, columns, beta=1.0, c=G, lower=True, overwrite_c=True)

    done = 0
    for rows, block in blocks:
        block = to_numpy(block)
        A += block.T @ V[rows]
        start = 0
        while start < len(block):
            taken = min(height - filled, len(block) - start)
            target, part = panel[filled : filled + taken], block[start : start + taken]
            if shift is None:
                target[...] = part
            else:
                first = rows.start + start
                np.multiply.outer(shift[0][first : first + taken], shift[1], out=target)
                np.subtract(part, target, out=target, casting="same_kind")
            filled, start = filled + taken, start + taken
            if filled == height:
                flush(filled)
                filled = 0
        done += len(block)
        if report is not None:
            report(done)
    flush(filled)
    G += np.tril(G, -1).T
    return G, A
