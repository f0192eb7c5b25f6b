"""The evidence over the steps of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._axes import axes_or_new


class EvidencePathDisplay:
    """Log evidence and number of active terms over the steps of a fit.

    Parameters
    ----------
    log_evidence : array of shape (n_steps,)
        Log evidence after each step.
    n_active : array of shape (n_steps,)
        Number of functions after each step.
    name : str, optional
        Title of the plot.

    Attributes
    ----------
    ax_, figure_, evidence_line_, active_line_
        What `plot` drew.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import RVMRegressor
    >>> from sparsebayes.displays import EvidencePathDisplay
    >>> X = np.linspace(-5, 5, 40)[:, None]
    >>> model = RVMRegressor().fit(X, np.sinc(X[:, 0]))
    >>> display = EvidencePathDisplay.from_estimator(model)
    >>> display.ax_.get_xlabel()
    'step'
    """

    def __init__(self, log_evidence: Any, n_active: Any, name: str | None = None) -> None:
        self.log_evidence = np.asarray(log_evidence)
        self.n_active = np.asarray(n_active)
        self.name = name

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> EvidencePathDisplay:
        """Draw the path of a fitted estimator.

        Parameters
        ----------
        estimator : fitted model
            The model that is drawn.
        ax : matplotlib axes, optional
            Where to draw; a new figure by default.
        """
        history = estimator.history_
        missing = {"log_evidence", "n_active"} - set(history)
        if missing:
            raise ValueError(
                f"The history_ of this {type(estimator).__name__} has no {' or '.join(missing)}: "
                "it keeps no evidence path."
            )
        name = type(estimator).__name__
        return cls(history["log_evidence"], history["n_active"], name).plot(ax=ax)

    def plot(self, ax: Any = None) -> EvidencePathDisplay:
        """Draw; returns self.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; a new figure by default.
        """
        ax = axes_or_new(ax)
        steps = np.arange(1, len(self.log_evidence) + 1)
        (self.evidence_line_,) = ax.plot(steps, self.log_evidence, color="C0")
        # A few first steps from a poor start would flatten the rest of the curve.
        finite = self.log_evidence[np.isfinite(self.log_evidence)]
        if len(finite) > 10:
            low, high = np.quantile(finite, 0.1), finite.max()
            ax.set_ylim(low - 0.1 * (high - low) - 1e-9, high + 0.05 * (high - low) + 1e-9)
        ax.set(xlabel="step", ylabel="log evidence (nats)", title=self.name)
        ax.yaxis.label.set_color("C0")
        other = ax.twinx()
        (self.active_line_,) = other.plot(steps, self.n_active, color="C1", alpha=0.8)
        other.set_ylabel("active terms", color="C1")
        other.set_ylim(bottom=0)
        other.yaxis.get_major_locator().set_params(integer=True)
        self.ax_, self.figure_ = ax, ax.figure
        return self
