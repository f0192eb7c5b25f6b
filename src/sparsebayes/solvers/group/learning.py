"""Hyperparameters learnt around EP: when to take a step, how far, and when to stop.

The logarithms (or log-odds) h of what is learnt move by the EM form f(h) of the gradient of the
evidence, once the sites have settled: interleaved, sites and hyperparameters chase each other in
circles. EM alone crawls where the evidence is a flat ridge (few strong groups or many weak ones),
so its steps are mixed (`Mixing`), at most `_STRETCH` times as long, and a mixed step after which
the evidence has fallen, or the sites do not settle, is taken back for the plain one; the next is a
quarter as long at most, and those after it grow again.

It has converged when f is small, or when all steps to come would raise the evidence by less than 10
tol nats: a geometric series for each of h, of the ratio by which its f has become smaller in a step
(a mixed step is worth several). On a flat ridge one step promises nothing and f hardly shrinks, or
grows, but all together do matter.
Sites that come no closer to settling in a round of `PATIENCE` steps begin the next with stronger
damping, every other round mixed from the start, and the first `_TRIES` times an EM step moves the
problem under them: more would follow the cycle, not the data. After `_ROUNDS` such rounds since
they last settled they are said to cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .sites import Mixing, SpikeSlabSites

PATIENCE = 20  # steps in which sites should settle
_ROUNDS = 16
_TRIES = 5
_SETTLED = 0.01  # change of the sites, per unit of the last learning step, at which to learn again
_FINEST = 0.1  # times tol: change below which nothing need settle
_MIXED = 0.05  # change below which steps of the sites are mixed
SITES_DEPTH = 5  # how many of them
_DEPTH = 2  # how many learning steps
_STRETCH = 100.0  # longest mixed step, in EM steps
_NEAR = 0.1  # f from which on steps are mixed
_LONGEST = 0.5  # and in itself
_FALL = 1e-3  # nats: evidence of settled sites is known no better


@dataclass
class Learning:
    """What is known of the learning so far; nothing to learn unless `names`.

    Parameters
    ----------
    names : tuple of str
        What is learnt.
    tol : float
        Of the solver.
    """

    names: tuple[str, ...]
    tol: float
    moved: float = np.inf  # f of the last step
    gain: float = np.inf  # nats that it promised
    left: float = np.inf  # nats that all steps to come promise
    since: int = 0  # steps since then
    calm: float = 1.0  # factor on the damping
    unsettled: int = 0  # rounds without progress since the sites last settled
    _mixing: Mixing = field(default_factory=lambda: Mixing(_DEPTH))
    _stride: float = 1.0
    _longest: float = _LONGEST  # mixed step: a quarter of one that was taken back, then growing
    _last: Any = None  # f of the last step, and how many EM steps it was worth
    _former: Any = None  # h, f, evidence and sites before a mixed step, and its length

    def mix(self, change: float) -> bool:
        """Whether the sites are to be mixed: before they are near, it is open where they go."""
        return change < _MIXED or self.unsettled % 2 == 1

    def settled(self, change: float) -> bool:
        """Whether the sites have followed the last step."""
        return change <= max(_FINEST * self.tol, _SETTLED * min(1.0, self.moved))

    @property
    def done(self) -> bool:
        """Whether there is nothing left to learn."""
        return not self.names or min(self.moved, self.left) <= 10.0 * self.tol

    @property
    def cycling(self) -> bool:
        """Whether the sites have not settled for long."""
        return self.unsettled >= _ROUNDS

    def step(
        self,
        change: float,
        sites: SpikeSlabSites,
        hyper: Callable[[], tuple[np.ndarray, np.ndarray, np.ndarray]],
        put: Callable[[np.ndarray], None],
        evidence: Callable[[], float],
    ) -> bool:
        """Learn, or calm down, if it is time to; whether it was.

        `hyper` gives h, f(h) and the gradient of the evidence, `put` sets h.
        """
        self.since += 1
        settled = bool(self.names) and self.settled(change)
        if not settled and self.since < PATIENCE:
            return False
        self.since = 0
        if not settled:
            self.unsettled += 1
            self.calm *= 0.7
            if self._former is not None:
                self._back(sites, put)
            elif self.names and self.unsettled <= _TRIES:
                h, f, _ = hyper()
                self.moved = float(np.max(np.abs(f)))
                self._plain(put, h, f)
            return True
        h, f, gradient = hyper()
        self.unsettled = 0
        now = evidence()
        if self._former is not None and now < self._former[2] - _FALL:
            self._back(sites, put)
            return True
        if self._former is not None:
            self._longest = min(2.0 * self._longest, _LONGEST)
        self.moved = float(np.max(np.abs(f)))
        gain = np.abs(gradient * f)
        self.gain, self.left = float(gain.sum()), self._promised(f, gain)
        if self.moved > _NEAR:
            self._plain(put, h, f)
            return True
        step = f + self._mixing.correction(h, f, f, 1.0)
        # Downhill: f grows on the way, and mixing would turn back to where it was smaller.
        self._stride = 1.0 if step @ f > 0.0 else 2.0 * self._stride
        if self._stride > 1.0:
            step = self._stride * f
        longest = max(self.moved, min(_STRETCH * self.moved, self._longest))
        step *= min(1.0, longest / max(float(np.max(np.abs(step))), 1e-300))
        length = float(np.max(np.abs(step)))
        self._former = (h, f, now, sites.parameters(), length)
        self._last = (f, length / max(self.moved, 1e-300))
        put(h + step)
        return True

    def _promised(self, f: np.ndarray, gain: np.ndarray) -> float:
        """Nats of all EM steps to come, if each f_i goes on shrinking as it did."""
        moves = np.abs(f) > 10.0 * self.tol
        if self._last is None:
            return np.inf
        before, worth = self._last
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.abs(f / before) ** (1.0 / max(worth, 1.0))
            left = np.where(ratio < 1.0, gain / (1.0 - ratio), np.inf)
        return float(left[moves].sum())

    def _back(self, sites: SpikeSlabSites, put: Callable[[np.ndarray], None]) -> None:
        """Take the EM step in place of the mixed one."""
        h, f, _, former, length = self._former
        self._longest = 0.25 * length
        sites.restore(former)
        self._plain(put, h, f)

    def _plain(self, put: Callable[[np.ndarray], None], h: np.ndarray, f: np.ndarray) -> None:
        """An EM step, and nothing remembered of the steps before but its f."""
        self._former, self._stride, self._last = None, 1.0, (f, 1.0)
        self._mixing.forget()
        put(h + f)
