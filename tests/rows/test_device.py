"""Rows on a device give what NumPy gives. On a machine with a GPU the same runs there too."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from sparsebayes import ForwardRegressor, OrthogonalLeastSquaresRegressor, RVMRegressor, relevance
from sparsebayes._array import to_numpy
from sparsebayes.designs import CentredDesign, ChunkedKernelDesign, KernelDesign, WeightedDesign
from sparsebayes.designs.lowrank import low_rank
from sparsebayes.kernels import StationaryKernel
from sparsebayes.kernels.evidence import NystroemEvidence
from sparsebayes.rows import RowBlocks
from sparsebayes.rows import device as module
from sparsebayes.solvers import AutoRVM, Forward, run
from sparsebayes.solvers.forward.routes import columns_route, gram_route, triangle_route
from sparsebayes.solvers.rvm.polish import _products

torch = pytest.importorskip("torch")

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
everywhere = pytest.mark.parametrize("device", DEVICES)

MODELS = {
    "forward": lambda **p: ForwardRegressor("rbf", gamma=0.5, max_terms=25, candidates=150, **p),
    "forward, exact": lambda **p: ForwardRegressor(
        "matern52", gamma=0.5, max_terms=15, candidates="all", refit=None, **p
    ),
    "forward, columns": lambda **p: ForwardRegressor(None, **p),
    "rvm": lambda **p: RVMRegressor("rbf", gamma=0.5, **p),
    "ols": lambda **p: OrthogonalLeastSquaresRegressor("rbf", gamma=0.5, max_terms=12, **p),
    "ols, press": lambda **p: OrthogonalLeastSquaresRegressor(
        "rbf", gamma=0.5, criterion="press", max_terms=8, **p
    ),
    "ols, columns": lambda **p: OrthogonalLeastSquaresRegressor(None, **p),
}


def table(n=400, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, d))
    return X, np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(n), rng.uniform(0.5, 2.0, n)


@everywhere
@pytest.mark.parametrize("route", [columns_route, gram_route, triangle_route])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_route_chooses_the_path_of_numpy(device, route, weighted):
    X, y, weight = table()
    kernel, centres = StationaryKernel("rbf", 0.5), np.arange(0, len(X), 4)
    found = []
    for design in (
        KernelDesign(X, kernel, centres),
        ChunkedKernelDesign(module.TensorRows(torch.as_tensor(X, device=device)), kernel, centres),
    ):
        if weighted:
            design = WeightedDesign(design, weight)
        design = CentredDesign(design)
        result = run(Forward(route=route, max_terms=20), design, design.target(y), max_iter=200)
        found.append(result.state.best)
    assert found[0].order == found[1].order
    assert found[0].log_evidence == pytest.approx(found[1].log_evidence, rel=1e-10)


@everywhere
@pytest.mark.parametrize(("n", "gamma"), [(700, 4.0), (1700, 0.5)])
def test_rounding_does_not_choose_the_relevance_vectors(device, n, gamma):
    # Starts are in float32 here and in float64 there; pivots of a narrow kernel are nearly ties.
    X, y, _ = table(n)
    ours = RVMRegressor("rbf", gamma=gamma).fit(X, y)
    theirs = RVMRegressor("rbf", gamma=gamma).fit(
        torch.as_tensor(X, device=device), torch.as_tensor(y, device=device)
    )
    np.testing.assert_array_equal(theirs.active_, ours.active_)
    assert theirs.log_evidence_ == pytest.approx(ours.log_evidence_, rel=1e-9)
    np.testing.assert_allclose(theirs.predict(X), ours.predict(X), atol=1e-8)


@everywhere
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("weighted", [False, True])
def test_tensors_give_the_model_of_numpy(device, name, weighted):
    X, y, weight = table()
    weight = weight if weighted else None
    ours = MODELS[name]().fit(X, y, sample_weight=weight)
    there = torch.as_tensor(X, device=device)
    theirs = MODELS[name]().fit(there, torch.as_tensor(y, device=device), sample_weight=weight)
    assert theirs.log_evidence_ == pytest.approx(ours.log_evidence_, rel=1e-9)
    mean, std = theirs.predict(there, return_std=True)
    assert mean.device.type == std.device.type == device
    np.testing.assert_allclose(mean.cpu(), ours.predict(X), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(std.cpu(), ours.predict(X, return_std=True)[1], rtol=1e-8)
    np.testing.assert_allclose(theirs.predict(there).cpu(), mean.cpu(), rtol=1e-8, atol=1e-12)


@everywhere
@pytest.mark.parametrize("name", ["forward", "ols"])
def test_arrays_and_blocks_go_to_the_device_that_is_named(device, name, monkeypatch):
    X, y, _ = table()
    ours = MODELS[name]().fit(X, y)
    theirs = MODELS[name](device=device).fit(X, y)
    assert isinstance(theirs.relevance_vectors_, np.ndarray)
    assert isinstance(theirs.posterior_.mean, np.ndarray)
    mean, std = theirs.predict(X, return_std=True)
    assert isinstance(mean, np.ndarray)
    np.testing.assert_allclose(mean, ours.predict(X), rtol=1e-8, atol=1e-9)
    monkeypatch.setattr(module, "_COPIED_SHARE", 0.0)  # nothing fits: copied block by block
    blocks = MODELS[name](device=device).fit(RowBlocks([X[:150], X[150:151], X[151:]]), y)
    assert blocks.log_evidence_ == pytest.approx(ours.log_evidence_, rel=1e-9)
    np.testing.assert_allclose(blocks.predict(X, return_std=True)[1], std, rtol=1e-8)


@everywhere
def test_small_blocks_and_columns_that_do_not_stay_change_nothing(device, monkeypatch):
    X, y, _ = table()
    whole = MODELS["forward, exact"](device=device).fit(X, y)
    monkeypatch.setattr(module, "_STORED_SHARE", 0.0)
    monkeypatch.setattr(module, "_LARGEST_BLOCK", 2**14)
    parts = MODELS["forward, exact"](device=device).fit(X, y)
    np.testing.assert_array_equal(parts.active_, whole.active_)
    assert parts.log_evidence_ == pytest.approx(whole.log_evidence_, rel=1e-10)


@everywhere
def test_single_precision_stays_single_precision(device):
    X, y, _ = table()
    single = torch.as_tensor(X, dtype=torch.float32, device=device)
    model = MODELS["forward"]().fit(single, y)
    mean, std = model.predict(single, return_std=True)
    assert mean.dtype == std.dtype == torch.float32
    double = MODELS["forward"]().fit(X.astype(np.float32).astype(np.float64), y)
    assert model.log_evidence_ == pytest.approx(double.log_evidence_, rel=1e-9)
    np.testing.assert_allclose(mean.cpu(), double.predict(X), atol=1e-3 * y.std())


@everywhere
def test_columns_kept_in_single_precision_choose_as_well(device, monkeypatch):
    X, y, _ = table()
    single = torch.as_tensor(X, dtype=torch.float32, device=device)
    whole = MODELS["forward, exact"]().fit(single, y)
    monkeypatch.setattr(
        module.DeviceRows, "can_store", lambda rows, size, _: size <= 4 * len(X) ** 2
    )
    monkeypatch.setattr("sparsebayes.solvers.forward.routes._CHEAP", 1e9)  # by columns
    half = MODELS["forward, exact"]().fit(single, y)
    assert half.approximation_["route"] == "columns"
    assert half.log_evidence_ == pytest.approx(whole.log_evidence_, rel=1e-4)


@everywhere
def test_a_model_of_the_device_loads_without_it(device):
    X, y, _ = table()
    model = MODELS["forward"]().fit(torch.as_tensor(X, device=device), y)
    assert b"torch" not in pickle.dumps(model)


@everywhere
def test_what_a_model_adds_to_the_variance_is_added_there_too(device):
    X, y, _ = table(n=60)
    healed = RVMRegressor("rbf", gamma=0.5, heal=True)
    far = np.vstack([X, 10.0 + X])
    _, std = healed.fit(X, y).predict(far, return_std=True)
    _, there = healed.predict(torch.as_tensor(far, device=device), return_std=True)
    np.testing.assert_allclose(there.cpu(), std, rtol=1e-10)


def test_what_runs_on_the_cpu_says_so():
    from sparsebayes import BackfittingRegressor

    X, y, _ = table(n=30)
    with pytest.raises(
        ValueError, match="X is given on meta, but BackfittingRegressor cannot fit that"
    ):
        BackfittingRegressor().fit(torch.as_tensor(X, device="meta"), y)
    BackfittingRegressor().fit(torch.as_tensor(X), y)


def test_what_is_wrong_with_a_device_is_a_sentence():
    X, y, _ = table(n=30)
    with pytest.raises(ValueError, match="not a device of torch"):
        ForwardRegressor("rbf", gamma=1.0, device="abacus").fit(X, y)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="torch found no CUDA device"):
            RVMRegressor("rbf", gamma=1.0, device="cuda").fit(X, y)
    model = ForwardRegressor("rbf", gamma=1.0).fit(torch.as_tensor(X), y)
    with pytest.raises(ValueError, match="X has 2 features"):
        model.predict(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="NaN or infinity"):
        model.predict(torch.full((3, 3), np.nan))


@everywhere
def test_the_joint_covariance_of_tensors_is_a_tensor(device):
    X, y, _ = table(n=30)
    model = ForwardRegressor("rbf", gamma=1.0).fit(X, y)
    mean, cov = model.predict(torch.as_tensor(X, device=device), return_cov=True)
    assert mean.device.type == cov.device.type == device
    np.testing.assert_allclose(cov.cpu(), model.predict(X, return_cov=True)[1], rtol=1e-12)


@everywhere
def test_rows_left_out_are_those_of_numpy(device):
    X, y, weight = table()
    ours = MODELS["forward"]().fit(X, y, sample_weight=weight).loo_
    theirs = MODELS["forward"](device=device).fit(X, y, sample_weight=weight).loo_
    np.testing.assert_allclose(theirs.residuals, ours.residuals, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(theirs.std, ours.std, rtol=1e-8)


@everywhere
@pytest.mark.parametrize("family", ["rbf", "matern52", "laplacian", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("log_lam", [-1.0, -12.0])
def test_evidence_and_gradient_of_the_widths_are_those_of_numpy(device, family, weighted, log_lam):
    X, y, weight = table(n=700)
    weight = weight if weighted else None
    ours, theirs = (
        NystroemEvidence(X, y[:, None], X[::9], family, weight=weight, device=there)
        for there in (None, torch.device(device))
    )
    lengths = np.linspace(-0.3, 0.4, {"sum": 7}.get(family, 3))
    arguments = lengths, np.array([log_lam]), np.log([0.05])
    value, gradient, information = ours(*arguments)
    np.testing.assert_allclose(theirs(*arguments)[0], value, rtol=1e-8)
    np.testing.assert_allclose(theirs(*arguments)[1], gradient, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(theirs(*arguments)[2], information, atol=1e-5 * np.max(information))
    assert theirs.profile(lengths).value == pytest.approx(ours.profile(lengths).value, rel=1e-7)


@everywhere
def test_widths_are_learnt_on_the_device(device):
    X, y, _ = table(n=2500)
    model = ForwardRegressor("sum", gamma="ard", max_terms=30, candidates=400)
    ours, theirs = clone(model).fit(X, y), clone(model).set_params(device=device).fit(X, y)
    # The evidence is flat about the best widths: rounding moves them, and the function hardly.
    assert theirs.log_evidence_ == pytest.approx(ours.log_evidence_, rel=1e-2)
    assert np.std(theirs.predict(X) - ours.predict(X)) < 0.02 * y.std()


@everywhere
@pytest.mark.parametrize("tensors", [False, True])
def test_noise_by_the_inputs_is_known_on_a_device_too(device, tensors):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (300, 2))
    y = np.sin(X[:, 0]) + 0.1 * np.exp(X[:, 1]) * rng.standard_normal(300)
    settings = {"kernel": "rbf", "gamma": 0.5, "max_terms": 20, "noise_variance": "input"}
    plain = ForwardRegressor(**settings).fit(X, y)
    assert plain.noise_model_ is not None
    model = ForwardRegressor(**settings, device=device).fit(X, y)
    new = torch.as_tensor(X, device=device) if tensors else X
    for ours, theirs in zip(
        model.predict(new, return_std=True), plain.predict(X, return_std=True), strict=True
    ):
        ours = ours.cpu().numpy() if tensors else ours
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)


@everywhere
@pytest.mark.parametrize("weighted", [False, True])
def test_the_low_rank_of_many_candidates_is_that_of_numpy(device, weighted):
    X, y, weight = table(n=1600)
    kernel, found = StationaryKernel("rbf", 0.5), []
    for rows in (RowBlocks(X), module.TensorRows(torch.as_tensor(X, device=device))):
        design = ChunkedKernelDesign(rows, kernel, np.arange(len(X)), cache_size=0.0)
        design = CentredDesign(WeightedDesign(design, weight) if weighted else design)
        low = low_rank(design, 60, np.random.default_rng(0))
        t = design.target(y)
        found.append([to_numpy(low.candidates()), to_numpy(low.project(t)), low.coordinates(t)])
    assert torch.is_tensor(low.rows)
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-6, atol=1e-7 * np.abs(ours).max())


@everywhere
def test_a_machine_of_many_candidates_is_searched_there(device):
    # The last stage looks at all candidates by low rank, from exact residuals.
    X, y, _ = table(n=1600)
    found = []
    for rows in (RowBlocks(X), module.TensorRows(torch.as_tensor(X, device=device))):
        design = CentredDesign(
            ChunkedKernelDesign(rows, StationaryKernel("rbf", 0.5), np.arange(len(X)))
        )
        found.append(run(AutoRVM(exact_up_to=10), design, design.target(y), max_iter=100))
    ours, theirs = (result.history["log_evidence"][-1] for result in found)
    assert found[1].converged
    assert found[1].history["stage"][-1] == "screen"
    assert theirs == pytest.approx(ours, abs=0.5)  # rounding may choose another optimum


@everywhere
def test_products_of_many_rows_on_a_device_are_rounded_as_little_as_here(device):
    H = np.random.default_rng(0).uniform(0.5, 1.0, (100_000, 8))
    wide = H.astype(np.longdouble)
    there = torch.tensor(H, device=device)
    found = _products(there, there[:, 3:]).cpu().numpy()
    np.testing.assert_allclose(found, (wide.T @ wide[:, 3:]).astype(np.float64), rtol=3e-15)


@everywhere
@pytest.mark.parametrize("copied", [False, True])
def test_rows_that_stay_on_a_device_have_the_range_of_the_array(device, copied, monkeypatch):
    X, y, _ = table(200)
    X[7] = X.max(axis=0) + 2.0 * np.ptp(X, axis=0)
    monkeypatch.setattr(relevance, "_LOADED", 0)
    model = RVMRegressor("rbf", gamma=0.5, device=device)
    there = model.fit([X[:60], X[60:]] if copied else X, y)._fitted.input_range
    here = clone(model).set_params(device=None).fit(X, y)._fitted.input_range
    np.testing.assert_allclose(there.box.low, here.box.low)
    np.testing.assert_allclose(there.box.high, here.box.high)
    np.testing.assert_allclose(there.gaps.low, here.gaps.low)
    np.testing.assert_allclose(there.gaps.high, here.gaps.high)
    assert len(there.gaps.columns) == X.shape[1]
    np.testing.assert_allclose(there.joint.limit, here.joint.limit)
