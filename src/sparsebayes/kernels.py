"""Kernel functions, evaluated in row blocks.

A kernel is bound to its centres once (``kernel.bind(Z)``) and then called on blocks of rows: what
depends on the centres alone is not computed again for each block. The stationary families are
functions of

    u = sum_j gamma_j (x_j - z_j)^2,

one ``gamma`` for all inputs or one per input, so that scaling an input by c divides its gamma by
c^2 in every family. With a length scale l, ``gamma = 1 / (2 l^2)``:

    rbf       exp(-u)                                   Gaussian
    matern52  (1 + a + a^2/3) exp(-a),  a = sqrt(10 u)
    matern32  (1 + a) exp(-a),          a = sqrt(6 u)
    matern12  exp(-a),                  a = sqrt(2 u)   exponential
    rq        1 / (1 + u)                               rational quadratic

Any other name, and callables, go to scikit-learn's ``pairwise_kernels``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ._array import is_torch, like, namespace
from .rows.spread import Spread, gamma_in_range

FAMILIES = ("rbf", "matern52", "matern32", "matern12", "rq")
BoundKernel = Callable[[Any], Any]
_LARGEST = 1e140  # kernel values: sums of their squares, times weights, are numbers
_EXPANDED = 1e8  # squared widths from the middle up to which |x|^2 + |z|^2 - 2 x'z is right to 1e-7


class Kernel(Protocol):
    """What the designs ask of a kernel."""

    def bind(self, Z: Any) -> BoundKernel:
        """A function of rows X that returns k(X, Z)."""

    def diagonal(self, X: Any) -> np.ndarray:
        """k(x, x) for each row."""


@dataclass(frozen=True)
class StationaryKernel:
    """A kernel of the scaled distance; see the module docstring for the families.

    Parameters
    ----------
    family : {"rbf", "matern52", "matern32", "matern12", "rq"}
    gamma : float or array of shape (n_features,)

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.kernels import StationaryKernel
    >>> k = StationaryKernel("rbf", gamma=0.5)
    >>> k.bind(np.array([[0.0], [1.0]]))(np.array([[0.0]])).round(3)
    array([[1.   , 0.607]])
    """

    family: str
    gamma: Any

    def bind(self, Z: Any) -> BoundStationary:
        """A function of rows X that returns k(X, Z)."""
        return BoundStationary(self.family, self.gamma, Z)

    def diagonal(self, X: Any) -> np.ndarray:
        """k(x, x) = 1."""
        return np.ones(X.shape[0])


class BoundStationary:
    """A stationary kernel with its centres: ``bound(X)`` is k(X, Z).

    Parameters
    ----------
    family : {"rbf", "matern52", "matern32", "matern12", "rq"}
    gamma : float or array of shape (n_features,)
    Z : array of shape (n_centres, n_features)

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.kernels import BoundStationary
    >>> bound = BoundStationary("rq", 1.0, np.array([[0.0], [1.0]]))
    >>> K, D = bound.with_slope(np.array([[1.0]]))
    >>> K, D
    (array([[0.5, 1. ]]), array([[0.25, 1.  ]]))
    """

    def __init__(self, family: str, gamma: Any, Z: Any) -> None:
        self.family = family
        self._xp = xp = namespace(Z)
        factor, self._formula = _FORMULAS[family]
        # Centred inputs: the expansion |x|^2 + |z|^2 - 2 x'z cancels far from the origin.
        self._shift = Z.mean(axis=0)
        self._scale = like(np.sqrt(2.0 * abs(factor) * np.asarray(gamma, dtype=np.float64)), Z)
        B = (Z - self._shift) * self._scale
        half = 0.5 * (B * B).sum(axis=1).reshape(-1, 1)
        self._B, self._far = B, float(half.max()) if len(half) else 0.0
        # One product gives factor * u: [a, |a|^2/2, 1] [-b, 1, |b|^2/2]'.
        right = xp.concatenate([-B, like(xp.ones((B.shape[0], 1)), B), half], axis=1).T
        right = right if factor > 0 else -right
        # Both limits given: with one of them None, np.clip is three times slower.
        self._range = (0.0, np.inf) if factor > 0 else (-np.inf, 0.0)
        self._right = right if is_torch(right) else np.ascontiguousarray(right)
        self._spare: Any = None  # memory for the formulas that need some, kept between blocks

    def __call__(self, X: Any, out: Any = None) -> Any:
        """k(X, Z)."""
        U = self._distances(X, out)
        if self.family in _NEED_SPARE and (self._spare is None or len(self._spare) < len(U)):
            self._spare = self._xp.empty_like(U)
        self._formula(U, None, self._xp, None if self._spare is None else self._spare[: len(U)])
        return U

    def with_slope(self, X: Any, out: tuple[Any, Any] | None = None) -> tuple[Any, Any]:
        """k(X, Z) and D = -dk/du, so that dk/dgamma_j = -D (x_j - z_j)^2."""
        K = self._distances(X, None if out is None else out[0])
        D = self._xp.empty_like(K) if out is None else out[1]
        self._formula(K, D, self._xp, D)
        return K, D

    def _distances(self, X: Any, out: Any = None) -> Any:
        xp = self._xp
        A = (X - self._shift) * self._scale
        half = 0.5 * (A * A).sum(axis=1).reshape(-1, 1)
        if max(self._far, float(half.max()) if len(half) else 0.0) > _EXPANDED and not is_torch(A):
            return self._direct_distances(A, out)
        left = xp.concatenate([A, half, like(xp.ones((A.shape[0], 1)), A)], axis=1)
        U = xp.matmul(left, self._right, out=out)
        return xp.clip(U, *self._range, out=U)

    def _direct_distances(self, A: np.ndarray, out: Any) -> Any:
        """The same one input at a time: for rows so many widths away that the product cancels."""
        from scipy.spatial.distance import cdist

        U = np.empty((len(A), len(self._B)), dtype=A.dtype) if out is None else out
        U[...] = cdist(A, self._B, "sqeuclidean")
        U *= 0.5 if self._range[0] == 0.0 else -0.5
        return U


# The formulas: U = factor * u becomes k in place; D, where it is wanted, becomes -dk/du; `spare` is
# memory as large as U for those that need it (D itself, where there is one).


def _rbf(U: Any, D: Any, xp: Any, spare: Any) -> None:
    xp.exp(U, out=U)
    if D is not None:
        D[...] = U


def _rq(U: Any, D: Any, xp: Any, spare: Any) -> None:
    U += 1.0
    xp.reciprocal(U, out=U)
    if D is not None:
        xp.multiply(U, U, out=D)


def _matern12(U: Any, D: Any, xp: Any, spare: Any) -> None:
    xp.sqrt(U, out=U)
    if D is not None:
        # D = exp(-a)/a has a pole at a = 0, but there (x_j - z_j)^2 = 0 and nothing moves: any
        # number will do that rounding cannot blow up.
        xp.clip(U, 1e-6, np.inf, out=D)
    xp.negative(U, out=U)
    xp.exp(U, out=U)
    if D is not None:
        xp.divide(U, D, out=D)


def _matern32(U: Any, D: Any, xp: Any, spare: Any) -> None:
    xp.sqrt(U, out=U)
    decay = xp.negative(U, out=spare)
    xp.exp(decay, out=decay)
    U += 1.0
    U *= decay
    if D is not None:
        D *= 3.0


def _matern52(U: Any, D: Any, xp: Any, spare: Any) -> None:
    a = xp.sqrt(U, out=spare)
    U *= 1.0 / 3.0
    U += a
    U += 1.0
    if D is None:
        xp.negative(a, out=a)
        U *= xp.exp(a, out=a)
        return
    decay = xp.negative(a)
    xp.exp(decay, out=decay)
    U *= decay
    D += 1.0
    decay *= 5.0 / 3.0
    D *= decay


_NEED_SPARE = ("matern32", "matern52")
_FORMULAS = {
    "rbf": (-1.0, _rbf),
    "matern52": (10.0, _matern52),
    "matern32": (6.0, _matern32),
    "matern12": (2.0, _matern12),
    "rq": (1.0, _rq),
}


@dataclass(frozen=True)
class PairwiseKernel:
    """Any kernel that scikit-learn's ``pairwise_kernels`` takes, by name or as a callable."""

    metric: Any
    params: dict[str, Any] = field(default_factory=dict)

    def bind(self, Z: Any) -> BoundKernel:
        """A function of rows X that returns k(X, Z)."""
        from sklearn.metrics.pairwise import pairwise_kernels

        def rows(X: Any) -> np.ndarray:
            K = pairwise_kernels(X, Z, metric=self.metric, filter_params=True, **self.params)
            K = np.asarray(K, dtype=np.float64)
            if not np.max(np.abs(K), initial=0.0) < _LARGEST:
                raise ValueError(
                    f"kernel={self.metric!r} reaches {np.max(np.abs(K)):.0e} on these rows, and "
                    "the square of that is no number of float64: scale X (for example with "
                    "StandardScaler), or take another kernel."
                )
            return K

        return rows

    def diagonal(self, X: Any) -> np.ndarray:
        """k(x, x), in small square blocks: scikit-learn has no other way to ask for it."""
        parts = [
            np.diagonal(self.bind(X[i : i + 128])(X[i : i + 128]))
            for i in range(0, X.shape[0], 128)
        ]
        return np.concatenate(parts)


def resolve_gamma(
    gamma: Any, X: np.ndarray, sample_weight: np.ndarray | None = None, n_pairs: int = 500
) -> Any:
    """Turn ``"scale"``, ``"median"``, a number or one number per input into numbers.

    ``"scale"`` is 1 / (n_features * X.var()) as in SVR, ``"median"`` is 1 / (2 m^2) with m the
    median distance between (at most `n_pairs`) evenly spaced rows. Weights act as repetition.
    """
    if isinstance(gamma, str):
        if gamma == "scale":
            return Spread.of(X, sample_weight).gamma
        if gamma == "median":
            rows = X[:: max(1, X.shape[0] // n_pairs)][:n_pairs]
            from scipy.spatial.distance import pdist

            size = float(np.max(np.abs(rows - rows[0]), initial=0.0))
            if size == 0.0:
                return 1.0
            distances = pdist((rows - rows[0]) / size)
            m = float(np.median(distances[distances > 0]))
            return gamma_in_range((0.5 / size) / m**2 / size, size)
        raise ValueError(
            f"gamma={gamma!r} is not known: use 'scale', 'median', 'evidence', 'ard', a positive "
            "number, or one positive number per input."
        )
    values = np.asarray(gamma, dtype=np.float64)
    if values.ndim > 1 or (values.ndim == 1 and values.shape[0] != X.shape[1]):
        raise ValueError(
            f"gamma has shape {values.shape}, but X has {X.shape[1]} inputs: give one number, or "
            "one number per input."
        )
    if not (np.all(np.isfinite(values)) and np.all(values >= 0)) or not np.any(values > 0):
        raise ValueError(f"gamma must be positive and finite, got {gamma!r}.")
    return values if values.ndim else float(values)


def make_kernel(kernel: Any, *, gamma: Any, degree: float = 3, coef0: float = 1) -> Kernel:
    """The kernel object for a name or callable, with `gamma` already resolved to numbers."""
    if callable(kernel):
        return PairwiseKernel(kernel)
    if kernel in FAMILIES:
        return StationaryKernel(kernel, gamma)
    from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS

    if kernel not in PAIRWISE_KERNEL_FUNCTIONS:
        known = ", ".join(sorted({*FAMILIES, *PAIRWISE_KERNEL_FUNCTIONS}))
        raise ValueError(
            f"kernel={kernel!r} is not known: use one of {known}, 'precomputed', a callable, or "
            "None to take the columns of X themselves."
        )
    if np.ndim(gamma) and kernel in ("laplacian", "poly", "polynomial", "sigmoid", "chi2"):
        raise ValueError(
            f"kernel={kernel!r} takes one gamma; one per input works with {', '.join(FAMILIES)}."
        )
    return PairwiseKernel(kernel, {"gamma": gamma, "degree": degree, "coef0": coef0})
