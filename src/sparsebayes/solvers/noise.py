"""The noise variance: given, or of highest evidence, and the smallest that may be learnt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..designs import Design

NOISE_FLOOR = 1e-10  # of the mean square of the target
_ROUNDING = 1e-30  # of the largest squared target: for targets that are constant


def noise_floor(t: np.ndarray, n: float) -> Any:
    """The smallest noise variance that a solver may learn; one for each target."""
    return NOISE_FLOOR * squares(t) / max(n, 1.0) + _ROUNDING


def squares(t: np.ndarray) -> Any:
    """t't, of each column where there are several.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.solvers.noise import squares
    >>> squares(np.array([3.0, 4.0])), squares(np.eye(2))
    (25.0, array([1., 1.]))
    """
    return float(t @ t) if t.ndim == 1 else np.einsum("ij,ij->j", t, t)


@dataclass(frozen=True)
class Noise:
    """How the noise variance enters: a fixed value, or the best one S/N above a floor.

    Several targets have a value and a floor each, their S stand along the last axis, and they share
    log|P^-1|.
    """

    n: float
    log_volume: float
    fixed: Any
    floor: Any

    def best(self, S: np.ndarray | float) -> np.ndarray:
        """The noise variance for given S = t'Pt."""
        S = np.asarray(S)
        if self.fixed is not None:
            return np.full(S.shape, self.fixed, dtype=np.float64)
        return np.maximum(S / max(self.n, 1.0), self.floor)

    def log_evidence(self, S: np.ndarray | float, log_det: np.ndarray | float) -> np.ndarray:
        """Log evidence for given S and log|P^-1|."""
        sigma2, several = self.best(S), np.ndim(self.floor) > 0
        fit = self.n * np.log(2.0 * np.pi * sigma2) + np.asarray(S) / sigma2
        if not several:
            return self.log_volume - 0.5 * (fit + log_det)
        q = len(self.floor)
        return q * self.log_volume - 0.5 * (np.sum(fit, axis=-1) + q * np.asarray(log_det))

    def log_posterior(self, S: np.ndarray | float, log_det: float) -> float:
        """Log evidence, and that of a prior which is flat in the noise variance.

        A prior flat in its logarithm is none: where a process interpolates few rows the evidence is
        level down to no noise at all, and a prediction near a row would be sure of it.
        """
        return float(self.log_evidence(S, log_det) + np.sum(np.log(self.best(S))))

    @classmethod
    def from_design(cls, design: Design, t: np.ndarray, fixed: Any) -> Noise:
        """As a design and its target say."""
        n = design.n_observations
        return cls(n, design.log_volume, fixed, noise_floor(t, n))
