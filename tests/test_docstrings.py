"""Docstrings against signatures and fitted models: what a user of scikit-learn meets."""

import ast
import importlib
import inspect
import re
import warnings
from enum import EnumType
from pathlib import Path

import numpy as np
import pytest
from numpydoc import docscrape
from sklearn.base import BaseEstimator, is_classifier

import sparsebayes

API = Path(__file__).parent.parent / "docs" / "api.rst"


def _public():
    found = {name: getattr(sparsebayes, name) for name in sparsebayes._HOME}
    for module in ("datasets", "displays", "metrics", "narx"):
        home = importlib.import_module(f"sparsebayes.{module}")
        found |= {f"{module}.{name}": getattr(home, name) for name in home.__all__}
    found = {name: thing for name, thing in found.items() if callable(thing)}
    for name, thing in list(found.items()):
        if inspect.isclass(thing):
            for method, function in inspect.getmembers(thing, inspect.isroutine):
                own = str(getattr(function, "__module__", "")).startswith("sparsebayes")
                if own and not method.startswith("_") and method != "get_params":
                    found[f"{name}.{method}"] = function
    # What the reference lists beside: kernels, solvers, designs, posteriors; their constructors.
    for name in re.findall(r"^   (\w+\.[\w.]+)$", API.read_text("utf-8"), re.MULTILINE):
        module, _, last = name.rpartition(".")
        thing = getattr(importlib.import_module(f"sparsebayes.{module}"), last)
        if callable(thing) and not getattr(thing, "_is_protocol", False):
            found.setdefault(name, thing)
    return found


PUBLIC = _public()
ESTIMATORS = {
    name: cls
    for name, cls in PUBLIC.items()
    if inspect.isclass(cls) and issubclass(cls, BaseEstimator) and "." not in name
}


def _described(docstring, section):
    """What a section says of each name; ``a, b : int`` is said of both."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        entries = docscrape.NumpyDocString(docstring)[section]
    return {
        name.strip().lstrip("*"): " ".join(entry.desc).strip()
        for entry in entries
        for name in entry.name.split(",")
    }


@pytest.mark.parametrize("name", PUBLIC)
def test_every_parameter_is_described_and_no_other(name):
    thing = PUBLIC[name]
    docstring = inspect.getdoc(thing)
    assert docstring
    if isinstance(thing, EnumType):
        return  # its members are listed, and it is not called
    if re.search(r"[Ss]ee `", docstring.split("\n\n")[0]):
        return  # described there
    wanted = set(inspect.signature(thing).parameters) - {"self", "cls"}
    described = _described(docstring, "Parameters")
    assert not wanted - set(described), "missing"
    assert not set(described) - wanted, "not in the signature"
    assert not [parameter for parameter in wanted if not described[parameter]], "without a word"


@pytest.mark.parametrize("name", ESTIMATORS)
def test_defaults_are_those_of_the_signature(name):
    parameters = inspect.signature(ESTIMATORS[name]).parameters
    docstring = docscrape.NumpyDocString(inspect.getdoc(ESTIMATORS[name]))
    for entry in docstring["Parameters"]:
        _, given, default = entry.type.partition("default=")
        if given and "," not in entry.name:
            assert ast.literal_eval(default) == parameters[entry.name].default, entry.name


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_fitted_attribute_is_described(name):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(60)
    model = ESTIMATORS[name]()
    quick = {"n_samples": 40, "n_warmup": 20, "cv": 2, "max_terms": 5}
    if "inference" not in model.get_params():  # EP does not sample
        model.set_params(**{p: v for p, v in quick.items() if p in model.get_params()})
    if {"kernel", "gamma"} <= set(model.get_params()) and "Backfitting" not in name:
        model.set_params(kernel="rbf", gamma=0.5)
    if name == "NARXRegressor":
        model.fit(X[:, 0], y)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y > 0 if is_classifier(model) else y)
    described = _described(inspect.getdoc(type(model)), "Attributes")
    assert not [attribute for attribute, words in described.items() if not words]
    fitted = {a for a in vars(model) if a.endswith("_") and not a.startswith("_")}
    assert fitted - set(described) <= {"n_features_in_", "feature_names_in_"}
