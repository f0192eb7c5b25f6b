"""The search of the RVM for labels."""

import numpy as np
import pytest

import sparsebayes.solvers.rvm.laplace as rvm_laplace
from sparsebayes.designs import DenseDesign, KernelDesign
from sparsebayes.kernels import StationaryKernel
from sparsebayes.posterior import laplace_posterior
from sparsebayes.solvers import run
from sparsebayes.solvers.rvm.laplace import LaplaceRVM
from sparsebayes.solvers.rvm.laplace_curvature import LaplaceCurvature, column_gains
from sparsebayes.solvers.rvm.laplace_start import DenseStart
from tests.label_helpers import moons


@pytest.mark.parametrize("n_starts", [0, 1, 3])
@pytest.mark.parametrize("intercept", [False, True])
def test_no_column_gains_at_convergence(intercept, n_starts):
    for seed in range(3):
        design, counts = moons(seed=seed)
        solver = LaplaceRVM(intercept, n_starts=n_starts)
        result = run(solver, design, counts, max_iter=500)
        assert result.converged
        A, alpha = result.state.active, result.state.alpha
        Phi = design.columns(A)
        posterior, y = laplace_posterior(Phi, counts, alpha, intercept)
        curve = LaplaceCurvature(y, counts, posterior, Phi, intercept)
        S, Q, norms = curve.statistics(design)
        gains, leaving = column_gains((S, Q, norms), A, alpha, posterior, np.zeros(len(A)))
        assert not np.any(leaving)
        assert np.max(gains[A]) < 2e-3
        assert np.max(gains) < 0.05
        assert posterior.log_evidence == pytest.approx(
            solver.solution(result.state, design, counts).posterior.log_evidence, abs=1e-9
        )
        assert result.history["log_evidence"].max() < posterior.log_evidence + 0.1


def test_starts_merge_and_looks_are_told_in_the_history():
    design, counts = moons()
    history = run(LaplaceRVM(), design, counts, max_iter=500).history
    assert list(dict.fromkeys(history["stage"]))[:4] == ["start 1", "start 2", "start 3", "merge"]
    assert len(LaplaceRVM(n_starts=5)._scales()) == 5


def test_starts_that_break_down_leave_the_empty_model_to_begin_with(monkeypatch):
    # As with labels that count 10^6 times beside an input that is constant.
    def broken(*args):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(DenseStart, "_shared", broken)
    design, counts = moons()
    result = run(LaplaceRVM(), design, counts, max_iter=500)
    assert result.converged
    assert len(result.state.active) > 1


def test_weights_are_repetition():
    design, counts = moons(80)
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
    design, counts = moons(200, seed=1)
    exact = run(LaplaceRVM(), design, counts, max_iter=500)
    monkeypatch.setattr(rvm_laplace, "_EXACT_UP_TO", 10)
    compressed = run(LaplaceRVM(), design, counts, max_iter=500)
    assert compressed.converged
    assert compressed.history["log_evidence"].max() == pytest.approx(
        exact.history["log_evidence"].max(), abs=0.5
    )


def test_steps_that_never_settle_are_not_convergence(monkeypatch):
    monkeypatch.setattr(rvm_laplace, "_RUN_STEPS", 1)
    design, counts = moons()
    result = run(LaplaceRVM(tol=1e-9), design, counts, max_iter=500)
    assert result.stop_reason == "cycling"
    assert not result.converged


def test_a_given_start_is_polished():
    design, counts = moons()
    scratch = run(LaplaceRVM(), design, counts, max_iter=500)
    start = scratch.state.active, scratch.state.alpha * 3.0
    again = run(LaplaceRVM(start=start), design, counts, max_iter=500)
    assert again.converged
    assert again.n_iter < scratch.n_iter
    assert again.history["log_evidence"][-1] == pytest.approx(
        scratch.history["log_evidence"].max(), abs=0.05
    )


def test_a_large_kernel_starts_in_float64():
    design, counts = moons(50)
    big = DenseDesign(design.dense() * 1e20)
    result = run(LaplaceRVM(), big, counts, max_iter=300)
    small = run(LaplaceRVM(), DenseDesign(design.dense()), counts, max_iter=300)
    assert result.history["log_evidence"].max() == pytest.approx(
        small.history["log_evidence"].max(), abs=0.3
    )


def test_a_search_among_rows_of_large_weight_keeps_its_best_model():
    # Where such rows are certain of their labels, sweeps delete and add the same columns in turn.
    rng = np.random.default_rng(0)
    X = np.round(2.0 * rng.standard_normal((80, 30)))
    labels = X[:, 0] + X[:, 1] + 0.2 * rng.standard_normal(80) > 1.0
    weight = 10.0 ** rng.uniform(-8, 8, 80)
    counts = np.column_stack([weight * labels, weight])
    evidence = []
    design = KernelDesign(X, StationaryKernel("rbf", 0.01))
    solver = LaplaceRVM()
    result = run(
        solver,
        design,
        counts,
        max_iter=500,
        callback=lambda i, info, state: evidence.append(info.log_evidence),
    )
    best = solver.solution(result.state, design, counts).posterior.log_evidence
    assert result.n_iter < 100
    assert best > max(evidence) - 10.0


def test_a_search_does_not_end_at_a_saddle():
    # A function at each row: by symmetry all have the same precision at first. With an intercept
    # those of one class are enough, for .33 nats more.
    Phi = np.eye(20) + 1e-3 * np.random.default_rng(0).uniform(size=(20, 20))
    labels = np.arange(20) % 2
    counts = np.column_stack([labels, np.ones(20)]).astype(float)
    result = run(LaplaceRVM(), DenseDesign(Phi), counts, max_iter=200)
    assert result.converged
    assert len(set(labels[result.state.active])) == 1
    assert result.history["log_evidence"][-1] > -13.45


def test_a_sweep_to_weights_that_overflow_ends_at_the_best_model(monkeypatch):
    design, counts = moons()
    usual = run(LaplaceRVM(), design, counts, max_iter=500)
    neighbourhood, last = LaplaceRVM._neighbourhood, len(usual.history["log_evidence"]) - 1
    calls = []

    def breaks_down_at_the_last_step(self, state, t):
        calls.append(state)
        if len(calls) == last:
            raise np.linalg.LinAlgError
        return neighbourhood(self, state, t)

    monkeypatch.setattr(LaplaceRVM, "_neighbourhood", breaks_down_at_the_last_step)
    result = run(LaplaceRVM(), design, counts, max_iter=500)
    assert (usual.stop_reason, result.stop_reason) == ("converged", "cycling")
    assert result.history["log_evidence"][-1] == pytest.approx(
        usual.history["log_evidence"][-1], abs=0.1
    )
