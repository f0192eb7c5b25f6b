"""The noise variance: given or of highest evidence, and the smallest that may be learnt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._array import PerTarget
from ..designs import Design

NOISE_FLOOR = 1e-10  # of the mean square of the target
_ROUNDING = 1e-30  # noise variance of a constant target


def noise_floor(t: np.ndarray, n: float) -> float:
    """Return the smallest noise variance that a solver may learn of one target."""
    return float(_floor(t @ t, n))


def _floor(tt: PerTarget, n: float) -> PerTarget:
    return NOISE_FLOOR * tt / max(n, 1.0) + _ROUNDING


def squares(t: np.ndarray) -> PerTarget:
    """Return t't, of each column if there are several.

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
    """The noise variance in the evidence: a fixed value, or the best one S/N above a floor.

    Several targets have a value and a floor each. Their S are along the last axis, and they share
    log|P^-1|.
    """

    n: float
    log_volume: float
    fixed: PerTarget | None
    floor: PerTarget

    def best(self, S: PerTarget) -> np.ndarray:
        """Return the noise variance for given S = t'Pt."""
        S = np.asarray(S)
        if self.fixed is not None:
            return np.full(S.shape, self.fixed, dtype=np.float64)
        return np.maximum(S / max(self.n, 1.0), self.floor)

    def log_evidence(self, S: PerTarget, log_det: PerTarget) -> np.ndarray:
        """Return the log evidence for given S and log|P^-1|."""
        sigma2, several = self.best(S), np.ndim(self.floor) > 0
        fit = self.n * np.log(2.0 * np.pi * sigma2) + np.asarray(S) / sigma2
        if not several:
            return self.log_volume - 0.5 * (fit + log_det)
        q = np.size(self.floor)
        return q * self.log_volume - 0.5 * (np.sum(fit, axis=-1) + q * np.asarray(log_det))

    def log_posterior(self, S: PerTarget, log_det: float) -> float:
        """Return the log evidence plus the log density of a flat prior of the noise variance.

        The evidence alone has a prior that is flat in the logarithm of the noise variance. Where a
        Gaussian process interpolates few rows it does not fall as the noise vanishes, and the
        predictive variance near a row would be zero.
        """
        return float(self.log_evidence(S, log_det) + np.sum(np.log(self.best(S))))

    @classmethod
    def from_design(cls, design: Design, t: np.ndarray, fixed: PerTarget | None) -> Noise:
        """Return the noise of a design and its target; `fixed` is None if it is learnt."""
        n = design.n_observations
        return cls(n, design.log_volume, fixed, _floor(squares(t), n))
