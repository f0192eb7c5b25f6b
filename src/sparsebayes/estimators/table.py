"""A model of a data frame with numeric, categorical and date columns and missing values."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Tags, check_random_state
from sklearn.utils.metaestimators import available_if

from .._array import RandomState
from .._warn import UnlikeRows
from ..fitting import ConstantTarget
from ..models import CLASSES, REGRESSION, ModelChoice, choices, choose
from ..posterior.predictive import LocationScale, Predictive, Substituted
from ..predict import without_noise
from ..rows import is_dask_frame
from ._predictive import PredictiveMixin
from ._sklearn import check_is_fitted, check_sample_weight, warn, whole_fit
from ._summary import Summary, Term, facts, relevant_inputs
from ._table_inputs import TableInputs, as_frame
from ._table_target import as_target, check_target, infer_task, target_named, target_notes

if TYPE_CHECKING:
    import pandas as pd

_ENOUGH_INCOMPLETE = 10  # rows with missing values, and without, that a noise model needs
_FEW_ROWS = 10  # below which a fit is warned of
_LEAKAGE = 0.995  # rank correlation with the target; it is 1 for wage and its logarithm
_OF_MOMENTS = ("predict_interval", "predict_quantiles")  # which mean and std suffice for
_MISSING = ("impute", "drop", "error")


def table_model(task: str = "auto", **params: Any) -> TableModel:
    """Make a model of a data frame with categories, dates and missing values.

    It is the model that the command line fits. Numeric, categorical and date columns are encoded as
    numbers, scaled, and given to a model of this package. By default that model is a mixture of
    Gaussian processes and linear models, weighted by their leave-one-out predictions. In
    regression, the mixture can include models of the logarithm of a positive target. `choices_`
    lists the members of the mixture, and `notes_` reports how each column was interpreted.

    Parameters
    ----------
    task : {"auto", "regression", "classification"}, default="auto"
        ``"auto"`` decides by the type of the target, so that all folds of a cross-validation have
        the same task: numbers are regression, even 0 and 1; text, booleans and categoricals are
        classification. Name the task in scikit-learn's stacking and voting, and in
        `cross_val_predict` with ``method="predict_proba"``: they need it before the fit.
    **params
        Keyword arguments:

        - `model`: ``"auto"`` (default), the mixture, or a name that ``sparsebayes models`` lists.
        - `prefer`, for ``model="auto"``: ``"accurate"`` (default) is the mixture. ``"small"`` is a
          single model, the one with the fewest terms whose leave-one-out score is within one
          standard error of the best.
        - `missing`: ``"impute"`` (default) replaces missing values by the median and adds a 0/1
          indicator column, ``"drop"`` drops rows with missing values, ``"error"`` raises an error.
        - `drop`: list of columns to ignore.
        - `categories`: list of numeric columns to treat as categorical.
        - All others are parameters of the estimator that `model` names, such as `kernel`, `gamma`,
          `noise_variance`, `target_transform` or `max_terms`. A name that it does not have raises
          an error.

    Returns
    -------
    model : TableModel
        An estimator: a classifier with `predict_proba`, or a regressor with ``predict(X,
        return_std=True)``, `predict_interval`, `predict_quantiles` and `sample_y`. Columns of a
        frame that were not in the training data are ignored.

    Examples
    --------
    >>> import pandas as pd
    >>> from sparsebayes import table_model
    >>> frame = pd.DataFrame({"size": [1.0, 2, None, 4, 5, 6] * 8, "kind": list("aabbab") * 8})
    >>> price = 3.3 * frame["size"].fillna(3.0) + (frame["kind"] == "a")
    >>> model = table_model(model="linear").fit(frame, price)
    >>> model.task_, model.get_feature_names_out().tolist()
    ('regression', ['size', 'size missing', 'kind=b'])
    >>> model.notes_[2]
    'columns: 1 numeric, 1 categorical'
    >>> bool(model.score(frame, price) > 0.99)
    True

    A model inside an ensemble of scikit-learn names its task:

    >>> from sklearn.ensemble import VotingRegressor
    >>> names = ["linear", "baseline"]
    >>> members = [(name, table_model("regression", model=name)) for name in names]
    >>> VotingRegressor(members).fit(frame, price).predict(frame).shape
    (48,)
    """
    return TableModel(task, **params)


def _is_pandas(table: object) -> bool:
    """Return whether a table or a target has the index of pandas."""
    return hasattr(getattr(table, "index", None), "equals")


def _warn_of_order(X: Any, y: Any) -> None:
    """Warn if pandas knows the rows of X and y by the same labels in another order."""
    if not (_is_pandas(X) and _is_pandas(y)) or len(X) != len(y) or X.index.equals(y.index):
        return
    if X.index.is_unique and X.index.isin(y.index).all():
        warn(
            "The rows of X and y have the same labels in another order. They are matched by "
            "position; use y.loc[X.index] to match them by label."
        )


def _has(name: str) -> Callable[[TableModel], bool]:
    """Return a check whether the fitted model has this method; an unfitted one may have it."""

    def check(self: TableModel) -> bool:
        if self._inner is not None:
            if name == "predict_proba" and (self.task, self.task_) == ("auto", REGRESSION):
                raise AttributeError(
                    "The target is numeric, so it was fitted as a regression, which has no "
                    "predict_proba. For classes use table_model(task='classification'), also "
                    "where scikit-learn numbers the labels (cross_val_predict)."
                )
            return hasattr(self._inner, name) or (name in _OF_MOMENTS and self._has_std)
        return (name == "predict_proba") == (self.task == CLASSES) or self.task == "auto"

    return check


def _warns_once(method: Callable[..., Any]) -> Callable[..., Any]:
    """Give each warning of the models inside once, in the units of the table."""

    @wraps(method)
    def call(self: TableModel, *args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = method(self, *args, **kwargs)
        reported: set[type] = set()
        for message in {str(entry.message): entry.message for entry in caught}.values():
            if not isinstance(message, UnlikeRows):
                warn(message)
            elif type(message) not in reported:  # each member and each copy of a row has its own
                reported.add(type(message))
                scaler, j = self.estimator_[0], message.found.column
                name = str(self.get_feature_names_out()[j])
                warn(message.before_scaling(name, scaler.mean_[j], scaler.scale_[j]))
        return result

    return call


@dataclass(frozen=True)
class _Encoded:
    """Rows as the inner model sees them, those with unknown values with known ones as well."""

    Z: np.ndarray
    unknown: np.ndarray  # numbers of the rows
    copies: list[np.ndarray]
    inflation: np.ndarray  # of the variance between the replaced rows


class TableModel(PredictiveMixin, TransformerMixin, Summary):
    """The estimator that `table_model` makes.

    It is a regressor or a classifier, depending on its task. As a transformer it returns the
    encoded columns, so `set_output` and `get_feature_names_out` refer to those.

    Parameters
    ----------
    task, model, missing, drop, categories, **params
        See `table_model`.

    Attributes
    ----------
    task_ : "regression" or "classification"
        The task that was inferred from the target, or requested.
    inputs_ : transformer
        Encoder of the data frame; ``inputs_.kinds_`` is how each column was interpreted.
    estimator_ : Pipeline
        Scaler and model. `final_` is the model without a transform of the target, or the model of
        largest weight in a mixture.
    model_ : str
        Name of the model that was fitted.
    notes_ : list of str
        How the table was interpreted and encoded.
    target_name_ : str or None
        Name of the target, if it has one.
    fit_rows_ : array of int or None
        Indices of the rows that the model was fitted to; None if all.
    choices_ : dict of lists
        Models that ``model="auto"`` compared, with their mean leave-one-out log density (or log
        probability), its standard error, their weight in the mixture, number of terms and seconds.
    classes_ : array
        Class labels, as they were given.
    feature_names_in_, n_features_in_
        Names and number of the columns of the frame.
    """

    def __init__(
        self,
        task: str = "auto",
        *,
        model: str = "auto",
        missing: str = "impute",
        drop: Sequence[str] = (),
        categories: Sequence[str] = (),
        **params: Any,
    ) -> None:
        self.task = task
        self.model = model
        self.missing = missing
        self.drop = drop
        self.categories = categories
        self._params = params

    # The parameters of the inner model are listed with those of the table.

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, those of the inner model included."""
        return {**super().get_params(deep=False), **self._params}

    def set_params(self, **params: Any) -> TableModel:
        """Set parameters; those that the table does not have belong to the inner model."""
        own = super().get_params(deep=False)
        for name, value in params.items():
            if name in own:
                setattr(self, name, value)
            else:
                self._params = {**self._params, name: value}
        return self

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> TableModel:
        """Fit the model.

        Parameters
        ----------
        X : data frame (pandas, polars, Dask) or array of shape (n_samples, n_features)
            Inputs. A Dask data frame is read into memory.
        y : series or array of shape (n_samples,)
            Target: numbers, or the labels of classes.
        sample_weight : array of shape (n_samples,), optional
            A row of weight v counts as v equal rows.

        Returns
        -------
        self
        """
        # Before the atomic fit, which would make nameless arrays of Dask data frames.
        X, y = (part.compute() if is_dask_frame(part) else part for part in (X, y))
        return self._fit_frame(X, y, sample_weight)

    @property
    def verbose(self) -> int:
        """Whether the inner model prints its progress."""
        return int(self._params.get("verbose") or 0)

    @whole_fit
    def _fit_frame(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> TableModel:
        """Fit the model to a table in memory."""
        if self.verbose:  # the packages that read dates take seconds to import
            print(f"[{type(self).__name__}] reading the columns", flush=True)
        frame = as_frame(X)
        _warn_of_order(X, y)
        if self.missing not in _MISSING:
            raise ValueError(f"missing must be one of {_MISSING}, got {self.missing!r}.")
        self.target_name_ = None if getattr(y, "name", None) is None else str(y.name)
        series = as_target(y)
        task = infer_task(series, self.task)
        target = check_target(task, series, self.target_name_)
        if len(target) != len(frame):
            raise ValueError(f"The table has {len(frame)} rows, but y has {len(target)} values.")
        self.task_ = task.kind
        (choice,) = choices(task.kind, [self.model])
        self.notes_ = target_notes(task, target, self.target_name_, choice.may_transform)
        n = len(target)
        rows, weight = np.arange(n), np.ones(n)
        if sample_weight is not None:
            weight = check_sample_weight(sample_weight, target)
            rows = np.flatnonzero(weight)
        if self.missing == "drop":
            rows = self._complete(frame, rows)
        frame, target = frame.iloc[rows], target[rows]
        if task.labels is None:
            self._warn_of_target(target, task.reason)
            self._labels = None
        else:
            self._labels = task.labels[np.isin(task.labels, target)]
        self.notes_ += repeated_notes(frame, target)
        Z = self._fit_inputs(frame, target, weight[rows])
        if len(target) < _FEW_ROWS:
            warn(
                f"The table has {len(target)} rows, too few to check a model. Its intervals "
                "depend on the prior."
            )
        choice = choose(self.task_, self.model, *Z.shape)
        if choice.name != self.model:
            self.notes_.append(
                f"{self.model!r} is {choice.name!r} here: {Z.shape[0]} rows and {Z.shape[1]} inputs"
            )
        self.model_ = choice.name
        self.estimator_ = make_pipeline(StandardScaler(), self._estimator(choice, Z))
        if len(rows) > choice.fit_rows:
            self.notes_.append(f"fitted to a random {choice.fit_rows:,} of {len(rows):,} rows")
            drawn = draw_rows(target, choice.fit_rows, self.task_)
            Z, target, rows = Z[drawn], target[drawn], rows[drawn]
        self.fit_rows_ = None if len(rows) == n else rows
        weights = {}
        if sample_weight is not None:
            weights = {
                f"{step}__sample_weight": weight[rows] for step in self.estimator_.named_steps
            }
        with warnings.catch_warnings():  # `_warn_of_target` names the column
            warnings.simplefilter("ignore", ConstantTarget)
            self.estimator_.fit(Z, target, **weights)
        self.notes_ += getattr(self._inner, "notes_", [])  # of a transform of the target
        return self

    def _warn_of_target(self, y: np.ndarray, reason: str) -> None:
        """Warn of a constant target, and of two numbers that may be classes."""
        what, values = target_named(self.target_name_), np.unique(y)
        if len(values) == 1:
            warn(
                f"{what} is constant ({values[0]:g} in every row). Every prediction is that "
                "value, and its standard deviation is meaningless."
            )
        elif len(values) == 2 and reason == "numeric":
            warn(
                f"{what} has two values, {values[0]:g} and {values[1]:g}. It is numeric, so a "
                f"regression is fitted; for class probabilities use task={CLASSES!r}."
            )

    def _fit_inputs(
        self, frame: pd.DataFrame, target: np.ndarray, weight: np.ndarray
    ) -> np.ndarray:
        """Learn the encoding of the columns, and return the encoded rows."""
        kind = "continuous"
        if self.task_ == CLASSES:
            kind = "binary" if len(np.unique(target)) == 2 else "multiclass"
        self.inputs_ = TableInputs(
            "impute" if self.missing == "impute" else "error",
            _as_names(self.drop),
            _as_names(self.categories),
            kind,
        )
        Z = self.inputs_.fit_transform(frame, target, weight)
        self.n_features_in_ = self.inputs_.n_features_in_
        self.feature_names_in_ = self.inputs_.feature_names_in_
        self.notes_ += self.inputs_.notes_
        self.notes_ += [
            f"{name!r} alone almost determines the target. If it was derived from the target "
            "(leakage), drop it."
            for name in leaking_inputs(Z, self.inputs_, target, self.task_)
        ]
        return Z

    def _estimator(self, choice: ModelChoice, Z: np.ndarray) -> BaseEstimator:
        """Return the unfitted model, with the parameters that depend on the table."""
        params = dict(self._params)
        if choice.groups_columns:
            params.setdefault("groups", self.inputs_.sources_)
        if choice.varying_noise and "noise_variance" not in params:
            n_incomplete = np.count_nonzero(self.inputs_.has_missing(Z))
            if _ENOUGH_INCOMPLETE <= n_incomplete <= len(Z) - _ENOUGH_INCOMPLETE:
                params["noise_variance"] = "input"
                self.notes_.append(
                    f"{n_incomplete} rows have missing values and are predicted less precisely, so "
                    "noise_variance='input' was set: the noise variance can depend on the inputs"
                )
        return choice.make(**params)

    def transform(self, X: Any) -> np.ndarray:
        """Encode rows as the numeric inputs of the model, before they are scaled.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features)
            Rows to encode.

        Returns
        -------
        Z : array of shape (n_samples, n_inputs)
            Encoded rows, or a data frame (see `set_output`).
        """
        check_is_fitted(self)
        return self.inputs_.transform(X)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> np.ndarray:
        """Return the names of the columns of `transform`."""
        check_is_fitted(self)
        return self.inputs_.get_feature_names_out()

    @_warns_once
    def predict(self, X: Any, **options: Any) -> Any:
        """Predict each row: the mean, or the most probable class.

        The prediction of a row with a category that the training data did not have is averaged over
        the known categories, and its standard deviation includes their spread.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features)
            Rows to predict.
        **options
            Options of the inner model, such as ``return_std=True`` for regressors, or
            ``return_std="function"`` for the standard deviation without the noise.

        Returns
        -------
        prediction : array of shape (n_samples,); with ``return_std=True`` also the std
        """
        check_is_fitted(self)
        self._check_options(**options)
        encoded, model = self._encode(X), self.estimator_[-1]
        of_function = without_noise(options.get("return_std", False))
        if of_function and not choices(self.task_, [self.model_])[0].is_own:
            raise ValueError(
                f"return_std='function' is for models of this package, and {self.model_!r} is "
                f"{type(model).__name__}: use return_std=True."
            )
        prediction = model.predict(encoded.Z, **options)
        rows = encoded.unknown
        if len(rows) == 0:
            return prediction
        if self.task_ == CLASSES:
            if hasattr(self._inner, "predict_proba"):
                best = np.argmax(self._average_proba(encoded), axis=1)
                prediction[rows] = self.estimator_[-1].classes_[best]
            return prediction
        average = self._average(encoded, options if of_function else {})
        if not isinstance(prediction, tuple):
            prediction[rows] = average.mean
            return prediction
        mean, spread = prediction
        mean[rows] = average.mean
        if spread.ndim == 1:
            spread[rows] = average.std
        else:  # a covariance
            spread[rows, rows] = np.square(average.std)
        return mean, spread

    def _check_options(self, return_std: object = False, **_: object) -> None:
        """Raise an error where standard deviations are requested of a model without them."""
        if self._has_std or not return_std:
            return
        if self.task_ == CLASSES:
            raise TypeError(
                "return_std is for regression. Use predict_proba for the probabilities of classes."
            )
        raise TypeError(
            f"The model {self.model_!r} has no standard deviations. The regressors of sparsebayes "
            "and 'bayesian-ridge' have them."
        )

    @property
    def _has_std(self) -> bool:
        """Tell whether the fitted model has standard deviations; those of the baseline are zero."""
        known = signature(self._inner.predict).parameters
        return "return_std" in known and self.model_ != "baseline"

    @available_if(_has("predict_proba"))
    @_warns_once
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, in the order of `classes_`."""
        check_is_fitted(self)
        encoded = self._encode(X)
        proba = self.estimator_[-1].predict_proba(encoded.Z)
        if len(encoded.unknown):
            proba[encoded.unknown] = self._average_proba(encoded)
        order = {label: j for j, label in enumerate(self.estimator_[-1].classes_)}
        return proba[:, [order[label] for label in self.classes_]]

    @available_if(_has("predict_interval"))
    @_warns_once
    def predict_interval(
        self, X: Any, coverage: float = 0.95, calibrated: bool | str = True
    ) -> np.ndarray:
        """Return the central interval of a new observation at each row; see `final_`."""
        return super().predict_interval(X, coverage, calibrated)

    @available_if(_has("predict_quantiles"))
    @_warns_once
    def predict_quantiles(self, X: Any, alpha: ArrayLike) -> np.ndarray:
        """Return quantiles of a new observation at each row; see `final_`."""
        return super().predict_quantiles(X, alpha)

    @available_if(_has("sample_y"))
    @_warns_once
    def sample_y(self, X: Any, n_samples: int = 1, random_state: RandomState = 0) -> np.ndarray:
        """Draw new observations, an array of shape (n_rows, n_samples); see `final_`."""
        check_is_fitted(self)
        encoded = self._encode(X)
        draws = self.estimator_[-1].sample_y(encoded.Z, n_samples, random_state)
        if len(encoded.unknown):
            seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
            average = self._average(encoded, {})
            draws[encoded.unknown] = average.sample(n_samples, np.random.default_rng(seed))
        return draws

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return R² for a regressor, accuracy for a classifier."""
        measure, target = accuracy_score, np.asarray(y)
        if self.task_ != CLASSES:
            series = as_target(y)
            task = infer_task(series, self.task_)
            measure, target = r2_score, check_target(task, series, self.target_name_)
        return float(measure(target, self.predict(X), sample_weight=sample_weight))

    @property
    def _inner(self) -> Any:
        """The fitted model behind the scaler; None before a fit."""
        pipeline = vars(self).get("estimator_")
        return None if pipeline is None else pipeline[-1]

    @property
    def final_(self) -> BaseEstimator:
        """The fitted estimator inside, without a transform of the target around it."""
        last = self.estimator_[-1]
        return vars(last).get("regressor_", vars(last).get("classifier_", last))

    @property
    def choices_(self) -> dict[str, list[Any]]:
        """The models that were compared, one entry per model in each list."""
        table = getattr(self._inner, "choices_", None)
        if table is None:
            raise AttributeError("Only a fitted model='auto' has choices_.")
        return table

    @property
    def classes_(self) -> np.ndarray:
        """Labels of the classes as they were given, an ordered categorical's in its order."""
        if self._inner is None or self._labels is None:
            raise AttributeError("Only a fitted classifier has classes_.")
        return self._labels

    def __sklearn_tags__(self) -> Tags:
        from sklearn.utils import ClassifierTags, RegressorTags

        tags = super().__sklearn_tags__()
        task = vars(self).get("task_", self.task)
        tags.estimator_type = {REGRESSION: "regressor", CLASSES: "classifier"}.get(task)
        tags.regressor_tags = RegressorTags() if task == REGRESSION else None
        tags.classifier_tags = ClassifierTags() if task == CLASSES else None
        tags.target_tags.required = True
        tags.input_tags.allow_nan = self.missing == "impute"
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.no_validation = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return self._inner is not None

    def _summary_pairs(self) -> list[tuple[str, str]]:
        notes = [("table", note) for note in self.notes_]
        return [*notes, ("model", self.model_), *self._facts()]

    def _facts(self) -> list[tuple[str, str]]:
        """Return what describes the model inside, with the target where it is the logarithm."""
        log = vars(self._inner).get("target_transform_") == "log"
        target = f"log {self.target_name_ or 'y'}" if log else ""
        return facts(self.final_, self.get_feature_names_out(), target)

    def _summary_terms(self) -> list[Term]:
        """Return the terms of the model inside; coefficients of columns per unit of the column."""
        if not choices(self.task_, [self.model_])[0].is_own:
            return []
        names, scales = self.get_feature_names_out(), self.estimator_[0].scale_
        columns = {f"x{j}": (str(names[j]), scales[j]) for j in range(len(names))}
        terms = []
        for term in self.estimator_[-1]._summary_terms():
            if term.name != "intercept":  # which is that of scaled inputs
                name, unit = columns.get(term.name, (term.name, 1.0))
                terms.append(Term(name, term.group, term.coef / unit, term.std / unit))
        return terms

    def _summary_inputs(self) -> list[tuple[str, float]]:
        return relevant_inputs(self.final_, self.get_feature_names_out())

    # Rows with unknown values: predictions are averaged over known ones.

    def _encode(self, X: Any) -> _Encoded:
        """Return rows as the inner model sees them."""
        Z, unknown = self.inputs_.encode(X)
        scaler = self.estimator_[:-1]
        if not unknown:
            return _Encoded(scaler.transform(Z), np.empty(0, dtype=np.intp), [], np.empty(0))
        rows, copies, inflation = self.inputs_.with_known(Z, unknown)
        return _Encoded(
            scaler.transform(Z), rows, [scaler.transform(copy) for copy in copies], inflation
        )

    def _average(self, encoded: _Encoded, options: Mapping[str, Any]) -> Predictive:
        """Return the distribution of the rows with unknown values, without noise by `options`."""
        if options:
            predict = self.estimator_[-1].predict
            parts: list[Any] = [LocationScale(*predict(Z, **options)) for Z in encoded.copies]
        else:
            parts = [self._inner_predictive(copy) for copy in encoded.copies]
        return type(parts[0]).average(parts, encoded.inflation)

    def _average_proba(self, encoded: _Encoded) -> np.ndarray:
        """Return the probabilities of the rows with unknown values, by the inner classes."""
        model = self.estimator_[-1]
        return np.mean([model.predict_proba(copy) for copy in encoded.copies], axis=0)

    def _inner_predictive(self, Z: np.ndarray) -> Predictive:
        model = self._inner
        if isinstance(model, PredictiveMixin):
            return model._predictive(Z)
        try:
            return LocationScale(*model.predict(Z, return_std=True))
        except TypeError:  # a model of scikit-learn without standard deviations
            mean = model.predict(Z)
            return LocationScale(mean, np.zeros_like(mean))

    def _predictive(self, X: Any) -> Predictive:
        encoded = self._encode(X)
        predictive = self._inner_predictive(encoded.Z)
        if len(encoded.unknown) == 0:
            return predictive
        return Substituted(predictive, encoded.unknown, self._average(encoded, {}))

    @property
    def _calibration(self) -> Any:  # type: ignore[override]
        return self._inner._calibration if isinstance(self._inner, PredictiveMixin) else None

    def _without_calibration(self) -> Any:
        name, last = self.estimator_.steps[-1]
        if not isinstance(last, PredictiveMixin):
            return self
        model, estimator = copy.copy(self), copy.copy(self.estimator_)
        estimator.steps = [*estimator.steps[:-1], (name, last._without_calibration())]
        model.estimator_ = estimator
        return model

    def _complete(self, frame: pd.DataFrame, rows: np.ndarray) -> np.ndarray:
        """Return those of the rows that have no missing value."""
        used = frame.iloc[rows].drop(
            columns=[name for name in _as_names(self.drop) if name in frame]
        )
        used = used.loc[:, used.notna().any()]
        complete = used.notna().all(axis=1).to_numpy()
        if not np.any(complete):
            raise ValueError(
                "Every row has a missing value; drop a column, or use missing='impute'."
            )
        if not np.all(complete):
            self.notes_.append(f"{np.sum(~complete)} rows with missing values were dropped")
        return rows[complete]


def _as_names(columns: str | Iterable[object]) -> tuple[str, ...]:
    """Return the names of columns, of which a single one may be a string."""
    return (columns,) if isinstance(columns, str) else tuple(str(name) for name in columns)


def draw_rows(y: np.ndarray, size: int, task: str) -> np.ndarray:
    """Draw row numbers at random; classes keep their shares, and at least one row each."""
    order = np.random.default_rng(0).permutation(len(y))
    if task == REGRESSION:
        return np.sort(order[:size])
    codes = np.unique(y[order], return_inverse=True)[1]
    taken = []
    for c in range(codes.max() + 1):
        rows = order[codes == c]
        taken.append(rows[: max(1, round(size * len(rows) / len(y)))])
    return np.sort(np.concatenate(taken))


def repeated_notes(frame: pd.DataFrame, y: np.ndarray) -> list[str]:
    """Return a note if rows have the inputs and the target of an earlier row."""
    import pandas as pd

    rows = pd.concat([frame, pd.Series(y, index=frame.index)], axis=1)
    n_repeated = int(rows.duplicated().sum())
    if n_repeated == 0:
        return []
    return [
        f"{n_repeated} {'row repeats' if n_repeated == 1 else 'rows repeat'} an earlier row (all "
        "inputs and the target are equal). Drop copies of one observation, because "
        "cross-validation is too optimistic with them."
    ]


def leaking_inputs(Z: np.ndarray, inputs: TableInputs, y: np.ndarray, task: str) -> list[str]:
    """Return the names of the inputs that almost determine the target by themselves."""
    from scipy.stats import rankdata
    from sklearn.tree import DecisionTreeClassifier

    n = len(y)
    if n < 20 or not 1 < Z.shape[1] <= 1000:
        return []
    rows = np.random.default_rng(0).permutation(n)[:2000]
    Z, y = Z[rows], y[rows]
    names = inputs.get_feature_names_out()
    if task == REGRESSION:
        ranks = rankdata(Z, axis=0) - 0.5 * (len(y) + 1)
        target = rankdata(y) - 0.5 * (len(y) + 1)
        norms = np.sqrt(np.sum(ranks**2, axis=0) * np.sum(target**2))
        return [names[j] for j in np.flatnonzero(np.abs(target @ ranks) > _LEAKAGE * norms)]
    share = np.max(np.unique(y, return_counts=True)[1]) / len(y)
    leaking = []
    for j, name in enumerate(names):
        tree = DecisionTreeClassifier(max_leaf_nodes=max(2, len(np.unique(y))), random_state=0)
        accuracy = tree.fit(Z[:, [j]], y).score(Z[:, [j]], y)
        if 1.0 - accuracy < (1.0 - _LEAKAGE) * (1.0 - share) * 10:
            leaking.append(name)
    return leaking
