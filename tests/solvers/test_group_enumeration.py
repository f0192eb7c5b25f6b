import itertools

import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp, softmax

from sparsebayes.designs import DenseDesign
from sparsebayes.posterior import Revised
from sparsebayes.solvers import run
from sparsebayes.solvers.group import probit
from sparsebayes.solvers.group.enumeration import enumerate_undecided_groups
from sparsebayes.solvers.group.ep import GroupEP, log_likelihood_constant
from sparsebayes.solvers.group.models import ModelWeights
from sparsebayes.solvers.group.probit import ProbitGroupEP
from tests.group_helpers import enumerate_models, exact_quadratic, random_problem


def _undecided(n, d, size, seed=0):
    """Weak signals in d columns: every group stays in doubt."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + rng.standard_normal((n, 1))
    y = X @ (0.15 * rng.standard_normal(d)) + rng.standard_normal(n)
    return X, y, np.arange(d) // size


def _enumerate(state, posterior, most=32):
    return enumerate_undecided_groups(
        state.form,
        state.sites,
        state.marginals,
        posterior,
        most,
        precision=1.0 / state.sigma2,
        log_constant=log_likelihood_constant(state),
    )


def _enumerated(X, y, group_of, most, sites="group", max_iter=200):
    solver = GroupEP(group_of, 0.3, 0.2, 1.0, sites=sites)
    state = run(solver, DenseDesign(X), y, max_iter=max_iter).state
    posterior = solver.posterior(state, DenseDesign(X), y)
    joint = _enumerate(state, posterior, most)
    return joint.inclusion, joint.variance, joint.posterior, posterior


@pytest.mark.parametrize(("n", "d"), [(30, 12), (9, 12)])
@pytest.mark.parametrize("sites", ["group", "column"])
@pytest.mark.parametrize("max_iter", [1, 200])
def test_exact_where_all_groups_are_enumerated(n, d, sites, max_iter):
    X, y, group_of = _undecided(n, d, 2)
    exact = enumerate_models(X, y, group_of, 0.3, 0.2, 1.0)
    inclusion, variance, posterior, *_ = _enumerated(X, y, group_of, 6, sites, max_iter)
    np.testing.assert_allclose(inclusion, exact[0], atol=1e-9)
    np.testing.assert_allclose(posterior.mean, exact[1], atol=1e-9)
    np.testing.assert_allclose(variance, exact[2], atol=1e-9)
    np.testing.assert_allclose(np.diag(posterior.covariance), exact[2], atol=1e-9)
    np.testing.assert_allclose(posterior.log_evidence, exact[3], atol=1e-8)


@pytest.mark.parametrize("sigma2", [1e-2, 1e-8, 1e-14])
def test_rounding_errors_of_the_weights_of_models_are_known(sigma2):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6, 2))
    y = 1e3 * X[:, 0] + 1e-3 * rng.standard_normal(6)
    v0, group_of = 1e6, np.arange(2)
    solver = GroupEP(group_of, 0.5, v0, sigma2)
    state = solver.init(DenseDesign(X), y)
    found = _enumerate(state, solver.posterior(state, DenseDesign(X), y))
    log_weight = []
    for chosen in itertools.product([False, True], repeat=2):
        some = X[:, list(chosen)]
        log_det = np.linalg.slogdet(np.eye(some.shape[1]) * sigma2 / v0 + some.T @ some)[1]
        log_det += (6 - some.shape[1]) * np.log(sigma2) + some.shape[1] * np.log(v0)
        quadratic = exact_quadratic(some, y, v0, sigma2)
        log_weight.append(-0.5 * (6 * np.log(2.0 * np.pi) + log_det + quadratic) - np.log(4.0))
    error = abs(found.posterior.log_evidence - logsumexp(log_weight))
    assert error <= 10.0 * found.rounding + 1e-9
    assert (found.rounding > 1.0) == (sigma2 == 1e-14)


def test_three_of_six_groups_come_closer_to_the_truth():
    before, after = [], []
    for seed in range(10):
        X, y, group_of = _undecided(20, 12, 2, seed)
        exact = enumerate_models(X, y, group_of, 0.3, 0.2, 1.0)[0]
        for most, errors in ((0, before), (3, after)):
            errors.append(np.abs(_enumerated(X, y, group_of, most, "column")[0] - exact).mean())
    assert np.mean(after) < 0.7 * np.mean(before)


def test_evidence_is_right_where_every_undecided_group_is_enumerated():
    rng = np.random.default_rng(0)
    errors, former = [], []
    for _ in range(30):
        X, y, group_of, p0, v0, sigma2 = random_problem(rng, most_groups=8)
        exact = enumerate_models(X, y, group_of, p0, v0, sigma2)[3]
        solver = GroupEP(group_of, p0, v0, sigma2)
        design = DenseDesign(X)
        state = run(solver, design, y, max_iter=300).state
        ep = solver.posterior(state, design, y)
        after = _enumerate(state, ep, 8).posterior
        former.append(abs(ep.log_evidence - exact))
        errors.append(abs(after.log_evidence - exact))
    assert max(errors) < 0.02
    assert max(former) > 0.1


@pytest.mark.parametrize("n", [9, 40])
def test_the_other_weights_follow_the_revised_ones(n):
    X, y, group_of = _undecided(n, 12, 2, seed=1)
    _, variance, posterior, former = _enumerated(X, y, group_of, 3)
    assert isinstance(posterior.form, Revised)
    inside = posterior.form.columns
    V, new = former.covariance, posterior.covariance
    G = V[:, inside] @ np.linalg.inv(V[np.ix_(inside, inside)])
    rest = V - G @ V[inside]
    np.testing.assert_allclose(new, rest + G @ new[np.ix_(inside, inside)] @ G.T, atol=1e-10)
    np.testing.assert_allclose(np.diag(new), variance, atol=1e-10)
    moved = former.mean + G @ (posterior.mean - former.mean)[inside]
    np.testing.assert_allclose(posterior.mean, moved, atol=1e-10)


@pytest.mark.parametrize("n", [9, 40])
def test_predictions_and_draws_have_the_revised_moments(n):
    X, y, group_of = _undecided(n, 12, 2, seed=2)
    posterior = _enumerated(X, y, group_of, 3)[2].rescaled(3.0, n)
    Phi = np.random.default_rng(0).standard_normal((3, 12))
    C = Phi @ posterior.covariance @ Phi.T
    mean, variance = posterior.predict(Phi)
    np.testing.assert_allclose(mean, Phi @ posterior.mean)
    np.testing.assert_allclose(variance, np.diag(C) + 9.0)
    np.testing.assert_allclose(posterior.predict_covariance(Phi, noise=False), C, atol=1e-10)
    np.testing.assert_allclose(posterior.form.multiply(Phi[0]), posterior.covariance @ Phi[0])
    draws = posterior.sample(Phi, 40_000, np.random.default_rng(1))
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.1)
    np.testing.assert_allclose(np.cov(draws), C + 9.0 * np.eye(3), atol=0.4)


def test_large_groups_are_not_enumerated_at_any_price():
    X, y, group_of = _undecided(60, 1200, 150)
    posterior = _enumerated(X, y, group_of, 8, max_iter=10)[2]
    assert not isinstance(posterior.form, Revised) or len(posterior.form.columns) <= 300


def test_decided_groups_are_not_enumerated():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 6))
    y = 3.0 * X[:, 0] + 0.1 * rng.standard_normal(60)
    solver = GroupEP(np.arange(6), 1e-3, 1.0, 0.01)
    state = run(solver, DenseDesign(X), y, max_iter=100).state
    former = solver.posterior(state, DenseDesign(X), y)
    joint = _enumerate(state, former)
    assert joint.posterior is former
    np.testing.assert_array_equal(joint.inclusion, state.inclusion_probability)


def test_labels_gain_from_it_too():
    before, after = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((12, 8))
        X[:, 2:4] = X[:, :2] + 0.05 * rng.standard_normal((12, 2))
        group_of = np.arange(8) // 2
        t = np.sign(X[:, :2] @ [1.0, -1.0] + rng.standard_normal(12))
        z = rng.random((100_000, 4)) < 0.4
        w = rng.standard_normal((len(z), 8)) * z[:, group_of]
        exact = softmax(log_ndtr(t * (w @ X.T)).sum(axis=1)) @ z
        solver = ProbitGroupEP(group_of, 0.4, 1.0)
        state = run(solver, DenseDesign(X), t, max_iter=300).state
        former = solver.posterior(state, DenseDesign(X), t)
        joint = enumerate_undecided_groups(
            state.form,
            state.sites,
            state.marginals,
            former,
            precision=state.tau,
            log_constant=probit.log_likelihood_constant(state, t),
            target=state.eta / state.tau,
        )
        before.append(np.abs(state.inclusion_probability - exact).max())
        after.append(np.abs(joint.inclusion - exact).max())
    assert np.mean(after) < 0.8 * np.mean(before)


def test_an_alternative_that_ep_has_put_out_shares_the_probability():
    # EP starts from sites that have decided for the first of two near-duplicates.
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 30))
    X[:, 1] = X[:, 0] + 0.05 * rng.standard_normal(60)
    y = 1.0 * X[:, 0] + rng.standard_normal(60)
    solver = GroupEP(np.arange(30), 0.05, 1.0, 1.0)
    state = run(solver, DenseDesign(X), y, max_iter=200).state
    state.sites.log_odds[0] += np.where(np.arange(30) == 0, 12.0, -12.0)
    state.marginals = state.form.marginals(state.sites.half, state.sites.shift, 1.0)
    state.sites.absorb(state.marginals)
    assert state.inclusion_probability[1] < 1e-4
    posterior = solver.posterior(state, DenseDesign(X), y)
    joint = _enumerate(state, posterior)
    exact = enumerate_models(X[:, :2], y, np.arange(2), 0.05, 1.0, 1.0)[0]
    np.testing.assert_allclose(joint.inclusion[:2], exact, atol=0.02)


@pytest.mark.parametrize("n", [10, 60])
def test_the_heaviest_models_are_found_without_weighing_all(n, monkeypatch):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((n, 12)) + rng.standard_normal((n, 1))
    y = 2.0 * X[:, 0] + rng.standard_normal(n)
    solver, design = GroupEP(np.arange(12), 0.05, 1.0, 1.0), DenseDesign(X)
    state = run(solver, design, y, max_iter=200).state
    posterior = solver.posterior(state, design, y)
    exact = enumerate_models(X, y, np.arange(12), 0.05, 1.0, 1.0)
    monkeypatch.setattr("sparsebayes.solvers.group.models.ALL_MODELS", 16)
    monkeypatch.setattr("sparsebayes.solvers.group.enumeration._UNDECIDED", 0.0)
    joint = _enumerate(state, posterior, 12)
    assert len(joint.models[0].weight) < 4096
    np.testing.assert_allclose(joint.inclusion, exact[0], atol=2e-3)
    np.testing.assert_allclose(joint.variance, exact[2], atol=2e-3)
    assert joint.posterior.log_evidence == pytest.approx(exact[3], abs=5e-3)


def test_where_too_much_is_open_fewer_groups_are_enumerated_with_all_their_models(monkeypatch):
    X, y, group_of = _undecided(15, 12, 1, seed=4)
    monkeypatch.setattr("sparsebayes.solvers.group.models.MOST_MODELS", 100)
    solver = GroupEP(group_of, 0.3, 0.2, 1.0)
    state = run(solver, DenseDesign(X), y, max_iter=200).state
    posterior = solver.posterior(state, DenseDesign(X), y)
    joint = _enumerate(state, posterior, 12)
    assert joint.models[0].chosen.shape == (1024, 10)
    exact = enumerate_models(X, y, group_of, 0.3, 0.2, 1.0)[0]
    before = np.abs(state.inclusion_probability - exact)
    assert np.mean(np.abs(joint.inclusion - exact)) <= np.mean(before)


@pytest.mark.parametrize("n", [9, 40])
def test_the_predictive_density_is_that_of_all_models(n):
    X, y, group_of = _undecided(n, 6, 1, seed=5)
    y = y + 3.0 * X[:, 0]
    posterior = _enumerated(X, y, group_of, 6)[2].rescaled(2.0, n)
    x = np.random.default_rng(0).standard_normal((1, 6)) * 3.0
    grid = np.linspace(-60, 60, 4001)
    exact = np.zeros(len(grid))
    total = 0.0
    for z in itertools.product([0.0, 1.0], repeat=6):
        lam = 0.2 * np.array(z)
        C = np.eye(n) + (X * lam) @ X.T
        a = np.linalg.solve(C, np.column_stack([y, (X * lam) @ x[0]]))
        fit = np.linalg.slogdet(C)[1] + y @ a[:, 0]
        weight = 0.3 ** sum(z) * 0.7 ** (6 - sum(z)) * np.exp(-0.5 * (fit - 2 * n))
        mean = 2.0 * ((X * lam) @ x[0]) @ a[:, 0]
        var = 4.0 * (lam @ x[0] ** 2 - ((X * lam) @ x[0]) @ a[:, 1] + 1.0)
        exact += weight * np.exp(-0.5 * (grid - mean) ** 2 / var) / np.sqrt(2 * np.pi * var)
        total += weight
    weight, mean, var = posterior.form.components(x)
    mean, var = mean[:, 0] + posterior.at(x)[0], var[:, 0] + posterior.noise_variance
    ours = np.exp(-0.5 * (grid[:, None] - mean) ** 2 / var) / np.sqrt(2 * np.pi * var) @ weight
    np.testing.assert_allclose(ours, exact / total, atol=1e-6)
    draws = posterior.sample(x, 20_000, np.random.default_rng(1))[0]
    below = np.cumsum(exact / total) * (grid[1] - grid[0])
    share = np.searchsorted(np.sort(draws), grid) / len(draws)
    assert np.max(np.abs(share - below)) < 0.02


def test_models_of_equal_columns_far_above_the_noise_are_weighed():
    W = np.full((20, 3), 2e4)
    weights = ModelWeights(W, np.ones(20), np.arange(3), np.full(3, 3e7), np.zeros(3))
    one, all_three = weights(np.array([[True, False, False], [True, True, True]]))
    assert -np.inf < all_three < one
