"""A fit succeeds as a whole, or leaves the model as it was."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from threadpoolctl import threadpool_info, threadpool_limits

import sparsebayes as sb
from sparsebayes.estimators._sklearn import whole_fit
from tests import registry

MODELS = list(registry.plain_models(registry.REGRESSION, registry.CLASSIFICATION))


def _data(model):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    y = X[:, 0] + 0.1 * rng.standard_normal(40)
    return X, (y > 0).astype(int) if hasattr(model, "predict_proba") else y


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_fit_that_breaks_off_leaves_the_model_as_it_was(model, monkeypatch):
    model = clone(model)
    if isinstance(model, sb.SparseGPRegressor):
        model.set_params(max_terms=10)  # the exact process takes no steps that could break off
    X, y = _data(model)
    monkeypatch.setattr("sparsebayes.callbacks.Progress.__init__", _broken)
    with pytest.raises(RuntimeError, match="broken"):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert not [name for name in vars(model) if name.endswith("_")]
    monkeypatch.undo()
    before = model.fit(X, y).predict(X)
    monkeypatch.setattr("sparsebayes.callbacks.Progress.__init__", _broken)
    with pytest.raises(RuntimeError, match="broken"):
        model.fit(X[:, :1] if not hasattr(model, "groups") else 2 * X, y)
    np.testing.assert_array_equal(model.predict(X), before)


def _broken(self, *args, **kwargs):
    raise RuntimeError("broken off")


LEARNT = sb.BackfittingRegressor(kernel="rbf", gamma="evidence")


@pytest.mark.parametrize("model", [*MODELS, LEARNT], ids=lambda model: type(model).__name__)
def test_a_fit_sets_no_parameter(model):
    names = model.get_params(deep=False).keys()

    class Guarded(type(model)):
        def __setattr__(self, name, value):
            assert not (name in names and name in vars(self)), name
            super().__setattr__(name, value)

    Guarded(**model.get_params(deep=False)).fit(*_data(model))


class Threads:
    """Counts the threads of BLAS during its fit."""

    @whole_fit
    def fit(self, X):
        found = threadpool_info()
        self.threads_ = {each["num_threads"] for each in found if each["user_api"] == "blas"}
        return self


def test_a_fit_of_few_rows_keeps_blas_to_one_thread_and_gives_it_back():
    with threadpool_limits(2, user_api="blas"):
        assert Threads().fit(np.zeros((100, 1))).threads_ == {1}
        assert Threads().fit([[0.0]]).threads_ == {1}
        assert Threads().fit(np.zeros((100_000, 1))).threads_ == {2}
        assert Threads().fit(iter([np.zeros((10, 1))])).threads_ == {2}
