"""A fit to labels as a value, and the one path that every classifier takes to it.

`fit_labels` takes a `LabelProblem` and a function that solves it for one kernel, and returns a
`LabelFit`. It knows no estimator: it chooses the kernel by leave-one-out predictions of the labels,
fits, and calibrates the probabilities by folds. An inner fit (a trial of a kernel, a fold) is a
call of the same function with another problem.

Two classes are one binary problem, more are one problem per class against the rest, on the same
candidates; `class_probabilities` turns their latent values into probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from scipy.sparse import issparse
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from .class_probabilities import (
    Calibration,
    LabelPredictions,
    Link,
    Logistic,
    Reversion,
    Unlabelled,
    best_calibration,
    best_coupling,
    log_own,
    variance_factor,
)
from .designs import Design
from .fitting import Note, attempt, cut_short
from .input_range import InputRange
from .kernels import KernelChoice, ProcessKind, is_option
from .label_folds import N_FOLDS, find_repeats, label_folds
from .posterior import Dense, Diagonal, Healing, Posterior
from .problem import CandidateProblem, candidate_columns, with_chosen_kernel
from .rows import row_slices
from .solvers.run import (
    LabelSolver,
    Result,
    S,
    Solution,
    StepCallback,
    StopReason,
    run,
)

COMPARED_ROWS = 1000  # rows on which kernels are compared, and probabilities calibrated
_FOLD_TOLERANCE = 10.0  # that of a fold, over that of the fit
_LIGHT_FOLD = 1e-3  # share of the observations up to which a fold says nothing about calibration
_ROWS_PER_LENGTH = 5  # rows for each length scale below which folds learn them again
# Nats for the precision of a function. With none, one width and forty functions were chosen for 300
# noisy labels (a log-loss of .6 in place of .4); with one, one width on a split of energy (.076 in
# place of .019), where functions are few and sure. Tuned on these, breast cancer, wine, concrete
# and generated classes.
_FUNCTION = 0.5
_FEW_IN_CLASS = 5  # distinct rows of a class below which its probability is a guess
# Distinct rows below which all probabilities are: of 15 balanced labels, the larger class has .6.
_FEW_LABELS = 20


# From data to a fit.


@dataclass(frozen=True, eq=False)
class LabelProblem(CandidateProblem):
    """All data that a search for labels may use. Frozen: an inner fit uses `replace`.

    The targets of `data` are class numbers 0, 1, ...; those of rows without weight mean nothing.

    Attributes
    ----------
    n_classes : int
        Number of classes.
    whole : LabelFit, optional
        In a fold, the fit of all rows, from whose hyperparameters a search may start.
    """

    n_classes: int = 2
    whole: LabelFit | None = None

    @property
    def positive(self) -> list[int]:
        """Class that each binary problem separates from the others."""
        return list(range(self.n_classes)) if self.n_classes > 2 else [1]

    @cached_property
    def X(self) -> Any:
        """Inputs of the rows of positive weight, dense ones in float64."""
        X = self.rows.take(self.rows.used)
        return X if issparse(X) else np.asarray(X, dtype=np.float64)

    @cached_property
    def codes(self) -> np.ndarray:
        """Class numbers of the rows of positive weight."""
        return self.rows.y[self.rows.used]

    @cached_property
    def weight(self) -> np.ndarray:
        """Number of observations that each of these rows stands for."""
        return self.rows.counts[self.rows.used]

    @property
    def n_observations(self) -> float:
        """Number of observations that all rows stand for."""
        return float(np.sum(self.weight))

    def counts(self, c: int) -> np.ndarray:
        """Return the weight of class c, and of all classes, in each row."""
        return np.column_stack([self.weight * (self.codes == c), self.weight])

    @cached_property
    def _candidates(self) -> tuple[Design, np.ndarray]:
        return candidate_columns(self, self.X, self.rows.used)

    @property
    def design(self) -> Design:
        """Candidate columns on the rows, neither weighted nor centred: the likelihood does both."""
        return self._candidates[0]

    @property
    def labels(self) -> np.ndarray:
        """Row (kernels) or column of X that carries each candidate."""
        return self._candidates[1]

    def kernel_target(self, y: np.ndarray) -> np.ndarray:
        """Return the targets from which a kernel is learnt."""
        return label_columns(y)

    def tolerance(self, tol: float) -> float:
        """Return the tolerance of a search: a fold needs scores, not the last nats of evidence."""
        return _FOLD_TOLERANCE * tol if self.purpose == "fold" else tol

    def run(
        self, solvers: Sequence[LabelSolver[S]], max_iter: int
    ) -> tuple[list[Solution], list[Result]]:
        """Run one solver per binary problem, with the requested progress messages."""
        with self.progress(max_iter * len(solvers)) as progress:
            return solve_labels(self, solvers, max_iter, progress)

    def subset(self, numbers: np.ndarray, purpose: str) -> LabelProblem:
        """Return the problem on some rows, with the classes that occur there."""
        data = self.rows.subset(numbers, is_option(self.spec.family, "precomputed"))
        present, codes = np.unique(data.y, return_inverse=True)
        return replace(
            self,
            data=replace(data, y=codes),
            n_classes=len(present),
            previous=None,
            purpose=purpose,
        )

    def compared(self) -> LabelProblem:
        """Return the problem on at most as many rows as kernels are compared on."""
        rows = self.rows.used
        if len(rows) > COMPARED_ROWS:
            chosen = np.random.default_rng(0).choice(len(rows), COMPARED_ROWS, replace=False)
            rows = rows[chosen]
        return self.subset(rows, "trial")


def label_columns(codes: np.ndarray) -> np.ndarray:
    """Return targets that encode classes 0, 1, ...: -1 and 1, or a column for each class."""
    n_classes = int(codes.max()) + 1
    if n_classes == 2:
        return 2.0 * codes - 1.0
    return np.equal.outer(codes, np.arange(n_classes)).astype(np.float64)


@dataclass(frozen=True, eq=False)
class LabelFit:
    """The result of a fit to labels. It does not refer to the problem.

    Attributes
    ----------
    basis : Basis
        Functions of all binary problems.
    posteriors : tuple of Posterior
        Posterior of the weights of each binary problem.
    members : tuple of arrays of int
        Functions of each binary problem among those of `basis`.
    active : array of int
        Rows (kernels) or columns of X that carry the functions.
    weight_precision : array of shape (n_problems, n_functions) or None
        Prior precision of each weight in the units of the user, infinite where a binary problem
        does not have the function; None without such a prior.
    kernel : KernelChoice
        The kernel, and how it was chosen.
    link : Link
        How latent values become probabilities.
    added : tuple of Healing, optional
        Variance of the latent values beyond that of the posteriors.
    coupling : float or None
        How the probabilities of more than two classes are brought to sum to one.
    calibration : Calibration
        Line by which the scores of new rows are calibrated.
    beyond : Reversion, optional
        How scores outside the range of the training rows revert to the class frequencies.
    loo : LabelPredictions, optional
        Leave-one-out scores of the training rows, before calibration.
    stop_reason, n_iter, history
        Why the search ended, its number of steps, and one entry per step.
    input_range : InputRange, optional
        The range of the training rows.
    attributes : dict
        Attributes that only this method has.
    extra : dict
        Private values that only this method has.
    notes : tuple of Note
        Warnings for the user.
    """

    basis: Any
    posteriors: tuple[Posterior, ...]
    members: tuple[np.ndarray, ...]
    active: np.ndarray
    weight_precision: np.ndarray | None
    kernel: KernelChoice
    link: Link = field(default_factory=Logistic)
    added: tuple[Healing, ...] | None = None
    coupling: float | None = None
    calibration: Calibration = field(default_factory=Calibration)
    beyond: Reversion | None = None
    loo: LabelPredictions | None = None
    stop_reason: StopReason = StopReason.CONVERGED
    n_iter: int = 0
    history: dict[str, np.ndarray] = field(default_factory=dict)
    input_range: InputRange | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    @property
    def loo_log_likelihood(self) -> float:
        """Mean leave-one-out log-likelihood of the labels; NaN without such predictions."""
        if self.loo is None:
            return np.nan
        z, codes, weight, _ = self.loo
        return float(np.average(log_own(self.probabilities(z), codes), weights=weight))

    @property
    def block_rows(self) -> int:
        """Number of rows that are best predicted at once."""
        return min(4096, max(64, 2**18 // max(1, len(self.basis))))

    def values(self, X: Any) -> np.ndarray:
        """Return the mean of the latent value of each binary problem at rows X."""
        Phi = self.basis(X)
        parts = zip(self.posteriors, self.members, strict=True)
        return np.column_stack([posterior.at(Phi[:, members]) for posterior, members in parts])

    def latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the latent value of each binary problem at rows X.

        The variance is zero where the link does not need it.
        """
        Phi = self.basis(X)
        mean = np.empty((len(Phi), len(self.posteriors)))
        variance = np.zeros_like(mean)
        for c, (posterior, members) in enumerate(zip(self.posteriors, self.members, strict=True)):
            own = Phi[:, members]
            if not self.link.needs_variance:
                mean[:, c] = posterior.at(own)
                continue
            mean[:, c], variance[:, c] = posterior.predict(own)
            if self.added is not None:
                variance[:, c] += self.added[c].variance(X, own, posterior)
        return mean, variance

    def scores(self, blocks: Iterable[tuple[slice, Any]], n_rows: int, dtype: Any) -> np.ndarray:
        """Return calibrated scores; `blocks` yields pairs (slice of rows, inputs there).

        Those of two classes are a vector.
        """
        z = np.empty((n_rows, len(self.posteriors)), dtype=dtype)
        for rows, X in blocks:
            z[rows] = self._block_scores(X)
        return z[:, 0] if z.shape[1] == 1 else z

    def _block_scores(self, X: Any) -> np.ndarray:
        """Return the calibrated scores of a block of rows."""
        if self.beyond is None:
            return self.calibration(self.link.score(*self.latent(X)))
        nearest = self.beyond.box.nearest(X)
        return self.beyond(X, self.calibration(self.link.score(*self.latent(nearest))))

    def probabilities(self, z: np.ndarray) -> np.ndarray:
        """Return the probabilities of the classes from scores."""
        return self.link.probabilities(z, 1.0 if self.coupling is None else self.coupling)

    def public_attributes(self, n_features: int, of_columns: bool) -> dict[str, Any]:
        """Return the fitted attributes; `of_columns` where candidates are the columns of X."""
        posteriors = self.posteriors
        out: dict[str, Any] = {
            "basis_": self.basis,
            "posterior_": posteriors if len(posteriors) > 1 else posteriors[0],
            "active_": self.active,
            "log_evidence_": float(sum(p.log_evidence for p in posteriors)),
            "calibration_": self.calibration.slope,
            "calibration_intercept_": np.broadcast_to(
                self.calibration.intercept, len(posteriors)
            ).copy(),
            "history_": self.history,
            "n_iter_": self.n_iter,
            "converged_": self.stop_reason.converged,
            "stop_reason_": self.stop_reason.value,
            **self.kernel.attributes(),
        }
        if self.weight_precision is not None:
            out["weight_precision_"] = self.weight_precision
        if self.coupling is not None:
            out["coupling_"] = self.coupling
        if "coef_" not in self.attributes:
            out |= self._coefficients(n_features, of_columns)
        return out | self.attributes

    def _coefficients(self, n_features: int, of_columns: bool) -> dict[str, Any]:
        coef = np.zeros((len(self.posteriors), len(self.basis)))
        for row, members, posterior in zip(coef, self.members, self.posteriors, strict=True):
            row[members] = posterior.mean * self.basis.scale[members]
        out: dict[str, Any] = {
            "intercept_": np.array([posterior.intercept for posterior in self.posteriors]),
            "coef_": coef,
        }
        if of_columns:
            std = np.zeros_like(coef)
            for row, members, posterior in zip(std, self.members, self.posteriors, strict=True):
                row[members] = np.sqrt(posterior.weight_variance) * self.basis.scale[members]
            for name, values in (("coef_", coef), ("coef_std_", std)):
                out[name] = np.zeros((len(values), n_features))
                out[name][:, self.active] = values
        elif self.basis.centres is not None:
            out["relevance_vectors_"] = self.basis.centres
        return out

    def __getstate__(self) -> dict[str, Any]:
        # A saved model keeps its few functions, and nothing as long as the training rows.
        return {**vars(self), "loo": None, "notes": ()}


Refit = Callable[[LabelProblem], LabelFit]


@dataclass(frozen=True, eq=False)
class LabelMethod:
    """How a classifier fits: what `fit_labels` needs to know about it.

    Attributes
    ----------
    refit : callable
        Solves a problem for one kernel.
    selects : bool
        Whether functions are selected one by one, each with a precision of its own.
    feature_names : sequence of str, optional
        Names of the inputs, for warnings.
    process : {"", "exact"}
        Whether the model is a Gaussian process of all rows; see `choose_kernel`.
    """

    refit: Refit
    selects: bool = True
    feature_names: Sequence[str] | None = None
    process: ProcessKind = ""


def solve_labels(
    problem: LabelProblem,
    solvers: Sequence[LabelSolver[S]],
    max_iter: int,
    progress: StepCallback[S] | None = None,
) -> tuple[list[Solution], list[Result]]:
    """Run one solver per binary problem.

    When the user interrupts one, the remaining problems end at the empty state.
    """
    design = problem.design
    solutions: list[Solution] = []
    results: list[Result] = []
    for c, solver in zip(problem.positive, solvers, strict=True):
        counts, state = problem.counts(c), None
        if results and results[-1].stop_reason in (StopReason.INTERRUPTED, StopReason.CALLBACK):
            max_iter, state = 0, solver.empty(design)
        result = run(
            solver,
            design,
            counts,
            max_iter=max_iter,
            max_time=problem.reporter.budget.seconds_left,
            callback=progress,
            state=state,
        )
        result = problem.within_budget(result)
        solutions.append(sorted_solution(solver.solution(result.state, design, counts)))
        if max_iter == 0:
            result = replace(result, stop_reason=StopReason.INTERRUPTED)
        results.append(result)
    return solutions, results


def sorted_solution(solution: Solution) -> Solution:
    """Return a solution whose functions are in the order of the candidates.

    The posterior of labels has a full covariance or independent weights, whose roots have a row for
    each weight.
    """
    if np.all(np.diff(solution.active) > 0):
        return solution
    order, posterior = np.argsort(solution.active), solution.posterior
    centre = None if posterior.centre is None else posterior.centre[order]
    form = cast("Dense | Diagonal", posterior.form)
    form = replace(form, root=form.root[order])
    posterior = replace(posterior, mean=posterior.mean[order], form=form, centre=centre)
    return Solution(solution.active[order], solution.lam[order], posterior)


def solution_fit(
    problem: LabelProblem, solutions: list[Solution], results: list[Result], **fields: Any
) -> LabelFit:
    """Return the fit of the solutions of all binary problems."""
    link: Link = fields.get("link", Logistic())
    design, codes = problem.design, problem.codes
    parts = [
        left_out(*_fitted_values(s, design), codes == c)
        for c, s in zip(problem.positive, solutions, strict=True)
    ]
    z = np.column_stack([link.score(*part) for part in parts])
    several, runs = problem.n_classes > 2, joined_runs(results)
    return LabelFit(
        **joined_functions(solutions, design.basis, problem.labels),
        **runs,
        notes=_convergence_notes(problem, runs["stop_reason"], runs["n_iter"]),
        kernel=problem.choice,
        coupling=best_coupling(z, codes, problem.weight) if several else None,
        loo=LabelPredictions(z if several else z[:, 0], codes, problem.weight),
        **fields,
    )


def _convergence_notes(problem: LabelProblem, reason: StopReason, n_iter: int) -> tuple[Note, ...]:
    """Return the warning of a search that has not converged."""
    if reason.converged:
        return ()
    message = (
        f"{problem.reporter.name} has not converged ({reason}) after {n_iter} steps. "
        f"{reason.advice}"
    )
    return (Note(message, ConvergenceWarning),)


def joined_functions(
    solutions: list[Solution], basis: Callable[[np.ndarray], Any], labels: np.ndarray
) -> dict[str, Any]:
    """Return the functions of all binary problems and their posteriors, as fields of a fit.

    `basis(idx)` are the functions of these candidates, `labels` their rows or columns of X.
    """
    union = np.unique(np.concatenate([s.active for s in solutions]))
    functions = basis(union)
    members = tuple(np.searchsorted(union, s.active) for s in solutions)
    precision = np.full((len(solutions), len(union)), np.inf)
    for row, own, s in zip(precision, members, solutions, strict=True):
        with np.errstate(over="ignore", under="ignore"):  # infinite beside an extreme scale
            row[own] = s.lam / functions.scale[own] / functions.scale[own]
    return {
        "basis": functions,
        "posteriors": tuple(s.posterior for s in solutions),
        "members": members,
        "active": labels[union],
        "weight_precision": precision,
    }


def joined_runs(results: list[Result]) -> dict[str, Any]:
    """Return history, steps and stop reason of all binary problems, as fields of a fit.

    The reason is that of the first problem that has not converged.
    """
    reasons = [result.stop_reason for result in results]
    return {
        "history": _joined([result.history for result in results]),
        "n_iter": sum(result.n_iter for result in results),
        "stop_reason": next((r for r in reasons if not r.converged), StopReason.CONVERGED),
    }


def _joined(histories: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the records of all binary problems in one, with the number of the problem."""
    histories = [history for history in histories if history]
    if len(histories) < 2:
        return histories[0] if histories else {}
    names = histories[0]
    joined = {name: np.concatenate([history[name] for history in histories]) for name in names}
    lengths = [len(next(iter(history.values()))) for history in histories]
    joined["class_index"] = np.repeat(np.arange(len(histories)), lengths)
    return joined


def leave_one_out(
    posterior: Posterior, Phi: np.ndarray, positive: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of the latent value at each training row without its label."""
    return left_out(*posterior.predict(Phi), positive)


def _fitted_values(solution: Solution, design: Design) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of the latent value at each training row."""
    if solution.fitted is not None:
        return solution.fitted
    return solution.posterior.predict(design.columns(solution.active))


def left_out(
    mean: np.ndarray, s: np.ndarray, positive: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the variance of latent values without the label of each row.

    Leaving one label out of the Gaussian approximation, with s the variance of y, omega = sigma(1 -
    sigma) and g = label - sigma: y ~ N(m - s g/(1 - s omega), s/(1 - s omega)).
    """
    sigma = expit(mean)
    # A row cannot determine its own latent value alone: 1 - s omega > 0 but for rounding.
    remainder = np.maximum(1.0 - s * sigma * (1.0 - sigma), 1e-3)
    return mean - s * (positive - sigma) / remainder, s / remainder


# The kernel, and calibration.


def fit_labels(method: LabelMethod, problem: LabelProblem) -> LabelFit:
    """Fit a problem: choose the kernel, fit, and calibrate the probabilities by folds."""
    refit = method.refit
    learnt = problem.kernel is None
    if learnt:
        problem = _with_kernel(method, problem)
    fit = refit(problem)
    budget = problem.reporter.budget
    if fit.stop_reason in (StopReason.INTERRUPTED, StopReason.CALLBACK) or budget.over:
        return replace(fit, **cut_short(fit, problem.reporter))
    problem.reporter.say("calibrating probabilities by folds")
    compared = problem.compared()
    optimism = 0.0
    if learnt and _ROWS_PER_LENGTH * problem.choice.n_lengths > len(compared.codes):
        # Length scales that have seen the labels of a fold would predict them too well.
        folds = fold_predictions(lambda p: refit(_with_kernel(method, p)), compared, more=False)
    else:
        # What the kernel has learnt in the fit, such as variances, is held in the folds.
        folds = fold_predictions(refit, replace(compared, kernel=fit.kernel, whole=fit))
        optimism = fold_optimism(fit.kernel, compared.n_observations / problem.n_observations)
    fit = with_reversion(_calibrated(fit, problem, folds, optimism), problem, folds)
    fit = replace(fit, notes=(*fit.notes, *few_rows_notes(problem)))
    return replace(fit, **cut_short(fit, problem.reporter))


def fold_optimism(kernel: KernelChoice, share: float = 1.0) -> float:
    """Return by how many nats folds that hold a kernel predict their labels too well.

    As in Akaike's criterion it is one nat for each length scale and each variance that was learnt
    from all labels, times the `share` of the labels that the folds have.
    """
    return share * (kernel.n_matter + len(kernel.variances))


def with_reversion(
    fit: LabelFit, problem: LabelProblem, folds: LabelPredictions | None = None
) -> LabelFit:
    """Return the fit whose scores revert to the class frequencies outside the training rows.

    Between the rows, scores are averaged over a variance that the folds judge, if there are any.
    """
    kernel, data = problem.kernel_function, problem.rows
    if kernel is None or not kernel.stationary or issparse(data.X):
        return fit
    used, counts, compared = data.used, data.counts, problem.compared()
    X, weight = compared.X, compared.weight
    blocks = ((part, X[part]) for part in row_slices(len(X), fit.block_rows))
    z = fit.scores(blocks, len(X), np.float64).reshape(len(X), -1)
    amplitude = np.average((z - np.average(z, 0, weight)) ** 2, 0, weight)
    total = np.bincount(data.y[used], weights=counts[used], minlength=problem.n_classes)
    frequency = (total / np.sum(total))[problem.positive]
    beyond = Reversion(kernel, data.box(), fit.link.inverse(frequency), amplitude)
    if folds is not None:
        folds = folds.take(folds.valid) if np.any(folds.valid) else None
    # Healing adds its own variance between the rows.
    if fit.added is not None or folds is None or folds.z.size != len(folds.z) * z.shape[1]:
        return replace(fit, beyond=beyond)
    share = np.sum(total) / np.sum(weight)  # each of the compared rows stands for several
    curvature = np.average(expit(z) * expit(-z), 0, weight)
    unlabelled, variance = Unlabelled.from_rows(kernel, X, share * weight, amplitude, curvature)
    assert folds.rows is not None
    coupling = 1.0 if fit.coupling is None else fit.coupling
    calibrated = folds._replace(z=fit.calibration(folds.z))
    factor = variance_factor(calibrated, variance[folds.rows], fit.link, coupling)
    unlabelled = replace(unlabelled, amplitude=factor * amplitude)
    return replace(fit, beyond=replace(beyond, unlabelled=unlabelled))


def _with_kernel(method: LabelMethod, problem: LabelProblem) -> LabelProblem:
    """Return the problem with a kernel that is chosen by its rows."""
    return with_chosen_kernel(
        replace(problem, kernel=None),
        lambda trial: kernel_score(method.refit, trial, method.selects),
        labels=True,
        process=method.process,
        names=method.feature_names,
    )


def proposed_kernels(method: LabelMethod, problem: LabelProblem) -> list[KernelChoice]:
    """Return every kernel that the search proposes for a problem, the plainest first."""
    proposed: list[KernelChoice] = []

    def keep(trial: LabelProblem) -> float:
        proposed.append(trial.choice)
        return 0.0

    chosen = with_chosen_kernel(
        problem, keep, labels=True, process=method.process, names=method.feature_names
    )
    return proposed or [chosen.choice]


def few_rows_notes(problem: LabelProblem) -> tuple[Note, ...]:
    """Return a warning where there are so few rows that probabilities are a guess."""
    count, n = np.bincount(problem.codes, minlength=problem.n_classes), len(problem.codes)
    smallest = int(np.min(count))
    if smallest < _FEW_IN_CLASS:
        message = (
            f"A class has only {smallest} of {n} distinct rows, too few to calibrate its "
            "probability. Collect more rows of this class, or merge it with another one."
        )
    elif n < _FEW_LABELS:
        message = (
            f"There are only {n} distinct rows, too few to calibrate probabilities: those of the "
            "predicted classes may be .1 too high. Collect more rows."
        )
    else:
        return ()
    return (Note(message),)


def kernel_score(refit: Refit, problem: LabelProblem, selects: bool = True) -> float:
    """Return the penalised mean leave-one-out log-likelihood of the labels; NaN on failure.

    The penalty is the optimism of what was learnt from the same labels: as in Akaike's criterion
    one nat for each length scale along which the kernel varies, and `_FUNCTION` nats for the
    precision of each function where functions are selected (`selects`).
    """
    lengths = problem.choice.n_matter / problem.n_observations
    problem = problem.compared()
    if problem.n_classes < 2:
        return np.nan
    fit = attempt(refit, problem)
    if fit is None or fit.weight_precision is None:
        return np.nan
    functions = np.count_nonzero(np.isfinite(fit.weight_precision)) if selects else 0
    return fit.loo_log_likelihood - lengths - _FUNCTION * functions / problem.n_observations


def fold_predictions(
    refit: Refit, problem: LabelProblem, more: bool = True
) -> LabelPredictions | None:
    """Return the cross-validated scores of the observations; None where no fold says anything.

    There are five folds, or twice as many of few replicated inputs if `more` may be fitted. One of
    light rows alone is not fitted, nor are those for which there is no time.

    Leave-one-out predictions of one posterior compare kernels well, but the row that is left out
    had a part in the choice of the functions: on digits they claim a log-loss of .017 where it is
    .12.
    """
    pairwise = is_option(problem.spec.family, "precomputed")
    k = problem.n_classes
    repeats = find_repeats(problem.rows, problem.X, problem.weight)
    folds = label_folds(
        problem.X,
        problem.codes,
        problem.weight,
        np.random.default_rng(0),
        repeats.replicates,
        repeats.n_folds if more else N_FOLDS,
    )
    if k < 2 or not np.any(folds.held_out):
        return None
    X, codes = problem.X[folds.rows], problem.codes[folds.rows]
    parts = []
    for f, held_out in enumerate(folds.held_out, 1):
        problem.reporter.say(f"fitting without fold {f} of {len(folds.held_out)}")
        test = np.flatnonzero(held_out > 0.0)
        if np.sum(held_out) <= _LIGHT_FOLD * np.sum(folds.weight):
            continue
        weight = folds.weight - held_out
        train = np.flatnonzero(weight > 0.0)
        inner = problem.subset(problem.rows.used[folds.rows[train]], "fold")
        inner = replace(inner, data=replace(inner.rows, weight=None))
        if np.any(weight[train] != 1.0):
            inner = replace(inner, data=replace(inner.rows, weight=weight[train]))
        z = np.full((len(test), k) if k > 2 else len(test), np.nan)
        fit = attempt(refit, inner)
        if problem.reporter.budget.over:  # it may have been cut short
            break
        if fit is not None and len(fit.posteriors) == len(problem.positive):
            new = X[np.ix_(test, folds.rows[train])] if pairwise else X[test]
            blocks = ((part, new[part]) for part in row_slices(len(test), fit.block_rows))
            z[:] = fit.scores(blocks, len(test), np.float64)
        parts.append((z, codes[test], held_out[test], folds.rows[test]))
    if not parts:
        return None
    return LabelPredictions(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def _calibrated(
    fit: LabelFit, problem: LabelProblem, folds: LabelPredictions | None, optimism: float
) -> LabelFit:
    """Return the fit with the calibration of its cross-validated scores.

    Of more rows than the folds have, the line is nearer to the identity: on California the slope
    is .82 with 800 rows to fit and .87 with 1,920, so its log falls about as the root of the rows.
    """
    if folds is None or not np.any(folds.valid):
        return fit
    coupling = 1.0 if fit.coupling is None else fit.coupling
    share = min(1.0, COMPARED_ROWS / len(problem.rows.used)) ** 0.5
    calibration = best_calibration(folds.take(folds.valid), fit.link, coupling, share, optimism)
    if folds.z.ndim > 1 and folds.z.shape[1] != len(fit.posteriors):
        calibration = Calibration(calibration.slope)  # a class has no row in the folds
    return replace(fit, calibration=calibration)
