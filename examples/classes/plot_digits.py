"""
Ten classes, and the digits that the model keeps
================================================

Handwritten digits of eight by eight pixels. Top: relevance vectors, the training digits on which
the functions of the ten classes are centred (blue). Bottom: the least certain test digits, with the
probabilities of their two most probable classes (orange: misclassified).
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

figure, axes = plt.subplots(4, 5, figsize=(6, 5.4), layout="constrained")
order = np.argsort(y[model.active_], kind="stable")
shown = order[np.linspace(0, len(order) - 1, 10).astype(int)]
uncertain = np.argsort(probability.max(axis=1))[:10]
for ax, i in zip(axes[:2].ravel(), shown, strict=True):
    ax.imshow(model.relevance_vectors_[i].reshape(8, 8), cmap="Blues")
    ax.set_title(str(y[model.active_[i]]), fontsize=9)
for ax, i in zip(axes[2:].ravel(), uncertain, strict=True):
    first, second = np.argsort(-probability[i])[:2]
    ax.imshow(new[i].reshape(8, 8), cmap="Oranges" if first != target[i] else "Greys")
    label = f"{first}: {probability[i, first]:.2f}  {second}: {probability[i, second]:.2f}"
    ax.set_title(label, fontsize=8)
for ax in axes.ravel():
    ax.set_axis_off()
figure.suptitle("relevance vectors, and the least certain test digits", fontsize=11)
