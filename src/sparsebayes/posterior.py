"""What is known about the active weights, and the log evidence: one place for both.

For active columns Phi with prior precisions alpha = lam / sigma2,

    w | t ~ N(mu, sigma2 W),   W = (Phi'Phi + diag(lam))^-1,   mu = W Phi't,

    log p(t) = -1/2 [ N log(2 pi sigma2) + log|Phi'Phi + Lam| - sum log lam
                      + (|t - Phi mu|^2 + mu' Lam mu) / sigma2 ] + log_volume,

with N and log_volume from the design (weights, intercept). Everything comes from one orthogonal
factorisation of [Phi t; Lam^1/2 0], read in row blocks: its triangle R gives W = R^-1 R^-T, and its
last diagonal entry is the square root of |t - Phi mu|^2 + mu' Lam mu, without cancellation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from ._array import to_numpy
from .designs import Design
from .linalg.triangle import fold


@dataclass(frozen=True)
class GaussianPosterior:
    """A Gaussian over the active weights, with the noise and the intercept beside it.

    Parameters
    ----------
    mean : array of shape (k,) or (k, n_outputs)
    root : array of shape (k, k)
        The covariance of the weights is ``noise_variance * root @ root.T``.
    noise_variance : float or array of shape (n_outputs,)
    log_evidence : float
    offset : float or array of shape (n_outputs,)
        What is added to ``Phi @ mean``.
    offset_scale : float
        Variance of the offset in units of the noise variance.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior import GaussianPosterior
    >>> p = GaussianPosterior(np.array([2.0]), np.array([[0.5]]), 1.0, log_evidence=-3.0)
    >>> mean, variance = p.predict(np.array([[1.0], [2.0]]))
    >>> mean, variance
    (array([2., 4.]), array([1.25, 2.  ]))
    """

    mean: np.ndarray
    root: np.ndarray
    noise_variance: Any
    log_evidence: float
    offset: Any = 0.0
    offset_scale: float = 0.0

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of the weights; with several outputs, one matrix per output (last axis)."""
        return np.multiply.outer(self.root @ self.root.T, self.noise_variance)

    def predict(self, Phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of a new observation at each row of Phi, noise included."""
        spread = np.einsum("ij,ij->i", *[Phi @ self.root] * 2)
        spread += 1.0 + self.offset_scale
        return Phi @ self.mean + self.offset, np.multiply.outer(spread, self.noise_variance)

    def predict_covariance(self, Phi: np.ndarray, noise: bool = True) -> np.ndarray:
        """Joint covariance of new observations (or of the function, without the noise)."""
        T = Phi @ self.root
        C = T @ T.T + self.offset_scale
        if noise:
            C[np.diag_indices_from(C)] += 1.0
        return np.multiply.outer(C, self.noise_variance)

    def sample(self, Phi: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of new observations, shape (len(Phi), [n_outputs,] n_samples)."""
        outputs = self.mean.shape[1:]
        sd = np.sqrt(np.asarray(self.noise_variance))[..., None]
        k = len(self.mean)
        draws = np.tensordot(Phi @ self.root, rng.standard_normal((k, *outputs, n_samples)), axes=1)
        draws += np.sqrt(self.offset_scale) * rng.standard_normal((*outputs, n_samples))
        draws += rng.standard_normal((len(Phi), *outputs, n_samples))
        return (Phi @ self.mean + self.offset)[..., None] + sd * draws

    def rescaled(self, scale: Any, n_observations: float) -> GaussianPosterior:
        """The posterior of a target `scale` times as large (one number, or one per output)."""
        logs = np.broadcast_to(np.log(scale), self.mean.shape[1:])
        return replace(
            self,
            mean=self.mean * scale,
            noise_variance=self.noise_variance * scale**2,
            log_evidence=self.log_evidence - n_observations * float(np.sum(logs)),
            offset=self.offset * scale,
        )


def gaussian_posterior(
    design: Design,
    t: np.ndarray,
    active: np.ndarray,
    lam: np.ndarray,
    sigma2: Any,
    offset: Any = 0.0,
) -> GaussianPosterior:
    """Posterior and log evidence of the chosen columns at given hyperparameters.

    Parameters
    ----------
    design : Design
    t : array of shape (n_rows,) or (n_rows, n_outputs)
        As ``design.target`` returned it.
    active : array of int
    lam : array of shape (k,)
        Precision of each weight times the noise variance.
    sigma2 : float or array of shape (n_outputs,)
    offset : float or array of shape (n_outputs,)

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.posterior import gaussian_posterior
    >>> t = np.array([1.0, 2.0])
    >>> p = gaussian_posterior(DenseDesign(np.eye(2)), t, np.array([1]), np.array([1.0]), 1.0)
    >>> p.mean
    array([1.])
    """
    lam = np.asarray(lam, dtype=np.float64)
    R, z, residual = augmented_triangle(design, t, np.asarray(active, dtype=np.intp), lam)
    k = len(lam)
    root = solve_triangular(R, np.eye(k), lower=False) if k else np.zeros((0, 0))
    mean = solve_triangular(R, z, lower=False) if k else np.zeros((0, *t.shape[1:]))
    n_outputs = t.shape[1] if t.ndim == 2 else 1
    log_det = 2.0 * np.sum(np.log(np.abs(np.diag(R)))) - np.sum(np.log(lam))
    fit = np.sum(design.n_observations * np.log(2.0 * np.pi * np.asarray(sigma2)))
    fit += np.sum(residual / sigma2)
    log_evidence = -0.5 * (fit + n_outputs * log_det) + n_outputs * design.log_volume
    return GaussianPosterior(mean, root, sigma2, float(log_evidence), offset, design.offset_scale)


def augmented_triangle(
    design: Design, t: np.ndarray, active: np.ndarray, lam: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Any]:
    """R, Q't and the squared residual of the least squares problem [Phi; Lam^1/2] w = [t; 0].

    Each row block is folded into the triangle so far, so no n x k array is made.
    """
    k, T = len(lam), t.reshape(len(t), -1)
    width = k + T.shape[1]
    top = np.zeros((k, width))
    top[:, :k] = np.diag(np.sqrt(lam))
    blocks = (np.hstack([to_numpy(block), T[rows]]) for rows, block in design.blocks(active))
    R = fold(chain([top], blocks), width)
    residual = np.einsum("ij,ij->j", R[k:, k:], R[k:, k:])
    if t.ndim == 1:
        return R[:k, :k], R[:k, k], float(residual[0])
    return R[:k, :k], R[:k, k:], residual
