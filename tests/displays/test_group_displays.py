import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from sparsebayes.displays._group import (
    CoefficientDisplay,
    CredibleSetsDisplay,
    DesignErrorDisplay,
    InclusionDisplay,
)
from sparsebayes.estimators.group_spike_slab import GroupSpikeSlabRegressor


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 12))
    y = X[:, :3] @ [2.0, -1.0, 1.0] + 0.3 * rng.standard_normal(40)
    return GroupSpikeSlabRegressor(np.repeat(list("abcd"), 3)).fit(X, y)


def test_inclusion_bars_are_the_probabilities_likeliest_first(fitted):
    display = InclusionDisplay.from_estimator(fitted, most=3)
    lengths = [bar.get_width() for bar in display.bars_]
    np.testing.assert_allclose(lengths, np.sort(fitted.inclusion_probability_)[::-1][:3])
    assert display.ax_.get_yticklabels()[0].get_text() == "a"
    assert "3 of 4" in display.ax_.get_ylabel()


def test_coefficients_show_mean_and_interval(fitted):
    display = CoefficientDisplay.from_estimator(fitted, most=5)
    inside = display.ax_.containers[0]
    np.testing.assert_allclose(inside.lines[0].get_xdata(), fitted.coef_[:3])
    bars = inside.lines[2][0].get_segments()
    width = bars[0][1, 0] - bars[0][0, 0]
    assert width == pytest.approx(2 * 1.96 * fitted.coef_std_[0])


def test_sets_and_selection_are_those_of_the_model(fitted):
    display = CredibleSetsDisplay.from_estimator(fitted, fdr=0.05)
    assert [s.tolist() for s in display.sets] == [s.tolist() for s in fitted.credible_sets()]
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert labels[0] == "a*"
    assert "set 1: 1.00" in [text.get_text() for text in display.ax_.texts]
    with pytest.raises(ValueError, match="has no credible_sets"):
        CredibleSetsDisplay.from_estimator(LinearRegression())


def test_design_curves_are_means_over_repeats():
    curves = {"random": [[0.8, 0.6], [0.6, 0.4]], "designed": [0.7, 0.1]}
    display = DesignErrorDisplay([10, 20], curves, error_name="rmse").plot()
    np.testing.assert_allclose(display.lines_["random"].get_ydata(), [0.7, 0.5])
    assert display.ax_.get_ylabel() == "rmse"


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(ValueError, match="no inclusion_probability_"):
        InclusionDisplay.from_estimator(LinearRegression())
    with pytest.raises(ValueError, match="no single vector of coefficients"):
        CoefficientDisplay.from_estimator(LinearRegression())
    with pytest.raises(ValueError, match="has 3 steps, but n_rows has 2"):
        DesignErrorDisplay([1, 2], {"a": [1, 2, 3]})
