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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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
from ..designs import Design
from ..kernels import Kernel, is_option
from ..posterior import Posterior
from ..posterior.noise import WORTH
from ..rows import is_dask, row_slices
from ..solvers.run import LabelSolver, Result, S, Solution, StopReason, run
from ._common import label_columns, make_candidates, set_kernel
from ._estimator import Apply, SparseEstimator, apply_blocks, float_type, read_rows
from ._sklearn import (
    array_of_frame,
    check_is_fitted,
    check_sample_weight,
    same_namespace,
    warn,
    whole_fit,
)

_JUDGED_ROWS = 1000  # that kernels are compared on,
_FOLDS = 5  # in so many parts
# Nats for the precision of a function. With none, one width and forty functions were chosen for 300
# noisy labels (a log-loss of .6 in place of .4); with one, one width on a split of energy (.076 in
# place of .019), where functions are few and sure. Tuned on these, breast cancer, wine, concrete
# and generated classes.
_FUNCTION = 0.5
_FACTOR_SD = 0.5  # of the log of what log odds are multiplied by


@dataclass
class LabelProblem:
    """Validated labels on a design, ready to be split into binary problems."""

    design: Design  # neither weighted nor centred: the likelihood does both
    codes: np.ndarray  # class number of each row
    weight: np.ndarray
    candidates: np.ndarray  # candidate -> row (kernels) or column (kernel=None) of X
    X: np.ndarray  # the rows of positive weight
    kernel: Kernel | None

    @property
    def positive(self) -> list[int]:
        """The class of each binary problem: the second of two, or each against the rest."""
        n_classes = int(self.codes.max()) + 1
        return list(range(n_classes)) if n_classes > 2 else [1]

    def counts(self, c: int) -> np.ndarray:
        """Class c against the rest: weight of the positive labels, and of all, in each row."""
        return np.column_stack([self.weight * (self.codes == c), self.weight])


class FoldLogOdds(NamedTuple):
    """Cross-validated log odds of some rows, with their class numbers and weights.

    The log odds of a fold whose fit broke down are NaN.
    """

    z: np.ndarray
    codes: np.ndarray
    weight: np.ndarray

    @property
    def valid(self) -> np.ndarray:
        """Mask of the rows whose log odds are known."""
        return np.isfinite(self.z).reshape(len(self.z), -1).all(axis=1)

    def take(self, rows: np.ndarray) -> FoldLogOdds:
        """Return these rows alone."""
        return FoldLogOdds(self.z[rows], self.codes[rows], self.weight[rows])


class SparseClassifier(ClassifierMixin, SparseEstimator):
    """Base of the classifiers whose candidates are kernel functions or columns.

    A subclass gives its parameters and `_fit`, which goes from `make_label_problem` over
    `solve_labels` to `keep_labels`.
    """

    basis_: Any
    posterior_: Any
    classes_: np.ndarray
    active_: np.ndarray
    weight_precision_: np.ndarray
    _members: list[np.ndarray]  # the functions of each binary problem among those of `basis_`
    _fold_log_odds: FoldLogOdds | None = None  # of the chosen kernel, during the fit
    calibration_: float = 1.0

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
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
        self._fit(X, y, sample_weight)
        return self

    def _judges(self, n_rows: int) -> bool:
        """Kernels for classes are always compared by fits, to some of the rows if they are many."""
        return True

    def _left_out_score(self, widths: Any, X: Any, y: Any, weight: Any) -> float:
        """Return the penalised mean leave-one-out log-likelihood of the labels; NaN on failure.

        The penalty is the optimism of what was learnt from the same labels: as in Akaike's
        criterion one nat for each length scale along which the kernel varies, and `_FUNCTION` nats
        for the precision of each function.
        """
        lengths = widths.n_matter / (len(X) if weight is None else np.sum(weight))
        X, codes, weight = _some_labels(X, y, weight)
        if codes.max(initial=0) < 1:
            return np.nan
        trial = self._try(widths, X, codes, weight)
        if trial is None:
            return np.nan
        functions = np.count_nonzero(np.isfinite(trial.weight_precision_))
        rows = len(X) if weight is None else np.sum(weight)
        return trial._left_out_likelihood - lengths - _FUNCTION * functions / rows

    def _keep_choice(self, widths: Any, X: Any, y: Any, weight: Any) -> None:
        """Keep the cross-validated log odds of the chosen kernel, for the calibration.

        Leave-one-out predictions of one posterior choose between kernels well, but the row that is
        left out had a part in the choice of the functions: on digits they claim a log-loss of .017
        where it is .12.
        """
        X, codes, weight = _some_labels(X, y, weight)
        fold = label_folds(X, codes, np.random.default_rng(0))
        out, k = np.flatnonzero(fold >= 0), int(codes.max(initial=0)) + 1
        if k < 2 or len(out) == 0:
            return
        z = np.full((len(X), k) if k > 2 else len(X), np.nan)
        for f in np.unique(fold[out]):
            seen, held = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
            trial = self._try(
                widths, X[seen], codes[seen], None if weight is None else weight[seen]
            )
            if trial is not None:
                z[held] = trial.decision_function(X[held])
        counted = np.ones(len(out)) if weight is None else weight[out]
        self._fold_log_odds = FoldLogOdds(z[out], codes[out], counted)

    def _try(self, widths: Any, X: Any, codes: np.ndarray, weight: Any) -> Any:
        """Return a trial fit, or None if it breaks down.

        A trial on some of the rows may meet a problem that the whole data do not have. What would
        break the fit itself is reported by the fit itself.
        """
        try:
            return self._trial(widths, X, codes, weight)
        except (ArithmeticError, ValueError):  # LinAlgError is a ValueError
            return None

    @same_namespace
    def decision_function(self, X: Any) -> Any:
        """Log odds of each class, the uncertainty of the weights integrated out.

        Those of a Gaussian process (`RVMClassifier.process_`) are at the mode of its function.

        Parameters
        ----------
        X : array, sparse matrix or Dask array of shape (n_samples, n_features)
            A Dask array is done block by block when the result is computed.

        Returns
        -------
        log_odds : array of shape (n_samples,) or (n_samples, n_classes)
            With two classes those of ``classes_[1]``; with more, of each class against the rest.
        """
        check_is_fitted(self)
        if is_dask(X := array_of_frame(X, self)):
            width = len(self._posteriors())
            z = apply_blocks(Apply(self, "decision_function"), X, width, float_type(X))
            return z[:, 0] if width == 1 else z
        X = self._check_rows(X)
        z = np.empty((X.shape[0], len(self._posteriors())), dtype=X.dtype)
        for rows, block in self._blocks(X):
            z[rows] = self._score(*self._latent(block, self.basis_(block)))
        z *= self.calibration_
        return z[:, 0] if len(self.classes_) == 2 else z

    @same_namespace
    def predict_proba(self, X: Any) -> Any:
        """Probability of each class, the uncertainty of the weights integrated out.

        Parameters
        ----------
        X : array, sparse matrix or Dask array of shape (n_samples, n_features)
            A Dask array is done block by block when the result is computed.

        Returns
        -------
        probabilities : array of shape (n_samples, n_classes)
            Rows sum to one; columns in the order of ``classes_``.
        """
        check_is_fitted(self)
        if is_dask(X := array_of_frame(X, self)):
            width = len(self.classes_)
            return apply_blocks(Apply(self, "predict_proba"), X, width, float_type(X))
        return self._probabilities(self.decision_function(X))

    @same_namespace
    def predict(self, X: Any) -> Any:
        """The most probable class of each row.

        Parameters
        ----------
        X : array, sparse matrix or Dask array of shape (n_samples, n_features)
            A Dask array is done block by block when the result is computed.

        Returns
        -------
        labels : array of shape (n_samples,)
        """
        check_is_fitted(self)
        if is_dask(X := array_of_frame(X, self)):
            return apply_blocks(Apply(self, "predict"), X, 1, self.classes_.dtype)[:, 0]
        if len(self.classes_) > 2:
            return self.classes_[np.argmax(self.decision_function(X), axis=1)]
        # Of two classes the mean tells which is more probable: no need of the variance.
        X = self._check_rows(X)
        positive = np.empty(X.shape[0], dtype=np.intp)
        mean = np.empty(len(self.basis_))
        mean[self._members[0]] = self.posterior_.mean
        for rows, block in self._blocks(X):
            positive[rows] = self.basis_(block) @ mean + self.posterior_.intercept > 0
        return self.classes_[positive]

    def _probabilities(self, z: np.ndarray) -> np.ndarray:
        """The probabilities that belong to values of `decision_function`."""
        return probabilities(z, getattr(self, "coupling_", 1.0))

    def _score(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """What `decision_function` says where the latent value has this mean and variance."""
        return log_odds(mean, variance)

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
        """Rows a few thousand at a time."""
        step = min(4096, max(64, 2**18 // max(1, len(self.basis_))))
        for rows in row_slices(X.shape[0], step):
            yield rows, self._block(X, rows)

    def _class_weights(self, totals: np.ndarray) -> np.ndarray:
        """The factor that `class_weight` puts on each class; `totals` are their sample weights."""
        if self.class_weight is None:
            return np.ones(len(totals))
        if is_option(self.class_weight, "balanced"):
            # Total weight over n_classes times that of the class: weights act as repetition.
            return np.sum(totals) / (len(totals) * totals)
        factors = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_)
        if not np.all(factors > 0) or not np.all(np.isfinite(factors)):
            raise ValueError(
                f"class_weight must be positive and finite, got {self.class_weight!r}."
            )
        return factors


# From X, y to binary problems, to their solutions, to fitted attributes.


def check_labels(y: Any) -> np.ndarray:
    """Labels of classes, a vector without gaps."""
    labels = np.asarray(y).ravel()
    gaps = np.flatnonzero([v is None for v in (labels if labels.dtype == object else ())])
    if len(gaps):
        raise ValueError(
            f"y has None in place of a label in row {gaps[0] + 1} ({len(gaps)} such rows): leave "
            "them out, or give them a label."
        )
    check_classification_targets(y)
    return column_or_1d(y, warn=True)


def read_labels(
    model: Any, X: Any, y: Any, sample_weight: Any
) -> tuple[Any, np.ndarray, np.ndarray | None, np.ndarray]:
    """Rows of positive weight, their class numbers, weights (None: all one) and row numbers.

    Sets `classes_`.
    """
    X, y = read_rows(model, X, y)
    y = check_labels(y)
    rows, weight = np.arange(X.shape[0]), None
    if sample_weight is not None:
        weight = check_sample_weight(sample_weight, X)
        rows = np.flatnonzero(weight)
        X, y, weight = X[rows], y[rows], weight[rows]
    model.classes_, codes = np.unique(y, return_inverse=True)
    if len(model.classes_) < 2:
        raise ValueError(
            f"{type(model).__name__} needs rows of at least two classes, got one class: "
            f"{model.classes_[0]!r}."
        )
    return X, codes, weight, rows


def make_label_problem(
    model: Any, X: Any, y: Any, sample_weight: Any, columns: Any = None
) -> LabelProblem:
    """What the solvers take, of the data of a user.

    `columns` says what the candidates are, see `make_candidates`.
    """
    X, codes, weight, rows = read_labels(model, X, y, sample_weight)
    if not issparse(X):
        X = np.asarray(X, dtype=np.float64)
    set_kernel(model, X, label_columns(codes), weight)
    design, candidates, kernel = make_candidates(model, X, rows, columns)
    weight = np.ones(len(codes)) if weight is None else weight
    weight = weight * model._class_weights(np.bincount(codes, weights=weight))[codes]
    return LabelProblem(design, codes, weight, candidates, X, kernel)


def solve_labels(
    model: Any, problem: LabelProblem, solvers: Sequence[LabelSolver[S]]
) -> tuple[list[Solution], list[Result]]:
    """Run one solver per binary problem, with the progress that the model is to show.

    When the user interrupts one, the remaining problems end at the empty state.
    """
    design, limit = problem.design, int(model.max_iter)
    progress = Progress(model, limit * len(solvers))
    fitted: list[Solution] = []
    results: list[Result] = []
    try:
        for c, solver in zip(problem.positive, solvers, strict=True):
            counts, state = problem.counts(c), None
            if results and results[-1].stop_reason in (StopReason.INTERRUPTED, StopReason.CALLBACK):
                limit, state = 0, solver.empty(design)
            result = run(solver, design, counts, max_iter=limit, callback=progress, state=state)
            fitted.append(solver.solution(result.state, design, counts))
            results.append(result if limit else replace(result, stop_reason=StopReason.INTERRUPTED))
    finally:
        progress.close()
    return fitted, results


def keep_labels(
    model: Any, problem: LabelProblem, fitted: list[Solution], results: list[Result]
) -> None:
    """Set the fitted attributes, and warn of a fit that has not converged."""
    keep_functions(model, fitted, problem.design.basis, problem.candidates)
    moments = [
        left_out(f.posterior, problem.design.columns(f.active), problem.codes == c)
        for c, f in zip(problem.positive, fitted, strict=True)
    ]
    z = np.column_stack([model._score(*part) for part in moments])
    keep_calibration(model, len(z), lambda: best_coupling(z, problem.codes, problem.weight))
    p = model._probabilities(z if len(fitted) > 1 else z[:, 0])
    model._left_out_likelihood = float(
        np.average(_log_own(p, problem.codes), weights=problem.weight)
    )
    reason = keep_runs(model, results)
    if not reason.converged:
        warn(
            f"{type(model).__name__} stopped before it converged ({reason}) after "
            f"{model.n_iter_} steps: {reason.advice}",
            ConvergenceWarning,
        )


def keep_functions(model: Any, fitted: list[Solution], basis: Any, candidates: np.ndarray) -> None:
    """Functions and weights; `basis(idx)` are the functions of these candidates."""
    union = np.unique(np.concatenate([f.active for f in fitted]))
    model._members = [np.searchsorted(union, f.active) for f in fitted]
    model.basis_ = basis(union)
    model.active_ = candidates[union]
    scale = model.basis_.scale
    coef = np.zeros((len(fitted), len(union)))
    precision = np.full((len(fitted), len(union)), np.inf)
    for row, (members, f) in enumerate(zip(model._members, fitted, strict=True)):
        coef[row, members] = f.posterior.mean * scale[members]
        with np.errstate(over="ignore", under="ignore"):  # infinite beside an extreme scale
            precision[row, members] = f.lam / scale[members] / scale[members]
    model.weight_precision_ = precision
    model.intercept_ = np.array([f.posterior.intercept for f in fitted])
    if model.kernel is None:
        model.coef_ = np.zeros((len(fitted), model.n_features_in_))
        model.coef_[:, model.active_] = coef
    else:
        model.coef_ = coef
        if model.basis_.centres is not None:
            model.relevance_vectors_ = model.basis_.centres
    posteriors = tuple(f.posterior for f in fitted)
    model.posterior_ = posteriors if len(posteriors) > 1 else posteriors[0]
    model.log_evidence_ = float(sum(p.log_evidence for p in posteriors))


def keep_calibration(model: Any, n_rows: int, coupling: Any) -> None:
    """How several classes are put together (`coupling`, a function), and the factor of log odds.

    The coupling is that of labels left out, which say how far classes are apart; folds, whose fits
    have fewer rows, say how sure to be. Of more rows than the kernels were compared on the factor
    is nearer to one: on California .82 with 800 rows to fit and .87 with 1,920, so its log falls
    about as the root of the rows.
    """
    vars(model).pop("coupling_", None)
    if len(model.classes_) > 2:
        model.coupling_ = coupling()
    folds, model._fold_log_odds, model.calibration_ = model._fold_log_odds, None, 1.0
    if folds is not None:
        z, codes, weight = folds.take(folds.valid)
        factor = best_factor(z, codes, weight, getattr(model, "coupling_", 1.0))
        model.calibration_ = factor ** min(1.0, _JUDGED_ROWS / n_rows) ** 0.5


def keep_runs(model: Any, results: list[Result]) -> StopReason:
    """Set the history of all binary problems; return why the first that did not converge ended."""
    model.history_ = _joined([result.history for result in results])
    model.n_iter_ = sum(result.n_iter for result in results)
    reasons = [result.stop_reason for result in results]
    reason = next((r for r in reasons if not r.converged), StopReason.CONVERGED)
    model.converged_, model.stop_reason_ = reason.converged, reason.value
    return reason


def log_odds(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Log odds of sigma(y) averaged over y ~ N(mean, variance)."""
    return mean / np.sqrt(1.0 + (np.pi / 8.0) * variance)


def probabilities(z: np.ndarray, tau: float) -> np.ndarray:
    """Those of the classes, from the log odds of the second of two or of each of several."""
    return couple(z, tau) if z.ndim > 1 else np.column_stack([expit(-z), expit(z)])


def couple(z: np.ndarray, tau: float) -> np.ndarray:
    """Probabilities of several classes from the log odds of each against the rest."""
    return softmax(log_expit(z) - tau * log_expit(-z), axis=1)


def left_out(
    posterior: Posterior, Phi: np.ndarray, positive: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the latent value at each training row as if its label were not known.

    Leaving one label out of the Gaussian approximation, with s the variance of y, omega = sigma(1 -
    sigma) and g = label - sigma: y ~ N(m - s g/(1 - s omega), s/(1 - s omega)).
    """
    mean, s = posterior.predict(Phi)
    sigma = expit(mean)
    # A row cannot determine its own latent value alone: 1 - s omega > 0 but for rounding.
    rest = np.maximum(1.0 - s * sigma * (1.0 - sigma), 1e-3)
    return mean - s * (positive - sigma) / rest, s / rest


def best_coupling(z: np.ndarray, codes: np.ndarray, weight: np.ndarray) -> float:
    """tau of smallest log-loss on rows with these log odds, class numbers and weights."""

    def loss(tau: float) -> float:
        return -float(weight @ _log_own(couple(z, tau), codes))

    return float(minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded").x)


def clearly_better(one: FoldLogOdds, other: FoldLogOdds) -> bool:
    """Whether `one` predicts the labels better by more than the standard error of the difference.

    Both hold the same rows; folds in which one of the two broke down are not compared.
    """
    both = one.valid & other.valid
    if not np.any(both):
        return bool(np.any(one.valid))
    own = []
    for z, codes, weight in (one.take(both), other.take(both)):
        tau = best_coupling(z, codes, weight) if z.ndim > 1 else 1.0
        own.append(_log_own(probabilities(z, tau), codes))
    gain, weight = own[0] - own[1], one.weight[both]
    around = gain - np.average(gain, weights=weight)
    return bool(weight @ gain > np.sqrt(weight @ around**2))


def best_factor(z: np.ndarray, codes: np.ndarray, weight: np.ndarray, tau: float = 1.0) -> float:
    """What the log odds of rows that had no part in the fit are to be multiplied by.

    Its logarithm has the prior N(0, 1/4): where all labels are right a larger factor is always
    better. 1 where the best one gains less than a tail has to: a few labels say little.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.estimators._classifier import best_factor
    >>> z = np.array([4.0, 4.0, 4.0, 4.0, -4.0, -4.0, -4.0, -4.0])  # one of four is wrong
    >>> factor = best_factor(z, np.array([1, 1, 1, 0, 0, 0, 0, 1]), np.full(8, 100.0))
    >>> round(4.0 * factor, 1), round(float(np.log(3)), 1)
    (1.1, 1.1)
    """

    def loss(log_factor: float) -> float:
        p = probabilities(np.exp(log_factor) * z, tau)
        return 0.5 * (log_factor / _FACTOR_SD) ** 2 - float(weight @ _log_own(p, codes))

    most = 4.0 * _FACTOR_SD
    found = minimize_scalar(loss, bounds=(-most, most), method="bounded")
    return float(np.exp(found.x)) if loss(0.0) - found.fun > WORTH else 1.0


def _some_labels(X: Any, y: Any, weight: Any) -> tuple[Any, np.ndarray, Any]:
    """Some rows if they are many, and class numbers from `label_columns`, without gaps."""
    if len(X) > _JUDGED_ROWS:
        some = np.random.default_rng(0).choice(len(X), _JUDGED_ROWS, replace=False)
        X, y, weight = X[some], y[some], None if weight is None else weight[some]
    codes = np.argmax(y, axis=1) if y.ndim > 1 else (y > 0).astype(int)
    return X, np.unique(codes, return_inverse=True)[1], weight


def label_folds(X: np.ndarray, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The fold of each row, every class in all of them; -1 where a class has one row only.

    Equal rows of a class are in one fold, so that weights and repetition mean the same.
    """
    rows, inverse = np.unique(np.column_stack([codes, X]), axis=0, return_inverse=True)
    fold = np.full(len(rows), -1)
    for c in np.unique(rows[:, 0]):
        own = rng.permutation(np.flatnonzero(rows[:, 0] == c))
        if len(own) > 1:
            fold[own] = np.arange(len(own)) % _FOLDS
    return fold[inverse.ravel()]


def _log_own(p: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Log probability of the class of each row."""
    return np.log(np.maximum(p[np.arange(len(p)), codes], 1e-300))


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
