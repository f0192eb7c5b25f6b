"""Forward selection by marginal likelihood."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .._array import RandomState
from ..data import Data
from ..designs.candidates import is_integer
from ..fitting import Fit, Method, publish
from ..kernels import GammaOption, KernelName, is_option
from ..predict import with_extrapolation
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
    2006), up to `max_terms`; the model of highest evidence along this path is kept. All weights
    share one regularisation parameter, which is learnt by evidence, and so is the noise. For many
    rows the candidates are a random subset, and the data are read in blocks a few times, whatever
    the number of terms.

    Parameters
    ----------
    regularization : "uniform" or float, default="uniform"
        Noise variance times weight precision, shared by all weights during the selection.
        ``"uniform"`` learns it by evidence.
    candidates : {"auto", "all", "pivots"}, int or array of int, default="auto"
        Rows (kernels) or columns (``kernel=None``) that can be selected: ``"all"``; a random subset
        of a given size; given indices; or the pivots of a Cholesky factorisation, which are spread
        out. ``"auto"`` uses all of up to 4,600 rows and a random subset of more, whose size depends
        on the number of rows and terms. With learnt length scales it uses 1,200, or more if there
        are more terms. The Gram matrix of the candidates fits into `cache_size`, unless there are
        more terms.
    rank : int, "auto" or None, default=None
        Rank of a pivoted Cholesky approximation of the kernel matrix that is used for the
        selection, as in the paper. ``"auto"`` captures 99.9 % of the trace. Evidence and weights
        are always computed from the exact functions.
    transform : "nufft" or None, default=None
        ``"nufft"`` computes kernel products by the nonuniform fast Fourier transform, for the
        Gaussian kernel on at most three inputs, with all rows as candidates. Requires finufft.
    max_terms : "auto" or int, default="auto"
        Length of the path. ``"auto"`` is 300.
    early_stopping : {"evidence", "validation"} or None, default="evidence"
        Criterion for the number of terms: the highest evidence; the smallest error on a held-out
        tenth of the rows (the terms are then selected again from all rows); or None for all terms
        of the path.
    refit : "gp" or None, default="gp"
        Prior of the selected functions in the final model. ``"gp"`` is the prior of a Gaussian
        process, with its variance learnt by evidence (kernel models only). None is the independent
        prior of the selection, as in the paper.
    cache_size
        ... The Gram matrix of the candidates has to fit, too.
    random_state : int, RandomState or None, default=0
        Seed of the random candidates and validation rows.

    Attributes
    ----------
    active_
        ... They are in order of selection.
    relevance_vectors_, kernel_, gamma_, feature_relevance_, rough_share_, kernel_search_, coef_
    coef_std_, intercept_, noise_model_, noise_tail_, calibration_, noise_variance_
    weight_precision_ : array of shape (n_active,) or (n_active, n_outputs)
        Prior precision of each weight; with ``refit="gp"`` the diagonal of the prior precision
        matrix.
    regularization_ : float
        Regularisation parameter of the selection.
    log_evidence_ : float
        Log marginal likelihood of the final model.
    evidence_path_ : array of shape (n_path + 1,)
        Log evidence of the first 0, 1, 2, ... terms of the path under the prior of the selection.
    best_n_terms_ : int
        Number of terms with the highest `evidence_path_`.
    approximation_ : dict
        How the gains of the candidates, the functions that can be added, were computed
        (``route``); the number of candidates (``n_candidates``); and the log evidence of the
        selected functions, as estimated during the selection (``claimed_log_evidence``) and exact
        (``log_evidence``). For a low rank also the rank and the remaining trace.
    stop_reason_ : str
        Why the selection ended: ``"evidence"`` (the path was cut at its highest evidence),
        ``"max_terms"``, ``"validation"``, ``"no_candidate"``, ``"exact_fit"`` (the target is
        explained up to rounding errors) or ``"no_signal"``. A fit that was stopped has
        ``"time_limit"``, ``"interrupted"`` or ``"callback"``.
    loo_
    history_ : dict of arrays
        One entry per selection step. If the selection was repeated with another regularisation,
        the steps of the repetition follow those of the first selection; ``replay`` counts the
        repetitions.
    n_iter_, converged_, basis_, posterior_

    See Also
    --------
    SparseGPRegressor : Gaussian process of the kernel, which is more accurate and larger.

    Notes
    -----
    X may also be a memory map larger than `cache_size`, a list or an iterator of blocks of rows, a
    function that returns such an iterator, or a `sparsebayes.designs.RowBlocks` of any of them: it
    is then read in blocks, and never stored as a whole.

    A fit that is interrupted (KeyboardInterrupt) keeps the terms selected so far, with a warning
    and ``converged_ = False``. Before the first term is selected the interrupt is raised.

    With several targets (y of shape (n_samples, n_outputs)) all targets share the functions and the
    ratio of noise variance to prior variance. Each target has its own weights and noise variance.
    Not available with ``early_stopping="validation"`` or rows in blocks.

    On some data the evidence is highest for far fewer terms than the best prediction needs. Use
    `SparseGPRegressor` if accuracy matters more than the size of the model.

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
        kernel: KernelName | None = "auto",
        *,
        gamma: GammaOption = "auto",
        degree: float = 3,
        coef0: float = 0.0,
        regularization: Any = "uniform",
        noise_variance: ArrayLike = "learn",
        likelihood: str = "gaussian",
        candidates: Any = "auto",
        rank: Any = None,
        transform: str | None = None,
        max_terms: Any = "auto",
        early_stopping: str | None = "evidence",
        refit: str | None = "gp",
        fit_intercept: bool = True,
        cache_size: float = 200,
        random_state: RandomState = 0,
        device: str | None = None,
        max_time: float | None = None,
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
        self.max_time = max_time
        self.verbose = verbose

    def truncate(self, n_terms: int) -> ForwardRegressor:
        """Return the fitted model of the first `n_terms` terms of the path.

        Parameters
        ----------
        n_terms : int
            Number of terms, from 0 to ``len(evidence_path_) - 1``.

        Returns
        -------
        model : ForwardRegressor
            A copy, whose regularisation parameter and noise are estimated again if they were
            learnt.
        """
        check_is_fitted(self)
        fit = self._fitted
        path = fit.extra["path"]
        longest = len(path.path)
        if not (is_integer(n_terms) and 0 <= n_terms <= longest):
            raise ValueError(
                f"n_terms must be an integer from 0 to {longest}, the number of terms of the "
                f"path; got {n_terms!r}. Refit with a larger max_terms for a longer path."
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
        beyond = None if fit.model.added is None else fit.model.added.extrapolation
        if beyond is not None:
            short = replace(short, model=with_extrapolation(short.model, beyond))
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
                "rank and transform='nufft' cannot be combined. Set one of them to None."
            )

    def _needs_rows(self) -> str:
        if self.early_stopping == "validation" or is_option(self.kernel, "precomputed"):
            return "early_stopping='validation' and precomputed kernels require them"
        approximate = self.rank is not None or self.transform_parameter is not None
        return "rank and transform require them" if approximate else ""

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
        in_memory = self.rank is not None or self.transform_parameter == "nufft"
        if in_memory or (everything and data.device is None):
            raise ValueError(
                "X in blocks of rows requires candidates='auto', 'pivots', a number or "
                "indices, with rank=None and transform=None."
            )
        if self.early_stopping == "validation":
            raise ValueError("X in blocks of rows requires early_stopping='evidence' or None.")

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
        if problem.most_terms is not None:
            settings = replace(settings, max_terms=min(self._limit(), problem.most_terms))
        return select_path(problem, settings, self._many(problem))
