"""The scikit-learn estimators."""

from .forward import ForwardRegressor
from .forward_cv import ForwardRegressorCV
from .lrols import OrthogonalLeastSquaresRegressor
from .rvm import RVMRegressor

__all__ = [
    "ForwardRegressor",
    "ForwardRegressorCV",
    "OrthogonalLeastSquaresRegressor",
    "RVMRegressor",
]
