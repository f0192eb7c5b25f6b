"""The Gaussian process of labels."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from sklearn.datasets import load_wine
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparsebayes import RVMClassifier, SparseGPClassifier
from tests.label_helpers import uncalibrated


@parametrize_with_checks([SparseGPClassifier("rbf", gamma="scale")])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def _patches(n=700):
    """Labels of a rough function of two inputs, and one input that does not matter."""
    rng = np.random.default_rng(3)
    X = rng.uniform(size=(n, 3))
    height = rng.standard_normal((6, 6))[tuple((6 * X[:, :2]).astype(int).T)]
    return X, (rng.uniform(size=n) < expit(5 * height)).astype(int)


def test_the_process_predicts_a_rough_function_better_than_few_functions():
    X, y = _patches()
    process = SparseGPClassifier("matern32").fit(X[:300], y[:300])
    sparse = RVMClassifier("matern32").fit(X[:300], y[:300])
    assert len(sparse.active_) < len(process.active_) <= 300
    loss = [log_loss(y[300:], m.predict_proba(X[300:])) for m in (process, sparse)]
    assert loss[0] < 0.97 * loss[1]
    # Its log odds are those of the mode.
    Phi = process.basis_(X[300:])[:, process._fitted.members[0]]
    np.testing.assert_allclose(uncalibrated(process, X[300:]), process.posterior_.at(Phi))
    again = pickle.loads(pickle.dumps(process))
    np.testing.assert_array_equal(again.predict_proba(X), process.predict_proba(X))


def test_several_classes_share_their_functions():
    X, y = load_wine(return_X_y=True)
    model = SparseGPClassifier("matern52", gamma="ard").fit(X, y)
    assert np.all(np.isfinite(model.weight_precision_))
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize("kernel", [None, "precomputed"])
def test_kernels_without_functions_are_refused(kernel):
    with pytest.raises(ValueError, match="requires kernel functions centred on rows"):
        SparseGPClassifier(kernel).fit(np.eye(4), [0, 1, 0, 1])


def test_folds_hold_the_variance_that_the_fit_has_learnt(monkeypatch):
    X, y = _patches(120)
    learnt, held = [], []
    solve = SparseGPClassifier._solve

    def record(self, problem):
        (held if problem.choice.variances else learnt).append(problem.purpose)
        return solve(self, problem)

    monkeypatch.setattr(SparseGPClassifier, "_solve", record)
    model = SparseGPClassifier("rbf", gamma=10.0).fit(X, y)
    assert learnt == ["fit"]
    assert held == ["fold"] * 5
    assert len(model._fitted.kernel.variances) == 1


def test_without_a_limit_all_rows_have_a_function():
    X, y = _patches()
    model = SparseGPClassifier("matern32", max_terms=None).fit(X[:300], y[:300])
    np.testing.assert_array_equal(model.active_, np.arange(300))
    assert np.all(np.isfinite(model.weight_precision_))
    few = SparseGPClassifier("matern32", max_terms=20).fit(X[:300], y[:300])
    assert len(few.active_) == 20
    loss = [log_loss(y[300:], m.predict_proba(X[300:])) for m in (model, few)]
    assert loss[0] < loss[1]
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    Phi = model.basis_(X[:5])
    np.testing.assert_allclose(
        again.posterior_.function_variance(Phi), model.posterior_.function_variance(Phi)
    )


def test_leave_one_out_predictions_of_all_rows_are_those_of_new_fits():
    X, y = _patches(60)
    model = SparseGPClassifier("matern32", gamma=5.0, max_terms=None).fit(X, y)
    problem = model._problem(*_data(model, X, y))
    kernel = model._fitted.kernel  # with the variance that was learnt
    z = model._fitted.loo.z
    for i in range(0, 60, 6):
        others = np.delete(np.arange(60), i)
        fit = model._solve(replace(problem.subset(others, "fold"), kernel=kernel))
        assert fit.values(X[[i]])[0, 0] == pytest.approx(z[i], abs=0.35)


def _data(model, X, y):
    data, classes = model._read(X, y, None)
    return data, len(classes)


def test_too_many_rows_for_all_functions_are_refused(monkeypatch):
    monkeypatch.setattr("sparsebayes.estimators.sparse_gp_classifier.MOST_EXACT_ROWS", 50)
    X, y = _patches(60)
    with pytest.raises(ValueError, match="max_terms=None supports at most 50 rows"):
        SparseGPClassifier("matern32", max_terms=None).fit(X, y)
