"""The exact end of backfitting: the relevance vector machine on the columns that are left.

Once few columns are left their k x k covariance is cheap, and the factorised posterior, whose
variances are too small on correlated columns, is no longer needed. `BasicRVM` re-estimates and
deletes; here columns also enter and leave, with a penalty:

    enter   the exact residual r = t - Phi mu is projected on all m candidates (one product). A
            column gains at least what S = |h|^2 in place of h'Ph promises; the best ones are then
            added one after the other with exact statistics, each on top of those before it.
            When nothing passes this screen, it is repeated with exact S for all (k products).
    leave   a column whose evidence is below its penalty.

The penalty is the price of one more column (`set_prior`).
"""

from __future__ import annotations

import numpy as np

from ...designs import Design
from ...posterior import augmented_triangle, gaussian_posterior
from ..noise import noise_floor
from ..rvm import basic as rvm
from ..rvm.one_column import evidence_gain, optimal_lam
from ..set_prior import SetPrior

_TOGETHER = 64  # candidates considered for one round of additions
_SPAN = 1e-12  # S/|h|^2 below which a candidate lies in the span of the active columns
_CHUNK = 32  # columns of the n x k and m x k products formed at a time


def enter(
    design: Design, t: np.ndarray, active: np.ndarray, lam: np.ndarray, sigma2: float
) -> rvm.State:
    """Return the state of a `BasicRVM` on these columns only."""
    R, z, residual_square = augmented_triangle(design, t, active, np.zeros(len(active)))
    return rvm.State(active, lam, sigma2, R, R.T @ R, z, float(residual_square))


def settle(state: rvm.State, design: Design, t: np.ndarray, noise: float | None) -> float:
    """Return the log evidence, with the noise at its best value if it is learnt."""
    now, n = rvm.moments(state, state.lam), design.n_observations
    if noise is None:
        state.sigma2 = max(now.E / n, noise_floor(t, n))
    return rvm.log_evidence(now, n, state.sigma2, design)


class ActiveSet:
    """The active columns at one moment, seen from all candidates."""

    def __init__(
        self, design: Design, t: np.ndarray, state: rvm.State, noise: float | None
    ) -> None:
        self.design, self.t, self.noise = design, t, noise
        self.active, self.lam, self.sigma2 = state.active, state.lam, state.sigma2
        posterior = gaussian_posterior(design, t, self.active, self.lam, self.sigma2)
        self.mu, self.root = posterior.mean, posterior.form.root
        self.log_evidence = posterior.log_evidence
        self.residual = t - design.apply(self.mu, self.active)
        self.E = float(self.residual @ self.residual) + float(self.lam @ self.mu**2)
        self.slack = 0.0
        if noise is None:
            self.slack = design.n_observations * noise_floor(t, design.n_observations)

    def drop(self, prior: SetPrior) -> np.ndarray | None:
        """Return the columns that stay when those below their penalty leave; None if all stay."""
        k, n = len(self.active), self.design.n_observations
        price = prior.price(k - 1) if k else 0.0
        if price <= 0.0:
            return None
        W = np.einsum("ij,ij->i", self.root, self.root)
        s, q = 1.0 / W - self.lam, self.mu / W
        x = np.where(s > 0, s / (s + self.lam), 0.0)
        gain = evidence_gain(x, s, q, self.E + self.mu**2 / W + self.slack, n, self.noise)
        poor = gain < price
        if not np.any(poor):
            return None
        keep = ~poor
        if np.sum(poor) > 1:  # each alone may go; all of them only if that raises the sum
            after = gaussian_posterior(
                self.design, self.t, self.active[keep], self.lam[keep], self.sigma2
            ).log_evidence + prior.log(int(np.sum(keep)))
            if after < self.log_evidence + prior.log(k):
                keep = np.arange(k) != np.argmin(gain)
        return keep

    def additions(
        self, norms: np.ndarray, prior: SetPrior, tol: float, thorough: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns that gain more than their penalty, with their lam.

        `norms` are the squared lengths of all candidates; `thorough` requests exact S of all.
        """
        design, n, k = self.design, self.design.n_observations, len(self.active)
        Q = design.project(self.residual)
        S = self._sparsity(norms) if thorough else norms
        gain = optimal_lam(S, Q, norms, self.E + self.slack, n, self.noise)[1]
        gain[S <= _SPAN * norms] = 0.0
        gain[self.active] = 0.0
        top = np.argsort(-gain, kind="stable")[:_TOGETHER]
        top = top[gain[top] > prior.price(k) + tol]
        if len(top) == 0:
            return top, np.empty(0)
        # Their Gram matrix less its part in the active columns: h'Ph of each pair.
        T = self.root.T @ design.gram(self.active, top)
        C = design.gram(top) - T.T @ T
        return self._one_after_another(top, C, Q[top], norms[top], prior, tol)

    def _one_after_another(
        self,
        top: np.ndarray,
        C: np.ndarray,
        q: np.ndarray,
        norms: np.ndarray,
        prior: SetPrior,
        tol: float,
    ) -> tuple[np.ndarray, np.ndarray]:
        E, n = self.E, self.design.n_observations
        chosen: list[int] = []
        lams: list[float] = []
        while True:
            s = np.diag(C).copy()
            lam, gain = optimal_lam(s, q, norms, E + self.slack, n, self.noise)
            gain[s <= _SPAN * norms] = 0.0
            gain[chosen] = 0.0
            j = int(np.argmax(gain))
            if gain[j] <= prior.price(len(self.active) + len(chosen)) + tol:
                return top[chosen], np.array(lams)
            w = 1.0 / (lam[j] + C[j, j])
            column = C[:, j].copy()
            E -= w * q[j] ** 2
            q = q - (w * q[j]) * column
            C = C - w * np.multiply.outer(column, column)
            chosen.append(j)
            lams.append(float(lam[j]))

    def _sparsity(self, norms: np.ndarray) -> np.ndarray:
        """Return S = h'Ph of all candidates."""
        S = norms.copy()
        for start in range(0, len(self.active), _CHUNK):
            Z = self.design.apply(self.root[:, start : start + _CHUNK], self.active)
            S -= np.einsum("ij,ij->i", *[self.design.project(Z)] * 2)
        return S
