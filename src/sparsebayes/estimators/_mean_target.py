"""Categories as the mean target of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold

_FOLDS = 5


class MeanTarget:
    """Encoder of categorical columns by the mean target of each category, shrunk to that of all.

    A category of n observations and variance s has the weight n / (n + s/v) of its own mean, where
    v is the variance of all rows (empirical Bayes, as scikit-learn's `TargetEncoder`). The rows of
    a fit are encoded without their own fifth of the rows. Weights count observations.

    Parameters
    ----------
    target_type : {"continuous", "binary", "multiclass"}
        Whether the target is a number, the second of two labels, or one of several labels, of which
        each has a mean.

    Attributes
    ----------
    categories_ : list of arrays
        The categories of each column, sorted.
    classes_ : array or None
        The labels.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.estimators._mean_target import MeanTarget
    >>> X, y = np.array([["a"], ["b"]] * 50), np.array([1.0, 3.0] * 50)
    >>> encoder = MeanTarget("continuous")
    >>> encoder.fit_transform(X, y)[:2, 0], encoder.transform([["b"], ["c"]])[:, 0]
    (array([1., 3.]), array([3., 2.]))
    """

    def __init__(self, target_type: str) -> None:
        self.target_type = target_type

    def fit_transform(
        self, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None
    ) -> np.ndarray:
        """Learn the means, and return those of these rows, each without its own fold."""
        X, y = np.asarray(X), np.asarray(y)
        weight = np.ones(len(y)) if weight is None else weight
        folds: Any = KFold(_FOLDS, shuffle=True, random_state=0)
        self.classes_, targets = None, y.astype(np.float64)[:, None] if self._is_number else None
        if targets is None:
            folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
            self.classes_ = np.unique(y)
            labels = self.classes_[1:] if self.target_type == "binary" else self.classes_
            targets = (y[:, None] == labels).astype(np.float64)
        both = [np.unique(column, return_inverse=True) for column in X.T]
        self.categories_ = [categories for categories, _ in both]
        codes = np.column_stack([inverse.ravel() for _, inverse in both])
        self._level_means = self._learn(codes, targets, weight)
        Z = np.empty((len(y), codes.shape[1] * targets.shape[1]))
        for inside, outside in folds.split(codes, y):
            means = self._learn(codes[inside], targets[inside], weight[inside])
            Z[outside] = _encoded(codes[outside], means)
        return Z

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Return the means of the categories of new rows; a new category has that of all rows."""
        X = np.asarray(X)
        codes = np.empty(X.shape, dtype=np.intp)
        for j, categories in enumerate(self.categories_):
            at = np.minimum(np.searchsorted(categories, X[:, j]), len(categories) - 1)
            codes[:, j] = np.where(categories[at] == X[:, j], at, len(categories))
        return _encoded(codes, self._level_means)

    @property
    def _is_number(self) -> bool:
        return self.target_type == "continuous"

    def _learn(
        self, codes: np.ndarray, targets: np.ndarray, weight: np.ndarray
    ) -> list[np.ndarray]:
        """Return the shrunk means of the categories of each column, that of all rows last."""
        overall = weight @ targets / np.sum(weight)
        variance = weight @ np.square(targets - overall) / np.sum(weight)
        found = []
        for categories, code in zip(self.categories_, codes.T, strict=True):
            size = len(categories)
            count = np.bincount(code, weight, size)[:, None]
            safe = np.where(count > 0.0, count, 1.0)
            mean = _sums(code, weight, targets, size) / safe
            within = _sums(code, weight, np.square(targets - mean[code]), size) / safe
            total = count * variance + within
            share = count * variance / np.where(total > 0.0, total, 1.0)
            found.append(np.vstack([overall + share * (mean - overall), overall]))
        return found


def _encoded(codes: np.ndarray, means: list[np.ndarray]) -> np.ndarray:
    """Return the mean of the category of each row and column."""
    return np.column_stack([own[code] for own, code in zip(means, codes.T, strict=True)])


def _sums(code: np.ndarray, weight: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """Return the weighted sums of columns over the rows of each category."""
    return np.column_stack([np.bincount(code, weight * column, size) for column in values.T])
