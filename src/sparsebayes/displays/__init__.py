"""Plots, in the manner of scikit-learn's Displays; they need matplotlib."""

from .evidence_path import EvidencePathDisplay
from .prediction import PredictionDisplay

__all__ = ["EvidencePathDisplay", "PredictionDisplay"]
