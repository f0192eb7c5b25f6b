"""EP at several noise variances, where the rows hardly tell the noise from weak weights.

With more columns than rows the posterior of a learnt noise variance is two to four times as wide as
that of n observations, and other groups are in at its ends than at its mode. The sites of the mode
say little about these, so that probabilities averaged with them are too sure. So EP is run again at
noise variances around the mode, each from the sites of its neighbour; the other hyperparameters are
learnt at each. The runs are the nodes of a sum over log sigma2 (`averaging.merge_averages`).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from ...designs import Design
from ..run import run
from .ep import GroupEP, State, log_evidence

# Distance of two nodes, in standard deviations of log sigma2 if it were that of the remaining
# degrees of freedom. The sum is right to .5 % up to 1.8, and the posterior is wider than that.
_STEP = 1.8
_MOST = 5  # nodes on either side of the mode, unless the last one is the best
_FURTHEST = 20  # nodes even then
BETTER = 1.0  # nats above the mode from which a node takes its place
_NEGLIGIBLE = 5.0  # nats below the best at which no further node is needed
_MATTERS = np.log(10.0)  # nats below the best up to which a node left out would be missed
_STEPS = 100  # of EP at a node
_ROUGH = 1e-3  # tol at a node, one of several
_ENOUGH = 30  # of them, after which sites that have settled need not wait for what is learnt
_NEAR = 0.1  # change of the sites up to which their evidence means something


class NoiseRun(NamedTuple):
    """The state of EP at a noise variance.

    The prior of the nodes is flat in the noise variance. The steeper one, with which the mode is
    searched for, makes up for sites of the mode alone.

    Attributes
    ----------
    state : State
        Where the run ended.
    settled : bool
        Whether its sites have settled, and those of a run left out next to it. A run that takes the
        place of the mode has not: its noise variance is not learnt.
    """

    state: State
    settled: bool = True

    @property
    def log_prior(self) -> float:
        """Log of the prior density of log sigma2, up to a constant."""
        return float(np.log(self.state.sigma2))


def has_noise_runs(solver: GroupEP) -> bool:
    """Tell whether the noise variance is learnt from fewer rows than columns, screened or not."""
    prior = solver.hyperprior
    return "noise_variance" in solver.learn and prior is not None and prior.c > 1.0


def _has_settled(iteration: int, info: NamedTuple, state: State) -> bool:
    """Tell whether a run has gone on for some time and its sites have settled."""
    return iteration >= _ENOUGH and state.change <= _ROUGH


def _run_at(
    variance: float, solver: GroupEP, former: State, design: Design, t: np.ndarray
) -> State:
    """Run EP at a noise variance, from where a run at a similar one has ended."""
    warm = former.sites
    at_node = replace(
        solver,
        inclusion_prior=np.where(warm.always, 1.0, expit(warm.prior_log_odds)),
        slab_variance=warm.slab_variance,
        noise_variance=variance,
        warm=warm,
    )
    start = at_node.begin(former.form, design)
    start.sites.factors_by_slab = warm.factors_by_slab
    return run(at_node, design, t, max_iter=_STEPS, state=start, callback=_has_settled).state


def noise_runs(
    solver: GroupEP, mode: State, design: Design, t: np.ndarray, over: Callable[[], bool]
) -> list[NoiseRun]:
    """Run EP at noise variances around that of `mode`, until they are improbable.

    The first run of the result is `mode`, or the best if that is a nat better: the search may have
    ended at far too little noise.

    Parameters
    ----------
    solver : GroupEP
        The solver whose run has ended at `mode`.
    mode : State
        At the learnt hyperparameters.
    design, t
        As for `run`.
    over : callable
        Returns whether the time is up; no further node is begun then.
    """
    prior = solver.hyperprior
    assert prior is not None
    learn = tuple(name for name in solver.learn if name != "noise_variance")
    here = replace(prior, learn=learn)
    at_nodes = replace(
        solver, learn=learn, hyperprior=here, cool_from=None, tol=max(solver.tol, _ROUGH)
    )
    freedom = max(mode.n_observations - mode.marginals.n_used, 2.0)
    step = _STEP * np.sqrt(2.0 / freedom)

    def objective(state: State) -> float:
        free = np.flatnonzero(~state.sites.always)
        odds = float(state.sites.prior_log_odds[free].mean()) if len(free) else 0.0
        return log_evidence(state) + prior.log_density(odds, float(np.log(state.sigma2)))

    sites = copy(mode.sites)
    sites.hyperprior = here
    runs, values = [NoiseRun(replace(mode, sites=sites))], [objective(mode)]
    for sign in (1.0, -1.0):
        former, settled, chain = mode, True, [0]
        for number in range(1, _FURTHEST + 1):
            variance = float(mode.sigma2 * np.exp(sign * number * step))
            if variance <= solver.smallest_noise or over():
                break
            former = _run_at(variance, at_nodes, former, design, t)
            value = objective(former)
            if not np.isfinite(value):
                break
            if former.change > _NEAR:  # between two places, or on the way to a better one
                last, before = chain[-1], chain[max(len(chain) - 2, 0)]
                expected = 2.0 * values[last] - values[before]
                if settled and expected > max(values) - _MATTERS:
                    runs[last] = runs[last]._replace(settled=False)
                settled = False
                if number >= _MOST:
                    break
                continue
            runs.append(NoiseRun(former, settled and former.change <= at_nodes.tol))
            settled = True
            chain.append(len(values))
            values.append(value)
            best = max(values)
            if value < best - _NEGLIGIBLE or (number >= _MOST and value < best):
                break
    first = int(np.argmax(values))
    if values[first] > values[0] + BETTER:
        runs.insert(0, runs.pop(first)._replace(settled=False))  # its noise is not learnt
    return runs
