"""The range of the training rows, wherever they are, and warnings of rows beyond it."""

import pickle
import time
import warnings
from functools import reduce

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone

import sparsebayes as sb
from sparsebayes import relevance
from sparsebayes._warn import Found, InsideGap, NewCombination, NewValues, OutsideRange, UnlikeRows
from sparsebayes.input_range import Values
from tests.helpers import warnings_of


def caught(predict, *args):
    """Return the warnings of rows that are unlike the training rows."""
    return [message for message in warnings_of(predict, *args) if isinstance(message, UnlikeRows)]


@pytest.mark.parametrize("seed", range(20))
def test_values_of_parts_are_those_of_all_rows(seed):
    rng = np.random.default_rng(seed)
    centres = rng.uniform(-5.0, 5.0, (4, 3)) * [1.0, 1e3, 1e-3]
    X = centres[rng.integers(0, 4, 60)] + rng.uniform(-0.5, 0.5, (60, 3)) * [1.0, 1e3, 1e-3]
    parts = np.split(X, np.sort(rng.integers(0, 60, 5)))  # some are empty
    merged = reduce(Values.merge, [Values.of(part) for part in parts])
    whole = Values.of(X)
    np.testing.assert_array_equal(merged.box.low, X.min(axis=0))
    np.testing.assert_array_equal(merged.box.high, X.max(axis=0))
    for runs, expected, column in zip(merged.runs, whole.runs, X.T, strict=True):
        np.testing.assert_array_equal(runs, expected)
        values = np.sort(column)
        wide = np.flatnonzero(np.diff(values) > 0.3 * np.ptp(values))
        np.testing.assert_allclose(runs[1, :-1], values[wide], rtol=0)
        np.testing.assert_allclose(runs[0, 1:], values[wide + 1], rtol=0)


def table(n=240):
    """Return correlated inputs, the first with a lone row, and a target."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 0.0, n)
    X = np.column_stack([x, x + 0.05 * rng.standard_normal(n), rng.uniform(-1.0, 1.0, n)])
    X[7, :2] = 3.0
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] + X[:, 2] + 0.1 * rng.standard_normal(n)


SOURCES = {
    "blocks": lambda X: [X[:50], X[50:51], X[51:]],
    "function": lambda X: lambda: iter([X[:200], X[200:]]),
    "dask": lambda X: da.from_array(X, chunks=(70, 3)),
}
MODELS = {
    "rvm": sb.RVMRegressor("rbf", gamma=0.5),
    "columns": sb.OrthogonalLeastSquaresRegressor(None),
    "partitioned": sb.PartitionedRVMRegressor("rbf", gamma=0.5),
    "classes": sb.PartitionedRVMClassifier("rbf", gamma=0.5),
}
NEW = np.array(
    [[-1.0, -1.0, 0.0], [9.0, 9.0, 0.0], [1.5, 1.5, 0.0], [-0.1, -1.9, 0.5], [-1.0, -1.0, 0.5]]
)


@pytest.mark.parametrize("loaded", [True, False])
@pytest.mark.parametrize(
    ("source", "model"),
    [
        *[(source, model) for source in SOURCES for model in ("rvm", "columns")],
        *[("dask", model) for model in ("partitioned", "classes")],
    ],
)
def test_rows_that_are_not_in_memory_have_the_range_of_the_array(
    source, model, loaded, monkeypatch
):
    X, y = table()
    y = y > np.median(y) if model == "classes" else y
    whole = clone(MODELS[model]).fit(X, y)
    if not loaded:
        monkeypatch.setattr(relevance, "_LOADED", 0)
    apart = clone(MODELS[model]).fit(SOURCES[source](X), y)
    np.testing.assert_allclose(
        apart.feature_relevance_, whole.feature_relevance_, rtol=1e-3, atol=1e-6
    )
    messages = caught(apart.predict, NEW)
    assert [str(m) for m in messages] == [str(m) for m in caught(whole.predict, NEW)]
    expected = {NewCombination, OutsideRange} | ({InsideGap} if model != "columns" else set())
    assert {type(m) for m in messages} == expected


def test_predictions_of_blocks_warn_once_with_the_number_of_the_row():
    X, y = table()
    model = sb.RVMRegressor("rbf", gamma=0.5).fit([X[:100], X[100:]], y)
    new = np.tile(NEW, (4, 1))
    together, apart = caught(model.predict, new), caught(model.predict, [new[:6], new[6:]])
    assert [str(m) for m in apart] == [str(m) for m in together]
    (outside,) = (m for m in apart if isinstance(m, OutsideRange))
    assert str(outside).startswith("4 of 20 rows are outside the range")
    assert outside.found.row == 1
    assert [m.found.row for m in caught(model.predict, [new[:1], new[1:]])] == [
        m.found.row for m in together
    ]


def with_names(X):
    return pd.DataFrame(X, columns=["age", "dose", "time"])


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
@pytest.mark.parametrize("kind", ["regression", "classes"])
def test_blocks_of_a_dask_array_give_one_warning_with_the_name(scheduler, kind):
    X, y = table()
    if kind == "classes":
        model = sb.RVMClassifier("rbf", gamma=0.5).fit(with_names(X), y > np.median(y))
    else:
        model = sb.RVMRegressor("rbf", gamma=0.5).fit(with_names(X), y)
    new = with_names(np.tile(NEW, (8, 1)))
    prediction = model.predict(dd.from_pandas(new, npartitions=4))
    with dask.config.set(scheduler=scheduler):
        messages = {str(message) for message in caught(prediction.compute)}
    *others, combination = sorted(messages)
    assert combination.startswith("Some rows have a combination of inputs that is far from all")
    assert "in range: 'dose' does not go with the other inputs. The model" in combination
    risk = model._extrapolation_risk
    assert set(others) == {
        "Some rows are in a gap between the training rows, of which none has 'age' between "
        f"{np.sort(X[:, 0])[-2]:.6g} and 3. The model interpolates over the gap, and {risk}.",
        "Some rows are outside the range of the training rows, in which 'age' is "
        f"{X[:, 0].min():.6g} to 3. The model extrapolates there, and {risk}.",
    }


def test_clients_receive_the_warnings_of_workers(client):
    X, y = table()
    model = sb.RVMRegressor("rbf", gamma=0.5).fit(X, y)
    prediction = model.predict(da.from_array(np.tile(NEW, (8, 1)), chunks=(10, 3)))
    with warnings.catch_warnings(record=True) as entries:
        warnings.simplefilter("always")
        prediction.compute()
        while len(entries) < 3 * 4:  # those of the workers arrive a little later
            time.sleep(0.01)
    assert {type(entry.message) for entry in entries} == {OutsideRange, InsideGap, NewCombination}
    assert len({str(entry.message) for entry in entries}) == 3


def test_sparse_rows_outside_the_range_of_a_column_that_matters_are_warned_of():
    rng = np.random.default_rng(0)
    X = rng.uniform(1.0, 3.0, (200, 800)) * (rng.uniform(size=(200, 800)) < 0.2)
    y = X[:, 5] - X[:, 700] + 0.1 * rng.standard_normal(200)
    model = sb.BackfittingRegressor().fit(csr_array(X), y)
    new = X[:4].copy()
    new[2, 700], new[:, 11] = 50.0, 50.0  # column 11 is not in the model
    for rows in (new, csr_array(new)):
        (message,) = caught(model.predict, rows)
        assert isinstance(message, OutsideRange)
        assert str(message).startswith("1 of 4 rows is outside the range of the training rows.")
        assert (message.found.row, message.found.column) == (2, 700)
        assert message.found.values == (50.0, 0.0, X[:, 700].max())


def test_sparse_rows_are_compared_as_dense_ones_are():
    X, y = table()
    model = sb.RVMRegressor("rbf", gamma=0.5).fit(X, y)
    messages = caught(model.predict, csr_array(NEW))
    assert [str(m) for m in messages] == [str(m) for m in caught(model.predict, NEW)]
    assert len(messages) == 3


@pytest.mark.parametrize(
    "message",
    [
        OutsideRange(Found(1, 2, 0, (5.0, 0.0, 1.0)), 3, "'age'", "it is wrong"),
        InsideGap(Found(1, 2, 0, (0.5, 0.0, 1.0)), 3, "'age'", "it is wrong"),
        NewCombination(Found(2, 2, 0, (0.5, 0.1)), None, "'age'", "it is wrong"),
        NewValues(Found(2, 2, 0, (0.5,)), 3, "'age'", "it is wrong"),
    ],
)
def test_warnings_can_be_sent_to_another_process(message):
    copied = pickle.loads(pickle.dumps(message))
    assert type(copied) is type(message)
    assert (str(copied), copied.found) == (str(message), message.found)
