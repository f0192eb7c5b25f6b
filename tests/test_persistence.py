import pickle

import numpy as np
import pytest
import skops.io as sio
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sparsebayes
from sparsebayes import (
    TRUSTED_TYPES,
    ForwardRegressor,
    GroupSpikeSlabRegressor,
    OrthogonalLeastSquaresRegressor,
    RVMRegressor,
)

MODELS = [
    RVMRegressor("rbf", gamma="scale"),
    RVMRegressor("matern32", gamma="scale", algorithm="em", fit_intercept=False),
    RVMRegressor("poly", algorithm="fast"),
    RVMRegressor(None, algorithm="fast"),
    RVMRegressor("auto", gamma="ard"),
    ForwardRegressor("rbf", gamma="scale", random_state=0),
    ForwardRegressor(None, refit=None),
    ForwardRegressor("rbf", gamma="scale", neighbours=8, max_terms=5),
    OrthogonalLeastSquaresRegressor(),
    OrthogonalLeastSquaresRegressor(None),
    GroupSpikeSlabRegressor(),
]


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_a_saved_model_predicts_the_same(model):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    y = X[:, 0] + 0.1 * rng.standard_normal(40)
    fitted = make_pipeline(StandardScaler(), model).fit(X, y)
    content = sio.dumps(fitted)
    assert set(sio.get_untrusted_types(data=content)) <= set(TRUSTED_TYPES)
    for again in (sio.loads(content, trusted=TRUSTED_TYPES), pickle.loads(pickle.dumps(fitted))):
        for a, b in zip(
            again.predict(X, return_std=True), fitted.predict(X, return_std=True), strict=True
        ):
            np.testing.assert_array_equal(a, b)


def test_a_saved_model_of_more_columns_than_rows_predicts_the_same():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((15, 40))
    y = X[:, 0] + rng.standard_normal(15)
    fitted = GroupSpikeSlabRegressor(np.arange(40) // 4).fit(X, y)
    again = sio.loads(sio.dumps(fitted), trusted=TRUSTED_TYPES)
    for a, b in zip(
        again.predict(X, return_std=True), fitted.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_every_trusted_type_exists():
    for name in TRUSTED_TYPES:
        module, _, cls = name.rpartition(".")
        assert hasattr(__import__(module, fromlist=[cls]), cls), name


def test_the_public_names_are_there():
    for name in sparsebayes.__all__:
        assert getattr(sparsebayes, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        sparsebayes.nothing  # noqa: B018
