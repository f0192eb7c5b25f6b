"""
A hundred thousand columns of text
==================================

Simulated reviews as counts of words and pairs of words: 100,000 columns, most of them without
effect. The words follow a Zipf distribution, and sixty of them carry an opinion. Bayesian
backfitting only multiplies with the sparse matrix and selects the columns that raise its bound.
"""

import os
import time

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse

from sparsebayes import BackfittingRegressor

QUICK = bool(os.environ.get("SPARSEBAYES_QUICK"))
rng = np.random.default_rng(0)


def make_reviews(n, d=5000):
    """Return counts of d words in n reviews, the stars given, and the words."""
    rate = 30.0 / np.arange(10, d + 10)
    X = sparse.csr_array(rng.poisson(rate, (n, d)).astype(np.float64))
    weights = np.zeros(d)
    opinionated = rng.choice(400, 60, replace=False)
    weights[opinionated] = rng.choice([-1, 1], 60) * rng.uniform(0.3, 0.8, 60)
    return X, 3 + X @ weights + 0.7 * rng.standard_normal(n), [f"word {j}" for j in range(d)]


X, stars, words = make_reviews(800 if QUICK else 2000)

# %%
# Pairs of words that occur together in a review bring the columns to a hundred thousand.

often = np.argsort(-X.sum(axis=0))[:1500]
first, second = rng.choice(often, (2, 100_000 - X.shape[1]))
binary = (X > 0).astype(np.float64).tocsc()
pairs = binary[:, first].multiply(binary[:, second])
columns = sparse.hstack([X, pairs]).tocsr()
names = words + [f"{words[i]} & {words[j]}" for i, j in zip(first, second, strict=True)]

train, test = slice(None, int(0.8 * len(stars))), slice(int(0.8 * len(stars)), None)
started = time.perf_counter()
model = BackfittingRegressor().fit(columns[train], stars[train])
seconds = time.perf_counter() - started
error = np.sqrt(np.mean((model.predict(columns[test]) - stars[test]) ** 2))
print(
    f"{columns.shape[1]:,} columns, {seconds:.1f} s: {len(model.active_)} selected; RMSE "
    f"{error:.2f}, standard deviation of the stars {stars[test].std():.2f}"
)

order = model.active_[np.argsort(model.coef_[model.active_])]
shown = np.concatenate([order[:8], order[-8:]]) if len(order) > 16 else order
figure, ax = plt.subplots(figsize=(6, 4.4), layout="constrained")
ax.barh(
    [names[j] for j in shown],
    model.coef_[shown],
    color=np.where(model.coef_[shown] > 0, "C0", "C3"),
)
ax.axvline(0, color="0.3", lw=0.8)
ax.set(xlabel="stars for each occurrence", title="largest weights")
