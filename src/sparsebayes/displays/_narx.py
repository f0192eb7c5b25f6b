"""Displays of dynamic models: simulation, correlation of residuals, error by horizon."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ._axes import WIDTH_95, SingleDisplay, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from sklearn.base import BaseEstimator


class FreeRunDisplay(SingleDisplay):
    """Measured output, simulated output and its 95 % band.

    Parameters
    ----------
    free_run, std : arrays of shape (n,)
        Simulated output and its standard deviation.
    y : array of shape (n,), optional
        Measured output, shown as points.

    Attributes
    ----------
    ax_, figure_, line_, band_, points_
        Axes and artists of the plot.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import NARXRegressor
    >>> from sparsebayes.displays import FreeRunDisplay
    >>> rng = np.random.default_rng(0)
    >>> u, y = rng.uniform(-1, 1, 200), np.zeros(200)
    >>> for k in range(1, 200):
    ...     y[k] = 0.5 * y[k - 1] + u[k] + 0.05 * rng.standard_normal()
    >>> model = NARXRegressor(1, 1, degree=1).fit(u, y)
    >>> FreeRunDisplay.from_estimator(model, u, y).free_run.shape
    (200,)
    """

    def __init__(self, free_run: ArrayLike, std: ArrayLike, *, y: ArrayLike | None = None) -> None:
        self.free_run, self.std, self.y = np.asarray(free_run), np.asarray(std), y

    @classmethod
    def from_estimator(
        cls, estimator: BaseEstimator, u: ArrayLike | None, y: ArrayLike, *, ax: Axes | None = None
    ) -> FreeRunDisplay:
        """Simulate a fitted `NARXRegressor` from the first outputs of y, and draw.

        Parameters
        ----------
        estimator : fitted model
            Fitted model.
        u : array of shape (n,) or (n, n_inputs), or None
            Inputs of a record.
        y : array of shape (n,)
            Output of the record.
        ax : matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        """
        y = np.asarray(y, dtype=np.float64).ravel()
        start = y[: estimator.max_lag_]
        free, std = estimator.simulate(u, start, n_steps=len(y), return_std=True)
        return cls(free, std, y=y).plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        k = np.arange(len(self.free_run))
        half = WIDTH_95 * self.std
        self.band_ = ax.fill_between(
            k, self.free_run - half, self.free_run + half, color="C0", alpha=0.2, lw=0,
            label="95 % interval",
        )  # fmt: skip
        self.points_ = None
        if self.y is not None:
            (self.points_,) = ax.plot(k, self.y, ".", ms=3, color="0.35", label="measured")
        (self.line_,) = ax.plot(k, self.free_run, color="C0", lw=1, label="simulated")
        ax.set(xlabel="time step", ylabel="output")
        ax.legend(fontsize="small", loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3)


class ResidualTestDisplay:
    """Autocorrelation of the one-step errors, and their correlation with each input.

    The errors of an adequate model are uncorrelated, so that about 95 % of the bars are inside the
    band.

    Parameters
    ----------
    correlations : dict of arrays
        From "errors" or the name of an input to the correlation at lags 1, 2, ... (errors) or
        0, 1, ... (inputs).
    band : float
        Half width of the 95 % band.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot, with one axes per correlation.
    """

    def __init__(self, correlations: dict[str, np.ndarray], band: float) -> None:
        self.correlations, self.band = correlations, band

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        u: ArrayLike | None,
        y: ArrayLike,
        *,
        n_lags: int = 25,
        ax: Axes | Sequence[Axes] | None = None,
    ) -> ResidualTestDisplay:
        """Draw the correlations of a fitted `NARXRegressor` on a record.

        Parameters
        ----------
        estimator : fitted NARXRegressor
            Fitted model.
        u, y : arrays
            Inputs and output of a record.
        n_lags : int, default=25
            Largest lag of the correlations.
        ax : array of matplotlib axes, optional
            One axes for the errors and one per input.
        """
        y = np.asarray(y, dtype=np.float64).ravel()
        error = y - estimator.predict(u, y)
        finite = np.isfinite(error)
        error = np.where(finite, error - np.mean(error[finite]), 0.0)
        correlations = {"errors": _correlations(error, error, n_lags + 1)[1:]}
        if u is not None:
            inputs = np.asarray(u, dtype=np.float64).reshape(len(y), -1)
            for i, column in enumerate(inputs.T):
                column = np.where(finite, column - np.nanmean(column[finite]), 0.0)
                name = "u" if inputs.shape[1] == 1 else f"u{i + 1}"
                correlations[name] = _correlations(column, error, n_lags)
        return cls(correlations, WIDTH_95 / np.sqrt(np.count_nonzero(finite))).plot(ax=ax)

    @property
    def share_outside(self) -> dict[str, float]:
        """Return the share of lags outside the band; 0.05 is expected by chance."""
        return {
            name: float(np.mean(np.abs(values) > self.band))
            for name, values in self.correlations.items()
        }

    def plot(self, ax: Axes | Sequence[Axes] | None = None) -> ResidualTestDisplay:
        """Draw the plot and return self.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        """
        n = len(self.correlations)
        if ax is None:
            axes = new_axes(ncols=n, figsize=(4.5 * n, 3.2), squeeze=False).ravel()
        else:
            axes = np.atleast_1d(np.array(ax, dtype=object)).ravel()
        if len(axes) < n:
            raise ValueError(
                f"{n} correlations need as many axes, but {len(axes)} axes were given."
            )
        for part, (name, values) in zip(axes, self.correlations.items(), strict=False):
            lags = np.arange(len(values)) + (name == "errors")
            part.bar(lags, values, width=0.6, color="C0")
            part.axhspan(-self.band, self.band, color="0.5", alpha=0.25, lw=0)
            past = "residuals" if name == "errors" else name
            part.set(xlabel="lag", ylabel="correlation", title=f"residuals and past {past}")
        self.ax_, self.figure_ = axes, axes[0].figure
        return self


class HorizonDisplay(SingleDisplay):
    """Root mean squared error against the number of steps ahead.

    Parameters
    ----------
    horizons : array of int
        Numbers of steps ahead.
    errors : array
        Root mean squared errors; infinite values (diverged simulations) are not drawn.

    Attributes
    ----------
    ax_, figure_, line_
        Axes and artists of the plot.
    """

    def __init__(self, horizons: ArrayLike, errors: ArrayLike) -> None:
        self.horizons, self.errors = np.asarray(horizons), np.asarray(errors)

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        u: ArrayLike | None,
        y: ArrayLike,
        *,
        horizons: Iterable[int] = (1, 2, 5, 10, 20, 50),
        ax: Axes | None = None,
    ) -> HorizonDisplay:
        """Predict a record with a fitted `NARXRegressor` at each horizon, and draw.

        Parameters
        ----------
        estimator : fitted model
            Fitted model.
        u : array of shape (n,) or (n, n_inputs), or None
            Inputs of a record.
        y : array of shape (n,)
            Output of the record.
        horizons : iterable of int
            Numbers of steps ahead.
        ax : matplotlib axes, optional
            Axes to draw on. The default is a new figure.
        """
        room = len(np.ravel(y)) - estimator.max_lag_
        chosen = [steps for steps in horizons if steps < room]
        return cls(chosen, estimator.errors_by_horizon(u, y, chosen)).plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        values = np.where(np.isfinite(self.errors), self.errors, np.nan)
        (self.line_,) = ax.plot(self.horizons, values, "o-", color="C0")
        ax.set_xscale("log")
        ax.set_ylim(bottom=0.0)
        ax.set(xlabel="steps ahead", ylabel="RMSE")


def _correlations(past: np.ndarray, error: np.ndarray, n: int) -> np.ndarray:
    """Correlation of error(k) with past(k - lag) for lags 0 to n - 1."""
    size = np.sqrt(np.sum(past**2) * np.sum(error**2)) or 1.0
    m = len(error)
    return np.array([np.sum(past[: m - lag] * error[lag:]) / size for lag in range(min(n, m))])
