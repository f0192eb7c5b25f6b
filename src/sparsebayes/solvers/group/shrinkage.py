"""Group horseshoe and Bayesian group lasso by Gibbs sampling: two scale mixtures, one sampler.

    t = Phi w + e,  e ~ N(0, sigma2 I),   w_g | s_g ~ N(0, sigma2 s_g I),

with a prior on the scales s_g that defines the model:

* horseshoe: s_g = lambda_g^2 tau^2, lambda_g and tau half-Cauchy (Carvalho, Polson and Scott 2010,
  one lambda per group), through inverse gamma variables (Makalic and Schmidt 2016)
      lambda_g^2 ~ IG((k+1)/2, 1/nu_g + |w_g|^2/(2 sigma2 tau^2)),   nu_g ~ IG(1, 1 + 1/lambda_g^2),
      tau^2 ~ IG((d+1)/2, 1/xi + sum_g |w_g|^2/(2 sigma2 lambda_g^2)),   xi ~ IG(1, 1 + 1/tau^2);
* lasso (Raman and others 2009; Kyung and others 2010): s_g ~ Gamma((k+1)/2, rate l2/2), so
      1/s_g ~ InverseGaussian(sqrt(l2 sigma2)/|w_g|, l2),
      l2 ~ Gamma((d+G)/2 + 1, rate sum s_g/2 + b),
  where the prior rate b puts the prior mean of l2 at the value for which the prior explains var(t).

The noise variance is given, or has the prior 1/sigma2 and is drawn with the rest; a draw below
1e-10 of the mean square of t is raised to that. Equal rows with equal targets, and columns that
explain every row, say that there is no noise: the likelihood then has no bound, and the chain would
go down without end.

One step draws w given the scales: through n x n where n < d (Bhattacharya, Chakraborty and Mallick
2016), O(n^2 d), else through d x d; then scales and noise. Means are averages of conditional means.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from ...designs import Design
from ...posterior import Draws, Posterior
from ..noise import noise_floor
from ..run import StopReason

_STIFF = 1e6  # of I + B'B: from here on by orthogonal factors, which take a few times as long
_DIGITS = 2.0**-32  # of the largest entry of a column: what is kept of the data
_SMALLEST, _LARGEST = 1e-200, 1e200  # scales are kept between: half-Cauchy draws overflow

FloatOrArray = float | np.ndarray


@dataclass
class State:
    """One chain, and the draws kept so far."""

    X: np.ndarray
    t: np.ndarray
    n_observations: float
    smallest_noise: float
    group_of: np.ndarray
    size: np.ndarray
    rng: np.random.Generator
    scale: np.ndarray  # s_g
    sigma2: float
    extra: dict[str, FloatOrArray]  # nu, xi, lambda2, tau2 or l2
    w: np.ndarray
    n_sweeps: int = 0
    draws: list[np.ndarray] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)
    mean_sum: FloatOrArray = 0.0
    square_sum: FloatOrArray = 0.0


class Info(NamedTuple):
    """One sweep, for the reader."""

    noise_variance: float
    residual: float


@dataclass(frozen=True)
class GroupShrinkage:
    """One chain of the group horseshoe or the Bayesian group lasso; see the module docstring.

    Parameters
    ----------
    group_of : array of int of shape (n_columns,)
        The group of each column, 0 to n_groups - 1.
    prior : {"horseshoe", "lasso"}
        Of the scales of the groups: the module docstring has both.
    noise_variance : float or None
        None draws it.
    n_samples, n_warmup : int
        Sweeps that count, and those before them.
    seed : int or Generator, default=0
        Draws the chain.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers import GroupShrinkage, run
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((30, 60))
    >>> t = X[:, :3] @ [1.0, -2.0, 1.0] + 0.1 * rng.standard_normal(30)
    >>> solver = GroupShrinkage(np.arange(60) // 3, "horseshoe", None, n_samples=200, n_warmup=100)
    >>> state = run(solver, DenseDesign(X), t, max_iter=300).state
    >>> (state.mean_sum[:3] / 200).round(1)
    array([ 1., -2.,  1.])
    """

    group_of: np.ndarray
    prior: str
    noise_variance: float | None
    n_samples: int = 1000
    n_warmup: int = 500
    seed: int = 0

    def init(self, design: Design, t: np.ndarray) -> State:
        """Scales at which the prior explains var(t), half of it if the noise is drawn."""
        n = design.n_observations
        X, t = _fold(design.dense(), t)
        size = np.bincount(self.group_of)
        power = max(float(t @ t), 1e-30) / n
        sigma2 = self.noise_variance or 0.5 * power
        total = float(np.vdot(X, X))
        scale = power / sigma2 * (n / total) if total > 0 else 1.0
        scale = float(np.clip(scale, _SMALLEST, _LARGEST))
        extra: dict[str, FloatOrArray]
        if self.prior == "horseshoe":
            ones = np.ones(len(size))
            extra = {"lambda2": ones, "nu": ones.copy(), "tau2": scale, "xi": 1.0}
        else:
            width = float(np.mean(size)) + 1.0
            extra = {"l2": width / scale, "rate": scale / width}
        s = np.full(len(size), scale)
        floor = noise_floor(t, n)
        rng = np.random.default_rng(self.seed)
        w = np.zeros(X.shape[1])
        return State(X, t, n, floor, self.group_of, size, rng, s, max(sigma2, floor), extra, w)

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """Weights, then scales, then noise."""
        mean = _draw_weights(state)
        square = np.bincount(state.group_of, weights=state.w**2)
        if self.prior == "horseshoe":
            _horseshoe_scales(state, square)
        else:
            _lasso_scales(state, square)
        residual = state.t - state.X @ state.w
        sse = float(residual @ residual)
        if self.noise_variance is None:
            shape = 0.5 * (state.n_observations + len(state.w))
            total = 0.5 * (sse + np.sum(square / state.scale))
            draw = float(max(total, _SMALLEST) / state.rng.standard_gamma(shape))
            state.sigma2 = max(draw, state.smallest_noise)
        state.n_sweeps += 1
        if state.n_sweeps > self.n_warmup:
            state.draws.append(state.w)
            state.noise.append(state.sigma2)
            state.mean_sum = state.mean_sum + mean
            state.square_sum = state.square_sum + state.w**2
        return state, Info(state.sigma2, sse)

    def done(self, state: State) -> StopReason | None:
        """When all sweeps are made."""
        return StopReason.CONVERGED if state.n_sweeps >= self.n_warmup + self.n_samples else None

    def posterior(self, state: State, design: Design, t: np.ndarray) -> Posterior:
        """The draws of this chain."""
        return draws_posterior([state], design.offset_scale)


def draws_posterior(states: list[State], offset_scale: float) -> Posterior:
    """The draws of all chains, and the average of their conditional means."""
    draws = np.concatenate([np.array(s.draws) for s in states])
    mean = np.sum([np.asarray(s.mean_sum) for s in states], axis=0) / len(draws)
    noise = float(np.mean([np.mean(s.noise) for s in states]))
    form = Draws(draws, mean)
    return Posterior(mean, form, noise, np.nan, offset_variance=offset_scale * noise)


def _fold(X: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return fewer rows of the same X'X, X't and t't: the triangle of [X t], empty rows removed.

    Weighted and repeated rows become the same ones, rounded to the same last bit: a chain makes any
    difference large, and equal data should have equal draws.
    """
    R = np.asarray(np.linalg.qr(np.column_stack([X, t]), mode="r"))
    R *= np.where(np.diag(R) < 0, -1.0, 1.0)[:, None]
    quantum = _DIGITS * np.ldexp(1.0, np.frexp(np.max(np.abs(R), axis=0))[1])
    R = np.round(R / quantum) * quantum
    full = np.any(R != 0.0, axis=1)
    return R[full, :-1], R[full, -1]


def _draw_weights(state: State) -> np.ndarray:
    """A draw of w given scales and noise; returns its conditional mean."""
    t, rng, sd = state.t, state.rng, np.sqrt(state.sigma2)
    root = np.sqrt(state.scale[state.group_of])  # of the prior variance over sigma2
    # In u = w/root the prior is N(0, sigma2 I): a vanishing scale does no harm.
    B = state.X * root
    n, d = B.shape
    if n < d:
        # u ~ prior, e ~ noise; u + B'(I + B B')^-1 (t - B u - e).
        u = sd * rng.standard_normal(d)
        A = B @ B.T
    else:
        u, A = np.empty(0), B.T @ B
    e = sd * rng.standard_normal(min(n, d))
    if not np.max(np.diag(A), initial=0.0) < _STIFF:
        mean, draw = _by_orthogonal_factors(B, t, u, e)
    elif n < d:
        A[np.diag_indices(n)] += 1.0
        misfit = np.column_stack([t, t - B @ u - e])
        mean, draw = (B.T @ cho_solve(cho_factor(A, lower=True), misfit)).T
        draw = u + draw
    else:
        A[np.diag_indices(d)] += 1.0
        L = np.linalg.cholesky(A)
        half = solve_triangular(L, B.T @ t, lower=True)
        both = np.column_stack([half, half + e])
        mean, draw = solve_triangular(L, both, lower=True, trans="T").T
    state.w = root * draw
    return root * mean


def _by_orthogonal_factors(
    B: np.ndarray, t: np.ndarray, u: np.ndarray, e: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean of u and a draw, with no square of B in which I + B'B would lose its I.

    Where B is wide its rows have the coordinates a = Q'u, B = T'Q', and the rest of u is prior.
    """
    wide = B.shape[0] < B.shape[1]
    Q, T = np.linalg.qr(B.T) if wide else (np.empty((0, 0)), B.T)
    k = T.shape[0]
    rows = np.block([[T.T, t[:, None]], [np.eye(k), np.zeros((k, 1))]])
    R = np.asarray(np.linalg.qr(rows, mode="r"))
    R[:k] *= np.where(np.diag(R)[:k] < 0, -1.0, 1.0)[:, None]
    both = np.column_stack([R[:k, k], R[:k, k] + e])
    mean, draw = solve_triangular(R[:k, :k], both).T
    return (Q @ mean, u + Q @ (draw - Q.T @ u)) if wide else (mean, draw)


def _inverse_gamma(rng: np.random.Generator, shape: FloatOrArray, rate: FloatOrArray) -> np.ndarray:
    return np.clip(
        np.asarray(rate) / rng.standard_gamma(shape, size=np.shape(rate)), _SMALLEST, _LARGEST
    )


def _horseshoe_scales(state: State, square: np.ndarray) -> None:
    rng, x, sigma2 = state.rng, state.extra, state.sigma2
    x["lambda2"] = _inverse_gamma(
        rng, 0.5 * (state.size + 1), 1.0 / x["nu"] + square / (2.0 * sigma2 * x["tau2"])
    )
    x["nu"] = _inverse_gamma(rng, 1.0, 1.0 + 1.0 / x["lambda2"])
    rate = 1.0 / x["xi"] + np.sum(square / x["lambda2"]) / (2.0 * sigma2)
    x["tau2"] = _inverse_gamma(rng, 0.5 * (len(state.w) + 1), rate)
    x["xi"] = _inverse_gamma(rng, 1.0, 1.0 + 1.0 / x["tau2"])
    state.scale = np.clip(x["lambda2"] * x["tau2"], _SMALLEST, _LARGEST)


def _lasso_scales(state: State, square: np.ndarray) -> None:
    rng, x = state.rng, state.extra
    mean = np.sqrt(x["l2"] * state.sigma2 / np.maximum(square, _SMALLEST))
    inverse = rng.wald(np.clip(mean, _SMALLEST, 1e150), x["l2"])
    state.scale = np.clip(1.0 / np.maximum(inverse, _SMALLEST), _SMALLEST, _LARGEST)
    shape = 0.5 * (len(state.w) + len(state.size)) + 1.0
    x["l2"] = float(rng.standard_gamma(shape) / (0.5 * np.sum(state.scale) + x["rate"]))
