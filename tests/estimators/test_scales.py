"""Inputs of very different scales under a kernel of one width are said, and nothing else is."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import sparsebayes as sb
from tests import registry

UNSEEN, APART = "almost ignores them", "do not overlap"


def said(model, X, y, words=UNSEEN):
    """The sentences with these words in one fit; about scales by default."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clone(model).fit(X, y)
    return [str(w.message) for w in caught if words in str(w.message)]


@pytest.mark.parametrize(
    "model",
    [sb.RVMClassifier("rbf", gamma="scale"), sb.PartitionedRVMClassifier("rbf", gamma="scale")],
    ids=repr,
)
def test_raw_wine_warns_once_and_standardised_wine_does_not(model):
    X, y = datasets.load_wine(return_X_y=True)
    (sentence,) = said(model, X, y)
    assert "the variation of input 12" in sentence
    assert "StandardScaler" in sentence
    assert "gamma='ard'" in sentence
    assert said(model, StandardScaler().fit_transform(X), y) == []


@pytest.mark.parametrize(
    "model",
    [
        *(
            clone(model).set_params(kernel="rbf", gamma="scale")
            for model in registry.plain_models(registry.REGRESSION, registry.CLASSIFICATION)
            if {"kernel", "gamma"} <= model.get_params().keys()
        ),
        sb.RVMRegressor("matern32", gamma=0.1),
        sb.RVMRegressor("laplacian", gamma="scale"),
        sb.OrthogonalLeastSquaresRegressor(gamma="median"),
        sb.PartitionedRVMRegressor("rbf", gamma="median"),
    ],
    ids=registry.label,
)
def test_every_kernel_model_of_one_width_warns(model):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3)) * [1.0, 1000.0, 1.0]
    y = X[:, 0] > 0 if is_classifier(model) else X[:, 0]
    assert len(said(model, X, y)) == 1
    assert said(model, X / [1.0, 1000.0, 1.0], y) == []


def test_the_input_is_named_as_in_the_frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((40, 2)) * [1.0, 1e4], columns=["age", "income"])
    (sentence,) = said(sb.RVMRegressor("rbf", gamma="scale"), frame, frame["age"])
    assert "input 'income'" in sentence


@pytest.mark.parametrize(
    "model",
    [
        sb.RVMRegressor("rbf", gamma="ard"),
        sb.RVMRegressor("rbf", gamma="evidence"),
        sb.RVMRegressor("rbf", gamma=np.array([1.0, 1e-6, 1.0])),
        sb.RVMRegressor(kernel=None),
        sb.RVMRegressor("linear"),
        sb.BackfittingRegressor(),
        sb.GroupSpikeSlabRegressor(),
    ],
    ids=repr,
)
def test_models_that_do_not_mix_the_inputs_are_silent(model):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3)) * [1.0, 1000.0, 1.0]
    assert said(model, X, X[:, 0]) == []


def test_ordinary_tables_are_not_warned_of():
    rng = np.random.default_rng(0)
    model = sb.ForwardRegressor("rbf", gamma="scale", max_terms=5)
    for load in (datasets.load_diabetes, datasets.load_iris, datasets.load_digits):
        X, y = load(return_X_y=True)
        assert said(model, X[:200], y[:200].astype(float)) == []
    # Standard numbers beside a rare category, a constant and what is left of one by rounding.
    numbers = rng.standard_normal((300, 3))
    kinds = rng.choice(3, (300, 1), p=[0.01, 0.01, 0.98])
    rare = OneHotEncoder(sparse_output=False).fit_transform(kinds)
    constant = np.column_stack([np.ones(300), 2000.0 + 1e-13 * rng.standard_normal((300, 4))])
    assert said(model, np.hstack([numbers, rare, constant]), numbers[:, 0]) == []


def test_standardising_is_the_cure_that_the_warning_says_it_is():
    X, y = datasets.load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:120], order[120:]
    with pytest.warns(UserWarning, match=UNSEEN):
        raw = sb.RVMClassifier("rbf", gamma="scale").fit(X[train], y[train])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        scaler = StandardScaler().fit(X[train])
        cured = sb.RVMClassifier("rbf", gamma="scale").fit(scaler.transform(X[train]), y[train])
    assert raw.score(X[test], y[test]) < 0.8
    assert cured.score(scaler.transform(X[test]), y[test]) > 0.95


@pytest.mark.parametrize("kernel", ["rbf", "matern32", "laplacian"])
@pytest.mark.parametrize("cls", [sb.RVMRegressor, sb.RVMClassifier, sb.SparseGPRegressor])
def test_functions_that_do_not_overlap_are_said_once(cls, kernel):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 300))
    y = (X[:, 0] + 0.3 * rng.standard_normal(60) > 0.0).astype(int)
    (sentence,) = said(cls(kernel, gamma=1.0), X, y, APART)
    assert sentence.startswith("gamma=1 is so large that the kernel functions of different rows")
    assert said(cls(kernel, gamma="scale"), X, y, APART) == []


def test_copies_of_rows_do_not_hide_that_functions_do_not_overlap():
    X = np.repeat(np.arange(10.0), 6)[:, None]
    y = np.random.default_rng(1).standard_normal(60)
    assert len(said(sb.RVMRegressor("rbf", gamma=10.0), X, y, APART)) == 1
    assert said(sb.RVMRegressor("rbf", gamma=1.0), X, y, APART) == []
    assert said(sb.RVMRegressor("rbf", gamma=1e-8), X, y, APART) == []
    per_input = sb.RVMRegressor("rbf", gamma=np.array([10.0]))
    assert said(per_input, X, y, APART)[0].startswith("gamma is so large")
