"""Fits of rows that are read once and not stored: `partial_fit`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.metaestimators import available_if

from ..data import Data, merge_duplicates
from ..designs.stream import Stream
from ..fitting import publish
from ..regression import with_kernel
from ._sklearn import check_sample_weight, whole_fit


def _stores_no_rows(model: Any) -> bool:
    if not model._noise_spec().one_level:
        raise AttributeError("partial_fit keeps no rows, and noise that they differ in needs them.")
    if model._needs_rows():
        raise AttributeError(f"partial_fit keeps no rows, and {model._needs_rows()}.")
    return True


class PartialFit:
    """Adds `partial_fit` to a regressor whose search needs only the triangle of its columns."""

    @available_if(_stores_no_rows)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Update the model with more rows.

        The first rows determine the candidates and the widths, as `fit` would on them. Of all rows
        a triangle is stored whose size is the number of candidates. The model is that of `fit` on
        all rows with these candidates and widths; it is searched again in every call. `fit` starts
        anew.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            More rows.
        y : array of shape (n_samples,)
            Their targets.
        sample_weight : array of shape (n_samples,), optional
            Number of observations that each row stands for.

        Returns
        -------
        self
        """
        model: Any = self
        model._check_parameters()
        return model._update(X, y, sample_weight)

    @whole_fit
    def _update(self, X: Any, y: Any, sample_weight: Any) -> Any:
        model: Any = self
        problem = model._stream
        if problem is None:
            data = model._read(X, y, sample_weight)
            problem = with_kernel(model._method(data), model._problem(data))
            columns = problem.design.uncentred
            stream = Stream.from_functions(
                columns.basis(np.arange(columns.n_candidates)),
                problem.labels,
                problem.kernel_function,
                problem.units.target,
                problem.fit_intercept,
            )
            problem = replace(problem, data=None, previous=None, stream=stream)
        X = model._check_rows(X)
        y = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64), warn=True)
        if len(y) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {len(y)} values.")
        weight = None if sample_weight is None else check_sample_weight(sample_weight, X)
        if weight is not None and model._merges_duplicates():
            # A row of weight 2 is one observation of higher precision, as in `fit`.
            weight = merge_duplicates(Data(X, y, weight)).likelihood_weight
        problem = replace(problem, stream=problem.stream.plus(X, y, weight))
        publish(self, model._solve(problem))
        model._stream = problem
        return self
