"""Models of dynamic systems: y(k) = f(y(k-1), ..., u(k), u(k-1), ...) + e(k).

`NARXRegressor` (in `sparsebayes.estimators.narx`) selects the terms of f, fits them to the
simulated output, and simulates the model with intervals. `lagged` makes all monomials of the lagged
values as candidates for any regressor, and `simulate` simulates such a model from its own past
predictions. A simulation is a stricter test than predictions one step ahead.
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
