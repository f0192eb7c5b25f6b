"""The posterior of the active weights under Gaussian noise, and the log evidence.

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
from typing import Generic, TypeVar

import numpy as np
from scipy.linalg import solve_triangular

from .._array import Array, PerTarget, on_same_device
from ..designs import Design
from ..linalg.factor import fold
from .covariance import Covariance, Dense, ModelAverage, ModelMixture, Revised

Form = TypeVar("Form", bound=Covariance)
_WEIGHTS = 512  # whose variances are computed at once


@dataclass(frozen=True)
class Posterior(Generic[Form]):
    """A Gaussian over the active weights, with the noise and the intercept.

    Parameters
    ----------
    mean : array of shape (k,) or (k, n_outputs)
        The mean of the weights.
    form : Covariance
        The covariance of the weights in one of its forms: see `sparsebayes.posterior.covariance`.
    noise_variance : float or array of shape (n_outputs,)
        The variance of a new observation around the function; 0 for a latent function.
    log_evidence : float
        Log evidence of the target at the hyperparameters of this posterior.
    offset : float or array of shape (n_outputs,)
        Constant added to ``(Phi - centre) @ mean``.
    offset_variance : float or array of shape (n_outputs,)
        Its variance; it is independent of the weights.
    centre : array of shape (k,), optional
        Subtracted from the functions, where their basis does not do so itself.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior import Dense, Posterior
    >>> p = Posterior(np.array([2.0]), Dense(np.array([[0.5]])), 1.0, log_evidence=-3.0)
    >>> mean, variance = p.predict(np.array([[1.0], [2.0]]))
    >>> mean, variance
    (array([2., 4.]), array([1.25, 2.  ]))
    """

    mean: np.ndarray
    form: Form
    noise_variance: PerTarget
    log_evidence: float
    offset: PerTarget = 0.0
    offset_variance: PerTarget = 0.0
    centre: np.ndarray | None = None

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of the weights, formed now; with several outputs, one matrix for each."""
        return self.form.multiply(np.eye(len(self.mean)))

    @property
    def weight_variance(self) -> np.ndarray:
        """Variance of each weight, of the shape of `mean`: the diagonal of `covariance`."""
        k = len(self.mean)
        if self.form.independent:
            return self.form.multiply(np.ones(k))
        # In blocks: the identity of thousands of weights would be as large as their covariance.
        parts = [
            self.form.variance(np.eye(min(_WEIGHTS, k - first), k, first))
            for first in range(0, k, _WEIGHTS)
        ]
        return np.concatenate(parts) if parts else np.zeros(self.mean.shape)

    @property
    def weight_std(self) -> np.ndarray:
        """Standard deviation of each weight, computed in units in which no square overflows."""
        noise = np.sqrt(np.max(self.noise_variance))
        unit = 2.0 ** np.round(np.log2(noise)) if 0.0 < noise < np.inf else 1.0
        scaled = replace(self, form=self.form.rescaled(1.0 / unit))
        return unit * np.sqrt(scaled.weight_variance)

    @property
    def intercept(self) -> PerTarget:
        """The mean where the functions are zero."""
        return self.offset if self.centre is None else self.offset - self.centre @ self.mean

    def predict(self, Phi: Array) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of a new observation at each row of Phi, noise included."""
        return self.at(Phi), self.function_variance(Phi) + self.noise_variance

    def at(self, Phi: Array) -> Array:
        """Return the mean at each row of Phi."""
        return Phi @ on_same_device(Phi, self.mean) + self.intercept

    def function_variance(self, Phi: Array) -> np.ndarray:
        """Return the variance of the function at each row of Phi, without the noise."""
        return self.form.variance(self.centred(Phi)) + self.offset_variance

    def predict_covariance(self, Phi: Array, noise: bool = True) -> np.ndarray:
        """Return the joint covariance of new observations, or of the function without `noise`."""
        C = self.form.between(self.centred(Phi)) + self.offset_variance
        if noise:
            C[np.diag_indices(len(C))] += self.noise_variance
        return C

    def sample(
        self, Phi: Array, n_samples: int, rng: np.random.Generator, noise: bool = True
    ) -> np.ndarray:
        """Return draws of new observations or of the function: (len(Phi), [n_outputs,] n)."""
        draws = self.form.draw(self.centred(Phi), n_samples, rng)
        sd = np.sqrt(np.asarray(self.offset_variance))[..., None]
        draws = draws + sd * rng.standard_normal(draws.shape[1:])
        if noise:
            sd = np.sqrt(np.asarray(self.noise_variance))[..., None]
            draws += sd * rng.standard_normal(draws.shape)
        return (Phi @ self.mean + self.intercept)[..., None] + draws

    def rescaled(self, scale: PerTarget, n_observations: float) -> Posterior[Form]:
        """Return the posterior of a target `scale` (one number, or one per output) times larger."""
        logs = np.broadcast_to(np.log(scale), self.mean.shape[1:])
        with np.errstate(over="ignore", under="ignore"):  # squares of extreme scales
            return replace(
                self,
                mean=self.mean * scale,
                form=self.form.rescaled(scale),
                noise_variance=self.noise_variance * scale * scale,
                log_evidence=self.log_evidence - n_observations * float(np.sum(logs)),
                offset=self.offset * scale,
                offset_variance=self.offset_variance * scale * scale,
            )

    def centred(self, Phi: Array) -> Array:
        """Return Phi less the centre of the functions."""
        return Phi if self.centre is None else Phi - on_same_device(Phi, self.centre)


def gaussian_posterior(
    design: Design,
    t: np.ndarray,
    active: np.ndarray,
    lam: np.ndarray,
    sigma2: PerTarget,
    offset: PerTarget = 0.0,
) -> Posterior[Dense]:
    """Return posterior and log evidence of the chosen columns at given hyperparameters.

    Parameters
    ----------
    design : Design
        The candidate columns.
    t : array of shape (n_rows,) or (n_rows, n_outputs)
        As ``design.target`` returned it.
    active : array of int
        The chosen columns.
    lam : array of shape (k,)
        Precision of each weight times the noise variance.
    sigma2 : float or array of shape (n_outputs,)
        The noise variance.
    offset : float or array of shape (n_outputs,)
        The constant that the posterior adds to its function.

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
    variance = design.offset_scale * np.asarray(sigma2)
    return Posterior(mean, Dense(root, sigma2), sigma2, float(log_evidence), offset, variance[()])


def augmented_triangle(
    design: Design, t: np.ndarray, active: np.ndarray, lam: np.ndarray
) -> tuple[np.ndarray, np.ndarray, PerTarget]:
    """Return R, Q't and the squared residual of least squares with [Phi; Lam^1/2] w = [t; 0].

    Parameters
    ----------
    design : Design
        The candidate columns.
    t : array of shape (n_rows,) or (n_rows, n_outputs)
        As ``design.target`` returned it.
    active : array of int
        The chosen columns, Phi.
    lam : array of shape (k,)
        The diagonal of Lam.
    """
    k, T = len(lam), t.reshape(len(t), -1)
    R = design.triangle(T, active)
    if np.any(lam):
        top = np.zeros((k, R.shape[1]))
        top[:, :k] = np.diag(np.sqrt(lam))
        R = fold([top, R], R.shape[1])
    residual = np.einsum("ij,ij->j", R[k:, k:], R[k:, k:])
    if t.ndim == 1:
        return R[:k, :k], R[:k, k], float(residual[0])
    return R[:k, :k], R[:k, k:], residual


def revise(
    base: Posterior, variance: np.ndarray, columns: np.ndarray, mean: np.ndarray, V: np.ndarray
) -> tuple[Posterior[Revised], np.ndarray]:
    """Return `base` with mean `mean` and covariance `V` for the weights in `columns`.

    The variances of all weights are returned too; they follow from those of `base`.

    Parameters
    ----------
    base : Posterior
        Posterior of all weights.
    variance : array of shape (d,)
        Their variances under `base`.
    columns : array of int of shape (k,)
        The weights with a better approximation.
    mean, V : arrays of shape (k,) and (k, k)
        Their mean and covariance under it.
    """
    k = len(columns)
    E = np.zeros((len(base.mean), k))
    E[columns, np.arange(k)] = 1.0
    across = base.form.multiply(E)
    former = across[columns]
    gain = np.linalg.solve(former, across.T).T
    gain[columns] = np.eye(k)
    values, vectors = np.linalg.eigh(V)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    revised = base.mean + gain @ (mean - base.mean[columns])
    posterior = replace(base, mean=revised, form=Revised(base.form, columns, gain, root))
    variance = variance + np.sum((gain @ (V - former)) * gain, axis=1)
    variance[columns] = np.diag(V)
    return posterior, np.maximum(variance, 0.0)


def average_models(
    base: Posterior, variance: np.ndarray, columns: np.ndarray, mixture: ModelMixture
) -> tuple[Posterior[ModelAverage], np.ndarray]:
    """Replace the distribution of the weights in `columns` by a mixture over models.

    The variances of all weights are returned too; they follow from those of `base`.

    Parameters
    ----------
    base : Posterior
        Posterior of all weights.
    variance : array of shape (d,)
        Their variances under `base`.
    columns : array of int of shape (k,)
        The weights that the mixture is about.
    mixture : ModelMixture
        Their distribution.
    """
    mean, V = mixture.moments()
    posterior, variance = revise(base, variance, columns, mean, V)
    form = posterior.form
    average = ModelAverage(form.base, columns, form.gain, form.root, mixture, mean)
    return replace(base, mean=posterior.mean, form=average), variance
