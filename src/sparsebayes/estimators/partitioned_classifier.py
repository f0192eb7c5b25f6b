"""The relevance vector machine on partitions of the training rows, for classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ..designs import KernelBasis
from ..designs.kernel import block_rows
from ..partition._survey import make_survey
from ..partition.classification import LabelOutcome, LabelRuns, Labels
from ..rows import Executor, Job, Rows, choose_executor, is_dask, make_rows, row_slices
from ..solvers.run import Solution
from ..solvers.rvm.laplace_em import LaplaceState
from ._classifier import (
    SparseClassifier,
    best_coupling,
    check_labels,
    keep_calibration,
    keep_functions,
    left_out,
    log_odds,
)
from ._common import label_columns
from ._estimator import read_rows
from ._partitioned import CONSTRAINTS, Partitioned
from ._sklearn import check_sample_weight, warn


class PartitionedRVMClassifier(Partitioned, SparseClassifier):
    """Relevance vector machine for classification, on partitions of the candidates.

    ``RVMClassifier(algorithm="em")`` re-estimates all n kernel functions at once. Here it runs on
    sets of about P of them, always against all n rows and labels, and what is left of one set is
    merged with others until all have been seen (Ben-Shimon & Shmilovici): steps of P^3, passes of
    n P^2, no n x n array. It is an anytime method: stopped early, it leaves a model of what it has
    seen. Runs go to threads (`n_jobs`) or to a Dask cluster, and Dask arrays larger than memory are
    read in chunks.

    Parameters
    ----------
    kernel : str or callable, default="auto"
        As in `RVMClassifier`, but for None and ``"precomputed"``: functions centred on rows are
        what is partitioned.
    schedule : {"working-set", "incremental", "split-merge"}, default="working-set"
        As in `PartitionedRVMRegressor`.
    partition_size : "auto" or int, default="auto"
        P, to begin with; ``"auto"`` is 4 sqrt(n) of n different rows. Runs before the last end
        early when fewer than P/2 functions are left, those of all classes together.
    stopping : {"auto", "paper"}, default="auto"
        ``"auto"``: P follows the number of vectors, and is never less than twice those that the run
        before has left. The schedule ends with polishing: all functions outside the model are
        ranked by what each would gain the class that it would help most, and a run on the model and
        the best P of them begins from where the model stands; so on until a round gains less than
        0.01 nats a row. ``"paper"``: P stays what it is and the model is that of the last run.
    gamma : {"auto", "ard", "evidence", "scale", "median"}, float or array, default="auto"
        As in `RVMClassifier`; widths are learnt from at most 10,000 rows.
    degree, coef0 : float
        For the polynomial and sigmoid kernels.
    fit_intercept : bool, default=True
        Add a constant with a flat prior; its uncertainty enters the probabilities.
    class_weight : dict, "balanced" or None, default=None
        Factor on the weight of each class; ``"balanced"`` gives all classes the same total.
    max_iter : int, default=1000
        Most passes over the rows of each run; about 15 are usual.
    tol : float, default=1e-3
        Nats of evidence that no single deletion or re-estimate may still gain when a run is called
        converged.
    max_time, client, n_jobs, checkpoint_dir, random_state, verbose
        As in `PartitionedRVMRegressor`.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes, sorted.
    active_ : array of int
        The rows of X that carry a function for some class.
    relevance_vectors_ : array of shape (n_active, n_features)
        Those rows.
    coef_, intercept_, weight_precision_, log_evidence_, calibration_, coupling_
        As in `RVMClassifier`.
    kernel_, gamma_, feature_relevance_, rough_share_, kernel_search_
        As in `RVMClassifier`.
    partition_size_ : int
        P, to begin with.
    history_ : dict of arrays
        One entry per run, in the order they finished: ``elapsed`` seconds, training ``error_rate``,
        ``n_active``, ``n_candidates``, ``log_evidence``, ``n_iter`` (passes over the rows) and
        ``stop_reason`` (``"few_left"``: ended early because fewer than P/2 were left).
    n_iter_ : int
        Passes of all runs.
    converged_ : bool
        Whether the schedule came to its end and the last run converged.
    stop_reason_ : str
        Why the fit ended: ``"converged"``, or what stopped it.
    basis_, posterior_
        The functions, and what is known about their weights (one posterior per class where there
        are more than two).

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

    _errors = ("error_rate",)
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseClassifier._parameter_constraints,
        **CONSTRAINTS,
    }

    def __init__(
        self,
        kernel: Any = "auto",
        *,
        schedule: str = "working-set",
        partition_size: Any = "auto",
        stopping: str = "auto",
        gamma: Any = "auto",
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
        random_state: Any = 0,
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

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        executor = choose_executor(self.client, self.n_jobs)
        rows, totals = self._rows(X, y, sample_weight, executor)
        survey = make_survey(rows)
        self._check_survey(survey)
        schedule, self.partition_size_, seed = self._schedule(survey)
        kernel = self._kernel(survey, rows)
        labels = Labels(kernel, self._class_weights(totals), bool(self.fit_intercept), self.tol)
        runs = LabelRuns(rows, survey, labels, int(self.max_iter))
        result = self._run_schedule(
            schedule, runs, survey, self.partition_size_, seed, LabelOutcome
        )
        searches, functions = runs.exact(result.model)
        fitted = [Solution(s.members, s.alpha, s.posterior) for s in searches if s.posterior]
        keep_functions(self, fitted, functions.take, result.model.active)
        keep_calibration(
            self,
            len(rows),
            lambda: rows.reduce(CouplingJob(labels, functions, searches)),
        )
        self.history_ = self._history(result, runs)
        self.n_iter_ = int(np.sum(self.history_["n_iter"]))
        self.stop_reason_ = result.stop_reason.value
        self.converged_ = result.stop_reason.converged
        for note in self._end_notes(result, schedule):
            warn(*note)

    def _rows(
        self, X: Any, y: Any, sample_weight: Any, executor: Executor
    ) -> tuple[Rows, np.ndarray]:
        """X, class numbers and weights in chunks, and the weight of each class."""
        if is_dask(X):
            return self._dask_rows(X, y, sample_weight, executor)
        X, y = read_rows(self, X, y)
        y = check_labels(y)
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, X)
        totals = self._set_classes(*ClassesJob().read(0, (y, sample_weight)))
        return make_rows((X, _encoded(y, self.classes_), sample_weight), executor), totals

    def _dask_rows(
        self, X: Any, y: Any, sample_weight: Any, executor: Executor
    ) -> tuple[Rows, np.ndarray]:
        import dask.array as da

        if not is_dask(y):
            y = column_or_1d(np.asarray(y), warn=True)
            if len(y) != X.shape[0]:
                raise ValueError(f"X has {X.shape[0]} rows, but y has {len(y)} labels.")
            y = da.from_array(y, chunks=(X.chunks[0],))
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, X)
        column = y[:, None] if y.ndim == 1 else y
        found = make_rows((column, sample_weight), executor).reduce(ClassesJob())
        check_classification_targets(found[0])
        totals = self._set_classes(*found)
        codes = column[:, 0].map_blocks(_encoded, self.classes_, dtype=np.intp)
        self.n_features_in_ = int(X.shape[1])
        return make_rows((X, codes, sample_weight), executor), totals

    def _set_classes(self, classes: np.ndarray, totals: np.ndarray) -> np.ndarray:
        if len(classes) == 0:
            raise ValueError("All sample weights are zero: there is nothing to fit.")
        if len(classes) == 1:
            raise ValueError(
                f"{type(self).__name__} needs rows of at least two classes, got one class: "
                f"{classes[0]}."
            )
        self.classes_ = classes
        return totals

    def _whole_model(self) -> Any:
        from .rvm_classifier import RVMClassifier

        names = ("kernel", "gamma", "degree", "coef0", "fit_intercept", "class_weight")
        return RVMClassifier(**{name: getattr(self, name) for name in names})

    def _as_target(self, y: np.ndarray) -> np.ndarray:
        return label_columns(y)


@dataclass(frozen=True)
class ClassesJob(Job):
    """The classes, and the weight of each, over chunks (y, sample_weight or None)."""

    def read(self, index: int, chunk: Any) -> tuple[np.ndarray, np.ndarray]:
        y, weight = np.asarray(chunk[0]).ravel(), chunk[1]
        if y.dtype.kind == "f" and not np.all(np.isfinite(y)):
            raise ValueError(f"y contains NaN or infinity in chunk {index} of the rows.")
        weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
        there = weight > 0
        classes, codes = np.unique(y[there], return_inverse=True)
        return classes, np.bincount(codes, weights=weight[there], minlength=len(classes))

    def merge(self, left: Any, right: Any) -> tuple[np.ndarray, np.ndarray]:
        classes, codes = np.unique(np.concatenate([left[0], right[0]]), return_inverse=True)
        return classes, np.bincount(codes, weights=np.concatenate([left[1], right[1]]))


def _encoded(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Class numbers; any number for a label that no row of positive weight has."""
    return np.minimum(np.searchsorted(classes, y), len(classes) - 1)


@dataclass(frozen=True)
class CouplingJob:
    """How the binary problems of several classes are put together."""

    labels: Labels
    functions: KernelBasis
    searches: tuple[LaplaceState, ...]

    def read(self, index: int, chunk: Any) -> tuple[np.ndarray, ...]:
        """Log odds of a chunk, each label left out of its own."""
        X, codes, weight = self.labels.rows(chunk)
        z = np.empty((len(X), len(self.searches)))
        for rows in row_slices(len(X), block_rows(len(self.functions))):
            Phi = self.functions(X[rows])
            for c, search in enumerate(self.searches):
                assert search.posterior is not None
                own = Phi[:, search.members]
                z[rows, c] = log_odds(*left_out(search.posterior, own, codes[rows] == c))
        return z, codes, weight

    def merge(self, left: Any, right: Any) -> tuple[np.ndarray, ...]:
        return tuple(np.concatenate(pair) for pair in zip(left, right, strict=True))

    def finish(self, total: Any) -> float:
        """The coupling of smallest log-loss."""
        return best_coupling(*total)
