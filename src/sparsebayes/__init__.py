"""Sparse Bayesian models for regression and classification, behind the scikit-learn API."""

from __future__ import annotations

from ._lazy import lazy
from .estimators import _HOMES

__version__ = "0.1.0"

# Public name -> module. Loaded on first use, so that importing the package stays cheap.
_HOME = {
    **{name: f"estimators.{home}" for name, home in _HOMES.items()},
    "SequentialDesign": "experimental_design",
    "TRUSTED_TYPES": "_trusted",
    "export_model": "export",
    "information_gain": "experimental_design",
    "lagged": "narx",
    "propose": "experimental_design",
    "simulate": "narx",
    "table_model": "estimators.table",
}
_MODULES = (
    "datasets",
    "designs",
    "displays",
    "estimators",
    "kernels",
    "narx",
    "posterior",
    "solvers",
)

__getattr__, __dir__ = lazy(__name__, {**_HOME, **{name: name for name in _MODULES}})
__all__ = [*_HOME, *_MODULES]
