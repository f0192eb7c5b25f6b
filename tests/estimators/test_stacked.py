import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparsebayes import RVMRegressor, SparseGPRegressor
from sparsebayes.estimators import stacked
from sparsebayes.estimators.stacked import StackedRegressor

RNG = np.random.default_rng(0)
X = np.column_stack([np.exp(RNG.standard_normal(260)), RNG.uniform(-2, 2, 260)])
MEAN = np.log(X[:, 0]) + np.sin(2 * X[:, 1])
POSITIVE = np.exp(0.5 * MEAN + 0.2 * RNG.standard_normal(260))
SIGNED = MEAN + 0.3 * RNG.standard_normal(260)
TRAIN, TEST = slice(0, 200), slice(200, 260)


@pytest.fixture(scope="module")
def positive():
    return StackedRegressor().fit(X[TRAIN], POSITIVE[TRAIN])


@pytest.fixture(scope="module")
def signed():
    return StackedRegressor().fit(X[TRAIN], SIGNED[TRAIN])


@parametrize_with_checks([StackedRegressor(kernel="rbf", gamma=0.5, target_transform=None)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_everything_that_was_compared_is_said(positive):
    table = positive.choices_
    assert table["member"] == [
        "linear",
        "linear of log y",
        "Gaussian process",
        "additive Gaussian process",
        "Gaussian process of log y",
    ]
    assert sum(table["weight"]) == pytest.approx(1.0)
    assert len({len(column) for column in table.values()}) == 1
    best = int(np.argmax(table["loo_log_density"]))
    assert table["error"][best] == 0.0
    assert "models compared" in positive.notes_[0]
    assert positive.members_[0].name in positive.notes_[1]


def test_a_sum_of_functions_of_single_inputs_is_predicted_by_the_additive_process():
    rng = np.random.default_rng(0)
    Z = np.exp(rng.standard_normal((320, 10)))
    f = np.abs(np.log(Z)).sum(axis=1)
    y = f + 0.3 * rng.standard_normal(320)
    model = StackedRegressor(target_transform=None).fit(Z[:120], y[:120])
    weights = dict(zip(model.choices_["member"], model.choices_["weight"], strict=True))
    assert weights["additive Gaussian process"] > 0.2
    alone = SparseGPRegressor().fit(Z[:120], y[:120])
    errors = [np.mean((m.predict(Z[120:]) - f[120:]) ** 2) for m in (model, alone)]
    assert errors[0] < 0.9 * errors[1]


@pytest.mark.parametrize(("y", "of_log"), [(POSITIVE, " of log y"), (SIGNED, "")])
def test_many_rows_have_a_process_of_the_average_of_both_kernels(monkeypatch, y, of_log):
    monkeypatch.setattr(stacked, "_FEW_ROWS", 100)
    kept = []
    weigh = StackedRegressor._weight_members
    monkeypatch.setattr(
        StackedRegressor, "_weight_members", lambda m, c: (kept.append(c), weigh(m, c))
    )
    model = StackedRegressor().fit(X[TRAIN], y[TRAIN])
    partly = f"partly additive Gaussian process{of_log}"
    assert model.choices_["member"] == ["linear", "Gaussian process", partly]
    first, second = (member.model for member in kept[0].members[1:])
    assert second.kernel_ == f"{first.kernel_} + additive"
    kernel = second._fitted.kernel
    each = [
        part.bind(X[:5])(X[TRAIN]) for part in (first._fitted.kernel.kernel, kernel.added.kernel)
    ]
    np.testing.assert_allclose(kernel.kernel.bind(X[:5])(X[TRAIN]), np.mean(each, axis=0))
    assert kernel.n_lengths == first._fitted.kernel.n_lengths + kernel.added.n_lengths


def test_of_many_inputs_the_additive_kernel_has_the_most_relevant_ones(monkeypatch):
    monkeypatch.setattr(stacked, "_MOST_ADDITIVE", 3)
    rng = np.random.default_rng(0)
    Z = rng.uniform(-1, 1, (200, 8))
    y = np.abs(Z[:, 1]) + np.sign(Z[:, 6]) + 0.1 * rng.standard_normal(200)
    model = StackedRegressor(target_transform=None).fit(Z, y)
    names = [member.name for member in model.members_]
    additive = model.members_[names.index("additive Gaussian process")].model
    ranked = additive.warp_.inputs
    assert len(ranked) == 3
    assert {1, 6} <= set(ranked)
    assert not np.any(additive.gamma_[1, :8])  # inputs themselves
    few = StackedRegressor(target_transform=None).fit(Z[:25], y[:25])
    assert "additive Gaussian process" not in few.choices_["member"]


@pytest.mark.parametrize("params", [{"kernel": "rbf"}, {"gamma": 0.5}, {"prefer": "small"}])
def test_a_kernel_that_was_asked_for_has_no_additive_process_beside_it(params):
    model = StackedRegressor(**params).fit(X[:60], SIGNED[:60])
    assert "additive Gaussian process" not in model.choices_["member"]


def test_members_are_ordered_by_weight_and_the_first_is_the_regressor(positive):
    assert np.all(np.diff(positive.weights_) <= 0)
    assert positive.regressor_ is positive.members_[0].model
    assert positive.target_transform_ == ("log" if positive.members_[0].log else None)


def test_the_process_of_the_logarithm_shares_a_kernel(positive):
    models = dict(zip(positive.choices_["member"], positive.choices_["seconds"], strict=True))
    assert models["Gaussian process of log y"] < models["Gaussian process"]


def test_the_mixture_predicts_left_out_rows_as_well_as_any_member(positive):
    loo = positive.loo_
    table = zip(positive.choices_["loo_log_density"], positive.choices_["weight"], strict=True)
    assert np.mean(loo.log_density) >= max(mean for mean, weight in table if weight) - 0.01
    assert loo.residuals.shape == (200,)
    assert 0.5 < loo.r2 < 1.0


@pytest.mark.parametrize("y", [POSITIVE, SIGNED])
def test_intervals_quantiles_draws_and_std_are_of_one_distribution(y):
    model = StackedRegressor().fit(X[TRAIN], y[TRAIN])
    mean, std = model.predict(X[TEST], return_std=True)
    np.testing.assert_allclose(mean, model.predict(X[TEST]), rtol=1e-10)
    np.testing.assert_allclose(std, model._predictive(X[TEST]).std)
    low, high = model.predict_interval(X[TEST], coverage=0.9).T
    np.testing.assert_allclose(
        model.predict_quantiles(X[TEST], [0.05, 0.95]), np.column_stack([low, high])
    )
    draws = model.sample_y(X[TEST], 6000, random_state=1)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.15 * np.std(y))
    np.testing.assert_allclose(
        np.quantile(draws, 0.5, axis=1),
        model.predict_quantiles(X[TEST], 0.5)[:, 0],
        atol=0.15 * np.std(y),
    )
    inside = np.mean((low < y[TEST]) & (y[TEST] < high))
    assert 0.78 < inside <= 1.0
    conformal = model.predict_interval(X[TEST], coverage=0.9, calibrated="conformal")
    assert 0.78 < np.mean((conformal[:, 0] < y[TEST]) & (y[TEST] < conformal[:, 1])) <= 1.0
    assert np.mean(model._predictive(X[TEST]).crps(y[TEST])) < 0.4 * np.std(y[TEST])


def test_draws_of_one_column_belong_to_one_member(signed):
    """Rows of a draw vary together, as those of a process do."""
    near = X[TEST][:1] + np.array([[0.0, 0.0], [0.0, 1e-6]])
    process = StackedRegressor(target_transform=None).fit(X[TRAIN], MEAN[TRAIN])
    draws = process.sample_y(near, 400)
    assert draws.shape == (2, 400)
    mean, covariance = signed.predict(near, return_cov=True)
    np.testing.assert_allclose(mean, signed.predict(near), rtol=1e-8)
    np.testing.assert_allclose(
        np.sqrt(np.diag(covariance)), signed.predict(near, return_std=True)[1], rtol=1e-6
    )


def test_a_model_of_the_logarithm_with_a_worse_mean_has_no_weight():
    rng = np.random.default_rng(3)
    x = rng.uniform(0.2, 1.0, (200, 1))
    exact, skewed = np.exp(rng.normal(0.0, 0.02, 200)), rng.uniform(0.0, 10.0, 200) ** 3 / 50.0
    y = np.where(x[:, 0] > 0.6, exact, skewed)  # bounded, so that its logarithm has a long tail
    model = StackedRegressor().fit(x, y)
    of_log = _left_out_rmse(StackedRegressor(target_transform="log").fit(x, y))
    of_y = _left_out_rmse(StackedRegressor(target_transform=None).fit(x, y))
    assert model.density_gain_ > 100.0  # or nothing is tested
    assert of_log > 1.05 * of_y
    names, weights = model.choices_["member"], model.choices_["weight"]
    assert weights[names.index("Gaussian process of log y")] == 0.0


def lognormal(n, seed):
    """Return skewed inputs and a target whose noise is a factor."""
    rng = np.random.default_rng(seed)
    Z = np.exp(rng.standard_normal((n, 4)))
    f = 0.8 * np.log(Z[:, 0]) - 0.5 * np.log(Z[:, 1]) + 0.3 * np.log(Z[:, 2])
    return Z, np.exp(f + 0.7 * rng.standard_normal(n))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_kernel_is_learnt_from_the_logarithm_of_a_lognormal_target():
    Z, y = lognormal(1400, 0)
    model = StackedRegressor().fit(Z[:400], y[:400])
    assert model.density_gain_ > 50.0
    names, weights = model.choices_["member"], model.choices_["weight"]
    assert weights[names.index("Gaussian process and kernel of log y")] > 0.5
    of_y = StackedRegressor(target_transform=None).fit(Z[:400], y[:400])
    new, truth = Z[400:], y[400:]
    density = [m._predictive(new).log_density(truth) for m in (model, of_y)]
    assert np.mean(density[0] - density[1]) > 0.1
    errors = [np.mean((m.predict(new) - truth) ** 2) for m in (model, of_y)]
    assert errors[0] < errors[1]
    low, high = model.predict_interval(new).T
    assert np.mean(low < 0.0) < 0.05 < np.mean(of_y.predict_interval(new)[:, 0] < 0.0)
    assert 0.92 < np.mean((low <= truth) & (truth <= high)) < 0.98


@pytest.mark.parametrize("params", [{"gamma": 0.5}, {"prefer": "small"}])
def test_a_kernel_that_is_not_learnt_or_to_be_small_is_not_learnt_again(params):
    Z, y = lognormal(400, 0)
    model = StackedRegressor(**params).fit(np.log(Z), y)
    assert "Gaussian process and kernel of log y" not in model.choices_["member"]


def _left_out_rmse(model):
    return np.sqrt(np.mean(model.loo_.residuals**2))


def test_fewer_rows_than_columns_are_a_sparse_linear_model():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((50, 200))
    y = Z[:, 3] - 2.0 * Z[:, 50] + 1.5 * Z[:, 120] + 0.3 * rng.standard_normal(50)
    new = rng.standard_normal((300, 200))
    truth = new[:, 3] - 2.0 * new[:, 50] + 1.5 * new[:, 120]
    model = StackedRegressor().fit(Z, y)
    assert model.members_[0].name == "linear"
    assert 1.0 - np.mean((model.predict(new) - truth) ** 2) / np.var(truth) > 0.9


def test_small_is_one_model_with_few_terms(signed):
    model = StackedRegressor(prefer="small").fit(X[TRAIN], SIGNED[TRAIN])
    assert len(model.members_) == 1
    assert "functions" in model.choices_["member"]
    terms = dict(zip(model.choices_["member"], model.choices_["terms"], strict=True))
    assert terms[model.members_[0].name] < terms["Gaussian process"]
    assert not hasattr(model.regressor_, "warp_")
    assert "smallest within one standard error" in model.notes_[1]


def test_transforms_are_as_asked_for():
    none = StackedRegressor(target_transform=None).fit(X[TRAIN], POSITIVE[TRAIN])
    assert not any("log" in name for name in none.choices_["member"])
    log = StackedRegressor(target_transform="log").fit(X[TRAIN], POSITIVE[TRAIN])
    assert all("log" in name for name in log.choices_["member"])
    with pytest.raises(ValueError, match="positive everywhere, but its smallest value is"):
        StackedRegressor(target_transform="log").fit(X, SIGNED)
    with pytest.raises(ValueError, match="no joint covariance of y"):
        log.predict(X[:2], return_cov=True)


def test_known_noise_has_no_model_of_the_logarithm():
    model = StackedRegressor(noise_variance=0.1).fit(X[TRAIN], POSITIVE[TRAIN])
    assert not any("log" in name for name in model.choices_["member"])


def test_saved_models_predict_the_same(positive):
    loaded = pickle.loads(pickle.dumps(positive))
    np.testing.assert_array_equal(loaded.predict(X[TEST]), positive.predict(X[TEST]))
    np.testing.assert_array_equal(
        loaded.predict_interval(X[TEST]), positive.predict_interval(X[TEST])
    )
    with pytest.raises(AttributeError, match="was loaded"):
        loaded.loo_  # noqa: B018


def test_scales_of_the_target_change_nothing_else(positive):
    again = clone(positive).fit(X[TRAIN], 1024.0 * POSITIVE[TRAIN])
    np.testing.assert_allclose(again.weights_, positive.weights_, atol=1e-4)
    np.testing.assert_allclose(
        again.predict(X[TEST]), 1024.0 * positive.predict(X[TEST]), rtol=1e-4
    )


def test_weights_are_repetition():
    weight = np.random.default_rng(1).integers(0, 3, 200).astype(float)
    rows = np.repeat(np.arange(200), weight.astype(int))
    ours = StackedRegressor("rbf", gamma=0.3).fit(X[TRAIN], SIGNED[TRAIN], sample_weight=weight)
    theirs = StackedRegressor("rbf", gamma=0.3).fit(X[rows], SIGNED[rows])
    np.testing.assert_allclose(ours.predict(X[TEST]), theirs.predict(X[TEST]), rtol=1e-3)


def test_warnings_of_members_without_weight_are_not_given(recwarn):
    StackedRegressor().fit(X[TRAIN], SIGNED[TRAIN])
    assert not [w for w in recwarn if issubclass(w.category, UserWarning)]


def test_one_member_is_the_model_itself():
    model = StackedRegressor(target_transform=None).fit(X[TRAIN], SIGNED[TRAIN])
    alone = RVMRegressor(kernel=None, noise_variance="input").fit(X[TRAIN], SIGNED[TRAIN])
    k = model.choices_["member"].index("linear")
    assert model.choices_["loo_log_density"][k] == pytest.approx(np.mean(alone.loo_.log_density))


def test_left_out_densities_are_those_of_the_members():
    y = SIGNED + 0.5 * np.random.default_rng(1).standard_t(2.0, 260)
    model = StackedRegressor(target_transform=None).fit(X[TRAIN], y[TRAIN])
    for member in model.members_:
        found = member.leave_one_out(y[TRAIN]).log_density(y[TRAIN])
        np.testing.assert_allclose(found, member.model.loo_.log_density, rtol=1e-6, atol=1e-8)


def test_the_summary_names_the_members_of_the_mixture():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 2))
    model = StackedRegressor().fit(X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(60))
    pairs = dict(model._summary_pairs())
    assert all(member.name in pairs["mixture"] for member in model.members_)
    assert "noise (std)" in pairs
