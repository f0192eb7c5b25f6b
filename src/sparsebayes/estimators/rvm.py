"""Relevance vector machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike

from .._array import RandomState
from ..fitting import Fit, solution_fit
from ..kernels import GammaOption, KernelName, is_option
from ..posterior import Healing
from ..predict import PosteriorModel
from ..problem import Problem
from ..rows import Rows
from ..solvers.backfitting.regression import Backfitting
from ..solvers.run import Solver
from ..solvers.rvm.auto import AutoRVM
from ..solvers.rvm.basic import BasicRVM
from ..solvers.rvm.fast import FastRVM
from ._base import NOISE_CONSTRAINTS, StreamRegressor
from ._estimator import Capabilities, check_full_model, nearest_candidates
from ._sklearn import Whole, words

_SOLVERS: dict[str, Any] = {"auto": AutoRVM, "fast": FastRVM, "em": BasicRVM}
_MAX_ITER = {"auto": 200, "fast": 2000, "em": 1000}
_MAX_CYCLES = 1000  # of the search among columns


class RVMRegressor(StreamRegressor):
    """Relevance vector machine for regression.

    A linear model of kernel functions centred on the training rows, or of the columns of X
    (``kernel=None``): these are the candidates. Each weight has its own prior precision. The
    precisions that maximise the evidence are infinite for most candidates, so that few remain: the
    relevance vectors.

    Parameters
    ----------
    algorithm : {"auto", "fast", "em"}, default="auto"
        The evidence has many local maxima, and the algorithm decides which one is reached.
        ``"auto"`` runs `n_starts` searches, which differ in the prior precision that all weights
        have at the start. Each search begins with all functions in the model, and uses a
        low-dimensional approximation of them for speed. ``"auto"`` then merges the results, and
        tests whether any other function raises the evidence. ``"fast"`` starts from the
        empty model; each step adds one function, deletes one, or updates the prior precision of one
        (Tipping & Faul 2003). ``"em"`` starts with all functions, and each step updates all
        precisions (Tipping 2001). It needs two arrays of n x n, for n rows or columns to select
        from.
    n_starts : int, default=3
        Number of starts of ``"auto"``. More starts take longer and may reach a higher evidence.
    heal : bool, default=False
        When predicting, add a kernel function centred on the new row (Rasmussen & Quinonero-Candela
        2005), so that the standard deviation grows to that of the target away from the training
        rows. The mean does not change. The model then stores the training rows, and standard
        deviations are slower. Not available with ``kernel=None``, ``"precomputed"``, `return_cov`
        and `sample_y`.
    max_iter : int, optional
        Maximum number of steps. The default is 200 for ``"auto"`` (about 10 are usual), 2,000 for
        ``"fast"`` and 1,000 for ``"em"``.
    tol : float, default=1e-3
        Tolerance in nats of log evidence. The fit has converged if no deletion of a single function
        and no update of its precision raises the log evidence by `tol` or more, and no addition of
        a function raises it by 20 * `tol` or more. For ``"fast"`` the limit of an addition is
        `tol`, and ``"em"`` does not test additions. With ``kernel=None`` and a single target,
        ``"auto"`` has converged when a cycle over the columns gains less than `tol`.
    warm_start
        ... Requires ``algorithm="auto"``.
    random_state : int, RandomState or None, default=0
        Seed of ``"auto"``, whose low-dimensional approximation is random with more than 1,500
        candidates. Different seeds may reach different local maxima.

    Attributes
    ----------
    active_, relevance_vectors_, kernel_, gamma_, feature_relevance_, rough_share_, kernel_search_
    coef_, coef_std_, intercept_, healing_, noise_model_, noise_tail_, calibration_, noise_variance_
    weight_precision_, log_evidence_
    loo_
        ... Not available with ``heal=True``.
    history_ : dict of arrays
        One entry per step: log evidence, number of active functions, noise variance and largest
        gain of a further change. With ``"auto"`` a step is a stage: ``start`` and ``polish`` of
        each start, ``merge``, ``free`` (the intercept of a stationary kernel, fixed at the mean of
        the target until then, is integrated out), and ``exact`` or, above 9 million kernel values,
        ``screen`` (all candidates are checked, exactly or by a low-rank approximation). With
        ``kernel=None`` a step is a cycle over the columns, and its evidence includes the log prior
        of the set of columns.
    n_iter_, converged_, stop_reason_, basis_, posterior_

    Notes
    -----
    `neighbours` is a parameter of `SparseGPRegressor` only: it corrects the approximation of a
    Gaussian process by a few functions, and the prior of a relevance vector machine is not that of
    a Gaussian process.

    With several targets (y of shape (n_samples, n_outputs), ``algorithm="auto"``) all targets share
    the functions and the ratios of noise variance to prior variance. Each target has its own
    weights and noise variance.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVMRegressor
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.05 * np.random.default_rng(0).standard_normal(100)
    >>> model = RVMRegressor("rbf", gamma=0.1).fit(X, y)
    >>> mean, std = model.predict(X, return_std=True)
    >>> len(model.active_) < 15, bool(abs(std.mean() - 0.05) < 0.02)
    (True, True)
    >>> [str(stage) for stage in model.history_["stage"][:2]]
    ['start', 'polish']
    """

    capabilities = Capabilities(blocks=True, device=True, selects=True)
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **StreamRegressor._parameter_constraints,
        **NOISE_CONSTRAINTS,
        "device": [None, str],
        "algorithm": [words(*_SOLVERS)],
        "n_starts": [Whole(1)],
        "max_iter": [None, Whole(1)],
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
        noise_variance: ArrayLike = "learn",
        likelihood: str = "gaussian",
        max_iter: int | None = None,
        tol: float = 1e-3,
        warm_start: bool = False,
        random_state: RandomState = 0,
        cache_size: float = 200,
        device: str | None = None,
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
        self.noise_variance = noise_variance
        self.likelihood = likelihood
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.random_state = random_state
        self.cache_size = cache_size
        self.device = device
        self.max_time = max_time
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.heal and (self.kernel is None or is_option(self.kernel, "precomputed")):
            raise ValueError(
                "heal=True adds a kernel function at each new row, which "
                f"kernel={self.kernel!r} does not have. Use a named kernel, or heal=False."
            )
        if self.warm_start and self.algorithm != "auto":
            raise ValueError(
                f"warm_start=True requires algorithm='auto', got algorithm={self.algorithm!r}."
            )

    def _needs_rows(self) -> str:
        needs = self.heal or is_option(self.kernel, "precomputed")
        needs = needs or (self.warm_start and self.kernel is not None)
        return "heal, warm_start and precomputed kernels require them" if needs else ""

    def _rows_of(self, X: Any) -> Rows | None:
        rows = super()._rows_of(X)
        if rows is not None and self.heal:
            raise ValueError(
                "heal=True compares each new row with all training rows, which have to be one "
                f"NumPy array. Got X as {type(X).__name__}. Pass one array, or use heal=False."
            )
        return rows

    def _solve(self, problem: Problem) -> Fit:
        solver = self._solver(problem)
        limit = _MAX_CYCLES if isinstance(solver, Backfitting) else _MAX_ITER[self.algorithm]
        limit = limit if self.max_iter is None else int(self.max_iter)
        result = problem.run(solver, limit)
        solution = solver.solution(result.state, problem.design, problem.t)
        fit = solution_fit(problem, result, solution)
        if "bound" in fit.history:  # the search among columns
            history = dict(fit.history)
            fit = replace(fit, history={"log_evidence": history.pop("bound"), **history})
        healing = None
        if self.heal and problem.is_reported:
            healing = self._healing(problem, solution.active, fit)
            fit = replace(fit, model=PosteriorModel(fit.model.basis, fit.posterior, healing))
        return replace(fit, attributes={"healing_": healing})

    def _solver(self, problem: Problem) -> Solver[Any]:
        if self.algorithm == "em":
            check_full_model(self, problem.design)
        noise = problem.solver_noise
        if self.algorithm != "auto":
            return _SOLVERS[self.algorithm](noise, self.tol)
        if problem.spec.family is None and problem.t.ndim == 1 and problem.previous is None:
            # Columns: a prior on their number, without which the best of many useless ones enter.
            return Backfitting(noise_variance=noise, inclusion_prior="learn", tol=self.tol)
        # A fold needs the variance of its prediction errors, not the last nat of evidence.
        n_starts = 1 if problem.purpose == "fold" else int(self.n_starts)
        start, reporter = _start(problem), problem.reporter
        return AutoRVM(noise, self.tol, n_starts, problem.seed, start, reporter=reporter)

    def _healing(self, problem: Problem, active: np.ndarray, fit: Fit) -> Healing:
        """Return the variance that grows away from the rows."""
        design, t, scale = problem.design, problem.t, problem.units.target
        signal = np.einsum("i...,i...->...", t, t) / design.n_observations
        signal = np.maximum(signal - fit.posterior.noise_variance / scale / scale, 0.0)
        weight = np.square(design.root_weight)
        Phi = design.columns(active)
        fitted = np.sqrt(weight)[:, None] * (Phi @ fit.posterior.form.root)
        assert design.kernel is not None
        X = cast(np.ndarray, design.inputs)
        variance = signal * scale * scale
        return Healing(design.kernel, X, weight, fitted, problem.fit_intercept, variance)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self.algorithm == "auto"
        return tags


def _start(problem: Problem) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the candidates of the functions of an earlier fit, and their lam; None without one."""
    former = problem.previous
    if former is None or former.weight_precision is None:
        return None
    precision = np.atleast_2d(former.weight_precision.T).T[:, 0]
    lam = precision * np.ravel(former.posterior.noise_variance)[0]
    where = nearest_candidates(former.model.basis, former.active, problem.design, problem.labels)
    exists = where >= 0
    where, lam = where[exists], lam[exists]
    if problem.kernel_function is None:
        lam = lam * np.square(problem.design.column_scale[where])
    where, first = np.unique(where, return_index=True)
    return (where, lam[first]) if len(where) else None
