"""What is known about the weights where they are taken as independent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .posterior import GaussianPosterior
from .posterior_laplace import LaplacePosterior


@dataclass(frozen=True)
class FactorisedPosterior(GaussianPosterior):
    """A Gaussian with independent weights: `root` holds the diagonal only, an array of shape (k,).

    `log_evidence` is a lower bound here.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior_factorised import FactorisedPosterior
    >>> p = FactorisedPosterior(np.array([2.0]), np.array([0.5]), 1.0, log_evidence=-3.0)
    >>> mean, variance = p.predict(np.array([[1.0], [2.0]]))
    >>> mean, variance
    (array([2., 4.]), array([1.25, 2.  ]))
    """

    @property
    def covariance(self) -> np.ndarray:
        """The diagonal covariance of the weights."""
        return np.diag(self.root**2 * self.noise_variance)

    def predict(self, Phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of a new observation at each row of Phi, noise included."""
        spread = Phi**2 @ self.root**2 + (1.0 + self.offset_scale)
        return Phi @ self.mean + self.offset, spread * self.noise_variance

    def predict_covariance(self, Phi: np.ndarray, noise: bool = True) -> np.ndarray:
        """Joint covariance of new observations (or of the function, without the noise)."""
        T = Phi * self.root
        C = T @ T.T + self.offset_scale
        if noise:
            C[np.diag_indices_from(C)] += 1.0
        return C * self.noise_variance

    def sample(self, Phi: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of new observations, shape (len(Phi), n_samples)."""
        draws = (Phi * self.root) @ rng.standard_normal((len(self.mean), n_samples))
        draws += np.sqrt(self.offset_scale) * rng.standard_normal(n_samples)
        draws += rng.standard_normal((len(Phi), n_samples))
        mean = Phi @ self.mean + self.offset
        return mean[:, None] + np.sqrt(self.noise_variance) * draws


@dataclass(frozen=True)
class FactorisedLogisticPosterior(LaplacePosterior):
    """The same for log odds: `root` holds the diagonal only, an array of shape (k,).

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior_factorised import FactorisedLogisticPosterior
    >>> p = FactorisedLogisticPosterior(np.array([2.0]), np.array([0.5]), -3.0, np.zeros(1))
    >>> p.predict(np.array([[1.0], [2.0]]))
    (array([2., 4.]), array([0.25, 1.  ]))
    """

    @property
    def covariance(self) -> np.ndarray:
        """The diagonal covariance of the weights."""
        return np.diag(self.root**2)

    def predict(self, Phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the latent function at each row of Phi."""
        variance = (Phi - self.centre) ** 2 @ self.root**2 + self.offset_variance
        return Phi @ self.mean + self.intercept, variance
