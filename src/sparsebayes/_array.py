"""The few places where NumPy arrays and torch tensors differ.

Arrays as long as the data live behind a design and may be NumPy arrays or torch tensors on any
device. The designs write the operations both libraries share (``@``, slicing, ``xp.exp(a, out=a)``)
and come here for the rest; what leaves a design is NumPy float64.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np


def is_torch(array: Any) -> bool:
    """Whether this is a torch tensor, without importing torch to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def namespace(array: Any) -> ModuleType:
    """The module (numpy or torch) whose functions take this array."""
    return sys.modules["torch"] if is_torch(array) else np


def to_numpy(array: Any) -> np.ndarray:
    """A float64 NumPy array, from any device. Not a copy where it is one already."""
    if is_torch(array):
        array = array.detach().cpu().numpy()
    return np.asarray(array, dtype=np.float64)


def like(values: Any, array: Any) -> Any:
    """`values` on the device and in the dtype of `array`."""
    if is_torch(array):
        return sys.modules["torch"].as_tensor(values, dtype=array.dtype, device=array.device)
    return np.asarray(values, dtype=array.dtype)


def there(values: Any, array: Any) -> Any:
    """`values` in float64 on the device of `array`."""
    return on_device(values, array.device if is_torch(array) else None)


def on_device(values: Any, device: Any) -> Any:
    """`values` in float64 on a torch device; as they are where there is none, or no values."""
    if device is None or values is None:
        return values
    torch = sys.modules["torch"]
    return torch.as_tensor(values, dtype=torch.float64, device=device)


def squared_lengths(columns: Any) -> np.ndarray:
    """The squared length of each column, in NumPy."""
    return to_numpy(namespace(columns).einsum("ij,ij->j", columns, columns))
