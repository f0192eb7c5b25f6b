"""BackfittingRegressor, held to its contract."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparsebayes.displays import PartialEffectsDisplay
from sparsebayes.estimators.backfitting import BackfittingRegressor
from tests.helpers import dense_log_evidence, dense_posterior, intercept_log_evidence

SPLINE = make_pipeline(SplineTransformer(6), LinearRegression())


def _sparse_data(n=300, m=2000, k=4, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    X = sparse.random_array((n, m), density=0.05, rng=rng, format="csr")
    truth = np.sort(rng.choice(m, k, replace=False))
    w = np.zeros(m)
    w[truth] = rng.choice([-1, 1], k) * rng.uniform(2, 4, k)
    return X, X @ w + 3.0 + noise * rng.standard_normal(n) * np.std(X @ w), truth


def _expected_failures(estimator):
    if isinstance(estimator, BackfittingRegressor) and estimator.kernel == "matern32":
        reason = "the cycles end within tol, and the order of the rows decides the last digits"
        return {
            "check_sample_weight_equivalence_on_dense_data": reason,
            "check_sample_weight_equivalence_on_sparse_data": reason,
        }
    return {}


@parametrize_with_checks(
    [
        BackfittingRegressor(),
        BackfittingRegressor("rbf"),
        BackfittingRegressor("matern32", variance="factorised", fit_intercept=False),
        BackfittingRegressor(prior="ridge"),
        BackfittingRegressor(prior="none", variance="factorised"),
        BackfittingRegressor(variant="fake-targets", max_iter=20),
        BackfittingRegressor(smoothers=DecisionTreeRegressor(max_depth=2)),
    ],
    expected_failed_checks=_expected_failures,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


# Regression.


@pytest.mark.parametrize("kernel", [None, "rbf"])
@pytest.mark.parametrize("prior", ["ard", "ridge"])
@pytest.mark.parametrize("intercept", [True, False])
def test_attributes_satisfy_the_dense_formulas(kernel, prior, intercept):
    X, y = make_friedman1(60, noise=1.0, random_state=0)
    X, y = X * np.logspace(-1, 1, 10), y + 10.0
    width = {"gamma": 0.3} if kernel else {}
    model = BackfittingRegressor(kernel, prior=prior, fit_intercept=intercept, **width).fit(X, y)
    Phi = rbf_kernel(X, model.relevance_vectors_, 0.3) if kernel else X[:, model.active_]
    evidence = intercept_log_evidence if intercept else dense_log_evidence
    expected = evidence(Phi, y, model.weight_precision_, model.noise_variance_)
    assert model.log_evidence_ == pytest.approx(expected, abs=1e-4)
    assert model.variance_ == "exact"
    if prior == "ridge":
        np.testing.assert_allclose(model.weight_precision_, model.weight_precision_[0])
    weights = model.coef_ if kernel else model.coef_[model.active_]
    np.testing.assert_allclose(model.predict(X), Phi @ weights + model.intercept_, rtol=1e-8)
    if not intercept:
        precision, noise = model.weight_precision_, model.noise_variance_
        mean, covariance = dense_posterior(Phi, y, precision, noise)
        np.testing.assert_allclose(weights, mean, rtol=1e-5)
        _, std = model.predict(X, return_std=True)
        expected = np.sqrt(noise + np.einsum("ij,jk,ik->i", Phi, covariance, Phi))
        np.testing.assert_allclose(std, model.calibration_ * expected, rtol=1e-5)


@pytest.mark.parametrize("variance", ["exact", "factorised"])
def test_without_a_prior_it_is_least_squares(variance):
    X, y = make_friedman1(80, noise=1.0, random_state=1)
    model = BackfittingRegressor(prior="none", variance=variance).fit(X, y)
    theirs = LinearRegression().fit(X, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=1e-8)
    assert model.intercept_ == pytest.approx(theirs.intercept_, rel=1e-8)
    assert np.all(np.isfinite(model.predict(X, return_std=True)[1]))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"variance": "factorised"},
        {"prior": "ridge"},
        {"variant": "fake-targets", "max_iter": 40},
        {"kernel": "rbf"},
        {"kernel": "rbf", "variance": "factorised"},
        {"smoothers": SPLINE},
    ],
)
def test_bound_never_falls_and_std_agrees_with_covariance_and_draws(settings):
    X, y = make_friedman1(120, 6, noise=1.0, random_state=2)
    model = BackfittingRegressor(**settings)
    if settings.get("variant"):
        with pytest.warns(ConvergenceWarning):
            model.fit(X, y)
    else:
        model.fit(X, y)
    assert len(model.bound_) == model.n_iter_
    assert np.min(np.diff(model.bound_), initial=0.0) > -1e-9 * np.abs(model.bound_).max()
    mean, std = model.predict(X[:5], return_std=True)
    same, cov = model.predict(X[:5], return_cov=True)
    np.testing.assert_allclose(mean, same)
    np.testing.assert_allclose(std, np.sqrt(np.diag(cov)))
    draws = model.sample_y(X[:5], 20_000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.05 * y.std())
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.05)


@pytest.mark.parametrize("variance", ["exact", "factorised"])
def test_sparse_input_is_dense_input(variance):
    X, y, truth = _sparse_data()
    thin = BackfittingRegressor(variance=variance).fit(X, y)
    full = BackfittingRegressor(variance=variance).fit(X.toarray(), y)
    np.testing.assert_array_equal(np.sort(thin.active_), np.sort(full.active_))
    assert set(truth) <= set(thin.active_)
    assert thin.log_evidence_ == pytest.approx(full.log_evidence_, abs=1e-6)
    for rows in (X[:20], sparse.csc_array(X[:20]), X[:20].toarray()):
        np.testing.assert_allclose(thin.predict(rows), full.predict(X[:20].toarray()), rtol=1e-8)


@pytest.mark.parametrize("settings", [{}, {"kernel": "rbf"}, {"prior": "ridge"}])
def test_sample_weight_equals_repetition(settings):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((50, 3))
    y = X[:, 0] - X[:, 1] ** 2 + 0.3 * rng.standard_normal(50)
    weight = rng.integers(0, 4, 50)
    model = BackfittingRegressor(**settings)
    weighted = clone(model).fit(X, y, sample_weight=weight)
    repeated = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_, abs=1e-5)
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-4)


def test_sparse_weights_are_dense_weights():
    X, y, _ = _sparse_data(m=100)
    weight = np.random.default_rng(0).integers(0, 3, 300)
    a = BackfittingRegressor().fit(X, y, weight)
    b = BackfittingRegressor().fit(X.toarray(), y, weight)
    assert a.log_evidence_ == pytest.approx(b.log_evidence_, abs=1e-6)


def test_scaling_the_data_scales_the_model():
    X, y, _ = _sparse_data(m=100)
    for settings in ({}, {"prior": "ridge"}):
        model = BackfittingRegressor(**settings).fit(X, y)
        for c in (1e-100, 1e100):
            other = BackfittingRegressor(**settings).fit(X * c, y * c)
            np.testing.assert_allclose(other.predict(X * c), c * model.predict(X), rtol=1e-6)


def test_many_columns_fall_back_to_factorised_variances_and_say_so():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((60, 30))
    y = X.sum(axis=1) + rng.standard_normal(60)
    small = BackfittingRegressor(prior="ridge", cache_size=16e-6 * 29**2).fit(X, y)
    assert small.variance_ == "factorised"
    assert BackfittingRegressor(prior="ridge").fit(X, y).variance_ == "exact"


@pytest.mark.parametrize(
    "settings",
    [
        {"variance": "factorised"},
        {"variance": "factorised", "inclusion_prior": 0.2},
        {"variance": "factorised", "inclusion_prior": None},
        {"variance": "factorised", "variant": "fake-targets", "max_iter": 2000},
        {"inclusion_prior": None, "cache_size": 16e-6 * 2**2},  # more than may be exact
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_factorised_evidence_is_a_bound_without_the_prior_of_the_set(settings):
    rng = np.random.default_rng(6)
    Q = np.linalg.qr(np.column_stack([np.ones(200), rng.standard_normal((200, 12))]))[0]
    X = np.sqrt(200) * Q[:, 1:]  # orthogonal columns: a factorised posterior is exact
    y = X[:, :3] @ [1.0, -2.0, 0.5] + 0.5 * rng.standard_normal(200)
    model = BackfittingRegressor(**settings).fit(X, y)
    assert model.variance_ == "factorised"
    precision, noise = model.weight_precision_, model.noise_variance_
    dense = intercept_log_evidence(X[:, model.active_], y, precision, noise)
    assert dense - 8.0 < model.log_evidence_ < dense + 1e-4  # that of the dense intercept
    if settings.get("variant") is None:
        assert model.log_evidence_ == pytest.approx(dense, abs=0.05)


def test_a_column_that_gains_little_enters_where_others_may_follow():
    # One column alone gains .0006 nats; with the others that it lets in it gains 18.
    X = np.array([[2, 4, 0], [6, 0, 2], [0, 6, -10], [0, 2, -2], [-4, -4, 4]])
    y = np.array([102.3, 2.35, 1.99, 0.95, -0.295])
    weight = np.array([0.0029, 0.0025, 0.00055, 0.0101, 27.8])
    model = BackfittingRegressor(variance="factorised")
    coarse = model.fit(X, y, weight).log_evidence_
    assert model.set_params(tol=1e-5).fit(X, y, weight).log_evidence_ == pytest.approx(coarse)
    assert len(model.active_) == 3


def test_a_number_of_columns_is_a_prior_too():
    X, y, truth = _sparse_data(n=150, m=3000, noise=0.5)
    few = BackfittingRegressor(inclusion_prior=1e-4).fit(X, y)
    with pytest.warns(ConvergenceWarning):
        many = BackfittingRegressor(inclusion_prior=0.3, max_iter=15).fit(X, y)
    assert len(few.active_) <= len(truth) + 1 < len(many.active_)


def test_no_more_than_asked_is_an_unfinished_fit():
    X, y, _ = _sparse_data()
    with pytest.warns(ConvergenceWarning, match=r"has not converged \(max_iter\)"):
        model = BackfittingRegressor(max_iter=2).fit(X, y)
    assert not model.converged_
    assert np.all(np.isfinite(model.predict(X)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"prior": "flat"}, "The 'prior' parameter of .* must be"),
        ({"variant": "em"}, "The 'variant' parameter of .* must be"),
        ({"variance": "full"}, "The 'variance' parameter of .* must be"),
        ({"inner": "jacobi"}, "The 'inner' parameter of .* must be"),
        ({"inclusion_prior": 1.5}, "The 'inclusion_prior' parameter of .* must be"),
        ({"smoothers": SPLINE, "kernel": "rbf"}, "smoothers are fitted to columns of X"),
        ({"smoothers": [SPLINE]}, "smoothers has 1 entries, but X has 3 columns"),
        ({"smoothers": [(SPLINE, [5])]}, "smoothers\\[0\\] has the column indices"),
        ({"smoothers": [1, 2, 3]}, "must be a regressor"),
        ({"gamma": 0.5}, "gamma=0.5 requires a kernel"),
        ({"gamma": np.ones(3)}, "requires a kernel"),
        ({"degree": 2}, "degree=2 requires a kernel"),
        ({"prior": "ridge", "inclusion_prior": 0.1}, "inclusion_prior=0.1 requires prior='ard'"),
        (
            {"variant": "fake-targets", "inclusion_prior": "learn"},
            "is not available with variant='fake-",
        ),
        (
            {"variant": "fake-targets", "inner": "gauss-seidel"},
            "is not available with variant='fake-",
        ),
        ({"smoothers": SPLINE, "prior": "ridge"}, "prior='ridge' does not apply to smoothers"),
        ({"smoothers": SPLINE, "variant": "fake-targets"}, "does not apply to smoothers"),
        ({"smoothers": SPLINE, "inner": "gauss-seidel"}, "does not apply to smoothers"),
    ],
)
def test_wrong_parameters_are_a_sentence(parameters, message):
    X = np.random.default_rng(0).standard_normal((20, 3))
    with pytest.raises(ValueError, match=message):
        BackfittingRegressor(**parameters).fit(X, X[:, 0])


def test_a_target_without_noise_is_fitted_and_converges():
    X = np.repeat([[1.0, 3.0], [2.0, 1.0], [3.0, 3.0], [4.0, 1.0]], 4, axis=0)
    y = np.repeat([1.0, 2.0, 1.0, 2.0], 4)
    for kernel in (None, "rbf"):
        model = BackfittingRegressor(kernel).fit(X, y)
        assert model.converged_
        np.testing.assert_allclose(model.predict(X), y, atol=1e-4)


# Kernel widths.


# Smoothers.


def test_additive_model_recovers_its_components_with_honest_bands():
    rng = np.random.default_rng(7)
    X = rng.uniform(-1, 1, (400, 4))
    truth = [lambda x: np.sin(3 * x), lambda x: 0 * x, lambda x: x**2, lambda x: -x]
    parts = np.column_stack([f(X[:, j]) for j, f in enumerate(truth)])
    y = parts.sum(axis=1) + 0.3 * rng.standard_normal(400) + 2.0
    model = BackfittingRegressor(smoothers=SPLINE).fit(X, y)
    assert model.converged_
    assert {0, 2, 3} <= set(model.active_)
    assert model.relevance_[1] < 0.6
    assert np.all(model.relevance_[[0, 2, 3]] > 0.9)
    assert np.sqrt(model.noise_variance_) == pytest.approx(0.3, rel=0.1)
    effects, std = model.partial_effects(X)
    np.testing.assert_allclose(effects.sum(axis=1) + model.intercept_, model.predict(X), rtol=1e-8)
    for j in (0, 2, 3):
        error = effects[:, j] - (parts[:, j] - parts[:, j].mean())
        assert np.mean(np.abs(error) < 1.96 * std[:, j]) > 0.85
        assert np.sqrt(np.mean(error**2)) < 0.08
        assert 0.5 < np.sqrt(np.mean(std[:, j] ** 2)) / np.sqrt(np.mean(error**2)) < 2.5


def test_projections_never_lower_the_bound_and_find_their_degrees_of_freedom():
    X, y = make_friedman1(200, 6, noise=1.0, random_state=1)
    model = BackfittingRegressor(smoothers=SPLINE).fit(X, y)
    assert np.min(np.diff(model.bound_)) > -1e-9 * np.abs(model.bound_).max()
    noise = np.random.default_rng(0).standard_normal(200)
    flat = BackfittingRegressor(smoothers=SPLINE, inclusion_prior=None).fit(X, noise)
    assert np.mean(flat.relevance_) < 0.3


@pytest.mark.parametrize(
    "smoother",
    [SPLINE, DecisionTreeRegressor(max_depth=2), KernelRidge(kernel="rbf", gamma=3.0)],
)
def test_components_of_pure_noise_are_left_out_and_true_ones_kept(smoother):
    kept = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (100, 6))
        noise = rng.standard_normal(100)
        kept.append(len(BackfittingRegressor(smoothers=smoother).fit(X, noise).active_))
        y = np.sin(3 * X[:, 0]) + X[:, 2] ** 2 + 0.4 * noise
        found = BackfittingRegressor(smoothers=smoother).fit(X, y)
        assert {0, 2} <= set(found.active_)
        assert len(found.active_) <= 3
    assert np.mean(kept) < 0.4


def test_an_inclusion_prior_is_the_price_of_a_component():
    X, y = make_friedman1(100, 6, noise=1.0, random_state=1)
    tree = DecisionTreeRegressor(max_depth=2)
    flat, charged, strict = (
        BackfittingRegressor(smoothers=tree, inclusion_prior=p).fit(X, y)
        for p in (None, 0.1, 1e-200)
    )
    assert len(flat.active_) >= len(charged.active_) > len(strict.active_) == 0
    assert flat.log_evidence_ == flat.bound_[-1]
    price = len(charged.active_) * np.log(9.0)
    assert charged.log_evidence_ == pytest.approx(charged.bound_[-1] + price)


@pytest.mark.parametrize(
    "smoother",
    [DecisionTreeRegressor(max_depth=3, min_samples_leaf=10), KernelRidge(kernel="rbf", gamma=10)],
)
def test_any_regressor_may_smooth(smoother):
    X, y = make_friedman1(150, 6, noise=1.0, random_state=0)
    new, truth = make_friedman1(300, 6, noise=0.0, random_state=1)
    model = BackfittingRegressor(smoothers=smoother).fit(X, y)
    assert set(range(5)) <= set(model.active_)
    assert np.sqrt(np.mean((model.predict(new) - truth) ** 2)) < 2.3
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(new), model.predict(new))


def test_a_component_may_see_several_columns():
    X, y = make_friedman1(200, 5, noise=0.5, random_state=0)
    pair = KernelRidge(alpha=0.1, kernel="rbf", gamma=3.0)
    parts = [(pair, [0, 1]), (SPLINE, 2), (SPLINE, 3), (SPLINE, 4)]
    model = BackfittingRegressor(smoothers=parts).fit(X, y)
    apart = BackfittingRegressor(smoothers=SPLINE).fit(X, y)
    assert model.partial_effects(X)[0].shape == (200, 4)
    assert model.noise_variance_ < 0.5 * apart.noise_variance_


def test_weights_reach_the_smoothers_or_are_refused():
    X, y = make_friedman1(100, random_state=0)
    weight = np.ones(100)
    weight[:50] = 3.0
    tree = DecisionTreeRegressor(max_depth=2)
    weighted = BackfittingRegressor(smoothers=tree).fit(X, y, weight)
    assert not np.allclose(weighted.predict(X), clone(weighted).fit(X, y).predict(X))
    with pytest.raises(ValueError, match="does not support sample_weight"):
        BackfittingRegressor(smoothers=SPLINE).fit(X, y, weight)


def test_partial_effects_of_columns_are_straight_lines():
    X, y = make_friedman1(100, noise=0.5, random_state=0)
    model = BackfittingRegressor().fit(X, y)
    effects, std = model.partial_effects(X)
    np.testing.assert_allclose(effects, (X - X.mean(axis=0)) * model.coef_, atol=1e-10)
    assert np.all(std[:, model.active_].max(axis=0) > 0)
    with pytest.raises(ValueError, match="partial_effects requires"):
        BackfittingRegressor("rbf").fit(X, y).partial_effects(X)


def test_display_shows_each_component_with_its_band():
    X, y = make_friedman1(150, 5, noise=0.5, random_state=0)
    model = BackfittingRegressor(smoothers=SPLINE).fit(X, y)
    display = PartialEffectsDisplay.from_estimator(model, X, components=[3, 4], n_grid=50)
    assert display.names == ["x3", "x4"]
    assert [len(line.get_xdata()) for line in display.lines_] == [50, 50]
    assert "relevance" in display.axes_[0].get_title()
    linear = PartialEffectsDisplay.from_estimator(BackfittingRegressor().fit(X, y), X)
    assert len(linear.bands_) == len(linear.names) >= 3
    with pytest.raises(ValueError, match="no effects with credible bands"):
        PartialEffectsDisplay.from_estimator(LinearRegression().fit(X, y), X)


@pytest.mark.parametrize("variant", ["factorised", "fake-targets"])
def test_columns_whose_squares_overflow_are_refused_in_a_sentence(variant):
    X, y = make_friedman1(30, random_state=0)
    with pytest.raises(ValueError, match="scale X"):
        BackfittingRegressor("linear", variant=variant).fit(1e150 * X, y)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"inclusion_prior": None},
        {"variance": "factorised"},
        {"smoothers": LinearRegression()},
    ],
)
def test_a_column_that_determines_the_target_ends_with_one_sentence(settings):
    X = np.random.default_rng(0).standard_normal((200, 5))
    with pytest.warns(ConvergenceWarning) as caught:
        model = BackfittingRegressor(**settings).fit(X, X[:, 0] - X[:, 1])
    assert len(caught) == 1
    assert "explains the target up to rounding" in str(caught[0].message)
    assert model.converged_
    assert {0, 1} <= set(model.active_)


def test_smoothers_that_are_hardly_shrunk_have_a_finite_evidence():
    # 1 - x = 1e-20 is no difference of float64: its logarithm was minus infinity.
    x = np.linspace(-1.0, 1.0, 30)[:, None]
    y, noise = 1e6 * x[:, 0], 1e-8
    model = BackfittingRegressor(smoothers=LinearRegression(), noise_variance=noise).fit(x, y)
    theta = np.sum((y - np.mean(y)) ** 2) / noise
    assert np.isfinite(model.log_evidence_)
    assert theta > 1e16


@pytest.mark.parametrize("seed", [0, 3, 7])
def test_smoothers_that_take_each_others_place_end_where_more_cycles_gain_nothing(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((3, 8))
    y = X[:, 0] + X[:, 1]
    models = [
        BackfittingRegressor(smoothers=Ridge(), noise_variance=1e-8, tol=tol, max_iter=300).fit(
            X, y
        )
        for tol in (1e-3, 1e-6)
    ]
    assert models[0].converged_
    assert models[0].log_evidence_ == pytest.approx(models[1].log_evidence_, abs=0.01)


def test_smoothers_that_change_each_other_in_turn_end(monkeypatch):
    monkeypatch.setattr(BackfittingRegressor, "_merges_duplicates", lambda self: False)
    rng = np.random.default_rng(0)
    X, noise = rng.standard_normal((150, 6))[:37], 0.5 * rng.standard_normal(150)[:37]
    y = X[:, 0] - X[:, 1] + 0.5 * X[:, 2] + noise
    X, y = np.repeat(X, 4, axis=0), np.repeat(y, 4)
    tree = DecisionTreeRegressor(max_depth=3)
    with pytest.warns(ConvergenceWarning, match=r"cycling.*smoother functions avoid"):
        model = BackfittingRegressor(smoothers=tree).fit(X, y)
    assert model.n_iter_ < 200


@pytest.mark.parametrize("repeated", [False, True])
def test_smoothers_that_interpolate_end(repeated):
    # Counted a hundred times each, 20 rows of noise are still 20 observations.
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 20)), rng.standard_normal(20)
    rows = (np.repeat(X, 100, axis=0), np.repeat(y, 100)) if repeated else (X, y, np.full(20, 100))
    model = BackfittingRegressor(smoothers=Ridge()).fit(*rows)
    assert model.n_iter_ < 100
    assert model.noise_variance_ > 0.3 * np.var(y)


def test_independent_weights_of_overlapping_functions_are_warned_of():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (50, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(50)
    model = BackfittingRegressor("rbf", gamma=0.5, variance="factorised")
    with pytest.warns(UserWarning, match="treated as independent"):
        model.fit(X, y)


def test_ridge_of_more_columns_than_rows_keeps_its_coverage():
    # Nothing is selected, so there is no optimism of a selection to be paid for.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((260, 200))
    y = X[:, :20] @ rng.standard_normal(20) + rng.standard_normal(260)
    model = BackfittingRegressor(prior="ridge").fit(X[:60], y[:60])
    mean, std = model.predict(X[60:], return_std=True)
    assert 0.88 < np.mean(np.abs(y[60:] - mean) < 1.96 * std) < 0.99
    assert np.sqrt(np.mean(std**2) / np.mean((y[60:] - mean) ** 2)) < 1.5


def test_trees_that_use_most_of_the_rows_are_warned_of_and_linear_smoothers_are_not():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (100, 3))
    y = np.sin(3 * X[:, 0]) + X[:, 1] ** 2 - X[:, 2] + 0.3 * rng.standard_normal(100)
    with pytest.warns(UserWarning, match="The smoothers adapt to their target"):
        BackfittingRegressor(smoothers=DecisionTreeRegressor(max_depth=5)).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BackfittingRegressor(smoothers=DecisionTreeRegressor(max_depth=1)).fit(X, y)
        BackfittingRegressor(smoothers=KNeighborsRegressor(5)).fit(X, y)  # 60 degrees of freedom
