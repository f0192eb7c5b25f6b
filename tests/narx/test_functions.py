"""Candidate functions: values as their names say, slopes as differences say, products as dense."""

import numpy as np
import pytest
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer

from sparsebayes.designs import DenseDesign
from sparsebayes.narx.functions import (
    Gaussians,
    Hinges,
    Hysteresis,
    Monomials,
    Several,
    Transformed,
)
from sparsebayes.solvers import OrthogonalLeastSquares, run

NAMES = ["y(k-1)", "y(k-2)", "u(k)"]


def values(n=40, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (3, n))


def families():
    x = values()
    rng = np.random.default_rng(1)
    parts = [
        Monomials.up_to(NAMES, 3),
        Hinges.at_quantiles(NAMES, x, (0.25, 0.75)),
        Hysteresis.of_signals(NAMES, [[0, 1], [2]], n_outputs=2),
        Hysteresis.of_signals(NAMES, [[0], [1, 2]], n_outputs=1),
        Gaussians(rng.uniform(-1, 1, (5, 3)), np.array([0.5, 1.0, 2.0]), np.arange(5)),
        Transformed.fit(PolynomialFeatures(2), x, NAMES),
        Transformed.fit(SplineTransformer(n_knots=4, degree=3), x, NAMES),
    ]
    return [*parts, Several(parts[:3])]


@pytest.mark.parametrize("functions", families(), ids=lambda f: type(f).__name__)
def test_slopes_are_those_of_finite_differences(functions):
    x = values(seed=2)
    weights = np.random.default_rng(3).standard_normal(len(functions))
    slopes = functions.slopes(x, weights, 2)
    assert slopes.shape == (2, x.shape[1])
    for i in range(2):
        above, below = x.copy(), x.copy()
        above[i] += 1e-6
        below[i] -= 1e-6
        difference = weights @ (functions(above) - functions(below)) / 2e-6
        np.testing.assert_allclose(slopes[i], difference, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("functions", families(), ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("idx", [[1, 2, -1], [-1, 1, 2], [2, -1, 1]])
def test_some_of_the_functions_are_those_rows_and_names(functions, idx):
    x = values(seed=2)
    idx = np.arange(len(functions))[idx]
    weights = np.array([1.0, -2.0, 3.0])
    for chosen in (functions.take(idx), functions.take(idx[[2, 0, 1]]).take([1, 2, 0])):
        assert len(chosen) == 3
        assert chosen.names == [functions.names[j] for j in idx]
        np.testing.assert_allclose(chosen(x), functions(x)[idx], rtol=1e-14)
        whole = np.zeros(len(functions))
        whole[idx] = weights
        slopes = functions.slopes(x, whole, 2)
        np.testing.assert_allclose(chosen.slopes(x, weights, 2), slopes, rtol=1e-12, atol=1e-9)
        if (scalar := chosen.scalar(weights)) is not None:
            assert scalar(x[:, 0].tolist()) == pytest.approx(weights @ functions(x)[idx, 0])


def test_monomials_are_the_products_their_names_say():
    x = values()
    functions = Monomials.up_to(NAMES, 3)
    assert len(functions) == 20
    known = dict(zip(NAMES, x, strict=True)) | {"1": np.ones(x.shape[1])}
    for row, name in zip(functions(x), functions.names, strict=True):
        expected = np.ones(x.shape[1])
        for factor in name.split("*"):
            base, _, power = factor.partition("^")
            expected = expected * known[base] ** int(power or 1)
        np.testing.assert_allclose(row, expected, rtol=1e-14)


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_products_with_all_monomials_equal_those_of_stored_columns(degree):
    functions, x = Monomials.up_to(NAMES, degree), values(200)
    design, dense = functions.design(x), DenseDesign(functions(x).T)
    V = np.random.default_rng(0).standard_normal((200, 2))
    np.testing.assert_allclose(design.dense(), dense.dense(), rtol=1e-14)
    np.testing.assert_allclose(design.project(V), dense.project(V), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(design.project(V[:, 0]), dense.project(V[:, 0]), atol=1e-12)
    idx = np.array([0, 2, design.n_candidates - 1])
    np.testing.assert_allclose(design.columns(idx), dense.columns(idx), rtol=1e-14)
    np.testing.assert_allclose(design.project(V, idx), dense.project(V, idx), atol=1e-12)
    np.testing.assert_allclose(design.sqnorms(), dense.sqnorms(), rtol=1e-12)


def test_a_search_over_monomials_chooses_what_it_chooses_among_stored_columns():
    functions, x = Monomials.up_to(NAMES, 3), values(300)
    rng = np.random.default_rng(0)
    t = functions(x)[[1, 5, 12]].T @ [1.0, -0.5, 0.7] + 0.01 * rng.standard_normal(300)
    solver = OrthogonalLeastSquares(regularization="none", max_terms=6)
    lazy = run(solver, functions.design(x), t, max_iter=100)
    stored = run(solver, DenseDesign(functions(x).T), t, max_iter=100)
    np.testing.assert_array_equal(lazy.state.active, stored.state.active)
    assert set(lazy.state.active[:3]) == {1, 5, 12}


def test_terms_of_hysteresis_are_what_their_names_say():
    x = values(seed=4)
    functions = Hysteresis.of_signals(NAMES, [[0, 1], [2]], n_outputs=2)
    v = x[0] - x[1]
    rows = dict(zip(functions.names, functions(x), strict=True))
    assert len(rows) == 7  # the sign of an increment of the output is no candidate
    np.testing.assert_allclose(rows["|y(k-1)-y(k-2)|"], np.abs(v))
    np.testing.assert_allclose(rows["|y(k-1)-y(k-2)|*u(k)"], np.abs(v) * x[2])
    np.testing.assert_allclose(rows["(y(k-1)-y(k-2))*|y(k-2)|"], v * np.abs(x[1]))
    functions = Hysteresis.of_signals(NAMES, [[0], [1, 2]], n_outputs=1)
    rows = dict(zip(functions.names, functions(x), strict=True))
    np.testing.assert_allclose(rows["sign(y(k-2)-u(k))*y(k-1)"], np.sign(x[1] - x[2]) * x[0])


def test_without_two_lags_of_a_signal_there_is_no_increment():
    assert len(Hysteresis.of_signals(NAMES[:1], [[0], []], n_outputs=1)) == 0
