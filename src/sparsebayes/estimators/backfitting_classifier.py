"""Backfitting for classification."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from .._array import RandomState
from ..data import Data
from ..kernels import GammaOption, KernelName
from ..labels import LabelFit, LabelProblem, solution_fit
from ..solvers.backfitting.logistic import LogisticBackfitting
from ._backfitting import (
    CONSTRAINTS,
    BackfittingEstimator,
    column_design,
    exact_limit,
    prior_inclusion,
)
from ._classifier import SparseClassifier
from ._estimator import Capabilities


class BackfittingClassifier(BackfittingEstimator, SparseClassifier):
    """Bayesian backfitting for classification: sparse logistic models of very many columns.

    A logistic model: the log odds are a weighted sum of the columns of X, or of kernel functions
    centred on training rows. The prior of each weight has its own precision, and the posterior is
    approximated by the variational bound of Jaakkola & Jordan. The fit only multiplies with the
    columns, and a sparse X stays sparse. With more than two classes one model is fitted per class,
    for this class against all others, and their probabilities are combined.

    Parameters
    ----------
    prior
        ... That does not converge if the classes are separable.
    random_state : int, RandomState or None, default=0
        Seed of the subset of rows that ``gamma="evidence"`` and ``"ard"`` learn from.

    Attributes
    ----------
    classes_, active_, relevance_vectors_, coef_, coef_std_, intercept_, feature_relevance_
    weight_precision_, bound_
    log_evidence_ : float
        Final lower bound of the log evidence without the prior of the set of columns, summed over
        the classes if there are more than two.
    variance_, calibration_, calibration_intercept_, coupling_, history_, n_iter_, converged_
    stop_reason_, basis_, posterior_

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import random_array
    >>> from sparsebayes import BackfittingClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = random_array((500, 2000), density=0.1, rng=rng, format="csr")
    >>> y = X[:, [10, 20]] @ [8.0, -8.0] + 0.5 * rng.standard_normal(500) > 0
    >>> model = BackfittingClassifier().fit(X, y)
    >>> model.active_
    array([10, 20])
    >>> model.predict_proba(X[:1]).sum().round(6)
    np.float64(1.0)
    """

    capabilities = Capabilities(selects=True)
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseClassifier._parameter_constraints,
        **CONSTRAINTS,
    }

    def __init__(
        self,
        kernel: KernelName | None = None,
        *,
        gamma: GammaOption = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        prior: str = "ard",
        inclusion_prior: Any = "auto",
        variance: str = "exact",
        inner: str = "cg",
        fit_intercept: bool = True,
        class_weight: Any = None,
        max_iter: int = 1000,
        tol: float = 1e-3,
        cache_size: float = 200,
        random_state: RandomState = 0,
        max_time: float | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.prior = prior
        self.inclusion_prior = inclusion_prior
        self.variance = variance
        self.inner = inner
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.cache_size = cache_size
        self.random_state = random_state
        self.max_time = max_time
        self.verbose = verbose

    def _problem(self, data: Data, n_classes: int) -> LabelProblem:
        columns = partial(column_design, one_scale=self.prior == "ridge")
        return replace(super()._problem(data, n_classes), columns=columns)

    def _solve(self, problem: LabelProblem) -> LabelFit:
        solver = LogisticBackfitting(
            self.prior,
            self.variance,
            prior_inclusion(self),
            self.inner,
            problem.tolerance(self.tol),
            exact_limit(self.cache_size),
            problem.fit_intercept,
            reporter=problem.reporter,
        )
        solutions, results = problem.run([solver] * len(problem.positive), int(self.max_iter))
        bounds = [result.history.get("bound", np.empty(0)) for result in results]
        independent = [s.posterior.form.independent for s in solutions]
        attributes = {
            "bound_": bounds if len(bounds) > 1 else bounds[0],
            "variance_": "factorised" if any(independent) else "exact",
        }
        return solution_fit(problem, solutions, results, attributes=attributes)
