"""Polynomial NARX models by any regressor: candidates from past inputs and outputs, and free runs.

The model is y(k) = f(y(k-1), ..., u(k-1), ...) + e(k). `lagged` makes all monomials of the lagged
values as candidates, any regressor selects among them, and `simulate` simulates the fitted model
from its own past predictions. A simulation is a stricter test than predictions one step ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._warn import warn
from .functions import Monomials
from .records import lag_tuple, series
from .simulation import Lags, run_one


@dataclass(frozen=True)
class LagTerms:
    """Monomials of lagged values, as made by `lagged`, that can be evaluated on other data.

    Parameters
    ----------
    input_lags, output_lags : tuple of int
        Lags of every input, and of the output.
    degree : int
        Largest total degree of a monomial.
    n_inputs : int
        Number of inputs of the system.
    constant : bool, default=False
        Whether the first term is the constant.

    Examples
    --------
    >>> from sparsebayes.narx import LagTerms
    >>> LagTerms((1,), (1,), degree=2, n_inputs=1).names
    ['y(k-1)', 'u(k-1)', 'y(k-1)^2', 'y(k-1)*u(k-1)', 'u(k-1)^2']
    """

    input_lags: tuple[int, ...]
    output_lags: tuple[int, ...]
    degree: int
    n_inputs: int
    constant: bool = False

    @property
    def lags(self) -> Lags:
        """Lags of the inputs and of the output."""
        return Lags(self.output_lags, (self.input_lags,) * self.n_inputs)

    @property
    def max_lag(self) -> int:
        """Number of past values that the first prediction needs."""
        return self.lags.max_lag

    @property
    def functions(self) -> Monomials:
        """Terms as functions of the lagged values."""
        every = Monomials.up_to(self.lags.variables, self.degree)
        return every if self.constant else every.take(range(1, len(every)))

    @property
    def names(self) -> list[str]:
        """Readable names of the terms."""
        return self.functions.names

    def candidates(self, u: np.ndarray | None, y: np.ndarray) -> np.ndarray:
        """Return the terms at times max_lag, max_lag + 1, ..., one column each.

        Parameters
        ----------
        u : array of shape (n,) or (n, n_inputs), or None
            Inputs; None for a system without inputs.
        y : array of shape (n,)
            The output.
        """
        u, y = series(u, y, self.n_inputs)
        lags = self.lags
        return self.functions(np.concatenate([lags.of_outputs(y), lags.of_inputs(u)])).T


class Lagged(NamedTuple):
    """Result of `lagged`.

    Parameters
    ----------
    candidates : array or DataFrame of shape (n - max_lag, n_terms)
        Candidate terms, one column each.
    target : array of shape (n - max_lag,)
        Output of each row.
    terms : LagTerms
        Terms of the columns.
    """

    candidates: Any
    target: np.ndarray
    terms: LagTerms


class PredictionErrors(NamedTuple):
    """Root mean squared errors of a model of lagged values.

    Parameters
    ----------
    one_step : float
        Error one step ahead, from measured outputs.
    free_run : float
        Error of the simulation from the first outputs.
    """

    one_step: float
    free_run: float


def lagged(
    u: Any,
    y: Any,
    lags: Any,
    degree: int = 2,
    *,
    constant: bool = False,
    as_frame: bool = False,
) -> Lagged:
    """Return the candidate terms of a polynomial NARX model.

    Parameters
    ----------
    u : array of shape (n,) or (n, n_inputs), or None
        Inputs; None for a model of the output alone.
    y : array of shape (n,)
        Output.
    lags : int or pair
        Largest lag of inputs and output, or a pair (input lags, output lags). Each is the largest
        lag or a list of lags. Lag 0 of an input is its value at the same time step.
    degree : int, default=2
        Largest total degree of a monomial.
    constant : bool, default=False
        Whether the constant is a candidate; if so, fit the model without an intercept.
    as_frame : bool, default=False
        Return the candidates as a pandas DataFrame, so that a fitted model has the names of its
        terms.

    Returns
    -------
    candidates : array or DataFrame of shape (n - max_lag, n_terms)
    target : array of shape (n - max_lag,)
    terms : LagTerms
        For `simulate` and `prediction_errors`; ``terms.names`` names the columns.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.narx import lagged
    >>> u = np.arange(5.0)
    >>> candidates, target, terms = lagged(u, 10 * u, lags=1, degree=2)
    >>> terms.names
    ['y(k-1)', 'u(k-1)', 'y(k-1)^2', 'y(k-1)*u(k-1)', 'u(k-1)^2']
    >>> candidates[-1], target[-1]
    (array([ 30.,   3., 900.,  90.,   9.]), np.float64(40.0))
    """
    if not (isinstance(degree, (int, np.integer)) and degree >= 1):
        raise ValueError(f"degree must be an integer of at least 1, got {degree!r}.")
    pair = (lags, lags) if isinstance(lags, (int, np.integer)) else tuple(lags)
    if len(pair) != 2:
        raise ValueError(
            f"lags must be an integer or a pair (input lags, output lags), got {lags!r}."
        )
    input_lags, output_lags = (lag_tuple(part, 1, "lags") for part in pair)
    if 0 in output_lags:
        raise ValueError("Output lags must be at least 1; lag 0 is the value to predict.")
    u, y = series(u, y)
    terms = LagTerms(input_lags, output_lags, int(degree), u.shape[1], bool(constant))
    if not terms.lags.variables:
        raise ValueError(
            "There are no candidate terms, because there are no inputs and no output lags."
        )
    if len(y) <= terms.max_lag:
        raise ValueError(
            f"y has {len(y)} values, but the largest lag is {terms.max_lag}. Pass a longer "
            "series, or use fewer lags."
        )
    candidates: Any = terms.candidates(u, y)
    if as_frame:
        candidates = _frame(candidates, terms)
    return Lagged(candidates, y[terms.max_lag :].copy(), terms)


def simulate(
    model: Any, terms: LagTerms, u: Any, y_start: Any, n_steps: int | None = None
) -> np.ndarray:
    """Simulate a model: every lagged output after the start is the model's own prediction.

    Parameters
    ----------
    model : fitted regressor
        Fitted on candidates of the same `terms`.
    terms : LagTerms
        Terms that `lagged` returned with the candidates.
    u : array of shape (n,) or (n, n_inputs), or None
        Inputs at all time steps, the start included.
    y_start : array
        The first ``terms.max_lag`` outputs; more are ignored.
    n_steps : int, optional
        Number of time steps if there are no inputs.

    Returns
    -------
    y : array of shape (n,)
        Simulated output, which begins with the given start. If it diverges it is infinite from that
        time step on, with a RuntimeWarning.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from sparsebayes.narx import lagged, simulate
    >>> y = 0.5 ** np.arange(6.0)
    >>> X, target, terms = lagged(None, y, lags=1, degree=1)
    >>> simulate(LinearRegression().fit(X, target), terms, None, y[:1], n_steps=3).round(3)
    array([1.  , 0.5 , 0.25])
    """
    start = terms.max_lag
    y_start = np.asarray(y_start, dtype=np.float64).ravel()[:start]
    if len(y_start) < start:
        raise ValueError(f"y_start has {len(y_start)} values, but the model needs {start}.")
    if u is None and n_steps is None:
        raise ValueError(
            "A model without inputs needs n_steps, the number of time steps to simulate."
        )
    n = int(n_steps) if n_steps is not None else len(u)
    y = np.zeros(n)
    y[:start] = y_start[:n]
    if n <= start:
        return y
    u, _ = series(u, y, terms.n_inputs)
    one_step = _one_step(model, terms)
    with np.errstate(over="ignore", invalid="ignore"):
        inputs = terms.lags.of_inputs(u).T
        stopped = run_one(one_step, terms.lags, inputs, y, (-np.inf, np.inf))
    if stopped < n:
        y[stopped:] = np.inf
        warn(
            f"The simulated output diverged at time step {stopped}. The model is unstable for "
            "these inputs.",
            RuntimeWarning,
        )
    return y


def prediction_errors(model: Any, terms: LagTerms, u: Any, y: Any) -> PredictionErrors:
    """Return the errors of a model one step ahead and in a simulation from the first outputs.

    Parameters
    ----------
    model : fitted regressor
        A model of the candidates of `terms`.
    terms : LagTerms
        Terms that `lagged` returned with the candidates.
    u : array or None
        Inputs; None for a system without inputs.
    y : array of shape (n,)
        The measured output.

    Returns
    -------
    errors : PredictionErrors
        Root mean squared errors ``one_step`` and ``free_run``; the second is infinite if the
        simulation diverges.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import OrthogonalLeastSquaresRegressor
    >>> from sparsebayes.narx import lagged, prediction_errors
    >>> rng = np.random.default_rng(0)
    >>> u, y = rng.uniform(-1, 1, 300), np.zeros(300)
    >>> for k in range(1, 300):
    ...     y[k] = 0.5 * y[k - 1] + u[k - 1] ** 2 + 0.01 * rng.standard_normal()
    >>> X, target, terms = lagged(u, y, lags=2, degree=2)
    >>> model = OrthogonalLeastSquaresRegressor(kernel=None).fit(X, target)
    >>> errors = prediction_errors(model, terms, u, y)
    >>> errors.one_step < errors.free_run < 0.02
    True
    """
    u, y = series(u, y, terms.n_inputs)
    start = terms.max_lag
    candidates: Any = terms.candidates(u, y)
    if hasattr(model, "feature_names_in_"):
        candidates = _frame(candidates, terms)
    free = simulate(model, terms, u, y[:start])
    return PredictionErrors(
        _rms(y[start:] - np.asarray(model.predict(candidates)).ravel()),
        _rms(y[start:] - free[start:]),
    )


def _one_step(model: Any, terms: LagTerms) -> Callable[[list[float]], float]:
    """Map lagged values to the next output; only the terms in use where the model is linear."""
    functions = terms.functions
    basis = getattr(model, "basis_", None)
    linear = basis is None or basis.indices is not None
    if linear and hasattr(model, "coef_") and hasattr(model, "intercept_"):
        coef = np.asarray(model.coef_, dtype=np.float64).ravel()
        if len(coef) == len(functions):
            used = np.flatnonzero(coef)
            weighted_sum = functions.take(used).scalar(coef[used])
            intercept = float(np.ravel(model.intercept_)[0])
            return lambda x: weighted_sum(x) + intercept

    def row(x: list[float]) -> np.ndarray:
        return functions(np.array(x)[:, None]).T

    if basis is not None:
        # What `predict` does, without checking every single row.
        mean, offset = model.posterior_.mean, model.posterior_.offset
        return lambda x: float((basis(row(x)) @ mean)[0] + offset)
    named = hasattr(model, "feature_names_in_")

    def predict(x: list[float]) -> float:
        values: Any = row(x)
        if not np.all(np.isfinite(values)):
            return np.inf
        return float(np.ravel(model.predict(_frame(values, terms) if named else values))[0])

    return predict


def _frame(candidates: np.ndarray, terms: LagTerms) -> Any:
    import pandas as pd

    return pd.DataFrame(candidates, columns=terms.names)


def _rms(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(error))))
