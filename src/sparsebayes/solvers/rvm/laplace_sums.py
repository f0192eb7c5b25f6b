"""What a step of `laplace_em` needs to know of the rows: sums over them, block by block."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.special import expit

from ...posterior import log_likelihood

if TYPE_CHECKING:
    from .laplace_em import Search

_SATURATED = 1e-14  # curvature of a saturated row: below, it is rounding error


class Sums(NamedTuple):
    """Over rows, at the point that a search has come to."""

    numbers: np.ndarray
    means: np.ndarray  # Phi'Omega
    gradient: np.ndarray  # Phi'residual
    gram: np.ndarray  # Phi'Omega Phi, its lower triangle

    @property
    def before(self) -> float:
        """Log likelihood at the point before."""
        return float(self.numbers[0])

    @property
    def likelihood(self) -> float:
        """Log likelihood here."""
        return float(self.numbers[1])

    @property
    def total(self) -> float:
        """Of the curvature Omega."""
        return float(self.numbers[2])

    @property
    def slope(self) -> float:
        """Of the residuals label - sigma."""
        return float(self.numbers[3])

    def plus(self, other: Sums) -> Sums:
        """Of these rows and others."""
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))


class Summing:
    """Adds up the sums of a search over blocks of rows."""

    def __init__(self, search: Search) -> None:
        self.search = search
        k = len(search.members)
        self._numbers = np.zeros(4)
        self._vectors = np.zeros((2, k))
        self._gram = np.zeros((k, k), order="F")

    def add(self, Phi: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Rows of the members' columns with their label counts; returns the latent values.

        Phi is overwritten.
        """
        search = self.search
        Phi -= search.shift
        before, change = (Phi @ np.column_stack([search.w, search.dw])).T
        before += search.b
        y = before + change + search.db
        sigma = expit(y)
        omega = counts[:, 1] * np.maximum(sigma * (1.0 - sigma), _SATURATED)
        residual = counts[:, 0] - counts[:, 1] * sigma
        self._numbers += (
            log_likelihood(before, counts),
            log_likelihood(y, counts),
            float(np.sum(omega)),
            float(np.sum(residual)),
        )
        self._vectors += np.stack([omega, residual]) @ Phi
        Phi *= np.sqrt(omega)[:, None]
        if Phi.shape[1]:
            self._gram = dsyrk(1.0, Phi.T, beta=1.0, c=self._gram, lower=True, overwrite_c=True)
        return y

    def sums(self) -> Sums:
        """Of all rows added."""
        return Sums(self._numbers, self._vectors[0], self._vectors[1], self._gram)
