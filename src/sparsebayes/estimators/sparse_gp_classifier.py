"""Gaussian process classification with a learnt kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from .._array import RandomState
from ..class_probabilities import Logistic
from ..kernels import GammaOption, KernelName, is_option
from ..labels import LabelFit, LabelProblem, solution_fit
from ..solvers.rvm.process import LaplaceProcess, process_functions
from ._classifier import SparseClassifier
from ._sklearn import words
from ._summary import Term, coefficient_terms

_STEPS = 1  # the variance of the process is learnt in one step


class SparseGPClassifier(SparseClassifier):
    """Gaussian process classification with a learnt kernel.

    A logistic model: the log odds are a Gaussian process, whose posterior is computed by Laplace
    approximation. The process is represented by kernel functions at up to 500 training rows,
    selected where the predicted class is least certain. Kernel and length scales are learnt, and
    the probabilities are calibrated by cross-validation. With more than two classes one process is
    fitted per class, for this class against all others. All processes use the same functions.

    Parameters
    ----------
    kernel : str or callable, default="auto"
        ``"rbf"``, ``"matern12"``, ``"matern32"``, ``"matern52"``, ``"rq"``; ``"laplacian"``
        (``exp(-sum_j gamma_j |x_j - z_j|)``) and ``"sum"`` (matern52 plus laplacian, each with its
        own length scales); ``"auto"`` (the one of rbf, matern52 and matern32 with the highest
        evidence, or the sum if its leave-one-out predictions are better); or any positive definite
        kernel of ``sklearn.metrics.pairwise.pairwise_kernels``, by name or as a callable.
    gamma : {"auto", "ard", "evidence", "scale", "median"}, float or array, default="auto"
        Kernel coefficient: ``"rbf"``, ``"rq"`` and the Matern kernels are functions of ``gamma |x -
        z|^2``, as in ``exp(-gamma |x - z|^2)``. A large gamma is a narrow kernel. ``"ard"`` learns
        one gamma per input, ``"evidence"`` a single one for all inputs; both maximise the evidence.
        ``"auto"`` is the one of these two that predicts better.
        ``"scale"`` is 1 / (n_features * X.var()), ``"median"`` 1 / (2 m^2) with m the median
        distance between rows. An array has one value per input; for ``kernel="sum"`` it has two
        rows, one for the matern52 (smooth) and one for the laplacian (rough) part.
    warp : {"auto", True, False}, default=False
        Append normal scores of the inputs as further inputs of the kernel, as in
        `SparseGPRegressor`.
    fit_intercept : bool, default=True
        Add a constant with a flat prior.
    class_weight : dict, "balanced" or None, default=None
        Factor by which the weights of the rows of each class are multiplied; ``"balanced"`` gives
        all classes the same total weight. The probabilities are then those of a population with
        these weights.
    cache_size : float, default=200
        Memory in megabytes for kernel columns, and for a sparse X that has to be converted to a
        dense array.
    random_state : int, RandomState or None, default=0
        Seed of the sample of 3,000 rows from which functions are selected if there are more rows,
        and of the rows from which length scales are learnt.
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
        Indices of the training rows on which the kernel functions are centred.
    relevance_vectors_ : array of shape (n_active, n_features)
        Training rows on which the kernel functions are centred.
    kernel_, gamma_ : str or callable, float or array
        Kernel and gamma, as given or as learnt.
    feature_relevance_, rough_share_, kernel_search_
        As in `RVMClassifier`, if length scales were learnt.
    coef_ : array of shape (1, n_active) or (n_classes, n_active)
        One weight per function: one row for two classes, and one row per class (this class against
        the others) for more classes.
    intercept_ : array of shape (1,) or (n_classes,)
        Constant term of each latent function.
    weight_precision_ : array of the shape of `coef_`
        Diagonal of the prior precision matrix of the weights.
    log_evidence_ : float
        Laplace approximation of the log marginal likelihood, summed over the classes if there are
        more than two.
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
        One entry per binary problem.
    n_iter_ : int
        Number of binary problems that were fitted.
    converged_ : bool
        Whether the fit was completed.
    stop_reason_ : str
        Code of the reason why the fit ended, such as ``"converged"``, ``"time_limit"`` or
        ``"interrupted"``.
    basis_, posterior_
        Basis functions, and the posterior distribution of their weights (one per class if there are
        more than two).

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
    }

    def __init__(
        self,
        kernel: KernelName | None = "auto",
        *,
        gamma: GammaOption = "auto",
        warp: Any = False,
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
        # The variance of a process is that of its function, and its weights have none of their own.
        return coefficient_terms(self, with_std=False)

    def _solve(self, problem: LabelProblem) -> LabelFit:
        counts = [problem.counts(c) for c in problem.positive]
        held = problem.choice.variances if len(problem.choice.variances) == len(counts) else ()
        functions = process_functions(
            problem.design, counts, problem.fit_intercept, problem.seed, held
        )
        solver = LaplaceProcess(functions, problem.fit_intercept)
        solvers = [replace(solver, variance=a) for a in held] or [solver] * len(counts)
        solutions, results = problem.run(solvers, _STEPS)
        fit = solution_fit(problem, solutions, results, link=Logistic(False))
        variances = tuple(float(np.exp(result.state.log_variance)) for result in results)
        if not np.all(np.isfinite(variances)):  # interrupted
            return fit
        return replace(fit, kernel=replace(fit.kernel, variances=variances))
