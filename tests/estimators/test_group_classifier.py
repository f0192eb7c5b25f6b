import pickle
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from sparsebayes.estimators import group_classifier
from sparsebayes.estimators.group_classifier import GroupSpikeSlabClassifier, _ClusterWatch
from sparsebayes.estimators.rvm_classifier import RVMClassifier
from tests.label_helpers import uncalibrated


def _labels(seed=0, n=150, shift=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 24)) + 2.0
    f = (X[:, :3] - 2.0) @ [1.5, -1.0, 1.0] + shift
    return X, np.where(f + rng.standard_normal(n) > 0, "yes", "no"), np.arange(24) // 3


def test_finds_the_group_and_the_weights():
    X, y, groups = _labels(n=300, shift=0.5)
    model = GroupSpikeSlabClassifier(groups).fit(X, y)
    assert model.converged_
    np.testing.assert_array_equal(model.active_, [0, 1, 2])
    np.testing.assert_allclose(model.coef_[0, :3], [1.5, -1.0, 1.0], atol=0.5)
    assert model.intercept_[0] + model.coef_[0] @ np.full(24, 2.0) == pytest.approx(0.5, abs=0.4)
    assert model.transform(X).shape == (300, 3)


def _recorded_runs(monkeypatch):
    """Return a list to which every run of EP is added."""
    runs, run = [], group_classifier.run
    monkeypatch.setattr(
        group_classifier,
        "run",
        lambda *args, **options: runs.append(run(*args, **options)) or runs[-1],
    )
    return runs


def test_folds_whose_sites_cycle_end_early(monkeypatch):
    rng = np.random.default_rng(12)
    X = rng.standard_normal((20, 20))[rng.integers(20, size=40)]
    y = X[:, 0] + X[:, 1] + 0.2 * rng.standard_normal(40) > 0
    runs = _recorded_runs(monkeypatch)
    with pytest.warns(ConvergenceWarning, match="cycling"):
        model = GroupSpikeSlabClassifier().fit(X, y, 10.0 ** rng.uniform(-8, 8, 40))
    assert runs[0].n_iter == model.n_iter_ > 300
    assert len(runs) > 5
    assert max(fold.n_iter for fold in runs[1:]) < 30  # that of all rows has cycled before
    assert np.all(np.isfinite(model.predict_proba(X)))


def test_folds_start_from_the_hyperparameters_of_all_rows(monkeypatch):
    X, y, groups = _labels(0, n=60)
    runs = _recorded_runs(monkeypatch)
    GroupSpikeSlabClassifier(groups).fit(X, y)
    assert len(runs) == 6
    for fold in runs[1:]:
        for name in ("inclusion_prior", "slab_variance"):
            assert fold.history[name][0] == pytest.approx(runs[0].history[name][-1])
    assert np.mean([fold.n_iter for fold in runs[1:]]) < runs[0].n_iter  # 52 if they start afresh


def test_two_rows_of_nearly_all_the_weight_do_not_make_columns_alike(monkeypatch):
    found, find_clusters = [], group_classifier.find_clusters
    monkeypatch.setattr(
        group_classifier,
        "find_clusters",
        lambda *args: found.append(find_clusters(*args)) or found[-1],
    )
    rng = np.random.default_rng(0)
    X, weight = rng.standard_normal((40, 6)), np.append(np.ones(38), [1e6, 1e6])
    with pytest.warns(ConvergenceWarning):
        GroupSpikeSlabClassifier(max_iter=3).fit(X, X[:, 0] > 0, weight)
    np.testing.assert_array_equal(found[0], np.arange(6))


def test_probabilities_are_calibrated():
    predicted, happened = [], []
    for seed in range(6):
        X, y, groups = _labels(seed, n=400)
        model = GroupSpikeSlabClassifier(groups).fit(X[:100], y[:100])
        predicted.append(model.predict_proba(X[100:])[:, 1])
        happened.append(y[100:] == "yes")
    predicted, happened = np.concatenate(predicted), np.concatenate(happened)
    for low, high in ((0.0, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1.0)):
        inside = (predicted >= low) & (predicted < high)
        assert happened[inside].mean() == pytest.approx(predicted[inside].mean(), abs=0.08)


@pytest.mark.parametrize("n", [15, 100])  # through rows, through columns
def test_probabilities_are_those_of_the_latent_gaussian(n):
    from scipy.special import ndtr

    X, y, groups = _labels(n=n)
    model = GroupSpikeSlabClassifier(groups, inclusion_prior=0.2, slab_variance=1.0).fit(X, y)
    Phi = np.column_stack([X[:5] - X.mean(axis=0), np.ones(5)])
    posterior = model.posterior_
    V = posterior.covariance
    spread = np.einsum("ij,jk,ik->i", Phi, V, Phi)
    want = Phi @ posterior.mean / np.sqrt(1 + spread)
    np.testing.assert_allclose(uncalibrated(model, X[:5]), want, rtol=1e-8)
    np.testing.assert_allclose(
        model.predict_proba(X[:5])[:, 1], ndtr(model.decision_function(X[:5])), rtol=1e-12
    )
    mean = X[:5] @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(mean, Phi @ posterior.mean, rtol=1e-10)


def test_three_classes():
    X, y = load_iris(return_X_y=True)
    model = GroupSpikeSlabClassifier([[0, 1], [2, 3]]).fit(X[::2], y[::2])
    probability = model.predict_proba(X[1::2])
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    assert np.mean(model.predict(X[1::2]) == y[1::2]) > 0.9
    assert model.coef_.shape == (3, 4)
    assert model.class_inclusion_probability_.shape == (3, 2)
    assert model.inclusion_probability_[1] > 0.95  # the petals
    assert np.all(model.predict(X) == model.classes_[np.argmax(model.predict_proba(X), axis=1)])


def test_learnt_hyperparameters_do_no_worse_than_given_ones_by_evidence():
    X, y, groups = _labels()
    learnt = GroupSpikeSlabClassifier(groups).fit(X, y)
    for p, v in ((0.5, 1.0), (0.1, 10.0), (0.1, 0.1)):
        given = GroupSpikeSlabClassifier(groups, inclusion_prior=p, slab_variance=v).fit(X, y)
        assert learnt.log_evidence_ > given.log_evidence_ - 0.1


def test_mistakes_are_told_in_a_sentence():
    X, y, groups = _labels(n=30)
    with pytest.raises(ValueError, match="y has only one"):
        GroupSpikeSlabClassifier().fit(X, np.zeros(30))
    with pytest.raises(ValueError, match="The 'sites' parameter of .* must be"):
        GroupSpikeSlabClassifier(sites="row").fit(X, y)
    with pytest.raises(ValueError, match="The 'tol' parameter of .* must be"):
        GroupSpikeSlabClassifier(tol=0).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="has not converged"):
        model = GroupSpikeSlabClassifier(groups, max_iter=2).fit(X, y)
    assert not model.converged_
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_are_repetitions_and_zero_removes(n_classes):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 8))
    y = np.digitize(X[:, 0] + 0.5 * rng.standard_normal(60), [-0.5, 0.5][: n_classes - 1])
    weight = rng.integers(0, 4, 60)
    settings = {"groups": np.arange(8) // 2, "tol": 1e-7}
    ours = GroupSpikeSlabClassifier(**settings).fit(X, y, sample_weight=weight)
    theirs = GroupSpikeSlabClassifier(**settings).fit(
        *(np.repeat(a, weight, axis=0) for a in (X, y))
    )
    for name in (
        "log_evidence_",
        "coef_",
        "coef_std_",
        "intercept_",
        "inclusion_probability_",
    ):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-7)


def test_it_reports_what_its_siblings_report():
    X, y = load_iris(return_X_y=True)
    model = GroupSpikeSlabClassifier().fit(X, y)
    assert len(model.posterior_) == 3
    assert (model.stop_reason_ == "converged") == model.converged_
    assert not isinstance(GroupSpikeSlabClassifier().fit(X[:100], y[:100]).posterior_, tuple)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        assert GroupSpikeSlabClassifier(max_iter=2).fit(X, y).stop_reason_ == "max_iter"


@pytest.mark.parametrize("model", [GroupSpikeSlabClassifier(), RVMClassifier("rbf", gamma="scale")])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_dask_arrays_are_predicted_block_by_block(model, n_classes):
    X = np.random.default_rng(0).standard_normal((60, 2))
    model = clone(model).fit(X, np.digitize(X[:, 0], [0.0, 1.0][: n_classes - 1]))
    blocks = da.from_array(X, chunks=(25, 2))
    for method in ("decision_function", "predict_proba", "predict"):
        lazy, now = getattr(model, method)(blocks), getattr(model, method)(X)
        assert lazy.shape == now.shape
        np.testing.assert_allclose(lazy.compute(), now, rtol=1e-12)


@pytest.mark.parametrize("sites", ["group", "column"])
@pytest.mark.parametrize(
    "given",
    [{}, *({"inclusion_prior": 0.5, "slab_variance": v} for v in (100.0, 400.0))],
    ids=["learnt", "100", "400"],
)
def test_groups_that_nearly_separate_the_classes_are_in(given, sites):
    # Large latent values leave the row sites next to no precision. Models that shared them were
    # weighed as if the labels said nothing: inclusion .05, and above the evidence of every model.
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 120)
    X = np.column_stack([rng.standard_normal(120), rng.random(120) > 0.5, np.eye(3)[kind]])
    level = 2.0 * X[:, 0] + 2.0 * X[:, 1] + np.array([3.0, 0.0, -2.0])[kind]
    y = level + 0.1 * rng.standard_normal(120) > np.median(level)
    model = GroupSpikeSlabClassifier([0, 1, 2, 2, 2], sites=sites, **given).fit(X, y)
    assert model.converged_
    assert np.all(model.inclusion_probability_ > 0.9)
    assert model.score(X, y) > 0.9
    assert model.log_evidence_ > -120 * np.log(2.0)


def test_rows_of_next_to_no_weight_take_no_part():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 6))
    y = X[:, 0] + 0.5 * rng.standard_normal(40) > 0
    light = rng.standard_normal((30, 6))
    weight = np.append(rng.uniform(0.2, 2.0, 40), 10.0 ** rng.uniform(-15, -9, 30))
    plain = GroupSpikeSlabClassifier().fit(X, y, sample_weight=weight[:40])
    more = GroupSpikeSlabClassifier().fit(
        np.vstack([X, light]), np.append(y, light[:, 1] > 0), sample_weight=weight
    )
    assert more.n_iter_ == plain.n_iter_
    np.testing.assert_allclose(more.coef_, plain.coef_, atol=1e-6)
    assert more.log_evidence_ == pytest.approx(plain.log_evidence_, abs=1e-6)


def test_a_run_ends_where_its_clusters_stay_too_large():
    state = SimpleNamespace(sites=SimpleNamespace(exceeds_cluster_limit=True))
    watch = _ClusterWatch(None)
    assert [i for i in range(1, 81) if watch(i, None, state)] == [80]
    assert watch.exceeded
    state.sites.exceeds_cluster_limit = False
    assert not watch(100, None, state)


def test_learning_starts_near_its_end_where_one_row_has_nearly_all_the_weight():
    # That row is the mean of the rows, and a slab in units of the variance around it took 76 steps.
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (30, 6))
    y = X[:, 0] + 0.3 * rng.standard_normal(30) > 0.0
    weight = np.r_[60.0, 0.3, 0.3, np.full(27, 1e-4)]
    model = GroupSpikeSlabClassifier().fit(X, y, sample_weight=weight)
    assert model.converged_
    assert model.n_iter_ < 30
    assert 0.2 < model.history_["slab_variance"][0] / model.slab_variance_[0] < 5.0
