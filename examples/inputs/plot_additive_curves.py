"""
A curve for each input
======================

An additive model: each column has a curve of its own, here a spline. ``relevance_`` is the share of
each curve that is kept. Two of the six inputs are noise, and their curves are dropped. The bands
are 95 % credible intervals.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from sparsebayes import BackfittingRegressor
from sparsebayes.displays import PartialEffectsDisplay

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (400, 6))
parts = [np.sin(3 * X[:, 0]), X[:, 1] ** 2, np.exp(-20 * X[:, 2] ** 2), np.abs(X[:, 3])]
y = np.sum(parts, axis=0) + 0.2 * rng.standard_normal(400)
spline = make_pipeline(SplineTransformer(8), LinearRegression())
model = BackfittingRegressor(smoothers=spline).fit(X, y)
print("relevance:", model.relevance_.round(2), "kept:", model.active_)

figure, axes = plt.subplots(2, 2, figsize=(7, 5), sharey=True, layout="constrained")
PartialEffectsDisplay.from_estimator(model, X, [0, 1, 2, 3], axes=axes.ravel())
for ax, part, x in zip(axes.ravel(), parts, X.T, strict=False):
    order = np.argsort(x)
    ax.plot(x[order], (part - part.mean())[order], "k--", lw=1, label="truth")
axes[0, 0].legend(fontsize="small")
