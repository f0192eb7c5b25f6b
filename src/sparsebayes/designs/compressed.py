"""The columns of a design on fewer rows, with the same inner products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._base import Design
from ._basis import Basis
from .dense import DenseDesign


@dataclass(frozen=True)
class RowCounts:
    """How rows of this total weight enter a likelihood, where there is no design that knows it."""

    total: float
    intercept: bool

    @property
    def n_observations(self) -> float:
        """One degree of freedom goes to the intercept."""
        return self.total - 1.0 if self.intercept else self.total

    @property
    def log_volume(self) -> float:
        """From the integral over the intercept."""
        return -0.5 * float(np.log(self.total)) if self.intercept else 0.0

    @property
    def offset_scale(self) -> float:
        """Variance of the intercept over the noise variance."""
        return 1.0 / self.total if self.intercept else 0.0


class CompressedDesign(DenseDesign):
    """A small matrix F that stands in for the columns of a large design.

    Where F'F = Phi'Phi and the target is rotated along (F'z = Phi't, z'z = t't), every Gaussian
    posterior and evidence is the same; N, the volume and the intercept stay those of the design.

    Parameters
    ----------
    matrix : array of shape (n_rows, n_columns)
        F.
    of : Design or RowCounts
        What it stands in for.
    functions : Basis
        The functions behind the columns.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import CompressedDesign, DenseDesign
    >>> design = DenseDesign(np.ones((100, 1)))
    >>> small = CompressedDesign(np.array([[10.0]]), design, design.basis(np.array([0])))
    >>> small.n_rows, small.n_observations
    (1, 100.0)
    """

    def __init__(self, matrix: np.ndarray, of: Design | RowCounts, functions: Basis | None) -> None:
        super().__init__(matrix)
        self.functions = functions
        self._n_observations = of.n_observations
        self._log_volume = of.log_volume
        self._offset_scale = of.offset_scale

    @property
    def n_observations(self) -> float:
        """The n of the design it stands in for."""
        return self._n_observations

    @property
    def log_volume(self) -> float:
        """The log volume of the design it stands in for."""
        return self._log_volume

    @property
    def offset_scale(self) -> float:
        """The offset scale of the design it stands in for."""
        return self._offset_scale

    def basis(self, idx: np.ndarray) -> Any:
        """The functions of the chosen columns."""
        if self.functions is None:
            raise TypeError("These columns stand in for scores only: they are not functions.")
        return self.functions.take(idx)
