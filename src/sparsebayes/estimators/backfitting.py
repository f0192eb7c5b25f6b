"""Backfitting for regression."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np
from sklearn.utils import check_random_state

from ..designs import DenseDesign
from ..kernels import FAMILIES, StationaryKernel, resolve_gamma
from ..posterior import Diagonal, Posterior
from ..solvers.backfitting.active_set import SetPrior
from ..solvers.backfitting.fake_targets import FakeTargets
from ..solvers.backfitting.regression import Backfitting
from ..solvers.backfitting.smoothers import AdditiveModel
from ..solvers.backfitting.width import bound_slope, climb
from ..solvers.run import Solver, run
from ._backfitting import (
    CONSTRAINTS,
    BackfittingColumns,
    check_weights_are_taken,
    components,
    n_components,
)
from ._base import Problem, SparseRegressor, keep, keep_run, make_problem, solve, warn_not_converged
from ._common import is_text, warn_without_noise
from ._sklearn import check_is_fitted


class BackfittingRegressor(BackfittingColumns, SparseRegressor):
    """Bayesian backfitting: sparse linear models of very many columns, and additive models.

    A linear model in the columns of X (or in kernel functions centred on training rows), each
    weight with its own precision, fitted by products with the columns alone: no square matrix as
    wide as X is formed, and a sparse X stays sparse. With `smoothers` each component is any
    scikit-learn regressor of its own columns.

    Parameters
    ----------
    kernel : str, callable or None, default=None
        None: the columns of X themselves. ``"rbf"``, ``"matern12"``, ``"matern32"``,
        ``"matern52"``, ``"rq"``, any name or callable that
        ``sklearn.metrics.pairwise.pairwise_kernels`` takes, or ``"precomputed"``: the backfitting
        relevance vector machine.
    gamma : {"scale", "median", "evidence", "ard", "bound"}, float or array, default="scale"
        Width of the kernel, as in `RVMRegressor`; ``"bound"`` follows the gradient of the bound,
        with a prior on the number of functions and one on log gamma.
    degree, coef0 : float
        For the polynomial and sigmoid kernels.
    prior : {"ard", "ridge", "none"}, default="ard"
        One precision per weight, which removes most columns; one for all; or none, which is least
        squares.
    inclusion_prior : {"auto", "learn"}, None or float, default="auto"
        With ``prior="ard"``, the prior probability that a column has a weight at all, or that a
        smoother is there. With ``"learn"`` it is unknown, and one more column beside k of m has to
        gain log((m - k)/(k + 1)) nats: what keeps the best of very many noise columns out. None is
        the flat prior of the relevance vector machine. ``"auto"`` is ``"learn"`` for columns and
        smoothers, and None for kernels.
    variant : {"factorised", "fake-targets"}, default="factorised"
        ``"fake-targets"`` is the EM of the paper (D'Souza et al. 2004), slow and with a biased
        noise, to be compared with; `inclusion_prior`, `inner` and `precision_update` are not for
        it and are refused.
    variance : {"exact", "factorised"}, default="exact"
        The posterior of the weights that are left: exact as long as they are at most 1,000 (or what
        fits `cache_size`), and then precisions and noise are learnt from it; or independent weights
        throughout, whose variances are too small on correlated columns. `variance_` says which one
        was used.
    smoothers : estimator, list or None, default=None
        Components of an additive model: a regressor, cloned for every column of X; or a list of
        regressors (one per column) or of pairs (regressor, columns). Their variances are always
        factorised; `prior`, `variant`, `inner` and `precision_update` are not for them.
    inner : {"cg", "gauss-seidel"}, default="cg"
        How the means are found at given precisions.
    precision_update : {"bound", "mackay"}, default="bound"
        Of the factorised posterior: the best precision given the mean, or MacKay's, which moves
        further in each cycle. On its own that step is not monotone; here the variances follow at
        once, and the bound does not fall.
    fit_intercept : bool, default=True
        Add a constant with a flat prior, integrated out.
    noise_variance : "learn" or float, default="learn"
        Variance of the noise: learnt, or known.
    max_iter : int, default=1000
        Most cycles.
    tol : float, default=1e-3
        Nats that a cycle may still gain when the fit is called converged.
    cache_size : float, default=200
        Megabytes that kernel columns, and the exact posterior, may take in memory.
    random_state : int, RandomState or None, default=0
        Draws the noise that smoothers are measured with.
    verbose : int, default=0
        1 prints progress about once a second, 2 at every step.

    Attributes
    ----------
    active_ : array of int
        The columns or rows of X that carry a weight; with `smoothers` the components present.
    relevance_vectors_ : array of shape (n_active, n_features)
        Those rows; kernel models only.
    coef_ : array
        One weight per column of X (zeros included), per active function, or per component present.
    intercept_ : float
        The constant of the model.
    noise_tail_ : Tail or None
        The tails of the noise, where the leave-one-out residuals have them.
    calibration_ : float
        What the standard deviation of the fit is multiplied by, as in `RVMRegressor`; with a kernel
        also for ``gamma="scale"``, the default. 1 where another width is given, and for columns.
    noise_variance_ : float
        Variance of the noise, as learnt or as given.
    weight_precision_ : array of shape (n_active,)
        Prior precision of each weight.
    bound_ : array of shape (n_iter,)
        The lower bound of the log evidence (plus the log prior of the set of columns) after each
        cycle. It never falls, but for smoothers that are no projections.
    log_evidence_ : float
        At the fitted hyperparameters, without the prior of the set of columns that `bound_` holds;
        a lower bound where `variance_` is ``"factorised"``, minus infinity for ``prior="none"``.
    variance_ : {"exact", "factorised"}
        Which form of the posterior variance was used.
    relevance_ : array of shape (n_components,)
        With `smoothers`: what is kept of each component, from 0 (absent) to 1.
    loo_ : Bunch
        Leave-one-out ``residuals``, ``std``, ``log_density`` and ``r2``, in closed form
        where the variances are exact.
    history_ : dict of arrays
        One entry per cycle: bound, number of active columns, noise, sweeps over the data, phase.
    n_iter_ : int
        Steps that the fit took.
    converged_ : bool
        Whether the fit ended because there was nothing more to gain.
    stop_reason_ : str
        Why the fit ended: ``"converged"``, or what stopped it.
    basis_, posterior_
        The functions, and what is known about their weights.

    Notes
    -----
    X may also be a Dask array or DataFrame, a memory map larger than `cache_size`, or blocks of
    rows, as for `ForwardRegressor`. Its columns are then read twice, on the workers of a cluster
    where there is one, and a triangle as large as they are many stands in for the rows.

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

    _chooses_one_by_one = True
    _takes_blocks = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseRegressor._parameter_constraints,
        **CONSTRAINTS,
    }

    def __init__(
        self,
        kernel: Any = None,
        *,
        gamma: Any = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        prior: str = "ard",
        inclusion_prior: Any = "auto",
        variant: str = "factorised",
        variance: str = "exact",
        smoothers: Any = None,
        inner: str = "cg",
        precision_update: str = "bound",
        fit_intercept: bool = True,
        noise_variance: Any = "learn",
        max_iter: int = 1000,
        tol: float = 1e-3,
        cache_size: float = 200,
        random_state: Any = 0,
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
        self.precision_update = precision_update
        self.fit_intercept = fit_intercept
        self.noise_variance = noise_variance
        self.max_iter = max_iter
        self.tol = tol
        self.cache_size = cache_size
        self.random_state = random_state
        self.verbose = verbose

    def partial_effects(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """What each component adds to the prediction, and its standard deviation.

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
                "partial_effects belongs to models of columns or smoothers; kernel="
                f"{self.kernel!r} mixes all columns. Use kernel=None, or "
                "sklearn.inspection.PartialDependenceDisplay."
            )
        X = self._block(self._check_rows(X))
        posterior, k = self.posterior_, len(self.active_)
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
                f"smoothers see the columns of X: use kernel=None with them, not {self.kernel!r}."
            )
        if self.smoothers is not None:
            self._refuse(
                ("prior", "variant", "inner", "precision_update"),
                "is for weights of columns or kernels: smoothers have a way of their own. Leave "
                "it out, or use smoothers=None.",
            )
        if self.variant == "fake-targets":
            why = "is not for variant='fake-targets': use variant='factorised'."
            self._refuse(("inner", "precision_update"), why)
            if self.inclusion_prior is not None:
                self._refuse(("inclusion_prior",), why)
        if is_text(self.gamma, "bound") and self.kernel is not None:
            if not is_text(self.kernel, *FAMILIES):
                raise ValueError(
                    f"gamma='bound' needs a kernel whose slope is known: {', '.join(FAMILIES)}; "
                    f"got kernel={self.kernel!r}."
                )
            if self.variant != "factorised" or self.prior != "ard":
                raise ValueError("gamma='bound' needs variant='factorised' and prior='ard'.")

    def _needs_rows(self) -> str:
        return "smoothers need them" if self.smoothers is not None else ""

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Any:
        if self.smoothers is not None:
            return self._fit_smoothers(X, y, sample_weight)
        gamma = None
        if self.kernel is not None and is_text(self.gamma, "bound"):
            gamma = self._width(X, y, sample_weight)
        problem = make_problem(self, X, y, sample_weight, columns=self._columns, gamma=gamma)
        solver = self._solver(problem)
        result = solve(self, solver, problem, int(self.max_iter))
        solution = solver.solution(result.state, problem.design, problem.t)
        keep(self, problem, result, solution)
        posterior = solution.posterior
        self._keep_bound(problem, posterior)
        return problem.rows

    def _fit_smoothers(self, X: Any, y: Any, sample_weight: Any) -> Any:
        if sample_weight is not None:
            check_weights_are_taken(self.smoothers)
        problem = make_problem(self, X, y, sample_weight, columns=DenseDesign)
        # A smoother may depend on the units of its target.
        offset = problem.offset * problem.target_scale
        t = problem.t * problem.target_scale
        problem = replace(problem, t=t, offset=offset, target_scale=1.0)
        rows, root = cast(np.ndarray, problem.design.inputs), problem.design.root_weight
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        parts = components(self.smoothers, self.n_features_in_, seed)
        noise = problem.in_units(self.noise_variance)
        solver = AdditiveModel(parts, rows, root, noise, self._inclusion(), self.tol, seed=seed)
        result = solve(self, solver, problem, int(self.max_iter))
        solution = solver.solution(result.state, problem.design, t)
        posterior = solution.posterior
        self.posterior_ = replace(posterior, offset=offset)
        self.active_ = solution.active
        self.noise_variance_ = posterior.noise_variance
        self.log_evidence_ = posterior.log_evidence
        self.intercept_ = float(offset)
        self.coef_ = posterior.mean[: len(self.active_)]
        self.weight_precision_ = solution.lam / posterior.noise_variance
        self.basis_ = solution.basis
        self.relevance_ = solution.relevance
        keep_run(self, problem, result)
        warn_not_converged(self, problem, result, posterior)
        self._keep_bound(problem, posterior)
        return problem.rows

    def _width(self, X: Any, y: Any, sample_weight: Any) -> float:
        """gamma by the gradient of the bound."""
        start = make_problem(self, X, y, sample_weight, gamma="scale")

        def evaluate(gamma: float) -> tuple[float, float]:
            problem = make_problem(self, X, y, sample_weight, gamma=gamma)
            design, t = problem.design, problem.t
            solver = Backfitting(
                noise_variance=problem.in_units(self.noise_variance),
                variance="factorised",
                tol=0.1,
                rank=self._rank(design),
            )
            state = run(solver, design, t, max_iter=100).state
            prior = SetPrior("learn", design.n_candidates)
            value = state.bound + prior.log(len(state.active))
            if len(state.active) == 0:
                return value, 0.0
            rows, root = cast(np.ndarray, design.inputs), design.root_weight
            assert isinstance(problem.kernel, StationaryKernel)
            slope = bound_slope(
                design,
                rows,
                root,
                problem.kernel,
                problem.X[problem.candidates[state.active]],
                state.active,
                state.mu,
                state.v,
                state.residual,
                state.sigma2,
            )
            return value, slope

        return climb(evaluate, float(resolve_gamma(self.gamma_, start.X)))[0]

    def _solver(self, problem: Problem) -> Solver:
        noise = problem.in_units(self.noise_variance)
        if self.variant == "fake-targets":
            return FakeTargets(self.prior, noise, self.variance, self.tol, self._exact_limit())
        return Backfitting(
            self.prior,
            noise,
            self.variance,
            self._inclusion(),
            self.inner,
            self.precision_update,
            self.tol,
            self._exact_limit(),
            rank=self._rank(problem.design),
        )

    def _n_components(self) -> int:
        return n_components(self.smoothers, self.n_features_in_)

    def _keep_bound(self, problem: Problem, posterior: Posterior) -> None:
        self.bound_ = self.history_.get("bound", np.empty(0))
        if self.noise_variance == "learn":
            noise = float(posterior.noise_variance)
            warn_without_noise(self, problem.t, problem.design.n_observations, noise)
        self.variance_ = "factorised" if isinstance(posterior.form, Diagonal) else "exact"
