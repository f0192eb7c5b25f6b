"""Anderson mixing: fixed-point steps that combine the last few instead of taking the last one.

For a map g with residual f(x) = g(x) - x, the next point is the combination of the former points
whose residuals, combined with the same coefficients, are smallest, plus a share of that residual:

    x + beta f - sum_i c_i (dx_i + beta df_i),   c = argmin |W (f - sum_i c_i df_i)|,

where dx_i and df_i are the former changes of x and f. It is a quasi-Newton method without
derivatives (Walker and Ni 2011), and finds fixed points around which the map turns, which no
damping reaches.
"""

from __future__ import annotations

import numpy as np

_RIDGE = 1e-10  # relative ridge of the normal equations, for nearly dependent steps


class Mixing:
    """The memory of Anderson mixing.

    Parameters
    ----------
    depth : int
        How many former steps to combine.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.solvers.group.mixing import Mixing
    >>> g = lambda x: np.array([1.0 - 2.0 * x[1], 0.5 + 2.0 * x[0]])  # turns outwards
    >>> x, mixing = np.zeros(2), Mixing(2)
    >>> for _ in range(4):
    ...     f = g(x) - x
    ...     x = x + f + mixing.correction(x, f, f, 1.0)
    >>> np.round(x, 9) + 0.0
    array([0. , 0.5])
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.forget()

    def forget(self) -> None:
        """Forget all former steps: the map has changed, or they did not help."""
        self._last: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        self._steps: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def correction(
        self, x: np.ndarray, f: np.ndarray, weighted: np.ndarray, beta: float
    ) -> np.ndarray:
        """Return what to add to x + beta f.

        `weighted` is W f, small where changes matter little.
        """
        if self._last is not None:
            step = (x - self._last[0], f - self._last[1], weighted - self._last[2])
            self._steps = [*self._steps[-self.depth + 1 :], step]
        self._last = (x, f, weighted)
        if not self._steps:
            return np.zeros_like(x)
        change = np.array([s[2] for s in self._steps])
        scale = np.linalg.norm(change, axis=1)
        scale = np.where(scale > 0, scale, 1.0)
        change /= scale[:, None]
        gram = change @ change.T + _RIDGE * np.eye(len(change))
        c = np.linalg.solve(gram, change @ weighted) / scale
        total = np.zeros_like(x)
        for ci, (dx, df, _) in zip(c, self._steps, strict=True):
            total -= ci * (dx + beta * df)
        return total
