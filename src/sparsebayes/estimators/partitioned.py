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
    kernel : str or callable, default="auto"
        As in `RVMRegressor`, except None and ``"precomputed"``.
    schedule : {"working-set", "incremental", "split-merge"}, default="working-set"
        ``"working-set"`` merges the relevant functions with those of the rows of largest error,
        ``"incremental"`` with those of the next rows in random order. ``"split-merge"`` runs on
        every partition separately, in parallel, and merges the results in pairs.
    partition_size : "auto" or int, default="auto"
        Initial P. ``"auto"`` is 4 sqrt(n) for n distinct rows. All runs but the last end early when
        fewer than P/2 functions remain.
    stopping : {"auto", "paper"}, default="auto"
        ``"auto"``: P is at least twice the number of relevance vectors of the previous run. At the
        end all functions outside the model are ranked by their gain, and the RVM runs on the model
        and the best P of them, until a round gains less than 0.01 nats per row. ``"paper"``: P is
        constant and the model is that of the last run. This takes less time, and can be less
        accurate if more than P/2 vectors are needed.
    gamma : {"auto", "ard", "evidence", "scale", "median"}, float or array, default="auto"
        As in `RVMRegressor`; length scales are learnt from at most 10,000 rows.
    degree, coef0 : float, default=3 and 0
        Parameters of the polynomial and sigmoid kernels.
    algorithm : {"em", "fast"}, default="em"
        Algorithm of each run. ``"em"`` starts with all functions of the run, and each step
        updates all precisions (Tipping 2001). ``"fast"`` adds one function, deletes one, or updates
        the precision of one in each step (Tipping & Faul 2003); its runs do not end early.
    fit_intercept, noise_variance, likelihood
        As in `RVMRegressor`.
    max_iter : int, optional
        Maximum number of steps of each run. The default is 1,000 for ``"em"`` and 2,000 for
        ``"fast"``.
    tol : float, default=1e-3
        Tolerance in nats of log evidence. A run has converged if no deletion of a single function
        and no update of its precision raises the log evidence by `tol` or more. With ``"fast"`` no
        addition may do so either.
    max_time : float, optional
        Approximate number of seconds after which the fit stops and the best model so far is kept.
        At least one run is made.
    client : distributed.Client, optional
        Dask client of the cluster to use. The default is the active client, if there is one and
        `n_jobs` is None.
    n_jobs : int, optional
        Number of parallel runs (or chunks of rows, if there is one run at a time), by joblib.
    checkpoint_dir : path, optional
        Folder to which each finished run is written. A fit with the same data and parameters
        continues from there.
    random_state : int, RandomState or None, default=0
        Seed of the order of the rows before they are partitioned. It depends on the values of the
        rows, not on their order in X.
    verbose : int, default=0
        1 prints progress about once a second, 2 at every step.

    Attributes
    ----------
    active_ : array of int
        Indices of the training rows on which the kernel functions are centred.
    relevance_vectors_ : array of shape (n_active, n_features)
        Training rows on which the kernel functions are centred.
    coef_ : array of shape (n_active,)
        Weight of each function.
    intercept_ : float
        Constant term of the model.
    noise_model_, noise_tail_, calibration_, noise_variance_, weight_precision_, log_evidence_, loo_
        As in `RVMRegressor`.
    kernel_, gamma_, feature_relevance_, rough_share_, kernel_search_
        As in `RVMRegressor`.
    partition_size_ : int
        Initial P.
    history_ : dict of arrays
        One entry per run, in the order they finished: ``elapsed`` seconds, training ``rmse``,
        ``n_active``, ``n_candidates``, ``log_evidence``, ``noise_variance``, ``n_iter`` and
        ``stop_reason`` (``"few_left"``: ended early because fewer than P/2 functions remained).
    n_iter_ : int
        Number of steps of all runs.
    converged_ : bool
        Whether the schedule was completed and the last run converged.
    stop_reason_ : str
        Code of the reason why the fit ended, such as ``"converged"``, ``"max_iter"`` or
        ``"time_limit"``.
    basis_, posterior_
        Basis functions, and the posterior distribution of their weights.

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
