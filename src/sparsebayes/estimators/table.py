"""A model of a table as it comes: a data frame with categories, dates and gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import column_or_1d
from sklearn.utils.metaestimators import available_if

from .._extras import require
from ..models import CLASSES, REGRESSION, choose
from ._sklearn import check_is_fitted, check_sample_weight, whole_fit
from ._summary import Summary, facts
from ._table_inputs import TableInputs, as_frame
from .target_transform import looks_log

_ENOUGH_GAPS = 10  # rows with gaps, and without, that can tell of their noise
_FEW = 10  # different whole numbers that are taken for classes
_MANY_CLASSES = 100
_NEARLY = 0.995  # rank correlation with the target; measured on wage and its logarithm: 1
_TASKS = ("auto", REGRESSION, CLASSES)
_MISSING = ("impute", "drop", "error")


def table_model(task: str = "auto", **params: Any) -> TableModel:
    """Make a model that takes a data frame as it comes: categories, dates and gaps included.

    It is what the command line fits. Columns are sorted into numbers, categories and dates, encoded
    (by skrub), put on one scale and given to a sparse Bayesian model. What was made of the columns
    is said in `notes_`.

    Parameters
    ----------
    task : {"auto", "regression", "classification"}, default="auto"
        ``"auto"`` takes text, booleans and at most ten different whole numbers for classes.
    **params
        `model` (``"auto"``: the best we know; other names in `sparsebayes.models`), `missing`
        (``"impute"``: gaps are filled with the median and marked; ``"drop"``: rows with gaps are
        not fitted; ``"error"``), `drop` and `categories` (names of columns to leave out, and to
        take as categories although they hold numbers). All others are parameters of the model:
        `kernel`, `gamma`, `max_terms`, ...

    Returns
    -------
    model : TableModel
        An estimator with `predict`, and `predict_proba` or ``predict(return_std=True)``.

    Examples
    --------
    >>> import pandas as pd
    >>> from sparsebayes import table_model
    >>> frame = pd.DataFrame({"size": [1.0, 2, None, 4, 5, 6] * 8, "kind": list("aabbab") * 8})
    >>> price = 3.3 * frame["size"].fillna(3.0) + (frame["kind"] == "a")
    >>> model = table_model(model="linear").fit(frame, price)
    >>> model.task_, model.get_feature_names_out().tolist()
    ('regression', ['size', 'size missing', 'kind=b'])
    >>> model.notes_[1]
    '1 number, 1 category'
    >>> bool(model.score(frame, price) > 0.99)
    True
    """
    return TableModel(task, **params)


def _has(name: str) -> Any:
    """Whether the model at the end has this method; before the fit it may have."""

    def check(self: TableModel) -> bool:
        if hasattr(self, "estimator_"):
            return hasattr(self.estimator_[-1], name)
        return (name == "predict_proba") == (self.task == CLASSES) or self.task == "auto"

    return check


class TableModel(TransformerMixin, Summary):
    """The estimator behind `table_model`.

    It is a regressor or a classifier, by its task; as a transformer it gives the numbers that the
    model at its end sees, so `set_output` and `get_feature_names_out` speak of those.

    Parameters
    ----------
    task, model, missing, drop, categories, **params
        See `table_model`.

    Attributes
    ----------
    task_ : "regression" or "classification"
        What the target was taken for.
    inputs_ : transformer
        From a frame to numbers; ``inputs_.kinds_`` says what the columns are.
    estimator_ : Pipeline
        The scaler and the model; `final_` is the model without a transform of the target.
    model_ : str
        The name of the model that was taken.
    notes_ : list of str
        What was assumed and done, in sentences.
    target_name_ : str or None
        Name of the target, where it has one.
    fit_rows_ : array of int or None
        The rows that the model at the end was fitted to; None: all.
    classes_ : array
        For classes.
    feature_names_in_, n_features_in_
        Names and number of the columns of the frame.
    """

    def __init__(
        self,
        task: str = "auto",
        *,
        model: str = "auto",
        missing: str = "impute",
        drop: Any = (),
        categories: Any = (),
        **params: Any,
    ) -> None:
        self.task = task
        self.model = model
        self.missing = missing
        self.drop = drop
        self.categories = categories
        self._params = params

    # Parameters of the model at the end stand beside its own.

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, those of the model at the end included."""
        return {**super().get_params(deep=False), **self._params}

    def set_params(self, **params: Any) -> TableModel:
        """Set parameters; what is no parameter of the table belongs to the model."""
        own = self._get_param_names()
        for name, value in params.items():
            if name in own:
                setattr(self, name, value)
            else:
                self._params = {**self._params, name: value}
        return self

    @whole_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TableModel:
        """Fit the model.

        Parameters
        ----------
        X : data frame (pandas, polars) or array of shape (n_samples, n_features)
            Inputs.
        y : series or array of shape (n_samples,)
            Numbers, or the labels of classes.
        sample_weight : array of shape (n_samples,), optional
            A row of weight v counts as v equal rows.

        Returns
        -------
        self
        """
        frame = as_frame(X)
        if self.missing not in _MISSING:
            raise ValueError(f"missing must be one of {_MISSING}, got {self.missing!r}.")
        self.target_name_ = None if getattr(y, "name", None) is None else str(y.name)
        self.task_, y, said = read_target(y, self.task, self.target_name_)
        if len(y) != len(frame):
            raise ValueError(f"The table has {len(frame)} rows, but y has {len(y)} values.")
        notes, rows = [said], np.arange(len(y))
        weight = np.ones(len(y))
        if sample_weight is not None:
            weight = check_sample_weight(sample_weight, y)
            rows = np.flatnonzero(weight)
        if self.missing == "drop":
            rows = self._complete(frame, rows, notes)
        frame, target = frame.iloc[rows], y[rows]
        kind = "continuous"
        if self.task_ == CLASSES:
            kind = "binary" if len(np.unique(target)) == 2 else "multiclass"
        self.inputs_ = TableInputs(
            "impute" if self.missing == "impute" else "error",
            self._names("drop"),
            self._names("categories"),
            kind,
        )
        Z = self.inputs_.fit_transform(frame, target)
        notes += self.inputs_.notes_ + near_target(Z, self.inputs_, target, self.task_)
        choice = choose(self.task_, self.model, *Z.shape)
        if choice.name != self.model:
            notes.append(
                f"{self.model!r} is {choice.name!r} here: {Z.shape[0]} rows and {Z.shape[1]} inputs"
            )
        estimator = choice.make(**self._params)
        if _noise_may_vary(estimator) and "noise_variance" not in self._params:
            gaps = np.count_nonzero(self.inputs_.has_gap(Z))
            if _ENOUGH_GAPS <= gaps <= len(Z) - _ENOUGH_GAPS:
                estimator.set_params(noise_variance="input")
                notes.append(f"{gaps} rows with gaps may be noisier: noise_variance='input'")
        if "groups" in estimator.get_params() and estimator.groups is None:
            estimator.set_params(groups=self.inputs_.sources_)
        self.model_ = choice.name
        self.notes_ = notes
        self.n_features_in_ = self.inputs_.n_features_in_
        self.feature_names_in_ = self.inputs_.feature_names_in_
        self.estimator_ = make_pipeline(StandardScaler(), estimator)
        if len(rows) > choice.fit_rows:
            notes.append(f"fitted to {choice.fit_rows:,} of {len(rows):,} rows, drawn at random")
            drawn = draw_rows(target, choice.fit_rows, self.task_)
            Z, target, rows = Z[drawn], target[drawn], rows[drawn]
        self.fit_rows_ = None if len(rows) == len(y) else rows
        weights = {}
        if sample_weight is not None:
            weights = {
                f"{step}__sample_weight": weight[rows] for step in self.estimator_.named_steps
            }
        self.estimator_.fit(Z, target, **weights)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The numbers that the model sees, before they are put on one scale.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features)
            Rows to encode.

        Returns
        -------
        Z : array of shape (n_samples, n_inputs)
            Or a frame, see `set_output`.
        """
        check_is_fitted(self)
        return self.inputs_.transform(X)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of what `transform` gives."""
        check_is_fitted(self)
        return self.inputs_.get_feature_names_out()

    def predict(self, X: Any, **options: Any) -> Any:
        """Predict each row: the mean, or the most probable class.

        Parameters
        ----------
        X : data frame or array of shape (n_samples, n_features)
            Rows to predict.
        **options
            Of the model at the end: ``return_std=True`` for regressors with error bars.

        Returns
        -------
        prediction : array of shape (n_samples,); with ``return_std=True`` also the std
        """
        return self._ask("predict", X, **options)

    @available_if(_has("predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, in the order of `classes_`."""
        return self._ask("predict_proba", X)

    @available_if(_has("predict_interval"))
    def predict_interval(self, X: Any, coverage: float = 0.95, **options: Any) -> Any:
        """The interval of a new observation at each row; see the model at the end."""
        return self._ask("predict_interval", X, coverage, **options)

    @available_if(_has("predict_quantiles"))
    def predict_quantiles(self, X: Any, alpha: Any) -> Any:
        """Quantiles of a new observation at each row; see the model at the end."""
        return self._ask("predict_quantiles", X, alpha)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R^2 for a regressor, accuracy for a classifier."""
        measure = accuracy_score if self.task_ == CLASSES else r2_score
        return float(measure(np.asarray(y), self.predict(X), sample_weight=sample_weight))

    @property
    def final_(self) -> Any:
        """The model at the end, without a transform of the target around it."""
        last = self.estimator_[-1]
        return getattr(last, "regressor_", last)

    @property
    def classes_(self) -> np.ndarray:
        """The classes."""
        if not hasattr(self, "estimator_") or self.task_ != CLASSES:
            raise AttributeError("Only a fitted classifier has classes_.")
        return self.estimator_[-1].classes_

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, RegressorTags

        tags = super().__sklearn_tags__()
        task = getattr(self, "task_", self.task)
        tags.estimator_type = {REGRESSION: "regressor", CLASSES: "classifier"}.get(task)
        tags.regressor_tags = RegressorTags() if task == REGRESSION else None
        tags.classifier_tags = ClassifierTags() if task == CLASSES else None
        tags.target_tags.required = True
        tags.input_tags.allow_nan = self.missing == "impute"
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.no_validation = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")

    def _found(self) -> list[tuple[str, str]]:
        said = [("table", note) for note in self.notes_]
        return [*said, ("model", self.model_), *facts(self.final_, self.get_feature_names_out())]

    def _ask(self, method: str, X: Any, *args: Any, **options: Any) -> Any:
        check_is_fitted(self)
        Z = self.estimator_[:-1].transform(self.inputs_.transform(X))
        return getattr(self.estimator_[-1], method)(Z, *args, **options)

    def _names(self, parameter: str) -> tuple[str, ...]:
        value = getattr(self, parameter)
        return (value,) if isinstance(value, str) else tuple(str(name) for name in value)

    def _complete(self, frame: Any, rows: np.ndarray, notes: list[str]) -> np.ndarray:
        """Those of the rows that have no gap."""
        used = frame.iloc[rows].drop(
            columns=[name for name in self._names("drop") if name in frame]
        )
        used = used.loc[:, used.notna().any()]
        there = used.notna().all(axis=1).to_numpy()
        if not np.any(there):
            raise ValueError("Every row has a gap: drop a column, or use missing='impute'.")
        if not np.all(there):
            notes.append(f"{np.sum(~there)} rows with gaps were left out")
        return rows[there]


def _noise_may_vary(estimator: Any) -> bool:
    """Whether an estimator can learn noise that depends on the inputs."""
    known = getattr(estimator, "_parameter_constraints", {}).get("noise_variance", [])
    return any("input" in getattr(kind, "options", ()) for kind in known)


def draw_rows(y: np.ndarray, size: int, task: str) -> np.ndarray:
    """Row numbers drawn at random; of classes in their shares, at least one row of each."""
    order = np.random.default_rng(0).permutation(len(y))
    if task == REGRESSION:
        return np.sort(order[:size])
    codes = np.unique(y[order], return_inverse=True)[1]
    taken = []
    for c in range(codes.max() + 1):
        rows = order[codes == c]
        taken.append(rows[: max(1, round(size * len(rows) / len(y)))])
    return np.sort(np.concatenate(taken))


# What the target says.


def read_target(y: Any, task: str, name: str | None = None) -> tuple[str, np.ndarray, str]:
    """The task, the target as an array, and a sentence on what was assumed."""
    require("cli", "A model of a table", "pandas", "skrub")
    import pandas as pd

    if task not in _TASKS:
        raise ValueError(f"task must be one of {_TASKS}, got {task!r}.")
    if hasattr(y, "to_pandas"):
        y = y.to_pandas()
    if not isinstance(y, pd.Series):
        y = column_or_1d(np.asarray(y), warn=True)
    y = pd.Series(np.asarray(y, dtype=object))
    what = "The target" if name is None else f"The target {name!r}"
    if len(y) == 0:
        raise ValueError(f"{what} has no rows.")
    gaps = np.flatnonzero(y.isna())
    if len(gaps):
        raise ValueError(f"{what} is missing in row {gaps[0] + 1}: leave such rows out.")
    as_bool = y.map(lambda v: isinstance(v, bool | np.bool_)).all()
    values = pd.to_numeric(y, errors="coerce").to_numpy(np.float64)
    numbers = not as_bool and not np.any(np.isnan(values))
    if not numbers and not as_bool and task != CLASSES:
        bad = np.flatnonzero(np.isnan(values))
        if task == REGRESSION or 2 * len(bad) < len(y):
            raise ValueError(
                f"{what} has {y.iloc[bad[0]]!r} in row {bad[0] + 1}, where a number is needed"
                + ("." if task == REGRESSION else ", and numbers elsewhere.")
            )
    labels = values if numbers else y.map(bool if as_bool else str).to_numpy()
    different = np.unique(labels)
    if len(y) == 1:
        raise ValueError(f"{what} has 1 sample: a fit needs at least two rows.")
    if len(different) == 1:
        what = f"{what} is of one class" if task == CLASSES else what
        raise ValueError(f"{what}: {different[0]} in every row, there is nothing to learn.")
    whole = numbers and bool(np.all(np.isfinite(values)) and np.all(values == np.round(values)))
    few = whole and len(different) <= _FEW and len(y) >= 5 * len(different)
    if task == "auto":
        task = CLASSES if few or not numbers else REGRESSION
        why = "text" if not numbers else f"{len(different)} different whole numbers"
        why = "true or false" if as_bool else why
        said = f"{what} is {why}: {task} assumed" if task == CLASSES else f"{what} is a number"
    else:
        said = f"{what}: {task}, as asked"
    if task == REGRESSION:
        values = labels.astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise ValueError(
                f"{what} has {values[bad[0]]} in row {bad[0] + 1}, where a finite number is needed."
            )
        if looks_log(values):
            said += ", positive with a long tail: target_transform='auto' may suit it better"
        return task, values, said
    if len(different) > max(2, min(_MANY_CLASSES, len(y) // 2)):
        raise ValueError(
            f"{what} has {len(different)} different values in {len(y)} rows, too many for classes."
        )
    if whole and np.all(np.abs(values) < 2**53):
        labels, different = labels.astype(np.int64), different.astype(np.int64)
    shown = ", ".join(map(str, different[:6])) + (", ..." if len(different) > 6 else "")
    return task, labels, f"{said} ({len(different)} classes: {shown})"


def near_target(Z: np.ndarray, inputs: TableInputs, y: np.ndarray, task: str) -> list[str]:
    """A sentence for each column that says nearly all of the target by itself."""
    from scipy.stats import rankdata
    from sklearn.tree import DecisionTreeClassifier

    n = len(y)
    if n < 20 or not 1 < Z.shape[1] <= 1000:
        return []
    some = np.random.default_rng(0).permutation(n)[:2000]
    Z, y = Z[some], y[some]
    names = inputs.get_feature_names_out()
    found = []
    if task == REGRESSION:
        ranks = rankdata(Z, axis=0) - 0.5 * (len(y) + 1)
        target = rankdata(y) - 0.5 * (len(y) + 1)
        norms = np.sqrt(np.sum(ranks**2, axis=0) * np.sum(target**2))
        found = [names[j] for j in np.flatnonzero(np.abs(target @ ranks) > _NEARLY * norms)]
    else:
        share = np.max(np.unique(y, return_counts=True)[1]) / len(y)
        for j, name in enumerate(names):
            tree = DecisionTreeClassifier(max_leaf_nodes=max(2, len(np.unique(y))), random_state=0)
            right = tree.fit(Z[:, [j]], y).score(Z[:, [j]], y)
            if 1.0 - right < (1.0 - _NEARLY) * (1.0 - share) * 10:
                found.append(name)
    return [
        f"{name!r} nearly says the target by itself: if it was made from it, leave it out"
        for name in found
    ]
