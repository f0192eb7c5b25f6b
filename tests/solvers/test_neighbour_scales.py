"""The hyperparameters of a process of functions and neighbours, chosen by leave-one-out density."""

import numpy as np
import pytest

from sparsebayes.callbacks import Budget, Reporter
from sparsebayes.designs import KernelBasis
from sparsebayes.kernels import StationaryKernel
from sparsebayes.solvers.gp import cells as cells_module
from sparsebayes.solvers.gp import neighbour_scales
from sparsebayes.solvers.gp.neighbour_scales import _Search, neighbour_process
from sparsebayes.solvers.gp.neighbours import NeighbourProcess, UniqueRows
from sparsebayes.solvers.noise import Noise, noise_floor

ROUGH = StationaryKernel("laplacian", 0.5)
NOISE = 0.3


def surface(n, seed=0, noise=NOISE):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    f = np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.3 * X[:, 2] ** 2
    return X, f + noise * rng.standard_normal(n)


def fitted(X, y, kernel=ROUGH, weight=None, neighbours=16, centres=30, precision=None, **options):
    weight = np.ones(len(y)) if weight is None else weight
    basis = KernelBasis(kernel, X[:centres])
    L = np.linalg.cholesky(basis(X[:centres]) + 1e-12 * np.eye(centres))
    return neighbour_process(
        basis,
        L,
        UniqueRows.from_rows(X, y, weight, False, precision),
        neighbours=neighbours,
        intercept=True,
        noise=Noise(float(np.sum(weight)) - 1.0, 0.0, None, noise_floor(y - y.mean(), len(y))),
        scale=1.0,
        rng=np.random.default_rng(0),
        **options,
    )


@pytest.fixture
def few_rows(monkeypatch):
    """The rules for many rows hold from 300 rows on."""
    monkeypatch.setattr(neighbour_scales, "_EVIDENCE_ROWS", 300)
    monkeypatch.setattr(neighbour_scales, "_JUDGED_ROWS", 400)
    monkeypatch.setattr(cells_module, "_DIRECT", 300)


@pytest.mark.parametrize("jitter", [0.0, 1e-7])
def test_duplicates_that_share_their_noise_do_not_hide_it(jitter, few_rows):
    X, y = surface(700)
    rng = np.random.default_rng(1)
    some = rng.choice(700, 150, replace=False)
    X = np.vstack([X, X[some] + jitter * rng.standard_normal((150, 3))])
    found = fitted(X, np.append(y, y[some]))
    assert 0.7 * NOISE**2 < found.process.noise_variance < 1.4 * NOISE**2
    new, truth = surface(300, 2)
    mean, variance = found.process.predict(new)
    std = np.sqrt(variance + found.process.noise_variance)
    assert 0.9 < np.mean(np.abs(truth - mean) < 1.96 * std) < 0.99


def test_precisions_are_no_observations(few_rows):
    # As duplicates come from an estimator: one of two equal rows, its precision twice the others'.
    X, y = surface(700)
    precision = np.where(np.random.default_rng(1).uniform(size=700) < 0.2, 2.0, 1.0)
    precision /= np.mean(precision)
    plain, merged = fitted(X, y), fitted(X, y, weight=precision, precision=precision)
    assert merged.process.noise_variance == pytest.approx(plain.process.noise_variance, rel=0.3)


def test_weights_are_repetition(few_rows):
    X, y = surface(500)
    y = np.round(y)  # rows with equal inputs and equal targets, by chance
    weight = np.random.default_rng(1).integers(1, 3, 500)
    again = np.repeat(np.arange(500), weight)
    repeated = UniqueRows.from_rows(X[again], y[again], np.ones(len(again)), False)
    search = {}
    for name, rows in (
        ("weighted", UniqueRows.from_rows(X, y, weight.astype(float), False)),
        ("repeated", repeated),
    ):
        basis = KernelBasis(ROUGH, X[:0])
        noise = Noise(float(len(again)) - 1.0, 0.0, 0.1, 0.0)
        rng = np.random.default_rng(0)
        search[name] = _Search(
            basis, np.zeros((0, 0)), rows, True, noise, 16, rng, None, Reporter()
        )
    trial = neighbour_scales.Trial(0.1, 16, True, False)
    scores = []
    for one, rows in ((search["weighted"], np.arange(500)), (search["repeated"], None)):
        rows = np.arange(len(again)) if rows is None else rows
        scores.append(one._score(trial, one._judged(rows)))
    assert scores[0].density == pytest.approx(scores[1].density, rel=1e-9)
    first = np.searchsorted(again, np.arange(500))
    np.testing.assert_allclose(scores[0].densities, scores[1].densities[first], rtol=1e-9)


@pytest.mark.parametrize("gamma", [0.05, 0.5])
def test_a_target_without_noise_has_a_std_of_the_size_of_its_errors(gamma, few_rows):
    X, y = surface(800, noise=0.0)
    found = fitted(X, y, StationaryKernel("rbf", gamma), neighbours=32, centres=150)
    new, truth = surface(200, 2, noise=0.0)
    mean, variance = found.process.predict(new)
    error = np.sqrt(np.mean((mean - truth) ** 2))
    std = np.sqrt(np.mean(variance) + found.process.noise_variance)
    assert error < (1e-4 if gamma > 0.1 else 2e-3)  # lam >= 1e-10 limits a kernel that is too wide
    assert error / 4 < std < 4 * error


def test_rounding_errors_of_the_inputs_change_nothing(few_rows):
    X, y = surface(700)
    kernel = StationaryKernel("sum", np.full((2, 3), 0.4))
    one, other = (fitted(A, y, kernel, neighbours="auto") for A in (X, X * (1 + 1e-15)))
    assert one.numbers == other.numbers
    np.testing.assert_allclose(other.densities, one.densities, rtol=1e-9)
    assert one.process.m == other.process.m
    new = surface(50, 2)[0]
    for a, b in zip(one.process.predict(new), other.process.predict(new), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8)


def test_neighbours_of_few_rows_are_the_nearest(monkeypatch):
    # With up to 128 neighbours to try and fewer rows than that.
    X, y = surface(100)
    monkeypatch.setattr(neighbour_scales._Search, "try_cells", lambda self, best: best)
    search = []
    score = _Search._score
    monkeypatch.setattr(_Search, "_score", lambda self, *a: search.append(self) or score(self, *a))
    fitted(X, y, neighbours="auto")
    judged = search[0].judged
    near = np.sort(np.abs(X[judged.rows, None] - X).sum(axis=2), axis=1)[:, :16]
    distance = np.abs(X[judged.rows, None] - X[judged.neighbours[True][:, :16]]).sum(axis=2)
    assert np.mean(distance) < 1.2 * np.mean(near)


def test_a_process_that_is_not_calibrated_gives_way_to_the_next(few_rows, monkeypatch):
    X, y = surface(700)
    plain = fitted(X, y)
    assert plain.notes == []
    ratios = iter([94.0, 1.1])
    monkeypatch.setattr(_Search, "_calibration", lambda *_: next(ratios))
    other = fitted(X, y)
    assert other.process.lam != plain.process.lam
    assert len(other.notes) == 1
    assert "94 times as large as their standard deviations" in other.notes[0]


def test_cells_that_cannot_be_solved_are_reported(few_rows, monkeypatch):
    def fails(*_, **__):
        raise np.linalg.LinAlgError("Not positive definite.")

    X, y = surface(500)
    monkeypatch.setattr(NeighbourProcess, "loo_by_cells", fails)
    found = fitted(X, y)
    assert found.process.cells is None
    assert found.notes == ["Not positive definite. Cells were not used."]
    monkeypatch.undo()


def test_large_cells_that_cannot_be_solved_give_way_to_small_ones(few_rows, monkeypatch):
    X, y = surface(900)
    monkeypatch.setattr(neighbour_scales.Score, "is_better", lambda *_: True)
    monkeypatch.setattr(cells_module, "_BLOCK", 100)
    monkeypatch.setattr(cells_module, "_MOST_STEPS", 0)
    found = fitted(X, y)
    assert found.process.cells is not None
    assert np.max(np.diff(found.process.cells.first)) <= 300
    assert len(found.notes) == 1
    assert "Smaller cells are used" in found.notes[0]


def test_no_further_number_of_neighbours_is_compared_when_the_time_is_over():
    X, y = surface(300)
    short = fitted(X, y, neighbours="auto", reporter=Reporter(None, Budget(0.0)))
    assert len(short.numbers) < len(fitted(X, y, neighbours="auto").numbers)
    assert np.all(np.isfinite(short.loo[0]))
