"""Sparse Bayesian models for regression and classification, behind the scikit-learn API."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0.dev0"

# Public name -> module. Loaded on first use, so that importing the package stays cheap.
_HOME = {
    "ForwardRegressor": "estimators.forward",
    "ForwardRegressorCV": "estimators.forward_cv",
    "OrthogonalLeastSquaresRegressor": "estimators.lrols",
    "RVMRegressor": "estimators.rvm",
    "TRUSTED_TYPES": "_trusted",
    "lagged": "narx",
    "simulate": "narx",
}
_MODULES = ("datasets", "designs", "displays", "estimators", "kernels", "posterior", "solvers")

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
