"""
A simulated dynamic system, with intervals
==========================================

An oscillator with a hardening spring. A polynomial of few past values is identified from 4,000
samples. It then simulates a new record from the input alone, using its own past outputs, with a
95 % interval.
"""

import matplotlib.pyplot as plt
import numpy as np

from sparsebayes import NARXRegressor
from sparsebayes.displays import FreeRunDisplay, HorizonDisplay, ResidualTestDisplay


def oscillator(n, seed=0):
    """A mass on a hardening spring, sampled."""
    rng = np.random.default_rng(seed)
    u = 0.1 * np.convolve(rng.standard_normal(n + 4), np.ones(5) / 5, "valid")
    y = np.zeros(n)
    for k in range(2, n):
        y[k] = 1.45 * y[k - 1] - 0.9 * y[k - 2] + 0.5 * u[k - 1] - 0.8 * y[k - 1] ** 3
    return u, y + 0.002 * rng.standard_normal(n)


u, y = oscillator(5000)
u_fit, y_fit, u_new, y_new = u[:4000], y[:4000], u[4000:], y[4000:]

model = NARXRegressor(input_lags=2, output_lags=2, degree=3).fit(u_fit, y_fit)
print(model)
free, std = model.simulate(u_new, y_new[: model.max_lag_], return_std=True)
error = (y_new - free)[50:]
print(
    f"simulation of {len(error)} samples: RMSE {np.sqrt(np.mean(error**2)):.2g}, output std "
    f"{y_new.std():.2g}; 95 % intervals cover {np.mean(np.abs(error) < 1.96 * std[50:]):.1%}"
)

figure, (above, below) = plt.subplots(
    2, 1, figsize=(8, 5), sharex=True, height_ratios=[1.6, 1], layout="constrained"
)
part = slice(200, 420)
FreeRunDisplay(free[part], std[part], y=y_new[part]).plot(ax=above)
below.fill_between(
    range(220), -1.96 * std[part], 1.96 * std[part], alpha=0.3, label="95 % interval"
)
below.plot((y_new - free)[part], ".-", color="0.3", lw=0.6, ms=3, label="measured - simulated")
below.legend(loc="upper right", ncols=2, fontsize="small")
below.set(xlabel="sample", ylabel="error")

# %%
# The residuals one step ahead are small, but correlated with past residuals and inputs (bars
# outside the grey band): longer lags would use that. The error hardly grows with the horizon.

figure, axes = plt.subplots(1, 3, figsize=(13, 3.2), layout="constrained")
ResidualTestDisplay.from_estimator(model, u_new, y_new, ax=axes[:2])
HorizonDisplay.from_estimator(model, u_new[:300], y_new[:300], horizons=[1, 2, 5, 10], ax=axes[2])
