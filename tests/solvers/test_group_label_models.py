"""Models for labels, each with row sites of its own, against integrals."""

import itertools

import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp

from sparsebayes.designs import DenseDesign
from sparsebayes.solvers import run
from sparsebayes.solvers.group import label_models
from sparsebayes.solvers.group.enumeration import enumerate_undecided_groups
from sparsebayes.solvers.group.label_models import LabelModels, LabelRows
from sparsebayes.solvers.group.probit import ProbitGroupEP, log_likelihood_constant


def _integral(X, t, weight, v0):
    """Log evidence and mean of two weights under N(0, v0), on a grid."""
    x = np.linspace(-7.0, 7.0, 801) * np.sqrt(v0)
    w = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2)
    log_p = sum(c * log_ndtr(s * (w @ row)) for row, s, c in zip(X, t, weight, strict=True))
    log_p = log_p - 0.5 * np.sum(w**2, axis=1) / v0
    total = logsumexp(log_p)
    return total + np.log((x[1] - x[0]) ** 2 / (2 * np.pi * v0)), np.exp(log_p - total) @ w


@pytest.mark.parametrize(("v0", "error"), [(1.0, 0.03), (100.0, 0.25)])
@pytest.mark.parametrize("weighted", [False, True])
def test_evidence_and_mean_of_a_model_are_those_of_its_integral(v0, error, weighted):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 2))
    t, one = np.sign(X @ [1.0, 0.5]), np.ones(20)
    weight = rng.uniform(0.3, 2.5, 20) if weighted else one
    copies, power = np.maximum(weight, 1.0), np.minimum(weight, 1.0)
    # From sites as poor as those that separable classes leave.
    rows = LabelRows(X, t, copies, power, 1e-6 * one, 1e-3 * t)
    slab = np.full(2, np.sqrt(v0 / 4.0))
    models = LabelModels(rows, X, np.empty((20, 0)), np.zeros(20), np.arange(2), slab)
    chosen = np.array([[False, False], [True, True]])
    empty, both = models.log_evidence(chosen, 4.0)
    exact, mean = _integral(X, t, weight, v0)
    assert empty == pytest.approx(-weight.sum() * np.log(2.0), abs=1e-6)
    assert both == pytest.approx(exact, abs=error)
    mixture = models.mixture(np.ones(1), chosen[1:], np.full(1, 4.0))
    np.testing.assert_allclose(mixture.moments()[0], mean, rtol=0.05)


@pytest.mark.parametrize("n", [6, 20])  # through rows, through columns
def test_other_groups_enter_as_their_gaussian_sites(n):
    # A model whose other groups are integrated out is the model in which they are columns too.
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 4))
    t, one = np.sign(X[:, 0] + rng.standard_normal(n)), np.ones(n)
    rows, slab = LabelRows(X, t, one, one, 0.5 * one, 0.5 * t), np.array([1.0, 2.0, 0.5, 3.0])
    none = np.zeros(n)
    whole = LabelModels(rows, X, np.empty((n, 0)), none, np.arange(4), slab)
    part = LabelModels(rows, X[:, :2], X[:, 2:] * slab[2:], none, np.arange(2), slab[:2])
    always = LabelModels(rows, X, np.empty((n, 0)), none, np.arange(2), slab)
    z = np.array([[True, False]])
    expected = whole.log_evidence(np.array([[True, False, True, True]]))
    np.testing.assert_allclose(part.log_evidence(z), expected, rtol=1e-10)
    np.testing.assert_allclose(always.log_evidence(z), expected, rtol=1e-10)
    means = [m.mixture(np.ones(1), z, np.ones(1)).moments()[0][:2] for m in (part, always)]
    np.testing.assert_allclose(means[0], means[1], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_sum_over_models_of_labels_is_close_to_simulation(seed):
    rng = np.random.default_rng(seed)
    n, p0, v0, group_of = 18, 0.4, 10.0, np.repeat(np.arange(3), 2)
    X = rng.standard_normal((n, 6))
    t = np.where(X[:, :4] @ [1.5, -1.0, 1.0, 0.5] + 0.5 * rng.standard_normal(n) > 0, 1.0, -1.0)
    models = np.array(list(itertools.product([False, True], repeat=3)))
    exact = []
    for z in models:
        w = np.sqrt(v0) * rng.standard_normal((200_000, 6)) * z[group_of]
        likelihood = logsumexp(log_ndtr(t * (w @ X.T)).sum(axis=1)) - np.log(len(w))
        exact.append(likelihood + np.sum(np.log(np.where(z, p0, 1.0 - p0))))
    design, solver = DenseDesign(X), ProbitGroupEP(group_of, p0, v0, tol=1e-6)
    state = run(solver, design, t, max_iter=1000).state
    found = enumerate_undecided_groups(
        state.form,
        state.sites,
        state.marginals,
        solver.posterior(state, design, t),
        precision=state.copies * state.tau,
        log_constant=log_likelihood_constant(state, t),
        target=state.eta / state.tau,
        rows=LabelRows(state.form.X, t, state.copies, state.power, state.tau, state.eta),
    )
    total = logsumexp(exact)
    assert found.posterior.log_evidence == pytest.approx(total, abs=0.15)
    np.testing.assert_allclose(found.inclusion, np.exp(exact - total) @ models, atol=0.05)


def test_rows_of_large_weight_settle_in_a_few_sweeps(monkeypatch):
    rng = np.random.default_rng(3)
    X, weight = rng.standard_normal((40, 8)), 10.0 ** rng.uniform(-4, 6, 40)
    t = np.sign(X[:, 0] + rng.standard_normal(40))
    copies, power = np.maximum(weight, 1.0), np.minimum(weight, 1.0)
    rows = LabelRows(X, t, copies, power, 0.5 * power, 0.5 * power * t)
    sweeps, tilted = [], label_models.tilted
    monkeypatch.setattr(label_models, "tilted", lambda *args: sweeps.append(1) or tilted(*args))
    models = LabelModels(rows, X, np.empty((40, 0)), np.zeros(40), np.arange(8), np.ones(8))
    evidence = models.log_evidence(np.ones((1, 8), dtype=bool))
    assert len(sweeps) < 22  # 28 with damping that grows stronger whatever the evidence does
    assert evidence[0] == pytest.approx(-1124.665, abs=0.01)  # of 400 sweeps
