"""The scikit-learn estimators."""

from .backfitting import BackfittingRegressor
from .backfitting_classifier import BackfittingClassifier
from .forward import ForwardRegressor
from .forward_cv import ForwardRegressorCV
from .group_classifier import GroupSpikeSlabClassifier
from .group_rivals import BayesianGroupLassoRegressor, GroupARDRegressor, GroupHorseshoeRegressor
from .group_spike_slab import GroupSpikeSlabRegressor
from .lrols import OrthogonalLeastSquaresRegressor
from .partitioned import PartitionedRVMRegressor
from .partitioned_classifier import PartitionedRVMClassifier
from .rvm import RVMRegressor
from .rvm_classifier import RVMClassifier
from .target_transform import SparseTargetTransform

__all__ = [
    "BackfittingClassifier",
    "BackfittingRegressor",
    "BayesianGroupLassoRegressor",
    "ForwardRegressor",
    "ForwardRegressorCV",
    "GroupARDRegressor",
    "GroupHorseshoeRegressor",
    "GroupSpikeSlabClassifier",
    "GroupSpikeSlabRegressor",
    "OrthogonalLeastSquaresRegressor",
    "PartitionedRVMClassifier",
    "PartitionedRVMRegressor",
    "RVMClassifier",
    "RVMRegressor",
    "SparseTargetTransform",
]
