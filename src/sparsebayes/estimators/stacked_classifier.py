"""A mixture of Gaussian processes and linear models of the same classes."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from scipy.special import logit
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning

from .._array import RandomState
from ..callbacks import Budget
from ..class_probabilities import Softmax, best_calibration, log_own
from ..data import Data, merge_labelled_duplicates
from ..fitting import Note, publish
from ..kernels import (
    GammaOption,
    KernelChoice,
    KernelName,
    KernelSpec,
    ProcessKind,
    is_option,
)
from ..labels import (
    COMPARED_ROWS,
    LabelFit,
    LabelProblem,
    few_rows_notes,
    fold_optimism,
    fold_predictions,
    proposed_kernels,
    with_reversion,
)
from ..relevance import with_inputs
from ..rows import is_dask
from ..solvers.run import StopReason
from ..stacking import ClassPool, pool_classes, smallest_within_error
from ._classifier import SparseClassifier
from ._estimator import Apply, apply_blocks, float_type, is_linear
from ._sklearn import (
    array_of_frame,
    check_is_fitted,
    feature_names,
    input_attributes,
    plain_copy,
    same_namespace,
    warn,
    whole_fit,
    words,
)
from ._stack import FittedMember, Mixture, compared_members, comparison_notes, parameters_of
from .rvm_classifier import RVMClassifier
from .sparse_gp_classifier import SparseGPClassifier

# Parameters that all members share with the mixture.
_SHARED = ("fit_intercept", "class_weight", "cache_size", "random_state", "verbose")
_COMPARED = 5_000  # rows on which members are compared; those of some weight are fitted to all
_ROWS_IN_ALL = (
    300_000  # rows times members that are fitted to all rows: about 15 s for each 100,000
)
_MOST_COLUMNS = 500  # inputs of a linear model
# Rows up to which the smallest model is chosen among all kernels that a search proposes, and then
# among the first and the last.
_FEW_ROWS = 2_000
# Rows of two classes up to which the processes are exact, and rows of several, times the root of
# their number: each class has factorisations of its own. With the larger number for several classes
# two tables of 2,000 rows took nearly twice the time, and were no better.
_EXACT_ROWS, _EXACT_ROWS_OF_SEVERAL = 4_500, 3_500
_ROWS_PER_INPUT = 5  # rows for each input below which kernels have one width for all
_LEAST_WEIGHT = 0.02  # of the sum of weights: a member with less is left out
_OF_A_PRECISION = 0.5  # nats of optimism for the precision of a column, or of a function
_FEW_IN_CLASS = 50  # rows of a class that a draw of rows keeps at least
_LEAST = 1e-15  # probability of which log odds are finite


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A fit that may become a member, with the model that solved its problem."""

    name: str
    model: SparseClassifier
    problem: LabelProblem
    fit: LabelFit
    seconds: float

    @property
    def loo_probabilities(self) -> np.ndarray:
        """Leave-one-out probabilities of the training rows."""
        assert self.fit.loo is not None
        return self.fit.probabilities(self.fit.loo.z)

    @property
    def optimism(self) -> float:
        """Optimism of the sum of their log probabilities in nats.

        It is one nat for each length scale that matters, as in Akaike's criterion, and half a nat
        for each precision, because they were learnt from the same labels.
        """
        precision = self.fit.weight_precision
        if precision is None or not self.model.capabilities.selects:
            return self.fit.kernel.n_matter
        return _OF_A_PRECISION * np.count_nonzero(np.isfinite(precision))


class StackedClassifier(ClassifierMixin, Mixture):
    """A mixture of Gaussian processes and linear models, weighted by leave-one-out predictions.

    The members are a sparse linear model and two Gaussian processes, whose kernel is the sum of a
    smooth and a rough one. One process has one length scale for all inputs, the other one per
    input. Both see the normal scores of skewed inputs (`warp`). Up to 4,500 rows (fewer with more
    than two classes) the processes have a function at each row. The mixture is geometric: its
    probabilities are proportional to a product of powers of those of its members. The powers
    maximise the leave-one-out log probability of the mixture.

    Parameters
    ----------
    kernel, gamma, fit_intercept, class_weight, cache_size, random_state, verbose
        Parameters of the Gaussian processes; see `SparseGPClassifier`.
    warp : {"auto", False}, default="auto"
        ``"auto"`` gives the Gaussian processes the normal scores of inputs whose distribution is
        far from normal.
    prefer : {"accurate", "small"}, default="accurate"
        ``"accurate"`` is the mixture. ``"small"`` is the member with the fewest functions or
        columns within one standard error of the best leave-one-out predictions, among a linear
        model, relevance vectors and Gaussian processes, all without normal scores.
    max_time : float or None, default=None
        Seconds after which no further member is fitted, with a ConvergenceWarning.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Class labels, sorted.
    members_
    weights_ : array
        Share of each member in the sum of the powers.
    pool_ : ClassPool
        Combines the probabilities of the members.
    choices_
    classifier_ : estimator
        Model of the member with the largest weight. Its own probabilities are not calibrated.
    converged_, notes_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sparsebayes.estimators.stacked_classifier import StackedClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = StackedClassifier().fit(X, y)
    >>> model.choices_["member"][0], model.score(X, y) > 0.95
    ('linear', True)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseGPClassifier._parameter_constraints,
        "warp": [words("auto"), "boolean"],
        "prefer": [words("accurate", "small")],
    }

    _member = SparseGPClassifier

    def __init__(
        self,
        kernel: KernelName | None = "auto",
        *,
        gamma: GammaOption = "auto",
        warp: Any = "auto",
        fit_intercept: bool = True,
        class_weight: Any = None,
        cache_size: float = 200,
        random_state: RandomState = 0,
        prefer: str = "accurate",
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
        self.prefer = prefer
        self.max_time = max_time
        self.verbose = verbose

    @whole_fit
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> StackedClassifier:
        """Fit all members, and weight them.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Inputs.
        y : array of shape (n_samples,)
            Labels: numbers or strings, two classes or more.
        sample_weight : array of shape (n_samples,), optional
            Number of observations that each row stands for; see `SparseGPClassifier`.

        Returns
        -------
        self
        """
        self._validate_params()
        process = self._process()
        process._check_parameters()
        data, self.classes_ = process._read(X, y, sample_weight)
        data = merge_labelled_duplicates(process._with_class_weight(data, self.classes_))
        self._take_inputs(process)
        part = _drawn(data)
        most = None if part is data else max(1, _ROWS_IN_ALL // len(data.used))
        budget = Budget(self.max_time)
        if self._is_exact(data):
            process.set_params(max_terms=None)
        chosen = self._choose(self._candidates(process, part, budget), most)
        if len(part.used) <= COMPARED_ROWS and not budget.over:
            self._calibrate(chosen, budget)
        self.notes_ = comparison_notes(
            self.choices_,
            "leave-one-out log probability",
            [candidate.name for candidate in chosen],
            self.weights_,
            self.prefer == "small",
        )
        if part is not data:
            fitted = [c if budget.over else _on_all_rows(c, data) for c in chosen]
            n_all = sum(c.problem.data is data for c in fitted)
            self.notes_.append(
                f"models compared on {len(part.used):,} of {len(data.used):,} rows; {n_all} of "
                f"{len(chosen)} with positive weight fitted to all rows"
            )
            chosen = fitted
        self._publish(chosen)
        self.converged_ = not budget.over
        for note in (*few_rows_notes(chosen[0].problem), *_time_notes(budget)):
            warn(*note)
        return self

    # Members.

    def _candidates(
        self, process: SparseGPClassifier, data: Data, budget: Budget
    ) -> list[_Candidate]:
        """Fit everything that is compared, the plainest first."""
        small, X = self.prefer == "small", data.take(data.used)
        if is_option(self.gamma, "auto") and _ROWS_PER_INPUT * X.shape[1] > X.shape[0]:
            process.set_params(gamma="evidence")
        candidates: list[_Candidate] = []
        if X.shape[1] <= _MOST_COLUMNS:
            linear = RVMClassifier(None, **parameters_of(self, *_SHARED))
            self._fit_to(candidates, "linear", linear, data, budget)
        n_plain = len(candidates)
        self._fit_processes(candidates, process, data, budget)
        processes = candidates[n_plain:]
        if small and processes:
            best = max(processes, key=lambda candidate: candidate.fit.loo_log_likelihood)
            functions = RVMClassifier(
                self.kernel, gamma=self.gamma, **parameters_of(self, *_SHARED)
            )
            self._fit_to(candidates, "functions", functions, data, budget, best.fit.kernel)
        return candidates

    def _is_exact(self, data: Data) -> bool:
        """Tell whether processes of these rows have a function at each of them."""
        k = len(self.classes_)
        is_fast = len(data.used) <= (_EXACT_ROWS if k <= 2 else _EXACT_ROWS_OF_SEVERAL * k**-0.5)
        return is_fast and self.prefer != "small" and not issparse(data.X)

    def _fit_processes(
        self,
        candidates: list[_Candidate],
        process: SparseGPClassifier,
        data: Data,
        budget: Budget,
    ) -> None:
        """Fit processes with one length scale and with one per input, or with the given kernel."""
        if self.prefer == "small" or not KernelSpec(process.kernel, process.gamma).learns:
            return self._fit_to(candidates, "Gaussian process", process, data, budget)
        kernel = "sum" if is_option(process.kernel, "auto") else process.kernel
        warp = False if self.warp is False or issparse(data.X) else "scores"
        gammas: list[GammaOption] = [process.gamma]
        if is_option(process.gamma, "auto"):
            gammas = ["evidence", "ard"] if data.X.shape[1] > 1 else ["evidence"]
        for gamma in gammas:
            own = plain_copy(process).set_params(kernel=kernel, gamma=gamma, warp=warp)
            # Which inputs matter is seen better by centres among all rows than by exact evidence of
            # some: log-loss of online_shoppers .256, not .270. How rough a function is, is not.
            search: ProcessKind | None = "" if is_option(gamma, "ard") else None
            self._fit_to(candidates, "Gaussian process", own, data, budget, search=search)
        return None

    def _fit_to(
        self,
        candidates: list[_Candidate],
        name: str,
        model: SparseClassifier,
        data: Data,
        budget: Budget,
        kernel: KernelChoice | None = None,
        search: ProcessKind | None = None,
    ) -> None:
        """Append fits with a given kernel, or with each that the search (or `search`) proposes.

        After the time is over there are none, unless this would be the first.
        """
        if candidates and budget.over:
            return
        started = time.process_time()
        problem = model._problem(data, len(self.classes_))
        problem = replace(problem, reporter=replace(problem.reporter, budget=budget))
        problem.reporter.say(f"fitting the member {name}")
        method = replace(model._method(), feature_names=feature_names(self))
        method = method if search is None else replace(method, process=search)
        kernels = proposed_kernels(method, problem) if kernel is None else [kernel]
        if len(data.used) > _FEW_ROWS and len(kernels) > 2:
            kernels = [kernels[0], kernels[-1]]
        searching = (time.process_time() - started) / len(kernels)
        for chosen in kernels:
            if candidates and budget.over:
                break
            started, own = time.process_time(), replace(problem, kernel=chosen)
            fit = model._solve(own)
            seconds = searching + time.process_time() - started
            candidates.append(
                _Candidate(_named(name, chosen), plain_copy(model), own, fit, seconds)
            )

    def _process(self, **changes: Any) -> SparseGPClassifier:
        given = {"kernel": self.kernel, "gamma": self.gamma}
        return SparseGPClassifier(**{**given, **parameters_of(self, *_SHARED), **changes})

    def _choose(self, candidates: list[_Candidate], most: int | None) -> list[_Candidate]:
        """Weight the candidates, and return those of some weight, the heaviest (`most`) first."""
        loo = candidates[0].fit.loo
        assert loo is not None
        codes, counts = loo.codes, loo.weight
        parts = [candidate.loo_probabilities for candidate in candidates]
        optimism = np.array([candidate.optimism for candidate in candidates])
        density = np.column_stack([log_own(part, codes) for part in parts])
        density -= optimism / np.sum(counts)
        sizes = [len(candidate.fit.active) for candidate in candidates]
        if self.prefer == "small":
            kept = np.array([smallest_within_error(density, sizes, counts)])
        else:
            weight = pool_classes(parts, codes, counts, optimism).weight
            order = np.argsort(-weight, kind="stable")[:most]
            kept = order[weight[order] >= _LEAST_WEIGHT * np.sum(weight)]
        pool = pool_classes([parts[k] for k in kept], codes, counts, optimism[kept])
        order = np.argsort(-pool.weight, kind="stable")
        kept, self.pool_ = kept[order], replace(pool, weight=pool.weight[order])
        total = np.sum(pool.weight)
        self.weights_ = self.pool_.weight / total if total > 0.0 else np.eye(len(kept))[0]
        weight = np.zeros(len(candidates))
        weight[kept] = self.weights_
        self.choices_ = compared_members(
            [candidate.name for candidate in candidates],
            density,
            counts,
            weight,
            sizes,
            [candidate.seconds for candidate in candidates],
        )
        return [candidates[k] for k in kept]

    def _calibrate(self, chosen: list[_Candidate], budget: Budget) -> None:
        """Calibrate the pool by folds of its members."""
        problems = [replace(c.problem, kernel=c.fit.kernel) for c in chosen]
        predicted = [
            fold_predictions(c.model._solve, problem)
            for c, problem in zip(chosen, problems, strict=True)
        ]
        folds = [predictions for predictions in predicted if predictions is not None]
        if len(folds) < len(chosen) or budget.over:
            return
        parts = [c.fit.probabilities(f.z) for c, f in zip(chosen, folds, strict=True)]
        optimism = self.pool_.weight @ [fold_optimism(c.fit.kernel) for c in chosen]
        pooled = folds[0]._replace(z=np.log(np.maximum(self.pool_(parts), _LEAST)))
        if not np.any(pooled.valid):
            return
        line = best_calibration(pooled.take(pooled.valid), Softmax(), optimism=float(optimism))
        self.pool_ = ClassPool(
            line.slope * self.pool_.weight, line.slope * self.pool_.intercept + line.intercept
        )

    def _publish(self, chosen: list[_Candidate]) -> None:
        """Make fitted models of the fits of some weight."""
        self.members_ = []
        for candidate in chosen:
            model, problem = candidate.model, candidate.problem
            fit = with_reversion(candidate.fit, problem)
            fit = replace(fit, attributes={"classes_": self.classes_, **fit.attributes})
            fit = with_inputs(
                fit, problem, linear=is_linear(model), pooled=True, is_member=bool(self.members_)
            )
            publish(model, fit, input_attributes(self))
            self.members_.append(FittedMember(candidate.name, model, candidate.seconds))
        self.classifier_ = self.members_[0].model

    # Predictions.

    @same_namespace
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return the probability of each class.

        Parameters
        ----------
        X : array or Dask array of shape (n_samples, n_features)
            Rows to predict. A Dask array is predicted block by block when the result is computed.

        Returns
        -------
        probabilities : array of shape (n_samples, n_classes)
            Probabilities, with columns in the order of ``classes_``.
        """
        check_is_fitted(self)
        if is_dask(X := array_of_frame(X, self)):
            width = len(self.classes_)
            return apply_blocks(Apply(self, "predict_proba"), X, width, float_type(X))
        return self.pool_([member.model.predict_proba(X) for member in self.members_])

    @same_namespace
    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Return the log odds of each class.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.

        Returns
        -------
        log_odds : array of shape (n_samples,) or (n_samples, n_classes)
            Log odds of ``classes_[1]`` for two classes; otherwise of each class against the rest.
        """
        z = logit(np.clip(self.predict_proba(X), _LEAST, 1.0 - _LEAST))
        return z[:, 1] if z.shape[1] == 2 else z

    @same_namespace
    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.

        Returns
        -------
        labels : array of shape (n_samples,)
        """
        check_is_fitted(self)
        if is_dask(X := array_of_frame(X, self)):
            return apply_blocks(Apply(self, "predict"), X, 1, self.classes_.dtype)[:, 0]
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


def _named(name: str, kernel: KernelChoice) -> str:
    """Return the name of a candidate with this kernel."""
    if name != "linear" and kernel.learnt:
        one_width = kernel.n_lengths <= np.ndim(kernel.gamma)  # of each part of a sum
        widths = "one length scale" if one_width else "one length scale per input"
        scores = "" if kernel.warp is None else " of normal scores"
        return f"{name}{scores} ({kernel.family}, {widths})"
    return name


def _time_notes(budget: Budget) -> tuple[Note, ...]:
    """Return the warning of a fit that was cut short."""
    if not budget.over:
        return ()
    reason = StopReason(budget.reason)
    message = f"Not all members of the mixture were fitted ({reason}). {reason.advice}"
    return (Note(message, ConvergenceWarning),)


def _on_all_rows(candidate: _Candidate, data: Data) -> _Candidate:
    """Return a candidate that is fitted to all rows, with the kernel that it has."""
    problem = replace(candidate.problem, data=data)
    return replace(candidate, problem=problem, fit=candidate.model._solve(problem))


def _drawn(data: Data) -> Data:
    """Return at most `_COMPARED` rows, drawn at random; few rows of a class are all kept."""
    used = data.used
    if len(used) <= _COMPARED:
        return data
    order = np.random.default_rng(0).permutation(used)
    share, kept = _COMPARED / len(used), []
    for c in np.unique(data.y[used]):
        own = order[data.y[order] == c]
        kept.append(own[: max(_FEW_IN_CLASS, round(share * len(own)))])
    return data.subset(np.sort(np.concatenate(kept)))
