"""Sample weights mean the same for every estimator: counts of rows, or relative importance."""

from __future__ import annotations

import warnings

import dask.array as da
import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_diabetes, load_iris, make_friedman1
from sklearn.ensemble import AdaBoostClassifier, BaggingRegressor
from sklearn.utils.validation import has_fit_parameter

import sparsebayes as sb
from sparsebayes.data import merged_weights
from sparsebayes.designs.candidates import different_rows
from sparsebayes.estimators.stacked import StackedRegressor
from sparsebayes.estimators.stacked_classifier import StackedClassifier
from sparsebayes.posterior import ModelAverage
from sparsebayes.rows import row_hashes
from tests import registry

MODELS = [
    model
    for model in registry.models(registry.REGRESSION, registry.CLASSIFICATION)
    if has_fit_parameter(model, "sample_weight")
]
RELATIVE = "they were rescaled to sum to"


def problem(model, n=60):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    latent = np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(n)
    return X, (latent > 0).astype(int) if is_classifier(model) else 3.0 + latent


def answers(model, X):
    """All that is predicted."""
    if is_classifier(model):
        return model.predict_proba(X)
    return np.column_stack(model.predict(X, return_std=True))


@pytest.mark.parametrize("model", MODELS, ids=registry.label)
def test_weights_that_sum_to_one_are_relative_importance(model):
    X, y = problem(model)
    plain = answers(clone(model).fit(X, y), X)
    with pytest.warns(UserWarning, match=RELATIVE):
        same = answers(clone(model).fit(X, y, sample_weight=np.full(len(y), 1.0 / len(y))), X)
    np.testing.assert_allclose(same, plain, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("model", MODELS, ids=registry.label)
def test_relative_weights_are_those_that_sum_to_the_rows_that_have_one(model):
    X, y = problem(model)
    weight = np.random.default_rng(1).integers(0, 4, len(y)).astype(float)
    weight *= np.count_nonzero(weight) / np.sum(weight)
    scaled = answers(clone(model).fit(X, y, sample_weight=weight), X)
    # A power of two: the same weights to the last digit.
    with pytest.warns(UserWarning, match=RELATIVE):
        model = clone(model).fit(X, y, sample_weight=weight * 2.0**-20)
    np.testing.assert_allclose(answers(model, X), scaled, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("model", MODELS, ids=registry.label)
def test_a_weight_of_zero_removes_a_row(model):
    X, y = problem(model)
    weight = np.random.default_rng(1).choice([0.0, 0.5, 1.0, 1.5], len(y))
    kept = weight > 0
    removed = clone(model).fit(X[kept], y[kept], sample_weight=weight[kept])
    weighted = clone(model).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(answers(weighted, X), answers(removed, X), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("model", MODELS, ids=registry.label)
def test_whole_weights_are_repetition(model):
    X, y = problem(model, n=40)
    weight = np.random.default_rng(1).integers(0, 4, len(y))
    rows = np.repeat(np.arange(len(y)), weight)
    repeated = clone(model).fit(X[rows], y[rows])
    weighted = clone(model).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(answers(weighted, X), answers(repeated, X), rtol=1e-5, atol=1e-6)


def test_whole_weights_stay_counts_however_few():
    X, y = problem(MODELS[0], n=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "The target is constant")
        two = sb.RVMRegressor("rbf", gamma="scale").fit(X, y, sample_weight=[0, 2, 0, 0, 0])
    assert two.predict(X) == pytest.approx(y[1])


@pytest.mark.parametrize(
    "model",
    [
        sb.RVMRegressor(kernel=None),
        sb.RVMRegressor("rbf", gamma=0.5),
        sb.ForwardRegressor(kernel=None),
    ],
    ids=registry.label,
)
@pytest.mark.parametrize("precise", [False, True])
def test_equal_targets_with_weights_are_each_fitted_as_one_is(model, precise):
    # Weights of several targets ended in an error of broadcasting.
    rng = np.random.default_rng(0)
    X, weight = rng.uniform(-1.0, 1.0, (120, 2)), rng.uniform(0.2, 5.0, 120)
    noise = 0.2 / np.sqrt(weight) if precise else 0.2
    y = X[:, 0] - X[:, 1] + noise * rng.standard_normal(120)
    one = clone(model).fit(X, y, sample_weight=weight)
    two = clone(model).fit(X, np.column_stack([y, y]), sample_weight=weight)
    np.testing.assert_allclose(two.log_evidence_, 2.0 * one.log_evidence_, rtol=1e-3)
    np.testing.assert_allclose(two.noise_variance_, one.noise_variance_, rtol=1e-2)
    _, std = one.predict(X, return_std=True)
    np.testing.assert_allclose(two.predict(X, return_std=True)[1].T, [std, std], rtol=0.1)


def test_a_fold_without_the_row_of_nearly_all_the_weight_is_not_fitted():
    # Its rows are less than one observation, and their number was the argument of a logarithm.
    rng = np.random.default_rng(0)
    X, weight = rng.uniform(-1.0, 1.0, (12, 3)), np.append(np.ones(11), 1e3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = sb.RVMRegressor().fit(X, rng.standard_normal(12), sample_weight=weight)
    assert np.all(np.isfinite(model.predict(X, return_std=True)[1]))


def test_the_evidence_of_an_average_over_models_is_that_of_the_weighted_rows():
    rng = np.random.default_rng(0)
    X, weight = rng.standard_normal((80, 3)), rng.uniform(1.0, 5.0, 80)
    y = X[:, 0] + 0.3 * rng.standard_normal(80)
    model = sb.GroupSpikeSlabRegressor(
        slab_variance=1.0, inclusion_prior=1.0 - 1e-9, fit_intercept=False
    )
    model.fit(X, y, sample_weight=weight)
    assert isinstance(model.posterior_.form, ModelAverage)
    precision = weight / np.mean(weight)
    covariance = X @ X.T + model.noise_variance_ * np.diag(1.0 / precision)
    # The evidence is an average over the noise, and the hyperparameters are at its maximum.
    dense = multivariate_normal.logpdf(y, np.zeros(80), covariance)
    assert abs(model.log_evidence_ - dense) < 1.0


@pytest.mark.parametrize("model", MODELS, ids=registry.label)
@pytest.mark.filterwarnings("ignore:A sample weight is the number of")
@pytest.mark.parametrize("weight", [[1, 0, 0, 0, 0], [0.1, 0, 0, 0, 0], [0] * 5, [1e308] * 5])
def test_weights_that_leave_nothing_to_fit_are_refused_in_a_sentence(model, weight):
    X, _ = problem(model, n=5)
    with pytest.raises(ValueError, match="(?i)sample weight"):
        clone(model).fit(X, np.array([0, 1, 0, 1, 0]), sample_weight=weight)


def small_weight_warnings(model, X, y, weight):
    """Messages of a fit about weights with a small sum."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clone(model).fit(X, y, sample_weight=weight)
    small = [entry for entry in caught if "sample_weight sums to" in str(entry.message)]
    assert all(entry.filename == __file__ for entry in small)
    return [str(entry.message) for entry in small]


@pytest.mark.parametrize(
    "model",
    [
        *MODELS,
        StackedRegressor(),
        StackedClassifier(),
        sb.table_model(),
        sb.SparseTargetTransform(),
    ],
    ids=registry.label,
)
def test_weights_with_a_small_sum_are_warned_of_once(model):
    X, y = problem(model)
    weight = np.random.default_rng(1).uniform(size=len(y))
    weight[:10] = 0.0
    weight /= np.sum(weight)
    (message,) = small_weight_warnings(model, X, y, 4.9 * weight)
    assert message.startswith("sample_weight sums to 4.9 for 50 rows, so the model treats them as")
    assert "scale them to sum to the number of rows" in message
    if model in MODELS[:3]:
        assert small_weight_warnings(model, X, y, 5.1 * weight) == []


def test_each_fit_warns_of_small_weights_anew():
    X, y = problem(MODELS[0])
    model = sb.ForwardRegressor("rbf", gamma=1.0)
    for _ in range(2):
        with pytest.warns(UserWarning, match="treats them as 3 observations"):
            model.fit(X, y, sample_weight=np.full(len(y), 0.05))
    with pytest.warns(UserWarning, match="treats them as 3 observations") as caught:
        model.partial_fit(X, y, sample_weight=np.full(len(y), 0.05))
    assert len(caught) == 1


def test_the_warning_points_at_the_line_that_called():
    X, y = problem(MODELS[0])
    with pytest.warns(UserWarning, match=RELATIVE) as caught:
        sb.RVMRegressor(kernel=None).fit(X, y, sample_weight=np.full(len(y), 1e-3))
    assert [warning.filename for warning in caught] == [__file__]


def test_relative_weights_keep_the_error_bar_of_diabetes():
    X, y = load_diabetes(return_X_y=True)
    weight = np.full(len(y), 1.0 / len(y))
    for model in (
        sb.RVMRegressor("rbf", gamma="scale"),
        sb.BackfittingRegressor(),
        sb.GroupSpikeSlabRegressor(),
    ):
        with pytest.warns(UserWarning, match=RELATIVE):
            _, std = model.fit(X, y, sample_weight=weight).predict(X, return_std=True)
        # The noise of this table is 50 to 60, the spread of its target 77.
        assert np.all((std > 45.0) & (std < 80.0))


def test_relative_weights_and_adaboost_keep_the_accuracy_on_iris():
    X, y = load_iris(return_X_y=True)
    with pytest.warns(UserWarning, match=RELATIVE):
        model = sb.RVMClassifier("rbf", gamma="scale").fit(
            X, y, sample_weight=np.full(len(y), 1.0 / len(y))
        )
    assert model.score(X, y) > 0.95
    with pytest.warns(UserWarning, match=RELATIVE):
        boosted = AdaBoostClassifier(sb.RVMClassifier("rbf", gamma="scale"), n_estimators=3).fit(
            X, y
        )
    assert boosted.score(X, y) > 0.95


def test_relative_weights_of_dask_arrays_are_those_of_numpy():
    for model in (MODELS[0], sb.RVMClassifier("rbf", gamma="scale")):
        X, y = problem(model)
        weight = np.random.default_rng(1).integers(0, 4, len(y)) / 1000.0
        parted = (
            sb.PartitionedRVMClassifier("rbf", gamma="scale", partition_size=20)
            if is_classifier(model)
            else sb.PartitionedRVMRegressor("rbf", gamma="scale", partition_size=20)
        )
        with pytest.warns(UserWarning, match=RELATIVE):
            here = clone(parted).fit(X, y, sample_weight=weight)
        there = clone(parted)
        with pytest.warns(UserWarning, match=RELATIVE):
            there.fit(*(da.from_array(a, chunks=30) for a in (X, y)), da.from_array(weight, 30))
        np.testing.assert_allclose(answers(there, X), answers(here, X), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e300])
def test_the_first_of_equal_rows_carries_the_function(scale):
    rng = np.random.default_rng(0)
    for X in (rng.standard_normal((50, 3)), rng.integers(-1, 2, (50, 3)), np.zeros((5, 2))):
        X = scale * np.vstack([X, X[::-2], -0.0 * X[:1]])
        rows = [row.tolist() for row in X]
        first = [i for i, row in enumerate(rows) if row not in rows[:i]]
        assert different_rows(X).tolist() == first


# Copies of rows, as a bootstrap sample has them.


def bootstrap(n=120, seed=0):
    """Rows drawn with replacement, which of them are different, and new rows."""
    X, y = make_friedman1(n + 1000, n_features=5, noise=1.0, random_state=seed)
    drawn = np.random.default_rng(seed).integers(0, n, n)
    return X[:n], y[:n], drawn, np.unique(drawn), X[n:], y[n:]


@pytest.mark.parametrize("model", [sb.SparseGPRegressor, sb.RVMRegressor])
def test_copies_of_rows_are_no_evidence_that_there_is_no_noise(model):
    X, y, drawn, different, new, truth = bootstrap()
    copies = model("rbf", gamma="ard").fit(X[drawn], y[drawn])
    once = model("rbf", gamma="ard").fit(X[different], y[different])
    error, least = (np.sqrt(np.mean((m.predict(new) - truth) ** 2)) for m in (copies, once))
    assert error < 1.1 * least
    assert np.mean(np.abs(copies.predict(new) - truth) < 1.96 * copies.predict(new, True)[1]) > 0.9
    weights = np.bincount(drawn, minlength=len(y))
    weighted = model("rbf", gamma="ard").fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(weighted.predict(new), copies.predict(new), rtol=1e-6)


def test_bagging_is_as_accurate_as_one_fit():
    X, y, _, _, new, truth = bootstrap()
    model = sb.SparseGPRegressor("rbf", gamma="ard", warp=False)
    bagged = BaggingRegressor(model, n_estimators=5, random_state=0).fit(X, y)
    one, several = (
        np.mean((m.predict(new) - truth) ** 2) for m in (clone(model).fit(X, y), bagged)
    )
    assert several < 1.05**2 * one


def test_each_set_of_copies_counts_as_one_observation():
    X = np.array([[0.0], [1.0], [0.0], [2.0], [0.0], [3.0]])
    y = np.array([5.0, 6.0, 5.0, 7.0, 5.0, 8.0])
    once = merged_weights(lambda: row_hashes(X), y, None)
    np.testing.assert_allclose(once, np.array([3, 1, 0, 1, 0, 1]) * 4 / 6)
    weight = np.array([1.0, 0.5, 2.0, 0.0, 0.0, 1.0])
    once = merged_weights(lambda: row_hashes(X), y, weight)
    np.testing.assert_allclose(once, np.array([3, 0.5, 0, 0, 0, 1]) * 2.5 / 4.5)
    assert merged_weights(lambda: row_hashes(X), np.arange(6.0), None) is None


def test_replicates_whose_targets_differ_count_each():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, (200, 1)).astype(float)
    y = rng.poisson(3.0 + X[:, 0]).astype(float)
    assert merged_weights(lambda: row_hashes(X), y, None) is None


def test_a_hash_tells_rows_apart_whatever_their_scale():
    grid = np.array(np.meshgrid(*[np.arange(8.0)] * 4)).reshape(4, -1).T
    for scale in (1.0, [1.0, 1e-18, 1e12, 1.0]):
        assert len(np.unique(row_hashes(grid * scale))) == len(grid)
    np.testing.assert_array_equal(row_hashes(-0.0 * grid), row_hashes(0.0 * grid))


@pytest.mark.parametrize("n_different", [1, 2])
def test_copies_of_one_or_two_rows_are_no_division_by_zero(n_different):
    X, y = np.repeat(np.eye(3)[:n_different], 4, axis=0), np.repeat(np.arange(n_different), 4.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mean, std = sb.RVMRegressor().fit(X, y).predict(X, return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(std >= 0.0)


@pytest.mark.parametrize("largest", [2.0, 1000.0])
def test_a_noise_that_does_not_depend_on_the_weights_has_no_heavy_tail(largest):
    rng = np.random.default_rng(0)
    X, y, new = rng.standard_normal((4000, 2)), rng.standard_normal(4000), rng.standard_normal(4000)
    model = sb.BackfittingRegressor().fit(X, y, rng.uniform(0.0, largest, len(y)))
    assert model.noise_tail_ is None
    lower, upper = model.predict_interval(X).T
    assert np.mean((lower <= new) & (new <= upper)) == pytest.approx(0.95, abs=0.01)


def test_a_target_too_small_for_its_noise_variance_is_fitted_without_a_warning_of_numpy():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((4, 3)), 1e-150 * rng.standard_normal(4)
    model = sb.ForwardRegressor("matern32", likelihood="student", refit=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model.fit(X, y, np.array([1.1, 0.0, 1.5, 0.0]))
    assert np.all(np.isfinite(model.predict(X)))


def test_labels_whose_folds_all_weigh_next_to_nothing_are_fitted():
    X = np.random.default_rng(807766).uniform(-1.0, 1.0, (4, 40))
    weight = np.array([2.16254813e-08, 1.78979673e-06, 8.90354326e-05, 23.0546574])
    X /= np.max(np.abs(X))
    model = sb.SparseGPClassifier().fit(X, np.array([0, 2, 0, 1]), weight)
    assert np.all(np.isfinite(model.predict_proba(X)))


def test_light_rows_of_a_large_target_have_noise_that_a_float_can_hold():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 2))
    weight = 10.0 ** rng.uniform(-8.0, 8.0, 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = sb.ForwardRegressor("rbf", gamma=1.0).fit(X, 1e150 * X[:, 0], weight)
    assert np.all(np.isfinite(model.predict(X, return_std=True)[1]))


def test_a_noise_model_that_knows_the_weights_does_not_count_them_twice():
    # Precisions that depend on an input: twice, they left a few rows, and deviations four times the
    # errors of new rows.
    for seed in (0, 1, 2):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2.0, 2.0, (560, 2))
        sd = 0.1 * 10.0 ** ((X[:, 0] + 2.0) / 4.0)
        y = np.sin(X[:, 0] + X[:, 1]) + sd * rng.standard_normal(560)
        old, new = slice(160), slice(160, None)
        model = sb.SparseGPRegressor(noise_variance="input", likelihood="student")
        weight = np.mean(sd[old] ** 2) / sd[old] ** 2
        model.fit(X[old], y[old], sample_weight=weight)
        mean, std = model.predict(X[new], return_std=True)
        assert 0.8 < np.sqrt(np.mean(std**2) / np.mean((y[new] - mean) ** 2)) < 1.4
