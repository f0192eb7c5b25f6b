"""Kernels: their formulas, the choice of one for a fit, and length scales learnt from the data.

`formulas` has the kernel functions, `warp` those of inputs in two coordinates, and `box` the range
of the training rows. `choice` turns
the parameters of a user (`KernelSpec`) into the kernel of a fit (`KernelChoice`); where length
scales or the family are learnt, `widths` searches for the largest of the Gaussian-process evidences
that `evidence` computes. Those two are imported by fits that learn.
"""

from .average import AveragedKernel
from .box import Box
from .choice import (
    KernelChoice,
    KernelSpec,
    ProcessKind,
    choose_kernel,
    is_option,
    learns_widths,
    warn_of_scales,
)
from .formulas import (
    FAMILIES,
    FEW_ROWS,
    LEARNT,
    STATIONARY,
    BoundAdditive,
    BoundKernel,
    BoundLaplacian,
    BoundStationary,
    BoundSum,
    GammaOption,
    Kernel,
    KernelName,
    PairwiseKernel,
    StationaryKernel,
    kernel_of_lengths,
    make_kernel,
    resolve_gamma,
)
from .warp import Warp, WarpedKernel

__all__ = [
    "FAMILIES",
    "FEW_ROWS",
    "LEARNT",
    "STATIONARY",
    "AveragedKernel",
    "BoundAdditive",
    "BoundKernel",
    "BoundLaplacian",
    "BoundStationary",
    "BoundSum",
    "Box",
    "GammaOption",
    "Kernel",
    "KernelChoice",
    "KernelName",
    "KernelSpec",
    "PairwiseKernel",
    "ProcessKind",
    "StationaryKernel",
    "Warp",
    "WarpedKernel",
    "choose_kernel",
    "is_option",
    "kernel_of_lengths",
    "learns_widths",
    "make_kernel",
    "resolve_gamma",
    "warn_of_scales",
]
