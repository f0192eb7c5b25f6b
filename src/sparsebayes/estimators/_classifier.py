"""The shell of the classifiers: from labels to a fit, and from a fit to probabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ..data import Data, merge_labelled_duplicates
from ..fitting import publish
from ..kernels import is_option
from ..labels import LabelFit, LabelMethod, LabelProblem, fit_labels
from ..relevance import with_inputs
from ..rows import is_dask, row_slices
from ._estimator import (
    Apply,
    SparseEstimator,
    apply_blocks,
    check_fitted,
    checked_rows,
    dense_rows,
    float_type,
    is_linear,
    kernel_spec,
    read_rows,
    reporter,
    seed_of,
    warn_outside,
)
from ._sklearn import (
    array_of_frame,
    check_sample_weight,
    check_target,
    feature_names,
    same_namespace,
    whole_fit,
)


class SparseClassifier(ClassifierMixin, SparseEstimator):
    """Base of the classifiers whose candidates are kernel functions or columns.

    A subclass gives its parameters and `_solve`, which fits a problem with one kernel. It may
    override `_problem` to define the candidates. Everything else (weights, the kernel, calibration,
    fitted attributes) is the same for all of them.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        Factor by which the weights of the rows of each class are multiplied; ``"balanced"`` gives
        all classes the same total weight. The probabilities are then those of a population with
        these weights.
    max_iter : int
        Maximum number of steps per binary problem.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Class labels, sorted.
    active_ : array of int
        Indices of the training rows (kernel models) or columns of X whose functions are in the
        model of at least one class.
    kernel_search_ : dict of arrays
        Kernels that were compared, if length scales were learnt: ``kernel``; ``one_width``, whether
        all inputs share one length scale; ``process_evidence``, the log evidence of the Gaussian
        process of the standardised labels; and ``loo_score``, the mean leave-one-out log-likelihood
        of the labels minus a penalty for the number of length scales and functions (NaN if it was
        not needed).
    coef_ : array of shape (1, n_active) or (n_classes, n_active)
        Weights of the active functions (with ``kernel=None`` of all columns of X), zero if a class
        does not use a function. There is one row for two classes, and one per class against the
        rest for more.
    coef_std_ : array of shape (1, n_features) or (n_classes, n_features)
        Standard deviation of each coefficient with ``kernel=None``, zero for columns that were not
        chosen.
    intercept_ : array of shape (1,) or (n_classes,)
        Constant term of each latent function.
    weight_precision_ : array of the shape of the active part of `coef_`
        Prior precision of each weight, infinite if a class does not use a function.
    log_evidence_ : float
        Laplace approximation of the log marginal likelihood, summed over the classes if there are
        more than two.
    calibration_ : float
        Slope of the line ``slope * log odds + intercept`` by which the log odds of the fitted model
        are calibrated, learnt by cross-validation of at most 1,000 rows. (For regressors
        `calibration_` is a factor of standard deviations.)
    calibration_intercept_ : array of shape (1,) or (n_classes,)
        Intercepts of that line.
    coupling_ : float
        With more than two classes, how the probabilities of each class against the others are
        combined: 0 divides them by their sum, 1 is the softmax of their log odds, and values
        between interpolate.
    posterior_
        Posterior distribution of the weights of `basis_`, one per class if there are more than two.
    """

    class_weight: Any = None
    _extrapolation_risk = "its probabilities may be too certain"
    _fitted: LabelFit

    def _solve(self, problem: LabelProblem) -> LabelFit:
        """Fit a problem with the kernel that it has."""
        raise NotImplementedError

    def _problem(self, data: Data, n_classes: int) -> LabelProblem:
        """Return the problem that the parameters of this estimator make of the data."""
        return LabelProblem(
            data,
            kernel_spec(self),
            fit_intercept=bool(self.fit_intercept),
            cache_size=self.cache_size,
            seed=seed_of(self.random_state),
            previous=self._fitted if self.warm_start else None,
            reporter=reporter(self),
            n_classes=n_classes,
        )

    def _method(self) -> LabelMethod:
        """Return how this estimator fits, for `fit_labels`."""
        return LabelMethod(self._solve, self.capabilities.selects, feature_names(self))

    @whole_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel matrix of the training rows.
        y : array of shape (n_samples,)
            Labels: numbers or strings, two classes or more.
        sample_weight : array of shape (n_samples,), optional
            A row of weight v counts as v equal rows. Weights that sum to two or less are treated as
            relative, and scaled to sum to the number of rows with a positive weight. Exact
            duplicates (same inputs and label) and weights above 1 are treated as one observation,
            unless the inputs are discrete or equal inputs have different labels.

        Returns
        -------
        self
        """
        self._check_parameters()
        data, classes = self._read(X, y, sample_weight)
        data = merge_labelled_duplicates(self._with_class_weight(data, classes))
        problem = self._problem(data, len(classes))
        fit = fit_labels(self._method(), problem)
        fit = replace(fit, attributes={"classes_": classes, **fit.attributes})
        publish(self, with_inputs(fit, problem, linear=is_linear(self), pooled=True))
        return self

    def _read(self, X: Any, y: Any, sample_weight: Any) -> tuple[Data, np.ndarray]:
        """Return the training data with class numbers as targets, and the classes."""
        check_target(self, y, numeric=False)
        X, y = read_rows(self, X, y)
        if not issparse(X):
            X = np.asarray(X, dtype=np.float64)
        weight = None if sample_weight is None else check_sample_weight(sample_weight, X)
        return encode_labels(Data(X, y, weight), type(self).__name__)

    def _with_class_weight(self, data: Data, classes: np.ndarray) -> Data:
        """Return the data with weights multiplied by the factor of each class."""
        if self.class_weight is None:
            return data
        return replace(data, weight=data.counts * self._class_factors(data, classes)[data.y])

    def _class_factors(self, data: Data, classes: np.ndarray) -> np.ndarray:
        """Return the factor that `class_weight` puts on the rows of each class."""
        if is_option(self.class_weight, "balanced"):
            # Total weight over n_classes times that of the class: weights act as repetition.
            totals = np.bincount(data.y[data.used], weights=data.counts[data.used])
            return np.sum(totals) / (len(totals) * totals)
        factors = compute_class_weight(self.class_weight, classes=classes, y=classes)
        if not np.all(factors > 0) or not np.all(np.isfinite(factors)):
            raise ValueError(
                f"class_weight must be positive and finite, got {self.class_weight!r}."
            )
        return factors

    # Predictions.

    @same_namespace
    def decision_function(self, X: Any) -> Any:
        """Return the log odds of each class, with the uncertainty of the weights integrated out.

        For `SparseGPClassifier` they are evaluated at the posterior mode.

        Parameters
        ----------
        X : array, sparse matrix or Dask array of shape (n_samples, n_features)
            Rows to predict. A Dask array is predicted block by block when the result is computed.

        Returns
        -------
        log_odds : array of shape (n_samples,) or (n_samples, n_classes)
            Log odds of ``classes_[1]`` for two classes; otherwise of each class against the rest.
        """
        check_fitted(self)
        fit = self._fitted
        if is_dask(X := array_of_frame(X, self)):
            width = len(fit.posteriors)
            z = apply_blocks(Apply(self, "decision_function"), X, width, float_type(X))
            return z[:, 0] if width == 1 else z
        X = checked_rows(self, X)
        warn_outside(self, X)
        n = X.shape[0]
        blocks = ((rows, dense_rows(self, X, rows)) for rows in row_slices(n, fit.block_rows))
        return fit.scores(blocks, n, X.dtype)

    @same_namespace
    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class, with the uncertainty of the weights integrated out.

        Parameters
        ----------
        X : array, sparse matrix or Dask array of shape (n_samples, n_features)
            Rows to predict. A Dask array is predicted block by block when the result is computed.

        Returns
        -------
        probabilities : array of shape (n_samples, n_classes)
            Probabilities, with columns in the order of ``classes_``.
        """
        check_fitted(self)
        if is_dask(X := array_of_frame(X, self)):
            width = len(self.classes_)
            return apply_blocks(Apply(self, "predict_proba"), X, width, float_type(X))
        return self._fitted.probabilities(self.decision_function(X))

    @same_namespace
    def predict(self, X: Any) -> Any:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array, sparse matrix or Dask array of shape (n_samples, n_features)
            Rows to predict. A Dask array is predicted block by block when the result is computed.

        Returns
        -------
        labels : array of shape (n_samples,)
        """
        check_fitted(self)
        if is_dask(X := array_of_frame(X, self)):
            return apply_blocks(Apply(self, "predict"), X, 1, self.classes_.dtype)[:, 0]
        z = self.decision_function(X)
        return self.classes_[np.argmax(z, axis=1) if z.ndim > 1 else (z > 0).astype(np.intp)]


def encode_labels(data: Data, name: str) -> tuple[Data, np.ndarray]:
    """Return data whose targets are labels with class numbers in their place, and the classes.

    The classes are those of the rows of positive weight; `name` is that of the model.
    """
    y, weight = _check_labels(data.y), data.weight
    classes = np.unique(y if weight is None else y[weight > 0])
    if len(classes) < 2:
        raise ValueError(f"{name} needs at least two classes, but y has only one: {classes[0]}.")
    # The number of a label that only rows without weight have is never read.
    codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    return replace(data, y=codes), classes


def _check_labels(y: Any) -> np.ndarray:
    """Return class labels as a vector; raise an error if one is missing."""
    labels = np.asarray(y).ravel()
    missing = np.flatnonzero([v is None for v in (labels if labels.dtype == object else ())])
    if len(missing):
        raise ValueError(
            f"The label in row {missing[0] + 1} of y is missing (None; {len(missing)} such "
            "rows). Drop these rows or label them."
        )
    check_classification_targets(y)
    return column_or_1d(y, warn=True)
