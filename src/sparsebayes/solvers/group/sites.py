"""Spike-and-slab sites of EP: cavities, tilted moments, updates and their part of the evidence.

Steps 1 to 4 of `ep`, for any likelihood that enters through `Marginals`. A block is a whole group,
a cluster of groups (`clusters`) or a single column; blocks of one group are tied by their log-odds
alone. Where arrays have one value per group, a cluster stands at its first group, except for the
prior and the description of each group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit, log_expit, logit

from ...linalg.blocks import Bucket, ColumnBlocks, factor, log_diagonal, runs, times, transposed
from ...priors import SlabFit, fit_slab
from .clusters import (
    ClusterFit,
    any_log_odds,
    cluster_sites,
    exceeds_cluster_limit,
    fit_cluster,
    models,
)
from .hyperprior import LARGEST_PRIOR, Hyperprior
from .marginals import Blocks, Marginals
from .mixing import Mixing

_WIDEST = 100.0  # v_inf/v0: the variance of a site whose tilted variance exceeds the cavity's
_SMALLEST_RHO = 1e-100
_OUT = 1e-3
ALWAYS = 50.0  # prior log-odds of a group that is always in
_RUN = 2**15  # entries of the k x k matrices treated at a time
_MOST_UNMIXED = 10.0  # times tol: change without mixing at convergence
_SMALLEST_M = 1e-15  # eigenvalues of M below this are rounding


@dataclass
class Cavity:
    """The blocks of one bucket without their sites, and what the prior makes of them."""

    B: np.ndarray
    r: np.ndarray
    log_odds: np.ndarray  # c
    slab: SlabFit | ClusterFit
    rho: np.ndarray
    log_gaussian: np.ndarray  # what the Gaussian part of each site adds to the log evidence
    mean: np.ndarray
    variance: np.ndarray

    @classmethod
    def empty(cls, bucket: Bucket) -> Cavity:
        """Room for the blocks of a bucket."""
        count, k = bucket.columns.shape
        one, two, three = (np.empty((count, *[k] * m)) for m in range(3))
        parts = (one.copy(), two.copy(), three.copy(), one.copy())
        if bucket.groups is None:
            slab: SlabFit | ClusterFit = SlabFit(*parts)
        else:
            c = bucket.groups.shape[1]
            more = (three.copy(), np.empty((count, len(models(c)))), np.empty((count, c)))
            slab = ClusterFit(*parts, *more)
        return cls(three, two, one, slab, one.copy(), one.copy(), two.copy(), two.copy())

    def put(self, which: Blocks, part: Cavity) -> None:
        """Write the blocks of `part` over those at `which`."""
        for name in ("B", "r", "log_gaussian", "mean", "variance"):
            getattr(self, name)[which] = getattr(part, name)
        for name, values in vars(part.slab).items():
            getattr(self.slab, name)[which] = values


@dataclass
class SpikeSlabSites:
    """Natural parameters of all sites, and what follows from them. Lists run over buckets.

    Parameters
    ----------
    blocks : ColumnBlocks
    prior_log_odds : array of shape (n_groups,)
        logit p0.
    slab_variance : array of shape (n_groups,)
        v0.
    precision, shift, log_odds : lists of arrays
        T (n_blocks, k, k), nu (n_blocks, k) and pt (n_blocks,).
    """

    blocks: ColumnBlocks
    prior_log_odds: np.ndarray
    slab_variance: np.ndarray
    precision: list[np.ndarray]
    shift: list[np.ndarray]
    log_odds: list[np.ndarray]
    # How many groups there are beside these, all nearly out, and the sum of their Bayes factors.
    outside: tuple[int, float] = field(init=False, default=(0, 0.0))
    hyperprior: Hyperprior | None = field(init=False, default=None)  # of what is learnt
    # The sum of Bayes factors in `outside` at each slab node of the hyperprior, where known.
    factors_by_slab: np.ndarray | None = field(init=False, default=None)
    # Of log-odds, and of shifts in units of the slab: a site beyond it is not accepted.
    limit: float = field(init=False, default=np.finfo(float).max)
    root: list[np.ndarray] = field(init=False)  # R, lower, T = R R'
    half: list[np.ndarray] = field(init=False)  # R^-1, so the site covariance is half' half
    cavities: list[Cavity] = field(init=False, default_factory=list)
    mean: np.ndarray = field(init=False)
    variance: np.ndarray = field(init=False)
    had_numerical_failure: bool = field(init=False, default=False)  # in the last update
    # How far the last update moves the marginals without mixing, to first order; 0 if not mixed.
    unmixed_change: float = field(init=False, default=0.0)
    # The prior that `any_prior` was made of, and that.
    _any: tuple[np.ndarray, np.ndarray] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        pairs = [factor(T) for T in self.precision]
        self.root, self.half = [R for R, _ in pairs], [F for _, F in pairs]

    @classmethod
    def start(cls, blocks: ColumnBlocks, p0: np.ndarray, v0: np.ndarray) -> SpikeSlabSites:
        """T = I/(p0 v0), nothing else: uniform sites would leave V singular when d > n."""
        precision, shift, log_odds = [], [], []
        for bucket in blocks.buckets:
            scale = 1.0 / _by_column(bucket, p0 * v0)
            precision.append(np.eye(bucket.size) * scale[:, :, None])
            shift.append(np.zeros(bucket.columns.shape))
            log_odds.append(np.zeros(len(bucket.owner)))
        return cls(blocks, log_odds_of(p0), v0, precision, shift, log_odds)

    def regrouped(self, blocks: ColumnBlocks) -> SpikeSlabSites:
        """Return the sites on another partition of the groups; diagonal within larger blocks."""
        tau = self.blocks.merge([np.einsum("gii->gi", T) for T in self.precision])
        nu = self.blocks.merge(self.shift)
        count = np.zeros(blocks.n_groups)
        for bucket in blocks.buckets:
            count += np.bincount(bucket.owner, minlength=blocks.n_groups)
        votes = self.blocks.per_group(self.log_odds) / np.maximum(count, 1.0)
        precision = [np.eye(b.size) * tau[b.columns][:, :, None] for b in blocks.buckets]
        return SpikeSlabSites(
            blocks,
            self.prior_log_odds,
            self.slab_variance,
            precision,
            [nu[b.columns] for b in blocks.buckets],
            [votes[b.owner] for b in blocks.buckets],
        )

    def part(self, masks: list[np.ndarray]) -> SpikeSlabSites:
        """The sites of the blocks that `masks` marks, one mask per bucket."""
        fields = (self.precision, self.shift, self.log_odds)
        chosen = [[x[m] for x, m in zip(f, masks, strict=True) if m.any()] for f in fields]
        blocks = self.blocks.part(masks)
        part = SpikeSlabSites(blocks, self.prior_log_odds, self.slab_variance, *chosen)
        part.limit = self.limit
        return part

    def put(self, masks: list[np.ndarray], part: SpikeSlabSites) -> None:
        """Write back what `part` gave out."""
        marked = [i for i, m in enumerate(masks) if m.any()]
        for name in ("precision", "shift", "log_odds", "root", "half"):
            mine, theirs = getattr(self, name), getattr(part, name)
            for i, values in zip(marked, theirs, strict=True):
                mine[i] = mine[i].copy()
                mine[i][masks[i]] = values

    @property
    def always(self) -> np.ndarray:
        """Which groups are in for good."""
        return self.prior_log_odds >= ALWAYS

    @property
    def any_prior(self) -> np.ndarray:
        """Prior log-odds of each group, or of a cluster at its first group (the others: none)."""
        if self._any is None or self._any[0] is not self.prior_log_odds:
            prior = self.prior_log_odds.copy()
            for bucket in self.blocks.buckets:
                if bucket.groups is not None:
                    prior[bucket.groups] = -np.inf
                    prior[bucket.owner] = any_log_odds(self.prior_log_odds[bucket.groups])
            self._any = (self.prior_log_odds, prior)
        return self._any[1]

    @property
    def exceeds_cluster_limit(self) -> bool:
        """True if a cluster would have more groups in than are allowed."""
        slabs = (cavity.slab for cavity in self.cavities)
        return any(isinstance(s, ClusterFit) and exceeds_cluster_limit(s) for s in slabs)

    @property
    def group_log_odds(self) -> np.ndarray:
        """p of each group, or of a cluster at its first group."""
        return self.any_prior + self.blocks.per_group(self.log_odds)

    @property
    def inclusion(self) -> np.ndarray:
        """Probability of each group."""
        p = expit(self.group_log_odds)
        for bucket, cavity in zip(self.blocks.buckets, self.cavities, strict=False):
            if isinstance(cavity.slab, ClusterFit):
                p[bucket.groups] = p[bucket.owner][:, None] * cavity.slab.inclusion
        return p

    @property
    def rounding(self) -> float:
        """The error of the slabs in the log evidence, where each B has one of eps tr(B)."""
        total = 0.0
        for cavity in self.cavities:
            slab = cavity.slab
            square = slab.square.sum(1) if isinstance(slab, ClusterFit) else slab.second_moment()
            total += float(cavity.rho @ (np.einsum("gii->g", cavity.B) * square))
        return float(np.finfo(float).eps) * total

    def absorb(self, marginals: Marginals) -> None:
        """Return marginals, cavities and tilted moments from the likelihood (steps 1 and 2)."""
        p = self.group_log_odds
        if not self.cavities:
            self.cavities = [Cavity.empty(bucket) for bucket in self.blocks.buckets]
        for i, bucket in enumerate(self.blocks.buckets):
            cavity = self.cavities[i]
            for which in self._runs(i):
                cavity.put(which, self._cavities(i, which, marginals))
            cavity.log_odds = p[bucket.owner] - self.log_odds[i]
            cavity.rho = np.maximum(
                expit(cavity.log_odds + cavity.slab.log_bayes_factor), _SMALLEST_RHO
            )
        self.mean = self.blocks.merge([c.mean for c in self.cavities])
        self.variance = self.blocks.merge([c.variance for c in self.cavities])

    def _runs(self, i: int) -> Iterator[slice]:
        """The blocks of bucket i, in runs that stay in the cache."""
        return runs(len(self.log_odds[i]), max(1, _RUN // self.blocks.buckets[i].size ** 2))

    def _cavities(self, i: int, which: Blocks, marginals: Marginals) -> Cavity:
        """Return the cavities of some blocks of bucket i; their log-odds are still empty."""
        R, F, nu = self.root[i][which], self.half[i][which], self.shift[i][which]
        H, right, M, q = marginals.blocks(i, which, F, R)
        inner, u = times(F, nu), times(F, nu + q)
        Z = _inverse_root(M)
        # B = H + H F M^-1 F'H,  r = (I + H F M^-1 F')(q + H S nu): sums, nothing cancels.
        U = Z @ right
        g = q + times(transposed(right), inner)
        B = H + transposed(U) @ U
        r = g + times(transposed(U), times(Z, times(F, g)))
        # 1/2 log|(B + T) T^-1| = -1/2 log|M|;  (r + nu)'(B + T)^-1 (r + nu) = u' M^-1 u.
        log_gaussian = log_diagonal(Z) + 0.5 * np.sum(inner**2 - times(Z, u) ** 2, axis=1)
        slab = self.slab_fit(i, B, r, which)
        mean, variance = times(transposed(F), u), np.sum(F * (M @ F), axis=1)
        empty = np.empty(len(r))
        return Cavity(B, r, empty, slab, empty, log_gaussian, mean, variance)

    def slab_fit(
        self, i: int, B: np.ndarray, r: np.ndarray, which: Blocks = slice(None)
    ) -> SlabFit | ClusterFit:
        """Slab against spike for blocks of bucket i whose likelihood is exp(r'w - w'Bw/2)."""
        bucket = self.blocks.buckets[i]
        if bucket.groups is None or bucket.position is None:
            return fit_slab(B, r, self.slab_variance[bucket.owner[which]])
        v0 = _by_column(bucket, self.slab_variance)[which]
        return fit_cluster(B, r, v0, self.prior_log_odds[bucket.groups[which]], bucket.position)

    def update(self, xi: float) -> int:
        """Update all sites, damped (steps 3 and 4), and return how many were clamped."""
        clamped, self.had_numerical_failure, self.unmixed_change = 0, False, 0.0
        for i in range(len(self.blocks.buckets)):
            # Others may hold the former arrays.
            for values in (self.precision, self.shift, self.root, self.half, self.log_odds):
                values[i] = values[i].copy()
            clamped += sum(self._update(i, which, xi) for which in self._runs(i))
        return clamped

    def parameters(self) -> list[list[np.ndarray]]:
        """The natural parameters as they are now; `update` leaves these arrays alone."""
        return [list(x) for x in (self.precision, self.shift, self.log_odds, self.root, self.half)]

    def restore(self, parameters: list[list[np.ndarray]]) -> None:
        """Go back to former `parameters`."""
        self.precision, self.shift, self.log_odds, self.root, self.half = map(list, parameters)

    def mix(
        self,
        mixing: Mixing,
        before: list[list[np.ndarray]],
        xi: float,
        others: Sequence[np.ndarray] = (),
    ) -> np.ndarray:
        """Mix what an `update` of `before` gave with former steps.

        A site that would be too wide, or diverge, stays as it is.

        Groups that are out take no part. `others` are x, f and weighted f (see `Mixing`) of what
        else moves with the sites; its correction is returned.
        """
        p = expit(self.group_log_odds)
        live = p > _OUT
        x, f, weighted = [], [], []
        for i, bucket in enumerate(self.blocks.buckets):
            sd = np.sqrt(np.maximum(self.cavities[i].variance, 0.0))
            moves = live[bucket.owner]
            unit = (moves / np.sqrt(self.slab_variance[bucket.owner]))[:, None]
            odds = p[bucket.owner]
            # By how much a change of each parameter moves the marginals, in units of the slab.
            size = (
                sd[:, :, None] * (unit * sd**2)[:, None, :],
                unit * sd**2,
                moves * odds * (1.0 - odds),
            )
            sites = (self.precision[i], self.shift[i], self.log_odds[i])
            for now, former, weight in zip(sites, before[:3], size, strict=True):
                was = former[i]
                x.append(was.ravel())
                f.append((now - was).ravel() / xi)
                weighted.append(f[-1] * weight.ravel())
        for values, more in zip((x, f, weighted), others, strict=False):
            values.append(more)
        joined = [np.concatenate(v) for v in (x, f, weighted)]
        self.unmixed_change = float(np.max(np.abs(joined[2])))
        change = mixing.correction(joined[0], joined[1], joined[2], xi)
        start = 0
        for i, bucket in enumerate(self.blocks.buckets):
            parts = []
            for now in (self.precision[i], self.shift[i], self.log_odds[i]):
                parts.append(change[start : start + now.size].reshape(now.shape))
                start += now.size
            which = np.flatnonzero(live[bucket.owner])
            R, F = factor(self.precision[i][which] + parts[0][which])
            # Wide beyond the clamp, or not a number, it is no site.
            most = 2.0 * _WIDEST * bucket.size * self.slab_variance[bucket.owner[which]]
            good = np.sum(F**2, axis=(1, 2)) < most
            shift, odds = self.shift[i] + parts[1], self.log_odds[i] + parts[2]
            v0 = _by_column(bucket, self.slab_variance)[which]
            good &= ~self._diverges(shift[which], odds[which], v0)
            which = which[good]
            self.precision[i][which] += parts[0][which]
            self.root[i][which], self.half[i][which] = R[good], F[good]
            self.shift[i][which] += parts[1][which]
            self.log_odds[i][which] += parts[2][which]
        return change[start:]

    def _update(self, i: int, which: slice, xi: float) -> int:
        c, bucket = self.cavities[i], self.blocks.buckets[i]
        v0 = _by_column(bucket, self.slab_variance)[which]
        target, shift, clamped = _new_sites(
            c.B[which],
            c.r[which],
            c.rho[which],
            type(c.slab)(*(x[which] for x in vars(c.slab).values())),
            v0,
        )
        former, was = self.precision[i][which], self.shift[i][which]
        T, nu = former + xi * (target - former), was + xi * (shift - was)
        R, F = factor(T)
        pt, votes = c.slab.log_bayes_factor[which], self.log_odds[i][which]
        # A block whose update failed numerically, or diverges, keeps its old site in this step.
        bad = ~np.isfinite(R[:, -1, -1]) | self._diverges(nu, pt, v0)
        if bad.any():
            self.had_numerical_failure = True
            T[bad], nu[bad] = former[bad], was[bad]
            R[bad], F[bad] = self.root[i][which][bad], self.half[i][which][bad]
        step = np.where(bad, 0.0, pt - votes)
        self.precision[i][which], self.shift[i][which] = T, nu
        self.root[i][which], self.half[i][which] = R, F
        self.log_odds[i][which] = votes + xi * step
        return clamped

    def _diverges(self, nu: np.ndarray, log_odds: np.ndarray, v0: np.ndarray) -> np.ndarray:
        """Which blocks have shifts (in units of the slab) or log-odds beyond the limit, or NaN."""
        with np.errstate(over="ignore", invalid="ignore"):
            size = np.maximum(np.max(np.abs(nu) * np.sqrt(v0), axis=1), np.abs(log_odds))
        return np.asarray(~(size <= self.limit))

    def distance(self, before: tuple[np.ndarray, np.ndarray, np.ndarray]) -> float:
        """Return the largest change since the snapshot `before`; infinite if an update failed."""
        if self.had_numerical_failure:
            return np.inf
        return float(
            max(np.max(np.abs(a - b)) for a, b in zip(self.snapshot(), before, strict=True))
        )

    def at_rest(self, change: float, tol: float) -> bool:
        """Return whether the sites have converged to `tol`, of which the last `change` was.

        Mixing can take back all of a large step: that nothing has moved is no convergence then.
        """
        return change <= tol and self.unmixed_change <= _MOST_UNMIXED * tol

    def snapshot(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Inclusion, and mean and standard deviation in units of sqrt(v0)."""
        unit = np.sqrt(self.by_column(self.slab_variance))
        return self.inclusion, self.mean / unit, np.sqrt(np.maximum(self.variance, 0.0)) / unit

    def by_column(self, per_group: np.ndarray) -> np.ndarray:
        """One value per group, repeated for its columns (in their original order)."""
        return self.blocks.merge([_by_column(b, per_group) for b in self.blocks.buckets])

    def log_evidence(self) -> float:
        """Return the prior's part of the evidence: the last three lines of (28), rearranged."""
        return float(np.sum(self.log_evidence_by_group())) + self.log_evidence_out()

    def log_evidence_out(self) -> float:
        """Return the part of the groups outside: sum log(1 - p0 + p0 BF), where p0 BF is small."""
        count, factors = self.outside
        if count == 0:
            return 0.0
        prior = self.prior_log_odds[~self.always].mean()
        return float(count * log_expit(-prior) + factors * np.exp(prior))

    def log_evidence_by_group(self) -> np.ndarray:
        """Return the prior's part of the evidence by group (a cluster at its first group)."""
        parts = []
        for cavity, pt in zip(self.cavities, self.log_odds, strict=True):
            c = cavity.log_odds
            inside, excluded = log_expit(c), log_expit(-c)
            part = cavity.log_gaussian + log_expit(-pt)
            with np.errstate(invalid="ignore"):  # NaN ends the run
                part = part + np.logaddexp(inside + cavity.slab.log_bayes_factor, excluded)
            parts.append(part - np.logaddexp(inside + log_expit(pt), excluded + log_expit(-pt)))
        prior, votes = self.any_prior, self.blocks.per_group(self.log_odds)
        ties = np.logaddexp(log_expit(prior) + votes, log_expit(-prior))
        return self.blocks.per_group(parts) + ties

    # Learning: gradients at a fixed point, and the EM form of them.

    def inclusion_gradient(self) -> np.ndarray:
        """d log Z / d logit p0 of each group."""
        return self.inclusion - expit(self.prior_log_odds)

    def slab_gradient(self) -> np.ndarray:
        """d log Z / d log v0 of each group."""
        square, size = self._slab_moments()
        return 0.5 * (square / self.slab_variance - size)

    def learnt(self, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """logit p0 and log v0 common to `groups`, the EM step of each, and the gradient."""
        # At least half a group in, or the logarithm would not stay finite; at most half of all.
        h = np.array(
            [self.prior_log_odds[groups].mean(), np.log(self.slab_variance[groups]).mean()]
        )
        total, expected = len(groups) + self.outside[0], self.outside[1] * np.exp(h[0])
        square, size = self._slab_moments()
        # A Beta(1, b) prior counts as one group that is in and b that are out.
        ones, zeros = (0.0, 0.0) if self.hyperprior is None else (1.0, self.hyperprior.b)
        new = (self.inclusion[groups].sum() + expected + ones) / (total + ones + zeros)
        new = np.clip(new, min(0.5 / total, LARGEST_PRIOR), LARGEST_PRIOR)
        least = np.finfo(float).tiny  # of copies of a column without noise nothing may be left
        variance = max(square[groups].sum(), least) / max(size[groups].sum(), least)
        new = np.array([logit(new), np.log(variance)])
        gradient = [x[groups].sum() for x in (self.inclusion_gradient(), self.slab_gradient())]
        gradient[0] += expected - self.outside[0] * expit(h[0])
        gradient[0] += ones - (ones + zeros) * expit(h[0])
        return h, new - h, np.array(gradient)

    def put_inclusion(self, groups: np.ndarray, log_odds: float) -> None:
        """A common logit p0 for `groups`."""
        least = logit(min(0.5 / (len(groups) + self.outside[0]), LARGEST_PRIOR))
        self.prior_log_odds = self.prior_log_odds.copy()
        self.prior_log_odds[groups] = np.clip(log_odds, least, logit(LARGEST_PRIOR))

    def put_slab(self, groups: np.ndarray, variance: float) -> None:
        """A common v0 for `groups`."""
        self.slab_variance = self.slab_variance.copy()
        self.slab_variance[groups] = variance

    def _slab_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """E|w_g|^2 under the slab and the size of g, both times the inclusion probability."""
        p, weight = expit(self.group_log_odds), np.maximum(self.inclusion, _SMALLEST_RHO)
        square, size = np.zeros_like(p), self.blocks.sizes()
        for bucket, cavity in zip(self.blocks.buckets, self.cavities, strict=True):
            slab = cavity.slab
            if isinstance(slab, ClusterFit):
                square[bucket.groups] = p[bucket.owner][:, None] * slab.square
                size[bucket.groups] = np.bincount(np.asarray(bucket.position))
            else:
                moment = np.bincount(bucket.owner, slab.second_moment(), minlength=len(p))
                square += weight * moment
        return square, weight * size


def log_odds_of(p0: np.ndarray) -> np.ndarray:
    """logit p0, and `ALWAYS` where it is one."""
    return np.where(p0 < 1.0, logit(np.minimum(p0, 1.0 - 1e-16)), ALWAYS)


def _by_column(bucket: Bucket, per_group: np.ndarray) -> np.ndarray:
    """One value per group, for each column of each block."""
    if bucket.groups is None:
        return np.broadcast_to(per_group[bucket.owner][:, None], bucket.columns.shape)
    return np.asarray(per_group[bucket.groups][:, bucket.position])


def _new_sites(
    B: np.ndarray, r: np.ndarray, rho: np.ndarray, slab: SlabFit | ClusterFit, v0: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """T* and nu* (step 3), and how many blocks had eigenvalues raised; v0 by column."""
    if isinstance(slab, ClusterFit):
        return cluster_sites(B, r, rho, slab, v0, _WIDEST)
    mu, s, v0 = slab.mean, slab.fit, v0[:, 0]  # s = r'mu
    kappa = (1.0 - rho) / (1.0 + (1.0 - rho) * s)
    T = (1.0 - rho)[:, None, None] * B
    T -= (kappa[:, None] * r)[:, :, None] * r[:, None, :]
    np.einsum("gii->gi", T)[...] += (1.0 / v0)[:, None]
    T /= rho[:, None, None]
    nu = -(kappa * s)[:, None] * r
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
    nu[look] = times(B[look] + T[look], rho[look, None] * mu[look]) - r[look]
    return T, nu, look.size


def _inverse_root(M: np.ndarray) -> np.ndarray:
    """Z lower triangular with Z'Z = M^-1; eigenvalues that rounding took below zero are raised."""
    R, Z = factor(M)
    bad = ~np.isfinite(R[:, -1, -1])
    if bad.any():
        values, vectors = np.linalg.eigh(M[bad])
        values = np.maximum(values, _SMALLEST_M)
        raised = (vectors * values[:, None, :]) @ transposed(vectors)
        Z[bad] = factor(raised + _SMALLEST_M * np.eye(M.shape[1]))[1]
    return Z
