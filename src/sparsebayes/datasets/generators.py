"""Simulated data whose true function or weights are known.

Every generator takes `random_state`. Two calls with the same `random_state`, one with noise and one
with ``noise=0``, return the same inputs, so that the second target is the true function of the
first.
"""

from __future__ import annotations

import numbers
from typing import Any, Literal

import numpy as np
from sklearn.utils import check_random_state

RandomState = int | np.random.RandomState | None
Weights = Literal["uniform", "normal"]


def make_sinc(
    n_samples: int = 100,
    *,
    noise: float = 0.1,
    noise_kind: Literal["normal", "uniform"] = "normal",
    inputs: Literal["random", "grid"] = "random",
    random_state: RandomState = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Generate sin(x)/x on [-10, 10] with noise.

    Parameters
    ----------
    n_samples : int, default=100
        Number of rows.
    noise : float, default=0.1
        Standard deviation of normal noise, or half the width of uniform noise.
    noise_kind : {"normal", "uniform"}, default="normal"
        Distribution of the noise. Tipping (2001) uses both, normal noise of 0.1 and uniform noise
        on [-0.2, 0.2].
    inputs : {"random", "grid"}, default="random"
        Inputs drawn uniformly, or equally spaced from -10 to 10 as in Tipping (2001).
    random_state : int, RandomState instance or None, default=None
        Seed of the inputs and of the noise.

    Returns
    -------
    X : ndarray of shape (n_samples, 1)
    y : ndarray of shape (n_samples,)

    Examples
    --------
    >>> from sparsebayes.datasets import make_sinc
    >>> X, y = make_sinc(5, noise=0.0, inputs="grid")
    >>> X.ravel()
    array([-10.,  -5.,   0.,   5.,  10.])
    >>> y.round(3)
    array([-0.054, -0.192,  1.   , -0.192, -0.054])
    """
    _check_count("n_samples", n_samples)
    _check_noise(noise)
    _check_choice("noise_kind", noise_kind, ("normal", "uniform"))
    _check_choice("inputs", inputs, ("random", "grid"))
    random = check_random_state(random_state)
    if inputs == "grid":
        x = np.linspace(-10.0, 10.0, n_samples)
    else:
        x = random.uniform(-10.0, 10.0, n_samples)
    if noise_kind == "normal":
        error = random.standard_normal(n_samples)
    else:
        error = random.uniform(-1.0, 1.0, n_samples)
    return x[:, None], np.sinc(x / np.pi) + noise * error  # numpy's sinc(u) is sin(pi u)/(pi u)


def make_sparse_signal(
    n_samples: int = 64,
    n_features: int = 512,
    *,
    n_active: int = 16,
    weights: Weights = "uniform",
    noise: float = 1.0,
    random_state: RandomState = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Generate random projections of a sparse weight vector: ``y = X coef + noise``.

    Parameters
    ----------
    n_samples : int, default=64
        Number of projections.
    n_features : int, default=512
        Length of the weight vector.
    n_active : int, default=16
        Number of weights that are not zero; their positions are random.
    weights : {"uniform", "normal"}, default="uniform"
        Distribution of those weights: uniform on [-1, 1], or standard normal.
    noise : float, default=1.0
        Standard deviation of the normal noise.
    random_state : int, RandomState instance or None, default=None
        Seed of the projections, of the weights and of the noise.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Rows uniform on the sphere of radius sqrt(n_features).
    y : ndarray of shape (n_samples,)
    coef : ndarray of shape (n_features,)
        True weights.

    Examples
    --------
    >>> from sparsebayes.datasets import make_sparse_signal
    >>> X, y, coef = make_sparse_signal(random_state=0)
    >>> X.shape, int((coef != 0).sum())
    ((64, 512), 16)
    """
    X, y, coef, _ = make_grouped_signal(
        n_samples,
        n_features,
        n_groups=n_features,
        n_active=n_active,
        weights=weights,
        noise=noise,
        random_state=random_state,
    )
    return X, y, coef


def make_grouped_signal(
    n_samples: int = 64,
    n_features: int = 512,
    *,
    n_groups: int = 128,
    n_active: int = 4,
    weights: Weights = "uniform",
    noise: float = 1.0,
    random_state: RandomState = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Generate random projections of a weight vector that is sparse by groups.

    The defaults are the signal reconstruction of Hernández-Lobato et al. (2013), section 7.1.

    Parameters
    ----------
    n_samples : int, default=64
        Number of projections.
    n_features : int, default=512
        Length of the weight vector.
    n_groups : int, default=128
        Number of groups; column j belongs to group ``j % n_groups``.
    n_active : int, default=4
        Number of groups whose weights are not zero, chosen at random.
    weights : {"uniform", "normal"}, default="uniform"
        Distribution of the weights in those groups: uniform on [-1, 1], or standard normal.
    noise : float, default=1.0
        Standard deviation of the normal noise.
    random_state : int, RandomState instance or None, default=None
        Seed of the projections, of the weights and of the noise.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Rows uniform on the sphere of radius sqrt(n_features).
    y : ndarray of shape (n_samples,)
    coef : ndarray of shape (n_features,)
        True weights.
    groups : ndarray of shape (n_features,)
        Group of each column, 0 to n_groups - 1.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.datasets import make_grouped_signal
    >>> X, y, coef, groups = make_grouped_signal(random_state=0)
    >>> len(np.unique(groups[coef != 0])), int((coef != 0).sum())
    (4, 16)
    """
    _check_count("n_samples", n_samples)
    _check_count("n_features", n_features)
    _check_count("n_groups", n_groups, maximum=n_features)
    _check_count("n_active", n_active, minimum=0, maximum=n_groups)
    _check_choice("weights", weights, ("uniform", "normal"))
    _check_noise(noise)
    random = check_random_state(random_state)
    X = random.standard_normal((n_samples, n_features))
    X *= np.sqrt(n_features) / np.linalg.norm(X, axis=1, keepdims=True)
    groups = np.arange(n_features) % n_groups
    active = np.isin(groups, random.permutation(n_groups)[:n_active])
    coef = np.zeros(n_features)
    size = int(active.sum())
    coef[active] = (
        random.uniform(-1.0, 1.0, size) if weights == "uniform" else random.standard_normal(size)
    )
    return X, X @ coef + noise * random.standard_normal(n_samples), coef, groups


def make_chen_example(
    n_samples: int = 100, *, noise: float = 0.4, random_state: RandomState = None
) -> tuple[np.ndarray, np.ndarray]:
    """Generate one noisy period of a sine, the example of Chen (2001) for local regularisation.

    ``y = sin(2 pi x) + noise`` with x uniform on (0, 1). The source does not name the function, but
    the sine agrees with its printed accuracies.

    Parameters
    ----------
    n_samples : int, default=100
        Number of rows.
    noise : float, default=0.4
        Standard deviation of the normal noise (the variance is 0.16).
    random_state : int, RandomState instance or None, default=None
        Seed of the inputs and of the noise.

    Returns
    -------
    X : ndarray of shape (n_samples, 1)
    y : ndarray of shape (n_samples,)

    Examples
    --------
    >>> from sparsebayes.datasets import make_chen_example
    >>> X, y = make_chen_example(random_state=0)
    >>> X.shape, y.shape
    ((100, 1), (100,))
    """
    _check_count("n_samples", n_samples)
    _check_noise(noise)
    random = check_random_state(random_state)
    x = random.uniform(0.0, 1.0, n_samples)
    return x[:, None], np.sin(2 * np.pi * x) + noise * random.standard_normal(n_samples)


def _check_count(name: str, value: Any, minimum: int = 1, maximum: int | None = None) -> None:
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_integer or value < minimum or (maximum is not None and value > maximum):
        limits = f"at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise ValueError(f"{name} must be an integer, {limits}; got {value!r}.")


def _check_noise(value: object) -> None:
    if not isinstance(value, numbers.Real) or not 0 <= float(value) < np.inf:
        raise ValueError(f"noise must be a finite, non-negative number; got {value!r}.")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}.")
