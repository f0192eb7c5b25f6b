"""
What to measure next
====================

Sixty columns in twenty groups, of which two matter. After 15 random rows each further measurement
is either random, or the row that ``SequentialDesign`` proposes. Designed measurements find the two
groups with fewer rows.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sparsebayes import GroupSpikeSlabRegressor, SequentialDesign
from sparsebayes.displays import DesignErrorDisplay

warnings.simplefilter("ignore", ConvergenceWarning)
groups, noise, n_repeats, n_more = np.arange(60) // 3, 0.5, 3, 10
errors = {"random": [], "designed": []}
for repeat in range(n_repeats):
    rng = np.random.default_rng(repeat)
    weights = np.zeros(60)
    weights[np.isin(groups, rng.choice(20, 2, replace=False))] = rng.standard_normal(6)
    X = rng.standard_normal((15, 60))
    y = X @ weights + noise * rng.standard_normal(15)
    model = GroupSpikeSlabRegressor(
        groups, inclusion_prior=0.1, slab_variance=1.0, noise_variance=noise**2, warm_start=True
    )
    for way, curve in errors.items():
        plan, path = SequentialDesign(model, X, y), []
        for _ in range(n_more + 1):
            error = np.linalg.norm(plan.model_.coef_ - weights)
            path.append(error / np.linalg.norm(weights))
            x = rng.standard_normal((1, 60))
            x *= 8.0 / np.linalg.norm(x)
            x = plan.ask(norm=8.0) if way == "designed" else x
            plan.tell(x, x @ weights + noise * rng.standard_normal(1))
        curve.append(path)

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
DesignErrorDisplay(15 + np.arange(n_more + 1), errors, "relative error of the weights").plot(ax=ax)
for way, curve in errors.items():
    print(f"{way:9} after {n_more} more rows: {np.mean(curve, axis=0)[-1]:.3f}")
