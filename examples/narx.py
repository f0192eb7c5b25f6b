"""Identify a nonlinear dynamic system from its input and output, and let the model run freely.

    python examples/narx.py [FILE.png]

A simulated system, y(k) = 0.5 y(k-1) - 0.3 y(k-2) + 0.8 u(k-1) + 0.4 u(k-2)^2 - 0.2 y(k-1) u(k-1),
is measured with noise 20 dB below its output. Among 84 monomials of three past inputs and outputs
the five true ones are found, with their coefficients and standard deviations. The forward search
alone also takes y(k-1) u(k-2), a stand-in for the square that the true terms make needless; local
regularisation, the default, asks each term for more than the best of 84 useless ones would show by
chance, and drops it.
"""

import sys

import numpy as np

from sparsebayes.estimators.lrols import OrthogonalLeastSquaresRegressor
from sparsebayes.narx import lagged, prediction_errors, simulate


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

X, target, terms = lagged(u[train], y[train], lags=3, degree=3, constant=True)
settings = {"kernel": None, "fit_intercept": False}
forward = OrthogonalLeastSquaresRegressor(regularization="none", **settings).fit(X, target)
model = OrthogonalLeastSquaresRegressor(**settings).fit(X, target)

print(f"{X.shape[1]} candidates, {len(forward.active_)} chosen, {len(model.active_)} kept")
std = np.sqrt(np.diag(model.posterior_.covariance)) * model.basis_.scale
print(f"\n{'term':>15} {'ERR':>8} {'coefficient':>12} {'std':>7}")
for j, err, spread in zip(model.active_, model.err_table_.err, std, strict=True):
    print(f"{terms.names[j]:>15} {err:8.4f} {model.coef_[j]:12.3f} {spread:7.3f}")

print(f"\n{'':20} {'one step':>9} {'free run':>9}   RMSE on new data, noise {size:.3f}")
for name, fitted in [("forward search", forward), ("local (default)", model)]:
    errors = prediction_errors(fitted, terms, u[test], y[test])
    print(f"{name:20} {errors.one_step:9.4f} {errors.free_run:9.4f}")

if len(sys.argv) > 1:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(9, 3))
    free = simulate(model, terms, u[test], y[test][:3])
    ax.plot(y[test][:120], ".", color="0.4", label="measured")
    ax.plot(free[:120], label="free run")
    ax.set(xlabel="k", ylabel="y(k)")
    ax.legend()
    figure.tight_layout()
    figure.savefig(sys.argv[1], dpi=110)
