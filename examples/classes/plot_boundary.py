"""
A decision boundary from a few relevance vectors
================================================

Two interleaved half moons. A support vector machine keeps the points along the boundary. The
relevance vector machine keeps a few typical points, and its probabilities are integrated over the
posterior of the weights. Outside the range of the data they return to the class frequencies.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.svm import SVC

from sparsebayes import RVMClassifier

X, y = make_moons(200, noise=0.25, random_state=0)
models = {
    "SVC": SVC(gamma=1.0).fit(X, y),
    "RVMClassifier": RVMClassifier("rbf", gamma=1.0).fit(X, y),
}
x0, x1 = np.meshgrid(np.linspace(-3, 4, 120), np.linspace(-2.5, 3, 100))
grid = np.column_stack([x0.ravel(), x1.ravel()])

figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    if hasattr(model, "predict_proba"):
        shade, level, limits = model.predict_proba(grid)[:, 1], 0.5, (0, 1)
        kept = model.relevance_vectors_
    else:
        shade, level, limits = model.decision_function(grid), 0.0, (-2, 2)
        kept = model.support_vectors_
    shade = shade.reshape(x0.shape)
    ax.pcolormesh(x0, x1, shade, cmap="RdBu_r", vmin=limits[0], vmax=limits[1], alpha=0.6)
    ax.contour(x0, x1, shade, [level], colors="k", linewidths=1.2)
    ax.scatter(*X.T, c=y, cmap="RdBu_r", s=12, edgecolors="k", linewidths=0.3)
    ax.scatter(*kept.T, s=70, facecolors="none", edgecolors="k", linewidths=1.6)
    ax.set_title(f"{name}: {len(kept)} vectors")
    print(f"{name:26} {len(kept)} of {len(X)} rows kept")
