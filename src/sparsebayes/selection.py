"""Greedy selection of functions by marginal likelihood, from a problem to a fit.

`select_path` runs the search of `solvers.forward` and returns the path of chosen functions,
`path_fit` makes a fit of its first terms, `exact_fit` the fit of all candidates, and `local_fit`
that of the Gaussian process around each new row. None of them knows an estimator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.exceptions import ConvergenceWarning

from .data import Data
from .designs import CentredBasis, Design, KernelBasis
from .designs.candidates import CandidateChoice
from .fitting import Fit, Note, gaussian_fit
from .kernels import KernelChoice, KernelSpec, is_option
from .linalg import pivoted_cholesky
from .posterior import Dense, LeftOut, Posterior, ResidualProcess
from .predict import LocalModel
from .problem import Problem, Units
from .rows import row_slices
from .solvers.forward.gp_prior import FLOOR, Prior, gp_prior, gp_refit, gp_root
from .solvers.forward.path import Path, best_terms
from .solvers.forward.routes import (
    columns_route,
    gram_seconds,
    low_rank_route,
    megabytes_short,
)
from .solvers.forward.selection import Forward, State
from .solvers.noise import Noise
from .solvers.run import Result, StopReason

Run = Callable[[Forward, Problem, int], Result[State]]

# Variance of a Gaussian process that its functions do not capture, over that of the noise: below
# this share the functions stand for the process.
RESIDUAL_SHARE = 0.1
FIRST_TERMS = 300  # terms of the first path of max_terms="auto"
_REPLAYS = 3
_TRACE_SHARE = 1e-3  # share of the trace of the kernel matrix that rank="auto" does not capture
# A path grows by the factor _GROWTH while its last tenth gains _GAIN nats for each row and the Gram
# matrix takes no more than _SECONDS. On California (10,000 rows) the last tenth of 300 terms gains
# .0034, and up to 1,200 terms lower the error by 2 %; on Friedman#1, abalone, concrete and energy
# neither the last tenth nor further terms gain anything. Terms selected one by one also follow the
# noise, which neither evidence nor leave-one-out residuals show: on California with a rough kernel
# 95 % intervals cover 71 % with 700 terms for 2,000 rows and 93 % with 900 for 10,000. So there are
# _ROWS_PER_TERM rows for each term, and a longer path must be longer by a quarter.
_ROWS_PER_TERM, _LONGER = 20, 1.25
_GROWTH, _GAIN, _SECONDS = 10.0 / 3.0, 1e-3, 10.0
_SAMPLE_ROWS = 2_000  # rows at which the residual variance of a process is measured
_FEW_ROWS = 3_000  # rows up to which a path of 1,000 terms takes seconds
_ROUND_CANDIDATES = 1200  # candidates of a second fit with weights, unless its path is longer
_LOO_ROWS = 4_000  # rows left out of a local process to measure tails and intervals


@dataclass(frozen=True, eq=False)
class PathSettings:
    """Settings of the search, and of the part of the path that is kept.

    Attributes
    ----------
    max_terms : int
        Length of the path.
    grows : bool
        Whether a longer path is selected where its last terms still pay.
    cut : bool
        Whether the terms up to the highest evidence are kept, instead of all.
    follows_process : bool
        Whether so many terms are kept as capture the Gaussian process whose length scales were
        learnt, where that is more.
    pivots : bool
        Whether few pivots may stand for all candidates where they capture the process.
    gp : bool
        Whether the kept functions have the prior of a Gaussian process.
    regularization : float or None
        Noise variance times weight precision in the units of the user; None where it is learnt.
    tol : float
        Nats that a new regulariser must gain for the path to be selected again.
    rank : int, "auto" or None
        Rank of the approximate kernel matrix that scores come from.
    nufft : bool
        Whether products are computed by fast Fourier transforms.
    single : bool
        Whether products may be formed in float32.
    report : callable, optional
        Receives the number of rows read.
    """

    max_terms: int
    grows: bool = False
    cut: bool = True
    follows_process: bool = False
    pivots: bool = False
    gp: bool = True
    regularization: float | None = None
    tol: float = 1.0
    rank: Any = None
    nufft: bool = False
    single: bool = False
    report: Callable[[int], None] | None = None


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


# The search.


def select_path(problem: Problem, settings: PathSettings, run: Run, many: ManyCandidates) -> Fit:
    """Return the fit of a path of functions, selected by marginal likelihood."""
    problem, settings, many = _cheaper_search(problem, settings, many)
    if settings.pivots:
        problem = _pivots(problem, settings, many) or problem
    selected = search(problem, settings, run, many)
    fit = path_fit(selected, settings)
    problem = selected.problem
    n_path, n_rows = len(selected.path.path), problem.design.n_rows
    short = fit.stop_reason is StopReason.MAX_TERMS and fit.extra["short"]
    if settings.grows and short and 2 * n_path < n_rows <= _FEW_ROWS:
        limit = int(_GROWTH * FIRST_TERMS)
        larger = _larger(problem, n_path, limit, many)
        if larger is not None:
            scores = selected.state.scores if larger is problem else None
            longer = replace(settings, max_terms=limit, grows=False)
            start = selected.path.regularization
            fit = path_fit(search(larger, longer, run, many, start, scores), settings)
    return fit


def _cheaper_search(
    problem: Problem, settings: PathSettings, many: ManyCandidates
) -> tuple[Problem, PathSettings, ManyCandidates]:
    """Return a cheaper search where a fit of nearly the same problem is given."""
    former = problem.previous
    path = None if former is None else former.extra["path"]
    if former is None or path is None or len(path.active) == 0:
        return problem, settings, many
    settings = replace(settings, max_terms=len(path.active), grows=False, pivots=False)
    drawn, n = former.extra["n_candidates"], path.n_rows
    if is_option(many.candidates, "auto") and problem.spec.on_rows and drawn < n:
        # Those on the path, and of the others as many as cost a fraction of the first fit.
        more = max(0, min(drawn // 2, _ROUND_CANDIDATES) - len(path.active))
        others = np.random.default_rng(0).choice(n, more, replace=False)
        many = replace(many, candidates=np.union1d(others, path.active))
    choice = many.choice(settings.max_terms)
    return replace(problem, candidates=choice, columns=choice.scaled_columns), settings, many


@dataclass(frozen=True)
class ManyCandidates:
    """How many candidates a path of so many terms is selected from.

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
    most_rows: int = 10_000  # rows of a model of all candidates

    @property
    def largest(self) -> int:
        """Number of candidates whose Gram matrix fits into memory."""
        return int(np.sqrt(self.memory * 1e6 / 8))

    def wanted(self, limit: int) -> int:
        """Return the number of candidates for so many terms, where memory does not matter."""
        if self.learns:
            return max(1200, min(4 * limit, 2000 + limit))
        return max(2000, min(8 * limit, 2000 + 2 * limit))

    def number(self, limit: int | None) -> int:
        """Return the number of candidates for so many terms; None for all candidates."""
        if limit is None:
            return self.most_rows
        return max(min(self.wanted(int(limit)), self.largest), int(limit))

    def choice(self, limit: int | None, wanted: Any = None) -> CandidateChoice:
        """Return the candidates for so many terms, or the rows `wanted`."""
        return CandidateChoice(
            self.candidates if wanted is None else wanted,
            many=self.number(limit),
            whole=0 if self.learns else self.largest,
            memory=self.memory,
            everything=self.everything or limit is None,
            nufft=self.nufft,
            seed=self.seed,
        )


def search(
    problem: Problem,
    settings: PathSettings,
    run: Run,
    many: ManyCandidates,
    start: float | None = None,
    scores: Any = None,
) -> Selected:
    """Search a path of at most `max_terms` terms, or a longer one where it grows.

    `start` and `scores` (of the same candidates) are those of a shorter path.
    """
    limit = settings.max_terms
    while True:
        design = problem.design
        n_path = min(limit, design.n_candidates)
        longest = min(int(_GROWTH * limit), design.n_rows // _ROWS_PER_TERM)
        larger = None
        if settings.grows and longest >= _LONGER * n_path:
            larger = _larger(problem, n_path, longest, many)
        pays = None if larger is None else _GAIN * design.n_observations
        route, notes = _route(problem, settings, limit, scores)
        scale = column_scale(design)
        lam = settings.regularization
        solver = Forward(
            noise_variance=problem.solver_noise,
            regularization=None if lam is None else lam * scale * scale,
            max_terms=limit,
            cut=settings.cut,
            tol=settings.tol,
            replays=_REPLAYS,
            route=route,
            memory=problem.cache_size,
            single=settings.single,
            report=settings.report,
            start=start,
            pays=pays,
            set_prior=problem.spec.family is None,
        )
        result = run(solver, problem, 2 * (1 + _REPLAYS) * limit + 1)
        state = result.state
        if larger is None or result.stop_reason is not StopReason.LONGER_PATH:
            break
        assert state.best is not None  # the path whose last terms still pay
        scores = state.scores if larger is problem else None
        problem, start, limit = larger, state.best.lam, longest
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
        return columns_route, ()
    if is_option(settings.rank, "auto"):
        most = max(1, int(memory * 1e6 / (8 * design.n_rows)))
        return partial(low_rank_route, rank=most, trace=_TRACE_SHARE), ()
    if settings.rank is not None:
        return partial(low_rank_route, rank=int(settings.rank)), ()
    if design.lazy and (needs := megabytes_short(design, memory, limit)):
        message = (
            f"Neither the {design.n_candidates} kernel columns nor their products fit into "
            f"cache_size={memory} MB, so the columns are computed again for each term, which is "
            f"slow: take fewer candidates, or cache_size={int(np.ceil(needs))}."
        )
        return None, (Note(message),)
    return None, ()


def _larger(problem: Problem, n_path: int, limit: int, many: ManyCandidates) -> Problem | None:
    """Return the problem for `limit` terms in place of `n_path`; None where it is too large."""
    design, wanted = problem.design, many.wanted(limit)
    data = problem.data
    if limit <= n_path or wanted > many.largest or data is None or not data.in_memory:
        return None
    drawn = problem.spec.family is not None and _is_drawn(many.candidates)
    drawn = drawn and not many.everything and design.n_candidates < min(wanted, design.n_rows)
    if not drawn:
        return problem if n_path < design.n_candidates else None
    if gram_seconds(design, wanted) > _SECONDS:
        return None
    larger = replace(problem, candidates=many.choice(limit))
    return larger if n_path < larger.design.n_candidates else None


def _is_drawn(candidates: Any) -> bool:
    return is_option(candidates, "auto", "pivots")


def _pivots(problem: Problem, settings: PathSettings, many: ManyCandidates) -> Problem | None:
    """Return the problem with few candidates that capture a process; None where it takes many.

    Pivots do not depend on the target, and capture more of the process than any path. Where few of
    them leave less variance than the noise hides, rows drawn at random have nothing to add.
    """
    data, lam = problem.data, problem.choice.noise_to_signal
    if data is None or not data.in_memory or many.everything or problem.previous is not None:
        return None
    if not (is_option(many.candidates, "auto") and lam > 0.0 and settings.follows_process):
        return None
    if problem.design.n_rows <= many.number(FIRST_TERMS):
        return None
    rows = data.used
    rows = rows[:: 1 + len(rows) // _SAMPLE_ROWS]
    pivots, residual = process_pivots(problem.kernel_function, data.X[rows], FIRST_TERMS, lam)
    if residual > RESIDUAL_SHARE * lam:
        return None
    return replace(problem, candidates=many.choice(FIRST_TERMS, rows[pivots]))


def process_pivots(kernel: Any, X: np.ndarray, most: int, lam: float) -> tuple[np.ndarray, float]:
    """Return rows of X whose functions capture the process as far as the noise lets it be seen.

    There are at most `most` of them. The second value is the mean residual variance of a process of
    variance 1 whose noise has variance `lam`.
    """
    F, pivots = pivoted_cholesky(
        kernel.diagonal(X),
        lambda j: kernel.bind(X[j])(X),
        most,
        RESIDUAL_SHARE * RESIDUAL_SHARE * lam,
    )
    return pivots, 1.0 - float(np.einsum("ij,ij->", F, F)) / len(X)


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

    def enough(self, X: np.ndarray, prior: Prior) -> int:
        """Return how many terms capture their Gaussian process up to a tenth of the noise.

        The result is one more than all terms where that is not enough. The residual variance of the
        process, of unit variance, falls with the number of terms, and the triangle of the kernel
        matrix has it for all numbers at once. `prior` is that of all terms.
        """
        values = self.path.design.basis(np.arange(len(self.path))).functions(X)
        T = solve_triangular(prior.L, values.T, lower=True, check_finite=False)
        residual = 1.0 - np.cumsum(np.mean(T * T, axis=1))
        enough = np.flatnonzero(residual <= RESIDUAL_SHARE * prior.lam)
        return int(enough[0]) + 1 if len(enough) else len(self.path) + 1

    def predictions(self, X: np.ndarray) -> np.ndarray:
        """Return the predictions of the first 0, 1, 2, ... selected terms, a column for each."""
        Phi = self.path.design.basis(np.arange(len(self.path)))(X)
        values = self.path.predictions(Phi, self.regularization)
        return (values + self.offset) * self.target_scale


def path_fit(selected: Selected, settings: PathSettings, n_terms: int | None = None) -> Fit:
    """Return the fit of the first terms of a path: `n_terms`, or as many as the settings keep."""
    problem, path, state, result = selected[:4]
    k = selected.best if n_terms is None else min(n_terms, selected.best)
    prior, short = None, False
    follows = settings.follows_process and problem.design.stationary
    if path.gp and k > 0 and n_terms is None and follows:
        prior = path.prior(len(path.path))
        if prior is not None:
            enough = path.enough(sample_rows(problem.design, _SAMPLE_ROWS), prior)
            short = enough > len(path.path)
            k = max(k, min(enough, len(path.path)))
    learns_noise = problem.noise_variance is None
    prior = prior if k == len(path.path) else None
    fit = terms_fit(
        path,
        k,
        spec=problem.spec,
        kernel=problem.choice,
        data=problem.data,
        learns_noise=learns_noise,
        prior=prior,
    )
    shift = problem.units.n_observations * np.sum(np.log(problem.units.target))
    history = problem.units.to_user(result.history)
    if history:
        history["candidate"] = problem.labels[history["candidate"]]
        # Twice: the square of an extreme scale overflows float64.
        with np.errstate(over="ignore"):
            history["regularization"] = history["regularization"] / path.column_scale
            history["regularization"] = history["regularization"] / path.column_scale
    reason = result.stop_reason
    if result.converged and n_terms is not None:
        reason = StopReason.VALIDATION
    elif result.converged and k > selected.best:
        reason = StopReason.MAX_TERMS if short else StopReason.GAUSSIAN_PROCESS
    notes: tuple[Note, ...] = ()
    if not result.converged:
        message = f"The selection stopped after {result.n_iter} steps: {reason.advice}"
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
        extra={**fit.extra, "short": short, "n_candidates": problem.design.n_candidates},
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
) -> Fit:
    """Return the fit of the first k terms of a path; `learn` estimates their regulariser again."""
    notes: tuple[Note, ...] = ()
    model = path.model(k, learn, prior)
    if model is None:
        message = (
            f"The matrix of kernel={spec.family!r} is not positive definite, so refit='gp' "
            "has no meaning here: the independent prior is kept. Use refit=None."
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
        added=model.residual,
        stop_reason=StopReason.TRUNCATED,
        attributes={"regularization_": model.regularization / scale / scale},
        extra={"path": path},
        notes=notes,
    )


def limit_warning(limit: str, k: int, nearly_all: bool, learnt: bool) -> str:
    """Return what a fit met at the limit of float64 or of the noise, and what to do."""
    if limit == "amplitude":
        return (
            "The kernel is so wide that its functions cancel each other to the last digits of "
            "float64: take a larger gamma"
            + ("." if learnt else ", or let gamma='evidence' or gamma='ard' find it.")
        )
    met = (
        f"{k} functions explain the target up to {FLOOR:g} of its variance, so the noise variance "
        "was kept at that share. "
    )
    if nearly_all and not learnt:
        return met + (
            "Where nearly every row has its function, that may be the kernel and not the target: "
            "learn the width (gamma='evidence' or 'ard')."
        )
    return met + (
        "If it should have noise, look for an input that determines it, such as a function of the "
        "target itself; if it has none, give noise_variance the level you want."
    )


def validated_terms(
    problem: Problem, settings: PathSettings, run: Run, many: ManyCandidates, fraction: float
) -> int:
    """Return the number of terms that predict held-out rows best, on a path selected without them.

    `fraction` is the share of the rows that is held out.
    """
    data = problem.rows
    order = np.random.default_rng(problem.seed).permutation(data.used)
    n_out = min(len(order) - 2, max(1, round(fraction * len(order))))
    if n_out < 1:
        raise ValueError(
            f"early_stopping='validation' needs at least 3 rows, got {len(order)}: use 'evidence'."
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
    plain = replace(settings, cut=False, gp=False, follows_process=False, grows=False)
    path = search(trial, plain, run, many).path
    errors = (path.predictions(held_out) - data.y[out, None]) ** 2
    weight = data.counts if data.likelihood_weight is None else data.likelihood_weight
    return int(np.argmin(np.average(errors, axis=0, weights=weight[out])))


# All candidates.


def exact_fit(problem: Problem, settings: PathSettings, process: bool) -> Fit:
    """Return the fit of all candidates, none selected.

    With `process` it is the Gaussian process of all rows of positive weight, unless the kernel has
    none.
    """
    design = problem.design
    noise = Noise.from_design(design, problem.t, problem.solver_noise)
    fit = _process_fit(problem, noise) if process else None
    if fit is None:
        everything = np.arange(design.n_candidates)
        path = Path.from_columns(design, problem.t, everything)
        scale, lam = column_scale(design), settings.regularization
        gp = settings.gp and problem.spec.family is not None
        if lam is None:
            lam = best_terms(path, noise, len(path))[0] if len(path) else 1.0
        else:
            lam = lam * scale * scale
        fitted = FittedPath.from_problem(problem, path, noise, lam, everything, gp)
        fit = terms_fit(
            fitted,
            len(path),
            spec=problem.spec,
            kernel=problem.choice,
            data=problem.data,
            learns_noise=problem.noise_variance is None,
        )
    log_evidence = fit.posterior.log_evidence
    return replace(
        fit,
        stop_reason=StopReason.ALL_CANDIDATES,
        attributes={
            **fit.attributes,
            "best_n_terms_": len(fit.active),
            "evidence_path_": np.array([log_evidence]),
            "approximation_": {
                "route": "all candidates",
                "n_candidates": design.n_candidates,
                "claimed_log_evidence": log_evidence,
                "log_evidence": log_evidence,
            },
        },
        extra={"path": None, "n_candidates": design.n_candidates},
    )


def _process_fit(problem: Problem, noise: Noise) -> Fit | None:
    """Return the Gaussian process of all rows of positive weight; None if the kernel has none."""
    from .solvers.gp.exact import exact_process

    data, kernel, scale = problem.rows, problem.kernel_function, problem.units.target
    rows = data.used
    X, y = data.X[rows], data.y[rows]
    weight = data.likelihood_weight
    weight = np.ones(len(rows)) if weight is None else weight[rows]
    assert kernel is not None
    basis = KernelBasis(kernel, X)
    K = np.empty((len(rows), len(rows)), order="F")
    for some in row_slices(len(rows), 512):
        K[some] = basis(X[some])
    level = K.diagonal().copy()
    rng = np.random.default_rng(problem.seed)
    process = exact_process(K, y / scale, weight, problem.fit_intercept, noise, rng)
    if process is None:
        return None
    notes: tuple[Note, ...] = ()
    if process.limit and problem.noise_variance is None:
        message = limit_warning(process.limit, len(rows), True, problem.spec.learns)
        notes = (Note(message, ConvergenceWarning),)
    added = ResidualProcess(basis, process.L, process.amplitude * scale * scale)
    noise_variance = process.posterior.noise_variance * scale * scale
    loo = LeftOut(
        process.lam / weight * process.posterior.mean * scale,
        process.variance * scale * scale,
        y,
        weight,
        noise_variance,
    )
    fit = gaussian_fit(
        process.posterior,
        process.lam * level,
        basis,
        rows,
        units=Units(scale, noise.n),
        kernel=problem.choice,
        data=data,
        added=added,
        loo=loo,
        stop_reason=StopReason.ALL_CANDIDATES,
        attributes={"regularization_": process.lam},
        notes=notes,
    )
    return replace(fit, loo=with_unused_rows(fit.model, loo, rows, data))


def with_unused_rows(model: Any, loo: LeftOut, rows: np.ndarray, data: Data) -> LeftOut:
    """Return `loo` of these rows with the others, of weight zero, predicted as new ones."""
    unused = np.setdiff1d(np.arange(data.n_rows), rows)
    if len(unused) == 0:
        return loo
    y = data.y[unused]
    mean, spread, _ = model.moments(data.X[unused])
    others = LeftOut(y - mean, spread, y, np.zeros(len(unused)), loo.fitted_noise)
    back = np.argsort(np.concatenate([rows, unused]))
    names = ("gap", "spread", "y", "weight")
    both = {a: np.concatenate([getattr(loo, a), getattr(others, a)])[back] for a in names}
    return loo._replace(**both)


# The Gaussian process around each new row.


def local_fit(
    problem: Problem, fit: Fit, neighbours: Any, n_jobs: int | None, all_rows: bool
) -> Fit:
    """Return the Gaussian process of all rows, local around each new one.

    `fit` is that of few functions, the global part; it is returned itself where they capture the
    process and ``neighbours="auto"``. `all_rows` asks for leave-one-out predictions of every row.
    """
    from .solvers.gp.neighbour_scales import neighbour_process
    from .solvers.gp.neighbours import UniqueRows

    data = problem.rows.loaded()
    scale, rows = problem.units.target, data.used
    X, y = np.asarray(data.X), data.y
    weight = data.counts if data.likelihood_weight is None else data.likelihood_weight
    precision = None if data.precision is None else data.precision[rows]
    if len(rows) < data.n_rows:
        X, y, weight = X[rows], y[rows], weight[rows]
    path, k = fit.extra["path"], len(fit.active)
    kernel: Any = problem.kernel_function
    chosen: Any = KernelBasis(kernel, X[:0])
    L: Any = np.zeros((0, 0))
    if k and path.kernel_matrix is not None:
        chosen = path.path.design.basis(np.arange(k)).functions
        L = gp_root(path.kernel_matrix[:k, :k])
    single = 8e-6 * len(y) * (X.shape[1] + k) > problem.cache_size
    sampled = len(y) > _LOO_ROWS and not all_rows and len(y) == data.n_rows
    found = neighbour_process(
        chosen,
        L,
        UniqueRows.from_rows(X, y / scale, weight, single, precision),
        neighbours=neighbours,
        intercept=problem.fit_intercept,
        noise=path.noise,
        scale=scale,
        rng=np.random.default_rng(problem.seed),
        n_loo_rows=_LOO_ROWS if sampled else None,
        n_jobs=n_jobs,
    )
    notes = fit.notes
    if found.limit and problem.noise_variance is None:
        message = limit_warning(found.limit, len(y), 2 * len(y) > path.n_rows, problem.spec.learns)
        notes = (*notes, Note(message, ConvergenceWarning))
    notes = (*notes, *(Note(message, ConvergenceWarning) for message in found.notes))
    process, attributes = found.process, dict(fit.attributes)
    attributes["neighbours_"] = min(process.m, len(process.rows))
    if is_option(neighbours, "auto"):
        variance = float(np.average((y - np.average(y, weights=weight)) ** 2, weights=weight))
        variance = variance / scale / scale
        attributes["neighbours_search_"] = {
            "neighbours": np.array(found.numbers),
            "left_out": np.array(found.densities) + 0.5 * np.log(variance or 1.0),
            "outside": found.residual_variance / process.lam,
        }
        if found.residual_variance <= RESIDUAL_SHARE * process.lam:
            attributes["neighbours_"] = 0
            return replace(fit, attributes=attributes, notes=notes)
    global_fit = _global_part(problem, fit, process)
    model = LocalModel(global_fit.model.basis, global_fit.posterior, process, n_jobs)
    loo = found.left_out if sampled else with_unused_rows(model, found.left_out, rows, data)
    return replace(
        fit,
        model=model,
        weight_precision=global_fit.weight_precision,
        active=global_fit.active,
        noise=global_fit.noise,
        loo=loo,
        attributes=attributes,
        extra={**fit.extra, "loo_of_sample": sampled},
        notes=notes,
    )


def _global_part(problem: Problem, fit: Fit, process: Any) -> Fit:
    """Return the fit of the functions alone, all else taken as noise of its own at each row."""
    part, a = process.fit, process.amplitude
    n, k = float(np.sum(process.rows.weight)), len(part.mean)
    basis: Any = process.functions
    if problem.fit_intercept:
        basis, n = CentredBasis(basis, part.function_means), n - 1.0
    log_evidence = -0.5 * (n * np.log(2.0 * np.pi * a) + part.log_det + part.square / a)
    posterior = Posterior(
        part.whitening @ part.mean,
        Dense(part.whitening * np.sqrt(part.variance), a),
        process.lam * a,
        float(log_evidence),
        part.offset,
        part.offset_variance * a,
    )
    # The prior precision of the weights is the kernel matrix, whose diagonal is one.
    lams = np.full(k, process.lam)
    active = fit.extra["path"].active[:k]
    return gaussian_fit(
        posterior,
        lams,
        basis,
        active,
        units=Units(process.scale, n),
        kernel=problem.choice,
        data=None,
        stop_reason=fit.stop_reason,
    )


# Properties of designs.


def sample_rows(design: Design, most: int) -> np.ndarray:
    """Return about `most` rows of positive weight under kernel functions.

    For a stream they are among its candidates, because the other rows are not stored.
    """
    X = design.inputs
    assert X is not None
    if isinstance(X, np.ndarray):
        return X[:: 1 + len(X) // most]
    rows = np.flatnonzero(design.root_weight)
    return X.take(rows[:: 1 + len(rows) // most])


def column_scale(design: Design) -> float:
    """Return the factor that all columns of a design were multiplied by against overflow."""
    return float(design.column_scale[0]) if design.n_candidates else 1.0
