"""
From a fit to a microcontroller
===============================

A model of about thirty terms, written as one C file without dependencies: mean and standard
deviation, in a few kilobytes of constants. If there is a C compiler, the file is compiled and
compared with the model. Right: the number of bytes of each part.
"""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from sparsebayes import ForwardRegressor, export_model

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 10, (400, 1)), axis=0)  # the reading of a sensor
y = np.sin(X[:, 0]) + 0.4 * np.sin(5 * X[:, 0]) + 0.15 * rng.standard_normal(400)
model = ForwardRegressor("rbf", gamma="evidence", max_terms=30, early_stopping=None).fit(X, y)
code = export_model(model, to="c", name="sensor")
print("\n".join(code.splitlines()[:12]))

# %%
# Compiled, and compared at new points:

grid = np.linspace(0, 10, 500)[:, None]
mean, std = model.predict(grid, return_std=True)
comparison = "no C compiler found"
if compiler := shutil.which("cc"):
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "sensor.c"), Path(folder, "sensor.so")
        source.write_text(code)
        options = ["-O2", "-shared", "-fPIC", source, "-o", library, "-lm"]
        subprocess.run([compiler, *options], check=True)
        predict = ctypes.CDLL(library).sensor_predict
        out = np.empty((len(grid), 2))
        number = ctypes.c_double
        for x, row in zip(grid, out, strict=True):
            m, s = number(), number()
            predict((number * 1)(*x), ctypes.byref(m), ctypes.byref(s))
            row[:] = m.value, s.value
    difference = np.abs(out - np.column_stack([mean, std])).max()
    comparison = f"C and Python differ by {difference:.0e}"
print(comparison)

k = len(model.active_)
parts = {"centres": k, "weights": k, "centring": k, "triangle of\nthe covariance": k * (k + 1) // 2}
figure, (left, right) = plt.subplots(
    1, 2, figsize=(9, 3.8), width_ratios=[1.6, 1], layout="constrained"
)
left.fill_between(grid[:, 0], mean - 1.96 * std, mean + 1.96 * std, alpha=0.25, lw=0)
left.plot(X[:, 0], y, ".", color="0.5", ms=3)
left.plot(grid[:, 0], mean)
left.set_title(f"{k} terms; {comparison}", fontsize=10)
right.bar(list(parts), [4 * n for n in parts.values()])
right.tick_params("x", labelsize=8)
right.set_ylabel("bytes in single precision")
