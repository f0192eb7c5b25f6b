"""One column at a time around a mode of labels: statistics, gains and optima."""

import numpy as np
import pytest
from scipy.special import expit

from sparsebayes.designs import DenseDesign
from sparsebayes.designs.lowrank import low_rank
from sparsebayes.posterior import laplace_posterior
from sparsebayes.solvers.rvm.laplace_curvature import (
    LaplaceCurvature,
    addition_gains,
    column_gains,
    sweep_precisions,
)
from tests.label_helpers import labels, moons, with_intercept


@pytest.mark.parametrize("intercept", [False, True])
def test_statistics_are_the_dense_ones_and_gains_are_gains(intercept):
    Phi, counts, _ = labels(60, 6)
    Phi[:, 5] = 2.0  # constant: no candidate beside an intercept
    A, alpha = np.array([0, 2]), np.array([0.5, 2.0])
    posterior, y = laplace_posterior(Phi[:, A], counts, alpha, intercept)
    curve = LaplaceCurvature(y, counts, posterior, Phi[:, A], intercept)
    S, Q, norms = curve.statistics(DenseDesign(Phi))
    omega = expit(y) * expit(-y)
    # C^-1 = Omega - Omega Phi H^-1 Phi' Omega, with the intercept among Phi.
    full, precision = with_intercept(Phi[:, A], alpha, intercept)
    H = full.T @ (omega[:, None] * full) + np.diag(precision)
    C = np.diag(omega) - omega[:, None] * full @ np.linalg.solve(H, full.T * omega)
    np.testing.assert_allclose(S, np.einsum("ij,ik,kj->j", Phi, C, Phi), atol=1e-9)
    np.testing.assert_allclose(Q, Phi.T @ (counts[:, 0] - expit(y)), atol=1e-9)

    gains, leaving = column_gains((S, Q, norms), A, alpha, posterior, np.zeros(len(A)))
    assert gains[5] == (0.0 if intercept else pytest.approx(gains[5]))
    # The working response has covariance C over the other columns; brute force over alpha.
    response = y + (counts[:, 0] - expit(y)) / omega
    values = np.logspace(-4, 4, 400)
    for j in (0, 1, 3):
        others, here = A[A != j], alpha[A != j]

        def evidence(a, j=j, others=others, here=here):
            columns = Phi[:, np.append(others, j)] if np.isfinite(a) else Phi[:, others]
            precisions = np.append(here, a) if np.isfinite(a) else here
            return _gaussian_evidence(columns, precisions, omega, response, intercept)

        now = evidence(alpha[list(A).index(j)] if j in A else np.inf)
        best = max(evidence(np.inf), *[evidence(a) for a in values])
        assert gains[j] == pytest.approx(best - now, abs=1e-3)
    assert not leaving[0]


def _gaussian_evidence(Phi, alpha, omega, response, intercept):
    full, precision = with_intercept(Phi, alpha, intercept)
    H = full.T @ (omega[:, None] * full) + np.diag(precision)
    w = np.linalg.solve(H, full.T @ (omega * response))
    misfit = omega @ (response - full @ w) ** 2 + precision @ w**2
    return -0.5 * (misfit + np.linalg.slogdet(H)[1] - np.sum(np.log(alpha)))


def test_a_sweep_ends_where_no_column_gains():
    rng = np.random.default_rng(2)
    Phi = rng.standard_normal((50, 8))
    response = Phi @ np.array([2.0, -1.0, 0.5, 0, 0, 0, 0, 0]) + rng.standard_normal(50)
    G, b = Phi.T @ Phi, Phi.T @ response
    alpha = np.full(8, np.inf)
    alpha[[1, 5, 6]] = 1.0
    for _ in range(10):
        alpha, w = sweep_precisions(G, b, alpha, np.zeros(8), 1e-9)
    here = np.flatnonzero(np.isfinite(alpha))
    assert {0, 1} <= set(here)
    W = np.linalg.inv(G[np.ix_(here, here)] + np.diag(alpha[here]))
    np.testing.assert_allclose(w[here], W @ b[here], atol=1e-8)
    s, q = 1 / np.diag(W) - alpha[here], w[here] / np.diag(W)
    np.testing.assert_allclose(alpha[here], s**2 / (q**2 - s), rtol=1e-3)
    gone = np.setdiff1d(np.arange(8), here)
    S = np.diag(G)[gone] - np.einsum("ij,jk,ik->i", G[np.ix_(gone, here)], W, G[np.ix_(gone, here)])
    assert np.all((b - G @ w)[gone] ** 2 <= S)


@pytest.mark.parametrize("intercept", [False, True])
def test_compressed_statistics_are_the_exact_ones_where_the_compression_is_exact(intercept):
    design, counts = moons(100)
    factor = low_rank(design, 100, np.random.default_rng(0))
    A, alpha = np.array([3, 40, 77]), np.array([0.5, 1.0, 2.0])
    Phi = design.columns(A)
    posterior, y = laplace_posterior(Phi, counts, alpha, intercept)
    curve = LaplaceCurvature(y, counts, posterior, Phi, intercept)
    for ours, exact in zip(
        curve.compressed_statistics(factor), curve.statistics(design), strict=True
    ):
        np.testing.assert_allclose(ours, exact, atol=1e-5)


def test_absent_columns_in_the_span_are_refused():
    S, Q, norms = np.array([1e-14, np.nan]), np.array([1.0, 1.0]), np.ones(2)
    np.testing.assert_array_equal(addition_gains((S, Q, norms)), 0.0)
