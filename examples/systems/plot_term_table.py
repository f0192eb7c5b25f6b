"""
A table of terms
================

Which of 84 monomials of past inputs and outputs drive a system? Orthogonal least squares selects
them one after the other by the error that each removes. Plain selection also takes
``y(k-1)*u(k-2)``, which the true terms make unnecessary. Local regularisation (LROLS, the default)
requires more of a term than the best of 84 irrelevant ones would show by chance, and drops it.
Right: simulation on new inputs.
"""

import matplotlib.pyplot as plt
import numpy as np

from sparsebayes import OrthogonalLeastSquaresRegressor, lagged, simulate
from sparsebayes.displays import ErrorReductionDisplay
from sparsebayes.narx import prediction_errors


def respond(u, noise):
    """Output of the system, from rest."""
    y = np.zeros(len(u))
    for k in range(2, len(u)):
        y[k] = 0.5 * y[k - 1] - 0.3 * y[k - 2] + 0.8 * u[k - 1]
        y[k] += 0.4 * u[k - 2] ** 2 - 0.2 * y[k - 1] * u[k - 1] + noise[k]
    return y


rng = np.random.default_rng(0)
u = rng.uniform(-1, 1, 1500)
size = 0.1 * np.std(respond(u, np.zeros(1500)))
y = respond(u, size * rng.standard_normal(1500))
train, test = slice(0, 1000), slice(1000, 1500)

X, target, terms = lagged(u[train], y[train], lags=3, degree=3, constant=True, as_frame=True)
settings = {"kernel": None, "fit_intercept": False}
forward = OrthogonalLeastSquaresRegressor(regularization="none", **settings).fit(X, target)
model = OrthogonalLeastSquaresRegressor(**settings).fit(X, target)

print(
    f"{X.shape[1]} candidates; selected: {len(forward.active_)} without, "
    f"{len(model.active_)} with regularisation"
)
std = np.sqrt(np.diag(model.posterior_.covariance)) * model.basis_.scale
print(f"{'term':>15} {'ERR':>8} {'coefficient':>12} {'std':>7}")
for j, err, spread in zip(model.active_, model.err_table_.err, std, strict=True):
    print(f"{terms.names[j]:>15} {err:8.4f} {model.coef_[j]:12.3f} {spread:7.3f}")
errors = prediction_errors(model, terms, u[test], y[test])
print(
    f"RMSE one step ahead {errors.one_step:.4f}, simulation {errors.free_run:.4f}; noise {size:.4f}"
)

figure, (left, right) = plt.subplots(
    1, 2, figsize=(9, 3.8), width_ratios=[1, 1.3], layout="constrained"
)
ErrorReductionDisplay.from_estimator(model, ax=left)
left.set_xscale("log")
free = simulate(model, terms, u[test], y[test][:3])
right.plot(y[test][:120], ".", color="0.4", label="measured")
right.plot(free[:120], label="simulated")
right.set(xlabel="time step", ylabel="output")
right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
