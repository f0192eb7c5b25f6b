"""The smallest noise that a solver may learn."""

from __future__ import annotations

import numpy as np

NOISE_FLOOR = 1e-10  # of the mean square of the target
_ROUNDING = 1e-30  # of the largest squared target: for targets that are constant


def noise_floor(t: np.ndarray, n: float) -> float:
    """The smallest noise variance that a solver may learn."""
    return NOISE_FLOOR * float(t @ t) / max(n, 1.0) + _ROUNDING
