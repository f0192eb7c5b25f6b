"""Forward selection by marginal likelihood."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ..data import Data
from ..designs.candidates import is_integer
from ..fitting import Fit, Method, publish
from ..kernels import is_option
from ..posterior import Extrapolation
from ..predict import PosteriorModel
from ..problem import Problem
from ..selection import (
    FIRST_TERMS,
    ManyCandidates,
    PathSettings,
    select_path,
    terms_fit,
    validated_fit,
)
from ._base import NOISE_CONSTRAINTS, StreamRegressor
from ._estimator import Capabilities, kernel_spec
from ._sklearn import Number, TransformParameter, Whole, check_is_fitted, words


class ForwardRegressor(TransformParameter, StreamRegressor):
    """Forward selection of kernel functions or columns by marginal likelihood.

    From the empty model, each step adds the function that raises the evidence most (Sun & Yao
    2006), until `max_terms`; the part of that path with the highest evidence is kept. One
    regulariser is shared by all weights and learnt, and so is the noise, by evidence. Of many
    rows the candidates are a random subset, and the data are read in blocks, a few times whatever
    the number of terms: 10^6 rows need minutes, and memory for a few thousand columns of a few
    thousand rows.

    Parameters
    ----------
    kernel : str, callable or None, default="auto"
        ``"rbf"``, ``"matern12"``, ``"matern32"``, ``"matern52"``, ``"rq"``; ``"laplacian"``
        (``exp(-sum_j gamma_j |x_j - z_j|)``, for steps along single inputs) and ``"sum"``, of
        matern52 and laplacian, each with its own widths; ``"auto"``: the smooth family of highest
        evidence, or the sum where the fitted model predicts rows, each left out, better with it;
        any name or callable that ``sklearn.metrics.pairwise.pairwise_kernels`` takes,
        ``"precomputed"``, or None: the columns of X themselves are the candidates.
    gamma : {"auto", "ard", "evidence", "scale", "median"}, float or array, default="auto"
        Width: ``exp(-gamma |x - z|^2)``. ``"ard"`` learns one per input, ``"evidence"`` one for all
        (in units of the standard deviation of each input), ``"auto"`` whichever predicts
        better (``"scale"`` for kernels without a width that could be learnt). ``"scale"`` is
        1 / (n_features * X.var()), ``"median"`` 1 / (2 m^2) with m the median distance between
        rows. An array has one number per input; for ``kernel="sum"`` two rows of them, smooth and
        rough, and the parts have equal variance then.
    degree, coef0 : float
        For the polynomial and sigmoid kernels.
    regularization : "uniform" or float, default="uniform"
        Noise variance times weight precision, the same for all weights during selection:
        ``"uniform"`` learns it by evidence.
    noise_variance : {"learn", "input"}, float or array of shape (n_samples,), default="learn"
        One level, learnt; ``"input"``: one that depends on the inputs, learnt where it pays (see
        `noise_model_`); or known, for all rows or for each (new rows then have their mean).
    likelihood : {"gaussian", "student"}, default="gaussian"
        ``"student"``: Student's t, its degrees of freedom learnt, so that outliers do not move the
        mean. The rows are weighted in a few rounds of fits.
    candidates : {"auto", "all", "pivots"}, int or array of int, default="auto"
        Which rows (kernels) or columns (``kernel=None``) may be chosen: ``"all"``; a random subset
        of this size; these; or the pivots of a Cholesky factorisation, which spread out.
        ``"auto"`` is all up to 4,600 rows, then so many at random that n_rows times their square is
        10^11, and at least 2,000, or 8 times as many as terms, up to 2,000 more than twice as many.
        With learnt widths it is 1,200, or 4 times as many as terms, up to 2,000 more than terms.
        Never more than have a Gram matrix that fits into `cache_size`, unless there are more terms.
    rank : int, "auto" or None, default=None
        Choose from the kernel matrix approximated to this rank by pivoted Cholesky, as in the
        paper; ``"auto"`` leaves 0.1 % of its trace out. Evidence and weights are of the true
        functions in every case.
    transform : "nufft" or None, default=None
        ``"nufft"``: kernel products with all candidates by the nonuniform fast Fourier transform,
        for the Gaussian kernel on at most three inputs, with all rows as candidates. Needs finufft.
    max_terms : "auto" or int, default="auto"
        Length of the path. ``"auto"`` is 300.
    early_stopping : {"evidence", "validation"} or None, default="evidence"
        How many terms of the path are kept: those of highest evidence; those that predict a held
        out tenth of the rows best (the path is then chosen again on all rows); or all.
    refit : "gp" or None, default="gp"
        Prior of the chosen functions in the final model: ``"gp"`` that of a Gaussian process, with
        its variance learnt by evidence (kernel models; mostly better where the functions overlap);
        None the independent one of the selection, as in the paper.
    fit_intercept : bool, default=True
        Add a constant with a flat prior, integrated out.
    cache_size : float, default=200
        Megabytes that kernel columns, and the Gram matrix of the candidates, may take in memory.
    random_state : int, RandomState or None, default=0
        Draws candidates and validation rows.
    device : str or None, default=None
        ``"cuda"``: kernel functions and their sums are computed on this device, in float64. Torch
        tensors stay where they are, and predictions for them are tensors. Needs torch.
    verbose : int, default=0
        1 prints progress about once a second, 2 at every step.

    Attributes
    ----------
    active_ : array of int
        The rows (kernel models) or columns of X that carry a function, in order of choice.
    relevance_vectors_ : array of shape (n_active, n_features)
        Those rows; kernel models only.
    kernel_, gamma_ : str or callable, float or array
        The kernel and its width, as given or as learnt.
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
        One weight per active function; with ``kernel=None`` one per column of X, zeros included.
    intercept_ : float or array of shape (n_outputs,)
        The constant of the model.
    noise_model_, noise_tail_ : NoiseModel and Tail, or None
        How the noise depends on the inputs, with ``noise_variance="input"``; and its tails, where
        the leave-one-out residuals have them.
    calibration_ : float or array of shape (n_outputs,)
        Factor (at least 1) by which the standard deviations of predictions are inflated. It is the
        root mean square of the standardised leave-one-out residuals, corrected for the optimism of
        learning length scales and of selecting functions on the same rows. The fitted
        hyperparameters and `log_evidence_` do not include it.
    noise_variance_ : float or array of shape (n_outputs,)
        Variance of the noise, as learnt or as given; where it differs, of each training row.
    weight_precision_ : array of shape (n_active,) or (n_active, n_outputs)
        Prior precision of each weight; after ``refit="gp"`` the diagonal of their precision matrix.
    regularization_ : float
        Of the selection.
    log_evidence_ : float
        Log marginal likelihood of the final model, from exact columns.
    evidence_path_ : array of shape (n_path + 1,)
        Log evidence of the first 0, 1, 2, ... terms of the path under the prior of the selection.
    best_n_terms_ : int
        Where that is highest.
    approximation_ : dict
        Where the scores came from (``route``), the number of candidates, and the evidence that the
        scores claimed beside the true one; for a low rank also rank and trace left.
    stop_reason_ : str
        Why the selection ended: ``"evidence"`` (the path was cut where its evidence is highest),
        ``"max_terms"``, ``"validation"``, ``"no_candidate"``, ``"exact_fit"`` (all but rounding is
        explained), ``"no_signal"``, ``"interrupted"`` or ``"callback"``.
    loo_ : Bunch
        Leave-one-out ``residuals``, ``std``, ``log_density`` and ``r2``, in closed form.
    history_ : dict of arrays
        One entry per term chosen, replays included.
    n_iter_ : int
        Steps that the fit took.
    converged_ : bool
        False where the selection was interrupted.
    basis_, posterior_
        The functions, and what is known about their weights.

    See Also
    --------
    SparseGPRegressor : The Gaussian process of the kernel, with as many functions as it takes.

    Notes
    -----
    X may also be a memory map larger than `cache_size`, a list or an iterator of blocks of rows, a
    function that returns such an iterator, or a `sparsebayes.designs.RowBlocks` of any of them: it
    is then read in blocks and never as a whole.

    A fit that is interrupted (KeyboardInterrupt) keeps the terms reached so far, with a warning and
    ``converged_ = False``. Before the first term is chosen the interrupt is raised.

    With several targets (y of shape (n_samples, n_outputs)) all share one set of functions and the
    ratio of the precision of the weights to that of the noise; each has its own weights and noise
    variance. Not with ``early_stopping="validation"`` or rows in blocks.

    With `noise_variance` and `regularization` both given nothing is learnt during the selection;
    with the noise learnt and a regularization given the noise is at its best value at every step.
    The evidence is highest at far fewer terms than the best prediction on some data: take
    `SparseGPRegressor` where accuracy matters more than size.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import ForwardRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (400, 2))
    >>> y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(400)
    >>> model = ForwardRegressor("rbf", gamma=0.3).fit(X, y)
    >>> len(model.active_) < 60, bool(abs(model.noise_variance_ - 0.01) < 0.003)
    (True, True)
    >>> len(model.truncate(10).active_)
    10
    """

    capabilities = Capabilities(blocks=True, device=True)
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **StreamRegressor._parameter_constraints,
        **NOISE_CONSTRAINTS,
        "regularization": [words("uniform"), Number(0)],
        "candidates": [words("auto", "all", "pivots"), Whole(1), "array-like"],
        "rank": [None, words("auto"), Whole(1)],
        "transform": [None, words("nufft")],
        "max_terms": [words("auto"), Whole(1)],
        "early_stopping": [None, words("evidence", "validation")],
        "refit": [None, words("gp")],
        "device": [None, str],
    }

    def __init__(
        self,
        kernel: Any = "auto",
        *,
        gamma: Any = "auto",
        degree: float = 3,
        coef0: float = 0.0,
        regularization: Any = "uniform",
        noise_variance: Any = "learn",
        likelihood: str = "gaussian",
        candidates: Any = "auto",
        rank: Any = None,
        transform: str | None = None,
        max_terms: Any = "auto",
        early_stopping: str | None = "evidence",
        refit: str | None = "gp",
        fit_intercept: bool = True,
        cache_size: float = 200,
        random_state: Any = 0,
        device: str | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.regularization = regularization
        self.noise_variance = noise_variance
        self.likelihood = likelihood
        self.candidates = candidates
        self.rank = rank
        self.transform = transform
        self.max_terms = max_terms
        self.early_stopping = early_stopping
        self.refit = refit
        self.fit_intercept = fit_intercept
        self.cache_size = cache_size
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def truncate(self, n_terms: int) -> ForwardRegressor:
        """Return the fitted model of the first `n_terms` terms of the path.

        Parameters
        ----------
        n_terms : int
            From 0 to the length of the path, ``len(evidence_path_) - 1``.

        Returns
        -------
        model : ForwardRegressor
            A copy; regulariser and noise are estimated again where they were learnt.
        """
        check_is_fitted(self)
        fit = self._fitted
        path = fit.extra["path"]
        longest = len(path.path)
        if not (is_integer(n_terms) and 0 <= n_terms <= longest):
            raise ValueError(
                f"n_terms must be a whole number from 0 to {longest}, the terms of the path; got "
                f"{n_terms!r}. Fit with a larger max_terms for a longer path."
            )
        short = terms_fit(
            path,
            int(n_terms),
            spec=kernel_spec(self),
            kernel=fit.kernel,
            data=None,
            learns_noise=is_option(self.noise_variance, "learn"),
            learn=is_option(self.regularization, "uniform"),
        )
        # The residuals of fewer terms are not stored: one noise level, and a normal distribution.
        added = fit.model.added
        if short.model.added is None and isinstance(added, Extrapolation):
            short = replace(short, model=PosteriorModel(short.model.basis, short.posterior, added))
        model = copy.copy(self)
        attributes = {**fit.attributes, **short.attributes}
        attributes.pop("feature_relevance_", None)  # of the longer path
        short = replace(
            short,
            extra={**fit.extra, **short.extra},
            history=fit.history,
            n_iter=fit.n_iter,
            converged=fit.converged,
            input_range=fit.input_range,
            attributes=attributes,
        )
        publish(model, short)
        return model

    # Parameters.

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self.early_stopping != "validation"
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.rank is not None and self.transform_parameter == "nufft":
            raise ValueError(
                "rank and transform='nufft' are two ways to the same scores: give one."
            )

    def _needs_rows(self) -> str:
        if self.early_stopping == "validation" or is_option(self.kernel, "precomputed"):
            return "early_stopping='validation' and precomputed kernels need them"
        approximate = self.rank is not None or self.transform_parameter is not None
        return "rank and transform need them" if approximate else ""

    # From data to a fit.

    def _method(self, data: Data) -> Method:
        # Rows given as candidates are not in every fold.
        free = np.ndim(self.candidates) == 0 or self.kernel is None
        return replace(super()._method(data), selects=free, follows_process=self.refit == "gp")

    def _problem(self, data: Data) -> Problem:
        problem = super()._problem(data)
        choice = self._many(problem).choice(self._limit())
        if not data.in_memory:
            self._check_blocks(data, choice.everything)
        # One scale for all columns: the prior is the same for all of them.
        return replace(problem, columns=choice.scaled_columns, candidates=choice)

    def _check_blocks(self, data: Data, everything: bool) -> None:
        """Raise where rows that are read in blocks would have to be in memory."""
        whole = self.rank is not None or self.transform_parameter == "nufft"
        if whole or (everything and data.device is None):
            raise ValueError(
                "Rows read in blocks take candidates='auto', 'pivots', a number or indices, "
                "with rank=None and transform=None."
            )
        if self.early_stopping == "validation":
            raise ValueError(
                "Rows read in blocks take early_stopping='evidence' or None: 'validation' "
                "needs all of them in memory."
            )

    def _limit(self) -> int:
        """Return the length of the path."""
        return FIRST_TERMS if is_option(self.max_terms, "auto") else int(self.max_terms)

    def _many(self, problem: Problem) -> ManyCandidates:
        nufft = self.transform_parameter == "nufft"
        everything = is_option(self.candidates, "all") or self.rank is not None or nufft
        return ManyCandidates.from_problem(problem, self.candidates, everything, nufft)

    def _solve(self, problem: Problem) -> Fit:
        lam = self.regularization
        settings = PathSettings(
            max_terms=self._limit(),
            cut=self.early_stopping == "evidence",
            gp=self.refit == "gp",
            regularization=None if is_option(lam, "uniform") else float(lam),
            rank=self.rank,
            nufft=self.transform_parameter == "nufft",
        )
        if self.early_stopping == "validation":
            return validated_fit(problem, settings)
        return select_path(problem, settings, self._many(problem))
