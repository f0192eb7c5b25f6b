import numpy as np
import pytest
from scipy.sparse import csr_array

from sparsebayes.linalg.blocks import cholesky, partition, triangle_inverse
from sparsebayes.posterior_wide import DrawsPosterior, WidePosterior


def _wide():
    rng = np.random.default_rng(0)
    blocks = partition(np.array([0, 1, 0, 2, 2, 1, 0]))
    half = [rng.standard_normal((len(b.owner), b.size, b.size)) for b in blocks.buckets]
    W = np.linalg.qr(rng.standard_normal((7, 3)))[0].T * np.array([[0.9], [0.5], [0.1]])
    F = np.zeros((7, 7))
    for b, block in zip(blocks.buckets, half, strict=True):
        for columns, part in zip(b.columns, block, strict=True):
            F[np.ix_(columns, columns)] = part.T
    middle = np.eye(7)
    order = blocks.order
    middle[np.ix_(order, order)] -= W.T @ W
    posterior = WidePosterior(
        rng.standard_normal(7), blocks, half, W, 0.3, -1.0, offset=2.0, offset_scale=0.1
    )
    return posterior, F @ middle @ F.T, rng


def test_wide_posterior_is_its_dense_covariance():
    posterior, V, rng = _wide()
    Phi = rng.standard_normal((5, 7))
    np.testing.assert_allclose(posterior.covariance, V, atol=1e-12)
    np.testing.assert_allclose(posterior.multiply(Phi[0]), V @ Phi[0], atol=1e-12)
    mean, variance = posterior.predict(Phi)
    np.testing.assert_allclose(mean, Phi @ posterior.mean + 2.0)
    spread = Phi @ V @ Phi.T
    np.testing.assert_allclose(variance, np.diag(spread) + 0.3 * 1.1, atol=1e-12)
    joint = posterior.predict_covariance(Phi)
    np.testing.assert_allclose(joint, spread + 0.03 + 0.3 * np.eye(5), atol=1e-12)
    np.testing.assert_allclose(
        posterior.predict_covariance(Phi, noise=False), spread + 0.03, atol=1e-12
    )


def test_wide_draws_have_the_predictive_moments():
    posterior, _, rng = _wide()
    Phi = rng.standard_normal((3, 7))
    draws = posterior.sample(Phi, 60_000, rng)
    np.testing.assert_allclose(draws.mean(axis=1), posterior.predict(Phi)[0], atol=0.1)
    covariance = posterior.predict_covariance(Phi)
    np.testing.assert_allclose(np.cov(draws), covariance, atol=0.05 * np.max(covariance))


def test_rescaling_is_a_change_of_units():
    posterior, _, rng = _wide()
    Phi = rng.standard_normal((3, 7))
    mean, variance = posterior.predict(Phi)
    scaled = posterior.rescaled(10.0, n_observations=4)
    np.testing.assert_allclose(scaled.predict(Phi), (10 * mean, 100 * variance))
    assert scaled.log_evidence == pytest.approx(-1.0 - 4 * np.log(10))


def test_draws_posterior_reports_the_moments_of_its_draws():
    rng = np.random.default_rng(1)
    draws = rng.standard_normal((500, 4)) @ rng.standard_normal((4, 4))
    Phi = rng.standard_normal((3, 4))
    V = np.cov(draws.T, bias=True)
    for kept in (draws, csr_array(draws)):
        posterior = DrawsPosterior(draws.mean(axis=0), kept, 0.5, offset=1.0, offset_scale=0.2)
        np.testing.assert_allclose(posterior.covariance, V, atol=1e-10)
        np.testing.assert_allclose(posterior.multiply(Phi.T), V @ Phi.T, atol=1e-10)
        variance = np.diag(Phi @ V @ Phi.T) + 0.5 * 1.2
        np.testing.assert_allclose(posterior.predict(Phi)[1], variance)
        np.testing.assert_allclose(np.diag(posterior.predict_covariance(Phi)), variance)
        without = posterior.predict_covariance(Phi, noise=False)  # the intercept's variance stays
        np.testing.assert_allclose(without, Phi @ V @ Phi.T + 0.5 * 0.2, atol=1e-10)
        samples = posterior.sample(Phi, 20_000, rng)
        np.testing.assert_allclose(samples.var(axis=1), variance, rtol=0.1)


def test_batched_factors_are_those_of_lapack_and_mark_what_has_none():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((6, 4, 4))
    A = A @ A.swapaxes(1, 2)
    A[2] -= 5 * np.eye(4)
    R = cholesky(A)
    assert np.isnan(R[2, -1, -1])
    good = np.delete(np.arange(6), 2)
    np.testing.assert_allclose(R[good], np.linalg.cholesky(A[good]), atol=1e-10)
    inverse = triangle_inverse(R[good])
    np.testing.assert_allclose(inverse @ R[good], np.broadcast_to(np.eye(4), (5, 4, 4)), atol=1e-8)


@pytest.mark.parametrize("sites", ["group", "column"])
def test_partition_keeps_every_column_once_and_in_its_group(sites):
    group_of = np.random.default_rng(0).permutation(np.repeat(np.arange(5), [1, 3, 2, 3, 1]))
    blocks = partition(group_of, sites)
    np.testing.assert_array_equal(np.sort(blocks.order), np.arange(10))
    np.testing.assert_array_equal(blocks.order, partition(group_of).order)
    for bucket in blocks.buckets:
        assert np.all(group_of[bucket.columns] == bucket.owner[:, None])
    values = np.arange(10.0)
    np.testing.assert_array_equal(blocks.merge(blocks.split(values)), values)
