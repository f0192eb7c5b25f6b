"""The Gaussian part of EP: the likelihood of every block of weights, given all other sites.

For rows X w + e with noise precisions D^2, and sites N(w; S nu, S) that are block diagonal,
S = F F', let

    C = D^-2 + X S X',   A = I + D X S X' D (rows)   or   A = I + F'X'D^2 X F (columns).

Both forms, `row_form.RowForm` and `column_form.ColumnForm`, give for each block

    H = X_g' C^-1 X_g,   q = X_g' C^-1 (y - X S nu),   M = I - F'H F.

In the coordinates u = F^-1 w, where the site is N(., I), the marginal is N(F'nu + F'q, M), and the
cavity precision is H + H F M^-1 F'H. M is the inverse of the marginal precision and H is what the
data add. Their difference from rounded marginals would lose its digits, so each form computes both
without cancellation where it can.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from scipy.linalg.lapack import dpotrf

from ...linalg.blocks import ColumnBlocks, times, transposed
from ...posterior import Covariance

if TYPE_CHECKING:
    from .sites import SpikeSlabSites

_UNCERTAIN = 0.1  # nats of rounding errors, from which on models cannot be compared
Blocks = slice | np.ndarray | list[int]  # which blocks of a bucket


def has_digits(rounding: float) -> bool:
    """Return whether such rounding errors leave log evidences right to a tenth of a nat."""
    return rounding < _UNCERTAIN


@dataclass
class Marginals:
    """H, q and M of the blocks of each bucket, and the terms of the evidence."""

    H: list[np.ndarray]  # columns: F'H F
    q: list[np.ndarray]  # columns: F'q
    M: list[np.ndarray] | None  # None: I - F'H F is as good
    log_det: float  # log|A|
    quadratic: float  # (y - X S nu)' C^-1 (y - X S nu)
    residual: float  # |D (y - X m)|^2
    rounding: float  # of the evidence, where A_ij has an error of eps sqrt(A_ii A_jj)
    n_used: float  # trace(I - A^-1): the degrees of freedom the weights use
    root: np.ndarray  # rows: L^-1 D.  columns: L^-1, with A = L L'
    fitted: np.ndarray  # X S nu

    def blocks(
        self, i: int, which: Blocks, half: np.ndarray, root: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return H, F'H, M and q of some blocks of bucket i.

        `half` and `root` are F' and its inverse, of those blocks.
        """
        H, q = self.H[i][which], self.q[i][which]
        if self.M is not None:
            right = H @ transposed(root)
            return root @ right, right, self.M[i][which], times(root, q)
        right = half @ H
        return H, right, np.eye(H.shape[1]) - right @ transposed(half), q

    def whitened(self, half: list[np.ndarray]) -> Marginals:
        """Return the marginals with F'H F in place of H, F'q in place of q, and with M."""
        if self.M is not None:
            return self
        H = [F @ x @ transposed(F) for F, x in zip(half, self.H, strict=True)]
        q = [times(F, x) for F, x in zip(half, self.q, strict=True)]
        return replace(self, H=H, q=q, M=[np.eye(x.shape[1]) - x for x in H])


class BlockLikelihood(NamedTuple):
    """The likelihood exp(log_constant - |z - W u|^2/2) of some weights u.

    The other weights are integrated out under their sites.
    """

    W: np.ndarray
    z: np.ndarray
    log_constant: float


class Form(Protocol):
    """The data of a group model, arranged for one of two ways to compute marginals."""

    X: np.ndarray  # in bucket order
    y: np.ndarray
    blocks: ColumnBlocks
    mean_square: float  # of a column

    def with_blocks(self, blocks: ColumnBlocks) -> Form:
        """Return the same data in other blocks of the same order."""

    def marginals(
        self,
        half: list[np.ndarray],
        nu: list[np.ndarray],
        precision: float | np.ndarray,
        target: np.ndarray | None = None,
        rough: bool = False,
    ) -> Marginals:
        """Compute the marginals at given sites."""

    def likelihood(
        self,
        at: np.ndarray,
        half: list[np.ndarray],
        nu: list[np.ndarray],
        precision: float | np.ndarray,
        target: np.ndarray | None = None,
    ) -> BlockLikelihood:
        """Return the likelihood of the weights of the ordered columns `at`."""

    def cross(self, at: np.ndarray, sites: SpikeSlabSites, m: Marginals) -> list[np.ndarray]:
        """Return X_b'C^-1 X_at of every block b, for the ordered columns `at`."""

    def row_moments(
        self, half: list[np.ndarray], m: Marginals, precision: np.ndarray, target: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of X w on every row."""

    def weight_covariance(
        self, half: list[np.ndarray], root: np.ndarray, precision: float | None
    ) -> Covariance:
        """Return the covariance of all weights, in the order of the columns of the design.

        `root` is that of the marginals; `precision` is that of the rows where they share one.
        """


def factor(A: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor of A >= I.

    Where rounding has made A indefinite, its diagonal is raised by 1e-14 of the largest entry.
    """
    L, info = dpotrf(A, lower=1, clean=1)
    if info != 0:
        A[np.diag_indices(len(A))] += 1e-14 * np.max(np.diag(A))
        L, info = dpotrf(A, lower=1, clean=1)
    if info != 0:
        raise np.linalg.LinAlgError(
            "I + X S X'/noise_variance could not be factored: its entries are not finite, or the "
            "noise variance is too small for double precision. Raise noise_variance or rescale "
            "the data."
        )
    return L
