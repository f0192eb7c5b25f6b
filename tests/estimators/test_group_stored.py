"""X that stays as it is stored: too large in float64 to be held."""

import numpy as np
import pytest
from scipy import sparse

from sparsebayes import GroupSpikeSlabRegressor
from sparsebayes.designs import CentredDesign, DenseDesign
from sparsebayes.designs.dense import StoredDesign
from sparsebayes.estimators import group_spike_slab


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    X = rng.binomial(2, 0.3, (100, 4000)).astype(np.int8)
    w = np.zeros(4000)
    w[[10, 11, 400, 401, 3000]] = [1.0, -1.0, 1.5, 0.7, 1.0]
    return X, X @ w + 0.3 * rng.standard_normal(100) + 3.0, np.arange(4000) // 2


@pytest.fixture(scope="module")
def held(counts):
    X, y, groups = counts
    return GroupSpikeSlabRegressor(groups).fit(X, y)


def _memory_map(X, folder):
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


STORED = {
    "bytes": lambda X, _: X,
    "memory map": lambda X, folder: _memory_map(X.astype(np.float32), folder),
    "sparse": lambda X, _: sparse.csr_array(X),
    "float64": lambda X, _: X.astype(np.float64),
}


@pytest.mark.parametrize("kind", STORED)
def test_a_model_of_stored_columns_is_that_of_the_array(kind, counts, held, monkeypatch, tmp_path):
    X, y, groups = counts
    monkeypatch.setattr(group_spike_slab, "_HELD", 1e5)
    stored = STORED[kind](X, tmp_path)
    model = GroupSpikeSlabRegressor(groups).fit(stored, y)
    assert model.converged_
    assert len(model.basis_) < 1200  # of the columns that matter
    assert model.coef_.shape == held.coef_.shape
    assert np.array_equal(model.active_, held.active_)
    # What the columns discarded take of each other is missing, and how they change with the noise.
    assert abs(model.log_evidence_ - held.log_evidence_) < 0.02
    np.testing.assert_allclose(model.inclusion_probability_, held.inclusion_probability_, atol=5e-3)
    np.testing.assert_allclose(model.coef_, held.coef_, atol=1e-3)
    np.testing.assert_allclose(np.square(model.coef_std_), np.square(held.coef_std_), atol=1e-3)
    for name in ("inclusion_prior_", "slab_variance_", "noise_variance_", "intercept_"):
        np.testing.assert_allclose(getattr(model, name), getattr(held, name), rtol=0.02)
    ours, theirs = (m.predict(x[:20], return_std=True) for m, x in ((model, stored), (held, X)))
    np.testing.assert_allclose(ours, theirs, rtol=0.01, atol=0.01)
    assert list(map(list, model.credible_sets())) == list(map(list, held.credible_sets()))
    assert np.array_equal(model.select(), held.select())


def test_overlapping_groups_and_those_always_in_are_found_in_stored_columns(counts, monkeypatch):
    X, y, _ = counts
    X = X[:, :2100]
    groups = [[j, j + 1] for j in range(2099)]
    settings = {"always": [400], "noise_variance": 1.0, "slab_variance": 1.0}
    held = GroupSpikeSlabRegressor(groups, inclusion_prior=1e-3, **settings).fit(X, y)
    monkeypatch.setattr(group_spike_slab, "_HELD", 1e5)
    model = GroupSpikeSlabRegressor(groups, inclusion_prior=1e-3, **settings).fit(X, y)
    assert len(model.basis_) < len(held.basis_)
    np.testing.assert_allclose(model.inclusion_probability_, held.inclusion_probability_, atol=0.01)
    np.testing.assert_allclose(model.coef_, held.coef_, atol=0.01)


def test_weights_of_rows_count_in_stored_columns(counts, monkeypatch):
    X, y, groups = counts
    monkeypatch.setattr(group_spike_slab, "_HELD", 1e5)
    known = {"inclusion_prior": 1e-3, "slab_variance": 1.0, "noise_variance": 0.1}
    rows = np.concatenate([np.arange(100), np.arange(20)])
    twice = GroupSpikeSlabRegressor(groups, **known).fit(X[rows], y[rows])
    weight = np.where(np.arange(100) < 20, 2.0, 1.0)
    once = GroupSpikeSlabRegressor(groups, **known).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(once.coef_, twice.coef_, atol=1e-4)


def test_the_sampler_says_that_it_needs_the_columns(counts, monkeypatch):
    X, y, groups = counts
    monkeypatch.setattr(group_spike_slab, "_HELD", 1e5)
    with pytest.raises(ValueError, match="inference='ep'"):
        GroupSpikeSlabRegressor(groups, inference="gibbs").fit(X, y)


def test_groups_too_large_to_be_taken_alone_are_refused(counts, monkeypatch):
    X, y, _ = counts
    monkeypatch.setattr(group_spike_slab, "_HELD", 1e5)
    with pytest.raises(ValueError, match="too large"):
        GroupSpikeSlabRegressor(np.arange(4000) // 2000).fit(X, y)


def test_weak_groups_among_the_columns_left_out_are_told_of(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 2000)), rng.standard_normal(20)
    monkeypatch.setattr(group_spike_slab, "_HELD", 1e5)
    settings = {"inclusion_prior": 0.01, "slab_variance": 0.01, "noise_variance": 1.0}
    with pytest.warns(UserWarning, match="discarded"):
        model = GroupSpikeSlabRegressor(**settings).fit(X, y)
    assert len(model.basis_) <= 400


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_every_verb_of_a_stored_design_is_that_of_the_dense_one(counts, scale):
    X = counts[0][:, :50]
    rng = np.random.default_rng(1)
    V, some = rng.standard_normal((100, 3)), np.array([3, 4, 5])
    for wrap in (lambda design: design, CentredDesign):
        stored, dense = wrap(StoredDesign(X, scale)), wrap(DenseDesign(scale * X))
        for idx in (some, np.array([7, 2]), slice(None)):
            np.testing.assert_allclose(stored.columns(idx), dense.columns(idx), atol=1e-14)
            np.testing.assert_allclose(stored.project(V, idx), dense.project(V, idx), atol=1e-12)
        np.testing.assert_allclose(stored.sqnorms(), dense.sqnorms(), rtol=1e-12)
        np.testing.assert_allclose(stored.gram(some), dense.gram(some), atol=1e-11)
        np.testing.assert_allclose(stored.apply(V[:50, 0]), dense.apply(V[:50, 0]), atol=1e-12)
        new = rng.standard_normal((4, 50))
        plain = StoredDesign(X, scale).basis(some)(new)
        np.testing.assert_allclose(plain, scale * new[:, some], atol=1e-15)
