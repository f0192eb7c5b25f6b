"""RVMClassifier: probabilities, classes, weights, and scikit-learn's contract."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array
from scipy.special import expit
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs, make_classification, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparsebayes.callbacks import Progress
from sparsebayes.class_probabilities import (
    LabelPredictions,
    Logistic,
    best_calibration,
    couple,
    log_odds,
    probabilities,
)
from sparsebayes.data import Data
from sparsebayes.estimators.backfitting_classifier import BackfittingClassifier
from sparsebayes.estimators.rvm_classifier import RVMClassifier
from sparsebayes.estimators.sparse_gp_classifier import SparseGPClassifier
from sparsebayes.label_folds import find_repeats, label_folds
from sparsebayes.labels import fold_optimism
from tests.label_helpers import uncalibrated


@parametrize_with_checks(
    [
        RVMClassifier("rbf", gamma="scale"),
        RVMClassifier(None, n_starts=1, warm_start=True),
        RVMClassifier("linear", fit_intercept=False, n_starts=1),
        RVMClassifier("matern32", gamma=1.0, heal=True, class_weight="balanced", algorithm="fast"),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def _moons(n=150, noise=0.25, seed=0):
    return make_moons(n, noise=noise, random_state=seed)


def _blobs(n=200, n_classes=4, spread=2.0, seed=0):
    return make_blobs(n, centers=n_classes, cluster_std=spread, random_state=seed)


# Probabilities.


@pytest.mark.parametrize("intercept", [True, False])
def test_two_classes_are_one_problem_in_scikit_learns_shapes(intercept):
    X, y = _moons()
    names = np.array(["no", "yes"])[y]
    model = RVMClassifier("rbf", gamma=1.0, fit_intercept=intercept).fit(X, names)
    k = len(model.active_)
    assert list(model.classes_) == ["no", "yes"]
    assert model.coef_.shape == model.weight_precision_.shape == (1, k)
    assert model.relevance_vectors_.shape == (k, 2)
    np.testing.assert_array_equal(model.relevance_vectors_, X[model.active_])
    assert model.intercept_.shape == (1,)
    assert (model.intercept_[0] != 0) == intercept
    z, P = model.decision_function(X), model.predict_proba(X)
    assert z.shape == (150,)
    np.testing.assert_allclose(P[:, 1], expit(z))
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-15)
    np.testing.assert_array_equal(model.predict(X), names_of(P, model))
    Phi = rbf_kernel(X, model.relevance_vectors_, 1.0)
    mean, variance = model.posterior_.predict(Phi)
    np.testing.assert_allclose(mean, Phi @ model.coef_[0] + model.intercept_[0], atol=1e-9)
    np.testing.assert_allclose(uncalibrated(model, X), mean / np.sqrt(1 + np.pi * variance / 8))
    assert model.converged_
    assert model.score(X, names) > 0.9


def names_of(P, model):
    return model.classes_[np.argmax(P, axis=1)]


@pytest.mark.parametrize(
    "model",
    [
        RVMClassifier("rbf", gamma=0.2),
        RVMClassifier("rbf", gamma=0.2, algorithm="fast"),
        BackfittingClassifier("rbf", gamma=0.2),
        SparseGPClassifier("rbf", gamma=0.2),
    ],
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_posterior_functions_and_rows_are_in_one_order(model, n_classes):
    X, y = make_blobs(120, centers=n_classes, cluster_std=3.0, random_state=0)
    model = clone(model).fit(X, y)
    assert np.all(np.diff(model.active_) > 0)
    np.testing.assert_array_equal(model.relevance_vectors_, X[model.active_])
    posteriors = model.posterior_ if n_classes > 2 else [model.posterior_]
    for coef, posterior in zip(model.coef_, posteriors, strict=True):
        own = coef != 0.0  # a class may lack functions of the others
        np.testing.assert_allclose(posterior.mean, coef[own], rtol=1e-12)
        assert posterior.covariance.shape == (np.sum(own), np.sum(own))
    if n_classes == 2:
        latent = model.posterior_.at(model.basis_(X))
        np.testing.assert_allclose(
            latent,
            model.coef_[0] @ rbf_kernel(X[model.active_], X, 0.2) + model.intercept_,
            rtol=1e-9,
            atol=1e-9,
        )


def test_several_classes_sum_to_one_and_share_functions():
    X, y = _blobs()
    model = RVMClassifier("rbf", gamma=0.05).fit(X, y)
    k = len(model.active_)
    assert model.coef_.shape == (4, k)
    assert np.all(np.any(model.coef_ != 0, axis=0))
    np.testing.assert_array_equal(np.isfinite(model.weight_precision_), model.coef_ != 0)
    z, P = model.decision_function(X), model.predict_proba(X)
    assert z.shape == P.shape == (200, 4)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-14)
    np.testing.assert_array_equal(np.argmax(z, axis=1), np.argmax(P, axis=1))
    np.testing.assert_array_equal(model.predict(X), names_of(P, model))
    assert len(model.posterior_) == 4
    assert set(model.history_["class_index"]) == {0, 1, 2, 3}
    assert model.n_iter_ == len(model.history_["stage"])


def test_log_odds_integrate_over_the_weights():
    rng = np.random.default_rng(0)
    mean, variance = rng.uniform(-6, 6, 40), rng.uniform(0, 9, 40)
    draws = mean + np.sqrt(variance) * rng.standard_normal((100_000, 1))
    np.testing.assert_allclose(
        expit(log_odds(mean, variance)), expit(draws).mean(axis=0), atol=0.025
    )


def test_uncertainty_of_weights_and_intercept_pulls_towards_one_half():
    X, y = _moons(60)
    for intercept in (True, False):
        model = RVMClassifier("rbf", gamma=1.0, fit_intercept=intercept).fit(X, y)
        Phi = rbf_kernel(X, model.relevance_vectors_, 1.0)
        plain = expit(Phi @ model.coef_[0] + model.intercept_[0])
        P = expit(uncalibrated(model, X))
        assert np.all(np.abs(P - 0.5) < np.abs(plain - 0.5))
    # Nothing but the intercept: 3 of 4 labels positive is known only so well.
    model = RVMClassifier(None).fit(np.ones((4, 1)), [0, 1, 1, 1])
    assert 0.5 < expit(uncalibrated(model, [[1.0]]))[0] < 0.75


def test_probabilities_are_calibrated_on_labels_drawn_from_the_model():
    rng = np.random.default_rng(1)
    centres = rng.uniform(-3, 3, (6, 2))
    weights = np.array([6.0, -6.0, 5.0, -5.0, 4.0, -4.0])

    def draw(n):
        X = rng.uniform(-3, 3, (n, 2))
        p = expit(rbf_kernel(X, centres, 0.5) @ weights)
        return X, (rng.random(n) < p).astype(int), p

    X, y, _ = draw(800)
    new, labels, truth = draw(20_000)
    P = RVMClassifier("rbf", gamma=0.5).fit(X, y).predict_proba(new)[:, 1]
    for low in np.arange(0, 1, 0.2):
        here = (low <= P) & (P < low + 0.2)
        assert abs(labels[here].mean() - P[here].mean()) < 0.06
    best = -np.mean(truth * np.log(truth) + (1 - truth) * np.log(1 - truth))
    assert log_loss(labels, P) < best + 0.02


def test_several_classes_are_calibrated_where_they_overlap():
    X, y = _blobs(600, spread=3.0, seed=3)
    new, labels = _blobs(20_000, spread=3.0, seed=3)
    model = RVMClassifier("rbf", gamma=0.02, n_starts=1).fit(X[:300], y[:300])
    P = model.predict_proba(new)
    assert model.coupling_ < 0.3
    sure = P.max(axis=1)
    right = P.argmax(axis=1) == labels
    for low in (0.4, 0.6, 0.8):
        here = (low <= sure) & (sure < low + 0.2)
        assert abs(right[here].mean() - sure[here].mean()) < 0.06


def test_coupling_follows_the_classes():
    assert couple(np.zeros((1, 4)), 0.3) == pytest.approx(0.25)
    z = np.log(np.array([[7 / 3, 3 / 7, 1e-9]]))  # 70 % and 30 %: already probabilities
    np.testing.assert_allclose(couple(z, 0.0), [[0.7, 0.3, 1e-9]], rtol=1e-6)
    odds = np.exp(z) / np.exp(z).sum()
    np.testing.assert_allclose(couple(z, 1.0), odds, rtol=1e-6)
    X, y = _blobs(spread=0.4)
    assert RVMClassifier("rbf", gamma="scale", n_starts=1).fit(X, y).coupling_ > 0.9


def test_mistakes_cost_less_than_those_of_the_mode():
    X, y = load_iris(return_X_y=True)
    train = np.arange(150) % 2 == 0
    model = make_pipeline(StandardScaler(), RVMClassifier("rbf", gamma="median"))
    model.fit(X[train], y[train])
    assert model.score(X[~train], y[~train]) > 0.9
    assert log_loss(y[~train], model.predict_proba(X[~train])) < 0.25


# Weights.


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kernel", ["rbf", None])
def test_sample_weight_equals_repetition(kernel, n_classes, class_weight):
    X, y = _blobs(60, n_classes, spread=3.0, seed=1)
    weight = np.random.default_rng(0).integers(0, 3, 60)
    model = RVMClassifier(kernel, class_weight=class_weight, n_starts=2)
    weighted = clone(model).fit(X, y, sample_weight=weight)
    repeated = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_, abs=1e-3)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=2e-3)


def test_class_weight_is_a_factor_on_the_weights():
    X, y = _moons(80)
    ours = RVMClassifier("rbf", gamma=1.0, class_weight={0: 1, 1: 3}).fit(X, y)
    theirs = RVMClassifier("rbf", gamma=1.0).fit(X, y, sample_weight=np.where(y == 1, 3.0, 1.0))
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    rare = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:8]])
    plain = RVMClassifier("rbf", gamma=1.0).fit(X[rare], y[rare])
    balanced = RVMClassifier("rbf", gamma=1.0, class_weight="balanced").fit(X[rare], y[rare])
    assert balanced.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean()


def test_swapping_the_classes_swaps_the_probabilities():
    X, y = _moons(80)
    P = RVMClassifier("rbf", gamma=1.0).fit(X, y).predict_proba(X)
    swapped = RVMClassifier("rbf", gamma=1.0).fit(X, 1 - y).predict_proba(X)
    np.testing.assert_allclose(P, swapped[:, ::-1], atol=1e-3)


# Inputs.


def test_columns_of_any_scale_can_be_the_candidates():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 6))
    y = (2 * X[:, 1] - X[:, 4] + rng.logistic(size=200) > 0).astype(int)
    model = RVMClassifier(None).fit(X, y)
    assert {1, 4} <= set(model.active_)
    assert model.coef_.shape == (1, 6)
    assert np.count_nonzero(model.coef_) == len(model.active_)
    P = model.predict_proba(X)
    scale = np.array([1e-100, 1e100, 1.0, 1e-3, 1e-50, 1e50])
    other = RVMClassifier(None).fit(X * scale, y)
    np.testing.assert_allclose(other.predict_proba(X * scale), P, atol=5e-3)
    assert other.log_evidence_ == pytest.approx(model.log_evidence_, abs=0.05)


def test_precomputed_kernel_is_the_kernel():
    X, y = _moons()
    ours = RVMClassifier("rbf", gamma=1.0).fit(X, y)
    theirs = RVMClassifier("precomputed").fit(rbf_kernel(X, X, 1.0), y)
    new = _moons(seed=1)[0]
    np.testing.assert_array_equal(theirs.active_, ours.active_)
    assert theirs.log_evidence_ == pytest.approx(ours.log_evidence_, abs=1e-6)
    # Folds are drawn by the order of the rows of X, so the line of the calibration is another.
    z = uncalibrated(ours, new), uncalibrated(theirs, rbf_kernel(new, X, 1.0))
    np.testing.assert_allclose(z[1], z[0], atol=1e-6)


@pytest.mark.parametrize("kernel", ["rbf", "matern52", None])
def test_sparse_rows_are_rows(kernel):
    rng = np.random.default_rng(0)
    X = random_array((90, 12), density=0.3, rng=rng, format="csr")
    y = (X.toarray()[:, 0] + 0.3 * rng.standard_normal(90) > 0.1).astype(int)
    sparse = RVMClassifier(kernel, n_starts=1).fit(csr_array(X), y)
    dense = RVMClassifier(kernel, n_starts=1).fit(X.toarray(), y)
    np.testing.assert_allclose(sparse.predict_proba(X), dense.predict_proba(X.toarray()))
    with pytest.raises(
        ValueError, match=r"sparse X of 90 x 12 has to be converted.*cache_size=0\.001"
    ):
        RVMClassifier(kernel, cache_size=0.001).fit(X, y)


def test_without_cache_the_model_is_the_same():
    X, y = _moons()
    kept = RVMClassifier("rbf", gamma=1.0).fit(X, y)
    lazy = RVMClassifier("rbf", gamma=1.0, cache_size=0).fit(X, y)
    assert lazy.log_evidence_ == pytest.approx(kept.log_evidence_, abs=1e-6)


def test_float32_in_float32_out():
    X, y = _moons()
    X = X.astype(np.float32)
    model = RVMClassifier("rbf", gamma=1.0).fit(X, y)
    assert model.decision_function(X).dtype == np.float32
    assert model.predict_proba(X).dtype == np.float32
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, atol=1e-6)


def test_prediction_in_blocks_is_prediction_row_by_row():
    X, y = _moons()
    new, _ = _moons(9000)
    model = RVMClassifier("rbf", gamma=1.0).fit(X, y)
    P = model.predict_proba(new)
    for i in (0, 4096, 8999):
        np.testing.assert_allclose(model.predict_proba(new[i : i + 1])[0], P[i], atol=1e-12)


# Odd data and bad input.


def test_separable_classes_stay_finite():
    X = np.concatenate([np.linspace(-3, -2, 20), np.linspace(2, 3, 20)])[:, None]
    y = np.repeat(["left", "right"], 20)
    for kernel in ("rbf", None, "linear"):
        model = RVMClassifier(kernel).fit(X, y)
        assert model.converged_
        assert model.score(X, y) == 1.0
        assert np.all(np.isfinite(model.coef_))
        assert np.isfinite(model.log_evidence_)
        assert np.all(np.abs(model.decision_function(X)) < 30)


def test_labels_that_have_nothing_to_do_with_the_inputs_give_their_frequency():
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((300, 3)), (rng.random(300) < 0.25).astype(int)
    P = RVMClassifier("rbf", gamma=0.5).fit(X, y).predict_proba(rng.standard_normal((500, 3)))[:, 1]
    assert abs(np.median(P) - y.mean()) < 0.05


def test_errors_are_sentences():
    X, y = _moons(40)
    with pytest.raises(ValueError, match=r"needs at least two classes, but y has only one"):
        RVMClassifier("rbf", gamma="scale").fit(X, np.ones(40, dtype=int))
    with pytest.raises(ValueError, match=r"at least two classes"):
        RVMClassifier("rbf", gamma="scale").fit(X, y, sample_weight=(y == 1).astype(float))
    with pytest.raises(ValueError, match="weights are zero|non-zero"):
        RVMClassifier("rbf", gamma="scale").fit(X, y, sample_weight=np.zeros(40))
    with pytest.raises(ValueError, match="The 'algorithm' parameter of .* Got 'slow'"):
        RVMClassifier("rbf", gamma="scale", algorithm="slow").fit(X, y)
    with pytest.raises(ValueError, match="algorithm='em' stores two 40 x 40 arrays"):
        RVMClassifier("rbf", gamma="scale", algorithm="em", cache_size=1e-3).fit(X, y)
    with pytest.raises(ValueError, match="warm_start=True requires algorithm='auto'"):
        RVMClassifier("rbf", gamma="scale", algorithm="em", warm_start=True).fit(X, y)
    with pytest.raises(
        ValueError, match="The 'n_starts' parameter of RVMClassifier must be an integer >= 1"
    ):
        RVMClassifier("rbf", gamma="scale", n_starts=0).fit(X, y)
    with pytest.raises(ValueError, match="class_weight must be positive"):
        RVMClassifier("rbf", gamma="scale", class_weight={0: -1, 1: 1}).fit(X, y)
    with pytest.raises(ValueError, match="class_weight"):
        RVMClassifier("rbf", gamma="scale", class_weight="even").fit(X, y)
    with pytest.raises(ValueError, match="The 'tol' parameter of .* must be"):
        RVMClassifier("rbf", gamma="scale", tol=0).fit(X, y)
    with pytest.raises(ValueError, match=r"heal=True adds a kernel function.*kernel=None"):
        RVMClassifier(None, heal=True).fit(X, y)
    with pytest.raises(ValueError, match="continuous"):
        RVMClassifier("rbf", gamma="scale").fit(X, X[:, 0])
    with pytest.raises(ValueError, match="square matrix"):
        RVMClassifier("precomputed").fit(X, y)


def test_not_converged_is_said_and_the_model_is_valid():
    X, y = _blobs()
    with pytest.warns(ConvergenceWarning, match=r"has not converged \(max_iter\)"):
        model = RVMClassifier("rbf", gamma=0.05, max_iter=1).fit(X, y)
    assert not model.converged_
    assert model.stop_reason_ == "max_iter"
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert model.score(X, y) > 0.6


def test_an_interrupted_fit_keeps_what_it_has(monkeypatch):
    X, y = _blobs()

    def interrupt(self, iteration, info, state):
        raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "__call__", interrupt)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = RVMClassifier("rbf", gamma=0.05).fit(X, y)
    assert not model.converged_
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert np.all(model.coef_[1:] == 0)  # the classes not reached have their frequency only
    assert np.any(model.coef_[0] != 0)


# Far from the data.


@pytest.mark.parametrize("cls", [RVMClassifier, SparseGPClassifier])
def test_probabilities_revert_to_the_class_frequencies_far_from_all_rows(cls):
    X, y = _moons(200, seed=1)
    keep = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:25]])
    X, y = X[keep], y[keep]
    model = cls("rbf", gamma=1.0).fit(X, y)
    far = np.array([[100.0, 100.0], [-100.0, 0.0]])
    with pytest.warns(UserWarning, match="outside the range"):
        np.testing.assert_allclose(model.predict_proba(far)[:, 1], 0.2, atol=1e-10)
    # Inside, and just outside, nothing jumps.
    fit, low = model._fitted, X.min(axis=0)
    edge = np.array([low, low - 1e-7])
    z = fit.scores([(slice(0, 2), edge)], 2, np.float64)
    assert z[0] == pytest.approx(z[1], abs=1e-5)
    z = fit.scores([(slice(0, len(X)), X)], len(X), np.float64)
    inside = replace(fit, beyond=None).scores([(slice(0, len(X)), X)], len(X), np.float64)
    assert np.mean(z == inside) > 0.5
    assert np.all(np.abs(z) <= np.abs(inside))
    np.testing.assert_array_equal(z > 0.0, inside > 0.0)


def test_healed_probabilities_are_less_certain_in_a_gap_and_unchanged_at_the_rows():
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.uniform(-20, -10, 60), rng.uniform(10, 20, 60)])[:, None]
    y = rng.random(120) < expit(1 + 3 * np.sin(X[:, 0]))
    plain = RVMClassifier("rbf", gamma=0.5).fit(X, y)
    healed = RVMClassifier("rbf", gamma=0.5, heal=True).fit(X, y)
    np.testing.assert_array_equal(plain.active_, healed.active_)
    assert np.median(np.abs(healed.predict_proba(X) - plain.predict_proba(X))) < 0.01
    gap = np.zeros((1, 1))
    # The variance there is that of the latent signal.
    signal = np.var(plain._fitted.latent(X)[0])
    mean, variance = (value[:, 0] for value in plain._fitted.latent(gap))
    expected = mean / np.sqrt(1 + np.pi * (variance + signal) / 8)
    np.testing.assert_allclose(uncalibrated(healed, gap), expected)
    assert abs(uncalibrated(healed, gap)[0]) < abs(uncalibrated(plain, gap)[0])


def test_healed_probabilities_of_a_rare_class_sum_to_its_rows():
    total = 0.0
    for seed in range(5, 10):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2.0, 2.0, (160, 3))
        y = rng.random(160) < expit(1.5 * np.sin(2.0 * X[:, 0]) - 3.5)
        model = RVMClassifier("rbf", gamma=0.5, heal=True).fit(X, y)
        total += np.sum(model.predict_proba(X)[:, 1]) / np.sum(y) / 5
    assert total < 1.08  # 1.15 if the folds, which calibrate, are not healed


def test_rows_outside_are_warned_of_however_long_the_length_scales_learnt_from_labels_are():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (160, 2))
    y = rng.random(160) < expit(X[:, 0])
    model = SparseGPClassifier().fit(X, y)
    assert np.min(0.5 / np.sqrt(2.0 * model.gamma_)) > 1.0  # half a length scale
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_proba(np.array([[2.3, 0.0]]))
    with pytest.warns(UserWarning, match="1 of 1 rows is outside the range"):
        model.predict_proba(np.array([[2.6, 0.0]]))


def test_several_classes_revert_to_their_frequencies():
    X, y = _blobs(spread=1.0)
    model = RVMClassifier("rbf", gamma=0.5, n_starts=1).fit(X, y)
    with pytest.warns(UserWarning, match="outside the range"):
        far = model.predict_proba(np.array([[1e3, 1e3]]))[0]
    np.testing.assert_allclose(far, np.bincount(y) / len(y), atol=0.01)


def test_a_model_without_an_intercept_keeps_the_class_frequencies():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (200, 4))
    y = rng.random(200) < expit(1.5 * X[:, 0] - 3.0)
    model = RVMClassifier(None, fit_intercept=False, n_starts=1).fit(X, y)
    assert model.predict_proba(X)[:, 1].sum() == pytest.approx(np.sum(y), rel=0.15)


# Life with scikit-learn.


@pytest.mark.parametrize("kernel", ["rbf", None])
def test_warm_start_takes_fewer_steps_to_no_less_evidence(kernel):
    X, y = make_blobs(240, centers=3, cluster_std=3.0, n_features=4, random_state=2)
    model = RVMClassifier(kernel, gamma="ard", warm_start=True).fit(X[:200], y[:200])
    model.fit(X, y)
    scratch = RVMClassifier(kernel, gamma="ard").fit(X, y)
    warm, cold = (m.history_["stage"] != "joint" for m in (model, scratch))
    assert np.sum(warm) < 0.7 * np.sum(cold)  # both come to rest alike
    assert model.log_evidence_ > scratch.log_evidence_ - 0.01
    two = y < 2
    model.fit(X[two], y[two])  # other classes: from scratch
    assert len(model.classes_) == 2
    if kernel is not None:
        with pytest.raises(ValueError, match=r"warm_start=True, but the last fit had 4 inputs"):
            model.fit(X[two][:, :2], y[two])


def test_random_state_decides_where_chance_is_used():
    X, y = _moons(100)
    one, two = (
        RVMClassifier("rbf", gamma=1.0, n_starts=5, random_state=3).fit(X, y) for _ in range(2)
    )
    assert one.log_evidence_ == two.log_evidence_


def test_fast_ends_near_auto_on_an_easy_problem():
    X, y = _moons()
    fast = RVMClassifier("rbf", gamma=1.0, algorithm="fast").fit(X, y)
    auto = RVMClassifier("rbf", gamma=1.0).fit(X, y)
    assert fast.converged_
    assert fast.log_evidence_ <= auto.log_evidence_ + 0.5
    assert abs(fast.score(X, y) - auto.score(X, y)) < 0.05


def test_pickles_clones_and_grids():
    X, y = _moons(100)
    search = GridSearchCV(
        RVMClassifier("rbf", gamma="scale", n_starts=1), {"gamma": [0.5, 1.0]}, cv=2
    ).fit(X, y)
    model = search.best_estimator_
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("algorithm", ["auto", "em"])
def test_very_wide_functions_are_not_taken_for_constants(algorithm):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.7, 1.7, (400, 10))
    labels = X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(400) > 0
    settings = {"gamma": 0.001, "algorithm": algorithm}
    without = RVMClassifier(
        fit_intercept=False, **{"kernel": "rbf", "gamma": "scale", **settings}
    ).fit(X, labels)
    beside = RVMClassifier(**{"kernel": "rbf", "gamma": "scale", **settings}).fit(X, labels)
    assert without.log_evidence_ > beside.log_evidence_ - 10.0  # with none left: 50 nats less
    assert without.score(X, labels) > 0.75


def _calibration(z, codes, coupling=1.0):
    folds = LabelPredictions(z, codes, np.ones(len(codes)))
    return best_calibration(folds, Logistic(), coupling)


def test_calibration_finds_by_how_much_log_odds_are_too_large():
    rng = np.random.default_rng(0)
    truth = 2.0 * rng.standard_normal(20_000)
    codes = (rng.uniform(size=20_000) < expit(truth)).astype(int)
    line = _calibration(3.0 * truth + 1.5, codes)
    assert line.slope == pytest.approx(1 / 3, rel=0.05)
    assert line.intercept[0] == pytest.approx(-0.5, abs=0.05)
    # All labels right: the prior holds it, and more rows count for more.
    few, many = (_calibration(2.0 * codes[:n] - 1.0, codes[:n]).slope for n in (40, 200))
    assert 1.0 < few < many < np.exp(2.0)
    # A few labels move the line little.
    assert 0.5 < _calibration(truth[:10], codes[:10]).slope < 2.0


@pytest.mark.parametrize("k", [2, 3])
def test_calibrated_probabilities_sum_to_the_number_of_rows_of_each_class(k):
    # The slope of the log-likelihood along an intercept is a difference of such sums; of many rows
    # the prior does not count.
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((20_000, k)) - np.arange(k)
    P = couple(truth, 0.0)
    codes = (rng.uniform(size=(20_000, 1)) > np.cumsum(P, axis=1)[:, :-1]).sum(axis=1)
    z = 1.5 * truth + 0.7 if k > 2 else 1.5 * (truth[:, 1] - truth[:, 0]) + 0.7
    line = _calibration(z, codes, 0.0)
    sums = probabilities(line(z), 0.0).sum(axis=0)
    np.testing.assert_allclose(sums, np.bincount(codes), rtol=2e-3 if k == 2 else 2e-2)


def test_folds_hold_every_class():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    codes = np.repeat([0, 1, 2, 3], [20, 14, 5, 1])
    folds = label_folds(X, codes, np.ones(40), np.random.default_rng(1))
    own = codes[folds.rows]
    assert [np.sum(np.any(folds.held_out[:, own == c], axis=1)) for c in range(4)] == [5, 5, 5, 0]
    np.testing.assert_array_equal(folds.held_out.sum(axis=0), own != 3)


def test_folds_spread_repeated_observations_and_weights_are_repetition():
    rng = np.random.default_rng(0)
    X, codes = rng.standard_normal((30, 2)), np.repeat([0, 1, 2], [15, 14, 1])
    count = rng.integers(1, 9, 30)
    times = np.repeat(np.arange(30), count)[rng.permutation(np.sum(count))]
    rows = label_folds(X[times], codes[times], np.ones(len(times)), np.random.default_rng(1))
    weights = label_folds(X, codes, count.astype(float), np.random.default_rng(1))
    np.testing.assert_array_equal(X[times][rows.rows], X[weights.rows])
    np.testing.assert_array_equal(rows.held_out, weights.held_out)
    np.testing.assert_array_equal(rows.held_out.sum(axis=0), rows.weight)
    assert np.ptp(rows.held_out, axis=0).max() <= 1.0  # as even as can be
    half = label_folds(X, codes, count + 0.5, np.random.default_rng(1))
    assert np.all(np.count_nonzero(half.held_out, axis=0)[codes[half.rows] != 2] == 1)


def test_replicates_are_left_out_together():
    rng = np.random.default_rng(0)
    place = rng.integers(0, 40, 200)
    X, codes = rng.standard_normal((40, 2))[place], (rng.random(200) < 0.5).astype(int)
    folds = label_folds(X, codes, np.ones(200), np.random.default_rng(1), replicates=True)
    inputs = X[folds.rows, 0]
    for row in np.unique(inputs):
        own = folds.held_out[:, inputs == row]
        assert np.sum(np.any(own > 0, axis=1)) == 1
    np.testing.assert_array_equal(folds.held_out.sum(axis=0), folds.weight)
    assert folds.weight.sum() == 200
    # Every fold has rows of both classes.
    for c in (0, 1):
        assert np.all(folds.held_out[:, codes[folds.rows] == c].sum(axis=1) > 0)


@pytest.mark.parametrize(
    ("kind", "expected"), [("measured", True), ("sparse", True), ("grades", False), ("once", False)]
)
def test_equal_rows_are_replicates_unless_the_inputs_are_discrete(kind, expected):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 3))[rng.integers(0, 30, 150)]
    if kind == "grades":
        X = rng.integers(1, 6, (150, 3)).astype(float)
    elif kind == "once":
        X = rng.standard_normal((150, 3))
    elif kind == "sparse":
        X = csr_array(X)
    data = Data(X, rng.integers(0, 2, 150))
    found = find_repeats(data, X, np.ones(150))
    assert found.replicates == expected
    assert found.n_different == len(np.unique(X.toarray() if kind == "sparse" else X, axis=0))
    assert found.n_folds == (10 if expected else 5)


def test_folds_pay_for_length_scales_and_variances_that_they_hold():
    X, y = _moons()
    given = RVMClassifier("rbf", gamma=1.0).fit(X, y)._fitted.kernel
    process = SparseGPClassifier("rbf", gamma=1.0).fit(X, y)._fitted.kernel
    learnt = SparseGPClassifier("rbf", gamma="ard").fit(X, y)._fitted.kernel
    assert (fold_optimism(given), fold_optimism(process)) == (0.0, 1.0)
    assert fold_optimism(learnt) == 1.0 + learnt.n_matter > 1.0
    assert fold_optimism(learnt, 0.5) == 0.5 * fold_optimism(learnt)


def test_values_that_were_learnt_from_all_labels_make_the_line_flatter():
    rng = np.random.default_rng(0)
    z = rng.standard_normal(20_000)
    codes = (rng.uniform(size=20_000) < expit(z)).astype(int)

    def slope(n, optimism):
        folds = LabelPredictions(z[:n], codes[:n], np.ones(n))
        return best_calibration(folds, Logistic(), optimism=optimism).slope

    assert slope(100, 3.0) < 0.95 * slope(100, 0.0)
    assert slope(20_000, 3.0) == pytest.approx(slope(20_000, 0.0), rel=5e-3)
    # Scores of k weights that a Newton step of the log-likelihood fits to labels without a pattern
    # claim k nats per unit of the slope: nothing is left when these are paid.
    k, left = 4, []
    for _ in range(300):
        X, y = rng.standard_normal((100, k)), rng.integers(0, 2, 100)
        scores = X @ np.linalg.solve(0.25 * X.T @ X, X.T @ (y - 0.5))
        step = 1e-4
        gain = np.sum(np.log(expit(step * scores * (2 * y - 1)))) + 100 * np.log(2.0)
        left.append(gain / step - k)
    assert abs(np.mean(left)) < 3 * np.std(left) / 300**0.5


@pytest.mark.parametrize("kernel", [("rbf", 0.5), ("matern32", "auto")])
def test_probabilities_are_calibrated_whether_the_kernel_was_chosen_or_not(kernel):
    X, y = make_classification(1000, 10, n_informative=5, n_classes=3, flip_y=0.1, random_state=1)
    model = RVMClassifier(kernel[0], gamma=kernel[1], algorithm="fast").fit(X[:150], y[:150])
    assert model.calibration_ < 0.8
    z, p = model.decision_function(X[150:]), model.predict_proba(X[150:])
    np.testing.assert_allclose(p, probabilities(z, model.coupling_))
    loss = log_loss(y[150:], probabilities(uncalibrated(model, X[150:]), model.coupling_))
    assert log_loss(y[150:], p) < 0.95 * loss


def test_a_class_of_two_rows_is_fitted():
    # The search of one fold began at weights that cancel each other, where all rows are saturated.
    X = np.linspace(-2, 2, 200)[:, None]
    y = np.zeros(200, dtype=int)
    y[[10, 100]] = 1
    for parameters in ({}, {"gamma": "ard"}, {"kernel": "sum"}):
        model = RVMClassifier(**parameters).fit(X, y)
        assert np.all(np.isfinite(model.predict_proba(X)))


@pytest.mark.parametrize("failing", [{0}, {3}, {3, 4, 5, 6, 7}, set(range(20))])
def test_trials_that_break_down_do_not_fail_the_fit(monkeypatch, failing):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = (X[:, 0] + 0.5 * rng.standard_normal(60) > 0).astype(int)
    solve, calls = RVMClassifier._solve, []

    def broken(self, problem):
        if not problem.is_reported:
            calls.append(1)
            if len(calls) - 1 in failing:
                raise np.linalg.LinAlgError
        return solve(self, problem)

    monkeypatch.setattr(RVMClassifier, "_solve", broken)
    model = RVMClassifier().fit(X, y)
    assert len(calls) > 5
    assert model.score(X, y) > 0.8
    assert np.isfinite(model.calibration_)


def test_relevance_vectors_are_kept_where_few_functions_are_the_truth():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 6))
    y = (np.sum(X**2, axis=1) > 5.35).astype(int)
    model = RVMClassifier("rbf", gamma="auto").fit(X, y)
    assert len(model.active_) < 15
