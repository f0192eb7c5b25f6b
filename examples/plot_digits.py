"""
Ten classes, and the digits that the model kept
===============================================

Handwritten digits of eight by eight pixels. Above: the relevance vectors, the training digits
whose functions carry the ten classes. Below: the test digits that the model is least sure of,
with the probabilities of the first two classes.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from sparsebayes import RVMClassifier

X, y = load_digits(return_X_y=True)
X, new, y, target = train_test_split(X, y, train_size=300, test_size=500, random_state=0)
model = RVMClassifier("rbf", gamma="median", algorithm="fast").fit(X, y)
probability = model.predict_proba(new)
print(
    f"{len(model.active_)} of {len(X)} digits kept; accuracy {model.score(new, target):.3f}, "
    f"log-loss {log_loss(target, probability):.3f}"
)

figure, axes = plt.subplots(4, 10, figsize=(11, 5), layout="constrained")
order = np.argsort(y[model.active_], kind="stable")
shown = order[np.linspace(0, len(order) - 1, 20).astype(int)]
unsure = np.argsort(probability.max(axis=1))[:20]
for ax, i in zip(axes[:2].ravel(), shown, strict=True):
    ax.imshow(model.relevance_vectors_[i].reshape(8, 8), cmap="Blues")
    ax.set_title(str(y[model.active_[i]]), fontsize=9)
for ax, i in zip(axes[2:].ravel(), unsure, strict=True):
    first, second = np.argsort(-probability[i])[:2]
    ax.imshow(new[i].reshape(8, 8), cmap="Oranges" if first != target[i] else "Greys")
    says = f"{first}: {probability[i, first]:.2f}  {second}: {probability[i, second]:.2f}"
    ax.set_title(says, fontsize=7)
for ax in axes.ravel():
    ax.set_axis_off()
figure.suptitle("kept (blue), and least sure of new ones (orange: wrong)", fontsize=11)
