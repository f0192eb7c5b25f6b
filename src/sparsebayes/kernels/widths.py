"""Widths and family of a kernel, learnt from the data before any sparse method runs.

The criterion is an evidence of a Gaussian process, with one variance shared by all functions:
exact for few rows, on random centres (`evidence.py`) for many. The evidence of a relevance vector
machine must not be maximised over the width: with one precision per weight, narrow functions would
overfit.
Inputs and targets are standardised, so that scaling an input by c divides its gamma by c^2 (that of
a rough kernel by c) and changes nothing else. Where a few values make the standard deviation of an
input more than ten times what its quartiles say it is, it is ten times that.

1. Equal rows are merged, constant inputs left out; l0 is the median distance of 500 rows, of a
   rough kernel their median L1 distance. Columns that are one category share a length.
2. All length scales start at 0.7 l0 times a factor of the family, signal 1, noise 0.2, and one
   length per input is learnt at once: with one length for all first, irrelevant inputs can hide the
   signal for good. The evidence is exact, on all rows up to 800 and else on 500; the sum of smooth
   and rough starts from the lengths of Matern 5/2 too. Where nothing was found (noise above 0.95
   of the variance) it starts again with twice as many rows.
3. With more rows than that each family takes a few steps on 3000 rows and 300 centres, and the
   largest evidence on up to 10^4 rows with 400 centres is chosen: on fewer rows a rough function
   looks smooth. Smooth families far behind the sum have no part in it.
4. The winner is refined, or what may still win: 5000 rows, 500 centres, or all rows up to 1500.

One width for all inputs is the same with one length; for classes that of the smooth part of a sum
starts long. Steps are those of Newton with the average information in place of second derivatives
(`scoring`; docs/theory/widths.md): a third of the evaluations that L-BFGS takes.

Lengths stay within l0 [e^-4, e^3] under the log prior -1/2 (0.1) (l0/l_j)^2, which penalises short
lengths and is flat at infinity, where those of irrelevant inputs go. A short rough part is
equivalent to noise, which the functions of a sparse model would interpolate.

A model of the whole Gaussian process has shorter optimal widths than one of a few hundred
functions, and centres hide how rough a function of little noise is. With ``process="exact"`` every
stage has exact evidence: the winner, or what may still win, is refined on 1,000 rows (all rows up
to 1,500, in two parts above 1,000), which is better than 5,000 rows with 500 centres, in a third of
the time (docs/decisions/0035). With ``process="local"`` `learn_widths` goes on from all points
found and, for a sum, from the flat start on 1,000 rows, then from the best of them on 2,500 rows,
or on 6,000 in parts (docs/theory/neighbours.md).

`propose_widths` returns several kernels where the final model should choose between them by its
predictions (smooth or sum, one width or several); `learn_widths` decides by evidence alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import pdist

from .._array import Device
from ..callbacks import Budget, Reporter
from ..rows.spread import gamma_in_range
from .choice import ProcessKind
from .evidence import LOG_LAM, ExactEvidence, NystroemEvidence
from .formulas import Gamma, StationaryKernel, kernel_of_lengths

# The smooth families that "auto" chooses from, and typical lengths over that of Matern 5/2.
AUTO_FAMILIES = ("rbf", "matern52", "matern32")
_FACTOR = {"rbf": 0.6, "rq": 0.7, "matern52": 1.0, "matern32": 1.6, "matern12": 3.0}


class Stage(NamedTuple):
    """Size of the data of an ascent, and its limits."""

    rows: int
    centres: int  # 0: exact evidence
    evaluations: int  # at most
    enough: float  # predicted gain in nats below which the ascent stops


# Of the last stage .02: widths are not known better than that. Where more rows follow, or centres
# stand in for them, half a nat, which is a step of one standard deviation. Of 800 to 1,500 rows .2
# and half as many evaluations, to save time: on four tables RMSE moved by .4 % at most.
_FIRST = Stage(500, 0, 40, 0.5)
_TRY = Stage(3000, 300, 5, 0.5)
_CHOICE = Stage(10_000, 400, 0, 0.5)
_REFINE_FEW, _REFINE = Stage(1500, 0, 6, 0.2), Stage(5000, 500, 6, 0.5)
# Of an exact process, in parts of 1,000: with fewer rows for each input the lengths follow the
# draw of the rows (food_deliveries, 37 inputs: RMSE 2.01 from 1,000 rows, 1.89 from 2,480).
_REFINE_EXACT, _ROWS_PER_INPUT = Stage(1000, 0, 6, 0.2), 80
_RACE = 8  # evaluations after which the better of two starts goes on
_ALL = Stage(800, 0, 40, 0.02)  # the first stage where it has all rows
_PROCESS = (Stage(1000, 0, 40, 0.02), Stage(6000, 0, 8, 0.02))
# Nats for a squared log length at first, and for the log of the noise, which must not fall before
# inputs that do not matter have gone: 100 rows of 30 inputs were interpolated (error .64 for .60).
_DAMPING, _DAMPING_NOISE = 10.0, 300.0
_LONGEST_STEP = 2.0  # in log length, log lam or log noise
# Exact evidence of more than 2,500 rows is that of parts, of 1,500 or a little more, added: four of
# them take as long as 2,500 rows. California, 10,000 rows, 300 functions and 64 neighbours, RMSE of
# five splits: 44.56k with one part of 2,500, whose draw moved it by .5k, 44.14k with four of 1,500.
# Parts of an exact process are of 1,000 or a little more: with three of 800 in place of two of
# 1,200 the RMSE of food_deliveries and life_expectancy was 1.5 % larger (split 0).
_LOCAL_PARTS, _EXACT_PARTS = (2500, 1500), (1000, 1000)
_FEW_ROWS = 100  # for each length: then one width for all may be better
# Evidence below the best at which a kernel is dropped: none predicted best in 37 fits to 9 tables.
_DISCARD_MARGIN_NATS = 50.0
# Nats that a kernel of more widths may be behind and still be refined, after which it must be
# ahead: in 18 searches of six tables, 900 to 3,000 rows, refining moved what was behind by 1 nat.
# An exact process above 3,000 rows, which evidence alone decides, refines no plainer kernel that is
# so far behind either: in ten searches those behind by 17 nats or more fell back further (to 48 to
# 470), and one that was behind by 7 came up to 1.
_REFINE_MARGIN_NATS = 10.0
_PRIOR = 0.1
_BOX_LENGTH, _BOX_SHARE, _BOX_NOISE = (-4.0, 3.0), (-9.0, 5.0), (-14.0, 1.0)
_RELEVANT_NATS = 3.0  # evidence that an input is worth, whose length has reached its limit
_BOX_ADDITIVE = (-4.0, 6.0)  # a long length of one input beside short ones is a small function
_INITIAL_LENGTH_FACTOR = 0.3  # of the smooth lengths of a sum at its start, as a logarithm
_INITIAL_ROUGH_LOGIT = -1.0  # log odds of its rough part there
# Of a sum with two lengths, for classes: log of the smooth one over the median distance. From
# shorter ones the parts may change places, and a narrow smooth part interpolates the labels: on
# hmeq (three splits) the log-loss over that of CatBoost is .967 from here and else 1.036.
_INITIAL_LONG = 1.5
# Of each input of an additive kernel: where its log weight starts, and the rate of the exponential
# prior of the weight. Without a prior the weights may grow until only the product is left.
_INITIAL_LOG_WEIGHT, _WEIGHT_RATE = -0.7, 0.3
# By what power of its scale the rates of an input are divided, by rows of gamma.
_POWERS = {"sum": (2, 1), "laplacian": (1,), "additive": (1, 0)}
_NO_SIGNAL = 0.95
# Standard deviation of an input over what its quartiles say it is, above which it is that of a few
# values: a code for a gap, an error. The others would be one point, and lengths do not go so far.
_LARGEST_STD_RATIO, _QUANTILE_ROWS = 10.0, 2000
_RELEVANT = 0.05  # of the relevance of the first input


@dataclass(frozen=True)
class Widths:
    """Learnt kernel of a Gaussian process.

    Attributes
    ----------
    family : str
    gamma : array of shape (n_features,), for "sum" of shape (2, n_features)
        One per input, for the inputs as they were given; zero for constant inputs. Of a sum those
        of the smooth part, then those of the rough part.
    share : float
        Of a sum: the share of the rough part in its variance.
    relevance : array of shape (n_features,)
        Standard deviation of each input over its length scale, the largest 1: how fast the function
        varies along an input, over the range that input has.
    noise : array of shape (n_targets,)
        Noise variance over the variance, for each target that is not constant.
    lam : array of shape (n_targets,)
        Noise variance over that of the process.
    log_evidence : float
        Of the standardised targets with the prior of the lengths, on the rows of the last step.
    one_width : bool
        Whether all inputs share a length, in units of their standard deviations.
    n_lengths : int
        How many lengths were learnt: those that inputs share count once.
    """

    family: str
    gamma: np.ndarray
    share: float
    relevance: np.ndarray
    noise: np.ndarray
    lam: np.ndarray
    log_evidence: float
    one_width: bool
    n_lengths: int

    @property
    def n_matter(self) -> float:
        """Number of length scales of relevant inputs."""
        relevance = self.relevance[self.relevance > 0.0]
        return self.n_lengths * float(np.mean(relevance > _RELEVANT)) if len(relevance) else 0.0


def learn_widths(
    X: np.ndarray,
    y: np.ndarray,
    *,
    family: str = "auto",
    ard: bool | None = True,
    labels: bool = False,
    sample_weight: np.ndarray | None = None,
    bound: bool = False,
    process: ProcessKind = "",
    random_state: int | None = 0,
    device: Device | None = None,
    reporter: Reporter | None = None,
) -> Widths:
    """Learn the length scales of a kernel, and its family if requested, by evidence.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
    y : array of shape (n_rows,) or (n_rows, n_targets)
        Several targets share the widths; their evidences are added. For classes, code them as -1
        and 1, or as one column of zeros and ones for each class.
    family : {"auto", "rbf", "matern52", "matern32", "matern12", "rq", "laplacian", "sum"}, \
            default="auto"
        ``"auto"`` chooses among rbf, matern52, matern32 and sum.
    ard : bool or None, default=True
        One width per input; False: one for all inputs, each in units of its standard deviation;
        None: whichever.
    labels : bool, default=False
        Whether the targets are codes of classes, for which a rougher search is enough.
    sample_weight : array of shape (n_rows,), optional
        How often each row counts.
    bound : bool, default=False
        Maximise the variational bound instead of the Nystroem evidence. It never exceeds the exact
        evidence, but it prefers kernels that are too wide. No difference with at most 1500 rows.
    process : {"", "exact", "local"}, default=""
        Whether they are for the process itself, all of it or around each new row: exact evidence on
        up to 1,500 or 2,500 rows at the end.
    random_state : int or None, default=0
        Which rows the stages see.
    device : torch.device, optional
        Where kernels are computed on more than a few hundred rows.
    reporter : Reporter, optional
        Reporter of the progress, with the time that the search may take: it then ends with the best
        kernel so far.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.kernels.widths import learn_widths
    >>> X = np.random.default_rng(0).uniform(-2, 2, (200, 3))
    >>> found = learn_widths(X, np.sin(2 * X[:, 1]), family="rbf")
    >>> found.relevance.round(1)
    array([0., 1., 0.])
    """
    data = _Data.from_rows(X, y, sample_weight)
    exact = process == "exact"
    rng, reporter = np.random.default_rng(random_state), reporter or Reporter()
    search = _Search(data, bound, rng, device, exact, reporter, labels)
    points = search.points(family, ard)
    if reporter.budget.over:
        return search.report(search.best_so_far(points))
    if process == "local" and len(data.X) > search.first.rows and not data.nothing_to_learn:
        return data.report(search.best_for_local_process(points))
    if exact:
        able = search.within_margin(points, refined=False, discard=_REFINE_MARGIN_NATS)
        points = [search.refine(point) for point in able]
        best = int(np.argmax(search.penalised_evidence(points, refined=True)))
        return search.report(points[best])
    values = search.penalised_evidence(points, refined=False)
    return data.report(search.refine(points[int(np.argmax(values))]))


def propose_widths(
    X: np.ndarray,
    y: np.ndarray,
    *,
    family: str = "auto",
    ard: bool | None = None,
    labels: bool = False,
    sample_weight: np.ndarray | None = None,
    process: ProcessKind = "",
    random_state: int | None = 0,
    device: Device | None = None,
    reporter: Reporter | None = None,
) -> list[Widths]:
    """Return widths that a sparse model chooses from by its predictions, the plainest first.

    With ``family="auto"`` the best smooth family and the sum of smooth and rough; with ``ard=None``
    one width for all inputs too, unless there are 100 rows for each length. A kernel of more widths
    is there only where each of them gains a nat of evidence, and none that is fifty nats below the
    best. With `labels` all of them are there: the evidence of codes for classes is no measure of
    what predicts classes.
    The other parameters are those of `learn_widths`.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.kernels.widths import propose_widths
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, (200, 2))
    >>> smooth, steps = np.sin(X[:, 0]), np.sin(X[:, 0]) + np.floor(2 * X[:, 1])
    >>> noise = 0.05 * rng.standard_normal(200)
    >>> [found.family for found in propose_widths(X, smooth + noise, ard=True)]
    ['rbf']
    >>> [found.family for found in propose_widths(X, steps + noise, ard=True)]
    ['sum']
    """
    data = _Data.from_rows(X, y, sample_weight)
    exact = process == "exact"
    rng, reporter = np.random.default_rng(random_state), reporter or Reporter()
    search = _Search(data, False, rng, device, exact, reporter, labels)
    points = search.points(family, ard, labels)
    if reporter.budget.over:
        return [search.report(search.best_so_far(points))]
    if not labels:
        points = search.within_margin(points, refined=False)
    points = [search.refine(point) for point in points]
    if not labels:
        points = search.within_margin(points, refined=True)
    return [search.report(point) for point in points]


def choose_family(
    X: np.ndarray,
    y: np.ndarray,
    gamma: Gamma,
    *,
    sample_weight: np.ndarray | None = None,
    random_state: int | None = 0,
) -> str:
    """Return the family of the largest evidence at a given gamma: rbf, matern52 or matern32.

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
    >>> from sparsebayes.kernels.widths import choose_family
    >>> X = np.linspace(-3, 3, 100)[:, None]
    >>> choose_family(X, np.sin(X[:, 0]), 0.5)
    'rbf'
    """
    data = _Data.from_rows(X, y, sample_weight)
    if data.nothing_to_learn:
        return AUTO_FAMILIES[0]
    gamma = np.broadcast_to(gamma, len(data.varying))[data.varying]
    with np.errstate(divide="ignore"):
        log_length = -0.5 * np.log(2.0 * gamma) - np.log(data.scale)
    search = _Search(data, False, np.random.default_rng(random_state))
    evidence = search.nystroem(AUTO_FAMILIES[0], _CHOICE)
    values = []
    for name in AUTO_FAMILIES:
        evidence.family = name
        values.append(evidence.profile(log_length).value)
    return AUTO_FAMILIES[int(np.argmax(values))]


class _Point(NamedTuple):
    family: str
    log_length: np.ndarray  # what `kernel_of_lengths` takes
    log_lam: np.ndarray
    log_noise: np.ndarray
    value: float = 0.0  # evidence where it was found
    one_width: bool = False


def _value(point: _Point) -> float:
    return point.value


def _found_no_signal(point: _Point) -> bool:
    """Return whether nearly all of the variance was attributed to noise."""
    return bool(np.all(np.exp(point.log_noise) > _NO_SIGNAL))


@dataclass(frozen=True)
class _Data:
    """Merged rows, standardised, in an order that depends on their values alone.

    Weights or repetition, and any order of the rows, therefore give exactly the same result.
    """

    X: np.ndarray
    T: np.ndarray
    weight: np.ndarray | None
    distinct: np.ndarray  # rows whose inputs differ from those of the row before
    varying: np.ndarray  # which inputs are not constant
    scale: np.ndarray  # the standard deviations of those
    category: np.ndarray  # inputs of one number are the columns of one category
    l0: float  # median distance,
    l1: float  # and median L1 distance

    @classmethod
    def from_rows(cls, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> _Data:
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
        category = categories(X)
        X, scale = _standardised(X[first], counts)
        wide = np.maximum(1.0, 1.0 / (_LARGEST_STD_RATIO * _robust_std(X, counts)))
        X, scale = X * wide, scale / wide
        T, spread = _standardised(T[first], counts)
        # A category is one input: rare levels are no farther from the others than common ones.
        total = np.sqrt(np.bincount(category, weights=scale**2))[category]
        X, scale = X * (scale / np.where(total > 0.0, total, 1.0)), total
        # Rounded, so that the units of the user cannot steer the search by their last digits.
        X, T = (part.astype(np.float32).astype(np.float64) for part in (X, T))
        sample = X[new_input[first]]
        sample = sample[:: max(1, len(sample) // 500)][:500]
        has_pairs = len(sample) > 1 and X.shape[1]
        l0, l1 = (
            float(np.median(pdist(sample, metric))) if has_pairs else 1.0
            for metric in ("euclidean", "cityblock")
        )
        return cls(
            X,
            T[:, spread > 0.0],
            None if np.all(counts == 1.0) else counts,
            new_input[first],
            varying,
            scale * span,
            category,
            l0,
            l1,
        )

    def subset_weight(self, rows: np.ndarray) -> np.ndarray | None:
        """Return the weights of some rows, scaled to the mean weight of all rows.

        Their sum is the number of observations in the evidence. If a subset happened to have more
        duplicate rows than others, the difference would count as observations without noise.
        """
        if self.weight is None:
            return None
        weight = self.weight[rows]
        return weight * (np.mean(self.weight) / np.mean(weight))

    @property
    def nothing_to_learn(self) -> bool:
        """True where no input or no target varies."""
        return self.X.shape[1] == 0 or self.T.shape[1] == 0

    def reach(self, family: str) -> np.ndarray:
        """Return the median distance that each length of a family is compared with."""
        d = self.X.shape[1]
        smooth, rough = np.full(d, self.l0), np.full(d, self.l1)
        if family == "sum":
            return np.concatenate([smooth, rough])
        if family == "additive":
            return np.ones(d)  # inputs are compared one by one
        return rough if family == "laplacian" else smooth

    def unlimited(self, point: _Point) -> np.ndarray:
        """Return the log lengths of a point, infinite where they have reached their limit.

        The function does not vary along these inputs. Where all lengths have reached it there is no
        signal, and they stay as they are.
        """
        limit = np.log(self.reach(point.family)) + _length_box(point.family)[1] - 1e-9
        irrelevant = point.log_length[: len(limit)] >= limit
        irrelevant = np.append(irrelevant, np.zeros(len(point.log_length) - len(limit), dtype=bool))
        return (
            point.log_length
            if np.sum(irrelevant) == len(limit)
            else np.where(irrelevant, np.inf, point.log_length)
        )

    def start(self, family: str) -> _Point:
        """Return the start of step 2: signal 1, noise 0.2, lengths that depend on the family."""
        q = self.T.shape[1]
        lengths = np.log(0.7 * _FACTOR.get(family, 1.0) * self.reach(family))
        if family == "sum":
            lengths = np.append(lengths, 0.0)
        if family == "additive":
            lengths = np.append(lengths, np.full(len(lengths), _INITIAL_LOG_WEIGHT))
        return _Point(family, lengths, np.full(q, np.log(0.2)), np.full(q, np.log(0.2)))

    def ties(self, family: str, ard: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the parameter of the search that each length is, and how many inputs share it."""
        tie = self.category if ard else np.zeros_like(self.category)
        k = int(tie.max(initial=-1)) + 1
        inputs = np.ones(k) if ard else np.full(k, self.category.max(initial=-1) + 1.0)
        if family == "additive":
            return np.concatenate([tie, tie + k]), inputs
        if family != "sum":
            return tie, inputs
        return np.concatenate([tie, tie + k, [2 * k]]), np.concatenate([inputs, inputs])

    def report(self, point: _Point, unlimited: bool = False) -> Widths:
        """Return a point in the units of the user; see the function `unlimited`."""
        lengths = self.unlimited(point) if unlimited else point.log_length
        kernel = kernel_of_lengths(point.family, lengths)
        powers = _POWERS.get(point.family, (2,))
        gamma = np.zeros((len(powers), len(self.varying)))
        rates = np.atleast_2d(kernel.gamma)
        for row, power, own in zip(gamma, powers, rates, strict=True):
            with np.errstate(over="ignore", under="ignore"):
                for _ in range(power):
                    own = own / self.scale
                row[self.varying] = own
        if not np.any(self.varying):
            gamma[:] = 1.0  # all rows are equal: any number will do
        gamma_in_range(np.max(gamma), np.min(self.scale, initial=np.inf))
        relevance = np.zeros(len(self.varying))
        if np.any(self.varying):
            relevance[self.varying] = _relevance(kernel, self.X)
        return Widths(
            point.family,
            gamma if len(powers) == 2 else gamma[0],
            kernel.share,
            relevance,
            np.exp(point.log_noise),
            np.exp(point.log_lam),
            point.value,
            point.one_width,
            len(powers) * len(self.ties("", not point.one_width)[1]),
        )


def _length_box(family: str) -> tuple[float, float]:
    """Return the ends of the log length scales over the distance that they are compared with."""
    return _BOX_ADDITIVE if family == "additive" else _BOX_LENGTH


def categories(X: np.ndarray) -> np.ndarray:
    """Return the number of the categorical input that each column, scaled to [0, 1], belongs to.

    Adjacent columns of zeros and ones that are never one in the same row are the one-hot encoding
    of one categorical input, up to the column that completes it. Other columns are separate inputs.
    """
    number, taken = -1, None
    category = np.empty(X.shape[1], dtype=np.intp)
    for j, column in enumerate(X.T):
        level = (column == 1.0) if np.all((column == 0.0) | (column == 1.0)) else None
        if taken is None or level is None or np.any(taken & level):
            number, taken = number + 1, level
        else:
            taken = taken | level
        category[j] = number
        if taken is not None and np.all(taken):
            taken = None
    return category


@dataclass
class _Search:
    data: _Data
    bound: bool
    rng: np.random.Generator
    device: Device | None = None
    exact: bool = False  # whether no stage has centres
    reporter: Reporter = field(default_factory=Reporter)
    labels: bool = False
    memory: list[np.ndarray] = field(default_factory=list)  # that of exact evidence

    def __post_init__(self) -> None:
        self.order = self.rng.permutation(len(self.data.X))
        self.seed = int(self.rng.integers(2**31))
        # Each target has factorisations of its own, which go with the cube of their size.
        self.share = max(1, self.data.T.shape[1]) ** (-1 / 3)
        uses_all = len(self.order) <= int(self.share * _ALL.rows)
        first = _ALL if uses_all else _FIRST
        if self.labels:  # the evidence of their codes is no measure of what predicts classes
            first = first._replace(enough=_FIRST.enough)
        self.first = first._replace(rows=int(self.share * first.rows))
        self.refine_few, self.refine_exact = (
            stage._replace(rows=int(self.share * stage.rows))
            for stage in (_REFINE_FEW, _REFINE_EXACT)
        )
        n_inputs = int(self.data.category.max(initial=-1)) + 1
        rows = max(self.refine_exact.rows, int(self.share * _ROWS_PER_INPUT * n_inputs))
        self.refine_exact = self.refine_exact._replace(rows=min(rows, len(self.order)))

    def points(self, family: str, ard: bool | None, every: bool = False) -> list[_Point]:
        """Return the learnt point of a family; for "auto" the best smooth one, and the sum.

        With ``ard=None`` the first of them is preceded by the one with a single width, where there
        are few rows for each length, or `every` kernel is wanted.
        """
        lengths = int(self.data.category.max(initial=-1)) + 1
        if self.data.nothing_to_learn:
            return [self.data.start(AUTO_FAMILIES[0] if family == "auto" else family)]
        if ard is None:
            points = self.points(family, True, every)
            if self.reporter.budget.over:
                return points
            one_width_too = lengths > 1 and (every or len(self.data.X) < _FEW_ROWS * lengths)
            if one_width_too and (family == "sum" or points[0].family != "sum"):
                points = [self.learn(points[0].family, ard=False), *points]
            return points
        parts_apart = family == "sum" and self.labels and not ard
        alone = family not in ("auto", "sum") or parts_apart
        first = self.learn(family if alone else "matern52", ard)
        if alone or (family == "auto" and self.reporter.budget.over):
            return [first]
        rough = self.sum(first)
        points = []
        lost = not _found_no_signal(first) and first.value < rough.value - _DISCARD_MARGIN_NATS
        if family == "auto" and (every or not lost):  # the others are nearer to it than the sum
            points = self.smooth(first, ard, every)
        if not (every or any(map(_found_no_signal, points))):  # which saw more rows
            points = [point for point in points if point.value > rough.value - _DISCARD_MARGIN_NATS]
        # With fewer rows it is refined on all of them, or is on all of them already.
        if self.exact or len(self.data.X) <= self.refine_few.rows:
            return [*self.best_smooth(points), rough]
        rough = self.ascend(rough, _TRY)
        points.sort(key=_value, reverse=True)
        tried = [self.ascend(point, _TRY) for point in points[:1]]
        if not every and tried and tried[0].value < rough.value - _DISCARD_MARGIN_NATS:
            return [rough]  # the others are nearer to this one than this one to the sum
        tried += [self.ascend(point, _TRY) for point in points[1:]]
        return [*self.best_smooth(tried), rough]

    def smooth(self, middle: _Point, ard: bool, every: bool) -> list[_Point]:
        """Return the smooth families, of which Matern 5/2 is learnt already.

        Where Matern 3/2, which is rougher, is better, the Gaussian kernel, which is smoother, would
        be worse, and it is not learnt.
        """
        rougher = self.learn("matern32", ard)
        better = rougher.value > middle.value and not _found_no_signal(middle)
        smoother = [] if better and not every else [self.learn("rbf", ard)]
        return [*smoother, middle, rougher]

    def best_so_far(self, points: list[_Point]) -> _Point:
        """Return the best of points of a search that has no time left to compare them."""
        return max(points, key=lambda point: point.value - self.penalty(point))

    def best_smooth(self, points: list[_Point]) -> list[_Point]:
        """Return the best of these points, if there are any (step 3)."""
        if self.exact or len(self.data.X) <= self.first.rows:
            return sorted(points, key=_value)[-1:]
        if len(self.data.X) <= self.refine_few.rows:
            points = [self.ascend(point, _TRY) for point in points]
        return [points[int(np.argmax(self.on_all_rows(points)))]] if len(points) > 1 else points

    def sum(self, smooth: _Point) -> _Point:
        """Return the sum kernel, from the lengths of a smooth kernel or from the flat start."""
        flat = self.data.start("sum")._replace(one_width=smooth.one_width)
        d = self.data.X.shape[1]
        lengths = np.concatenate(
            [
                smooth.log_length + _INITIAL_LENGTH_FACTOR,
                flat.log_length[d:-1],
                [_INITIAL_ROUGH_LOGIT],
            ]
        )
        starts = smooth._replace(family="sum", log_length=lengths), flat
        race = self.first._replace(evaluations=_RACE)
        return self.ascend(
            max((self.ascend(start, race) for start in starts), key=_value), self.first
        )

    def penalised_evidence(self, points: list[_Point], refined: bool) -> np.ndarray:
        """Return evidences of the same rows minus the penalties of the points.

        On some of the rows, as all kernels of an exact process see them, a penalty is that part of
        itself: the evidence of all rows has the differences of some of them so many times.
        """
        stage = self.refine_few if refined else self.first
        n, penalties = len(self.data.X), np.array([self.penalty(p) for p in points])
        values = [p.value for p in points]
        if self.exact and n > stage.rows:
            rows = self.refine_exact.rows if refined else self.first.rows
            return np.subtract(values, penalties * (rows / n))
        if len(points) > 1 and n > stage.rows:
            values = self.on_all_rows(points)
        return np.subtract(values, penalties)

    def within_margin(
        self, points: list[_Point], refined: bool, discard: float = _DISCARD_MARGIN_NATS
    ) -> list[_Point]:
        """Return the points that may be chosen, of points from the plainest on."""
        values = self.penalised_evidence(points, refined)
        behind = 0.0 if refined else _REFINE_MARGIN_NATS
        kept = values >= np.maximum.accumulate(values) - behind
        kept &= values > np.max(values) - discard
        return [point for point, is_kept in zip(points, kept, strict=True) if is_kept]

    def penalty(self, point: _Point) -> int:
        """Return a nat for each length, and for the share of a sum.

        A parameter without effect gains half a nat by chance, and loses as much on new rows.
        """
        lengths = len(self.data.ties(point.family, not point.one_width)[1])
        return lengths + (point.family == "sum")

    def refine(self, point: _Point) -> _Point:
        """Refine a point on more rows (step 4)."""
        n = len(self.data.X)
        if n <= self.first.rows or self.data.nothing_to_learn:
            return point
        if n <= self.refine_few.rows:
            return self.ascend(point, self.refine_few)
        return self.ascend(point, self.refine_exact if self.exact else _REFINE)

    def best_for_local_process(self, points: list[_Point]) -> _Point:
        """Return the best of these points by exact evidence, refined on more rows."""
        flat = [
            self.data.start("sum")._replace(one_width=point.one_width)
            for point in points
            if point.family == "sum"
        ]
        points = [self.ascend(point, _PROCESS[0]) for point in [*points, *flat]]
        best = max(points, key=lambda point: point.value - self.penalty(point))
        return self.ascend(best, _PROCESS[1])

    def nystroem(self, family: str, stage: Stage) -> NystroemEvidence:
        """Return the evidence on the rows of a stage, with its own centres.

        The centres are the same for all families and do not depend on earlier results, so that a
        kernel among several has the widths that it has by itself.
        """
        data, rng = self.data, np.random.default_rng((self.seed, stage.rows, stage.centres))
        rows = np.sort(self.order[: stage.rows])
        centres = rng.permutation(rows[data.distinct[rows]])[: int(self.share * stage.centres)]
        return NystroemEvidence(
            data.X[rows],
            data.T[rows],
            data.X[centres],
            family,
            weight=data.subset_weight(rows),
            bound=self.bound,
            device=self.device,
        )

    def learn(self, family: str, ard: bool) -> _Point:
        """Learn a family from the flat start (step 2), with twice the rows without a signal."""
        start = self.data.start(family)._replace(one_width=not ard)
        if family == "sum" and self.labels and not ard:
            start.log_length[: self.data.X.shape[1]] = np.log(self.data.l0) + _INITIAL_LONG
        point = self.ascend(start, self.first)
        if _found_no_signal(point) and len(self.data.X) > self.first.rows:
            larger = self.first._replace(rows=2 * self.first.rows)
            point = self.ascend(start, larger)
        return point

    def ascend(self, point: _Point, stage: Stage) -> _Point:
        """Maximise evidence and prior from a point."""
        data, family, budget = self.data, point.family, self.reporter.budget
        if stage.rows > self.first.rows and budget.over:
            return point
        evidence, point = self.evidence_at(point, stage)
        tie, inputs = data.ties(family, not point.one_width)
        q, k, n_lengths = data.T.shape[1], int(tie[-1]) + 1, len(inputs)
        first = np.unique(tie, return_index=True)[1]
        reach = data.reach(family)[first[:n_lengths]]
        merged = None  # no lengths are tied; the products would be cubic in their number
        if not np.array_equal(tie, np.arange(k)):
            merged = np.zeros((len(tie) + 2 * q, k + 2 * q))
            merged[np.arange(len(merged)), np.append(tie, k + np.arange(2 * q))] = 1.0

        def parts(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            return theta[:k][tie], theta[k : k + q], theta[k + q :]

        def prior(theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
            pull = np.zeros(len(theta))
            pull[:n_lengths] = _PRIOR * inputs * np.square(reach * np.exp(-theta[:n_lengths]))
            value = float(np.sum(theta[k + q :]) - 0.5 * np.sum(pull))
            curvature = 2.0 * pull
            if family == "additive":
                curvature[n_lengths:k] = _WEIGHT_RATE * np.exp(theta[n_lengths:k])
                pull[n_lengths:k] = -curvature[n_lengths:k]
                value += float(np.sum(pull[n_lengths:k]))
            pull[k + q :] = 1.0  # flat in the noise variance, as `Noise.log_posterior`
            return value, pull, curvature

        def say(value: float) -> None:
            what = f"length scales of {family} on {min(stage.rows, len(data.X))} rows"
            self.reporter.say(f"learning {what}: log evidence {value:.6g}")

        def posterior(theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
            value, gradient, information = evidence(*parts(theta))
            more, pull, curvature = prior(theta)
            say(value + more)
            if merged is not None:
                gradient, information = merged.T @ gradient, merged.T @ information @ merged
            return value + more, gradient + pull, information + np.diag(curvature)

        def height(theta: np.ndarray) -> float:
            value = evidence.value(*parts(theta)) + prior(theta)[0]
            say(value)
            return value

        start = point.log_length[first]
        box = [tuple(np.log(r) + np.array(_length_box(family))) for r in reach]
        box += [_BOX_SHARE] * (k - n_lengths) + [LOG_LAM] * q + [_BOX_NOISE] * q
        low, high = np.array(box).T
        theta = np.clip(np.concatenate([start, point.log_lam, point.log_noise]), low, high)
        damping = np.append(np.full(k + q, _DAMPING), np.full(q, _DAMPING_NOISE))
        theta, value = scoring(
            posterior, theta, low, high, damping, stage.evaluations, stage.enough, budget, height
        )
        noise_only = self.noise_only_evidence(stage)
        if value < noise_only and not budget.over:
            # Functions as narrow as the distance between rows are equivalent to noise, and an RVM
            # would select one for each row: without a signal they are as wide as possible.
            start[:n_lengths] = high[:n_lengths]
            theta = np.concatenate([start, np.full(q, LOG_LAM[1]), np.zeros(q)])
            return _Point(family, *parts(theta), noise_only, point.one_width)
        return _Point(family, *parts(theta), value, point.one_width)

    def evidence_at(self, point: _Point, stage: Stage) -> tuple[_Parts | NystroemEvidence, _Point]:
        """Return the evidence that a stage maximises, and the point where it begins."""
        if stage.centres == 0:
            sizes = _EXACT_PARTS if self.exact else _LOCAL_PARTS
            rows = self.order[: stage.rows]
            return _Parts(self.data, point.family, rows, *sizes, self.memory), point
        evidence = self.nystroem(point.family, stage)
        # Centres leave some of the function to the noise, and steps in its log are short.
        best = evidence.profile(point.log_length, point.log_lam)
        return evidence, point._replace(log_lam=best.log_lam, log_noise=best.log_noise)

    def report(self, point: _Point) -> Widths:
        """Return a point in the units of the user.

        Inputs of an exact process whose length has reached its limit have an infinite one, unless
        that costs evidence: a linear effect beside other smooth ones has a long length as well.
        """
        if not self.exact or not np.any(np.isinf(lengths := self.data.unlimited(point))):
            return self.data.report(point)
        evidence, start = self.evidence_at(point, self.first)
        scale = start.log_lam, start.log_noise
        cost = evidence.value(start.log_length, *scale) - evidence.value(lengths, *scale)
        return self.data.report(point, unlimited=not cost > _RELEVANT_NATS)

    def noise_only_evidence(self, stage: Stage) -> float:
        """Return the evidence of a model of noise alone, on the rows of a stage."""
        rows, data = self.order[: stage.rows], self.data
        weight = data.subset_weight(rows)
        weight = np.ones(len(rows)) if weight is None else weight
        squares = np.square(data.T[rows]).sum(axis=1) + data.T.shape[1] * np.log(2.0 * np.pi)
        return -0.5 * float(weight @ squares)

    def on_all_rows(self, points: list[_Point]) -> list[float]:
        """Return evidences on the same rows, as many as time allows (step 3)."""
        evidence = self.nystroem(points[0].family, _CHOICE)
        values = []
        for point in points:
            evidence.family = point.family
            values.append(evidence.profile(point.log_length, point.log_lam).value)
        return values


def scoring(
    function: Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]],
    x: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    damping: np.ndarray,
    evaluations: int,
    least_gain: float,
    budget: Budget | None = None,
    height: Callable[[np.ndarray], float] | None = None,
) -> tuple[np.ndarray, float]:
    """Return a local maximum within a box, found by damped Newton steps, and its value.

    `function` returns its value, its gradient and an information matrix, which is positive
    semidefinite and near minus the second derivatives; `damping` is added to it at first. The
    search stops where the predicted gain of a step is below `least_gain`, after the given number of
    evaluations, or when the budget is over. LinAlgError counts as -inf. `height` returns the value
    alone, which is enough for the last evaluation.
    """
    budget = budget or Budget()

    def evaluate(x: np.ndarray, is_last: bool = False) -> tuple[float, np.ndarray, np.ndarray]:
        nothing = np.zeros_like(x), np.zeros((len(x), len(x)))
        try:
            return (height(x), *nothing) if is_last and height is not None else function(x)
        except np.linalg.LinAlgError:
            return -np.inf, *nothing

    value, slope, information = evaluate(x)
    for remaining in range(evaluations - 1, 0, -1):
        if not value > -np.inf or budget.over:
            break
        free = np.where(slope > 0.0, x < high, x > low)
        matrix = information + np.diag(damping)
        while True:
            step = np.zeros_like(x)
            step[free] = _solve(matrix[np.ix_(free, free)], slope[free])
            step *= min(1.0, _LONGEST_STEP / np.max(np.abs(step), initial=_LONGEST_STEP))
            new = np.clip(x + step, low, high)
            cut, step = free & (new != x + step), new - x
            promise = slope @ step - 0.5 * (step @ information @ step)
            if promise >= least_gain or not np.any(cut):
                break
            free &= ~cut  # the others counted on what is beyond the limits
        if not promise >= least_gain:
            break
        trial = evaluate(new, is_last=remaining == 1)
        gain = trial[0] - value
        if gain > 0.0:
            x, (value, slope, information) = new, trial
        good = gain / promise
        factor = 0.2 if good > 0.75 else 1.0 if good > 0.25 else 3.0 if gain > 0.0 else 10.0
        damping = factor * damping
    return x, value


def _solve(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return A^-1 b, or the shortest solution where A is singular."""
    try:
        return np.linalg.solve(A, b)
    except np.linalg.LinAlgError:
        return np.linalg.lstsq(A, b)[0]


class _Parts:
    """Exact evidence of some rows; for many rows the sum of the evidences of disjoint parts."""

    def __init__(
        self,
        data: _Data,
        family: str,
        rows: np.ndarray,
        whole: int,
        part: int,
        memory: list[np.ndarray],
    ) -> None:
        single = len(rows) <= whole
        parts = np.array_split(rows, 1 if single else max(2, len(rows) // part))
        self.parts = [
            ExactEvidence(
                data.X[part],
                data.T[part],
                family,
                weight=data.subset_weight(part),
                memory=memory,
                single=True,
            )
            for part in map(np.sort, parts)
        ]
        self.n = sum(part.n for part in self.parts)

    def __call__(self, *theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        value, gradient, information = self.parts[0](*theta)
        for part in self.parts[1:]:
            more = part(*theta)
            value, gradient = value + more[0], gradient + more[1]
            information = information + more[2]
        return value, gradient, information

    def value(self, *theta: np.ndarray) -> float:
        """Return the evidence alone."""
        return sum(part.value(*theta) for part in self.parts)


def _standardised(A: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return columns of mean 0 and variance 1 (or all 0), and their standard deviations."""
    size = np.max(np.abs(A), axis=0, initial=0.0)
    A = A / np.where(size > 0.0, size, 1.0)
    A = A - np.average(A, axis=0, weights=weight)
    spread = np.sqrt(np.average(A * A, axis=0, weights=weight))
    spread[spread < 1e-14] = 0.0  # rounding of a constant
    return A / np.where(spread > 0.0, spread, 1.0), spread * size


def _robust_std(A: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return standard deviations estimated from quartiles; 1 where the quartiles are equal."""
    step = 1 + len(A) // _QUANTILE_ROWS
    A, weight = A[::step], weight[::step]
    order = np.argsort(A, axis=0)
    share = np.cumsum(weight[order], axis=0) / np.sum(weight)
    ends = [np.argmax(share >= p, axis=0)[None] for p in (0.25, 0.75)]
    low, high = (np.take_along_axis(A, np.take_along_axis(order, e, 0), 0)[0] for e in ends)
    return np.where(high > low, (high - low) / 1.349, 1.0)


def _relevance(kernel: StationaryKernel, X: np.ndarray) -> np.ndarray:
    """Return how much a function varies along each input over its range, the largest 1.

    For one family it is the inverse length. For a sum it is the variance of f(x) - f(x'), where x'
    differs from x in that input alone, averaged over pairs of rows.
    """
    if np.shape(kernel.gamma)[:-1] != (2,):
        inverse = np.asarray(kernel.gamma)
        inverse = inverse if kernel.family == "laplacian" else np.sqrt(inverse)
        return inverse / np.max(inverse)
    change = (X - np.roll(X, len(X) // 2, axis=0))[:, :, None]
    none = np.zeros((1, 1))
    variance = [
        1.0
        - StationaryKernel(kernel.family, gamma[:, None], kernel.share)
        .bind(none)(change[:, j])
        .mean()
        for j, gamma in enumerate(np.asarray(kernel.gamma).T)
    ]
    return np.asarray(variance) / np.max(variance)
