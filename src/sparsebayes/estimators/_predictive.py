"""Intervals and quantiles of new observations, for every regressor in one place."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._array import asarray_like, is_torch
from ..designs.candidates import is_number
from ..kernels import is_option
from ..posterior.leave_one_out import Calibration
from ..posterior.predictive import Predictive
from ..rows import is_dask
from ._estimator import Apply, apply_blocks, as_float, float_type, is_single
from ._sklearn import array_of_frame, check_is_fitted, same_namespace


class PredictiveMixin:
    """Adds `predict_interval` and `predict_quantiles` to a regressor.

    `_calibration` has the standardised leave-one-out residuals, or is None.
    """

    _calibration: Calibration | None = None

    def _predictive(self, X: Any) -> Predictive:
        raise NotImplementedError

    def _without_calibration(self) -> Any:
        """Return this model with the variances that it claims itself."""
        return self

    @same_namespace
    def predict_interval(
        self, X: Any, coverage: float = 0.95, calibrated: bool | str = True
    ) -> np.ndarray:
        """Return the central prediction interval of a new observation at each row.

        By default it agrees with `predict_quantiles`, `sample_y` and the standard deviation of
        `predict`: all are calibrated, and describe the same distribution.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.
        coverage : float, default=0.95
            Probability that the interval contains the observation.
        calibrated : {True, False, "conformal"}, default=True
            True multiplies the standard deviations by `calibration_`. False uses those of the
            fitted model. ``"conformal"`` uses quantiles of the standardised leave-one-out residuals
            instead of normal or Student quantiles.

        Returns
        -------
        interval : array of shape (n_samples, 2)
            Lower and upper end. They are infinite if there are too few rows for a conformal
            interval.

        Examples
        --------
        >>> import numpy as np
        >>> from sparsebayes import RVMRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-3, 3, (100, 1))
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(100)
        >>> model = RVMRegressor("rbf", gamma=0.5).fit(X, y)
        >>> interval = model.predict_interval(X, coverage=0.9)
        >>> bool(np.allclose(interval, model.predict_quantiles(X, [0.05, 0.95])))
        True
        >>> own = model.predict_interval(X, coverage=0.9, calibrated=False)
        >>> bool(np.allclose(np.ptp(interval, axis=1), model.calibration_ * np.ptp(own, axis=1)))
        True
        """
        check_is_fitted(self)
        if not (isinstance(calibrated, bool | np.bool_) or is_option(calibrated, "conformal")):
            raise ValueError(f"calibrated must be True, False or 'conformal', got {calibrated!r}.")
        ends = interval_ends(coverage)
        if is_dask(X := array_of_frame(X, self)):
            options = {"coverage": coverage, "calibrated": calibrated}
            return apply_blocks(Apply(self, "predict_interval", options), X, 2, float_type(X))
        if not isinstance(calibrated, str):
            model = self if calibrated else self._without_calibration()
            predictive = model._predictive(X)
            return _like(X, predictive.quantiles(ends), predictive)
        if self._calibration is None:
            raise ValueError(
                "calibrated='conformal' requires leave-one-out residuals, which this "
                f"{type(self).__name__} does not have. Use calibrated=True, or MAPIE for "
                "conformal intervals by cross-validation."
            )
        predictive = self._predictive(X)
        return _like(X, predictive.ends(self._calibration.factor(coverage)), predictive)

    @same_namespace
    def predict_quantiles(self, X: Any, alpha: Any) -> np.ndarray:
        """Return quantiles of a new observation at each row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.
        alpha : float or array of float
            Probabilities of the quantiles, between 0 and 1.

        Returns
        -------
        quantiles : array of shape (n_samples, len(alpha))
        """
        check_is_fitted(self)
        alpha = probabilities(alpha)
        if is_dask(X := array_of_frame(X, self)):
            apply = Apply(self, "predict_quantiles", {"alpha": alpha})
            return apply_blocks(apply, X, len(alpha), float_type(X))
        predictive = self._predictive(X)
        return _like(X, predictive.quantiles(alpha), predictive)


def interval_ends(coverage: Any) -> np.ndarray:
    """Return the probabilities of the ends of a central interval."""
    if not (is_number(coverage) and 0.0 < coverage < 1.0):
        raise ValueError(
            f"coverage must lie between 0 and 1, got {coverage!r}{_as_share(coverage)}."
        )
    return np.array([0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage])


def _as_share(percent: Any) -> str:
    """Return a question that suggests shares in place of per cent; an empty string otherwise."""
    values = np.asarray(percent)
    if values.dtype.kind not in "fiu" or not np.all((values >= 1.0) & (values < 100.0)):
        return ""
    return f" (did you mean {(values / 100.0).tolist()}?)"


def probabilities(alpha: Any) -> np.ndarray:
    """Return probabilities of quantiles as a checked array."""
    alpha = np.atleast_1d(np.asarray(alpha, dtype=np.float64))
    if alpha.ndim != 1 or not np.all((alpha > 0.0) & (alpha < 1.0)):
        shares = _as_share(alpha.tolist())
        raise ValueError(f"alpha must lie between 0 and 1, got {alpha.tolist()}{shares}.")
    return alpha


def _like(X: Any, values: np.ndarray, predictive: Predictive) -> np.ndarray:
    """Return quantiles of the distribution as a tensor where X is one, in float32 where X is."""
    if is_torch(X):
        return asarray_like(X, values)
    if not is_single(X) or not np.all(np.isfinite(values)):
        return values
    return as_float(np.float32, values, noise_std=float(np.min(predictive.std, initial=np.inf)))
