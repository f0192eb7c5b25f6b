"""
Beside a Gaussian process and boosted trees
===========================================

The same 300 rows for scikit-learn's Gaussian process, boosted trees, ``SVR`` and
``ForwardRegressor``: the forward model predicts as well as the exact process from fewer
functions, and has the error bar that trees and support vectors lack. Where the bars of a method
stop being calibrated, the coverage says so.
"""

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.svm import SVR

from sparsebayes import ForwardRegressor, RVMRegressor

X, y = make_friedman1(n_samples=1300, n_features=5, noise=1.0, random_state=1)
X, new, y, target = X[:300], X[300:], y[:300], y[300:]
kernel = ConstantKernel(10.0) * RBF(np.ones(5)) + WhiteKernel()
models = {
    "GaussianProcessRegressor": GaussianProcessRegressor(kernel, normalize_y=True),
    "boosted trees": HistGradientBoostingRegressor(random_state=0),
    "SVR(C=10)": SVR(C=10),
    "RVMRegressor": RVMRegressor("rbf", gamma="ard"),
    "ForwardRegressor": ForwardRegressor("rbf", gamma="ard"),
}

figure, axes = plt.subplots(1, 5, figsize=(15, 3.4), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the optimiser of the process meets its bounds
        model.fit(X, y)
    seconds = time.perf_counter() - started
    try:
        mean, std = model.predict(new, return_std=True)
    except TypeError:
        mean, std = model.predict(new), None
    error = np.sqrt(np.mean((mean - target) ** 2))
    title = f"{name}\nerror {error:.2f}"
    if std is not None:
        covered = np.mean(np.abs(mean - target) < 1.96 * std)
        title += f", 95 % bars hold {covered:.0%}"
        some = slice(0, 200)
        ax.errorbar(
            mean[some], target[some], xerr=1.96 * std[some], fmt="none", ecolor="C0", alpha=0.15
        )
    ax.plot(mean[:200], target[:200], ".", color="C0" if std is not None else "0.4", ms=4)
    ax.axline((15, 15), slope=1, color="0.2", lw=0.8)
    ax.set_title(title, fontsize=10)
    ax.set_xlabel("prediction")
    kept = getattr(model, "active_", getattr(model, "support_", ()))
    print(f"{name:26} {seconds:5.2f} s, functions kept: {len(kept) or 'all'}")
axes[0].set_ylabel("target")
