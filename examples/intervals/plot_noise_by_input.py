"""
An interval that follows the noise
==================================

One noise level is too wide where there is little noise, and too narrow where there is much.
``noise_variance="input"`` learns how the noise depends on the inputs, if that predicts better. The
circled points are the training rows that the model keeps. ``python
examples/intervals/plot_noise_by_input.py FILE.png`` draws the picture of the landing page.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from sparsebayes import RVMRegressor

rng = np.random.default_rng(3)
X = np.sort(rng.uniform(0, 10, (300, 1)), axis=0)
signal = np.sin(1.3 * X[:, 0]) + 0.25 * X[:, 0]
spread = 0.08 + 0.55 * np.exp(-0.5 * ((X[:, 0] - 7) / 1.3) ** 2)
y = signal + spread * rng.standard_normal(300)

model = RVMRegressor("rbf", gamma="evidence", noise_variance="input").fit(X, y)
grid = np.linspace(-0.3, 10.3, 400)[:, None]
mean = model.predict(grid)

figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
for coverage, shade in [(0.95, 0.18), (0.5, 0.3)]:
    low, high = model.predict_interval(grid, coverage).T
    ax.fill_between(
        grid[:, 0], low, high, color="C0", alpha=shade, lw=0, label=f"{coverage:.0%} interval"
    )
ax.plot(grid[:, 0], mean, color="C0", lw=2, label="mean")
ax.plot(X[:, 0], y, ".", color="0.35", ms=4, label="300 observations")
kept = model.relevance_vectors_
ax.plot(
    kept[:, 0],
    model.predict(kept),
    "o",
    mfc="none",
    mec="C3",
    ms=9,
    mew=1.8,
    label=f"{len(kept)} relevance vectors",
)
ax.set(xlim=(-0.3, 10.3), xlabel="x", ylabel="y")
ax.legend(loc="upper left", ncols=2, frameon=False)

low, high = model.predict_interval(X, 0.95).T
print(f"{len(kept)} functions; 95 % intervals cover {np.mean((low < y) & (y < high)):.1%}")
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=130)
