"""Group spike-and-slab regression by Gibbs sampling, the weights integrated out.

Model as in `ep`. With C = sigma2 I + sum_{z_g = 1} v0_g X_g X_g' over the groups now in the
model, and B, r the precision and shift that the data give w_g when g is taken out,

    log p(z_g = 1 | z_-g, t)/p(z_g = 0 | z_-g, t) = logit p0_g - 1/2 log|I + v0 B| + 1/2 r'(B +
    I/v0)^-1 r.

One sweep (one step) visits every group once, in a fresh random order. A group outside the model has
B = H_g = X_g'C^-1 X_g and r = q_g = X_g'C^-1 t, kept for all groups; a group inside has them from
the covariance of the active weights. None of these change while no group changes sides, so the
sampler draws all its uniforms first and jumps from one change to the next: the same chain as
visiting one group at a time, at the cost of the changes alone, O(n d k) each.

A change is a rank-k update of H. Such updates drift, and downdates of C^-1 end in a singular
matrix: the active part is factored afresh at every change, and q with it; H every `refresh`
changes, or sooner if low noise leaves too few digits.

After each sweep w is drawn from its Gaussian given z. Inclusion probabilities and moments are
averages of conditional expectations (Rao-Blackwell), not of draws.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array
from scipy.special import expit, logit

from ...designs import Design
from ...linalg.blocks import ColumnBlocks, column_blocks, log_diagonal, transposed
from ...posterior import Draws, Posterior
from ...priors import fit_slab
from ..run import StopReason

_EPS = float(np.finfo(np.float64).eps)
# Rounding error of H, in units of the prior precisions, with which it is computed afresh.
_LOST = 1e-6


@dataclass
class State:
    """One chain: the groups in the model, the statistics of every group, and the sums so far."""

    X: np.ndarray  # bucket order
    t: np.ndarray
    blocks: ColumnBlocks
    group: np.ndarray  # group of each ordered column
    z: np.ndarray
    rng: np.random.Generator
    H: list[np.ndarray] = field(default_factory=list)
    q: np.ndarray = field(default_factory=lambda: np.empty(0))
    active: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    root: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))  # L^-1, precision L L'
    shift: np.ndarray = field(default_factory=lambda: np.empty(0))  # L' mean
    mean: np.ndarray = field(default_factory=lambda: np.empty(0))
    odds: np.ndarray = field(default_factory=lambda: np.empty(0))  # log-odds of each group being in
    rounding: float = 0.0  # of H, in units of the prior precisions
    n_changes: int = 0
    n_sweeps: int = 0
    inclusion_sum: np.ndarray = field(default_factory=lambda: np.empty(0))
    mean_sum: np.ndarray = field(default_factory=lambda: np.empty(0))  # bucket order
    square_sum: np.ndarray = field(default_factory=lambda: np.empty(0))
    visited: list[np.ndarray] = field(default_factory=list)  # z after each kept sweep
    draws: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)  # columns, weights


class Info(NamedTuple):
    """One sweep, for the reader."""

    n_groups: int
    n_changes: int
    log_joint: float


@dataclass(frozen=True)
class GroupGibbs:
    """One chain of the collapsed Gibbs sampler; see the module docstring.

    Parameters
    ----------
    group_of : array of int of shape (n_columns,)
        The group of each column, 0 to n_groups - 1.
    inclusion_prior, slab_variance : float or array of shape (n_groups,)
        Prior probability that a group is in, and the prior variance of its weights then.
    noise_variance : float
        Of the target around the function.
    n_samples : int, default=1000
        Sweeps that count.
    n_warmup : int, default=200
        Sweeps before them.
    seed : int or Generator, default=0
        Draws the chain.
    start : array of bool of shape (n_groups,), optional
        Groups in the model at the start; drawn from the prior by default.
    refresh : int, default=100
        Most changes after which H is computed afresh.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers import GroupGibbs, run
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((30, 60))
    >>> t = X[:, :3] @ [1.0, -2.0, 1.0] + 0.1 * rng.standard_normal(30)
    >>> solver = GroupGibbs(np.arange(60) // 3, 0.1, 1.0, 0.01, n_samples=50, n_warmup=20)
    >>> state = run(solver, DenseDesign(X), t, max_iter=70).state
    >>> np.flatnonzero(state.inclusion_sum / 50 > 0.5)
    array([0])
    """

    group_of: np.ndarray
    inclusion_prior: float | np.ndarray
    slab_variance: float | np.ndarray
    noise_variance: float
    n_samples: int = 1000
    n_warmup: int = 200
    seed: int = 0
    start: np.ndarray | None = None
    refresh: int = 100

    def init(self, design: Design, t: np.ndarray) -> State:
        """The starting model and its H and q."""
        blocks = column_blocks(self.group_of)
        X = design.columns(blocks.order)
        n, d = X.shape
        if n > d + 1:
            # |t - X w|^2 is all that is needed of the rows.
            triangle = np.asarray(np.linalg.qr(np.column_stack([X, t]), mode="r"))
            X, t = triangle[:, :d], triangle[:, d]
        rng = np.random.default_rng(self.seed)
        G = blocks.n_groups
        z = rng.random(G) < self.inclusion_prior if self.start is None else self.start
        group = np.concatenate([np.repeat(b.owner, b.size) for b in blocks.buckets])
        state = State(np.asfortranarray(X), t, blocks, group, np.array(z, dtype=bool), rng)
        state.inclusion_sum, state.mean_sum, state.square_sum = (
            np.zeros(G),
            np.zeros(d),
            np.zeros(d),
        )
        squares = np.einsum("ij,ij->j", X, X) * self._v0(state)[group]
        state.rounding = _EPS * float(np.max(squares)) / self.noise_variance
        self._refresh(state)
        state.odds = self._log_odds(state)
        return state

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """One sweep, then a draw of the weights."""
        rng, G = state.rng, len(state.z)
        order = rng.permutation(G)
        threshold = logit(rng.random(G))
        probability = np.empty(G)
        at, changes = 0, 0
        while at < G:
            odds = state.odds
            pending = order[at:]
            differs = np.flatnonzero((odds[pending] > threshold[at:]) != state.z[pending])
            stop = differs[0] if differs.size else len(pending) - 1
            updated = pending[: stop + 1]
            probability[updated] = expit(odds[updated])
            at += stop + 1
            if differs.size:
                self._change(state, pending[stop])
                changes += 1
        state.n_sweeps += 1
        if state.n_sweeps > self.n_warmup:
            self._record(state, probability)
        return state, Info(int(state.z.sum()), changes, self._log_joint(state))

    def done(self, state: State) -> StopReason | None:
        """When all sweeps are made."""
        return StopReason.CONVERGED if state.n_sweeps >= self.n_warmup + self.n_samples else None

    def posterior(self, state: State, design: Design, t: np.ndarray) -> Posterior:
        """The draws of this chain."""
        return draws_posterior([state], self.noise_variance, design.offset_scale)

    def _v0(self, state: State) -> np.ndarray:
        return np.broadcast_to(np.asarray(self.slab_variance, dtype=float), len(state.z))

    def _refresh(self, state: State) -> None:
        self._factor(state)
        # X_g'C^-1 X_g is the square of what the active columns and their prior leave of X_g: a
        # difference of squares would lose what low noise leaves of it.
        Q = np.linalg.qr(self._active_rows(state))[0]
        prior = np.zeros((len(state.active), state.X.shape[1]))
        rest = np.vstack([state.X / np.sqrt(self.noise_variance), prior])
        rest -= Q @ (Q.T @ rest)
        state.H = []
        for b in state.blocks.buckets:
            at = slice(b.start, b.start + b.columns.size)
            shape = (len(b.owner), b.size, len(rest))
            F = np.ascontiguousarray(rest.T[at]).reshape(shape)
            state.H.append(F @ transposed(F))
        state.n_changes = 0

    def _factor(self, state: State) -> None:
        """Mean and covariance of the active weights, by an orthogonal factorisation of their
        columns.

        Their normal equations would lose half of the digits when the noise is low.
        """
        state.active = np.flatnonzero(state.z[state.group])
        k = len(state.active)
        t = np.append(state.t / np.sqrt(self.noise_variance), np.zeros(k))
        R = np.asarray(np.linalg.qr(np.column_stack([self._active_rows(state), t]), mode="r"))
        R[:k] *= np.sign(np.diag(R))[:k, None]
        state.root = solve_triangular(R[:k, :k], np.eye(k), trans="T") if k else np.empty((0, 0))
        state.shift = R[:k, k]
        state.mean = state.root.T @ state.shift
        # q = X'C^-1 t; carried along by updates it would lose what low noise leaves of it.
        residual = state.t - state.X[:, state.active] @ state.mean
        state.q = state.X.T @ residual / self.noise_variance

    def _active_rows(self, state: State) -> np.ndarray:
        """Active columns in units of the noise, above the roots of their prior precisions."""
        prior = np.sqrt(1.0 / self._v0(state)[state.group[state.active]])
        columns = state.X[:, state.active] / np.sqrt(self.noise_variance)
        return np.vstack([columns, np.diag(prior)])

    def _log_odds(self, state: State) -> np.ndarray:
        """Log-odds of every group being in, given all the others."""
        v0, out = self._v0(state), np.empty(len(state.z))
        position = np.cumsum(state.z[state.group]) - 1  # of an ordered column among the active
        for b, H in zip(state.blocks.buckets, state.H, strict=True):
            columns = b.start + np.arange(b.columns.size).reshape(b.columns.shape)
            # Low noise leaves a matrix that is positive definite but for rounding errors.
            rounding = 4.0 * _EPS * np.einsum("gii->g", H)[:, None, None] * np.eye(b.size)
            fit = fit_slab(H + rounding, state.q[columns], v0[b.owner])
            out[b.owner] = fit.log_bayes_factor
            inside = np.flatnonzero(state.z[b.owner])
            if inside.size:
                # With V = R'R the posterior covariance of the weights of the group and m their
                # mean, I + v0 B = v0 V^-1 and r'(B + I/v0)^-1 r = m'V^-1 m = |Q'shift|^2.
                Q, R = np.linalg.qr(np.moveaxis(state.root[:, position[columns[inside]]], 0, 1))
                half = transposed(Q) @ state.shift
                log_scale = log_diagonal(np.abs(R)) - 0.5 * b.size * np.log(v0[b.owner[inside]])
                out[b.owner[inside]] = 0.5 * np.sum(half**2, axis=1) + log_scale
        return logit(np.broadcast_to(self.inclusion_prior, len(out))) + out

    def _change(self, state: State, g: int) -> None:
        """Take group g in or out, and carry H along."""
        enters = not state.z[g]
        if enters:
            state.z[g] = True
            self._factor(state)
        # With V the posterior covariance of the active weights with those of g, H differs with and
        # without g by sigma2^-2 X'X_A V_Ag V_gg^-1 V_gA X_A'X = W W'.
        columns = np.searchsorted(state.active, np.flatnonzero(state.group == g))
        Q = np.linalg.qr(state.root[:, columns])[0]
        W = state.X.T @ (state.X[:, state.active] @ (state.root.T @ Q)) / self.noise_variance
        for b, H in zip(state.blocks.buckets, state.H, strict=True):
            part = W[b.start : b.start + b.columns.size].reshape(len(b.owner), b.size, -1)
            change = part @ transposed(part)
            H += -change if enters else change
        if not enters:
            state.z[g] = False
            self._factor(state)
        state.n_changes += 1
        if state.n_changes >= self.refresh or state.n_changes * state.rounding > _LOST:
            self._refresh(state)
        state.odds = self._log_odds(state)

    def _record(self, state: State, probability: np.ndarray) -> None:
        state.inclusion_sum += probability
        state.visited.append(np.packbits(state.z))
        state.mean_sum[state.active] += state.mean
        variance = np.einsum("ij,ij->j", state.root, state.root)
        state.square_sum[state.active] += variance + state.mean**2
        w = state.mean + state.root.T @ state.rng.standard_normal(len(state.mean))
        state.draws.append((state.blocks.order[state.active], w))

    def _log_joint(self, state: State) -> float:
        """log p(t, z), less what does not depend on z."""
        p0 = np.broadcast_to(self.inclusion_prior, len(state.z))
        residual = state.t - state.X[:, state.active] @ state.mean
        v0 = self._v0(state)[state.group[state.active]]
        total = np.sum(np.log(np.where(state.z, p0, 1.0 - p0)))
        total += np.sum(np.log(np.diag(state.root))) - 0.5 * np.sum(np.log(v0))
        total -= 0.5 * (residual @ residual / self.noise_variance + np.sum(state.mean**2 / v0))
        return float(total)


def inclusion_series(states: list[State]) -> np.ndarray:
    """Return which groups were in after each kept sweep that all chains have, as bytes.

    The shape is (n_chains, n_samples, n_groups).
    """
    G, n = len(states[0].z), min(len(s.visited) for s in states)
    return np.stack([np.unpackbits(np.array(s.visited[:n]), axis=1, count=G) for s in states])


def draws_posterior(states: list[State], sigma2: float, offset_scale: float) -> Posterior:
    """The draws of all chains, and the average of their conditional means."""
    columns = [c for s in states for c, _ in s.draws]
    values = [w for s in states for _, w in s.draws]
    ends = np.concatenate([[0], np.cumsum([len(c) for c in columns])])
    d = states[0].X.shape[1]
    draws = csr_array(
        (np.concatenate(values), np.concatenate(columns), ends), shape=(len(columns), d)
    )
    mean = np.empty(d)
    mean[states[0].blocks.order] = sum(s.mean_sum for s in states) / len(columns)
    form = Draws(draws, mean)
    return Posterior(mean, form, sigma2, np.nan, offset_variance=offset_scale * sigma2)


# How well Markov chains have mixed: split R-hat and effective sample size.


def split_r_hat(series: np.ndarray) -> np.ndarray:
    """Split R-hat of each quantity (Gelman and others 2013, section 11.4).

    Each chain is cut into halves; R-hat compares the variance between halves with that within. A
    quantity that never moved has R-hat 1 if all chains agree on it and infinity if they do not.

    Parameters
    ----------
    series : array of shape (n_chains, n_samples, n_quantities)

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.solvers.group.gibbs import split_r_hat
    >>> chains = np.random.default_rng(0).standard_normal((4, 500, 1))
    >>> bool(split_r_hat(chains)[0] < 1.01)
    True
    >>> bool(split_r_hat(chains + np.arange(4)[:, None, None])[0] > 1.5)
    True
    """
    half = series.shape[1] // 2
    parts = np.concatenate([series[:, :half], series[:, -half:]]).astype(np.float64)
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sqrt((half - 1) / half + between / within)
    return np.where(within > 0, ratio, np.where(between > 0, np.inf, 1.0))


def effective_sample_size(series: np.ndarray) -> np.ndarray:
    """Number of independent draws that would know the mean of each quantity as well.

    From the autocorrelations combined over the chains, summed while sums of neighbouring pairs stay
    positive (Geyer's initial positive sequence). A quantity that never moved counts every draw.

    Parameters
    ----------
    series : array of shape (n_chains, n_samples, n_quantities)

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.solvers.group.gibbs import effective_sample_size
    >>> chains = np.random.default_rng(0).standard_normal((4, 500, 1))
    >>> bool(abs(effective_sample_size(chains)[0] / 2000 - 1) < 0.2)
    True
    """
    n_chains, n, m = series.shape
    total = n_chains * n
    out = np.full(m, float(total))
    for j in range(m):  # one at a time: the transforms are as long as the chains
        x = series[:, :, j].astype(np.float64)
        within = x.var(axis=1, ddof=1).mean()
        if not within > 0:
            continue
        plus = within * (n - 1) / n
        if n_chains > 1:
            plus += x.mean(axis=1).var(ddof=1)
        rho = 1.0 - (within - _autocovariance(x).mean(axis=0)) / plus
        pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
        last = np.argmax(pairs <= 0) if np.any(pairs <= 0) else len(pairs)
        tau = max(2.0 * pairs[:last].sum() - 1.0, 1.0 / np.log10(total))
        out[j] = total / tau
    return out


def _autocovariance(x: np.ndarray) -> np.ndarray:
    """Autocovariances of each chain (rows); that of lag 0 is the unbiased variance."""
    n = x.shape[1]
    size = 2 ** int(np.ceil(np.log2(2 * n)))
    f = np.fft.rfft(x - x.mean(axis=1, keepdims=True), size, axis=1)
    return np.fft.irfft(f * f.conj(), size, axis=1)[:, :n] / (n - 1)
