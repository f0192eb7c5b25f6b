"""Gaussian kernel products by the nonuniform fast Fourier transform, for at most three inputs.

On a box of side P, large enough that the periodic images of the kernel do not overlap the data,

    exp(-r^2) = sum_k  sqrt(pi)/P exp(-(pi k/P)^2)  exp(2 pi i k r/P),

a product of one such sum per input. K'v is then a transform of v from the rows to the modes, a
product with the spectrum, and a transform back to the centres: O(n + modes log modes) instead of
O(n m). The number of modes grows as (range of an input / length scale) to the power of the number
of inputs.

The library finufft (the `nufft` extra) computes the transforms.
"""

from __future__ import annotations

from types import ModuleType
from typing import cast

import numpy as np

from ..kernels import Kernel, StationaryKernel
from ._base import ALL, Index
from .kernel import KernelDesign

TOLERANCE = 1e-12  # relative, of a product
_MOST_MODES = 2**26  # a gigabyte of complex numbers


class NufftDesign(KernelDesign):
    """A kernel design whose products with all columns are transforms; columns are exact.

    Parameters
    ----------
    X, kernel, centres
        As in `KernelDesign`, with a Gaussian kernel and one to three inputs.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import KernelDesign, NufftDesign  # doctest: +SKIP
    >>> from sparsebayes.kernels import StationaryKernel
    >>> X = np.random.default_rng(0).uniform(size=(1000, 2))
    >>> v = np.ones(1000)
    >>> fast = NufftDesign(X, StationaryKernel("rbf", 30.0))  # doctest: +SKIP
    >>> direct = KernelDesign(X, StationaryKernel("rbf", 30.0))  # doctest: +SKIP
    >>> np.allclose(fast.project(v), direct.project(v))  # doctest: +SKIP
    True
    """

    has_fast_products = has_cheap_sqnorms = True

    def __init__(self, X: np.ndarray, kernel: Kernel, centres: np.ndarray | None = None) -> None:
        if getattr(kernel, "family", None) != "rbf":
            raise ValueError("transform='nufft' requires kernel='rbf'. Use transform=None.")
        if X.shape[1] > 3:
            raise ValueError(
                f"transform='nufft' supports at most 3 inputs, got {X.shape[1]}. Use "
                "transform=None."
            )
        super().__init__(X, kernel, centres, cache_size=0.0)
        gamma = np.asarray(cast(StationaryKernel, kernel).gamma, dtype=np.float64)
        scale = np.sqrt(np.broadcast_to(gamma, X.shape[1]))
        self._rows = (X - X.mean(axis=0)) * scale
        self._product = GaussTransform(self._rows, self._rows[self.centres])

    def local_project(self, V: np.ndarray, idx: Index = ALL) -> np.ndarray:
        """Return Phi'V, for all candidates by transforms and for a part of them directly."""
        if not (isinstance(idx, slice) and idx == ALL):
            return super().local_project(V, idx)
        columns = V.reshape(len(V), -1).T
        return np.column_stack([self._product(v) for v in columns]).reshape(
            self.n_candidates, *V.shape[1:]
        )

    def squares(self, v: np.ndarray) -> np.ndarray:
        """Return sum_i v_i phi_ij^2 for each j: the squared kernel is a Gaussian of twice gamma."""
        root = np.sqrt(2.0)
        product = GaussTransform(root * self._rows, root * self._rows[self.centres])
        return np.maximum(product(v), 0.0)

    def sqnorms(self) -> np.ndarray:
        """Return the squared length of each column, by the same transform."""
        return self.squares(np.ones(self.n_rows))


class GaussTransform:
    """The map from v to sum_i exp(-|x_i - z_j|^2) v_i at all z_j."""

    def __init__(self, X: np.ndarray, Z: np.ndarray, tol: float = TOLERANCE) -> None:
        finufft = _finufft()
        low, high = X.min(axis=0), X.max(axis=0)
        reach = np.sqrt(np.log(1.0 / tol))
        period = (high - low) + reach + 0.1
        modes = 2 * np.ceil(period / np.pi * (reach + 0.5)).astype(int) + 1
        if float(np.prod(modes.astype(float))) > _MOST_MODES:
            raise ValueError(
                "The kernel is too narrow for transform='nufft': it would need "
                f"{' x '.join(map(str, modes))} Fourier modes. Use transform=None, or a "
                "smaller gamma."
            )
        factors = [
            np.sqrt(np.pi) / P * np.exp(-((np.pi * np.arange(-(N // 2), N // 2 + 1) / P) ** 2))
            for P, N in zip(period, modes, strict=True)
        ]
        spectrum = factors[0]
        for factor in factors[1:]:
            spectrum = np.multiply.outer(spectrum, factor)
        self._spectrum = spectrum
        middle = 0.5 * (low + high)
        shape = tuple(int(N) for N in modes)
        self._forward = finufft.Plan(1, shape, eps=tol, isign=-1)
        self._backward = finufft.Plan(2, shape, eps=tol, isign=1)
        for plan, points in ((self._forward, X), (self._backward, Z)):
            plan.setpts(*np.ascontiguousarray((2.0 * np.pi / period * (points - middle)).T))

    def __call__(self, v: np.ndarray) -> np.ndarray:
        modes = self._forward.execute(np.ascontiguousarray(v, dtype=np.complex128))
        return np.real(self._backward.execute(modes * self._spectrum))


def _finufft() -> ModuleType:
    try:
        import finufft
    except ImportError as error:
        raise ImportError(
            "transform='nufft' requires finufft: pip install 'sparsebayes[nufft]'."
        ) from error
    return finufft
