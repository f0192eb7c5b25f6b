import numpy as np
import pytest
from sklearn.linear_model import BayesianRidge, LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sparsebayes import RVMRegressor
from sparsebayes.displays import CalibrationDisplay, EvidencePathDisplay, PredictionDisplay
from sparsebayes.metrics import interval_coverage

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


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
    _, ax = matplotlib.pyplot.subplots()
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
    with pytest.raises(ValueError, match="keeps no evidence path"):
        EvidencePathDisplay.from_estimator(other)


def test_calibration_shows_where_targets_fall_in_their_distributions():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (400, 1))
    y = np.sin(X[:, 0]) + 0.2 * rng.standard_normal(400)
    model = RVMRegressor("rbf", gamma=0.5).fit(X[:100], y[:100])
    display = CalibrationDisplay.from_estimator(model, X[100:], y[100:])
    heights = [bar.get_height() for bar in display.axes_[0].patches if bar.get_width() < 0.1]
    assert np.mean(heights) == pytest.approx(1.0)
    claimed, inside = display.axes_[1].lines[1].get_data()
    expected = interval_coverage(y[100:], model.predict_interval(X[100:], claimed[30]))
    assert inside[30] == pytest.approx(expected)
    std, error = display.axes_[2].lines[1].get_data()
    np.testing.assert_allclose(error, std, rtol=0.5)
    scaled = make_pipeline(StandardScaler(), model).fit(X[:100], y[:100])
    assert len(CalibrationDisplay.from_estimator(scaled, X, y).cdf) == 400
    with pytest.raises(ValueError, match="no predictive distribution"):
        CalibrationDisplay.from_estimator(LinearRegression().fit(X, y), X, y)
