"""The group spike-and-slab prior: which columns belong together, and slab against spike.

    z_g ~ Bernoulli(p0_g),   w_g | z_g = 1 ~ N(0, v0_g I),   w_g | z_g = 0  =  0

EP and Gibbs share what is here: the groups, and the comparison of slab and spike for a block of
weights whose likelihood, everything else held, is proportional to exp(r'w - w'Bw/2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .linalg.blocks import factor, log_diagonal, times, transposed


@dataclass(frozen=True)
class SlabFit:
    """The slab's posterior N(mean, Sigma) for each block, and its odds against the spike.

    `root` is the inverse of the lower Cholesky factor of Sigma^-1, so Sigma = root' root.
    """

    log_bayes_factor: np.ndarray
    mean: np.ndarray
    root: np.ndarray
    fit: np.ndarray  # r'mean

    def second_moment(self) -> np.ndarray:
        """E|w|^2 under the slab."""
        return np.einsum("gij,gij->g", self.root, self.root) + np.sum(self.mean**2, axis=1)


def fit_slab(B: np.ndarray, r: np.ndarray, v0: np.ndarray) -> SlabFit:
    """Slab posterior and log Bayes factor (slab over spike) of every block.

    Sigma = (B + I/v0)^-1, mu = Sigma r, log BF = -1/2 log|I + v0 B| + 1/2 r'mu.

    Parameters
    ----------
    B : array of shape (n_blocks, k, k)
    r : array of shape (n_blocks, k)
    v0 : array of shape (n_blocks,)

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.priors import fit_slab
    >>> fit = fit_slab(np.array([[[1.0]]]), np.array([[2.0]]), np.array([1.0]))
    >>> fit.mean, fit.log_bayes_factor.round(4)
    (array([[1.]]), array([0.6534]))
    """
    k = r.shape[1]
    E = B + np.eye(k) / v0[:, None, None]
    L, root = factor(E)
    half = times(root, r)
    fit = np.einsum("gi,gi->g", half, half)
    log_bayes_factor = 0.5 * fit - log_diagonal(L) - 0.5 * k * np.log(v0)
    return SlabFit(log_bayes_factor, times(transposed(root), half), root, fit)


def overlapping_groups(groups: Any, n_features: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number groups as `group_index` does; lists may share columns, which are then repeated.

    Returns
    -------
    columns : array of int
        Each column once for each of its groups.
    group_of : array of int
        The group of each of them.
    names : array of shape (n_groups,)

    Examples
    --------
    >>> from sparsebayes.priors import overlapping_groups
    >>> overlapping_groups([[0, 1], [1, 2]], 3)
    (array([0, 1, 1, 2]), array([0, 0, 1, 1]), array([0, 1]))
    """
    if not is_lists(groups):
        return np.arange(n_features), *group_index(groups, n_features)
    group_of = _from_lists(groups, n_features, overlap=True)
    if np.all(group_of >= 0):
        return np.arange(n_features), group_of, np.arange(len(groups))
    lists = [np.sort(np.asarray(g, dtype=np.intp)) for g in groups]
    owner = np.repeat(np.arange(len(lists)), [len(g) for g in lists])
    return np.concatenate(lists), owner, np.arange(len(lists))


def group_index(groups: Any, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """The group of each column (0 to n_groups - 1) and the name of each group.

    Parameters
    ----------
    groups : array-like of n_features labels, list of lists of column indices, or None
        None puts each column into a group of its own. Lists of indices must name every column
        exactly once; groups are then named 0, 1, ...; labels name groups in sorted order.
    n_features : int

    Examples
    --------
    >>> from sparsebayes.priors import group_index
    >>> group_index(["b", "a", "b"], 3)
    (array([1, 0, 1]), array(['a', 'b'], dtype='<U1'))
    >>> group_index([[0, 2], [1]], 3)
    (array([0, 1, 0]), array([0, 1]))
    """
    if groups is None:
        return np.arange(n_features), np.arange(n_features)
    if isinstance(groups, str | Mapping) or not hasattr(groups, "__len__"):
        raise ValueError(
            "groups must be one label per column, a list of lists of column indices (of a dict: "
            f"list(groups.values())) or None; got {groups!r}."
        )
    if is_lists(groups):
        return _from_lists(groups, n_features), np.arange(len(groups))
    for number, group in enumerate(groups):
        if _is_list(group) or group is None or group != group:
            raise ValueError(
                f"groups[{number}] is {group!r}: pass one label per column (none missing), or "
                "lists of column indices only, with a single column as [index]."
            )
    labels = np.asarray(groups)
    if labels.ndim != 1 or len(labels) != n_features:
        raise ValueError(
            f"groups has {len(groups)} labels, but X has {n_features} columns. Pass one label "
            "per column, or a list of lists of column indices."
        )
    names, group_of = np.unique(labels, return_inverse=True)
    return group_of, names


def is_lists(groups: Any) -> bool:
    """Return whether groups are given by lists of their columns."""
    entries = hasattr(groups, "__len__") and not isinstance(groups, str | Mapping)
    return entries and len(groups) > 0 and all(_is_list(g) for g in groups)


def _is_list(group: Any) -> bool:
    return isinstance(group, Sequence | np.ndarray | range) and not isinstance(group, str)


def _from_lists(groups: Any, n_features: int, overlap: bool = False) -> np.ndarray:
    """The group of each column; -2 where it has several, if that may be."""
    group_of = np.full(n_features, -1, dtype=np.intp)
    for number, group in enumerate(groups):
        columns = np.asarray(group)
        if columns.ndim != 1 or columns.size == 0 or columns.dtype.kind not in "iu":
            raise ValueError(
                f"groups[{number}] must be a non-empty list of column indices, or of column "
                f"names if X is a data frame; got {group!r}."
            )
        invalid = columns[(columns < 0) | (columns >= n_features)]
        if invalid.size:
            raise ValueError(
                f"groups[{number}] contains column {invalid[0]}, but X has columns 0 to "
                f"{n_features - 1}."
            )
        names, counts = np.unique(columns, return_counts=True)
        shared = group_of[names] != -1
        if np.any(counts > 1):
            twice = names[counts > 1][0]
            raise ValueError(f"groups[{number}] contains column {twice} twice. Remove one of them.")
        if np.any(shared) and not overlap:
            raise ValueError(
                f"groups[{number}] contains column {names[shared][0]}, which is already in "
                "another group, and groups of this model must not overlap. Duplicate the "
                "column in X to have it in two groups."
            )
        group_of[names] = np.where(shared, -2, number)
    missing = np.flatnonzero(group_of == -1)
    if missing.size:
        raise ValueError(
            f"groups omits {missing.size} of {n_features} columns (the first is column "
            f"{missing[0]}), but every column needs a group. To make column {missing[0]} a group "
            f"of its own, add [{missing[0]}]."
        )
    return group_of
