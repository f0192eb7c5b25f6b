import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import multivariate_normal

from sparsebayes.designs import CentredDesign, DenseDesign
from sparsebayes.solvers import run
from sparsebayes.solvers.group import shrinkage as group_shrinkage
from sparsebayes.solvers.group.ard import GroupARD
from sparsebayes.solvers.group.ard_maximum import best_factors, derivatives
from sparsebayes.solvers.group.shrinkage import GroupShrinkage, _draw_weights
from sparsebayes.solvers.noise import noise_floor
from sparsebayes.solvers.set_prior import SetPrior
from tests.group_helpers import relative_error, signal
from tests.helpers import dense_log_evidence, dense_posterior


def test_ard_evidence_is_the_dense_one_and_never_falls_at_given_noise():
    X, y, group_of, _, _ = signal(0)
    solver = GroupARD(group_of, 0.1, 1.0, learn_noise=False)
    result = run(solver, DenseDesign(X), y, max_iter=300)
    assert result.converged
    assert np.all(np.diff(result.history["log_evidence"]) > -1e-8)
    state = result.state
    alpha = 1.0 / state.lam[group_of]
    assert state.log_evidence == pytest.approx(dense_log_evidence(X, y, alpha, 1.0), abs=1e-6)
    mean, covariance = dense_posterior(X, y, alpha, 1.0)
    np.testing.assert_allclose(state.mean, mean, atol=1e-6)
    posterior = solver.posterior(state, DenseDesign(X), y)
    np.testing.assert_allclose(posterior.covariance, covariance, atol=1e-6)


def test_ard_variances_maximise_the_evidence():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 12))
    y = X[:, :3] @ [1.0, 2.0, -1.0] + rng.standard_normal(40)
    group_of = np.arange(12) // 3
    state = run(GroupARD(group_of, 1.0, 1.0, tol=1e-9), DenseDesign(X), y, max_iter=3000).state
    for factor in (0.9, 1.1):
        moved = state.lam * np.where(np.arange(4) == 0, factor, 1.0)
        assert dense_log_evidence(X, y, 1 / moved[group_of], state.sigma2) < state.log_evidence
        noisier = dense_log_evidence(X, y, 1 / state.lam[group_of], factor * state.sigma2)
        assert noisier < state.log_evidence


@pytest.mark.parametrize("shape", [(8, 14), (30, 6)])
def test_ard_derivatives_are_those_of_the_dense_evidence(shape):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal(shape), rng.standard_normal(shape[0])
    group_of = np.arange(shape[1]) % 3 + np.arange(shape[1]) // 5  # groups of different sizes
    m = group_of.max() + 1
    solver = GroupARD(group_of, 0.3, 0.5)
    state = solver.init(DenseDesign(X), y)
    groups = np.arange(1, m)
    gradient, H = derivatives(
        state.form, state.marginals, state.lam, state.sigma2, groups, float(len(y))
    )

    def evidence(u):
        lam = state.lam * np.exp(np.append(0.0, u[:-1]))
        return dense_log_evidence(X, y, 1 / lam[group_of], state.sigma2 * np.exp(u[-1]))

    h, eye = 1e-3, np.eye(m)
    slope = [(evidence(h * e) - evidence(-h * e)) / (2 * h) for e in eye]
    np.testing.assert_allclose(gradient, slope, atol=1e-5)
    for a in range(m):
        for b in range(m):
            ends = [(1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1)]
            second = sum(sign * evidence(h * (i * eye[a] + j * eye[b])) for i, j, sign in ends)
            assert H[a, b] == pytest.approx(second / (4 * h * h), abs=1e-4)


@pytest.mark.parametrize("noise_follows", [False, True])
def test_ard_best_factor_of_a_group_is_the_maximum_of_the_dense_evidence(noise_follows):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((15, 9))
    y = X[:, 0] + 0.5 * rng.standard_normal(15)
    group_of = np.array([0, 0, 1, 1, 1, 2, 2, 3, 4])
    state = GroupARD(group_of, 0.1, 0.3).init(DenseDesign(X), y)
    n = len(y) if noise_follows else None
    factor, highest, present = best_factors(state.marginals, state.blocks, n)

    def evidence(g, v):
        lam = (state.lam * np.where(np.arange(5) == g, v, 1.0))[group_of]
        common = 1.0
        if noise_follows:
            common = y @ np.linalg.solve((X * lam) @ X.T + 0.3 * np.eye(15), y) / 15
        return dense_log_evidence(X, y, 1 / (common * lam), common * 0.3)

    for g in range(5):
        tried = np.append(np.logspace(-8, 6, 500), 1.0)
        values = [evidence(g, v) for v in tried]
        absent = evidence(g, 1e-12)
        assert present[g] == pytest.approx(values[-1] - absent, abs=1e-6)
        assert highest[g] == pytest.approx(max(values) - absent, abs=0.02)
        best = tried[np.argmax(values)]
        assert factor[g] == (0.0 if best < 1e-7 else pytest.approx(best, rel=0.6))
    assert 0.0 in factor
    assert np.any(factor > 1.0)


@pytest.mark.parametrize("seed", range(4))
def test_ard_with_a_prior_on_the_number_of_groups_ends_where_no_group_should_enter_or_leave(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((20, 30))
    y = X[:, :2] @ [2.0, -1.0] + X[:, 9] + 0.5 * rng.standard_normal(20)
    group_of = np.arange(30) // 2
    solver = GroupARD(group_of, 1.0, 1.0, smallest_noise=1e-6, tol=1e-6, inclusion="learn")
    result = run(solver, DenseDesign(X), y, max_iter=200)
    assert result.converged
    state = solver.without_gone(result.state, DenseDesign(X))
    is_in, prior = state.lam > 0.0, SetPrior("learn", 15)
    assert np.sum(is_in) < 8

    def objective(lam, sigma2):
        C = (X * lam[group_of]) @ X.T + sigma2 * np.eye(20)
        return multivariate_normal(np.zeros(20), C).logpdf(y) + prior.log(int(np.sum(lam > 0.0)))

    here = objective(state.lam, state.sigma2)
    assert here == pytest.approx(state.log_evidence + prior.log(int(np.sum(is_in))), abs=1e-6)
    common = np.array([0.9, 1.0, 1.1])  # of all variances, the noise included
    for g in range(15):
        values = np.append(np.logspace(-4, 4, 60), 0.0) if not is_in[g] else [0.0, 0.9, 1.1]
        for value in values:
            lam = state.lam.copy()
            lam[g] = value * state.lam[g] if is_in[g] else value
            best = max(objective(c * lam, c * state.sigma2) for c in common)
            assert best < here + 1e-6


@pytest.mark.parametrize("seed", [0, 3, 5])
@pytest.mark.parametrize("inclusion", [None, "learn"])
def test_ard_finds_a_group_whose_columns_depend_on_each_other(inclusion, seed):
    # One column for each of three levels, beside a constant that is removed.
    rng = np.random.default_rng(seed)
    level = np.arange(40) % 3
    X = np.column_stack([level[:, None] == np.arange(3), rng.standard_normal((40, 20))])
    y = np.array([-1.0, 0.0, 1.0])[level] + 0.3 * rng.standard_normal(40)
    group_of = np.append([0, 0, 0], 1 + np.arange(20) // 2)
    solver = GroupARD(group_of, 1.0, 1.0, smallest_noise=1e-6, inclusion=inclusion)
    design = CentredDesign(DenseDesign(X))
    result = run(solver, design, y - np.mean(y), max_iter=200)
    assert result.converged
    lam = solver.without_gone(result.state, design).lam
    assert lam[0] > 0.1
    if inclusion == "learn":
        np.testing.assert_array_equal(lam[1:], 0.0)


def test_ard_whose_columns_are_zero_has_no_groups():
    y = np.random.default_rng(0).standard_normal(10)
    solver = GroupARD(np.arange(3), 1.0, 1.0, smallest_noise=1e-6, inclusion="learn")
    result = run(solver, DenseDesign(np.zeros((10, 3))), y, max_iter=20)
    assert result.converged
    assert result.state.sigma2 == pytest.approx(np.mean(y**2))
    np.testing.assert_array_equal(result.state.mean, 0.0)


@pytest.mark.parametrize("seed", [1, 4, 16])
def test_ard_goes_on_where_a_column_can_take_the_place_of_another(seed):
    # Steps of the first order gain less than tol each there, and two nats in all.
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((13, 40))
    y = X[:, 0] + 0.3 * rng.standard_normal(13)
    early, late = (
        run(
            GroupARD(np.arange(40), 1.0, 1.0, smallest_noise=1e-4, tol=tol),
            DenseDesign(X),
            y,
            max_iter=3000,
        )
        for tol in (1e-3, 1e-9)
    )
    assert early.converged
    assert early.state.log_evidence == pytest.approx(late.state.log_evidence, abs=1e-3)


def test_ard_whose_evidence_is_known_to_nats_only_has_not_converged():
    # Columns that differ in the last digits only, and a target that needs these differences.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3, 1)) + 1e-12 * rng.standard_normal((3, 40))
    y = 1e6 * rng.standard_normal(3)
    solver = GroupARD(np.arange(40), 1e12, 0.1, learn_noise=False)
    result = run(solver, DenseDesign(X), y, max_iter=500)
    assert result.state.marginals.rounding > 1.0
    assert result.stop_reason == "stalled"


def test_ard_with_an_intercept_is_shift_invariant():
    X, y, group_of, _, _ = signal(1)
    states = []
    for shift in (0.0, 10.0):
        design = CentredDesign(DenseDesign(X + shift))
        t = design.target(y + shift)
        solver = GroupARD(group_of, 0.1, 1.0, smallest_noise=1e-6)
        states.append(run(solver, design, t, max_iter=50).state)
    np.testing.assert_allclose(states[0].mean, states[1].mean, atol=1e-6)


@pytest.mark.parametrize("n", [6, 30])
def test_draws_of_the_weights_have_their_conditional_moments(n):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, 9)), rng.standard_normal(n)
    solver = GroupShrinkage(np.arange(9) // 3, "horseshoe", 0.5)
    state = solver.init(DenseDesign(X), y)
    state.scale = np.array([0.1, 1.0, 5.0])
    alpha = 1.0 / (0.5 * state.scale[np.arange(9) // 3])
    mean, covariance = dense_posterior(X, y, alpha, 0.5)
    draws = []
    for _ in range(4000):
        np.testing.assert_allclose(_draw_weights(state), mean, atol=1e-8)
        draws.append(state.w)
    np.testing.assert_allclose(np.mean(draws, axis=0), mean, atol=0.05)
    np.testing.assert_allclose(np.cov(np.transpose(draws)), covariance, atol=0.15)


def _one_weight_density(prior, x, y, sigma2, grid):
    """Posterior density of a single weight by quadrature over its scale."""
    like = np.exp(-0.5 * (x @ x * grid**2 - 2 * (x @ y) * grid) / sigma2)
    return like * prior(grid) / trapezoid(like * prior(grid), grid)


def test_horseshoe_posterior_of_one_weight_matches_quadrature():
    rng = np.random.default_rng(1)
    x, sigma2 = rng.standard_normal(20), 1.0
    y = 0.4 * x + rng.standard_normal(20)
    log_s = np.linspace(-18, 18, 1500)
    # s = lambda^2 tau^2 with both half-Cauchy: u = log s has density ~ u / sinh(u/2).
    density = np.where(log_s == 0, 2.0, log_s / np.sinh(log_s / 2))
    density /= trapezoid(density, log_s)

    def prior(w):
        variance = sigma2 * np.exp(log_s)[:, None]
        normal = np.exp(-0.5 * w**2 / variance) / np.sqrt(2 * np.pi * variance)
        return trapezoid(density[:, None] * normal, log_s, axis=0)

    grid = np.linspace(-1.5, 2, 4001)
    exact = trapezoid(grid * _one_weight_density(prior, x, y, sigma2, grid), grid)
    solver = GroupShrinkage(np.array([0]), "horseshoe", sigma2, n_samples=8000, n_warmup=500)
    state = run(solver, DenseDesign(x[:, None]), y, max_iter=10**6).state
    assert state.mean_sum[0] / 8000 == pytest.approx(exact, abs=0.02)


def test_horseshoe_beats_the_lasso_on_sparse_signals():
    X, y, group_of, w, _ = signal(0)
    error = {}
    for prior in ("horseshoe", "lasso"):
        solver = GroupShrinkage(group_of, prior, 1.0, n_samples=200, n_warmup=200)
        state = run(solver, DenseDesign(X), y, max_iter=400).state
        error[prior] = relative_error(state.mean_sum / 200, w)
    assert error["horseshoe"] < 0.5 < 0.8 < error["lasso"]


@pytest.mark.parametrize("prior", ["horseshoe", "lasso"])
def test_noise_is_sampled_near_its_true_value(prior):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 6))
    y = X @ np.array([1.0, -1.0, 0.5, 0, 0, 0]) + 0.7 * rng.standard_normal(200)
    solver = GroupShrinkage(np.arange(6) // 3, prior, None, n_samples=500, n_warmup=100)
    state = run(solver, DenseDesign(X), y, max_iter=600).state
    assert np.mean(state.noise) == pytest.approx(0.49, rel=0.25)


@pytest.mark.parametrize("n", [4, 20])
def test_draws_by_orthogonal_factors_have_the_dense_moments(n):
    rng = np.random.default_rng(0)
    B, t = rng.standard_normal((n, 9)), rng.standard_normal(n)
    mean, covariance = dense_posterior(B, t, np.ones(9), 1.0)
    n_u, n_e = (9, 4) if n < 9 else (0, 9)
    found, centre = group_shrinkage._by_orthogonal_factors(B, t, np.zeros(n_u), np.zeros(n_e))
    np.testing.assert_allclose(found, mean, atol=1e-12)
    np.testing.assert_allclose(centre, mean, atol=1e-12)
    # A draw is linear in its random numbers.
    unit = np.eye(n_u + n_e)
    map_ = [group_shrinkage._by_orthogonal_factors(B, t, z[:n_u], z[n_u:])[1] - mean for z in unit]
    np.testing.assert_allclose(np.transpose(map_) @ map_, covariance, atol=1e-12)


@pytest.mark.parametrize("prior", ["horseshoe", "lasso"])
def test_noise_that_is_not_there_has_a_smallest_value(prior):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((4, 6)), 5, axis=0)
    solver = GroupShrinkage(np.arange(6), prior, None, n_samples=300, n_warmup=0)
    state = run(solver, DenseDesign(X), X[:, 0], max_iter=300).state
    assert np.all(np.isfinite(state.draws))
    assert min(state.noise) == pytest.approx(noise_floor(X[:, 0], 20))


def test_variances_at_hardly_any_noise_are_those_of_an_orthogonal_factorisation():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8, 20))
    y, sigma2 = X[:, 0] - X[:, 1], 1e-13
    design, solver = DenseDesign(X), GroupARD(np.arange(20), 1.0, 1e-13, learn_noise=False)
    state = solver.init(design, y)
    posterior = solver.posterior(state, design, y)
    rows = np.vstack([X / np.sqrt(sigma2), np.diag(1.0 / np.sqrt(state.lam))])
    half = np.linalg.inv(np.linalg.qr(rows, mode="r"))
    variance = np.sum((X @ half) ** 2, axis=1)
    np.testing.assert_allclose(posterior.predict(X)[1], variance + sigma2, rtol=1e-6)
    covariance = posterior.predict_covariance(X, noise=False)
    np.testing.assert_allclose(np.diag(covariance), variance, rtol=1e-6)


def test_ard_waits_for_small_columns_that_rise_from_nothing():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 2)) * [1e3, 1e-3]
    y = X[:, 0] / 1e3 + X[:, 1] * 1e3 + 0.2 * rng.standard_normal(30)
    design = DenseDesign(X)
    early, late = (
        run(GroupARD(np.arange(2), 1e-6, 0.2, tol=tol), design, y, max_iter=2000)
        for tol in (1e-3, 1e-6)
    )
    assert early.converged
    assert early.state.log_evidence == pytest.approx(late.state.log_evidence, abs=0.01)
