"""OrthogonalLeastSquaresRegressor: the scikit-learn contract, units, tables and sentences."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparsebayes.data import Data
from sparsebayes.datasets import make_chen_example, make_sparse_signal
from sparsebayes.displays import ErrorReductionDisplay
from sparsebayes.estimators import lrols
from sparsebayes.estimators.lrols import OrthogonalLeastSquaresRegressor
from sparsebayes.solvers.ols.criteria import information

OLS = OrthogonalLeastSquaresRegressor


@parametrize_with_checks(
    [
        OLS(),
        OLS(kernel=None, regularization="none", fit_intercept=False),
        OLS(kernel=None, criterion="press"),
        OLS("linear", regularization="uniform", stopping="press"),
        OLS(kernel=None, regularization=0.1, criterion="d-optimality", beta=0.01, max_terms=2),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def sparse_data(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 10)) + 2.0
    return X, 5.0 + 3.0 * X[:, 4] - 2.0 * X[:, 7] + 0.3 * rng.standard_normal(n)


def test_least_squares_on_all_columns_is_linear_regression():
    X, y = sparse_data()
    model = OLS(kernel=None, regularization="none", stopping=None).fit(X, y)
    reference = LinearRegression().fit(X, y)
    np.testing.assert_allclose(model.coef_, reference.coef_, rtol=1e-8)
    np.testing.assert_allclose(model.intercept_, reference.intercept_, rtol=1e-8)
    residual = y - reference.predict(X)
    np.testing.assert_allclose(model.noise_variance_, residual @ residual / (80 - 11))
    # The textbook prediction interval.
    Z = np.column_stack([np.ones(80), X])
    new = np.column_stack([np.ones(5), X[:5] + 1.0])
    spread = np.einsum("ij,jk,ik->i", new, np.linalg.inv(Z.T @ Z), new)
    expected = np.sqrt(model.noise_variance_ * (1.0 + spread))
    std = model.predict(X[:5] + 1.0, return_std=True)[1] / model.calibration_
    np.testing.assert_allclose(std, expected)


@pytest.mark.parametrize("kernel", ["rbf", None])
@pytest.mark.parametrize("regularization", ["local", "uniform", "none", 0.1])
def test_attributes_agree_with_each_other(kernel, regularization):
    X, y = sparse_data()
    model = OLS(kernel, gamma=0.05, regularization=regularization).fit(X, y)
    k = len(model.active_)
    assert 2 <= k < 40
    Phi = X[:, model.active_] if kernel is None else rbf_kernel(X, X[model.active_], 0.05)
    weights = model.coef_[model.active_] if kernel is None else model.coef_
    np.testing.assert_allclose(model.predict(X), Phi @ weights + model.intercept_, rtol=1e-9)
    table = model.err_table_
    np.testing.assert_allclose(table.weight, weights, rtol=1e-9)
    np.testing.assert_allclose(table.regularizer / model.noise_variance_, model.weight_precision_)
    # W and A of the centred columns, in the order of choice.
    Q, R = np.linalg.qr(Phi - Phi.mean(axis=0))
    s, A = np.diag(R) ** 2, R / np.diag(R)[:, None]
    g = np.diag(R) * (Q.T @ (y - y.mean())) / (s + table.regularizer)
    np.testing.assert_allclose(table.orthogonal_weight, g, rtol=1e-7)
    np.testing.assert_allclose(A @ weights, g, rtol=1e-6)
    total = np.sum((y - y.mean()) ** 2)
    np.testing.assert_allclose(table.err, (s + table.regularizer) * g**2 / total, rtol=1e-7)
    np.testing.assert_allclose(table.cumulative, np.cumsum(table.err))
    assert model.effective_terms_ == k
    assert model.converged_
    assert model.stop_reason_ == "criterion"
    assert model.n_iter_ == len(model.history_["accuracy"])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"regularization": "none"},
        {"regularization": "none", "criterion": "press", "fit_intercept": False},
        {"regularization": "local", "noise_variance": 0.1},
    ],
    ids=str,
)
def test_units_of_columns_and_target_change_nothing_but_units(settings):
    X, y = sparse_data()
    scale, size = np.logspace(-5, 5, 10), 1e4
    a = OLS(kernel=None, **settings).fit(X, y)
    if "noise_variance" in settings:
        settings = settings | {"noise_variance": settings["noise_variance"] * size**2}
    b = OLS(kernel=None, **settings).fit(X * scale, size * y)
    np.testing.assert_array_equal(a.active_, b.active_)
    np.testing.assert_allclose(b.coef_ * scale, size * a.coef_, rtol=1e-8)
    np.testing.assert_allclose(b.noise_variance_, size**2 * a.noise_variance_, rtol=1e-9)
    k = len(a.active_)
    n = 80 - a.fit_intercept
    if a.regularization == "none":
        # Weights have units: a flat prior of density one per unit moves with them.
        moved = -(n - k) * np.log(size) + np.sum(np.log(1.0 / scale[a.active_]))
    else:
        moved = -n * np.log(size)
    np.testing.assert_allclose(b.log_evidence_ - a.log_evidence_, moved, rtol=1e-9)
    assert b.posterior_.log_evidence == b.log_evidence_


@pytest.mark.parametrize("size", [1e-3, 1.0, 100.0])
def test_leave_one_out_of_the_history_is_that_of_n_refits_in_the_users_units(size):
    X, y = sparse_data(30)
    y = size * y
    model = OLS(kernel=None, regularization="none", stopping="press").fit(X, y)
    columns = model.history_["candidate"]
    assert len(columns) > len(model.active_) > 0
    np.testing.assert_array_equal(columns[: len(model.active_)], model.active_)
    for k, value in zip(model.history_["n_active"], model.history_["stopping"], strict=True):
        Z = X[:, columns[:k]]
        errors = []
        for i in range(len(y)):
            rest = np.arange(len(y)) != i
            refit = LinearRegression().fit(Z[rest], y[rest])
            errors.append(y[i] - refit.predict(Z[[i]])[0])
        np.testing.assert_allclose(value, np.mean(np.square(errors)), rtol=1e-8)


@pytest.mark.parametrize("stopping", ["aic", "aicc", "bic", "fpe", "lilc"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_information_criteria_of_the_history_are_those_of_the_users_residuals(
    stopping, fit_intercept
):
    X, y = sparse_data(30)
    y = 100.0 * y
    model = OLS(
        kernel=None, regularization="none", stopping=stopping, fit_intercept=fit_intercept
    ).fit(X, y)
    columns = model.history_["candidate"]
    for k, value in zip(model.history_["n_active"], model.history_["stopping"], strict=True):
        Z = X[:, columns[:k]]
        refit = LinearRegression(fit_intercept=fit_intercept).fit(Z, y)
        sse = np.sum(np.square(y - refit.predict(Z)))
        expected = information(stopping, len(y), k + fit_intercept, sse)
        np.testing.assert_allclose(value, expected, rtol=1e-10)


@pytest.mark.parametrize("regularization", ["local", "none", 0.1])
@pytest.mark.parametrize("stopping", ["press", "bic"])
@pytest.mark.parametrize("size", [1e-3, 100.0])
def test_history_moves_with_the_units_of_the_target(regularization, stopping, size):
    X, y = sparse_data()
    settings = {"regularization": regularization, "stopping": stopping}
    a = OLS(kernel=None, **settings).fit(X, y)
    b = OLS(kernel=None, **settings).fit(X, size * y + 7.0)
    n, before, after = len(y), a.history_, b.history_
    if stopping == "press":
        np.testing.assert_allclose(after["stopping"], size**2 * before["stopping"], rtol=1e-8)
    else:
        moved = after["stopping"] - before["stopping"]
        np.testing.assert_allclose(moved[~np.isnan(moved)], 2 * n * np.log(size), rtol=1e-8)
    np.testing.assert_allclose(after["accuracy"], before["accuracy"], rtol=1e-7)
    np.testing.assert_allclose(after["noise_variance"], size**2 * before["noise_variance"])
    flat = before["n_active"] if regularization == "none" else 0
    moved = after["log_evidence"] - before["log_evidence"]
    np.testing.assert_allclose(moved, -(n - 1 - flat) * np.log(size), rtol=1e-8)
    np.testing.assert_allclose(after["log_evidence"][-1], b.log_evidence_, rtol=1e-10)


@pytest.mark.parametrize("size", [1e-300, 1e-150, 1e150, 1e300])
@pytest.mark.parametrize("regularization", ["local", "uniform", "none"])
def test_extreme_units_of_the_columns_neither_warn_nor_spoil_the_fit(size, regularization):
    # Warnings from this package are errors here.
    X, y = sparse_data()
    model = OLS(kernel=None, regularization=regularization).fit(X * size, y)
    plain = OLS(kernel=None, regularization=regularization).fit(X, y)
    np.testing.assert_array_equal(model.active_, plain.active_)
    np.testing.assert_allclose(model.predict(X * size), plain.predict(X), rtol=1e-7)


def test_plain_columns_are_read_where_they_are():
    X, y = sparse_data()
    before = X.copy()
    problem = OLS(kernel=None)._problem(Data(X, y))
    assert np.shares_memory(problem.design.base.matrix, X)
    OLS(kernel=None).fit(X, y)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("settings", [{"regularization": 3.0}, {"criterion": "d-optimality"}])
def test_penalties_are_in_the_units_of_the_user(settings):
    # The library scales columns and target by powers of two; the user must not see that.
    X, y = sparse_data()
    columns, target = 2.0**9, 2.0**-7
    a = OLS(kernel=None, max_terms=6, **settings).fit(X, y)
    other = dict(settings)
    if "regularization" in settings:
        other["regularization"] = settings["regularization"] * columns**2
    else:
        # log(w'w) moves by a constant for all candidates, so the order stays.
        other["beta"] = 0.1 * target**2
    b = OLS(kernel=None, max_terms=6, **other).fit(X * columns, y * target)
    np.testing.assert_array_equal(a.active_, b.active_)
    np.testing.assert_allclose(a.coef_, b.coef_ * columns / target, rtol=1e-9)
    if "regularization" in settings:
        Phi = X[:, a.active_] - X[:, a.active_].mean(axis=0)
        _, R = np.linalg.qr(Phi)
        A = R / np.diag(R)[:, None]
        theta = np.linalg.solve(Phi.T @ Phi + 3.0 * A.T @ A, Phi.T @ (y - y.mean()))
        np.testing.assert_allclose(a.coef_[a.active_], theta, rtol=1e-9)


def test_sparse_signal_is_found_among_many_columns():
    for seed in range(5):
        X, y, coef = make_sparse_signal(200, 300, n_active=5, noise=0.03, random_state=seed)
        model = OLS(kernel=None).fit(X, y)
        assert set(np.flatnonzero(coef)) == set(model.active_)


def test_chance_does_not_pass_the_default_threshold():
    # 200 useless columns: the best of them passes three sigma in most draws.
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(20):
        X = rng.standard_normal((300, 200))
        y = X[:, 0] - X[:, 1] + rng.standard_normal(300)
        wrong += set(OLS(kernel=None).fit(X, y).active_) != {0, 1}
    assert wrong <= 1


def test_noise_alone_leaves_an_empty_model():
    rng = np.random.default_rng(0)
    model = OLS(kernel=None).fit(rng.standard_normal((100, 3)), rng.standard_normal(100) + 7.0)
    assert len(model.active_) == 0
    assert len(model.err_table_) == 0
    np.testing.assert_allclose(model.predict(np.zeros((2, 3))), 7.0, atol=0.5)


def test_predictive_intervals_cover_new_observations():
    inside = []
    for seed in range(20):
        X, y = make_chen_example(200, random_state=seed)
        mean, std = OLS(gamma=12.5).fit(X[:100], y[:100]).predict(X[100:], return_std=True)
        inside.append(np.mean(np.abs(y[100:] - mean) < 1.96 * std))
    assert 0.92 < np.mean(inside) < 0.98


def test_table_names_terms_and_prints():
    X, y = sparse_data()
    names = [f"length {j}" for j in range(10)]
    model = OLS(kernel=None).fit(pd.DataFrame(X, columns=names), y)
    assert list(model.err_table_.term) == ["length 4", "length 7"]
    assert list(OLS(kernel=None).fit(X, y).err_table_.term) == ["x4", "x7"]
    head, *rows = repr(model.err_table_).splitlines()
    assert head.split()[:4] == ["stage", "term", "err", "cumulative"]
    assert len(rows) == len(model.err_table_) == 2
    frame = model.err_table_.to_frame()
    assert list(frame.index) == [1, 2]
    np.testing.assert_array_equal(frame["weight"], model.err_table_["weight"])


def test_terms_of_kernels_are_named_after_their_rows():
    X, y = make_chen_example(random_state=0)
    model = OLS(gamma=12.5).fit(X, y)
    assert list(model.err_table_.term) == [f"rbf(row {row})" for row in model.active_]
    K = rbf_kernel(X, gamma=12.5)
    precomputed = OLS("precomputed").fit(K, y)
    assert list(precomputed.err_table_.term) == [f"kernel(row {row})" for row in model.active_]

    def bump(x, z):
        return np.exp(-12.5 * np.sum((x - z) ** 2))

    own = OLS(bump).fit(X, y)
    assert list(own.err_table_.term) == [f"bump(row {row})" for row in model.active_]


def test_display_shows_the_table():
    X, y = sparse_data()
    model = OLS(kernel=None).fit(X, y)
    display = ErrorReductionDisplay.from_estimator(model)
    np.testing.assert_allclose([bar.get_width() for bar in display.bars_], model.err_table_.err)
    left = display.left_line_.get_xdata()
    np.testing.assert_allclose(left, 1.0 - model.err_table_.cumulative)
    with pytest.raises(ValueError, match="has no err_table_"):
        ErrorReductionDisplay.from_estimator(LinearRegression())


def test_pickle_and_clone():
    X, y = sparse_data()
    model = OLS(kernel=None, regularization=0.5, stopping="aicc").fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(clone(model).fit(X, y).active_, model.active_)


@pytest.mark.parametrize("gamma", [5.0, "evidence"])
def test_a_target_without_noise_ends_after_300_functions_with_a_sentence(gamma, monkeypatch):
    monkeypatch.setattr(lrols, "_MOST_TERMS", 20)
    X = np.random.default_rng(0).standard_normal((150, 4))
    y = np.exp(X[:, 0]) * np.cos(3 * X[:, 1])
    with pytest.warns(UserWarning, match="selection stopped at 20 terms") as caught:
        model = OLS(gamma=gamma).fit(X, y)
    assert model.stop_reason_ == "max_terms"
    assert len(model.active_) <= 20
    (message,) = [m for w in caught if "selection stopped at 20 terms" in (m := str(w.message))]
    assert ("'ard'" in message) == (gamma == 5.0)
    assert len(OLS(gamma=5.0, max_terms=None).fit(X, y).active_) > 20


@pytest.mark.parametrize("max_iter", [2, 5])
def test_a_fit_cut_short_says_so_and_predicts(max_iter):
    X, y = make_chen_example(random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = OLS(gamma=12.5, max_iter=max_iter, stopping=None).fit(X, y)
    assert not model.converged_
    assert model.stop_reason_ == "max_iter"
    assert len(model.active_) == max_iter
    assert np.all(np.isfinite(model.predict(X, return_std=True)[1]))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"regularization": "ridge"}, "The 'regularization' parameter of .* must be"),
        ({"regularization": -1.0}, "The 'regularization' parameter of .* must be"),
        ({"regularization": np.nan}, "The 'regularization' parameter of .* must be"),
        ({"criterion": "gcv"}, "The 'criterion' parameter of .* must be"),
        ({"stopping": "mdl"}, "The 'stopping' parameter of .* must be"),
        ({"beta": -0.1}, "The 'beta' parameter of .* must be"),
        ({"tolerance": 1.0}, "The 'tolerance' parameter of .* must be"),
        ({"guard": "small"}, "The 'guard' parameter of .* must be"),
        ({"threshold": 0.5}, "The 'threshold' parameter of .* must be"),
        ({"max_terms": 0}, "The 'max_terms' parameter of .* must be"),
        ({"max_terms": 2.5}, "The 'max_terms' parameter of .* must be"),
        ({"noise_variance": 0.0}, "The 'noise_variance' parameter of .* must be"),
        ({"max_iter": 0}, "The 'max_iter' parameter of .* must be"),
    ],
)
def test_bad_parameters_are_refused_in_a_sentence(settings, sentence):
    X, y = sparse_data()
    with pytest.raises(ValueError, match=sentence):
        OLS(**settings).fit(X, y)
