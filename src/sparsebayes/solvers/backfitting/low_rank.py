"""A low-rank approximation of overlapping columns: starting values, and a preconditioner.

Kernel functions overlap so much that a few hundred dimensions p hold nearly all of Phi: with R
(p x m) from `designs.lowrank`, Phi'Phi ~ R'R.

- The precisions from which the columns start decide which of many maxima is reached (see
  `rvm.auto`). They are a hundredth of the one shared precision of highest evidence, which R gives
  in closed form.
- The diagonal is a poor preconditioner of such columns: it takes hundreds of sweeps. With D = Lam
  plus the part of the diagonal that R misses,

      (R'R + D)^-1 = D^-1 - D^-1 R' (I + R D^-1 R')^-1 R D^-1

  takes about ten, at p^2 m for each new Lam and p m for each sweep.
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
_ROUNDING = 1e-10  # of a column's square, which R surely misses: a smaller D has no digits left


class Start(NamedTuple):
    """Starting values of all columns, and the low-rank factor R."""

    lam: float
    sigma2: float
    R: np.ndarray


def start(design: Design, t: np.ndarray, rank: int, noise: float | None, floor: float) -> Start:
    """Return starting values from a factor of at most `rank` rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.designs import DenseDesign
    >>> from sparsebayes.solvers.backfitting.low_rank import start
    >>> t = np.array([1.0, -2.0, 3.0, 0.5])
    >>> lam, sigma2, R = start(DenseDesign(np.eye(4)), t, 10, 1.0, 0.0)
    >>> lam < 0.1, sigma2, R.shape
    (True, 1.0, (4, 4))
    """
    factor = low_rank(design, rank, np.random.default_rng(0))
    R, z = factor.candidates(), factor.coordinates(t)
    problem = rotate(R, z, float(t @ t), design.n_observations, noise, floor)
    sigma2 = noise
    if sigma2 is None:
        E = float((problem.z[:, 0] ** 2) @ (1.0 / (1.0 + problem.e / problem.lam)))
        sigma2 = max((E + float(problem.residual[0])) / design.n_observations, floor)
    return Start(_SHARE * problem.lam, sigma2, R)


def preconditioner(
    R: np.ndarray, lam: np.ndarray, norms: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that multiplies a vector by (R'R + D)^-1.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.solvers.backfitting.low_rank import preconditioner
    >>> R, lam = np.array([[1.0, 2.0]]), np.ones(2)
    >>> solve = preconditioner(R, lam, np.array([1.0, 4.0]))
    >>> np.allclose((R.T @ R + np.eye(2)) @ solve(np.array([3.0, 5.0])), [3.0, 5.0])
    True
    """
    D = lam + np.maximum(norms - np.einsum("ij,ij->j", R, R), _ROUNDING * norms)
    scaled = R / D
    M = scaled @ R.T
    M.flat[:: len(M) + 1] += 1.0
    factor = cho_factor(M, lower=True, overwrite_a=True, check_finite=False)

    def solve(g: np.ndarray) -> np.ndarray:
        return g / D - scaled.T @ cho_solve(factor, scaled @ g, check_finite=False)

    return solve
