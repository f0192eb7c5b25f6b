"""Kernels that are products over the inputs, for functions with steps along single inputs.

No matrix product computes |x_j - z_j| for all inputs at once: there is a pass per input, over
blocks that stay in the cache. Two things make a pass cheap. A difference is a product of matrices
with two columns, [x, 1] [1, -z]', in a third of the time of a broadcast subtraction. And the
exponential of a distance needs no exponential of each pair:

    exp(-|x - z|) = min(exp(x) exp(-z), exp(-x) exp(z)).

Among the centres themselves the matrices are symmetric, and half of each is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from .._array import Array, asarray_like, is_torch, namespace

_IN_CACHE = 2**18  # bytes of an array that is passed over once per input
# Exponents whose exponentials, and their inverses, are numbers.
_LARGEST_EXPONENT: dict[type[np.floating], float] = {np.float64: 600.0, np.float32: 60.0}
_Block = tuple[slice, slice]  # rows and columns


class BoundLaplacian:
    """The product of exponentials, one per input, with its centres: ``bound(X)`` is k(X, Z).

    Parameters
    ----------
    gamma : float or array of shape (n_features,)
    Z : array of shape (n_centres, n_features)

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.kernels import BoundLaplacian
    >>> bound = BoundLaplacian([1.0, 0.0], np.array([[0.0, 0.0], [1.0, 5.0]]))
    >>> bound(np.array([[0.0, 3.0]])).round(3)
    array([[1.   , 0.368]])
    """

    n_slopes = 0
    _kinds = 1  # of derivatives for each input

    def __init__(self, gamma: ArrayLike, Z: Array) -> None:
        rate = np.broadcast_to(np.asarray(gamma, dtype=np.float64), Z.shape[1:])
        self._used = np.flatnonzero(rate)
        self._shift = Z.mean(axis=0)[self._used]  # differences of large numbers lose digits
        self._rate = asarray_like(Z, rate[self._used])
        self._B = (Z[:, self._used] - self._shift) * self._rate
        self._n_features = Z.shape[1]

    def __call__(self, X: Array, out: Array | None = None) -> Array:
        """Return k(X, Z)."""
        A = self._scaled(X)
        U = asarray_like(A, np.empty((len(A), len(self._B)))) if out is None else out
        self._fill(U, A, self._B)
        return U

    def with_slope(self, X: Array | None, out: Sequence[Array] | None = None) -> tuple[Array]:
        """Return k(X, Z), which is its own slope: dk/dlog l_j = gamma_j |x_j - z_j| k.

        Without X the rows are the centres themselves.
        """
        if X is not None:
            return (self(X, None if out is None else out[0]),)
        B = self._B
        K = np.empty((len(B), len(B))) if out is None else out[0]
        for rows, columns in _lower_blocks(len(B)):
            K[rows, columns] = self._fill(np.empty(_shape(rows, columns)), B[rows], B[columns])
            K[: rows.start, rows] = K[rows, : rows.start].T
        return (K,)

    def length_derivatives(
        self,
        W: Array,
        X: Array | None,
        U: Array,
        V: Array | None,
        parts: Sequence[Array],
        single: bool = False,
    ) -> tuple[np.ndarray, Array, Array | None]:
        """Return the sums that those of `BoundStationary` are; `W` is not overwritten.

        With `single` slopes are those of float32, in half of the time; X and V are None then.
        """
        (K,) = parts
        n_lengths = self._kinds * self._n_features
        gradient, q = np.zeros(n_lengths), U.shape[1]
        at_rows = asarray_like(K, np.zeros((n_lengths, len(K), q)))
        at_centres = asarray_like(K, np.zeros((n_lengths, len(self._B), q)))
        A = self._B if X is None else self._scaled(X)
        blocks = _lower_blocks(len(K)) if X is None else row_blocks(A, len(self._B))
        kind = np.float32 if single else None
        slopes = self._slopes(A, kind)
        U = U if kind is None else U.astype(kind)
        for rows, columns in blocks:
            own = (W[rows, columns] if X is not None else _doubled(W, rows, columns, kind)).ravel()
            values = K[rows, columns]
            values = values if is_torch(values) else np.ascontiguousarray(values, dtype=kind)
            for place, E in slopes(rows, columns, values):
                gradient[place] += float(own @ E.ravel())
                at_rows[place, rows] += E @ U[columns]
                if X is None:
                    at_rows[place, : rows.start] += E[:, : rows.start].T @ U[rows]
                elif V is not None:
                    at_centres[place] += E.T @ V[rows]
        at_rows, at_centres = (part.swapaxes(0, 1) for part in (at_rows, at_centres))
        return gradient, at_rows, None if V is None else at_centres

    def _scaled(self, X: Array) -> Array:
        return (X[:, self._used] - self._shift) * self._rate

    def _fill(self, U: Array, A: Array, B: Array) -> Array:
        """Write the kernel between scaled rows and scaled centres into U."""
        if is_torch(A):
            xp = namespace(A)
            U[...] = xp.exp(-xp.cdist(A, B, p=1.0))
            return U
        if U.dtype == A.dtype == np.float64 and U.flags.c_contiguous and len(B):
            from scipy.spatial.distance import cdist

            cdist(A, B, "cityblock", out=U)  # faster than passes
            np.negative(U, out=U)
            return np.exp(U, out=U)
        U[...] = 0.0
        for x, z in zip(A.T, B.T, strict=True):
            U -= np.abs(np.subtract.outer(x, z))
        return np.exp(U, out=U)

    def _slopes(self, A: Array, kind: type[np.floating] | None = None) -> _Slopes:
        return _Slopes(self._used, _Differences(A, self._B, kind))


class BoundAdditive(BoundLaplacian):
    """The product of ``1 + weight * exponential``, one per input, with its centres.

    Multiplied out it is a sum over all sets of inputs, a set having the product of its weights: a
    function is a constant plus functions of single inputs, of pairs, and so on.

    Parameters
    ----------
    gamma : array of shape (2, n_features)
        Rates and weights of the inputs.
    Z : array of shape (n_centres, n_features)

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.kernels import BoundAdditive
    >>> bound = BoundAdditive([[1.0, 1.0], [1.0, 1.0]], np.array([[0.0, 0.0]]))
    >>> bound(np.array([[0.0, 0.0], [99.0, 0.0], [99.0, 99.0]]))[:, 0]
    array([1.  , 0.5 , 0.25])
    """

    _kinds = 2

    def __init__(self, gamma: ArrayLike, Z: Array) -> None:
        rate, weight = np.asarray(gamma, dtype=np.float64)
        super().__init__(np.where(weight > 0.0, rate, 0.0), Z)
        self._weight = np.broadcast_to(weight, Z.shape[1:])[self._used]

    def _fill(self, U: Array, A: Array, B: Array) -> Array:
        factors = _Factors(A, B, self._weight)
        for rows, columns in row_blocks(A, len(B)):
            block = U[rows]
            block[...] = float(np.prod(1.0 / (1.0 + self._weight)))
            for factor in factors(rows, columns):
                block *= factor
        return U

    def _slopes(self, A: Array, kind: type[np.floating] | None = None) -> _AdditiveSlopes:
        differences = _Differences(A, self._B, kind)
        factors = _Factors(A, self._B, self._weight, kind)
        return _AdditiveSlopes(self._used, differences, factors, self._n_features)

    def length_derivatives(
        self,
        W: Array,
        X: Array | None,
        U: Array,
        V: Array | None,
        parts: Sequence[Array],
        single: bool = False,
    ) -> tuple[np.ndarray, Array, Array | None]:
        """Return the sums for the log lengths, then those for the log weights of all inputs."""
        (K,) = parts
        gradient, at_rows, at_centres = super().length_derivatives(W, X, U, V, parts, single)
        # What the division by 1 + w adds to the derivative of a log weight, for all at once.
        places = self._n_features + self._used
        share = self._weight / (1.0 + self._weight)
        gradient[places] -= share * sum_of_products(W, K, symmetric=X is None)
        share = asarray_like(K, share[:, None])
        at_rows[:, places] -= share * (K @ U)[:, None]
        if V is not None and at_centres is not None:
            at_centres[:, places] -= share * (K.T @ V)[:, None]
        return gradient, at_rows, at_centres


class _Spare:
    """Memory for blocks, used again by the next one."""

    def __init__(self, dtype: np.dtype | type[np.floating] = np.float64) -> None:
        self._flat = np.empty(0, dtype)

    def __call__(self, shape: tuple[int, int]) -> np.ndarray:
        size = shape[0] * shape[1]
        if len(self._flat) < size:
            self._flat = np.empty(size, self._flat.dtype)
        return self._flat[:size].reshape(shape)


class _Differences:
    """Blocks of |x_j - z_j|, for one input after the other."""

    def __init__(self, A: Array, B: Array, kind: type[np.floating] | None = None) -> None:
        self._A, self._B = A, B
        if not is_torch(A):
            A, B = (part.astype(kind or part.dtype, copy=False) for part in (A, B))
            self._spare = _Spare(A.dtype)
            self._left = _with_ones(A.T)
            self._right = np.stack([np.ones_like(B.T), -B.T], axis=1)

    def __call__(self, rows: slice, columns: slice) -> Iterator[Array]:
        """Yield the block of each input; each is overwritten by the next."""
        if is_torch(self._A):
            for x, z in zip(self._A[rows].T, self._B[columns].T, strict=True):
                yield (x[:, None] - z).abs_()
            return
        block = self._spare(_shape(rows, columns))
        for left, right in zip(self._left, self._right, strict=True):
            np.matmul(left[rows], right[:, columns], out=block)
            yield np.abs(block, out=block)


class _Factors:
    """Blocks of 1 + w_j exp(-|x_j - z_j|), for one input after the other."""

    def __init__(
        self, A: Array, B: Array, weight: np.ndarray, kind: type[np.floating] | None = None
    ) -> None:
        self._weight, self._differences = weight, _Differences(A, B, kind)
        kind = kind or np.float64
        self._spares = _Spare(kind), _Spare(kind)
        limit = _LARGEST_EXPONENT[kind]
        self._by_products = (
            not is_torch(A) and A.dtype == np.float64 and _exponents_are_small(A, B, limit)
        )
        if not self._by_products:
            return
        a, b, w = np.exp(A.T), np.exp(B.T), weight[:, None]
        self._left = _with_ones((w * a).astype(kind)), _with_ones((w / a).astype(kind))
        both = (part.astype(kind) for part in (1.0 / b, b))
        self._right = tuple(np.stack([part, np.ones_like(part)], axis=1) for part in both)

    def __call__(self, rows: slice, columns: slice) -> Iterator[Array]:
        """Yield the block of each input; each is overwritten by the next."""
        if not self._by_products:
            for weight, D in zip(self._weight, self._differences(rows, columns), strict=True):
                yield 1.0 + float(weight) * namespace(D).exp(-D)
            return
        one, other = (spare(_shape(rows, columns)) for spare in self._spares)
        for parts in zip(*self._left, *self._right, strict=True):
            np.matmul(parts[0][rows], parts[2][:, columns], out=one)
            np.matmul(parts[1][rows], parts[3][:, columns], out=other)
            yield np.minimum(one, other, out=one)


class _Slopes:
    """Blocks of dk/dlog l_j of a product of exponentials."""

    def __init__(self, used: np.ndarray, differences: _Differences) -> None:
        self._used, self._differences = used, differences

    def __call__(self, rows: slice, columns: slice, K: Array) -> Iterator[tuple[int, Array]]:
        """Yield the place of each derivative and its block, which the next one overwrites."""
        for j, D in zip(self._used, self._differences(rows, columns), strict=True):
            D *= K
            yield j, D


class _AdditiveSlopes(_Slopes):
    """Blocks of dk/dlog l_j and, up to a multiple of k, dk/dlog w_j of an additive kernel."""

    def __init__(
        self,
        used: np.ndarray,
        differences: _Differences,
        factors: _Factors,
        n_features: int,
    ) -> None:
        super().__init__(used, differences)
        self._factors, self._n_features = factors, n_features

    def __call__(self, rows: slice, columns: slice, K: Array) -> Iterator[tuple[int, Array]]:
        """Yield the place of each derivative and its block, which the next one overwrites."""
        both = self._differences(rows, columns), self._factors(rows, columns)
        passes = zip(self._used, *both, strict=True)
        for j, D, factor in passes:
            # The share of the exponential in its factor, times K.
            share = namespace(K).divide(K, factor, out=factor)
            namespace(K).subtract(K, share, out=share)
            D *= share
            yield j, D
            yield self._n_features + j, share


def sum_of_products(W: Array, E: Array, symmetric: bool) -> float:
    """Return sum_ik W_ik E_ik; of a symmetric matrix W is the lower triangle."""
    if not symmetric:
        return float(W.ravel() @ E.ravel())
    blocks = _lower_blocks(len(W))
    return sum(float(_doubled(W, *block).ravel() @ E[block].ravel()) for block in blocks)


def _doubled(
    W: np.ndarray, rows: slice, columns: slice, kind: type[np.floating] | None = None
) -> np.ndarray:
    """Return a block of a lower triangle; what is left of the diagonal stands for two."""
    block = np.multiply(W[rows, columns], 2.0, dtype=W.dtype if kind is None else kind)
    diagonal = np.einsum("ii->i", block[:, rows])
    diagonal *= 0.5
    return block


def _exponents_are_small(A: np.ndarray, B: np.ndarray, limit: float) -> bool:
    largest = (np.max(np.abs(part), initial=0.0) for part in (A, B))
    return bool(sum(largest) < limit)


def _with_ones(values: np.ndarray) -> np.ndarray:
    return np.stack([values, np.ones_like(values)], axis=2)


def _shape(rows: slice, columns: slice) -> tuple[int, int]:
    return rows.stop - rows.start, columns.stop - columns.start


def row_blocks(A: Array, n_columns: int) -> Iterator[_Block]:
    """Yield blocks of rows with all columns; on a device there is one."""
    step = len(A) if is_torch(A) else max(1, _IN_CACHE // (8 * max(1, n_columns)))
    for first in range(0, len(A), max(1, step)):
        yield slice(first, min(first + step, len(A))), slice(0, n_columns)


def _lower_blocks(n: int) -> Iterator[_Block]:
    """Yield blocks of rows with the columns up to their diagonal."""
    first = 0
    while first < n:
        # So many that rows times columns up to the last of them fill the cache.
        step = max(1, int(0.5 * (np.sqrt(first**2 + 0.5 * _IN_CACHE) - first)))
        stop = min(n, first + step)
        yield slice(first, stop), slice(0, stop)
        first = stop
