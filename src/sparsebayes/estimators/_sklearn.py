"""Parts that depend on scikit-learn's version or private names; fits, weights and warnings.

Every estimator takes its sample weights through `check_sample_weight`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from functools import wraps
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from sklearn import config_context, get_config
from sklearn.utils._array_api import device, get_namespace
from sklearn.utils._param_validation import HasMethods, Interval, Options, StrOptions
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    check_is_fitted,
)
from sklearn.utils.validation import validate_data as _validate_data

from .._array import is_torch
from .._warn import SmallWeights, warn
from ..callbacks import INTERRUPT, PULSE
from ..rows import is_dask, is_dask_frame
from ..rows.executors import few_blas_threads

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

Model = TypeVar("Model")
Method = TypeVar("Method", bound=Callable)

try:  # scikit-learn >= 1.9
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # pragma: no cover

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in where scikit-learn has no callbacks."""

    def with_callbacks(method: Method) -> Method:
        """Leave the method as it is."""
        return method


# Rows up to which a fit keeps BLAS to one thread. Its matrices are small and its calls many: on two
# idle cores two threads took .9 to 7 times as long at 300 to 20,000 rows, and 25 times where other
# work held a core.
_FEW_ROWS = 5000
# Threads where the rows are on a device and small matrices are left: RVM of 10^5 rows beside an
# H200, 16 threads 34 s, 4 threads 3 s, one thread 6 s.
_BESIDE_DEVICE = 4
# Mean weight below which a fit warns. Counts are at least 1, and weights that are drawn evenly from
# 0 to 1 have a mean of .5; R² on diabetes falls from .59 to .45 where the mean is .07.
_SMALL_WEIGHT = 0.1
# Names of the warnings that the outermost fit has issued; None outside of a fit.
_ISSUED: ContextVar[set[str] | None] = ContextVar("issued", default=None)


class Number(Interval):
    """A number between `left` and `right`, for `_parameter_constraints`; True is no number here."""

    def __init__(self, left: float | None, right: float | None = None, closed: str = "neither"):
        super().__init__(Real, left, right, closed=closed)

    def is_satisfied_by(self, val: object) -> bool:
        """Return whether `val` is such a number."""
        return not isinstance(val, bool) and super().is_satisfied_by(val)


class Whole(Number):
    """A whole number, from `left` on or up to `right`; a float may hold it."""

    def __init__(self, left: float = -np.inf, right: float | None = None) -> None:
        super().__init__(left, right, "left" if right is None else "both")

    def is_satisfied_by(self, val: object) -> bool:
        """Return whether `val` is such a number."""
        return super().is_satisfied_by(val) and int(cast(float, val)) == val

    def __str__(self) -> str:
        if self.right is not None:
            return f"an integer <= {self.right}"
        return "a whole number" if self.left == -np.inf else f"an integer >= {self.left}"


class Words(StrOptions):
    """One of several strings, for `_parameter_constraints`; `advice` is part of the message."""

    def __init__(self, options: set[str], advice: str = "") -> None:
        super().__init__(options)
        self.advice = advice

    def __str__(self) -> str:
        return super().__str__() + self.advice


def words(*options: str, advice: str = "") -> Words:
    """Return the constraint to one of these strings, with advice on other wishes."""
    return Words(set(options), advice)


def validate_data(model: BaseEstimator, *given: Any, **checks: Any) -> Any:
    """Return rows, or rows and targets, checked by scikit-learn, with advice on tables."""
    try:
        return _validate_data(model, *given, **checks)
    except ValueError as error:
        message = str(error)
        if "Input X contains NaN" not in message and "could not convert string" not in message:
            raise
        raise ValueError(
            f"{message.splitlines()[0].rstrip('.')}. {type(model).__name__} requires numeric "
            "X without missing values. Use sparsebayes.table_model, which accepts missing "
            "values, text and dates, or impute (sklearn.impute) and encode (OneHotEncoder) "
            "the columns first."
        ) from None


def check_target(model: BaseEstimator, y: object, numeric: bool) -> None:
    """Raise where y is a name in place of values, or text where numbers are needed."""
    if isinstance(y, str):
        raise ValueError(
            f"y is the string {y!r}. Pass the values of the target: "
            f"fit(frame.drop(columns={y!r}), frame[{y!r}])."
        )
    if not numeric or y is None or is_dask(y) or is_torch(y):
        return
    values = np.asarray(y)
    for row, value in enumerate(values.ravel() if values.dtype.kind in "OSU" else ()):
        try:
            float(value)
        except ValueError:
            raise ValueError(
                f"y has {str(value)!r} in row {row}, but {type(model).__name__} needs "
                "numbers. Convert y, or use a classifier such as RVMClassifier."
            ) from None
        except TypeError:  # not text: scikit-learn raises the error
            return


def feature_names(model: BaseEstimator) -> Sequence[str] | None:
    """Return the names of the inputs of a fit (an array of them); None where X has none."""
    return vars(model).get("feature_names_in_")


def input_attributes(model: BaseEstimator) -> dict[str, Any]:
    """Return the number and the names of the inputs of a fit, as attributes of an estimator."""
    names = feature_names(model)
    named = {} if names is None else {"feature_names_in_": names}
    return {"n_features_in_": model.n_features_in_, **named}


def reset_inputs(model: BaseEstimator, X: object) -> None:
    """Set the number of inputs of a fit to X, which is not an array, and no names of inputs."""
    _check_feature_names(model, X, reset=True)
    _check_n_features(model, X, reset=True)


def whole_fit(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make of `fit` one that succeeds as a whole: a fit that fails leaves the model as it was.

    A copy is fitted, with scikit-learn's callbacks around it, and the model takes over its
    attributes when it is done. Dask DataFrames and Series reach the method as Dask arrays. A fit of
    few rows has BLAS on one thread, of rows on a device on four at most.
    """
    fit_copy = with_callbacks(_outermost(method))

    @wraps(method)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        copy = plain_copy(self)
        arrays = [_as_numpy(array_of_frame(given)) for given in args]
        named = {name: _as_numpy(array_of_frame(kwargs[name])) for name in kwargs}
        X = args[0] if args else kwargs.get("X")
        threads: AbstractContextManager = nullcontext()
        if _n_rows(X) <= _FEW_ROWS:
            threads = few_blas_threads()
        elif on_a_device(X) or vars(self).get("device"):
            threads = few_blas_threads(_BESIDE_DEVICE)
        # Workers of a fit in several processes get Ctrl-C as well, and end in their own way.
        alone = vars(self).get("n_jobs") in (None, 1) and vars(self).get("client") is None
        pulse = PULSE.beat(type(self).__name__) if getattr(self, "verbose", 0) else nullcontext()
        with INTERRUPT.listen() if alone else nullcontext(), pulse:
            with config_context(array_api_dispatch=False), threads:
                fit_copy(copy, *arrays, **named)
            if is_dask_frame(X):
                _check_feature_names(copy, X._meta, reset=True)
            take_attributes(self, copy)
        return self

    return fit


def _outermost(method: Method) -> Method:
    """Make of `fit` one that shares `_ISSUED` with the fits inside it."""

    @wraps(method)
    def fit(*args: object, **kwargs: object) -> object:
        if _ISSUED.get() is not None:
            return method(*args, **kwargs)
        token = _ISSUED.set(set())
        try:
            return method(*args, **kwargs)
        finally:
            _ISSUED.reset(token)

    return cast(Method, fit)


def plain_copy(model: Model) -> Model:
    """Return a model with the same attributes; `copy` would leave out what is not saved."""
    copy = object.__new__(type(model))
    vars(copy).update(vars(model))
    return copy


def take_attributes(model: object, fitted: object) -> None:
    """Give a model the attributes of another, and no others."""
    for name in vars(model).keys() - vars(fitted).keys():
        delattr(model, name)
    vars(model).update(vars(fitted))


def on_a_device(X: object) -> bool:
    """Return whether X is a tensor outside of the memory of the CPU."""
    return is_torch(X) and X.device.type != "cpu"


def _n_rows(X: Any) -> float:
    """Return the number of rows, or infinity where that takes reading X."""
    if hasattr(X, "shape") and not is_dask_frame(X):
        return X.shape[0] if len(X.shape) else 0
    return len(X) if isinstance(X, list | tuple) else np.inf


def same_namespace(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method give arrays of the library of X, under scikit-learn's array API dispatch."""

    @wraps(method)
    def call(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if not get_config()["array_api_dispatch"] or isinstance(X, np.ndarray):
            return method(self, X, *args, **kwargs)
        xp, is_array_api = get_namespace(X)
        with config_context(array_api_dispatch=False):
            result = method(self, _as_numpy(X), *args, **kwargs)

        def in_namespace(array: object) -> object:
            theirs = is_array_api and isinstance(array, np.ndarray) and array.dtype.kind in "fiub"
            return xp.asarray(array, device=device(X)) if theirs else array

        if isinstance(result, tuple):
            return tuple(map(in_namespace, result))
        return in_namespace(result)

    return call


def _as_numpy(array: Any) -> Any:
    """Return an array of a library that is not supported as one of NumPy, others unchanged."""
    foreign = hasattr(array, "__array_namespace__") and not isinstance(array, np.ndarray)
    return np.asarray(array) if foreign and not (is_dask(array) or is_torch(array)) else array


def array_of_frame(X: Any, model: BaseEstimator | None = None) -> Any:
    """Return a Dask DataFrame or Series as a Dask array, and anything else unchanged.

    Its columns must be those that `model` was fitted to, where one is given; without, the lengths
    of its chunks are found, as a fit needs them.
    """
    if not is_dask_frame(X):
        return X
    if model is None:
        return X.to_dask_array(lengths=True)
    _check_feature_names(model, X._meta, reset=False)
    return X.to_dask_array()


def check_sample_weight(sample_weight: Any, X: Any) -> Any:
    """Return the weight of each row of X: how many equal rows it counts for.

    Weights that sum to two or less, whole numbers apart, cannot be counts: they are taken as
    relative importance and scaled to sum to the number of rows of positive weight, with a warning.
    Larger ones whose mean is small are counts, but a fit warns of them once. Of a Dask array X they
    are checked where they are read; only the scale is found here.
    """
    if is_dask(X):
        weight = sample_weight if is_dask(sample_weight) else np.asarray(sample_weight)
    else:
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        weight = weight.astype(np.float64)
    with np.errstate(over="ignore"):
        total = weight.sum()
    numbers = (total, weight.max(), (weight > 0).sum(), (weight == np.round(weight)).all())
    if is_dask(weight):
        from dask import compute

        numbers = compute(*numbers)
    total, largest, n_rows, are_integers = numbers
    if total == 0:
        raise ValueError("All sample weights are zero; at least two rows need a positive weight.")
    if total == np.inf:
        raise ValueError("The sum of the sample weights overflows. Scale them down.")
    if total <= 2 and not are_integers:
        warn(
            "A sample weight is the number of observations that a row stands for. These "
            f"weights sum to {total:.3g}, so they were rescaled to sum to {n_rows}, the "
            "number of rows with a positive weight. Only weights with a sum of 2 or less, to "
            "which no model can be fitted, are rescaled."
        )
        weight = weight / largest  # tiny ones too have a sum that can be divided by
        weight = weight * (n_rows / weight.sum())
        total = float(n_rows)
    elif total < _SMALL_WEIGHT * n_rows:
        _warn_of_small_weights(total, n_rows)
    if total < 2:
        raise ValueError("Only one row has a positive sample weight; a fit needs at least two.")
    return weight


def _warn_of_small_weights(total: float, n_rows: int) -> None:
    """Warn, once per fit, that the rows count as few observations."""
    issued = _ISSUED.get()
    if issued is None or "small weights" not in issued:
        warn(SmallWeights(total, n_rows))
    if issued is not None:
        issued.add("small weights")


class TransformParameter:
    """A parameter named `transform` that does not make a transformer of the estimator.

    scikit-learn takes whatever has an attribute `transform` for a transformer, and calls it. So the
    parameter is given, shown and set like any other, but read as `transform_parameter`.
    """

    @property
    def transform(self) -> object:
        """Not there, for those who ask with hasattr."""
        raise AttributeError(f"{type(self).__name__} is not a transformer; use predict.")

    @transform.setter
    def transform(self, value: object) -> None:
        vars(self)["transform"] = value

    @property
    def transform_parameter(self) -> Any:
        """Value of the parameter `transform`."""
        return vars(self)["transform"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name."""
        return {name: vars(self)[name] for name in self._get_param_names()}  # type: ignore


__all__ = [
    "CallbackSupportMixin",
    "HasMethods",
    "Number",
    "Options",
    "TransformParameter",
    "Whole",
    "array_of_frame",
    "check_is_fitted",
    "check_sample_weight",
    "check_target",
    "feature_names",
    "input_attributes",
    "on_a_device",
    "plain_copy",
    "reset_inputs",
    "same_namespace",
    "take_attributes",
    "validate_data",
    "warn",
    "whole_fit",
    "words",
]
