"""The models that the command line offers, and their comparison on held-out rows."""

from __future__ import annotations

import ast
import importlib
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.metrics import root_mean_squared_error
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from .estimators.target_transform import SparseTargetTransform
from .metrics import coverage, negative_log_density


@dataclass(frozen=True)
class ModelChoice:
    """A model by name: where its class lives, and the parameters it gets here."""

    home: str
    name: str
    parameters: dict[str, Any] = field(default_factory=dict)
    says: str = ""

    def make(self, **changes: Any) -> Pipeline:
        """Standardised inputs, then the model, with some parameters changed.

        Every model of the package also takes `target_transform`: see SparseTargetTransform.
        """
        cls = getattr(importlib.import_module(self.home), self.name)
        transform = changes.pop("target_transform", None)
        known = cls().get_params()
        for parameter in changes:
            if parameter not in known:
                raise ValueError(
                    f"{self.name} has no parameter {parameter!r}; it has {', '.join(known)}."
                )
        model = cls(**{**self.parameters, **changes})
        if transform is not None:
            model = SparseTargetTransform(model, target_transform=transform)
        return make_pipeline(StandardScaler(), model)


MODELS: dict[str, ModelChoice] = {
    "auto": ModelChoice(
        "sparsebayes",
        "ForwardRegressor",
        {"kernel": "auto", "gamma": "ard", "random_state": 0},
        "up to 300 kernel functions; family and one width per input learnt from the data",
    ),
    "forward": ModelChoice(
        "sparsebayes",
        "ForwardRegressor",
        {"gamma": "median", "random_state": 0},
        "forward selection by evidence, Sun & Yao 2006",
    ),
    "ols": ModelChoice(
        "sparsebayes",
        "OrthogonalLeastSquaresRegressor",
        {"gamma": "median"},
        "orthogonal least squares with local regularisation, Chen 2001",
    ),
    "rvm": ModelChoice(
        "sparsebayes", "RVMRegressor", {"gamma": "median"}, "relevance vector machine"
    ),
    "rvm-em": ModelChoice(
        "sparsebayes",
        "RVMRegressor",
        {"gamma": "median", "algorithm": "em"},
        "relevance vector machine, Tipping 2001",
    ),
    "rvm-fast": ModelChoice(
        "sparsebayes",
        "RVMRegressor",
        {"gamma": "median", "algorithm": "fast"},
        "relevance vector machine, Tipping & Faul 2003",
    ),
    "rvm-linear": ModelChoice(
        "sparsebayes",
        "RVMRegressor",
        {"kernel": None},
        "sparse linear model, a precision per input",
    ),
    "bayesian-ridge": ModelChoice(
        "sklearn.linear_model", "BayesianRidge", {}, "scikit-learn, for comparison"
    ),
    "boosted-trees": ModelChoice(
        "sklearn.ensemble",
        "HistGradientBoostingRegressor",
        {"random_state": 0},
        "scikit-learn, for comparison; no error bars",
    ),
}


@dataclass
class Score:
    """One model on held-out rows. `nll` and `coverage` are NaN where a model gives no std."""

    model: str
    rmse: float
    nll: float
    coverage: float
    n_terms: int | None
    seconds: float
    fitted: Pipeline
    mean: np.ndarray
    std: np.ndarray | None


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """``["gamma=0.1", "kernel=rbf"]`` as parameters; what is no Python literal is text."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"--set takes name=value, got {pair!r}.")
        try:
            settings[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            settings[name] = text
    return settings


def choose(name: str) -> ModelChoice:
    """The model of this name, or a sentence with the names there are."""
    if name not in MODELS:
        raise ValueError(f"There is no model {name!r}; choose from {', '.join(MODELS)}.")
    return MODELS[name]


def split_rows(n: int, test_share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers to fit on, and to test on."""
    if not 0 < test_share < 1:
        raise ValueError(f"The share of test rows must lie between 0 and 1, got {test_share}.")
    held_back = round(n * test_share)
    if held_back < 1 or n - held_back < 2:
        raise ValueError(f"{n} rows are too few to hold back {test_share:.0%} of them for a test.")
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[held_back:]), np.sort(order[:held_back])


def score(
    name: str,
    pipeline: Pipeline,
    X: np.ndarray,
    y: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
) -> Score:
    """Fit on `train`, measure on `test`."""
    started = time.perf_counter()
    pipeline.fit(X[train], y[train])
    seconds = time.perf_counter() - started
    mean, std = predict(pipeline, X[test])
    nll = cover = float("nan")
    if std is not None:
        nll, cover = negative_log_density(y[test], mean, std), coverage(y[test], mean, std)
    if getattr(pipeline[-1], "target_transform_", None) == "log":
        nll, cover = _log_scores(pipeline, X[test], y[test])
    rmse = float(root_mean_squared_error(y[test], mean))
    return Score(name, rmse, nll, cover, n_terms(pipeline), seconds, pipeline, mean, std)


def _log_scores(pipeline: Pipeline, X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """NLL and coverage of a model of log y, as a density of y."""
    f, sd = final_model(pipeline).predict(pipeline[:-1].transform(X), return_std=True)
    if np.any(y <= 0.0):
        return float("inf"), coverage(np.log(np.where(y > 0.0, y, np.nan)), f, sd)
    logs = np.log(y)
    return negative_log_density(logs, f, sd) + float(np.mean(logs)), coverage(logs, f, sd)


def final_model(pipeline: Pipeline) -> Any:
    """The model at the end, without the transform of the target around it."""
    return getattr(pipeline[-1], "regressor_", pipeline[-1])


def predict(pipeline: Pipeline, X: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Mean, and standard deviation where the model gives one."""
    try:
        return pipeline.predict(X, return_std=True)
    except TypeError:
        return pipeline.predict(X), None


def n_terms(pipeline: Pipeline) -> int | None:
    """How many functions or columns the model uses; None where that means nothing."""
    model = final_model(pipeline)
    if hasattr(model, "active_"):
        return len(model.active_)
    return int(np.count_nonzero(model.coef_)) if hasattr(model, "coef_") else None


HEAD = ("model", "test RMSE", "NLL", "95 % coverage", "active terms", "seconds")


def cells(score: Score) -> tuple[str, ...]:
    """One row under HEAD."""
    return (
        score.model,
        f"{score.rmse:.4g}",
        "-" if np.isnan(score.nll) else f"{score.nll:.3f}",
        "-" if np.isnan(score.coverage) else f"{score.coverage:.1%}",
        "-" if score.n_terms is None else str(score.n_terms),
        f"{score.seconds:.2f}",
    )


def as_text(scores: list[Score]) -> str:
    """The scores as a table for the terminal."""
    rows = [HEAD, *map(cells, scores)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)
