"""Models of several groups, weighed together: which of the groups are in, and how probable that is.

Given a Gaussian likelihood exp(-|z - W w|^2/2) of the weights of some groups U, the weight of a
model is

    log weight(z) = sum log-odds of the groups in - 1/2 min_w [|z - W w|^2 + |D_z^-1 w|^2]
                    - 1/2 log|I + D_z W'W D_z|,

where D_z holds the slab standard deviations of the weights that are in.

All models are weighed if there are at most `ALL_MODELS`. Otherwise the heaviest are searched for:
the neighbours of each heavy model (a group added or removed, or one exchanged for another) are
weighed, until no model of more than `_SLIGHT` of the heaviest has unseen neighbours, or
`MOST_MODELS` have been weighed. The search is incomplete if models with unseen neighbours have more
than a tenth of the weight then.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

ALL_MODELS = 1024  # models up to which all are weighed
MOST_MODELS = 2048  # models that are weighed at most
_SLIGHT = 1e-5  # of the heaviest weight: models below have no neighbours of interest
_COVERED = 0.9  # share of the weight that models with all neighbours seen must have
_AT_ONCE = 16  # models whose neighbours are weighed together


@dataclass(frozen=True)
class Models:
    """Models of some groups, the heaviest first.

    Parameters
    ----------
    groups : array of int
        The groups that were enumerated together.
    chosen : array of bool of shape (n_models, len(groups))
        Which of them are in.
    weight : array of shape (n_models,)
        Posterior probabilities; they sum to one.
    """

    groups: np.ndarray
    chosen: np.ndarray
    weight: np.ndarray

    @property
    def are_all(self) -> bool:
        """True where these are all models of the groups."""
        return len(self.weight) == 2 ** len(self.groups)


class ModelSearch(NamedTuple):
    """The models that were weighed, their log weights, and whether the search was complete."""

    chosen: np.ndarray
    log_weight: np.ndarray
    complete: bool


class ModelWeights:
    """Log weights of models, many at once.

    Parameters
    ----------
    W, z : arrays of shape (m, k) and (m,)
        The likelihood exp(-|z - W w|^2/2) of the weights.
    position : array of int of shape (k,)
        The group of each weight, as a position in `log_odds`.
    slab : array of shape (k,)
        Standard deviation of each weight under the slab.
    log_odds : array of shape (n_groups,)
        Prior log-odds of each group.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.solvers.group.models import ModelWeights, search_models
    >>> z, log_odds = np.array([3.0, 0.0]), np.zeros(2)
    >>> weights = ModelWeights(np.eye(2), z, np.arange(2), np.ones(2), log_odds)
    >>> found = search_models(weights, start=np.zeros(2, dtype=bool))
    >>> found.chosen[np.argmax(found.log_weight)]
    array([ True, False])
    """

    def __init__(
        self,
        W: np.ndarray,
        z: np.ndarray,
        position: np.ndarray,
        slab: np.ndarray,
        log_odds: np.ndarray,
    ) -> None:
        self.W, self.z, self.position, self.slab, self.log_odds = W, z, position, slab, log_odds
        self._B, self._r = W.T @ W, W.T @ z

    def __call__(self, chosen: np.ndarray) -> np.ndarray:
        """Return the log weight of each model in the rows of `chosen`."""
        out = chosen @ self.log_odds
        inside = chosen[:, self.position]
        count = inside.sum(axis=1)
        for k in np.unique(count[count > 0]):
            which = np.flatnonzero(count == k)
            idx = np.nonzero(inside[which])[1].reshape(len(which), k)
            D = self.slab[idx]
            A = D[:, :, None] * self._B[idx[:, :, None], idx[:, None, :]] * D[:, None, :]
            np.einsum("zii->zi", A)[...] += 1.0
            u = _solve(A, (D * self._r[idx])[:, :, None])[:, :, 0]
            # The misfit itself: as |z|^2 - r'Sigma r it would lose the digits that tell models
            # apart where the noise is low.
            weights = np.zeros((len(which), len(self.slab)))
            np.put_along_axis(weights, idx, D * u, axis=1)
            misfit = self.z - weights @ self.W.T
            out[which] -= 0.5 * np.sum(misfit**2, axis=1) + 0.5 * np.sum(u**2, axis=1)
            out[which] -= 0.5 * np.linalg.slogdet(A)[1]
        out[count == 0] -= 0.5 * self.z @ self.z
        return out


def _solve(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return A^-1 b; of equal columns far above the noise A is singular in float64."""
    try:
        return np.linalg.solve(A, b)
    except np.linalg.LinAlgError:
        np.einsum("zii->zi", A)[...] *= 1.0 + 8.0 * np.finfo(np.float64).eps
        return np.linalg.solve(A, b)


def search_models(weights: ModelWeights, start: np.ndarray) -> ModelSearch:
    """Weigh all models, or search for the heaviest from `start` and the empty model."""
    count = len(start)
    if 2.0**count <= ALL_MODELS:
        chosen = np.array(list(itertools.product([False, True], repeat=count)), dtype=bool)
        return ModelSearch(chosen, weights(chosen), True)
    models = np.unique([start, np.zeros(count, dtype=bool)], axis=0)
    weighed = {z.tobytes() for z in models}
    log_weight = weights(models)
    expanded = np.zeros(len(models), dtype=bool)
    while len(models) < MOST_MODELS:
        waiting = np.flatnonzero(~expanded & (log_weight > log_weight.max() + np.log(_SLIGHT)))
        if len(waiting) == 0:
            break
        heavy = waiting[np.argsort(-log_weight[waiting], kind="stable")][:_AT_ONCE]
        expanded[heavy] = True
        fresh = []
        for z in models[heavy]:
            for other in _neighbours(z):
                if (key := other.tobytes()) not in weighed:
                    weighed.add(key)
                    fresh.append(other)
        if fresh:
            models = np.vstack([models, fresh])
            log_weight = np.concatenate([log_weight, weights(np.array(fresh))])
            expanded = np.concatenate([expanded, np.zeros(len(fresh), dtype=bool)])
    weight = np.exp(log_weight - log_weight.max())
    complete = weight[expanded].sum() > _COVERED * weight.sum()
    return ModelSearch(models, log_weight, bool(complete))


def _neighbours(z: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the models with one group added or removed, or one exchanged for another."""
    for g in range(len(z)):
        other = z.copy()
        other[g] = ~z[g]
        yield other
    for leaves in np.flatnonzero(z):
        for enters in np.flatnonzero(~z):
            other = z.copy()
            other[leaves], other[enters] = False, True
            yield other
