"""Folds of labelled rows, by which probabilities are calibrated."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from .data import Data, is_discrete
from .rows import row_hashes

N_FOLDS = 5
# Different inputs of replicates up to which there are twice as many folds: a fifth of 25 inputs is
# missed much more than a new one. On 80 draws the log-loss falls by .003.
_FEW_INPUTS = 100
_MOST_DENSE = 2e7  # elements of a sparse matrix that is made dense to sort its rows


class LabelFolds(NamedTuple):
    """Folds of observations.

    Attributes
    ----------
    rows : array of shape (n_pairs,)
        The first row of each pair of inputs and class, sorted by the inputs.
    weight : array of shape (n_pairs,)
        Number of observations of each pair.
    held_out : array of shape (n_folds, n_pairs)
        How many of them each fold leaves out; zero in all folds for a class of one observation.
    """

    rows: np.ndarray
    weight: np.ndarray
    held_out: np.ndarray


class Repeats(NamedTuple):
    """How often rows of equal inputs occur, and why.

    Attributes
    ----------
    n_different : int
        Number of rows with different inputs.
    replicates : bool
        Whether inputs were measured several times, so that new rows have inputs of their own. Rows
        of discrete inputs are equal by chance instead, and new rows will repeat them.
    """

    n_different: int
    replicates: bool

    @property
    def n_folds(self) -> int:
        """Number of folds where nothing but the fit is repeated in each."""
        few = self.replicates and self.n_different <= _FEW_INPUTS
        return 2 * N_FOLDS if few else N_FOLDS


def find_repeats(data: Data, X: Any, weight: np.ndarray) -> Repeats:
    """Return which rows are equal; X and `weight` are those of the rows of `data` with a weight."""
    position = row_positions(X)
    _, first, number = np.unique(position, return_index=True, return_inverse=True)
    total = np.bincount(number, weights=weight)
    repeated = len(first) < len(position)
    replicates = repeated and not is_discrete(data, data.used[first], total)
    return Repeats(len(first), replicates)


def label_folds(
    X: Any,
    codes: np.ndarray,
    weight: np.ndarray,
    rng: np.random.Generator,
    replicates: bool = False,
    n_folds: int = N_FOLDS,
) -> LabelFolds:
    """Return the folds of the observations, every class in all of them.

    Rows that still repeat after `merge_labelled_duplicates` are observations like all others, whose
    inputs are equal by chance, and new rows will repeat them as well. So they are spread over the
    folds. A weight that is a whole number is that many of them, so that weights and repetition mean
    the same; other weights stay together. Rows of equal inputs that are `replicates` are left out
    together: those that remain would tell the probability at inputs that new rows do not have. The
    folds do not depend on the order of the rows, nor on the numbers of the classes.
    """
    pairs = np.column_stack([row_positions(X), codes])
    _, first, number = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    total = np.bincount(number.ravel(), weights=weight)
    if replicates:
        return LabelFolds(first, total, _replicate_folds(pairs[first], total, rng, n_folds))
    units = np.where(total == np.round(total), total, 1.0)
    key, held_out = rng.random(len(first)), np.zeros((n_folds, len(first)))
    for c in np.unique(codes):
        own = np.flatnonzero(codes[first] == c)
        own = own[np.argsort(key[own])]
        end = np.cumsum(units[own])
        if end[-1] > 1.0:
            for f, out in enumerate(held_out):
                # Of units 0, 1, 2, ... one in each `n_folds`, beginning with f.
                upto = np.ceil((np.append(0.0, end) - f) / n_folds)
                out[own] = np.diff(np.maximum(upto, 0.0)) * (total / units)[own]
    return LabelFolds(first, total, held_out)


def _replicate_folds(
    pairs: np.ndarray, total: np.ndarray, rng: np.random.Generator, n_folds: int
) -> np.ndarray:
    """Return how many observations of each pair (inputs, class) a fold leaves out: all or none.

    Inputs are dealt to the folds by turns, those with the same most frequent class one after the
    other.
    """
    inputs, codes = pairs[:, 0], pairs[:, 1]
    count = np.zeros((inputs.max() + 1, codes.max() + 1))
    count[inputs, codes] = total
    order = np.lexsort((rng.random(len(count)), np.argmax(count, axis=1)))
    fold = np.empty(len(count), dtype=np.intp)
    fold[order] = np.arange(len(count)) % n_folds
    return np.equal.outer(np.arange(n_folds), fold[inputs]) * total


def row_positions(X: Any) -> np.ndarray:
    """Return the position of each row among the sorted distinct ones; equal rows share it."""
    if issparse(X) and X.shape[0] * X.shape[1] > _MOST_DENSE:
        return np.unique(row_hashes(X), return_inverse=True)[1].ravel()
    dense = X.toarray() if issparse(X) else X
    return np.unique(dense, axis=0, return_inverse=True)[1].ravel()
