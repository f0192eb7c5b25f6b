"""Widths and family of a kernel, learnt from the data before any sparse method runs.

The criterion is an evidence of a Gaussian process, with one variance shared by all functions:
exact for few rows, on random centres (`nystroem.py`) for many. The evidence of a relevance vector
machine must not be maximised over the width: one precision per weight lets it buy narrow bumps.
Inputs and targets are standardised, so that scaling an input by c divides its gamma by c^2 and
changes nothing else.

1. Equal rows are merged, constant inputs left out; l0 is the median distance of 500 rows.
2. All length scales start at 0.7 l0, signal 1, noise 0.2, and one length per input is learnt at
   once: with one length for all first, irrelevant inputs can hide the signal for good. L-BFGS-B on
   -F/n, 2000 rows, 200 centres, Matern 5/2. Where nothing was found (noise above 0.95 of the
   variance) it starts again with twice as many of both.
3. Each family starts from those lengths times a factor of its own and takes a few steps on 3000
   rows and 300 centres; the largest evidence on up to 10^4 rows with 400 centres is chosen. On
   fewer rows a rough function looks smooth, and without the steps the lengths favour Matern 5/2.
4. The winner is refined: 5000 rows, 500 centres.

With at most 2000 rows each family goes through step 2 by itself, for small sets have several optima
and time allows it; with at most 500 rows the evidence is exact and steps 3 and 4 are not needed.
One width for all inputs is the same with a single length.

Lengths stay within l0 [e^-4, e^3] and pay -1/2 (0.1) (l0/l_j)^2: that guards against short ones and
is free at infinity, where irrelevant inputs go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import pdist

from .nystroem import LOG_LAM, ExactEvidence, NystroemEvidence
from .rows.spread import gamma_in_range

# What "auto" chooses from, and typical lengths over that of Matern 5/2.
AUTO_FAMILIES = ("rbf", "matern52", "matern32")
_FACTOR = {"rbf": 0.6, "rq": 0.7, "matern52": 1.0, "matern32": 1.6, "matern12": 3.0}


class Stage(NamedTuple):
    """How much of the data an ascent sees, how long it may take, and when it has arrived."""

    rows: int
    centres: int
    max_iter: int
    tol: float  # gain of a step, in nats per row


_FIRST = Stage(2000, 200, 60, 1e-5)
_TRY = Stage(3000, 300, 6, 1e-6)
_CHOICE = Stage(10_000, 400, 0, 0.0)
_REFINE = Stage(5000, 500, 12, 1e-6)
_EXACT_ROWS = 500
_EACH_FAMILY_ROWS = 2000
_PRIOR = 0.1
_BOX_LENGTH, _BOX_NOISE = (-4.0, 3.0), (-14.0, 1.0)
_NO_SIGNAL = 0.95


@dataclass(frozen=True)
class Widths:
    """What was learnt.

    Attributes
    ----------
    family : str
    gamma : array of shape (n_features,)
        One per input, for the inputs as they were given; zero for constant inputs.
    relevance : array of shape (n_features,)
        Standard deviation of each input over its length scale, the largest 1: how fast the function
        varies along an input, over the range that input has.
    noise : array of shape (n_targets,)
        Noise variance over the variance, for each target that is not constant.
    log_evidence : float
        Of the standardised targets with the prior of the lengths, on the rows of the last step.
    """

    family: str
    gamma: np.ndarray
    relevance: np.ndarray
    noise: np.ndarray
    log_evidence: float


def learn_widths(
    X: np.ndarray,
    y: np.ndarray,
    *,
    family: str = "auto",
    ard: bool = True,
    sample_weight: np.ndarray | None = None,
    bound: bool = False,
    random_state: int | None = 0,
) -> Widths:
    """Learn the widths of a kernel, and its family where asked to.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
    y : array of shape (n_rows,) or (n_rows, n_targets)
        Several targets share the widths; their evidences are added. For classes, code them as -1
        and 1, or as one column of zeros and ones for each class.
    family : {"auto", "rbf", "matern52", "matern32", "matern12", "rq"}, default="auto"
        ``"auto"`` chooses among rbf, matern52 and matern32.
    ard : bool, default=True
        One width per input; False: one for all inputs, each in units of its standard deviation.
    sample_weight : array of shape (n_rows,), optional
        How often each row counts.
    bound : bool, default=False
        Maximise the variational bound instead of the Nystroem evidence. It never exceeds the exact
        evidence, but it prefers kernels that are too wide. No difference with at most 500 rows.
    random_state : int or None, default=0
        Which rows the stages see.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.widths import learn_widths
    >>> X = np.random.default_rng(0).uniform(-2, 2, (200, 3))
    >>> found = learn_widths(X, np.sin(2 * X[:, 1]), family="rbf")
    >>> found.relevance.round(1)
    array([0., 1., 0.])
    """
    families = AUTO_FAMILIES if family == "auto" else (family,)
    data = _Data.of(X, y, sample_weight)
    if data.nothing_to_learn:
        return data.report(_Point(families[0], *data.start(families[0])))
    search = _Search(data, ard, bound, np.random.default_rng(random_state))
    if len(data.X) <= _EXACT_ROWS:
        return data.report(max((search.learn(name) for name in families), key=_value))
    if len(data.X) <= _EACH_FAMILY_ROWS or len(families) == 1:
        points = [search.learn(name) for name in families]
    else:
        point = search.learn("matern52")
        points = [point.as_family(name) for name in families]
    if len(families) > 1:
        points = [search.choose([search.ascend(point, _TRY) for point in points])]
    return data.report(search.ascend(points[0], _REFINE))


def choose_family(
    X: np.ndarray,
    y: np.ndarray,
    gamma: Any,
    *,
    sample_weight: np.ndarray | None = None,
    random_state: int | None = 0,
) -> str:
    """The family of the largest evidence at a given gamma: rbf, matern52 or matern32.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
    y : array of shape (n_rows,) or (n_rows, n_targets)
    gamma : float or array of shape (n_features,)
    sample_weight : array of shape (n_rows,), optional
    random_state : int or None, default=0

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.widths import choose_family
    >>> X = np.linspace(-3, 3, 100)[:, None]
    >>> choose_family(X, np.sin(X[:, 0]), 0.5)
    'rbf'
    """
    data = _Data.of(X, y, sample_weight)
    if data.nothing_to_learn:
        return AUTO_FAMILIES[0]
    gamma = np.broadcast_to(gamma, len(data.varying))[data.varying]
    with np.errstate(divide="ignore"):
        log_length = -0.5 * np.log(2.0 * gamma) - np.log(data.scale)
    search = _Search(data, True, False, np.random.default_rng(random_state))
    evidence = search.nystroem(AUTO_FAMILIES[0], _CHOICE)
    values = []
    for name in AUTO_FAMILIES:
        evidence.family = name
        values.append(evidence.profile(log_length).value)
    return AUTO_FAMILIES[int(np.argmax(values))]


class _Point(NamedTuple):
    family: str
    log_length: np.ndarray
    log_lam: np.ndarray
    log_noise: np.ndarray
    value: float = 0.0  # evidence where it was found

    def as_family(self, family: str) -> _Point:
        """The same function, as nearly as another family can have it."""
        shift = np.log(_FACTOR[family] / _FACTOR[self.family])
        return self._replace(family=family, log_length=self.log_length + shift)


def _value(point: _Point) -> float:
    return point.value


@dataclass(frozen=True)
class _Data:
    """Merged rows, standardised, in an order that depends on their values alone.

    So that weights or repetition, and any order of the rows, give the same result to the last bit.
    """

    X: np.ndarray
    T: np.ndarray
    weight: np.ndarray | None
    distinct: np.ndarray  # rows whose inputs differ from those of the row before
    varying: np.ndarray  # which inputs are not constant
    scale: np.ndarray  # the standard deviations of those
    l0: float

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> _Data:
        low, high = X.min(axis=0), X.max(axis=0)
        varying = high > low
        span = high[varying] - low[varying]
        X = (X[:, varying] - low[varying]) / span
        T = y.reshape(len(y), -1)
        key = np.zeros(len(X))
        factors = np.random.default_rng(0).uniform(1.0, 2.0, (X.shape[1],))
        for j in range(X.shape[1]):
            key += factors[j] * X[:, j]  # not X @ factors, which may round equal rows differently
        order = np.lexsort((*T.T, key))
        X, T = X[order], T[order]
        counts = np.ones(len(X)) if weight is None else weight[order]
        new_input = np.append(True, np.any(X[1:] != X[:-1], axis=1))
        new_target = np.append(True, np.any(T[1:] != T[:-1], axis=1))
        first = np.flatnonzero(new_input | new_target)
        counts = np.add.reduceat(counts, first)
        X, scale = _standardised(X[first], counts)
        T, spread = _standardised(T[first], counts)
        # Rounded, so that the units of the user cannot steer the search by their last digits.
        X, T = (part.astype(np.float32).astype(np.float64) for part in (X, T))
        sample = X[new_input[first]]
        sample = sample[:: max(1, len(sample) // 500)][:500]
        l0 = float(np.median(pdist(sample))) if len(sample) > 1 and X.shape[1] else 1.0
        return cls(
            X,
            T[:, spread > 0.0],
            None if np.all(counts == 1.0) else counts,
            new_input[first],
            varying,
            scale * span,
            l0,
        )

    @property
    def nothing_to_learn(self) -> bool:
        """No input or no target varies."""
        return self.X.shape[1] == 0 or self.T.shape[1] == 0

    def start(self, family: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Step 2: log lengths, log lam (signal 1) and log noise of the flat start."""
        d, q = self.X.shape[1], self.T.shape[1]
        length = 0.7 * self.l0 * _FACTOR[family]
        return np.full(d, np.log(length)), np.full(q, np.log(0.2)), np.full(q, np.log(0.2))

    def report(self, point: _Point) -> Widths:
        """In the units of the user."""
        gamma, relevance = np.zeros(len(self.varying)), np.zeros(len(self.varying))
        inverse = np.exp(-point.log_length)
        with np.errstate(over="ignore", under="ignore"):
            gamma[self.varying] = 0.5 * np.square(inverse / self.scale)
        relevance[self.varying] = inverse / np.max(inverse, initial=0.0)
        if not np.any(self.varying):
            gamma[:] = 1.0  # all rows are equal: any number will do
        gamma_in_range(np.max(gamma), np.min(self.scale, initial=np.inf))
        return Widths(point.family, gamma, relevance, np.exp(point.log_noise), point.value)


@dataclass
class _Search:
    data: _Data
    ard: bool
    bound: bool
    rng: np.random.Generator

    def __post_init__(self) -> None:
        self.order = self.rng.permutation(len(self.data.X))

    def nystroem(self, family: str, stage: Stage) -> NystroemEvidence:
        """The criterion on the rows of a stage, with new centres."""
        data = self.data
        rows = np.sort(self.order[: stage.rows])
        centres = self.rng.permutation(rows[data.distinct[rows]])[: stage.centres]
        weight = None if data.weight is None else data.weight[rows]
        return NystroemEvidence(
            data.X[rows], data.T[rows], data.X[centres], family, weight=weight, bound=self.bound
        )

    def learn(self, family: str) -> _Point:
        """Step 2, from the flat start; twice the data where the first look found nothing."""
        start = _Point(family, *self.data.start(family))
        point = self.ascend(start, _FIRST)
        blind = np.all(np.exp(point.log_noise) > _NO_SIGNAL)
        if blind and len(self.data.X) > _FIRST.rows:
            again = _FIRST._replace(rows=2 * _FIRST.rows, centres=2 * _FIRST.centres)
            point = self.ascend(start, again)
        return point

    def ascend(self, point: _Point, stage: Stage) -> _Point:
        """Maximise evidence and prior from a point."""
        data, ard = self.data, self.ard
        evidence: ExactEvidence | NystroemEvidence
        if len(data.X) <= _EXACT_ROWS:
            evidence = ExactEvidence(data.X, data.T, point.family, weight=data.weight)
        else:
            evidence = self.nystroem(point.family, stage)
        d, q = data.X.shape[1], data.T.shape[1]
        k = d if ard else 1

        def parts(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            return np.broadcast_to(theta[:k], d), theta[k : k + q], theta[k + q :]

        def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
            try:
                value, gradient = evidence(*parts(theta))
            except np.linalg.LinAlgError:
                return 1e3, np.zeros_like(theta)  # far above any loss: the line search turns back
            pull = _PRIOR * np.square(data.l0 * np.exp(-theta[:k]))
            pull *= d / k
            slope = gradient[:d] if ard else gradient[:d].sum(keepdims=True)
            gradient = np.concatenate([slope + pull, gradient[d:]])
            return -(value - 0.5 * pull.sum()) / evidence.n, -gradient / evidence.n

        box_length = np.log(data.l0) + np.array(_BOX_LENGTH)
        result = minimize(
            loss,
            np.concatenate([point.log_length[:k], point.log_lam, point.log_noise]),
            jac=True,
            method="L-BFGS-B",
            bounds=[tuple(box_length)] * k + [LOG_LAM] * q + [_BOX_NOISE] * q,
            options={
                "maxiter": stage.max_iter,
                "maxfun": 2 * stage.max_iter,
                "maxcor": 20,
                "ftol": stage.tol,
                "gtol": 1e-5,
            },
        )
        return _Point(point.family, *parts(result.x), -result.fun * evidence.n)

    def choose(self, candidates: list[_Point]) -> _Point:
        """Step 3: the family of the largest evidence on all rows."""
        evidence = self.nystroem(candidates[0].family, _CHOICE)
        values = []
        for point in candidates:
            evidence.family = point.family
            values.append(evidence.profile(point.log_length, point.log_lam).value)
        return candidates[int(np.argmax(values))]


def _standardised(A: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns of mean 0 and variance 1 (or all 0), and their standard deviations."""
    size = np.max(np.abs(A), axis=0, initial=0.0)
    A = A / np.where(size > 0.0, size, 1.0)
    A = A - np.average(A, axis=0, weights=weight)
    spread = np.sqrt(np.average(A * A, axis=0, weights=weight))
    spread[spread < 1e-14] = 0.0  # rounding of a constant
    return A / np.where(spread > 0.0, spread, 1.0), spread * size
