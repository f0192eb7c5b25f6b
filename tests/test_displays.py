import numpy as np
import pytest
from sklearn.linear_model import BayesianRidge

from sparsebayes import RVMRegressor
from sparsebayes.displays import EvidencePathDisplay, PredictionDisplay

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
