import numpy as np
import pytest

from sparsebayes import NARXRegressor
from sparsebayes.displays import (
    ErrorReductionDisplay,
    FreeRunDisplay,
    HorizonDisplay,
    ResidualTestDisplay,
)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    u, y = rng.uniform(-1, 1, (600, 1)), np.zeros(600)
    for k in range(2, 600):
        y[k] = 0.8 * y[k - 1] + u[k, 0] - 0.4 * u[k - 2, 0] ** 2 + 0.1 * rng.standard_normal()
    return NARXRegressor(2, 2, degree=2).fit(u[:400], y[:400]), u, y


def test_free_run_is_what_simulate_says_with_its_band(fitted):
    model, u, y = fitted
    display = FreeRunDisplay.from_estimator(model, u[400:], y[400:])
    free, std = model.simulate(u[400:], y[400:402], return_std=True)
    np.testing.assert_array_equal(display.line_.get_ydata(), free)
    low, high = display.band_.get_paths()[0].get_extents().intervaly
    assert low == pytest.approx(np.min(free - 1.95996 * std), abs=1e-4)
    assert high == pytest.approx(np.max(free + 1.95996 * std), abs=1e-4)
    assert len(display.points_.get_ydata()) == 200


def test_residual_tests_pass_a_true_model_and_fail_one_without_a_term(fitted):
    model, u, y = fitted
    display = ResidualTestDisplay.from_estimator(model, u, y)
    assert set(display.correlations) == {"errors", "u"}
    assert display.band == pytest.approx(1.96 / np.sqrt(598), rel=1e-3)
    assert all(share <= 0.2 for share in display.share_outside.values())
    error = (y - model.predict(u, y))[2:]
    expected = np.corrcoef(error[1:], error[:-1])[0, 1]
    assert display.correlations["errors"][0] == pytest.approx(expected, abs=0.01)
    wrong = NARXRegressor([0], 1, degree=1, refine=None).fit(u, np.cumsum(u[:, 0]) * 0.1 + y)
    display = ResidualTestDisplay.from_estimator(wrong, u, np.cumsum(u[:, 0]) * 0.1 + y)
    assert max(display.share_outside.values()) > 0.0
    assert len(display.ax_) == 2


def test_horizon_shows_the_errors_of_predict(fitted):
    model, u, y = fitted
    display = HorizonDisplay.from_estimator(model, u, y, horizons=(1, 3, 9, 10**6))
    np.testing.assert_array_equal(display.horizons, [1, 3, 9])
    np.testing.assert_array_equal(display.errors, model.errors_by_horizon(u, y, [1, 3, 9]))
    assert display.errors[0] < display.errors[2]


def test_error_reductions_are_those_of_the_terms(fitted):
    model, _, _ = fitted
    display = ErrorReductionDisplay.from_estimator(model)
    np.testing.assert_array_equal(display.err, model.terms_.err)
