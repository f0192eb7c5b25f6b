"""Orthogonal least squares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..fitting import Fit, Note, solution_fit
from ..kernels import is_option, learns_widths
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
    """One row per term, in order of choice; printing it shows the table.

    Parameters
    ----------
    stage : array of int
        1, 2, ...
    term : array of str
        Names of the terms, in order of choice.
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
    >>> from sparsebayes.estimators.lrols import OrthogonalLeastSquaresRegressor
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
        """Column name -> values."""
        return dict(vars(self))

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame (needs pandas)."""
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
    kernel : str, callable or None, default="rbf"
        ``"rbf"``, ``"matern12"``, ``"matern32"``, ``"matern52"``, ``"rq"``; ``"laplacian"``
        (``exp(-sum_j gamma_j |x_j - z_j|)``, for steps along single inputs) and ``"sum"``, of
        matern52 and laplacian, each with its own widths; ``"auto"``: the smooth family of highest
        evidence, or the sum if the fitted model has better leave-one-out predictions with it. Also
        any name or callable that ``sklearn.metrics.pairwise.pairwise_kernels`` takes,
        ``"precomputed"``, or None: the columns of X themselves are the candidates.
    gamma : {"auto", "ard", "evidence", "scale", "median"}, float or array, default="scale"
        Width: ``exp(-gamma |x - z|^2)``. ``"ard"`` learns one per input, ``"evidence"`` one for all
        (in units of the standard deviation of each input), ``"auto"`` whichever predicts better
        (``"scale"`` for kernels without a width that could be learnt). ``"scale"`` is 1 /
        (n_features * X.var()), ``"median"`` 1 / (2 m^2) with m the median distance between rows. An
        array has one number per input; for ``kernel="sum"`` two rows of them, smooth and rough, and
        the parts have equal variance then.
    degree, coef0 : float
        For the polynomial and sigmoid kernels.
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
        Keep the terms up to the minimum of this value over the path; five more are tried before
        that counts as the minimum. ``"auto"`` is, with ``criterion="err"``, ``"bic"`` for kernels
        and ``"ebic"`` for columns, which counts the sets of columns that were searched. For the
        other criteria it is None: they end where the leave-one-out error rises or no candidate is
        worth its penalty. None with ``"err"`` goes on until the candidates are used up.
    tolerance : float, default=0.0
        End when less than this share of the target's sum of squares is left (the xi of the paper).
    max_terms : "auto", int or None, default="auto"
        Largest number of terms. ``"auto"`` is 300 for kernels and no limit for columns; None is no
        limit.
    guard : float, default=1e-12
        A candidate is degenerate when its projection on the chosen terms leaves less than this
        share of its squared length. Below about 1e-14 weights of 1e9 and more appear.
    threshold : "auto" or float, default="auto"
        With local regularisation, how many standard deviations of the noise a term must stand out
        by to stay. 1 maximises the evidence, which the best of many useless candidates passes
        easily: ``"auto"`` is 1 for kernels, whose functions are chosen to predict, and for columns
        the price of a term under the BIC that counts the search, sqrt(log n + 2 log m) for the
        best of m candidates on n rows (3.7 for 28 and 4 for 84 candidates on 1000 rows).
    fit_intercept : bool, default=True
        Add a constant with a flat prior, integrated out.
    noise_variance : {"learn", "input"}, float or array of shape (n_samples,), default="learn"
        One level, learnt; ``"input"``: one that depends on the inputs, learnt where it pays (see
        `noise_model_`); or known, for all rows or for each (new rows then have their mean).
    likelihood : {"gaussian", "student"}, default="gaussian"
        ``"student"``: Student's t, its degrees of freedom learnt, so that outliers do not move the
        mean. The rows are weighted in a few rounds of fits.
    max_iter : int, default=10000
        Most steps: one per term chosen and one per pass over the chosen terms.
    tol : float, default=1e-3
        Nats of evidence that another pass over the chosen terms must gain.
    cache_size : float, default=200
        Megabytes that kernel columns may take in memory; beyond it they are computed again.
    device : str or None, default=None
        ``"cuda"``: kernel functions and their sums are computed on this device, in float64. Torch
        tensors stay where they are, and predictions for them are tensors. Needs torch.
    verbose : int, default=0
        1 prints progress about once a second, 2 at every step.

    Attributes
    ----------
    active_ : array of int
        The rows (kernel models) or columns of X that carry a term, in order of choice.
    err_table_ : ErrorReductionTable
        Stage, term, error reduction, its running sum, orthogonal weight, weight, regulariser.
    effective_terms_ : int
        Terms with a penalty below 1e6 w'w.
    relevance_vectors_ : array of shape (n_active, n_features)
        The rows that carry a term; kernel models only.
    kernel_, gamma_ : str or callable, float or array
        The kernel and its width, as given or as learnt.
    feature_relevance_ : array of shape (n_features,)
        Share of the variance of the fitted function that each input explains, alone and with others
        (total Sobol index under the training rows). Not for precomputed kernels.
    rough_share_ : float
        With ``kernel_ == "sum"``: the share of the rough part in the variance of the kernel, whose
        `gamma_` has two rows, of the smooth and of the rough part.
    kernel_search_ : dict of arrays
        With learnt widths, what was tried: ``kernel``, ``one_width`` for all inputs,
        ``process_evidence``, the log evidence of a Gaussian process of the standardised target, and
        ``left_out``, where it decided: the mean log density of that target, each row left out, less
        a price of the lengths.
    coef_ : array
        One weight per term; with ``kernel=None`` one per column of X, zeros included.
    intercept_ : float
        The constant of the model.
    noise_model_, noise_tail_ : NoiseModel and Tail, or None
        How the noise depends on the inputs, with ``noise_variance="input"``; and its tails, where
        the leave-one-out residuals have them.
    calibration_ : float
        Factor (at least 1) by which the standard deviations of predictions are inflated. It is the
        root mean square of the standardised leave-one-out residuals, corrected for the optimism of
        learning length scales and of selecting functions on the same rows. The fitted
        hyperparameters and `log_evidence_` do not include it.
    noise_variance_ : float
        Variance of the noise, as learnt or as given; where it differs, of each training row.
    weight_precision_ : array of shape (n_active,)
        Prior precision of each orthogonal weight; zero without regularisation.
    log_evidence_ : float
        Log marginal likelihood under the prior on the orthogonal weights. Without regularisation
        that prior is flat, with density one per unit of each weight, as it always is for the
        intercept (the restricted likelihood): compare it between models of the same columns only.
    loo_ : Bunch
        Leave-one-out ``residuals``, ``std``, ``log_density`` and ``r2``, in closed form.
    history_ : dict of arrays
        One entry per step: evidence, terms, noise, share of the target not explained, value of the
        stopping rule (for y as it was given), drift (the relative error that the recursions had
        made) and the row or column chosen (-1 in the passes over the chosen terms).
    n_iter_ : int
        Steps that the fit took.
    converged_ : bool
        Whether the fit ended because there was nothing more to gain.
    stop_reason_ : str
        Why no further term was chosen: ``"criterion"`` (the stopping rule has its minimum),
        ``"tolerance"``, ``"max_terms"``, ``"no_candidate"``, ``"exact_fit"`` or ``"no_signal"``;
        or what ended the fit before it converged.
    basis_, posterior_
        The functions, and what is known about their weights.

    See Also
    --------
    sparsebayes.narx.lagged : Polynomial candidates for dynamic systems.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.estimators.lrols import OrthogonalLeastSquaresRegressor
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
        kernel: Any = "rbf",
        *,
        gamma: Any = "scale",
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
        noise_variance: Any = "learn",
        likelihood: str = "gaussian",
        max_iter: int = 10000,
        tol: float = 1e-3,
        cache_size: float = 200,
        device: str | None = None,
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
        self.verbose = verbose

    def _needs_rows(self) -> str:
        needs = "press" in (self.criterion, self.stopping) or is_option(self.kernel, "precomputed")
        return "PRESS and precomputed kernels need them" if needs else ""

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
        table = ErrorReductionTable(
            stage=np.arange(1, len(err) + 1),
            term=np.array(_names(self.kernel, feature_names(self), fit.active), dtype=str),
            err=err,
            cumulative=np.cumsum(err),
            orthogonal_weight=terms.g * scale * target,
            weight=fit.posterior.mean * scale,
            regularizer=regularizer,
        )
        notes = fit.notes
        if solution.selection_end is StopReason.MAX_TERMS and self.max_terms == "auto":
            learnt = learns_widths(self.gamma)
            message = (
                f"{_MOST_TERMS} terms were chosen and the next would have been worth its place: "
                "the target has hardly any noise that these functions could see. Look for an input "
                "that determines it if that should not be"
                + (", " if learnt else ", learn the width (gamma='evidence' or 'ard'), ")
                + "or give max_terms (None is no limit)."
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
        known = history["candidate"] >= 0
        chosen = history["candidate"][known]
        if self.regularization in ("none", 0):
            unit = np.log(problem.design.column_scale[chosen]) + np.log(scale)
            shift = np.concatenate([[0.0], np.cumsum(unit)])
            history["log_evidence"] = history["log_evidence"] + shift[history["n_active"]]
        history["candidate"] = history["candidate"].copy()
        history["candidate"][known] = problem.labels[chosen]
        return history


def _names(kernel: Any, columns: np.ndarray | None, active: np.ndarray) -> list[str]:
    """Return the names of the chosen terms; `columns` are those of X, where they have names."""
    if kernel is None:
        return [f"x{j}" if columns is None else str(columns[j]) for j in active]
    name = "kernel" if is_option(kernel, "precomputed") else kernel
    return [f"{getattr(name, '__name__', name)}(row {row})" for row in active]
