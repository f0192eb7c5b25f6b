"""What the group models share: columns as they are, groups of them, one coefficient per column."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ..callbacks import Progress
from ..designs import Design
from ..designs.dense import StoredDesign
from ..designs.sparse import SparseDesign
from ..posterior import BlockLowRank
from ..posterior.left_out import LeftOut
from ..priors import group_index, is_lists
from ..solvers.group.gibbs import effective_sample_size, split_r_hat
from ..solvers.run import Result, StopReason, run
from ._base import Problem, SparseRegressor, keep_left_out
from ._common import column_sizes, is_text, plain_scale, warn_without_noise
from ._sklearn import Number, Options, Whole, warn, words

_MIXED = 1.05  # R-hat below which chains count as mixed


CONSTRAINTS: dict[str, Any] = {
    "sites": [words("group", "column")],
    "max_joint_groups": [Whole(0)],
    "max_iter": [Whole(1)],
    "tol": [Number(0, None, "right")],
    "damping": [Number(0, 1, "right")],
    "n_chains": [Whole(1)],
    "n_samples": [Whole(4)],
    "n_warmup": [Whole(0)],
    "inference": [words("ep", "gibbs")],
    "anneal": [words("auto"), Options(bool, {True, False})],
}


def column_numbers(model: Any) -> Any:
    """`groups` of a model; lists may name columns of a frame."""
    at = {name: j for j, name in enumerate(getattr(model, "feature_names_in_", ()))}
    if not at or not is_lists(model.groups):
        return model.groups
    return [[at.get(c, c) if isinstance(c, str) else c for c in group] for group in model.groups]


def stored_columns(X: Any) -> Design:
    """The columns of X, which stays as it is stored, in one scale (as `one_scale`)."""
    size = float(abs(X).max()) if issparse(X) else float(np.max(column_sizes(X)))
    scale = plain_scale(size)
    if issparse(X):
        return SparseDesign(X * scale, scale=np.full(X.shape[1], scale))
    return StoredDesign(X, scale)


def not_settled(reason: str, state: Any) -> str:
    """Return why an EP run has not converged and what to do about it."""
    if reason == StopReason.CYCLING:
        return (
            "undecided groups that depend on each other go round in circles, and more steps will "
            "not help; the joint look at them (max_joint_groups) does not need them to settle. "
            "Give inclusion_prior and slab_variance where they are learnt from too few rows"
        )
    if reason != StopReason.MAX_ITER:
        return StopReason(reason).advice.rstrip(".")
    learning = state.learning
    why = f"its sites still move by {state.change:.1g} a step"
    if learning.settled(state.change) and not learning.done:
        gain = f", a step promises {learning.gain:.1g} nats" if np.isfinite(learning.gain) else ""
        why = f"what it learns still moves by {learning.moved:.1g} in its logarithm{gain}"
    return f"{why}; raise max_iter, or tol if the last digits do not matter"


def summed(values: np.ndarray, columns: np.ndarray, n_features: int = 0) -> np.ndarray:
    """One value per column of X, from one per copy of it; 0 where there is none."""
    return np.bincount(columns, weights=values, minlength=n_features)


def summed_variance(
    posterior: Any, variance: np.ndarray, columns: np.ndarray, n_features: int = 0
) -> np.ndarray:
    """The variance of the coefficient of each column of X: of a sum where it has copies."""
    out, count = summed(variance, columns, n_features), np.bincount(columns)
    several = np.flatnonzero(count > 1)
    for some in np.array_split(several, -(-len(several) // 256)) if len(several) else ():
        out[some] = posterior.form.variance((columns == some[:, None]).astype(np.float64))
    return out


class GroupRegressor(SparseRegressor):
    """Base of the group models. The candidates are the columns of X, all in one unit.

    Scaling each column to its own unit, as the other models may, would change the prior that the
    columns of a group share. Where X is so large or small that its squares leave float64 all
    columns are scaled by the same power of two.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseRegressor._parameter_constraints,
        **CONSTRAINTS,
    }
    kernel = None
    _columns: np.ndarray  # of X, that the solver sees: repeated where groups overlap

    def _set_groups(self) -> np.ndarray:
        """Check `groups`; the group of each column."""
        self.group_index_, self.group_names_ = group_index(
            column_numbers(self), self.n_features_in_
        )
        return self.group_index_

    def _weight_unit(self, problem: Problem) -> float:
        """A coefficient of the user over the solver's."""
        return float(problem.target_scale) * float(problem.design.column_scale[0])

    def _keep_columns(
        self, problem: Problem, posterior: Any, variance: np.ndarray, function: Any = None
    ) -> None:
        """Fitted attributes that every group model has, in the units of the user.

        `function` are mean and variance of X w on the rows, where the solver knows them.
        """
        if is_text(self.noise_variance, "learn"):
            n = problem.design.n_observations
            warn_without_noise(self, problem.t, n, float(posterior.noise_variance))
        posterior = replace(posterior, offset=problem.offset)
        posterior = posterior.rescaled(problem.target_scale, problem.design.n_observations)
        self.basis_ = problem.design.basis(np.arange(problem.design.n_candidates))
        self.posterior_ = posterior
        self.noise_variance_ = float(posterior.noise_variance)
        self.log_evidence_ = float(posterior.log_evidence)
        unit = self._weight_unit(problem)
        d = self.n_features_in_
        columns = self._columns if len(posterior.mean) != d else None
        mean = posterior.mean * (unit / float(problem.target_scale))
        self.coef_ = mean if columns is None else summed(mean, columns, d)
        with np.errstate(over="ignore", under="ignore"):
            self.coef_variance_ = variance * unit * unit
            if columns is not None:
                spread = summed_variance(
                    posterior, variance * float(problem.target_scale) ** 2, columns, d
                )
                self.coef_variance_ = spread * (unit / float(problem.target_scale)) ** 2
        self.intercept_ = float(posterior.offset - np.sum(self.basis_.centre * posterior.mean))
        if function is None or not isinstance(posterior.form, BlockLowRank):
            keep_left_out(self, problem.rows)
            return
        mean, spread = function
        _, y, _ = problem.rows
        scale = float(problem.target_scale)
        self._left_out = LeftOut(
            scale * (problem.t - mean),
            scale * scale * spread + posterior.offset_variance,
            y,
            np.ones(len(y)),
            posterior.noise_variance,
        )

    # Models that are sampled.

    def _n_sweeps(self) -> int:
        return int(self.n_warmup) + int(self.n_samples)

    def _run_chains(self, problem: Problem, make: Any, progress: Progress) -> list[Any]:
        """Run `make(number, seed)` once per chain; the states at the end, and one history."""
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=self.n_chains)
        limit = self._n_sweeps()
        results: list[Result] = []
        for i, seed in enumerate(seeds):
            solver = make(i, int(seed))
            results.append(
                run(solver, problem.design, problem.t, max_iter=limit, callback=progress)
            )
            if not results[-1].converged:
                break
        names = results[0].history
        self.history_ = {k: np.concatenate([r.history[k] for r in results]) for k in names}
        self.history_["chain"] = np.repeat(np.arange(len(results)), [r.n_iter for r in results])
        self.history_ = problem.reported(self.history_)
        self.n_iter_ = sum(r.n_iter for r in results)
        self.stop_reason_ = results[-1].stop_reason.value
        return [r.state for r in results]

    def _keep_diagnostics(self, series: np.ndarray) -> None:
        """R-hat and effective sample size, and what they say about convergence."""
        self.r_hat_ = split_r_hat(series)
        self.effective_sample_size_ = effective_sample_size(series)
        worst = float(np.max(self.r_hat_))
        self.converged_ = bool(worst < _MIXED) and self.stop_reason_ == StopReason.CONVERGED
        if not self.converged_:
            warn(
                f"The chains of {type(self).__name__} have not mixed (largest R-hat {worst:.3g}, "
                f"want < {_MIXED}; stopped by: {self.stop_reason_}): raise n_samples and n_warmup, "
                "and do not trust quantities whose r_hat_ is large.",
                ConvergenceWarning,
            )
