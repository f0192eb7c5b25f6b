"""Polynomial NARX models: candidates from past inputs and outputs, and free-run simulation.

A NARX model says y(k) = f(y(k-1), ..., u(k-1), ...) + e(k). `lagged` writes down all monomials of
the lagged values as candidates, any regressor chooses among them, and `simulate` runs the fitted
model on its own past predictions: the test that a dynamic model has to pass, for a one-step
prediction can be good while the simulated model drifts away.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np

from ..designs import CentredBasis
from ..designs._basis import ColumnBasis


@dataclass(frozen=True)
class LagTerms:
    """The monomials of lagged values that `lagged` made, to make them again on other data.

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
    def max_lag(self) -> int:
        """How many values must be known before the first prediction."""
        lags = self.input_lags if self.n_inputs else ()
        return max(*self.output_lags, *lags, 0)

    @property
    def variables(self) -> list[str]:
        """Names of the lagged values: outputs first."""
        names = [_name("y", lag) for lag in self.output_lags]
        for i in range(self.n_inputs):
            label = "u" if self.n_inputs == 1 else f"u{i + 1}"
            names += [_name(label, lag) for lag in self.input_lags]
        return names

    @property
    def monomials(self) -> list[tuple[int, ...]]:
        """Each term as the sorted indices of its factors, repeated for powers."""
        everything = range(len(self.variables))
        return [
            factors
            for size in range(0 if self.constant else 1, self.degree + 1)
            for factors in combinations_with_replacement(everything, size)
        ]

    @property
    def powers(self) -> np.ndarray:
        """Exponent of each lagged value in each term, shape (n_terms, n_variables)."""
        monomials = self.monomials
        out = np.zeros((len(monomials), len(self.variables)), dtype=np.intp)
        for row, factors in zip(out, monomials, strict=True):
            np.add.at(row, list(factors), 1)
        return out

    @property
    def names(self) -> list[str]:
        """Readable names of the terms."""
        variables = self.variables
        out = []
        for row in self.powers:
            parts = [
                variables[i] + (f"^{row[i]}" if row[i] > 1 else "") for i in np.flatnonzero(row)
            ]
            out.append("*".join(parts) or "1")
        return out

    def candidates(self, u: np.ndarray | None, y: np.ndarray) -> np.ndarray:
        """The terms at times max_lag, max_lag + 1, ..., one column each.

        Parameters
        ----------
        u : array of shape (n,) or (n, n_inputs), or None
            The inputs; None for a system without.
        y : array of shape (n,)
            The output.
        """
        y, inputs = _series(u, y, self.n_inputs)
        start, n = self.max_lag, len(y)
        lagged_values = [y[start - lag : n - lag] for lag in self.output_lags]
        for i in range(self.n_inputs):
            lagged_values += [inputs[start - lag : n - lag, i] for lag in self.input_lags]
        monomials = self.monomials
        place = {factors: j for j, factors in enumerate(monomials)}
        out = np.empty((n - start, len(monomials)), order="F")
        for j, factors in enumerate(monomials):
            # Each monomial is a shorter one, made already, times one lagged value.
            shorter = 1.0 if len(factors) <= 1 else out[:, place[factors[:-1]]]
            out[:, j] = shorter * (lagged_values[factors[-1]] if factors else 1.0)
        return out


class Lagged(NamedTuple):
    """What `lagged` returns.

    Parameters
    ----------
    candidates : array or DataFrame of shape (n - max_lag, n_terms)
        The candidate terms, one column each.
    target : array of shape (n - max_lag,)
        The output that goes with each row.
    terms : LagTerms
        What the columns are.
    """

    candidates: Any
    target: np.ndarray
    terms: LagTerms


class PredictionErrors(NamedTuple):
    """Root mean squared errors of a model of lagged values.

    Parameters
    ----------
    one_step : float
        One step ahead, from measured outputs.
    free_run : float
        Simulated freely, from the first outputs on.
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
    """Candidates of a polynomial NARX model.

    Parameters
    ----------
    u : array of shape (n,) or (n, n_inputs), or None
        Inputs; None for a model of the output alone.
    y : array of shape (n,)
        Output.
    lags : int or pair
        Largest lag of inputs and output; or (input lags, output lags), each the largest lag or the
        lags themselves. An input may have lag 0: the value of the same moment.
    degree : int, default=2
        Largest total degree of a monomial.
    constant : bool, default=False
        The constant as a candidate like the others; fit the model without an intercept then.
    as_frame : bool, default=False
        Candidates as a pandas DataFrame, so that a fitted model knows the names of its terms.

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
        raise ValueError(f"degree must be a whole number >= 1, got {degree!r}.")
    input_lags, output_lags = _lags(lags)
    n_inputs = 0
    if u is not None:
        u = np.asarray(u, dtype=np.float64)
        n_inputs = 1 if u.ndim == 1 else u.shape[1]
    terms = LagTerms(input_lags, output_lags, int(degree), n_inputs, bool(constant))
    if not terms.variables:
        raise ValueError("There is nothing to make candidates of: no inputs and no output lags.")
    y, _ = _series(u, y, n_inputs)
    if len(y) <= terms.max_lag:
        raise ValueError(
            f"y has {len(y)} values, but the largest lag is {terms.max_lag}: give longer series."
        )
    candidates: Any = terms.candidates(u, y)
    if as_frame:
        candidates = _frame(candidates, terms)
    return Lagged(candidates, y[terms.max_lag :].copy(), terms)


def simulate(
    model: Any, terms: LagTerms, u: Any, y_start: Any, n_steps: int | None = None
) -> np.ndarray:
    """Free run: every lagged output after the start is the model's own prediction.

    Parameters
    ----------
    model : fitted regressor
        Fitted on candidates of the same `terms`.
    terms : LagTerms
        What `lagged` returned beside the candidates.
    u : array of shape (n,) or (n, n_inputs), or None
        Inputs over the whole run, start included.
    y_start : array
        The first ``terms.max_lag`` outputs; more are ignored.
    n_steps : int, optional
        Length of the run where there are no inputs.

    Returns
    -------
    y : array of shape (n,)
        Begins with the given start. From where the run diverges (a prediction that is not finite)
        it is infinite, and a RuntimeWarning says so.

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
        raise ValueError("Without inputs the length of the run is not known: give n_steps.")
    n = int(n_steps) if n_steps is not None else len(u)
    y = np.empty(n)
    y[:start] = y_start[:n]
    inputs = _series(u, y, terms.n_inputs)[1]
    one_step = _one_step(model, terms)
    output_lags, input_lags = np.array(terms.output_lags, dtype=int), np.array(terms.input_lags)
    x = np.empty(len(terms.variables))
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(start, n):
            x[: len(output_lags)] = y[k - output_lags]
            if terms.n_inputs:
                x[len(output_lags) :] = inputs[k - input_lags].T.ravel()
            y[k] = one_step(x)
            if not np.isfinite(y[k]):
                y[k:] = np.inf
                warnings.warn(
                    f"The simulated output diverged at step {k}: the model is unstable there.",
                    RuntimeWarning,
                    stacklevel=2,
                )
                break
    return y


def prediction_errors(model: Any, terms: LagTerms, u: Any, y: Any) -> PredictionErrors:
    """How far a model is off one step ahead, and when it runs freely from the first outputs.

    Parameters
    ----------
    model : fitted regressor
        A model of the candidates of `terms`.
    terms : LagTerms
        What `lagged` returned beside the candidates.
    u : array or None
        The inputs; None for a system without.
    y : array of shape (n,)
        The measured output.

    Returns
    -------
    errors : PredictionErrors
        Root mean squared errors ``one_step`` and ``free_run``; the second is infinite where the
        simulation diverges.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.estimators.lrols import OrthogonalLeastSquaresRegressor
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
    y, _ = _series(u, y, terms.n_inputs)
    start = terms.max_lag
    candidates: Any = terms.candidates(u, y)
    if hasattr(model, "feature_names_in_"):
        candidates = _frame(candidates, terms)
    free = simulate(model, terms, u, y[:start], n_steps=len(y))
    return PredictionErrors(
        _rms(y[start:] - np.asarray(model.predict(candidates)).ravel()),
        _rms(y[start:] - free[start:]),
    )


def _one_step(model: Any, terms: LagTerms) -> Callable[[np.ndarray], float]:
    """From lagged values to the next output; only the terms in use where the model is linear."""
    powers = terms.powers
    basis = getattr(model, "basis_", None)
    functions = basis.functions if isinstance(basis, CentredBasis) else basis
    linear = functions is None or isinstance(functions, ColumnBasis)
    if linear and hasattr(model, "coef_") and hasattr(model, "intercept_"):
        coef = np.asarray(model.coef_, dtype=np.float64).ravel()
        if len(coef) == len(powers):
            used = np.flatnonzero(coef)
            coef, powers = coef[used], powers[used]
            intercept = float(np.ravel(model.intercept_)[0])
            return lambda x: float(coef @ np.prod(x**powers, axis=1)) + intercept
    if basis is not None:
        # What `predict` does, without checking every single row.
        mean, offset = model.posterior_.mean, model.posterior_.offset
        return lambda x: float((basis(np.prod(x**powers, axis=1)[None]) @ mean)[0] + offset)
    named = hasattr(model, "feature_names_in_")

    def predict(x: np.ndarray) -> float:
        row: Any = np.prod(x**powers, axis=1)[None]
        if not np.all(np.isfinite(row)):
            return np.inf
        return float(np.ravel(model.predict(_frame(row, terms) if named else row))[0])

    return predict


def _lags(lags: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    pair = (lags, lags) if isinstance(lags, (int, np.integer)) else tuple(lags)
    if len(pair) != 2:
        raise ValueError(
            f"lags must be a whole number or a pair (input lags, output lags), got {lags!r}."
        )
    inputs, outputs = (_lag_list(part, lags) for part in pair)
    if 0 in outputs:
        raise ValueError("Output lags start at 1: lag 0 would be the value to be predicted.")
    return inputs, outputs


def _lag_list(part: Any, lags: Any) -> tuple[int, ...]:
    if isinstance(part, (int, np.integer)):
        part = range(1, int(part) + 1)
    if isinstance(part, Iterable):
        values = sorted(set(part))
        if all(isinstance(lag, (int, np.integer)) and lag >= 0 for lag in values):
            return tuple(int(lag) for lag in values)
    raise ValueError(f"Every lag must be a whole number >= 0, got lags={lags!r}.")


def _series(u: Any, y: Any, n_inputs: int) -> tuple[np.ndarray, np.ndarray]:
    y = np.asarray(y, dtype=np.float64).ravel()
    if u is None:
        u = np.empty((len(y), 0))
    u = np.asarray(u, dtype=np.float64)
    u = u.reshape(len(u), -1)
    if u.shape[1] != n_inputs:
        raise ValueError(f"u has {u.shape[1]} columns, but the terms are of {n_inputs} inputs.")
    if len(u) != len(y):
        raise ValueError(f"u has {len(u)} rows and y {len(y)} values: they must be equal.")
    return y, u


def _name(label: str, lag: int) -> str:
    return f"{label}(k-{lag})" if lag else f"{label}(k)"


def _frame(candidates: np.ndarray, terms: LagTerms) -> Any:
    import pandas as pd

    return pd.DataFrame(candidates, columns=terms.names)


def _rms(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(error))))
