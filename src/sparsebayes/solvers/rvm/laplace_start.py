"""The dense start of the RVM for labels: MacKay steps on all m candidates at once.

The candidates are compressed to p dimensions, Phi ~ R F (`designs.lowrank`). The latent values are
then y = R v + b with v = F w ~ N(0, B) and B = F A^-1 F'. At the current y, let Omega be the
curvature of the likelihood, C = R' Omega R (less the part of the intercept) and B = LL'. One Newton
step is

    M = I + L'CL,   v <- L M^-1 L'r,   r = R'(Omega y + residual),

and the statistics of all candidates under this Gaussian approximation are

    S_j = f_j'(C^-1 + B)^-1 f_j,   Q_j = f_j' B^-1 v,    alpha_j <- alpha_j S_j / Q_j^2,

with (C^-1 + B)^-1 = C - C L M^-1 L'C.

1. One shared alpha for all candidates, by MacKay steps (`DenseStart`).
2. From a multiple of it, MacKay steps with one alpha for each candidate (`DenseStart.survivors`).
   Each makes one Newton step (w_j = Q_j/alpha_j), halved where the penalised likelihood would fall.
   A candidate with S_j/alpha_j below 1e-3, which the data hardly determine, is dropped.
3. When at most p candidates remain, the steps continue on their exact columns (`mackay_steps`).

Cost: (n + 2m) p^2 + 6 p^3 a step, and no m x m array. With many candidates the products are in
float32 until that breaks down.

Deviation: Q from the residual alone, f_j'R'residual, equals the form above only at the mode. Before
it is reached, steps with that form diverge.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import get_blas_funcs
from scipy.linalg.blas import dsymm, dsyrk, dtrmm, dtrsm
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from ...callbacks import Reporter
from ...designs import Design
from ...designs.lowrank import LowRank, low_rank
from ...posterior import laplace_posterior, likelihood_slopes, log_likelihood

_STEPS = 15  # MacKay steps in all
_ONLY_CONSTANT = 1e-6  # share of the power of the columns that is rounding once they are centred
_DROP = 1e-3  # S_j/alpha_j below which a candidate is dropped
_SHARED_STEPS = 8
_SINGLE = 1e12  # entries above it have squares and sums that overflow float32
_RANK = (200, 400)
_SMALL = 500  # candidates up to which float32 saves nothing


def compression(design: Design, seed: int, reporter: Reporter | None = None) -> LowRank:
    """Return all candidates in p = 4 sqrt(m) dimensions, between 200 and 400.

    They are 200 where the time of `reporter` is over.
    """
    reporter = reporter or Reporter()
    rank = int(np.clip(4.0 * np.sqrt(design.n_candidates), *_RANK))
    rank = _RANK[0] if reporter.budget.over else rank
    reporter.say(f"{design.n_candidates} functions in {rank} dimensions")
    return low_rank(design, rank, np.random.default_rng(seed))


class Survivors(NamedTuple):
    """The candidates that remain, with their model."""

    kept: np.ndarray
    alpha: np.ndarray
    w: np.ndarray
    b: float
    steps: int  # MacKay steps that remain to be taken on their exact columns


class DenseStart:
    """All candidates with one shared precision, from which separate ones start.

    Parameters
    ----------
    factor : LowRank
        The compressed candidates.
    counts : array of shape (n_rows, 2)
        Weight of the positive labels in each row, and of all its labels.
    intercept : bool
        Whether the model has an intercept.
    reporter : Reporter, optional
        With its time the steps end.
    """

    def __init__(
        self,
        factor: LowRank,
        counts: np.ndarray,
        intercept: bool,
        reporter: Reporter | None = None,
    ) -> None:
        self.counts, self.intercept = counts, intercept
        self.reporter = reporter or Reporter()
        self._exact = factor.rows, factor.factor
        size = max(float(np.max(np.abs(part), initial=0.0)) for part in self._exact)
        single = size < _SINGLE and factor.factor.shape[1] > _SMALL
        dtype: Any = np.float32 if single else np.float64
        self.R: np.ndarray = np.asfortranarray(factor.rows, dtype=dtype)
        self.F: np.ndarray = np.asfortranarray(factor.factor, dtype=dtype)
        self.w = np.zeros(self.F.shape[1])
        self.b = 0.0
        self.alpha = self._shared()

    def survivors(self, scale: float) -> Survivors:
        """Take MacKay steps from `scale` times the shared alpha, until at most p remain."""
        kept = np.arange(self.F.shape[1])
        alpha = np.full(len(kept), scale * self.alpha)
        w, b, steps = self.w, self.b, _STEPS
        while steps > 0 and len(kept) > self.R.shape[1]:
            F: np.ndarray = self.F[:, kept]
            B = _gram(F.T * (1.0 / np.sqrt(alpha)).astype(F.dtype)[:, None])
            N, u, b, step = self._step(B, F @ w.astype(F.dtype), b)
            (symm,) = get_blas_funcs(("symm",), (F,))
            NF: np.ndarray = symm(1.0, N, F, lower=True)
            S = np.einsum("ij,ij->j", F, NF).astype(np.float64)
            Q = (u.astype(F.dtype) @ F).astype(np.float64)
            keep = S > _DROP * alpha
            w = w + step * (Q / alpha - w)
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                alpha = alpha * S / Q**2
            keep &= np.isfinite(alpha)
            if self.reporter.budget.over:
                keep &= _largest(np.where(keep, S / alpha, 0.0), self.R.shape[1])
                steps = 1
            kept, alpha, w = kept[keep], alpha[keep], w[keep]
            steps -= 1
        return Survivors(kept, alpha, w, b, steps)

    def _shared(self) -> float:
        """Return one alpha for all candidates, by MacKay steps, and set w and b near its mode."""
        FF = _gram(self.F.T)
        full = FF + np.tril(FF, -1).T
        weight = self.counts[:, 1]
        RR = _gram(self.R * np.sqrt(weight).astype(self.R.dtype)[:, None])
        # Latent variance 4 at first, without that of the mean: trace(Phi Phi')/(n alpha) of centred
        # columns. From a larger alpha, wide functions would be taken for constants and all go.
        total = float(np.sum(weight))
        mean = self._columns(weight) / total
        RR = RR + np.tril(RR, -1).T
        power = float(np.sum(RR * full))
        centred = power - total * float(mean @ full @ mean)
        alpha = max(0.25 * max(centred, _ONLY_CONSTANT * power) / total, 1e-30)
        for i in range(_SHARED_STEPS):
            v = self.F @ self.w.astype(self.F.dtype)
            N, u, self.b, step = self._step(FF / alpha, v, self.b)
            self.w = self.w + step * ((u @ self.F).astype(np.float64) / alpha - self.w)
            S = 2.0 * float(np.sum(np.tril(N, -1) * full)) + float(np.diag(N) @ np.diag(full))
            ratio = float(np.clip(S / max(u @ full @ u, 1e-300), 0.05, 20.0))
            if i >= 2:  # the first steps only bring w to the mode
                alpha *= ratio
                if abs(np.log(ratio)) < 0.3:
                    break
        return alpha

    def _step(
        self, B: np.ndarray, v: np.ndarray, b: float
    ) -> tuple[np.ndarray, np.ndarray, float, float]:
        """Take one Newton step from v and b.

        Returns (C^-1 + B)^-1 (lower triangle), B^-1 v of the new v, the new b, and the fraction
        of the step that was taken.
        """
        v = v.astype(np.float64)
        try:
            return self._newton(B, v, b)
        except np.linalg.LinAlgError:
            if self.R.dtype == np.float64:
                raise
            self.R, self.F = (np.asfortranarray(part) for part in self._exact)
            return self._newton(B, v, b)

    def _newton(
        self, B: np.ndarray, v: np.ndarray, b: float
    ) -> tuple[np.ndarray, np.ndarray, float, float]:
        counts, p = self.counts, len(v)
        L = _cholesky(B, 1e-7 if self.F.dtype == np.float32 else 1e-15)
        y = self._rows(v) + b
        residual, omega = likelihood_slopes(y, counts)
        working = omega * y + residual
        C = _gram(self.R * np.sqrt(omega).astype(self.R.dtype)[:, None])
        r = self._columns(working)
        total = float(np.sum(omega))
        centre = self._columns(omega) / total
        level = float(np.sum(working)) / total
        if self.intercept:
            C -= total * np.multiply.outer(centre, centre)
            r -= (total * level) * centre
        CL = dsymm(1.0, C, L, lower=1)
        M = dtrmm(1.0, L, CL, lower=1, trans_a=1)
        M[np.diag_indices(p)] += 1.0
        LM, info = dpotrf(M, lower=1, overwrite_a=1)
        if info != 0:
            raise np.linalg.LinAlgError("The Newton system of the compressed weights is singular.")
        a = dpotrs(LM, dtrmm(1.0, L, r[:, None], lower=1, trans_a=1), lower=1)[0][:, 0]
        Y = dtrsm(1.0, LM, CL, side=1, lower=1, trans_a=1)
        N = dsyrk(-1.0, Y, beta=1.0, c=C, lower=1)
        u = dtrtrs(L, a, lower=1, trans=1)[0]
        new_v = L @ a
        new_b = level - float(centre @ new_v) if self.intercept else 0.0

        old_a = dtrtrs(L, v, lower=1)[0]
        change = self._rows(new_v - v) + (new_b - b)
        before = self._penalised(y, old_a)
        step = 1.0
        while step > 1e-3:
            if self._penalised(y + step * change, old_a + step * (a - old_a)) >= before:
                break
            step *= 0.5
        return N, u, b + step * (new_b - b), step

    def _rows(self, v: np.ndarray) -> np.ndarray:
        return (self.R @ v.astype(self.R.dtype)).astype(np.float64)

    def _columns(self, values: np.ndarray) -> np.ndarray:
        return (values.astype(self.R.dtype) @ self.R).astype(np.float64)

    def _penalised(self, y: np.ndarray, a: np.ndarray) -> float:
        return log_likelihood(y, self.counts) - 0.5 * float(a @ a)


def _largest(values: np.ndarray, most: int) -> np.ndarray:
    """Return which of the values are the `most` largest."""
    among = np.zeros(len(values), dtype=bool)
    among[np.argsort(-values, kind="stable")[:most]] = True
    return among


def mackay_steps(
    Phi: np.ndarray, t: np.ndarray, survivors: Survivors, intercept: bool, most: int
) -> Survivors:
    """Take the remaining steps on exact columns; keep at most `most`, those of smallest alpha."""
    kept, alpha, w, b, steps = survivors
    for _ in range(steps):
        posterior, _ = laplace_posterior(Phi, t, alpha, intercept, (w, b), max_iter=1)
        determined = 1.0 - alpha * np.einsum("ij,ij->i", posterior.form.root, posterior.form.root)
        with np.errstate(divide="ignore", invalid="ignore"):
            alpha = np.maximum(determined, 0.0) / posterior.mean**2
        keep = (determined > _DROP) & np.isfinite(alpha)
        kept, alpha, Phi = kept[keep], alpha[keep], Phi[:, keep]
        w, b = posterior.mean[keep], float(posterior.intercept)
    best = np.sort(np.argsort(alpha, kind="stable")[:most])
    return Survivors(kept[best], alpha[best], w[best], b, 0)


def _gram(A: np.ndarray) -> np.ndarray:
    """Return the lower triangle of A'A in float64, from a product in the precision of A."""
    (syrk,) = get_blas_funcs(("syrk",), (A,))
    return syrk(1.0, A, trans=1, lower=True).astype(np.float64, order="F")


def _cholesky(B: np.ndarray, eps: float) -> np.ndarray:
    """Return the factor of B (lower triangle), with a ridge as large as rounding requires."""
    size = float(np.max(np.diag(B))) or 1.0
    ridge = eps
    while ridge < 1e-2:
        A = B.copy(order="F")
        A[np.diag_indices(len(B))] += ridge * size
        L, info = dpotrf(A, lower=1, clean=1, overwrite_a=1)
        if info == 0:
            return L
        ridge *= 10.0
    raise np.linalg.LinAlgError(
        "Products of the columns overflow float64. Rescale them to values near 1."
    )
