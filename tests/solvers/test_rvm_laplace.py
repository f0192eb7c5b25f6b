"""Logistic labels: the mode, its evidence, one-column statistics, and the search over columns."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

import sparsebayes.posterior.laplace as laplace_module
import sparsebayes.solvers.rvm.laplace as rvm_laplace
from sparsebayes.designs import DenseDesign, KernelDesign
from sparsebayes.designs.lowrank import low_rank
from sparsebayes.kernels import StationaryKernel
from sparsebayes.posterior import laplace_posterior, likelihood_slopes, log_likelihood
from sparsebayes.solvers import run
from sparsebayes.solvers.rvm.laplace import (
    DenseStart,
    LaplaceCurvature,
    LaplaceRVM,
    gains_of,
    sweeps,
)
from sparsebayes.solvers.rvm.one_column import adding_gain


def _labels(n=80, k=4, seed=0, weighted=False):
    rng = np.random.default_rng(seed)
    Phi = rng.standard_normal((n, k)) + 1.0
    positive = rng.random(n) < expit(Phi[:, 0] - 0.5)
    weight = rng.integers(1, 4, n).astype(float) if weighted else np.ones(n)
    return Phi, np.column_stack([weight * positive, weight]), rng.uniform(0.1, 3.0, k)


def _moons(n=150, seed=0):
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, np.pi, n)
    side = rng.integers(0, 2, n)
    X = np.column_stack([np.cos(angle) + side, np.sin(angle) * (1 - 2 * side) + 0.4 * side])
    X += 0.25 * rng.standard_normal((n, 2))
    return KernelDesign(X, StationaryKernel("rbf", 1.0)), np.column_stack([side, np.ones(n)]) * 1.0


def _dense(Phi, alpha, intercept):
    """Columns and precisions with the intercept as a column of precision zero in front."""
    if not intercept:
        return Phi, alpha
    return np.column_stack([np.ones(len(Phi)), Phi]), np.concatenate([[0.0], alpha])


# The posterior.


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_gradient_is_zero_at_the_mode(intercept, weighted):
    Phi, counts, alpha = _labels(weighted=weighted)
    posterior, y = laplace_posterior(Phi, counts, alpha, intercept)
    full, precision = _dense(Phi, alpha, intercept)
    w = posterior.mean
    if intercept:
        w = np.concatenate([[posterior.intercept], w])
    np.testing.assert_allclose(full @ w, y, atol=1e-12)
    gradient = full.T @ (counts[:, 0] - counts[:, 1] * expit(y)) - precision * w
    np.testing.assert_allclose(gradient, 0.0, atol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_evidence_and_covariance_are_the_dense_formulas(intercept, weighted):
    Phi, counts, alpha = _labels(weighted=weighted)
    posterior, y = laplace_posterior(Phi, counts, alpha, intercept)
    full, precision = _dense(Phi, alpha, intercept)
    omega = counts[:, 1] * expit(y) * expit(-y)
    H = full.T @ (omega[:, None] * full) + np.diag(precision)
    w, k = posterior.mean, len(alpha)
    # Density 1 of the flat prior; the Gaussian integral over all weights and the intercept.
    expected = log_likelihood(y, counts) - 0.5 * alpha @ w**2
    expected += 0.5 * np.sum(np.log(alpha / (2 * np.pi)))
    expected += 0.5 * len(full.T) * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(H)[1]
    assert posterior.log_evidence == pytest.approx(expected, abs=1e-9)
    covariance = np.linalg.inv(H)
    np.testing.assert_allclose(posterior.covariance, covariance[-k:, -k:], atol=1e-9)
    new = np.random.default_rng(1).standard_normal((5, k))
    _, variance = posterior.predict(new)
    new, _ = _dense(new, alpha, intercept)
    np.testing.assert_allclose(variance, np.einsum("ij,jk,ik->i", new, covariance, new), rtol=1e-8)


def test_evidence_is_near_the_integral():
    Phi, counts, _ = _labels(60, 1)
    posterior, _ = laplace_posterior(Phi, counts, np.array([0.5]), intercept=False)

    def density(w):
        return np.exp(log_likelihood(Phi[:, 0] * w, counts) - 0.25 * w**2) * np.sqrt(0.25 / np.pi)

    assert posterior.log_evidence == pytest.approx(np.log(quad(density, -4, 6)[0]), abs=0.01)


def test_a_start_on_the_wrong_side_is_not_followed():
    Phi, counts, alpha = _labels()
    expected, _ = laplace_posterior(Phi, counts, alpha)
    lost = np.full(4, -1e4), 500.0
    posterior, _ = laplace_posterior(Phi, counts, alpha, start=lost)
    np.testing.assert_allclose(posterior.mean, expected.mean, atol=1e-7)


def test_columns_that_are_nearly_equal_go_by_orthogonal_factors():
    Phi, counts, _ = _labels()
    Phi[:, 3] = Phi[:, 2] * (1.0 + 1e-9)
    alpha = np.array([1.0, 1.0, 1e-15, 1e-15])
    posterior, _ = laplace_posterior(Phi, counts, alpha)
    merged, _ = laplace_posterior(Phi[:, :3], counts, np.array([1.0, 1.0, 0.5e-15]))
    np.testing.assert_allclose(posterior.predict(Phi)[0], merged.predict(Phi[:, :3])[0], atol=1e-5)
    assert posterior.log_evidence == pytest.approx(merged.log_evidence, abs=1e-5)


def test_the_mode_is_reached_from_a_start_where_all_rows_are_saturated():
    rng = np.random.default_rng(0)
    Phi, alpha = rng.standard_normal((159, 2)), np.full(2, 1e-3)
    counts = np.column_stack([np.arange(159) == 0, np.ones(159)]).astype(float)
    expected, _ = laplace_posterior(Phi, counts, alpha)
    # f is higher at this start than at zero, and its curvature is 1e-14 of that at the mode.
    posterior, _ = laplace_posterior(Phi, counts, alpha, start=(np.zeros(2), -35.0))
    np.testing.assert_allclose(posterior.mean, expected.mean, atol=1e-8)
    assert posterior.log_evidence == pytest.approx(expected.log_evidence, abs=1e-10)


def test_likelihood_and_slopes_keep_their_digits_for_large_weights():
    y, counts = np.array([60.0, -60.0]), np.array([[1e8, 1e8], [0.0, 1e8]])
    tail = np.exp(-60.0)
    assert log_likelihood(y, counts) == pytest.approx(-2e8 * tail, rel=1e-12)
    residual, omega = likelihood_slopes(y, counts)
    np.testing.assert_allclose(residual, [1e8 * tail, -1e8 * tail], rtol=1e-12)
    np.testing.assert_array_equal(omega, 1e8 * 1e-14)
    y = np.array([-3.0, 0.5])
    residual, omega = likelihood_slopes(y, np.array([[1.0, 3.0], [0.0, 2.0]]))
    np.testing.assert_allclose(residual, [1.0 - 3.0 * expit(-3.0), -2.0 * expit(0.5)])
    np.testing.assert_allclose(omega, np.array([3.0, 2.0]) * expit(y) * expit(-y))


def test_an_overflow_is_an_error_that_names_the_columns():
    Phi, counts, alpha = _labels()
    Phi[3, 1] = np.inf
    with (
        np.errstate(all="ignore"),
        pytest.raises(np.linalg.LinAlgError, match="overflows float64: columns have values up to"),
    ):
        laplace_posterior(Phi, counts, alpha)


def test_a_mode_that_is_not_reached_is_an_error(monkeypatch):
    monkeypatch.setattr(laplace_module, "_MOST_STEPS", 1)
    with pytest.raises(np.linalg.LinAlgError, match=r"did not reach the mode.*weights up to"):
        laplace_posterior(*_labels())
    posterior, _ = laplace_posterior(*_labels(), max_iter=1)  # one step on request is no error
    assert np.isfinite(posterior.log_evidence)


# One column at a time.


@pytest.mark.parametrize("intercept", [False, True])
def test_statistics_are_the_dense_ones_and_gains_are_gains(intercept):
    Phi, counts, _ = _labels(60, 6)
    Phi[:, 5] = 2.0  # constant: no candidate beside an intercept
    A, alpha = np.array([0, 2]), np.array([0.5, 2.0])
    posterior, y = laplace_posterior(Phi[:, A], counts, alpha, intercept)
    curve = LaplaceCurvature(y, counts, posterior, Phi[:, A], intercept)
    S, Q, norms = curve.statistics(DenseDesign(Phi))
    omega = expit(y) * expit(-y)
    # C^-1 = Omega - Omega Phi H^-1 Phi' Omega, with the intercept among Phi.
    full, precision = _dense(Phi[:, A], alpha, intercept)
    H = full.T @ (omega[:, None] * full) + np.diag(precision)
    C = np.diag(omega) - omega[:, None] * full @ np.linalg.solve(H, full.T * omega)
    np.testing.assert_allclose(S, np.einsum("ij,ik,kj->j", Phi, C, Phi), atol=1e-9)
    np.testing.assert_allclose(Q, Phi.T @ (counts[:, 0] - expit(y)), atol=1e-9)

    gains, leaving = gains_of(
        S, Q, norms, A, alpha, posterior.form.root, posterior.mean, np.zeros(len(A))
    )
    assert gains[5] == (0.0 if intercept else pytest.approx(gains[5]))
    # The working response has covariance C over the other columns; brute force over alpha.
    response = y + (counts[:, 0] - expit(y)) / omega
    values = np.logspace(-4, 4, 400)
    for j in (0, 1, 3):
        others, here = A[A != j], alpha[A != j]

        def evidence(a, j=j, others=others, here=here):
            columns = Phi[:, np.append(others, j)] if np.isfinite(a) else Phi[:, others]
            precisions = np.append(here, a) if np.isfinite(a) else here
            return _gaussian_evidence(columns, precisions, omega, response, intercept)

        now = evidence(alpha[list(A).index(j)] if j in A else np.inf)
        best = max(evidence(np.inf), *[evidence(a) for a in values])
        assert gains[j] == pytest.approx(best - now, abs=1e-3)
    assert not leaving[0]


def _gaussian_evidence(Phi, alpha, omega, response, intercept):
    full, precision = _dense(Phi, alpha, intercept)
    H = full.T @ (omega[:, None] * full) + np.diag(precision)
    w = np.linalg.solve(H, full.T @ (omega * response))
    misfit = omega @ (response - full @ w) ** 2 + precision @ w**2
    return -0.5 * (misfit + np.linalg.slogdet(H)[1] - np.sum(np.log(alpha)))


def test_a_sweep_ends_where_no_column_gains():
    rng = np.random.default_rng(2)
    Phi = rng.standard_normal((50, 8))
    response = Phi @ np.array([2.0, -1.0, 0.5, 0, 0, 0, 0, 0]) + rng.standard_normal(50)
    G, b = Phi.T @ Phi, Phi.T @ response
    alpha = np.full(8, np.inf)
    alpha[[1, 5, 6]] = 1.0
    for _ in range(10):
        alpha, w = sweeps(G, b, alpha, np.zeros(8), 1e-9)
    here = np.flatnonzero(np.isfinite(alpha))
    assert {0, 1} <= set(here)
    W = np.linalg.inv(G[np.ix_(here, here)] + np.diag(alpha[here]))
    np.testing.assert_allclose(w[here], W @ b[here], atol=1e-8)
    s, q = 1 / np.diag(W) - alpha[here], w[here] / np.diag(W)
    np.testing.assert_allclose(alpha[here], s**2 / (q**2 - s), rtol=1e-3)
    gone = np.setdiff1d(np.arange(8), here)
    S = np.diag(G)[gone] - np.einsum("ij,jk,ik->i", G[np.ix_(gone, here)], W, G[np.ix_(gone, here)])
    assert np.all((b - G @ w)[gone] ** 2 <= S)


@pytest.mark.parametrize("intercept", [False, True])
def test_compressed_statistics_are_the_exact_ones_where_the_compression_is_exact(intercept):
    design, counts = _moons(100)
    factor = low_rank(design, 100, np.random.default_rng(0))
    A, alpha = np.array([3, 40, 77]), np.array([0.5, 1.0, 2.0])
    Phi = design.columns(A)
    posterior, y = laplace_posterior(Phi, counts, alpha, intercept)
    curve = LaplaceCurvature(y, counts, posterior, Phi, intercept)
    for ours, exact in zip(
        curve.compressed_statistics(factor), curve.statistics(design), strict=True
    ):
        np.testing.assert_allclose(ours, exact, atol=1e-5)


@pytest.mark.parametrize("intercept", [False, True])
def test_dense_start_takes_the_steps_of_the_full_model(intercept):
    """N, u and the Newton step in p dimensions against the m x m formulas."""
    design, counts = _moons(60)
    K = design.dense()
    factor = low_rank(design, 60, np.random.default_rng(0))
    start = DenseStart(factor, counts, intercept)
    start.R, start.F = np.asfortranarray(factor.rows), np.asfortranarray(factor.factor)
    alpha = np.random.default_rng(1).uniform(0.5, 2.0, 60)
    F = factor.factor
    B = np.asfortranarray((F / alpha) @ F.T)
    v, b = np.zeros(len(F)), 0.0
    for _ in range(8):
        N, u, b, step = start._step(B, v, b)
        v = v + step * (B @ u - v)
    N = np.tril(N) + np.tril(N, -1).T
    posterior, y = laplace_posterior(K, counts, alpha, intercept)
    np.testing.assert_allclose(factor.rows @ v + b, y, atol=1e-4)
    omega = expit(y) * expit(-y)
    C = np.linalg.inv(np.diag(1 / omega) + (K / alpha) @ K.T)
    if intercept:
        one = C @ np.ones(60)
        C = C - np.outer(one, one) / one.sum()
    np.testing.assert_allclose(
        np.einsum("ij,ik,kj->j", F, N, F), np.einsum("ij,ik,kj->j", K, C, K), rtol=1e-4
    )
    np.testing.assert_allclose(u @ F, alpha * posterior.mean, atol=1e-3)


# The search.


@pytest.mark.parametrize("n_starts", [0, 1, 3])
@pytest.mark.parametrize("intercept", [False, True])
def test_no_column_gains_at_convergence(intercept, n_starts):
    for seed in range(3):
        design, counts = _moons(seed=seed)
        solver = LaplaceRVM(intercept, n_starts=n_starts)
        result = run(solver, design, counts, max_iter=500)
        assert result.converged
        A, alpha = result.state.active, result.state.alpha
        Phi = design.columns(A)
        posterior, y = laplace_posterior(Phi, counts, alpha, intercept)
        curve = LaplaceCurvature(y, counts, posterior, Phi, intercept)
        S, Q, norms = curve.statistics(design)
        gains, leaving = gains_of(
            S, Q, norms, A, alpha, posterior.form.root, posterior.mean, np.zeros(len(A))
        )
        assert not np.any(leaving)
        assert np.max(gains[A]) < 2e-3
        assert np.max(gains) < 0.05
        assert posterior.log_evidence == pytest.approx(
            solver.solution(result.state, design, counts).posterior.log_evidence, abs=1e-9
        )
        assert result.history["log_evidence"].max() < posterior.log_evidence + 0.1


def test_starts_merge_and_looks_are_told_in_the_history():
    design, counts = _moons()
    history = run(LaplaceRVM(), design, counts, max_iter=500).history
    assert list(dict.fromkeys(history["stage"]))[:4] == ["start 1", "start 2", "start 3", "merge"]
    assert len(LaplaceRVM(n_starts=5)._scales()) == 5


def test_starts_that_break_down_leave_the_empty_model_to_begin_with(monkeypatch):
    # As with labels that count 10^6 times beside an input that is constant.
    def broken(*args):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(DenseStart, "_shared", broken)
    design, counts = _moons()
    result = run(LaplaceRVM(), design, counts, max_iter=500)
    assert result.converged
    assert len(result.state.active) > 1


def test_weights_are_repetition():
    design, counts = _moons(80)
    repeat = np.random.default_rng(0).integers(1, 4, 80)
    X = np.repeat(design.X, repeat, axis=0)
    first = np.concatenate([[0], np.cumsum(repeat)[:-1]])
    repeated = KernelDesign(X, design.kernel, first)
    solver = LaplaceRVM()
    weighted = counts * repeat[:, None]
    ours = run(solver, design, weighted, max_iter=500)
    theirs = run(solver, repeated, np.repeat(counts, repeat, axis=0), max_iter=500)
    np.testing.assert_array_equal(np.sort(ours.state.active), np.sort(theirs.state.active))
    np.testing.assert_allclose(ours.state.alpha, theirs.state.alpha, rtol=1e-6)
    assert ours.history["log_evidence"][-1] == pytest.approx(
        theirs.history["log_evidence"][-1], abs=1e-8
    )


def test_separable_labels_give_a_finite_model():
    X = np.concatenate([np.linspace(-2, -1, 30), np.linspace(1, 2, 30)])[:, None]
    counts = np.column_stack([X[:, 0] > 0, np.ones(60)]).astype(float)
    for design in (DenseDesign(X), KernelDesign(X, StationaryKernel("rbf", 1.0))):
        solver = LaplaceRVM()
        result = run(solver, design, counts, max_iter=500)
        assert result.converged
        posterior = solver.solution(result.state, design, counts).posterior
        mean, variance = posterior.predict(design.columns(result.state.active))
        assert np.all(np.abs(mean) < 100)
        assert np.all(np.isfinite(variance))
        assert np.all((mean > 0) == (X[:, 0] > 0))


def test_columns_that_say_nothing_leave_the_log_odds():
    counts = np.column_stack([np.arange(40) % 4 == 0, np.ones(40)]).astype(float)
    for columns in (np.zeros((40, 3)), np.ones((40, 3))):
        solver, design = LaplaceRVM(), DenseDesign(columns)
        result = run(solver, design, counts, max_iter=100)
        assert result.converged
        assert len(result.state.active) == 0
        posterior = solver.solution(result.state, design, counts).posterior
        assert posterior.intercept == pytest.approx(np.log(1 / 3))
        assert posterior.offset_variance == pytest.approx(1 / (40 * 0.25 * 0.75))


def test_looks_at_compressed_columns_find_what_exact_ones_find(monkeypatch):
    design, counts = _moons(200, seed=1)
    exact = run(LaplaceRVM(), design, counts, max_iter=500)
    monkeypatch.setattr(rvm_laplace, "_EXACT_UP_TO", 10)
    compressed = run(LaplaceRVM(), design, counts, max_iter=500)
    assert compressed.converged
    assert compressed.history["log_evidence"].max() == pytest.approx(
        exact.history["log_evidence"].max(), abs=0.5
    )


def test_steps_that_never_settle_are_not_convergence(monkeypatch):
    monkeypatch.setattr(rvm_laplace, "_RUN_STEPS", 1)
    design, counts = _moons()
    result = run(LaplaceRVM(tol=1e-9), design, counts, max_iter=500)
    assert result.stop_reason == "cycling"
    assert not result.converged


def test_a_given_start_is_polished():
    design, counts = _moons()
    scratch = run(LaplaceRVM(), design, counts, max_iter=500)
    start = scratch.state.active, scratch.state.alpha * 3.0
    again = run(LaplaceRVM(start=start), design, counts, max_iter=500)
    assert again.converged
    assert again.n_iter < scratch.n_iter
    assert again.history["log_evidence"][-1] == pytest.approx(
        scratch.history["log_evidence"].max(), abs=0.05
    )


def test_a_large_kernel_starts_in_float64():
    design, counts = _moons(50)
    big = DenseDesign(design.dense() * 1e20)
    result = run(LaplaceRVM(), big, counts, max_iter=300)
    small = run(LaplaceRVM(), DenseDesign(design.dense()), counts, max_iter=300)
    assert result.history["log_evidence"].max() == pytest.approx(
        small.history["log_evidence"].max(), abs=0.3
    )


def test_absent_columns_in_the_span_are_refused():
    S, Q, norms = np.array([1e-14, np.nan]), np.array([1.0, 1.0]), np.ones(2)
    np.testing.assert_array_equal(adding_gain(S, Q, norms, 0.0, 1.0, 1.0, 1e-10)[1], 0.0)
