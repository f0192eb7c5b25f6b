"""
A curve from six kernel functions
=================================

A relevance vector machine on the sinc function keeps six of 100 kernel functions. The band is the
95 % interval of a new observation, noise included. On the right, the evidence over the steps of the
fit. ``python examples/intervals/plot_sinc.py FILE.png`` draws the picture of the README.
"""

import sys

import matplotlib.pyplot as plt

from sparsebayes import RVMRegressor
from sparsebayes.datasets import make_sinc
from sparsebayes.displays import EvidencePathDisplay, PredictionDisplay

X, y = make_sinc(n_samples=100, noise=0.1, random_state=0)
model = RVMRegressor(kernel="rbf", gamma=0.1).fit(X, y)

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), width_ratios=[1.6, 1])
PredictionDisplay.from_estimator(model, X, y, ax=left)
EvidencePathDisplay.from_estimator(model, ax=right)
figure.tight_layout()
summary = (
    f"{len(model.active_)} of {len(X)} kernel functions kept\n"
    f"noise: {model.noise_variance_**0.5:.2f} (true: 0.10)"
)
print(summary)
if len(sys.argv) > 1:
    # The description in the file shows whether the picture is out of date.
    figure.savefig(sys.argv[1], dpi=110, metadata={"Description": summary})
