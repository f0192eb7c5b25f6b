import numpy as np
import pytest

from sparsebayes.linalg.blocks import cholesky, column_blocks, factor, triangle_inverse


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


def test_batched_factors_are_those_of_lapack_and_mark_what_has_none():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((6, 4, 4))
    A = A @ A.swapaxes(1, 2)
    A[2] -= 5 * np.eye(4)
    R = cholesky(A)
    assert np.isnan(R[2, -1, -1])
    good = np.delete(np.arange(6), 2)
    np.testing.assert_allclose(R[good], np.linalg.cholesky(A[good]), atol=1e-10)
    inverse = triangle_inverse(R[good])
    np.testing.assert_allclose(inverse @ R[good], np.broadcast_to(np.eye(4), (5, 4, 4)), atol=1e-8)


@pytest.mark.parametrize("sites", ["group", "column"])
def test_partition_keeps_every_column_once_and_in_its_group(sites):
    group_of = np.random.default_rng(0).permutation(np.repeat(np.arange(5), [1, 3, 2, 3, 1]))
    blocks = column_blocks(group_of, sites)
    np.testing.assert_array_equal(np.sort(blocks.order), np.arange(10))
    np.testing.assert_array_equal(blocks.order, column_blocks(group_of).order)
    for bucket in blocks.buckets:
        assert np.all(group_of[bucket.columns] == bucket.owner[:, None])
    values = np.arange(10.0)
    np.testing.assert_array_equal(blocks.merge(blocks.split(values)), values)
