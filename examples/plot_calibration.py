"""
Intervals against what they promise
===================================

How one level of noise fares beside a noise model where the noise grows along an input. Both cover
about 95 % in all; the one level does so by covering too much where it is quiet and too little
where it is loud, which the width of its intervals shows. Below each fit: where new targets fall
in their predictive distributions, how often intervals hold them, and whether wide intervals are
those that need it. MAPIE takes the models as they are.
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
models = {"one level": plain, "noise by the input": by_input}

figure, axes = plt.subplot_mosaic(
    [["fit 0"] * 3 + ["fit 1"] * 3, [f"{part} {i}" for i in (0, 1) for part in "abc"]],
    figsize=(16, 8),
    layout="constrained",
)
grid = np.linspace(0, 10, 200)[:, None]
for i, (name, model) in enumerate(models.items()):
    ax = axes[f"fit {i}"]
    low, high = model.predict_interval(grid).T
    ax.fill_between(grid[:, 0], low, high, alpha=0.3, label="95 % interval")
    ax.plot(X[:, 0], y, ".", color="0.4", markersize=3)
    ax.plot(grid[:, 0], model.predict(grid), label="mean")
    ax.set_title(name)
    ax.legend()
    parts = [axes[f"{part} {i}"] for part in "abc"]
    CalibrationDisplay.from_estimator(model, new, target, axes=parts)

# %%
# The same in numbers, over all new rows and over the quiet ones:

quiet = new[:, 0] < 2


def say(name, ends):
    print(
        f"{name:20s} covers {interval_coverage(target, ends):.3f}, where it is quiet "
        f"{interval_coverage(target[quiet], ends[quiet]):.3f}; "
        f"interval score {interval_score(target, ends):.2f}"
    )


for name, model in models.items():
    say(name, model.predict_interval(new))
try:
    from mapie.regression import SplitConformalRegressor
except ImportError:
    print("MAPIE is not installed.")
else:
    conformal = SplitConformalRegressor(plain, confidence_level=0.95, prefit=True)
    conformal.conformalize(*draw(500, 2))
    say("MAPIE around it", conformal.predict_interval(new)[1][:, :, 0])
