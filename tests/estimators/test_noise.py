"""Noise by the inputs, known, or with tails, in the estimators; intervals and quantiles of all."""

import warnings

import dask.array as da
import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sparsebayes as sb
from sparsebayes.designs import RowBlocks
from sparsebayes.metrics import SCORERS, interval_coverage, negative_log_density
from sparsebayes.posterior.noise import NoiseModel

FOUR = [
    sb.ForwardRegressor("rbf", gamma=0.3, max_terms=40),
    sb.RVMRegressor("rbf", gamma=0.3),
    sb.OrthogonalLeastSquaresRegressor("rbf", gamma=0.3),
    sb.PartitionedRVMRegressor("rbf", gamma=0.3, algorithm="fast"),
]


def problem(n=400, seed=0, df=None, varies=True):
    """Noise that grows along the first input."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    sd = np.exp(0.5 * X[:, 0] - 1.0) if varies else np.full(n, 0.3)
    e = rng.standard_normal(n) if df is None else rng.standard_t(df, n)
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] + sd * e, sd


@pytest.mark.parametrize("model", FOUR, ids=lambda m: type(m).__name__)
def test_the_noise_follows_the_inputs(model):
    X, y, _ = problem()
    plain = clone(model).fit(X, y)
    model = clone(model).set_params(noise_variance="input").fit(X, y)
    assert isinstance(model.noise_model_, NoiseModel)
    new, target, sd = problem(2000, seed=1)
    mean, std = model.predict(new, return_std=True)
    before = negative_log_density(target, *plain.predict(new, return_std=True))
    assert negative_log_density(target, mean, std) < before - 0.1
    assert np.corrcoef(np.log(std), np.log(sd))[0, 1] > 0.9
    inside = [interval_coverage(target, model.predict_interval(new, c)) for c in (0.5, 0.95)]
    assert inside[0] == pytest.approx(0.5, abs=0.1)
    assert inside[1] == pytest.approx(0.95, abs=0.05)
    Phi = model.basis_(X)
    expected = model.noise_model_.variance(X, Phi, model.posterior_)
    np.testing.assert_allclose(model.noise_variance_, expected)
    inside = np.all((new > X.min(axis=0)) & (new < X.max(axis=0)), axis=1)
    noise = model._fitted.predictive_noise.variance(new, model._fitted.predictor)
    function = model.posterior_.function_variance(model.basis_(new))
    np.testing.assert_allclose(
        (std**2 - noise)[inside], (model.calibration_**2 * function)[inside], rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("model", FOUR, ids=lambda m: type(m).__name__)
def test_one_level_stays_a_number(model):
    X, y, _ = problem(varies=False)
    plain = clone(model).fit(X, y)
    model = clone(model).set_params(noise_variance="input").fit(X, y)
    assert model.noise_model_ is None
    assert np.ndim(model.noise_variance_) == 0
    assert model.noise_variance_ == pytest.approx(0.09, rel=0.2)
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))


def test_a_refit_forgets_the_noise_of_the_last():
    X, y, _ = problem()
    model = sb.RVMRegressor("rbf", gamma=0.3, noise_variance="input").fit(X, y)
    model.set_params(noise_variance="learn").fit(X, y)
    assert model.noise_model_ is None
    assert np.ndim(model.noise_variance_) == 0


def test_truncated_models_have_one_level():
    X, y, _ = problem()
    model = sb.ForwardRegressor("rbf", gamma=0.3, max_terms=20, noise_variance="input").fit(X, y)
    short = model.truncate(2)
    assert short.noise_model_ is None
    assert np.ptp(short.predict(X, return_std=True)[1]) < np.ptp(
        model.predict(X, return_std=True)[1]
    )


def test_covariance_and_draws_have_the_noise_of_each_row():
    X, y, _ = problem()
    model = sb.RVMRegressor("rbf", gamma=0.3, noise_variance="input").fit(X, y)
    rows = X[:4]
    _, std = model.predict(rows, return_std=True)
    _, covariance = model.predict(rows, return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std)
    draws = model.sample_y(rows, 40_000, random_state=0)
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.03)


# Known variances.


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_known_variances_are_those_of_the_dense_formula(fit_intercept):
    rng = np.random.default_rng(0)
    X, variance = rng.standard_normal((30, 3)), rng.uniform(0.1, 2.0, 30)
    y = X @ [1.0, 2.0, 0.5] + np.sqrt(variance) * rng.standard_normal(30)
    model = sb.RVMRegressor(None, noise_variance=variance, fit_intercept=fit_intercept).fit(X, y)
    Phi, A = X[:, model.active_], np.diag(1.0 / model.weight_precision_)
    C = np.diag(variance) + Phi @ A @ Phi.T
    if fit_intercept:  # a flat prior, integrated out
        P, one = np.linalg.inv(C), np.ones(30)
        b = one @ P @ y / (one @ P @ one)
        evidence = multivariate_normal(np.full(30, b), C).logpdf(y)
        evidence += 0.5 * np.log(2.0 * np.pi / (one @ P @ one))
        mean = b + Phi @ A @ Phi.T @ P @ (y - b)
    else:
        evidence = multivariate_normal(np.zeros(30), C).logpdf(y)
        mean = Phi @ A @ Phi.T @ np.linalg.solve(C, y)
    np.testing.assert_allclose(model.predict(X), mean, rtol=1e-6, atol=1e-8)
    assert model.log_evidence_ == pytest.approx(evidence, abs=1e-6)
    np.testing.assert_array_equal(model.noise_variance_, variance)


@pytest.mark.parametrize("model", [*FOUR, sb.SparseGPRegressor("rbf", gamma=0.3)])
@pytest.mark.parametrize("power", [1.0, 0.5])
def test_weights_that_are_inverse_variances_say_nothing_more(model, power):
    X, y, sd = problem(60)
    known = clone(model).set_params(noise_variance=sd**2).fit(X, y)
    rounded = np.round(np.mean(sd**2) / sd ** (2.0 * power), 2)
    rounded[7] = 0.0
    with pytest.warns(UserWarning, match="sample_weight is not used"):
        again = clone(known).fit(X, y, sample_weight=rounded)
    counted = np.arange(60) != 7
    without = clone(model).set_params(noise_variance=sd[counted] ** 2).fit(X[counted], y[counted])
    mean, std = without.predict(X, return_std=True)
    np.testing.assert_allclose(again.predict(X, return_std=True), (mean, std), rtol=0.02)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="sample_weight is the larger")
        clone(known).fit(X, y, sample_weight=np.random.default_rng(1).integers(0, 4, 60))


@pytest.mark.parametrize("model", FOUR, ids=lambda m: type(m).__name__)
def test_equal_variances_are_one_number(model):
    X, y, _ = problem(60)
    one = clone(model).set_params(noise_variance=0.2).fit(X, y)
    each = clone(model).set_params(noise_variance=np.full(60, 0.2)).fit(X, y)
    np.testing.assert_allclose(one.predict(X), each.predict(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        one.predict(X, return_std=True)[1], each.predict(X, return_std=True)[1], rtol=1e-5
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"noise_variance": np.ones(3)}, "one positive variance per row"),
        ({"noise_variance": -np.ones(60)}, "one positive variance per row"),
        ({"noise_variance": "much"}, "The 'noise_variance' parameter of .* must be"),
        ({"noise_variance": 0.1, "likelihood": "student"}, "estimates the noise"),
        ({"likelihood": "cauchy"}, "The 'likelihood' parameter of .* must be"),
    ],
)
def test_mistakes_are_named(settings, words):
    X, y, _ = problem(60)
    with pytest.raises(ValueError, match=words):
        sb.RVMRegressor("rbf", gamma="scale", **settings).fit(X, y)


def test_targets_without_squares_are_refused_in_a_sentence():
    X, y, _ = problem(40)
    for settings in ({"noise_variance": "input"}, {"likelihood": "student"}):
        with pytest.raises(ValueError, match="scale y"):
            sb.RVMRegressor("rbf", gamma="scale", **settings).fit(X, 1e200 * y)


def test_weights_in_robust_rounds_do_not_overflow_with_a_large_target():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    y = X[:, 0] + 0.1 * rng.standard_t(2, 40)
    weight = 10.0 ** rng.uniform(-8, 2, 40)
    model = sb.RVMRegressor(kernel=None, likelihood="student")
    expected = model.fit(X, y, weight).predict(X, return_std=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = model.fit(X, np.ldexp(y, 505), weight).predict(X, return_std=True)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(np.ldexp(other, -505), one, rtol=1e-6)


def test_student_noise_of_rows_that_are_interpolated_stays_that_of_the_fit():
    y = 1e12 + np.array([0.1, 0.5, -0.2])  # the third digit of the residuals is rounding
    model = sb.RVMRegressor(likelihood="student")
    mean, std = model.fit([[0.0], [1.0], [2.0]], y, [3.0, 0.0, 2.0]).predict([[0.0]], True)
    assert mean[0] == pytest.approx(1e12)
    assert 0.0 < std[0] < 1.0


def test_a_robust_fit_learns_its_kernel_under_heavy_tails():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (60, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.2 * rng.standard_t(2, 60)
    model = sb.RVMRegressor(likelihood="student").fit(X, y)  # trials of trials: RecursionError
    assert model.noise_tail_.df < 4.0


def test_choosing_measurements_needs_one_level():
    X, y, _ = problem()
    model = sb.RVMRegressor("rbf", gamma=0.3, noise_variance="input").fit(X, y)
    with pytest.raises(ValueError, match="the same noise variance for all rows"):
        sb.information_gain(model, X[:3])


def test_noise_of_each_row_is_not_for_rows_that_are_gone():
    X, y, _ = problem(60)
    with pytest.raises(AttributeError, match="partial_fit"):
        sb.RVMRegressor("rbf", gamma=0.3, noise_variance="input").partial_fit(X, y)


def test_several_targets_have_one_level_each():
    X, y, _ = problem(60)
    with pytest.raises(ValueError, match="one target"):
        sb.RVMRegressor("rbf", gamma="scale", noise_variance="input").fit(
            X, np.column_stack([y, y])
        )
    both = sb.RVMRegressor("rbf", gamma="scale").fit(X, np.column_stack([y, -y]))
    assert both.predict_interval(X).shape == (60, 2, 2)


# Tails and outliers.


def test_tails_of_the_noise_widen_the_far_quantiles():
    X, y, _ = problem(600, df=3, varies=False)
    model = sb.RVMRegressor("rbf", gamma=0.3).fit(X, y)
    assert model.noise_tail_.df < 6
    new, target, _ = problem(4000, seed=1, df=3, varies=False)
    mean, std = model.predict(new, return_std=True)
    for c in (0.5, 0.99):
        inside = interval_coverage(target, model.predict_interval(new, c))
        assert inside == pytest.approx(c, abs=0.04 if c < 0.9 else 0.006)
    assert model._predictive(new).log_density(target).mean() > -negative_log_density(
        target, mean, std
    )


def test_draws_have_the_tails():
    X, y, _ = problem(600, df=3, varies=False)
    model = sb.RVMRegressor("rbf", gamma=0.3).fit(X, y)
    rows, alpha = X[:3], np.array([0.005, 0.25, 0.9])
    draws = model.sample_y(rows, 200_000, random_state=0)
    found = model.predict_quantiles(rows, alpha)
    scale = model.predict(rows, return_std=True)[1]
    np.testing.assert_allclose(
        np.quantile(draws, alpha, axis=1).T / scale[:, None], found / scale[:, None], atol=0.12
    )


@pytest.mark.parametrize("model", FOUR, ids=lambda m: type(m).__name__)
def test_outliers_do_not_move_a_robust_fit(model):
    X, y, _ = problem(300, varies=False)
    new, _, _ = problem(2000, seed=1, varies=False)
    truth = np.sin(new[:, 0]) + 0.3 * new[:, 1]
    robust = clone(model).set_params(likelihood="student")
    noise = 0.3 * np.random.default_rng(3).standard_normal(2000)

    def error(model, y):
        return np.sqrt(np.mean((clone(model).fit(X, y).predict(new) - truth - noise) ** 2))

    clean = error(model, y)
    assert error(robust, y) < 1.02 * clean
    bad = np.random.default_rng(2).choice(300, 30, replace=False)
    spoilt = y.copy()
    spoilt[bad] += 10.0 * np.random.default_rng(2).choice([-1.0, 1.0], 30)
    assert error(robust, spoilt) < 1.1 * clean
    assert error(robust, spoilt) < error(model, spoilt)


# Everywhere.


def test_weights_of_the_user_are_rows():
    X, y, sd = problem(40)
    count = np.random.default_rng(0).integers(0, 3, 40)
    again = np.repeat(np.arange(40), count)
    model = sb.RVMRegressor(None)
    weighted = clone(model).set_params(noise_variance=sd**2).fit(X, y, sample_weight=count)
    repeated = clone(model).set_params(noise_variance=sd[again] ** 2).fit(X[again], y[again])
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-6)
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_)
    np.testing.assert_allclose(weighted.loo_.std[again], repeated.loo_.std)
    one = clone(model).set_params(noise_variance="input").fit(X, y, sample_weight=count)
    assert one.noise_variance_ == pytest.approx(
        clone(model).set_params(noise_variance="input").fit(X[again], y[again]).noise_variance_,
        rel=0.2,  # folds fall otherwise
    )


@pytest.mark.parametrize("kind", ["blocks", "dask"])
def test_rows_elsewhere_give_the_same_noise(kind):
    X, y, _ = problem(400)
    model = sb.ForwardRegressor(
        "rbf", gamma=0.3, max_terms=20, candidates=60, noise_variance="input"
    )
    here = clone(model).fit(X, y)
    assert here.noise_model_ is not None
    if kind == "dask":
        rows = da.from_array(X, chunks=(150, 2))
    else:
        rows = RowBlocks([X[:150], X[150:]])
    there = clone(model).fit(rows, y)
    np.testing.assert_allclose(there.noise_variance_, here.noise_variance_, rtol=1e-4)
    np.testing.assert_allclose(there.predict(X), here.predict(X), rtol=1e-4, atol=1e-6)
    if kind == "dask":
        interval = there.predict_interval(rows, 0.9)
        np.testing.assert_allclose(interval.compute(), there.predict_interval(X, 0.9))
        quantiles = there.predict_quantiles(rows, [0.1, 0.5, 0.8])
        np.testing.assert_allclose(quantiles.compute(), there.predict_quantiles(X, [0.1, 0.5, 0.8]))


def test_partitions_on_dask_have_the_noise_of_arrays():
    X, y, _ = problem(400)
    model = sb.PartitionedRVMRegressor("rbf", gamma=0.3, algorithm="fast", noise_variance="input")
    here = clone(model).fit(X, y)
    assert here.noise_model_ is not None
    chunked = da.from_array(X, chunks=(130, 2)), da.from_array(y, chunks=130)
    there = clone(model).fit(*chunked)
    np.testing.assert_allclose(there.noise_variance_, here.noise_variance_, rtol=1e-4)


def test_checkpoints_are_of_the_first_round(tmp_path):
    X, y, _ = problem(300)
    model = sb.PartitionedRVMRegressor(
        "rbf", gamma=0.3, algorithm="fast", noise_variance="input", checkpoint_dir=tmp_path
    )
    first = clone(model).fit(X, y)
    assert first.noise_model_ is not None
    assert first.checkpoint_dir == tmp_path
    np.testing.assert_array_equal(clone(model).fit(X, y).predict(X), first.predict(X))


_FEW = {"n_chains": 2, "n_samples": 40, "n_warmup": 40}
ALL = [
    *FOUR,
    sb.RVMRegressor("rbf", gamma="scale", heal=True),
    sb.RVMRegressor("rbf", gamma="scale", noise_variance="input"),
    sb.BackfittingRegressor(),
    sb.BackfittingRegressor(variance="factorised"),
    sb.GroupSpikeSlabRegressor(),
    sb.GroupSpikeSlabRegressor(inference="gibbs", **_FEW),
    sb.GroupARDRegressor(),
    sb.GroupHorseshoeRegressor(**_FEW),
    sb.BayesianGroupLassoRegressor(**_FEW),
    sb.SparseTargetTransform(sb.RVMRegressor("rbf", gamma="scale")),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", ALL, ids=str)
def test_every_regressor_has_intervals_and_quantiles(model):
    X, y, _ = problem(60, varies=False)
    model = clone(model).fit(X, y)
    wide, narrow = model.predict_interval(X, 0.95), model.predict_interval(X, 0.5)
    assert wide.shape == (60, 2)
    assert np.all(wide[:, 0] < narrow[:, 0])
    assert np.all(narrow[:, 1] < wide[:, 1])
    quantiles = model.predict_quantiles(X, [0.025, 0.5, 0.975])
    np.testing.assert_allclose(quantiles[:, [0, 2]], wide)
    assert np.all(np.diff(quantiles, axis=1) > 0)
    mean, std = model.predict(X, return_std=True)
    assert np.all(np.abs(quantiles[:, 1] - mean) < 0.5 * std)
    assert model.predict_quantiles(X, 0.5).shape == (60, 1)
    assert interval_coverage(y, wide) > 0.85
    for bad in (0.0, 1.0, 95, True, "all"):
        with pytest.raises(ValueError, match="between 0 and 1"):
            model.predict_interval(X, bad)
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.predict_quantiles(X, [0.5, 1.0])
    if model._calibration is None:
        with pytest.raises(ValueError, match="leave-one-out residuals"):
            model.predict_interval(X, calibrated="conformal")
    else:
        far = model.predict_interval(X, 0.9, calibrated="conformal")
        assert interval_coverage(y, far) > 0.8
        assert np.all(np.isinf(model.predict_interval(X, 0.999, calibrated="conformal")))
    np.testing.assert_allclose(wide, model.predict_quantiles(X, [0.025, 0.975]))
    own = model.predict_interval(X, 0.95, calibrated=False)
    assert np.all(np.ptp(own, axis=1) <= (1.0 + 1e-9) * np.ptp(wide, axis=1))
    with pytest.raises(ValueError, match="True, False or 'conformal'"):
        model.predict_interval(X, calibrated="yes")


def test_conformal_intervals_cover_whatever_the_noise_is():
    rng = np.random.default_rng(0)
    X, new = rng.uniform(-3, 3, (500, 1)), rng.uniform(-3, 3, (5000, 1))
    noise = [rng.exponential(1.0, n) * rng.choice([-3.0, 0.2], n) for n in (500, 5000)]
    model = sb.RVMRegressor("rbf", gamma=0.5).fit(X, np.sin(X[:, 0]) + noise[0])
    target = np.sin(new[:, 0]) + noise[1]
    for c in (0.6, 0.9):
        inside = interval_coverage(target, model.predict_interval(new, c, calibrated="conformal"))
        assert inside == pytest.approx(c, abs=0.04)


def test_a_length_for_each_input_is_paid_for_on_a_small_table():
    # Rows left out in closed form have been seen by the lengths: they cover 95 %, new rows 90 %.
    inside, before, left_out = [], [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((600, 30))
        y = X[:, :4] @ [1.0, 0.7, 0.5, 0.3] + 0.5 * rng.standard_normal(600)
        model = sb.SparseGPRegressor("rbf", gamma="ard", warp=False).fit(X[:100], y[:100])
        mean, std = model.predict(X[100:], return_std=True)
        far, loo = np.abs(mean - y[100:]) / std, model.loo_
        inside.append(np.mean(far < 1.96))
        before.append(np.mean(far * model.calibration_ < 1.96))
        left_out.append(np.mean(np.abs(loo.residuals) * model.calibration_ < 1.96 * loo.std))
    assert np.mean(left_out) > 0.93
    assert np.mean(before) < 0.91
    assert 0.92 < np.mean(inside) < 0.98


def test_the_std_is_that_of_the_distribution_of_the_quantiles():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (300, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.2 * rng.standard_t(2.5, 300)
    model = sb.ForwardRegressor("rbf", gamma="ard").fit(X, y)
    assert model.calibration_ > 1.0
    assert model.noise_tail_.variance == pytest.approx(1.0)
    assert model.noise_tail_.df < 6.0


@pytest.mark.parametrize(
    "model",
    [
        sb.ForwardRegressor(),
        sb.ForwardRegressor("rbf", gamma=1.0, likelihood="student"),
        sb.RVMRegressor("rbf", gamma=1.0),
    ],
    ids=["auto", "student", "RVM"],
)
@pytest.mark.filterwarnings("ignore:Row")
def test_intervals_and_draws_are_of_one_distribution_far_from_the_rows_too(model):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (150, 1))
    y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.standard_t(2.5, 150)
    model = clone(model).fit(X, y)
    assert model.noise_tail_.df < 4.0
    far = np.array([[0.0], [1.5], [4.0]])
    with pytest.warns(UserWarning, match="outside the range"):
        std = model.predict(far, return_std=True)[1]
    draws = model.sample_y(far, 20_000)
    for coverage in (0.5, 0.95):
        ends = model.predict_interval(far, coverage)
        inside = np.mean((draws > ends[:, :1]) & (draws < ends[:, 1:]), axis=1)
        np.testing.assert_allclose(inside, coverage, atol=0.012)
    # Where the function is what is not known, the distribution is normal.
    quartile = np.diff(model.predict_interval(far, 0.5))[2, 0] / 2.0
    assert quartile == pytest.approx(0.674 * std[2], rel=0.15)


@pytest.mark.parametrize(
    "params",
    [{"gamma": 0.02}, {"kernel": "laplacian", "gamma": 0.1}, {"kernel": "poly", "gamma": 0.1}],
    ids=str,
)
def test_a_wide_kernel_that_was_given_does_not_hide_that_a_row_is_outside(params):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (60, 1))
    model = sb.RVMRegressor(**{"kernel": "rbf", **params}).fit(X, np.sin(3.0 * X[:, 0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict([[1.1]])
    with pytest.warns(UserWarning, match="outside the range"):
        model.predict([[1.5]])


def test_small_tables_of_many_widths_pay_their_full_price():
    # Closed-form residuals know widths that have seen the row.
    inside, plain = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        sizes = (4, 8, 12, 16)
        codes = [rng.integers(0, k, 220) for k in sizes]
        X = np.column_stack([np.eye(k)[c] for k, c in zip(sizes, codes, strict=True)])
        y = sum(rng.normal(0, 0.7, k)[c] for k, c in zip(sizes, codes, strict=True))
        y = y + 0.5 * rng.standard_normal(220)
        for settings, out in (({"noise_variance": "input"}, inside), ({}, plain)):
            model = sb.ForwardRegressor("rbf", gamma="ard", **settings).fit(X[:176], y[:176])
            out.append(interval_coverage(y[176:], model.predict_interval(X[176:])))
    assert np.mean(inside) > 0.9
    assert np.mean(inside) >= np.mean(plain)


def bumpy(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 4))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.standard_normal(n)


@pytest.mark.parametrize(
    "model",
    [
        sb.RVMRegressor("matern32", gamma="ard"),
        sb.OrthogonalLeastSquaresRegressor(),
        sb.BackfittingRegressor("rbf"),
    ],
    ids=str,
)
def test_functions_chosen_for_the_rows_are_paid_for(model):
    # At fixed functions each row left out covers 95 %, and new rows 78 to 83 %.
    inside, before = [], []
    for seed in range(4):
        X, y = bumpy(1150, seed)
        model = clone(model).fit(X[:150], y[:150])
        mean, std = model.predict(X[150:], return_std=True)
        far = np.abs(mean - y[150:]) / std
        inside.append(np.mean(far < 1.96))
        before.append(np.mean(far * model.calibration_ < 1.96))
    assert np.mean(before) < 0.88
    assert 0.92 < np.mean(inside) < 0.975


CALIBRATED = [
    sb.RVMRegressor("matern32", gamma="ard"),
    sb.OrthogonalLeastSquaresRegressor("matern32", gamma="ard"),
    sb.OrthogonalLeastSquaresRegressor("matern32"),
    sb.BackfittingRegressor("rbf"),
    sb.ForwardRegressor("matern32", gamma="ard", max_terms=60, early_stopping=None),
    sb.ForwardRegressor("matern32", gamma="ard", max_terms=150, early_stopping=None),
]


def test_a_machine_with_a_function_for_nearly_every_row_is_not_sure_between_them():
    X, y = make_regression(120, 200, n_informative=5, noise=20.0, random_state=0)
    model = sb.RVMRegressor().fit(X[:90], y[:90])
    assert len(model.active_) > 60
    mean, std = model.predict(X[90:], return_std=True)
    error = np.square(y[90:] - mean)
    assert error.mean() > 10 * np.square(model.loo_.residuals).mean()  # rows left out do not tell
    assert 0.5 < np.mean(error / std**2) < 2.0


@pytest.mark.parametrize("model", CALIBRATED, ids=str)
def test_calibration_multiplies_the_variances_of_predictions_and_nothing_else(model):
    X, y = bumpy(150)
    y = y + 0.3 * np.random.default_rng(1).standard_t(2.5, 150)
    model = clone(model).fit(X, y)
    assert model.calibration_ > 1.0
    Phi, posterior = model.basis_(X), model.posterior_
    variance = posterior.function_variance(Phi) + model.noise_variance_
    added = model._fitted.model.added
    if added is not None:
        variance += added.variance(X, Phi, posterior)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, posterior.at(Phi))
    np.testing.assert_allclose(std, model.calibration_ * np.sqrt(variance), rtol=1e-9)
    np.testing.assert_allclose(model.predict(X, return_cov=True)[1].diagonal(), std**2, rtol=1e-9)
    own = model.predict_interval(X, calibrated=False)
    np.testing.assert_allclose(np.ptp(own, axis=1), 3.919928 * np.sqrt(variance), rtol=1e-6)
    # Conformal intervals are of residuals, whatever the std is.
    reach = np.ptp(model.predict_interval(X, calibrated="conformal"), axis=1) / std
    sizes = np.sort(np.abs(model.loo_.residuals / model.loo_.std))
    assert reach[0] / 2 > 0.9 * sizes[142]


def test_calibration_is_of_each_target_and_of_rows_by_their_weight():
    X, y = bumpy(120)
    both = np.column_stack([y, y[::-1]])
    model = sb.RVMRegressor("matern32", gamma="evidence").fit(X, both)
    assert model.calibration_.shape == (2,)
    weight = np.ones(len(y), dtype=int)
    weight[:3], weight[5:8] = 0, 2
    rows = np.repeat(np.arange(len(y)), weight)
    known = sb.RVMRegressor("matern32", gamma="evidence")
    weighted = clone(known).fit(X, y, weight)
    repeated = clone(known).fit(X[rows], y[rows])
    assert weighted.calibration_ == pytest.approx(repeated.calibration_, rel=1e-5)


def test_rows_in_blocks_pay_as_much_and_copies_of_rows_nothing():
    X, y = bumpy(60)
    model = sb.RVMRegressor("matern32", gamma="evidence")
    whole, blocks = clone(model).fit(X, y), clone(model).fit([X[:25], X[25:]], y)
    assert blocks.calibration_ == pytest.approx(whole.calibration_, rel=1e-6)
    few, copies = clone(model).fit(X[:6], y[:6]), clone(model)
    copies.fit(np.repeat(X[:6], 5, axis=0), np.repeat(y[:6], 5))
    assert copies.calibration_ == pytest.approx(few.calibration_, rel=1e-6)


def test_intervals_are_float32_where_x_is():
    X, y, _ = problem(60)
    model = sb.RVMRegressor("rbf", gamma=0.3).fit(X.astype(np.float32), y)
    assert model.predict_interval(X.astype(np.float32)).dtype == np.float32


def test_scorers_rank_models_in_pipelines():
    X, y, _ = problem(300)
    found = {}
    for noise in ("learn", "input"):
        model = make_pipeline(
            StandardScaler(),
            sb.OrthogonalLeastSquaresRegressor("rbf", gamma="scale", noise_variance=noise),
        )
        found[noise] = cross_validate(model, X, y, scoring=SCORERS, cv=3)
    for name in ("neg_crps", "log_density", "neg_interval_score", "neg_pinball_loss"):
        assert found["input"][f"test_{name}"].mean() > found["learn"][f"test_{name}"].mean(), name
    assert found["input"]["test_coverage"].mean() == pytest.approx(0.95, abs=0.04)


@pytest.mark.parametrize(
    "model",
    [
        sb.RVMRegressor("rbf", gamma=1.0),
        sb.SparseGPRegressor("rbf", gamma=1.0),
        sb.ForwardRegressor("rbf", gamma=1.0),
    ],
    ids=lambda m: type(m).__name__,
)
def test_a_constant_target_is_reported_once(model):
    X = np.random.default_rng(0).standard_normal((30, 2))
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X, np.full(30, 3.0))
    (message,) = [str(entry.message) for entry in caught]
    assert message.startswith("The target is constant. Every prediction is that value")
