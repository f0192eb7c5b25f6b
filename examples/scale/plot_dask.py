"""
Rows on a Dask cluster
======================

A Dask array of any size: each chunk is read by the worker that has it, and only small sums are
sent. The model equals that of a NumPy array to the last digits. It has NumPy arrays only, and
predicts Dask arrays block by block. With a ``distributed.Client`` the same lines run on a cluster.
"""

import matplotlib.pyplot as plt
import numpy as np

from sparsebayes import ForwardRegressor

try:
    import dask.array as da
except ImportError:
    raise SystemExit("This example needs dask: pip install 'sparsebayes[dask]'") from None

rng = np.random.default_rng(0)
values = rng.uniform(-3, 3, (20_000, 2))
target = np.sin(values[:, 0]) * np.cos(values[:, 1]) + 0.1 * rng.standard_normal(20_000)
X, y = da.from_array(values, chunks=(2_500, 2)), target

settings = {"gamma": 0.5, "max_terms": 40, "candidates": 200}
distributed = ForwardRegressor("rbf", **settings).fit(X, y)
local = ForwardRegressor("rbf", **settings).fit(values, target)
lazy = distributed.predict(X)  # a Dask array: nothing is computed yet
difference = np.max(np.abs(lazy.compute() - local.predict(values)))
print(f"{X.numblocks[0]} chunks, {len(distributed.active_)} terms; difference {difference:.1e}")

x0, x1 = np.meshgrid(np.linspace(-3, 3, 80), np.linspace(-3, 3, 80))
grid = da.from_array(np.column_stack([x0.ravel(), x1.ravel()]), chunks=(1_600, 2))
mean, std = (
    part.compute().reshape(x0.shape) for part in distributed.predict(grid, return_std=True)
)
figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
for ax, image, name in zip(axes, (mean, std), ("mean", "standard deviation"), strict=True):
    drawn = ax.pcolormesh(x0, x1, image, cmap="viridis" if name == "mean" else "magma")
    ax.plot(*distributed.relevance_vectors_.T, "o", mfc="none", mec="w", ms=6)
    ax.set_title(f"{name}, {len(distributed.active_)} functions", fontsize=10)
    figure.colorbar(drawn, ax=ax)
