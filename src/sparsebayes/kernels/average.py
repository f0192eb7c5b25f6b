"""The average of two kernels: the process is a sum of two, of the same variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .._array import Array
from .formulas import BoundKernel, StationaryKernel
from .warp import WarpedKernel


@dataclass(frozen=True, eq=False)
class AveragedKernel:
    """The average of two stationary kernels.

    Parameters
    ----------
    first, second : StationaryKernel or WarpedKernel
        The kernels.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.kernels import AveragedKernel, StationaryKernel
    >>> kernel = AveragedKernel(StationaryKernel("rbf", 0.5), StationaryKernel("laplacian", 1.0))
    >>> kernel.bind(np.zeros((1, 1)))(np.array([[0.0], [1.0]]))[:, 0].round(3)
    array([1.   , 0.487])
    """

    first: StationaryKernel | WarpedKernel
    second: StationaryKernel | WarpedKernel
    stationary: ClassVar[bool] = True

    def bind(self, Z: Array) -> BoundKernel:
        """Return a function of rows X that returns k(X, Z)."""
        first, second = self.first.bind(Z), self.second.bind(Z)

        def values(X: Array, out: Array | None = None) -> Array:
            K = first(X)
            K += second(X)
            K *= 0.5
            if out is None:
                return K
            out[...] = K
            return out

        return values

    def diagonal(self, X: Array) -> np.ndarray:
        """Return k(x, x) for each row."""
        return 0.5 * (self.first.diagonal(X) + self.second.diagonal(X))

    def pairs(self, X: Array, Z: Array) -> Array:
        """Return k(x, z) of each row of X and the corresponding row of Z."""
        return 0.5 * (self.first.pairs(X, Z) + self.second.pairs(X, Z))
