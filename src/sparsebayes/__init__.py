"""Sparse Bayesian models for regression and classification, behind the scikit-learn API."""

from __future__ import annotations

from ._lazy import lazy

__version__ = "0.1.0"

# Public name -> module. Loaded on first use, so that importing the package stays cheap.
_HOME = {
    "BackfittingClassifier": "estimators.backfitting_classifier",
    "BackfittingRegressor": "estimators.backfitting",
    "BayesianGroupLassoRegressor": "estimators.group_rivals",
    "ForwardRegressor": "estimators.forward",
    "ForwardRegressorCV": "estimators.forward_cv",
    "GroupARDRegressor": "estimators.group_rivals",
    "GroupHorseshoeRegressor": "estimators.group_rivals",
    "GroupSpikeSlabClassifier": "estimators.group_classifier",
    "GroupSpikeSlabRegressor": "estimators.group_spike_slab",
    "NARXRegressor": "estimators.narx",
    "OrthogonalLeastSquaresRegressor": "estimators.lrols",
    "PartitionedRVMClassifier": "estimators.partitioned_classifier",
    "PartitionedRVMRegressor": "estimators.partitioned",
    "RVMClassifier": "estimators.rvm_classifier",
    "RVMRegressor": "estimators.rvm",
    "SequentialDesign": "experimental_design",
    "SparseTargetTransform": "estimators.target_transform",
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
