import numpy as np
import pytest
from sklearn.datasets import make_friedman1

from sparsebayes.designs import CentredDesign, DenseDesign, KernelDesign
from sparsebayes.kernels import StationaryKernel
from sparsebayes.solvers import AutoRVM, BasicRVM, FastRVM, run
from sparsebayes.solvers.rvm.fast import _moments, orthogonal_sqnorms
from sparsebayes.solvers.rvm.one_column import SMALLEST_LAM, at_limit, evidence_gain, optimal_lam
from tests.helpers import (
    best_single_change,
    dense_log_evidence,
    dense_posterior,
    many_digits,
    profiled_log_evidence,
    sparse_problem,
)

SOLVERS = {"em": BasicRVM, "fast": FastRVM}


@pytest.mark.parametrize("sigma2", [None, 0.3])
def test_one_column_gain_is_the_change_of_the_dense_evidence(sigma2):
    rng = np.random.default_rng(0)
    Phi, t = rng.standard_normal((30, 4)), rng.standard_normal(30)
    lam = np.array([0.5, 2.0, 1.0])
    P = np.linalg.inv(np.eye(30) + (Phi[:, :3] / lam) @ Phi[:, :3].T)
    h = Phi[:, 3]
    s, q, E = h @ P @ h, h @ P @ t, t @ P @ t

    def evidence(columns, values):
        if sigma2 is None:
            return profiled_log_evidence(columns, t, values)
        return dense_log_evidence(columns, t, values / sigma2, sigma2)

    without = evidence(Phi[:, :3], lam)
    for new in (1e-3, 0.1, 7.0):
        expected = evidence(Phi, np.append(lam, new)) - without
        assert evidence_gain(s / (new + s), s, q, E, 30.0, sigma2) == pytest.approx(
            expected, abs=1e-10
        )


@pytest.mark.parametrize("sigma2", [None, 0.3])
def test_one_column_optimum_is_the_best_on_a_grid(sigma2):
    rng = np.random.default_rng(1)
    s = rng.uniform(0.5, 5, 200)
    E = 20.0
    q = np.sqrt(s * E * rng.uniform(0, 0.3, 200))
    lam, value = optimal_lam(s, q, s, E, 25.0, sigma2)
    grid = np.logspace(-6, 6, 2001)[:, None]
    searched = np.maximum(evidence_gain(s / (grid + s), s, q, E, 25.0, sigma2).max(axis=0), 0.0)
    np.testing.assert_allclose(value, searched, atol=2e-4)
    assert np.all(np.isinf(lam) == (value == 0))
    assert 0 < np.isinf(lam).sum() < 200


def test_each_action_updates_what_a_new_factorisation_finds():
    X, t = make_friedman1(80, random_state=0)
    design = CentredDesign(KernelDesign(X, StationaryKernel("rbf", 1.0)))
    t = design.target(t)
    solver, actions = FastRVM(), set()
    state = solver.init(design, t)
    for _ in range(120):
        state, info = solver.step(state, design, t)
        actions.add(info.action)
        if state.now is None or state.stop_reason:
            continue
        part = design.base if state.fixed_intercept else design
        fresh, absent = _moments(state, part, t, False), np.ones(80, dtype=bool)
        absent[state.active] = False  # of active columns S and Q are not used
        for name in ("mu", "W", "E", "log_det"):
            expected = getattr(fresh, name)
            np.testing.assert_allclose(getattr(state.now, name), expected, rtol=1e-6, atol=1e-9)
        for name in ("S", "Q"):
            expected = getattr(fresh, name)[absent]
            np.testing.assert_allclose(getattr(state.now, name)[absent], expected, atol=1e-8)
    assert actions >= {"add", "re-estimate", "delete"}


def test_statistics_that_are_not_numbers_read_as_absent():
    s, q = np.array([1.0, np.nan, -1.0, 0.0, np.inf]), np.array([5.0, 1.0, 1.0, 1.0, 1.0])
    lam, value = optimal_lam(s, q, np.ones(5), 30.0, 10.0, None)
    assert np.isfinite(lam[0])
    assert np.all(np.isinf(lam[1:]))
    assert value[0] > 0
    assert np.all(value[1:] == 0)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("sigma2", [None, 0.05])
@pytest.mark.parametrize("conditioning", ["good", "bad"])
@pytest.mark.parametrize("seed", range(3))
def test_at_convergence_no_single_change_raises_the_dense_evidence(
    name, sigma2, conditioning, seed
):
    rng = np.random.default_rng(seed)
    Phi, t = sparse_problem(rng, conditioning=conditioning)
    t = t / t.std()
    solver = SOLVERS[name](sigma2)
    result = run(solver, DenseDesign(Phi), t, max_iter=5000)
    assert result.converged
    active, lam = result.state.active, result.state.lam
    assert best_single_change(Phi, t, active, lam, sigma2, absent=name == "fast") < 0.01


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("conditioning", ["good", "bad"])
def test_posterior_is_the_dense_one(name, conditioning):
    rng = np.random.default_rng(5)
    Phi, t = sparse_problem(rng, n=60, m=30, k=4, conditioning=conditioning)
    solver, design = SOLVERS[name](), DenseDesign(Phi)
    state = run(solver, design, t, max_iter=5000).state
    p = solver.solution(state, design, t).posterior
    alpha = state.lam / p.noise_variance
    A = Phi[:, state.active]
    mean, covariance = dense_posterior(A, t, alpha, p.noise_variance)
    np.testing.assert_allclose(p.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(
        p.covariance, covariance, rtol=1e-8, atol=1e-8 * np.abs(covariance).max()
    )
    expected = dense_log_evidence(A, t, alpha, p.noise_variance)
    assert p.log_evidence == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("name", SOLVERS)
def test_the_true_columns_are_found(name):
    rng = np.random.default_rng(6)
    Phi = rng.standard_normal((100, 40))
    t = Phi[:, [3, 17, 29]] @ np.array([1.0, -2.0, 0.5]) + 0.1 * rng.standard_normal(100)
    state = run(SOLVERS[name](), DenseDesign(Phi), t, max_iter=1000).state
    assert {3, 17, 29} <= set(state.active.tolist())
    assert len(state.active) <= 20


def test_basic_and_fast_agree_where_the_optimum_is_one():
    """Orthogonal columns: the evidence separates, so every ascent ends at the same place."""
    rng = np.random.default_rng(7)
    Phi = np.linalg.qr(rng.standard_normal((60, 20)))[0]
    t = Phi[:, :4] @ np.array([5.0, -4.0, 3.0, 2.0]) + 0.2 * rng.standard_normal(60)
    evidences = []
    for solver in (BasicRVM(tol=1e-8), FastRVM(tol=1e-8)):
        design = DenseDesign(Phi)
        state = run(solver, design, t, max_iter=5000).state
        evidences.append(solver.solution(state, design, t).posterior.log_evidence)
    assert evidences[0] == pytest.approx(evidences[1], abs=1e-4)


@pytest.mark.parametrize("name", SOLVERS)
def test_evidence_of_the_steps_rises(name):
    rng = np.random.default_rng(8)
    X = np.sort(rng.uniform(-8, 8, 80))[:, None]
    t = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.standard_normal(80)
    design = KernelDesign(X, StationaryKernel("rbf", 0.2))
    path = run(SOLVERS[name](), design, t, max_iter=2000).history["log_evidence"]
    assert np.min(np.diff(path)) > -1e-6
    assert path[-1] == pytest.approx(path.max(), abs=1e-9)


@pytest.mark.parametrize("name", SOLVERS)
def test_noise_far_too_small_is_never_called_converged_falsely(name):
    """A nearly singular kernel matrix and sigma2 a thousandth of the noise, as on Abalone."""
    rng = np.random.default_rng(9)
    X = rng.standard_normal((60, 3))
    t = X[:, 0] + 0.5 * rng.standard_normal(60)
    design = KernelDesign(X, StationaryKernel("rbf", 1e-3))
    solver = SOLVERS[name](1e-3)
    result = run(solver, design, t, max_iter=400)
    p = solver.solution(result.state, design, t).posterior
    _, truth = many_digits(design.columns(result.state.active), t, result.state.lam, 1e-3)
    assert p.log_evidence == pytest.approx(truth, rel=1e-7)
    assert result.history["log_evidence"][-1] == pytest.approx(truth, rel=1e-3)
    if result.converged:
        lam = result.state.lam
        assert best_single_change(design.dense(), t, result.state.active, lam, 1e-3, False) < 0.01


def test_orthogonal_statistics_match_the_dense_projection():
    rng = np.random.default_rng(10)
    Phi = rng.standard_normal((40, 8))
    lam = np.array([1e-6, 0.5, 2.0])
    design = CentredDesign(DenseDesign(Phi))
    D = design.dense()
    Q = np.linalg.qr(np.vstack([D[:, :3], np.diag(np.sqrt(lam))]))[0]
    P = np.linalg.inv(np.eye(40) + (D[:, :3] / lam) @ D[:, :3].T)
    np.testing.assert_allclose(
        orthogonal_sqnorms(design, Q), np.einsum("ij,ij->j", D, P @ D), rtol=1e-8
    )


@pytest.mark.parametrize("name", SOLVERS)
def test_a_run_can_be_resumed_from_its_state(name):
    rng = np.random.default_rng(11)
    Phi, t = sparse_problem(rng, n=60, m=30)
    design, solver = DenseDesign(Phi), SOLVERS[name]()
    whole = run(solver, design, t, max_iter=500)
    part = run(solver, design, t, max_iter=3)
    assert part.stop_reason == "max_iter"
    assert not part.converged
    rest = run(solver, design, t, max_iter=500, state=part.state)
    assert part.n_iter + rest.n_iter == whole.n_iter
    np.testing.assert_array_equal(rest.state.lam, whole.state.lam)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_stopped_run_leaves_a_valid_model(name):
    rng = np.random.default_rng(12)
    Phi, t = sparse_problem(rng, n=60, m=30)
    design, solver = DenseDesign(Phi), SOLVERS[name]()

    def interrupt(iteration, info, state):
        if iteration == 4:
            raise KeyboardInterrupt

    for callback, reason in ((interrupt, "interrupted"), (lambda i, *_: i >= 4, "callback")):
        result = run(solver, design, t, max_iter=500, callback=callback)
        assert result.stop_reason == reason
        assert not result.converged
        assert np.isfinite(solver.solution(result.state, design, t).posterior.log_evidence)
    timed = run(solver, design, t, max_iter=500, max_time=0.0)
    assert timed.stop_reason == "time_limit"
    assert timed.n_iter == 1


@pytest.mark.parametrize("name", SOLVERS)
def test_duplicates_and_zero_columns_are_harmless(name):
    rng = np.random.default_rng(13)
    Phi = rng.standard_normal((40, 6))
    Phi = np.column_stack([Phi, Phi[:, 0], np.zeros(40), Phi[:, 1] * 1e-5])
    t = Phi[:, 0] + 0.1 * rng.standard_normal(40)
    solver, design = SOLVERS[name](), DenseDesign(Phi)
    result = run(solver, design, t, max_iter=2000)
    assert result.converged
    assert 7 not in result.state.active
    assert np.isfinite(solver.solution(result.state, design, t).posterior.log_evidence)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_target_of_noise_leaves_few_columns(name):
    rng = np.random.default_rng(14)
    kept = [
        len(
            run(
                SOLVERS[name](), DenseDesign(rng.standard_normal((200, 10))), t, max_iter=2000
            ).state.active
        )
        for t in rng.standard_normal((5, 200))
    ]
    assert np.mean(kept) < 7


@pytest.mark.parametrize("sigma2", [None, 0.05])
def test_basic_starts_from_the_best_shared_lam_by_the_dense_evidence(sigma2):
    rng = np.random.default_rng(12)
    Phi = rng.standard_normal((40, 30)) * np.logspace(-2, 2, 30)
    t = (Phi / np.linalg.norm(Phi, axis=0)) @ rng.standard_normal(30) + 0.1 * rng.standard_normal(
        40
    )
    state = BasicRVM(sigma2).init(DenseDesign(Phi), t)
    shared = state.lam / np.sum(Phi**2, axis=0)
    np.testing.assert_allclose(shared, shared[0], rtol=1e-9)

    def evidence(lam):
        if sigma2 is None:
            return profiled_log_evidence(Phi, t, lam)
        return dense_log_evidence(Phi, t, lam / sigma2, sigma2)

    tried = [evidence(factor * state.lam) for factor in (1 / 3, 1 / 1.9, 1.0, 1.9, 3)]
    assert np.argmax(tried) == 2
    assert dense_log_evidence(Phi, t, state.lam / state.sigma2, state.sigma2) == pytest.approx(
        tried[2], abs=1e-6
    )


def test_basic_ends_less_than_five_nats_below_the_default_search_on_friedman():
    for seed in range(3):
        X, y = make_friedman1(240, noise=1.0, random_state=seed)
        X, t = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
        design = KernelDesign(X, StationaryKernel("rbf", 0.03))
        basic, auto = (
            solver.solution(
                run(solver, design, t, max_iter=1000).state, design, t
            ).posterior.log_evidence
            for solver in (BasicRVM(), AutoRVM())
        )
        assert auto - 5.0 < basic <= auto


@pytest.mark.parametrize(("wanted", "expected"), [(0.999, False), (1e-3, True)])
def test_the_smallest_lam_is_a_reason_to_stop_only_where_it_costs_evidence(wanted, expected):
    sigma2, norm = 0.1, 4.0
    lam = np.array([SMALLEST_LAM * norm])
    s = np.array([1e-9])
    x = s / (s + wanted * lam)  # the best one
    q = np.sqrt(s * sigma2 / (1.0 - x))
    E = np.array([1.0])
    lost = evidence_gain(x, s, q, E, 50, sigma2) - evidence_gain(s / (s + lam), s, q, E, 50, sigma2)
    assert (lost[0] > 1e-3) == expected
    for held in (True, False):
        here = lam if held else 2.0 * lam
        W = 1.0 / (s + here)
        present = W, q * W, here, np.array([norm]), E - q * q * W, 50, sigma2
        assert at_limit(*present, 1e-3) == (held and expected)


def test_basic_stops_where_rounding_errors_hide_the_gain_of_a_step():
    x = np.random.default_rng(0).standard_normal(60)
    design = DenseDesign(np.exp(-2.0 * np.subtract.outer(x, x) ** 2))
    result = run(BasicRVM(), design, x, max_iter=400)
    assert result.stop_reason == "stalled"
    assert np.sum(np.diff(result.history["log_evidence"]) == 0.0) < 30
