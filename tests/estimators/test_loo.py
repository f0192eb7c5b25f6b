"""`loo_` is what n fits of the weights say, each without one row."""

from __future__ import annotations

import pickle
import warnings

import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import r2_score

import sparsebayes as sb
from sparsebayes.designs import CentredDesign, DenseDesign, RowBlocks, WeightedDesign
from sparsebayes.posterior import LeaveOneOut, ResidualProcess, gaussian_posterior

_PAIRS = np.array([0, 0, 1, 1])


def problem(n=30, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, d))
    return X, 3.0 + np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(n)


def refits(model, X, y, precision, weight=None, shift=None):
    """Residual, std and log density of each row from fits of the same functions without it.

    `precision` is the prior precision of the weights and `shift` that times their prior mean; the
    intercept has a flat prior.
    """
    shift = np.zeros(len(precision)) if shift is None else shift
    Phi = np.asarray(model.basis_(X))
    if model.fit_intercept:
        Phi = np.column_stack([np.ones(len(y)), Phi])
        precision, shift = np.pad(precision, ((1, 0), (1, 0))), np.pad(shift, (1, 0))
    s = model.noise_variance_
    weight = np.ones(len(y)) if weight is None else weight
    out = []
    for i in range(len(y)):
        w = weight.copy()
        w[i] -= min(w[i], 1.0)
        V = np.linalg.inv(Phi.T @ (w[:, None] * Phi) / s + precision)
        mean = Phi[i] @ V @ (Phi.T @ (w * y) / s + shift)
        std = np.sqrt(s + Phi[i] @ V @ Phi[i])
        added = model._fitted.model.added
        if isinstance(added, ResidualProcess):
            std = np.hypot(std, np.sqrt(added.variance(X[[i]], None, None)[0]))
        std = model.calibration_ * std
        z = (y[i] - mean) / std
        out.append((y[i] - mean, std, -0.5 * z * z - np.log(std) - 0.5 * np.log(2 * np.pi)))
    return np.array(out).T


def same(model, X, y, precision, weight=None, shift=None):
    loo = model.loo_
    expected = refits(model, X, y, precision, weight, shift)
    for name, value in zip(("residuals", "std", "log_density"), expected, strict=True):
        np.testing.assert_allclose(loo[name], value, rtol=1e-8, atol=1e-8, err_msg=name)
    np.testing.assert_allclose(loo.r2, r2_score(y, y - expected[0], sample_weight=weight))


WEIGHTS = [None, np.random.default_rng(5).choice([0.0, 0.4, 1.0, 2.0, 3.5], 30)]


@pytest.mark.parametrize("weight", WEIGHTS, ids=["plain", "weighted"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    "model",
    [
        sb.RVMRegressor("rbf", gamma="scale"),
        sb.RVMRegressor("rbf", algorithm="fast", gamma=1.0),
        sb.ForwardRegressor("rbf", gamma="scale", refit=None, max_terms=8),
        sb.BackfittingRegressor(),
        sb.PartitionedRVMRegressor("rbf", gamma="scale", partition_size=15),
    ],
    ids=repr,
)
def test_independent_weights_equal_n_refits(model, intercept, weight):
    X, y = problem()
    model = clone(model).set_params(fit_intercept=intercept, noise_variance=0.04)
    model.fit(X, y, sample_weight=weight)
    same(model, X, y, np.diag(model.weight_precision_), weight)


@pytest.mark.parametrize("weight", WEIGHTS, ids=["plain", "weighted"])
@pytest.mark.parametrize("max_terms", [8, 25])
def test_the_gaussian_process_of_the_functions_equals_n_refits(max_terms, weight):
    X, y = problem()
    model = sb.ForwardRegressor(
        "rbf", gamma=5.0, max_terms=max_terms, early_stopping=None, noise_variance=0.04
    )
    model.fit(X, y, sample_weight=weight)
    assert isinstance(model._fitted.model.added, ResidualProcess) == (max_terms == 25)
    chosen = model.relevance_vectors_
    K = np.exp(-5.0 * np.sum((chosen[:, None] - chosen[None]) ** 2, axis=2))
    same(model, X, y, K * model.weight_precision_[0], weight)


@pytest.mark.parametrize(
    "model",
    [
        sb.OrthogonalLeastSquaresRegressor(None, max_terms=3),
        sb.OrthogonalLeastSquaresRegressor(None, regularization="none", max_terms=3),
        sb.GroupARDRegressor(_PAIRS),
        sb.GroupSpikeSlabRegressor(_PAIRS, max_joint_groups=0),
    ],
    ids=repr,
)
def test_any_gaussian_prior_equals_n_refits(model):
    X, y = problem()
    model = clone(model).fit(X, y)
    Phi = np.asarray(model.basis_(X))  # centred
    precision, s = np.linalg.inv(model.posterior_.covariance), model.noise_variance_
    shift = precision @ model.posterior_.mean - Phi.T @ y / s
    same(model, X, y, precision - Phi.T @ Phi / s, shift=shift)


def test_outputs_have_residuals_of_their_own_and_one_density():
    X, y = problem()
    Y = np.column_stack([y, 10.0 * np.cos(3.0 * X[:, 2]) + y])
    model = sb.RVMRegressor("rbf", gamma="scale").fit(X, Y)
    loo = model.loo_
    assert loo.residuals.shape == loo.std.shape == (30, 2)
    one = clone(model).fit(X, y)
    densities = 0.0
    for j in range(2):
        one.basis_ = model.basis_
        one.noise_variance_ = model.noise_variance_[j]
        one.calibration_ = np.broadcast_to(model.calibration_, 2)[j]
        precision = np.diag(model.weight_precision_[:, j])
        residual, std, density = refits(one, X, Y[:, j], precision)
        np.testing.assert_allclose(loo.residuals[:, j], residual, atol=1e-8)
        np.testing.assert_allclose(loo.std[:, j], std, rtol=1e-8)
        densities = densities + density
    np.testing.assert_allclose(loo.log_density, densities, atol=1e-8)
    np.testing.assert_allclose(loo.r2, r2_score(Y, Y - loo.residuals))


def test_a_weight_is_a_count_of_rows_of_which_one_is_left_out():
    rng = np.random.default_rng(0)
    Phi, y = rng.standard_normal((12, 3)), rng.standard_normal(12)
    counts = rng.integers(1, 4, 12)
    lam, active = np.array([0.5, 1.0, 2.0]), np.arange(3)

    def left_out(base, X, y, weight):
        design = CentredDesign(base)
        posterior = gaussian_posterior(design, design.target(y), active, lam, 0.3, design.offset(y))
        job = LeaveOneOut(design.basis(active), posterior)
        return job.read(0, (X, y, weight))

    weighted = left_out(WeightedDesign(DenseDesign(Phi), counts.astype(float)), Phi, y, counts)
    many = np.repeat(np.arange(12), counts)
    repeated = left_out(DenseDesign(Phi[many]), Phi[many], y[many], None)
    np.testing.assert_allclose(weighted.residual[many], repeated.residual, rtol=1e-10)
    np.testing.assert_allclose(weighted.variance[many], repeated.variance, rtol=1e-10)
    assert weighted.r2 == pytest.approx(repeated.r2, rel=1e-10)


def test_leverages_sum_to_the_effective_number_of_weights():
    X, y = problem()
    weight = np.random.default_rng(1).uniform(0.2, 3.0, len(y))
    model = sb.ForwardRegressor("rbf", gamma="scale", max_terms=10, noise_variance=0.04)
    model.fit(X, y, sample_weight=weight)
    spread = LeaveOneOut(model.basis_, model.posterior_).read(0, (X, y, weight)).spread
    total = np.sum(weight * spread) / model.noise_variance_
    shrunk = model.weight_precision_[0] * np.trace(
        model.posterior_.covariance @ model.basis_.functions(model.relevance_vectors_)
    )
    assert total == pytest.approx(1 + len(model.active_) - shrunk, rel=1e-6)


def test_a_long_pass_over_the_rows_says_how_far_it_is():
    X, y = np.ones((5000, 1)), np.zeros(5000)
    design = DenseDesign(X)
    posterior = gaussian_posterior(design, y, np.arange(1), np.ones(1), 1.0)
    read = []
    LeaveOneOut(design.basis(np.arange(1)), posterior, report=read.append).read(0, (X, y, None))
    assert read == [4096, 5000]


def test_rows_in_blocks_and_dask_leave_out_the_same():
    X, y = problem(200)
    weight = np.random.default_rng(1).choice([0.0, 1.0, 2.0], 200)
    for parameters in ({"weight": None}, {"weight": weight}):
        w = parameters["weight"]
        whole, blocks, dask = (
            sb.ForwardRegressor("rbf", gamma=1.0, candidates=50, max_terms=15).fit(rows, y, w).loo_
            for rows in (X, RowBlocks([X[:70], X[70:]]), da.from_array(X, chunks=(64, 4)))
        )
        for name in whole:
            np.testing.assert_allclose(blocks[name], whole[name], rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(dask[name], whole[name], rtol=1e-8, atol=1e-8)
    model = sb.PartitionedRVMRegressor("rbf", gamma="scale", partition_size=40)
    plain = clone(model).fit(X, y).loo_
    dask = clone(model).fit(da.from_array(X, chunks=(64, 4)), da.from_array(y, chunks=64)).loo_
    np.testing.assert_allclose(dask.residuals, plain.residuals, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (sb.RVMRegressor("rbf", gamma="scale", heal=True), "heal=True"),
        (sb.BackfittingRegressor(variance="factorised"), "Diagonal"),
        (sb.GroupHorseshoeRegressor(_PAIRS, n_samples=8, n_warmup=8), "Draws"),
        (sb.ForwardRegressor("rbf", gamma="scale"), "truncate"),
    ],
    ids=repr,
)
def test_a_model_without_loo_says_why(model, why):
    X, y = problem()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = clone(model).fit(X, y)
    if why == "truncate":
        model = model.truncate(1)
    assert not hasattr(model, "loo_")
    with pytest.raises(AttributeError, match=why):
        model.loo_  # noqa: B018


def test_a_saved_model_keeps_nothing_as_long_as_the_rows():
    X, y = problem()
    model = sb.RVMRegressor("rbf", gamma="scale").fit(X, y)
    with pytest.raises(AttributeError, match="loaded"):
        pickle.loads(pickle.dumps(model)).loo_  # noqa: B018
    assert len(model.loo_.std) == len(y)


def test_a_refit_without_healing_has_loo_again():
    X, y = problem()
    model = sb.RVMRegressor("rbf", gamma="scale", heal=True).fit(X, y)
    healed = model.set_params(heal=False).fit(X, y).loo_
    np.testing.assert_array_equal(
        healed.std, sb.RVMRegressor("rbf", gamma="scale").fit(X, y).loo_.std
    )


@pytest.mark.parametrize("failing", ["trial", "fold", "one fold"])
@pytest.mark.parametrize("model", [sb.RVMRegressor(), sb.ForwardRegressor(refit=None)])
def test_trials_and_folds_that_break_down_do_not_fail_the_fit(model, failing, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (60, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.2 * rng.standard_normal(60)
    solve, failures = type(model)._solve, []

    def broken(self, problem):
        if problem.purpose == failing.split()[-1] and not (failures and "one" in failing):
            failures.append(problem)
            raise np.linalg.LinAlgError
        return solve(self, problem)

    monkeypatch.setattr(type(model), "_solve", broken)
    fitted = clone(model).fit(X, y)
    assert failures
    assert fitted.score(X, y) > 0.8
    assert np.isfinite(fitted.calibration_)
