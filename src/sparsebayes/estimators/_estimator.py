"""The base of regressors and classifiers: parameters, rows that are read, predicted blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from inspect import signature
from math import isfinite
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import is_classifier
from sklearn.utils import check_random_state

from .._array import to_numpy
from ..data import Data
from ..designs import Design
from ..kernels import KernelSpec, is_option
from ..predict import InputRange
from ..relevance import MOST_ROWS, function_relevance, linear_relevance, rows_for
from ..rows.inputs import is_list_of_arrays
from ..solvers.run import StopReason
from ._sklearn import CallbackSupportMixin, Number, Whole, on_a_device, validate_data, warn
from ._summary import Summary

_JUDGED_ROWS = 3000  # up to which kernels are compared by fits; with more, few functions of many
# rows cannot interpolate noise, and the evidence says the same
_DENSE = 200.0  # megabytes of a sparse X made dense, where no cache_size says how many
_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))

_HARDLY_ANY = 1e-5  # noise over the variance of the target: it is determined, not measured


def advice_for(model: Any, reason: StopReason, noise: float, repeated: bool) -> str:
    """Return what to do about a fit of `model` that ended for this reason.

    To `reason.advice` comes a sentence that depends on the parameters of the model: it does not
    advise what they have already. `noise` is the noise variance as a share of the variance of the
    target; `repeated` says whether there are duplicate rows.
    """
    learnt = getattr(model, "noise_variance", "learn") == "learn"
    if reason is StopReason.MAX_ITER and not learnt:
        return f"{reason.advice} A noise_variance that is far too small also has this effect."
    if reason not in (StopReason.AT_BOUND, StopReason.STALLED):
        return reason.advice
    return f"{reason.advice} {_advice_on_digits(model, noise, learnt, repeated)}"


def _advice_on_digits(model: Any, noise: float, learnt: bool, repeated: bool) -> str:
    """Return what makes the columns of a model easier to tell apart in float64."""
    if learnt and noise < _HARDLY_ANY:
        share = f"The noise variance is {noise:.0e} of the variance of the target: "
        if repeated:
            return (
                f"{share}duplicate rows count as measurements without error. Keep one of each, or "
                "give noise_variance."
            )
        return (
            f"{share}the inputs nearly determine the target. If that is unexpected, look for an "
            "input that was derived from the target and drop it; otherwise give noise_variance."
        )
    if not learnt:
        return "A larger noise_variance needs fewer digits."
    if model.kernel is None:
        return "Columns that are nearly sums of others can be dropped."
    gamma, kernel = getattr(model, "gamma", None), model.kernel
    if is_option(gamma, "evidence", "ard"):
        return (
            "The learnt length scales make functions nearly equal: a larger gamma than gamma_ "
            "(where there are several, the same multiple of each) needs fewer digits."
        )
    if is_option(kernel, "precomputed"):
        return "A kernel matrix of higher rank needs fewer digits."
    return "A narrower kernel (larger gamma) needs fewer digits."


class SparseEstimator(CallbackSupportMixin, Summary):
    """Base of the estimators whose candidates are kernel functions or columns."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "tol": [Number(0, None, "right")],
        "cache_size": [Number(0, None, "both")],
        "max_iter": [Whole(1)],
        "n_jobs": [None, Whole(1), Whole(right=-1)],
        "coef0": [Number(None)],
        "degree": [Number(0, None, "left")],
        "fit_intercept": ["boolean"],
        "heal": ["boolean"],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "warm_start": ["boolean"],
    }

    _extrapolation_risk = "its intervals may be too narrow"
    _fitted: Any

    def _kernel_spec(self) -> KernelSpec:
        """Return the kernel parameters of the user."""
        return KernelSpec(
            self.kernel,
            getattr(self, "gamma", "scale"),
            getattr(self, "degree", 3),
            getattr(self, "coef0", 0.0),
            getattr(self, "warp", False),
        )

    def _seed(self) -> int:
        """Return the seed of every random draw of a fit."""
        return int(check_random_state(getattr(self, "random_state", 0)).randint(2**31 - 1))

    def _default(self, name: str) -> Any:
        """Return the default value of a parameter."""
        return signature(type(self).__init__).parameters[name].default

    def _previous(self) -> Any:
        """Return the last fit, where the user asked to start from it."""
        if not getattr(self, "warm_start", False):
            return None
        return getattr(self, "_fitted", None)

    def _input_range(self, data: Data, fit: Any) -> InputRange | None:
        """Return the range of the training rows; None where they are not in memory."""
        if not isinstance(data.X, np.ndarray) or is_option(self.kernel, "precomputed"):
            return None
        return InputRange.from_rows(data.X[data.used], fit.kernel, fit.active)

    def _with_rows(self, data: Data, fit: Any) -> Any:
        """Return the fit with what it says about the training rows: their range, its relevance."""
        relevance = self._feature_relevance(data, fit)
        known = {} if relevance is None else {"feature_relevance_": relevance}
        return replace(
            fit,
            input_range=self._input_range(data, fit),
            attributes={**fit.attributes, **known},
        )

    def _feature_relevance(self, data: Data, fit: Any) -> np.ndarray | None:
        """Return the share of the variance of the function that each input explains."""
        if is_option(self.kernel, "precomputed"):
            return None
        used, n_features = data.used, self.n_features_in_
        linear = self.kernel is None and getattr(self, "smoothers", None) is None
        n_rows = MOST_ROWS if linear else rows_for(len(fit.active), n_features)
        if len(used) > n_rows:
            used = np.sort(np.random.default_rng(0).choice(used, n_rows, replace=False))
        X, classes = data.take(used), is_classifier(self)
        if not linear:
            rows = to_numpy(X).astype(np.float64, copy=False)
            return function_relevance(fit.values, rows, pooled=classes)
        coef = np.atleast_2d(fit.public_attributes(n_features, True)["coef_"])
        relevance, active = np.zeros(n_features), np.flatnonzero(np.any(coef != 0.0, axis=0))
        X = X[:, active]
        X = np.asarray(X.toarray() if issparse(X) else to_numpy(X), dtype=np.float64)
        relevance[active] = linear_relevance(coef[:, active], X, pooled=classes)
        return relevance

    def _warn_outside(self, X: Any) -> None:
        """Warn of rows outside the range of the training rows in an input that matters."""
        known = self._fitted.input_range
        outside = None if known is None or issparse(X) else known.outside(X)
        if known is None or outside is None:
            return
        row, j = outside
        names = getattr(self, "feature_names_in_", None)
        name = f"input {j}" if names is None else repr(names[j])
        warn(
            f"Row {row} has {X[row, j]:.6g} for {name}, outside the range of the training rows "
            f"({known.low[j]:.6g} to {known.high[j]:.6g}): the model extrapolates there, and "
            f"{self._extrapolation_risk}."
        )

    def _check_parameters(self) -> None:
        """Raise for parameters that no data could make right; more where they do not combine."""
        self._validate_params()
        if callable(getattr(self, "kernel", None)):
            names = [n for n in ("gamma", "degree", "coef0") if n in self.get_params()]
            self._refuse(names, "is for kernels by name: a callable has its own parameters.")

    def _refuse(self, names: Iterable[str], why: str) -> None:
        """Raise if one of these parameters was set although the others leave it no part to play."""
        for name in names:
            value = getattr(self, name)
            if not (np.ndim(value) == 0 and value == self._default(name)):
                raise ValueError(f"{name}={value!r} {why}")

    def _check_rows(self, X: Any) -> Any:
        """New rows of X as the model was fitted to them; a sparse X stays sparse."""
        if self._is_plain(X):
            return X
        return validate_data(
            self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False
        )

    def _is_plain(self, X: Any) -> bool:
        """Whether scikit-learn would give these rows back as they are.

        Its checks of one row take as long as the prediction.
        """
        if type(X) is not np.ndarray or X.ndim != 2 or X.dtype not in _FLOATS or len(X) == 0:
            return False
        known = vars(self)
        if X.shape[1] != known.get("n_features_in_") or "feature_names_in_" in known:
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            return isfinite(X.sum())

    def _keeps_sparse(self) -> bool:
        """Return whether a sparse X is used as it is, instead of being made dense."""
        return False

    def _block(self, X: Any, rows: Any = slice(None)) -> Any:
        """Some rows of what `_check_rows` gave, as the functions of the model take them."""
        block = X[rows]
        return block.toarray() if issparse(X) and not self._keeps_sparse() else block

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = is_option(self.kernel, "precomputed")
        tags.input_tags.sparse = True
        return tags


def read_rows(model: Any, X: Any, y: Any, **checks: Any) -> tuple[Any, Any]:
    """X and y of a fit, checked by scikit-learn; a sparse X is made dense if it may be."""
    checks = {"dtype": [np.float64, np.float32], "ensure_min_samples": 2, **checks}
    if on_a_device(X):
        raise ValueError(
            f"X is on {X.device}, and {type(model).__name__} runs on the CPU: give X.cpu(), or use "
            "SparseGPRegressor, ForwardRegressor, RVMRegressor or OrthogonalLeastSquaresRegressor."
        )
    if isinstance(X, Iterator) or is_list_of_arrays(X):
        raise ValueError(
            f"X is given in blocks of rows, and {type(model).__name__} with these parameters takes "
            "one array: join the blocks with np.vstack, or give a Dask array to the estimators "
            "that read one."
        )
    X, y = validate_data(model, X, y, accept_sparse="csr", **checks)
    if checks.get("y_numeric"):
        y = np.asarray(y, dtype=np.float64)  # scikit-learn leaves arrays of numeric strings alone
    if not issparse(X) or (isinstance(model, SparseEstimator) and model._keeps_sparse()):
        return X, y
    megabytes = 8e-6 * X.shape[0] * X.shape[1]
    limit = model.get_params().get("cache_size", _DENSE)
    if megabytes > limit:
        own = "cache_size" in model.get_params()
        raise ValueError(
            f"A sparse X of {X.shape[0]} x {X.shape[1]} is made dense to fit, which takes "
            f"{megabytes:.0f} MB, more than {'cache_size=' if own else ''}{limit:g} MB: "
            f"{'raise cache_size, or ' if own else ''}reduce X first, for example with "
            "TruncatedSVD; BackfittingRegressor and BackfittingClassifier take it as it is."
        )
    return X.toarray(), y


def nearest_candidates(
    functions: Any, active: np.ndarray, design: Design, labels: np.ndarray
) -> np.ndarray:
    """Return the candidate of each function of a former fit; -1 for columns that are not there.

    For kernel functions it is the candidate with the nearest centre.
    """
    centres = design.uncentred.basis(np.arange(design.n_candidates)).centres
    if centres is None:
        position = {label: i for i, label in enumerate(labels)}
        return np.array([position.get(j, -1) for j in active], dtype=np.intp)
    former = functions.centres
    if former.shape[1] != centres.shape[1]:
        raise ValueError(
            f"warm_start=True, but the last fit had {former.shape[1]} inputs and X has "
            f"{centres.shape[1]}: use warm_start=False or a new estimator."
        )
    from sklearn.metrics import pairwise_distances_argmin

    none = np.empty(0, dtype=np.intp)
    return pairwise_distances_argmin(former, centres) if len(former) else none


def check_full_model(model: Any, design: Design) -> None:
    """Refuse ``algorithm="em"`` where its arrays do not fit into `cache_size`."""
    m = design.n_candidates
    megabytes = 16e-6 * m * m
    if megabytes > model.cache_size:
        raise ValueError(
            f"algorithm='em' keeps two {m} x {m} arrays ({megabytes:.0f} MB), more than "
            f"cache_size={model.cache_size} MB: raise cache_size, or use 'auto' or 'fast'."
        )


# Predictions: their type, and those of Dask arrays, block by block.


def predict_blocks(model: Any, X: Any, return_std: bool) -> Any:
    """Mean, or mean and standard deviation, as Dask arrays that are computed when asked for."""
    options = {"return_std": True} if return_std else {}
    both = apply_blocks(Apply(model, "predict", options), X, 1 + return_std, float_type(X))
    return (both[:, 0], both[:, 1]) if return_std else both[:, 0]


def apply_blocks(apply: Apply, X: Any, width: int, dtype: Any) -> Any:
    """Return the results of a method for each block of rows, `width` values per row."""
    from ..rows.dask import map_rows

    model = apply.model
    nameless = copy(model)
    vars(nameless).pop("feature_names_in_", None)  # blocks are arrays; names were checked before
    apply = replace(apply, model=nameless)
    if X.ndim != 2 or X.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has shape {X.shape}, but {type(model).__name__} was fitted to "
            f"{model.n_features_in_} features."
        )
    return map_rows(apply, X, width, dtype)


def float_type(X: Any) -> Any:
    """float32 in, float32 out."""
    return np.float32 if X.dtype == np.float32 else np.float64


def as_float(dtype: Any, *arrays: np.ndarray) -> Any:
    """One array or several in this type, or in float64 where it cannot hold one of them."""
    info = np.finfo(dtype)
    for array in arrays:
        size = np.max(np.abs(array), initial=0.0)
        if size > info.max or 0.0 < size < info.tiny:
            dtype = np.float64
    out = tuple(array.astype(dtype, copy=False) for array in arrays)
    return out if len(out) > 1 else out[0]


@dataclass(frozen=True)
class Apply:
    """A method of a model, its results as columns."""

    model: Any
    method: str
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Return the result for one block of rows."""
        found = getattr(self.model, self.method)(X, **self.options)
        return np.column_stack(found if isinstance(found, tuple) else [found])
