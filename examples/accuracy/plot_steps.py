"""
Steps and smooth parts
======================

A function that is smooth along one input and has steps along the other. A smooth kernel blurs the
steps, and trees cut the wave into steps. ``kernel="sum"`` adds a smooth and a rough kernel, each
with one length scale per input. ``kernel="auto"`` selects it here.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from sparsebayes import ForwardRegressor

rng = np.random.default_rng(0)


def truth(X):
    return np.sin(2 * X[:, 0]) + 1.2 * (X[:, 1] > 0.7) - 1.2 * (X[:, 1] < -1.3)


X = rng.uniform(-3, 3, (300, 2))
y = truth(X) + 0.15 * rng.standard_normal(300)
x0, x1 = np.meshgrid(np.linspace(-3, 3, 90), np.linspace(-3, 3, 90))
grid = np.column_stack([x0.ravel(), x1.ravel()])
models = {
    "boosted trees": HistGradientBoostingRegressor(random_state=0),
    'kernel="rbf"': ForwardRegressor("rbf", gamma="ard"),
    'kernel="auto"': ForwardRegressor(kernel="auto", gamma="ard"),
}
shown = {"truth": truth(grid)}
for name, model in models.items():
    mean = model.fit(X, y).predict(grid)
    error = np.sqrt(np.mean((mean - truth(grid)) ** 2))
    shown[f"{name}: RMSE {error:.2f}"] = mean
print(f"kernel='auto' selects {model.kernel_!r}, rough share {model.rough_share_:.2f}")

figure, axes = plt.subplots(
    2, 2, figsize=(6.4, 5.6), sharex=True, sharey=True, layout="constrained"
)
for ax, (name, mean) in zip(axes.ravel(), shown.items(), strict=True):
    ax.pcolormesh(x0, x1, mean.reshape(x0.shape), vmin=-2.3, vmax=2.3, cmap="RdYlBu_r")
    ax.set_title(name, fontsize=11)
