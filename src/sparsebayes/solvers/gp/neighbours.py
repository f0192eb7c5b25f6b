"""A Gaussian process on any number of rows: selected basis functions plus nearest training rows.

The Gaussian process of variance a times the kernel k is split by the selected basis functions. Let
phi(x) be their whitened values, q(x, z) = phi(x)'phi(z) the part of k that they span, r = k - q the
residual covariance, and lam = sigma2/a. In units of a

    y = b + phi(x)'w + g(x) + e,   b flat,  w ~ N(0, Id),  g ~ GP(0, r),  e ~ N(0, lam/weight).

The part of the function that a few basis functions miss is local, hence two steps:

1. Global (`fit_global`): u(x) = b + phi(x)'w is estimated from all rows, with g treated as
   independent noise of variance d_i = (r(x_i, x_i) + lam)/weight_i. Sums over the rows suffice. The
   posterior of u has the mean m(x) and the covariance B(x, z).
2. Local (`_conditional`): at x, the correlations of g among the nearest rows N and x are restored.
   With C = r(N, N) + diag(lam/weight), c = C^-1 r(N, x) and D = diag(d_N), a prediction given u is
   u(x) + c'(y_N - u(N)), and the posterior of u is the global one with D^-1 of the rows N replaced
   by C^-1. With e = y_N - m(N), B = B(N, N), h = B(N, x) - B c and M = C + B - C D^-1 B,

       mean    = m(x) + c'e + h'M^-1 (1 - C D^-1) e
       var / a = r(x, x) - c'r(N, x) + B(x, x) - c'B(N, x) - h'c - h'M^-1 (1 - C D^-1) h

3. Cells (`cells`), where leave-one-out predictions are better with them: thousands of rows are the
   N of all rows of their cell, and the system is solved once, in the fit. A variance would need the
   factor of that system. It is approximated from m nearest rows instead: their ratio of posterior
   to prior variance, raised to a `power` that is the same for all rows and gives leave-one-out
   predictions the mean variance that their cells give.

The result is the exact process where N is all rows, whatever the functions, and where the functions
span everything, whatever N.

The leave-one-out predictions of a training row are computed without its observation: the row has no
part in C, and its D^-1 is taken back from the global posterior (E of that row is -D^-1). The
alternative, dividing a residual by one minus its leverage, loses all digits where lam is far below
the variance of the function at that row. The whitened values phi come from triangular solves: a
product with the inverse factor has errors of 1e-7 in q for a smooth kernel, which is more than lam
where the target has hardly any noise.

Equal rows are one row with the sum of their weights, so that C stays far from singular. Rows many
length scales away have a kernel of zero: where all nearest rows are far, c = 0, and the prediction
is that of the global part.

A variance costs 4 (m + 1)^2 k + 4 m^3 operations for m neighbours and k functions, and so does a
mean without cells; with them a mean costs a kernel value for each row of the cell. Derivation and
alternatives: docs/theory/neighbours.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from joblib import Parallel, delayed
from scipy.linalg import eigh, solve_triangular
from scipy.spatial import cKDTree

from ..._array import Array, Device, asarray_like, is_torch, namespace, on_device, to_device_of
from ...designs import KernelBasis
from ...kernels import StationaryKernel
from ...linalg.factor import lower_solve
from ...posterior import LooPredictions
from ...rows import row_slices
from ...rows._base import row_hashes
from .cells import Cells, CellSolution, cut_cells, solve_cell

P = TypeVar("P")
R = TypeVar("R")

_TREE_INPUTS = 20  # with more inputs a tree visits nearly all rows, and products are faster
_TREE_ERROR = 0.25  # share by which a neighbour may be farther than the true one: half the time
_LEAF = 64
_BLOCK = 4096
# Elements of a block, on the CPU and on a device: of distances in a search without a tree, and of
# the basis functions at all neighbours of a batch of new rows.
_DISTANCES = (2**22, 2**27)
_BATCH = (2**19, 2**27)
MOST_JOINT = 4000  # neighbours of rows that are predicted jointly
TINY = float(np.finfo(np.float64).tiny)


class NearestRows:
    """Search for the nearest of many rows, in the distance of a kernel.

    For a sum kernel, the distance is that of its smooth part, or of its `rough` one. The search
    uses a tree for up to 20 inputs, and products in blocks for more inputs or on a device.
    """

    def __init__(self, kernel: StationaryKernel, X: Array, rough: bool) -> None:
        gamma = np.asarray(kernel.gamma, dtype=np.float64)
        if kernel.family == "sum":
            gamma = gamma[int(rough)]
        rate = np.broadcast_to(gamma if rough else np.sqrt(gamma), X.shape[1:])
        self.used = np.flatnonzero(rate)
        self.rate = to_device_of(X, rate[self.used])
        self.rows = self._scaled(X)
        by_tree = not _on_accelerator(X) and len(self.used) <= _TREE_INPUTS
        self.tree = cKDTree(np.asarray(self.rows), leafsize=_LEAF) if by_tree else None
        self.half = None if by_tree else 0.5 * (self.rows * self.rows).sum(axis=1)

    def _scaled(self, X: Array) -> Array:
        return X[:, self.used] * self.rate

    def __call__(self, X: Array, m: int) -> Array:
        """Return the indices of the m nearest rows of each row of X."""
        xp = namespace(X)
        if m >= len(self.rows):
            return xp.broadcast_to(xp.arange(len(self.rows)), (len(X), len(self.rows)))
        A = self._scaled(X)
        if self.tree is not None:
            return self.tree.query(np.asarray(A), np.arange(1, m + 1), eps=_TREE_ERROR)[1]
        blocks = row_slices(len(A), max(1, _DISTANCES[_on_accelerator(A)] // len(self.rows)))
        return xp.concatenate([_smallest(self.half - A[b] @ self.rows.T, m) for b in blocks])


def _on_accelerator(array: Array) -> bool:
    """Return whether an array is on another device than the CPU."""
    return is_torch(array) and array.device.type != "cpu"


def _smallest(distance: Array, m: int) -> Array:
    """Return the indices of the m smallest elements of each row, in ascending order."""
    if is_torch(distance):
        return distance.topk(m, largest=False).indices
    near = np.argpartition(distance, m - 1, axis=1)[:, :m]
    order = np.argsort(np.take_along_axis(distance, near, axis=1), axis=1)
    return np.take_along_axis(near, order, axis=1)


def _own_first(N: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return lists of neighbours that begin with the row itself.

    A row may be missing from its own list where many rows are at distance zero from it; it then
    replaces the last of them.
    """
    N, rows = np.array(N), np.arange(len(N))
    is_own = N == own[:, None]
    where = np.where(is_own.any(axis=1), is_own.argmax(axis=1), N.shape[1] - 1)
    N[rows, where], N[rows, 0] = N[rows, 0], own
    return N


@dataclass(frozen=True)
class UniqueRows:
    """Rows with distinct inputs, and the observations at each of them.

    Parameters
    ----------
    X : array of shape (n_unique, n_features)
        Distinct inputs minus `shift`, so that float32 can represent them.
    shift : array of shape (n_features,)
    y, weight : arrays of shape (n_rows,)
        Targets and weights of all rows, in the units of the solver.
    precision : array of shape (n_rows,)
        Weight of one observation. A row stands for weight/precision equal observations.
    index : array of shape (n_rows,) or None
        Position in `X` of each row; None if all rows are distinct.
    """

    X: np.ndarray
    shift: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    precision: np.ndarray
    index: np.ndarray | None

    @classmethod
    def from_rows(
        cls,
        X: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
        single: bool,
        precision: np.ndarray | None = None,
    ) -> UniqueRows:
        """Merge equal rows; all weights must be positive. The default precision is 1."""
        precision = np.ones(len(y)) if precision is None else precision
        shift = np.asarray(np.mean(X, axis=0, dtype=np.float64))
        X = (X - shift).astype(np.float32 if single else np.float64)
        order = np.argsort(row_hashes(X), kind="stable")
        new = np.append(True, np.any(X[order[1:]] != X[order[:-1]], axis=1))
        if np.all(new):
            return cls(X, shift, y, weight, precision, None)
        index = np.empty(len(X), dtype=np.intp)
        index[order] = np.cumsum(new) - 1
        return cls(X[order[new]], shift, y, weight, precision, index)

    def __len__(self) -> int:
        return len(self.X)

    def lookup(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the unique rows behind some rows, and the position of each row among them."""
        if self.index is None:
            return rows, np.arange(len(rows))
        return np.unique(self.index[rows], return_inverse=True)

    def aggregate(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return mean observation, total weight and squares about the mean of each unique row."""
        if self.index is None:
            return self.y, self.weight, np.zeros(len(self.y))
        weight = np.bincount(self.index, self.weight)
        y = np.bincount(self.index, self.weight * self.y) / weight
        return y, weight, np.bincount(self.index, self.weight * (self.y - y[self.index]) ** 2)

    def duplicated(self) -> np.ndarray:
        """Return whether another row has equal inputs and an equal target, for each row."""
        duplicate = np.zeros(len(self.y), dtype=bool)
        if self.index is not None:
            order = np.lexsort((self.y, self.index))
            index, y = self.index[order], self.y[order]
            same = (index[1:] == index[:-1]) & (y[1:] == y[:-1])
            duplicate[order[1:]] |= same
            duplicate[order[:-1]] |= same
        return duplicate


class Whitened(NamedTuple):
    """Whitened basis functions at the unique rows, before they are rotated."""

    factor: np.ndarray  # lower Cholesky factor L of the kernel matrix of the functions
    phi: np.ndarray  # L^-1 times the functions, a row for each unique row
    residual: np.ndarray  # r(x, x)

    def rotate(self, V: np.ndarray) -> np.ndarray:
        """Return phi V, which overwrites phi."""
        for block in row_slices(len(self.phi), _BLOCK):
            self.phi[block] = self.phi[block] @ V.astype(self.phi.dtype)
        return self.phi


def whiten(functions: KernelBasis, factor: np.ndarray, rows: UniqueRows) -> Whitened:
    """Return the whitened functions at all unique rows, in the dtype of these."""
    phi, residual = np.empty((len(rows), len(factor)), rows.X.dtype), np.empty(len(rows))
    for block in row_slices(len(rows), _BLOCK):
        values = _whitened_values(functions, factor, rows.X[block] + rows.shift)
        phi[block] = values
        residual[block] = np.maximum(1.0 - np.einsum("ij,ij->i", values, values), 0.0)
    return Whitened(factor, phi, residual)


def _whitened_values(functions: KernelBasis, factor: Array, X: Array) -> Array:
    values = functions(X)
    return lower_solve(factor, values.T).T if len(factor) else values


class GlobalFit(NamedTuple):
    """Posterior of the weights of the basis functions given all rows, in units of the amplitude."""

    factor: np.ndarray  # phi(x) = rotation' L^-1 functions(x): whitened by L,
    rotation: np.ndarray  # and rotated so that the posterior covariance is diagonal
    mean: np.ndarray  # of w
    variance: np.ndarray  # of w, a vector
    centre: np.ndarray  # mean of phi over the rows
    offset: float  # u at the centre
    offset_variance: float
    square: float  # t'Pt
    log_det: float  # of the covariance of all rows; the constant included

    @property
    def whitening(self) -> np.ndarray:
        """Matrix W with phi(x) = W' functions(x)."""
        if not len(self.factor):
            return self.rotation
        return solve_triangular(
            self.factor, self.rotation, trans="T", lower=True, check_finite=False
        )

    @property
    def function_means(self) -> np.ndarray:
        """Means of the basis functions over the rows."""
        return self.factor @ (self.rotation @ self.centre)


def fit_global(white: Whitened, rows: UniqueRows, lam: float, intercept: bool) -> GlobalFit:
    """Fit the weights of the functions by sums over all rows."""
    y, weight, scatter = rows.aggregate()
    k = white.phi.shape[1]
    precision = weight / (white.residual + lam)
    A, sums, products = np.eye(k), np.zeros(k), np.zeros(k)
    for block in row_slices(len(y), _BLOCK):
        phi = white.phi[block].astype(np.float64, copy=False)
        scaled = np.sqrt(precision[block])[:, None] * phi
        A += scaled.T @ scaled
        sums += precision[block] @ phi
        products += (precision[block] * y[block]) @ phi
    total, offset, centre = float(np.sum(precision)), 0.0, np.zeros(k)
    if intercept:
        offset, centre = float(precision @ y) / total, sums / total
        A -= total * np.multiply.outer(centre, centre)
        products -= offset * sums
    values, V = eigh(A, check_finite=False) if k else (np.ones(0), np.eye(0))
    variance = 1.0 / np.maximum(values, 1.0)
    mean = variance * (V.T @ products)
    weights = V @ mean
    residual = y - offset - (white.phi @ weights.astype(white.phi.dtype) - centre @ weights)
    square = float(precision @ residual**2 + (precision / weight) @ scatter + mean @ mean)
    # A row of weight v stands for v rows, each with independent noise.
    log_det = -float(weight @ np.log(precision / weight)) - float(np.sum(np.log(variance)))
    log_det += float(np.log(total)) if intercept else 0.0
    constant = offset, float(intercept) / total
    return GlobalFit(white.factor, V, mean, variance, V.T @ centre, *constant, square, log_det)


@dataclass(frozen=True)
class NeighbourProcess:
    """Gaussian process of a global fit and the nearest training rows of each new row.

    The search tree and the functions at the training rows are derived when they are first needed
    and are not part of a saved model.

    Parameters
    ----------
    functions : KernelBasis
    rows : UniqueRows
    fit : GlobalFit
    lam : float
        Noise variance divided by the amplitude.
    amplitude : float
        Variance of the process, in the units of y divided by the square of `scale`.
    scale : float
        Factor by which y was divided.
    m : int
        Number of neighbours of a new row.
    rough : bool
        Whether the rough part of a sum kernel defines the distance.
    cells : Cells or None
        Cells that give the means. If None, the neighbours do.
    power : float
        Exponent of the ratio of posterior to prior variance, see the module's description.
    caches : dict
        Derived arrays by device. Copies with another amplitude or other cells share them.
    """

    functions: KernelBasis
    rows: UniqueRows
    fit: GlobalFit
    lam: float
    amplitude: float
    scale: float
    m: int
    rough: bool
    cells: Cells | None = None
    power: float = 1.0
    caches: dict[Device | None, TrainingCache] = field(
        default_factory=dict, repr=False, compare=False
    )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "caches"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, caches={})

    @property
    def variance_unit(self) -> float:
        """Factor that turns variances in units of the amplitude into those of y."""
        return self.amplitude * self.scale * self.scale

    @property
    def noise_variance(self) -> float:
        """Noise variance of an observation, in the units of y."""
        return self.lam * self.variance_unit

    def cache(self, device: Device | None = None) -> TrainingCache:
        """Return the derived arrays of the training rows on a device."""
        if None not in self.caches:
            self.caches[None] = TrainingCache.from_process(self)
        if device not in self.caches:
            kernel: Any = self.functions.kernel
            self.caches[device] = self.caches[None].on(device, kernel, self.rough)
        return self.caches[device]

    def predict(
        self, X: Array, n_jobs: int | None = None, return_variance: bool = True
    ) -> tuple[Array, Array | None]:
        """Return mean and variance (or None) of the function at each row, in units of y.

        Rows on a device are predicted there.
        """
        device = X.device if is_torch(X) else None
        X = np.asarray(X, dtype=np.float64) if device is None else on_device(X, device)
        A, cache, xp = X - to_device_of(X, self.rows.shift), self.cache(device), namespace(X)
        cell = order = np.zeros(0, dtype=np.intp)
        if self.cells is not None:  # rows of a cell are predicted together
            cell = self.cells.find(A)
            order = np.argsort(cell, kind="stable")
            A, cell = A[order], cell[order]

        def predict_block(block: slice) -> tuple[Array, ...]:
            phi = self._phi(A[block], cache)
            if self.cells is None:
                return self._one_by_one(A[block], phi, cache.nearest(A[block], self.m), cache)
            mean = self._cell_means(A[block], phi, cell[block], cache)
            if not return_variance:
                return (mean,)
            near = self._one_by_one(A[block], phi, cache.nearest(A[block], self.m), cache)[1]
            return mean, near * self._cell_ratio(phi, near)

        blocks = row_slices(len(A), _BLOCK if _on_accelerator(A) else 512)
        parts = _map(predict_block, blocks, None if device is not None else n_jobs)
        moments = [xp.concatenate(part) for part in zip(*parts, strict=True)]
        if self.cells is not None:
            moments = [part[np.argsort(order)] for part in moments]
        mean = moments[0] * self.scale
        return mean, moments[1] * self.variance_unit if return_variance else None

    def joint(self, X: Array) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the function at rows, given all their neighbours."""
        A, cache = np.asarray(X, dtype=np.float64) - self.rows.shift, self.cache()
        N = np.unique(cache.nearest(A, self.m))
        if len(N) > MOST_JOINT:
            raise ValueError(
                f"These {len(A)} rows have {len(N)} distinct neighbours, but a joint "
                f"distribution supports at most {MOST_JOINT}. Pass fewer rows, or use "
                "return_std."
            )
        phi = self._phi(A, cache)
        mean, covariance = (a[0] for a in self._conditional(A[None], phi[None], N[None], cache))
        if self.cells is not None:
            mean = self._cell_means(A, phi, self.cells.find(A), cache)
            root = np.sqrt(self._cell_ratio(phi, np.diag(covariance)))
            covariance = covariance * np.multiply.outer(root, root)
        return mean * self.scale, covariance * self.variance_unit

    def leave_one_out(
        self, n_jobs: int | None = None, rows: np.ndarray | None = None
    ) -> LooPredictions:
        """Return leave-one-out predictions of all training rows, or of some."""
        rows = np.arange(len(self.rows.y)) if rows is None else rows
        unique, inverse = self.rows.lookup(rows)
        cache = self.cache()
        if self.cells is None and self.m < len(self.rows):

            def loo_block(block: slice) -> tuple[np.ndarray, np.ndarray]:
                own = unique[block]
                A = cache.X[own].astype(np.float64)
                return self.loo_by_neighbours(own, cache.nearest(A, self.m), cache)

            parts = _map(loo_block, row_slices(len(unique), 512), n_jobs)
            mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        else:
            cells = cut_cells(cache.nearest, self.rows.X, self.m, loo=True)
            mean, variance = self.loo_by_cells(cells, unique, cache.take, n_jobs)
        return self.to_loo_predictions(rows, mean[inverse], variance[inverse])

    def to_loo_predictions(
        self, rows: np.ndarray, mean: np.ndarray, variance: np.ndarray
    ) -> LooPredictions:
        """Return leave-one-out predictions from moments given all other unique rows.

        `mean` and `variance` are those of the function at each row without any of the observations
        there, in units of the amplitude and of `scale`. The observations are added by their noise.
        """
        y, weight, _ = self.rows.aggregate()
        unique = rows if self.rows.index is None else self.rows.index[rows]
        y, weight = y[unique], weight[unique]
        ratio = self.lam / (self.lam + weight * variance)  # of posterior to prior variance
        own = self.rows.y[rows]
        residual = (own - y) + (y - mean) * ratio
        return LooPredictions(
            residual * self.scale,
            variance * ratio * self.variance_unit,
            own * self.scale,
            self.rows.weight[rows],
            self.noise_variance,
        )

    def _phi(self, A: Array, cache: TrainingCache) -> Array:
        X = A + to_device_of(A, self.rows.shift)
        return _whitened_values(self.functions, cache.factor, X) @ cache.rotation

    def prior_variance(self, phi: Array) -> Array:
        """Return the variance at rows without neighbours: global posterior and residual."""
        residual = namespace(phi).clip(1.0 - (phi * phi).sum(axis=1), 0.0, np.inf)
        return self.global_variance(phi) + residual

    def global_variance(self, phi: Array) -> Array:
        """Return B(x, x)."""
        fit = self.fit
        centred = phi - to_device_of(phi, fit.centre)
        return centred**2 @ to_device_of(phi, fit.variance) + fit.offset_variance

    def _cell_ratio(self, phi: Array, near: Array) -> Array:
        """Return the variance given a cell divided by that given the neighbours."""
        ratio = namespace(phi).clip(near / self.prior_variance(phi), TINY, 1.0)
        return ratio ** (self.power - 1.0)

    def _cell_means(self, A: Array, phi: Array, cell: np.ndarray, cache: TrainingCache) -> Array:
        """Return the means of rows that are in the order of their cells."""
        cells, kernel, xp = self.cells, self.functions.kernel, namespace(A)
        assert cells is not None
        means, ends = [], np.append(np.flatnonzero(np.diff(cell, prepend=-1)), len(cell))
        for block in map(slice, ends[:-1], ends[1:]):
            c = cell[block.start]
            U, alpha = cells.rows[cells.part(c)], to_device_of(A, cells.alpha[cells.part(c)])
            # Systems that conjugate gradients solve in float32 are evaluated in float32.
            new = A[block] if is_torch(A) else A[block].astype(alpha.dtype, copy=False)
            mean = phi[block] @ to_device_of(A, cells.weights[c]) + float(cells.offset[c])
            means.append(mean + kernel.bind(asarray_like(new, cache.X[U]))(new) @ alpha)
        return xp.concatenate(means)

    def solve_cells(
        self, cells: Cells, take: Callable[[np.ndarray], TrainingCache], n_jobs: int | None = None
    ) -> Cells:
        """Return cells with the solutions of their systems.

        Raises LinAlgError where one of the systems cannot be solved.
        """

        def solve(c: int) -> CellSolution:
            return solve_cell(self, take(cells.rows[cells.part(c)]), np.zeros(0, dtype=np.intp))

        alpha, weights, offset, *_ = zip(*_map(solve, range(cells.n), n_jobs), strict=True)
        return cells._replace(
            alpha=np.concatenate(alpha), weights=np.stack(weights), offset=np.array(offset)
        )

    def loo_by_cells(
        self,
        cells: Cells,
        unique: np.ndarray,
        take: Callable[[np.ndarray], TrainingCache],
        n_jobs: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance at unique rows given the other rows of their cells.

        Both are in units of the amplitude and of `scale`. Raises LinAlgError where the system of a
        cell is not positive definite.
        """
        cell = cells.find(self.rows.X[unique])
        order = np.argsort(cell, kind="stable")
        ends = np.searchsorted(cell[order], np.arange(cells.n + 1))

        def solve(c: int) -> CellSolution:
            rows, targets = cells.rows[cells.part(c)], unique[order[ends[c] : ends[c + 1]]]
            sorter = np.argsort(rows)
            loo = sorter[np.searchsorted(rows, targets, sorter=sorter)]
            return solve_cell(self, take(rows), loo)

        solutions = _map(solve, np.flatnonzero(np.diff(ends)).tolist(), n_jobs)
        mean, variance = np.empty(len(unique)), np.empty(len(unique))
        mean[order] = np.concatenate([solution.mean for solution in solutions])
        variance[order] = np.concatenate([solution.variance for solution in solutions])
        return mean, variance

    def loo_by_neighbours(
        self, own: np.ndarray, N: np.ndarray, cache: TrainingCache
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance at rows of `cache` given their neighbours without themselves.

        `N` are the neighbours of each row, the row itself among them. The results are in units of
        the amplitude and of `scale`.
        """
        A, phi = cache.X[own].astype(np.float64), cache.phi[own]
        return self._one_by_one(A, phi, _own_first(N, own), cache, loo=True)

    def _one_by_one(
        self, A: Array, phi: Array, N: Array, cache: TrainingCache, loo: bool = False
    ) -> tuple[Array, Array]:
        """Return mean and variance of each row by itself, in batches that fit into the CPU cache.

        With `loo` the first neighbour of each row is the row itself, which is left out.
        """
        if N.shape[1] == len(cache.X) and not loo:  # all rows share one factorisation
            mean, covariance = self._conditional(A[None], phi[None], N[:1], cache)
            return mean[0], namespace(A).einsum("ii->i", covariance[0])
        xp = namespace(A)
        size = max(1, _BATCH[_on_accelerator(A)] // (N.shape[1] * (phi.shape[1] + 1)))
        parts = [
            self._conditional(A[batch, None], phi[batch, None], N[batch], cache, loo)
            for batch in row_slices(len(A), size)
        ]
        means, variances = zip(*parts, strict=True)
        return xp.concatenate(means)[:, 0], xp.concatenate(variances)[:, 0, 0]

    def _conditional(
        self, A: Array, phi: Array, N: Array, cache: TrainingCache, loo: bool = False
    ) -> tuple[Array, Array]:
        """Return mean (b, t) and covariance (b, t, t) of b stacks of t new rows given neighbours.

        With `loo` the first neighbour has no observation.
        """
        fit, m, xp = self.fit, N.shape[1], namespace(A)
        near, x = slice(0, m), slice(m, None)
        # Differences to one neighbour are small where it matters, and nothing cancels.
        origin = asarray_like(A, cache.X[N[:, :1]])
        rows = xp.concatenate([cache.X[N] - origin, A - origin], axis=1)
        F = _stacked(cache.phi, N, phi)
        F_transposed = xp.swapaxes(F, 1, 2)
        kernel: Any = self.functions.kernel
        R = kernel.among(rows)
        R -= F @ F_transposed
        B = asarray_like(A, (F * asarray_like(F, fit.variance)) @ F_transposed)
        if fit.offset_variance:
            new = phi @ asarray_like(phi, fit.variance * fit.centre)
            along = xp.concatenate([cache.along[N], asarray_like(A, new)], axis=1)
            B -= along[:, :, None]
            B -= along[:, None, :]
            B += float(fit.centre @ (fit.variance * fit.centre)) + fit.offset_variance
        # The residual variance is the difference of two numbers near one.
        own = xp.arange(m, rows.shape[1])
        R[:, own, own] = xp.clip(R[:, own, own], 0.0, np.inf)
        own = xp.arange(m)
        R[:, own, own] = cache.residual[N] + cache.noise[N]
        if loo:  # C^-1 of the first neighbour is zero, and E = C^-1 - D^-1 is -D^-1
            R[:, 0, 1:], R[:, 1:, 0] = 0.0, 0.0
            R[:, 0, 0] = cache.independent_noise[N[:, 0]]
        C, B_near = R[:, near, near], B[:, near, near]
        c = xp.linalg.solve(C, R[:, near, x])
        h = B[:, near, x] - B_near @ c
        CD = C / cache.independent_noise[N][:, None, :]
        if loo:
            CD[:, 0, 0] = 2.0  # 1 - C D^-1 is -1 there, with that row multiplied by D in place of C
        U = xp.concatenate([cache.global_residual[N][:, :, None], h], axis=2)
        Z = xp.linalg.solve(C + B_near - CD @ B_near, U - CD @ U)
        h_transposed, c_transposed = xp.swapaxes(h, 1, 2), xp.swapaxes(c, 1, 2)
        hZ = h_transposed @ Z
        mean = fit.offset + (phi - to_device_of(A, fit.centre)) @ to_device_of(A, fit.mean)
        mean += (c_transposed @ U[:, :, :1] + hZ[:, :, :1])[:, :, 0]
        covariance = R[:, x, x] + B[:, x, x] - hZ[:, :, 1:]
        covariance -= c_transposed @ (R[:, near, x] + B[:, near, x]) + h_transposed @ c
        own = xp.arange(covariance.shape[1])
        covariance[:, own, own] = xp.clip(covariance[:, own, own], 0.0, np.inf)
        return mean, covariance


def _map(function: Callable[[P], R], parts: Iterable[P], n_jobs: int | None) -> list[R]:
    """Return the function of each part, computed in threads if `n_jobs` allows it."""
    if n_jobs in (None, 1):
        return [function(part) for part in parts]
    return Parallel(n_jobs=n_jobs, prefer="threads")(delayed(function)(part) for part in parts)


def _stacked(phi: Array, N: Array, new: Array) -> Array:
    """Return the functions at neighbours followed by those at new rows, in the dtype of phi."""
    if is_torch(phi):
        return namespace(phi).concatenate([phi[N], asarray_like(phi, new)], axis=1)
    F = np.empty((len(N), N.shape[1] + new.shape[1], new.shape[2]), dtype=phi.dtype)
    np.take(phi, N, axis=0, out=F[:, : N.shape[1]], mode="clip")
    F[:, N.shape[1] :] = new
    return F


class TrainingCache(NamedTuple):
    """Arrays derived from a process at its unique rows, or at some of them."""

    X: Array
    phi: Array
    along: Array  # phi'S times the centre
    residual: Array  # r(x, x)
    noise: Array  # lam/weight
    independent_noise: Array  # d
    y: Array
    global_residual: Array  # y - m
    nearest: Any  # NearestRows; None if only a part of the rows is here
    factor: Array
    rotation: Array

    def take(self, rows: np.ndarray) -> TrainingCache:
        """Return the arrays at some of the rows."""
        shared: dict[str, Any] = {"nearest": None, "factor": self.factor, "rotation": self.rotation}
        arrays = {name: a[rows] for name, a in self._asdict().items() if name not in shared}
        return TrainingCache(**arrays, **shared)

    def on(self, device: Device | None, kernel: StationaryKernel, rough: bool) -> TrainingCache:
        """Return a copy on a device, with the functions in the dtype that they have here."""
        arrays = {**self._asdict(), "nearest": None}
        cache = TrainingCache(**{name: on_device(a, device) for name, a in arrays.items()})
        phi: Any = cache.phi  # a tensor
        phi = phi.float() if self.phi.dtype == np.float32 else phi
        return cache._replace(phi=phi, nearest=NearestRows(kernel, cache.X, rough))

    @classmethod
    def from_process(cls, process: NeighbourProcess) -> TrainingCache:
        """Derive the arrays at all unique rows."""
        white = whiten(process.functions, process.fit.factor, process.rows)
        phi = white.rotate(process.fit.rotation)
        kernel: Any = process.functions.kernel
        nearest = NearestRows(kernel, process.rows.X, process.rough)
        return cls.from_functions(process, phi, white.residual, nearest)

    @classmethod
    def from_functions(
        cls,
        process: NeighbourProcess,
        phi: np.ndarray,
        residual: np.ndarray,
        nearest: NearestRows | None,
        subset: slice | np.ndarray = slice(None),
    ) -> TrainingCache:
        """Derive the arrays at a subset of the unique rows from rotated functions and r(x, x)."""
        fit = process.fit
        y, weight, _ = process.rows.aggregate()
        y, weight = y[subset], weight[subset]
        noise = process.lam / weight
        mean = fit.offset + (phi @ fit.mean.astype(phi.dtype) - fit.centre @ fit.mean)
        along = (phi @ (fit.variance * fit.centre).astype(phi.dtype)).astype(np.float64)
        return cls(
            process.rows.X[subset],
            phi,
            along,
            residual,
            noise,
            residual / weight + noise,
            y,
            y - mean,
            nearest,
            fit.factor,
            fit.rotation,
        )
