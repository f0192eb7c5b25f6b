"""From the columns of a data frame to numbers: types, categories, dates, gaps."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.preprocessing import OneHotEncoder

from .._extras import require
from ._common import power_of_two
from ._sklearn import check_is_fitted, target_encoder, warn

_LEVELS = 40  # a category with fewer gets a 0/1 column for each; skrub's number
_ROWS_PER_LEVEL = 10  # a level needs as many rows, or 2 % of them where that is less
_EXTREME = 1e100  # numbers beyond are scaled, so that their squares are numbers, too
Block = tuple[np.ndarray, list[str], list[str]]  # numbers, their names, the columns they are from
_AMOUNT = re.compile(r"[-+]?[$€£¥₹]?\s?[-+]?\d[\d.,'\s]*[$€£¥₹%]?")
_FILLED = {
    "number": "gaps filled with the median and marked",
    "category": "gaps as a level of their own",
    "many levels": "gaps as a level of their own",
    "date": "gaps in dates filled with the median",
}
_NAME_OF_A_ROW = re.compile(
    r"|[Uu]nnamed.*|[Ii]ndex|[Rr]ow([_ ]?[Nn](ames?|umbers?))?|[Nn][RrOo]"
    r"|(.*[\W_])?[Ii][Dd]|.*[a-z]I[dD]"
)


def as_frame(X: Any) -> Any:
    """X as a pandas DataFrame whose columns have text for names.

    A polars frame or a pyarrow table is converted, the columns of an array are called x0, x1, ...
    """
    require("cli", "A model of a table", "pandas", "skrub")
    import pandas as pd

    if hasattr(X, "to_pandas"):
        require("cli", f"A table of type {type(X).__name__}", "pyarrow")
        X = X.to_pandas()
    if issparse(X):
        raise TypeError(
            "Sparse data was passed, but a table is dense: give X.toarray(), or fit a model itself."
        )
    if not isinstance(X, pd.DataFrame):
        array = np.asarray(X)
        if array.ndim != 2:
            raise ValueError(
                f"Expected 2D input, a data frame or an array of rows; got {array.ndim} "
                "dimension(s). Reshape your data: array.reshape(-1, 1) makes one column of it."
            )
        X = pd.DataFrame(array, columns=[f"x{j}" for j in range(array.shape[1])])
    frame = X.copy(deep=False)
    frame.columns = [str(name) for name in frame.columns]
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise ValueError(f"The table has the column name {twice[0]!r} twice: rename one.")
    return frame.reset_index(drop=True)


class TableInputs(BaseEstimator):
    """Columns of a frame as numbers, float64.

    Numbers stay numbers; a category becomes one 0/1 column for each level that is not rare, or,
    with 40 levels or more, the mean of the target in each (cross-fitted, shrunk); a date becomes
    its parts. Gaps in numbers are filled with the median and marked by a 0/1 column; in a category
    they are a level. Columns that cannot help are left out, and `notes_` says what was done.

    Parameters
    ----------
    missing : {"impute", "error"}
    drop, categories : sequences of str
        Columns to leave out, and to take as categories although they hold numbers.
    target_type : {"continuous", "binary", "multiclass"}
        Of the target that levels are averaged over.
    """

    def __init__(
        self, missing: str = "impute", drop: Any = (), categories: Any = (), target_type: str = ""
    ) -> None:
        self.missing = missing
        self.drop = drop
        self.categories = categories
        self.target_type = target_type

    def fit(self, X: Any, y: Any = None) -> TableInputs:
        """Learn what the columns are."""
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Learn what the columns are, and encode them."""
        frame = as_frame(X)
        if len(frame) == 0:
            raise ValueError("The table has no rows: a minimum of 2 is required.")
        _require_columns(frame, [*self.drop, *self.categories])
        self.feature_names_in_ = np.array(frame.columns, dtype=object)
        self.n_features_in_ = frame.shape[1]
        self.kinds_, self.dropped_ = self._sort_columns(frame)
        if not self.kinds_:
            raise ValueError(f"No column is left to predict from; left out: {self._left_out()}.")
        self._check_gaps(frame)
        learnt = [
            self._learn_numbers(frame),
            self._learn_levels(frame),
            self._learn_means(frame, y),
            self._learn_dates(frame),
        ]
        gaps = {name: int(frame[name].isna().sum()) for name in self.kinds_}
        self._had_gaps = {name: n for name, n in (gaps | self.gaps_).items() if n}
        Z = np.column_stack([block for block, _, _ in learnt])
        self._kept = np.flatnonzero(np.ptp(Z, axis=0) > 0.0)
        if len(self._kept) == 0:
            raise ValueError("No column is left to predict from: none of them varies.")
        names = [name for _, outputs, _ in learnt for name in outputs]
        sources = [name for _, _, columns in learnt for name in columns]
        self._names = np.array(names, dtype=object)[self._kept]
        self.sources_ = np.array(sources, dtype=object)[self._kept]
        return Z[:, self._kept]

    def transform(self, X: Any) -> np.ndarray:
        """Encode new rows in the same way; a level that was not seen is none of those known.

        With a warning of what was never seen: such a level, and gaps where there were none.
        """
        check_is_fitted(self)
        frame = as_frame(X)
        _require_columns(frame, self.kinds_)
        self._check_gaps(frame)
        numbers = _numbers(frame, self._of("number"))
        self._warn_of_gaps(frame, numbers)
        blocks = [
            self._numbers(numbers),
            self._levels(frame, known=False),
            self._means(frame),
            self._dates(frame),
        ]
        return np.column_stack(blocks)[:, self._kept]

    def has_gap(self, Z: np.ndarray) -> np.ndarray:
        """Which encoded rows had a gap in a number."""
        first = len(self._of("number"))  # the marks stand behind the numbers
        marks = (self._kept >= first) & (self._kept < first + len(self._marked))
        return np.asarray(np.any(Z[:, marks], axis=1))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the numbers: ``age``, ``age missing``, ``colour=red``, ``when_year``."""
        check_is_fitted(self)
        return self._names

    @property
    def notes_(self) -> list[str]:
        """What was made of the columns, in sentences."""
        kinds = ["category" if k == "many levels" else k for k in self.kinds_.values()]
        counts = [
            f"{kinds.count(kind)} {words[kinds.count(kind) != 1]}"
            for kind, words in {
                "number": ("number", "numbers"),
                "category": ("category", "categories"),
                "date": ("date", "dates"),
            }.items()
            if kind in kinds
        ]
        left_out = f"; dropped: {self._left_out()}" if self.dropped_ else ""
        notes = [", ".join(counts) + left_out]
        for filled in dict.fromkeys(_FILLED.values()):
            gaps = {k: n for k, n in self._had_gaps.items() if _FILLED[self.kinds_[k]] == filled}
            if gaps:
                notes.append(f"{filled}: {_some([f'{name} ({n})' for name, n in gaps.items()])}")
        if many := self._of("many levels"):
            notes.append(f"many levels, each as its mean target: {_some(many)}")
        return notes

    # Which column is what.

    def _sort_columns(self, frame: Any) -> tuple[dict[str, str], dict[str, str]]:
        """The kind of each column that is used, and why the others are not."""
        kinds: dict[str, str] = {}
        dropped: dict[str, str] = {}
        plain = [name for name, dtype in frame.dtypes.items() if _is_plain(dtype)]
        numbers = dict(zip(plain, _numbers(frame, plain).T, strict=True))
        for name in frame.columns:
            column = frame[name]
            kind, reason = "number", ""
            if name in self.drop:
                reason = "as asked"
            elif name in self.categories:
                kind = "category" if column.nunique() < _LEVELS else "many levels"
            elif name in numbers or _is_number_column(column):
                values = numbers[name] if name in numbers else _floats(column)
                finite = values[np.isfinite(values)]
                if len(finite) == 0:
                    reason = "all missing"
                elif len(finite) == len(values) and np.all(finite == finite[0]):
                    reason = "one value"
                elif _NAME_OF_A_ROW.fullmatch(name) and _all_different(finite, len(values)):
                    reason = "all different"
            else:
                kind, reason = _kind_of_text(column)
            if reason:
                dropped[name] = reason
            else:
                kinds[name] = kind
        return kinds, dropped

    def _left_out(self) -> str:
        return _some([f"{name} ({reason})" for name, reason in self.dropped_.items()])

    def _check_gaps(self, frame: Any) -> None:
        if self.missing == "impute":
            return
        for name in self.kinds_:
            gap = np.flatnonzero(frame[name].isna())
            if len(gap):
                raise ValueError(
                    f"Column {name!r} is missing in row {gap[0] + 1} ({len(gap)} gaps): fill it, "
                    "leave such rows out, or fit with missing='impute'."
                )

    # Encoding: for each kind what is learnt, with the names and the columns they are from, and then
    # how new rows are encoded.

    def _of(self, kind: str) -> list[str]:
        return [name for name, k in self.kinds_.items() if k == kind]

    def _learn_numbers(self, frame: Any) -> Block:
        names = self._of("number")
        values = _numbers(frame, names)
        gaps = np.isnan(values)
        self.gaps_ = {name: int(n) for name, n in zip(names, gaps.sum(axis=0), strict=True) if n}
        self.fill_ = np.nanmedian(values, axis=0)
        size = np.nanmax(np.abs(values), axis=0, initial=0.0)
        extreme = (size > _EXTREME) | ((size < 1.0 / _EXTREME) & (size > 0))
        self.scale_ = np.where(extreme, power_of_two(size), 1.0)
        self._marked = np.flatnonzero(gaps.any(axis=0))
        marks = [names[j] for j in self._marked]
        return self._numbers(values), [*names, *(f"{n} missing" for n in marks)], names + marks

    def _warn_of_gaps(self, frame: Any, values: np.ndarray) -> None:
        """Of gaps in columns that had none: nothing is known of what they do to a prediction."""
        gaps = dict(zip(self._of("number"), np.isnan(values).any(axis=0), strict=True))
        gaps |= {name: frame[name].isna().any() for name in self._of("date")}
        names = [name for name, gap in gaps.items() if gap and name not in self._had_gaps]
        if names:
            warn(
                f"Rows to predict have gaps in columns that had none in the fit ({_some(names)}): "
                "they are filled with the median, and the error bars do not know of it."
            )

    def _numbers(self, values: np.ndarray) -> np.ndarray:
        gaps = np.isnan(values)
        marks = gaps[:, self._marked].astype(np.float64)
        return np.column_stack([np.where(gaps, self.fill_, values) / self.scale_, marks])

    def _learn_levels(self, frame: Any) -> Block:
        names = self._of("category")
        if not names:
            return np.empty((len(frame), 0)), [], []
        self._one_hot = OneHotEncoder(
            drop="if_binary",
            min_frequency=max(1, min(_ROWS_PER_LEVEL, len(frame) // 50)),
            handle_unknown="ignore",
            sparse_output=False,
        ).fit(_texts(frame, names))
        outputs, sources = [], []
        for label in self._one_hot.get_feature_names_out([f"{j}" for j in range(len(names))]):
            j, _, level = label.partition("_")
            sources.append(names[int(j)])
            level = "rare" if level == "infrequent_sklearn" else level
            outputs.append(f"{sources[-1]}={level}")
        return self._levels(frame), outputs, sources

    def _levels(self, frame: Any, known: bool = True) -> np.ndarray:
        names = self._of("category")
        if not names:
            return np.empty((len(frame), 0))
        texts = _texts(frame, names)
        for name, column, levels in zip(names, texts.T, self._one_hot.categories_, strict=True):
            new = [] if known else sorted(set(column) - set(levels))
            if new:
                warn(
                    f"Column {name!r} has {new[0]!r}, which was not there in the fit: taken as "
                    "none of the levels that were, and the error bars may not know of it."
                )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Found unknown categories", UserWarning)
            return self._one_hot.transform(texts)

    def _learn_means(self, frame: Any, y: Any) -> Block:
        names = self._of("many levels")
        if not names:
            return np.empty((len(frame), 0)), [], []
        self._encoder = target_encoder(self.target_type)
        means = self._encoder.fit_transform(_texts(frame, names), y)
        width = means.shape[1] // len(names)  # several classes: a mean for each
        of = [""] if width == 1 else [f" {c}" for c in self._encoder.classes_]
        outputs = [f"{name} (mean target{c})" for name in names for c in of]
        return means, outputs, [name for name in names for _ in of]

    def _means(self, frame: Any) -> np.ndarray:
        names = self._of("many levels")
        return self._encoder.transform(_texts(frame, names)) if names else np.empty((len(frame), 0))

    def _learn_dates(self, frame: Any) -> Block:
        from skrub import DatetimeEncoder, ToDatetime

        self._parsers: dict[str, Any] = {}
        outputs, sources = [], []
        for name in self._of("date"):
            parser = ToDatetime()
            times = parser.fit_transform(frame[name].rename("date"))
            parts = DatetimeEncoder(add_total_seconds=False, add_weekday=True)
            made = [str(column)[5:] for column in parts.fit_transform(times).columns]
            self._parsers[name] = (parser, parts)
            outputs += [f"{name} {part}" for part in [*made, "seconds"]]
            sources += [name] * (len(made) + 1)
        self._date_fill = np.zeros(len(outputs))
        if outputs:
            self._date_fill = np.nanmedian(self._dates(frame, fill=False), axis=0)
        return self._dates(frame), outputs, sources

    def _dates(self, frame: Any, fill: bool = True) -> np.ndarray:
        blocks = [np.empty((len(frame), 0))]
        for name, (parser, parts) in self._parsers.items():
            times = _times(parser, frame[name])
            blocks.append(parts.transform(times).to_numpy(np.float64))
            seconds = times.dt.tz_localize(None).astype("datetime64[ns]")
            ticks = seconds.to_numpy().astype(np.int64) / 1e9
            blocks.append(np.where(times.isna(), np.nan, ticks)[:, None])
        array = np.column_stack(blocks)
        return np.where(np.isnan(array), self._date_fill, array) if fill else array


def _times(parser: Any, column: Any) -> Any:
    """A column as times: in the format of the fit, or year first as in ISO 8601; else refused."""
    import pandas as pd

    times = parser.transform(column.rename("date"))
    lost = np.flatnonzero(times.isna() & column.notna())
    if len(lost) == 0:
        return times
    iso = pd.to_datetime(column.iloc[lost].astype(str), format="ISO8601", errors="coerce", utc=True)
    if iso.isna().any():
        row = lost[np.flatnonzero(iso.isna())[0]]
        raise ValueError(
            f"Column {column.name!r}, row {row + 1} has {column.iloc[row]!r} where a date is "
            f"needed, such as {pd.Timestamp(2021, 6, 15).strftime(parser.format_ or '%Y-%m-%d')}."
        )
    times = times.copy()
    times.iloc[lost] = iso.dt.tz_convert(times.dt.tz).astype(times.dtype)
    return times


def _kind_of_text(column: Any) -> tuple[str, str]:
    """Kind of a column that is no number by its type; and why not to use it, or nothing."""
    import pandas as pd
    from skrub import ToDatetime

    if pd.api.types.is_datetime64_any_dtype(column):
        return "date", "one value" if column.nunique(dropna=False) == 1 else ""
    there = column.dropna()
    if len(there) == 0:
        return "", "all missing"
    if not isinstance(column.dtype, pd.CategoricalDtype):
        if np.all(pd.to_numeric(there, errors="coerce").notna()):
            return "number", "one value" if column.nunique(dropna=False) == 1 else ""
        try:
            ToDatetime().fit_transform(there.iloc[:1000].rename("date"))
            return "date", "one value" if column.nunique(dropna=False) == 1 else ""
        except ValueError:
            pass
    n_levels = there.astype(str).nunique()
    if n_levels == 1 and len(there) == len(column):
        return "", "one value"
    if n_levels >= _LEVELS and 2 * n_levels > len(there):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of days that may be months
            if all(map(pd.tseries.api.guess_datetime_format, there.astype(str).iloc[:1000])):
                return "", "dates written in several ways"
        return "", f"{'' if n_levels == len(there) else 'nearly '}all different{_amounts(there)}"
    kind = "category" if n_levels < _LEVELS else "many levels"
    return kind, f"all different{_amounts(there)}" if n_levels == len(there) > 10 else ""


def _amounts(there: Any) -> str:
    """What to do about text that is numbers as people write them: € 3,552."""
    if not all(map(_AMOUNT.fullmatch, there.astype(str).str.strip().iloc[:1000])):
        return ""
    return ", but look like numbers: take away currency signs and separators of thousands"


def _texts(frame: Any, names: list[str]) -> np.ndarray:
    """Columns as text, gaps too; a whole number is the same text as float or int."""

    def text(value: Any) -> str:
        whole = isinstance(value, float) and value.is_integer()
        return str(int(value)) if whole else str(value).strip()

    def column(name: str) -> Any:
        texts = frame[name].astype(object)
        known = {value: text(value) for value in texts.dropna().unique()}
        return texts.map(known).fillna("missing").astype(object)

    return np.column_stack([column(name) for name in names])


def _numbers(frame: Any, names: list[str]) -> np.ndarray:
    """Columns as float64, infinite values as gaps; text that is no number is refused."""
    values = np.empty((len(frame), len(names)))
    kinds = frame.dtypes.to_dict()
    plain = [j for j, name in enumerate(names) if _is_plain(kinds[name])]
    if plain:  # all at once: a table may have thousands of them
        values[:, plain] = frame[[names[j] for j in plain]].to_numpy(np.float64)
    for j in sorted(set(range(len(names))) - set(plain)):
        name = names[j]
        values[:, j] = _floats(frame[name])
        bad = np.flatnonzero(np.isnan(values[:, j]) & frame[name].notna().to_numpy())
        if len(bad):
            raise ValueError(
                f"Column {name!r}, row {bad[0] + 1} has {frame[name].iloc[bad[0]]!r} where a "
                "number is needed."
            )
    values[~np.isfinite(values)] = np.nan
    return values


def _is_plain(dtype: Any) -> bool:
    """Whether a type is one of NumPy's numbers."""
    return isinstance(dtype, np.dtype) and dtype.kind in "biuf"


def _is_number_column(column: Any) -> bool:
    from pandas.api.types import is_numeric_dtype, is_timedelta64_dtype

    return is_numeric_dtype(column) or is_timedelta64_dtype(column)


def _floats(column: Any) -> np.ndarray:
    import pandas as pd

    if pd.api.types.is_timedelta64_dtype(column):
        column = column.dt.total_seconds()
    return pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)


def _all_different(finite: np.ndarray, n: int) -> bool:
    whole = len(finite) == n > 1 and bool(np.all(finite == np.round(finite)))
    return whole and len(np.unique(finite)) == n


def _require_columns(frame: Any, names: Any) -> None:
    for name in names:
        if name not in frame.columns:
            raise ValueError(
                f"The table has no column {name!r}; its columns are {_some(list(frame.columns))}."
            )


def _some(names: list[str], most: int = 12) -> str:
    """Names in a sentence, the first of them where they are many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
