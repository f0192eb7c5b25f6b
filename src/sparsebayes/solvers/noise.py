"""The noise variance: given, or of highest evidence, and the smallest that may be learnt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..designs import Design

NOISE_FLOOR = 1e-10  # of the mean square of the target
_ROUNDING = 1e-30  # of the largest squared target: for targets that are constant


def noise_floor(t: np.ndarray, n: float) -> float:
    """The smallest noise variance that a solver may learn."""
    return NOISE_FLOOR * float(t @ t) / max(n, 1.0) + _ROUNDING


@dataclass(frozen=True)
class Noise:
    """How the noise variance enters: a fixed value, or the best one S/N above a floor."""

    n: float
    log_volume: float
    fixed: float | None
    floor: float

    def best(self, S: np.ndarray | float) -> np.ndarray:
        """The noise variance for given S = t'Pt."""
        S = np.asarray(S)
        if self.fixed is not None:
            return np.full(S.shape, self.fixed)
        return np.maximum(S / max(self.n, 1.0), self.floor)

    def log_evidence(self, S: np.ndarray | float, log_det: np.ndarray | float) -> np.ndarray:
        """Log evidence for given S and log|P^-1|."""
        sigma2 = self.best(S)
        return self.log_volume - 0.5 * (
            self.n * np.log(2.0 * np.pi * sigma2) + np.asarray(S) / sigma2 + log_det
        )

    @classmethod
    def of(cls, design: Design, t: np.ndarray, fixed: float | None) -> Noise:
        """As a design and its target say."""
        n = design.n_observations
        return cls(n, design.log_volume, fixed, noise_floor(t, n))
