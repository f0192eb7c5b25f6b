"""Group spike-and-slab regression by expectation propagation.

Model (Hernández-Lobato, Hernández-Lobato and Dupont, JMLR 14, 2013):

    t = Phi w + e,  e ~ N(0, sigma2 I),  z_g ~ Bernoulli(p0_g),
    w_g | z_g = 1 ~ N(0, v0_g I),  w_g | z_g = 0  =  0,

approximated by N(w | m, V) prod_g Bernoulli(z_g | sig(p_g)). Each block (a whole group, or one
column as in the paper) has a Gaussian site of precision T and shift nu, and a log-odds pt:

    V^-1 = Phi'Phi/sigma2 + T,   m = V (Phi't/sigma2 + nu),   p_g = logit p0_g + sum of pt in g.

One step, all blocks at once (section 3.2):

1. cavity (24)-(26): precision B, shift r, log-odds c = p_g - pt, in a form that never subtracts
   two nearly equal precisions (`marginals`);
2. tilted moments: slab against spike given the cavity, rho = sig(pt* + c) with pt* the log Bayes
   factor, Sigma = (B + I/v0)^-1, mu = Sigma r (`priors.fit_slab`);
3. the new site has the tilted mean and covariance; in closed form, free of cancellation,
       T* = [(1 - rho) B + I/v0 - kappa r r']/rho,   kappa = (1 - rho)/(1 + (1 - rho) r'mu),
       nu* = -kappa (r'mu) r;
   eigenvalues of T* below 1/(100 v0) are raised to it;
4. damping (13): theta <- xi theta* + (1 - xi) theta, with xi = 0.9, times 0.99 a step, at least
   0.1; then the last steps are mixed (`Mixing`);
5. the noise is cooled (below), or, once the sites have settled, p0, v0 and sigma2 take one step
   of type-II maximum likelihood where asked (`learning`): the EM form of the gradients of (28),
       p0 <- mean sig(p_g),   v0 <- sum_g sig(p_g)(tr Sigma + |mu|^2) / sum_g sig(p_g) k_g,
       sigma2 <- |t - Phi m|^2 / (N - gamma),  gamma = n - sigma2 tr C^-1.
   With a `hyperprior` it is the posterior mode that is learnt:
       p0 <- (1 + sum_g sig(p_g)) / (1 + b + G),   sigma2 <- |t - Phi m|^2 / (N - gamma - 2c).

It stops when the inclusion probabilities, the means and the standard deviations (in units of
sqrt(v0)) move by at most `tol` in a step DIVIDED BY xi (the decaying xi would fake convergence),
and the logarithms of learnt hyperparameters by at most 10 tol or for a gain of at most tol nats.
If rounding errors may move the evidence by a tenth of a nat, as with tiny noise or columns that
are equal up to rounding, models cannot be compared, and the run ends as stalled.

Cost of a step: 2 n^2 d flops for n < d, else O(d^3); group sites add O(n d k). Memory O(n d).

Deviations from the paper, and why:
- One site per group by default. Sites per column ignore the correlation inside a group: five
  columns at correlation 0.999 in an active group have exact inclusion 1.00, column sites give 0.40.
- The sign in the printed update of the site mean, after (26), is wrong; it must be minus.
- Where a site variance would be negative the paper replaces it and keeps the printed mean, which
  then matches nothing. Here nu* = (B + T*) rho mu - r: the mean is still matched.
- A uniform start makes V singular when d > n; the start is T = I/(p0 v0).
- Cooling. At low noise EP has wrong fixed points. With `cool_from` the noise starts there and
  falls by the factor `cooling` a step, the sites kept, until it reaches `noise_variance`.
- On large problems the 2 % of the columns in the likeliest groups are updated up to six times more
  in a step: they decide, and cost little.
- Anderson mixing. With damping alone, undecided and correlated groups cycle, or converge slowly: on
  45 problems at their learnt hyperparameters it took 76 steps, and 3 did not converge in 300; with
  mixing 19 steps, and all converged. Runs that still cycle are reported.
- Near-duplicates share a site (`clusters`): separate sites cycle, and learnt hyperparameters become
  wrong.
- A learnt v0 stays above the value that a group explains by chance (`least_signal`).
- Hyperparameters are learnt after the sites have settled: alternating both leads to cycles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from ...designs import Design
from ...linalg.blocks import ColumnBlocks, column_blocks
from ...posterior import Posterior
from ..run import StopReason
from .column_form import ColumnForm
from .hyperprior import Hyperprior
from .learning import SITES_DEPTH, Learning
from .marginals import Form, Marginals, has_digits
from .mixing import Mixing
from .row_form import RowForm
from .sites import SpikeSlabSites, log_odds_of

LEARNABLE = ("inclusion_prior", "slab_variance", "noise_variance")
_FOCUS_SHARE, _FOCUS_STEPS = 0.02, 6  # see GroupEP._focus
_DIVERGENT = 1e4  # times the signal: a site beyond that diverges
_ROUGH_TOL = 1e-5  # tol down to which single precision is used where it is safe


@dataclass
class State:
    """Sites and noise, and the marginals that follow from them."""

    form: Form
    sites: SpikeSlabSites
    sigma2: float
    n_rows: int
    n_observations: float
    log_volume: float
    marginals: Marginals
    xi: float
    cooling: bool
    learning: Learning
    mixing: Mixing
    change: float = np.inf  # of the sites, over xi
    log_evidence: float = -np.inf

    @property
    def inclusion_probability(self) -> np.ndarray:
        """Inclusion probability of each group."""
        return self.sites.inclusion


class Info(NamedTuple):
    """One step, for the reader."""

    change: float
    damping: float
    log_evidence: float
    expected_groups: float
    noise_variance: float
    inclusion_prior: float
    slab_variance: float
    n_clamped: int


@dataclass(frozen=True)
class GroupEP:
    """EP for the group spike-and-slab model; see the module docstring.

    Parameters
    ----------
    group_of : array of int of shape (n_columns,)
        The group of each column, 0 to n_groups - 1.
    inclusion_prior, slab_variance : float or array of shape (n_groups,)
        p0 and v0; where they are learnt, their starting values. A p0 of 1 keeps a group in for
        good; it takes no part in learning.
    noise_variance : float
        sigma2, likewise.
    sites : {"group", "column"}, default="group"
        One Gaussian site for each group, or one for each column as in the paper.
    learn : tuple of str
        Which of "inclusion_prior", "slab_variance" and "noise_variance" to learn (one common value
        each).
    cool_from : float, optional
        Noise variance at which to start cooling down to `noise_variance`.
    cooling : float, default=0.925
        Factor on the noise variance in a cooling step.
    smallest_noise : float, default=0.0
        Floor of a learnt noise variance.
    tol : float, default=1e-4
        How far probabilities, means and standard deviations may move in an undamped step at
        convergence.
    damping, decay, smallest_damping : float
        xi of the first step, its factor per step, and its floor.
    warm : SpikeSlabSites, optional
        Sites to start from.
    cluster_of : array of int of shape (n_groups,), optional
        The first group of the cluster of each group (`clusters`); for sites of groups.
    focus_from : float, default=2e8
        n^2 d from which on the likely groups are updated several times in a step.
    outside : tuple of int and float
        Number of further groups, each almost certainly excluded, and the sum of their Bayes
        factors; they enter the learning of p0 and the evidence (`screening`).
    hyperprior : Hyperprior, optional
        Prior of the learnt hyperparameters. None is type-II maximum likelihood, as in the paper.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers import GroupEP, run
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((30, 60))
    >>> t = X[:, :3] @ [1.0, -2.0, 1.0] + 0.1 * rng.standard_normal(30)
    >>> result = run(GroupEP(np.arange(60) // 3, 0.1, 1.0, 0.01), DenseDesign(X), t, max_iter=100)
    >>> result.converged, np.flatnonzero(result.state.inclusion_probability > 0.5)
    (True, array([0]))
    """

    group_of: np.ndarray
    inclusion_prior: float | np.ndarray
    slab_variance: float | np.ndarray
    noise_variance: float
    sites: str = "group"
    learn: tuple[str, ...] = ()
    cool_from: float | None = None
    cooling: float = 0.925
    smallest_noise: float = 0.0
    tol: float = 1e-4
    damping: float = 0.9
    decay: float = 0.99
    smallest_damping: float = 0.1
    warm: SpikeSlabSites | None = None
    cluster_of: np.ndarray | None = None
    focus_from: float = 2e8
    outside: tuple[int, float] = (0, 0.0)
    hyperprior: Hyperprior | None = None

    def init(self, design: Design, t: np.ndarray) -> State:
        """Return the starting sites and their marginals."""
        return self.begin(self.form(design, t), design)

    def form(self, design: Design, t: np.ndarray) -> Form:
        """Return the data in bucket order; several runs may share them."""
        blocks = self.blocks
        X = design.columns(blocks.order)
        return (RowForm if X.shape[0] < X.shape[1] else ColumnForm)(X, t, blocks)

    def begin(self, form: Form, design: Design) -> State:
        """Start as `init` does, on data already in order."""
        blocks = self.blocks
        form = form.with_blocks(blocks)
        p0 = np.broadcast_to(np.asarray(self.inclusion_prior, dtype=float), blocks.n_groups)
        v0 = np.broadcast_to(np.asarray(self.slab_variance, dtype=float), blocks.n_groups)
        if self.warm is None:
            sites = SpikeSlabSites.start(blocks, p0, v0)
        else:
            w = self.warm
            odds = log_odds_of(p0)
            sites = SpikeSlabSites(blocks, odds, v0, [*w.precision], [*w.shift], [*w.log_odds])
        sites.outside, sites.hyperprior = self.outside, self.hyperprior
        cooling = self.cool_from is not None and self.cool_from > self.noise_variance
        sigma2 = float(self.cool_from if cooling else self.noise_variance)  # type: ignore[arg-type]
        marginals = form.marginals(sites.half, sites.shift, 1.0 / sigma2, rough=self.rough)
        sites.absorb(marginals)
        return State(
            form,
            sites,
            sigma2,
            design.n_rows,
            design.n_observations,
            design.log_volume,
            marginals,
            self.damping,
            cooling,
            Learning(self.learn, self.tol),
            Mixing(SITES_DEPTH),
        )

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """Update all sites, then the noise or the hyperparameters, then the marginals."""
        sites, xi = state.sites, state.xi
        before = sites.snapshot()
        former, mix = sites.parameters(), state.learning.mix(state.change)
        sites.limit = largest_site(float(state.form.y @ state.form.y) / state.sigma2)
        clamped = sites.update(xi)
        if mix and not state.cooling:
            sites.mix(state.mixing, former, xi)
        smallest = min(self.smallest_damping, self.damping)
        state.xi = max(xi * self.decay, smallest)
        if state.cooling:
            self._cool(state)
            state.xi = self.damping
        elif state.learning.step(
            state.change,
            sites,
            lambda: self._hyper(state),
            lambda h: self._put(state, h),
            lambda: log_objective(state),
        ):
            state.mixing.forget()
            state.xi = max(state.learning.damping_scale * self.damping, smallest)
        form = state.form
        if isinstance(form, RowForm) and form.X.size * len(form.y) >= self.focus_from:
            self._focus(state, form, xi)
        state.marginals = form.marginals(
            sites.half, sites.shift, 1.0 / state.sigma2, rough=self.rough
        )
        sites.absorb(state.marginals)
        state.change = sites.distance(before) / xi
        state.log_evidence = log_evidence(state)
        free = np.flatnonzero(~sites.always)
        info = Info(
            state.change,
            xi,
            state.log_evidence,
            float(sites.inclusion.sum()),
            state.sigma2,
            float(expit(sites.prior_log_odds[free]).sum() / max(len(free), 1)),
            float(sites.slab_variance[free].sum() / max(len(free), 1)),
            clamped,
        )
        return state, info

    def _focus(self, state: State, form: RowForm, xi: float) -> None:
        """Update the groups that are likely in a few more times.

        A pass over all columns costs far more than one over these. K = X S X' of all sites is at
        hand: it is left with the sites of the others, and these are put back at every update.
        """
        sites = state.sites
        likely = _likely_groups(sites)
        masks = [likely[b.owner] for b in sites.blocks.buckets]
        part, likely_sites = form.part(masks), sites.part(masks)
        fine = form.fine(sites.half, 1.0 / state.sigma2) if self.rough else None
        K, fitted = form.prior_covariance(sites.half, sites.shift, fine)
        K, fitted = part.add_sites(
            K.copy(order="F"), fitted, likely_sites.half, likely_sites.shift, sign=-1.0
        )
        for _ in range(_FOCUS_STEPS):
            if state.cooling:
                self._cool(state)
            now = part.add_sites(K.copy(order="F"), fitted, likely_sites.half, likely_sites.shift)
            before = likely_sites.snapshot() if likely_sites.cavities else None
            likely_sites.absorb(part.solve(*now, 1.0 / state.sigma2, form.y))
            if (
                before is not None
                and likely_sites.distance(before) <= self.tol * xi
                and not state.cooling
            ):
                break
            likely_sites.update(xi)
        sites.put(masks, likely_sites)

    def _cool(self, state: State) -> None:
        state.sigma2 = max(self.cooling * state.sigma2, self.noise_variance)
        state.cooling = state.sigma2 > self.noise_variance

    def done(self, state: State) -> StopReason | None:
        """Converged when the sites have, and the hyperparameters with them."""
        settled = state.sites.at_rest(state.change, self.tol) and state.learning.done
        if settled and not state.cooling and np.isfinite(state.log_evidence):
            rounding = state.marginals.rounding + state.sites.rounding
            return StopReason.CONVERGED if has_digits(rounding) else StopReason.STALLED
        return StopReason.CYCLING if state.learning.cycling else None

    def posterior(self, state: State, design: Design, t: np.ndarray) -> Posterior:
        """N(m, V): blocks less a low rank where rows are fewer than columns, else a full matrix."""
        sigma2, root = state.sigma2, state.marginals.root
        V = state.form.weight_covariance(state.sites.half, root, 1.0 / sigma2)
        evidence, offset_variance = log_evidence(state), design.offset_scale * sigma2
        return Posterior(state.sites.mean, V, sigma2, evidence, offset_variance=offset_variance)

    @property
    def blocks(self) -> ColumnBlocks:
        """The columns of each site."""
        return column_blocks(self.group_of, self.sites, self.cluster_of)

    @property
    def rough(self) -> bool:
        """True if single precision suffices; see `row_form`."""
        return self.tol >= _ROUGH_TOL

    def _hyper(self, state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Logarithms of all hyperparameters, the EM step of those learnt, and the gradient."""
        m, groups = state.marginals, np.flatnonzero(~state.sites.always)
        h, f, gradient = state.sites.learnt(groups)
        slope = 0.0 if self.hyperprior is None else self.hyperprior.c  # of the log prior
        ratio = m.residual / max(state.n_observations - m.n_used - 2.0 * slope, 1e-3)
        h, f = np.append(h, np.log(state.sigma2)), np.append(f, np.log(np.clip(ratio, 0.5, 2.0)))
        f = self._bounded(state, h + f) - h
        learnt = np.isin(LEARNABLE, self.learn)
        return h, np.where(learnt, f, 0.0), np.append(gradient, noise_gradient(state) + slope)

    def _bounded(self, state: State, h: np.ndarray) -> np.ndarray:
        """The limits are in `Learning` and `noise_floor`."""
        floor = np.log(max(self.smallest_noise, np.finfo(float).tiny))
        noise = max(h[2], floor) if "noise_variance" in self.learn else h[2]
        slab = max(h[1], noise + np.log(least_signal(state.sites) / state.form.mean_square))
        return np.array([h[0], slab, noise])

    def _put(self, state: State, h: np.ndarray) -> None:
        groups, h = np.flatnonzero(~state.sites.always), self._bounded(state, h)
        if "inclusion_prior" in self.learn:
            state.sites.put_inclusion(groups, h[0])
        if "slab_variance" in self.learn:
            state.sites.put_slab(groups, float(np.exp(h[1])))
        if "noise_variance" in self.learn:
            state.sigma2 = float(np.exp(h[2]))


def _likely_groups(sites: SpikeSlabSites) -> np.ndarray:
    """A mask of the groups of highest inclusion, with `_FOCUS_SHARE` of the columns at most."""
    blocks = sites.blocks
    size = blocks.sizes()
    order = np.argsort(-sites.group_log_odds, kind="stable")
    inside = np.cumsum(size[order]) <= max(_FOCUS_SHARE * size.sum(), size[order[0]])
    likely = np.zeros(len(size), dtype=bool)
    likely[order[inside]] = True
    return likely


def least_signal(sites: SpikeSlabSites) -> float:
    """|x|^2 v0/sigma2 of a column below which a slab is no slab.

    The largest of G groups that are out explains about 2 log G noise variances by chance. A slab of
    which a group explains less, on average, tells nothing of which groups are in: with it the
    evidence hardly falls from few strong groups to half of all groups, each weak.
    """
    blocks = sites.blocks
    size = float(np.sum(blocks.sizes()) / blocks.n_groups)
    return max(1.0, 2.0 * np.log(blocks.n_groups + sites.outside[0]) / size)


def largest_site(signal: float) -> float:
    """The log-odds, and shifts in units of the slab, beyond which a site diverges.

    `signal` is the squared target over the noise variance: no log Bayes factor exceeds half of it,
    and on 75 problems with much and little noise no site exceeded six times of it.
    """
    return _DIVERGENT * (1.0 + signal)


def log_evidence(state: State) -> float:
    """The EP approximation of the log evidence (28), in natural parameters."""
    m = state.marginals
    gaussian = -0.5 * (m.log_det + m.quadratic)
    return log_likelihood_constant(state) + gaussian + state.sites.log_evidence()


def log_objective(state: State) -> float:
    """Return what learning maximises: the log evidence and the log density of the hyperprior."""
    sites, free = state.sites, np.flatnonzero(~state.sites.always)
    if sites.hyperprior is None or len(free) == 0:
        return log_evidence(state)
    density = sites.hyperprior.log_density(sites.prior_log_odds[free[0]], np.log(state.sigma2))
    return log_evidence(state) + density


def log_likelihood_constant(state: State) -> float:
    """The factor of the likelihood that does not depend on the weights.

    The likelihood is its exponential times exp(-|t - Phi w|^2 / (2 sigma2)).
    """
    size = state.n_observations * np.log(2.0 * np.pi * state.sigma2)
    return float(state.log_volume - 0.5 * size)


def noise_gradient(state: State) -> float:
    """d log Z / d log sigma2 at a fixed point."""
    m = state.marginals
    return 0.5 * (m.residual + m.n_used - state.n_observations)
