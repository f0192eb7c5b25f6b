"""A Gaussian posterior after the distribution of a few of its weights has become better known.

EP treats every group on its own. Looking at several groups together (`solvers.group_joint`) gives
a better mean and covariance of their weights; the others follow, because given those few weights
nothing about the others has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class RevisedPosterior:
    """The weights w + G (u - w_U): the former ones, those in U replaced by u ~ N(., R R').

    With G = V[:, U] V[U, U]^-1 the others move as they are expected to when w_U becomes u, and the
    covariance is A V A' + G R R' G' with A = I - G E', E the columns U of the identity.

    Parameters
    ----------
    base : GaussianPosterior or WidePosterior
        The former posterior, of covariance V.
    columns : array of int of shape (k,)
        U.
    mean : array of shape (d,)
        The revised mean of all weights.
    gain : array of shape (d, k)
        G.
    root : array of shape (k, k)
        R.
    offset : float
        What is added to ``Phi @ mean``.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior import GaussianPosterior
    >>> from sparsebayes.posterior_revised import RevisedPosterior
    >>> base = GaussianPosterior(np.zeros(2), np.eye(2), 1.0, 0.0)
    >>> gain = np.array([[1.0], [0.0]])
    >>> p = RevisedPosterior(base, np.array([0]), np.array([3.0, 0.0]), gain, np.array([[2.0]]))
    >>> p.predict(np.eye(2))
    (array([3., 0.]), array([5., 2.]))
    """

    base: Any
    columns: np.ndarray
    mean: np.ndarray
    gain: np.ndarray
    root: np.ndarray
    offset: float = 0.0

    @property
    def noise_variance(self) -> float:
        """Of a new observation."""
        return float(self.base.noise_variance)

    @property
    def offset_scale(self) -> float:
        """Variance of the offset in units of the noise variance."""
        return float(self.base.offset_scale)

    @property
    def log_evidence(self) -> float:
        """That of `base`."""
        return float(self.base.log_evidence)

    @property
    def covariance(self) -> np.ndarray:
        """The d x d covariance of the weights, formed now."""
        return self.multiply(np.eye(len(self.mean)))

    def multiply(self, U: np.ndarray) -> np.ndarray:
        """Covariance of the weights times U (d,) or (d, m)."""
        kept, seen = self._split(U.T)
        VU = _multiply(self.base, kept.T)
        VU = VU - self.gain @ VU[self.columns]
        return VU + self.gain @ (self.root @ (self.root.T @ seen.T))

    def predict(self, Phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of a new observation at each row of Phi, noise included."""
        kept, seen = self._split(Phi)
        variance = self.base.predict(kept)[1] + np.sum((seen @ self.root) ** 2, axis=1)
        return Phi @ self.mean + self.offset, variance

    def predict_covariance(self, Phi: np.ndarray, noise: bool = True) -> np.ndarray:
        """Joint covariance of new observations (or of the function, without the noise)."""
        kept, seen = self._split(Phi)
        T = seen @ self.root
        return self.base.predict_covariance(kept, noise) + T @ T.T

    def sample(self, Phi: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of new observations, shape (len(Phi), n_samples)."""
        kept, seen = self._split(Phi)
        draws = self.base.sample(kept, n_samples, rng)
        draws -= (kept @ self.base.mean + self.base.offset)[:, None]  # its noise and spread remain
        draws += seen @ (self.root @ rng.standard_normal((len(self.root), n_samples)))
        return draws + (Phi @ self.mean + self.offset)[:, None]

    def rescaled(self, scale: float, n_observations: float) -> RevisedPosterior:
        """The posterior of a target `scale` times as large."""
        return replace(
            self,
            base=self.base.rescaled(scale, n_observations),
            mean=self.mean * scale,
            root=self.root * scale,
            offset=self.offset * scale,
        )

    def _split(self, Phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Phi A, which meets the former weights, and Phi G, which meets u."""
        seen = Phi @ self.gain
        kept = Phi.copy()
        kept[..., self.columns] -= seen
        return kept, seen


def revise(
    base: Any, variance: np.ndarray, columns: np.ndarray, mean: np.ndarray, V: np.ndarray
) -> tuple[RevisedPosterior, np.ndarray]:
    """`base` with mean `mean` and covariance `V` for the weights in `columns`.

    Also the variances of all weights, from those of `base`.
    """
    k = len(columns)
    E = np.zeros((len(base.mean), k))
    E[columns, np.arange(k)] = 1.0
    across = _multiply(base, E)
    former = across[columns]
    gain = np.linalg.solve(former, across.T).T
    gain[columns] = np.eye(k)
    values, vectors = np.linalg.eigh(V)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    revised = base.mean + gain @ (mean - base.mean[columns])
    posterior = RevisedPosterior(base, columns, revised, gain, root, base.offset)
    variance = variance + np.sum((gain @ (V - former)) * gain, axis=1)
    variance[columns] = np.diag(V)
    return posterior, np.maximum(variance, 0.0)


def _multiply(posterior: Any, U: np.ndarray) -> np.ndarray:
    if hasattr(posterior, "multiply"):
        return posterior.multiply(U)
    return posterior.noise_variance * (posterior.root @ (posterior.root.T @ U))
