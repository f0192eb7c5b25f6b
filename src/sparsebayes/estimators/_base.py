"""What the regressors share: from (X, y) to a design, and from a posterior to predictions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ..callbacks import Progress
from ..designs import CentredBasis, Design, KernelBasis
from ..designs._base import row_slices
from ..designs.sparse import centred, weighted
from ..execution import is_dask
from ..kernels import Kernel
from ..posterior import AddedVariance, Posterior
from ..solvers.run import Result, Solver, run
from ._common import SparseEstimator, as_float, cure, predict_blocks, set_kernel
from ._common import power_of_two as _power_of_two
from ._sklearn import (
    Number,
    check_is_fitted,
    check_sample_weight,
    validate_data,
    warn,
    whole_fit,
    words,
)


@dataclass
class Problem:
    """A validated regression problem, ready for a solver."""

    design: Design
    t: np.ndarray  # scaled, weighted, centred
    offset: Any  # of the scaled target
    target_scale: Any  # y = target_scale * (what the solver sees)
    candidates: np.ndarray  # candidate -> row (kernels) or column (kernel=None) of X
    X: np.ndarray
    kernel: Kernel | None


class SparseRegressor(RegressorMixin, SparseEstimator):
    """Base of the regressors whose candidates are kernel functions or columns.

    A subclass gives its parameters and `_make_solver`; everything here is the same for all.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseEstimator._parameter_constraints,
        "noise_variance": [words("learn"), Number(0)],
    }
    _added: AddedVariance | None = None  # variance beyond that of `posterior_`

    def _make_solver(self, problem: Problem) -> Solver:
        raise NotImplementedError

    @whole_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel matrix of the training rows.
        y : array of shape (n_samples,)
            Target.
        sample_weight : array of shape (n_samples,), optional
            A row of weight v counts as v equal rows. Weights that sum to two or less are relative
            importance: they are scaled to sum to the number of rows with a positive weight.

        Returns
        -------
        self
        """
        self._check_parameters()
        problem = self._problem(X, y, sample_weight)
        solver = self._make_solver(problem)
        progress = Progress(self, self._max_iter())
        try:
            result = run(
                solver, problem.design, problem.t, max_iter=self._max_iter(), callback=progress
            )
        finally:
            progress.close()
        self._keep(problem, solver, result)
        return self

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict a new observation at each row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            A Dask array is predicted block by block when the result is computed.
        return_std : bool, default=False
            Also return the standard deviation of a new observation, noise included.
        return_cov : bool, default=False
            Also return the joint covariance of new observations, noise included.

        Returns
        -------
        mean : array of shape (n_samples,)
            float32 where X is, if it can hold the target.
        std or cov : array, where asked for
        """
        check_is_fitted(self)
        if return_std and return_cov:
            raise ValueError("Ask for one of return_std and return_cov, not for both.")
        if is_dask(X):
            if return_cov or self.posterior_.mean.ndim == 2:
                raise ValueError(
                    "A Dask array is predicted by blocks, for one target and without return_cov: "
                    "ask for return_std, or predict its blocks as NumPy arrays."
                )
            return predict_blocks(self, X, return_std)
        X = self._check_rows(X)
        if return_cov:
            Phi = self.basis_(X)
            mean = Phi @ self.posterior_.mean + self.posterior_.offset
            covariance = self.posterior_.predict_covariance(Phi)
            if self._added is not None:
                covariance = covariance + self._added.covariance(X)
            return as_float(X.dtype, mean, covariance)
        outputs = self.posterior_.mean.shape[1:]
        mean = np.empty((X.shape[0], *outputs))
        variance = np.empty_like(mean)
        step = min(4096, max(64, 2**18 // max(1, len(self.basis_))))
        for rows in row_slices(X.shape[0], step):
            Phi = self.basis_(X[rows])
            if return_std:
                mean[rows], variance[rows] = self.posterior_.predict(Phi)
                if self._added is not None:
                    variance[rows] += self._added.variance(X[rows], Phi, self.posterior_)
            else:
                mean[rows] = Phi @ self.posterior_.mean + self.posterior_.offset
        return as_float(X.dtype, mean, *([np.sqrt(variance)] if return_std else []))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draw new observations from the joint predictive distribution.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
        n_samples : int, default=1
        random_state : int, RandomState or None, default=0

        Returns
        -------
        samples : array of shape (n_rows, n_samples)
        """
        check_is_fitted(self)
        X = self._check_rows(X)
        seeds = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=2)
        first, second = (np.random.default_rng(seed) for seed in seeds)
        draws = self.posterior_.sample(self.basis_(X), n_samples, first)
        if self._added is not None:
            values, vectors = np.linalg.eigh(self._added.covariance(X))
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            draws += root @ second.standard_normal((len(root), n_samples))
        return as_float(X.dtype, draws)

    # From X, y to a problem.

    def _problem(self, X: Any, y: Any, sample_weight: Any) -> Problem:
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr" if self._takes_sparse() else False,
            dtype=[np.float64, np.float32],
            multi_output=True,
            y_numeric=True,
            ensure_min_samples=2,
        )
        if not issparse(X):
            X = np.asarray(X, dtype=np.float64)
        y = np.asarray(y, dtype=np.float64)
        if y.ndim == 2 and not self.__sklearn_tags__().target_tags.multi_output:
            if y.shape[1] > 1:
                raise ValueError(
                    f"y has {y.shape[1]} columns, but {type(self).__name__} with these parameters "
                    "takes one target: fit one model per column, for example with "
                    "sklearn.multioutput.MultiOutputRegressor."
                )
            y = _one_column(y)
        rows = np.arange(X.shape[0])
        weight = None
        if sample_weight is not None:
            weight = check_sample_weight(sample_weight, X)
            rows = np.flatnonzero(weight)
            weight = weight[rows]
        rows_X, y = (X, y) if weight is None else (X[rows], y[rows])
        set_kernel(self, rows_X, y, weight)
        design, candidates, kernel = self._candidates(rows_X, rows, weight)
        if weight is not None:
            design = weighted(design, weight)
        if self.fit_intercept:
            design = centred(design)
        scale = _power_of_two(np.max(np.abs(y), axis=0))
        y = y / scale
        return Problem(design, design.target(y), design.offset(y), scale, candidates, X, kernel)

    # From a result to fitted attributes.

    def _keep(self, problem: Problem, solver: Solver, result: Result) -> None:
        design = problem.design
        active = np.asarray(result.state.active, dtype=np.intp)
        posterior = solver.posterior(result.state, design, problem.t)
        self._keep_posterior(problem, active, result.state.lam, posterior)
        self.history_ = _in_units(result.history, problem)
        self.n_iter_ = result.n_iter
        self.converged_ = result.converged
        self.stop_reason_ = result.stop_reason
        if not result.converged:
            noise = posterior.noise_variance * design.n_observations
            signal = np.maximum(np.sum(problem.t**2, axis=0), np.finfo(np.float64).tiny)
            repeated = problem.kernel is not None and design.n_candidates < len(problem.X)
            share = float(np.min(noise / signal))
            advice = cure(self, result.stop_reason, share, repeated)
            warn(
                f"{type(self).__name__} stopped before it converged ({result.stop_reason}) after "
                f"{result.n_iter} steps: {advice}",
                ConvergenceWarning,
            )

    def _keep_posterior(
        self, problem: Problem, active: np.ndarray, lam: np.ndarray, posterior: Posterior
    ) -> None:
        """Fitted attributes in the units of the user."""
        posterior = replace(posterior, offset=problem.offset)
        with np.errstate(over="ignore", under="ignore"):
            precision = np.divide.outer(lam, posterior.noise_variance)
        posterior = posterior.rescaled(problem.target_scale, problem.design.n_observations)
        self.basis_ = problem.design.basis(active)
        self.posterior_ = posterior
        self.active_ = problem.candidates[active]
        self.noise_variance_ = posterior.noise_variance
        self.log_evidence_ = posterior.log_evidence
        basis = self.basis_
        functions = basis.functions if isinstance(basis, CentredBasis) else basis
        means = basis.means if isinstance(basis, CentredBasis) else np.zeros(len(active))
        self.intercept_ = posterior.offset - means @ posterior.mean
        scale = getattr(functions, "scale", np.ones(len(active)))
        coef = (posterior.mean.T * scale).T
        # One factor at a time: the square of an extreme scale is not a number of float64.
        with np.errstate(over="ignore", under="ignore"):
            per_target = precision / problem.target_scale / problem.target_scale
            self.weight_precision_ = (per_target.T / scale / scale).T
        if self.kernel is None:
            self.coef_ = np.zeros((*coef.shape[1:], self.n_features_in_))
            self.coef_[..., self.active_] = coef.T
        else:
            self.coef_ = coef.T
            if isinstance(functions, KernelBasis):
                self.relevance_vectors_ = functions.centres

    def _check_rows(self, X: Any) -> Any:
        accept = "csr" if self._takes_sparse() else False
        return validate_data(
            self, X, accept_sparse=accept, dtype=[np.float64, np.float32], reset=False
        )

    def _takes_sparse(self) -> bool:
        """Whether X may be a sparse matrix; `_candidates` then has to take it."""
        return False


def _in_units(history: dict[str, np.ndarray], problem: Problem) -> dict[str, np.ndarray]:
    """Evidence and noise of the steps in the units of the user's target."""
    history = dict(history)
    scale = problem.target_scale
    shift = problem.design.n_observations * np.sum(np.log(scale))
    for name in ("log_evidence", "bound"):
        if name in history:
            history[name] = history[name] - shift
    with np.errstate(over="ignore", under="ignore"):
        for name in ("noise_variance", "residual"):
            if name in history:
                history[name] = history[name] * scale * scale
    return history


def _one_column(y: np.ndarray) -> np.ndarray:
    from sklearn.utils import column_or_1d

    return column_or_1d(y, warn=True)
