"""
Outliers that do not move the mean
==================================

One observation in twelve is gross. A normal likelihood pays for them with a wide band and a
crooked mean; ``likelihood="student"`` learns how heavy the tails are, and leaves the outliers
outside.
"""

import matplotlib.pyplot as plt
import numpy as np

from sparsebayes import ForwardRegressor

rng = np.random.default_rng(1)
X = np.sort(rng.uniform(-5, 5, (180, 1)), axis=0)
y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(180)
gross = rng.choice(180, 15, replace=False)
y[gross] += rng.choice([-1, 1], 15) * rng.uniform(1.5, 4, 15)
grid = np.linspace(-5, 5, 300)[:, None]

figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), sharey=True, layout="constrained")
for ax, likelihood in zip(axes, ["gaussian", "student"], strict=True):
    model = ForwardRegressor("rbf", gamma=0.3, likelihood=likelihood).fit(X, y)
    low, high = model.predict_interval(grid, 0.8).T
    error = np.sqrt(np.mean((model.predict(grid) - np.sin(grid[:, 0])) ** 2))
    ax.fill_between(grid[:, 0], low, high, alpha=0.25, lw=0, label="80 % interval")
    ax.plot(X[:, 0], y, ".", color="0.5", ms=4)
    ax.plot(X[gross, 0], y[gross], "x", color="C3", label="gross")
    ax.plot(grid[:, 0], np.sin(grid[:, 0]), "k--", lw=1, label="truth")
    ax.plot(grid[:, 0], model.predict(grid), lw=1.8, label="mean")
    ax.set_title(f"{likelihood}: error of the mean {error:.3f}")
axes[1].legend(ncols=2, fontsize="small")
print("tail:", model.noise_tail_)
