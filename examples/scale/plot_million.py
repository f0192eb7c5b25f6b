"""
A million rows from disk
========================

Rows in a memory map, never in memory as a whole: ``ForwardRegressor`` reads them in blocks, a fixed
number of times. The time is proportional to the number of rows. The error, and the standard
deviation of the function, fall with their square root.
"""

import os
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from sparsebayes import ForwardRegressor

n = 100_000 if os.environ.get("SPARSEBAYES_QUICK") else 1_000_000
folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "rows.npy"
rng = np.random.default_rng(0)
X = np.lib.format.open_memmap(path, "w+", np.float64, (n, 2))
y = np.empty(n)
for first in range(0, n, 50_000):  # written in blocks, too
    block = rng.uniform(-3, 3, (50_000, 2))
    X[first : first + 50_000] = block
    y[first : first + 50_000] = np.sin(2 * block[:, 0]) * np.exp(-(block[:, 1] ** 2) / 4)
y += 0.5 * rng.standard_normal(n)
X = np.load(path, mmap_mode="r")

sizes = [n // 100, n // 10, n]
seconds, errors, spread = [], [], []
grid = rng.uniform(-3, 3, (2000, 2))
truth = np.sin(2 * grid[:, 0]) * np.exp(-(grid[:, 1] ** 2) / 4)
for size in sizes:
    model = ForwardRegressor("rbf", gamma=0.7, max_terms=80, candidates=250, cache_size=10)
    started = time.perf_counter()
    model.fit(X[:size], y[:size])
    seconds.append(time.perf_counter() - started)
    mean, std = model.predict(grid, return_std=True)
    errors.append(np.sqrt(np.mean((mean - truth) ** 2)))
    spread.append(np.sqrt(np.mean(std**2) - model.noise_variance_))
    print(f"{size:>9,} rows: {seconds[-1]:5.1f} s, RMSE {errors[-1]:.4f}, std {spread[-1]:.4f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
left.loglog(sizes, seconds, "o-")
left.set(xlabel="rows", ylabel="seconds")
right.loglog(sizes, errors, "o-", label="RMSE to the true function")
right.loglog(sizes, spread, "s--", label="standard deviation of the function")
right.set(xlabel="rows")
right.legend(fontsize="small")
del X, model
