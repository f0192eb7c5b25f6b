"""Free runs of many segments at once, their exact sensitivities, and Gauss-Newton on them.

Model: y(k) = sum_i w_i phi_i(x(k)), x(k) = lagged outputs of the model itself and lagged inputs. A
segment starts from `max_lag` outputs, which are parameters as well: a measured start is noisy.

- The run itself is one loop over time, all segments side by side.
- Sensitivities: dy(k)/dp = phi(k) [p = w] + sum_l df/dy(k-l) dy(k-l)/dp. Given the run, that is
  one banded triangular system for all segments and parameters; LAPACK solves it.
- Gauss-Newton (Levenberg-Marquardt) on the simulated error eliminates the starts of the segments,
  of which each touches its own segment only, by Schur complement.
- A run that leaves the `limits` stops there: it is held at the limit, has no sensitivity from there
  on, and `stopped` says where. Such a run is never a success: its cost is that of the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import matmul_toeplitz
from scipy.linalg.lapack import dtbtrs

from .functions import Functions

_ENOUGH = 1e-5  # relative fall of the cost below which Gauss-Newton ends
_NO_START = 1e-9  # added to the squared sensitivity of outputs to a start, which has no units
_FEW_RUNS = 6  # side by side up to which plain floats are faster than arrays
_TRIES = 8  # growths of the damping in one iteration
_LARGEST = 1e100  # sensitivities whose squares, summed and multiplied again, fit float64


@dataclass(frozen=True)
class Lags:
    """Which lagged values a model sees: outputs first, then those of each input.

    Examples
    --------
    >>> from sparsebayes.narx.simulation import Lags
    >>> Lags((1, 2), ((0,),)).variables
    ['y(k-1)', 'y(k-2)', 'u(k)']
    """

    outputs: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...]

    @property
    def max_lag(self) -> int:
        """Number of past values that the first prediction needs."""
        return max([0, *self.outputs, *(lag for lags in self.inputs for lag in lags)])

    @property
    def variables(self) -> list[str]:
        """Names of the lagged values."""
        names = [_name("y", lag) for lag in self.outputs]
        for i, lags in enumerate(self.inputs):
            label = "u" if len(self.inputs) == 1 else f"u{i + 1}"
            names += [_name(label, lag) for lag in lags]
        return names

    @property
    def signals(self) -> tuple[list[list[int]], int]:
        """Positions of the lagged values of each signal, output first, and number of outputs."""
        lengths = [len(self.outputs), *map(len, self.inputs)]
        ends = np.cumsum(lengths)
        places = [[*range(end - n, end)] for n, end in zip(lengths, ends.tolist(), strict=True)]
        return places, len(self.outputs)

    def of_inputs(self, u: np.ndarray) -> np.ndarray:
        """Lagged inputs from time max_lag on: (n_lagged_inputs, n - max_lag) of u (n, n_inputs)."""
        start, n = self.max_lag, len(u)
        rows = [u[start - lag : n - lag, i] for i, lags in enumerate(self.inputs) for lag in lags]
        return np.array(rows).reshape(len(rows), n - start)

    def of_outputs(self, y: np.ndarray) -> np.ndarray:
        """Lagged outputs from time max_lag on."""
        start, n = self.max_lag, len(y)
        rows = [y[start - lag : n - lag] for lag in self.outputs]
        return np.array(rows).reshape(len(rows), n - start)


class Segments(NamedTuple):
    """Stretches of equal length: measured outputs (T, S) and lagged inputs (T - L, n, S)."""

    y: np.ndarray
    inputs: np.ndarray

    def take(self, idx: np.ndarray) -> Segments:
        """Return the segments at these positions."""
        return Segments(self.y[:, idx], self.inputs[:, :, idx])

    def thinned(self, most: int) -> Segments:
        """Return a number of segments, evenly spread."""
        n = self.y.shape[1]
        return self if n <= most else self.take(np.linspace(0, n - 1, most).round().astype(int))


class Run(NamedTuple):
    """A free run of all segments, and the step at which each stopped (T where it did not)."""

    y: np.ndarray  # (T, S)
    stopped: np.ndarray  # (S,)

    @property
    def diverged(self) -> bool:
        """True if any segment left the limits."""
        return bool(np.any(self.stopped < len(self.y)))


def cut(records: Sequence[tuple[np.ndarray, np.ndarray]], lags: Lags, length: int) -> Segments:
    """Segments of `length` from records (u, y), side by side; a shorter rest is left out.

    Outputs may be missing (NaN); a segment with a missing input or no output at all is left out.
    """
    outputs, inputs = [], []
    for u, y in records:
        for start in range(0, len(y) - length + 1, length):
            part = slice(start, start + length)
            if np.all(np.isfinite(u[part])) and np.any(np.isfinite(y[part])):
                outputs.append(y[part])
                inputs.append(lags.of_inputs(u[part]).T)
    n = sum(len(part) for part in lags.inputs)
    if not outputs:
        return Segments(np.empty((length, 0)), np.empty((length - lags.max_lag, n, 0)))
    return Segments(np.stack(outputs, axis=1), np.stack(inputs, axis=2))


def start_of(y: np.ndarray, max_lag: int) -> np.ndarray:
    """The measured start of each segment, with missing values filled from their neighbours."""
    y = y.copy()
    for column in y.T:
        observed = np.flatnonzero(np.isfinite(column))
        if len(observed) < len(column):
            values = column[observed] if len(observed) else [0.0]
            column[:] = np.interp(
                np.arange(len(column)), observed if len(observed) else [0], values
            )
    return y[:max_lag].copy()


def free_run(
    functions: Functions,
    weights: np.ndarray,
    lags: Lags,
    inputs: np.ndarray,
    start: np.ndarray,
    limits: tuple[float, float],
) -> Run:
    """Every segment on its own past outputs, from `start` (max_lag, S), until it leaves `limits`.

    `inputs` are the lagged ones, (T - max_lag, n_lagged_inputs, S); weights of shape (P, S) are
    those of each segment.
    """
    L, S = start.shape
    T = len(inputs) + L
    y, n = np.empty((T, S)), len(lags.outputs)
    y[:L] = start
    stopped = np.full(S, T)
    low, high = limits
    own = weights.ndim == 2
    if S <= _FEW_RUNS:
        scalars = [functions.scalar(weights[:, s] if own else weights) for s in range(S)]
        steps = [step for step in scalars if step is not None]
        if len(steps) == S:
            for s, step in enumerate(steps):
                stopped[s] = run_one(step, lags, inputs[:, :, s], y[:, s], limits)
            return Run(y, stopped)
    x = np.empty((n + inputs.shape[1], S))
    back = list(enumerate(lags.outputs))
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(L, T):
            for i, lag in back:
                x[i] = y[k - lag]
            x[n:] = inputs[k - L]
            phi = functions(x)
            value = np.einsum("ps,ps->s", weights, phi) if own else weights @ phi
            inside = (value > low) & (value < high)
            if not inside.all():
                out = ~inside
                stopped[out] = np.minimum(stopped[out], k)
                value = np.clip(np.nan_to_num(value, nan=high), low, high)
            y[k] = value
    return Run(y, stopped)


def run_one(
    step: Callable[[list[float]], float],
    lags: Lags,
    inputs: np.ndarray,
    y: np.ndarray,
    limits: tuple[float, float],
) -> int:
    """One segment in plain floats, written into y after its start; where it stopped."""
    L, T = lags.max_lag, len(y)
    low, high = limits
    values, back, stopped = y[:L].tolist(), [L - lag for lag in lags.outputs], T
    for k, row in enumerate(inputs.tolist()):
        value = step([values[k + lag] for lag in back] + row)
        if not low < value < high:
            stopped = min(stopped, k + L)
            value = low if value <= low else high
        values.append(value)
    y[L:] = values[L:]
    return stopped


def sensitivities(
    functions: Functions,
    weights: np.ndarray,
    lags: Lags,
    inputs: np.ndarray,
    run: Run,
    extra: Functions | None = None,
) -> np.ndarray:
    """Derivatives of a run by the weights and by its start, shape (T, S, P + max_lag).

    With `extra` by the weights (at zero) of these functions instead.
    """
    T, S = run.y.shape
    L, n = lags.max_lag, len(lags.outputs)
    x = np.empty((n + inputs.shape[1], S, T - L))
    for i, lag in enumerate(lags.outputs):
        x[i] = run.y[L - lag : T - lag].T
    x[n:] = inputs.transpose(1, 2, 0)
    x = x.reshape(len(x), -1)
    alive = np.arange(L, T) < run.stopped[:, None]  # (S, T - L)
    phi = (functions if extra is None else extra)(x)
    P = len(phi)
    right = np.zeros((S, T, P + L))
    right[:, L:, :P] = np.where(alive, phi.reshape(P, S, T - L), 0.0).transpose(1, 2, 0)
    for j in range(L):
        right[:, j, P + j] = 1.0
    slopes = functions.slopes(x, weights, n).reshape(n, S, T - L)
    # Row d of the band holds the entries (k + d, k): the slope of the output at k + d by that at k.
    band = np.zeros((L + 1, S, T))
    band[0] = 1.0
    for i, lag in enumerate(lags.outputs):
        band[lag, :, L - lag : T - lag] = -np.where(alive, slopes[i], 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        solved, info = dtbtrs(band.reshape(L + 1, -1), right.reshape(S * T, -1), uplo="L", diag="U")
    if info:
        raise np.linalg.LinAlgError("The linear system of the sensitivities is singular.")
    return solved.reshape(S, T, P + L).transpose(1, 0, 2)


@dataclass(frozen=True)
class SimulationFit:
    """Weights that fit the simulated output, and what Gauss-Newton knows about them."""

    weights: np.ndarray
    start: np.ndarray  # (max_lag, S)
    cost: float  # sum of squared simulated errors
    n: int  # how many outputs that is of
    n_iter: int
    converged: bool
    diverged: bool  # whether any segment still leaves the limits

    @property
    def rms(self) -> float:
        """Root mean square of the simulated error."""
        return float(np.sqrt(self.cost / max(self.n, 1)))


class Normal(NamedTuple):
    """Normal equations: weights, starts of the segments, and between them."""

    A: np.ndarray  # (P, P)
    B: np.ndarray  # (S, P, L)
    C: np.ndarray  # (S, L, L)
    g: np.ndarray
    h: np.ndarray  # (S, L)

    def step(self, damping: float, starts_only: bool) -> tuple[np.ndarray, np.ndarray]:
        """Step of the weights and of the starts."""
        L = self.C.shape[1]
        mean = np.trace(self.C, axis1=1, axis2=2)[:, None, None] / max(L, 1)
        C = self.C + (damping * mean + _NO_START) * np.eye(L)
        both = np.concatenate([self.B.transpose(0, 2, 1), self.h[:, :, None]], axis=2)
        solved = np.linalg.solve(C, both)
        CB, Ch = solved[:, :, :-1], solved[:, :, -1]
        if starts_only:
            return np.zeros(len(self.g)), Ch.T
        size = np.diag(self.A)
        reduced = self.A - np.einsum("spl,slq->pq", self.B, CB) + np.diag(damping * size)
        right = self.g - np.einsum("spl,sl->p", self.B, Ch)
        scale = 1.0 / np.sqrt(np.maximum(size, 1e-300))
        scaled = reduced * scale * scale[:, None]
        step = scale * np.linalg.lstsq(scaled, right * scale, rcond=1e-14)[0]
        return step, (Ch - CB @ step).T

    def rise(self, weights: np.ndarray) -> np.ndarray:
        """How much the cost rises without each weight, to second order."""
        L = self.C.shape[1]
        mean = np.trace(self.C, axis1=1, axis2=2)[:, None, None] / max(L, 1)
        C = self.C + _NO_START * (1.0 + mean) * np.eye(L)
        CB = np.linalg.solve(C, self.B.transpose(0, 2, 1))
        reduced = self.A - np.einsum("spl,slq->pq", self.B, CB)
        scale = 1.0 / np.sqrt(np.maximum(np.diag(self.A), 1e-300))
        scaled = reduced * scale * scale[:, None] + _NO_START * np.eye(len(scale))
        return np.square(weights / scale) / np.maximum(np.diag(np.linalg.inv(scaled)), 1e-10)


def fit_simulation(
    functions: Functions,
    weights: np.ndarray,
    lags: Lags,
    segments: Segments,
    limits: tuple[float, float],
    start: np.ndarray | None = None,
    max_iter: int = 20,
    tol: float = _ENOUGH,
    starts_only: bool = False,
) -> SimulationFit:
    """Levenberg-Marquardt on the simulated error of all segments, from these weights.

    It begins with the measured start of each segment, or with `start`, and ends when an iteration
    lowers the cost by less than the share `tol`. `starts_only` leaves the weights as they are: how
    well a model simulates segments it was not fitted to.
    """
    observed = np.isfinite(segments.y)
    measured = np.where(observed, segments.y, 0.0)
    start = start_of(segments.y, lags.max_lag) if start is None else start

    def look(weights: np.ndarray, start: np.ndarray) -> tuple[Run, np.ndarray, float]:
        run = free_run(functions, weights, lags, segments.inputs, start, limits)
        error = np.where(observed, measured - run.y, 0.0)
        return run, error, float(np.sum(np.square(error)))

    run, error, cost = look(weights, start)
    damping, converged, iteration = 1e-4, False, 0
    while iteration < max_iter and not converged:
        iteration += 1
        normal = normal_equations(
            sensitivities(functions, weights, lags, segments.inputs, run),
            error,
            observed,
            len(weights),
        )
        if normal is None:
            break
        for _ in range(_TRIES):
            step, shift = normal.step(damping, starts_only)
            candidate = look(weights + step, start + shift)
            if np.isfinite(candidate[2]) and candidate[2] <= cost:
                break
            damping *= 10.0
        else:
            # No step of any length helps: a minimum to rounding, or to the kinks of the limits.
            converged = not run.diverged
            break
        converged = candidate[2] >= (1.0 - tol) * cost
        weights, start, damping = weights + step, start + shift, damping / 10.0
        run, error, cost = candidate
    n = int(np.count_nonzero(observed))
    return SimulationFit(weights, start, cost, n, iteration, converged, run.diverged)


def normal_equations(
    J: np.ndarray, error: np.ndarray, observed: np.ndarray, n_weights: int
) -> Normal | None:
    """Sums over time and segments; None where the squares of sensitivities overflow."""
    J = np.where(observed[:, :, None], J, 0.0).transpose(1, 0, 2)  # (S, T, P + L)
    if not np.all(np.abs(J) < _LARGEST):
        return None
    by_weight, by_start = J[:, :, :n_weights], J[:, :, n_weights:]
    flat = by_weight.reshape(-1, n_weights)
    right = error.T
    return Normal(
        flat.T @ flat,
        by_weight.transpose(0, 2, 1) @ by_start,
        by_start.transpose(0, 2, 1) @ by_start,
        flat.T @ right.ravel(),
        np.einsum("stl,st->sl", by_start, right),
    )


def weight_covariance(
    J: np.ndarray, error: np.ndarray, observed: np.ndarray, n_weights: int
) -> np.ndarray:
    """Covariance of the weights at the minimum, for errors that are correlated over time.

    H^-1 (Z' R Z) H^-1 with Z the sensitivities by the weights less what the starts of the segments
    can do in their stead, H = Z'Z, and R the autocovariance of the simulated error, tapered so that
    it is one (Newey and West 1987), over as many lags as the correlation of neighbours requires
    (Andrews 1991). White errors give sigma2 H^-1.
    """
    J = np.where(observed[:, :, None], J, 0.0).transpose(1, 0, 2)
    S, T = J.shape[:2]
    Z = J[:, :, :n_weights].copy()
    for s in range(S):
        by_start = J[s, :, n_weights:]
        if by_start.shape[1]:
            Z[s] -= by_start @ np.linalg.lstsq(by_start, Z[s], rcond=1e-12)[0]
    scale = 1.0 / np.maximum(np.sqrt(np.einsum("stp,stp->p", Z, Z)), 1e-300)
    Z *= scale
    H = np.einsum("stp,stq->pq", Z, Z)
    e = np.where(observed, error, 0.0)
    n = np.count_nonzero(observed)
    free = max(n - J.shape[2], 1)
    rho = min(abs(np.sum(e[1:] * e[:-1]) / max(np.sum(e * e), 1e-300)), 0.99)
    alpha = 4.0 * rho**2 / (1.0 - rho**2) ** 2
    n_lags = min(T // 4, int(np.ceil(1.1447 * (alpha * n) ** (1.0 / 3.0))))
    r = np.zeros(T)
    for lag in range(n_lags + 1):
        pairs = np.sum(e[lag:] * e[: T - lag])
        r[lag] = (1.0 - lag / (n_lags + 1.0)) * pairs / free
    flat = Z.transpose(1, 0, 2).reshape(T, -1)
    middle = np.einsum(
        "stp,stq->pq", Z, matmul_toeplitz(r, flat).reshape(T, S, -1).transpose(1, 0, 2)
    )
    inverse = np.linalg.pinv(H, hermitian=True)
    covariance = inverse @ middle @ inverse
    return 0.5 * (covariance + covariance.T) * scale * scale[:, None]


def _name(label: str, lag: int) -> str:
    return f"{label}(k-{lag})" if lag else f"{label}(k)"
