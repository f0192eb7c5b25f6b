"""kernel="auto", gamma="evidence" and gamma="ard" in the estimators."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparsebayes.class_probabilities import Calibration
from sparsebayes.data import Data
from sparsebayes.displays import FeatureRelevanceDisplay
from sparsebayes.estimators.forward import ForwardRegressor
from sparsebayes.estimators.lrols import OrthogonalLeastSquaresRegressor
from sparsebayes.estimators.rvm import RVMRegressor
from sparsebayes.estimators.rvm_classifier import RVMClassifier
from sparsebayes.estimators.sparse_gp import SparseGPRegressor
from sparsebayes.kernels import KernelChoice, StationaryKernel
from sparsebayes.kernels.widths import AUTO_FAMILIES, learn_widths
from sparsebayes.labels import kernel_score, label_columns
from sparsebayes.predict import loo_density
from sparsebayes.regression import fit_with_noise

MODELS = [
    RVMRegressor("rbf", gamma="scale"),
    ForwardRegressor("rbf", gamma="scale", max_terms=30, random_state=0),
    OrthogonalLeastSquaresRegressor(max_terms=30),
]


@pytest.fixture(scope="module")
def friedman():
    return make_friedman1(120, noise=1.0, random_state=1)


def rmse(model, X, y):
    return np.sqrt(np.mean((model.predict(X) - y) ** 2))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_learnt_widths_predict_better_than_the_usual_one(model, friedman):
    X, y = make_friedman1(1000, noise=1.0, random_state=2)
    usual = clone(model).fit(*friedman)
    learnt = clone(model).set_params(gamma="ard").fit(*friedman)
    assert rmse(learnt, X, y) < 0.75 * rmse(usual, X, y)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_what_was_learnt_is_told(model, friedman):
    X, _ = friedman
    model = clone(model).set_params(kernel="auto", gamma="ard").fit(*friedman)
    assert model.kernel_ in AUTO_FAMILIES
    assert model.gamma_.shape == (X.shape[1],)
    assert set(np.argsort(-model.feature_relevance_)[:5]) == {0, 1, 2, 3, 4}


def test_the_widths_are_those_of_learn_widths(friedman):
    found = learn_widths(*friedman, family="matern32")
    model = RVMRegressor(kernel="matern32", gamma="ard").fit(*friedman)
    np.testing.assert_array_equal(model.gamma_, found.gamma)
    fixed = RVMRegressor(kernel="matern32", gamma=found.gamma).fit(*friedman)
    np.testing.assert_array_equal(fixed.predict(friedman[0]), model.predict(friedman[0]))


@pytest.mark.parametrize("gamma", ["evidence", "ard"])
def test_scaling_an_input_leaves_predictions_alone(gamma, friedman):
    X, y = friedman
    factor = np.where(np.arange(X.shape[1]) == 2, 10.0, 1.0)
    plain = RVMRegressor("rbf", gamma=gamma).fit(X, y)
    scaled = RVMRegressor("rbf", gamma=gamma).fit(X * factor, y)
    np.testing.assert_allclose(scaled.gamma_ * factor**2, plain.gamma_, rtol=1e-10)
    np.testing.assert_allclose(scaled.predict(X * factor), plain.predict(X), rtol=1e-4)


def test_relevance_is_of_the_function_and_not_of_its_widths(friedman):
    for gamma in ("ard", "evidence"):
        model = RVMRegressor("rbf", gamma=gamma).fit(*friedman)
        assert set(np.argsort(-model.feature_relevance_)[:3]) == {0, 1, 3}


@pytest.mark.parametrize("gamma", ["scale", "median", 0.5])
def test_auto_with_a_given_gamma_chooses_the_family_alone(gamma, friedman):
    X, y = friedman
    model = RVMRegressor(kernel="auto", gamma=gamma).fit(X, y)
    assert model.kernel_ in AUTO_FAMILIES
    assert model.gamma_ == RVMRegressor("rbf", gamma=gamma).fit(X, y).gamma_


def test_other_settings_name_their_kernel_too(friedman):
    model = RVMRegressor(kernel="laplacian", gamma="scale").fit(*friedman)
    assert model.kernel_ == "laplacian"


def test_widths_of_other_kernels_are_not_learnt(friedman):
    with pytest.raises(ValueError, match="gamma='ard' requires kernel='auto' or one of"):
        RVMRegressor(kernel="poly", gamma="ard").fit(*friedman)
    with pytest.raises(ValueError, match="gamma='ard' applies to named kernels only"):
        RVMRegressor(kernel=lambda x, z: float(x @ z), gamma="ard").fit(*friedman)


def steps(n, seed=0):
    """Steps along one input, a smooth function of another, and one that does not matter."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    return X, np.floor(1.5 * X[:, 0]) + np.sin(2 * X[:, 1]) + 0.05 * rng.standard_normal(n)


@pytest.mark.parametrize(
    "model", [RVMRegressor("rbf", gamma="scale"), ForwardRegressor("rbf", gamma="scale")], ids=repr
)
def test_steps_along_an_input_get_the_sum_and_smooth_functions_do_not(model, friedman):
    X, y = steps(250)
    new, truth = steps(500, seed=1)
    smooth = clone(model).set_params(kernel="matern52", gamma="ard").fit(X, y)
    model = clone(model).set_params(kernel="auto", gamma="ard").fit(X, y)
    assert model.kernel_ == "sum"
    assert model.gamma_.shape == (2, 3)
    assert 0.0 < model.rough_share_ < 1.0
    assert np.argmin(model.feature_relevance_) == 2
    assert rmse(model, new, truth) < 0.8 * rmse(smooth, new, truth)
    tried = model.kernel_search_
    assert tried["kernel"][np.argmax(tried["loo_score"])] == "sum"
    model.fit(*friedman)
    assert model.kernel_ in AUTO_FAMILIES
    assert not hasattr(model, "rough_share_")


def test_what_is_chosen_is_what_predicts_left_out_rows_best():
    X, y = steps(60)
    model = OrthogonalLeastSquaresRegressor("auto", gamma="auto").fit(X, y)
    tried = model.kernel_search_
    assert len(tried["kernel"]) > 1
    # Variances of a trial are not corrected for the optimism of learning its length scales.
    data = Data(X, y)
    problem = model._problem(data).trial(kernel=model._fitted.kernel)
    trial = fit_with_noise(model._method(data), problem)
    mean = loo_density(trial.loo, trial.noise.tail).mean() + np.log(y.std())
    n_lengths = model._fitted.kernel.n_lengths
    penalty = n_lengths / (60 - n_lengths - 1)  # Akaike's criterion for few rows
    assert np.max(tried["loo_score"]) == pytest.approx(mean - penalty, rel=1e-10)


def test_functions_bought_for_labels_are_paid_for_where_kernels_are_compared():
    # One width buys some forty functions for 300 noisy labels, which look as good, each left out,
    # as the few of one width for each input, and predict new ones much worse.
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (1300, 4))
    odds = 4.0 * np.sin(2 * X[:, 0]) * X[:, 1]
    labels = rng.uniform(size=1300) < 1.0 / (1.0 + np.exp(-odds))
    one, chosen = (
        RVMClassifier("rbf", gamma=g).fit(X[:300], labels[:300]) for g in ("evidence", "auto")
    )
    for m in (one, chosen):  # the probabilities that are compared, before they are calibrated
        m._fitted = replace(m._fitted, calibration=Calibration())
    loss = [log_loss(labels[300:], m.predict_proba(X[300:])) for m in (one, chosen)]
    assert one._fitted.loo_log_likelihood > chosen._fitted.loo_log_likelihood
    assert loss[1] < 0.7 * loss[0]
    assert len(chosen.active_) < 15 < len(one.active_)


def test_each_length_learnt_costs_a_nat_of_the_labels_left_out():
    X, y = steps(150)
    labels = y > np.median(y)
    model = RVMClassifier()
    widths = learn_widths(X, np.where(labels, 1.0, -1.0))
    assert (widths.family, widths.n_lengths) == ("sum", 6)
    assert widths.n_matter == 4.0  # one of three inputs does not
    choice = KernelChoice(widths.family, widths.gamma, widths.share, n_matter=widths.n_matter)
    longer = replace(choice, n_matter=8.0)

    def score(kernel, weight=None):
        data = Data(X, labels.astype(int), weight)
        return kernel_score(model._solve, model._problem(data, 2).trial(kernel=kernel))

    assert score(choice) - score(longer) == pytest.approx(4 / 150)
    # A weight of two is a row twice, here as well.
    weight = np.full(150, 2.0)
    assert score(choice, weight) - score(longer, weight) == pytest.approx(4 / 300)
    # A function costs half of one.
    data = Data(X, labels.astype(int))
    trial = model._solve(model._problem(data, 2).trial(kernel=choice))
    paid = (4 + 0.5 * len(trial.active)) / 150
    assert score(choice) == pytest.approx(trial.loo_log_likelihood - paid)


def test_few_labels_and_many_inputs_have_one_width():
    # Thirty lengths learnt from 120 labels fit them and nothing else.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 30))
    labels = X @ rng.standard_normal(30) > 0
    model = RVMClassifier().fit(X, labels)
    assert len(model.kernel_search_["kernel"]) > 1
    assert np.ndim(model.gamma_) == 0 or len(np.unique(np.round(model.gamma_ * X.var(0), 6))) == 1


def test_a_sum_of_given_widths_has_parts_of_equal_variance():
    X, y = steps(100)
    gamma = np.array([[0.2, 0.5, 0.0], [1.0, 0.0, 0.0]])
    model = RVMRegressor("sum", gamma=gamma).fit(X, y)
    assert model.rough_share_ == 0.5
    K = StationaryKernel("sum", gamma).bind(X)(X)
    np.testing.assert_allclose(model.basis_.functions(X), K[:, model.active_], rtol=1e-10)


def test_pure_noise_keeps_no_rough_part_and_one_width():
    rng = np.random.default_rng(0)
    for n in (100, 400):
        X, y = rng.standard_normal((n, 4)), rng.standard_normal(n)
        model = ForwardRegressor("auto", gamma="auto").fit(X, y)
        assert model.kernel_ in AUTO_FAMILIES
        assert model.predict(X).std() < 0.3


@pytest.mark.parametrize("kernel", ["laplacian", "sum"])
def test_scaling_an_input_leaves_predictions_of_rough_kernels_alone(kernel):
    X, y = steps(120)
    factor = np.array([10.0, 1.0, 0.1])
    plain = RVMRegressor(kernel, gamma="ard").fit(X, y)
    scaled = RVMRegressor(kernel, gamma="ard").fit(X * factor, y)
    power = np.array([2.0, 1.0]) if kernel == "sum" else np.array([1.0])
    gamma = scaled.gamma_ * np.squeeze(factor ** power[:, None])
    np.testing.assert_allclose(gamma, plain.gamma_, rtol=1e-8)
    np.testing.assert_allclose(scaled.predict(X * factor), plain.predict(X), atol=1e-3)


def test_repeated_rows_and_weights_are_the_same_to_the_choice_of_a_kernel():
    X, y = steps(60)
    y = y + 0.3 * np.random.default_rng(5).standard_normal(60)  # or repeated rows have no noise
    again = np.repeat(np.arange(60), np.where(np.arange(60) % 20 == 0, 2, 1))
    weight = np.bincount(again).astype(float)
    weighted = ForwardRegressor("auto", gamma="auto").fit(X, y, sample_weight=weight)
    repeated = ForwardRegressor("auto", gamma="auto").fit(X[again], y[again])
    assert weighted.kernel_ == repeated.kernel_
    assert len(weighted.kernel_search_["kernel"]) > 1
    np.testing.assert_array_equal(weighted.gamma_, repeated.gamma_)
    np.testing.assert_allclose(
        weighted.kernel_search_["loo_score"], repeated.kernel_search_["loo_score"], rtol=1e-6
    )


def test_one_hot_columns_on_few_rows_are_covered():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 8, (376, 10))
    X = np.hstack([rng.standard_normal((376, 2)), *(np.eye(8)[c] for c in codes.T)])
    effects = rng.standard_normal((3, 8))
    y = X[:, 0] + sum(effect[c] for effect, c in zip(effects, codes.T, strict=False))
    y += 0.5 * rng.standard_normal(376)
    model = SparseGPRegressor().fit(X[:176], y[:176])
    mean, std = model.predict(X[176:], return_std=True)
    assert 0.91 < np.mean(np.abs(y[176:] - mean) < 1.96 * std) < 0.98
    assert np.sqrt(np.mean((y[176:] - mean) ** 2)) < 0.8


def test_rows_of_equal_inputs_and_other_targets_tell_the_noise():
    X, y = steps(150)
    X[100:130] = X[:30]
    y[100:130] = y[:30] + 0.5 * np.random.default_rng(1).standard_normal(30)
    model = ForwardRegressor("auto", gamma="auto").fit(X, y)
    assert model.noise_variance_ > 0.02


def test_columns_and_precomputed_kernels_take_no_notice(friedman):
    X, y = friedman
    columns = RVMRegressor(kernel=None, gamma="ard").fit(X, y)
    precomputed = RVMRegressor(kernel="precomputed", gamma="ard").fit(X @ X.T, y)
    for model in (columns, precomputed):
        assert not hasattr(model, "gamma_") or model.gamma_ is None
    assert not hasattr(precomputed, "feature_relevance_")


def test_weights_are_repetition_of_rows(friedman):
    X, y = friedman
    weight = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    again = np.repeat(np.arange(len(y)), weight.astype(int))
    weighted = RVMRegressor("rbf", gamma="ard").fit(X, y, sample_weight=weight)
    repeated = RVMRegressor("rbf", gamma="ard").fit(X[again], y[again])
    np.testing.assert_array_equal(weighted.gamma_, repeated.gamma_)


def test_classes_become_targets():
    np.testing.assert_array_equal(label_columns(np.array([0, 1, 1])), [-1.0, 1.0, 1.0])
    three = label_columns(np.array([0, 2, 1, 2]))
    assert three.shape == (4, 3)
    np.testing.assert_array_equal(three.sum(axis=1), 1.0)
    np.testing.assert_array_equal(np.argmax(three, axis=1), [0, 2, 1, 2])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_widths_of_a_classifier_find_the_inputs_that_tell_classes_apart(n_classes):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (150, 4))
    edges = [0.0] if n_classes == 2 else [-0.5, 0.5]
    y = np.digitize(np.sin(2 * X[:, 0]) * X[:, 1], edges)
    model = RVMClassifier(kernel="auto", gamma="ard").fit(X, y)
    assert set(np.argsort(-model.feature_relevance_)[:2]) == {0, 1}
    usual = RVMClassifier("rbf", gamma="scale").fit(X, y)
    rows = rng.uniform(-2, 2, (500, 4))
    truth = np.digitize(np.sin(2 * rows[:, 0]) * rows[:, 1], edges)
    assert model.score(rows, truth) > usual.score(rows, truth)


def test_relevance_is_drawn_largest_first_with_names():
    display = FeatureRelevanceDisplay([0.2, 1.0, 0.5], ["a", "b", "c"]).plot(max_features=2)
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == ["b", "c"]
    np.testing.assert_array_equal([bar.get_width() for bar in display.bars_], [1.0, 0.5])


def test_relevance_of_a_frame_has_the_names_of_its_columns(friedman):
    X, y = friedman
    frame = pd.DataFrame(X, columns=[f"input {j}" for j in range(X.shape[1])])
    model = RVMRegressor("rbf", gamma="ard").fit(frame, y)
    display = FeatureRelevanceDisplay.from_estimator(model, max_features=None)
    assert {label.get_text() for label in display.ax_.get_yticklabels()} == set(frame.columns)
    with pytest.raises(ValueError, match="no feature_relevance_"):
        FeatureRelevanceDisplay.from_estimator(RVMRegressor("precomputed").fit(X @ X.T, y))


@parametrize_with_checks([RVMRegressor(), RVMRegressor("rbf", gamma="evidence")])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
