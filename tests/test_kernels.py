"""Kernel families: formulas, slopes, dtypes, and how gamma is read."""

import pickle
from itertools import combinations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import RBF, Matern, RationalQuadratic
from sklearn.metrics.pairwise import pairwise_kernels

from sparsebayes.designs import KernelBasis
from sparsebayes.kernels import (
    FAMILIES,
    BoundStationary,
    Box,
    StationaryKernel,
    formulas,
    make_kernel,
    resolve_gamma,
    rough,
)

LENGTHS = np.array([0.7, 1.3, 2.0])
GAMMA = 0.5 / LENGTHS**2
# The same functions, as scikit-learn writes them in length scales.
SKLEARN = {
    "rbf": RBF(LENGTHS),
    "matern52": Matern(LENGTHS, nu=2.5),
    "matern32": Matern(LENGTHS, nu=1.5),
    "matern12": Matern(LENGTHS, nu=0.5),
    "rq": RationalQuadratic(length_scale=1.0, alpha=1.0),
}


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.standard_normal((40, 3)), rng.standard_normal((7, 3))


@pytest.mark.parametrize("family", FAMILIES)
def test_families_equal_those_of_scikit_learn(family, rows):
    X, Z = rows
    K = StationaryKernel(family, GAMMA).bind(Z)(X)
    scaled = (X / LENGTHS, Z / LENGTHS) if family == "rq" else (X, Z)
    np.testing.assert_allclose(K, SKLEARN[family](*scaled), rtol=0, atol=1e-13)


def test_matern12_is_exact_for_rows_that_nearly_touch():
    Z = np.random.default_rng(0).standard_normal((5, 3))
    X = Z + 1e-9
    distance = np.sqrt(2.0 * np.sum(GAMMA) * 1e-18)
    K = StationaryKernel("matern12", GAMMA).bind(Z)(X)
    np.testing.assert_allclose(1.0 - np.diag(K), distance, rtol=1e-5)
    _, D = StationaryKernel("matern12", GAMMA).bind(Z).with_slope(Z + 1e-5)
    np.testing.assert_allclose(np.diag(D), 1e-4 / distance, rtol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_gamma_is_the_same_gamma_for_each_input(family, rows):
    X, Z = rows
    one = StationaryKernel(family, 0.3).bind(Z)(X)
    each = StationaryKernel(family, np.full(3, 0.3)).bind(Z)(X)
    np.testing.assert_array_equal(one, each)


@pytest.mark.parametrize("family", FAMILIES)
def test_scaling_an_input_by_ten_divides_its_gamma_by_a_hundred(family, rows):
    X, Z = rows
    factor = np.array([10.0, 1.0, 0.1])
    K = StationaryKernel(family, GAMMA).bind(Z)(X)
    scaled = StationaryKernel(family, GAMMA / factor**2).bind(Z * factor)(X * factor)
    np.testing.assert_allclose(scaled, K, rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_slope_is_minus_the_derivative_in_u(family):
    u = np.linspace(0.01, 8.0, 50)
    step = 1e-5 * u

    def k(values):
        return BoundStationary(family, 1.0, np.zeros((1, 1)))(np.sqrt(values)[:, None])[:, 0]

    _, D = BoundStationary(family, 1.0, np.zeros((1, 1))).with_slope(np.sqrt(u)[:, None])
    np.testing.assert_allclose(D[:, 0], -(k(u + step) - k(u - step)) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("family", FAMILIES)
def test_value_with_slope_is_the_value_and_uses_the_given_buffers(family, dtype, rows):
    X, Z = (part.astype(dtype) for part in rows)
    bound = StationaryKernel(family, GAMMA).bind(Z)
    out = np.empty((40, 7), dtype), np.empty((40, 7), dtype)
    K, D = bound.with_slope(X, out)
    assert K is out[0]
    assert D is out[1]
    np.testing.assert_array_equal(K, bound(X))
    np.testing.assert_array_equal(D, bound.with_slope(X)[1])


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_stays_float32_and_agrees(family, rows):
    X, Z = rows
    K32 = StationaryKernel(family, GAMMA).bind(Z.astype(np.float32))(X.astype(np.float32))
    assert K32.dtype == np.float32
    np.testing.assert_allclose(K32, StationaryKernel(family, GAMMA).bind(Z)(X), atol=2e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_far_from_the_origin_nothing_cancels(family, rows):
    X, Z = rows
    far = StationaryKernel(family, GAMMA).bind(Z + 1e6)(X + 1e6)
    np.testing.assert_allclose(far, StationaryKernel(family, GAMMA).bind(Z)(X), atol=1e-8)


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_rows_have_kernel_one_and_a_finite_slope(family):
    Z = np.random.default_rng(1).standard_normal((50, 4)) * 100.0
    K, D = StationaryKernel(family, 0.3).bind(Z).with_slope(Z)
    assert np.all(K <= 1.0)
    np.testing.assert_allclose(np.diag(K), 1.0, atol=1e-5)
    assert np.all(np.isfinite(D))


def test_an_input_of_gamma_zero_is_ignored(rows):
    X, Z = rows
    gamma = np.array([0.5, 0.0, 0.2])
    K = StationaryKernel("rbf", gamma).bind(Z)(X)
    u = 0.5 * cdist(X[:, :1], Z[:, :1]) ** 2 + 0.2 * cdist(X[:, 2:], Z[:, 2:]) ** 2
    np.testing.assert_allclose(K, np.exp(-u), rtol=1e-12)


@pytest.mark.parametrize("name", ["poly", "linear"])
def test_other_names_go_to_scikit_learn(name, rows):
    X, Z = rows
    K = make_kernel(name, gamma=0.4, degree=2, coef0=0.5).bind(Z)(X)
    params = {"gamma": 0.4, "degree": 2, "coef0": 0.5}
    np.testing.assert_array_equal(
        K, pairwise_kernels(X, Z, metric=name, filter_params=True, **params)
    )


def rough_and_sum(X, Z):
    rates, share = np.array([0.5, 0.0, 2.0]), 0.3
    product = np.exp(-0.5 * cdist(X[:, :1], Z[:, :1]) - 2.0 * cdist(X[:, 2:], Z[:, 2:]))
    smooth = StationaryKernel("matern52", GAMMA).bind(Z)(X)
    return [
        (StationaryKernel("laplacian", rates), product),
        (StationaryKernel("sum", np.stack([GAMMA, rates]), share), 0.7 * smooth + 0.3 * product),
    ]


def test_the_rough_kernel_is_a_product_over_inputs_and_the_sum_adds_a_smooth_one(rows):
    for kernel, expected in rough_and_sum(*rows):
        np.testing.assert_allclose(kernel.bind(rows[1])(rows[0]), expected, rtol=1e-12)
        np.testing.assert_array_equal(kernel.diagonal(rows[0]), 1.0)


def test_the_additive_kernel_is_a_sum_over_sets_of_inputs(rows):
    X, Z = rows
    rate, weight = np.array([0.5, 1.0, 2.0]), np.array([0.3, 2.0, 0.7])
    each = [
        w * np.exp(-r * cdist(X[:, [j]], Z[:, [j]]))
        for j, (r, w) in enumerate(zip(rate, weight, strict=True))
    ]
    sets = [s for k in range(4) for s in combinations(range(3), k)]
    expected = sum(np.prod([each[j] for j in s], axis=0) for s in sets) / np.prod(1.0 + weight)
    kernel = StationaryKernel("additive", np.stack([rate, weight]))
    np.testing.assert_allclose(kernel.bind(Z)(X), expected, rtol=1e-12)
    np.testing.assert_allclose(np.diag(kernel.bind(X)(X)), kernel.diagonal(X), rtol=1e-12)


def test_an_input_of_rate_or_weight_zero_has_no_part_in_an_additive_kernel(rows):
    X, Z = rows
    first = StationaryKernel("additive", np.array([[1.0], [0.5]])).bind(Z[:, :1])(X[:, :1])
    all_three = StationaryKernel("additive", np.array([[1.0, 0.0, 3.0], [0.5, 2.0, 0.0]]))
    np.testing.assert_allclose(all_three.bind(Z)(X), first, rtol=1e-14)


def test_laplacian_of_one_gamma_is_that_of_scikit_learn(rows):
    X, Z = rows
    K = make_kernel("laplacian", gamma=0.4).bind(Z)(X)
    np.testing.assert_allclose(K, pairwise_kernels(X, Z, metric="laplacian", gamma=0.4), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rough_kernels_in_blocks_and_in_given_memory_are_the_same(dtype, monkeypatch, rows):
    X, Z = (part.astype(dtype) for part in rows)
    for kernel, expected in rough_and_sum(*rows):
        bound = kernel.bind(Z)
        whole = bound(X)
        assert whole.dtype == dtype
        np.testing.assert_allclose(whole, expected, atol=2e-6 if dtype == np.float32 else 1e-14)
        out = [np.empty((40, 7), dtype) for _ in range(1 + bound.n_slopes)]
        assert bound(X, out[0]) is out[0]
        np.testing.assert_array_equal(out[0], whole)
        assert bound.with_slope(X, out)[0] is out[0]
        np.testing.assert_array_equal(out[0], whole)
        monkeypatch.setattr(rough, "_IN_CACHE", 20)  # two rows at a time
        np.testing.assert_array_equal(kernel.bind(Z)(X), whole)
        monkeypatch.undo()


def test_rough_kernels_are_positive_definite_and_one_at_their_centres():
    X = np.random.default_rng(0).standard_normal((60, 3))
    for kernel, _ in rough_and_sum(X, X):
        K = kernel.bind(X)(X)
        np.testing.assert_allclose(np.diag(K), 1.0, rtol=1e-12)
        assert np.linalg.eigvalsh(K).min() > 1e-6


@pytest.mark.parametrize("family", ["matern52", "laplacian", "sum", "additive"])
def test_half_of_a_symmetric_matrix_gives_the_sums_of_all_of_it(family, monkeypatch):
    rng = np.random.default_rng(0)
    Z, W, U = (rng.standard_normal(shape) for shape in ((50, 4), (50, 50), (50, 2)))
    both = np.stack([[0.3, 1.0, 0.0, 2.0], [0.5, 2.0, 1.0, 0.1]])
    kernel = StationaryKernel(family, both if family in ("sum", "additive") else both[0], 0.3)
    monkeypatch.setattr(rough, "_IN_CACHE", 2000)  # some rows at a time
    bound, W = kernel.bind(Z), W + W.T
    expected = bound.length_derivatives(W.copy(), Z, U, None, bound.with_slope(Z))
    parts = bound.with_slope(None)
    for part, whole in zip(parts, bound.with_slope(Z), strict=True):
        np.testing.assert_allclose(part, whole, rtol=1e-12, atol=1e-14)
    gradient, at_rows, _ = bound.length_derivatives(np.tril(W), None, U, None, parts)
    np.testing.assert_allclose(gradient, expected[0], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(at_rows, expected[1], rtol=1e-10, atol=1e-10)


def test_the_additive_kernel_is_right_at_rows_whose_exponentials_are_no_numbers(rows):
    X, Z = rows
    X = np.vstack([X, [[1e4, 0.0, 0.0], [0.0, -1e300, 0.0]]])
    rate, weight = np.array([0.5, 1.0, 2.0]), np.array([0.3, 2.0, 0.7])
    with np.errstate(over="raise", invalid="raise"):
        K = StationaryKernel("additive", np.stack([rate, weight])).bind(Z)(X)
    each = 1.0 + weight * np.exp(-rate * np.abs(X[:, None] - Z))
    np.testing.assert_allclose(K, np.prod(each / (1.0 + weight), axis=2), rtol=1e-12)


def test_callables_and_diagonals_go_through(rows):
    X, Z = rows

    def product(x, z):
        return float(x @ z)

    kernel = make_kernel(product, gamma=1.0)
    np.testing.assert_allclose(kernel.bind(Z)(X), X @ Z.T)
    np.testing.assert_allclose(kernel.diagonal(X), np.sum(X**2, axis=1))


def test_gamma_scale_is_that_of_svr_and_counts_weights_as_rows(rows):
    X, _ = rows
    assert resolve_gamma("scale", X) == pytest.approx(1.0 / (3 * X.var()))
    weight = np.random.default_rng(2).integers(1, 4, len(X)).astype(float)
    repeated = np.repeat(X, weight.astype(int), axis=0)
    assert resolve_gamma("scale", X, weight) == pytest.approx(resolve_gamma("scale", repeated))


def test_gamma_median_is_the_median_distance(rows):
    X, _ = rows
    distances = cdist(X, X)[np.triu_indices(len(X), 1)]
    assert resolve_gamma("median", X) == pytest.approx(0.5 / np.median(distances) ** 2)


@pytest.mark.parametrize(
    ("gamma", "words"),
    [
        ("medium", "not valid"),
        (-1.0, "positive"),
        (np.nan, "positive"),
        (np.zeros(3), "positive"),
        (np.ones(2), "one number per input"),
    ],
)
def test_gamma_that_means_nothing_is_refused(gamma, words, rows):
    with pytest.raises(ValueError, match=words):
        resolve_gamma(gamma, rows[0])


@pytest.mark.parametrize("gamma", ["scale", 0.5, np.ones(3), np.ones((3, 3))])
def test_the_sum_takes_two_rows_of_widths(gamma, rows):
    with pytest.raises(ValueError, match="a smooth and a rough part"):
        resolve_gamma(gamma, rows[0], kernel="sum")
    for shape in ((2,), (2, 3)):
        assert resolve_gamma(np.ones(shape), rows[0], kernel="sum").shape == shape


def test_unknown_kernels_and_gammas_they_cannot_take_are_refused():
    with pytest.raises(ValueError, match="kernel='rbff' is not valid"):
        make_kernel("rbff", gamma=1.0)
    with pytest.raises(ValueError, match="requires a single gamma"):
        make_kernel("poly", gamma=np.ones(3))


@pytest.mark.parametrize("gamma", ["scale", "median"])
@pytest.mark.parametrize("size", [1e-150, 1e150, 1e158])
def test_widths_of_extreme_inputs_are_those_of_plain_ones(gamma, size):
    X = np.random.default_rng(0).standard_normal((40, 3))
    plain = resolve_gamma(gamma, X)
    np.testing.assert_allclose(resolve_gamma(gamma, size * X) * size * size, plain, rtol=1e-3)


@pytest.mark.parametrize("gamma", ["scale", "median"])
@pytest.mark.parametrize("size", [1e-160, 1e-154])  # no number; too large to be multiplied
def test_a_width_that_float64_does_not_have_is_a_sentence(gamma, size):
    X = np.random.default_rng(0).standard_normal((40, 3))
    with pytest.raises(ValueError, match="underflows float64 when squared. Rescale X"):
        resolve_gamma(gamma, size * X)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_kernel_is_one_at_its_centre_however_narrow(family):
    X = 1e6 * np.random.default_rng(0).standard_normal((20, 3))
    bound = StationaryKernel(family, 1e4).bind(X)
    np.testing.assert_array_equal(np.diag(bound(X)), 1.0)
    K, D = bound.with_slope(X[:5], (np.empty((5, 20)), np.empty((5, 20))))
    np.testing.assert_array_equal(np.diag(K), 1.0)
    assert np.all(np.isfinite(D))
    # Where both ways are right they agree.
    near = StationaryKernel(family, 0.3).bind(X[:7] * 1e-6)
    A = (X * 1e-6 - near._shift) * near._scale
    np.testing.assert_allclose(
        near._direct_distances(A, None), near._distances(X * 1e-6), atol=1e-12
    )


@pytest.mark.parametrize("family", [*FAMILIES, "laplacian", "sum"])
def test_few_rows_have_the_values_that_they_have_among_many(family, rows):
    X, Z = rows
    gamma = np.array([GAMMA, 2.0 * GAMMA]) if family == "sum" else GAMMA
    basis = KernelBasis(StationaryKernel(family, gamma), Z)
    many = np.vstack([X] * 3)
    assert len(many) > formulas.FEW_ROWS >= len(X)
    np.testing.assert_allclose(basis(X), basis(many)[: len(X)], rtol=1e-14, atol=1e-15)
    assert pickle.dumps(basis) == pickle.dumps(KernelBasis(basis.kernel, basis.centres))


def test_merged_boxes_hold_the_rows_of_both_and_name_nearest_points():
    rng = np.random.default_rng(0)
    X, new = rng.uniform(-1.0, 1.0, (50, 3)), rng.uniform(-3.0, 3.0, (200, 3))
    box, kernel = Box(X.min(axis=0), X.max(axis=0)), StationaryKernel("rbf", 0.5)
    assert box.nearest(X) is X
    nearest = box.nearest(new)
    grid = np.stack(np.meshgrid(*np.linspace(box.low, box.high, 15).T), -1).reshape(-1, 3)
    least = np.min(np.linalg.norm(new[:, None] - grid, axis=2), axis=1)
    assert np.all(np.linalg.norm(new - nearest, axis=1) <= least + 1e-12)
    k = np.exp(-0.5 * np.sum((new - nearest) ** 2, axis=1))
    np.testing.assert_allclose(box.correlation(kernel, new), k, rtol=1e-12)
    wider = box.merge(Box.of(new))
    assert wider.nearest(new) is new
    assert wider.nearest(X) is X
