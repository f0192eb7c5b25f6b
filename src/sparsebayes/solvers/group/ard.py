"""Automatic relevance determination with one precision per group, by maximum evidence.

    t = Phi w + e,   w_g ~ N(0, lam_g I),   C = sigma2 I + sum_g lam_g Phi_g Phi_g'.

lam_g here is the prior VARIANCE of a group (the group version of Tipping's 1/alpha). With
h_g = tr(Phi_g'C^-1 Phi_g) and m_g = lam_g Phi_g'C^-1 t the posterior mean, one step is

    lam_g <- |m_g| / sqrt(h_g),                      sigma2 <- |t - Phi m|^2 / (N - gamma),

the first from bounding the concave log|C| by its tangent (Wipf and Nagarajan 2008, extended to
groups): it cannot lower the evidence, and a group that does not matter vanishes geometrically, if
slowly. So steps go further, by a power of that factor which grows by a fifth as long as the
evidence rises; where it would fall the step is taken back and ends at the factor itself.
Groups whose lam_g h_g falls below 1e-12 no longer move anything and are held there. These steps
end where neither the evidence nor what the groups and the noise promise changes much: columns much
smaller than the others rise from nothing, and the evidence does not show it for many steps.

That is no maximum yet. Where a group can take the place of another, steps of a ten-thousandth of a
nat lead over a hundred of them to a gain of several nats. So the run ends with steps of second
order (`ard_maximum`): groups go to the best of all their variances where that is far away, nothing
or a return from it included, and Newton steps move the others together with the noise, also off a
saddle. It has converged where such a step gains nothing.

With more columns than rows and learnt noise that maximum explains every row. With a prior on the
number of groups (`set_prior`) the run begins with no group, and all its steps are of second order:
the groups that gain more than their price enter (those that gain at least half as much as the
best), groups worth less than their price leave, and the noise follows.

Same forms, same costs a step as `ep`; the evidence here is exact. Ji, Dunson and Carin
(2009), which the spike-and-slab paper compares with, maximise the same evidence one group at a
time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ...designs import Design
from ...linalg.blocks import ColumnBlocks, column_blocks, times, transposed
from ...posterior import Posterior
from ..ascent import uphill_steps
from ..run import StopReason
from ..set_prior import SetPrior
from .ard_maximum import best_factors, derivatives
from .column_form import ColumnForm
from .marginals import Form, Marginals, has_digits
from .row_form import RowForm

_FASTER = 1.2  # growth of the reach with every step that raised the evidence
_FURTHEST = 10.0
_GONE = 1e-12  # lam h below which a group has no influence
_ABSENT = 1e-18  # lam h of a group that is left out: it stays below _GONE when others leave
_STILL = 1e-3  # of tol: a step of second order that gains less has found the maximum
_FAR = np.e  # factor on a variance from which on it is no matter of a Newton step


@dataclass
class State:
    """Prior variances, noise, and the marginals that go with them."""

    form: Form
    blocks: ColumnBlocks
    lam: np.ndarray
    sigma2: float
    marginals: Marginals
    half: list[np.ndarray]
    mean: np.ndarray
    variance: np.ndarray
    log_evidence: float
    gain: float = np.inf
    reach: float = 1.0  # power of the factor on the variances in the next step
    is_near: bool = False  # whether the steps are those of second order


class Info(NamedTuple):
    """One step, for the reader."""

    log_evidence: float
    gain: float
    n_groups: int
    noise_variance: float


@dataclass(frozen=True)
class GroupARD:
    """One precision per group, by maximum evidence; see the module docstring.

    Parameters
    ----------
    group_of : array of int of shape (n_columns,)
        The group of each column, 0 to n_groups - 1.
    slab_variance : float
        Where the prior variances start.
    noise_variance : float
        Fixed, or the starting value if `learn_noise`.
    learn_noise : bool, default=True
        Whether the noise variance is learnt.
    smallest_noise : float, default=0.0
        Floor of a learnt noise variance.
    tol : float, default=1e-3
        Nats that a step may still gain at convergence, and that any one group may promise.
    inclusion : {"learn", None}, default=None
        ``"learn"`` has a prior on the number of groups that are in, and starts from none.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers import GroupARD, run
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((30, 60))
    >>> t = X[:, :3] @ [1.0, -2.0, 1.0] + 0.1 * rng.standard_normal(30)
    >>> result = run(GroupARD(np.arange(60) // 3, 1.0, 0.1), DenseDesign(X), t, max_iter=500)
    >>> result.converged, int(np.argmax(result.state.lam))
    (True, 0)
    """

    group_of: np.ndarray
    slab_variance: float
    noise_variance: float
    learn_noise: bool = True
    smallest_noise: float = 0.0
    tol: float = 1e-3
    inclusion: str | None = None

    def init(self, design: Design, t: np.ndarray) -> State:
        """All groups in, with the same variance; none where there is a prior on their number."""
        blocks = column_blocks(self.group_of)
        X = design.columns(blocks.order)
        form = (RowForm if X.shape[0] < X.shape[1] else ColumnForm)(X, t, blocks)
        if self.inclusion is None:
            lam = np.full(blocks.n_groups, float(self.slab_variance))
            return _state(form, blocks, lam, self.noise_variance, design)
        sigma2, squares = self.noise_variance, np.einsum("ij,ij->j", X, X)
        if self.learn_noise:
            sigma2 = max(float(t @ t) / design.n_observations, self.smallest_noise)
        of_group = np.bincount(self.group_of[blocks.order], squares, blocks.n_groups)
        lam = _ABSENT * sigma2 / np.where(of_group > 0.0, of_group, 1.0)
        return replace(_state(form, blocks, lam, sigma2, design), is_near=True)

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """New variances and noise, then the marginals."""
        used = _used(state)
        if state.is_near:
            new = self._second_order(state, used, design)
            info = Info(new.log_evidence, new.gain, int(np.sum(used > 0.1)), new.sigma2)
            return new, info
        m = state.marginals
        square = state.blocks.per_group(
            [
                np.sum(times(transposed(F), q) ** 2, axis=1)
                for F, q in zip(state.half, m.q, strict=True)
            ]
        )
        with np.errstate(over="ignore"):
            ratio = np.clip(square / np.maximum(state.lam * used, 1e-300), 1e-300, 1e300)
        ratio = np.where(used > _GONE, ratio, 1.0)
        sigma2, promise = state.sigma2, _promise(ratio, used, state.blocks)
        if self.learn_noise:
            free = max(design.n_observations - m.n_used, 1e-3)
            excess = max(m.residual / free, 1e-300)
            sigma2 = max(sigma2 * float(np.clip(excess, 0.5, 2.0)), self.smallest_noise)
            if sigma2 != state.sigma2:
                promise = max(promise, 0.5 * free * (excess - 1.0 - np.log(excess)))

        def move(reach: float) -> State | None:
            lam = state.lam * np.clip(ratio ** (0.5 * reach), 1e-3, 1e300)
            return _state_or_none(state.form, state.blocks, lam, sigma2, design)

        trial, reach = move(state.reach), min(_FASTER * state.reach, _FURTHEST)
        if state.reach > 1.0 and (trial is None or not trial.log_evidence >= state.log_evidence):
            trial, reach = move(1.0), max(1.0, 0.5 * state.reach)
        if trial is None:  # no step can be computed in double precision
            promise = 0.0
        new = trial or replace(state)
        new.reach = reach
        new.gain = max(abs(new.log_evidence - state.log_evidence), promise)
        info = Info(new.log_evidence, new.gain, int(np.sum(used > 0.1)), sigma2)
        if new.gain <= self.tol:
            new.is_near, new.gain = True, np.inf
        return new, info

    def done(self, state: State) -> StopReason | None:
        """When a step of second order no longer raises the evidence."""
        if not state.is_near or state.gain > _STILL * self.tol:
            return None
        return StopReason.CONVERGED if has_digits(state.marginals.rounding) else StopReason.STALLED

    def _second_order(self, state: State, used: np.ndarray, design: Design) -> State:
        """Return the state after far moves of single groups and a Newton step of all others."""
        now, n = self._far_moves(state, used, design), design.n_observations
        groups = np.flatnonzero(_used(now) > _GONE)
        gradient, H = derivatives(now.form, now.marginals, now.lam, now.sigma2, groups, n)
        at_floor = now.sigma2 <= self.smallest_noise and gradient[-1] <= 0.0
        moves_noise = self.learn_noise and not at_floor
        if not moves_noise:
            gradient, H = gradient[:-1], H[:-1, :-1]
        for step in uphill_steps(gradient, H, _STILL * self.tol):
            lam, sigma2 = now.lam.copy(), now.sigma2
            lam[groups] *= np.exp(step[: len(groups)])
            if moves_noise:
                sigma2 = max(sigma2 * float(np.exp(step[-1])), self.smallest_noise)
            higher = self._higher(now, lam, sigma2, design, _STILL * self.tol)
            if higher is not None:
                now = higher
                break
        gain = self._objective(now) - self._objective(state)
        return replace(now, gain=gain, is_near=True)

    def _far_moves(self, state: State, used: np.ndarray, design: Design) -> State:
        """Return the state with far groups at their best variances, several of them or the best."""
        noise_follows = self.inclusion is not None and self.learn_noise
        n = design.n_observations if noise_follows else None
        factor, highest, present = best_factors(state.marginals, state.blocks, n)
        is_in, prior = used > _GONE, self._prior(state)
        count = int(np.sum(is_in))
        price = np.where(is_in, prior.price(max(count - 1, 0)), prior.price(count))
        leaves = highest <= price
        factor[leaves] = _ABSENT / np.maximum(used[leaves], _ABSENT)
        gain = np.maximum(highest - price, 0.0) - np.where(is_in, present - price, 0.0)
        far = (factor > _FAR) | ((factor < 1.0 / _FAR) & is_in)
        gain = np.where(far & np.isfinite(gain), gain, 0.0)
        best = float(np.max(gain))
        several = gain > (0.0 if self.inclusion is None else 0.5 * best)
        first = np.arange(len(gain)) == np.argmax(gain)  # of equal columns one may enter
        for moves in (several, first) if best > 0.0 else ():
            lam = state.lam * np.where(moves, factor, 1.0)
            sigma2, least = state.sigma2, 0.0
            if noise_follows:
                least = _STILL * self.tol
                trial = _state_or_none(state.form, state.blocks, lam, sigma2, design)
                if trial is None:
                    continue
                ratio = trial.marginals.quadratic / design.n_observations
                ratio = max(ratio, self.smallest_noise / sigma2)
                lam, sigma2 = ratio * lam, ratio * sigma2
            higher = self._higher(state, lam, sigma2, design, least)
            if higher is not None:
                return higher
        return state

    def _prior(self, state: State) -> SetPrior:
        return SetPrior(self.inclusion, state.blocks.n_groups)

    def _objective(self, state: State) -> float:
        """Return the log evidence and the log prior of the groups that are in."""
        if self.inclusion is None:
            return state.log_evidence
        return state.log_evidence + self._prior(state).log(int(np.sum(_used(state) > _GONE)))

    def _higher(
        self, state: State, lam: np.ndarray, sigma2: float, design: Design, least: float
    ) -> State | None:
        """Return the state at these variances if its objective is higher by more than `least`."""
        trial = _state_or_none(state.form, state.blocks, lam, sigma2, design)
        if trial is None:
            return None
        return trial if self._objective(trial) > self._objective(state) + least else None

    def without_gone(self, state: State, design: Design) -> State:
        """Return the state with variances of zero for the groups without influence."""
        lam = np.where(_used(state) > _GONE, state.lam, 0.0)
        return _state_or_none(state.form, state.blocks, lam, state.sigma2, design) or state

    def posterior(self, state: State, design: Design, t: np.ndarray) -> Posterior:
        """Gaussian, exactly."""
        sigma2, root = state.sigma2, state.marginals.root
        V = state.form.weight_covariance(state.half, root, 1.0 / sigma2)
        offset_variance = design.offset_scale * sigma2
        return Posterior(state.mean, V, sigma2, state.log_evidence, offset_variance=offset_variance)


def _used(state: State) -> np.ndarray:
    """Return lam_g h_g of each group: the degrees of freedom that it uses."""
    return state.blocks.per_group([np.einsum("gii->g", H) for H in state.marginals.H])


def _promise(ratio: np.ndarray, used: np.ndarray, blocks: ColumnBlocks) -> float:
    """Return the nats that the group furthest from its best variance might still gain.

    ratio = |m_g|^2/(lam_g^2 h_g) is 1 at the best variance. For one weight that is hardly in yet it
    is q^2/s, and the best variance gains (ratio - 1 - log ratio)/2. A group on its way out gives
    lam_g h_g (1 - ratio)/2, to first order.
    """
    size = blocks.per_group([np.full(len(b.owner), float(b.size)) for b in blocks.buckets])
    grows = size * (ratio - 1.0 - np.log(ratio))
    return 0.5 * float(np.max(np.where(ratio > 1.0, grows, used * (1.0 - ratio))))


def _state_or_none(
    form: Form, blocks: ColumnBlocks, lam: np.ndarray, sigma2: float, design: Design
) -> State | None:
    """Return the state at these variances; None where one is beyond double precision."""
    try:
        return _state(form, blocks, lam, sigma2, design)
    except np.linalg.LinAlgError:
        return None


def _state(
    form: Form, blocks: ColumnBlocks, lam: np.ndarray, sigma2: float, design: Design
) -> State:
    half, shift = [], []
    for b in blocks.buckets:
        half.append(np.eye(b.size) * np.sqrt(lam[b.owner])[:, None, None])
        shift.append(np.zeros(b.columns.shape))
    m = form.marginals(half, shift, 1.0 / sigma2).whitened(half)
    spread = m.M or []
    mean = blocks.merge([times(F, q) for F, q in zip(half, m.q, strict=True)])
    variance = blocks.merge(
        [
            lam[b.owner][:, None] * np.einsum("gii->gi", M)
            for b, M in zip(blocks.buckets, spread, strict=True)
        ]
    )
    n = design.n_observations
    fit = n * np.log(2.0 * np.pi * sigma2) + m.log_det + m.quadratic
    evidence = float(design.log_volume - 0.5 * fit)
    return State(form, blocks, lam, sigma2, m, half, mean, variance, evidence)
