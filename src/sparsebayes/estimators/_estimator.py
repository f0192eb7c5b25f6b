"""The base of regressors and classifiers: parameters, capabilities, and rows that are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from inspect import signature
from math import isfinite
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state

from .._array import RandomState
from .._warn import Found, UnlikeRows, block_of_rows
from ..callbacks import Budget, Reporter
from ..data import is_list_of_arrays
from ..designs import Design
from ..kernels import GammaOption, KernelName, KernelSpec, is_option
from ..rows import row_slices
from ._sklearn import (
    CallbackSupportMixin,
    Number,
    Whole,
    check_is_fitted,
    feature_names,
    on_a_device,
    validate_data,
    warn,
)
from ._summary import Summary

_SPARSE_ROWS = 4096  # of a sparse X that are made dense at once
_DENSE = 200.0  # megabytes of a sparse X made dense, if there is no cache_size
_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


@dataclass(frozen=True)
class Capabilities:
    """Capabilities of an estimator with the right parameters; `check_capabilities` reads them.

    Attributes
    ----------
    blocks : bool
        Whether it fits rows that are read in blocks: lists and iterators of arrays, memory maps.
    device : bool
        Whether it fits rows on a device.
    selects : bool
        Whether it selects functions one by one, each with a precision of its own, so that folds
        must select again to measure the optimism of the selection.
    limits_runs : bool
        Whether `max_time` limits the number of its runs instead of the time of the whole fit.
    frees_intercept : bool
        Whether the constant of a kernel model is free from the first step of its search, so that it
        may run away from the target.
    """

    blocks: bool = False
    device: bool = False
    selects: bool = False
    limits_runs: bool = False
    frees_intercept: bool = False


def check_capabilities(model: SparseEstimator, X: Any) -> None:
    """Raise an error if this estimator cannot read X."""
    can = model.capabilities
    if on_a_device(X) and not can.device:
        where = f"on {X.device}"
        instead = (
            "give X.cpu(), or use SparseGPRegressor, ForwardRegressor, RVMRegressor or "
            "OrthogonalLeastSquaresRegressor"
        )
    elif (isinstance(X, Iterator) or is_list_of_arrays(X)) and not can.blocks:
        where = "in blocks of rows"
        instead = (
            "join the blocks with np.vstack, or use SparseGPRegressor, ForwardRegressor, "
            "RVMRegressor, OrthogonalLeastSquaresRegressor or BackfittingRegressor"
        )
    else:
        return
    raise ValueError(f"X is given {where}, but {type(model).__name__} cannot fit that: {instead}.")


class SparseEstimator(CallbackSupportMixin, Summary):
    """Base of the estimators whose candidates are kernel functions or columns.

    The parameters that stand here have these values in estimators that do not offer them.
    Descriptions that estimators share are here and in the other base classes; see `_descriptions`.

    Parameters
    ----------
    kernel : str or callable
        ``"rbf"``, ``"matern12"``, ``"matern32"``, ``"matern52"``, ``"rq"``; ``"laplacian"``
        (``exp(-sum_j gamma_j |x_j - z_j|)``, for steps along single inputs) and ``"sum"`` (matern52
        plus laplacian, each with its own length scales); ``"auto"`` (the one of rbf, matern52 and
        matern32 with the highest evidence, or the sum if its leave-one-out predictions are better);
        or any name or callable that ``sklearn.metrics.pairwise.pairwise_kernels`` accepts.
    gamma : {"auto", "ard", "evidence", "scale", "median"}, float or array
        Kernel coefficient: ``"rbf"``, ``"rq"`` and the Matern kernels are functions of
        ``gamma |x - z|^2``, as in ``exp(-gamma |x - z|^2)``. A large gamma is a narrow kernel.
        ``"ard"`` learns one gamma per input, ``"evidence"`` a single gamma for all standardised
        inputs; both maximise the evidence. ``"auto"`` is the one of these two that predicts better
        (``"scale"`` for kernels whose gamma cannot be learnt). ``"scale"`` is 1 / (n_features *
        X.var()), ``"median"`` 1 / (2 m^2) with m the median distance between rows. An array has one
        value per input; for ``kernel="sum"`` it has two rows, one for the matern52 (smooth) and one
        for the laplacian (rough) part.
    degree : float
        Degree of the polynomial kernel.
    coef0 : float
        Constant of the polynomial and sigmoid kernels.
    warp : {"auto", True, False}
        Append normal scores of the inputs (ranks mapped to quantiles of the normal distribution) as
        further inputs of the kernel, with their own length scales. ``"auto"`` does so for skewed or
        heavy-tailed inputs, and with 100 rows for each input for all that are far from normal. True
        does so for all inputs with ten or more distinct values. Normal scores require learnt length
        scales (a gamma of ``"auto"``, ``"ard"`` or ``"evidence"``).
    fit_intercept : bool
        Add a constant. Its prior is flat, and predictions include its uncertainty.
    max_iter : int
        Maximum number of steps.
    warm_start : bool
        Start from the functions and precisions of the previous fit. Functions whose rows are not in
        X are replaced by the nearest candidates.
    cache_size : float
        Memory in megabytes for kernel columns, which are recomputed if they do not fit, and for a
        sparse X that has to be converted to a dense array.
    max_time : float or None
        Time limit in seconds. The fit then ends with the model reached so far and a
        ConvergenceWarning.
    verbose : int
        1 prints progress about once a second, 2 at every step. A part of the fit without steps that
        takes long is named with the seconds so far.

    Attributes
    ----------
    active_ : array of int
        Indices of the training rows (kernel models) or columns of X whose functions are in the
        model.
    relevance_vectors_ : array of shape (n_active, n_features)
        Training rows on which the kernel functions are centred; kernel models only.
    kernel_ : str or callable
        Kernel, as given or as chosen.
    gamma_ : float or array
        Kernel coefficient, as given or as learnt.
    feature_relevance_ : array of shape (n_features,)
        Total Sobol index of each input: the share of the variance of the fitted function over the
        training rows that is due to the input and its interactions. The sum can exceed 1. Not
        available for precomputed kernels.
    rough_share_ : float
        Share of the rough (laplacian) part in the variance of the kernel, if ``kernel_ == "sum"``.
        `gamma_` then has one row for the smooth and one for the rough part.
    kernel_search_ : dict of arrays
        Kernels that were compared, if length scales were learnt: ``kernel``; ``one_width``, whether
        all inputs share one length scale; ``process_evidence``, the log evidence of the Gaussian
        process of the standardised target; and ``loo_score``, the mean leave-one-out log density
        minus a penalty for the number of length scales (NaN if it was not needed).
    weight_precision_ : array
        Prior precision of each weight.
    healing_ : Healing or None
        Variance that is added away from the training rows, with ``heal=True``.
    history_ : dict of arrays
        One entry per step.
    n_iter_ : int
        Number of steps.
    converged_ : bool
        False if the fit ended before it had converged, for example by `max_time`; see
        `stop_reason_`.
    stop_reason_ : str
        Code of the reason why the fit ended, such as ``"converged"``, ``"max_iter"`` or
        ``"time_limit"``.
    basis_
        Basis functions of the model.
    posterior_
        Posterior distribution of the weights of `basis_`.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "tol": [Number(0, None, "right")],
        "cache_size": [Number(0, None, "both")],
        "max_iter": [Whole(1)],
        "max_time": [None, Number(0, None, "right")],
        "n_jobs": [None, Whole(1), Whole(right=-1)],
        "coef0": [Number(None)],
        "degree": [Number(0, None, "left")],
        "fit_intercept": ["boolean"],
        "heal": ["boolean"],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "warm_start": ["boolean"],
    }
    capabilities: ClassVar[Capabilities] = Capabilities()

    kernel: KernelName | None = None
    gamma: GammaOption = "scale"
    degree: float = 3
    coef0: float = 0.0
    warp: Any = False
    smoothers: Any = None
    fit_intercept: bool
    cache_size: float = 200.0
    random_state: RandomState = 0
    warm_start: bool = False
    max_time: float | None = None
    n_features_in_: int

    _extrapolation_risk = "its intervals may be too narrow"
    _fitted: Any = None

    def _check_parameters(self) -> None:
        """Raise for parameters that no data could make right; more where they do not combine."""
        self._validate_params()
        if callable(self.kernel):
            names = [n for n in ("gamma", "degree", "coef0") if n in self.get_params()]
            refuse(self, names, "applies to named kernels only; a callable has its own parameters.")

    def _keeps_sparse(self) -> bool:
        """Return whether a sparse X is used as it is, instead of being made dense."""
        return False

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = is_option(self.kernel, "precomputed")
        tags.input_tags.sparse = True
        return tags


# Parameters.


def kernel_spec(model: SparseEstimator) -> KernelSpec:
    """Return the kernel parameters of the user; inputs are mapped only where widths are learnt."""
    spec = KernelSpec(model.kernel, model.gamma, model.degree, model.coef0, model.warp)
    return spec if spec.learns else replace(spec, warp=False)


def reporter(model: SparseEstimator) -> Reporter:
    """Return how a fit reaches the user, with the time that it may take from now on."""
    return Reporter(model, Budget(None if model.capabilities.limits_runs else model.max_time))


def is_linear(model: SparseEstimator) -> bool:
    """Return whether the model is a weighted sum of the columns of X."""
    return model.kernel is None and model.smoothers is None


def seed_of(random_state: RandomState) -> int:
    """Return the seed of every random draw of a fit."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def default_of(model: BaseEstimator, name: str) -> Any:
    """Return the default value of a parameter."""
    return signature(type(model).__init__).parameters[name].default


def refuse(model: BaseEstimator, names: Iterable[str], why: str) -> None:
    """Raise if one of these parameters was set although the others leave it no part to play."""
    parameters = model.get_params(deep=False)
    for name in names:
        value = parameters[name]
        if not (np.ndim(value) == 0 and value == default_of(model, name)):
            raise ValueError(f"{name}={value!r} {why}")


# Rows.


def read_rows(model: SparseEstimator, X: Any, y: Any, **checks: Any) -> tuple[Any, Any]:
    """X and y of a fit, checked by scikit-learn; a sparse X is made dense if it may be."""
    checks = {"dtype": [np.float64, np.float32], "ensure_min_samples": 2, **checks}
    check_capabilities(model, X)
    X, y = validate_data(model, X, y, accept_sparse="csr", **checks)
    if checks.get("y_numeric"):
        y = np.asarray(y, dtype=np.float64)  # scikit-learn leaves arrays of numeric strings alone
    if not issparse(X) or model._keeps_sparse():
        return X, y
    megabytes = 8e-6 * X.shape[0] * X.shape[1]
    limit = model.get_params().get("cache_size", _DENSE)
    if megabytes > limit:
        own = "cache_size" in model.get_params()
        raise ValueError(
            f"A sparse X of {X.shape[0]} x {X.shape[1]} has to be converted to a dense array "
            f"of {megabytes:.0f} MB, more than {'cache_size=' if own else ''}{limit:g} MB. "
            f"{'Raise cache_size, or reduce' if own else 'Reduce'} X first, for example with "
            "TruncatedSVD, or use BackfittingRegressor or BackfittingClassifier, which keep "
            "X sparse."
        )
    return X.toarray(), y


def check_fitted(model: SparseEstimator) -> None:
    """Raise where a model has not been fitted; what scikit-learn does takes as long as a row."""
    if model._fitted is None:
        check_is_fitted(model)


def checked_rows(model: SparseEstimator, X: Any) -> Any:
    """Return new rows of X as the model was fitted to them; a sparse X stays sparse."""
    if _is_plain(model, X):
        return X
    return validate_data(model, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)


def _is_plain(model: SparseEstimator, X: Any) -> bool:
    """Return whether scikit-learn would give these rows back as they are.

    Its checks of one row take as long as the prediction.
    """
    if type(X) is not np.ndarray or X.ndim != 2 or X.dtype not in _FLOATS or len(X) == 0:
        return False
    if X.shape[1] != model.n_features_in_ or feature_names(model) is not None:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return isfinite(X.sum())


def dense_rows(model: SparseEstimator, X: Any, rows: Any = slice(None)) -> Any:
    """Return some rows of what `checked_rows` gave, as the functions of the model take them."""
    block = X[rows]
    return block.toarray() if issparse(X) and not model._keeps_sparse() else block


class RowCheck:
    """Looks for new rows that are unlike the training rows, and warns of all of them at once.

    Parameters
    ----------
    model : estimator
        The fitted model that predicts the rows.
    """

    def __init__(self, model: SparseEstimator) -> None:
        self.model, self.n_rows = model, 0
        self.found: dict[type[UnlikeRows], Found] = {}

    def add(self, X: Any) -> None:
        """Look at further rows, as `checked_rows` gives them."""
        input_range = self.model._fitted.input_range
        if input_range is None:
            return
        blocks: Any = (X,)
        if issparse(X):
            slices = row_slices(X.shape[0], _SPARSE_ROWS)
            blocks = (dense_rows(self.model, X, rows) for rows in slices)
        for block in blocks:
            for kind, new in input_range.find(block):
                first = self.found.get(kind, new._replace(n_rows=0, row=self.n_rows + new.row))
                self.found[kind] = first._replace(n_rows=first.n_rows + new.n_rows)
            self.n_rows += block.shape[0]

    def warn(self) -> None:
        """Warn of what was found, once for each kind."""
        for kind, found in self.found.items():
            name = _input_name(self.model, found.column)
            warn(kind(found, self.n_rows, name, self.model._extrapolation_risk))


def warn_outside(model: SparseEstimator, X: Any) -> None:
    """Warn of rows whose inputs are unlike those of the training rows."""
    check = RowCheck(model)
    check.add(X)
    check.warn()


def _input_name(model: SparseEstimator, column: int) -> str:
    """Return the name of an input, for warnings."""
    names = feature_names(model)
    return f"input {column}" if names is None else repr(names[column])


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
            f"{centres.shape[1]}. Use warm_start=False or a new estimator."
        )
    from sklearn.metrics import pairwise_distances_argmin

    none = np.empty(0, dtype=np.intp)
    return pairwise_distances_argmin(former, centres) if len(former) else none


def check_full_model(model: SparseEstimator, design: Design) -> None:
    """Refuse ``algorithm="em"`` where its arrays do not fit into `cache_size`."""
    m = design.n_candidates
    megabytes = 16e-6 * m * m
    if megabytes > model.cache_size:
        raise ValueError(
            f"algorithm='em' stores two {m} x {m} arrays ({megabytes:.0f} MB), more than "
            f"cache_size={model.cache_size} MB. Raise cache_size, or use algorithm='auto' or "
            "'fast'."
        )


# Predictions: their type, and those of Dask arrays, block by block.


def predict_blocks(model: Any, X: Any, return_std: bool | str) -> Any:
    """Mean, or mean and standard deviation, as Dask arrays that are computed lazily."""
    options = {"return_std": return_std} if return_std else {}
    both = apply_blocks(Apply(model, "predict", options), X, 1 + bool(return_std), float_type(X))
    return (both[:, 0], both[:, 1]) if return_std else both[:, 0]


def apply_blocks(apply: Apply, X: Any, width: int, dtype: Any) -> Any:
    """Return the results of a method for each block of rows, `width` values per row."""
    from ..rows.dask import map_rows

    model = apply.model
    nameless = copy(model)
    vars(nameless).pop("feature_names_in_", None)  # blocks are arrays; names were checked before
    apply = replace(apply, model=nameless, names=feature_names(model))
    if X.ndim != 2 or X.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has shape {X.shape}, but {type(model).__name__} was fitted with "
            f"{model.n_features_in_} features."
        )
    return map_rows(apply, X, width, dtype)


def is_single(X: object) -> bool:
    """Return whether X holds numbers in float32."""
    return bool(getattr(X, "dtype", None) == np.float32)


def float_type(X: object) -> type[np.floating]:
    """Return the type of predictions: float32 where X is."""
    return np.float32 if is_single(X) else np.float64


_ROUNDED = 0.1  # rounding of predictions, over the standard deviation of the noise


def as_float(dtype: Any, *arrays: np.ndarray, noise_std: float = np.inf) -> Any:
    """Return one array or several in this type, or in float64 where it cannot hold one of them.

    Numbers that are large beside the noise, such as dates in seconds, have too few digits in
    float32 to tell the ends of an interval apart.
    """
    for array in arrays if dtype != np.float64 else ():
        info, size = np.finfo(dtype), np.max(np.abs(array), initial=0.0)
        if size > info.max or 0.0 < size < info.tiny or size * info.eps > _ROUNDED * noise_std:
            dtype = np.float64
    out = tuple(array.astype(dtype, copy=False) for array in arrays)
    return out if len(out) > 1 else out[0]


@dataclass(frozen=True)
class Apply:
    """A method of a model, its results as columns; `names` are those of the inputs."""

    model: Any
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    names: Any = None

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Return the result for one block of rows."""
        with block_of_rows(self.names):
            result = getattr(self.model, self.method)(X, **self.options)
        return np.column_stack(result if isinstance(result, tuple) else [result])
