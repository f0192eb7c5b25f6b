"""RVMRegressor(algorithm="auto"): what the other algorithms do not offer."""

import time
import warnings

import numpy as np
import pytest
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from sparsebayes import RVMRegressor
from sparsebayes.solvers.rvm import auto as rvm_auto
from sparsebayes.solvers.rvm import basic
from sparsebayes.solvers.rvm.one_column import optimal_lam
from tests.helpers import dense_log_evidence, dense_posterior, intercept_log_evidence


def friedman(n, seed=0):
    X, y = make_friedman1(n, noise=1.0, random_state=seed)
    return (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()


def absent_gain(model, X, y, gamma):
    """What the best single addition would gain, from n x n arrays."""
    Phi, n = rbf_kernel(X, X, gamma), len(y)
    lam = model.weight_precision_ * model.noise_variance_
    A = Phi[:, model.active_]
    P = np.linalg.inv(np.eye(n) + (A / lam) @ A.T)
    PPhi = P @ Phi
    S = np.einsum("ij,ij->j", Phi, PPhi)
    _, gains = optimal_lam(S, PPhi.T @ y, np.sum(Phi**2, axis=0), y @ P @ y, n, None)
    gains[model.active_] = 0.0
    return gains.max()


@pytest.mark.parametrize("n", [300, 1200])
def test_no_absent_column_gains_by_a_dense_check(n):
    X, y = friedman(n)
    model = RVMRegressor("rbf", gamma=0.03, fit_intercept=False).fit(X, y)
    assert model.converged_
    assert model.history_["stage"][-1] == "exact"
    assert absent_gain(model, X, y, 0.03) < 0.05
    Phi = rbf_kernel(X, model.relevance_vectors_, 0.03)
    expected = dense_log_evidence(Phi, y, model.weight_precision_, model.noise_variance_)
    assert model.log_evidence_ == pytest.approx(expected, abs=1e-5)


def test_history_tells_the_stages_and_one_start_is_one():
    X, y = friedman(200)
    for n_starts in (1, 3):
        for intercept in (False, True):
            model = RVMRegressor("rbf", gamma=0.03, n_starts=n_starts, fit_intercept=intercept).fit(
                X, y
            )
            stages = model.history_["stage"].tolist()
            expected = ["start", *["polish"] * n_starts, "merge", *["free"] * intercept, "exact"]
            assert stages[: len(expected)] == expected
            rises = np.diff(model.history_["log_evidence"]) > -1e-8
            if intercept:  # two models: before and after the intercept is integrated out
                rises[stages.index("free") - 1] = True
            assert np.all(rises)


@pytest.mark.parametrize(("algorithm", "module"), [("auto", rvm_auto), ("em", basic)])
def test_an_intercept_stays_near_the_target(algorithm, module, monkeypatch):
    """Beside wide functions it may be anything, and it is the prediction far away."""
    held, free, lost = [], [], []
    for seed in range(3):
        X, y = friedman(300, seed)
        first = RVMRegressor("rbf", gamma=0.03, algorithm=algorithm).fit(X, y)
        with monkeypatch.context() as patch:
            patch.setattr(module, "fixes_intercept_first", lambda design: False)
            second = RVMRegressor("rbf", gamma=0.03, algorithm=algorithm).fit(X, y)
        assert first.converged_
        assert second.converged_
        held.append(abs(first.intercept_))
        free.append(abs(second.intercept_))
        lost.append(second.log_evidence_ - first.log_evidence_)
    assert np.mean(held) < 0.6 * np.mean(free)
    assert np.mean(lost) < 1.5


@pytest.mark.parametrize("algorithm", ["em", "fast"])
def test_a_run_stopped_while_the_intercept_is_held_reports_the_model_with_it(algorithm):
    X, y = friedman(120)
    with pytest.warns(ConvergenceWarning):
        model = RVMRegressor("rbf", gamma=0.03, algorithm=algorithm, max_iter=3).fit(X, y)
    Phi = rbf_kernel(X, model.relevance_vectors_, 0.03)
    expected = intercept_log_evidence(Phi, y, model.weight_precision_, model.noise_variance_)
    assert model.log_evidence_ == pytest.approx(expected, abs=1e-3)
    lam = model.weight_precision_ * model.noise_variance_
    for factor in (0.98, 1.02):  # the noise is the best for these lam, with the intercept
        noise = factor * model.noise_variance_
        assert intercept_log_evidence(Phi, y, lam / noise, noise) < expected


def test_a_narrow_kernel_is_compressed_no_further_than_its_noise(monkeypatch):
    """200 dimensions hide most of such a kernel, and additions one by one do not make up for it."""
    X, y = make_friedman1(600, noise=1.0, random_state=3)
    model = RVMRegressor("rbf", gamma=1 / 1.44).fit(X, y)
    assert model.converged_
    Phi = rbf_kernel(X, model.relevance_vectors_, 1 / 1.44)
    t = y - y.mean()
    expected = intercept_log_evidence(Phi, t, model.weight_precision_, model.noise_variance_)
    assert model.log_evidence_ == pytest.approx(expected, abs=1e-3)
    em = RVMRegressor("rbf", gamma=1 / 1.44, algorithm="em").fit(X, y)
    assert model.log_evidence_ > em.log_evidence_ - 2.0
    monkeypatch.setattr(rvm_auto, "_LARGEST_RANK", 0)
    assert model.log_evidence_ > RVMRegressor("rbf", gamma=1 / 1.44).fit(X, y).log_evidence_ + 2.0


def test_a_very_wide_kernel_still_bends():
    """Its curved directions are 1e-13 of its largest; a start that overlooks them ends linear."""
    X, y = friedman(400)
    wide, usual = (
        RVMRegressor("rbf", gamma=gamma, fit_intercept=False).fit(X, y) for gamma in (0.0011, 0.03)
    )
    assert len(wide.active_) > 20
    assert wide.log_evidence_ > usual.log_evidence_ - 100.0  # the linear optimum: 145 nats less


def test_random_state_decides_all():
    X, y = friedman(1600)  # above 1,500 candidates the low rank is drawn
    first, again = (
        RVMRegressor("rbf", gamma=0.01, random_state=3, n_starts=1).fit(X, y) for _ in range(2)
    )
    np.testing.assert_array_equal(first.active_, again.active_)
    np.testing.assert_array_equal(first.coef_, again.coef_)


def test_several_outputs_share_functions_and_have_their_own_weights_and_noise():
    X, y = friedman(150)
    rng = np.random.default_rng(0)
    Y = np.column_stack([y, 5.0 * np.tanh(X[:, 0]) + rng.standard_normal(150)])
    model = RVMRegressor("rbf", gamma=0.03, fit_intercept=False).fit(X, Y)
    Phi = rbf_kernel(X, model.relevance_vectors_, 0.03)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (150, 2)
    total = 0.0
    for i in range(2):
        alpha, sigma2 = model.weight_precision_[:, i], model.noise_variance_[i]
        # One lam for both: precisions in proportion to the noises.
        np.testing.assert_allclose(
            alpha * sigma2, model.weight_precision_[:, 0] * model.noise_variance_[0], rtol=1e-10
        )
        weights, covariance = dense_posterior(Phi, Y[:, i], alpha, sigma2)
        np.testing.assert_allclose(mean[:, i], Phi @ weights, atol=1e-6)
        variance = np.einsum("ij,jk,ik->i", Phi, covariance, Phi) + sigma2
        factor = np.broadcast_to(model.calibration_, 2)[i] ** 2
        np.testing.assert_allclose(std[:, i] ** 2, factor * variance, rtol=1e-6)
        total += dense_log_evidence(Phi, Y[:, i], alpha, sigma2)
    assert np.sum(model.log_evidence_) == pytest.approx(total, abs=1e-4)


def test_one_output_as_a_column_is_the_vector():
    X, y = friedman(120)
    vector = RVMRegressor("rbf", gamma=0.03).fit(X, y)
    column = RVMRegressor("rbf", gamma=0.03).fit(X, y[:, None])
    np.testing.assert_array_equal(vector.active_, column.active_)
    np.testing.assert_allclose(column.predict(X).ravel(), vector.predict(X), rtol=1e-12)


@pytest.mark.slow  # 15 s
def test_warm_start_on_new_rows_is_cheaper_and_no_worse():
    gained, seconds = [], {"warm": 0.0, "cold": 0.0}
    for seed in range(2):
        X, y = friedman(1650, seed)
        warm = RVMRegressor("rbf", gamma=0.03, warm_start=True).fit(X[:1500], y[:1500])
        cold = RVMRegressor("rbf", gamma=0.03)
        for name, model in (("warm", warm), ("cold", cold)):
            started = time.process_time()
            model.fit(X, y)
            seconds[name] += time.process_time() - started
        assert warm.history_["stage"].tolist().count("polish") == 1
        gained.append(warm.log_evidence_ - cold.log_evidence_)
    assert seconds["warm"] < 0.8 * seconds["cold"]
    assert np.mean(gained) > -10.0  # other optima (each may be 20 nats up or down), not poor ones


def test_a_stalled_run_says_what_to_do(monkeypatch):
    X, y = friedman(100)
    monkeypatch.setattr(rvm_auto, "polish", lambda columns, model, *limits: model)
    with pytest.warns(ConvergenceWarning, match="remaining gains are rounding errors"):
        model = RVMRegressor("rbf", gamma=0.03).fit(X, y)
    assert not model.converged_
    assert model.stop_reason_ == "stalled"


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_extreme_units_change_nothing(scale):
    X, y = friedman(100)
    model = RVMRegressor("rbf", gamma=0.03).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = RVMRegressor("rbf", gamma=0.03).fit(X, scale * y)
    np.testing.assert_allclose(other.predict(X) / scale, model.predict(X), rtol=1e-6, atol=1e-8)


def test_a_target_without_noise_ends_with_a_sentence(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 6))
    monkeypatch.setattr(rvm_auto, "_WORK", 1e4)  # as if there were many more rows
    with pytest.warns(ConvergenceWarning, match="almost no noise"):
        model = RVMRegressor("rbf", gamma=0.5).fit(X, X[:, 0])
    assert model.stop_reason_ == "exhausted"
    assert model.score(X, X[:, 0]) > 0.99
