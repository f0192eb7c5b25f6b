"""
One width per input: which of them matter
=========================================

Ten inputs, of which five matter. ``gamma="ard"`` learns one width per input by the evidence: the
useless ones get a width so large that they play no part, and the error on new rows falls from 2.0
to 1.1, where the noise is 1. The curves are the partial effects of the four that matter most,
with the band of the posterior.
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
figure = plt.figure(figsize=(11, 4.6), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=[1, 1.5])
FeatureRelevanceDisplay.from_estimator(model, ax=left.subplots())
most = np.argsort(-model.feature_relevance_)[:4]
PartialEffectsDisplay.from_estimator(model, X, sorted(most), axes=right.subplots(2, 2).ravel())
