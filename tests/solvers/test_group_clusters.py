from math import comb

import numpy as np
import pytest

from sparsebayes import GroupSpikeSlabClassifier, GroupSpikeSlabRegressor
from sparsebayes.designs import DenseDesign
from sparsebayes.solvers import GroupEP, run
from sparsebayes.solvers.group.clusters import find_clusters, fit_cluster, models
from sparsebayes.solvers.group.search import search
from tests.group_helpers import enumerate_models, random_problem


def _alike(seed, r, n=40, sizes=(1, 2, 2, 1), noise=1.0):
    """Groups that share most of one direction; the second is active."""
    rng = np.random.default_rng(seed)
    group_of = np.repeat(np.arange(len(sizes)), sizes)
    X = np.sqrt(r) * rng.standard_normal((n, 1)) + np.sqrt(1.0 - r) * rng.standard_normal(
        (n, len(group_of))
    )
    y = X @ np.where(group_of == 1, 0.7, 0.0) + noise * rng.standard_normal(n)
    return X, y, group_of


@pytest.mark.parametrize("r", [0.9, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_cluster_of_all_groups_is_exact(seed, r):
    X, y, group_of = _alike(seed, r)
    p0, v0 = np.array([0.1, 0.3, 0.2, 0.4]), np.array([1.0, 0.5, 2.0, 1.0])
    solver = GroupEP(group_of, p0, v0, 0.8, tol=1e-9, cluster_of=np.zeros(4, dtype=int))
    result = run(solver, DenseDesign(X), y, max_iter=300)
    assert result.converged
    inclusion, mean, variance, evidence = enumerate_models(X, y, group_of, p0, v0, 0.8)
    np.testing.assert_allclose(result.state.inclusion_probability, inclusion, atol=1e-7)
    posterior = solver.posterior(result.state, DenseDesign(X), y)
    np.testing.assert_allclose(posterior.mean, mean, atol=1e-7)
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-6)
    if result.history["n_clamped"][-1] == 0:  # else the mean alone can be matched
        np.testing.assert_allclose(posterior.form.variance(np.eye(len(mean))), variance, rtol=1e-4)


@pytest.mark.parametrize("rows", [30, 8])
def test_gradients_of_the_evidence_match_finite_differences(rows):
    X, y, group_of = _alike(2, 0.5, n=rows, sizes=(2, 1, 2, 1, 3, 2))
    clusters = np.array([0, 0, 0, 3, 4, 3])

    def state(p0, v0):
        solver = GroupEP(group_of, p0, v0, 1.0, tol=1e-10, cluster_of=clusters)
        result = run(solver, DenseDesign(X), y, max_iter=500)
        assert result.converged
        assert result.history["n_clamped"][-1] == 0
        return result.state, solver.posterior(result.state, DenseDesign(X), y).log_evidence

    h = 1e-4
    middle, _ = state(0.2, 1.0)
    odds = np.log(0.25) + np.array([h, -h])
    up, down = (state(1.0 / (1.0 + np.exp(-x)), 1.0)[1] for x in odds)
    assert middle.sites.inclusion_gradient().sum() == pytest.approx((up - down) / (2 * h), abs=1e-4)
    up, down = (state(0.2, np.exp(x))[1] for x in (h, -h))
    assert middle.sites.slab_gradient().sum() == pytest.approx((up - down) / (2 * h), abs=1e-4)


def test_clusters_are_of_near_duplicates_whatever_their_sign_and_scale():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 9))
    X[:, 4] = -3.0 * X[:, 0]
    X[:, 7] = X[:, 2] + 0.1 * rng.standard_normal(60)
    found = find_clusters(DenseDesign(X), X[:, 0], np.arange(9))
    assert found.tolist() == [0, 1, 2, 3, 0, 5, 6, 2, 8]
    assert find_clusters(DenseDesign(X[:5]), X[:5, 0], np.arange(9))[[0, 4]].tolist() == [0, 0]


def test_chance_correlations_make_no_clusters():
    X = np.random.default_rng(0).standard_normal((12, 300))
    clusters = find_clusters(DenseDesign(X), X[:, 0], np.arange(300))
    assert np.sum(clusters != np.arange(300)) <= 5  # the threshold is what one pair reaches


def test_of_many_columns_those_are_compared_that_matter():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 3000))
    X[:, 2999] = X[:, 5]
    assert find_clusters(DenseDesign(X), X[:, 5], np.arange(3000))[2999] == 5


def test_large_clusters_have_few_models():
    assert [len(models(c)) for c in (2, 7, 9, 30)] == [3, 127, 129, 465]
    assert models(30).sum(axis=1).max() == 2


def test_large_clusters_weigh_what_the_small_ones_do():
    # Ten copies of one column: the models with one or two of them, by hand.
    B, r = np.full((1, 10, 10), 3.0), np.full((1, 10), 4.0)
    fit = fit_cluster(B, r, np.ones((1, 10)), np.full((1, 10), -3.0), np.arange(10))
    one = 10 * np.exp(-3.0 + 0.5 * 16 / 4.0) / 2.0
    two = 45 * np.exp(-6.0 + 0.5 * 2 * 16 / 7.0) / np.sqrt(7.0)
    prior = 10 * np.exp(-3.0) + 45 * np.exp(-6.0)
    assert fit.log_bayes_factor[0] == pytest.approx(np.log((one + two) / prior))
    np.testing.assert_allclose(fit.inclusion[0], (one + 2 * two) / (one + two) / 10)


@pytest.mark.parametrize("rows", [4, 30])
@pytest.mark.parametrize("copies", [2, 3, 6])
def test_copies_of_a_column_that_is_the_target_are_weighed_exactly(copies, rows):
    x, noise, p0 = np.random.default_rng(0).standard_normal(rows), 1e-10, 0.2
    square = x @ x
    # With m copies in their sum is N(0, m), and so is the target along x.
    m = np.arange(copies + 1)
    evidence = np.array([np.log(comb(copies, i)) for i in m])
    evidence += m * np.log(p0) + (copies - m) * np.log1p(-p0)
    evidence -= 0.5 * np.log1p(m * square / noise) + 0.5 * square / (noise + m * square)
    weight = np.exp(evidence - np.logaddexp.reduce(evidence))
    exact = np.logaddexp.reduce(evidence) - 0.5 * rows * np.log(2.0 * np.pi * noise)

    design = DenseDesign(np.repeat(x[:, None], copies, axis=1))
    solver = GroupEP(np.arange(copies), p0, 1.0, noise, cluster_of=np.zeros(copies, dtype=int))
    found = search(solver, design, x)
    for trial in found.trials:  # one of them cooled on the way through all levels of noise
        assert trial.result.converged
        assert trial.evidence == pytest.approx(exact, abs=1e-3)
        inclusion = trial.state.inclusion_probability
        np.testing.assert_allclose(inclusion, weight @ m / copies, atol=1e-3)
        assert trial.state.sites.mean.sum() == pytest.approx(1.0, abs=1e-6)


def _copies(seed, copies=3, clusters=8, n=80):
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.standard_normal((n, clusters)), copies, axis=1)
    return X, 1.5 * (X[:, 0] - X[:, copies]) + rng.standard_normal(n)


@pytest.mark.parametrize("seed", range(4))
def test_copies_of_an_active_column_come_as_one_set_with_everything_learnt(seed):
    X, y = _copies(seed)
    model = GroupSpikeSlabRegressor().fit(X, y)
    assert model.converged_
    assert sorted(s.tolist() for s in model.credible_sets()) == [[0, 1, 2], [3, 4, 5]]
    p = model.inclusion_probability_[:6].reshape(2, 3)
    np.testing.assert_allclose(p, p[:, :1] + np.zeros(3), atol=1e-6)


def test_many_copies_are_one_set_though_not_all_models_are_weighed():
    X, y = _copies(1, copies=12, clusters=5)
    model = GroupSpikeSlabRegressor().fit(X, y)
    assert model.converged_
    sets = sorted(s.tolist() for s in model.credible_sets())
    assert sets == [list(range(12)), list(range(12, 24))]


def test_a_large_cluster_with_many_groups_in_is_taken_apart():
    X, y, group_of, *known = random_problem(
        np.random.default_rng(0)
    )  # nine groups, five of them in
    names = ("inclusion_prior", "slab_variance", "noise_variance")
    model = GroupSpikeSlabRegressor(
        group_of, fit_intercept=False, **dict(zip(names, known, strict=True))
    ).fit(X, y)
    exact = enumerate_models(X, y, group_of, *known)
    np.testing.assert_allclose(model.inclusion_probability_, exact[0], atol=1e-3)
    assert model.log_evidence_ == pytest.approx(exact[3], abs=1e-3)


def test_copies_in_the_columns_of_labels_are_one_set():
    X, y = _copies(2, n=150)
    model = GroupSpikeSlabClassifier().fit(X, y > 0)
    assert model.converged_
    assert sorted(s.tolist() for s in model.credible_sets()) == [[0, 1, 2], [3, 4, 5]]
