"""Packages for prediction intervals take the estimators as they are."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from sparsebayes import ForwardRegressor, RVMRegressor
from sparsebayes.metrics import interval_coverage


def problem(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.standard_normal(n)


@pytest.mark.parametrize(
    "model",
    [
        RVMRegressor("rbf", gamma=0.3),
        RVMRegressor("rbf", gamma=0.3, noise_variance="input"),
        ForwardRegressor("rbf", gamma=0.3, max_terms=20, likelihood="student"),
    ],
    ids=str,
)
def test_mapie_conformalizes_a_model(model):
    regression = pytest.importorskip("mapie.regression")
    conformal = regression.SplitConformalRegressor(model, confidence_level=0.9, prefit=False)
    conformal.fit(*problem(150, 0)).conformalize(*problem(200, 1))
    X, y = problem(2000, 2)
    _, ends = conformal.predict_interval(X)
    assert interval_coverage(y, ends[:, :, 0]) == pytest.approx(0.9, abs=0.05)


def test_mapie_crosses_a_model():
    regression = pytest.importorskip("mapie.regression")
    model = RVMRegressor("rbf", gamma=0.3)
    conformal = regression.CrossConformalRegressor(model, confidence_level=0.9, cv=3)
    conformal.fit_conformalize(*problem(150, 0))
    X, y = problem(2000, 2)
    _, ends = conformal.predict_interval(X)
    assert interval_coverage(y, ends[:, :, 0]) > 0.88  # it promises 0.8


def test_skpro_reads_the_standard_deviation():
    adapters = pytest.importorskip("skpro.regression.adapters.sklearn")
    X, y = problem(80, 0)
    frame, target = pd.DataFrame(X, columns=["a", "b"]), pd.DataFrame({"y": y})
    model = RVMRegressor("rbf", gamma=0.3, noise_variance="input")
    outer = adapters.SklearnProbaReg(model).fit(frame, target)
    mean, std = outer.estimator_.predict(frame, return_std=True)
    np.testing.assert_allclose(outer.predict(frame).to_numpy().ravel(), mean.ravel())
    ends = outer.predict_interval(frame, coverage=0.9).to_numpy()
    half = norm.ppf(0.95) * std.ravel()
    np.testing.assert_allclose(ends[:, 0], mean.ravel() - half, rtol=1e-6)
    np.testing.assert_allclose(ends[:, 1], mean.ravel() + half, rtol=1e-6)
