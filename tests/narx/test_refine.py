"""Terms by the simulated error: needless ones go, missing ones come, unstable models never pass."""

import numpy as np
import pytest

from sparsebayes.narx import refine
from sparsebayes.narx.functions import Monomials
from sparsebayes.narx.refine import (
    Model,
    Problem,
    choose,
    equation_weights,
    finish,
    held_back_rms,
    spread,
    stable_start,
)
from sparsebayes.narx.simulation import Lags

LAGS = Lags((1, 2), ((0, 1),))
ALL = Monomials.up_to(LAGS.variables, 2)
TRUE = np.array([ALL.names.index(name) for name in ("y(k-1)", "y(k-2)", "u(k-1)", "u(k)^2")])
WEIGHTS = np.array([0.9, -0.4, 1.0, 0.5])


def problem(n=400, noise=0.05, n_records=1, seed=0):
    """A system with noise on its output, in records of n."""
    rng = np.random.default_rng(seed)
    records = []
    for _ in range(n_records):
        u, y = rng.uniform(-1, 1, n), np.zeros(n)
        for k in range(2, n):
            y[k] = 0.9 * y[k - 1] - 0.4 * y[k - 2] + u[k - 1] + 0.5 * u[k] ** 2
        records.append((u[:, None], y + noise * rng.standard_normal(n)))
    low = min(y.min() for _, y in records)
    high = max(y.max() for _, y in records)
    margin = 10 * (high - low)
    return Problem(ALL, LAGS, records, (low - margin, high + margin))


def test_needless_terms_are_dropped_and_a_missing_one_is_added():
    place = problem()
    others = [ALL.names.index(name) for name in ("1", "y(k-1)*u(k)", "y(k-2)^2")]
    for active in (np.sort([*TRUE, *others]), np.sort([*TRUE[:3], others[0]])):
        weights = np.zeros(len(active))
        weights[np.searchsorted(active, TRUE[:3])] = WEIGHTS[:3]
        model, error, path = choose(place, Model(active, weights), max_terms=10)
        assert set(TRUE) <= set(model.active)
        assert len(model.active) <= 5
        assert error == pytest.approx(0.05, rel=0.2)
        assert path[0][0] == len(active)


@pytest.mark.parametrize(("stable_at", "kept"), [(0, 5), (3, 3)])
def test_a_model_that_diverges_loses_terms_only_if_a_smaller_one_does_not(
    monkeypatch, stable_at, kept
):
    """A Bouc-Wen element lost all terms but one here: an infinite error is not above another."""

    def error_of(place, model, folds, refit=True):
        return model, 1.0 if len(model.active) == stable_at else np.inf

    monkeypatch.setattr(refine, "held_back_rms", error_of)
    active = np.sort([*TRUE, ALL.names.index("1")])
    weights = np.zeros(5)
    weights[np.searchsorted(active, TRUE)] = WEIGHTS
    model, error, _ = choose(problem(), Model(active, weights), max_terms=10, grow=False)
    assert len(model.active) == kept
    assert np.isfinite(error) == (stable_at > 0)


def test_held_back_outputs_are_not_seen_by_the_fit():
    place = problem()
    folds = place.folds()
    assert len(folds) == 4
    hidden = np.zeros(400, dtype=int)
    for fold in folds:
        assert not np.any(np.isfinite(fold.fitted.y) & np.isfinite(fold.held.y))
        hidden += np.isfinite(fold.held.y[:, 0])
    assert np.all(hidden[4:] == 1)
    changed = folds[1].held._replace(y=folds[1].held.y + 100.0)
    model = Model(TRUE, WEIGHTS)
    first, error = held_back_rms(place, model, [folds[1]])
    again, worse = held_back_rms(place, model, [folds[1]._replace(held=changed)])
    np.testing.assert_array_equal(first.weights, again.weights)
    assert worse > 50 * error


def test_many_segments_are_held_back_whole():
    place = problem(n=64, n_records=20)
    (fold,) = place.folds()
    assert not fold.same
    assert fold.fitted.y.shape[1] == 15
    assert fold.held.y.shape[1] == 5


def test_equation_weights_are_least_squares_on_what_is_known():
    place = problem(noise=0.0)
    segments = place.cut(400)
    y = segments.y.copy()
    y[50:60] = np.nan
    weights = equation_weights(ALL.take(TRUE), LAGS, segments._replace(y=y))
    np.testing.assert_allclose(weights, WEIGHTS, rtol=1e-8)


def test_an_unstable_model_never_passes():
    place = problem()
    square = ALL.names.index("y(k-1)^2")
    active = np.sort([*TRUE, square])
    weights = np.insert(WEIGHTS, np.searchsorted(TRUE, square), 0.4)
    assert place.is_stable(Model(TRUE, WEIGHTS))
    assert not place.is_stable(Model(active, weights))
    explosive = Model(TRUE[:1], np.array([1.5]))
    assert not place.is_stable(explosive)
    rms = held_back_rms(place, Model(active, np.full(5, 9.0)), place.folds(), refit=True)[1]
    assert np.isinf(rms) or rms < 1.0


def test_terms_are_refused_last_first_until_the_run_is_stable():
    place = problem()
    model, refused = stable_start(
        place, Model(TRUE, WEIGHTS), list(TRUE), lambda active: np.zeros(len(active))
    )
    assert refused == []
    np.testing.assert_allclose(model.weights, WEIGHTS, atol=0.1)

    class Never(Problem):
        def is_stable(self, model):
            return len(model.active) <= 2

    never = Never(place.functions, place.lags, place.records, place.limits)
    model, refused = stable_start(
        never, Model(TRUE, WEIGHTS), list(TRUE), lambda active: np.full(len(active), 0.1)
    )
    assert refused == [TRUE[3], TRUE[2]]
    np.testing.assert_array_equal(model.active, np.sort(TRUE[:2]))


def test_a_band_is_never_narrower_than_the_error_held_back():
    place = problem()
    model, covariance, fit = finish(place, Model(TRUE, WEIGHTS), True)
    assert fit.converged
    assert fit.rms == pytest.approx(0.05, rel=0.1)
    off = (model.weights - WEIGHTS) / np.sqrt(np.diag(covariance))
    assert np.all(np.abs(off) < 4)
    band = spread(place, model, covariance, True)
    assert band.inflation >= 1.0
    assert np.sqrt(band.least) == pytest.approx(0.05, rel=0.2)
    J = np.random.default_rng(0).standard_normal((50, 4))
    variance = band.variance(J, covariance)
    assert np.all(variance >= band.least)
    assert np.all(band.variance(1e4 * J, covariance) > variance)
