"""The exact Gaussian process of all rows.

With K the kernel matrix of the rows, D their weights, amplitude a and lam = sigma2/a,

    y ~ N(b, a M),   M = K + lam D^-1 = LL',   b flat,

so that with q = M^-1 1 and s = 1'q the mean at x is b + k(x)'alpha, b = q'y/s and
alpha = M^-1 (y - b), and its variance
a [k(x, x) - |L^-1 k(x)|^2] + (a/s) (1 - k(x)'q)^2. The first part is that of
`posterior.ResidualProcess` with this L, and the second that of one weight along q.

lam maximises the evidence times a prior (`Noise.log_posterior`): near the lam that was learnt with
the length scales, if they were; else over its whole range for up to `_SEARCHED` rows, and for more
rows near the best lam of so many of them. That takes about five factorisations of n^3/3. Of more
than `_MOST_SEARCHED` rows lam is the best one of so many of them, drawn at random, and all rows are
factored once. K is stored in the lower triangle of one n x n array and factored in the upper one.
Several targets share K and lam; each has its own amplitude and noise variance.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf, dtrtri, strtri

from ...linalg.scalar import maximise
from ...posterior import Dense, Posterior
from ..forward.gp_prior import FLOOR, SMALLEST_REFIT
from ..forward.path import search_lam
from ..noise import Noise, PerTarget, squares

_SEARCHED, _MOST_SEARCHED = 300, 1500
_BLOCK = 128
_SINGLE = 1e-12, 1e12  # diagonals of triangles that float32 inverts
_NEAR = 3e-2  # accuracy of log lam, which is known to sqrt(2/n) at best
_LARGEST = 1e3  # largest lam, over n times the mean diagonal of K


class Process(NamedTuple):
    """A Gaussian process; `variance` is that of the function at the rows."""

    posterior: Posterior
    lam: float
    L: np.ndarray  # lower triangle
    amplitude: PerTarget
    variance: np.ndarray  # of the shape of y
    limit: str  # as in `gp_prior.Prior`


class _Factor(NamedTuple):
    U: np.ndarray
    q: np.ndarray
    along: float  # 1'q, 0 without an intercept
    b: PerTarget
    white: np.ndarray  # L^-1 (y - b)
    value: float  # log evidence
    height: float  # and prior of the noise variance


class _Matrix:
    """The kernel matrix of some rows, and the evidence of its process at any lam."""

    def __init__(
        self, K: np.ndarray, y: np.ndarray, weight: np.ndarray, intercept: bool, noise: Noise
    ) -> None:
        self.K, self.y, self.weight, self.intercept, self.noise = K, y, weight, intercept, noise
        self.diagonal = np.diagonal(K).copy()
        self.last: tuple[float, _Factor | None] = (np.nan, None)

    def at(self, lam: float) -> _Factor | None:
        """Return the factor at lam; None where M is not positive definite in float64."""
        if self.last[0] != lam:
            self.last = lam, self._factor(lam)
        return self.last[1]

    def _factor(self, lam: float) -> _Factor | None:
        K, n = self.K, len(self.y)
        for first in range(0, n, _BLOCK):
            block = slice(first, min(first + _BLOCK, n))
            K[: block.start, block] = K[block, : block.start].T
            corner = np.tril(K[block, block], -1)
            K[block, block] = corner + corner.T
        K.flat[:: n + 1] = self.diagonal + lam / self.weight
        U, info = dpotrf(K, lower=False, clean=False, overwrite_a=True)
        if info != 0:
            return None
        self.K = U
        b: PerTarget = 0.0
        q, along = np.zeros(n), 0.0
        log_det = 2.0 * float(np.sum(np.log(np.diagonal(U))))
        log_det -= float(np.sum(np.log(lam / self.weight)))
        if self.intercept:
            ones = solve_triangular(U, np.ones(n), trans="T", check_finite=False)
            q, along = solve_triangular(U, ones, check_finite=False), float(ones @ ones)
            b = (q @ self.y) / along
            log_det += float(np.log(along * lam / np.sum(self.weight)))
        white = solve_triangular(U, self.y - b, trans="T", check_finite=False)
        S = lam * squares(white)
        value, height = self.noise.log_evidence(S, log_det), self.noise.log_posterior(S, log_det)
        return _Factor(U, q, along, b, white, float(value), height)

    def height(self, log_lam: float) -> float:
        """Return log evidence plus log prior; minus infinity where M is not positive definite."""
        factor = self.at(float(np.exp(log_lam)))
        return -np.inf if factor is None else factor.height


@np.errstate(over="ignore", invalid="ignore")  # coefficients that overflow are refused
def exact_process(
    K: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    intercept: bool,
    noise: Noise,
    rng: np.random.Generator,
    start: float | None = None,
) -> Process | None:
    """Return the process of highest evidence; None if K is indefinite.

    Parameters
    ----------
    K : array of shape (n, n), column-contiguous
        Overwritten.
    y : array of shape (n,) or (n, n_outputs)
    weight : array of shape (n,)
    intercept : bool
    noise : Noise
        Of these rows; its floor is raised as in `gp_prior`.
    rng : Generator
        Draws the rows that are searched first.
    start : float, optional
        A lam near the best one, from which the search begins; without it some rows are searched.
    """
    n, level = len(y), float(np.mean(np.diagonal(K)))
    centred = y - np.average(y, axis=0, weights=weight) if intercept else y
    floor = FLOOR * (weight @ centred**2) / max(noise.n, 1.0)
    noise = replace(noise, floor=np.maximum(noise.floor, floor)[()])
    low = SMALLEST_REFIT * level
    matrix = _Matrix(K, y, weight, intercept, noise)
    ends = low, _LARGEST * level * n
    if start is None and n <= _SEARCHED:
        log_lam = search_lam(matrix.height, *ends)[0]
    else:
        if start is None:
            start = float(np.exp(search_lam(_some_rows(matrix, _SEARCHED, rng).height, *ends)[0]))
        log_lam = float(np.log(start))
        if n > _MOST_SEARCHED:
            log_lam = _near(_some_rows(matrix, _MOST_SEARCHED, rng), log_lam, ends)
        # Nearly equal rows may have a singular matrix where some of them have not.
        if n <= _MOST_SEARCHED or matrix.height(log_lam) == -np.inf:
            log_lam = _near(matrix, log_lam, ends)
    lam = float(np.exp(log_lam))
    factor = matrix.at(lam)
    if factor is None:
        return None
    sigma2 = noise.best(lam * squares(factor.white))[()]
    amplitude = sigma2 / lam
    mean = solve_triangular(factor.U, factor.white, check_finite=False)
    L = factor.U.T
    inner = _inverse_diagonal(factor.U)
    root, scale, centre = np.zeros((n, 0)), np.ones_like(amplitude)[()], None
    if intercept:
        inner -= factor.q**2 / factor.along
        root, scale = factor.q[:, None], amplitude / factor.along
        centre = factor.q / float(factor.q @ factor.q)  # 1 along q
    share = lam / weight
    offset = factor.b if centre is None else factor.b + centre @ mean
    posterior = Posterior(mean, Dense(root, scale), sigma2, factor.value, offset, 0.0, centre)
    limit = "noise" if np.any(sigma2 <= 1.001 * noise.floor) and noise.fixed is None else ""
    if not limit and lam <= 1.001 * low:
        limit = "amplitude"
    variance = np.multiply.outer(share * np.maximum(1.0 - share * inner, 0.0), amplitude)
    return Process(posterior, lam, L, amplitude, variance, limit)


def _near(matrix: _Matrix, log_lam: float, ends: tuple[float, float]) -> float:
    """Return the best log lam near one that is known."""
    low, high = np.log(ends)
    return maximise(
        matrix.height, low, high, start=log_lam, step=0.7, tol=_NEAR, max_evaluations=15
    )[0]


def _some_rows(matrix: _Matrix, size: int, rng: np.random.Generator) -> _Matrix:
    """Return the matrix of a random subset of rows."""
    noise, n = matrix.noise, len(matrix.y)
    rows = np.sort(rng.choice(n, size, replace=False))
    weight = matrix.weight[rows]
    lost = noise.n - (float(np.sum(weight)) - matrix.intercept)
    K = np.asfortranarray(matrix.K[np.ix_(rows, rows)])
    noise = replace(noise, n=noise.n - lost)
    return _Matrix(K, matrix.y[rows], weight, matrix.intercept, noise)


def _inverse_diagonal(U: np.ndarray) -> np.ndarray:
    """Return the diagonal of (U'U)^-1 from the upper triangle U.

    For many rows in float32, in half of the time. The inverse of a triangle has small errors even
    if it is ill-conditioned: at most 8e-6 of the diagonal, for 2,000 rows of Gaussian and Matern
    kernels and noise ratios of 1e-8 to .1.
    """
    ends = np.min(np.diagonal(U)), np.max(np.diagonal(U))
    single = len(U) > _MOST_SEARCHED and _SINGLE[0] < ends[0] and ends[1] < _SINGLE[1]
    # What is below the diagonal stays there.
    inverse, _ = strtri(U.astype(np.float32, order="F"), overwrite_c=1) if single else dtrtri(U)
    out = np.empty(len(U))
    for first in range(0, len(U), _BLOCK):
        rows = slice(first, first + _BLOCK)
        corner, right = np.triu(inverse[rows, rows]), inverse[rows, rows.stop :]
        out[rows] = np.einsum("ij,ij->i", corner, corner) + np.einsum("ij,ij->i", right, right)
    return out
