"""Every noise model on rows whose noise varies: each regressor and each noise of the registry."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from sparsebayes import SparseGPRegressor, noise_rounds
from sparsebayes.metrics import interval_coverage
from tests import registry

MODELS = [
    model for model in registry.plain_models(registry.REGRESSION) if registry.models_noise(model)
]
CASES = pytest.mark.parametrize(
    ("model", "noise"),
    [(model, noise) for model in MODELS for noise in registry.VARYING_NOISE],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)


def problem(n=160, seed=0):
    """Return rows, targets and the standard deviation of the noise, which varies tenfold."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (n, 2))
    std = np.exp(0.4 * X[:, 0] - 1.0)
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] + std * rng.standard_normal(n), std


def fitted(model, noise, X, y, std, sample_weight=None):
    parameters = registry.VARYING_NOISE[noise](std**2)
    return clone(model).set_params(**parameters).fit(X, y, sample_weight=sample_weight)


def answers(model, X):
    return np.column_stack([*model.predict(X, return_std=True), model.predict_interval(X)])


@CASES
def test_intervals_cover_new_rows(model, noise):
    model = fitted(model, noise, *problem())
    X, y, _ = problem(1000, seed=1)
    assert 0.9 < interval_coverage(y, model.predict_interval(X)) < 0.99


@CASES
def test_whole_weights_are_repetition(model, noise):
    X, y, std = problem(60)
    weight = np.random.default_rng(1).integers(0, 3, len(y))
    rows = np.repeat(np.arange(len(y)), weight)
    repeated = fitted(model, noise, X[rows], y[rows], std[rows])
    weighted = fitted(model, noise, X, y, std, sample_weight=weight)
    np.testing.assert_allclose(answers(weighted, X), answers(repeated, X), rtol=1e-6, atol=1e-6)


@CASES
def test_weights_move_the_mean_in_all_rounds(model, noise):
    # Two kinds of rows; robust fits go on after the first round only if there are outliers.
    X, y, std = problem()
    rng = np.random.default_rng(2)
    second = rng.random(len(y)) < 0.5
    y = y + second
    if "student" in noise:
        y = y + np.where(rng.random(len(y)) < 0.1, 8.0, 0.0) * std
    means = []
    for weight in (1.0, 10.0):
        weights = np.where(second, weight, 1.0)
        means.append(np.mean(fitted(model, noise, X, y, std, weights).predict(X)))
    assert means[1] - means[0] > 0.2


@CASES
def test_predictions_have_the_units_of_the_target(model, noise):
    X, y, std = problem(60)
    plain = answers(fitted(model, noise, X, y, std), X)
    scaled = answers(fitted(model, noise, X, 1024.0 * y, 1024.0 * std), X)
    np.testing.assert_allclose(scaled, 1024.0 * plain, rtol=1e-6, atol=1e-6)


@CASES
def test_a_saved_model_predicts_the_same(model, noise):
    X, y, std = problem(60)
    model = fitted(model, noise, X, y, std)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(answers(again, X), answers(model, X))


def test_the_second_round_keeps_what_cross_validation_chose_in_the_first(monkeypatch):
    choices = []
    original = noise_rounds.fit_noise

    def recorded(columns, features, squares, count, seed, choice, report):
        choices.append(choice)
        return original(columns, features, squares, count, seed, choice, report)

    monkeypatch.setattr(noise_rounds, "fit_noise", recorded)
    X, y, _ = problem()
    model = SparseGPRegressor(gamma=0.5, noise_variance="input").fit(X, y)
    assert model.noise_model_ is not None
    assert len(choices) == 2
    assert choices[0] is None
    assert choices[1] is not None
