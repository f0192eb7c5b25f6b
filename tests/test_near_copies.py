"""Rows that copy others up to small changes, as oversampled and augmented tables have them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris

import sparsebayes as sb
from sparsebayes.data import Data
from sparsebayes.models import CLASSES
from sparsebayes.near_copies import share_of_near_copies


def copied(rng, jitter=1e-3, times=4, shared=True):
    """Return rows of three inputs, each `times` times with jitter, and a noisy target."""
    X = np.repeat(rng.uniform(-2.0, 2.0, (40, 3)), times, axis=0)
    X = X + jitter * rng.standard_normal(X.shape)
    noise = np.repeat(rng.standard_normal(40), times) if shared else rng.standard_normal(len(X))
    return X, np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.3 * noise


def share(X, y):
    return share_of_near_copies(Data(X, np.asarray(y, dtype=np.float64)))


def test_near_copies_are_counted_in_any_units_and_order():
    X, y = copied(np.random.default_rng(0))
    assert share(X, y) == 1.0
    order = np.random.default_rng(1).permutation(len(y))
    assert share(1e6 + X[order] * [1e-3, 1.0, 1e5], 1e4 * y[order]) == 1.0
    plain = np.random.default_rng(2).uniform(-2.0, 2.0, (160, 3))
    half = np.vstack([X, plain])
    assert share(half, np.append(y, plain[:, 0])) == pytest.approx(0.5, abs=0.02)


def augmented(rng, d=3, times=4):
    """Return rows with jitter of a fortieth of the range, and a target that copies keep."""
    X = np.repeat(rng.uniform(-2.0, 2.0, (50, d)), times, axis=0)
    y = np.sin(X[:, 0]) + np.repeat(0.4 * rng.standard_normal(50), times)
    return X + 0.1 * rng.standard_normal(X.shape), y


@pytest.mark.parametrize("d", [2, 3, 8])
def test_augmented_rows_that_keep_their_target_are_counted(d):
    for seed in range(5):
        X, y = augmented(np.random.default_rng(seed), d)
        assert share(X, y) > 0.2
        order = np.random.default_rng(seed).permutation(len(y))
        assert share(X[order] * 1e3, 1e4 * y[order]) == share(X, y)


def test_targets_that_are_equal_by_chance_are_no_copies():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2.0, 2.0, (200, 2))
        f = np.sin(2.0 * X[:, 0]) + X[:, 1]
        for step in (0.01, 0.1, 0.5):  # targets without noise that were rounded
            assert share(X, step * np.round(f / step)) < 0.1
            assert share(X, step * np.round((f + 0.2 * rng.standard_normal(200)) / step)) < 0.1
        assert share(X[:, :1], np.round(X[:, 0], 2)) < 0.2
    X, y = augmented(rng)
    classes = np.unique(y, return_inverse=True)[1]
    assert share_of_near_copies(Data(X, classes)) < 0.1


def test_repeated_measurements_are_not_copies():
    assert share(*copied(np.random.default_rng(0), shared=False)) == 0.0


@pytest.mark.parametrize("d", [1, 2, 3, 8, 40])
@pytest.mark.parametrize("n", [30, 200, 2000])
def test_rows_are_seldom_close_by_chance(n, d):
    rng = np.random.default_rng(d)
    for X in (rng.uniform(size=(n, d)), rng.standard_normal((n, d)), rng.standard_cauchy((n, d))):
        assert share(X, X[:, 0]) < 0.2
    grid = np.round(5.0 * rng.uniform(size=(n, d)))
    assert share(grid, grid[:, 0]) == 0.0
    far = np.vstack([rng.standard_normal((n, d)), np.full((1, d), 1e8)])
    assert share(far, far[:, 0]) < 0.2


def test_rows_with_equal_values_of_one_input_are_not_copies():
    X, y = load_iris(return_X_y=True)
    for seed in range(5):
        rows = np.random.default_rng(seed).permutation(150)[:120]
        assert share(X[rows], y[rows]) == 0.0
    rng = np.random.default_rng(0)
    X = np.column_stack([np.round(rng.uniform(size=300), 2), rng.integers(0, 2, (300, 4))])
    assert share(X, X[:, 0]) == 0.0


def test_extreme_inputs_are_no_error():
    X, y = copied(np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(share(X * 7e307, y))
        assert np.isfinite(share(X, y * 1e300))


@pytest.mark.parametrize(
    "model",
    [
        sb.RVMRegressor(kernel="rbf", gamma=0.5),
        sb.BackfittingRegressor(),
        sb.GroupSpikeSlabRegressor(),
        sb.RVMClassifier(kernel="rbf", gamma=0.5),
        sb.table_model(),
        sb.table_model(prefer="small"),
        sb.table_model("classification"),
    ],
    ids=["rvm", "backfitting", "spike-slab", "labels", "mixture", "small", "mixture of labels"],
)
def test_a_fit_looks_for_near_copies_and_warns_once(model, monkeypatch):
    X, y = copied(np.random.default_rng(0))
    is_classes = isinstance(model, sb.RVMClassifier) or model.get_params().get("task") == CLASSES
    y = y > 0.0 if is_classes else y
    searches = []

    def counted(data):
        searches.append(data)
        return share_of_near_copies(data)

    monkeypatch.setattr("sparsebayes.relevance.share_of_near_copies", counted)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    messages = [str(w.message) for w in caught if "nearly equal" in str(w.message)]
    assert len(messages) == 1
    assert messages[0].startswith("100 % of the rows")
    assert len(searches) == 1
