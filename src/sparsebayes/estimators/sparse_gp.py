"""Gaussian process regression with a learnt kernel, for any number of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from .._array import RandomState
from ..data import Data
from ..fitting import Fit, Method
from ..gaussian_process import exact_fit, inducing_fit, local_fit
from ..kernels import STATIONARY, GammaOption, KernelName, is_option
from ..problem import Problem
from ..selection import FIRST_TERMS, ManyCandidates, PathSettings
from ._base import NOISE_CONSTRAINTS, SparseRegressor, noise_spec
from ._estimator import Capabilities, kernel_spec
from ._sklearn import Whole, words
from ._summary import Term

EXACT_ROWS = 2_000  # rows up to which max_terms="auto" is the exact process
MOST_EXACT_ROWS = 10_000  # rows of max_terms=None, which needs an array of n_rows x n_rows
_SELECTION_ATTRIBUTES = ("best_n_terms_", "evidence_path_", "regularization_")


class SparseGPRegressor(SparseRegressor):
    """Gaussian process regression with a learnt kernel, for any number of rows.

    Up to 2,000 rows the model is the exact Gaussian process. For more rows the process is
    approximated by kernel functions at selected rows. Functions are added until the evidence is
    highest. If the variance of the process that they miss is still above a tenth of the noise
    variance, further functions are added, up to `max_terms`. With `neighbours` each prediction is
    also conditioned on the nearest training rows, which corrects the approximation. Kernel, length
    scales, signal and noise variance are learnt by evidence, and the standard deviations are
    calibrated by leave-one-out residuals.

    Parameters
    ----------
    kernel
        ... It has to be positive definite. ``"additive"`` is
        ``prod_j (1 + w_j exp(-gamma_j |x_j - z_j|))``, a sum of functions of single inputs, of
        pairs and so on.
    gamma
        ... For ``kernel="additive"`` it has a row of rates and a row of weights.
    warp
        ... They also require ``neighbours=0``; otherwise ``"auto"`` is False, and True raises an
        error. With ``kernel="additive"``, inputs with ten or more distinct values are instead
        replaced by their ranks, scaled from 0 to 1, unless `warp` is False.
    neighbours : int or "auto", default=0
        Number of nearest training rows on which each prediction is also conditioned. The model then
        stores all rows. ``"auto"`` tries 16, 32, 64 and 128 while the leave-one-out density rises,
        and uses 0 if the process is exact, or if the variance of the process that the functions
        miss is at most a tenth of the noise variance.

        If `neighbours` is not 0, the fit also tries cells: parts of the input space with a few
        thousand rows each. If the leave-one-out density is higher with cells, the mean of a
        prediction is conditioned on the rows of its cell instead of on its neighbours. The standard
        deviation is still computed from the neighbours, and adjusted so that on average it equals
        that of the predictions from the cells.

        Neighbours require a stationary kernel, which depends only on ``x - z``. Its length scales
        maximise the exact evidence of a random subset of up to 2,500 rows.
    max_terms : "auto", int or None, default="auto"
        Largest number of functions. ``"auto"`` is the exact process if there are at most 2,000
        rows. For more rows it is 300, or more if the last of these still raise the evidence (up to
        1,000, depending on the number of rows). None is the exact process of up to 10,000 rows, in
        cubic time.
    cache_size
        ... The Gram matrix of the candidates has to fit, too.
    random_state : int, RandomState or None, default=0
        Seed of the random candidates, and of the rows from which length scales are learnt.
    n_jobs : int or None, default=None
        Number of threads for predictions with neighbours; -1 uses all cores.
    device
        ... The exact Gaussian process is fitted on the CPU.

    Attributes
    ----------
    active_
        ... They are in order of selection.
    relevance_vectors_, kernel_
    gamma_
        ... With `warp_`, it has one value per input, followed by one per normal score.
    warp_ : Warp
        Map of the inputs to normal scores; absent if no input is warped.
    feature_relevance_, rough_share_, kernel_search_, coef_, intercept_, noise_model_, noise_tail_
    calibration_, noise_variance_
    weight_precision_ : array of shape (n_active,) or (n_active, n_outputs)
        Diagonal of the prior precision matrix of the weights.
    log_evidence_ : float
        Log marginal likelihood of the model.
    exact_ : bool
        Whether the model is the exact process of all rows.
    approximation_ : dict
        If the process is not exact: how the gains of the candidates, the rows at which a function
        can be added, were computed (``route``); the number of candidates (``n_candidates``); and
        the log evidence of the selected functions, as estimated during the selection
        (``claimed_log_evidence``) and exact (``log_evidence``).
    neighbours_ : int
        Number of neighbours that is used; 0 if none.
    neighbours_search_ : dict of arrays
        Comparison of the settings by ``neighbours="auto"``, if the process is not exact:
        ``neighbours``; ``loo_log_density``, the mean leave-one-out log density of the standardised
        target at up to 2,000 rows; and ``residual_variance_ratio``, the variance of the process
        that the functions miss, divided by the noise variance.
    loo_
    stop_reason_ : str
        ``"all_candidates"`` for the exact process. Otherwise the reason why the selection of
        functions ended: ``"gaussian_process"`` (the variance of the process that they miss is at
        most a tenth of the noise variance), ``"max_terms"``, ``"evidence"``, ``"no_candidate"``,
        ``"exact_fit"`` or ``"no_signal"``. A fit that was stopped has ``"time_limit"``,
        ``"interrupted"`` or ``"callback"``.
    history_ : dict of arrays
        One entry per selection step. If the selection was repeated with another ratio of noise to
        signal variance, the steps of the repetition follow those of the first selection;
        ``replay`` counts the repetitions.
    n_iter_ : int
        Number of selection steps; 0 for the exact process.
    converged_, basis_
    posterior_
        ... With neighbours, `basis_`, `posterior_`, `coef_` and `log_evidence_` describe only the
        approximation by functions; the variance that it misses counts as noise.

    See Also
    --------
    ForwardRegressor : Selects tens to 300 functions by evidence.

    Notes
    -----
    With neighbours, the joint distribution of several rows (`return_cov`, `sample_y`) is
    conditioned on the neighbours of all of them, so that its means and variances differ slightly
    from those of single rows. Training rows are stored in float32 if they take more than
    `cache_size`; the noise variance is then at least 1e-5 of the signal variance.

    X may also be a memory map larger than `cache_size`, a list or an iterator of blocks of rows, a
    function that returns such an iterator, a `sparsebayes.designs.RowBlocks` of any of them, or a
    Dask array. It is then read in blocks, unless the process is exact or has neighbours.

    With several targets (y of shape (n_samples, n_outputs)) all targets share the kernel and the
    ratio of signal to noise variance; each has its own noise variance. Not available with
    neighbours or rows in blocks.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import SparseGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (200, 2))
    >>> y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(200)
    >>> model = SparseGPRegressor().fit(X, y)
    >>> model.exact_, bool(abs(model.noise_variance_ - 0.01) < 0.003)
    (True, True)
    >>> mean, std = model.predict([[0.5, 1.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(0.5)) < 0.1), bool(0.09 < std[0] < 0.13)
    (True, True)
    """

    capabilities = Capabilities(blocks=True, device=True)
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseRegressor._parameter_constraints,
        **NOISE_CONSTRAINTS,
        "warp": [words("auto"), "boolean"],
        "neighbours": [words("auto"), Whole(0)],
        "max_terms": [None, words("auto"), Whole(1)],
        "device": [None, str],
    }

    def __init__(
        self,
        kernel: KernelName | None = "auto",
        *,
        gamma: GammaOption = "auto",
        warp: Any = "auto",
        noise_variance: ArrayLike = "learn",
        likelihood: str = "gaussian",
        neighbours: Any = 0,
        max_terms: Any = "auto",
        fit_intercept: bool = True,
        cache_size: float = 200,
        random_state: RandomState = 0,
        n_jobs: int | None = None,
        device: str | None = None,
        max_time: float | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.warp = warp
        self.noise_variance = noise_variance
        self.likelihood = likelihood
        self.neighbours = neighbours
        self.max_terms = max_terms
        self.fit_intercept = fit_intercept
        self.cache_size = cache_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.max_time = max_time
        self.verbose = verbose

    # Parameters.

    def _summary_terms(self) -> list[Term]:
        return []  # the weights of its functions have no meaning of their own

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self.neighbours == 0
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.kernel is None or is_option(self.kernel, "precomputed"):
            raise ValueError(
                "SparseGPRegressor requires a covariance function of the rows, got "
                f"kernel={self.kernel!r}. Pass the name of a kernel or a callable, or use "
                "ForwardRegressor."
            )
        if self.neighbours != 0 and not is_option(self.kernel, "auto", *STATIONARY):
            names = ", ".join(map(repr, STATIONARY))
            raise ValueError(
                f"neighbours={self.neighbours!r} requires a stationary kernel, one of 'auto', "
                f"{names}; got kernel={self.kernel!r}."
            )
        learns = kernel_spec(self).learns
        if self.warp is True and (self.neighbours != 0 or not learns):
            raise ValueError(
                "warp=True requires a stationary kernel with learnt length scales "
                "(gamma='auto', 'ard' or 'evidence') and neighbours=0. Use warp='auto' or "
                "warp=False."
            )
        if self.max_terms is None and self._is_local:
            raise ValueError(
                "max_terms=None (the exact Gaussian process) cannot be combined with "
                "neighbours. Omit one of them."
            )

    @property
    def _is_local(self) -> bool:
        """True where a number of neighbours was given, so that even few rows are not exact."""
        return not is_option(self.neighbours, "auto") and self.neighbours != 0

    def _is_exact(self, data: Data) -> bool:
        """Tell whether the model of these rows is the exact process."""
        if is_option(self.max_terms, "auto"):
            return len(data.used) <= EXACT_ROWS and not self._is_local
        return self.max_terms is None

    # From data to a fit.

    def _method(self, data: Data) -> Method:
        method = super()._method(data)
        if self._is_exact(data):
            return replace(method, process="exact", follows_process=True)
        # The evidence of a local process selects its kernel best: no comparison of fits.
        local = self.neighbours != 0
        # A limit on the functions selects some of them, by the targets of the same rows.
        selects = not (local or is_option(self.max_terms, "auto"))
        return replace(
            method,
            compares=not local,
            process="local" if local else "",
            selects=selects,
            follows_process=True,
        )

    def _problem(self, data: Data) -> Problem:
        if not self._is_exact(data):
            problem = super()._problem(data)
            choice = ManyCandidates.from_problem(problem).choice(self._first_limit())
            problem = replace(problem, candidates=choice)
            if self.neighbours == 0:
                return problem
            return replace(problem, spec=replace(problem.spec, warp=False))
        n_rows = len(data.used)
        if n_rows > MOST_EXACT_ROWS:
            raise ValueError(
                f"max_terms=None supports at most {MOST_EXACT_ROWS} rows, because it stores a "
                f"matrix of {n_rows} x {n_rows}. Use max_terms='auto' or a number."
            )
        return super()._problem(data.loaded())

    def _first_limit(self) -> int:
        """Return the number of terms of the first path."""
        return FIRST_TERMS if is_option(self.max_terms, "auto") else int(self.max_terms)

    def _solve(self, problem: Problem) -> Fit:
        if self._is_exact(problem.rows):
            fit = exact_fit(problem)
            return replace(fit, attributes={"exact_": True, "neighbours_": 0})
        settings = PathSettings(max_terms=self._first_limit())
        grows = is_option(self.max_terms, "auto") and problem.is_reported
        fit = inducing_fit(
            problem,
            settings,
            ManyCandidates.from_problem(problem),
            grows=grows,
            pivots=grows and self.neighbours == 0,
        )
        if self.neighbours != 0 and problem.is_reported:
            all_rows = not noise_spec(self).one_level
            fit = local_fit(problem, fit, self.neighbours, self.n_jobs, all_rows)
        attributes = {
            name: value
            for name, value in fit.attributes.items()
            if name not in _SELECTION_ATTRIBUTES
        }
        return replace(fit, attributes={"neighbours_": 0, **attributes, "exact_": False})

    def _loo(self) -> Any:
        fit = self._fitted
        if fit.loo is not None and not fit.extra.get("loo_of_sample", False):
            return fit.loo
        # A local process stores its rows, so that it has leave-one-out predictions once loaded.
        stored = fit.model.stored_loo
        if stored is None or fit.noise.model is not None:
            return None
        return stored._replace(noise=fit.noise.level if fit.loo is None else fit.loo.noise)
