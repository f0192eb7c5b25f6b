"""Forward selection by marginal likelihood."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ..callbacks import rows_read
from ..designs import KernelBasis
from ..designs._base import row_slices
from ..kernels import STATIONARY
from ..posterior import LeftOut, ResidualProcess
from ..solvers.forward.gp_prior import FLOOR, Prior
from ..solvers.forward.path import Path, best_terms
from ..solvers.forward.routes import (
    columns_route,
    gram_seconds,
    low_rank_route,
    megabytes_short,
)
from ..solvers.forward.selection import Forward
from ..solvers.noise import Noise
from ..solvers.run import Result, StopReason
from ._base import (
    Problem,
    SparseRegressor,
    as_blocks,
    keep_left_out,
    keep_posterior,
    keep_run,
    make_problem,
    problem_in_memory,
    solve,
)
from ._common import is_number, is_text, learns_widths, one_scale
from ._forward import (
    LEFT_OUT,
    CandidateChoice,
    FittedPath,
    add_neighbours,
    column_scale,
    is_whole,
    process_pivots,
    some_rows,
    validated_terms,
    with_rest,
)
from ._noise import CONSTRAINTS as NOISE_CONSTRAINTS
from ._noise import forget_noise
from ._sklearn import (
    Number,
    TransformParameter,
    Whole,
    check_is_fitted,
    warn,
    words,
)
from ._stream import PartialFit, Stream

if TYPE_CHECKING:
    from ..solvers.forward.neighbours import NeighbourProcess

_TRACE_LEFT = 1e-3  # share of the kernel's trace that rank="auto" leaves out
_REPLAYS = 3
_AGAIN = 1200  # candidates of a second fit with weights, unless its path is longer
# max_terms="auto": terms to begin with and the factor by which they grow, while the last tenth
# gains this many nats for each row and the Gram matrix takes no more than these seconds. California
# (10,000 rows): the last tenth of 300 gains .0034, and up to 1,200 terms lower the error by 2 %; on
# Friedman#1, abalone, concrete and energy it gains nothing, and neither do more terms.
# Terms chosen one by one also follow the noise, and neither the evidence nor the rows left out,
# whose functions were chosen with them, say so: of California with a rough kernel, intervals of
# 95 % cover 71 % with 700 terms for 2,000 rows, 86 % with 300, and 93 % with 900 for 10,000. So
# their number follows that of the rows, which also keeps the time from jumping with it, and a
# longer path is chosen where it is longer by a quarter.
_ROWS_PER_TERM, _MORE = 20, 1.25
_FIRST_TERMS, _STEP, _PAYS, _SECONDS = 300, 10.0 / 3.0, 1e-3, 10.0
_SOME_ROWS = 2_000  # that tell how much of a process is left out,
_FEW_ROWS = 3_000  # and up to which more terms take seconds
_MOST_ROWS, _MOST_CANDIDATES = 10_000, 3_000  # of max_terms=None: of the process, of other models


class ForwardRegressor(PartialFit, TransformParameter, SparseRegressor):
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
        With learnt widths it is 1,200, or 4 times as many as terms, up to 2,000 more than terms;
        or, where up to 300 pivots leave less of the process out than a tenth of the noise, those.
        Never more than have a Gram matrix that fits into `cache_size`, unless there are more terms.
    rank : int, "auto" or None, default=None
        Choose from the kernel matrix approximated to this rank by pivoted Cholesky, as in the
        paper; ``"auto"`` leaves 0.1 % of its trace out. Evidence and weights are of the true
        functions in every case.
    transform : "nufft" or None, default=None
        ``"nufft"``: kernel products with all candidates by the nonuniform fast Fourier transform,
        for the Gaussian kernel on at most three inputs, with all rows as candidates. Needs finufft.
    neighbours : int or "auto", default=0
        With more than 0 the model is the Gaussian process itself as nearly as training rows around
        each new one can make it: what the functions leave out is local, and those rows restore it.
        Means are told by this many neighbours or, where leave-one-out densities prefer it, by 48
        times as many rows (3,072 at most, unless there are more neighbours) that all new rows of
        one cell of the inputs share; variances by the neighbours. For those who want accuracy and
        can keep the rows: the model keeps all of them, and a prediction takes a fraction of a
        millisecond. Learnt widths are those of the process, by exact evidence on up to 2,500 rows.
        ``"auto"``: 16, doubled up to 128 while the leave-one-out density grows; none where the
        functions leave less of the process out than a tenth of the noise. For kernels of distances,
        with ``refit="gp"``.
    max_terms : "auto", int or None, default="auto"
        Length of the path. ``"auto"``: 300; where the last tenth of them still pays, a thousandth
        of a nat of evidence for each row, more, up to 1,000, then 3,333 and so on, as far as there
        are twenty rows for each and the candidates have a Gram matrix that fits into `cache_size`
        (1,000 terms at its default) and is made in about ten seconds. Up to 3,000 rows there are
        1,000 also where 300 are too few for the process, see `early_stopping`.
        Rows read in blocks, and those of `partial_fit`, have 300. None keeps all candidates and
        chooses none: with ``refit="gp"`` and all rows, up to 10,000, that is the Gaussian process
        itself, with one array of n_rows x n_rows.
    early_stopping : {"evidence", "validation"} or None, default="evidence"
        How many terms of the path are kept: those of highest evidence; those that predict a held
        out part of the rows best (the path is then chosen again on all rows); or all. Learnt widths
        are those of a Gaussian process, and with ``refit="gp"`` the terms are its approximation:
        ``"evidence"`` keeps as many then as leave less of its variance out than a tenth of the
        noise.
    validation_fraction : float, default=0.1
        That part.
    refit : "gp" or None, default="gp"
        Prior of the chosen functions in the final model: ``"gp"`` that of a Gaussian process, with
        its variance learnt by evidence (kernel models; mostly better where the functions overlap);
        None the independent one of the selection, as in the paper.
    fit_intercept : bool, default=True
        Add a constant with a flat prior, integrated out.
    tol : float, default=1.0
        Nats that a new regulariser must gain on the path for it to be chosen again, and the new
        path over the old one to go on.
    cache_size : float, default=200
        Megabytes that kernel columns, and the Gram matrix of the candidates, may take in memory.
    random_state : int, RandomState or None, default=0
        Draws candidates and validation rows.
    n_jobs : int or None, default=None
        Threads of predictions with neighbours; -1 for all cores.
    device : str or None, default=None
        ``"cuda"``: kernel functions and their sums are computed on this device, in float64. Torch
        tensors stay where they are, and predictions for them are tensors. With `neighbours` signal
        and noise are found on the CPU, and predictions are made on the device, where all distances
        are computed in place of a tree. Needs torch.
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
        With learnt widths: how fast the function varies along each input, the largest 1; for the
        sum the variance along it, of both parts.
    rough_share_ : float
        With ``kernel_ == "sum"``: the share of the rough part in the variance of the kernel, whose
        `gamma_` has two rows, of the smooth and of the rough part.
    kernel_search_ : dict of arrays
        With learnt widths, what was tried: ``kernel``, ``one_width`` for all inputs,
        ``process_evidence``, the log evidence of a Gaussian process of the standardised target, and
        ``left_out``, where it decided: the mean log density of that target, each row left out, less
        a price of the lengths.
    coef_ : array of shape (n_active,) or (n_outputs, n_active)
        One weight per active function; with ``kernel=None`` one per column of X, zeros included.
    intercept_ : float or array of shape (n_outputs,)
        The constant of the model.
    noise_model_, noise_tail_ : NoiseModel and Tail, or None
        How the noise depends on the inputs, with ``noise_variance="input"``; and its tails, where
        the leave-one-out residuals have them.
    calibration_ : float or array of shape (n_outputs,)
        Where widths were learnt: what the standard deviation of the fit is multiplied by (1 or
        more). Rows left out say how far it is from theirs, and each length has seen those rows (two
        squares of n for each). Variances of prior and noise include it, `log_evidence_` does not.
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
        ``"gaussian_process"`` (cut where it follows the Gaussian process of the kernel),
        ``"max_terms"``, ``"validation"``, ``"no_candidate"``, ``"exact_fit"`` (all but rounding is
        explained), ``"no_signal"``, ``"all_candidates"``, ``"interrupted"`` or ``"callback"``.
    neighbours_ : int
        How many there are; 0 without them.
    neighbours_search_ : dict of arrays
        With ``neighbours="auto"``, what was tried: ``neighbours``; ``left_out``, the mean log
        density of the standardised target at up to 1,000 rows, each left out; and ``outside``, the
        variance of the process that the functions leave out over that of the noise.
    loo_ : Bunch
        Leave-one-out ``residuals``, ``std``, ``log_density`` and ``r2``, in closed form.
    history_ : dict of arrays
        One entry per term chosen, replays included.
    n_iter_ : int
        Steps that the fit took.
    converged_ : bool
        False where the selection was interrupted.
    basis_, posterior_
        The functions, and what is known about their weights. With neighbours these, `coef_` and
        `log_evidence_` are of the global part alone: all rows, what the functions leave out taken
        as noise of its own at each row.

    Notes
    -----
    With neighbours a joint distribution of rows (`return_cov`, `sample_y`) is given all their
    neighbours together, so that its variances, and its means where neighbours tell them, differ a
    little from those of rows by themselves. Rows are kept in float32 where they and their functions
    take more than `cache_size`; the noise variance is then at least 1e-5 of that of the process.

    X may also be a memory map larger than `cache_size`, a list or an iterator of blocks of rows, a
    function that returns such an iterator, or a `sparsebayes.designs.RowBlocks` of any of them: it
    is then read in blocks and never as a whole.

    A fit that is interrupted (KeyboardInterrupt) keeps the terms reached so far, with a warning and
    ``converged_ = False``. Before the first term is chosen the interrupt is raised.

    With several targets (y of shape (n_samples, n_outputs)) all share one set of functions and the
    ratio of the precision of the weights to that of the noise; each has its own weights and noise
    variance. Not with ``max_terms=None``, ``early_stopping="validation"`` or rows in blocks.

    With `noise_variance` and `regularization` both given nothing is learnt during the selection;
    with the noise learnt and a regularization given the noise is at its best value at every step.
    The evidence is highest at far fewer terms than the best prediction on some data: try
    ``early_stopping="validation"`` or None where accuracy matters more than size.

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

    _takes_blocks = True
    _differs = False  # whether the noise of rows does, so that each is to be left out
    _all_left_out = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseRegressor._parameter_constraints,
        **NOISE_CONSTRAINTS,
        "regularization": [words("uniform"), Number(0)],
        "candidates": [words("auto", "all", "pivots"), Whole(1), "array-like"],
        "rank": [None, words("auto"), Whole(1)],
        "transform": [None, words("nufft")],
        "neighbours": [words("auto"), Whole(0)],
        "max_terms": [None, words("auto"), Whole(1)],
        "early_stopping": [None, words("evidence", "validation")],
        "validation_fraction": [Number(0, 1)],
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
        neighbours: Any = 0,
        max_terms: Any = "auto",
        early_stopping: str | None = "evidence",
        validation_fraction: float = 0.1,
        refit: str | None = "gp",
        fit_intercept: bool = True,
        tol: float = 1.0,
        cache_size: float = 200,
        random_state: Any = 0,
        n_jobs: int | None = None,
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
        self.neighbours = neighbours
        self.max_terms = max_terms
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.refit = refit
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.cache_size = cache_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    def truncate(self, n_terms: int) -> ForwardRegressor:
        """A fitted model of the first `n_terms` terms of the path, without choosing them again.

        Parameters
        ----------
        n_terms : int
            From 0 to the length of the path, ``len(evidence_path_) - 1``.

        Returns
        -------
        model : ForwardRegressor
            A copy, without neighbours; regulariser and noise are learnt again where they were.
        """
        check_is_fitted(self)
        if self._fitted_path is None:
            raise ValueError(
                "max_terms=None chose no terms, so that there are no first ones to keep: fit with "
                "max_terms='auto' or a number."
            )
        longest = len(self._fitted_path.path)
        if not (is_whole(n_terms) and 0 <= n_terms <= longest):
            raise ValueError(
                f"n_terms must be a whole number from 0 to {longest}, the terms of the path; got "
                f"{n_terms!r}. Fit with a larger max_terms for a longer path."
            )
        model = copy.copy(self)
        model._process, model.neighbours_ = None, 0
        model._keep_terms(int(n_terms), learn=self.regularization == "uniform")
        # The residuals of fewer terms are not at hand: one level, and a normal distribution.
        forget_noise(model)
        model.stop_reason_ = StopReason.TRUNCATED.value
        return model

    @property
    def loo_(self) -> Any:
        """What the model says about each training row without it; see `SparseRegressor.loo_`.

        A model with neighbours keeps its rows, so that it has this after it was loaded too.
        """
        check_is_fitted(self)
        if self._process is not None and (self._left_out is None or not self._all_left_out):
            known = None if self._left_out is None else self._left_out.noise
            left = self._process.left_out(self.n_jobs)
            if known is None and self.noise_model_ is None:
                known = self.posterior_.noise_variance
            elif self.noise_model_ is not None:
                raise AttributeError(self._no_loo())
            self._left_out, self._all_left_out = left._replace(noise=known), True
        return super().loo_

    # With neighbours a model is a process that keeps its rows: `solvers.forward.neighbours`.

    _process: NeighbourProcess | None = None

    @property
    def _keeps_rows(self) -> bool:
        return bool(self.neighbours != 0)

    @property
    def _rows_at_once(self) -> int:
        # Which a process cuts itself, for several threads.
        return super()._rows_at_once if self._process is None else 2**14

    def _function(self, X: Any, spread: bool = True) -> tuple[Any, Any, Any]:
        if self._process is None:
            return super()._function(X, spread)
        return *self._process.predict(X, self.n_jobs, spread), None

    def _joint_function(self, X: Any, Phi: Any) -> tuple[np.ndarray, np.ndarray]:
        process = self._process
        return super()._joint_function(X, Phi) if process is None else process.joint(X)

    def _draw_function(self, X: Any, Phi: Any, n: int, rng: np.random.Generator) -> np.ndarray:
        if self._process is None:
            return super()._draw_function(X, Phi, n, rng)
        mean, covariance = self._process.joint(X)
        return rng.multivariate_normal(mean, covariance, n, method="eigh").T

    def _runs_there(self, spread: bool) -> bool:
        return self._process is not None or super()._runs_there(spread)

    # Parameters.

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        several = self.max_terms is not None and self.early_stopping != "validation"
        several = several and not self._keeps_rows
        tags.target_tags.multi_output = several
        return tags

    def _same_functions(self) -> dict[str, Any]:
        settings = super()._same_functions()
        path, drawn = self._fitted_path, self.approximation_["n_candidates"]
        if path is None or len(path.active) == 0:
            return settings
        settings["max_terms"] = len(path.active)
        n = path.n_rows
        if "_known_kernel" in settings and is_text(self.candidates, "auto") and drawn < n:
            # Those on the path, and of the others as many as cost a fraction of the first fit.
            more = max(0, min(drawn // 2, _AGAIN) - len(path.active))
            others = np.random.default_rng(0).choice(n, more, replace=False)
            settings["candidates"] = np.union1d(others, path.active)
        return settings

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.rank is not None and self.transform_parameter == "nufft":
            raise ValueError(
                "rank and transform='nufft' are two ways to the same scores: give one."
            )
        learnt = is_text(self.noise_variance, "learn") or is_number(self.noise_variance)
        self._differs = not learnt or self.likelihood != "gaussian"
        if self._keeps_rows:
            self._check_neighbours()
        if self.max_terms is None:
            none = ("rank", "regularization") if self._is_process() else ("rank",)
            self._refuse(none, "is about choosing terms, and max_terms=None chooses none.")
            if self.transform_parameter is not None or self.early_stopping == "validation":
                raise ValueError(
                    "transform and early_stopping='validation' are about choosing terms, and "
                    "max_terms=None chooses none."
                )

    def _check_neighbours(self) -> None:
        """Raise where a process and its neighbours have no meaning."""
        if self.refit != "gp" or not is_text(self.kernel, "auto", *STATIONARY):
            known = ", ".join(map(repr, STATIONARY))
            raise ValueError(
                f"neighbours={self.neighbours!r} is for refit='gp' and a kernel of distances, one "
                f"of 'auto', {known}; got refit={self.refit!r} and kernel={self.kernel!r}."
            )
        if self.max_terms is None:
            raise ValueError(
                "max_terms=None is the process on all rows already, and neighbours would add "
                "nothing: give one of the two."
            )

    def _judges(self, n_rows: int) -> bool:
        # With neighbours the model is the process, whose evidence knows best.
        return not self._keeps_rows and super()._judges(n_rows)

    # From X, y to a problem.

    def _needs_rows(self) -> str:
        if self.early_stopping == "validation" or is_text(self.kernel, "precomputed"):
            return "early_stopping='validation' and precomputed kernels need them"
        approximate = self.rank is not None or self.transform_parameter is not None
        approximate = approximate or self.max_terms is None
        return "rank, transform and max_terms=None need them" if approximate else ""

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Any:
        limit = self._limit()
        if limit is None:
            self._check_size(X)
        problem = self._problem(X, y, sample_weight)
        self._process, self.neighbours_ = None, 0
        self.__dict__.pop("neighbours_search_", None)
        if limit is None:
            self._keep_all(problem)
            return problem.rows
        n_terms = None
        if self.early_stopping == "validation":
            n_terms = validated_terms(self, problem.X, y, sample_weight)
            limit = max(n_terms, 1)
        single = getattr(X, "dtype", None) == np.float32
        grows = is_text(self.max_terms, "auto") and n_terms is None
        if n_terms is None:
            problem = self._pivots(problem) or problem
        problem, state = self._select(problem, int(limit), single, n_terms, grows)
        n_path, n_rows = len(self.evidence_path_) - 1, problem.design.n_rows
        if grows and self._short_of_process and 2 * n_path < n_rows <= _FEW_ROWS:
            limit = int(_STEP * _FIRST_TERMS)
            larger = self._larger(problem, n_path, limit)
            if larger is not None and self.stop_reason_ == StopReason.MAX_TERMS:
                same = state.scores if larger is problem else None
                problem, _ = self._select(larger, limit, single, None, False, state.found.lam, same)
        if self._keeps_rows:
            add_neighbours(self, problem, X.kept if isinstance(X, Stream) else problem.rows)
        return problem.rows

    def _pivots(self, problem: Problem) -> Problem | None:
        """The problem with few candidates that are all of a process; None where it takes many.

        Pivots know no target, and leave less of the process out than any path. Where few of them
        leave less out than the noise hides, there is nothing to be gained by rows drawn at random.
        """
        rows, lam = problem.rows, self._process_lam
        plain = is_text(self.max_terms, "auto") and is_text(self.candidates, "auto")
        plain = plain and self.rank is None and self.transform_parameter is None
        plain = plain and self.refit == "gp" and not self._keeps_rows and isinstance(rows, tuple)
        plain = plain and lam > 0.0 and self._learns_process(problem)
        if not plain or problem.design.n_rows <= self._many(_FIRST_TERMS):
            return None
        X, y, weight = rows
        some = np.arange(len(y)) if weight is None else np.flatnonzero(weight)
        some = some[:: 1 + len(some) // _SOME_ROWS]
        pivots, left = process_pivots(problem.kernel, X[some], _FIRST_TERMS, lam)
        if left > LEFT_OUT * lam:
            return None
        choice = replace(self._choice(_FIRST_TERMS), wanted=some[pivots])
        return problem_in_memory(self, X, y, weight, None, choice)

    def _limit(self) -> int | None:
        """Terms of the first path; None for all candidates."""
        return _FIRST_TERMS if is_text(self.max_terms, "auto") else self.max_terms

    def _whole_model(self) -> Any:
        # Kernels are compared by their first terms.
        trial = super()._whole_model()
        return trial.set_params(max_terms=_FIRST_TERMS) if trial.max_terms == "auto" else trial

    def _select(
        self,
        problem: Problem,
        limit: int,
        single: bool,
        validated: int | None,
        grows: bool,
        start: float | None = None,
        scores: Any = None,
    ) -> tuple[Problem, Any]:
        """A path of at most `limit` terms, or a longer one where it `grows`, and the model of it.

        `start` and `scores` (of the same candidates) are those of a shorter path. Returns the
        problem that the path is of and the state that the search ended in.
        """
        while True:
            n_path, n_rows = min(limit, problem.design.n_candidates), problem.design.n_rows
            longest = min(int(_STEP * limit), n_rows // _ROWS_PER_TERM)
            larger = None
            if grows and longest >= _MORE * n_path:
                larger = self._larger(problem, n_path, longest)
            pays = None if larger is None else _PAYS * problem.design.n_observations
            route = None if scores is None else lambda design, t, at=scores: at
            solver = self._solver(problem, limit, single, route, start, pays)
            result = solve(self, solver, problem, 2 * (1 + _REPLAYS) * limit + 1)
            state = result.state
            if larger is None or result.stop_reason is not StopReason.LONGER_PATH:
                self._keep(problem, solver, result, validated)
                return problem, state
            assert state.found is not None  # the path whose last terms still pay
            scores = state.scores if larger is problem else None
            problem, start, limit = larger, state.found.lam, longest

    def _larger(self, problem: Problem, n_path: int, limit: int) -> Problem | None:
        """The problem of `limit` terms where there were `n_path`; None where it takes too much."""
        design, many = problem.design, self._wanted(limit)
        if limit <= n_path or many > self._most() or not isinstance(problem.rows, tuple):
            return None
        drawn = self.kernel is not None and is_text(self.candidates, "auto", "pivots")
        drawn = drawn and self.rank is None and design.n_candidates < min(many, design.n_rows)
        if not drawn:
            return problem if n_path < design.n_candidates else None
        if gram_seconds(design, many) > _SECONDS:
            return None
        X, y, weight = problem.rows
        larger = problem_in_memory(self, X, y, weight, None, self._choice(limit))
        return larger if n_path < larger.design.n_candidates else None

    def _problem(self, X: Any, y: Any, sample_weight: Any) -> Problem:
        choice = self._choice(self._limit())
        blocks = as_blocks(X, self.cache_size, self.device)
        if blocks is not None:
            X = blocks
            whole = self.max_terms is None or self.rank is not None
            whole = whole or self.transform_parameter == "nufft"
            if whole or (choice.everything and blocks.device is None):
                raise ValueError(
                    "Rows read in blocks take candidates='auto', 'pivots', a number or indices, "
                    "with max_terms='auto' or a number, rank=None and transform=None."
                )
            if self.early_stopping == "validation":
                raise ValueError(
                    "Rows read in blocks take early_stopping='evidence' or None: 'validation' "
                    "needs all of them in memory."
                )
        # One scale for all columns: the prior is the same for all of them.
        return make_problem(
            self,
            X,
            y,
            sample_weight,
            columns=lambda X: one_scale(X, choice.columns(X.shape[1])),
            choice=choice,
        )

    def _choice(self, limit: int | None) -> CandidateChoice:
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        return CandidateChoice(
            self.candidates,
            many=self._many(limit),
            whole=0 if self._learns() else self._most(),
            memory=self.cache_size,
            everything=is_text(self.candidates, "all")
            or limit is None
            or self.rank is not None
            or self.transform_parameter == "nufft",
            nufft=self.transform_parameter == "nufft",
            rng=np.random.default_rng(seed),
        )

    def _many(self, limit: int | None) -> int:
        """How many candidates there are for so many terms, where not all are."""
        if limit is None:
            return _MOST_ROWS
        return max(min(self._wanted(int(limit)), self._most()), int(limit))

    def _wanted(self, limit: int) -> int:
        """Candidates for so many terms, where memory does not matter.

        A width that was given may be far too narrow, and where the functions are then matters.
        """
        if self._learns():
            return max(1200, min(4 * limit, 2000 + limit))
        return max(2000, min(8 * limit, 2000 + 2 * limit))

    def _most(self) -> int:
        """How many candidates have a Gram matrix that fits into `cache_size`."""
        return int(np.sqrt(self.cache_size * 1e6 / 8))

    # The solver.

    def _solver(
        self,
        problem: Problem,
        limit: int,
        single: bool,
        route: Any = None,
        start: float | None = None,
        pays: float | None = None,
    ) -> Forward:
        lam, scale = self.regularization, column_scale(problem.design)
        if route is not None:
            pass
        elif self.transform_parameter == "nufft":
            route = columns_route
        elif is_text(self.rank, "auto"):
            most = max(1, int(self.cache_size * 1e6 / (8 * problem.design.n_rows)))
            route = partial(low_rank_route, rank=most, trace=_TRACE_LEFT)
        elif self.rank is not None:
            route = partial(low_rank_route, rank=int(self.rank))
        elif problem.design.lazy and (
            needs := megabytes_short(problem.design, self.cache_size, limit)
        ):
            warn(
                f"Neither the {problem.design.n_candidates} kernel columns nor their products fit "
                f"into cache_size={self.cache_size} MB, so the columns are computed again for each "
                f"term, which is slow: take fewer candidates, or cache_size={int(np.ceil(needs))}.",
                UserWarning,
            )
        return Forward(
            noise_variance=problem.in_units(self.noise_variance),
            regularization=None if lam == "uniform" else lam * scale * scale,
            max_terms=limit,
            cut=self.early_stopping == "evidence",
            tol=self.tol,
            replays=_REPLAYS,
            route=route,
            memory=self.cache_size,
            single=single,
            report=rows_read(self, problem.design.n_rows),
            start=start,
            pays=pays,
        )

    # From a result to fitted attributes.

    def _keep(
        self, problem: Problem, solver: Forward, result: Result, validated: int | None
    ) -> None:
        state = result.state
        path, found = solver.best_path(state, problem.design, problem.t)
        gp = self.refit == "gp" and self.kernel is not None
        self._fitted_path = FittedPath.from_problem(
            problem, path, state.noise, found.lam, found.order, gp
        )
        n_terms = found.n_terms if validated is None else min(validated, found.n_terms)
        self._short_of_process, prior = False, None
        if gp and n_terms > 0 and self._learns_process(problem):
            prior = self._fitted_path.prior(len(path))
            if prior is not None:
                enough = self._fitted_path.enough(some_rows(problem.design, _SOME_ROWS), prior)
                self._short_of_process = enough > len(path)
                n_terms = max(n_terms, min(enough, len(path)))
        self._keep_terms(n_terms, learn=False, prior=prior if n_terms == len(path) else None)
        keep_left_out(self, problem.rows)

        shift = problem.design.n_observations * np.sum(np.log(problem.target_scale))
        self.evidence_path_ = path.curve(found.lam, state.noise) - shift
        self.best_n_terms_ = int(np.argmax(self.evidence_path_))
        true = path.curve(found.claimed_lam, state.noise)[found.n_terms]
        self.approximation_ = {
            **state.scores.report,
            "n_candidates": problem.design.n_candidates,
            "claimed_log_evidence": float(found.claimed[found.n_terms] - shift),
            "log_evidence": float(true - shift),
        }
        keep_run(self, problem, result)
        if self.history_:
            self.history_["candidate"] = problem.candidates[self.history_["candidate"]]
            # Twice: the square of an extreme scale is not a number of float64.
            with np.errstate(over="ignore"):
                self.history_["regularization"] /= column_scale(problem.design)
                self.history_["regularization"] /= column_scale(problem.design)
        reason = result.stop_reason
        if result.converged and validated is not None:
            reason = StopReason.VALIDATION
        elif result.converged and n_terms > found.n_terms:
            reason = StopReason.GAUSSIAN_PROCESS
            if self._short_of_process:
                reason = StopReason.MAX_TERMS
        self.stop_reason_ = reason.value
        if not self.converged_:
            warn(
                f"{type(self).__name__} stopped after {result.n_iter} steps: {reason.advice}",
                ConvergenceWarning,
            )

    def _learns_process(self, problem: Problem) -> bool:
        """Whether the widths were learnt as those of a process, which the path is to follow."""
        learnt = learns_widths(self.gamma) and problem.design.stationary
        return learnt and self.early_stopping == "evidence"

    def _keep_all(self, problem: Problem) -> None:
        """The model of all candidates, none chosen."""
        design = problem.design
        noise = Noise.from_design(design, problem.t, problem.in_units(self.noise_variance))
        every = np.arange(design.n_candidates)
        if not (self._is_process() and self._keep_process(problem, noise)):
            path = Path.from_columns(design, problem.t, every)
            lam = self.regularization
            gp = self.refit == "gp" and self.kernel is not None
            if is_text(lam, "uniform"):
                lam = best_terms(path, noise, len(path))[0] if len(path) else 1.0
            else:
                lam = lam * column_scale(design) ** 2
            self._fitted_path = FittedPath.from_problem(problem, path, noise, lam, every, gp)
            self._keep_terms(len(path), learn=False)
            keep_left_out(self, problem.rows)
            self._fitted_path = None
        self.best_n_terms_ = len(self.active_)
        self.evidence_path_ = np.array([self.log_evidence_])
        self.approximation_ = {
            "route": "all candidates",
            "n_candidates": design.n_candidates,
            "claimed_log_evidence": self.log_evidence_,
            "log_evidence": self.log_evidence_,
        }
        keep_run(self, problem, Result(None, {}, 0, StopReason.ALL_CANDIDATES))

    def _is_process(self) -> bool:
        """Whether all rows have a function, under the prior of a Gaussian process."""
        rows = self.kernel is not None and not is_text(self.kernel, "precomputed")
        return rows and self.refit == "gp" and is_text(self.candidates, "auto", "all")

    def _check_size(self, X: Any) -> None:
        """Raise where max_terms=None would keep too much."""
        n = X.shape[self.kernel is None] if hasattr(X, "shape") else np.shape(X)[0]
        most = _MOST_ROWS if self._is_process() else _MOST_CANDIDATES
        if is_whole(self.candidates) or np.ndim(self.candidates) == 1:
            n = min(n, np.size(self.candidates) if np.ndim(self.candidates) else self.candidates)
        if n > most:
            raise ValueError(
                f"max_terms=None keeps all {n} candidates and an array of {n} x {n}; here that is "
                f"for {most} at most: give max_terms a number."
            )

    def _keep_process(self, problem: Problem, noise: Noise) -> bool:
        """The Gaussian process of all rows of positive weight; False if the kernel has none."""
        from ..solvers.forward.process import exact_process

        X, y, weight = problem.rows
        rows = np.arange(len(y)) if weight is None else np.flatnonzero(weight)
        weight = np.ones(len(rows)) if weight is None else weight[rows]
        scale = problem.target_scale
        assert problem.kernel is not None
        basis = KernelBasis(problem.kernel, X[rows])
        K = np.empty((len(rows), len(rows)), order="F")
        for some in row_slices(len(rows), 512):
            K[some] = basis(X[rows[some]])
        level = K.diagonal().copy()
        process = exact_process(
            K, y[rows] / scale, weight, self.fit_intercept, noise, self._choice(None).rng
        )
        if process is None:
            return False
        keep_posterior(self, process.posterior, process.lam * level, basis, rows, scale, noise.n)
        self.regularization_ = process.lam
        self._added = ResidualProcess(basis, process.L, process.amplitude * scale * scale)
        self._fitted_path = None
        if process.limit and self.noise_variance == "learn":
            warn(self._met(process.limit, len(rows)), ConvergenceWarning)
        gap = process.lam / weight * self.posterior_.mean
        spread = process.variance * scale * scale
        left = LeftOut(gap, spread, y[rows], weight, self.posterior_.noise_variance)
        self._left_out = with_rest(self, left, rows, X, y)
        return True

    def _keep_terms(self, k: int, learn: bool, prior: Prior | None = None) -> None:
        """Fitted attributes of the first k terms of the path, whose `prior` may be known."""
        model = self._fitted_path.model(k, learn, prior)
        if model is None:
            warn(
                f"The matrix of kernel={self.kernel!r} is not positive definite, so refit='gp' has "
                "no meaning here: the independent prior is kept. Use refit=None.",
                UserWarning,
            )
            self._fitted_path = replace(self._fitted_path, gp=False)
            model = self._fitted_path.model(k, learn)
        if model.limit and self.noise_variance == "learn":
            warn(self._met(model.limit, k), ConvergenceWarning)
        fitted = self._fitted_path
        keep_posterior(
            self,
            replace(model.posterior, offset=fitted.offset),
            model.lam,
            fitted.path.design.basis(np.arange(k)),
            fitted.active[:k],
            fitted.target_scale,
            fitted.path.design.n_observations,
        )
        scale = fitted.column_scale
        self.regularization_ = model.regularization / scale / scale
        self._added = model.residual

    def _met(self, limit: str, k: int) -> str:
        """What a fit that went as far as it may has met, and what to do; not what was done."""
        learnt = learns_widths(self.gamma)
        if limit == "amplitude":
            return (
                "The kernel is so wide that its functions cancel each other to the last digits of "
                "float64: take a larger gamma"
                + ("." if learnt else ", or let gamma='evidence' or gamma='ard' find it.")
            )
        met = (
            f"{k} functions explain the target up to {FLOOR:g} of its variance, so the noise "
            "variance was kept at that share. "
        )
        if (self._fitted_path is None or 2 * k > self._fitted_path.n_rows) and not learnt:
            return met + (
                "Where nearly every row has its function, that may be the kernel and not the "
                "target: learn the width (gamma='evidence' or 'ard')."
            )
        return met + (
            "If it should have noise, look for an input that determines it, such as a function "
            "of the target itself; if it has none, give noise_variance the level you want."
        )
