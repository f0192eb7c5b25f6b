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
from .ard_maximum import best_factors, derivatives
from .column_form import ColumnForm
from .marginals import Form, Marginals, has_digits
from .row_form import RowForm

_FASTER = 1.2  # growth of the reach with every step that raised the evidence
_FURTHEST = 10.0
_GONE = 1e-12  # lam h below which a group has no influence
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

    def init(self, design: Design, t: np.ndarray) -> State:
        """All groups in, with the same variance."""
        blocks = column_blocks(self.group_of)
        X = design.columns(blocks.order)
        form = (RowForm if X.shape[0] < X.shape[1] else ColumnForm)(X, t, blocks)
        lam = np.full(blocks.n_groups, float(self.slab_variance))
        return _state(form, blocks, lam, self.noise_variance, design)

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

        def move(reach: float) -> State:
            lam = state.lam * np.clip(ratio ** (0.5 * reach), 1e-3, 1e300)
            return _state(state.form, state.blocks, lam, sigma2, design)

        new, reach = move(state.reach), min(_FASTER * state.reach, _FURTHEST)
        if state.reach > 1.0 and not new.log_evidence >= state.log_evidence:
            new, reach = move(1.0), max(1.0, 0.5 * state.reach)
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
            higher = _higher(now, lam, sigma2, design, _STILL * self.tol)
            if higher is not None:
                now = higher
                break
        return replace(now, gain=now.log_evidence - state.log_evidence, is_near=True)

    def _far_moves(self, state: State, used: np.ndarray, design: Design) -> State:
        """Return the state with far groups at their best variances, all of them or the best one."""
        factor, gain = best_factors(state.marginals, state.blocks)
        leaves = factor == 0.0
        factor[leaves] = 0.1 * _GONE / np.maximum(used[leaves], 0.1 * _GONE)
        far = (factor > _FAR) | ((factor < 1.0 / _FAR) & (used > _GONE))
        gain = np.where(far, gain, 0.0)
        best_alone = (gain == np.max(gain)) & (gain > 0.0)
        for moves in (gain > 0.0, best_alone) if np.any(best_alone) else ():
            lam = state.lam * np.where(moves, factor, 1.0)
            higher = _higher(state, lam, state.sigma2, design, 0.0)
            if higher is not None:
                return higher
        return state

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


def _higher(
    state: State, lam: np.ndarray, sigma2: float, design: Design, least: float
) -> State | None:
    """Return the state at these variances if its evidence is higher by more than `least`."""
    try:
        trial = _state(state.form, state.blocks, lam, sigma2, design)
    except np.linalg.LinAlgError:  # a variance beyond double precision
        return None
    return trial if trial.log_evidence > state.log_evidence + least else None


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
