"""What ForwardRegressor promises: its attributes, its priors, its routes, its sentences."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparsebayes import ForwardRegressor
from sparsebayes.designs import RowBlocks
from sparsebayes.kernels import StationaryKernel
from sparsebayes.metrics import coverage, negative_log_density
from sparsebayes.solvers.forward.selection import Forward
from tests.helpers import dense_log_evidence, dense_posterior, intercept_log_evidence


def _wave(n=120, noise=0.1, seed=0, d=2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, d))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, -1] + noise * rng.standard_normal(n)


@parametrize_with_checks(
    [
        ForwardRegressor("rbf", gamma="scale"),
        ForwardRegressor(None, fit_intercept=False),
        ForwardRegressor("linear", refit=None, regularization=0.1, max_terms=5),
        ForwardRegressor(
            "rbf", gamma="scale", noise_variance=0.1, early_stopping=None, max_terms=4
        ),
        ForwardRegressor("matern32", gamma="scale", rank=20, candidates=40, random_state=0),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


# The evidence and the posterior under each prior.


def gp_precision(model, gamma):
    """Precision matrix of the weights under refit='gp', from its diagonal and the kernel."""
    K = rbf_kernel(model.relevance_vectors_, gamma=gamma)
    K = K + 1e-12 * np.eye(len(K))
    return model.weight_precision_[0] / K[0, 0] * K


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kernel", ["rbf", None])
def test_attributes_satisfy_the_dense_formulas_of_the_paper(intercept, kernel):
    X, y = make_friedman1(60, noise=1.0, random_state=0)
    y = y + 10.0
    model = ForwardRegressor(kernel, gamma=0.3, refit=None, fit_intercept=intercept).fit(X, y)
    Phi = rbf_kernel(X, model.relevance_vectors_, 0.3) if kernel else X[:, model.active_]
    evidence = intercept_log_evidence if intercept else dense_log_evidence
    expected = evidence(Phi, y, model.weight_precision_, model.noise_variance_)
    assert model.log_evidence_ == pytest.approx(expected, abs=1e-4)
    assert model.evidence_path_[len(model.active_)] == pytest.approx(expected, abs=1e-4)
    lam = model.weight_precision_ * model.noise_variance_
    np.testing.assert_allclose(lam, model.regularization_, rtol=1e-9)
    weights = model.coef_ if kernel else model.coef_[model.active_]
    np.testing.assert_allclose(model.predict(X), Phi @ weights + model.intercept_, rtol=1e-8)
    if not intercept:
        mean, _ = dense_posterior(Phi, y, model.weight_precision_, model.noise_variance_)
        np.testing.assert_allclose(weights, mean, rtol=1e-5)


@pytest.mark.parametrize(("noise", "weighted"), [("learn", False), (0.02, False), (0.02, True)])
def test_gp_refit_is_the_dense_formula_of_its_prior(noise, weighted):
    X, y = _wave()
    weight = np.random.default_rng(5).integers(1, 4, len(y)) if weighted else np.ones(len(y), int)
    model = ForwardRegressor("rbf", gamma=0.5, noise_variance=noise, fit_intercept=False)
    model.fit(X, y, weight)
    rows, target = np.repeat(X, weight, axis=0), np.repeat(y, weight)
    Phi = rbf_kernel(rows, model.relevance_vectors_, 0.5)
    A, sigma2 = gp_precision(model, 0.5), model.noise_variance_
    C = sigma2 * np.eye(len(rows)) + Phi @ np.linalg.solve(A, Phi.T)
    expected = -0.5 * (
        len(rows) * np.log(2 * np.pi)
        + np.linalg.slogdet(C)[1]
        + target @ np.linalg.solve(C, target)
    )
    assert model.log_evidence_ == pytest.approx(expected, abs=1e-4)
    covariance = np.linalg.inv(Phi.T @ Phi / sigma2 + A)
    np.testing.assert_allclose(model.coef_, covariance @ Phi.T @ target / sigma2, rtol=1e-4)
    new = np.linspace(-1, 1, 6)[:, None] * np.ones(2)  # among the rows
    mean, std = model.predict(new, return_std=True)
    at_new = rbf_kernel(new, model.relevance_vectors_, 0.5)
    np.testing.assert_allclose(mean, at_new @ model.coef_, rtol=1e-8)
    variance = sigma2 + np.einsum("ij,jk,ik->i", at_new, covariance, at_new)
    np.testing.assert_allclose(std**2, model.calibration_**2 * variance, rtol=1e-6)


def test_gp_refit_maximises_its_evidence_over_the_amplitude():
    X, y = _wave()
    model = ForwardRegressor("rbf", gamma=0.5, fit_intercept=False).fit(X, y)
    Phi = rbf_kernel(X, model.relevance_vectors_, 0.5)
    A, n = gp_precision(model, 0.5) * model.noise_variance_, len(y)
    values = []
    for factor in np.exp(np.linspace(-4, 4, 81)):
        C = np.eye(n) + Phi @ np.linalg.solve(factor * A, Phi.T)
        sigma2 = y @ np.linalg.solve(C, y) / n
        values.append(-0.5 * (n * np.log(2 * np.pi * sigma2) + n + np.linalg.slogdet(C)[1]))
    assert model.log_evidence_ >= max(values) - 1e-4
    assert np.argmax(values) == 40


def test_all_rows_as_centres_are_the_gaussian_process():
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    X, y = _wave(40, noise=0.3)
    model = ForwardRegressor("rbf", gamma=2.0, early_stopping=None, fit_intercept=False).fit(X, y)
    assert len(model.active_) == 40
    sigma2 = model.noise_variance_
    amplitude = (1 + 1e-6) / model.weight_precision_[0]
    kernel = ConstantKernel(amplitude, "fixed") * RBF(0.5, "fixed") + WhiteKernel(sigma2, "fixed")
    exact = GaussianProcessRegressor(kernel, alpha=1e-14, optimizer=None).fit(X, y)
    new = np.random.default_rng(1).uniform(-4, 4, (50, 2))
    mean, std = model.predict(new, return_std=True)
    expected, expected_std = exact.predict(new, return_std=True)
    np.testing.assert_allclose(mean, expected, atol=1e-4)
    # Far from the data only the part outside the span of the functions is left of the variance.
    np.testing.assert_allclose(std, expected_std, rtol=1e-4)
    assert model.log_evidence_ == pytest.approx(
        exact.log_marginal_likelihood(exact.kernel_.theta), abs=0.01
    )
    _, cov = model.predict(new[:6], return_cov=True)
    np.testing.assert_allclose(cov, exact.predict(new[:6], return_cov=True)[1], atol=1e-4)
    draws = model.sample_y(new[:6], 40_000, random_state=1)
    np.testing.assert_allclose(np.cov(draws), cov, atol=0.05 * np.max(cov))


def test_a_sparse_model_has_the_variance_of_its_process_beyond_the_rows():
    X, y = _wave()
    model = ForwardRegressor("rbf", gamma=0.5).fit(X, y)
    assert len(model.active_) < 60
    far = np.full((1, 2), 50.0)
    with pytest.warns(UserWarning, match="outside the range of the training rows"):
        _, std = model.predict(far, return_std=True)
    own = model._fitted.predictor.posterior.predict(model.basis_(far))[1][0]
    added = model._fitted.model.added.amplitude + (model.intercept_ - y.mean()) ** 2
    assert std[0] ** 2 == pytest.approx(own + added)
    assert std[0] > 0.8 * np.std(y)


def test_std_covariance_and_samples_agree():
    X, y = _wave()
    model = ForwardRegressor("rbf", gamma=0.5).fit(X, y)
    new = np.random.default_rng(2).uniform(-2, 2, (5, 2))
    mean, std = model.predict(new, return_std=True)
    same, cov = model.predict(new, return_cov=True)
    np.testing.assert_allclose(mean, same)
    np.testing.assert_allclose(std, np.sqrt(np.diag(cov)))
    draws = model.sample_y(new, 50_000, random_state=1)
    np.testing.assert_allclose(np.cov(draws), cov, atol=0.002)


def test_std_is_the_root_of_the_covariance_in_float32_too():
    # Nearly noise-free: at the rows the residual process is what float32 would round off.
    X, y = _wave(60, noise=1e-4)
    X = X.astype(np.float32)
    model = ForwardRegressor("rbf", gamma=2.0, max_terms=59, early_stopping=None).fit(X, y)
    assert model._fitted.model.added is not None
    _, std = model.predict(X, return_std=True)
    _, cov = model.predict(X, return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-4)


def test_intervals_cover_what_they_should():
    X, y = _wave(400, seed=1)
    new, truth = _wave(4000, seed=2)
    mean, std = ForwardRegressor("rbf", gamma=0.5).fit(X, y).predict(new, return_std=True)
    assert 0.93 < np.mean(np.abs(truth - mean) < 1.96 * std) < 0.97


def test_a_kernel_that_is_not_positive_definite_keeps_the_independent_prior():
    X, _ = _wave(60)
    y = X[:, 0] + 0.1 * np.random.default_rng(0).standard_normal(60)

    def odd(x, z):
        return float(np.cos(3 * x[0]) * z[0] + x[0] * np.cos(3 * z[0]))

    with pytest.warns(UserWarning, match="not positive definite"):
        model = ForwardRegressor(odd, max_terms=6, early_stopping=None).fit(X, y)
    np.testing.assert_allclose(model.weight_precision_, model.weight_precision_[0])


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_little_noise_is_found_at_every_scale(size):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (500, 2))
    f = np.sin(X[:, 0]) * X[:, 1] + X[:, 1] ** 2
    y = size * (f + 1e-3 * rng.standard_normal(500))
    model = ForwardRegressor("rbf", gamma=0.1, max_terms=100, early_stopping=None).fit(
        X[:150], y[:150]
    )
    mean, std = model.predict(X[150:], return_std=True)
    assert 0.5e-3 * size < np.sqrt(model.noise_variance_) < 2e-3 * size
    error = np.sqrt(np.mean((mean - y[150:]) ** 2))
    assert error < 2e-3 * size
    assert error / 2 < np.sqrt(np.mean(std**2)) < 2 * error


@pytest.mark.parametrize("noise", [1e-3, 0.1])
@pytest.mark.parametrize("size", [1e-5, 1.0, 1e5])
@pytest.mark.parametrize("n_terms", [25, 40])
def test_the_std_is_that_of_the_process_where_most_rows_are_functions(noise, size, n_terms):
    # n_terms of 40 rows: 40 is the exact process, 25 the one seen through its functions.
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (40, 1))
    y = size * (np.sin(X[:, 0]) + noise * rng.standard_normal(40))
    new = np.linspace(-5, 5, 30)[:, None]
    settings = {"gamma": 0.5, "max_terms": n_terms, "early_stopping": None}
    model = ForwardRegressor("matern32", fit_intercept=False, **{"gamma": "scale", **settings}).fit(
        X, y
    )
    assert len(model.active_) == n_terms
    k = StationaryKernel("matern32", 0.5)
    Z = model.relevance_vectors_
    K, H, new_H = k.bind(Z)(Z), k.bind(Z)(X), k.bind(Z)(new)
    a, s = 1.0 / model.weight_precision_[0], model.noise_variance_
    Q = H @ np.linalg.solve(K, H.T)
    C = np.linalg.inv(a * Q + s * np.eye(40))
    across = new_H @ np.linalg.solve(K, H.T)
    expected = s + a - a * a * np.einsum("ij,ij->i", across @ C, across)
    # Between selected functions the process has the share of its variance that the rows show.
    between = model._fitted.predictor.added.between
    assert between == 1.0 if n_terms == 40 else 0.0 < between < 1.0
    residual = 1.0 - np.einsum("ij,ij->i", new_H, np.linalg.solve(K, new_H.T).T)
    expected -= a * residual * (1.0 - between) * (1.0 - residual)
    mean, std = model.predict(new, return_std=True)
    np.testing.assert_allclose(std / model.calibration_, np.sqrt(expected), rtol=1e-5)
    np.testing.assert_allclose(mean, a * across @ C @ y, atol=1e-6 * size)
    cov = model.predict(new, return_cov=True)[1]
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-6)
    # Amplitude and noise are those of highest evidence, with a prior flat in the noise variance.
    root = np.linalg.cholesky(Q + 1e-13 * np.eye(40))
    best = dense_log_evidence(root, y, 1.0 / a, s)
    assert model.log_evidence_ == pytest.approx(best, abs=1e-2)
    for more, other in ((1.2, 1.0), (1 / 1.2, 1.0), (1.0, 1.2), (1.0, 1 / 1.2)):
        assert dense_log_evidence(root, y, 1.0 / (more * a), other * s) + np.log(other) < best


def test_the_variance_outside_the_functions_does_not_tell_repetition_from_weights():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (12, 1))
    y = np.sin(X[:, 0]) + 0.05 * rng.standard_normal(12)
    count = rng.integers(1, 5, 12)
    new = np.linspace(-6, 6, 9)[:, None]
    settings = {"gamma": 2.0, "early_stopping": None}
    a = ForwardRegressor("matern32", **{"gamma": "scale", **settings}).fit(X, y, count)
    b = ForwardRegressor("matern32", **{"gamma": "scale", **settings}).fit(
        np.repeat(X, count, axis=0), np.repeat(y, count)
    )
    assert len(a.active_) == 12
    for one, other in zip(a.predict(new, True), b.predict(new, True), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_target_without_noise_is_said_to_be_one():
    X = np.linspace(0, 1, 60)[:, None]
    with pytest.warns(ConvergenceWarning, match="functions explain the target up to 1e-07"):
        model = ForwardRegressor("rbf", gamma=5.0).fit(X, np.sin(6 * X[:, 0]))
    assert np.abs(model.predict(X) - np.sin(6 * X[:, 0])).max() < 1e-4


@pytest.mark.parametrize(
    ("gamma", "n"), [("ard", 120), ("evidence", 120), ("auto", 25), (0.2, 120), (1e-5, 120)]
)
def test_the_advice_on_a_target_without_noise_is_not_what_was_done(gamma, n):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2))
    with pytest.warns(ConvergenceWarning) as caught:
        ForwardRegressor("rbf", gamma=gamma, random_state=0).fit(X, np.exp(0.5 * X[:, 0]))
    (message,) = (str(warning.message) for warning in caught)
    assert "leakage" in message or "gamma" in message
    if isinstance(gamma, str):
        assert "'ard'" not in message


@pytest.mark.parametrize("seed", range(4))
def test_few_rows_in_many_inputs_do_not_make_the_model_sure(seed):
    # 25 lengths can be found with which 30 rows are interpolated.
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (530, 25)).astype(float)
    X[:, :5] = rng.integers(0, 3, (530, 5))
    y = 2 * X[:, 0] - X[:, 1] + 0.7 * rng.standard_normal(530)
    model = ForwardRegressor().fit(X[:30], y[:30])
    mean, std = model.predict(X[30:], return_std=True)
    assert coverage(y[30:], mean, std) > 0.9
    silent = negative_log_density(y[30:], np.mean(y[:30]), np.std(y[:30]))
    assert negative_log_density(y[30:], mean, std) < silent


# The path.


def test_the_cut_is_the_best_of_the_path_and_is_said():
    X, y = _wave(200, noise=0.3)
    model = ForwardRegressor("rbf", gamma=0.5, refit=None).fit(X, y)
    assert model.stop_reason_ == "evidence"
    assert model.best_n_terms_ == np.argmax(model.evidence_path_) == len(model.active_)
    whole = ForwardRegressor("rbf", gamma=0.5, refit=None, early_stopping=None, max_terms=20).fit(
        X, y
    )
    assert whole.stop_reason_ == "max_terms"
    assert len(whole.active_) == 20


@pytest.mark.parametrize("refit", ["gp", None])
def test_truncate_is_a_fit_that_stops_there(refit):
    X, y = _wave()
    lam = 0.01
    model = ForwardRegressor("rbf", gamma=0.5, refit=refit, regularization=lam, max_terms=30).fit(
        X, y
    )
    new = np.random.default_rng(0).uniform(-2, 2, (20, 2))
    for k in (1, 7, 25):
        part = model.truncate(k)
        direct = ForwardRegressor(
            "rbf", gamma=0.5, refit=refit, regularization=lam, max_terms=k, early_stopping=None
        ).fit(X, y)
        np.testing.assert_array_equal(part.active_, direct.active_)
        assert part.log_evidence_ == pytest.approx(direct.log_evidence_, abs=1e-6)
        np.testing.assert_allclose(part.predict(new), direct.predict(new), rtol=1e-5)
        # The residuals of fewer terms are not stored: compare the variances before calibration.
        variance, expected = (m.posterior_.predict(m.basis_(new))[1] for m in (part, direct))
        np.testing.assert_allclose(np.sqrt(variance), np.sqrt(expected), rtol=1e-5)
    assert len(model.active_) > 7
    assert len(model.truncate(0).active_) == 0
    with pytest.raises(ValueError, match="from 0 to 30"):
        model.truncate(31)


def test_truncate_learns_the_regularizer_again_where_it_was_learnt():
    X, y = _wave()
    model = ForwardRegressor("rbf", gamma=0.5, refit=None).fit(X, y)
    part = model.truncate(4)
    Phi = rbf_kernel(X, part.relevance_vectors_, 0.5)
    for factor in (0.7, 1.4):
        other = part.weight_precision_ * factor
        assert intercept_log_evidence(Phi, y, other, part.noise_variance_) < part.log_evidence_


def test_history_tells_each_term():
    X, y = _wave()
    model = ForwardRegressor("rbf", gamma=0.5, refit=None, regularization=0.01, max_terms=12).fit(
        X, y
    )
    history = model.history_
    assert len(history["gain"]) == model.n_iter_ == 12
    np.testing.assert_array_equal(history["candidate"][: len(model.active_)], model.active_)
    np.testing.assert_allclose(history["log_evidence"], model.evidence_path_[1:], atol=1e-6)
    np.testing.assert_allclose(np.diff(model.evidence_path_), history["gain"], atol=1e-6)
    assert np.all(history["drift"] < 1e-9)
    np.testing.assert_allclose(history["regularization"], 0.01)


def test_validation_takes_the_terms_that_predict_and_refits_on_all_rows():
    X, y = _wave(300, noise=0.5, seed=3)
    model = ForwardRegressor("rbf", gamma=0.5, early_stopping="validation", random_state=0).fit(
        X, y
    )
    assert model.stop_reason_ == "validation"
    assert 0 < len(model.active_) < 300
    again = clone(model).fit(X, y)
    np.testing.assert_array_equal(again.active_, model.active_)
    assert max(model.active_) > 269  # rows of the held out part carry functions, too
    few = clone(model).set_params(candidates=np.arange(0, 300, 5)).fit(X, y)
    assert set(few.active_ % 5) == {0}
    columns = ForwardRegressor(None, early_stopping="validation", candidates=[0, 1]).fit(X, y)
    assert set(columns.active_) <= {0, 1}
    with pytest.raises(ValueError, match="at least 3 rows"):
        clone(model).fit(X[:2], y[:2])


def test_pure_noise_is_an_empty_model_of_the_mean():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((150, 3)), rng.standard_normal(150)
    model = ForwardRegressor("rbf", gamma=0.01).fit(X, y)
    if len(model.active_) == 0:
        np.testing.assert_allclose(model.predict(X), y.mean())
    assert model.predict(X).std() < 0.3


def test_an_interrupted_fit_is_a_model_of_what_was_reached(monkeypatch):
    X, y = _wave()

    step = Forward.step

    def interrupted(self, state, design, t):
        if len(state.order) == 9:
            raise KeyboardInterrupt
        return step(self, state, design, t)

    monkeypatch.setattr(Forward, "step", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = ForwardRegressor("rbf", gamma=0.5).fit(X, y)
    assert not model.converged_
    assert len(model.evidence_path_) == 10
    assert np.std(y - model.predict(X)) < 0.5 * np.std(y)


def test_an_interrupt_before_the_first_term_is_raised_and_changes_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (20_000, 2))
    y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(20_000)
    model = ForwardRegressor("rbf", gamma=0.3, candidates=500, max_terms=60, random_state=0)

    def interrupt(reporter, n_rows):
        def report(rows):
            if rows > 10_000:
                raise KeyboardInterrupt

        return report

    monkeypatch.setattr("sparsebayes.callbacks.Reporter.rows_read", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert not hasattr(model, "posterior_")


# Candidates and routes.


@pytest.mark.parametrize("transform", [None, "nufft"])
@pytest.mark.parametrize("rank", [None, 120])
def test_routes_end_in_the_same_model(transform, rank):
    if transform == "nufft":
        pytest.importorskip("finufft")
        if rank is not None:
            with pytest.raises(ValueError, match="cannot be combined"):
                ForwardRegressor("rbf", gamma="scale", transform=transform, rank=rank).fit(*_wave())
            return
    X, y = _wave(noise=0.3)
    direct = ForwardRegressor("rbf", gamma=0.5, max_terms=40).fit(X, y)
    other = ForwardRegressor("rbf", gamma=0.5, max_terms=40, transform=transform, rank=rank).fit(
        X, y
    )
    assert other.log_evidence_ == pytest.approx(direct.log_evidence_, abs=1e-3)
    np.testing.assert_allclose(other.predict(X), direct.predict(X), atol=1e-3)
    name = "low rank" if rank else "nufft" if transform == "nufft" else "columns"
    assert other.approximation_["route"] == name


def test_a_low_rank_reports_what_it_claimed_and_what_is_true():
    X, y = _wave(300, d=4)
    model = ForwardRegressor("rbf", gamma=0.5, rank=25, max_terms=40).fit(X, y)
    report = model.approximation_
    assert report["rank"] == 25
    assert 0.0 < report["residual_trace"] < 1.0
    assert abs(report["claimed_log_evidence"] - report["log_evidence"]) > 1e-3
    full = ForwardRegressor("rbf", gamma=0.5, rank="auto", max_terms=40).fit(X, y)
    assert full.approximation_["residual_trace"] <= 1e-3


def test_candidates_are_those_asked_for():
    X, y = _wave(200)
    some = np.arange(0, 200, 9)
    given = ForwardRegressor("rbf", gamma=0.5, candidates=some).fit(X, y)
    assert set(given.active_) <= set(some)
    few = ForwardRegressor("rbf", gamma=0.5, candidates=15, random_state=1).fit(X, y)
    assert few.approximation_["n_candidates"] == 15
    np.testing.assert_array_equal(
        few.active_,
        ForwardRegressor("rbf", gamma=0.5, candidates=15, random_state=1).fit(X, y).active_,
    )
    spread = ForwardRegressor("rbf", gamma=0.5, candidates="pivots", max_terms=10).fit(X, y)
    assert spread.approximation_["n_candidates"] <= 200
    columns = ForwardRegressor(None, candidates=[1]).fit(X, y)
    assert set(columns.active_) <= {1}
    weight = np.ones(200)
    weight[:50] = 0
    kept = ForwardRegressor("rbf", gamma=0.5, candidates=[10, 60, 70]).fit(X, y, weight)
    assert set(kept.active_) <= {60, 70}


def test_many_rows_are_chosen_from_a_subset():
    X, y = _wave(3000)
    model = ForwardRegressor("rbf", gamma=0.5, max_terms=10, cache_size=36, random_state=0).fit(
        X, y
    )
    assert model.approximation_["n_candidates"] == 2121  # whose Gram matrix fits
    assert model.approximation_["route"] == "gram"
    assert model.approximation_["claimed_log_evidence"] == pytest.approx(
        model.approximation_["log_evidence"], abs=1e-5
    )


def test_columns_that_must_be_computed_again_are_said_to_be_slow():
    X, y = _wave(300)
    with pytest.warns(UserWarning, match=r"Use fewer candidates, or cache_size=1"):
        slow = ForwardRegressor(
            "rbf", gamma=0.5, candidates="all", max_terms=5, cache_size=0.1
        ).fit(X, y)
    quick = ForwardRegressor("rbf", gamma=0.5, max_terms=5).fit(X, y)
    assert slow.log_evidence_ == pytest.approx(quick.log_evidence_, abs=1e-6)


def test_float32_products_follow_the_rule():
    X, y = _wave(3000, noise=0.3)
    lam = 2.0
    options = {"gamma": 0.5, "regularization": lam, "candidates": 500, "random_state": 0}
    double = ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **options}).fit(X, y)
    single = ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **options}).fit(
        X.astype(np.float32), y
    )
    assert double.approximation_["precision"] == "float64"
    assert single.approximation_["precision"] == "float32 products"
    assert single.log_evidence_ == pytest.approx(double.log_evidence_, abs=1.0)
    options["regularization"] = 1e-4
    upgraded = ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **options}).fit(
        X.astype(np.float32), y
    )
    assert upgraded.approximation_["precision"] == "float64"


def test_precomputed_kernel_is_the_kernel():
    X, y = _wave(80)
    ours = ForwardRegressor("rbf", gamma=0.5).fit(X, y)
    theirs = ForwardRegressor("precomputed").fit(rbf_kernel(X, gamma=0.5), y)
    # In the middle of the rows: elsewhere a kernel and its matrix add variances that differ.
    middle = np.argsort(np.sum((X - X.mean(axis=0)) ** 2, axis=1))[:10]
    new = X[middle] + np.random.default_rng(0).uniform(-0.1, 0.1, (10, 2))
    np.testing.assert_array_equal(ours.active_, theirs.active_)
    (mean, std), (other, spread) = (
        ours.predict(new, True),
        theirs.predict(rbf_kernel(new, X, 0.5), True),
    )
    np.testing.assert_allclose(mean, other, rtol=1e-6)
    # Folds of given kernel values have no variance beyond their functions, so calibration differs.
    np.testing.assert_allclose(std / ours.calibration_, spread / theirs.calibration_, rtol=1e-6)
    with pytest.raises(ValueError, match="rank=None"):
        ForwardRegressor("precomputed", rank=5).fit(rbf_kernel(X, gamma=0.5), y)


@pytest.mark.parametrize("kernel", ["rbf", None])
def test_sample_weight_equals_repetition(kernel):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((50, 3))
    y = X[:, 0] - X[:, 1] ** 2 + 0.3 * rng.standard_normal(50)
    weight = rng.integers(0, 4, 50)
    weighted = ForwardRegressor(kernel).fit(X, y, sample_weight=weight)
    repeated = ForwardRegressor(kernel).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_, abs=1e-5)
    for a, b in zip(weighted.predict(X, True), repeated.predict(X, True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_regularization_of_columns_is_in_the_units_of_the_columns():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 5))
    y = 5 * X[:, 0] - X[:, 3] + 0.1 * rng.standard_normal(80)
    a = ForwardRegressor(None, regularization=0.5).fit(X, y)
    b = ForwardRegressor(None, regularization=0.5 * 3000.0**2).fit(3000.0 * X, y)
    np.testing.assert_allclose(a.coef_, 3000.0 * b.coef_, rtol=1e-9)
    assert a.log_evidence_ == pytest.approx(b.log_evidence_, abs=1e-9)
    assert b.regularization_ == pytest.approx(0.5 * 3000.0**2)


def test_scale_of_the_target_changes_units_only():
    X, y = _wave()
    model = ForwardRegressor("rbf", gamma=0.5).fit(X, y)
    scaled = ForwardRegressor("rbf", gamma=0.5).fit(X, 1e120 * y)
    np.testing.assert_array_equal(model.active_, scaled.active_)
    np.testing.assert_allclose(scaled.predict(X), 1e120 * model.predict(X), rtol=1e-6)
    shift = (len(y) - 1) * np.log(1e120)
    assert scaled.log_evidence_ == pytest.approx(model.log_evidence_ - shift, abs=1e-5)
    np.testing.assert_allclose(scaled.evidence_path_, model.evidence_path_ - shift, atol=1e-4)


def test_a_model_survives_pickling():
    X, y = _wave()
    model = ForwardRegressor("rbf", gamma=0.5).fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X), model.predict(X))
    np.testing.assert_array_equal(copy.truncate(3).predict(X), model.truncate(3).predict(X))


def test_progress_is_printed_where_asked_for(capsys):
    X, y = _wave(200)
    ForwardRegressor("rbf", gamma=0.5, max_terms=5, verbose=2).fit(X, y)
    assert "log evidence" in capsys.readouterr().out


# Bad input is a sentence.


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"regularization": -1}, "The 'regularization' parameter of .* must be"),
        ({"regularization": "local"}, "The 'regularization' parameter of .* must be"),
        ({"noise_variance": 0}, "The 'noise_variance' parameter of .* must be"),
        ({"max_terms": 0}, "The 'max_terms' parameter of .* must be"),
        ({"max_terms": 2.5}, "The 'max_terms' parameter of .* must be"),
        ({"max_terms": np.inf}, "The 'max_terms' parameter of .* must be"),
        ({"early_stopping": True}, "The 'early_stopping' parameter of .* must be"),
        ({"max_terms": None}, "The 'max_terms' parameter of .* must be"),
        ({"refit": "iid"}, "The 'refit' parameter of .* must be"),
        ({"rank": 0}, "The 'rank' parameter of .* must be"),
        ({"rank": "all"}, "The 'rank' parameter of .* must be"),
        ({"transform": "fft"}, "The 'transform' parameter of .* must be"),
        ({"transform": "nufft", "kernel": "matern32"}, "kernel='rbf'"),
        ({"candidates": "some"}, "The 'candidates' parameter of .* must be"),
        ({"candidates": 0}, "The 'candidates' parameter of .* must be"),
        ({"candidates": 2.5}, "The 'candidates' parameter of .* must be"),
        ({"candidates": [0.5, 1.0]}, "candidates must be"),
        ({"candidates": [500]}, "between 0 and"),
        ({"candidates": "pivots", "kernel": None}, "requires a named kernel"),
        ({"rank": 3, "kernel": None}, "rank=None"),
        ({"kernel": "gaussian"}, "not valid"),
    ],
)
def test_wrong_parameters_are_a_sentence(parameters, sentence):
    X, y = _wave(20)
    with pytest.raises(ValueError, match=sentence):
        ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **parameters}).fit(X, y)


def test_nufft_takes_at_most_three_inputs():
    X, y = _wave(30, d=4)
    with pytest.raises(ValueError, match="at most 3 inputs"):
        ForwardRegressor("rbf", gamma="scale", transform="nufft").fit(X, y)


@pytest.mark.parametrize("kernel", ["rbf", None])
def test_odd_data_are_fitted(kernel):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 3))
    constant = ForwardRegressor(kernel).fit(X, np.full(30, 5.0))
    np.testing.assert_allclose(constant.predict(X), 5.0)
    assert len(constant.active_) == 0
    same = np.column_stack([X, X[:, 0], np.ones(30)])
    ForwardRegressor(kernel).fit(same, X[:, 0] + 0.1 * rng.standard_normal(30))
    for scale in (1e-150, 1e150):
        y = X[:, 0] + 0.1 * rng.standard_normal(30)
        model = ForwardRegressor(kernel).fit(scale * X, y)
        assert np.all(np.isfinite(model.predict(scale * X, return_std=True)))
        assert np.corrcoef(model.predict(scale * X), y)[0, 1] > 0.9
    two = ForwardRegressor(kernel).fit(X[:2], [0.0, 1.0])
    assert np.all(np.isfinite(two.predict(X, return_std=True)))


@pytest.mark.parametrize("settings", [{}, {"gamma": "ard"}])
def test_rows_in_blocks_are_read_nine_times_whatever_the_number_of_terms(settings):
    X, y = _wave(3000)
    reads = []

    def blocks():
        reads.append(1)
        return iter(np.array_split(X, 4))

    for n_terms in (5, 40):
        reads.clear()
        model = ForwardRegressor(
            candidates=300,
            max_terms=n_terms,
            early_stopping=None,
            random_state=0,
            **{"kernel": "rbf", "gamma": "scale", **settings},
        ).fit(blocks, y)
        assert len(model.active_) == n_terms
        assert len(reads) == 9  # two for the folds of the calibration and feature_relevance_


@pytest.mark.parametrize("gamma", ["scale", "ard"])
def test_rows_of_weight_zero_in_blocks_have_no_part(gamma):
    X, y = _wave(80)
    weight = np.random.default_rng(1).integers(0, 3, 80).astype(float)
    y = np.where(weight > 0, y, 1e9)
    settings = {"gamma": gamma, "random_state": 0}
    a = ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **settings}).fit(
        RowBlocks([X[:30], X[30:]]), y, weight
    )
    b = ForwardRegressor(**{"kernel": "rbf", "gamma": "scale", **settings}).fit(X, y, weight)
    np.testing.assert_array_equal(a.active_, b.active_)
    for one, other in zip(a.predict(X, True), b.predict(X, True), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_polynomial_that_nearly_interpolates_replicated_inputs_is_judged_by_folds():
    # 17 functions of 25 inputs, of at most 20. Rows that are left out leave five with their inputs.
    for seed in (2, 3):
        rng = np.random.default_rng(seed)
        X = np.repeat(rng.uniform(-2.0, 2.0, (25, 3)), 6, axis=0)

        def observed(X, rng=rng):
            f = np.sin(2.0 * X[:, 0]) * np.cos(2.0 * X[:, 1])
            return f + 0.2 * rng.standard_normal(len(X))

        model = ForwardRegressor("poly", gamma=0.3, coef0=1.0).fit(X, observed(X))
        assert len(model.active_) > 0.5 * 25
        new = rng.uniform(-2.0, 2.0, (400, 3))
        target = observed(new)
        low, high = model.predict_interval(new, 0.95).T
        assert np.mean((low <= target) & (target <= high)) > 0.9  # .71 and .68 without folds
