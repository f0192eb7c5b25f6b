"""The equation error: outputs one step ahead of the measured ones, with or without noise terms."""

from __future__ import annotations

import numpy as np
from scipy.signal import lfilter
from sklearn.exceptions import ConvergenceWarning

from .._warn import warn
from .functions import Functions
from .refine import Model, least_squares

_PASSES = 50  # of extended least squares


class Equation:
    """The equation error: y(k) against the candidates at the measured past."""

    def __init__(
        self,
        functions: Functions,
        x: np.ndarray,
        t: np.ndarray,
        stretch: np.ndarray,
        noise_lags: int,
    ) -> None:
        self.functions, self.x, self.t = functions, x, t
        self.stretch, self.noise_lags = stretch, noise_lags

    def columns(self, active: np.ndarray) -> np.ndarray:
        """The chosen candidates, one column each, in the order given."""
        return np.ascontiguousarray(self.functions.take(active)(self.x).T)

    def weights(self, active: np.ndarray) -> np.ndarray:
        """Least squares; extended least squares where there are noise terms."""
        Phi = self.columns(active)
        weights = least_squares(Phi, self.t)
        if self.noise_lags:
            weights = self._extended(Phi, self.t - Phi @ weights)[1][: len(active)]
        return weights

    def noise(self, active: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Errors one step ahead at these weights, and the coefficients of the noise terms."""
        residual = self.t - self.columns(active) @ weights
        if not self.noise_lags:
            return residual, np.zeros(0)
        error, coef = self._extended(None, residual)
        if not is_invertible(coef):
            warn(
                "The noise model is not invertible, so its terms were dropped. Use fewer "
                "noise_lags.",
                ConvergenceWarning,
            )
            return residual, np.zeros(self.noise_lags)
        return error, coef

    def covariance(self, model: Model) -> np.ndarray:
        r"""Covariance of the weights, for white errors :math:`e(k)` of variance :math:`\sigma^2`.

        Least squares has :math:`\sigma^2 (\Phi^\top\Phi)^{-1}`. With noise terms the estimate
        :math:`\theta` (weights and noise coefficients) solves
        :math:`\sum_k \varphi(k, \theta) e(k, \theta) = 0`, where :math:`\varphi` holds the terms
        and the past errors, which depend on :math:`\theta` themselves. The gradient of the errors,
        :math:`\psi = -\partial e/\partial\theta`, obeys
        :math:`\psi(k) + \sum_j c_j \psi(k-j) = \varphi(k)`. To first order
        :math:`\hat\theta - \theta = (\Phi^\top \Psi)^{-1} \Phi^\top e`, since the change of
        :math:`\varphi` multiplies errors that it is independent of, and so the covariance is

        .. math:: \sigma^2 (\Phi^\top\Psi)^{-1} \Phi^\top\Phi \, (\Psi^\top\Phi)^{-1}.

        Noise terms that cannot be inverted have no such gradient; least squares is taken there.
        """
        Phi = self.columns(model.active)
        residual = self.t - Phi @ model.weights
        n_terms, coef = len(model.weights), np.zeros(0)
        if self.noise_lags:
            residual, weights = self._extended(Phi, residual)
            coef = weights[n_terms:]
            Phi = np.column_stack([Phi, self._lagged(residual)])
        scale = 1.0 / np.maximum(np.linalg.norm(Phi, axis=0), 1e-300)
        sigma2 = residual @ residual / max(len(residual) - len(scale), 1)
        Phi = Phi * scale
        gram = Phi.T @ Phi
        if is_invertible(coef):
            inverse = np.linalg.pinv(Phi.T @ self._gradient(Phi, coef))
            full = inverse @ gram @ inverse.T
        else:
            full = np.linalg.pinv(gram, hermitian=True)
        return (sigma2 * full * scale * scale[:, None])[:n_terms, :n_terms]

    def _gradient(self, Phi: np.ndarray, coef: np.ndarray) -> np.ndarray:
        """Columns filtered by the inverse of the noise terms, each stretch on its own."""
        starts = np.flatnonzero(np.diff(self.stretch, prepend=self.stretch[0] - 1))
        parts = np.split(Phi, starts[1:])
        return np.concatenate([lfilter([1.0], [1.0, *coef], part, axis=0) for part in parts])

    def _extended(self, Phi: np.ndarray | None, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Errors and weights of [Phi, past errors], the errors being those of the fit itself."""
        target = self.t if Phi is not None else error
        Phi = np.empty((len(error), 0)) if Phi is None else Phi
        weights = np.zeros(Phi.shape[1] + self.noise_lags)
        for _ in range(_PASSES):
            columns = np.column_stack([Phi, self._lagged(error)])
            before, weights = weights, least_squares(columns, target)
            error = target - columns @ weights
            if np.linalg.norm(weights - before) <= 1e-8 * np.linalg.norm(weights):
                break
        return error, weights

    def _lagged(self, error: np.ndarray) -> np.ndarray:
        """Past errors, zero before the start of a stretch."""
        out = np.zeros((len(error), self.noise_lags))
        for j in range(self.noise_lags):
            same = self.stretch[j + 1 :] == self.stretch[: len(error) - j - 1]
            out[j + 1 :, j] = np.where(same, error[: len(error) - j - 1], 0.0)
        return out

    def error_reductions(self, active: np.ndarray) -> np.ndarray:
        """Share of t't that each term explains in addition to those before it."""
        Q = np.linalg.qr(self.columns(active))[0]
        return np.square(Q.T @ self.t) / max(float(self.t @ self.t), 1e-300)


def is_invertible(coef: np.ndarray) -> bool:
    """Return whether errors follow from outputs: all roots of the noise terms lie in the circle."""
    return bool(np.max(np.abs(np.roots([1.0, *coef])), initial=0.0) < 1.0)


def noise_part(residual: np.ndarray, coef: np.ndarray) -> np.ndarray:
    """Return the prediction of the noise terms: residual = e(k) + sum_j c_j e(k-j)."""
    residual = np.nan_to_num(residual)
    return residual - lfilter([1.0], [1.0, *coef], residual)
