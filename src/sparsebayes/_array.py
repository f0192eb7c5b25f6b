"""The few places where NumPy arrays and torch tensors differ.

Arrays as long as the data belong to a design and may be NumPy arrays or torch tensors on any
device. The designs use the operations that both libraries share (``@``, slicing,
``xp.exp(a, out=a)``) and this module for the rest. Results that leave a design are NumPy float64.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard, TypeVar

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    import torch

# A NumPy array or a torch tensor. torch is optional, so the type checker sees the interface that
# both share as that of NumPy; after `is_torch` it accepts anything.
Array: TypeAlias = np.ndarray
PerTarget: TypeAlias = float | np.ndarray  # a number, or one for each of several targets
RandomState: TypeAlias = int | np.random.RandomState | np.random.Generator | None
Device: TypeAlias = "torch.device | str"


Values = TypeVar("Values", bound="ArrayLike | None")


def is_torch(array: object) -> TypeGuard[Any]:
    """Return whether `array` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def namespace(array: Array) -> ModuleType:
    """Return the module (numpy or torch) whose functions take `array`."""
    return sys.modules["torch"] if is_torch(array) else np


def to_numpy(array: ArrayLike) -> np.ndarray:
    """Return `array` as a NumPy float64 array, copied only if necessary."""
    if is_torch(array):
        array = array.detach().cpu().numpy()
    return np.asarray(array, dtype=np.float64)


def asarray_like(array: Array, values: ArrayLike) -> Array:
    """Return `values` on the device and in the dtype of `array`."""
    if is_torch(array):
        return sys.modules["torch"].as_tensor(values, dtype=array.dtype, device=array.device)
    return np.asarray(values, dtype=array.dtype)


def on_same_device(array: Array, values: Array) -> Array:
    """Return `values` ready to be multiplied with `array`.

    They take the device and the dtype of a tensor. Beside a NumPy array only a tensor is converted.
    """
    if is_torch(array):
        return asarray_like(array, values)
    return to_numpy(values) if is_torch(values) else values


class Transfer(NamedTuple):
    """The two ways between NumPy and the device of an array, found once for many uses."""

    put: Callable[[ArrayLike], Array]  # makes values ready to be multiplied with the array
    get: Callable[[Array], np.ndarray]  # makes a NumPy array of a result


def transfer(array: Array) -> Transfer:
    """Return how values get to the device of `array` and back; NumPy arrays stay as they are."""
    if is_torch(array):
        return Transfer(partial(asarray_like, array), to_numpy)
    return Transfer(np.asarray, np.asarray)


def to_device_of(array: object, values: Array) -> Array:
    """Return `values` in float64 on the device of `array`; unchanged if it is not a tensor."""
    return on_device(values, array.device if is_torch(array) else None)


def on_device(values: Values, device: Device | None) -> Values:
    """Return `values` in float64 on a torch device; unchanged if either is None."""
    if device is None or values is None:
        return values
    torch = sys.modules["torch"]
    return torch.as_tensor(values, dtype=torch.float64, device=device)


def squared_lengths(columns: Array) -> np.ndarray:
    """Return the squared length of each column as a NumPy array."""
    return to_numpy(namespace(columns).einsum("ij,ij->j", columns, columns))
