"""Evidence ascent on a small set of columns from any start: the part of the RVM that has no n.

A set holds the Gram matrix G = H'H of its columns, b = H't and t't. With lam = alpha sigma2,
W = (G + Lam)^-1 over the active columns, mu = W b and E = |t - H mu|^2 + mu'Lam mu, the noise is
eliminated at its best value E/n, and the log evidence is, up to a constant,

    L = -n/2 log E - 1/2 log|G + Lam| + 1/2 sum log lam          (given noise: -E/(2 sigma2) first).

Three moves, each of which raises it:

    sweep    each active lam in turn to its exact one-column maximum, or out (`one_column`);
             W follows by a rank-one update and is made afresh after the sweep
    newton   damped Newton steps in log lam of all active columns together
    add      the most promising absent columns of the set, each at its exact maximum

Several outputs share the lam and have each its own noise: sums over outputs throughout.

Digits. W is never inverted from itself: s and q of absent columns come from a triangular root of W,
which is extended by bordering. (With W itself the promised gains were off by tens of nats at
n = 10,000.) The Gram form of E loses its digits where E is small against t't; there the set holds
the triangle R of [H t] as well, and residuals are formed from columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.linalg import eigh, get_blas_funcs

from ..._array import (
    Array,
    PerTarget,
    Transfer,
    is_torch,
    on_same_device,
    squared_lengths,
    to_numpy,
    transfer,
)
from ...callbacks import Reporter
from ...designs import Design
from ...linalg import add_to_diagonal, inverse_root, inverse_root_qr, solve_positive
from ...posterior import augmented_triangle
from ...rows import row_slices
from .one_column import (
    EXACT_FIT,
    SMALLEST_LAM,
    adding_gain,
    at_limit,
    moving_gain,
    shared_optimal_lam,
)

_STILL = 1e-4  # relative change of lam that a sweep leaves undone
_NEWTON_STEPS = 3
_LARGEST_STEP = 3.0  # of log lam
_DAMPINGS = 6  # tries of one Newton step, each ten times as damped
_GAINED_NOTHING = 1e-6  # nats
_ROUNDING = 1e-9  # nats: up or down by less, the order of the rows decides
_AT_ONCE = 8  # columns that may be added between two sweeps, of few functions
_MAX_ROUNDS = 100
# Functions above which a round costs more than a few additions are worth: more come at once. Which
# maximum is found then changes. With 500 here a target of steps in two inputs (n = 10,000), whose
# 700 functions use up the budget of the rounds, gains 255 nats; two others, which end at 550 and
# 630, lose 30 each.
MANY = 650
_BLOCK = 32  # moves of a sweep that are applied to W together
_ROWS = 512  # of a device that are summed together
_FEW = 100  # functions for which plain products are faster


# s, q, E without the column, and the smallest lam; of several outputs q and E are arrays.
Optimum: TypeAlias = Callable[..., float]
# The arguments of `moving_gain`.
Present: TypeAlias = tuple[
    np.ndarray, np.ndarray, np.ndarray, np.ndarray, PerTarget, float, PerTarget | None
]
Triangle: TypeAlias = tuple[np.ndarray, np.ndarray, PerTarget]  # R, z, squared residual


class Model(NamedTuple):
    """Active columns (positions in the set) with their lam, and what follows from them."""

    A: np.ndarray
    lam: np.ndarray
    root: Array  # root root' = W, where the Gram matrix is
    mu: np.ndarray
    E: PerTarget
    L: float


@dataclass(frozen=True)
class ColumnSet:
    """Some candidates of a design, reduced to what the evidence needs of them."""

    idx: np.ndarray  # which candidates
    G: Array  # where the rows are
    b: np.ndarray
    tt: PerTarget  # squared length of the target, per output
    n: float
    sigma2: PerTarget | None  # None: eliminated
    slack: PerTarget  # added to E: n times the smallest noise variance
    triangle: Triangle | None = None
    floor: np.ndarray | float = 0.0  # smallest lam of each column, if not its SMALLEST_LAM
    span: float = 1e-13  # S/|h|^2 below which a column lies in the span of the active ones

    @cached_property
    def norms(self) -> np.ndarray:
        """Squared lengths of the columns."""
        return to_numpy(self.G.diagonal())

    @cached_property
    def transfer(self) -> Transfer:
        """Transfer of vectors to the device of the Gram matrix and back."""
        return transfer(self.G)

    @property
    def lowest(self) -> np.ndarray:
        """Smallest lam that each column may have."""
        return np.maximum(self.floor, SMALLEST_LAM * self.norms)

    @property
    def n_outputs(self) -> int:
        """Number of targets that share the lam."""
        return 1 if self.b.ndim == 1 else self.b.shape[1]

    def adding_gain(
        self, S: np.ndarray, Q: np.ndarray, norms: PerTarget, E: PerTarget
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the best lam of each absent column (inf: absent), and the gain of adding it."""
        return adding_gain(S, Q, norms, E, self.n, self.sigma2, self.span)

    def only(self, kept: np.ndarray) -> ColumnSet:
        """Return the columns at these positions."""
        triangle = self.triangle
        if triangle is not None:
            triangle = (triangle[0][:, kept], *triangle[1:])
        idx, G = self.idx[kept], self.G[np.ix_(kept, kept)]
        return replace(self, idx=idx, G=G, b=self.b[kept], triangle=triangle)

    def extended(self, design: Design, t: np.ndarray, new: np.ndarray) -> ColumnSet:
        """Return these columns followed by the candidates `new`."""
        if len(new) == 0:
            return self
        k = len(self.idx)
        idx = np.concatenate([self.idx, new])
        side = design.place(np.zeros((len(idx), len(new))))
        along = design.place(np.zeros((len(new), *self.b.shape[1:])))
        for rows, block in design.blocks(idx):
            side += _products(block, block[:, k:])
            along += block[:, k:].T @ on_same_device(block, t[rows])
            del block  # before the next is there
        G = design.place(np.empty((len(idx), len(idx))))
        G[:k, :k], G[:, k:] = on_same_device(G, self.G), side
        G[k:, :k] = side[:k].T
        b = np.concatenate([self.b, to_numpy(along)])
        columns = replace(self, idx=idx, G=G, b=b, triangle=None)
        return columns if self.triangle is None else columns.with_triangle(design, t)

    def with_triangle(self, design: Design, t: np.ndarray) -> ColumnSet:
        """Return these columns with the triangle of [H t]."""
        R, z, residual = augmented_triangle(design, t, self.idx, np.zeros(len(self.idx)))
        return replace(self, G=R.T @ R, b=R.T @ z, triangle=(R, z, residual))


def column_set(
    design: Design, t: np.ndarray, idx: np.ndarray, sigma2: PerTarget | None, floor: PerTarget
) -> ColumnSet:
    """Return the set of the candidates `idx`, by one pass over them."""
    G = design.place(np.zeros((len(idx), len(idx))))
    b = design.place(np.zeros((len(idx), *t.shape[1:])))
    for rows, block in design.blocks(idx):
        G += _products(block, block)
        b += block.T @ on_same_device(block, t[rows])
        del block  # before the next is there
    b = to_numpy(b)
    n = design.n_observations
    tt = np.einsum("i...,i...->...", t, t)
    tt = float(tt) if t.ndim == 1 else tt
    return ColumnSet(idx, G, b, tt, n, sigma2, n * floor if sigma2 is None else 0.0 * tt)


def _products(block: Array, others: Array) -> Array:
    """Return block'others; on a device, whose blocks are long, summed over parts of the rows.

    The rounding of one long sum is ten times that of blocks, and where lam is 1e-10 of the squared
    lengths it moves a sweep by a hundredth: enough for a long search to end elsewhere.
    """
    if not is_torch(block):
        return block.T @ others
    parts = (block[part].T @ others[part] for part in row_slices(len(block), _ROWS))
    return sum(parts)


def model_at(columns: ColumnSet, A: np.ndarray, lam: np.ndarray) -> Model:
    """Return the model of these columns, from the Gram matrix or from the triangle if there is."""
    return _evaluate(columns, A, lam, *_gathered(columns, A))


def _gathered(columns: ColumnSet, A: np.ndarray) -> tuple[Array, np.ndarray, np.ndarray | None]:
    """Return the entries of the set that a model of these columns needs."""
    G = columns.G[A][:, A] if is_torch(columns.G) else columns.G.take(A, 0).take(A, 1)
    return G, columns.b[A], None if columns.triangle is None else columns.triangle[0][:, A]


def _evaluate(
    columns: ColumnSet,
    A: np.ndarray,
    lam: np.ndarray,
    G: Array,
    b: np.ndarray,
    R: np.ndarray | None,
) -> Model:
    put, get = columns.transfer
    try:
        root, log_det = inverse_root(G, lam)
        mu = get(root @ (root.T @ put(b)))
    except np.linalg.LinAlgError:
        if R is None or columns.triangle is None:
            raise
        Q, root, log_det = inverse_root_qr(R, lam)
        mu = root @ (Q[: len(R)].T @ columns.triangle[1])
    penalty = lam @ (mu * mu)
    if R is None or columns.triangle is None:
        # Second order in the error of mu, unlike t't - b'mu.
        E = columns.tt + (mu * (get(G @ put(mu)) - 2.0 * b)).sum(0) + penalty
    else:
        _, z, residual = columns.triangle
        r = z - R @ mu
        E = (r * r).sum(0) + residual + penalty
    E = E + columns.slack
    if b.ndim == 1:
        E = float(E)
    log_det -= float(np.log(lam).sum())
    return Model(A, lam, root, mu, E, _objective(columns, E, log_det))


def _objective(columns: ColumnSet, E: PerTarget, log_det: float) -> float:
    if columns.sigma2 is not None:
        fit = E / columns.sigma2
    elif np.any(np.less_equal(E, 0.0)):
        return -np.inf
    else:
        fit = columns.n * np.log(E)
    return -0.5 * (float(np.sum(fit)) + columns.n_outputs * log_det)


def fits_exactly(columns: ColumnSet, model: Model) -> bool:
    """Return whether a target is fitted so well that the Gram form of E is too coarse."""
    return bool(np.any(model.E < EXACT_FIT * columns.tt))


@dataclass
class Budget:
    """The work that a search may still do in rounds of polishing, each k^3 for k functions.

    Where the target has hardly any noise nearly every function gains, and only the number of rows
    limits how many there are: the rounds would hardly end. They also end with the time of
    `reporter`.
    """

    remaining: float
    reporter: Reporter = field(default_factory=Reporter)

    def exhausted(self, k: int) -> bool:
        """Charge one round of k functions; return whether nothing remains."""
        self.reporter.say(f"polishing {k} functions")
        self.remaining -= float(k) ** 3
        return self.remaining <= 0.0 or self.reporter.budget.over


def polish(
    columns: ColumnSet, model: Model, tol: float, least_gain: float | None, budget: Budget
) -> Model:
    """Repeat rounds of moves until one gains less than `tol` and no addition gains `least_gain`.

    With `least_gain` None there are no additions. An exhausted budget ends the rounds.
    """
    for _ in range(_MAX_ROUNDS):
        if budget.exhausted(len(model.A)):
            break
        before = model.L
        swept = sweep(columns, model)
        fewer = len(swept.A) < len(model.A)  # columns of no influence go for nothing
        if swept.L > before or (fewer and swept.L > before - _GAINED_NOTHING):
            model = swept
        if abs(swept.L - before) > tol:  # also where the updates of W have lost their digits
            model = newton(columns, model)
        gained = model.L - before
        if gained > 10.0 * tol:
            continue
        added = model if least_gain is None else add(columns, model, least_gain)
        if added is model and gained <= tol:
            break
        model = added
    return model


def sweep(
    columns: ColumnSet, model: Model, order: np.ndarray | None = None, still: float = _STILL
) -> Model:
    """Move columns in turn to their exact maxima; some leave the model and some enter it.

    `order` are positions in the set; None: the active columns. A relative change under `still` is
    left undone. Each move is W <- W - c uu', with u = W_j of a column that is present, and
    u = W g - e_j, g = H'h_j, of one that is not.
    """
    members = model.A
    if order is None:
        # The weakest first: an order that does not depend on how the candidates are numbered.
        order = members[np.argsort(columns.norms[members] / model.lam, kind="stable")]
    else:
        absent = np.ones(len(columns.idx), dtype=bool)
        absent[members] = False
        members = np.concatenate([members, np.sort(order[absent[order]])])
    W = _UpdatedInverse(columns, model, members)
    # A list is read one by one in half the time of an array.
    lam = [*model.lam.tolist(), *[np.inf] * (len(members) - len(model.A))]
    E, lowest = model.E, columns.lowest[members].tolist()
    single, last = model.mu.ndim == 1, len(members)
    optimum = _optimum_single(columns) if single else _optimum_shared(columns)
    position = {j: i for i, j in enumerate(members.tolist())}
    for j in (position[i] for i in order.tolist()):
        old = lam[j]
        if old < np.inf:
            w, v, u = W.entries(j)
            s, q = 1.0 / w - old, v / w
            E_without = E + v * q
        else:
            g, norm = W.products(j), float(columns.norms[members[j]])
            u = W.times(g)
            s = norm - float(g @ u[:last])
            u[j] -= 1.0
            u[last:] -= columns.b[members[j]]
            q = -float(u[last]) if single else -u[last:]
            E_without = E
            if s <= columns.span * norm:
                continue
        new = optimum(s, q, E_without, lowest[j])
        if new == old or abs(new - old) < still * old < np.inf:
            continue
        if old == np.inf:
            share = -1.0 / (s + new)
        else:
            share = 1.0 / w if new == np.inf else (new - old) / (1.0 + (new - old) * w)
        W.update(j, u, share, removed=new == np.inf)
        E = E_without if new == np.inf else E_without - q * q / (s + new)
        lam[j] = new
    precisions = np.array(lam)
    keep = np.isfinite(precisions)
    return model_at(columns, members[keep], precisions[keep])


class _UpdatedInverse:
    """W of some members of a set, with their weights as rows below it, under rank-one updates.

    The weights follow by the same update as W: their entries of u are mu_j of a column that is
    present, and -q of one that is not. Of many columns, W is M - U diag(c) U': the updates wait and
    are applied together. Rows and columns of removed members are zero.
    """

    def __init__(self, columns: ColumnSet, model: Model, members: np.ndarray) -> None:
        self._columns, self._members, k = columns, members, len(model.A)
        self._last, self._single = len(members), model.mu.ndim == 1
        self._get = columns.transfer.get
        M = np.zeros((len(members) + columns.n_outputs, len(members)), order="F")
        M[:k, :k] = self._get(model.root @ model.root.T)
        M[len(members) :, :k] = model.mu.T
        self._M = M
        self._block = 0 if len(members) < _FEW else _BLOCK
        self._U, self._c = np.empty((len(M), self._block), order="F"), np.empty(self._block)
        self._n_waiting = 0
        self._removed: list[int] = []  # while updates wait
        self._gemm, self._ger = get_blas_funcs(("gemm", "ger"), (M,))

    def entries(self, j: int) -> tuple[float, PerTarget, np.ndarray | None]:
        """Return W_jj, the weight of member j and, where updates wait, the column itself."""
        r, last, single = self._apply_full_block(), self._last, self._single
        if not r:
            M = self._M
            return M.item(j, j), M.item(last, j) if single else M[last:, j].copy(), None
        u = self._M[:, j] - self._U[:, :r] @ (self._c[:r] * self._U[j, :r])
        u[self._removed] = 0.0
        return float(u[j]), float(u[last]) if single else u[last:], u

    def products(self, j: int) -> np.ndarray:
        """Return g = H'h_j of the members."""
        return self._get(self._columns.G[self._members, self._members[j]])

    def times(self, g: np.ndarray) -> np.ndarray:
        """Return W g."""
        r = self._apply_full_block()
        u = self._M @ g
        if r:
            u -= self._U[:, :r] @ (self._c[:r] * (g @ self._U[: self._last, :r]))
            u[self._removed] = 0.0
        return u

    def update(self, j: int, u: np.ndarray | None, share: float, removed: bool) -> None:
        """Subtract share uu', by default with the column of member j; zero it where `removed`."""
        if u is None:
            u = self._M[:, j].copy()
        if self._block:
            r = self._n_waiting
            self._U[:, r], self._c[r], self._n_waiting = u, share, r + 1
            if removed:
                self._removed.append(j)
            return
        self._M = self._ger(-share, u, u[: self._last], a=self._M, overwrite_a=True)
        if removed:
            self._M[j], self._M[:, j] = 0.0, 0.0

    def _apply_full_block(self) -> int:
        """Apply the updates if a block of them waits; return how many wait then."""
        if self._n_waiting == _BLOCK:
            V, U = self._U * self._c, self._U[: self._last]
            M = self._gemm(-1.0, V, U, beta=1.0, c=self._M, trans_b=True, overwrite_c=True)
            M[self._removed], M[:, self._removed] = 0.0, 0.0
            self._M, self._n_waiting, self._removed = M, 0, []
        return self._n_waiting


def _optimum_single(columns: ColumnSet) -> Optimum:
    """`one_column.optimal_lam` of one column, in Python floats: a sweep asks for each column."""
    n, sigma2 = columns.n, None if columns.sigma2 is None else float(columns.sigma2)

    def optimum(s: float, q: float, E: float, lowest: float) -> float:
        r = q * q / s if s > 0.0 else 0.0
        if sigma2 is None:
            x = (n * r - E) / ((n - 1.0) * r) if n > 1.0 and n * r > E else 0.0
        else:
            x = 1.0 - sigma2 / r if r > sigma2 else 0.0
        return max(s * (1.0 - x) / x, lowest) if x > 0.0 else np.inf

    return optimum


def _optimum_shared(columns: ColumnSet) -> Optimum:
    def optimum(s: float, q: np.ndarray, E: np.ndarray, lowest: float) -> float:
        norm = lowest / SMALLEST_LAM
        lam, _ = shared_optimal_lam(np.array([s]), q[None], norm, E, columns.n, columns.sigma2)
        return float(lam[0])

    return optimum


def newton(columns: ColumnSet, model: Model) -> Model:
    """Take a few damped Newton steps in log lam, none of which lowers the evidence."""
    k = len(model.lam)
    if k == 0:
        return model
    damping = 1e-3
    lowest, gathered = columns.lowest[model.A], _gathered(columns, model.A)
    for _ in range(_NEWTON_STEPS):
        gradient, H = derivatives(columns, model)
        curvature = np.abs(columns.transfer.get(H.diagonal())) + 1.0
        trial = model
        for _ in range(_DAMPINGS):
            step = solve_positive(H, damping * curvature, gradient)
            if step is not None:
                factor = np.exp(np.minimum(np.maximum(step, -_LARGEST_STEP), _LARGEST_STEP))
                lam = np.maximum(model.lam * factor, lowest)
                trial = _evaluate(columns, model.A, lam, *gathered)
                if trial.L > model.L - _ROUNDING:
                    break
            damping *= 10.0
        else:
            return model
        gained = trial.L - model.L
        model, damping = trial, 0.1 * damping
        if gained < _GAINED_NOTHING:
            break
    return model


def leave_saddle(columns: ColumnSet, model: Model) -> Model:
    """Take a step in the direction in which the evidence curves upwards most, if it rises there.

    Newton steps are at rest at a saddle. There is one where columns could share what they explain
    in several ways: with an intercept, the functions of one class or of the other are enough.
    """
    if len(model.lam) < 2:
        return model
    H = columns.transfer.get(derivatives(columns, model)[1])
    values, vectors = eigh(H, subset_by_index=[0, 0])
    if values[0] >= 0.0:
        return model
    factor = np.exp(vectors[:, 0] / np.max(np.abs(vectors[:, 0])))
    lowest = columns.lowest[model.A]
    for lam in (model.lam * factor, model.lam / factor):
        trial = model_at(columns, model.A, np.maximum(lam, lowest))
        model = trial if trial.L > model.L else model
    return model


def newton_past_saddle(columns: ColumnSet, model: Model) -> Model:
    """Take Newton steps, and go on from a saddle where they end at one."""
    moved = newton(columns, model)
    left = leave_saddle(columns, moved)
    return newton(columns, left) if left.L > moved.L else moved


def newton_on(
    triangle: Triangle, lam: np.ndarray, n: float, sigma2: float | None, floor: float
) -> tuple[np.ndarray, float]:
    """Take Newton steps for the columns of a triangle of [H t] (R, z, squared residual).

    They go on from a saddle as well. Returns lam and the nats gained, with a learnt noise at its
    best value.
    """
    R, z, residual = triangle
    slack = 0.0 if sigma2 is not None else n * floor
    tt = float(z @ z) + residual
    k = np.arange(len(lam))
    columns = ColumnSet(k, R.T @ R, R.T @ z, tt, n, sigma2, slack, triangle)
    model = model_at(columns, k, lam)
    moved = newton_past_saddle(columns, model)
    return moved.lam, moved.L - model.L


def derivatives(columns: ColumnSet, model: Model) -> tuple[np.ndarray, Array]:
    """Return the gradient of L in log lam, and minus its Hessian.

    With weight omega = n/E (or 1/sigma2) per output, and * elementwise,

        gradient        1/2 (1 - lam W_jj - omega lam mu^2)
        minus Hessian   omega/2 diag(lam mu^2) + 1/2 diag(lam W_jj)
                        - lam lam' * W * (omega mu mu' + W/2) - omega^2/(2n) (lam mu^2)(lam mu^2)',

    without the omega^2 term where the noise is given.
    """
    k, q, (put, get) = len(model.lam), columns.n_outputs, columns.transfer
    lam, mu = model.lam, model.mu.reshape(k, q)
    W = model.root @ model.root.T
    omega = np.ravel(columns.n / model.E if columns.sigma2 is None else 1.0 / columns.sigma2)
    share = lam[:, None] * mu * mu
    determined = lam * get(W.diagonal())
    pull = share @ omega
    # In place: arrays of a hundred columns squared are fresh pages each time.
    H = put(-omega * mu) @ put(mu).T
    H -= (0.5 * q) * W
    H *= W
    H *= put(lam)
    H *= put(lam)[:, None]
    if columns.sigma2 is None:
        H -= put(share * (0.5 * omega**2 / columns.n)) @ put(share).T
    add_to_diagonal(H, 0.5 * (pull + q * determined))
    return 0.5 * (q - q * determined - pull), H


def add(columns: ColumnSet, model: Model, least_gain: float) -> Model:
    """Add absent columns of highest gain, one after the other while each still gains `least_gain`.

    The model is returned unchanged where there is none, or where the evidence does not rise.
    """
    gains = absent_gains(columns, model)
    order = np.argsort(-gains, kind="stable")[: max(_AT_ONCE, (len(model.A) - MANY) // 8)]
    order = order[gains[order] >= least_gain]
    A, lam, _, mu, E, _ = model
    k = len(A)
    roots = np.zeros((k + len(order), k + len(order)))
    roots[:k, :k] = columns.transfer.get(model.root)
    beyond = columns.transfer.get(columns.G[:, order])
    for i, j in enumerate(order):
        k = len(A)
        root = roots[:k, :k]
        g = beyond[A, i]
        v = root.T @ g
        norm = columns.norms[j]
        s = norm - float(v @ v)
        q = columns.b[j] - g @ mu
        new, value = columns.adding_gain(np.array([s]), np.array([q]), norm, E)
        if not value[0] >= least_gain:
            continue
        # Bordering: the root of the larger W has the old one as its corner.
        w = 1.0 / (s + float(new[0]))
        u = root @ v
        roots[:k, k] = -np.sqrt(w) * u
        roots[k, k] = np.sqrt(w)
        A, lam = np.append(A, j), np.append(lam, new[0])
        mu = np.concatenate([mu - np.multiply.outer(u, w * q), [w * q]])
        E = E - w * q * q
    if len(A) == len(model.A):
        return model
    extended = model_at(columns, A, lam)
    return extended if extended.L > model.L else model


def absent_gains(columns: ColumnSet, model: Model) -> np.ndarray:
    """Return the gain of adding each column of the set by itself; 0 for the active ones."""
    active, (put, get) = model.A, columns.transfer
    rows, norms = columns.G[active], columns.norms
    S = norms - squared_lengths(put(model.root).T @ rows)
    Q = columns.b - get(rows.T @ put(model.mu))
    _, gains = columns.adding_gain(S, Q, norms, model.E)
    gains[active] = 0.0
    return gains


def present_gains(columns: ColumnSet, model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Return the gain of moving each active lam to its best value, and which would leave."""
    optimum, gains = moving_gain(*_present(columns, model))
    return np.nan_to_num(gains, nan=0.0), np.isinf(optimum)


def limited(columns: ColumnSet, model: Model, tol: float) -> bool:
    """Return whether an active column at the smallest lam would gain `tol` nats below it."""
    return at_limit(*_present(columns, model), tol)


def _present(columns: ColumnSet, model: Model) -> Present:
    W = squared_lengths(model.root.T)
    norms = columns.lowest[model.A] / SMALLEST_LAM
    return W, model.mu, model.lam, norms, model.E, columns.n, columns.sigma2
