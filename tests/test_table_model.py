import warnings
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import (
    GridSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.preprocessing import TargetEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparsebayes import TRUSTED_TYPES, table_model
from sparsebayes.estimators._mean_target import MeanTarget
from sparsebayes.estimators._table_inputs import TableInputs
from sparsebayes.estimators._table_target import as_target, infer_task
from sparsebayes.models import MODELS, choose


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    n = 120
    frame = pd.DataFrame(
        {
            "id": np.arange(n),
            "age": rng.normal(40, 10, n),
            "kind": rng.choice(["a", "b", "c"], n),
            "when": pd.Timestamp("2021-03-01") + pd.to_timedelta(rng.integers(0, 400, n), "D"),
            "flag": rng.random(n) > 0.5,
            "name": [f"person {i}" for i in range(n)],
        }
    )
    frame.loc[::7, "age"] = np.nan
    frame.loc[::11, "kind"] = None
    return frame


@pytest.fixture
def price(frame):
    noise = 0.1 * np.random.default_rng(1).standard_normal(len(frame))
    level = frame["kind"].map({"a": 3.0, "b": 0.0, "c": -2.0}).fillna(1.0)
    return (0.2 * frame["age"].fillna(50) + level + frame["flag"] + noise).rename("price")


def test_columns_become_numbers_with_names(frame, price):
    model = table_model(model="linear").fit(frame, price)
    assert model.task_ == "regression"
    assert model.target_name_ == "price"
    names = model.get_feature_names_out().tolist()
    assert names[:3] == ["age", "flag", "age missing"]
    assert names[3:7] == ["kind=a", "kind=b", "kind=c", "kind=missing"]
    assert {"when year", "when month", "when seconds"} < set(names)
    reason = "different in every row"
    assert model.inputs_.dropped_ == {"id": reason, "name": reason}
    assert model.notes_[1] == "columns: 2 numeric, 1 categorical, 1 date"
    assert model.notes_[2] == f"dropped: id ({reason}), name ({reason})"
    assert model.score(frame, price) > 0.98
    seconds = model.transform(frame)[:, names.index("when seconds")]
    ticks = (
        frame["when"].astype("datetime64[ns]").astype("int64")
    )  # pandas 3 counts in microseconds
    np.testing.assert_allclose(np.diff(seconds), np.diff(ticks) / 1e9)


def test_gaps_are_the_median_and_marked(frame, price):
    Z = TableInputs(drop=("when", "kind")).fit_transform(frame, price)
    gap = frame["age"].isna().to_numpy()
    np.testing.assert_array_equal(Z[gap, 0], frame["age"].median())
    np.testing.assert_array_equal(Z[:, 2], gap)
    later = TableInputs(drop=("when", "kind", "age")).fit(frame, price)
    np.testing.assert_array_equal(later.transform(frame)[:, 0], frame["flag"])


def test_notes_say_what_was_made_of_the_gaps_of_each_kind(frame, price):
    frame.loc[3, "when"] = pd.NaT
    many = [f"town {i % 50}" for i in range(len(frame))]
    frame = frame.assign(town=pd.Series(many).where(np.arange(len(frame)) > 0))
    notes = TableInputs(target_type="continuous").fit(frame, price).notes_
    ages, kinds = frame["age"].isna().sum(), frame["kind"].isna().sum()
    assert (
        f"missing values replaced by the median, with a 0/1 indicator column: age ({ages})" in notes
    )
    assert f"missing values as a category of their own: kind ({kinds}), town (1)" in notes
    assert "missing dates replaced by the median: when (1)" in notes


@pytest.mark.parametrize(
    ("form", "how"),
    [
        ("{:,}", "with ',' as thousands separator"),
        ("-{:,}.0", "with ',' as thousands separator"),
        ("€ {:,}", "with ',' as thousands separator and without '€'"),
        ("-${:,}.00", "with ',' as thousands separator and without '$'"),
        ("£{}", "without '£'"),
        ("{} %", "without '%'"),
    ],
)
def test_formatted_numbers_are_read_in_inputs_and_in_the_target(form, how, frame, price):
    numbers = np.array([*range(940, 1000), *range(100_000, 100_060)])
    texts = pd.Series([form.format(number) for number in numbers], name="rent")
    sign = -1.0 if form.startswith("-") else 1.0
    inputs = TableInputs().fit(frame.assign(rent=texts), price)
    assert inputs.kinds_["rent"] == "numeric"
    assert f"'rent' is text, read as numbers {how}" in inputs.notes_
    column = inputs.get_feature_names_out().tolist().index("rent")
    np.testing.assert_array_equal(
        inputs.transform(frame.assign(rent=texts))[:, column], sign * numbers
    )
    single = inputs.transform(frame[:1].assign(rent=[950]))  # read as it was learnt
    np.testing.assert_array_equal(single, inputs.transform(frame[:1].assign(rent=["950"])))
    model = table_model(model="baseline").fit(frame, texts)
    assert model.notes_[:2] == [
        "The target 'rent' is numeric: regression",
        f"The target 'rent' is text, read as numbers {how}",
    ]
    np.testing.assert_allclose(model.predict(frame[:1]), np.mean(sign * numbers))


@pytest.mark.parametrize("wrong", ["1,23", "12%", "€5", "1.000,50"])
def test_other_text_in_formatted_numbers_is_missing_with_a_warning(wrong):
    texts = [f"${i},000" for i in range(1, 100)]
    inputs = TableInputs().fit(pd.DataFrame({"rent": texts}))
    with pytest.warns(UserWarning, match="in row 1, where the training data have numbers"):
        Z = inputs.transform(pd.DataFrame({"rent": [wrong]}))
    assert Z[0, 0] == 50_000.0


@pytest.mark.parametrize(
    "texts",
    [
        ["0,125", "1,250", "2,500"],  # a decimal comma
        ["1,250", "1250", "2,500"],
        ["$1", "2", "3"],
        ["$1", "€2", "$3"],
        ["1.250,00", "2.500,00"],
    ],
)
def test_numbers_of_several_formats_stay_text(texts):
    frame = pd.DataFrame({"rent": texts * 30, "x": np.arange(30.0 * len(texts))})
    assert TableInputs().fit(frame).kinds_["rent"] == "categorical"
    assert infer_task(as_target(frame["rent"])).kind == "classification"


@pytest.mark.parametrize("form", ["{:,} €", "¥{:,}"])
def test_other_amounts_are_left_out_with_a_hint(form, frame, price):
    amounts = [form.format(1000 + 7 * i) for i in range(len(frame))]
    dropped = TableInputs().fit(frame.assign(rent=amounts), price).dropped_
    assert dropped["rent"].startswith("different in every row, but looks numeric: remove cu")
    assert dropped["name"] == "different in every row"


@pytest.mark.parametrize("missing", ["drop", "error"])
def test_gaps_left_out_or_refused(frame, price, missing):
    model = table_model(model="linear", missing=missing)
    if missing == "error":
        with pytest.raises(ValueError, match="Column 'age' is missing in row 1"):
            model.fit(frame, price)
        return
    whole = frame.notna().all(axis=1)
    model.fit(frame, price)
    assert f"{np.sum(~whole)} rows with missing values were dropped" in model.notes_
    same = table_model(model="linear").fit(frame[whole], price[whole])
    np.testing.assert_allclose(model.predict(frame[whole]), same.predict(frame[whole]))


def test_polars_is_pandas(frame, price):
    ours = table_model(model="linear").fit(frame, price)
    theirs = table_model(model="linear").fit(pl.from_pandas(frame), pl.from_pandas(price))
    assert theirs.notes_ == ours.notes_
    np.testing.assert_allclose(
        theirs.predict(pl.from_pandas(frame.head(9))), ours.predict(frame.head(9))
    )
    encoded = theirs.set_output(transform="polars").transform(pl.from_pandas(frame))
    assert isinstance(encoded, pl.DataFrame)
    assert encoded.columns == ours.get_feature_names_out().tolist()
    kept = ours.set_output(transform="pandas").transform(frame.set_index(frame.index + 7))
    assert kept.index.equals(frame.index + 7)


def test_a_target_without_a_name_is_called_the_target(frame, price):
    model = table_model(model="linear").fit(pl.from_pandas(frame), pl.Series(price.to_numpy()))
    assert model.notes_[0].startswith("The target is numeric")


def test_other_containers_of_the_same_table_have_the_same_predictions(frame, price):
    import dask.dataframe as dd

    ours = table_model(model="linear").fit(frame, price)
    expected = ours.predict(frame)
    # Explainers like shap ask for predictions of arrays of objects.
    np.testing.assert_allclose(ours.predict(frame.to_numpy(object)), expected)
    with pytest.raises(ValueError, match="X has 2 columns without names, but .* had 6: id, age"):
        ours.predict(frame.to_numpy(object)[:, :2])
    lazy = dd.from_pandas(frame, npartitions=3)
    theirs = table_model(model="linear").fit(lazy, dd.from_pandas(price, npartitions=3))
    assert theirs.feature_names_in_.tolist() == frame.columns.tolist()
    assert theirs.notes_ == ours.notes_  # with the name of the target
    np.testing.assert_allclose(theirs.predict(lazy), expected)
    nullable = frame.convert_dtypes(dtype_backend="pyarrow")
    theirs = table_model(model="linear").fit(nullable, price.astype("double[pyarrow]"))
    np.testing.assert_allclose(theirs.predict(nullable), expected)
    np.testing.assert_allclose(ours.predict(frame.convert_dtypes()), expected)
    array = np.array([*frame["kind"], "a"], dtype=str).astype(object)[:-1]  # of np.str_
    theirs = table_model(model="linear", drop=["name"]).fit(frame.assign(kind=array), price)
    assert theirs.inputs_.kinds_["kind"] == "categorical"


def test_text_columns_are_explained_by_scikit_learn(frame, price):
    from sklearn.inspection import partial_dependence, permutation_importance

    model = table_model(model="linear").fit(frame, price)
    importance = permutation_importance(model, frame, price, n_repeats=2, random_state=0)
    assert np.argmax(importance.importances_mean) in (1, 2)  # age, kind
    complete = frame.assign(kind=frame["kind"].fillna("missing"))
    effect = partial_dependence(model, complete, ["kind"], categorical_features=["kind"])
    average = dict(zip(effect["grid_values"][0], effect["average"][0], strict=True))
    assert average["a"] - average["c"] == pytest.approx(5.0, abs=0.2)


def test_an_array_is_a_table_without_names():
    X = np.random.default_rng(0).standard_normal((50, 2))
    model = table_model(model="linear").fit(X, X[:, 0])
    assert model.get_feature_names_out().tolist() == ["x0", "x1"]
    assert model.score(X, X[:, 0]) > 0.99


def test_it_is_a_scikit_learn_estimator(frame, price):
    model = table_model("regression", model="linear", tol=1e-4)
    assert is_regressor(model)
    assert not is_classifier(model)
    assert clone(model).get_params() == model.get_params()
    assert clone(model).set_params(tol=0.1, missing="drop").get_params()["tol"] == 0.1
    assert np.min(cross_val_score(model, frame, price, cv=3)) > 0.9
    search = GridSearchCV(model, {"model": ["baseline", "linear"], "missing": ["impute"]}, cv=2)
    search.set_params(estimator=table_model("regression"))
    assert search.fit(frame, price).best_params_["model"] == "linear"
    table = model.fit(frame, price).set_output(transform="pandas").transform(frame)
    assert table.columns.tolist() == model.get_feature_names_out().tolist()
    assert repr(model) == "TableModel(model='linear', task='regression', tol=0.0001)"


@parametrize_with_checks(
    [table_model(task, model="linear") for task in ("regression", "classification")]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_a_parameter_that_the_model_does_not_have_is_a_sentence(frame, price):
    with pytest.raises(ValueError, match="RVMRegressor has no parameter 'width'; it has"):
        table_model(model="linear", width=3).fit(frame, price)


def test_classes_have_probabilities_numbers_a_deviation(frame, price):
    labels = np.where(price > price.median(), "dear", "cheap")
    model = table_model(model="linear").fit(frame, labels)
    assert is_classifier(model)
    assert model.classes_.tolist() == ["cheap", "dear"]
    assert model.predict_proba(frame).shape == (len(frame), 2)
    assert model.score(frame, labels) > 0.9
    model.fit(frame, price)
    assert is_regressor(model)
    assert not hasattr(model, "classes_")
    assert not hasattr(model, "predict_proba")
    mean, std = model.predict(frame, return_std=True)
    assert 0.9 < np.mean(np.abs(price - mean) < 1.96 * std) <= 1.0


@pytest.mark.parametrize(
    ("y", "task", "note"),
    [
        (["a", "b"] * 20, "classification", "is text: classification (2 classes: a, b)"),
        (["10", "9"] * 20, "classification", "is text: classification (2 classes: 10, 9)"),
        ([True, False] * 20, "classification", "is boolean: classification (2 classes: False, Tr"),
        (pd.Categorical([3, 1] * 20), "classification", "is categorical: classification (2 class"),
        ([1, 2, 3, 4] * 10, "regression", "distinct integers: 4; for classes use 'classificat"),
        (list(range(40)), "regression", "The target is numeric: regression"),
        ([0.5, 1.5, 2.5, 3.5] * 10, "regression", "The target is numeric: regression"),
    ],
)
def test_the_type_of_the_target_decides_the_task(y, task, note):
    X = np.random.default_rng(0).standard_normal((40, 2))
    model = table_model(model="baseline").fit(X, y)
    assert model.task_ == task
    assert note in model.notes_[0]
    assert not any("skewed" in note for note in model.notes_)


def test_a_skewed_target_is_noted():
    X = np.random.default_rng(0).standard_normal((40, 2))
    notes = {
        name: table_model(model=name).fit(X, np.exp(np.linspace(-4, 4, 40))).notes_
        for name in ("linear", "baseline", "auto")
    }
    start = "The target is positive and right-skewed. target_transform="
    assert notes["linear"][1].startswith(start)
    for name in ("baseline", "auto"):  # which the parameter does not change
        assert not any(note.startswith(start) for note in notes[name])


@pytest.mark.parametrize("most", [1, 2, 11])
def test_counts_have_one_task_in_all_folds(most):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((200, 2))
    y = np.minimum(rng.poisson(np.exp(1.0 + 0.3 * X[:, 0])), most)
    y[:3] = [0, most - 1, 12]  # the largest value is in one fold only
    found = cross_validate(table_model(model="baseline"), X, y, cv=5, return_estimator=True)
    assert {model.task_ for model in found["estimator"]} == {"regression"}


def test_labels_are_kept_as_they_were_given():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    for labels in (["0.0", "1.0"], [1.0, 2.0], [False, True], [7, 9]):
        y = np.array(labels)[(X[:, 0] > 0).astype(int)]
        model = table_model("classification", model="linear").fit(X, y)
        assert model.classes_.tolist() == labels
        assert model.score(X, y) > 0.9
        assert set(model.predict(X).tolist()) == set(labels)


def test_an_ordered_target_has_its_classes_in_their_order():
    X = np.random.default_rng(0).standard_normal((90, 2))
    words = np.array(["low", "mid", "high"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    y = pd.Series(pd.Categorical(words, ["low", "mid", "high", "never"], ordered=True))
    model = table_model(model="linear").fit(X, y)
    assert model.classes_.tolist() == ["low", "mid", "high"]
    proba = model.predict_proba(X)
    np.testing.assert_array_equal(model.classes_[np.argmax(proba, axis=1)], model.predict(X))
    assert model.score(X, y) > 0.8


def test_two_numbers_and_a_constant_are_warned_of():
    X = np.random.default_rng(0).standard_normal((40, 2))
    with pytest.warns(UserWarning, match="two values, 0 and 1. It is numeric, so a regression"):
        table_model(model="linear").fit(X, (X[:, 0] > 0).astype(int))
    with pytest.warns(UserWarning, match=r"The target is constant \(3 in every row\)"):
        model = table_model(model="linear").fit(X, np.full(40, 3.0))
    np.testing.assert_allclose(model.predict(X), 3.0)


@pytest.mark.parametrize(
    ("y", "task", "words"),
    [
        (["a"] * 30, "auto", "has only one class, 'a'"),
        ([1.0, 2.0, None] * 10, "auto", "is missing in row 3; drop rows"),
        ([1.0, 2.0, np.inf] * 10, "auto", "has inf in row 3, but a regression needs finite"),
        (["1", "2", "x"] * 10, "regression", "has 'x' in row 3, but a regression needs finite"),
        (["1", "2", "x"] * 10, "auto", "has 'x' in row 3, but most rows contain numbers"),
        (["$1,500", "$2", "x"] * 10, "auto", "has 'x' in row 3, but most rows contain numbers"),
        ([f"{i}.5" for i in range(30)], "auto", "30 distinct values in 30 rows, too many"),
        ([1, "b", 2.5] * 10, "classification", "several types .float, int, str."),
        (pd.date_range("2020-01-01", periods=30), "auto", "has the unsupported type datetime64"),
        ([[1.0, 2.0]] * 30, "auto", "y has 2 columns, but table_model supports one target"),
        ("price", "auto", "Pass the values of the target"),
    ],
)
def test_a_target_that_cannot_be_learnt_is_refused(y, task, words):
    X = np.random.default_rng(0).standard_normal((30, 2))
    with pytest.raises(ValueError, match=words):
        table_model(task, model="baseline").fit(X, y)


def test_the_registry_knows_what_a_model_can_do():
    for choice in MODELS:
        estimator = choice.make()
        allowed = getattr(estimator, "_parameter_constraints", {}).get("noise_variance", [])
        assert choice.varying_noise == any("input" in getattr(k, "options", ()) for k in allowed)
        assert choice.groups_columns == ("groups" in estimator.get_params())


def test_parameters_that_depend_on_the_table_reach_a_model_of_the_logarithm(frame, price):
    y = np.exp(price / 10)
    model = table_model(model="linear", target_transform="log").fit(frame, y)
    assert model.final_.noise_variance == "input"
    model = table_model(model="spike-slab", target_transform="log", drop=["when"]).fit(frame, y)
    assert set(model.final_.group_names_) == {"age", "flag", "kind"}


def test_a_column_that_says_the_target_is_pointed_out(frame, price):
    for y in (price, np.where(price > price.median(), "dear", "cheap")):
        model = table_model(model="linear").fit(frame.assign(log=np.exp(price)), y)
        (note,) = [note for note in model.notes_ if "almost determines" in note]
        assert note.startswith("'log'")
        assert not any(
            "almost determines" in n for n in table_model(model="linear").fit(frame, y).notes_
        )


def test_levels_that_are_rare_share_a_column_and_unknown_ones_have_none():
    rng = np.random.default_rng(0)
    kinds = np.r_[rng.choice(["a", "b"], 580), ["c"] * 15, ["d", "e", "f", "g", "h"]]
    frame = pd.DataFrame({"kind": kinds, "x": rng.standard_normal(600)})
    inputs = TableInputs().fit(frame, frame["x"])
    names = ["x", "kind=a", "kind=b", "kind=c", "kind=rare"]
    assert inputs.get_feature_names_out().tolist() == names
    new = pd.DataFrame({"kind": ["h", "never"], "x": [0.0, 0.0]})
    with pytest.warns(UserWarning, match="'never' in column 'kind' was not in the training data"):
        assert inputs.transform(new)[:, 1:].tolist() == [[0, 0, 0, 1], [0, 0, 0, 0]]


def test_many_levels_are_the_mean_target_of_each_for_every_class():
    rng = np.random.default_rng(0)
    city = rng.integers(0, 60, 900)
    frame = pd.DataFrame({"city": [f"c{i}" for i in city], "x": rng.standard_normal(900)})
    inputs = TableInputs(target_type="continuous").fit(frame, city.astype(float))
    assert np.corrcoef(inputs.transform(frame)[:, 1], city)[0, 1] > 0.99
    labels = np.array(["l", "m", "h"])[city // 20]
    inputs = TableInputs(target_type="multiclass").fit(frame, labels)
    names = [f"city (mean target {c})" for c in "hlm"]
    assert inputs.get_feature_names_out()[1:].tolist() == names


def test_intervals_are_those_of_the_model(frame, price):
    model = table_model(model="linear").fit(frame, price)
    own, interval = (model.predict_interval(frame, 0.9, calibrated=c) for c in (False, True))
    assert own.shape == interval.shape == (len(frame), 2)
    ratio = np.ptp(interval, axis=1) / np.ptp(own, axis=1)
    np.testing.assert_allclose(ratio, model.final_.calibration_, rtol=1e-6)
    assert not np.allclose(interval, model.predict_interval(frame, 0.9, calibrated="conformal"))
    np.testing.assert_allclose(model.predict_quantiles(frame, [0.05, 0.95]), interval, rtol=1e-6)


def test_weighted_rows_are_encoded_as_repeated_ones():
    rng = np.random.default_rng(0)
    city = rng.integers(0, 50, 300)
    frame = pd.DataFrame({"city": [f"c{k}" for k in city], "size": rng.exponential(size=300)})
    frame.loc[::9, "size"] = np.nan
    y = 0.1 * city + rng.standard_normal(300)
    weight = rng.integers(1, 4, 300)
    weighted = TableInputs(target_type="continuous").fit(frame, y, weight.astype(float))
    rows = np.repeat(np.arange(300), weight)
    repeated = TableInputs(target_type="continuous").fit(frame.iloc[rows], y[rows])
    plain = TableInputs(target_type="continuous").fit(frame, y)
    np.testing.assert_allclose(weighted.transform(frame), repeated.transform(frame), rtol=1e-12)
    assert np.abs(weighted.transform(frame) - plain.transform(frame)).max() > 0.01


@pytest.mark.parametrize("target_type", ["continuous", "binary", "multiclass"])
def test_mean_targets_are_those_of_scikit_learn(target_type):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 20, (300, 2)).astype(str)
    y = X[:, 0].astype(float) + rng.standard_normal(300)
    if target_type != "continuous":
        y = np.digitize(y, [10.0] if target_type == "binary" else [5.0, 15.0])
    ours, theirs = MeanTarget(target_type), TargetEncoder(target_type=target_type)
    ours.fit_transform(X, y)
    theirs.fit(X, y)
    new = np.append(X, [["new", "3"]], axis=0)
    np.testing.assert_allclose(ours.transform(new), theirs.transform(new), rtol=1e-12)


def test_the_mean_target_of_a_row_is_that_of_other_rows():
    X = np.repeat(np.arange(50), 4).astype(str)[:, None]
    y = np.zeros(200)
    y[7] = 1e6
    own = MeanTarget("continuous").fit_transform(X, y)[7, 0]
    assert own == 0.0


def test_a_text_key_is_used_where_most_rows_share_their_value():
    rng = np.random.default_rng(0)
    effect = rng.standard_normal(800)
    key = rng.integers(0, 800, 2200)
    frame = pd.DataFrame({"x": rng.standard_normal(2200), "customer": [f"c{k}" for k in key]})
    y = frame["x"] + effect[key] + 0.5 * rng.standard_normal(2200)
    assert frame["customer"][:1200].nunique() > 600
    model = table_model(model="linear").fit(frame[:1200], y[:1200])
    assert model.inputs_.kinds_["customer"] == "categorical (mean target)"
    with pytest.warns(UserWarning, match="in column 'customer' was not in the training data"):
        assert model.score(frame[1200:], y[1200:]) > 0.55  # .41 without the key


def test_a_key_that_most_rows_have_for_themselves_is_dropped_with_the_cure():
    rng = np.random.default_rng(0)
    key = [f"c{k}" for k in [*range(700), *range(300)]]
    frame = pd.DataFrame({"x": rng.standard_normal(1000), "key": key})
    inputs = TableInputs(target_type="continuous")
    assert inputs.fit(frame, frame["x"]).kinds_["key"] == "categorical (mean target)"
    rows = [*range(700), *range(200)]  # 500 values occur once
    inputs.fit(frame.iloc[rows].reset_index(drop=True), frame["x"].iloc[rows])
    assert inputs.notes_[1] == (
        "dropped: key (700 distinct values in 900 rows; to keep it as categorical, pass "
        "categories=['key'])"
    )


def test_weights_reach_the_model(frame, price):
    weight = np.where(np.arange(len(frame)) < 60, 1.0, 0.0)
    model = table_model(model="linear", drop=["when"]).fit(frame, price, sample_weight=weight)
    assert model.score(frame[:60], price[:60]) > model.score(frame[60:], price[60:])


def test_more_rows_than_a_model_is_meant_for_are_drawn(frame, monkeypatch):
    from dataclasses import replace

    from sparsebayes import models

    few = tuple(replace(m, fit_rows=50) if m.name == "linear" else m for m in MODELS)
    monkeypatch.setattr(models, "MODELS", few)
    labels = np.where(np.arange(120) == 7, "rare", np.where(np.arange(120) % 3, "x", "y"))
    model = table_model(model="linear").fit(frame, labels)
    assert "fitted to a random 50 of 120 rows" in model.notes_
    assert model.classes_.tolist() == ["rare", "x", "y"]
    assert 7 in model.fit_rows_


def test_a_table_without_numeric_columns_is_fitted():
    kind = np.array(list("abc") * 20)
    model = table_model(model="linear").fit(pd.DataFrame({"kind": kind}), 1.0 * (kind == "a"))
    assert model.get_feature_names_out().tolist() == ["kind=a", "kind=b", "kind=c"]


def test_a_name_that_no_model_has_is_refused_with_the_closest():
    with pytest.raises(ValueError, match=r"'process'.*did you mean 'gaussian-process'"):
        choose("regression", "process", 100, 10)
    with pytest.raises(ValueError, match="Unknown model 'ols' for regression; choose from"):
        choose("regression", "ols", 100, 10)


def test_large_tables_get_the_model_that_suits_them():
    assert choose("regression", "auto", 100, 10).name == "auto"
    assert choose("regression", "auto", 100, 1_000).name == "linear"
    assert choose("regression", "auto", 100, 10_000).name == "backfitting"
    assert choose("classification", "auto", 100, 10_000).name == "backfitting"


@pytest.mark.parametrize("choice", MODELS, ids=lambda c: f"{c.task}-{c.name}")
def test_every_model_fits_a_table(choice, frame, price):
    import skops.io as sio

    y = price
    if choice.task == "classification":
        y = np.where(price > price.median(), "dear", "cheap")
    known = choice.make().get_params()
    sampled = choice.name in ("group-lasso", "group-horseshoe")
    params = {"n_samples": 200, "n_warmup": 100, "n_chains": 2} if sampled else {}
    model = table_model(choice.task, model=choice.name, drop=["when"], **params).fit(frame, y)
    if choice.name != "baseline":
        assert model.score(frame, y) > 0.8
    if "groups" in known:
        assert set(model.final_.group_names_) == {"age", "flag", "kind"}
    if choice.skops:
        loaded = sio.loads(sio.dumps(model), trusted=TRUSTED_TYPES)
        np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))


def test_the_accurate_model_has_neighbours():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.uniform(-3, 3, 300), "kind": rng.choice(["x", "y"], 300)})
    y = np.where(frame["kind"] == "x", np.sign(np.sin(3 * frame["a"])), frame["a"])
    y = y + 0.1 * rng.standard_normal(300)
    model = table_model("regression", model="neighbours", max_terms=5).fit(frame, y)
    assert model.final_.neighbours_ >= 16
    assert model.score(frame, y) > 0.9


def test_the_density_of_a_comparison_has_the_tails_of_the_model():
    from scipy.stats import norm

    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(-2, 2, (100, 2)), columns=["a", "b"])
    y = np.sin(X["a"].to_numpy()) + 0.1 * rng.standard_t(2.0, 100)
    model = table_model(
        model="gaussian-process", likelihood="student", kernel="rbf", gamma=1.0, max_terms=10
    ).fit(X, y)
    Z = model.estimator_[:-1].transform(model.transform(X))
    density = model._predictive(X).log_density(y)
    np.testing.assert_allclose(density, model.final_._predictive(Z).log_density(y), rtol=1e-9)
    mean, std = model.predict(X, return_std=True)
    far = model._predictive(X).log_density(mean + 8.0 * std)
    assert np.all(far > norm.logpdf(8.0) - np.log(std) + 10.0)


@pytest.mark.parametrize(("model", "n", "least"), [("auto", 300, 0.6), ("linear", 1000, 0.9)])
def test_error_bars_of_rows_with_gaps_are_their_own(model, n, least):
    rng = np.random.default_rng(0)
    a, b, noise = rng.standard_normal((3, n + 1500))
    y, gap = 5 * a + b + 0.5 * noise, rng.random(n + 1500) < 0.1
    frame = pd.DataFrame({"a": np.where(gap, np.nan, a), "b": b})
    fitted = table_model(model=model).fit(frame[:n], y[:n])
    assert any("noise_variance='input'" in note for note in fitted.notes_)
    low, high = fitted.predict_interval(frame[n:]).T
    inside, gap = (low < y[n:]) & (y[n:] < high), gap[n:]
    assert np.mean(inside[gap]) > least  # .2 with one level of noise
    assert 0.93 < np.mean(inside[~gap]) < 0.98
    level = table_model(model=model, noise_variance="learn").fit(frame[:n], y[:n])
    assert level.final_.noise_variance == "learn"


def test_dates_are_read_as_in_the_training_data_or_year_first_and_else_missing():
    days = pd.date_range("2020-01-01", periods=60)
    inputs = TableInputs().fit(pd.DataFrame({"day": days.strftime("%d.%m.%Y"), "x": range(60)}))

    def seconds(text):
        return inputs.transform(pd.DataFrame({"day": [text], "x": [0]}))[0, -1]

    there = pd.Timestamp("2020-02-03").timestamp()
    assert seconds("03.02.2020") == seconds("2020-02-03") == seconds("2020-02-03 00:00") == there
    with pytest.warns(UserWarning, match=r"'soon' in row 1, where a date such as 15\.06\.2021 is"):
        assert seconds("soon") == np.median(days.astype("datetime64[ns]").astype(np.int64)) / 1e9
    with pytest.warns(UserWarning, match="in columns that had none in the training data: day"):
        seconds(None)
    mixed = days.strftime("%d.%m.%Y").to_numpy(dtype=object, copy=True)
    mixed[::20] = "2020-05-06"
    inputs = TableInputs().fit(pd.DataFrame({"day": mixed, "x": range(60)}))
    assert inputs.dropped_ == {"day": "dates in several formats"}


def read_dates(inputs, texts):
    """Return the column "day" of new rows as days, and the messages of the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Z = inputs.transform(pd.DataFrame({"day": texts, "x": 0}))
    days = pd.to_datetime(
        Z[:, inputs.get_feature_names_out().tolist().index("day seconds")], unit="s"
    )
    return days.strftime("%Y-%m-%d").tolist(), [str(entry.message) for entry in caught]


DAYS = pd.Series(pd.date_range("2020-01-01", periods=300))
EARLY_DAYS = DAYS[DAYS.dt.day <= 12].reset_index(drop=True)  # which could be months


@pytest.mark.parametrize(
    "train",
    [DAYS, DAYS.dt.strftime("%Y-%m-%d"), EARLY_DAYS.dt.strftime("%d.%m.%Y")],
    ids=["datetimes", "year first", "dotted"],
)
def test_dotted_dates_are_day_first(train):
    inputs = TableInputs().fit(pd.DataFrame({"day": train, "x": range(len(train))}))
    assert not any("first" in note for note in inputs.notes_)
    for texts in (["05.03.2020"], ["5.3.2020"], ["2020-03-05"], ["05.03.2020 00:00"]):
        assert read_dates(inputs, texts) == (["2020-03-05"], [])
    assert read_dates(inputs, ["05.03.2020", "2020-03-07"])[0] == ["2020-03-05", "2020-03-07"]


@pytest.mark.parametrize("form", ["%d/%m/%Y", "%m/%d/%Y"])
def test_dates_at_prediction_have_the_order_of_the_training_data(form):
    inputs = TableInputs().fit(pd.DataFrame({"day": DAYS.dt.strftime(form), "x": range(300)}))
    day = pd.Timestamp(2020, 3, 5)
    for text in (day.strftime(form), day.strftime(form.replace("/", "-"))):
        assert read_dates(inputs, [text]) == (["2020-03-05"], [])
    other = "%m/%d/%Y" if form == "%d/%m/%Y" else "%d/%m/%Y"
    texts = [day.strftime(other), pd.Timestamp(2020, 3, 25).strftime(other)]
    days, (message,) = read_dates(inputs, texts)
    assert days == ["2020-03-05", "2020-03-25"]
    assert f"first because of {texts[1]!r}, but those of the training data were" in message


def test_dates_whose_day_may_be_the_month_are_pointed_out():
    inputs = TableInputs().fit(pd.DataFrame({"day": DAYS, "x": range(300)}))
    days, (message,) = read_dates(inputs, ["05/03/2020", "06/04/2020"])
    assert days == ["2020-05-03", "2020-06-04"]
    assert message == (
        "Dates in column 'day', such as '05/03/2020', are read month first, but all of them could "
        "be read in the other order. Pass datetimes, or text as year-month-day."
    )
    assert read_dates(inputs, ["05/03/2020", "25/03/2020"]) == (["2020-03-05", "2020-03-25"], [])
    text = EARLY_DAYS.dt.strftime("%m/%d/%Y 00:00:00.5")
    inputs = TableInputs().fit(pd.DataFrame({"day": text, "x": range(len(text))}))
    assert any("are read month first, but all" in note for note in inputs.notes_)


@pytest.mark.parametrize("last", ["25/03/2020", "soon"])
def test_the_order_of_dates_is_that_of_all_rows(last):
    text = pd.concat([EARLY_DAYS.dt.strftime("%d/%m/%Y")] * 12, ignore_index=True)
    text.iloc[-1] = last
    inputs = TableInputs()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        inputs.fit(pd.DataFrame({"day": text, "x": range(len(text))}))
    assert [f"'{last}' in row {len(text)}" in str(w.message) for w in caught] == [True] * (
        last == "soon"
    )
    if last != "soon":
        assert read_dates(inputs, ["05/03/2020"]) == (["2020-03-05"], [])


def test_rows_with_gaps_are_known_by_their_marks_and_not_by_names():
    frame = pd.DataFrame({"a": [1.0, None, 3.0, 4.0], "b missing": [5.0, 6.0, 7.0, 9.0]})
    inputs = TableInputs()
    assert inputs.has_missing(inputs.fit_transform(frame)).tolist() == [False, True, False, False]


def test_text_in_a_numeric_column_is_a_missing_value_with_a_warning():
    rng = np.random.default_rng(0)
    cylinders = rng.choice(["4", "6", "8"], 92)
    frame = pd.DataFrame({"cylinders": [*cylinders, "rotary"], "x": rng.standard_normal(93)})
    y = np.array([*cylinders.astype(float), 5.0]) + 0.1 * rng.standard_normal(93)
    model = table_model(model="linear").fit(frame[:92], y[:92])
    assert model.inputs_.kinds_["cylinders"] == "numeric"
    with pytest.warns(UserWarning, match="'rotary' in row 1, where the training data have numbers"):
        _, std = model.predict(frame[92:], return_std=True)
    known = model.predict(frame[:92], return_std=True)[1]
    assert std[0] > 5 * np.max(known)  # as uncertain as the number of cylinders makes it
    learnt_as_text = table_model(model="linear").fit(frame, y)
    assert learnt_as_text.inputs_.kinds_["cylinders"] == "categorical"
    whole = frame[:3].assign(cylinders=frame["cylinders"][:3].astype(int))
    np.testing.assert_array_equal(learnt_as_text.predict(whole), learnt_as_text.predict(frame[:3]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        scores = cross_val_score(table_model(model="linear"), frame, y, cv=5)
    assert np.all(scores > 0.9)


@pytest.mark.parametrize("dtype", [object, "string", "polars"])
def test_text_with_leading_zeros_is_categorical(dtype):
    rng = np.random.default_rng(0)
    zips = rng.choice(["01000", "02000", "10115"], 90)
    frame = pd.DataFrame({"zip": zips, "x": rng.standard_normal(90)})
    effect = frame["zip"].map({"01000": 3.0, "02000": -3.0, "10115": 0.0}) + frame["x"]
    frame = pl.from_pandas(frame) if dtype == "polars" else frame.astype({"zip": dtype})
    model = table_model(model="linear").fit(frame, effect)
    assert model.inputs_.kinds_["zip"] == "categorical"
    assert not any("read as numbers" in note for note in model.notes_)
    known = pd.DataFrame({"zip": [10115, 10115.0], "x": [0.0, 0.0]})
    np.testing.assert_allclose(model.predict(known), 0.0, atol=0.2)
    with pytest.warns(UserWarning, match="'1000' in column 'zip' was not in the training data"):
        _, std = model.predict(pd.DataFrame({"zip": [1000], "x": [0.0]}), return_std=True)
    assert std[0] > 2.0


def test_other_text_of_digits_is_numeric_with_a_note():
    frame = pd.DataFrame({"doors": ["0", "2", "10"] * 20, "x": ["0.5", "0", "07.5"] * 20})
    inputs = TableInputs().fit(frame)
    assert inputs.kinds_ == {"doors": "numeric", "x": "numeric"}
    assert inputs.notes_[1:] == [
        "text of digits read as numbers: doors. For codes, pass categories=['doors']."
    ]
    assert inputs.transform(frame[:1].assign(doors=["02"])).tolist() == [[2.0, 0.5]]
    assert TableInputs(categories=["doors"]).fit(frame).kinds_["doors"] == "categorical"


@pytest.mark.parametrize("mark", ["?", "-", "NA", " none "])
def test_text_for_missing_values_is_missing_in_frames_and_in_files(tmp_path, mark):
    from sparsebayes.cli.tables import read_table

    rng = np.random.default_rng(0)
    numbers = [f"{v:.3f}" for v in rng.standard_normal(60)]
    numbers[4] = numbers[9] = mark
    frame = pd.DataFrame({"x": numbers, "kind": rng.choice(["a", "b", mark], 60)})
    y = rng.standard_normal(60)
    (tmp_path / "t.csv").write_text(frame.to_csv(index=False))
    ours = TableInputs().fit(frame, y)
    theirs = TableInputs().fit(read_table(tmp_path / "t.csv").frame, y)
    assert ours.kinds_ == {"x": "numeric", "kind": "categorical"}
    assert ours.notes_ == theirs.notes_
    np.testing.assert_array_equal(ours.transform(frame), theirs.transform(frame))


def new_towns(n_towns, n=300, seed=0):
    """A target with an effect of standard deviation 1 for each town; the last 400 are of others."""
    rng = np.random.default_rng(seed)
    effect = rng.standard_normal(n_towns + 100)
    town = np.r_[rng.integers(0, n_towns, n), n_towns + rng.integers(0, 100, 400)]
    x = rng.uniform(-2, 2, n + 400)
    frame = pd.DataFrame({"x": x, "town": [f"town {i}" for i in town]})
    return frame, 0.5 * x + effect[town] + 0.3 * rng.standard_normal(n + 400)


@pytest.mark.filterwarnings("ignore:'town")
@pytest.mark.parametrize("n_towns", [5, 20, 60])
@pytest.mark.parametrize("transform", [None, "log"])
def test_intervals_of_unseen_categories_include_the_spread_of_the_known_ones(n_towns, transform):
    coverage = []
    for seed in range(6):
        frame, y = new_towns(n_towns, seed=seed)
        y = y if transform is None else np.exp(y)
        model = table_model(model="linear", target_transform=transform).fit(frame[:300], y[:300])
        low, high = model.predict_interval(frame[300:]).T
        coverage.append(np.mean((low < y[300:]) & (y[300:] < high)))
    assert 0.9 < np.mean(coverage) < 0.99  # .5 with the std of known ones
    mean, std = model.predict(frame[300:], return_std=True)
    draws = model.sample_y(frame[300:310], 20_000)
    np.testing.assert_allclose(draws.std(axis=1), std[:10], rtol=0.1)
    np.testing.assert_allclose(draws.mean(axis=1), mean[:10], atol=0.1 * np.max(std[:10]))
    quantiles = model.predict_quantiles(frame[300:], [0.025, 0.975])
    np.testing.assert_allclose(quantiles, np.stack([low, high], axis=1))
    conformal = model.predict_interval(frame[300:], calibrated="conformal")
    assert np.median(np.ptp(conformal, axis=1)) > 0.7 * np.median(high - low)


@pytest.mark.parametrize("n_towns", [5, 60])
def test_unseen_categories_are_warned_of_and_change_no_other_row(n_towns):
    frame, y = new_towns(n_towns)
    model = table_model(model="linear").fit(frame[:300], y[:300])
    known = model.predict(frame[:300], return_std=True)
    with pytest.warns(UserWarning, match=r"'town \d+' in column 'town' was not in the training"):
        both = model.predict(frame, return_std=True)
    for ours, theirs in zip(both, known, strict=True):
        np.testing.assert_array_equal(ours[:300], theirs)
    with pytest.warns(UserWarning, match="was not in the training"):
        covariance = model.predict(frame[290:310], return_cov=True)[1]
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), both[1][290:310])


@pytest.mark.filterwarnings("ignore:'town")
def test_probabilities_of_an_unseen_category_are_averaged_over_the_known_ones():
    frame, y = new_towns(6)
    labels = np.where(y > 0, "high", "low")
    model = table_model(model="linear").fit(frame[:300], labels[:300])
    row = frame.iloc[[300]]
    copies = pd.concat([row.assign(town=f"town {i}") for i in range(6)])
    average = model.predict_proba(copies).mean(axis=0)
    np.testing.assert_allclose(model.predict_proba(row)[0], average)
    assert model.predict(row)[0] == model.classes_[np.argmax(average)]


def test_models_without_a_standard_deviation_are_averaged_too():
    frame, y = new_towns(6)
    model = table_model(model="boosted-trees").fit(frame[:300], y[:300])
    row = frame.iloc[[300]]
    copies = pd.concat([row.assign(town=f"town {i}") for i in range(6)])
    with pytest.warns(UserWarning, match="was not in the training"):
        prediction = model.predict(row)
    np.testing.assert_allclose(prediction, model.predict(copies).mean())


def test_missing_values_where_there_were_none_are_averaged_over_the_training_data():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((200, 2)), columns=["a", "b"])
    y = 3.0 * frame["a"] + 0.1 * rng.standard_normal(200)
    model = table_model(model="linear").fit(frame, y)
    gap = pd.DataFrame({"a": [None, 0.0], "b": [0.0, 0.0]})
    with pytest.warns(UserWarning, match="had none in the training data: a"):
        mean, std = model.predict(gap, return_std=True)
    assert std[0] == pytest.approx(3.0, rel=0.15)
    assert std[1] < 0.2
    assert mean[0] == pytest.approx(3.0 * frame["a"].mean(), abs=0.2)


def test_an_ordered_categorical_is_one_number_in_its_order():
    sizes = ["small", "medium", "large"]
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, 80)
    size = pd.Categorical(np.array(sizes)[codes], sizes, ordered=True)
    frame = pd.DataFrame({"size": size, "x": rng.standard_normal(80)})
    inputs = TableInputs().fit(frame)
    assert inputs.kinds_["size"] == "ordered"
    assert inputs.notes_[0] == "columns: 1 numeric, 1 ordered categorical"
    np.testing.assert_array_equal(inputs.transform(frame)[:, 0], codes)
    np.testing.assert_array_equal(inputs.transform(frame.astype({"size": str}))[:, 0], codes)
    assert TableInputs(categories=["size"]).fit(frame).kinds_["size"] == "categorical"
    model = table_model(model="linear").fit(frame, codes + frame["x"])
    with pytest.warns(UserWarning, match="'huge' in row 1, which is not one of the categories"):
        _, std = model.predict(pd.DataFrame({"size": ["huge"], "x": [0.0]}), return_std=True)
    assert std[0] > 1.0


def test_sentinels_and_repeated_rows_are_noted():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"grade": rng.integers(1, 8, 60), "year": rng.integers(1990, 2024, 60)})
    frame["x"] = rng.standard_normal(60)
    frame.loc[[3, 9], "grade"] = -999
    model = table_model(model="linear").fit(frame, frame["x"])
    (note,) = [note for note in model.notes_ if "-999" in note]
    assert note.startswith("'grade' is -999 in 2 rows, far from its other values. If that stands")
    assert not any("repeat" in note for note in model.notes_)
    twice = pd.concat([frame, frame[:12]])
    model = table_model(model="linear").fit(twice, twice["x"])
    (note,) = [note for note in model.notes_ if "repeat" in note]
    assert note.startswith("12 rows repeat an earlier row (all inputs and the target are equal).")
    assert "cross-validation is too optimistic" in note
    frame["grade"] = rng.integers(1, 8, 60)
    frame.loc[5, "grade"] = 9999
    frame.loc[6, "year"] = 99
    assert TableInputs().fit(frame).sentinels_ == {"grade": (9999.0, 1)}


@pytest.mark.parametrize("value", [-999, 9999])
def test_sentinels_in_the_target_are_noted(value):
    X = np.random.default_rng(0).standard_normal((300, 2))
    y = pd.Series(X[:, 0] + 50.0, name="height")
    model = table_model(model="linear").fit(X, y)
    assert not any("far from" in note for note in model.notes_)
    y[::25] = value
    assert table_model(model="linear").fit(X, y).notes_[1] == (
        f"The target 'height' is {value} in 12 rows, far from its other values. If that stands for "
        "a missing value, drop these rows."
    )


def test_few_rows_are_warned_of(frame, price):
    with pytest.warns(UserWarning, match="The table has 9 rows, too few to check a model"):
        table_model(model="linear").fit(frame[:9], price[:9])


def test_cells_that_are_objects_are_refused_in_a_sentence():
    frame = pd.DataFrame({"x": range(20), "tags": [["a"], ["b"]] * 10})
    with pytest.raises(TypeError, match="Column 'tags' contains objects other than numbers"):
        table_model(model="linear").fit(frame, np.arange(20.0))
    with pytest.raises(TypeError, match="Column 'x' contains complex numbers"):
        table_model(model="linear").fit(frame[["x"]] + 1j, np.arange(20.0))


def test_scores_of_distributions_take_a_table(frame, price):
    from sparsebayes.metrics import SCORERS

    model = table_model(model="linear").fit(frame, price)
    for scorer in SCORERS.values():
        assert np.isfinite(scorer(model, frame, price))


def test_the_automatic_classifier_says_what_it_compared(frame, price):
    label = np.where(price > np.median(price), "dear", "cheap")
    model = table_model().fit(frame, label)
    assert "linear" in model.choices_["member"]
    assert model.final_ is model.estimator_[-1].members_[0].model
    assert any("leave-one-out log probability" in note for note in model.notes_)
    small = table_model(prefer="small").fit(frame, label)
    assert sorted(small.choices_["weight"])[-2:] == [0.0, 1.0]


def test_the_automatic_regression_says_what_it_compared(frame, price):
    model = table_model().fit(frame, price)
    table = model.choices_
    assert {"linear", "Gaussian process"} <= set(table["member"])
    assert model.final_ is model.estimator_[-1].members_[0].model
    assert any("models compared" in note for note in model.notes_)
    with pytest.raises(AttributeError, match="model='auto' has choices_"):
        table_model(model="linear").fit(frame, price).choices_  # noqa: B018
    small = table_model(prefer="small").fit(frame, price)
    assert sorted(small.choices_["weight"])[-2:] == [0.0, 1.0]
    low, high = small.predict_interval(frame).T
    assert np.mean((low < price) & (price < high)) > 0.9


def test_rows_outside_the_range_are_warned_of_once_in_the_units_of_the_table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"metres": rng.uniform(0, 1000, 60), "x": rng.standard_normal(60)})
    y = np.sin(frame["metres"] / 200) + frame["x"] + 0.1 * rng.standard_normal(60)
    model = table_model().fit(frame, y)
    far = frame[:3].assign(metres=[500.0, 9000.0, 8000.0])
    for method in (model.predict, model.predict_interval):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            method(far)
        (entry,) = caught
        low, high = frame["metres"].min(), frame["metres"].max()
        assert str(entry.message).startswith(
            "2 of 3 rows are outside the range of the training rows. The first is row 1, which has "
            f"9000 for 'metres' ({low:.6g} to {high:.6g} in training). "
        )
        assert entry.filename == __file__


def test_a_model_of_scikit_learn_with_standard_deviations_has_intervals(frame, price):
    model = table_model(model="bayesian-ridge").fit(frame, price)
    mean, std = model.predict(frame, return_std=True)
    ends = np.column_stack([mean - 1.6448536 * std, mean + 1.6448536 * std])
    np.testing.assert_allclose(model.predict_interval(frame, 0.9), ends, rtol=1e-6)
    assert not hasattr(table_model(model="baseline").fit(frame, price), "predict_interval")


@pytest.mark.parametrize("name", ["baseline", "boosted-trees"])
def test_models_without_standard_deviations_say_which_have_them(name, frame, price):
    model = table_model(model=name).fit(frame, price)
    for return_std in (True, "function"):
        with pytest.raises(TypeError, match=f"{name!r} has no standard deviations. The regressors"):
            model.predict(frame, return_std=return_std)
    assert model.predict(frame).shape == (len(frame),)


@pytest.mark.parametrize("name", ["auto", "baseline"])
def test_predictions_of_classes_have_no_standard_deviation(name, frame, price):
    model = table_model(model=name).fit(frame, np.where(price > price.median(), "a", "b"))
    with pytest.raises(TypeError, match=r"return_std is for regression\. Use predict_proba"):
        model.predict(frame, return_std=True)


def test_the_missing_probabilities_of_numbered_labels_are_explained(frame, price):
    labels = np.where(price > price.median(), "a", "b")
    predict = partial(cross_val_predict, X=frame, y=labels, cv=2, method="predict_proba")
    with pytest.raises(AttributeError) as caught:
        predict(table_model(model="linear"))
    assert "use table_model(task='classification')" in str(caught.value.__cause__)
    assert predict(table_model("classification", model="linear")).shape == (len(frame), 2)
    assert not hasattr(table_model(model="linear").fit(frame, price), "predict_proba")


def test_score_reads_a_target_of_text_as_the_fit_does():
    X = pd.DataFrame({"size": np.arange(40.0)})
    y = pd.Series([f"{1000 + 250 * k:,}" for k in range(40)], name="price")
    model = table_model(model="linear").fit(X, y)
    assert model.score(X, y) > 0.99
    assert np.all(cross_val_score(table_model(model="linear"), X, y, cv=3) > 0.9)


def test_labels_of_rows_in_another_order_are_warned_of():
    X = pd.DataFrame({"size": np.arange(40.0)})
    y = pd.Series(2.0 * np.arange(40.0), name="price")
    with pytest.warns(UserWarning, match="same labels in another order"):
        table_model(model="linear").fit(X, y[::-1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table_model(model="baseline").fit(X, y.set_axis(range(40, 80)))
