"""What the examples on real data share: inclusion probabilities and cross-validated errors."""

import os
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LassoCV
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sparsebayes import GroupSpikeSlabRegressor
from sparsebayes.displays import CoefficientDisplay, CredibleSetsDisplay, InclusionDisplay

warnings.simplefilter("ignore", ConvergenceWarning)


def compare(data, groups, n_splits=10, **settings):
    """Fit, print, cross-validate beside the lasso (and group lasso), draw.

    `groups` has one label per column, or is None: each column alone; `settings` go to the model.
    """
    labels = list(data.feature_names) if groups is None else groups
    X = StandardScaler().fit_transform(data.data)
    model = GroupSpikeSlabRegressor(labels, **settings).fit(X, data.target)
    print("group, inclusion probability")
    for g in np.argsort(-model.inclusion_probability_, kind="stable")[:10]:
        print(f"{model.group_names_[g]!s:>14}  {model.inclusion_probability_[g]:.3f}")
    sets, probability, purity = model.credible_sets(return_details=True)
    print(
        "sets that hold a group of the model with probability .95, and how alike their groups are"
    )
    for members, p, alike in zip(sets, probability, purity, strict=True):
        print(f"{p:.3f}  {alike:.2f}  {', '.join(map(str, members))}")
    for rate in (0.05, 0.2):
        chosen = ", ".join(map(str, model.select(rate)))
        print(f"selected at a false discovery rate of {rate}: {chosen or 'none'}")
    noise = np.sqrt(model.noise_variance_)
    print(f"converged: {model.converged_}, noise standard deviation {noise:.3g}, "
          f"log evidence (EP) {model.log_evidence_:.1f}")  # fmt: skip

    if os.environ.get("SPARSEBAYES_QUICK"):
        n_splits = 2
    rivals = {
        "spike and slab": GroupSpikeSlabRegressor(labels, **settings),
        "lasso": LassoCV(max_iter=50_000),
    }
    if groups is not None:
        try:
            rivals["group lasso"] = group_lasso(X, data.target, model.group_index_)
        except ImportError:
            print("group lasso: install celer to see it here")
    folds = KFold(n_splits, shuffle=True, random_state=0)
    for name, rival in rivals.items():
        errors = -cross_val_score(
            make_pipeline(StandardScaler(), rival),
            data.data,
            data.target,
            cv=folds,
            scoring="neg_mean_squared_error",
        )
        spread = errors.std() / np.sqrt(n_splits)
        print(f"{name:>14}  mean squared error {errors.mean():.4g} +- {spread:.2g}, "
              f"median over folds {np.median(errors):.4g}")  # fmt: skip

    _, axes = plt.subplots(1, 2 + bool(len(sets)), figsize=(13, 4.5), layout="constrained")
    InclusionDisplay.from_estimator(model, most=20, ax=axes[0])
    CoefficientDisplay.from_estimator(model, most=20, ax=axes[1])
    if len(sets):
        CredibleSetsDisplay.from_estimator(model, ax=axes[2])


def group_lasso(X, y, group_of):
    """celer's group lasso, its penalty chosen by five-fold cross-validation."""
    from celer import GroupLasso

    lists = [np.flatnonzero(group_of == g).tolist() for g in np.unique(group_of)]
    largest = max(np.linalg.norm(X[:, g].T @ (y - y.mean())) for g in lists) / len(y)
    grid = {"alpha": largest * np.geomspace(1.0, 0.01, 15)}
    return GridSearchCV(GroupLasso(groups=lists), grid, cv=5, scoring="neg_mean_squared_error")
