"""Every public estimator in its default form passes scikit-learn's own checks."""

from __future__ import annotations

import inspect
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import check_estimator

import sparsebayes as sb

README = Path(__file__).parents[1] / "README.md"
ESTIMATORS = [
    thing
    for thing in (getattr(sb, name) for name in sb.__all__)
    if inspect.isclass(thing)
    and issubclass(thing, BaseEstimator)
    # Its rows are moments of an experiment: sklearn's checks shuffle, subset and repeat rows.
    and thing is not sb.NARXRegressor
]


# True is a verbosity and a seed of scikit-learn.
MAY_BE_TRUE = {"anneal", "fit_intercept", "heal", "random_state", "verbose", "warm_start"}


def test_the_readme_names_every_estimator_and_no_other():
    table = README.read_text("utf-8").split("## Estimators")[1].split("##")[0]
    named = set(re.findall(r"`(\w+(?:Regressor|Classifier|Transform))`", table))
    assert named == {estimator.__name__ for estimator in [*ESTIMATORS, sb.NARXRegressor]}


@pytest.mark.slow  # a minute each; the tests of an estimator run the same checks on small settings
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.__name__)
def test_check_estimator_is_clean(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not errors, as in the rest of this suite
        results = check_estimator(estimator(), on_skip=None, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert failed == {}


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.__name__)
def test_fits_are_reproducible_by_default(estimator):
    parameters = inspect.signature(estimator).parameters
    assert "random_state" not in parameters or parameters["random_state"].default == 0


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.__name__)
def test_a_parameter_of_another_kind_is_refused_by_its_name(estimator):
    X, y = np.random.default_rng(0).standard_normal((20, 2)), np.arange(20) % 2
    known = getattr(estimator, "_parameter_constraints", {})
    for name in known.keys() & inspect.signature(estimator).parameters:
        for value in (object(), np.nan, True):
            if value is not True or name not in MAY_BE_TRUE:
                with pytest.raises(ValueError, match=f"The '{name}' parameter of "):
                    estimator(**{name: value}).fit(X, y)
