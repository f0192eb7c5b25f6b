"""A target, or its logarithm: whichever the data call for."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import MetaEstimatorMixin, RegressorMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, column_or_1d, get_tags

from ..posterior.predictive import Exponential, Predictive
from ._predictive import PredictiveMixin
from ._sklearn import Number, check_is_fitted, check_sample_weight, whole_fit, words
from ._summary import Summary

_MARGIN = 50.0  # nats


class SparseTargetTransform(PredictiveMixin, MetaEstimatorMixin, RegressorMixin, Summary):
    """Model y or log y with a sparse Bayesian regressor, chosen by leave-one-out density.

    Both models say how probable each row is without it, so they can be compared once both speak of
    y: a density of log y becomes one of y by its Jacobian, log p(y) = log p(log y) - log y. The
    logarithm must win by `margin` nats. Intervals and quantiles are then those of log y, mapped
    by exp. The mean is another matter: exp(m + v/2) of log y ~ N(m, v) is no better than its
    v, so it is taken only if its leave-one-out error is the smaller one, and from the model of
    y otherwise (`mean_transform_`).

    Prices, counts, concentrations: where the spread of a positive target grows with its level, the
    logarithm gives better intervals.

    Parameters
    ----------
    regressor : estimator, default=None
        A regressor of this package with `loo_`, or a Pipeline that ends in one. None:
        ``ForwardRegressor(kernel="auto", gamma="ard", random_state=0)``.
    target_transform : {"auto", "log"} or None, default="auto"
        ``"auto"`` fits both and compares; targets that are not all positive stay as they are.
    margin : float, default=50
        Nats by which the logarithm must be ahead. Small data sets say little about this.

    Attributes
    ----------
    regressor_ : estimator
        The model that was chosen, of y or of log y.
    target_transform_ : "log" or None
        Of the distribution.
    mean_transform_ : "log" or None
        Of the mean that `predict` gives.
    mean_regressor_ : estimator
        The model that gives it.
    log_evidence_ : float
        Of y, whichever the model.
    density_gain_ : float
        Nats of leave-one-out density by which log y is ahead of y; NaN where the two were not
        compared.
    loo_rmse_ : dict
        Leave-one-out error of the mean of y by the model of ``"y"`` and of ``"log y"``.
    n_features_in_ : int
        Number of inputs.
    feature_names_in_ : array of str
        Where X has names.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.estimators.target_transform import SparseTargetTransform
    >>> from sparsebayes import RVMRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, (150, 1))
    >>> y = np.exp(np.sin(2 * X[:, 0]) + 0.4 * rng.standard_normal(150))
    >>> model = SparseTargetTransform(RVMRegressor()).fit(X, y)
    >>> model.target_transform_
    'log'
    >>> low, high = model.predict_interval(X, coverage=0.9).T
    >>> bool(abs(np.mean((low < y) & (y < high)) - 0.9) < 0.05)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "target_transform": [None, words("auto", "log")],
        "margin": [Number(None, None, "both")],
    }

    def __init__(
        self, regressor: Any = None, *, target_transform: Any = "auto", margin: float = _MARGIN
    ):
        self.regressor = regressor
        self.target_transform = target_transform
        self.margin = margin

    @whole_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SparseTargetTransform:
        """Fit one model, or both and keep the better.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Inputs.
        y : array of shape (n_samples,)
            Target.
        sample_weight : array of shape (n_samples,), optional
            A row of weight v counts as v equal rows. Weights that sum to two or less are relative
            importance: they are scaled to sum to the number of rows with a positive weight.

        Returns
        -------
        self
        """
        self._validate_params()
        if y is None:
            raise ValueError(
                f"requires y to be passed, but the target y is None: {type(self).__name__} is a "
                "regressor."
            )
        y = column_or_1d(
            check_array(y, ensure_2d=False, dtype="numeric", input_name="y"), warn=True
        ).astype(np.float64)
        weights = {}
        counts = np.ones(len(y))
        if sample_weight is not None:
            counts = weights["sample_weight"] = check_sample_weight(sample_weight, y)
        positive = bool(np.all(y[counts > 0] > 0))
        if self.target_transform == "log" and not positive:
            raise ValueError(
                f"target_transform='log' needs a target that is positive everywhere, got "
                f"{np.min(y[counts > 0])!r}: shift y, or use target_transform=None."
            )
        self.density_gain_ = np.nan
        use_log = self.target_transform == "log"
        models = {}
        if not use_log:
            models[False] = clone(self._regressor()).fit(X, y, **weights)
        if use_log or (self.target_transform == "auto" and positive):
            # Rows of weight zero may hold anything.
            logs = np.log(np.where(counts > 0, y, 1.0))
            models[True] = clone(self._regressor()).fit(X, logs, **weights)
        densities, self.loo_rmse_ = {}, {}
        for key, model in models.items():
            loo = _left_out(model)
            mean = _exp_mean(logs - loo.residuals, loo.std)[0] if key else y - loo.residuals
            with np.errstate(over="ignore"):
                squares = np.square(np.where(counts > 0, y - mean, 0.0))
                error = float(np.sqrt(counts @ squares / np.sum(counts)))
            self.loo_rmse_["log y" if key else "y"] = error
            densities[key] = float(counts @ (loo.log_density - (logs if key else 0.0)))
        mean_log = use_log
        if len(models) == 2:
            self.density_gain_ = densities[True] - densities[False]
            use_log = bool(self.density_gain_ > self.margin)
            mean_log = use_log and self.loo_rmse_["log y"] <= self.loo_rmse_["y"]
        self.regressor_, self.mean_regressor_ = models[use_log], models[mean_log]
        self.target_transform_ = "log" if use_log else None
        self.mean_transform_ = "log" if mean_log else None
        self.log_evidence_ = float(_last(self.regressor_).log_evidence_)
        if use_log:
            self.log_evidence_ -= float(counts @ logs)
        self.n_features_in_ = self.regressor_.n_features_in_
        self.__dict__.pop("feature_names_in_", None)
        if hasattr(self.regressor_, "feature_names_in_"):
            self.feature_names_in_ = self.regressor_.feature_names_in_
        return self

    def predict(
        self, X: Any, return_std: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict a new observation at each row: its mean.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.
        return_std : bool, default=False
            Also return the standard deviation of a new observation, noise included.

        Returns
        -------
        mean : array of shape (n_samples,)
        std : array of shape (n_samples,), where asked for
        """
        check_is_fitted(self)
        if self.target_transform_ is None:
            return self.regressor_.predict(X, **({"return_std": True} if return_std else {}))
        if self.mean_transform_ is None and not return_std:
            return self.mean_regressor_.predict(X)
        mean, std = _exp_mean(*self.regressor_.predict(X, return_std=True))
        if self.mean_transform_ is None:
            # Around a mean that is not that of the distribution.
            found = self.mean_regressor_.predict(X)
            mean, std = found, np.hypot(std, mean - found)
        return (mean, std) if return_std else mean

    def _found(self) -> list[tuple[str, str]]:
        of = "log y" if self.target_transform_ == "log" else "y"
        gain = f"; the density of log y is {self.density_gain_:+.4g} nats ahead"
        of += "" if np.isnan(self.density_gain_) else gain
        return [("model of", of), *_last(self.regressor_)._found()]

    def _predictive(self, X: Any) -> Predictive:
        found = self._inner(X)
        return found if self.target_transform_ is None else Exponential(found)

    def _inner(self, X: Any) -> Predictive:
        """The distribution of the target of `regressor_`."""
        model = self.regressor_
        X = model[:-1].transform(X) if isinstance(model, Pipeline) else X
        return _last(model)._predictive(X)

    @property
    def _calibration(self) -> Any:  # type: ignore[override]
        return _last(self.regressor_)._calibration

    def _calibrated(self, X: Any, factor: float) -> np.ndarray:
        inner = self._inner(X)
        ends = np.stack([inner.mean - factor * inner.std, inner.mean + factor * inner.std], axis=-1)
        with np.errstate(over="ignore"):
            return ends if self.target_transform_ is None else np.exp(ends)

    def _regressor(self) -> Any:
        if self.regressor is not None:
            return self.regressor
        from .forward import ForwardRegressor

        return ForwardRegressor(kernel="auto", gamma="ard", random_state=0)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._regressor())
        tags.input_tags = inner.input_tags
        tags.regressor_tags = inner.regressor_tags
        return tags


def looks_log(y: np.ndarray) -> bool:
    """Whether log y may be the better target, by the target alone.

    What ``target_transform="auto"`` asks of two models, asked without inputs: whether y is more
    probable as the exponential of a normal than as a normal, by half of the margin. Of nine tables
    that is so for those where a linear or a kernel model gained 60 nats or more by the logarithm,
    and not where they gained 6 or less; none was between.
    """
    if np.min(y) <= 0.0:
        return False
    logs = np.log(y) - np.log(np.max(y))
    spread, spread_of_logs = np.std(y / np.max(y)), np.std(logs)
    if spread == 0.0 or spread_of_logs == 0.0:
        return False
    return bool(len(y) * (np.log(spread / spread_of_logs) - np.mean(logs)) > 0.5 * _MARGIN)


def _last(model: Any) -> Any:
    return model[-1] if isinstance(model, Pipeline) else model


def _left_out(model: Any) -> Any:
    last = _last(model)
    try:
        return last.loo_
    except AttributeError as error:
        raise ValueError(
            f"{type(last).__name__} has no loo_ to compare by: use one of the regressors of this "
            "package whose posterior is Gaussian, or a Pipeline that ends in one."
        ) from error


def _exp_mean(f: np.ndarray, sd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of exp(x), x ~ N(f, sd^2); in float64, which holds more."""
    f, variance = np.asarray(f, dtype=np.float64), np.square(np.asarray(sd, dtype=np.float64))
    with np.errstate(over="ignore"):  # far from the data the mean may well be beyond float64
        mean = np.exp(f + 0.5 * variance)
        return mean, mean * np.sqrt(np.expm1(variance))
