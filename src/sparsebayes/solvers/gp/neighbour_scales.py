"""Choose the hyperparameters of a `NeighbourProcess` by leave-one-out predictions.

Signal and noise variance are first those of highest exact evidence on up to 1,500 rows. More rows
show finer detail, which so few rows attribute to noise. A `Trial` therefore has four fields that
are improved in turn by the mean log density of up to 2,000 rows, each predicted without itself:

    rough   which part of a sum kernel defines the distance
    cells   whether means come from cells or from the nearest rows
    lam     noise variance over amplitude, halved or doubled while that pays
    m       number of neighbours, doubled while that pays

The amplitude is the one with which the standardised leave-one-out residuals have a mean square of
one. Three rules keep the choice from depending on a few rows or on rounding:

- Rows with a near-duplicate are not judged, and have no part in the evidence. In tables where such
  rows have nearly equal targets, they suggest a noise variance of almost zero, which all other rows
  contradict only rarely, but then by hundreds of standard deviations.
- The noise variance is at least 1e-10 of the variance of the target.
- A change must gain more than rounding errors can (`_WORTH`). If the leave-one-out residuals of the
  chosen process are more than three times as large as their standard deviations, the process is
  wrong, and the next best trial is used. `LocalFit.notes` reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError
from scipy.optimize import brentq

from ...callbacks import Reporter
from ...designs import KernelBasis
from ...posterior import LooPredictions
from ..noise import NOISE_FLOOR, Noise
from .cells import Cells, cut_cells
from .exact import exact_process
from .neighbours import (
    TINY,
    NearestRows,
    NeighbourProcess,
    TrainingCache,
    UniqueRows,
    fit_global,
    whiten,
)

# Smallest lam over a weight: rows may be nearly equal, and in float32 r is right to 1e-7.
_SMALLEST = {np.float64: 1e-10, np.float32: 1e-5}
_EVIDENCE_ROWS = 1500  # rows of the exact evidence
# Rows whose leave-one-out density is compared. On a heavy-tailed table of 10,000 rows the standard
# error of a difference of 32 and 64 neighbours is .008 with 1,000 and .005 with 2,000.
_JUDGED_ROWS = 2000
_FEW_ROWS = 500  # where the time is over
_JUDGED_CELLS, _FINAL_CELLS = 3, 8  # cells that rows are drawn from, in the search and at the end
_FACTORS = (0.5, 2.0)  # steps of lam, tried in this order
_WORTH = 2e-3  # nats per row that a change of lam or of m must gain
_NEAR_DUPLICATE = 0.1  # of the median of 1 - k(x, nearest row)
_LARGEST_CALIBRATION = 3.0
_MOST_FALLBACKS = 3
AUTO = (16, 32, 64, 128)
_POWERS = (0.1, 10.0)  # range of the power of the variance


class LocalFit(NamedTuple):
    """A process, and how it was chosen."""

    process: NeighbourProcess
    numbers: list[int]  # numbers of neighbours that were tried
    densities: list[float]  # and the mean leave-one-out log density of y/scale with each
    residual_variance: float  # mean of r(x, x)
    limit: str  # as in `gp_prior.Prior`
    loo: LooPredictions  # leave-one-out predictions of the requested rows
    notes: list[str]  # what went wrong and what was done


class Trial(NamedTuple):
    """Hyperparameters of a process."""

    lam: float
    m: int
    rough: bool
    cells: bool


class Score(NamedTuple):
    """Leave-one-out predictions of a trial."""

    trial: Trial
    process: NeighbourProcess
    density: float  # mean log density; -inf where the trial failed
    densities: np.ndarray
    rows: np.ndarray
    n_observations: np.ndarray  # at each of these rows
    variance: np.ndarray  # of the function there, in units of the amplitude

    def is_better(self, other: Score) -> bool:
        """Return whether the density is higher by more than a standard error, on the same rows."""
        if not self.density > other.density:
            return False
        gain, count = self.densities - other.densities, self.n_observations
        error = np.average((gain - self.density + other.density) ** 2, weights=count)
        return bool(self.density - other.density > np.sqrt(error / np.sum(count)))


class _TimeIsOver(Exception):
    """The budget is over before all cells are solved."""


class JudgedRows(NamedTuple):
    """Rows whose leave-one-out predictions are compared."""

    rows: np.ndarray
    unique: np.ndarray
    inverse: np.ndarray
    neighbours: dict[bool, np.ndarray]  # by `Trial.rough`


def neighbour_process(
    functions: KernelBasis,
    factor: np.ndarray,
    rows: UniqueRows,
    *,
    neighbours: Any,
    intercept: bool,
    noise: Noise,
    scale: float,
    rng: np.random.Generator,
    n_loo_rows: int | None = None,
    n_jobs: int | None = None,
    reporter: Reporter | None = None,
) -> LocalFit:
    """Fit the process of all rows with given basis functions.

    Parameters
    ----------
    functions, factor : KernelBasis, array
        The functions and the lower Cholesky factor of their kernel matrix.
    rows : UniqueRows
    neighbours : int or "auto"
        ``"auto"``: 16, doubled up to 128 while that pays.
    intercept : bool
    noise : Noise
        A fixed noise variance is kept.
    scale : float
        Factor by which y was divided.
    rng : Generator
        Draws the rows of the evidence and those that are judged.
    n_loo_rows : int or None
        Number of rows with leave-one-out predictions in the result; None for all.
    n_jobs : int or None
        Threads for the cells.
    reporter : Reporter, optional
        Reporter of the progress. When its budget is over no further scales are compared, and means
        come from the nearest rows, without cells.
    """
    numbers = AUTO if neighbours == "auto" else (int(neighbours),)
    reporter = reporter or Reporter()
    search = _Search(functions, factor, rows, intercept, noise, numbers[-1], rng, n_jobs, reporter)
    start = Trial(search.lam, numbers[min(1, len(numbers) - 1)], search.metrics[0], cells=False)
    best = search.score(start)
    best = search.climb(best, [start._replace(rough=rough) for rough in search.metrics[1:]], 0.0)
    best = search.try_cells(best)
    if len(rows.y) > _EVIDENCE_ROWS:
        for step in _FACTORS:
            before = best
            best = search.climb(best, search.ladder(best.trial, step), _WORTH)
            if best is not before:
                break
    if len(numbers) > 1 and not reporter.budget.over:
        trials = [best.trial._replace(m=m) for m in numbers]
        best = search.climb(search.score(trials[0]), trials[1:], _WORTH)
    same = best.trial._replace(m=0)
    tried = {t.m: s.density for t, s in search.scores.items() if t._replace(m=0) == same}
    best = search.calibrated(best)
    process, loo = search.finish(best, scale, n_loo_rows)
    return LocalFit(
        process,
        sorted(tried),
        [tried[m] for m in sorted(tried)],
        float(np.mean(search.white.residual)),
        search.limit(best),
        loo,
        search.notes,
    )


class _Search:
    """Trials on given functions and rows, and their leave-one-out scores."""

    def __init__(
        self,
        functions: KernelBasis,
        factor: np.ndarray,
        rows: UniqueRows,
        intercept: bool,
        noise: Noise,
        most: int,
        rng: np.random.Generator,
        n_jobs: int | None,
        reporter: Reporter,
    ) -> None:
        self.functions, self.rows, self.noise = functions, rows, noise
        self.most, self.rng, self.n_jobs, self.reporter = most, rng, n_jobs, reporter
        kernel: Any = functions.kernel
        self.metrics = (False, True) if kernel.family == "sum" else (kernel.family == "laplacian",)
        self.nearest = {rough: NearestRows(kernel, rows.X, rough) for rough in self.metrics}
        self.white = whiten(functions, factor, rows)
        self.fit = lru_cache(2)(lambda lam: fit_global(self.white, rows, lam, intercept))
        self.loo_cells = lru_cache(2)(
            lambda rough, m: cut_cells(self.nearest[rough], rows.X, m, loo=True)
        )
        self.notes: list[str] = []
        self.cache: TrainingCache | None = None
        heaviest = max(1.0, float(np.max(rows.aggregate()[1])))
        self.smallest = _SMALLEST[rows.X.dtype.type] * heaviest
        self.floor = 0.0  # smallest noise variance
        self.every, self.is_duplicate = np.arange(len(rows.y)), rows.duplicated()
        self.count = rows.weight / rows.precision
        self._learn_scales(intercept)
        self.judge(self.every)

    def _learn_scales(self, intercept: bool) -> None:
        """Set lam and amplitude to those of highest exact evidence; lam is 1 without a signal."""
        y, weight, rows = self.rows.y, self.rows.weight, self.every
        if len(rows) > _EVIDENCE_ROWS:
            rows = self.draw(rows, _EVIDENCE_ROWS)
        X = self.rows.X[rows if self.rows.index is None else self.rows.index[rows]]
        X = X.astype(np.float64)
        kernel: Any = self.functions.kernel
        K = np.asfortranarray(kernel.bind(X)(X))
        # A kernel that varies by less than the least noise carries no signal beside a constant.
        varies = not intercept or 1.0 - float(np.mean(K)) > self.smallest
        # The weights of a subset may add up to more observations than it has.
        share = float(np.sum(self.count[rows]) / np.sum(self.count))
        noise = replace(self.noise, n=max(share * (self.noise.n + intercept) - intercept, 1.0))
        process = exact_process(K, y[rows], weight[rows], intercept, noise, self.rng)
        assert process is not None  # a kernel of distances is positive definite
        amplitude = float(process.amplitude)
        self.lam, self.amplitude = 1.0, process.lam * amplitude
        self.at_smallest = ""
        if varies:
            centred = y - np.average(y, weights=weight) if intercept else y
            self.floor = NOISE_FLOOR * float(np.average(centred**2, weights=weight))
            self.smallest = max(self.smallest, self.floor / amplitude)
            self.lam, self.amplitude = max(process.lam, self.smallest), amplitude
            self.at_smallest = process.limit

    def limit(self, score: Score) -> str:
        """Return the limit that a score has reached, as in `gp_prior.Prior`."""
        process = score.process
        if process.lam * process.amplitude <= 1.001 * self.floor:
            return "noise"
        return self.at_smallest if process.lam == self.lam else ""

    # Which rows are judged.

    def judge(self, rows: np.ndarray) -> None:
        """Compare trials by some of these rows from now on."""
        number = _FEW_ROWS if self.reporter.budget.over else _JUDGED_ROWS
        self.judged = self._judged(self.draw(rows, number))
        self.scores: dict[Trial, Score] = {}

    def _judged(self, rows: np.ndarray) -> JudgedRows:
        return JudgedRows(rows, *self.rows.lookup(rows), {})

    def draw(self, rows: np.ndarray, number: int) -> np.ndarray:
        """Return up to `number` of these rows, without those that have a near-duplicate."""
        if len(rows) > number:
            rows = self.rng.permutation(rows)[: 2 * number]
        return np.sort(rows[~self._has_near_duplicate(rows)][:number])

    def _has_near_duplicate(self, rows: np.ndarray) -> np.ndarray:
        """Return which of these rows have another row much nearer than most of them have.

        The distance is 1 - k. It is zero where another row has equal inputs and an equal target;
        rows with equal inputs and different targets show the noise, and are not duplicates.
        """
        if len(self.rows) <= 2:
            return np.zeros(len(rows), dtype=bool)
        unique, inverse = self.rows.lookup(rows)
        A = self.rows.X[unique].astype(np.float64)
        kernel: Any = self.functions.kernel
        distance = np.full(len(unique), np.inf)
        for nearest in self.nearest.values():
            N = nearest(A, 2)
            other = self.rows.X[np.where(N[:, 0] == unique, N[:, 1], N[:, 0])] - A
            pairs = np.stack([np.zeros_like(other), other], axis=1)
            distance = np.minimum(distance, 1.0 - kernel.among(pairs)[:, 0, 1])
        distance = np.where(self.is_duplicate[rows], 0.0, distance[inverse])
        return distance < _NEAR_DUPLICATE * np.median(distance)

    def _within(self, cells: Cells, number: int) -> np.ndarray:
        """Return the rows of up to `number` cells, drawn at random."""
        rows = self.every
        if cells.n <= number:
            return rows
        unique = rows if self.rows.index is None else self.rows.index[rows]
        cell = cells.find(self.rows.X[unique])
        return rows[np.isin(cell, self.rng.choice(cells.n, number, replace=False))]

    def _some(self, rows: np.ndarray) -> np.ndarray:
        """Return as many of these rows as are judged, drawn at random."""
        if len(rows) <= _JUDGED_ROWS:
            return rows
        return np.sort(self.rng.choice(rows, _JUDGED_ROWS, replace=False))

    # Scores.

    def score(self, trial: Trial) -> Score:
        """Return the score of a trial on the judged rows; -inf where it has no solution."""
        if trial not in self.scores:
            self.scores[trial] = self._score(trial, self.judged)
        return self.scores[trial]

    def _score(self, trial: Trial, judged: JudgedRows) -> Score:
        process = self.process(trial)
        try:
            mean, variance = self.moments(process, trial.cells, judged)
        except LinAlgError as error:
            self.notes.append(f"{error} Cells were not used.")
            nothing = np.full(len(judged.rows), -np.inf)
            return Score(trial, process, -np.inf, nothing, judged.rows, nothing, nothing)
        return self._scored(trial, process, judged.rows, mean, variance)

    def process(self, trial: Trial) -> NeighbourProcess:
        """Return the process of a trial, in the units of the solver, whose squares are numbers."""
        fixed = self.noise.fixed
        amplitude = self.amplitude if fixed is None else float(fixed) / trial.lam
        fit = self.fit(trial.lam)
        return NeighbourProcess(
            self.functions, self.rows, fit, trial.lam, amplitude, 1.0, trial.m, trial.rough
        )

    def moments(
        self, process: NeighbourProcess, cells: bool, judged: JudgedRows
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return leave-one-out mean and variance of the function at judged rows."""

        def take(subset: np.ndarray) -> TrainingCache:
            self.reporter.say(f"predicting each row from the nearest others: {len(subset)} rows")
            phi = self.white.phi[subset] @ process.fit.rotation.astype(self.white.phi.dtype)
            residual = self.white.residual[subset]
            return TrainingCache.from_functions(process, phi, residual, None, subset)

        m, rough, unique = process.m, process.rough, judged.unique
        if cells or m >= len(self.rows):
            mean, variance = process.loo_by_cells(
                self.loo_cells(rough, m), unique, take, self.n_jobs
            )
        else:
            if rough not in judged.neighbours:
                A, most = self.rows.X[unique].astype(np.float64), min(self.most, len(self.rows) - 1)
                judged.neighbours[rough] = self.nearest[rough](A, most)
            N = judged.neighbours[rough][:, :m]
            subset = np.union1d(unique, N)
            own, N = np.searchsorted(subset, unique), np.searchsorted(subset, N)
            mean, variance = process.loo_by_neighbours(own, N, take(subset))
        return mean[judged.inverse], variance[judged.inverse]

    def _scored(
        self,
        trial: Trial,
        process: NeighbourProcess,
        rows: np.ndarray,
        mean: np.ndarray,
        variance: np.ndarray,
    ) -> Score:
        """Return the score of leave-one-out moments, with the amplitude that they call for."""
        residual, variance, noise = self._leave_out(process, rows, mean, variance)
        total, count = variance + noise, self.count[rows]
        if self.noise.fixed is None and len(self.rows.y) > _EVIDENCE_ROWS:
            amplitude = float(np.average(residual**2 / total, weights=count))
            process = replace(process, amplitude=amplitude)
        square = residual**2 / (process.amplitude * total)
        densities = -0.5 * (np.log(2.0 * np.pi * process.amplitude * total) + square)
        density = float(np.average(densities, weights=count))
        return Score(trial, process, density, densities, rows, count, variance)

    def _leave_out(
        self, process: NeighbourProcess, rows: np.ndarray, mean: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return residual, variance of the function and of the noise of observations left out.

        `mean` and `variance` are given all other inputs; other observations at the same inputs are
        added here.
        """
        y, total, _ = self.rows.aggregate()
        unique = rows if self.rows.index is None else self.rows.index[rows]
        own, precision = self.rows.y[rows], self.rows.precision[rows]
        others = total[unique] - np.minimum(precision, self.rows.weight[rows])
        mean_of_others = own + total[unique] * (y[unique] - own) / np.maximum(others, TINY)
        ratio = process.lam / (process.lam + others * variance)
        mean = np.where(others > 0.0, ratio * mean + (1.0 - ratio) * mean_of_others, mean)
        return own - mean, ratio * variance, process.lam / precision

    # The search.

    def climb(self, best: Score, trials: Iterable[Trial], least_gain: float) -> Score:
        """Return the last of a series of trials of which each gains more than `worth`."""
        for trial in trials:
            if self.reporter.budget.over:
                break
            score = self.score(trial)
            if not score.density > best.density + least_gain:
                break
            best = score
        return best

    def ladder(self, trial: Trial, step: float) -> Iterator[Trial]:
        """Yield trials with lam times powers of a step, down to the smallest lam."""
        while step > 1.0 or trial.lam > self.smallest:
            trial = trial._replace(lam=max(trial.lam * step, self.smallest))
            yield trial

    def try_cells(self, best: Score) -> Score:
        """Return the score of cells if they predict better, judged by rows of a few cells."""
        trial = best.trial
        # Cells take several seconds; the neighbours may be all rows.
        if self.reporter.budget.over or trial.m >= len(self.rows):
            return best
        cells, before = self.loo_cells(trial.rough, trial.m), (self.judged, self.scores)
        if cells.n > _JUDGED_CELLS:
            self.judge(self._within(cells, _JUDGED_CELLS))
        by_cells = self.score(trial._replace(cells=True))
        one_cell = cells.n == 1 and by_cells.density > -np.inf
        if one_cell or by_cells.is_better(self.score(trial)):
            return by_cells
        self.judged, self.scores = before
        return best

    def calibrated(self, best: Score) -> Score:
        """Return the best score whose standard deviations hold on rows that were not judged."""
        if self.noise.fixed is not None or self.reporter.budget.over:
            return best
        rows = self.every
        if best.trial.cells:
            rows = self._within(self.loo_cells(best.trial.rough, best.trial.m), _JUDGED_CELLS)
        others = np.setdiff1d(rows, self.judged.rows)
        fresh = self._judged(self._some(others if len(others) else rows))
        candidates = sorted(self.scores.values(), key=_density, reverse=True)
        candidates = [best, *(score for score in candidates if score is not best)]
        ratios: dict[Trial, float] = {}
        for score in candidates[: 1 + _MOST_FALLBACKS]:
            ratios[score.trial] = self._calibration(score, fresh)
            if ratios[score.trial] <= _LARGEST_CALIBRATION:
                break
        chosen = min(ratios, key=lambda trial: ratios[trial])
        if ratios[best.trial] > _LARGEST_CALIBRATION:
            self.notes.append(
                f"With {_describe(best.trial)} the leave-one-out residuals are "
                f"{ratios[best.trial]:.3g} times as large as their standard deviations. "
                f"{_describe(chosen)} (a ratio of {ratios[chosen]:.3g}) is the best alternative. "
                "Look for outliers and near-duplicate rows, or use likelihood='student'."
            )
        return self.scores[chosen]

    def _calibration(self, score: Score, judged: JudgedRows) -> float:
        """Return the root mean square of standardised leave-one-out residuals."""
        try:
            moments = self.moments(score.process, score.trial.cells, judged)
        except LinAlgError:
            return np.inf
        residual, variance, noise = self._leave_out(score.process, judged.rows, *moments)
        square = residual**2 / (score.process.amplitude * (variance + noise))
        return float(np.sqrt(np.average(square, weights=self.count[judged.rows])))

    # The chosen process.

    def finish(
        self, best: Score, scale: float, n_loo_rows: int | None
    ) -> tuple[NeighbourProcess, LooPredictions]:
        """Return the process of a score, with its cells, and leave-one-out predictions.

        The functions are rotated in place, so that no trial can follow.
        """
        rows = np.arange(len(self.rows.y))
        if n_loo_rows is not None:
            n_loo_rows = min(n_loo_rows, _FEW_ROWS) if self.reporter.budget.over else n_loo_rows
            if best.trial.cells:
                rows = self._within(self.loo_cells(best.trial.rough, best.trial.m), _FINAL_CELLS)
            rows = rows[np.linspace(0, len(rows) - 1, min(n_loo_rows, len(rows))).astype(np.intp)]
        if best.trial.cells:
            near = self._score(best.trial._replace(cells=False), self._judged(self._some(rows)))
            try:
                return self._finish_cells(best, near, rows, scale)
            except LinAlgError as error:
                self.notes.append(f"{error} The nearest rows are used instead of cells.")
            except _TimeIsOver:
                pass
            best = near
        process = replace(best.process, scale=scale, caches={None: self._final_cache(best)})
        return process, process.leave_one_out(self.n_jobs, rows)

    def _finish_cells(
        self, best: Score, near: Score, rows: np.ndarray, scale: float
    ) -> tuple[NeighbourProcess, LooPredictions]:
        """Return the process with cells; rows of `near` determine its amplitude and power."""
        moments = self.moments(best.process, True, self._judged(rows))
        position = np.searchsorted(rows, near.rows)
        score = self._scored(best.trial, best.process, near.rows, *(a[position] for a in moments))
        power = _power(
            self._global_variance(score), near.variance, score.variance, near.n_observations
        )
        cache = self._final_cache(score)
        process = replace(score.process, scale=scale, power=power, caches={None: cache})
        cells = cut_cells(cache.nearest, self.rows.X, process.m)

        def take(subset: np.ndarray) -> TrainingCache:
            if self.reporter.budget.over:
                raise _TimeIsOver
            self.reporter.say(f"solving cells of {len(subset)} rows")
            return cache.take(subset)

        try:
            cells = process.solve_cells(cells, take, self.n_jobs)
        except LinAlgError as error:
            self.notes.append(f"{error} Smaller cells are used, which are solved directly.")
            cells = self.loo_cells(process.rough, process.m)
            cells = process.solve_cells(cells, take, self.n_jobs)
        return replace(process, cells=cells), process.to_loo_predictions(rows, *moments)

    def _final_cache(self, score: Score) -> TrainingCache:
        """Return the functions at all rows, rotated in place the first time."""
        if self.cache is None:
            process = score.process
            phi, nearest = self.white.rotate(process.fit.rotation), self.nearest[process.rough]
            residual = self.white.residual
            self.cache = TrainingCache.from_functions(process, phi, residual, nearest)
        return self.cache

    def _global_variance(self, score: Score) -> np.ndarray:
        """Return the variance at the rows of a score given the global fit without each of them."""
        process = score.process
        unique = score.rows if self.rows.index is None else self.rows.index[score.rows]
        phi = self.white.phi[unique] @ process.fit.rotation.astype(self.white.phi.dtype)
        inside, residual = process.global_variance(phi), self.white.residual[unique]
        weight = np.minimum(self.rows.precision, self.rows.weight)[score.rows]
        independent = (residual + process.lam) / weight
        remainder = np.maximum(1.0 - inside / independent, np.finfo(np.float64).eps)
        return residual + inside / remainder


def _density(score: Score) -> float:
    return score.density


def _describe(trial: Trial) -> str:
    means = "cells" if trial.cells else f"{trial.m} neighbours"
    return f"{means} and lam={trial.lam:.1e}"


def _power(prior: np.ndarray, near: np.ndarray, target: np.ndarray, count: np.ndarray) -> float:
    """Return the power of near/prior with which variances have the mean of the wanted ones."""

    def gap(log_power: float) -> float:
        variance = near * np.clip(near / prior, TINY, 1.0) ** (np.exp(log_power) - 1.0)
        return float(count @ variance / (count @ target)) - 1.0

    low, high = np.log(_POWERS)
    if not gap(low) > 0.0 > gap(high):
        return 1.0
    return float(np.exp(brentq(gap, low, high)))
