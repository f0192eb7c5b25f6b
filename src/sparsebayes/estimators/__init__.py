"""The scikit-learn estimators."""

from .rvm import RVMRegressor

__all__ = ["RVMRegressor"]
