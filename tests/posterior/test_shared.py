"""Effects that rows with the same value of an input share."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

from sparsebayes import (
    OrthogonalLeastSquaresRegressor,
    RVMRegressor,
    SparseGPRegressor,
    table_model,
)
from sparsebayes.kernels import StationaryKernel
from sparsebayes.posterior.shared import _log_evidence, shared_effects


def subjects(effect, seed=0):
    """Return rows of 20 subjects, each with its own value of the last input, and an effect."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (160, 3))
    X[:, 2] = np.tile(rng.uniform(-2, 2, 20), 8)
    own = np.tile(rng.standard_normal(20), 8)
    y = np.sin(2 * X[:, 0]) + np.cos(X[:, 1] + X[:, 2]) + effect * own
    return X, y + 0.3 * rng.standard_normal(160)


def messages(model, X):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.predict(X)
    return [str(entry.message) for entry in caught if "a value of" in str(entry.message)]


@pytest.mark.parametrize(
    "model",
    [SparseGPRegressor(), RVMRegressor(), OrthogonalLeastSquaresRegressor("rbf", gamma="ard")],
    ids=["GP", "RVM", "OLS"],
)
def test_rows_of_new_subjects_are_warned_of(model):
    X, y = subjects(effect=0.7)
    model.fit(X, y)
    other = X[:5] + [0.0, 0.0, 0.05]
    (message,) = messages(model, np.r_[X, other])
    assert message.startswith("5 of 165 rows have a value of input 2 that no training row has.")
    assert messages(model, X) == []
    assert messages(model, X.astype(np.float32)) == []


def test_levels_of_a_smooth_function_are_not_warned_of():
    for seed in range(4):
        X, y = subjects(effect=0.0, seed=seed)
        model = SparseGPRegressor().fit(X, y)
        assert messages(model, X + [0.0, 0.0, 0.05]) == []


def test_values_that_occur_once_are_judged_by_leave_one_out_residuals():
    X, y = subjects(effect=0.7)
    kernel, weight = StationaryKernel("rbf", 0.5), np.ones(len(y))
    assert len(shared_effects(kernel, X, y, weight, 0.1, [2])) == 1
    rng = np.random.default_rng(1)
    X, y = np.r_[X, rng.uniform(-2, 2, (10, 3))], np.r_[y, rng.standard_normal(10)]
    assert shared_effects(kernel, X, y, np.ones(len(y)), 0.1, [2]) == ()


def test_repeated_measurements_are_not_warned_of():
    X, y = subjects(effect=0.7)
    X[:, :2] = np.tile(X[:20, :2], (8, 1))
    assert shared_effects(StationaryKernel("rbf", 0.5), X, y, np.ones(160), 0.1, range(3)) == ()


def test_the_evidence_is_the_density_of_the_target():
    rng = np.random.default_rng(0)
    F, y, weight = rng.standard_normal((12, 4)), rng.standard_normal((12, 2)), rng.uniform(1, 3, 12)
    C = F @ F.T + np.diag(1.0 / weight)
    expected = 0.0
    for t in y.T:
        v = t @ np.linalg.solve(C, t) / 12
        expected += multivariate_normal(cov=v * C).logpdf(t)
    # Up to what depends on the number of rows and on the weights.
    constant = -12 * (np.log(2 * np.pi) + 1 - np.log(12)) + np.sum(np.log(weight))
    assert _log_evidence(F @ F.T, y, weight) + constant == pytest.approx(expected)


def test_a_table_names_the_column():
    X, y = subjects(effect=0.7)
    frame = pd.DataFrame(X, columns=["dose", "time", "age"])
    model = table_model(model="gaussian-process").fit(frame, y)
    (message,) = messages(model, frame.assign(age=frame["age"] + 0.05)[:4])
    assert "4 of 4 rows have a value of 'age'" in message
