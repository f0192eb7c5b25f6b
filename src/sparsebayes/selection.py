"""Greedy selection of functions by marginal likelihood, from a problem to a fit.

`select_path` runs the search of `solvers.forward` and returns the fit of the selected functions.
`search` returns the whole path, and `path_fit` makes a fit of its first terms. None of them knows
an estimator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .data import Data
from .designs import Design
from .designs.candidates import CandidateChoice
from .fitting import Fit, Note, gaussian_fit
from .kernels import KernelChoice, KernelSpec, is_option
from .posterior import Posterior, ResidualProcess
from .problem import Problem, Units
from .rows._base import Report
from .solvers.forward.gp_prior import FLOOR, Prior, gp_prior, gp_refit
from .solvers.forward.path import Path, best_terms
from .solvers.forward.routes import (
    columns_route,
    low_rank_route,
    megabytes_short,
)
from .solvers.forward.selection import Forward, State
from .solvers.noise import Noise
from .solvers.run import Result, StopReason

Longer = Callable[[Problem, int], tuple[Problem, int] | None]

FIRST_TERMS = 300  # terms of a path of max_terms="auto"
_REPLAYS = 3
_TOL = 1.0  # nats that a new regulariser must gain for the path to be selected again
_HELD_OUT = 0.1  # share of the rows that early_stopping="validation" holds out
_TRACE_SHARE = 1e-3  # share of the trace of the kernel matrix that rank="auto" does not capture
_GAIN = 1e-3  # nats for each row that the last tenth of a path must gain for a longer one
_ROUND_CANDIDATES = 1200  # candidates of a second fit with weights, unless its path is longer


@dataclass(frozen=True, eq=False)
class PathSettings:
    """Settings of the search, and of the part of the path that is kept.

    Attributes
    ----------
    max_terms : int
        Length of the path.
    cut : bool
        Whether the terms up to the highest evidence are kept, instead of all.
    gp : bool
        Whether the kept functions have the prior of a Gaussian process.
    regularization : float or None
        Noise variance times weight precision in the units of the user; None where it is learnt.
    rank : int, "auto" or None
        Rank of the approximate kernel matrix that scores come from.
    nufft : bool
        Whether products are computed by fast Fourier transforms.
    """

    max_terms: int
    cut: bool = True
    gp: bool = True
    regularization: float | None = None
    rank: Any = None
    nufft: bool = False


class Selected(NamedTuple):
    """A path of selected functions, and the search that ended at it."""

    problem: Problem
    path: FittedPath
    state: State
    result: Result[State]
    claimed: float  # log evidence that the scores claimed
    exact: float  # the exact one at the same regulariser
    curve: np.ndarray  # log evidence of the first 0, 1, 2, ... terms
    best: int  # terms of highest evidence
    notes: tuple[Note, ...]

    def remeasure(self) -> Selected:
        """Return the same with the triangle of the columns, in place of that of a Gram matrix."""
        problem, best = self.problem, self.state.best
        assert best is not None
        order = np.array(best.order, dtype=np.intp)
        path = replace(self.path, path=Path.from_columns(problem.design, problem.t, order))
        return self._replace(path=path)


# The search.


def select_path(problem: Problem, settings: PathSettings, many: ManyCandidates) -> Fit:
    """Return the fit of a path of functions, selected by marginal likelihood."""
    problem, settings, many = cheaper_search(problem, settings, many)
    return path_fit(search(problem, settings))


def cheaper_search(
    problem: Problem, settings: PathSettings, many: ManyCandidates
) -> tuple[Problem, PathSettings, ManyCandidates]:
    """Return a cheaper search where a fit of nearly the same problem is given."""
    former = problem.previous
    path = None if former is None else former.extra["path"]
    if former is None or path is None or len(path.active) == 0:
        return problem, settings, many
    settings = replace(settings, max_terms=len(path.active))
    drawn, n = former.extra["n_candidates"], path.n_rows
    if is_option(many.candidates, "auto") and problem.spec.on_rows and drawn < n:
        # Those on the path, and of the others as many as cost a fraction of the first fit.
        # A few would change little, and without any the path takes a single pass.
        more = min(drawn // 2, _ROUND_CANDIDATES) - len(path.active)
        more = more if 4 * more >= len(path.active) else 0
        others = np.random.default_rng(0).choice(n, more, replace=False)
        many = replace(many, candidates=np.union1d(others, path.active))
    choice = many.choice(settings.max_terms)
    return replace(problem, candidates=choice, columns=choice.scaled_columns), settings, many


@dataclass(frozen=True)
class ManyCandidates:
    """Number of candidates from which a path of a given number of terms is selected.

    Attributes
    ----------
    candidates : str, int or array
        The parameter of the user.
    learns : bool
        Whether length scales are learnt; a given width may be far too narrow, so that it matters
        where functions are, and more of them are tried.
    memory : float
        Megabytes that their Gram matrix may take.
    everything, nufft : bool
        See `CandidateChoice`.
    seed : int
        Seed of random draws.
    """

    candidates: Any
    learns: bool
    memory: float
    everything: bool
    nufft: bool
    seed: int

    @classmethod
    def from_problem(
        cls,
        problem: Problem,
        candidates: Any = "auto",
        everything: bool = False,
        nufft: bool = False,
    ) -> ManyCandidates:
        """Return the settings of a problem, where the user gave these `candidates`."""
        learns, memory = problem.spec.learns, problem.cache_size
        return cls(candidates, learns, memory, everything, nufft, problem.seed)

    @property
    def largest(self) -> int:
        """Number of candidates whose Gram matrix fits into memory."""
        return int(np.sqrt(self.memory * 1e6 / 8))

    def n_desired(self, limit: int) -> int:
        """Return the number of candidates for a number of terms, without regard to memory."""
        if self.learns:
            return max(1200, min(4 * limit, 2000 + limit))
        return max(2000, min(8 * limit, 2000 + 2 * limit))

    def number(self, limit: int) -> int:
        """Return the number of candidates for a number of terms."""
        return max(min(self.n_desired(limit), self.largest), limit)

    def choice(self, limit: int, rows: Any = None) -> CandidateChoice:
        """Return the candidates for a number of terms, or the given rows."""
        return CandidateChoice(
            self.candidates if rows is None else rows,
            many=self.number(limit),
            whole=0 if self.learns else self.largest,
            memory=self.memory,
            everything=self.everything,
            nufft=self.nufft,
            seed=self.seed,
        )


def search(
    problem: Problem,
    settings: PathSettings,
    start: float | None = None,
    scores: Any = None,
    longer: Longer | None = None,
    gram_path: bool = False,
) -> Selected:
    """Search a path of at most `max_terms` terms.

    `longer` returns the problem of a longer path and its number of terms, or None; that path is
    selected where the last terms of the shorter one still raise the evidence. `start` and `scores`
    (of the same candidates) are those of a shorter path. With `gram_path` the triangle of the path
    may come from its Gram matrix, and is good for ``path.smallest_lam`` and above.
    """
    limit, data = settings.max_terms, problem.data
    while True:
        design = problem.design
        further = None if longer is None else longer(problem, limit)
        least_gain = None if further is None else _GAIN * design.n_observations
        route, notes = _route(problem, settings, limit, scores)
        scale = column_scale(design)
        lam = settings.regularization
        solver = Forward(
            noise_variance=problem.solver_noise,
            regularization=None if lam is None else lam * scale * scale,
            max_terms=limit,
            cut=settings.cut,
            tol=_TOL,
            replays=_REPLAYS,
            route=route,
            memory=problem.cache_size,
            single=data is not None and data.single,
            report=None if data is None else problem.reporter.rows_read(data.n_rows),
            start=start,
            pays=least_gain,
            set_prior=problem.spec.family is None,
            gram_path=gram_path,
        )
        result = problem.run(solver, 2 * (1 + _REPLAYS) * limit + 1)
        state = result.state
        if further is None or result.stop_reason is not StopReason.LONGER_PATH:
            break
        assert state.best is not None  # the path whose last terms still gain
        scores = state.scores if further[0] is problem else None
        start = state.best.lam
        problem, limit = further
    return _selected(problem, settings, solver, result, notes)


def _selected(
    problem: Problem,
    settings: PathSettings,
    solver: Forward,
    result: Result[State],
    notes: tuple[Note, ...],
) -> Selected:
    """Return the path that a search ended at."""
    state = result.state
    path, best = solver.best_path(state, problem.design, problem.t)
    gp = settings.gp and problem.spec.family is not None
    fitted = FittedPath.from_problem(problem, path, state.noise, best.lam, best.order, gp)
    exact = path.curve(best.claimed_lam, state.noise)[best.n_terms]
    return Selected(
        problem,
        fitted,
        state,
        result,
        float(best.claimed[best.n_terms]),
        float(exact),
        path.curve(best.lam, state.noise),
        best.n_terms,
        notes,
    )


def _route(
    problem: Problem, settings: PathSettings, limit: int, scores: Any
) -> tuple[Any, tuple[Note, ...]]:
    """Return where the scores of candidates come from (None: the cheapest way), and a warning."""
    design, memory = problem.design, problem.cache_size
    if scores is not None:
        return lambda design, t: scores, ()
    if settings.nufft:
        return partial(columns_route, name="nufft"), ()
    if is_option(settings.rank, "auto"):
        most = max(1, int(memory * 1e6 / (8 * design.n_rows)))
        return partial(low_rank_route, rank=most, trace=_TRACE_SHARE), ()
    if settings.rank is not None:
        return partial(low_rank_route, rank=int(settings.rank)), ()
    if design.lazy and (needs := megabytes_short(design, memory, limit)):
        message = (
            f"Neither the {design.n_candidates} kernel columns nor their products fit into "
            f"cache_size={memory} MB, so the columns are recomputed for each term, which is "
            f"slow. Use fewer candidates, or cache_size={int(np.ceil(needs))}."
        )
        return None, (Note(message),)
    return None, ()


# From a path to fits of its first terms.


class PathModel(NamedTuple):
    """The first few terms of a path, in the units of the solver."""

    posterior: Posterior
    lam: np.ndarray  # prior precision of each weight times the noise variance
    regularization: float
    residual: ResidualProcess | None
    limit: str  # of `Prior`


@dataclass(frozen=True, eq=False)
class FittedPath:
    """The path of a fit as a triangle, and what else a model of its first terms needs.

    Attributes
    ----------
    path : Path
        The selected columns, in order.
    active : array of int
        Rows or columns of X that carry them.
    offset, target_scale : float
        Mean of the scaled target, and the number by which it was divided.
    noise : Noise
        The noise of the search.
    regularization : float
        Of the selection, in the units of the solver.
    gp : bool
        Whether the functions get the prior of a Gaussian process.
    given : array or None
        Kernel values between them, of a precomputed kernel.
    column_scale : float
        Number by which all columns were multiplied against overflow.
    n_rows : int
        Number of different rows, where that matters.
    """

    path: Path
    active: np.ndarray
    offset: Any
    target_scale: Any
    noise: Noise
    regularization: float
    gp: bool
    given: np.ndarray | None
    column_scale: float
    n_rows: int

    @classmethod
    def from_problem(
        cls, problem: Problem, path: Path, noise: Noise, lam: float, order: Any, gp: bool
    ) -> FittedPath:
        """Return the path of the columns `order` of a problem."""
        rows = problem.labels[np.asarray(order, dtype=np.intp)]
        scale, m = column_scale(problem.design), problem.design.n_candidates
        given, gp = None, gp and len(path) > 0
        if gp and path.design.basis(np.arange(1)).kernel is None:
            given = problem.rows.X[np.ix_(rows, rows)] * scale
        return cls(
            path,
            rows,
            problem.offset,
            problem.units.target,
            noise,
            lam,
            gp,
            given,
            scale,
            # Not counted where it cannot matter.
            problem.design.n_distinct_inputs if 2 * len(path) > m else problem.design.n_rows,
        )

    @cached_property
    def kernel_matrix(self) -> np.ndarray | None:
        """Kernel values between the functions of the path; None without a process prior."""
        if not self.gp:
            return None
        K = self.given
        if K is None:
            chosen = self.path.design.basis(np.arange(len(self.path))).functions
            K = chosen(chosen.centres)
        return 0.5 * (K + K.T)

    def __getstate__(self) -> Any:
        # The kernel matrix is as large as all else together, and quickly computed again.
        return {name: value for name, value in vars(self).items() if name != "kernel_matrix"}

    def prior(self, k: int) -> Prior | None:
        """Return the process prior of the first k terms; None if its matrix is indefinite."""
        assert self.kernel_matrix is not None
        return gp_prior(self.path, k, self.kernel_matrix, self.noise)

    def model(self, k: int, learn: bool, prior: Prior | None = None) -> PathModel | None:
        """Return the model of the first k terms; None if the kernel matrix is indefinite.

        `learn` estimates their regulariser again; `prior`, where it is known, is that of k terms.
        """
        lam = self.regularization
        if learn and k > 0:
            lam = best_terms(self.path, self.noise, k)[0]
        if self.kernel_matrix is None or k == 0:
            posterior = self.path.posterior(k, lam, self.noise)
            return PathModel(posterior, np.full(k, lam), lam, None, "")
        prior = prior or self.prior(k)
        if prior is None:
            return None
        posterior = gp_refit(prior)
        residual, chosen = None, self.path.design.basis(np.arange(k)).functions
        if 2 * k > self.n_rows and chosen.kernel is not None and chosen.centres is not None:
            amplitude = prior.sigma2 / prior.lam
            with np.errstate(over="ignore"):  # targets of 1e150
                amplitude = amplitude * self.target_scale * self.target_scale
            amplitude = np.minimum(amplitude, 0.1 * np.finfo(np.float64).max)
            own = chosen.kernel.diagonal(chosen.centres)
            excess = np.einsum("ij,ij->i", prior.L, prior.L) - own
            jitter = float(np.max(np.abs(excess)) / np.mean(own))
            residual = ResidualProcess(chosen, prior.L, amplitude, jitter)
        lams = prior.lam * np.einsum("ij,ij->i", prior.L, prior.L)
        return PathModel(posterior, lams, lam, residual, prior.limit)

    def predictions(self, X: np.ndarray) -> np.ndarray:
        """Return the predictions of the first 0, 1, 2, ... selected terms, a column for each."""
        Phi = self.path.design.basis(np.arange(len(self.path)))(X)
        values = self.path.predictions(Phi, self.regularization)
        return (values + self.offset) * self.target_scale


def path_fit(
    selected: Selected,
    n_terms: int | None = None,
    reason: StopReason | None = None,
    prior: Prior | None = None,
) -> Fit:
    """Return the fit of the first terms of a path: `n_terms`, or those of highest evidence.

    `reason` says why these terms were kept. `prior` is the process prior of the whole path, where
    it is available.
    """
    problem, path, state, result = selected[:4]
    k = selected.best if n_terms is None else n_terms
    fit = terms_fit(
        path,
        k,
        spec=problem.spec,
        kernel=problem.choice,
        data=problem.data,
        learns_noise=problem.noise_variance is None,
        prior=prior if k == len(path.path) else None,
        report=None if problem.data is None else problem.reporter.rows_read(problem.data.n_rows),
    )
    shift = problem.units.n_observations * np.sum(np.log(problem.units.target))
    history = problem.units.to_user(result.history)
    if history:
        history["candidate"] = problem.labels[history["candidate"]]
        # Twice: the square of an extreme scale overflows float64.
        with np.errstate(over="ignore"):
            history["regularization"] = history["regularization"] / path.column_scale
            history["regularization"] = history["regularization"] / path.column_scale
    if reason is None or not result.converged:
        reason = result.stop_reason
    notes: tuple[Note, ...] = ()
    if not result.converged:
        message = f"The selection has not converged after {result.n_iter} steps. {reason.advice}"
        notes = (Note(message, ConvergenceWarning),)
    curve = selected.curve - shift
    return replace(
        fit,
        history=history,
        n_iter=result.n_iter,
        stop_reason=reason,
        converged=result.converged,
        attributes={
            **fit.attributes,
            "evidence_path_": curve,
            "best_n_terms_": int(np.argmax(curve)),
            "approximation_": {
                **state.scores.report,
                "n_candidates": problem.design.n_candidates,
                "claimed_log_evidence": selected.claimed - float(shift),
                "log_evidence": selected.exact - float(shift),
            },
        },
        extra={**fit.extra, "n_candidates": problem.design.n_candidates},
        notes=(*selected.notes, *fit.notes, *notes),
    )


def terms_fit(
    path: FittedPath,
    k: int,
    *,
    spec: KernelSpec,
    kernel: KernelChoice,
    data: Data | None,
    learns_noise: bool,
    learn: bool = False,
    prior: Prior | None = None,
    report: Report | None = None,
) -> Fit:
    """Return the fit of the first k terms of a path; `learn` estimates their regulariser again.

    `report` receives the number of rows that leave-one-out predictions have read.
    """
    notes: tuple[Note, ...] = ()
    model = path.model(k, learn, prior)
    if model is None:
        message = (
            f"The matrix of kernel={spec.family!r} is not positive definite, so refit='gp' is "
            "not possible, and the independent prior was kept. Use refit=None to avoid this "
            "warning."
        )
        notes = (Note(message),)
        path = replace(path, gp=False)
        model = path.model(k, learn)
    assert model is not None
    if model.limit and learns_noise:
        message = limit_warning(model.limit, k, 2 * k > path.n_rows, spec.learns)
        notes = (*notes, Note(message, ConvergenceWarning))
    scale = path.column_scale
    return gaussian_fit(
        replace(model.posterior, offset=path.offset),
        model.lam,
        path.path.design.basis(np.arange(k)),
        path.active[:k],
        units=Units(path.target_scale, path.path.design.n_observations),
        kernel=kernel,
        data=data,
        added=model.residual if data is None else _judged_residual(path, model, data),
        report=report,
        stop_reason=StopReason.TRUNCATED,
        attributes={"regularization_": model.regularization / scale / scale},
        extra={"path": path},
        notes=notes,
    )


def _judged_residual(path: FittedPath, model: PathModel, data: Data) -> ResidualProcess | None:
    """Return the residual process of a model, judged by the training rows.

    If every row has a function, the model is the process itself.
    """
    process, rows = model.residual, data.used
    if process is None or len(model.lam) >= path.n_rows:
        return process
    X, y, scale = data.X[rows], data.y[rows], path.target_scale
    with np.errstate(over="ignore"):  # of rows that weigh next to nothing
        noise = model.posterior.noise_variance * scale * scale / data.row_weight[rows, None]
    noise = np.minimum(noise, 0.1 * np.finfo(np.float64).max)
    Phi = path.path.design.basis(np.arange(len(model.lam)))(X)
    residuals = y - replace(model.posterior, offset=path.offset).at(Phi) * scale
    centres = np.searchsorted(rows, path.active[: len(model.lam)])
    return process.judged(X, y - path.offset * scale, noise, centres, residuals)


def limit_warning(limit: str, k: int, nearly_all: bool, learnt: bool) -> str:
    """Return what a fit met at the limit of float64 or of the noise, and what to do."""
    if limit == "amplitude":
        return (
            "The kernel is so wide that its functions are equal up to rounding errors. Use a "
            "larger gamma" + ("." if learnt else ", or learn it (gamma='evidence' or 'ard').")
        )
    met = (
        f"{k} functions explain the target up to {FLOOR:g} of its variance, and the noise "
        "variance was set to that lower bound. "
    )
    if nearly_all and not learnt:
        return met + (
            "Nearly every row has a function, so the kernel may be too narrow. Learn the "
            "length scales (gamma='evidence' or 'ard')."
        )
    return met + (
        "If the target should have noise, look for an input that was derived from it "
        "(leakage). If it has none, set noise_variance to the variance that you accept."
    )


def validated_fit(problem: Problem, settings: PathSettings) -> Fit:
    """Return the fit of as many terms as predict held-out rows best, selected on all rows."""
    n_terms = _validated_terms(problem, settings)
    selected = search(problem, replace(settings, max_terms=max(n_terms, 1)))
    return path_fit(selected, min(n_terms, selected.best), StopReason.VALIDATION)


def _validated_terms(problem: Problem, settings: PathSettings) -> int:
    """Return how many terms of a path that was selected without some rows predict these best."""
    data = problem.rows
    order = np.random.default_rng(problem.seed).permutation(data.used)
    n_out = min(len(order) - 2, max(1, round(_HELD_OUT * len(order))))
    if n_out < 1:
        raise ValueError(
            f"early_stopping='validation' needs at least 3 rows, got {len(order)}. Use "
            "early_stopping='evidence'."
        )
    out, inside = np.sort(order[:n_out]), np.sort(order[n_out:])
    precomputed = is_option(problem.spec.family, "precomputed")
    part = data.subset(inside, precomputed)
    held_out = data.X[np.ix_(out, inside)] if precomputed else data.X[out]
    candidates = problem.candidates
    given = candidates is not None and np.ndim(candidates.option) == 1
    if candidates is not None and given and problem.spec.family is not None:
        candidates = replace(candidates, option=candidates.columns(len(inside), inside))
    trial = problem.trial(data=part, candidates=candidates)
    path = search(trial, replace(settings, cut=False, gp=False)).path
    errors = (path.predictions(held_out) - data.y[out, None]) ** 2
    return int(np.argmin(np.average(errors, axis=0, weights=data.row_weight[out])))


# Properties of designs.


def column_scale(design: Design) -> float:
    """Return the factor that all columns of a design were multiplied by against overflow."""
    return float(design.column_scale[0]) if design.n_candidates else 1.0
