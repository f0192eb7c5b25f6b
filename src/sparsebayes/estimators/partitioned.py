"""The relevance vector machine on partitions of the training rows, for regression."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .._array import RandomState
from ..data import Data
from ..designs import CentredBasis
from ..fitting import Fit, gaussian_fit
from ..kernels import GammaOption, KernelName
from ..partition.regression import Outcome, RegressionRuns
from ..problem import Problem, Units, target_scale
from ..rows import choose_executor
from ..rows.arrays import SERIAL
from ..solvers.rvm.basic import BasicRVM
from ..solvers.rvm.fast import FastRVM
from ._base import NOISE_CONSTRAINTS, SparseRegressor
from ._estimator import Capabilities
from ._partitioned import (
    CONSTRAINTS,
    Partitioned,
    Plan,
    make_plan,
    read_partitioned,
    run_plan,
    run_record,
)
from ._sklearn import Whole, words

_SOLVERS: dict[str, Any] = {"em": BasicRVM, "fast": FastRVM}
_MAX_ITER = {"em": 1000, "fast": 2000}


class PartitionedRVMRegressor(Partitioned, SparseRegressor):
    """Relevance vector machine for regression, on partitions of the candidates.

    A step of the basic RVM costs n^3. Here the RVM runs on about P of the n kernel functions at a
    time, with all n rows as targets. The relevant functions of a run are merged with others until
    all have been considered (Ben-Shimon & Shmilovici). A step then costs P^3 + n P^2, and there is
    no n x n array. If the fit is stopped early, the model reached so far is kept. Runs use threads
    (`n_jobs`) or a Dask cluster, and Dask arrays larger than memory are read in chunks.

    Parameters
    ----------
    algorithm : {"em", "fast"}, default="em"
        Algorithm of each run. ``"em"`` starts with all functions of the run, and each step
        updates all precisions (Tipping 2001). ``"fast"`` adds one function, deletes one, or updates
        the precision of one in each step (Tipping & Faul 2003); its runs do not end early.
    max_iter : int, optional
        Maximum number of steps of each run. The default is 1,000 for ``"em"`` and 2,000 for
        ``"fast"``.
    tol
        ... With ``"fast"`` no addition may do so either.

    Attributes
    ----------
    active_, relevance_vectors_, coef_, intercept_, noise_model_, noise_tail_, calibration_
    noise_variance_, weight_precision_, log_evidence_, loo_, kernel_, gamma_, feature_relevance_
    rough_share_, kernel_search_, partition_size_, history_
    n_iter_ : int
        Number of steps of all runs.
    converged_, stop_reason_, basis_, posterior_

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import PartitionedRVMRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-10, 10, (500, 1))
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.05 * rng.standard_normal(500)
    >>> model = PartitionedRVMRegressor("rbf", gamma=0.1).fit(X, y)
    >>> model.partition_size_, len(model.history_["rmse"]) > 5, len(model.active_) < 30
    (90, True, True)
    """

    capabilities = Capabilities(selects=True, limits_runs=True)
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseRegressor._parameter_constraints,
        **NOISE_CONSTRAINTS,
        **CONSTRAINTS,
        "algorithm": [words(*_SOLVERS)],
        "max_iter": [None, Whole(1)],
    }

    def __init__(
        self,
        kernel: KernelName | None = "auto",
        *,
        schedule: str = "working-set",
        partition_size: Any = "auto",
        stopping: str = "auto",
        gamma: GammaOption = "auto",
        degree: float = 3,
        coef0: float = 0.0,
        algorithm: str = "em",
        fit_intercept: bool = True,
        noise_variance: ArrayLike = "learn",
        likelihood: str = "gaussian",
        max_iter: int | None = None,
        tol: float = 1e-3,
        max_time: float | None = None,
        client: Any = None,
        n_jobs: int | None = None,
        checkpoint_dir: Any = None,
        random_state: RandomState = 0,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.schedule = schedule
        self.partition_size = partition_size
        self.stopping = stopping
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.algorithm = algorithm
        self.fit_intercept = fit_intercept
        self.noise_variance = noise_variance
        self.likelihood = likelihood
        self.max_iter = max_iter
        self.tol = tol
        self.max_time = max_time
        self.client = client
        self.n_jobs = n_jobs
        self.checkpoint_dir = checkpoint_dir
        self.random_state = random_state
        self.verbose = verbose

    def _read(self, X: Any, y: Any, sample_weight: Any) -> Data:
        data = read_partitioned(self, X, y, sample_weight, y_numeric=True)
        return replace(data, y=np.asarray(data.y, dtype=np.float64))

    def _solve(self, problem: Problem) -> Fit:
        # Trials and folds are small: they run here.
        executor = choose_executor(self.client, self.n_jobs) if problem.is_reported else SERIAL
        plan = make_plan(self, problem, executor)
        runs = self._runs(problem, plan)
        units = Units(runs.scale, plan.survey.total - runs.intercept)

        def record(outcome: Outcome) -> dict[str, Any]:
            errors = {"rmse": outcome.rmse, "noise_variance": outcome.noise_variance}
            return units.to_user({**errors, **run_record(outcome)})

        result, fields = run_plan(self, problem, plan, runs, Outcome, record)
        outcome = result.model
        reduced, functions, posterior = runs.kept(outcome.active, outcome.lam)
        return gaussian_fit(
            replace(posterior, offset=reduced.offset),
            outcome.lam,
            CentredBasis(functions, reduced.means) if runs.intercept else functions,
            outcome.active,
            units=Units(runs.scale, reduced.total - runs.intercept),
            kernel=problem.choice,
            data=problem.rows,
            converged=result.stop_reason.converged,
            **fields,
        )

    def _runs(self, problem: Problem, plan: Plan) -> RegressionRuns:
        scale, noise = target_scale(plan.survey.largest), problem.noise_variance
        assert problem.kernel_function is not None
        return RegressionRuns(
            plan.rows,
            plan.survey,
            problem.kernel_function,
            _SOLVERS[self.algorithm](None if noise is None else noise / scale / scale, self.tol),
            scale,
            bool(self.fit_intercept),
            _MAX_ITER[self.algorithm] if self.max_iter is None else int(self.max_iter),
            shrinking=self.algorithm == "em",
        )
