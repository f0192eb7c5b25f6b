import numpy as np
import pytest
from scipy.special import log_ndtr

from sparsebayes.designs import DenseDesign
from sparsebayes.linalg.blocks import partition
from sparsebayes.solvers import run
from sparsebayes.solvers._group_columns import ColumnForm
from sparsebayes.solvers._group_forms import RowForm
from sparsebayes.solvers._group_sites import SpikeSlabSites
from sparsebayes.solvers.group_ep_probit import ProbitGroupEP, log_evidence


def _labels(seed, n, G=4, k=2):
    rng = np.random.default_rng(seed)
    group_of = np.repeat(np.arange(G), k)
    X = rng.standard_normal((n, G * k))
    w = rng.standard_normal(G * k) * (group_of < 2)
    return rng, X, np.where(X @ w + rng.standard_normal(n) > 0, 1.0, -1.0), group_of


@pytest.mark.parametrize("n", [6, 25])  # fewer and more rows than columns
def test_close_to_importance_sampling(n):
    rng, X, t, group_of = _labels(1, n)
    p0, v0 = 0.4, 1.0
    z = rng.random((200_000, 4)) < p0
    w = np.sqrt(v0) * rng.standard_normal((len(z), 8)) * z[:, group_of]
    likelihood = log_ndtr(t * (w @ X.T)).sum(axis=1)
    exact = np.logaddexp.reduce(likelihood) - np.log(len(z))
    weight = np.exp(likelihood - np.logaddexp.reduce(likelihood))
    solver = ProbitGroupEP(group_of, p0, v0, tol=1e-8)
    result = run(solver, DenseDesign(X), t, max_iter=1000)
    assert result.converged
    state = result.state
    assert log_evidence(state, t) == pytest.approx(exact, abs=0.25)
    np.testing.assert_allclose(state.inclusion_probability, weight @ z, atol=0.08)
    np.testing.assert_allclose(state.sites.mean, weight @ w, atol=0.1)


def test_a_group_that_is_always_in_has_its_slab_for_a_site():
    _, X, t, group_of = _labels(2, 30)
    solver = ProbitGroupEP(group_of, np.array([0.3, 0.3, 0.3, 1.0]), 2.0)
    sites = run(solver, DenseDesign(X), t, max_iter=200).state.sites
    np.testing.assert_allclose(sites.precision[0][3], np.eye(2) / 2.0, atol=1e-12)
    np.testing.assert_allclose(sites.shift[0][3], 0.0, atol=1e-12)


def test_gaussian_prior_evidence_matches_sampling_closely():
    # With every group in there is no spike: EP for probit regression, which is very accurate.
    rng, X, t, group_of = _labels(3, 15)
    w = rng.standard_normal((400_000, 8))
    exact = np.logaddexp.reduce(log_ndtr(t * (w @ X.T)).sum(axis=1)) - np.log(len(w))
    solver = ProbitGroupEP(group_of, 1.0, 1.0, tol=1e-8)
    state = run(solver, DenseDesign(X), t, max_iter=500).state
    assert log_evidence(state, t) == pytest.approx(exact, abs=0.03)


def test_row_moments_agree_between_forms():
    rng, X, t, group_of = _labels(4, 12, G=5)
    blocks = partition(group_of)
    sites = SpikeSlabSites.start(blocks, np.full(5, 0.2), np.geomspace(0.01, 10, 5))
    tau, target = np.exp(rng.uniform(-5, 1, 12)), rng.standard_normal(12)
    found = []
    for form in (RowForm(X, t, blocks), ColumnForm(X, t, blocks, fold=False)):
        marginals = form.marginals(sites.half, sites.shift, tau, target)
        found.append(form.row_moments(sites.half, marginals, tau, target))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-12)
    S = np.repeat(0.2 * np.geomspace(0.01, 10, 5), 2)
    V = np.linalg.inv(X.T @ (X * tau[:, None]) + np.diag(1 / S))
    np.testing.assert_allclose(found[0][1], np.einsum("ij,jk,ik->i", X, V, X), rtol=1e-8)


def test_separable_classes_do_not_send_the_slab_to_infinity():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 12))
    t = np.sign(X[:, 0])
    learn = ("inclusion_prior", "slab_variance")
    solver = ProbitGroupEP(np.arange(12) // 2, 0.5, 1.0, learn=learn)
    result = run(solver, DenseDesign(X), t, max_iter=500)
    assert result.converged
    assert np.isfinite(log_evidence(result.state, t))
    assert result.state.sites.slab_variance[0] < 150
