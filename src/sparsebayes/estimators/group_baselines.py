"""Baselines for groups of columns, to compare with the spike-and-slab model."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._array import RandomState
from ..fitting import Fit, Note, run_fields
from ..problem import Problem
from ..solvers.group.ard import GroupARD
from ..solvers.group.search import starting_values
from ..solvers.group.shrinkage import GroupShrinkage, draws_posterior
from ..solvers.noise import noise_floor
from ._estimator import Capabilities
from ._group import (
    GroupRegressor,
    Groups,
    chain_diagnostics,
    chain_seeds,
    column_fit,
    disjoint_groups,
    run_chains,
    weight_unit,
)
from ._sklearn import words


class GroupARDRegressor(GroupRegressor):
    """Linear regression with one prior precision per group of columns, by maximum evidence.

    This is automatic relevance determination: the precision of an irrelevant group is infinite and
    its coefficients are zero. For inclusion probabilities use `GroupSpikeSlabRegressor`.

    Parameters
    ----------
    inclusion_prior : {"learn", None}, default="learn"
        Prior on the number of relevant groups. With ``"learn"`` every number is equally likely, so
        that after k of m groups the next one must raise the log evidence by log((m - k)/(k + 1)).
        This excludes the best of many irrelevant groups. With None there is no such prior, as in
        the literature: with more columns than rows, that model interpolates the targets.
    tol : float, default=1e-3
        Tolerance in nats: steps that change the log evidence by less are followed by Newton steps.
        The fit has converged when one of these gains less than a thousandth of it.

    Attributes
    ----------
    coef_, coef_std_, intercept_, feature_relevance_
    group_precision_ : array of shape (n_groups,)
        Prior precision of the coefficients of each group.
    group_relevance_ : array of shape (n_groups,)
        Effective degrees of freedom of each group divided by its size, from 0 to 1.
    active_ : array of int
        Columns of the groups whose relevance exceeds 0.01.
    group_names_, group_index_, noise_model_, noise_tail_, calibration_, noise_variance_
    log_evidence_, history_, n_iter_, converged_, stop_reason_, basis_, posterior_

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import GroupARDRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((50, 30))
    >>> y = X[:, 3:6] @ [2.0, -1.0, 1.0] + 0.5 * rng.standard_normal(50)
    >>> model = GroupARDRegressor(groups=np.arange(30) // 3).fit(X, y)
    >>> int(np.argmax(model.group_relevance_))
    1
    """

    capabilities = Capabilities(selects=True)

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **GroupRegressor._parameter_constraints,
        "inclusion_prior": [None, words("learn")],
    }

    def __init__(
        self,
        groups: Any = None,
        *,
        noise_variance: float | str = "learn",
        inclusion_prior: str | None = "learn",
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-3,
        max_time: float | None = None,
        verbose: int = 0,
    ) -> None:
        self.groups = groups
        self.noise_variance = noise_variance
        self.inclusion_prior = inclusion_prior
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.max_time = max_time
        self.verbose = verbose

    def _solve(self, problem: Problem) -> Fit:
        groups = disjoint_groups(self)
        solver = self._solver(problem, groups)
        result = problem.run(solver, int(self.max_iter))
        state, unit = solver.without_gone(result.state, problem.design), weight_unit(problem)
        used = state.blocks.per_group([np.einsum("gii->g", H) for H in state.marginals.H])
        relevance = used / np.bincount(groups.index)
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            precision = 1.0 / state.lam / unit / unit
        notes: tuple[Note, ...] = ()
        if not result.converged:
            message = (
                f"{problem.reporter.name} has not converged ({result.stop_reason}) after "
                f"{result.n_iter} steps. {result.stop_reason.advice}"
            )
            notes = (Note(message, ConvergenceWarning),)
        return column_fit(
            problem,
            solver.posterior(state, problem.design, problem.t),
            state.variance,
            groups,
            np.flatnonzero((relevance > 0.01)[groups.index]),
            attributes={"group_precision_": precision, "group_relevance_": relevance},
            notes=notes,
            **run_fields(problem, result),
        )

    def _solver(self, problem: Problem, groups: Groups) -> GroupARD:
        design, t = problem.design, problem.t
        p0, v0, start = starting_values(design, t, len(groups))
        sigma2 = problem.solver_noise
        return GroupARD(
            groups.index,
            v0 * p0,
            start if sigma2 is None else sigma2,
            sigma2 is None,
            noise_floor(t, design.n_observations),
            float(self.tol),
            self.inclusion_prior,
        )


class _ShrinkageRegressor(GroupRegressor):
    """Base of the two sampled scale mixtures.

    Parameters
    ----------
    noise_variance : "learn" or float
        ``"learn"`` samples the variance of the noise (with prior 1/variance); a float is a known
        variance.
    n_chains : int
        Number of chains.
    n_samples : int
        Number of stored sweeps per chain. All draws are kept in memory.
    n_warmup : int
        Number of warm-up sweeps per chain.
    random_state : int, RandomState or None
        Seed of the draws.

    Attributes
    ----------
    active_ : array of int
        All columns, because no coefficient is exactly zero.
    noise_variance_ : float
        Posterior mean.
    log_evidence_ : float
        NaN, because a sampler does not estimate it.
    r_hat_ : array of shape (n_features,)
        Convergence diagnostic of each weight, near 1 if the chains have mixed.
    effective_sample_size_ : array of shape (n_features,)
        Effective number of draws of each weight.
    converged_ : bool
        Whether the chains have mixed.
    """

    _prior: str

    def __init__(
        self,
        groups: Any = None,
        *,
        noise_variance: float | str = "learn",
        fit_intercept: bool = True,
        n_chains: int = 4,
        n_samples: int = 1000,
        n_warmup: int = 500,
        random_state: RandomState = 0,
        verbose: int = 0,
    ) -> None:
        self.groups = groups
        self.noise_variance = noise_variance
        self.fit_intercept = fit_intercept
        self.n_chains = n_chains
        self.n_samples = n_samples
        self.n_warmup = n_warmup
        self.random_state = random_state
        self.verbose = verbose

    def _solve(self, problem: Problem) -> Fit:
        groups, sigma2 = disjoint_groups(self), problem.solver_noise
        n_samples, n_warmup = int(self.n_samples), int(self.n_warmup)
        seeds, n_sweeps = chain_seeds(self.random_state, self.n_chains), n_samples + n_warmup

        def make(number: int, seed: int) -> GroupShrinkage:
            return GroupShrinkage(groups.index, self._prior, sigma2, n_samples, n_warmup, seed)

        with problem.progress(n_sweeps * len(seeds)) as progress:
            states, fields = run_chains(problem, make, seeds, n_sweeps, progress)
        posterior = draws_posterior(states, problem.design.offset_scale)
        shortest = min(len(s.draws) for s in states)
        series = np.array([s.draws[:shortest] for s in states])
        attributes, mixed, notes = chain_diagnostics(
            series, fields["stop_reason"], problem.reporter.name
        )
        return column_fit(
            problem,
            posterior,
            posterior.form.draws.var(axis=0),
            groups,
            groups.columns,
            attributes=attributes,
            notes=notes,
            converged=mixed,
            **fields,
        )


class GroupHorseshoeRegressor(_ShrinkageRegressor):
    """Linear regression with a horseshoe prior on groups of columns, by Gibbs sampling.

    The coefficients of group g are Gaussian with variance ``noise * lambda_g^2 * tau^2``, where
    lambda_g and tau have half-Cauchy priors. Most groups are shrunk strongly and a few hardly at
    all. No coefficient is exactly zero, and there are no inclusion probabilities.

    Parameters
    ----------
    groups, noise_variance, fit_intercept, n_chains, n_samples, n_warmup, random_state, verbose

    Attributes
    ----------
    coef_, coef_std_, intercept_, feature_relevance_, noise_model_, noise_tail_, calibration_
    active_, noise_variance_, log_evidence_, r_hat_, effective_sample_size_, group_names_
    group_index_, history_, n_iter_, converged_, stop_reason_, basis_, posterior_

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import GroupHorseshoeRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((50, 30))
    >>> y = X[:, 3:6] @ [2.0, -1.0, 1.0] + 0.5 * rng.standard_normal(50)
    >>> model = GroupHorseshoeRegressor(np.arange(30) // 3, n_samples=500, n_chains=2).fit(X, y)
    >>> bool(np.all(abs(model.coef_[3:6] - [2.0, -1.0, 1.0]) < 0.3))
    True
    """

    _prior = "horseshoe"


class BayesianGroupLassoRegressor(_ShrinkageRegressor):
    """Linear regression with the Bayesian group lasso prior, by Gibbs sampling.

    Each group has a multivariate Laplace prior, under which the posterior mode is the group lasso;
    its scale is sampled too. The posterior mean is not sparse, and large groups are shrunk too. It
    is a common baseline for spike-and-slab models.

    Parameters
    ----------
    groups, noise_variance, fit_intercept, n_chains, n_samples, n_warmup, random_state, verbose

    Attributes
    ----------
    coef_, coef_std_, intercept_, feature_relevance_, noise_model_, noise_tail_, calibration_
    active_, noise_variance_, log_evidence_, r_hat_, effective_sample_size_, group_names_
    group_index_, history_, n_iter_, converged_, stop_reason_, basis_, posterior_

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import BayesianGroupLassoRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((50, 30))
    >>> y = X[:, 3:6] @ [2.0, -1.0, 1.0] + 0.5 * rng.standard_normal(50)
    >>> model = BayesianGroupLassoRegressor(np.arange(30) // 3, n_samples=500, n_chains=2).fit(X, y)
    >>> bool(np.all(abs(model.coef_[3:6] - [2.0, -1.0, 1.0]) < 0.5))
    True
    """

    _prior = "lasso"
