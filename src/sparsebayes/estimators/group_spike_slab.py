"""Group spike-and-slab regression: which groups of columns matter, and with what probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectorMixin

from .._array import RandomState
from ..callbacks import Progress
from ..data import Data
from ..designs import Design
from ..designs.subset import subset
from ..fitting import Fit, Note, run_fields
from ..kernels import is_option
from ..linalg.blocks import ColumnBlocks, column_blocks
from ..problem import Problem
from ..solvers.group.clusters import find_clusters, group_correlation
from ..solvers.group.credible_sets import credible_sets, select
from ..solvers.group.enumeration import Enumeration, enumerate_undecided_groups
from ..solvers.group.ep import LEARNABLE, GroupEP, log_likelihood_constant
from ..solvers.group.gibbs import GroupGibbs, draws_posterior, inclusion_series
from ..solvers.group.hyperprior import Hyperprior
from ..solvers.group.marginals import has_digits
from ..solvers.group.models import Models
from ..solvers.group.noise_runs import NoiseRun, has_noise_runs, noise_runs
from ..solvers.group.row_form import RowForm
from ..solvers.group.screening import SCREENED, Screened, screen, search_columns
from ..solvers.group.search import MOST_TRIAL_STEPS, EPRuns, starting_values
from ..solvers.group.sites import SpikeSlabSites
from ..solvers.noise import noise_floor
from ..solvers.run import StopReason
from ._estimator import refuse
from ._group import (
    GroupEstimator,
    GroupRegressor,
    Groups,
    chain_diagnostics,
    chain_seeds,
    column_fit,
    not_settled,
    run_chains,
    selectable_groups,
    stored_columns,
    weight_unit,
)
from ._sklearn import check_is_fitted, check_sample_weight, validate_data

_WIDE = 100.0  # times the power of the target: what a column that is always in may explain
_HELD = 1e9  # bytes of X in float64 up to which it is held in memory
_TYPES = [np.float64, np.float32, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.bool_]
_MISSING = 0.5  # groups expected among the columns left out
_UNSETTLED = 0.01  # weight of noise variances whose evidence may be wrong by several nats
_CLOSE = 5.0  # nats: fixed points closer than this cannot be told apart by the EP evidence

PerGroup = float | np.ndarray  # a hyperparameter of all groups, or of each


class GroupSelectorMixin(SelectorMixin, GroupEstimator):
    """Columns chosen by the inclusion probability of their group.

    Parameters
    ----------
    groups
        ... Lists may overlap: a column of several groups has a coefficient in each, and `coef_` has
        their sum.
    inclusion_prior : "learn", float or array of shape (n_groups,)
        Prior inclusion probability of a group. With ``"learn"`` all groups share one unknown
        probability, which has a weak prior. The fit averages over its posterior.
    slab_variance : "learn", float or array of shape (n_groups,)
        Prior variance of the coefficients of an included group. With ``"learn"`` all groups share
        one unknown variance, and the fit averages over its posterior as for `inclusion_prior`. One
        value for all groups assumes columns of comparable scale.
    sites : {"group", "column"}
        EP approximates the prior by a product of simple functions, called sites: one per group, or
        one per column as in Hernández-Lobato et al. (2013). Sites per column ignore the correlation
        of columns inside a group.
    max_joint_groups : int
        Largest number of groups whose inclusion is computed jointly after EP. These are the groups
        that EP leaves undecided (an inclusion probability near neither 0 nor 1), and those that
        could replace an included group. A model is one combination of included groups; all models
        of these groups are enumerated, or the most probable ones if there are more than 1,024.
        Predictions are averaged over the models. If two groups are nearly equal, the inclusion
        probability is divided between them. The other groups keep their EP approximation. 0 is EP
        alone, as in the paper. Of labels, EP alone can be far off: an inclusion probability of .96
        was .34 in one of ten small problems.
    always : array-like of group labels, or None
        Groups that are always in the model, such as covariates. Their coefficients have a wide slab
        (or their own `slab_variance`, if it is an array) and no spike. They are excluded from
        learning the priors, from `credible_sets` and from `select`.

    Attributes
    ----------
    inclusion_probability_ : array of shape (n_groups,)
        Posterior inclusion probability of each group.
    active_ : array of int
        Columns of the groups with inclusion probability above 0.5.
    models_ : dict of arrays
        Enumerated models, the most probable first: the undecided groups (as indices of
        `group_names_`), which of them each model includes, its probability, and the absolute
        correlations between these groups (see `credible_sets`).
    """

    inclusion_probability_: np.ndarray
    group_index_: np.ndarray
    group_names_: np.ndarray
    classes_: np.ndarray

    def get_support(self, threshold: float = 0.5, indices: bool = False) -> np.ndarray:
        """Return the columns whose group has an inclusion probability above a threshold.

        Parameters
        ----------
        threshold : float, default=0.5
            Smallest inclusion probability of a selected group.
        indices : bool, default=False
            Return the indices of the columns instead of a mask.

        Returns
        -------
        support : array of bool of shape (n_features,), or array of int
        """
        check_is_fitted(self)
        groups: Groups = self._fitted.extra["groups"]
        mask = groups.support(self.inclusion_probability_, threshold)
        return np.flatnonzero(mask) if indices else mask

    def _get_support_mask(self) -> np.ndarray:
        return self.get_support()

    def credible_sets(
        self, coverage: float = 0.95, min_purity: float = 0.5, return_details: bool = False
    ) -> Any:
        """Return credible sets: sets of groups that probably contain an active group.

        With a probability of at least `coverage`, a set contains an active group: one whose
        coefficients are not zero. Near-duplicates share the probability of being active, so a set
        means "one of these".
        Sets are as small as possible, and do not overlap.

        Parameters
        ----------
        coverage : float, default=0.95
            Smallest probability that a set contains an active group.
        min_purity : float, default=0.5
            Sets of lower purity are not returned, because their groups are not near-duplicates. The
            purity of a set is the smallest absolute correlation between two of its groups (for
            groups of several columns A and B, ``|A'B| / sqrt(|A'A| |B'B|)`` in Frobenius norms).
        return_details : bool, default=False
            Also return the probability and the purity of each set.

        Returns
        -------
        sets : list of arrays of group labels
            The most probable first.
        probability, purity : arrays of shape (n_sets,)
            Only with ``return_details=True``.
        """
        check_is_fitted(self)
        if not 0.0 < coverage < 1.0:
            raise ValueError(f"coverage must be between 0 and 1; got {coverage!r}.")
        factors: Weighed | None = self._fitted.extra["factors"]
        if factors is None:
            raise ValueError(
                "credible_sets supports two classes, but this classifier has "
                f"{len(self.classes_)}. Fit it to one class against the rest."
            )
        p = self._in_question()
        details = credible_sets(p, factors, coverage, min_purity)
        sets = [self.group_names_[s.groups] for s in details]
        if not return_details:
            return sets
        probability = np.array([s.probability for s in details])
        return sets, probability, np.array([s.purity for s in details])

    def select(self, fdr: float = 0.1) -> np.ndarray:
        """Return the labels of the groups that can be selected at an expected false discovery rate.

        Parameters
        ----------
        fdr : float, default=0.1
            Largest expected share of false discoveries, the mean of one minus the inclusion
            probability over the selected groups.

        Returns
        -------
        names : array of group labels
        """
        check_is_fitted(self)
        if not 0.0 <= fdr < 1.0:
            raise ValueError(f"fdr must be at least 0 and below 1; got {fdr!r}.")
        chosen = select(self._in_question(), fdr)
        return self.group_names_[chosen[self._in_question()[chosen] > 0.0]]

    def _in_question(self) -> np.ndarray:
        """Inclusion probabilities, zero for groups that are in by decree."""
        p = self.inclusion_probability_.copy()
        p[self._fitted.extra["groups"].always] = 0.0
        return p


def with_always(
    groups: Groups, design: Design, p0: PerGroup, v0: PerGroup, power: float
) -> tuple[PerGroup, PerGroup]:
    """Return p0 and v0 of all groups: those that are always in have a wide slab.

    It explains `_WIDE` times `power` with each column, unless v0 has one value per group.
    """
    if len(groups.always) == 0:
        return p0, v0
    n_groups, group_of = len(groups), groups.group_of
    p0 = np.array(np.broadcast_to(p0, n_groups), dtype=float)
    p0[groups.always] = 1.0
    if np.ndim(v0) == 0:
        v0 = np.full(n_groups, float(v0))
        size = np.bincount(group_of, weights=design.sqnorms()[: len(group_of)])
        size = np.maximum(size / np.bincount(group_of), np.finfo(float).tiny)
        v0[groups.always] = _WIDE * power / size[groups.always]
    return p0, v0


Weighed = list[tuple[Models, np.ndarray]]  # models, and the correlations of their groups


def weighed_models(
    groups: Groups, factors: list[Models], columns: Callable[[np.ndarray], np.ndarray]
) -> Weighed:
    """Return models with the correlations of their groups; `columns` gives columns of X."""
    weighed = []
    for models in factors:
        inside = np.flatnonzero(np.isin(groups.group_of, models.groups))
        X = columns(inside)
        owner = groups.group_of[inside]
        weighed.append((models, group_correlation(X - X.mean(axis=0), owner, models.groups)))
    return weighed


def models_table(weighed: Weighed) -> dict[str, np.ndarray]:
    """Return the attribute `models_`: the first set of models, or one without groups."""
    none = (Models(np.empty(0, np.intp), np.ones((1, 0), bool), np.ones(1)), np.empty((0, 0)))
    models, correlation = weighed[0] if weighed else none
    return {
        "groups": models.groups,
        "chosen": models.chosen,
        "probability": models.weight,
        "correlation": correlation,
    }


class GroupSpikeSlabRegressor(GroupSelectorMixin, GroupRegressor):
    """Linear regression that selects groups of columns, with a spike-and-slab prior.

    Each group of coefficients is exactly zero with probability ``1 - inclusion_prior`` and Gaussian
    with variance ``slab_variance`` otherwise (spike and slab). The fit estimates the posterior
    inclusion probability of each group, by expectation propagation (EP) or by Gibbs sampling.

    If X has at least twenty times as many columns as rows and would take more than 1 GB in float64,
    it is not copied to float64. EP then runs on a subset of the columns, found by passes over all
    of them, and `basis_` has only this subset. Each of the other columns has an inclusion
    probability, computed as if it were added alone, and a coefficient of zero.

    Parameters
    ----------
    inclusion_prior
        ... With ``max_joint_groups=0`` it uses the posterior mode.
    slab_variance
        ... Its unit is y^2/X^2.
    inference : {"ep", "gibbs"}, default="ep"
        ``"ep"`` is expectation propagation. ``"gibbs"`` is a Gibbs sampler, which uses the
        hyperparameters that EP has learnt unless they are given.
    anneal : {"auto", True, False}, default="auto"
        EP can converge to a wrong result if the noise is low and rows are few, so ``"auto"`` may
        make several runs. If the noise variance is below a tenth of the variance of y, it adds an
        annealed run, whose noise variance is lowered gradually. If the best run has not converged,
        or uses nearly as many degrees of freedom as there are rows, it adds annealed runs from
        other starts. Of the runs that have converged, the one of highest evidence is kept. True
        always adds the first annealed run; False makes one run.
    max_iter : int, default=500
        Maximum number of EP steps of a run.
    tol : float, default=1e-4
        EP has converged if in one step no inclusion probability changes by more than this, and no
        posterior mean or standard deviation of a coefficient by more than this times the standard
        deviation of the slab.
    warm_start : bool, default=False
        Start from the EP sites of the previous fit if the columns and groups are the same. Rows may
        have been added.
    n_chains, n_samples, n_warmup : int, default=4, 1000 and 200
        Number of chains, of stored sweeps per chain and of warm-up sweeps of the Gibbs sampler;
        only with ``inference="gibbs"``.
    random_state : int, RandomState or None, default=0
        Seed of the Gibbs sampler; EP is deterministic.
    max_time
        ... The Gibbs sampler has no limit other than its number of sweeps.

    Attributes
    ----------
    inclusion_probability_
    coef_
        ... It is averaged over inclusion and exclusion of the group.
    coef_std_, intercept_, feature_relevance_, active_, group_names_, group_index_
    inclusion_prior_, slab_variance_ : float or array
        As given, or the learnt posterior mode.
    noise_model_, noise_tail_
    calibration_
        ... It is 1 if there is no `loo_`.
    noise_variance_ : float
        Variance of the noise, as given, or the posterior mean.
    log_evidence_ : float
        Log evidence, summed over the enumerated models. Groups that were not enumerated enter by
        the EP approximation, and learnt hyperparameters are integrated out. It is exact up to
        rounding if all groups are enumerated (`max_joint_groups`) and all hyperparameters given. A
        Gibbs fit reports that of its EP run.
    loo_
        ... Only for EP without an average over models: if no group was undecided, or
        ``max_joint_groups=0``.
    history_ : dict of arrays
        One entry per EP step of the kept run (``"gibbs"``: per sweep, chain after chain).
    runs_ : dict of arrays
        One entry per EP run: its start, log evidence (of EP alone), number of steps, whether it
        converged, number of groups with an inclusion probability above 0.5, and whether it was
        kept. Runs that end at different fixed points can be seen here.
    models_, n_iter_
    converged_ : bool
        Whether EP has converged. It is also True if all hyperparameters were given and all models
        of all groups were enumerated, because the result is then exact.
    stop_reason_
    r_hat_, effective_sample_size_ : arrays of shape (n_groups,)
        Convergence diagnostic (near 1) and effective number of draws for the inclusion of each
        group; Gibbs sampler only.
    basis_, posterior_

    References
    ----------
    Hernández-Lobato, Hernández-Lobato and Dupont (2013). Generalized spike-and-slab priors for
    Bayesian group feature selection using expectation propagation. JMLR 14.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import GroupSpikeSlabRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((50, 90))
    >>> y = X[:, 3:6] @ [2.0, -1.0, 1.0] + 0.5 * rng.standard_normal(50)
    >>> model = GroupSpikeSlabRegressor(groups=np.arange(90) // 3).fit(X, y)
    >>> model.active_, bool(model.inclusion_probability_[1] > 0.99)
    (array([3, 4, 5]), True)
    """

    def __init__(
        self,
        groups: Any = None,
        *,
        inclusion_prior: PerGroup | str = "learn",
        slab_variance: PerGroup | str = "learn",
        noise_variance: float | str = "learn",
        inference: str = "ep",
        sites: str = "group",
        anneal: bool | str = "auto",
        max_joint_groups: int = 32,
        always: Any = None,
        fit_intercept: bool = True,
        max_iter: int = 500,
        tol: float = 1e-4,
        warm_start: bool = False,
        n_chains: int = 4,
        n_samples: int = 1000,
        n_warmup: int = 200,
        random_state: RandomState = 0,
        max_time: float | None = None,
        verbose: int = 0,
    ) -> None:
        self.groups = groups
        self.inclusion_prior = inclusion_prior
        self.slab_variance = slab_variance
        self.noise_variance = noise_variance
        self.inference = inference
        self.sites = sites
        self.anneal = anneal
        self.max_joint_groups = max_joint_groups
        self.always = always
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.n_chains = n_chains
        self.n_samples = n_samples
        self.n_warmup = n_warmup
        self.random_state = random_state
        self.max_time = max_time
        self.verbose = verbose

    def _read(self, X: Any, y: Any, sample_weight: Any) -> Data:
        if not _is_stored(X):
            return super()._read(X.toarray() if issparse(X) else X, y, sample_weight)
        if self.inference == "gibbs":
            raise ValueError(
                f"X takes {8e-09 * X.shape[0] * X.shape[1]:.1f} GB in float64, more than the "
                f"limit of {1e-09 * _HELD:.0f} GB for the Gibbs sampler. Use inference='ep', "
                "or only the columns that EP selects."
            )
        X, y = validate_data(
            self, X, y, accept_sparse="csc", dtype=_TYPES, ensure_min_samples=2, y_numeric=True
        )
        weight = None if sample_weight is None else check_sample_weight(sample_weight, X)
        return Data(X, np.asarray(y, dtype=np.float64), weight)

    def _problem(self, data: Data) -> Problem:
        problem = super()._problem(data)
        return replace(problem, columns=stored_columns) if _is_stored(data.X) else problem

    def _solve(self, problem: Problem) -> Fit:
        groups = selectable_groups(self)
        if len(groups.columns) > self.n_features_in_:
            problem = problem.with_design(subset(problem.design, groups.columns))
        solver = self._solver(problem, groups)
        limit = int(self.max_iter) + MOST_TRIAL_STEPS
        if self.inference == "gibbs":
            limit += (int(self.n_warmup) + int(self.n_samples)) * int(self.n_chains)
        with problem.progress(limit) as progress:
            if _is_stored(problem.rows.X):
                return self._screened_fit(problem, groups, solver, progress)
            runs, solver = self._run_ep(problem, groups, solver, progress)
            if self.inference == "gibbs":
                return self._gibbs_fit(problem, groups, runs, solver, progress)
            learnt = runs.best.state.sites
            prior = 1.0 / (1.0 + np.exp(-learnt.prior_log_odds))
            attributes = self._run_attributes(problem, runs, prior, learnt.slab_variance)
            fit = self._ep_fit(problem, groups, runs, solver, attributes)
            sites = self._stored_sites(problem, groups, runs, solver)
            return replace(fit, extra={**fit.extra, "sites": sites})

    def _keeps_sparse(self) -> bool:
        return True  # a fit makes dense what it needs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.inference == "ep":
            why = "applies to the Gibbs sampler only. Use inference='gibbs', or omit it."
            refuse(self, ("n_chains", "n_samples", "n_warmup"), why)
        else:
            why = "applies to EP only. Use inference='ep', or fewer samples, or omit it."
            refuse(self, ("max_time",), why)

    def _solver(self, problem: Problem, groups: Groups) -> GroupEP:
        design, t = problem.design, problem.t
        unit, n_groups = weight_unit(problem), len(groups)
        p0 = per_group("inclusion_prior", self.inclusion_prior, n_groups, upper=1.0)
        v0 = per_group("slab_variance", self.slab_variance, n_groups)
        sigma2 = problem.solver_noise
        given = (p0, None if v0 is None else v0 / unit / unit, sigma2)
        learn = tuple(name for name, x in zip(LEARNABLE, given, strict=True) if x is None)
        start = starting_values(design, t, n_groups)
        clusters = None
        if self.sites == "group":
            clusters = find_clusters(design, t, groups.group_of, always=groups.always)
        blocks = column_blocks(groups.group_of, self.sites, clusters)
        warm = self._warm_sites(problem, groups, blocks)
        if warm is not None:
            former, scale = problem.previous, problem.units.target
            assert former is not None
            noise = former.noise.level / scale / scale
            v0 = former.attributes["slab_variance_"] / unit / unit
            start = (former.attributes["inclusion_prior_"], v0, noise)
        p0, v0, sigma2 = (s if g is None else g for g, s in zip(given, start, strict=True))
        p0, v0 = with_always(groups, design, p0, v0, float(t @ t))
        return GroupEP(
            groups.group_of,
            p0,
            v0,
            sigma2,
            sites=self.sites,
            learn=learn,
            smallest_noise=noise_floor(t, design.n_observations),
            tol=float(self.tol),
            warm=warm,
            cluster_of=clusters,
            hyperprior=Hyperprior.for_size(design.n_observations, design.n_candidates, learn),
        )

    def _run_ep(
        self, problem: Problem, groups: Groups, solver: GroupEP, progress: Progress | None
    ) -> tuple[EPRuns, GroupEP]:
        options = {"anneal": self.anneal, "max_iter": int(self.max_iter), "callback": progress}
        runs = search_columns(solver, problem.design, problem.t, **options)
        if runs.best.state.sites.exceeds_cluster_limit:
            clusters = find_clusters(
                problem.design, problem.t, groups.group_of, False, groups.always
            )
            solver = replace(solver, cluster_of=clusters, warm=None)
            runs = search_columns(solver, problem.design, problem.t, **options)
        runs.best.result = problem.within_budget(runs.best.result)
        return runs, solver

    def _screened_fit(
        self, problem: Problem, groups: Groups, solver: GroupEP, progress: Progress | None
    ) -> Fit:
        """Return the EP fit of the columns that matter, where X is not held in memory."""
        options: dict[str, Any] = {
            "anneal": self.anneal,
            "max_iter": int(self.max_iter),
            "callback": progress,
        }
        screened = screen(solver, problem.design, problem.t, **options)
        if screened is not None and screened.runs.best.state.sites.exceeds_cluster_limit:
            clusters = find_clusters(
                problem.design, problem.t, groups.group_of, False, groups.always
            )
            solver = replace(solver, cluster_of=clusters)
            screened = screen(solver, problem.design, problem.t, **options)
        if screened is None:
            raise ValueError(
                f"X takes more than {1e-09 * _HELD:.0f} GB in float64, and its groups are too "
                "large to be screened one at a time. Use fewer columns or smaller groups."
            )
        best = screened.runs.best
        best.result = problem.within_budget(best.result)
        attributes = self._run_attributes(problem, screened.runs, screened.p0, screened.v0)
        inside = groups.of(np.flatnonzero(np.isin(groups.group_of, screened.groups)))
        problem = problem.with_design(screened.design)
        fit = self._ep_fit(problem, inside, screened.runs, screened.solver, attributes, screened)
        if screened.missing > _MISSING:
            message = (
                f"{problem.reporter.name} screened the columns, and about {screened.missing:.1f} "
                "relevant groups are expected among the discarded ones, each improbable by itself. "
                "Use fewer rows or columns, so that X fits into memory and no group is discarded."
            )
            fit = replace(fit, notes=(Note(message, ConvergenceWarning), *fit.notes))
        return fit

    def _run_attributes(
        self, problem: Problem, runs: EPRuns, p0: np.ndarray, v0: np.ndarray
    ) -> dict[str, Any]:
        """Return the hyperparameters and a table of the runs of EP, as attributes."""
        unit = weight_unit(problem)
        with np.errstate(over="ignore", under="ignore"):
            slab = _one_or_all(v0 * unit * unit)
        shift = problem.units.n_observations * np.log(problem.units.target)
        chosen = [np.sum(x.state.inclusion_probability > 0.5) for x in runs.trials]
        return {
            "inclusion_prior_": _one_or_all(p0),
            "slab_variance_": slab,
            "runs_": {
                "start": np.array([x.start for x in runs.trials]),
                "log_evidence": np.array([x.evidence - shift for x in runs.trials]),
                "n_iter": np.array([x.result.n_iter for x in runs.trials]),
                "converged": np.array([x.result.converged for x in runs.trials]),
                "n_groups": np.array(chosen),
                "kept": np.array([x is runs.best for x in runs.trials]),
            },
        }

    def _stored_sites(
        self, problem: Problem, groups: Groups, runs: EPRuns, solver: GroupEP
    ) -> dict[str, Any]:
        """Return the sites of a fit, for a warm start."""
        sites = runs.best.state.sites
        return {
            "values": (sites.precision, sites.shift, sites.log_odds),
            "kind": self.sites,
            "group_of": groups.group_of,
            "clusters": solver.cluster_of,
            "unit": weight_unit(problem),
        }

    def _warm_sites(
        self, problem: Problem, groups: Groups, blocks: ColumnBlocks
    ) -> SpikeSlabSites | None:
        """Return the sites of the former fit in the units of this one, if they fit."""
        former = None if problem.previous is None else problem.previous.extra.get("sites")
        if former is None or former["kind"] != self.sites:
            return None
        if not np.array_equal(former["group_of"], groups.group_of):
            return None
        ratio = weight_unit(problem) / former["unit"]
        T, nu, pt = former["values"]
        old = column_blocks(former["group_of"], former["kind"], former["clusters"])
        unused = np.ones(blocks.n_groups)  # the solver puts in its own prior
        sites = SpikeSlabSites(
            old, unused, unused, [x * ratio**2 for x in T], [x * ratio for x in nu], list(pt)
        )
        same = len(old.buckets) == len(blocks.buckets)
        same = same and np.array_equal(old.order, blocks.order)
        return sites if same else sites.regrouped(blocks)

    def _ep_fit(
        self,
        problem: Problem,
        groups: Groups,
        runs: EPRuns,
        solver: GroupEP,
        attributes: dict[str, Any],
        screened: Screened | None = None,
    ) -> Fit:
        """Return the fit of the best run of EP."""
        best, state = runs.best, runs.best.state
        enumerated = self._enumerate(problem, runs, solver)
        digits = has_digits(max(state.marginals.rounding, enumerated.rounding))
        if best.result.converged and not digits:
            best = replace(best, result=replace(best.result, stop_reason=StopReason.STALLED))
            runs = replace(runs, best=best)
        weighed_all = enumerated.exact and not solver.learn and digits
        if screened is not None:
            enumerated = _with_groups_outside(enumerated, screened)
        function = None
        if isinstance(state.form, RowForm) and problem.rows.likelihood_weight is None:
            noise = np.full(len(problem.t), 1.0 / state.sigma2)
            function = state.form.row_moments(state.sites.half, state.marginals, noise, problem.t)
        fields, unit = run_fields(problem, best.result), weight_unit(problem)
        with np.errstate(over="ignore", under="ignore"):
            slab = fields["history"]["slab_variance"] * unit * unit
        fields["history"] = {**fields["history"], "slab_variance": slab}
        notes = _ep_notes(problem.reporter.name, runs)
        if weighed_all:
            fields |= {"converged": True, "stop_reason": StopReason.CONVERGED}
            notes = ()
        elif fields["converged"] and enumerated.unsettled > _UNSETTLED:
            fields |= {"converged": False, "stop_reason": StopReason.CYCLING}
            message = (
                f"EP of {problem.reporter.name} has not converged at noise variances of weight "
                f"{enumerated.unsettled:.2g}, over which the fit averages. log_evidence_ and "
                "the inclusion probabilities are uncertain. Pass noise_variance, or compare with "
                "inference='gibbs'."
            )
            notes = (Note(message, ConvergenceWarning), *notes)
        weighed = weighed_models(groups, enumerated.models, problem.design.columns)
        return column_fit(
            problem,
            enumerated.posterior,
            enumerated.variance,
            groups,
            np.flatnonzero(groups.support(enumerated.inclusion)),
            function=function,
            attributes={
                **attributes,
                "models_": models_table(weighed),
                "inclusion_probability_": enumerated.inclusion,
            },
            extra={"factors": weighed},
            notes=notes,
            **fields,
        )

    def _enumerate(self, problem: Problem, runs: EPRuns, solver: GroupEP) -> Enumeration:
        """Enumerate the groups that the kept run leaves undecided."""
        state = runs.best.state
        at_noise: list[NoiseRun] = []
        if has_noise_runs(solver):
            budget = problem.reporter.budget
            at_noise = noise_runs(solver, state, problem.design, problem.t, lambda: budget.over)
            state = at_noise[0].state if len(at_noise) > 1 else state
        return enumerate_undecided_groups(
            state.form,
            state.sites,
            state.marginals,
            solver.posterior(state, problem.design, problem.t),
            int(self.max_joint_groups),
            precision=1.0 / state.sigma2,
            log_constant=log_likelihood_constant(state),
            n_observations=state.n_observations,
            settled=state.sites.at_rest(state.change, solver.tol),
            at_noise=at_noise,
        )

    def _gibbs_fit(
        self,
        problem: Problem,
        groups: Groups,
        runs: EPRuns,
        solver: GroupEP,
        progress: Progress | None,
    ) -> Fit:
        """Return the sampled fit at the hyperparameters of the EP run; one chain starts there."""
        state = runs.best.state
        prior = 1.0 / (1.0 + np.exp(-state.sites.prior_log_odds))
        attributes = self._run_attributes(problem, runs, prior, state.sites.slab_variance)
        p0, v0 = attributes["inclusion_prior_"], state.sites.slab_variance

        def make(number: int, seed: int) -> GroupGibbs:
            start = state.inclusion_probability > 0.5 if number == 0 else None
            return GroupGibbs(
                groups.group_of,
                p0,
                v0,
                state.sigma2,
                int(self.n_samples),
                int(self.n_warmup),
                seed,
                start,
            )

        seeds = chain_seeds(self.random_state, self.n_chains)
        n_sweeps = int(self.n_warmup) + int(self.n_samples)
        states, fields = run_chains(problem, make, seeds, n_sweeps, progress)
        posterior = draws_posterior(states, state.sigma2, problem.design.offset_scale)
        n_draws = posterior.form.draws.shape[0]
        square = np.empty(len(groups.group_of))
        square[states[0].blocks.order] = sum(s.square_sum for s in states) / n_draws
        evidence = self._enumerate(problem, runs, solver).posterior.log_evidence
        posterior = replace(posterior, log_evidence=evidence)
        inclusion = sum(s.inclusion_sum for s in states) / n_draws
        series = inclusion_series(states)
        diagnostics, mixed, notes = chain_diagnostics(
            series, fields["stop_reason"], problem.reporter.name
        )
        models = [self._visited_models(series, inclusion)]
        weighed = weighed_models(groups, models, problem.design.columns)
        return column_fit(
            problem,
            posterior,
            np.maximum(square - posterior.mean**2, 0.0),
            groups,
            np.flatnonzero(groups.support(inclusion)),
            attributes={
                **attributes,
                **diagnostics,
                "models_": models_table(weighed),
                "inclusion_probability_": inclusion,
            },
            extra={"factors": weighed},
            notes=notes,
            converged=mixed,
            **fields,
        )

    def _visited_models(self, series: np.ndarray, inclusion: np.ndarray) -> Models:
        """Return the models that the chains visited, by how often."""
        order = np.argsort(np.abs(inclusion - 0.5), kind="stable")
        groups = np.sort(order[: int(self.max_joint_groups)])
        draws = series.reshape(-1, len(inclusion))[:, groups].astype(bool)
        chosen, count = np.unique(draws, axis=0, return_counts=True)
        return Models(groups, chosen, count / len(draws))


def _ep_notes(name: str, runs: EPRuns) -> tuple[Note, ...]:
    """Return warnings of a run that has not converged, and of others of nearly its evidence."""
    best, state, notes = runs.best, runs.best.state, []
    result = best.result
    if not result.converged:
        stalled = result.stop_reason == StopReason.STALLED
        compare = "" if stalled else ", or compare with inference='gibbs'"
        message = (
            f"EP of {name} has not converged ({result.stop_reason}) after {result.n_iter} "
            f"steps. {not_settled(result.stop_reason, state)}{compare}."
        )
        notes.append(Note(message, ConvergenceWarning))
    alternatives = [
        x
        for x in runs.trials
        if x.settled
        and best.evidence - x.evidence < _CLOSE
        and np.any((x.state.inclusion_probability > 0.5) != (state.inclusion_probability > 0.5))
    ]
    if alternatives:
        message = (
            f"EP of {name} has several fixed points that select different groups with nearly "
            f"the same evidence (within {_CLOSE:g} nats, see runs_), so the inclusion "
            "probabilities are uncertain. inference='gibbs' averages over such solutions."
        )
        notes.append(Note(message, ConvergenceWarning))
    return tuple(notes)


def _with_groups_outside(enumerated: Enumeration, screened: Screened) -> Enumeration:
    """Add the groups whose columns were left out: their probabilities and their evidence."""
    posterior = enumerated.posterior
    evidence = posterior.log_evidence + screened.log_evidence_outside
    inclusion = expit(screened.log_odds)
    inclusion[screened.groups] = enumerated.inclusion
    return replace(
        enumerated,
        inclusion=inclusion,
        posterior=replace(posterior, log_evidence=evidence),
        models=[replace(m, groups=screened.groups[m.groups]) for m in enumerated.models],
        exact=False,
    )


def _is_stored(X: Any) -> bool:
    """Return whether X stays as stored: too large in float64, with far more columns than rows."""
    if not (issparse(X) or isinstance(X, np.ndarray)) or X.ndim != 2:
        return False
    n, d = X.shape
    return bool(8.0 * n * d > _HELD and d >= 2 * SCREENED * n)


def per_group(name: str, value: Any, n_groups: int, upper: float = np.inf) -> Any:
    """A hyperparameter as a float or one value per group; None if it is to be learnt."""
    if is_option(value, "learn"):
        return None
    try:
        values = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array(np.nan)
    inside = np.all((values > 0) & (values < upper))
    if values.ndim > 1 or (values.ndim == 1 and len(values) != n_groups) or not inside:
        kind = "a positive number" if upper == np.inf else f"a number between 0 and {upper:g}"
        raise ValueError(
            f"{name} must be 'learn', {kind} or an array of {n_groups} such numbers, one per "
            f"group; got {value!r}."
        )
    return float(values) if values.ndim == 0 else values


def _one_or_all(values: np.ndarray) -> PerGroup:
    return float(values[0]) if np.all(values == values[0]) else values
