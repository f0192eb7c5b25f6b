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

3. Cells (`in_cells`), where rows left out say that they tell more: the inputs are cut into cells,
   and the rows of a cell and around it, some thousands, are the N of all its rows. Solved once, in
   the fit and in the space of the functions, they make the mean offset + phi(x)'weights +
   k(x, N)'alpha. A variance would take all of their factor: it is the one that m neighbours leave,
   its share of that without neighbours to a `power`, one for all rows, with which the rows left out
   have the mean variance that their cells leave.

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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import numpy as np
from joblib import Parallel, delayed
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh, solve_triangular
from scipy.optimize import brentq
from scipy.spatial import cKDTree

from ..._array import is_torch, like, namespace, on_device, there, to_numpy
from ...designs import KernelBasis
from ...designs._base import row_slices
from ...kernels import StationaryKernel
from ...posterior import LeftOut
from ..noise import Noise
from .process import exact_process

_TREE_INPUTS = 20  # with more a tree visits nearly all rows, and products are faster
_TREE_ERROR = 0.25  # share by which a neighbour may be farther than the true one: half the time
_LEAF = 64
_BLOCK = 4096
# Numbers of a block, here and on a device: distances of a search without a tree; functions at all
# neighbours of a batch of new rows.
_DISTANCES = (2**22, 2**27)
_BATCH = (2**19, 2**27)
# Smallest lam over a weight: rows may be nearly equal, and in float32 r is right to 1e-7.
_SMALLEST = {np.float64: 1e-10, np.float32: 1e-5}
_SCALE_ROWS = 1500  # that tell signal and noise by exact evidence,
_JUDGED = 1000  # and by leaving out
_JUDGED_CELLS = 2  # that they are from, where cells are judged
_FACTORS = (0.5, 2.0)  # of lam, tried in turn
_WORTH = 2e-3  # nats for each row that more neighbours, or another lam, must gain
AUTO = (16, 32, 64, 128)
# Rows that tell a cell, for each neighbour of a row, and at most: the time of a fit grows with
# their square. With 64 neighbours they take a third of the fit of 10^5 rows.
_OF_CELL = 48
_MOST_OF_CELL = {np.float64: 2048, np.float32: 3072}
_SINGLE = 1e-3  # above this lam rows in float32 are solved in it, in half the time
_POWERS = (0.1, 10.0)  # between which that of the variance is sought
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
        self.rate = there(rate[self.used], X)
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
    def of(cls, X: np.ndarray, y: np.ndarray, weight: np.ndarray, single: bool) -> Places:
        """From rows of positive weight."""
        shift = np.asarray(np.mean(X, axis=0, dtype=np.float64))
        X = (X - shift).astype(np.float32 if single else np.float64)
        # Equal rows have equal sums, if these are made in the same order.
        key = np.zeros(len(X))
        factors = np.random.default_rng(0).uniform(1.0, 2.0, (X.shape[1],))
        for j in range(X.shape[1]):
            key += factors[j] * X[:, j]
        order = np.argsort(key, kind="stable")
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
        phi[some], outside[some] = block, _outside(block)
    return White(turn, phi, outside)


def _outside(phi: np.ndarray) -> np.ndarray:
    """r(x, x) of a kernel with k(x, x) = 1."""
    return np.maximum(1.0 - np.einsum("ij,ij->i", phi, phi), 0.0)


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
    return Global(
        white.turn,
        V,
        mean,
        spread,
        V.T @ centre,
        offset,
        float(intercept) / total,
        square,
        log_det,
    )


class Cells(NamedTuple):
    """Parts of the inputs, cut along one of them at a time, and what is known in each.

    At a row x of cell c, whose rows are U, the mean is
    offset[c] + phi(x)'weights[c] + k(x, U)'alpha.
    """

    inputs: np.ndarray  # of each cut: which input,
    cuts: np.ndarray  # where,
    below: np.ndarray  # and the next cut for smaller values and for others; ~c is cell c
    first: np.ndarray  # of each cell, in:
    rows: np.ndarray
    alpha: np.ndarray
    weights: np.ndarray
    offset: np.ndarray

    def of(self, A: Any) -> np.ndarray:
        """The cell of each row."""
        A = to_numpy(A)
        at = np.full(len(A), 0 if len(self.cuts) else ~0)
        while len(rest := np.flatnonzero(at >= 0)):
            cut = at[rest]
            beyond = A[rest, self.inputs[cut]] >= self.cuts[cut]
            at[rest] = self.below[cut, beyond.astype(np.intp)]
        return ~at

    def part(self, c: Any) -> slice:
        """Where the rows of a cell stand."""
        return slice(self.first[c], self.first[c + 1])


def cut_cells(nearest: NearestRows, X: np.ndarray, m: int) -> Cells:
    """Cells with the rows that tell them: their own, and the nearest to their centre.

    What is too large is cut along the input in which its rows, in the distance of the kernel, lie
    farthest apart, into two that give whole cells.
    """
    size = min(max(min(_OF_CELL * m, _MOST_OF_CELL[X.dtype.type]), m), len(X))
    most = size if size == len(X) else max(2 * size // 3, 1)
    rate = np.zeros(X.shape[1])
    rate[nearest.used] = to_numpy(nearest.rate)
    inputs, cuts, below, own = [], [], [], []

    def cut_up(some: np.ndarray) -> int:
        if len(some) <= most:
            own.append(some)
            return ~(len(own) - 1)
        apart = np.ptp(X[some], axis=0)
        j = int(np.argmax(rate * apart if np.any(rate * apart > 0) else apart))
        x = X[some, j]
        parts = -(-len(some) // most)
        middle = len(x) * (parts // 2) // parts
        cut = np.partition(x, middle)[middle]
        if not np.any(x < cut):
            cut = np.min(x[x > cut])
        inputs.append(j)
        cuts.append(cut)
        below.append([0, 0])
        here = len(cuts) - 1
        below[here] = [cut_up(some[x < cut]), cut_up(some[x >= cut])]
        return here

    cut_up(np.arange(len(X)))
    rows = own
    if size < len(X):
        near = nearest(np.stack([np.mean(X[some], axis=0) for some in own]), size)
        more = [n[~np.isin(n, some)] for n, some in zip(near, own, strict=True)]
        rows = [np.append(a, b[: size - len(a)]) for a, b in zip(own, more, strict=True)]
    first = np.cumsum([0] + [len(some) for some in rows])
    tree = (np.array(inputs, dtype=np.intp), np.array(cuts), np.array(below, dtype=np.intp))
    none = np.zeros(0)
    return Cells(*tree, first, np.concatenate(rows), none, none, none)


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
            self.made[None] = Known.of(self)
        if device not in self.made:
            self.made[device] = self.made[None].on(device, self.functions.kernel, self.rough)
        return self.made[device]

    def predict(self, X: Any, n_jobs: int | None = None, spread: bool = True) -> tuple[Any, Any]:
        """Mean and variance (None if not asked for) of the function at each row, in units of y.

        Rows on a device are predicted there.
        """
        device = X.device if is_torch(X) else None
        X = np.asarray(X, dtype=np.float64) if device is None else on_device(X, device)
        A, known, xp = X - there(self.places.shift, X), self._known(device), namespace(X)
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
            _, mean, spread = self.in_cells(self.cells, at, self._known().some, n_jobs)
            mean, spread = mean * self.scale, spread * self.amplitude * self.scale * self.scale
        return self._left(rows, mean[back], spread[back])

    def _left(self, rows: np.ndarray, mean: np.ndarray, spread: np.ndarray) -> LeftOut:
        y = self.places.y[rows] * self.scale
        return LeftOut(y - mean, spread, y, self.places.weight[rows], self.noise_variance)

    def _phi(self, A: Any, known: Known) -> Any:
        return self.functions(A + there(self.places.shift, A)) @ known.turn

    def _apart(self, phi: Any) -> Any:
        """The variance where no row is near: that of the functions, and of what they leave out."""
        outside = namespace(phi).clip(1.0 - (phi * phi).sum(axis=1), 0.0, np.inf)
        return self._inside(phi) + outside

    def _inside(self, phi: Any) -> Any:
        """B(x, x)."""
        fit = self.fit
        return (phi - there(fit.centre, phi)) ** 2 @ there(fit.spread, phi) + fit.offset_variance

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
            U, alpha = cells.rows[cells.part(c)], there(cells.alpha[cells.part(c)], A)
            mean = phi[some] @ there(cells.weights[c], A) + float(cells.offset[c])
            found.append(mean + kernel.bind(like(known.X[U], A))(A[some]) @ alpha)
        return xp.concatenate(found)

    def in_cells(
        self,
        cells: Cells,
        at: np.ndarray,
        known_at: Callable[[np.ndarray], Known],
        n_jobs: int | None = None,
        every: bool = False,
    ) -> tuple[Cells, np.ndarray, np.ndarray]:
        """Mean and variance at these places, told by the rows of their cells.

        Both in units of the amplitude and of `scale`. With `every`, the cells with what is known
        in each of them as well; else only those are solved that have a place.
        """
        cell, n_cells = cells.of(self.places.X[at]), len(cells.first) - 1
        order = np.argsort(cell, kind="stable")
        ends = np.searchsorted(cell[order], np.arange(n_cells + 1))

        def of(c: Any) -> tuple[np.ndarray, ...]:
            rows, wanted = cells.rows[cells.part(c)], at[order[ends[c] : ends[c + 1]]]
            where = np.argsort(rows)
            return self._solved(known_at(rows), where[np.searchsorted(rows, wanted, sorter=where)])

        solved = np.arange(n_cells) if every else np.flatnonzero(np.diff(ends))
        found = _each(of, solved, n_jobs)
        alpha, weights, offset, *told = zip(*found, strict=True)
        if every:
            cells = cells._replace(
                alpha=np.concatenate(alpha), weights=np.stack(weights), offset=np.array(offset)
            )
        mean, spread = np.empty(len(at)), np.empty(len(at))
        mean[order], spread[order] = (np.concatenate(part) for part in told)
        return cells, mean, spread

    def _solved(self, known: Known, told: np.ndarray) -> tuple[Any, ...]:
        """What the rows of a cell tell: alpha, weights, offset, and mean and variance at some.

        The formulas of `_given` in the space of the functions, which are fewer than the rows.
        """
        fit, F, gap, apart = self.fit, known.phi, known.gap, known.noise_apart
        work = F.dtype if self.lam > _SINGLE else np.dtype(np.float64)
        kernel: Any = self.functions.kernel
        X, outside = known.X.astype(work), known.outside[told]
        C = kernel.bind(X)(X)
        C -= F @ F.T
        own = np.arange(len(F))
        C[own, own] = known.outside + known.noise
        R = C[:, told]
        R[told, np.arange(len(told))] = outside
        L = cho_factor(C.T, lower=True, overwrite_a=True, check_finite=False)[0]
        # The functions, and the constant as one of them.
        one, spread = np.ones((len(F), int(fit.offset_variance > 0))), fit.spread
        G = np.append(F - fit.centre.astype(work), one, axis=1)
        spread = np.append(spread, np.full(one.shape[1], fit.offset_variance))
        k, n_functions = G.shape[1], F.shape[1]
        W = np.column_stack([G, gap, R]).astype(work)
        W = solve_triangular(L, W, lower=True, overwrite_b=True, check_finite=False)
        WG, We, WR = W[:, :k], W[:, k], W[:, k + 1 :]
        A = (WG.T @ WG - G.T @ (G / apart[:, None])).astype(np.float64)
        A[np.arange(k), np.arange(k)] += 1.0 / spread
        root = cho_factor(A, lower=True, check_finite=False)
        step = cho_solve(root, WG.T @ We - G.T @ (gap / apart), check_finite=False)
        alpha = solve_triangular(L, We - WG @ step, lower=True, trans=1, check_finite=False)
        mean = fit.mean + step[:n_functions]
        offset = fit.offset - fit.centre @ mean + np.sum(step[n_functions:])
        weights = mean - F.T @ alpha
        rest = solve_triangular(root[0], G[told].T - WG.T @ WR, lower=True, check_finite=False)
        variance = outside - np.sum(WR**2, axis=0) + np.sum(rest**2, axis=0)
        at_told = known.y[told] - gap[told] + G[told] @ step + R.T @ alpha
        return alpha, weights, offset, at_told, np.maximum(variance, 0.0)

    def _alone(self, A: Any, phi: Any, N: Any, known: Known) -> tuple[Any, Any]:
        """Mean and variance of each row by itself, in batches that stay in the cache."""
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
        origin = like(known.X[N[:, :1]], A)
        rows = xp.concatenate([known.X[N] - origin, A - origin], axis=1)
        F = _stacked(known.phi, N, phi)
        F_turned = xp.swapaxes(F, 1, 2)
        kernel: Any = self.functions.kernel
        R = kernel.among(rows)
        R -= F @ F_turned
        B = like((F * like(fit.spread, F)) @ F_turned, A)
        if fit.offset_variance:
            more = phi @ there(fit.spread * fit.centre, A)
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
        mean = fit.offset + (phi - there(fit.centre, A)) @ there(fit.mean, A)
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
        return namespace(phi).concatenate([phi[N], like(new, phi)], axis=1)
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
    def of(cls, process: NeighbourProcess) -> Known:
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


# How large signal and noise are, and how many neighbours there should be.


class Found(NamedTuple):
    """A process, and what was tried."""

    process: NeighbourProcess
    tried: list[int]  # numbers of neighbours
    density: list[float]  # mean log densities of some rows over `scale`, each left out
    outside: float  # mean of r(x, x)
    limit: str  # as in `path.Refit`
    left: LeftOut  # of the rows asked for


class _Judged(NamedTuple):
    """Rows that are left out to judge a process."""

    rows: np.ndarray
    at: np.ndarray  # their places, each once
    back: np.ndarray
    A: np.ndarray
    near: dict[bool, Any]  # neighbours, by each part of a sum


class _Trial(NamedTuple):
    """How well a process predicts rows that are left out."""

    density: float  # mean log density
    process: NeighbourProcess
    variance: np.ndarray  # of the function there, in units of the amplitude
    densities: np.ndarray
    weight: np.ndarray

    def is_better(self, other: _Trial) -> bool:
        """Whether the density is above another of the same rows by more than a standard error."""
        gain, weight = self.densities - other.densities, self.weight
        error = np.average((gain - self.density + other.density) ** 2, weights=weight)
        return bool(self.density - other.density > np.sqrt(error / np.sum(weight)))


def neighbour_process(
    functions: KernelBasis,
    L: np.ndarray,
    places: Places,
    *,
    neighbours: Any,
    intercept: bool,
    noise: Noise,
    scale: float,
    rng: np.random.Generator,
    told: np.ndarray | None = None,
    n_jobs: int | None = None,
) -> Found:
    """The process of all rows at given functions.

    Signal and noise are those of highest exact evidence on up to 1,500 rows. More rows show finer
    detail, which those few take for noise: lam is then halved or doubled while that raises the log
    density of 1,000 rows, each left out, and both have the size that their squares ask for. The
    same density says which part of a kernel that is a sum tells what is near, and whether the rows
    of its cell tell more about a row than its neighbours do.

    Parameters
    ----------
    functions, L : KernelBasis, array
        The functions and the Cholesky factor of their kernel matrix.
    places : Places
    neighbours : int or "auto"
        ``"auto"``: 16, doubled up to 128 while that pays.
    intercept : bool
    noise : Noise
        Its fixed value, where there is one, stays.
    scale : float
        y was divided by it.
    rng : Generator
        Draws the rows that tell.
    told : array or None
        Rows to be left out in turn at the end; None for all.
    n_jobs : int or None
        Threads for the cells.
    """
    kernel: Any = functions.kernel
    numbers = AUTO if neighbours == "auto" else (int(neighbours),)
    m = numbers[min(1, len(numbers) - 1)]
    ways = (False, True) if kernel.family == "sum" else (kernel.family == "laplacian",)
    nearest = {rough: NearestRows(kernel, places.X, rough) for rough in ways}

    def at_most(rows: np.ndarray, ways: Sequence[bool]) -> _Judged:
        if len(rows) > _JUDGED:
            rows = np.sort(rng.choice(rows, _JUDGED, replace=False))
        at, back = places.at(rows)
        A = places.X[at].astype(np.float64)
        return _Judged(rows, at, back, A, {way: nearest[way](A, numbers[-1]) for way in ways})

    spread_out = at_most(np.arange(len(places.y)), ways)
    turn = solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False).T
    white = whiten(functions, turn, places)
    smallest = _SMALLEST[places.X.dtype.type] * max(1.0, float(np.max(places.observed()[1])))
    lam, amplitude, limit = _scales(kernel, places, intercept, noise, smallest, rng)

    @lru_cache(maxsize=2)
    def at_lam(lam: float) -> Global:
        return fit_global(white, places, lam, intercept)

    def start(lam: float, rough: bool, m: int) -> NeighbourProcess:
        size = amplitude if noise.fixed is None else noise.fixed / lam
        # In the units of the solver: squares of those of y need not be numbers.
        return NeighbourProcess(functions, places, at_lam(lam), lam, size, 1.0, m, rough)

    def known_to(process: NeighbourProcess, some: np.ndarray) -> Known:
        phi = white.phi[some] @ process.fit.rotation.astype(white.phi.dtype)
        return Known.at(process, phi, white.outside[some], None, some)

    @lru_cache(maxsize=4)
    def by_neighbours(lam: float, rough: bool, m: int, in_few: bool = False) -> _Trial:
        process, of = start(lam, rough, m), few if in_few else spread_out
        some, N = np.unique(of.near[rough][:, :m], return_inverse=True)
        known = known_to(process, some)
        phi = process._phi(of.A, known)
        mean, spread = process._alone(of.A, phi, N.reshape(len(of.A), -1), known)
        return judged(process, of.rows, mean[of.back], spread[of.back])

    @lru_cache(maxsize=2)
    def cells_of(rough: bool, m: int) -> Cells:
        return cut_cells(nearest[rough], places.X, m)

    def by_cells(lam: float, rough: bool, m: int) -> _Trial:
        process = start(lam, rough, m)
        known_at = partial(known_to, process)
        try:
            _, mean, spread = process.in_cells(cells_of(rough, m), few.at, known_at, n_jobs)
        except LinAlgError:  # rows that are nearly equal, and hardly a noise
            return by_neighbours(lam, rough, m, few is not spread_out)
        return judged(process, few.rows, mean[few.back], spread[few.back])

    def judged(
        process: NeighbourProcess, rows: np.ndarray, mean: np.ndarray, spread: np.ndarray
    ) -> _Trial:
        size = process.amplitude
        left = process._left(rows, mean, spread * size)
        variance = spread / left.rest
        if noise.fixed is None and len(places.y) > _SCALE_ROWS:
            squares = float(np.average(left.residual**2 / left.variance, weights=left.weight))
            process = replace(process, amplitude=size * squares)
            sizes = {"spread": left.spread * squares, "fitted_noise": left.fitted_noise * squares}
            left = left._replace(**sizes)
        density = -0.5 * (np.log(2.0 * np.pi * left.variance) + left.residual**2 / left.variance)
        average = float(np.average(density, weights=left.weight))
        return _Trial(average, process, variance, density, left.weight)

    lam = max(lam, smallest)
    best = max((by_neighbours(lam, rough, m) for rough in ways), key=lambda found: found.density)
    rough, trial = best.process.rough, cast(Callable[..., _Trial], by_neighbours)
    cell = cells_of(rough, m).of(places.X)
    cell = cell if places.place is None else cell[places.place]
    n_cells, few = int(np.max(cell)) + 1, spread_out
    if n_cells > _JUDGED_CELLS:
        some_cells = rng.choice(n_cells, _JUDGED_CELLS, replace=False)
        few = at_most(np.flatnonzero(np.isin(cell, some_cells)), [rough])
    if m < len(places):  # else neighbours are the process already, and so is one cell
        found = by_cells(lam, rough, m)
        is_few = few is not spread_out
        if n_cells == 1 or found.is_better(by_neighbours(lam, rough, m, is_few)):
            best, trial = found, by_cells
    for factor in _FACTORS if len(places.y) > _SCALE_ROWS else ():
        before = best.density
        while True:
            other = trial(max(best.process.lam * factor, smallest), rough, m)
            if not other.density > best.density + _WORTH:
                break
            best = other
        if best.density > before:
            break
    tried, lam = {m: best}, best.process.lam
    if len(numbers) > 1:
        for number in numbers:
            found = tried[number] = tried.get(number) or trial(lam, rough, number)
            if number > numbers[0] and not found.density > best.density + _WORTH:
                break
            best = found
    process, told = best.process, np.arange(len(places.y)) if told is None else told
    near = by_neighbours(lam, rough, process.m) if trial is by_cells else best
    phi = white.rotate(process.fit.rotation)
    known = Known.at(process, phi, white.outside, nearest[rough])
    left = None
    if trial is by_cells:
        of, (at, back) = spread_out, places.at(told)
        every = np.union1d(of.at, at)
        try:
            cells = cells_of(rough, process.m)
            cells, mean, spread = process.in_cells(cells, every, known.some, n_jobs, every=True)
        except LinAlgError:  # in another cell than those that were judged
            process = near.process
        else:
            where = np.searchsorted(every, of.at)[of.back]
            found = judged(process, of.rows, mean[where], spread[where])
            inside, outside = process._inside(phi[of.at])[of.back], known.outside[of.at][of.back]
            alone = LeftOut(inside, inside, inside, places.weight[of.rows], outside + lam)
            power = _power(
                outside + inside / alone.rest, near.variance, found.variance, alone.weight
            )
            process = replace(found.process, cells=cells, power=power)
            where, square = np.searchsorted(every, at)[back], process.amplitude * scale * scale
            left = mean[where] * scale, spread[where] * square
    process = replace(process, scale=scale)
    process.made[None] = known
    left_out = process.left_out(n_jobs, told) if left is None else process._left(told, *left)
    density = [tried[number].density for number in sorted(tried)]
    return Found(process, sorted(tried), density, float(np.mean(white.outside)), limit, left_out)


def _power(apart: np.ndarray, near: np.ndarray, wanted: np.ndarray, weight: np.ndarray) -> float:
    """That of the share near/apart with which variances have the mean of the wanted ones."""

    def gap(log_power: float) -> float:
        found = near * np.minimum(near / apart, 1.0) ** (np.exp(log_power) - 1.0)
        return float(weight @ found / (weight @ wanted)) - 1.0

    low, high = np.log(_POWERS)
    if not gap(low) > 0.0 > gap(high):
        return 1.0
    return float(np.exp(brentq(gap, low, high)))


def _scales(
    kernel: StationaryKernel,
    places: Places,
    intercept: bool,
    noise: Noise,
    smallest: float,
    rng: np.random.Generator,
) -> tuple[float, float, str]:
    """lam and amplitude of highest exact evidence on some rows; lam is 1 where all is noise."""
    some = np.arange(len(places.y))
    if len(some) > _SCALE_ROWS:
        some = np.sort(rng.choice(len(some), _SCALE_ROWS, replace=False))
    X, weight = places.X[some if places.place is None else places.place[some]], places.weight[some]
    X = X.astype(np.float64)
    K = np.asfortranarray(kernel.bind(X)(X))
    # What varies of the kernel beside a constant: less than the least noise is no signal.
    varies = not intercept or 1.0 - float(np.mean(K)) > smallest
    part = replace(noise, n=max(float(np.sum(weight)) - intercept, 1.0))
    found = exact_process(K, places.y[some], weight, intercept, part, rng)
    assert found is not None  # a kernel of distances is positive definite
    if not varies:
        return 1.0, found.lam * found.amplitude, ""
    return found.lam, found.amplitude, found.limit
