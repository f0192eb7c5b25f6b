"""A Gaussian process for labels, on functions that labels can tell of."""

import numpy as np
import pytest
from scipy.special import expit

from sparsebayes.designs import KernelDesign
from sparsebayes.kernels import StationaryKernel
from sparsebayes.solvers import run
from sparsebayes.solvers.rvm import process
from sparsebayes.solvers.rvm.process import LaplaceProcess, best_variance, process_functions


@pytest.fixture
def rng():
    return np.random.default_rng(0)


BIG = 1e4  # variance that stands in for a flat prior of the constant


def labels_of(rng, n=80, d=2):
    X = rng.uniform(-2, 2, (n, d))
    positive = rng.uniform(size=n) < expit(3 * np.sin(2 * X[:, 0]) + X[:, 1])
    return X, np.column_stack([positive, np.ones(n)]).astype(float)


def fitted(X, counts, kernel=StationaryKernel("matern32", 0.8), intercept=True):  # noqa: B008
    design = KernelDesign(X, kernel)
    solver = LaplaceProcess(process_functions(design, [counts], intercept), intercept)
    result = run(solver, design, counts, max_iter=5)
    assert result.converged
    return design, result.state, solver.solution(result.state, design, counts).posterior


def dense_mode(C, counts):
    """Mode of y under N(0, C), its log evidence and K^-1 y, by n x n Newton steps."""
    y = np.zeros(len(C))
    for _ in range(100):
        omega = counts[:, 1] * expit(y) * expit(-y)
        working = omega * y + counts[:, 0] - counts[:, 1] * expit(y)
        y = C @ np.linalg.solve(np.eye(len(C)) + omega[:, None] * C, working)
    omega = counts[:, 1] * expit(y) * expit(-y)
    slope = counts[:, 0] - counts[:, 1] * expit(y)
    value = counts[:, 0] @ y - counts[:, 1] @ np.logaddexp(0, y) - 0.5 * slope @ y
    evidence = value - 0.5 * np.linalg.slogdet(np.eye(len(C)) + omega[:, None] * C)[1]
    return y, slope, evidence


@pytest.mark.parametrize("intercept", [True, False])
def test_with_all_functions_it_is_the_process_by_the_dense_formula(monkeypatch, rng, intercept):
    monkeypatch.setattr(process, "_LEFT", 1e-9)
    X, counts = labels_of(rng, 60)
    design, state, posterior = fitted(X, counts, intercept=intercept)
    assert len(state.active) == 60
    K, a = design.dense(), np.exp(state.log_variance)
    C = a * K + (BIG if intercept else 0.0)
    y, slope, evidence = dense_mode(C, counts)
    if intercept:
        evidence += 0.5 * np.log(2 * np.pi * BIG)
    Phi = design.columns(state.active)
    np.testing.assert_allclose(posterior.at(Phi), y, rtol=1e-4, atol=1e-4)
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-3)
    omega = expit(y) * expit(-y)
    variance = np.diag(C - C @ np.linalg.solve(C + np.diag(1 / omega), C))
    np.testing.assert_allclose(posterior.function_variance(Phi), variance, rtol=1e-3)
    new = rng.uniform(-2, 2, (20, 2))
    latent = (a * design.kernel.bind(X)(new) + (BIG if intercept else 0.0)) @ slope
    Phi = design.basis(state.active)(new)
    np.testing.assert_allclose(posterior.at(Phi), latent, rtol=1e-3, atol=1e-3)


def test_few_functions_predict_as_all_do(monkeypatch, rng):
    X, counts = labels_of(rng, 400)
    kernel = StationaryKernel("matern52", 0.5)
    design, few, posterior = fitted(X, counts, kernel)
    monkeypatch.setattr(process, "_LEFT", 1e-9)
    monkeypatch.setattr(process, "_MOST", (400, 400))
    _, every, whole = fitted(X, counts, kernel)
    assert 2 * len(few.active) < len(every.active)
    p, q = (
        expit(model.at(design.columns(state.active)))
        for state, model in ((few, posterior), (every, whole))
    )
    divergence = q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p))
    assert np.mean(divergence) < 1e-3  # nats for a row
    assert few.log_variance == pytest.approx(every.log_variance, abs=0.5)


def test_functions_stand_where_labels_are_not_sure(rng):
    X = np.sort(rng.uniform(-5, 5, (500, 1)), axis=0)
    counts = np.column_stack([rng.uniform(size=500) < expit(8 * X[:, 0]), np.ones(500)])
    design = KernelDesign(X, StationaryKernel("matern12", 1.0))
    found = process_functions(design, [counts.astype(float)], True)
    assert np.mean(np.abs(X[found.active[:20], 0])) < 0.7 * np.mean(np.abs(X))


def test_the_variance_maximises_the_evidence(rng):
    X, counts = labels_of(rng)
    design, state, posterior = fitted(X, counts)
    solver = LaplaceProcess(process_functions(design, [counts], True))
    for shift in (-0.5, 0.5):
        state.log_variance += shift
        assert (
            solver.solution(state, design, counts).posterior.log_evidence < posterior.log_evidence
        )
        state.log_variance -= shift


def test_a_weight_is_a_count_of_equal_rows(rng):
    X, counts = labels_of(rng, 50)
    times = rng.integers(1, 4, 50)
    _, one, weighted = fitted(X, counts * times[:, None])
    rows = np.repeat(np.arange(50), times)
    design = KernelDesign(
        X[rows], StationaryKernel("matern32", 0.8), np.unique(rows, return_index=True)[1]
    )
    solver = LaplaceProcess(process_functions(design, [counts[rows]], True))
    state = run(solver, design, counts[rows], max_iter=5).state
    repeated = solver.solution(state, design, counts[rows]).posterior
    np.testing.assert_array_equal(state.active, one.active)
    np.testing.assert_allclose(repeated.mean, weighted.mean, rtol=1e-5, atol=1e-8)


def test_labels_without_a_pattern_have_hardly_a_function(rng):
    X = rng.standard_normal((200, 3))
    counts = np.column_stack([rng.uniform(size=200) < 0.5, np.ones(200)]).astype(float)
    _, state, posterior = fitted(X, counts, StationaryKernel("rbf", 0.01))
    Phi = StationaryKernel("rbf", 0.01).bind(X[state.active])(X)
    assert np.std(posterior.at(Phi)) < 0.5


def test_the_best_variance_of_no_columns_is_a_number():
    log_variance, evidence = best_variance(
        np.empty((4, 0)), np.array([[1.0, 1.0], [0, 1], [1, 1], [0, 1]]), True, (-3.0, 9.0)
    )
    assert np.isfinite(log_variance)
    assert np.isfinite(evidence)
