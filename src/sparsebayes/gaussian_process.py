"""Gaussian processes of all training rows, from a problem to a fit.

`exact_fit` factorises the kernel matrix of all rows. It knows no estimator.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .designs import KernelBasis
from .designs._base import row_slices
from .fitting import Fit, Note, gaussian_fit
from .posterior import LeftOut, ResidualProcess
from .problem import Problem, Units
from .selection import limit_warning, with_unused_rows
from .solvers.forward.gp_prior import gp_root
from .solvers.gp.exact import exact_process
from .solvers.noise import Noise
from .solvers.run import StopReason


def exact_fit(problem: Problem) -> Fit:
    """Return the Gaussian process of all rows of positive weight."""
    data, kernel, scale = problem.rows, problem.kernel_function, problem.units.target
    rows = data.used
    X, y = data.X[rows], data.y[rows]
    weight = data.likelihood_weight
    weight = np.ones(len(rows)) if weight is None else weight[rows]
    assert kernel is not None
    basis = KernelBasis(kernel, X)
    K = np.empty((len(rows), len(rows)), order="F")
    for block in row_slices(len(rows), 512):
        K[block] = basis(X[block])
    if not problem.design.stationary and gp_root(K) is None:
        raise not_positive_definite(problem)
    level = K.diagonal().copy()
    noise = Noise.from_design(problem.design, problem.t, problem.solver_noise)
    rng = np.random.default_rng(problem.seed)
    process = exact_process(K, y / scale, weight, problem.fit_intercept, noise, rng)
    if process is None:
        raise not_positive_definite(problem)
    notes: tuple[Note, ...] = ()
    if process.limit and problem.noise_variance is None:
        message = limit_warning(process.limit, len(rows), True, problem.spec.learns)
        notes = (Note(message, ConvergenceWarning),)
    loo = LeftOut(
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
        added=ResidualProcess(basis, process.L, process.amplitude * scale * scale),
        loo=loo,
        stop_reason=StopReason.ALL_CANDIDATES,
        notes=notes,
    )
    return replace(fit, loo=with_unused_rows(fit.model, loo, rows, data))


def not_positive_definite(problem: Problem) -> ValueError:
    """Return the error of a kernel that is no covariance function."""
    return ValueError(
        f"The matrix of kernel={problem.spec.family!r} is not positive definite, so there is no "
        "Gaussian process with this covariance: use ForwardRegressor with refit=None."
    )
