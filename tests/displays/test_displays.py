import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.linear_model import BayesianRidge, LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sparsebayes import RVMClassifier, RVMRegressor
from sparsebayes._warn import InsideGap
from sparsebayes.displays import (
    CalibrationDisplay,
    EvidencePathDisplay,
    PartialEffectsDisplay,
    PredictionDisplay,
)
from sparsebayes.metrics import interval_coverage


@pytest.fixture(scope="module")
def fitted():
    X = np.linspace(-8, 8, 60)[:, None]
    y = np.sinc(X[:, 0] / np.pi) + 0.1 * np.random.default_rng(0).standard_normal(60)
    return RVMRegressor("rbf", gamma=0.2, algorithm="fast").fit(X, y), X, y


def test_evidence_path_shows_the_history(fitted):
    model, _, _ = fitted
    display = EvidencePathDisplay.from_estimator(model)
    np.testing.assert_array_equal(
        display.evidence_line_.get_ydata(), model.history_["log_evidence"]
    )
    np.testing.assert_array_equal(display.active_line_.get_ydata(), model.history_["n_active"])
    assert display.ax_.figure is display.figure_


def test_prediction_shows_mean_band_data_and_relevance_vectors(fitted):
    model, X, y = fitted
    _, ax = plt.subplots()
    display = PredictionDisplay.from_estimator(model, X, y, ax=ax)
    assert display.ax_ is ax
    mean, std = model.predict(display.grid[:, None], return_std=True)
    np.testing.assert_array_equal(display.line_.get_ydata(), mean)
    low, high = display.band_.get_paths()[0].get_extents().intervaly
    assert low == pytest.approx(np.min(mean - 1.95996 * std), abs=1e-4)
    assert high == pytest.approx(np.max(mean + 1.95996 * std), abs=1e-4)
    assert len(display.vectors_.get_offsets()) == len(model.active_)
    assert len(display.points_.get_offsets()) == len(y)
    assert display.grid[0] < X.min()


def test_what_cannot_be_shown_is_a_sentence(fitted):
    model, X, _ = fitted
    with pytest.raises(ValueError, match=r"models of one input, got X of shape \(60, 2\)"):
        PredictionDisplay.from_estimator(model, np.hstack([X, X]))
    other = BayesianRidge()
    other.history_ = {}
    with pytest.raises(ValueError, match="no evidence path to plot"):
        EvidencePathDisplay.from_estimator(other)


def test_the_grid_of_a_prediction_crosses_gaps_without_a_warning():
    rng = np.random.default_rng(0)
    X = np.r_[rng.uniform(0.0, 1.0, 40), rng.uniform(3.0, 4.0, 40)][:, None]
    model = RVMRegressor("rbf", gamma=5.0).fit(X, np.sin(3.0 * X[:, 0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PredictionDisplay.from_estimator(model, X)
    with pytest.warns(InsideGap, match="in a gap"):
        model.predict([[2.0]])


def test_calibration_shows_where_targets_fall_in_their_distributions():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (400, 1))
    y = np.sin(X[:, 0]) + 0.2 * rng.standard_normal(400)
    model = RVMRegressor("rbf", gamma=0.5).fit(X[:100], y[:100])
    display = CalibrationDisplay.from_estimator(model, X[100:], y[100:])
    bars = display.axes_[0].containers[0].patches
    heights = [bar.get_height() for bar in bars]
    assert np.mean(heights) == pytest.approx(1.0)
    claimed, inside = display.axes_[1].lines[1].get_data()
    expected = interval_coverage(y[100:], model.predict_interval(X[100:], claimed[30]))
    assert inside[30] == pytest.approx(expected)
    width, error = display.axes_[2].lines[1].get_data()
    mean, std = model.predict(X[100:], return_std=True)
    bins = np.argsort(std).reshape(10, 30)  # of 300 rows, from the surest to the least sure
    np.testing.assert_allclose(width, np.sqrt(np.mean(std[bins] ** 2, axis=1)))
    np.testing.assert_allclose(error, np.sqrt(np.mean((y[100:] - mean)[bins] ** 2, axis=1)))
    scaled = make_pipeline(StandardScaler(), model).fit(X[:100], y[:100])
    assert len(CalibrationDisplay.from_estimator(scaled, X, y).cdf) == 400
    with pytest.raises(ValueError, match="no predictive distribution"):
        CalibrationDisplay.from_estimator(LinearRegression().fit(X, y), X, y)


def test_effects_of_a_kernel_model_are_partial_dependences_with_the_band_of_the_posterior():
    from sklearn.inspection import partial_dependence

    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 3))
    y = np.floor(1.5 * X[:, 0]) + np.sin(2 * X[:, 1]) + 0.1 * rng.standard_normal(60)
    model = RVMRegressor("sum", gamma="ard").fit(X, y)
    display = PartialEffectsDisplay.from_estimator(model, X, [1, 0], n_grid=7)
    for grid, effect, std, j in zip(
        display.grid, display.effects, display.std, [1, 0], strict=True
    ):
        found = partial_dependence(
            model, X, [j], percentiles=(0, 1), grid_resolution=7, method="brute"
        )
        np.testing.assert_allclose(grid, found["grid_values"][0])
        np.testing.assert_allclose(effect, found["average"][0] - model.predict(X).mean(), atol=1e-8)
        moved = X.copy()
        moved[:, j] = grid[3]
        both = model.posterior_.predict_covariance(model.basis_(np.vstack([moved, X])), noise=False)
        contrast = np.repeat([1 / 60, -1 / 60], 60)
        band = model.calibration_ * np.sqrt(contrast @ both @ contrast)
        assert std[3] == pytest.approx(band, rel=1e-6)
    assert display.names == ["x1", "x0"]
    best = PartialEffectsDisplay.from_estimator(model, X, n_grid=3)
    assert best.names[-1] == "x2"  # the input that does not matter
    with pytest.raises(ValueError, match="has no effects with credible bands"):
        PartialEffectsDisplay.from_estimator(RVMClassifier("rbf", gamma="scale"), X)


def test_the_effect_of_an_input_of_few_values_is_drawn_at_these():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 4, 60), rng.uniform(-2, 2, 60)])
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * rng.standard_normal(60)
    model = RVMRegressor("rbf", gamma=0.5).fit(X, y)
    display = PartialEffectsDisplay.from_estimator(model, X, [0, 1], n_grid=20)
    np.testing.assert_array_equal(display.grid[0], [0, 1, 2, 3])
    assert len(display.grid[1]) == 20
