"""Each form of a covariance is its dense matrix, and `Posterior` is written once for them all."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from sparsebayes.linalg.blocks import column_blocks
from sparsebayes.posterior import BlockLowRank, Dense, Diagonal, Draws, Posterior, Revised, revise

D = 7  # weights


def _block_low_rank(rng, low_noise=False):
    blocks = column_blocks(np.array([0, 1, 0, 2, 2, 1, 0]))
    half = [rng.standard_normal((len(b.owner), b.size, b.size)) for b in blocks.buckets]
    W = np.linalg.qr(rng.standard_normal((D, 3)))[0].T * np.array([[0.9], [0.5], [0.1]])
    F = np.zeros((D, D))
    for b, block in zip(blocks.buckets, half, strict=True):
        for columns, part in zip(b.columns, block, strict=True):
            F[np.ix_(columns, columns)] = part.T
    middle, S = np.eye(D), None
    if low_noise:
        W, S = np.linalg.qr(W.T)[0].T, 0.1 * rng.standard_normal((3, 3))
        middle[np.ix_(blocks.order, blocks.order)] += W.T @ S @ S.T @ W
    middle[np.ix_(blocks.order, blocks.order)] -= W.T @ W
    return BlockLowRank(blocks, half, W, S), F @ middle @ F.T


def _form(name):
    """A form, and the matrix that it stands for."""
    rng = np.random.default_rng(0)
    root = rng.standard_normal((D, D))
    if name == "dense":
        return Dense(root, 0.3), 0.3 * root @ root.T
    if name == "low rank":
        return Dense(root[:, :2], 0.3), 0.3 * root[:, :2] @ root[:, :2].T
    if name == "without variance":
        return Dense(root[:, :0], 0.3), np.zeros((D, D))
    if name == "diagonal":
        return Diagonal(root[0], 0.3), 0.3 * np.diag(root[0] ** 2)
    if name in ("block low rank", "at low noise"):
        return _block_low_rank(rng, low_noise=name == "at low noise")
    if name in ("draws", "sparse draws"):
        draws = rng.standard_normal((500, D)) @ root
        kept = csr_array(draws) if name == "sparse draws" else draws
        return Draws(kept, draws.mean(axis=0)), np.cov(draws.T, bias=True)
    columns, R = np.array([1, 4]), rng.standard_normal((2, 2))
    base, V = _block_low_rank(rng) if name == "revised blocks" else (Dense(root), root @ root.T)
    G = np.linalg.solve(V[np.ix_(columns, columns)], V[columns]).T
    A = np.eye(D)
    A[:, columns] -= G
    return Revised(base, columns, G, R), A @ V @ A.T + G @ R @ R.T @ G.T


FORMS = [
    "dense",
    "diagonal",
    "block low rank",
    "at low noise",
    "low rank",
    "without variance",
    "draws",
    "sparse draws",
    "revised",
    "revised blocks",
]


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_its_matrix(name):
    form, V = _form(name)
    Phi = np.random.default_rng(1).standard_normal((5, D))
    near = {"atol": 1e-11 * np.max(V), "rtol": 0}
    np.testing.assert_allclose(form.variance(Phi), np.diag(Phi @ V @ Phi.T), **near)
    np.testing.assert_allclose(form.between(Phi), Phi @ V @ Phi.T, **near)
    np.testing.assert_allclose(form.multiply(Phi[0]), V @ Phi[0], **near)
    np.testing.assert_allclose(form.multiply(Phi.T), V @ Phi.T, **near)
    np.testing.assert_allclose(form.rescaled(10.0).between(Phi), 100 * form.between(Phi), **near)


@pytest.mark.parametrize("name", FORMS)
def test_a_posterior_predicts_with_noise_intercept_and_weights(name):
    form, V = _form(name)
    rng = np.random.default_rng(2)
    mean, centre = rng.standard_normal(D), rng.standard_normal(D)
    posterior = Posterior(mean, form, 0.3, -1.0, offset=2.0, offset_variance=0.03, centre=centre)
    Phi = rng.standard_normal((3, D))
    function = (Phi - centre) @ V @ (Phi - centre).T + 0.03
    near = {"atol": 1e-11 * np.max(V), "rtol": 0}
    np.testing.assert_allclose(posterior.covariance, V, **near)
    m, variance = posterior.predict(Phi)
    np.testing.assert_allclose(m, (Phi - centre) @ mean + 2.0)
    np.testing.assert_allclose(posterior.intercept, 2.0 - centre @ mean)
    np.testing.assert_allclose(variance, np.diag(function) + 0.3, **near)
    np.testing.assert_allclose(posterior.predict_covariance(Phi, noise=False), function, **near)
    joint = posterior.predict_covariance(Phi)
    np.testing.assert_allclose(joint, function + 0.3 * np.eye(3), **near)

    draws = posterior.sample(Phi, 60_000, rng)
    tolerance = 0.03 * np.max(np.abs(joint))
    np.testing.assert_allclose(draws.mean(axis=1), m, atol=np.sqrt(tolerance) / 3)
    np.testing.assert_allclose(np.cov(draws), joint, atol=tolerance)

    scaled = posterior.rescaled(10.0, n_observations=4)
    np.testing.assert_allclose(scaled.predict(Phi), (10 * m, 100 * variance))
    assert scaled.log_evidence == pytest.approx(-1.0 - 4 * np.log(10))


def test_several_outputs_share_the_form_and_keep_their_own_noise():
    rng = np.random.default_rng(3)
    root, noise = rng.standard_normal((D, D)), np.array([0.3, 2.0])
    mean, Phi = rng.standard_normal((D, 2)), rng.standard_normal((4, D))
    both = Posterior(mean, Dense(root, noise), noise, 0.0, np.array([1.0, -1.0]), 0.1 * noise)
    joint, draws = both.predict_covariance(Phi), both.sample(Phi, 40_000, rng)
    assert draws.shape == (4, 2, 40_000)
    for j, offset in enumerate(both.offset):
        one = Posterior(mean[:, j], Dense(root, noise[j]), noise[j], 0.0, offset, 0.1 * noise[j])
        for ours, theirs in zip(both.predict(Phi), one.predict(Phi), strict=True):
            np.testing.assert_allclose(ours[:, j], theirs)
        np.testing.assert_allclose(joint[..., j], one.predict_covariance(Phi))
        np.testing.assert_allclose(both.covariance[..., j], one.covariance)
        np.testing.assert_allclose(
            np.cov(draws[:, j]), joint[..., j], atol=0.03 * np.max(joint[..., j])
        )


def test_a_revision_gives_the_asked_moments_to_the_weights_it_names():
    rng = np.random.default_rng(4)
    root = rng.standard_normal((D, D))
    base = Posterior(rng.standard_normal(D), Dense(root), 0.3, -1.0)
    columns, mean = np.array([2, 5]), np.array([7.0, -7.0])
    V = np.array([[2.0, 0.5], [0.5, 1.0]])
    revised, variance = revise(base, np.diag(root @ root.T), columns, mean, V)
    np.testing.assert_allclose(revised.mean[columns], mean)
    np.testing.assert_allclose(revised.covariance[np.ix_(columns, columns)], V, atol=1e-12)
    np.testing.assert_allclose(np.diag(revised.covariance), variance, atol=1e-10)
    # The same moments again change nothing.
    same = base.covariance[np.ix_(columns, columns)]
    again, _ = revise(base, variance, columns, base.mean[columns], same)
    np.testing.assert_allclose(again.covariance, base.covariance, atol=1e-10)
