"""What every RVMRegressor must do, by each algorithm; tests of single algorithms live beside it."""

import pickle
import time
import warnings

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparsebayes import RVMRegressor
from tests.helpers import (
    AfterTask,
    dense_log_evidence,
    dense_posterior,
    intercept_log_evidence,
)

ALGORITHMS = ["em", "fast", "auto"]


def _sinc(n=80, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-8, 8, (n, 1))
    return X, np.sinc(X[:, 0] / np.pi) + noise * rng.standard_normal(n)


def _expected_failures(estimator):
    if estimator.kernel is not None or estimator.algorithm != "fast":
        return {}
    # 15 rows of 10 columns are interpolated, and the order of the rows decides the last digits.
    why = "the search interpolates so few rows that rounding decides which columns it ends at"
    names = ("dense", "sparse")
    return {f"check_sample_weight_equivalence_on_{name}_data": why for name in names}


@parametrize_with_checks(
    [
        RVMRegressor(kernel, algorithm=algorithm, fit_intercept=intercept)
        for algorithm in ALGORITHMS
        for kernel, intercept in (("rbf", True), (None, True), ("linear", False))
    ],
    expected_failed_checks=_expected_failures,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kernel", ["rbf", None])
def test_attributes_satisfy_the_dense_formulas(algorithm, intercept, kernel):
    X, y = make_friedman1(60, noise=1.0, random_state=0)
    y = y + 10.0
    model = RVMRegressor(kernel, gamma=0.3, algorithm=algorithm, fit_intercept=intercept)
    model.fit(X, y)
    Phi = rbf_kernel(X, model.relevance_vectors_, 0.3) if kernel else X[:, model.active_]
    evidence = intercept_log_evidence if intercept else dense_log_evidence
    expected = evidence(Phi, y, model.weight_precision_, model.noise_variance_)
    assert model.log_evidence_ == pytest.approx(expected, abs=1e-4)
    if kernel is not None or algorithm != "auto":  # else it has the prior of the set of columns
        assert model.history_["log_evidence"][-1] == pytest.approx(expected, abs=1e-2)
    weights = model.coef_ if kernel else model.coef_[model.active_]
    np.testing.assert_allclose(model.predict(X), Phi @ weights + model.intercept_, rtol=1e-8)
    if not intercept:
        mean, _ = dense_posterior(Phi, y, model.weight_precision_, model.noise_variance_)
        np.testing.assert_allclose(weights, mean, rtol=1e-6)
        assert model.intercept_ == 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_std_covariance_and_samples_agree(algorithm):
    X, y = _sinc()
    model = RVMRegressor("rbf", gamma=0.2, algorithm=algorithm).fit(X, y)
    new = np.linspace(-9, 9, 7)[:, None]
    mean, std = model.predict(new, return_std=True)
    same, cov = model.predict(new, return_cov=True)
    np.testing.assert_allclose(mean, same)
    np.testing.assert_allclose(std, np.sqrt(np.diag(cov)))
    draws = model.sample_y(new, 50_000, random_state=1)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.01)
    np.testing.assert_allclose(np.cov(draws), cov, atol=0.002)
    with pytest.raises(ValueError, match="either return_std=True or return_cov=True"):
        model.predict(new, return_std=True, return_cov=True)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_prediction_in_blocks_is_prediction_row_by_row(algorithm):
    X, y = _sinc()
    model = RVMRegressor("rbf", gamma=0.2, algorithm=algorithm).fit(X, y)
    new = np.linspace(-9, 9, 9001)[:, None]
    mean, std = model.predict(new, return_std=True)
    for i in (0, 4096, 9000):
        one, one_std = model.predict(new[i : i + 1], return_std=True)
        assert one[0] == pytest.approx(mean[i], abs=1e-12)
        assert one_std[0] == pytest.approx(std[i], rel=1e-10)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_intervals_cover_what_they_should(algorithm):
    X, y = _sinc(300, seed=1)
    new, truth = _sinc(4000, seed=2)
    mean, std = (
        RVMRegressor("rbf", gamma=0.2, algorithm=algorithm).fit(X, y).predict(new, return_std=True)
    )
    assert 0.92 < np.mean(np.abs(truth - mean) < 1.96 * std) < 0.98


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kernel", ["rbf", None])
def test_sample_weight_equals_repetition(algorithm, kernel):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((50, 3))
    y = X[:, 0] - X[:, 1] ** 2 + 0.3 * rng.standard_normal(50)
    weight = rng.integers(0, 4, 50)
    # Widths learnt from rows that repeat would be those of a target without noise.
    model = RVMRegressor(kernel, gamma="scale", algorithm=algorithm)
    weighted = clone(model).fit(X, y, sample_weight=weight)
    repeated = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_, abs=1e-5)
    assert weighted.noise_variance_ == pytest.approx(repeated.noise_variance_, rel=1e-5)
    for a, b in zip(
        weighted.predict(X, return_std=True), repeated.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_precomputed_kernel_is_the_kernel(algorithm):
    X, y = _sinc()
    # Beside a kernel that it knows the intercept is held first, which may end at another optimum.
    settings = {"algorithm": algorithm, "fit_intercept": False}
    ours = RVMRegressor(gamma=0.2, **{"kernel": "rbf", **settings}).fit(X, y)
    theirs = RVMRegressor("precomputed", **settings).fit(rbf_kernel(X, X, 0.2), y)
    new = np.linspace(-8, 8, 11)[:, None]
    # The starts of "auto" take stored columns at one length: another optimum, too.
    slack, nats = (0.02, 0.5) if algorithm == "auto" else (1e-6, 1e-6)
    np.testing.assert_allclose(
        theirs.predict(rbf_kernel(new, X, 0.2)), ours.predict(new), atol=slack
    )
    assert theirs.log_evidence_ == pytest.approx(ours.log_evidence_, abs=nats)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_cache_the_model_is_the_same(algorithm):
    X, y = _sinc(120)
    kept = RVMRegressor("rbf", gamma=0.2, algorithm=algorithm).fit(X, y)
    lazy = RVMRegressor("rbf", gamma=0.2, algorithm=algorithm, cache_size=0.3)
    if algorithm == "em":
        lazy.set_params(cache_size=120 * 120 * 16e-6 + 1e-9)  # the triangle fits, nothing else
    lazy.fit(X, y)
    assert lazy.log_evidence_ == pytest.approx(kept.log_evidence_, abs=1e-8)


def test_em_refuses_arrays_beyond_the_cache():
    X, y = _sinc(200)
    with pytest.raises(ValueError, match=r"algorithm='em' stores two 200 x 200 arrays.*'fast'"):
        RVMRegressor("rbf", gamma="scale", algorithm="em", cache_size=0.1).fit(X, y)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_scaling_the_target_scales_the_model(algorithm):
    X, y = _sinc()
    model = RVMRegressor("rbf", gamma=0.2, algorithm=algorithm).fit(X, y)
    for c in (1e-150, 1e-3, 1e150):
        other = clone(model).fit(X, c * y)
        np.testing.assert_allclose(other.predict(X), c * model.predict(X), rtol=1e-6)
        assert np.sqrt(other.noise_variance_) == pytest.approx(
            c * np.sqrt(model.noise_variance_), rel=1e-6
        )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kernel", ["rbf", pytest.param("matern52", marks=pytest.mark.slow), None])
def test_scaling_the_inputs_changes_nothing(algorithm, kernel):
    X, y = make_friedman1(60, noise=1.0, random_state=0)
    model = RVMRegressor(kernel, algorithm=algorithm).fit(X, y)
    for c in (1e-150, 1e150):
        other = clone(model).fit(c * X, y)
        np.testing.assert_allclose(other.predict(c * X), model.predict(X), rtol=1e-5)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kernel", ["rbf", None])
def test_odd_data_give_a_right_answer(algorithm, kernel):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 3))
    model = RVMRegressor(kernel, algorithm=algorithm)
    constant = clone(model).fit(X, np.full(30, 7.25))
    assert len(constant.active_) == 0
    mean, std = constant.predict(X, return_std=True)
    np.testing.assert_allclose(mean, 7.25)
    assert np.all(std < 1e-10)
    for bad in (np.ones((30, 3)), np.column_stack([X[:, :1]] * 3), np.zeros((30, 1))):
        fitted = clone(model).fit(bad, X[:, 0] + 0.1 * rng.standard_normal(30))
        assert np.all(np.isfinite(fitted.predict(bad, return_std=True)))
        assert np.isfinite(fitted.log_evidence_)
    two = clone(model).fit(X[:2], [0.0, 1.0])
    assert np.all(np.isfinite(two.predict(X)))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_target_without_noise_is_fitted_closely(algorithm):
    X = np.linspace(-5, 5, 60)[:, None]
    y = np.sin(X[:, 0])
    with np.errstate(all="raise", under="ignore"):
        model = RVMRegressor("rbf", gamma=0.3, algorithm=algorithm).fit(X, y)
    assert np.max(np.abs(model.predict(X) - y)) < 1e-2
    assert np.all(model.predict(X, return_std=True)[1] < 1e-2)
    assert np.isfinite(model.log_evidence_)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kernel": "gaussian"}, "kernel='gaussian' is not valid"),
        ({"algorithm": "slow"}, "The 'algorithm' parameter of .* must be"),
        ({"gamma": -1.0}, "gamma must be positive"),
        ({"gamma": "wide"}, "gamma='wide' is not valid"),
        ({"gamma": [1.0, 2.0]}, "X has 1 inputs"),
        ({"noise_variance": 0.0}, "The 'noise_variance' parameter of .* must be"),
        ({"noise_variance": "fixed"}, "The 'noise_variance' parameter of .* must be"),
        ({"tol": 0.0}, "The 'tol' parameter of .* must be"),
        ({"max_iter": 0}, "The 'max_iter' parameter of .* must be"),
        ({"cache_size": -1}, "The 'cache_size' parameter of .* must be"),
        ({"fit_intercept": "yes"}, "The 'fit_intercept' parameter of .* must be"),
        ({"verbose": "a"}, "The 'verbose' parameter of .* must be"),
        ({"degree": "a"}, "The 'degree' parameter of .* must be"),
        ({"coef0": "b"}, "The 'coef0' parameter of .* must be"),
        ({"warm_start": 2}, "The 'warm_start' parameter of .* must be"),
    ],
)
def test_wrong_parameters_are_a_sentence(parameters, message):
    X, y = _sinc(20)
    with pytest.raises(ValueError, match=message):
        RVMRegressor(**{"kernel": "rbf", "gamma": "scale", **parameters}).fit(X, y)


def test_wrong_data_are_a_sentence():
    X, y = _sinc(20)
    with pytest.raises(ValueError, match="minimum of 2"):
        RVMRegressor("rbf", gamma="scale").fit(X[:1], y[:1])
    with pytest.raises(ValueError, match="Negative values"):
        RVMRegressor("rbf", gamma="scale").fit(X, y, sample_weight=-np.ones(20))
    with pytest.raises(ValueError, match="zero"):
        RVMRegressor("rbf", gamma="scale").fit(X, y, sample_weight=np.zeros(20))
    with pytest.raises(ValueError, match="square matrix"):
        RVMRegressor("precomputed").fit(np.ones((20, 3)), y)
    with pytest.raises(ValueError, match="NaN"):
        RVMRegressor("rbf", gamma="scale").fit(np.where(X > 0, X, np.nan), y)
    words = X.astype(object)
    words[3, 0] = "warm"
    with pytest.raises(ValueError, match="could not convert string to float: 'warm'"):
        RVMRegressor("rbf", gamma="scale").fit(words, y)


def test_an_unfinished_fit_says_so():
    X, y = _sinc(80)
    with pytest.warns(ConvergenceWarning, match=r"has not converged \(max_iter\)"):
        model = RVMRegressor("rbf", gamma=0.2, algorithm="fast", max_iter=2).fit(X, y)
    assert not model.converged_
    assert model.n_iter_ == 2
    assert np.all(np.isfinite(model.predict(X)))


def test_works_in_pipelines_grids_and_pickles():
    X, y = make_friedman1(80, noise=1.0, random_state=0)
    dictionary = make_pipeline(
        StandardScaler(), PolynomialFeatures(2), RVMRegressor(None, algorithm="fast")
    ).fit(X, y)
    assert dictionary.score(X, y) > 0.8
    grid = GridSearchCV(
        RVMRegressor("rbf", gamma="scale", algorithm="fast"), {"gamma": [0.01, 0.3]}, cv=3
    ).fit(X, y)
    again = pickle.loads(pickle.dumps(grid.best_estimator_))
    np.testing.assert_array_equal(again.predict(X), grid.predict(X))


def test_float32_in_float32_out():
    X, y = _sinc()
    model = RVMRegressor("rbf", gamma=0.2, algorithm="fast").fit(X.astype(np.float32), y)
    mean, std = model.predict(X.astype(np.float32), return_std=True)
    assert mean.dtype == std.dtype == np.float32
    double = RVMRegressor("rbf", gamma=0.2, algorithm="fast").fit(X, y)
    np.testing.assert_allclose(mean, double.predict(X), atol=1e-3)


def test_scikit_learn_callbacks_see_the_steps_and_can_stop_them():
    callback = pytest.importorskip("sklearn.callback")

    assert callback.CallbackSupportMixin in RVMRegressor.__mro__
    X, y = make_friedman1(80, noise=1.0, random_state=0)
    stop = AfterTask(lambda tasks: True)
    with pytest.warns(ConvergenceWarning, match="callback"):
        model = RVMRegressor("rbf", gamma="scale", algorithm="fast").set_callbacks(stop).fit(X, y)
    assert stop.tasks == 2  # the block of steps, and the fit itself
    assert model.stop_reason_ == "callback"
    assert model.n_iter_ == 25
    assert model.score(X, y) > 0


def test_verbose_prints_the_steps(capsys):
    X, y = _sinc(40)
    RVMRegressor("rbf", gamma=0.2, algorithm="fast", verbose=2).fit(X, y)
    assert "[RVMRegressor] step 1: log evidence" in capsys.readouterr().out


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_verbose_prints_the_evidence_and_the_noise_of_the_users_target(capsys, scale):
    X, y = _sinc(40)
    model = RVMRegressor("rbf", gamma=0.2, verbose=2).fit(X, scale * y)
    last = capsys.readouterr().out.splitlines()[-1]
    assert f"log evidence {model.log_evidence_:.6g}" in last
    assert f"noise variance {model.noise_variance_:.6g}" in last


def hard_problem(case, n=160):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((n, 4))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    noise = rng.standard_normal(n)
    if case == "noise":
        return X, y + 0.3 * noise
    if case == "a column":
        return X, X[:, 0].copy()
    if case == "a function of a column":
        return X, 100 * np.exp(0.4 * X[:, 0])
    if case == "repeated rows":
        rows = np.arange(n) % (n // 4)
        return X[rows], (y + 0.3 * noise)[rows]
    if case == "two values":
        return X, (X[:, 0] > 0).astype(float)
    return X, np.round(y + 0.3 * noise)


HARD = ["a column", "a function of a column", "repeated rows", "two values", "few values"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_targets_without_noise_copies_and_few_values_end_in_good_time(algorithm):
    """Ten times as long as with noise at most, converged or with a sentence."""
    seconds = {}
    for case in ["noise", *HARD]:
        X, y = hard_problem(case)
        model = RVMRegressor("rbf", gamma="scale", algorithm=algorithm)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            started = time.process_time()
            model.fit(X, y)
            seconds[case] = time.process_time() - started
        assert model.converged_ or "fit is usable" in str(caught[0].message), case
        assert np.all(np.isfinite(model.predict(X)))
    allowed = 10 * max(seconds.pop("noise"), 0.05)
    assert max(seconds.values()) < allowed, seconds


def test_advice_is_not_what_the_model_does_already():
    X, y = hard_problem("a function of a column")
    with pytest.warns(ConvergenceWarning, match="the inputs nearly determine the target") as caught:
        RVMRegressor("rbf", gamma="ard").fit(X, y)
    assert "larger gamma" not in str(caught[0].message)
    X, y = hard_problem("noise")
    with pytest.warns(ConvergenceWarning, match="larger noise_variance") as caught:
        RVMRegressor("rbf", gamma=1e-3, noise_variance=1e-6).fit(X, y)
    assert "larger gamma" not in str(caught[0].message)


def test_rows_are_checked_as_scikit_learn_does_by_any_way():
    X, y = make_friedman1(40, random_state=0)
    model = RVMRegressor("rbf", gamma=0.1).fit(X, y)
    expected = model.predict(X)
    for rows in (X.tolist(), X.astype(">f8"), np.asfortranarray(X), X[::-1][::-1]):
        np.testing.assert_allclose(model.predict(rows), expected, rtol=1e-12)
    assert model.predict(X.astype(np.float32)).dtype == np.float32
    for bad, message in (
        (np.where(X < 0.1, np.nan, X), "NaN"),
        (np.where(X < 0.1, -np.inf, np.where(X > 0.9, np.inf, X)), "infinity"),
        (X[:, :9], "9 features"),
        (X[0], "2D array"),
        (X[:0], "0 sample"),
    ):
        with pytest.raises(ValueError, match=message):
            model.predict(bad)
    named = RVMRegressor("rbf", gamma=0.1).fit(pandas.DataFrame(X).add_prefix("x"), y)
    with pytest.warns(UserWarning, match="feature names"):
        named.predict(X)
