"""The basic RVM for labels, from sums over rows."""

import numpy as np
import pytest

from sparsebayes.designs import DenseDesign
from sparsebayes.posterior import laplace_posterior
from sparsebayes.solvers import run
from sparsebayes.solvers.rvm.laplace import LaplaceRVM
from sparsebayes.solvers.rvm.laplace_em import BasicLaplaceRVM, LaplaceState
from sparsebayes.solvers.rvm.laplace_sums import Summing


def _problem(n=200, m=30, seed=0, weights=False):
    rng = np.random.default_rng(seed)
    Phi = rng.standard_normal((n, m)) + 0.5
    y = 2.0 * Phi[:, 3] - 1.5 * Phi[:, 7] + 0.5
    labels = (y + rng.logistic(size=n) > 0).astype(float)
    weight = rng.integers(0, 3, n).astype(float) if weights else np.ones(n)
    return Phi, np.column_stack([weight * labels, weight])


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weights", [True, False])
def test_the_end_is_a_fixed_point(intercept, weights):
    """alpha = gamma/w^2 at the mode (Tipping 2001), and no column wants to go."""
    Phi, counts = _problem(weights=weights)
    solver, design = BasicLaplaceRVM(intercept, 1e-6), DenseDesign(Phi)
    result = run(solver, design, counts, max_iter=300)
    assert result.converged
    active, alpha = result.state.active, result.state.alpha
    assert {3, 7} <= set(active)
    posterior, _ = laplace_posterior(Phi[:, active], counts, alpha, intercept)
    W = np.diag(posterior.covariance)
    np.testing.assert_allclose((1 - alpha * W) / posterior.mean**2, alpha, rtol=2e-2)
    s, q = 1 / W - alpha, posterior.mean / W
    assert np.all(q**2 > s)
    assert solver.solution(result.state, design, counts).posterior.log_evidence == pytest.approx(
        posterior.log_evidence, abs=1e-9
    )
    assert result.history["log_evidence"][-1] == pytest.approx(posterior.log_evidence, abs=1e-6)


def test_its_evidence_is_near_that_of_the_default():
    for seed in range(4):
        Phi, counts = _problem(seed=seed)
        design = DenseDesign(Phi)
        ours, theirs = (
            solver.solution(
                run(solver, design, counts, max_iter=300).state, design, counts
            ).posterior
            for solver in (BasicLaplaceRVM(), LaplaceRVM())
        )
        assert ours.log_evidence > theirs.log_evidence - 1.0


def test_a_search_for_the_mode_ends_at_it():
    Phi, counts = _problem()
    alpha = np.linspace(0.5, 3.0, 30)
    search = LaplaceState.at(np.zeros(30), 0.0, alpha, 1e-20)
    passes = 0
    while not search.finished:
        summing = Summing(search.step)
        for rows in np.array_split(np.arange(200), 7):
            latent = summing.add(Phi[rows], counts[rows])
            np.testing.assert_allclose(latent, Phi[rows] @ search.weights + search.intercept)
        search = search.advance(summing.sums(), True, 1e-3)
        passes += 1
    expected, _ = laplace_posterior(Phi, counts, alpha)
    assert passes < 12
    np.testing.assert_allclose(search.posterior.mean, expected.mean, rtol=1e-9)
    np.testing.assert_allclose(search.posterior.covariance, expected.covariance, atol=1e-10)
    np.testing.assert_allclose(search.posterior.centre, expected.centre, atol=1e-10)
    assert search.posterior.offset == pytest.approx(expected.offset, rel=1e-9)
    assert search.posterior.offset_variance == pytest.approx(expected.offset_variance, rel=1e-9)
    assert search.posterior.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)


def test_a_step_that_is_too_long_is_shortened():
    Phi, counts = _problem()
    good = LaplaceState.at(np.zeros(30), 0.0, np.ones(30), 1e-20)
    from dataclasses import replace

    far = replace(good, dw=np.full(30, 50.0))
    summing = Summing(far.step)
    summing.add(Phi.copy(), counts)
    again = far.advance(summing.sums(), True, 1e-3)
    np.testing.assert_array_equal(again.dw, 0.25 * far.dw)
    np.testing.assert_array_equal(again.w, far.w)


def test_separable_labels_end_at_the_smallest_alpha_or_before():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-2, -1, 40), rng.uniform(1, 2, 40)])
    Phi = np.exp(-0.5 * np.subtract.outer(x, x) ** 2)
    counts = np.column_stack([x > 0, np.ones(80)]).astype(float)
    result = run(BasicLaplaceRVM(), DenseDesign(Phi), counts, max_iter=300)
    assert result.stop_reason in ("converged", "at_bound")
    assert np.all(np.isfinite(result.state.alpha))


def test_columns_that_are_constant_leave():
    Phi, counts = _problem()
    Phi = np.column_stack([Phi, np.ones(200), np.zeros(200)])
    result = run(BasicLaplaceRVM(), DenseDesign(Phi), counts, max_iter=300)
    assert not {30, 31} & set(result.state.active)


def test_labels_that_say_nothing_leave_no_column():
    # Equal rows of opposite labels: the weights are exactly zero, their precisions infinite.
    result = run(
        BasicLaplaceRVM(intercept=False),
        DenseDesign(np.ones((2, 1))),
        np.array([[1.0, 1.0], [0.0, 1.0]]),
        max_iter=300,
    )
    assert result.converged
    assert len(result.state.active) == 0
