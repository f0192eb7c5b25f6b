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

Two more are for functions with steps along single inputs, which no function of the Euclidean
distance follows (docs/theory/widths.md):

    laplacian  exp(-sum_j gamma_j |x_j - z_j|)          scaling an input by c divides gamma by c
    sum        (1 - p) matern52 + p laplacian           smooth plus rough, each with its own widths:
                                                        gamma has two rows; p is the rough share

One more is for functions that are sums of functions of single inputs, of pairs and so on, the fewer
inputs the larger. Its gamma has two rows, the rates g and the weights w of the inputs:

    additive   prod_j (1 + w_j exp(-g_j |x_j - z_j|)) / (1 + w_j)

Any other name, and callables, go to scikit-learn's ``pairwise_kernels``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import blas
from scipy.special import expit

from .._array import Array, asarray_like, namespace, to_device_of, to_numpy
from .._warn import suggestion
from ..rows.spread import Spread, gamma_in_range
from .rough import BoundAdditive, BoundLaplacian, row_blocks, sum_of_products

_WIDTHS = ("auto", "scale", "median", "evidence", "ard")
FAMILIES = ("rbf", "matern52", "matern32", "matern12", "rq")
STATIONARY = (*FAMILIES, "laplacian", "sum")  # those of which all methods have formulas
LEARNT = (*STATIONARY, "additive")  # those whose widths can be learnt
BoundKernel: TypeAlias = Callable[[Array], Array]  # of rows X: k(X, Z)
Gamma: TypeAlias = float | np.ndarray  # one rate for all inputs, or one for each
GammaOption: TypeAlias = ArrayLike  # a name such as "scale", or what becomes a `Gamma`
KernelName: TypeAlias = str | Callable[..., float]  # a family, or a function of two rows
_LARGEST = 1e140  # kernel values: sums of their squares, times weights, are numbers
_EXPANDED = 1e8  # squared widths from the middle up to which |x|^2 + |z|^2 - 2 x'z is right to 1e-7
FEW_ROWS = 64  # up to which making a kernel takes longer than evaluating it


class Kernel(Protocol):
    """Interface of the kernels that a design evaluates.

    `stationary` is True if k(x, z) depends on x - z alone, or on the difference of mapped rows;
    such kernels are symmetric, vanish far from their centre, can write into an array (``bound(X,
    out=K)``), and have `pairs`.
    """

    stationary: ClassVar[bool]

    def bind(self, Z: Array) -> BoundKernel:
        """Return the function of rows X that is k(X, Z)."""

    def diagonal(self, X: Array) -> np.ndarray:
        """Return k(x, x) for each row."""


@dataclass(frozen=True)
class StationaryKernel:
    """A kernel of the difference of two rows; see the module docstring for the families.

    Parameters
    ----------
    family : {"rbf", "matern52", "matern32", "matern12", "rq", "laplacian", "sum", "additive"}
        The formula.
    gamma : float or array of shape (n_features,)
        One rate for all inputs or one for each: the larger, the narrower the functions. For
        ``"sum"`` an array of shape (2, n_features): of the smooth part and of the rough part. For
        ``"additive"`` rates and weights.
    share : float, default=0.5
        For ``"sum"`` the share of the rough part in the variance.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.kernels import StationaryKernel
    >>> k = StationaryKernel("rbf", gamma=0.5)
    >>> k.bind(np.array([[0.0], [1.0]]))(np.array([[0.0]])).round(3)
    array([[1.   , 0.607]])
    """

    family: str
    gamma: Gamma
    share: float = 0.5
    stationary: ClassVar[bool] = True

    def bind(self, Z: Array) -> BoundFamily:
        """Return the function of rows X that is k(X, Z)."""
        if self.family == "laplacian":
            return BoundLaplacian(self.gamma, Z)
        if self.family == "sum":
            return BoundSum(self.gamma, self.share, Z)
        if self.family == "additive":
            return BoundAdditive(self.gamma, Z)
        return BoundStationary(self.family, self.gamma, Z)

    def diagonal(self, X: Array) -> np.ndarray:
        """Return k(x, x) = 1 for each row."""
        return np.ones(X.shape[0])

    def pairs(self, X: Array, Z: Array) -> Array:
        """Return k(x, z) of each row of X and the corresponding row of Z."""
        return self.bind(asarray_like(X, np.zeros((1, X.shape[1]))))(X - Z)[:, 0]

    def among(self, X: Array) -> Array:
        """Return k between all rows of each set: (b, m, n_features) to (b, m, m).

        The rows of a set should lie around the origin.
        """
        if self.family == "laplacian":
            return _laplacian_among(X, self.gamma)
        if self.family == "sum":
            smooth, rough = np.asarray(self.gamma)
            K: Array = _smooth_among(X, "matern52", smooth)
            K *= 1.0 - self.share
            K += self.share * _laplacian_among(X, rough)
            return K
        return _smooth_among(X, self.family, self.gamma)

    def lower(self, X: np.ndarray) -> np.ndarray:
        """Return k among all rows, in the order of LAPACK; above the diagonal it is not set."""
        K = np.empty((len(X), len(X)), dtype=X.dtype)
        for first in range(0, len(X), 8 * FEW_ROWS):
            bound = self.bind(X[first:])
            for i in range(first, min(first + 8 * FEW_ROWS, len(X)), FEW_ROWS):
                bound(X[i : i + FEW_ROWS], out=K[i : i + FEW_ROWS, first:])
        return K.T


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

    n_slopes = 1

    def __init__(self, family: str, gamma: ArrayLike, Z: Array) -> None:
        self.family = family
        self._xp = xp = namespace(Z)
        factor, self._formula = _FORMULAS[family]
        # Centred inputs: the expansion |x|^2 + |z|^2 - 2 x'z cancels far from the origin.
        self._shift = Z.mean(axis=0)
        self._scale = asarray_like(
            Z, np.sqrt(2.0 * abs(factor) * np.asarray(gamma, dtype=np.float64))
        )
        B = (Z - self._shift) * self._scale
        half = 0.5 * (B * B).sum(axis=1).reshape(-1, 1)
        self._B, self._far = B, float(half.max(initial=0.0)) if xp is np else 0.0
        # One product gives factor * u: [a, |a|^2/2, 1] [-b, 1, |b|^2/2]'.
        right = xp.concatenate([-B, xp.ones_like(half), half], axis=1).T
        right = right if factor > 0 else -right
        # Both limits given: with one of them None, np.clip is three times slower.
        self._range = (0.0, np.inf) if factor > 0 else (-np.inf, 0.0)
        self._right = np.ascontiguousarray(right) if xp is np else right
        self._spare: Array | None = (
            None  # memory for the formulas that need some, kept between blocks
        )

    def __call__(self, X: Array, out: Array | None = None) -> Array:
        """Return k(X, Z)."""
        U = self._distances(X, out)
        self._formula(U, None, self._xp, _spare(self, U) if self.family in _NEED_SPARE else None)
        return U

    def with_slope(
        self, X: Array | None, out: Sequence[Array] | None = None
    ) -> tuple[Array, Array]:
        """Return k(X, Z) and D = -dk/du, so that dk/dgamma_j = -D (x_j - z_j)^2.

        Without X the rows are the centres themselves.
        """
        K = self._distances(X, None if out is None else out[0])
        D = self._xp.empty_like(K) if out is None else out[1]
        for rows, _ in row_blocks(K, K.shape[1]):
            self._formula(K[rows], D[rows], self._xp, D[rows])
        return K, D

    def length_derivatives(
        self,
        W: Array,
        X: Array | None,
        U: Array,
        V: Array | None,
        parts: Sequence[Array],
        single: bool = False,
    ) -> tuple[np.ndarray, Array, Array | None]:
        """Return sums of E_j = dk(X, Z)/dlog l_j for each input j; `parts` are from `with_slope`.

        The sums are sum_ik W_ik (E_j)_ik; E_j U, of shape (n_rows, n_features, n_vectors); and
        E_j'V likewise, unless V is None. `W` is overwritten. Without X the rows are the centres,
        and W is the lower triangle of a symmetric matrix, with zeros above it. The squares
        (x_j - z_j)^2 are expanded, so that there is no array of n_rows x n_centres x n_features.
        `single` is for rough kernels; that of a smooth one may be nearly singular.
        """
        _, D = parts
        A = self._B if X is None else (X - self._shift) * self._scale
        B, xp, factor = self._B, self._xp, abs(_FORMULAS[self.family][0])
        W *= D
        columns = xp.concatenate([B, xp.ones_like(B[:, :1])], axis=1)
        WB = W @ columns if X is not None else blas.dsymm(1.0, W.T, columns)
        sums = WB[:, -1] if X is None else W.sum(axis=0)
        total = WB[:, -1] @ xp.square(A) - 2.0 * xp.einsum("ij,ij->j", A, WB[:, :-1])
        gradient = to_numpy(total + sums @ xp.square(B)) / factor
        at_centres = None if V is None else _times_squares(D.T, B, A, V, xp) / factor
        return gradient, _times_squares(D, A, B, U, xp) / factor, at_centres

    def _distances(self, X: Array | None, out: Array | None = None) -> Array:
        xp = self._xp
        A = self._B if X is None else (X - self._shift) * self._scale
        half = 0.5 * (A * A).sum(axis=1).reshape(-1, 1)
        if xp is np:
            # The root of matern12 turns the rounding of a cancelling product into its square root.
            far = max(self._far, float(half.max(initial=0.0)))
            if self.family == "matern12" or far > _EXPANDED:
                return self._direct_distances(A, out)
        augmented = xp.concatenate([A, half, xp.ones_like(half)], axis=1)
        U = xp.matmul(augmented, self._right, out=out)
        return xp.clip(U, *self._range, out=U)

    def _direct_distances(self, A: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        """Return the distances by differences, for rows so far away that the product cancels."""
        from scipy.spatial.distance import cdist

        U = np.empty((len(A), len(self._B)), dtype=A.dtype) if out is None else out
        U[...] = cdist(A, self._B, "sqeuclidean")
        U *= 0.5 if self._range[0] == 0.0 else -0.5
        return U


def _times_squares(D: Array, A: Array, B: Array, U: Array, xp: ModuleType) -> Array:
    """Return sum_k D_ik (A_ij - B_kj)^2 U_kl for each row i, input j and vector l."""
    (d, q), A = (B.shape[1], U.shape[1]), A[:, :, None]
    BU = B[:, :, None] * U[:, None]
    factors = [part.reshape(len(B), -1) for part in (U, BU, B[:, :, None] * BU)]
    sums = D @ xp.concatenate(factors, axis=1)
    linear, square = (part.reshape(-1, d, q) for part in (sums[:, q : -d * q], sums[:, -d * q :]))
    return A * (A * sums[:, None, :q] - 2.0 * linear) + square


def _spare(bound: BoundStationary | BoundSum, U: Array) -> Array:
    """Return memory like U, kept between blocks unless there are few rows.

    Threads that predict a few rows each may share a bound kernel.
    """
    if len(U) <= FEW_ROWS:
        return namespace(U).empty_like(U)
    if bound._spare is None or len(bound._spare) < len(U):
        bound._spare = namespace(U).empty_like(U)
    return bound._spare[: len(U)]


class BoundSum:
    """A smooth kernel plus a rough one with their centres: ``bound(X)`` is k(X, Z).

    Parameters
    ----------
    gamma : array of shape (2, n_features) or (2,)
        Rates of the Matern 5/2 kernel and of the product of exponentials.
    share : float
        Share of the second in the variance.
    Z : array of shape (n_centres, n_features)

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.kernels import BoundSum
    >>> bound = BoundSum([0.0, 1.0], 0.25, np.array([[0.0], [1.0]]))
    >>> bound(np.array([[0.0]])).round(3)
    array([[1.   , 0.842]])
    """

    n_slopes = 2

    def __init__(self, gamma: ArrayLike, share: float, Z: Array) -> None:
        smooth, rough = np.asarray(gamma, dtype=np.float64)
        self.smooth, self.rough = BoundStationary("matern52", smooth, Z), BoundLaplacian(rough, Z)
        self.share = share
        self._spare: Array | None = None

    def __call__(self, X: Array, out: Array | None = None) -> Array:
        """Return k(X, Z)."""
        K = self.smooth(X, out)
        R = self.rough(X, _spare(self, K))
        K *= 1.0 - self.share
        R *= self.share
        K += R
        return K

    def with_slope(
        self, X: Array | None, out: Sequence[Array] | None = None
    ) -> tuple[Array, Array, Array]:
        """Return k(X, Z), the slope -dk/du of its smooth part, and its rough part."""
        K, D = self.smooth.with_slope(X, None if out is None else (out[0], out[1]))
        (R,) = self.rough.with_slope(X, None if out is None else (out[2],))
        K *= 1.0 - self.share
        D *= 1.0 - self.share
        R *= self.share
        K += R
        return K, D, R

    def length_derivatives(
        self,
        W: Array,
        X: Array | None,
        U: Array,
        V: Array | None,
        parts: Sequence[Array],
        single: bool = False,
    ) -> tuple[np.ndarray, Array, Array | None]:
        """Return the sums of the smooth part, of the rough part, and for the log odds of the share.

        They are those of `BoundStationary`; ``W`` is overwritten.
        """
        K, D, R = parts
        xp = namespace(W)
        E = self.share * K
        xp.subtract(R, E, out=E)
        share = sum_of_products(W, E, symmetric=X is None)
        rough = self.rough.length_derivatives(W, X, U, V, (R,), single)
        smooth = self.smooth.length_derivatives(W, X, U, V, (K, D))
        at_rows = R @ U - self.share * (K @ U)
        at_rows = xp.concatenate([smooth[1], rough[1], at_rows[:, None]], axis=1)
        at_centres = None
        if V is not None:
            at_centres = R.T @ V - self.share * (K.T @ V)
            at_centres = xp.concatenate([smooth[2], rough[2], at_centres[:, None]], axis=1)
        return np.concatenate([smooth[0], rough[0], [share]]), at_rows, at_centres


BoundFamily: TypeAlias = BoundStationary | BoundLaplacian | BoundSum


def _smooth_among(X: Array, family: str, gamma: Gamma) -> Array:
    (factor, formula), xp = _FORMULAS[family], namespace(X)
    A = X * to_device_of(X, np.sqrt(abs(factor) * np.asarray(gamma, dtype=np.float64)))
    squares = xp.einsum("bij,bij->bi", A, A)
    U = A @ xp.swapaxes(A, 1, 2)
    U *= -2.0
    U += squares[:, :, None]
    U += squares[:, None, :]
    xp.clip(U, 0.0, np.inf, out=U)
    own = xp.arange(U.shape[1])
    U[:, own, own] = 0.0  # roots of rounding errors are not small
    if factor < 0:
        xp.negative(U, out=U)
    formula(U, None, xp, xp.empty_like(U) if family in _NEED_SPARE else None)
    return U


def _laplacian_among(X: Array, gamma: Gamma) -> Array:
    rate, xp = np.broadcast_to(np.asarray(gamma, dtype=np.float64), X.shape[2:]), namespace(X)
    distance = X[:, :, None, 0] - X[:, None, :, 0]
    U = xp.zeros_like(distance)
    for j in np.flatnonzero(rate):
        x = float(rate[j]) * X[:, :, j]
        xp.subtract(x[:, :, None], x[:, None, :], out=distance)
        xp.abs(distance, out=distance)
        U -= distance
    return xp.exp(U, out=U)


def kernel_of_lengths(family: str, lengths: np.ndarray) -> StationaryKernel:
    """Return the kernel of these log length scales.

    For ``"sum"`` they are those of the smooth part, those of the rough part, and the log odds of
    the share of the latter; for ``"additive"`` log lengths and log weights.
    """
    if family == "laplacian":
        return StationaryKernel(family, np.exp(-lengths))
    if family == "sum":
        smooth, rough = lengths[:-1].reshape(2, -1)
        gamma = np.stack([0.5 * np.exp(-2.0 * smooth), np.exp(-rough)])
        return StationaryKernel(family, gamma, float(expit(lengths[-1])))
    if family == "additive":
        length, weight = lengths.reshape(2, -1)
        return StationaryKernel(family, np.stack([np.exp(-length), np.exp(weight)]))
    return StationaryKernel(family, 0.5 * np.exp(-2.0 * lengths))


# The formulas: U = factor * u becomes k in place; D, where it is wanted, becomes -dk/du; `spare` is
# memory as large as U for those that need it (D itself, where there is one).


def _rbf(U: Array, D: Array | None, xp: ModuleType, spare: Array | None) -> None:
    xp.exp(U, out=U)
    if D is not None:
        D[...] = U


def _rq(U: Array, D: Array | None, xp: ModuleType, spare: Array | None) -> None:
    U += 1.0
    xp.reciprocal(U, out=U)
    if D is not None:
        xp.multiply(U, U, out=D)


def _matern12(U: Array, D: Array | None, xp: ModuleType, spare: Array | None) -> None:
    xp.sqrt(U, out=U)
    if D is not None:
        # D = exp(-a)/a has a pole at a = 0, but there (x_j - z_j)^2 = 0 and nothing moves: any
        # number will do that rounding cannot blow up.
        xp.clip(U, 1e-6, np.inf, out=D)
    xp.negative(U, out=U)
    xp.exp(U, out=U)
    if D is not None:
        xp.divide(U, D, out=D)


def _matern32(U: Array, D: Array | None, xp: ModuleType, spare: Array | None) -> None:
    xp.sqrt(U, out=U)
    decay = xp.negative(U, out=spare)
    xp.exp(decay, out=decay)
    U += 1.0
    U *= decay
    if D is not None:
        D *= 3.0


def _matern52(U: Array, D: Array | None, xp: ModuleType, spare: Array | None) -> None:
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
    """Any kernel that scikit-learn's ``pairwise_kernels`` takes, by name or as a callable.

    Parameters
    ----------
    metric : str or callable
        Its name, or a function of two rows.
    params : dict
        Its parameters; those that it does not know are left out.
    """

    metric: KernelName
    params: dict[str, float | np.ndarray] = field(default_factory=dict)
    stationary: ClassVar[bool] = False

    def bind(self, Z: Array) -> BoundKernel:
        """Return the function of rows X that is k(X, Z)."""
        from sklearn.metrics.pairwise import pairwise_kernels

        def rows(X: Array) -> np.ndarray:
            K = pairwise_kernels(X, Z, metric=self.metric, filter_params=True, **self.params)
            K = np.asarray(K, dtype=np.float64)
            if not np.max(np.abs(K), initial=0.0) < _LARGEST:
                raise ValueError(
                    f"kernel={self.metric!r} reaches {np.max(np.abs(K)):.0e} on these rows, "
                    "which overflows float64 when squared. Rescale X, for example with "
                    "StandardScaler, or use another kernel."
                )
            return K

        return rows

    def diagonal(self, X: Array) -> np.ndarray:
        """Return k(x, x), from small square blocks: scikit-learn computes no diagonal alone."""
        parts = [
            np.diagonal(self.bind(X[i : i + 128])(X[i : i + 128]))
            for i in range(0, X.shape[0], 128)
        ]
        return np.concatenate(parts)


def resolve_gamma(
    gamma: GammaOption,
    X: np.ndarray,
    sample_weight: np.ndarray | None = None,
    n_pairs: int = 500,
    kernel: KernelName | None = None,
) -> Gamma:
    """Turn ``"scale"``, ``"median"``, a number or one number per input into numbers.

    ``"scale"`` is 1 / (n_features * X.var()) as in SVR, ``"median"`` is 1 / (2 m^2) with m the
    median distance between (at most `n_pairs`) evenly spaced rows. Weights act as repetition.
    The kernels ``"sum"`` and ``"additive"`` take numbers in two rows.
    """
    two = isinstance(kernel, str) and kernel in ("sum", "additive")
    if two and np.shape(gamma)[:1] != (2,):
        what = "a smooth and a rough part" if kernel == "sum" else "rates and weights"
        raise ValueError(
            f"kernel={kernel!r} has {what}. Learn them (gamma='ard' or 'evidence'), or pass a "
            f"gamma of two rows; got gamma={gamma!r}."
        )
    if isinstance(gamma, str):
        if gamma == "scale":
            return Spread.from_rows(X, sample_weight).gamma
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
            f"gamma={gamma!r} is not valid{suggestion(gamma, _WIDTHS)}. Use 'auto', 'scale', "
            "'median', 'evidence', 'ard', a positive number, or one positive number per "
            "input (for kernel='sum' two rows of these)."
        )
    values = np.asarray(gamma, dtype=np.float64)
    shape = values.shape[1:] if two else values.shape
    if shape not in ((), (X.shape[1],)):
        raise ValueError(
            f"gamma has shape {values.shape}, but X has {X.shape[1]} inputs. Pass one number, "
            "or one number per input."
        )
    if not (np.all(np.isfinite(values)) and np.all(values >= 0)) or not np.any(values > 0):
        raise ValueError(f"gamma must be positive and finite, got {gamma!r}.")
    return values if values.ndim else float(values)


def make_kernel(
    kernel: KernelName, *, gamma: Gamma, degree: float = 3, coef0: float = 1, share: float = 0.5
) -> Kernel:
    """Return the kernel object for a name or callable, with `gamma` already resolved to numbers.

    Parameters
    ----------
    kernel : str or callable
        A family of `StationaryKernel`, or what scikit-learn's ``pairwise_kernels`` takes.
    gamma : float or array
        As in `StationaryKernel`; one number for other kernels.
    degree, coef0 : float
        Parameters of the polynomial and sigmoid kernels; others do without.
    share : float, default=0.5
        As in `StationaryKernel`.
    """
    if callable(kernel):
        return PairwiseKernel(kernel)
    if kernel in LEARNT:
        return StationaryKernel(kernel, gamma, share)
    from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS

    if kernel not in PAIRWISE_KERNEL_FUNCTIONS:
        names = sorted({*LEARNT, *PAIRWISE_KERNEL_FUNCTIONS})
        raise ValueError(
            f"kernel={kernel!r} is not valid{suggestion(kernel, names)}. The Gaussian kernel is "
            "'rbf'. Use 'auto', 'precomputed', a callable, None for a linear model of the columns "
            f"of X, or one of these names: {', '.join(names)}."
        )
    if np.ndim(gamma) and kernel in ("poly", "polynomial", "sigmoid", "chi2"):
        raise ValueError(
            f"kernel={kernel!r} requires a single gamma; one gamma per input is available for "
            f"{', '.join(LEARNT)}."
        )
    return PairwiseKernel(kernel, {"gamma": gamma, "degree": degree, "coef0": coef0})
