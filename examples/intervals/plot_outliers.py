"""
Outliers that do not move the mean
==================================

One observation in twelve is an outlier. Under a normal likelihood they widen the interval and
distort the mean. ``likelihood="student"`` learns how heavy the tails are, and the outliers hardly
matter.
"""

import matplotlib.pyplot as plt
import numpy as np

from sparsebayes import ForwardRegressor

rng = np.random.default_rng(1)
X = np.sort(rng.uniform(-5, 5, (180, 1)), axis=0)
y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(180)
outlying = rng.choice(180, 15, replace=False)
y[outlying] += rng.choice([-1, 1], 15) * rng.uniform(1.5, 4, 15)
grid = np.linspace(-5, 5, 300)[:, None]

figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), sharey=True, layout="constrained")
for ax, likelihood in zip(axes, ["gaussian", "student"], strict=True):
    model = ForwardRegressor("rbf", gamma=0.3, likelihood=likelihood).fit(X, y)
    low, high = model.predict_interval(grid, 0.8).T
    error = np.sqrt(np.mean((model.predict(grid) - np.sin(grid[:, 0])) ** 2))
    ax.fill_between(grid[:, 0], low, high, alpha=0.25, lw=0, label="80 % interval")
    ax.plot(X[:, 0], y, ".", color="0.5", ms=4)
    ax.plot(X[outlying, 0], y[outlying], "x", color="C3", label="outliers")
    ax.plot(grid[:, 0], np.sin(grid[:, 0]), "k--", lw=1, label="truth")
    ax.plot(grid[:, 0], model.predict(grid), lw=1.8, label="mean")
    ax.set_title(f"{likelihood}: RMSE {error:.3f}")
axes[1].legend(ncols=2, fontsize="small")
print("tail:", model.noise_tail_)
