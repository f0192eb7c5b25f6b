"""What a process of functions and neighbours leaves open, told by rows that are left out.

Signal and noise are those of highest exact evidence on up to 1,500 rows. More rows show finer
detail, which those few take for noise: lam is then halved or doubled while that raises the log
density of 1,000 rows, each left out, and both have the size that their squares ask for. The same
density says which part of a kernel that is a sum tells what is near, how many neighbours tell
enough, and whether the rows of its cell tell more about a row than its neighbours do.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, solve_triangular
from scipy.optimize import brentq

from ...designs import KernelBasis
from ...kernels import StationaryKernel
from ...posterior import LeftOut
from ..noise import Noise
from .cells import Cells, cut_cells
from .neighbours import Known, NearestRows, NeighbourProcess, Places, fit_global, whiten
from .process import exact_process

# Smallest lam over a weight: rows may be nearly equal, and in float32 r is right to 1e-7.
_SMALLEST = {np.float64: 1e-10, np.float32: 1e-5}
_SCALE_ROWS = 1500  # that tell signal and noise by exact evidence,
_JUDGED = 1000  # and by leaving out
_JUDGED_CELLS, _TOLD_CELLS = 3, 8  # that they are from, where cells are judged, and at the end
_FACTORS = (0.5, 2.0)  # of lam, tried in turn
_WORTH = 2e-3  # nats for each row that more neighbours, or another lam, must gain
AUTO = (16, 32, 64, 128)
_POWERS = (0.1, 10.0)  # between which that of the variance is sought


class Found(NamedTuple):
    """A process, and what was tried."""

    process: NeighbourProcess
    tried: list[int]  # numbers of neighbours
    density: list[float]  # mean log densities of some rows over `scale`, each left out
    outside: float  # mean of r(x, x)
    limit: str  # as in `gp_prior.Prior`
    left: LeftOut  # of the rows asked for


class _Rows(NamedTuple):
    """Rows that are left out to judge a process."""

    rows: np.ndarray
    at: np.ndarray  # their places, each once
    back: np.ndarray
    A: np.ndarray
    near: dict[bool, Any]  # neighbours, by each part of a sum


class _Trial(NamedTuple):
    """How well a process predicts rows that are left out."""

    density: float  # mean log density
    process: NeighbourProcess
    variance: np.ndarray  # of the function there, in units of the amplitude
    densities: np.ndarray
    weight: np.ndarray

    def is_better(self, other: _Trial) -> bool:
        """Whether the density is above another of the same rows by more than a standard error."""
        gain, weight = self.densities - other.densities, self.weight
        error = np.average((gain - self.density + other.density) ** 2, weights=weight)
        return bool(self.density - other.density > np.sqrt(error / np.sum(weight)))


def neighbour_process(
    functions: KernelBasis,
    L: np.ndarray,
    places: Places,
    *,
    neighbours: Any,
    intercept: bool,
    noise: Noise,
    scale: float,
    rng: np.random.Generator,
    told: int | None = None,
    n_jobs: int | None = None,
) -> Found:
    """The process of all rows at given functions.

    Parameters
    ----------
    functions, L : KernelBasis, array
        The functions and the Cholesky factor of their kernel matrix.
    places : Places
    neighbours : int or "auto"
        ``"auto"``: 16, doubled up to 128 while that pays.
    intercept : bool
    noise : Noise
        Its fixed value, where there is one, stays.
    scale : float
        y was divided by it.
    rng : Generator
        Draws the rows that tell.
    told : int or None
        How many rows are left out in turn at the end; None for all.
    n_jobs : int or None
        Threads for the cells.
    """
    kernel: Any = functions.kernel
    numbers = AUTO if neighbours == "auto" else (int(neighbours),)
    m = numbers[min(1, len(numbers) - 1)]
    ways = (False, True) if kernel.family == "sum" else (kernel.family == "laplacian",)
    search = _Search(functions, L, places, intercept, noise, ways, numbers[-1], rng, n_jobs)
    every = np.arange(len(places.y))
    of = search.some(every)
    lam, search.amplitude, limit = _scales(kernel, places, intercept, noise, search.smallest, rng)
    lam = max(lam, search.smallest)

    # Which part of a sum says what is near; whether cells tell more.
    trials = [search.by_neighbours(of, lam, rough, m) for rough in ways]
    best = max(trials, key=attrgetter("density"))
    rough, trial = best.process.rough, search.by_neighbours
    if m < len(places):  # else neighbours are the process already, and so is one cell
        cells = search.cells(rough, m)
        few = of if cells.n <= _JUDGED_CELLS else search.some(search.within(cells, _JUDGED_CELLS))
        found = search.by_cells(few, lam, rough, m)
        if cells.n == 1 or found.is_better(search.by_neighbours(few, lam, rough, m)):
            best, trial, of = found, search.by_cells, few

    # How large the noise is.
    for factor in _FACTORS if len(places.y) > _SCALE_ROWS else ():
        before = best.density
        while True:
            other = trial(of, max(best.process.lam * factor, search.smallest), rough, m)
            if not other.density > best.density + _WORTH:
                break
            best = other
        if best.density > before:
            break

    # How many neighbours.
    tried, lam = {m: best}, best.process.lam
    if len(numbers) > 1:
        for number in numbers:
            found = tried[number] = tried.get(number) or trial(of, lam, rough, number)
            if number > numbers[0] and not found.density > best.density + _WORTH:
                break
            best = found

    # The process, and what rows tell when they are left out.
    process, left, rows = best.process, None, every
    if in_cells := trial == search.by_cells:
        cells = search.cells(rough, process.m)
        if told is not None and cells.n > _TOLD_CELLS:
            rows = search.within(cells, _TOLD_CELLS)
    if told is not None:
        rows = rows[np.linspace(0, len(rows) - 1, min(told, len(rows))).astype(np.intp)]
    if in_cells:
        of = search.some(rows)
        near = search.by_neighbours(of, lam, rough, process.m)
    phi = search.white.rotate(process.fit.rotation)  # turned: nothing is tried after that
    process.made[None] = Known.at(process, phi, search.white.outside, search.nearest[rough])
    if in_cells:
        try:
            process, left = search.with_cells(process, cells, rows, of, near)
        except LinAlgError:  # in another cell than those that were judged
            process = replace(near.process, made=process.made)
    process = replace(process, scale=scale)
    if left is None:
        left_out = process.left_out(n_jobs, rows)
    else:
        square = process.amplitude * scale * scale
        left_out = process._left(rows, left[0] * scale, left[1] * square)
    density = [tried[number].density for number in sorted(tried)]
    outside = float(np.mean(search.white.outside))
    return Found(process, sorted(tried), density, outside, limit, left_out)


class _Search:
    """Processes of given functions on given places, judged by rows that are left out."""

    def __init__(
        self,
        functions: KernelBasis,
        L: np.ndarray,
        places: Places,
        intercept: bool,
        noise: Noise,
        ways: tuple[bool, ...],
        most: int,
        rng: np.random.Generator,
        n_jobs: int | None,
    ) -> None:
        self.functions, self.places, self.noise = functions, places, noise
        self.most, self.rng, self.n_jobs = most, rng, n_jobs
        kernel: Any = functions.kernel
        self.nearest = {rough: NearestRows(kernel, places.X, rough) for rough in ways}
        turn = solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False).T
        self.white = whiten(functions, turn, places)
        heaviest = max(1.0, float(np.max(places.observed()[1])))
        self.smallest, self.amplitude = _SMALLEST[places.X.dtype.type] * heaviest, 1.0
        self.fit = lru_cache(2)(lambda lam: fit_global(self.white, places, lam, intercept))
        self.cells = lru_cache(2)(lambda way, m: cut_cells(self.nearest[way], places.X, m, True))

    def some(self, rows: np.ndarray) -> _Rows:
        """At most 1,000 of these rows, to be left out."""
        if len(rows) > _JUDGED:
            rows = np.sort(self.rng.choice(rows, _JUDGED, replace=False))
        at, back = self.places.at(rows)
        return _Rows(rows, at, back, self.places.X[at].astype(np.float64), {})

    def within(self, cells: Cells, number: int) -> np.ndarray:
        """The rows of some cells."""
        cell, places = cells.of(self.places.X), self.places
        cell = cell if places.place is None else cell[places.place]
        return np.flatnonzero(np.isin(cell, self.rng.choice(cells.n, number, replace=False)))

    def by_neighbours(self, of: _Rows, lam: float, rough: bool, m: int) -> _Trial:
        """These rows, told by their neighbours."""
        if rough not in of.near:
            of.near[rough] = self.nearest[rough](of.A, self.most)
        process = self._process(lam, rough, m)
        some, N = np.unique(of.near[rough][:, :m], return_inverse=True)
        known = self._known_to(process, some)
        phi = process._phi(of.A, known)
        mean, spread = process._alone(of.A, phi, N.reshape(len(of.A), -1), known)
        return self._judged(process, of.rows, mean[of.back], spread[of.back])

    def by_cells(self, of: _Rows, lam: float, rough: bool, m: int) -> _Trial:
        """The same, told by the rows of their cells."""
        process = self._process(lam, rough, m)
        known_at = partial(self._known_to, process)
        try:
            mean, spread = process.in_cells(self.cells(rough, m), of.at, known_at, self.n_jobs)
        except LinAlgError:  # rows that are nearly equal, and hardly a noise
            return self.by_neighbours(of, lam, rough, m)
        return self._judged(process, of.rows, mean[of.back], spread[of.back])

    def with_cells(
        self, process: NeighbourProcess, left_out: Cells, rows: np.ndarray, of: _Rows, near: _Trial
    ) -> tuple[NeighbourProcess, tuple[np.ndarray, np.ndarray]]:
        """The process with cells, and mean and variance of rows that are left out.

        `of` are some of these. They tell its size and, where `near` has the variances that
        neighbours leave, its power.
        """
        known = process._known()
        at, back = self.places.at(rows)
        mean, spread = process.in_cells(left_out, at, known.some, self.n_jobs)
        where = np.searchsorted(at, of.at)[of.back]
        found = self._judged(process, of.rows, mean[where], spread[where])
        inside, outside = process._inside(known.phi[of.at])[of.back], known.outside[of.at][of.back]
        weight = self.places.weight[of.rows]
        alone = LeftOut(inside, inside, inside, weight, outside + process.lam)
        power = _power(outside + inside / alone.rest, near.variance, found.variance, weight)
        process = replace(found.process, power=power)
        cells = cut_cells(known.nearest, self.places.X, process.m)
        try:
            cells = process.solve_cells(cells, known.some, self.n_jobs)
        except LinAlgError:  # more rows, less noise than conjugate gradients can do with
            cells = process.solve_cells(left_out, known.some, self.n_jobs)
        return replace(process, cells=cells), (mean[back], spread[back])

    def _process(self, lam: float, rough: bool, m: int) -> NeighbourProcess:
        size = self.amplitude if self.noise.fixed is None else float(self.noise.fixed) / lam
        # In the units of the solver: squares of those of y need not be numbers.
        fit = self.fit(lam)
        return NeighbourProcess(self.functions, self.places, fit, lam, size, 1.0, m, rough)

    def _known_to(self, process: NeighbourProcess, some: np.ndarray) -> Known:
        phi = self.white.phi[some] @ process.fit.rotation.astype(self.white.phi.dtype)
        return Known.at(process, phi, self.white.outside[some], None, some)

    def _judged(
        self, process: NeighbourProcess, rows: np.ndarray, mean: np.ndarray, spread: np.ndarray
    ) -> _Trial:
        size = process.amplitude
        left = process._left(rows, mean, spread * size)
        variance = spread / left.rest
        if self.noise.fixed is None and len(self.places.y) > _SCALE_ROWS:
            squares = float(np.average(left.residual**2 / left.variance, weights=left.weight))
            process = replace(process, amplitude=size * squares)
            sizes = {"spread": left.spread * squares, "fitted_noise": left.fitted_noise * squares}
            left = left._replace(**sizes)
        density = -0.5 * (np.log(2.0 * np.pi * left.variance) + left.residual**2 / left.variance)
        average = float(np.average(density, weights=left.weight))
        return _Trial(average, process, variance, density, left.weight)


def _power(apart: np.ndarray, near: np.ndarray, wanted: np.ndarray, weight: np.ndarray) -> float:
    """That of the share near/apart with which variances have the mean of the wanted ones."""

    def gap(log_power: float) -> float:
        found = near * np.minimum(near / apart, 1.0) ** (np.exp(log_power) - 1.0)
        return float(weight @ found / (weight @ wanted)) - 1.0

    low, high = np.log(_POWERS)
    if not gap(low) > 0.0 > gap(high):
        return 1.0
    return float(np.exp(brentq(gap, low, high)))


def _scales(
    kernel: StationaryKernel,
    places: Places,
    intercept: bool,
    noise: Noise,
    smallest: float,
    rng: np.random.Generator,
) -> tuple[float, float, str]:
    """lam and amplitude of highest exact evidence on some rows; lam is 1 where all is noise."""
    some = np.arange(len(places.y))
    if len(some) > _SCALE_ROWS:
        some = np.sort(rng.choice(len(some), _SCALE_ROWS, replace=False))
    X, weight = places.X[some if places.place is None else places.place[some]], places.weight[some]
    X = X.astype(np.float64)
    K = np.asfortranarray(kernel.bind(X)(X))
    # What varies of the kernel beside a constant: less than the least noise is no signal.
    varies = not intercept or 1.0 - float(np.mean(K)) > smallest
    part = replace(noise, n=max(float(np.sum(weight)) - intercept, 1.0))
    found = exact_process(K, places.y[some], weight, intercept, part, rng)
    assert found is not None  # a kernel of distances is positive definite
    if not varies:
        return 1.0, found.lam * found.amplitude, ""
    return found.lam, found.amplitude, found.limit
