"""Test error on three data sets, and time and error as California grows.

Table 1. Rows drawn at random for training and test, 20 times (quick: 3). Inputs standardised on the
training rows, the target centred (Abalone: standardised once, as errors of 0.44 imply). The paper
does not say which inputs it took; these come closest: Ozone without the day of the year, Boston
without CHAS, Abalone with sex coded 0, 1, 2. Kernel exp(-|x - z|^2 / r).
Forward: k as printed, noise variance 1 as in the paper, r in {d, 4 d, 16 d} and lambda in
{1e-6, ..., 1} by five-fold cross-validation on at most 1000 rows, once (Abalone: on five random
subsets, because one alone does not decide); the values chosen stand in this module. The criterion
is the true marginal likelihood (the printed one loses its determinant at noise variance 1). Old
RVM: re-estimation from the full model (Tipping 2001). New RVM: one function at a time from the
empty model (Tipping & Faul 2003). Both with r in {d, 4 d, 16 d} by the same cross-validation, where
the library's default search stands for both. "Forward, all by evidence" is the library's own
default: width, lambda, noise and k by evidence. "Paired t-test" is the p value of the paper's test,
Forward against the better RVM on the same splits: the paper calls errors comparable where it is
above 0.01.

Figure 1. California, raw columns and target standardised, 10,640 rows to test, the first n of the
others to train; k = min(n / 10, 500), r = 4 d, lambda = 1e-7 (cross-validation on 1000 rows ends at
the bottom of its grid: k is what regularises), noise variance 1. Forward is the paper's low-rank
version, rank k. The paper's RVMs end at 2500 and 4500 rows, and ours are run as far; the library's
default RVM goes on. Beyond 10,000 rows (12,500, 15,640, 18,640) the rows left over are the test
set, and all 20,640 are timed without one. Seconds are those of one core. Two orders of the rows
(quick: one, to n = 3000, the two RVMs to 1000). NMSE: squared error over the variance of the test
target; NMSE-but-one leaves out the test row of largest error. The paper gives this figure only, no
numbers. At n = 18,640 one of the 2,000 test rows of the first order makes a quarter of the squared
error of "Forward, library" (NMSE .333; .245 without it): 7,460 people in 6 households, 3.6 from
the nearest training row where .3 is usual. The wide Gaussian kernel of this figure extrapolates
there, with a std of nine times the usual one; a Matern 3/2 kernel on the same rows has .221.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV, KFold

from sparsebayes import ForwardRegressor, RVMRegressor

from .data import load_abalone, load_boston, load_california, load_ozone
from .figures import make_figure
from .frame import Cell, Paper, Results, Table, Values

WIDTHS = (1.0, 4.0, 16.0)  # r / d
SIZES = tuple(range(1000, 10_001, 1000))
BEYOND = (12_500, 15_640, 18_640, 20_640)
RVM_SIZES = {"Old RVM": (1000, 2000, 2500), "New RVM": (1000, 2000, 3000, 4000, 4500)}
ALGORITHMS = {"Old RVM": "em", "New RVM": "fast", "RVM, library": "auto"}


def ozone() -> tuple[np.ndarray, np.ndarray]:
    """Without the day of the year."""
    return _without(load_ozone(), "doy")


def boston() -> tuple[np.ndarray, np.ndarray]:
    """Without CHAS."""
    return _without(load_boston(), "CHAS")


def abalone() -> tuple[np.ndarray, np.ndarray]:
    """Sex coded 0, 1, 2; the target standardised."""
    bunch: Any = load_abalone(sex="ordinal")
    return bunch.data, (bunch.target - bunch.target.mean()) / bunch.target.std()


def _without(bunch: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    keep = [i for i, feature in enumerate(bunch.feature_names) if feature != name]
    return bunch.data[:, keep], bunch.target


# Rows to train on, to test on, and the number of terms that the paper prints.
DATA: dict[str, tuple[Callable[[], tuple[np.ndarray, np.ndarray]], int, int, int]] = {
    "Ozone": (ozone, 250, 80, 100),
    "Boston": (boston, 481, 25, 150),
    "Abalone": (abalone, 1000, 3177, 100),
}


def split(data: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test rows of a data set."""
    load, n, n_test, _ = DATA[data]
    return _split(*load(), n, n_test, seed)


def _split(
    X: np.ndarray, y: np.ndarray, n: int, n_test: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Standardise the inputs and centre the target on the training rows of a random split."""
    order = np.random.default_rng(seed).permutation(len(y))
    a, b = order[:n], order[n : n + n_test]
    mean, std, level = X[a].mean(axis=0), X[a].std(axis=0), y[a].mean()
    return (X[a] - mean) / std, y[a] - level, (X[b] - mean) / std, y[b] - level


# r / d and lambda by `choose_settings`. On Abalone, where the score is flat (see "settings"), those
# of Forward have the smallest mean score over five random subsets.
SETTINGS: dict[tuple[str, str], tuple[float, float]] = {
    ("Ozone", "Forward"): (1.0, 0.1),
    ("Ozone", "RVM"): (4.0, 0.0),
    ("Boston", "Forward"): (1.0, 1e-3),
    ("Boston", "RVM"): (1.0, 0.0),
    ("Abalone", "Forward"): (4.0, 1e-4),
    ("Abalone", "RVM"): (16.0, 0.0),
}


def choose_settings(data: str, method: str, seed: int = 0) -> list[tuple[dict[str, float], float]]:
    """Return width (and lambda) with their five-fold cross-validated errors on 1000 rows or all."""
    X, y, _, _ = split(data, seed)
    X, y = X[:1000], y[:1000]
    grid: dict[str, Any] = {"gamma": 1.0 / (np.array(WIDTHS) * X.shape[1])}
    model: Any = RVMRegressor("rbf")
    if method == "Forward":
        model = _forward(data)
        grid["regularization"] = 10.0 ** np.arange(-6, 1)
    folds = KFold(5, shuffle=True, random_state=seed)
    search = GridSearchCV(model, grid, scoring="neg_mean_squared_error", cv=folds, refit=False)
    found = search.fit(X, y).cv_results_
    return list(zip(found["params"], -found["mean_test_score"], strict=True))


def _forward(data: str, **parameters: float) -> ForwardRegressor:
    """The forward selection of the paper, with the number of terms that it prints."""
    return ForwardRegressor(
        "rbf",
        noise_variance=1.0,
        max_terms=DATA[data][3],
        early_stopping=None,
        refit=None,
        **parameters,
    )


def make(data: str, method: str, n_inputs: int) -> Any:
    """The model of one column of Table 1."""
    width, regularization = SETTINGS[data, "Forward" if method == "Forward" else "RVM"]
    gamma = 1.0 / (width * n_inputs)
    if method == "Forward":
        return _forward(data, gamma=gamma, regularization=regularization)
    if method in ALGORITHMS:
        return RVMRegressor("rbf", algorithm=ALGORITHMS[method], cache_size=1000, gamma=gamma)
    return ForwardRegressor("rbf", gamma="evidence", random_state=0)


def measure(data: str, method: str, seed: int) -> Values:
    """Mean squared error and number of functions on one split."""
    X, y, X_test, y_test = split(data, seed)
    model = make(data, method, X.shape[1]).fit(X, y)
    return {
        "MSE": float(np.mean((model.predict(X_test) - y_test) ** 2)),
        "terms": float(len(model.active_)),
    }


def _cells_table(quick: bool) -> list[Cell]:
    methods = ("Forward", "Old RVM", "New RVM", "Forward, all by evidence")
    return [
        Cell("1", data, method, seed, partial(measure, data, method, seed))
        for data in DATA
        for method in methods
        for seed in range(3 if quick else 20)
    ]


def paired_t_test(results: Results) -> dict[tuple[str, str], list[float]]:
    """p of equal mean errors of Forward and the better of the two RVMs, for each data set."""
    from scipy.stats import ttest_rel

    found = {}
    for data in DATA:
        errors = {
            method: {values["seed"]: values["MSE"] for values in results.get((data, method), [])}
            for method in ("Forward", "Old RVM", "New RVM")
        }
        seeds = sorted(set.intersection(*(set(error) for error in errors.values())))
        if len(seeds) > 1:
            ours, *rvms = ([error[seed] for seed in seeds] for error in errors.values())
            best = min(rvms, key=np.mean)
            found[data, "Forward and the better RVM, paired t-test p"] = [
                float(ttest_rel(ours, best).pvalue)
            ]
    return found


# Settings that the paper leaves open: Forward on Abalone.


def with_setting(
    coding: str, r: float, regularization: float, noise_variance: float, seed: int
) -> Values:
    """Error of Forward on one split of Abalone, with r in units of the number of inputs."""
    X, y = abalone()
    if coding == "one-hot":
        X = load_abalone(return_X_y=True)[0]
    elif coding == "left out":
        X = X[:, 1:]
    X, y, X_test, y_test = _split(X, y, 1000, 3177, seed)
    model = ForwardRegressor(
        "rbf",
        gamma=1.0 / (r * X.shape[1]),
        regularization=regularization,
        noise_variance=noise_variance,
        max_terms=100,
        early_stopping=None,
        refit=None,
    ).fit(X, y)
    return {"MSE": float(np.mean((model.predict(X_test) - y_test) ** 2))}


def _cells_of_settings(quick: bool) -> list[Cell]:
    readings: dict[str, tuple[str, float, float, float]] = {
        f"r = {r} d, lambda = {lam:g}": ("0, 1, 2", r, lam, 1.0)
        for r in (4, 16)
        for lam in (1e-5, 1e-4, 1e-3, 1e-2)
    }
    readings["r = 4 d, lambda = 0.001, noise variance 0.44"] = ("0, 1, 2", 4, 1e-3, 0.44)
    readings["r = 16 d, lambda = 0.0001, noise variance 0.44"] = ("0, 1, 2", 16, 1e-4, 0.44)
    for coding in ("one-hot", "left out"):
        readings[f"r = 4 d, lambda = 0.001, sex {coding}"] = (coding, 4, 1e-3, 1.0)
        readings[f"r = 16 d, lambda = 0.0001, sex {coding}"] = (coding, 16, 1e-4, 1.0)
    return [
        Cell("settings", f"Abalone: {name}", "Forward", seed, partial(with_setting, *reading, seed))
        for name, reading in readings.items()
        for seed in range(1 if quick else 20)
    ]


# California.


def scale(method: str, n: int, seed: int) -> Values:
    """Seconds of the fit and error of the test rows at one size of the training set."""
    bunch: Any = load_california()
    order = np.random.default_rng(seed).permutation(len(bunch.target))
    train, test = order[:n], order[max(n, 10_000) :]
    mean, std = bunch.data[train].mean(axis=0), bunch.data[train].std(axis=0)
    level, size = bunch.target[train].mean(), bunch.target[train].std()
    X, y = (bunch.data - mean) / std, (bunch.target - level) / size
    gamma, k = 1.0 / (4 * X.shape[1]), min(n // 10, 500)
    if method in ALGORITHMS:
        model: Any = RVMRegressor("rbf", algorithm=ALGORITHMS[method], gamma=gamma, cache_size=1000)
    elif method == "Forward":
        model = ForwardRegressor(
            "rbf",
            gamma=gamma,
            regularization=1e-7,
            noise_variance=1.0,
            max_terms=k,
            rank=k,
            early_stopping=None,
            refit=None,
        )
    else:
        model = ForwardRegressor("rbf", gamma=gamma, max_terms=max(k, 300), random_state=0)
    started = time.process_time()
    model.fit(X[train], y[train])
    values = {"seconds": time.process_time() - started, "terms": float(len(model.active_))}
    if len(test):
        errors = np.sort((model.predict(X[test]) - y[test]) ** 2) / np.var(y[test])
        values["NMSE"] = float(np.mean(errors))
        values["NMSE-but-one"] = float(np.mean(errors[:-1]))
    return values


def _cells_figure(quick: bool) -> list[Cell]:
    sizes = {"Forward": SIZES + BEYOND, **RVM_SIZES}
    sizes |= {"RVM, library": SIZES + BEYOND, "Forward, library": SIZES + BEYOND}
    return [
        Cell("figure 1", f"n = {n}", method, seed, partial(scale, method, n, seed))
        for seed in range(1 if quick else 2)
        for method, some in sizes.items()
        for n in some
        if not quick or n <= (1000 if method in RVM_SIZES else 3000)
    ]


def draw_scaling(results: Results) -> Any:
    """Time and error over the number of training rows."""
    figure, axes = make_figure(1, 2, figsize=(11.0, 4.2))
    for method in dict.fromkeys(column for _, column in results):
        rows = {int(r.removeprefix("n = ")): v for (r, c), v in results.items() if c == method}
        for ax, key in zip(axes, ("seconds", "NMSE"), strict=True):
            n = [size for size in sorted(rows) if key in rows[size][0]]
            means = [np.mean([values[key] for values in rows[size]]) for size in n]
            ax.plot(n, means, marker="o", ms=3, label=method)
    axes[0].set(xlabel="training rows", ylabel="seconds of one core", yscale="log")
    axes[1].set(xlabel="training rows", ylabel="test NMSE")
    axes[0].legend(fontsize="small")
    return figure


PAPER = Paper(
    name="forward",
    title="Efficient forward regression with marginal likelihood",
    reference="P. Sun and X. Yao, ESANN 2006, Bruges, 26-28 April 2006",
    protocol=__doc__ or "",
    tables=(
        Table(
            "1",
            "test error of three methods on three data sets",
            _cells_table,
            derive=paired_t_test,
        ),
        Table("settings", "Forward on Abalone with other settings", _cells_of_settings),
        Table(
            "figure 1",
            "time and test NMSE over the number of training rows (California)",
            _cells_figure,
            figure=draw_scaling,
            of_means=True,
        ),
    ),
    headline=(
        ("1", "Forward MSE"),
        ("1", "Old RVM MSE"),
        ("1", "New RVM MSE"),
        ("1", "Forward, all by evidence MSE"),
    ),
    picture="figure 1",
    targets=(("Abalone", "Forward", {"MSE": ("1", "Abalone", "Forward MSE")}),),
)
