"""
A curve from a handful of functions
===================================

A relevance vector machine on the sinc function: a few of 100 kernel functions carry the curve.
The band is the 95 % interval of a new observation, noise included; on the right the evidence,
which every step of the fit raises. This is the picture of the README (``python
examples/plot_sinc.py FILE.png`` draws it again).
"""

import sys

import matplotlib.pyplot as plt

from sparsebayes import RVMRegressor
from sparsebayes.datasets import make_sinc
from sparsebayes.displays import EvidencePathDisplay, PredictionDisplay

X, y = make_sinc(n_samples=100, noise=0.1, random_state=0)
model = RVMRegressor(kernel="rbf", gamma=0.1).fit(X, y)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), width_ratios=[1.6, 1])
PredictionDisplay.from_estimator(model, X, y, ax=left)
EvidencePathDisplay.from_estimator(model, ax=right)
figure.tight_layout()
said = (
    f"{len(model.active_)} of {len(X)} kernel functions kept\n"
    f"noise: {model.noise_variance_**0.5:.2f} (true: 0.10)"
)
print(said)
if len(sys.argv) > 1:
    # Kept in the file, so that a picture that is out of date can be told.
    figure.savefig(sys.argv[1], dpi=110, metadata={"Description": said})
