"""Estimators that hold fitted models, and the members of a mixture of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import Tags, get_tags

from ..stacking import compare_densities
from ._sklearn import input_attributes
from ._summary import Summary, Term, of_target


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


class ModelHolder(Summary):
    """Base of estimators that predict with fitted models, which they hold."""

    def _take_inputs(self, fitted: Any) -> None:
        """Have the number and the names of the inputs of a fitted model."""
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__.update(input_attributes(fitted))


class Mixture(ModelHolder):
    """Base of mixtures; a subclass sets the members, the one of the largest weight first.

    Parameters
    ----------
    max_time : float or None
        Seconds after which no further member is fitted, and the one that is being fitted ends with
        what it has reached, with a ConvergenceWarning.

    Attributes
    ----------
    members_ : list
        Members of positive weight, the largest weight first.
    choices_ : dict of lists
        Models that were compared, one entry per member: ``member``, ``loo_log_density`` (mean
        leave-one-out log density of y, or log probability of the labels minus its optimism),
        ``error`` (standard error of its difference to the best), ``weight``, ``terms`` (functions
        or columns) and ``seconds``.
    converged_ : bool
        False where `max_time` or an interruption cut the fit short.
    notes_ : list of str
        Models that were compared, and the result.
    n_features_in_ : int
        Number of inputs.
    feature_names_in_ : array of str
        Names of the inputs, if X has names.
    """

    _member: Any  # class of the processes among the members
    members_: list[Any]
    weights_: np.ndarray

    def _summary_pairs(self) -> list[tuple[str, str]]:
        names = [member.name for member in self.members_]
        mixture = [("mixture", weighted_names(names, self.weights_)), ("largest share", names[0])]
        log = vars(self).get("target_transform_") == "log"
        own = of_target(self.members_[0].model._summary_pairs(), "log y" if log else "")
        return [*mixture, *own]

    def _summary_terms(self) -> list[Term]:
        return self.members_[0].model._summary_terms()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self._member()).input_tags
        return tags


def parameters_of(model: Summary, *names: str) -> dict[str, Any]:
    """Return these parameters of an estimator, for a model that it makes."""
    parameters = model.get_params(deep=False)
    return {name: parameters[name] for name in names}


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
        "loo_log_density": compared.mean.tolist(),
        "error": compared.error.tolist(),
        "weight": weight.tolist(),
        "terms": list(sizes),
        "seconds": list(seconds),
    }


def weighted_names(names: Sequence[str], weights: np.ndarray) -> str:
    """Return the members and their weights, for a sentence."""
    return ", ".join(f"{name} {weight:.0%}" for name, weight in zip(names, weights, strict=True))


def comparison_notes(
    table: dict[str, list[Any]], what: str, kept: Sequence[str], weights: np.ndarray, small: bool
) -> list[str]:
    """Return sentences on the comparison of the members by `what`, and on its result."""
    pairs = zip(table["member"], table["loo_log_density"], strict=True)
    compared = ", ".join(f"{name} ({density:.4g})" for name, density in pairs)
    notes = [f"models compared by mean {what}: {compared}"]
    if len(kept) == 1:
        why = ", the smallest within one standard error" if small else ""
        notes.append(f"predictions are those of one model: {kept[0]}{why}")
    else:
        notes.append(f"predictions are those of a mixture: {weighted_names(kept, weights)}")
    return notes
