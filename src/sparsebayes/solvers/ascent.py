"""Steps of second order in logarithms, for the end of an ascent."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

_LARGEST_STEP = 3.0  # of a logarithm
_DAMPINGS = (1e-6, 1e-4, 1e-2, 1e-1, 1.0, 10.0)  # of one Newton step, in nats


def uphill_steps(gradient: np.ndarray, H: np.ndarray, least: float) -> list[np.ndarray]:
    """Return steps to try in turn: of Newton's method, more and more damped.

    Where the objective curves upwards a step goes up, by as much as if it curved downwards. Beside
    a saddle, where those hardly rise, the last two lead along the steepest curvature upwards. Steps
    that promise less than `least` are left out.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.solvers.ascent import uphill_steps
    >>> uphill_steps(np.array([1e-2, 0.0]), np.diag([-1.0, -2.0]), 1e-6)[0].round(3)
    array([0.01, 0.  ])
    >>> [step.tolist() for step in uphill_steps(np.zeros(2), np.diag([-1.0, 2.0]), 1e-6)]
    [[0.0, 1.0], [-0.0, -1.0]]
    """
    if len(gradient) == 0 or not np.all(np.isfinite(H)):
        return []
    values, vectors = eigh(H)
    along = vectors.T @ gradient
    steps = []
    for damping in _DAMPINGS:
        step = along / (np.abs(values) + damping)
        if 0.5 * float(along @ step) > least:
            steps.append(np.clip(vectors @ step, -_LARGEST_STEP, _LARGEST_STEP))
    if values[-1] > 0.0:
        step = vectors[:, -1] / np.max(np.abs(vectors[:, -1]))
        if 0.5 * values[-1] * float(step @ step) > least:
            steps += [step, -step]
    return steps
