"""Displays like those of scikit-learn; they require matplotlib."""

from ._course import ErrorReductionDisplay, EvidencePathDisplay, PartitionDisplay
from ._group import (
    CoefficientDisplay,
    CredibleSetsDisplay,
    DesignErrorDisplay,
    InclusionDisplay,
)
from ._inputs import FeatureRelevanceDisplay, PartialEffectsDisplay
from ._narx import FreeRunDisplay, HorizonDisplay, ResidualTestDisplay
from ._prediction import CalibrationDisplay, PredictionDisplay

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
