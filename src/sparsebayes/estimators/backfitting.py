"""Backfitting for regression."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike

from .._array import RandomState
from ..data import Data
from ..designs import DenseDesign
from ..fitting import (
    Fit,
    Method,
    Note,
    convergence_notes,
    noise_floor_notes,
    run_fields,
    solution_fit,
)
from ..kernels import GammaOption, KernelName
from ..predict import Noise, PosteriorModel
from ..problem import Problem
from ..solvers.backfitting.fake_targets import FakeTargets
from ..solvers.backfitting.regression import Backfitting
from ..solvers.backfitting.smoothers import AdditiveModel
from ..solvers.run import Solver
from ._backfitting import (
    CONSTRAINTS,
    BackfittingEstimator,
    check_weights_are_taken,
    column_design,
    components,
    exact_limit,
    n_components,
    prior_inclusion,
    take_weights,
)
from ._base import SparseRegressor
from ._estimator import Capabilities, checked_rows, dense_rows, refuse
from ._sklearn import check_is_fitted

_ADAPTIVE = (
    "The smoothers adapt to their target, as trees do, and use more than half as many degrees of "
    "freedom as there are rows, so the intervals may be too narrow. Use smoothers that adapt less, "
    "such as smaller trees, or that are linear in the target, such as splines."
)


class BackfittingRegressor(BackfittingEstimator, SparseRegressor):
    """Bayesian backfitting: sparse linear models of very many columns, and additive models.

    A linear model in the columns of X (or in kernel functions centred on training rows), in which
    each weight has its own precision. The fit only multiplies with the columns: it forms no
    n_features x n_features matrix, and a sparse X stays sparse. With `smoothers` each component is
    any scikit-learn regressor of its own columns.

    Parameters
    ----------
    variant : {"factorised", "fake-targets"}, default="factorised"
        ``"fake-targets"`` is the EM algorithm of the paper (D'Souza et al. 2004), for comparisons:
        it is slow and its noise estimate is biased. `inclusion_prior` and `inner`
        do not apply to it.
    variance
        ... Precisions and noise are learnt from the exact posterior.
    smoothers : estimator, list or None, default=None
        Components of an additive model: a regressor, cloned for every column of X; or a list of
        regressors (one per column) or of pairs (regressor, columns). Their variances are always
        factorised; `prior`, `variant` and `inner` do not apply to them. Intervals are best with
        smoothers that are linear in the target, such as splines; those of trees may be too narrow.
    noise_variance : "learn" or float, default="learn"
        ``"learn"`` estimates the variance of the noise; a float is a known variance.
    max_iter : int, default=1000
        Maximum number of cycles.
    random_state : int, RandomState or None, default=0
        Seed of the random vectors that estimate the degrees of freedom of the smoothers.

    Attributes
    ----------
    active_
        ... With `smoothers`, indices of the components in the model.
    relevance_vectors_
    coef_ : array
        One weight per column of X (zeros included), per active kernel function, or per component in
        the model.
    coef_std_, intercept_, feature_relevance_, noise_model_, noise_tail_, calibration_
    noise_variance_, weight_precision_
    bound_ : array of shape (n_iter,)
        ... (Smoothers that are not projections are an exception.)
    log_evidence_ : float
        Log marginal likelihood at the fitted hyperparameters, without the prior of the set of
        columns. It is a lower bound if `variance_` is ``"factorised"``, and minus infinity for
        ``prior="none"``.
    variance_
    relevance_ : array of shape (n_components,)
        Share of each component that is kept, from 0 to 1; only with `smoothers`.
    loo_
        ... Only if `variance_` is ``"exact"``.
    history_ : dict of arrays
        One entry per cycle: bound, number of active columns, noise, sweeps over the data, phase.
    n_iter_, converged_, stop_reason_, basis_, posterior_

    Notes
    -----
    X may also be a Dask array or DataFrame, a memory map larger than `cache_size`, or blocks of
    rows, as for `ForwardRegressor`. It is then read twice, on the workers of a cluster if there is
    one, and replaced by a triangular factor of size n_features x n_features.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import random_array
    >>> from sparsebayes import BackfittingRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = random_array((300, 5000), density=0.05, rng=rng, format="csr")
    >>> y = X[:, [10, 20]] @ [3.0, -2.0] + 0.1 * rng.standard_normal(300)
    >>> BackfittingRegressor().fit(X, y).active_
    array([10, 20])

    An additive model, with smoothers:

    >>> from sklearn.linear_model import LinearRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import SplineTransformer
    >>> X = rng.uniform(-1, 1, (200, 3))
    >>> y = np.sin(3 * X[:, 0]) + X[:, 2] ** 2 + 0.1 * rng.standard_normal(200)
    >>> spline = make_pipeline(SplineTransformer(6), LinearRegression())
    >>> model = BackfittingRegressor(smoothers=spline).fit(X, y)
    >>> model.active_
    array([0, 2])
    >>> effects, std = model.partial_effects(X)
    >>> effects.shape, std.shape
    ((200, 3), (200, 3))
    """

    capabilities = Capabilities(blocks=True, selects=True, frees_intercept=True)
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseRegressor._parameter_constraints,
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
        variant: str = "factorised",
        variance: str = "exact",
        smoothers: Any = None,
        inner: str = "cg",
        fit_intercept: bool = True,
        noise_variance: ArrayLike = "learn",
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
        self.variant = variant
        self.variance = variance
        self.smoothers = smoothers
        self.inner = inner
        self.fit_intercept = fit_intercept
        self.noise_variance = noise_variance
        self.max_iter = max_iter
        self.tol = tol
        self.cache_size = cache_size
        self.random_state = random_state
        self.max_time = max_time
        self.verbose = verbose

    def partial_effects(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the contribution of each component to the prediction, and its standard deviation.

        The effects of a row, less their means over the training rows, add up to the prediction less
        the mean of the target.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.

        Returns
        -------
        effects, std : arrays of shape (n_samples, n_components)
            Components are the columns of X, or the smoothers; zeros where one is absent.
        """
        check_is_fitted(self)
        if self.kernel is not None:
            raise ValueError(
                "partial_effects requires kernel=None or smoothers, because "
                f"kernel={self.kernel!r} combines all columns. Use kernel=None, or "
                "sklearn.inspection.PartialDependenceDisplay."
            )
        X = dense_rows(self, checked_rows(self, X))
        posterior, k = self._fitted.predictor.posterior, len(self.active_)
        Phi = self.basis_(X)
        shape = (X.shape[0], self._n_components())
        effects, std = np.zeros(shape), np.zeros(shape)
        effects[:, self.active_] = Phi[:, :k] * posterior.mean[:k]
        noise = np.sqrt(posterior.noise_variance)
        if self.smoothers is not None:
            spread = (Phi[:, k:] * posterior.form.root[k:]).reshape(X.shape[0], k, -1)
            std[:, self.active_] = noise * np.linalg.norm(spread, axis=2)
        else:
            root = posterior.form.root
            size = np.abs(root) if root.ndim == 1 else np.linalg.norm(root, axis=1)
            std[:, self.active_] = noise * np.abs(Phi) * size
        return effects, std

    # From X, y to a problem and a solver.

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.smoothers is not None and self.kernel is not None:
            raise ValueError(
                "smoothers are fitted to columns of X and require kernel=None, got "
                f"kernel={self.kernel!r}."
            )
        if self.smoothers is not None:
            refuse(
                self,
                ("prior", "variant", "inner"),
                "does not apply to smoothers. Omit it, or use smoothers=None.",
            )
        if self.variant == "fake-targets":
            why = "is not available with variant='fake-targets'. Use variant='factorised'."
            refuse(self, ("inner",), why)
            if self.inclusion_prior is not None:
                refuse(self, ("inclusion_prior",), why)

    def _needs_rows(self) -> str:
        return "smoothers require them" if self.smoothers is not None else ""

    def _method(self, data: Data) -> Method:
        # One prior for all columns, or none, selects nothing.
        return replace(
            super()._method(data), selects=self.prior == "ard" or self.kernel is not None
        )

    def _problem(self, data: Data) -> Problem:
        columns: Any = partial(column_design, one_scale=self.prior == "ridge")
        columns = columns if self.smoothers is None else DenseDesign
        return replace(super()._problem(data), columns=columns)

    def _read(self, X: Any, y: Any, sample_weight: Any) -> Data:
        if sample_weight is not None and self.smoothers is not None:
            check_weights_are_taken(self.smoothers)
        return super()._read(X, y, sample_weight)

    def _merges_duplicates(self) -> bool:
        # Smoothers that take no weights see every row as it is.
        weighted = self.smoothers is None or take_weights(self.smoothers)
        return weighted and super()._merges_duplicates()

    def _solve(self, problem: Problem) -> Fit:
        if self.smoothers is not None:
            return self._solve_smoothers(problem)
        solver = self._solver(problem)
        result = problem.run(solver, int(self.max_iter))
        solution = solver.solution(result.state, problem.design, problem.t)
        return self._with_bound(solution_fit(problem, result, solution), problem)

    def _solve_smoothers(self, problem: Problem) -> Fit:
        problem = problem.with_unit_scale()  # a smoother may depend on the units of its target
        rows, root = cast(np.ndarray, problem.design.inputs), problem.design.root_weight
        parts = components(self.smoothers, self.n_features_in_, problem.seed)
        noise, seed = problem.solver_noise, problem.seed
        solver = AdditiveModel(parts, rows, root, noise, prior_inclusion(self), self.tol, seed=seed)
        result = problem.run(solver, int(self.max_iter))
        solution = solver.solution(result.state, problem.design, problem.t)
        posterior = replace(solution.posterior, offset=problem.offset)
        adaptive = (Note(_ADAPTIVE),) if solution.overfits else ()
        fit = Fit(
            PosteriorModel(solution.basis, posterior),
            solution.active,
            solution.lam / posterior.noise_variance,
            problem.choice,
            Noise(posterior.noise_variance),
            **run_fields(problem, result),
            attributes={
                "intercept_": float(problem.offset),
                "coef_": posterior.mean[: len(solution.active)],
                "relevance_": solution.relevance,
            },
            notes=convergence_notes(problem, result, posterior) + adaptive,
        )
        return self._with_bound(fit, problem)

    def _solver(self, problem: Problem) -> Solver[Any]:
        noise, limit = problem.solver_noise, exact_limit(self.cache_size)
        if self.variant == "fake-targets":
            given = (self.prior, noise, self.variance, self.tol, limit)
            return FakeTargets(*given, problem.reporter)
        rank = None  # dimensions that hold nearly all of the kernel functions
        if self.kernel is not None and self.inner == "cg":
            rank = max(200, int(8.0 * np.sqrt(problem.design.n_rows)))
        return Backfitting(
            self.prior,
            noise,
            self.variance,
            prior_inclusion(self),
            self.inner,
            self.tol,
            limit,
            rank=rank,
            reporter=problem.reporter,
        )

    def _n_components(self) -> int:
        return n_components(self.smoothers, self.n_features_in_)

    def _with_bound(self, fit: Fit, problem: Problem) -> Fit:
        """Return the fit with the attributes of backfitting."""
        posterior, notes = fit.posterior, fit.notes
        if problem.noise_variance is None:
            notes = (*notes, *noise_floor_notes(problem, posterior.noise_variance))
        attributes = {
            **fit.attributes,
            "bound_": fit.history.get("bound", np.empty(0)),
            "variance_": "factorised" if posterior.form.independent else "exact",
        }
        return replace(fit, attributes=attributes, notes=notes)
