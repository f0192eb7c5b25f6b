"""Shared parts of the two backfitting estimators: sparse columns, and the choice of the method."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csc_array, issparse
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from ..designs import Design
from ..designs.candidates import column_sizes, dense_design, power_of_two
from ..designs.sparse import SparseDesign
from ..kernels import is_option
from ..solvers.backfitting.regression import PRIORS
from ._estimator import SparseEstimator
from ._sklearn import Number, words

CONSTRAINTS: dict[str, Any] = {
    "prior": [words(*PRIORS)],
    "inclusion_prior": [None, words("auto", "learn"), Number(0, 1)],
    "variant": [words("factorised", "fake-targets")],
    "variance": [words("exact", "factorised")],
    "inner": [words("cg", "gauss-seidel")],
    "precision_update": [words("bound", "mackay")],
}
EXACT_LIMIT = 1000  # columns that may have an exact posterior


class BackfittingColumns(SparseEstimator):
    """Columns of X, sparse or not, each in a scale of its own unless one prior serves them all."""

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.kernel is None:
            self._refuse(("gamma", "degree", "coef0"), "is for kernels: name one, not kernel=None.")
        if self.prior != "ard":
            self._refuse(("precision_update",), f"is for prior='ard', not prior={self.prior!r}.")
            if self.inclusion_prior is not None:
                self._refuse(("inclusion_prior",), f"is for prior='ard', not {self.prior!r}.")

    def _inclusion(self) -> Any:
        if self.prior != "ard":
            return None
        if is_option(self.inclusion_prior, "auto"):
            return "learn" if self.kernel is None else None
        return self.inclusion_prior

    def _exact_limit(self) -> int:
        """No more than fit, twice, into `cache_size`."""
        return int(min(EXACT_LIMIT, np.sqrt(1e6 * self.cache_size / 16.0)))

    def _rank(self, design: Design) -> int | None:
        """Dimensions that hold nearly all of the kernel functions."""
        if self.kernel is None or self.inner != "cg":
            return None
        return max(200, int(8.0 * np.sqrt(design.n_rows)))

    def _columns(self, X: Any) -> Design:
        size = abs(X).max(axis=0).toarray().ravel() if issparse(X) else column_sizes(X)
        if self.prior == "ridge":  # one precision for all weights, in the units of the user
            size = np.full(len(size), np.max(size))
        indices = np.arange(X.shape[1])
        if not issparse(X):
            return dense_design(X, indices, size)
        scale = 1.0 / power_of_two(size)
        thin = csc_array(X, dtype=np.float64, copy=True)
        thin.data *= np.repeat(scale, np.diff(thin.indptr))
        return SparseDesign(thin, indices, scale)

    def _keeps_sparse(self) -> bool:
        return self.kernel is None and getattr(self, "smoothers", None) is None


# From the `smoothers` of a user to components: a regressor and the columns that it sees.


def n_components(smoothers: Any, n_features: int) -> int:
    """How many components there are: one per entry of a list, else one per column."""
    return len(smoothers) if isinstance(smoothers, list | tuple) else n_features


def components(smoothers: Any, n_features: int, seed: int) -> list[tuple[Any, np.ndarray]]:
    """Unfitted regressors with their columns; those that draw get `seed`, to be the same always."""
    given = smoothers if isinstance(smoothers, list | tuple) else [smoothers] * n_features
    pairs = [entry if isinstance(entry, tuple) else (entry, None) for entry in given]
    if any(columns is None for _, columns in pairs) and len(pairs) != n_features:
        raise ValueError(
            f"smoothers has {len(pairs)} entries, but X has {n_features} columns: give one "
            "regressor per column, or pairs (regressor, columns)."
        )
    parts = []
    for m, (smoother, columns) in enumerate(pairs):
        if not (hasattr(smoother, "fit") and hasattr(smoother, "predict")):
            raise ValueError(
                f"smoothers[{m}] must be a regressor with fit and predict, got {smoother!r}."
            )
        columns = np.atleast_1d([m] if columns is None else columns)
        if columns.dtype.kind not in "iu" or np.any(columns < 0) or np.any(columns >= n_features):
            raise ValueError(
                f"smoothers[{m}] names the columns {columns.tolist()}: use numbers from 0 to "
                f"{n_features - 1}."
            )
        smoother = clone(smoother)
        settings = smoother.get_params()
        draws = [k for k in settings if k.endswith("random_state") and settings[k] is None]
        parts.append((smoother.set_params(**dict.fromkeys(draws, seed)), columns))
    return parts


def take_weights(smoothers: Any) -> bool:
    """Tell whether all smoothers take sample weights."""
    return all(has_fit_parameter(s, "sample_weight") for s in _regressors(smoothers))


def check_weights_are_taken(smoothers: Any) -> None:
    """Refuse sample weights that a smoother would not see."""
    for smoother in _regressors(smoothers):
        if not has_fit_parameter(smoother, "sample_weight"):
            raise ValueError(
                f"{smoother!r} takes no sample_weight, so this model has to be fitted without."
            )


def _regressors(smoothers: Any) -> list[Any]:
    entries = smoothers if isinstance(smoothers, list | tuple) else [smoothers]
    return [entry[0] if isinstance(entry, tuple) else entry for entry in entries]
