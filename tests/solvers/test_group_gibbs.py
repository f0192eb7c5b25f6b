import numpy as np
import pytest

from sparsebayes.designs import DenseDesign
from sparsebayes.solvers import run
from sparsebayes.solvers.group.gibbs import (
    GroupGibbs,
    draws_posterior,
    effective_sample_size,
    inclusion_series,
    split_r_hat,
)
from tests.group_helpers import enumerate_models, random_problem


def _chain(X, y, *model, n_samples=600, n_warmup=50, **settings):
    solver = GroupGibbs(*model, n_samples=n_samples, n_warmup=n_warmup, **settings)
    return run(solver, DenseDesign(X), y, max_iter=10**6)


@pytest.mark.parametrize("seed", [1, 3, 4])  # tall, square and wide
def test_agrees_with_enumeration_within_its_standard_error(seed):
    X, y, *model = random_problem(np.random.default_rng(seed), most_groups=6)
    inclusion, mean, variance, _ = enumerate_models(X, y, *model)
    inclusion = np.clip(inclusion, 0, 1)
    states = [_chain(X, y, *model, seed=s).state for s in range(2)]
    series = inclusion_series(states)
    n = series.shape[0] * series.shape[1]
    spread = np.sqrt(inclusion * (1 - inclusion) / effective_sample_size(series))
    found = sum(s.inclusion_sum for s in states) / n
    assert np.all(np.abs(found - inclusion) < 4 * spread + 1e-3)
    assert np.all(split_r_hat(series) < 1.1)
    posterior = draws_posterior(states, model[-1], 0.0)
    error = np.sqrt(variance / effective_sample_size(series)[model[0]])
    assert np.all(np.abs(posterior.mean - mean) < 5 * error + 1e-3)
    assert np.asarray(posterior.form.draws.mean(axis=0)) == pytest.approx(mean, abs=0.2)


def test_the_chain_does_not_depend_on_when_it_is_refreshed():
    X, y, *model = random_problem(np.random.default_rng(4))
    often = _chain(X, y, *model, n_samples=200, refresh=1)
    seldom = _chain(X, y, *model, n_samples=200, refresh=10**6)
    assert often.history["n_changes"].sum() > 100
    np.testing.assert_array_equal(often.history["n_groups"], seldom.history["n_groups"])
    np.testing.assert_allclose(often.state.inclusion_sum, seldom.state.inclusion_sum, rtol=1e-8)


def test_jumping_between_changes_is_the_same_as_visiting_one_group_at_a_time():
    X, y, group_of, p0, v0, sigma2 = random_problem(np.random.default_rng(4), most_groups=5)
    solver = GroupGibbs(group_of, p0, v0, sigma2, n_samples=20, n_warmup=0, seed=3)
    state = solver.init(DenseDesign(X), y)
    slow = np.random.default_rng(3)
    slow.random(len(state.z))  # the start took these
    z = state.z.copy()
    for _ in range(20):
        order, u = slow.permutation(len(z)), slow.random(len(z))
        for i, g in enumerate(order):
            score = []
            for value in (False, True):
                z[g] = value
                lam = v0 * z[group_of]
                C = sigma2 * np.eye(len(y)) + (X * lam) @ X.T
                fit = np.linalg.slogdet(C)[1] + y @ np.linalg.solve(C, y)
                score.append(np.log(p0 if value else 1 - p0) - 0.5 * fit)
            z[g] = u[i] < 1 / (1 + np.exp(score[0] - score[1]))
        solver.step(state, DenseDesign(X), y)
        np.testing.assert_array_equal(state.z, z)
        slow.standard_normal(int(z[group_of].sum()))  # the draw of the weights


def test_log_joint_differences_are_those_of_the_dense_formula():
    X, y, group_of, p0, v0, sigma2 = random_problem(np.random.default_rng(2), most_groups=4)
    G = group_of.max() + 1

    def ours(z):
        solver = GroupGibbs(group_of, p0, v0, sigma2, start=z)
        return solver._log_joint(solver.init(DenseDesign(X), y))

    def dense(z):
        C = sigma2 * np.eye(len(y)) + (X * (v0 * z[group_of])) @ X.T
        prior = np.sum(np.log(np.where(z, p0, 1 - p0)))
        return prior - 0.5 * (np.linalg.slogdet(C)[1] + y @ np.linalg.solve(C, y))

    a, b = np.arange(G) % 2 == 0, np.ones(G, dtype=bool)
    assert ours(a) - ours(b) == pytest.approx(dense(a) - dense(b), rel=1e-9)


@pytest.mark.parametrize("sigma2", [1e-6, 1e-12, 1e-25])
def test_low_noise_leaves_odds_that_do_not_depend_on_the_side_they_are_seen_from(sigma2):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3, 8))
    y = X[:, :3] @ [1.0, -2.0, 1.0]
    model = (np.arange(8) // 2, 0.3, 1.0, sigma2)
    state = _chain(X, y, *model, n_samples=100).state
    assert np.all((state.inclusion_sum >= 0.0) & (state.inclusion_sum <= 100.0))
    for g in range(4):
        z = state.z.copy()
        z[g] = ~z[g]
        other = GroupGibbs(*model, start=z).init(DenseDesign(X), y)
        if sigma2 >= 1e-12:  # a block of two columns has half of the digits
            assert other.odds[g] == pytest.approx(state.odds[g], rel=1e-6, abs=0.01)


def test_stuck_chains_are_reported():
    frozen = np.stack([np.zeros((100, 1)), np.ones((100, 1))])
    assert np.isinf(split_r_hat(frozen)[0])
    assert split_r_hat(np.ones((2, 100, 1)))[0] == 1.0


def test_effective_sample_size_of_an_autoregression():
    rng = np.random.default_rng(0)
    x = np.zeros((4, 4000))
    noise = rng.standard_normal(x.shape)
    for i in range(1, x.shape[1]):
        x[:, i] = 0.8 * x[:, i - 1] + noise[:, i]
    want = x.size * (1 - 0.8) / (1 + 0.8)
    assert effective_sample_size(x[:, :, None])[0] == pytest.approx(want, rel=0.2)
