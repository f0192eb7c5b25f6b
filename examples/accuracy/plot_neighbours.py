"""
Local detail from the nearest rows
==================================

A map with smooth hills, a coast line where the level jumps, and small detail. Forty kernel
functions follow the hills and blur the rest. With ``neighbours=32`` each prediction is also
conditioned on the nearest training rows, which restores the local detail. The model then stores all
rows, and a prediction takes a fraction of a millisecond.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from sparsebayes import SparseGPRegressor

rng = np.random.default_rng(0)


def height(X):
    hills = np.sin(1.5 * X[:, 0]) + np.cos(1.2 * X[:, 1])
    coast = X[:, 1] > 0.8 * np.sin(2.0 * X[:, 0])
    detail = 0.4 * np.sin(5.0 * X[:, 0]) * np.sin(4.0 * X[:, 1])
    return hills + 1.5 * coast + detail


n = 500 if os.environ.get("SPARSEBAYES_QUICK") else 1500
X = rng.uniform(-3, 3, (n, 2))
y = height(X) + 0.15 * rng.standard_normal(n)
x0, x1 = np.meshgrid(np.linspace(-3, 3, 60), np.linspace(-3, 3, 60))
grid = np.column_stack([x0.ravel(), x1.ravel()])

local = SparseGPRegressor("sum", gamma="ard", max_terms=40, neighbours=32).fit(X, y)
functions = SparseGPRegressor("sum", gamma=local.gamma_, max_terms=40).fit(X, y)
shown = {"truth": height(grid)}
for name, model in {"40 functions": functions, "with 32 neighbours": local}.items():
    mean = model.predict(grid)
    error = np.sqrt(np.mean((mean - height(grid)) ** 2))
    shown[f"{name}: RMSE {error:.2f}"] = mean

figure, axes = plt.subplots(
    2, 2, figsize=(6.4, 5.6), sharex=True, sharey=True, layout="constrained"
)
for ax, (name, mean) in zip(axes.ravel(), shown.items(), strict=False):
    ax.pcolormesh(x0, x1, mean.reshape(x0.shape), vmin=-2.5, vmax=3.8, cmap="RdYlBu_r")
    ax.set_title(name, fontsize=11)
added = local.predict(grid) - functions.predict(grid)
axes[1, 1].pcolormesh(x0, x1, added.reshape(x0.shape), vmin=-1, vmax=1, cmap="RdYlBu_r")
axes[1, 1].set_title("difference", fontsize=11)

# %%
# Coverage of the intervals of new observations:
new = rng.uniform(-3, 3, (2000, 2))
observed = height(new) + 0.15 * rng.standard_normal(2000)
ends = local.predict_interval(new)
inside = np.mean((ends[:, 0] < observed) & (observed < ends[:, 1]))
print(f"95 % intervals cover {inside:.1%}")
