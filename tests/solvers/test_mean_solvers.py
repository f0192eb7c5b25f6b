"""Overlapping columns in a few dimensions: the same model, a better start, fewer sweeps."""

import numpy as np
import pytest
from sklearn.datasets import make_friedman1

from sparsebayes.designs import CentredDesign, KernelDesign
from sparsebayes.kernels import StationaryKernel
from sparsebayes.solvers import run
from sparsebayes.solvers.backfitting.low_rank import preconditioner, start
from sparsebayes.solvers.backfitting.mean_solvers import conjugate_gradients
from sparsebayes.solvers.backfitting.regression import Backfitting
from sparsebayes.solvers.backfitting.ridge import best_ridge


def _kernel(seed=0, n=240, gamma=0.3):
    X, y = make_friedman1(n, noise=1.0, random_state=seed)
    design = CentredDesign(KernelDesign(X, StationaryKernel("rbf", gamma)))
    return design, design.target((y - y.mean()) / y.std())


@pytest.mark.parametrize("noise", [None, 0.1])
def test_the_start_is_a_hundredth_of_the_best_shared_precision(noise):
    design, t = _kernel()
    lam, sigma2, R = start(design, t, 240, noise, 0.0)
    alpha, expected, _ = best_ridge(design, t, np.arange(240), noise)
    # One grid step of the sketch is a factor 1.8.
    assert 0.5 < lam / sigma2 / (0.01 * alpha) < 2.0
    assert sigma2 == pytest.approx(expected, rel=0.1)
    np.testing.assert_allclose(R.T @ R, design.gram(np.arange(240)), atol=1e-3 * np.trace(R.T @ R))


def test_preconditioned_solves_reach_the_exact_mean_in_far_fewer_sweeps():
    design, t = _kernel()
    lam, _, R = start(design, t, 150, None, 0.0)
    everything, norms = np.arange(240), design.sqnorms()
    lam = lam * np.random.default_rng(0).uniform(0.5, 2.0, 240)
    exact = np.linalg.solve(design.gram(everything) + np.diag(lam), design.project(t))
    fit = design.apply(exact)
    problem = (design, t, lam, norms, np.zeros(240), 2000, 1e-18)
    plain = conjugate_gradients(*problem)
    better = conjugate_gradients(*problem, preconditioner(R, lam, norms))
    assert better.finished
    np.testing.assert_allclose(design.apply(better.mu), fit, atol=1e-8)
    assert better.sweeps < 0.2 * plain.sweeps


def test_a_preconditioner_of_hardly_any_prior_is_a_positive_matrix():
    rng = np.random.default_rng(0)
    R = rng.standard_normal((9, 3)) @ rng.standard_normal((3, 12))  # of rank 3
    lam, norms = np.full(12, 1e-18), np.einsum("ij,ij->j", R, R)
    with pytest.raises(np.linalg.LinAlgError):  # rounding errors exceed the identity
        np.linalg.cholesky(np.eye(9) + R / lam @ R.T)
    solve = preconditioner(R, lam, norms)
    exact = rng.standard_normal(12)
    np.testing.assert_allclose(R @ solve(R.T @ (R @ exact)), R @ exact, rtol=1e-3)
    inverse = np.array([solve(g) for g in np.eye(12)])
    assert np.min(np.linalg.eigvalsh(inverse + inverse.T)) > 0


@pytest.mark.parametrize("variance", ["exact", "factorised"])
@pytest.mark.parametrize("seed", range(3))
def test_with_a_sketch_the_bound_never_falls_and_the_exact_end_is_higher(seed, variance):
    design, t = _kernel(seed)
    bounds = []
    for rank in (None, 100):
        solver = Backfitting(variance=variance, rank=rank, handover=100)
        result = run(solver, design, t, max_iter=1000)
        assert result.converged
        bound = result.history["bound"]
        assert np.min(np.diff(bound)) > -1e-9 * np.abs(bound).max()
        bounds.append(bound[-1])
    # The factorised bound itself prefers fewer columns than predict best.
    assert variance == "factorised" or bounds[1] > bounds[0]
