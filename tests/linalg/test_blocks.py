import numpy as np
import pytest

from sparsebayes.linalg.blocks import factor


@pytest.mark.parametrize(("count", "k"), [(3, 4), (300, 1), (300, 4), (300, 6), (300, 8)])
def test_factors_are_those_of_lapack_and_nan_where_there_is_none(count, k):
    A = np.random.default_rng(0).standard_normal((count, k, k))
    A = A @ A.swapaxes(1, 2) + 0.1 * np.eye(k)
    A[1] = -np.eye(k)
    R, Z = factor(A)
    good = np.arange(count) != 1
    np.testing.assert_allclose(R[good], np.linalg.cholesky(A[good]), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(
        Z[good] @ R[good], np.broadcast_to(np.eye(k), R[good].shape), atol=1e-9
    )
    assert np.isnan(R[1, -1, -1])
