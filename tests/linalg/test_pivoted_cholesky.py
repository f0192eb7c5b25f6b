import numpy as np
import pytest
from scipy.linalg.lapack import dpstrf

from sparsebayes.kernels import StationaryKernel
from sparsebayes.linalg import pivoted_cholesky


def smooth_kernel(n=150, d=3, gamma=0.3, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, d))
    return StationaryKernel("rbf", gamma).bind(X)(X)


def factorise(K, rank, **kwargs):
    return pivoted_cholesky(np.diag(K), lambda j: K[:, j], rank, **kwargs)


@pytest.mark.parametrize("block", [1, 7, 32])
def test_full_rank_reproduces_the_matrix(block):
    A = np.random.default_rng(1).standard_normal((40, 60))
    K = A @ A.T
    F, pivots = factorise(K, 40, block=block)
    assert sorted(pivots) == list(range(40))
    np.testing.assert_allclose(F.T @ F, K, atol=1e-10 * np.trace(K))


def test_one_pivot_at_a_time_is_the_textbook_algorithm():
    K = smooth_kernel() * np.linspace(1.0, 2.0, 150) * np.linspace(1.0, 2.0, 150)[:, None]
    _, pivots = factorise(K, 30, block=1)
    _, order, _, _ = dpstrf(K, lower=True)
    np.testing.assert_array_equal(pivots, order[:30] - 1)


@pytest.mark.parametrize("rank", [10, 40, 80])
def test_blocks_leave_hardly_more_trace_than_single_pivots(rank):
    K = smooth_kernel()
    left = [np.trace(K) - np.sum(factorise(K, rank, block=b)[0] ** 2) for b in (1, 32)]
    assert left[1] < 1.3 * left[0] + 1e-12 * np.trace(K)


def test_it_stops_at_the_trace_asked_for():
    K = smooth_kernel()
    F, pivots = factorise(K, 150, tol=1e-3)
    left = np.trace(K) - np.sum(F**2)
    assert len(pivots) < 150
    assert left <= 1e-3 * np.trace(K)
    assert np.trace(K) - np.sum(F[:-32] ** 2) > 1e-3 * np.trace(K)


def test_low_rank_is_found_exactly_and_ties_go_to_the_lowest_index():
    K = np.kron(np.eye(3), np.ones((4, 4)))
    F, pivots = factorise(K, 12)
    np.testing.assert_array_equal(pivots, [0, 4, 8])
    np.testing.assert_array_equal(F.T @ F, K)


def test_rows_of_the_factor_are_triangular_at_the_pivots():
    F, pivots = factorise(smooth_kernel(gamma=1.0), 60)
    assert np.abs(np.tril(F[:, pivots], -1)).max() < 1e-10


def test_zero_and_indefinite_matrices_end_early():
    F, pivots = factorise(np.zeros((5, 5)), 5)
    assert F.shape == (0, 5)
    assert len(pivots) == 0
    F, _ = factorise(np.diag([1.0, -1.0, 0.0]), 3)
    np.testing.assert_array_equal(F, [[1.0, 0.0, 0.0]])


@pytest.mark.parametrize("block", [1, 32])
def test_rounding_does_not_choose_the_pivots(block):
    # A stationary kernel has ones on its diagonal, and a narrow one hardly lowers them.
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (150, 3))
    K = np.exp(-8.0 * np.sum((X[:, None] - X) ** 2, axis=2))
    noise = 1e-15 * rng.standard_normal(K.shape)
    other = K + noise + noise.T
    _, pivots = pivoted_cholesky(np.diag(K), lambda j: K[:, j], 60, block=block)
    F, same = pivoted_cholesky(np.diag(other), lambda j: other[:, j], 60, block=block)
    np.testing.assert_array_equal(same, pivots)
    np.testing.assert_allclose((F.T @ F)[:, pivots], K[:, pivots], atol=1e-12)
