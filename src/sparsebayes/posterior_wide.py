"""Posteriors over many weights: through few rows, and through draws.

They answer like `posterior.GaussianPosterior` and take its place where a d x d covariance must not
be formed (`WidePosterior`) or where the posterior is not Gaussian (`DrawsPosterior`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .linalg.blocks import Partition


@dataclass(frozen=True)
class WidePosterior:
    """A Gaussian over d weights whose covariance is block diagonal less a part of rank n.

    With block diagonal factors F and an n x d array W, the covariance is F (I - W'W) F'. Memory
    O(n d); the covariance is formed only if it is asked for.

    Parameters
    ----------
    mean : array of shape (d,)
    blocks : Partition
        The blocks of F. Rows and columns of F and W follow its order, `mean` the original one.
    half : list of arrays of shape (n_blocks, k, k)
        F' of each block.
    W : array of shape (n, d)
    noise_variance, log_evidence, offset, offset_scale : float
        As in `GaussianPosterior`.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.linalg.blocks import partition
    >>> from sparsebayes.posterior_wide import WidePosterior
    >>> blocks = partition(np.array([0, 1]))
    >>> p = WidePosterior(
    ...     np.zeros(2), blocks, [np.ones((2, 1, 1))], np.array([[0.5, 0.0]]), 1.0, 0.0
    ... )
    >>> p.predict(np.eye(2))[1]
    array([1.75, 2.  ])
    """

    mean: np.ndarray
    blocks: Partition
    half: list[np.ndarray]
    W: np.ndarray
    noise_variance: float
    log_evidence: float
    offset: float = 0.0
    offset_scale: float = 0.0

    @property
    def covariance(self) -> np.ndarray:
        """The d x d covariance of the weights, formed now."""
        return self.multiply(np.eye(len(self.mean)))

    def multiply(self, U: np.ndarray) -> np.ndarray:
        """Covariance of the weights times U (d,) or (d, m), in O(n d m)."""
        inner = self._whiten(U.T if U.ndim == 2 else U[None])
        inner = inner - (inner @ self.W.T) @ self.W
        out = np.empty_like(inner)
        for bucket, F in zip(self.blocks.buckets, self.half, strict=True):
            at = slice(bucket.start, bucket.start + bucket.columns.size)
            parts = inner[:, at].reshape(len(inner), -1, bucket.size)
            out[:, bucket.columns] = np.einsum("gji,mgj->mgi", F, parts)
        return out.T if U.ndim == 2 else out[0]

    def predict(self, Phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of a new observation at each row of Phi, noise included."""
        inner = self._whiten(Phi)
        spread = np.einsum("ij,ij->i", inner, inner)
        known = inner @ self.W.T
        spread -= np.einsum("ij,ij->i", known, known)
        variance = np.maximum(spread, 0.0) + (1.0 + self.offset_scale) * self.noise_variance
        return Phi @ self.mean + self.offset, variance

    def predict_covariance(self, Phi: np.ndarray, noise: bool = True) -> np.ndarray:
        """Joint covariance of new observations (or of the function, without the noise)."""
        inner = self._whiten(Phi)
        known = inner @ self.W.T
        C = inner @ inner.T - known @ known.T + self.offset_scale * self.noise_variance
        if noise:
            C[np.diag_indices_from(C)] += self.noise_variance
        return C

    def sample(self, Phi: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of new observations, shape (len(Phi), n_samples)."""
        # u = u0 - W'(W u0 + R e) with R R' = I - W W' has covariance I - W'W.
        values, vectors = np.linalg.eigh(np.eye(len(self.W)) - self.W @ self.W.T)
        R = vectors * np.sqrt(np.maximum(values, 0.0))
        u = rng.standard_normal((self.W.shape[1], n_samples))
        u -= self.W.T @ (self.W @ u + R @ rng.standard_normal((len(R), n_samples)))
        draws = self._whiten(Phi) @ u
        sd = np.sqrt(self.noise_variance)
        draws += sd * np.sqrt(self.offset_scale) * rng.standard_normal(n_samples)
        draws += sd * rng.standard_normal(draws.shape)
        return draws + (Phi @ self.mean + self.offset)[:, None]

    def rescaled(self, scale: float, n_observations: float) -> WidePosterior:
        """The posterior of a target `scale` times as large."""
        return replace(
            self,
            mean=self.mean * scale,
            half=[F * scale for F in self.half],
            noise_variance=self.noise_variance * scale**2,
            log_evidence=self.log_evidence - n_observations * np.log(scale),
            offset=self.offset * scale,
        )

    def _whiten(self, Phi: np.ndarray) -> np.ndarray:
        """Rows of Phi F, in bucket order."""
        out = np.empty(Phi.shape)
        for bucket, F in zip(self.blocks.buckets, self.half, strict=True):
            at = slice(bucket.start, bucket.start + bucket.columns.size)
            # One block of weights after the other: (n_blocks, k, k) @ (n_blocks, k, rows).
            parts = F @ np.moveaxis(Phi[:, bucket.columns], 0, -1)
            out[:, at] = parts.reshape(-1, len(Phi)).T
        return out


@dataclass(frozen=True)
class DrawsPosterior:
    """Draws of the weights from a Markov chain, and the moments estimated from it.

    Parameters
    ----------
    mean : array of shape (d,)
    draws : array or sparse array of shape (n_draws, d)
    noise_variance : float
        The mean over the draws, where it was sampled.
    log_evidence : float
        NaN: a sampler does not give it.
    offset, offset_scale : float
        As in `GaussianPosterior`.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior_wide import DrawsPosterior
    >>> p = DrawsPosterior(np.array([1.0]), np.array([[0.5], [1.5]]), 0.1)
    >>> mean, variance = p.predict(np.array([[2.0]]))
    >>> mean, variance.round(3)
    (array([2.]), array([1.1]))
    """

    mean: np.ndarray
    draws: Any
    noise_variance: float
    log_evidence: float = np.nan
    offset: float = 0.0
    offset_scale: float = 0.0

    @property
    def covariance(self) -> np.ndarray:
        """The d x d covariance of the draws, formed now."""
        return self.multiply(np.eye(len(self.mean)))

    def multiply(self, U: np.ndarray) -> np.ndarray:
        """Covariance of the weights times U (d,) or (d, m)."""
        D = self.draws @ U - self.mean @ U
        return (self.draws.T @ D - np.multiply.outer(self.mean, D.sum(axis=0))) / len(D)

    def predict(self, Phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of a new observation at each row of Phi, noise included."""
        mean = Phi @ self.mean
        variance = np.mean((self._functions(Phi) - mean) ** 2, axis=0)
        return mean + self.offset, variance + (1.0 + self.offset_scale) * self.noise_variance

    def predict_covariance(self, Phi: np.ndarray, noise: bool = True) -> np.ndarray:
        """Joint covariance of new observations (or of the function, without the noise)."""
        D = self._functions(Phi) - Phi @ self.mean
        C = D.T @ D / len(D) + self.offset_scale * self.noise_variance
        if noise:
            C[np.diag_indices_from(C)] += self.noise_variance
        return C

    def sample(self, Phi: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of new observations, shape (len(Phi), n_samples)."""
        chosen = rng.integers(self.draws.shape[0], size=n_samples)
        out = self._functions(Phi)[chosen].T + self.offset
        sd = np.sqrt(self.noise_variance)
        out = out + sd * np.sqrt(self.offset_scale) * rng.standard_normal(n_samples)
        return out + sd * rng.standard_normal(out.shape)

    def rescaled(self, scale: float, n_observations: float) -> DrawsPosterior:
        """The posterior of a target `scale` times as large."""
        return replace(
            self,
            mean=self.mean * scale,
            draws=self.draws * scale,
            noise_variance=self.noise_variance * scale**2,
            log_evidence=self.log_evidence - n_observations * np.log(scale),
            offset=self.offset * scale,
        )

    def _functions(self, Phi: np.ndarray) -> np.ndarray:
        """Values at the rows of Phi under each draw, shape (n_draws, len(Phi))."""
        return np.asarray(self.draws @ Phi.T)
