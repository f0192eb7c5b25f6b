"""Candidate columns: dense, kernel functions evaluated lazily, and the wrapping designs."""

from ..rows import RowBlocks
from ._base import Basis, CentredBasis, ColumnBasis, Design, KernelBasis
from .centred import CentredDesign, WeightedDesign, check_columns
from .dense import CompressedDesign, DenseDesign
from .kernel import ChunkedKernelDesign, KernelDesign
from .nufft import NufftDesign

__all__ = [
    "Basis",
    "CentredBasis",
    "CentredDesign",
    "ChunkedKernelDesign",
    "ColumnBasis",
    "CompressedDesign",
    "DenseDesign",
    "Design",
    "KernelBasis",
    "KernelDesign",
    "NufftDesign",
    "RowBlocks",
    "WeightedDesign",
    "check_columns",
]
