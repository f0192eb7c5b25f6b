"""A mixture of Gaussian processes and linear models of one target."""

from __future__ import annotations

import copy
import time
import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Bunch, check_random_state

from .._array import RandomState, to_numpy
from ..callbacks import Budget
from ..fitting import Note
from ..kernels import GammaOption, KernelChoice, KernelName, is_option
from ..posterior.leave_one_out import Calibration
from ..posterior.predictive import LocationScale, Predictive, observation
from ..predict import positive_root, without_noise
from ..relevance import copy_notes
from ..solvers.run import StopReason
from ..stacking import (
    Stack,
    is_worse,
    smallest_within_error,
    stacking_weights,
    with_small_errors,
    without_small,
)
from ._base import fit_rows, learn_kernel, read_data
from ._sklearn import check_is_fitted, warn, whole_fit, words
from ._stack import FittedMember, Mixture, compared_members, comparison_notes, parameters_of
from .forward import ForwardRegressor
from .rvm import RVMRegressor
from .sparse_gp import SparseGPRegressor
from .target_transform import (
    MARGIN,
    TargetRegressor,
    exponential_draws,
    function_std,
    logarithm,
    of_exponential,
    read_target,
)

# Parameters that all members share with the mixture.
_SHARED = ("fit_intercept", "cache_size", "random_state", "verbose")
_EXACT_ROWS = 4_500  # rows up to which max_terms="auto" is the exact process
# Rows up to which there is a process of log y. At 4,000 rows RMSE was no better on three tables.
_FEW_ROWS = 2_000
_MOST_COLUMNS = 2_000  # inputs of a linear model
_PROCESS = "Gaussian process"  # the name of the first
# Inputs of an additive kernel, which has one pass over the kernel matrix for each: of more inputs
# those that are most relevant to the first process.
_MOST_ADDITIVE = 40
# With fewer rows the folds of the calibration learn length scales again: those of all inputs.
_ROWS_PER_LENGTH = 5
_PROCESS_OF_LOG = "Gaussian process of log y"  # with the kernel of the first


@dataclass(frozen=True, eq=False)
class Member(FittedMember):
    """A fitted regressor of y or of log y.

    Attributes
    ----------
    name, model, seconds
        As in `FittedMember`.
    largest_log : float or None
        Largest log y of the training rows, for a model of log y; None for a model of y.
    """

    largest_log: float | None

    @property
    def log(self) -> bool:
        """True for a model of log y."""
        return self.largest_log is not None

    def predictive(self, X: Any) -> Predictive:
        """Return the distribution of y at rows X."""
        return self.distribution_of_y(self.model._predictive(X))

    def function(self, X: Any) -> Predictive:
        """Return mean and standard deviation of the mean of y at rows X, without the noise."""
        mean, std = self.model.predict(X, return_std="function")
        if self.largest_log is not None:
            of_target = of_exponential(self.model._predictive(X), self.largest_log)
            mean, std = of_target.mean, function_std(of_target, std)
        return LocationScale(mean, std)

    def draws(self, X: Any, n: int, seed: int) -> np.ndarray:
        """Return n draws of y at rows X."""
        draws = np.asarray(self.model.sample_y(X, n, seed), dtype=np.float64)
        if self.largest_log is None:
            return draws
        return exponential_draws(draws, of_exponential(self.model._predictive(X), self.largest_log))

    def leave_one_out(self, y: np.ndarray) -> Predictive:
        """Return the distribution of each training row, left out."""
        loo, tail = self.model._loo(), self.model.noise_tail_
        target = logarithm(y) if self.log else y
        noise = positive_root(loo.noise_variance)
        std = positive_root(loo.variance)
        return self.distribution_of_y(observation(target - loo.residual, std, tail, noise))

    def distribution_of_y(self, of_target: Predictive) -> Predictive:
        """Return the distribution of y, given that of the target of the model."""
        if self.largest_log is None:
            return of_target
        return of_exponential(of_target, self.largest_log)


class StackedRegressor(Mixture, TargetRegressor):
    """A mixture of Gaussian processes and linear models, weighted by leave-one-out density.

    The members are a Gaussian process, a second one with an additive kernel of the ranks of the
    inputs (up to 4,500 rows), sparse linear models and, up to 2,000 rows, a Gaussian process of the
    logarithm of a positive target, which shares the kernel of the first. With more rows the second
    process has the average of the kernel of the first and an additive one, and is that of the
    logarithm if the target is positive. A model of the logarithm gets weight 0 if its mean predicts
    worse: its leave-one-out RMSE is more than 1 % above that of the first process. The weights of
    the others maximise the leave-one-out log density of the mixture (stacking of predictive
    distributions), among weights whose leave-one-out RMSE is at most 0.5 % above the smallest. All
    predictions are those of the mixture.

    If the process of the logarithm is more than 50 nats ahead of the first one, there is another
    one, with a kernel learnt from the logarithm. A few large values then decide which mean is best,
    and a larger mean square error counts only if it is larger by more than one standard error, or
    its root by more than a tenth.

    Parameters
    ----------
    kernel, gamma, warp, likelihood, fit_intercept, cache_size, random_state, verbose
        Parameters of the Gaussian processes; see `SparseGPRegressor`. The additive process is
        fitted only with ``kernel="auto"``, a gamma of ``"auto"`` or ``"ard"``,
        ``max_terms="auto"``. Of more than 40 inputs its kernel has those that are most relevant to
        the first process.
    noise_variance : {"input", "learn"}, float or array of shape (n_samples,), default="input"
        ``"input"`` lets the noise variance depend on the inputs if that predicts better;
        ``"learn"`` has one variance. A float or an array is a known variance of y; models of log y
        are then not fitted.
    max_terms : "auto", int or None, default="auto"
        Largest number of functions of the Gaussian processes. ``"auto"`` uses all of up to 4,500
        rows, and otherwise the default of `SparseGPRegressor`.
    target_transform : {"auto", "log"} or None, default="auto"
        ``"auto"`` fits models of y and, if y is positive and has at most 2,000 rows, of log y.
        ``"log"`` and None fit only one of these.
    prefer : {"accurate", "small"}, default="accurate"
        ``"accurate"`` is the mixture. ``"small"`` is the member with the fewest functions or
        columns within one standard error of the best leave-one-out density, among linear models,
        selected kernel functions and Gaussian processes, all with ``warp=False``.

    Attributes
    ----------
    members_
    weights_ : array
        Weights of the members.
    choices_
    regressor_ : estimator
        Model of the member with the largest weight.
    target_transform_ : "log" or None
        Transform of the target in that model.
    density_gain_ : float
        Leave-one-out log density of the Gaussian process of log y minus that of y, in nats; NaN if
        only one of them was fitted.
    log_evidence_ : float
        Log evidence of y under the member with the largest weight.
    converged_, notes_
    loo_ : Bunch
        Leave-one-out ``residuals``, ``std``, ``log_density``, ``weight`` and ``r2`` of the mixture.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.estimators.stacked import StackedRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, (150, 2))
    >>> y = np.exp(np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(150))
    >>> model = StackedRegressor().fit(X, y)
    >>> model.choices_["member"][2:]
    ['Gaussian process', 'additive Gaussian process', 'Gaussian process of log y']
    >>> model.members_[0].name
    'Gaussian process of log y'
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseGPRegressor._parameter_constraints,
        "target_transform": [None, words("auto", "log")],
        "prefer": [words("accurate", "small")],
    }
    for _name in ("neighbours", "device", "n_jobs", "degree", "coef0"):
        _parameter_constraints.pop(_name, None)
    del _name

    _member = SparseGPRegressor

    def __init__(
        self,
        kernel: KernelName | None = "auto",
        *,
        gamma: GammaOption = "auto",
        warp: Any = "auto",
        noise_variance: Any = "input",
        likelihood: str = "gaussian",
        max_terms: Any = "auto",
        fit_intercept: bool = True,
        cache_size: float = 200,
        random_state: RandomState = 0,
        target_transform: Any = "auto",
        prefer: str = "accurate",
        max_time: float | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.warp = warp
        self.noise_variance = noise_variance
        self.likelihood = likelihood
        self.max_terms = max_terms
        self.fit_intercept = fit_intercept
        self.cache_size = cache_size
        self.random_state = random_state
        self.target_transform = target_transform
        self.prefer = prefer
        self.max_time = max_time
        self.verbose = verbose

    @whole_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> StackedRegressor:
        """Fit all members, and weight them.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Inputs.
        y : array of shape (n_samples,)
            Target.
        sample_weight : array of shape (n_samples,), optional
            Number of observations that each row stands for; see `SparseGPRegressor`.

        Returns
        -------
        self
        """
        self._validate_params()
        y, weight, used = read_target(self, y, sample_weight)
        positive = bool(np.all(used > 0.0))
        largest_log = float(np.log(np.max(used))) if positive else 0.0
        candidates = _Candidates(X, y, weight, largest_log, Budget(self.max_time))
        self._fit_members(candidates, used, positive)
        self._weight_members(candidates)
        self.notes_ = comparison_notes(
            self.choices_,
            "leave-one-out log density",
            [member.name for member in self.members_],
            self.weights_,
            self.prefer == "small",
        )
        if self.target_transform == "auto" and not positive:
            self.notes_.append(
                f"the logarithm of the target has no model: {np.sum(used <= 0.0)} of {len(used)} "
                "values are zero or negative"
            )
        self.converged_ = not candidates.budget.reason
        for note in candidates.warnings(self.members_):
            warn(*note)
        return self

    def _fit_members(self, candidates: _Candidates, used: np.ndarray, positive: bool) -> None:
        """Fit all members, the plainest first."""
        n, is_small = len(used), len(used) <= _FEW_ROWS
        known_noise = not is_option(self.noise_variance, "learn", "input")
        of_y, of_log = self.target_transform != "log", self.target_transform == "log"
        may_be_log = self.target_transform == "auto" and positive and not known_noise
        of_log = of_log or (may_be_log and is_small)
        kernel = None
        if candidates.n_columns <= _MOST_COLUMNS:
            # First: in the time that it takes no process has more than a few functions.
            for log in [False] * of_y + [True] * of_log:
                if candidates.goes_on:
                    candidates.add("linear of log y" if log else "linear", self._linear(), log)
        if of_y and candidates.goes_on:
            process = candidates.add(_PROCESS, self._process(n))
            kernel = process.model._fitted.kernel
            if self._has_additive(n) and candidates.goes_on:
                # One for many rows, to save time: that of log y, which is better in the median.
                self._add_additive(candidates, process.model, n, may_be_log and not is_small)
        if of_log and candidates.goes_on:
            process = candidates.add(_PROCESS_OF_LOG, self._process(n), True, kernel)
            kernel = process.model._fitted.kernel if kernel is None else kernel
            if self._has_kernel_of_log(candidates, kernel):
                candidates.add("Gaussian process and kernel of log y", self._process(n), True)
        if self.prefer == "small":
            for log in [False] * of_y + [True] * of_log:
                name = "functions of log y" if log else "functions"
                if candidates.goes_on:
                    candidates.add(name, self._functions(), log, kernel)

    def _add_additive(
        self, candidates: _Candidates, process: SparseGPRegressor, n: int, log: bool
    ) -> None:
        """Fit a process with an additive kernel; for many rows averaged with that of all inputs."""
        n_inputs = process.n_features_in_
        model, name = self._process(n, kernel="additive", gamma="ard"), "additive Gaussian process"
        if n <= _FEW_ROWS and n_inputs <= _MOST_ADDITIVE:
            candidates.add(name, model)
            return
        started = time.process_time()
        inputs = np.argsort(-process.feature_relevance_, kind="stable")[:_MOST_ADDITIVE]
        kernel = candidates.learn_kernel(model, log, inputs)
        if n > _FEW_ROWS:
            kernel = process._fitted.kernel.averaged_with(kernel)
            model, name = self._process(n), "partly additive Gaussian process"
        if candidates.goes_on and n >= _ROWS_PER_LENGTH * kernel.n_lengths:
            name = f"{name} of log y" if log else name
            candidates.add(name, model, log, kernel, started=started)

    def _has_additive(self, n_rows: int) -> bool:
        """Tell whether a process with an additive kernel is fitted beside that of all inputs."""
        learns = is_option(self.kernel, "auto") and is_option(self.gamma, "auto", "ard")
        learns = learns and is_option(self.max_terms, "auto")
        return learns and n_rows <= _EXACT_ROWS and self.prefer != "small"

    def _has_kernel_of_log(self, candidates: _Candidates, kernel: KernelChoice) -> bool:
        """Tell whether log y is so much better a target that a kernel is learnt from it as well.

        A few large values decide the kernel that is learnt from y.
        """
        may_learn = kernel.learnt and self.prefer != "small" and candidates.goes_on
        return may_learn and candidates.density_gain() > MARGIN

    def _process(self, n_rows: int, **changes: Any) -> SparseGPRegressor:
        exact = is_option(self.max_terms, "auto") and n_rows <= _EXACT_ROWS
        return SparseGPRegressor(
            **{
                "kernel": self.kernel,
                "gamma": self.gamma,
                "warp": False if self.prefer == "small" else self.warp,
                "noise_variance": self.noise_variance,
                "likelihood": self.likelihood,
                "max_terms": None if exact else self.max_terms,
                **parameters_of(self, *_SHARED),
                **changes,
            },
        )

    def _functions(self) -> ForwardRegressor:
        return ForwardRegressor(
            self.kernel,
            gamma=self.gamma,
            noise_variance=self.noise_variance,
            likelihood=self.likelihood,
            **parameters_of(self, *_SHARED),
        )

    def _linear(self) -> RVMRegressor:
        return RVMRegressor(
            kernel=None,
            noise_variance=self.noise_variance,
            likelihood=self.likelihood,
            **parameters_of(self, *_SHARED),
        )

    def _weight_members(self, candidates: _Candidates) -> None:
        """Weight the members by their leave-one-out densities, and keep those that count."""
        members, counts, y = candidates.members, candidates.counts, candidates.y
        density = np.column_stack([part.log_density(y) for part in candidates.loo])
        sizes = [len(member.model.active_) for member in members]
        weight, able = np.zeros(len(members)), candidates.with_good_means()
        if self.prefer == "small":
            own_sizes = [sizes[k] for k in able]
            weight[able[smallest_within_error(density[:, able], own_sizes, counts)]] = 1.0
        else:
            residuals = y[:, None] - np.column_stack([candidates.loo[k].mean for k in able])
            densest = stacking_weights(density[:, able], counts)
            errors = candidates.errors_of_means
            weight[able] = without_small(
                with_small_errors(densest, residuals, counts, errors=errors)
            )
        names, seconds = [m.name for m in members], [m.seconds for m in members]
        self.choices_ = compared_members(names, density, counts, weight, sizes, seconds)
        order = [k for k in np.argsort(-weight, kind="stable") if weight[k] > 0.0]
        self.members_, self.weights_ = [members[k] for k in order], weight[order]
        self._loo_predictive = Stack(tuple(candidates.loo[k] for k in order), self.weights_)
        self._counts, self._y = counts, y
        counted = counts > 0
        levels = np.abs(2.0 * self._loo_predictive.cdf(y) - 1.0)
        self._conformal = Calibration.from_residuals(levels[counted], counts[counted])
        heaviest = self.members_[0]
        self.regressor_ = heaviest.model
        self.target_transform_ = "log" if heaviest.log else None
        self.log_evidence_ = float(heaviest.model.log_evidence_)
        if heaviest.log:
            observed = np.ones(len(y)) if candidates.weight is None else candidates.weight
            self.log_evidence_ -= float(observed @ logarithm(y))
        self.density_gain_ = candidates.density_gain()
        self._take_inputs(heaviest.model)

    # Predictions.

    def predict(
        self, X: Any, return_std: bool | str = False, return_cov: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict a new observation at each row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.
        return_std : bool or "function", default=False
            Also return the standard deviation of a new observation, noise included;
            ``"function"``: of its mean given the function, without the noise.
        return_cov : bool, default=False
            Also return the joint covariance of new observations, noise included. Not available if a
            member is a model of log y.

        Returns
        -------
        mean : array of shape (n_samples,)
        std or cov : array, only if requested
        """
        check_is_fitted(self)
        if return_std and return_cov:
            raise ValueError("Pass either return_std=True or return_cov=True, not both.")
        if return_cov:
            return self._joint(X)
        if without_noise(return_std):
            parts = tuple(member.function(X) for member in self.members_)
            function = Stack(parts, self.weights_)
            return function.mean, function.std
        if return_std:
            predictive = self._predictive(X)
            return predictive.mean, predictive.std
        means = [
            member.predictive(X).mean if member.log else member.model.predict(X)
            for member in self.members_
        ]
        return self.weights_ @ np.stack(means)

    def _joint(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        if any(member.log for member in self.members_):
            raise ValueError(
                "A model of log y has no joint covariance of y: use sample_y, or fit with "
                "target_transform=None."
            )
        parts = [member.model.predict(X, return_cov=True) for member in self.members_]
        mean = self.weights_ @ np.stack([part[0] for part in parts])
        covariance = sum(
            weight * (part[1] + np.multiply.outer(part[0] - mean, part[0] - mean))
            for weight, part in zip(self.weights_, parts, strict=True)
        )
        return mean, np.asarray(covariance)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: RandomState = 0) -> np.ndarray:
        """Draw new observations from the joint predictive distribution.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            Rows to draw at.
        n_samples : int, default=1
            Number of draws. Each comes from a member drawn with the probability of its weight.
        random_state : int, RandomState or None, default=0
            Seed of the draws; with None they differ in each call.

        Returns
        -------
        samples : array of shape (n_rows, n_samples)
        """
        check_is_fitted(self)
        random = check_random_state(random_state)
        which = random.choice(len(self.members_), n_samples, p=self.weights_)
        columns: list[np.ndarray] = []
        for k, member in enumerate(self.members_):
            seed, n_own = random.randint(np.iinfo(np.int32).max), int(np.sum(which == k))
            if n_own == 0:
                continue
            columns.append(member.draws(X, n_own, seed))
        order = np.argsort(np.argsort(which, kind="stable"), kind="stable")
        return np.concatenate(columns, axis=1)[:, order]

    @property
    def loo_(self) -> Any:
        """Leave-one-out predictions of the mixture for the training rows.

        Raises
        ------
        AttributeError
            If the model was loaded from a file, which does not store leave-one-out predictions.
        """
        check_is_fitted(self)
        if self._loo_predictive is None:
            raise AttributeError(
                "loo_ is not stored by a StackedRegressor that was loaded from a file. Fit it to "
                "the training rows."
            )
        loo, y, counts = self._loo_predictive, self._y, self._counts
        residuals = y - loo.mean
        total = counts @ np.square(y - counts @ y / np.sum(counts))
        return Bunch(
            residuals=residuals,
            std=loo.std,
            log_density=loo.log_density(y),
            weight=counts,
            r2=float(1.0 - counts @ np.square(residuals) / total) if total > 0 else 0.0,
        )

    def _predictive(self, X: Any) -> Predictive:
        parts = [member.predictive(X) for member in self.members_]
        return Stack(tuple(parts), self.weights_)

    @property
    def _calibration(self) -> Any:  # type: ignore[override]
        return self._conformal

    def _without_calibration(self) -> Any:
        model = copy.copy(self)
        model.members_ = [
            replace(member, model=member.model._without_calibration()) for member in self.members_
        ]
        return model

    def __getstate__(self) -> dict[str, Any]:
        # A saved model keeps nothing as long as the training rows.
        return {**super().__getstate__(), "_loo_predictive": None, "_y": None, "_counts": None}


class _Candidates:
    """The fitted members, with their leave-one-out predictions."""

    def __init__(
        self, X: Any, y: np.ndarray, weight: Any, largest_log: float, budget: Budget
    ) -> None:
        self.X, self.y, self.weight, self.largest_log = X, y, weight, largest_log
        self.budget = budget
        self.members: list[Member] = []
        self.loo: list[Predictive] = []
        self._warned: dict[str, list[Any]] = {}
        self._of_rows: tuple[Note, ...] = ()

    @property
    def n_columns(self) -> int:
        """Number of columns of X, which has not been checked yet."""
        return (self.X if hasattr(self.X, "shape") else np.asarray(self.X)).shape[-1]

    @property
    def counts(self) -> np.ndarray:
        """Number of observations that each row stands for."""
        return self.members[0].model._loo().weight

    def add(
        self,
        name: str,
        model: Any,
        log: bool = False,
        kernel: KernelChoice | None = None,
        started: float | None = None,
    ) -> Member:
        """Fit a member, with a known kernel where one is given."""
        started = time.process_time() if started is None else started
        target = logarithm(self.y) if log else self.y
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            model.set_params(max_time=self.budget.seconds_left)
            data = read_data(model, self.X, target, self.weight)
            fit_rows(model, data, kernel, is_member=True)
        if not self.members:
            self._of_rows = copy_notes(data)
        if model.stop_reason_ == StopReason.INTERRUPTED:
            self.budget.interrupt()
        largest = self.largest_log if log else None
        member = Member(name, model, time.process_time() - started, largest)
        self.members.append(member)
        self.loo.append(member.leave_one_out(self.y))
        self._warned[name] = [(str(note.message), note.category) for note in notes]
        return member

    def learn_kernel(self, model: Any, log: bool, inputs: np.ndarray) -> KernelChoice:
        """Return the kernel that a model learns from some of the inputs."""
        model.set_params(max_time=self.budget.seconds_left)
        X = self.X
        if len(inputs) < np.shape(X)[1]:
            X = np.array(X.toarray() if issparse(X) else to_numpy(X), dtype=np.float64)
            X[:, np.setdiff1d(np.arange(X.shape[1]), inputs)] = 0.0  # constants are left out
        target = logarithm(self.y) if log else self.y
        return learn_kernel(model, read_data(model, X, target, self.weight))

    @property
    def goes_on(self) -> bool:
        """True where a further member may be fitted."""
        return not self.members or not self.budget.over

    def warnings(self, members: list[Member]) -> list[Any]:
        """Return the warnings of these members, each once, and one where there may be others."""
        notes = list(dict.fromkeys(note for m in members for note in self._warned[m.name]))
        notes += self._of_rows
        if self.budget.over and not any(note[1] is ConvergenceWarning for note in notes):
            reason = StopReason(self.budget.reason)
            message = f"Not all members of the mixture were fitted ({reason}). {reason.advice}"
            notes.append((message, ConvergenceWarning))
        return notes

    def with_good_means(self) -> list[int]:
        """Return the members but models of log y whose means are worse than the process of y."""
        residuals = [self.y - part.mean for part in self.loo]
        of_y = [r for r, m in zip(residuals, self.members, strict=True) if m.name == _PROCESS]
        counts, errors = self.counts, self.errors_of_means
        return [
            k
            for k, m in enumerate(self.members)
            if not (m.log and any(is_worse(residuals[k], r, counts, errors=errors) for r in of_y))
        ]

    @property
    def errors_of_means(self) -> float:
        """Standard errors by which means may be worse: 1 where log y is clearly the better target.

        The noise is then a factor, and a few large values decide which mean is best.
        """
        return 1.0 if self.density_gain() > MARGIN else 0.0

    def density_gain(self) -> float:
        """Return by how many nats the process of log y, if there is one, is ahead of that of y."""
        densities = {
            m.name: self.counts @ part.log_density(self.y)
            for m, part in zip(self.members, self.loo, strict=True)
            if m.name in (_PROCESS, _PROCESS_OF_LOG)
        }
        return float(densities.get(_PROCESS_OF_LOG, np.nan) - densities.get(_PROCESS, np.nan))
