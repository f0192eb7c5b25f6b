"""Models of dynamic systems: y(k) = f(y(k-1), ..., u(k), u(k-1), ...) + e(k).

`NARXRegressor` (in `sparsebayes.estimators.narx`) chooses the terms of f, fits them to the
simulated output and runs the model freely, with bands. Beside it are the small tools: `lagged`
writes down all monomials of the lagged values as candidates for any regressor, and `simulate` runs
the fitted model on its own past predictions: the test that a dynamic model has to pass, for a
one-step prediction can be good while the simulated model drifts away.
"""

from ._lagged import (
    Lagged,
    LagTerms,
    PredictionErrors,
    lagged,
    prediction_errors,
    simulate,
)

__all__ = [
    "LagTerms",
    "Lagged",
    "PredictionErrors",
    "lagged",
    "prediction_errors",
    "simulate",
]
