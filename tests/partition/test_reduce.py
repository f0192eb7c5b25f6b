"""[Phi t] reduced to a few rows is, to a Gaussian model, [Phi t]."""

from itertools import pairwise

import numpy as np
import pytest

from sparsebayes.designs import CentredDesign, KernelDesign, WeightedDesign
from sparsebayes.kernels import StationaryKernel
from sparsebayes.partition._reduce import Columns, exact_is_cheap, nats_lost
from sparsebayes.posterior import gaussian_posterior
from sparsebayes.rows import tree
from sparsebayes.solvers.rvm.search import fixes_intercept_first

KERNEL = StationaryKernel("rbf", 0.3)


def _problem(n=300, k=20, seed=0, weighted=False):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    y = 3.0 + np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(n)
    weight = rng.integers(0, 4, n).astype(float) if weighted else None
    return X, y, weight, np.sort(rng.choice(n, k, replace=False))


def _reduced(X, y, weight, centres, intercept, exact, cuts=(70, 71, 200), scale=1.0):
    columns = Columns(KERNEL, X[centres], scale, intercept, exact)
    edges = [0, *cuts, len(X)]
    chunks = [(X[a:b], y[a:b], None if weight is None else weight[a:b]) for a, b in pairwise(edges)]
    parts = (columns.read(i, chunk) for i, chunk in enumerate(chunks))
    return columns.finish(tree(parts, columns.merge))


def _design(X, weight, centres, intercept):
    design = KernelDesign(X, KERNEL, centres)
    if weight is not None:
        design = WeightedDesign(design, weight)
    return CentredDesign(design) if intercept else design


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_posterior_and_evidence_are_those_of_all_rows(exact, intercept, weighted):
    X, y, weight, centres = _problem(weighted=weighted)
    design = _design(X, weight, centres, intercept)
    reduced = _reduced(X, y, weight, centres, intercept, exact, scale=2.0)
    assert len(reduced.matrix) <= len(centres) + 1 + intercept  # the target, and the means
    t, offset = design.target(y / 2.0), design.offset(y / 2.0)
    active = np.array([0, 3, 4, 11])
    lam = np.array([0.1, 1e-3, 1.0, 2.0])
    ours = gaussian_posterior(reduced.design(), reduced.t, active, lam, 0.02)
    truth = gaussian_posterior(design, t, active, lam, 0.02)
    assert ours.log_evidence == pytest.approx(truth.log_evidence, rel=1e-10)
    np.testing.assert_allclose(ours.mean, truth.mean, rtol=1e-8)
    np.testing.assert_allclose(ours.covariance, truth.covariance, rtol=1e-7)
    assert ours.offset_variance == pytest.approx(truth.offset_variance)
    assert reduced.offset == pytest.approx(offset, abs=1e-14)
    if intercept:
        np.testing.assert_allclose(reduced.means, design.basis(np.arange(20)).centre)


@pytest.mark.parametrize("exact", [True, False])
def test_far_from_zero_nothing_cancels(exact):
    """A kernel nearly constant on the rows: moments around zero would have lost ten digits."""
    X, y, _, centres = _problem(k=3)
    X = 1e-3 * X
    reduced = _reduced(X, y + 1e6, None, centres, True, exact)
    columns = np.column_stack([np.exp(-0.3 * ((X - X[c]) ** 2).sum(1)) for c in centres])
    columns -= columns.mean(0)
    np.testing.assert_allclose(
        np.diag(reduced.matrix.T @ reduced.matrix), (columns**2).sum(0), rtol=1e-8
    )
    assert reduced.t @ reduced.t == pytest.approx(np.var(y) * len(y), rel=1e-7)


@pytest.mark.parametrize("exact", [True, False])
def test_constant_columns_are_no_candidates(exact):
    X = np.ones((50, 2))
    reduced = _reduced(X, np.arange(50.0), None, np.array([0]), True, exact, cuts=(20,))
    assert np.all(reduced.matrix == 0)


@pytest.mark.parametrize("exact", [True, False])
def test_chunks_without_weight_do_no_harm(exact):
    X, y, weight, centres = _problem(weighted=True)
    weight[70:200] = 0.0
    keep = weight > 0
    ours = _reduced(X, y, weight, centres, True, exact)
    truth = _reduced(X[keep], y[keep], weight[keep], np.arange(0), True, exact, cuts=())
    assert ours.total == truth.total
    assert ours.t @ ours.t == pytest.approx(truth.t @ truth.t, rel=1e-10)


def test_equal_columns_are_one_direction():
    X, y, _, centres = _problem(k=4)
    twice = np.concatenate([centres, centres])
    reduced = _reduced(X, y, None, twice, False, False)
    assert len(reduced.matrix) == 5
    np.testing.assert_allclose(reduced.matrix[:, :4], reduced.matrix[:, 4:], atol=1e-12)


@pytest.mark.parametrize("noise", [1e-4, 1e-3, 1e-2, 0.1])
def test_nats_lost_tells_what_the_moments_lose(noise):
    """Within a factor of thirty on smooth functions, whose weights cancel most."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-3, 3, (2000, 1)), axis=0)
    y = np.sin(X[:, 0]) + noise * rng.standard_normal(2000)
    centres = np.arange(0, 2000, 100)
    exact, fast = (_reduced(X, y, None, centres, True, e) for e in (True, False))
    active = np.arange(len(centres))
    lam = np.full(len(centres), 100 * noise**2)
    ours, truth = (
        gaussian_posterior(r.design(), r.t, active, lam, noise**2) for r in (fast, exact)
    )
    told = nats_lost(fast, active, ours.mean, noise**2)
    assert abs(ours.log_evidence - truth.log_evidence) < 30 * told + 1e-5
    assert told < 10 if noise < 1e-3 else told < 0.1


def test_small_problems_are_exact():
    assert exact_is_cheap(3341, 500)
    assert not exact_is_cheap(10**5, 1265)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_columns_of_a_held_intercept_are_those_before_they_were_centred(exact, weighted):
    X, y, weight, centres = _problem(weighted=weighted)
    reduced = _reduced(X, y, weight, centres, True, exact)
    held, every = reduced.design(hold=True), np.arange(len(centres))
    assert fixes_intercept_first(held)
    assert not fixes_intercept_first(reduced.design())
    w = np.ones(len(X)) if weight is None else weight
    Phi, t = KERNEL.bind(X[centres])(X), y - np.average(y, weights=w)
    base = held.uncentred.columns(every)
    np.testing.assert_allclose(base.T @ base, (w * Phi.T) @ Phi, rtol=1e-8)
    np.testing.assert_allclose(base.T @ reduced.t, (w * Phi.T) @ t, rtol=1e-7, atol=1e-7)
