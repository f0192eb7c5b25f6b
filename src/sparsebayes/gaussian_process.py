"""Gaussian processes of all training rows, from a problem to a fit.

`exact_fit` factorises the kernel matrix of all rows. `inducing_fit` selects so many functions that
they capture the process up to a share of the noise (`selection`), and `local_fit` restores what few
functions miss from the training rows around each new one. None of them knows an estimator.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.exceptions import ConvergenceWarning

from .data import Data
from .designs import CentredBasis, KernelBasis
from .fitting import Fit, Note, gaussian_fit
from .kernels import Kernel, is_option
from .linalg import pivoted_cholesky
from .posterior import Dense, LooPredictions, Posterior, ResidualProcess
from .predict import LocalModel
from .problem import Problem, Units
from .rows import row_slices
from .selection import (
    FIRST_TERMS,
    ManyCandidates,
    PathSettings,
    Selected,
    cheaper_search,
    limit_warning,
    path_fit,
    search,
)
from .solvers.forward.gp_prior import Prior, gp_root
from .solvers.forward.routes import gram_seconds
from .solvers.gp.exact import exact_process
from .solvers.gp.neighbour_scales import LocalFit, neighbour_process
from .solvers.gp.neighbours import UniqueRows
from .solvers.noise import Noise
from .solvers.run import StopReason

# Variance of a Gaussian process that its functions do not capture, over that of the noise: below
# this share the functions stand for the process.
RESIDUAL_SHARE = 0.1
# A path grows by the factor _GROWTH while its last tenth gains a thousandth of a nat for each row
# and the Gram matrix takes no more than _SECONDS. On California (10,000 rows) the last tenth of 300
# terms gains .0034, and up to 1,200 terms lower the error by 2 %; on Friedman#1, abalone, concrete
# and energy neither the last tenth nor further terms gain anything. Terms selected one by one also
# follow the noise, which neither evidence nor leave-one-out residuals show: on California with a
# rough kernel 95 % intervals cover 71 % with 700 terms for 2,000 rows and 93 % with 900 for 10,000.
# So there are _ROWS_PER_TERM rows for each term, and a longer path must be longer by a quarter.
_ROWS_PER_TERM, _LONGER = 20, 1.25
_GROWTH, _SECONDS = 10.0 / 3.0, 10.0
_SAMPLE_ROWS = 2_000  # rows at which the residual variance of a process is measured
_FEW_ROWS = 3_000  # rows up to which a path of 1,000 terms takes seconds
_LOO_ROWS = 4_000  # leave-one-out rows of a local process that measure tails and intervals


# All rows.


def exact_fit(problem: Problem) -> Fit:
    """Return the Gaussian process of all rows of positive weight."""
    data, kernel, scale = problem.rows, problem.kernel_function, problem.units.target
    rows = data.used
    X, y = data.X[rows], data.y[rows]
    weight = data.likelihood_weight
    weight = np.ones(len(rows)) if weight is None else weight[rows]
    assert kernel is not None
    basis = KernelBasis(kernel, X)
    problem.reporter.say(f"computing the kernel matrix of {len(rows)} rows")
    K = np.empty((len(rows), len(rows)), order="F")
    for block in row_slices(len(rows), 512):
        # K is symmetric, and what is above its diagonal is not read.
        K.T[block, block.start :] = basis.take(slice(block.start, None))(X[block])
    if not problem.design.stationary and gp_root(K) is None:
        raise not_positive_definite(problem)
    level = K.diagonal().copy()
    noise = Noise.from_design(problem.design, problem.t, problem.solver_noise)
    rng = np.random.default_rng(problem.seed)
    learnt = problem.choice.noise_to_signal or None
    problem.reporter.say(f"factoring the kernel matrix of {len(rows)} rows", len(rows))
    process = exact_process(K, y / scale, weight, problem.fit_intercept, noise, rng, learnt)
    if process is None:
        raise not_positive_definite(problem)
    notes: tuple[Note, ...] = ()
    if process.limit and problem.noise_variance is None:
        message = limit_warning(process.limit, len(rows), True, problem.spec.learns)
        notes = (Note(message, ConvergenceWarning),)
    with np.errstate(over="ignore"):  # an infinite variance is refused by the fit
        amplitude = process.amplitude * scale * scale
        loo = LooPredictions(
            ((process.lam / weight) * (process.posterior.mean * scale).T).T,
            process.variance * scale * scale,
            y,
            weight,
            process.posterior.noise_variance * scale * scale,
        )
    fit = gaussian_fit(
        process.posterior,
        process.lam * level,
        basis,
        rows,
        units=Units(scale, noise.n),
        kernel=problem.choice,
        data=data,
        added=ResidualProcess(basis, process.L, amplitude),
        loo=loo,
        stop_reason=StopReason.ALL_CANDIDATES,
        notes=notes,
    )
    return replace(fit, loo=with_unused_rows(fit.model, loo, rows, data))


def not_positive_definite(problem: Problem) -> ValueError:
    """Return the error of a kernel that is no covariance function."""
    return ValueError(
        f"The matrix of kernel={problem.spec.family!r} is not positive definite, so it is not "
        "a covariance function. Use ForwardRegressor with refit=None."
    )


def with_unused_rows(
    model: Any, loo: LooPredictions, rows: np.ndarray, data: Data
) -> LooPredictions:
    """Return `loo` of these rows with the others, of weight zero, predicted as new ones."""
    unused = np.setdiff1d(np.arange(data.n_rows), rows)
    if len(unused) == 0:
        return loo
    y = data.y[unused]
    mean, spread, _ = model.moments(data.X[unused])
    others = LooPredictions(y - mean, spread, y, np.zeros(len(unused)), loo.fitted_noise)
    back = np.argsort(np.concatenate([rows, unused]))
    names = ("gap", "spread", "y", "weight")
    both = {a: np.concatenate([getattr(loo, a), getattr(others, a)])[back] for a in names}
    return loo._replace(**both)


# As many functions as capture the process.


def inducing_fit(
    problem: Problem,
    settings: PathSettings,
    many: ManyCandidates,
    *,
    grows: bool,
    pivots: bool,
) -> Fit:
    """Return the fit of selected functions that capture the process.

    Those of highest evidence are kept, or more of the path where these leave more of the variance
    of the process than a tenth of the noise. With `grows` the path may be longer than `max_terms`;
    with `pivots` few candidates may stand for all rows where they capture the process.
    """
    first = problem.previous is None
    problem, settings, many = cheaper_search(problem, settings, many)
    if pivots and first:
        problem = _pivots(problem, many) or problem
    longer = partial(_longer, many=many) if grows and first else None
    former = None if problem.previous is None else problem.previous.extra["path"]
    gram_path = former is None or former.path.rounding > 0.0
    selected = search(problem, settings, longer=longer, gram_path=gram_path)
    fit, short = _process_terms(selected)
    problem = selected.problem
    n_path, n_rows = len(selected.path.path), len(problem.rows.used)
    if longer is not None and short and 2 * n_path < n_rows <= _FEW_ROWS:
        limit = int(_GROWTH * FIRST_TERMS)
        larger = _larger(problem, n_path, limit, many)
        if larger is not None:
            scores = selected.state.scores if larger is problem else None
            settings = replace(settings, max_terms=limit)
            start = selected.path.regularization
            fit, _ = _process_terms(search(larger, settings, start, scores, gram_path=True))
    return fit


def _process_terms(selected: Selected) -> tuple[Fit, bool]:
    """Return the fit of as many terms of a path as capture the process, or of highest evidence.

    The second value says whether the whole path is too short for the process.
    """
    problem, path = selected.problem, selected.path
    if not path.gp or selected.best == 0 or not problem.design.stationary:
        fit = path_fit(selected)
        if len(fit.active) and not fit.extra["path"].gp:
            raise not_positive_definite(problem)
        return fit, False
    problem.reporter.say(f"prior of the Gaussian process at {len(path.path)} functions")
    prior = path.prior(len(path.path))
    if prior is not None and prior.lam < prior.white.smallest_lam:
        selected = selected.remeasure()
        path = selected.path
        prior = path.prior(len(path.path))
    if prior is None:
        raise not_positive_definite(problem)
    n_terms, n_path = enough_terms(selected, prior), len(path.path)
    short = n_terms > n_path
    n_terms = min(n_terms, n_path)
    if n_terms <= selected.best:
        return path_fit(selected, prior=prior), short
    reason = StopReason.MAX_TERMS if short else StopReason.GAUSSIAN_PROCESS
    return path_fit(selected, n_terms, reason, prior), short


def enough_terms(selected: Selected, prior: Prior) -> int:
    """Return how many terms of a path capture their process up to a tenth of the noise.

    The result is one more than all terms where that is not enough. The residual variance of the
    process, of unit variance, falls with the number of terms, and the triangle of the kernel matrix
    has it for all numbers at once. `prior` is that of all terms.
    """
    path, data = selected.path.path, selected.problem.rows
    values = path.design.basis(np.arange(len(path))).functions(data.take(_sample(data)))
    T = solve_triangular(prior.L, values.T, lower=True, check_finite=False)
    residual = 1.0 - np.cumsum(np.mean(T * T, axis=1))
    sufficient = np.flatnonzero(residual <= RESIDUAL_SHARE * prior.lam)
    return int(sufficient[0]) + 1 if len(sufficient) else len(path) + 1


def _sample(data: Data) -> np.ndarray:
    """Return the rows at which the residual variance of a process is measured."""
    rows = data.used
    return rows[:: 1 + len(rows) // _SAMPLE_ROWS]


def _longer(problem: Problem, limit: int, many: ManyCandidates) -> tuple[Problem, int] | None:
    """Return the problem of a path longer than `limit`, and its length; None without one."""
    n_path = min(limit, problem.design.n_candidates)
    longest = min(int(_GROWTH * limit), len(problem.rows.used) // _ROWS_PER_TERM)
    if longest < _LONGER * n_path:
        return None
    larger = _larger(problem, n_path, longest, many)
    return None if larger is None else (larger, longest)


def _larger(problem: Problem, n_path: int, limit: int, many: ManyCandidates) -> Problem | None:
    """Return the problem for `limit` terms in place of `n_path`; None where it is too large."""
    design, n_candidates = problem.design, many.n_desired(limit)
    if limit <= n_path or n_candidates > many.largest:
        return None
    if design.n_candidates >= min(n_candidates, len(problem.rows.used)):
        return problem if n_path < design.n_candidates else None
    if gram_seconds(design, n_candidates) > _SECONDS:
        return None
    larger = replace(problem, candidates=many.choice(limit))
    return larger if n_path < larger.design.n_candidates else None


def _pivots(problem: Problem, many: ManyCandidates) -> Problem | None:
    """Return the problem with few candidates that capture a process; None where it takes many.

    Pivots do not depend on the target, and capture more of the process than any path. Where few of
    them leave less variance than the noise hides, rows drawn at random have nothing to add.
    """
    data, lam, kernel = problem.rows, problem.choice.noise_to_signal, problem.kernel_function
    if lam <= 0.0 or len(data.used) <= many.number(FIRST_TERMS):
        return None
    assert kernel is not None
    rows = _sample(data)
    pivots, residual = process_pivots(kernel, data.take(rows), FIRST_TERMS, lam)
    if residual > RESIDUAL_SHARE * lam:
        return None
    return replace(problem, candidates=many.choice(FIRST_TERMS, rows[pivots]))


def process_pivots(
    kernel: Kernel, X: np.ndarray, most: int, lam: float
) -> tuple[np.ndarray, float]:
    """Return rows of X whose functions capture the process as far as the noise lets it be seen.

    There are at most `most` of them. The second value is the mean residual variance of a process of
    variance 1 whose noise has variance `lam`.
    """
    F, pivots = pivoted_cholesky(
        kernel.diagonal(X),
        lambda j: kernel.bind(X[j])(X),
        most,
        RESIDUAL_SHARE * RESIDUAL_SHARE * lam,
    )
    return pivots, 1.0 - float(np.einsum("ij,ij->", F, F)) / len(X)


# The Gaussian process around each new row.


def local_fit(
    problem: Problem, fit: Fit, neighbours: Any, n_jobs: int | None, all_rows: bool
) -> Fit:
    """Return the Gaussian process of all rows, local around each new one.

    `fit` is that of few functions, the global part; it is returned itself where they capture the
    process and ``neighbours="auto"``. `all_rows` requests leave-one-out predictions of every row.
    """
    data = problem.rows.loaded()
    scale, rows = problem.units.target, data.used
    X, y = np.asarray(data.X), data.y
    weight = data.row_weight
    precision = None if data.precision is None else data.precision[rows]
    if len(rows) < data.n_rows:
        X, y, weight = X[rows], y[rows], weight[rows]
    path, k = fit.extra["path"], len(fit.active)
    kernel: Any = problem.kernel_function
    chosen: Any = KernelBasis(kernel, X[:0])
    L: Any = np.zeros((0, 0))
    if k and path.kernel_matrix is not None:
        chosen = path.path.design.basis(np.arange(k)).functions
        L = gp_root(path.kernel_matrix[:k, :k])
    single = 8e-6 * len(y) * (X.shape[1] + k) > problem.cache_size
    all_rows = all_rows or precision is not None
    sampled = len(y) > _LOO_ROWS and not all_rows and len(y) == data.n_rows
    search = neighbour_process(
        chosen,
        L,
        UniqueRows.from_rows(X, y / scale, weight, single, precision),
        neighbours=neighbours,
        intercept=problem.fit_intercept,
        noise=path.noise,
        scale=scale,
        rng=np.random.default_rng(problem.seed),
        n_loo_rows=_LOO_ROWS if sampled else None,
        n_jobs=n_jobs,
        reporter=problem.reporter,
    )
    notes = fit.notes
    if search.limit and problem.noise_variance is None:
        message = limit_warning(search.limit, len(y), 2 * len(y) > path.n_rows, problem.spec.learns)
        notes = (*notes, Note(message, ConvergenceWarning))
    notes = (*notes, *(Note(message, ConvergenceWarning) for message in search.notes))
    process, attributes = search.process, dict(fit.attributes)
    attributes["neighbours_"] = min(process.m, len(process.rows))
    if is_option(neighbours, "auto"):
        variance = float(np.average((y - np.average(y, weights=weight)) ** 2, weights=weight))
        attributes["neighbours_search_"] = _search_table(search, variance / scale / scale)
        if search.residual_variance <= RESIDUAL_SHARE * process.lam:
            attributes["neighbours_"] = 0
            return replace(fit, attributes=attributes, notes=notes)
    global_fit = _global_part(problem, fit, process)
    model = LocalModel(global_fit.model.basis, global_fit.posterior, process, n_jobs)
    loo = search.loo if sampled else with_unused_rows(model, search.loo, rows, data)
    return replace(
        fit,
        model=model,
        weight_precision=global_fit.weight_precision,
        active=global_fit.active,
        noise=global_fit.noise,
        loo=loo,
        attributes=attributes,
        extra={**fit.extra, "loo_of_sample": sampled},
        notes=notes,
    )


def _search_table(search: LocalFit, variance: float) -> dict[str, Any]:
    """Return the numbers of neighbours that were compared, for a target of this variance."""
    return {
        "neighbours": np.array(search.numbers),
        "loo_log_density": np.array(search.densities) + 0.5 * np.log(variance or 1.0),
        "residual_variance_ratio": search.residual_variance / search.process.lam,
    }


def _global_part(problem: Problem, fit: Fit, process: Any) -> Fit:
    """Return the fit of the functions alone, all else taken as noise of its own at each row."""
    part, a = process.fit, process.amplitude
    n, k = float(np.sum(process.rows.weight)), len(part.mean)
    basis: Any = process.functions
    if problem.fit_intercept:
        basis, n = CentredBasis(basis, part.function_means), n - 1.0
    log_evidence = -0.5 * (n * np.log(2.0 * np.pi * a) + part.log_det + part.square / a)
    posterior = Posterior(
        part.whitening @ part.mean,
        Dense(part.whitening * np.sqrt(part.variance), a),
        process.lam * a,
        float(log_evidence),
        part.offset,
        part.offset_variance * a,
    )
    # The prior precision of the weights is the kernel matrix, whose diagonal is one.
    lams = np.full(k, process.lam)
    active = fit.extra["path"].active[:k]
    return gaussian_fit(
        posterior,
        lams,
        basis,
        active,
        units=Units(process.scale, n),
        kernel=problem.choice,
        data=None,
        stop_reason=fit.stop_reason,
    )
