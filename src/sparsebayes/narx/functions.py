"""Candidate functions of lagged values, with the slopes that a simulation needs.

A set of functions is called on lagged values x, one time step a column and outputs first, and gives
one row per function. `slopes` is the derivative of the weighted sum with respect to each lagged
output: with it the sensitivities of a free run are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, pairwise
from typing import Any, Protocol

import numpy as np

from ..designs import DenseDesign, Design
from ..designs._base import ALL, Index
from ..rows import row_slices

_BLOCK = 2**20  # numbers in a block of candidates: 8 MB
_STEP = 6e-6  # relative step of a central difference: the cube root of the rounding error


Scalar = Callable[[list[float]], float]
Positions = Sequence[int] | np.ndarray


class Functions(Protocol):
    """A set of candidate functions of the lagged values."""

    @property
    def names(self) -> list[str]:
        """Readable names of the terms."""

    def __len__(self) -> int: ...

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Values, shape (len(self), n), at lagged values x of shape (n_variables, n)."""

    def slopes(self, x: np.ndarray, weights: np.ndarray, n_outputs: int) -> np.ndarray:
        """Derivative of weights @ self(x) by the first n_outputs variables, (n_outputs, n)."""

    def take(self, idx: Positions) -> Functions:
        """Some of the functions."""

    def scalar(self, weights: np.ndarray) -> Scalar | None:
        """Return the weighted sum at one time step in Python floats, faster than an array."""
        return None

    def design(self, x: np.ndarray) -> Design:
        """Return the functions as candidate columns at the time steps of x."""
        return DenseDesign(self(x).T)


@dataclass(frozen=True)
class Monomials(Functions):
    """Products of lagged values.

    Parameters
    ----------
    variables : list of str
        Names of the lagged values.
    factors : array of int of shape (n_terms, degree)
        The variables that each term multiplies; ``len(variables)`` stands for the factor one.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.narx.functions import Monomials
    >>> terms = Monomials.up_to(["y(k-1)", "u(k)"], degree=2)
    >>> terms.names
    ['1', 'y(k-1)', 'u(k)', 'y(k-1)^2', 'y(k-1)*u(k)', 'u(k)^2']
    >>> terms(np.array([[2.0], [3.0]])).ravel()
    array([1., 2., 3., 4., 6., 9.])
    """

    variables: list[str]
    factors: np.ndarray

    @classmethod
    def up_to(cls, variables: list[str], degree: int) -> Monomials:
        """All monomials up to a degree, the constant first."""
        n = len(variables)
        factors = [
            chosen + (n,) * (degree - size)
            for size in range(degree + 1)
            for chosen in combinations_with_replacement(range(n), size)
        ]
        return cls(variables, np.array(factors, dtype=np.intp).reshape(len(factors), degree))

    def __len__(self) -> int:
        return len(self.factors)

    @property
    def names(self) -> list[str]:
        """Readable names of the terms."""
        out = []
        for row in self.factors:
            counts = np.bincount(row, minlength=len(self.variables) + 1)[:-1]
            parts = [
                self.variables[i] + (f"^{counts[i]}" if counts[i] > 1 else "")
                for i in np.flatnonzero(counts)
            ]
            out.append("*".join(parts) or "1")
        return out

    def __call__(self, x: np.ndarray) -> np.ndarray:
        x = np.concatenate([x, np.ones((1, x.shape[1]))])
        out = x[self.factors[:, 0]]
        for column in self.factors.T[1:]:
            out *= x[column]
        return out

    def slopes(self, x: np.ndarray, weights: np.ndarray, n_outputs: int) -> np.ndarray:
        x = np.concatenate([x, np.ones((1, x.shape[1]))])
        out = np.zeros((n_outputs, x.shape[1]))
        degree = self.factors.shape[1]
        for place in range(degree):
            column = self.factors[:, place]
            terms = np.flatnonzero(column < n_outputs)
            others = np.ones((len(terms), x.shape[1]))
            for other in range(degree):
                if other != place:
                    others *= x[self.factors[terms, other]]
            chosen = np.zeros((n_outputs, len(terms)))
            chosen[column[terms], np.arange(len(terms))] = weights[terms]
            out += chosen @ others
        return out

    def scalar(self, weights: np.ndarray) -> Scalar:
        n = len(self.variables)
        terms = [
            (weight, [int(i) for i in row if i < n])
            for weight, row in zip(weights.tolist(), self.factors, strict=True)
        ]
        constant = sum(weight for weight, row in terms if not row)
        linear = [(weight, row[0]) for weight, row in terms if len(row) == 1]
        double = [(weight, *row) for weight, row in terms if len(row) == 2]
        triple = [(weight, *row) for weight, row in terms if len(row) == 3]
        longer = [(weight, row) for weight, row in terms if len(row) > 3]

        def value(x: list[float]) -> float:
            total = constant
            for weight, i in linear:
                total += weight * x[i]
            for weight, i, j in double:
                total += weight * x[i] * x[j]
            for weight, i, j, k in triple:
                total += weight * x[i] * x[j] * x[k]
            for weight, row in longer:
                for i in row:
                    weight *= x[i]
                total += weight
            return total

        return value

    def take(self, idx: Positions) -> Monomials:
        return Monomials(self.variables, self.factors[np.asarray(idx, dtype=np.intp)])

    def design(self, x: np.ndarray) -> Design:
        return MonomialDesign(self, x)


class MonomialDesign(Design):
    """All monomials up to a degree at n time steps; only the lagged values are stored.

    Products with all columns are matrix products: a monomial of degree d is one of degree d - 1
    times a lagged value, so (shorter monomials, times v)' (lagged values) gives them all at once,
    in blocks of rows. At 10,000 monomials of degree 3 that is 741 shorter ones. Monomials other
    than those of `Monomials.up_to` cost a pass over their columns.
    """

    has_fast_products = True

    def __init__(self, monomials: Monomials, x: np.ndarray) -> None:
        self.monomials = monomials
        self.rows = np.ascontiguousarray(x.T)
        self.n_rows, self.n_candidates = len(self.rows), len(monomials)
        n, degree = len(x), monomials.factors.shape[1]
        all_monomials = Monomials.up_to(monomials.variables, degree)
        self._plan: list[tuple[np.ndarray, np.ndarray]] | None = None
        if degree >= 2 and np.array_equal(all_monomials.factors, monomials.factors):
            # Of each monomial of degree d: which of degree d - 1, and which variable, make it.
            self._plan = []
            place: dict[tuple[int, ...], int] = {(): 0}
            for size in range(1, degree + 1):
                level = list(combinations_with_replacement(range(n), size))
                shorter = np.array([place[chosen[:-1]] for chosen in level], dtype=np.intp)
                last = np.array([chosen[-1] for chosen in level], dtype=np.intp)
                self._plan.append((shorter, last))
                place = {chosen: j for j, chosen in enumerate(level)}

    def blocks(self, idx: Index = ALL) -> Iterator[tuple[slice, np.ndarray]]:
        chosen = self.monomials.take(np.arange(self.n_candidates)[idx])
        step = max(64, _BLOCK // max(1, len(chosen)))
        for rows in row_slices(self.n_rows, step):
            if self._plan is not None and isinstance(idx, slice) and idx == ALL:
                yield rows, np.concatenate(self._levels(self.rows[rows], self._plan), axis=1)
            else:
                yield rows, chosen(self.rows[rows].T).T

    def local_project(self, V: np.ndarray, idx: Index = ALL) -> np.ndarray:
        if self._plan is None or not (isinstance(idx, slice) and idx == ALL):
            return super().local_project(V, idx)
        columns = V.reshape(self.n_rows, -1)
        out = np.zeros((self.n_candidates, columns.shape[1]))
        shorter, last = self._plan[-1]
        n_shorter = int(shorter[-1]) + 1
        ends = np.cumsum([1, *(len(each[0]) for each in self._plan)])
        sums = np.zeros((columns.shape[1], n_shorter, self.rows.shape[1] + 1))
        for rows in row_slices(self.n_rows, max(64, _BLOCK // (8 * max(1, n_shorter)))):
            block = self.rows[rows]
            levels = self._levels(block, self._plan[:-1])
            for level, end in zip(levels[:-1], ends, strict=False):
                out[end - level.shape[1] : end] += level.T @ columns[rows]
            for j, column in enumerate(columns[rows].T):
                # The few lagged values are weighted, not the many products.
                weighted = np.column_stack([block * column[:, None], column])
                sums[j] += levels[-1].T @ weighted
        out[ends[-3] : ends[-2]] = sums[:, :, -1].T
        out[ends[-2] :] = sums[:, shorter, last].T
        return out.reshape(self.n_candidates, *V.shape[1:])

    @staticmethod
    def _levels(block: np.ndarray, plan: list[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
        """Monomials of degree 0, 1, ... on a block of rows."""
        levels = [np.ones((len(block), 1))]
        for shorter, last in plan:
            levels.append(np.take(levels[-1], shorter, axis=1))
            levels[-1] *= np.take(block, last, axis=1)
        return levels

    def basis(self, idx: Positions) -> Any:
        return self.monomials.take(idx)


@dataclass(frozen=True)
class Hinges(Functions):
    """Excess of a lagged value over a knot, max(x - knot, 0): saturation and overflow.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.narx.functions import Hinges
    >>> hinge = Hinges(["y(k-1)"], np.array([0]), np.array([2.0]))
    >>> hinge.names, hinge(np.array([[1.0, 5.0]]))
    (['max(y(k-1)-2,0)'], array([[0., 3.]]))
    """

    variables: list[str]
    place: np.ndarray  # which variable each function is of
    knots: np.ndarray

    @classmethod
    def at_quantiles(cls, variables: list[str], x: np.ndarray, shares: Sequence[float]) -> Hinges:
        """Hinges of each variable at quantiles of its values."""
        # Three digits are enough for a knot, and can be read.
        knots = [sorted({float(f"{q:.3g}") for q in np.quantile(row, shares)}) for row in x]
        place = np.repeat(np.arange(len(x)), [len(values) for values in knots])
        return cls(variables, place, np.array([value for values in knots for value in values]))

    def __len__(self) -> int:
        return len(self.place)

    @property
    def names(self) -> list[str]:
        """Readable names of the terms."""
        return [
            f"max({self.variables[i]}{-knot:+.4g},0)"
            for i, knot in zip(self.place, self.knots, strict=True)
        ]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return np.maximum(x[self.place] - self.knots[:, None], 0.0)

    def slopes(self, x: np.ndarray, weights: np.ndarray, n_outputs: int) -> np.ndarray:
        out = np.zeros((n_outputs, x.shape[1]))
        for i, knot, weight in zip(self.place, self.knots, weights, strict=True):
            if i < n_outputs:
                out[i] += weight * (x[i] > knot)
        return out

    def scalar(self, weights: np.ndarray) -> Scalar | None:
        terms = list(zip(weights.tolist(), self.place.tolist(), self.knots.tolist(), strict=True))
        return lambda x: sum(weight * (x[i] - knot) for weight, i, knot in terms if x[i] > knot)

    def take(self, idx: Positions) -> Hinges:
        idx = np.asarray(idx, dtype=np.intp)
        return Hinges(self.variables, self.place[idx], self.knots[idx])


@dataclass(frozen=True)
class Hysteresis(Functions):
    """Terms that depend on the direction of motion, as in Bouc-Wen models of hysteresis.

    With the increment v of an output or an input between two lags, and a lagged value x, the terms
    are ``|v|``, ``|v|*x`` and ``v*|x|``, and for increments of inputs ``sign(v)`` and
    ``sign(v)*x``. A Bouc-Wen element z' = A v - beta |v| z - gamma v |z| is linear in them.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.narx.functions import Hysteresis
    >>> terms = Hysteresis.of_signals(["y(k-1)", "u(k)", "u(k-1)"], [[0], [1, 2]], n_outputs=1)
    >>> terms.names[:3]
    ['|u(k)-u(k-1)|', '|u(k)-u(k-1)|*y(k-1)', '|u(k)-u(k-1)|*u(k)']
    >>> terms(np.array([[2.0], [1.0], [4.0]]))[:3].ravel()
    array([3., 6., 3.])
    """

    variables: list[str]
    later: np.ndarray  # (n_terms,): the increment is variable `later` minus variable `earlier`
    earlier: np.ndarray
    other: np.ndarray  # the lagged value x; len(variables) stands for the factor one
    kind: np.ndarray  # 0: |v| x, 1: v |x|, 2: sign(v) x

    @classmethod
    def of_signals(
        cls, variables: list[str], signals: Sequence[Sequence[int]], n_outputs: int
    ) -> Hysteresis:
        """Return all terms; `signals` has the positions of the lags of each signal, outputs first.

        The first `n_outputs` variables are outputs.
        """
        n = len(variables)
        rows = []
        for places in signals:
            for later, earlier in pairwise(places):
                rows += [(later, earlier, x, 0) for x in (n, *range(n))]
                rows += [(later, earlier, x, 1) for x in range(n)]
                if later >= n_outputs:  # the sign of a noisy output is noise
                    rows += [(later, earlier, x, 2) for x in (n, *range(n))]
        return cls(variables, *np.array(rows, dtype=np.intp).reshape(-1, 4).T)

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def names(self) -> list[str]:
        """Readable names of the terms."""
        out = []
        labels = [*self.variables, ""]
        for a, b, x, kind in zip(self.later, self.earlier, self.other, self.kind, strict=True):
            v = f"{labels[a]}-{labels[b]}"
            first = (f"|{v}|", f"({v})", f"sign({v})")[kind]
            second = f"|{labels[x]}|" if kind == 1 else labels[x]
            out.append(f"{first}*{second}" if second else first)
        return out

    def __call__(self, x: np.ndarray) -> np.ndarray:
        v, value = self._factors(x)
        kind = self.kind[:, None]
        return np.where(kind == 0, np.abs(v), np.where(kind == 1, v, np.sign(v))) * np.where(
            kind == 1, np.abs(value), value
        )

    def slopes(self, x: np.ndarray, weights: np.ndarray, n_outputs: int) -> np.ndarray:
        v, value = self._factors(x)
        kind, weight = self.kind[:, None], weights[:, None]
        by_v = np.select([kind == 0, kind == 1], [np.sign(v) * value, np.abs(value)], 0.0) * weight
        by_value = (
            np.select([kind == 0, kind == 1], [np.abs(v), v * np.sign(value)], np.sign(v)) * weight
        )
        out = np.zeros((len(x) + 1, x.shape[1]))
        np.add.at(out, self.later, by_v)
        np.add.at(out, self.earlier, -by_v)
        np.add.at(out, self.other, by_value)
        return out[:n_outputs]

    def scalar(self, weights: np.ndarray) -> Scalar:
        columns = (weights, self.later, self.earlier, self.other, self.kind)
        terms = list(zip(*(column.tolist() for column in columns), strict=True))

        def value(x: list[float]) -> float:
            x = [*x, 1.0]
            total = 0.0
            for weight, later, earlier, other, kind in terms:
                v = x[later] - x[earlier]
                if kind == 0:
                    total += weight * abs(v) * x[other]
                elif kind == 1:
                    total += weight * v * abs(x[other])
                elif v:
                    total += weight * x[other] if v > 0 else -weight * x[other]
            return total

        return value

    def take(self, idx: Positions) -> Hysteresis:
        idx = np.asarray(idx, dtype=np.intp)
        columns = (self.later, self.earlier, self.other, self.kind)
        return Hysteresis(self.variables, *(column[idx] for column in columns))

    def _factors(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the increment and the lagged value of each term."""
        x = np.concatenate([x, np.ones((1, x.shape[1]))])
        return x[self.later] - x[self.earlier], x[self.other]


@dataclass(frozen=True)
class Gaussians(Functions):
    """Gaussian functions exp(-sum_i ((x_i - c_i) / width_i)^2 / 2) of all lagged values."""

    centres: np.ndarray  # (n_functions, n_variables)
    width: np.ndarray  # (n_variables,)
    number: np.ndarray  # what the functions are called by

    def __len__(self) -> int:
        return len(self.centres)

    @property
    def names(self) -> list[str]:
        """The number of each function; its centre is in `centres`."""
        return [f"rbf{number}" for number in self.number]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        off = (x.T[None] - self.centres[:, None]) / self.width
        return np.exp(-0.5 * np.einsum("pnv,pnv->pn", off, off))

    def slopes(self, x: np.ndarray, weights: np.ndarray, n_outputs: int) -> np.ndarray:
        weighted = weights[:, None] * self(x)
        steepness = (self.centres[:, :n_outputs, None] - x[None, :n_outputs]) / np.square(
            self.width[:n_outputs, None]
        )
        return np.einsum("pn,pvn->vn", weighted, steepness)

    def take(self, idx: Positions) -> Gaussians:
        idx = np.asarray(idx, dtype=np.intp)
        return Gaussians(self.centres[idx], self.width, self.number[idx])


@dataclass(frozen=True)
class Transformed(Functions):
    """Columns of a fitted scikit-learn transformer of the lagged values.

    Its slopes are central differences, because a transformer has no derivative.
    """

    transformer: Any
    columns: np.ndarray
    labels: list[str]

    @classmethod
    def fit(cls, transformer: Any, x: np.ndarray, variables: list[str]) -> Transformed:
        """All columns of a copy of `transformer`, fitted to the lagged values."""
        from sklearn.base import clone

        fitted = clone(transformer).fit(x.T)
        n = np.asarray(fitted.transform(x.T[:2])).shape[1]
        try:
            labels = [str(name) for name in fitted.get_feature_names_out(variables)]
        except (AttributeError, ValueError, TypeError):
            labels = [f"{type(transformer).__name__.lower()}{j}" for j in range(n)]
        return cls(fitted, np.arange(n), labels)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def names(self) -> list[str]:
        """Names that the transformer gives."""
        return [self.labels[j] for j in self.columns]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        values = self.transformer.transform(x.T)
        values = values.toarray() if hasattr(values, "toarray") else np.asarray(values)
        return np.array(values[:, self.columns].T, dtype=np.float64)

    def slopes(self, x: np.ndarray, weights: np.ndarray, n_outputs: int) -> np.ndarray:
        out = np.zeros((n_outputs, x.shape[1]))
        for i in range(n_outputs):
            step = _STEP * max(float(np.max(np.abs(x[i]))), 1e-300)
            above, below = x.copy(), x.copy()
            above[i] += step
            below[i] -= step
            out[i] = weights @ (self(above) - self(below)) / (2.0 * step)
        return out

    def take(self, idx: Positions) -> Transformed:
        return Transformed(
            self.transformer, self.columns[np.asarray(idx, dtype=np.intp)], self.labels
        )


@dataclass(frozen=True)
class Several(Functions):
    """Sets of functions, one after the other or in any order.

    Parameters
    ----------
    parts : list of Functions
        The sets.
    place : array of int, optional
        The position of each function among those of all parts; by default they are in order.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.narx.functions import Hinges, Monomials, Several
    >>> hinge = Hinges(["y(k-1)"], np.array([0]), np.array([0.5]))
    >>> functions = Several([Monomials.up_to(["y(k-1)"], degree=1), hinge]).take([2, 0])
    >>> functions.names
    ['max(y(k-1)-0.5,0)', '1']
    >>> functions(np.array([[2.0]])).ravel()
    array([1.5, 1. ])
    """

    parts: list[Any]
    place: np.ndarray | None = None
    ends: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ends", np.cumsum([0, *map(len, self.parts)]))

    def __len__(self) -> int:
        return int(self.ends[-1])

    @property
    def names(self) -> list[str]:
        """Readable names of the terms."""
        names = [name for part in self.parts for name in part.names]
        return names if self.place is None else [names[i] for i in self.place]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        values = np.concatenate([part(x) for part in self.parts])
        return values if self.place is None else values[self.place]

    def slopes(self, x: np.ndarray, weights: np.ndarray, n_outputs: int) -> np.ndarray:
        out = np.zeros((n_outputs, x.shape[1]))
        for part, own in zip(self.parts, self._by_part(weights), strict=True):
            out += part.slopes(x, own, n_outputs)
        return out

    def scalar(self, weights: np.ndarray) -> Scalar | None:
        pairs = zip(self.parts, self._by_part(weights), strict=True)
        parts = [part.scalar(own) for part, own in pairs]
        return None if None in parts else lambda x: sum(part(x) for part in parts)

    def take(self, idx: Positions) -> Several:
        """Return some of the functions, in the order of `idx`."""
        idx = np.asarray(idx, dtype=np.intp)
        chosen = idx if self.place is None else self.place[idx]
        rising = np.sort(chosen)
        parts = [
            part.take(rising[(rising >= start) & (rising < start + len(part))] - start)
            for part, start in zip(self.parts, self.ends, strict=False)
        ]
        kept = [part for part in parts if len(part)] or parts[:1]
        return Several(kept, np.searchsorted(rising, chosen))

    def _by_part(self, weights: np.ndarray) -> list[np.ndarray]:
        """The weights of the functions of each part."""
        if self.place is not None:
            ordered = np.empty_like(weights)
            ordered[self.place] = weights
            weights = ordered
        return np.split(weights, self.ends[1:-1])
