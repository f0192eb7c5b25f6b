"""The target or its logarithm: choice by evidence, and predictions of y itself."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparsebayes.estimators.forward import ForwardRegressor
from sparsebayes.estimators.rvm import RVMRegressor
from sparsebayes.estimators.sparse_gp import SparseGPRegressor
from sparsebayes.estimators.target_transform import SparseTargetTransform


def positive(n=300, seed=0, spread=0.4):
    """A target whose logarithm has a smooth mean and constant noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.exp(1.0 + np.sin(2 * X[:, 0]) + spread * rng.standard_normal(n))


def additive(n=300, seed=0):
    """A positive target with constant noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, 10.0 + np.sin(2 * X[:, 0]) + 0.4 * rng.standard_normal(n)


def test_spread_that_grows_with_the_level_calls_for_the_logarithm():
    model = SparseTargetTransform(RVMRegressor("rbf", gamma="scale")).fit(*positive())
    assert model.target_transform_ == "log"
    assert model.density_gain_ > 50


def test_constant_spread_leaves_the_target_alone():
    X, y = additive()
    model = SparseTargetTransform(RVMRegressor("rbf", gamma="scale")).fit(X, y)
    assert model.target_transform_ is None
    plain = RVMRegressor("rbf", gamma="scale").fit(X, y)
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    assert model.log_evidence_ == plain.log_evidence_


def test_the_units_of_y_do_not_matter_to_the_choice():
    X, y = positive()
    model = SparseTargetTransform(ForwardRegressor("rbf", gamma=0.5, max_terms=30))
    gains, means = [], []
    for unit in (1.0, 1024.0):
        gains.append(model.fit(X, unit * y).density_gain_)
        means.append(model.predict(X) / unit)
    assert gains[0] == pytest.approx(gains[1], abs=1e-3)
    np.testing.assert_allclose(means[0], means[1], rtol=1e-6)


def test_the_evidence_of_the_logarithm_is_that_of_log_y_with_its_jacobian():
    X, y = positive()
    model = SparseTargetTransform(RVMRegressor("rbf", gamma="scale"), target_transform="log").fit(
        X, y
    )
    inner = RVMRegressor("rbf", gamma="scale").fit(X, np.log(y))
    assert model.log_evidence_ == pytest.approx(inner.log_evidence_ - np.sum(np.log(y)))


def test_margin_moves_the_choice():
    X, y = positive()
    assert (
        SparseTargetTransform(RVMRegressor("rbf", gamma="scale"), margin=1e6)
        .fit(X, y)
        .target_transform_
        is None
    )
    X, y = additive()
    assert (
        SparseTargetTransform(RVMRegressor("rbf", gamma="scale"), margin=-1e6)
        .fit(X, y)
        .target_transform_
        == "log"
    )


def test_the_mean_is_of_the_chosen_model_and_a_worse_error_is_noted():
    X, y = additive()
    model = SparseTargetTransform(RVMRegressor("rbf", gamma="scale"), margin=-1e6).fit(X, y)
    assert model.target_transform_ == "log"
    plain = RVMRegressor("rbf", gamma="scale").fit(X, y)
    assert model.loo_rmse_["y"] == pytest.approx(np.sqrt(np.mean(plain.loo_.residuals**2)))
    assert len(model.notes_) == 1
    np.testing.assert_allclose(model.predict(X), plain.predict(X), rtol=0.02)
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (300, 1))  # linear in y, and not in log y
    y = 1.0 + 200 * X[:, 0] + 0.5 * rng.standard_normal(300)
    model = SparseTargetTransform(RVMRegressor(kernel=None), margin=-1e6).fit(X, y)
    assert "the leave-one-out RMSE of the mean is" in model.notes_[1]


def test_inputs_in_float32_have_targets_that_float32_cannot_hold():
    X, y = positive()
    model = SparseTargetTransform(RVMRegressor("rbf", gamma="scale"), target_transform="log")
    mean, std = model.fit(X, y).predict(X.astype(np.float32), return_std=True)
    large = model.fit(X, 1e150 * y).predict(X.astype(np.float32), return_std=True)
    np.testing.assert_allclose(large[0], 1e150 * mean, rtol=1e-3)
    np.testing.assert_allclose(large[1], 1e150 * std, rtol=1e-3)


def test_targets_that_are_not_positive_stay_as_they_are():
    X, y = positive()
    y[3] = 0.0
    model = SparseTargetTransform(RVMRegressor("rbf", gamma="scale")).fit(X, y)
    assert model.target_transform_ is None
    assert np.isnan(model.density_gain_)
    assert "1 of 300 values are zero or negative" in model.notes_[0]
    with pytest.raises(ValueError, match="positive everywhere"):
        SparseTargetTransform(RVMRegressor("rbf", gamma="scale"), target_transform="log").fit(X, y)


@pytest.mark.parametrize("likelihood", ["gaussian", "student"])
@pytest.mark.parametrize("spread", [0.4, 2.0])
def test_mean_std_and_quantiles_are_those_of_draws(likelihood, spread):
    X, y = positive(spread=spread)
    inner = RVMRegressor("rbf", gamma="scale", likelihood=likelihood)
    model = SparseTargetTransform(inner, target_transform="log").fit(X, y)
    assert (model.regressor_.noise_tail_ is not None) == (likelihood == "student")
    rows = X[:5]
    mean, std = model.predict(rows, return_std=True)
    draws = model.sample_y(rows, 200_000, random_state=0)
    error = std / np.sqrt(draws.shape[1])
    np.testing.assert_allclose(mean, draws.mean(axis=1), rtol=0.01, atol=np.max(5 * error))
    np.testing.assert_allclose(std, draws.std(axis=1), rtol=0.05)
    np.testing.assert_array_equal(model.predict(rows), mean)
    levels = [0.05, 0.5, 0.95]
    expected = np.quantile(draws, levels, axis=1).T
    np.testing.assert_allclose(model.predict_quantiles(rows, levels), expected, rtol=0.05)


def test_the_mean_lies_inside_its_own_interval():
    X, y = positive(spread=1.0)
    model = SparseTargetTransform(RVMRegressor("rbf", gamma="scale"), target_transform="log")
    mean = model.fit(X, y).predict(X)
    low, high = model.predict_interval(X, 0.5).T
    assert np.mean((low < mean) & (mean < high)) > 0.95


def test_predictions_far_from_the_data_are_bounded_by_its_range():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.exp(3.0 * X[:, 0] + 2.0 * rng.standard_normal(60))
    model = SparseTargetTransform(RVMRegressor(), target_transform="log").fit(X, y)
    for rows in (10.0 * X, X):
        mean, std = model.predict(rows, return_std=True)
        median = model.predict_quantiles(rows, [0.5])[:, 0]
        largest = np.maximum(y.max(), median)
        assert np.all(mean <= 2.0 * largest**2 / y.max())
        assert np.all(std <= 2.0 * largest**2 / y.max())
    trend = SparseTargetTransform(RVMRegressor(kernel=None), target_transform="log")
    trend.fit(X, np.exp(3.0 * X[:, 0] + 0.01 * rng.standard_normal(60)))
    new = np.array([[5.0, 0.0, 0.0]])  # beyond the data, and the model is sure of it
    assert trend.predict(new)[0] == pytest.approx(np.exp(15.0), rel=0.1)


@pytest.mark.parametrize("coverage", [0.5, 0.95])
@pytest.mark.parametrize("make", [positive, additive])
def test_intervals_cover_new_rows_as_often_as_they_say(make, coverage):
    model = SparseTargetTransform(RVMRegressor("rbf", gamma="scale")).fit(*make(400))
    X, y = make(4000, seed=1)
    low, high = model.predict_interval(X, coverage).T
    assert np.mean((low < y) & (y < high)) == pytest.approx(coverage, abs=0.04)


def test_intervals_of_a_logarithm_are_positive_and_lopsided():
    model = SparseTargetTransform(RVMRegressor("rbf", gamma="scale")).fit(*positive())
    X, _ = positive(50, seed=1)
    low, high = model.predict_interval(X).T
    mean = model.predict(X)
    assert np.all(low > 0)
    assert np.all(high - mean > mean - low)


def test_weights_are_repetition():
    X, y = positive(60)
    weight = np.random.default_rng(0).integers(0, 3, 60).astype(float)
    y[weight == 0] = -1.0  # rows that do not count cannot forbid the logarithm
    again = np.repeat(np.arange(60), weight.astype(int))
    weighted = SparseTargetTransform(RVMRegressor("rbf", gamma="scale")).fit(
        X, y, sample_weight=weight
    )
    repeated = SparseTargetTransform(RVMRegressor("rbf", gamma="scale")).fit(X[again], y[again])
    assert weighted.density_gain_ == pytest.approx(repeated.density_gain_, rel=1e-6)
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-5)


def test_a_pipeline_may_be_wrapped():
    X, y = positive()
    model = SparseTargetTransform(
        make_pipeline(StandardScaler(), RVMRegressor("rbf", gamma="scale"))
    ).fit(X, y)
    assert model.target_transform_ == "log"
    assert np.all(model.predict(X, return_std=True)[1] > 0)


def test_the_default_is_forward_selection_with_learnt_widths():
    X, y = positive(120)
    model = SparseTargetTransform().fit(X, y)
    assert isinstance(model.regressor_, SparseGPRegressor)
    assert model.regressor_.feature_relevance_[0] > 0.9


def test_names_of_inputs_are_kept():
    X, y = positive(60)
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = SparseTargetTransform(RVMRegressor("rbf", gamma="scale")).fit(frame, y)
    assert list(model.feature_names_in_) == ["a", "b"]
    assert not hasattr(model.fit(X, y), "feature_names_in_")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"target_transform": "sqrt"}, "The 'target_transform' parameter of .* must be"),
        ({"margin": "much"}, "The 'margin' parameter of .* must be"),
        ({"regressor": Ridge()}, "Ridge has no leave-one-out predictions"),
    ],
)
def test_mistakes_are_named(settings, words):
    settings = {"regressor": RVMRegressor("rbf", gamma="scale"), **settings}
    with pytest.raises(ValueError, match=words):
        SparseTargetTransform(**settings).fit(*positive(20))


def test_only_the_fit_that_is_kept_warns():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    y = np.exp(X[:, 0] + 0.1 * rng.standard_normal(40))
    with pytest.warns(UserWarning, match="leave-one-out errors") as caught:
        model = SparseTargetTransform(RVMRegressor("rbf", gamma=1.0)).fit(X, y)
    assert len(caught) == 1
    assert f"{model.regressor_.calibration_:.2g} times" in str(caught[0].message)


def test_coverage_is_a_probability():
    X, y = positive(20)
    model = SparseTargetTransform(RVMRegressor("rbf", gamma="scale")).fit(X, y)
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.predict_interval(X, 95)


@parametrize_with_checks(
    [
        SparseTargetTransform(RVMRegressor("rbf", gamma="scale")),
        SparseTargetTransform(RVMRegressor("rbf", gamma="scale"), target_transform=None),
        SparseTargetTransform(ForwardRegressor("rbf", gamma="scale", max_terms=10, random_state=0)),
    ]
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
