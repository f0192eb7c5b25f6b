import numpy as np
import pytest

from sparsebayes.designs import CentredDesign, DenseDesign, KernelDesign, WeightedDesign
from sparsebayes.designs.lowrank import low_rank
from sparsebayes.kernels import PairwiseKernel, StationaryKernel


def inputs(n, d, seed=0, repeated=False):
    X = np.random.default_rng(seed).uniform(-2.0, 2.0, (n, d))
    if repeated:
        X[n // 2 :] = X[: n - n // 2]
    return X


def wrappings(base, seed=1):
    weight = np.random.default_rng(seed).uniform(0.2, 3.0, base.n_rows)
    return {
        "plain": base,
        "weighted": WeightedDesign(base, weight),
        "centred": CentredDesign(base),
        "both": CentredDesign(WeightedDesign(base, weight)),
    }


def kernel_design(X, gamma=0.3):
    first = np.sort(np.unique(X, axis=0, return_index=True)[1])
    return KernelDesign(X, StationaryKernel("rbf", gamma), first)


@pytest.mark.parametrize("wrapping", ["plain", "weighted", "centred", "both"])
@pytest.mark.parametrize("n", [120, 1700])
@pytest.mark.parametrize("repeated", [False, True])
def test_the_product_is_the_design_where_the_kernel_has_low_rank(wrapping, n, repeated):
    design = wrappings(kernel_design(inputs(n, 1, repeated=repeated)))[wrapping]
    found = low_rank(design, 60, np.random.default_rng(0))
    Phi, t = design.dense(), design.target(np.random.default_rng(2).standard_normal(n))
    assert found.factor.shape[0] < 40
    np.testing.assert_allclose(found.rows @ found.factor, Phi, atol=1e-4)
    R, z = found.candidates(), found.coordinates(t)
    np.testing.assert_allclose(R.T @ R, Phi.T @ Phi, atol=1e-4 * n)
    np.testing.assert_allclose(R.T @ z, Phi.T @ t, atol=1e-4 * n)


def test_products_in_blocks_of_rows_are_those_of_all_rows():
    design = CentredDesign(kernel_design(inputs(1700, 2)))
    found = low_rank(design, 60, np.random.default_rng(0))
    V = np.random.default_rng(2).standard_normal((1700, 3))
    blocks = [(rows, V[rows]) for rows in (slice(0, 500), slice(500, 1700))]
    projected = (found.along(blocks) @ found.factor).T
    np.testing.assert_allclose(projected, found.project(V), atol=1e-9)


def test_rows_and_candidates_share_one_array_where_they_are_the_same():
    X = inputs(1700, 2)
    plain, centred = KernelDesign(X, StationaryKernel("rbf", 0.3)), wrappings(kernel_design(X))
    found = low_rank(plain, 60, np.random.default_rng(0))
    assert found.symmetric
    assert np.shares_memory(found.rows, found.factor)
    c = found.triangle
    np.testing.assert_allclose(found.factor @ found.factor.T, c.T @ c, rtol=1e-9, atol=1e-7)
    assert not low_rank(centred["centred"], 60, np.random.default_rng(0)).symmetric


@pytest.mark.parametrize("wrapping", ["plain", "weighted", "centred", "both"])
def test_coordinates_are_those_of_an_orthonormal_basis(wrapping):
    design = wrappings(kernel_design(inputs(200, 4)))[wrapping]
    found = low_rank(design, 50, np.random.default_rng(0))
    U = np.linalg.solve(found.triangle.T, found.rows.T).T
    np.testing.assert_allclose(U.T @ U, np.eye(50), atol=1e-9)
    t = design.target(np.random.default_rng(2).standard_normal(200))
    np.testing.assert_allclose(found.coordinates(t), U.T @ t, atol=1e-10)
    np.testing.assert_allclose(found.rows @ found.factor, U @ found.candidates(), atol=1e-10)


def test_columns_at_the_pivots_are_exact_whatever_the_rank():
    design = wrappings(kernel_design(inputs(300, 6)))["both"]
    found = low_rank(design, 40, np.random.default_rng(0))
    exact = design.columns(found.pivots)
    np.testing.assert_allclose(found.rows @ found.factor[:, found.pivots], exact, atol=1e-10)
    assert not found.exact


def test_more_dimensions_leave_a_smaller_error():
    design = kernel_design(inputs(400, 5))
    errors = [
        np.linalg.norm(found.rows @ found.factor - design.dense())
        for found in (low_rank(design, p, np.random.default_rng(0)) for p in (20, 60, 180, 400))
    ]
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[3] < 1e-4


def test_random_pivots_follow_the_generator():
    design = kernel_design(inputs(1600, 5))
    a, b, c = (low_rank(design, 30, np.random.default_rng(s)).pivots for s in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert set(a) != set(c)


@pytest.mark.parametrize("wrapping", ["plain", "weighted", "centred", "both"])
@pytest.mark.parametrize("shape", [(80, 30), (30, 80)])
def test_small_plain_designs_are_exact(wrapping, shape):
    design = wrappings(DenseDesign(inputs(*shape)))[wrapping]
    found = low_rank(design, 40, np.random.default_rng(0))
    assert found.exact
    np.testing.assert_allclose(found.rows @ found.factor, design.dense(), atol=1e-12)


def test_large_plain_designs_are_projected_on_some_of_their_columns():
    design = CentredDesign(DenseDesign(inputs(90, 70)))
    found = low_rank(design, 40, np.random.default_rng(0))
    assert not found.exact
    product = found.rows @ found.factor
    np.testing.assert_allclose(product[:, found.pivots], design.columns(found.pivots), atol=1e-12)
    np.testing.assert_allclose(found.rows.T @ (design.dense() - product), 0.0, atol=1e-12)


def test_a_kernel_that_is_not_positive_falls_back_on_its_columns():
    design = KernelDesign(inputs(50, 2), PairwiseKernel("sigmoid", {"gamma": 1.0, "coef0": -1.0}))
    found = low_rank(design, 50, np.random.default_rng(0))
    assert found.exact
    np.testing.assert_allclose(found.rows @ found.factor, design.dense(), atol=1e-10)


def test_constant_columns_become_zero_without_failing():
    design = CentredDesign(KernelDesign(inputs(20, 1), StationaryKernel("rbf", 1e-30)))
    found = low_rank(design, 10, np.random.default_rng(0))
    np.testing.assert_allclose(found.candidates(), 0.0, atol=1e-12)
    assert np.all(np.isfinite(found.coordinates(np.arange(20.0))))
    zero = low_rank(DenseDesign(np.zeros((5, 3))), 10, np.random.default_rng(0))
    np.testing.assert_array_equal(zero.candidates(), 0.0)
