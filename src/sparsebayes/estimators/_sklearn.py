"""Everything that depends on scikit-learn's version or on its private parts."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import _check_sample_weight as check_sample_weight
from sklearn.utils.validation import check_is_fitted, validate_data

try:  # scikit-learn >= 1.9
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # pragma: no cover

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in where scikit-learn has no callbacks."""

    def with_callbacks(method: Any) -> Any:
        """Leave the method as it is."""
        return method


class TransformParameter:
    """A parameter named `transform` that does not make a transformer of the estimator.

    scikit-learn takes whatever has an attribute `transform` for a transformer, and calls it. So the
    parameter is given, shown and set like any other, but read as `transform_parameter`.
    """

    @property
    def transform(self) -> Any:
        """Not there, for those who ask with hasattr."""
        raise AttributeError(f"{type(self).__name__} does not transform rows; it predicts.")

    @transform.setter
    def transform(self, value: Any) -> None:
        vars(self)["transform"] = value

    @property
    def transform_parameter(self) -> Any:
        """What was given as `transform`."""
        return vars(self)["transform"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name."""
        return {name: vars(self)[name] for name in self._get_param_names()}  # type: ignore


__all__ = [
    "CallbackSupportMixin",
    "TransformParameter",
    "check_is_fitted",
    "check_sample_weight",
    "validate_data",
    "with_callbacks",
]
