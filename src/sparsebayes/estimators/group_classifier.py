"""Group spike-and-slab classification."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from ..class_probabilities import Probit
from ..designs import ColumnBasis, DenseDesign
from ..designs.candidates import one_scale
from ..fitting import Note
from ..labels import LabelFit, LabelProblem, joined_runs
from ..posterior import Posterior
from ..solvers.group.clusters import find_clusters
from ..solvers.group.enumeration import Enumeration, enumerate_undecided_groups
from ..solvers.group.hyperprior import Hyperprior
from ..solvers.group.label_models import LabelRows
from ..solvers.group.probit import ProbitGroupEP, State, log_likelihood_constant
from ..solvers.run import Result, StepCallback, run
from ._classifier import SparseClassifier
from ._group import (
    CONSTRAINTS,
    Groups,
    not_settled,
    selectable_groups,
    summed,
    summed_variance,
)
from .group_spike_slab import (
    GroupSelectorMixin,
    Weighed,
    models_table,
    per_group,
    weighed_models,
    with_always,
)

_INTERCEPT_VARIANCE = 100.0  # wide against the unit noise of the probit
# A run whose clusters are too large is repeated with smaller ones. It is ended where that is seen
# at two checks, after the first steps, in which a high inclusion prior lets too many groups in.
_FIRST_CHECK, _CHECK = 60, 20
_LIGHT = 1e-5  # of a label, or of all labels if that is less: weight of all rows that are left out
_FOLD_LIGHT = 1e-2  # the same in a fold, where no evidence is known to more
# Labels that a row counts for, of about as many as there are rows, from which on columns are
# compared with at most weight one for a row: of two rows of nearly all the weight all are alike.
_MANY = 10.0
_LEAST_CHANGE = 1e-3  # of the evidence of a model, at which its row sites have been fitted
_FOLD_STEPS = 200  # of EP in a fold; sites that have not settled by then cycle
_FOLD_ROUNDS = 3  # of EP in which no sites have settled, after which those of a fold cycle; then 1
_START_VARIANCE = 4.0  # of the latent function under the prior that learning starts from


@dataclass(frozen=True)
class CentredColumns:
    """The columns less their training means, all times one scale, then ones for the intercept.

    A basis of its own because here the intercept is one more group, always in, with a weight in the
    posterior; the other models have it outside of theirs.
    """

    means: np.ndarray
    intercept: bool
    scale: float = 1.0
    repeated: np.ndarray | None = None  # which columns, where groups share some

    def __call__(self, X: Any) -> np.ndarray:
        Phi = (np.asarray(X, dtype=np.float64) - self.means) * self.scale
        Phi = Phi if self.repeated is None else Phi[:, self.repeated]
        return np.column_stack([Phi, np.ones(len(Phi))]) if self.intercept else Phi

    def columns(self) -> ColumnBasis:
        """The columns of X and their scale, the intercept left out."""
        indices = np.arange(len(self.means)) if self.repeated is None else self.repeated
        return ColumnBasis(indices, np.full(len(indices), self.scale))

    def __len__(self) -> int:
        columns = self.means if self.repeated is None else self.repeated
        return len(columns) + self.intercept


class _Start(NamedTuple):
    """Start of the run of a class; in a fold, the hyperparameters that the fit of all rows has.

    The hyperparameters of a fold are close to those of all rows, and learning ends near them in a
    third of the steps. Its sites start afresh: those of all rows know the labels left out.
    """

    inclusion_prior: float | None = None  # that is learnt; None for that of a first search
    slab_variance: float | None = None  # likewise, in units of X
    large: bool = True  # whether other clusters than those of copies may be large
    rounds: int = _FOLD_ROUNDS

    @classmethod
    def after(cls, state: State, scale: float, large: bool) -> _Start:
        """Return the start of a fold from the state in which a run has ended."""
        rounds = 1 if _cycles(state, _FOLD_ROUNDS) else _FOLD_ROUNDS
        free = np.flatnonzero(~state.sites.always)
        if len(free) == 0:
            return cls(large=large, rounds=rounds)
        odds, slab = state.sites.prior_log_odds[free[0]], state.sites.slab_variance[free[0]]
        return cls(float(expit(odds)), float(slab) * scale**2, large, rounds)


class _ClusterWatch:
    """A callback that ends a run whose clusters keep having more groups in than are allowed.

    Parameters
    ----------
    callback : callable or None
        Called first; it may end the run as well.
    """

    def __init__(self, callback: StepCallback[State] | None) -> None:
        self.callback = callback
        self.exceeded = False
        self._at_last_check = False

    def __call__(self, iteration: int, info: Any, state: State) -> bool:
        stopped = self.callback is not None and bool(self.callback(iteration, info, state))
        if iteration >= _FIRST_CHECK and iteration % _CHECK == 0:
            exceeds = state.sites.exceeds_cluster_limit
            self.exceeded, self._at_last_check = exceeds and self._at_last_check, exceeds
        return stopped or self.exceeded


def _until_cycle(callback: StepCallback[State] | None, rounds: int) -> StepCallback[State]:
    """Return a callback that ends a run of a fold as soon as its sites cycle."""

    def end(iteration: int, info: Any, state: State) -> bool:
        stopped = callback is not None and bool(callback(iteration, info, state))
        return stopped or _cycles(state, rounds)

    return end


def _cycles(state: State, rounds: int) -> bool:
    return state.learning.rounds_without_progress >= rounds


class GroupSpikeSlabClassifier(GroupSelectorMixin, SparseClassifier):
    """Probit classification that selects groups of columns, with a spike-and-slab prior.

    ``P(y = 1 | x) = Phi(x'w + b)`` with the group spike-and-slab prior on w, by expectation
    propagation (EP). With more than two classes one model is fitted per class, for this class
    against all others, and the probabilities are normalised.

    Parameters
    ----------
    slab_variance
        ... It is relative to the unit variance of the probit.
    fit_intercept : bool, default=True
        Center the columns and add a constant with prior N(0, 100).
    tol : float, default=1e-4
        Largest change per step at which EP has converged.

    Attributes
    ----------
    classes_
    inclusion_probability_
        ... With more than two classes it is that of inclusion for at least one class, with the
        classes treated as independent.
    class_inclusion_probability_ : array of shape (n_models, n_groups)
        Inclusion probability of each group in the model of each class.
    coef_ : array of shape (n_models, n_features)
        ... There is one model for two classes, and one per class for more.
    coef_std_ : array of shape (n_models, n_features)
        Posterior standard deviation of each coefficient.
    intercept_, feature_relevance_, active_, group_names_, group_index_
    inclusion_prior_, slab_variance_ : arrays of shape (n_models,) or (n_models, n_groups)
        As given or learnt.
    log_evidence_ : float
        The EP approximation, corrected as in `GroupSpikeSlabRegressor`; summed over the models.
    calibration_ : float
        Slope of the line ``slope * score + intercept`` by which the scores of the fitted model are
        calibrated. It is learnt by cross-validation, from at most 1,000 rows.
    calibration_intercept_
    history_ : dict of arrays
        One entry per step, model after model.
    models_ : dict of arrays, or None for more than two classes
    n_iter_, converged_, stop_reason_, basis_, posterior_

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import GroupSpikeSlabClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 30))
    >>> y = np.where(X[:, :3] @ [2.0, -1.0, 1.0] > 0, "yes", "no")
    >>> model = GroupSpikeSlabClassifier(groups=np.arange(30) // 3).fit(X, y)
    >>> model.active_, model.predict(X[:2]).tolist() == y[:2].tolist()
    (array([0, 1, 2]), True)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseClassifier._parameter_constraints,
        **CONSTRAINTS,
    }

    def __init__(
        self,
        groups: Any = None,
        *,
        inclusion_prior: Any = "learn",
        slab_variance: Any = "learn",
        sites: str = "group",
        max_joint_groups: int = 32,
        always: Any = None,
        fit_intercept: bool = True,
        max_iter: int = 500,
        tol: float = 1e-4,
        max_time: float | None = None,
        verbose: int = 0,
    ) -> None:
        self.groups = groups
        self.inclusion_prior = inclusion_prior
        self.slab_variance = slab_variance
        self.sites = sites
        self.max_joint_groups = max_joint_groups
        self.always = always
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.max_time = max_time
        self.verbose = verbose

    def _solve(self, problem: LabelProblem) -> LabelFit:
        X, groups, codes = problem.X, selectable_groups(self), problem.codes
        weight = None if problem.rows.weight is None else problem.rows.counts[problem.rows.used]
        if weight is not None:
            heavy = _heavy_rows(weight, _FOLD_LIGHT if problem.purpose == "fold" else _LIGHT)
            X, codes, weight = X[heavy], codes[heavy], weight[heavy]
        means = np.zeros(self.n_features_in_)
        if problem.fit_intercept:
            means = np.average(X, axis=0, weights=weight)
            # The mean of a constant is that constant, and not its neighbour in float64.
            means = np.where(np.ptp(X, axis=0) == 0.0, X[0], means)
        # A power of two where the squares of X would leave float64, as in the regressors.
        scale = float(one_scale(X).column_scale[0])
        repeated = groups.columns if len(groups.columns) > self.n_features_in_ else None
        basis = CentredColumns(means, problem.fit_intercept, scale, repeated)
        design = DenseDesign(basis(X))
        limit, tol = int(self.max_iter), problem.tolerance(float(self.tol))
        if problem.purpose == "fold":
            limit = min(limit, _FOLD_STEPS)
        runs: list[Result] = []
        enumerated: list[Enumeration] = []
        starts = _starts(problem)
        with problem.progress(limit * len(problem.positive)) as progress:
            for i, c in enumerate(problem.positive):
                t, start, most = np.where(codes == c, 1.0, -1.0), starts[i], self.max_joint_groups
                folded = problem.purpose == "fold"
                callback = _until_cycle(progress, start.rounds) if folded else progress
                solver = self._solver(groups, basis, design, weight, t, tol, start)
                watch = _ClusterWatch(callback) if start.large else callback
                result = run(solver, design, t, max_iter=limit, callback=watch)
                if start.large and result.state.sites.exceeds_cluster_limit:
                    start = start._replace(large=False)
                    solver = self._solver(groups, basis, design, weight, t, tol, start)
                    result = run(solver, design, t, max_iter=limit, callback=callback)
                if folded and _cycles(result.state, start.rounds):
                    most = 0  # models around sites that mean little
                starts[i] = _Start.after(result.state, basis.scale, start.large)
                runs.append(problem.within_budget(result))
                posterior = solver.posterior(result.state, design, t)
                enumerated.append(_enumerate(result.state, posterior, t, int(most), tol))
        weighed = None  # of one model alone
        if len(runs) == 1:
            weighed = weighed_models(groups, enumerated[0].models, design.columns)
        fit = _group_fit(problem, groups, basis, runs, enumerated, weighed)
        return replace(fit, extra={**fit.extra, "starts": [tuple(start) for start in starts]})

    def _solver(
        self,
        groups: Groups,
        basis: CentredColumns,
        design: DenseDesign,
        weight: np.ndarray | None,
        t: np.ndarray,
        tol: float,
        start: _Start,
    ) -> ProbitGroupEP:
        G, d = len(groups), len(groups.group_of)
        n_rows = float(design.n_rows if weight is None else np.sum(weight))
        rows = design if weight is None else design.weighted(weight)
        p0 = per_group("inclusion_prior", self.inclusion_prior, G, upper=1.0)
        v0 = per_group("slab_variance", self.slab_variance, G)
        learn = tuple(
            name for name, x in (("inclusion_prior", p0), ("slab_variance", v0)) if x is None
        )
        if v0 is not None:
            v0 = v0 / basis.scale**2
        if p0 is None and start.inclusion_prior is not None:
            p0 = start.inclusion_prior
        elif p0 is None:
            margin = 0.5 / G
            p0 = float(np.clip(0.25 * n_rows / d, margin, max(0.5, margin)))
        if v0 is None and start.slab_variance is not None:
            v0 = start.slab_variance / basis.scale**2
        elif v0 is None:
            # A row that weighs next to nothing counts too: a row of nearly all the weight is the
            # mean of the rows, from which the columns do not vary.
            spread = rows if weight is None else design.weighted(np.maximum(weight, 1.0))
            total = float(np.sum(spread.sqnorms()[:d])) / spread.n_observations
            v0 = _START_VARIANCE / (np.mean(p0) * total) if total > 0 else 1.0
        p0, v0 = with_always(groups, rows, p0, v0, n_rows)
        group_of, clusters = groups.group_of, None
        if self.sites == "group":
            compared = rows
            if weight is not None and np.max(weight) > _MANY:
                compared = design.weighted(np.minimum(weight, 1.0))
            clusters = find_clusters(compared, t, group_of, start.large, groups.always)
        if self.fit_intercept:
            # The intercept is one more group that is always in.
            group_of = np.append(group_of, G)
            clusters = None if clusters is None else np.append(clusters, G)
            p0 = np.append(np.broadcast_to(p0, G), 1.0)
            v0 = np.append(np.broadcast_to(v0, G), _INTERCEPT_VARIANCE)
        return ProbitGroupEP(
            group_of,
            p0,
            v0,
            self.sites,
            learn,
            tol=tol,
            weight=weight,
            cluster_of=clusters,
            hyperprior=Hyperprior.for_size(n_rows, d, learn),
        )

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the mean of the latent function divided by its standard deviation, noise included.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows to predict.

        Returns
        -------
        score : array of shape (n_samples,) for two classes, else (n_samples, n_classes)
        """
        return super().decision_function(X)


def _starts(problem: LabelProblem) -> list[_Start]:
    """Return the start of the run of each class."""
    if problem.whole is None or len(problem.whole.posteriors) != len(problem.positive):
        return [_Start() for _ in problem.positive]
    return [_Start(*start) for start in problem.whole.extra["starts"]]


def _enumerate(
    state: State, posterior: Posterior, t: np.ndarray, most: int, tol: float
) -> Enumeration:
    """Return the posterior of a class, with the undecided groups enumerated."""
    change = max(_LEAST_CHANGE, 10.0 * tol)
    return enumerate_undecided_groups(
        state.form,
        state.sites,
        state.marginals,
        posterior,
        most,
        precision=state.copies * state.tau,
        log_constant=log_likelihood_constant(state, t),
        target=state.eta / state.tau,
        rows=LabelRows(state.form.X, t, state.copies, state.power, state.tau, state.eta, change),
    )


def _heavy_rows(weight: np.ndarray, light: float) -> np.ndarray:
    """Return the rows without the lightest, which weigh `light` of a label, or of all, together."""
    order = np.argsort(weight, kind="stable")
    total = np.cumsum(weight[order])
    return np.sort(order[total > light * min(1.0, float(total[-1]))])


def _group_fit(
    problem: LabelProblem,
    groups: Groups,
    basis: CentredColumns,
    runs: list[Result],
    enumerated: list[Enumeration],
    weighed: Weighed | None,
) -> LabelFit:
    """Return the fit of one run of EP, and one enumeration, for each class."""
    by_class = np.array([e.inclusion[: len(groups)] for e in enumerated])
    inclusion = 1.0 - np.prod(1.0 - by_class, axis=0)
    attributes = {
        **groups.attributes(),
        "models_": None if weighed is None else models_table(weighed),
        "class_inclusion_probability_": by_class,
        "inclusion_probability_": inclusion,
        **_coefficients(problem, groups, basis, enumerated),
        **_priors([r.state for r in runs], len(groups), basis.scale),
    }
    posteriors = tuple(e.posterior for e in enumerated)
    fields = joined_runs(runs)
    reason = fields["stop_reason"]
    notes: tuple[Note, ...] = ()
    if not reason.converged:
        state = next(r.state for r in runs if not r.converged)
        message = (
            f"EP of {problem.reporter.name} has not converged ({reason}). "
            f"{not_settled(reason, state)}."
        )
        notes = (Note(message, ConvergenceWarning),)
    return LabelFit(
        basis,
        posteriors,
        (np.arange(len(basis)),) * len(posteriors),
        np.flatnonzero(groups.support(inclusion)),
        None,
        problem.choice,
        link=Probit(),
        attributes=attributes,
        extra={"groups": groups, "factors": weighed},
        notes=notes,
        **fields,
    )


def _coefficients(
    problem: LabelProblem, groups: Groups, basis: CentredColumns, enumerated: list[Enumeration]
) -> dict[str, np.ndarray]:
    """Return the coefficients of the columns of X and the intercept of each class."""
    d, n_features, scale = len(groups.group_of), len(groups.index), basis.scale
    weights = np.array([e.posterior.mean for e in enumerated])
    coef, variances = weights[:, :d], [e.variance[:d] for e in enumerated]
    if d > n_features:
        coef = np.array([summed(w, groups.columns) for w in coef])
        columns = np.append(groups.columns, np.full(len(basis) - d, n_features))
        variances = [
            summed_variance(e.posterior, e.variance, columns)[:n_features] for e in enumerated
        ]
    coef = coef * scale
    constant = weights[:, d] if problem.fit_intercept else np.zeros(len(weights))
    return {
        "coef_": coef,
        "coef_std_": np.sqrt(variances) * scale,
        "intercept_": constant - coef @ basis.means,
    }


def _priors(states: list[State], n_groups: int, scale: float) -> dict[str, np.ndarray]:
    """Return the hyperparameters of each class, or of each class and group."""
    prior = np.array([1.0 / (1.0 + np.exp(-s.sites.prior_log_odds[:n_groups])) for s in states])
    slab = np.array([s.sites.slab_variance[:n_groups] for s in states]) * scale**2
    return {
        "inclusion_prior_": prior[:, 0] if np.all(prior == prior[:, :1]) else prior,
        "slab_variance_": slab[:, 0] if np.all(slab == slab[:, :1]) else slab,
    }
