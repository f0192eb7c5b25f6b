"""Plots, in the manner of scikit-learn's Displays; they need matplotlib."""

from ._err_table import ErrorReductionDisplay
from .evidence_path import EvidencePathDisplay
from .prediction import PredictionDisplay

__all__ = ["ErrorReductionDisplay", "EvidencePathDisplay", "PredictionDisplay"]
