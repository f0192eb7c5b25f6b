"""Learning hyperparameters around EP: when to take a step, how long it is, and when to stop.

The logarithms (or log-odds) h of the hyperparameters move by the EM form f(h) of the gradient of
the evidence. A step waits until the sites have settled: if both move at once, sites and
hyperparameters follow each other in circles.

EM is slow where the evidence has a flat ridge (few strong groups or many weak ones). So its steps
are accelerated by Anderson mixing (`Mixing`), up to `_STRETCH` times their length. A mixed step is
replaced by the plain EM step if the evidence falls or the sites do not settle after it; the next
mixed step is then at most a quarter as long, and later ones grow again.

Learning has converged when f is small, or when all steps to come are predicted to raise the
evidence by less than 10 tol nats, at sites that are at rest also without mixing. The prediction is
a geometric series for each of h, whose ratio is the factor by which its f has shrunk in a step (a
mixed step counts as several). On a flat ridge one step gains nearly nothing and f hardly shrinks,
but all steps together do matter. After a large step there is no prediction: f of one hyperparameter
has changed because another one has moved. Sites that have settled for a step are not yet at their
fixed point, where f may be another one. So the end is confirmed there, within tol.

Sites that do not settle in a round of `PATIENCE` steps begin the next round with stronger damping,
and every other round with mixing from the start. In the first `_TRIES` such rounds an EM step moves
the problem under them; more would follow the cycle and not the data. After `_ROUNDS` rounds without
progress the sites are reported to cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .mixing import Mixing
from .sites import SpikeSlabSites

PATIENCE = 20  # steps in which sites should settle
SITES_DEPTH = 5  # former steps of the sites that are mixed
_ROUNDS = 16  # without progress, after which sites are reported to cycle
_TRIES = 5  # rounds without progress in which an EM step is taken
_SETTLED = 0.01  # change of the sites, per unit of the last learning step, at which to learn again
_FINEST = 0.1  # times tol: change below which sites count as settled in any case
_MIXED = 0.05  # change below which steps of the sites are mixed
_DEPTH = 2  # former learning steps that are mixed
_STRETCH = 100.0  # length of a mixed step at most, in EM steps
_LONGEST = 0.5  # length of a mixed step at most, in itself
_NEAR = 0.1  # f below which learning steps are mixed
_FALL = 1e-3  # nats: the accuracy of the evidence of settled sites


class _Mixed(NamedTuple):
    """State before a mixed step, and the length of the step."""

    h: np.ndarray
    f: np.ndarray
    evidence: float
    sites: list[list[np.ndarray]]
    length: float


@dataclass
class Learning:
    """The state of learning.

    Parameters
    ----------
    names : tuple of str
        The hyperparameters that are learnt; there may be none.
    tol : float
        The tolerance of the solver.
    """

    names: tuple[str, ...]
    tol: float
    last_step_norm: float = np.inf  # largest entry of f in the last step
    predicted_gain: float = np.inf  # nats, of the last step
    predicted_total_gain: float = np.inf  # nats, of all steps to come
    sites_at_rest: bool = False  # at the last step, also without their mixing
    steps_since_update: int = 0  # of the sites, since the last learning step or round
    damping_scale: float = 1.0  # factor on the damping of the sites
    rounds_without_progress: int = 0  # since the sites last settled
    _mixing: Mixing = field(default_factory=lambda: Mixing(_DEPTH))
    _stride: float = 1.0  # factor on EM steps that lead downhill
    _longest: float = _LONGEST  # length that a mixed step may have now
    _last: tuple[np.ndarray, float] | None = None  # f of the last step, and its length in EM steps
    _former: _Mixed | None = None
    _is_confirmed: bool = False  # that the end is one at sites within tol of their fixed point

    def mix(self, change: float) -> bool:
        """Return whether to mix steps of the sites: near a fixed point, or when they are stuck."""
        return change < _MIXED or self.rounds_without_progress % 2 == 1

    def settled(self, change: float) -> bool:
        """Return whether the sites have followed the last learning step."""
        return change <= self._small_change

    @property
    def _small_change(self) -> float:
        if self._may_end:
            return self.tol
        return max(_FINEST * self.tol, _SETTLED * min(1.0, self.last_step_norm))

    @property
    def _may_end(self) -> bool:
        remaining = min(self.last_step_norm, self.predicted_total_gain)
        return self.sites_at_rest and remaining <= 10.0 * self.tol

    @property
    def done(self) -> bool:
        """True when there is nothing more to learn."""
        return not self.names or self._is_confirmed

    @property
    def cycling(self) -> bool:
        """True when the sites have not settled for `_ROUNDS` rounds."""
        return self.rounds_without_progress >= _ROUNDS

    def step(
        self,
        change: float,
        sites: SpikeSlabSites,
        hyper: Callable[[], tuple[np.ndarray, np.ndarray, np.ndarray]],
        put: Callable[[np.ndarray], None],
        evidence: Callable[[], float],
    ) -> bool:
        """Take a learning step, or begin a new round, if it is time to.

        Parameters
        ----------
        change : float
            Of the sites in their last step.
        sites : SpikeSlabSites
            To be restored where a step is taken back.
        hyper : callable
            Returns h, f(h) and the gradient of the evidence.
        put : callable
            Sets h.
        evidence : callable
            Returns the log evidence.

        Returns
        -------
        moved : bool
            Whether the sites face a new problem, or new damping.
        """
        self.steps_since_update += 1
        settled = bool(self.names) and self.settled(change)
        if not settled and self.steps_since_update < PATIENCE:
            return False
        self.steps_since_update = 0
        if not settled:
            self.rounds_without_progress += 1
            self.sites_at_rest = self._is_confirmed = False
            self.damping_scale *= 0.7
            if self._former is not None:
                self._take_back(sites, put)
            elif self.names and self.rounds_without_progress <= _TRIES:
                h, f, _ = hyper()
                self.last_step_norm = float(np.max(np.abs(f)))
                self._em_step(put, h, f)
            return True
        h, f, gradient = hyper()
        self.sites_at_rest = sites.at_rest(change, self._small_change)
        self.rounds_without_progress = 0
        now = evidence()
        if self._former is not None and now < self._former.evidence - _FALL:
            self._take_back(sites, put)
            return True
        if self._former is not None:
            self._longest = min(2.0 * self._longest, _LONGEST)
        self.last_step_norm = float(np.max(np.abs(f)))
        gain = np.abs(gradient * f)
        self.predicted_gain = float(gain.sum())
        self.predicted_total_gain = self._predict_total(f, gain)
        self._is_confirmed = self._may_end and change <= self.tol
        if self._is_confirmed:
            return False
        if self.last_step_norm > _NEAR:
            self._em_step(put, h, f)
            return True
        step = f + self._mixing.correction(h, f, f, 1.0)
        # Downhill: f grows on the way, and mixing would turn back to where it was smaller.
        self._stride = 1.0 if step @ f > 0.0 else min(2.0 * self._stride, _STRETCH)
        if self._stride > 1.0:
            step = self._stride * f
        longest = max(self.last_step_norm, min(_STRETCH * self.last_step_norm, self._longest))
        step *= min(1.0, longest / max(float(np.max(np.abs(step))), 1e-300))
        length = float(np.max(np.abs(step)))
        self._former = _Mixed(h, f, now, sites.parameters(), length)
        self._last = (f, length / max(self.last_step_norm, 1e-300))
        put(h + step)
        return True

    def _predict_total(self, f: np.ndarray, gain: np.ndarray) -> float:
        """Return the nats of all EM steps to come, if each f_i goes on shrinking as it did."""
        moves = np.abs(f) > 10.0 * self.tol
        if self._last is None:
            return np.inf
        before, length = self._last
        if np.max(np.abs(before)) > _NEAR:
            return np.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.abs(f / before) ** (1.0 / max(length, 1.0))
            total = np.where(ratio < 1.0, gain / (1.0 - ratio), np.inf)
        return float(total[moves].sum())

    def _take_back(self, sites: SpikeSlabSites, put: Callable[[np.ndarray], None]) -> None:
        """Replace the last mixed step by its EM step."""
        former = self._former
        assert former is not None
        self._longest = 0.25 * former.length
        sites.restore(former.sites)
        self._em_step(put, former.h, former.f)

    def _em_step(self, put: Callable[[np.ndarray], None], h: np.ndarray, f: np.ndarray) -> None:
        """Take an EM step and forget all former steps but its f."""
        self._former, self._stride, self._last = None, 1.0, (f, 1.0)
        self._mixing.forget()
        put(h + f)
