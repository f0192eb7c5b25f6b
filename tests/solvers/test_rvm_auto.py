"""The default RVM: its parts against dense formulas, its end against the optimality conditions."""

import numpy as np
import pytest
from sklearn.datasets import make_friedman1

import sparsebayes.solvers.rvm.polish as polishing
from sparsebayes.designs import CentredDesign, DenseDesign, KernelDesign, WeightedDesign
from sparsebayes.designs.lowrank import low_rank
from sparsebayes.kernels import PairwiseKernel, StationaryKernel
from sparsebayes.solvers import AutoRVM, FastRVM, run
from sparsebayes.solvers.rvm.dense_start import _statistics, dense_starts, rotate
from sparsebayes.solvers.rvm.one_column import (
    evidence_gain,
    optimal_lam,
    shared_evidence_gain,
    shared_optimal_lam,
)
from sparsebayes.solvers.rvm.polish import (
    Budget,
    absent_gains,
    add,
    column_set,
    derivatives,
    model_at,
    newton,
    polish,
    present_gains,
    sweep,
)
from tests.helpers import dense_log_evidence, profiled_log_evidence


def columns_problem(n=40, m=15, outputs=None, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    Phi = rng.standard_normal((n, m)) * rng.uniform(0.5, 2.0, m)
    w = np.where(
        rng.uniform(size=(m, outputs or 1)) < 0.4, rng.standard_normal((m, outputs or 1)), 0
    )
    t = Phi @ w + noise * rng.standard_normal((n, outputs or 1))
    return Phi, t if outputs else t[:, 0]


def friedman(n=150, seed=0):
    X, y = make_friedman1(n, noise=1.0, random_state=seed)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return KernelDesign(X, StationaryKernel("rbf", 0.03)), (y - y.mean()) / y.std()


def sinc(n=100, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-10, 10, n))
    return KernelDesign(x[:, None], StationaryKernel("rbf", 0.25)), np.sinc(
        x / np.pi
    ) + noise * rng.standard_normal(n)


def total_evidence(Phi, t, lam, sigma2=None):
    """Sum over outputs of the dense evidence, with the noise given or at its best value."""
    parts = t.reshape(len(t), -1).T
    if sigma2 is None:
        return sum(profiled_log_evidence(Phi, part, lam) for part in parts)
    noises = np.broadcast_to(sigma2, len(parts))
    return sum(
        dense_log_evidence(Phi, part, lam / s, s) for part, s in zip(parts, noises, strict=True)
    )


def largest_gains(Phi, t, active, lam, sigma2=None):
    """What the best single addition, and the best re-estimate or deletion, would gain: n x n."""
    n = len(t)
    T = t.reshape(n, -1)

    def statistics(j, others):
        P = np.linalg.inv(
            np.eye(n) + (Phi[:, active[others]] / lam[others]) @ Phi[:, active[others]].T
        )
        h = Phi[:, j]
        return h @ P @ h, T.T @ P @ h, np.einsum("io,ij,jo->o", T, P, T), h @ h

    absent, present = 0.0, 0.0
    everything = np.ones(len(active), dtype=bool)
    for j in range(Phi.shape[1]):
        others = everything & (active != j)
        s, q, E, norm = statistics(j, others)
        if s <= 1e-10 * norm:
            continue
        _, value = shared_optimal_lam(np.array([s]), q[None], norm, E, n, sigma2)
        if np.all(others):
            absent = max(absent, value[0])
        else:
            x = s / (s + lam[active == j])
            now = shared_evidence_gain(x, np.array([s]), q[None], E, n, sigma2)
            present = max(present, value[0] - now[0])
    return absent, present


# One column, several outputs.


def one_column_problem(m=200, outputs=3, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.lognormal(0.0, 2.0, m)
    E = rng.uniform(5.0, 50.0, outputs)
    q = np.sqrt(s[:, None] * E) * rng.uniform(-1.0, 1.0, (m, outputs)) ** 5
    return s, q, E


@pytest.mark.parametrize("sigma2", [None, 0.4])
def test_shared_optimum_of_one_output_is_the_closed_form(sigma2):
    s, q, E = one_column_problem(outputs=1)
    lam, value = shared_optimal_lam(s, q, 1.0, E, 60, sigma2)
    wanted_lam, wanted = optimal_lam(s, q[:, 0], 1.0, E[0], 60, sigma2)
    np.testing.assert_array_equal(np.isinf(lam), np.isinf(wanted_lam))
    some = np.isfinite(lam)
    np.testing.assert_allclose(lam[some], wanted_lam[some], rtol=1e-8)
    np.testing.assert_allclose(value, wanted, atol=1e-10)
    x = s / (s + 2.0)
    np.testing.assert_allclose(
        shared_evidence_gain(x, s, q, E, 60, sigma2),
        evidence_gain(x, s, q[:, 0], E[0], 60, sigma2),
        rtol=1e-12,
    )


@pytest.mark.parametrize("sigma2", [None, np.array([0.2, 0.5, 1.0])])
def test_shared_optimum_is_the_maximum(sigma2):
    s, q, E = one_column_problem()
    _, value = shared_optimal_lam(s, q, 1e-30, E, 60, sigma2)
    x = np.linspace(0.0, 1.0, 4001)[1:-1]
    tried = np.array(
        [
            shared_evidence_gain(
                x, np.full(len(x), s[j]), q[j] * np.ones((len(x), 1)), E, 60, sigma2
            ).max()
            for j in range(len(s))
        ]
    )
    tried = np.maximum(tried, 0.0)
    assert np.all(value >= tried - 1e-12)
    np.testing.assert_allclose(value, tried, atol=2e-3, rtol=1e-3)  # the grid is that coarse
    assert np.count_nonzero(value) > 20


# The dense start.


@pytest.mark.parametrize("outputs", [None, 3])
@pytest.mark.parametrize("sigma2", [None, 0.2])
def test_shared_lam_is_best_on_the_dense_evidence(outputs, sigma2):
    Phi, t = columns_problem(outputs=outputs)
    U, R = np.linalg.qr(Phi)
    tt = np.einsum("i...,i...->...", t, t)
    found = rotate(R, U.T @ t, tt, len(t), sigma2, 1e-10)
    grid = found.lam * np.array([0.5, 1.0, 2.0])
    evidence = [total_evidence(Phi, t, np.full(Phi.shape[1], lam), sigma2) for lam in grid]
    assert np.argmax(evidence) == 1


def test_statistics_in_few_dimensions_are_those_of_the_posterior():
    Phi, t = columns_problem()
    lam = np.random.default_rng(1).uniform(0.1, 10.0, Phi.shape[1])
    U, R = np.linalg.qr(Phi)
    S, Q, E = _statistics(np.ascontiguousarray(R), (U.T @ t)[:, None], lam)
    W = np.linalg.inv(Phi.T @ Phi + np.diag(lam))
    mu = W @ Phi.T @ t
    np.testing.assert_allclose(S / lam, 1.0 - lam * np.diag(W), rtol=1e-9)  # how well determined
    np.testing.assert_allclose(Q[:, 0] / lam, mu, rtol=1e-9)
    outside = t @ t - np.sum((U.T @ t) ** 2)
    np.testing.assert_allclose(E[0] + outside, t @ (t - Phi @ mu), rtol=1e-9)


@pytest.mark.parametrize("outputs", [None, 3])
def test_dense_start_is_mackay_iteration(outputs):
    Phi, t = columns_problem(n=60, m=20, outputs=outputs)
    U, R = np.linalg.qr(Phi)
    tt = np.einsum("i...,i...->...", t, t)
    problem = rotate(R, U.T @ t, tt, len(t), None, 1e-10)
    ((kept, lam),), lengths = dense_starts(problem, [1.0], most=100)
    T = t.reshape(len(t), -1)
    slow = np.full(Phi.shape[1], problem.lam)
    left = np.arange(Phi.shape[1])
    for _ in range(8):
        H = Phi[:, left]
        W = np.linalg.inv(H.T @ H + np.diag(slow))
        mu = W @ H.T @ T
        E = np.sum((T - H @ mu) ** 2, axis=0) + slow @ mu**2
        determined = 1.0 - slow * np.diag(W)
        new = determined * T.shape[1] / np.sum(mu**2 / (E / len(t)), axis=1)
        keep = determined > 1e-3
        left, slow = left[keep], new[keep]
    np.testing.assert_array_equal(kept, left)
    np.testing.assert_allclose(lam, slow, rtol=1e-3)  # float32
    np.testing.assert_allclose(lengths, np.sum(Phi**2, axis=0))


def test_dense_starts_are_the_same_from_any_two_factors_of_the_columns():
    Phi, t = columns_problem(n=60, m=20)
    U, R = np.linalg.qr(Phi)
    c = np.triu(np.random.default_rng(2).uniform(0.5, 2.0, R.shape))
    F = np.linalg.solve(c, R)
    whole = rotate(R, U.T @ t, t @ t, 60, None, 1e-10)
    split = rotate(F, U.T @ t, t @ t, 60, None, 1e-10, c)
    known = rotate(F, U.T @ t, t @ t, 60, None, 1e-10, c, F @ F.T)
    starts, lengths = dense_starts(whole, [1.0, 0.1], most=100)
    for problem in (split, known):
        same, others = dense_starts(problem, [1.0, 0.1], most=100)
        np.testing.assert_allclose(others, lengths)
        for (kept, lam), (kept_whole, lam_whole) in zip(same, starts, strict=True):
            np.testing.assert_array_equal(kept, kept_whole)
            np.testing.assert_allclose(lam, lam_whole, rtol=1e-3)  # float32


def test_dense_start_goes_on_in_float64_where_float32_fails(monkeypatch):
    Phi, t = columns_problem(n=60, m=20)
    U, R = np.linalg.qr(Phi)
    problem = rotate(R, U.T @ t, t @ t, 60, None, 1e-20)
    few = problem.columns(len(R), np.arange(5)).astype(np.float32)
    assert _statistics(few, problem.z, np.full(5, 1e-9)) is None
    assert _statistics(few.astype(np.float64), problem.z, np.full(5, 1e-9)) is not None
    assert _statistics(few, problem.z, np.full(5, 1e-90)) is None  # without a warning of NumPy

    ((kept, lam),), _ = dense_starts(problem, [0.1], most=100)
    monkeypatch.setattr(
        "sparsebayes.solvers.rvm.dense_start._statistics",
        lambda R, z, lam: None if R.dtype == np.float32 else _statistics(R, z, lam),
    )
    ((same, slower),), _ = dense_starts(problem, [0.1], most=100)
    np.testing.assert_array_equal(same, kept)
    np.testing.assert_allclose(slower, lam, rtol=1e-3)


def test_starts_of_many_candidates_do_not_depend_on_the_precision(monkeypatch):
    X = np.random.default_rng(0).uniform(-2.0, 2.0, (1600, 4))
    t = np.sin(2.0 * X[:, 0]) + 0.3 * np.random.default_rng(1).standard_normal(1600)
    found = low_rank(KernelDesign(X, StationaryKernel("rbf", 0.5)), 200, np.random.default_rng(0))
    z, c = found.coordinates(t), found.triangle
    problem = rotate(found.factor, z, t @ t, 1600, None, 1e-10, c)
    single, _ = dense_starts(problem, [1.0, 0.1], 150)
    monkeypatch.setattr(
        "sparsebayes.solvers.rvm.dense_start._statistics",
        lambda R, z, lam: _statistics(R.astype(np.float64), z, lam),
    )
    double, _ = dense_starts(problem, [1.0, 0.1], 150)
    for (kept, lam), (same, exact) in zip(single, double, strict=True):
        np.testing.assert_array_equal(kept, same)
        np.testing.assert_array_equal(lam, exact)


# The moves on a set.


def started(outputs=None, sigma2=None, seed=0, m=15):
    Phi, t = columns_problem(outputs=outputs, seed=seed, m=m)
    design = DenseDesign(Phi)
    columns = column_set(
        design, t, np.arange(m), sigma2, 0.0 if outputs is None else np.zeros(outputs)
    )
    rng = np.random.default_rng(seed)
    A = np.sort(rng.choice(m, m // 2, replace=False))
    return Phi, t, design, columns, model_at(columns, A, rng.lognormal(0.0, 1.0, len(A)))


CASES = [(None, None), (None, 0.1), (3, None), (3, np.array([0.05, 0.1, 0.2]))]


@pytest.mark.parametrize(("outputs", "sigma2"), CASES)
def test_the_objective_is_the_dense_evidence(outputs, sigma2):
    Phi, t, _, columns, model = started(outputs, sigma2)
    other = model_at(columns, model.A[1:], 3.0 * model.lam[1:])
    dense = [total_evidence(Phi[:, m.A], t, m.lam, sigma2) for m in (model, other)]
    assert model.L - other.L == pytest.approx(dense[0] - dense[1], abs=1e-9)


@pytest.mark.parametrize(("outputs", "sigma2"), CASES)
def test_derivatives_match_differences(outputs, sigma2):
    _, _, _, columns, model = started(outputs, sigma2)
    gradient, H = derivatives(columns, model)
    h = 1e-4
    for j in range(len(model.A)):
        factor = np.ones(len(model.A))
        factor[j] = np.exp(h)
        up = model_at(columns, model.A, model.lam * factor)
        down = model_at(columns, model.A, model.lam / factor)
        assert gradient[j] == pytest.approx((up.L - down.L) / (2 * h), abs=1e-6)
        slope = (derivatives(columns, up)[0] - derivatives(columns, down)[0]) / (2 * h)
        np.testing.assert_allclose(-H[j], slope, atol=1e-5)


@pytest.mark.parametrize(("outputs", "sigma2"), CASES)
@pytest.mark.parametrize("seed", range(5))
def test_every_move_raises_the_evidence(outputs, sigma2, seed):
    _, _, _, columns, model = started(outputs, sigma2, seed)
    for move in (sweep, newton, lambda c, m: add(c, m, 1e-3), sweep, newton):
        moved = move(columns, model)
        assert moved.L >= model.L - 1e-9
        model = moved


@pytest.mark.parametrize(("outputs", "sigma2"), CASES)
def test_a_sweep_takes_present_and_absent_columns_to_their_dense_optima(outputs, sigma2):
    Phi, t, _, columns, model = started(outputs, sigma2)
    n, m = Phi.shape
    T = t.reshape(n, -1)
    order = np.random.default_rng(1).permutation(m)
    found = sweep(columns, model, order, still=0.0)
    lam = np.full(m, np.inf)
    lam[model.A] = model.lam
    for j in order:
        others = np.flatnonzero(np.isfinite(lam) & (np.arange(m) != j))
        P = np.linalg.inv(np.eye(n) + (Phi[:, others] / lam[others]) @ Phi[:, others].T)
        h = Phi[:, j]
        s, q, E = np.array([h @ P @ h]), (T.T @ P @ h)[None], np.einsum("io,ij,jo->o", T, P, T)
        lam[j] = shared_optimal_lam(s, q, h @ h, E, n, sigma2)[0][0]
    came, went = np.setdiff1d(found.A, model.A), np.setdiff1d(model.A, found.A)
    assert len(came) > 0
    assert len(went) > 0
    np.testing.assert_array_equal(np.sort(found.A), np.flatnonzero(np.isfinite(lam)))
    np.testing.assert_allclose(found.lam, lam[found.A], rtol=1e-7)


@pytest.mark.parametrize(("outputs", "sigma2"), CASES)
def test_promised_gains_are_gains_of_the_dense_evidence(outputs, sigma2):
    Phi, t, _, columns, model = started(outputs, sigma2)
    start = total_evidence(Phi[:, model.A], t, model.lam, sigma2)
    gains = absent_gains(columns, model)
    j = int(np.argmax(gains))
    added = add(columns, model, gains[j])
    assert list(added.A) == [*model.A, j]
    after = total_evidence(Phi[:, added.A], t, added.lam, sigma2)
    assert after - start == pytest.approx(gains[j], abs=1e-9)
    inside, _ = present_gains(columns, model)
    absent, present = largest_gains(Phi, t, model.A, model.lam, sigma2)
    assert gains[j] == pytest.approx(absent, rel=1e-6)
    assert inside.max() == pytest.approx(present, rel=1e-6)


@pytest.mark.parametrize(("outputs", "sigma2"), CASES)
def test_polishing_ends_where_no_single_change_gains(outputs, sigma2):
    Phi, t, _, columns, model = started(outputs, sigma2)
    model = polish(columns, model, 1e-6, 1e-4, Budget(np.inf))
    absent, present = largest_gains(Phi, t, model.A, model.lam, sigma2)
    assert absent < 1e-4
    assert present < 1e-4


@pytest.mark.parametrize("outputs", [None, 2])
def test_the_triangle_gives_what_the_gram_matrix_gives(outputs):
    _, t, design, columns, model = started(outputs)
    same = model_at(columns.with_triangle(design, t), model.A, model.lam)
    np.testing.assert_allclose(same.mu, model.mu, rtol=1e-9)
    np.testing.assert_allclose(same.E, model.E, rtol=1e-9)
    assert same.L == pytest.approx(model.L, abs=1e-9)


def test_an_extended_set_is_the_set_of_all_its_columns():
    Phi, t = columns_problem()
    design = CentredDesign(DenseDesign(Phi))
    t = design.target(t)
    small = column_set(design, t, np.array([3, 7, 9]), None, 0.0)
    larger = small.only(np.array([2, 0])).extended(design, t, np.array([1, 12]))
    np.testing.assert_array_equal(larger.idx, [9, 3, 1, 12])
    wanted = column_set(design, t, larger.idx, None, 0.0)
    np.testing.assert_allclose(larger.G, wanted.G, atol=1e-10)
    np.testing.assert_allclose(larger.b, wanted.b, atol=1e-10)


# The whole.


def wrapped(design, kind, seed=3):
    weight = np.random.default_rng(seed).uniform(0.2, 1.2, design.n_rows)
    if kind == "weighted":
        return WeightedDesign(design, weight)
    if kind == "centred":
        return CentredDesign(design)
    return design


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        # Weights above 1 repeat rows, and on Friedman the evidence then rises towards no noise.
        (sinc, "plain"),
        (sinc, "weighted"),
        (sinc, "centred"),
        (friedman, "plain"),
        (friedman, "centred"),
    ],
)
@pytest.mark.parametrize("n_starts", [1, 3])
def test_converged_means_optimal_by_the_dense_check(problem, kind, n_starts):
    design, t = problem()
    design = wrapped(design, kind)
    t = design.target(t)
    result = run(AutoRVM(n_starts=n_starts), design, t, max_iter=100)
    assert result.converged
    assert result.history["stage"][-1] == "exact"
    Phi, state = design.dense(), result.state
    n = design.n_observations

    W = np.linalg.inv(Phi[:, state.active].T @ Phi[:, state.active] + np.diag(state.lam))
    mu = W @ Phi[:, state.active].T @ t
    r = t - Phi[:, state.active] @ mu
    E = r @ r + state.lam @ mu**2
    S = np.sum(Phi**2, axis=0) - np.sum(
        Phi * (Phi[:, state.active] @ W @ Phi[:, state.active].T @ Phi), axis=0
    )
    _, gains = optimal_lam(S, Phi.T @ r, np.sum(Phi**2, axis=0), E, n, None)
    gains[state.active] = 0.0
    assert gains.max() < 0.021
    s, q = 1.0 / np.diag(W) - state.lam, mu / np.diag(W)
    _, value = optimal_lam(s, q, 1.0, E + mu * q, n, None)
    now = evidence_gain(s / (s + state.lam), s, q, E + mu * q, n, None)
    assert np.max(value - now) < 1.1e-3


@pytest.mark.parametrize("sigma2", [0.05, 0.5])
def test_a_given_noise_is_kept_and_the_rest_is_optimal(sigma2):
    design, t = friedman(100)
    solver = AutoRVM(noise_variance=sigma2)
    result = run(solver, design, t, max_iter=100)
    assert result.converged
    assert solver.solution(result.state, design, t).posterior.noise_variance == sigma2
    absent, present = largest_gains(
        design.dense(), t, result.state.active, result.state.lam, np.array([sigma2])
    )
    assert absent < 0.021
    assert present < 1.1e-3


def test_history_ends_at_the_evidence_of_the_posterior():
    for sigma2 in (None, 0.2):
        for t in (friedman()[1], np.column_stack([friedman()[1], friedman(seed=1)[1]])):
            design = CentredDesign(friedman()[0])
            solver = AutoRVM(noise_variance=sigma2)
            result = run(solver, design, design.target(t), max_iter=100)
            posterior = solver.solution(result.state, design, design.target(t)).posterior
            last = result.history["log_evidence"][-1]
            assert last == pytest.approx(posterior.log_evidence, abs=1e-5)
            np.testing.assert_allclose(
                result.history["noise_variance"][-1], posterior.noise_variance, rtol=1e-8
            )


def test_evidence_beats_the_greedy_search_on_friedman():
    gaps = []
    for seed in range(4):
        design, t = friedman(seed=seed)
        found = [
            solver.solution(
                run(solver, design, t, max_iter=2000).state, design, t
            ).posterior.log_evidence
            for solver in (AutoRVM(), FastRVM())
        ]
        gaps.append(found[0] - found[1])
    assert np.mean(gaps) > 1.0
    assert min(gaps) > -1.0


def test_screening_by_low_rank_ends_near_the_exact_passes():
    design, t = friedman(300)
    exact, screened = (
        run(AutoRVM(exact_up_to=limit), design, t, max_iter=100) for limit in (3000, 0)
    )
    assert screened.converged
    assert screened.history["stage"][-1] == "screen"
    gap = exact.history["log_evidence"][-1] - screened.history["log_evidence"][-1]
    assert gap < 1.0


def test_the_stages_are_told_in_order_and_never_lose_evidence():
    design, t = friedman()
    history = run(AutoRVM(), design, t, max_iter=100).history
    assert list(history["stage"][:5]) == ["start", "polish", "polish", "polish", "merge"]
    assert set(history["stage"][5:]) == {"exact"}
    assert np.all(np.diff(history["log_evidence"][4:]) >= -1e-6)
    assert history["largest_gain"][-1] < 0.02


def test_a_run_stopped_after_any_stage_leaves_a_valid_model():
    design, t = friedman()
    solver = AutoRVM()
    for stages in (0, 1, 2, 5):
        result = run(solver, design, t, max_iter=stages)
        posterior = solver.solution(result.state, design, t).posterior
        assert not result.converged
        active, lam = result.state.active, result.state.lam
        dense = dense_log_evidence(
            design.columns(active), t, lam / posterior.noise_variance, posterior.noise_variance
        )
        assert posterior.log_evidence == pytest.approx(dense, abs=1e-5)
        if stages:
            assert len(active) > 5


def test_the_same_seed_gives_the_same_model_and_the_run_can_be_resumed():
    X = np.random.default_rng(0).standard_normal((1700, 2))
    t = np.sin(2.0 * X[:, 0]) + 0.3 * np.random.default_rng(1).standard_normal(1700)
    design = KernelDesign(X, StationaryKernel("rbf", 0.5))
    whole, again, other = (run(AutoRVM(seed=s), design, t, max_iter=100) for s in (0, 0, 1))
    np.testing.assert_array_equal(whole.state.active, again.state.active)
    np.testing.assert_array_equal(whole.state.lam, again.state.lam)
    assert not np.array_equal(whole.state.lam, other.state.lam)
    part = run(AutoRVM(), design, t, max_iter=3)
    rest = run(AutoRVM(), design, t, max_iter=100, state=part.state)
    np.testing.assert_array_equal(rest.state.lam, whole.state.lam)


def test_an_earlier_solution_can_be_started_from(monkeypatch):
    design, t = friedman()
    first = run(AutoRVM(), design, t, max_iter=100)
    start = (first.state.active, 1.5 * first.state.lam)
    monkeypatch.delattr("sparsebayes.solvers.rvm.auto.low_rank")  # not needed
    second = run(AutoRVM(start=start), design, t, max_iter=100)
    assert second.converged
    assert second.history["log_evidence"][-1] > first.history["log_evidence"][-1] - 0.1


def test_repeated_rows_do_not_tempt_it_to_fit_the_noise():
    # With rows that count 1.25 times, fitting all of them exactly has no bound on its evidence.
    design, t = sinc(60, noise=0.3)
    design = WeightedDesign(design, np.full(60, 1.25))
    t = design.target(t)
    solver = AutoRVM()
    result = run(solver, design, t, max_iter=100)
    assert result.converged
    assert solver.solution(result.state, design, t).posterior.noise_variance > 0.05


# Several outputs.


def test_one_output_as_a_matrix_is_the_single_output():
    design, t = friedman()
    single, matrix = (run(AutoRVM(), design, y, max_iter=100).state for y in (t, t[:, None]))
    np.testing.assert_array_equal(single.active, matrix.active)
    np.testing.assert_array_equal(single.lam, matrix.lam)


def test_equal_outputs_have_the_solution_of_one():
    Phi, t = columns_problem(n=50, m=20)
    design = DenseDesign(Phi)
    single, double = (
        run(AutoRVM(tol=1e-6), design, y, max_iter=200) for y in (t, np.column_stack([t, t]))
    )
    np.testing.assert_array_equal(np.sort(single.state.active), np.sort(double.state.active))
    order = np.argsort(double.state.active)
    np.testing.assert_allclose(
        double.state.lam[order], single.state.lam[np.argsort(single.state.active)], rtol=0.01
    )


@pytest.mark.parametrize("sigma2", [None, np.array([0.1, 0.2])])
def test_several_outputs_end_at_an_optimum_of_the_summed_evidence(sigma2):
    design, t = friedman(100)
    t = np.column_stack([t, np.roll(t, 1) + t])
    result = run(AutoRVM(noise_variance=sigma2), design, t, max_iter=100)
    assert result.converged
    absent, present = largest_gains(
        design.dense(), t, result.state.active, result.state.lam, sigma2
    )
    assert absent < 0.021
    assert present < 1.1e-3


# Designs that are not smooth kernels, and odd ones.


@pytest.mark.parametrize("shape", [(60, 12), (40, 150), (300, 900)])
def test_plain_columns_are_optimal_and_find_the_truth(shape):
    rng = np.random.default_rng(0)
    n, m = shape
    Phi = rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 3, m)
    t = Phi[:, 3] / np.linalg.norm(Phi[:, 3]) + 2.0 * Phi[:, 7] / np.linalg.norm(Phi[:, 7])
    t = np.sqrt(n) * t + 0.1 * rng.standard_normal(n)
    result = run(AutoRVM(), DenseDesign(Phi), t, max_iter=100)
    assert result.converged
    assert {3, 7} <= set(result.state.active)
    if n * m < 20000:
        absent, present = largest_gains(Phi, t, result.state.active, result.state.lam)
        assert absent < 0.021
        assert present < 1.1e-3


def test_a_kernel_that_is_not_positive_is_no_obstacle():
    X = np.random.default_rng(0).standard_normal((80, 2))
    kernel = PairwiseKernel("sigmoid", {"gamma": 1.0, "coef0": -0.5})
    t = np.tanh(X[:, 0]) + 0.1 * np.random.default_rng(1).standard_normal(80)
    result = run(AutoRVM(), KernelDesign(X, kernel), t, max_iter=100)
    assert result.converged
    assert len(result.state.active) >= 1


def test_noise_alone_leaves_a_nearly_empty_model():
    sizes, spread = [], []
    for seed in range(10):
        design, _ = sinc(100, seed)
        t = np.random.default_rng(seed).standard_normal(100)
        solver = AutoRVM()
        state = run(solver, design, t, max_iter=100).state
        sizes.append(len(state.active))
        mean = design.columns(state.active) @ solver.solution(state, design, t).posterior.mean
        spread.append(np.var(mean))
    assert np.median(sizes) <= 4
    assert np.median(spread) < 0.05


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_target_without_noise_is_fitted_to_many_digits(outputs):
    Phi, _ = columns_problem(n=50, m=20)
    w = np.zeros((20, outputs))
    w[[2, 5, 11]] = 1.0 + np.arange(3 * outputs).reshape(3, outputs)
    t = np.squeeze(Phi @ w)
    solver = AutoRVM()
    result = run(solver, DenseDesign(Phi), t, max_iter=100)
    posterior = solver.solution(result.state, DenseDesign(Phi), t).posterior
    r = t - Phi[:, result.state.active] @ posterior.mean
    assert set(result.state.active) >= {2, 5, 11}
    assert np.linalg.norm(r) < 1e-4 * np.linalg.norm(t)
    assert np.all(np.isfinite(posterior.log_evidence))


def test_zero_and_equal_columns_are_harmless():
    Phi, t = columns_problem()
    Phi = np.hstack([Phi, np.zeros((len(t), 2)), Phi[:, :3]])
    result = run(AutoRVM(), DenseDesign(Phi), t, max_iter=100)
    assert result.converged
    assert not set(result.state.active) & {15, 16}
    zero = run(AutoRVM(), DenseDesign(np.zeros((10, 3))), t[:10], max_iter=100)
    assert zero.converged
    assert len(zero.state.active) == 0
    constant = run(AutoRVM(), DenseDesign(Phi), np.zeros(len(t)), max_iter=100)
    assert len(constant.state.active) == 0


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("absent", [True, False])
def test_moves_applied_together_are_moves_one_after_the_other(monkeypatch, outputs, absent):
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal((150, 90))
    t = Phi[:, :40] @ rng.standard_normal((40, outputs)) + rng.standard_normal((150, outputs))
    t = t[:, 0] if outputs == 1 else t
    columns = polishing.column_set(DenseDesign(Phi), t, np.arange(90), None, 0.0 * t[0])
    model = polishing.model_at(columns, np.arange(70), np.full(70, 2.0))
    order = rng.permutation(90) if absent else None
    found = []
    for few in (10**6, 0):
        monkeypatch.setattr(polishing, "_FEW", few)
        found.append(polishing.sweep(columns, model, order))
    assert len(found[0].A) < 70
    np.testing.assert_array_equal(found[1].A, found[0].A)
    np.testing.assert_allclose(found[1].lam, found[0].lam, rtol=1e-8)
    for one, other in zip(*(polishing.derivatives(columns, m) for m in found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)


def test_many_functions_added_at_once_are_as_good_as_few(monkeypatch):
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal((200, 120))
    t = Phi[:, :60] @ rng.standard_normal(60) + 0.3 * rng.standard_normal(200)
    few = run(AutoRVM(), DenseDesign(Phi), t, max_iter=100)
    monkeypatch.setattr(polishing, "MANY", -1000)
    many = run(AutoRVM(), DenseDesign(Phi), t, max_iter=100)
    assert many.converged
    posteriors = [AutoRVM().solution(r.state, DenseDesign(Phi), t).posterior for r in (few, many)]
    assert posteriors[1].log_evidence == pytest.approx(posteriors[0].log_evidence, abs=0.1)
