"""
Comparison with a Gaussian process, boosted trees and SVR
=========================================================

The same 300 rows for five regressors. The error is on 1,000 new rows, where the noise has a
standard deviation of 1. Trees and support vectors have no standard deviation.
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

from sparsebayes import RVMRegressor, SparseGPRegressor

X, y = make_friedman1(n_samples=1300, n_features=5, noise=1.0, random_state=1)
X, new, y, target = X[:300], X[300:], y[:300], y[300:]
kernel = ConstantKernel(10.0) * RBF(np.ones(5)) + WhiteKernel()
models = {
    "GaussianProcessRegressor": GaussianProcessRegressor(kernel, normalize_y=True),
    "SparseGPRegressor": SparseGPRegressor(),
    "RVMRegressor": RVMRegressor(),
    "SVR(C=10)": SVR(C=10),
    "boosted trees": HistGradientBoostingRegressor(random_state=0),
}

figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for place, (name, model) in enumerate(models.items()):
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the optimiser of the process reaches its bounds
        model.fit(X, y)
    seconds = time.perf_counter() - started
    try:
        mean, std = model.predict(new, return_std=True)
        coverage = f"95 % coverage: {np.mean(np.abs(mean - target) < 1.96 * std):.0%}"
    except TypeError:
        mean, coverage = model.predict(new), "no intervals"
    error = np.sqrt(np.mean((mean - target) ** 2))
    ax.barh(place, error, color="C1" if "sparsebayes" in type(model).__module__ else "C0")
    ax.text(0.05, place, coverage, va="center", color="w")
    kept = getattr(model, "active_", getattr(model, "support_", ()))
    print(f"{name:26} {seconds:5.2f} s, functions: {len(kept) or 'all rows or trees'}")
ax.set_yticks(range(len(models)), models)
ax.invert_yaxis()
ax.axvline(1.0, color="k", ls=":", lw=1)
ax.set_xlabel("RMSE on new rows (dotted: noise)")
