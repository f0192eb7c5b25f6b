"""Registry of the models of tables, by name.

`table_model(model=...)`, the command line and its help read `MODELS`; a new model needs no other
registration. An entry has a description, a task and the largest table that the model is meant for;
`compare` skips it for larger ones. Entries are tried in this order, the fastest first.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._warn import suggestion

REGRESSION, CLASSES = "regression", "classification"


@dataclass(frozen=True)
class ModelChoice:
    """Entry of a model: its class, the parameters that it gets, and what it can do.

    Parameters
    ----------
    task : "regression" or "classification"
        The task of the model.
    name : str
        Name of the model; the same name may serve both tasks.
    says : str
        Description in one line.
    home : str
        Path of the class, ``"module.Class"``.
    parameters : dict
        Default parameters of the class.
    most_rows, most_inputs : int
        The largest table that the model is meant for: about a minute on two cores.
    fit_rows : int
        Number of rows that are drawn at random and fitted where a table has more.
    usual : bool
        Whether `compare` includes the model by default.
    skops : bool
        Whether skops can load the fitted model with `TRUSTED_TYPES`.
    varying_noise : bool
        Whether it can learn noise that depends on the inputs (``noise_variance="input"``).
    groups_columns : bool
        Whether it selects groups of inputs (`groups`), those of one column of a table together.
    instead : str
        Name of the model to fit to larger tables; empty if this one is fitted all the same.
    """

    task: str
    name: str
    says: str
    home: str
    parameters: dict[str, Any] = field(default_factory=dict)
    most_rows: int = 10**9
    most_inputs: int = 10**9
    fit_rows: int = 10**9
    usual: bool = True
    skops: bool = True
    varying_noise: bool = False
    groups_columns: bool = False
    instead: str = ""

    @property
    def is_own(self) -> bool:
        """True for a model of this package; the others are baselines."""
        return self.home.startswith("sparsebayes.") and not self.home.startswith(__name__)

    @property
    def transforms_target(self) -> bool:
        """True for a model that has a parameter `target_transform` of its own."""
        return "target_transform" in self._class()().get_params()

    @property
    def may_transform(self) -> bool:
        """True for a model of the target that is compared with one of its logarithm on request."""
        return self.task == REGRESSION and self.is_own and not self.transforms_target

    def _class(self) -> Any:
        """Return the class of the model."""
        module, _, name = self.home.rpartition(".")
        return getattr(importlib.import_module(module), name)

    def unsuited(self, n_rows: int, n_inputs: int) -> str:
        """Return why a table of this size is too large for the model, or an empty string."""
        if n_rows > self.most_rows:
            return f"meant for at most {self.most_rows:,} rows"
        if n_inputs > self.most_inputs:
            return f"meant for at most {self.most_inputs:,} inputs"
        return ""

    def make(self, **changes: Any) -> Any:
        """Return an unfitted estimator, with some parameters changed.

        Regressors of this package also take `target_transform`; see SparseTargetTransform.
        """
        cls = self._class()
        transform = None if self.transforms_target else changes.pop("target_transform", None)
        refuse_unknown(cls, changes)
        model = cls(**{**self.parameters, **changes})
        if transform is None:
            return model
        if self.task != REGRESSION or not self.is_own:
            raise ValueError(
                "target_transform is only available for regressors of sparsebayes, not for "
                f"{cls.__name__}."
            )
        from .estimators.target_transform import SparseTargetTransform

        return SparseTargetTransform(model, target_transform=transform)


def refuse_unknown(cls: Any, parameters: Iterable[str]) -> None:
    """Raise a ValueError for a parameter that the class does not have."""
    params = cls().get_params()
    for name in parameters:
        if name not in params:
            raise ValueError(
                f"{cls.__name__} has no parameter {name!r}{suggestion(name, params)}; it has "
                f"{', '.join(params)}."
            )


def calibrated_svc(**parameters: Any) -> Any:
    """Return scikit-learn's SVC with probabilities by cross-validated calibration."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.svm import SVC

    return CalibratedClassifierCV(SVC(), ensemble=False).set_params(**parameters)


MODELS = (
    ModelChoice(
        REGRESSION,
        "baseline",
        "mean of the target: what every model should beat",
        "sklearn.dummy.DummyRegressor",
    ),
    ModelChoice(
        REGRESSION,
        "linear",
        "sparse linear model: each column is shrunk by its own amount (ARD)",
        "sparsebayes.RVMRegressor",
        {"kernel": None},
        most_inputs=2_000,
        instead="backfitting",
        varying_noise=True,
    ),
    ModelChoice(
        REGRESSION,
        "bayesian-ridge",
        "from scikit-learn, to compare: linear model with the same shrinkage for all inputs",
        "sklearn.linear_model.BayesianRidge",
        most_inputs=2_000,
    ),
    ModelChoice(
        REGRESSION,
        "boosted-trees",
        "from scikit-learn, to compare: boosted trees, without standard deviations",
        "sklearn.ensemble.HistGradientBoostingRegressor",
        {"random_state": 0},
        most_inputs=2_000,
        skops=False,
    ),
    ModelChoice(
        REGRESSION,
        "backfitting",
        "sparse linear model of up to 100,000 columns, by Bayesian backfitting (D'Souza 2004)",
        "sparsebayes.BackfittingRegressor",
        usual=False,
    ),
    ModelChoice(
        REGRESSION,
        "spike-slab",
        "linear model with an inclusion probability for each column of the table",
        "sparsebayes.GroupSpikeSlabRegressor",
        most_inputs=500,
        most_rows=100_000,
        groups_columns=True,
    ),
    ModelChoice(
        REGRESSION,
        "forward",
        "sparse kernel model: functions are added one by one by evidence (Sun & Yao 2006)",
        "sparsebayes.ForwardRegressor",
        {"kernel": "rbf", "gamma": "median"},
        varying_noise=True,
    ),
    ModelChoice(
        REGRESSION,
        "auto",
        "the default: a mixture of Gaussian processes and linear models",
        "sparsebayes.estimators.stacked.StackedRegressor",
        most_inputs=300,
        fit_rows=100_000,  # with some hundred functions more rows take time and improve little
        instead="linear",
        varying_noise=True,
    ),
    ModelChoice(
        REGRESSION,
        "gaussian-process",
        "Gaussian process with learnt kernel and length scales",
        "sparsebayes.SparseGPRegressor",
        most_inputs=300,
        fit_rows=100_000,
        usual=False,
        varying_noise=True,
    ),
    ModelChoice(
        REGRESSION,
        "orthogonal",
        "sparse kernel model: orthogonal least squares with regularisation (Chen 2001)",
        "sparsebayes.OrthogonalLeastSquaresRegressor",
        {"kernel": "rbf", "gamma": "median"},
        most_rows=5_000,
        varying_noise=True,
    ),
    ModelChoice(
        REGRESSION,
        "rvm",
        "relevance vector machine: sparse kernel model of few functions",
        "sparsebayes.RVMRegressor",
        {"kernel": "rbf", "gamma": "median"},
        most_rows=5_000,
        varying_noise=True,
    ),
    ModelChoice(
        REGRESSION,
        "rvm-fast",
        "relevance vector machine, one function at a time (Tipping & Faul 2003)",
        "sparsebayes.RVMRegressor",
        {"kernel": "rbf", "gamma": "median", "algorithm": "fast"},
        most_rows=5_000,
        usual=False,
        varying_noise=True,
    ),
    ModelChoice(
        REGRESSION,
        "rvm-em",
        "relevance vector machine as first published (Tipping 2001)",
        "sparsebayes.RVMRegressor",
        {"kernel": "rbf", "gamma": "median", "algorithm": "em"},
        most_rows=2_000,
        usual=False,
        varying_noise=True,
    ),
    ModelChoice(
        REGRESSION,
        "partitioned",
        "relevance vector machine on parts of the rows, then merged (Ben-Shimon 2006)",
        "sparsebayes.PartitionedRVMRegressor",
        {"kernel": "rbf", "gamma": "median"},
        most_rows=20_000,
        usual=False,
        varying_noise=True,
    ),
    ModelChoice(
        REGRESSION,
        "group-ard",
        "linear model that shrinks each table column by its own amount (ARD)",
        "sparsebayes.GroupARDRegressor",
        most_inputs=500,
        most_rows=100_000,
        usual=False,
        groups_columns=True,
    ),
    ModelChoice(
        REGRESSION,
        "group-lasso",
        "linear model with a group lasso prior per table column, by Gibbs sampling",
        "sparsebayes.BayesianGroupLassoRegressor",
        most_inputs=200,
        most_rows=10_000,
        usual=False,
        groups_columns=True,
    ),
    ModelChoice(
        REGRESSION,
        "group-horseshoe",
        "linear model with a horseshoe prior per table column, by Gibbs sampling",
        "sparsebayes.GroupHorseshoeRegressor",
        most_inputs=200,
        most_rows=10_000,
        usual=False,
        groups_columns=True,
    ),
    ModelChoice(
        REGRESSION,
        "neighbours",
        "Gaussian process corrected by the nearest training rows; stores all rows",
        "sparsebayes.SparseGPRegressor",
        {"neighbours": "auto"},
        most_rows=20_000,  # that it is compared on: 54,000 rows of 24 inputs took 146 s
        most_inputs=300,
        fit_rows=100_000,
        varying_noise=True,
    ),
    ModelChoice(
        CLASSES,
        "baseline",
        "frequencies of the classes: what every model should beat",
        "sklearn.dummy.DummyClassifier",
    ),
    ModelChoice(
        CLASSES,
        "logistic",
        "from scikit-learn, to compare: logistic regression",
        "sklearn.linear_model.LogisticRegression",
        {"max_iter": 1000},
        most_inputs=20_000,
    ),
    ModelChoice(
        CLASSES,
        "linear",
        "sparse logistic model: each column is shrunk by its own amount (ARD)",
        "sparsebayes.RVMClassifier",
        {"kernel": None},
        most_inputs=500,
        instead="backfitting",
    ),
    ModelChoice(
        CLASSES,
        "boosted-trees",
        "from scikit-learn, to compare: boosted trees",
        "sklearn.ensemble.HistGradientBoostingClassifier",
        {"random_state": 0},
        most_inputs=2_000,
        skops=False,
    ),
    ModelChoice(
        CLASSES,
        "svc",
        "from scikit-learn, to compare: support vectors with calibrated probabilities",
        "sparsebayes.models.calibrated_svc",
        most_rows=5_000,
        skops=False,
    ),
    ModelChoice(
        CLASSES,
        "backfitting",
        "sparse linear model of up to 100,000 columns, by Bayesian backfitting (D'Souza 2004)",
        "sparsebayes.BackfittingClassifier",
        usual=False,
    ),
    ModelChoice(
        CLASSES,
        "spike-slab",
        "linear model with an inclusion probability for each column of the table",
        "sparsebayes.GroupSpikeSlabClassifier",
        most_inputs=300,
        most_rows=20_000,
        groups_columns=True,
    ),
    ModelChoice(
        CLASSES,
        "rvm",
        "relevance vector machine: sparse kernel model of few functions",
        "sparsebayes.RVMClassifier",
        {"kernel": "rbf", "gamma": "median"},
        most_rows=3_000,
    ),
    ModelChoice(
        CLASSES,
        "auto",
        "the default: a mixture of Gaussian processes and a linear model",
        "sparsebayes.estimators.stacked_classifier.StackedClassifier",
        most_inputs=300,
        fit_rows=100_000,
        instead="linear",
    ),
    ModelChoice(
        CLASSES,
        "gaussian-process",
        "Gaussian process with a learnt kernel",
        "sparsebayes.SparseGPClassifier",
        most_inputs=300,
        fit_rows=100_000,
        usual=False,
    ),
    ModelChoice(
        CLASSES,
        "partitioned",
        "relevance vector machine on parts of the rows, then merged (Ben-Shimon 2006)",
        "sparsebayes.PartitionedRVMClassifier",
        {"kernel": "auto", "gamma": "auto"},
        most_rows=20_000,
        most_inputs=300,
        usual=False,
    ),
)


def choices(task: str, names: Sequence[str] | None = None) -> list[ModelChoice]:
    """Return the models of a task with these names, or those that `compare` fits by default."""
    if names is None:
        return [choice for choice in MODELS if choice.task == task and choice.usual]
    available = {choice.name: choice for choice in MODELS if choice.task == task}
    for name in names:
        if name not in available:
            raise ValueError(
                f"Unknown model {name!r} for {task}{suggestion(name, available)}; choose from "
                f"{', '.join(available)}."
            )
    return [available[name] for name in available if name in names]


def choose(task: str, name: str, n_rows: int, n_inputs: int) -> ModelChoice:
    """Return the model of this name, or its replacement where the table is too large for it."""
    (choice,) = choices(task, [name])
    while choice.instead and choice.unsuited(n_rows, n_inputs):
        (choice,) = choices(task, [choice.instead])
    return choice
