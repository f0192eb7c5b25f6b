"""Posteriors of the active weights of a model, and the log evidence.

A `Posterior` is a Gaussian over the weights (mean and covariance), together with the noise and the
intercept. Its covariance has one of six forms (`posterior.covariance`): a full matrix, one that is
formed when it is used, independent weights, blocks less a part of low rank, the draws of a Markov
chain, or a form in which a few weights were revised. Predicting, sampling, joint covariances and
changes of units are written once, in `Posterior`, for all of them.

`gaussian_posterior` returns that of given columns under Gaussian noise, `laplace_posterior` that of
logistic labels. See docs/theory/posterior.md.
"""

from .added import (
    AddedVariance,
    Explored,
    Extrapolation,
    Healing,
    ResidualProcess,
    Unlike,
    process_variance,
)
from .covariance import (
    BlockLowRank,
    Covariance,
    Deferred,
    Dense,
    Diagonal,
    Draws,
    ModelAverage,
    ModelMixture,
    Revised,
)
from .gaussian import Posterior, augmented_triangle, average_models, gaussian_posterior, revise
from .laplace import laplace_posterior, likelihood_slopes, log_likelihood
from .leave_one_out import LeaveOneOut, LooPredictions
from .shared import SharedEffect, shared_effects

__all__ = [
    "AddedVariance",
    "BlockLowRank",
    "Covariance",
    "Deferred",
    "Dense",
    "Diagonal",
    "Draws",
    "Explored",
    "Extrapolation",
    "Healing",
    "LeaveOneOut",
    "LooPredictions",
    "ModelAverage",
    "ModelMixture",
    "Posterior",
    "ResidualProcess",
    "Revised",
    "SharedEffect",
    "Unlike",
    "augmented_triangle",
    "average_models",
    "gaussian_posterior",
    "laplace_posterior",
    "likelihood_slopes",
    "log_likelihood",
    "process_variance",
    "revise",
    "shared_effects",
]
