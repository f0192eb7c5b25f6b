"""Spike-and-slab sites of EP: cavities, tilted moments, updates and their part of the evidence.

Steps 1 to 4 of `group_ep`, for any likelihood that enters through `_group_forms.Marginals`. A block
is a whole group or a single column; every formula is the same, and blocks of one group are tied by
their log-odds alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit, log_expit, logit

from ..linalg.blocks import Partition, cholesky, log_diagonal, times, transposed, triangle_inverse
from ..priors import SlabFit, fit_slab
from ._group_forms import Marginals

_WIDEST = 100.0  # v_inf/v0: the variance of a site whose tilted variance exceeds the cavity's
_SMALLEST_RHO = 1e-100
_SMALLEST_M = 1e-15  # eigenvalues of M below this are rounding


@dataclass
class Cavity:
    """The blocks of one bucket without their sites, and what the prior makes of them."""

    B: np.ndarray
    r: np.ndarray
    log_odds: np.ndarray  # c
    slab: SlabFit
    rho: np.ndarray


@dataclass
class SpikeSlabSites:
    """Natural parameters of all sites, and what follows from them. Lists run over buckets.

    Parameters
    ----------
    blocks : Partition
    prior_log_odds : array of shape (n_groups,)
        logit p0.
    slab_variance : array of shape (n_groups,)
        v0.
    precision, shift, log_odds : lists of arrays
        T (n_blocks, k, k), nu (n_blocks, k) and pt (n_blocks,).
    """

    blocks: Partition
    prior_log_odds: np.ndarray
    slab_variance: np.ndarray
    precision: list[np.ndarray]
    shift: list[np.ndarray]
    log_odds: list[np.ndarray]
    root: list[np.ndarray] = field(init=False)  # R, lower, T = R R'
    half: list[np.ndarray] = field(init=False)  # R^-1, so the site covariance is half' half
    cavities: list[Cavity] = field(init=False, default_factory=list)
    mean: np.ndarray = field(init=False)
    variance: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.root = [cholesky(T) for T in self.precision]
        self.half = [triangle_inverse(R) for R in self.root]

    @classmethod
    def start(cls, blocks: Partition, p0: np.ndarray, v0: np.ndarray) -> SpikeSlabSites:
        """T = I/(p0 v0), nothing else: uniform sites would leave V singular when d > n."""
        precision, shift, log_odds = [], [], []
        for bucket in blocks.buckets:
            scale = 1.0 / (p0 * v0)[bucket.owner]
            precision.append(np.eye(bucket.size) * scale[:, None, None])
            shift.append(np.zeros(bucket.columns.shape))
            log_odds.append(np.zeros(len(bucket.owner)))
        return cls(blocks, logit(p0), v0, precision, shift, log_odds)

    def regrouped(self, blocks: Partition) -> SpikeSlabSites:
        """The same sites on another partition of the same groups; diagonal within larger blocks."""
        tau = self.blocks.merge([np.einsum("gii->gi", T) for T in self.precision])
        nu = self.blocks.merge(self.shift)
        count = np.zeros(blocks.n_groups)
        for bucket in blocks.buckets:
            count += np.bincount(bucket.owner, minlength=blocks.n_groups)
        votes = self.blocks.per_group(self.log_odds) / count
        precision = [np.eye(b.size) * tau[b.columns][:, :, None] for b in blocks.buckets]
        return SpikeSlabSites(
            blocks,
            self.prior_log_odds,
            self.slab_variance,
            precision,
            [nu[b.columns] for b in blocks.buckets],
            [votes[b.owner] for b in blocks.buckets],
        )

    @property
    def group_log_odds(self) -> np.ndarray:
        """p of each group."""
        return self.prior_log_odds + self.blocks.per_group(self.log_odds)

    @property
    def inclusion(self) -> np.ndarray:
        """sig(p) of each group."""
        return expit(self.group_log_odds)

    def absorb(self, marginals: Marginals) -> None:
        """Marginals, cavities and tilted moments from what the likelihood says (steps 1 and 2)."""
        p = self.group_log_odds
        self.cavities, means, variances = [], [], []
        for i, bucket in enumerate(self.blocks.buckets):
            R, F, H, M, q = (
                x[i] for x in (self.root, self.half, marginals.H, marginals.M, marginals.q)
            )
            inner = times(F, self.shift[i])
            means.append(times(transposed(F), inner + q))
            variances.append(np.sum(F * (M @ F), axis=1))
            inverse = _inverse(M)
            B = R @ (inverse @ H) @ transposed(R)
            B = 0.5 * (B + transposed(B))
            r = times(R, times(inverse, q + times(H, inner)))
            slab = fit_slab(B, r, self.slab_variance[bucket.owner])
            c = p[bucket.owner] - self.log_odds[i]
            rho = np.maximum(expit(c + slab.log_bayes_factor), _SMALLEST_RHO)
            self.cavities.append(Cavity(B, r, c, slab, rho))
        self.mean = self.blocks.merge(means)
        self.variance = self.blocks.merge(variances)

    def update(self, xi: float) -> int:
        """New sites, damped (steps 3 and 4); how many were clamped."""
        clamped = 0
        for i, bucket in enumerate(self.blocks.buckets):
            cavity = self.cavities[i]
            T, nu, count = _new_sites(cavity, self.slab_variance[bucket.owner])
            clamped += count
            T = self.precision[i] + xi * (T - self.precision[i])
            nu = self.shift[i] + xi * (nu - self.shift[i])
            R = cholesky(T)
            # A block that rounding spoilt keeps its old site in this step.
            bad = ~np.isfinite(R[:, -1, -1]) | ~np.isfinite(nu).all(axis=1)
            if bad.any():
                T[bad], nu[bad], R[bad] = (
                    self.precision[i][bad],
                    self.shift[i][bad],
                    self.root[i][bad],
                )
            self.precision[i], self.shift[i], self.root[i] = T, nu, R
            self.half[i] = triangle_inverse(R)
            pt = cavity.slab.log_bayes_factor
            step = np.where(np.isfinite(pt) & ~bad, pt - self.log_odds[i], 0.0)
            self.log_odds[i] = self.log_odds[i] + xi * step
        return clamped

    def distance(self, before: tuple[np.ndarray, np.ndarray, np.ndarray]) -> float:
        """Largest change of anything in `snapshot` since it gave `before`."""
        return float(
            max(np.max(np.abs(a - b)) for a, b in zip(self.snapshot(), before, strict=True))
        )

    def snapshot(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Inclusion, and mean and standard deviation in units of sqrt(v0)."""
        unit = np.sqrt(self.by_column(self.slab_variance))
        return self.inclusion, self.mean / unit, np.sqrt(np.maximum(self.variance, 0.0)) / unit

    def by_column(self, per_group: np.ndarray) -> np.ndarray:
        """One value per group, repeated for its columns (in their original order)."""
        return self.blocks.merge(
            [
                np.broadcast_to(per_group[b.owner][:, None], b.columns.shape)
                for b in self.blocks.buckets
            ]
        )

    def log_evidence(self, marginals: Marginals) -> float:
        """What the prior adds to log N(y; X S nu, C): the last three lines of (28), rearranged."""
        total = 0.0
        for i in range(len(self.blocks.buckets)):
            c, pt, cavity = self.cavities[i].log_odds, self.log_odds[i], self.cavities[i]
            inner = times(self.half[i], self.shift[i])
            Z = _inverse_root(marginals.M[i])
            # 1/2 log|(B + T) T^-1| = -1/2 log|M|;  (r + nu)'(B + T)^-1 (r + nu) = u' M^-1 u.
            total += np.sum(log_diagonal(Z))
            total += 0.5 * np.sum(inner**2) - 0.5 * np.sum(times(Z, inner + marginals.q[i]) ** 2)
            inside, outside = log_expit(c), log_expit(-c)
            total += np.sum(np.logaddexp(inside + cavity.slab.log_bayes_factor, outside))
            total -= np.sum(np.logaddexp(inside + log_expit(pt), outside + log_expit(-pt)))
            total += np.sum(log_expit(-pt))
        prior = self.prior_log_odds
        votes = self.group_log_odds - prior
        return float(total + np.sum(np.logaddexp(log_expit(prior) + votes, log_expit(-prior))))

    # Type-II maximum likelihood: gradients at a fixed point, and the EM form of them.

    def inclusion_gradient(self) -> np.ndarray:
        """d log Z / d logit p0 of each group."""
        return self.inclusion - expit(self.prior_log_odds)

    def slab_gradient(self) -> np.ndarray:
        """d log Z / d log v0 of each group."""
        square, size = self._slab_moments()
        return 0.5 * (square / self.slab_variance - size)

    def learn_inclusion(self, groups: np.ndarray) -> float:
        """One EM step for a p0 common to `groups`; by how much its logit moved."""
        # At least half a group in and half a group out: the logarithm must stay finite.
        margin = 0.5 / len(groups)
        new = logit(np.clip(self.inclusion[groups].mean(), margin, 1.0 - margin))
        moved = float(np.max(np.abs(new - self.prior_log_odds[groups])))
        self.prior_log_odds = self.prior_log_odds.copy()
        self.prior_log_odds[groups] = new
        return moved

    def learn_slab(self, groups: np.ndarray, smallest: float, largest: float = np.inf) -> float:
        """One EM step for a v0 common to `groups`, within bounds; by how much its log moved."""
        square, size = self._slab_moments()
        new = float(np.clip(square[groups].sum() / size[groups].sum(), smallest, largest))
        moved = float(np.max(np.abs(np.log(new / self.slab_variance[groups]))))
        self.slab_variance = self.slab_variance.copy()
        self.slab_variance[groups] = new
        return moved

    def _slab_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """E|w_g|^2 under the slab and the size of g, both times the inclusion probability."""
        weight = np.maximum(self.inclusion, _SMALLEST_RHO)
        pairs = list(zip(self.blocks.buckets, self.cavities, strict=True))
        square = self.blocks.per_group([c.slab.second_moment() for _, c in pairs])
        size = self.blocks.per_group([np.full(len(b.owner), float(b.size)) for b, _ in pairs])
        return weight * square, weight * size


def _new_sites(c: Cavity, v0: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """T* and nu* (step 3), and how many blocks had eigenvalues raised."""
    rho, s = c.rho, c.slab.fit
    kappa = (1.0 - rho) / (1.0 + (1.0 - rho) * s)
    T = (1.0 - rho)[:, None, None] * c.B
    T -= kappa[:, None, None] * (c.r[:, :, None] * c.r[:, None, :])
    np.einsum("gii->gi", T)[...] += (1.0 / v0)[:, None]
    T /= rho[:, None, None]
    nu = -(kappa * s)[:, None] * c.r
    # Where rho r'mu <= 1, T* >= I/v0: only the other blocks need their eigenvalues.
    doubtful = np.flatnonzero(rho * s > 1.0)
    doubtful = doubtful[np.isfinite(T[doubtful]).all(axis=(1, 2))]
    if doubtful.size == 0:
        return T, nu, 0
    values, vectors = np.linalg.eigh(T[doubtful])
    lowest = 1.0 / (_WIDEST * v0[doubtful])
    low = values[:, 0] < lowest
    look, vectors = doubtful[low], vectors[low]
    values = np.maximum(values[low], lowest[low, None])
    T[look] = (vectors * values[:, None, :]) @ transposed(vectors)
    nu[look] = times(c.B[look] + T[look], rho[look, None] * c.slab.mean[look]) - c.r[look]
    return T, nu, look.size


def _inverse_root(M: np.ndarray) -> np.ndarray:
    """Z lower triangular with Z'Z = M^-1; eigenvalues that rounding took below zero are raised."""
    R = cholesky(M)
    bad = ~np.isfinite(R[:, -1, -1])
    if bad.any():
        values, vectors = np.linalg.eigh(M[bad])
        values = np.maximum(values, _SMALLEST_M)
        R[bad] = cholesky(
            (vectors * values[:, None, :]) @ transposed(vectors) + _SMALLEST_M * np.eye(M.shape[1])
        )
    return triangle_inverse(R)


def _inverse(M: np.ndarray) -> np.ndarray:
    Z = _inverse_root(M)
    return transposed(Z) @ Z
