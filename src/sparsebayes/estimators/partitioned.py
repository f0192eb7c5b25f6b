"""The RVM on partitions of the training rows: for data that outgrow one run, or one machine."""

from __future__ import annotations

import hashlib
import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ..callbacks import Progress
from ..designs import CentredBasis
from ..execution import Executor, Rows, choose_executor, is_dask, make_rows
from ..kernels import Kernel, make_kernel, resolve_gamma
from ..partition import SCHEDULES, Checkpoints, Driven, Schedule, automatic_size, drive
from ..partition._survey import Survey, SurveyJob, take
from ..partition.regression import Outcome, RegressionRuns, posterior_of
from ..solvers import BasicRVM, FastRVM
from ._base import _CURE, Problem, SparseRegressor, _is_number, _power_of_two
from ._sklearn import check_sample_weight, validate_data, with_callbacks

_SOLVERS: dict[str, Any] = {"em": BasicRVM, "fast": FastRVM}
_MAX_ITER = {"em": 1000, "fast": 2000}
_CURES = {
    **_CURE,
    "max_time": "the time was up. The best model reached so far is kept; raise max_time, or go on "
    "from the runs in checkpoint_dir.",
}
# Parameters that say where and for how long, not what.
_NO_EFFECT = ("checkpoint_dir", "client", "max_time", "n_jobs", "random_state", "verbose")


class Info(NamedTuple):
    """One run, for the reader."""

    rmse: float
    n_active: int
    n_candidates: int
    log_evidence: float
    noise_variance: float


class _Partitioned:
    """What the partitioned estimators share: parameters, width, order of the rows, the drive."""

    cache_size = 0.0  # nothing is kept between passes

    def _check_partitioned(self: Any) -> None:
        if self.schedule not in SCHEDULES:
            raise ValueError(
                f"schedule={self.schedule!r} is not known: use one of {', '.join(SCHEDULES)}."
            )
        size = self.partition_size
        automatic = isinstance(size, str) and size == "auto"
        if not automatic and not (_is_number(size) and size >= 1 and int(size) == size):
            raise ValueError(
                "partition_size must be 'auto' (4 sqrt(n_samples)) or a whole number >= 1, got "
                f"{size!r}."
            )
        if self.kernel is None or (isinstance(self.kernel, str) and self.kernel == "precomputed"):
            raise ValueError(
                f"kernel={self.kernel!r} has no functions centred on rows, and these are what "
                f"{type(self).__name__} partitions: use the name of a kernel or a callable."
            )
        limit = self.max_time
        if limit is not None and not (_is_number(limit) and limit > 0):
            raise ValueError(f"max_time must be None or a positive number, got {limit!r}.")
        if self.checkpoint_dir is not None and not _is_number(self.random_state):
            raise ValueError(
                "checkpoint_dir needs a random_state that is a number, got "
                f"{self.random_state!r}: a fit that goes on must cut the rows the same way."
            )

    def _rows(self: Any, X: Any, y: Any, sample_weight: Any, executor: Executor) -> Rows:
        """Checked arrays in chunks; Dask arrays are checked when they are read."""
        if is_dask(X):
            if X.ndim != 2 or np.isnan(X.shape[1]):
                raise ValueError(f"X must be two-dimensional, got a Dask array of {X.shape}.")
            self.n_features_in_ = int(X.shape[1])
            return make_rows((X, y, sample_weight), executor)
        X, y = validate_data(
            self,
            X,
            y,
            dtype=[np.float64, np.float32],
            y_numeric=self._y_numeric,
            ensure_min_samples=2,
        )
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, X, ensure_non_negative=True)
            if not np.any(sample_weight):
                raise ValueError("All sample weights are zero: there is nothing to fit.")
        return make_rows((X, y, sample_weight), executor)

    def _kernel(self: Any, survey: Survey, executor: Executor, rows: Rows) -> Kernel:
        """The kernel, its width from what the survey found where it depends on the rows."""
        gamma = self.gamma
        if isinstance(gamma, str) and gamma == "scale":
            gamma = survey.gamma_scale(self.n_features_in_)
        elif isinstance(gamma, str) and gamma == "median":
            some = survey.candidates[:: max(1, len(survey.candidates) // 500)][:500]
            gamma = resolve_gamma("median", take(executor, rows, survey, some))
        self.gamma_ = resolve_gamma(gamma, np.empty((0, self.n_features_in_)))
        return make_kernel(self.kernel, gamma=self.gamma_, degree=self.degree, coef0=self.coef0)

    def _schedule(self: Any, survey: Survey) -> tuple[Schedule, int]:
        """The candidates in their random order, cut by the schedule; and the seed."""
        n = len(survey.candidates)
        size = automatic_size(n) if self.partition_size == "auto" else int(self.partition_size)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self.partition_size_ = size
        return SCHEDULES[self.schedule](survey.shuffled(seed), size), seed

    def _drive(
        self: Any, schedule: Schedule, runs: Any, survey: Survey, seed: int, make: Any
    ) -> Driven:
        checkpoints = None
        if self.checkpoint_dir is not None:
            fingerprint = self._fingerprint(survey, seed)
            checkpoints = Checkpoints(self.checkpoint_dir, fingerprint, make)
        progress = Progress(self, schedule.n_tasks, steps_per_task=1)
        try:
            return drive(
                schedule,
                runs,
                size=self.partition_size_,
                max_time=self.max_time,
                checkpoints=checkpoints,
                report=lambda number, outcome: progress(number, self._info(outcome), None),
            )
        finally:
            progress.close()

    def _fingerprint(self: Any, survey: Survey, seed: int) -> str:
        """Of all that the outcome of a run depends on."""
        from .. import __version__

        parts = [type(self).__name__, __version__, survey.digest, survey.starts.tolist(), seed]
        for name, value in sorted(self.get_params(deep=False).items()):
            if name not in _NO_EFFECT:
                # A callable by its name: its address changes from process to process.
                parts.append((name, getattr(value, "__qualname__", repr(value))))
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def _keep_drive(self: Any, driven: Driven, schedule: Schedule) -> None:
        outcomes = list(driven.done.values())
        self.n_iter_ = sum(outcome.n_iter for outcome in outcomes)
        self.stop_reason_ = driven.stop_reason
        self.converged_ = driven.stop_reason == "converged"
        if not self.converged_:
            cure = _CURES.get(self.stop_reason_, _CURES["max_iter"])
            warnings.warn(
                f"{type(self).__name__} stopped before it converged ({self.stop_reason_}) after "
                f"{len(outcomes)} of {schedule.n_tasks} runs: {cure}",
                ConvergenceWarning,
                stacklevel=4,
            )

    def __sklearn_clone__(self: Any) -> Any:
        # A client cannot be copied; a clone runs on the same one.
        client, self.client = self.client, None
        try:
            copy = super().__sklearn_clone__()  # type: ignore[misc]
        finally:
            self.client = client
        copy.client = client
        return copy

    def __getstate__(self: Any) -> Any:
        # A fitted model outlives the cluster it was fitted on.
        state: Any = super().__getstate__()
        return {**state, "client": None}


class PartitionedRVMRegressor(_Partitioned, SparseRegressor):
    """Relevance vector machine for regression, on partitions of the candidates.

    The basic RVM takes steps of n^3. Here it runs on sets of about P of the n kernel functions,
    always against all n rows and targets, and what is left of one set is merged with others until
    all have been seen (Ben-Shimon & Shmilovici): steps of P^3, products of n P^2, no n x n array.
    It is an anytime method: stopped early, it leaves a model of what it has seen. Runs go to
    threads (`n_jobs`) or to a Dask cluster, and Dask arrays larger than memory are read in chunks.

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        ``"rbf"``, ``"matern12"``, ``"matern32"``, ``"matern52"``, ``"rq"``, or any name or callable
        that ``sklearn.metrics.pairwise.pairwise_kernels`` takes.
    schedule : {"working-set", "incremental", "split-merge"}, default="working-set"
        ``"working-set"`` merges the survivors with the unused rows of largest error,
        ``"incremental"`` with the next rows of a random order; ``"split-merge"`` runs on all
        partitions by themselves, which can be done in parallel, and merges survivors in pairs.
    partition_size : "auto" or int, default="auto"
        P; ``"auto"`` is 4 sqrt(n) of n different rows. Sets grow past it where the model needs
        more than P/2 functions.
    gamma : {"scale", "median"}, float or array of shape (n_features,), default="scale"
        Width: ``exp(-gamma |x - z|^2)``. ``"scale"`` is 1 / (n_features * X.var()), ``"median"``
        1 / (2 m^2) with m the median distance between rows.
    degree, coef0 : float
        For the polynomial and sigmoid kernels.
    algorithm : {"em", "fast"}, default="em"
        The RVM on each set: ``"em"`` re-estimates all its functions (Tipping 2001) and ends early,
        but in the last run, when fewer than P/2 are left; ``"fast"`` adds, re-estimates and deletes
        one at a time (Tipping & Faul 2003).
    fit_intercept : bool, default=True
        Add a constant with a flat prior, integrated out.
    noise_variance : "learn" or float, default="learn"
    max_iter : int, optional
        Most steps of each run; by default 1,000 for ``"em"`` and 2,000 for ``"fast"``.
    tol : float, default=1e-3
        Nats of evidence that no single deletion or re-estimate (``"fast"``: addition) may still
        gain when a run is called converged.
    max_time : float, optional
        Seconds, about, after which the best model so far is kept. At least one run is made.
    client : distributed.Client, optional
        The cluster to run on; by default the active client, if there is one and `n_jobs` is None.
    n_jobs : int, optional
        Runs (or chunks of rows, where there is one run at a time) side by side through joblib.
    checkpoint_dir : path, optional
        Each finished run is written there, and a fit with the same data and parameters goes on from
        what it finds.
    random_state : int, RandomState or None, default=0
        Orders the rows before they are cut into partitions, by their content: the partitions do not
        depend on the order in which rows are given.
    verbose : int, default=0

    Attributes
    ----------
    active_ : array of int
        The rows of X that carry a function.
    relevance_vectors_ : array of shape (n_active, n_features)
        Those rows.
    coef_ : array of shape (n_active,)
    intercept_ : float
    noise_variance_ : float
    weight_precision_ : array of shape (n_active,)
    log_evidence_ : float
        Log marginal likelihood at the fitted hyperparameters, from exact columns.
    partition_size_ : int
    history_ : dict of arrays
        One entry per run, in the order they finished: ``elapsed`` seconds, training ``rmse``,
        ``n_active``, ``n_candidates``, ``log_evidence``, ``noise_variance``, ``n_iter`` and
        ``stop_reason`` (``"few left"``: ended early because fewer than P/2 were left).
    n_iter_ : int
        Steps of all runs.
    converged_ : bool
        Whether the schedule came to its end and the last run converged.
    stop_reason_ : str
    basis_, posterior_
        The functions, and what is known about their weights.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import PartitionedRVMRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-10, 10, (500, 1))
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.05 * rng.standard_normal(500)
    >>> model = PartitionedRVMRegressor(gamma=0.1).fit(X, y)
    >>> model.partition_size_, len(model.history_["rmse"]), len(model.active_) < 30
    (90, 6, True)
    """

    _y_numeric = True

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        schedule: str = "working-set",
        partition_size: Any = "auto",
        gamma: Any = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        algorithm: str = "em",
        fit_intercept: bool = True,
        noise_variance: Any = "learn",
        max_iter: int | None = None,
        tol: float = 1e-3,
        max_time: float | None = None,
        client: Any = None,
        n_jobs: int | None = None,
        checkpoint_dir: Any = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.schedule = schedule
        self.partition_size = partition_size
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.algorithm = algorithm
        self.fit_intercept = fit_intercept
        self.noise_variance = noise_variance
        self.max_iter = max_iter
        self.tol = tol
        self.max_time = max_time
        self.client = client
        self.n_jobs = n_jobs
        self.checkpoint_dir = checkpoint_dir
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PartitionedRVMRegressor:
        """Fit the model.

        Parameters
        ----------
        X : NumPy or Dask array of shape (n_samples, n_features)
        y : NumPy or Dask array of shape (n_samples,)
        sample_weight : NumPy or Dask array of shape (n_samples,), optional
            A row of weight v counts as v equal rows.

        Returns
        -------
        self
        """
        self._check_parameters()
        executor = choose_executor(self.client, self.n_jobs)
        rows = self._rows(X, y, sample_weight, executor)
        survey = executor.reduce(SurveyJob(), rows)
        schedule, seed = self._schedule(survey)
        runs = self._runs(rows, executor, survey)
        driven = self._drive(schedule, runs, survey, seed, Outcome)
        self._keep_outcome(runs, driven.model)
        self._keep_history(driven, runs)
        self._keep_drive(driven, schedule)
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_partitioned()
        if self.algorithm not in _SOLVERS:
            raise ValueError(
                f"algorithm={self.algorithm!r} is not known: use one of {', '.join(_SOLVERS)}."
            )

    def _max_iter(self) -> int:
        return _MAX_ITER[self.algorithm] if self.max_iter is None else int(self.max_iter)

    def _runs(self, rows: Rows, executor: Executor, survey: Survey) -> RegressionRuns:
        scale = _power_of_two(survey.largest)
        noise = None if self.noise_variance == "learn" else self.noise_variance / scale**2
        return RegressionRuns(
            rows,
            executor,
            survey,
            self._kernel(survey, executor, rows),
            _SOLVERS[self.algorithm](noise, self.tol),
            scale,
            bool(self.fit_intercept),
            self._max_iter(),
            shrinking=self.algorithm == "em",
        )

    def _info(self, outcome: Outcome) -> Info:
        return Info(
            outcome.rmse,
            len(outcome.active),
            len(outcome.candidates),
            outcome.log_evidence,
            outcome.noise_variance,
        )

    def _keep_outcome(self, runs: RegressionRuns, outcome: Outcome) -> None:
        """The model of one run, from exact columns."""
        reduced, functions = runs.exact(outcome.active)
        every = np.arange(len(outcome.active))
        posterior = posterior_of(reduced, every, outcome.lam, runs.solver.noise_variance)
        basis = CentredBasis(functions, reduced.means) if runs.intercept else functions
        design = reduced.design(basis)
        offset, scale = reduced.offset, runs.scale
        problem = Problem(
            design, reduced.t, offset, scale, outcome.active, np.empty((0, 0)), runs.kernel
        )
        self._keep_posterior(problem, every, outcome.lam, posterior)

    def _keep_history(self, driven: Driven, runs: RegressionRuns) -> None:
        outcomes = list(driven.done.values())
        shift = np.log(runs.scale) * self._n_observations(runs)
        self.history_ = {
            "elapsed": np.array([o.elapsed for o in outcomes]),
            "rmse": np.array([o.rmse for o in outcomes]) * runs.scale,
            "n_active": np.array([len(o.active) for o in outcomes]),
            "n_candidates": np.array([len(o.candidates) for o in outcomes]),
            "log_evidence": np.array([o.log_evidence for o in outcomes]) - shift,
            "noise_variance": np.array([o.noise_variance for o in outcomes]) * runs.scale**2,
            "n_iter": np.array([o.n_iter for o in outcomes]),
            "stop_reason": np.array([o.stop_reason for o in outcomes]),
        }

    def _n_observations(self, runs: RegressionRuns) -> float:
        return runs.survey.total - runs.intercept
