"""
A better model after each partition
===================================

The partitioned relevance vector machine fits about a hundred functions at a time and keeps the
relevant ones. Most of the error is removed early, so a fit that is stopped (``max_time``, Ctrl-C, a
lost machine) has a useful model. Two schedules on the same rows.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_friedman1

from sparsebayes import PartitionedRVMRegressor
from sparsebayes.displays import PartitionDisplay

X, y = make_friedman1(n_samples=1200, n_features=5, noise=1.0, random_state=0)

figure, axes = plt.subplots(2, 1, figsize=(6.4, 4.8), sharex=True, layout="constrained")
for schedule in ("working-set", "incremental"):
    model = PartitionedRVMRegressor("rbf", gamma=0.8, schedule=schedule, partition_size=40)
    model.fit(X, y)
    PartitionDisplay.from_estimator(model, ax=axes)
    print(
        f"{schedule:12} {len(model.active_):3} functions, noise {model.noise_variance_**0.5:.3f} "
        f"(true 1.000), {len(model.history_['rmse'])} runs"
    )
axes[0].axhline(1.0, color="0.5", ls=":", lw=1)
