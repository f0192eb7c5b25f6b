"""What a fitted forward selection keeps of its path: enough for a model of any of its lengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..designs import (
    CentredBasis,
    CentredDesign,
    DenseDesign,
    Design,
    KernelBasis,
    KernelDesign,
    unwrapped,
)
from ..posterior import Posterior, ResidualProcess
from ..solvers.forward.path import Noise, Path, best_terms
from ..solvers.forward.refit import gp_refit
from ._base import Problem


class Model(NamedTuple):
    """The first few terms of a path, in the units of the solver."""

    posterior: Posterior
    lam: np.ndarray  # prior precision of each weight times the noise variance
    regularization: float
    residual: ResidualProcess | None
    limit: str  # of `Refit`


@dataclass(frozen=True)
class Chosen:
    """The path of a fit as a triangle, and what else a model of its first terms needs.

    `kernel_matrix` is k between the functions of the path, where a Gaussian-process prior is
    wanted; `column_scale` what the columns were multiplied by against overflow.
    """

    path: Path
    problem: Problem  # of that triangle
    noise: Noise
    regularization: float
    kernel_matrix: np.ndarray | None
    column_scale: float
    n_rows: int  # different ones, where that matters

    @classmethod
    def of(
        cls, problem: Problem, path: Path, noise: Noise, lam: float, order: Any, gp: bool
    ) -> Any:
        """From a problem and the columns of it that were chosen, in order."""
        rows = problem.candidates[np.asarray(order, dtype=np.intp)]
        scale = column_scale(problem.design)
        K = None
        if gp and len(path) > 0:
            chosen = functions(path.design.basis(np.arange(len(path))))
            if isinstance(chosen, KernelBasis):
                K = chosen(chosen.centres)
            else:
                K = problem.X[np.ix_(rows, rows)] * scale
            K = 0.5 * (K + K.T)
        small = Problem(
            path.design,
            path.t,
            problem.offset,
            problem.target_scale,
            rows,
            problem.X[:0],
            problem.kernel,
        )
        return cls(path, small, noise, lam, K, scale, _distinct_rows(problem.design, len(path)))

    def model(self, k: int, learn: bool) -> Model | None:
        """The first k terms; `learn` their regulariser. None if the kernel matrix is indefinite."""
        lam = self.regularization
        if learn and k > 0:
            lam = best_terms(self.path, self.noise, k)[0]
        if self.kernel_matrix is None or k == 0:
            posterior = self.path.posterior(k, lam, self.noise)
            return Model(posterior, np.full(k, lam), lam, None, "")
        refit = gp_refit(self.path, k, self.kernel_matrix, self.noise)
        if refit is None:
            return None
        residual, chosen = None, functions(self.problem.design.basis(np.arange(k)))
        if 2 * k > self.n_rows and isinstance(chosen, KernelBasis):
            amplitude = float(refit.posterior.noise_variance) / refit.lam
            amplitude *= self.problem.target_scale
            amplitude *= self.problem.target_scale
            residual = ResidualProcess(chosen, refit.L, amplitude)
        lams = refit.lam * np.einsum("ij,ij->i", refit.L, refit.L)
        return Model(refit.posterior, lams, lam, residual, refit.limit)

    def predictions(self, X: np.ndarray) -> np.ndarray:
        """Of the first 0, 1, 2, ... terms under the prior of the selection, a column for each."""
        Phi = self.problem.design.basis(np.arange(len(self.path)))(X)
        values = self.path.predictions(Phi, self.regularization)
        return (values + self.problem.offset) * self.problem.target_scale


def _distinct_rows(design: Design, n_terms: int) -> int:
    """How many rows differ: not counted where they are many more than twice the terms.

    Rows read in blocks are taken to differ; those without weight have no part.
    """
    base = unwrapped(design)
    if 2 * n_terms <= base.n_candidates or not isinstance(base, KernelDesign):
        return base.n_rows
    if isinstance(base.X, np.ndarray):
        return len(np.unique(base.X, axis=0))
    weighted = design.base if isinstance(design, CentredDesign) else design
    return int(np.count_nonzero(weighted.unit))


def functions(basis: Any) -> Any:
    """The functions of a basis before they were centred."""
    return basis.functions if isinstance(basis, CentredBasis) else basis


def column_scale(design: Design) -> float:
    """What all columns of a design were multiplied by against overflow."""
    base: Any = design
    while hasattr(base, "base"):
        base = base.base
    return float(base.scale[0]) if isinstance(base, DenseDesign) and len(base.scale) else 1.0
