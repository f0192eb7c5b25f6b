"""The process of functions and neighbours against the dense one."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from sparsebayes.designs import KernelBasis
from sparsebayes.kernels import STATIONARY, StationaryKernel
from sparsebayes.solvers.gp import cells as cells_module
from sparsebayes.solvers.gp.cells import cut_cells
from sparsebayes.solvers.gp.neighbour_scales import _power
from sparsebayes.solvers.gp.neighbours import (
    NearestRows,
    NeighbourProcess,
    UniqueRows,
    fit_global,
    whiten,
)

LAM, AMPLITUDE = 0.03, 2.0


def a_kernel(family, d=3):
    gamma = np.linspace(0.2, 0.5, d)
    return StationaryKernel(family, np.stack([gamma, gamma[::-1]]) if family == "sum" else gamma)


def rows(n=60, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, d))
    return X, 3.0 + np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)


def made(
    kernel,
    X,
    y,
    weight=None,
    m=None,
    centres=12,
    intercept=True,
    single=False,
    scale=1.0,
    lam=LAM,
):
    """A process with the first rows as centres."""
    Z = X[:centres]
    unique = UniqueRows.from_rows(
        X, y / scale, np.ones(len(y)) if weight is None else weight, single
    )
    basis = KernelBasis(kernel, Z)
    L = np.linalg.cholesky(basis(Z) + 1e-12 * np.eye(len(Z)))
    fit = fit_global(whiten(basis, L, unique), unique, lam, intercept)
    m = len(X) if m is None else m
    return NeighbourProcess(basis, unique, fit, lam, AMPLITUDE, scale, m, True)


def dense(kernel, X, y, new, weight=None, intercept=True, lam=LAM):
    """Mean and covariance of the function under the process of all rows."""
    n = len(y)
    M = kernel.bind(X)(X) + np.diag(lam / (np.ones(n) if weight is None else weight))
    K, one = kernel.bind(X)(new), np.ones(n)
    q = np.linalg.solve(M, one)
    b = q @ y / q.sum() if intercept else 0.0
    mean = b + K @ np.linalg.solve(M, y - b)
    covariance = kernel.bind(new)(new) - K @ np.linalg.solve(M, K.T)
    if intercept:
        covariance += np.multiply.outer(1 - K @ q, 1 - K @ q) / q.sum()
    return mean, AMPLITUDE * covariance


@pytest.mark.parametrize("family", STATIONARY)
def test_kernels_among_small_sets_are_those_of_rows(family):
    kernel = a_kernel(family)
    stacks = np.random.default_rng(0).uniform(-2, 2, (4, 7, 3))
    plain = np.stack([kernel.bind(X)(X) for X in stacks])
    np.testing.assert_allclose(kernel.among(stacks), plain, atol=1e-7)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("family", ["sum", "rbf", "matern32", "laplacian"])
@pytest.mark.parametrize("centres", [0, 12])
def test_all_rows_as_neighbours_are_the_dense_process(family, intercept, centres):
    kernel, (X, y) = a_kernel(family), rows()
    X, y = np.vstack([X, X[:9]]), np.append(y, y[:9] + 0.1)  # some of them twice
    weight = np.random.default_rng(1).integers(1, 4, len(y)).astype(float)
    new = np.vstack([rows(10, seed=2)[0], X[:3], np.full((1, 3), 50.0)])
    process = made(kernel, X, y, weight, centres=centres, intercept=intercept)
    mean, variance = process.predict(new)
    truth, covariance = dense(kernel, X, y, new, weight, intercept)
    np.testing.assert_allclose(mean, truth, rtol=1e-8)
    np.testing.assert_allclose(variance, np.diag(covariance), rtol=1e-8, atol=1e-10)
    together = process.joint(new)
    np.testing.assert_allclose(together[0], truth, rtol=1e-8)
    np.testing.assert_allclose(together[1], covariance, rtol=1e-8, atol=1e-9)


def test_functions_that_span_everything_leave_nothing_to_neighbours():
    kernel, (X, y) = a_kernel("matern52"), rows()
    new = rows(20, seed=2)[0]
    truth, _covariance = dense(kernel, X, y, new)
    for m in (1, 5, 20):
        mean, variance = made(kernel, X, y, m=m, centres=len(X)).predict(X)
        inside, inner = dense(kernel, X, y, X)
        np.testing.assert_allclose(mean, inside, rtol=1e-7)
        np.testing.assert_allclose(variance, np.diag(inner), rtol=1e-6)
    # Beside the rows there is a process outside, which a few neighbours know nearly all of.
    mean, variance = made(kernel, X, y, m=30, centres=len(X)).predict(new)
    np.testing.assert_allclose(mean, truth, atol=0.02)


def test_more_neighbours_are_nearer_to_the_process():
    kernel, (X, y) = a_kernel("laplacian"), rows(300)
    new = rows(50, seed=2)[0]
    truth = dense(kernel, X, y, new)[0]
    gaps = [
        np.mean((made(kernel, X, y, m=m).predict(new)[0] - truth) ** 2) for m in (1, 4, 16, 64, 256)
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.01 * gaps[0]


def test_rows_left_out_are_those_of_fits_without_them():
    kernel, (X, y) = a_kernel("sum"), rows(40)
    X, y = np.vstack([X, X[:4]]), np.append(y, y[:4] + 0.2)
    left = made(kernel, X, y).leave_one_out()
    for i in (0, 7, 20, 41):
        rest = np.delete(np.arange(len(y)), i)
        mean, covariance = dense(kernel, X[rest], y[rest], X[i : i + 1])
        assert left.residual[i] == pytest.approx(y[i] - mean[0], rel=1e-7)
        noise = LAM * AMPLITUDE
        assert left.variance[i] == pytest.approx(covariance[0, 0] + noise, rel=1e-7)


@pytest.mark.parametrize("by_cells", [False, True])
def test_rows_left_out_keep_their_digits_where_there_is_hardly_any_noise(by_cells):
    # One minus a leverage, lam over the variance of the function, is 1e-10 at isolated rows.
    lam, kernel, (X, y) = 1e-10, a_kernel("laplacian"), rows(80)
    process = made(kernel, X, y, m=20, centres=0, intercept=False, lam=lam)
    process = with_cells(process) if by_cells else process
    left = process.leave_one_out()
    nearest = process.cache().nearest(process.rows.X, 20)
    for i in range(0, 80, 7):
        others = np.setdiff1d(np.arange(80) if by_cells else nearest[i], i)
        mean, covariance = dense(
            kernel, X[others], y[others], X[i : i + 1], intercept=False, lam=lam
        )
        assert left.residual[i] == pytest.approx(y[i] - mean[0], rel=1e-4)
        assert left.variance[i] == pytest.approx(covariance[0, 0] + lam * AMPLITUDE, rel=1e-4)


def test_a_row_among_many_at_distance_zero_is_left_out():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.repeat([0.0, 1.0], 30), rng.uniform(0, 1, 60)])
    kernel = StationaryKernel("rbf", np.array([1.0, 0.0]))  # blind for the second input
    process = made(kernel, X, rng.standard_normal(60), m=4, centres=0, intercept=False)
    left, mean_weight = process.leave_one_out(), 3 / (3 + LAM)
    # Given the mean of three others: the variance of the function is LAM/(3 + LAM).
    np.testing.assert_allclose(left.variance, AMPLITUDE * (1 - mean_weight + LAM), rtol=1e-9)


def test_whitened_functions_reproduce_a_smooth_kernel():
    rng = np.random.default_rng(0)
    Z = rng.uniform(-1, 1, (200, 3))
    basis = KernelBasis(StationaryKernel("rbf", 0.3), Z)
    K = basis(Z)
    L = np.linalg.cholesky(K + 1e-12 * np.eye(200))
    unique = UniqueRows.from_rows(Z, np.zeros(200), np.ones(200), single=False)
    white = whiten(basis, L, unique)
    # Products with the inverse of L are off by 1e-7.
    np.testing.assert_allclose(white.phi @ white.phi.T, K, atol=1e-11)
    assert np.max(white.residual) < 1e-11


def test_global_evidence_is_that_of_the_dense_formula():
    kernel, (X, y) = a_kernel("matern32"), rows()
    weight = np.random.default_rng(1).integers(1, 4, len(y)).astype(float)
    fit = made(kernel, X, y, weight, intercept=False).fit
    value = -0.5 * (weight.sum() * np.log(2 * np.pi * AMPLITUDE) + fit.log_det)
    value -= 0.5 * fit.square / AMPLITUDE
    again = np.repeat(np.arange(len(y)), weight.astype(int))
    H = kernel.bind(X[:12])(X)
    Q = H @ np.linalg.solve(kernel.bind(X[:12])(X[:12]) + 1e-12 * np.eye(12), H.T)
    S = Q[np.ix_(again, again)] + np.diag(1.0 - np.diag(Q)[again] + LAM)
    S, t = AMPLITUDE * S, y[again]
    plain = -0.5 * (len(t) * np.log(2 * np.pi) + np.linalg.slogdet(S)[1])
    assert value == pytest.approx(plain - 0.5 * t @ np.linalg.solve(S, t), rel=1e-9)


def test_a_row_far_from_all_knows_the_global_part_alone():
    kernel, (X, y) = a_kernel("rbf"), rows()
    process = made(kernel, X, y, m=8)
    for far in (1e2, 1e4, 1e12):
        mean, variance = process.predict(np.full((1, 3), far))
        assert abs(mean[0] - y.mean()) < np.sqrt(AMPLITUDE * process.fit.offset_variance) + 0.5
        assert AMPLITUDE < variance[0] < 1.3 * AMPLITUDE


def test_outliers_among_the_rows_change_nothing():
    kernel, (X, y) = a_kernel("sum"), rows(200)
    far = np.vstack([X, 1e6 * np.ones((3, 3))])
    plain = made(kernel, X, y, m=20, intercept=False).predict(X[:30])
    with_far = made(kernel, far, np.append(y, [1.0, 2.0, 3.0]), m=20, intercept=False)
    for a, b in zip(with_far.predict(X[:30]), plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("d", [3, 25])
def test_the_nearest_rows_are_the_nearest(d):
    rng = np.random.default_rng(0)
    X, new = rng.standard_normal((2000, d)), rng.standard_normal((50, d))
    gamma = rng.uniform(0.1, 1.0, d)
    found = NearestRows(StationaryKernel("rbf", gamma), X, rough=False)(new, 10)
    distance = ((new[:, None] - X) ** 2) @ gamma
    nearest = np.sort(distance, axis=1)[:, :10]
    there = np.take_along_axis(distance, found, axis=1)
    assert np.all(np.diff(there, axis=1) >= -1e-12)
    assert np.all(there <= 1.25**2 * nearest * (1 + 1e-9))
    assert np.mean(there == nearest) > 0.95


def test_float32_rows_predict_the_same():
    kernel, (X, y) = a_kernel("sum"), rows(300)
    X = X + 1e6  # far from the origin: float32 holds the differences
    new = rows(40, seed=2)[0] + 1e6
    exact, single = (made(kernel, X, y, m=20, single=s) for s in (False, True))
    for a, b in zip(exact.predict(new), single.predict(new), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4)
    assert single.rows.X.dtype == single.cache().phi.dtype == np.float32


def test_threads_and_saving_change_nothing():
    kernel, (X, y) = a_kernel("sum"), rows(300)
    new = rows(1200, seed=2)[0]
    process = made(kernel, X, y, m=10)
    plain = process.predict(new)
    for other in (process.predict(new, n_jobs=2), pickle.loads(pickle.dumps(process)).predict(new)):
        for a, b in zip(other, plain, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
    assert len(pickle.dumps(process)) < 40_000  # rows and functions; no tree, nothing derived


def test_too_many_rows_together_are_refused():
    kernel, (X, y) = a_kernel("rbf"), rows(4500)
    with pytest.raises(ValueError, match="distinct neighbours, but a joint distribution"):
        made(kernel, X, y, m=50).joint(X)


def with_cells(process):
    """The same process, told by the rows of cells."""
    cache = process.cache()
    cells = cut_cells(cache.nearest, process.rows.X, process.m)
    return replace(process, cells=process.solve_cells(cells, cache.take))


@pytest.fixture
def small_cells(monkeypatch):
    """Cells of up to 24 rows, told by sixty."""
    monkeypatch.setattr(cells_module, "_MOST_OF_CELL", 60)
    monkeypatch.setattr(cells_module, "_DIRECT", 60)
    monkeypatch.setattr(cells_module, "_SINGLE", np.inf)  # all in float64


def test_a_row_is_among_the_rows_of_its_cell(small_cells):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 2, 500), rng.integers(0, 3, 500), rng.uniform(0, 1, 500)])
    kernel = StationaryKernel("laplacian", np.array([1.0, 3.0, 0.0]))  # blind for the third
    cells = cut_cells(NearestRows(kernel, X, True), X, 20)
    of, sizes = cells.find(X), np.diff(cells.first)
    assert np.max(np.bincount(of)) <= 24
    assert np.max(sizes) <= 60
    assert all(i in cells.rows[cells.part(c)] for i, c in enumerate(of))
    assert all(len(np.unique(cells.rows[cells.part(c)])) == sizes[c] for c in range(len(sizes)))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("family", ["sum", "matern32"])
@pytest.mark.parametrize("centres", [0, 12])
def test_rows_of_a_cell_tell_what_they_would_as_neighbours(family, intercept, centres, small_cells):
    kernel, (X, y) = a_kernel(family), rows(300)
    weight = np.random.default_rng(1).integers(1, 4, len(y)).astype(float)
    new = rows(40, seed=2)[0]
    process = with_cells(made(kernel, X, y, weight, 10, centres, intercept, scale=3.0))
    cells, cache = process.cells, process.cache()
    assert len(cells.offset) > 3

    def plain(A, cells=cells):
        found = []
        for a, c in zip(A - process.rows.shift, cells.find(A - process.rows.shift), strict=True):
            phi = process._phi(a[None], cache)
            N = cells.rows[cells.part(c)]
            found.append(process._conditional(a[None, None], phi[None], N[None], cache))
        mean, variance = (np.ravel(np.concatenate(part)) for part in zip(*found, strict=True))
        return mean * 3.0, variance * AMPLITUDE * 9.0

    np.testing.assert_allclose(
        process.predict(new, return_variance=False)[0], plain(new)[0], rtol=1e-8
    )
    np.testing.assert_allclose(process.predict(new)[0], plain(new)[0], rtol=1e-8)
    some = np.arange(0, 300, 7)
    finer = cut_cells(cache.nearest, process.rows.X, process.m, loo=True)
    left, (mean, variance) = process.leave_one_out(rows=some), plain(X[some], finer)
    np.testing.assert_allclose(left.gap, y[some] - mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(left.spread, variance, rtol=1e-7)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("centres", [0, 12])
def test_conjugate_gradients_solve_what_one_factor_does(centres, intercept, single, monkeypatch):
    kernel, (X, y) = a_kernel("sum"), rows(300)
    weight, new = np.random.default_rng(1).integers(1, 4, 300).astype(float), rows(40, seed=2)[0]
    process = made(kernel, X, y, weight, 10, centres, intercept, single)
    monkeypatch.setattr(cells_module, "_BLOCK", 32)
    monkeypatch.setattr(cells_module, "_SINGLE", 0.0 if single else np.inf)
    for most in (300, 100):  # all rows, whose constant is flat; some, which know more of it
        monkeypatch.setattr(cells_module, "_MOST_OF_CELL", most)
        monkeypatch.setattr(cells_module, "_DIRECT", 300)
        truth = with_cells(process).predict(new)[0]
        monkeypatch.setattr(cells_module, "_DIRECT", 50)
        found, variance = with_cells(process).predict(new)
        assert np.mean((found - truth) ** 2) < 0.01 * np.mean(variance)
        with monkeypatch.context() as precise:
            precise.setattr(cells_module, "_MOST_STEPS", 1000)
            precise.setattr(cells_module, "_PRECISE", 1e-4 if single else 1e-9)
            found = with_cells(process).predict(new)[0]
            np.testing.assert_allclose(found, truth, atol=2e-3 if single else 1e-7)


def test_steps_that_do_not_end_are_an_error(monkeypatch):
    kernel, (X, y) = a_kernel("sum"), rows(300)
    for name, value in (("_BLOCK", 32), ("_DIRECT", 50), ("_MOST_STEPS", 1)):
        monkeypatch.setattr(cells_module, name, value)
    with pytest.raises(np.linalg.LinAlgError, match="Conjugate gradients did not converge"):
        with_cells(made(kernel, X, y, m=10))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("family", STATIONARY)
def test_a_lower_triangle_of_kernel_values_is_that_of_all(family, dtype):
    kernel, X = a_kernel(family), rows(600)[0].astype(dtype)
    tolerance = 1e-7 if dtype == np.float64 else 1e-3 if family == "matern12" else 1e-5
    K = kernel.lower(X)
    assert K.flags.f_contiguous
    assert K.dtype == dtype
    np.testing.assert_allclose(np.tril(K), np.tril(kernel.bind(X)(X)), atol=tolerance)


def test_one_cell_of_all_rows_leaves_out_as_refits_do():
    kernel, (X, y) = a_kernel("sum"), rows(60)
    X, y = np.vstack([X, X[:4]]), np.append(y, y[:4] + 0.2)
    process = with_cells(made(kernel, X, y, m=8))
    new = rows(10, seed=2)[0]
    np.testing.assert_allclose(process.predict(new)[0], dense(kernel, X, y, new)[0], rtol=1e-8)
    left = process.leave_one_out()
    for i in (0, 7, 20, 61):
        rest = np.delete(np.arange(len(y)), i)
        mean, covariance = dense(kernel, X[rest], y[rest], X[i : i + 1])
        assert left.residual[i] == pytest.approx(y[i] - mean[0], rel=1e-7)
        assert left.variance[i] == pytest.approx(covariance[0, 0] + LAM * AMPLITUDE, rel=1e-7)


def test_cells_of_float32_rows_predict_the_same(small_cells, monkeypatch):
    monkeypatch.setattr(cells_module, "_SINGLE", 0.0)
    kernel, (X, y) = a_kernel("sum"), rows(400)
    X = X.astype(np.float32).astype(np.float64)
    new = rows(50, seed=2)[0]
    for gap in (0.0, 1e4):
        double, single = (
            with_cells(made(kernel, X + gap, y, m=10, single=one)) for one in (False, True)
        )
        np.testing.assert_allclose(
            single.predict(new + gap)[0], double.predict(new + gap)[0], atol=1e-3
        )
        np.testing.assert_allclose(
            single.leave_one_out().gap, double.leave_one_out().gap, atol=1e-3
        )


def test_a_power_of_the_variance_leaves_far_rows_as_they_are(small_cells):
    kernel, (X, y) = a_kernel("laplacian"), rows(300)
    plain = with_cells(made(kernel, X, y, m=10))
    less = replace(plain, power=2.0)
    new = np.vstack([rows(20, seed=2)[0], np.full((1, 3), 1e4)])
    before, after = plain.predict(new)[1], less.predict(new)[1]
    assert np.all(after[:-1] < before[:-1])
    assert after[-1] == pytest.approx(before[-1], rel=1e-9)
    for i in (0, 20):
        mean, covariance = less.joint(new[i : i + 1])
        assert covariance[0, 0] == pytest.approx(after[i], rel=1e-9)
        assert mean[0] == pytest.approx(less.predict(new)[0][i], rel=1e-9)


def test_the_power_gives_the_mean_variance_that_is_wanted():
    rng = np.random.default_rng(0)
    prior, near = rng.uniform(0.5, 1.0, 200), rng.uniform(0.05, 0.4, 200)
    near[0] = 0.0
    count = rng.integers(1, 4, 200).astype(float)
    power = _power(prior, near, near * 0.8, count)
    assert power > 1
    found = np.average(prior * (near / prior) ** power, weights=count)
    assert found == pytest.approx(0.8 * np.average(near, weights=count), rel=1e-9)
    assert _power(prior, near, near, count) == pytest.approx(1.0, rel=1e-9)


def test_cells_survive_threads_and_saving(small_cells):
    kernel, (X, y) = a_kernel("sum"), rows(300)
    process = with_cells(made(kernel, X, y, m=10))
    new = rows(700, seed=2)[0]
    again = pickle.loads(pickle.dumps(process))
    for other in (process.predict(new, n_jobs=2), again.predict(new)):
        np.testing.assert_array_equal(other, process.predict(new))
    np.testing.assert_array_equal(again.leave_one_out(2).residual, process.leave_one_out().residual)
