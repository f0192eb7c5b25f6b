"""
Coverage of intervals, with one noise level and with a noise model
==================================================================

The noise grows along the input. With one noise level the intervals cover 95 % on average, but too
much on the left and too little on the right. With ``noise_variance="input"`` they cover 95 %
everywhere. MAPIE accepts both models unchanged.
"""

import matplotlib.pyplot as plt
import numpy as np

from sparsebayes import ForwardRegressor
from sparsebayes.displays import CalibrationDisplay
from sparsebayes.metrics import interval_coverage, interval_score


def draw(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (n, 1))
    return X, np.sin(X[:, 0]) + (0.05 + 0.08 * X[:, 0]) * rng.standard_normal(n)


X, y = draw(500, 0)
new, target = draw(4000, 1)
plain = ForwardRegressor("rbf", gamma="evidence").fit(X, y)
by_input = ForwardRegressor("rbf", gamma="evidence", noise_variance="input").fit(X, y)
models = {"one noise level": plain, 'noise_variance="input"': by_input}

figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), sharey=True, layout="constrained")
grid = np.linspace(0, 10, 200)[:, None]
for ax, (name, model) in zip(axes, models.items(), strict=True):
    low, high = model.predict_interval(grid).T
    ax.fill_between(grid[:, 0], low, high, alpha=0.3, label="95 % interval")
    ax.plot(X[:, 0], y, ".", color="0.4", markersize=3)
    ax.plot(grid[:, 0], model.predict(grid), label="mean")
    ax.set_title(name)
axes[0].legend(loc="upper left", fontsize="small")

# %%
# Three checks on 4,000 new rows, for one noise level (top) and for the noise model (bottom): the
# distribution of the predictive probabilities of the targets (flat if calibrated), the observed
# coverage at each nominal level, and the error against the standard deviation.

figure, axes = plt.subplots(2, 3, figsize=(11, 6), layout="constrained")
for row, model in zip(axes, models.values(), strict=True):
    CalibrationDisplay.from_estimator(model, new, target, axes=list(row))

# %%
# Coverage over all new rows, and over those with little noise:

quiet = new[:, 0] < 2


def report(name, ends):
    print(
        f"{name:24s} coverage {interval_coverage(target, ends):.3f}, with little noise "
        f"{interval_coverage(target[quiet], ends[quiet]):.3f}; "
        f"interval score {interval_score(target, ends):.2f}"
    )


for name, model in models.items():
    report(name, model.predict_interval(new))
try:
    from mapie.regression import SplitConformalRegressor
except ImportError:
    print("MAPIE is not installed.")
else:
    conformal = SplitConformalRegressor(plain, confidence_level=0.95, prefit=True)
    conformal.conformalize(*draw(500, 2))
    report("MAPIE, one noise level", conformal.predict_interval(new)[1][:, :, 0])
