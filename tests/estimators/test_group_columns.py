"""Columns in several groups, and columns that are always in the model."""

import numpy as np
import pytest

from sparsebayes import GroupSpikeSlabClassifier, GroupSpikeSlabRegressor, SequentialDesign
from tests.group_helpers import enumerate_models

LISTS = [[0, 1], [1, 2, 3], [3], [4, 5], [5, 0]]
COPIES, GROUP_OF = np.concatenate(LISTS), np.repeat(np.arange(5), [2, 3, 1, 2, 2])


def _data(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6))
    return X, X[:, 1:4] @ [1.0, -1.0, 2.0] + rng.standard_normal(n)


@pytest.mark.parametrize("n", [60, 5])
@pytest.mark.parametrize("model", [GroupSpikeSlabRegressor, GroupSpikeSlabClassifier])
def test_a_shared_column_is_a_column_copied(model, n):
    X, y = _data(n)
    if model is GroupSpikeSlabClassifier:
        y = y > np.median(y)
    ours = model(LISTS).fit(X, y)
    copied = model(GROUP_OF).fit(X[:, COPIES], y)
    for name in ("inclusion_probability_", "log_evidence_", "inclusion_prior_", "slab_variance_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(copied, name), rtol=1e-6, atol=1e-9)
    summed = np.zeros((*np.shape(copied.coef_)[:-1], 6))
    np.add.at(summed, (..., COPIES), copied.coef_)
    np.testing.assert_allclose(ours.coef_, summed, rtol=1e-6, atol=1e-9)
    rows = np.random.default_rng(1).standard_normal((4, 6))
    np.testing.assert_allclose(ours.predict(rows), copied.predict(rows[:, COPIES]), rtol=1e-6)
    probability = ours.inclusion_probability_
    wanted = [max(probability[g] for g in range(5) if j in LISTS[g]) > 0.5 for j in range(6)]
    assert ours.get_support().tolist() == wanted


CHAIN = [[0, 1, 2], [2, 3], [3, 4, 5], [0, 5]]


def _chain_fit_and_truth(seed, **settings):
    """A fit of four groups in a chain of shared columns, and the sum over their 16 models."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 6))
    y = 1.0 + X[:, 2] + 0.8 * X[:, 3] + 0.5 * rng.standard_normal(30)
    model = GroupSpikeSlabRegressor(
        CHAIN, inclusion_prior=0.3, slab_variance=1.0, noise_variance=0.25, **settings
    ).fit(X, y)
    # An intercept that is integrated out leaves the rows that are orthogonal to it.
    Q = np.linalg.svd(np.ones((30, 1)))[0][:, 1:]
    columns, group_of = np.concatenate(CHAIN), np.repeat(np.arange(4), [3, 2, 3, 2])
    truth = enumerate_models(Q.T @ X[:, columns], Q.T @ y, group_of, 0.3, 1.0, 0.25)
    return model, truth[0], truth[3] - 0.5 * np.log(30)


@pytest.mark.parametrize("anneal", ["auto", True, False])
def test_evidence_of_all_models_does_not_depend_on_sites_that_diverge(anneal):
    model, inclusion, evidence = _chain_fit_and_truth(501, anneal=anneal)
    assert evidence == pytest.approx(-32.93, abs=0.01)
    assert model.log_evidence_ == pytest.approx(evidence, abs=1e-9)
    np.testing.assert_allclose(model.inclusion_probability_, inclusion, atol=1e-9)
    assert model.converged_


@pytest.mark.slow
@pytest.mark.parametrize("anneal", ["auto", False])
def test_evidence_of_all_models_is_exact_on_a_hundred_draws(anneal):
    for seed in range(450, 550):
        model, inclusion, evidence = _chain_fit_and_truth(seed, anneal=anneal)
        assert model.log_evidence_ == pytest.approx(evidence, abs=1e-8)
        np.testing.assert_allclose(model.inclusion_probability_, inclusion, atol=1e-8)


@pytest.mark.parametrize("n", [60, 8])
def test_the_variance_of_a_shared_column_is_that_of_the_sum_of_its_copies(n):
    X, y = _data(n)
    settings = {"inclusion_prior": 0.3, "slab_variance": 1.0, "noise_variance": 1.0}
    model = GroupSpikeSlabRegressor(LISTS, fit_intercept=False, **settings).fit(X, y)
    std = model.predict(np.eye(6), return_std="function")[1]
    np.testing.assert_allclose(model.coef_std_, std, rtol=1e-6, atol=1e-9)
    exact = enumerate_models(X[:, COPIES], y, GROUP_OF, 0.3, 1.0, 1.0)
    np.testing.assert_allclose(model.inclusion_probability_, exact[0], atol=1e-3)
    np.testing.assert_allclose(model.coef_, np.bincount(COPIES, weights=exact[1]), atol=1e-3)


def test_a_design_over_shared_columns_asks_for_rows_of_x():
    X, y = _data(20)
    plan = SequentialDesign(GroupSpikeSlabRegressor(LISTS), X, y)
    x = plan.ask(norm=2.0)
    assert x.shape == (1, 6)
    others = np.random.default_rng(0).standard_normal((200, 6))
    others *= 2.0 / np.linalg.norm(others, axis=1, keepdims=True)
    best, rest = (plan.model_.predict(rows, return_std=True)[1] for rows in (x, others))
    assert best[0] >= rest.max() * (1.0 - 1e-3)


def test_no_group_may_name_a_column_twice():
    X, y = _data()
    with pytest.raises(ValueError, match="contains column 1 twice"):
        GroupSpikeSlabRegressor([[0, 1, 1], [2, 3, 4, 5]]).fit(X, y)
    with pytest.raises(ValueError, match="omits 1 of 6"):
        GroupSpikeSlabRegressor([[0, 1], [1, 2, 3, 4]]).fit(X, y)


@pytest.mark.parametrize("inference", ["ep", "gibbs"])
@pytest.mark.parametrize("n", [60, 8])
def test_a_group_that_is_always_in_has_a_prior_of_one(inference, n):
    X, y = _data(n)
    group_of, v0 = np.arange(6) // 2, np.array([1.0, 0.5, 4.0])
    settings = {"n_samples": 2000, "n_chains": 2} if inference == "gibbs" else {}
    model = GroupSpikeSlabRegressor(
        group_of,
        inclusion_prior=0.2,
        slab_variance=v0,
        noise_variance=1.0,
        always=[2],
        inference=inference,
        fit_intercept=False,
        **settings,
    ).fit(X, y)
    p0 = np.array([0.2, 0.2, 1.0 - 1e-12])
    exact = enumerate_models(X, y, group_of, p0, v0, 1.0)
    atol = 0.03 if inference == "gibbs" else 1e-4
    np.testing.assert_allclose(model.inclusion_probability_, exact[0], atol=atol)
    np.testing.assert_allclose(model.coef_, exact[1], atol=2.0 * atol)
    if inference == "ep":
        assert model.log_evidence_ == pytest.approx(exact[3], abs=1e-3)


def test_covariates_are_nearly_least_squares_and_leave_the_learning_alone():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 21))
    y = 2.0 * X[:, 0] + 0.01 * X[:, 20] + 0.5 * rng.standard_normal(200)
    plain = GroupSpikeSlabRegressor().fit(X[:, :20], y)
    model = GroupSpikeSlabRegressor(always=[20]).fit(X, y)
    assert model.inclusion_probability_[20] == 1.0
    least = np.linalg.lstsq(np.column_stack([np.ones(200), X[:, [0, 20]]]), y, rcond=None)[0]
    assert model.coef_[20] == pytest.approx(least[2], abs=5e-3)
    assert model.inclusion_prior_[0] == pytest.approx(plain.inclusion_prior_, rel=0.1)
    assert model.slab_variance_[0] == pytest.approx(plain.slab_variance_, rel=0.1)
    assert model.select(0.1).tolist() == [0]
    assert [s.tolist() for s in model.credible_sets()] == [[0]]


def test_covariates_of_labels_are_always_in():
    X, y = _data(150)
    names = np.array(list("aabbcc"))
    model = GroupSpikeSlabClassifier(names, always=["c"]).fit(X, y > 0)
    assert model.inclusion_probability_[2] > 1.0 - 1e-12
    assert np.all(np.abs(model.coef_[0, 4:]) > 0)
    assert "c" not in model.select(0.5)


def test_always_says_what_it_does_not_know():
    X, y = _data()
    with pytest.raises(ValueError, match="always contains 7, which is not a group"):
        GroupSpikeSlabRegressor(always=[7]).fit(X, y)
    with pytest.raises(ValueError, match="nothing to select"):
        GroupSpikeSlabRegressor(np.zeros(6), always=[0.0]).fit(X, y)
