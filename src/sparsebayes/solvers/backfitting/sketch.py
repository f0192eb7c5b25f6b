"""Overlapping columns in a few dimensions: where backfitting starts, and a preconditioner.

Kernel functions overlap so much that a few hundred dimensions p hold nearly all of Phi: with R
(p x m) from `designs.lowrank`, Phi'Phi ~ R'R.

- The precisions that the columns start from decide which of many maxima is found (see `rvm.auto`):
  here a hundredth of the one shared precision of highest evidence, which R tells in closed form.
- The diagonal is a poor preconditioner of such columns: hundreds of sweeps. With D = Lam plus the
  part of the diagonal that R misses,

      (R'R + D)^-1 = D^-1 - D^-1 R' (I + R D^-1 R')^-1 R D^-1

  needs about ten, at p^2 m for each new Lam and p m for each sweep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ...designs import Design
from ...designs.lowrank import low_rank
from ..rvm.dense_start import rotate

_SHARE = 0.01  # of the best shared precision: 1 and .1 end 2 to 10 nats lower on Boston


class Start(NamedTuple):
    """Where all columns start, and R."""

    lam: float
    sigma2: float
    R: np.ndarray


def start(design: Design, t: np.ndarray, rank: int, noise: float | None, floor: float) -> Start:
    """From at most `rank` dimensions.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers.backfitting.sketch import start
    >>> t = np.array([1.0, -2.0, 3.0, 0.5])
    >>> lam, sigma2, R = start(DenseDesign(np.eye(4)), t, 10, 1.0, 0.0)
    >>> lam < 0.1, sigma2, R.shape
    (True, 1.0, (4, 4))
    """
    found = low_rank(design, rank, np.random.default_rng(0))
    R, z = found.candidates(), found.coordinates(t)
    problem = rotate(R, z, float(t @ t), design.n_observations, noise, floor)
    sigma2 = noise
    if sigma2 is None:
        E = float((problem.z[:, 0] ** 2) @ (1.0 / (1.0 + problem.e / problem.lam)))
        sigma2 = max((E + float(problem.outside[0])) / design.n_observations, floor)
    return Start(_SHARE * problem.lam, sigma2, R)


def preconditioner(
    R: np.ndarray, lam: np.ndarray, norms: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """The product with (R'R + D)^-1.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.solvers.backfitting.sketch import preconditioner
    >>> R, lam = np.array([[1.0, 2.0]]), np.ones(2)
    >>> solve = preconditioner(R, lam, np.array([1.0, 4.0]))
    >>> np.allclose((R.T @ R + np.eye(2)) @ solve(np.array([3.0, 5.0])), [3.0, 5.0])
    True
    """
    D = lam + np.maximum(norms - np.einsum("ij,ij->j", R, R), 0.0)
    scaled = R / D
    M = scaled @ R.T
    M.flat[:: len(M) + 1] += 1.0
    factor = cho_factor(M, lower=True, overwrite_a=True, check_finite=False)

    def solve(g: np.ndarray) -> np.ndarray:
        return g / D - scaled.T @ cho_solve(factor, scaled @ g, check_finite=False)

    return solve
