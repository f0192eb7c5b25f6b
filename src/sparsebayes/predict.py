"""Fitted functions with their uncertainty, the noise around them, and what follows from both.

A `Predictor` is a fitted function: its mean, variance, joint covariance and draws at new rows,
without the noise. `Noise` is the distribution of an observation around it. Neither knows the
training rows or an estimator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from ._array import Array, PerTarget, is_torch, to_device_of, to_numpy
from .data import Data
from .designs import Basis
from .posterior import AddedVariance, BlockLowRank, Dense, Draws, LeaveOneOut, ModelAverage
from .posterior.added import Extrapolation
from .posterior.gaussian import Posterior
from .posterior.leave_one_out import LooPredictions
from .posterior.noise import NoiseModel, Tail
from .posterior.predictive import Mixture, Predictive, observation
from .rows._base import Report

if TYPE_CHECKING:
    from .solvers.gp.neighbours import NeighbourProcess

Moments: TypeAlias = tuple[Array, Any, Array | None]  # mean, variance or None, functions

_MOST_ROWS = 4096  # rows of a block of predictions


class Predictor(Protocol):
    """A fitted function and its uncertainty."""

    @property
    def basis(self) -> Basis:
        """The functions of the model."""

    @property
    def posterior(self) -> Posterior:
        """The posterior of their weights."""

    @property
    def added(self) -> AddedVariance | None:
        """Variance beyond that of the posterior."""

    @property
    def takes_extrapolation(self) -> bool:
        """True where the variance beyond the range of the training rows has to be added."""

    @property
    def block_rows(self) -> int:
        """Number of rows that are best predicted at once."""

    @property
    def has_loo(self) -> bool:
        """True where leave-one-out residuals describe this function."""

    @property
    def is_local(self) -> bool:
        """True where the rows around each new one take part beside the posterior."""

    @property
    def stored_loo(self) -> LooPredictions | None:
        """Leave-one-out predictions of rows that the predictor itself stores; None without."""

    def moments(self, X: Array, spread: bool = True) -> Moments:
        """Return mean and variance (None without `spread`) at rows X, and the functions there."""

    def joint(self, X: Array) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and the joint covariance at rows X."""

    def sample(self, X: Array, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return draws at rows X, one column a draw."""

    def scaled(self, factor: PerTarget) -> Predictor:
        """Return the same mean with all variances, prior and noise, multiplied by `factor`."""

    def with_posterior(self, posterior: Posterior) -> Predictor:
        """Return the same functions with another posterior of their weights."""

    def with_added(self, added: AddedVariance) -> Predictor:
        """Return the same function with this variance beyond that of the posterior."""

    def runs_on_device(self, spread: bool) -> bool:
        """Tell whether `moments` can be computed where a tensor is."""


@dataclass(frozen=True, eq=False)
class PosteriorModel:
    """A sum of functions whose weights have a posterior.

    Attributes
    ----------
    basis : Basis
        The functions.
    posterior : Posterior
        The posterior of their weights, in the units of the target.
    added : AddedVariance, optional
        Variance beyond that of the posterior.
    """

    basis: Basis
    posterior: Posterior
    added: AddedVariance | None = None

    @property
    def block_rows(self) -> int:
        """Number of rows that are best predicted at once."""
        return min(_MOST_ROWS, max(64, 2**18 // max(1, len(self.basis))))

    is_local = False
    stored_loo = None

    @property
    def has_loo(self) -> bool:
        """True where leave-one-out residuals describe this function."""
        return self.added is None or self.added.joint

    def moments(self, X: Array, spread: bool = True) -> Moments:
        """Return mean and variance (None without `spread`) at rows X, and the functions there."""
        Phi = self.basis(X)
        variance = self.posterior.function_variance(Phi) if spread else None
        if spread and self.added is not None:
            variance += self.added.variance(X, Phi, self.posterior)
        return self.posterior.at(Phi), variance, Phi

    def joint(self, X: Array) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and the joint covariance at rows X."""
        Phi = self.basis(X)
        covariance = self.posterior.predict_covariance(Phi, noise=False)
        if self.added is not None:
            covariance = covariance + self.added.covariance(X)
        return self.posterior.at(Phi), covariance

    def sample(self, X: Array, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return draws at rows X, one column a draw."""
        draws = self.posterior.sample(self.basis(X), n, rng, noise=False)
        if self.added is None:
            return draws
        C = self.added.covariance(X)
        values, vectors = np.linalg.eigh(C if C.ndim == 2 else np.moveaxis(C, -1, 0))
        root = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
        more = root @ rng.standard_normal((*root.shape[:-1], n))
        return draws + (more if C.ndim == 2 else np.moveaxis(more, 0, 1))

    def scaled(self, factor: PerTarget) -> PosteriorModel:
        """Return the same mean with all variances, prior and noise, multiplied by `factor`."""
        if np.all(factor == 1.0):
            return self
        posterior = self.posterior
        posterior = replace(
            posterior,
            form=posterior.form.rescaled(np.sqrt(factor)),
            noise_variance=posterior.noise_variance * factor,
            offset_variance=posterior.offset_variance * factor,
        )
        added = None if self.added is None else self.added.scaled(factor)
        return replace(self, posterior=posterior, added=added)

    def with_posterior(self, posterior: Posterior) -> PosteriorModel:
        """Return the same functions with another posterior of their weights."""
        return replace(self, posterior=posterior)

    @property
    def takes_extrapolation(self) -> bool:
        """True where nothing is added to the variance of the posterior yet."""
        return self.added is None

    def with_added(self, added: AddedVariance) -> PosteriorModel:
        """Return the same function with this variance beyond that of the posterior."""
        return replace(self, added=added)

    def runs_on_device(self, spread: bool) -> bool:
        """Tell whether `moments` can be computed where a tensor is."""
        added_on_device = self.added is None or self.added.on_device
        return not spread or (isinstance(self.posterior.form, Dense) and added_on_device)


@dataclass(frozen=True, eq=False)
class LocalModel:
    """A Gaussian process of all training rows, local around each new one.

    Attributes
    ----------
    basis, posterior
        The global part of the process: few functions that all rows determine.
    process : NeighbourProcess
        The process itself.
    n_jobs : int or None
        Threads of predictions.
    """

    basis: Basis
    posterior: Posterior
    process: NeighbourProcess
    n_jobs: int | None = None
    added: AddedVariance | None = None
    takes_extrapolation = False  # a process has its prior variance away from the rows
    has_loo = True
    is_local = True
    block_rows = 2**14  # which the process cuts itself, for several threads

    @cached_property
    def stored_loo(self) -> LooPredictions:
        """Leave-one-out predictions of all training rows, which the process stores."""
        return self.process.leave_one_out(self.n_jobs)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "stored_loo"}

    def moments(self, X: Array, spread: bool = True) -> Moments:
        """Return mean and variance (None without `spread`) at rows X."""
        return *self.process.predict(X, self.n_jobs, spread), None

    def joint(self, X: Array) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and the joint covariance at rows X."""
        return self.process.joint(X)

    def sample(self, X: Array, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return draws at rows X, one column a draw."""
        mean, covariance = self.process.joint(X)
        return rng.multivariate_normal(mean, covariance, n, method="eigh").T

    def scaled(self, factor: Any) -> LocalModel:
        """Return the same mean with all variances, prior and noise, multiplied by `factor`."""
        scaled = PosteriorModel(self.basis, self.posterior).scaled(factor)
        process = replace(self.process, amplitude=self.process.amplitude * factor)
        return replace(self, posterior=scaled.posterior, process=process)

    def with_posterior(self, posterior: Posterior) -> LocalModel:
        """Return the same process with another posterior of its global part."""
        return replace(self, posterior=posterior)

    def with_added(self, added: AddedVariance) -> LocalModel:
        """Return the same process with this variance beyond that of the posterior."""
        return replace(self, added=added)

    def runs_on_device(self, spread: bool) -> bool:
        """Tell whether `moments` can be computed where a tensor is."""
        return True


@dataclass(frozen=True, eq=False)
class Noise:
    """The distribution of an observation around the function.

    Attributes
    ----------
    level : float or array of shape (n_outputs,)
        Noise variance of a new observation, where it does not depend on the inputs.
    model : NoiseModel, optional
        How the noise variance depends on the inputs.
    tail : Tail, optional
        Student's t in place of a normal distribution.
    at_rows : array of shape (n_rows,), optional
        Noise variance of each training row, where it differs between rows.
    """

    level: Any
    model: NoiseModel | None = None
    tail: Tail | None = None
    at_rows: np.ndarray | None = None

    @property
    def at_training_rows(self) -> PerTarget:
        """Noise variance of the training rows: one number, or one per row."""
        return self.level if self.at_rows is None else self.at_rows

    def variance(self, X: Array, predictor: Predictor, Phi: Array | None = None) -> Any:
        """Return the noise variance at rows X, whose functions may be known to be `Phi`."""
        if self.model is None:
            return self.level
        if is_torch(X):
            return to_device_of(X, self.variance(to_numpy(X), predictor))
        Phi = predictor.basis(X) if Phi is None else Phi
        return self.model.variance(X, Phi, predictor.posterior)

    def scaled(self, factor: Any, tail_factor: Any = 1.0) -> Noise:
        """Return noise with `factor` times the variance, and a tail of `tail_factor` its scale."""
        if np.all(factor == 1.0) and np.all(tail_factor == 1.0):
            return self
        return Noise(
            self.level * factor,
            None if self.model is None else self.model.scaled(factor),
            None if self.tail is None else replace(self.tail, scale=self.tail.scale * tail_factor),
            None if self.at_rows is None else self.at_rows * factor,
        )

    def draw(
        self, variance: PerTarget, shape: tuple[int, ...], rng: np.random.Generator
    ) -> np.ndarray:
        """Return draws of the noise; `variance` is that of each row."""
        sd = np.sqrt(np.asarray(variance))[..., None]
        if self.tail is None:
            return sd * rng.standard_normal(shape)
        return self.tail.scale * sd * rng.standard_t(self.tail.df, shape)


def without_noise(return_std: bool | str) -> bool:
    """Return whether the standard deviation of the function alone is requested."""
    if isinstance(return_std, str) and return_std != "function":
        raise ValueError(
            "return_std must be True (of a new observation, noise included), 'function' (without "
            f"the noise) or False, got {return_std!r}."
        )
    return isinstance(return_std, str)


def predict_rows(
    predictor: Predictor,
    noise: Noise,
    blocks: Iterable[tuple[slice, Array]],
    n_rows: int,
    return_std: bool,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return mean and standard deviation of new observations, block by block.

    `blocks` yields pairs (slice of rows, inputs there).
    """
    outputs = predictor.posterior.mean.shape[1:]
    mean = np.empty((n_rows, *outputs))
    variance = np.empty_like(mean) if return_std else None
    for rows, X in blocks:
        mean[rows], spread, Phi = predictor.moments(X, return_std)
        if variance is not None:
            variance[rows] = spread + noise.variance(X, predictor, Phi)
    # The variance of a function that the data determine may be below zero by rounding.
    return mean, None if variance is None else np.sqrt(np.maximum(variance, 0.0))


def predict_jointly(predictor: Predictor, noise: Noise, X: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and joint covariance of new observations at rows X."""
    mean, covariance = predictor.joint(X)
    covariance[np.diag_indices(len(covariance))] += noise.variance(X, predictor)
    return mean, covariance


def mixture(predictor: Predictor, noise: Noise, X: Array) -> Predictive | None:
    """Return the predictive mixture of a posterior that is one; None for Gaussian posteriors."""
    posterior = predictor.posterior
    form = posterior.form
    if not isinstance(form, Draws | ModelAverage):
        return None
    Phi = predictor.basis(X)
    around = noise.level + posterior.offset_variance
    weight, apart, variance = form.components(posterior.centred(Phi))
    return Mixture(apart + posterior.at(Phi), np.sqrt(variance + around), weight)


def leave_one_out(
    predictor: PosteriorModel, data: Data | None, report: Report | None = None
) -> LooPredictions | None:
    """Return the leave-one-out predictions of `data`; None where the posterior is not Gaussian."""
    if data is None or not isinstance(predictor.posterior.form, Dense | BlockLowRank):
        return None
    report = report if data.in_memory else None
    return data.reduce(LeaveOneOut(predictor.basis, predictor.posterior, predictor.added, report))


def loo_density(loo: LooPredictions, tail: Tail | None) -> np.ndarray:
    """Return the leave-one-out log density of each row, its outputs together."""
    noise = positive_root(loo.noise_variance)
    around = observation(np.zeros_like(loo.residual), positive_root(loo.variance), tail, noise)
    return around.log_density(loo.residual).reshape(len(loo.residual), -1).sum(axis=1)


def positive_root(variance: PerTarget) -> np.ndarray:
    """Return the square root, positive and finite: variances of 1e-150 squared may underflow."""
    limits = np.finfo(np.float64)
    return np.sqrt(np.clip(variance, limits.tiny, limits.max))


def with_extrapolation(model: Predictor, beyond: Extrapolation) -> Predictor:
    """Return a model with the variance of its process beyond the rows, if it has none of its own.

    Its mean returns to its constant there.
    """
    if not model.takes_extrapolation:
        return model
    return model.with_added(replace(beyond, constant=user_coefficients(model)[1]))


def user_coefficients(predictor: Predictor) -> tuple[np.ndarray, PerTarget, np.ndarray]:
    """Return coefficients, intercept and the scale of each function, in the units of X and y."""
    basis, posterior = predictor.basis, predictor.posterior
    with np.errstate(over="ignore", invalid="ignore"):
        intercept = posterior.intercept - basis.centre @ posterior.mean
        coef = (posterior.mean.T * basis.scale).T
    if not np.all(np.isfinite(coef)) or not np.all(np.isfinite(intercept)):
        raise ValueError(
            "The coefficients overflow float64: y is too large in comparison with the columns of "
            "X. Rescale X or y, for example with StandardScaler or TransformedTargetRegressor."
        )
    return coef, intercept, basis.scale
