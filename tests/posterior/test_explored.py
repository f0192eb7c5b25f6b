"""The variance where training rows are rare: `posterior.added.Explored`."""

from __future__ import annotations

import importlib.util
import shutil

import numpy as np
import pytest

from sparsebayes import OrthogonalLeastSquaresRegressor, RVMRegressor, export_model
from sparsebayes.kernels import Box, StationaryKernel
from sparsebayes.posterior import Explored, Extrapolation, added, process_variance

KERNEL = StationaryKernel("rbf", 0.5)
NOISE = 0.1


def with_gap(n, seed=0):
    """Return rows of two inputs, none of which is in the middle third of the first."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (n, 2))
    X[:, 0] = np.sign(X[:, 0]) * rng.uniform(1.5, 3.0, n)
    return X


def gram(A, B):
    return np.exp(-0.5 * ((A[:, None] - B[None]) ** 2).sum(-1))


def variance_by_hand(X, new, weight):
    """Return the variance of the process by brute force."""
    K = gram(X, X) + np.diag(NOISE / weight)
    k = gram(X, new)
    return 1.0 - np.einsum("ij,ij->j", k, np.linalg.solve(K, k))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("left_over", "largest"), [(1e-6, 1e-4), (0.1, NOISE)])
def test_the_lack_of_rows_is_the_variance_of_a_process(monkeypatch, weighted, left_over, largest):
    monkeypatch.setattr(added, "_LEFT_OVER", left_over)
    rng = np.random.default_rng(1)
    X, new = with_gap(60), rng.uniform(-4.0, 4.0, (300, 2))
    count, precision = np.ones(60), rng.uniform(0.3, 2.0, 60) if weighted else None
    weight = count if precision is None else precision
    explored = Explored.from_rows(KERNEL, X, count, precision, NOISE)
    others = [np.flatnonzero(np.arange(60) != i) for i in range(60)]
    left_out = [
        float(variance_by_hand(X[some], X[i : i + 1], weight[some])[0])
        for i, some in enumerate(others)
    ]
    expected = np.maximum(variance_by_hand(X, new, weight) - np.sort(left_out)[53], 0.0)
    assert np.max(np.abs(explored.lack(new) - expected)) < largest
    assert np.max(explored.lack(new)) > 0.5
    assert len(explored.root) <= 60


def test_repetition_and_weights_say_the_same():
    X, new = with_gap(60), with_gap(60, seed=1) * 0.5
    weight = np.random.default_rng(0).integers(1, 4, 60).astype(float)
    rows = np.repeat(np.arange(60), weight.astype(int))
    one = Explored.from_rows(KERNEL, X, weight, None, NOISE)
    other = Explored.from_rows(KERNEL, X[rows], np.ones(len(rows)), None, NOISE)
    assert np.max(one.lack(new)) > 0.3
    np.testing.assert_allclose(one.lack(new), other.lack(new), atol=1e-9)


def test_rough_kernels_need_more_functions_than_there_are(monkeypatch):
    monkeypatch.setattr(added, "_MOST_FOR_NOISE", 150)
    rng = np.random.default_rng(0)
    rough, X, new = StationaryKernel("laplacian", 0.5), with_gap(200), rng.uniform(-3, 3, (300, 2))
    explored = Explored.from_rows(rough, X, np.ones(200), None, NOISE)
    assert len(explored.root) == added._MOST_CENTRES
    inverse = np.linalg.inv(rough.bind(X)(X) + NOISE * np.eye(200))
    typical = np.sort(1.0 / np.diag(inverse) - NOISE)[179]
    k = rough.bind(X)(new)
    expected = np.maximum(1.0 - np.einsum("ij,ij->i", k @ inverse, k) - typical, 0.0)
    assert np.max(expected) > 0.3
    np.testing.assert_allclose(explored.lack(new), expected, atol=0.5 * NOISE)


def test_rows_without_a_gap_and_rows_that_are_hardly_known_are_not_compared():
    X = np.random.default_rng(0).uniform(-2.0, 2.0, (200, 2))
    assert Explored.from_rows(KERNEL, X, np.ones(200), None, NOISE) is None
    rough = StationaryKernel("rbf", 1e4)  # a row says nothing about the others
    assert Explored.from_rows(rough, with_gap(200), np.ones(200), None, NOISE) is None


def test_rows_that_determine_the_process_up_to_little_noise_leave_no_gap():
    # 128 functions did not, and standard deviations were twice the error in silence.
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (800, 3))
    y = np.sin(X[:, 0] + X[:, 1]) * X[:, 2] + 0.01 * rng.standard_normal(800)
    assert Explored.from_rows(KERNEL, X[:400], np.ones(400), None, 1e-4) is None
    model = OrthogonalLeastSquaresRegressor("rbf", gamma=0.5).fit(X[:400], y[:400])
    mean, std = model.predict(X[400:], return_std=True)
    assert np.sqrt(np.mean(std**2) / np.mean((y[400:] - mean) ** 2)) < 1.2


@pytest.mark.parametrize(
    ("kernel", "n_inputs", "expected"),
    [(StationaryKernel("rbf", 2.0), 3, 512), (StationaryKernel("laplacian", 2.0), 2, 128)],
)
def test_512_functions_stand_only_where_128_leave_out_much_more(kernel, n_inputs, expected):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (900, n_inputs))
    X[:, :2] = with_gap(900)
    explored = Explored.from_rows(kernel, X, np.ones(900), None, 1e-9)
    assert len(explored.root) == expected
    _, _, F, pivots = added.distinct_functions(kernel, X, 1e-10, 512)
    left = [np.sum(1.0 - np.sum(F[:m] ** 2, axis=0)) for m in (128, 512)]
    assert len(pivots) == 512
    assert (left[1] < 0.1 * left[0]) == (expected == 512)


def test_a_single_row_at_the_end_of_the_range_leaves_a_gap():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (100, 2))
    assert Explored.from_rows(KERNEL, X, np.ones(100), None, NOISE) is None
    X[0, 0] = 6.0
    explored = Explored.from_rows(KERNEL, X, np.ones(100), None, NOISE)
    assert explored.lack(np.array([[3.5, 0.0]])) > 0.8
    assert np.max(explored.lack(rng.uniform(-0.9, 0.9, (50, 2)))) < NOISE


def test_beyond_the_box_the_larger_of_both_is_added():
    X = with_gap(60)
    explored = Explored.from_rows(KERNEL, X, np.ones(60), None, NOISE)
    box = Box(X.min(axis=0), X.max(axis=0))
    new = np.array([[0.0, 0.0], [6.0, 0.0], [2.2, 0.0]])
    both = Extrapolation(KERNEL, box, 2.0, explored)
    outside = Extrapolation(KERNEL, box, 2.0).variance(new, None, None)
    expected = np.maximum(outside, 2.0 * explored.lack(new))
    np.testing.assert_allclose(both.variance(new, None, None), expected, rtol=1e-12)
    assert expected[0] > 0.5
    assert outside[1] > 1.9
    assert expected[2] < 0.1
    np.testing.assert_allclose(np.diag(both.covariance(new)), expected, rtol=1e-12)


def test_the_constant_is_as_uncertain_as_it_is_far_from_the_target():
    box = Box(np.zeros(2), np.ones(2))
    new = np.array([[0.5, 0.5], [1.2, 0.5], [1.3, 1.4], [9.0, 0.5]])
    near = Extrapolation(KERNEL, box, 2.0)
    far = Extrapolation(KERNEL, box, 2.0, mean=1.0, constant=4.0)
    k = KERNEL.pairs(new, box.nearest(new))
    added = far.covariance(new) - near.covariance(new)
    np.testing.assert_allclose(added, 9.0 * np.outer(1.0 - k, 1.0 - k), atol=1e-14)
    np.testing.assert_allclose(far.variance(new, None, None), np.diag(far.covariance(new)))
    assert far.variance(new, None, None)[-1] == pytest.approx(11.0)


def fitted(cls=RVMRegressor, rows=lambda X: X):
    X = with_gap(150)
    rng = np.random.default_rng(2)
    y = np.sin(X[:, 0]) + np.cos(X[:, 1]) + 0.2 * rng.standard_normal(150)
    return cls("rbf", gamma=0.5).fit(rows(X), y)


GRID = np.column_stack([np.linspace(-4.0, 4.0, 50), np.linspace(-1.0, 1.0, 50)])


@pytest.mark.parametrize("cls", [RVMRegressor, OrthogonalLeastSquaresRegressor])
def test_a_sparse_model_is_less_sure_in_a_gap(cls):
    model = fitted(cls)
    _, (inside, gap) = model.predict([[2.2, 0.0], [0.0, 0.0]], return_std=True)
    assert gap > 1.5 * inside


def test_rows_in_blocks_have_the_same_gaps():
    _, std = fitted().predict(GRID, return_std=True)
    _, blocks = fitted(rows=lambda X: [X[:40], X[40:100], X[100:]]).predict(GRID, return_std=True)
    np.testing.assert_allclose(blocks, std, rtol=1e-6)


def test_tensors_have_the_same_gaps():
    torch = pytest.importorskip("torch")
    model = fitted()
    _, std = model.predict(GRID, return_std=True)
    _, own = model.predict(torch.from_numpy(GRID), return_std=True)
    np.testing.assert_allclose(np.asarray(own), std, rtol=1e-6)


def test_draws_in_a_gap_vary_as_much_as_the_std_says():
    model, new = fitted(), np.array([[0.0, 0.0], [2.2, 0.0]])
    _, std = model.predict(new, return_std=True)
    draws = model.sample_y(new, 4000, random_state=0)
    np.testing.assert_allclose(np.std(draws, axis=1), std, rtol=0.05)


def test_further_rows_replace_what_was_known_of_gaps():
    X = with_gap(200)
    y = np.sin(X[:, 0]) + 0.2 * np.random.default_rng(0).standard_normal(200)
    model = RVMRegressor("rbf", gamma=0.5).partial_fit(X[:100], y[:100])
    assert model._fitted.model.added.explored is not None
    model.partial_fit(X[100:] * [0.5, 1.0], y[100:])
    assert model._fitted.model.added.explored is None


def test_exports_have_the_same_gaps(tmp_path):
    import onnxruntime

    model = fitted()
    mean, std = model.predict(GRID, return_std=True)
    (tmp_path / "written.py").write_text(export_model(model, to="python"))
    spec = importlib.util.spec_from_file_location("written", tmp_path / "written.py")
    written = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(written)
    np.testing.assert_allclose(written.predict(GRID, return_std=True), [mean, std], rtol=1e-8)
    session = onnxruntime.InferenceSession(export_model(model, to="onnx"))
    np.testing.assert_allclose(session.run(["mean", "std"], {"X": GRID}), [mean, std], rtol=1e-8)
    short = export_model(model, to="c", return_std=False)
    assert "explored" not in short
    assert len(short) < 0.2 * len(export_model(model, to="c"))


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
def test_the_c_file_has_the_same_gaps(tmp_path):
    from tests.test_export import _run_c

    model = fitted()
    values = _run_c(export_model(model, to="c"), GRID, tmp_path)
    np.testing.assert_allclose(values, model.predict(GRID, return_std=True), rtol=1e-8)


@pytest.mark.parametrize("repeated", [False, True])
def test_the_variance_of_the_process_is_the_most_probable_one(repeated):
    # The mean of the process over the rows is no part of it: the target is centred.
    rng = np.random.default_rng(3)
    X = rng.uniform(-3.0, 3.0, (80, 2))
    root = np.linalg.cholesky(gram(X, X) + 1e-9 * np.eye(80))
    y, w = 2.0 * root @ rng.standard_normal(80) + 0.3 * rng.standard_normal(80), np.ones(80)
    rows = np.tile(np.arange(80), 2)
    if repeated:
        found = process_variance(KERNEL, X[rows], y[rows], np.ones(160), 0.18, 0.5)
    else:
        found = process_variance(KERNEL, X, y, w, 0.09, 0.5)
    centred = np.eye(80) - 1.0 / 80

    def log_density(a):
        C = centred @ (a * gram(X, X)) @ centred + 0.09 * np.eye(80)
        return -0.5 * (np.linalg.slogdet(C)[1] + y @ centred @ np.linalg.solve(C, centred @ y))

    grid = np.geomspace(0.5, 8.0, 200)
    assert abs(np.log(found / grid[np.argmax([log_density(a) for a in grid])])) < 0.05


def test_covariances_of_single_rows_are_their_variances_in_float32():
    X = (1e4 * np.random.default_rng(0).standard_normal((30, 5))).astype(np.float32)
    box = Box(np.zeros(5), np.ones(5))
    beyond = Extrapolation(StationaryKernel("matern52", 1e-2), box, 4.0)
    np.testing.assert_allclose(np.diag(beyond.covariance(X)), beyond.variance(X, None, None))
