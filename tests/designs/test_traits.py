"""Designs and bases say what they are, wrapped or not."""

import numpy as np
import pytest
from scipy.sparse import csc_array

from sparsebayes.designs import (
    CentredBasis,
    ColumnBasis,
    CompressedDesign,
    DenseDesign,
    KernelBasis,
    KernelDesign,
    RowBlocks,
)
from sparsebayes.designs.kernel import ChunkedKernelDesign
from sparsebayes.designs.lowrank import low_rank
from sparsebayes.designs.sparse import SparseDesign
from sparsebayes.designs.subset import SubsetDesign
from sparsebayes.kernels import PairwiseKernel, StationaryKernel

X = np.random.default_rng(0).standard_normal((30, 3))
KERNEL = StationaryKernel("rbf", 0.3)
WEIGHT = np.arange(30) % 4.0
TRAITS = ("kernel", "stationary", "lazy", "inputs", "has_fast_products", "has_cheap_sqnorms")
ROW_MODEL = ("n_observations", "log_volume", "offset_scale", "intercept")


def _plain():
    return {
        "dense": DenseDesign(X, scale=np.array([1.0, 2.0, 4.0])),
        "sparse": SparseDesign(csc_array(X), scale=np.array([1.0, 2.0, 4.0])),
        "kernel": KernelDesign(X, KERNEL),
        "lazy kernel": KernelDesign(X, KERNEL, cache_size=0.0),
        "polynomial": KernelDesign(X, PairwiseKernel("polynomial")),
        "blocks": ChunkedKernelDesign(RowBlocks([X[:9], X[9:]]), KERNEL, np.arange(30)),
    }


@pytest.mark.parametrize("name", list(_plain()))
def test_wrapped_designs_have_the_traits_of_the_design_inside(name):
    plain = _plain()[name]
    for wrapped in (plain.weighted(WEIGHT), plain.centred(), plain.weighted(WEIGHT).centred()):
        for trait in TRAITS:
            assert getattr(wrapped, trait) is getattr(plain, trait), trait
        np.testing.assert_array_equal(wrapped.column_scale, plain.column_scale)


def test_traits_tell_the_designs_apart():
    designs = _plain()
    lazy = {name for name, design in designs.items() if design.lazy}
    stationary = {name for name, design in designs.items() if design.stationary}
    stored = {name for name, design in designs.items() if design.kernel is None}
    assert lazy == {"lazy kernel"}
    assert stationary == {"kernel", "lazy kernel", "blocks"}
    assert stored == {"dense", "sparse"}


@pytest.mark.parametrize("name", list(_plain()))
def test_centring_keeps_the_weights_and_can_be_undone(name):
    weighted = _plain()[name].weighted(WEIGHT)
    centred = weighted.centred()
    assert centred.intercept
    assert not weighted.intercept
    np.testing.assert_array_equal(centred.root_weight, np.sqrt(WEIGHT))
    np.testing.assert_array_equal(centred.uncentred.dense(), weighted.dense())
    assert weighted.uncentred is weighted


def test_unweighted_columns_are_those_of_the_rows_themselves():
    plain = _plain()["kernel"]
    assert plain.weighted(WEIGHT).centred().unweighted is plain
    part = SubsetDesign(plain.weighted(WEIGHT).centred(), np.array([4, 2]))
    np.testing.assert_array_equal(part.unweighted.dense(), plain.columns(np.array([4, 2])))


@pytest.mark.parametrize("name", ["dense", "kernel", "lazy kernel"])
def test_a_subset_has_the_row_model_and_the_target_of_the_whole(name):
    whole = _plain()[name].weighted(WEIGHT).centred()
    idx, t = np.array([2, 0]), np.arange(30.0)
    part = SubsetDesign(whole, idx)
    for trait in (*ROW_MODEL, "kernel", "stationary", "lazy"):
        assert getattr(part, trait) == getattr(whole, trait), trait
    assert part.inputs is whole.inputs
    np.testing.assert_array_equal(part.root_weight, whole.root_weight)
    np.testing.assert_array_equal(part.column_scale, whole.column_scale[idx])
    np.testing.assert_array_equal(part.target(t), whole.target(t))
    assert part.offset(t) == whole.offset(t)
    np.testing.assert_allclose(part.uncentred.dense(), whole.uncentred.columns(idx))


def test_a_subset_of_kernel_columns_is_compressed_as_these_columns():
    whole = KernelDesign(X, StationaryKernel("rbf", 0.01)).centred()
    part = SubsetDesign(whole, np.array([20, 3, 7]))
    small = low_rank(part, 3, np.random.default_rng(0))
    np.testing.assert_allclose(small.rows @ small.factor, part.dense(), atol=1e-12)


def test_rows_of_weight_zero_are_not_distinct_inputs():
    design = _plain()["blocks"]
    assert design.n_distinct_inputs == 30
    assert design.weighted(WEIGHT).centred().n_distinct_inputs == np.count_nonzero(WEIGHT)
    repeated = KernelDesign(np.repeat(X[:10], 3, axis=0), KERNEL, np.arange(10))
    assert repeated.centred().n_distinct_inputs == 10


def test_a_design_that_stands_in_for_another_has_its_row_model_and_scale():
    whole = DenseDesign(X, scale=np.array([1.0, 2.0, 4.0])).weighted(WEIGHT).centred()
    small = CompressedDesign(np.eye(3), whole, whole.basis(np.arange(3)))
    for trait in ROW_MODEL:
        assert getattr(small, trait) == getattr(whole, trait)
    np.testing.assert_array_equal(small.column_scale, [1.0, 2.0, 4.0])
    assert small.inputs is None


def test_a_centred_basis_describes_the_functions_inside():
    columns = ColumnBasis(np.array([2, 0]), np.array([2.0, 0.5]))
    kernel = KernelBasis(KERNEL, X[:2])
    for functions in (columns, kernel):
        centred = CentredBasis(functions, np.array([1.0, -1.0]))
        assert centred.functions is functions.functions is functions
        for name in ("scale", "indices", "kernel", "centres"):
            np.testing.assert_array_equal(getattr(centred, name), getattr(functions, name))
        np.testing.assert_array_equal(centred.centre, [1.0, -1.0])
        np.testing.assert_array_equal(functions.centre, [0.0, 0.0])
        np.testing.assert_array_equal(centred(X), functions(X) - centred.centre)
        np.testing.assert_allclose(centred.take(np.array([1]))(X), centred(X)[:, [1]])
    assert columns.kernel is None
    assert columns.centres is None
    assert kernel.indices is None
    assert np.all(kernel.scale == 1.0)


def test_sqnorms_and_products_are_the_same_with_and_without_a_pass():
    rng = np.random.default_rng(2)
    S = rng.standard_normal((50, 7)) * (rng.random((50, 7)) < 0.3)
    t = rng.standard_normal(50)
    by_pass = DenseDesign(S).sqnorms_and_products(t)
    sparse = SparseDesign(csc_array(S)).sqnorms_and_products(t)
    np.testing.assert_allclose(sparse, by_pass, rtol=1e-12, atol=1e-14)
    kernel = KernelDesign(S, StationaryKernel("rbf", 0.01)).centred()
    centred = kernel.target(t)
    norms, products = kernel.sqnorms_and_products(centred)
    np.testing.assert_allclose(norms, np.sum(kernel.dense() ** 2, axis=0), rtol=1e-10)
    np.testing.assert_allclose(products, kernel.dense().T @ centred, atol=1e-12)
