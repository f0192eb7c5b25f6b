"""Encode the columns of a data frame as numbers: categories, dates and missing values."""

from __future__ import annotations

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
from ._table_dates import are_dates, date_formats, date_parser, is_day_first, order_note, read_times
from ._table_numbers import (
    CODE,
    advice_on_amounts,
    are_digits,
    find_sentinel,
    marks_note,
    number_marks,
    read_floats,
    sentinel_note,
)

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
        elif dtype.kind == "c":
            raise TypeError(
                f"Column {name!r} contains complex numbers. Pass their real and imaginary parts, "
                "or magnitude and phase, as two columns."
            )
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
                values = arrays[name] if name in arrays else read_floats(column)
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
                    if are_digits(column.dropna()):
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
                values[:, j] = read_floats(column, self._marks.get(names[j], ""))
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
            parser: Any = date_parser(column) or date_parser(column.iloc[:1000])
            parts = DatetimeEncoder(add_total_seconds=False, add_weekday=True)
            self._parsers[name] = (parser, parts)
            times[name] = self._read_times(frame[name])
            if note := order_note(column, parser, parser.format_):
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
        chosen, times = learnt, read_times(column, parser, learnt)
        lost = times.isna() & column.notna()
        day_first = is_day_first(parser.format_)
        for new in date_formats(column[lost], bool(day_first)) if is_text else []:
            others = read_times(column, parser, new)
            if others.isna().sum() < times.isna().sum():
                chosen, times = new, others
        if chosen != learnt and day_first is None:
            if note := order_note(present, parser, chosen):
                warn(note)
        elif is_day_first(chosen) not in (None, day_first) and "%d." not in str(chosen):
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
        is_code = are_digits(present) and any(map(CODE.fullmatch, _texts(present)))
        if number_marks(present) is not None and not is_code:
            return NUMERIC, _too_few_values(column)
        if are_dates(present.iloc[:1000]):
            return DATE, _too_few_values(column)
    counts = present.astype(str).value_counts()
    n = len(counts)
    if n >= _MANY_CATEGORIES and 2 * n > len(present):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of days that may be months
            if all(map(pd.tseries.api.guess_datetime_format, present.astype(str).iloc[:1000])):
                return "", "dates in several formats"
    if n == len(present) > 10:
        return "", f"different in every row{advice_on_amounts(present)}"
    # A category of one row has no other row to learn its mean from; most rows must share theirs.
    if n >= _MANY_CATEGORIES and 2 * np.count_nonzero(counts == 1) > len(present):
        many = f"{n:,} distinct values in {len(present):,} rows{advice_on_amounts(present)}"
        return "", f"{many}; to keep it as categorical, pass categories=[{column.name!r}]"
    return CATEGORICAL if n < _MANY_CATEGORIES else MEAN_TARGET, _too_few_values(column)


def _too_few_values(column: pd.Series) -> str:
    """Return why a column cannot help, or nothing."""
    if column.isna().all():
        return "all values missing"
    return "constant" if column.nunique(dropna=False) == 1 else ""


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
