"""The models that a table can be given to, by name: one entry each, nothing else to register.

`table_model(model=...)`, the command line and its help read `MODELS`. An entry says what its model
is in one line, for which task and up to which size of table it is meant; `compare` skips it beyond,
with that reason, and tries the entries in this order, the fastest first.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

REGRESSION, CLASSES = "regression", "classification"


@dataclass(frozen=True)
class ModelChoice:
    """A model by name: where its class lives, the parameters it gets here, and what it suits.

    Parameters
    ----------
    task : "regression" or "classification"
        What it predicts.
    name : str
        The same name may serve both tasks.
    says : str
        One line for the reader.
    home : str
        ``"module.Class"``.
    parameters : dict
        What the class gets unless the user says otherwise.
    most_rows, most_inputs : int
        The largest table it is meant for, on two cores and within about a minute.
    fit_rows : int
        Of more rows, as many are drawn at random and fitted.
    usual : bool
        Whether `compare` tries it without being asked.
    skops : bool
        Whether what it fits can be read back by skops without trusting more than `TRUSTED_TYPES`.
    varying_noise : bool
        Whether it can learn noise that depends on the inputs (``noise_variance="input"``).
    groups_columns : bool
        Whether it selects groups of inputs (`groups`), those of one column of a table together.
    instead : str
        The name to take where the table is larger; nothing: it is fitted all the same.
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
        """Whether it is a model of this package; the others are there for comparison."""
        return self.home.startswith("sparsebayes.") and not self.home.startswith(__name__)

    def unsuited(self, n_rows: int, n_inputs: int) -> str:
        """Why the table is too large for it; nothing where it is not."""
        if n_rows > self.most_rows:
            return f"meant for at most {self.most_rows:,} rows"
        if n_inputs > self.most_inputs:
            return f"meant for at most {self.most_inputs:,} inputs"
        return ""

    def make(self, **changes: Any) -> Any:
        """An estimator, with some parameters changed.

        Every regressor of the package also takes `target_transform`: see SparseTargetTransform.
        """
        module, _, name = self.home.rpartition(".")
        cls = getattr(importlib.import_module(module), name)
        transform = changes.pop("target_transform", None)
        refuse_unknown(cls, changes)
        model = cls(**{**self.parameters, **changes})
        if transform is None:
            return model
        if self.task != REGRESSION or not self.is_own:
            raise ValueError(f"target_transform is for regressors of this package, not {name}.")
        from .estimators.target_transform import SparseTargetTransform

        return SparseTargetTransform(model, target_transform=transform)


def refuse_unknown(cls: Any, parameters: Any) -> None:
    """Refuse a parameter that models of this class do not have, with a list of those they have."""
    known = cls().get_params()
    for name in parameters:
        if name not in known:
            raise ValueError(
                f"{cls.__name__} has no parameter {name!r}; it has {', '.join(known)}."
            )


def calibrated_svc(**parameters: Any) -> Any:
    """Support vectors with probabilities: scikit-learn's SVC has none of its own any more."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.svm import SVC

    return CalibratedClassifierCV(SVC(), ensemble=False).set_params(**parameters)


MODELS = (
    ModelChoice(
        REGRESSION,
        "baseline",
        "the mean of the target: what every model has to beat",
        "sklearn.dummy.DummyRegressor",
    ),
    ModelChoice(
        REGRESSION,
        "linear",
        "sparse linear model: a precision for each input, those without use drop out",
        "sparsebayes.RVMRegressor",
        {"kernel": None},
        most_inputs=2_000,
        instead="columns",
        varying_noise=True,
    ),
    ModelChoice(
        REGRESSION,
        "bayesian-ridge",
        "scikit-learn, for comparison: linear, one precision for all inputs",
        "sklearn.linear_model.BayesianRidge",
        most_inputs=2_000,
    ),
    ModelChoice(
        REGRESSION,
        "boosted-trees",
        "scikit-learn, for comparison: boosted trees, no error bars",
        "sklearn.ensemble.HistGradientBoostingRegressor",
        {"random_state": 0},
        most_inputs=2_000,
        skops=False,
    ),
    ModelChoice(
        REGRESSION,
        "columns",
        "Bayesian backfitting: sparse linear model of up to 100,000 columns (D'Souza 2004)",
        "sparsebayes.BackfittingRegressor",
        usual=False,
    ),
    ModelChoice(
        REGRESSION,
        "groups",
        "spike and slab on whole columns, a category as one: which of them matter",
        "sparsebayes.GroupSpikeSlabRegressor",
        most_inputs=500,
        most_rows=100_000,
        groups_columns=True,
    ),
    ModelChoice(
        REGRESSION,
        "forward",
        "forward selection of kernel functions by evidence, one width (Sun & Yao 2006)",
        "sparsebayes.ForwardRegressor",
        {"kernel": "rbf", "gamma": "median"},
        varying_noise=True,
    ),
    ModelChoice(
        REGRESSION,
        "auto",
        "the best we know: kernel functions, kernel and widths learnt",
        "sparsebayes.ForwardRegressor",
        {"kernel": "auto", "gamma": "auto"},
        most_inputs=300,
        fit_rows=100_000,  # for some hundred functions more rows cost time and tell little
        instead="linear",
        varying_noise=True,
    ),
    ModelChoice(
        REGRESSION,
        "ols",
        "orthogonal least squares with local regularisation (Chen 2001)",
        "sparsebayes.OrthogonalLeastSquaresRegressor",
        {"kernel": "rbf", "gamma": "median"},
        most_rows=5_000,
        varying_noise=True,
    ),
    ModelChoice(
        REGRESSION,
        "rvm",
        "relevance vector machine, dense starts merged: the fewest functions",
        "sparsebayes.RVMRegressor",
        {"kernel": "rbf", "gamma": "median"},
        most_rows=5_000,
        varying_noise=True,
    ),
    ModelChoice(
        REGRESSION,
        "rvm-fast",
        "relevance vector machine one function at a time (Tipping & Faul 2003)",
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
        "relevance vector machine on parts of the rows, then on what is left (Ben-Shimon 2006)",
        "sparsebayes.PartitionedRVMRegressor",
        {"kernel": "rbf", "gamma": "median"},
        most_rows=20_000,
        usual=False,
        varying_noise=True,
    ),
    ModelChoice(
        REGRESSION,
        "group-ard",
        "one precision for each column, a category as one",
        "sparsebayes.GroupARDRegressor",
        most_inputs=500,
        most_rows=100_000,
        usual=False,
        groups_columns=True,
    ),
    ModelChoice(
        REGRESSION,
        "group-lasso",
        "Bayesian group lasso, sampled",
        "sparsebayes.BayesianGroupLassoRegressor",
        most_inputs=200,
        most_rows=10_000,
        usual=False,
        groups_columns=True,
    ),
    ModelChoice(
        REGRESSION,
        "group-horseshoe",
        "group horseshoe, sampled",
        "sparsebayes.GroupHorseshoeRegressor",
        most_inputs=200,
        most_rows=10_000,
        usual=False,
        groups_columns=True,
    ),
    ModelChoice(
        REGRESSION,
        "accurate",
        "the most accurate: the same, and the rows around each new one, all of which it keeps",
        "sparsebayes.ForwardRegressor",
        {"kernel": "auto", "gamma": "auto", "neighbours": "auto"},
        most_rows=20_000,  # that it is compared on: 54,000 rows of 24 inputs took 146 s
        most_inputs=300,
        fit_rows=100_000,
        varying_noise=True,
    ),
    ModelChoice(
        CLASSES,
        "baseline",
        "the shares of the classes: what every model has to beat",
        "sklearn.dummy.DummyClassifier",
    ),
    ModelChoice(
        CLASSES,
        "logistic",
        "scikit-learn, for comparison: logistic regression",
        "sklearn.linear_model.LogisticRegression",
        {"max_iter": 1000},
        most_inputs=20_000,
    ),
    ModelChoice(
        CLASSES,
        "linear",
        "sparse linear model of the log odds, those without use drop out",
        "sparsebayes.RVMClassifier",
        {"kernel": None},
        most_inputs=500,
        instead="columns",
    ),
    ModelChoice(
        CLASSES,
        "boosted-trees",
        "scikit-learn, for comparison: boosted trees",
        "sklearn.ensemble.HistGradientBoostingClassifier",
        {"random_state": 0},
        most_inputs=2_000,
        skops=False,
    ),
    ModelChoice(
        CLASSES,
        "svc",
        "scikit-learn, for comparison: support vectors, probabilities by calibration",
        "sparsebayes.models.calibrated_svc",
        most_rows=5_000,
        skops=False,
    ),
    ModelChoice(
        CLASSES,
        "columns",
        "Bayesian backfitting: sparse linear model of up to 100,000 columns (D'Souza 2004)",
        "sparsebayes.BackfittingClassifier",
        usual=False,
    ),
    ModelChoice(
        CLASSES,
        "groups",
        "spike and slab on whole columns, a category as one: which of them matter",
        "sparsebayes.GroupSpikeSlabClassifier",
        most_inputs=300,
        most_rows=20_000,
        groups_columns=True,
    ),
    ModelChoice(
        CLASSES,
        "rvm",
        "relevance vector machine, one width",
        "sparsebayes.RVMClassifier",
        {"kernel": "rbf", "gamma": "median"},
        most_rows=3_000,
    ),
    ModelChoice(
        CLASSES,
        "auto",
        "the best we know: relevance vector machine, kernel and widths learnt",
        "sparsebayes.RVMClassifier",
        {"kernel": "auto", "gamma": "auto"},
        most_inputs=300,
        fit_rows=5_000,
        instead="linear",
    ),
    ModelChoice(
        CLASSES,
        "partitioned",
        "relevance vector machine on parts of the rows, then on what is left (Ben-Shimon 2006)",
        "sparsebayes.PartitionedRVMClassifier",
        {"kernel": "auto", "gamma": "auto"},
        most_rows=20_000,
        most_inputs=300,
        usual=False,
    ),
)


def choices(task: str, names: Any = None) -> list[ModelChoice]:
    """The models of this task with these names, or those that are tried without being asked."""
    if names is None:
        return [choice for choice in MODELS if choice.task == task and choice.usual]
    known = {choice.name: choice for choice in MODELS if choice.task == task}
    for name in names:
        if name not in known:
            raise ValueError(
                f"There is no model {name!r} for {task}; choose from {', '.join(known)}."
            )
    return [known[name] for name in known if name in names]


def choose(task: str, name: str, n_rows: int, n_inputs: int) -> ModelChoice:
    """The model of this name, or the one to take instead where the table is too large for it."""
    (choice,) = choices(task, [name])
    while choice.instead and choice.unsuited(n_rows, n_inputs):
        (choice,) = choices(task, [choice.instead])
    return choice
