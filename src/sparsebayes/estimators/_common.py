"""What regressors and classifiers share: from rows X to candidate functions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from inspect import signature
from math import isfinite
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone, is_classifier
from sklearn.utils import check_random_state

from ..data import is_list_of_arrays
from ..designs import Design, KernelDesign
from ..designs.candidates import (  # noqa: F401
    column_sizes,
    dense_design,
    different_rows,
    is_number,
    one_scale,
    own_scales,
    power_of_two,
    safe_scale,
)
from ..kernel_choice import KernelSpec, learns_widths
from ..kernel_choice import is_option as is_text
from ..kernels import FAMILIES, STATIONARY, Kernel, make_kernel, resolve_gamma
from ..rows.executors import few_blas_threads
from ..solvers.run import StopReason
from ._sklearn import CallbackSupportMixin, Number, Whole, on_a_device, validate_data, warn
from ._summary import Summary

_INVISIBLE = 0.01  # of the largest spread of an input: 1e-4 of its share in squared distances
_JUDGED_ROWS = 3000  # up to which kernels are compared by fits; with more, few functions of many
# rows cannot interpolate noise, and the evidence says the same
_SAMPLE = 10_000  # rows that tell the spread of the inputs
_PLAIN = 2.0**20  # columns within this factor of one stay as they are
_DENSE = 200.0  # megabytes of a sparse X made dense, where no cache_size says how many
_IN_CACHE = 2**17  # numbers of a block of rows
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
    if is_text(gamma, "evidence", "ard"):
        return (
            "The learnt length scales make functions nearly equal: a larger gamma than gamma_ "
            "(where there are several, the same multiple of each) needs fewer digits."
        )
    if is_text(kernel, "precomputed"):
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

    _n_lengths = 0  # that were learnt
    _process_lam = 0.0  # noise over signal of the process they were learnt for; 0: not known
    _known_kernel: Any = None  # arguments of `keep_kernel`, where it was chosen before
    _keeps_rows: Any = False  # the model is a process of all training rows

    def _kernel_spec(self) -> KernelSpec:
        """Return the kernel parameters of the user."""
        return KernelSpec(
            self.kernel,
            getattr(self, "gamma", None),
            getattr(self, "degree", 3),
            getattr(self, "coef0", 0.0),
        )

    def _seed(self) -> int:
        """Return the seed of every random draw of a fit."""
        return int(check_random_state(getattr(self, "random_state", 0)).randint(2**31 - 1))

    def _default(self, name: str) -> Any:
        """Return the default value of a parameter."""
        return signature(type(self).__init__).parameters[name].default

    def _learns(self) -> bool:
        """Whether the widths of its functions are learnt."""
        learnt = learns_widths(getattr(self, "gamma", None))
        return learnt and is_text(self.kernel, "auto", *STATIONARY)

    def _judges(self, n_rows: int) -> bool:
        """Whether `_left_out_score` may choose between kernels on so many rows."""
        return n_rows <= _JUDGED_ROWS

    def _left_out_score(self, widths: Any, X: Any, y: Any, weight: Any) -> float:
        """How well this model with these widths predicts a row left out; NaN if not known."""
        raise NotImplementedError

    def _keep_choice(self, widths: Any, X: Any, y: Any, weight: Any) -> None:
        """Told which of the kernels that `_left_out_score` compared was chosen, and on what."""

    def _whole_model(self) -> Any:
        """A model of this kind that has all rows in memory."""
        return clone(self)

    def _trial(self, widths: Any, X: Any, y: Any, weight: Any) -> Any:
        """A copy of this model with these widths, fitted without a word."""
        trial = self._whole_model().set_params(verbose=0)
        for name in ("heal", "warm_start"):
            if hasattr(trial, name):
                trial.set_params(**{name: False})
        trial._known_kernel = (widths.family, widths.gamma, widths.share)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return trial.fit(X, y, weight)

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
        """Whether a sparse X is used as it is, instead of being made dense."""
        return False

    def _block(self, X: Any, rows: Any = slice(None)) -> Any:
        """Some rows of what `_check_rows` gave, as the functions of the model take them."""
        block = X[rows]
        return block.toarray() if issparse(X) and not self._keeps_sparse() else block

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = is_text(self.kernel, "precomputed")
        tags.input_tags.sparse = True
        return tags


def read_rows(model: Any, X: Any, y: Any, **checks: Any) -> tuple[Any, Any]:
    """X and y of a fit, checked by scikit-learn; a sparse X is made dense if it may be."""
    checks = {"dtype": [np.float64, np.float32], "ensure_min_samples": 2, **checks}
    if on_a_device(X):
        raise ValueError(
            f"X is on {X.device}, and {type(model).__name__} runs on the CPU: give X.cpu(), or use "
            "ForwardRegressor, RVMRegressor or OrthogonalLeastSquaresRegressor."
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


def make_candidates(
    model: Any, X: Any, rows: np.ndarray, columns: Any = None, choice: Any = None
) -> tuple[Design, np.ndarray, Kernel | None]:
    """The design over rows X, what its columns are in the X of the user, and the kernel.

    After `set_kernel`; `rows` are the numbers of these rows for the user. `columns(X)` is the
    design where the columns of X are the candidates (default: each in its own scale), and `choice`
    a `CandidateChoice` where not every different row carries a function.
    """
    if model.kernel is None:
        design = own_scales(X) if columns is None else columns(X)
        return design, design.indices, None
    if is_text(model.kernel, "precomputed"):
        if X.shape[1] != model.n_features_in_ or rows[-1] >= X.shape[1]:
            raise ValueError(
                f"kernel='precomputed' needs a square matrix of the training rows, got X with "
                f"{X.shape[1]} columns."
            )
        design = one_scale(X, rows)
        if choice is not None:
            design = choice.among(design)
        return design, design.indices, None
    kernel = fitted_kernel(model)
    if choice is not None:
        return *choice.functions(X, kernel, rows), kernel
    centres = different_rows(X)
    return KernelDesign(X, kernel, centres, cache_size=model.cache_size), rows[centres], kernel


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


def set_kernel(
    model: Any,
    X: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None,
    gamma: Any = None,
    device: Any = None,
) -> None:
    """Set `kernel_` and `gamma_` of a model: as it was told, or learnt from these rows.

    Where widths were learnt also `kernel_search_` and, unless they are one for all inputs on
    request, `feature_relevance_`. `y` may have several columns; for classes see `label_columns`.
    `gamma` is used in place of the model's where it is given; `device` computes kernels.
    """
    kernel = model.kernel
    if kernel is None or is_text(kernel, "precomputed"):
        keep_kernel(model, None, None)
        return
    if model._known_kernel is not None:
        keep_kernel(model, *model._known_kernel)
        return
    gamma = model.gamma if gamma is None else gamma
    check_scales(model, X)
    automatic = is_text(kernel, "auto")
    widths = automatic or is_text(kernel, *STATIONARY)
    if is_text(gamma, "auto") and not widths:
        gamma = "scale"
    learnt = learns_widths(gamma)
    if not (automatic or learnt):
        keep_kernel(model, kernel, resolve_gamma(gamma, X, weight, kernel=kernel))
        return
    if not widths:
        known = ", ".join(map(repr, STATIONARY))
        raise ValueError(
            f"gamma={gamma!r} learns the widths of kernel='auto', {known}; kernel={kernel!r} takes "
            "'scale', 'median' or a number."
        )
    from ..widths import choose_family, learn_widths, propose_widths

    random_state = check_random_state(getattr(model, "random_state", 0))
    seed = int(random_state.randint(np.iinfo(np.int32).max))
    if not learnt:
        gamma = resolve_gamma(gamma, X, weight)
        family = choose_family(X, y, gamma, sample_weight=weight, random_state=seed)
        keep_kernel(model, family, gamma)
        return
    ard = None if gamma == "auto" else gamma == "ard"
    what = {
        "family": kernel,
        "ard": ard,
        "sample_weight": weight,
        "random_state": seed,
        "device": device,
    }
    scores = np.full(1, np.nan)
    # Matrices of a few hundred rows: on two threads the search took 4.5 times as long (353 rows).
    with few_blas_threads():
        if (automatic or ard is None) and model._judges(len(X)):
            proposals = propose_widths(X, y, labels=is_classifier(model), **what)
        else:
            proposals = [learn_widths(X, y, process=model._keeps_rows, **what)]
    if len(proposals) > 1:
        scores = np.array([model._left_out_score(w, X, y, weight) for w in proposals])
    found = proposals[int(np.argmax(np.nan_to_num(scores, nan=-np.inf)))]
    if len(proposals) > 1:
        model._keep_choice(found, X, y, weight)
    keep_kernel(model, found.family, found.gamma, found.share)
    model._n_lengths, model._process_lam = found.n_lengths, float(np.min(found.lam, initial=1.0))
    model.kernel_search_ = {
        "kernel": np.array([w.family for w in proposals]),
        "one_width": np.array([w.one_width for w in proposals]),
        "process_evidence": np.array([w.log_evidence for w in proposals]),
        "left_out": scores,
    }
    if gamma != "evidence":
        model.feature_relevance_ = found.relevance


def keep_kernel(model: Any, kernel: Any, gamma: Any, share: float = 0.5) -> None:
    """Fitted attributes of a kernel, and none of an earlier one; None where there is no kernel."""
    for name in (
        "feature_relevance_",
        "kernel_search_",
        "rough_share_",
        "_n_lengths",
        "_process_lam",
    ):
        vars(model).pop(name, None)
    if kernel is None:
        return
    model.kernel_, model.gamma_ = kernel, gamma
    if is_text(kernel, "sum"):
        model.rough_share_ = share


def fitted_kernel(model: Any) -> Kernel:
    """The kernel of a model, after `set_kernel`."""
    return make_kernel(
        model.kernel_,
        gamma=model.gamma_,
        degree=model.degree,
        coef0=model.coef0,
        share=getattr(model, "rough_share_", 0.5),
    )


def check_scales(model: Any, X: np.ndarray) -> None:
    """Warn where one width is to serve inputs of very different scales; see `warn_of_scales`."""
    some = X[:: 1 + len(X) // _SAMPLE]
    some = some / power_of_two(np.max(np.abs(some)))
    warn_of_scales(model, np.std(some, axis=0), np.max(np.abs(some), axis=0))


def warn_of_scales(model: Any, spread: np.ndarray, size: np.ndarray) -> None:
    """Warn of inputs that a kernel of one width hardly sees.

    It is said where at least half of the inputs that vary have a standard deviation below 1 % of
    the largest: squared distances, and with them the kernel, hardly depend on those inputs.
    `spread` are the standard deviations and `size` the magnitudes.
    """
    name, gamma = model.kernel, model.gamma
    one_width = is_text(name, *FAMILIES, "auto", "laplacian")
    if not one_width or np.ndim(gamma) > 0 or is_text(gamma, "ard", "evidence", "auto"):
        return  # learnt widths are those of standardised inputs
    varies = spread > 1e-10 * size  # less is the rounding of a constant
    unseen = varies & (spread < _INVISIBLE * np.max(spread))
    if 2 * np.sum(unseen) < np.sum(varies) or not np.any(unseen):
        return
    largest = int(np.argmax(spread))
    names = getattr(model, "feature_names_in_", None)
    warn(
        f"{np.sum(unseen)} of {np.sum(varies)} inputs vary by less than 1 % of what input "
        f"{largest if names is None else repr(names[largest])} does, and a kernel of one width "
        "hardly sees them: bring the inputs to one scale (sklearn.preprocessing.StandardScaler), "
        "or learn a width for each (gamma='ard')."
    )


def label_columns(codes: np.ndarray) -> np.ndarray:
    """Targets that stand in for classes 0, 1, ...: -1 and 1, or a column for each class."""
    n_classes = int(codes.max()) + 1
    if n_classes == 2:
        return 2.0 * codes - 1.0
    return np.equal.outer(codes, np.arange(n_classes)).astype(np.float64)


# Predictions: their type, and those of Dask arrays, block by block.


def predict_blocks(model: Any, X: Any, return_std: bool) -> Any:
    """Mean, or mean and standard deviation, as Dask arrays that are computed when asked for."""
    options = {"return_std": True} if return_std else {}
    both = apply_blocks(Apply(model, "predict", options), X, 1 + return_std, float_type(X))
    return (both[:, 0], both[:, 1]) if return_std else both[:, 0]


def apply_blocks(apply: Apply, X: Any, width: int, dtype: Any) -> Any:
    """What a method of a model gives for each block of rows, `width` values per row."""
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
        """What one block of rows gives."""
        found = getattr(self.model, self.method)(X, **self.options)
        return np.column_stack(found if isinstance(found, tuple) else [found])
