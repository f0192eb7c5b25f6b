"""A target, or its logarithm: whichever the data call for."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.stats import norm
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, column_or_1d, get_tags

from ._common import is_number
from ._sklearn import Number, check_is_fitted, check_sample_weight, whole_fit, words


class SparseTargetTransform(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    """Model y or log y with a sparse Bayesian regressor, chosen by evidence.

    Both models say how probable the data are, so they can be compared once both speak of y: a
    density of log y becomes one of y by its Jacobian, log p(y) = log p(log y) - sum log y. The
    logarithm must win by `margin` nats. Predictions are those of y itself: for f ~ N(m, v) they are
    exp(m + v/2) for the mean, and the quantiles exp(m -+ z sqrt(v)) for intervals.

    Prices, counts, concentrations: where the spread of a positive target grows with its level, the
    logarithm gives better intervals and often a better mean.

    Parameters
    ----------
    regressor : estimator, default=None
        A regressor with `log_evidence_` and ``predict(X, return_std=True)``, or a Pipeline that
        ends in one. None: ``ForwardRegressor(kernel="auto", gamma="ard", random_state=0)``.
    target_transform : {"auto", "log"} or None, default="auto"
        ``"auto"`` fits both and compares; targets that are not all positive stay as they are.
    margin : float, default=50
        Nats by which the logarithm must be ahead. Small data sets say little about this.

    Attributes
    ----------
    regressor_ : estimator
        The model that was chosen, of y or of log y.
    target_transform_ : "log" or None
    log_evidence_ : float
        Of y, whichever the model.
    evidence_gain_ : float
        Nats by which log y is ahead of y; NaN where the two were not compared.
    n_features_in_ : int
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
    >>> low, high = model.predict_interval(X, coverage=0.9)
    >>> bool(abs(np.mean((low < y) & (y < high)) - 0.9) < 0.05)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "target_transform": [None, words("auto", "log")],
        "margin": [Number(None, None, "both")],
    }

    def __init__(
        self, regressor: Any = None, *, target_transform: Any = "auto", margin: float = 50.0
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
        y : array of shape (n_samples,)
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
        self.evidence_gain_ = np.nan
        use_log = self.target_transform == "log"
        models = {}
        if not use_log:
            models[False] = clone(self._regressor()).fit(X, y, **weights)
        if use_log or (self.target_transform == "auto" and positive):
            # Rows of weight zero may hold anything.
            logs = np.log(np.where(counts > 0, y, 1.0))
            models[True] = clone(self._regressor()).fit(X, logs, **weights)
            jacobian = -float(counts @ logs)
        evidence = {key: _log_evidence(model) for key, model in models.items()}
        if True in models:
            evidence[True] += jacobian
        if len(models) == 2:
            # An intercept integrated out under a flat prior counts in units of its target; in units
            # of the standard deviation both are the same prior, whatever the units of y.
            units = _log_unit(models[True], logs, counts) - _log_unit(models[False], y, counts)
            self.evidence_gain_ = evidence[True] - evidence[False] - units
            use_log = bool(self.evidence_gain_ > self.margin)
        self.regressor_ = models[use_log]
        self.target_transform_ = "log" if use_log else None
        self.log_evidence_ = evidence[use_log]
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
        f, sd = self.regressor_.predict(X, return_std=True)
        variance = np.square(sd)
        with np.errstate(over="ignore"):  # far from the data the mean may well be beyond float64
            mean = np.exp(f + 0.5 * variance)
            std = mean * np.sqrt(np.expm1(variance))
        return (mean, std) if return_std else mean

    def predict_interval(self, X: Any, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """The central interval of a new observation at each row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        coverage : float, default=0.95
            Its probability.

        Returns
        -------
        lower, upper : arrays of shape (n_samples,)
        """
        check_is_fitted(self)
        if not (is_number(coverage) and 0.0 < coverage < 1.0):
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}.")
        f, sd = self.regressor_.predict(X, return_std=True)
        reach = norm.ppf(0.5 + 0.5 * coverage) * sd
        if self.target_transform_ is None:
            return f - reach, f + reach
        with np.errstate(over="ignore"):
            return np.exp(f - reach), np.exp(f + reach)

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


def _last(model: Any) -> Any:
    return model[-1] if isinstance(model, Pipeline) else model


def _log_unit(model: Any, target: np.ndarray, counts: np.ndarray) -> float:
    """Log standard deviation of the target, if the model has an intercept."""
    if not getattr(_last(model), "fit_intercept", False):
        return 0.0
    mean = np.average(target, weights=counts)
    variance = np.average(np.square(target - mean), weights=counts)
    return 0.5 * float(np.log(variance)) if variance > 0.0 else 0.0


def _log_evidence(model: Any) -> float:
    last = _last(model)
    if not hasattr(last, "log_evidence_"):
        raise ValueError(
            f"{type(last).__name__} has no log_evidence_ to compare by: use one of the regressors "
            "of this package, or a Pipeline that ends in one."
        )
    return float(last.log_evidence_)
