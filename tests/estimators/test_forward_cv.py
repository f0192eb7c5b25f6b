"""The search of ForwardRegressorCV against fits made one by one."""

import numpy as np
import pytest
from sklearn.model_selection import KFold
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparsebayes import ForwardRegressor, ForwardRegressorCV


@parametrize_with_checks(
    [
        ForwardRegressorCV(max_terms=5, gammas=[0.1, 1.0], regularizations=[0.01], cv=3),
        ForwardRegressorCV(None, max_terms=5, refit="gp", cv=2, random_state=0),
        ForwardRegressorCV(max_terms=3, gammas=[0.1], regularizations=[0.01], cv=KFold(3)),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def data(n=90, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.standard_normal(n)


@pytest.mark.parametrize("noise", ["learn", 0.05])
@pytest.mark.parametrize("kernel", ["rbf", None])
def test_errors_are_those_of_models_fitted_one_by_one(kernel, noise):
    X, y = data()
    model = ForwardRegressorCV(
        kernel,
        gammas=[0.3, 1.0],
        regularizations=[1e-6, 0.1],
        max_terms=8,
        cv=3,
        noise_variance=noise,
        random_state=3,
    ).fit(X, y)
    results = model.cv_results_
    # The folds, as the search drew them.
    seed = np.random.RandomState(3).randint(np.iinfo(np.int32).max)
    state = int(np.random.default_rng(seed).integers(2**31))
    folds = list(KFold(3, shuffle=True, random_state=state).split(X))
    for g, gamma in enumerate(results["gamma"]):
        for j, lam in enumerate(results["regularization"]):
            for k in (1, 2, 8):
                errors = []
                for inside, outside in folds:
                    one = ForwardRegressor(
                        kernel,
                        gamma=gamma,
                        regularization=lam,
                        noise_variance=noise,
                        max_terms=k,
                        early_stopping=None,
                        refit=None,
                    ).fit(X[inside], y[inside])
                    errors.append(np.mean((one.predict(X[outside]) - y[outside]) ** 2))
                assert results["mean_squared_error"][g, j, k] == pytest.approx(
                    np.mean(errors), rel=1e-6
                )
    best = np.min(results["mean_squared_error"])
    assert model.best_score_ == best
    assert len(model.best_estimator_.active_) == model.best_params_["n_terms"] or kernel is None


def test_the_search_sees_a_subset_and_the_fit_all_rows():
    X, y = data(400)
    model = ForwardRegressorCV(search_rows=60, max_terms=15, random_state=0).fit(X, y)
    assert model.best_estimator_._fitted_path.n_rows == 400
    new, truth = data(1000, seed=1)
    assert np.mean((model.predict(new) - truth) ** 2) < 0.06
    mean, std = model.predict(new, return_std=True)
    assert 0.9 < np.mean(np.abs(truth - mean) < 1.96 * std) < 0.99
    assert model.sample_y(new[:3], 5).shape == (3, 5)


def test_folds_may_be_a_splitter_or_pairs_of_row_numbers():
    X, y = data(60)
    settings = {"gammas": [0.3, 1.0], "regularizations": [0.1], "max_terms": 5, "random_state": 0}
    splitter = KFold(4, shuffle=True, random_state=1)
    a = ForwardRegressorCV(cv=splitter, **settings).fit(X, y)
    pairs = list(splitter.split(X))
    b = ForwardRegressorCV(cv=pairs, **settings).fit(X, y)
    masks = [tuple(np.isin(np.arange(60), part) for part in pair) for pair in pairs]
    c = ForwardRegressorCV(cv=iter(masks), **settings).fit(X, y)
    for other in (b, c):
        np.testing.assert_array_equal(
            a.cv_results_["mean_squared_error"], other.cv_results_["mean_squared_error"]
        )
        np.testing.assert_allclose(a.predict(X), other.predict(X))


def test_rows_without_weight_have_no_part_in_given_folds():
    X, y = data(60)
    settings = {"gammas": [0.3], "regularizations": [0.1], "max_terms": 5, "random_state": 0}
    weight = np.ones(60)
    weight[::3] = 0.0
    kept = np.flatnonzero(weight)
    halves = [(np.arange(30), np.arange(30, 60)), (np.arange(30, 60), np.arange(30))]
    a = ForwardRegressorCV(cv=halves, **settings).fit(X, y, weight)
    inner = [(np.arange(20), np.arange(20, 40)), (np.arange(20, 40), np.arange(20))]
    b = ForwardRegressorCV(cv=inner, **settings).fit(X[kept], y[kept])
    np.testing.assert_allclose(
        a.cv_results_["mean_squared_error"], b.cv_results_["mean_squared_error"]
    )
    nothing = [(np.arange(1, 60), np.array([0]))]
    with pytest.raises(ValueError, match=r"Split 0 of cv leaves 40 .* and 0 to predict"):
        ForwardRegressorCV(cv=nothing, **settings).fit(X, y, weight)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"kernel": "precomputed"}, "needs rows"),
        ({"cv": 1}, "The 'cv' parameter of .* must be"),
        ({"cv": 2.5}, "The 'cv' parameter of .* must be"),
        ({"cv": []}, "has no split"),
        ({"search_rows": 2}, "The 'search_rows' parameter of .* must be"),
        ({"gammas": [-1.0]}, "gammas must be"),
        ({"regularizations": []}, "regularizations must be"),
        ({"max_terms": 0}, "The 'max_terms' parameter of .* must be"),
    ],
)
def test_wrong_parameters_are_a_sentence(parameters, sentence):
    with pytest.raises(ValueError, match=sentence):
        ForwardRegressorCV(**parameters).fit(*data(20))
