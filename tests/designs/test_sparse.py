"""A sparse design is the dense one, and never becomes dense."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from sparsebayes.designs import CentredDesign, DenseDesign, WeightedDesign
from sparsebayes.designs.sparse import CentredSparseDesign, SparseDesign
from sparsebayes.designs.subset import subset
from sparsebayes.posterior import gaussian_posterior


def _pairs(rng, n=60, m=25):
    """Each sparse design with the dense one that it must equal."""
    X = np.where(rng.uniform(size=(n, m)) < 0.2, rng.standard_normal((n, m)) + 1.0, 0.0)
    X[:, 3] = 0.0  # a column without entries
    X[:, 4] = 7.0  # a constant one
    X[:, 5] = 1e6 + X[:, 0]  # one that is nearly constant: most digits go with its mean
    weight = rng.integers(1, 4, n).astype(float)
    plain = SparseDesign(sparse.csr_matrix(X))
    dense = DenseDesign(X)
    return {
        "plain": (plain, dense),
        "weighted": (plain.weighted(weight), WeightedDesign(dense, weight)),
        "centred": (CentredSparseDesign(plain), CentredDesign(dense)),
        "centred, weighted": (
            CentredSparseDesign(plain.weighted(weight)),
            CentredDesign(WeightedDesign(dense, weight)),
        ),
    }


NAMES = list(_pairs(np.random.default_rng(0)))


@pytest.mark.parametrize("name", NAMES)
def test_every_verb_matches_the_dense_design(name):
    rng = np.random.default_rng(1)
    ours, theirs = _pairs(rng)[name]
    n, m = theirs.n_rows, theirs.n_candidates
    D = theirs.dense()
    lost = 1e-16 * n * 1e6  # what rounding takes from a product with column 5
    V, v, t = rng.standard_normal((n, 2)), rng.uniform(size=m), rng.standard_normal(n)
    W = rng.standard_normal((m, 2))
    assert (ours.n_rows, ours.n_candidates) == (n, m)
    assert ours.n_observations == theirs.n_observations
    assert ours.log_volume == pytest.approx(theirs.log_volume)
    assert ours.offset_scale == pytest.approx(theirs.offset_scale)
    np.testing.assert_allclose(ours.target(t), theirs.target(t), atol=1e-12)
    assert ours.offset(t) == pytest.approx(theirs.offset(t))
    np.testing.assert_allclose(ours.sqnorms(), theirs.sqnorms(), rtol=1e-6, atol=1e-12)
    row = rng.uniform(size=n)
    np.testing.assert_allclose(ours.squares(row), row @ D**2, rtol=1e-7, atol=1e7 * lost)
    some = np.array([7, 0, 20, 4])
    np.testing.assert_allclose(ours.columns(some), D[:, some], atol=1e-9)
    for idx in (slice(None), some, np.empty(0, dtype=np.intp)):
        E = D[:, idx]
        squares = E**2 @ v[idx]
        np.testing.assert_allclose(ours.project(V, idx), E.T @ V, atol=lost)
        np.testing.assert_allclose(ours.apply(W[idx], idx), E @ W[idx], atol=lost)
        np.testing.assert_allclose(ours.apply_squares(v[idx], idx), squares, atol=1e6 * lost)
        np.testing.assert_allclose(theirs.apply_squares(v[idx], idx), squares, rtol=1e-10)
        np.testing.assert_allclose(ours.gram(idx), E.T @ E, atol=lost)
        np.testing.assert_allclose(ours.outer(idx), E @ E.T, atol=1e7 * lost)
        np.testing.assert_allclose(theirs.outer(idx), E @ E.T, rtol=1e-9, atol=lost)
    np.testing.assert_allclose(ours.gram(some, some[:2]), D[:, some].T @ D[:, some[:2]], atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_some_of_the_columns_are_a_design_of_their_own(name):
    rng = np.random.default_rng(2)
    ours, _ = _pairs(rng)[name]
    idx = np.array([9, 2, 13])
    part = ours.take(idx)
    w, v = rng.standard_normal(3), rng.standard_normal(ours.n_rows)
    np.testing.assert_allclose(part.apply(w), ours.apply(w, idx), atol=1e-12)
    np.testing.assert_allclose(part.project(v), ours.project(v, idx), atol=1e-12)
    np.testing.assert_allclose(part.sqnorms(), ours.sqnorms()[idx], rtol=1e-12)
    assert part.n_observations == ours.n_observations
    assert part.log_volume == ours.log_volume


@pytest.mark.parametrize("name", NAMES)
def test_the_posterior_of_a_few_columns_is_the_dense_one(name):
    rng = np.random.default_rng(3)
    ours, theirs = _pairs(rng)[name]
    t = rng.standard_normal(ours.n_rows) + 3.0
    active, lam = np.array([0, 9, 2]), np.array([1.0, 0.1, 2.0])
    a = gaussian_posterior(ours, ours.target(t), active, lam, 0.5)
    b = gaussian_posterior(theirs, theirs.target(t), active, lam, 0.5)
    np.testing.assert_allclose(a.mean, b.mean, atol=1e-12)
    assert a.log_evidence == pytest.approx(b.log_evidence)


def test_basis_evaluates_sparse_and_dense_rows_alike():
    rng = np.random.default_rng(4)
    X = sparse.random_array((40, 10), density=0.3, rng=rng, format="csr")
    design = CentredSparseDesign(SparseDesign(X * 2.0, scale=np.full(10, 2.0)))
    idx = np.array([1, 6])
    Phi = design.basis(idx)(X)
    np.testing.assert_allclose(Phi, design.columns(idx), atol=1e-14)
    np.testing.assert_array_equal(Phi, design.basis(idx)(X.toarray()))


def test_memory_and_time_stay_with_the_entries_not_with_the_shape(monkeypatch):
    def expand(*_):
        raise AssertionError("A pass over all columns expanded would cost n x m.")

    monkeypatch.setattr(SparseDesign, "blocks", expand)
    X = sparse.random_array((2000, 50_000), density=1e-4, rng=np.random.default_rng(5))
    t = np.random.default_rng(6).standard_normal(2000)
    X = X.tocsc()  # 10^4 entries; the dense matrix would take 800 MB
    tracemalloc.start()
    design = CentredSparseDesign(SparseDesign(X))
    g = design.project(design.target(t))
    design.apply(g)
    design.apply_squares(g**2)
    design.squares(t**2)
    design.sqnorms()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


@pytest.mark.parametrize("name", NAMES)
def test_all_columns_in_another_order_are_a_subset_in_that_order(name):
    rng = np.random.default_rng(5)
    ours, theirs = _pairs(rng)[name]
    order = rng.permutation(theirs.n_candidates)
    for idx in (order, np.sort(order), order[:7]):
        for design in (ours, theirs):
            part = subset(design, idx)
            np.testing.assert_allclose(part.dense(), theirs.columns(idx), atol=1e-8)
            part = subset(part, np.arange(len(idx))[::-1])  # of a subset
            np.testing.assert_allclose(part.dense(), theirs.columns(idx[::-1]), atol=1e-8)
