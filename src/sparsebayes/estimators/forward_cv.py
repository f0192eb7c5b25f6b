"""Forward selection with width, regulariser and number of terms by cross-validation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.model_selection import KFold
from sklearn.utils import check_random_state

from ..kernels import resolve_gamma
from ..solvers.forward.routes import cheapest_route
from ..solvers.forward.selection import Forward
from ..solvers.run import run
from ._base import as_blocks, read_blocks
from ._common import is_number, is_text, read_rows
from ._forward import column_scale, is_whole
from ._predictive import PredictiveMixin
from ._sklearn import (
    HasMethods,
    TransformParameter,
    Whole,
    array_of_frame,
    check_is_fitted,
    check_sample_weight,
    whole_fit,
)
from ._summary import Summary
from .forward import ForwardRegressor

_GAMMAS = 4.0 ** np.arange(-3, 2)  # times 1 / (n_features * X.var())
_REGULARIZATIONS = 10.0 ** np.arange(-7, 1)
Fold = tuple[np.ndarray, np.ndarray]


class ForwardRegressorCV(PredictiveMixin, TransformParameter, RegressorMixin, Summary):
    """`ForwardRegressor` with width, regulariser and number of terms by cross-validation.

    The search of the paper (Sun & Yao 2006): folds of a random subset of the rows. For each width
    and fold the products of the columns are formed once, and each regulariser costs one path, which
    predicts the held out rows with 0, 1, 2, ... terms at the price of one model.

    Parameters
    ----------
    kernel : str, callable or None, default="rbf"
        As in `ForwardRegressor`; not ``"precomputed"``.
    gammas : array, optional
        Widths to try; by default five around 1 / (n_features * X.var()).
    regularizations : array, optional
        Noise variance times weight precision; by default 1e-7, 1e-6, ..., 1 (times the mean square
        of X with ``kernel=None``).
    max_terms : int, default=150
        Terms to try: 0 to this.
    cv : int, splitter or iterable, default=5
        A number of shuffled folds; a scikit-learn splitter, which splits the rows of the search; or
        pairs of arrays of row numbers (of X), to fit and to predict, of which the search sees those
        of its rows.
    search_rows : int, default=1000
        Rows of the random subset.
    degree, coef0, noise_variance, candidates, rank, transform, fit_intercept, cache_size
        As in `ForwardRegressor`; `candidates`, `rank` and `transform` hold for the final fit.
    refit : "gp" or None, default=None
        As in `ForwardRegressor`: None keeps the prior that was searched.
    random_state : int, RandomState or None, default=0
        Draws folds and candidates.
    verbose : int, default=0
        1 prints progress about once a second, 2 at every step.

    Attributes
    ----------
    best_estimator_ : ForwardRegressor
        Fitted on all rows.
    best_params_ : dict
        ``gamma``, ``regularization`` and ``n_terms``.
    best_score_ : float
        Their mean squared error on held out rows.
    cv_results_ : dict of arrays
        ``gamma``, ``regularization``, ``n_terms`` (the axes), ``mean_squared_error`` and its
        standard deviation between folds ``std_squared_error``, of shape (n_gammas,
        n_regularizations, max_terms + 1).

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import ForwardRegressorCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (200, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(200)
    >>> model = ForwardRegressorCV(gammas=[0.1, 0.5], max_terms=20, random_state=0).fit(X, y)
    >>> model.best_score_ < 0.013, sorted(model.best_params_)
    (True, ['gamma', 'n_terms', 'regularization'])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "cv": [Whole(2), HasMethods("split"), Iterable],
        "search_rows": [Whole(4)],
    }

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        gammas: Any = None,
        regularizations: Any = None,
        max_terms: int = 150,
        cv: Any = 5,
        search_rows: int = 1000,
        degree: float = 3,
        coef0: float = 0.0,
        noise_variance: Any = "learn",
        candidates: Any = "auto",
        rank: Any = None,
        transform: str | None = None,
        refit: str | None = None,
        fit_intercept: bool = True,
        cache_size: float = 200,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gammas = gammas
        self.regularizations = regularizations
        self.max_terms = max_terms
        self.cv = cv
        self.search_rows = search_rows
        self.degree = degree
        self.coef0 = coef0
        self.noise_variance = noise_variance
        self.candidates = candidates
        self.rank = rank
        self.transform = transform
        self.refit = refit
        self.fit_intercept = fit_intercept
        self.cache_size = cache_size
        self.random_state = random_state
        self.verbose = verbose

    @whole_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ForwardRegressorCV:
        """Search on a subset of the rows, then fit all of them.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Or a Dask array or DataFrame, a large memory map or blocks of rows, as for
            `ForwardRegressor`: the rows of the search are read from it.
        y : array of shape (n_samples,)
            Target.
        sample_weight : array of shape (n_samples,), optional
            A row of weight v counts as v equal rows.

        Returns
        -------
        self
        """
        self._check_parameters()
        if (blocks := as_blocks(X, self.cache_size)) is None:
            X, y = read_rows(self, X, y, y_numeric=True, ensure_min_samples=4)
        else:
            X, y = blocks, read_blocks(self, blocks, y)
        weight = None
        if sample_weight is not None:
            weight = check_sample_weight(sample_weight, y)
        rng = np.random.default_rng(
            check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        )
        rows = np.arange(len(y)) if weight is None else np.flatnonzero(weight)
        if len(rows) > self.search_rows:
            rows = np.sort(rng.choice(rows, int(self.search_rows), replace=False))
        folds = self._folds(X, y, rows, rng)
        self._search(X[rows], y[rows], None if weight is None else weight[rows], folds)
        n_terms = self.best_params_["n_terms"]
        final = self._model(
            gamma=self.best_params_["gamma"],
            regularization=self.best_params_["regularization"],
            max_terms=max(n_terms, 1),
            candidates=self.candidates,
            rank=self.rank,
            transform=self.transform_parameter,
            refit=self.refit,
            random_state=rng.integers(2**31),
        ).fit(X, y, weight)
        self.best_estimator_ = final if n_terms > 0 else final.truncate(0)
        return self

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict with the best model; see `ForwardRegressor.predict`."""
        check_is_fitted(self)
        return self.best_estimator_.predict(array_of_frame(X, self), return_std, return_cov)

    @property
    def loo_(self) -> Any:
        """Leave-one-out of the best model; see `ForwardRegressor.loo_`."""
        check_is_fitted(self)
        return self.best_estimator_.loo_

    def _found(self) -> list[tuple[str, str]]:
        chosen = ", ".join(f"{name} {value:.4g}" for name, value in self.best_params_.items())
        score = ("held out RMSE", f"{np.sqrt(self.best_score_):.6g}")
        return [("chosen", chosen), score, *self.best_estimator_._found()]

    def _predictive(self, X: Any) -> Any:
        return self.best_estimator_._predictive(X)

    @property
    def _calibration(self) -> Any:  # type: ignore[override]
        return self.best_estimator_._calibration

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draw from the best model; see `ForwardRegressor.sample_y`."""
        check_is_fitted(self)
        return self.best_estimator_.sample_y(X, n_samples, random_state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_parameters(self) -> None:
        self._validate_params()
        if is_text(self.kernel, "precomputed"):
            raise ValueError("A search over widths needs rows, not kernel='precomputed'.")
        if callable(self.kernel) and self.gammas is not None:
            raise ValueError("gammas are for kernels by name: a callable has its own parameters.")
        for name in ("gammas", "regularizations"):
            values = getattr(self, name)
            if values is not None and not (
                np.ndim(values) == 1 and len(values) and all(is_number(v) and v > 0 for v in values)
            ):
                raise ValueError(f"{name} must be positive numbers, got {values!r}.")
        if np.ndim(self.noise_variance) > 0:
            raise ValueError(
                "noise_variance per row is for ForwardRegressor: use 'learn', 'input' or a number."
            )
        self._model(gamma=1.0, regularization=1.0)._check_parameters()

    def _model(self, **parameters: Any) -> ForwardRegressor:
        shared = {
            "max_terms": self.max_terms,
            "degree": self.degree,
            "coef0": self.coef0,
            "noise_variance": self.noise_variance,
            "fit_intercept": self.fit_intercept,
            "cache_size": self.cache_size,
            "verbose": self.verbose,
            "early_stopping": None,
            "refit": None,
            "candidates": "all",
        }
        if callable(self.kernel):
            parameters.pop("gamma", None)
        return ForwardRegressor(self.kernel, **(shared | parameters))

    def _folds(
        self, X: np.ndarray, y: np.ndarray, rows: np.ndarray, rng: np.random.Generator
    ) -> list[Fold]:
        """Pairs of positions in `rows`: those to fit and those to predict."""
        if is_whole(self.cv):
            n_folds = min(int(self.cv), len(rows) // 2)
            cv = KFold(n_folds, shuffle=True, random_state=int(rng.integers(2**31)))
            return list(cv.split(rows))
        if hasattr(self.cv, "split"):
            folds = list(self.cv.split(X[rows], y[rows]))
        else:
            # Row numbers of X, or masks.
            everything = np.arange(len(y))
            folds = [
                tuple(np.flatnonzero(np.isin(rows, everything[np.asarray(part)])) for part in pair)
                for pair in self.cv
            ]
        for f, (inside, outside) in enumerate(folds):
            if len(inside) < 2 or len(outside) < 1:
                raise ValueError(
                    f"Split {f} of cv leaves {len(inside)} of the {len(rows)} rows of the search "
                    f"to fit and {len(outside)} to predict: it needs two and one. Use other "
                    "splits, or a larger search_rows."
                )
        if not folds:
            raise ValueError(f"cv={self.cv!r} has no split.")
        return folds

    def _search(
        self, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, folds: list[Fold]
    ) -> None:
        gammas, lams = self.gammas, self.regularizations
        if self.kernel is None:
            gammas = [1.0]
        elif gammas is None:
            gammas = _GAMMAS * resolve_gamma("scale", np.asarray(X, dtype=np.float64), weight)
        if lams is None:
            size = 1.0
            if self.kernel is None:
                with np.errstate(over="ignore", under="ignore"):
                    squares = np.mean(np.square(X, dtype=np.float64), axis=1)
                    size = float(np.average(squares, weights=weight))
                if not 1e-301 < size < 1e305 and np.any(X):
                    raise ValueError(
                        f"The mean square of X is {size:g}, too near the ends of float64 to look "
                        "for a regularization around it: scale X."
                    )
                size = size or 1.0
            lams = _REGULARIZATIONS * size
        errors = np.empty((len(gammas), len(lams), len(folds), int(self.max_terms) + 1))
        for g, gamma in enumerate(gammas):
            for f, (inside, outside) in enumerate(folds):
                errors[g, :, f] = self._fold(X, y, weight, inside, outside, float(gamma), lams)
        mean, std = errors.mean(axis=2), errors.std(axis=2)
        best = tuple(int(i) for i in np.unravel_index(np.argmin(mean), mean.shape))
        self.cv_results_ = {
            "gamma": np.asarray(gammas),
            "regularization": np.asarray(lams),
            "n_terms": np.arange(int(self.max_terms) + 1),
            "mean_squared_error": mean,
            "std_squared_error": std,
        }
        self.best_score_ = float(mean[best])
        self.best_params_ = {
            "gamma": float(gammas[best[0]]),
            "regularization": float(lams[best[1]]),
            "n_terms": best[2],
        }

    def _fold(
        self,
        X: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray | None,
        inside: np.ndarray,
        outside: np.ndarray,
        gamma: float,
        lams: Any,
    ) -> np.ndarray:
        """Squared error on the rows `outside` for each regulariser and number of terms."""
        model = self._model(gamma=gamma, regularization=1.0)
        part = None if weight is None else weight[inside]
        problem = model._problem(X[inside], y[inside], part)
        design, t = problem.design, problem.t
        limit = min(int(self.max_terms), design.n_candidates)
        scores = cheapest_route(
            design, t, max_terms=limit, passes=len(lams), lam=None, memory=self.cache_size
        )
        scale = column_scale(design)
        noise = problem.in_units(self.noise_variance)
        out = np.empty((len(lams), int(self.max_terms) + 1))
        for j, lam in enumerate(lams):
            solver = Forward(
                noise, lam * scale * scale, limit, cut=False, route=lambda design, t: scores
            )
            result = run(solver, design, t, max_iter=4 * limit)
            path, found = solver.result(result.state, design, t)
            Phi = path.design.basis(np.arange(len(path)))(X[outside])
            predictions = path.predictions(Phi, found.lam) + problem.offset
            squares = (predictions * problem.target_scale - y[outside, None]) ** 2
            by_terms = np.average(
                squares, axis=0, weights=None if weight is None else weight[outside]
            )
            out[j] = by_terms[np.minimum(np.arange(out.shape[1]), len(by_terms) - 1)]
        return out
