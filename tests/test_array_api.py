"""Arrays of other libraries: under scikit-learn's array API dispatch what comes out is theirs."""

import array_api_strict as strict
import numpy as np
import pytest
import sklearn
from sklearn.base import clone, is_classifier

import sparsebayes as sb

MODELS = {
    "forward": sb.ForwardRegressor("rbf", gamma=0.5),
    "rvm": sb.RVMRegressor("rbf", gamma=0.5),
    "ols": sb.OrthogonalLeastSquaresRegressor("rbf", gamma=0.5),
    "backfitting": sb.BackfittingRegressor(),
    "partitioned": sb.PartitionedRVMRegressor("rbf", gamma=0.5),
    "groups": sb.GroupSpikeSlabRegressor(groups=[0, 0, 1]),
    "classes": sb.RVMClassifier("rbf", gamma=0.5),
}


def libraries():
    yield strict.asarray
    try:
        import torch
    except ImportError:
        return
    yield torch.as_tensor


@pytest.fixture
def dispatch(monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # scikit-learn asks for it
    with sklearn.config_context(array_api_dispatch=True):
        yield


@pytest.mark.parametrize("name", MODELS)
def test_what_comes_out_is_of_the_library_that_went_in(name, dispatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(60)
    model = MODELS[name]
    y = (y > 0).astype(int) if is_classifier(model) else y
    plain = clone(model).fit(X, y)
    for asarray in libraries():
        A, b = asarray(X), asarray(y)
        fitted = clone(model).fit(A, b)
        assert isinstance(fitted.intercept_, float | np.ndarray)
        pairs = [(fitted.predict(A), plain.predict(X))]
        if is_classifier(model):
            pairs.append((fitted.predict_proba(A), plain.predict_proba(X)))
        else:
            pairs += zip(
                fitted.predict(A, return_std=True), plain.predict(X, return_std=True), strict=True
            )
            pairs.append((fitted.predict_interval(A), plain.predict_interval(X)))
            pairs.append((fitted.sample_y(A, 2), plain.sample_y(X, 2)))
        for ours, theirs in pairs:
            assert type(ours) is type(A)
            np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-6, atol=1e-8)
        assert float(fitted.score(A, b)) == pytest.approx(plain.score(X, y), rel=1e-6)
