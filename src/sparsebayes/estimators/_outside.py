"""Predictions of a model that knows what its functions leave out of a Gaussian process."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ._base import SparseRegressor


class OutsideRegressor(SparseRegressor):
    """Adds to every variance that of the process outside the chosen functions.

    After a fit ``_outside`` is that part, or None where the fitted noise pays for it.
    """

    def _moments(self, X: np.ndarray, Phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = super()._moments(X, Phi)
        if self._outside is not None:
            variance = variance + self._outside.variance(X)
        return mean, variance

    def _covariance(self, X: np.ndarray, Phi: np.ndarray) -> np.ndarray:
        covariance = super()._covariance(X, Phi)
        if self._outside is not None:
            covariance = covariance + self._outside.covariance(X)
        return covariance

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draw new observations from the joint predictive distribution.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
        n_samples : int, default=1
        random_state : int, RandomState or None, default=0

        Returns
        -------
        samples : array of shape (n_rows, n_samples)
        """
        draws = super().sample_y(X, n_samples, random_state)
        if self._outside is None:
            return draws
        X = self._check_rows(X)
        values, vectors = np.linalg.eigh(self._outside.covariance(X))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        seed = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=2)[1]
        white = np.random.default_rng(seed).standard_normal((len(root), n_samples))
        return (draws + root @ white).astype(X.dtype)
