"""
How many terms?
===============

Forward selection adds the function that raises the evidence most. The error falls quickly over the
first twenty terms. The selection path is kept, so that smaller models need no new fit: the second
figure has those of 5, 15 and 40 terms, and the rows on which their functions are centred.
"""

import matplotlib.pyplot as plt
import numpy as np

from sparsebayes import ForwardRegressor

rng = np.random.default_rng(0)


def truth(X):
    return np.sin(X[:, 0]) * X[:, 1] + 0.5 * np.cos(2 * X[:, 1])


X = rng.uniform(-3, 3, (400, 2))
y = truth(X) + 0.1 * rng.standard_normal(400)
new = rng.uniform(-3, 3, (2000, 2))
model = ForwardRegressor("rbf", gamma="evidence", max_terms=80, early_stopping=None).fit(X, y)

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
sizes = np.arange(2, 81, 3)
errors = [np.sqrt(np.mean((model.truncate(k).predict(new) - truth(new)) ** 2)) for k in sizes]
ax.plot(model.evidence_path_, color="C0")
ax.set(xlabel="number of terms")
ax.set_ylabel("log evidence", color="C0")
ax.axvline(model.best_n_terms_, color="0.5", ls=":")
twin = ax.twinx()
twin.semilogy(sizes, errors, color="C3")
twin.set_ylabel("RMSE to the true function", color="C3")
print(f"highest evidence at {model.best_n_terms_} of {len(model.evidence_path_) - 1} terms")

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True, layout="constrained")
x0, x1 = np.meshgrid(np.linspace(-3, 3, 60), np.linspace(-3, 3, 60))
grid = np.column_stack([x0.ravel(), x1.ravel()])
for ax, k in zip(axes, [5, 15, 40], strict=True):
    small = model.truncate(k)
    ax.contourf(x0, x1, small.predict(grid).reshape(x0.shape), levels=20, cmap="viridis")
    ax.plot(*small.relevance_vectors_.T, "o", mfc="none", mec="w", mew=1.5)
    ax.set_title(f"{k} terms")
