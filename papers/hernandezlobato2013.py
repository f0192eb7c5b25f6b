"""Group spike-and-slab regression: signals, wrong groups, designed measurements, digits, reviews.

Signals (section 7.1): 512 weights in 128 groups of 4, of which 4 groups are uniform on [-1, 1] and
the others zero; 64 rows uniform on the sphere of radius sqrt(512), noise variance 1. Every method
is told the noise variance, and the spike-and-slab models the true share of groups (4/128; 16/512
without groups) and slab variance (1/3). Error: |estimate - truth| / |truth|, over 100 signals, the
samplers 50 (quick: 3 and one, with 200 sweeps). EP is the paper's (one site per column, one
run); EP with group sites is the library's default. Gibbs sampling: 4 chains of 1,000 sweeps after
200 (500 for the horseshoe and the Bayesian group lasso). The group lasso is that of celer with the
best of 30 penalties, known only to who knows the truth; without celer it is left out.
Group labels: those of a share of the columns, drawn at random, change places among themselves; 100
signals.
Sequential design: from 32 random rows to 64, each new row the leading eigenvector of the posterior
covariance, the best of 256 random rows, or random; all of length sqrt(512). 20 signals (quick: 1,
two of the plans).

Prior knowledge on groups, digits and reviews: the paper's sections on them were at hand neither as
text nor as numbers; what is known is that the groups come from additional data and from a related
task. These protocols are ours, and no printed value stands beside them.
Prior knowledge: signals as above. 8 groups are named, so many of the 4 true ones among them; a
named group has prior probability 1/2, the other 120 share half a group.
Digits: 784 pixels (0 to 1) seen through 300 random rows as above, noise variance 1; 50 images, 5 of
each digit, for group ARD 20 (quick: 1). 250 other images of each digit give the groups (Ward
clusters of the pixels by when they are on, 196 of them), the share of groups that are on at all and
the mean square of the pixels that are. "Told each group's share": the prior probability of a group
is how often it is on; "told the digit": how often in the other images of that digit.
Reviews: stars of kitchen reviews from 4,434 term counts (as log(1 + count)), 200 to fit and 1,800
to test, 5 splits (quick: 1, two methods). The related tasks are the other three kinds of product:
ridge weights of a term in them place it in one of 512 Ward clusters, its group. Hyperparameters by
evidence, and by 3-fold cross-validation over 3 x 3 values of prior probability and slab variance
around those. The group lasso stops after 20 rounds of 500 epochs at a penalty.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from importlib.util import find_spec
from time import process_time
from typing import Any

import numpy as np

from sparsebayes import (
    BayesianGroupLassoRegressor,
    GroupARDRegressor,
    GroupHorseshoeRegressor,
    GroupSpikeSlabRegressor,
    SequentialDesign,
)
from sparsebayes.datasets import make_grouped_signal

from .data import load_mnist, load_sentiment
from .figures import make_figure
from .frame import Cell, Paper, Results, Table, Values

D, N_GROUPS, N_ACTIVE, N = 512, 128, 4, 64
SLAB = 1.0 / 3.0
PENALTIES = np.geomspace(1.0, 0.01, 30)  # shares of the penalty at which every group is out
SHARES = (0, 10, 20, 40, 60, 80, 100)
SIZES = (32, 40, 48, 56, 64)
_PAPERS_EP: dict[str, Any] = {"sites": "column", "anneal": False, "max_joint_groups": 0}


def relative_error(estimate: np.ndarray, truth: np.ndarray) -> float:
    """|estimate - truth| / |truth|."""
    return float(np.linalg.norm(estimate - truth) / np.linalg.norm(truth))


def make_model(
    method: str,
    groups: np.ndarray,
    inclusion: Any = N_ACTIVE / N_GROUPS,
    slab: float = SLAB,
    alone: float = N_ACTIVE / N_GROUPS,
    sweeps: int = 1000,
) -> Any:
    """An estimator of the comparison, told the noise variance 1 and the prior.

    `inclusion` is the prior probability of a group, `alone` that of a column without groups.
    """
    given: dict[str, Any] = {"fit_intercept": False, "noise_variance": 1.0}
    spike_slab = {"inclusion_prior": inclusion, "slab_variance": slab, **given}
    if method == "EP":
        return GroupSpikeSlabRegressor(groups, **_PAPERS_EP, **spike_slab)
    if method == "EP, group sites":
        return GroupSpikeSlabRegressor(groups, **spike_slab)
    if method == "Gibbs sampling":
        return GroupSpikeSlabRegressor(groups, inference="gibbs", n_samples=sweeps, **spike_slab)
    if method == "EP, no groups":
        return GroupSpikeSlabRegressor(
            None, **_PAPERS_EP, **{**spike_slab, "inclusion_prior": alone}
        )
    if method == "group ARD":
        return GroupARDRegressor(groups, inclusion_prior=None, **given)
    if method == "ARD, no groups":
        return GroupARDRegressor(None, inclusion_prior=None, **given)
    if method == "group horseshoe":
        return GroupHorseshoeRegressor(groups, n_samples=sweeps, **given)
    return BayesianGroupLassoRegressor(groups, n_samples=sweeps, **given)


def group_lasso_path(
    X: np.ndarray, y: np.ndarray, groups: np.ndarray, **settings: Any
) -> Iterator[np.ndarray]:
    """Weights of the group lasso at falling penalties."""
    from celer import GroupLasso

    members = [np.flatnonzero(groups == g).tolist() for g in np.unique(groups)]
    largest = max(np.linalg.norm(X[:, g].T @ y) / np.sqrt(len(g)) for g in members) / len(y)
    weights = np.sqrt([len(g) for g in members])
    X = np.asfortranarray(X)
    for share in PENALTIES:
        penalty = {"alpha": share * largest, "weights": weights}
        model = GroupLasso(members, fit_intercept=False, **penalty, **settings)
        yield model.fit(X, y).coef_


def reconstruct(
    method: str, X: np.ndarray, y: np.ndarray, truth: np.ndarray, groups: np.ndarray, **prior: Any
) -> Values:
    """Error and seconds of one method on one signal."""
    started = process_time()
    if method == "group lasso, best penalty":
        error = min(relative_error(w, truth) for w in group_lasso_path(X, y, groups))
    else:
        error = relative_error(make_model(method, groups, **prior).fit(X, y).coef_, truth)
    return {"error": error, "seconds": process_time() - started}


# Section 7.1: signals.

METHODS = (
    "EP",
    "EP, group sites",
    "group ARD",
    "EP, no groups",
    "ARD, no groups",
    "group lasso, best penalty",
    "Gibbs sampling",
    "group horseshoe",
    "Bayesian group lasso",
)
_SAMPLERS = METHODS[-3:]


def signal(method: str, seed: int, quick: bool = False) -> Values:
    """One signal, one method."""
    X, y, truth, groups = make_grouped_signal(random_state=seed)
    return reconstruct(method, X, y, truth, groups, sweeps=200 if quick else 1000)


def permute(groups: np.ndarray, share: float, random: np.random.Generator) -> np.ndarray:
    """Labels of a share of the columns exchanged among themselves."""
    some = random.choice(len(groups), round(share * len(groups)), replace=False)
    mixed = groups.copy()
    mixed[some] = groups[random.permutation(some)]
    return mixed


def signal_with_wrong_groups(method: str, percent: int, seed: int) -> Values:
    """One signal whose group labels are partly permuted."""
    X, y, truth, groups = make_grouped_signal(random_state=seed)
    groups = permute(groups, percent / 100, np.random.default_rng(seed))
    return {"error": reconstruct(method, X, y, truth, groups)["error"]}


PLANS = {
    "EP, designed": ("EP", "eigenvector"),
    "EP, group sites, designed": ("EP, group sites", "eigenvector"),
    "EP, best of 256": ("EP", "pool"),
    "EP, random": ("EP", "random"),
    "group ARD, designed": ("group ARD", "eigenvector"),
    "group ARD, random": ("group ARD", "random"),
    "EP, no groups, designed": ("EP, no groups", "eigenvector"),
    "EP, no groups, random": ("EP, no groups", "random"),
}


def designed(method: str, rule: str, seed: int) -> Values:
    """Errors while rows are added, from 32 to 64."""
    X, y, truth, groups = make_grouped_signal(SIZES[0], random_state=seed)
    random = np.random.default_rng(seed)
    radius = float(np.sqrt(D))
    design = SequentialDesign(make_model(method, groups), X, y)
    errors = [relative_error(design.model_.coef_, truth)]
    for _ in range(SIZES[-1] - SIZES[0]):
        pool = random.standard_normal((1 if rule == "random" else 256, D))
        pool *= radius / np.linalg.norm(pool, axis=1, keepdims=True)
        x = design.ask(norm=radius) if rule == "eigenvector" else design.ask(pool)
        design.tell(x, x @ truth + random.standard_normal(1))
        errors.append(relative_error(design.model_.coef_, truth))
    named = {f"error at {n} rows": errors[n - SIZES[0]] for n in SIZES}
    return {**named, "curve": errors}


KNOWLEDGE = {"nothing named": None, "4 of 4 named": 4, "2 of 4 named": 2, "0 of 4 named": 0}


def signal_with_knowledge(right: int | None, n: int, seed: int) -> Values:
    """EP where 8 groups are named as likely, `right` of which are among the 4 true ones."""
    X, y, truth, groups = make_grouped_signal(n, random_state=seed)
    inclusion = np.full(N_GROUPS, N_ACTIVE / N_GROUPS)
    if right is not None:
        random = np.random.default_rng(seed)
        true = np.unique(groups[truth != 0])
        others = np.setdiff1d(np.arange(N_GROUPS), true)
        named = [random.permutation(true)[:right], random.permutation(others)[: 8 - right]]
        inclusion[:] = 0.5 / (N_GROUPS - 8)
        inclusion[np.concatenate(named)] = 0.5
    return {"error": reconstruct("EP", X, y, truth, groups, inclusion=inclusion)["error"]}


# Digits.


@lru_cache(maxsize=1)
def _pixels() -> dict[str, Any]:
    """Images to reconstruct, and what the other images tell: groups, prior shares, mean square."""
    from sklearn.cluster import AgglomerativeClustering

    X, digit = load_mnist(return_X_y=True)
    X = X / 255.0
    rank = np.array([np.sum(digit[:i] == d) for i, d in enumerate(digit)])
    other = X[rank >= 50]
    on, labels = other > 0, digit[rank >= 50]
    groups = AgglomerativeClustering(196, linkage="ward").fit_predict(on.T.astype(float))
    used = np.transpose([on[:, groups == g].any(axis=1) for g in range(196)])
    return {
        "images": X[rank < 50],
        "digits": digit[rank < 50],
        "groups": groups,
        "EP": float(used.mean()),
        "EP, told each group's share": np.clip(used.mean(axis=0), 0.01, 0.99),
        "EP, told the digit": [
            np.clip(used[labels == d].mean(axis=0), 0.01, 0.99) for d in range(10)
        ],
        "alone": float(on.mean()),
        "slab": float(np.mean(other[on] ** 2)),
    }


DIGIT_METHODS = (
    "EP",
    "EP, told each group's share",
    "EP, told the digit",
    "group ARD",
    "EP, no groups",
    "group lasso, best penalty",
)


def digit(method: str, seed: int) -> Values:
    """One image from 300 random projections."""
    told = _pixels()
    images = told["images"][told["digits"] == seed % 10]
    truth = images[seed // 10]
    random = np.random.default_rng(seed)
    X = random.standard_normal((300, len(truth)))
    X *= np.sqrt(len(truth)) / np.linalg.norm(X, axis=1, keepdims=True)
    y = X @ truth + random.standard_normal(len(X))
    inclusion = told.get(method, told["EP"])
    if isinstance(inclusion, list):
        inclusion = inclusion[seed % 10]
    kind = "EP" if method.startswith("EP, told") else method
    prior = {"inclusion": inclusion, "slab": told["slab"], "alone": told["alone"]}
    return reconstruct(kind, X, y, truth, told["groups"], **prior)


# Reviews.


@lru_cache(maxsize=1)
def _reviews() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Terms and stars of the kitchen reviews, and groups of terms from the other domains."""
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.linear_model import Ridge

    data: Any = load_sentiment()
    counts = data.data.copy()
    counts.data = np.log1p(counts.data)
    related = []
    for d in range(3):
        rows = np.flatnonzero(data.domain == d)
        related.append(Ridge(30.0).fit(counts[rows], data.target[rows]).coef_)
    groups = AgglomerativeClustering(512, linkage="ward").fit_predict(np.array(related).T)
    rows = np.flatnonzero(data.domain == 3)
    return counts[rows].toarray(), data.target[rows], groups


# On some splits celer needs minutes for the smallest penalties otherwise.
_FEW_EPOCHS = {"max_iter": 20, "max_epochs": 500}
REVIEW_METHODS = (
    "EP, evidence",
    "EP, cross-validated",
    "EP, no groups, evidence",
    "EP, no groups, cross-validated",
    "group ARD",
    "group lasso, cross-validated",
    "ridge, cross-validated",
)


def review(method: str, seed: int) -> Values:
    """Test error and seconds of one method on one split."""
    X, y, groups = _reviews()
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:200], order[200:]
    started = process_time()
    mean = y[train].mean()
    coef = _review_weights(method, X[train], y[train], groups)
    seconds = process_time() - started
    error = y[test] - mean - (X[test] - X[train].mean(axis=0)) @ coef
    return {"MSE": float(np.mean(error**2)), "seconds": seconds}


def _review_weights(method: str, X: np.ndarray, y: np.ndarray, groups: np.ndarray) -> np.ndarray:
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import GridSearchCV, KFold

    folds = KFold(3, shuffle=True, random_state=0)
    if method == "ridge, cross-validated":
        return RidgeCV(np.geomspace(1.0, 1e4, 17)).fit(X, y).coef_
    if method == "group ARD":
        return GroupARDRegressor(groups, inclusion_prior=None, max_iter=300).fit(X, y).coef_
    if method == "group lasso, cross-validated":
        return _cross_validated_group_lasso(X, y, groups, folds)
    labels = None if "no groups" in method else groups
    model = GroupSpikeSlabRegressor(labels, **_PAPERS_EP, max_iter=200).fit(X, y)
    if method.endswith("evidence"):
        return model.coef_
    around = {
        "inclusion_prior": [min(0.5, model.inclusion_prior_ * f) for f in (0.1, 1.0, 10.0)],
        "slab_variance": [model.slab_variance_ * f for f in (0.1, 1.0, 10.0)],
    }
    model.set_params(noise_variance=model.noise_variance_)
    search = GridSearchCV(model, around, cv=folds, scoring="neg_mean_squared_error")
    return search.fit(X, y).best_estimator_.coef_


def _cross_validated_group_lasso(
    X: np.ndarray, y: np.ndarray, groups: np.ndarray, folds: Any
) -> np.ndarray:
    errors = np.zeros(len(PENALTIES))
    for fit, check in folds.split(X):
        centre, mean = X[fit].mean(axis=0), y[fit].mean()
        path = group_lasso_path(X[fit] - centre, y[fit] - mean, groups, **_FEW_EPOCHS)
        for i, coef in enumerate(path):
            errors[i] += np.sum((y[check] - mean - (X[check] - centre) @ coef) ** 2)
    path = group_lasso_path(X - X.mean(axis=0), y - y.mean(), groups, **_FEW_EPOCHS)
    return list(path)[int(np.argmin(errors))]


# What to run, and what to draw.


def _possible(method: str) -> bool:
    return "lasso, " not in method or find_spec("celer") is not None


def _signal_cells(quick: bool) -> list[Cell]:
    return [
        Cell("signals", method, "", seed, partial(signal, method, seed, quick))
        for method in filter(_possible, METHODS)
        for seed in range(_n_signals(method, quick))
    ]


def _n_signals(method: str, quick: bool) -> int:
    if method in _SAMPLERS:
        return 1 if quick else 50
    return 3 if quick else 100


def _label_cells(quick: bool) -> list[Cell]:
    return [
        Cell("labels", f"{s} %", m, seed, partial(signal_with_wrong_groups, m, s, seed))
        for m in filter(_possible, ("EP", "group ARD", "group lasso, best penalty"))
        for s in SHARES
        for seed in range(1 if quick else 100)
    ]


def _design_cells(quick: bool) -> list[Cell]:
    return [
        Cell("design", plan, "", seed, partial(designed, method, rule, seed))
        for plan, (method, rule) in PLANS.items()
        if not quick or plan in ("EP, designed", "group ARD, designed")
        for seed in range(1 if quick else 20)
    ]


def _knowledge_cells(quick: bool) -> list[Cell]:
    return [
        Cell("knowledge", what, f"{n} rows", seed, partial(signal_with_knowledge, k, n, seed))
        for what, k in KNOWLEDGE.items()
        for n in (32, 48, 64)
        for seed in range(2 if quick else 100)
    ]


def _digit_cells(quick: bool) -> list[Cell]:
    return [
        Cell("digits", method, "", seed, partial(digit, method, seed))
        for method in filter(_possible, DIGIT_METHODS)
        for seed in range(1 if quick else 20 if method == "group ARD" else 50)
    ]


def _review_cells(quick: bool) -> list[Cell]:
    methods = ("EP, evidence", "ridge, cross-validated") if quick else REVIEW_METHODS
    return [
        Cell("reviews", method, "", seed, partial(review, method, seed))
        for seed in range(1 if quick else 5)
        for method in filter(_possible, methods)
    ]


def draw_labels(results: Results) -> Any:
    """Error over the share of columns with a wrong group."""
    figure, ax = make_figure()
    for method in dict.fromkeys(column for _, column in results):
        found = [(s, results.get((f"{s} %", method))) for s in SHARES]
        points = [(s, np.mean([v["error"] for v in values])) for s, values in found if values]
        ax.plot(*np.transpose(points), marker="o", label=method)
    ax.set(xlabel="group labels permuted, %", ylabel="error")
    ax.legend(fontsize="small")
    return figure


def draw_design(results: Results) -> Any:
    """Error over the number of rows."""
    figure, ax = make_figure()
    for (plan, _), values in results.items():
        mean = np.mean([v["curve"] for v in values if "curve" in v], axis=0)
        style = "--" if plan.endswith("random") else "-"
        ax.plot(np.arange(SIZES[0], SIZES[0] + len(mean)), mean, style, label=plan)
    ax.set(xlabel="rows", ylabel="error", ylim=(0, None))
    ax.legend(fontsize="small")
    return figure


PAPER = Paper(
    name="group",
    title="Generalized spike-and-slab priors for Bayesian group feature selection using "
    "expectation propagation",
    reference="D. Hernández-Lobato, J. M. Hernández-Lobato and P. Dupont, "
    "JMLR 14 (2013), 1891-1945",
    protocol=__doc__ or "",
    tables=(
        Table("signals", "signal reconstruction, all methods", _signal_cells),
        Table(
            "labels",
            "group labels partly permuted",
            _label_cells,
            draw_labels,
            of_means=True,
        ),
        Table("design", "sequential design", _design_cells, draw_design),
        Table("knowledge", "prior knowledge on groups", _knowledge_cells),
        Table("digits", "reconstruction of handwritten digits", _digit_cells),
        Table("reviews", "stars of kitchen reviews", _review_cells),
    ),
    headline=(("signals", "error"), ("labels", "EP error"), ("design", "error at 64 rows")),
    picture="labels",
)
