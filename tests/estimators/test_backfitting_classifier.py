"""BackfittingClassifier, held to its contract."""

import pickle

import numpy as np
import pytest
import skops.io as sio
from scipy import sparse
from sklearn.datasets import load_iris, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparsebayes import TRUSTED_TYPES, BackfittingClassifier, RVMClassifier


@parametrize_with_checks(
    [
        BackfittingClassifier(),
        BackfittingClassifier("rbf"),
        BackfittingClassifier(prior="ridge", variance="factorised", max_iter=5),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def _labels(n=400, m=300, seed=0):
    rng = np.random.default_rng(seed)
    X = sparse.random_array((n, m), density=0.2, rng=rng, format="csr")
    a = X[:, [5, 50]] @ [10.0, -10.0]
    return X, np.where(rng.uniform(size=n) < 1 / (1 + np.exp(-a)), "yes", "no")


@pytest.mark.parametrize("variance", ["exact", "factorised"])
def test_classifier_finds_its_columns_and_takes_sparse_input(variance):
    X, y = _labels()
    thin = BackfittingClassifier(variance=variance).fit(X, y)
    full = BackfittingClassifier(variance=variance).fit(X.toarray(), y)
    assert {5, 50} <= set(thin.active_)
    assert len(thin.active_) <= 3
    assert thin.variance_ == variance
    np.testing.assert_allclose(thin.predict_proba(X), full.predict_proba(X.toarray()), atol=1e-5)
    assert np.min(np.diff(thin.bound_)) > -1e-9 * np.abs(thin.bound_).max()
    assert thin.predict(X[:3]).dtype == y.dtype


def test_classifier_is_calibrated():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((3000, 5))
    p = 1 / (1 + np.exp(-(X[:, 0] - X[:, 1])))
    y = rng.uniform(size=3000) < p
    for settings in ({}, {"prior": "ridge"}, {"variance": "factorised"}):
        model = BackfittingClassifier(**settings).fit(X[:500], y[:500])
        assert np.mean(np.abs(model.predict_proba(X[500:])[:, 1] - p[500:])) < 0.06


def test_several_classes_sum_to_one():
    X, y = load_iris(return_X_y=True)
    model = BackfittingClassifier().fit(X, y)
    assert model.score(X, y) > 0.93
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert len(model.bound_) == 3
    for bound in model.bound_:
        assert np.min(np.diff(bound)) > -1e-9 * np.abs(bound).max()


def test_kernel_classifier_separates_moons():
    X, y = make_moons(300, noise=0.2, random_state=0)
    new, truth = make_moons(1000, noise=0.2, random_state=1)
    model = BackfittingClassifier("rbf", gamma=1.0).fit(X, y)
    assert model.score(new, truth) > 0.95
    assert len(model.active_) < 20


def test_classifier_without_a_prior_is_logistic_regression():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((300, 3))
    y = rng.uniform(size=300) < 1 / (1 + np.exp(-X[:, 0]))
    model = BackfittingClassifier(prior="none", tol=1e-4).fit(X, y)
    theirs = LogisticRegression(C=np.inf, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=1e-2, atol=1e-3)


def test_class_weight_is_sample_weight():
    X, y = _labels()
    a = BackfittingClassifier(class_weight={"yes": 2.0, "no": 1.0}).fit(X, y)
    b = BackfittingClassifier().fit(X, y, np.where(y == "yes", 2.0, 1.0))
    np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(X), atol=1e-8)


@pytest.mark.parametrize(
    "settings", [{}, {"kernel": "rbf"}, {"prior": "ridge"}, {"variance": "factorised"}]
)
def test_whole_weights_are_repetition(settings):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((80, 4))
    y = X[:, 0] + 0.5 * rng.standard_normal(80) > 0
    weight = rng.integers(0, 4, 80)
    weighted = BackfittingClassifier(**settings, tol=1e-6).fit(X, y, weight)
    rows = np.repeat(np.arange(80), weight)
    repeated = BackfittingClassifier(**settings, tol=1e-6).fit(X[rows], y[rows])
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-4)
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_, abs=1e-3)


@pytest.mark.parametrize("settings", [{}, {"kernel": "rbf"}, {"variance": "factorised"}])
def test_the_label_is_the_more_probable_one_in_whatever_order_columns_came(settings):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((200, 6))
    y = X @ [0.0, 1.0, -2.0, 0.0, 3.0, 0.0] + 0.5 * rng.standard_normal(200) > 0
    model = BackfittingClassifier(**settings).fit(X, y)
    assert len(model.active_) > 1
    np.testing.assert_array_equal(model.predict(X), model.predict_proba(X)[:, 1] > 0.5)
    assert model.score(X, y) > 0.9


def test_it_predicts_as_the_laplace_machine_does():
    X, y = make_moons(300, noise=0.25, random_state=0)
    new, truth = make_moons(2000, noise=0.25, random_state=1)
    laplace = RVMClassifier("rbf", gamma=1.0).fit(X, y).predict_proba(new)
    ours = BackfittingClassifier("rbf", gamma=1.0).fit(X, y).predict_proba(new)
    assert np.mean(np.abs(laplace - ours)) < 0.05
    assert log_loss(truth, ours) < log_loss(truth, laplace) + 0.02


@pytest.mark.parametrize("settings", [{}, {"kernel": "rbf"}, {"variance": "factorised"}])
def test_a_saved_model_predicts_the_same(settings):
    X, y = load_iris(return_X_y=True)
    model = BackfittingClassifier(**settings, tol=0.1).fit(X, y)
    content = sio.dumps(model)
    assert set(sio.get_untrusted_types(data=content)) <= set(TRUSTED_TYPES)
    for again in (sio.loads(content, trusted=TRUSTED_TYPES), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"prior": "flat"}, "The 'prior' parameter of .* must be"),
        ({"variance": "full"}, "The 'variance' parameter of .* must be"),
        ({"inclusion_prior": 2.0}, "The 'inclusion_prior' parameter of .* must be"),
        ({"class_weight": {"yes": -1.0, "no": 1.0}}, "class_weight must be positive"),
        ({"gamma": 2.0}, "gamma=2.0 requires a kernel"),
        ({"prior": "ridge", "inclusion_prior": 0.1}, "inclusion_prior=0.1 requires prior='ard'"),
    ],
)
def test_wrong_parameters_are_a_sentence(parameters, message):
    X, y = _labels(60, 60)
    with pytest.raises(ValueError, match=message):
        BackfittingClassifier(**parameters).fit(X, y)
