"""Backfitting for labels: the bound of Jaakkola & Jordan (2000) around `Backfitting`.

Model: labels with log odds a = Phi w + c, w_m ~ N(0, 1/alpha_m), flat prior on the intercept c.
With lambda(xi) = tanh(xi/2)/(4 xi), every row satisfies

    log p(label | a) >= (y - 1/2) a - lambda(xi) (a^2 - xi^2) - xi/2 + log sigma(xi),

a Gaussian in a. So at given xi this is a regression with noise variance 1: row i has weight
w_i = 2 lambda(xi_i) and target (y_i - 1/2)/w_i, and a step of `Backfitting` raises the bound. Then
xi_i^2 = E[a_i^2], which raises it once more, and leaves it at

    L = sum [(y_i - 1/2) E a_i + log sigma(xi_i) - xi_i/2] - KL(q(w) | prior) + entropy of q(c | w).

The intercept is integrated out of every regression. Cost of a step: that of the regression, and one
pass over the active columns for the new weights.

Deviations from the paper, which has no details:
- No hidden targets: with them the scale of the weights depends on a variance psi_z that cannot be
  learnt, and true coefficients are lost.
- The steps of xi are small where classes are apart: the bound is a parabola many
  times as steep as the likelihood there. With no more than `handover` columns the mean goes on by
  Newton steps of the bound with xi at its best (`_ahead`), and xi follows it: a tenth of the steps
  or fewer. With more, or without a prior, each step goes further than the best xi by a factor that
  grows by a fifth, as long as the bound rises; where it would fall, the step is taken back and ends
  at the best xi (over-relaxed EM, Salakhutdinov & Roweis 2003). A third of the steps or fewer.
- Labels count by weights: `counts` holds the weight of the positive labels and of all labels of
  each row, so that c_i (y_i - 1/2) above is c_i1 - c_i/2.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit

from ..._array import to_numpy
from ...callbacks import Reporter
from ...designs import Design
from ...designs.subset import subset
from ...linalg import inverse_root
from ...posterior import Dense, Diagonal, Posterior, gaussian_posterior
from ..run import Solution, StopReason
from ..set_prior import SetPrior
from . import factorised
from .active_set import enter
from .regression import LOOSE, Backfitting, least_squares

_FASTER = 1.2  # growth of the reach with every step that raised the bound
_FURTHEST = 30.0
_NEWTON = 10  # steps of the mean in one cycle
_SHARE = 0.1  # of tol: what the last of them may gain
_SHORTEST = 1e-6  # of a Newton step
_TINY = 1e-300
_PATIENCE = 5  # steps in a row that gain next to nothing, at the end
_STILL = 0.1  # of tol: what next to nothing is; steps shrink by a tenth or less near the end


class Info(NamedTuple):
    """One step, for the reader. `phase` is "factorised" or "exact"."""

    bound: float
    n_active: int
    sweeps: int
    phase: str


@dataclass
class State:
    """The regression at given xi, and xi itself."""

    inner: factorised.State
    xi: np.ndarray  # the best for it
    used: np.ndarray  # that of the last regression
    reach: float = 1.0  # how far the next regression goes from `used` towards `xi` and beyond
    bound: float = -np.inf
    gain: float = np.inf  # of the last step
    still: int = 0  # steps in a row that gained less than tol
    stop_reason: StopReason | None = None

    @property
    def active(self) -> np.ndarray:
        """Remaining columns."""
        return self.inner.active

    @property
    def alpha(self) -> np.ndarray:
        """Precisions of the active columns."""
        return self.inner.alpha


class Latent(NamedTuple):
    """The posterior of the weights at given xi, and of the log odds of each row."""

    mean: np.ndarray
    root: np.ndarray  # of the covariance: k x k, or its diagonal where it is factorised
    divergence: float  # from the prior of the weights, less the entropy of the intercept
    a: np.ndarray
    a_variance: np.ndarray


@dataclass(frozen=True)
class LogisticBackfitting:
    """Backfitting for labels; see the module docstring.

    Parameters
    ----------
    prior, variance, inclusion_prior, inner, tol, exact_limit, handover, reporter
        As in `Backfitting`.
    fit_intercept : bool, default=True
        Whether a constant of flat prior is added to the latent function.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers import LogisticBackfitting, run
    >>> rng = np.random.default_rng(0)
    >>> Phi = rng.standard_normal((200, 10))
    >>> labels = Phi[:, 3] + 0.5 * rng.standard_normal(200) > 0
    >>> counts = np.column_stack([labels, np.ones(200)])
    >>> result = run(LogisticBackfitting(), DenseDesign(Phi), counts, max_iter=500)
    >>> result.converged, 3 in result.state.active
    (True, True)
    """

    prior: str = "ard"
    variance: str = "exact"
    inclusion_prior: float | str | None = None
    inner: str = "cg"
    tol: float = 1e-3
    exact_limit: int = 1000
    fit_intercept: bool = True
    handover: int = 400
    reporter: Reporter = field(default_factory=Reporter)

    @property
    def regression(self) -> Backfitting:
        """Return the solver at given xi."""
        return Backfitting(
            self.prior,
            1.0,
            self.variance,
            self.inclusion_prior,
            self.inner,
            self.tol,
            self.exact_limit,
            self.handover,
            wide_limit=0,  # xi would need a new spectrum at every step
            reporter=self.reporter,
        )

    def init(self, design: Design, counts: np.ndarray) -> State:
        """Start as a regression with the largest weights that a label can have."""
        xi = np.zeros(design.n_rows)
        return State(self.regression.init(*self._at(xi, design, counts)), xi, xi)

    def empty(self, design: Design) -> State:
        """Return the model without columns."""
        none = np.empty(0)
        active = np.empty(0, dtype=np.intp)
        inner = factorised.State(
            active, none, none, none, 1.0, subset(design, active), none, None, none
        )
        xi = np.zeros(design.n_rows)
        return State(inner, xi, xi)

    def step(self, state: State, design: Design, counts: np.ndarray) -> tuple[State, Info]:
        """One step of the regression at given xi, then the best xi for it."""
        reach = state.reach
        if reach == 1.0:
            info = self._cycle(state, state.xi, design, counts)
            if not self._leads(state):
                state.reach = _FASTER
            return state, info
        best = replace(state, inner=replace(state.inner), reach=1.0)
        further = state.used + reach * (state.xi - state.used)
        info = self._cycle(state, np.maximum(further, 0.5 * state.xi), design, counts)
        state.reach = min(_FASTER * reach, _FURTHEST)
        if state.bound < best.bound:
            state = best
            info = self._cycle(state, state.xi, design, counts)
            state.reach = max(1.0, 0.5 * reach)
            if reach > _FASTER:  # a small step, where larger ones may still gain
                state.stop_reason = None
        return state, info

    def _cycle(self, state: State, xi: np.ndarray, design: Design, counts: np.ndarray) -> Info:
        weighted, t = self._at(xi, design, counts)
        self._rebind(state.inner, weighted, t)
        old = (state.inner.active, state.inner.alpha)
        # Columns enter and leave when xi has converged: a scan of all of them costs a pass or more.
        state.inner.hold = state.gain > (self.tol if state.inner.screened else LOOSE)
        state.inner, info = self.regression.step(state.inner, weighted, t)
        finished, state.inner.stop_reason = state.inner.stop_reason, None
        latent = self._latent(state.inner, weighted, counts, xi)
        if state.inner.exact is not None and state.reach == 1.0:
            latent = self._safe(state, latent, old, weighted, t, counts)
        state.used, state.xi = xi, np.sqrt(latent.a**2 + latent.a_variance)
        k = len(state.active)
        before, state.bound = state.bound, self._at_xi(state.xi, latent, k, weighted, counts)
        if self._leads(state):
            state.inner.mu, a = self._ahead(state.inner, latent, design, counts)
            state.xi = np.sqrt(a**2 + latent.a_variance)
        # Without a prior only the mean is learnt, which needs a smaller tolerance.
        tol = self.tol if self.prior != "none" else 1e-6 * self.tol
        state.gain = state.bound - before
        # After a short step that gains little, the next, longer one may gain more.
        state.still = state.still + 1 if state.gain < _STILL * tol else 0
        settled = finished and state.still >= _PATIENCE
        if settled and not (state.inner.exact and state.inner.hold):
            state.stop_reason = None if self._enlarged(state, design, counts) else finished
        return Info(state.bound, k, info.sweeps, info.phase)

    def done(self, state: State) -> StopReason | None:
        """Return why the search has finished, or None while it has not."""
        return state.stop_reason

    def solution(self, state: State, design: Design, t: np.ndarray) -> Solution:
        """Return the Gaussian of the bound, with that bound less the prior of the set as evidence.

        `t` has the weight of the positive labels in each row, and of all its labels.
        """
        return Solution(state.active, state.alpha, self._posterior(state, design, t))

    def _posterior(self, state: State, design: Design, counts: np.ndarray) -> Posterior:
        weighted, t = self._at(state.xi, design, counts)
        inner = state.inner
        self._rebind(inner, weighted, t)
        if inner.exact is None:
            inner.mu = self.regression.solve(inner, t).mu
        latent = self._latent(inner, weighted, counts, state.xi)
        root = latent.root
        if self.prior == "none":
            exact = least_squares(inner, weighted, t) if self.variance == "exact" else None
            root = 1.0 / np.sqrt(inner.norms) if exact is None else exact.form.root
        xi = np.sqrt(latent.a**2 + latent.a_variance)
        value = self._at_xi(xi, latent, 0, weighted, counts)
        centre, offset = np.zeros(len(state.active)), 0.0
        if self.fit_intercept:
            weight, z = _working(state.xi, counts)
            centre = design.project(weight, state.active) / np.sum(weight)
            offset = float(weight @ z / np.sum(weight))
        form = Dense(root) if root.ndim == 2 else Diagonal(root)
        return Posterior(latent.mean, form, 0.0, value, offset, weighted.offset_scale, centre)

    # The regression at given xi.

    def _at(self, xi: np.ndarray, design: Design, counts: np.ndarray) -> tuple[Design, np.ndarray]:
        weight, z = _working(xi, counts)
        rows = design.weighted(weight)
        rows = rows.centred() if self.fit_intercept else rows
        return rows, rows.target(z)

    def _rebind(self, inner: factorised.State, weighted: Design, t: np.ndarray) -> None:
        """Carry the posterior over to rows of other weights."""
        if inner.exact is not None:
            settled = inner.exact.settled
            inner.exact = enter(weighted, t, inner.active, inner.alpha, 1.0)
            inner.exact.settled = settled
        else:
            inner.columns = subset(weighted, inner.active)
            inner.norms = inner.columns.sqnorms()
            inner.residual = t - inner.columns.apply(inner.mu)
        inner.all_norms = None

    def _latent(
        self, inner: factorised.State, weighted: Design, counts: np.ndarray, xi: np.ndarray
    ) -> Latent:
        weight, z = _working(xi, counts)
        t = weighted.target(z)
        active, alpha = inner.active, inner.alpha
        if inner.exact is not None or (self.prior == "ridge" and self.regression.is_exact(inner)):
            posterior = gaussian_posterior(weighted, t, active, alpha, 1.0)
            mean, root = posterior.mean, posterior.form.root
            spread = np.empty(weighted.n_rows)
            for rows, block in weighted.blocks(active):
                spread[rows] = np.einsum("ij,ij->i", *[block @ root] * 2)
            log_det = 2.0 * float(np.sum(np.log(np.abs(np.diag(root)))))
            v = np.einsum("ij,ij->i", root, root)
        else:
            mean, v = inner.mu, inner.v
            root = np.sqrt(v)
            spread = inner.columns.apply_squares(v)
            log_det = float(np.sum(np.log(v))) if self.prior != "none" else 0.0
        divergence = 0.0
        if self.prior != "none":
            size = float(np.sum(np.log(alpha) + 1.0 - alpha * (mean**2 + v)))
            divergence = -0.5 * (size + log_det)
        a = weighted.apply(mean, active) / np.sqrt(weight)
        if self.fit_intercept:
            total = float(np.sum(weight))
            a = a + float(weight @ z) / total
            if self.prior != "none":  # else all weights, this one too, are plain estimates
                spread = spread + weight / total
                divergence -= 0.5 * (np.log(2.0 * np.pi / total) + 1.0)
        return Latent(mean, root, divergence, a, spread / weight)

    def _leads(self, state: State) -> bool:
        """Return whether the mean goes ahead of xi."""
        return self.prior != "none" and len(state.active) <= self.handover

    def _ahead(
        self, inner: factorised.State, latent: Latent, design: Design, counts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and log odds after Newton steps, at given precisions and variances.

        They raise the bound with xi at its best throughout, which is concave in the mean: its
        slope is c (y - 1/2 - 2 lambda(xi) a) in each row, its curvature
        c (2 lambda(xi) v + (a sech(xi/2)/2)^2)/xi^2 with v the variance of a.
        """
        positive, total = counts.T
        alpha, active, k = inner.alpha, inner.active, len(inner.alpha)
        w, a, v = latent.mean, latent.a, latent.a_variance
        if self.fit_intercept:  # it takes up the means; with them the Hessian may have no digits
            design = design.centred()
        m = k + int(self.fit_intercept)
        lam = np.append(alpha, 0.0)[:m]

        def value(a: np.ndarray, w: np.ndarray) -> float:
            xi = np.sqrt(a**2 + v)
            rows = (positive - 0.5 * total) @ a + total @ (log_expit(xi) - 0.5 * xi)
            return float(rows) - 0.5 * float(alpha @ w**2)

        now = value(a, w)
        for _ in range(_NEWTON):
            square = np.maximum(a**2 + v, _TINY)
            xi = np.sqrt(square)
            slope = positive - 0.5 * total - 2.0 * total * _slope(xi) * a
            both = expit(xi) * expit(-xi)  # sech^2(xi/2) / 4
            curvature = total * (2.0 * _slope(xi) * v + a**2 * both) / square
            H, gradient = np.zeros((k + 1, k + 1)), np.zeros(k + 1)  # the last is the intercept
            for rows, block in design.blocks(active):
                B = np.column_stack([to_numpy(block), np.ones(rows.stop - rows.start)])
                H += (B * curvature[rows, None]).T @ B
                gradient += B.T @ slope[rows]
            gradient[:k] -= alpha * w
            try:
                root, _ = inverse_root(H[:m, :m], lam)
            except np.linalg.LinAlgError:
                break
            step = np.zeros(k + 1)
            step[:m] = root @ (root.T @ gradient[:m])
            change = design.apply(step[:k], active) + step[k]
            share, new = 1.0, value(a + change, w + step[:k])
            while new < now and share > _SHORTEST:
                share *= 0.25
                new = value(a + share * change, w + share * step[:k])
            if not new > now:
                break
            w, a, gained, now = w + share * step[:k], a + share * change, new - now, new
            if gained < _SHARE * self.tol:
                break
        return w, a

    def _safe(
        self,
        state: State,
        latent: Latent,
        old: tuple[np.ndarray, np.ndarray],
        weighted: Design,
        t: np.ndarray,
        counts: np.ndarray,
    ) -> Latent:
        """`latent`, or that of an EM step from the old precisions if the bound has fallen.

        MacKay's re-estimate has no guarantee and is checked here only after the fact.
        """
        value = self._at_xi(state.xi, latent, len(state.active), weighted, counts)
        if value >= state.bound - 1e-10 * abs(value):
            return latent
        inner = state.inner
        inner.active, inner.alpha = old
        before = self._latent(inner, weighted, counts, state.xi)
        inner.alpha = 1.0 / (before.mean**2 + np.einsum("ij,ij->i", before.root, before.root))
        inner.exact = enter(weighted, t, inner.active, inner.alpha, 1.0)
        return self._latent(inner, weighted, counts, state.xi)

    def _enlarged(self, state: State, design: Design, counts: np.ndarray) -> bool:
        """Double all log odds where that raises the bound, and return whether it did.

        Where the classes are apart, a thousand steps of xi gain next to nothing each on this way.
        """
        if state.inner.exact is None:
            return False
        xi, active, alpha = 2.0 * state.xi, state.active, 0.25 * state.alpha
        weighted, t = self._at(xi, design, counts)
        inner = replace(state.inner, alpha=alpha, exact=enter(weighted, t, active, alpha, 1.0))
        latent = self._latent(inner, weighted, counts, xi)
        best = np.sqrt(latent.a**2 + latent.a_variance)
        bound = self._at_xi(best, latent, len(active), weighted, counts)
        if not bound > state.bound + self.tol:
            return False
        state.inner, state.xi, state.used, state.bound, state.still = inner, best, xi, bound, 0
        return True

    # The bound.

    def _at_xi(
        self, xi: np.ndarray, latent: Latent, k: int, design: Design, counts: np.ndarray
    ) -> float:
        """Return L at any xi, plus the log prior of the set of columns."""
        positive, total = counts.T
        square = latent.a**2 + latent.a_variance
        rows = (positive - 0.5 * total) @ latent.a
        rows += total @ (log_expit(xi) - 0.5 * xi - _slope(xi) * (square - xi**2))
        prior = SetPrior(self.inclusion_prior, design.n_candidates)
        return float(rows) - latent.divergence + prior.log(k)


def _slope(xi: np.ndarray) -> np.ndarray:
    """lambda(xi) = tanh(xi/2)/(4 xi), 1/8 at 0."""
    small = xi < 1e-4
    safe = np.where(small, 1.0, xi)
    return np.where(small, 0.125 - xi**2 / 96.0, np.tanh(0.5 * safe) / (4.0 * safe))


def _working(xi: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights and targets of the regression at given xi."""
    positive, total = counts.T
    weight = 2.0 * total * _slope(xi)
    return weight, (positive - 0.5 * total) / weight
