"""Fits that run out of time, or are interrupted, keep what they have reached."""

import signal
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import sparsebayes as sb
from sparsebayes.callbacks import Budget, Reporter
from sparsebayes.estimators.stacked import StackedRegressor
from sparsebayes.kernels import widths

MODELS = [
    sb.SparseGPRegressor,
    sb.ForwardRegressor,
    sb.RVMRegressor,
    sb.OrthogonalLeastSquaresRegressor,
    sb.GroupSpikeSlabRegressor,
    sb.GroupARDRegressor,
    StackedRegressor,
]
CLASSIFIERS = [sb.RVMClassifier, sb.SparseGPClassifier, sb.GroupSpikeSlabClassifier]


def data(n=150):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_a_regressor_without_time_keeps_a_usable_model_and_says_so(model):
    X, y = data()
    with pytest.warns(ConvergenceWarning, match="time_limit|max_time"):
        fitted = model(max_time=1e-6).fit(X, y)
    assert not fitted.converged_
    mean, std = fitted.predict(X, return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(std > 0)


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda m: m.__name__)
def test_a_classifier_without_time_keeps_a_usable_model_and_says_so(model):
    X, y = data()
    with pytest.warns(ConvergenceWarning, match="max_time"):
        fitted = model(max_time=1e-6).fit(X, y > 0)
    assert fitted.stop_reason_ == "time_limit"
    assert not fitted.converged_
    assert np.all(np.isfinite(fitted.predict_proba(X)))


def test_a_dynamic_model_without_time_keeps_a_usable_model_and_says_so():
    rng = np.random.default_rng(0)
    u, y = rng.uniform(-1, 1, 300), np.zeros(300)
    for k in range(1, 300):
        y[k] = 0.5 * y[k - 1] + u[k - 1] - 0.3 * u[k] * y[k - 1] + 0.01 * rng.standard_normal()
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        fitted = sb.NARXRegressor(degree=2, max_time=1e-6).fit(u, y)
    assert not fitted.converged_
    assert len(fitted.path_) == 1
    assert np.all(np.isfinite(fitted.simulate(u, y[:2])))
    assert sb.NARXRegressor(degree=2, max_time=1000.0).fit(u, y).converged_


def test_a_sampler_has_no_time_limit():
    with pytest.raises(ValueError, match="max_time=1.0 applies to EP only"):
        sb.GroupSpikeSlabRegressor(inference="gibbs", max_time=1.0).fit(*data())


@pytest.mark.parametrize("model", [sb.SparseGPRegressor, sb.ForwardRegressor])
def test_a_limit_that_is_not_reached_changes_nothing(model):
    X, y = data()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        fitted = model(max_time=1000.0).fit(X, y)
    assert fitted.converged_
    np.testing.assert_array_equal(fitted.predict(X), model().fit(X, y).predict(X))


def test_the_search_of_length_scales_ends_after_the_evaluation_that_ran_out_of_time(monkeypatch):
    calls = []
    evaluate = widths._Parts.__call__

    def counted(self, *theta):
        calls.append(len(self.parts))
        return evaluate(self, *theta)

    monkeypatch.setattr(widths._Parts, "__call__", counted)
    X, y = data()
    widths.learn_widths(X, y, reporter=Reporter(None, Budget(1e-9)))
    assert len(calls) == 1


def test_a_mixture_without_time_has_one_member():
    X, y = data()
    with pytest.warns(ConvergenceWarning):
        fitted = StackedRegressor(max_time=1e-6).fit(X, np.exp(y))
    assert fitted.choices_["member"] == ["linear"]


@pytest.fixture
def listens():
    """Python's handler of SIGINT: a shell runs a job in the background with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press_ctrl_c(monkeypatch, name, presses=1):
    """Send SIGINT at the first call of a method of the search of length scales."""
    method = getattr(widths._Parts, name)
    left = [presses]

    def interrupted(self, *args):
        while left[0]:
            left[0] -= 1
            signal.raise_signal(signal.SIGINT)
        return method(self, *args)

    monkeypatch.setattr(widths._Parts, name, interrupted)


@pytest.mark.parametrize("model", [sb.SparseGPRegressor, sb.RVMRegressor, StackedRegressor])
def test_ctrl_c_ends_a_fit_with_what_it_has_reached(model, listens, monkeypatch, capsys):
    press_ctrl_c(monkeypatch, "__call__")
    X, y = data()
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fitted = model().fit(X, y)
    assert not fitted.converged_
    assert np.all(np.isfinite(fitted.predict(X)))
    assert "Ctrl-C again" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_twice_ends_a_fit_at_once(listens, monkeypatch):
    press_ctrl_c(monkeypatch, "__call__", presses=2)
    model = sb.SparseGPRegressor()
    with pytest.raises(KeyboardInterrupt):
        model.fit(*data())
    assert not hasattr(model, "coef_")


def test_ctrl_c_that_comes_too_late_for_a_fit_is_raised_after_it(listens, monkeypatch):
    def take(model, fitted):
        vars(model).update(vars(fitted))
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("sparsebayes.estimators._sklearn.take_attributes", take)
    model = sb.BackfittingRegressor()
    with pytest.raises(KeyboardInterrupt):
        model.fit(*data())
    assert model.converged_


def test_learning_length_scales_reports_progress(capsys, monkeypatch):
    monkeypatch.setattr(Budget, "is_time_to_print", lambda self: True)
    sb.SparseGPRegressor(verbose=1).fit(*data(60))
    assert "learning length scales of" in capsys.readouterr().out


def test_a_negative_limit_is_refused():
    with pytest.raises(ValueError, match="max_time"):
        sb.SparseGPRegressor(max_time=-1.0).fit(*data())
