"""What the classifiers share: from labels to binary problems, from posteriors to probabilities.

Two classes are one binary problem, more are one problem per class against the rest, on the same
candidates. Each gives a Gaussian latent value y ~ N(m, v) at a new row, and integrating the
logistic function over it leaves the log odds z = m / sqrt(1 + pi v / 8) (MacKay 1992). Several of
them are coupled to probabilities that sum to one by

    p_c  proportional to  sigma(z_c) sigma(-z_c)^-tau,      0 <= tau <= 1.

tau = 0 normalises the probabilities, which is right where classes overlap; tau = 1 conditions on
exactly one binary problem saying yes, as if they were independent, which is right where classes are
apart. tau is the one of smallest leave-one-out log-loss on the training rows, from the same
posteriors (docs/decisions/0005-several-classes.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.sparse import issparse
from scipy.special import expit, log_expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ..callbacks import Progress
from ..designs import Design, KernelBasis
from ..designs._base import row_slices
from ..kernels import Kernel
from ..posterior import Posterior
from ..solvers.run import run
from ..solvers.rvm.one_column import AT_LIMIT
from ._common import CURE, SparseEstimator, label_columns, set_kernel
from ._sklearn import check_is_fitted, check_sample_weight, validate_data, warn, whole_fit

_CURE = {
    **CURE,
    "max_iter": "raise max_iter, or tol if the last digits of the evidence do not matter.",
    AT_LIMIT: (
        "the best weights cancel each other, as happens when the classes are apart and the "
        "functions overlap. The fit is usable; a narrower kernel (larger gamma) helps."
    ),
}


@dataclass
class LabelProblem:
    """Validated labels on a design, ready to be split into binary problems."""

    design: Design  # neither weighted nor centred: the likelihood does both
    codes: np.ndarray  # class number of each row
    weight: np.ndarray
    candidates: np.ndarray  # candidate -> row (kernels) or column (kernel=None) of X
    X: np.ndarray  # the rows of positive weight
    rows: np.ndarray  # their numbers for the user
    kernel: Kernel | None

    def counts(self, c: int) -> np.ndarray:
        """Class c against the rest: weight of the positive labels, and of all, in each row."""
        return np.column_stack([self.weight * (self.codes == c), self.weight])


@dataclass
class Fitted:
    """One binary problem, solved."""

    active: np.ndarray
    alpha: np.ndarray
    posterior: Posterior
    history: dict[str, np.ndarray]
    n_iter: int
    stop_reason: str


class SparseClassifier(ClassifierMixin, SparseEstimator):
    """Base of the classifiers whose candidates are kernel functions or columns.

    A subclass gives its parameters and `_make_solvers`: one solver per binary problem, whose states
    have `active` and `alpha`, whose posterior is a `Posterior` and which knows an `empty`
    state.
    """

    def _make_solvers(self, problem: LabelProblem, n_problems: int) -> list[Any]:
        raise NotImplementedError

    @whole_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            Inputs; with ``kernel="precomputed"`` the kernel matrix of the training rows.
        y : array of shape (n_samples,)
            Labels: numbers or strings, two classes or more.
        sample_weight : array of shape (n_samples,), optional
            A row of weight v counts as v equal rows. Weights that sum to two or less are relative
            importance: they are scaled to sum to the number of rows with a positive weight.

        Returns
        -------
        self
        """
        self._check_parameters()
        problem = self._problem(X, y, sample_weight)
        positive = range(len(self.classes_)) if len(self.classes_) > 2 else [1]
        solvers = self._make_solvers(problem, len(positive))
        progress = Progress(self, self._max_iter() * len(positive))
        fitted: list[Fitted] = []
        try:
            for c, solver in zip(positive, solvers, strict=True):
                stopped = bool(fitted) and fitted[-1].stop_reason in ("interrupted", "callback")
                limit = 0 if stopped else self._max_iter()
                fitted.append(self._fit_labels(solver, problem, problem.counts(c), limit, progress))
        finally:
            progress.close()
        self._keep(problem, fitted)
        return self

    def _fit_labels(
        self, solver: Any, problem: LabelProblem, counts: np.ndarray, limit: int, progress: Progress
    ) -> Fitted:
        """Solve one binary problem; `limit` 0 asks for the empty model."""
        design = problem.design
        state = solver.empty(design) if limit == 0 else None
        result = run(solver, design, counts, max_iter=limit, callback=progress, state=state)
        active = np.asarray(result.state.active, dtype=np.intp)
        posterior = solver.posterior(result.state, design, counts)
        return Fitted(
            active,
            result.state.alpha,
            posterior,
            result.history,
            result.n_iter,
            result.stop_reason if limit else "interrupted",
        )

    def decision_function(self, X: Any) -> np.ndarray:
        """Log odds of each class, the uncertainty of the weights integrated out.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        log_odds : array of shape (n_samples,) or (n_samples, n_classes)
            With two classes those of ``classes_[1]``; with more, of each class against the rest.
        """
        check_is_fitted(self)
        X = self._check_rows(X)
        z = np.empty((X.shape[0], len(self._posteriors())), dtype=X.dtype)
        for rows, block in self._blocks(X):
            z[rows] = log_odds(*self._latent(block, self.basis_(block)))
        return z[:, 0] if len(self.classes_) == 2 else z

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, the uncertainty of the weights integrated out.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        probabilities : array of shape (n_samples, n_classes)
            Rows sum to one; columns in the order of ``classes_``.
        """
        z = self.decision_function(X)
        if z.ndim == 1:
            return np.column_stack([expit(-z), expit(z)])
        return couple(z, self.coupling_)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        labels : array of shape (n_samples,)
        """
        check_is_fitted(self)
        if len(self.classes_) > 2:
            return self.classes_[np.argmax(self.decision_function(X), axis=1)]
        # Of two classes the mean tells which is more probable: no need of the variance.
        X = self._check_rows(X)
        positive = np.empty(X.shape[0], dtype=np.intp)
        mean = np.empty(len(self.basis_))
        mean[self._members[0]] = self._posteriors()[0].mean
        for rows, block in self._blocks(X):
            positive[rows] = self.basis_(block) @ mean + self.intercept_ > 0
        return self.classes_[positive]

    def _latent(self, X: np.ndarray, Phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the latent value of each binary problem at a block of rows."""
        moments = [
            posterior.predict(Phi[:, members])
            for posterior, members in zip(self._posteriors(), self._members, strict=True)
        ]
        mean, variance = (np.column_stack(part) for part in zip(*moments, strict=True))
        return mean, variance

    def _posteriors(self) -> tuple[Posterior, ...]:
        posterior = self.posterior_
        return posterior if isinstance(posterior, tuple) else (posterior,)

    def _blocks(self, X: Any) -> Iterator[tuple[slice, np.ndarray]]:
        """Rows a few thousand at a time, dense."""
        step = min(4096, max(64, 2**18 // max(1, len(self.basis_))))
        for rows in row_slices(X.shape[0], step):
            yield rows, X[rows].toarray() if issparse(X) else X[rows]

    # From X, y to a problem.

    def _problem(self, X: Any, y: Any, sample_weight: Any) -> LabelProblem:
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2
        )
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        weight = np.ones(X.shape[0])
        if sample_weight is not None:
            weight = check_sample_weight(sample_weight, X)
        rows = np.flatnonzero(weight)
        X = self._dense(X) if issparse(X) else np.asarray(X, dtype=np.float64)
        X, y, weight = X[rows], y[rows], weight[rows]
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs rows of at least two classes, got one class: "
                f"{self.classes_[0]!r}."
            )
        given_weight = None if sample_weight is None else weight
        set_kernel(self, X, label_columns(codes), given_weight)
        design, candidates, kernel = self._candidates(X, rows, given_weight)
        totals = np.bincount(codes, weights=weight)
        weight = weight * self._class_weights(totals)[codes]
        return LabelProblem(design, codes, weight, candidates, X, rows, kernel)

    def _dense(self, X: Any) -> np.ndarray:
        """The rows of a sparse matrix, if they may be made dense."""
        megabytes = 8e-6 * X.shape[0] * X.shape[1]
        if megabytes > self.cache_size:
            raise ValueError(
                f"A sparse X of {X.shape[0]} x {X.shape[1]} is made dense to fit, which takes "
                f"{megabytes:.0f} MB, more than cache_size={self.cache_size} MB: raise "
                "cache_size, or reduce X first, for example with TruncatedSVD."
            )
        return X.toarray().astype(np.float64)

    def _class_weights(self, totals: np.ndarray) -> np.ndarray:
        """The factor that `class_weight` puts on each class; `totals` are their sample weights."""
        if self.class_weight is None:
            return np.ones(len(totals))
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            # Total weight over n_classes times that of the class: weights act as repetition.
            return np.sum(totals) / (len(totals) * totals)
        factors = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_)
        if not np.all(factors > 0) or not np.all(np.isfinite(factors)):
            raise ValueError(
                f"class_weight must be positive and finite, got {self.class_weight!r}."
            )
        return factors

    # From solved problems to fitted attributes.

    def _keep(self, problem: LabelProblem, fitted: list[Fitted]) -> None:
        union = np.unique(np.concatenate([f.active for f in fitted]))
        self._members = [np.searchsorted(union, f.active) for f in fitted]
        self.basis_ = problem.design.basis(union)
        self.active_ = problem.candidates[union]
        scale = getattr(self.basis_, "scale", np.ones(len(union)))
        coef = np.zeros((len(fitted), len(union)))
        precision = np.full((len(fitted), len(union)), np.inf)
        for row, (members, f) in enumerate(zip(self._members, fitted, strict=True)):
            coef[row, members] = f.posterior.mean * scale[members]
            precision[row, members] = f.alpha / scale[members] ** 2
        self.weight_precision_ = precision
        self.intercept_ = np.array([f.posterior.intercept for f in fitted])
        if self.kernel is None:
            self.coef_ = np.zeros((len(fitted), self.n_features_in_))
            self.coef_[:, self.active_] = coef
        else:
            self.coef_ = coef
            if isinstance(self.basis_, KernelBasis):
                self.relevance_vectors_ = self.basis_.centres
        posteriors = tuple(f.posterior for f in fitted)
        self.posterior_ = posteriors if len(posteriors) > 1 else posteriors[0]
        self.log_evidence_ = float(sum(p.log_evidence for p in posteriors))
        if len(posteriors) > 1:
            self.coupling_ = self._coupling(problem, fitted)
        self.history_ = _joined([f.history for f in fitted])
        self.n_iter_ = sum(f.n_iter for f in fitted)
        reasons = [f.stop_reason for f in fitted]
        self.converged_ = all(reason == "converged" for reason in reasons)
        self.stop_reason_ = next((r for r in reasons if r != "converged"), "converged")
        if not self.converged_:
            warn(
                f"{type(self).__name__} stopped before it converged ({self.stop_reason_}) after "
                f"{self.n_iter_} steps: {_CURE.get(self.stop_reason_, _CURE['max_iter'])}",
                ConvergenceWarning,
            )

    def _coupling(self, problem: LabelProblem, fitted: list[Fitted]) -> float:
        z = [
            left_out(f.posterior, problem.design.columns(f.active), problem.codes == c)
            for c, f in enumerate(fitted)
        ]
        return best_coupling(np.column_stack(z), problem.codes, problem.weight)

    def _check_rows(self, X: Any) -> Any:
        return validate_data(
            self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def log_odds(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Log odds of sigma(y) averaged over y ~ N(mean, variance)."""
    return mean / np.sqrt(1.0 + (np.pi / 8.0) * variance)


def couple(z: np.ndarray, tau: float) -> np.ndarray:
    """Probabilities of several classes from the log odds of each against the rest."""
    return softmax(log_expit(z) - tau * log_expit(-z), axis=1)


def left_out(posterior: Posterior, Phi: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Log odds of each training row as if its label were not known.

    Leaving one label out of the Gaussian approximation, with s the variance of y, omega = sigma(1 -
    sigma) and g = label - sigma: y ~ N(m - s g/(1 - s omega), s/(1 - s omega)).
    """
    mean, s = posterior.predict(Phi)
    sigma = expit(mean)
    # A row cannot determine its own latent value alone: 1 - s omega > 0 but for rounding.
    rest = np.maximum(1.0 - s * sigma * (1.0 - sigma), 1e-3)
    return log_odds(mean - s * (positive - sigma) / rest, s / rest)


def best_coupling(z: np.ndarray, codes: np.ndarray, weight: np.ndarray) -> float:
    """tau of smallest log-loss on rows with these log odds, class numbers and weights."""
    rows = np.arange(len(z))

    def loss(tau: float) -> float:
        log_p = np.log(np.maximum(couple(z, tau)[rows, codes], 1e-300))
        return -float(weight @ log_p)

    return float(minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded").x)


def _joined(histories: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The records of all binary problems in one, with the number of the problem beside them."""
    histories = [history for history in histories if history]
    if len(histories) < 2:
        return histories[0] if histories else {}
    names = histories[0]
    joined = {name: np.concatenate([history[name] for history in histories]) for name in names}
    lengths = [len(next(iter(history.values()))) for history in histories]
    joined["class_index"] = np.repeat(np.arange(len(histories)), lengths)
    return joined
