"""A Gaussian process for labels on all rows."""

import numpy as np
import pytest
from scipy.special import expit

from sparsebayes.designs import KernelDesign
from sparsebayes.kernels import StationaryKernel
from sparsebayes.posterior import likelihood_slopes
from sparsebayes.solvers import run
from sparsebayes.solvers.rvm import laplace_exact, process
from sparsebayes.solvers.rvm.laplace_exact import AllRows, ExactLaplaceProcess, find_mode
from sparsebayes.solvers.rvm.process import LaplaceProcess, process_functions
from tests.solvers.test_rvm_process import BIG, dense_mode, labels_of

KERNEL = StationaryKernel("matern32", 0.8)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def fitted(X, counts, intercept=True, centres=None):
    design = KernelDesign(X, KERNEL, centres)
    solver = ExactLaplaceProcess(AllRows.from_design(design), intercept)
    result = run(solver, design, counts, max_iter=5)
    assert result.converged
    return design, result.state, solver.solution(result.state, design, counts)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_mode_is_that_of_the_dense_formula(rng, intercept):
    X, counts = labels_of(rng, 60)
    design, state, solution = fitted(X, counts, intercept)
    K, a = design.dense(), np.exp(state.log_variance)
    C = a * K + (BIG if intercept else 0.0)
    y, slope, evidence = dense_mode(C, counts)
    if intercept:
        evidence += 0.5 * np.log(2 * np.pi * BIG)
    mean, variance = solution.fitted
    posterior, Phi = solution.posterior, design.columns(state.active)
    np.testing.assert_allclose(mean, y, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(posterior.at(Phi), mean, atol=1e-8)
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-3)
    omega = expit(y) * expit(-y)
    expected = np.diag(C - C @ np.linalg.solve(C + np.diag(1 / omega), C))
    np.testing.assert_allclose(variance, expected, rtol=1e-3)
    if not intercept:
        np.testing.assert_allclose(posterior.function_variance(Phi), expected, rtol=1e-3)
    new = rng.uniform(-2, 2, (20, 2))
    latent = (a * KERNEL.bind(X)(new) + (BIG if intercept else 0.0)) @ slope
    np.testing.assert_allclose(posterior.at(design.basis(state.active)(new)), latent, atol=1e-3)


def test_as_many_functions_as_rows_are_the_same_process(monkeypatch, rng):
    monkeypatch.setattr(process, "_LEFT", 1e-9)
    X, counts = labels_of(rng, 300)
    design, state, solution = fitted(X, counts)
    functions = process_functions(design, [counts], True, most=300)
    other = LaplaceProcess(functions, True, float(np.exp(state.log_variance)))
    result = run(other, design, counts, max_iter=5)
    posterior = other.solution(result.state, design, counts).posterior
    latent = posterior.at(design.columns(result.state.active))
    np.testing.assert_allclose(latent, solution.fitted[0], atol=1e-4)


def test_the_variance_maximises_evidence_and_prior_of_a_part_of_the_rows(monkeypatch, rng):
    X, counts = labels_of(rng, 300)
    every = fitted(X, counts)[1].log_variance
    monkeypatch.setattr(laplace_exact, "_FIRST_ROWS", 80)
    monkeypatch.setattr(laplace_exact, "_VARIANCE_ROWS", 200)
    design, state, solution = fitted(X, counts)
    assert state.log_variance == pytest.approx(every, abs=1.0)
    # The mode is that of all rows.
    slope, _ = likelihood_slopes(solution.fitted[0], counts)
    weights = solution.posterior.mean / np.exp(state.log_variance)
    np.testing.assert_allclose(weights, slope, atol=1e-4)
    subset = AllRows.from_design(design).subset
    K, part = design.dense()[np.ix_(subset, subset)], counts[subset]
    stds = np.exp(0.5 * (state.log_variance + np.array([-0.5, 0.0, 0.5])))
    values = [find_mode(K, part, s**2).log_evidence - laplace_exact._STD_RATE * s for s in stds]
    assert np.argmax(values) == 1


def test_a_weight_is_a_count_of_equal_rows(rng):
    X, counts = labels_of(rng, 50)
    times = rng.integers(1, 4, 50)
    _, one, weighted = fitted(X, counts * times[:, None])
    rows = np.repeat(np.arange(50), times)
    _, state, repeated = fitted(X[rows], counts[rows], True, np.unique(rows, return_index=True)[1])
    assert state.log_variance == pytest.approx(one.log_variance, abs=1e-6)
    np.testing.assert_allclose(repeated.posterior.mean, weighted.posterior.mean, atol=1e-6)
    for several, single in zip(repeated.fitted, weighted.fitted, strict=True):
        np.testing.assert_allclose(several, single[rows], atol=1e-6)


def test_single_precision_does_not_move_the_mode(rng):
    X, counts = labels_of(rng, 200)
    K = KERNEL.bind(X)(X)
    mode = find_mode(K, counts, 50.0)
    slope, _ = likelihood_slopes(mode.y, counts)
    np.testing.assert_allclose(mode.v, slope, atol=1e-6)


@pytest.mark.parametrize("intercept", [True, False])
def test_blocks_and_single_precision_change_digits_only(monkeypatch, rng, intercept):
    X, counts = labels_of(rng, 400)
    K = KERNEL.bind(X)(X)
    mode = find_mode(K, counts, 5.0, intercept)
    variance = mode.variance(intercept)
    monkeypatch.setattr(laplace_exact, "_FEW_ROWS", 60)  # seven blocks, the last one shorter
    np.testing.assert_allclose(mode.variance(intercept), variance, rtol=1e-4)
    blocks = AllRows.from_design(KernelDesign(X, KERNEL)).K
    np.testing.assert_allclose(blocks, K, atol=1e-12)


def test_a_matrix_that_is_no_covariance_is_refused(rng):
    _, counts = labels_of(rng, 30)
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        find_mode(-10.0 * np.eye(30), counts, 1.0)
