"""Group spike-and-slab problems, and their posterior by enumeration of all models."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import log

import numpy as np


def enumerate_models(X, y, group_of, p0, v0, sigma2):
    """Inclusion, mean and variance of the weights and log evidence, from all 2^G models."""
    n, G = len(X), group_of.max() + 1
    p0, v0 = np.broadcast_to(p0, G), np.broadcast_to(v0, G)
    log_weight, means, squares, models = [], [], [], []
    for model in itertools.product([False, True], repeat=int(G)):
        z = np.array(model)
        lam = (z * v0)[group_of]
        C = sigma2 * np.eye(n) + (X * lam) @ X.T
        a = np.linalg.solve(C, y)
        prior = np.sum(np.where(z, np.log(p0), np.log1p(-p0)))
        fit = n * np.log(2 * np.pi) + np.linalg.slogdet(C)[1] + y @ a
        log_weight.append(prior - 0.5 * fit)
        mean = lam * (X.T @ a)
        variance = lam - lam**2 * np.einsum("ij,ij->j", X, np.linalg.solve(C, X))
        means.append(mean)
        squares.append(variance + mean**2)
        models.append(z)
    log_weight = np.array(log_weight)
    log_evidence = np.logaddexp.reduce(log_weight)
    weight = np.exp(log_weight - log_evidence)
    mean = weight @ np.array(means)
    variance = weight @ np.array(squares) - mean**2
    return weight @ np.array(models), mean, variance, log_evidence


def enumerate_density(X, y, groups, p0, v0, sigma2, X_new, y_new):
    """Log density of new observations, one at a time, by a sum over all models."""
    weight, density = [], []
    for z in itertools.product([False, True], repeat=int(groups.max()) + 1):
        z = np.array(z)
        lam = (v0 * z)[groups]
        C = sigma2 * np.eye(len(y)) + (X * lam) @ X.T
        a = np.linalg.solve(C, np.column_stack([y, (X * lam) @ X_new.T]))
        fit = np.linalg.slogdet(C)[1] + y @ a[:, 0]
        weight.append(np.sum(np.where(z, np.log(p0), np.log1p(-p0))) - 0.5 * fit)
        cross = (X_new * lam) @ X.T
        variance = sigma2 + X_new**2 @ lam - np.sum(cross * a[:, 1:].T, axis=1)
        error = y_new - cross @ a[:, 0]
        density.append(-0.5 * (np.log(2 * np.pi * variance) + error**2 / variance))
    weight = np.array(weight) - np.logaddexp.reduce(weight)
    return np.logaddexp.reduce(weight[:, None] + np.array(density), axis=0)


def random_problem(rng, most_groups=10):
    """Correlated columns in 2 to `most_groups` groups of 1 to 5, drawn from the model."""
    G = int(rng.integers(2, most_groups + 1))
    sizes = rng.integers(1, 6, G)
    while sizes.sum() > 40:
        sizes = rng.integers(1, 6, G)
    group_of = np.repeat(np.arange(G), sizes)
    n, d = int(rng.integers(10, 41)), len(group_of)
    shared = rng.choice([0.0, 0.3, 0.6, 0.9])
    X = np.sqrt(1 - shared) * rng.standard_normal((n, d))
    X += np.sqrt(shared) * rng.standard_normal((n, 1))
    p0 = rng.uniform(0.1, 0.5)
    v0, sigma2 = np.exp(rng.uniform(np.log([0.25, 0.05]), np.log([4.0, 2.0])))
    w = np.sqrt(v0) * rng.standard_normal(d) * (rng.random(G) < p0)[group_of]
    y = X @ w + np.sqrt(sigma2) * rng.standard_normal(n)
    return X, y, group_of, p0, v0, sigma2


def few_groups(n, seed, d=1000, size=4, n_active=10, noise=0.1):
    """n rows, d columns in groups of `size`, `n_active` of them with N(0, 1) weights."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    group_of = np.arange(d) // size
    active = np.sort(rng.choice(d // size, n_active, replace=False))
    w = np.where(np.isin(group_of, active), rng.standard_normal(d), 0.0)
    return X, X @ w + noise * rng.standard_normal(n), group_of, w, active


def signal(seed, n=64):
    """The sparse signals of the paper's section 7.1: 4 of 128 groups of 4, noise variance 1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 512))
    X *= np.sqrt(512) / np.linalg.norm(X, axis=1, keepdims=True)
    group_of = np.arange(512) % 128
    active = np.sort(rng.choice(128, 4, replace=False))
    w = np.where(np.isin(group_of, active), rng.uniform(-1, 1, 512), 0.0)
    return X, X @ w + rng.standard_normal(n), group_of, w, active


def relative_error(estimate, truth):
    return np.linalg.norm(estimate - truth) / np.linalg.norm(truth)


def exact_quadratic(X, y, v0, sigma2):
    """Return y'C^-1 y, C = sigma2 I + v0 X X'; see `exact_sums`."""
    return exact_sums(X, y, v0, sigma2)[0]


def exact_sums(X, y, v0, sigma2):
    """Return y'C^-1 y and log|C| for C = sigma2 I + v0 X X', in fractions."""
    X, y = [[Fraction(x) for x in row] for row in X], [Fraction(t) for t in y]
    n = len(y)
    rows = [
        [sum(a * b for a, b in zip(X[i], X[j], strict=True)) * Fraction(v0) for j in range(n)]
        + [y[i]]
        for i in range(n)
    ]
    for i in range(n):
        rows[i][i] += Fraction(sigma2)
    for i in range(n):
        for j in range(i + 1, n):
            factor = rows[j][i] / rows[i][i]
            rows[j] = [b - factor * a for a, b in zip(rows[i], rows[j], strict=True)]
    pivots = [row[i] for i, row in enumerate(rows)]
    quadratic = float(sum(row[-1] ** 2 / p for row, p in zip(rows, pivots, strict=True)))
    return quadratic, sum(log(p.numerator) - log(p.denominator) for p in pivots)
