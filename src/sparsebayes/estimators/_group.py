"""Shared parts of the group models: columns in one unit, groups, one coefficient per column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ..data import Data
from ..designs import Design
from ..designs.candidates import column_sizes, one_scale, safe_scale
from ..designs.dense import StoredDesign
from ..designs.sparse import SparseDesign
from ..fitting import Fit, Note, noise_floor_notes
from ..posterior import BlockLowRank, Posterior
from ..posterior.leave_one_out import LooPredictions
from ..predict import Noise, PosteriorModel, leave_one_out, user_coefficients
from ..priors import group_index, is_lists, overlapping_groups
from ..problem import Problem
from ..solvers.group.gibbs import effective_sample_size, split_r_hat
from ..solvers.run import Result, StepCallback, StopReason, run
from ._base import SparseRegressor
from ._estimator import SparseEstimator
from ._sklearn import Number, Options, Whole, feature_names, words

_MIXED = 1.05  # R-hat below which chains count as mixed


CONSTRAINTS: dict[str, Any] = {
    "sites": [words("group", "column")],
    "max_joint_groups": [Whole(0)],
    "max_iter": [Whole(1)],
    "tol": [Number(0, None, "right")],
    "n_chains": [Whole(1)],
    "n_samples": [Whole(4)],
    "n_warmup": [Whole(0)],
    "inference": [words("ep", "gibbs")],
    "anneal": [words("auto"), Options(bool, {True, False})],
}


def stored_columns(X: Any) -> Design:
    """The columns of X, which stays as it is stored, in one scale (as `one_scale`)."""
    size = float(abs(X).max()) if issparse(X) else float(np.max(column_sizes(X)))
    scale = safe_scale(size)
    if issparse(X):
        return SparseDesign(X * scale, scale=np.full(X.shape[1], scale))
    return StoredDesign(X, scale)


def not_settled(reason: str, state: Any) -> str:
    """Return why an EP run has not converged and what to do about it."""
    if reason == StopReason.CYCLING:
        return (
            "Undecided groups depend on each other, so the updates cycle and more steps do "
            "not help. The enumeration of these groups (max_joint_groups) does not need "
            "convergence. If inclusion_prior and slab_variance are learnt from few rows, "
            "pass values for them"
        )
    if reason == StopReason.STALLED:
        return (
            "Rounding errors may move the log evidence, because the noise variance is too small "
            "for double precision, so log_evidence_ and the inclusion probabilities "
            "are uncertain. Pass a larger noise_variance or remove nearly equal columns"
        )
    if reason != StopReason.MAX_ITER:
        return StopReason(reason).advice.rstrip(".")
    learning = state.learning
    why = f"The EP sites still change by {state.change:.1g} per step"
    if learning.settled(state.change) and not learning.done:
        gain = learning.predicted_gain
        nats = f", with a predicted gain of {gain:.1g} nats" if np.isfinite(gain) else ""
        size = learning.last_step_norm
        why = f"The logarithms of the hyperparameters still change by {size:.1g} per step{nats}"
    return f"{why}. Raise max_iter or tol"


def summed(values: np.ndarray, columns: np.ndarray, n_features: int = 0) -> np.ndarray:
    """One value per column of X, from one per copy of it; 0 where there is none."""
    return np.bincount(columns, weights=values, minlength=n_features)


def summed_variance(
    posterior: Posterior, variance: np.ndarray, columns: np.ndarray, n_features: int = 0
) -> np.ndarray:
    """The variance of the coefficient of each column of X: of a sum where it has copies."""
    out, count = summed(variance, columns, n_features), np.bincount(columns)
    several = np.flatnonzero(count > 1)
    for repeated in np.array_split(several, -(-len(several) // 256)) if len(several) else ():
        out[repeated] = posterior.form.variance((columns == repeated[:, None]).astype(np.float64))
    return out


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of columns.

    Attributes
    ----------
    columns : array of int
        Columns of X that the solver sees; repeated where groups overlap.
    group_of : array of int
        The group of each of them.
    names : array
        Labels of the groups.
    index : array of shape (n_features,)
        The (last) group of each column of X.
    always : array of int
        Groups that are always in the model.
    """

    columns: np.ndarray
    group_of: np.ndarray
    names: np.ndarray
    index: np.ndarray
    always: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes that describe the groups."""
        return {"group_index_": self.index, "group_names_": self.names}

    def support(self, probability: np.ndarray, threshold: float = 0.5) -> np.ndarray:
        """Return a mask of the columns of X whose group has more than this probability."""
        mask = np.zeros(len(self.index), dtype=bool)
        mask[self.columns[(probability > threshold)[self.group_of]]] = True
        return mask

    def of(self, columns: np.ndarray) -> Groups:
        """Return the groups of some of the columns that the solver sees."""
        return replace(self, columns=self.columns[columns], group_of=self.group_of[columns])


class GroupEstimator(SparseEstimator):
    """An estimator with the parameter `groups`, whose candidates are the columns of X.

    Parameters
    ----------
    groups : array-like of n_features labels, list of lists of column indices, or None
        Groups of columns; None makes each column a group of its own. Lists may contain column names
        if X is a data frame.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        Posterior mean of each coefficient.
    coef_std_ : array of shape (n_features,)
        Posterior standard deviation of each coefficient, multiplied by `calibration_`.
    group_names_ : array of shape (n_groups,)
        Label of each group.
    group_index_ : array of int of shape (n_features,)
        Index of each column's group in `group_names_`; the first one if it has several.
    """

    groups: Any
    always: Any = None
    kernel = None


def disjoint_groups(model: GroupEstimator) -> Groups:
    """Return the groups that the user gave, checked; they do not overlap."""
    n_features = model.n_features_in_
    index, names = group_index(_column_numbers(model), n_features)
    return Groups(np.arange(n_features), index, names, index, np.empty(0, dtype=np.intp))


def selectable_groups(model: GroupEstimator) -> Groups:
    """Return `groups`, which may overlap, and `always`, checked."""
    columns, group_of, names = overlapping_groups(_column_numbers(model), model.n_features_in_)
    index = np.empty(model.n_features_in_, dtype=np.intp)
    index[columns[::-1]] = group_of[::-1]
    labels = np.atleast_1d(np.asarray(() if model.always is None else model.always))
    unknown = labels[~np.isin(labels, names)]
    if unknown.size:
        raise ValueError(
            f"always contains {unknown[0]}, which is not a group. Use labels of groups, or "
            "column indices if each column is a group."
        )
    always = np.flatnonzero(np.isin(names, labels))
    if len(always) == len(names):
        raise ValueError("always contains every group, so there is nothing to select.")
    return Groups(columns, group_of, names, index, always)


def _column_numbers(model: GroupEstimator) -> Any:
    """Return the parameter `groups`; its lists may name columns of a frame."""
    names = feature_names(model)
    if names is None or not is_lists(model.groups):
        return model.groups
    at = {name: j for j, name in enumerate(names)}
    return [[at.get(c, c) if isinstance(c, str) else c for c in group] for group in model.groups]


class GroupRegressor(GroupEstimator, SparseRegressor):
    """Base of the group models. The candidates are the columns of X, all in one unit.

    Scaling each column to its own unit, as the other models may, would change the prior that the
    columns of a group share. Where X is so large or small that its squares overflow or underflow,
    all columns are scaled by the same power of two.

    Parameters
    ----------
    noise_variance : "learn" or float
        ``"learn"`` estimates the variance of the noise; a float is a known variance.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseRegressor._parameter_constraints,
        **CONSTRAINTS,
    }

    def _problem(self, data: Data) -> Problem:
        return replace(super()._problem(data), columns=one_scale)


def column_fit(
    problem: Problem,
    posterior: Posterior,
    variance: np.ndarray,
    groups: Groups,
    active: np.ndarray,
    *,
    function: tuple[np.ndarray, np.ndarray] | None = None,
    attributes: dict[str, Any],
    extra: dict[str, Any] | None = None,
    notes: tuple[Note, ...] = (),
    **fields: Any,
) -> Fit:
    """Return the fit of a posterior of all columns, which is in the units of the solver.

    `variance` is that of the coefficients, `function` mean and variance of X w on the rows
    where the solver knows them.
    """
    if problem.noise_variance is None:
        noise = float(posterior.noise_variance) * problem.units.target**2
        notes = (*noise_floor_notes(problem, noise), *notes)
    scale, n = float(problem.units.target), problem.units.n_observations
    posterior = replace(posterior, offset=problem.offset).rescaled(scale, n)
    posterior = replace(
        posterior,
        noise_variance=float(posterior.noise_variance),
        log_evidence=float(posterior.log_evidence),
    )
    basis = problem.design.basis(np.arange(problem.design.n_candidates))
    model = PosteriorModel(basis, posterior)
    unit, d = weight_unit(problem), len(groups.index)
    columns = groups.columns if len(posterior.mean) != d else None
    mean = posterior.mean * (unit / scale)
    with np.errstate(over="ignore", under="ignore"):
        coef_variance = variance * unit * unit
        if columns is not None:
            coef_variance = summed_variance(posterior, variance * scale**2, columns, d)
            coef_variance = coef_variance * (unit / scale) ** 2
    return Fit(
        model,
        active,
        None,
        problem.choice,
        Noise(posterior.noise_variance),
        loo=_loo_predictions(problem, model, function),
        attributes={
            "coef_": mean if columns is None else summed(mean, columns, d),
            "coef_std_": np.sqrt(np.maximum(coef_variance, 0.0)),
            "intercept_": float(user_coefficients(model)[1]),
            **groups.attributes(),
            **attributes,
        },
        extra={"groups": groups, **(extra or {})},
        notes=notes,
        **fields,
    )


# Models that are sampled.


def chain_seeds(random_state: Any, n_chains: int) -> np.ndarray:
    """Return the seed of each chain."""
    return check_random_state(random_state).randint(2**31 - 1, size=n_chains)


def run_chains(
    problem: Problem,
    make: Callable[[int, int], Any],
    seeds: np.ndarray,
    n_sweeps: int,
    callback: StepCallback[Any] | None,
) -> tuple[list[Any], dict[str, Any]]:
    """Run `make(number, seed)` once per chain; return their states, and fields of the fit."""
    results: list[Result] = []
    for i, seed in enumerate(seeds):
        solver = make(i, int(seed))
        results.append(run(solver, problem.design, problem.t, max_iter=n_sweeps, callback=callback))
        if not results[-1].converged:
            break
    names = results[0].history
    history = {k: np.concatenate([r.history[k] for r in results]) for k in names}
    history["chain"] = np.repeat(np.arange(len(results)), [r.n_iter for r in results])
    fields = {
        "history": problem.units.to_user(history),
        "n_iter": sum(r.n_iter for r in results),
        "stop_reason": results[-1].stop_reason,
    }
    states = [r.state for r in results if r.state.draws]
    if not states:
        raise RuntimeError("The sampler was stopped during warm-up, before it stored a sample.")
    return states, fields


def chain_diagnostics(
    series: np.ndarray, reason: StopReason, name: str
) -> tuple[dict[str, Any], bool, tuple[Note, ...]]:
    """Return R-hat and effective sample size, whether the chains have mixed, and a warning."""
    r_hat = split_r_hat(series)
    attributes = {"r_hat_": r_hat, "effective_sample_size_": effective_sample_size(series)}
    worst = float(np.max(r_hat))
    if worst < _MIXED and reason.converged:
        return attributes, True, ()
    message = (
        f"The chains of {name} have not mixed (stopped by {reason}): the largest R-hat is "
        f"{worst:.3g}, but it should be below {_MIXED}. Raise n_samples and n_warmup, and do "
        "not use quantities with a large r_hat_."
    )
    return attributes, False, (Note(message, ConvergenceWarning),)


def _loo_predictions(
    problem: Problem, model: PosteriorModel, function: tuple[np.ndarray, np.ndarray] | None
) -> LooPredictions | None:
    """Return leave-one-out predictions, by the moments of X w on the rows where given."""
    posterior = model.posterior
    if function is None or not isinstance(posterior.form, BlockLowRank):
        return leave_one_out(model, problem.data)
    y, scale = problem.rows.y, float(problem.units.target)
    return LooPredictions(
        scale * (problem.t - function[0]),
        scale * scale * function[1] + posterior.offset_variance,
        y,
        np.ones(len(y)),
        posterior.noise_variance,
    )


def weight_unit(problem: Problem) -> float:
    """Return a coefficient of the user over the one of the solver."""
    return float(problem.units.target) * float(problem.design.column_scale[0])
