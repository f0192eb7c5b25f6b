import pickle

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

import sparsebayes.estimators.stacked_classifier as module
from sparsebayes.estimators.stacked_classifier import StackedClassifier
from sparsebayes.stacking import ClassPool, pool_classes

RNG = np.random.default_rng(0)
X = np.column_stack([np.exp(RNG.standard_normal(700)), RNG.uniform(-2, 2, 700)])
LATENT = 2.0 * np.log(X[:, 0]) + 2.0 * np.sin(2 * X[:, 1])
Y = np.where(RNG.uniform(size=700) < expit(LATENT), "yes", "no")
THREE = np.digitize(LATENT + RNG.logistic(size=700), [-1.5, 1.5])
TRAIN, TEST = slice(0, 250), slice(250, 700)


@pytest.fixture(scope="module")
def model():
    return StackedClassifier().fit(X[TRAIN], Y[TRAIN])


@parametrize_with_checks([StackedClassifier(kernel="rbf", gamma=0.5)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_everything_that_was_compared_is_said(model):
    table = model.choices_
    assert table["member"] == [
        "linear",
        "Gaussian process of normal scores (sum, one length scale)",
        "Gaussian process of normal scores (sum, one length scale per input)",
    ]
    assert sum(table["weight"]) == pytest.approx(1.0)
    assert len({len(column) for column in table.values()}) == 1
    assert table["error"][int(np.argmax(table["loo_log_density"]))] == 0.0
    assert "models compared by mean leave-one-out log probability" in model.notes_[0]
    assert model.members_[0].name in model.notes_[1]
    assert model.classifier_ is model.members_[0].model
    assert np.all(np.diff(model.weights_) <= 0)


def test_parameters_of_the_user_hold_for_the_processes():
    plain = StackedClassifier("matern32", gamma="ard", warp=False).fit(X[TRAIN], Y[TRAIN])
    assert plain.choices_["member"][1:] == [
        "Gaussian process (matern32, one length scale per input)"
    ]
    one_input = StackedClassifier().fit(X[TRAIN, 1:], Y[TRAIN])
    assert one_input.choices_["member"][1:] == ["Gaussian process (sum, one length scale)"]


def test_the_pool_predicts_as_well_as_its_best_member_and_is_calibrated(model):
    truth = expit(LATENT[TEST])
    p = model.predict_proba(X[TEST])
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    members = [log_loss(Y[TEST], m.model.predict_proba(X[TEST])) for m in model.members_]
    assert log_loss(Y[TEST], p) < min(members) + 0.01
    entropy = -np.mean(truth * np.log(truth) + (1 - truth) * np.log(1 - truth))
    assert log_loss(Y[TEST], p) < entropy + 0.07
    np.testing.assert_allclose(expit(model.decision_function(X[TEST])), p[:, 1])
    np.testing.assert_array_equal(model.predict(X[TEST]) == "yes", p[:, 1] > 0.5)


def test_three_classes():
    model = StackedClassifier().fit(X[TRAIN], THREE[TRAIN])
    p = model.predict_proba(X[TEST])
    assert p.shape == (450, 3)
    frequency = np.bincount(THREE[TRAIN]) / 250
    assert log_loss(THREE[TEST], p) < 0.8 * -np.mean(np.log(frequency[THREE[TEST]]))
    assert model.decision_function(X[TEST]).shape == (450, 3)


def test_the_smallest_member_is_one_model():
    model = StackedClassifier(prefer="small").fit(X[TRAIN], Y[TRAIN])
    assert "functions" in model.choices_["member"][-1]
    assert len(model.members_) == 1
    table = model.choices_
    chosen = int(np.argmax(table["weight"]))
    behind = np.max(table["loo_log_density"]) - table["loo_log_density"][chosen]
    assert behind <= table["error"][chosen]
    assert "the smallest within one standard error" in model.notes_[1]


def test_weights_are_repetition():
    count = np.random.default_rng(1).integers(0, 3, 120)
    settings = {"kernel": "rbf", "gamma": 0.5}
    Z = np.round(X[:120])  # rows repeat by chance
    weighted = StackedClassifier(**settings).fit(Z, Y[:120], sample_weight=count)
    repeated = StackedClassifier(**settings).fit(np.repeat(Z, count, 0), np.repeat(Y[:120], count))
    np.testing.assert_allclose(
        weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-3, atol=1e-4
    )


def test_a_time_limit_keeps_what_was_fitted():
    with pytest.warns(ConvergenceWarning):
        model = StackedClassifier(max_time=1e-3).fit(X[TRAIN], Y[TRAIN])
    assert not model.converged_
    assert model.choices_["member"] == ["linear"]
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_copies_of_skewed_rows_are_one_observation():
    once = StackedClassifier().fit(X[:80], Y[:80])
    twice = StackedClassifier().fit(np.tile(X[:80], (2, 1)), np.tile(Y[:80], 2))
    np.testing.assert_allclose(once.predict_proba(X), twice.predict_proba(X), rtol=1e-6)


def test_members_of_some_weight_see_all_rows(monkeypatch):
    monkeypatch.setattr(module, "_COMPARED", 200)
    model = StackedClassifier("rbf", gamma=0.5).fit(X, Y)
    assert "models compared on 200 of 700 rows" in model.notes_[-1]
    alone = module.SparseGPClassifier("rbf", gamma=0.5, max_terms=None).fit(X, Y)
    processes = [m.model for m in model.members_ if m.name == "Gaussian process"]
    np.testing.assert_allclose(
        processes[0]._fitted.values(X[:20]), alone._fitted.values(X[:20]), rtol=1e-6
    )


def test_a_saved_pool_predicts_the_same(model):
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_pool_weights_are_those_of_highest_probability():
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 3, 300)
    parts = []
    for noise in (1.0, 2.0):
        z = np.eye(3)[codes] + noise * rng.standard_normal((300, 3))
        parts.append(np.exp(log_softmax(z, axis=1)))
    count = rng.integers(1, 3, 300).astype(float)
    pool = pool_classes(parts, codes, count)
    base = np.log((np.bincount(codes, weights=count) + 1 / 3) / (np.sum(count) + 1))
    logs = np.log(parts) - base

    def loss(theta):
        z = np.tensordot(theta[:2], logs, 1) + base + theta[2:]
        total = np.sum(theta[:2]) - 1.0
        prior = (total / (0.25 if total > 0 else 1.0)) ** 2 + np.sum(theta[2:] ** 2)
        return 0.5 * prior - count @ log_softmax(z, axis=1)[np.arange(300), codes]

    best = minimize(loss, np.zeros(5), method="Nelder-Mead", options={"maxiter": 4000})
    ours = pool.intercept - (1 - np.sum(pool.weight)) * base
    assert loss(np.append(pool.weight, ours)) <= best.fun + 1e-6
    repeated = pool_classes(
        [np.repeat(p, count.astype(int), axis=0) for p in parts],
        np.repeat(codes, count.astype(int)),
        np.ones(int(np.sum(count))),
    )
    np.testing.assert_allclose(repeated.weight, pool.weight, atol=1e-4)


def test_optimism_costs_weight_and_missing_rows_do_not_count():
    codes = np.repeat([0, 1], 100)
    part = np.where(np.equal.outer(codes, [0, 1]), 0.7, 0.3)
    twins = [part, part.copy()]
    pool = pool_classes(twins, codes, np.ones(200), np.array([0.0, 5.0]))
    assert pool.weight[0] > 0.9
    assert pool.weight[1] < 0.01
    twins[0] = np.where(np.arange(200)[:, None] % 10 == 0, np.nan, part)
    assert np.all(np.isfinite(pool_classes(twins, codes, np.ones(200)).weight))


def test_a_pool_without_members_that_tell_anything_has_the_frequencies():
    codes = np.repeat([0, 1], [150, 50])
    noise = np.random.default_rng(3).uniform(0.05, 0.95, 200)
    part = np.column_stack([noise, 1.0 - noise])
    p = pool_classes([part], codes, np.ones(200))([part])
    assert np.max(np.abs(p[:, 1] - 0.25)) < 0.15
    flat = ClassPool(np.zeros(1), np.log([0.75, 0.25]))
    np.testing.assert_allclose(flat([part])[:, 1], 0.25)
