import pickle

import numpy as np
import pytest
import skops.io as sio
from sklearn.base import clone, is_classifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import sparsebayes as sb
from sparsebayes import TRUSTED_TYPES, GroupSpikeSlabRegressor
from tests import registry

MODELS = [
    *(
        model
        for model in registry.models(registry.REGRESSION, registry.CLASSIFICATION, further=True)
        # What a user's own smoothers hold is not ours to trust.
        if not isinstance(getattr(model, "smoothers", None), Pipeline)
    ),
    sb.RVMRegressor("poly", algorithm="fast"),
]


def outputs(model, X):
    """Return what a fitted model predicts for some rows."""
    if is_classifier(model):
        return [model.predict_proba(X)]
    return model.predict(X, return_std=True)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", MODELS, ids=registry.label)
def test_a_saved_model_predicts_the_same(model):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 4))
    y = X[:, 0] + 0.1 * rng.standard_normal(40)
    y = (y > 0).astype(int) if is_classifier(model) else y
    fitted = make_pipeline(StandardScaler(), clone(model)).fit(X, y)
    content = sio.dumps(fitted)
    assert set(sio.get_untrusted_types(data=content)) <= set(TRUSTED_TYPES)
    for loaded in (sio.loads(content, trusted=TRUSTED_TYPES), pickle.loads(pickle.dumps(fitted))):
        for a, b in zip(outputs(loaded, X), outputs(fitted, X), strict=True):
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


def test_every_trusted_type_exists_and_is_part_of_a_model():
    assert not [name for name in TRUSTED_TYPES if name.startswith(("sparsebayes.cli", "os."))]
    for name in TRUSTED_TYPES:
        module, _, cls = name.rpartition(".")
        assert hasattr(__import__(module, fromlist=[cls]), cls), name


def test_the_public_names_are_there():
    for name in sb.__all__:
        assert getattr(sb, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        sb.nothing  # noqa: B018
