"""Candidate columns: dense, kernel functions evaluated lazily, and the wrapping designs."""

from ..rows import RowBlocks
from ._base import Design
from ._basis import Basis, CentredBasis, ColumnBasis, KernelBasis
from .centred import CentredDesign, WeightedDesign, check_columns, unwrapped
from .chunked import ChunkedKernelDesign
from .compressed import CompressedDesign
from .dense import DenseDesign
from .kernel import KernelDesign
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
    "unwrapped",
]
