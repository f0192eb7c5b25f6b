import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.special import log_ndtr

from sparsebayes.designs import DenseDesign
from sparsebayes.linalg.blocks import column_blocks
from sparsebayes.solvers import run
from sparsebayes.solvers.group.column_form import ColumnForm
from sparsebayes.solvers.group.probit import ProbitGroupEP, log_evidence, matched_site, tilted
from sparsebayes.solvers.group.row_form import RowForm
from sparsebayes.solvers.group.sites import SpikeSlabSites


def _labels(seed, n, G=4, k=2):
    rng = np.random.default_rng(seed)
    group_of = np.repeat(np.arange(G), k)
    X = rng.standard_normal((n, G * k))
    w = rng.standard_normal(G * k) * (group_of < 2)
    return rng, X, np.where(X @ w + rng.standard_normal(n) > 0, 1.0, -1.0), group_of


def test_the_site_of_a_label_is_no_more_precise_than_the_label():
    m, v = np.array([-1e6, -30.0, 0.0, 5.0]), np.array([1e20, 1e3, 1e16, 1e-3])
    for power in (1.0, 0.3):
        _, d1, d2 = tilted(m, v, np.full(4, power))
        tau, eta = matched_site(m, v, d1, d2, np.full(4, power))
        assert np.all((tau >= 0) & (tau <= power))
        assert np.all(np.isfinite(eta))
        # The tilted mean is m + v d1.
        np.testing.assert_allclose((m / v + eta) / (1.0 / v + tau), m + v * d1, rtol=1e-6)


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
    blocks = column_blocks(group_of)
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


@pytest.mark.parametrize("power", [1e-3, 0.3, 0.9, 1.0])
def test_a_part_of_a_label_has_the_moments_of_its_integral(power):
    m, v = np.array([0.0, 2.0, -4.0, 1.0, 30.0, -9.0]), np.array([1.0, 0.1, 3.0, 100.0, 5.0, 1.0])
    found = tilted(m, v, np.full(6, power))
    for i in range(6):
        f = np.linspace(m[i] - 14 * np.sqrt(v[i]), m[i] + 14 * np.sqrt(v[i]), 200_001)
        p = np.exp(power * log_ndtr(f) - 0.5 * (f - m[i]) ** 2 / v[i]) / np.sqrt(2 * np.pi * v[i])
        Z = trapezoid(p, f)
        mean = trapezoid(p * f, f) / Z
        variance = trapezoid(p * (f - mean) ** 2, f) / Z
        assert found[0][i] == pytest.approx(np.log(Z), abs=1e-8)
        assert found[1][i] * v[i] == pytest.approx(mean - m[i], abs=1e-7)
        assert found[2][i] * v[i] ** 2 == pytest.approx(variance - v[i], rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("power", [1e-6, 1e-2, 0.5])
def test_a_part_of_a_label_is_integrated_under_a_wide_cavity(power):
    # Phi changes within a few units, which are a small part of the density.
    m, v = np.array([0.0, 900.0, -900.0, 40.0, -3.0]), np.array([1e6, 1e6, 1e6, 1e3, 1e4])
    log_Z, d1, d2 = tilted(m, v, np.full(5, power))
    nodes, weights = np.polynomial.legendre.leggauss(8)
    for i in range(5):
        ends = m[i] + np.sqrt(v[i]) * np.linspace(-14, 14, 2001)
        ends = np.unique(np.concatenate([ends, np.linspace(-40, 40, 401)]))
        half = 0.5 * np.diff(ends)[:, None]
        f = (ends[:-1, None] + half * (1.0 + nodes)).ravel()
        w = (half * weights).ravel() * np.exp(-0.5 * (f - m[i]) ** 2 / v[i] + power * log_ndtr(f))
        Z = w.sum() / np.sqrt(2 * np.pi * v[i])
        mean = w @ f / w.sum()
        variance = w @ (f - mean) ** 2 / w.sum()
        assert log_Z[i] == pytest.approx(np.log(Z), abs=1e-7)
        assert d1[i] * np.sqrt(v[i]) == pytest.approx((mean - m[i]) / np.sqrt(v[i]), abs=1e-7)
        assert d2[i] * v[i] == pytest.approx(variance / v[i] - 1.0, abs=1e-6)


@pytest.mark.parametrize("power", [0.64, 1e-3])
def test_a_part_of_a_label_far_on_the_other_side_has_finite_moments(power):
    # Where Phi is least like a Gaussian to the last digit, Newton went past the mode and back.
    m, v = (x.ravel() for x in np.meshgrid(-np.logspace(0, 9, 500), np.logspace(-2, 8, 11)))
    log_Z, d1, d2 = tilted(m, v, np.full(len(m), power))
    assert np.all(np.isfinite(log_Z))
    # A flat density in the tail, where log Phi(f) is -f^2/2, is a product of Gaussians.
    tail = (m < -1e3) & (m > -1e6) & (v < 1.0)
    np.testing.assert_allclose(d1[tail], (-power * m / (1.0 + power * v))[tail], rtol=1e-4)
    np.testing.assert_allclose(d2[tail], (-power / (1.0 + power * v))[tail], rtol=1e-4)


@pytest.mark.parametrize("n", [8, 30])  # through rows, through columns
@pytest.mark.parametrize("learn", [(), ("inclusion_prior", "slab_variance")])
def test_whole_weights_are_equal_rows(n, learn):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 12))
    t = np.sign(X[:, 0] + 0.5 * rng.standard_normal(n))
    weight = rng.integers(1, 5, n)
    settings = {"learn": learn, "tol": 1e-9}
    weighted, repeated = (
        ProbitGroupEP(np.arange(12) // 3, 0.3, 1.0, **settings, weight=w) for w in (weight, None)
    )
    ours = run(weighted, DenseDesign(X), t, max_iter=300)
    design, labels = DenseDesign(np.repeat(X, weight, axis=0)), np.repeat(t, weight)
    theirs = run(repeated, design, labels, max_iter=300)
    assert ours.n_iter == theirs.n_iter
    for name in ("log_evidence", "slab_variance", "expected_groups"):
        np.testing.assert_allclose(ours.history[name], theirs.history[name], rtol=1e-6)
    p = weighted.posterior(ours.state, DenseDesign(X), t)
    q = repeated.posterior(theirs.state, design, labels)
    np.testing.assert_allclose(p.mean, q.mean, atol=1e-7)
    np.testing.assert_allclose(p.covariance, q.covariance, atol=1e-7)


@pytest.mark.parametrize(
    ("n", "most", "error"),
    [(1, 1.0, 1e-8), (10, 1.0, 0.02), (10, 2.5, 0.03)],  # EP is exact for one site
)
def test_any_weights_are_powers_of_the_likelihood(n, most, error):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, 2))
    t = np.sign(X[:, 0] + 0.5 * rng.standard_normal(n))
    weight = rng.uniform(0.05, most, n)
    solver = ProbitGroupEP(np.zeros(2, dtype=int), 1.0, 1.0, tol=1e-9, weight=weight)
    result = run(solver, DenseDesign(X), t, max_iter=300)
    posterior = solver.posterior(result.state, DenseDesign(X), t)
    x = np.linspace(-7, 7, 401)
    w = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2)
    log_p = log_ndtr((w @ X.T) * t) @ weight - 0.5 * np.sum(w**2, axis=1) - np.log(2 * np.pi)
    p = np.exp(log_p) * (x[1] - x[0]) ** 2
    assert posterior.log_evidence == pytest.approx(np.log(p.sum()), abs=error)
    mean = p @ w / p.sum()
    np.testing.assert_allclose(posterior.mean, mean, atol=error)
    V = (w - mean).T @ ((w - mean) * p[:, None]) / p.sum()
    np.testing.assert_allclose(posterior.covariance, V, atol=2 * error)


def test_a_part_of_a_label_far_from_zero_has_the_moments_of_a_tail_or_of_nothing():
    # Nodes of the sum around 1e18 are equal in float64: 0/0.
    v, power = np.array([1e-4, 0.8, 50.0]), np.array([0.3, 1e-6, 0.9])
    for value in tilted(np.full(3, 1e18), v, power):
        np.testing.assert_allclose(value, 0.0, atol=1e-10)
    log_Z, d1, d2 = tilted(np.full(3, -1e18), v, power)
    np.testing.assert_allclose(log_Z, -0.5e36 * power / (1.0 + power * v))
    np.testing.assert_allclose(d1, 1e18 * power / (1.0 + power * v))
    np.testing.assert_allclose(d2, -power / (1.0 + power * v))
    # Both sides of where the tail is taken for a Gaussian one.
    at = -1e5 * (1.0 + power * v)
    near, far = tilted(0.9999999 * at, v, power), tilted(1.0000001 * at, v, power)
    np.testing.assert_allclose(near, far, rtol=1e-6)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_part_of_a_label_under_a_cavity_narrower_than_its_digits_is_taken_at_its_mean():
    m = np.array([10.9, 1.0, 0.0, -3.0, -30.0])
    log_Z, d1, d2 = tilted(m, np.full(5, 1e-300), np.full(5, 0.2))
    ratio = np.exp(-0.5 * m**2 - log_ndtr(m)) / np.sqrt(2.0 * np.pi)
    np.testing.assert_allclose(log_Z, 0.2 * log_ndtr(m), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(d1, 0.2 * ratio, rtol=1e-9)
    np.testing.assert_allclose(d2, -0.2 * ratio * (m + ratio), rtol=1e-9)
