"""Scores of classes far from the training rows."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, log_expit

from sparsebayes import (
    BackfittingClassifier,
    PartitionedRVMClassifier,
    RVMClassifier,
    SparseGPClassifier,
)
from sparsebayes import class_probabilities as module
from sparsebayes.class_probabilities import LabelPredictions, Logistic, Unlabelled, variance_factor
from sparsebayes.kernels import StationaryKernel

KERNEL = StationaryKernel("rbf", 0.5)
AMPLITUDE, CURVATURE = np.array([2.0, 5.0]), np.array([0.2, 0.1])


def remaining_share(X, weight, x, precision):
    """Return the share of the variance of the process that labels at rows X leave at a row."""
    K = KERNEL.bind(X)(X) + np.diag(1.0 / (weight * precision))
    k = KERNEL.bind(X)(x[None])[0]
    return 1.0 - k @ np.linalg.solve(K, k)


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.uniform(-2, 2, (40, 2)), rng.integers(1, 4, 40).astype(float)


def test_the_variance_grows_from_the_usual_share_to_that_of_the_scores(monkeypatch, rows):
    monkeypatch.setattr(module, "_UNEXPLAINED", 1e-13)
    X, weight = rows
    unlabelled, left_out = Unlabelled.from_rows(KERNEL, X, weight, AMPLITUDE, CURVATURE)
    new = np.random.default_rng(1).uniform(-3, 3, (30, 2))
    for j, precision in enumerate(AMPLITUDE * CURVATURE):
        share = []
        for i in range(len(X)):
            others = np.delete(np.arange(len(X)), i)
            share.append(remaining_share(X[others], weight[others], X[i], precision))
        usual = np.average(share, weights=weight)
        own = AMPLITUDE[j] * np.maximum(np.array(share) - usual, 0.0) / (1.0 - usual)
        np.testing.assert_allclose(left_out[:, j], own, atol=1e-6)
        share = np.array([remaining_share(X, weight, x, precision) for x in new])
        expected = AMPLITUDE[j] * np.maximum(share - usual, 0.0) / (1.0 - usual)
        np.testing.assert_allclose(unlabelled(new)[:, j], expected, atol=1e-6)
    np.testing.assert_allclose(unlabelled(np.full((1, 2), 99.0))[0], AMPLITUDE)


def test_few_functions_stand_for_the_process(monkeypatch, rows):
    X, weight = rows
    few, own = Unlabelled.from_rows(KERNEL, X, weight, AMPLITUDE, CURVATURE)
    monkeypatch.setattr(module, "_UNEXPLAINED", 1e-13)
    every, all_own = Unlabelled.from_rows(KERNEL, X, weight, AMPLITUDE, CURVATURE)
    assert len(few.centres) < len(every.centres)
    np.testing.assert_allclose(few(X), every(X), atol=0.02)
    np.testing.assert_allclose(own, all_own, atol=0.02)


def test_a_weight_is_repetition_and_the_order_of_rows_does_not_matter(rows):
    X, weight = rows
    first, own = Unlabelled.from_rows(KERNEL, X, weight, AMPLITUDE, CURVATURE)
    repeated = np.random.default_rng(2).permutation(np.repeat(np.arange(40), weight.astype(int)))
    ones = np.ones(len(repeated))
    second, others = Unlabelled.from_rows(KERNEL, X[repeated], ones, AMPLITUDE, CURVATURE)
    np.testing.assert_allclose(others, own[repeated], atol=1e-10)
    new = np.random.default_rng(1).uniform(-3, 3, (30, 2))
    np.testing.assert_allclose(second(new), first(new), atol=1e-10)


def test_the_factor_is_large_where_far_rows_are_not_as_sure_as_their_scores():
    rng = np.random.default_rng(0)
    z = rng.choice([-4.0, 4.0], 400)
    far = (np.arange(400) < 100).astype(float)

    def factor(p):
        codes = (rng.random(400) < p).astype(int)
        folds = LabelPredictions(z, codes, np.ones(400))
        return variance_factor(folds, 4.0 * far[:, None], Logistic(), 1.0)

    assert factor(expit(z)) < 0.3
    assert factor(expit(np.where(far, 0.25 * z, z))) > 2.0
    # Without far rows it is that of the prior.
    folds = LabelPredictions(z, (z > 0).astype(int), np.ones(400))
    none = variance_factor(folds, np.zeros((400, 1)), Logistic(), 1.0)
    assert none == pytest.approx(1.0, abs=0.05)


def test_the_factor_vanishes_where_few_far_rows_are_sure_and_right():
    z = np.repeat([-5.0, 5.0], 60)
    far = (np.arange(120) % 3 == 0).astype(float)
    folds = LabelPredictions(z, (z > 0).astype(int), np.ones(120))
    # A variance of 10 costs four nats: an exponential prior leaves an eighth of it.
    cost = 40 * (log_expit(5.0) - log_expit(5.0 / np.sqrt(1.0 + 10.0 * np.pi / 8.0)))
    assert 3.0 < cost < 5.0
    assert variance_factor(folds, 10.0 * far[:, None], Logistic(), 1.0) < 0.05


@pytest.mark.parametrize(
    "model",
    [
        RVMClassifier("rbf", gamma=0.5),
        BackfittingClassifier("rbf", gamma=0.5),
        PartitionedRVMClassifier("rbf", gamma=0.5),
        SparseGPClassifier("rbf", gamma=0.5),
    ],
    ids=lambda model: type(model).__name__,
)
def test_probabilities_in_a_gap_are_less_certain(model):
    rng = np.random.default_rng(0)
    X = rng.uniform(-5, 5, (300, 1))
    X = X[np.abs(X[:, 0]) > 1.5]
    y = (rng.random(len(X)) < expit(3.0 * np.sin(2.0 * X[:, 0]) + 1.5)).astype(int)
    fit = model.fit(X, y)._fitted
    plain = replace(fit, beyond=replace(fit.beyond, unlabelled=None))

    def scores(fit, X):
        return fit.scores([(slice(0, len(X)), X)], len(X), np.float64)

    gap = np.array([[0.0]])
    assert 0.0 < scores(fit, gap)[0] / scores(plain, gap)[0] < 0.9
    changed = scores(fit, X) - scores(plain, X)
    assert np.median(np.abs(changed)) < 0.01
