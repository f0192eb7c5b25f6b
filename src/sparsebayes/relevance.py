"""The inputs of a fitted function: how much of its variance each explains, and their range.

The total Sobol index of input j is the share of the variance of f that remains when all inputs but
j are known. By Jansen's estimator it is E[(f(x) - f(x'))^2] / (2 var f), where x' is x with input j
taken from another row. Linear effects and interactions count, and an input on which f does not
depend has zero. Under inputs that depend on each other, x' has the marginal distribution of j.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from scipy.sparse import issparse

from .data import Data
from .fitting import Fit, Note
from .input_range import InputRange, Values, is_straight
from .joint_range import MOST_INPUTS as JOINT_INPUTS
from .joint_range import MOST_ROWS as JOINT_ROWS
from .joint_range import JointRange
from .kernels import is_option
from .near_copies import share_of_near_copies
from .posterior import SharedEffect, shared_effects
from .rows import row_hashes

if TYPE_CHECKING:
    from .labels import LabelFit
    from .problem import CandidateProblem

    F = TypeVar("F", Fit, LabelFit)

MOST_ROWS = 500  # training rows that represent the distribution of the inputs
_LEAST_ROWS = 64
_MATTERS = 0.01  # relevance from which a linear function is said to depend on an input
_SURELY_NOT = 0.005  # relevance of few rows below which more of them are not looked at
_MANY_COPIES = 0.2  # share of near copies from which a fit warns
_LOADED = 2e6  # numbers in X up to which rows are loaded: their checks take .3 s
_WORK = 4e8  # products that may be spent: rows x functions x inputs, for each input


def with_inputs(
    fit: F,
    problem: CandidateProblem,
    *,
    linear: bool,
    pooled: bool = False,
    is_member: bool = False,
) -> F:
    """Return the fit with the range of its training rows, and the relevance of each input.

    Parameters
    ----------
    fit : Fit or LabelFit
        The result of a fit of `problem`.
    problem : CandidateProblem
        The problem as it was given. A precomputed kernel has no inputs, and the fit stays as it is.
    linear : bool
        Whether the function is a weighted sum of the columns of X.
    pooled : bool, default=False
        As in `function_relevance`.
    is_member : bool, default=False
        Whether the fit is one of several to the same rows, which are searched for copies once.
    """
    if is_option(problem.spec.family, "precomputed"):
        return fit
    problem.reporter.say("relevance of the inputs")
    data = _in_memory(problem.rows)
    shown, compared = _chosen_rows(fit, data, linear)
    numbers = np.union1d(shown, compared)
    summary = Values.without_gaps if is_straight(fit.kernel) else Values.of
    values, X = data.summary_and_rows(summary, numbers)
    relevance = _relevance(fit, X[np.isin(numbers, shown)], linear, pooled)
    matters = np.flatnonzero(relevance >= _MATTERS)
    effects = _effects(fit, data, matters) if isinstance(fit, Fit) else None
    input_range = InputRange.from_values(values, fit.kernel, matters, labels=effects is None)
    notes: tuple[Note, ...] = () if is_member else copy_notes(data)
    if len(compared):
        X = X[np.isin(numbers, compared)]
        different = np.unique(row_hashes(X), return_index=True)[1]
        input_range = replace(input_range, joint=JointRange.from_rows(X[different], matters))
    input_range = replace(input_range, effects=effects or ())
    attributes = {**fit.attributes, "feature_relevance_": relevance}
    return replace(fit, input_range=input_range, attributes=attributes, notes=(*fit.notes, *notes))


def copy_notes(data: Data) -> tuple[Note, ...]:
    """Return the warning of rows that copy others up to small changes, where there are many."""
    share = share_of_near_copies(data)
    if share <= _MANY_COPIES:
        return ()
    message = (
        f"{100 * share:.0f} % of the rows are nearly equal to another row, or near it with exactly "
        "its target. If these are copies, as oversampling and augmentation make them, they share "
        "their noise, and the error bars are too narrow: fit one row of each."
    )
    return (Note(message),)


def _effects(fit: Fit, data: Data, columns: np.ndarray) -> tuple[SharedEffect, ...]:
    """Return the effects that rows with the same value of one of these inputs share.

    The process of a given width may be far from the data, and says nothing about them.
    """
    kernel, noise, used = fit.kernel.kernel, fit.kernel.noise_to_signal, data.used
    if kernel is None or not fit.kernel.learnt or not noise > 0.0 or not data.in_memory:
        return ()
    weight = data.row_weight
    return shared_effects(kernel, data.X[used], data.y[used], weight[used], noise, columns)


def _in_memory(data: Data) -> Data:
    """Return the data with few rows in memory, where all checks are possible."""
    size = data.X.shape[0] * data.X.shape[1]
    return data.loaded() if size <= _LOADED else data


def _chosen_rows(fit: Fit | LabelFit, data: Data, linear: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that show the distribution of the inputs, and those that are compared."""
    used, n_features = data.used, data.X.shape[1]
    n_shown = MOST_ROWS if linear else rows_for(len(fit.active), n_features)
    n_compared = 0 if n_features > JOINT_INPUTS or issparse(data.X) else JOINT_ROWS
    return _some(used, n_shown), _some(used, n_compared)


def _some(rows: np.ndarray, most: int) -> np.ndarray:
    """Return at most this number of rows, chosen at random, in ascending order."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, most, replace=False))


def _relevance(fit: Fit | LabelFit, X: Any, linear: bool, pooled: bool) -> np.ndarray:
    """Return the share of the variance of the function that each input explains, from some rows."""
    if not linear:
        return function_relevance(fit.values, X, pooled)
    coef = np.atleast_2d(fit.public_attributes(X.shape[1], True)["coef_"])
    relevance, active = np.zeros(X.shape[1]), np.flatnonzero(np.any(coef != 0.0, axis=0))
    X = X[:, active]
    X = X.toarray() if issparse(X) else X
    relevance[active] = linear_relevance(coef[:, active], X, pooled)
    return relevance


def rows_for(n_functions: int, n_features: int) -> int:
    """Return the number of rows with which the relevance of all inputs costs little."""
    affordable = _WORK / (max(1, n_functions) * max(1, n_features) ** 2)
    return int(np.clip(affordable, _LEAST_ROWS, MOST_ROWS))


def function_relevance(
    function: Callable[[np.ndarray], np.ndarray], X: np.ndarray, pooled: bool = False
) -> np.ndarray:
    """Return the total Sobol index of each input, from the values of a function.

    Parameters
    ----------
    function : callable
        Returns the values at rows, of shape (n,) or (n, n_outputs).
    X : array of shape (n, n_features)
        Rows of the distribution of the inputs.
    pooled : bool, default=False
        Whether the variances of outputs add up; otherwise each output counts the same.

    Returns
    -------
    relevance : array of shape (n_features,)
        Numbers from 0 to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.relevance import function_relevance
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    >>> relevance = function_relevance(lambda X: 2 * X[:, 0] + X[:, 1], X)
    >>> bool(np.all(np.abs(relevance - [0.8, 0.2, 0.0]) < 0.1))
    True
    """
    n, n_features = X.shape
    values = np.asarray(function(X), dtype=np.float64).reshape(n, -1)
    size = float(np.max(np.abs(values), initial=0.0)) or 1.0  # squares of 1e160 would overflow
    values = values / size
    order = np.random.default_rng(0).permutation(n)
    other = np.empty(n, dtype=int)
    other[order] = np.roll(order, 1)  # no row keeps its own value
    squares, variance = np.zeros((n_features, values.shape[1])), np.var(values, axis=0)

    def gaps(j: int, rows: np.ndarray) -> np.ndarray:
        changed = X[rows]
        changed[:, j] = X[other[rows], j]
        new = np.asarray(function(changed), dtype=np.float64).reshape(len(rows), -1)
        return np.square(values[rows] - new / size)

    for j in map(int, np.flatnonzero(np.ptp(X, axis=0) > 0.0)):
        rows = order[X[order, j] != X[other[order], j]]  # the others keep their values
        first = gaps(j, rows[:_LEAST_ROWS])
        squares[j] = np.mean(first, axis=0) * (len(rows) / n)
        if np.all(_shares(0.5 * squares[[j]], variance, pooled) < _SURELY_NOT):
            continue  # further rows would not make it matter
        if len(rows) > _LEAST_ROWS:
            others = gaps(j, rows[_LEAST_ROWS:])
            squares[j] = (np.sum(first, axis=0) + np.sum(others, axis=0)) / n
    return _shares(0.5 * squares, variance, pooled)


def linear_relevance(coef: np.ndarray, X: np.ndarray, pooled: bool = False) -> np.ndarray:
    """Return the total Sobol index of each column of X in the linear functions X @ coef.T.

    Parameters
    ----------
    coef : array of shape (n_outputs, n_features)
        Weights.
    X : array of shape (n, n_features)
        Rows of the distribution of the inputs.
    pooled : bool, default=False
        As in `function_relevance`.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.relevance import linear_relevance
    >>> X = np.random.default_rng(0).standard_normal((1000, 2))
    >>> linear_relevance(np.array([[2.0, 1.0]]), X).round(1)
    array([0.8, 0.2])
    """
    # In units of the largest values: squares of 1e160 overflow.
    units = np.max(np.abs(X), axis=0, initial=0.0)
    X, weights = X / np.where(units > 0.0, units, 1.0), coef.T * units[:, None]
    weights = weights / (np.max(np.abs(weights), initial=0.0) or 1.0)
    parts = np.square(weights * np.std(X, axis=0)[:, None])
    return _shares(parts, np.var(X @ weights, axis=0), pooled)


def _shares(parts: np.ndarray, total: np.ndarray, pooled: bool) -> np.ndarray:
    """Return parts over totals, at most 1, over the outputs that vary."""
    varies = (total > 0.0) & np.isfinite(total)
    if not np.any(varies):
        return np.zeros(len(parts))
    parts, total = parts[:, varies], total[varies]
    if pooled:
        parts, total = np.sum(parts, axis=1, keepdims=True), np.sum(total, keepdims=True)
    return np.mean(np.minimum(parts / total, 1.0), axis=1)
