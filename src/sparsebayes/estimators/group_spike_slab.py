"""Group spike-and-slab regression: which groups of columns matter, and with what probability."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectorMixin

from ..callbacks import Progress
from ..designs.subset import subset
from ..linalg.blocks import ColumnBlocks, column_blocks
from ..priors import overlapping_groups
from ..solvers.group.clusters import find_clusters, group_correlation
from ..solvers.group.ep import LEARNABLE, GroupEP, log_likelihood_constant
from ..solvers.group.forms import RowForm
from ..solvers.group.gibbs import GroupGibbs, draws_posterior, inclusion_series
from ..solvers.group.joint import Joint, Models, credible_sets, look_together, select
from ..solvers.group.screening import SCREENED, Screened, screen, search_columns
from ..solvers.group.search import MOST_TRIAL_STEPS, EPRuns, starting_values
from ..solvers.group.sites import SpikeSlabSites
from ..solvers.noise import noise_floor
from ..solvers.run import StopReason
from ._base import Problem, keep_run, make_problem, problem_in_memory, progress_of
from ._common import is_text, keep_kernel, one_scale
from ._group import GroupRegressor, column_numbers, not_settled, stored_columns
from ._sklearn import check_is_fitted, check_sample_weight, validate_data, warn

_WIDE = 100.0  # times the power of the target: what a column that is always in may explain
_HELD = 1e9  # bytes of X in float64 up to which it is held in memory
_TYPES = [np.float64, np.float32, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.bool_]
_MISSING = 0.5  # groups expected among the columns left out
_CLOSE = 5.0  # nats: fixed points closer than this cannot be told apart by the EP evidence


class GroupSelectorMixin(SelectorMixin):
    """Columns chosen by the inclusion probability of their group."""

    inclusion_probability_: np.ndarray
    group_index_: np.ndarray
    group_names_: np.ndarray
    groups: Any
    always: Any
    n_features_in_: int
    _columns: np.ndarray  # of X, repeated where groups overlap
    _group_of: np.ndarray  # of each of them
    _always: np.ndarray  # groups
    _factors: list[tuple[Models, np.ndarray]] | None

    def get_support(self, threshold: float = 0.5, indices: bool = False) -> np.ndarray:
        """Columns whose group is in the model with more than this probability.

        Parameters
        ----------
        threshold : float, default=0.5
            Smallest probability of a group that is in.
        indices : bool, default=False
            Return the indices of the columns instead of a mask.

        Returns
        -------
        support : array of bool of shape (n_features,), or array of int
        """
        check_is_fitted(self)
        chosen = (self.inclusion_probability_ > threshold)[self._group_of]
        mask = np.zeros(self.n_features_in_, dtype=bool)
        mask[self._columns[chosen]] = True
        return np.flatnonzero(mask) if indices else mask

    def _set_groups(self) -> np.ndarray:
        """Check `groups` and `always`."""
        self._columns, self._group_of, self.group_names_ = overlapping_groups(
            column_numbers(self), self.n_features_in_
        )
        self.group_index_ = np.empty(self.n_features_in_, dtype=np.intp)
        self.group_index_[self._columns[::-1]] = self._group_of[::-1]
        wanted = np.atleast_1d(np.asarray(() if self.always is None else self.always))
        unknown = wanted[~np.isin(wanted, self.group_names_)]
        if unknown.size:
            raise ValueError(
                f"always names {unknown[0]}, which is no group: give labels of groups, or column "
                "numbers where each column is a group."
            )
        self._always = np.flatnonzero(np.isin(self.group_names_, wanted))
        if len(self._always) == len(self.group_names_):
            raise ValueError("always names every group, which leaves nothing to select.")
        return self._group_of

    def _with_always(self, design: Any, p0: Any, v0: Any, power: float) -> tuple[Any, Any]:
        """p0 and v0 of all groups: those that are in for good have a wide slab.

        It explains `_WIDE` times `power` with each column, unless v0 says more about each group.
        """
        if len(self._always) == 0:
            return p0, v0
        n_groups = len(self.group_names_)
        p0 = np.array(np.broadcast_to(p0, n_groups), dtype=float)
        p0[self._always] = 1.0
        if np.ndim(v0) == 0:
            v0 = np.full(n_groups, float(v0))
            size = np.bincount(self._group_of, weights=design.sqnorms()[: len(self._group_of)])
            size = np.maximum(size / np.bincount(self._group_of), np.finfo(float).tiny)
            v0[self._always] = _WIDE * power / size[self._always]
        return p0, v0

    def _get_support_mask(self) -> np.ndarray:
        return self.get_support()

    def credible_sets(
        self, coverage: float = 0.95, min_purity: float = 0.5, return_details: bool = False
    ) -> Any:
        """Sets of groups, each with an active one with this probability.

        Near-duplicates of an active group share its probability: a set says "one of these". Sets
        are as small as they can be; a group is in one at most.

        Parameters
        ----------
        coverage : float, default=0.95
            Probability with which each set is to hold a group that is in the model.
        min_purity : float, default=0.5
            Sets in which two groups have a smaller absolute correlation are left out: they are no
            near-duplicates, only undecided together.
        return_details : bool, default=False
            Also return the probability and the purity (the smallest absolute correlation between
            two of its groups) of each set.

        Returns
        -------
        sets : list of arrays of group labels
            The likeliest first.
        probability, purity : arrays of shape (n_sets,), where asked for
        """
        check_is_fitted(self)
        if not 0.0 < coverage < 1.0:
            raise ValueError(f"coverage must be between 0 and 1; got {coverage!r}.")
        if self._factors is None:
            raise ValueError(
                "Credible sets are of one model, and this classifier has one for each of its "
                f"{len(self.classes_)} classes: fit it to one class against the rest."
            )
        p = self._in_question()
        found = credible_sets(p, self._factors, coverage, min_purity)
        sets = [self.group_names_[s.groups] for s in found]
        if not return_details:
            return sets
        return sets, *(np.array([getattr(s, k) for s in found]) for k in ("probability", "purity"))

    def select(self, fdr: float = 0.1) -> np.ndarray:
        """The labels of as many groups as an expected false discovery rate allows.

        Parameters
        ----------
        fdr : float, default=0.1
            Expected share of groups among those selected that are not in the model: the mean of
            one less their inclusion probability.

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
        p[self._always] = 0.0
        return p


def keep_models(self: Any, factors: list[Models], columns: Any) -> None:
    """The models that were weighed, as arrays; `columns` gives some columns of X."""
    self._factors = []
    for models in factors:
        inside = np.flatnonzero(np.isin(self._group_of, models.groups))
        X = columns(inside)
        owner = self._group_of[inside]
        self._factors.append((models, group_correlation(X - X.mean(axis=0), owner, models.groups)))
    none = (Models(np.empty(0, np.intp), np.ones((1, 0), bool), np.ones(1)), np.empty((0, 0)))
    models, correlation = self._factors[0] if factors else none
    self.models_ = {
        "groups": models.groups,
        "chosen": models.chosen,
        "probability": models.weight,
        "correlation": correlation,
    }


class GroupSpikeSlabRegressor(GroupSelectorMixin, GroupRegressor):
    """Linear regression in which whole groups of columns are in or out of the model.

    Each group of coefficients is exactly zero with probability ``1 - inclusion_prior`` and Gaussian
    with variance ``slab_variance`` otherwise (spike and slab). The fit gives the posterior
    probability that each group is in, by expectation propagation (EP), in closed-form time, or by
    Gibbs sampling.

    An X (array, memory map or sparse, of float64, float32 or integers of up to 32 bits) that would
    take more than 1 GB in float64 and has at least twenty columns for each row stays as it is
    stored. EP then runs on the columns that matter, found in passes over all, and `basis_` has only
    these: of the others the probabilities are known, and the coefficients are zero.

    Parameters
    ----------
    groups : array-like of n_features labels, list of lists of column indices, or None, default=None
        Which columns belong together. None: each column alone. Lists may have names in place of
        numbers where X is a frame, and may share columns: a column of several groups has a
        coefficient in each, and `coef_` their sum.
    inclusion_prior : "learn", float or array of shape (n_groups,), default="learn"
        Prior probability of a group being in. "learn" finds one common value that maximises the
        evidence; likewise below.
    slab_variance : "learn", float or array of shape (n_groups,), default="learn"
        Variance of the coefficients of a group that is in, in units of y^2/X^2. One value for all
        presumes columns of comparable scale.
    noise_variance : "learn" or float, default="learn"
        Variance of the noise: learnt, or known.
    inference : {"ep", "gibbs"}, default="ep"
        ``"gibbs"`` samples, at the hyperparameters that EP has learnt where they are learnt.
    sites : {"group", "column"}, default="group"
        One EP site per group, or one per column as in the paper, which ignores the correlation
        of columns inside a group.
    anneal : {"auto", True, False}, default="auto"
        EP has wrong fixed points where the noise is low and rows are few. ``"auto"`` also runs EP
        with noise that is cooled down from above where the noise is below a tenth of the variance
        of y, runs more starts where the result is doubtful, and keeps the run of highest
        evidence. False: one run. True: always a cooled run too.
    max_joint_groups : int, default=32
        After EP, at most so many of the groups that it leaves undecided, or that could stand in for
        one that is in, are looked at together, summing over which of them are in: near-duplicates
        then share their probability as they should, and predictions are a mixture over the models.
        0: EP alone, as in the paper.
    always : array-like of group labels, or None, default=None
        Groups that are in the model for good: covariates whose coefficients have a wide slab (or
        that of their group, where `slab_variance` is an array) and no spike. They take no part in
        learning the priors, in `credible_sets` and in `select`.
    fit_intercept : bool, default=True
        Add a constant with a flat prior, integrated out.
    max_iter : int, default=500
        Most EP steps of the kept run.
    tol : float, default=1e-4
        Largest change per step of inclusion probabilities, and of means and standard deviations in
        units of the slab's, at which EP has converged.
    damping : float, default=0.9
        Share of the new site in the first update; it falls by 1 % a step.
    warm_start : bool, default=False
        Start from the sites of the former fit if the columns and groups are the same. Rows may have
        been added.
    n_chains, n_samples, n_warmup : int
        Of the Gibbs sampler (refused without it): chains, kept sweeps of each and sweeps before
        them.
    random_state : int, RandomState or None, default=0
        For the Gibbs sampler; EP uses no chance.
    verbose : int, default=0
        1 prints progress about once a second, 2 at every step.

    Attributes
    ----------
    inclusion_probability_ : array of shape (n_groups,)
        Posterior probability of each group being in.
    coef_ : array of shape (n_features,)
        Posterior mean, averaged over the group being in or out.
    coef_variance_ : array of shape (n_features,)
        Posterior variance of each weight.
    intercept_ : float
        The constant of the model.
    active_ : array of int
        Columns of the groups with inclusion probability above 0.5.
    group_names_ : array of shape (n_groups,)
        Label of each group, in the order of `inclusion_probability_`.
    group_index_ : array of int of shape (n_features,)
        Position of each column's group in `group_names_`; the first, where it has several.
    inclusion_prior_, slab_variance_ : float or array
        As given or learnt.
    noise_variance_ : float
        Variance of the noise, as learnt or as given.
    log_evidence_ : float
        The EP approximation of the log evidence, corrected by what looking at the undecided groups
        together has shown: exact to rounding where those are all groups (`max_joint_groups`). A
        Gibbs fit reports that of its EP run.
    loo_ : Bunch
        Leave-one-out ``residuals``, ``std``, ``log_density`` and ``r2``, in closed form
        where no undecided groups were enumerated.
    history_ : dict of arrays
        One entry per EP step of the kept run (``"gibbs"``: per sweep, chain after chain).
    runs_ : dict of arrays
        One entry per EP run: how it started, log evidence (of EP alone), steps, whether it
        converged, number of groups. More than one fixed point shows here.
    models_ : dict of arrays
        The models that were weighed together, the heaviest first: which groups they are about (as
        positions in `group_names_`), which of them each model has, its probability, and the
        absolute correlations between those groups.
    n_iter_ : int
        Steps that the fit took.
    converged_ : bool
        Whether EP ended because there was nothing more to gain, or all models of all groups were
        weighed at given hyperparameters, which needs no EP.
    stop_reason_ : str
        Why the fit ended: ``"converged"``, or what stopped it.
    r_hat_, effective_sample_size_ : arrays of shape (n_groups,)
        Of the inclusion of each group; Gibbs only.
    basis_, posterior_
        The columns, and what is known about their weights.

    References
    ----------
    Hernández-Lobato, Hernández-Lobato and Dupont (2013). Generalized spike-and-slab priors for
    Bayesian group feature selection using expectation propagation. JMLR 14.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.estimators.group_spike_slab import GroupSpikeSlabRegressor
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
        inclusion_prior: Any = "learn",
        slab_variance: Any = "learn",
        noise_variance: Any = "learn",
        inference: str = "ep",
        sites: str = "group",
        anneal: Any = "auto",
        max_joint_groups: int = 32,
        always: Any = None,
        fit_intercept: bool = True,
        max_iter: int = 500,
        tol: float = 1e-4,
        damping: float = 0.9,
        warm_start: bool = False,
        n_chains: int = 4,
        n_samples: int = 1000,
        n_warmup: int = 200,
        random_state: Any = 0,
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
        self.damping = damping
        self.warm_start = warm_start
        self.n_chains = n_chains
        self.n_samples = n_samples
        self.n_warmup = n_warmup
        self.random_state = random_state
        self.verbose = verbose

    _sites_of: Any = None  # what the sites of the last fit are of

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Any:
        problem = self._make_problem(X, y, sample_weight)
        self._set_groups()
        if len(self._columns) > self.n_features_in_:
            problem = replace(problem, design=subset(problem.design, self._columns))
        solver = self._solver(problem)
        sweeps = self._n_sweeps() * int(self.n_chains) if self.inference == "gibbs" else 0
        progress = progress_of(self, problem, int(self.max_iter) + MOST_TRIAL_STEPS + sweeps)
        try:
            if _is_stored(X):
                few, solver = self._run_screened(problem, solver, progress)
                self._keep_ep(replace(problem, design=few.design), few.runs, solver, few)
            else:
                found = self._run_ep(problem, solver, progress)
                if self.inference == "gibbs":
                    self._keep_gibbs(problem, found, solver, progress)
                else:
                    self._keep_ep(problem, found, solver)
        finally:
            progress.close()
        return problem.rows

    def _make_problem(self, X: Any, y: Any, sample_weight: Any) -> Problem:
        """The problem: of X in float64, or as it is stored."""
        if not _is_stored(X):
            X = X.toarray() if issparse(X) else X
            return make_problem(self, X, y, sample_weight, columns=one_scale)
        if self.inference == "gibbs":
            raise ValueError(
                f"X takes {8e-9 * X.shape[0] * X.shape[1]:.1f} GB in float64, more than the "
                f"{1e-9 * _HELD:.0f} GB that are held, and the Gibbs sampler needs all of it: use "
                "inference='ep', or the columns that it finds."
            )
        X, y = validate_data(
            self, X, y, accept_sparse="csc", dtype=_TYPES, ensure_min_samples=2, y_numeric=True
        )
        keep_kernel(self, None, None)
        weight = None if sample_weight is None else check_sample_weight(sample_weight, X)
        y = np.asarray(y, dtype=np.float64)
        return problem_in_memory(self, X, y, weight, stored_columns, None)

    def _keeps_sparse(self) -> bool:
        return True  # a fit makes dense what it needs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.inference == "ep":
            why = "is for the Gibbs sampler: use inference='gibbs' with it, EP draws nothing."
            self._refuse(("n_chains", "n_samples", "n_warmup"), why)

    def _solver(self, problem: Problem) -> GroupEP:
        design, t = problem.design, problem.t
        n_groups, unit = len(self.group_names_), self._weight_unit(problem)
        p0 = per_group("inclusion_prior", self.inclusion_prior, n_groups, upper=1.0)
        v0 = per_group("slab_variance", self.slab_variance, n_groups)
        sigma2 = problem.in_units(self.noise_variance)
        given = (p0, None if v0 is None else v0 / unit / unit, sigma2)
        learn = tuple(name for name, x in zip(LEARNABLE, given, strict=True) if x is None)
        start = starting_values(design, t, n_groups)
        clusters = None
        if self.sites == "group":
            clusters = find_clusters(design, t, self._group_of, always=self._always)
        blocks = column_blocks(self._group_of, self.sites, clusters)
        warm = self._warm_sites(problem, blocks) if self.warm_start else None
        if warm is not None:
            noise = self.noise_variance_ / problem.target_scale / problem.target_scale
            start = (self.inclusion_prior_, self.slab_variance_ / unit / unit, noise)
        p0, v0, sigma2 = (s if g is None else g for g, s in zip(given, start, strict=True))
        p0, v0 = self._with_always(design, p0, v0, float(t @ t))
        return GroupEP(
            self._group_of,
            p0,
            v0,
            sigma2,
            sites=self.sites,
            learn=learn,
            smallest_noise=noise_floor(t, design.n_observations),
            tol=float(self.tol),
            damping=float(self.damping),
            warm=warm,
            cluster_of=clusters,
        )

    def _run_ep(self, problem: Problem, solver: GroupEP, progress: Progress) -> EPRuns:
        options = {"anneal": self.anneal, "max_iter": int(self.max_iter), "callback": progress}
        found = search_columns(solver, problem.design, problem.t, **options)
        if found.best.state.sites.overfull:
            clusters = find_clusters(problem.design, problem.t, self._group_of, False, self._always)
            solver = replace(solver, cluster_of=clusters, warm=None)
            found = search_columns(solver, problem.design, problem.t, **options)
        learnt = found.best.state.sites
        prior = 1.0 / (1.0 + np.exp(-learnt.prior_log_odds))
        self._keep_runs(problem, found, prior, learnt.slab_variance)
        self._sites = (learnt.precision, learnt.shift, learnt.log_odds)
        unit = self._weight_unit(problem)
        self._sites_of = (self.sites, self._group_of, solver.cluster_of, unit)
        return found

    def _run_screened(
        self, problem: Problem, solver: GroupEP, progress: Progress
    ) -> tuple[Screened, GroupEP]:
        """EP on the columns that matter, where X is not held; they are what the model has."""
        options = {"anneal": self.anneal, "max_iter": int(self.max_iter), "callback": progress}
        few = screen(solver, problem.design, problem.t, **options)
        if few is not None and few.runs.best.state.sites.overfull:
            clusters = find_clusters(problem.design, problem.t, self._group_of, False, self._always)
            solver = replace(solver, cluster_of=clusters)
            few = screen(solver, problem.design, problem.t, **options)
        if few is None:
            raise ValueError(
                f"X takes more than the {1e-9 * _HELD:.0f} GB in float64 that are held, and its "
                "groups are too large for some of them to be searched alone: take fewer columns."
            )
        self._sites_of = None  # there is no warm start from some columns
        self._keep_runs(problem, few.runs, few.p0, few.v0)
        inside = np.isin(self._group_of, few.groups)
        self._columns, self._group_of = self._columns[inside], self._group_of[inside]
        if few.missing > _MISSING:
            warn(
                f"About {few.missing:.1f} groups more would be in {type(self).__name__} among the "
                "columns that were left out, each unlikely by itself: with X in memory (fewer rows "
                "or columns) EP looks at all of them.",
                ConvergenceWarning,
            )
        return few, few.solver

    def _keep_runs(self, problem: Problem, found: EPRuns, p0: np.ndarray, v0: np.ndarray) -> None:
        self.inclusion_prior_ = _one_or_all(p0)
        unit = self._weight_unit(problem)
        with np.errstate(over="ignore", under="ignore"):
            self.slab_variance_ = _one_or_all(v0 * unit * unit)
        shift = problem.design.n_observations * np.log(problem.target_scale)
        chosen = [np.sum(x.state.inclusion_probability > 0.5) for x in found.trials]
        self.runs_ = {
            "start": np.array([x.start for x in found.trials]),
            "log_evidence": np.array([x.evidence - shift for x in found.trials]),
            "n_iter": np.array([x.result.n_iter for x in found.trials]),
            "converged": np.array([x.result.converged for x in found.trials]),
            "n_groups": np.array(chosen),
            "kept": np.array([x is found.best for x in found.trials]),
        }

    def _warm_sites(self, problem: Problem, blocks: ColumnBlocks) -> SpikeSlabSites | None:
        """The sites of the former fit in the units of this one, if they fit."""
        if self._sites_of is None:
            return None
        kind, group_index, clusters, scale = self._sites_of
        if kind != self.sites or not np.array_equal(group_index, self._group_of):
            return None
        ratio = self._weight_unit(problem) / scale
        T, nu, pt = self._sites
        former = column_blocks(group_index, kind, clusters)
        unused = np.ones(blocks.n_groups)  # the solver puts in its own prior
        sites = SpikeSlabSites(
            former, unused, unused, [x * ratio**2 for x in T], [x * ratio for x in nu], list(pt)
        )
        same = len(former.buckets) == len(blocks.buckets)
        same = same and np.array_equal(former.order, blocks.order)
        return sites if same else sites.regrouped(blocks)

    def _keep_ep(
        self, problem: Problem, found: EPRuns, solver: GroupEP, few: Screened | None = None
    ) -> None:
        best, state = found.best, found.best.state
        joint = self._look_together(problem, found, solver)
        inclusion, variance, posterior, models = joint[:4]
        if few is not None:
            more = few.log_evidence_outside
            posterior = replace(posterior, log_evidence=posterior.log_evidence + more)
            models = [replace(m, groups=few.groups[m.groups]) for m in models]
            everyone = expit(few.log_odds)
            everyone[few.groups] = inclusion
            inclusion = everyone
        function = None
        if isinstance(state.form, RowForm) and problem.rows[2] is None:
            noise = np.full(len(problem.t), 1.0 / state.sigma2)
            function = state.form.row_moments(state.sites.half, state.marginals, noise, problem.t)
        self._keep_columns(problem, posterior, variance, function)
        keep_models(self, models, problem.design.columns)
        keep_run(self, problem, best.result)
        self._keep_inclusion(inclusion)
        unit = self._weight_unit(problem)
        with np.errstate(over="ignore", under="ignore"):
            self.history_["slab_variance"] = self.history_["slab_variance"] * unit * unit
        name = type(self).__name__
        if joint.exact and not solver.learn:
            # Every model was weighed: nothing depends on the run of EP.
            self.converged_, self.stop_reason_ = True, StopReason.CONVERGED.value
            return
        if not self.converged_:
            warn(
                f"EP of {name} stopped before it converged ({self.stop_reason_}) after "
                f"{self.n_iter_} steps: {not_settled(self.stop_reason_, state)}, or compare with "
                "inference='gibbs'.",
                ConvergenceWarning,
            )
        rivals = [
            x
            for x in found.trials
            if x.settled
            and best.evidence - x.evidence < _CLOSE
            and np.any((x.state.inclusion_probability > 0.5) != (state.inclusion_probability > 0.5))
        ]
        if rivals:
            warn(
                f"EP of {name} found fixed points that choose other groups at nearly the same "
                f"evidence (within {_CLOSE:g} nats, see runs_): the inclusion probabilities are "
                "less certain than they look. inference='gibbs' averages over such solutions.",
                ConvergenceWarning,
            )

    def _look_together(self, problem: Problem, found: EPRuns, solver: GroupEP) -> Joint:
        """What is known after the kept run, undecided groups looked at together."""
        state = found.best.state
        posterior = solver.posterior(state, problem.design, problem.t)
        most = int(self.max_joint_groups)
        noise = 1.0 / state.sigma2
        return look_together(
            state.form,
            state.sites,
            state.marginals,
            posterior,
            most,
            precision=noise,
            log_constant=log_likelihood_constant(state),
        )

    def _keep_gibbs(
        self, problem: Problem, found: EPRuns, solver: GroupEP, progress: Progress
    ) -> None:
        """Sample at the hyperparameters of the EP run; one chain starts from its groups."""
        state = found.best.state
        p0, v0 = self.inclusion_prior_, state.sites.slab_variance

        def make(number: int, seed: int) -> GroupGibbs:
            start = state.inclusion_probability > 0.5 if number == 0 else None
            return GroupGibbs(
                self._group_of,
                p0,
                v0,
                state.sigma2,
                int(self.n_samples),
                int(self.n_warmup),
                seed,
                start,
            )

        states = [s for s in self._run_chains(problem, make, progress) if s.draws]
        if not states:
            raise RuntimeError("The Gibbs sampler was stopped before it kept a sweep.")
        posterior = draws_posterior(states, state.sigma2, problem.design.offset_scale)
        n_draws = posterior.form.draws.shape[0]
        square = np.empty(len(self._group_of))
        square[states[0].blocks.order] = sum(s.square_sum for s in states) / n_draws
        self._keep_columns(problem, posterior, np.maximum(square - posterior.mean**2, 0.0))
        evidence = self._look_together(problem, found, solver)[2].log_evidence
        shift = problem.design.n_observations * np.log(problem.target_scale)
        self.log_evidence_ = float(evidence - shift)
        self._keep_inclusion(sum(s.inclusion_sum for s in states) / n_draws)
        shortest = min(len(s.visited) for s in states)
        for s in states:
            del s.visited[shortest:]
        series = inclusion_series(states)
        self._keep_diagnostics(series)
        keep_models(self, [self._visited_models(series)], problem.design.columns)

    def _visited_models(self, series: np.ndarray) -> Models:
        """Those that the chains were in, by how often."""
        p = self.inclusion_probability_
        groups = np.sort(np.argsort(np.abs(p - 0.5), kind="stable")[: int(self.max_joint_groups)])
        draws = series.reshape(-1, len(p))[:, groups].astype(bool)
        chosen, count = np.unique(draws, axis=0, return_counts=True)
        return Models(groups, chosen, count / len(draws))

    def _keep_inclusion(self, probability: np.ndarray) -> None:
        self.inclusion_probability_ = probability
        self.active_ = self.get_support(indices=True)


def _is_stored(X: Any) -> bool:
    """Whether X stays as it is stored: too large in float64, with far more columns than rows."""
    if not (issparse(X) or isinstance(X, np.ndarray)) or X.ndim != 2:
        return False
    n, d = X.shape
    return bool(8.0 * n * d > _HELD and d >= 2 * SCREENED * n)


def per_group(name: str, value: Any, n_groups: int, upper: float = np.inf) -> Any:
    """A hyperparameter as a float or one value per group; None if it is to be learnt."""
    if is_text(value, "learn"):
        return None
    try:
        values = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array(np.nan)
    inside = np.all((values > 0) & (values < upper))
    if values.ndim > 1 or (values.ndim == 1 and len(values) != n_groups) or not inside:
        kind = "a positive number" if upper == np.inf else f"a number between 0 and {upper:g}"
        raise ValueError(
            f"{name} must be 'learn', {kind} or {n_groups} such numbers, one per group; "
            f"got {value!r}."
        )
    return float(values) if values.ndim == 0 else values


def _one_or_all(values: np.ndarray) -> Any:
    return float(values[0]) if np.all(values == values[0]) else values
