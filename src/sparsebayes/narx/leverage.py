"""Lagged values in combinations that a record does not have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_MOST = 1.0  # leverage that no row of the record itself exceeds
_ROUNDING = 1e-10  # of the largest eigenvalue: directions in which the record does not vary
_CONSTANT = 1e-9  # relative spread of a lagged value that does not vary


class Unlike(NamedTuple):
    """Time steps at which lagged values are combined as nowhere in the record."""

    first: int  # the first of them
    n_steps: int
    variable: int  # the lagged value that contributes most there


@dataclass(frozen=True)
class Leverage:
    """How far lagged values are from those of a record, as a linear model of all of them sees it.

    The leverage of a time step is the variance that its prediction would have in that model, over
    the noise variance. In the record it is at most 1. Above, a term that was selected cannot be
    told from others that the record moved along with it: an input and its past, for example, where
    the input hardly ever changed. Only what the terms of the model add to the leverage of the other
    lagged values counts.

    Parameters
    ----------
    mean, scale : arrays of shape (n_variables,)
        Mean and standard deviation of each lagged value over the record.
    root : array of shape (n_variables, k)
        The leverage of standardised values z is the squared length of z times this.
    others : array of shape (n_others, l)
        The same of the lagged values that are in no term, `unused`.
    unused : array of int
        Their positions.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.narx.leverage import Leverage
    >>> u = np.r_[np.ones(6), np.zeros(94)]
    >>> record = np.array([u[1:], u[:-1]])  # u(k) and u(k-1)
    >>> leverage = Leverage.of_record(record, lambda x: 3.0 * x[0])
    >>> leverage.unlike(record) is None
    True
    >>> leverage.unlike(np.array([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]))
    Unlike(first=1, n_steps=1, variable=0)
    """

    mean: np.ndarray
    scale: np.ndarray
    root: np.ndarray
    others: np.ndarray
    unused: np.ndarray

    @classmethod
    def of_record(cls, x: np.ndarray, model: Callable[[np.ndarray], np.ndarray]) -> Leverage:
        """Return the leverage of a record of lagged values, one row each, for a model of them."""
        mean = np.mean(x, axis=1)
        scale = np.maximum(np.std(x, axis=1), _CONSTANT * np.max(np.abs(x), axis=1))
        scale = np.where(scale > 0.0, scale, 1.0)
        values, unused = model(x), []
        for j in range(len(x)):
            held = x.copy()
            held[j] += scale[j]
            if np.array_equal(model(held), values):
                unused.append(j)
        Z = (x - mean[:, None]) / scale[:, None]
        numbers = np.array(unused, dtype=np.intp)
        return cls(mean, scale, _inverse_root(Z), _inverse_root(Z[numbers]), numbers)

    def unlike(self, x: np.ndarray) -> Unlike | None:
        """Return where lagged values are unlike the record; None if they are not."""
        with np.errstate(invalid="ignore", over="ignore"):
            Z = (x - self.mean[:, None]) / self.scale[:, None]
            whole = np.sum(np.square(self.root.T @ Z), axis=0)
            rest = np.sum(np.square(self.others.T @ Z[self.unused]), axis=0)
            steps = np.flatnonzero(whole - rest > _MOST)
        if len(steps) == 0:
            return None
        z = Z[:, steps[0]]
        share = np.where(
            np.isin(np.arange(len(z)), self.unused), 0.0, z * (self.root @ (self.root.T @ z))
        )
        return Unlike(int(steps[0]), len(steps), int(np.argmax(share)))


def _inverse_root(Z: np.ndarray) -> np.ndarray:
    """Return R with R R' the inverse of Z Z'; directions without variation have a tiny one."""
    if len(Z) == 0:
        return np.zeros((0, 0))
    values, vectors = np.linalg.eigh(Z @ Z.T)
    return vectors / np.sqrt(np.maximum(values, _ROUNDING * max(float(values[-1]), 1.0)))
