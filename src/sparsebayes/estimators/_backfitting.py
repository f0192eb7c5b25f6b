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
from ._estimator import SparseEstimator, is_linear, refuse
from ._sklearn import Number, words

CONSTRAINTS: dict[str, Any] = {
    "prior": [words(*PRIORS)],
    "inclusion_prior": [None, words("auto", "learn"), Number(0, 1)],
    "variant": [words("factorised", "fake-targets")],
    "variance": [words("exact", "factorised")],
    "inner": [words("cg", "gauss-seidel")],
}
EXACT_LIMIT = 1000  # columns that may have an exact posterior


class BackfittingEstimator(SparseEstimator):
    """Base of the two estimators. A sparse X stays sparse where its columns are candidates.

    Parameters
    ----------
    kernel : str, callable or None
        None uses the columns of X. A kernel (``"rbf"``, ``"matern12"``, ``"matern32"``,
        ``"matern52"``, ``"rq"``, any name or callable that
        ``sklearn.metrics.pairwise.pairwise_kernels`` accepts, or ``"precomputed"``) gives the
        backfitting relevance vector machine.
    gamma : {"scale", "median", "evidence", "ard"}, float or array
        Kernel coefficient, as in `RVMRegressor`.
    prior : {"ard", "ridge", "none"}
        ``"ard"`` has one precision per weight and removes most columns, ``"ridge"`` has one for all
        weights, and ``"none"`` has no penalty.
    inclusion_prior : {"auto", "learn"}, None or float
        With ``prior="ard"``, the prior probability that a column or a smoother is in the model.
        With ``"learn"`` it is unknown, and the next column after k of m must gain
        log((m - k)/(k + 1)) nats, which keeps out the best of many noise columns. None is the flat
        prior of the relevance vector machine. ``"auto"`` is ``"learn"`` for columns and
        smoothers, and None for kernels.
    variance : {"exact", "factorised"}
        Posterior of the remaining weights. ``"exact"`` applies if at most 1,000 remain (or as many
        as fit `cache_size`). ``"factorised"`` treats the weights as independent, which makes
        variances of correlated columns too small. `variance_` is the one that was used.
    inner : {"cg", "gauss-seidel"}
        Method that computes the posterior means at given precisions: conjugate gradients or
        Gauss-Seidel sweeps.
    tol : float
        Tolerance in nats: the fit has converged when a step (a cycle over the columns) gains less.
    cache_size : float
        Memory in megabytes for kernel columns and for the exact posterior.

    Attributes
    ----------
    variance_ : {"exact", "factorised"}
        Form of the posterior variance that was used.
    bound_ : array, or list of arrays (one per class)
        Lower bound of the log evidence (plus the log prior of the set of columns) after each step.
        It never decreases.
    """

    prior: str
    inclusion_prior: Any
    inner: str

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.kernel is None:
            refuse(self, ("gamma", "degree", "coef0"), "requires a kernel, but kernel=None.")
        if self.prior != "ard" and self.inclusion_prior is not None:
            refuse(self, ("inclusion_prior",), f"requires prior='ard', got prior={self.prior!r}.")

    def _keeps_sparse(self) -> bool:
        return is_linear(self)


def prior_inclusion(model: BackfittingEstimator) -> Any:
    """Return the prior of a column to be in the model, as the solver takes it."""
    if model.prior != "ard":
        return None
    if is_option(model.inclusion_prior, "auto"):
        return "learn" if model.kernel is None else None
    return model.inclusion_prior


def exact_limit(cache_size: float) -> int:
    """Return how many columns may have an exact posterior, which takes two square arrays."""
    return int(min(EXACT_LIMIT, np.sqrt(1e6 * cache_size / 16.0)))


def column_design(X: Any, one_scale: bool = False) -> Design:
    """Return the columns of X, sparse or not, each in a scale of its own or all in one.

    With one precision for all weights they have one scale, so that it is in the user's units.
    """
    size = abs(X).max(axis=0).toarray().ravel() if issparse(X) else column_sizes(X)
    if one_scale:
        size = np.full(len(size), np.max(size))
    indices = np.arange(X.shape[1])
    if not issparse(X):
        return dense_design(X, indices, size)
    scale = 1.0 / power_of_two(size)
    thin = csc_array(X, dtype=np.float64, copy=True)
    thin.data *= np.repeat(scale, np.diff(thin.indptr))
    return SparseDesign(thin, indices, scale)


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
            f"smoothers has {len(pairs)} entries, but X has {n_features} columns. Pass one "
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
                f"smoothers[{m}] has the column indices {columns.tolist()}, but they must lie "
                f"between 0 and {n_features - 1}."
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
                f"{smoother!r} does not support sample_weight. Fit without sample_weight, or "
                "use another smoother."
            )


def _regressors(smoothers: Any) -> list[Any]:
    entries = smoothers if isinstance(smoothers, list | tuple) else [smoothers]
    return [entry[0] if isinstance(entry, tuple) else entry for entry in entries]
