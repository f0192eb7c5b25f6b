"""SparseGPRegressor with neighbours: the promises of the parameter."""

import pickle

import dask.array as da
import numpy as np
import pytest
import skops.io as sio
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparsebayes import SparseGPRegressor, gaussian_process
from sparsebayes.solvers.gp import cells as cells_module
from sparsebayes.solvers.gp import neighbour_scales
from sparsebayes.solvers.gp.neighbours import NeighbourProcess

KNOWN = {"kernel": "laplacian", "gamma": 0.3}


def steps(n, seed=0, noise=0.2):
    """Smooth and rough."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    f = np.sin(2 * X[:, 0]) + 0.5 * np.floor(2 * X[:, 1])
    return X, f + noise * rng.standard_normal(n)


def rmse(model, X, y):
    return np.sqrt(np.mean((model.predict(X) - y) ** 2))


@parametrize_with_checks([SparseGPRegressor("rbf", gamma="scale", neighbours=5, max_terms=8)])
def test_scikit_learn_accepts_neighbours(estimator, check):
    check(estimator)


@pytest.mark.parametrize("intercept", [True, False])
def test_all_rows_as_neighbours_are_the_exact_process(intercept):
    X, y = steps(150)
    new = steps(40, 1)[0]
    settings = {**KNOWN, "fit_intercept": intercept}
    exact = SparseGPRegressor(**settings).fit(X, y)
    model = SparseGPRegressor(**settings, max_terms=20, neighbours=150).fit(X, y)
    assert len(model.active_) <= 20
    for a, b in zip(
        model.predict(new, return_std=True), exact.predict(new, return_std=True), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-8)
    covariance = model.predict(new, return_cov=True)[1]
    np.testing.assert_allclose(covariance, exact.predict(new, return_cov=True)[1], atol=1e-8)
    for name in ("residuals", "std", "log_density"):
        np.testing.assert_allclose(model.loo_[name], exact.loo_[name], rtol=1e-6, atol=1e-8)


def test_all_rows_as_neighbours_share_one_factorisation(monkeypatch):
    X, y = steps(120)
    new = steps(30, 1)[0]
    model = SparseGPRegressor(**KNOWN, max_terms=10, neighbours=120).fit(X, y)
    given, stacks = NeighbourProcess._conditional, []

    def count(self, A, *others):
        stacks.append(len(A))
        return given(self, A, *others)

    monkeypatch.setattr(NeighbourProcess, "_conditional", count)
    mean, std = model.predict(new, return_std=True)
    assert stacks == [1]
    one_by_one = [model.predict(row[None], return_std=True) for row in new]
    np.testing.assert_allclose(np.hstack(one_by_one), [mean, std], rtol=1e-9)


def test_neighbours_restore_what_few_functions_miss():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (1000, 2))
    f = np.sin(4 * X[:, 0]) * np.sin(5 * X[:, 1]) + X[:, 0]
    y = f + 0.2 * rng.standard_normal(1000)
    new, inside = X[600:], slice(0, 600)
    models = [
        SparseGPRegressor("matern32", gamma=1.0, **settings).fit(X[inside], y[inside])
        for settings in (
            {"max_terms": 10},
            {"max_terms": 10, "neighbours": 32},
            {"max_terms": None},
        )
    ]
    few, near, exact = (rmse(model, new, f[600:]) for model in models)
    assert near < 0.4 * few
    assert near < 1.03 * exact
    mean, std = models[1].predict(new, return_std=True)
    assert 0.92 < np.mean(np.abs(mean - y[600:]) < 1.96 * std) < 0.99


def test_rows_of_cells_are_nearer_to_the_process_than_neighbours(monkeypatch):
    rng = np.random.default_rng(0)
    X, new = rng.uniform(0, 1, (700, 5)), rng.uniform(0, 1, (300, 5))
    both = np.vstack([X, new])
    K = np.exp(-np.abs(both[:, None] - both[None]) @ np.array([0.3, 0.3, 2.0, 2.0, 2.0]))
    f = np.linalg.cholesky(K + 1e-10 * np.eye(len(K))) @ rng.standard_normal(len(K))
    observed = f + 0.1 * rng.standard_normal(len(f))
    known = {"kernel": "laplacian", "gamma": np.array([0.3, 0.3, 2.0, 2.0, 2.0])}
    monkeypatch.setattr(cells_module, "_MOST_OF_CELL", 400)  # in blocks, by conjugate gradients
    monkeypatch.setattr(cells_module, "_DIRECT", 300)
    monkeypatch.setattr(cells_module, "_BLOCK", 100)
    found = {}
    for cells in (True, False):
        if not cells:  # no row is told by another cell
            monkeypatch.setattr(NeighbourProcess, "loo_by_cells", _fails)
        model = SparseGPRegressor(**known, max_terms=40, neighbours=16).fit(X, observed[:700])
        assert (model._fitted.model.process.cells is not None) == cells
        mean, std = model.predict(new, return_std=True)
        found[cells] = np.mean((mean - f[700:]) ** 2)
        inside = np.mean(np.abs(observed[700:] - mean) < 1.96 * std)
        assert 0.91 < inside < 0.98
    exact = SparseGPRegressor(**known, max_terms=None).fit(X, observed[:700]).predict(new)
    exact = np.mean((exact - f[700:]) ** 2)
    assert found[True] < exact + 0.5 * (found[False] - exact)


def test_cells_that_conjugate_gradients_do_not_solve_have_one_factor(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (300, 2))
    y = np.floor(4 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(300)
    for name, value in (("_MOST_OF_CELL", 200), ("_DIRECT", 100), ("_BLOCK", 50)):
        monkeypatch.setattr(cells_module, name, value)
    monkeypatch.setattr(neighbour_scales.Score, "is_better", lambda *_: True)
    found = []
    for steps_allowed in (100, 0):
        monkeypatch.setattr(cells_module, "_MOST_STEPS", steps_allowed)
        model = SparseGPRegressor("laplacian", gamma=[2.0, 0.5], max_terms=10, neighbours=8)
        found.append(model.fit(X, y).predict(X))
        assert np.diff(model._fitted.model.process.cells.first)[0] == (
            200 if steps_allowed else 100
        )
    assert np.std(found[0] - found[1]) < 0.05


def _fails(*_, **__):
    raise np.linalg.LinAlgError


def test_auto_says_what_it_tried_and_takes_the_best():
    X, y = steps(600)
    model = SparseGPRegressor(**KNOWN, max_terms=10, neighbours="auto").fit(X, y)
    tried = model.neighbours_search_
    assert model.neighbours_ in tried["neighbours"]
    taken = tried["loo_log_density"][tried["neighbours"] == model.neighbours_]
    assert tried["loo_log_density"].max() - taken[0] < 0.01
    assert tried["residual_variance_ratio"] > 0.1


def test_auto_takes_none_where_functions_say_it_all():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (300, 1))
    y = X[:, 0] ** 2 + 0.3 * rng.standard_normal(300)
    model = SparseGPRegressor("rbf", gamma=0.1, neighbours="auto", max_terms=60).fit(X, y)
    assert model.neighbours_ == 0
    assert model.neighbours_search_["residual_variance_ratio"] < 0.1


def test_weights_are_repetition():
    X, y = steps(120)
    weight = np.random.default_rng(0).integers(0, 3, 120)
    again = np.repeat(np.arange(120), weight)
    settings = {**KNOWN, "max_terms": 15, "neighbours": 20, "noise_variance": 0.04}
    a = SparseGPRegressor(**settings).fit(X, y, sample_weight=weight)
    b = SparseGPRegressor(**settings).fit(X[again], y[again])
    new = steps(50, 1)[0]
    for one, other in zip(
        a.predict(new, return_std=True), b.predict(new, return_std=True), strict=True
    ):
        # The noise is found to so many digits.
        np.testing.assert_allclose(one, other, rtol=1e-4)
    assert a.loo_.residuals.shape == (120,)
    first = np.flatnonzero(weight)
    position = np.searchsorted(again, first)
    np.testing.assert_allclose(a.loo_.residuals[first], b.loo_.residuals[position], rtol=1e-4)


def test_units_of_inputs_and_target_do_not_matter():
    X, y = steps(400)
    new = steps(50, 1)[0]
    model = SparseGPRegressor("laplacian", gamma="ard", neighbours=16, max_terms=20)
    mean, std = clone(model).fit(X, y).predict(new, return_std=True)
    factor = np.array([1e3, 1e-4])
    moved = clone(model).fit(X * factor, 1e6 * y + 5e6)
    scaled, scaled_std = moved.predict(new * factor, return_std=True)
    np.testing.assert_allclose((scaled - 5e6) / 1e6, mean, atol=1e-3)
    np.testing.assert_allclose(scaled_std / 1e6, std, rtol=1e-3)


def test_a_known_noise_stays():
    X, y = steps(200)
    model = SparseGPRegressor(**KNOWN, neighbours=10, noise_variance=0.04, max_terms=20).fit(X, y)
    assert model.noise_variance_ == pytest.approx(0.04)
    assert np.all(model.predict(X, return_std=True)[1] > 0.2)


def test_noise_by_the_inputs_and_tails():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (600, 1))
    size = np.where(X[:, 0] > 0, 0.5, 0.05)
    y = np.sign(np.sin(4 * X[:, 0])) + size * rng.standard_normal(600)
    model = SparseGPRegressor(**KNOWN, neighbours=16, max_terms=30, noise_variance="input").fit(
        X, y
    )
    std = model.predict(np.array([[-1.2], [1.2]]), return_std=True)[1]
    assert std[1] > 4 * std[0]
    robust = SparseGPRegressor(**KNOWN, neighbours=16, max_terms=30, likelihood="student").fit(X, y)
    assert robust.noise_tail_ is not None


def test_intervals_quantiles_and_draws_agree_with_the_std():
    X, y = steps(300)
    model = SparseGPRegressor(**KNOWN, neighbours=16, max_terms=30).fit(X, y)
    new = steps(8, 1)[0]
    mean, covariance = model.predict(new, return_cov=True)
    draws = model.sample_y(new, 20_000)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.02)
    np.testing.assert_allclose(np.cov(draws), covariance, atol=0.03)
    ends = model.predict_interval(new)
    np.testing.assert_allclose(ends, model.predict_quantiles(new, [0.025, 0.975]))
    calibrated = model.predict_interval(new, calibrated="conformal")
    assert np.all(calibrated[:, 0] < calibrated[:, 1])


def test_rows_from_anywhere_give_the_same_model():
    X, y = steps(500)
    settings = {**KNOWN, "max_terms": 15, "neighbours": 12}
    plain = SparseGPRegressor(**settings).fit(X, y)
    blocks = SparseGPRegressor(**settings).fit([X[:200], X[200:]], y)
    new = steps(60, 1)[0]
    np.testing.assert_allclose(blocks.predict(new), plain.predict(new), rtol=1e-6)
    np.testing.assert_allclose(blocks.predict([new[:20], new[20:]]), plain.predict(new), rtol=1e-6)
    np.testing.assert_allclose(blocks.loo_.std, plain.loo_.std, rtol=1e-6)


def test_dask_rows_give_the_same_model():
    X, y = steps(500)
    settings = {**KNOWN, "max_terms": 15, "neighbours": 12}
    plain = SparseGPRegressor(**settings).fit(X, y)
    there = SparseGPRegressor(**settings).fit(da.from_array(X, chunks=(200, 2)), y)
    new = steps(60, 1)[0]
    np.testing.assert_allclose(there.predict(new), plain.predict(new), rtol=1e-6)
    mean = there.predict(da.from_array(new, chunks=(25, 2)))
    np.testing.assert_allclose(np.asarray(mean), plain.predict(new), rtol=1e-6)


def test_torch_tensors_give_the_same_model_and_get_tensors():
    torch = pytest.importorskip("torch")
    X, y = steps(300)
    settings = {**KNOWN, "max_terms": 15, "neighbours": 12}
    plain = SparseGPRegressor(**settings).fit(X, y)
    there = SparseGPRegressor(**settings).fit(torch.as_tensor(X), y)
    mean, std = there.predict(torch.as_tensor(X), return_std=True)
    assert isinstance(mean, torch.Tensor)
    truth = plain.predict(X, return_std=True)
    np.testing.assert_allclose(np.stack([mean, std]), np.stack(truth), rtol=1e-6)


@pytest.mark.parametrize("kernel", ["rbf", "matern32", "laplacian", "sum"])
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("tree", [True, False])
@pytest.mark.filterwarnings("ignore:Neither the 100 kernel columns")
def test_a_device_predicts_what_the_cpu_does(kernel, single, tree, monkeypatch):
    pytest.importorskip("torch")
    if not tree:  # as on a GPU: all distances, by products
        monkeypatch.setattr("sparsebayes.solvers.gp.neighbours._TREE_INPUTS", 0)
    X, y = steps(300)
    gamma = np.array([[0.3, 0.2], [0.2, 0.4]]) if kernel == "sum" else np.array([0.3, 0.2])
    settings = {"kernel": kernel, "gamma": gamma, "max_terms": 15, "neighbours": 12}
    settings["cache_size"] = 0.01 if single else 200.0  # megabytes
    plain = SparseGPRegressor(**settings).fit(X, y)
    assert plain._fitted.model.process.rows.X.dtype == (np.float32 if single else np.float64)
    there = SparseGPRegressor(**settings, device="cpu").fit(X, y)
    new = steps(60, 1)[0]
    for a, b in zip(
        there.predict(new, return_std=True), plain.predict(new, return_std=True), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4 if single else 1e-8)
    np.testing.assert_allclose(there.predict(X), plain.predict(X), rtol=1e-4 if single else 1e-7)
    np.testing.assert_allclose(there.predict_interval(new), plain.predict_interval(new), rtol=1e-4)


def test_a_device_predicts_with_noise_by_the_inputs_and_after_loading():
    torch = pytest.importorskip("torch")
    X, y = steps(300)
    settings = {**KNOWN, "max_terms": 15, "neighbours": 12, "noise_variance": "input"}
    model = SparseGPRegressor(**settings).fit(X, y)
    truth = model.predict(X, return_std=True)
    again = pickle.loads(pickle.dumps(model)).set_params(device="cpu")
    np.testing.assert_allclose(again.predict(X, return_std=True), truth, rtol=1e-8)
    tensors = model.predict(torch.as_tensor(X), return_std=True)
    np.testing.assert_allclose(np.stack(tensors), truth, rtol=1e-8)


def test_saved_models_predict_and_leave_out_the_same():
    X, y = steps(300)
    model = SparseGPRegressor(**KNOWN, neighbours=12, max_terms=20).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-12)
    np.testing.assert_allclose(again.loo_.std, model.loo_.std, rtol=1e-9)
    import sparsebayes

    loaded = sio.loads(sio.dumps(model), trusted=sparsebayes.TRUSTED_TYPES)
    np.testing.assert_allclose(loaded.predict(X), model.predict(X), rtol=1e-12)


def test_weights_of_more_rows_than_are_left_out(monkeypatch):
    # The rows of a sample have no precision in the order of the rows: it ended in an error.
    monkeypatch.setattr(gaussian_process, "_LOO_ROWS", 50)
    rng = np.random.default_rng(0)
    X, weight = rng.uniform(-3.0, 3.0, (120, 1)), rng.uniform(0.3, 3.0, 120)
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(120)
    model = SparseGPRegressor("rbf", gamma=1.0, neighbours=8, max_terms=3)
    model.fit(X, y, sample_weight=weight)
    assert len(model.loo_.residuals) == 120
    assert 0.003 < model.noise_variance_ < 0.03
