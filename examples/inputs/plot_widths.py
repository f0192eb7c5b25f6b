"""
One length scale per input
==========================

Ten inputs, of which five matter. ``gamma="ard"`` learns one length scale per input by the evidence.
Inputs that do not matter get a very long one, and the test error falls from 2.0 to 1.1, where the
noise is 1. The second figure has the effects of the four most relevant inputs.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1

from sparsebayes import ForwardRegressor
from sparsebayes.displays import FeatureRelevanceDisplay, PartialEffectsDisplay

X, y = make_friedman1(n_samples=1240, noise=1.0, random_state=0)
X, new, y, target = X[:240], X[240:], y[:240], y[240:]
models = {
    gamma: ForwardRegressor("rbf", gamma=gamma).fit(X, y) for gamma in ("median", "evidence", "ard")
}
for gamma, model in models.items():
    error = np.sqrt(np.mean((model.predict(new) - target) ** 2))
    print(f"gamma={gamma!r:11} test error {error:.2f} (noise 1.00)")

model = models["ard"]
figure, ax = plt.subplots(figsize=(5.6, 4), layout="constrained")
FeatureRelevanceDisplay.from_estimator(model, ax=ax)

# %%
most = np.argsort(-model.feature_relevance_)[:4]
figure, axes = plt.subplots(2, 2, figsize=(8, 5), sharey=True, layout="constrained")
PartialEffectsDisplay.from_estimator(model, X, sorted(most), axes=axes.ravel())
