"""The dense start of the RVM for labels."""

import numpy as np
import pytest
from scipy.special import expit

from sparsebayes.designs.lowrank import low_rank
from sparsebayes.posterior import laplace_posterior
from sparsebayes.solvers.rvm.laplace_start import DenseStart
from tests.label_helpers import moons


@pytest.mark.parametrize("intercept", [False, True])
def test_dense_start_takes_the_steps_of_the_full_model(intercept):
    """N, u and the Newton step in p dimensions against the m x m formulas."""
    design, counts = moons(60)
    K = design.dense()
    factor = low_rank(design, 60, np.random.default_rng(0))
    start = DenseStart(factor, counts, intercept)
    start.R, start.F = np.asfortranarray(factor.rows), np.asfortranarray(factor.factor)
    alpha = np.random.default_rng(1).uniform(0.5, 2.0, 60)
    F = factor.factor
    B = np.asfortranarray((F / alpha) @ F.T)
    v, b = np.zeros(len(F)), 0.0
    for _ in range(8):
        N, u, b, step = start._step(B, v, b)
        v = v + step * (B @ u - v)
    N = np.tril(N) + np.tril(N, -1).T
    posterior, y = laplace_posterior(K, counts, alpha, intercept)
    np.testing.assert_allclose(factor.rows @ v + b, y, atol=1e-4)
    omega = expit(y) * expit(-y)
    C = np.linalg.inv(np.diag(1 / omega) + (K / alpha) @ K.T)
    if intercept:
        one = C @ np.ones(60)
        C = C - np.outer(one, one) / one.sum()
    np.testing.assert_allclose(
        np.einsum("ij,ik,kj->j", F, N, F), np.einsum("ij,ik,kj->j", K, C, K), rtol=1e-4
    )
    np.testing.assert_allclose(u @ F, alpha * posterior.mean, atol=1e-3)
