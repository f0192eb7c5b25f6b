"""Rows in blocks are the same rows."""

import numpy as np
import pytest

from sparsebayes import ForwardRegressor
from sparsebayes.designs import (
    CentredDesign,
    ChunkedKernelDesign,
    KernelDesign,
    NufftDesign,
    RowBlocks,
    WeightedDesign,
)
from sparsebayes.kernels import StationaryKernel, resolve_gamma
from sparsebayes.rows import SpreadJob


def rows(n=500, d=3, seed=0):
    return np.random.default_rng(seed).uniform(-2, 2, (n, d))


def sources(X, tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, X)
    return {
        "memmap": np.load(path, mmap_mode="r"),
        "list": [X[:130], X[130:131], X[131:]],
        "function": lambda: (X[i : i + 77] for i in range(0, len(X), 77)),
        "iterator": (X[i : i + 77] for i in range(0, len(X), 77)),
    }


@pytest.mark.parametrize("kind", ["memmap", "list", "function", "iterator"])
def test_every_verb_equals_that_of_the_array(kind, tmp_path):
    X = rows()
    kernel, centres = StationaryKernel("rbf", 0.4), np.arange(0, 500, 21)
    blocks = RowBlocks(sources(X, tmp_path)[kind])
    assert blocks.shape == X.shape
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 500)
    v, idx = np.random.default_rng(2).standard_normal(500), np.array([3, 0, 7])
    for wrap in (lambda d: d, CentredDesign, lambda d: CentredDesign(WeightedDesign(d, weight))):
        for cache_size in (0.0, 200.0):
            plain = wrap(KernelDesign(X, kernel, centres, cache_size))
            design = wrap(ChunkedKernelDesign(blocks, kernel, centres, cache_size))
            for verb in (
                lambda d: d.project(v),
                lambda d: d.columns(idx),
                lambda d: d.gram(idx),
                lambda d: d.sqnorms(),
                lambda d: d.moments(v)[0],
                lambda d: d.moments(v)[1],
                lambda d: d.apply(np.ones(3), idx),
                lambda d: d.basis(idx)(X[:5]),
                lambda d: d.columns(np.empty(0, dtype=int)),
            ):
                np.testing.assert_allclose(verb(design), verb(plain), atol=1e-11)


def test_rows_are_taken_in_the_order_asked_for(tmp_path):
    X = rows()
    idx = np.array([499, 3, 130, 3, 0])
    for source in sources(X, tmp_path).values():
        np.testing.assert_array_equal(RowBlocks(source).take(idx), X[idx])


@pytest.mark.parametrize("weighted", [False, True])
def test_the_width_is_that_of_the_whole_array(weighted):
    X = rows() * 3.0 + 100.0
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 500) if weighted else None
    blocks = RowBlocks([X[:10], X[10:]])
    gamma = blocks.with_arrays(weight).reduce(SpreadJob()).gamma
    assert gamma == pytest.approx(resolve_gamma("scale", X, weight), rel=1e-9)
    constant = RowBlocks([np.full((5, 2), 0.1), np.full((6, 2), 0.1)])
    assert constant.with_arrays(None).reduce(SpreadJob()).gamma == 1.0


@pytest.mark.parametrize("kind", ["memmap", "list", "function", "iterator"])
def test_a_fit_in_blocks_is_the_fit_in_memory(kind, tmp_path):
    X = rows(800)
    y = np.sin(2 * X[:, 0]) + 0.2 * np.random.default_rng(3).standard_normal(800)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 800)
    options = {"max_terms": 30, "random_state": 0, "candidates": 200}
    blocks = RowBlocks(sources(X, tmp_path)[kind])
    direct = ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **options}).fit(X, y, weight)
    model = ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **options}).fit(
        blocks, y, weight
    )
    np.testing.assert_array_equal(model.active_, direct.active_)
    np.testing.assert_allclose(model.relevance_vectors_, direct.relevance_vectors_)
    assert model.log_evidence_ == pytest.approx(direct.log_evidence_, abs=1e-6)
    assert model.gamma_ == pytest.approx(direct.gamma_)
    assert model.n_features_in_ == 3
    for ours, theirs in zip(model.predict(blocks, True), direct.predict(X, True), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    np.testing.assert_allclose(model.predict(blocks), direct.predict(X), rtol=1e-6)


@pytest.mark.parametrize("kind", ["list", "function", "iterator"])
def test_blocks_need_no_wrapping(kind, tmp_path):
    X = rows(400)
    y = np.sin(2 * X[:, 0])
    options = {"max_terms": 10, "random_state": 0, "candidates": 50}
    direct = ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **options}).fit(X, y)
    model = ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **options}).fit(
        sources(X, tmp_path)[kind], y
    )
    np.testing.assert_array_equal(model.active_, direct.active_)
    np.testing.assert_allclose(
        model.predict(sources(X, tmp_path)[kind]), direct.predict(X), rtol=1e-6
    )


def test_widths_are_learnt_on_blocks():
    X = rows(300)
    y = np.sin(2 * X[:, 0]) + 0.2 * np.random.default_rng(3).standard_normal(300)
    options = {"gamma": "ard", "candidates": 100, "max_terms": 20, "random_state": 0}
    direct = ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **options}).fit(X, y)
    model = ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **options}).fit(
        RowBlocks([X[:100], X[100:]]), y
    )
    np.testing.assert_allclose(model.gamma_, direct.gamma_, rtol=1e-6)
    assert np.argmax(model.feature_relevance_) == 0
    np.testing.assert_allclose(model.predict(X), direct.predict(X), atol=1e-4)


def test_a_large_memory_map_is_read_in_blocks_by_itself(tmp_path, monkeypatch):
    X = rows(2000)
    y = X[:, 0] + 0.1 * np.random.default_rng(3).standard_normal(2000)
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    read = []
    original = RowBlocks.chunks
    monkeypatch.setattr(RowBlocks, "chunks", lambda self: (read.append(1), original(self))[1])
    options = {"candidates": 100, "max_terms": 10, "random_state": 0}
    small = ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **options}).fit(mapped, y)
    assert not read
    large = ForwardRegressor(cache_size=0.02, **{"kernel": "rbf", "gamma": "scale", **options}).fit(
        mapped, y
    )
    assert read
    np.testing.assert_allclose(small.predict(X), large.predict(X), rtol=1e-3)


def test_wrong_blocks_are_a_sentence():
    X, y = rows(100), np.zeros(100)
    with pytest.raises(TypeError, match="an iterator of blocks"):
        RowBlocks(3)
    with pytest.raises(ValueError, match="no rows"):
        RowBlocks(iter([]))
    with pytest.raises(ValueError, match="same number of columns"):
        RowBlocks([X, X[:, :2]])
    with pytest.raises(ValueError, match="no rows"):
        RowBlocks([])
    with pytest.raises(ValueError, match="2 dimensions"):
        RowBlocks(X[:, 0])
    bad = X.copy()
    bad[40, 1] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity between rows 30 and 59"):
        ForwardRegressor("rbf", gamma="scale").fit(RowBlocks([bad[:30], bad[30:60], bad[60:]]), y)
    lengths = iter([100, 90, 90])
    with pytest.raises(ValueError, match="same rows each time"):
        list(RowBlocks(lambda: [X[: next(lengths)]]))
    blocks = RowBlocks([X])
    with pytest.raises(ValueError, match="blocks of X have 100 rows"):
        ForwardRegressor("rbf", gamma="scale").fit(blocks, y[:50])
    with pytest.raises(ValueError, match="a smooth and a rough part"):
        ForwardRegressor("sum", gamma="scale").fit(blocks, y)
    with pytest.raises(ValueError, match="requires a named kernel"):
        ForwardRegressor("precomputed").fit(blocks, y)
    for parameters in ({"candidates": "all"}, {"rank": 3}, {"early_stopping": "validation"}):
        with pytest.raises(ValueError, match="X in blocks of rows requires"):
            ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **parameters}).fit(blocks, y)
    with pytest.raises(ValueError, match="return_cov is not available"):
        ForwardRegressor("rbf", gamma="scale").fit(X, X[:, 0]).predict(blocks, return_cov=True)


# Products by transforms.


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("gamma", [0.3, 40.0, "ard"])
def test_nufft_products_are_direct_products(d, gamma):
    pytest.importorskip("finufft")
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 2, (400, d))
    gamma = np.array([0.5, 8.0, 30.0])[:d] if gamma == "ard" else gamma
    kernel, centres = StationaryKernel("rbf", gamma), np.arange(0, 400, 3)
    weight = rng.uniform(0.5, 2.0, 400)
    for wrap in (lambda d: d, CentredDesign, lambda d: CentredDesign(WeightedDesign(d, weight))):
        direct, fast = wrap(KernelDesign(X, kernel, centres)), wrap(NufftDesign(X, kernel, centres))
        for V in (rng.standard_normal(400), rng.standard_normal((400, 2))):
            scale = np.max(np.abs(direct.project(V)))
            np.testing.assert_allclose(fast.project(V), direct.project(V), atol=1e-9 * scale)
        np.testing.assert_allclose(fast.sqnorms(), direct.sqnorms(), rtol=1e-8)
        idx = np.array([5, 1])
        np.testing.assert_allclose(fast.columns(idx), direct.columns(idx), atol=1e-13)
        np.testing.assert_allclose(fast.project(V, idx), direct.project(V, idx), atol=1e-12)


def test_transforms_never_read_all_columns(monkeypatch):
    pytest.importorskip("finufft")
    X, weight = rows(200, 2), np.linspace(0.5, 2.0, 200)
    design = CentredDesign(WeightedDesign(NufftDesign(X, StationaryKernel("rbf", 1.0)), weight))

    def read(*_):
        raise AssertionError("A pass over all columns costs n x m.")

    monkeypatch.setattr(NufftDesign, "blocks", read)
    assert np.all(design.sqnorms() > 0)
    design.project(X[:, 0])


def test_a_kernel_too_narrow_for_transforms_is_a_sentence():
    pytest.importorskip("finufft")
    with pytest.raises(ValueError, match="too narrow"):
        NufftDesign(rows(10, 3), StationaryKernel("rbf", 1e8))
