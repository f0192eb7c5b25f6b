"""Relevance of inputs: total Sobol indices of fitted functions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import make_friedman1

import sparsebayes as sb
from sparsebayes.relevance import function_relevance, linear_relevance

# Total Sobol indices of Friedman's first function, from its analysis of variance.
FRIEDMAN = np.array([0.27, 0.27, 0.093, 0.35, 0.087, 0.0, 0.0, 0.0])


def test_an_interaction_counts_for_both_inputs():
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (4000, 3))
    found = function_relevance(lambda X: X[:, 0] * X[:, 1], X)
    np.testing.assert_allclose(found, [1.0, 1.0, 0.0], atol=0.05)
    sobol = function_relevance(lambda X: np.sin(X[:, 0]) + 3.0 * X[:, 1] ** 2, X)
    parts = np.array([np.var(np.sin(X[:, 0])), 9.0 * np.var(X[:, 1] ** 2)])
    np.testing.assert_allclose(sobol[:2], parts / parts.sum(), atol=0.03)


def test_few_rows_are_enough_for_inputs_that_do_not_matter():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 4))
    X[:, 3] = rng.uniform(size=500) < 0.02  # most rows keep their value of it
    seen = []

    def function(X):
        seen.append(len(X))
        return X[:, 0] + 0.01 * X[:, 1] + 3.0 * X[:, 3]

    found = function_relevance(function, X)
    np.testing.assert_allclose(found, [0.85, 0.0, 0.0, 0.15], atol=0.05)
    assert sum(seen) < 2.5 * len(X)
    changed = np.square(3.0 * (X[:, 3][:, None] - X[:, 3])).mean() / 2.0
    assert found[3] == pytest.approx(changed / np.var(X @ [1.0, 0.01, 0.0, 3.0]), rel=0.1)


def test_a_linear_function_has_its_closed_form():
    rng = np.random.default_rng(0)
    X, coef = rng.standard_normal((5000, 4)), np.array([[4.0, 2.0, 1.0, 0.0]])
    np.testing.assert_allclose(linear_relevance(coef, X), coef[0] ** 2 / 21.0, atol=0.02)
    np.testing.assert_allclose(
        linear_relevance(coef, X), function_relevance(lambda X: X @ coef[0], X), atol=0.02
    )
    assert np.all(linear_relevance(np.zeros((1, 4)), X) == 0.0)


def test_outputs_of_one_unit_are_pooled():
    X = np.random.default_rng(0).standard_normal((2000, 2))
    coef = np.array([[10.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(linear_relevance(coef, X), 0.5, atol=0.02)
    np.testing.assert_allclose(linear_relevance(coef, X, pooled=True), [0.99, 0.01], atol=0.01)


@pytest.mark.parametrize(
    "model",
    [
        sb.RVMRegressor(),
        sb.ForwardRegressor(),
        sb.SparseGPRegressor(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_relevance_of_a_kernel_model_is_that_of_the_function(model):
    X, y = make_friedman1(400, n_features=8, noise=0.5, random_state=0)
    model.fit(X, y)
    np.testing.assert_allclose(model.feature_relevance_, FRIEDMAN, atol=0.05)


@pytest.mark.parametrize("sparse", [False, True])
def test_linear_effects_count_and_columns_have_relevance(sparse):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 6))
    y = 4.0 * X[:, 0] + 2.0 * X[:, 1] + X[:, 2] + 0.3 * rng.standard_normal(300)
    for model in (sb.BackfittingRegressor(), sb.ForwardRegressor(None)):
        model.fit(csr_array(X) if sparse else X, y)
        expected = np.array([16.0, 4.0, 1.0, 0.0, 0.0, 0.0]) / 21.0
        np.testing.assert_allclose(model.feature_relevance_, expected, atol=0.06)
    if not sparse:
        kernel = sb.RVMRegressor().fit(X, y)
        np.testing.assert_allclose(kernel.feature_relevance_, expected, atol=0.06)
        labels = sb.RVMClassifier(None).fit(X, y > 0)
        np.testing.assert_allclose(labels.feature_relevance_, expected, atol=0.1)
