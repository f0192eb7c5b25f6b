"""A problem as a solver sees it, made from the data and the settings of a fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np

from ._array import PerTarget, to_numpy
from .callbacks import Progress, Reporter
from .data import Data, merged_weights
from .designs import ChunkedKernelDesign, Design, KernelDesign
from .designs.candidates import (
    CandidateChoice,
    column_sizes,
    different_rows,
    one_scale,
    own_scales,
    power_of_two,
)
from .designs.stream import Stream
from .kernels import Kernel, KernelChoice, KernelSpec, ProcessKind, choose_kernel, is_option
from .rows import Job, SpreadJob
from .rows._base import Chunk
from .solvers.run import Algorithm, Result, S, StopReason, run

if TYPE_CHECKING:
    from .fitting import Fit

Columns = Callable[[Any], Design]
_SAMPLE = 10_000  # rows from which a kernel is learnt, where they are not in memory
_LARGEST_TARGET = float(np.sqrt(np.finfo(np.float64).max))  # its square does not overflow


@dataclass(frozen=True, eq=False)
class Units:
    """The units of the solver: targets divided by `target`, with `n_observations` of them."""

    target: Any
    n_observations: float

    def to_solver(self, variance: float | None) -> float | None:
        """Return a noise variance of the user in the units of the solver; None stays None."""
        return None if variance is None else float(variance) / self.target / self.target

    def to_user(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return what the steps of a solver report in the units of the user."""
        fields, scale = dict(fields), self.target
        shift = self.n_observations * np.sum(np.log(scale))
        for name in {"log_evidence", "bound"} & fields.keys():
            fields[name] = fields[name] - shift
        with np.errstate(over="ignore", under="ignore"):
            for name in {"noise_variance", "residual"} & fields.keys():
                fields[name] = fields[name] * scale * scale
            for name in {"rmse"} & fields.keys():
                fields[name] = fields[name] * scale
        return fields


@dataclass(frozen=True, eq=False)
class CandidateProblem:
    """Rows, a kernel and candidates: what problems of regression and of labels share.

    Attributes
    ----------
    data : Data or None
        The rows; None where they were not stored.
    spec : KernelSpec
        The kernel parameters of the user.
    kernel : KernelChoice or None
        The kernel of this fit; None until it has been chosen.
    fit_intercept : bool
        Whether a constant with a flat prior is integrated out.
    cache_size : float
        Megabytes that kernel columns may take.
    columns : callable
        The design of the columns of X, where these are the candidates.
    candidates : CandidateChoice, optional
        Which rows carry a kernel function; by default every different row.
    seed : int
        Seed of every random draw of the fit.
    previous : Fit or LabelFit, optional
        A fit of nearly the same problem, from whose functions the search may start.
    purpose : {"fit", "round", "trial", "fold"}
        Whether this is the fit of the data as given, a later round with other precisions, a trial
        of one of several kernels, or a fold in which functions are selected again.
    reporter : Reporter
        Reporter of the progress of the fit.
    """

    data: Data | None
    spec: KernelSpec = field(default_factory=KernelSpec)
    kernel: KernelChoice | None = None
    fit_intercept: bool = True
    cache_size: float = 200.0
    columns: Columns = own_scales
    candidates: CandidateChoice | None = None
    seed: int = 0
    previous: Any = None
    purpose: str = "fit"
    reporter: Reporter = field(default_factory=Reporter)

    @property
    def rows(self) -> Data:
        """The data of a problem whose rows are stored."""
        assert self.data is not None
        return self.data

    @property
    def choice(self) -> KernelChoice:
        """The kernel of this fit, after it has been chosen."""
        assert self.kernel is not None
        return self.kernel

    @property
    def kernel_function(self) -> Kernel | None:
        """The kernel function; None where candidates are columns or given kernel values."""
        return self.choice.kernel

    @property
    def is_reported(self) -> bool:
        """True where the user sees this fit: it is neither a trial nor a fold."""
        return self.purpose in ("fit", "round")

    @property
    def listener(self) -> Reporter:
        """The reporter of a fit that the user sees; a silent one in trials and folds."""
        return self.reporter if self.is_reported else Reporter()

    def progress(self, max_iter: int) -> AbstractContextManager[Progress | None]:
        """Return a context in which the user sees the steps of a solver; not those of trials."""
        return self.listener.steps(max_iter, self.to_user)

    def within_budget(self, result: Result[S]) -> Result[S]:
        """Return the end of a run with the reason for which the whole fit was cut short, if any."""
        budget = self.reporter.budget
        if result.stop_reason is StopReason.INTERRUPTED:
            budget.interrupt()
        if result.converged or not budget.over:
            return result
        return replace(result, stop_reason=StopReason(budget.reason))

    def to_user(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return what the steps of a solver report in the units of the user."""
        return fields

    def trial(self, **changes: Any) -> Self:
        """Return this problem for a trial of another kernel."""
        return replace(self, purpose="trial", previous=None, **changes)

    def kernel_target(self, y: np.ndarray) -> np.ndarray:
        """Return the targets from which a kernel is learnt."""
        return y


@dataclass(frozen=True, eq=False)
class Problem(CandidateProblem):
    """All data that a search for a numeric target may use. Frozen: an inner fit uses `replace`.

    Attributes
    ----------
    noise_variance : float or None
        Known noise variance in the units of the target; None where it is learnt.
    hold_intercept : bool
        Whether the constant is held at the mean of the target instead of being integrated out.
    stream : Stream, optional
        Triangular factor that replaces rows that are not stored.
    most_terms : int or None
        Length that suffices for a path of selected functions; None where it is not known.
    """

    previous: Fit | None = None
    noise_variance: float | None = None
    hold_intercept: bool = False
    stream: Stream | None = None
    most_terms: int | None = None

    @cached_property
    def _made(self) -> _Made:
        if self.stream is not None:
            return _from_stream(self.stream, self.hold_intercept)
        if self.rows.in_memory:
            return _in_memory(self)
        return _in_chunks(self)

    @property
    def design(self) -> Design:
        """The candidate columns on the rows: weighted, and centred where there is an intercept."""
        return self._made.design

    @property
    def t(self) -> np.ndarray:
        """The target as the solver sees it: scaled, weighted, centred."""
        return self._made.t

    @property
    def offset(self) -> PerTarget:
        """The mean that was removed from the scaled target."""
        return self._made.offset

    @property
    def units(self) -> Units:
        """The units of the solver."""
        return self._made.units

    @property
    def labels(self) -> np.ndarray:
        """Row (kernels) or column of X that carries each candidate."""
        return self._made.labels

    @property
    def solver_noise(self) -> float | None:
        """The known noise variance in the units of the solver; None where it is learnt."""
        return self.units.to_solver(self.noise_variance)

    def to_user(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return what the steps of a solver report in the units of the user."""
        return self.units.to_user(fields)

    def run(self, solver: Algorithm[S], max_iter: int) -> Result[S]:
        """Run a solver on this problem, with the requested progress messages."""
        with self.progress(max_iter) as progress:
            return self.within_budget(
                run(
                    solver,
                    self.design,
                    self.t,
                    max_iter=max_iter,
                    max_time=self.reporter.budget.seconds_left,
                    callback=progress,
                )
            )

    def fold(self, data: Data, most_terms: int) -> Problem:
        """Return this problem on the rows outside a fold."""
        return replace(self, purpose="fold", data=data, previous=None, most_terms=most_terms)

    def with_unit_scale(self) -> Problem:
        """Return the problem with the target in the units of the user."""
        made = self._made
        scale = made.units.target
        units = Units(1.0, made.units.n_observations)
        problem = replace(self)
        vars(problem)["_made"] = made._replace(
            t=made.t * scale, offset=made.offset * scale, units=units
        )
        return problem

    def with_design(self, design: Design) -> Problem:
        """Return the problem on a part of its columns, or on repeated ones."""
        problem = replace(self)
        vars(problem)["_made"] = self._made._replace(design=design)
        return problem


P = TypeVar("P", bound=CandidateProblem)


def with_chosen_kernel(
    problem: P,
    score: Callable[[P], float] | None,
    *,
    labels: bool = False,
    process: ProcessKind = "",
    names: Sequence[str] | None = None,
) -> P:
    """Return the problem with its kernel chosen: as given, or learnt from the rows.

    Parameters
    ----------
    problem : CandidateProblem
        The problem of the fit.
    score : callable, optional
        Cross-validated score of a trial problem, higher is better; decides between kernels.
    labels, process, names
        As in `choose_kernel`.
    """
    spec, data = problem.spec, problem.rows
    if not spec.on_rows:
        return replace(problem, kernel=KernelChoice())
    weight = data.likelihood_weight
    one_width = not is_option(spec.family, "auto", "sum", "additive")
    if not data.in_memory and one_width and is_option(spec.gamma, "scale"):
        gamma = data.X.with_arrays(weight).reduce(SpreadJob()).gamma
        return replace(problem, kernel=spec.fixed(gamma))
    rows = data.used
    if not data.in_memory:
        rows = rows[:: -(-len(rows) // _SAMPLE)]
    sample = data if weight is None and data.in_memory else data.subset(rows)
    # Length scales are learnt with a noise of their own, about which duplicates say nothing even
    # where the noise of the fit is known.
    searched = _without_duplicates(sample) if spec.learns and not labels else sample

    def trial_score(choice: KernelChoice) -> float:
        assert score is not None
        return score(problem.trial(data=sample, kernel=choice))

    choice = choose_kernel(
        spec,
        searched.X,
        problem.kernel_target(searched.y),
        searched.likelihood_weight,
        score=None if score is None else trial_score,
        seed=problem.seed,
        labels=labels,
        process=process,
        device=data.device,
        names=names,
        reporter=problem.reporter,
    )
    return replace(problem, kernel=choice)


def _without_duplicates(data: Data) -> Data:
    """Return the data with one row for each set of duplicates, with the precision of all."""
    merged = merged_weights(data.input_hashes, data.y, data.weight)
    if merged is None:
        return data
    precision = merged if data.precision is None else merged * data.precision
    kept = merged > 0.0
    unique = replace(data, weight=kept.astype(np.float64), precision=np.where(kept, precision, 1.0))
    return unique.subset(np.flatnonzero(kept))


def target_scale(largest: PerTarget) -> Any:
    """Return the power of two that divides a target of this largest magnitude.

    A target whose squares overflow has no variance in float64, and is refused.
    """
    if np.any(np.asarray(largest) > _LARGEST_TARGET):
        raise ValueError(
            f"y is too large: the squares of values like {np.max(largest):.3g} overflow float64. "
            "Rescale y, for example with sklearn.compose.TransformedTargetRegressor."
        )
    return power_of_two(largest)


class _Made(NamedTuple):
    design: Design
    t: np.ndarray
    offset: PerTarget
    units: Units
    labels: np.ndarray


def _from_stream(stream: Stream, hold_intercept: bool = False) -> _Made:
    design, t, offset = stream.problem(hold_intercept)
    return _Made(design, t, offset, Units(stream.scale, design.n_observations), stream.labels)


def _in_memory(problem: Problem) -> _Made:
    data = problem.rows
    X, y, weight, rows = data.X, data.y, data.likelihood_weight, np.arange(data.n_rows)
    if weight is not None:
        rows = np.flatnonzero(weight)
        X, y, weight = X[rows], y[rows], weight[rows]
    design, labels = candidate_columns(problem, X, rows)
    if weight is not None:
        design = design.weighted(weight)
    scale = target_scale(np.max(np.abs(y), axis=0))
    return _made(problem, design, y / scale, weight, scale, labels)


def _made(
    problem: Problem,
    design: Design,
    y: np.ndarray,
    weight: np.ndarray | None,
    scale: Any,
    labels: np.ndarray,
) -> _Made:
    """Return what the solver sees of candidates and targets, with the constant of the problem."""
    if problem.hold_intercept:
        offset = np.average(y, axis=0, weights=weight)
        units = Units(scale, design.n_observations)
        return _Made(design, design.target(y - offset), offset, units, labels)
    if problem.fit_intercept:
        design = design.centred()
    units = Units(scale, design.n_observations)
    return _Made(design, design.target(y), design.offset(y), units, labels)


def candidate_columns(
    problem: CandidateProblem, X: Any, rows: np.ndarray
) -> tuple[Design, np.ndarray]:
    """Return the design over rows X in memory, and the row or column of each candidate."""
    choice = problem.candidates
    if problem.spec.family is None:
        design: Any = problem.columns(X)
        return design, design.indices
    if is_option(problem.spec.family, "precomputed"):
        if rows[-1] >= X.shape[1]:
            raise ValueError(
                "kernel='precomputed' needs a square matrix of the training rows, got X with "
                f"{X.shape[1]} columns."
            )
        design = one_scale(X, rows)
        design = design if choice is None else choice.among(design)
        return design, design.indices
    kernel = problem.kernel_function
    assert kernel is not None
    if choice is not None:
        return choice.functions(X, kernel, rows)
    centres = different_rows(X)
    return KernelDesign(X, kernel, centres, cache_size=problem.cache_size), rows[centres]


def _in_chunks(problem: Problem) -> _Made:
    data = problem.rows
    X, y, weight, rows = data.X, data.y, data.likelihood_weight, data.used
    scale = target_scale(np.max(np.abs(y[rows])))
    if problem.spec.family is None and X.matrix is None:
        return _columns_in_chunks(problem, scale)
    kernel = problem.kernel_function
    if kernel is None:
        design: Any = problem.columns(X.matrix)
        labels = design.indices
    else:
        if problem.candidates is None:
            labels = rows[different_rows(X.take(rows))]
        else:
            labels = rows[problem.candidates.centres(_RowsOf(X, rows), kernel, rows)]
        design = ChunkedKernelDesign(X, kernel, labels, problem.cache_size)
    if weight is not None:
        design = design.weighted(weight)
    y = y / scale if weight is None else np.where(weight == 0.0, 0.0, y / scale)
    return _made(problem, design, y, weight, scale, labels)


def _columns_in_chunks(problem: Problem, scale: float) -> _Made:
    """Return the triangle of the columns of X, which is all that a search among them needs."""
    data = problem.rows
    # One row of the largest values shows which columns there are, and their scale.
    design: Any = problem.columns(data.reduce(SizesJob())[None])
    functions = design.basis(np.arange(design.n_candidates))
    stream = Stream.from_functions(
        functions, design.indices, None, scale, bool(problem.fit_intercept)
    )
    return _from_stream(data.reduce(stream))


class SizesJob(Job):
    """The largest magnitude in each column, over chunks (X, ..., weight or None)."""

    def read(self, index: int, chunk: Chunk) -> np.ndarray:
        """Return the magnitudes in one chunk; rows of weight zero do not count."""
        X, weight = to_numpy(chunk[0]), chunk[-1]
        return column_sizes(X if weight is None else X[weight > 0])

    def merge(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return the magnitudes in two chunks."""
        return np.maximum(first, second)


class _RowsOf:
    """A subset of rows that are not in memory, read when they are indexed."""

    def __init__(self, X: Any, rows: np.ndarray) -> None:
        self.X, self.rows = X, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, idx: np.ndarray) -> np.ndarray:
        return self.X.take(self.rows[idx])
