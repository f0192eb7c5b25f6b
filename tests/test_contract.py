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
from tests import registry

README = Path(__file__).parents[1] / "README.md"
# scikit-learn's checks shuffle, subset and repeat rows, which a series does not allow.
ESTIMATORS = [entry.cls for entry in registry.ENTRIES if entry.data != registry.SERIES]

# True is a verbosity and a seed of scikit-learn.
MAY_BE_TRUE = {"anneal", "fit_intercept", "heal", "random_state", "verbose", "warm_start", "warp"}


def test_the_readme_names_only_estimators_that_exist():
    sizes = README.read_text("utf-8").split("## How large the models are")[1].split("##")[0]
    named = set(re.findall(r"`(\w+(?:Regressor|Classifier|Transform))\b", sizes))
    assert len(named) >= 5
    assert named <= {entry.name for entry in registry.ENTRIES}


def test_the_registry_of_the_shared_tests_has_every_estimator_once():
    public = (getattr(sb, name) for name in sb.__all__)
    classes = [c for c in public if inspect.isclass(c) and issubclass(c, BaseEstimator)]
    assert sorted(c.__name__ for c in classes) == sorted(e.name for e in registry.ENTRIES)
    assert all(isinstance(m, e.cls) for e in registry.ENTRIES for m in e.typical + e.further)
    seeds = [entry.seed for entry in registry.ENTRIES if entry.choices]
    assert len(set(seeds)) == len(seeds)
    assert min(seeds) >= 0


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
