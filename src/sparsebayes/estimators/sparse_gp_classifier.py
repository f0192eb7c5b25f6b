"""Gaussian process classification with a learnt kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from .._array import RandomState
from ..class_probabilities import Logistic
from ..data import Data
from ..kernels import GammaOption, KernelName, is_option
from ..labels import LabelFit, LabelMethod, LabelProblem, solution_fit
from ..solvers.rvm.laplace_exact import AllRows, ExactLaplaceProcess
from ..solvers.rvm.process import LaplaceProcess, process_functions
from ._classifier import SparseClassifier
from ._sklearn import Whole, words
from ._summary import Term
from .sparse_gp import MOST_EXACT_ROWS

_FEW_FUNCTIONS = 100  # where the time is over
_STEPS = 1  # the variance of the process is learnt in one step


class SparseGPClassifier(SparseClassifier):
    """Gaussian process classification with a learnt kernel.

    A logistic model: the log odds are a Gaussian process, whose posterior is computed by Laplace
    approximation. The process is represented by kernel functions at up to 500 training rows,
    selected where the predicted class is least certain, or by those at all rows (`max_terms`).
    Kernel and length scales are learnt, and the probabilities are calibrated by cross-validation.
    With more than two classes one process is fitted per class, for this class against all others.
    All processes use the same functions.

    Parameters
    ----------
    kernel
        ... It has to be positive definite.
    max_terms : "auto", int or None, default="auto"
        Largest number of functions; ``"auto"`` is one for five rows, at least 300 and at most 500.
        None is the process of all rows, up to 10,000, in cubic time.
    fit_intercept : bool, default=True
        Add a constant with a flat prior.
    random_state : int, RandomState or None, default=0
        Seed of the sample of 3,000 rows from which functions are selected if there are more rows,
        and of the rows from which length scales are learnt.

    Attributes
    ----------
    classes_, active_, relevance_vectors_, kernel_, gamma_, feature_relevance_, rough_share_
    kernel_search_, coef_, intercept_
    weight_precision_ : array of the shape of `coef_`
        Diagonal of the prior precision matrix of the weights.
    log_evidence_, calibration_, calibration_intercept_, coupling_
    history_ : dict of arrays
        One entry per binary problem.
    n_iter_ : int
        Number of binary problems that were fitted.
    converged_, stop_reason_, basis_, posterior_

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sparsebayes import SparseGPClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = SparseGPClassifier("rbf", gamma=1.0).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    >>> model.predict_proba(X[:1]).sum().round(6)
    np.float64(1.0)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseClassifier._parameter_constraints,
        "warp": [words("auto", "scores"), "boolean"],
        "max_terms": [None, words("auto"), Whole(1)],
    }

    def __init__(
        self,
        kernel: KernelName | None = "auto",
        *,
        gamma: GammaOption = "auto",
        warp: Any = False,
        max_terms: Any = "auto",
        fit_intercept: bool = True,
        class_weight: Any = None,
        cache_size: float = 200,
        random_state: RandomState = 0,
        max_time: float | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.warp = warp
        self.max_terms = max_terms
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.cache_size = cache_size
        self.random_state = random_state
        self.max_time = max_time
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.kernel is None or is_option(self.kernel, "precomputed"):
            raise ValueError(
                "SparseGPClassifier requires kernel functions centred on rows, which "
                f"kernel={self.kernel!r} does not have. Pass the name of a kernel or a "
                "callable."
            )

    def _summary_terms(self) -> list[Term]:
        return []  # the weights of its functions have no meaning of their own

    def _problem(self, data: Data, n_classes: int) -> LabelProblem:
        n_rows = len(data.used)
        if self.max_terms is None and n_rows > MOST_EXACT_ROWS:
            raise ValueError(
                f"max_terms=None supports at most {MOST_EXACT_ROWS} rows, because it computes a "
                f"matrix of {n_rows} x {n_rows}. Use max_terms='auto' or a number."
            )
        return super()._problem(data, n_classes)

    def _method(self) -> LabelMethod:
        return replace(super()._method(), process="exact" if self.max_terms is None else "")

    def _solve(self, problem: LabelProblem) -> LabelFit:
        counts = [problem.counts(c) for c in problem.positive]
        held = problem.choice.variances if len(problem.choice.variances) == len(counts) else ()
        solver: LaplaceProcess | ExactLaplaceProcess
        design, intercept, seed = problem.design, problem.fit_intercept, problem.seed
        if self.max_terms is None:
            problem.reporter.say(f"computing the kernel matrix of {design.n_candidates} rows")
            rows, reporter = AllRows.from_design(design, seed), problem.reporter
            solver = ExactLaplaceProcess(rows, intercept, reporter=reporter)
        else:
            most = None if is_option(self.max_terms, "auto") else int(self.max_terms)
            if problem.reporter.budget.over:
                most = min(_FEW_FUNCTIONS, most or _FEW_FUNCTIONS)
            functions = process_functions(design, counts, intercept, seed, held, most)
            solver = LaplaceProcess(functions, intercept, reporter=problem.reporter)
        solvers = [replace(solver, variance=a) for a in held] or [solver] * len(counts)
        solutions, results = problem.run(solvers, _STEPS)
        fit = solution_fit(problem, solutions, results, link=Logistic(False))
        variances = tuple(float(np.exp(result.state.log_variance)) for result in results)
        if not np.all(np.isfinite(variances)):  # interrupted
            return fit
        return replace(fit, kernel=replace(fit.kernel, variances=variances))
