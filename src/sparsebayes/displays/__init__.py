"""Plots, in the manner of scikit-learn's Displays; they need matplotlib."""

from ._calibration import CalibrationDisplay
from ._err_table import ErrorReductionDisplay
from ._group import (
    CoefficientDisplay,
    CredibleSetsDisplay,
    DesignErrorDisplay,
    InclusionDisplay,
)
from ._narx import FreeRunDisplay, HorizonDisplay, ResidualTestDisplay
from ._partial_effects import PartialEffectsDisplay
from ._partition import PartitionDisplay
from ._relevance import FeatureRelevanceDisplay
from .evidence_path import EvidencePathDisplay
from .prediction import PredictionDisplay

__all__ = [
    "CalibrationDisplay",
    "CoefficientDisplay",
    "CredibleSetsDisplay",
    "DesignErrorDisplay",
    "ErrorReductionDisplay",
    "EvidencePathDisplay",
    "FeatureRelevanceDisplay",
    "FreeRunDisplay",
    "HorizonDisplay",
    "InclusionDisplay",
    "PartialEffectsDisplay",
    "PartitionDisplay",
    "PredictionDisplay",
    "ResidualTestDisplay",
]
