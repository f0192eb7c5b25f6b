"""What forward selection needs beside its search: candidates, paths, validation, neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ..designs import CentredBasis, DenseDesign, Design, KernelBasis, KernelDesign, NufftDesign
from ..kernels import Kernel
from ..linalg import pivoted_cholesky
from ..posterior import Dense, LeftOut, Posterior, ResidualProcess
from ..solvers.forward.gp_prior import Prior, gp_prior, gp_refit, gp_root
from ..solvers.forward.path import Path, best_terms
from ..solvers.noise import Noise
from ._base import Problem, keep_posterior
from ._common import different_rows, is_number, is_text, rows_in_memory
from ._sklearn import check_sample_weight, warn

if TYPE_CHECKING:
    from ..solvers.forward.neighbours import NeighbourProcess

_PRODUCTS = 1e11  # rows times squared candidates of a Gram matrix: three seconds
LEFT_OUT = 0.1  # variance of a process outside its functions, over that of the noise


class Model(NamedTuple):
    """The first few terms of a path, in the units of the solver."""

    posterior: Posterior
    lam: np.ndarray  # prior precision of each weight times the noise variance
    regularization: float
    residual: ResidualProcess | None
    limit: str  # of `Prior`


@dataclass(frozen=True)
class FittedPath:
    """The path of a fit as a triangle, and what else a model of its first terms needs.

    `gp` says that a Gaussian-process prior is wanted; `given` are the rows of a precomputed kernel
    that it takes; `column_scale` is what the columns were multiplied by against overflow.
    """

    path: Path
    active: np.ndarray  # rows or columns of X that carry its functions
    offset: Any  # of the target as the solver saw it,
    target_scale: Any  # which was divided by this
    noise: Noise
    regularization: float
    gp: bool
    given: np.ndarray | None
    column_scale: float
    n_rows: int  # different ones, where that matters

    @classmethod
    def from_problem(
        cls, problem: Problem, path: Path, noise: Noise, lam: float, order: Any, gp: bool
    ) -> Any:
        """From a problem and the columns of it that were chosen, in order."""
        rows = problem.candidates[np.asarray(order, dtype=np.intp)]
        scale, m = column_scale(problem.design), problem.design.n_candidates
        given, gp = None, gp and len(path) > 0
        if gp and path.design.basis(np.arange(1)).kernel is None:
            given = problem.X[np.ix_(rows, rows)] * scale
        return cls(
            path,
            rows,
            problem.offset,
            problem.target_scale,
            noise,
            lam,
            gp,
            given,
            scale,
            # Not counted where it cannot matter.
            problem.design.n_distinct_inputs if 2 * len(path) > m else problem.design.n_rows,
        )

    @cached_property
    def kernel_matrix(self) -> np.ndarray | None:
        """k between the functions of the path, where a Gaussian-process prior is wanted."""
        if not self.gp:
            return None
        K = self.given
        if K is None:
            chosen = self.path.design.basis(np.arange(len(self.path))).functions
            K = chosen(chosen.centres)
        return 0.5 * (K + K.T)

    def __getstate__(self) -> Any:
        # As large as all else together, and soon made again.
        return {name: value for name, value in vars(self).items() if name != "kernel_matrix"}

    def prior(self, k: int) -> Prior | None:
        """Of the first k terms that of a Gaussian process; None if its matrix is indefinite."""
        assert self.kernel_matrix is not None
        return gp_prior(self.path, k, self.kernel_matrix, self.noise)

    def model(self, k: int, learn: bool, prior: Prior | None = None) -> Model | None:
        """The first k terms; `learn` their regulariser. None if the kernel matrix is indefinite.

        `prior`, where it is known, is that of so many terms.
        """
        lam = self.regularization
        if learn and k > 0:
            lam = best_terms(self.path, self.noise, k)[0]
        if self.kernel_matrix is None or k == 0:
            posterior = self.path.posterior(k, lam, self.noise)
            return Model(posterior, np.full(k, lam), lam, None, "")
        prior = prior or self.prior(k)
        if prior is None:
            return None
        posterior = gp_refit(prior)
        residual, chosen = None, self.path.design.basis(np.arange(k)).functions
        if 2 * k > self.n_rows and chosen.kernel is not None:
            amplitude = prior.sigma2 / prior.lam
            with np.errstate(over="ignore"):  # of targets of 1e150 it may be no number of float64
                amplitude = amplitude * self.target_scale * self.target_scale
            amplitude = np.minimum(amplitude, 0.1 * np.finfo(np.float64).max)
            own = chosen.kernel.diagonal(chosen.centres)
            added = np.einsum("ij,ij->i", prior.L, prior.L) - own
            jitter = float(np.max(np.abs(added)) / np.mean(own))
            residual = ResidualProcess(chosen, prior.L, amplitude, jitter)
        lams = prior.lam * np.einsum("ij,ij->i", prior.L, prior.L)
        return Model(posterior, lams, lam, residual, prior.limit)

    def enough(self, X: np.ndarray, prior: Prior) -> int:
        """How many terms leave less of their Gaussian process out than a tenth of the noise.

        One more than all of them where none do. The part of the process, of unit variance, that
        the first k functions leave out at a row falls with k, and the triangle of the kernel matrix
        has it for all k at once. `prior` is that of all of them.
        """
        values = self.path.design.basis(np.arange(len(self.path))).functions(X)
        T = solve_triangular(prior.L, values.T, lower=True, check_finite=False)
        left = 1.0 - np.cumsum(np.mean(T * T, axis=1))
        enough = np.flatnonzero(left <= LEFT_OUT * prior.lam)
        return int(enough[0]) + 1 if len(enough) else len(self.path) + 1

    def predictions(self, X: np.ndarray) -> np.ndarray:
        """Predictions of the first 0, 1, 2, ... terms, a column for each, as they were selected."""
        Phi = self.path.design.basis(np.arange(len(self.path)))(X)
        values = self.path.predictions(Phi, self.regularization)
        return (values + self.offset) * self.target_scale


def process_pivots(kernel: Any, X: np.ndarray, most: int, lam: float) -> tuple[np.ndarray, float]:
    """Rows of X whose functions are the process as far as the noise lets it be seen.

    Up to `most` of them; and the variance of a process of variance 1 that they leave out. `lam` is
    that of the noise.
    """
    F, pivots = pivoted_cholesky(
        kernel.diagonal(X), lambda j: kernel.bind(X[j])(X), most, LEFT_OUT * LEFT_OUT * lam
    )
    return pivots, 1.0 - float(np.einsum("ij,ij->", F, F)) / len(X)


# How many terms of a path predict rows best that had no part in it.


def validated_terms(model: Any, X: np.ndarray, y: Any, sample_weight: Any) -> int:
    """The number of terms that predict held out rows best, on a path chosen without them.

    `model` is a `ForwardRegressor` with its kernel set; a clone of it chooses the path.
    """
    y = np.asarray(y, dtype=np.float64).ravel()
    weight = np.ones(len(y)) if sample_weight is None else check_sample_weight(sample_weight, X)
    choice = model._choice(model._limit())
    order = choice.rng.permutation(np.flatnonzero(weight))
    n_out = min(len(order) - 2, max(1, round(model.validation_fraction * len(order))))
    if n_out < 1:
        raise ValueError(
            f"early_stopping='validation' needs at least 3 rows, got {len(order)}: use 'evidence'."
        )
    out, rest = np.sort(order[:n_out]), np.sort(order[n_out:])
    trial = clone(model).set_params(early_stopping=None, refit=None, neighbours=0)
    if hasattr(model, "gamma_"):
        share = getattr(model, "rough_share_", 0.5)
        trial._known_kernel = (model.kernel_, model.gamma_, share)
    if model.kernel is not None and np.ndim(model.candidates) == 1:
        trial.set_params(candidates=choice.columns(len(rest), rest))
    precomputed = is_text(model.kernel, "precomputed")
    trial.fit(
        X[np.ix_(rest, rest)] if precomputed else X[rest],
        y[rest],
        None if sample_weight is None else weight[rest],
    )
    held_out = X[np.ix_(out, rest)] if precomputed else X[out]
    errors = (trial._fitted_path.predictions(held_out) - y[out, None]) ** 2
    return int(np.argmin(np.average(errors, axis=0, weights=weight[out])))


# With neighbours: the process of all rows in place of the model of the functions alone.

_TOLD = 4_000  # rows that are left out to tell tails and intervals, where noise is one level


def add_neighbours(model: Any, problem: Problem, rows: Any) -> None:
    """Make a fitted model that of its functions and the neighbours of each new row.

    `rows` are all (X, y, weight or None), or `Rows` of these.
    """
    from ..solvers.forward.neighbour_scales import neighbour_process
    from ..solvers.forward.neighbours import Places

    rows = rows_in_memory(rows)
    X, y = (np.asarray(part) for part in rows[:2])
    y, scale = y.astype(np.float64), problem.target_scale
    weight = np.ones(len(y)) if rows[2] is None else np.asarray(rows[2], dtype=np.float64)
    counted, given = np.flatnonzero(weight), (X, y)
    if len(counted) < len(y):
        X, y, weight = X[counted], y[counted], weight[counted]
    k, path = len(model.active_), model._fitted_path
    kernel: Any = problem.kernel
    chosen: Any = KernelBasis(kernel, X[:0])
    L: Any = np.zeros((0, 0))
    if k and path.kernel_matrix is not None:
        chosen = path.path.design.basis(np.arange(k)).functions
        L = gp_root(path.kernel_matrix[:k, :k])
    single = 8e-6 * len(y) * (X.shape[1] + k) > model.cache_size
    told = None
    if len(y) > _TOLD and not model._differs and len(y) == len(given[1]):
        told = _TOLD
    found = neighbour_process(
        chosen,
        L,
        Places.from_rows(X, y / scale, weight, single),
        neighbours=model.neighbours,
        intercept=bool(model.fit_intercept),
        noise=path.noise,
        scale=scale,
        rng=np.random.default_rng(check_random_state(model.random_state).randint(2**31 - 1)),
        told=told,
        n_jobs=model.n_jobs,
    )
    if found.limit and is_text(model.noise_variance, "learn"):
        warn(model._met(found.limit, len(y)), ConvergenceWarning)
    if is_text(model.neighbours, "auto"):
        model.neighbours_search_ = {
            "neighbours": np.array(found.tried),
            "left_out": np.array(found.density) + 0.5 * np.log(_variance(y / scale, weight) or 1.0),
            "outside": found.outside / found.process.lam,
        }
        if found.outside <= LEFT_OUT * found.process.lam:
            return
    process = found.process
    model._process, model.neighbours_ = process, min(process.m, len(process.places))
    model._added = None
    _keep_global(model, process, path)
    model._left_out, model._all_left_out = found.left, told is None
    if model._all_left_out:
        model._left_out = with_rest(model, found.left, counted, *given)


def with_rest(model: Any, left: LeftOut, rows: np.ndarray, X: Any, y: np.ndarray) -> LeftOut:
    """What `left` tells of these rows; the others, without weight, are predicted as new ones."""
    rest = np.setdiff1d(np.arange(len(y)), rows)
    if len(rest) == 0:
        return left
    mean, spread, _ = model._function(X[rest])
    others = LeftOut(y[rest] - mean, spread, y[rest], np.zeros(len(rest)), left.fitted_noise)
    back = np.argsort(np.concatenate([rows, rest]))
    names = ("gap", "spread", "y", "weight")
    both = {a: np.concatenate([getattr(left, a), getattr(others, a)])[back] for a in names}
    return left._replace(**both)


def _variance(y: np.ndarray, weight: np.ndarray) -> float:
    return float(np.average((y - np.average(y, weights=weight)) ** 2, weights=weight))


def _keep_global(model: Any, process: NeighbourProcess, path: FittedPath) -> None:
    """The global part as basis and posterior of a model."""
    fit, a = process.fit, process.amplitude
    n, k = float(np.sum(process.places.weight)), len(fit.mean)
    basis: Any = process.functions
    if model.fit_intercept:
        means = np.linalg.solve(fit.turn.T, fit.centre) if k else fit.centre
        basis, n = CentredBasis(basis, means), n - 1.0
    log_evidence = -0.5 * (n * np.log(2.0 * np.pi * a) + fit.log_det + fit.square / a)
    posterior = Posterior(
        fit.turn @ fit.mean,
        Dense(fit.turn * np.sqrt(fit.spread), a),
        process.lam * a,
        float(log_evidence),
        fit.offset,
        fit.offset_variance * a,
    )
    # The prior precision of the weights is the kernel matrix, whose diagonal is one.
    lams = np.full(k, process.lam)
    keep_posterior(model, posterior, lams, basis, path.active[:k], process.scale, n)


def some_rows(design: Design, most: int) -> np.ndarray:
    """Return about `most` of the rows under kernel functions that have a weight.

    For a stream they are among its candidates, because the other rows are not stored.
    """
    X = design.inputs
    assert X is not None
    if isinstance(X, np.ndarray):
        return X[:: 1 + len(X) // most]
    rows = np.flatnonzero(design.root_weight)
    return X.take(rows[:: 1 + len(rows) // most])


def column_scale(design: Design) -> float:
    """Return the factor that all columns of a design were multiplied by against overflow."""
    return float(design.column_scale[0]) if design.n_candidates else 1.0


# Which candidates a greedy selection may choose from.


@dataclass(frozen=True)
class CandidateChoice:
    """What the parameter `candidates` asks for.

    ``"auto"`` and ``"pivots"`` take `many` rows where there are more; ``"auto"`` up to `whole`
    while their products stay cheap, and all where `everything` is wanted; columns may take `memory`
    megabytes; `nufft`: their products are by fast transforms.
    """

    wanted: Any
    many: int
    whole: int
    memory: float
    everything: bool
    nufft: bool
    rng: np.random.Generator

    def functions(self, X: Any, kernel: Kernel, labels: np.ndarray) -> tuple[Design, np.ndarray]:
        """The kernel functions to choose from, and the rows for the user that carry them."""
        centres = self.centres(X, kernel, labels)
        if self.nufft:
            return NufftDesign(X, kernel, centres), labels[centres]
        return KernelDesign(X, kernel, centres, cache_size=self.memory), labels[centres]

    def among(self, design: DenseDesign) -> DenseDesign:
        """Some of the columns of a design."""
        chosen = self.columns(design.n_candidates, design.indices)
        return DenseDesign(
            design.matrix[:, chosen], design.indices[chosen], design.column_scale[chosen]
        )

    def centres(self, X: Any, kernel: Kernel, labels: np.ndarray) -> np.ndarray:
        """Different rows that carry a function; `labels` are their numbers for the user."""
        if isinstance(X, np.ndarray) and self.all_rows(len(X)):
            return different_rows(X)
        chosen = self.rows(X, kernel, labels)
        return chosen[different_rows(X[chosen])]

    def all_rows(self, n: int) -> bool:
        """Whether every row carries a function."""
        if is_text(self.wanted, "auto"):
            return self.everything or n <= self._number(n)
        return is_text(self.wanted, "all")

    def rows(self, X: Any, kernel: Kernel, labels: np.ndarray) -> np.ndarray:
        """Rows that carry a function where not all do; `labels` are their numbers for the user."""
        n = len(X)
        if is_text(self.wanted, "auto"):
            return self._draw(n, self._number(n))
        if is_text(self.wanted, "pivots"):
            # The factor of the pool takes as much memory as it may.
            among = self._draw(n, max(self.many, int(self.memory * 1e6 / (8 * self.many))))
            Z = X[among]
            _, pivots = pivoted_cholesky(
                kernel.diagonal(Z), lambda j: kernel.bind(Z[j])(Z), self.many
            )
            return np.sort(among[pivots])
        return self.columns(n, labels)

    def columns(self, n: int, labels: np.ndarray | None = None) -> np.ndarray:
        """The same among n columns, as positions."""
        if isinstance(self.wanted, str):
            if self.wanted == "pivots":
                raise ValueError("candidates='pivots' needs a kernel evaluated on rows of X.")
            return np.arange(n)
        if is_whole(self.wanted):
            return self._draw(n, int(self.wanted))
        labels = np.arange(n) if labels is None else labels
        wanted = np.asarray(self.wanted)
        if wanted.ndim != 1 or wanted.dtype.kind not in "iu" or len(wanted) == 0:
            raise ValueError(
                "candidates must be 'auto', 'all', 'pivots', a number of candidates, or an array "
                f"of their indices; got an array of {wanted.dtype} of shape {wanted.shape}."
            )
        if wanted.min() < 0 or wanted.max() > labels[-1]:
            raise ValueError(
                f"candidates must lie between 0 and {labels[-1]}, got {wanted.min()} to "
                f"{wanted.max()}."
            )
        return np.flatnonzero(np.isin(labels, wanted))

    def _number(self, n: int) -> int:
        return max(self.many, min(self.whole, int(np.sqrt(_PRODUCTS / max(n, 1)))))

    def _draw(self, n: int, size: int) -> np.ndarray:
        if size >= n:
            return np.arange(n)
        return np.sort(self.rng.choice(n, size, replace=False))


def is_whole(value: Any) -> bool:
    """Whether this is a whole number."""
    return is_number(value) and bool(np.isfinite(value)) and int(value) == value
