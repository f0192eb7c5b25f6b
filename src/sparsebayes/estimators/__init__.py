"""The scikit-learn estimators."""

from .forward import ForwardRegressor
from .rvm import RVMRegressor

__all__ = ["ForwardRegressor", "RVMRegressor"]
