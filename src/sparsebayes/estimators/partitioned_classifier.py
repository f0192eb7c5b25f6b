"""The relevance vector machine on partitions of the training rows, for classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._array import RandomState
from ..class_probabilities import LabelPredictions, best_coupling, log_odds
from ..data import Data
from ..designs import KernelBasis
from ..designs.kernel import block_rows
from ..kernels import GammaOption, KernelName
from ..labels import LabelFit, LabelProblem, joined_functions, leave_one_out, solution_fit
from ..partition.classification import LabelOutcome, LabelRuns, Labels
from ..rows import choose_executor, row_slices
from ..solvers.run import Solution
from ..solvers.rvm.laplace_em import LaplaceState
from ._classifier import SparseClassifier, encode_labels
from ._estimator import Capabilities
from ._partitioned import (
    CONSTRAINTS,
    Partitioned,
    make_plan,
    read_partitioned,
    run_plan,
    run_record,
)
from .rvm_classifier import relevance_solvers

# Settings of the trials that compare kernels: the defaults of RVMClassifier.
_TRIAL_TOL, _TRIAL_STARTS = 1e-3, 3


class PartitionedRVMClassifier(Partitioned, SparseClassifier):
    """Relevance vector machine for classification, on partitions of the candidates.

    ``RVMClassifier(algorithm="em")`` re-estimates all n kernel functions at once. Here it runs on
    about P of them at a time, with all n rows and labels. The relevant functions of a run are
    merged with others until all have been considered (Ben-Shimon & Shmilovici). A step then costs
    P^3 + n P^2, and there is no n x n array. If the fit is stopped early, the model reached so far
    is kept. Runs use threads (`n_jobs`) or a Dask cluster, and Dask arrays larger than memory are
    read in chunks.

    Parameters
    ----------
    max_iter : int, default=1000
        Maximum number of passes over the rows in each run; about 15 are usual.

    Attributes
    ----------
    classes_, active_, relevance_vectors_, coef_, intercept_, weight_precision_, log_evidence_
    coupling_, calibration_, calibration_intercept_, kernel_, gamma_, feature_relevance_
    rough_share_, kernel_search_, partition_size_, history_
    n_iter_ : int
        Number of passes over the rows of all runs.
    converged_, stop_reason_, basis_, posterior_

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sparsebayes import PartitionedRVMClassifier
    >>> X, y = make_moons(300, noise=0.2, random_state=0)
    >>> model = PartitionedRVMClassifier("rbf", gamma=1.0).fit(X, y)
    >>> model.partition_size_, len(model.history_["error_rate"]), model.score(X, y) > 0.95
    (70, 5, True)
    >>> model.predict_proba(X[:1]).sum().round(6)
    np.float64(1.0)
    """

    capabilities = Capabilities(selects=True, limits_runs=True)
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseClassifier._parameter_constraints,
        **CONSTRAINTS,
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
        fit_intercept: bool = True,
        class_weight: Any = None,
        max_iter: int = 1000,
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
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.max_time = max_time
        self.client = client
        self.n_jobs = n_jobs
        self.checkpoint_dir = checkpoint_dir
        self.random_state = random_state
        self.verbose = verbose

    def _read(self, X: Any, y: Any, sample_weight: Any) -> tuple[Data, np.ndarray]:
        """Return checked arrays; the inputs of Dask arrays are checked when they are read."""
        data = read_partitioned(self, X, y, sample_weight)
        return encode_labels(data, type(self).__name__)

    def _solve(self, problem: LabelProblem) -> LabelFit:
        if not problem.is_reported:
            # Trials and folds have few rows, and are fitted to all candidates at once.
            solvers = relevance_solvers(problem, _TRIAL_TOL, _TRIAL_STARTS)
            return solution_fit(problem, *problem.run(solvers, int(self.max_iter)))
        kernel = problem.kernel_function
        assert kernel is not None
        plan = make_plan(self, problem, choose_executor(self.client, self.n_jobs))
        labels = Labels(kernel, problem.n_classes, problem.fit_intercept, self.tol)
        runs = LabelRuns(plan.rows, plan.survey, labels, int(self.max_iter))

        def record(outcome: LabelOutcome) -> dict[str, Any]:
            return {"error_rate": outcome.error_rate, **run_record(outcome)}

        result, fields = run_plan(self, problem, plan, runs, LabelOutcome, record)
        searches, functions = runs.exact(result.model)
        solutions = [Solution(s.members, s.alpha, s.posterior) for s in searches if s.posterior]
        loo = None  # of two classes nothing depends on it
        if problem.n_classes > 2:
            loo = plan.rows.reduce(LooJob(labels, functions, searches))
        return LabelFit(
            **joined_functions(solutions, functions.take, result.model.active),
            kernel=problem.choice,
            coupling=None if loo is None else best_coupling(loo.z, loo.codes, loo.weight),
            loo=loo,
            **fields,
        )


@dataclass(frozen=True)
class LooJob:
    """Leave-one-out log odds of all rows of positive weight, of more than two classes."""

    labels: Labels
    functions: KernelBasis
    searches: tuple[LaplaceState, ...]

    def read(self, index: int, chunk: Any) -> tuple[np.ndarray, ...]:
        """Return the log odds of a chunk, with class numbers and weights."""
        X, codes, weight = self.labels.rows(chunk)
        z = np.empty((len(X), len(self.searches)))
        for rows in row_slices(len(X), block_rows(len(self.functions))):
            Phi = self.functions(X[rows])
            for c, search in enumerate(self.searches):
                assert search.posterior is not None
                own = Phi[:, search.members]
                z[rows, c] = log_odds(*leave_one_out(search.posterior, own, codes[rows] == c))
        return z, codes, weight

    def merge(self, left: Any, right: Any) -> tuple[np.ndarray, ...]:
        return tuple(np.concatenate(pair) for pair in zip(left, right, strict=True))

    def finish(self, total: Any) -> LabelPredictions:
        """Return the log odds of all rows."""
        return LabelPredictions(*total)
