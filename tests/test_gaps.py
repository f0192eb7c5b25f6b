"""Rows in a gap between the training rows."""

import warnings

import numpy as np
import pandas as pd
import pytest

import sparsebayes as sb
from sparsebayes._warn import InsideGap
from sparsebayes.input_range import Gaps, InputRange, Values
from sparsebayes.kernels import KernelChoice
from tests.helpers import warnings_of


def gap_warnings(predict, X):
    return [message for message in warnings_of(predict, X) if isinstance(message, InsideGap)]


def with_lone_row(rng, n=200):
    """Return rows below zero in the first input, but for one at 2."""
    X = np.column_stack([rng.uniform(-2.0, 0.0, n), rng.uniform(-2.0, 2.0, n)])
    X[3, 0] = 2.0
    return X


def test_a_row_in_a_gap_is_far_from_both_ends():
    X = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 10.0])[:, None]
    gaps = Gaps.between(Values.of(X).runs, np.array([0.5]))  # 15 % of the range is more: 1.5
    new = np.array([2.5, 5.4, 5.6, 8.4, 8.6, 20.0])[:, None]
    assert gaps.find(new) == (2, 2, 0, (5.6, 4.0, 10.0))
    assert gaps.find(new[[0, 1, 4, 5]]) is None
    assert Gaps.between(Values.of(X).runs, np.array([2.9])).find(new[[2, 3]]) is None
    assert Gaps.between(Values.of(X).runs, np.array([3.1])) is None
    assert Gaps.between(Values.of(X).runs, np.array([np.inf])) is None


@pytest.mark.parametrize(
    "model",
    [
        sb.OrthogonalLeastSquaresRegressor(),
        sb.BackfittingRegressor("rbf"),
        sb.RVMRegressor("rbf", gamma=0.5),
        sb.SparseGPRegressor(),
        sb.RVMClassifier(),
    ],
)
def test_rows_between_a_lone_row_and_the_others_are_warned_of(model):
    rng = np.random.default_rng(0)
    X = with_lone_row(rng)
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(200)
    is_classifier = hasattr(model, "predict_proba")
    model.fit(X, (y > 0.0).astype(int) if is_classifier else y)
    predict = model.predict_proba if is_classifier else model.predict
    new = np.column_stack([rng.uniform(-2.0, 0.0, 300), rng.uniform(-2.0, 2.0, 300)])
    assert gap_warnings(predict, new) == []
    new[17, 0] = 1.0
    (message,) = gap_warnings(predict, new)
    assert str(message).startswith("1 of 300 rows is in a gap between the training rows.")
    assert (message.found.row, message.found.column) == (17, 0)
    assert message.found.values == (1.0, np.sort(X[:, 0])[-2], 2.0)


def test_a_linear_function_may_cross_a_gap():
    rng = np.random.default_rng(1)
    X = with_lone_row(rng)
    model = sb.BackfittingRegressor().fit(X, X @ [1.0, 2.0] + 0.1 * rng.standard_normal(200))
    assert gap_warnings(model.predict, np.array([[1.0, 0.0]])) == []
    linear = KernelChoice(family="linear", gamma=1.0)
    assert InputRange.from_values(Values.without_gaps(X), linear, np.arange(2)).gaps is None


def test_a_table_names_the_column_of_a_gap_in_its_units():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"age": rng.integers(20, 40, 150).astype(float)})
    frame["dose"] = rng.uniform(0.0, 1.0, 150)
    frame.loc[5, "age"] = 90.0
    y = np.sin(frame["age"] / 5.0) + frame["dose"] + 0.1 * rng.standard_normal(150)
    model = sb.table_model(model="gaussian-process").fit(frame, y)
    new = pd.DataFrame({"age": [30.0, 65.0], "dose": [0.5, 0.5]})
    (message,) = gap_warnings(model.predict, new)
    assert "row 1, which has 65 for 'age' (no training row is between 39 and 90)" in str(message)


def test_further_rows_of_partial_fit_end_the_gaps():
    rng = np.random.default_rng(3)
    X = with_lone_row(rng)
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(200)
    model = sb.RVMRegressor("rbf", gamma=0.5).fit(X, y)
    new = np.array([[1.0, 0.0]])
    assert len(gap_warnings(model.predict, new)) == 1
    model.partial_fit(rng.uniform(-2.0, 2.0, (50, 2)), rng.standard_normal(50))
    assert gap_warnings(model.predict, new) == []


@pytest.mark.parametrize(
    "predict",
    [
        lambda model, X: model.predict(X),
        lambda model, X: model.predict(X, return_std=True),
        lambda model, X: model.predict(X, return_cov=True),
        lambda model, X: model.predict_interval(X),
        lambda model, X: model.predict_quantiles(X, [0.1, 0.9]),
        lambda model, X: model.sample_y(X),
    ],
)
@pytest.mark.parametrize(
    "model",
    [
        sb.RVMRegressor(),
        sb.SparseGPRegressor(neighbours=16),
        sb.BackfittingRegressor(),
        sb.GroupSpikeSlabRegressor(),
        sb.GroupHorseshoeRegressor(n_samples=100, n_warmup=50),
    ],
)
def test_every_prediction_warns_of_rows_outside_the_range(model, predict):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (60, 2))
    model.fit(X, X[:, 0] - X[:, 1] + 0.1 * rng.standard_normal(60))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predict(model, X[:5])
    with pytest.warns(UserWarning, match="1 of 5 rows is outside the range") as caught:
        predict(model, X[:5] + [[8.0, 0.0], *[[0.0, 0.0]] * 4])
    assert len(caught) == 1
