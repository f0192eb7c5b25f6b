"""A few rows that make the standard deviations of all rows too large."""

import numpy as np
import pytest

import sparsebayes as sb
from sparsebayes.calibration import outlier_notes
from sparsebayes.posterior import LooPredictions
from tests.helpers import warnings_of


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)


def messages(model, X, y, **options):
    texts = map(str, warnings_of(model.fit, X, y, **options))
    return [text for text in texts if "squared errors" in text]


MODELS = [
    sb.RVMRegressor("rbf", gamma="scale"),
    sb.SparseGPRegressor("rbf", gamma="scale"),
    sb.ForwardRegressor("rbf", gamma="scale"),
    sb.OrthogonalLeastSquaresRegressor(),
    sb.BackfittingRegressor(),
    sb.GroupSpikeSlabRegressor(),
    sb.table_model(model="linear"),
]


@pytest.mark.parametrize("model", MODELS)
def test_a_target_that_is_far_from_all_others_is_warned_of(model):
    X, y = rows(120)
    assert messages(model, X, y) == []
    y[7] = 40.0
    (message,) = messages(model, X, y)
    assert "One row has" in message
    assert "the largest is at a target of 40." in message


@pytest.mark.parametrize(
    "model",
    [
        sb.BackfittingRegressor(),
        sb.GroupARDRegressor(),
        sb.RVMRegressor(kernel=None),
        sb.ForwardRegressor(kernel=None),
        sb.OrthogonalLeastSquaresRegressor(kernel=None),
    ],
)
def test_a_mistyped_cell_does_not_widen_the_intervals_of_all_rows(model):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (160, 8))
    y = X[:, 0] + X[:, 1] + 0.3 * rng.standard_normal(160)
    X[11, 0] = 1e6
    with pytest.warns(UserWarning, match=r"row 11 of X .* \(input 0 is 1e\+06\)"):
        model.fit(X, y)
    new = rng.uniform(-2.0, 2.0, (400, 8))
    mean, std = model.predict(new, return_std=True)
    error = new[:, 0] + new[:, 1] + 0.3 * rng.standard_normal(400) - mean
    # The input is lost: its effect counts as noise.
    assert 0.9 < np.mean(std**2) ** 0.5 / np.mean(error**2) ** 0.5 < 1.1


def errors_of(gap, count=None, noise=None):
    """Predictions with these errors, whose noise variance is their mean square by default."""
    count = np.ones(len(gap)) if count is None else count
    noise = np.average(gap**2, axis=0, weights=count) if noise is None else noise
    y = np.arange(float(gap.size)).reshape(gap.shape)
    return LooPredictions(gap, np.zeros_like(gap), y, count, noise)


def test_the_warning_says_by_how_much_the_deviations_are_too_large():
    errors = np.ones(100)
    errors[3] = 296**0.5  # just below three quarters of the squares, the limit
    assert outlier_notes("model", errors_of(errors)) == ()
    errors[3] = 9.0 * 11**0.5  # 9/10
    (note,) = outlier_notes("model", errors_of(errors))
    assert "One row has 90% of the squared errors; the largest is at a target of 3." in note.message
    assert "are 3.2 times as large" in note.message
    (note,) = outlier_notes("model", errors_of(np.eye(100)[3]))
    assert "100% of the squared errors" in note.message
    assert "are more than 1000 times as large" in note.message


def test_the_errors_are_those_of_rows_that_are_left_out():
    errors = np.ones(100)
    errors[3] = 15.0  # .69 of the squares of a fit that has bent towards the row
    predictions = errors_of(errors)
    assert outlier_notes("model", predictions) == ()
    spread = np.where(np.arange(100) == 3, 0.3 * predictions.fitted_noise, 0.0)
    (note,) = outlier_notes("model", predictions._replace(spread=spread))
    assert "One row has 76% of the squared errors" in note.message
    predictions = predictions._replace(spread=spread / 0.3)  # without the row nothing is known
    assert outlier_notes("model", predictions) == ()


def test_one_row_in_a_hundred_may_be_an_outlier_and_each_target_counts():
    errors = np.ones((300, 2))
    errors[[5, 6, 7], 1] = 30.0
    (note,) = outlier_notes("model", errors_of(errors))
    assert "3 of the rows have 90% of the squared errors" in note.message
    assert outlier_notes("model", errors_of(errors[:200])) == ()
    errors[7, 1] = 300.0  # as few rows as have most of the errors
    (note,) = outlier_notes("model", errors_of(errors))
    assert "One row has 98% of the squared errors" in note.message
    count = np.ones(300)
    count[[5, 6, 7]] = 0.0  # rows of no weight
    assert outlier_notes("model", errors_of(errors, count)) == ()


def test_errors_much_smaller_than_the_noise_have_no_outliers():
    errors = np.ones(100)
    errors[3] = 100.0
    assert len(outlier_notes("model", errors_of(errors))) == 1
    assert outlier_notes("model", errors_of(errors, noise=500.0)) == ()
    rng = np.random.default_rng(4)
    X = rng.standard_normal((300, 4))
    assert messages(sb.SparseGPRegressor(), X, np.sin(X[:, 0])) == []  # largest at the edges


def test_the_warning_is_not_given_where_outliers_do_no_harm():
    X, y = rows(120)
    y[7] = 40.0
    weight = np.ones(120)
    weight[7] = 0.0
    assert messages(sb.RVMRegressor("rbf", gamma="scale"), X, y, sample_weight=weight) == []
    assert messages(sb.RVMRegressor("rbf", gamma="scale", likelihood="student"), X, y) == []
    known = sb.SparseGPRegressor("rbf", gamma="scale", noise_variance=0.01)
    assert messages(known, X, y) == []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        y = X[:, 0] + 0.3 * rng.standard_t(3, 120)
        assert messages(sb.BackfittingRegressor(), X, y) == []
