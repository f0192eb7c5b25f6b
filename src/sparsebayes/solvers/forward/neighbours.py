"""A Gaussian process on any number of rows: chosen functions, and the neighbours of each new row.

The process of variance a times the kernel k is split by the chosen functions. With phi(x) their
values, whitened, q(x, z) = phi(x)'phi(z) is the part of k that they span, r = k - q what they leave
out, and lam = sigma2/a. In units of a

    y = b + phi(x)'w + g(x) + e,   b flat,  w ~ N(0, Id),  g ~ GP(0, r),  e ~ N(0, lam/weight).

What few functions miss is local, so

1. Global (`fit_global`): u(x) = b + phi(x)'w from all rows, as if g were noise of its own at each
   row, of variance d_i = (r(x_i, x_i) + lam)/weight_i. Sums over the rows suffice. It has the mean
   m(x) and the covariance B(x, z).
2. Local (`_given`), at x with the neighbours N: their g is no noise of its own. With
   C = r(N, N) + diag(lam/weight), c = C^-1 r(N, x) and D = diag(d_N), a prediction given u is
   u(x) + c'(y_N - u(N)), and the posterior of u is the global one with D^-1 of the neighbours
   replaced by C^-1. With e = y_N - m(N), B = B(N, N), h = B(N, x) - B c and M = C + B - C D^-1 B,

       mean    = m(x) + c'e + h'M^-1 (1 - C D^-1) e
       var / a = r(x, x) - c'r(N, x) + B(x, x) - c'B(N, x) - h'c - h'M^-1 (1 - C D^-1) h

3. Cells (`cells`), where rows left out say that they tell more: thousands of rows are the N of all
   rows of their cell, and are solved once, in the fit. A variance would take all of their factor:
   it is the one that m neighbours leave, its share of that without neighbours to a `power`, one
   for all rows, with which the rows left out have the mean variance that their cells leave.

This is the exact process where N is all rows, whatever the functions, and where the functions span
everything, whatever N. A training row is its own first neighbour, and its observation enters there
by its own noise alone: `posterior.left_out` takes it out again in closed form.

Equal rows are one place with the sum of their weights: they are a neighbour once, and C stays far
from singular. Rows many widths away have a kernel of zero: where all neighbours are far c = 0, and
what is left is the process that knows the global part alone.

A variance costs 4 (m + 1)^2 k + 4 m^3 operations for m neighbours and k functions, and so does a
mean without cells; with them it costs a kernel value for each row of the cell. Derivation, and what
else was tried: docs/theory/neighbours.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from scipy.linalg import eigh
from scipy.spatial import cKDTree

from ..._array import asarray_like, is_torch, namespace, on_device, to_device_of
from ...designs import KernelBasis
from ...designs._base import row_slices
from ...kernels import StationaryKernel
from ...posterior import LeftOut
from ...rows._base import row_hashes
from .cells import Cells, Solved, cut_cells, solve_cell

_TREE_INPUTS = 20  # with more a tree visits nearly all rows, and products are faster
_TREE_ERROR = 0.25  # share by which a neighbour may be farther than the true one: half the time
_LEAF = 64
_BLOCK = 4096
# Numbers of a block, here and on a device: distances of a search without a tree; functions at all
# neighbours of a batch of new rows.
_DISTANCES = (2**22, 2**27)
_BATCH = (2**19, 2**27)
MOST_JOINT = 4000  # neighbours of rows that are predicted together


class NearestRows:
    """The nearest of many rows, in the distance of a kernel.

    Of a sum it is that of its smooth part, or of its `rough` one. Up to 20 inputs by a tree, built
    once; with more, and on a device, by products, in blocks.
    """

    def __init__(self, kernel: StationaryKernel, X: Any, rough: bool) -> None:
        gamma = np.asarray(kernel.gamma, dtype=np.float64)
        if kernel.family == "sum":
            gamma = gamma[int(rough)]
        rate = np.broadcast_to(gamma if rough else np.sqrt(gamma), X.shape[1:])
        self.used = np.flatnonzero(rate)
        self.rate = to_device_of(X, rate[self.used])
        self.rows = self._scaled(X)
        few = not _is_far(X) and len(self.used) <= _TREE_INPUTS
        self.tree = cKDTree(np.asarray(self.rows), leafsize=_LEAF) if few else None
        self.half = None if few else 0.5 * (self.rows * self.rows).sum(axis=1)

    def _scaled(self, X: Any) -> Any:
        return X[:, self.used] * self.rate

    def __call__(self, X: Any, m: int) -> Any:
        """Numbers of the m nearest rows of each row of X."""
        xp = namespace(X)
        if m >= len(self.rows):
            return xp.broadcast_to(xp.arange(len(self.rows)), (len(X), len(self.rows)))
        A = self._scaled(X)
        if self.tree is not None:
            return self.tree.query(np.asarray(A), np.arange(1, m + 1), eps=_TREE_ERROR)[1]
        blocks = row_slices(len(A), max(1, _DISTANCES[_is_far(A)] // len(self.rows)))
        return xp.concatenate([_smallest(self.half - A[b] @ self.rows.T, m) for b in blocks])


def _is_far(array: Any) -> bool:
    """Whether these numbers are on another device than the CPU."""
    return is_torch(array) and array.device.type != "cpu"


def _smallest(distance: Any, m: int) -> Any:
    """Numbers of the m smallest of each row, in their order."""
    if is_torch(distance):
        return distance.topk(m, largest=False).indices
    near = np.argpartition(distance, m - 1, axis=1)[:, :m]
    order = np.argsort(np.take_along_axis(distance, near, axis=1), axis=1)
    return np.take_along_axis(near, order, axis=1)


@dataclass(frozen=True)
class Places:
    """Rows that differ, and the observations at them.

    Parameters
    ----------
    X : array of shape (n_places, n_features)
        Less `shift`, so that float32 can hold it.
    shift : array of shape (n_features,)
    y, weight : arrays of shape (n_rows,)
        Of all rows, in the units of the solver.
    place : array of shape (n_rows,), or None where it is the row itself
    """

    X: np.ndarray
    shift: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    place: np.ndarray | None

    @classmethod
    def from_rows(cls, X: np.ndarray, y: np.ndarray, weight: np.ndarray, single: bool) -> Places:
        """From rows of positive weight."""
        shift = np.asarray(np.mean(X, axis=0, dtype=np.float64))
        X = (X - shift).astype(np.float32 if single else np.float64)
        order = np.argsort(row_hashes(X), kind="stable")
        new = np.append(True, np.any(X[order[1:]] != X[order[:-1]], axis=1))
        if np.all(new):
            return cls(X, shift, y, weight, None)
        place = np.empty(len(X), dtype=np.intp)
        place[order] = np.cumsum(new) - 1
        return cls(X[order[new]], shift, y, weight, place)

    def __len__(self) -> int:
        return len(self.X)

    def at(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The places of rows, each once, and which of them is whose."""
        if self.place is None:
            return rows, np.arange(len(rows))
        return np.unique(self.place[rows], return_inverse=True)

    def observed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """At each place: mean observation, weight, and squares around the mean."""
        if self.place is None:
            return self.y, self.weight, np.zeros(len(self.y))
        weight = np.bincount(self.place, self.weight)
        y = np.bincount(self.place, self.weight * self.y) / weight
        return y, weight, np.bincount(self.place, self.weight * (self.y - y[self.place]) ** 2)


class White(NamedTuple):
    """The functions at all places before they are rotated, and r(x, x) there."""

    turn: np.ndarray  # functions(x) @ turn
    phi: np.ndarray
    outside: np.ndarray

    def rotate(self, V: np.ndarray) -> np.ndarray:
        """phi, turned in place."""
        for some in row_slices(len(self.phi), _BLOCK):
            self.phi[some] = self.phi[some] @ V.astype(self.phi.dtype)
        return self.phi


def whiten(functions: KernelBasis, turn: np.ndarray, places: Places) -> White:
    """The functions times `turn`, in the type of the rows."""
    phi, outside = np.empty((len(places), len(turn)), places.X.dtype), np.empty(len(places))
    for some in row_slices(len(places), _BLOCK):
        block = functions(places.X[some] + places.shift) @ turn
        phi[some] = block
        outside[some] = np.maximum(1.0 - np.einsum("ij,ij->i", block, block), 0.0)
    return White(turn, phi, outside)


class Global(NamedTuple):
    """What all rows say about the functions, in units of the amplitude."""

    white: np.ndarray  # phi(x) = functions(x) @ white @ rotation:
    rotation: np.ndarray  # white, and rotated so that S is diagonal
    mean: np.ndarray  # of w
    spread: np.ndarray  # its variances
    centre: np.ndarray  # mean of phi over the rows
    offset: float  # of u there
    offset_variance: float
    square: float  # t'Pt
    log_det: float  # of the covariance of all rows; the constant included

    @property
    def turn(self) -> np.ndarray:
        """Both in one."""
        return self.white @ self.rotation


def fit_global(white: White, places: Places, lam: float, intercept: bool) -> Global:
    """The weights of the functions by sums over all rows."""
    y, weight, scatter = places.observed()
    k = white.phi.shape[1]
    precision = weight / (white.outside + lam)
    A, sums, products = np.eye(k), np.zeros(k), np.zeros(k)
    for some in row_slices(len(y), _BLOCK):
        phi = white.phi[some].astype(np.float64, copy=False)
        scaled = np.sqrt(precision[some])[:, None] * phi
        A += scaled.T @ scaled
        sums += precision[some] @ phi
        products += (precision[some] * y[some]) @ phi
    total, offset, centre = float(np.sum(precision)), 0.0, np.zeros(k)
    if intercept:
        offset, centre = float(precision @ y) / total, sums / total
        A -= total * np.multiply.outer(centre, centre)
        products -= offset * sums
    values, V = eigh(A, check_finite=False) if k else (np.ones(0), np.eye(0))
    spread = 1.0 / np.maximum(values, 1.0)
    mean = spread * (V.T @ products)
    gap = y - offset - (white.phi @ (V @ mean).astype(white.phi.dtype) - centre @ (V @ mean))
    square = float(precision @ gap**2 + (precision / weight) @ scatter + mean @ mean)
    # A row of weight v is v rows, each with a noise of its own.
    log_det = -float(weight @ np.log(precision / weight)) - float(np.sum(np.log(spread)))
    log_det += float(np.log(total)) if intercept else 0.0
    constant = offset, float(intercept) / total
    return Global(white.turn, V, mean, spread, V.T @ centre, *constant, square, log_det)


@dataclass(frozen=True)
class NeighbourProcess:
    """The functions of a model, all rows, and how the two together predict new ones.

    What follows from the rows, the tree and the functions at them, is made when it is first needed
    and is no part of a saved model.

    Parameters
    ----------
    functions : KernelBasis
    places : Places
    fit : Global
    lam : float
        Noise variance over the amplitude.
    amplitude : float
        Variance of the process, in the units of y over the square of `scale`.
    scale : float
        y was divided by it.
    m : int
        Neighbours of a new row.
    rough : bool
        Which part of a sum says what is near.
    cells : Cells or None
        Whose rows tell the means. Without them the neighbours do.
    power : float
        Of the share that neighbours leave of the variance, where the rows of a cell leave less.
    made : dict
        What was made, by device. A copy of another amplitude or with other cells shares it.
    """

    functions: KernelBasis
    places: Places
    fit: Global
    lam: float
    amplitude: float
    scale: float
    m: int
    rough: bool
    cells: Cells | None = None
    power: float = 1.0
    made: dict[Any, Known] = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "made"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, made={})

    @property
    def noise_variance(self) -> float:
        """The noise variance of an observation, in the units of y."""
        return self.lam * self.amplitude * self.scale * self.scale

    def _known(self, device: Any = None) -> Known:
        if None not in self.made:
            self.made[None] = Known.from_process(self)
        if device not in self.made:
            self.made[device] = self.made[None].on(device, self.functions.kernel, self.rough)
        return self.made[device]

    def predict(self, X: Any, n_jobs: int | None = None, spread: bool = True) -> tuple[Any, Any]:
        """Mean and variance (None if not asked for) of the function at each row, in units of y.

        Rows on a device are predicted there.
        """
        device = X.device if is_torch(X) else None
        X = np.asarray(X, dtype=np.float64) if device is None else on_device(X, device)
        A, known, xp = X - to_device_of(X, self.places.shift), self._known(device), namespace(X)
        cell = order = np.zeros(0, dtype=np.intp)
        if self.cells is not None:  # rows of a cell together
            cell = self.cells.of(A)
            order = np.argsort(cell, kind="stable")
            A, cell = A[order], cell[order]

        def of(some: slice) -> tuple[Any, ...]:
            phi = self._phi(A[some], known)
            if self.cells is None:
                return self._alone(A[some], phi, known.nearest(A[some], self.m), known)
            mean = self._means(A[some], phi, cell[some], known)
            if not spread:
                return (mean,)
            near = self._alone(A[some], phi, known.nearest(A[some], self.m), known)[1]
            return mean, near * self._share(phi, near)

        blocks = row_slices(len(A), _BLOCK if _is_far(A) else 512)
        found = _each(of, blocks, None if device is not None else n_jobs)
        parts = [xp.concatenate(part) for part in zip(*found, strict=True)]
        if self.cells is not None:
            parts = [part[np.argsort(order)] for part in parts]
        mean = parts[0] * self.scale
        return mean, parts[1] * self.amplitude * self.scale * self.scale if spread else None

    def joint(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the function at rows that share all their neighbours."""
        A, known = np.asarray(X, dtype=np.float64) - self.places.shift, self._known()
        N = np.unique(known.nearest(A, self.m))
        if len(N) > MOST_JOINT:
            raise ValueError(
                f"These {len(A)} rows have {len(N)} neighbours together, and a joint distribution "
                f"is made for {MOST_JOINT} at most: ask for fewer rows, or for return_std."
            )
        phi = self._phi(A, known)
        mean, covariance = (a[0] for a in self._given(A[None], phi[None], N[None], known))
        if self.cells is not None:
            mean = self._means(A, phi, self.cells.of(A), known)
            root = np.sqrt(self._share(phi, np.diag(covariance)))
            covariance = covariance * np.multiply.outer(root, root)
        return mean * self.scale, covariance * self.amplitude * self.scale * self.scale

    def left_out(self, n_jobs: int | None = None, rows: np.ndarray | None = None) -> LeftOut:
        """What all training rows, or these, tell when each is left out."""
        places = self.places
        rows = np.arange(len(places.y)) if rows is None else rows
        at, back = places.at(rows)
        if self.cells is None:
            mean, spread = self.predict(places.X[at] + places.shift, n_jobs)
        else:
            known = self._known()
            cells = cut_cells(known.nearest, places.X, self.m, left_out=True)
            mean, spread = self.in_cells(cells, at, known.some, n_jobs)
            mean, spread = mean * self.scale, spread * self.amplitude * self.scale * self.scale
        return self._left(rows, mean[back], spread[back])

    def _left(self, rows: np.ndarray, mean: np.ndarray, spread: np.ndarray) -> LeftOut:
        y = self.places.y[rows] * self.scale
        return LeftOut(y - mean, spread, y, self.places.weight[rows], self.noise_variance)

    def _phi(self, A: Any, known: Known) -> Any:
        return self.functions(A + to_device_of(A, self.places.shift)) @ known.turn

    def _apart(self, phi: Any) -> Any:
        """The variance where no row is near: that of the functions, and of what they leave out."""
        outside = namespace(phi).clip(1.0 - (phi * phi).sum(axis=1), 0.0, np.inf)
        return self._inside(phi) + outside

    def _inside(self, phi: Any) -> Any:
        """B(x, x)."""
        fit = self.fit
        return (phi - to_device_of(phi, fit.centre)) ** 2 @ to_device_of(
            phi, fit.spread
        ) + fit.offset_variance

    def _share(self, phi: Any, near: Any) -> Any:
        """The variance that the rows of a cell leave, over that which neighbours leave."""
        share = namespace(phi).clip(near / self._apart(phi), 0.0, 1.0)
        return share ** (self.power - 1.0)

    def _means(self, A: Any, phi: Any, cell: np.ndarray, known: Known) -> Any:
        """Means of rows in the order of their cells."""
        cells, kernel, xp = self.cells, self.functions.kernel, namespace(A)
        assert cells is not None
        found, ends = [], np.append(np.flatnonzero(np.diff(cell, prepend=-1)), len(cell))
        for some in map(slice, ends[:-1], ends[1:]):
            c = cell[some.start]
            U, alpha = cells.rows[cells.part(c)], to_device_of(A, cells.alpha[cells.part(c)])
            # Many rows, solved by conjugate gradients in float32, tell no more in float64.
            new = A[some] if is_torch(A) else A[some].astype(alpha.dtype, copy=False)
            mean = phi[some] @ to_device_of(A, cells.weights[c]) + float(cells.offset[c])
            found.append(mean + kernel.bind(asarray_like(new, known.X[U]))(new) @ alpha)
        return xp.concatenate(found)

    def solve_cells(
        self, cells: Cells, known_at: Callable[[np.ndarray], Known], n_jobs: int | None = None
    ) -> Cells:
        """Cells with what is known in each of them."""

        def of(c: Any) -> Solved:
            return solve_cell(self, known_at(cells.rows[cells.part(c)]), np.zeros(0, dtype=np.intp))

        alpha, weights, offset, *_ = zip(*_each(of, range(cells.n), n_jobs), strict=True)
        return cells._replace(
            alpha=np.concatenate(alpha), weights=np.stack(weights), offset=np.array(offset)
        )

    def in_cells(
        self,
        cells: Cells,
        at: np.ndarray,
        known_at: Callable[[np.ndarray], Known],
        n_jobs: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance at these places, told by the rows of their cells.

        Both in units of the amplitude and of `scale`.
        """
        cell = cells.of(self.places.X[at])
        order = np.argsort(cell, kind="stable")
        ends = np.searchsorted(cell[order], np.arange(cells.n + 1))

        def of(c: Any) -> Solved:
            rows, wanted = cells.rows[cells.part(c)], at[order[ends[c] : ends[c + 1]]]
            where = np.argsort(rows)
            told = where[np.searchsorted(rows, wanted, sorter=where)]
            return solve_cell(self, known_at(rows), told)

        found = _each(of, np.flatnonzero(np.diff(ends)), n_jobs)
        mean, variance = np.empty(len(at)), np.empty(len(at))
        mean[order] = np.concatenate([part.mean for part in found])
        variance[order] = np.concatenate([part.variance for part in found])
        return mean, variance

    def _alone(self, A: Any, phi: Any, N: Any, known: Known) -> tuple[Any, Any]:
        """Mean and variance of each row by itself, in batches that stay in the cache."""
        if N.shape[1] == len(known.X):  # every row is a neighbour: all share one factorisation
            mean, covariance = self._given(A[None], phi[None], N[:1], known)
            return mean[0], namespace(A).einsum("ii->i", covariance[0])
        xp = namespace(A)
        size = max(1, _BATCH[_is_far(A)] // (N.shape[1] * (phi.shape[1] + 1)))
        found = [
            self._given(A[some, None], phi[some, None], N[some], known)
            for some in row_slices(len(A), size)
        ]
        means, variances = zip(*found, strict=True)
        return xp.concatenate(means)[:, 0], xp.concatenate(variances)[:, 0, 0]

    def _given(self, A: Any, phi: Any, N: Any, known: Known) -> tuple[Any, Any]:
        """Mean (b, t) and covariance (b, t, t) of b stacks of t new rows with their neighbours."""
        fit, m, xp = self.fit, N.shape[1], namespace(A)
        near, x = slice(0, m), slice(m, None)
        # Differences to one neighbour are small where it matters, and nothing cancels.
        origin = asarray_like(A, known.X[N[:, :1]])
        rows = xp.concatenate([known.X[N] - origin, A - origin], axis=1)
        F = _stacked(known.phi, N, phi)
        F_turned = xp.swapaxes(F, 1, 2)
        kernel: Any = self.functions.kernel
        R = kernel.among(rows)
        R -= F @ F_turned
        B = asarray_like(A, (F * asarray_like(F, fit.spread)) @ F_turned)
        if fit.offset_variance:
            more = phi @ to_device_of(A, fit.spread * fit.centre)
            along = xp.concatenate([known.along[N], more], axis=1)
            B -= along[:, :, None]
            B -= along[:, None, :]
            B += float(fit.centre @ (fit.spread * fit.centre)) + fit.offset_variance
        # What is left outside is the difference of two numbers near one.
        own = xp.arange(m, rows.shape[1])
        R[:, own, own] = xp.clip(R[:, own, own], 0.0, np.inf)
        own = xp.arange(m)
        R[:, own, own] = known.outside[N] + known.noise[N]
        C, B_near = R[:, near, near], B[:, near, near]
        c = xp.linalg.solve(C, R[:, near, x])
        h = B[:, near, x] - B_near @ c
        CD = C / known.noise_apart[N][:, None, :]
        U = xp.concatenate([known.gap[N][:, :, None], h], axis=2)
        Z = xp.linalg.solve(C + B_near - CD @ B_near, U - CD @ U)
        h_turned, c_turned = xp.swapaxes(h, 1, 2), xp.swapaxes(c, 1, 2)
        turned = h_turned @ Z
        mean = fit.offset + (phi - to_device_of(A, fit.centre)) @ to_device_of(A, fit.mean)
        mean += (c_turned @ U[:, :, :1] + turned[:, :, :1])[:, :, 0]
        covariance = R[:, x, x] + B[:, x, x] - turned[:, :, 1:]
        covariance -= c_turned @ (R[:, near, x] + B[:, near, x]) + h_turned @ c
        own = xp.arange(covariance.shape[1])
        covariance[:, own, own] = xp.clip(covariance[:, own, own], 0.0, np.inf)
        return mean, covariance


def _each(of: Callable[[Any], Any], parts: Iterable[Any], n_jobs: int | None) -> list[Any]:
    """`of` each part, in threads if there may be several."""
    if n_jobs in (None, 1):
        return [of(part) for part in parts]
    return Parallel(n_jobs=n_jobs, prefer="threads")(delayed(of)(part) for part in parts)


def _stacked(phi: Any, N: Any, new: Any) -> Any:
    """The functions at neighbours, and after them at new rows, in the type of the neighbours'."""
    if is_torch(phi):
        return namespace(phi).concatenate([phi[N], asarray_like(phi, new)], axis=1)
    F = np.empty((len(N), N.shape[1] + new.shape[1], new.shape[2]), dtype=phi.dtype)
    np.take(phi, N, axis=0, out=F[:, : N.shape[1]], mode="clip")
    F[:, N.shape[1] :] = new
    return F


class Known(NamedTuple):
    """What a process knows at places, all of them or some; made again when a model was loaded."""

    X: Any
    phi: Any
    along: Any  # phi' S times the centre
    outside: Any  # r(x, x)
    noise: Any  # lam/weight
    noise_apart: Any  # d
    y: Any
    gap: Any  # y - m
    nearest: Any
    turn: Any

    def some(self, rows: np.ndarray) -> Known:
        """At some of the places."""
        kept = {"nearest": None, "turn": self.turn}
        return Known(
            **{name: a[rows] for name, a in self._asdict().items() if name not in kept}, **kept
        )

    def on(self, device: Any, kernel: Any, rough: bool) -> Known:
        """The same on a device; the functions in the type that they have here."""
        arrays = {**self._asdict(), "nearest": None}
        known = Known(**{name: on_device(a, device) for name, a in arrays.items()})
        phi = known.phi.float() if self.phi.dtype == np.float32 else known.phi
        return known._replace(phi=phi, nearest=NearestRows(kernel, known.X, rough))

    @classmethod
    def from_process(cls, process: NeighbourProcess) -> Known:
        """At all places."""
        white = whiten(process.functions, process.fit.white, process.places)
        phi = white.rotate(process.fit.rotation)
        kernel: Any = process.functions.kernel
        nearest = NearestRows(kernel, process.places.X, process.rough)
        return cls.at(process, phi, white.outside, nearest)

    @classmethod
    def at(
        cls,
        process: NeighbourProcess,
        phi: np.ndarray,
        outside: np.ndarray,
        nearest: Any,
        some: Any = slice(None),
    ) -> Known:
        """From the functions at some places."""
        fit = process.fit
        y, weight, _ = process.places.observed()
        y, weight = y[some], weight[some]
        noise = process.lam / weight
        gap = y - fit.offset - (phi @ fit.mean.astype(phi.dtype) - fit.centre @ fit.mean)
        along = (phi @ (fit.spread * fit.centre).astype(phi.dtype)).astype(np.float64)
        X = process.places.X[some]
        apart = outside / weight + noise
        return cls(X, phi, along, outside, noise, apart, y, gap, nearest, fit.turn)
