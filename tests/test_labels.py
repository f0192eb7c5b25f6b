"""Fits to labels: duplicates, calibration by folds, and warnings, of every classifier."""

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit

from sparsebayes import (
    BackfittingClassifier,
    GroupSpikeSlabClassifier,
    PartitionedRVMClassifier,
    RVMClassifier,
)
from sparsebayes.data import Data, merge_labelled_duplicates

MODELS = [
    RVMClassifier("rbf", gamma=0.5),
    BackfittingClassifier("rbf", gamma=0.5),
    PartitionedRVMClassifier("rbf", gamma=0.5),
    GroupSpikeSlabClassifier(),
]


def _table(n=120, seed=0, slope=2.0, shift=0.0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    return X, (rng.random(n) < expit(slope * X[:, 0] + shift)).astype(int)


def _observations(X, y, weight=None):
    data = merge_labelled_duplicates(Data(np.asarray(X, dtype=float), y, weight))
    return data.counts


# Duplicates.


@pytest.mark.parametrize("times", [2, 3])
def test_a_table_joined_several_times_is_one_table(times):
    X, y = _table()
    counts = _observations(np.tile(X, (times, 1)), np.tile(y, times))
    np.testing.assert_array_equal(counts, np.arange(times * 120) < 120)
    # So it is of rounded inputs, some rows of which are equal by chance.
    X = np.round(X[:, :1], 1)
    counts = _observations(np.tile(X, (times, 1)), np.tile(y, times))
    assert np.sum(counts) == pytest.approx(120)


def test_a_bootstrap_sample_has_as_many_observations_as_distinct_rows():
    X, y = _table(200)
    rows = np.random.default_rng(1).integers(0, 200, 200)
    counts = _observations(X[rows], y[rows])
    assert np.sum(counts) == pytest.approx(len(np.unique(rows)))
    _, times = np.unique(rows, return_counts=True)
    assert np.max(counts) / np.min(counts[counts > 0]) == pytest.approx(np.max(times))


def test_weights_are_repetition_and_those_above_one_are_no_further_observations():
    X, y = _table()
    weight = np.random.default_rng(0).integers(1, 4, 120).astype(float)
    repeated = _observations(
        np.repeat(X, weight.astype(int), axis=0), np.repeat(y, weight.astype(int))
    )
    np.testing.assert_allclose(repeated[repeated > 0], _observations(X, y, weight))
    assert np.sum(_observations(X, y, np.full(120, 2.5))) == pytest.approx(120)
    np.testing.assert_array_equal(_observations(X, y, np.full(120, 0.3)), np.full(120, 0.3))


def test_sparse_rows_are_discrete_like_the_same_dense_ones():
    rng = np.random.default_rng(0)
    X, y = rng.integers(-2, 3, (60, 8)).astype(float), np.arange(60) % 2
    weight = rng.uniform(0.1, 5.0, 60)
    np.testing.assert_array_equal(_observations(X, y, weight), weight)
    for scale in (1.0, rng.standard_normal(X.shape)):  # not discrete: fewer observations
        dense = _observations(scale * X, y, weight)
        sparse = merge_labelled_duplicates(Data(csr_array(scale * X), y, weight)).counts
        np.testing.assert_array_equal(sparse, dense)
    assert np.sum(dense) < 61


@pytest.mark.parametrize("right", [0.7, 0.95, 1.0])
@pytest.mark.parametrize("kind", ["two values", "grades", "one grade", "ages"])
def test_equal_rows_of_discrete_inputs_all_count(kind, right):
    rng = np.random.default_rng(0)
    X = {
        "two values": rng.integers(0, 2, (300, 4)),
        "grades": rng.integers(1, 6, (300, 3)),
        "one grade": rng.integers(1, 11, (300, 1)),
        "ages": rng.integers(18, 90, (300, 1)),
    }[kind]
    y = (X[:, 0] > np.median(X[:, 0])) ^ (rng.random(300) > right)
    np.testing.assert_array_equal(_observations(X, y.astype(int)), np.ones(300))


@pytest.mark.parametrize("model", MODELS)
def test_a_joined_table_gives_the_same_probabilities(model):
    X, y = _table(60)
    once = model.fit(X, y).predict_proba(X)
    twice = model.fit(np.vstack([X, X]), np.append(y, y)).predict_proba(X)
    np.testing.assert_allclose(twice, once, atol=1e-6)


# Calibration.


@pytest.mark.parametrize("model", MODELS)
def test_every_classifier_is_calibrated(model):
    X, y = _table(100, slope=0.0)  # labels without a function are fitted too closely
    model.fit(X, y)
    assert 0.0 < model.calibration_ < 1.0
    assert model.calibration_intercept_.shape == (1,)


def test_probabilities_of_a_rare_class_sum_to_the_number_of_its_rows():
    ratios = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((200, 3))
        y = rng.random(200) < expit(X[:, 0] - 3.5)
        model = RVMClassifier("rbf", gamma=1.0, n_starts=1).fit(X, y)
        ratios.append(model.predict_proba(X)[:, 1].sum() / y.sum())
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.15)


def test_a_precomputed_kernel_is_calibrated_as_the_kernel_itself():
    X, y = _table(80)
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(-1))
    named = RVMClassifier("rbf", gamma=0.5).fit(X, y)
    given = RVMClassifier("precomputed").fit(K, y)
    assert given.calibration_ < 1.0
    assert given.calibration_ == pytest.approx(named.calibration_, rel=0.5)


# Warnings.


@pytest.mark.parametrize("model", MODELS)
def test_rows_outside_the_range_are_warned_of(model):
    X, y = _table(80)
    model.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_proba(X)
    far = X[:1] + np.array([[50.0, 0.0, 0.0]])
    with pytest.warns(UserWarning, match="probabilities may be too certain"):
        model.predict_proba(far)


def test_fewer_than_twenty_labels_are_warned_of():
    X = np.linspace(-2.0, 2.0, 18)[:, None]
    labels = (np.sin(7.0 * X[:, 0]) > 0.0).astype(int)
    with pytest.warns(UserWarning, match="only 18 distinct rows, too few to calibrate"):
        RVMClassifier("rbf", gamma=1.0).fit(X, labels)


def test_a_class_of_a_few_rows_is_warned_of():
    X, y = _table(100)
    y[:] = 0
    y[:3] = 1
    with pytest.warns(UserWarning, match="A class has only 3 of 100 distinct rows"):
        RVMClassifier("rbf", gamma=0.5).fit(X, y)
