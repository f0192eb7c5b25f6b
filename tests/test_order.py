"""Errors that are correlated from row to row."""

import numpy as np
import pytest

import sparsebayes as sb
from sparsebayes.calibration import order_notes
from sparsebayes.posterior import LooPredictions
from tests.helpers import warnings_of


def correlated_noise(rng, n, correlation=0.9):
    e = rng.standard_normal(n)
    for i in range(1, n):
        e[i] = correlation * e[i - 1] + (1.0 - correlation**2) ** 0.5 * e[i]
    return e


def rows(noise, n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    return X, X[:, 0] - X[:, 1] + 0.3 * noise(rng, n)


def messages(model, X, y, **options):
    texts = map(str, warnings_of(model.fit, X, y, **options))
    return [text for text in texts if "successive rows" in text]


MODELS = [
    sb.RVMRegressor("rbf", gamma="scale"),
    sb.RVMRegressor("rbf", gamma="scale", likelihood="student"),
    sb.SparseGPRegressor("rbf", gamma="scale"),
    sb.OrthogonalLeastSquaresRegressor(None),
    sb.BackfittingRegressor(),
    sb.GroupSpikeSlabRegressor(),
    sb.table_model(),
]


@pytest.mark.parametrize("model", MODELS)
def test_noise_that_is_correlated_in_time_is_warned_of_once(model):
    X, y = rows(correlated_noise)
    (message,) = messages(model, X, y)
    assert "cross-validate by period or by subject" in message
    order = np.random.default_rng(1).permutation(len(y))
    assert messages(model, X[order], y[order]) == []


def test_rows_of_a_subject_that_follow_each_other_are_warned_of():
    def of_subjects(rng, n):
        return np.repeat(rng.standard_normal(n // 5), 5) + 0.3 * rng.standard_normal(n)

    assert len(messages(sb.BackfittingRegressor(), *rows(of_subjects))) == 1


def test_rows_in_the_order_of_an_input_or_of_the_target_are_not_warned_of():
    X, y = rows(lambda rng, n: rng.standard_normal(n))
    for values in (X[:, 0], y, -y):
        order = np.argsort(values)
        assert messages(sb.RVMRegressor("rbf", gamma="scale"), X[order], y[order]) == []


def predictions(errors, weight=None):
    y = np.random.default_rng(0).standard_normal(errors.shape)
    weight = np.ones(len(y)) if weight is None else weight
    return LooPredictions(errors, np.zeros_like(errors), y, weight, np.var(errors, axis=0))


def test_the_correlation_is_that_of_rows_with_weight_and_has_to_exceed_chance():
    errors = correlated_noise(np.random.default_rng(0), 200)
    assert len(order_notes(predictions(errors))) == 1
    assert order_notes(predictions(errors[:12])) == ()
    assert order_notes(predictions(np.zeros(50))) == ()
    between = np.zeros(400)
    between[::2] = errors
    between[1::2] = np.random.default_rng(1).standard_normal(200)
    assert order_notes(predictions(between)) == ()
    assert len(order_notes(predictions(between, np.tile([1.0, 0.0], 200)))) == 1
    two = np.column_stack([np.random.default_rng(2).standard_normal(200), errors])
    assert len(order_notes(predictions(two))) == 1
