"""Sums over rows for one step of `laplace_em`, added block by block.

The sums are the log-likelihood, the totals of its curvature Omega and of the residuals (label less
sigma), Phi'Omega, Phi'residual and Phi'Omega Phi, all at one point of the weights. They may be
computed anywhere, in chunks, and added (`Sums.plus`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dsyrk

from ...posterior import likelihood_slopes, log_likelihood


class Step(NamedTuple):
    """A step from (w, b) to (w + dw, b + db), for the latent function (Phi - shift) w + b."""

    w: np.ndarray
    dw: np.ndarray
    shift: np.ndarray
    b: float
    db: float


class Sums(NamedTuple):
    """Sums over rows at the end of a step."""

    numbers: np.ndarray
    means: np.ndarray  # Phi'Omega
    gradient: np.ndarray  # Phi'residual
    gram: np.ndarray  # Phi'Omega Phi, its lower triangle

    @property
    def before(self) -> float:
        """Log-likelihood at the beginning of the step."""
        return float(self.numbers[0])

    @property
    def likelihood(self) -> float:
        """Log-likelihood at its end."""
        return float(self.numbers[1])

    @property
    def total(self) -> float:
        """Sum of the curvature Omega."""
        return float(self.numbers[2])

    @property
    def slope(self) -> float:
        """Sum of the residuals label - sigma."""
        return float(self.numbers[3])

    def plus(self, other: Sums) -> Sums:
        """Return the sums over these rows and others."""
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))


class Summing:
    """The sums of a step, accumulated over blocks of rows.

    Parameters
    ----------
    step : Step
        The step at whose end the sums are taken.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        k = len(step.w)
        self._numbers = np.zeros(4)
        self._vectors = np.zeros((2, k))
        self._gram = np.zeros((k, k), order="F")

    def add(self, Phi: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Add rows of the columns with their label counts, and return the latent values.

        Phi is overwritten.
        """
        w, dw, shift, b, db = self.step
        Phi -= shift
        before, change = (Phi @ np.column_stack([w, dw])).T
        before += b
        y = before + change + db
        residual, omega = likelihood_slopes(y, counts)
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
        """Return the sums over all rows added."""
        return Sums(self._numbers, self._vectors[0], self._vectors[1], self._gram)
