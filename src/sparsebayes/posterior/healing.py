"""A predictive variance that grows away from the data (Rasmussen & Quinonero-Candela 2005).

A sparse model has no functions far from its data, so its variance falls to that of the noise where
nothing is known. The cure augments the model at each new row x with one more function, centred on
x itself, c(.) = k(., x), its weight u ~ N(0, 1/a), and conditions on the training data.

Derivation. Active functions phi, weights w | t ~ N(mu, sigma2 W), W = (Phi'Phi + Lam)^-1,
P = I - Phi W Phi'. With c the new function on the training rows (weighted and centred as the other
columns are) and ell = a sigma2, the joint posterior of (w, u) has, by elimination of w,

    u | t ~ N(q / (ell + s), sigma2 / (ell + s)),    s = c'Pc,  q = c'Pt = c'(t - Phi mu),
    w | u, t ~ N(mu - W Phi'c u, sigma2 W).

The function at x is phi(x)'w + c(x) u, so with

    e = c(x) - phi(x)' W Phi'c

(what the active functions do not already say about c(x)) its variance is

    phi(x)' sigma2 W phi(x) + sigma2 e^2 / (ell + s),

the first term being that of the model itself: the second is what healing adds. It vanishes where
the data determine u (s large) or the active functions contain c (e small); far from all data s = 0,
e = c(x) and it is k(x, x)/a, the prior variance.

The prior. 1/a is the variance of the signal, var(t) - sigma2, so that far away the standard
deviation is that of the target. (The prior variances of the active weights are no guide: weights of
neighbouring functions cancel, and may be thousands of times larger than their sum.)

Deviation. The paper's mean moves too, by e q / (ell + s). Here it stays: a prediction then is the
same with and without its standard deviation. (In the gaps where healing matters q is small.)

Since the added function depends on the row, there is no joint distribution of several rows. A row
costs its kernel values on all n training rows and n k products, so a healed model keeps the
training rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels import Kernel

_BLOCK_ELEMENTS = 2**18


@dataclass(frozen=True)
class Healing:
    """What is needed of the training data to add the variance of one more function at each row.

    Parameters
    ----------
    kernel : Kernel
    rows : array of shape (n, n_features)
        Training rows.
    weight : array of shape (n,)
        Their weights.
    fitted : array of shape (n, k)
        Phi root with root root' = W, each row times the root of its weight: c'P c is
        ``sum(weight c^2) - |fitted' c|^2`` less the part along the intercept.
    centred : bool
        Whether the functions are centred (a model with an intercept).
    prior_variance : float or array of shape (n_outputs,)
        1/a.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVMRegressor
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.05 * np.random.default_rng(0).standard_normal(100)
    >>> far = np.array([[1000.0]])
    >>> plain = RVMRegressor(gamma=0.1, fit_intercept=False).fit(X, y)
    >>> healed = RVMRegressor(gamma=0.1, fit_intercept=False, heal=True).fit(X, y)
    >>> std = [model.predict(far, return_std=True)[1][0] for model in (plain, healed)]
    >>> bool(std[0] < 0.1), bool(std[1] > 0.3)
    (True, True)
    """

    kernel: Kernel
    rows: np.ndarray
    weight: np.ndarray
    fitted: np.ndarray
    centred: bool
    prior_variance: Any

    def added_variance(
        self, X: np.ndarray, Phi: np.ndarray, root: np.ndarray, sigma2: Any
    ) -> np.ndarray:
        """sigma2 e^2/(ell + s) at each row, from its active functions Phi and the root of W."""
        squares, s = np.empty(len(X)), np.empty(len(X))
        bound = self.kernel.bind(self.rows)
        along = Phi @ root
        own = self.kernel.diagonal(X)
        total = float(np.sum(self.weight))
        step = max(1, _BLOCK_ELEMENTS // max(1, len(self.rows)))
        for first in range(0, len(X), step):
            block = slice(first, first + step)
            C = np.asarray(bound(X[block]), dtype=np.float64)  # rows: the new functions
            mean = C @ self.weight / total if self.centred else np.zeros(len(C))
            norm = (C * C) @ self.weight - total * mean**2
            T = C @ self.fitted
            squares[block] = (own[block] - mean - np.einsum("ij,ij->i", along[block], T)) ** 2
            s[block] = np.maximum(norm - np.einsum("ij,ij->i", T, T), 0.0)
        with np.errstate(divide="ignore"):
            ell = np.asarray(sigma2) / np.asarray(self.prior_variance)
        return squares.reshape(-1, *[1] * np.ndim(ell)) * sigma2 / np.add.outer(s, ell)
