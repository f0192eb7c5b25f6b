import itertools

import numpy as np
import pytest

from sparsebayes import GroupSpikeSlabClassifier, GroupSpikeSlabRegressor
from sparsebayes.solvers.group.clusters import group_correlation
from sparsebayes.solvers.group.credible_sets import credible_sets, select
from sparsebayes.solvers.group.models import Models


def _random_models(seed, count=6):
    rng = np.random.default_rng(seed)
    chosen = np.array(list(itertools.product([False, True], repeat=count)))
    weight = rng.dirichlet(np.full(len(chosen), 0.05))
    return Models(np.arange(count), chosen, weight)


@pytest.mark.parametrize("seed", range(10))
def test_each_set_holds_an_active_group_as_often_as_asked_and_needs_all_it_has(seed):
    models = _random_models(seed)
    inclusion = models.weight @ models.chosen
    for found in credible_sets(inclusion, [(models, np.ones((6, 6)))], 0.9, 0.0):
        inside = found.groups
        probability = models.weight @ models.chosen[:, inside].any(axis=1)
        assert found.probability == pytest.approx(probability)
        assert probability >= 0.9
        for g in inside:
            fewer = inside[inside != g]
            if len(fewer):
                assert models.weight @ models.chosen[:, fewer].any(axis=1) < 0.9


def test_no_group_is_in_two_sets():
    models = _random_models(1)
    sets = credible_sets(models.weight @ models.chosen, [(models, np.ones((6, 6)))], 0.6, 0.0)
    members = np.concatenate([s.groups for s in sets])
    assert len(members) == len(np.unique(members))


def test_groups_that_are_no_near_duplicates_make_no_set():
    models = Models(np.arange(2), np.array([[True, False], [False, True]]), np.array([0.5, 0.5]))
    apart = np.array([[1.0, 0.3], [0.3, 1.0]])
    assert credible_sets(np.full(2, 0.5), [(models, apart)], 0.95, 0.5) == []
    (found,) = credible_sets(np.full(2, 0.5), [(models, apart)], 0.95, 0.0)
    assert found.purity == 0.3


def test_the_selection_is_the_largest_of_its_expected_rate():
    p = np.random.default_rng(0).random(30)
    for rate in (0.05, 0.1, 0.3):
        chosen = select(p, rate)
        assert len(chosen) == 0 or np.mean(1.0 - p[chosen]) <= rate
        order = np.argsort(-p)[: len(chosen) + 1]
        assert np.mean(1.0 - p[order]) > rate


def test_correlation_of_single_columns_is_the_usual_one():
    X = np.random.default_rng(0).standard_normal((40, 4))
    X[:, 1] += X[:, 0]
    X -= X.mean(axis=0)
    ours = group_correlation(X, np.arange(4), np.arange(4))
    np.testing.assert_allclose(ours, np.abs(np.corrcoef(X.T)))
    assert group_correlation(X[:, [0, 1, 0, 1]], np.array([0, 0, 1, 1]), np.arange(2))[
        0, 1
    ] == pytest.approx(1.0)


def _twins(n=80):
    """Group a is active, b its near-duplicate, the others noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 12))
    X[:, 2:4] = X[:, :2] + 0.02 * rng.standard_normal((n, 2))
    return X, X[:, :2] @ [1.0, -1.0] + rng.standard_normal(n), np.repeat(list("abcdef"), 2)


@pytest.mark.parametrize("inference", ["ep", "gibbs"])
def test_near_duplicates_come_as_one_set(inference):
    X, y, groups = _twins()
    settings = {"n_samples": 400, "n_warmup": 100} if inference == "gibbs" else {}
    model = GroupSpikeSlabRegressor(
        groups, inference=inference, inclusion_prior=0.1, slab_variance=1.0, **settings
    ).fit(X, y)
    sets, probability, purity = model.credible_sets(return_details=True)
    assert [s.tolist() for s in sets] == [["a", "b"]]
    assert probability[0] > 0.95
    assert purity[0] > 0.99
    assert len(model.select(0.05)) == 0
    with pytest.raises(ValueError, match="coverage must be between 0 and 1"):
        model.credible_sets(1.5)
    with pytest.raises(ValueError, match="fdr must be at least 0"):
        model.select(-0.1)


def test_labels_have_sets_too_and_many_classes_say_why_not():
    X, y, groups = _twins(200)
    model = GroupSpikeSlabClassifier(groups, inclusion_prior=0.1, slab_variance=1.0)
    model.fit(X, y > 0)
    assert [s.tolist() for s in model.credible_sets()] == [["a", "b"]]
    model.fit(X, np.digitize(y, [-1.0, 1.0]))
    with pytest.raises(ValueError, match="credible_sets supports two classes"):
        model.credible_sets()


def test_predictions_are_a_mixture_where_the_models_disagree():
    X, y, groups = _twins()
    model = GroupSpikeSlabRegressor(groups, inclusion_prior=0.1, slab_variance=1.0).fit(X, y)
    x = np.zeros((1, 12))
    x[0, 0], x[0, 2] = 10.0, -10.0  # the twins taken apart: one of the two is right
    draws = model.sample_y(x, 4000)[0]
    mean, std = model.predict(x, return_std=True)
    assert draws.mean() == pytest.approx(mean[0], abs=0.5)
    assert draws.std() == pytest.approx(std[0], rel=0.05)
    near = np.mean(np.abs(draws - mean[0]) < 0.3 * std[0])
    assert near < 0.12  # a normal distribution has .24 there


def test_intervals_and_quantiles_are_those_of_the_mixture():
    X, y, groups = _twins()
    model = GroupSpikeSlabRegressor(groups, inclusion_prior=0.1, slab_variance=1.0).fit(X, y)
    x = np.zeros((2, 12))
    x[:, 0], x[:, 2] = [10.0, 2.0], [-10.0, 1.0]
    draws = model.sample_y(x, 40_000)
    levels = np.array([0.05, 0.3, 0.6, 0.95])
    quantiles = model.predict_quantiles(x, levels)
    share = np.mean(draws[:, :, None] <= quantiles[:, None, :], axis=1)
    np.testing.assert_allclose(share, [levels, levels], atol=0.01)
    np.testing.assert_allclose(model.predict_interval(x, 0.9), quantiles[:, [0, 3]], atol=1e-8)
    predictive = model._predictive(x)
    np.testing.assert_allclose(predictive.mean, model.predict(x), atol=1e-8)
    np.testing.assert_allclose(predictive.std, model.predict(x, return_std=True)[1], rtol=1e-6)
