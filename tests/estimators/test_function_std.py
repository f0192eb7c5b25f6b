"""Standard deviations without the noise: of the function, and of coefficients."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from sparsebayes import (
    BackfittingRegressor,
    ForwardRegressor,
    GroupARDRegressor,
    GroupSpikeSlabRegressor,
    NARXRegressor,
    OrthogonalLeastSquaresRegressor,
    RVMClassifier,
    RVMRegressor,
    SparseGPRegressor,
    SparseTargetTransform,
    table_model,
)
from sparsebayes.estimators.stacked import StackedRegressor
from tests.registry import REGRESSION, label, plain_models

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (60, 4))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * RNG.standard_normal(60)
NEW = RNG.uniform(-2, 2, (25, 4))
MODELS = [model for model in plain_models(REGRESSION) if hasattr(model, "_solve")]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_the_noise_is_all_that_is_left_out(model):
    model = clone(model).fit(X, Y)
    mean, std = model.predict(NEW, return_std=True)
    same, function = model.predict(NEW, return_std="function")
    np.testing.assert_array_equal(mean, same)
    scale = model.calibration_**2
    np.testing.assert_allclose(std**2 - function**2, scale * model.noise_variance_, rtol=1e-6)
    posterior, Phi = model.posterior_, model.basis_(NEW)
    centred = Phi if posterior.centre is None else Phi - posterior.centre
    dense = np.einsum("ij,jk,ik->i", centred, posterior.covariance, centred)
    variance = scale * (dense + posterior.offset_variance)
    if model._fitted.model.added is not None:
        assert np.all(function**2 > 0.999 * variance)
    else:
        np.testing.assert_allclose(function**2, variance, rtol=1e-6, atol=1e-12)


def test_it_is_exact_where_noise_depends_on_the_inputs_and_variances_are_calibrated():
    rng = np.random.default_rng(1)
    x = rng.uniform(-3, 3, (200, 1))
    y = np.sin(2 * x[:, 0]) + np.where(x[:, 0] > 0, 0.6, 0.05) * rng.standard_normal(200)
    model = SparseGPRegressor("rbf", gamma=0.5, noise_variance="input").fit(x, y)
    assert model.noise_model_ is not None
    mean, covariance = model.predict(x, return_cov=True)
    same, function = model.predict(x, return_std="function")
    np.testing.assert_allclose(mean, same)
    noise = model._fitted.predictive_noise.variance(x, model._fitted.predictor)
    assert np.max(noise) > 20 * np.min(noise)
    np.testing.assert_allclose(function**2, np.diag(covariance) - noise, rtol=1e-5, atol=1e-9)


def test_rows_in_blocks_on_dask_and_as_float32_have_the_same():
    import dask.array as da

    model = RVMRegressor("rbf", gamma=0.3).fit(X, Y)
    _, function = model.predict(NEW, return_std="function")
    lazy = model.predict(da.from_array(NEW, chunks=(10, 4)), return_std="function")[1]
    np.testing.assert_allclose(lazy.compute(), function)
    blocks = model.predict(iter([NEW[:9], NEW[9:]]), return_std="function")[1]
    np.testing.assert_allclose(blocks, function)
    single = model.predict(NEW.astype(np.float32), return_std="function")[1]
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, function, rtol=1e-3)


def test_a_model_of_log_y_has_that_of_the_mean_given_the_function():
    y = np.exp(0.5 * Y)
    model = SparseTargetTransform(RVMRegressor("rbf", gamma=0.3), target_transform="log").fit(X, y)
    inner, rng = model.regressor_, np.random.default_rng(0)
    mu, s = inner.predict(NEW, return_std="function")
    noise = inner.calibration_**2 * inner.noise_variance_
    draws = np.exp(mu[:, None] + s[:, None] * rng.standard_normal((len(NEW), 40_000)) + noise / 2)
    mean, function = model.predict(NEW, return_std="function")
    np.testing.assert_array_equal(mean, model.predict(NEW))
    np.testing.assert_allclose(function, draws.std(axis=1), rtol=0.05)
    assert np.all(function < model.predict(NEW, return_std=True)[1])


def test_a_mixture_has_the_spread_between_its_members():
    model = StackedRegressor("rbf", gamma=0.3, target_transform=None, warp=False).fit(X, Y)
    model.weights_ = np.array([0.6, 0.4]) if len(model.members_) == 2 else model.weights_
    mean, function = model.predict(NEW, return_std="function")
    parts = [member.model.predict(NEW, return_std="function") for member in model.members_]
    second = sum(w * (m**2 + s**2) for w, (m, s) in zip(model.weights_, parts, strict=True))
    np.testing.assert_allclose(function, np.sqrt(second - mean**2), rtol=1e-6)


def test_a_table_has_it_also_for_unknown_categories():
    kind = RNG.choice(list("abc"), 60)
    frame = pd.DataFrame({"x": X[:, 0], "kind": kind})
    y = X[:, 0] + 3.0 * (kind == "a") + 0.5 * RNG.standard_normal(60)
    model = table_model(model="linear").fit(frame, y)
    new = pd.DataFrame({"x": [0.0, 0.0], "kind": ["a", "d"]})
    said = "'d' in column 'kind' was not in the training data"
    with pytest.warns(UserWarning, match=said):
        _, function = model.predict(new, return_std="function")
    with pytest.warns(UserWarning, match=said):
        _, std = model.predict(new, return_std=True)
    final = model.final_
    noise = final.calibration_**2 * final.noise_variance_
    np.testing.assert_allclose(std**2 - function**2, noise, rtol=1e-6)
    assert function[1] > 1.0 > function[0]
    with pytest.raises(ValueError, match="'bayesian-ridge' is BayesianRidge: use return_std=True"):
        table_model(model="bayesian-ridge").fit(frame, y).predict(frame, return_std="function")


def test_one_step_ahead_of_a_system():
    u = X[:, 0]
    y = np.convolve(u, [0.0, 0.5])[:60] + 0.1 * RNG.standard_normal(60)
    system = NARXRegressor(input_lags=1, output_lags=1, degree=1).fit(u, y)
    std = system.predict(u, y, return_std=True)[1][2:]
    function = system.predict(u, y, return_std="function")[1][2:]
    np.testing.assert_allclose(std**2 - function**2, system.noise_variance_)


def test_other_words_are_refused():
    for model in (
        RVMRegressor(kernel=None),
        StackedRegressor("rbf", gamma=0.3),
        SparseTargetTransform(RVMRegressor(kernel=None)),
        table_model(model="linear"),
    ):
        with pytest.raises(ValueError, match="'function' .without the noise. or False, got 'mean'"):
            model.fit(X, Y).predict(X, return_std="mean")


COLUMNS = [
    RVMRegressor(kernel=None),
    ForwardRegressor(kernel=None),
    OrthogonalLeastSquaresRegressor(kernel=None),
    BackfittingRegressor(),
    BackfittingRegressor(variance="factorised"),
    GroupSpikeSlabRegressor(),
    GroupARDRegressor(),
]


@pytest.mark.parametrize("model", COLUMNS, ids=label)
def test_coefficients_have_the_standard_deviation_of_a_step_of_one_in_their_column(model):
    # Units of the user: the second column is in halves, the target in hundreds.
    scale = np.array([1.0, 0.5, 1.0, 1.0])
    A, y = X * scale, 100.0 * (X @ [2.0, -1.0, 0.0, 0.0] + 0.3 * RNG.standard_normal(60))
    model = clone(model).fit(A, y)
    assert model.coef_std_.shape == (4,)
    posterior, basis = model.posterior_, model.basis_
    std = np.zeros(4)
    # Group models average over the inclusion of every column; the others are zero where not chosen.
    averages = len(posterior.mean) > len(model.active_)
    columns = np.arange(4) if averages else model.active_
    std[columns] = np.sqrt(np.diag(posterior.covariance)) * basis.scale
    np.testing.assert_allclose(model.coef_std_, model.calibration_ * std, rtol=1e-9)
    assert np.all(np.abs(model.coef_[:2] - [200.0, -200.0]) < 4 * model.coef_std_[:2])
    # Without an intercept, the function at a row of the identity is one coefficient.
    plain = clone(model).set_params(fit_intercept=False).fit(A, y)
    _, function = plain.predict(np.eye(4), return_std="function")
    np.testing.assert_allclose(plain.coef_std_, function, rtol=1e-6, atol=1e-12)


def test_coefficients_of_several_targets_and_of_classes():
    Z = np.column_stack([X[:, 0], X[:, 1] - X[:, 0]]) + 0.3 * RNG.standard_normal((60, 2))
    model = RVMRegressor(kernel=None).fit(X, Z)
    assert model.coef_std_.shape == model.coef_.shape == (2, 4)
    std = np.sqrt(np.diagonal(model.posterior_.covariance)) * model.basis_.scale
    np.testing.assert_allclose(model.coef_std_[:, model.active_].T, model.calibration_ * std.T)
    labels = RVMClassifier(kernel=None).fit(X, Z[:, 0] > 0)
    assert labels.coef_std_.shape == (1, 4)
    std = np.sqrt(np.diag(labels.posterior_.covariance)) * labels.basis_.scale
    np.testing.assert_allclose(labels.coef_std_[0, labels.active_], std)
    assert not hasattr(RVMRegressor("rbf", gamma=0.3).fit(X, Y), "coef_std_")
