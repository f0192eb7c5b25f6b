"""Gaussian process regression with a learnt kernel, for any number of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from ..data import Data
from ..fitting import Fit, Method
from ..gaussian_process import exact_fit, inducing_fit, local_fit
from ..kernels import STATIONARY, is_option
from ..problem import Problem
from ..selection import FIRST_TERMS, ManyCandidates, PathSettings
from ._base import NOISE_CONSTRAINTS, SparseRegressor, noise_spec
from ._estimator import Capabilities, kernel_spec
from ._sklearn import Whole, words

EXACT_ROWS = 2_000  # rows up to which max_terms="auto" is the exact process
MOST_EXACT_ROWS = 10_000  # rows of max_terms=None, which needs an array of n_rows x n_rows
_SELECTION_ATTRIBUTES = ("best_n_terms_", "evidence_path_", "regularization_")


class SparseGPRegressor(SparseRegressor):
    """Gaussian process regression with a learnt kernel, for any number of rows.

    Up to 2,000 rows the model is the exact Gaussian process of all of them. Beyond, it has kernel
    functions at a few hundred selected rows, as many as capture the process up to a tenth of the
    noise variance, under the prior of the process. With `neighbours` the part that these functions
    miss is restored from the training rows around each new one. Kernel, length scales, signal and
    noise variance are learnt by evidence, and the error bars are checked against leave-one-out
    residuals.

    Parameters
    ----------
    kernel : str or callable, default="auto"
        ``"rbf"``, ``"matern12"``, ``"matern32"``, ``"matern52"``, ``"rq"``; ``"laplacian"``
        (``exp(-sum_j gamma_j |x_j - z_j|)``) and ``"sum"``, of matern52 and laplacian, each with
        its own widths; ``"auto"``: the smooth family of highest evidence, or the sum where it
        predicts left-out rows better. Or a name or callable that
        ``sklearn.metrics.pairwise.pairwise_kernels`` takes, if it is positive definite.
    gamma : {"auto", "ard", "evidence", "scale", "median"}, float or array, default="auto"
        Width: ``exp(-gamma |x - z|^2)``. ``"ard"`` learns one per input, ``"evidence"`` one for
        all, ``"auto"`` whichever predicts better. ``"scale"`` is 1 / (n_features * X.var()),
        ``"median"`` 1 / (2 m^2) with m the median distance between rows. An array has one number
        per input; for ``kernel="sum"`` two rows of them, smooth and rough.
    warp : {"auto", True, False}, default="auto"
        Whether the kernel sees inputs in two coordinates, with a width for each: as they are, and
        as normal scores (ranks mapped to quantiles of the normal distribution). ``"auto"``: inputs
        with ten or more values whose distribution is farther from a normal one than a uniform
        distribution is; True: all inputs with ten or more values. For learnt widths, without
        neighbours.
    noise_variance : {"learn", "input"}, float or array of shape (n_samples,), default="learn"
        One level, learnt; ``"input"``: one that depends on the inputs, learnt where it pays (see
        `noise_model_`); or known, for all rows or for each (new rows then have their mean).
    likelihood : {"gaussian", "student"}, default="gaussian"
        ``"student"``: Student's t, its degrees of freedom learnt, so that outliers do not move the
        mean.
    neighbours : int or "auto", default=0
        Number of nearest training rows on which each prediction is also conditioned. The model then
        stores all rows, and a prediction takes a fraction of a millisecond. ``"auto"``: 16, doubled
        up to 128 while the leave-one-out density grows; none where the functions capture the
        process, or the process is exact. Means come from the nearest rows or, where leave-one-out
        densities prefer it, from thousands of rows that a cell of the inputs shares. For kernels of
        distances; the length scales are then those of highest exact evidence on up to 2,500 rows.
    max_terms : "auto", int or None, default="auto"
        Largest number of functions. ``"auto"``: all rows up to 2,000, so that the process is exact;
        for more rows 300, and more (usually up to 1,000) where the last of these still raise the
        evidence. A number: that many functions are selected at most. None: the exact process for
        up to 10,000 rows; time grows with their cube.
    fit_intercept : bool, default=True
        Add a constant with a flat prior, integrated out.
    cache_size : float, default=200
        Megabytes that kernel columns, and the Gram matrix of the candidates, may take in memory.
    random_state : int, RandomState or None, default=0
        Draws candidates, and the rows that length scales are learnt from.
    n_jobs : int or None, default=None
        Threads of predictions with neighbours; -1 for all cores.
    device : str or None, default=None
        ``"cuda"``: kernel functions and their sums are computed on this device, in float64. Torch
        tensors stay where they are, and predictions for them are tensors. The exact process is
        fitted on the CPU. Needs torch.
    verbose : int, default=0
        1 prints progress about once a second, 2 at every step.

    Attributes
    ----------
    active_ : array of int
        The rows that carry a function, in order of choice.
    relevance_vectors_ : array of shape (n_active, n_features)
        Those rows.
    kernel_, gamma_ : str or callable, float or array
        The kernel and its width, as given or as learnt; with `warp_`, one for each input and then
        one for each score.
    warp_ : Warp
        The map to normal scores, where some input has one.
    feature_relevance_ : array of shape (n_features,)
        Share of the variance of the fitted function that each input explains, alone and with others
        (total Sobol index under the training rows). Not for precomputed kernels.
    rough_share_ : float
        With ``kernel_ == "sum"``: the share of the rough part in the variance of the kernel, whose
        `gamma_` has two rows, of the smooth and of the rough part.
    kernel_search_ : dict of arrays
        With learnt widths, what was tried: ``kernel``, ``one_width`` for all inputs,
        ``process_evidence``, the log evidence of a Gaussian process of the standardised target, and
        ``left_out``, where it decided: the mean leave-one-out log density of that target, less a
        penalty for the number of length scales.
    coef_ : array of shape (n_active,) or (n_outputs, n_active)
        One weight per function.
    intercept_ : float or array of shape (n_outputs,)
        The constant of the model.
    noise_model_, noise_tail_ : NoiseModel and Tail, or None
        How the noise depends on the inputs, with ``noise_variance="input"``; and its tails, where
        the leave-one-out residuals have them.
    calibration_ : float or array of shape (n_outputs,)
        Factor (at least 1) by which the standard deviations of predictions are inflated. It is the
        root mean square of the standardised leave-one-out residuals, corrected for the optimism of
        learning length scales on the same rows. The fitted hyperparameters and `log_evidence_` do
        not include it.
    noise_variance_ : float or array of shape (n_outputs,)
        Variance of the noise, as learnt or as given; where it differs, of each training row.
    weight_precision_ : array of shape (n_active,) or (n_active, n_outputs)
        Diagonal of the prior precision matrix of the weights.
    log_evidence_ : float
        Log marginal likelihood of the model.
    exact_ : bool
        Whether the model is the exact process of all rows.
    approximation_ : dict
        Of a process that is not exact: where the scores of the candidates came from (``route``),
        their number, and the evidence that the scores claimed beside the true one.
    neighbours_ : int
        How many there are; 0 without them.
    neighbours_search_ : dict of arrays
        With ``neighbours="auto"`` and a process that is not exact, what was tried: ``neighbours``;
        ``left_out``, the mean leave-one-out log density of the standardised target at up to 1,000
        rows; and ``outside``, the variance of the process that the functions do not capture over
        that of the noise.
    loo_ : Bunch
        Leave-one-out ``residuals``, ``std``, ``log_density`` and ``r2``, in closed form.
    stop_reason_ : str
        ``"all_candidates"`` for the exact process. Otherwise why the selection of functions ended:
        ``"gaussian_process"`` (they capture the process), ``"max_terms"``, ``"evidence"``,
        ``"no_candidate"``, ``"exact_fit"``, ``"no_signal"``, ``"interrupted"`` or ``"callback"``.
    history_ : dict of arrays
        One entry per function selected, replays included.
    n_iter_ : int
        Steps that the selection took; 0 for the exact process.
    converged_ : bool
        False where the selection was interrupted.
    basis_, posterior_
        The functions, and what is known about their weights. With neighbours these, `coef_` and
        `log_evidence_` are of the global part alone: all rows, with the part of the process that
        the functions do not capture taken as independent noise at each row.

    See Also
    --------
    ForwardRegressor : Keeps the few functions of highest evidence.

    Notes
    -----
    With neighbours a joint distribution of rows (`return_cov`, `sample_y`) is given all their
    neighbours together, so that its variances, and its means where neighbours determine them,
    differ a little from those of rows by themselves. Rows are kept in float32 where they and their
    functions take more than `cache_size`; the noise variance is then at least 1e-5 of that of the
    process.

    X may also be a memory map larger than `cache_size`, a list or an iterator of blocks of rows, a
    function that returns such an iterator, a `sparsebayes.designs.RowBlocks` of any of them, or a
    Dask array. It is then read in blocks, unless the process is exact or has neighbours.

    With several targets (y of shape (n_samples, n_outputs)) all share the kernel and the ratio of
    signal to noise variance; each has its own noise variance. Not with neighbours or rows in
    blocks.

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
        kernel: Any = "auto",
        *,
        gamma: Any = "auto",
        warp: Any = "auto",
        noise_variance: Any = "learn",
        likelihood: str = "gaussian",
        neighbours: Any = 0,
        max_terms: Any = "auto",
        fit_intercept: bool = True,
        cache_size: float = 200,
        random_state: Any = 0,
        n_jobs: int | None = None,
        device: str | None = None,
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
        self.verbose = verbose

    # Parameters.

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self.neighbours == 0
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.kernel is None or is_option(self.kernel, "precomputed"):
            raise ValueError(
                f"kernel={self.kernel!r} has no covariance function of the rows: give the name of "
                "a kernel or a callable, or use ForwardRegressor."
            )
        if self.neighbours != 0 and not is_option(self.kernel, "auto", *STATIONARY):
            known = ", ".join(map(repr, STATIONARY))
            raise ValueError(
                f"neighbours={self.neighbours!r} is for a kernel of distances, one of 'auto', "
                f"{known}; got kernel={self.kernel!r}."
            )
        learns = kernel_spec(self).learns
        if self.warp is True and (self.neighbours != 0 or not learns):
            raise ValueError(
                "warp=True is for learnt widths (gamma='auto', 'ard' or 'evidence' of a kernel of "
                "distances) and neighbours=0: use warp='auto' or False."
            )
        if self.max_terms is None and self._is_local:
            raise ValueError(
                "max_terms=None is the exact process of all rows, to which neighbours add nothing: "
                "give one of the two."
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
        # The evidence of a local process selects its kernel best: no comparison of fits.
        local = self.neighbours != 0 and not self._is_exact(data)
        return replace(super()._method(data), compares=not local, process=local)

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
                f"max_terms=None keeps an array of {n_rows} x {n_rows}, and is for "
                f"{MOST_EXACT_ROWS} rows at most: give max_terms='auto' or a number."
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
