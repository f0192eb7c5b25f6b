"""The shell of the regressors: from (X, y) to a fit, and from a fit to predictions."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import RegressorMixin
from sklearn.utils import Bunch, check_array, check_random_state, column_or_1d, get_tags
from sklearn.utils.metaestimators import available_if

from .._array import RandomState, asarray_like, is_torch, namespace, to_numpy
from .._warn import warn
from ..calibration import NewRows
from ..callbacks import Reporter
from ..data import Data, as_rows, merge_duplicates
from ..designs.kernel import block_rows
from ..designs.stream import Stream
from ..fitting import Fit, Method, NoiseSpec, publish
from ..kernels import KernelChoice, is_option
from ..noise_rounds import intercept_runs_away
from ..posterior import BlockLowRank, Dense, Posterior, Unlike
from ..posterior.leave_one_out import Calibration
from ..posterior.noise import NoiseModel, Tail
from ..posterior.predictive import Predictive, observation
from ..predict import (
    Noise,
    loo_density,
    mixture,
    predict_jointly,
    predict_rows,
    without_noise,
)
from ..problem import Problem
from ..regression import fit_with_noise, with_kernel
from ..relevance import with_inputs
from ..rows import Rows, is_dask, row_slices
from ._estimator import (
    RowCheck,
    SparseEstimator,
    as_float,
    check_capabilities,
    check_fitted,
    checked_rows,
    default_of,
    dense_rows,
    is_linear,
    is_single,
    kernel_spec,
    predict_blocks,
    read_rows,
    reporter,
    seed_of,
    warn_outside,
)
from ._predictive import PredictiveMixin
from ._sklearn import (
    Number,
    array_of_frame,
    check_sample_weight,
    check_target,
    feature_names,
    reset_inputs,
    same_namespace,
    whole_fit,
    words,
)

NOISE_CONSTRAINTS: dict[str, Any] = {
    "noise_variance": [words("learn", "input"), Number(0), "array-like"],
    "likelihood": [
        words(
            "gaussian",
            "student",
            advice=" (counts and positive targets: model log y, see SparseTargetTransform, or use "
            "sklearn.linear_model.PoissonRegressor)",
        )
    ],
}


class SparseRegressor(PredictiveMixin, RegressorMixin, SparseEstimator):
    """Base of the regressors whose candidates are kernel functions or columns.

    A subclass gives its parameters and `_solve`, which fits a problem with one level of normal
    noise. It may override `_problem` to define the candidates. Everything else (weights,
    duplicates, noise, calibration, fitted attributes) is the same for all of them.

    Parameters
    ----------
    noise_variance : {"learn", "input"}, float or array of shape (n_samples,)
        ``"learn"`` estimates one variance for all rows. ``"input"`` also estimates how it depends
        on the inputs, and keeps that model if it predicts better (see `noise_model_`). A float or
        an array is a known variance of all rows or of each row; new rows then have the mean of the
        array.
    likelihood : {"gaussian", "student"}
        ``"student"`` is robust to outliers: the noise has Student's t distribution, whose degrees
        of freedom are learnt.
    device : str or None
        Torch device, such as ``"cuda"``, on which kernel functions are computed in float64. Torch
        tensors are used on their own device, and predictions for them are tensors. Requires torch.

    Attributes
    ----------
    coef_ : array of shape (n_active,) or (n_outputs, n_active)
        One weight per active function; with ``kernel=None`` one per column of X, zeros included.
    coef_std_ : array of shape (n_features,) or (n_outputs, n_features)
        Standard deviation of each coefficient with ``kernel=None``, zero for columns that were not
        chosen. It is multiplied by `calibration_`.
    intercept_ : float or array of shape (n_outputs,)
        Constant term of the model.
    noise_variance_ : float or array of shape (n_outputs,)
        Variance of the noise, as learnt or as given. An array of shape (n_samples,) if it varies
        between the training rows.
    noise_model_ : NoiseModel or None
        Model of the noise variance as a function of the inputs, if there is one.
    noise_tail_ : Tail or None
        Student's t distribution of the noise, if the leave-one-out residuals have heavy tails.
        Intervals use it.
    calibration_ : float or array of shape (n_outputs,)
        Factor (at least 1) by which the standard deviations of predictions are inflated. It is the
        root mean square of the standardised leave-one-out residuals, corrected for the optimism of
        learning length scales and of selecting functions on the same rows. The fitted
        hyperparameters and `log_evidence_` do not include it.
    log_evidence_ : float
        Log marginal likelihood at the fitted hyperparameters, summed over the outputs.
    loo_ : Bunch
        Leave-one-out ``residuals``, ``std``, ``log_density``, ``weight`` and ``r2``, in closed
        form.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseEstimator._parameter_constraints,
        "noise_variance": [words("learn"), Number(0)],
    }
    noise_variance: ArrayLike = "learn"
    likelihood: str = "gaussian"
    device: str | None = None
    noise_model_: NoiseModel | None
    noise_tail_: Tail | None
    calibration_: Any
    basis_: Any
    posterior_: Posterior
    active_: np.ndarray
    noise_variance_: Any
    log_evidence_: float
    history_: dict[str, np.ndarray]
    _fitted: Fit

    def _solve(self, problem: Problem) -> Fit:
        """Fit a problem with one level of normal noise, learnt or known."""
        raise NotImplementedError

    def _problem(self, data: Data) -> Problem:
        """Return the problem that the parameters of this estimator make of the data."""
        return Problem(
            data,
            kernel_spec(self),
            noise_variance=noise_spec(self).level,
            fit_intercept=bool(self.fit_intercept),
            cache_size=self.cache_size,
            seed=seed_of(self.random_state),
            previous=self._fitted if self.warm_start else None,
            reporter=reporter(self),
        )

    def _method(self, data: Data) -> Method:
        """Return how this estimator fits these rows, for `fit_with_noise`."""
        return Method(
            self._solve,
            noise_spec(self),
            selects=self.capabilities.selects,
            frees_intercept=self.capabilities.frees_intercept,
            calibrates_trials=self.capabilities.selects and self._has_default_width(),
            feature_names=feature_names(self),
        )

    def _has_default_width(self) -> bool:
        """Tell whether kernel functions have the width that is the default of this estimator."""
        return kernel_spec(self).on_rows and is_option(self.gamma, default_of(self, "gamma"))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        noise_spec(self).check()

    def _needs_rows(self) -> str:
        """Return why this fit needs all rows in memory; an empty string where it does not."""
        return ""

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
            Number of observations that each row stands for: a row of weight v counts as v equal
            rows. Weights that sum to two or less are treated as relative, and scaled to sum to the
            number of rows with a positive weight. If the noise is learnt, exact duplicates (same
            inputs and target) are treated as one observation with higher precision, because they
            carry no information about the noise.

        Returns
        -------
        self
        """
        return fit_rows(self, read_data(self, X, y, sample_weight))

    def _merges_duplicates(self) -> bool:
        """Tell whether duplicates are one observation: where the noise is learnt."""
        return noise_spec(self).learnt

    def _read(self, X: Any, y: Any, sample_weight: Any) -> Data:
        """Return the training data, checked."""
        check_target(self, y, numeric=True)
        rows, single = self._rows_of(X), is_single(X)
        if rows is not None:
            y = self._read_targets(rows, y)
            weight = None if sample_weight is None else check_sample_weight(sample_weight, y)
            return Data(rows, y, weight, single=single)
        X, y = read_rows(self, X, y, multi_output=True, y_numeric=True)
        if not issparse(X):
            X = np.asarray(X, dtype=np.float64)
        y = np.asarray(y, dtype=np.float64)
        if y.ndim == 2 and not get_tags(self).target_tags.multi_output:
            if y.shape[1] > 1:
                raise ValueError(
                    f"y has {y.shape[1]} columns, but {type(self).__name__} with these "
                    "parameters supports one target. Fit one model per column, for example "
                    "with sklearn.multioutput.MultiOutputRegressor."
                )
            y = column_or_1d(y, warn=True)
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]  # one target is a vector, so that it is fitted as one
        weight = None if sample_weight is None else check_sample_weight(sample_weight, X)
        return Data(X, y, weight, single=single)

    def _rows_of(self, X: Any) -> Rows | None:
        """Return X as `Rows` where it is read in blocks or on a device; None for arrays."""
        check_capabilities(self, X)
        if not self.capabilities.blocks or (is_torch(X) and not self.capabilities.device):
            return None
        rows = as_rows(X, self.cache_size, self.device)
        if rows is None:
            return None
        if is_option(self.kernel, "precomputed"):
            raise ValueError(
                "X in blocks of rows requires a named kernel, a callable or kernel=None."
            )
        if self.kernel is not None or rows.matrix is not None:
            return rows
        megabytes = 8e-6 * (rows.n_columns + 2) ** 2
        if megabytes > self.cache_size:
            if isinstance(X, np.memmap):
                return None
            raise ValueError(
                f"X has {rows.n_columns} columns, and their triangular factor takes "
                f"{megabytes:.0f} MB, more than cache_size={self.cache_size}. Raise "
                "cache_size, or use fewer columns."
            )
        if why := self._needs_rows():
            raise ValueError(f"Rows that are read in blocks are not stored, and {why}.")
        return rows

    def _read_targets(self, rows: Rows, y: Any) -> np.ndarray:
        """Return the targets of rows that are not in memory, checked."""
        n = rows.shape[0]
        reset_inputs(self, rows)
        y = to_numpy(y) if is_torch(y) else y
        y = check_array(y, ensure_2d=False, dtype=np.float64, ensure_min_samples=2)
        y = column_or_1d(y, warn=True)
        if len(y) != n:
            raise ValueError(f"The blocks of X have {n} rows, but y has {len(y)} values.")
        return y

    # Predictions.

    @same_namespace
    def predict(
        self, X: Any, return_std: bool | str = False, return_cov: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict a new observation at each row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict. A Dask array is predicted block by block when the result is computed.
            Blocks of rows are accepted if the model can be fitted to them.
        return_std : bool or "function", default=False
            Also return the standard deviation of a new observation, noise included;
            ``"function"``: of the function, without the noise. Both include `calibration_`. In a
            sparse kernel model what its functions cannot represent counts as noise.
        return_cov : bool, default=False
            Also return the joint covariance of new observations, noise included.

        Returns
        -------
        mean : array of shape (n_samples,)
            Predicted mean, in float32 if X is and rounding is small beside the noise.
        std or cov : array, only if requested
        """
        check_fitted(self)
        if return_std and return_cov:
            raise ValueError("Pass either return_std=True or return_cov=True, not both.")
        noise = Noise(0.0) if without_noise(return_std) else self._fitted.predictive_noise
        if is_dask(X := array_of_frame(X, self)):
            if return_cov or self.posterior_.mean.ndim == 2:
                raise ValueError(
                    "Predictions for a Dask array are made block by block, for one target "
                    "and without return_cov. Use return_std, or pass the blocks as NumPy "
                    "arrays."
                )
            return predict_blocks(self, X, return_std)
        if return_cov and is_torch(X):
            mean, covariance = self.predict(to_numpy(X), return_cov=True)
            return asarray_like(X, mean), asarray_like(X, covariance)
        if is_torch(X) or (self.device is not None and not return_cov):
            return self._predict_on_device(X, bool(return_std), noise)
        if self.capabilities.blocks and (blocks := as_rows(X, np.inf)) is not None:
            if return_cov:
                raise ValueError(
                    "return_cov is not available for X in blocks of rows; pass one array, or use "
                    "return_std."
                )
            return self._predict_in_blocks(blocks, bool(return_std), noise)
        X = checked_rows(self, X)
        self._warn_of_rows(X)
        if not return_cov:
            return self._predict_rows(X, bool(return_std), noise)
        joint = predict_jointly(self._fitted.predictor, noise, dense_rows(self, X))
        return self._as_float(X.dtype, *joint)

    def _predict_in_blocks(self, blocks: Rows, return_std: bool, noise: Noise) -> Any:
        """Return mean, and standard deviation where requested, of rows that are read in blocks."""
        check, parts = RowCheck(self), []
        for _, block in blocks:
            X = checked_rows(self, block)
            check.add(X)
            parts.append(self._predict_rows(X, return_std, noise))
        check.warn()
        if not return_std:
            return np.concatenate(parts)
        means, stds = zip(*parts, strict=True)
        return np.concatenate(means), np.concatenate(stds)

    def _predict_rows(self, X: Any, return_std: bool, noise: Noise) -> Any:
        """Return mean, and standard deviation where requested, of checked rows in memory."""
        n, model = X.shape[0], self._fitted.predictor
        blocks = ((rows, dense_rows(self, X, rows)) for rows in row_slices(n, model.block_rows))
        mean, std = predict_rows(model, noise, blocks, n, return_std)
        return self._as_float(X.dtype, *((mean,) if std is None else (mean, std)))

    def _warn_of_rows(self, X: Any) -> None:
        """Warn of checked rows that are unlike the training rows."""
        warn_outside(self, X)
        n, model = X.shape[0], self._fitted.predictor
        if not isinstance(model.added, Unlike):
            return
        unknown = np.concatenate(
            [
                rows.start + model.added.rows_unknown(dense_rows(self, X, rows))
                for rows in row_slices(n, model.block_rows)
            ]
        )
        if len(unknown):
            warn(
                f"{len(unknown)} of {n} rows are unlike all training rows: their kernel values say "
                f"hardly anything about them. The first is row {unknown[0]}. The model "
                f"extrapolates there, and {self._extrapolation_risk}."
            )

    def _as_float(self, dtype: Any, *arrays: np.ndarray) -> Any:
        """Return predictions in this type, or in float64 if it rounds them beside the noise."""
        noise_std = float(np.sqrt(np.min(self._fitted.noise.level)))
        return as_float(dtype, *arrays, noise_std=noise_std)

    def _predict_on_device(self, X: Any, return_std: bool, noise: Noise) -> Any:
        """Return predictions where the rows of X are, or on the device of the model."""
        rows: Any = as_rows(X, np.inf, self.device)
        if rows.n_columns != self.n_features_in_:
            raise ValueError(
                f"X has {rows.n_columns} features, but {type(self).__name__} was fitted to "
                f"{self.n_features_in_}."
            )
        model = self._fitted.predictor
        on_device = model.runs_on_device(return_std) and (noise.model is None or not return_std)
        xp = namespace(rows.place(0.0))
        parts: list[Any] = []
        step = block_rows(max(1, len(model.basis)), rows.block_elements)
        check = RowCheck(self)
        for _, block in rows:
            check.add(to_numpy(block))
            for part in row_slices(len(block), step):
                if not on_device:
                    values = self._predict_rows(to_numpy(block[part]), True, noise)
                    parts.append(tuple(rows.place(value) for value in values))
                    continue
                mean, variance, Phi = model.moments(block[part], return_std)
                level = noise.variance(block[part], model, Phi) if return_std else None
                std = xp.sqrt(xp.clip(variance + level, 0.0, None)) if return_std else None
                parts.append((mean, std) if return_std else (mean,))
        check.warn()
        out = tuple(xp.concatenate(columns) for columns in zip(*parts, strict=True))
        if is_torch(X):
            tensors: Any = tuple(one.to(X.dtype) if X.is_floating_point() else one for one in out)
            return tensors if return_std else tensors[0]
        out = tuple(map(to_numpy, out))
        return self._as_float(np.float32 if is_single(X) else np.float64, *out)

    def _predictive(self, X: Any) -> Predictive:
        if isinstance(self.posterior_.form, Dense | BlockLowRank):
            parts = None
        else:
            fit, checked = self._fitted, checked_rows(self, X)
            parts = mixture(fit.predictor, fit.predictive_noise, dense_rows(self, checked))
            if parts is not None:
                self._warn_of_rows(checked)
        if parts is not None:
            return parts
        mean, std = self.predict(X, return_std=True)
        if is_torch(mean):
            mean, std = to_numpy(mean), to_numpy(std)
        noise = self._fitted.predictive_noise
        level = noise.level
        if noise.model is not None and noise.tail is not None:
            rows = dense_rows(self, checked_rows(self, to_numpy(X) if is_torch(X) else X))
            level = noise.variance(rows, self._fitted.predictor)
        return observation(mean, std, noise.tail, np.sqrt(level))

    @property
    def _calibration(self) -> Calibration | None:  # type: ignore[override]
        return self._fitted.conformal

    def _without_calibration(self) -> Any:
        model = copy.copy(self)
        model._fitted = self._fitted.without_calibration()
        return model

    @property
    def loo_(self) -> Any:
        """Leave-one-out predictions for the training rows, with hyperparameters fixed.

        They are computed in closed form, and equal n fits of the weights of the same functions. A
        row of weight v counts as v equal rows, of which one is left out (the whole row if v is
        below 1, and all duplicates that are treated as one observation, see `fit`).

        Returns
        -------
        loo : Bunch
            ``residuals`` (target minus prediction) and ``std`` (of a new observation), of shape
            (n_samples,) or (n_samples, n_outputs); ``log_density`` of each row, of shape
            (n_samples,); ``weight``, the number of observations that each row stands for (zero for
            all but the first of several duplicates); ``r2``, as scikit-learn's ``r2_score`` of the
            predictions.

        Raises
        ------
        AttributeError
            If the posterior is not Gaussian, or the model was loaded or truncated and does not
            store the training residuals.
        """
        check_fitted(self)
        loo = self._loo()
        if loo is None or not self._fitted.model.has_loo:
            raise AttributeError(f"This {type(self).__name__} has no loo_: {self._no_loo()}")
        return Bunch(
            residuals=loo.residual,
            std=np.sqrt(loo.variance),
            log_density=loo_density(loo, self.noise_tail_),
            weight=loo.weight,
            r2=loo.r2,
        )

    def _loo(self) -> Any:
        return self._fitted.loo

    def _no_loo(self) -> str:
        model: Any = self._fitted.model
        if not model.has_loo:
            return "with heal=True each row has a model of its own; fit with heal=False."
        if isinstance(self.posterior_.form, Dense | BlockLowRank):
            return (
                "the leave-one-out predictions are not stored by a model that was loaded, "
                "truncated or fitted with partial_fit; fit it to the training rows."
            )
        return (
            f"the posterior of its weights ({type(self.posterior_.form).__name__}) is not the "
            "Gaussian posterior of a linear model, so there is no closed form; use "
            "sklearn.model_selection.cross_val_predict."
        )

    @same_namespace
    def sample_y(self, X: Any, n_samples: int = 1, random_state: RandomState = 0) -> np.ndarray:
        """Draw new observations from the joint predictive distribution.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            Rows to draw at.
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState or None, default=0
            Seed of the draws; with None they differ in each call.

        Returns
        -------
        samples : array of shape (n_rows, n_samples)
        """
        check_fitted(self)
        if is_torch(X):
            return asarray_like(X, self.sample_y(to_numpy(X), n_samples, random_state))
        X = checked_rows(self, X)
        self._warn_of_rows(X)
        X = dense_rows(self, X)
        seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
        rng = np.random.default_rng(seed)
        model, noise = self._fitted.predictor, self._fitted.predictive_noise
        if noise.tail is not None:
            model = model.scaled(noise.tail.variance)
        draws = model.sample(X, n_samples, rng)
        draws += noise.draw(noise.variance(X, model), draws.shape, rng)
        return self._as_float(X.dtype, draws)


R = TypeVar("R", bound=SparseRegressor)


def fit_rows(
    model: R, data: Data, kernel: KernelChoice | None = None, is_member: bool = False
) -> R:
    """Fit a model; with a kernel that is known from a fit to the same inputs, where given."""
    problem = model._problem(data)
    if kernel is not None:
        problem = replace(problem, kernel=kernel)
    fit = fit_with_noise(model._method(data), problem)
    publish(model, with_inputs(fit, problem, linear=is_linear(model), is_member=is_member))
    return model


def read_data(model: SparseRegressor, X: Any, y: Any, sample_weight: Any) -> Data:
    """Return the training data of a model, checked, with duplicates merged."""
    model._check_parameters()
    data = model._read(X, y, sample_weight)
    return merge_duplicates(data) if model._merges_duplicates() else data


def learn_kernel(model: SparseRegressor, data: Data) -> KernelChoice:
    """Return the kernel that a fit of the model would use."""
    return with_kernel(model._method(data), model._problem(data)).choice


def noise_spec(model: SparseRegressor) -> NoiseSpec:
    """Return the noise that the user requested."""
    return NoiseSpec(model.noise_variance, model.likelihood == "student")


# Rows that are read once and not stored.


def _stores_no_rows(model: SparseRegressor) -> bool:
    if not noise_spec(model).one_level:
        raise AttributeError(
            "partial_fit does not store rows, which noise_variance='input', likelihood='student' "
            "and an array of variances require."
        )
    if model._needs_rows():
        raise AttributeError(f"partial_fit does not store rows, and {model._needs_rows()}.")
    return True


class StreamRegressor(SparseRegressor):
    """Adds `partial_fit` to a regressor whose search needs only the triangle of its columns.

    Parameters
    ----------
    kernel : str, callable or None
        ... With ``"precomputed"`` X is a kernel matrix; with None the model selects among the
        columns of X instead of kernel functions.
    """

    @available_if(_stores_no_rows)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Update the model with more rows.

        The first call fixes the candidates and the length scales, as `fit` would. The rows are not
        stored, only a triangular factor whose size is the number of candidates. The model equals
        that of `fit` on all rows with these candidates and length scales, and is updated in every
        call. The error bars are calibrated by the first rows, as those of `fit` are, and by later
        rows with new inputs, which are predicted before they are fitted. A row that occurs again in
        another call is a further observation. `fit` starts again.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Further rows.
        y : array of shape (n_samples,)
            Targets of these rows.
        sample_weight : array of shape (n_samples,), optional
            Number of observations that each row stands for.

        Returns
        -------
        self
        """
        self._check_parameters()
        return self._update(X, y, sample_weight)

    @whole_fit
    def _update(self, X: Any, y: Any, sample_weight: Any) -> Any:
        former = self._fitted
        problem = None if former is None else former.extra.get("stream")
        new: NewRows | None = None
        if problem is None:
            data = self._read(X, y, sample_weight)
            problem = with_kernel(self._method(data), self._problem(data))
            new = self._first_errors(problem)
            problem = self._empty_stream(problem)
        X = dense_rows(self, checked_rows(self, X))
        y = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64), warn=True)
        if len(y) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows, but y has {len(y)} values.")
        weight = None if sample_weight is None else check_sample_weight(sample_weight, X)
        if weight is not None and self._merges_duplicates():
            # A row of weight 2 is one observation of higher precision, as in `fit`.
            weight = merge_duplicates(Data(X, y, weight)).likelihood_weight
        if new is None:
            new = former.extra["new_rows"].plus(former, X, y, weight)
        assert problem.stream is not None
        problem = replace(problem, stream=problem.stream.plus(X, y, weight))
        fit = self._solve_stream(replace(problem, reporter=Reporter(self)), new.holds_intercept)
        fit = new.calibrate(fit, X, y, weight)
        publish(self, replace(fit, extra={**fit.extra, "stream": problem, "new_rows": new}))
        return self

    def _solve_stream(self, problem: Problem, holds_intercept: bool) -> Fit:
        """Fit the rows read so far; hold a constant that would run away, if that is wanted."""
        fit = self._solve(problem)
        if holds_intercept and intercept_runs_away(problem, fit):
            fit = self._solve(replace(problem, hold_intercept=True))
        return fit

    def _first_errors(self, problem: Problem) -> NewRows:
        """Return the errors of the first rows, left out of a fit to the others."""
        data = rows = problem.rows
        if self._merges_duplicates():
            data = merge_duplicates(data)
        problem = replace(problem, data=data, reporter=Reporter())
        fit = fit_with_noise(self._method(data), problem)
        # The rows of the first call judge a constant far from the target. Later ones do not.
        holds = self.capabilities.frees_intercept or not intercept_runs_away(problem, fit)
        return NewRows.from_first(with_inputs(fit, problem, linear=is_linear(self)), rows, holds)

    def _empty_stream(self, problem: Problem) -> Problem:
        """Return the problem with the candidates and the kernel of its rows, and no rows."""
        columns = problem.design.uncentred
        stream = Stream.from_functions(
            columns.basis(np.arange(columns.n_candidates)),
            problem.labels,
            problem.kernel_function,
            problem.units.target,
            problem.fit_intercept,
        )
        return replace(problem, data=None, previous=None, stream=stream, reporter=Reporter())
