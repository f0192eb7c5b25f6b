"""Encode the columns of a data frame as numbers: categories, dates and missing values."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.preprocessing import OneHotEncoder

from .._extras import require
from .._warn import suggestion
from ..designs.candidates import power_of_two
from ..rows import is_dask_frame
from ._mean_target import MeanTarget
from ._sklearn import check_is_fitted, warn

if TYPE_CHECKING:
    import pandas as pd

# Text that stands for a missing value, in files and in data frames.
MISSING_TEXT = (
    *("", "?", "-", ".", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL"),
    *("None", "none", "missing", "Missing"),
)
_MANY_CATEGORIES = 40  # a column with fewer gets an indicator for each; skrub's number
_ROWS_PER_CATEGORY = 10  # a category needs as many rows, or 2 % of them where that is less
_EXTREME = 1e100  # numbers beyond are scaled, so that their squares are finite
_MOST_KNOWN = 20  # values of a categorical that replace an unknown one
_QUANTILES = 10  # of a numeric column, for the same purpose
_FEWEST_DF = 3  # degrees of freedom of the spread of two or three categories
_AMOUNT = re.compile(r"[-+]?[$€£¥₹]?\s?[-+]?\d[\d.,'\s]*[$€£¥₹%]?")
_FORMATTED = re.compile(
    r"(?P<sign>[-+]?)(?P<currency>[$€£]?)\s?(?P<inner_sign>[-+]?)"
    r"(?P<whole>[1-9]\d{0,2}(,\d{3})+|\d+)(?P<decimals>(\.\d+)?)\s?(?P<percent>%?)"
)
ALL_MARKS = ",$€£%"  # of `number_marks`
CODE = re.compile(r"0\d+")
_DOTTED_DATE = re.compile(r"\d{1,2}\.\d{1,2}\.\d{4}.*")
_YEAR_FIRST = re.compile(r"\d{4}.*")
_DATES_READ = 30  # texts of which the format is guessed
_SENTINEL = re.compile(r"-9|-?99+")
_ROW_NAME = re.compile(
    r"|[Uu]nnamed.*|[Ii]ndex|[Rr]ow([_ ]?[Nn](ames?|umbers?))?|[Nn][RrOo]"
    r"|(.*[\W_])?[Ii][Dd]|.*[a-z]I[dD]"
)
NUMERIC, ORDERED, CATEGORICAL, MEAN_TARGET, DATE = (
    *("numeric", "ordered", "categorical", "categorical (mean target)", "date"),
)
_COUNTED = {
    "numeric": (NUMERIC,),
    "ordered categorical": (ORDERED,),
    "categorical": (CATEGORICAL, MEAN_TARGET),
    "date": (DATE,),
}
_FILLED = {
    "missing values replaced by the median, with a 0/1 indicator column": (NUMERIC, ORDERED),
    "missing values as a category of their own": (CATEGORICAL, MEAN_TARGET),
    "missing dates replaced by the median": (DATE,),
}
Block = tuple[np.ndarray, list[str], list[str]]  # values, their names, the columns they are from


def as_frame(X: Any, names: Sequence[str] | None = None) -> pd.DataFrame:
    """Return X as a pandas DataFrame whose columns have text for names.

    A polars frame, a pyarrow table or a Dask data frame is converted. The columns of an array are
    called `names`, or x0, x1, ... without. Text that stands for a missing value (`MISSING_TEXT`)
    becomes one.
    """
    require("cli", "A model of a table", "pandas", "skrub")
    import pandas as pd

    if is_dask_frame(X):
        X = X.compute()
    if hasattr(X, "to_pandas"):
        require("cli", f"A table of type {type(X).__name__}", "pyarrow")
        X = X.to_pandas()
    if issparse(X):
        raise TypeError(
            "Sparse data was passed, but table_model needs dense columns. Pass X.toarray(), "
            "or use an estimator that accepts sparse X, such as BackfittingRegressor."
        )
    if not isinstance(X, pd.DataFrame):
        array = np.asarray(X)
        if array.ndim != 2:
            raise ValueError(
                f"Expected 2D input (a data frame or a 2D array), got {array.ndim} "
                "dimension(s). Reshape your data with array.reshape(-1, 1) if it has a "
                "single column."
            )
        if names is None:
            names = [f"x{j}" for j in range(array.shape[1])]
        if array.shape[1] != len(names):
            raise ValueError(
                f"X has {array.shape[1]} columns without names, but the table of the fit had "
                f"{len(names)}: {_listed(list(names))}."
            )
        X = pd.DataFrame(array, columns=list(names))
    frame = X.copy(deep=False)
    frame.columns = [str(name) for name in frame.columns]
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise ValueError(f"The table has two columns named {repeated[0]!r}; rename one.")
    for name, dtype in frame.dtypes.items():
        if isinstance(dtype, pd.ArrowDtype):
            frame[name] = _without_arrow(frame[name])
        if not isinstance(dtype, np.dtype) or dtype.kind == "O":
            frame[name] = _without_missing_text(frame[name])
    return frame.reset_index(drop=True)


def _without_arrow(column: pd.Series) -> pd.Series:
    """Return a column of pyarrow in a type of NumPy; pandas reads text and dates of it otherwise.

    Numbers and booleans are floats, so that a missing value is NaN.
    """
    import pandas as pd

    if column.dtype.kind in "biuf":
        return pd.Series(
            column.to_numpy(np.float64, na_value=np.nan), column.index, name=column.name
        )
    values = column.astype(object)
    return pd.to_datetime(values) if column.dtype.kind == "M" else values


def _without_missing_text(column: pd.Series) -> pd.Series:
    """Return a column whose text for missing values is missing."""
    try:
        texts = [v for v in column.dropna().unique() if isinstance(v, str)]
    except TypeError as error:
        raise TypeError(
            f"Column {column.name!r} contains objects other than numbers, text or dates "
            f"({error}). Drop or convert it."
        ) from None
    marks = [text for text in texts if text.strip() in MISSING_TEXT]
    return column.mask(column.isin(marks)) if marks else column


class TableInputs(BaseEstimator):
    """Encode the columns of a frame as float64 inputs.

    Numeric columns stay as they are. An ordered categorical becomes the position of its category.
    Any other categorical becomes a 0/1 indicator for each category that is not rare, or, with 40 or
    more categories, the mean target of its category (cross-fitted and shrunk). A date becomes its
    parts. Missing values of numeric columns are replaced by the median, with an indicator column;
    those of a categorical are a category. Columns that cannot help are dropped. `notes_` reports
    all of this.

    Parameters
    ----------
    missing : {"impute", "error"}
        Whether missing values are imputed or refused.
    drop, categories : sequences of str
        Columns to drop, and numeric columns to treat as categorical.
    target_type : {"continuous", "binary", "multiclass"}
        Type of the target that is averaged over categories.
    """

    def __init__(
        self,
        missing: str = "impute",
        drop: Sequence[str] = (),
        categories: Sequence[str] = (),
        target_type: str = "",
    ) -> None:
        self.missing = missing
        self.drop = drop
        self.categories = categories
        self.target_type = target_type

    def fit(
        self, X: Any, y: ArrayLike | None = None, sample_weight: np.ndarray | None = None
    ) -> TableInputs:
        """Learn how to encode each column."""
        self.fit_transform(X, y, sample_weight)
        return self

    def fit_transform(
        self, X: Any, y: ArrayLike | None = None, sample_weight: np.ndarray | None = None
    ) -> np.ndarray:
        """Learn how to encode each column, and encode the rows.

        Medians and mean targets are weighted. A category is rare by its number of rows.
        """
        frame = as_frame(X)
        weight = np.ones(len(frame)) if sample_weight is None else sample_weight
        if len(frame) == 0:
            raise ValueError("The table has no rows; a minimum of 2 is required.")
        _require_columns(frame, [*self.drop, *self.categories])
        self.feature_names_in_ = np.array(frame.columns, dtype=object)
        self.n_features_in_ = frame.shape[1]
        self.kinds_, self.dropped_ = self._sort_columns(frame)
        if not self.kinds_:
            raise ValueError(f"No column is left to predict from. Dropped: {self._dropped()}.")
        self._refuse_missing(frame)
        used = frame[list(self.kinds_)]
        missing = dict(zip(self.kinds_, used.isna().to_numpy().T, strict=True))
        blocks = [
            self._learn_numbers(frame, missing, weight),
            self._learn_indicators(frame),
            self._learn_means(frame, y, weight),
            self._learn_dates(frame, missing, weight),
        ]
        counts = {name: int(np.count_nonzero(rows)) for name, rows in missing.items()}
        self.missing_counts_ = {name: n for name, n in counts.items() if n}
        Z = np.column_stack([values for values, _, _ in blocks])
        self._kept = np.flatnonzero(np.ptp(Z, axis=0) > 0.0)
        if len(self._kept) == 0:
            raise ValueError("No column is left to predict from, because all of them are constant.")
        names = [name for _, outputs, _ in blocks for name in outputs]
        sources = [name for _, _, columns in blocks for name in columns]
        self._names = np.array(names, dtype=object)[self._kept]
        self.sources_ = np.array(sources, dtype=object)[self._kept]
        Z = Z[:, self._kept]
        self._learn_known(frame, Z, missing)
        return Z

    def transform(self, X: Any) -> np.ndarray:
        """Encode new rows, and warn of values that the training data did not have."""
        return self.encode(X)[0]

    def encode(self, X: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Encode new rows, and report which values of which columns are unknown.

        A category that the training data did not have is unknown, and so is a missing value of a
        column that had none. They are warned of.

        Returns
        -------
        Z : array of shape (n_rows, n_inputs)
            An unknown category has zeros, or the mean target of all rows; an unknown number has the
            median.
        unknown : dict of arrays of bool, of shape (n_rows,)
            By the name of the column, where it has unknown values. See `with_known`.
        """
        check_is_fitted(self)
        frame = as_frame(X, self.feature_names_in_.tolist())
        _require_columns(frame, self.kinds_)
        self._refuse_missing(frame)
        values = self._read_numbers(frame)
        times = {name: self._read_times(frame[name]) for name in self._of(DATE)}
        absent = {name: np.isnan(values[:, j]) for j, name in enumerate(self._numeric())}
        absent |= {name: column.isna().to_numpy() for name, column in times.items()}
        unknown = {
            name: rows
            for name, rows in absent.items()
            if name not in self.missing_counts_ and np.any(rows)
        }
        texts = {name: _texts(frame[name]) for name in self._of(CATEGORICAL, MEAN_TARGET)}
        unknown |= self._unknown_categories(texts)
        incomplete = [name for name in unknown if frame[name].isna().any()]
        if incomplete:
            warn(
                f"Rows to predict have missing values in columns that had none in the training "
                f"data: {_listed(incomplete)}. Their predictions are averaged over the values of "
                "the training data."
            )
        blocks = [
            self._numbers(values),
            self._indicators(texts, len(frame)),
            self._means(texts, len(frame)),
            self._dates(times, len(frame)),
        ]
        return np.column_stack(blocks)[:, self._kept], unknown

    def with_known(
        self, Z: np.ndarray, unknown: dict[str, np.ndarray]
    ) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
        """Replace unknown values by those of the training data, one after the other.

        Predictions of these rows average over possible values: a new category is as likely to
        resemble each of the known ones. Their variance, inflated, is that of the unknown value.

        Parameters
        ----------
        Z, unknown
            Of `encode`.

        Returns
        -------
        rows : array of int
            The rows with an unknown value.
        copies : list of arrays of shape (len(rows), n_inputs)
            These rows with known values.
        inflation : array of shape (len(rows),)
            What the variance between the predictions of the copies is multiplied by.
        """
        rows = np.flatnonzero(np.any(list(unknown.values()), axis=0))
        inflation = np.ones(len(rows))
        rng = np.random.default_rng(0)
        replaced = []
        for name, where in unknown.items():
            inputs = np.flatnonzero(self.sources_ == name)
            if len(inputs) == 0:  # nothing of the column is used
                continue
            values, factor = self._known_values(name)
            inflation[where[rows]] = np.maximum(inflation[where[rows]], factor)
            # In an order of its own: two unknown values of a row vary independently.
            replaced.append((np.ix_(where[rows], inputs), rng.permutation(values)))
        copies = []
        for k in range(max([len(values) for _, values in replaced], default=1)):
            copy = Z[rows]
            for cells, values in replaced:
                copy[cells] = values[k % len(values)]
            copies.append(copy)
        return rows, copies, inflation

    def _known_values(self, name: str) -> tuple[np.ndarray, float]:
        """Return encoded values that may replace an unknown one, and their inflation."""
        if name in self._known:
            return self._known[name]
        return self._quantiles[:, [self._numeric().index(name)]], 1.0

    def has_missing(self, Z: np.ndarray) -> np.ndarray:
        """Return which encoded rows had a missing value in a numeric column."""
        first = len(self._numeric())  # the indicators stand behind the numbers
        indicators = (self._kept >= first) & (self._kept < first + len(self._marked))
        return np.asarray(np.any(Z[:, indicators], axis=1))

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> np.ndarray:
        """Return names of the inputs: ``age``, ``age missing``, ``colour=red``, ``when year``."""
        check_is_fitted(self)
        return self._names

    @property
    def notes_(self) -> list[str]:
        """How the columns were interpreted."""
        kinds = list(self.kinds_.values())
        counts = {word: sum(map(kinds.count, of)) for word, of in _COUNTED.items()}
        shown = ", ".join(f"{n} {word}" for word, n in counts.items() if n)
        notes = [f"columns: {shown}"]
        if self.dropped_:
            notes.append(f"dropped: {self._dropped()}")
        for what, of in _FILLED.items():
            counts = {
                name: n for name, n in self.missing_counts_.items() if self.kinds_[name] in of
            }
            if counts:
                notes.append(f"{what}: {_listed([f'{name} ({n})' for name, n in counts.items()])}")
        if many := self._of(MEAN_TARGET):
            notes.append(
                f"{_MANY_CATEGORIES} or more categories, each replaced by its mean target: "
                f"{_listed(many)}"
            )
        notes += list(self._ambiguous_dates.values())
        if digits := self._digits:
            notes.append(
                f"text of digits read as numbers: {_listed(digits)}. For codes, pass "
                f"categories=[{', '.join(map(repr, digits[:3]))}{', ...' * (len(digits) > 3)}]."
            )
        notes += [f"{name!r} is {marks_note(marks)}" for name, marks in self._marks.items()]
        for name, (value, n) in self.sentinels_.items():
            notes.append(sentinel_note(repr(name), value, n, "replace it by NaN"))
        return notes

    # Which column is what.

    def _sort_columns(self, frame: pd.DataFrame) -> tuple[dict[str, str], dict[str, str]]:
        """Return the kind of each column that is used, and why the others are not."""
        import pandas as pd

        kinds: dict[str, str] = {}
        dropped: dict[str, str] = {}
        self.sentinels_: dict[str, tuple[float, int]] = {}
        self._orders: dict[str, dict[str, int]] = {}
        self._marks: dict[str, str] = {}  # of text that is read as numbers
        self._digits: list[str] = []  # the columns that are such text, of integers
        numpy_columns = [name for name, dtype in frame.dtypes.items() if _has_numpy_dtype(dtype)]
        arrays = dict(zip(numpy_columns, _numpy_numbers(frame, numpy_columns).T, strict=True))
        for name in frame.columns:
            column = frame[name]
            kind, reason = NUMERIC, ""
            if name in self.drop:
                reason = "requested"
            elif name in self.categories:
                kind = CATEGORICAL if column.nunique() < _MANY_CATEGORIES else MEAN_TARGET
            elif name in arrays or _is_number_column(column):
                values = arrays[name] if name in arrays else _floats(column)
                finite = values[np.isfinite(values)]
                if len(finite) == 0:
                    reason = "all values missing"
                elif len(finite) == len(values) and np.all(finite == finite[0]):
                    reason = "constant"
                elif _ROW_NAME.fullmatch(name) and _all_different(finite, len(values)):
                    reason = "different in every row"
                elif sentinel := find_sentinel(finite):
                    self.sentinels_[name] = sentinel
            elif isinstance(column.dtype, pd.CategoricalDtype) and column.dtype.ordered:
                kind = ORDERED
                reason = _too_few_values(column)
                texts = [_text(value) for value in column.cat.categories]
                self._orders[name] = {text: code for code, text in enumerate(texts)}
            else:
                kind, reason = _kind_of_text(column)
                if kind == NUMERIC and not reason:
                    if marks := number_marks(column.dropna()):
                        self._marks[name] = marks
                    if _are_digits(column.dropna()):
                        self._digits.append(name)
            if reason:
                dropped[name] = reason
            else:
                kinds[name] = kind
        return kinds, dropped

    def _dropped(self) -> str:
        return _listed([f"{name} ({reason})" for name, reason in self.dropped_.items()])

    def _refuse_missing(self, frame: pd.DataFrame) -> None:
        if self.missing == "impute":
            return
        for name in self.kinds_:
            gap = np.flatnonzero(frame[name].isna())
            if len(gap):
                raise ValueError(
                    f"Column {name!r} is missing in row {gap[0] + 1} ({len(gap)} missing values); "
                    "impute them, drop such rows, or fit with missing='impute'."
                )

    def _of(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.kinds_.items() if kind in kinds]

    def _numeric(self) -> list[str]:
        return self._of(NUMERIC, ORDERED)

    # Encodings. `_learn_...` returns a block of the training rows; the method below it encodes new
    # rows in the same way.

    def _learn_numbers(
        self, frame: pd.DataFrame, missing: dict[str, np.ndarray], weight: np.ndarray
    ) -> Block:
        names = self._numeric()
        values = self._read_numbers(frame)
        is_missing = np.isnan(values)
        missing.update(zip(names, is_missing.T, strict=True))  # infinite values too
        self.fill_ = _quantiles(values, np.array([0.5]), weight)[0]
        self._quantiles = _quantiles(values, _middles(_QUANTILES), weight)
        size = np.nanmax(np.abs(values), axis=0, initial=0.0)
        extreme = (size > _EXTREME) | ((size < 1.0 / _EXTREME) & (size > 0))
        self.scale_ = np.where(extreme, power_of_two(size), 1.0)
        self._quantiles /= self.scale_
        self._marked = np.flatnonzero(is_missing.any(axis=0))
        marked = [names[j] for j in self._marked]
        outputs = [*names, *(f"{name} missing" for name in marked)]
        return self._numbers(values), outputs, names + marked

    def _numbers(self, values: np.ndarray) -> np.ndarray:
        is_missing = np.isnan(values)
        indicators = is_missing[:, self._marked].astype(np.float64)
        return np.column_stack([np.where(is_missing, self.fill_, values) / self.scale_, indicators])

    def _read_numbers(self, frame: pd.DataFrame) -> np.ndarray:
        """Return numeric and ordered columns as float64; text that is no number is missing."""
        names = self._numeric()
        values = np.empty((len(frame), len(names)))
        dtypes = frame.dtypes.to_dict()
        numpy_columns = [j for j, name in enumerate(names) if _has_numpy_dtype(dtypes[name])]
        if numpy_columns:  # all at once: a table may have thousands of them
            values[:, numpy_columns] = _numpy_numbers(frame, [names[j] for j in numpy_columns])
        for j in sorted(set(range(len(names))) - set(numpy_columns)):
            column, order = frame[names[j]], self._orders.get(names[j])
            if order is None:
                values[:, j] = _floats(column, self._marks.get(names[j], ""))
                expected = "where the training data have numbers"
            else:
                values[:, j] = [order.get(text, np.nan) for text in _texts(column)]
                expected = "which is not one of the categories of the training data"
            _warn_of_lost(column, np.isnan(values[:, j]), expected)
        values[~np.isfinite(values)] = np.nan
        return values

    def _learn_indicators(self, frame: pd.DataFrame) -> Block:
        names = self._of(CATEGORICAL)
        if not names:
            return np.empty((len(frame), 0)), [], []
        texts = {name: _texts(frame[name]) for name in names}
        self._one_hot = OneHotEncoder(
            drop="if_binary",
            min_frequency=max(1, min(_ROWS_PER_CATEGORY, len(frame) // 50)),
            handle_unknown="ignore",
            sparse_output=False,
        ).fit(np.column_stack(list(texts.values())))
        outputs, sources = [], []
        for label in self._one_hot.get_feature_names_out([f"{j}" for j in range(len(names))]):
            j, _, category = label.partition("_")
            sources.append(names[int(j)])
            category = "rare" if category == "infrequent_sklearn" else category
            outputs.append(f"{sources[-1]}={category}")
        return self._indicators(texts, len(frame)), outputs, sources

    def _indicators(self, texts: dict[str, np.ndarray], n_rows: int) -> np.ndarray:
        columns = [texts[name] for name in self._of(CATEGORICAL)]
        if not columns:
            return np.empty((n_rows, 0))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Found unknown categories", UserWarning)
            return self._one_hot.transform(np.column_stack(columns))

    def _learn_means(self, frame: pd.DataFrame, y: Any, weight: np.ndarray) -> Block:
        names = self._of(MEAN_TARGET)
        if not names:
            return np.empty((len(frame), 0)), [], []
        texts = [_texts(frame[name]) for name in names]
        self._encoder = MeanTarget(self.target_type)
        means = self._encoder.fit_transform(np.column_stack(texts), y, weight)
        classes, labels = self._encoder.classes_, [""]
        if classes is not None and means.shape[1] > len(names):  # classes have a mean each
            labels = [f" {c}" for c in classes]
        outputs = [f"{name} (mean target{label})" for name in names for label in labels]
        return means, outputs, [name for name in names for _ in labels]

    def _means(self, texts: dict[str, np.ndarray], n_rows: int) -> np.ndarray:
        columns = [texts[name] for name in self._of(MEAN_TARGET)]
        if not columns:
            return np.empty((n_rows, 0))
        return self._encoder.transform(np.column_stack(columns))

    def _unknown_categories(self, texts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return, and warn of, the rows whose category the training data did not have."""
        unknown = {}
        learnt = vars(self)  # an encoder of columns that there are not is not learnt
        for kind, encoder in ((CATEGORICAL, "_one_hot"), (MEAN_TARGET, "_encoder")):
            for j, name in enumerate(self._of(kind)):
                new = set(texts[name]) - set(learnt[encoder].categories_[j])
                if new:
                    unknown[name] = np.isin(texts[name].astype(str), list(new))
                _warn_of_categories(name, sorted(new - {"missing"}))
        return unknown

    def _learn_dates(
        self, frame: pd.DataFrame, missing: dict[str, np.ndarray], weight: np.ndarray
    ) -> Block:
        self._parsers: dict[str, BaseEstimator] = {}
        self._ambiguous_dates: dict[str, str] = {}
        outputs, sources, times = [], [], {}
        for name in self._of(DATE):
            from skrub import DatetimeEncoder  # takes two seconds to import

            column = frame[name].dropna()
            parser: Any = _date_parser(column) or _date_parser(column.iloc[:1000])
            parts = DatetimeEncoder(add_total_seconds=False, add_weekday=True)
            self._parsers[name] = (parser, parts)
            times[name] = self._read_times(frame[name])
            if note := _order_note(column, parser, parser.format_):
                self._ambiguous_dates[name] = note
            made = [str(p)[5:] for p in parts.fit_transform(times[name].rename("date")).columns]
            missing[name] = times[name].isna().to_numpy()
            outputs += [f"{name} {part}" for part in [*made, "seconds"]]
            sources += [name] * (len(made) + 1)
        self._date_fill = np.full(len(outputs), np.nan)
        if outputs:
            values = self._dates(times, len(frame))
            self._date_fill = _quantiles(values, np.array([0.5]), weight)[0]
        return self._dates(times, len(frame)), outputs, sources

    def _dates(self, times: dict[str, pd.Series], n_rows: int) -> np.ndarray:
        blocks = [np.empty((n_rows, 0))]
        for name, (_, parts) in self._parsers.items():
            column = times[name]
            blocks.append(parts.transform(column).to_numpy(np.float64))
            seconds = column.dt.tz_localize(None).astype("datetime64[ns]")
            ticks = seconds.to_numpy().astype(np.int64) / 1e9
            blocks.append(np.where(column.isna(), np.nan, ticks)[:, None])
        array = np.column_stack(blocks)
        return np.where(np.isnan(array), self._date_fill, array)

    def _read_times(self, column: pd.Series) -> pd.Series:
        """Return a column as times: in the format of the training data, or as in ISO 8601.

        Text that is neither is read in the format that reads the most rows. Dotted dates are day
        first; others have the order of the training data if both orders are possible.
        """
        import pandas as pd

        parser, _ = self._parsers[column.name]
        present = column.dropna()
        is_text = all(isinstance(value, str) for value in present)
        learnt = parser.format_ or ("ISO8601" if is_text and len(present) else None)
        chosen, times = learnt, _times(column, parser, learnt)
        lost = times.isna() & column.notna()
        day_first = _is_day_first(parser.format_)
        for new in _date_formats(column[lost], bool(day_first)) if is_text else []:
            others = _times(column, parser, new)
            if others.isna().sum() < times.isna().sum():
                chosen, times = new, others
        if chosen != learnt and day_first is None:
            if note := _order_note(present, parser, chosen):
                warn(note)
        elif _is_day_first(chosen) not in (None, day_first) and "%d." not in str(chosen):
            read, trained = ("month", "day") if day_first else ("day", "month")
            warn(
                f"Dates in column {column.name!r} are read {read} first because of "
                f"{column[lost].iloc[0]!r}, but those of the training data were {trained} first. "
                "Pass datetimes, or text as year-month-day."
            )
        example = pd.Timestamp(2021, 6, 15).strftime(parser.format_ or "%Y-%m-%d")
        _warn_of_lost(column, times.isna().to_numpy(), f"where a date such as {example} is needed")
        return times

    def _learn_known(
        self, frame: pd.DataFrame, Z: np.ndarray, missing: dict[str, np.ndarray]
    ) -> None:
        """Keep values of each column that may replace an unknown one."""
        self._known: dict[str, tuple[np.ndarray, float]] = {}
        for name in self._of(ORDERED, CATEGORICAL, MEAN_TARGET, DATE):
            inputs = np.flatnonzero(self.sources_ == name)
            values, factor = Z[np.ix_(~missing[name], inputs)], 1.0
            if len(inputs) == 0:
                continue
            if self.kinds_[name] == DATE:
                values = values[np.argsort(values[:, -1])]
            else:
                values = np.unique(values, axis=0)
                mean = self.kinds_[name] == MEAN_TARGET
                factor = _inflation(frame[name].nunique() if mean else len(values))
            if len(values) > _MOST_KNOWN:
                values = values[(_middles(_MOST_KNOWN) * len(values)).astype(np.intp)]
            self._known[name] = (values, factor)


def _quantiles(values: np.ndarray, levels: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return quantiles of each column without its missing values, of shape (n_levels, n_columns).

    With weights they are those of the rows repeated so many times, as inverses of the distribution
    function; where that is flat, the middle.
    """
    if values.shape[1] and np.all(weight == weight[0]):
        return np.nanquantile(values, levels, axis=0)
    out = np.empty((len(levels), values.shape[1]))
    for j, column in enumerate(values.T):
        known = ~np.isnan(column)
        order = np.flatnonzero(known)[np.argsort(column[known])]
        ends, x = np.cumsum(weight[order]), column[order]
        wanted = levels * ends[-1]
        slack = 1e-9 * ends[-1]
        last = len(x) - 1
        below, above = (np.searchsorted(ends, wanted + s, "left") for s in (-slack, slack))
        out[:, j] = 0.5 * (x[np.minimum(below, last)] + x[np.minimum(above, last)])
    return out


def _middles(n: int) -> np.ndarray:
    """Return the middles of n equal parts of (0, 1)."""
    return (np.arange(n) + 0.5) / n


def _inflation(n: int) -> float:
    """Return what the variance of n known categories is multiplied by for one that is new.

    It is the variance of a Student's t of n - 1 degrees of freedom and scale s sqrt(1 + 1/n), the
    prediction of one more draw from a normal population, over the variance of the n values.
    """
    if n < 2:
        return 1.0
    df = max(n - 1, _FEWEST_DF)
    return (n + 1) / (n - 1) * df / (df - 2)


def _warn_of_categories(name: str, new: list[str]) -> None:
    if not new:
        return
    more = f" ({len(new)} such categories)" if len(new) > 1 else ""
    warn(
        f"{new[0]!r} in column {name!r} was not in the training data{more}. Predictions are "
        "averaged over the known categories, and the standard deviation includes their spread."
    )


def _warn_of_lost(column: pd.Series, missing: np.ndarray, expected: str) -> None:
    """Warn of values that could not be read."""
    lost = np.flatnonzero(missing & column.notna().to_numpy())
    if len(lost):
        warn(
            f"Column {column.name!r} has {column.iloc[lost[0]]!r} in row {lost[0] + 1}, "
            f"{expected}. It is treated as missing ({len(lost)} rows)."
        )


def _kind_of_text(column: pd.Series) -> tuple[str, str]:
    """Return the kind of a column that is not numeric by its type, and why to drop it, or ''."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column):
        return DATE, _too_few_values(column)
    # Texts of NumPy are not str to the compiled parsers of pandas.
    present = column.dropna().map(lambda x: str(x) if isinstance(x, str) else x)
    if len(present) and not isinstance(column.dtype, pd.CategoricalDtype):
        is_code = _are_digits(present) and any(map(CODE.fullmatch, _texts(present)))
        if number_marks(present) is not None and not is_code:
            return NUMERIC, _too_few_values(column)
        if _are_dates(present.iloc[:1000]):
            return DATE, _too_few_values(column)
    counts = present.astype(str).value_counts()
    n = len(counts)
    if n >= _MANY_CATEGORIES and 2 * n > len(present):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of days that may be months
            if all(map(pd.tseries.api.guess_datetime_format, present.astype(str).iloc[:1000])):
                return "", "dates in several formats"
    if n == len(present) > 10:
        return "", f"different in every row{_amounts(present)}"
    # A category of one row has no other row to learn its mean from; most rows must share theirs.
    if n >= _MANY_CATEGORIES and 2 * np.count_nonzero(counts == 1) > len(present):
        many = f"{n:,} distinct values in {len(present):,} rows{_amounts(present)}"
        return "", f"{many}; to keep it as categorical, pass categories=[{column.name!r}]"
    return CATEGORICAL if n < _MANY_CATEGORIES else MEAN_TARGET, _too_few_values(column)


def _are_digits(present: pd.Series) -> bool:
    """Return whether all of these values are text of digits only."""
    return all(isinstance(value, str) and value.strip().isdecimal() for value in present.unique())


def _are_dates(present: pd.Series) -> bool:
    """Return whether all of these values are dates, which have digits."""
    if not all(any(map(str.isdigit, str(value))) for value in present.iloc[:10]):
        return False
    return _date_parser(present) is not None


def _date_parser(present: pd.Series) -> BaseEstimator | None:
    """Return a reader of all of these values as dates; None if there is none."""
    from skrub import ToDatetime  # takes two seconds to import

    is_text = all(isinstance(value, str) for value in present)
    for form in _date_formats(present, day_first=False) if is_text else [None]:
        try:
            return ToDatetime(format=form).fit(present.rename("date"))
        except ValueError:
            continue
    return None


def _date_formats(texts: pd.Series, day_first: bool) -> list[str]:
    """Return formats of dates that some of these texts have, those of the given order first."""
    from pandas.tseries.api import guess_datetime_format

    formats = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of days that may be months
        for order in (day_first, not day_first):
            for text in map(str, texts.iloc[:: max(1, len(texts) // _DATES_READ)]):
                days = _DOTTED_DATE.match(text) or (order and not _YEAR_FIRST.match(text))
                formats.append(guess_datetime_format(text, dayfirst=bool(days)))
    return [form for form in dict.fromkeys(formats) if form]


def _is_day_first(form: str | None) -> bool | None:
    """Return whether a format has the day before the month; None if it has no such order."""
    if form is None or form.startswith("%Y") or not ("%d" in form and "%m" in form):
        return None
    return form.index("%d") < form.index("%m")


def _times(column: pd.Series, parser: BaseEstimator, form: str | None) -> pd.Series:
    """Return a column as times in a format or, where that is not possible, in ISO 8601."""
    import pandas as pd

    reader = copy.copy(parser)
    reader.format_ = form
    times = reader.transform(column.rename("date"))
    lost = np.flatnonzero(times.isna() & column.notna())
    if len(lost) == 0:
        return times
    iso = pd.to_datetime(column.iloc[lost].astype(str), format="ISO8601", errors="coerce", utc=True)
    times = times.copy()
    times.iloc[lost] = iso.dt.tz_convert(times.dt.tz).astype(times.dtype)
    return times


def _order_note(present: pd.Series, parser: BaseEstimator, form: str | None) -> str:
    """Return a sentence on dates in which the day could be the month, or nothing.

    Dotted dates are day first, and thus not ambiguous.
    """
    day_first = _is_day_first(form)
    if day_first is None or "%d." in str(form):
        return ""
    swapped = str(form).replace("%d", "%D").replace("%m", "%d").replace("%D", "%m")
    if _times(present, parser, swapped).isna().sum() > _times(present, parser, form).isna().sum():
        return ""
    return (
        f"Dates in column {present.name!r}, such as {present.iloc[0]!r}, are read "
        f"{'day' if day_first else 'month'} first, but all of them could be read in the other "
        "order. Pass datetimes, or text as year-month-day."
    )


def _too_few_values(column: pd.Series) -> str:
    """Return why a column cannot help, or nothing."""
    if column.isna().all():
        return "all values missing"
    return "constant" if column.nunique(dropna=False) == 1 else ""


def _amounts(present: pd.Series) -> str:
    """Return what to do about text that is numbers as people write them, like € 3,552."""
    if not all(map(_AMOUNT.fullmatch, present.astype(str).str.strip().iloc[:1000])):
        return ""
    return ", but looks numeric: remove currency signs and thousands separators"


def find_sentinel(finite: np.ndarray) -> tuple[float, int] | None:
    """Return a value like -999 that is far outside all others, and how often it occurs.

    One of fewer than three digits counts where it is repeated.
    """
    for value in (finite.min(), finite.max()):
        text = f"{value:.17g}"
        if not _SENTINEL.fullmatch(text):
            continue
        others = finite[finite != value]
        n = len(finite) - len(others)
        often = n > 1 or "999" in text
        if often and len(others) and np.min(np.abs(others - value)) > np.ptp(others):
            return float(value), n
    return None


def sentinel_note(what: str, value: float, n: int, remedy: str) -> str:
    """Return a sentence on a value of `find_sentinel`."""
    rows = "1 row" if n == 1 else f"{n:,} rows"
    return (
        f"{what} is {value:g} in {rows}, far from its other values. If that stands for a missing "
        f"value, {remedy}."
    )


def _text(value: Any) -> str:
    """Return a value as text; a whole number is the same text as a float and as an integer."""
    is_integer = isinstance(value, float) and value.is_integer()
    return str(int(value)) if is_integer else str(value).strip()


def _texts(column: pd.Series) -> np.ndarray:
    """Return a column as text, missing values as 'missing'."""
    values = column.astype(object)
    texts = {value: _text(value) for value in values.dropna().unique()}
    return values.map(texts).astype(object).fillna("missing").to_numpy()


def _numpy_numbers(frame: pd.DataFrame, names: list[str]) -> np.ndarray:
    """Return numeric columns as float64, infinite values as missing."""
    values = frame[names].to_numpy(np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def _has_numpy_dtype(dtype: Any) -> bool:
    """Return whether a type is one of NumPy's numbers."""
    return isinstance(dtype, np.dtype) and dtype.kind in "biuf"


def _is_number_column(column: pd.Series) -> bool:
    from pandas.api.types import is_numeric_dtype, is_timedelta64_dtype

    return is_numeric_dtype(column) or is_timedelta64_dtype(column)


def number_marks(present: pd.Series) -> str | None:
    """Return the characters to drop from text so that it is numbers; None if it is none.

    They are commas between groups of three digits, and a currency sign or a percent sign that all
    values have.

    Examples
    --------
    >>> import pandas as pd
    >>> from sparsebayes.estimators._table_inputs import number_marks
    >>> number_marks(pd.Series(["$950", "$-1,200.50"])), number_marks(pd.Series(["1.5", "2"]))
    (',$', '')
    """
    import pandas as pd

    if np.all(pd.to_numeric(present, errors="coerce").notna()):
        return ""
    units, wholes = set(), set()
    for value in present.unique():
        match = _FORMATTED.fullmatch(str(value).strip())
        if match is None:
            return None
        units.add(match["currency"] + match["percent"])
        wholes.add(match["whole"])
    grouped = any("," in whole for whole in wholes)
    if len(units) > 1 or (grouped and any(len(w) > 3 and "," not in w for w in wholes)):
        return None
    marks = "," * grouped + units.pop()
    return marks if np.all(np.isfinite(read_numbers(present, marks))) else None


def read_numbers(column: pd.Series, marks: str = "") -> np.ndarray:
    """Return text as float64 without the characters of `number_marks`; other text is NaN."""
    import pandas as pd

    def without_marks(value: object) -> object:
        match = _FORMATTED.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None or any(c in match[0] and c not in marks for c in ALL_MARKS):
            return value
        whole = match["whole"].replace(",", "")
        return match["sign"] + match["inner_sign"] + whole + match["decimals"]

    if marks:
        column = column.astype(object).map(without_marks)
    return pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)


def marks_note(marks: str) -> str:
    """Return how text with the characters of `number_marks` was read, for a sentence."""
    parts = ["with ',' as thousands separator"] if "," in marks else []
    parts += [f"without {unit!r}" for unit in marks.replace(",", "")]
    return f"text, read as numbers {' and '.join(parts)}"


def _floats(column: pd.Series, marks: str = "") -> np.ndarray:
    """Return a column as float64; what is no number is NaN."""
    import pandas as pd

    if pd.api.types.is_timedelta64_dtype(column):
        column = column.dt.total_seconds()
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    return read_numbers(column, marks)


def _all_different(finite: np.ndarray, n: int) -> bool:
    all_integers = len(finite) == n > 1 and bool(np.all(finite == np.round(finite)))
    return all_integers and len(np.unique(finite)) == n


def _require_columns(frame: pd.DataFrame, names: Iterable[str]) -> None:
    for name in names:
        if name not in frame.columns:
            raise ValueError(
                f"The table has no column {name!r}{suggestion(name, frame.columns)}; its columns "
                f"are {_listed(list(frame.columns))}."
            )


def _listed(names: list[str], most: int = 12) -> str:
    """Return names for a sentence, the first of them where they are many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
