"""
How many terms
==============

A forward selection adds the function that raises the evidence most. The first twenty of them do
nearly all of the work; the error to the true function falls a little longer. The path is kept, so
a smaller model costs nothing: here those of 5, 15 and 40 terms, with the rows that carry them.
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

figure, axes = plt.subplots(1, 4, figsize=(14, 3.4), layout="constrained")
sizes = np.arange(2, 81, 3)
errors = [np.sqrt(np.mean((model.truncate(k).predict(new) - truth(new)) ** 2)) for k in sizes]
axes[0].plot(model.evidence_path_, color="C0")
axes[0].set(xlabel="terms", ylabel="log evidence")
axes[0].axvline(model.best_n_terms_, color="0.5", ls=":")
twin = axes[0].twinx()
twin.semilogy(sizes, errors, color="C3")
twin.set_ylabel("error to the true function", color="C3")
x0, x1 = np.meshgrid(np.linspace(-3, 3, 60), np.linspace(-3, 3, 60))
grid = np.column_stack([x0.ravel(), x1.ravel()])
for ax, k in zip(axes[1:], [5, 15, 40], strict=True):
    small = model.truncate(k)
    ax.contourf(x0, x1, small.predict(grid).reshape(x0.shape), levels=20, cmap="viridis")
    ax.plot(*small.relevance_vectors_.T, "o", mfc="none", mec="w", mew=1.5)
    ax.set_title(f"{k} terms")
print(f"highest evidence at {model.best_n_terms_} of {len(model.evidence_path_) - 1} terms")
