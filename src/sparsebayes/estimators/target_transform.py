"""A regressor of a target or of its logarithm."""

from __future__ import annotations

import copy
import warnings
from typing import Any, ClassVar

import numpy as np
from sklearn.base import MetaEstimatorMixin, RegressorMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, check_array, column_or_1d, get_tags

from .._array import RandomState
from ..posterior.predictive import Exponential, LocationScale, Predictive
from ..predict import without_noise
from ..rows import is_dask
from ._estimator import predict_blocks
from ._predictive import PredictiveMixin
from ._sklearn import (
    Number,
    check_is_fitted,
    check_sample_weight,
    check_target,
    warn,
    whole_fit,
    words,
)
from ._stack import ModelHolder
from ._summary import Term, of_target

MARGIN = 50.0  # nats
# y is bounded by twice the largest training target. On the market values of Forbes 2000 (500 rows
# held out) a bound of 1, 2, 3 and 10 times the largest has RMSE 17.1, 14.4, 13.8 and 18.3, the
# median 20.0, and no bound 254.
_BEYOND = np.log(2.0)
_WORSE = 1.05  # ratio of leave-one-out errors of the mean that a note reports


class TargetRegressor(PredictiveMixin, RegressorMixin, ModelHolder):
    """Base of regressors that hold fitted models of the target or of its logarithm."""

    target_transform: Any


def read_target(
    model: TargetRegressor, y: Any, sample_weight: Any
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Return target and weights of a fit, checked, and the targets of positive weight."""
    if y is None:
        raise ValueError(
            f"{type(model).__name__} requires y to be passed, but the target y is None."
        )
    check_target(model, y, numeric=True)
    y = check_array(y, ensure_2d=False, dtype="numeric", input_name="y")
    y = column_or_1d(y, warn=True).astype(np.float64)
    weight = None if sample_weight is None else check_sample_weight(sample_weight, y)
    used = y if weight is None else y[weight > 0]
    if model.target_transform == "log" and np.any(used <= 0.0):
        raise ValueError(
            "target_transform='log' needs a target that is positive everywhere, but its "
            f"smallest value is {np.min(used):g}; shift y, or use target_transform=None."
        )
    return y, weight, used


class SparseTargetTransform(MetaEstimatorMixin, TargetRegressor):
    """Regression of y or of log y, chosen by leave-one-out density.

    The leave-one-out densities of both models are compared as densities of y: that of log y is
    multiplied by its Jacobian, log p(y) = log p(log y) - log y. The logarithm is used if it is
    ahead by `margin` nats. It gives better intervals if the spread of a positive target grows with
    its level, as for prices, counts and concentrations.

    All predictions belong to one distribution of y, that of exp(x) where x has the predicted
    distribution of log y. Its mean can be far above most quantiles, and is infinite for Student's
    t. So the upper tail is truncated at the smaller of two bounds: three standard deviations of log
    y above its mean, and twice the largest training target. The second bound is raised if the
    predicted median exceeds the largest training target.

    Parameters
    ----------
    regressor : estimator, default=None
        A regressor of this package with `loo_`, or a Pipeline that ends in one. None is
        ``SparseGPRegressor(gamma="ard")``.
    target_transform : {"auto", "log"} or None, default="auto"
        ``"auto"`` fits both models and compares them. A target with values that are not positive is
        not transformed, and `notes_` reports it.
    margin : float, default=50
        Smallest advantage of the logarithm in nats. The comparison is noisy for few rows.

    Attributes
    ----------
    regressor_ : estimator
        The fitted model, of y or of log y.
    target_transform_ : "log" or None
        The transform that was chosen.
    log_evidence_ : float
        Log evidence of y, whichever the model.
    density_gain_ : float
        Leave-one-out log density of the model of log y minus that of the model of y, both as
        densities of y; NaN if the two were not compared.
    loo_rmse_ : dict
        Leave-one-out RMSE of the mean of y by the model of ``"y"`` and of ``"log y"``.
    notes_ : list of str
        Chosen transform, with the reason.
    n_features_in_ : int
        Number of inputs.
    feature_names_in_ : array of str
        Names of the inputs, if X has names.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import SparseTargetTransform
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
        self, regressor: Any = None, *, target_transform: Any = "auto", margin: float = MARGIN
    ):
        self.regressor = regressor
        self.target_transform = target_transform
        self.margin = margin

    @whole_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SparseTargetTransform:
        """Fit one model, or both and keep the better one.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Inputs.
        y : array of shape (n_samples,)
            Target.
        sample_weight : array of shape (n_samples,), optional
            A row of weight v counts as v equal rows. Weights that sum to two or less are treated as
            relative, and scaled to sum to the number of rows with a positive weight.

        Returns
        -------
        self
        """
        self._validate_params()
        y, weight, used = read_target(self, y, sample_weight)
        weights = {} if weight is None else {"sample_weight": weight}
        counts = np.ones(len(y)) if weight is None else weight
        n_bad = int(np.sum(used <= 0))
        compare = self.target_transform == "auto" and not n_bad
        models, messages = {}, {}
        if self.target_transform != "log":
            models["y"], messages["y"] = self._fitted(X, y, weights)
        if self.target_transform == "log" or compare:
            logs = logarithm(y)
            self._largest_log = float(np.log(np.max(used)))
            models["log y"], messages["log y"] = self._fitted(X, logs, weights)
        densities, self.loo_rmse_ = {}, {}
        for key, model in models.items():
            loo = _loo_predictions(model)
            mean, jacobian = y - loo.residuals, np.zeros(())
            if key == "log y":
                tail = _last(model).noise_tail_
                mean = self._of_y(LocationScale(logs - loo.residuals, loo.std, tail)).mean
                jacobian = logs
            counted = loo.weight  # duplicates are one observation
            with np.errstate(over="ignore"):
                squares = np.square(np.where(counted > 0, y - mean, 0.0))
                self.loo_rmse_[key] = float(np.sqrt(counted @ squares / np.sum(counted)))
            densities[key] = float(counted @ (loo.log_density - jacobian))
        chosen = next(iter(models))
        self.density_gain_ = np.nan
        if compare:
            self.density_gain_ = densities["log y"] - densities["y"]
            chosen = "log y" if self.density_gain_ > self.margin else "y"
        for message in messages[chosen]:
            warn(message)
        self.regressor_ = models[chosen]
        self.target_transform_ = "log" if chosen == "log y" else None
        self.notes_ = self._notes(n_bad, len(used))
        self.log_evidence_ = float(_last(self.regressor_).log_evidence_)
        if chosen == "log y":
            self.log_evidence_ -= float(counts @ logs)
        self._take_inputs(self.regressor_)
        return self

    def _fitted(
        self, X: Any, y: np.ndarray, weights: dict[str, np.ndarray]
    ) -> tuple[Any, list[Warning]]:
        """Return the regressor fitted to this target, and the warnings of the fit."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = clone(self._regressor()).fit(X, y, **weights)
        return model, [entry.message for entry in caught if isinstance(entry.message, Warning)]

    def _notes(self, n_bad: int, n_rows: int) -> list[str]:
        """Return sentences on what was chosen."""
        if self.target_transform is None:
            return []
        if self.target_transform == "log":
            return ["the logarithm of the target is modelled, as requested"]
        if n_bad:
            return [
                f"the target is modelled without a transform: {n_bad} of {n_rows} values are zero "
                "or negative, so they have no logarithm"
            ]
        ahead = f"its leave-one-out log density is {self.density_gain_:+.4g} nats relative to y"
        if self.target_transform_ is None:
            return [
                f"the target is modelled without a transform: the logarithm would need to be "
                f"{self.margin:g} nats ahead, but {ahead}"
            ]
        notes = [f"the logarithm of the target is modelled: {ahead}"]
        if self.loo_rmse_["log y"] > _WORSE * self.loo_rmse_["y"]:
            notes.append(
                f"the leave-one-out RMSE of the mean is {self.loo_rmse_['log y']:.4g} with the "
                f"logarithm and {self.loo_rmse_['y']:.4g} without. If only the mean matters, "
                "do not transform the target."
            )
        return notes

    def predict(
        self, X: Any, return_std: bool | str = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict the mean of a new observation at each row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.
        return_std : bool or "function", default=False
            Also return the standard deviation of a new observation, noise included;
            ``"function"``: of its mean given the function, without the noise.

        Returns
        -------
        mean : array of shape (n_samples,)
        std : array of shape (n_samples,)
            Only if requested.
        """
        check_is_fitted(self)
        if self.target_transform_ is None:
            return self.regressor_.predict(X, **({"return_std": return_std} if return_std else {}))
        if is_dask(X):
            return predict_blocks(self, X, return_std)
        predictive = self._of_y(_last(self.regressor_)._predictive(self._inner_rows(X)))
        if without_noise(return_std):
            _, std = self.regressor_.predict(X, return_std=return_std)
            return predictive.mean, function_std(predictive, std)
        return (predictive.mean, predictive.std) if return_std else predictive.mean

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
        check_is_fitted(self)
        rows = self._inner_rows(X)
        draws = _last(self.regressor_).sample_y(rows, n_samples, random_state)
        if self.target_transform_ is None:
            return draws
        return exponential_draws(draws, self._of_y(_last(self.regressor_)._predictive(rows)))

    def _summary_pairs(self) -> list[tuple[str, str]]:
        log = self.target_transform_ == "log"
        gain = f"; the density of log y is {self.density_gain_:+.4g} nats ahead"
        of = ("log y" if log else "y") + ("" if np.isnan(self.density_gain_) else gain)
        own = of_target(_last(self.regressor_)._summary_pairs(), "log y" if log else "")
        return [("model of", of), *own]

    def _summary_terms(self) -> list[Term]:
        return _last(self.regressor_)._summary_terms()

    def _summary_inputs(self) -> list[tuple[str, float]]:
        return _last(self.regressor_)._summary_inputs()

    def _predictive(self, X: Any) -> Predictive:
        inner = _last(self.regressor_)._predictive(self._inner_rows(X))
        return inner if self.target_transform_ is None else self._of_y(inner)

    def _of_y(self, of_log: Predictive) -> Exponential:
        """Return the distribution of y, given that of log y."""
        return of_exponential(of_log, self._largest_log)

    def _inner_rows(self, X: Any) -> Any:
        """Return rows as the regressor at the end of a pipeline sees them."""
        model = self.regressor_
        return model[:-1].transform(X) if isinstance(model, Pipeline) else X

    @property
    def _calibration(self) -> Any:  # type: ignore[override]
        return _last(self.regressor_)._calibration

    def _without_calibration(self) -> Any:
        model, regressor = copy.copy(self), self.regressor_
        own = _last(regressor)._without_calibration()
        if isinstance(regressor, Pipeline):
            regressor = copy.copy(regressor)
            regressor.steps = [*regressor.steps[:-1], (regressor.steps[-1][0], own)]
            own = regressor
        model.regressor_ = own
        return model

    def _regressor(self) -> Any:
        if self.regressor is not None:
            return self.regressor
        from .sparse_gp import SparseGPRegressor

        return SparseGPRegressor(gamma="ard")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._regressor())
        tags.input_tags = inner.input_tags
        tags.regressor_tags = inner.regressor_tags
        return tags


def logarithm(y: np.ndarray) -> np.ndarray:
    """Return log y; rows of weight zero may have any value."""
    return np.log(np.where(y > 0.0, y, 1.0))


def exponential_draws(draws: Any, of_target: Exponential) -> np.ndarray:
    """Return draws of y from draws of log y, bounded as the distribution of y is."""
    return np.exp(np.minimum(np.asarray(draws, dtype=np.float64), of_target.bound[:, None]))


def function_std(of_target: Exponential, log_std: Any) -> np.ndarray:
    """Return the standard deviation of the mean of y given the function of log y.

    That mean is log-normal around the prediction, and its logarithm varies like the function, by
    `log_std`. It is bounded as y is.
    """
    log_std = np.asarray(log_std, dtype=np.float64)
    centre = np.log(of_target.mean) - 0.5 * np.square(log_std)
    given_function = Exponential(LocationScale(centre, log_std), of_target.upper)
    return np.minimum(given_function.std, of_target.std)


def of_exponential(of_log: Predictive, largest_log: float) -> Exponential:
    """Return the distribution of y, given that of log y and the largest log y of the rows."""
    median = of_log.quantiles(np.array([0.5]))[..., 0]
    excess = np.maximum(np.asarray(median, dtype=np.float64) - largest_log, 0.0)
    return Exponential(of_log, largest_log + _BEYOND + 2.0 * excess)


def looks_log(y: np.ndarray) -> bool:
    """Return whether log y may be the better target, judged by the target alone.

    The comparison is that of ``target_transform="auto"`` without inputs: whether a log-normal has
    the higher likelihood than a normal, by half of the margin. On nine tables this agreed with the
    models: it held where they gained 60 nats or more by the logarithm, and not where they gained 6
    or less.
    """
    if np.min(y) <= 0.0:
        return False
    logs = np.log(y) - np.log(np.max(y))
    spread, spread_of_logs = np.std(y / np.max(y)), np.std(logs)
    if spread == 0.0 or spread_of_logs == 0.0:
        return False
    return bool(len(y) * (np.log(spread / spread_of_logs) - np.mean(logs)) > 0.5 * MARGIN)


def _last(model: Any) -> Any:
    return model[-1] if isinstance(model, Pipeline) else model


def _loo_predictions(model: Any) -> Any:
    last = _last(model)
    try:
        return last.loo_
    except AttributeError as error:
        raise ValueError(
            f"{type(last).__name__} has no leave-one-out predictions (loo_) to compare by; use a "
            "regressor of this package with a Gaussian posterior, or a Pipeline that ends in one."
        ) from error
