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
    kernel : str, callable or None, default=None
        None uses the columns of X. Otherwise ``"rbf"``, ``"matern12"``, ``"matern32"``,
        ``"matern52"``, ``"rq"``, any name or callable that
        ``sklearn.metrics.pairwise.pairwise_kernels`` accepts, or ``"precomputed"``.
    gamma : {"scale", "median", "evidence", "ard"}, float or array, default="scale"
        Kernel coefficient, as in `RVMClassifier`.
    degree, coef0 : float, default=3 and 0
        Parameters of the polynomial and sigmoid kernels.
    prior : {"ard", "ridge", "none"}, default="ard"
        ``"ard"`` has one precision per weight and removes most columns, ``"ridge"`` has one for all
        weights, and ``"none"`` is logistic regression without a penalty, which does not converge if
        the classes are separable.
    inclusion_prior : {"auto", "learn"}, None or float, default="auto"
        As in `BackfittingRegressor`.
    variance : {"exact", "factorised"}, default="exact"
        Posterior of the remaining weights. ``"exact"`` applies if at most 1,000 remain (or as many
        as fit `cache_size`). ``"factorised"`` treats the weights as independent. `variance_` is the
        one that was used.
    inner : {"cg", "gauss-seidel"}, default="cg"
        Method that computes the posterior means at given precisions: conjugate gradients or
        Gauss-Seidel sweeps.
    fit_intercept : bool, default=True
        Add a constant with a flat prior; its uncertainty enters the probabilities.
    class_weight : dict, "balanced" or None, default=None
        Factor by which the weights of the rows of each class are multiplied; ``"balanced"`` gives
        all classes the same total weight.
    max_iter : int, default=1000
        Maximum number of steps per binary problem.
    tol : float, default=1e-3
        Tolerance in nats: the fit has converged when a step gains less.
    cache_size : float, default=200
        Memory in megabytes for kernel columns and for the exact posterior.
    random_state : int, RandomState or None, default=0
        Seed of the subset of rows that ``gamma="evidence"`` and ``"ard"`` learn from.
    max_time : float or None, default=None
        Time limit in seconds. The fit then ends with the model reached so far and a
        ConvergenceWarning.
    verbose : int, default=0
        1 prints progress about once a second, 2 at every step.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Class labels, sorted.
    active_ : array of int
        Indices of the columns or rows of X with a non-zero weight for at least one class.
    relevance_vectors_ : array of shape (n_active, n_features)
        Training rows on which the active kernel functions are centred; kernel models only.
    coef_ : array of shape (1, n) or (n_classes, n)
        One weight per column of X or per active function, zero if a class does not use it.
    coef_std_ : array of shape (1, n_features) or (n_classes, n_features)
        Standard deviation of each coefficient with ``kernel=None``, zero for columns that were not
        chosen.
    intercept_ : array of shape (1,) or (n_classes,)
        Constant term of each latent function.
    feature_relevance_ : array of shape (n_features,)
        Total Sobol index of each input: the share of the variance of the fitted function over the
        training rows that is due to the input and its interactions. The sum can exceed 1. Not
        available for precomputed kernels.
    weight_precision_ : array
        Prior precision of each weight, infinite if a class does not use a function.
    bound_ : array, or list of arrays (one per class)
        Lower bound of the log evidence (plus the log prior of the set of columns) after each step.
        It never decreases.
    log_evidence_ : float
        Final lower bound of the log evidence without the prior of the set of columns, summed over
        the classes if there are more than two.
    variance_ : {"exact", "factorised"}
        Form of the posterior variance that was used.
    calibration_ : float
        Slope of the line ``slope * log odds + intercept`` by which the log odds of the fitted model
        are calibrated, learnt by cross-validation of at most 1,000 rows. (For regressors
        `calibration_` is a factor of standard deviations.)
    calibration_intercept_ : array of shape (1,) or (n_classes,)
        Intercepts of that line.
    coupling_ : float
        With more than two classes, how the probabilities of each class against the others are
        combined: 0 divides them by their sum, 1 is the softmax of their log odds, and values
        between interpolate.
    history_ : dict of arrays
        One entry per step.
    n_iter_ : int
        Number of steps.
    converged_ : bool
        Whether the conditions of `tol` hold at the end.
    stop_reason_ : str
        Code of the reason why the fit ended, such as ``"converged"``, ``"max_iter"`` or
        ``"time_limit"``.
    basis_, posterior_
        Basis functions, and the posterior distribution of their weights.

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
        )
        solutions, results = problem.run([solver] * len(problem.positive), int(self.max_iter))
        bounds = [result.history.get("bound", np.empty(0)) for result in results]
        independent = [s.posterior.form.independent for s in solutions]
        attributes = {
            "bound_": bounds if len(bounds) > 1 else bounds[0],
            "variance_": "factorised" if any(independent) else "exact",
        }
        return solution_fit(problem, solutions, results, attributes=attributes)
