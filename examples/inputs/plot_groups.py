"""
Which inputs matter, each as several columns
============================================

Which measurements of 442 patients predict the progression of diabetes, if each may act through a
curve? Every input is a group of spline columns that is in the model or not. The figure has the
inclusion probability of each input.

Some blood values nearly determine each other. A credible set then lists inputs of which one is in
the model. The lasso on the same columns is the baseline.
"""

import os
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LassoCV
from sklearn.model_selection import KFold, cross_val_score
from sklearn.preprocessing import SplineTransformer, StandardScaler

from sparsebayes import GroupSpikeSlabRegressor
from sparsebayes.displays import CoefficientDisplay, CredibleSetsDisplay, InclusionDisplay

warnings.simplefilter("ignore", ConvergenceWarning)
data = load_diabetes(as_frame=True, scaled=False)
columns, groups = [], []
for name in data.feature_names:
    values = data.data[[name]].to_numpy()
    if name != "sex":
        values = SplineTransformer(n_knots=4, include_bias=False).fit_transform(values)
    columns.append(values)
    groups += [name] * values.shape[1]
X, y = StandardScaler().fit_transform(np.hstack(columns)), data.target.to_numpy()

model = GroupSpikeSlabRegressor(groups, inclusion_prior=0.5).fit(X, y)
for g in np.argsort(-model.inclusion_probability_):
    print(f"{model.group_names_[g]:>4}  {model.inclusion_probability_[g]:.3f}")
sets, probability, _ = model.credible_sets(return_details=True)
for members, p in zip(sets, probability, strict=True):
    print(f"one of these is in the model with probability {p:.3f}: {', '.join(members)}")

folds = KFold(2 if os.environ.get("SPARSEBAYES_QUICK") else 5, shuffle=True, random_state=0)
for label, estimator in {"spike and slab": model, "lasso": LassoCV()}.items():
    scores = cross_val_score(estimator, X, y, cv=folds, scoring="neg_root_mean_squared_error")
    print(f"{label:>14}  cross-validated RMSE {-scores.mean():.2f}")

figure, ax = plt.subplots(figsize=(5.6, 4), layout="constrained")
InclusionDisplay.from_estimator(model, ax=ax)

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
CoefficientDisplay.from_estimator(model, ax=axes[0])
CredibleSetsDisplay.from_estimator(model, ax=axes[1])
