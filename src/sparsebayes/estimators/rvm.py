"""Relevance vector machines."""

from __future__ import annotations

from typing import Any

from ..solvers import BasicRVM, FastRVM, Solver
from ._base import Problem, SparseRegressor

_SOLVERS: dict[str, Any] = {"em": BasicRVM, "fast": FastRVM}
_MAX_ITER = {"em": 1000, "fast": 2000}


class RVMRegressor(SparseRegressor):
    """Relevance vector machine for regression.

    A linear model in kernel functions centred on the training rows (or in the columns of X), each
    weight with its own precision. The precisions that maximise the evidence are infinite for most
    functions, so a few remain: the relevance vectors.

    Parameters
    ----------
    kernel : str, callable or None, default="rbf"
        ``"rbf"``, ``"matern12"``, ``"matern32"``, ``"matern52"``, ``"rq"``, any name or callable
        that ``sklearn.metrics.pairwise.pairwise_kernels`` takes, ``"precomputed"``, or None: the
        columns of X themselves are the candidates.
    gamma : {"scale", "median"}, float or array of shape (n_features,), default="scale"
        Width: ``exp(-gamma |x - z|^2)``. ``"scale"`` is 1 / (n_features * X.var()), ``"median"``
        1 / (2 m^2) with m the median distance between rows; one number per input gives each its
        own width.
    degree, coef0 : float
        For the polynomial and sigmoid kernels.
    algorithm : {"fast", "em"}, default="fast"
        ``"fast"`` adds, re-estimates and deletes one function at a time from the empty model
        (Tipping & Faul 2003); ``"em"`` re-estimates all of them from the full model (Tipping 2001),
        which needs two arrays of n_candidates x n_candidates.
    fit_intercept : bool, default=True
        Add a constant with a flat prior, integrated out.
    noise_variance : "learn" or float, default="learn"
    max_iter : int, optional
        Most steps; by default 1,000 for ``"em"`` and 2,000 for ``"fast"``.
    tol : float, default=1e-3
        Nats of evidence that no single addition, deletion or re-estimate may still gain when the
        fit is called converged.
    cache_size : float, default=200
        Megabytes that kernel columns may take in memory; beyond it they are computed again.
    verbose : int, default=0

    Attributes
    ----------
    active_ : array of int
        The rows (kernel models) or columns of X that carry a function.
    relevance_vectors_ : array of shape (n_active, n_features)
        Those rows; kernel models only.
    coef_ : array
        One weight per active function; with ``kernel=None`` one per column of X, zeros included.
    intercept_ : float
    noise_variance_ : float
    weight_precision_ : array of shape (n_active,)
    log_evidence_ : float
        Log marginal likelihood at the fitted hyperparameters, from exact columns.
    history_ : dict of arrays
        One entry per step: evidence, number of active functions, noise, largest gain on offer.
    n_iter_ : int
    converged_ : bool
    stop_reason_ : str
    basis_, posterior_
        The functions, and what is known about their weights.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVMRegressor
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.05 * np.random.default_rng(0).standard_normal(100)
    >>> model = RVMRegressor(gamma=0.1).fit(X, y)
    >>> mean, std = model.predict(X, return_std=True)
    >>> len(model.active_) < 15, bool(abs(std.mean() - 0.05) < 0.02)
    (True, True)
    """

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        gamma: Any = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        algorithm: str = "fast",
        fit_intercept: bool = True,
        noise_variance: Any = "learn",
        max_iter: int | None = None,
        tol: float = 1e-3,
        cache_size: float = 200,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.algorithm = algorithm
        self.fit_intercept = fit_intercept
        self.noise_variance = noise_variance
        self.max_iter = max_iter
        self.tol = tol
        self.cache_size = cache_size
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.algorithm not in _SOLVERS:
            raise ValueError(
                f"algorithm={self.algorithm!r} is not known: use one of {', '.join(_SOLVERS)}."
            )

    def _max_iter(self) -> int:
        return _MAX_ITER[self.algorithm] if self.max_iter is None else int(self.max_iter)

    def _make_solver(self, problem: Problem) -> Solver:
        m = problem.design.n_candidates
        megabytes = 16e-6 * m * m
        if self.algorithm == "em" and megabytes > self.cache_size:
            raise ValueError(
                f"algorithm='em' keeps two {m} x {m} arrays ({megabytes:.0f} MB), more than "
                f"cache_size={self.cache_size} MB: raise cache_size, or use algorithm='fast'."
            )
        noise = self.noise_variance
        if noise != "learn":
            noise = float(noise) / float(problem.target_scale) ** 2
        return _SOLVERS[self.algorithm](None if noise == "learn" else noise, self.tol)
