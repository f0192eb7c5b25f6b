"""What the regressors share: from (X, y) to a design, and from a posterior to predictions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Bunch, check_array, check_random_state, column_or_1d, get_tags

from .._array import asarray_like, is_torch, namespace, to_device_of, to_numpy
from ..callbacks import Progress
from ..designs import (
    ChunkedKernelDesign,
    Design,
)
from ..designs._base import row_slices
from ..designs.kernel import block_rows
from ..kernels import Kernel
from ..posterior import (
    AddedVariance,
    BlockLowRank,
    Dense,
    Draws,
    LeaveOneOut,
    ModelAverage,
    Posterior,
)
from ..posterior.left_out import LeftOut
from ..posterior.noise import NoiseModel, Tail
from ..posterior.predictive import LocationScale, Mixture, Predictive
from ..rows import HashJob, Job, RowBlocks, Rows, SpreadJob, is_dask, row_hashes
from ..rows.device import TensorRows, find_device, rows_on
from ..solvers.run import Algorithm, Result, S, Solution, run
from ._common import (
    SparseEstimator,
    advice_for,
    as_float,
    column_sizes,
    different_rows,
    each_once,
    fitted_kernel,
    is_list_of_arrays,
    is_text,
    keep_kernel,
    make_candidates,
    own_scales,
    predict_blocks,
    read_rows,
    set_kernel,
    target_scale,
)
from ._noise import check_noise, fit_noise_and_mean, std_of
from ._predictive import PredictiveMixin
from ._sklearn import (
    Number,
    array_of_frame,
    check_is_fitted,
    check_sample_weight,
    same_namespace,
    warn,
    whole_fit,
    words,
)
from ._stream import Stream

_SAMPLE = 10_000  # rows in blocks that the width is taken or learnt from


@dataclass
class Problem:
    """A validated regression problem, ready for a solver."""

    design: Design
    t: np.ndarray  # scaled, weighted, centred
    offset: Any  # of the scaled target
    target_scale: Any  # y = target_scale * (what the solver sees)
    candidates: np.ndarray  # candidate -> row (kernels) or column (kernel=None) of X
    rows: Any  # (X, y, weight or None) as the user gave them, or `Rows` of these
    X: Any = None  # all rows, where they are in memory
    kernel: Kernel | None = None

    def in_units(self, variance: Any) -> float | None:
        """A noise variance of the user as the solver sees it; None if it is learnt."""
        if isinstance(variance, str):
            return None
        return float(variance) / self.target_scale / self.target_scale

    def reported(self, fields: dict[str, Any]) -> dict[str, Any]:
        """What steps of the solver report, in the units of the user."""
        return in_units(fields, self.target_scale, self.design.n_observations)


class SparseRegressor(PredictiveMixin, RegressorMixin, SparseEstimator):
    """Base of the regressors whose candidates are kernel functions or columns.

    A subclass gives its parameters and `_fit`, which goes from `make_problem` over `solve` to
    `keep`; it may set `_added`. What is not one level of normal noise goes around it: `_noise.py`.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseEstimator._parameter_constraints,
        "noise_variance": [words("learn"), Number(0)],
    }
    _added: AddedVariance | None = None  # variance beyond that of `posterior_`
    _left_out: LeftOut | None = None  # of `loo_`
    _stream: Stream | None = None  # of `partial_fit`
    noise_model_: NoiseModel | None = None
    noise_tail_: Tail | None = None
    calibration_: Any = 1.0
    _takes_blocks = False  # rows that stay where they are; those that do have the parameter:
    device: str | None = None
    basis_: Any
    posterior_: Posterior
    active_: np.ndarray
    noise_variance_: Any
    log_evidence_: float
    history_: dict[str, np.ndarray]

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Any:
        """Fit with one level of noise, learnt or given; the rows (X, y, weight), or `Rows`."""
        raise NotImplementedError

    def _problem(self, X: Any, y: Any, sample_weight: Any) -> Problem:
        return make_problem(self, X, y, sample_weight)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if hasattr(self, "likelihood"):
            check_noise(self)

    def _same_functions(self) -> dict[str, Any]:
        """Parameters that fit the same kind of functions again, without learning their widths."""
        if not hasattr(self, "gamma_"):
            return {}
        return {"_known_kernel": (self.kernel_, self.gamma_, getattr(self, "rough_share_", 0.5))}

    @whole_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel matrix of the training rows.
        y : array of shape (n_samples,)
            Target.
        sample_weight : array of shape (n_samples,), optional
            A row of weight v counts as v equal rows. Weights that sum to two or less are relative
            importance: they are scaled to sum to the number of rows with a positive weight. Where
            widths and noise are learnt, rows of equal inputs and targets are one observation, known
            the better the more of them there are: copies say nothing about the noise.

        Returns
        -------
        self
        """
        self._check_parameters()
        self._stream = None
        fit_noise_and_mean(self, X, y, sample_weight)
        return self

    def _left_out_score(self, widths: Any, X: Any, y: Any, weight: Any) -> float:
        """Mean log density of the standardised target at the rows, each left out, less a price.

        That of the lengths, which have seen all rows: a nat each (Akaike), and more where there are
        few rows for each, as the small-sample form of that criterion has it.
        """
        trial = self._trial(widths, X, y, weight)
        if trial._left_out is None:
            return np.nan
        mean = np.average(y, axis=0, weights=weight)
        variance = np.average((y - mean) ** 2, axis=0, weights=weight)
        density = np.average(trial._left_out_density(), weights=weight)
        rest = (len(y) if weight is None else np.sum(weight)) - widths.n_lengths - 1.0
        price = widths.n_lengths / rest if rest > 0.0 else np.inf
        return float(density + 0.5 * np.sum(np.log(variance)) - price)

    @same_namespace
    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict a new observation at each row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            A Dask array is predicted block by block when the result is computed; where the model
            can be fitted to blocks of rows, it can predict them.
        return_std : bool, default=False
            Also return the standard deviation of a new observation, noise included.
        return_cov : bool, default=False
            Also return the joint covariance of new observations, noise included.

        Returns
        -------
        mean : array of shape (n_samples,)
            float32 where X is, if it can hold the target.
        std or cov : array, where asked for
        """
        check_is_fitted(self)
        if return_std and return_cov:
            raise ValueError("Ask for one of return_std and return_cov, not for both.")
        if is_dask(X := array_of_frame(X, self)):
            if return_cov or self.posterior_.mean.ndim == 2:
                raise ValueError(
                    "A Dask array is predicted by blocks, for one target and without return_cov: "
                    "ask for return_std, or predict its blocks as NumPy arrays."
                )
            return predict_blocks(self, X, return_std)
        if return_cov and is_torch(X):
            mean, covariance = self.predict(to_numpy(X), return_cov=True)
            return asarray_like(X, mean), asarray_like(X, covariance)
        if is_torch(X) or (self.device is not None and not return_cov):
            return _predict_there(self, X, return_std)
        if self._takes_blocks and (blocks := as_blocks(X, np.inf)) is not None:
            if return_cov:
                raise ValueError("The joint covariance of rows read in blocks is not formed.")
            parts: Any = [self.predict(block, return_std) for _, block in blocks]
            if not return_std:
                return np.concatenate(parts)
            means, stds = zip(*parts, strict=True)
            return np.concatenate(means), np.concatenate(stds)
        X = self._check_rows(X)
        return self._joint(self._block(X)) if return_cov else self._predict_rows(X, return_std)

    def _joint(self, X: Any) -> Any:
        """Mean and joint covariance of new observations at checked rows."""
        Phi = self.basis_(X)
        mean, covariance = self._joint_function(X, Phi)
        covariance[np.diag_indices(len(Phi))] += self._noise(X, Phi)
        if self._added is not None:
            covariance = covariance + self._added.covariance(X)
        return as_float(X.dtype, mean, covariance)

    def _predict_rows(self, X: Any, return_std: bool) -> Any:
        """Mean, and standard deviation where asked for, of checked rows in memory."""
        outputs = self.posterior_.mean.shape[1:]
        mean = np.empty((X.shape[0], *outputs))
        variance = np.empty_like(mean)
        for rows in row_slices(X.shape[0], self._rows_at_once):
            block = self._block(X, rows)
            mean[rows], spread, Phi = self._function(block, return_std)
            if return_std:
                variance[rows] = spread + self._noise(block, Phi)
        return as_float(X.dtype, mean, *([np.sqrt(variance)] if return_std else []))

    # The function behind the observations. A model that is more than its posterior overrides these.

    @property
    def _rows_at_once(self) -> int:
        """Rows of a block of predictions."""
        return min(4096, max(64, 2**18 // max(1, len(self.basis_))))

    def _function(self, X: Any, spread: bool = True) -> tuple[Any, Any, Any]:
        """Mean and variance (None if not asked for) at rows X, and the functions there, if known.

        Without the noise; tensors of tensors.
        """
        posterior, Phi = self.posterior_, self.basis_(X)
        variance = posterior.function_variance(Phi) if spread else None
        if spread and self._added is not None:
            variance += self._added.variance(X, Phi, posterior)
        return posterior.at(Phi), variance, Phi

    def _joint_function(self, X: Any, Phi: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance at rows X, without what the model adds, and so in draws."""
        return self.posterior_.at(Phi), self.posterior_.predict_covariance(Phi, noise=False)

    def _draw_function(self, X: Any, Phi: Any, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draws at rows X, with one column a draw."""
        return self.posterior_.sample(Phi, n, rng, noise=False)

    def _runs_there(self, spread: bool) -> bool:
        """Whether `_function` and the noise can be had on a device.

        Other forms of the covariance, and what a model adds to it, are known to NumPy only.
        """
        plain = self._added is None and self.noise_model_ is None
        return not spread or (isinstance(self.posterior_.form, Dense) and plain)

    def _noise(self, X: Any, Phi: Any = None) -> Any:
        """The variance of the noise at rows X, whose functions are Phi."""
        if self.noise_model_ is None:
            return self.posterior_.noise_variance
        if is_torch(X):
            return to_device_of(X, self._noise(to_numpy(X)))
        Phi = self.basis_(X) if Phi is None else Phi
        return self.noise_model_.variance(X, Phi, self.posterior_)

    def _predictive(self, X: Any) -> Predictive:
        posterior, form = self.posterior_, self.posterior_.form
        if isinstance(form, Draws | ModelAverage):
            Phi = self.basis_(self._block(self._check_rows(X)))
            noise = posterior.noise_variance + posterior.offset_variance
            weight, apart, variance = form.components(posterior.centred(Phi))
            return Mixture(apart + posterior.at(Phi), np.sqrt(variance + noise), weight)
        mean, std = self.predict(X, return_std=True)
        if is_torch(mean):
            mean, std = to_numpy(mean), to_numpy(std)
        return LocationScale(mean, std, self.noise_tail_)

    @property
    def loo_(self) -> Any:
        """What the model says about each training row without it, at fixed hyperparameters.

        In closed form, as n fits of the weights of the same functions would give it. A row of
        weight v counts as v equal rows, and one of them is left out (all of a weight below 1; all
        of them at the first of copies that are one observation, see `fit`).

        Returns
        -------
        loo : Bunch
            ``residuals`` (target less prediction) and ``std`` (of a new observation), of shape
            (n_samples,) or (n_samples, n_outputs); ``log_density`` of each row, of shape
            (n_samples,); ``r2``, as scikit-learn's ``r2_score`` of the predictions.

        Raises
        ------
        AttributeError
            Where the posterior is not Gaussian; and of a model that was saved and loaded, or
            truncated: it keeps its few functions, and nothing as long as the training rows.
        """
        check_is_fitted(self)
        if self._left_out is None or not (self._added is None or self._added.joint):
            raise AttributeError(f"This {type(self).__name__} has no loo_: {self._no_loo()}")
        left = self._left_out
        return Bunch(
            residuals=left.residual,
            std=np.sqrt(left.variance),
            log_density=self._left_out_density(),
            r2=left.r2,
        )

    def _left_out_density(self) -> np.ndarray:
        """Log density of each row without it, its targets together."""
        left: Any = self._left_out
        there = LocationScale(np.zeros_like(left.residual), std_of(left.variance), self.noise_tail_)
        return there.log_density(left.residual).reshape(len(left.residual), -1).sum(axis=1)

    def _no_loo(self) -> str:
        if self._added is not None and not self._added.joint:
            return "with heal=True each row has a model of its own; fit with heal=False."
        if isinstance(self.posterior_.form, Dense | BlockLowRank):
            return (
                "it was loaded, truncated or fitted with partial_fit, and keeps nothing as long as "
                "the training rows then; ask a model that was fitted to them."
            )
        return (
            f"the posterior of its weights ({type(self.posterior_.form).__name__}) is not the "
            "Gaussian one of a linear model, from which a row can be taken in closed form; use "
            "sklearn.model_selection.cross_val_predict."
        )

    def __getstate__(self) -> Any:
        # A saved model is its few functions.
        return {**super().__getstate__(), "_left_out": None}

    @same_namespace
    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draw new observations from the joint predictive distribution.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            Rows to draw at.
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState or None, default=0
            Seed of the draws; None draws anew each time.

        Returns
        -------
        samples : array of shape (n_rows, n_samples)
        """
        check_is_fitted(self)
        if is_torch(X):
            return asarray_like(X, self.sample_y(to_numpy(X), n_samples, random_state))
        X = self._block(self._check_rows(X))
        seeds = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=2)
        first, second = (np.random.default_rng(seed) for seed in seeds)
        Phi = self.basis_(X)
        draws = self._draw_function(X, Phi, n_samples, first)
        sd = np.sqrt(np.asarray(self._noise(X, Phi)))[..., None]
        if self.noise_tail_ is None:
            draws += sd * first.standard_normal(draws.shape)
        else:
            tail = self.noise_tail_
            draws += tail.scale * sd * first.standard_t(tail.df, draws.shape)
        if self._added is not None:
            C = self._added.covariance(X)
            values, vectors = np.linalg.eigh(C if C.ndim == 2 else np.moveaxis(C, -1, 0))
            root = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
            more = root @ second.standard_normal((*root.shape[:-1], n_samples))
            draws += more if C.ndim == 2 else np.moveaxis(more, 0, 1)
        return as_float(X.dtype, draws)


def _predict_there(model: Any, X: Any, return_std: bool) -> Any:
    """Predictions where the rows of X are, or on the device of the model; tensors of tensors."""
    rows: Any = as_blocks(X, np.inf, model.device)
    if rows.n_columns != model.n_features_in_:
        raise ValueError(
            f"X has {rows.n_columns} features, but {type(model).__name__} was fitted to "
            f"{model.n_features_in_}."
        )
    xp, whole = namespace(rows.place(0.0)), model._runs_there(return_std)
    found: list[Any] = []
    step = block_rows(max(1, len(model.basis_)), rows.block_elements)
    for _, block in rows:
        for part in row_slices(len(block), step):
            if not whole:
                parts = model._predict_rows(to_numpy(block[part]), True)
                found.append(tuple(rows.place(one) for one in parts))
                continue
            mean, variance, Phi = model._function(block[part], return_std)
            std = [xp.sqrt(variance + model._noise(block[part], Phi))] if return_std else []
            found.append((mean, *std))
    out = tuple(xp.concatenate(parts) for parts in zip(*found, strict=True))
    dtype = getattr(X, "dtype", None)
    if is_torch(X):
        out = tuple(one.to(dtype) if X.is_floating_point() else one for one in out)
        return out if return_std else out[0]
    return as_float(np.float32 if dtype == np.float32 else np.float64, *map(to_numpy, out))


# From X, y to a problem, to a result, to fitted attributes.


def make_problem(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    columns: Any = None,
    choice: Any = None,
    gamma: Any = None,
) -> Problem:
    """What a solver takes, of the data of a user; sets what is known of a model before its fit.

    `columns` and `choice` say what the candidates are, see `make_candidates`; a width `gamma` is
    used in place of the model's.
    """
    if isinstance(X, Stream):  # the rows are gone, their sums are known
        design, t, offset = X.problem()
        return Problem(design, t, offset, X.scale, X.candidates, None, kernel=X.kernel)
    blocks = _blocks_for(model, X)
    if blocks is not None:
        return _problem_in_blocks(model, blocks, y, sample_weight, columns, choice, gamma)
    X, y = read_rows(model, X, y, multi_output=True, y_numeric=True)
    if not issparse(X):
        X = np.asarray(X, dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    if y.ndim == 2 and not get_tags(model).target_tags.multi_output:
        if y.shape[1] > 1:
            raise ValueError(
                f"y has {y.shape[1]} columns, but {type(model).__name__} with these parameters "
                "takes one target: fit one model per column, for example with "
                "sklearn.multioutput.MultiOutputRegressor."
            )
        y = _one_column(y)
    weight = None if sample_weight is None else check_sample_weight(sample_weight, X)
    weight = weights_of_copies(model, lambda: row_hashes(X), y, weight)
    with_weight = slice(None) if weight is None else np.flatnonzero(weight)
    part = None if weight is None else weight[with_weight]
    set_kernel(model, X[with_weight], y[with_weight], part, gamma)
    return problem_in_memory(model, X, y, weight, columns, choice)


def weights_of_copies(model: Any, inputs: Any, y: Any, weight: Any) -> Any:
    """Weights that count copies once, kept for `_noise.py` too; or those that there are.

    Where functions and noise are learnt, with which copies of a row might be interpolated. With a
    width that was given a model is that of its paper.
    """
    learnt = model._learns() and model._known_kernel is None and not model._weighed
    if not (learnt and is_text(getattr(model, "noise_variance", None), "learn", "input")):
        return weight
    model._once = each_once(inputs, np.asarray(y, dtype=np.float64), weight)
    return weight if model._once is None else model._once


def problem_in_memory(
    model: Any, X: Any, y: np.ndarray, weight: np.ndarray | None, columns: Any, choice: Any
) -> Problem:
    """The problem of checked rows, after `set_kernel`."""
    given, rows = (X, y, weight), np.arange(X.shape[0])
    rows_X = X
    if weight is not None:
        rows = np.flatnonzero(weight)
        rows_X, y, weight = X[rows], y[rows], weight[rows]
    design, candidates, kernel = make_candidates(model, rows_X, rows, columns, choice)
    if weight is not None:
        design = design.weighted(weight)
    if model.fit_intercept:
        design = design.centred()
    scale = target_scale(np.max(np.abs(y), axis=0))
    y = y / scale
    return Problem(design, design.target(y), design.offset(y), scale, candidates, given, X, kernel)


# Rows that stay where they are: read in blocks, on a cluster, or on a device.


def _blocks_for(model: Any, X: Any) -> Rows | None:
    """X in blocks where it may stay where it is, and the model can read it there; else None."""
    if not model._takes_blocks or (is_torch(X) and "device" not in model.get_params()):
        return None
    blocks = as_blocks(X, model.cache_size, model.device)
    mapped = isinstance(X, np.memmap) and model.kernel is None and blocks is not None
    return None if mapped and _wide(X.shape[1], model.cache_size) else blocks


def as_blocks(X: Any, megabytes: float, device: str | None = None) -> Rows | None:
    """X in blocks: where it says so, is a Dask array, or a memory map larger than `megabytes`.

    A list or an iterator of arrays and a function that returns one say so too. A torch tensor stays
    on its device, and everything goes to a `device` that is named.
    """
    rows = _elsewhere(X, megabytes)
    if isinstance(X, Rows) or (device is None and not is_torch(X)):
        return rows
    if device is None:
        return TensorRows(X)
    if is_dask(X):
        raise ValueError(
            f"A Dask array stays on its workers: device={device!r} needs an array or blocks."
        )
    return rows_on(X if rows is None else rows, find_device(device))


def _elsewhere(X: Any, megabytes: float) -> Rows | None:
    if is_dask(X):
        from ..rows.dask import DaskRows

        return DaskRows.in_blocks(X)
    if isinstance(X, Rows):
        return X
    if isinstance(X, Iterator) or is_list_of_arrays(X) or inspect.isroutine(X):
        return RowBlocks(X)
    if isinstance(X, np.memmap) and X.ndim == 2 and X.nbytes > megabytes * 1e6:
        return RowBlocks(X)
    return None


class _SomeRows:
    """Some of the rows of blocks, read when asked for."""

    def __init__(self, X: Rows, rows: np.ndarray) -> None:
        self.X, self.rows = X, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, idx: np.ndarray) -> np.ndarray:
        return self.X.take(self.rows[idx])


def read_blocks(model: Any, X: Rows, y: Any) -> np.ndarray:
    """The targets of rows that stay where they are, checked; what `read_rows` sets of a model."""
    n, model.n_features_in_ = X.shape
    vars(model).pop("feature_names_in_", None)
    y = to_numpy(y) if is_torch(y) else y
    y = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64), warn=True)
    if len(y) != n:
        raise ValueError(f"X has {n} rows in its blocks and y has {len(y)} values.")
    return y


def _problem_in_blocks(
    model: Any, X: Rows, y: Any, sample_weight: Any, columns: Any, choice: Any, gamma: Any
) -> Problem:
    """What `make_problem` makes of an array, of rows that stay where they are."""
    y, n = read_blocks(model, X, y), len(X)
    given = X.with_arrays(y, None)
    weight, rows = None, np.arange(n)
    if sample_weight is not None:
        weight = check_sample_weight(sample_weight, y)
    weight = weights_of_copies(model, lambda: given.reduce(HashJob()), y, weight)
    if weight is not None:
        given = X.with_arrays(y, weight)
        rows = np.flatnonzero(weight)  # the others have no part: no function, no width, no scale
    scale = target_scale(np.max(np.abs(y[rows])))
    if model.kernel is None and X.matrix is None:
        return _columns_in_blocks(model, given, scale, columns)
    design, candidates, kernel = _functions_in_blocks(
        model, X, y, weight, rows, columns, choice, gamma
    )
    if weight is not None:
        design = design.weighted(weight)
    if model.fit_intercept:
        design = design.centred()
    y = np.where(weight == 0.0, 0.0, y / scale) if weight is not None else y / scale
    t, offset = design.target(y), design.offset(y)
    return Problem(design, t, offset, scale, candidates, given, kernel=kernel)


def _columns_in_blocks(model: Any, rows: Rows, scale: float, columns: Any) -> Problem:
    """The columns of X as candidates: their triangle is all that a search asks for."""
    if why := model._needs_rows():
        raise ValueError(f"Rows read in blocks are not kept, and {why}.")
    if _wide(rows.n_columns, model.cache_size):
        megabytes = 8e-6 * (rows.n_columns + 2) ** 2
        raise ValueError(
            f"X has {rows.n_columns} columns, and the triangle that stands in for rows read in "
            f"blocks takes {megabytes:.0f} MB, more than cache_size={model.cache_size}: raise it, "
            "or take fewer columns."
        )
    # One row of the largest values tells which columns there are, and in which scale.
    sizes = rows.reduce(SizesJob())[None]
    design = own_scales(sizes) if columns is None else columns(sizes)
    every = np.arange(design.n_candidates)
    keep_kernel(model, None, None)
    job = Stream.from_functions(
        design.basis(every), design.indices, None, scale, bool(model.fit_intercept)
    )
    return replace(make_problem(model, rows.reduce(job), None, None), rows=rows)


def _wide(n_columns: int, megabytes: float) -> bool:
    """Whether the triangle of so many columns is too large."""
    return 8e-6 * (n_columns + 2) ** 2 > megabytes


class SizesJob(Job):
    """The largest magnitude in each column, of chunks (X, ..., weight or None)."""

    def read(self, index: int, chunk: Any) -> np.ndarray:
        """Rows without weight have no part."""
        X, weight = to_numpy(chunk[0]), chunk[-1]
        return column_sizes(X if weight is None else X[weight > 0])

    def merge(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.maximum(left, right)


def _functions_in_blocks(
    model: Any,
    X: Any,
    y: np.ndarray,
    weight: np.ndarray | None,
    rows: np.ndarray,
    columns: Any,
    choice: Any,
    gamma: Any,
) -> tuple[Design, np.ndarray, Kernel | None]:
    """The candidates; `rows` are those that have a part."""
    if model.kernel is None:
        design = own_scales(X.matrix) if columns is None else columns(X.matrix)
        return design, design.indices, None
    if is_text(model.kernel, "precomputed"):
        raise ValueError("Rows read in blocks need a kernel evaluated on them, or kernel=None.")
    gamma = model.gamma if gamma is None else gamma
    if is_text(gamma, "scale") and not is_text(model.kernel, "auto"):
        keep_kernel(model, model.kernel, X.with_arrays(weight).reduce(SpreadJob()).gamma)
    else:
        sample = rows[:: -(-len(rows) // _SAMPLE)]
        few = None if weight is None else weight[sample]
        set_kernel(model, X.take(sample), y[sample], few, gamma, X.device)
    kernel = fitted_kernel(model)
    if choice is None:
        centres = rows[different_rows(X.take(rows))]
    else:
        centres = rows[choice.centres(_SomeRows(X, rows), kernel, rows)]
    return ChunkedKernelDesign(X, kernel, centres, model.cache_size), centres, kernel


def solve(model: Any, solver: Algorithm[S], problem: Problem, max_iter: int) -> Result[S]:
    """Run a solver, with the progress that the model is to show."""
    progress = progress_of(model, problem, max_iter)
    try:
        return run(solver, problem.design, problem.t, max_iter=max_iter, callback=progress)
    finally:
        progress.close()


def progress_of(model: Any, problem: Problem, max_iter: int) -> Progress:
    """What a model shows of so many steps, in the units of the user."""
    return Progress(model, max_iter, in_units=problem.reported)


def keep(model: Any, problem: Problem, result: Result, solution: Solution) -> None:
    """Set the fitted attributes from a solution in the units of the solver."""
    design, active = problem.design, solution.active
    keep_posterior(
        model,
        replace(solution.posterior, offset=problem.offset),
        solution.lam,
        design.basis(active),
        problem.candidates[active],
        problem.target_scale,
        design.n_observations,
    )
    keep_left_out(model, problem.rows)
    keep_run(model, problem, result)
    warn_not_converged(model, problem, result, solution.posterior)


def keep_posterior(
    model: Any,
    posterior: Posterior,
    lam: np.ndarray,
    basis: Any,
    active: np.ndarray,
    scale: Any,
    n_observations: float,
) -> None:
    """Fitted attributes in the units of the user, whose target was divided by `scale`.

    `lam` are the prior precisions times the noise variance, `active` the rows or columns of X that
    carry the functions of `basis`.
    """
    with np.errstate(over="ignore", under="ignore"):
        precision = np.divide.outer(lam, posterior.noise_variance)
    posterior = posterior.rescaled(scale, n_observations)
    model.basis_ = basis
    model.posterior_ = posterior
    model.active_ = active
    model.noise_variance_ = posterior.noise_variance
    model.log_evidence_ = posterior.log_evidence
    model.intercept_ = posterior.intercept - basis.centre @ posterior.mean
    unit = basis.scale
    coef = (posterior.mean.T * unit).T
    # One factor at a time: the square of an extreme scale is not a number of float64.
    with np.errstate(over="ignore", under="ignore"):
        model.weight_precision_ = ((precision / scale / scale).T / unit / unit).T
    if model.kernel is None:
        model.coef_ = np.zeros((*coef.shape[1:], model.n_features_in_))
        model.coef_[..., active] = coef.T
    else:
        model.coef_ = coef.T
        if basis.centres is not None:
            model.relevance_vectors_ = basis.centres


def keep_left_out(model: Any, rows: Any) -> None:
    """What `loo_` shows, from (X, y, weight) or `Rows` of these; after the posterior was kept.

    None are rows that are gone.
    """
    model._left_out = None
    if rows is None or not isinstance(model.posterior_.form, Dense | BlockLowRank):
        return
    job = LeaveOneOut(model.basis_, model.posterior_, model._added)
    model._left_out = rows.reduce(job) if isinstance(rows, Rows) else job.read(0, rows)


def keep_run(model: Any, problem: Problem, result: Result) -> None:
    """What the steps were like, and how they ended."""
    model.history_ = problem.reported(result.history)
    model.n_iter_ = result.n_iter
    model.converged_ = result.converged
    model.stop_reason_ = result.stop_reason.value


def warn_not_converged(model: Any, problem: Problem, result: Result, posterior: Posterior) -> None:
    """Say so, and what to do, where a fit has not converged."""
    if result.converged:
        return
    design = problem.design
    noise = posterior.noise_variance * design.n_observations
    signal = np.maximum(np.sum(problem.t**2, axis=0), np.finfo(np.float64).tiny)
    repeated = problem.kernel is not None and design.n_candidates < design.n_rows
    advice = advice_for(model, result.stop_reason, float(np.min(noise / signal)), repeated)
    warn(
        f"{type(model).__name__} stopped before it converged ({result.stop_reason}) after "
        f"{result.n_iter} steps: {advice}",
        ConvergenceWarning,
    )


def in_units(fields: dict[str, Any], scale: Any, n_observations: float) -> dict[str, Any]:
    """Evidence, noise and errors of steps in the units of a target that was divided by `scale`."""
    fields = dict(fields)
    shift = n_observations * np.sum(np.log(scale))
    for name in {"log_evidence", "bound"} & fields.keys():
        fields[name] = fields[name] - shift
    with np.errstate(over="ignore", under="ignore"):
        for name in {"noise_variance", "residual"} & fields.keys():
            fields[name] = fields[name] * scale * scale
        for name in {"rmse"} & fields.keys():
            fields[name] = fields[name] * scale
    return fields


def _one_column(y: np.ndarray) -> np.ndarray:
    from sklearn.utils import column_or_1d

    return column_or_1d(y, warn=True)
