"""Backfitting with any smoother in it: a Bayesian additive model.

Model: t = sum_m f_m(x) + e, e ~ N(0, sigma2), where f_m is the fit of a smoother (a regressor with
`fit` and `predict`: splines, trees, kernel ridge) of its own columns of X. A cycle updates the
components in turn: the smoother is fitted to z = f_m + r, the residual without this component, and
the fit h is shrunk by the factor x,

    theta = (h'z)^2/(|h|^2 sigma2),   x = max(0, 1 - p/theta),   f_m = x (h'z/|h|^2) h,

then sigma2 = (|r|^2 + sigma2 sum p x)/N. This is the evidence maximum of p orthonormal columns with
one precision, h = Pz; p = 1 is the rule of `backfitting` for a single column. Over its absence such
a component gains (theta - p - p log(theta/p))/2 nats, and it is absent (x = 0) where theta <= p,
that is if it explains no more than noise would, or its gain is below its penalty: with an
`inclusion_prior` a set of components has a prior, as a set of columns has in `backfitting`. Each of
11 components of pure noise has theta > p every other time; the penalty keeps them out.

The p of a black box is measured by fits to pure noise e: p = E[theta] there, which for a projection
is its degrees of freedom E[e'h(e)], and more for a smoother that shrinks (its h is scaled up
again, in noise too). The same fits give the band: the posterior covariance of a component is
x sigma2 P, and P is estimated by the mean of h(e)(x) h(e)(x') over the draws. For smoothers that
adapt to their target, as trees do, both are those of a target without structure. On structure they
adapt more: bands are too narrow where they use more than half of the rows.

For smoothers that are projections (splines by least squares) the bound

    L = -1/2 [N log(2 pi sigma2) + |r|^2/sigma2]
        + 1/2 sum [p log(1 - x) - (1 - x) |f|^2/(x sigma2)] + log p(set)

never falls. Components that can take each other's place raise it slowly: where it has risen for
`_PATIENCE` cycles, or would end, the best scales of all components at the same x are solved for
together after each cycle, which has the same fixed points. For other smoothers it may fall, and
only shows convergence. Smoothers that adapt to their target can change each other's fits without
end, so a run ends if the bound has not exceeded its highest value for `_PATIENCE` cycles. It also
ends if the components have had nearly as many degrees of freedom as there are distinct rows for so
long: they interpolate, and the noise variance would fall towards zero over thousands of cycles.

Cost: one fit of each smoother in a cycle, and `n_draws` fits of each at the start.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ...designs import Design
from ...designs._base import Index, UncentredBasis
from ...posterior import Diagonal, Posterior
from ...rows import row_hashes
from ..noise import noise_floor
from ..run import Solution, StopReason
from ..set_prior import SetPrior

_PATIENCE = 20
_NEARLY_ALL = 0.8  # of the different rows, in degrees of freedom of the components present
_MANY = 0.5  # of the observations, above which bands of components that adapt are too narrow
_LINEAR = 1e-3  # relative error with which a linear smoother fits a sum by a sum


class Info(NamedTuple):
    """One cycle, for the reader."""

    bound: float
    n_active: int
    noise_variance: float


@dataclass
class Component:
    """A fitted smoother minus its mean over the training rows."""

    smoother: Any
    columns: np.ndarray
    mean: float

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.smoother.predict(X[:, self.columns]), dtype=float) - self.mean


@dataclass
class State:
    """The components and their share in the fit; all row vectors are weighted."""

    fits: list[Component | None]
    scale: np.ndarray  # f_m = scale * h
    shrinkage: np.ndarray  # x
    shrunk: np.ndarray  # 1 - x, with its digits where x is nearly 1
    values: np.ndarray  # f_m on the training rows, n x M
    sigma2: float
    residual: np.ndarray
    draws: list[list[Component]]
    freedom: np.ndarray  # p
    adapts: np.ndarray  # whether the fit of a component is not linear in its target
    n_different: int  # rows of X
    bound: float = -np.inf
    highest: float = -np.inf  # bound so far
    still: int = 0  # cycles in a row that have not passed it, or that interpolate
    rising: int = 0  # cycles in a row that have passed it
    stop_reason: StopReason | None = None

    @property
    def active(self) -> np.ndarray:
        """The components that are present."""
        return np.flatnonzero(self.shrinkage > 0)

    @property
    def adaptive_freedom(self) -> float:
        """Degrees of freedom of the components present that adapt to their target."""
        return float(self.freedom[self.adapts] @ self.shrinkage[self.adapts])

    @property
    def lam(self) -> np.ndarray:
        """Precision of the weight on h times sigma2: |h|^2 (1 - x)/x of the active components."""
        on = self.active
        size = np.sum(self.values[:, on] ** 2, axis=0) / self.scale[on] ** 2
        return size * self.shrunk[on] / self.shrinkage[on]


@dataclass(frozen=True)
class AdditiveSolution(Solution):
    """The components in the model; the posterior is that of the functions of `basis`."""

    basis: SmootherBasis  # the components, then the draws of their bands
    relevance: np.ndarray  # shrinkage factor of every component, 0 if it is absent
    overfits: bool  # whether components that adapt to their target use too many degrees of freedom


@dataclass(frozen=True)
class AdditiveModel:
    """Backfitting of smoothers; see the module docstring.

    Parameters
    ----------
    parts : list of (smoother, columns)
        Unfitted smoothers and the columns of X that each sees.
    X : array of shape (n_rows, n_features)
        The inputs.
    root : array of shape (n_rows,)
        Square roots of the weights of the rows.
    noise_variance : float or None, default=None
        Fixed noise variance; None learns it.
    inclusion_prior : None, float or "learn", default=None
        Prior probability that a component is there; as in `Backfitting`.
    tol : float, default=1e-3
        Nats that a cycle may change the bound by at convergence.
    n_draws : int, default=20
        Fits to noise of each smoother.
    seed : int, default=0
        Draws that noise.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from sparsebayes.designs import CentredDesign, DenseDesign
    >>> from sparsebayes.solvers import AdditiveModel, run
    >>> X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    >>> design = CentredDesign(DenseDesign(X))
    >>> t = design.target(np.sign(X[:, 1]))
    >>> tree = DecisionTreeRegressor(max_depth=1)
    >>> solver = AdditiveModel([(tree, np.array([j])) for j in (0, 1)], X, np.ones(200))
    >>> run(solver, design, t, max_iter=20).state.active
    array([1])
    """

    parts: list[tuple[Any, np.ndarray]] = field(repr=False)
    X: np.ndarray = field(repr=False)
    root: np.ndarray = field(repr=False)
    noise_variance: float | None = None
    inclusion_prior: float | str | None = None
    tol: float = 1e-3
    n_draws: int = 20
    seed: int = 0

    def init(self, design: Design, t: np.ndarray) -> State:
        """Start without components; estimate their degrees of freedom and bands from noise."""
        rng = np.random.default_rng(self.seed)
        n, M = design.n_observations, len(self.parts)
        draws: list[list[Component]] = [[] for _ in self.parts]
        freedom, adapts = np.zeros(M), np.zeros(M, dtype=bool)
        noise = rng.standard_normal((self.n_draws, len(t)))
        noise -= np.outer(noise @ self._along(design), self._along(design))
        for m in range(M):
            fits = np.empty_like(noise)
            for e, h in zip(noise, fits, strict=True):
                component, h[:] = self._fit(m, e, design)
                draws[m].append(component)
                size = float(h @ h)
                if size > 0:
                    freedom[m] += float(e @ h) ** 2 / size / self.n_draws
            of_sum = self._fit(m, noise[:2].sum(axis=0), design)[1]
            error = np.linalg.norm(of_sum - fits[:2].sum(axis=0))
            adapts[m] = error > _LINEAR * np.linalg.norm(of_sum)
        sigma2 = self.noise_variance or max(float(t @ t) / n, noise_floor(t, n))
        return State(
            [None] * M,
            np.zeros(M),
            np.zeros(M),
            np.ones(M),
            np.zeros((len(t), M)),
            sigma2,
            t.copy(),
            draws,
            np.clip(freedom, 0.1, n),
            adapts,
            len(np.unique(row_hashes(self.X))),
        )

    def step(self, state: State, design: Design, t: np.ndarray) -> tuple[State, Info]:
        """One cycle over the components."""
        n, prior = design.n_observations, self.set_prior
        for m in range(len(self.parts)):
            z = state.residual + state.values[:, m]
            state.fits[m], h = self._fit(m, z, design)
            size = float(h @ h)
            along = float(h @ z) / size if size > 0 else 0.0
            theta = along * along * size / state.sigma2
            p, others = state.freedom[m], int(np.sum(np.delete(state.shrinkage, m) > 0))
            present = theta > p and along > 0 and worth(theta, p) > prior.price(others)
            state.shrunk[m] = p / theta if present else 1.0
            x = state.shrinkage[m] = 1.0 - state.shrunk[m]
            state.scale[m] = x * along
            state.values[:, m] = state.scale[m] * h
            state.residual = z - state.values[:, m]
        if state.rising >= _PATIENCE:
            state = _together(state, t)
        state.residual = t - state.values.sum(axis=1)
        used = float(state.freedom @ state.shrinkage)
        interpolates = self.noise_variance is None and used > _NEARLY_ALL * state.n_different
        if self.noise_variance is None:
            used_df = state.sigma2 * used
            residual_square = float(state.residual @ state.residual)
            state.sigma2 = max((residual_square + used_df) / n, noise_floor(t, n))
        value = bound(state, design) + prior.log(len(state.active))
        before, state.bound = state.bound, value
        rose = value > state.highest + self.tol
        state.rising = state.rising + 1 if rose else 0
        state.still = 0 if rose and not interpolates else state.still + 1
        state.highest = max(state.highest, value)
        info = Info(value, len(state.active), state.sigma2)
        if abs(state.bound - before) < self.tol:
            together = _together(state, t)
            if bound(together, design) + prior.log(len(state.active)) > value + self.tol:
                return replace(together, rising=_PATIENCE), info
            state.stop_reason = StopReason.CONVERGED
        elif state.still >= _PATIENCE:
            state.stop_reason = StopReason.SATURATED if rose else StopReason.CYCLING
        return state, info

    def done(self, state: State) -> StopReason | None:
        """Return why the search has finished, or None while it has not."""
        return state.stop_reason

    def solution(self, state: State, design: Design, t: np.ndarray) -> AdditiveSolution:
        """Return the posterior of the functions of the basis: the components, then their draws."""
        active = state.active
        spread = np.sqrt(np.repeat(state.shrinkage[active], self.n_draws) / self.n_draws)
        mean = np.concatenate([state.scale[active], np.zeros(len(spread))])
        root = np.concatenate([np.zeros(len(active)), spread])
        value = state.bound - self.set_prior.log(len(active))
        sigma2, variance = state.sigma2, design.offset_scale * state.sigma2
        posterior = Posterior(mean, Diagonal(root, sigma2), sigma2, value, offset_variance=variance)
        fits = [state.fits[m] for m in active]
        basis = SmootherBasis(fits, [draw for m in active for draw in state.draws[m]])
        overfits = state.adaptive_freedom > _MANY * design.n_observations
        relevance = state.shrinkage.copy()
        return AdditiveSolution(active, state.lam, posterior, basis, relevance, overfits)

    @property
    def set_prior(self) -> SetPrior:
        """Prior of the set of components."""
        return SetPrior(self.inclusion_prior, len(self.parts))

    def _along(self, design: Design) -> np.ndarray:
        """Return the direction of the intercept; zero if there is none."""
        return self.root * np.sqrt(design.offset_scale)

    def _fit(self, m: int, z: np.ndarray, design: Design) -> tuple[Component, np.ndarray]:
        """Fit smoother m to the weighted target z; return it and its weighted values."""
        template, columns = self.parts[m]
        smoother = deepcopy(template)
        part = self.X[:, columns]
        if np.all(self.root == 1.0):
            smoother.fit(part, z)
        else:
            smoother.fit(part, z / self.root, sample_weight=self.root**2)
        values = np.asarray(smoother.predict(part), dtype=np.float64)
        mean = float(self.root**2 @ values) * design.offset_scale
        return Component(smoother, columns, mean), self.root * (values - mean)


@dataclass
class SmootherBasis(UncentredBasis):
    """Fitted components, followed by the draws of their bands."""

    components: list[Any]
    draws: list[Component]

    def __call__(self, X: np.ndarray) -> np.ndarray:
        out = np.empty((X.shape[0], len(self)))
        for j, function in enumerate(self.components + self.draws):
            out[:, j] = function(X)
        return out

    def __len__(self) -> int:
        return len(self.components) + len(self.draws)

    @property
    def scale(self) -> np.ndarray:
        """Scale of each function, which is one."""
        return np.ones(len(self))

    def take(self, idx: Index) -> SmootherBasis:
        """Return the basis of the functions `idx`."""
        functions = np.array([*self.components, *self.draws], dtype=object)
        return SmootherBasis(list(functions[idx]), [])


def _together(state: State, t: np.ndarray) -> State:
    """Return the state with the best scales of all components together, at these shrinkages.

    One after the other, components that can nearly take each other's place need thousands of
    cycles.
    """
    on = state.active
    h = state.values[:, on] / state.scale[on]
    rows = np.vstack([h, np.diag(np.sqrt(state.lam))])
    scale, values = state.scale.copy(), state.values.copy()
    scale[on] = np.linalg.lstsq(rows, np.append(t, np.zeros(len(on))), rcond=None)[0]
    values[:, on] = h * scale[on]
    return replace(state, scale=scale, values=values, residual=t - values.sum(axis=1))


def bound(state: State, design: Design) -> float:
    """Return L of the module docstring, without the prior of the set."""
    s, n, on = state.sigma2, design.n_observations, state.active
    fit = n * np.log(2.0 * np.pi * s) + float(state.residual @ state.residual) / s
    x, shrunk = state.shrinkage[on], state.shrunk[on]
    size = np.sum(state.values[:, on] ** 2, axis=0)
    prior = state.freedom[on] * np.log(shrunk) - shrunk * size / (x * s)
    return design.log_volume - 0.5 * fit + 0.5 * float(np.sum(prior))


def worth(theta: float, p: float) -> float:
    """Return the gain of a component of p degrees of freedom at its best precision."""
    return 0.5 * (theta - p - p * float(np.log(theta / p)))
