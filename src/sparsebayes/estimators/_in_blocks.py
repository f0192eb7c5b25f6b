"""Fitting and predicting rows that are read in blocks."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils import check_array, column_or_1d

from ..designs import CentredDesign, Design, RowBlocks, WeightedDesign
from ..execution import is_dask
from ..kernels import make_kernel
from ._base import Problem, _power_of_two
from ._candidates import set_kernel
from ._sklearn import check_sample_weight
from ._subset import is_text

_SAMPLE = 10_000  # rows that the width is taken or learnt from


def as_blocks(X: Any, megabytes: float) -> RowBlocks | None:
    """X in blocks: where it says so, is a Dask array, or a memory map larger than `megabytes`.

    A list or an iterator of arrays and a function that returns one say so too.
    """
    if is_dask(X):
        from ..designs.dask import DaskRowBlocks

        return DaskRowBlocks(X)
    if isinstance(X, RowBlocks):
        return X
    blocks = isinstance(X, list | tuple) and all(np.ndim(block) == 2 for block in X[:1])
    if isinstance(X, Iterator) or (blocks and len(X)) or inspect.isroutine(X):
        return RowBlocks(X)
    if isinstance(X, np.memmap) and X.ndim == 2 and X.nbytes > megabytes * 1e6:
        return RowBlocks(X)
    return None


class _Rows:
    """Some of the rows of blocks, read when asked for."""

    def __init__(self, X: RowBlocks, rows: np.ndarray) -> None:
        self.X, self.rows = X, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, idx: np.ndarray) -> np.ndarray:
        return self.X.take(self.rows[idx])


def problem_in_blocks(model: Any, X: RowBlocks, y: Any, sample_weight: Any) -> Problem:
    """What `SparseRegressor._problem` makes of an array, of rows that stay where they are."""
    if model.kernel is None or is_text(model.kernel, "precomputed"):
        raise ValueError(
            f"Rows read in blocks need a kernel evaluated on rows, got kernel={model.kernel!r}."
        )
    n, model.n_features_in_ = X.shape
    y = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64), warn=True)
    if len(y) != n:
        raise ValueError(f"X has {n} rows in its blocks and y has {len(y)} values.")
    weight, rows = None, np.arange(n)
    if sample_weight is not None:
        weight = check_sample_weight(sample_weight, y)
        rows = np.flatnonzero(weight)  # the others have no part: no function, no width, no scale
    if is_text(model.gamma, "scale") and not is_text(model.kernel, "auto"):
        model.kernel_, model.gamma_ = model.kernel, X.scale_gamma(weight)
    else:
        sample = rows[:: -(-len(rows) // _SAMPLE)]
        set_kernel(model, X.take(sample), y[sample], None if weight is None else weight[sample])
    kernel = make_kernel(model.kernel_, gamma=model.gamma_, degree=model.degree, coef0=model.coef0)
    centres = rows[model._centres(_Rows(X, rows), kernel, rows)]
    design: Design = X.kernel_design(kernel, centres, model.cache_size)
    if weight is not None:
        design = WeightedDesign(design, weight)
    if model.fit_intercept:
        design = CentredDesign(design)
    scale = _power_of_two(np.max(np.abs(y[rows])))
    y = np.where(weight == 0.0, 0.0, y / scale) if weight is not None else y / scale
    return Problem(
        design,
        design.target(y),
        design.offset(y),
        scale,
        centres,
        np.empty((0, X.shape[1])),
        kernel,
    )
