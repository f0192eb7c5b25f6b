"""Several EP runs on one group spike-and-slab problem; the best evidence is kept.

EP can end in a wrong fixed point, above all where the noise is far below the signal and the rows
are few: too many groups in, every row explained, and often "converged". The evidence of two runs
tells which is right (by tens of nats on the problems where this was measured), and noise that
starts above the signal and is cooled mostly avoids the trap. So:

1. a plain run from the given noise variance (learnt noise: from a quarter of var(t));
2. a cooled run, from four times var(t), if the noise is below a tenth of var(t);
3. only where the best of these is doubtful (not settled, or it uses up nearly all rows): further
   cooled runs that differ on the way down: with a three times larger or smaller p0, with one site
   per column instead of one per group, or slowly.

A run gets `_TRIAL` steps to settle; the best goes on to `max_iter` if it has not (and so does one
that is ahead of a settled one), and if it then falls behind, so does the next best. A warm start
makes one run, and a cooled one only where every row is explained. Runs that settled go before runs
that did not, then the highest evidence wins: away from a fixed point the EP evidence means little.
An evidence above the highest likelihood is one of rounding errors, and its run goes last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ...designs import Design
from ..run import Result, StepCallback, StopReason, run
from .ep import GroupEP, State, log_evidence, log_likelihood_constant, log_objective
from .marginals import Form

_TRIAL = 100
MOST_TRIAL_STEPS = 3000  # of all runs but the kept one, cooling included
_HOT, _COLD = 4.0, 0.01  # of var(t): where cooling starts; where it ends if the noise is learnt
_PLAIN = 0.25  # of var(t): where a plain run starts that learns the noise
_LOW_NOISE = 0.1  # of var(t): cooling is tried below this
_SATURATED = 0.8  # of the rows: a fit that uses more degrees of freedom is doubtful
_MORE = 3  # runs that may go on to max_iter
_WORSE = 5.0  # nats by which a run must have fallen behind
_NEAR = 0.1  # change of the sites; far from rest the evidence has been seen thousands of nats off
_TINY = 1e-30  # |t|^2 of a constant target
_SETTLED = 0.01  # change of the sites of a settled run; what is learnt may move ten times as much


@dataclass
class Trial:
    """One run: how it started, and where it ended."""

    start: str
    result: Result

    @property
    def state(self) -> State:
        """The state in which it ended."""
        return self.result.state

    @property
    def evidence(self) -> float:
        """Its EP evidence; minus infinity where it cannot be one."""
        evidence = log_evidence(self.state)
        return evidence if self._is_possible(evidence) else -np.inf

    @property
    def objective(self) -> float:
        """The objective of learning; minus infinity where the evidence cannot be one."""
        return log_objective(self.state) if np.isfinite(self.evidence) else -np.inf

    def _is_possible(self, evidence: float) -> bool:
        # No evidence exceeds the highest likelihood; with rounding errors it may.
        return bool(np.isfinite(evidence) and evidence <= log_likelihood_constant(self.state))

    settled: bool = False

    @property
    def near(self) -> bool:
        """True if it is so near a fixed point that its evidence means something."""
        return self.state.change <= _NEAR

    @property
    def saturated(self) -> bool:
        """True if it explains every row."""
        state = self.state  # a row of weight 1,000 is 1,000 observations, and one row to explain
        n_rows = min(state.n_rows, state.n_observations)
        return state.marginals.n_used > _SATURATED * n_rows

    @property
    def doubtful(self) -> bool:
        """True if it has not settled, or explains every row."""
        return not self.settled or self.saturated


@dataclass
class EPRuns:
    """The kept run, and all runs in the order they were made."""

    best: Trial
    trials: list[Trial]


def search(
    solver: GroupEP,
    design: Design,
    t: np.ndarray,
    *,
    anneal: bool | str = "auto",
    max_iter: int = 500,
    callback: StepCallback[State] | None = None,
    form: Form | None = None,
) -> EPRuns:
    """Run EP from several starts and keep the best evidence; see the module docstring.

    Parameters
    ----------
    solver : GroupEP
        What to run. Where it learns the noise and is not warm, fractions of var(t) take the place
        of its `noise_variance`.
    design : Design
    t : array of shape (n_rows,)
    anneal : {"auto", True, False}, default="auto"
        False: the plain run alone. True: always the cooled run too.
    max_iter : int, default=500
        Most steps of the kept run.
    callback : callable, optional
        As for `run`; True ends the search with what has been found.
    form : Form, optional
        ``solver.form(design, t)``, where it is at hand.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers import GroupEP
    >>> from sparsebayes.solvers.group.search import search
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((30, 60))
    >>> t = X[:, :3] @ [1.0, -2.0, 1.0] + 0.1 * rng.standard_normal(30)
    >>> found = search(GroupEP(np.arange(60) // 3, 0.1, 1.0, 0.01), DenseDesign(X), t)
    >>> [trial.start for trial in found.trials]
    ['plain', 'cooled']
    """
    scale = max(float(t @ t), _TINY) / design.n_observations
    trials: list[Trial] = []
    form = solver.form(design, t) if form is None else form
    for name, lead, main in _starts(solver, scale):
        if trials and not _wanted(name, anneal, _best(trials), solver, scale):
            break
        trial = _try(name, lead, main, design, t, max_iter, callback, form)
        trials.append(trial)
        if trial.result.stop_reason in (StopReason.CALLBACK, StopReason.INTERRUPTED):
            break
    best = _best(trials)
    for _ in range(_MORE):
        # A run that had not settled may be on its way to a better place than those that have.
        ahead = max(trials, key=lambda x: x.objective if x.near else -np.inf)
        unfinished = ahead.result.stop_reason == StopReason.MAX_ITER
        unfinished = unfinished and ahead.result.n_iter < max_iter
        best = ahead if unfinished and ahead.objective > best.objective + _WORSE else best
        if best.result.stop_reason != StopReason.MAX_ITER or best.result.n_iter >= max_iter:
            break
        more = max_iter - best.result.n_iter
        continued = run(solver, design, t, max_iter=more, callback=callback, state=best.state)
        best.result = _joined(best.result, continued)
        best.settled = _has_settled(best.state, solver.tol)
        # A run that did not settle can wander to a worse place than where others were left.
        other = _best(trials)
        if other.settled == best.settled and other.objective < best.objective + _WORSE:
            break
        best = other
    return EPRuns(best, trials)


def starting_values(design: Design, t: np.ndarray, n_groups: int) -> tuple[float, float, float]:
    """p0, v0 and sigma2 to learn from.

    A prior that spends a quarter of the rows on weights (at most half of the groups), and whose
    variance is that of t.
    """
    n, d = max(design.n_observations, 1.0), design.n_candidates
    margin = 0.5 / n_groups
    p0 = float(np.clip(0.25 * n / d, margin, max(0.5, margin)))
    power = max(float(t @ t), _TINY)
    total = float(np.sum(design.sqnorms()))
    v0 = power / (p0 * total) if total > 0 else 1.0
    return p0, v0, _PLAIN * power / n


def _starts(solver: GroupEP, scale: float) -> Iterator[tuple[str, GroupEP | None, GroupEP]]:
    """Name, cooling run before it (or None) and solver of each start."""
    learnt = "noise_variance" in solver.learn
    fresh = solver.warm is None
    uncooled = solver
    if learnt and fresh:
        uncooled = replace(solver, noise_variance=max(_PLAIN * scale, solver.smallest_noise))
    yield "plain" if fresh else "warm", None, uncooled
    end = max(_COLD * scale, solver.smallest_noise) if learnt else solver.noise_variance
    main = replace(solver, noise_variance=end, warm=None)
    lead = replace(main, cool_from=_HOT * scale, learn=())
    p0 = np.asarray(solver.inclusion_prior, dtype=float)
    yield "cooled", lead, main
    yield "cooled, larger p0", replace(lead, inclusion_prior=3.0 * p0 / (1.0 + 2.0 * p0)), main
    yield "cooled, smaller p0", replace(lead, inclusion_prior=p0 / (3.0 - 2.0 * p0)), main
    no_clusters = all(b.groups is None for b in solver.blocks.buckets)
    if solver.sites == "group" and no_clusters and np.max(np.bincount(solver.group_of)) > 1:
        yield "cooled, sites per column", replace(lead, sites="column"), main
    yield "cooled slowly", replace(lead, cooling=0.96, damping=0.5 * solver.damping), main


def _wanted(name: str, anneal: bool | str, best: Trial, solver: GroupEP, scale: float) -> bool:
    if anneal is False:
        return False
    if solver.warm is not None and anneal == "auto":
        # The former fit has searched already; its solution may have become a trap.
        return name == "cooled" and best.saturated
    if name == "cooled":
        return anneal is True or best.doubtful or best.state.sigma2 < _LOW_NOISE * scale
    return best.doubtful


def _try(
    name: str,
    lead: GroupEP | None,
    main: GroupEP,
    design: Design,
    t: np.ndarray,
    max_iter: int,
    callback: StepCallback[State] | None,
    form: Form,
) -> Trial:
    """One start: cool, then run."""
    before = None
    if lead is not None:
        stopped = []

        def until_cold(iteration: int, info: NamedTuple, state: State) -> bool:
            stopped.append(bool(callback is not None and callback(iteration, info, state)))
            return stopped[-1] or not state.cooling

        state = lead.begin(form, design)
        n_steps = int(np.ceil(np.log(state.sigma2 / lead.noise_variance) / -np.log(lead.cooling)))
        before = run(lead, design, t, max_iter=n_steps, callback=until_cold, state=state)
        if any(stopped) or before.stop_reason == StopReason.INTERRUPTED:
            return Trial(name, before)
        sites = before.state.sites
        if lead.sites != main.sites:
            sites = sites.regrouped(main.blocks)
        main = replace(main, warm=sites)
    state = main.begin(form, design)
    result = run(main, design, t, max_iter=min(max_iter, _TRIAL), callback=callback, state=state)
    settled = _has_settled(state, main.tol)
    if before is not None:
        result = _joined(before, result)
    return Trial(name, result, settled)


def _has_settled(state: State, tol: float) -> bool:
    # Whatever tol: a finer one asks for more digits of the same run, not for other runs.
    return state.change <= max(_SETTLED, tol) and (
        not state.learning.names or state.learning.last_step_norm <= max(10.0 * _SETTLED, tol)
    )


def _best(trials: list[Trial]) -> Trial:
    def rank(x: Trial) -> tuple[bool, bool, bool, float]:
        order = x.objective if x.near else -x.state.change
        return np.isfinite(x.objective), x.settled, x.near, order

    return max(trials, key=rank)


def _joined(first: Result, second: Result) -> Result:
    names = first.history or second.history
    parts = (first.history, second.history)
    history = {k: np.concatenate([p[k] for p in parts if k in p]) for k in names}
    return Result(second.state, history, first.n_iter + second.n_iter, second.stop_reason)
