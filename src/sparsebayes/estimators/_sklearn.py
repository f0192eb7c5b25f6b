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


__all__ = [
    "CallbackSupportMixin",
    "check_is_fitted",
    "check_sample_weight",
    "validate_data",
    "with_callbacks",
]
