import numpy as np
import pytest

from sparsebayes.designs import CentredDesign, DenseDesign, KernelDesign, WeightedDesign
from sparsebayes.kernels import StationaryKernel


def _designs(rng, n=150):
    """Every design with the dense matrix that it stands for."""
    X = rng.standard_normal((n, 3))
    kernel = StationaryKernel("rbf", 0.3)
    K = np.exp(-0.3 * ((X[:, None] - X[None]) ** 2).sum(-1))
    weight = rng.integers(1, 4, n).astype(float)
    root = np.sqrt(weight)[:, None]
    u = np.sqrt(weight / weight.sum())[:, None]
    some = np.arange(0, n, 2)
    return {
        "dense": (DenseDesign(K), K),
        "lazy": (KernelDesign(X, kernel, cache_size=0), K),
        "kept": (KernelDesign(X, kernel), K),
        "subset": (KernelDesign(X, kernel, some, cache_size=0), K[:, some]),
        "weighted": (WeightedDesign(KernelDesign(X, kernel, cache_size=0), weight), root * K),
        "centred": (CentredDesign(KernelDesign(X, kernel, cache_size=0)), K - K.mean(0)),
        "centred, weighted": (
            CentredDesign(WeightedDesign(DenseDesign(K), weight)),
            root * K - u @ (u.T @ (root * K)),
        ),
    }


NAMES = list(_designs(np.random.default_rng(0), 4))


@pytest.mark.parametrize("name", NAMES)
def test_every_verb_matches_the_dense_matrix(name):
    rng = np.random.default_rng(1)
    design, D = _designs(rng)[name]
    n, m = D.shape
    idx = np.array([5, 0, 17])
    v, V, w = rng.standard_normal(n), rng.standard_normal((n, 2)), rng.standard_normal(3)
    assert (design.n_rows, design.n_candidates) == (n, m)
    np.testing.assert_allclose(design.columns(idx), D[:, idx], atol=1e-12)
    np.testing.assert_allclose(design.project(v), D.T @ v, atol=1e-11)
    np.testing.assert_allclose(design.project(V, idx), D[:, idx].T @ V, atol=1e-11)
    np.testing.assert_allclose(design.apply(w, idx), D[:, idx] @ w, atol=1e-12)
    np.testing.assert_allclose(design.gram(idx), D[:, idx].T @ D[:, idx], atol=1e-11)
    np.testing.assert_allclose(design.gram(idx, idx[:2]), D[:, idx].T @ D[:, idx[:2]], atol=1e-11)
    np.testing.assert_allclose(design.sqnorms(), (D * D).sum(0), atol=1e-11)
    np.testing.assert_allclose(design.dense(), D, atol=1e-12)
    R, both = design.triangle(V, idx), np.hstack([D[:, idx], V])
    np.testing.assert_array_equal(R, np.triu(R))
    np.testing.assert_allclose(R.T @ R, both.T @ both, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_no_columns_is_a_regular_case(name):
    design, D = _designs(np.random.default_rng(2), 20)[name]
    none = np.empty(0, dtype=np.intp)
    assert design.columns(none).shape == (len(D), 0)
    assert design.gram(none).shape == (0, 0)
    assert abs(design.triangle(np.ones((len(D), 1)), none)) == pytest.approx(np.sqrt(len(D)))
    assert len(design.basis(none)) == 0


def test_basis_on_the_training_rows_gives_the_columns():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((30, 2))
    weight = rng.uniform(0.5, 2, 30)
    idx = np.array([3, 8])
    base = KernelDesign(X, StationaryKernel("rbf", 1.0))
    design = CentredDesign(WeightedDesign(base, weight))
    got = np.sqrt(weight)[:, None] * design.basis(idx)(X)
    np.testing.assert_allclose(got, design.columns(idx), atol=1e-12)


def test_weights_of_whole_numbers_are_repetition():
    rng = np.random.default_rng(4)
    Phi, t = rng.standard_normal((10, 4)), rng.standard_normal(10)
    weight = np.array([1, 2, 3, 1, 1, 4, 1, 2, 1, 1])
    for wrap in (lambda d: d, CentredDesign):
        short = wrap(WeightedDesign(DenseDesign(Phi), weight.astype(float)))
        long = wrap(DenseDesign(np.repeat(Phi, weight, axis=0)))
        everything = np.arange(4)
        np.testing.assert_allclose(short.gram(everything), long.gram(everything), atol=1e-12)
        np.testing.assert_allclose(
            short.project(short.target(t)), long.project(long.target(np.repeat(t, weight)))
        )
        assert short.n_observations == long.n_observations
        assert short.log_volume == pytest.approx(long.log_volume)
        assert short.offset(t) == pytest.approx(long.offset(np.repeat(t, weight)))


def test_a_constant_column_becomes_exactly_zero_when_centred():
    rng = np.random.default_rng(5)
    Phi = np.column_stack([np.full(50, 0.1), 1e6 + rng.standard_normal(50), np.full(50, 1e9)])
    design = CentredDesign(DenseDesign(Phi))
    assert np.all(design.columns(np.array([0, 2])) == 0.0)
    R, t = design.triangle(np.arange(50.0)[:, None]), np.arange(50.0) @ design.columns([1])
    assert np.all(R[:, [0, 2]] == 0.0)
    assert (R.T @ R)[1, 3] == pytest.approx(t[0], rel=1e-6)
    assert design.sqnorms()[1] == pytest.approx(50 * Phi[:, 1].var(), rel=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_column_far_from_zero_is_centred_to_its_last_digit(weighted):
    # 200 units in the last place at 1e8: the sum of 9,000 such numbers is wrong by more than that.
    rng = np.random.default_rng(0)
    n = 9_000
    X = np.column_stack([1e8 + 3e-6 * rng.standard_normal(n), rng.standard_normal(n)])
    y, weight = rng.standard_normal(n), rng.uniform(0.5, 2.0, n) if weighted else np.ones(n)
    plain = DenseDesign(X)

    def design():
        return CentredDesign(WeightedDesign(plain, weight) if weighted else plain)

    shifted = X - np.round(X[0])  # exact
    Z = np.sqrt(weight)[:, None] * (shifted - np.average(shifted, axis=0, weights=weight))
    G, t, idx = Z.T @ Z, design().target(y), np.arange(2)
    size = np.sqrt(np.diag(G))
    R = design().triangle(t[:, None], idx)
    norms, products = design().sqnorms_and_products(t)
    for gram in (design().gram(idx), design().moments(t)[0], (R.T @ R)[:2, :2]):
        np.testing.assert_allclose(gram / np.outer(size, size), G / np.outer(size, size), atol=1e-7)
    for found in (design().sqnorms(), norms):
        np.testing.assert_allclose(found, size**2, rtol=1e-7)
    for found in (design().project(t), products, design().moments(t)[1]):
        np.testing.assert_allclose(found / size, Z.T @ t / size, atol=1e-9)
    assert design().inputs is plain.matrix
    np.testing.assert_allclose(design().basis(idx)(X), Z / np.sqrt(weight)[:, None], atol=2e-8)


def test_a_lazy_design_never_holds_n_by_n(monkeypatch):
    n = 3000
    X = np.random.default_rng(6).standard_normal((n, 2))
    design = KernelDesign(X, StationaryKernel("rbf", 1.0), cache_size=10)
    sizes = [block.size for _, block in design.blocks()]
    assert design._stored is None
    assert max(sizes) <= 2**18 + n
    assert sum(sizes) == n * n


@pytest.mark.parametrize("family", ["rbf", "laplacian", "sum"])
def test_products_that_use_both_sides_of_a_kernel_equal_those_of_its_columns(family, monkeypatch):
    monkeypatch.setattr("sparsebayes.designs.kernel._TILE", 16)
    rng = np.random.default_rng(9)
    X, V = 50.0 + rng.standard_normal((75, 2)), rng.standard_normal((75, 3))
    gamma = np.array([[0.3, 0.1], [0.5, 0.2]]) if family == "sum" else 0.3
    kernel = StationaryKernel(family, gamma)
    backwards = np.arange(75)[::-1]
    for centres in (None, backwards):
        design = KernelDesign(X, kernel, centres, cache_size=0)
        np.testing.assert_allclose(design.project(V), design.dense().T @ V, atol=1e-12)
        np.testing.assert_allclose(design.project(V[:, 0]), design.dense().T @ V[:, 0], atol=1e-12)
        np.testing.assert_allclose(
            design.project(V, backwards), design.dense()[:, ::-1].T @ V, atol=1e-12
        )


def test_torch_tensors_give_what_numpy_arrays_give():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(7)
    X, v = rng.standard_normal((40, 3)), rng.standard_normal(40)
    kernel = StationaryKernel("matern32", 0.5)
    for wrap in (lambda d: d, CentredDesign):
        ours = wrap(KernelDesign(X, kernel, cache_size=0))
        theirs = wrap(KernelDesign(torch.as_tensor(X), kernel, cache_size=0))
        idx = np.array([1, 5])
        np.testing.assert_allclose(theirs.project(v), ours.project(v), atol=1e-12)
        np.testing.assert_allclose(theirs.columns(idx), ours.columns(idx), atol=1e-12)
        np.testing.assert_allclose(theirs.gram(idx), ours.gram(idx), atol=1e-12)
        R, S = theirs.triangle(v[:, None], idx), ours.triangle(v[:, None], idx)
        np.testing.assert_allclose(R.T @ R, S.T @ S, atol=1e-12)
        np.testing.assert_allclose(
            wrap(DenseDesign(torch.as_tensor(X))).project(v), wrap(DenseDesign(X)).project(v)
        )


def test_gram_between_many_columns_and_few_of_a_lazy_kernel():
    X = np.random.default_rng(8).standard_normal((2100, 2))
    design = KernelDesign(X, StationaryKernel("rbf", 0.3), cache_size=0)
    many, few = np.arange(300), np.array([5, 2099])
    D = design.columns(np.concatenate([many, few]))
    np.testing.assert_allclose(design.gram(many, few), D[:, :300].T @ D[:, 300:], atol=1e-9)
