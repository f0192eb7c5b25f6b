"""Steps of second order in logarithms, for the end of an ascent."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

_LARGEST_STEP = 3.0  # of a logarithm
_DAMPINGS = (1e-6, 1e-4, 1e-2, 1e-1, 1.0, 10.0)  # of one Newton step, in nats


def uphill_steps(gradient: np.ndarray, H: np.ndarray) -> list[np.ndarray]:
    """Return steps to try in turn: of Newton's method, more and more damped.

    Where the evidence curves upwards a step goes up, by as much as if it curved downwards. Beside a
    saddle, where those hardly rise, the last two lead along the steepest curvature upwards.
    """
    if len(gradient) == 0 or not np.all(np.isfinite(H)):
        return []
    values, vectors = eigh(H)
    along = vectors.T @ gradient
    tried = [vectors @ (along / (np.abs(values) + damping)) for damping in _DAMPINGS]
    steps = [np.clip(step, -_LARGEST_STEP, _LARGEST_STEP) for step in tried]
    if values[-1] > 0.0:
        step = vectors[:, -1] / np.max(np.abs(vectors[:, -1]))
        steps += [step, -step]
    return steps
