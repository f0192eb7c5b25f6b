"""Rows whose inputs are each in range, but combined as in no training row."""

import numpy as np
import pandas as pd
import pytest

import sparsebayes as sb
from sparsebayes._warn import NewCombination
from sparsebayes.joint_range import JointRange
from tests.helpers import warnings_of


def correlated(n, rng, gap=0.05):
    """Return rows of three inputs, the first two of which are nearly equal."""
    x = rng.uniform(-2.0, 2.0, n)
    return np.column_stack([x, x + gap * rng.standard_normal(n), rng.uniform(-2.0, 2.0, n)])


def new_combinations(predict, X):
    return [message for message in warnings_of(predict, X) if isinstance(message, NewCombination)]


def largest_distance(X, columns):
    """Return the largest squared distance of a row left out, by regressions without it.

    Residuals of new rows have the covariance C (1 + h), where h is the leverage of the other inputs
    and C the mean product of the residuals of the rows. The unit is that of leverage.
    """
    rest, found = np.setdiff1d(np.arange(X.shape[1]), columns), []
    for i in range(len(X)):
        A, B = np.column_stack([np.ones(len(X)), X[:, rest]]), X[:, columns]
        a, b, A, B = A[i], B[i], np.delete(A, i, axis=0), np.delete(B, i, axis=0)
        slopes = np.linalg.lstsq(A, B)[0]
        residual, products = b - a @ slopes, (B - A @ slopes).T @ (B - A @ slopes)
        h = a @ np.linalg.solve(A.T @ A, a)
        found.append(residual @ np.linalg.solve(products, residual) / (1.0 + h))
    return max(found)


@pytest.mark.parametrize("columns", [[0], [1, 2], [0, 1, 2]])
def test_the_limit_is_the_distance_of_a_row_that_is_left_out(columns):
    X = correlated(40, np.random.default_rng(0), gap=0.5)
    joint = JointRange.from_rows(X, np.array(columns))
    np.testing.assert_allclose(joint.limit, 2.25 * largest_distance(X, columns), rtol=1e-8)


def test_rows_of_the_same_distribution_are_not_warned_of():
    far = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X, new = rng.standard_normal((100, 5)), rng.standard_normal((1000, 5))
        far += int(np.sum(JointRange.from_rows(X, np.arange(5)).is_unlike(new)))
    assert far <= 2


def test_a_row_is_described_by_what_its_other_inputs_say():
    X = correlated(100, np.random.default_rng(1), gap=0.1)
    joint = JointRange.from_rows(X, np.array([0, 2]))
    new = np.array([[0.0, 0.0, 0.0], [1.5, -1.0, 0.3]])
    assert joint.is_unlike(new).tolist() == [False, True]
    found = joint.describe(new, np.array([1]))
    A = np.column_stack([np.ones(100), X[:, 1:]])
    expected = np.array([1.0, -1.0, 0.3]) @ np.linalg.lstsq(A, X[:, 0])[0]
    assert (found.row, found.column, found.n_rows) == (1, 0, 1)
    np.testing.assert_allclose(found.values, [1.5, expected], rtol=1e-8)


@pytest.mark.parametrize(
    "model",
    [
        sb.BackfittingRegressor(),
        sb.RVMRegressor("rbf", gamma="scale"),
        sb.SparseGPRegressor("rbf", gamma="ard"),
        sb.GroupSpikeSlabRegressor(),
        sb.BackfittingClassifier(),
        sb.SparseGPClassifier("rbf", gamma="scale"),
    ],
)
def test_rows_that_break_a_correlation_are_warned_of(model):
    rng = np.random.default_rng(2)
    X = correlated(120, rng)
    y = X @ [1.0, 1.0, 0.5] + 0.3 * rng.standard_normal(120)
    is_classifier = hasattr(model, "predict_proba")
    model.fit(X, (y > 0.0).astype(int) if is_classifier else y)
    predict = model.predict_proba if is_classifier else model.predict
    assert new_combinations(predict, correlated(300, rng)) == []
    new = correlated(50, rng)
    new[7, :2] = 1.5, -1.5  # each in range
    (message,) = new_combinations(predict, new)
    assert str(message).startswith("1 of 50 rows has a combination of inputs that is far from all")
    assert message.found.row == 7
    assert message.found.column in (0, 1)


def test_inputs_that_are_known_not_to_matter_may_be_combined_in_new_ways():
    rng = np.random.default_rng(3)
    X = correlated(100, rng, gap=0.5)
    y = X[:, 2] + 0.1 * rng.standard_normal(100)
    model = sb.GroupSpikeSlabRegressor().fit(X, y)
    assert new_combinations(model.predict, np.array([[1.8, -1.8, 0.0]])) == []


def test_dropped_inputs_are_warned_of_where_no_row_tells_their_effects_apart():
    # The effects of the first two cancel in the training rows, and the model drops both.
    rng = np.random.default_rng(3)
    X = correlated(150, rng, gap=0.1)
    y = 2.0 * (X[:, 0] - X[:, 1]) + X[:, 2] + 0.5 * rng.standard_normal(150)
    model = sb.BackfittingClassifier().fit(X, y > 0.0)
    assert np.all(model.feature_relevance_[:2] < 0.01)
    assert new_combinations(model.predict, correlated(300, rng, gap=0.1)) == []
    (message,) = new_combinations(model.predict, np.array([[1.8, -1.8, 0.0]]))
    assert message.found.column in (0, 1)


def test_the_effect_of_an_input_is_unknown_by_the_variance_of_least_squares():
    # .25 of that of the noise, for one standard deviation of the input.
    X = correlated(100, np.random.default_rng(0), gap=0.1)
    A = np.column_stack([np.ones(100), (X - X.mean(axis=0)) / X.std(axis=0)])
    variance = np.diag(np.linalg.inv(A.T @ A))[1:]
    unknown = np.flatnonzero(variance > 0.25)
    assert unknown.tolist() == [0, 1]
    np.testing.assert_array_equal(JointRange.from_rows(X, np.array([], int)).columns, unknown)
    np.testing.assert_array_equal(JointRange.from_rows(X, np.array([1, 2])).columns, [0, 1, 2])


def test_a_table_names_the_column_in_its_units():
    rng = np.random.default_rng(4)
    a = rng.uniform(0, 1000, 120)
    frame = pd.DataFrame({"metres": a, "feet": 3.28 * a + rng.normal(0, 20, 120)})
    y = a / 300 + 0.1 * rng.standard_normal(120)
    model = sb.table_model(prefer="small").fit(frame, y)
    new = pd.DataFrame({"metres": [500.0, 900.0], "feet": [1640.0, 500.0]})
    (message,) = new_combinations(model.predict, new)
    assert "The first is row 1, which has" in str(message)
    assert message.found.values[0] in (900.0, 500.0)
    assert "'metres'" in str(message) or "'feet'" in str(message)


@pytest.mark.parametrize("gap", [0.0, 1e-13])
def test_copies_of_an_input_are_alike_up_to_rounding(gap):
    rng = np.random.default_rng(5)
    x = rng.uniform(1e3, 1e3 + 1, (80, 1))
    X = np.column_stack([x, x / 3.0 + gap, rng.uniform(-1, 1, 80)])
    joint = JointRange.from_rows(X, np.array([0, 2]))
    x = rng.uniform(1e3, 1e3 + 1, (500, 1))
    new = np.column_stack([x, (x.astype(np.float64) + 1e-9) / 3.0, rng.uniform(-1, 1, 500)])
    assert not joint.is_unlike(new).any()
    new[3, 1] += 0.1
    assert np.flatnonzero(joint.is_unlike(new)).tolist() == [3]


def test_few_rows_and_single_values_have_no_joint_range():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((20, 30))
    assert JointRange.from_rows(X, np.arange(30)) is None
    X = np.column_stack([np.arange(20.0), rng.uniform(size=20), np.arange(20) == 3])
    assert JointRange.from_rows(X, np.arange(3)) is None
    assert JointRange.from_rows(X[:, :2], np.arange(2)) is not None
    assert JointRange.from_rows(X[:, :2] * 1e200, np.arange(2)) is None


def test_further_rows_of_partial_fit_end_the_joint_range():
    rng = np.random.default_rng(7)
    X = correlated(80, rng)
    y = X @ [1.0, 1.0, 0.5] + 0.3 * rng.standard_normal(80)
    model = sb.RVMRegressor(kernel=None).fit(X, y)
    new = np.array([[1.5, -1.5, 0.0]])
    assert len(new_combinations(model.predict, new)) == 1
    model.partial_fit(rng.uniform(-2, 2, (40, 3)), rng.standard_normal(40))
    assert new_combinations(model.predict, new) == []


def test_rows_in_float32_have_the_range_of_those_in_float64():
    rng = np.random.default_rng(8)
    X = np.outer(rng.standard_normal(400), [1.0, 1.1, 0.9, 1.2]).astype(np.float32)  # rank one
    single, double = (JointRange.from_rows(x, np.arange(4)) for x in (X, X.astype(np.float64)))
    assert single.limit == double.limit < 1.0
    assert not single.is_unlike(X).any()
