"""Selection of terms, and fit of their weights, by the simulated error.

The equation error (one step ahead) treats noisy lagged outputs as exact inputs: weights are biased,
and terms are selected that only predict noise. Starting from the terms selected one step ahead,

1. weights are fitted to the simulated output over growing horizons, so that a model that is
   unstable at first moves into the stable region; a term that makes the model unstable is refused;
2. the term whose removal costs least is dropped, as long as the simulated error on held-back
   segments does not rise by more than the penalty of a term under BIC;
3. the candidate whose sensitivity explains most of the simulated error (orthogonal least squares on
   filtered candidates) is added, as long as that error falls by more than `_WORTH`; then 2. again;
4. in the end the weights are fitted to all segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..callbacks import Budget
from .functions import Functions
from .simulation import (
    Lags,
    Run,
    Segments,
    SimulationFit,
    cut,
    fit_simulation,
    free_run,
    normal_equations,
    sensitivities,
    weight_covariance,
)

LENGTH = 1024  # longest segment: a loop over time costs the same for one segment as for fifty
_HORIZONS = (32, 128, 512)  # before the whole segment
_FEW = 16  # segments that terms are chosen on; the weights are fitted to all in the end
_HELD = 4  # every fourth segment is held back
_WORTH = 0.05  # share by which it must fall when a term is added: the best of many falls by chance
_NUMBERS = 2**24  # of the sensitivities of all candidates


@dataclass(frozen=True)
class Problem:
    """The functions, lags and records that a model is simulated on."""

    functions: Functions  # all candidates
    lags: Lags
    records: Sequence[tuple[np.ndarray, np.ndarray]]
    limits: tuple[float, float]

    def cut(self, length: int) -> Segments:
        """The records in segments."""
        return cut(self.records, self.lags, length)

    @property
    def length(self) -> int:
        """Length of the longest segments."""
        return min(LENGTH, max(len(y) for _, y in self.records))

    def fit(self, model: Model, segments: Segments, **options: Any) -> SimulationFit:
        """The weights of a model and the starts of the segments, by the simulated error."""
        functions = self.functions.take(model.active)
        return fit_simulation(functions, model.weights, self.lags, segments, self.limits, **options)

    def run(self, model: Model, fit: SimulationFit, segments: Segments) -> Run:
        """The free runs of a fit of this model."""
        functions = self.functions.take(model.active)
        return free_run(functions, fit.weights, self.lags, segments.inputs, fit.start, self.limits)

    def is_stable(self, model: Model) -> bool:
        """Return whether the model stays near the data under inputs like those of the records.

        Beside the fit: from the lowest and the highest output, under the inputs as they were and
        backwards in time, no run may leave the range of the data by more than that range.
        """
        segments = self.cut(self.length)
        subset = segments.thinned(_FEW)
        low, high = float(np.nanmin(segments.y)), float(np.nanmax(segments.y))
        inputs = np.concatenate([subset.inputs, subset.inputs[::-1]] * 2, axis=2)
        start = np.repeat([low, high], inputs.shape[2] // 2)[None] * np.ones((self.lags.max_lag, 1))
        limits = (2.0 * low - high, 2.0 * high - low)
        functions = self.functions.take(model.active)
        if high == low:
            limits = self.limits
        return not free_run(functions, model.weights, self.lags, inputs, start, limits).diverged

    def folds(self) -> list[Fold]:
        """Segments to fit and segments held back, a few of each; or quarters of the few there are.

        One fold where there are segments enough. A short record is simulated as a whole, and each
        quarter of it is held back once: the fit does not see the outputs there.
        """
        segments = self.cut(self.length)
        n = segments.y.shape[1]
        if n >= _FEW:
            validation = np.arange(n) % _HELD == _HELD - 1
            fitted, apart = (
                segments.take(part).thinned(_FEW) for part in (~validation, validation)
            )
            return [Fold(fitted, apart, False)]
        steps = np.arange(len(segments.y))
        quarter = steps * _HELD // len(segments.y)
        quarter[steps < 2 * self.lags.max_lag] = -1  # the start is always seen
        folds = []
        for i in range(_HELD):
            inside = (quarter == i)[:, None]
            training = np.where(inside, np.nan, segments.y)
            kept = np.where(inside, segments.y, np.nan)
            if np.any(np.isfinite(training)) and np.any(np.isfinite(kept)):
                folds.append(Fold(segments._replace(y=training), segments._replace(y=kept), True))
        return folds


class Fold(NamedTuple):
    """Outputs to fit and outputs held back, of other segments or of the same."""

    fitted: Segments
    held: Segments
    same: bool


@dataclass(frozen=True)
class Model:
    """Some of the candidates, and their weights."""

    active: np.ndarray  # rising
    weights: np.ndarray

    def without(self, i: int) -> Model:
        """One term less."""
        return Model(np.delete(self.active, i), np.delete(self.weights, i))

    def plus(self, j: int) -> Model:
        """One term more, of weight zero."""
        at = int(np.searchsorted(self.active, j))
        return Model(np.insert(self.active, at, j), np.insert(self.weights, at, 0.0))


@dataclass(frozen=True)
class Spread:
    """Variance of a simulated output: noise + inflation * j' covariance j, or `least` if larger.

    The inflation is how much more the held-back outputs differ from the simulation, where it is
    sensitive to the weights, than the uncertainty of constant weights explains. No band is narrower
    than the mean squared error held back: where sensitivities are small the errors of a real system
    need not be. `few_steps` is the share of the hundredth of the time steps that are missed most,
    two at least, in the sum of those squared errors.
    """

    noise: float
    inflation: float
    least: float
    few_steps: float

    def variance(self, J: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """Return the variance at each time step; J has its sensitivities, one row per step."""
        q = np.einsum("np,pq,nq->n", J, covariance, J, optimize=True)
        return np.maximum(self.noise + self.inflation * np.maximum(q, 0.0), self.least)


def held_back(
    problem: Problem, model: Model, fold: Fold, refit: bool = True
) -> tuple[Model, SimulationFit, Segments]:
    """The weights fitted without the outputs held back, and the simulation of those.

    `refit`: to the simulated output; else one step ahead. In segments of their own the starts are
    fitted: they are no part of the model.
    """
    if not refit:
        functions = problem.functions.take(model.active)
        weights = equation_weights(functions, problem.lags, fold.fitted)
        model = Model(model.active, weights)
    fit = problem.fit(model, fold.fitted, max_iter=8, tol=1e-4, starts_only=not refit)
    model = Model(model.active, fit.weights)
    if not fold.same:
        fit = problem.fit(model, fold.held, max_iter=4, tol=1e-3, starts_only=True)
    return model, fit, fold.held


def equation_weights(functions: Functions, lags: Lags, segments: Segments) -> np.ndarray:
    """Least squares one step ahead, on the outputs of the segments that are known."""
    columns, targets = [], []
    for s in range(segments.y.shape[1]):
        x = np.concatenate([lags.of_outputs(segments.y[:, s]), segments.inputs[:, :, s].T])
        t = segments.y[lags.max_lag :, s]
        observed = np.all(np.isfinite(x), axis=0) & np.isfinite(t)
        columns.append(functions(x[:, observed]).T)
        targets.append(t[observed])
    return least_squares(np.concatenate(columns), np.concatenate(targets))


def least_squares(Phi: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Weights of the columns, each scaled to length one for the solution."""
    scale = 1.0 / np.maximum(np.linalg.norm(Phi, axis=0), 1e-150)
    return scale * np.linalg.lstsq(Phi * scale, t, rcond=1e-13)[0]


def held_back_rms(
    problem: Problem, model: Model, folds: Sequence[Fold], refit: bool = True
) -> tuple[Model, float]:
    """A model fitted to the first fold, and its error on all; infinite where it diverges."""
    squares, n, first = 0.0, 0, model
    for i, fold in enumerate(folds):
        fitted, fit, validation = held_back(problem, model, fold, refit)
        first = fitted if i == 0 else first
        run = problem.run(model, fit, validation)
        if run.diverged:
            return first, np.inf
        observed = np.isfinite(validation.y)
        squares += float(np.sum(np.square((validation.y - run.y)[observed])))
        n += int(np.count_nonzero(observed))
        if not problem.is_stable(fitted):
            return first, np.inf
    return first, float(np.sqrt(squares / max(n, 1)))


def stable_start(
    problem: Problem,
    model: Model,
    order: Sequence[int],
    weights_of: Callable[[np.ndarray], np.ndarray],
) -> tuple[Model, list[int]]:
    """Weights that simulate without divergence, and the terms refused for it.

    `order` has the active candidates, most important first: the last are refused first.
    `weights_of` gives the weights of active candidates one step ahead.
    """
    refused: list[int] = []
    remaining = list(order)
    while True:
        fitted = _grow_horizon(problem, model)
        if fitted is not None:
            return fitted, refused
        if len(remaining) <= 1:
            # A term alone that is unstable: at rest it stays within the limits.
            return Model(model.active, 0.0 * model.weights), refused
        refused.append(remaining.pop())
        active = np.sort(np.array(remaining, dtype=np.intp))
        model = Model(active, weights_of(active))


def choose(
    problem: Problem,
    model: Model,
    max_terms: int,
    grow: bool = True,
    budget: Budget | None = None,
) -> tuple[Model, float, list[tuple[int, float]]]:
    """Drop and add terms by the root mean square of the simulated error on held-back segments.

    Returns the model, its error, and the number of terms and the error of all that were tried. The
    search ends with the best model so far when the budget is over.
    """
    budget = budget or Budget()
    folds, path = problem.folds(), []
    model, error = held_back_rms(problem, model, folds)
    path.append((len(model.active), error))
    model, error = _prune(problem, model, error, folds, path, budget)
    while grow and len(model.active) < max_terms and not budget.over:
        for j in _promising(problem, model, folds[0].fitted):
            larger, value = held_back_rms(problem, model.plus(j), folds)
            path.append((len(larger.active), value))
            if value < (1.0 - _WORTH) * error:
                model, error = larger, value
                break
        else:
            break
    if grow:
        model, error = _prune(problem, model, error, folds, path, budget)
    return model, error, path


def finish(problem: Problem, model: Model, refit: bool) -> tuple[Model, np.ndarray, SimulationFit]:
    """Weights from all segments, their covariance, and the fit."""
    segments = problem.cut(problem.length)
    fit = problem.fit(model, segments, starts_only=not refit)
    fitted = Model(model.active, fit.weights)
    if refit and not problem.is_stable(fitted):
        # The weights that passed while terms were chosen, then.
        return finish(problem, model, False)
    J, error, observed = _at(problem, fitted, fit, segments)
    return fitted, weight_covariance(J, error, observed, len(fit.weights)), fit


def spread(problem: Problem, model: Model, covariance: np.ndarray, refit: bool) -> Spread:
    """Noise and inflation of the variance, by the likelihood of what is held back."""
    from scipy.optimize import minimize

    rows, squares = [], []
    for fold in problem.folds():
        _, fit, validation = held_back(problem, model, fold, refit)
        J, error, observed = _at(problem, model, fit, validation)
        rows.append(J[observed][:, : len(model.weights)])
        squares.append(np.square(error[observed]))
    J, e2 = np.concatenate(rows), np.concatenate(squares)
    q = np.maximum(np.einsum("np,pq,nq->n", J, covariance, J, optimize=True), 0.0)
    mean = max(float(np.mean(e2)), 1e-300)

    def cost(logs: np.ndarray) -> float:
        logs = np.clip(logs, -20.0, 20.0)
        variance = mean * np.exp(logs[0]) + (1.0 + np.exp(logs[1])) * q
        return float(np.mean(np.log(variance) + e2 / variance))

    starts = [np.array([-0.1, -5.0]), np.array([-1.0, 2.0]), np.array([-2.0, 5.0])]
    best = min((minimize(cost, x, method="Nelder-Mead") for x in starts), key=lambda f: f.fun)
    logs = np.clip(best.x, -20.0, 20.0)
    few = np.sort(e2)[-max(2, len(e2) // 100) :]
    few_steps = float(np.mean(few) * len(few) / (mean * len(e2)))
    return Spread(mean * float(np.exp(logs[0])), 1.0 + float(np.exp(logs[1])), mean, few_steps)


def _grow_horizon(problem: Problem, model: Model) -> Model | None:
    """Weights fitted over growing horizons; None where the whole segments still diverge."""
    least = 2 * problem.lags.max_lag + 8
    full = problem.length
    for horizon in sorted({min(max(h, least), full) for h in (*_HORIZONS, full)}):
        segments = problem.cut(horizon).thinned(4 * _FEW)
        fit = problem.fit(model, segments, max_iter=8, tol=1e-3)
        if fit.diverged or not np.all(np.isfinite(fit.weights)):
            return None
        model = Model(model.active, fit.weights)
    return model if problem.is_stable(model) else None


def _prune(
    problem: Problem,
    model: Model,
    error: float,
    folds: Sequence[Fold],
    path: list[tuple[int, float]],
    budget: Budget,
) -> tuple[Model, float]:
    # A model that diverges (infinite error) does not say what a term is worth: terms are dropped
    # until one does not, and all are kept if each does.
    whole, best, fitted = model, error, folds[0].fitted
    n = max(sum(int(np.count_nonzero(np.isfinite(fold.held.y))) for fold in folds), 2)
    slack = 0.5 * np.log(n) / n  # what a term costs under BIC, as a share of the error
    while len(model.active) > 1 and not budget.over:
        fit = problem.fit(model, fitted, max_iter=2)
        normal = normal_equations(*_at(problem, model, fit, fitted), len(fit.weights))
        if normal is None:
            break
        i = int(np.argmin(normal.rise(fit.weights)))
        smaller, value = held_back_rms(problem, Model(model.active, fit.weights).without(i), folds)
        path.append((len(smaller.active), value))
        if not value <= (1.0 + slack) * best:
            break
        model, error, best = smaller, value, min(best, value)
    return (model, error) if np.isfinite(error) else (whole, error)


def _promising(problem: Problem, model: Model, fitted: Segments, n: int = 2) -> list[int]:
    """The candidates whose sensitivities explain most of what the simulation leaves."""
    m, T = len(problem.functions), len(fitted.y)
    segments = fitted.thinned(max(1, _NUMBERS // (m * T)))
    fit = problem.fit(model, segments, starts_only=True)
    J, error, observed = _at(problem, model, fit, segments, extra=problem.functions)
    J = np.where(observed[:, :, None], J, 0.0)
    if not np.all(np.isfinite(J)):
        return []
    Z, right = J[:, :, :m], error[:, :, None]
    for s in range(Z.shape[1]):
        by_start = J[:, s, m:]
        if by_start.shape[1]:
            basis = np.linalg.qr(by_start)[0]
            Z[:, s] -= basis @ (basis.T @ Z[:, s])
            right[:, s] -= basis @ (basis.T @ right[:, s])
    Z, r = Z.reshape(-1, m), right.ravel()
    size = np.einsum("np,np->p", Z, Z)
    chosen = Z[:, model.active] / np.sqrt(np.maximum(size[model.active], 1e-300))
    basis = np.linalg.qr(chosen)[0]
    r = r - basis @ (basis.T @ r)
    along = basis.T @ Z
    remaining = size - np.einsum("kp,kp->p", along, along)
    able = (remaining > 1e-8 * size) & ~np.isin(np.arange(m), model.active)
    score = np.where(able, np.square(r @ Z) / np.maximum(remaining, 1e-300), -1.0)
    return [int(j) for j in np.argsort(-score, kind="stable")[:n] if score[j] > 0.0]


def _at(
    problem: Problem,
    model: Model,
    fit: SimulationFit,
    segments: Segments,
    extra: Functions | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sensitivities (see `sensitivities`), errors and which outputs are known, at a fit."""
    run = problem.run(model, fit, segments)
    functions = problem.functions.take(model.active)
    J = sensitivities(functions, fit.weights, problem.lags, segments.inputs, run, extra)
    observed = np.isfinite(segments.y)
    return J, np.where(observed, np.nan_to_num(segments.y) - run.y, 0.0), observed
