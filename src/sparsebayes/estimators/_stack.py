"""Descriptions of the members of a mixture of regressors or of classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..stacking import compare_densities


@dataclass(frozen=True, eq=False)
class FittedMember:
    """A fitted member of a stack.

    Attributes
    ----------
    name : str
        Name of the member.
    model : estimator
        The fitted model.
    seconds : float
        CPU time of its fit.
    """

    name: str
    model: Any
    seconds: float


def compared_members(
    names: Sequence[str],
    density: np.ndarray,
    counts: np.ndarray,
    weight: np.ndarray,
    sizes: Sequence[int],
    seconds: Sequence[float],
) -> dict[str, list[Any]]:
    """Return the comparison of the members (columns of `density`), one list per quantity."""
    compared = compare_densities(density, counts)
    return {
        "member": list(names),
        "left_out": compared.mean.tolist(),
        "error": compared.error.tolist(),
        "weight": weight.tolist(),
        "terms": list(sizes),
        "seconds": list(seconds),
    }


def weighted_names(names: Sequence[str], weights: np.ndarray) -> str:
    """Return the members and their weights, for a sentence."""
    return ", ".join(f"{name} {weight:.0%}" for name, weight in zip(names, weights, strict=True))


def mixture_pairs(names: Sequence[str], weights: np.ndarray) -> list[tuple[str, str]]:
    """Return the lines of a summary that name the members, and the one whose terms follow."""
    return [("mixture", weighted_names(names, weights)), ("terms of", names[0])]


def comparison_notes(
    table: dict[str, list[Any]], what: str, kept: Sequence[str], weights: np.ndarray, small: bool
) -> list[str]:
    """Return sentences on the comparison of the members by `what`, and on its result."""
    pairs = zip(table["member"], table["left_out"], strict=True)
    compared = ", ".join(f"{name} ({density:.4g})" for name, density in pairs)
    notes = [f"models compared by mean {what}: {compared}"]
    if len(kept) == 1:
        why = ", the smallest within one standard error" if small else ""
        notes.append(f"predictions are those of one model: {kept[0]}{why}")
    else:
        notes.append(f"predictions are those of a mixture: {weighted_names(kept, weights)}")
    return notes


def take_inputs(model: Any, fitted: Any) -> None:
    """Give a model the number and the names of the inputs of a fitted one."""
    model.n_features_in_ = fitted.n_features_in_
    vars(model).pop("feature_names_in_", None)
    if "feature_names_in_" in vars(fitted):
        model.feature_names_in_ = fitted.feature_names_in_
