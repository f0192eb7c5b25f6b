"""
What the functions see, what the neighbours add
===============================================

A map with smooth hills, a coast line where the level jumps, and small detail. Forty kernel
functions follow the hills and blur the rest. With ``neighbours=32`` each prediction also looks at
the rows around it: what the functions leave out is local, and these rows restore it. The model is
then as accurate as the Gaussian process of all rows, whatever their number; it keeps the rows,
and a prediction takes a fraction of a millisecond.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from sparsebayes import ForwardRegressor

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

# %%
# The same widths for both: those of the process.
near = ForwardRegressor("sum", gamma="ard", max_terms=40, neighbours=32).fit(X, y)
alone = near.truncate(40)
shown = {"truth": height(grid)}
for name, model in {"40 functions": alone, "and 32 neighbours": near}.items():
    mean = model.predict(grid)
    error = np.sqrt(np.mean((mean - height(grid)) ** 2))
    shown[f"{name}: error {error:.2f}"] = mean

# %%
# Beside the truth: what the functions see, both together, and the difference, which is what the
# neighbours add: the coast line and the detail.
figure, axes = plt.subplots(1, 4, figsize=(14, 3.6), sharey=True, layout="constrained")
for ax, (name, mean) in zip(axes, shown.items(), strict=False):
    ax.pcolormesh(x0, x1, mean.reshape(x0.shape), vmin=-2.5, vmax=3.8, cmap="RdYlBu_r")
    ax.set_title(name, fontsize=11)
added = near.predict(grid) - alone.predict(grid)
axes[3].pcolormesh(x0, x1, added.reshape(x0.shape), vmin=-1, vmax=1, cmap="RdYlBu_r")
axes[3].set_title("what the neighbours add", fontsize=11)

# %%
# New observations are covered as often as promised.
new = rng.uniform(-3, 3, (2000, 2))
observed = height(new) + 0.15 * rng.standard_normal(2000)
ends = near.predict_interval(new)
inside = np.mean((ends[:, 0] < observed) & (observed < ends[:, 1]))
print(f"95 % intervals hold {inside:.1%} of them")
