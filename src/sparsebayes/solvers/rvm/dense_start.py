"""The dense start of the RVM: MacKay steps on all m candidates at once, in p dimensions.

With the candidates as columns R (p x m) and the target as z (p), both from `designs.lowrank`, and
M = I + R Lam^-1 R' = LL', T = L^-1 R,

    S_j = |T_j|^2,  Q_j = T_j' L^-1 z,  E = |L^-1 z|^2 + (squared length of t outside),

one MacKay step with the noise at its best value sigma2 = E/n is lam_j <- lam_j S_j sigma2 / Q_j^2,
at a cost of p^2 m: no m x m array.

All starts have one lam for all columns. RR' = V diag(e) V' gives the evidence of every shared lam,
and in the coordinates V' the first step of each start in closed form, since M is diagonal there:
all starts take it together, a block of candidates at a time, and no p x m array is kept.
Directions with e far below lam are noise to the model and are left out: half of p or more. After
the first step the columns that promise most go on, a few times p; then S_j/lam_j (how well the
data determine weight j) under 1e-3 drops a column for good.

Several outputs (columns of z) share the lam and have each its own noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh, get_blas_funcs, get_lapack_funcs

from ..._array import Array, PerTarget, asarray_like, is_torch, namespace, squared_lengths, to_numpy
from ...callbacks import Reporter
from ...linalg.factor import lower_solve

_STEPS = 8  # 15 and 25 end at the same evidence
_DROP = 1e-3
_PROMISING = 4  # columns per dimension after the first step
_NOISE = 1e-3  # directions with e/lam below this are left out
_GRID = np.logspace(-15.0, 1.0, 65)  # shared lam over the largest e
# Candidates above which the lam of a start are rounded to powers of 4. Those of float32 and float64
# differ by 1e-5 and less; among the many decisions of a long search one then fell otherwise, in six
# of eight fits of 2,500 to 10,000 rows, and the search ended elsewhere. Rounded, they are the same.
_ROUNDED_ABOVE = 1500
_BLOCK = 2**18  # numbers of a block of candidates
_FEW = 2**21  # numbers of all candidates up to which they are kept, in float32
_TINY = np.finfo(np.float64).tiny


class Rotated(NamedTuple):
    """The candidates in the eigenvectors of RR', the largest first."""

    F: Array  # where the rows are
    turn: np.ndarray  # times F: the candidates in these coordinates
    z: np.ndarray
    e: np.ndarray
    residual: np.ndarray  # squared length of the target outside the columns
    n: float
    sigma2: PerTarget | None  # None: eliminated
    floor: PerTarget  # smallest noise variance
    lam: float  # shared lam of best evidence

    def leading(self, p: int) -> Rotated:
        """Return the problem along the first p directions."""
        residual = self.residual + np.sum(self.z[p:] ** 2, axis=0)
        return self._replace(turn=self.turn[:p], z=self.z[:p], e=self.e[:p], residual=residual)

    def columns(self, p: int, idx: slice | np.ndarray, single: bool = False) -> Array:
        """Return the candidates `idx` along the first p directions."""
        F = _single(self.F[:, idx]) if single else self.F[:, idx]
        return asarray_like(F, np.ascontiguousarray(self.turn[:p])) @ F


def rotate(
    F: Array,
    z: np.ndarray,
    tt: PerTarget,
    n: float,
    sigma2: PerTarget | None,
    floor: PerTarget,
    c: np.ndarray | None = None,
    gram: np.ndarray | None = None,
) -> Rotated:
    """Return the eigenvectors of RR' and the best shared lam, for R = cF.

    Parameters
    ----------
    F : array of shape (p, m)
    z : array of shape (p,) or (p, n_outputs)
    tt : float or array of shape (n_outputs,)
        Squared length of the whole target.
    n : float
    sigma2 : None, float or array of shape (n_outputs,)
        Noise variance; None eliminates it.
    floor : float or array
        Smallest noise variance.
    c : array of shape (p, p), optional
        The identity by default.
    gram : array of shape (p, p), optional
        FF', where it is known.
    """
    gram = to_numpy(F @ F.T) if gram is None else gram
    e, V = eigh(gram if c is None else c @ gram @ c.T, driver="evd", check_finite=False)
    e, V = np.maximum(e[::-1], 0.0), V[:, ::-1]
    z = V.T @ z.reshape(len(z), -1)
    squares = z * z
    residual = np.maximum(tt - squares.sum(axis=0), 0.0)
    lam, _ = shared_lam(e, squares, residual, n, sigma2, floor)
    return Rotated(F, V.T if c is None else V.T @ c, z, e, residual, n, sigma2, floor, lam)


def shared_lam(
    e: np.ndarray,
    squares: np.ndarray,
    residual: PerTarget,
    n: float,
    sigma2: PerTarget | None,
    floor: PerTarget,
) -> tuple[float, np.ndarray]:
    """Return the lam of highest evidence among those shared by all columns, and its E.

    `e` are the eigenvalues of RR', `squares` the squared coordinates of the target in its
    eigenvectors, one column an output.
    """
    grid = _GRID * (float(np.max(e, initial=0.0)) or 1.0)
    shrink = 1.0 / (1.0 + e / grid[:, None])
    E = shrink @ squares + residual
    if sigma2 is None:
        fit = n * np.log(np.maximum(E, n * floor + _TINY)).sum(axis=1)
    else:
        fit = (E / sigma2).sum(axis=1)
    evidence = 0.5 * (squares.shape[1] * np.log(shrink).sum(axis=1) - fit)
    best = _interior_maximum(evidence)
    return float(grid[best]), E[best]


def _interior_maximum(values: np.ndarray) -> int:
    """Return the index of the largest value, or of the best local maximum if it is the first.

    Where rows repeat exactly (weights above 1) the evidence may rise without bound as lam falls.
    """
    i = int(np.argmax(values))
    peaks = 1 + np.flatnonzero((values[1:-1] > values[:-2]) & (values[1:-1] >= values[2:]))
    return int(peaks[np.argmax(values[peaks])]) if i == 0 and len(peaks) else i


def reaches_noise(problem: Rotated) -> bool:
    """Return whether the last direction is noise to the model, so that more change nothing."""
    return bool(problem.e[-1] <= _NOISE * problem.lam)


def dense_starts(
    problem: Rotated,
    factors: Sequence[float] | np.ndarray,
    most: int,
    reporter: Reporter | None = None,
) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """Return the columns that survive MacKay's steps and their lam per factor, then all lengths.

    A start has `factor` times the best shared lam for all columns, and ends with at most `most`
    columns, those best determined by the data. The lengths are squared, of all candidates. Starts
    for which there is no time are left out, but for the first.
    """
    reporter = reporter or Reporter()
    shared = problem.lam * np.asarray(factors)
    reached = problem.e > _NOISE * shared[:, None]
    reached[:, 0] = True
    shrink = np.where(reached, 1.0 / (1.0 + problem.e / shared[:, None]), 0.0)
    S, Q, norms, R = _first_statistics(problem, shrink)
    starts: list[tuple[np.ndarray, np.ndarray]] = []
    for i, p in enumerate(np.count_nonzero(reached, axis=1)):
        if starts and reporter.budget.over:
            break
        reporter.say(f"start {i + 1} of {len(shared)}")
        starts.append(_mackay(problem, float(shared[i]), int(p), S[i], Q[i], R, most))
    return starts, norms


def _first_statistics(
    problem: Rotated, shrink: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Array | None]:
    """Return S and Q of all candidates at each start, lengths, and the candidates where few."""
    F, z = problem.F, problem.z
    m, (p, q) = F.shape[1], z.shape
    S, Q = np.empty((len(shrink), m)), np.empty((len(shrink), m, q))
    norms = np.empty(m)
    kept: Array | None = None
    weights = asarray_like(F, np.vstack([shrink, np.ones(p)]))
    along = asarray_like(F, (shrink[:, :, None] * z).transpose(1, 0, 2).reshape(p, -1))
    step = m if is_torch(F) else max(64, _BLOCK // p)
    for first in range(0, m, step):
        part = slice(first, first + step)
        R = problem.columns(p, part)
        Q[:, part] = to_numpy(R.T @ along).reshape(-1, len(shrink), q).transpose(1, 0, 2)
        lengths = to_numpy(weights @ (R * R))
        S[:, part], norms[part] = lengths[:-1], lengths[-1]
        if step >= m:
            kept = _single(R)
        elif p * m <= _FEW:
            kept = np.empty((p, m), np.float32) if kept is None else kept
            kept[:, part] = R
    return S, Q, norms, kept


def _mackay(
    problem: Rotated,
    shared: float,
    p: int,
    S: np.ndarray,
    Q: np.ndarray,
    R: Array | None,
    most: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Take steps in p dimensions from S and Q at the shared lam; return columns and their lam.

    The Cholesky of steps in float32 may fail where lam has become small; they go on in float64.
    """
    z, e = problem.z[:p], problem.e[:p]
    residual = problem.residual + np.sum(problem.z[p:] ** 2, axis=0)
    kept = np.arange(len(S))
    lam = np.full(len(kept), shared)
    E = (1.0 / (1.0 + e / shared)) @ (z * z)
    for i in range(_STEPS):
        if i > 0:
            assert R is not None
            statistics = _statistics(R, z, lam)
            if statistics is None and R.dtype == np.float32:
                R = R.astype(np.float64)
                statistics = _statistics(R, z, lam)
            if statistics is None:
                break
            S, Q, E = statistics
        noise = problem.sigma2
        if noise is None:
            noise = np.maximum((E + residual) / problem.n, problem.floor + _TINY)
        determined = S / lam
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            new = lam * S * z.shape[1] / (Q * Q / noise).sum(axis=1)
        keep = (determined > _DROP) & np.isfinite(new) & (new > 0.0)
        if i == 0:
            # S lam/(lam - S) is S without the column itself.
            promise = determined / np.maximum(1.0 - determined, 1e-6) * lam / new
            keep = _largest(np.where(keep, promise, 0.0), _PROMISING * p)
        if not np.any(keep):
            break
        kept, lam, determined = kept[keep], new[keep], determined[keep]
        if R is None:
            R = problem.columns(p, kept, single=True)
        elif i == 0:
            R = R[:p]
        if len(kept) < R.shape[1]:
            R = R[:, keep]
    chosen = _largest(determined, most)
    kept, lam = kept[chosen], lam[chosen]
    if problem.F.shape[1] > _ROUNDED_ABOVE:
        lam = 4.0 ** np.round(0.5 * np.log2(lam))
    return kept, lam


def _single(R: Array) -> Array:
    """Return R in float32, except where it overflows and on a device, where that saves nothing."""
    if is_torch(R) or np.max(np.abs(R), initial=0.0) > np.finfo(np.float32).max:
        return R
    return R.astype(np.float32)


def _largest(values: np.ndarray, most: int) -> np.ndarray:
    """Return which values are positive and the `most` largest; ties go to the lowest index."""
    keep = values > 0.0
    if np.count_nonzero(keep) > most:
        keep[np.argsort(-values, kind="stable")[most:]] = False
    return keep


def _statistics(
    R: Array, z: np.ndarray, lam: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return S, Q and z'M^-1 z; None where M is not positive definite in the precision of R."""
    if is_torch(R):
        return _statistics_torch(R, z, lam)
    dtype = R.dtype
    R = np.ascontiguousarray(R)
    # Where this overflows float32, M is not finite, and float64 serves.
    with np.errstate(over="ignore", invalid="ignore"):
        A = R * (1.0 / np.sqrt(lam)).astype(dtype)
    syrk, trsm = get_blas_funcs(("syrk", "trsm"), (A,))
    (potrf,) = get_lapack_funcs(("potrf",), (A,))
    M = syrk(1.0, A.T, trans=1, lower=True)
    M.flat[:: len(M) + 1] += 1.0
    L, info = potrf(M, lower=True, overwrite_a=True, clean=False)
    if info != 0 or not np.all(np.isfinite(np.diagonal(L))):
        return None
    # T' = R' L^-T on the Fortran-ordered view R' of the C-ordered R.
    T = trsm(1.0, L, R.T, side=1, lower=True, trans_a=1)
    v = trsm(1.0, L, np.asfortranarray(z, dtype=dtype), lower=True)
    S = np.einsum("ij,ij->i", T, T).astype(np.float64)
    Q = (T @ v).astype(np.float64)
    E = np.sum(v.astype(np.float64) ** 2, axis=0)
    return S, Q, E


def _statistics_torch(
    R: Array, z: np.ndarray, lam: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the result of `_statistics` for a tensor, on its device."""
    A = R * asarray_like(R, 1.0 / np.sqrt(lam))
    M = A @ A.T
    M.diagonal().add_(1.0)
    L, info = namespace(R).linalg.cholesky_ex(M)
    if int(info) != 0 or not bool(L.diagonal().isfinite().all()):
        return None
    T, v = lower_solve(L, R), lower_solve(L, asarray_like(R, z))
    S, E = squared_lengths(T), to_numpy(v)
    return S, to_numpy(T.T @ v), np.sum(E**2, axis=0)
