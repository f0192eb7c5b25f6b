"""Labels for the tests of Laplace's approximation."""

from dataclasses import replace

import numpy as np
from scipy.special import expit

from sparsebayes.class_probabilities import Calibration
from sparsebayes.designs import KernelDesign
from sparsebayes.kernels import StationaryKernel


def labels(n=80, k=4, seed=0, weighted=False):
    """Return standard normal columns around 1, label counts and random precisions."""
    rng = np.random.default_rng(seed)
    Phi = rng.standard_normal((n, k)) + 1.0
    positive = rng.random(n) < expit(Phi[:, 0] - 0.5)
    weight = rng.integers(1, 4, n).astype(float) if weighted else np.ones(n)
    return Phi, np.column_stack([weight * positive, weight]), rng.uniform(0.1, 3.0, k)


def moons(n=150, seed=0):
    """Return kernel functions on two half circles, and their label counts."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, np.pi, n)
    side = rng.integers(0, 2, n)
    X = np.column_stack([np.cos(angle) + side, np.sin(angle) * (1 - 2 * side) + 0.4 * side])
    X += 0.25 * rng.standard_normal((n, 2))
    return KernelDesign(X, StationaryKernel("rbf", 1.0)), np.column_stack([side, np.ones(n)]) * 1.0


def with_intercept(Phi, alpha, intercept):
    """Return columns and precisions, with the intercept as a first column of precision zero."""
    if not intercept:
        return Phi, alpha
    return np.column_stack([np.ones(len(Phi)), Phi]), np.concatenate([[0.0], alpha])


def uncalibrated(model, X):
    """Return the scores of a classifier before they were calibrated, outside the rows as well."""
    fit = replace(model._fitted, beyond=None, calibration=Calibration())
    return fit.scores([(slice(0, len(X)), np.asarray(X, np.float64))], len(X), np.float64)
