"""Accuracy at defaults on raw inputs, beside boosted trees: several splits, one table.

    OMP_NUM_THREADS=1 python benchmarks/accuracy.py [--data NAME ...] [--methods ...] [--splits N]

Regression: RMSE, NLL and CRPS in the units of the target, coverage of 95 %, functions kept, CPU
seconds of fit and predict. Where a method has no std (*), NLL and CRPS are those of a constant sd
equal to its own test error, which flatters it. Classes: log-loss, error, functions, CPU seconds.
The same splits for all methods, all of them at defaults, one thread.

    concrete, energy  90 % to fit              boston, ozone, cpu  80 %        abalone     90 %
    friedman          240 and 2400, 2,000 to test                              california  10,000

    classes: breast cancer, wine, digits; california, abalone, concrete, energy cut at the median,
    up to 3,000 rows; 80 % to fit

concrete.csv and energy.csv are looked for in SPARSEBAYES_DATA. The whole of it takes most of an
hour; one set with all methods takes less than four minutes (california: with --splits 2).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.stats import norm
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # papers is beside this folder

from papers.data import load_abalone, load_boston, load_california, load_cpu, load_ozone
from sparsebayes import ForwardRegressor, RVMClassifier, RVMRegressor, SparseGPRegressor


def table_file(name):
    """The rows of a CSV file whose last column is the target."""
    path = Path(os.environ.get("SPARSEBAYES_DATA", ".")) / f"{name}.csv"
    rows = np.loadtxt(path, delimiter=",", skiprows=1)
    return rows[:, :-1], rows[:, -1]


TABLES = {
    "concrete": lambda: table_file("concrete"),
    "energy": lambda: table_file("energy"),
    "boston": lambda: load_boston(return_X_y=True),
    "ozone": lambda: load_ozone(return_X_y=True),
    "cpu": lambda: load_cpu(return_X_y=True),
    "abalone": lambda: load_abalone(return_X_y=True),
    "california": lambda: load_california(return_X_y=True),
}
# Rows to fit (a share or a number), and splits.
REGRESSION = {
    "concrete": (0.9, 10),
    "energy": (0.9, 10),
    "boston": (0.8, 10),
    "ozone": (0.8, 10),
    "cpu": (0.8, 10),
    "friedman 240": (240, 10),
    "friedman 2400": (2400, 3),
    "abalone": (0.9, 3),
    "california": (10_000, 5),
}
CLASSES = ("breast_cancer", "wine", "digits", "concrete", "energy", "abalone", "california")


def regression_split(name, seed):
    """Rows to fit, then rows to test."""
    size, _ = REGRESSION[name]
    if name.startswith("friedman"):
        X, y = datasets.make_friedman1(size + 2000, noise=1.0, random_state=seed)
        return X[:size], y[:size], X[size:], y[size:]
    X, y = TABLES[name]()
    order = np.random.default_rng(seed).permutation(len(y))
    n = size if size > 1 else int(size * len(y))
    return X[order[:n]], y[order[:n]], X[order[n:]], y[order[n:]]


def classes_split(name, seed):
    if name in TABLES:
        X, y = TABLES[name]()
        some = np.random.default_rng(0).permutation(len(y))[:3000]
        X, y = X[some], (y[some] > np.median(y)).astype(int)
    else:
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    X, new, y, truth = train_test_split(X, y, test_size=0.2, random_state=seed, stratify=y)
    return X, y, new, truth


def lightgbm(kind):
    import lightgbm

    return getattr(lightgbm, f"LGBM{kind}")(n_jobs=1, verbose=-1, random_state=0)


def catboost(kind):
    import catboost

    return getattr(catboost, f"CatBoost{kind}")(
        verbose=0, thread_count=1, random_seed=0, allow_writing_files=False
    )


def ngboost():
    from ngboost import NGBRegressor

    return NGBRegressor(verbose=False, random_state=0)


REGRESSORS = {
    "sparse GP": SparseGPRegressor,
    "sparse GP, neighbours": lambda: SparseGPRegressor(neighbours="auto"),
    "exact GP": lambda: SparseGPRegressor(max_terms=None),
    "forward": ForwardRegressor,
    "RVM": RVMRegressor,
    "boosted trees": lambda: HistGradientBoostingRegressor(random_state=0),
    "LightGBM": lambda: lightgbm("Regressor"),
    "CatBoost": lambda: catboost("Regressor"),
    "NGBoost": ngboost,
}
CLASSIFIERS = {
    "RVM": RVMClassifier,
    "one width": lambda: RVMClassifier("matern32", gamma="evidence"),
    "one per input": lambda: RVMClassifier("matern32", gamma="ard"),
    "sum": lambda: RVMClassifier("sum", gamma="ard"),
    "SVC": lambda: make_pipeline(StandardScaler(), SVC(probability=True, random_state=0)),
    "boosted trees": lambda: HistGradientBoostingClassifier(random_state=0),
    "LightGBM": lambda: lightgbm("Classifier"),
    "CatBoost": lambda: catboost("Classifier"),
}


def normal_scores(y, mean, std):
    """NLL and CRPS of a normal distribution."""
    z = (y - mean) / std
    nll = np.mean(0.5 * z**2 + np.log(std) + 0.5 * np.log(2 * np.pi))
    crps = np.mean(std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi)))
    return nll, crps


def regression_row(model, X, y, new, truth):
    started = time.process_time()
    model.fit(X, y)
    if hasattr(model, "pred_dist"):
        found = model.pred_dist(new)
        mean, std = found.loc, found.scale
    elif hasattr(model, "posterior_"):
        mean, std = model.predict(new, return_std=True)
    else:
        mean, std = np.ravel(model.predict(new)), None
    seconds = time.process_time() - started
    rmse = np.sqrt(np.mean((mean - truth) ** 2))
    nll, crps = normal_scores(truth, mean, rmse if std is None else std)
    inside = np.nan if std is None else np.mean(np.abs(truth - mean) < 1.96 * std)
    return rmse, nll, crps, inside, len(getattr(model, "active_", [])), seconds


def classes_row(model, X, y, new, truth):
    started = time.process_time()
    model.fit(X, y)
    p = model.predict_proba(new)
    seconds = time.process_time() - started
    error = np.mean(np.argmax(p, axis=1) != truth)
    return log_loss(truth, p), error, len(getattr(model, "active_", [])), seconds


def measure(makers, method, name, splits, make_split, row):
    """The scores of each split."""
    return np.array([row(makers[method](), *make_split(name, seed)) for seed in range(splits)])


def show(name, makers, splits, make_split, row, heads, chosen):
    """One table: means over the splits, and the ratio of the first column to CatBoost's."""
    found = {
        method: measure(makers, method, name, splits, make_split, row)
        for method in chosen
        if method in makers
    }
    reference = found["CatBoost"][:, 0].mean() if "CatBoost" in found else np.nan
    print(f"\n{name}, {splits} splits\n{'':>14}" + "".join(f"{head:>10}" for head in heads), end="")
    print("  of CatBoost    worst")
    for method, values in found.items():
        means = values.mean(axis=0)
        cells = "".join(f"{'-' if np.isnan(v) else format(v, '.4g'):>10}" for v in means)
        print(
            f"{method:>14}{cells}{means[0] / reference:>13.3f}{values[:, 0].max():>9.4g}",
            flush=True,
        )
    return found


if __name__ == "__main__":
    names = [*REGRESSION, *(f"classes {name}" for name in CLASSES)]
    methods = list(dict.fromkeys([*REGRESSORS, *CLASSIFIERS]))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", nargs="*", default=names, choices=names)
    parser.add_argument("--methods", nargs="*", default=methods, choices=methods)
    parser.add_argument("--splits", type=int, default=10, help="at most (each has its own limit)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.data:
        if name in REGRESSION:
            heads = ("RMSE", "NLL", "CRPS", "cover", "functions", "CPU s")
            splits = min(options.splits, REGRESSION[name][1])
            what = REGRESSORS, splits, regression_split, regression_row, heads
            show(name, *what, options.methods)
        else:
            heads = ("log-loss", "error", "functions", "CPU s")
            what = CLASSIFIERS, min(options.splits, 5), classes_split, classes_row, heads
            show(name.removeprefix("classes "), *what, options.methods)
