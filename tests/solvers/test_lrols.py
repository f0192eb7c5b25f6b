"""Orthogonal least squares against fresh factorisations, refits and dense evidence."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from sparsebayes.datasets import make_chen_example
from sparsebayes.designs import CentredDesign, DenseDesign, KernelDesign, WeightedDesign
from sparsebayes.kernels import StationaryKernel
from sparsebayes.solvers import run
from sparsebayes.solvers.noise import Noise
from sparsebayes.solvers.ols.criteria import information
from sparsebayes.solvers.ols.regularisers import local_lam, uniform_lam
from sparsebayes.solvers.ols.selection import OrthogonalLeastSquares
from tests.helpers import dense_log_evidence, intercept_log_evidence, sparse_problem

PROBLEMS = [
    pytest.param((seed, conditioning, shape), id=f"{conditioning}-{shape[0]}x{shape[1]}-{seed}")
    for seed, conditioning in [(0, "good"), (1, "good"), (2, "bad")]
    for shape in [(40, 12), (20, 30)]
]


def problem(parameters):
    seed, conditioning, (n, m) = parameters
    rng = np.random.default_rng(seed)
    return sparse_problem(rng, n, m, k=3, noise=0.3, conditioning=conditioning)


def fit(Phi, t, design=DenseDesign, max_iter=1000, **settings):
    solver = OrthogonalLeastSquares(**settings)
    design = design(Phi)
    t = design.target(t)
    result = run(solver, design, t, max_iter=max_iter)
    return result, solver.solution(result.state, design, t).posterior, solver, design


def orthogonal_parts(Phi, active):
    """W and A of Phi_S = W A, by Householder."""
    Q, R = np.linalg.qr(Phi[:, active])
    return Q * np.diag(R), R / np.diag(R)[:, None]


def criterion_by_hand(Phi, t, chosen, j, lam, criterion="err", beta=0.1):
    """One candidate beside the chosen ones, from a factorisation of its own."""
    W, _ = orthogonal_parts(Phi, [*chosen, j])
    w = W[:, -1]
    s, q, tt = w @ w, w @ t, t @ t
    value = q**2 / ((s + lam) * tt)
    if criterion == "d-optimality":
        return value + beta * np.log(s) / tt
    if criterion == "a-optimality":
        return value - beta / s / tt
    if criterion == "press":
        return -leave_one_out(Phi[:, [*chosen, j]], t, lam)
    return value


def leave_one_out(Phi, t, lam, intercept=False):
    """n refits, the penalty A' Lam A held fixed."""
    centred = Phi - Phi.mean(axis=0) if intercept else Phi
    _, A = orthogonal_parts(centred, np.arange(Phi.shape[1]))
    P = A.T @ (lam * A)
    errors = []
    for i in range(len(t)):
        rest = np.arange(len(t)) != i
        if intercept:
            X = np.column_stack([centred, np.ones(len(t))])
            penalty = np.zeros((X.shape[1],) * 2)
            penalty[:-1, :-1] = P
        else:
            X, penalty = Phi, P
        theta = np.linalg.solve(X[rest].T @ X[rest] + penalty, X[rest].T @ t[rest])
        errors.append(t[i] - X[i] @ theta)
    return np.mean(np.square(errors))


@pytest.mark.parametrize("parameters", PROBLEMS)
@pytest.mark.parametrize("lam", ["none", 1e-2])
@pytest.mark.parametrize("criterion", ["err", "d-optimality", "a-optimality"])
def test_every_choice_is_the_best_candidate_by_a_fresh_factorisation(parameters, lam, criterion):
    Phi, t = problem(parameters)
    result, *_ = fit(Phi, t, regularization=lam, criterion=criterion, guard=1e-8, max_terms=8)
    number = 0.0 if lam == "none" else lam
    active = list(result.state.active)
    assert active
    for k, chosen in enumerate(active):
        values = {
            j: criterion_by_hand(Phi, t, active[:k], j, number, criterion)
            for j in set(range(Phi.shape[1])) - set(active[:k])
        }
        # The value decides, not the index: candidates may tie.
        best = max(values.values())
        assert values[chosen] >= best - 1e-9 * abs(best)


@pytest.mark.parametrize("parameters", PROBLEMS)
@pytest.mark.parametrize("lam", ["none", 1e-2])
def test_error_reductions_match_a_fresh_factorisation(parameters, lam):
    Phi, t = problem(parameters)
    result, *_ = fit(Phi, t, regularization=lam, guard=1e-8, max_terms=8)
    terms = result.state.chosen
    number = 0.0 if lam == "none" else lam
    W, _ = orthogonal_parts(Phi, terms.active)
    s, q = np.einsum("ij,ij->j", W, W), W.T @ t
    rerr = q**2 / ((s + number) * (t @ t))
    np.testing.assert_allclose(terms.explained / result.state.total, rerr, atol=1e-12)
    g = q / (s + number)
    e = t - W @ g
    accuracy = (e @ e + number * g @ g) / (t @ t)
    np.testing.assert_allclose(1.0 - np.sum(rerr), accuracy, atol=1e-12)
    np.testing.assert_allclose(terms.E / result.state.total, accuracy, atol=1e-12)


@pytest.mark.parametrize("parameters", [p for p in PROBLEMS if "good" in p.id])
@pytest.mark.parametrize("regularization", ["none", 1e-2, "uniform", "local"])
def test_posterior_is_that_of_the_penalty_on_orthogonal_weights(parameters, regularization):
    Phi, t = problem(parameters)
    result, posterior, *_ = fit(Phi, t, regularization=regularization, max_terms=8)
    terms = result.state.chosen
    X = Phi[:, terms.active]
    _, A = orthogonal_parts(Phi, terms.active)
    H = X.T @ X + A.T @ (np.broadcast_to(terms.lam, len(A))[:, None] * A)
    np.testing.assert_allclose(posterior.mean, np.linalg.solve(H, X.T @ t), rtol=1e-8)
    expected = posterior.noise_variance * np.linalg.inv(H)
    np.testing.assert_allclose(posterior.covariance, expected, rtol=1e-8)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("regularization", [1e-2, "uniform", "local"])
def test_log_evidence_is_the_dense_one_of_orthogonal_weights(regularization, intercept):
    Phi, t = problem((0, "good", (40, 12)))
    wrap = (lambda P: CentredDesign(DenseDesign(P))) if intercept else DenseDesign
    result, posterior, *_ = fit(Phi, t + 3.0 * intercept, wrap, regularization=regularization)
    terms, sigma2 = result.state.chosen, posterior.noise_variance
    centred = Phi - Phi.mean(axis=0) if intercept else Phi
    W, _ = orthogonal_parts(centred, terms.active)
    if intercept:
        expected = intercept_log_evidence(W, t - t.mean(), terms.lam / sigma2, sigma2)
    else:
        expected = dense_log_evidence(W, t, terms.lam / sigma2, sigma2)
    np.testing.assert_allclose(posterior.log_evidence, expected, rtol=1e-7)


def test_without_regularisation_the_evidence_is_the_limit_of_wide_priors():
    # A prior N(0, v) is flat with density 1/sqrt(2 pi v) as v grows.
    Phi, t = problem((0, "good", (40, 12)))
    result, posterior, *_ = fit(Phi, t, regularization="none", max_terms=3)
    wide = np.full(3, 1e8)
    W, _ = orthogonal_parts(Phi, result.state.active)
    limit = dense_log_evidence(W, t, 1.0 / wide, posterior.noise_variance)
    limit += 0.5 * np.sum(np.log(2 * np.pi * wide))
    np.testing.assert_allclose(posterior.log_evidence, limit, rtol=1e-6)
    residual = t - Phi[:, result.state.active] @ posterior.mean
    np.testing.assert_allclose(posterior.noise_variance, residual @ residual / (40 - 3))


@pytest.mark.parametrize("lam", ["none", 0.3])
@pytest.mark.parametrize("intercept", [False, True])
def test_leave_one_out_along_the_path_equals_n_refits(lam, intercept):
    Phi, t = problem((0, "good", (25, 10)))
    wrap = (lambda P: CentredDesign(DenseDesign(P))) if intercept else DenseDesign
    result, *_ = fit(Phi, t + 2.0, wrap, regularization=lam, stopping="press", max_terms=6)
    number = 0.0 if lam == "none" else lam
    path, *_ = fit(Phi, t + 2.0, wrap, regularization=lam, max_terms=6)
    for k, value in zip(result.history["n_active"], result.history["stopping"], strict=True):
        expected = leave_one_out(Phi[:, path.state.active[:k]], t + 2.0, number, intercept)
        np.testing.assert_allclose(value, expected, rtol=1e-10)


@pytest.mark.parametrize("lam", ["none", 0.3])
@pytest.mark.parametrize("stopping", [None, "bic"])
def test_choice_by_leave_one_out_is_the_best_of_n_refits(lam, stopping):
    Phi, t = problem((1, "good", (25, 10)))
    number = 0.0 if lam == "none" else lam
    result, *_ = fit(Phi, t, regularization=lam, criterion="press", stopping=stopping)
    active = list(result.state.active)
    assert len(active) >= 3
    for k, chosen in enumerate(active):
        rest = set(range(10)) - set(active[:k])
        values = {j: leave_one_out(Phi[:, [*active[:k], j]], t, number) for j in rest}
        assert values[chosen] <= min(values.values()) * (1 + 1e-9)


@pytest.mark.parametrize("rows", [30, 400])
@pytest.mark.parametrize("intercept", [False, True])
def test_bounds_do_not_change_what_leave_one_out_chooses(rows, intercept):
    # Rows of very different influence, and more candidates than are looked at in one go.
    rng = np.random.default_rng(rows)
    Phi = rng.standard_t(2.0, (rows, 90))
    t = Phi[:, :5] @ rng.standard_normal(5) + rng.standard_t(3.0, rows)
    wrap = (lambda P: CentredDesign(DenseDesign(P))) if intercept else DenseDesign
    settings = {"regularization": 0.1, "criterion": "press", "stopping": "bic", "max_terms": 8}
    result, _, _, design = fit(Phi, t, wrap, **settings)
    active = list(result.state.active)
    assert len(active) >= 3
    columns, target = design.dense(), design.target(t)
    for k, chosen in enumerate(active):
        # With W orthogonal, leave-one-out is e / (1 - leverage).
        values = np.full(90, np.inf)
        for j in set(range(90)) - set(active[:k]):
            W, _ = orthogonal_parts(columns, [*active[:k], j])
            d = np.einsum("ij,ij->j", W, W) + 0.1
            e = target - W @ (W.T @ target / d)
            eta = 1.0 - (W**2 / d).sum(axis=1) - intercept / rows
            values[j] = np.sum((e / eta) ** 2)
        assert values[chosen] <= np.min(values) * (1 + 1e-9)


def test_choice_by_leave_one_out_ends_where_every_candidate_raises_it():
    Phi, t = problem((1, "good", (25, 10)))
    number = 0.3
    result, *_ = fit(Phi, t, regularization=number, criterion="press")
    active = list(result.state.active)
    assert result.state.selection_end == "criterion"
    rest = set(range(10)) - set(active)
    now = leave_one_out(Phi[:, active], t, number)
    assert all(leave_one_out(Phi[:, [*active, j]], t, number) > now for j in rest)


@pytest.mark.parametrize("criterion", ["err", "press"])
@pytest.mark.parametrize("stopping", ["press", "bic"])
@pytest.mark.parametrize("intercept", [False, True])
def test_weights_equal_repetition(criterion, stopping, intercept):
    Phi, t = problem((0, "good", (30, 8)))
    weight = np.random.default_rng(0).integers(1, 4, len(t))
    wrap = CentredDesign if intercept else lambda design: design
    settings = {"criterion": criterion, "stopping": stopping}
    a, p, *_ = fit(
        Phi, t, lambda P: wrap(WeightedDesign(DenseDesign(P), weight.astype(float))), **settings
    )
    twice = np.repeat(Phi, weight, axis=0)
    b, q, *_ = fit(twice, np.repeat(t, weight), lambda P: wrap(DenseDesign(P)), **settings)
    np.testing.assert_array_equal(a.state.active, b.state.active)
    np.testing.assert_allclose(a.history["stopping"], b.history["stopping"], rtol=1e-10)
    np.testing.assert_allclose(p.mean, q.mean, rtol=1e-9)
    np.testing.assert_allclose(p.log_evidence, q.log_evidence, rtol=1e-10)


@pytest.mark.parametrize("name", ["aic", "aicc", "bic", "fpe", "lilc"])
def test_information_criteria_and_where_they_end_the_path(name):
    Phi, t = problem((0, "good", (60, 30)))
    k, n = 2, 50.0
    penalty = {
        "aic": 2 * k,
        "aicc": 2 * k + 2 * k * (k + 1) / (n - k - 1),
        "bic": k * np.log(n),
        "fpe": n * np.log((n + k) / (n - k)),
        "lilc": 2 * k * np.log(np.log(n)),
    }[name]
    np.testing.assert_allclose(information(name, n, k, 3.0), n * np.log(3.0 / n) + penalty)
    result, *_ = fit(Phi, t, regularization="none", stopping=name)
    values = result.history["stopping"]
    assert len(result.state.active) == np.argmin(values) + 1
    assert result.state.selection_end == "criterion"
    assert 3 <= len(result.state.active) < len(values)
    # The last record is of the terms that are kept, and so is its value.
    assert result.history["n_active"][-1] == len(result.state.active)
    assert values[-1] == np.min(values)


def test_log_determinant_of_the_chosen_columns_is_the_sum_that_d_optimality_uses():
    Phi, t = problem((0, "good", (40, 12)))
    result, *_ = fit(Phi, t, regularization=1e-2, criterion="d-optimality", beta=1.0)
    X = Phi[:, result.state.active]
    expected = np.linalg.slogdet(X.T @ X)[1]
    np.testing.assert_allclose(np.sum(np.log(result.state.chosen.s)), expected, rtol=1e-12)


@pytest.mark.parametrize("criterion", ["d-optimality", "a-optimality"])
def test_optimality_ends_where_no_candidate_is_worth_its_penalty(criterion):
    Phi, t = problem((0, "good", (40, 12)))
    settings = {"regularization": 1e-2, "criterion": criterion, "beta": 5.0}
    result, *_ = fit(0.1 * Phi, t, **settings)
    active = list(result.state.active)
    assert result.state.selection_end == "criterion"
    rest = set(range(12)) - set(active)
    assert all(criterion_by_hand(0.1 * Phi, t, active, j, 1e-2, criterion, 5.0) <= 0 for j in rest)


@pytest.mark.parametrize("sigma2", [None, 0.3])
def test_local_regularisers_maximise_the_dense_evidence(sigma2):
    rng = np.random.default_rng(0)
    W, _ = orthogonal_parts(rng.standard_normal((30, 6)), np.arange(6))
    t = W @ np.array([1.0, -0.5, 0.3, 0.1, 0.02, 0.0]) + 0.5 * rng.standard_normal(30)
    s, q = np.einsum("ij,ij->j", W, W), W.T @ t
    r = q**2 / s
    lam = local_lam(s, r, t @ t - r.sum(), Noise(30.0, 0.0, sigma2, 1e-12), 1.0)

    def evidence(lam):
        keep = np.isfinite(lam)
        P = np.eye(30) - (W[:, keep] / (s + lam)[keep]) @ W[:, keep].T
        noise = t @ P @ t / 30 if sigma2 is None else sigma2
        return dense_log_evidence(W[:, keep], t, lam[keep] / noise, noise)

    best = evidence(lam)
    assert 0 < np.count_nonzero(np.isinf(lam)) < 6
    for i in range(6):
        trials = [np.inf, *(s[i] * np.logspace(-6, 6, 49))]
        if np.isfinite(lam[i]):
            trials += [0.99 * lam[i], 1.01 * lam[i]]
        for value in trials:
            trial = lam.copy()
            trial[i] = value
            assert evidence(trial) <= best + 1e-9


def test_closed_form_is_where_the_papers_rule_creeps_to():
    rng = np.random.default_rng(3)
    s = rng.uniform(0.5, 2.0, 8)
    r = np.array([30.0, 12.0, 5.0, 2.5, 1.6, 0.4, 0.1, 0.02])
    outside, n = 60.0, 60.0
    lam = np.full(8, 1e-3)
    for _ in range(20000):
        g = np.sqrt(r * s) / (s + lam)
        gamma = s / (s + lam)
        ee = outside + np.sum((np.sqrt(r) - np.sqrt(s) * g) ** 2)
        lam = np.minimum(gamma * ee / ((n - gamma.sum()) * g**2), 1e12)
    closed = local_lam(s, r, outside, Noise(n, 0.0, None, 1e-12), 1.0)
    finite = np.isfinite(closed)
    np.testing.assert_array_equal(finite, lam < 1e6)
    np.testing.assert_allclose(closed[finite], lam[finite], rtol=1e-8)


@pytest.mark.parametrize("sigma2", [None, 0.3])
def test_uniform_regulariser_maximises_the_dense_evidence(sigma2):
    rng = np.random.default_rng(1)
    W, _ = orthogonal_parts(rng.standard_normal((30, 6)), np.arange(6))
    t = W @ np.array([1.0, -0.5, 0.3, 0.1, 0.02, 0.0]) + 0.5 * rng.standard_normal(30)
    s, q = np.einsum("ij,ij->j", W, W), W.T @ t
    r = q**2 / s

    def negative(log_lam):
        lam = np.full(6, np.exp(log_lam))
        P = np.eye(30) - (W / (s + lam)) @ W.T
        noise = t @ P @ t / 30 if sigma2 is None else sigma2
        return -dense_log_evidence(W, t, lam / noise, noise)

    expected = minimize_scalar(negative, bounds=(-12, 12), method="bounded").x
    found = uniform_lam(s, r, t @ t - r.sum(), Noise(30.0, 0.0, sigma2, 1e-12))
    np.testing.assert_allclose(np.log(found), expected, atol=1e-4)


def test_uniform_regulariser_is_infinite_for_noise():
    s, r = np.ones(5), np.full(5, 0.2)
    assert np.isinf(uniform_lam(s, r, 50.0, Noise(50.0, 0.0, None, 1e-12)))


@pytest.mark.parametrize("regularization", ["local", "uniform"])
@pytest.mark.parametrize("seed", range(6))
def test_passes_lose_evidence_only_for_columns_they_drop(regularization, seed):
    X, t = make_chen_example(random_state=seed)
    result, *_ = fit(
        X, t, lambda X: KernelDesign(X, StationaryKernel("rbf", 12.5)),
        regularization=regularization,
    )  # fmt: skip
    later = np.isnan(result.history["stopping"]) & np.isnan(result.history["drift"])
    evidence, n_active = (result.history[name][later] for name in ("log_evidence", "n_active"))
    gain, dropped = np.diff(evidence), -np.diff(n_active)
    assert np.all(gain >= -2.0 * dropped - 1e-9)
    assert result.converged


def test_passes_end_where_the_evidence_is_too_large_to_show_a_gain():
    # Of digits that are worth more than tol: equal evidence is no gain, in whatever order.
    rng = np.random.default_rng(0)
    Phi, t = rng.standard_normal((30, 4)), 1e4 * rng.standard_normal(30)
    result, posterior, *_ = fit(Phi, t, max_iter=200, regularization="uniform", noise_variance=1e-8)
    assert posterior.log_evidence < -1e15
    assert result.converged
    assert result.n_iter < 20


def test_stand_in_is_dropped_once_the_true_terms_are_there():
    # The stand-in is chosen first, being close to the sum, and is needless beside the two.
    rng = np.random.default_rng(0)
    a, b, noise, error = rng.standard_normal((4, 300))
    Phi = np.column_stack([a + b + 0.3 * noise, a, b])
    t = a + b + 0.1 * error
    forward, *_ = fit(Phi, t, regularization="none")
    assert forward.state.active[0] == 0
    local, *_ = fit(Phi, t, regularization="local", threshold=4.0)
    assert sorted(local.state.active) == [1, 2]


def test_threshold_keeps_out_chance_terms():
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal((100, 60))
    t = Phi[:, 7] + rng.standard_normal(100)
    loose, *_ = fit(Phi, t, max_terms=10)
    strict, *_ = fit(Phi, t, max_terms=10, threshold=4.0)
    assert list(strict.state.active) == [7]
    assert len(loose.state.active) > 5


def test_units_of_the_columns_do_not_matter():
    Phi, t = problem((0, "good", (40, 12)))
    scale = np.logspace(-4, 4, 12)
    for regularization in ("none", "local"):
        a, p, *_ = fit(Phi, t, regularization=regularization, stopping="bic")
        b, q, *_ = fit(Phi * scale, t, regularization=regularization, stopping="bic")
        np.testing.assert_array_equal(a.state.active, b.state.active)
        np.testing.assert_allclose(p.mean, q.mean * scale[a.state.active], rtol=1e-8)
    # One penalty for all is in units of the columns, unless these are given.
    a, p, *_ = fit(Phi, t, regularization=0.5, max_terms=5)
    b, q, *_ = fit(Phi * scale, t, regularization=0.5, max_terms=5, units=scale**2)
    np.testing.assert_array_equal(a.state.active, b.state.active)
    np.testing.assert_allclose(p.mean, q.mean * scale[a.state.active], rtol=1e-8)


def test_dependent_and_empty_columns_are_never_chosen_together():
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal((30, 5))
    Phi = np.column_stack([Phi, 1e6 * Phi[:, 0], np.zeros(30), Phi[:, 1] - 2 * Phi[:, 2]])
    t = rng.standard_normal(30)
    result, *_ = fit(Phi, t, regularization="none")
    assert len(result.state.active) == 5
    assert np.linalg.matrix_rank(Phi[:, result.state.active]) == 5
    assert 6 not in result.state.active
    assert result.state.selection_end == "no_candidate"


def test_recursion_agrees_with_fresh_factorisations_on_nearly_dependent_columns():
    X, t = make_chen_example(random_state=0)
    Phi = np.exp(-12.5 * (X - X.T) ** 2)
    result, posterior, *_ = fit(Phi, t, regularization="none", guard=1e-14)
    active = list(result.state.active)
    assert np.linalg.cond(Phi[:, active]) > 1e10
    assert np.nanmax(result.history["drift"]) < 1e-6
    for k, chosen in enumerate(active):
        values = [
            criterion_by_hand(Phi, t, active[:k], j, 0.0)
            for j in range(100)
            if j not in active[:k]
            and np.square(orthogonal_parts(Phi, [*active[:k], j])[0][:, -1]).sum()
            > 1e-13 * Phi[:, j] @ Phi[:, j]
        ]
        assert criterion_by_hand(Phi, t, active[:k], chosen, 0.0) >= max(values) * (1 - 1e-5)
    residual = t - Phi[:, active] @ posterior.mean
    direct = t - Phi[:, active] @ np.linalg.lstsq(Phi[:, active], t, rcond=1e-17)[0]
    np.testing.assert_allclose(residual @ residual, direct @ direct, rtol=1e-6)


class Counting(DenseDesign):
    """Counts full reads."""

    reads = 0

    def local_project(self, V, idx=slice(None)):
        type(self).reads += 1
        return super().local_project(V, idx)

    def blocks(self, idx=slice(None)):
        type(self).reads += self.n_selected(idx) == self.n_candidates
        return super().blocks(idx)


@pytest.mark.parametrize("criterion", ["err", "press"])
def test_one_read_of_the_columns_per_term(criterion):
    rng = np.random.default_rng(0)
    Phi, t = rng.standard_normal((2000, 40)), rng.standard_normal(2000)
    t += Phi[:, :20] @ rng.uniform(1.0, 2.0, 20)
    Counting.reads = 0
    settings = {"criterion": criterion, "max_terms": 20, "regularization": "none"}
    result, *_ = fit(Phi, t, Counting, **settings)
    assert len(result.state.active) == 20
    # One for the lengths and Phi't, and one per term but the last.
    assert Counting.reads == 1 + 19


def test_lazy_kernel_matches_dense():
    X, t = make_chen_example(random_state=1)
    kernel = StationaryKernel("rbf", 12.5)
    lazy, p, *_ = fit(X, t, lambda X: KernelDesign(X, kernel, cache_size=0), criterion="press")
    dense, q, *_ = fit(KernelDesign(X, kernel).dense(), t, criterion="press")
    np.testing.assert_array_equal(lazy.state.active, dense.state.active)
    np.testing.assert_allclose(p.mean, q.mean, rtol=1e-8)


def test_reasons_to_end():
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal((30, 50))
    t = rng.standard_normal(30)
    ols = {"regularization": "none"}
    assert fit(Phi, t, **ols, max_terms=3)[0].state.selection_end == "max_terms"
    assert fit(Phi, t, **ols, tolerance=0.2)[0].state.selection_end == "tolerance"
    exact, *_ = fit(Phi, 2.0 * Phi[:, 4], **ols)
    assert exact.state.selection_end == "exact_fit"
    assert list(exact.state.active) == [4]
    wide, p, *_ = fit(Phi, t, **ols)
    assert len(wide.state.active) <= 30
    assert np.all(np.isfinite(p.mean))
    assert p.noise_variance > 0
    empty, p, *_ = fit(Phi, np.zeros(30), **ols)
    assert empty.state.selection_end == "no_signal"
    assert len(p.mean) == 0
    assert np.isfinite(p.log_evidence)


def test_columns_that_overflow_are_refused():
    with pytest.raises(ValueError, match="overflow"):
        fit(np.full((4, 2), 1e200) * np.eye(4, 2), np.ones(4))


def test_a_run_can_be_stopped_and_resumed():
    X, t = make_chen_example(random_state=2)
    design = KernelDesign(X, StationaryKernel("rbf", 12.5))
    solver = OrthogonalLeastSquares()
    whole = run(solver, design, t, max_iter=100)
    for stop in (3, whole.n_iter - 1):
        part = run(solver, design, t, max_iter=stop)
        assert part.stop_reason == "max_iter"
        half_way = solver.solution(part.state, design, t).posterior
        assert np.all(np.isfinite(half_way.mean))
        rest = run(solver, design, t, max_iter=100, state=part.state)
        np.testing.assert_array_equal(rest.state.active, whole.state.active)
        assert part.n_iter + rest.n_iter == whole.n_iter


def chen(draws, **settings):
    """Medians over draws: terms, effective terms, training error, error to the truth, weights."""
    grid = np.linspace(0, 1, 201)[:, None]
    kernel = StationaryKernel("rbf", 1 / (2 * 0.04))
    records = []
    for seed in range(draws):
        X, t = make_chen_example(random_state=seed)
        result, p, _, design = fit(X, t, lambda X: KernelDesign(X, kernel), **settings)
        basis = design.basis(result.state.active)
        records.append(
            (
                len(p.mean),
                np.count_nonzero(result.state.chosen.effective),
                np.mean((basis(X) @ p.mean - t) ** 2),
                np.mean((basis(grid) @ p.mean - np.sin(2 * np.pi * grid[:, 0])) ** 2),
                np.log10(np.max(np.abs(p.mean))),
                result.converged,
            )
        )
    assert all(record[-1] for record in records)
    return np.median(np.array(records, dtype=float), axis=0)


def test_chens_example_over_100_draws_lies_in_the_published_ranges():
    # Published: OLS 15 terms, training error .147, weights of 4e9; UROLS 13 terms, .157, 2.3;
    # LROLS 6 effective terms, .159, 1.9.
    terms, _, train, _, weights, _ = chen(100, regularization="none", guard=1e-14)
    assert 13 <= terms <= 17
    assert 0.10 < train < 0.17
    assert weights > 8
    terms, _, train, truth, weights, _ = chen(100, regularization="uniform", guard=1e-14)
    assert 12 <= terms <= 15
    assert 0.12 < train < 0.18
    assert truth < 0.012
    assert weights < 1
    _, effective, train, truth, weights, _ = chen(100, regularization="local", guard=1e-14)
    assert 4 <= effective <= 10
    assert 0.12 < train < 0.18
    assert truth < 0.012
    assert weights < 1


def test_chens_example_with_one_pass_criteria():
    # Leave-one-out and D-optimality reach the size of LROLS without the outer loop.
    terms, _, _, truth, weights, _ = chen(40, regularization=1e-3, stopping="press")
    assert 3 <= terms <= 10
    assert truth < 0.015
    for beta, few in [(0.01, 7), (0.1, 6), (1.0, 5)]:
        settings = {"regularization": 1e-2, "criterion": "d-optimality", "beta": beta}
        terms, _, _, truth, weights, _ = chen(40, **settings)
        assert 4 <= terms <= few
        assert truth < 0.013
        assert weights < 1
