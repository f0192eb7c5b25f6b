"""Backfitting for labels: a lower bound that never falls, and its special cases."""

import numpy as np
import pytest
from scipy import sparse
from scipy.integrate import quad
from scipy.special import log_expit
from sklearn.linear_model import LogisticRegression

from sparsebayes.designs import DenseDesign
from sparsebayes.designs.sparse import SparseDesign
from sparsebayes.solvers import run
from sparsebayes.solvers.backfitting import factorised as plain
from sparsebayes.solvers.backfitting import logistic as backfitting_logistic
from sparsebayes.solvers.backfitting.logistic import LogisticBackfitting, _slope
from sparsebayes.solvers.backfitting.mean_solvers import conjugate_gradients

SOLVERS = [
    LogisticBackfitting(),
    LogisticBackfitting(variance="factorised"),
    LogisticBackfitting("ridge"),
    LogisticBackfitting("ridge", variance="factorised"),
    LogisticBackfitting("none"),
    LogisticBackfitting(inclusion_prior="learn"),
    LogisticBackfitting(inclusion_prior=0.1, variance="factorised"),
    LogisticBackfitting(handover=8),
    LogisticBackfitting(fit_intercept=False),
]


def _problem(seed, n=120, m=20, weights=False):
    rng = np.random.default_rng(seed)
    Phi = rng.standard_normal((n, m)) + 0.7 * rng.standard_normal((n, 1))
    a = 1.5 * Phi[:, 0] - 1.5 * Phi[:, 1] + 0.5
    labels = rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-a))
    total = rng.integers(1, 4, n) if weights else np.ones(n)
    return Phi, np.column_stack([labels * total, total]).astype(float)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_bound_of_a_run_never_falls(solver):
    for seed in range(3):
        Phi, counts = _problem(seed, weights=seed == 1)
        result = run(solver, DenseDesign(Phi), counts, max_iter=60)
        values = result.history["bound"]
        assert np.min(np.diff(values), initial=0.0) > -1e-9 * np.max(np.abs(values))


@pytest.mark.parametrize("inclusion_prior", [None, "learn", 0.1])
@pytest.mark.parametrize("variance", ["exact", "factorised"])
def test_the_bound_never_falls_on_any_shape_and_no_column_is_active_twice(
    inclusion_prior, variance
):
    solver = LogisticBackfitting(inclusion_prior=inclusion_prior, variance=variance)

    def unique(_, info, state):
        assert len(set(state.active)) == len(state.active)

    for seed in range(25):
        rng = np.random.default_rng(seed)
        n, m = rng.integers(6, 80), rng.integers(2, 60)
        Phi = rng.standard_normal((n, m)) * rng.choice([1.0, 1e-2, 10.0], m)
        if seed % 3 == 0:
            Phi = Phi * (rng.random((n, m)) < 0.3)
        a = Phi[:, 0] + rng.standard_normal(n)
        counts = np.column_stack([a > np.median(a), np.ones(n)]).astype(float)
        result = run(solver, DenseDesign(Phi), counts, max_iter=60, callback=unique)
        values = result.history["bound"]
        assert np.min(np.diff(values), initial=0.0) > -1e-9 * np.max(np.abs(values))


def test_labels_nearly_apart_take_a_fifth_of_the_steps_and_end_no_lower(monkeypatch):
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal((100, 4))
    labels = Phi[:, 0] + 0.1 * rng.standard_normal(100) > 0
    counts = np.column_stack([labels, np.ones(100)]).astype(float)
    for solver in (LogisticBackfitting(), LogisticBackfitting(variance="factorised")):
        fast = run(solver, DenseDesign(Phi), counts, max_iter=1000)
        with monkeypatch.context() as patch:
            patch.setattr(backfitting_logistic, "_FASTER", 1.0)  # plain steps
            patch.setattr(LogisticBackfitting, "_leads", lambda self, state: False)
            slow = run(solver, DenseDesign(Phi), counts, max_iter=1000)
        assert fast.converged
        assert fast.n_iter < 0.2 * slow.n_iter
        assert fast.history["bound"][-1] > slow.history["bound"][-1] - 1e-3


@pytest.mark.parametrize("variance", ["exact", "factorised"])
def test_labels_that_are_apart_end_where_a_smaller_tol_ends(variance):
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal((80, 3))
    counts = np.column_stack([Phi[:, 0] + Phi[:, 1] > 0, np.ones(80)]).astype(float)
    ends = [
        run(LogisticBackfitting(variance=variance, tol=tol), DenseDesign(Phi), counts, max_iter=200)
        for tol in (1e-3, 1e-5)
    ]
    assert all(end.converged for end in ends)
    assert abs(ends[1].history["bound"][-1] - ends[0].history["bound"][-1]) < 0.01


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("prior", ["ard", "ridge"])
@pytest.mark.parametrize("seed", range(4))
def test_no_elementary_update_lowers_the_bound(seed, prior, intercept):
    """From random states, in random order: nothing is assumed to be at its best."""
    rng = np.random.default_rng(seed)
    Phi, counts = _problem(seed, weights=True)
    design = DenseDesign(Phi)
    solver = LogisticBackfitting(prior, variance="factorised", fit_intercept=intercept)
    state = solver.init(design, counts)
    inner, k = state.inner, Phi.shape[1]
    inner.mu, inner.v = rng.standard_normal(k), rng.gamma(0.5, size=k)
    alpha = rng.gamma(0.5, size=k)
    inner.alpha = alpha if prior == "ard" else np.full(k, alpha[0])
    xi = rng.gamma(2.0, size=len(Phi))
    value = -np.inf
    for _ in range(80):
        weighted, t = solver._at(xi, design, counts)
        solver._rebind(inner, weighted, t)
        move = rng.integers(3)
        if move == 0:
            plain.update_precisions(inner, prior)
        elif move == 1:
            solve = conjugate_gradients(inner.columns, t, inner.lam, inner.norms, inner.mu, 2, 0.0)
            inner.mu = solve.mu
        latent = solver._latent(inner, weighted, counts, xi)
        if move == 2:
            xi = np.sqrt(latent.a**2 + latent.a_variance)
        before, value = value, solver._at_xi(xi, latent, k, weighted, counts)
        assert value >= before - 1e-9 * abs(before), move


def test_the_bound_is_below_the_evidence():
    rng = np.random.default_rng(0)
    phi = rng.standard_normal(30)
    counts = np.column_stack([phi + rng.standard_normal(30) > 0, np.ones(30)]).astype(float)
    design = DenseDesign(phi[:, None])
    for variance in ("exact", "factorised"):
        solver = LogisticBackfitting("ridge", variance=variance, fit_intercept=False)
        state = run(solver, design, counts, max_iter=200).state
        alpha = state.alpha[0]

        def density(w, alpha=alpha):
            fit = counts[:, 0] @ log_expit(w * phi) + (1 - counts[:, 0]) @ log_expit(-w * phi)
            return np.exp(fit - 0.5 * alpha * w * w) * np.sqrt(alpha / (2 * np.pi))

        evidence = np.log(quad(density, -20, 20, epsabs=0, limit=500)[0])
        value = solver.solution(state, design, counts).posterior.log_evidence
        assert evidence - 1.0 < value < evidence


def test_slope_is_smooth_at_zero():
    xi = np.array([0.0, 1e-5, 9.9e-5, 1.01e-4, 1e-2])
    np.testing.assert_allclose(_slope(xi), 0.125, rtol=1e-5)
    assert _slope(np.array([50.0]))[0] == pytest.approx(1 / 200)


@pytest.mark.parametrize("variance", ["exact", "factorised"])
def test_without_a_prior_it_is_logistic_regression(variance):
    Phi, counts = _problem(0, n=300, m=4)
    solver, design = LogisticBackfitting("none", variance=variance, tol=1e-5), DenseDesign(Phi)
    result = run(solver, design, counts, max_iter=2000)
    posterior = solver.solution(result.state, design, counts).posterior
    theirs = LogisticRegression(C=np.inf, tol=1e-10).fit(Phi, counts[:, 0])
    np.testing.assert_allclose(posterior.mean, theirs.coef_[0], rtol=1e-3)
    assert posterior.intercept == pytest.approx(theirs.intercept_[0], rel=1e-3)


def test_whole_weights_are_repetition():
    Phi, counts = _problem(1, weights=True)
    times = counts[:, 1].astype(int)
    label = (counts[:, 0] > 0).astype(float)
    long = np.column_stack([np.repeat(label, times), np.ones(times.sum())])
    for solver in SOLVERS[:3]:
        a = run(solver, DenseDesign(Phi), counts, max_iter=300)
        b = run(solver, DenseDesign(np.repeat(Phi, times, axis=0)), long, max_iter=300)
        assert a.state.bound == pytest.approx(b.state.bound, abs=1e-6)


def test_sparse_columns_give_the_dense_model():
    rng = np.random.default_rng(3)
    X = np.where(rng.uniform(size=(150, 40)) < 0.3, 1.0, 0.0)
    labels = rng.uniform(size=150) < 1 / (1 + np.exp(-3 * X[:, 0] + 3 * X[:, 1]))
    counts = np.column_stack([labels, np.ones(150)]).astype(float)
    for solver in SOLVERS:
        a = run(solver, DenseDesign(X), counts, max_iter=40)
        b = run(solver, SparseDesign(sparse.csr_matrix(X)), counts, max_iter=40)
        assert a.state.bound == pytest.approx(b.state.bound, abs=1e-6)


def test_the_true_columns_are_found():
    for seed in range(3):
        Phi, counts = _problem(seed, n=400, m=60)
        for variance in ("exact", "factorised"):
            solver = LogisticBackfitting(inclusion_prior="learn", variance=variance)
            found = run(solver, DenseDesign(Phi), counts, max_iter=300).state.active
            assert {0, 1} <= set(found)
            assert len(found) <= 3


def test_factorised_and_exact_posteriors_agree_on_orthogonal_columns():
    Phi = np.linalg.qr(np.random.default_rng(5).standard_normal((200, 3)))[0] * 10
    counts = np.column_stack([Phi[:, 0] + np.sin(np.arange(200)) > 0, np.ones(200)]).astype(float)
    design = DenseDesign(Phi)
    results = []
    for variance in ("exact", "factorised"):
        solver = LogisticBackfitting("ridge", variance=variance, fit_intercept=False, tol=1e-8)
        state = run(solver, design, counts, max_iter=2000).state
        results.append(solver.solution(state, design, counts).posterior)
    np.testing.assert_allclose(results[0].mean, results[1].mean, rtol=0.02)
    for row in (np.eye(3), np.ones((1, 3))):
        np.testing.assert_allclose(results[0].predict(row)[1], results[1].predict(row)[1], rtol=0.1)


def test_the_empty_model_predicts_the_share_of_labels():
    Phi, counts = _problem(2)
    solver, design = LogisticBackfitting(), DenseDesign(Phi)
    posterior = solver.solution(solver.empty(design), design, counts).posterior
    assert len(posterior.mean) == 0
    assert np.isfinite(posterior.log_evidence)


def test_a_short_step_is_not_taken_for_the_end():
    rng = np.random.default_rng(15)
    Phi = np.round(2.0 * rng.standard_normal((20, 40)))
    labels = Phi[:, 0] + Phi[:, 1] + 0.2 * rng.standard_normal(20) > 0
    weight = rng.uniform(0.0, 1e3, 20)
    counts = np.column_stack([weight * labels, weight])
    solver = LogisticBackfitting(variance="factorised", inclusion_prior="learn")
    result = run(solver, DenseDesign(Phi), counts, max_iter=5000)
    assert result.converged
    assert np.max(np.diff(result.history["bound"])[-5:]) < solver.tol


def test_an_offset_of_the_columns_does_not_matter_with_an_intercept():
    rng = np.random.default_rng(0)
    Phi = rng.integers(-8, 9, (40, 10)) / 8.0  # exact beside an offset of 1e8
    labels = Phi[:, 0] + Phi[:, 1] + 0.3 * rng.standard_normal(40) > 0
    counts = np.column_stack([labels, np.ones(40)]).astype(float)
    plain, far = (
        run(LogisticBackfitting(), DenseDesign(Phi + offset), counts, max_iter=2000)
        for offset in (0.0, 1e8)
    )
    assert far.converged
    assert far.n_iter < 1.5 * plain.n_iter
    assert far.history["bound"][-1] == pytest.approx(plain.history["bound"][-1], abs=1e-4)


def test_steps_that_creep_towards_larger_log_odds_are_not_the_end():
    # Classes a narrow gap apart: steps gain a thousandth of tol each, doubled log odds .3 nats.
    x = np.array([-1.8, -0.8, -0.7, -0.482, -0.45, 0.5, 0.6, 0.8, 1.9, 0.5])
    counts = np.column_stack([x < -0.46, np.ones(10)]).astype(float)
    early, late = (
        run(LogisticBackfitting(tol=tol), DenseDesign(x[:, None]), counts, max_iter=1000)
        for tol in (1e-3, 1e-5)
    )
    assert early.converged
    assert late.converged
    assert early.history["bound"][-1] == pytest.approx(late.history["bound"][-1], abs=0.01)
