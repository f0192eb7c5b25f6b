"""The scikit-learn estimators, one module for each family."""

from .._lazy import lazy

_HOMES = {
    "BackfittingClassifier": "backfitting_classifier",
    "BackfittingRegressor": "backfitting",
    "BayesianGroupLassoRegressor": "group_baselines",
    "ForwardRegressor": "forward",
    "GroupARDRegressor": "group_baselines",
    "GroupHorseshoeRegressor": "group_baselines",
    "GroupSpikeSlabClassifier": "group_classifier",
    "GroupSpikeSlabRegressor": "group_spike_slab",
    "NARXRegressor": "narx",
    "OrthogonalLeastSquaresRegressor": "lrols",
    "PartitionedRVMClassifier": "partitioned_classifier",
    "PartitionedRVMRegressor": "partitioned",
    "RVMClassifier": "rvm_classifier",
    "RVMRegressor": "rvm",
    "SparseGPClassifier": "sparse_gp_classifier",
    "SparseGPRegressor": "sparse_gp",
    "SparseTargetTransform": "target_transform",
}
__getattr__, __dir__ = lazy(__name__, _HOMES)
__all__ = [*_HOMES]
