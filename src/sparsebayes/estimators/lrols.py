"""Orthogonal least squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ..fitting import Fit, Note, solution_fit
from ..kernels import GammaOption, KernelName, is_option, learns_widths
from ..problem import Problem
from ..solvers.ols.criteria import CRITERIA, STOPPING
from ..solvers.ols.selection import OLSSolution, OrthogonalLeastSquares
from ..solvers.run import StopReason
from ._base import NOISE_CONSTRAINTS, StreamRegressor
from ._estimator import Capabilities
from ._sklearn import Number, Whole, feature_names, words

_MOST_TERMS = 300  # as many as ForwardRegressor takes


@dataclass(frozen=True)
class ErrorReductionTable:
    """Table of the selected terms, one row per term in order of selection.

    Parameters
    ----------
    stage : array of int
        1, 2, ...
    term : array of str
        Names of the terms, in order of selection.
    err : array
        Share of the (centred) target's sum of squares that the term explains.
    cumulative : array
        Running sum of `err`.
    orthogonal_weight : array
        Weight of the term less its projection on the terms before it.
    weight : array
        Weight of the term itself.
    regularizer : array
        Penalty on the square of the orthogonal weight.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import OrthogonalLeastSquaresRegressor
    >>> X = np.random.default_rng(0).standard_normal((40, 3))
    >>> model = OrthogonalLeastSquaresRegressor(kernel=None, max_terms=1).fit(X, 2 * X[:, 1])
    >>> model.err_table_.term, model.err_table_["err"].round(3)
    (array(['x1'], dtype='<U2'), array([1.]))
    """

    stage: np.ndarray
    term: np.ndarray
    err: np.ndarray
    cumulative: np.ndarray
    orthogonal_weight: np.ndarray
    weight: np.ndarray
    regularizer: np.ndarray

    def __len__(self) -> int:
        return len(self.stage)

    def __getitem__(self, column: str) -> np.ndarray:
        return self.to_dict()[column]

    def to_dict(self) -> dict[str, np.ndarray]:
        """Return a dict from column names to values."""
        return dict(vars(self))

    def to_frame(self) -> Any:
        """Return the table as a pandas DataFrame; requires pandas."""
        import pandas as pd

        return pd.DataFrame(self.to_dict()).set_index("stage")

    def __repr__(self) -> str:
        columns = [
            [name.replace("_", " "), *(_cell(value) for value in values)]
            for name, values in self.to_dict().items()
        ]
        widths = [max(map(len, column)) for column in columns]
        rows = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in zip(*columns, strict=True)
        ]
        return "\n".join(rows)


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class OrthogonalLeastSquaresRegressor(StreamRegressor):
    """Forward selection by orthogonal least squares, with or without regularisation.

    Terms (kernel functions centred on training rows, or the columns of X) are selected one at a
    time, by how much more of the target they explain. The method is common in nonlinear system
    identification and for RBF networks. With ``regularization="local"`` each orthogonal weight has
    a penalty of its own, learnt by evidence, and terms that do not raise the evidence are dropped
    (LROLS).

    Parameters
    ----------
    regularization : {"local", "uniform", "none"} or float, default="local"
        Penalty on the orthogonal weights: one per term (LROLS) or one for all (UROLS), learnt by
        evidence; none (OLS); or one for all of this value, in the units of the columns.
    criterion : {"err", "press", "d-optimality", "a-optimality"}, default="err"
        Criterion of the selection: the (regularised) error reduction; the leave-one-out error,
        which takes two to three times as long (``stopping="press"`` takes no longer); or the error
        reduction plus ``beta * log(w'w) / y'y`` or minus ``beta / w'w / y'y``, which prefers well
        conditioned models and ends when no candidate outweighs its penalty. w'w is the squared
        length of the candidate minus its projection on the chosen terms, and y'y that of the
        (centred) target, so both optimality criteria depend on the units of the columns and of y.
    beta : float, default=0.1
        Weight of the D- or A-optimality.
    stopping : {"auto", "aic", "aicc", "bic", "ebic", "fpe", "lilc", "press"} or None, \
            default="auto"
        Information criterion whose minimum over the path decides how many terms are kept; the
        search continues for five terms beyond a minimum. With ``criterion="err"``, ``"auto"`` is
        ``"bic"`` for kernels and ``"ebic"`` for columns, which accounts for the number of
        candidates. For the other criteria it is None: they stop when the leave-one-out error rises
        or no candidate outweighs its penalty. None with ``"err"`` selects until no candidate is
        left.
    tolerance : float, default=0.0
        Stop when the unexplained share of the target's sum of squares falls below this value (the
        xi of the paper).
    max_terms : "auto", int or None, default="auto"
        Largest number of terms. ``"auto"`` is 300 for kernels and no limit for columns; None is no
        limit.
    guard : float, default=1e-12
        A candidate is skipped if less than this share of its squared length is orthogonal to the
        selected terms. Values below about 1e-14 can lead to extremely large weights.
    threshold : "auto" or float, default="auto"
        With local regularisation, the smallest ratio of an orthogonal weight to its standard error
        at which a term is kept. The value 1 maximises the evidence, but the best of many irrelevant
        candidates easily exceeds it. ``"auto"`` is 1 for kernels. For columns it is sqrt(log n + 2
        log m) with n rows and m candidates, the threshold of the extended BIC.
    max_iter : int, default=10000
        Maximum number of steps: one per selected term and one per pass over the selected terms.
    tol : float, default=1e-3
        Tolerance in nats of log evidence: the passes over the selected terms end when one gains
        less.

    Attributes
    ----------
    active_
        ... They are in order of selection.
    err_table_ : ErrorReductionTable
        Table of the selected terms with their error reduction ratios and weights.
    effective_terms_ : int
        Number of terms whose penalty is below 1e6 times the squared length of the orthogonal
        column.
    relevance_vectors_, kernel_, gamma_, feature_relevance_, rough_share_, kernel_search_, coef_
    coef_std_, intercept_, noise_model_, noise_tail_, calibration_, noise_variance_
    weight_precision_ : array of shape (n_active,)
        Prior precision of each orthogonal weight; zero without regularisation.
    log_evidence_ : float
        Log marginal likelihood under the prior of the orthogonal weights. Without regularisation
        the prior is flat (restricted likelihood), and values can only be compared between models of
        the same columns.
    loo_
    history_ : dict of arrays
        One entry per step: log evidence, number of terms, noise variance, unexplained share of the
        target, value of the stopping criterion, drift (relative rounding error of the recursions)
        and the selected row or column (-1 in passes over the selected terms).
    n_iter_, converged_
    stop_reason_ : str
        Why no further term was selected: ``"criterion"`` (the stopping criterion is at its
        minimum), ``"tolerance"``, ``"max_terms"``, ``"no_candidate"``, ``"exact_fit"`` or
        ``"no_signal"``, or a code such as ``"max_iter"`` or ``"time_limit"`` if the fit has not
        converged.
    basis_, posterior_

    See Also
    --------
    sparsebayes.narx.lagged : Polynomial candidates for dynamic systems.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import OrthogonalLeastSquaresRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 20))
    >>> y = 3 * X[:, 4] - 2 * X[:, 11] + 0.1 * rng.standard_normal(100)
    >>> model = OrthogonalLeastSquaresRegressor(kernel=None).fit(X, y)
    >>> model.active_, model.coef_[model.active_].round(1)
    (array([ 4, 11]), array([ 3., -2.]))
    """

    capabilities = Capabilities(blocks=True, device=True, selects=True, frees_intercept=True)
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **StreamRegressor._parameter_constraints,
        **NOISE_CONSTRAINTS,
        "device": [None, str],
        "regularization": [words("local", "uniform", "none"), Number(0, None, "left")],
        "criterion": [words(*CRITERIA)],
        "beta": [Number(0, None, "left")],
        "stopping": [None, words("auto", *STOPPING)],
        "tolerance": [Number(0, 1, "left")],
        "max_terms": [None, words("auto"), Whole(1)],
        "guard": [Number(0, 1, "left")],
        "threshold": [words("auto"), Number(1, None, "left")],
    }

    def __init__(
        self,
        kernel: KernelName | None = "rbf",
        *,
        gamma: GammaOption = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        regularization: Any = "local",
        criterion: str = "err",
        beta: float = 0.1,
        stopping: str | None = "auto",
        tolerance: float = 0.0,
        max_terms: Any = "auto",
        guard: float = 1e-12,
        threshold: Any = "auto",
        fit_intercept: bool = True,
        noise_variance: ArrayLike = "learn",
        likelihood: str = "gaussian",
        max_iter: int = 10000,
        tol: float = 1e-3,
        cache_size: float = 200,
        device: str | None = None,
        max_time: float | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.regularization = regularization
        self.criterion = criterion
        self.beta = beta
        self.stopping = stopping
        self.tolerance = tolerance
        self.max_terms = max_terms
        self.guard = guard
        self.threshold = threshold
        self.fit_intercept = fit_intercept
        self.noise_variance = noise_variance
        self.likelihood = likelihood
        self.max_iter = max_iter
        self.tol = tol
        self.cache_size = cache_size
        self.device = device
        self.max_time = max_time
        self.verbose = verbose

    def _needs_rows(self) -> str:
        needs = "press" in (self.criterion, self.stopping) or is_option(self.kernel, "precomputed")
        return "PRESS and precomputed kernels require them" if needs else ""

    def _solve(self, problem: Problem) -> Fit:
        solver = self._solver(problem)
        result = problem.run(solver, int(self.max_iter))
        solution = solver.solution(result.state, problem.design, problem.t)
        fit = solution_fit(problem, result, solution)
        return self._with_terms(fit, problem, solver, solution)

    def _solver(self, problem: Problem) -> OrthogonalLeastSquares:
        # Columns and target were scaled against overflow; penalties and beta are in user's units.
        with np.errstate(over="ignore", divide="ignore"):
            to_square = 1.0 / np.square(np.float64(problem.units.target))
            units = np.clip(np.square(problem.design.column_scale), 1e-300, 1e300)
        stopping = self.stopping
        if stopping == "auto":
            columns = problem.spec.family is None
            rule = "ebic" if columns else "bic"
            stopping = rule if self.criterion == "err" else None
        noise = problem.noise_variance
        return OrthogonalLeastSquares(
            regularization=self.regularization,
            criterion=self.criterion,
            beta=float(self.beta) * to_square if self.beta else 0.0,
            stopping=stopping,
            tolerance=self.tolerance,
            max_terms=self._most_terms(),
            guard=self.guard,
            threshold=self._threshold(problem),
            noise_variance=None if noise is None else noise * to_square,
            tol=self.tol,
            units=units,
        )

    def _most_terms(self) -> int | None:
        if self.max_terms is None or not isinstance(self.max_terms, str):
            return self.max_terms
        return None if self.kernel is None else _MOST_TERMS

    def _threshold(self, problem: Problem) -> float:
        if self.threshold != "auto":
            return float(self.threshold)
        if self.kernel is not None:
            return 1.0
        # Extended BIC (J. Chen & Z. Chen 2008): log n for a parameter, 2 log m for finding it.
        n, m = problem.design.n_observations, problem.design.n_candidates
        return float(np.sqrt(max(np.log(max(n, 1.0)) + 2.0 * np.log(m), 1.0)))

    def _with_terms(
        self, fit: Fit, problem: Problem, solver: OrthogonalLeastSquares, solution: OLSSolution
    ) -> Fit:
        """Return the fit with its error reduction table, in the units of the user."""
        terms, scale = solution.terms, fit.model.basis.scale
        target = problem.units.target
        if not np.any(terms.lam):
            # The flat prior has density one per unit of the weights, so their units enter.
            shift = len(scale) * np.log(target) + float(np.sum(np.log(scale)))
            fit = fit.with_evidence(fit.posterior.log_evidence + shift)
        err = solution.error_reduction
        with np.errstate(over="ignore", under="ignore"):
            regularizer = terms.lam / scale / scale
            orthogonal_weight = terms.g * scale * target
            weight = fit.posterior.mean * scale
        table = ErrorReductionTable(
            stage=np.arange(1, len(err) + 1),
            term=np.array(_names(self.kernel, feature_names(self), fit.active), dtype=str),
            err=err,
            cumulative=np.cumsum(err),
            orthogonal_weight=orthogonal_weight,
            weight=weight,
            regularizer=regularizer,
        )
        notes = fit.notes
        if solution.selection_end is StopReason.MAX_TERMS and self.max_terms == "auto":
            learnt = learns_widths(self.gamma)
            message = (
                f"The selection stopped at {_MOST_TERMS} terms, although the criterion still "
                "improves, so the target has almost no noise. Look for an input that "
                "determines it (leakage)"
                + (", " if learnt else ", learn the length scales (gamma='evidence' or 'ard'), ")
                + "or set max_terms (None: no limit)."
            )
            notes = (*notes, Note(message))
        return replace(
            fit,
            history=self._history(fit.history, problem, solver),
            attributes={
                "err_table_": table,
                "effective_terms_": int(np.count_nonzero(terms.effective)),
            },
            notes=notes,
        )

    def _history(
        self, history: dict[str, np.ndarray], problem: Problem, solver: OrthogonalLeastSquares
    ) -> dict[str, np.ndarray]:
        """Return the history with stopping values, evidence and candidates in the user's units."""
        if not history:
            return history
        history, scale = dict(history), problem.units.target
        if solver.rule == "press":
            # One factor at a time: the square of an extreme scale overflows float64.
            with np.errstate(over="ignore", under="ignore"):
                history["stopping"] = history["stopping"] * scale * scale
        elif solver.rule is not None:
            # n log(sse / n), with n the rows: an intercept costs a parameter here.
            n = problem.design.n_observations + float(self.fit_intercept)
            history["stopping"] = history["stopping"] + 2.0 * n * np.log(scale)
        selected = history["candidate"] >= 0
        chosen = history["candidate"][selected]
        if self.regularization in ("none", 0):
            unit = np.log(problem.design.column_scale[chosen]) + np.log(scale)
            shift = np.concatenate([[0.0], np.cumsum(unit)])
            history["log_evidence"] = history["log_evidence"] + shift[history["n_active"]]
        history["candidate"] = history["candidate"].copy()
        history["candidate"][selected] = problem.labels[chosen]
        return history


def _names(kernel: Any, columns: Sequence[str] | None, active: np.ndarray) -> list[str]:
    """Return the names of the chosen terms; `columns` are those of X, where they have names."""
    if kernel is None:
        return [f"x{j}" if columns is None else str(columns[j]) for j in active]
    name = "kernel" if is_option(kernel, "precomputed") else kernel
    return [f"{getattr(name, '__name__', name)}(row {row})" for row in active]
