"""The relevance vector machine for classification."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from .._array import RandomState
from ..kernels import GammaOption, KernelName, is_option
from ..labels import LabelFit, LabelProblem, solution_fit
from ..posterior import Healing
from ..solvers.run import Solution
from ..solvers.rvm.laplace import LaplaceRVM
from ..solvers.rvm.laplace_em import BasicLaplaceRVM
from ..solvers.rvm.laplace_start import compression
from ._classifier import SparseClassifier
from ._estimator import Capabilities, check_full_model, nearest_candidates
from ._sklearn import Whole, words


class RVMClassifier(SparseClassifier):
    """Relevance vector machine for classification.

    A logistic model: the log odds are a weighted sum of kernel functions centred on the training
    rows, or of the columns of X (``kernel=None``); these are the candidates. The prior of each
    weight has its own precision, and the posterior is computed by Laplace approximation. The
    precisions that maximise the evidence are infinite for most functions, so that few remain: the
    relevance vectors. Probabilities account for the uncertainty of the weights and of the
    intercept.

    The model is sparse. `SparseGPClassifier` is a Gaussian process: a larger model, whose mean
    log-loss was lower on each of five tables (decision 0031).

    Parameters
    ----------
    kernel : str, callable or None
        ... ``"precomputed"`` and None, for columns of X, are available as in `RVMRegressor`.
    algorithm : {"auto", "fast", "em"}, default="auto"
        ``"auto"`` runs several searches, each of which begins with all functions in the model and
        uses a low-dimensional approximation of them for speed, and then tests all candidates.
        ``"fast"`` starts from the empty model and adds one function at a time (Tipping & Faul
        2003). ``"em"`` starts with all functions, and each step updates all precisions (Tipping
        2001). It needs two arrays of n x n, for n candidates.
    n_starts : int, default=3
        Number of starts of ``"auto"``. One start is the fastest.
    heal : bool, default=False
        Let the latent variance grow away from the training rows (Rasmussen & Quinonero-Candela
        2005), so that the probabilities move towards one half in gaps between them. Outside the
        range of the rows they return to the class frequencies in any case. The model then stores
        the training rows, and predictions are slower.
    tol : float, default=1e-3
        Tolerance in nats of log evidence. The fit has converged if no deletion of a single function
        and no update of its precision raises the log evidence by `tol` or more, and no addition of
        a function raises it by 20 * `tol` or more. ``"em"`` does not test additions.
    warm_start
        ... Requires the same number of classes, and is not available with ``algorithm="em"``.
    random_state : int, RandomState or None, default=0
        Seed of ``"auto"``: of its low-dimensional approximation, which is random with more than
        1,500 candidates, and of starts beyond three. Different seeds may reach different local
        maxima.

    Attributes
    ----------
    classes_, active_, relevance_vectors_, kernel_, gamma_, feature_relevance_, rough_share_
    kernel_search_, coef_, coef_std_, intercept_, weight_precision_
    healing_ : tuple of Healing or None
    log_evidence_, calibration_, calibration_intercept_
    coupling_
        ... It minimises the leave-one-out log-loss.
    history_ : dict of arrays
        One entry per step: log evidence, number of active functions, largest gain of a further
        change, stage, and the class if there are more than two.
    n_iter_, converged_, stop_reason_, basis_, posterior_

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sparsebayes import RVMClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = RVMClassifier("rbf", gamma=1.0).fit(X, y)
    >>> len(model.active_) < 12, model.score(X, y) > 0.95
    (True, True)
    >>> model.predict_proba(X[:1]).sum().round(6)
    np.float64(1.0)
    """

    capabilities = Capabilities(selects=True)
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseClassifier._parameter_constraints,
        "algorithm": [words("auto", "fast", "em")],
        "n_starts": [Whole(1)],
    }

    def __init__(
        self,
        kernel: KernelName | None = "auto",
        *,
        gamma: GammaOption = "auto",
        degree: float = 3,
        coef0: float = 0.0,
        algorithm: str = "auto",
        n_starts: int = 3,
        heal: bool = False,
        fit_intercept: bool = True,
        class_weight: Any = None,
        max_iter: int = 1000,
        tol: float = 1e-3,
        warm_start: bool = False,
        cache_size: float = 200,
        random_state: RandomState = 0,
        max_time: float | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.algorithm = algorithm
        self.n_starts = n_starts
        self.heal = heal
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.cache_size = cache_size
        self.random_state = random_state
        self.max_time = max_time
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.warm_start and self.algorithm == "em":
            raise ValueError(
                "warm_start=True requires algorithm='auto' or 'fast', got algorithm='em'."
            )
        if self.heal and (self.kernel is None or is_option(self.kernel, "precomputed")):
            raise ValueError(
                "heal=True adds a kernel function at each new row, which "
                f"kernel={self.kernel!r} does not have. Use a named kernel, or heal=False."
            )

    def _solve(self, problem: LabelProblem) -> LabelFit:
        solutions, results = problem.run(self._solvers(problem), int(self.max_iter))
        fit = solution_fit(problem, solutions, results)
        healing = None
        if self.heal and problem.purpose != "trial":  # folds calibrate the scores that it changes
            healing = tuple(latent_healing(problem, solution) for solution in solutions)
        return replace(fit, added=healing, attributes={"healing_": healing})

    def _solvers(self, problem: LabelProblem) -> list[Any]:
        if self.algorithm == "em":
            check_full_model(self, problem.design)
            tol = problem.tolerance(self.tol)
            return [BasicLaplaceRVM(problem.fit_intercept, tol)] * len(problem.positive)
        n_starts = int(self.n_starts) if self.algorithm == "auto" else 0
        return relevance_solvers(problem, self.tol, n_starts)


def relevance_solvers(problem: LabelProblem, tol: float, n_starts: int) -> list[LaplaceRVM]:
    """Return the solver of each binary problem, which starts from the previous fit if it can."""
    n_problems = len(problem.positive)
    if problem.purpose == "fold" or problem.reporter.budget.over:
        n_starts = min(1, n_starts)
    tol = problem.tolerance(tol)
    solver = LaplaceRVM(problem.fit_intercept, tol, n_starts, reporter=problem.reporter)
    starts = previous_functions(problem)
    if len(starts) == n_problems:
        return [replace(solver, start=start) for start in starts]
    if n_starts:
        # One compression serves all classes.
        factor = compression(problem.design, problem.seed, problem.reporter)
        solver = replace(solver, seed=problem.seed, factor=factor)
    return [solver] * n_problems


def previous_functions(problem: LabelProblem) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the candidates of the functions of the previous fit, and their precisions.

    There is a pair for each of its binary problems, and none without a previous fit.
    """
    former = problem.previous
    if former is None:
        return []
    where = nearest_candidates(former.basis, former.active, problem.design, problem.labels)
    scale = problem.design.column_scale
    starts = []
    for precision in former.weight_precision:
        kept = np.isfinite(precision) & (where >= 0)
        candidates, first = np.unique(where[kept], return_index=True)
        starts.append((candidates, precision[kept][first] * scale[candidates] ** 2))
    return starts


def latent_healing(problem: LabelProblem, solution: Solution) -> Healing:
    """Return the variance that grows away from the rows, of the regression around the mode."""
    assert problem.kernel_function is not None
    posterior = solution.posterior
    Phi = problem.design.columns(solution.active)
    y, _ = posterior.predict(Phi)
    omega = problem.weight * expit(y) * expit(-y)
    V = omega[:, None] * ((Phi - posterior.centre) @ posterior.form.root)
    mean = np.average(y, weights=problem.weight)
    signal = float(np.average((y - mean) ** 2, weights=problem.weight))
    return Healing(problem.kernel_function, problem.X, omega, V, problem.fit_intercept, signal)
