"""Every public estimator once: what the tests and benchmarks that cover all of them iterate over.

A new estimator gets one entry here; `tests/test_contract.py` fails without it. The models are
unfitted: clone them before a fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

import sparsebayes as sb

REGRESSION, CLASSIFICATION, SERIES = "regression", "classification", "series"

# Parameter values that benchmarks/fuzz.py draws from; the first of each is the plainest.
KERNEL = {
    "kernel": ["rbf", None, "matern32", "linear", "poly", "precomputed", "auto", "laplacian"],
    "gamma": ["scale", "scale", "median", 1.0, 1e-4, 1e4, "evidence", "ard"],
    "fit_intercept": [True, True, False],
}
NOISE = {"noise_variance": ["learn", "learn", "learn", "learn", 0.1, 1e-8]}
CHAINS = {"n_chains": [2], "n_samples": [50], "n_warmup": [50]}
GROUPS = {"groups": [None, "pairs"]}

# Parameters of each noise that is not one level, given the variances of the rows. A new noise model
# gets a line, and tests/estimators/test_varying_noise.py fits it with every regressor.
VARYING_NOISE: dict[str, Callable[[np.ndarray], dict[str, Any]]] = {
    "input": lambda variance: {"noise_variance": "input"},
    "known": lambda variance: {"noise_variance": variance},
    "student": lambda variance: {"likelihood": "student"},
    "input, student": lambda variance: {"noise_variance": "input", "likelihood": "student"},
}

_FEW = {"n_chains": 2, "n_samples": 40, "n_warmup": 40}
_PAIRS = np.array([0, 0, 1, 1])


@dataclass(frozen=True)
class Entry:
    """One public estimator.

    Parameters
    ----------
    cls : type
        The estimator.
    data : "regression", "classification" or "series"
        What it is fitted to; a series is fitted by ``fit(u, y)``.
    typical : list of estimators
        Quick settings for any number of columns, the plainest first. All shared tests take them.
    further : list of estimators
        Settings for four columns, for tests that take every path through a fit.
    choices : dict
        Values of its parameters that benchmarks/fuzz.py draws from; empty: it is not drawn.
    seed : int
        Second seed of those draws. A number stays with its estimator for good, so that the number
        of a problem that failed repeats it. A new estimator takes the next free one.
    """

    cls: type
    data: str
    typical: list[Any]
    further: list[Any] = field(default_factory=list)
    choices: dict[str, list[Any]] = field(default_factory=dict)
    seed: int = -1

    @property
    def name(self) -> str:
        """The name of the class."""
        return self.cls.__name__


ENTRIES = [
    Entry(
        sb.RVMRegressor,
        REGRESSION,
        [
            sb.RVMRegressor("rbf", gamma="scale"),
            sb.RVMRegressor("rbf", gamma="scale", algorithm="fast"),
            sb.RVMRegressor("rbf", gamma="scale", algorithm="em"),
            sb.RVMRegressor(kernel=None),
        ],
        [
            sb.RVMRegressor("rbf", gamma="scale", heal=True),
            sb.RVMRegressor("matern32", gamma="evidence", algorithm="fast"),
            sb.RVMRegressor("rbf", gamma="scale", algorithm="em", fit_intercept=False),
            sb.RVMRegressor(kernel=None, noise_variance=0.04),
            sb.RVMRegressor("auto", gamma="ard"),
            sb.RVMRegressor("rbf", gamma="scale", likelihood="student"),
        ],
        {
            **KERNEL,
            **NOISE,
            "algorithm": ["auto", "fast", "em"],
            "heal": [False, False, True],
        },
        seed=0,
    ),
    Entry(
        sb.ForwardRegressor,
        REGRESSION,
        [
            sb.ForwardRegressor("rbf", gamma="scale", random_state=0),
            sb.ForwardRegressor("rbf", gamma="scale", random_state=0, candidates="all", refit=None),
        ],
        [
            sb.ForwardRegressor("rbf", random_state=0, gamma="ard", early_stopping="validation"),
            sb.ForwardRegressor(
                "rbf",
                gamma="scale",
                random_state=0,
                refit=None,
                candidates="all",
                regularization=0.1,
            ),
            sb.ForwardRegressor(
                "rbf", gamma="scale", random_state=0, refit=None, rank=10, fit_intercept=False
            ),
            sb.ForwardRegressor(kernel=None, random_state=0, noise_variance=0.04),
            sb.ForwardRegressor("rbf", gamma="scale", random_state=0, noise_variance="input"),
        ],
        {
            **KERNEL,
            **NOISE,
            "refit": ["gp", None],
            "candidates": ["auto", "all", "pivots"],
            "regularization": ["uniform", "uniform", 0.1],
            "early_stopping": ["evidence", "validation", None],
            "rank": [None, None, None, "auto"],
        },
        seed=2,
    ),
    Entry(
        sb.SparseGPRegressor,
        REGRESSION,
        [
            sb.SparseGPRegressor("rbf", gamma="scale"),
            sb.SparseGPRegressor("rbf", gamma="scale", max_terms=20),
        ],
        [
            sb.SparseGPRegressor("rbf", gamma="ard"),
            sb.SparseGPRegressor("matern32", gamma=0.3, noise_variance=0.04, fit_intercept=False),
            sb.SparseGPRegressor("rbf", gamma="scale", noise_variance="input"),
            sb.SparseGPRegressor("rbf", gamma="scale", likelihood="student"),
            sb.SparseGPRegressor("laplacian", gamma=0.3, max_terms=5, neighbours="auto"),
        ],
        {
            **KERNEL,
            **NOISE,
            "kernel": ["rbf", "matern32", "linear", "poly", "auto", "laplacian"],
            "max_terms": ["auto", "auto", 20, None],
        },
        seed=16,
    ),
    Entry(
        sb.OrthogonalLeastSquaresRegressor,
        REGRESSION,
        [
            sb.OrthogonalLeastSquaresRegressor(),
            sb.OrthogonalLeastSquaresRegressor(kernel=None, regularization="none"),
        ],
        [
            sb.OrthogonalLeastSquaresRegressor(regularization="uniform", criterion="press"),
            sb.OrthogonalLeastSquaresRegressor(
                kernel=None, regularization="none", stopping="press"
            ),
            sb.OrthogonalLeastSquaresRegressor(kernel=None, regularization="none", stopping="bic"),
            sb.OrthogonalLeastSquaresRegressor(kernel=None, regularization=0.1, stopping="aic"),
            sb.OrthogonalLeastSquaresRegressor(criterion="d-optimality", noise_variance=0.04),
        ],
        {
            **KERNEL,
            **NOISE,
            "regularization": ["local", "uniform", "none", 0.1],
            "criterion": ["err", "press", "d-optimality", "a-optimality"],
            "stopping": ["auto", None, "press", "bic", "aic"],
        },
        seed=4,
    ),
    Entry(
        sb.PartitionedRVMRegressor,
        REGRESSION,
        [sb.PartitionedRVMRegressor("rbf", gamma="scale", partition_size=20)],
        [
            sb.PartitionedRVMRegressor("rbf", gamma="scale", partition_size=10),
            sb.PartitionedRVMRegressor(
                "rbf", gamma="scale", partition_size=10, schedule="incremental", algorithm="fast"
            ),
            sb.PartitionedRVMRegressor(
                "rbf", gamma="scale", partition_size=10, schedule="split-merge", fit_intercept=False
            ),
        ],
        {
            **KERNEL,
            **NOISE,
            "kernel": ["rbf", "matern32", "linear", "auto"],
            "schedule": ["working-set", "incremental", "split-merge"],
            "algorithm": ["em", "fast"],
            "partition_size": ["auto", 10],
        },
        seed=5,
    ),
    Entry(
        sb.BackfittingRegressor,
        REGRESSION,
        [sb.BackfittingRegressor(), sb.BackfittingRegressor(kernel="rbf")],
        [
            sb.BackfittingRegressor("rbf", inclusion_prior=None),
            sb.BackfittingRegressor(variance="factorised", noise_variance=0.04),
            sb.BackfittingRegressor(prior="ridge", fit_intercept=False),
            sb.BackfittingRegressor(prior="none"),
            sb.BackfittingRegressor(smoothers=Ridge()),
            sb.BackfittingRegressor(
                smoothers=make_pipeline(SplineTransformer(5), LinearRegression())
            ),
            sb.BackfittingRegressor(variant="fake-targets"),
        ],
        {
            **KERNEL,
            **NOISE,
            "kernel": [None, None, "rbf", "linear"],
            "prior": ["ard", "ard", "ridge", "none"],
            "inclusion_prior": ["auto", "learn", None, 0.2],
            "variance": ["exact", "factorised"],
            "smoothers": [None, None, None, Ridge()],
        },
        seed=7,
    ),
    Entry(
        sb.GroupSpikeSlabRegressor,
        REGRESSION,
        [sb.GroupSpikeSlabRegressor()],
        [
            sb.GroupSpikeSlabRegressor(
                _PAIRS, inclusion_prior=0.3, slab_variance=1.0, noise_variance=0.04
            ),
            sb.GroupSpikeSlabRegressor(_PAIRS, sites="column", fit_intercept=False),
            sb.GroupSpikeSlabRegressor(_PAIRS, inference="gibbs", **_FEW),
        ],
        {
            **NOISE,
            **CHAINS,
            **GROUPS,
            "inference": ["ep", "ep", "gibbs"],
            "sites": ["group", "column"],
            "inclusion_prior": ["learn", 0.2],
            "fit_intercept": [True, False],
        },
        seed=9,
    ),
    Entry(
        sb.GroupARDRegressor,
        REGRESSION,
        [sb.GroupARDRegressor()],
        [
            sb.GroupARDRegressor(_PAIRS),
            sb.GroupARDRegressor(inclusion_prior=None),
            sb.GroupARDRegressor(noise_variance=0.04, fit_intercept=False),
        ],
        {**NOISE, **GROUPS, "fit_intercept": [True, False]},
        seed=11,
    ),
    Entry(
        sb.GroupHorseshoeRegressor,
        REGRESSION,
        [sb.GroupHorseshoeRegressor(n_samples=50, n_warmup=50)],
        [sb.GroupHorseshoeRegressor(_PAIRS, **_FEW)],
        {**NOISE, **CHAINS, **GROUPS, "fit_intercept": [True, False]},
        seed=12,
    ),
    Entry(
        sb.BayesianGroupLassoRegressor,
        REGRESSION,
        [sb.BayesianGroupLassoRegressor(n_samples=50, n_warmup=50)],
        [sb.BayesianGroupLassoRegressor(_PAIRS, **_FEW)],
        {**NOISE, **CHAINS, **GROUPS, "fit_intercept": [True, False]},
        seed=13,
    ),
    Entry(
        sb.SparseTargetTransform,
        REGRESSION,
        [sb.SparseTargetTransform(sb.RVMRegressor("rbf", gamma="scale"))],
        [sb.SparseTargetTransform(sb.RVMRegressor("rbf", gamma="scale"), target_transform=None)],
        {"target_transform": ["auto", None, "log"], "regressor": ["rvm", None]},
        seed=14,
    ),
    Entry(
        sb.SparseGPClassifier,
        CLASSIFICATION,
        [
            sb.SparseGPClassifier("rbf", gamma="scale"),
            sb.SparseGPClassifier("matern32", gamma=0.3, class_weight="balanced"),
        ],
        choices={
            "kernel": ["rbf", "matern52", "laplacian", "auto"],
            "gamma": ["scale", "median", 0.5],
            "fit_intercept": [True, False],
            "class_weight": [None, None, "balanced"],
        },
        seed=17,
    ),
    Entry(
        sb.RVMClassifier,
        CLASSIFICATION,
        [
            sb.RVMClassifier("rbf", gamma="scale"),
            sb.RVMClassifier("rbf", gamma="scale", algorithm="em"),
            sb.RVMClassifier("rbf", gamma="scale", class_weight="balanced"),
            sb.RVMClassifier("rbf", gamma="scale", class_weight={0: 1.0, 1: 3.0}),
        ],
        choices={
            **KERNEL,
            "algorithm": ["auto", "fast", "em"],
            "heal": [False, False, True],
            "class_weight": [None, None, "balanced"],
        },
        seed=1,
    ),
    Entry(
        sb.PartitionedRVMClassifier,
        CLASSIFICATION,
        [sb.PartitionedRVMClassifier("rbf", gamma="scale", partition_size=20)],
        choices={
            **KERNEL,
            "kernel": ["rbf", "matern32", "linear", "auto"],
            "schedule": ["working-set", "incremental", "split-merge"],
            "partition_size": ["auto", 10],
            "class_weight": [None, None, "balanced"],
        },
        seed=6,
    ),
    Entry(
        sb.BackfittingClassifier,
        CLASSIFICATION,
        [sb.BackfittingClassifier()],
        choices={
            **KERNEL,
            "kernel": [None, None, "rbf", "linear"],
            "prior": ["ard", "ard", "ridge", "none"],
            "inclusion_prior": ["auto", "learn", None, 0.2],
            "variance": ["exact", "factorised"],
            "class_weight": [None, None, "balanced"],
        },
        seed=8,
    ),
    Entry(
        sb.GroupSpikeSlabClassifier,
        CLASSIFICATION,
        [sb.GroupSpikeSlabClassifier()],
        choices={
            **GROUPS,
            "sites": ["group", "column"],
            "inclusion_prior": ["learn", 0.2],
            "fit_intercept": [True, False],
        },
        seed=10,
    ),
    Entry(sb.NARXRegressor, SERIES, [sb.NARXRegressor(input_lags=1, output_lags=1, degree=2)]),
]


def models(*data: str, further: bool = False) -> list[Any]:
    """Return the models of these kinds of data: the typical ones, or the further ones as well."""
    return [
        model
        for entry in ENTRIES
        if entry.data in data
        for model in (entry.typical + entry.further if further else entry.typical)
    ]


def plain_models(*data: str) -> Iterator[Any]:
    """Yield the plainest model of each estimator of these kinds of data."""
    return (entry.typical[0] for entry in ENTRIES if entry.data in data)


def models_noise(model: Any) -> bool:
    """Return whether a regressor offers noise that is not one level."""
    return "likelihood" in model.get_params()


def label(model: Any) -> str:
    """Return a model's parameters on one line, as a test id."""
    return " ".join(repr(model).split())
