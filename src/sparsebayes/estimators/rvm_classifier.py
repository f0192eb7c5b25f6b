"""The relevance vector machine for classification."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from ..kernels import is_option
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

    A logistic model whose latent function is a sum of kernel functions centred on training rows (or
    of columns of X), each weight with its own precision, by Laplace approximation. The precisions
    that maximise the evidence are infinite for most functions, so a few remain: the relevance
    vectors. Probabilities take the uncertainty of the weights and of the intercept into account.

    The model is sparse; `SparseGPClassifier` keeps the Gaussian process of the kernel, which mostly
    predicts better.

    Parameters
    ----------
    kernel : str, callable or None, default="auto"
        ``"rbf"``, ``"matern12"``, ``"matern32"``, ``"matern52"``, ``"rq"``; ``"laplacian"``
        (``exp(-sum_j gamma_j |x_j - z_j|)``, for steps along single inputs) and ``"sum"``, of
        matern52 and laplacian, each with its own widths; ``"auto"``: the smooth family of highest
        evidence, or the sum where the fitted model predicts the labels, each left out, better with
        it; any name or callable that ``sklearn.metrics.pairwise.pairwise_kernels`` takes,
        ``"precomputed"``, or None: the columns of X themselves are the candidates.
    gamma : {"auto", "ard", "evidence", "scale", "median"}, float or array, default="auto"
        Width: ``exp(-gamma |x - z|^2)``. ``"ard"`` learns one per input, ``"evidence"`` one for all
        (in units of the standard deviation of each input), ``"auto"`` whichever predicts
        better (``"scale"`` for kernels without a width that could be learnt). ``"scale"`` is
        1 / (n_features * X.var()), ``"median"`` 1 / (2 m^2) with m the median distance between
        rows. An array has one number per input; for ``kernel="sum"`` two rows of them, smooth and
        rough, and the parts have equal variance then.
    degree, coef0 : float
        For the polynomial and sigmoid kernels.
    algorithm : {"auto", "fast", "em"}, default="auto"
        ``"auto"`` starts with all functions, compressed to a few dimensions, from `n_starts`
        different priors, and ends with a look at all functions; ``"fast"`` adds one function at a
        time to the empty model (Tipping & Faul 2003), and mostly ends at a lower evidence; ``"em"``
        re-estimates all of them from the full model (Tipping 2001), which needs two arrays of
        n_candidates x n_candidates.
    n_starts : int, default=3
        Starts of ``"auto"``; 1 is the quick setting.
    heal : bool, default=False
        Let the latent variance grow away from the data, where the sparse model has no functions
        left (Rasmussen & Quinonero-Candela 2005): probabilities become undecided there instead of
        staying as confident as the intercept. Keeps the training rows; a prediction then costs
        their kernel values.
    fit_intercept : bool, default=True
        Add a constant with a flat prior; its uncertainty enters the probabilities.
    class_weight : dict, "balanced" or None, default=None
        Factor on the weight of each class; ``"balanced"`` gives all classes the same total. The
        probabilities are then those of a population with these weights.
    max_iter : int, default=1000
        Most steps per binary problem.
    tol : float, default=1e-3
        Nats of evidence that no single deletion or re-estimate may still gain when the fit is
        called converged; an addition must gain 20 times as much.
    warm_start : bool, default=False
        Begin with the functions of the last fit (the nearest candidates where its rows are not
        among the new ones) and their precisions, if the number of classes is the same: cheaper than
        from scratch when rows were added. Not with ``"em"``.
    cache_size : float, default=200
        Megabytes that kernel columns may take in memory, and that a sparse X may take when made
        dense; beyond it columns are computed again.
    random_state : int, RandomState or None, default=0
        Draws the compression of more than 1,500 candidates, and starts beyond three; another draw
        may end at another maximum of the evidence.
    verbose : int, default=0
        1 prints progress about once a second, 2 at every step.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes, sorted.
    active_ : array of int
        The rows (kernel models) or columns of X that carry a function for some class.
    relevance_vectors_ : array of shape (n_active, n_features)
        Those rows; kernel models only.
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
        ``left_out``, where it decided: the mean log-likelihood of the labels, each left
        out, less a nat for each length that matters and half of one for each function.
    coef_ : array of shape (1, n_active) or (n_classes, n_active)
        One weight per active function (``kernel=None``: per column of X), zeros where a class does
        not use it. Two classes have one row, more have one per class against the rest.
    intercept_ : array of shape (1,) or (n_classes,)
        The constant of each function.
    weight_precision_ : array of the shape of the active part of `coef_`
        Infinite where a class does not use a function.
    healing_ : tuple of Healing or None
        What is added to the variance, with ``heal=True``.
    log_evidence_ : float
        Laplace approximation to the log marginal likelihood; the sum over the classes where there
        are more than two.
    calibration_, calibration_intercept_ : float, array of shape (n_models,)
        Slope and intercepts of the line ``slope * log odds + intercept`` by which the log odds of
        the fitted model are calibrated, learnt by cross-validation of at most 1,000 rows.
    coupling_ : float
        More than two classes: how their probabilities are brought to sum to one, between 0
        (normalised) and 1 (as if independent). Learnt by leave-one-out.
    history_ : dict of arrays
        One entry per step: evidence, number of active functions, largest gain on offer, stage (and
        the class, where there are more than two).
    n_iter_ : int
        Steps that the fit took.
    converged_ : bool
        Whether the fit ended because there was nothing more to gain.
    stop_reason_ : str
        Why the fit ended: ``"converged"``, or what stopped it.
    basis_, posterior_
        The functions, and what is known about their weights (one posterior per class where there
        are more than two).

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sparsebayes.estimators.rvm_classifier import RVMClassifier
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
        kernel: Any = "auto",
        *,
        gamma: Any = "auto",
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
        random_state: Any = 0,
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
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.warm_start and self.algorithm == "em":
            raise ValueError("warm_start=True works with algorithm='auto' and 'fast', got 'em'.")
        if self.heal and (self.kernel is None or is_option(self.kernel, "precomputed")):
            raise ValueError(
                f"heal=True adds a kernel function at each new row, and kernel={self.kernel!r} "
                "gives none there: name a kernel, or use heal=False."
            )

    def _solve(self, problem: LabelProblem) -> LabelFit:
        solutions, results = problem.run(self._solvers(problem), int(self.max_iter))
        fit = solution_fit(problem, solutions, results)
        healing = None
        if self.heal and problem.is_reported:
            healing = tuple(latent_healing(problem, solution) for solution in solutions)
        return replace(fit, added=healing, attributes={"healing_": healing})

    def _solvers(self, problem: LabelProblem) -> list[Any]:
        if self.algorithm == "em":
            check_full_model(self, problem.design)
            return [BasicLaplaceRVM(problem.fit_intercept, self.tol)] * len(problem.positive)
        n_starts = int(self.n_starts) if self.algorithm == "auto" else 0
        if problem.purpose == "fold":  # which needs scores, not the last nat of evidence
            n_starts = min(1, n_starts)
        return relevance_solvers(problem, self.tol, n_starts)


def relevance_solvers(problem: LabelProblem, tol: float, n_starts: int) -> list[LaplaceRVM]:
    """Return the solver of each binary problem, which starts from the previous fit if it can."""
    n_problems = len(problem.positive)
    solver = LaplaceRVM(problem.fit_intercept, tol, n_starts)
    starts = previous_functions(problem)
    if len(starts) == n_problems:
        return [replace(solver, start=start) for start in starts]
    if n_starts:
        # One compression serves all classes.
        factor = compression(problem.design, problem.seed)
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
