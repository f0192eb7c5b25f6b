"""
Near-duplicate columns: one of these matters
============================================

1,000 columns and 100 rows, as in gene expression. The columns come in clusters of five that carry
nearly the same signal, and three columns have an effect.

The data cannot distinguish the columns of a cluster, so none of them has a high probability, and a
selection by false discovery rate leaves them out. A credible set reports that one of them is in the
model, and how correlated they are.
"""

import matplotlib.pyplot as plt
import numpy as np

from sparsebayes import GroupSpikeSlabRegressor
from sparsebayes.displays import CredibleSetsDisplay, InclusionDisplay

rng = np.random.default_rng(0)
n, n_clusters, size, correlation = 100, 200, 5, 0.98
signals = np.repeat(rng.standard_normal((n, n_clusters)), size, axis=1)
X = correlation * signals + np.sqrt(1 - correlation**2) * rng.standard_normal(signals.shape)
true = [11, 500, 752]
y = X[:, true] @ [1.0, -0.8, 0.7] + 0.5 * rng.standard_normal(n)

model = GroupSpikeSlabRegressor(None, inclusion_prior=3 / X.shape[1]).fit(X, y)
print(f"columns with an effect: {true}")
print(f"selected at a false discovery rate of 5 %: {model.select(fdr=0.05).tolist()}")
sets, probability, purity = model.credible_sets(return_details=True)
for members, p, alike in zip(sets, probability, purity, strict=True):
    print(f"probability {p:.3f}: one of {members.tolist()} (correlations of at least {alike:.2f})")

_, axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
InclusionDisplay.from_estimator(model, most=10, ax=axes[0])
CredibleSetsDisplay.from_estimator(model, ax=axes[1])
