"""Group spike-and-slab classification: probit likelihood, everything by expectation propagation.

    P(t_i = +1 | w) = Phi(f_i),  f = Phi w,   prior as in `ep`,

with two kinds of sites. The prior's are those of `ep`. Each row has a Gaussian site
exp(-tau_i f_i^2/2 + eta_i f_i), so that given the row sites the model is the regression of eta/tau
on Phi with noise precisions tau. One step updates all sites of both kinds at once, damped:

    cavity of f_i: v = s/(1 - tau s), m = (f - s eta)/(1 - tau s)          s, f: the marginal of f_i
    z = t m/sqrt(1 + v),  a = N(z)/Phi(z),  d1 = t a/sqrt(1 + v),  d2 = -a (z + a)/(1 + v)
    tau* = -d2/(1 + v d2),   eta* = (d1 - m d2)/(1 + v d2) = m tau* + d1 (1 + v tau*)

(Rasmussen and Williams 2006, section 3.6). tau* is positive: the likelihood is log-concave. It is
at most 1, the largest curvature of -log Phi; rounding and mixed steps are kept below. The evidence
is

    log Z = -1/2 log|A| - 1/2 r'C^-1 r + 1/2 sum eta^2/tau              (A, r, C: `marginals`)
            + sum_i [log Phi(z_i) - 1/2 log(1 - tau s) - (1 - tau s)(eta^2 v + 2 eta m - tau m^2)/2]
            + the prior's part.

Stopping, damping, learning of p0 and v0 and costs are as in `ep`. A column for the intercept
is a group that is always in: its prior log-odds are so high that its site is its slab.

Weights. A row of weight v has the likelihood Phi(t f)^v. It is taken as c = max(v, 1) copies of a
factor Phi^a with a = min(v, 1), each copy with the same site: the row's precision is c tau, a
cavity lacks one copy, and every sum over rows counts a row c times. For whole v this is EP on v
equal rows, whose sites stay equal under parallel updates. For a < 1 one copy is all there is of the
row (a cavity that lacked a whole label would lack more than was there), and log Z,

    d1 = E[l'] = E[f - m]/v,   d2 = E[l''] + Var[l'] = Var[f]/v^2 - 1/v,   l = a log Phi,

are integrals in one dimension: Gauss-Legendre on both sides of the mode of the tilted density,
which is log-concave, in panels that end where Phi changes from a Gaussian tail to a constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import erfcx, expit, log_ndtr

from ...designs import Design
from ...linalg.blocks import column_blocks, runs
from ...posterior import Posterior
from ..run import StopReason
from .column_form import ColumnForm
from .ep import LEARNABLE, largest_site, least_signal
from .hyperprior import Hyperprior
from .learning import SITES_DEPTH, Learning
from .marginals import Form, Marginals
from .mixing import Mixing
from .row_form import RowForm
from .sites import SpikeSlabSites

_SMALLEST_TAU = 1e-8  # a row site below this has no influence
# Latent variance that one column may give a row: beyond it the labels are certain to the last
# digit, and separable classes would let v0 grow for ever.
_LARGEST_SLAB = 100.0
_NEWTON = 30  # steps to the mode of a tilted density, at most
_AT_MODE = 1e-3  # squared distance from the mode in standard deviations: the nodes reach farther
_FAR = -1e5  # from here on the curvature of log Phi is minus one, to ten digits
_CERTAIN = 40.0  # standard deviations of label and cavity, beyond which no digit is in doubt
_ENDS = 6.0  # on either side of it log Phi is a constant, and nearly that of a Gaussian tail
_NODES = 16  # in each of four panels
_AT_ONCE = 512  # rows whose nodes stay in the cache
_DROP = 30.0  # nats below the top at which a density has ended


class _TiltedRows(NamedTuple):
    """Values of `tilted` on all rows, and the arrays of the state that they were computed from."""

    arguments: tuple[np.ndarray, ...]
    log_Z: np.ndarray
    d1: np.ndarray
    d2: np.ndarray


@dataclass
class State:
    """Both kinds of sites, with fresh marginals."""

    form: Form
    sites: SpikeSlabSites
    tau: np.ndarray
    eta: np.ndarray
    marginals: Marginals
    f: np.ndarray
    s: np.ndarray
    copies: np.ndarray
    power: np.ndarray
    n_observations: float
    mean_square: float  # of a column, its rows weighted
    xi: float
    learning: Learning
    mixing: Mixing
    change: float = np.inf
    log_evidence: float = -np.inf
    tilted_rows: _TiltedRows | None = None  # at the last arguments

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
    inclusion_prior: float
    slab_variance: float
    n_clamped: int


@dataclass(frozen=True)
class ProbitGroupEP:
    """EP for the group spike-and-slab probit model; see the module docstring.

    Parameters
    ----------
    group_of : array of int of shape (n_columns,)
        The group of each column, 0 to n_groups - 1.
    inclusion_prior, slab_variance : float or array of shape (n_groups,)
        An inclusion prior of 1 keeps a group in for good; it takes no part in learning.
    sites : {"group", "column"}, default="group"
        As in `GroupEP`.
    learn : tuple of str
        Which of "inclusion_prior" and "slab_variance" to learn.
    tol, damping, decay, smallest_damping : float
        As in `GroupEP`.
    weight : array of shape (n_rows,), optional
        Positive: how many equal rows each row counts for.
    cluster_of : array of int of shape (n_groups,), optional
        As in `GroupEP`.
    hyperprior : Hyperprior, optional
        As in `GroupEP`.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers import ProbitGroupEP, run
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((80, 30))
    >>> t = np.sign(X[:, :3] @ [1.0, -2.0, 1.0])
    >>> result = run(ProbitGroupEP(np.arange(30) // 3, 0.1, 1.0), DenseDesign(X), t, max_iter=200)
    >>> result.converged, np.flatnonzero(result.state.inclusion_probability > 0.5)
    (True, array([0]))
    """

    group_of: np.ndarray
    inclusion_prior: float | np.ndarray
    slab_variance: float | np.ndarray
    sites: str = "group"
    learn: tuple[str, ...] = ()
    tol: float = 1e-4
    damping: float = 0.9
    decay: float = 0.99
    smallest_damping: float = 0.1
    weight: np.ndarray | None = None
    cluster_of: np.ndarray | None = None
    hyperprior: Hyperprior | None = None

    def init(self, design: Design, t: np.ndarray) -> State:
        """Prior sites at T = I/(p0 v0); row sites as if each label were one noisy observation."""
        blocks = column_blocks(self.group_of, self.sites, self.cluster_of)
        p0 = np.broadcast_to(np.asarray(self.inclusion_prior, dtype=float), blocks.n_groups)
        v0 = np.broadcast_to(np.asarray(self.slab_variance, dtype=float), blocks.n_groups)
        sites = SpikeSlabSites.start(blocks, p0, v0)
        sites.hyperprior = self.hyperprior
        X = design.columns(blocks.order)
        if X.shape[0] < X.shape[1]:
            form: Form = RowForm(X, t, blocks)
        else:
            form = ColumnForm(X, t, blocks, fold=False)
        weight = np.ones(len(t)) if self.weight is None else self.weight
        copies, power = np.maximum(weight, 1.0), np.minimum(weight, 1.0)
        tau = 0.5 * power
        marginals, f, s = _marginals(form, sites, tau, tau * t, copies)
        return State(
            form,
            sites,
            tau,
            tau * t,
            marginals,
            f,
            s,
            copies,
            power,
            float(np.sum(weight)),
            float(np.sum(weight @ X**2)) / X.shape[1] or 1.0,
            self.damping,
            Learning(self.learn, self.tol),
            Mixing(SITES_DEPTH),
        )

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """Update all sites of both kinds, then the hyperparameters, then the marginals."""
        sites, xi = state.sites, state.xi
        before, f, s = sites.snapshot(), state.f, state.s
        former, mix = sites.parameters(), state.learning.mix(state.change)
        sites.limit = largest_site(float(np.sum(state.copies * state.eta**2 / state.tau)))
        clamped = sites.update(xi)
        row_sites = np.concatenate([state.tau, state.eta])
        step = np.concatenate(_row_update(t, state)) - row_sites
        new = row_sites + xi * step
        if mix:
            size = np.concatenate([state.s * np.sqrt(state.s), state.s])
            size *= np.tile(np.sqrt(state.copies / (1.0 + state.s)), 2)
            new += sites.mix(state.mixing, former, xi, (row_sites, step, size * step))
        state.tau, state.eta = np.split(new, 2)
        state.tau = np.clip(state.tau, _SMALLEST_TAU * state.power, state.power)
        smallest = min(self.smallest_damping, self.damping)
        state.xi = max(xi * self.decay, smallest)
        if state.learning.step(
            state.change,
            sites,
            lambda: self._hyper(state),
            lambda h: self._put(state, h),
            lambda: log_objective(state, t),
        ):
            state.mixing.forget()
            state.xi = max(state.learning.damping_scale * self.damping, smallest)
        state.marginals, state.f, state.s = _marginals(
            state.form, sites, state.tau, state.eta, state.copies
        )
        scale = np.sqrt(1.0 + state.s)
        rows = max(
            float(np.max(np.abs(state.f - f) / scale)),
            float(np.max(np.abs(np.sqrt(state.s) - np.sqrt(s)) / scale)),
        )
        state.change = max(sites.distance(before), rows) / xi
        state.log_evidence = log_evidence(state, t)
        free = np.flatnonzero(~sites.always)
        count = max(len(free), 1)
        info = Info(
            state.change,
            xi,
            state.log_evidence,
            float(sites.inclusion[free].sum()),
            float(expit(sites.prior_log_odds[free]).sum() / count),
            float(sites.slab_variance[free].sum() / count),
            clamped,
        )
        return state, info

    def done(self, state: State) -> StopReason | None:
        """Converged when the sites have, and the hyperparameters with them."""
        settled = state.sites.at_rest(state.change, self.tol) and state.learning.done
        if settled and np.isfinite(state.log_evidence):
            return StopReason.CONVERGED
        return StopReason.CYCLING if state.learning.cycling else None

    def posterior(self, state: State, design: Design, t: np.ndarray) -> Posterior:
        """Return the posterior of the weights; its noise variance is that of the probit, one."""
        V = state.form.weight_covariance(state.sites.half, state.marginals.root, None)
        return Posterior(state.sites.mean, V, 1.0, log_evidence(state, t))

    def _hyper(self, state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """logit p0 and log v0, the EM step of those learnt, and the gradient."""
        h, f, gradient = state.sites.learnt(np.flatnonzero(~state.sites.always))
        f = self._bounded(state, h + f) - h
        learnt = np.isin(LEARNABLE[:2], self.learn)
        return h, np.where(learnt, f, 0.0), gradient

    def _bounded(self, state: State, h: np.ndarray) -> np.ndarray:
        least = np.log(least_signal(state.sites) / state.mean_square)
        return np.array(
            [h[0], np.clip(h[1], least, least + np.log(_LARGEST_SLAB * state.n_observations))]
        )

    def _put(self, state: State, h: np.ndarray) -> None:
        groups, h = np.flatnonzero(~state.sites.always), self._bounded(state, h)
        if "inclusion_prior" in self.learn:
            state.sites.put_inclusion(groups, h[0])
        if "slab_variance" in self.learn:
            state.sites.put_slab(groups, float(np.exp(h[1])))


def _marginals(
    form: Form,
    sites: SpikeSlabSites,
    tau: np.ndarray,
    eta: np.ndarray,
    copies: np.ndarray,
) -> tuple[Marginals, np.ndarray, np.ndarray]:
    """Marginals of the weights (told to their sites) and mean and variance of f on every row."""
    precision, target = copies * tau, eta / tau
    marginals = form.marginals(sites.half, sites.shift, precision, target)
    sites.absorb(marginals)
    f, s = form.row_moments(sites.half, marginals, precision, target)
    # 1 - c tau s is a diagonal of A^-1; it and s are positive but for rounding.
    return marginals, f, np.clip(s, 1e-300, (1.0 - 1e-14) / precision)


def _cavity(state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # Positive, unless the variances are those before the last step of the row sites.
    share = np.maximum(1.0 - state.tau * state.s, np.finfo(float).eps)
    return (state.f - state.s * state.eta) / share, state.s / share, share


def _tilted_rows(t: np.ndarray, state: State) -> _TiltedRows:
    """Return `tilted` on all rows; the evidence after a step and the next step share it."""
    arguments = (state.tau, state.eta, state.f, state.s)
    last = state.tilted_rows
    if last is None or any(x is not y for x, y in zip(arguments, last.arguments, strict=True)):
        m, v, _ = _cavity(state)
        last = state.tilted_rows = _TiltedRows(arguments, *tilted(t * m, v, state.power))
    return last


def _row_update(t: np.ndarray, state: State) -> tuple[np.ndarray, np.ndarray]:
    m, v, _ = _cavity(state)
    rows = _tilted_rows(t, state)
    return matched_site(m, v, t * rows.d1, rows.d2, state.power)


def matched_site(
    m: np.ndarray, v: np.ndarray, d1: np.ndarray, d2: np.ndarray, power: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the row site (tau, eta) that gives a cavity N(m, v) the moments of `tilted`."""
    remaining = np.maximum(1.0 + v * d2, np.finfo(float).eps)  # variance, over that of the cavity
    tau = np.clip(-d2 / remaining, 0.0, power)
    return tau, m * tau + d1 * (1.0 + v * tau)


def tilted(
    m: np.ndarray, v: np.ndarray, power: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log Z = log int Phi(f)^power N(f; m, v) df and its first two derivatives in m."""
    spread = np.sqrt(1.0 + v)
    z = m / spread
    ratio = _mills(z)
    log_Z, d1, d2 = log_ndtr(z), ratio / spread, -_curvature(z, ratio) / (1.0 + v)
    power = np.broadcast_to(power, m.shape)
    part = power < 1.0
    if np.any(part):
        log_Z[part], d1[part], d2[part] = _by_quadrature(m[part], v[part], power[part])
    return log_Z, d1, d2


def _mills(z: np.ndarray) -> np.ndarray:
    """N(z)/Phi(z), to the last digits far to the left too."""
    return np.asarray(np.sqrt(2.0 / np.pi) / erfcx(-z / np.sqrt(2.0)))


def _curvature(z: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """-(log Phi)'' from N/Phi; one of rounding alone would lead Newton past a mode and back."""
    return np.where(z < _FAR, 1.0, ratio * (z + ratio))


@cache
def _rule() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss and Legendre: their making takes longer than all the rest."""
    return np.polynomial.legendre.leggauss(_NODES)


def _log_phi(f: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """Return log Phi from N/Phi, to 1e-9."""
    with np.errstate(divide="ignore"):  # N/Phi may be zero where it is not used
        return np.where(f > _ENDS, 0.0, -0.5 * f**2 - np.log(np.sqrt(2.0 * np.pi) * ratio))


def _by_quadrature(
    m: np.ndarray, v: np.ndarray, a: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute `tilted` for powers below one; see the module docstring.

    Where log Phi is that of a Gaussian tail the integral is known, and where the label is certain
    it is that of any larger m: nodes around a large m would be equal in float64. Nodes are measured
    from the mode, and the mode from m: in a narrow cavity they differ by less than the digits of m.
    """
    tail = 1.0 + a * v
    far, peak = m < _FAR * tail, m / tail
    known = (
        -0.5 * (a * m * peak + np.log(tail))
        - a * np.log(np.sqrt(2.0 * np.pi) * np.maximum(-peak, 1.0)),
        -a * peak,
        -a / tail,
    )
    m = np.clip(m, _FAR * tail, _CERTAIN * (1.0 + np.sqrt(v)))
    shift, bend = _tilted_mode(m, v, a)
    mode = m + shift
    low, high = _tilted_range(m, v, a, mode, bend)
    # Panels that end at the mode, and where Phi changes from a Gaussian tail to a constant.
    bends = np.clip([-_ENDS - mode, 0.0 * mode, _ENDS - mode], low, high)
    ends = np.sort([low, *bends, high], axis=0)
    parts = [
        _over_panels(ends[:, rows], mode[rows], shift[rows], v[rows], a[rows])
        for rows in runs(len(m), _AT_ONCE)
    ]
    return tuple(np.where(far, x, y) for x, y in zip(known, np.hstack(parts), strict=True))


def _over_panels(
    ends: np.ndarray, mode: np.ndarray, shift: np.ndarray, v: np.ndarray, a: np.ndarray
) -> np.ndarray:
    """Return log Z and its derivatives by quadrature between `ends`, measured from the mode."""
    nodes, weights = _rule()
    half = 0.5 * np.diff(ends, axis=0)[:, None]
    from_mean = (ends[:-1, None] + half * (1.0 + nodes[:, None])).reshape(-1, len(mode))
    f = mode + from_mean
    from_mean += shift
    w = (half * weights[:, None]).reshape(-1, len(mode))
    ratio = _mills(f)
    log_density = a * _log_phi(f, ratio) - 0.5 / v * from_mean**2
    top = log_density.max(axis=0)
    w *= np.exp(log_density - top)
    total = w.sum(axis=0)
    # Two forms of the derivatives: the moments of f differ little from those of the cavity where
    # the label tells little, and terms of l cancel where it tells much.
    of_label, of_cavity = np.where(a * v < 1.0, (a, 0.0 * v), (0.0 * a, 1.0 / v))
    first = of_label * ratio + of_cavity * from_mean
    d1 = np.einsum("ij,ij->j", w, first) / total
    first -= d1
    second = np.einsum("ij,ij->j", w, first**2 - of_label * _curvature(f, ratio))
    d2 = second / total - of_cavity
    return np.array([top + np.log(total) - 0.5 * np.log(2.0 * np.pi * v), d1, d2])


def _tilted_mode(m: np.ndarray, v: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mode of Phi(f)^a N(f; m, v), less m, and the curvature of its logarithm there."""
    shift = np.zeros_like(m)
    for _ in range(_NEWTON):  # from the left of a convex, falling derivative: monotone
        ratio = _mills(m + shift)
        slope, bend = a * ratio - shift / v, a * _curvature(m + shift, ratio) + 1.0 / v
        shift = shift + slope / bend
        if np.all(slope**2 < _AT_MODE * bend):
            break
    return shift, bend


def _tilted_range(
    m: np.ndarray, v: np.ndarray, a: np.ndarray, mode: np.ndarray, bend: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how far on both sides of the mode the density has fallen by `_DROP` nats.

    The curvature of -log Phi falls from 1 to 0, and is at least 1 - 2/pi on the left of zero. So
    the density falls on the left as a Gaussian of the curvature at the mode, or of that at zero
    from there on; on the right as one of curvature 1/v, with the slope that it has at any point.
    """
    at_zero = np.sqrt(2.0 * _DROP / ((1.0 - 2.0 / np.pi) * a + 1.0 / v))
    low = -np.minimum(np.sqrt(2.0 * _DROP / bend), np.maximum(mode, 0.0) + at_zero)
    point = np.maximum(mode, 0.0) + 1.0
    slope = np.maximum((point - m) / v - a * _mills(point), 0.0)
    tangent = point - mode + 2.0 * _DROP / (slope + np.hypot(slope, np.sqrt(2.0 * _DROP / v)))
    reach = np.minimum(np.sqrt(2.0 * _DROP * v), tangent)
    return low, np.where(mode + at_zero < 0.0, np.minimum(reach, at_zero), reach)


def log_evidence(state: State, t: np.ndarray) -> float:
    """The EP approximation of the log evidence."""
    gaussian = -0.5 * (state.marginals.log_det + state.marginals.quadratic)
    return log_likelihood_constant(state, t) + gaussian + state.sites.log_evidence()


def log_objective(state: State, t: np.ndarray) -> float:
    """Return what learning maximises: the log evidence and the log density of the hyperprior."""
    sites, free = state.sites, np.flatnonzero(~state.sites.always)
    if sites.hyperprior is None or len(free) == 0:
        return log_evidence(state, t)
    density = sites.hyperprior.log_density(sites.prior_log_odds[free[0]], 0.0)
    return log_evidence(state, t) + density


def log_likelihood_constant(state: State, t: np.ndarray) -> float:
    """The factor of the approximate likelihood that does not depend on the weights.

    The row sites are its exponential times exp(-sum_i c tau_i (eta_i/tau_i - f_i)^2 / 2).
    """
    m, v, share = _cavity(state)
    rows = _tilted_rows(t, state).log_Z - 0.5 * np.log(share)
    rows -= 0.5 * share * (state.eta**2 * v + 2.0 * state.eta * m - state.tau * m**2)
    return float(state.copies @ (rows + 0.5 * state.eta**2 / state.tau))
