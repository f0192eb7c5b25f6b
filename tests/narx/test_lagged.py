"""Lagged candidates and free-run simulation, end to end."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

from sparsebayes.estimators.lrols import OrthogonalLeastSquaresRegressor
from sparsebayes.narx import lagged, prediction_errors, simulate

TRUE = {
    "y(k-1)": 0.5,
    "y(k-2)": -0.3,
    "u(k-1)": 0.8,
    "u(k-2)^2": 0.4,
    "y(k-1)*u(k-1)": -0.2,
}


def system(seed, n=1000, snr=20.0):
    """A polynomial NARX system with noise `snr` decibels below its noise-free output."""
    rng = np.random.default_rng(seed)
    u, e = rng.uniform(-1, 1, n + 50), rng.standard_normal(n + 50)

    def respond(noise):
        y = np.zeros(n + 50)
        for k in range(2, n + 50):
            y[k] = 0.5 * y[k - 1] - 0.3 * y[k - 2] + 0.8 * u[k - 1]
            y[k] += 0.4 * u[k - 2] ** 2 - 0.2 * y[k - 1] * u[k - 1] + noise[k]
        return y

    clean = respond(np.zeros(n + 50))
    return u[50:], respond(10 ** (-snr / 20) * np.std(clean) * e)[50:], clean[50:]


def test_candidates_are_the_products_their_names_say():
    rng = np.random.default_rng(0)
    u, y = rng.standard_normal((12, 2)), rng.standard_normal(12)
    X, target, terms = lagged(u, y, lags=([0, 2], [1, 3]), degree=3)
    names = {"y(k-1)": y[2:-1], "y(k-3)": y[:-3]}
    for i in (0, 1):
        names |= {f"u{i + 1}(k)": u[3:, i], f"u{i + 1}(k-2)": u[1:-2, i]}
    np.testing.assert_array_equal(target, y[3:])
    assert X.shape == (9, 83)  # monomials of six variables up to degree three
    assert len(set(terms.names)) == 83
    for column, name in zip(X.T, terms.names, strict=True):
        expected = np.ones(9)
        for factor in name.split("*"):
            base, _, power = factor.partition("^")
            expected *= names[base] ** int(power or 1)
        np.testing.assert_allclose(column, expected)


def test_one_number_of_lags_is_for_both_and_starts_at_one():
    terms = lagged(np.zeros(9), np.zeros(9), lags=2, degree=1).terms
    assert terms.names == ["y(k-1)", "y(k-2)", "u(k-1)", "u(k-2)"]
    alone = lagged(None, np.zeros(9), lags=2, degree=1).terms
    assert alone.names == ["y(k-1)", "y(k-2)"]
    without_output = lagged(np.zeros(9), np.zeros(9), lags=([0, 1], []), degree=1).terms
    assert without_output.names == ["u(k)", "u(k-1)"]
    assert without_output.max_lag == 1


def test_constant_can_be_a_candidate_like_the_others():
    u, y, _ = system(0, n=300)
    X, target, terms = lagged(u, y + 3.0, lags=2, degree=2, constant=True)
    assert terms.names[0] == "1"
    np.testing.assert_array_equal(X[:, 0], 1.0)
    np.testing.assert_array_equal(X[:, 1:], lagged(u, y + 3.0, lags=2, degree=2).candidates)
    model = LinearRegression(fit_intercept=False).fit(X, target)
    other = LinearRegression().fit(X[:, 1:], target)
    np.testing.assert_allclose(model.coef_[0], other.intercept_, rtol=1e-8)
    free = simulate(model, terms, u, y[:2] + 3.0)
    np.testing.assert_allclose(free[2], model.predict(X[:1])[0])


def test_frame_gives_a_model_the_names_of_its_terms():
    u, y, _ = system(0)
    X, target, terms = lagged(u, y, lags=2, as_frame=True)
    model = OrthogonalLeastSquaresRegressor(kernel=None).fit(X, target)
    assert set(model.err_table_.term) == set(TRUE)
    errors = prediction_errors(model, terms, u, y)
    bare = OrthogonalLeastSquaresRegressor(kernel=None).fit(X.to_numpy(), target)
    assert errors == prediction_errors(bare, terms, u, y)


@pytest.mark.parametrize("stopping", ["bic", "press"])
def test_true_terms_and_coefficients_are_recovered_in_20_of_20_seeds(stopping):
    for seed in range(20):
        u, y, clean = system(seed)
        X, target, terms = lagged(u, y, lags=3, degree=3)
        model = OrthogonalLeastSquaresRegressor(kernel=None, stopping=stopping)
        model.fit(X, target)
        found = {terms.names[j]: model.coef_[j] for j in model.active_}
        assert set(found) == set(TRUE), f"seed {seed}: {sorted(found)}"
        std = np.sqrt(np.diag(model.posterior_.covariance)) * model.basis_.functions.scale
        off = [found[terms.names[j]] - TRUE[terms.names[j]] for j in model.active_]
        assert np.all(np.abs(off) < 0.03)
        assert np.all(np.abs(off) < 4.5 * std)
        errors = prediction_errors(model, terms, u, clean)
        assert errors.free_run < 0.03 * np.std(clean)


def test_free_run_of_the_true_model_reproduces_the_system():
    u, y, _ = system(3, n=200, snr=300.0)
    X, target, terms = lagged(u, y, lags=2, degree=2)
    model = LinearRegression().fit(X, target)
    assert prediction_errors(model, terms, u, y).free_run < 1e-8
    free = simulate(model, terms, u, y[:2])
    np.testing.assert_array_equal(free[:2], y[:2])
    assert len(free) == 200


def test_the_fast_routes_equal_predict_row_by_row():
    u, y, _ = system(1, n=150)
    X, target, terms = lagged(u, y, lags=2, degree=2)
    for model in (
        OrthogonalLeastSquaresRegressor(kernel=None),
        OrthogonalLeastSquaresRegressor("rbf", gamma=0.1),
        OrthogonalLeastSquaresRegressor("linear"),
        LinearRegression(),
        DecisionTreeRegressor(max_depth=3),
    ):
        model.fit(X, target)
        free = simulate(model, terms, u, y[:2])
        expected = y.copy()
        for k in range(2, len(y)):
            row = terms.candidates(u[k - 2 : k + 1], expected[k - 2 : k + 1])
            expected[k] = np.ravel(model.predict(row))[0]
        np.testing.assert_allclose(free, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [LinearRegression, DecisionTreeRegressor])
def test_a_run_that_diverges_is_infinite_and_says_so(kind):
    y = 2.0 ** np.arange(12)
    X, target, terms = lagged(None, y, lags=1, degree=3)
    model = kind().fit(X, target)
    if kind is DecisionTreeRegressor:
        model.predict = lambda row: 1e200 * row[:, 0]
    else:
        model.coef_ = np.array([0.0, 0.0, 1.0])
    with pytest.warns(RuntimeWarning, match="diverged at time step"):
        free = simulate(model, terms, None, [3.0], n_steps=20)
    assert np.isinf(free[-1])
    assert not np.any(np.isnan(free))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"degree": 0}, "degree must be an integer of at least 1, got 0"),
        ({"lags": (1, 2, 3)}, "lags must be an integer or a pair"),
        ({"lags": ([-1], 2)}, "Every lag must be an integer of at least 0"),
        ({"lags": (1.5, 2)}, "Every lag must be an integer of at least 0"),
        ({"lags": ([1], [0, 1])}, "Output lags must be at least 1"),
        ({"lags": 20}, "y has 9 values, but the largest lag is 20"),
        ({"u": np.zeros(8)}, "u has 8 rows, but y has 9 values"),
        ({"u": None, "lags": (1, [])}, "no candidate terms"),
    ],
)
def test_bad_series_and_lags_are_refused_in_a_sentence(change, sentence):
    arguments = {"u": np.zeros(9), "y": np.zeros(9), "lags": 2, "degree": 2} | change
    with pytest.raises(ValueError, match=sentence):
        lagged(**arguments)


def test_bad_simulations_are_refused_in_a_sentence():
    u, y, _ = system(0, n=50)
    X, target, terms = lagged(u, y, lags=2, degree=1)
    model = LinearRegression().fit(X, target)
    with pytest.raises(ValueError, match="y_start has 1 values, but the model needs 2"):
        simulate(model, terms, u, y[:1])
    with pytest.raises(ValueError, match="needs n_steps"):
        simulate(model, terms, None, y[:2])
    with pytest.raises(ValueError, match="u has 2 columns, but the model was fitted to 1"):
        simulate(model, terms, np.zeros((50, 2)), y[:2])
